//! Properties of the keyspace: growth, locks, expiry, garbage, and the keys noted for the text index.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strand_chain::Blob;
use strand_keyspace::{Collection, HashValue, KeyHash, Keyspace, Settings, Str, StrRef, Value, ValueRef};

const NOW_MS: i64 = 1_700_000_000_000;
/// Maximum number of items in a segment, and so the maximum number that one operation may move.
const SEGMENT_ITEMS_MAX: usize = 896;

fn space(shards: usize) -> Keyspace {
    Keyspace::new(shards, 16, [1, 2, 3, 4])
}
fn set(space: &Keyspace, db: usize, key: &[u8], value: Value, expire_at_ms: Option<i64>) -> bool {
    let key = space.key(key);
    space.lock(&[key.hash], NOW_MS).db(db).insert(&key, value, expire_at_ms)
}
fn delete(space: &Keyspace, db: usize, key: &[u8]) -> bool {
    let key = space.key(key);
    space.lock(&[key.hash], NOW_MS).db(db).delete(&key)
}
fn int(n: i64) -> Value {
    Value::Str(Str::Int(n))
}
fn big_hash(fields: u32) -> Value {
    let (mut hash, settings) = (HashValue::new(), Settings::default());
    for i in 0..fields {
        hash.set(&i.to_le_bytes(), b"", &settings);
    }
    Value::Hash(hash)
}

#[test]
fn grows_a_segment_at_a_time_and_shrinks_again() {
    const KEYS: u32 = 200_000;
    let space = space(8);
    for i in 0..KEYS {
        assert!(!set(&space, 0, &i.to_le_bytes(), int(1), None));
    }
    let grown = space.shape(0);
    assert_eq!((grown.items, space.len(0)), (KEYS as usize, KEYS as usize));
    assert!(
        grown.segment_items_max <= SEGMENT_ITEMS_MAX && grown.moved_max <= SEGMENT_ITEMS_MAX,
        "{grown:?}"
    );
    assert!(
        grown.segments >= KEYS as usize / SEGMENT_ITEMS_MAX && grown.segments < KEYS as usize / 400,
        "{grown:?}"
    );
    // An entry has 4 + 8 bytes of key and value, and 5 bytes of metadata. The rest is the table and the spare
    // room of segments.
    assert!(grown.entries_bytes == KEYS as usize * 17, "{grown:?}");
    assert!(grown.heap_bytes < KEYS as usize * (12 + 24), "{grown:?}");
    for i in 0..KEYS {
        if i % 100 != 0 {
            assert!(delete(&space, 0, &i.to_le_bytes()));
        }
    }
    let shrunk = space.shape(0);
    assert_eq!(shrunk.items, KEYS as usize / 100);
    assert!(shrunk.moved_max <= SEGMENT_ITEMS_MAX, "{shrunk:?}");
    assert!(shrunk.segments <= grown.segments / 20, "{shrunk:?}");
    assert!(shrunk.directory <= grown.directory / 20, "{shrunk:?}");
    assert!(shrunk.heap_bytes <= grown.heap_bytes / 20, "{shrunk:?}");
    for i in (0..KEYS).step_by(100) {
        assert!(delete(&space, 0, &i.to_le_bytes()));
    }
    assert_eq!(space.shape(0).heap_bytes, 0);
}

#[test]
fn the_hash_is_keyed() {
    let (one, other) = (space(64), Keyspace::new(64, 16, [1, 2, 3, 5]));
    // Keys are chosen that share a shard and more bits under one seed. Under another seed they must be spread
    // out.
    let top = |space: &Keyspace, key: &[u8]| space.key(key).hash.0 >> 54;
    let chosen: Vec<Vec<u8>> =
        (0u32..).map(|i| i.to_le_bytes().to_vec()).filter(|k| top(&one, k) == 7).take(1000).collect();
    for key in &chosen {
        set(&one, 0, key, int(1), None);
        set(&other, 0, key, int(1), None);
    }
    // The segments of these keys split as deep as needed, and still none has more items than a segment may
    // have.
    assert!(one.shape(0).segment_items_max <= SEGMENT_ITEMS_MAX, "{:?}", one.shape(0));
    assert!(other.shape(0).segment_items_max < 50, "{:?}", other.shape(0));
    assert_eq!((one.len(0), other.len(0)), (1000, 1000));
}

