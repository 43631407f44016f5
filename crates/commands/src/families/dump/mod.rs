//! DUMP and RESTORE: a value as Redis's bytes.
//!
//! Short calls run on the worker, and longer ones on the lane. There, DUMP encodes a clone of the value. RESTORE
//! builds the value while no shard is locked, and then stores it.

use crate::call::{Call, LaneCall};
use crate::parse::{self, Text};
use crate::run::arg;
use crate::serial::NotRestored;
use crate::{errors, serial};
use strand_chain::Blob;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Db, Key, KeyEvent, Settings, Value};
use strand_wire::args::Args;

/// The index of the argument of RESTORE that is the payload.
const PAYLOAD: usize = 3;

/// `DUMP key`. Reply: the value with its type, the RDB version and a checksum; null for a missing key.
pub(crate) fn dump(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    match db.get(&call.keys[0]).map(|record| serial::payload(record.value(), &|| {})) {
        Some(payload) => call.reply.bulk(&payload),
        None => call.reply.null(),
    }
}

/// DUMP of a large value, on the lane.
pub(crate) fn dump_long(call: &mut LaneCall<'_>) {
    let key = call.keyspace.key(call.args.at(1));
    let mut txn = call.lock(&[key.hash]);
    txn.set_no_touch(call.no_touch);
    let value = txn.db(call.db).get(&key).map(|record| record.value().to_value());
    call.lookups = txn.lookups();
    drop(txn);
    match value {
        Some(value) => {
            let payload = serial::payload(value.view(), &|| call.pause());
            // This clone may be the last reference to the value.
            call.keyspace.dispose(value);
            call.reply.bulk_blob(&Blob::from(payload));
        }
        None => call.reply.null(),
    }
}

/// `RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`. Reply: OK.
pub(crate) fn restore(call: &mut Call<'_, '_>) {
    let settings = call.txn.keyspace().settings();
    let mut db = call.txn.db(call.db);
    let done = Options::read(call.args).and_then(|options| {
        let expire_at_ms = options.check(&mut db, &call.keys[0], call.args, call.now_ms)?;
        let value = value_of(call.args.at(PAYLOAD), settings, &|| {})?;
        options.put(&mut db, &call.keys[0], value, expire_at_ms, call.args);
        Ok(())
    });
    match done {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

/// RESTORE of a large value, on the lane.
pub(crate) fn restore_long(call: &mut LaneCall<'_>) {
    match restore_in_pieces(call) {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

fn restore_in_pieces(call: &mut LaneCall<'_>) -> Result<(), Text> {
    let options = Options::read(call.args)?;
    let (key, now_ms) = (call.keyspace.key(call.args.at(1)), call.now_ms);
    let mut txn = call.lock(&[key.hash]);
    options.check(&mut txn.db(call.db), &key, call.args, now_ms)?;
    drop(txn);
    let value = value_of(call.args.at(PAYLOAD), call.keyspace.settings(), &|| call.pause())?;
    let mut txn = call.lock(&[key.hash]);
    let mut db = txn.db(call.db);
    // Another client may have set the key meanwhile.
    let expire_at_ms = match options.check(&mut db, &key, call.args, now_ms) {
        Ok(expire_at_ms) => expire_at_ms,
        Err(text) => {
            drop(txn);
            call.keyspace.dispose(value);
            return Err(text);
        }
    };
    options.put(&mut db, &key, value, expire_at_ms, call.args);
    Ok(())
}

/// Builds the value that a payload encodes.
fn value_of(payload: &[u8], settings: &Settings, pause: &dyn Fn()) -> Result<Value, Text> {
    serial::of_payload(payload, settings, pause).map_err(|e| match e {
        NotRestored::Payload(_) => errors::WRONG_PAYLOAD.into(),
        NotRestored::Format(_) | NotRestored::Value(_) => errors::BAD_DATA_FORMAT.into(),
    })
}

/// The options of RESTORE, which follow the payload.
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn read(args: Args<'_>) -> Result<Options, Text> {
        let mut options = Options { replace: false, absolute: false, idle_s: None, frequency: None };
        let mut at = PAYLOAD + 1;
        while at < args.len() {
            let value = args.get(at + 1);
            match value {
                _ if args.is(at, "REPLACE") => options.replace = true,
                _ if args.is(at, "ABSTTL") => options.absolute = true,
                Some(value) if args.is(at, "IDLETIME") && options.frequency.is_none() => {
                    let idle_s = u64::try_from(parse::integer(value)?);
                    options.idle_s = Some(idle_s.map_err(|_| "ERR Invalid IDLETIME value, must be >= 0")?);
                    at += 1;
                }
                Some(value) if args.is(at, "FREQ") && options.idle_s.is_none() => {
                    let frequency = u8::try_from(parse::integer(value)?);
                    options.frequency =
                        Some(frequency.map_err(|_| "ERR Invalid FREQ value, must be >= 0 and <= 255")?);
                    at += 1;
                }
                _ => return Err(errors::SYNTAX.into()),
            }
            at += 1;
        }
        Ok(options)
    }

    /// Checks whether RESTORE may set `key`. Returns the expiry in Unix milliseconds, if there is one.
    fn check(
        &self,
        db: &mut Db<'_, '_>,
        key: &Key<'_>,
        args: Args<'_>,
        now_ms: i64,
    ) -> Result<Option<i64>, Text> {
        if !self.replace && db.get_to_write(key).is_some() {
            return Err(errors::BUSY_KEY.into());
        }
        match parse::integer(args.at(2))? {
            0 => Ok(None),
            ..0 => Err("ERR Invalid TTL value, must be >= 0".into()),
            // A record with the expiry `i64::MAX` never expires.
            ttl if self.absolute => Ok(Some(ttl.min(i64::MAX - 1))),
            ttl => Ok(Some(ttl.saturating_add(now_ms).min(i64::MAX - 1))),
        }
    }

    /// Stores the value at `key`. If the value has already expired, only removes the former value.
    fn put(
        &self,
        db: &mut Db<'_, '_>,
        key: &Key<'_>,
        value: Value,
        expire_at_ms: Option<i64>,
        args: Args<'_>,
    ) {
        if expire_at_ms.is_some_and(|at| db.has_passed(at)) {
            if db.delete(key) {
                db.effect(&[b"DEL".into(), key.bytes.into()]);
            }
            return;
        }
        if db.peek(key).is_some() {
            db.report_event(key, KeyEvent::NEW);
        }
        db.insert(key, value, expire_at_ms);
        // The effect comes before the next look-up: a look-up removes fields of a hash that are due, and this removal must
        // follow the effect.
        if db.is_recorded() {
            let at_ms = expire_at_ms.unwrap_or(0).to_string();
            let [name, replace, absolute] = [&b"RESTORE"[..], b"REPLACE", b"ABSTTL"].map(Arg::Bytes);
            let at_ms = at_ms.as_bytes().into();
            db.effect(&[name, key.bytes.into(), at_ms, arg(args, PAYLOAD), replace, absolute]);
        }
        db.set_usage(key, self.idle_s, self.frequency);
    }
}

#[cfg(test)]
mod tests;
