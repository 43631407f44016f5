//! Commands on keys of any type: delete, rename, copy, move, look at.
//!
//! Expiry is in [`super::expiry`], what walks over a whole database in [`super::keyspace_wide`].

use crate::call::Call;
use crate::errors;
use crate::parse::{self, Text};
use std::sync::atomic::Ordering;
use strand_keyspace::{Record, Str, Value};

/// `DEL key [key ...]`: removes keys. Reply: how many there were.
pub(crate) fn del(call: &mut Call<'_, '_>) {
    let mut db = call.locked.db(call.db);
    let removed = call.keys.iter().filter(|key| db.remove(key).is_some()).count();
    call.reply.int(removed as i64);
}

/// `UNLINK key [key ...]`: as DEL; here every removal is one, and large values are freed apart.
pub(crate) fn unlink(call: &mut Call<'_, '_>) {
    del(call);
}

/// `EXISTS key [key ...]`. Reply: how many of them exist; one named twice counts twice.
pub(crate) fn exists(call: &mut Call<'_, '_>) {
    let mut db = call.locked.db(call.db);
    let found = call.keys.iter().filter(|key| db.peek(key).is_some()).count();
    call.reply.int(found as i64);
}

/// `TOUCH key [key ...]`: marks keys as used now. Reply: how many exist.
pub(crate) fn touch(call: &mut Call<'_, '_>) {
    let mut db = call.locked.db(call.db);
    let found = call.keys.iter().filter(|key| db.get(key).is_some()).count();
    call.reply.int(found as i64);
}

/// `TYPE key`. Reply: the type's name as a simple string, `none` for a missing key.
pub(crate) fn type_(call: &mut Call<'_, '_>) {
    let mut db = call.locked.db(call.db);
    call.reply.simple(db.peek(&call.keys[0]).map_or("none", |r| r.value.type_name()));
}