#[test]
fn several_threads_with_several_keys_each() {
    const KEYS: u64 = 64;
    const THREADS: u64 = 4;
    const TRANSFERS: u64 = 3000;
    let space = space(16);
    for i in 0..KEYS {
        set(&space, 0, &i.to_le_bytes(), int(1000), None);
    }
    let done = AtomicBool::new(false);
    let start = Barrier::new(THREADS as usize + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let (space, start) = (&space, &start);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    start.wait();
                    for _ in 0..TRANSFERS {
                        // Each transaction moves 1 from some keys to one key, given in any order. Some keys
                        // are named twice.
                        let names: Vec<[u8; 8]> =
                            (0..rng.usize(2..6)).map(|_| rng.u64(..KEYS).to_le_bytes()).collect();
                        let keys: Vec<_> = names.iter().map(|n| space.key(n)).collect();
                        let hashes: Vec<KeyHash> = keys.iter().map(|k| k.hash).collect();
                        let mut locked = space.lock(&hashes, NOW_MS);
                        let mut db = locked.db(0);
                        for (i, key) in keys.iter().enumerate() {
                            let by = if i == 0 { keys.len() as i64 - 1 } else { -1 };
                            let sum = match db.get(key).map(|r| r.value()) {
                                Some(ValueRef::Str(StrRef::Int(n))) => n + by,
                                other => panic!("{other:?}"),
                            };
                            db.update_str(key, StrRef::Int(sum));
                        }
                    }
                })
            })
            .collect();
        let (space, done, start) = (&space, &done, &start);
        scope.spawn(move || {
            start.wait();
            while !done.load(Relaxed) {
                // While all shards are locked, the sum never changes. While one shard at a time is locked,
                // every key exists.
                let mut all = space.lock_all(NOW_MS);
                let mut sum = 0;
                for i in 0..KEYS {
                    let name = i.to_le_bytes();
                    match all.db(0).get(&space.key(&name)).map(|r| r.value()) {
                        Some(ValueRef::Str(StrRef::Int(n))) => sum += n,
                        other => panic!("{other:?}"),
                    }
                }
                drop(all);
                assert_eq!(sum, 1000 * KEYS as i64);
                // These calls lock every shard, too.
                space.swap(1, 2);
                space.flush(1);
            }
        });
        let outcome: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Relaxed);
        outcome.into_iter().for_each(|o| o.expect("no worker failed"));
    });
}

#[test]
fn a_lock_that_is_held_is_not_waited_for() {
    let space = space(4);
    let keys: Vec<[u8; 4]> = (0..100u32).map(|i| i.to_le_bytes()).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|k| space.key(k).hash).collect();
    assert!(space.try_lock(&hashes, NOW_MS).is_some());
    let held = space.lock_shard(2, NOW_MS);
    assert!(space.try_lock(&hashes, NOW_MS).is_none());
    let elsewhere =
        hashes.iter().find(|h| space.shard_of(**h) != 2).expect("100 keys are in more than one shard");
    assert!(space.try_lock(&[*elsewhere], NOW_MS).is_some());
    drop(held);
    assert!(space.try_lock(&hashes, NOW_MS).is_some());
}

#[test]
fn waiting_for_one_of_several_shards_holds_none() {
    let space = space(4);
    let of = |shard: usize| {
        let keys = (0..1000u32).map(|i| space.key(&i.to_le_bytes()).hash);
        keys.into_iter().find(|h| space.shard_of(*h) == shard).expect("1000 keys are in every shard")
    };
    let hashes: Vec<KeyHash> = (0..4).map(of).collect();
    assert!(space.lock_together(&hashes, 1, Duration::ZERO, NOW_MS).is_some());
    let busy = space.lock_shard(3, NOW_MS);
    assert!(space.lock_together(&hashes, 3, Duration::from_micros(1), NOW_MS).is_none());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            drop(
                space.lock_together(&hashes, 1_000_000, Duration::from_secs(1), NOW_MS).expect("in the end"),
            );
        });
        for round in 0..500 {
            let free = || space.try_lock(&hashes[..1], NOW_MS).is_some();
            let is_free = (0..100_000).any(|_| {
                std::thread::yield_now();
                free()
            });
            assert!(is_free, "round {round}: shard 0 is kept while shard 3 is waited for");
        }
        drop(busy);
        waits.join().expect("it ends");
    });
}

