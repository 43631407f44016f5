//! Commands that compare a string before they act: DELIFEQ, DELEX, and SET with IFEQ, IFNE, IFDEQ or IFDNE
//! ([`Condition`]). Also DIGEST and MSETEX.

use super::{Options, record_set, value_of};
use crate::call::Call;
use crate::errors;
use crate::parse::{Text, string_of};
use crate::run::arg;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Db, Key, KeyEvent, StrRef};
use strand_wire::args::Args;

/// Number of hexadecimal digits of a digest.
const DIGITS: usize = 16;
/// Maximum length of a value that SET compares. It is limited because SET always runs on the worker.
const COMPARED_BYTES_MAX: usize = crate::cost::LONG_BYTES;
/// Maximum length of a string whose digest SET computes: 0.8 ms of work.
const DIGESTED_BYTES_MAX: usize = 8 * crate::cost::LONG_BYTES;

const BAD_DIGEST: &str = "ERR must be exactly 16 hexadecimal characters";
const BAD_CONDITION: &str = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE";
const NOT_A_STRING: &str = "ERR Key should be of string type if conditions are specified";
const DELEX_ARITY: &str = "ERR wrong number of arguments for 'delex' command";
const BAD_NUMBER: &str = "ERR invalid numkeys value";
const TOO_FEW: &str = "ERR wrong number of key-value pairs";

/// `DELIFEQ key value`: removes the key if its string is equal to the value. Reply: 1 when it was removed, else 0.
pub(crate) fn delifeq(call: &mut Call<'_, '_>) {
    let value = call.args.at(2);
    remove_if(call, |s| s.is_some_and(|s| is_equal(s, value)));
}

/// `DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]`. Without a condition, removes a key of any
/// type. With a condition, removes a key whose string meets it. Reply: 1 when the key was removed, else 0.
pub(crate) fn delex(call: &mut Call<'_, '_>) {
    let args = call.args;
    if args.len() == 2 {
        let removed = delete(&mut call.txn.db(call.db), &call.keys[0]);
        return call.reply.int(removed.into());
    }
    let given = if args.len() == 4 { args.at(3) } else { return call.reply.error(DELEX_ARITY) };
    // As in Redis, the key is looked up before the condition is read.
    match string_of(call.txn.db(call.db).peek(&call.keys[0])) {
        Ok(Some(_)) => {}
        Ok(None) => return call.reply.int(0),
        Err(_) => return call.reply.error(NOT_A_STRING),
    }
    let Some(condition) = Condition::of(args.at(2)) else { return call.reply.error(BAD_CONDITION) };
    match condition.check(given) {
        Ok(()) => remove_if(call, |s| s.is_some_and(|s| condition.is_met(s, given))),
        Err(text) => call.reply.error(text),
    }
}

/// `DIGEST key`. Reply: the XXH3 hash of the string as 16 hexadecimal digits, null for a missing key.
pub(crate) fn digest(call: &mut Call<'_, '_>) {
    match string_of(call.txn.db(call.db).get(&call.keys[0])) {
        Ok(Some(s)) => {
            let digest = digest_of(s);
            call.reply.bulk(digest.as_bytes());
        }
        Ok(None) => call.reply.null(),
        Err(text) => call.reply.error(text),
    }
}

/// `MSETEX numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT time | PXAT time |
/// KEEPTTL]`. Reply: 1 when all keys were set; 0 when none was, because one exists (NX) or one is missing (XX).
pub(crate) fn msetex(call: &mut Call<'_, '_>) {
    match set_many(call) {
        Ok(set) => call.reply.int(set.into()),
        Err(text) => call.reply.error(&text),
    }
}

fn set_many(call: &mut Call<'_, '_>) -> Result<bool, Text> {
    let args = call.args;
    let SetMany { expire_at_ms, must_exist, keep_ttl, .. } = SetMany::read(args, call.now_ms)?;
    let mut db = call.txn.db(call.db);
    if let Some(must_exist) = must_exist
        && !call.keys.iter().all(|key| db.peek(key).is_some() == must_exist)
    {
        return Ok(false);
    }
    for (i, key) in call.keys.iter().enumerate() {
        let kept_ms = if keep_ttl { db.peek(key).and_then(|record| record.expire_at_ms()) } else { None };
        let value = SetMany::KEY + 2 * i + 1;
        db.set_str(key, value_of(args, value), expire_at_ms.or(kept_ms));
        if expire_at_ms.is_some() {
            db.report_event(key, KeyEvent::EXPIRE);
        }
        let expire_at_ms = expire_at_ms.or(kept_ms);
        record_set(&mut db, key, arg(args, value), expire_at_ms);
    }
    Ok(true)
}

/// The arguments of MSETEX besides the keys and the values.
pub(crate) struct SetMany {
    /// Number of keys. The last value of a key counts if the key is given several times.
    pub(crate) pairs: usize,
    /// True: nothing is set if a key is missing. False: nothing is set if a key exists.
    pub(crate) must_exist: Option<bool>,
    /// Each key keeps its expiry.
    pub(crate) keep_ttl: bool,
    /// The expiry of all keys, in unix milliseconds.
    pub(crate) expire_at_ms: Option<i64>,
}

