//! The running sums of a shard are compared with a fresh count of its records.

use super::*;
use crate::{Changed, HashValue, Keyspace, StrRef};

const NOW_MS: i64 = 1_700_000_000_000;

fn put(keyspace: &Keyspace, db: usize, key: &str, expire_at_ms: Option<i64>) {
    let key = keyspace.key(key.as_bytes());
    keyspace.lock(&[key.hash], NOW_MS).db(db).set_str(&key, StrRef::of(b"a value"), expire_at_ms);
}
/// Checks that the running sums equal a fresh count, and that the published sums equal the running sums.
fn check(keyspace: &Keyspace) {
    for place in &keyspace.shards {
        let shard = place.lock.lock();
        let others = shard.others.iter().map(|(slot, table)| table.sums(*slot));
        assert_eq!(others.fold(Sums::default(), Sums::plus), shard.others_sums);
        assert!(shard.others.iter().all(|(_, t)| shard.others_expiry_ms <= t.records.expiry_ms()));
        assert!(shard.others.is_sorted_by_key(|(slot, _)| *slot));
        let sums = shard.sums();
        assert_eq!(
            (place.data_bytes(), place.records(false), place.records(true)),
            (sums.bytes, sums.records, sums.expiring)
        );
    }
}

#[test]
fn writing_to_a_high_database_allocates_one_table() {
    let keyspace = Keyspace::new(1, 1000, [1, 2, 3, 4]);
    put(&keyspace, 999, "key", Some(NOW_MS + 1000));
    let mut shard = keyspace.shards[0].lock.lock();
    assert_eq!(shard.others.len(), 1);
    assert!(shard.sums().bytes < 2000, "{:?}", shard.sums());
    // While no expiry has passed, active expiry only compares one bound. Once an expiry has passed, active
    // expiry finds the only table.
    assert_eq!(shard.next_due(0, NOW_MS), None);
    assert_eq!(shard.next_due(0, NOW_MS + 1000), Some(2 * 999));
    assert_eq!(shard.next_due(2 * 999 + 1, NOW_MS + 1000), None);
    drop(shard);
    assert_eq!(keyspace.expire_slice(NOW_MS + 1000, 10).removed, 1);
    assert_eq!(keyspace.shards[0].lock.lock().others_expiry_ms, i64::MAX, "known to be idle again");
    check(&keyspace);
}

#[test]
fn databases_in_use_are_listed_without_visiting_all_databases() {
    let keyspace = Keyspace::new(8, i32::MAX as usize, [1, 2, 3, 4]);
    let last = i32::MAX as usize - 1;
    (0..100).for_each(|i| put(&keyspace, last, &format!("key{i}"), (i < 30).then_some(NOW_MS + 1)));
    put(&keyspace, keyspace.system_db(5), "version", None);
    let in_use: Vec<_> =
        keyspace.in_use().into_iter().map(|(db, keys)| (db, keys.all, keys.expiring)).collect();
    assert_eq!(in_use, [(0, 0, 0), (5, 0, 0), (last, 100, 30)]);
    drop((keyspace.flush(5), keyspace.flush(last)));
    assert_eq!(keyspace.in_use().into_keys().collect::<Vec<_>>(), [0]);
    assert_eq!(keyspace.data_bytes(), 0);
}

#[test]
fn deleted_values_count_as_garbage_until_freed() {
    let keyspace = Keyspace::new(4, 2, [1, 2, 3, 4]);
    let key = keyspace.key(b"big");
    let blob = strand_chain::Blob::from(vec![b'v'; 5 << 20]);
    keyspace.lock(&[key.hash], NOW_MS).db(0).set_str(&key, StrRef::Blob { blob: &blob, edited: false }, None);
    assert_eq!(keyspace.garbage_bytes(), 0);
    assert!(keyspace.lock(&[key.hash], NOW_MS).db(0).delete(&key));
    assert!((5 << 20..6 << 20).contains(&keyspace.garbage_bytes()));
    assert_eq!((keyspace.take_garbage().len(), keyspace.garbage_bytes()), (1, 0));
    (0..1000).for_each(|i| put(&keyspace, 1, &format!("key{i}"), None));
    let bytes = keyspace.data_bytes();
    let mut flushed = keyspace.flush(1);
    let garbage = keyspace.garbage_bytes();
    assert!(keyspace.data_bytes() == 0 && (bytes - 1000..=bytes).contains(&garbage), "{garbage} of {bytes}");
    assert!(flushed.free_one().is_some() && keyspace.garbage_bytes() < garbage);
    drop(flushed);
    assert_eq!(keyspace.garbage_bytes(), 0);
}

