//! DEBUG: the subcommands that clients' tests use. None of them stops the server or harms other clients.

use super::{DONE, NextStep, Outcome, Session, debug_data};
use crate::config::value::memory;
use crate::persist::{IS_LOADING, Reload};
use crate::scripts::run::{NOT_ALLOWED, ScriptRun};
use crate::{Engine, Now};
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::serial::digest::{DebugDigest, ValueDigest};
use strand_commands::{errors, introspect, serial};
use strand_keyspace::types::string::parse_int;
use strand_script::CallOutcome;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Protocol, Reply};

/// Maximum number of seconds of DEBUG SLEEP.
const SLEEP_SECONDS_MAX: f64 = 1e9;

/// Maximum number of bytes of a log message.
pub(super) const LOG_BYTES_MAX: usize = 1024;
/// Hexadecimal digits of a replication id.
const ID_DIGITS: usize = 40;
/// Maximum value of QUICKLIST-PACKED-THRESHOLD.
const QUICKLIST_BYTES_MAX: u64 = 4 << 30;

/// Subcommands of redis-server that Strand lacks, with the reasons.
const REFUSED: [(&str, &str); 18] = [
    ("AOF-FLUSH-SLEEP", "writes to the append-only file cannot be delayed"),
    ("ASSERT", "it would end the server"),
    ("CLIENT-EVICTION", "Strand has no pools of clients for eviction"),
    ("CLUSTERLINK", "there is no cluster"),
    ("CONFIG-REWRITE-FORCE-ALL", "CONFIG REWRITE writes what differs from the defaults"),
    ("CRASH-AND-RECOVER", "it would end the server"),
    ("DROP-CLUSTER-PACKET-FILTER", "there is no cluster"),
    ("LEAK", "it would waste memory"),
    ("MALLCTL", "clients may not change the allocator's settings"),
    ("MALLCTL-STR", "clients may not change the allocator's settings"),
    ("OOM", "it would end the server"),
    ("PANIC", "it would end the server"),
    ("REPLICATE", "replicas get what the append-only file gets"),
    ("RESTART", "it would end the server"),
    ("SDSLEN", "Strand stores no strings in the form of SDS"),
    ("SEGFAULT", "it would end the server"),
    ("SET-SKIP-CHECKSUM-VALIDATION", "checksums are always checked"),
    ("STRUCTSIZE", "Strand has other structures than redis-server"),
];

/// Maximum number of bytes that are searched for a number.
const FLOAT_BYTES_MAX: usize = 64;

/// The double of DEBUG PROTOCOL. Clients' tests compare it with this value, not with pi.
#[allow(clippy::approx_constant)]
const SAMPLE_DOUBLE: f64 = 3.141;

/// True for subcommands that run at once and without a shard. A transaction may have them.
pub(in crate::session) fn is_plain(args: Args<'_>) -> bool {
    ["ERROR", "HELP", "PROTOCOL", "SET-ACTIVE-EXPIRE"].iter().any(|name| args.is(1, name))
}

