//! Sets are compared with a standard-library set, while snapshots and scans exist. Also tests the sizes of
//! the forms.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn settings(integers: u64) -> Settings {
    let settings = Settings::default();
    settings.set_max_intset_entries.store(integers, Relaxed);
    settings
}
fn members(set: &SetValue) -> BTreeSet<Vec<u8>> {
    let all: Vec<_> = set.iter().map(|m| m.to_vec()).collect();
    let twin: BTreeSet<_> = all.iter().cloned().collect();
    assert_eq!(twin.len(), all.len(), "each member once");
    twin
}

/// A scan that has begun: its cursor, the members that exist throughout the scan, and the members visited so far.
type Scan = (u64, Vec<Vec<u8>>, Vec<Vec<u8>>);

#[derive(Debug, Clone)]
enum Op {
    Add(Vec<u8>),
    Remove(usize),
    Scan(usize),
    Snapshot,
}
fn int() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -300..300i64,
        2 => prop_oneof![Just(i64::from(i16::MAX)), Just(i64::from(i16::MIN) - 1), Just(i64::from(i32::MAX) + 1)],
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)],
    ]
}
fn op(strings: bool) -> impl Strategy<Value = Op> {
    let string = prop_oneof![
        8 => (0..900u16).prop_map(|n| format!("member:{n}").into_bytes()),
        1 => (0..6usize).prop_map(|n| vec![b'm'; [0, 64, 65, 512, 513, 3000][n]]),
        1 => (0..100i64).prop_map(|n| format!("0{n}").into_bytes()),
    ];
    let int = int().prop_map(|n| n.to_string().into_bytes());
    let member = if strings { prop_oneof![string, int].boxed() } else { int.boxed() };
    prop_oneof![
        12 => member.prop_map(Op::Add),
        5 => any::<usize>().prop_map(Op::Remove),
        1 => (1..40usize).prop_map(Op::Scan),
        1 => Just(Op::Snapshot),
    ]
}