#[test]
#[should_panic(expected = "the key's shard is held")]
fn access_to_a_shard_that_is_not_held_panics() {
    let space = space(64);
    let mut locked = space.lock_shard(3, NOW_MS);
    let name = (0..1000u32)
        .map(|i| i.to_le_bytes())
        .find(|n| space.shard_of(space.key(n).hash) != 3)
        .expect("most keys are elsewhere");
    locked.db(0).get(&space.key(&name));
}

#[test]
fn expire_slices_open_each_segment_once() {
    const KEYS: u32 = 30_000;
    let space = space(16);
    for i in 0..KEYS {
        set(&space, 0, &i.to_le_bytes(), int(1), (i % 10 == 0).then_some(NOW_MS + 5));
    }
    // Of ten records that a slice looks at, nine do not expire. `more` stays true until all expired records
    // are removed.
    let mut slices = 0;
    while space.expire_slice(NOW_MS + 5, 1000).has_more {
        slices += 1;
        assert!(slices <= KEYS / 1000, "each segment is opened once");
    }
    assert_eq!((space.len(0), space.expiring_len(0)), (KEYS as usize / 10 * 9, 0));
}

#[test]
fn active_expiry_visits_nothing_before_an_expiry_has_passed() {
    const KEYS: u32 = 50_000;
    let space = space(16);
    for i in 0..KEYS {
        set(&space, i as usize % 2, &i.to_le_bytes(), int(1), Some(NOW_MS + 1000 + i64::from(i % 2)));
    }
    assert_eq!((space.expiring_len(0), space.expiring_len(1)), (KEYS as usize / 2, KEYS as usize / 2));
    assert_eq!(space.expire_slice(NOW_MS + 999, usize::MAX).removed, 0);
    // A slice looks at the allowed number of records plus at most one segment, and the next slice continues
    // where it stopped.
    let mut slices = 0;
    while space.len(0) > 0 {
        assert!(space.expire_slice(NOW_MS + 1000, 1000).removed <= 1000 + SEGMENT_ITEMS_MAX);
        slices += 1;
        assert!(slices <= KEYS / 2 / 1000 + 2, "no slice is spent on nothing");
    }
    assert_eq!((space.len(1), space.expired_total()), (KEYS as usize / 2, u64::from(KEYS) / 2));
    while space.expire_slice(NOW_MS + 1001, 1000).removed > 0 {}
    assert_eq!((space.len(1), space.expired_total()), (0, u64::from(KEYS)));
}

#[test]
fn an_expiry_that_moves_is_followed() {
    let space = space(1);
    let key = space.key(b"k");
    set(&space, 0, b"k", int(1), Some(NOW_MS + 10));
    assert!(space.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, Some(NOW_MS + 500)));
    assert_eq!(space.expire_slice(NOW_MS + 400, 10).removed, 0);
    assert!(space.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, Some(NOW_MS + 5)));
    assert_eq!(space.expire_slice(NOW_MS + 5, 10).removed, 1);
    set(&space, 0, b"k", int(1), Some(NOW_MS + 10));
    assert!(space.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, None));
    assert_eq!((space.expire_slice(NOW_MS + 99, 10).removed, space.expiring_len(0), space.len(0)), (0, 0, 1));
    // A replaced value takes the new expiry, or has none.
    assert!(set(&space, 0, b"k", int(2), Some(NOW_MS + 1)));
    assert_eq!(space.expiring_len(0), 1);
    assert!(set(&space, 0, b"k", int(2), None));
    assert_eq!(space.expiring_len(0), 0);
}

#[test]
fn big_values_are_kept_for_take_garbage() {
    let space = space(2);
    let expiry = Some(NOW_MS + 1);
    set(&space, 0, b"deleted", big_hash(1000), None);
    set(&space, 0, b"replaced", big_hash(1000), None);
    set(&space, 0, b"lazily", big_hash(1000), expiry);
    set(&space, 0, b"actively", Value::Str(Str::Raw(Blob::from(vec![0; 1 << 20]))), expiry);
    set(&space, 0, b"small", big_hash(10), None);
    assert!(delete(&space, 0, b"deleted") && delete(&space, 0, b"small"));
    assert!(set(&space, 0, b"replaced", int(1), None));
    assert_eq!(space.take_garbage().len(), 2);
    let key = space.key(b"lazily");
    assert!(space.lock(&[key.hash], NOW_MS + 1).db(0).peek(&key).is_none());
    assert_eq!(space.expire_slice(NOW_MS + 1, 100).removed, 1);
    assert_eq!((space.take_garbage().len(), space.expired_total()), (2, 2));
    assert_eq!(space.take_garbage().len(), 0);
}

