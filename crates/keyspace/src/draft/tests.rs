//! Transactions on drafts are compared with a twin keyspace on which the same commands run at once, with random
//! writes in between.

use super::*;
use crate::journal::Arg;
use crate::journal::SentArgs;
use crate::snapshot::tests::{DATABASES, NOW_MS, words, write};
use crate::{Changed, HashValue, KeyEvent, KeyHash, Listener, StrRef};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use strand_chain::Chain;

const LATER_MS: i64 = NOW_MS + 1000;
const SET: KeyEvent = KeyEvent::of(crate::Class::String, "set");

/// A database and a key in it.
type Place = (usize, Vec<u8>);
/// The events of one key, each with the arguments of [`Listener::report`].
type Events = Vec<(KeyEvent, bool, u64)>;
/// For each key: its value as text, and its expiry.
type InWords = BTreeMap<Place, (Vec<u8>, Option<i64>)>;

/// A listener that collects the events of each key.
#[derive(Debug, Default)]
struct EventLog(Mutex<BTreeMap<Place, Events>>);

impl Listener for EventLog {
    fn report(&self, db: usize, key: &[u8], event: KeyEvent, changed: bool, by: u64) {
        self.0.lock().entry((db, key.to_vec())).or_default().push((event, changed, by));
    }
    fn report_all(&self) {}
}

fn keyspace(seed: u64) -> (Keyspace, Arc<EventLog>) {
    let (keyspace, events) = (Keyspace::new(4, DATABASES, [seed, 2, 3, 4]), Arc::<EventLog>::default());
    keyspace.set_listener(events.clone());
    keyspace.settings().listens.store(LISTENER, Relaxed);
    (keyspace, events)
}

fn expired(keyspace: &Keyspace) -> u64 {
    keyspace.expired_total.load(Relaxed)
}

fn all(keyspace: &Keyspace) -> InWords {
    let mut all = BTreeMap::new();
    for (db, shard) in (0..DATABASES).flat_map(|db| (0..keyspace.shards()).map(move |shard| (db, shard))) {
        keyspace.for_each_in_shard(shard, db, NOW_MS, &mut |record| {
            all.insert((db, record.key().to_vec()), (words(record.value()), record.expire_at_ms()));
        });
    }
    all
}

/// One command of the transaction. `expires`: some keys get an expiry in the past.
fn command(txn: &mut Txn<'_>, db: usize, name: &str, expires: bool, rng: &mut fastrand::Rng) {
    let key = txn.keyspace().key(name.as_bytes());
    let limits = txn.keyspace().settings();
    txn.begin_command(|| (SET, rng.bool()), true, 7);
    let text = "x".repeat(if rng.usize(..10) == 0 { 600 } else { 3 });
    let mut at = txn.db(db);
    // A key with an expiry in the past expires at its next use, in the transaction or after it.
    let expiry_ms = [None, Some(LATER_MS), Some(NOW_MS - 1)][rng.usize(..2 + usize::from(expires))];
    match rng.usize(..8) {
        0 => _ = at.set_str(&key, StrRef::of(text.as_bytes()), expiry_ms),
        1 => _ = at.delete(&key),
        2 => _ = at.set_expiry(&key, expiry_ms),
        3 | 4 => {
            let _ = at.change_or_create(&key, |hash: &mut HashValue| {
                (0..rng.usize(..5)).for_each(|i| _ = hash.set(format!("f{i}").as_bytes(), b"v", limits));
                ((), Changed::Yes)
            });
        }
        5 => _ = at.get(&key),
        6 => {
            let _ = at.change_or_create(&key, |hash: &mut HashValue| {
                (hash.set(b"beside", text.as_bytes(), limits), Changed::Beside)
            });
        }
        _ => {
            if let Some(taken) = at.remove(&key) {
                at.put_back(&key, taken);
            }
        }
    }
    txn.end_command(db, || SentArgs::Args([Arg::Bytes(b"DO"), Arg::Bytes(name.as_bytes())].into_iter()));
}

/// Takes all bytes out of the keyspace's journal.
fn taken(keyspace: &Keyspace) -> Vec<u8> {
    let mut out = Chain::new();
    keyspace.journal().take(&mut out);
    out.slices().flatten().copied().collect()
}

