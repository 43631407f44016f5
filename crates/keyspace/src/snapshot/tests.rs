//! Snapshots are compared with a copy that was made at the same moment, with random writes of every kind in
//! between.

use super::*;
use crate::{Changed, HashValue, Key, Str, StrRef, Value, ValueRef};
use std::collections::BTreeMap;

pub(crate) const DATABASES: usize = 3;
pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
const LATER_MS: i64 = NOW_MS + 1_000_000;

/// For each key: its value as text, and its expiry.
type Twin = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<i64>)>;

fn over() -> Arc<AtomicU16> {
    Arc::default()
}

pub(crate) fn words(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Str(s) => s.bytes(&mut Default::default()).to_vec(),
        ValueRef::Hash(hash) => {
            let mut fields: Vec<_> =
                hash.iter().map(|(field, value)| [&field[..], b"=", &value[..], b";"].concat()).collect();
            fields.sort();
            fields.concat()
        }
        other => panic!("not made here: {other:?}"),
    }
}

/// All data, read without a snapshot.
fn all(keyspace: &Keyspace) -> Twin {
    let mut twin = Twin::new();
    for db in 0..2 * DATABASES {
        for shard in 0..keyspace.shards() {
            keyspace.for_each_in_shard(shard, db, NOW_MS, &mut |record| {
                let value = (words(record.value()), record.expire_at_ms());
                assert!(twin.insert((db, record.key().to_vec()), value).is_none());
            });
        }
    }
    twin
}

/// Adds the records of a snapshot to `twin`, and gives their memory back. No record may come twice.
fn add(twin: &mut Twin, snapshot: &Snapshot<'_>, saved: &mut Vec<SnapshotRecords>) {
    for part in saved.drain(..) {
        let db = part.db() + usize::from(part.is_system()) * DATABASES;
        for record in part.records() {
            let value = (words(record.value()), record.expire_at_ms());
            let twice = twin.insert((db, record.key().to_vec()), value);
            assert!(twice.is_none(), "a record is there twice");
        }
        snapshot.take_back(part);
    }
}

pub(crate) fn write(keyspace: &Keyspace, rng: &mut fastrand::Rng) {
    let (db, of) = (rng.usize(..DATABASES), rng.usize(..5) / 4 * DATABASES);
    let name = match rng.usize(..20) {
        0 => format!("long:{:0>700}", rng.usize(..40)),
        _ => format!("key:{}", rng.usize(..3000)),
    };
    let key: Key<'_> = keyspace.key(name.as_bytes());
    let mut txn = keyspace.lock(&[key.hash], NOW_MS);
    let mut view = txn.db(db + of);
    let text = format!("{}{}", rng.u32(..), "x".repeat(if rng.usize(..30) == 0 { 600 } else { 3 }));
    let expiry = [None, Some(LATER_MS), Some(LATER_MS + 5)][rng.usize(..3)];
    match rng.usize(..100) {
        0..45 => _ = view.set_str(&key, StrRef::of(text.as_bytes()), expiry),
        45..55 => _ = view.delete(&key),
        55..60 => _ = view.set_expiry(&key, expiry),
        60..70 => {
            let edit = |blob: &mut strand_chain::Blob| -> Result<(), ()> {
                *blob = [&blob[..], b"+"].concat().as_slice().into();
                Ok(())
            };
            let _ = view.edit_str(&key, edit);
        }
        70..90 => {
            let limits = keyspace.settings();
            let fields = if rng.usize(..40) == 0 { 900 } else { 2 };
            let at = rng.usize(..2000);
            let _ = view.change_or_create(&key, |hash: &mut HashValue| {
                for i in 0..fields {
                    hash.set(format!("f{}", at + i).as_bytes(), text.as_bytes(), limits);
                }
                ((), Changed::Yes)
            });
        }
        90..96 => {
            if let Some(taken) = view.remove(&key) {
                view.put_back(&key, taken);
            }
        }
        _ => {
            drop(txn);
            match rng.usize(..20) {
                0 => drop(keyspace.flush(db)),
                1 => keyspace.swap(db, rng.usize(..DATABASES)),
                _ => _ = keyspace.expire_slice(NOW_MS, 1000),
            }
        }
    }
}

#[test]
fn snapshot_shows_one_moment_under_random_writes() {
    for (seed, shards, writes_per_step) in [(1, 4, 3), (2, 1, 40), (3, 8, 300), (4, 2, 2000), (5, 4, 0)] {
        let keyspace = Keyspace::new(shards, DATABASES, [seed, 2, 3, 4]);
        let rng = &mut fastrand::Rng::with_seed(seed);
        for round in 0..6 {
            (0..8000).for_each(|_| write(&keyspace, rng));
            let want = all(&keyspace);
            let mut snapshot = keyspace.snapshot(64 << 10, over());
            let counted: usize = snapshot.databases().values().map(|keys| keys.all).sum();
            assert_eq!(counted, want.keys().filter(|(db, _)| *db < DATABASES).count());
            let (mut have, mut slice) = (Twin::new(), Vec::new());
            (0..writes_per_step).for_each(|_| write(&keyspace, rng));
            while snapshot.next(&mut slice) {
                add(&mut have, &snapshot, &mut slice);
                (0..writes_per_step).for_each(|_| write(&keyspace, rng));
            }
            assert!(slice.is_empty());
            assert!(have == want, "seed {seed}, round {round}: {} and {}", have.len(), want.len());
            let load = snapshot.load().clone();
            drop(snapshot);
            assert_eq!(load.bytes(), 0);
        }
    }
}

