//! Commands on keys of any type: delete, rename, copy, move, inspect.
//!
//! Expiry is in [`super::expiry`], commands about a whole database in [`super::keyspace_wide`].

use crate::call::Call;
use crate::errors;
use crate::events::named;
use crate::parse::{self, Text};
use std::sync::atomic::Ordering;
use strand_keyspace::{KeyEvent, RecordRef, Settings, StrRef, ValueRef};

/// `DEL key [key ...]`: removes keys. Reply: how many existed.
pub(crate) fn del(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let removed = call.keys.iter().filter(|key| db.delete(key)).count();
    call.reply.int(removed as i64);
}

/// `UNLINK key [key ...]`: like DEL. A helper thread frees large values for both.
pub(crate) fn unlink(call: &mut Call<'_, '_>) {
    del(call);
}

/// `EXISTS key [key ...]`. Reply: how many exist. A key that is named twice counts twice.
pub(crate) fn exists(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let found = call.keys.iter().filter(|key| db.look(key).is_some()).count();
    call.reply.int(found as i64);
}

/// `TOUCH key [key ...]`: marks keys as used. Reply: how many exist.
pub(crate) fn touch(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let found = call.keys.iter().filter(|key| db.get(key).is_some()).count();
    call.reply.int(found as i64);
}

/// `TYPE key`. Reply: the type's name as a simple string, `none` for a missing key.
pub(crate) fn type_(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    call.reply.simple(db.look(&call.keys[0]).map_or("none", |r| r.value().type_name()));
}

/// `RENAME key newkey`: moves the value and its expiry to `newkey` and replaces what was there. Reply: OK.
pub(crate) fn rename(call: &mut Call<'_, '_>) {
    match rename_key(call, true) {
        Ok(_) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
}

/// `RENAMENX key newkey`: like RENAME, unless `newkey` exists. Reply: 1 when renamed, else 0.
pub(crate) fn renamenx(call: &mut Call<'_, '_>) {
    match rename_key(call, false) {
        Ok(renamed) => call.reply.int(renamed.into()),
        Err(text) => call.reply.error(text),
    }
}

fn rename_key(call: &mut Call<'_, '_>, replace: bool) -> Result<bool, &'static str> {
    let (from, to) = (&call.keys[0], &call.keys[1]);
    let mut db = call.txn.db(call.db);
    if db.peek(from).is_none() {
        return Err(errors::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes || (!replace && db.get_to_write(to).is_some()) {
        return Ok(false);
    }
    // If `newkey` exists, the event `new` is reported before the other events, as in redis-server.
    let replaces = db.peek(to).is_some();
    if let Some(record) = db.remove(from) {
        if replaces {
            db.report_event(to, KeyEvent::NEW);
        }
        db.put_back(to, record);
        db.report_event(from, named::RENAME_FROM);
        db.report_event(to, named::RENAME_TO);
    }
    Ok(true)
}

/// `COPY source destination [DB index] [REPLACE]`: copies value and expiry. Reply: 1 when copied; 0 when the source is
/// missing, or the destination exists without REPLACE.
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
        call.txn.db(call.db).get(from).map(|r| (r.value().to_value(), r.expire_at_ms()))
    else {
        return Ok(false);
    };
    let mut db = call.txn.db(to_db);
    if db.get_to_write(to).is_some() {
        if !replace {
            return Ok(false);
        }
        db.report_event(to, KeyEvent::NEW);
    }
    db.insert(to, value, expire_at_ms);
    // As in redis-server, the copy does not have the usage of the key that it replaces.
    db.set_usage(to, None, None);
    Ok(true)
}

/// `MOVE key db`: moves a key with its expiry to another database. Reply: 1 when moved; 0 when the key is missing here,
/// or exists there.
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
    if call.txn.db(call.db).peek(key).is_none() || call.txn.db(to_db).peek(key).is_some() {
        return Ok(false);
    }
    if let Some(record) = call.txn.db(call.db).remove(key) {
        call.txn.db(to_db).put_back(key, record);
        call.txn.db(call.db).report_event(key, named::MOVE_FROM);
        call.txn.db(to_db).report_event(key, named::MOVE_TO);
    }
    Ok(true)
}

/// The database that an argument of COPY or MOVE names.
fn db_index(call: &Call<'_, '_>, bytes: &[u8]) -> Result<usize, Text> {
    let index = parse::integer_in(bytes, i32::MIN.into(), i32::MAX.into())?;
    usize::try_from(index)
        .ok()
        .filter(|i| *i < call.txn.keyspace().databases())
        .ok_or_else(|| errors::DB_INDEX_OUT_OF_RANGE.into())
}

