//! Promises are compared with a twin keyspace on which the same changes are made at once, with random writes in
//! between.

use super::*;
use crate::journal::SentArgs;
use crate::snapshot::tests::{DATABASES, NOW_MS, words, write};
use crate::{KeyEvent, KeyHash};
use std::collections::BTreeMap;

type InWords = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

fn all(keyspace: &Keyspace, db: usize) -> InWords {
    let mut all = InWords::new();
    for shard in 0..keyspace.shards() {
        keyspace.for_each_in_shard(shard, db, NOW_MS, &mut |record| {
            all.insert(record.key().to_vec(), (words(record.value()), record.expire_at_ms()));
        });
    }
    all
}

fn promise(keyspace: &Keyspace, db: usize, names: &[String], value: Option<&[u8]>) -> Arc<AtomicU64> {
    let mut promises = Promises::default();
    let keys: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name.as_bytes())).collect();
    keys.iter().for_each(|key| match value {
        Some(value) => promises.set(keyspace, key, Str::from_slice(value), None),
        None => promises.delete(keyspace, key),
    });
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    keyspace.lock(&hashes, NOW_MS).promise(db, promises)
}

/// Makes the changes that [`promise`] promises, but makes them at once.
fn at_once(keyspace: &Keyspace, db: usize, names: &[String], value: Option<&[u8]>) -> u64 {
    let mut removed = 0;
    for name in names {
        let key = keyspace.key(name.as_bytes());
        let mut txn = keyspace.lock(&[key.hash], NOW_MS);
        match value {
            Some(value) => _ = txn.db(db).set_str(&key, Str::from_slice(value).view(), None),
            None => removed += u64::from(txn.db(db).delete(&key)),
        }
    }
    removed
}

fn carry_out(keyspace: &Keyspace, db: usize, name: &str) {
    let key = keyspace.key(name.as_bytes());
    keyspace.lock(&[key.hash], NOW_MS).db(db).peek(&key);
}

#[test]
fn promises_equal_immediate_writes_under_random_commands() {
    for seed in 1..4 {
        let [promised, twin] = [(); 2].map(|()| Keyspace::new(4, DATABASES, [seed, 2, 3, 4]));
        let rng = &mut fastrand::Rng::with_seed(seed);
        // Both keyspaces get the same random writes, because the generators have equal seeds.
        let [mut one, mut other] = [(); 2].map(|()| fastrand::Rng::with_seed(seed));
        for _ in 0..15 {
            let db = rng.usize(..DATABASES);
            let names: Vec<String> = (0..300).map(|_| format!("key:{}", rng.usize(..3000))).collect();
            let value = [None, Some(&b"promised"[..]), Some(b"17")][rng.usize(..3)];
            let removed = promise(&promised, db, &names, value);
            let counted = at_once(&twin, db, &names, value);
            // Some keys get a second promise before the first one is carried out.
            let more: Vec<String> = names[..150].iter().rev().cloned().collect();
            promise(&promised, db, &more, Some(b"later"));
            at_once(&twin, db, &more, Some(b"later"));
            for name in &names {
                for _ in 0..rng.usize(..4) {
                    write(&promised, &mut one);
                    write(&twin, &mut other);
                }
                carry_out(&promised, db, name);
            }
            assert_eq!(removed.load(Relaxed), counted, "seed {seed}");
            assert!(promised.shards.iter().all(|shard| !shard.lock.lock().has_promises()));
            (0..DATABASES).for_each(|db| assert!(all(&promised, db) == all(&twin, db), "seed {seed}"));
        }
    }
}

#[test]
fn snapshots_and_views_see_what_is_promised() {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let names: Vec<String> = (0..500).map(|i| format!("key:{i}")).collect();
    at_once(&keyspace, 0, &names, Some(b"before"));
    promise(&keyspace, 0, &names[..250], None);
    promise(&keyspace, 0, &names[100..300], Some(b"after"));
    let keys = [50, 150, 400].map(|at: usize| keyspace.key(names[at].as_bytes()));
    let view = keyspace.lock_all(NOW_MS).view(0, keyspace.view_keys(&keys));
    let seen =
        keys.map(|key| view.read(&mut keyspace.lock_all(NOW_MS), &key).map(|(value, _)| words(value.view())));
    assert_eq!(seen, [None, Some(b"after".to_vec()), Some(b"before".to_vec())]);
    // A promise made after the view began does not change what the view reads.
    promise(&keyspace, 0, &names, None);
    let again =
        keys.map(|key| view.read(&mut keyspace.lock_all(NOW_MS), &key).map(|(value, _)| words(value.view())));
    assert_eq!(again, seen);
    promise(&keyspace, 0, &names, None);
    let (mut snapshot, mut slice) = (keyspace.snapshot(1 << 20, Arc::default()), Vec::new());
    assert!(!snapshot.next(&mut slice) && slice.is_empty());
}

#[test]
fn promise_raises_watch_flags_when_it_is_made() {
    // With more watched keys than promised ones, the promised keys are walked, and otherwise the watched ones.
    for watched in [0, 100] {
        raises_watch_flags_beside(watched);
    }
}

fn raises_watch_flags_beside(others: usize) {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let names: Vec<String> = ["there", "not there"].map(String::from).to_vec();
    at_once(&keyspace, 0, &names[..1], Some(b"1"));
    let watch = |name: &str| {
        let (key, flag) = (keyspace.key(name.as_bytes()), crate::WatchFlag::default());
        keyspace.lock(&[key.hash], NOW_MS).db(0).watch(&key, &flag);
        flag
    };
    let _others: Vec<_> = (0..others).map(|n| watch(&format!("other {n}"))).collect();
    let flags = [watch("there"), watch("not there"), watch("another")];
    promise(&keyspace, 0, &names, None);
    let raised = |flags: &[crate::WatchFlag]| flags.iter().map(|flag| flag.has_changed()).collect::<Vec<_>>();
    assert_eq!(raised(&flags), [true, false, false]);
    // A promise raises the flags of earlier watches when it is made. Carrying it out raises no flag of a watch that
    // began in between.
    promise(&keyspace, 0, &["another".into()], Some(b"2"));
    let later = watch("another");
    names.iter().for_each(|name| carry_out(&keyspace, 0, name));
    carry_out(&keyspace, 0, "another");
    assert!(!later.has_changed() && flags[2].has_changed());
}

#[test]
fn carried_out_promise_keeps_its_own_event_source_and_effects() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    keyspace.switch_journal(true);
    let names = ["a".to_string(), "b".to_string()];
    promise(&keyspace, 0, &names, Some(b"x"));
    let tail = keyspace.journal().tail();
    // A command that only reads carries out the promise, and has no effect of its own.
    let key = keyspace.key(b"a");
    let mut txn = keyspace.lock(&[key.hash], NOW_MS);
    txn.begin_command(|| (KeyEvent::NONE, true), true, 7);
    assert!(txn.db(0).get(&key).is_some());
    txn.end_command(0, || SentArgs::Args(std::iter::empty()));
    drop(txn);
    carry_out(&keyspace, 0, "b");
    assert_eq!(keyspace.journal().tail(), tail);
}
