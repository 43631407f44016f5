//! SORT and SORT_RO on the lane.
//!
//! The value is cloned, so no shard is locked while the clone is sorted. If BY and GET read no keys, the result is
//! stored if the value has not changed since ([`optimistic`]). If they read few keys, these are read together with
//! the value at one moment. If they read many keys, these are read in slices, so that the result may be of several
//! moments.

use super::{Keys, LockedKeys, SLICE, SortOptions, Source, list, read, reply, store};
use crate::call::LaneCall;
use crate::cost::LONG_ELEMENTS;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::Text;
use crate::run::end;
use strand_chain::Chain;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Collection, Db, Key, KeyHash, ListValue, Lookups, RecordRef, Value};

/// Maximum number of attempts to read all keys at one moment. An attempt fails when the value was written or a
/// shard was busy. After the last one the call reads its keys in slices.
const TRIES: usize = 4;
/// Number of elements that one effect stores.
const ELEMENTS_PER_EFFECT: usize = 4096;

/// A SORT of many elements, or one whose shards somebody else holds.
pub(crate) fn sort_long(call: &mut LaneCall<'_>) {
    long(call, true);
}

/// A SORT_RO of many elements, or one whose shards somebody else holds.
pub(crate) fn sort_ro_long(call: &mut LaneCall<'_>) {
    long(call, false);
}

fn long(call: &mut LaneCall<'_>, stores: bool) {
    let options = match SortOptions::parse(call.args, stores, call.rights) {
        Ok(options) => options,
        Err(text) => return call.reply.error(&text),
    };
    let key = call.keyspace.key(call.args.at(1));
    let destination = options.store.map(|at| call.keyspace.key(call.args.at(at)));
    if let (false, Some(destination)) = (options.reads_keys(), destination) {
        let mut storing = StoreWrite { options: &options, key, destination };
        let stored = optimistic::apply(call, &[key.hash, destination.hash], &mut storing);
        return match stored {
            Ok(list) => call.reply.int(list.len() as i64),
            Err(text) => call.reply.error(&text),
        };
    }
    let mut out = Chain::new();
    let done = run(call, &options, &key, destination.as_ref(), &mut out);
    match done {
        Ok(lookups) => {
            call.lookups = lookups;
            call.reply.raw(out);
        }
        Err(text) => call.reply.error(&text),
    }
}

/// Sorts, and writes the reply to `out`.
fn run(
    call: &LaneCall<'_>,
    options: &SortOptions<'_>,
    key: &Key<'_>,
    destination: Option<&Key<'_>>,
    out: &mut Chain,
) -> Result<Lookups, Text> {
    let mut txn = lock(call, &[key.hash]);
    let mut value = read(&mut txn.db(call.db), key)?;
    let mut lookups = txn.lookups();
    drop(txn);
    for _ in 0..TRIES {
        let Some(source) = value.as_ref().and_then(|value| Source::of(value.view())) else { break };
        if !options.reads_keys() || options.cost(&source) > LONG_ELEMENTS {
            break;
        }
        let mut hashes = options.hashes(&source, call.keyspace);
        hashes.extend([Some(key), destination].into_iter().flatten().map(|key| key.hash));
        let mut txn = lock(call, &hashes);
        let now = read(&mut txn.db(call.db), key)?;
        if is_same(value.as_ref(), now.as_ref()) {
            let mut keys = LockedKeys { keyspace: call.keyspace, db: txn.db(call.db) };
            if let Some(list) = finish(call, options, value.as_ref(), destination, &mut keys, out)? {
                store(&mut txn.db(call.db), destination.expect("a list is stored"), list);
                end(&mut txn, call.db, call.args);
            }
            return Ok(txn.lookups());
        }
        value = now;
    }
    let mut keys = SlicedKeys { call, stores: destination.is_some(), lookups: Lookups::default() };
    if let (Some(list), Some(destination)) =
        (finish(call, options, value.as_ref(), destination, &mut keys, out)?, destination)
    {
        let mut txn = call.lock(&[destination.hash]);
        let mut db = txn.db(call.db);
        let copy = if db.is_recorded() { Some(list.clone()) } else { None };
        store(&mut db, destination, list);
        if let Some(list) = copy {
            record_stored_list(&mut db, destination, &list);
        }
    }
    lookups.hits += keys.lookups.hits;
    lookups.misses += keys.lookups.misses;
    Ok(lookups)
}

