//! Read sets are compared with the data, with random writes of every kind in between.

use super::*;
use crate::snapshot::tests::{DATABASES, NOW_MS, write};
use crate::view::tests::{in_words, now};
use crate::{KeyHash, Promises, Str, StrRef, ValueRef};

#[test]
fn records_are_of_one_moment_unless_the_read_set_is_overtaken() {
    let (mut current, mut overtaken) = (0, 0);
    for (seed, shards, writes) in [(1, 4, 4), (2, 1, 1), (3, 8, 20)] {
        let keyspace = Keyspace::new(shards, DATABASES, [seed, 2, 3, 4]);
        let rng = &mut fastrand::Rng::with_seed(seed);
        (0..8000).for_each(|_| write(&keyspace, rng));
        for round in 0..200 {
            let db = rng.usize(..DATABASES);
            let names: Vec<String> = (0..20).map(|_| format!("key:{}", rng.usize(..4000))).collect();
            let keys: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name.as_bytes())).collect();
            let mut reads = keyspace.read_set(db);
            let mut have = Vec::new();
            for key in &keys {
                have.push(in_words(reads.read(&mut keyspace.lock(&[key.hash], NOW_MS), key)));
                (0..rng.usize(..=writes)).for_each(|_| write(&keyspace, rng));
            }
            let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
            assert_eq!(reads.shards(), &keyspace.shards_of(&hashes)[..]);
            let is_current = reads.is_current(&keyspace.lock_shards(reads.shards(), NOW_MS));
            let changed: Vec<&String> = names
                .iter()
                .zip(&keys)
                .zip(&have)
                .filter(|((_, key), was)| now(&keyspace, db, key) != **was)
                .map(|((name, _), _)| name)
                .collect();
            assert!(!is_current || changed.is_empty(), "seed {seed}, round {round}: {changed:?}");
            match is_current {
                true => current += 1,
                false => overtaken += 1,
            }
            drop(reads);
            assert!(keyspace.shards.iter().all(|shard| shard.lock.lock().keepers.is_none()));
        }
    }
    assert!(current > 50 && overtaken > 50, "{current} current, {overtaken} overtaken");
}

fn put(keyspace: &Keyspace, name: &str, expire_at_ms: Option<i64>) {
    let key = keyspace.key(name.as_bytes());
    keyspace.lock(&[key.hash], NOW_MS).db(0).set_str(&key, StrRef::of(b"text"), expire_at_ms);
}

/// Reads `name`, calls `then`, and returns whether the read set is still current at `at_ms`.
fn is_current_after(keyspace: &Keyspace, name: &str, at_ms: i64, then: impl FnOnce()) -> bool {
    let key = keyspace.key(name.as_bytes());
    let mut reads = keyspace.read_set(0);
    reads.read(&mut keyspace.lock(&[key.hash], NOW_MS), &key);
    assert_eq!((reads.len(), reads.is_empty()), (1, false));
    then();
    reads.is_current(&keyspace.lock_shards(reads.shards(), at_ms))
}

#[test]
fn other_keys_other_databases_and_reads_overtake_nothing() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    put(&keyspace, "mine", None);
    let mine = keyspace.key(b"mine");
    assert!(is_current_after(&keyspace, "mine", NOW_MS, || {
        put(&keyspace, "other", None);
        keyspace.lock(&[mine.hash], NOW_MS).db(1).set_str(&mine, StrRef::of(b"text"), None);
        drop(keyspace.flush(1));
        assert!(keyspace.lock(&[mine.hash], NOW_MS).db(0).get(&mine).is_some());
    }));
    assert!(!is_current_after(&keyspace, "mine", NOW_MS, || put(&keyspace, "mine", None)));
    assert!(!is_current_after(&keyspace, "mine", NOW_MS, || drop(keyspace.flush(0))));
    assert!(!is_current_after(&keyspace, "missing", NOW_MS, || put(&keyspace, "missing", None)));
    assert!(!is_current_after(&keyspace, "missing", NOW_MS, || keyspace.swap(0, 1)));
}

#[test]
fn expiry_overtakes_whether_or_not_the_record_was_removed() {
    let until_ms = NOW_MS + 10;
    let fresh = || {
        let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
        put(&keyspace, "mortal", Some(until_ms));
        keyspace
    };
    assert!(is_current_after(&fresh(), "mortal", until_ms - 1, || {}));
    assert!(!is_current_after(&fresh(), "mortal", until_ms, || {}), "the time has passed");
    let keyspace = fresh();
    let is_current = is_current_after(&keyspace, "mortal", NOW_MS, || {
        while keyspace.expire_slice(until_ms, 1000).has_more {}
        let key = keyspace.key(b"mortal");
        assert!(
            keyspace.lock_shard(0, NOW_MS).db(0).peek(&key).is_none(),
            "a read set lets expiry remove records"
        );
    });
    assert!(!is_current, "the record was removed");
}

#[test]
fn promises_overtake_when_they_are_made() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    put(&keyspace, "mine", None);
    let promise = |names: &[&str]| {
        let mut promises = Promises::default();
        for name in names {
            promises.set(&keyspace, &keyspace.key(name.as_bytes()), Str::Int(7), None);
        }
        let mut txn = keyspace.lock_shard(0, NOW_MS);
        txn.promise(0, promises);
    };
    assert!(is_current_after(&keyspace, "mine", NOW_MS, || promise(&["a", "b"])));
    assert!(!is_current_after(&keyspace, "mine", NOW_MS, || promise(&["a", "mine"])));
    // The next read sees the promised value, and carrying the promise out is no write after it.
    let key = keyspace.key(b"mine");
    promise(&["mine"]);
    let mut reads = keyspace.read_set(0);
    let record = reads.read(&mut keyspace.lock_shard(0, NOW_MS), &key);
    assert!(matches!(record, Some((value, None)) if matches!(value.view(), ValueRef::Str(StrRef::Int(7)))));
    assert!(!reads.is_overtaken());
}
