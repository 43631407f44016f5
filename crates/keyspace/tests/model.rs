//! The keyspace compared with a model of BTreeMaps: random operations on a few databases with a moving clock, and
//! scans that must not miss a key that exists throughout.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use strand_keyspace::{Key, Keyspace, RecordRef, RemovedRecord, Str, Value, ValueRef};

const DATABASES: usize = 3;
const START_MS: i64 = 1_700_000_000_000;

#[derive(Debug, Clone)]
enum Op {
    Set(usize, u16, Option<i64>),
    Edit(usize, u16),
    Remove(usize, u16),
    Rename(usize, u16, u16),
    Expiry(usize, u16, Option<i64>),
    Read(usize, u16),
    Wait(i64),
    Sweep(usize),
    Scan(usize),
    Random(usize),
    Flush(usize),
    Swap(usize, usize),
    Fill(usize, u16),
    Drain(usize, u16),
}

fn op() -> impl Strategy<Value = Op> {
    let db = || 0..DATABASES;
    let key = || 0..300u16;
    let ttl = || prop::option::weighted(0.4, -5..200i64);
    prop_oneof![
        20 => (db(), key(), ttl()).prop_map(|(d, k, t)| Op::Set(d, k, t)),
        6 => (db(), key()).prop_map(|(d, k)| Op::Edit(d, k)),
        8 => (db(), key()).prop_map(|(d, k)| Op::Remove(d, k)),
        4 => (db(), key(), key()).prop_map(|(d, a, b)| Op::Rename(d, a, b)),
        6 => (db(), key(), ttl()).prop_map(|(d, k, t)| Op::Expiry(d, k, t)),
        6 => (db(), key()).prop_map(|(d, k)| Op::Read(d, k)),
        4 => (1..60i64).prop_map(Op::Wait),
        3 => (0..400usize).prop_map(Op::Sweep),
        12 => (1..50usize).prop_map(Op::Scan),
        3 => db().prop_map(Op::Random),
        1 => db().prop_map(Op::Flush),
        1 => (db(), db()).prop_map(|(a, b)| Op::Swap(a, b)),
        2 => (db(), 1..1500u16).prop_map(|(d, n)| Op::Fill(d, n)),
        2 => (db(), 1..1500u16).prop_map(|(d, n)| Op::Drain(d, n)),
    ]
}

/// The value and the expiry of each key.
type Twin = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

/// A scan's cursor, the keys that exist since its start, and the keys that it showed.
type Scan = (u64, BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>);

struct World {
    keyspace: Keyspace,
    /// The databases, then their system companions.
    twins: Vec<Twin>,
    /// For each database, the time at which expired keys were last removed from the model.
    clean_ms: Vec<i64>,
    now_ms: i64,
    step: i64,
    rng: fastrand::Rng,
    /// A running scan of database 0.
    scan: Option<Scan>,
    /// Keys of database 0 that were touched since they were last taken, according to the model; `true`: any
    /// key may have changed.
    touched: (BTreeSet<Vec<u8>>, bool),
}

fn name(key: u16) -> Vec<u8> {
    // Some keys have the tracked prefix, and some are too long for a segment.
    if key.is_multiple_of(50) {
        return format!("long:{key:0>600}").into_bytes();
    }
    if key.is_multiple_of(3) { format!("doc:{key}").into_bytes() } else { format!("key:{key}").into_bytes() }
}

