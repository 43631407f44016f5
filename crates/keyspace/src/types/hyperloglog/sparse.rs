//! The sparse representation of a HyperLogLog: runs of equal registers, in order. The runs have 16,384 registers
//! together.
//!
//! | bits | run |
//! |---|---|
//! | `00llllll` | l + 1 registers of 0 |
//! | `01llllll llllllll` | l + 1 registers of 0 |
//! | `1vvvvvll` | l + 1 registers of v + 1 |
//!
//! The same registers can be written as different sequences of runs. redis-server's way to split and join runs
//! decides which sequence is stored, and [`raise`] takes the same steps.

use super::{Corrupted, HEADER_BYTES, REGISTERS};

/// Maximum number of registers in a run of each kind.
const SHORT_ZEROS_MAX: usize = 64;
const VALUES_MAX: usize = 4;
/// Maximum value of a register in the sparse representation.
const REGISTER_MAX: u8 = 32;
/// Number of runs that may be joined after a split: the run before, the three new ones, and the run after.
const JOINED_RUNS: usize = 5;

/// A run of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRun {
    /// Value of each register in the run.
    pub register: u8,
    /// Number of registers in the run.
    pub len: usize,
    /// Number of bytes that store the run.
    pub bytes: usize,
}

/// Result of [`raise`].
pub(super) enum Raised {
    /// The register already had this value or a higher one.
    No,
    /// The register was raised to the new value.
    Yes,
    /// The value does not fit the sparse representation. Nothing was changed.
    NoRoom,
}

/// The run at the start of `bytes`.
fn first(bytes: &[u8]) -> Option<RegisterRun> {
    let byte = *bytes.first()?;
    match byte >> 6 {
        0 => Some(RegisterRun { register: 0, len: usize::from(byte & 0x3f) + 1, bytes: 1 }),
        1 => {
            let len = usize::from(byte & 0x3f) << 8 | usize::from(*bytes.get(1)?);
            Some(RegisterRun { register: 0, len: len + 1, bytes: 2 })
        }
        _ => Some(RegisterRun { register: (byte >> 2 & 0x1f) + 1, len: usize::from(byte & 3) + 1, bytes: 1 }),
    }
}

/// The runs in `bytes`. There may be more or fewer than 16,384 registers.
pub(super) fn any_runs(bytes: &[u8]) -> impl Iterator<Item = RegisterRun> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        // If the last run is truncated, read a zero byte after it, as redis-server does, whose strings end with
        // one.
        let run = first(rest).or_else(|| first(&[*rest.first()?, 0]))?;
        rest = rest.get(run.bytes..).unwrap_or_default();
        Some(run)
    })
}

/// The runs in `bytes`. If they do not have exactly 16,384 registers, the last item is an error.
pub(super) fn runs(bytes: &[u8]) -> impl Iterator<Item = Result<RegisterRun, Corrupted>> + '_ {
    let (mut rest, mut left) = (bytes, Some(REGISTERS));
    std::iter::from_fn(move || {
        let to_come = left?;
        left = None;
        if rest.is_empty() {
            return (to_come > 0).then_some(Err(Corrupted));
        }
        let Some(run) = first(rest).filter(|run| run.len <= to_come) else { return Some(Err(Corrupted)) };
        (rest, left) = (&rest[run.bytes..], Some(to_come - run.len));
        Some(Ok(run))
    })
}

/// Appends `len` registers of 0.
pub(super) fn push_zeros(out: &mut Vec<u8>, len: usize) {
    if len > SHORT_ZEROS_MAX {
        out.extend_from_slice(&(0x4000 | (len - 1) as u16).to_be_bytes());
    } else if len > 0 {
        out.push((len - 1) as u8);
    }
}
fn push_values(out: &mut Vec<u8>, register: u8, len: usize) {
    if len > 0 {
        out.push(values(register, len));
    }
}
fn values(register: u8, len: usize) -> u8 {
    0x80 | (register - 1) << 2 | (len - 1) as u8
}

/// Raises the register at `index` of a value to `register`, unless the value would become longer than `bytes_max`.
pub(super) fn raise(
    value: &mut Vec<u8>,
    index: usize,
    register: u8,
    bytes_max: usize,
) -> Result<Raised, Corrupted> {
    if register > REGISTER_MAX {
        return Ok(Raised::NoRoom);
    }
    let (mut at, mut before, mut first_index) = (HEADER_BYTES, None, 0);
    let run = loop {
        let run = first(&value[at..]).ok_or(Corrupted)?;
        if index < first_index + run.len {
            break run;
        }
        before = Some(at);
        at += run.bytes;
        first_index += run.len;
    };
    if run.register >= register {
        return Ok(Raised::No);
    }
    if run.len == 1 {
        // A run of one register takes one byte, unless another program has written the value.
        value.splice(at..at + run.bytes, [values(register, 1)]);
    } else {
        let (left, right) = (index - first_index, first_index + run.len - 1 - index);
        let mut split = Vec::with_capacity(JOINED_RUNS);
        let push = |out: &mut Vec<u8>, len| match run.register {
            0 => push_zeros(out, len),
            old => push_values(out, old, len),
        };
        push(&mut split, left);
        push_values(&mut split, register, 1);
        push(&mut split, right);
        if split.len() > run.bytes && value.len() + split.len() - run.bytes > bytes_max {
            return Ok(Raised::NoRoom);
        }
        value.splice(at..at + run.bytes, split);
    }
    join(value, before.unwrap_or(HEADER_BYTES));
    Ok(Raised::Yes)
}

/// Joins neighbouring runs of equal registers, starting with the run at `at`.
fn join(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED_RUNS {
        let Some(run) = value.get(at..).and_then(first) else { return };
        if run.register > 0
            && let Some(next) = first(&value[at + 1..])
            && next.register == run.register
            && run.len + next.len <= VALUES_MAX
        {
            value[at + 1] = values(run.register, run.len + next.len);
            value.remove(at);
            continue;
        }
        at += run.bytes;
    }
}
