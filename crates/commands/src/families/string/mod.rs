//! The string commands about whole values. `number` has INCR and similar commands, `range` the commands on parts of
//! strings, `lcs` LCS, and `compare` the commands with a condition.
//!
//! If an argument has an allocation of its own, it becomes the value without a copy. A reply shares the allocation
//! of a long value.

mod compare;
mod lcs;
mod number;
mod range;

pub(crate) use compare::{SetMany, delex, delifeq, digest, msetex};
pub(crate) use lcs::lcs;
pub(crate) use number::{decr, decrby, incr, incrby, incrbyfloat};
pub(crate) use range::{append, getrange, setrange, strlen, substr};

use self::compare::Condition;
use crate::call::Call;
use crate::errors;
use crate::families::expiry;
use crate::parse::{self, ExpiryUnit, Text, string_of};
use crate::run::arg;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Db, Key, KeyEvent, StrRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Maximum length of the text of an integer, in bytes. A longer argument is no integer.
const INTEGER_BYTES_MAX: usize = 20;

/// `GET key`. Reply: the value, or null.
pub(crate) fn get(call: &mut Call<'_, '_>) {
    get_replied(call);
}

/// `GETDEL key`: removes the key. Reply: its value, or null.
pub(crate) fn getdel(call: &mut Call<'_, '_>) {
    if get_replied(call) == Some(true) {
        call.txn.db(call.db).remove(&call.keys[0]);
    }
}

/// `GETSET key value`: sets the key. Reply: its former value, or null.
pub(crate) fn getset(call: &mut Call<'_, '_>) {
    if get_replied(call).is_some() {
        call.txn.db(call.db).set_str(&call.keys[0], value_of(call.args, 2), None);
    }
}

/// `MGET key [key ...]`. Reply: an array of values, null for a missing key and for a key that has no string.
pub(crate) fn mget(call: &mut Call<'_, '_>) {
    call.reply.array(call.keys.len());
    let mut db = call.txn.db(call.db);
    for key in call.keys {
        if call.reply.exceeds_limit() {
            break;
        }
        match string_of(db.get(key)) {
            Ok(Some(s)) => write(call.reply, s),
            _ => call.reply.null(),
        }
    }
}

/// `SET key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET] [EX seconds | PX milliseconds | EXAT time |
/// PXAT time | KEEPTTL]`
pub(crate) fn set(call: &mut Call<'_, '_>) {
    if call.args.len() == 3 {
        call.txn.db(call.db).set_str(&call.keys[0], value_of(call.args, 2), None);
        return call.reply.ok();
    }
    if let Err(text) = set_with_options(call) {
        call.reply.error(&text);
    }
}

/// `SETNX key value`: sets the key if it is missing. Reply: 1 when it was set, else 0.
pub(crate) fn setnx(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let free = db.get_to_write(&call.keys[0]).is_none();
    if free {
        db.set_str(&call.keys[0], value_of(call.args, 2), None);
    }
    call.reply.int(free.into());
}

/// `SETEX key seconds value`: sets the key with an expiry. Reply: OK.
pub(crate) fn setex(call: &mut Call<'_, '_>) {
    set_expiring(call, ExpiryUnit::Seconds, "setex");
}

/// `PSETEX key milliseconds value`: like SETEX, in milliseconds.
pub(crate) fn psetex(call: &mut Call<'_, '_>) {
    set_expiring(call, ExpiryUnit::Millis, "psetex");
}

/// `GETEX key [EX seconds | PX milliseconds | EXAT time | PXAT time | PERSIST]`
pub(crate) fn getex(call: &mut Call<'_, '_>) {
    if let Err(text) = getex_with_options(call) {
        call.reply.error(&text);
    }
}

/// `MSET key value [key value ...]`: sets all keys at one moment. Reply: OK.
pub(crate) fn mset(call: &mut Call<'_, '_>) {
    if call.args.len().is_multiple_of(2) {
        return call.reply.error("ERR wrong number of arguments for 'mset' command");
    }
    set_all(call);
    call.reply.ok();
}

/// `MSETNX key value [key value ...]`: sets all keys if none of them exists. Reply: 1 when they were set, else 0.
pub(crate) fn msetnx(call: &mut Call<'_, '_>) {
    if call.args.len().is_multiple_of(2) {
        return call.reply.error("ERR wrong number of arguments for 'msetnx' command");
    }
    let mut db = call.txn.db(call.db);
    if call.keys.iter().any(|key| db.get_to_write(key).is_some()) {
        return call.reply.int(0);
    }
    set_all(call);
    call.reply.int(1);
}