#[test]
fn flush_and_swap_include_system_companions() {
    let space = space(4);
    let system = |db| space.system_db(db);
    set(&space, 3, b"k", int(3), None);
    set(&space, system(3), b"k", int(33), None);
    set(&space, system(5), b"k", int(55), None);
    space.swap(3, 5);
    let lens = |db| (space.len(db), space.len(system(db)));
    assert_eq!((lens(3), lens(5)), ((0, 1), (1, 1)));
    space.flush(5);
    assert_eq!((lens(3), lens(5)), ((0, 1), (0, 0)));
    space.swap(3, 3);
    space.swap(0, 3);
    assert_eq!((lens(0), lens(3)), ((0, 1), (0, 0)));
    assert_eq!(space.random_key(0, NOW_MS, &mut fastrand::Rng::with_seed(1)), None);
    assert_eq!(space.scan(0, 0, 10, NOW_MS, &mut |_| panic!("system keys are not shown")), 0);
}

#[test]
fn random_keys_are_about_as_likely_as_each_other() {
    let mut rng = fastrand::Rng::with_seed(3);
    for (shards, keys, tolerance) in [(64, 5, 0.3), (64, 100, 0.4), (4, 2000, 0.5)] {
        let space = space(shards);
        for i in 0..keys as u32 {
            set(&space, 0, &i.to_le_bytes(), int(1), None);
        }
        let mut hits = vec![0u32; keys];
        for _ in 0..keys * 200 {
            let key = space.random_key(0, NOW_MS, &mut rng).expect("there are keys");
            hits[u32::from_le_bytes(key.try_into().expect("4 bytes")) as usize] += 1;
        }
        let near = |h: &u32| (f64::from(*h) / 200.0 - 1.0).abs() < tolerance;
        let far: Vec<_> = hits.iter().filter(|h| !near(h)).collect();
        assert!(far.is_empty(), "{keys} keys in {shards} shards, drawn 200 times each: {far:?}");
    }
}

#[test]
fn a_random_key_is_not_an_expired_one() {
    let (space, mut rng) = (space(4), fastrand::Rng::with_seed(3));
    for i in 0..1000u32 {
        set(&space, 0, &i.to_le_bytes(), int(1), (i % 2 == 0).then_some(NOW_MS + 1));
    }
    for _ in 0..200 {
        let key = space.random_key(0, NOW_MS + 1, &mut rng).expect("half are alive");
        assert_eq!(key[0] % 2, 1);
    }
    let started = Instant::now();
    for i in (3..1000u32).step_by(2) {
        delete(&space, 0, &i.to_le_bytes());
    }
    for _ in 0..20 {
        assert_eq!(
            space.random_key(0, NOW_MS + 1, &mut rng),
            Some(1u32.to_le_bytes().to_vec()),
            "the last one"
        );
    }
    delete(&space, 0, &1u32.to_le_bytes());
    assert_eq!(space.random_key(0, NOW_MS + 1, &mut rng), None, "a bounded number of draws");
    assert!(started.elapsed().as_secs() < 60);
}

#[test]
fn touched_keys_are_noted_once_and_only_if_followed() {
    let space = space(4);
    let touched = || {
        let mut keys = Vec::new();
        for shard in 0..space.shards() {
            keys.extend(space.take_touched(shard).keys);
        }
        keys.sort();
        keys.into_iter().map(|k| String::from_utf8(k).expect("test keys are text")).collect::<Vec<_>>()
    };
    set(&space, 0, b"doc:early", int(1), None);
    assert_eq!(touched(), [""; 0]);
    space.track(&[b"doc:".to_vec(), b"mail:".to_vec()]);
    for (db, key) in [(0, "doc:1"), (0, "doc:1"), (0, "mail:1"), (0, "other"), (1, "doc:elsewhere")] {
        set(&space, db, key.as_bytes(), int(1), Some(NOW_MS + 5));
    }
    set(&space, space.system_db(0), b"doc:system", int(1), None);
    assert_eq!(space.touched_len(), 2);
    assert_eq!(touched(), ["doc:1", "mail:1"]);
    assert_eq!(space.expire_slice(NOW_MS + 5, 100).removed, 4);
    assert_eq!(touched(), ["doc:1", "mail:1"]);
    let key = space.key(b"doc:early");
    let mut locked = space.lock(&[key.hash], NOW_MS);
    assert!(locked.db(0).get(&key).is_some() && locked.db(0).peek(&key).is_some());
    drop(locked);
    assert_eq!(touched(), [""; 0], "reading touches nothing");
    (0..space.shards()).for_each(|s| space.touch_all(s));
    assert_eq!(touched(), ["doc:early"]);
    set(&space, 0, b"doc:2", int(1), None);
    space.flush(0);
    assert!((0..space.shards()).all(|s| space.take_touched(s).flushed));
    space.track(&[]);
    set(&space, 0, b"doc:3", int(1), None);
    assert_eq!(touched(), [""; 0]);
}

