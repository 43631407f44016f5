//! DEL, UNLINK, MSET, MSETNX and MSETEX of thousands of keys. They are as atomic as with a few keys: the changes of all
//! keys are promised at one moment, and carried out afterwards ([`strand_keyspace::Promises`]).
//!
//! MSETNX and MSETEX with a condition first look at all keys, slice by slice. A [`View`] tells whether another client
//! wrote one of the keys meanwhile. If so, the call looks again.

use crate::call::{LaneCall, LaneTxn};
use crate::families::string::{SetMany, record_set, value_of};
use crate::long::{self, SLICE_ARGUMENTS};
use crate::run::{PreparedEffect, arg};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_keyspace::{Key, KeyEvent, KeyHash, Promises, Txn, View};
use strand_wire::args::Args;

/// Number of tries. If other clients wrote one of the keys during each try, the command locks the shards of all keys
/// and runs.
const TRIES: usize = 4;

/// `DEL key [key ...]`, `UNLINK key [key ...]`
pub(crate) fn remove_all(call: &mut LaneCall<'_>) {
    let keys = keys_at(call, 1, call.args.len() - 1, 1);
    let promises = promises_of(call, &keys, |promises, _, key| promises.delete(call.keyspace, key));
    let effect = PreparedEffect::new(call);
    let removed = promise(call.lock(&hashes_of(&keys)), call, promises, effect);
    carry_out(call, &keys, None);
    call.reply.int(removed.load(Relaxed) as i64);
}

/// `MSET key value [key value ...]`
pub(crate) fn set_all(call: &mut LaneCall<'_>) {
    match SetAll::of_pairs(call, None).and_then(|set| set.run(call)) {
        None => long::run_locked_by_name("mset", call),
        Some(_) => call.reply.ok(),
    }
}

/// `MSETNX key value [key value ...]`
pub(crate) fn set_all_if_none_exists(call: &mut LaneCall<'_>) {
    match SetAll::of_pairs(call, Some(false)).and_then(|set| set.run(call)) {
        None => long::run_locked_by_name("msetnx", call),
        Some(is_set) => call.reply.int(is_set.into()),
    }
}

/// `MSETEX numkeys key value [key value ...] [option ...]`
pub(crate) fn set_all_with_options(call: &mut LaneCall<'_>) {
    let SetMany { pairs, must_exist, keep_ttl, expire_at_ms } = match SetMany::read(call.args, call.now_ms) {
        Ok(read) => read,
        Err(text) => return call.reply.error(&text),
    };
    let keys = keys_at(call, SetMany::KEY, pairs, 2);
    let first_value = SetMany::KEY + 1;
    let set =
        SetAll { args: call.args, keys, first_value, must_exist, keep_ttl, expire_at_ms, is_effect: false };
    match set.run(call) {
        None => long::run_locked_by_name("msetex", call),
        Some(is_set) => call.reply.int(is_set.into()),
    }
}

/// A command that sets many strings.
struct SetAll<'a> {
    args: Args<'a>,
    keys: Vec<Key<'a>>,
    /// The index of the first key's value. Two arguments later is the next key's value.
    first_value: usize,
    /// True: nothing is set if a key is missing. False: nothing is set if a key exists.
    must_exist: Option<bool>,
    /// Each key keeps its expiry.
    keep_ttl: bool,
    /// The expiry of all keys, in unix milliseconds.
    expire_at_ms: Option<i64>,
    /// True when the command as the client sent it is its effect. False when a SET for each key is the effect.
    is_effect: bool,
}

/// What a look at the keys has found.
#[derive(Default)]
struct Found {
    /// The expiry of each key.
    expiries_ms: Vec<Option<i64>>,
    /// The earliest of these expiries.
    first_expiry_ms: Option<i64>,
}

