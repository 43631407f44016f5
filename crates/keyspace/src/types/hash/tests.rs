//! Hashes are compared with plain maps: fields, values, expiries.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use strand_chain::Blob;

fn table_of(hash: &HashValue) -> &Fields {
    match &hash.0 {
        Form::Boxed(boxed) => match &**boxed {
            Boxed::Table(fields) => fields,
            Boxed::Expiring(_) => panic!("a table"),
        },
        Form::Packed(_) => panic!("a table"),
    }
}
fn is_table(hash: &HashValue) -> bool {
    matches!(hash.0, Form::Boxed(_))
}

fn settings(entries: u64, bytes: u64) -> Settings {
    let settings = Settings::default();
    settings.hash_max_listpack_entries.store(entries, Relaxed);
    settings.hash_max_listpack_value.store(bytes, Relaxed);
    settings
}
fn pairs(hash: &HashValue) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all: Vec<_> = hash.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
    let map: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(map.len(), all.len(), "each field once");
    map
}

/// A scan that has begun: its cursor, the fields that exist throughout the scan, and the fields visited so far.
type Scan = (u64, Vec<Vec<u8>>, Vec<Vec<u8>>);

#[derive(Debug, Clone)]
enum Op {
    Set(u16, usize),
    Remove(u16),
    Scan(usize),
    Snapshot,
}
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..600u16, prop_oneof![8 => 0..20usize, 4 => 100..140usize, 1 => 1000..1050usize]).prop_map(|(f, v)| Op::Set(f, v)),
        3 => (0..600u16).prop_map(Op::Remove),
        1 => (1..40usize).prop_map(Op::Scan),
        1 => (0..60usize).prop_map(|n| if n == 0 { Op::Snapshot } else { Op::Scan(n) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn does_what_a_map_does(ops in prop::collection::vec(op(), 1..1500), entries in 0..20u64, bytes in 0..30u64) {
        let settings = settings(entries, bytes);
        let (mut hash, mut twin) = (HashValue::new(), BTreeMap::new());
        let mut scan: Option<Scan> = None;
        let mut snapshots = Vec::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Op::Set(field, len) => {
                    let (field, value) = (format!("f{field}").into_bytes(), vec![i as u8; len]);
                    let new = twin.insert(field.clone(), value.clone()).is_none();
                    prop_assert_eq!(hash.set(&field, value.as_slice(), &settings), new);
                }
                Op::Remove(field) => {
                    let field = format!("f{field}").into_bytes();
                    prop_assert_eq!(hash.remove(&field), twin.remove(&field).is_some());
                    if let Some((_, there, _)) = &mut scan {
                        there.retain(|f| *f != field);
                    }
                }
                Op::Scan(count) => {
                    let (cursor, there, mut seen) = scan.take().unwrap_or((0, twin.keys().cloned().collect(), Vec::new()));
                    let next = hash.scan(cursor, count, &mut |f, _| seen.push(f.to_vec()));
                    match next {
                        0 => for field in &there {
                            prop_assert!(seen.contains(field), "{:?} is missing", field);
                        },
                        next => scan = Some((next, there, seen)),
                    }
                }
                Op::Snapshot => snapshots.push((hash.clone(), twin.clone())),
            }
            prop_assert_eq!(hash.len(), twin.len());
        }
        // Later writes do not change a snapshot.
        for (hash, twin) in &snapshots {
            prop_assert_eq!(&pairs(hash), twin);
            prop_assert!(hash.is_unchanged(&hash.clone()));
        }
        prop_assert_eq!(&pairs(&hash), &twin);
        prop_assert_eq!(pairs(&hash.clone()), pairs(&hash));
        for (field, value) in &twin {
            prop_assert_eq!(&*hash.get(field).expect("it is there"), value.as_slice());
        }
        prop_assert!(hash.get(b"none").is_none());
        let mut rng = fastrand::Rng::with_seed(1);
        match hash.random(&mut rng) {
            None => prop_assert!(twin.is_empty()),
            Some((f, v)) => prop_assert_eq!(&twin[&*f], &*v),
        }
    }
}