#[test]
fn usage_is_tracked_as_the_policy_requires() {
    let space = space(1);
    set(&space, 0, b"k", int(1), None);
    let key = space.key(b"k");
    let later = NOW_MS + 100_000;
    let idle = |now_ms| space.lock(&[key.hash], now_ms).db(0).peek(&key).map(|r| r.idle_s(now_ms));
    assert_eq!((idle(NOW_MS), idle(later)), (Some(0), Some(100)));
    let mut locked = space.lock(&[key.hash], later);
    locked.set_no_touch(true);
    assert!(locked.db(0).get(&key).is_some());
    drop(locked);
    assert_eq!(idle(later), Some(100));
    assert!(space.lock(&[key.hash], later).db(0).get(&key).is_some());
    assert_eq!(idle(later), Some(0));
    space.settings().lfu.store(1, Relaxed);
    set(&space, 0, b"new", int(1), None);
    let key = space.key(b"new");
    for _ in 0..1000 {
        space.lock(&[key.hash], NOW_MS).db(0).get(&key);
    }
    let locked = &mut space.lock(&[key.hash], NOW_MS);
    let frequency =
        locked.db(0).peek(&key).map(|r| r.frequency(NOW_MS, space.settings())).expect("it is there");
    // From the table in redis.conf: 1000 hits at factor 10 give 18.
    assert!((12..=26).contains(&frequency), "{frequency}");
}