/// `OBJECT ENCODING key`. Reply: redis-server's name of the encoding, null for a missing key.
pub(crate) fn object_encoding(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    match db.look(&call.keys[0]) {
        Some(record) => call.reply.bulk(record.value().encoding().as_bytes()),
        None => call.reply.null(),
    }
}

/// `OBJECT REFCOUNT key`. Reply: 1; for a small integer the largest 32-bit integer, because redis-server shares
/// such integers between keys; null for a missing key.
pub(crate) fn object_refcount(call: &mut Call<'_, '_>) {
    /// redis-server has one shared object per integer from 0 up to this number, exclusive.
    const SHARED_INTEGERS: i64 = 10_000;
    let mut db = call.txn.db(call.db);
    match db.look(&call.keys[0]).map(|r| r.value()) {
        Some(ValueRef::Str(StrRef::Int(0..SHARED_INTEGERS))) => call.reply.int(i32::MAX.into()),
        Some(_) => call.reply.int(1),
        None => call.reply.null(),
    }
}

/// `OBJECT IDLETIME key`. Reply: seconds since the last use; null for a missing key; an error under an LFU policy.
pub(crate) fn object_idletime(call: &mut Call<'_, '_>) {
    const UNDER_LFU: &str = "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
                             switching between policies at runtime LRU and LFU data will take some time to adjust.";
    let now_ms = call.now_ms;
    object_usage(call, false, UNDER_LFU, |r, _| r.idle_s(now_ms).into());
}

/// `OBJECT FREQ key`. Reply: the logarithmic access counter; null for a missing key; an error without an LFU policy.
pub(crate) fn object_freq(call: &mut Call<'_, '_>) {
    const WITHOUT_LFU: &str = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
                               that when switching between policies at runtime LRU and LFU data will take some time to \
                               adjust.";
    let now_ms = call.now_ms;
    object_usage(call, true, WITHOUT_LFU, |r, settings| r.frequency(now_ms, settings).into());
}

