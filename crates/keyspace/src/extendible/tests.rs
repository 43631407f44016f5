//! Tables whose positions the tests choose are compared with a `BTreeMap`.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Takes the position of a key from the key's first eight bytes, so that a test chooses it.
#[derive(Debug, Clone)]
struct PositionFromKey;

impl Positions for PositionFromKey {
    fn position(&self, key: &[u8]) -> u64 {
        u64::from_le_bytes(key[..8].try_into().expect("8 bytes of position"))
    }
}

/// An outside value with heap bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Large(Vec<u8>);

impl OutsideValue for Large {
    fn heap_bytes(&self) -> usize {
        self.0.len()
    }
    fn from_int(n: i64) -> Large {
        // Undo what `payload` did to make the integer.
        Large([b"#".to_vec(), vec![b'1'; n as usize]].concat())
    }
    fn from_bytes(bytes: &[u8], _: bool) -> Large {
        Large(bytes.to_vec())
    }
}

type Tested = ExtendibleTable<Large, PositionFromKey>;

/// A key: a position, a number, and `more` extra bytes.
fn key(position: u64, number: u32, more: usize) -> Vec<u8> {
    let mut key = position.to_le_bytes().to_vec();
    key.extend_from_slice(&number.to_le_bytes());
    key.resize(key.len() + more, b'k');
    key
}
fn spread_out(rng: &mut fastrand::Rng) -> u64 {
    rng.u64(..1 << POSITION_BITS)
}
/// Converts a value to a payload. The first byte of the value decides the form.
fn payload(value: &[u8]) -> Payload<'_, Large> {
    match value {
        [b'#', n @ ..] => Payload::Int(n.len() as i64),
        [b'@', ..] => Payload::Outside(Large(value.to_vec())),
        _ => Payload::Bytes(value, false),
    }
}
fn stored(content: Content<'_, Large>) -> Vec<u8> {
    match content {
        Content::Int(n) => [b"#".to_vec(), vec![b'1'; n as usize]].concat(),
        Content::Bytes(bytes, _) => bytes.to_vec(),
        Content::Outside(Large(bytes)) => bytes.clone(),
    }
}
fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = [0, 1, 8, 100, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1][rng.usize(..6)];
    match rng.u8(..4) {
        0 => [b"@".to_vec(), vec![b'o'; len]].concat(),
        1 => [b"#".to_vec(), vec![b'1'; len]].concat(),
        _ => vec![b'v'; len],
    }
}
fn put(table: &mut Tested, key: &[u8], value: &[u8], expiry_ms: i64) {
    let position = PositionFromKey.position(key);
    let new = NewItem { key, usage: Some(7), expiry_ms, payload: payload(value) };
    match table.locate(position, key) {
        Some(at) => drop(table.replace(at, new)),
        None => table.insert_new(position, new),
    }
}
fn take(table: &mut Tested, key: &[u8]) -> bool {
    let at = table.locate(PositionFromKey.position(key), key);
    at.map(|at| table.remove_at(at)).is_some()
}

