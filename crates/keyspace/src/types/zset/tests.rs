//! Sorted sets in both forms are compared with a sorted `Vec`. Snapshots of sorted sets must not change.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn settings(entries: u64, bytes: u64) -> Settings {
    let settings = Settings::default();
    settings.zset_max_listpack_entries.store(entries, Relaxed);
    settings.zset_max_listpack_value.store(bytes, Relaxed);
    settings
}

fn pieces(zset: ZSetValue) -> usize {
    let mut pieces = 0;
    zset.into_pieces(&mut |_| pieces += 1);
    pieces
}

/// The members with their scores, sorted.
type Twin = Vec<(f64, Vec<u8>)>;

fn check(zset: &ZSetValue, twin: &Twin) {
    let all = |iter: Iter<'_>| iter.map(|(m, s)| (s, m.to_vec())).collect::<Twin>();
    assert_eq!(zset.len(), twin.len());
    assert_eq!(&all(zset.iter(0)), twin);
    assert!(all(zset.iter_back(zset.len())).iter().eq(twin.iter().rev()));
    for (rank, (score, member)) in twin.iter().enumerate().step_by(7) {
        assert_eq!(zset.rank(member), Some((rank, *score)));
        assert_eq!(zset.score(member), Some(*score));
        let (found, found_score) = zset.get(rank).expect("the rank is in range");
        assert_eq!((&*found, found_score), (&member[..], *score));
        assert_eq!(zset.partition_point(|_, s| s < *score), twin.partition_point(|(s, _)| s < score));
        assert_eq!(zset.partition_point(|_, s| s <= *score), twin.partition_point(|(s, _)| s <= score));
    }
    assert_eq!((zset.score(b"none"), zset.rank(b"none")), (None, None));
    assert!(zset.get(twin.len()).is_none());
    let mut seen = HashSet::new();
    let mut cursor = 0;
    loop {
        cursor = zset.scan(cursor, 5, &mut |member, _| {
            seen.insert(member.to_vec());
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), twin.len());
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0..4i32).prop_map(f64::from),
        2 => (-1000..100_000i32).prop_map(f64::from),
        2 => -10.0..10.0f64,
        1 => prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn does_what_a_sorted_vec_does(
        ops in prop::collection::vec((0..10u8, 0..500u16, score()), 1..1500),
        entries in prop_oneof![Just(0u64), Just(40), Just(10_000)],
    ) {
        let settings = settings(entries, 64);
        let (mut zset, mut twin) = (ZSetValue::new(), Twin::new());
        let mut snapshots = Vec::new();
        for (n, (op, number, score)) in ops.into_iter().enumerate() {
            // Some members are long and have equal first bytes.
            let long = if number % 40 == 0 { 520 } else { 0 };
            let member = format!("{}{number}", "m".repeat(long)).into_bytes();
            let at = twin.iter().position(|(_, m)| *m == member);
            match op {
                0..7 => {
                    let set = zset.set(member.as_slice(), score, &settings);
                    let want = match at.map(|at| twin[at].0) {
                        None => Set::Added,
                        Some(old) if old == score => Set::Unchanged,
                        Some(_) => Set::Updated,
                    };
                    prop_assert_eq!(set, want);
                    if want != Set::Unchanged {
                        at.map(|at| twin.remove(at));
                        let to = twin.partition_point(|(s, m)| is_before(m, *s, &member, score));
                        twin.insert(to, (score, member));
                    }
                }
                7..9 => {
                    let removed = at.map(|at| twin.remove(at).0);
                    prop_assert_eq!(zset.remove(&member), removed);
                }
                _ => {
                    let start = usize::from(number) % (twin.len() + 1);
                    let end = (start + n % 20).min(twin.len());
                    zset.remove_range(start..end);
                    twin.drain(start..end);
                }
            }
            if n % 300 == 0 {
                snapshots.push((zset.clone(), twin.clone()));
            }
        }
        check(&zset, &twin);
        for (zset, twin) in &snapshots {
            check(zset, twin);
        }
    }
}

#[test]
fn switches_at_the_thresholds_and_not_back() {
    let settings = settings(3, 4);
    let mut zset = ZSetValue::new();
    for member in ["a", "b", "cccc"] {
        assert_eq!(zset.set(member.as_bytes(), 1.0, &settings), Set::Added);
    }
    assert_eq!(zset.set(&b"a"[..], 2.0, &settings), Set::Updated);
    assert_eq!(zset.encoding(), "listpack");
    let mut many = zset.clone();
    many.set(&b"d"[..], 0.0, &settings);
    assert_eq!(many.encoding(), "skiplist");
    many.remove_range(0..3);
    assert_eq!((many.encoding(), many.len()), ("skiplist", 1));
    zset.remove(b"b");
    zset.set(&b"ddddd"[..], 0.0, &settings);
    assert_eq!((zset.encoding(), zset.len()), ("skiplist", 3));
}

#[test]
fn sizes_beside_redis_s() {
    let settings = Settings::default();
    let filled = |members: u32| {
        let mut zset = ZSetValue::new();
        for i in 0..members {
            let member = format!("{:016}", i.wrapping_mul(2_654_435_761));
            zset.set(member.as_bytes(), f64::from(i % 100_000), &settings);
        }
        zset
    };
    // A listpack of redis-server 7.0 takes 7 bytes, plus 20 to 22 bytes per entry.
    assert!(filled(5).heap_bytes() <= 7 + 5 * 21 + 16, "{}", filled(5).heap_bytes());
    assert!(filled(50).heap_bytes() <= 50 * 22, "{}", filled(50).heap_bytes());
    // A skip list and a table of redis-server 7.0 take at least 106 bytes per member.
    let large = filled(100_000);
    assert!(large.heap_bytes() < 100_000 * 75, "{}", large.heap_bytes());
    assert!(large.parts() > 1000 && pieces(large.clone()) < 100);
    assert!((10..200).contains(&pieces(large)));
}
