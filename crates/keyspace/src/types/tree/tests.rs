//! Trees are compared with a `Vec` of their elements. Snapshots of trees must not change.

use super::*;
use proptest::prelude::*;

/// An element in the `Vec`: its bytes in the page, and its bytes outside the page.
type Plain = (Vec<u8>, Option<Vec<u8>>);

/// The layout of unordered elements. The pages are small, so that trees become deep.
#[derive(Debug)]
struct Unordered;
impl Layout for Unordered {
    const PAGE_BYTES: usize = 256;
    fn separator(_: Element<'_>, _: Element<'_>, _: &mut Vec<u8>) -> Option<Blob> {
        None
    }
}

/// The layout of elements that are ordered by their bytes, with the shortest possible separators.
#[derive(Debug)]
struct Ordered;
impl Layout for Ordered {
    const PAGE_BYTES: usize = 256;
    fn separator(left: Element<'_>, right: Element<'_>, out: &mut Vec<u8>) -> Option<Blob> {
        let same = left.inline.iter().zip(right.inline).take_while(|(a, b)| a == b).count();
        out.extend_from_slice(&right.inline[..same + 1]);
        // The bytes of a separator outside the page must not matter, so add some.
        right.outside.cloned()
    }
    /// The score is the first byte, which many elements share.
    fn score(separator: Element<'_>) -> f64 {
        score_of(separator.inline)
    }
}
fn score_of(text: &[u8]) -> f64 {
    text.first().map_or(-1.0, |byte| f64::from(*byte))
}
/// The place of a text. Half of the texts give a score, too.
fn by_text(text: &[u8]) -> SeekTarget<impl FnMut(Element<'_>) -> bool> {
    SeekTarget {
        score: text.last().is_some_and(|byte| byte % 2 == 0).then(|| score_of(text)),
        before: move |e: Element<'_>| e.inline < text,
    }
}

fn plain(element: Element<'_>) -> Plain {
    (element.inline.to_vec(), element.outside.map(|blob| blob.to_vec()))
}
fn new(element: &Plain) -> NewElement<'_> {
    let (head, body) = element.0.split_at(element.0.len() / 2);
    NewElement { head, body, outside: element.1.as_ref().map(|bytes| Blob::from(bytes.as_slice())) }
}