#[test]
fn unknown_cursors_end_the_scan() {
    let space = space(4);
    set(&space, 0, b"k", int(1), None);
    for cursor in [1 << 40, u64::MAX, (1 << 40) - 1] {
        assert_eq!(space.scan(0, cursor, 10, NOW_MS, &mut |_| {}), 0);
    }
    // A count of 0 and an unlimited count do no harm.
    let mut seen = 0;
    let mut cursor = 0;
    loop {
        cursor = space.scan(0, cursor, 0, NOW_MS, &mut |_| seen += 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(space.scan(0, 0, usize::MAX, NOW_MS, &mut |_| seen += 1), 0);
    assert_eq!(seen, 2);
}

#[test]
fn prefetch_skips_locked_shards_and_changes_nothing() {
    let space = space(1);
    for i in 0..1_000u32 {
        set(
            &space,
            i as usize % 2,
            &i.to_le_bytes(),
            if i % 3 == 0 { big_hash(200) } else { int(1) },
            Some(1),
        );
    }
    let names: Vec<_> = (0..2_000u32).map(u32::to_le_bytes).collect();
    let keys: Vec<_> = names.iter().map(|n| space.key(n)).collect();
    let before = [space.shape(0), space.shape(1)];
    (0..3).for_each(|db| space.prefetch(db, &keys));
    // The only shard is held, so a prefetch that waited for it would never end.
    let held = space.lock(&[keys[0].hash], NOW_MS);
    space.prefetch(0, &keys);
    drop(held);
    assert_eq!([space.shape(0), space.shape(1)], before, "expired keys too stay until a command reads them");
}

#[test]
fn memory_per_record_is_close_to_its_bytes() {
    // Per row: bytes of the value, whether keys expire, and the maximum number of bytes per key besides 16
    // bytes of key and the value.
    for (value, expires, above_max) in [(64, false, 24), (64, true, 32), (256, false, 46), (8, false, 22)] {
        // The bytes per key depend on how full segments are, and so on the number of keys. Take the mean over
        // one doubling of this number.
        let mut per_key = Vec::new();
        let space = space(16);
        for i in 0..80_000 {
            let value = vec![b'v'; value];
            let at = expires.then_some(NOW_MS + 1000);
            set(&space, 0, format!("key:{i:012}").as_bytes(), Value::Str(Str::from_slice(&value)), at);
            if i >= 40_000 && i % 5_000 == 0 {
                per_key.push(space.data_bytes() as f64 / f64::from(i));
            }
        }
        let mean = per_key.iter().sum::<f64>() / per_key.len() as f64;
        assert!(mean < (16 + value + above_max) as f64, "{value} bytes, {expires}: {per_key:?}");
    }
}

#[test]
fn overwriting_with_other_lengths_keeps_memory_near_the_live_bytes() {
    let (space, mut rng) = (space(4), fastrand::Rng::with_seed(8));
    let (mut live, mut lens) = (0, vec![0; 5000]);
    for _ in 0..200_000 {
        let (i, len) = (rng.usize(..lens.len()), rng.usize(1..300));
        live = live + len - lens[i];
        lens[i] = len;
        set(&space, 0, &(i as u32).to_le_bytes(), Value::Str(Str::Raw(Blob::from(vec![b'x'; len]))), None);
    }
    let bytes = space.data_bytes();
    assert!(bytes < live * 14 / 10, "{bytes} for {live}");
    for i in 0..lens.len() as u32 {
        delete(&space, 0, &i.to_le_bytes());
    }
    assert_eq!(space.data_bytes(), 0, "given back with the last key");
}

#[test]
fn reading_allocates_nothing_and_overwriting_in_place_neither() {
    let space = space(4);
    set(&space, 0, b"key", Value::Str(Str::Raw(Blob::from(vec![b'x'; 256]))), None);
    let key = space.key(b"key");
    let read = allocation_counter::measure(|| {
        assert!(space.lock(&[key.hash], NOW_MS).db(0).get(&key).is_some());
    });
    assert_eq!(read.count_total, 0);
    let write = allocation_counter::measure(|| {
        let value = StrRef::Bytes { bytes: &[b'y'; 256], edited: false };
        assert!(space.lock(&[key.hash], NOW_MS).db(0).set_str(&key, value, None));
    });
    assert_eq!(write.count_total, 0);
}

#[test]
fn a_clone_of_a_big_hash_is_a_snapshot() {
    let settings = Settings::default();
    let mut hash = HashValue::new();
    for i in 0..100_000u32 {
        hash.set(&i.to_le_bytes(), &i.to_le_bytes(), &settings);
    }
    let mut snapshot = None;
    let cloning = allocation_counter::measure(|| snapshot = Some(hash.clone()));
    assert!(cloning.count_total <= 4, "{cloning:?}");
    assert!(cloning.bytes_total < 10_000, "{cloning:?}");
    let snapshot = snapshot.expect("made above");
    let write = allocation_counter::measure(|| {
        hash.set(&7u32.to_le_bytes(), b"else", &settings);
    });
    assert!(write.bytes_total < 60_000, "a segment is copied, not the hash: {write:?}");
    assert!((0..50_000u32).all(|i| hash.remove(&i.to_le_bytes())));
    assert_eq!((snapshot.len(), hash.len()), (100_000, 50_000));
    assert_eq!(snapshot.get(&7u32.to_le_bytes()).as_deref(), Some(&7u32.to_le_bytes()[..]));
    assert_eq!(snapshot.iter().count(), 100_000);
}

/// Two workers read the clock before they lock a shard. The second one to lock the shard may have read the clock first.
#[test]
fn the_time_of_a_shard_does_not_go_back() {
    let keyspace = Keyspace::new(4, 1, [1; 4]);
    let (soon, other) = (keyspace.key(b"soon"), keyspace.key(b"other"));
    keyspace.lock(&[soon.hash], 1_000).db(0).insert(&soon, int(1), Some(1_005));
    // This client looks at a missing key of the shard only, but it has seen that it is 1,010.
    assert_eq!(keyspace.lock_all(1_010).now_ms(), 1_010);
    let mut late = keyspace.lock(&[soon.hash], 1_001);
    assert_eq!(late.now_ms(), 1_010);
    assert!(late.has_passed(1_005) && late.db(0).peek(&soon).is_none());
    drop(late);
    // Locked one after the other, the shards have one time.
    keyspace.lock(&[other.hash], 1_020);
    let mut both = keyspace.lock(&[soon.hash], 1_015);
    assert!(both.try_lock_more(&[other.hash]));
    assert_eq!(both.now_ms(), 1_020);
    drop(both);
    assert_eq!(keyspace.lock(&[soon.hash], 1_001).now_ms(), 1_020);
    // The system's clock was set back.
    assert_eq!(keyspace.lock(&[soon.hash], -60_000).now_ms(), -60_000);
}