impl World {
    fn new(shards: usize) -> World {
        let keyspace = Keyspace::new(shards, DATABASES, [3, 5, 7, 11]);
        keyspace.track(&[b"doc:".to_vec()]);
        World {
            keyspace,
            twins: vec![Twin::new(); DATABASES * 2],
            clean_ms: vec![0; DATABASES * 2],
            now_ms: START_MS,
            step: 0,
            rng: fastrand::Rng::with_seed(5),
            scan: None,
            touched: (BTreeSet::new(), false),
        }
    }
    fn with<T>(
        &mut self,
        db: usize,
        key: u16,
        act: impl FnOnce(&mut strand_keyspace::Db<'_, '_>, &Key<'_>) -> T,
    ) -> T {
        let name = name(key);
        let key = self.keyspace.key(&name);
        let mut locked = self.keyspace.lock(&[key.hash], self.now_ms);
        let mut db = locked.db(db);
        act(&mut db, &key)
    }
    /// The model of a database, after its expired keys are removed.
    fn twin(&mut self, db: usize) -> &mut Twin {
        let now_ms = self.now_ms;
        if self.clean_ms[db] != now_ms {
            self.twins[db].retain(|_, (_, at)| at.is_none_or(|at| at > now_ms));
            self.clean_ms[db] = now_ms;
        }
        &mut self.twins[db]
    }
    fn gone(&mut self, db: usize, key: &[u8]) {
        if let (0, Some((_, there, _))) = (db, &mut self.scan) {
            there.remove(key);
        }
    }
    fn note(&mut self, db: usize, key: &[u8]) {
        if db == 0 && key.starts_with(b"doc:") {
            self.touched.0.insert(key.to_vec());
        }
    }
    fn set(&mut self, db: usize, key: u16, ttl: Option<i64>) {
        // Use integers, short strings, strings about as long as a segment takes, and longer strings.
        let len = [0, 0, 3, 60, 510 + self.step as usize % 5, 5000][self.rng.usize(..6)];
        let mut value = self.step.to_string().into_bytes();
        value.resize(value.len().max(len), b'-');
        let at = ttl.map(|t| self.now_ms + t);
        let name = name(key);
        let replaced = self.twin(db).insert(name.clone(), (value.clone(), at)).is_some();
        self.note(db, &name);
        if at.is_some_and(|at| at <= self.now_ms) {
            self.gone(db, &name);
            self.clean_ms[db] = 0;
        }
        let value = Value::Str(Str::from_slice(&value));
        assert_eq!(self.with(db, key, |db, key| db.insert(key, value, at)), replaced);
    }
    fn remove(&mut self, db: usize, key: u16) -> Option<RemovedRecord> {
        let name = name(key);
        let was = self.twin(db).remove(&name);
        if was.is_some() {
            self.note(db, &name);
        }
        self.gone(db, &name);
        let record = self.with(db, key, |db, key| db.remove(key));
        assert_eq!(record.as_ref().map(|r| text_of(r.value.view())), was.as_ref().map(|w| w.0.clone()));
        assert_eq!(record.as_ref().map(|r| r.expire_at_ms), was.as_ref().map(|w| w.1));
        record
    }
    fn run(&mut self, op: Op) {
        self.step += 1;
        match op {
            Op::Set(db, key, ttl) => self.set(db, key, ttl),
            Op::Edit(db, key) => {
                let name = name(key);
                let edited =
                    self.with(db, key, |db, key| db.edit_str(key, |b| b.try_extend_from_slice(b"x")));
                let edited = edited.expect("all are strings").is_some();
                let was = self.twin(db).get_mut(&name).map(|w| w.0.push(b'x')).is_some();
                assert_eq!(edited, was);
                if was {
                    self.note(db, &name);
                }
            }
            Op::Remove(db, key) => drop(self.remove(db, key)),
            Op::Rename(db, from, to) => {
                let Some(record) = self.remove(db, from) else { return };
                let (at, bytes) = (record.expire_at_ms, text_of(record.value.view()));
                let to_name = name(to);
                self.twin(db).insert(to_name.clone(), (bytes, at));
                self.note(db, &to_name);
                self.with(db, to, |db, key| db.insert(key, record.value, at));
            }
            Op::Expiry(db, key, ttl) => {
                let (name, at) = (name(key), ttl.map(|t| self.now_ms + t));
                let was = self.twin(db).get_mut(&name).map(|w| w.1 = at).is_some();
                if was {
                    self.note(db, &name);
                }
                assert_eq!(self.with(db, key, |db, key| db.set_expiry(key, at)), was);
                if at.is_some_and(|at| at <= self.now_ms) {
                    self.clean_ms[db] = 0;
                    self.gone(db, &name);
                }
            }
            Op::Read(db, key) => {
                let read = self.with(db, key, |db, key| {
                    let peeked = db.peek(key).map(text);
                    assert_eq!(db.get(key).map(text), peeked);
                    peeked
                });
                assert_eq!(read, self.twin(db).get(&name(key)).map(|w| w.0.clone()));
            }
            Op::Wait(ms) => {
                self.now_ms += ms;
                let now_ms = self.now_ms;
                if let Some((_, there, _)) = &mut self.scan {
                    there.retain(|k| self.twins[0].get(k).is_some_and(|w| w.1.is_none_or(|at| at > now_ms)));
                }
            }
            Op::Sweep(keys_max) => {
                let (before, total) = (self.lens(), self.keyspace.expired_total());
                let removed = self.keyspace.expire_slice(self.now_ms, keys_max).removed;
                assert_eq!(before - self.lens(), removed);
                assert_eq!(self.keyspace.expired_total() - total, removed as u64);
                if keys_max >= 100_000 {
                    (0..2 * DATABASES).for_each(|db| assert_eq!(self.keyspace.len(db), self.twin(db).len()));
                }
            }
            Op::Scan(count) => {
                let now_ms = self.now_ms;
                let start = || None;
                let (cursor, there, mut seen) = match self.scan.take().or_else(start) {
                    Some(scan) => scan,
                    None => (0, self.twin(0).keys().cloned().collect(), BTreeSet::new()),
                };
                let twin = self.twin(0).clone();
                let next = self.keyspace.scan(0, cursor, count, now_ms, &mut |r| {
                    assert!(twin.contains_key(r.key()), "a key that is not there");
                    seen.insert(r.key().to_vec());
                });
                match next {
                    0 => assert!(there.is_subset(&seen), "missing: {:?}", there.difference(&seen).next()),
                    next => self.scan = Some((next, there, seen)),
                }
            }
            Op::Random(db) => {
                let key = self.keyspace.random_key(db, self.now_ms, &mut self.rng);
                let twin = self.twin(db);
                match key {
                    Some(key) => assert!(twin.contains_key(&key)),
                    None => assert!(twin.len() < 10, "{} keys, and none found", twin.len()),
                }
            }
            Op::Flush(db) => {
                self.keyspace.flush(db);
                self.twins[db].clear();
                self.twins[DATABASES + db].clear();
                self.changed(db == 0);
            }
            Op::Swap(a, b) => {
                self.keyspace.swap(a, b);
                self.twins.swap(a, b);
                self.twins.swap(DATABASES + a, DATABASES + b);
                self.clean_ms.fill(0);
                self.changed(a != b && (a == 0 || b == 0));
            }
            Op::Fill(db, keys) => (0..keys).for_each(|key| self.set(db, 1000 + key, None)),
            Op::Drain(db, keys) => (0..keys).for_each(|key| drop(self.remove(db, 1000 + key))),
        }
    }
    /// Notes that any key of database 0 may have changed, if `it_did`.
    fn changed(&mut self, it_did: bool) {
        if it_did {
            self.scan = None;
            self.touched = (BTreeSet::new(), true);
        }
    }
    fn lens(&self) -> usize {
        (0..2 * DATABASES).map(|db| self.keyspace.len(db)).sum()
    }
    /// Compares all data with the model, and the touched keys with those that the model noted or that expired.
    fn check(&mut self) {
        for db in 0..2 * DATABASES {
            let mut all = Twin::new();
            for shard in 0..self.keyspace.shards() {
                self.keyspace.for_each_in_shard(shard, db, self.now_ms, &mut |r| {
                    let pair = (r.key().to_vec(), (text(r), r.expire_at_ms()));
                    assert!(all.insert(pair.0, pair.1).is_none(), "a key visited twice");
                });
            }
            assert_eq!(&all, self.twin(db));
        }
        while self.keyspace.expire_slice(self.now_ms, 1000).removed > 0 {}
        for db in 0..2 * DATABASES {
            assert_eq!(self.keyspace.len(db), self.twin(db).len());
            let expiring = self.twin(db).values().filter(|w| w.1.is_some()).count();
            assert_eq!(self.keyspace.expiring_len(db), expiring);
            let shape = self.keyspace.shape(db);
            assert!(shape.moved_max <= 896 && shape.segment_items_max <= 896, "{shape:?}");
        }
        let bytes: usize = (0..2 * DATABASES).map(|db| self.keyspace.shape(db).heap_bytes).sum();
        assert_eq!(self.keyspace.data_bytes(), bytes, "what is published is what there is");
        let (mut touched, mut all) = (BTreeSet::new(), false);
        for shard in 0..self.keyspace.shards() {
            let taken = self.keyspace.take_touched(shard);
            let many = taken.keys.len();
            all |= taken.flushed;
            let before = touched.len();
            touched.extend(taken.keys);
            assert_eq!(touched.len() - before, many, "each once");
        }
        assert_eq!(all, self.touched.1);
        assert!(
            self.touched.0.is_subset(&touched),
            "missing: {:?}",
            self.touched.0.difference(&touched).next()
        );
        assert!(touched.iter().all(|k| k.starts_with(b"doc:")));
        assert_eq!(self.keyspace.touched_len(), 0);
        self.touched = (BTreeSet::new(), false);
    }
}

fn text(record: RecordRef<'_>) -> Vec<u8> {
    text_of(record.value())
}
fn text_of(value: ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::Str(s) => s.bytes(&mut [0; 20]).to_vec(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn does_what_maps_do(ops in prop::collection::vec(op(), 1..250), shards in prop_oneof![Just(1usize), Just(2), Just(16)]) {
        let mut world = World::new(shards);
        for op in ops {
            world.run(op);
        }
        world.check();
    }
}

#[test]
fn a_long_run_of_operations_equals_the_model() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut world = World::new(4);
    for i in 0..4000 {
        let op = op().new_tree(&mut runner).expect("no filter rejects").current();
        world.run(op);
        if i % 500 == 0 {
            world.check();
        }
    }
    world.run(Op::Wait(1000));
    world.check();
}