impl Tested {
    /// Checks all invariants. Called between two operations.
    fn check(&self) {
        let entries = if self.depth == 0 { 0 } else { 1 << self.depth };
        assert_eq!(self.directory.len(), entries);
        assert_eq!(u32::from(self.shift), POSITION_BITS - u32::from(self.base_bits + self.depth));
        assert_eq!(self.len, self.segments.iter().map(|s| s.table.len()).sum::<usize>());
        assert_eq!(self.segments_bytes, self.segments.iter().map(|s| s.bytes()).sum::<usize>());
        for (depth, count) in self.depths.iter().enumerate() {
            let there = self.segments.iter().filter(|s| usize::from(s.depth) == depth).count();
            assert_eq!(*count as usize, there, "segments of depth {depth}");
        }
        let mut entries = 0;
        for (i, segment) in self.segments.iter().enumerate() {
            segment.check(|key| PositionFromKey.position(key));
            let mine: Vec<_> =
                self.directory.iter().enumerate().filter(|e| *e.1 == i as u32).map(|e| e.0).collect();
            if self.depth > 0 {
                assert_eq!(mine.len(), 1 << (self.depth - segment.depth), "entries of segment {i}");
                assert_eq!(mine[mine.len() - 1] - mine[0], mine.len() - 1, "side by side");
            }
            entries += mine.len();
            let size = 1u64 << (POSITION_BITS - u32::from(self.base_bits + segment.depth));
            assert_eq!(segment.start % size, 0);
            for item in segment.items() {
                assert!(
                    (segment.start..segment.start + size).contains(&PositionFromKey.position(item.key()))
                );
                assert!(segment.expiry_ms <= item.expiry_ms());
                assert_eq!(item.usage(), 7);
            }
            assert!(self.expiry_ms <= segment.expiry_ms);
        }
        assert_eq!(entries, self.directory.len());
    }
    fn all(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let all: Vec<_> = self.iter().map(|i| (i.key().to_vec(), stored(i.content()))).collect();
        assert_eq!(all.len(), self.len());
        all.into_iter().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// The table grows to thousands of items and shrinks again, several times. Positions are spread out or crowded.
    /// Clones must not change.
    #[test]
    fn does_what_a_map_does(
        seed in any::<u64>(),
        base_bits in prop_oneof![Just(0u8), Just(3), Just(10)],
        crowded in any::<bool>(),
        turns in prop::collection::vec((any::<bool>(), 1..2000usize), 1..6),
    ) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut table, mut twin) = (Tested::new(base_bits, PositionFromKey), BTreeMap::new());
        // The table's positions are the highest positions of all.
        let range = 1u64 << (POSITION_BITS - u32::from(base_bits));
        let start = (1 << POSITION_BITS) - range;
        for (grow, many) in turns {
            let (clone, cloned) = (table.clone(), twin.clone());
            for _ in 0..many {
                if grow || twin.is_empty() {
                    let within = if crowded { range >> 12 } else { range };
                    let more = if rng.u8(..20) == 0 { INLINE_BYTES_MAX } else { rng.usize(..20) };
                    let key = key(start + rng.u64(..within), rng.u32(..2), more);
                    let value = value(&mut rng);
                    put(&mut table, &key, &value, i64::MAX);
                    twin.insert(key, value);
                } else {
                    let from = key(start + rng.u64(..range), 0, 0);
                    let at: Vec<u8> = twin.range(from..).next().or(twin.first_key_value()).expect("not empty").0.clone();
                    if rng.u8(..3) == 0 {
                        let value = value(&mut rng);
                        put(&mut table, &at, &value, i64::MAX);
                        twin.insert(at, value);
                    } else {
                        prop_assert!(take(&mut table, &at));
                        prop_assert!(!take(&mut table, &at));
                        twin.remove(&at);
                    }
                }
            }
            table.check();
            prop_assert!(table.all() == twin, "the table differs from its twin");
            clone.check();
            prop_assert!(clone.all() == cloned, "a clone has changed");
            let shape = table.shape();
            prop_assert!(crowded || shape.moved_max <= SEGMENT_ITEMS_MAX, "{:?}", shape);
            // Scan steps of any size visit each item once, and visit positions in ascending order from step to
            // step.
            let (mut next, mut seen, step) = (Some(start), Vec::new(), rng.usize(1..700));
            while let Some(from) = next {
                let mut stretch = Vec::new();
                let (visited, then) = table.scan_step(from, step, &mut |item| {
                    stretch.push((PositionFromKey.position(item.key()), item.key().to_vec()));
                });
                prop_assert_eq!(visited, stretch.len());
                stretch.sort_unstable();
                seen.extend(stretch);
                next = then;
            }
            prop_assert!(seen.is_sorted());
            prop_assert!(seen.into_iter().map(|s| s.1).collect::<BTreeSet<_>>().iter().eq(twin.keys()));
        }
    }
}