impl SetMany {
    /// The index of the first key. The key's value follows the key.
    pub(crate) const KEY: usize = 2;

    /// # Errors
    /// The error with which MSETEX replies.
    pub(crate) fn read(args: Args<'_>, now_ms: i64) -> Result<SetMany, Text> {
        let pairs = parse_int(args.at(1)).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let pairs = pairs.ok_or(BAD_NUMBER)?;
        if pairs > (args.len() - 2) / 2 {
            return Err(TOO_FEW.into());
        }
        let options = Options::read(args, SetMany::KEY + 2 * pairs, true)?;
        if options.get || options.compared.is_some() {
            return Err(errors::SYNTAX.into());
        }
        Ok(SetMany {
            pairs,
            must_exist: (options.nx || options.xx).then_some(options.xx),
            keep_ttl: options.keep_ttl,
            expire_at_ms: options.expiry_ms(args, now_ms, "msetex")?,
        })
    }
}

/// A condition on the string at a key.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    /// The digests are compared, not the bytes.
    by_digest: bool,
    /// True: they must be equal. False: they must differ.
    equal: bool,
}

impl Condition {
    /// The condition with this name.
    pub(super) fn of(word: &[u8]) -> Option<Condition> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let (by_digest, equal) = match () {
            () if is("IFEQ") => (false, true),
            () if is("IFNE") => (false, false),
            () if is("IFDEQ") => (true, true),
            () if is("IFDNE") => (true, false),
            () => return None,
        };
        Some(Condition { by_digest, equal })
    }
    /// Checks the argument after the condition's name.
    fn check(self, given: &[u8]) -> Result<(), &'static str> {
        let is_digest = || given.len() == DIGITS && given.iter().all(u8::is_ascii_hexdigit);
        if self.by_digest && !is_digest() { Err(BAD_DIGEST) } else { Ok(()) }
    }
    fn is_met(self, s: StrRef<'_>, given: &[u8]) -> bool {
        let is_equal = match self.by_digest {
            true => digest_of(s).as_bytes().eq_ignore_ascii_case(given),
            false => is_equal(s, given),
        };
        is_equal == self.equal
    }
    /// True when SET may set the key, which has this string. A missing key has none, and differs from everything.
    ///
    /// # Errors
    /// The error with which SET replies.
    pub(super) fn allows_set(self, s: Option<StrRef<'_>>, given: &[u8]) -> Result<bool, Text> {
        self.check(given)?;
        let too_long = |what: &str, most: usize| Err(format!("ERR {what} of at most {most} bytes").into());
        match s {
            _ if !self.by_digest && given.len() > COMPARED_BYTES_MAX => {
                too_long("IFEQ and IFNE compare values", COMPARED_BYTES_MAX)
            }
            Some(s) if self.by_digest && s.len() > DIGESTED_BYTES_MAX => {
                too_long("IFDEQ and IFDNE compare the digest of a string", DIGESTED_BYTES_MAX)
            }
            Some(s) => Ok(self.is_met(s, given)),
            None => Ok(!self.equal),
        }
    }
}