#[test]
fn switches_at_the_thresholds_and_not_back() {
    let settings = settings(3, 4);
    let mut hash = HashValue::new();
    for field in ["a", "b", "c"] {
        assert!(hash.set(field.as_bytes(), b"1234", &settings));
    }
    assert!(!hash.set(b"b", b"4321", &settings));
    assert_eq!(hash.encoding(), "listpack");
    assert_eq!(hash.iter().map(|(f, _)| f[0]).collect::<Vec<_>>(), b"abc");
    let mut long = hash.clone();
    assert!(!long.set(b"b", b"12345", &settings));
    assert_eq!((long.encoding(), long.len()), ("hashtable", 3));
    let mut many = hash.clone();
    assert!(many.set(b"d", b"", &settings));
    assert_eq!((many.encoding(), many.len()), ("hashtable", 4));
    assert!(many.remove(b"d") && many.remove(b"c"));
    assert_eq!(many.encoding(), "hashtable");
    assert!(hash.set(b"fffff", b"", &settings));
    assert_eq!(hash.encoding(), "hashtable");
    assert!(hash.remove(b"fffff"));
    assert_eq!(hash.encoding(), "hashtable");
}
#[test]
fn stays_packed_while_it_is_cheap_to_look_through() {
    let settings = Settings::default();
    let (mut few, mut many, mut grown) = (HashValue::new(), HashValue::new(), HashValue::new());
    for i in 0..5u8 {
        few.set(&[i], &[i; 256], &settings);
    }
    assert!(matches!(few.0, Form::Packed(_)) && few.encoding() == "hashtable", "{few:?}");
    for i in 0..=OUTGROWN_FIELDS_MAX as u8 {
        many.set(&[i], &[i; 65], &settings);
        grown.set(&[i % 8], [i; 512][..65 + 30 * usize::from(i % 14)].as_ref(), &settings);
    }
    assert!(is_table(&many) && many.len() == OUTGROWN_FIELDS_MAX + 1);
    assert!(grown.heap_bytes() <= 2 * OUTGROWN_BYTES_MAX && grown.len() == 8);
    few.set(&[0], &[0; INLINE_BYTES_MAX + 1], &settings);
    assert!(is_table(&few));
    // Small fields stay in the listpack encoding up to Redis's default size.
    let mut small = HashValue::new();
    (0..512u16).for_each(|i| assert!(small.set(&i.to_le_bytes(), b"value", &settings)));
    assert_eq!(small.encoding(), "listpack");
    small.set(&[0, 0], &[0; 65], &settings);
    assert!(is_table(&small));
}
#[test]
fn large_values_are_shared_and_not_copied() {
    let blob = Blob::from(vec![7; 5000]);
    let mut hash = HashValue::new();
    hash.set(b"f", &blob, &Settings::default());
    match hash.get(b"f") {
        Some(Bytes::Shared(kept)) => assert_eq!(kept.as_ptr(), blob.as_ptr()),
        other => panic!("{other:?}"),
    }
}
#[test]
fn large_hash_moves_at_most_one_segment_per_write_and_shrinks() {
    let settings = Settings::default();
    let mut hash = HashValue::new();
    for i in 0..100_000u32 {
        hash.set(&i.to_le_bytes(), &i.to_le_bytes(), &settings);
    }
    let fields = table_of(&hash);
    let (shape, grown_bytes) = (fields.shape(), hash.heap_bytes());
    assert_eq!(shape.items, 100_000);
    assert!(shape.moved_max <= crate::extendible::SEGMENT_ITEMS_MAX, "{shape:?}");
    assert!(grown_bytes / 100_000 < 60, "{grown_bytes}");
    for i in 100..100_000u32 {
        assert!(hash.remove(&i.to_le_bytes()));
    }
    let fields = table_of(&hash);
    assert!(fields.shape().segments <= 4, "{:?}", fields.shape());
    assert!(hash.heap_bytes() < grown_bytes / 50, "{} of {grown_bytes}", hash.heap_bytes());
    assert!(fields.shape().moved_max <= crate::extendible::SEGMENT_ITEMS_MAX);
}
#[test]
fn random_fields_are_as_likely_as_each_other() {
    let (settings, mut rng) = (Settings::default(), fastrand::Rng::with_seed(11));
    for fields in [10usize, 100, 1000] {
        let mut hash = HashValue::new();
        for i in 0..fields {
            hash.set(&(i as u16).to_le_bytes(), b"", &settings);
        }
        let mut hits = vec![0f64; fields];
        for _ in 0..fields * 100 {
            let (field, _) = hash.random(&mut rng).expect("not empty");
            hits[usize::from(u16::from_le_bytes([field[0], field[1]]))] += 1.0;
        }
        // Chi squared with n-1 degrees of freedom has the mean n-1 and the deviation sqrt(2(n-1)).
        let chi: f64 = hits.iter().map(|h| (h - 100.0).powi(2) / 100.0).sum();
        let free = fields as f64 - 1.0;
        assert!((chi - free).abs() < 5.0 * (2.0 * free).sqrt(), "{fields} fields: {chi}");
    }
}
#[test]
fn an_empty_hash_and_odd_cursors() {
    let hash = HashValue::new();
    assert!(hash.is_empty() && hash.random(&mut fastrand::Rng::with_seed(1)).is_none());
    let mut big = HashValue::new();
    big.set(b"f", &[0; 1000], &Settings::default());
    assert_eq!(big.scan(u64::MAX, 10, &mut |_, _| panic!("nothing is there")), 0);
    assert_eq!(big.scan(1 << 40, 10, &mut |_, _| panic!("nothing is there")), 0);
    let mut seen = 0;
    assert_eq!(big.scan(0, 0, &mut |_, _| seen += 1), 0);
    assert_eq!(seen, 1);
}

