//! Pages compared with a plain vector; even pages; a page as a queue.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, usize, bool),
    PushFront(usize),
    PushBack(usize),
    Remove(usize, usize),
    Replace(usize, usize, bool),
    SplitAndAppend(usize),
}
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 0..20usize, 2 => 250..260usize, 1 => 0..2000usize]
}
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (any::<usize>(), length(), prop::bool::weighted(0.1)).prop_map(|(i, n, o)| Op::Insert(i, n, o)),
        3 => length().prop_map(Op::PushFront),
        3 => length().prop_map(Op::PushBack),
        2 => (any::<usize>(), 0..4usize).prop_map(|(i, n)| Op::Remove(i, n)),
        2 => (any::<usize>(), length(), prop::bool::weighted(0.1)).prop_map(|(i, n, o)| Op::Replace(i, n, o)),
        1 => any::<usize>().prop_map(Op::SplitAndAppend),
    ]
}

fn check(page: &Page, twin: &[(Vec<u8>, bool)]) {
    assert_eq!(page.len(), twin.len());
    let all: Vec<_> = (0..page.len()).map(|i| page.get(i)).map(|(b, o)| (b.to_vec(), o)).collect();
    assert_eq!(all, twin);
    for from in [0, twin.len() / 2, twin.len()] {
        let owned = |(bytes, outside): (&[u8], bool)| (bytes.to_vec(), outside);
        assert!(page.iter(from).map(owned).eq(twin[from..].iter().cloned()));
        assert!(page.iter_back(from).map(owned).eq(twin[..from].iter().rev().cloned()));
    }
    assert_eq!(page.outside_before(page.len()), twin.iter().filter(|(_, outside)| *outside).count());
    let bytes: usize = twin.iter().map(|(bytes, _)| bytes.len()).sum();
    assert_eq!(page.offset(page.len()) - page.offset(0), bytes);
    let used = page.used_bytes();
    assert!(used >= bytes && used <= HEAD_BYTES + bytes + 2 * twin.len());
    assert!(used <= page.heap_bytes() && page.heap_bytes() <= 64 + 4 * used);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn does_what_a_vec_does(ops in prop::collection::vec(op(), 1..200)) {
        let (mut page, mut twin) = (Page::default(), Vec::<(Vec<u8>, bool)>::new());
        for (n, op) in ops.into_iter().enumerate() {
            let string = |len: usize| vec![n as u8; len];
            match op {
                Op::Insert(i, len, outside) => {
                    let (i, new) = (i % (twin.len() + 1), string(len));
                    let (first, second) = new.split_at(len / 3);
                    prop_assert!(page.fill_with(len) >= page.used_bytes() + len);
                    let fill = (!outside).then(|| page.fill_with(len));
                    page.insert(i, [first, second], outside, len);
                    prop_assert!(fill.is_none_or(|fill| fill == page.fill()));
                    twin.insert(i, (new, outside));
                }
                Op::PushFront(len) => {
                    page.insert(0, [&string(len), &[]], false, 0);
                    twin.insert(0, (string(len), false));
                }
                Op::PushBack(len) => {
                    page.insert(page.len(), [&[], &string(len)], false, 100);
                    twin.push((string(len), false));
                }
                Op::Remove(i, many) => {
                    let i = i % (twin.len() + 1);
                    let end = (i + many).min(twin.len());
                    page.remove(i..end, false);
                    twin.drain(i..end);
                }
                Op::Replace(i, len, outside) if !twin.is_empty() => {
                    let i = i % twin.len();
                    page.replace(i, [&string(len), &[]], outside, 0);
                    twin[i] = (string(len), outside);
                }
                Op::Replace(..) => {}
                Op::SplitAndAppend(i) => {
                    let i = i % (twin.len() + 1);
                    let right = page.split_off(i);
                    check(&page, &twin[..i]);
                    check(&right, &twin[i..]);
                    page.append(&right);
                }
            }
            check(&page, &twin);
        }
    }
}

#[test]
fn empty_strings_fill_a_page() {
    let mut page = Page::default();
    for i in 0..100 {
        assert_eq!(page.fill_with(0), HEAD_BYTES + i + 1);
        page.insert(i / 2, [&[], &[]], false, 0);
        assert_eq!((page.fill(), page.used_bytes()), (HEAD_BYTES + i + 1, HEAD_BYTES));
    }
    assert_eq!((page.middle(), page.fill_with(1)), (50, HEAD_BYTES + 102));
    page.insert(7, [&[1], &[]], false, 0);
    assert_eq!((page.fill(), page.used_bytes()), (HEAD_BYTES + 102, HEAD_BYTES + 102));
}

#[test]
fn a_point_is_found_among_sorted_strings() {
    let mut page = Page::default();
    for i in (0..600u32).step_by(2) {
        page.insert(page.len(), [&i.to_be_bytes(), &vec![7; i as usize % 5]], false, 0);
    }
    for want in 0..600u32 {
        let point = page.partition_point(0, |_, bytes, _| bytes < &want.to_be_bytes()[..]);
        assert_eq!(point, (want as usize).div_ceil(2));
        assert_eq!(page.partition_point(100, |_, bytes, _| bytes < &want.to_be_bytes()[..]), point.max(100));
    }
}

#[test]
fn strings_of_one_length_cost_nothing_beyond_their_own() {
    let mut page = Page::default();
    (0..100).for_each(|i| page.insert(i / 2, [&[i as u8; 7], &[]], false, 0));
    assert_eq!(page.used_bytes(), HEAD_BYTES + 700);
    let mut twin: Vec<Vec<u8>> = page.iter(0).map(|(bytes, _)| bytes.to_vec()).collect();
    // Insert a string of another length, an empty string and a long string. Each changes the page's form
    // once, and no string is lost.
    for (at, len, width) in [(50, 6, 1), (0, 0, 1), (102, 300, 2)] {
        page.insert(at, [&vec![9; len], &[]], false, 0);
        twin.insert(at, vec![9; len]);
        assert!(page.iter(0).map(|(bytes, _)| bytes.to_vec()).eq(twin.iter().cloned()));
        let bytes: usize = twin.iter().map(Vec::len).sum();
        assert_eq!(page.used_bytes(), HEAD_BYTES + bytes + width * twin.len());
    }
    // Two even pages stay even together when their lengths are equal.
    let even = |len: usize| {
        let mut page = Page::default();
        (0..10).for_each(|i| page.insert(i, [&vec![1; len], &[]], false, 0));
        page
    };
    for (left, right, lens) in [(3, 3, 0), (3, 4, 20), (0, 300, 40), (300, 0, 40)] {
        let mut joined = even(left);
        joined.append(&even(right));
        assert_eq!(joined.used_bytes(), HEAD_BYTES + 10 * (left + right) + lens);
        assert_eq!((joined.get(9).0.len(), joined.get(10).0.len()), (left, right));
    }
}

#[test]
fn a_page_used_as_a_queue_moves_little() {
    let mut page = Page::default();
    for _ in 0..100 {
        page.insert(page.len(), [b"a string", b""], false, 4096);
    }
    let bytes = page.heap_bytes();
    for _ in 0..10_000 {
        page.insert(0, [b"a string", b""], false, 4096);
        page.remove(page.len() - 1..page.len(), true);
    }
    assert_eq!((page.len(), page.heap_bytes()), (100, bytes));
}