#[test]
fn sums_follow_every_change() {
    let (keyspace, mut rng) = (Keyspace::new(4, 9, [1, 2, 3, 4]), fastrand::Rng::with_seed(1));
    for i in 0..20_000 {
        let (db, now_ms) = (rng.usize(..18), NOW_MS + i);
        let text = format!("key{}", rng.u32(..3000));
        let key = keyspace.key(text.as_bytes());
        let expiry = rng.bool().then(|| now_ms + rng.i64(1..5000));
        let mut locked = keyspace.lock(&[key.hash], now_ms);
        let mut seen = locked.db(db);
        match rng.u8(..10) {
            0..6 => drop(seen.set_str(&key, StrRef::of(&[b'v'; 600][..rng.usize(..600)]), expiry)),
            6 => drop(seen.delete(&key)),
            7 => drop(seen.set_expiry(&key, expiry)),
            8 => drop(seen.edit_str(&key, |blob| blob.try_resize(700, b'e'))),
            _ => drop(seen.get(&key).is_some()),
        }
        drop(locked);
        match rng.u16(..1000) {
            0 => drop(keyspace.flush(rng.usize(..9))),
            1 => keyspace.swap(rng.usize(..9), rng.usize(..9)),
            2..20 => drop(keyspace.expire_slice(now_ms, rng.usize(..1000)).removed),
            _ => {}
        }
        if i % 100 == 0 {
            check(&keyspace);
        }
    }
    let records: usize = (0..9).map(|db| keyspace.len(db)).sum();
    let expiring: usize = (0..9).map(|db| keyspace.expiring_len(db)).sum();
    let published = |expiring_only| keyspace.shards.iter().map(|s| s.records(expiring_only)).sum::<usize>();
    assert_eq!((published(false), published(true)), (records, expiring));
    assert!(records > 1000 && expiring > 100, "{records} {expiring}");
    while keyspace.expire_slice(NOW_MS + 1_000_000, 100).has_more {}
    for (db, keys) in keyspace.in_use() {
        assert_eq!(
            (keys.expiring, keys.expiries_ms),
            (0, 0),
            "every key with an expiry of database {db} has expired"
        );
    }
}

#[test]
fn one_call_frees_all_expired_fields_of_a_hash() {
    const FIELDS: u32 = 5_000;
    let keyspace = Keyspace::new(1, 16, [1, 2, 3, 4]);
    let key = keyspace.key(b"hash");
    let _ = keyspace.lock(&[key.hash], NOW_MS).db(0).change_or_create(&key, |hash: &mut HashValue| {
        for i in 0..FIELDS {
            hash.set(&i.to_le_bytes(), b"v", keyspace.settings());
            hash.set_expiry(&i.to_le_bytes(), (i > 0).then_some(NOW_MS + 1), keyspace.settings());
        }
        ((), Changed::Yes)
    });
    let (bytes, changes) = (keyspace.data_bytes(), keyspace.changes());
    assert!(keyspace.expire_slice(NOW_MS + 1, 1_000).has_more, "a call looks at about 1,000 fields");
    assert!(!keyspace.expire_slice(NOW_MS + 1, usize::MAX).has_more);
    assert!(keyspace.data_bytes() < bytes / 100, "{} of {bytes} bytes are left", keyspace.data_bytes());
    assert_eq!(keyspace.changes(), changes, "an expiry is no change");
    check(&keyspace);
}