/// Checks all properties of a tree: its content, the counts at each node, its shape.
fn check<L: Layout>(tree: &Tree<L>, twin: &[Plain]) {
    assert_eq!((tree.len(), tree.is_empty()), (twin.len(), twin.is_empty()));
    assert!(tree.iter(0).map(plain).eq(twin.iter().cloned()));
    assert!(tree.iter_back(tree.len()).map(plain).eq(twin.iter().rev().cloned()));
    if let Some(root) = &tree.root {
        check_node::<L>(root);
        let bytes: usize =
            twin.iter().map(|(inline, more)| inline.len() + more.as_ref().map_or(0, Vec::len)).sum();
        assert!(tree.heap_bytes() > bytes);
    }
}
/// Checks a node and returns its depth.
fn check_node<L: Layout>(child: &Child) -> usize {
    let (len, bytes, depth) = match &child.node {
        Node::Leaf(leaf) => {
            assert!(leaf.len() > 0);
            (leaf.len(), leaf.heap_bytes(), 0)
        }
        Node::Inner(inner) => {
            assert!((1..=node::CHILDREN_MAX).contains(&inner.children.len()));
            let depths: Vec<_> = inner.children.iter().map(check_node::<L>).collect();
            assert!(depths.windows(2).all(|two| two[0] == two[1]), "{depths:?}");
            let below: usize = inner.children.iter().map(|child| child.bytes).sum();
            assert!(child.bytes > below && child.bytes < below + 8192);
            (inner.children.iter().map(|child| child.len).sum(), child.bytes, depths[0] + 1)
        }
    };
    assert_eq!((child.len, child.bytes), (len, bytes));
    depth
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize),
    PushFront(usize),
    PushBack(usize),
    Remove(usize),
    RemoveRange(usize, usize),
    Replace(usize),
    Snapshot,
    Walk(usize),
}
fn op() -> impl Strategy<Value = (Op, usize, bool)> {
    let op = prop_oneof![
        6 => any::<usize>().prop_map(Op::Insert),
        4 => (1..30usize).prop_map(Op::PushFront),
        4 => (1..30usize).prop_map(Op::PushBack),
        2 => any::<usize>().prop_map(Op::Remove),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Op::RemoveRange(a, b)),
        2 => any::<usize>().prop_map(Op::Replace),
        1 => Just(Op::Snapshot),
        1 => any::<usize>().prop_map(Op::Walk),
    ];
    (op, prop_oneof![9 => 0..24usize, 1 => 100..300usize], prop::bool::weighted(0.1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn does_what_a_vec_does(ops in prop::collection::vec(op(), 1..400)) {
        let (mut tree, mut twin) = (Tree::<Unordered>::new(), Vec::<Plain>::new());
        let mut snapshots = Vec::new();
        for (n, (op, len, long)) in ops.into_iter().enumerate() {
            let element = (vec![n as u8; len], long.then(|| vec![n as u8; 5]));
            match op {
                Op::Insert(i) => {
                    let i = i % (twin.len() + 1);
                    tree.insert(i, new(&element));
                    twin.insert(i, element);
                }
                Op::PushFront(many) => for _ in 0..many {
                    tree.push_front(new(&element));
                    twin.insert(0, element.clone());
                },
                Op::PushBack(many) => for _ in 0..many {
                    tree.push_back(new(&element));
                    twin.push(element.clone());
                },
                Op::Remove(i) | Op::Replace(i) if twin.is_empty() => prop_assert!(tree.get(i).is_none()),
                Op::Remove(i) => {
                    tree.remove(i % twin.len());
                    twin.remove(i % twin.len());
                }
                Op::RemoveRange(a, b) => {
                    let (a, b) = (a % (twin.len() + 1), b % (twin.len() + 1));
                    let before = tree.heap_bytes();
                    let cut = tree.remove_range(a.min(b)..a.max(b));
                    prop_assert!(cut.heap_bytes() <= before);
                    prop_assert!(cut.heap_bytes() == 0 || cut.into_pieces().count() > 0);
                    twin.drain(a.min(b)..a.max(b));
                }
                Op::Replace(i) => {
                    let i = i % twin.len();
                    tree.replace(i, new(&element));
                    twin[i] = element;
                }
                Op::Snapshot => snapshots.push((tree.clone(), twin.clone())),
                Op::Walk(i) => {
                    let i = i % (twin.len() + 1);
                    prop_assert_eq!(tree.get(i).map(plain), twin.get(i).cloned());
                    prop_assert!(tree.iter(i).map(plain).eq(twin[i..].iter().cloned()));
                    prop_assert!(tree.iter_back(i).map(plain).eq(twin[..i].iter().rev().cloned()));
                }
            }
            prop_assert_eq!(tree.len(), twin.len());
        }
        check(&tree, &twin);
        for (tree, twin) in &snapshots {
            check(tree, twin);
        }
        let least = tree.len().div_ceil(256 * 64);
        prop_assert!(tree.into_pieces().count() >= least);
    }

    #[test]
    fn keeps_an_order(ops in prop::collection::vec((0..5u8, 0..3000u16, 0..8u16), 1..2000)) {
        let (mut tree, mut twin) = (Tree::<Ordered>::new(), Vec::<Plain>::new());
        let mut snapshots = Vec::new();
        for (n, (op, key, more)) in ops.into_iter().enumerate() {
            // Texts of different lengths share long prefixes.
            let text = format!("{}{key:04}", "p".repeat(usize::from(key % 3) * 4)).into_bytes();
            let element = (text.clone(), (key % 50 == 0).then(|| vec![1; 5]));
            let point = tree.partition_point(by_text(&text));
            prop_assert_eq!(point, twin.partition_point(|(inline, _)| *inline < text));
            let is_there = twin.get(point).is_some_and(|(inline, _)| *inline == text);
            match op {
                0..3 if !is_there => {
                    tree.insert_ordered(by_text(&text), new(&element));
                    twin.insert(point, element);
                }
                3 if is_there => {
                    if more % 2 == 0 || !tree.remove_ordered(by_text(&text)) {
                        tree.remove(point);
                    }
                    twin.remove(point);
                }
                4 => {
                    let end = (point + usize::from(more) * 16).min(twin.len());
                    tree.remove_range(point..end);
                    twin.drain(point..end);
                }
                _ => {}
            }
            if n % 500 == 0 {
                snapshots.push((tree.clone(), twin.clone()));
            }
        }
        check(&tree, &twin);
        for (tree, twin) in &snapshots {
            check(tree, twin);
        }
    }
}

/// A layout with pages of the size that lists use.
#[derive(Debug)]
struct Large;
impl Layout for Large {
    const PAGE_BYTES: usize = 8192;
    fn separator(_: Element<'_>, _: Element<'_>, _: &mut Vec<u8>) -> Option<Blob> {
        None
    }
}

#[test]
fn many_elements_are_dense_and_are_freed_in_pieces() {
    let element = [7u8; 16];
    for front in [false, true] {
        let mut tree = Tree::<Large>::new();
        for _ in 0..300_000 {
            let new = NewElement::inline(&[], &element);
            if front { tree.push_front(new) } else { tree.push_back(new) }
        }
        let each = tree.heap_bytes() as f64 / 3e5;
        assert!(each < 17.5, "{each} bytes an element");
        let snapshot = tree.clone();
        // A shared root is one piece, and dropping it frees nothing.
        assert_eq!(tree.into_pieces().count(), 1);
        assert_eq!(snapshot.get(299_999).map(|e| e.inline), Some(&element[..]));
        assert!((8..40).contains(&snapshot.into_pieces().count()));
    }
}

#[test]
fn list_used_as_a_queue_stays_small() {
    let mut tree = Tree::<Large>::new();
    for i in 0..50_000u32 {
        tree.push_back(NewElement::inline(&i.to_be_bytes(), &[b'x'; 20]));
        if i >= 1000 {
            assert_eq!(tree.get(0).map(|e| e.inline[..4].to_vec()), Some((i - 1000).to_be_bytes().to_vec()));
            tree.remove(0);
        }
    }
    assert_eq!(tree.len(), 1000);
    assert!(tree.heap_bytes() < 8 * 8192, "{}", tree.heap_bytes());
    let cut = tree.remove_range(0..1000);
    assert!(tree.is_empty() && tree.heap_bytes() == 0 && cut.heap_bytes() > 0);
}

#[test]
fn removals_at_random_do_not_leave_thin_pages() {
    let (mut tree, mut rng) = (Tree::<Large>::new(), fastrand::Rng::with_seed(5));
    for i in 0..60_000u32 {
        tree.insert(rng.usize(..=i as usize), NewElement::inline(&i.to_be_bytes(), &[b'x'; 12]));
    }
    let grown = tree.heap_bytes();
    assert!(grown < 60_000 * 17 * 5 / 4, "{grown}");
    while tree.len() > 600 {
        tree.remove(rng.usize(..tree.len()));
    }
    assert!(tree.heap_bytes() < grown / 25, "{} of {grown}", tree.heap_bytes());
}