fn run(ops: Vec<Op>, integers: u64) -> Result<(), TestCaseError> {
    let settings = settings(integers);
    let (mut set, mut twin) = (SetValue::new(), BTreeSet::new());
    let mut scan: Option<Scan> = None;
    let mut snapshot: Option<(SetValue, BTreeSet<Vec<u8>>)> = None;
    let mut is_int = true;
    for op in ops {
        let before = (set.clone(), twin.clone());
        match op {
            Op::Add(member) => {
                prop_assert_eq!(set.add(&member, &settings), twin.insert(member.clone()));
                is_int &= parse_int(&member).is_some() && twin.len() as u64 <= integers;
                prop_assert!(set.contains(&member));
            }
            Op::Remove(nth) => {
                let member =
                    twin.iter().nth(nth % (twin.len() + 1)).cloned().unwrap_or_else(|| b"none".to_vec());
                prop_assert_eq!(set.remove(&member), twin.remove(&member));
                prop_assert!(!set.contains(&member) && !set.remove(&member));
                if let Some((_, there, _)) = &mut scan {
                    there.retain(|m| *m != member);
                }
            }
            Op::Scan(count) => {
                let (cursor, there, mut seen) =
                    scan.take().unwrap_or((0, twin.iter().cloned().collect(), Vec::new()));
                match set.scan(cursor, count, &mut |member| seen.push(member.to_vec())) {
                    0 => {
                        for member in &there {
                            prop_assert!(seen.contains(member), "{:?} is missing", member);
                        }
                    }
                    next => scan = Some((next, there, seen)),
                }
            }
            Op::Snapshot => {
                if let Some((set, twin)) = &snapshot {
                    prop_assert_eq!(&members(set), twin);
                }
                snapshot = Some((set.clone(), twin.clone()));
            }
        }
        prop_assert_eq!(set.is_same(&before.0), twin == before.1);
        prop_assert_eq!(set.len(), twin.len());
        prop_assert_eq!(set.encoding(), if is_int { "intset" } else { "hashtable" });
    }
    prop_assert_eq!(&members(&set), &twin);
    prop_assert!(twin.iter().all(|member| set.contains(member)));
    if set.is_integers() {
        prop_assert!(set.iter().map(|m| parse_int(&m.to_vec())).is_sorted());
    }
    match set.random(&mut fastrand::Rng::with_seed(1)) {
        None => prop_assert!(twin.is_empty()),
        Some(member) => prop_assert!(twin.contains(&member.to_vec())),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn does_what_a_set_does(ops in prop::collection::vec(op(true), 1..1200), integers in 0..60u64) {
        run(ops, integers)?;
    }
    #[test]
    fn set_of_integers_equals_the_model(ops in prop::collection::vec(op(false), 1..800), integers in prop_oneof![0..20u64, Just(512)]) {
        run(ops, integers)?;
    }
}

#[test]
fn encodings_have_the_documented_sizes() {
    let settings = Settings::default();
    let filled = |n: u64, member: &dyn Fn(u64) -> String| {
        let mut set = SetValue::new();
        (0..n).for_each(|i| assert!(set.add(member(i).as_bytes(), &settings)));
        set
    };
    // Like redis-server's intset, the allocation has a head of 8 bytes, and 2, 4 or 8 bytes per integer. When
    // it last grew, it may have got an eighth of its size as spare room.
    for (width, offset) in [(2, 0), (4, 100_000), (8, 10_000_000_000u64)] {
        let set = filled(512, &|i| (offset + i).to_string());
        assert_eq!(set.encoding(), "intset");
        assert!(set.heap_bytes() <= (8 + 512 * width) * 9 / 8, "{} for {width}", set.heap_bytes());
    }
    assert_eq!(filled(513, &|i| i.to_string()).encoding(), "hashtable");
    let few = filled(50, &|i| format!("{i:016}"));
    assert!(few.heap_bytes() < 1000 && few.parts() == 2, "{}", few.heap_bytes());
    let many = filled(100_000, &|i| format!("{i:016}"));
    let bytes = many.heap_bytes() as f64 / 100_000.0;
    // redis-server 7.0 takes 74.5 bytes per member: 64 for entry and string, and 10.5 for the bucket.
    assert!(bytes < 37.0, "{bytes} a member");
    assert!(matches!(filled(65, &|i| format!("m{i}")).0, Form::Table(_)));
    assert!(matches!(filled(64, &|i| format!("m{i}")).0, Form::Small(_)));
}

#[test]
fn a_large_set_is_freed_in_pieces_and_its_snapshot_stays() {
    let (mut set, settings) = (SetValue::new(), Settings::default());
    (0..50_000u32).for_each(|i| assert!(set.add(&i.to_le_bytes(), &settings)));
    let mut snapshot = set.clone();
    assert!(
        set.remove(&7u32.to_le_bytes()) && !set.is_same(&snapshot) && snapshot.contains(&7u32.to_le_bytes())
    );
    snapshot.remove(&7u32.to_le_bytes());
    assert!((64..3_000).contains(&set.parts()), "{}", set.parts());
    let count = |set: SetValue| {
        let mut pieces = 0;
        set.into_pieces(&mut |_| pieces += 1);
        pieces
    };
    let pieces = count(set);
    assert!((4..50).contains(&pieces), "{pieces}");
    assert_eq!(snapshot.len(), 49_999);
    assert_eq!(count(SetValue::new()), 0);
}

#[test]
fn random_members_are_as_likely_as_each_other() {
    let (settings, mut rng) = (Settings::default(), fastrand::Rng::with_seed(11));
    for (members, prefix) in [(10usize, ""), (10, "m"), (1000, "m"), (500, "")] {
        let mut set = SetValue::new();
        for i in 0..members {
            set.add(format!("{prefix}{i}").as_bytes(), &settings);
        }
        let mut hits = vec![0f64; members];
        for _ in 0..members * 100 {
            let member = set.random(&mut rng).expect("not empty").to_vec();
            let n = parse_int(&member[prefix.len()..]).expect("a number");
            hits[n as usize] += 1.0;
        }
        // Chi squared with n-1 degrees of freedom has the mean n-1 and the deviation sqrt(2(n-1)).
        let chi: f64 = hits.iter().map(|h| (h - 100.0).powi(2) / 100.0).sum();
        let free = members as f64 - 1.0;
        assert!((chi - free).abs() < 5.0 * (2.0 * free).sqrt(), "{members} members: {chi}");
    }
}

#[test]
fn a_scan_accepts_any_cursor() {
    let (mut set, settings) = (SetValue::new(), Settings::default());
    assert!(set.is_empty() && set.random(&mut fastrand::Rng::with_seed(1)).is_none());
    set.add(&[0; 1000], &settings);
    assert_eq!(set.scan(u64::MAX, 10, &mut |_| panic!("nothing is there")), 0);
    assert_eq!(set.scan(1 << 40, 10, &mut |_| panic!("nothing is there")), 0);
    let mut seen = 0;
    assert_eq!(set.scan(0, 0, &mut |_| seen += 1), 0);
    assert_eq!(seen, 1);
}
