//! Maps are compared with the standard library's map after random operations, and their nodes are checked.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Map = SharedMap<u32, u64>;

/// Counts nodes and bytes by a walk, and checks order and depth.
fn walk(node: &Node<u32, u64>, low: Option<u32>, high: Option<u32>, depth: usize) -> (usize, usize, usize) {
    let (mut nodes, mut bytes, mut leaf_depth) = (1, node.heap_bytes(), depth);
    assert!(node.len() > 0 && node.len() <= NODE_MAX);
    match node {
        Node::Leaf(pairs) => {
            assert!(pairs.is_sorted_by(|a, b| a.0 < b.0));
            assert!(low.is_none_or(|low| pairs[0].0 >= low));
            assert!(high.is_none_or(|high| pairs[pairs.len() - 1].0 < high));
        }
        Node::Inner(children) => {
            for (i, child) in children.iter().enumerate() {
                let low = if i == 0 { low } else { Some(child.low) };
                let high = children.get(i + 1).map(|c| c.low).or(high);
                let (n, b, d) = walk(&child.node, low, high, depth + 1);
                assert!(i == 0 || d == leaf_depth);
                (nodes, bytes, leaf_depth) = (nodes + n, bytes + b, d);
            }
        }
    }
    (nodes, bytes, leaf_depth)
}
fn check(map: &Map, twin: &BTreeMap<u32, u64>) {
    let (nodes, bytes, _) = map.root.as_ref().map_or((0, 0, 0), |root| walk(root, None, None, 0));
    assert_eq!((map.nodes, map.bytes, map.len()), (nodes, bytes, twin.len()));
    assert!(map.iter().eq(twin.iter()));
    assert!(map.descend(Bound::Unbounded::<&u32>).eq(twin.iter().rev()));
    assert_eq!((map.first(), map.last()), (twin.first_key_value(), twin.last_key_value()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn does_what_a_map_does(
        ops in prop::collection::vec((0..4u8, 0..3000u32, 1..300u32), 1..60),
        bounds in prop::collection::vec(0..3000u32, 8),
    ) {
        let (mut map, mut twin) = (Map::default(), BTreeMap::new());
        let mut snapshot = (map.clone(), twin.clone());
        let mut n = 0;
        for (kind, from, many) in ops {
            for key in from..from + many {
                n += 1;
                match kind {
                    0 | 1 => assert_eq!(map.insert(key, n), twin.insert(key, n)),
                    // Every third key stays, so that nodes shrink without being dropped.
                    2 if key % 3 > 0 => assert_eq!(map.remove(&key), twin.remove(&key)),
                    2 => {}
                    _ => assert_eq!(map.get_mut(&key).map(|v| *v += 1), twin.get_mut(&key).map(|v| *v += 1)),
                }
            }
            if n % 5 == 0 {
                check(&snapshot.0, &snapshot.1);
                snapshot = (map.clone(), twin.clone());
            }
        }
        check(&map, &twin);
        check(&snapshot.0, &snapshot.1);
        for at in bounds {
            prop_assert_eq!(map.get(&at), twin.get(&at));
            for bound in [Bound::Included(&at), Bound::Excluded(&at)] {
                prop_assert!(map.ascend(bound).eq(twin.range((bound, Bound::Unbounded))));
                prop_assert!(map.descend(bound).eq(twin.range((Bound::Unbounded, bound)).rev()));
            }
        }
        for key in twin.keys() {
            assert!(map.remove(key).is_some());
        }
        check(&map, &BTreeMap::new());
        prop_assert_eq!((map.nodes, map.bytes), (0, 0));
    }
}

#[test]
fn appending_fills_the_nodes_and_a_clone_copies_a_path() {
    let mut map = Map::default();
    (0..100_000).for_each(|i| assert!(map.insert(i, 0).is_none()));
    assert!(map.heap_bytes() < 100_000 * size_of::<(u32, u64)>() * 107 / 100, "{}", map.heap_bytes());
    let snapshot = map.clone();
    *map.get_mut(&5).expect("it is there") = 1;
    let shared = |a: &Map, b: &Map| {
        let (Some(a), Some(b)) = (&a.root, &b.root) else { panic!("both have a root") };
        let (Node::Inner(a), Node::Inner(b)) = (&**a, &**b) else { panic!("both are deep") };
        a.iter().zip(b).filter(|(a, b)| Arc::ptr_eq(&a.node, &b.node)).count() + 1 == a.len()
    };
    assert!(shared(&map, &snapshot) && snapshot.get(&5) == Some(&0));
    let mut own = 0;
    map.clone().into_each(&mut |_, _| own += 1);
    assert_eq!(own, 0, "all nodes are shared with the original");
    let mut pieces = 0;
    map.into_pieces(&mut |_| pieces += 1);
    assert!(pieces > 50, "{pieces}");
    assert_eq!(snapshot.iter().count(), 100_000);
}