/// Removes the key if `is` returns true for the string at the key.
fn remove_if(call: &mut Call<'_, '_>, is: impl FnOnce(Option<StrRef<'_>>) -> bool) {
    let mut db = call.txn.db(call.db);
    match string_of(db.peek(&call.keys[0])).map(is) {
        Ok(removed) => call.reply.int((removed && delete(&mut db, &call.keys[0])).into()),
        Err(text) => call.reply.error(text),
    }
}

fn delete(db: &mut Db<'_, '_>, key: &Key<'_>) -> bool {
    let deleted = db.delete(key);
    if deleted {
        db.effect(&[b"DEL".into(), key.bytes.into()]);
    }
    deleted
}

/// True when the string has these bytes.
fn is_equal(s: StrRef<'_>, bytes: &[u8]) -> bool {
    s.len() == bytes.len() && s.bytes(&mut Default::default()) == bytes
}

fn digest_of(s: StrRef<'_>) -> String {
    strand_digest::xxh3_text(s.bytes(&mut Default::default()))
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    #[test]
    fn keys_are_removed_if_their_string_is_so() {
        let mut f = Fixture::new();
        f.script(&[
            ("MSET a x b 12 c x", "+OK|"),
            ("RPUSH l 1", ":1|"),
            ("DELIFEQ a y", ":0|"),
            ("DELIFEQ a x", ":1|"),
            ("DELIFEQ a x", ":0|"),
            ("DELIFEQ b 12", ":1|"),
            ("DELIFEQ l 1", WRONG_TYPE),
            ("DELEX c IFNE x", ":0|"),
            ("DELEX c IFEQ y", ":0|"),
            ("DELEX c IFNE y", ":1|"),
            ("DELEX c IFNE y", ":0|"),
            ("DELEX l IFNE y", "-ERR Key should be of string type if conditions are specified|"),
            ("DELEX l", ":1|"),
            ("DELEX l", ":0|"),
            ("DELEX l IFEQ", "-ERR wrong number of arguments for 'delex' command|"),
            ("DELEX l FOO 1", ":0|"),
            ("SET s 1", "+OK|"),
            ("DELEX s FOO 1", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE|"),
        ]);
    }

    #[test]
    fn digests_are_those_of_xxh3() {
        let mut f = Fixture::new();
        f.script(&[
            ("DIGEST none", "$-1|"),
            ("SET e ''", "+OK|"),
            // The published XXH3 hash of an empty string with seed 0.
            ("DIGEST e", "$16|2d06800538d394c2|"),
            ("DELEX e IFDEQ 2D06800538D394C3", ":0|"),
            ("DELEX e IFDNE 2D06800538D394C2", ":0|"),
            ("DELEX e IFDEQ 2d0", "-ERR must be exactly 16 hexadecimal characters|"),
            ("DELEX e IFDEQ 2D06800538D394C2", ":1|"),
            ("RPUSH l 1", ":1|"),
            ("DIGEST l", WRONG_TYPE),
        ]);
    }

    #[test]
    fn set_with_a_condition_compares_the_value_or_its_digest() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a 2 IFEQ 1", "$-1|"),
            ("EXISTS a", ":0|"),
            ("SET a 2 IFEQ 1 GET", "$-1|"),
            ("SET a 1", "+OK|"),
            ("SET a 2 IFEQ 3", "$-1|"),
            ("SET a 2 IFEQ 3 GET", "$1|1|"),
            ("SET a 2 IFEQ 1 EX 100", "+OK|"),
            ("TTL a", ":100|"),
            ("SET a x KEEPTTL IFEQ 2 GET", "$1|2|"),
            ("GET a", "$1|x|"),
            ("TTL a", ":100|"),
            ("SET a 1 IFEQ x NX", "-ERR syntax error|"),
            ("SET a 1 XX IFEQ x", "-ERR syntax error|"),
            ("SET a 1 IFEQ", "-ERR syntax error|"),
            ("RPUSH l 1", ":1|"),
            ("SET l 1 IFEQ 1", WRONG_TYPE),
        ]);
        f.script(&[
            ("SET n 1 IFNE 1", "+OK|"),
            ("SET n 2 IFNE 1", "$-1|"),
            ("SET n 2 IFNE 3 GET", "$1|1|"),
            ("SET n 3 IFEQ 2 IFNE 2", "-ERR syntax error|"),
            ("SET l 1 IFNE 1", WRONG_TYPE),
            ("SET e '' PX 5000", "+OK|"),
            ("SET e x IFDNE 2D06800538D394C2 GET", "$0||"),
            ("SET e x IFDEQ 2D06800538D394C3", "$-1|"),
            ("SET e '' KEEPTTL IFDEQ 2D06800538D394C2", "+OK|"),
            ("PTTL e", ":5000|"),
            ("SET e x IFDEQ 2D06800538D394C2 GET", "$0||"),
            ("GET e", "$1|x|"),
            ("SET none x IFDEQ 2D06800538D394C2", "$-1|"),
            ("SET none x IFDEQ 2D0", "-ERR must be exactly 16 hexadecimal characters|"),
            ("SET none x IFDNE 2D06800538D394C2 GET", "$-1|"),
            ("GET none", "$1|x|"),
        ]);
        f.run(&format!("SETRANGE huge {} x", super::DIGESTED_BYTES_MAX));
        let refused = "-ERR IFDEQ and IFDNE compare the digest of a string of at most 8388608 bytes|";
        assert_eq!(f.run("SET huge x IFDNE 2D06800538D394C2 GET"), refused);
        let long = "x".repeat(super::COMPARED_BYTES_MAX + 1);
        let reply = f.run_args(&["SET", "a", "1", "IFEQ", &long]);
        assert_eq!(reply, b"-ERR IFEQ and IFNE compare values of at most 1048576 bytes\r\n");
    }

    #[test]
    fn many_are_set_together() {
        let mut f = Fixture::new();
        f.script(&[
            ("MSETEX 2 a 1 b 2 EX 10", ":1|"),
            ("TTL b", ":10|"),
            ("MSETEX 2 a 3 c 3 NX", ":0|"),
            ("MSETEX 2 a 3 c 3 XX", ":0|"),
            ("MGET a b c", "*3|$1|1|$1|2|$-1|"),
            ("MSETEX 2 a 3 b 3 XX KEEPTTL", ":1|"),
            ("TTL a", ":10|"),
            ("MSETEX 1 a 4", ":1|"),
            ("TTL a", ":-1|"),
            ("MSETEX 0 a 4", "-ERR invalid numkeys value|"),
            ("MSETEX x a 4", "-ERR invalid numkeys value|"),
            ("MSETEX 2 a 4", "-ERR wrong number of key-value pairs|"),
            ("MSETEX 2 a 4 b", "-ERR wrong number of key-value pairs|"),
            ("MSETEX 1 a 4 GET", "-ERR syntax error|"),
            ("MSETEX 1 a 4 EX 0", "-ERR invalid expire time in 'msetex' command|"),
        ]);
    }
}