fn object_usage(
    call: &mut Call<'_, '_>,
    lfu: bool,
    text: &str,
    figure: impl Fn(RecordRef<'_>, &Settings) -> i64,
) {
    let settings = call.txn.keyspace().settings();
    let under_lfu = settings.lfu.load(Ordering::Relaxed) != 0;
    let mut db = call.txn.db(call.db);
    match db.look(&call.keys[0]) {
        None => call.reply.null(),
        Some(_) if lfu != under_lfu => call.reply.error(text),
        Some(record) => call.reply.int(figure(record, settings)),
    }
}

/// `OBJECT HELP`. Reply: lines of text.
pub(crate) fn object_help(call: &mut Call<'_, '_>) {
    crate::introspect::help(
        call.reply,
        "OBJECT",
        &[
            "ENCODING <key>",
            "    The internal encoding of the value of <key>.",
            "FREQ <key>",
            "    How often <key> is used, on a logarithmic scale; needs an LFU maxmemory-policy.",
            "IDLETIME <key>",
            "    Seconds since <key> was last read or written; not under an LFU maxmemory-policy.",
            "REFCOUNT <key>",
            "    How many references there are to the value of <key>.",
        ],
    );
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use std::sync::atomic::Ordering;

    #[test]
    fn keys_of_every_type_are_counted_and_deleted() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a 1", "+OK|"),
            ("HSET b f v", ":1|"),
            ("EXISTS a b c a", ":3|"),
            ("TOUCH a b c", ":2|"),
            ("TYPE a", "+string|"),
            ("TYPE b", "+hash|"),
            ("TYPE c", "+none|"),
            ("DEL a a c", ":1|"),
            ("UNLINK b a", ":1|"),
            ("EXISTS a b", ":0|"),
            ("DEL", "-ERR wrong number of arguments for 'del' command|"),
        ]);
    }

    #[test]
    fn rename_takes_the_expiry_along() {
        let mut f = Fixture::new();
        f.script(&[
            ("RENAME a b", "-ERR no such key|"),
            ("RENAME a a", "-ERR no such key|"),
            ("RENAMENX a b", "-ERR no such key|"),
            ("SET a 1", "+OK|"),
            ("RENAME a a", "+OK|"),
            ("RENAMENX a a", ":0|"),
            ("EXPIRE a 10", ":1|"),
            ("SET b 2", "+OK|"),
            ("RENAMENX a b", ":0|"),
            ("RENAME a b", "+OK|"),
            ("TTL b", ":10|"),
            ("GET b", "$1|1|"),
            ("EXISTS a", ":0|"),
            ("SET plain 3", "+OK|"),
            ("RENAME plain b", "+OK|"),
            ("TTL b", ":-1|"),
            ("RENAMENX b c", ":1|"),
            ("GET c", "$1|3|"),
        ]);
    }

    #[test]
    fn copy_within_and_across_databases() {
        let mut f = Fixture::new();
        f.script(&[
            ("COPY a b", ":0|"),
            ("HSET a f v", ":1|"),
            ("EXPIRE a 10", ":1|"),
            ("COPY a b", ":1|"),
            ("HSET a f w", ":0|"),
            ("HGET b f", "$1|v|"),
            ("TTL b", ":10|"),
            ("COPY a b", ":0|"),
            ("COPY a b replace", ":1|"),
            ("HGET b f", "$1|w|"),
            ("COPY a a DB 3", ":1|"),
            ("COPY a a db 3 db 4 REPLACE", ":1|"),
        ]);
        f.db = 3;
        f.script(&[("HGET a f", "$1|w|"), ("TTL a", ":10|")]);
        f.db = 0;
        f.script(&[
            ("COPY a a", "-ERR source and destination objects are the same|"),
            ("COPY none none", "-ERR source and destination objects are the same|"),
            ("COPY a b DB", "-ERR syntax error|"),
            ("COPY a b FOO", "-ERR syntax error|"),
            ("COPY a b DB x FOO", "-ERR value is not an integer or out of range|"),
            ("COPY a b DB 16", "-ERR DB index is out of range|"),
            ("COPY a b DB -1", "-ERR DB index is out of range|"),
            (
                "COPY a b DB 2147483648",
                "-ERR value is out of range, value must between -2147483648 and 2147483647|",
            ),
        ]);
    }

    #[test]
    fn move_between_databases() {
        let mut f = Fixture::new();
        f.script(&[
            ("MOVE a x", "-ERR value is not an integer or out of range|"),
            ("MOVE a 16", "-ERR DB index is out of range|"),
            ("MOVE a 0", "-ERR source and destination objects are the same|"),
            ("MOVE a 1", ":0|"),
            ("SET a 1", "+OK|"),
            ("EXPIRE a 10", ":1|"),
            ("MOVE a 1", ":1|"),
            ("EXISTS a", ":0|"),
            ("SET a 2", "+OK|"),
            ("MOVE a 1", ":0|"),
            ("GET a", "$1|2|"),
        ]);
        f.db = 1;
        f.script(&[("GET a", "$1|1|"), ("TTL a", ":10|")]);
    }

    #[test]
    fn object_looks_inside() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET n 12", "+OK|"),
            ("HSET h f v", ":1|"),
            ("OBJECT ENCODING n", "$3|int|"),
            ("OBJECT ENCODING h", "$8|listpack|"),
            ("OBJECT ENCODING none", "$-1|"),
            ("OBJECT REFCOUNT n", ":2147483647|"),
            ("OBJECT REFCOUNT h", ":1|"),
            ("OBJECT REFCOUNT none", "$-1|"),
            ("OBJECT FREQ none", "$-1|"),
            ("OBJECT", "-ERR wrong number of arguments for 'object' command|"),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command|"),
            ("OBJECT FOO n", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP.|"),
        ]);
        assert!(f.run("OBJECT FREQ n").starts_with("-ERR An LFU maxmemory policy is not selected, access"));
        assert!(f.run("OBJECT HELP").starts_with("*11|+OBJECT <subcommand>"));
        f.advance_ms(5_000);
        f.script(&[("OBJECT IDLETIME n", ":5|"), ("TOUCH n", ":1|"), ("OBJECT IDLETIME n", ":0|")]);
        f.keyspace.settings().lfu.store(1, Ordering::Relaxed);
        assert!(
            f.run("OBJECT IDLETIME n").starts_with("-ERR An LFU maxmemory policy is selected, idle time")
        );
        assert!(f.run("OBJECT FREQ n").starts_with(':'));
    }

    #[test]
    fn move_and_rename_keep_the_usage() {
        let mut f = Fixture::new();
        f.keyspace.settings().lfu.store(1, Ordering::Relaxed);
        f.keyspace.settings().lfu_log_factor.store(0, Ordering::Relaxed);
        f.run("SET k v");
        (0..20).for_each(|_| assert!(f.run("GET k").starts_with("$1|v|")));
        // A move counts as one use, as in Redis.
        f.script(&[
            ("OBJECT FREQ k", ":25|"),
            ("RENAME k l", "+OK|"),
            ("OBJECT FREQ l", ":26|"),
            ("MOVE l 1", ":1|"),
        ]);
        f.db = 1;
        f.script(&[("OBJECT FREQ l", ":27|")]);
    }
}