impl Session {
    pub(super) fn debug(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let is = |name: &str, len: usize| args.is(1, name) && args.len() == len;
        if is("HELP", 2) {
            introspect::help(&mut self.reply(), "DEBUG", HELP);
            return DONE;
        }
        if is("SLEEP", 3) {
            let seconds = leading_float(args.at(2)).clamp(0.0, SLEEP_SECONDS_MAX);
            return self.sleep(now.mono_us + (seconds * 1e6) as u64);
        }
        if args.is(1, "RELOAD") || is("LOADAOF", 2) || debug_data::is_one(args) {
            return Ok(NextStep::Detach);
        }
        if is("OBJECT", 3) || is("DIGEST", 2) || args.is(1, "DIGEST-VALUE") {
            // The subcommand locks a shard, which may be under a long lock.
            return Ok(NextStep::Detach);
        }
        if is("PROTOCOL", 3) {
            write_sample(args.at(2), &mut self.reply())?;
            return DONE;
        }
        if is("SET-ACTIVE-EXPIRE", 3) {
            let on = leading_float(args.at(2)) as i64 != 0;
            self.engine.active_expire.store(on, Relaxed);
            return self.ok();
        }
        if is("ERROR", 3) {
            return Err(args.at(2).to_vec());
        }
        if is("LOG", 3) {
            let text = &args.at(2)[..args.at(2).len().min(LOG_BYTES_MAX)];
            self.engine.host.warn(&format!("DEBUG LOG: {}", text.escape_ascii()));
            return self.ok();
        }
        if is("CHANGE-REPL-ID", 2) {
            let id = (0..ID_DIGITS).map(|_| char::from(b"0123456789abcdef"[self.rng.usize(0..16)])).collect();
            self.engine.set_replication_id(id);
            return self.ok();
        }
        if is("PAUSE-CRON", 3) {
            let paused = leading_float(args.at(2)) as i64 != 0;
            self.engine.cron_paused.store(paused, Relaxed);
            return self.ok();
        }
        if is("SET-DISABLE-DENY-SCRIPTS", 3) {
            let allowed = leading_float(args.at(2)) as i64 != 0;
            self.engine.scripts.deny_is_disabled.store(allowed, Relaxed);
            return self.ok();
        }
        if is("QUICKLIST-PACKED-THRESHOLD", 3) {
            // A list here has no quicklist nodes. Only the value is checked.
            return match memory(args.at(2)).map(u64::try_from) {
                Some(Ok(0..=QUICKLIST_BYTES_MAX)) => self.ok(),
                _ => Err("ERR argument must be a memory value bigger than 1 and smaller than 4gb".into()),
            };
        }
        if args.is(1, "REPLYBUFFER")
            && args.len() == 4
            && (args.is(2, "PEAK-RESET-TIME") || args.is(2, "RESIZING"))
        {
            // There is no reply buffer of this kind. Only the value is checked.
            let is_word = args.is(2, "RESIZING") || args.is(3, "NEVER") || args.is(3, "RESET");
            return match is_word || parse_int(args.at(3)).is_some() {
                true => self.ok(),
                false => Err(errors::NOT_AN_INTEGER.into()),
            };
        }
        #[cfg(debug_assertions)]
        if is("PANIC", 4) && args.is(2, "HALF-WAY") {
            self.panic_half_way(args.at(3), now);
        }
        if let Some((name, why)) = REFUSED.iter().find(|(name, _)| args.is(1, name)) {
            return Err(format!("ERR DEBUG {name} is not supported: {why}").into());
        }
        let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
        Err([head, args.at(1), b"'. Try DEBUG HELP."].concat())
    }
    /// Writes to a key and panics while the key's shard is locked, as no command does. Tests check the state
    /// afterwards. Not in release builds.
    #[cfg(debug_assertions)]
    fn panic_half_way(&self, key: &[u8], now: Now) {
        let key = self.engine.keyspace.key(key);
        let mut txn = self.engine.keyspace.lock(&[key.hash], now.unix_ms());
        txn.begin_command(|| (strand_keyspace::KeyEvent::NONE, false), true, 0);
        txn.db(self.db).set_str(&key, strand_keyspace::StrRef::of(b"half"), None);
        panic!("DEBUG PANIC of a test");
    }
}