#[test]
fn items_with_one_position_share_a_segment_without_growing_the_directory() {
    let mut table = Tested::new(4, PositionFromKey);
    let position = 0x123_4567_89ab;
    let position = position & ((1 << POSITION_BITS) - 1);
    for number in 0..3000 {
        put(&mut table, &key(position, number, 0), b"", i64::MAX);
        put(&mut table, &key(position ^ 1, number, 0), b"", i64::MAX);
    }
    table.check();
    let shape = table.shape();
    assert!(shape.directory <= shape.items, "{shape:?}");
    let mut seen = 0;
    let (visited, next) = table.scan_step(position, 10, &mut |_| seen += 1);
    assert_eq!((visited, seen), (3000, 3000), "all of one position in one step");
    assert!(next.is_some());
    for number in 0..3000 {
        assert!(take(&mut table, &key(position, number, 0)));
    }
    table.check();
    assert_eq!(table.len(), 3000);
}

#[test]
fn churn_at_one_size_neither_grows_nor_moves_more_than_a_segment() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut table = Tested::new(0, PositionFromKey);
    let mut there = Vec::new();
    let mut bytes_max_after_growth = 0;
    for i in 0..60_000u32 {
        let new = key(spread_out(&mut rng), i, 0);
        put(&mut table, &new, &[b'v'; 40], i64::MAX);
        there.push(new);
        if there.len() > 5000 {
            let old = there.swap_remove(rng.usize(..there.len()));
            assert!(take(&mut table, &old));
            bytes_max_after_growth = bytes_max_after_growth.max(table.heap_bytes());
        }
    }
    table.check();
    let shape = table.shape();
    assert!(shape.moved_max <= SEGMENT_ITEMS_MAX, "{shape:?}");
    // Each item has 58 bytes, and heaps and tables are at least half full.
    assert!(bytes_max_after_growth < 5000 * (58 + 5) * 2, "{bytes_max_after_growth}");
}

#[test]
fn active_expiry_visits_only_segments_with_a_passed_expiry() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut table = Tested::new(0, PositionFromKey);
    let mut due: BTreeMap<i64, usize> = BTreeMap::new();
    for number in 0..20_000 {
        let expiry_ms = if number % 10 == 0 { i64::MAX } else { rng.i64(1..1000) };
        *due.entry(expiry_ms).or_default() += 1;
        let new = key(spread_out(&mut rng), number, 0);
        put(&mut table, &new, &value(&mut rng), if number % 2 == 0 { expiry_ms } else { i64::MAX });
        let at = table.locate(PositionFromKey.position(&new), &new).expect("just inserted");
        table.set_expiry(at, &new, expiry_ms);
    }
    for now_ms in [0, 1, 10, 500, 998, 999, 1000] {
        let mut expired = 0;
        let mut next = Some(0);
        while let Some(from) = next {
            next = table
                .expire_step(from, now_ms, false, &mut |_, _, _| expired += 1, &mut Vec::new(), &mut 0)
                .1;
        }
        let later = due.split_off(&(now_ms + 1));
        assert_eq!(expired, due.values().sum::<usize>(), "at {now_ms}");
        due = later;
        table.check();
        assert!(table.iter().all(|i| i.expiry_ms() > now_ms));
        // The walk has reached the end, so the bound is the earliest expiry of the items that are left.
        assert_eq!(table.expiry_ms(), *due.keys().next().expect("some never expire"));
        assert_eq!(
            table.expire_step(
                0,
                now_ms,
                false,
                &mut |_, _, _| panic!("nothing is due"),
                &mut Vec::new(),
                &mut 0
            ),
            (0, None)
        );
    }
    assert_eq!(table.len(), 2000);
}

