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

/// The keys of database 0 that begin with `a`, as `reads` lists them, in order.
fn listed<'k>(keyspace: &'k Keyspace, reads: &mut ReadSet<'k>, names: &Names) -> Vec<String> {
    let (mut found, mut next, mut steps) = (Vec::new(), Some(0), 0);
    while let Some(cursor) = next {
        let mut txn = keyspace.lock_shard(keyspace.shard_of_cursor(cursor), NOW_MS);
        next = reads.list(&mut txn, cursor, 100, names, &mut |record| {
            let is_listed = record.key().starts_with(b"a");
            found.extend(is_listed.then(|| String::from_utf8_lossy(record.key()).into_owned()));
            is_listed
        });
        steps += 1;
        assert!(steps < 10_000, "no end");
    }
    found.sort();
    found
}

#[test]
fn listed_names_are_overtaken_by_new_and_removed_keys_only() {
    let until_ms = NOW_MS + 10;
    let fresh = || {
        let keyspace = Keyspace::new(4, DATABASES, [1, 2, 3, 4]);
        (0..2000).for_each(|n| put(&keyspace, &format!("a{n}"), None));
        (0..2000).for_each(|n| put(&keyspace, &format!("b{n}"), None));
        put(&keyspace, "a mortal", Some(until_ms));
        keyspace
    };
    let delete = |keyspace: &Keyspace, name: &str| {
        let key = keyspace.key(name.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(0).delete(&key)
    };
    let promise = |keyspace: &Keyspace, names: &[String]| {
        let mut promises = Promises::default();
        names.iter().for_each(|name| {
            promises.set(keyspace, &keyspace.key(name.as_bytes()), Str::Int(7), None);
        });
        keyspace.lock_all(NOW_MS).promise(0, promises);
    };
    let many = |first: &str| (0..5000).map(|n| format!("{first}{n}")).collect::<Vec<_>>();
    type Then<'t> = &'t dyn Fn(&Keyspace);
    let cases: [(&str, bool, i64, Then<'_>); 12] = [
        ("nothing", true, NOW_MS, &|_| {}),
        ("a rewritten key", true, NOW_MS, &|keyspace| put(keyspace, "a7", None)),
        ("another new key", true, NOW_MS, &|keyspace| put(keyspace, "new", None)),
        ("another removed key", true, NOW_MS, &|keyspace| assert!(delete(keyspace, "b7"))),
        ("another database", true, NOW_MS, &|keyspace| {
            let key = keyspace.key(b"anew");
            keyspace.lock(&[key.hash], NOW_MS).db(1).set_str(&key, StrRef::of(b"text"), None);
        }),
        ("promises", true, NOW_MS, &|keyspace| promise(keyspace, &["a7".into(), "new".into()])),
        ("a promised key", false, NOW_MS, &|keyspace| promise(keyspace, &["anew".into()])),
        ("more promises than are compared", false, NOW_MS, &|keyspace| promise(keyspace, &many("new"))),
        ("a new key", false, NOW_MS, &|keyspace| put(keyspace, "anew", None)),
        ("a removed key", false, NOW_MS, &|keyspace| assert!(delete(keyspace, "a7"))),
        ("a key whose time has passed", false, until_ms, &|_| {}),
        ("an expired key that was removed", false, NOW_MS, &|keyspace| {
            while keyspace.expire_slice(until_ms, 1000).has_more {}
        }),
    ];
    for (what, stays, at_ms, then) in cases {
        let keyspace = fresh();
        let names = Names::new(|name| name.starts_with(b"a"));
        let mut reads = keyspace.read_set(0);
        assert_eq!(listed(&keyspace, &mut reads, &names).len(), 2001);
        assert_eq!((reads.shards().len(), reads.len(), reads.is_empty()), (4, 0, false));
        then(&keyspace);
        assert_eq!(reads.is_current(&keyspace.lock_shards(reads.shards(), at_ms)), stays, "{what}");
        drop(reads);
        assert!(keyspace.shards.iter().all(|shard| shard.lock.lock().keepers.is_none()));
    }
}

#[test]
fn a_listing_has_what_was_promised_before() {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let mut promises = Promises::default();
    for n in 0..3000 {
        promises.set(&keyspace, &keyspace.key(format!("a{n}").as_bytes()), Str::Int(7), None);
    }
    keyspace.lock_all(NOW_MS).promise(0, promises);
    let mut reads = keyspace.read_set(0);
    assert_eq!(listed(&keyspace, &mut reads, &Names::new(|_| true)).len(), 3000);
    assert!(!reads.is_overtaken());
    let past_the_end =
        reads.list(&mut keyspace.lock_shard(1, NOW_MS), u64::MAX, 1, &Names::new(|_| true), &mut |_| true);
    assert_eq!(past_the_end, None);
}
