//! What waits for replicas: how new bytes of the stream are kept, and the memory that they take.
//!
//! With one replica, the bytes are copied into its own blocks. With several replicas, each piece is one blob, which all
//! share. Otherwise the blocks of the journal would wait, most of them nearly empty: 53 MB took 66 MB.

use strand_chain::{Blob, Chain};

/// Of a longer piece of the stream only the short slices are copied. The others share the blocks of the journal.
const COPIED_BYTES_MAX: usize = 256 << 10;
/// A piece is copied in steps of this many bytes, which fill the blocks of a chain. A chain gives a longer slice a blob of
/// its own, so that the next slice begins a new block.
const STEP_BYTES: usize = 8 << 10;
/// A slice of up to this many bytes of a long piece is copied into a blob of its own, so that no nearly empty block waits.
const SHORT_BYTES_MAX: usize = 4 << 10;
/// Memory of a piece in the chain of one replica, besides the shared bytes.
const LINK_BYTES: u64 = 32;
/// Memory of a shared piece besides its bytes.
const HEADER_BYTES: u64 = 16;

/// Appends bytes of the stream to what waits. The first bytes that wait are not copied, because they leave at once if the
/// replica keeps up.
pub(crate) fn append_to(waiting: &mut Chain, bytes: &Chain) {
    match bytes.len() {
        _ if waiting.is_empty() => waiting.push_links(bytes.share()),
        0..=COPIED_BYTES_MAX => copy_to(waiting, bytes),
        _ => waiting.push_links(trimmed(bytes)),
    }
}

/// Appends a copy of the bytes, which fills the blocks of `waiting`.
pub(super) fn copy_to(waiting: &mut Chain, bytes: &Chain) {
    bytes.slices().flat_map(|slice| slice.chunks(STEP_BYTES)).for_each(|step| waiting.push_slice(step));
}

/// The bytes in the form in which several replicas share them: one blob, if they are few.
pub(super) fn shared_form(bytes: &Chain) -> Chain {
    if bytes.len() > COPIED_BYTES_MAX {
        return trimmed(bytes);
    }
    let mut blob = Blob::with_capacity(bytes.len());
    bytes.slices().for_each(|slice| blob.extend_from_slice(slice));
    let mut form = Chain::new();
    form.push_blob(blob);
    form
}

/// The bytes, with copies of the short slices.
fn trimmed(bytes: &Chain) -> Chain {
    let (mut rest, mut trimmed) = (bytes.share(), Chain::new());
    for slice in bytes.slices() {
        let whole = rest.split_to(slice.len());
        match slice.len() {
            0..=SHORT_BYTES_MAX => trimmed.push_blob(Blob::from(slice)),
            _ => trimmed.push_links(whole),
        }
    }
    trimmed
}

/// Memory of a shared piece for `replicas`, besides its bytes.
pub(super) fn overhead(piece: &Chain, replicas: usize) -> u64 {
    let bytes = piece.len() as u64;
    // The allocator rounds up to eighths of a power of two.
    let rounded_bytes = bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16));
    rounded_bytes - bytes + HEADER_BYTES + replicas as u64 * LINK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece as the journal gives it: the start of a block, and a long value of its own.
    fn piece(small: usize, long: usize) -> Chain {
        let mut piece = Chain::new();
        piece.push_slice(&vec![b's'; small]);
        if long > 0 {
            piece.push_blob(Blob::from(&vec![b'l'; long][..]));
        }
        piece
    }

    #[test]
    fn what_waits_takes_little_more_than_its_bytes() {
        for (small, long) in [(60, 0), (5000, 0), (40, 33_000), (40, 100_000), (40, 300_000)] {
            let (mut waiting, mut expected) = (Chain::new(), Vec::<u8>::new());
            while waiting.len() < 4 << 20 {
                let piece = piece(small, long);
                append_to(&mut waiting, &piece);
                expected.extend(piece.slices().flatten());
            }
            assert!(waiting.slices().flatten().eq(expected.iter()), "{small} {long}");
            let bytes = waiting.len();
            assert!(waiting.heap_bytes() < bytes + bytes / 16, "{small} {long}: {}", waiting.heap_bytes());
        }
    }

    #[test]
    fn replicas_share_what_waits_for_them() {
        for (small, long) in [(60, 0), (5000, 0), (40, 33_000), (40, 300_000)] {
            let piece = piece(small, long);
            let shared = shared_form(&piece);
            assert!(shared.slices().flatten().eq(piece.slices().flatten()));
            let (mut a, mut b) = (Chain::new(), Chain::new());
            for waiting in [&mut a, &mut b] {
                (0..3).for_each(|_| waiting.push_links(shared.share()));
            }
            let addresses = |chain: &Chain| chain.slices().map(<[u8]>::as_ptr).collect::<Vec<_>>();
            assert_eq!(addresses(&a), addresses(&b));
        }
        assert_eq!(overhead(&piece(1000, 0), 2), 24 + HEADER_BYTES + 2 * LINK_BYTES);
    }
}
