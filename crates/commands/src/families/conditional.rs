//! SETIF, DELIF and HREPLACE: writes with a condition, as conditional requests of HTTP need them. Every client can
//! use them.
//!
//! A [`WriteCondition`] is the condition: the key exists, or the key is missing, or the key has a string with a certain
//! [`Digest`]. It is checked while the key's shard is locked. The reply is 1 (the write was done and the key had
//! existed), 0 (the write was done and the key had been missing), or null (the condition failed, so nothing was
//! done).

use crate::call::{Call, LaneCall};
use crate::errors;
use crate::families::collection::argument;
use crate::families::expiry;
use crate::families::string::{record_set, value_of};
use crate::parse::{self, ExpiryUnit, Text};
use crate::run::arg;
use crate::spec::Arg;
use smallvec::SmallVec;
use strand_digest::Digest;
use strand_keyspace::journal::Arg as EffectArg;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{AsValue, Db, HashValue, Key, Settings, ValueRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// The argument NX or XX of these commands: see [`WriteCondition::read`].
pub(crate) const CONDITION: Arg =
    Arg::oneof("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional();
/// The argument SEED of these commands: the seed with which digests are computed.
pub(crate) const SEED: Arg = Arg::integer("seed").token("SEED").optional();
/// The argument LIMIT of these commands: the maximum length of a string that has a digest.
pub(crate) const LIMIT: Arg = Arg::integer("bytes").token("LIMIT").optional();
/// The argument MATCH of these commands: the value must have one of these digests.
pub(crate) const MATCH: Arg = Arg::string("match").token("MATCH").optional().multiple().multiple_token();
/// The argument NOMATCH of these commands: the value must have none of these digests.
pub(crate) const NOMATCH: Arg =
    Arg::string("nomatch").token("NOMATCH").optional().multiple().multiple_token();
/// The arguments of SETIF and HREPLACE that give the expiry of the new value.
pub(crate) const EXPIRATION: Arg = Arg::oneof(
    "expiration",
    &[
        Arg::integer("seconds").token("EX"),
        Arg::integer("milliseconds").token("PX"),
        Arg::unix_time("unix-time-seconds").token("EXAT"),
        Arg::unix_time("unix-time-milliseconds").token("PXAT"),
        Arg::word("keepttl", "KEEPTTL"),
    ],
)
.optional();

/// The word that may be given in place of a digest. It stands for any value.
const ANY: &[u8] = b"*";
/// Number of fields that HREPLACE adds on the lane between two pauses.
const PAIRS_PER_SLICE: usize = 64;

/// `SETIF key value [NX | XX] [SEED seed] [LIMIT bytes] [MATCH digest ...] [NOMATCH digest ...]
/// [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]`
pub(crate) fn setif(call: &mut Call<'_, '_>) {
    let rule = match WriteCondition::read(
        call.args,
        3,
        AcceptedOptions { digests: true, expiry: true, fields: false },
    ) {
        Ok((rule, _)) => rule,
        Err(text) => return call.reply.error(&text),
    };
    let (args, key, now_ms) = (call.args, &call.keys[0], call.now_ms);
    let mut db = call.txn.db(call.db);
    let done = rule.write(&mut db, key, args, now_ms, "setif", |db, expire_at_ms| {
        db.set_str(key, value_of(args, 2), expire_at_ms);
        record_set(db, key, arg(args, 2), expire_at_ms);
    });
    answer(call.reply, done);
}

/// `DELIF key [NX | XX] [SEED seed] [LIMIT bytes] [MATCH digest ...] [NOMATCH digest ...]`. Reply: see the module.
pub(crate) fn delif(call: &mut Call<'_, '_>) {
    let rule = match WriteCondition::read(
        call.args,
        2,
        AcceptedOptions { digests: true, expiry: false, fields: false },
    ) {
        Ok((rule, _)) => rule,
        Err(text) => return call.reply.error(&text),
    };
    let (args, key, now_ms) = (call.args, &call.keys[0], call.now_ms);
    let mut db = call.txn.db(call.db);
    let done = rule.write(&mut db, key, args, now_ms, "delif", |db, _| {
        if db.delete(key) {
            db.effect(&[b"DEL".into(), key.bytes.into()]);
        }
    });
    answer(call.reply, done);
}

/// `HREPLACE key [NX | XX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] FIELDS field value [field
/// value ...]`
pub(crate) fn hreplace(call: &mut Call<'_, '_>) {
    let (rule, from) = match read_hreplace(call.args) {
        Ok(read) => read,
        Err(text) => return call.reply.error(&text),
    };
    let (args, key, now_ms) = (call.args, &call.keys[0], call.now_ms);
    let mut hash = HashValue::new();
    add(&mut hash, args, from, usize::MAX, call.txn.keyspace().settings());
    let mut db = call.txn.db(call.db);
    let done = rule.write(&mut db, key, args, now_ms, "hreplace", |db, expire_at_ms| {
        db.insert(key, hash.into_value(), expire_at_ms);
        record_replaced_hash(db, key, args, from, expire_at_ms);
    });
    answer(call.reply, done);
}

/// HREPLACE of many fields, on the lane. The new hash is built while no shard is locked.
pub(crate) fn hreplace_long(call: &mut LaneCall<'_>) {
    let (rule, first) = match read_hreplace(call.args) {
        Ok(read) => read,
        Err(text) => return call.reply.error(&text),
    };
    let (args, now_ms) = (call.args, call.now_ms);
    let (mut hash, mut from) = (HashValue::new(), first);
    while from < args.len() {
        from = add(&mut hash, args, from, PAIRS_PER_SLICE, call.keyspace.settings());
        call.pause();
    }
    let key = call.keyspace.key(args.at(1));
    let mut txn = call.lock(&[key.hash]);
    let done = rule.write(&mut txn.db(call.db), &key, args, now_ms, "hreplace", |db, expire_at_ms| {
        db.insert(&key, hash.into_value(), expire_at_ms);
        record_replaced_hash(db, &key, args, first, expire_at_ms);
    });
    drop(txn);
    answer(call.reply, done);
}

/// Records the effect of HREPLACE. The fields with their values begin at argument `from`.
fn record_replaced_hash(
    db: &mut Db<'_, '_>,
    key: &Key<'_>,
    args: Args<'_>,
    from: usize,
    expire_at_ms: Option<i64>,
) {
    if !db.is_recorded() {
        return;
    }
    db.effect(&[b"DEL".into(), key.bytes.into()]);
    let pairs: Vec<EffectArg<'_>> = (from..args.len()).map(|at| arg(args, at)).collect();
    db.effect(&[&[b"HSET".into(), key.bytes.into()], &pairs[..]].concat());
    if let Some(at_ms) = expire_at_ms {
        expiry::record_expiry(db, key, at_ms);
    }
}

/// The condition in the arguments of HREPLACE, and the position of the first field.
fn read_hreplace(args: Args<'_>) -> Result<(WriteCondition<'_>, usize), Text> {
    let (rule, from) =
        WriteCondition::read(args, 2, AcceptedOptions { digests: false, expiry: true, fields: true })?;
    match args.len() > from && (args.len() - from).is_multiple_of(2) {
        true => Ok((rule, from)),
        false => Err("ERR wrong number of arguments for 'hreplace' command".into()),
    }
}

/// Adds fields with their values, beginning at argument `from`, to a hash. Returns the position of the next field.
fn add(hash: &mut HashValue, args: Args<'_>, from: usize, pairs_max: usize, settings: &Settings) -> usize {
    let to = args.len().min(from.saturating_add(pairs_max.saturating_mul(2)));
    for i in (from..to).step_by(2) {
        hash.set(args.at(i), argument(args, i + 1), settings);
    }
    to
}

fn answer(reply: &mut Reply<'_>, done: Result<Option<bool>, Text>) {
    match done {
        Ok(Some(was_there)) => reply.int(was_there.into()),
        Ok(None) => reply.null(),
        Err(text) => reply.error(&text),
    }
}

/// Which options a command accepts.
struct AcceptedOptions {
    digests: bool,
    expiry: bool,
    /// True when the options end with the word FIELDS.
    fields: bool,
}

/// The condition of a write, and the expiry of the new value.
struct WriteCondition<'a> {
    seed: u64,
    /// Maximum length of a string that has a digest.
    bytes_max: usize,
    /// The value must have one of these digests, or [`ANY`].
    wanted_digests: SmallVec<[&'a [u8]; 2]>,
    /// The value must have none of these digests.
    unwanted_digests: SmallVec<[&'a [u8]; 2]>,
    keep_ttl: bool,
    /// The unit of the expiry, and the position of its number among the arguments.
    expiry: Option<(ExpiryUnit, usize)>,
}

impl<'a> WriteCondition<'a> {
    /// Reads the options, beginning at argument `at`. Also returns the position after FIELDS.
    fn read(
        args: Args<'a>,
        mut at: usize,
        takes: AcceptedOptions,
    ) -> Result<(WriteCondition<'a>, usize), Text> {
        let mut rule = WriteCondition {
            seed: 0,
            bytes_max: usize::MAX,
            wanted_digests: SmallVec::new(),
            unwanted_digests: SmallVec::new(),
            keep_ttl: false,
            expiry: None,
        };
        while at < args.len() {
            let no_expiry = takes.expiry && rule.expiry.is_none() && !rule.keep_ttl;
            if takes.fields && args.is(at, "FIELDS") {
                return Ok((rule, at + 1));
            } else if args.is(at, "NX") {
                rule.unwanted_digests.push(ANY);
            } else if args.is(at, "XX") {
                rule.wanted_digests.push(ANY);
            } else if args.is(at, "KEEPTTL") && no_expiry {
                rule.keep_ttl = true;
            } else {
                let Some(value) = args.get(at + 1) else { return Err(errors::SYNTAX.into()) };
                match ExpiryUnit::from_option(args.at(at)) {
                    Some(unit) if no_expiry => rule.expiry = Some((unit, at + 1)),
                    None if takes.digests && args.is(at, "MATCH") => rule.wanted_digests.push(value),
                    None if takes.digests && args.is(at, "NOMATCH") => rule.unwanted_digests.push(value),
                    None if takes.digests && args.is(at, "SEED") => {
                        rule.seed = parse_int(value).ok_or(errors::NOT_AN_INTEGER)? as u64;
                    }
                    None if takes.digests && args.is(at, "LIMIT") => {
                        rule.bytes_max = parse::at_least_zero(value, errors::NOT_AN_INTEGER)?;
                    }
                    _ => return Err(errors::SYNTAX.into()),
                }
                at += 1;
            }
            at += 1;
        }
        match takes.fields {
            true => Err(errors::SYNTAX.into()),
            false => Ok((rule, at)),
        }
    }
    /// If the condition holds, calls `write` with the expiry of the new value, and returns whether the key existed.
    /// Otherwise returns `None`.
    fn write(
        &self,
        db: &mut Db<'_, '_>,
        key: &Key<'_>,
        args: Args<'_>,
        now_ms: i64,
        command: &str,
        write: impl FnOnce(&mut Db<'_, '_>, Option<i64>),
    ) -> Result<Option<bool>, Text> {
        let given = self.expiry.map(|(unit, at)| parse::expiry_ms(args.at(at), unit, now_ms, command));
        let given = given.transpose()?;
        let old = db.peek(key);
        if !self.holds(old.as_ref().map(|r| r.value())) {
            return Ok(None);
        }
        let kept = old.as_ref().and_then(|r| r.expire_at_ms()).filter(|_| self.keep_ttl);
        let was_there = old.is_some();
        write(db, given.or(kept));
        Ok(Some(was_there))
    }
    fn holds(&self, value: Option<ValueRef<'_>>) -> bool {
        let is_asked = self.wanted_digests.iter().chain(&self.unwanted_digests).any(|digest| *digest != ANY);
        let digest = match value {
            Some(ValueRef::Str(s)) if is_asked && s.len() <= self.bytes_max => {
                Some(Digest::of(s.bytes(&mut Default::default()), self.seed))
            }
            _ => None,
        };
        let is_there = |tag: &&[u8]| match *tag {
            ANY => value.is_some(),
            tag => digest.as_ref().is_some_and(|digest| digest.as_bytes() == tag),
        };
        (self.wanted_digests.is_empty() || self.wanted_digests.iter().any(is_there))
            && !self.unwanted_digests.iter().any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use crate::cost::LONG_BYTES;
    use crate::fixture::Fixture;
    use strand_digest::Digest;

    #[test]
    fn a_string_is_written_and_removed_as_its_digest_says() {
        let digest = |text: &str| Digest::of(text.as_bytes(), 7);
        let (one, two) = (digest("one"), digest("2"));
        for all_long in [false, true] {
            let mut f = Fixture::new();
            f.all_long = all_long;
            f.script(&[
                ("SETIF a one XX", "$-1|"),
                (&format!("SETIF a one SEED 7 MATCH {one}"), "$-1|"),
                ("SETIF a one NX", ":0|"),
                ("SETIF a x NX", "$-1|"),
                (&format!("SETIF a x SEED 8 MATCH {one}"), "$-1|"),
                (&format!("SETIF a x SEED 7 LIMIT 2 MATCH {one}"), "$-1|"),
                (&format!("SETIF a x SEED 7 NOMATCH {two} NOMATCH {one}"), "$-1|"),
                ("GET a", "$3|one|"),
                (&format!("SETIF a 2 SEED 7 MATCH none MATCH {one} PX 500"), ":1|"),
                ("PTTL a", ":500|"),
                (&format!("SETIF a 3 seed 7 match {two} keepttl"), ":1|"),
                ("PTTL a", ":500|"),
                (&format!("DELIF a SEED 7 MATCH {two}"), "$-1|"),
                (&format!("DELIF a SEED 7 NOMATCH {two} XX"), ":1|"),
                ("DELIF a XX", "$-1|"),
                ("DELIF a NX", ":0|"),
                ("HSET h f v", ":1|"),
                (&format!("SETIF h x MATCH {one}"), "$-1|"),
                ("DELIF h NX", "$-1|"),
                ("SETIF h x MATCH *", ":1|"),
                ("GET h", "$1|x|"),
            ]);
            for bad in [
                "SETIF a x MATCH",
                "SETIF a x SEED",
                "SETIF a x PX 1 KEEPTTL",
                "SETIF a x GET",
                "DELIF a PX 1",
                "DELIF a FIELDS",
                "HREPLACE a f v x",
                "HREPLACE a MATCH * FIELDS f v",
            ] {
                assert_eq!(f.run(bad), "-ERR syntax error|", "{bad}");
            }
            f.script(&[
                ("SETIF a x SEED y", "-ERR value is not an integer or out of range|"),
                ("SETIF a x LIMIT -1", "-ERR value is not an integer or out of range|"),
                ("SETIF a x PX 0", "-ERR invalid expire time in 'setif' command|"),
            ]);
        }
    }

    #[test]
    fn a_long_string_is_judged_on_the_lane() {
        let mut f = Fixture::new();
        let text = "x".repeat(LONG_BYTES + 1);
        f.run_args(&["SET", "a", &text]);
        let digest = Digest::of(text.as_bytes(), 0);
        f.script(&[("DELIF a MATCH other", "$-1|"), (&format!("DELIF a MATCH {digest}"), ":1|")]);
        assert!(f.pauses.get() > 0);
    }

    #[test]
    fn hreplace_replaces_a_hash_or_another_value() {
        for all_long in [false, true] {
            let mut f = Fixture::new();
            f.all_long = all_long;
            f.script(&[
                ("HREPLACE h XX FIELDS a 1", "$-1|"),
                ("HREPLACE h FIELDS a 1 b 2", ":0|"),
                ("HREPLACE h NX FIELDS c 1", "$-1|"),
                ("HREPLACE h PX 700 FIELDS c 3 c 4", ":1|"),
                ("HGETALL h", "*2|$1|c|$1|4|"),
                ("HREPLACE h KEEPTTL FIELDS FIELDS NX", ":1|"),
                ("PTTL h", ":700|"),
                ("HREPLACE h FIELDS a 1", ":1|"),
                ("PTTL h", ":-1|"),
                ("SET s x", "+OK|"),
                ("HREPLACE s FIELDS a 1", ":1|"),
                ("HGET s a", "$1|1|"),
                ("HREPLACE h FIELDS a", "-ERR wrong number of arguments for 'hreplace' command|"),
                ("HREPLACE h NX PX 1 FIELDS", "-ERR wrong number of arguments for 'hreplace' command|"),
                ("HREPLACE h EX 0 FIELDS a 1", "-ERR invalid expire time in 'hreplace' command|"),
                ("HGET h a", "$1|1|"),
            ]);
            let mut args = vec!["HREPLACE".to_string(), "many".into(), "FIELDS".into()];
            (0..5000).for_each(|i| args.extend([format!("f{i}"), "v".into()]));
            assert_eq!(f.run_args(&args), b":0\r\n");
            f.script(&[("HLEN many", ":5000|")]);
        }
    }
}
