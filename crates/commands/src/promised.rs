//! DEL, UNLINK and MSET with thousands of keys, as atomic as with few. The changes of all keys are promised at one
//! moment and carried out afterwards ([`strand_keyspace::Promises`]).

use crate::call::LaneCall;
use crate::families::string;
use crate::long::{self, SLICE_ARGUMENTS};
use crate::run::Prepared;
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
        // The handler replies with the error, which is cheap.
        return long::whole_of("mset", call);
    }
    promise(call, 2, |at| Some(string::value_of(args, at + 1).to_str()));
    call.reply.ok();
}

/// Promises for each `step`th argument (a key) what `value` says, and carries the promises out. Returns how many
/// records were removed.
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
    let prepared = Prepared::new(call);
    let mut txn = call.lock(&hashes);
    prepared.give(call, &mut txn);
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