/// `RENAME key newkey`: the value and its expiry move to `newkey`, replacing what was there. Reply: OK.
pub(crate) fn rename(call: &mut Call<'_, '_>) {
    match rename_key(call, true) {
        Ok(_) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
}

/// `RENAMENX key newkey`: as RENAME, unless `newkey` exists. Reply: 1 when renamed, 0 when not.
pub(crate) fn renamenx(call: &mut Call<'_, '_>) {
    match rename_key(call, false) {
        Ok(renamed) => call.reply.int(renamed.into()),
        Err(text) => call.reply.error(text),
    }
}

fn rename_key(call: &mut Call<'_, '_>, replace: bool) -> Result<bool, &'static str> {
    let (from, to) = (&call.keys[0], &call.keys[1]);
    let mut db = call.locked.db(call.db);
    if db.peek(from).is_none() {
        return Err(errors::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes || (!replace && db.peek(to).is_some()) {
        return Ok(false);
    }
    if let Some(record) = db.remove(from) {
        let expire_at_ms = record.expire_at_ms();
        db.insert(to, record.value, expire_at_ms);
    }
    Ok(true)
}

/// `COPY source destination [DB index] [REPLACE]`: copies value and expiry. Reply: 1 when copied; 0 when the source is
/// missing, or the destination exists and REPLACE is not given.
pub(crate) fn copy(call: &mut Call<'_, '_>) {
    match copy_key(call) {
        Ok(copied) => call.reply.int(copied.into()),
        Err(text) => call.reply.error(&text),
    }
}

fn copy_key(call: &mut Call<'_, '_>) -> Result<bool, Text> {
    let (mut to_db, mut replace, mut at) = (call.db, false, 3);
    while at < call.args.len() {
        if call.args.is(at, "REPLACE") {
            replace = true;
        } else if call.args.is(at, "DB") && at + 1 < call.args.len() {
            at += 1;
            to_db = db_index(call, call.args.at(at))?;
        } else {
            return Err(errors::SYNTAX.into());
        }
        at += 1;
    }
    let (from, to) = (&call.keys[0], &call.keys[1]);
    if to_db == call.db && from.bytes == to.bytes {
        return Err(errors::SAME_OBJECT.into());
    }
    let Some((value, expire_at_ms)) =
        call.locked.db(call.db).get(from).map(|r| (r.value.clone(), r.expire_at_ms()))
    else {
        return Ok(false);
    };
    let mut db = call.locked.db(to_db);
    if !replace && db.peek(to).is_some() {
        return Ok(false);
    }
    db.insert(to, value, expire_at_ms);
    Ok(true)
}

/// `MOVE key db`: moves a key, with its expiry, to another database. Reply: 1 when moved; 0 when it is missing here or
/// there already.
pub(crate) fn move_(call: &mut Call<'_, '_>) {
    match move_key(call) {
        Ok(moved) => call.reply.int(moved.into()),
        Err(text) => call.reply.error(&text),
    }
}

fn move_key(call: &mut Call<'_, '_>) -> Result<bool, Text> {
    let to_db = db_index(call, call.args.at(2))?;
    if to_db == call.db {
        return Err(errors::SAME_OBJECT.into());
    }
    let key = &call.keys[0];
    if call.locked.db(call.db).peek(key).is_none() || call.locked.db(to_db).peek(key).is_some() {
        return Ok(false);
    }
    if let Some(record) = call.locked.db(call.db).remove(key) {
        let expire_at_ms = record.expire_at_ms();
        call.locked.db(to_db).insert(key, record.value, expire_at_ms);
    }
    Ok(true)
}

/// A database that SELECT reaches, as COPY and MOVE name it.
fn db_index(call: &Call<'_, '_>, bytes: &[u8]) -> Result<usize, Text> {
    let index = parse::integer_in(bytes, i32::MIN.into(), i32::MAX.into())?;
    usize::try_from(index)
        .ok()
        .filter(|i| *i < call.locked.keyspace().databases())
        .ok_or_else(|| errors::DB_INDEX_OUT_OF_RANGE.into())
}

/// `OBJECT ENCODING key`. Reply: the encoding's name as redis-server has it; null for a missing key.
pub(crate) fn object_encoding(call: &mut Call<'_, '_>) {
    let mut db = call.locked.db(call.db);
    match db.peek(&call.keys[0]) {
        Some(record) => call.reply.bulk(record.value.encoding().as_bytes()),
        None => call.reply.null(),
    }
}

/// `OBJECT REFCOUNT key`. Reply: 1, or the largest 32-bit integer for the small integers that redis-server shares among
/// all keys; null for a missing key.
pub(crate) fn object_refcount(call: &mut Call<'_, '_>) {
    /// redis-server keeps one object for each integer below this.
    const SHARED_INTEGERS: i64 = 10_000;
    let mut db = call.locked.db(call.db);
    match db.peek(&call.keys[0]).map(|r| &r.value) {
        Some(Value::Str(Str::Int(0..SHARED_INTEGERS))) => call.reply.int(i32::MAX.into()),
        Some(_) => call.reply.int(1),
        None => call.reply.null(),
    }
}

/// `OBJECT IDLETIME key`. Reply: seconds since it was last used; null for a missing key; an error under an LFU policy.
pub(crate) fn object_idletime(call: &mut Call<'_, '_>) {
    const UNDER_LFU: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                             switching between policies at runtime LRU and LFU data will take some time to adjust.";
    let now_ms = call.now_ms;
    object_usage(call, false, UNDER_LFU, |r| now_ms.saturating_sub(r.used_at_ms()).max(0) / 1000);
}

/// `OBJECT FREQ key`. Reply: its logarithmic access counter; null for a missing key; an error without an LFU policy.
pub(crate) fn object_freq(call: &mut Call<'_, '_>) {
    const WITHOUT_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                               that when switching between policies at runtime LRU and LFU data will take some time to \
                               adjust.";
    object_usage(call, true, WITHOUT_LFU, |r| r.frequency().into());
}

fn object_usage(call: &mut Call<'_, '_>, lfu: bool, text: &str, figure: impl Fn(&Record) -> i64) {
    let under_lfu = call.locked.keyspace().settings().lfu.load(Ordering::Relaxed) != 0;
    let mut db = call.locked.db(call.db);
    match db.peek(&call.keys[0]) {
        None => call.reply.null(),
        Some(_) if lfu != under_lfu => call.reply.error(text),
        Some(record) => call.reply.int(figure(record)),
    }
}

/// `OBJECT HELP`. Reply: lines of text.
pub(crate) fn object_help(call: &mut Call<'_, '_>) {
    super::help(
        call,
        "OBJECT",
        &[
            "ENCODING <key>",
            "    The name of the form in which the value of <key> is kept.",
            "FREQ <key>",
            "    How often <key> is used, on a logarithmic scale; needs an LFU maxmemory-policy.",
            "IDLETIME <key>",
            "    Seconds since <key> was last read or written; not under an LFU maxmemory-policy.",
            "REFCOUNT <key>",
            "    How many references there are to the value of <key>.",
        ],
    );
}
