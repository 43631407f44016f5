//! Finds a row by its name. The compiler builds the index. A look-up is one multiplication and one comparison.
//!
//! A name of at most 24 bytes is packed into three integers: its first, middle and last eight bytes, in lower case.
//! The integers are hashed into an open-addressed table and compared there. So a look-up of a frequent command
//! compares no strings.

use crate::spec::CommandSpec;

/// Maximum length of a command's name in bytes, because it is packed into three integers.
const NAME_BYTES_MAX: usize = 24;
/// A search looks at one slot, and at fewer than this many slots after it.
const STEPS_MAX: usize = 8;

/// Finds the row of `name`, in any ASCII case.
#[inline]
pub(super) fn lookup(
    rows: &'static [CommandSpec],
    slots: &[Slot],
    name: &[u8],
) -> Option<&'static CommandSpec> {
    let packed = pack(name)?;
    let mask = slots.len() - 1;
    let mut at = hash_of(packed) & mask;
    loop {
        let slot = &slots[at];
        if slot.packed.low == packed.low
            && slot.packed.high == packed.high
            && slot.packed.middle == packed.middle
            && slot.len as usize == name.len()
        {
            let spec = &rows[slot.row as usize];
            // Packing also changes some bytes that are no letters. If a name has such bytes, it is also compared
            // byte by byte.
            return (slot.letters_only || name.eq_ignore_ascii_case(spec.name.as_bytes())).then_some(spec);
        }
        if slot.is_free() {
            return None;
        }
        at = (at + 1) & mask;
    }
}

/// A name packed into three integers.
#[derive(Clone, Copy, Debug)]
struct Packed {
    low: u64,
    high: u64,
    /// Bytes 8 to 16, of a name with more than 16 bytes.
    middle: u64,
}

/// A slot of the index: a packed name with the number of its row, or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    packed: Packed,
    row: u16,
    len: u8,
    letters_only: bool,
}

impl Slot {
    /// A free slot. No name is packed to zeros.
    const FREE: Slot =
        Slot { packed: Packed { low: 0, high: 0, middle: 0 }, row: 0, len: 0, letters_only: false };

    const fn is_free(&self) -> bool {
        self.packed.low == 0
    }
}

/// Builds the index of these rows. The number of slots is a power of two and at least twice the number of rows, so
/// that searches are short.
///
/// # Panics
/// At compile time, when there are too many rows, or a name is empty or too long.
pub const fn index<const SLOTS: usize>(rows: &[CommandSpec]) -> [Slot; SLOTS] {
    assert!(rows.len() < u16::MAX as usize && rows.len() * 2 <= SLOTS && SLOTS.is_power_of_two());
    let mut slots = [Slot::FREE; SLOTS];
    let mut row = 0;
    while row < rows.len() {
        let name = rows[row].name.as_bytes();
        let Some(packed) = pack(name) else { panic!("a command's name is empty or longer than 24 bytes") };
        let (mut at, mut steps) = (hash_of(packed) % SLOTS, 0);
        while !slots[at].is_free() {
            at = (at + 1) % SLOTS;
            steps += 1;
        }
        assert!(steps < STEPS_MAX, "a name is far from where it is looked for first: choose another factor");
        let (mut letters_only, mut i) = (true, 0);
        while i < name.len() {
            letters_only &= name[i].is_ascii_lowercase();
            i += 1;
        }
        slots[at] = Slot { packed, row: row as u16, len: name.len() as u8, letters_only };
        row += 1;
    }
    slots
}

/// Packs a name: sets the bit for lower case in each of its bytes. If two names consist of letters, their packed
/// forms and lengths differ.
const fn pack(name: &[u8]) -> Option<Packed> {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let (low, high) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                (u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32, 0)
            }
            _ => match name {
                [a] => (*a as u64, 0),
                [a, b] => (*a as u64 | (*b as u64) << 8, 0),
                [a, b, c] => (*a as u64 | (*b as u64) << 8 | (*c as u64) << 16, 0),
                _ => return None,
            },
        },
    };
    let middle = match name.split_at_checked(8) {
        Some((_, rest)) if name.len() > 16 => match rest.first_chunk::<8>() {
            Some(middle) => u64::from_le_bytes(*middle),
            None => 0,
        },
        _ => 0,
    };
    Some(Packed { low: low | LOWER, high: high | LOWER, middle: middle | LOWER })
}

const fn hash_of(packed: Packed) -> usize {
    let mixed = (packed.low ^ packed.high.rotate_left(23) ^ packed.middle.rotate_left(41))
        .wrapping_mul(0x1656_67B1_9E37_79F9);
    (mixed >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::super::DATA;

    #[test]
    fn every_row_is_found_in_any_case_and_nothing_else() {
        for spec in DATA.rows() {
            let (lower, upper) = (spec.name.as_bytes(), spec.name.to_ascii_uppercase());
            for name in [lower, upper.as_bytes()] {
                assert_eq!(DATA.lookup(name).map(|s| s.name), Some(spec.name));
            }
            for i in 0..lower.len() {
                let mut changed = lower.to_vec();
                for byte in 0..=255 {
                    changed[i] = byte;
                    let want = DATA.rows().iter().find(|s| changed.eq_ignore_ascii_case(s.name.as_bytes()));
                    assert_eq!(DATA.lookup(&changed).map(|s| s.name), want.map(|s| s.name), "{changed:?}");
                }
            }
            for (name, known) in [(lower[1..].to_vec(), false), ([lower, lower].concat(), false)] {
                assert!(
                    DATA.lookup(&name).is_some() == known
                        || DATA.rows().iter().any(|s| s.name.as_bytes() == name),
                    "{name:?}"
                );
            }
        }
        assert!(DATA.lookup(b"").is_none());
        assert!(DATA.lookup(b"a name that is far too long").is_none());
        assert!(DATA.lookup(b"\0\0\0\0").is_none());
    }
}
