//! What the handlers of all collection types share: they read or change the value at the first key, and send parts
//! of the value.
//!
//! A handler of a list, set, sorted set, hash or stream accesses its value only through [`read`] and [`update`].
//! The types are in `strand_keyspace::types`.

use crate::call::Call;
use crate::errors;
use crate::optimistic::Pauses;
use crate::parse::{Text, wrong_type};
use strand_keyspace::types::Bytes;
use strand_keyspace::{Changed, Collection, Settings};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Calls `answer` with the collection at the first key (`None` when the key is missing), so that it writes the
/// reply. For a value of another type the reply is WRONGTYPE. Marks the key as used.
pub(crate) fn read<T: Collection>(call: &mut Call<'_, '_>, answer: impl FnOnce(Option<&T>, &mut Reply<'_>)) {
    match call.txn.db(call.db).read::<T>(&call.keys[0]) {
        Ok(collection) => answer(collection, call.reply),
        Err(_) => call.reply.error(errors::WRONG_TYPE),
    }
}

/// Changes the collection at the first key. A missing collection is created if `change` adds an element. The key is
/// removed together with the last element. If `change` fails, it must leave the collection unchanged.
///
/// # Errors
/// WRONGTYPE, or the error of `change`.
pub(crate) fn update<T: Collection, R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut T, &Settings) -> Result<(R, Changed), Text>,
) -> Result<R, Text> {
    let settings = call.txn.keyspace().settings();
    let changed = call.txn.db(call.db).change_or_create(&call.keys[0], |collection| {
        match change(collection, settings) {
            Ok((result, changed)) => (Ok(result), changed),
            Err(text) => (Err(text), Changed::No),
        }
    });
    changed.map_err(wrong_type)?
}

/// Like [`update`], but creates no collection. `None` when the key is missing.
///
/// # Errors
/// WRONGTYPE.
pub(crate) fn update_existing<T: Collection, R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut T, &Settings) -> (R, Changed),
) -> Result<Option<R>, Text> {
    let settings = call.txn.keyspace().settings();
    let changed = call.txn.db(call.db).change(&call.keys[0], |collection| change(collection, settings));
    Ok(changed.map_err(wrong_type)?)
}

/// Like [`update_existing`], for a change that visits elements. `change` calls [`Pauses::may_continue`] after each
/// element, so that a long call pauses now and then.
///
/// # Errors
/// WRONGTYPE.
pub(crate) fn visit_existing<T: Collection, R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut T, &mut Pauses<'_>) -> (R, Changed),
) -> Result<Option<R>, Text> {
    let mut pause = || call.reply.pause();
    let mut pauses = Pauses::new(&mut pause);
    let changed = call.txn.db(call.db).change(&call.keys[0], |collection| change(collection, &mut pauses));
    Ok(changed.map_err(wrong_type)?)
}

/// Argument `i`, to be stored in a value. If the argument has an allocation of its own, the value shares it.
pub(crate) fn argument(args: Args<'_>, i: usize) -> Bytes<'_> {
    match args.large(i) {
        Some(blob) => Bytes::Shared(blob),
        None => Bytes::Slice(args.at(i)),
    }
}

/// Sends a bulk string. If the bytes are a blob, a long reply shares the blob.
pub(crate) fn send(reply: &mut Reply<'_>, bytes: Bytes<'_>) {
    match bytes {
        Bytes::Slice(slice) => reply.bulk(slice),
        Bytes::Shared(blob) => reply.bulk_blob(blob),
    }
}

/// Like [`send`], but sends null for `None`.
pub(crate) fn send_or_null(reply: &mut Reply<'_>, bytes: Option<Bytes<'_>>) {
    match bytes {
        Some(bytes) => send(reply, bytes),
        None => reply.null(),
    }
}