/// Records the effect of storing a list that was read at several moments. The effect is the list itself.
fn record_stored_list(db: &mut Db<'_, '_>, key: &Key<'_>, list: &ListValue) {
    db.effect(&[b"DEL".into(), key.bytes.into()]);
    let elements: Vec<Vec<u8>> = list.iter(0).map(|element| element.to_vec()).collect();
    for elements in elements.chunks(ELEMENTS_PER_EFFECT) {
        let elements: Vec<Arg<'_>> = elements.iter().map(|element| Arg::Bytes(element)).collect();
        db.effect(&[&[b"RPUSH".into(), key.bytes.into()], &elements[..]].concat());
    }
}

fn lock<'a>(call: &LaneCall<'a>, hashes: &[KeyHash]) -> crate::call::LaneTxn<'a> {
    let mut txn = call.lock(hashes);
    txn.set_no_touch(call.no_touch);
    txn
}

/// Writes the reply. With STORE, returns the list to store.
fn finish(
    call: &LaneCall<'_>,
    options: &SortOptions<'_>,
    value: Option<&Value>,
    destination: Option<&Key<'_>>,
    keys: &mut dyn Keys,
    out: &mut Chain,
) -> Result<Option<ListValue>, Text> {
    let mut part = call.reply.part(out);
    if destination.is_none() {
        reply(options, value, keys, &mut part)?;
        return Ok(None);
    }
    let list = list(options, value, keys)?;
    part.int(list.len() as i64);
    Ok(Some(list))
}

/// True when the value was not written between the read of `before` and the read of `now`.
fn is_same(before: Option<&Value>, now: Option<&Value>) -> bool {
    match (before, now) {
        (Some(Value::List(a)), Some(Value::List(b))) => a.is_same(b),
        (Some(Value::Set(a)), Some(Value::Set(b))) => a.is_same(b),
        (Some(Value::ZSet(a)), Some(Value::ZSet(b))) => a.is_same(b),
        (None, None) => true,
        _ => false,
    }
}

/// Access to keys in slices. All keys of a slice are read at one moment.
struct SlicedKeys<'c, 'a> {
    call: &'c LaneCall<'a>,
    stores: bool,
    lookups: Lookups,
}

impl Keys for SlicedKeys<'_, '_> {
    fn visit_records(&mut self, names: &[Vec<u8>], visit: &mut dyn FnMut(Option<RecordRef<'_>>)) {
        for names in names.chunks(SLICE) {
            let keys: Vec<Key<'_>> = names.iter().map(|name| self.call.keyspace.key(name)).collect();
            let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
            self.call.keyspace.prefetch(self.call.db, &keys);
            let mut txn = lock(self.call, &hashes);
            let mut db = txn.db(self.call.db);
            keys.iter().for_each(|key| visit(db.get(key)));
            let lookups = txn.lookups();
            self.lookups.hits += lookups.hits;
            self.lookups.misses += lookups.misses;
        }
    }
    fn pause(&mut self) -> bool {
        self.call.pause();
        // A call with STORE runs to its end.
        self.stores || !self.call.cancelled()
    }
}

/// Access to no keys, for a call whose BY and GET read none.
struct NoKeys<'p> {
    pause: &'p dyn Fn(),
}

impl Keys for NoKeys<'_> {
    fn visit_records(&mut self, _: &[Vec<u8>], _: &mut dyn FnMut(Option<RecordRef<'_>>)) {}
    fn pause(&mut self) -> bool {
        (self.pause)();
        true
    }
}

/// SORT with STORE that reads no key except that of the value.
struct StoreWrite<'o, 'a> {
    options: &'o SortOptions<'a>,
    key: Key<'a>,
    destination: Key<'a>,
}

impl OptimisticWrite for StoreWrite<'_, '_> {
    type Source = Option<Value>;
    type Outcome = ListValue;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<Value>, Text> {
        read(db, &self.key)
    }
    fn is_same(&self, before: &Option<Value>, now: &Option<Value>) -> bool {
        is_same(before.as_ref(), now.as_ref())
    }
    fn compute(&mut self, value: &Option<Value>, pause: &dyn Fn()) -> Result<ListValue, Text> {
        list(self.options, value.as_ref(), &mut NoKeys { pause })
    }
    fn store(&self, db: &mut Db<'_, '_>, list: &ListValue) {
        store(db, &self.destination, list.clone());
    }
}