#[test]
fn an_empty_table_holds_nothing() {
    let mut table = Tested::new(6, PositionFromKey);
    let one = key(5, 5, 0);
    assert_eq!((table.heap_bytes(), table.locate(5, &one), table.iter().count()), (0, None, 0));
    assert_eq!(table.scan_step(0, 10, &mut |_| panic!("nothing is there")), (0, None));
    assert!(table.random(&mut fastrand::Rng::with_seed(1)).is_none());
    put(&mut table, &one, b"@outside", i64::MAX);
    assert!(take(&mut table, &one));
    assert_eq!(table.heap_bytes(), 0, "given back with the last item");
    table.check();
}

#[test]
fn an_outside_value_is_changed_in_place_and_counted() {
    let mut table = Tested::new(0, PositionFromKey);
    let (large, small) = (key(1, 1, 0), key(2, 2, 0));
    put(&mut table, &large, b"@", i64::MAX);
    put(&mut table, &small, b"v", i64::MAX);
    let before = table.heap_bytes();
    let at =
        |table: &Tested, key: &[u8]| table.locate(PositionFromKey.position(key), key).expect("it is there");
    assert_eq!(table.change_outside(at(&table, &large), |v| v.0.resize(101, b'o')), Some(()));
    assert_eq!(table.change_outside(at(&table, &small), |_| panic!("it lies in the table")), None);
    assert_eq!(table.heap_bytes() - before, 100);
    table.check();
}

#[test]
fn keys_made_to_collide_get_segments_of_their_own_size() {
    // The keys are like those of a client that knows ten bits of each key's position.
    let mut table = Tested::new(0, PositionFromKey);
    let mut rng = fastrand::Rng::with_seed(6);
    for number in 0..20_000 {
        let position = spread_out(&mut rng) >> 10;
        put(&mut table, &key(position, number, 400), &[b'v'; INLINE_BYTES_MAX], i64::MAX);
    }
    let shape = table.shape();
    assert!(shape.segment_items_max <= 4 * SEGMENT_ITEMS_MAX && shape.directory <= 20_000, "{shape:?}");
    table.check();
}

#[test]
fn crowded_segment_keeps_all_items() {
    // 24 MB of keys and values. Their positions share 25 bits, so no segment can be split.
    let mut table = Tested::new(0, PositionFromKey);
    let keys: Vec<_> = (0..24_000).map(|number| key(u64::from(number), number, 500)).collect();
    for (i, key) in keys.iter().enumerate() {
        put(&mut table, key, &[b'a' + (i % 26) as u8; INLINE_BYTES_MAX], i64::MAX);
    }
    assert_eq!((table.len(), table.shape().segment_items_max), (keys.len(), keys.len()));
    table.check();
    for (i, key) in keys.iter().enumerate() {
        let at = table.locate(PositionFromKey.position(key), key).expect("it was put there");
        assert_eq!(stored(table.at(at).content()), [b'a' + (i % 26) as u8; INLINE_BYTES_MAX]);
        // A new value of any form is stored where the key is: in the heap or outside.
        put(&mut table, key, if i % 2 == 0 { b"@changed" } else { b"#111" }, 1);
    }
    table.check();
    let mut gone = BTreeSet::new();
    let mut next = Some(0);
    while let Some(from) = next {
        next = table
            .expire_step(
                from,
                1,
                false,
                &mut |key, _, _| assert!(gone.insert(key.to_vec())),
                &mut Vec::new(),
                &mut 0,
            )
            .1;
    }
    assert_eq!((gone, table.len()), (keys.into_iter().collect(), 0));
    assert_eq!(table.heap_bytes(), 0);
}

/// Counts the bytes of the keys that are hashed.
#[derive(Debug, Clone)]
struct Weighed(std::rc::Rc<std::cell::Cell<usize>>);

impl Positions for Weighed {
    fn position(&self, key: &[u8]) -> u64 {
        self.0.set(self.0.get() + key.len());
        PositionFromKey.position(key)
    }
}