#[test]
fn transaction_on_a_draft_equals_immediate_execution() {
    for seed in 1..5 {
        let [(drafted, events), (twin, twin_events)] = [(); 2].map(|()| keyspace(seed));
        let rng = &mut fastrand::Rng::with_seed(seed);
        // Both keyspaces get the same random writes, because the generators have equal seeds.
        let [mut one, mut other] = [(); 2].map(|()| fastrand::Rng::with_seed(seed));
        for round in 0..20 {
            // A flush takes keys that would have expired, and active expiry may find them before. So there are either
            // keys that expire, or other writes before the promises are carried out.
            let expires = round % 2 == 0;
            for _ in 0..200 {
                write(&drafted, &mut one);
                write(&twin, &mut other);
            }
            let db = rng.usize(..DATABASES);
            let names: Vec<String> = (0..300).map(|_| format!("key:{}", rng.usize(..400))).collect();
            let keys: Vec<Key<'_>> = names.iter().map(|name| drafted.key(name.as_bytes())).collect();
            let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
            // While the twin was filled, the journal was off, because `write` names no effects.
            [&drafted, &twin].iter().for_each(|keyspace| _ = keyspace.switch_journal(true));
            {
                let mut txn = twin.lock_all(NOW_MS);
                let rng = &mut fastrand::Rng::with_seed(round);
                names.iter().for_each(|name| command(&mut txn, db, name, expires, rng));
            }
            let view = drafted.lock_all(NOW_MS).view(db, drafted.view_keys(&keys));
            let draft = drafted.draft([seed, 5, 6, 7]);
            let mut on_draft = draft.lock_shard(0, NOW_MS);
            on_draft.keep_events_of_copies(&drafted);
            let mut known = std::collections::HashSet::new();
            for key in keys.iter().filter(|key| known.insert(key.bytes)) {
                let record = view.read(&mut drafted.lock(&[key.hash], NOW_MS), key);
                if let Some((value, expire_at_ms)) = record {
                    on_draft.db(db).put_copy(&draft.key(key.bytes), value, expire_at_ms);
                }
            }
            let commands = &mut fastrand::Rng::with_seed(round);
            names.iter().for_each(|name| command(&mut on_draft, db, name, expires, commands));
            let promises = on_draft.take_promises(&drafted, db, &|| ());
            let mut txn = drafted.lock(&hashes, NOW_MS);
            assert!(view.is_unchanged(&txn));
            txn.take_effects_of(&mut on_draft);
            txn.promise(db, promises);
            drop(txn);
            [&drafted, &twin].iter().for_each(|keyspace| _ = keyspace.switch_journal(false));
            assert!(!view.is_unchanged(&drafted.lock(&hashes, NOW_MS)), "its own promises are a change");
            on_draft.tell_events_at(&drafted);
            for key in &keys {
                for _ in 0..rng.usize(..2 - usize::from(expires)) {
                    write(&drafted, &mut one);
                    write(&twin, &mut other);
                }
                [&drafted, &twin].iter().for_each(|of| _ = of.lock(&[key.hash], NOW_MS).db(db).peek(key));
            }
            assert!(drafted.shards.iter().all(|shard| !shard.lock.lock().has_promises()));
            assert!(all(&drafted) == all(&twin), "seed {seed}");
            assert_eq!(taken(&drafted), taken(&twin), "seed {seed}");
            // The order of events may differ: for a key that was only looked up, they are reported after the
            // others.
            let logged = std::mem::take(&mut *events.0.lock());
            let twin_events = std::mem::take(&mut *twin_events.0.lock());
            for (key, mut events) in twin_events {
                let mut have = logged.get(&key).cloned().unwrap_or_default();
                let by_words = |event: &(KeyEvent, bool, u64)| (event.0.name, event.1, event.2);
                have.sort_unstable_by_key(by_words);
                events.sort_unstable_by_key(by_words);
                assert_eq!(have, events, "seed {seed}, {key:?}");
            }
            assert_eq!(expired(&drafted), expired(&twin), "seed {seed}");
            assert_eq!(drafted.changes(), twin.changes(), "seed {seed}");
        }
    }
}

#[test]
fn view_detects_written_and_promised_keys() {
    let (keyspace, _) = keyspace(1);
    let [mine, other] = [keyspace.key(b"mine"), keyspace.key(b"other")];
    let view = || keyspace.lock_all(NOW_MS).view(0, keyspace.view_keys(&[mine]));
    let set = |key: &Key<'_>| _ = keyspace.lock_all(NOW_MS).db(0).set_str(key, StrRef::of(b"x"), None);
    let promise = |key: &Key<'_>| {
        let mut promises = Promises::default();
        promises.delete(&keyspace, key);
        keyspace.lock_all(NOW_MS).promise(0, promises);
    };
    for (does, is_unchanged) in [
        (&(|| set(&other)) as &dyn Fn(), true),
        (&|| promise(&other), true),
        (&|| _ = keyspace.lock_all(NOW_MS).db(0).get(&mine).is_some(), true),
        (&|| set(&mine), false),
        (&|| promise(&mine), false),
        (&|| drop(keyspace.flush(0)), false),
        (&|| keyspace.swap(0, 1), false),
        (&|| drop(keyspace.flush(1)), true),
    ] {
        let view = view();
        does();
        assert_eq!(view.is_unchanged(&keyspace.lock_all(NOW_MS)), is_unchanged);
    }
    // Promises made before a view are carried out when it begins, if they are for one of its keys.
    promise(&mine);
    promise(&other);
    assert!(view().is_unchanged(&keyspace.lock_all(NOW_MS)));
    assert!(keyspace.shards.iter().any(|shard| shard.lock.lock().has_promises()), "not the other key");
}
