//! The effects of stream commands. They contain the resulting IDs, lengths and times, as in redis-server's
//! replication.

use crate::call::Call;
use crate::run::arg;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::stream::{Id, StreamValue};
use strand_keyspace::{Db, Key};

/// Records the effect of XADD: the new ID, and the length after trimming.
pub(super) fn record_added(call: &mut Call<'_, '_>, id: Id, from: usize, trimmed_to: Option<u64>) {
    if !call.is_recorded() {
        return;
    }
    let args = call.args;
    let (id, len) = (id.to_string(), trimmed_to.map(|len| len.to_string()));
    let mut effect: Vec<Arg<'_>> = vec![b"XADD".into(), args.at(1).into()];
    if let Some(len) = &len {
        effect.extend([Arg::Bytes(b"MAXLEN"), Arg::Bytes(b"="), Arg::Bytes(len.as_bytes())]);
    }
    effect.push(id.as_bytes().into());
    effect.extend((from..args.len()).map(|at| arg(args, at)));
    call.effect(&effect);
}

/// Records the effect of XTRIM: the length after trimming.
pub(super) fn record_trimmed(db: &mut Db<'_, '_>, key: &Key<'_>, len: u64) {
    let len = len.to_string();
    let key = key.bytes.into();
    db.effect(&[b"XTRIM".into(), key, b"MAXLEN".into(), b"=".into(), len.as_bytes().into()]);
}

/// Records that these entries are no longer pending, and that these entries were deleted.
pub(super) fn record_removed(call: &mut Call<'_, '_>, acknowledged: &[(Vec<u8>, Id)], deleted: &[Id]) {
    if !call.is_recorded() {
        return;
    }
    let key = Arg::Bytes(call.args.at(1));
    for (group, id) in acknowledged {
        let id = id.to_string();
        call.effect(&[b"XACK".into(), key, group[..].into(), id.as_bytes().into()]);
    }
    if !deleted.is_empty() {
        let deleted: Vec<String> = deleted.iter().map(Id::to_string).collect();
        let deleted: Vec<Arg<'_>> = deleted.iter().map(|id| Arg::Bytes(id.as_bytes())).collect();
        call.effect(&[&[b"XDEL".into(), key], &deleted[..]].concat());
    }
}

/// Records that the entries `all` are pending at `consumer` now, whatever their state was before.
pub(super) fn record_claimed(db: &mut Db<'_, '_>, key: &Key<'_>, group: &[u8], consumer: &[u8], all: &[Id]) {
    if !db.is_recorded() {
        return;
    }
    let pending: Vec<_> = match db.peek_at::<StreamValue>(key).ok().flatten().and_then(|s| s.group(group)) {
        Some(group) => all.iter().filter_map(|id| Some((*id, group.pending_at(*id)?))).collect(),
        None => return,
    };
    for (id, pending) in pending {
        let (id, time) = (id.to_string(), pending.delivered_ms.to_string());
        let deliveries = readable(pending.deliveries);
        db.effect(&[
            b"XCLAIM".into(),
            key.bytes.into(),
            group.into(),
            consumer.into(),
            b"0".into(),
            id.as_bytes().into(),
            b"TIME".into(),
            time.as_bytes().into(),
            b"RETRYCOUNT".into(),
            deliveries.as_bytes().into(),
            b"FORCE".into(),
            b"JUSTID".into(),
        ]);
    }
}

/// A counter as the commands of a file read it: at most [`i64::MAX`].
fn readable(count: u64) -> String {
    count.min(i64::MAX as u64).to_string()
}

/// Records that a consumer was created.
pub(super) fn record_consumer_created(db: &mut Db<'_, '_>, key: &Key<'_>, group: &[u8], consumer: &[u8]) {
    db.effect(&[b"XGROUP".into(), b"CREATECONSUMER".into(), key.bytes.into(), group.into(), consumer.into()]);
}

/// Records up to which ID the group has read now.
pub(super) fn record_group_advanced(db: &mut Db<'_, '_>, key: &Key<'_>, name: &[u8]) {
    if !db.is_recorded() {
        return;
    }
    let group = db.peek_at::<StreamValue>(key).ok().flatten().and_then(|stream| stream.group(name));
    let Some((last_id, read)) = group.map(|group| (group.last_id().to_string(), group.entries_read())) else {
        return;
    };
    let set = [b"XGROUP".into(), b"SETID".into(), key.bytes.into(), name.into(), last_id.as_bytes().into()];
    match read.map(readable) {
        None => db.effect(&set),
        Some(read) => {
            let read = [b"ENTRIESREAD".into(), read.as_bytes().into()];
            db.effect(&[&set[..], &read].concat());
        }
    }
}

/// The length of the stream at the first key.
pub(super) fn len(call: &mut Call<'_, '_>) -> u64 {
    let mut db = call.txn.db(call.db);
    db.peek_at::<StreamValue>(&call.keys[0]).ok().flatten().map_or(0, |stream| stream.entries().len())
}