impl<'a> SetAll<'a> {
    /// MSET, or MSETNX. `None` when a value is missing. The command's handler then replies with an error, which is cheap.
    fn of_pairs(call: &LaneCall<'a>, must_exist: Option<bool>) -> Option<SetAll<'a>> {
        let args = call.args;
        if args.len().is_multiple_of(2) {
            return None;
        }
        let keys = keys_at(call, 1, args.len() / 2, 2);
        Some(SetAll {
            args,
            keys,
            first_value: 2,
            must_exist,
            keep_ttl: false,
            expire_at_ms: None,
            is_effect: true,
        })
    }
    /// Sets the strings. `Some(false)`: the condition is not met. `None`: other clients wrote one of the keys during
    /// every try, so nothing is done.
    fn run(&self, call: &LaneCall<'a>) -> Option<bool> {
        let hashes = hashes_of(&self.keys);
        if self.must_exist.is_none() && !self.keep_ttl {
            let (promises, effect) = self.prepare(call, &Found::default());
            promise(call.lock(&hashes), call, promises, effect);
            self.carry_out(call);
            return Some(true);
        }
        for _ in 0..TRIES {
            // This look removes expired records and carries out older promises. Later, both would count as changes of
            // the keys.
            if self.look(call).is_none() {
                return Some(false);
            }
            let wanted = call.keyspace.view_keys(&self.keys);
            let view = call.lock(&hashes).view(call.db, wanted);
            let Some(found) = self.look(call) else { return Some(false) };
            let (promises, effect) = self.prepare(call, &found);
            let txn = call.lock(&hashes);
            if found.is_current(&view, &txn) {
                promise(txn, call, promises, effect);
                drop(view);
                self.carry_out(call);
                return Some(true);
            }
        }
        None
    }
    /// Carries out the promises, and reports the expiries that the command sets.
    fn carry_out(&self, call: &LaneCall<'a>) {
        carry_out(call, &self.keys, self.expire_at_ms);
    }
    /// Looks at all keys, slice by slice. `None` when the condition is not met.
    fn look(&self, call: &LaneCall<'a>) -> Option<Found> {
        let mut found = Found { expiries_ms: Vec::with_capacity(self.keys.len()), first_expiry_ms: None };
        for keys in self.keys.chunks(SLICE_ARGUMENTS) {
            let mut txn = slice(call, keys);
            let mut db = txn.db(call.db);
            for key in keys {
                let record = db.peek(key);
                if self.must_exist.is_some_and(|must_exist| record.is_some() != must_exist) {
                    return None;
                }
                let expire_at_ms = record.and_then(|record| record.expire_at_ms());
                found.expiries_ms.push(expire_at_ms);
                found.first_expiry_ms = [found.first_expiry_ms, expire_at_ms].into_iter().flatten().min();
            }
        }
        Some(found)
    }
    /// The promises, and the effect.
    fn prepare(&self, call: &LaneCall<'a>, found: &Found) -> (Promises, PreparedEffect<'a>) {
        let kept_ms = |nth: usize| if self.keep_ttl { found.expiries_ms[nth] } else { None };
        let set = |promises: &mut Promises, nth: usize, key: &Key<'_>| {
            let value = value_of(self.args, self.first_value + 2 * nth).to_str();
            promises.set(call.keyspace, key, value, self.expire_at_ms.or(kept_ms(nth)));
        };
        let promises = promises_of(call, &self.keys, set);
        if self.is_effect {
            return (promises, PreparedEffect::new(call));
        }
        let (args, db, first_value, keys) = (self.args, call.db, self.first_value, self.keys.clone());
        let expiries_ms: Vec<Option<i64>> =
            (0..keys.len()).map(|nth| self.expire_at_ms.or(kept_ms(nth))).collect();
        let record = move |txn: &mut Txn<'_>| {
            for (nth, (key, expire_at_ms)) in keys.iter().zip(&expiries_ms).enumerate() {
                record_set(&mut txn.db(db), key, arg(args, first_value + 2 * nth), *expire_at_ms);
            }
        };
        (promises, PreparedEffect::with(call, record))
    }
}

impl Found {
    /// True when a new look would have an equal result. `view` began before the look.
    fn is_current<'k>(&self, view: &View<'k>, txn: &Txn<'k>) -> bool {
        view.is_unchanged(txn) && !self.first_expiry_ms.is_some_and(|at_ms| txn.has_passed(at_ms))
    }
}

/// The keys among the arguments: `count` keys, the first at `first`, then each `step`th argument.
fn keys_at<'a>(call: &LaneCall<'a>, first: usize, count: usize, step: usize) -> Vec<Key<'a>> {
    let args = call.args;
    let mut keys = Vec::with_capacity(count);
    for nth in 0..count {
        keys.push(call.keyspace.key(args.at(first + nth * step)));
        pause_at(nth, call);
    }
    keys
}

fn hashes_of(keys: &[Key<'_>]) -> Vec<KeyHash> {
    keys.iter().map(|key| key.hash).collect()
}

/// Promises in which `add` puts the promise of each key. `add` gets the number of the key among the keys, too.
fn promises_of(
    call: &LaneCall<'_>,
    keys: &[Key<'_>],
    add: impl Fn(&mut Promises, usize, &Key<'_>),
) -> Promises {
    let mut promises = Promises::default();
    for (nth, key) in keys.iter().enumerate() {
        add(&mut promises, nth, key);
        pause_at(nth, call);
    }
    promises
}

/// Makes the promises, which is the moment of the command. Returns a counter of the records that are deleted when the
/// promises are carried out.
fn promise(
    mut txn: LaneTxn<'_>,
    call: &LaneCall<'_>,
    promises: Promises,
    effect: PreparedEffect<'_>,
) -> Arc<AtomicU64> {
    effect.record_in(&mut txn);
    txn.promise(call.db, promises)
}

/// Carries out the promises of the keys, slice by slice. Reports EXPIRE for each key that has the expiry `expire_at_ms`
/// then. Other clients may have changed the key since the promise.
fn carry_out(call: &LaneCall<'_>, keys: &[Key<'_>], expire_at_ms: Option<i64>) {
    for keys in keys.chunks(SLICE_ARGUMENTS) {
        let mut txn = slice(call, keys);
        let mut db = txn.db(call.db);
        for key in keys {
            let record = db.peek(key);
            if expire_at_ms.is_some() && record.and_then(|record| record.expire_at_ms()) == expire_at_ms {
                db.report_event(key, KeyEvent::EXPIRE);
            }
        }
    }
}

/// Locks the shards of a slice's keys, after a pause.
fn slice<'a>(call: &LaneCall<'a>, keys: &[Key<'_>]) -> LaneTxn<'a> {
    call.pause();
    call.keyspace.prefetch(call.db, keys);
    call.lock(&hashes_of(keys))
}

fn pause_at(nth: usize, call: &LaneCall<'_>) {
    if nth.is_multiple_of(SLICE_ARGUMENTS) {
        call.pause();
    }
}