#[test]
fn a_large_hash_is_freed_in_pieces() {
    let (mut hash, settings) = (HashValue::new(), Settings::default());
    (0..50_000u32).for_each(|i| assert!(hash.set(&i.to_le_bytes(), b"value", &settings)));
    let snapshot = hash.clone();
    let mut pieces = 0;
    hash.into_pieces(&mut |_| pieces += 1);
    assert!((4..50).contains(&pieces), "{pieces}");
    assert_eq!((snapshot.len(), snapshot.get(&7u32.to_le_bytes()).as_deref()), (50_000, Some(&b"value"[..])));
    HashValue::new().into_pieces(&mut |_| panic!("a packed hash is freed quickly"));
}

/// Compares a hash whose fields expire with a map of values and expiries.
#[test]
fn fields_expire() {
    let mut rng = fastrand::Rng::with_seed(5);
    for entries in [4, 1000] {
        let settings = settings(entries, 64);
        let (mut hash, mut twin) = (HashValue::new(), BTreeMap::<Vec<u8>, (Vec<u8>, Option<i64>)>::new());
        let mut now_ms = 0;
        for i in 0..6_000u32 {
            let field = format!("f{}", rng.u32(..400)).into_bytes();
            let value = i.to_string().into_bytes();
            match rng.u8(..6) {
                0 => {
                    let new = twin.insert(field.clone(), (value.clone(), None)).is_none();
                    assert_eq!(hash.set(&field, &*value, &settings), new);
                }
                1 => {
                    let at = now_ms + rng.i64(1..2_000);
                    let there = twin.get_mut(&field).map(|entry| entry.1 = Some(at)).is_some();
                    assert_eq!(hash.set_expiry(&field, Some(at), &settings), there);
                }
                2 => {
                    let there = twin.get_mut(&field).map(|entry| entry.1 = None).is_some();
                    assert_eq!(hash.set_expiry(&field, None, &settings), there);
                }
                3 => assert_eq!(hash.remove(&field), twin.remove(&field).is_some()),
                4 => {
                    let expiry_ms = twin.get(&field).and_then(|(_, expiry_ms)| *expiry_ms);
                    twin.insert(field.clone(), (value.clone(), expiry_ms));
                    hash.update(&field, &*value, &settings);
                }
                _ => {
                    now_ms += rng.i64(0..if i % 50 == 0 { 3_000 } else { 20 });
                    let before = twin.len();
                    twin.retain(|_, (_, expiry_ms)| expiry_ms.is_none_or(|at| at > now_ms));
                    assert_eq!(hash.expire_fields(now_ms, None), before - twin.len());
                }
            }
            assert_eq!(hash.len(), twin.len());
            let next_ms = twin.values().filter_map(|(_, expiry_ms)| *expiry_ms).min();
            assert!(hash.field_expiry_ms() <= next_ms.unwrap_or(i64::MAX));
            assert_eq!(hash.expiry_ms(&field), twin.get(&field).map(|(_, expiry_ms)| *expiry_ms));
            if i % 64 == 0 {
                let values: BTreeMap<_, _> = twin.iter().map(|(f, (v, _))| (f.clone(), v.clone())).collect();
                assert_eq!(pairs(&hash), values);
                assert_eq!(pairs(&hash.clone()), values);
                let mut seen = BTreeMap::new();
                let mut cursor = 0;
                loop {
                    cursor = hash.scan(cursor, 10, &mut |f, v| drop(seen.insert(f.to_vec(), v.to_vec())));
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(seen, values);
                assert_eq!(hash.random(&mut rng).is_some(), !twin.is_empty());
            }
        }
    }
}

/// Hidden fields are removed a few at a time. A hash that has only hidden fields counts as empty at once.
#[test]
fn many_fields_may_expire_together() {
    let settings = Settings::default();
    let mut hash = HashValue::new();
    for i in 0..10_000u32 {
        hash.set(&i.to_le_bytes(), b"v", &settings);
        hash.set_expiry(&i.to_le_bytes(), Some(100 + i64::from(i == 7)), &settings);
    }
    assert_eq!((hash.expire_fields(99, None), hash.len()), (0, 10_000));
    let snapshot = hash.clone();
    assert_eq!((hash.expire_fields(100, None), hash.len()), (9_999, 1));
    assert_eq!(hash.field_expiry_ms(), 100, "some are still to be removed");
    assert_eq!(hash.iter().count(), 1);
    for _ in 0..100 {
        hash.expire_fields(100, None);
    }
    assert_eq!((hash.len(), hash.field_expiry_ms()), (1, 101));
    assert!(hash.heap_bytes() < snapshot.heap_bytes() / 100);
    hash.expire_fields(101, None);
    assert!(hash.is_empty());
    assert_eq!(snapshot.len(), 10_000);
}

/// A hash with 1,000 fields, of which all but field 0 expire at `at_ms`.
fn expiring_hash(at_ms: i64) -> HashValue {
    let (mut hash, settings) = (HashValue::new(), Settings::default());
    for i in 0..1_000u32 {
        hash.set(&i.to_le_bytes(), b"v", &settings);
        hash.set_expiry(&i.to_le_bytes(), (i > 0).then_some(at_ms), &settings);
    }
    hash
}

/// Workers and helper threads read the clock at different moments, so a hash may meet an earlier time after a later one.
#[test]
fn a_field_stays_expired_at_an_earlier_time() {
    let (mut hash, settings) = (expiring_hash(100), Settings::default());
    assert_eq!((hash.expire_fields(105, None), hash.len()), (999, 1));
    assert_eq!((hash.expire_fields(99, None), hash.len()), (0, 1));
    for _ in 0..8 {
        hash.expire_fields(105, None);
    }
    // A transaction at the time 99 sets a field that lives until 101.
    hash.set(b"f", b"v", &settings);
    hash.set_expiry(b"f", Some(101), &settings);
    assert_eq!(hash.get(b"f").as_deref(), Some(&b"v"[..]));
    assert_eq!((hash.expire_fields(99, None), hash.len()), (0, 2));
    assert_eq!((hash.expire_fields(101, None), hash.len()), (1, 1));
}

/// The clock may go back while hidden fields wait for their removal.
#[test]
fn a_field_may_expire_before_the_time_at_which_others_were_hidden() {
    let (mut hash, settings) = (expiring_hash(100_000), Settings::default());
    assert_eq!(hash.expire_fields(100_000, None), 999);
    assert!(hash.hidden_fields() > 0);
    hash.set_expiry(&0u32.to_le_bytes(), Some(50_000), &settings);
    assert_eq!((hash.len(), hash.field_expiry_ms()), (1, 50_000));
    assert_eq!((hash.expire_fields(49_999, None), hash.expire_fields(50_000, None)), (0, 1));
}

/// Hidden fields come back, and fields that have expired do not.
#[test]
fn fields_may_be_hidden_for_a_while() {
    let (mut hash, settings) = (expiring_hash(100), Settings::default());
    hash.set_expiry(&0u32.to_le_bytes(), Some(200), &settings);
    assert!(!hash.shows_due_fields(99) && hash.shows_due_fields(100));
    hash.hide_fields(100);
    assert_eq!((hash.len(), hash.shows_due_fields(150), hash.hides_fields()), (1, false, true));
    assert_eq!((hash.get(&1u32.to_le_bytes()).is_some(), hash.iter().count()), (false, 1));
    hash.show_fields();
    assert_eq!((hash.len(), hash.hides_fields()), (1000, false));
    // Now 999 fields expire for real, and most of them wait for their removal.
    hash.hide_fields(300);
    assert_eq!((hash.expire_fields(100, None), hash.len()), (999, 1));
    hash.hide_fields(300);
    assert!(hash.is_empty());
    hash.show_fields();
    assert_eq!(hash.len(), 1);
    // An expiry before the time of the hidden fields.
    hash.hide_fields(300);
    hash.set(b"f", b"v", &settings);
    hash.set_expiry(b"f", Some(250), &settings);
    assert_eq!((hash.get(b"f").is_some(), hash.len()), (true, 2));
}