/// Replies with a string. For a long string the reply shares its allocation.
#[inline]
pub(super) fn write(reply: &mut Reply<'_>, s: StrRef<'_>) {
    match s {
        StrRef::Int(n) => reply.bulk_int(n),
        StrRef::Bytes { bytes, .. } => reply.bulk(bytes),
        StrRef::Blob { blob, .. } => reply.bulk_blob(blob),
    }
}

/// Argument `i` as a string value. It is an integer if the text is one. If the argument has an allocation of its
/// own, the value shares it.
#[inline]
pub(crate) fn value_of(args: Args<'_>, i: usize) -> StrRef<'_> {
    let bytes = args.at(i);
    if bytes.len() <= INTEGER_BYTES_MAX {
        return StrRef::of(bytes);
    }
    match args.large(i) {
        Some(blob) => StrRef::Blob { blob, edited: false },
        None => StrRef::Bytes { bytes, edited: false },
    }
}

/// Replies as GET does. Returns true when the key has a string, false when it is missing, and `None` when the reply
/// is an error.
fn get_replied(call: &mut Call<'_, '_>) -> Option<bool> {
    let mut db = call.txn.db(call.db);
    match string_of(db.get(&call.keys[0])) {
        Ok(Some(s)) => write(call.reply, s),
        Ok(None) => {
            call.reply.null();
            return Some(false);
        }
        Err(text) => {
            call.reply.error(text);
            return None;
        }
    }
    Some(true)
}

fn set_all(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    for (i, key) in call.keys.iter().enumerate() {
        db.set_str(key, value_of(call.args, 2 + 2 * i), None);
    }
}

fn set_expiring(call: &mut Call<'_, '_>, unit: ExpiryUnit, command: &str) {
    match parse::expiry_ms(call.args.at(2), unit, call.now_ms, command) {
        Ok(at) => {
            let (mut db, key) = (call.txn.db(call.db), &call.keys[0]);
            db.set_str(key, value_of(call.args, 3), Some(at));
            db.report_event(key, KeyEvent::EXPIRE);
            record_set(&mut db, key, arg(call.args, 3), Some(at));
            call.reply.ok();
        }
        Err(text) => call.reply.error(&text),
    }
}

/// Records the effect of setting a string.
pub(crate) fn record_set(db: &mut Db<'_, '_>, key: &Key<'_>, value: Arg<'_>, expire_at_ms: Option<i64>) {
    if !db.is_recorded() {
        return;
    }
    let set = [b"SET".into(), key.bytes.into(), value];
    match expire_at_ms.map(|ms| ms.to_string()) {
        None => db.effect(&set),
        Some(ms) => {
            let [name, key, value] = set;
            db.effect(&[name, key, value, b"PXAT".into(), ms.as_bytes().into()]);
        }
    }
}

/// The options that SET and GETEX share, as the client sent them.
#[derive(Default)]
struct Options {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    /// A condition on the former value, and the index of its argument.
    compared: Option<(Condition, usize)>,
    /// The unit of the expiry, and the position of its number among the arguments.
    expiry: Option<(ExpiryUnit, usize)>,
}

impl Options {
    /// Reads the options, beginning at argument `from`. A unit may be repeated; then the last number counts, as in
    /// Redis.
    fn read(args: Args<'_>, from: usize, of_set: bool) -> Result<Options, Text> {
        let mut options = Options::default();
        let mut at = from;
        while at < args.len() {
            let (word, o) = (args.at(at), &mut options);
            let is = |w: &str| word.eq_ignore_ascii_case(w.as_bytes());
            let no_expiry = o.expiry.is_none() && !o.persist;
            if of_set && is("NX") && !o.xx && o.compared.is_none() {
                o.nx = true;
            } else if of_set && is("XX") && !o.nx && o.compared.is_none() {
                o.xx = true;
            } else if of_set && is("GET") {
                o.get = true;
            } else if of_set && is("KEEPTTL") && no_expiry {
                o.keep_ttl = true;
            } else if !of_set && is("PERSIST") && o.expiry.is_none() {
                o.persist = true;
            } else if let Some(unit) = ExpiryUnit::from_option(word)
                && !o.keep_ttl
                && !o.persist
                && o.expiry.is_none_or(|(other, _)| other == unit)
                && at + 1 < args.len()
            {
                o.expiry = Some((unit, at + 1));
                at += 1;
            } else if of_set
                && let Some(condition) = Condition::of(word)
                && !o.nx
                && !o.xx
                && o.compared.is_none()
                && at + 1 < args.len()
            {
                o.compared = Some((condition, at + 1));
                at += 1;
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 1;
        }
        Ok(options)
    }
    /// The expiry in unix milliseconds, if an option gives one.
    fn expiry_ms(&self, args: Args<'_>, now_ms: i64, command: &str) -> Result<Option<i64>, Text> {
        self.expiry.map(|(unit, at)| parse::expiry_ms(args.at(at), unit, now_ms, command)).transpose()
    }
}

fn set_with_options(call: &mut Call<'_, '_>) -> Result<(), Text> {
    let options = Options::read(call.args, 3, true)?;
    let mut expire_at_ms = options.expiry_ms(call.args, call.now_ms, "set")?;
    let key = &call.keys[0];
    let mut db = call.txn.db(call.db);
    let is_met = match options.compared {
        Some((condition, at)) => condition.allows_set(string_of(db.peek(key))?, call.args.at(at))?,
        None => true,
    };
    if options.get {
        match string_of(db.get(key))? {
            Some(s) => write(call.reply, s),
            None => call.reply.null(),
        }
    }
    if !is_met {
        if !options.get {
            call.reply.null();
        }
        return Ok(());
    }
    if options.nx || options.xx || options.keep_ttl {
        // A refused SET NX counts as a use, as in redis-server, so that a lock that clients ask for is not evicted.
        let old = if options.nx { db.get_to_write(key) } else { db.peek(key) };
        if (options.nx && old.is_some()) || (options.xx && old.is_none()) {
            if !options.get {
                call.reply.null();
            }
            return Ok(());
        }
        if options.keep_ttl {
            expire_at_ms = old.and_then(|r| r.expire_at_ms());
        }
    }
    db.set_str(key, value_of(call.args, 2), expire_at_ms);
    if expire_at_ms.is_some() && !options.keep_ttl {
        db.report_event(key, KeyEvent::EXPIRE);
    }
    record_set(&mut db, key, arg(call.args, 2), expire_at_ms);
    if !options.get {
        call.reply.ok();
    }
    Ok(())
}

fn getex_with_options(call: &mut Call<'_, '_>) -> Result<(), Text> {
    let options = Options::read(call.args, 2, false)?;
    let key = &call.keys[0];
    // When the key is missing, an error in the number is not reported, as in Redis.
    if string_of(call.txn.db(call.db).peek(key))?.is_none() {
        call.txn.db(call.db).count_lookup(false);
        call.reply.null();
        return Ok(());
    }
    let expire_at_ms = options.expiry_ms(call.args, call.now_ms, "getex")?;
    get_replied(call);
    call.txn.set_event(match expire_at_ms {
        Some(at) if call.txn.is_past(at) => KeyEvent::DEL,
        Some(_) => KeyEvent::EXPIRE,
        None => KeyEvent::PERSIST,
    });
    let is_past = expire_at_ms.is_some_and(|at| call.txn.is_past(at));
    let mut db = call.txn.db(call.db);
    match expire_at_ms {
        Some(_) if is_past => {
            db.remove(key);
            db.effect(&[b"DEL".into(), key.bytes.into()]);
        }
        Some(at) => {
            db.set_expiry(key, Some(at));
            expiry::record_expiry(&mut db, key, at);
        }
        None if options.persist && db.peek(key).is_some_and(|r| r.expire_at_ms().is_some()) => {
            db.set_expiry(key, None);
            db.effect(&[b"PERSIST".into(), key.bytes.into()]);
        }
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, START_MS};

    const SYNTAX: &str = "-ERR syntax error|";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    #[test]
    fn get_returns_the_bytes_that_set_stored() {
        Fixture::new().script(&[
            ("GET a", "$-1|"),
            ("SET a hello", "+OK|"),
            ("GET a", "$5|hello|"),
            ("SET a 0042", "+OK|"),
            ("GET a", "$4|0042|"),
            ("SET a -9223372036854775808", "+OK|"),
            ("GET a", "$20|-9223372036854775808|"),
            ("SET a ''", "+OK|"),
            ("GET a", "$0||"),
            ("MGET a b a", "*3|$0||$-1|$0||"),
        ]);
    }

    #[test]
    fn set_obeys_nx_and_xx() {
        Fixture::new().script(&[
            ("SET a 1 XX", "$-1|"),
            ("SET a 1 NX", "+OK|"),
            ("SET a 2 nx", "$-1|"),
            ("SET a 2 NX GET", "$1|1|"),
            ("GET a", "$1|1|"),
            ("SET b 1 NX GET", "$-1|"),
            ("GET b", "$1|1|"),
            ("SET a 3 XX GET", "$1|1|"),
            ("SET c 3 XX GET", "$-1|"),
            ("GET c", "$-1|"),
            ("GET a", "$1|3|"),
            ("SET a 1 NX XX", SYNTAX),
            ("SET a 1 EX", SYNTAX),
            ("SET a 1 EX 1 PX 1", SYNTAX),
            ("SET a 1 KEEPTTL EX 1", SYNTAX),
            ("SET a 1 EX 1 KEEPTTL", SYNTAX),
            ("SET a 1 PERSIST", SYNTAX),
            ("SET a 1 FOO", SYNTAX),
            ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command|"),
            ("SET a 1 EX x", "-ERR value is not an integer or out of range|"),
            ("SET a 1 EX 1 EX 5", "+OK|"),
            ("PTTL a", ":5000|"),
        ]);
    }

    #[test]
    fn expiry_is_set_kept_and_taken() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a 1 PX 1500", "+OK|"),
            ("PTTL a", ":1500|"),
            ("SET a 2 KEEPTTL", "+OK|"),
            ("PTTL a", ":1500|"),
        ]);
        f.advance_ms(1499);
        f.script(&[("GET a", "$1|2|"), ("GETEX a", "$1|2|"), ("PTTL a", ":1|")]);
        f.advance_ms(1);
        f.script(&[
            ("GET a", "$-1|"),
            ("SETEX a 10 x", "+OK|"),
            ("PTTL a", ":10000|"),
            ("PSETEX a 10 x", "+OK|"),
            ("PTTL a", ":10|"),
        ]);
        f.script(&[("SET a x", "+OK|"), ("PTTL a", ":-1|"), ("SET a x PXAT 1", "+OK|"), ("GET a", "$-1|")]);
        let at = format!("SET a x PXAT {}", START_MS + 5000);
        f.script(&[(&at, "+OK|"), ("PTTL a", ":3500|"), ("GETSET a y", "$1|x|"), ("PTTL a", ":-1|")]);
        f.script(&[("SETEX a 0 x", "-ERR invalid expire time in 'setex' command|")]);
        f.script(&[("PSETEX a -1 x", "-ERR invalid expire time in 'psetex' command|")]);
    }

    #[test]
    fn getex_changes_the_expiry() {
        let mut f = Fixture::new();
        f.script(&[
            ("GETEX a EX 0", "$-1|"),
            ("SET a x", "+OK|"),
            ("GETEX a EX 0", "-ERR invalid expire time in 'getex' command|"),
            ("GETEX a EX 10", "$1|x|"),
            ("PTTL a", ":10000|"),
            ("GETEX a PERSIST", "$1|x|"),
            ("PTTL a", ":-1|"),
            ("GETEX a EX 1 PERSIST", SYNTAX),
            ("GETEX a PERSIST EX 1", SYNTAX),
            ("GETEX a NX", SYNTAX),
            ("GETEX a KEEPTTL", SYNTAX),
            ("GETEX a PXAT 1", "$1|x|"),
            ("GET a", "$-1|"),
            ("HSET h f v", ":1|"),
            ("GETEX h", WRONG_TYPE),
        ]);
    }

    #[test]
    fn mset_and_msetnx_set_all_keys_or_none() {
        Fixture::new().script(&[
            ("MSET a 1 b 2 a 3", "+OK|"),
            ("MGET a b c", "*3|$1|3|$1|2|$-1|"),
            ("MSETNX c 1 a 9", ":0|"),
            ("MSETNX c 1 d 2", ":1|"),
            ("MGET c d", "*2|$1|1|$1|2|"),
            ("MSET a", "-ERR wrong number of arguments for 'mset' command|"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command|"),
            ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command|"),
            ("SETNX a 1", ":0|"),
            ("SETNX e 1", ":1|"),
            ("GETDEL e", "$1|1|"),
            ("GETDEL e", "$-1|"),
        ]);
    }

    #[test]
    fn other_types_are_refused() {
        let mut f = Fixture::new();
        f.run("HSET h f v");
        for line in ["GET h", "GETDEL h", "GETSET h x", "SET h x GET", "GETEX h EX 1"] {
            assert_eq!(f.run(line), WRONG_TYPE, "{line}");
        }
        f.script(&[("MGET h", "*1|$-1|"), ("SETNX h x", ":0|"), ("SET h x", "+OK|"), ("GET h", "$1|x|")]);
    }

    #[test]
    fn a_large_value_is_shared_and_not_copied() {
        use strand_chain::Blob;
        use strand_wire::args::Argv;
        let mut argv = Argv::from_slices(&["SET", "a"]);
        let blob = Blob::from(&vec![b'x'; 100_000][..]);
        argv.push_blob(blob.clone());
        let value = super::value_of(argv.args(), 2);
        let strand_keyspace::StrRef::Blob { blob: kept, edited: false } = value else {
            panic!("a raw string")
        };
        assert_eq!(kept.as_slice().as_ptr(), blob.as_slice().as_ptr());
    }
}