#[test]
fn moving_items_does_not_hash_long_keys_again() {
    let hashed = Weighed(Default::default());
    let mut table: ExtendibleTable<Large, _> = ExtendibleTable::new(0, hashed.clone());
    let mut rng = fastrand::Rng::with_seed(7);
    let keys: Vec<_> = (0..5000).map(|number| key(spread_out(&mut rng), number, 1000)).collect();
    for key in &keys {
        let new = NewItem { key, usage: None, expiry_ms: 1, payload: Payload::Int(1) };
        table.insert_new(PositionFromKey.position(key), new);
    }
    let mut seen = 0;
    let mut next = Some(0);
    while let Some(from) = next {
        next = table.scan_step(from, 100, &mut |_| seen += 1).1;
    }
    for key in &keys[..4900] {
        let at = table.locate(PositionFromKey.position(key), key).expect("it is there");
        table.remove_at(at);
    }
    let mut expired = 0;
    let mut next = Some(0);
    while let Some(from) = next {
        next = table.expire_step(from, 1, false, &mut |_, _, _| expired += 1, &mut Vec::new(), &mut 0).1;
    }
    assert_eq!((seen, expired, hashed.0.get()), (5000, 100, 0));
}

#[test]
fn indices_of_outside_values_are_reused() {
    let mut rng = fastrand::Rng::with_seed(8);
    let keys: Vec<_> = (0..600).map(|number| key(spread_out(&mut rng), number, 0)).collect();
    let (mut used, mut fresh) = (Tested::new(0, PositionFromKey), Tested::new(0, PositionFromKey));
    keys.iter().for_each(|key| put(&mut used, key, b"@outside", i64::MAX));
    for key in &keys {
        put(&mut used, key, b"#1", i64::MAX);
        put(&mut fresh, key, b"#1", i64::MAX);
    }
    used.check();
    let (used, fresh) = (used.heap_bytes(), fresh.heap_bytes());
    // An eighth of the heap may be garbage, and an equal share of places may be free.
    assert!(used < fresh + fresh / 3, "{used} bytes, {fresh} in a fresh table");
}

#[test]
fn copied_items_of_every_form_outlive_their_table() {
    let (mut table, rng) = (Tested::new(0, PositionFromKey), &mut fastrand::Rng::with_seed(3));
    for number in 0..3_000 {
        let key = key(spread_out(rng), number, [0, 200, INLINE_BYTES_MAX][rng.usize(..3)]);
        put(&mut table, &key, &value(rng), if rng.bool() { i64::MAX } else { 5 });
    }
    let seen =
        |item: Item<'_, Large>| (item.key().to_vec(), stored(item.content()), item.expiry_ms(), item.usage());
    let (mut copies, mut want) = (Entries::with_room(10), Vec::new());
    for item in table.iter() {
        let outside = item.is_outside().then(|| stored(item.content()).len() + item.outside_key_bytes());
        assert!(copies.push(&item) >= item.inline_bytes() + outside.unwrap_or(0));
        want.push(seen(item));
    }
    drop(table);
    let have: Vec<_> = copies.items().map(seen).collect();
    assert!(have == want, "{} and {} items", have.len(), want.len());
}

#[test]
fn table_with_reserved_items_moves_few_items() {
    for items in [0, 100, 776, 777, 20_000, 100_000] {
        let (mut table, rng) = (Tested::new(2, PositionFromKey), &mut fastrand::Rng::with_seed(items as u64));
        let start = 3 << (POSITION_BITS - 2);
        let keys: Vec<_> =
            (0..items as u32).map(|number| key(start | spread_out(rng) >> 2, number, 0)).collect();
        table.reserve_items(start, items);
        keys.iter().for_each(|key| put(&mut table, key, b"value", i64::MAX));
        table.check();
        let shape = table.shape();
        assert!(items < 2 * SEGMENT_ITEMS_MAX || shape.moved_max == 0, "{shape:?}");
        assert!(shape.segments <= 1 + items / 300, "{shape:?}");
        table.reserve_items(start, 10 * items);
        assert_eq!(table.shape(), shape, "a table in use stays as it is");
        assert!(keys.iter().all(|key| take(&mut table, key)));
        table.check();
        assert!(table.shape().segments <= shape.segments);
    }
}
