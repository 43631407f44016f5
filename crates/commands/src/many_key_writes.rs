//! DEL, UNLINK and MSET of thousands of keys. They are as atomic as with a few keys: the changes of all keys are
//! promised at one moment, and carried out afterwards ([`strand_keyspace::Promises`]).

use crate::call::LaneCall;
use crate::families::string;
use crate::long::{self, SLICE_ARGUMENTS};
use crate::run::PreparedEffect;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_keyspace::{Key, Promises, Str};

/// `DEL key [key ...]`, `UNLINK key [key ...]`
pub(crate) fn remove_all(call: &mut LaneCall<'_>) {
    let removed = promise(call, 1, |_| None);
    call.reply.int(removed.load(Relaxed) as i64);
}

/// `MSET key value [key value ...]`
pub(crate) fn set_all(call: &mut LaneCall<'_>) {
    let args = call.args;
    if args.len().is_multiple_of(2) {
        // The number of arguments is wrong. The handler replies with an error, which is cheap.
        return long::run_locked_by_name("mset", call);
    }
    promise(call, 2, |at| Some(string::value_of(args, at + 1).to_str()));
    call.reply.ok();
}

/// Makes a promise for each key (each `step`th argument) and carries the promises out. `value` gets the position of
/// a key, and returns its new value or `None` to delete it. Returns the number of deleted records.
fn promise(call: &mut LaneCall<'_>, step: usize, value: impl Fn(usize) -> Option<Str>) -> Arc<AtomicU64> {
    let (args, keyspace, db) = (call.args, call.keyspace, call.db);
    let mut promises = Promises::default();
    let mut hashes = Vec::with_capacity((args.len() - 1) / step);
    for (nth, at) in (1..args.len()).step_by(step).enumerate() {
        let key = keyspace.key(args.at(at));
        promises.add(keyspace, &key, value(at));
        hashes.push(key.hash);
        if nth.is_multiple_of(SLICE_ARGUMENTS) {
            call.pause();
        }
    }
    let prepared = PreparedEffect::new(call);
    let mut txn = call.lock(&hashes);
    prepared.record_in(call, &mut txn);
    let removed = txn.promise(db, promises);
    drop(txn);
    for slice in hashes.chunks(SLICE_ARGUMENTS).enumerate() {
        let (nth, hashes) = slice;
        let first = 1 + nth * SLICE_ARGUMENTS * step;
        let keys: Vec<Key<'_>> =
            (0..hashes.len()).map(|i| Key { bytes: args.at(first + i * step), hash: hashes[i] }).collect();
        call.pause();
        keyspace.prefetch(db, &keys);
        let mut txn = call.lock(hashes);
        keys.iter().for_each(|key| _ = txn.db(db).peek(key));
    }
    removed
}
