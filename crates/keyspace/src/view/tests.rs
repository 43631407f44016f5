//! Views are compared with the data as of their moments, with random writes of every kind in between.

use super::*;
use crate::snapshot::tests::{DATABASES, NOW_MS, words, write};
use crate::{KeyHash, Str, StrRef};

pub(crate) type InWords = Option<(Vec<u8>, Option<i64>)>;

pub(crate) fn in_words(viewed: Option<Viewed>) -> InWords {
    viewed.map(|(value, expire_at_ms)| (words(value.view()), expire_at_ms))
}

pub(crate) fn now(keyspace: &Keyspace, db: usize, key: &Key<'_>) -> InWords {
    let mut txn = keyspace.lock(&[key.hash], NOW_MS);
    in_words(txn.db(db).peek(key).map(|record| viewed(&record)))
}

#[test]
fn view_shows_one_moment_under_random_writes() {
    for (seed, shards) in [(1, 4), (2, 1), (3, 8)] {
        let keyspace = Keyspace::new(shards, DATABASES, [seed, 2, 3, 4]);
        let rng = &mut fastrand::Rng::with_seed(seed);
        (0..8000).for_each(|_| write(&keyspace, rng));
        for round in 0..12 {
            let db = rng.usize(..DATABASES);
            // Some keys exist, some do not, and some are named twice.
            let names: Vec<String> = (0..200).map(|_| format!("key:{}", rng.usize(..4000))).collect();
            let keys: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name.as_bytes())).collect();
            let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
            let wanted = keyspace.view_keys(&keys);
            let want: Vec<InWords> = keys.iter().map(|key| now(&keyspace, db, key)).collect();
            let view = keyspace.lock(&hashes, NOW_MS).view(db, wanted);
            for (at, key) in keys.iter().enumerate() {
                (0..rng.usize(..40)).for_each(|_| write(&keyspace, rng));
                let have = in_words(view.read(&mut keyspace.lock(&[key.hash], NOW_MS), key));
                assert!(have == want[at], "seed {seed}, round {round}, key {}", names[at]);
            }
            drop(view);
            assert!(keyspace.shards.iter().all(|shard| shard.lock.lock().keepers.is_none()));
        }
    }
}

#[test]
fn view_keeps_a_key_that_active_expiry_removes() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    let until_ms = NOW_MS + 10;
    let put = |name: &str, expire_at_ms| {
        let key = keyspace.key(name.as_bytes());
        let value = Value::Str(Str::Raw(name.as_bytes().into()));
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, value, expire_at_ms);
    };
    for (name, expire_at_ms) in [("mine", Some(until_ms)), ("other", Some(until_ms)), ("stays", None)] {
        put(name, expire_at_ms);
    }
    let keys = [keyspace.key(b"mine"), keyspace.key(b"stays")];
    let view = keyspace.lock_shard(0, NOW_MS).view(0, keyspace.view_keys(&keys));
    while keyspace.expire_slice(until_ms, 1000).has_more {}
    assert_eq!(keyspace.lock_shard(0, NOW_MS).db(0).peek(&keyspace.key(b"other")).map(|_| ()), None);
    assert_eq!(now(&keyspace, 0, &keys[0]), None, "it was removed");
    let read = |at: usize| in_words(view.read(&mut keyspace.lock_shard(0, NOW_MS), &keys[at]));
    assert_eq!(read(0), Some((b"mine".to_vec(), Some(until_ms))));
    assert_eq!(read(1), Some((b"stays".to_vec(), None)));
    assert!(!view.is_unchanged(&keyspace.lock_shard(0, NOW_MS)));
    drop(view);
    // Without a view, expired records go together, and the counts are right in both cases.
    put("mine", Some(until_ms));
    while keyspace.expire_slice(until_ms, 1000).has_more {}
    assert_eq!((keyspace.len(0), keyspace.expiring_len(0)), (1, 0));
}

#[test]
fn view_keeps_each_written_key_of_its_own_once() {
    let keyspace = Keyspace::new(1, DATABASES, [1, 2, 3, 4]);
    let put = |name: &str, text: &[u8]| {
        let key = keyspace.key(name.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, Value::Str(Str::Raw(text.into())), None);
    };
    put("mine", b"before");
    let keys = [keyspace.key(b"mine"), keyspace.key(b"new")];
    let view = keyspace.lock_shard(0, NOW_MS).view(0, keyspace.view_keys(&keys));
    (0..1000).for_each(|i| put(&format!("other:{i}"), b"x"));
    put("mine", b"after");
    put("mine", b"later");
    put("new", b"is there");
    let kept = || keyspace.shards[0].lock.lock().keepers.as_ref().map(|keepers| keepers.views[0].kept.len());
    assert_eq!(kept(), Some(2));
    let read = |at: usize| in_words(view.read(&mut keyspace.lock_shard(0, NOW_MS), &keys[at]));
    assert_eq!(read(0), Some((b"before".to_vec(), None)));
    assert_eq!(read(1), None);
    drop(keyspace.flush(0));
    assert_eq!((read(0), read(1)), (Some((b"before".to_vec(), None)), None));
    drop(view);
    assert_eq!(kept(), None);
    assert!(!keyspace.lock_shard(0, NOW_MS).db(0).set_str(&keys[0], StrRef::of(b"1"), None));
}

#[test]
fn views_of_all_keys_share_one_bound_and_give_their_bytes_back() {
    const VALUE_BYTES: usize = 1 << 20;
    let keyspace = Keyspace::new(4, DATABASES, [1, 2, 3, 4]);
    let names: Vec<String> = (0..2 * KEPT_BYTES_MAX / VALUE_BYTES).map(|i| format!("key:{i}")).collect();
    let put = |name: &str| {
        let (key, text) = (keyspace.key(name.as_bytes()), vec![b'x'; VALUE_BYTES]);
        let value = Value::Str(Str::from_slice(&text));
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, value, None);
    };
    names.iter().for_each(|name| put(name));
    let kept_bytes = || keyspace.view_bytes.load(Relaxed);
    let is_lost = |view: &View<'_>| {
        names.iter().any(|name| {
            let key = keyspace.key(name.as_bytes());
            view.is_lost(&mut keyspace.lock(&[key.hash], NOW_MS), &key)
        })
    };
    let views = [0, 1].map(|_| keyspace.lock_all(NOW_MS).view_of_held(0));
    names[..KEPT_BYTES_MAX / VALUE_BYTES / 4].iter().for_each(|name| put(name));
    assert!(!views.iter().any(is_lost), "half of the bytes are kept");
    assert!(kept_bytes() > KEPT_BYTES_MAX / 2, "{} bytes", kept_bytes());
    names.iter().for_each(|name| put(name));
    assert!(views.iter().all(is_lost));
    assert!(kept_bytes() <= KEPT_BYTES_MAX, "{} bytes", kept_bytes());
    drop(views);
    assert_eq!(kept_bytes(), 0);
}