#[test]
fn memory_of_taken_records_is_used_again() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    let fill = |keys: std::ops::Range<u32>| {
        for i in keys {
            let name = i.to_le_bytes();
            let key = keyspace.key(&name);
            keyspace.lock(&[key.hash], NOW_MS).db(0).set_str(&key, StrRef::of(&[b'a'; 100]), None);
        }
    };
    fill(0..3_000);
    let want = all(&keyspace);
    let spare_parts = |snapshot: &Snapshot<'_>| snapshot.load.spare_parts.lock().len();
    // The budget is small, so the reader takes the kept records before it walks on.
    let (mut snapshot, mut slice, mut have) = (keyspace.snapshot(1 << 10, over()), Vec::new(), Twin::new());
    fill(0..2_000);
    assert!(snapshot.next(&mut slice));
    add(&mut have, &snapshot, &mut slice);
    let spare = spare_parts(&snapshot);
    assert!(spare > 2, "{spare} parts");
    fill(2_000..3_000);
    assert!(spare_parts(&snapshot) < spare);
    while snapshot.next(&mut slice) {
        add(&mut have, &snapshot, &mut slice);
    }
    assert!(have == want);
    let load = snapshot.load().clone();
    drop(snapshot);
    assert!(load.spare_parts.lock().is_empty());
}

#[test]
fn several_snapshots_are_each_of_their_own_moment() {
    for seed in 1..4 {
        let keyspace = Keyspace::new(4, DATABASES, [seed, 2, 3, 4]);
        let rng = &mut fastrand::Rng::with_seed(seed);
        (0..8000).for_each(|_| write(&keyspace, rng));
        let (mut open, mut slice, mut done) = (Vec::new(), Vec::new(), 0);
        while done < 12 {
            if open.len() < 3 && rng.usize(..10) == 0 {
                open.push((keyspace.snapshot(64 << 10, over()), all(&keyspace), Twin::new()));
            }
            (0..rng.usize(..100)).for_each(|_| write(&keyspace, rng));
            if open.is_empty() {
                continue;
            }
            let at = rng.usize(..open.len());
            let (snapshot, want, have) = &mut open[at];
            if snapshot.next(&mut slice) {
                add(have, snapshot, &mut slice);
                continue;
            }
            assert!(have == want, "seed {seed}: {} and {}", have.len(), want.len());
            open.swap_remove(at);
            done += 1;
        }
        drop(open);
        assert!(keyspace.shards.iter().all(|shard| shard.lock.lock().keepers.is_none()));
    }
}

#[test]
fn alert_is_set_while_any_snapshot_is_over_budget() {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let mut put = |i: usize| {
        let name = format!("key:{i}");
        let key = keyspace.key(name.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(0).set_str(&key, StrRef::of(b"value"), None);
    };
    (0..100).for_each(&mut put);
    let over = over();
    let (first, second) = (keyspace.snapshot(1, over.clone()), keyspace.snapshot(1, over.clone()));
    (0..100).for_each(&mut put);
    assert_eq!(over.load(Relaxed), SNAPSHOT_OVER);
    drop(first);
    assert_eq!(over.load(Relaxed), SNAPSHOT_OVER, "the second still is");
    drop(second);
    assert_eq!(over.load(Relaxed), 0);
}

#[test]
fn kept_records_are_counted_and_set_the_alert_over_budget() {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let put = |i: usize| {
        let name = format!("key:{i}");
        let key = keyspace.key(name.as_bytes());
        let value = Value::Str(Str::Raw(vec![b'v'; 1000].as_slice().into()));
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, value, None);
    };
    (0..1000).for_each(put);
    let over = over();
    let mut snapshot = keyspace.snapshot(100_000, over.clone());
    (0..50).for_each(put);
    assert!(over.load(Relaxed) == 0 && snapshot.load().bytes() > 50_000);
    (0..50).for_each(put);
    assert!(snapshot.load().bytes() < 70_000, "each is kept once");
    (1000..2000).for_each(put);
    assert!(snapshot.load().bytes() < 110_000, "what is new is not kept");
    (50..100).for_each(put);
    assert!(over.load(Relaxed) == SNAPSHOT_OVER);
    let (mut slice, mut records) = (Vec::new(), 0);
    while snapshot.next(&mut slice) {
        records += slice.drain(..).map(|part: SnapshotRecords| part.records().count()).sum::<usize>();
    }
    assert_eq!(records, 1000);
    assert!(over.load(Relaxed) == 0);
    assert_eq!(snapshot.load().bytes(), 0);
    assert!(snapshot.load().peak_bytes() > 100_000);
    (0..200).for_each(put);
    assert_eq!(snapshot.load().bytes(), 0, "all is read");
    drop(snapshot);
    let snapshot = keyspace.snapshot(1, over.clone());
    (0..50).for_each(put);
    assert!(over.load(Relaxed) == SNAPSHOT_OVER);
    drop(snapshot);
    assert!(over.load(Relaxed) == 0, "nobody waits for a snapshot that was given up");
}

#[test]
fn changes_are_counted() {
    let keyspace = Keyspace::new(2, DATABASES, [1, 2, 3, 4]);
    let key = keyspace.key(b"key");
    let db = |act: &dyn Fn(&mut crate::Db<'_, '_>)| act(&mut keyspace.lock(&[key.hash], NOW_MS).db(1));
    db(&|db| _ = db.set_str(&key, StrRef::of(b"1"), None));
    db(&|db| _ = db.get(&key));
    assert_eq!(keyspace.changes(), 1);
    db(&|db| _ = db.delete(&key));
    db(&|db| _ = db.delete(&key));
    assert_eq!(keyspace.changes(), 2);
    db(&|db| _ = db.set_str(&key, StrRef::of(b"1"), None));
    assert_eq!(keyspace.snapshot(0, over()).changes(), 3);
    drop(keyspace.flush(1));
    assert_eq!(keyspace.changes(), 4);
}
