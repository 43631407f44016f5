//! Compares Blob and Chain with plain vectors under random operations.

use proptest::prelude::*;
use strand_chain::{Blob, Chain};

/// Maximum length of an appended slice. It exceeds a pooled block, so that every way of appending occurs.
const SLICE_BYTES_MAX: usize = if cfg!(miri) { 400 } else { 40_000 };
/// Maximum number of bytes filled in place at once.
const FILL_BYTES_MAX: usize = if cfg!(miri) { 200 } else { 20_000 };

/// Number of test cases. `PROPTEST_CASES` sets another number.
fn cases(native: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let cases = asked.unwrap_or(if cfg!(miri) { 6 } else { native });
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
enum Op {
    PushSlice(usize),
    PushBlob(usize),
    PushFront(usize),
    /// Fill a part of the spare memory, in thousandths.
    Read(usize),
    /// Encode into a room of this many bytes.
    Write(usize),
    Advance(usize),
    Split(usize),
    /// Append the chain that was split off last.
    Join,
    DropSplit,
    /// Replace the split-off chain by a second chain of the same bytes.
    Share,
    Find(u8, usize),
    Peek(usize),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..300usize).prop_map(Op::PushSlice),
        1 => (0..SLICE_BYTES_MAX).prop_map(Op::PushSlice),
        2 => (0..SLICE_BYTES_MAX).prop_map(Op::PushBlob),
        3 => (0..300usize).prop_map(Op::PushFront),
        1 => (0..SLICE_BYTES_MAX).prop_map(Op::PushFront),
        3 => (0..=1000usize).prop_map(Op::Read),
        3 => (0..=4096usize).prop_map(Op::Write),
        4 => (0..=1000usize).prop_map(Op::Advance),
        2 => (0..=1000usize).prop_map(Op::Split),
        2 => Just(Op::Join),
        1 => Just(Op::DropSplit),
        1 => Just(Op::Share),
        3 => (any::<u8>(), 0..50_000usize).prop_map(|(b, n)| Op::Find(b, n)),
        2 => (0..2000usize).prop_map(Op::Peek),
        1 => Just(Op::Clear),
    ]
}

/// Bytes that differ between positions and between calls. `seed` counts the calls.
fn bytes(seed: &mut u32, n: usize) -> Vec<u8> {
    *seed = seed.wrapping_add(0x9e37_79b9);
    (0..n as u32).map(|i| (seed.wrapping_add(i.wrapping_mul(2_654_435_761)) >> 24) as u8).collect()
}

fn collect(chain: &Chain) -> Vec<u8> {
    chain.slices().flatten().copied().collect()
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn chain_behaves_as_a_vector(ops in prop::collection::vec(op(), 1..60)) {
        let (mut chain, mut model) = (Chain::new(), Vec::new());
        let (mut split, mut split_model) = (Chain::new(), Vec::new());
        let mut seed = 1;
        for op in ops {
            match op {
                Op::PushSlice(n) => {
                    let b = bytes(&mut seed, n);
                    chain.push_slice(&b);
                    model.extend(b);
                }
                Op::PushBlob(n) => {
                    let b = bytes(&mut seed, n);
                    chain.push_blob(Blob::from(&b[..]));
                    model.extend(b);
                }
                Op::PushFront(n) => {
                    let b = bytes(&mut seed, n);
                    chain.push_front(&b);
                    model.splice(..0, b);
                }
                Op::Read(part) => {
                    let spare = chain.spare();
                    prop_assert!(spare.len() >= 4096);
                    let n = (spare.len() * part / 1000).min(FILL_BYTES_MAX);
                    let b = bytes(&mut seed, n);
                    spare[..n].copy_from_slice(&b);
                    chain.filled(n);
                    model.extend(b);
                }
                Op::Write(n) => {
                    let n = n.min(FILL_BYTES_MAX);
                    let b = bytes(&mut seed, n);
                    chain.room(n)[..n].copy_from_slice(&b);
                    chain.filled(n);
                    model.extend(b);
                }
                Op::Advance(part) => {
                    let n = model.len() * part / 1000;
                    chain.advance(n);
                    model.drain(..n);
                }
                Op::Split(part) => {
                    let n = model.len() * part / 1000;
                    split = chain.split_to(n);
                    split_model = model.drain(..n).collect();
                }
                Op::Join => {
                    chain.push_chain(std::mem::take(&mut split));
                    model.append(&mut split_model);
                }
                Op::DropSplit => {
                    split = Chain::new();
                    split_model.clear();
                }
                Op::Share => {
                    split = chain.share();
                    split_model = model.clone();
                }
                Op::Find(byte, limit) => {
                    let from = chain.examined().min(model.len());
                    let to = limit.clamp(from, model.len().max(from));
                    let expected = model[from..to].iter().position(|b| *b == byte).map(|i| i + from);
                    prop_assert_eq!(chain.find(byte, limit), expected);
                    prop_assert!(expected.is_some() || chain.examined() >= limit.min(model.len()));
                }
                Op::Peek(n) => {
                    let mut out = vec![0; n];
                    let there = chain.peek(&mut out);
                    prop_assert_eq!(there, n <= model.len());
                    prop_assert!(!there || out == model[..n]);
                }
                Op::Clear => {
                    chain.clear();
                    model.clear();
                }
            }
            prop_assert_eq!(chain.len(), model.len());
            prop_assert_eq!(chain.front().is_empty(), model.is_empty());
            prop_assert!(chain.slices().all(|s| !s.is_empty()));
            prop_assert!(chain.examined() <= model.len());
            prop_assert_eq!(split.len(), split_model.len());
        }
        prop_assert!(collect(&chain) == model);
        prop_assert!(collect(&split) == split_model, "later operations do not change a split-off chain");
    }

    #[test]
    fn blob_behaves_as_a_vector(ops in prop::collection::vec((0..9u8, 0..700usize), 1..60)) {
        let (mut blob, mut model) = (Blob::new(), Vec::new());
        let mut handles: Vec<(Blob, Vec<u8>)> = Vec::new();
        let mut seed = 1;
        for (op, n) in ops {
            match op {
                0 | 1 => {
                    let b = bytes(&mut seed, n);
                    blob.extend_from_slice(&b);
                    model.extend(b);
                }
                2 => {
                    blob.resize(n, 9);
                    model.resize(n, 9);
                }
                3 => {
                    blob.truncate(n);
                    model.truncate(n);
                }
                4 => handles.push((blob.clone(), model.clone())),
                5 => {
                    let at = n.min(handles.len());
                    handles.truncate(at);
                }
                6 => {
                    blob.make_mut().iter_mut().for_each(|b| *b ^= 0x55);
                    model.iter_mut().for_each(|b| *b ^= 0x55);
                }
                7 => {
                    blob.reserve(n);
                    prop_assert!(blob.is_unique() && blob.capacity() >= model.len() + n);
                }
                _ => blob.shrink_to_fit(),
            }
            prop_assert!(blob.as_slice() == model);
            prop_assert!(blob.len() <= blob.capacity());
            prop_assert!(blob.get_mut().is_none_or(|b| b == model));
        }
        for (handle, model) in handles {
            prop_assert!(handle.as_slice() == model, "a shared handle never sees another's writes");
        }
    }
}