/// Writes the reply of DEBUG PROTOCOL: a sample of the reply type `kind`.
///
/// # Errors
/// The whole text of the error reply.
fn write_sample(kind: &[u8], reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let resp3 = reply.protocol() == Protocol::Resp3;
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.int(12345),
        b"double" => reply.double(SAMPLE_DOUBLE),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|i| reply.int(i));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|i| reply.int(i));
        }
        b"map" => {
            reply.map(3);
            for i in 0..3 {
                reply.int(i);
                reply.bool(i == 1);
            }
        }
        b"attrib" => {
            if resp3 {
                let mut attribute = strand_chain::Chain::new();
                attribute.push_slice(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n");
                reply.raw(attribute);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !resp3 => return Err("ERR RESP2 is not supported by this command".into()),
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.int(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        b"true" => reply.bool(true),
        b"false" => reply.bool(false),
        b"bignum" if resp3 => {
            let mut number = strand_chain::Chain::new();
            number.push_slice(b"(1234567999999999999999999999999999999\r\n");
            reply.raw(number);
        }
        b"bignum" => reply.bulk(b"1234567999999999999999999999999999999"),
        _ => {
            let names = "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false";
            let text = format!("ERR Wrong protocol type name. Please use one of the following: {names}");
            return Err(text.into());
        }
    }
    Ok(())
}

/// Runs DEBUG in a script, after DEBUG SET-DISABLE-DENY-SCRIPTS: PROTOCOL, by which tests check how replies become Lua
/// values. All other subcommands are refused.
pub(super) fn in_script(run: &mut ScriptRun<'_, '_>, argv: &Argv, reply: &mut Reply<'_>) -> CallOutcome {
    let args = argv.args();
    if !args.is(1, "PROTOCOL") || args.len() != 3 {
        return run.refused(None, NOT_ALLOWED);
    }
    if let Err(text) = write_sample(args.at(2), reply) {
        reply.error_bytes(&text);
    }
    CallOutcome::Replied
}

/// The subcommands that read the data: OBJECT, DIGEST, DIGEST-VALUE.
pub(super) fn run(
    engine: &Engine,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let reloads = args.is(1, "RELOAD") || args.is(1, "LOADAOF");
    if reloads && engine.persist.is_loading() {
        // A second load beside the first one would save and then lose what is not loaded yet.
        return Err(IS_LOADING.into());
    }
    if args.is(1, "RELOAD") {
        return reload(engine, args, now, reply);
    }
    if args.is(1, "LOADAOF") {
        engine.reload_aof(now)?;
        reply.ok();
        return Ok(());
    }
    if debug_data::is_one(args) {
        return debug_data::run(engine, args, db, now, reply);
    }
    if args.is(1, "DIGEST") {
        reply.simple(&serial::dataset_digest(&engine.keyspace, now.unix_ms()).to_hex());
        return Ok(());
    }
    if args.is(1, "DIGEST-VALUE") {
        reply.array(args.len() - 2);
        for i in 2..args.len() {
            let key = engine.keyspace.key(args.at(i));
            let mut txn = engine.keyspace.lock(&[key.hash], now.unix_ms());
            let found = txn.db(db).peek(&key).map(|r| (r.value().to_value(), r.expire_at_ms().is_some()));
            drop(txn);
            let digest = found.map_or(DebugDigest::default(), |(value, expires)| {
                let digest = serial::digest_of(value.view(), expires, ValueDigest::new);
                engine.keyspace.dispose(value);
                digest
            });
            reply.simple(&digest.to_hex());
        }
        return Ok(());
    }
    object(engine, args, db, now, reply)
}

fn reload(engine: &Engine, args: Args<'_>, now: Now, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let mut reload = Reload::default();
    for i in 2..args.len() {
        if args.is(i, "MERGE") {
            reload.merge = true;
        } else if args.is(i, "NOFLUSH") {
            reload.no_flush = true;
        } else if args.is(i, "NOSAVE") {
            reload.no_save = true;
        } else {
            return Err("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into());
        }
    }
    engine.reload(reload, now)?;
    reply.ok();
    Ok(())
}

fn object(
    engine: &Engine,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let key = engine.keyspace.key(args.at(2));
    let mut locked = engine.keyspace.lock(&[key.hash], now.unix_ms());
    let mut db = locked.db(db);
    let record = db.peek(&key).ok_or(errors::NO_SUCH_KEY)?;
    let idle_s = record.idle_s(now.unix_ms());
    let lru_clock = (now.unix_us / 1_000_000 - i64::from(idle_s)) & super::info_sections::LRU_CLOCK_MASK;
    reply.simple(&format!(
        "Value at:0x{:x} refcount:1 encoding:{} serializedlength:{} lru:{lru_clock} lru_seconds_idle:{idle_s}",
        key.hash.0,
        record.value().encoding(),
        record.heap_bytes(),
    ));
    Ok(())
}

/// As C's `strtod` for plain decimals: the number at the beginning, or 0 without one.
fn leading_float(bytes: &[u8]) -> f64 {
    let bytes = &bytes[..bytes.len().min(FLOAT_BYTES_MAX)];
    let end = bytes.iter().position(|b| !b.is_ascii_digit() && !b".+-eE".contains(b)).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).unwrap_or("");
    (0..=end).rev().find_map(|n| text[..n].parse().ok()).unwrap_or(0.0)
}

const HELP: &[&str] = &[
    "CHANGE-REPL-ID",
    "    Give the server another replication id.",
    "DIGEST",
    "    Return a digest of all databases. For equal data, redis-server returns an equal digest.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Return digests of the values of keys.",
    "ERROR <string>",
    "    Return an error with this text.",
    "HTSTATS <dbid>",
    "    Return statistics about the hash tables of a database.",
    "HTSTATS-KEY <key>",
    "    Return statistics about the hash table in which a key's value is stored.",
    "LISTPACK <key>",
    "    Write a description of a packed value into the log.",
    "LOADAOF",
    "    Write all pending changes to the append-only file, and load this file again.",
    "LOG <message>",
    "    Write a message into the log.",
    "OBJECT <key>",
    "    Return the encoding, the size and the time of last use of a key's value.",
    "PAUSE-CRON <0|1>",
    "    Stop the server's regular work: active expiry, save points, rates.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Create <count> keys, named <prefix>:0, <prefix>:1 and so on, with values of <size> bytes.",
    "PROTOCOL <type>",
    "    Return a sample of this type: string, integer, double, bignum, null, array,",
    "    set, map, attrib, push, verbatim, true, false.",
    "QUICKLIST <key> [<0|1>]",
    "    Write a description of a list into the log.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Check <size>, and change nothing: lists have no nodes of this kind.",
    "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
    "    Save the data and load the file. MERGE: loaded keys replace existing keys. NOFLUSH: the data in",
    "    memory is not removed first. NOSAVE: the data is not saved first; the existing file is loaded.",
    "REPLYBUFFER (PEAK-RESET-TIME (NEVER|RESET|<time>) | RESIZING <0|1>)",
    "    Check the arguments, and change nothing: Strand has no buffer of this kind.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Set whether the server removes expired keys that no command uses.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Let scripts call the commands on data that have the flag noscript.",
    "SLEEP <seconds>",
    "    Make this connection wait. All other connections are served. <seconds> may have decimals.",
];

#[cfg(test)]
mod tests {
    use super::leading_float;

    #[test]
    fn the_number_at_the_beginning_is_found_in_no_time() {
        for (text, number) in
            [(&b"1.5e3x"[..], 1500.0), (b".5-", 0.5), (b"2\xff", 2.0), (b"x", 0.0), (b"", 0.0)]
        {
            assert_eq!(leading_float(text), number, "{}", text.escape_ascii());
        }
        let long = [b"1".repeat(1_000_000), b"e".repeat(1_000_000)].concat();
        assert!(leading_float(&long) > 1e60);
    }
}
