//! The EXPIRE and TTL families, and PERSIST.

use crate::call::Call;
use crate::errors;
use crate::parse::{self, Text};
use strand_keyspace::{Db, Key};
use strand_wire::reply::ErrorText;

/// How a command's argument names a time.
#[derive(Clone, Copy)]
struct TimeArgument {
    /// The command's name, for error texts.
    command: &'static str,
    /// True for seconds, false for milliseconds.
    seconds: bool,
    /// True for a Unix time, false for a duration from now.
    absolute: bool,
}

/// `EXPIRE key seconds [NX|XX|GT|LT]`. Reply: 1 when the expiry was set, or when it lies in the past and the key was
/// removed; 0 when the key is missing or the condition does not hold.
pub(crate) fn expire(call: &mut Call<'_, '_>) {
    reply_set(call, TimeArgument { command: "expire", seconds: true, absolute: false });
}

/// `PEXPIRE key milliseconds [NX|XX|GT|LT]`. Reply: as for EXPIRE.
pub(crate) fn pexpire(call: &mut Call<'_, '_>) {
    reply_set(call, TimeArgument { command: "pexpire", seconds: false, absolute: false });
}

/// `EXPIREAT key unix-seconds [NX|XX|GT|LT]`. Reply: as for EXPIRE.
pub(crate) fn expireat(call: &mut Call<'_, '_>) {
    reply_set(call, TimeArgument { command: "expireat", seconds: true, absolute: true });
}

/// `PEXPIREAT key unix-milliseconds [NX|XX|GT|LT]`. Reply: as for EXPIRE.
pub(crate) fn pexpireat(call: &mut Call<'_, '_>) {
    reply_set(call, TimeArgument { command: "pexpireat", seconds: false, absolute: true });
}

fn reply_set(call: &mut Call<'_, '_>, given: TimeArgument) {
    match set(call, given) {
        Ok(done) => call.reply.int(done.into()),
        Err(text) => call.reply.error_bytes(&text),
    }
}

fn set(call: &mut Call<'_, '_>, given: TimeArgument) -> Result<bool, ErrorText> {
    let condition = Condition::parse(call)?;
    let at_ms = to_unix_ms(call.args.at(2), call.now_ms, given).map_err(|t| t.into_owned().into_bytes())?;
    let (key, is_past) = (&call.keys[0], call.txn.is_past(at_ms));
    let mut db = call.txn.db(call.db);
    let Some(current) = db.get_to_write(key).map(|r| r.expire_at_ms()) else { return Ok(false) };
    if !condition.holds(current, at_ms) {
        return Ok(false);
    }
    if is_past {
        db.delete(key);
        db.effect(&[b"DEL".into(), key.bytes.into()]);
    } else {
        // A record with the expiry `i64::MAX` never expires.
        let at_ms = at_ms.min(i64::MAX - 1);
        db.set_expiry(key, Some(at_ms));
        record_expiry(&mut db, key, at_ms);
    }
    Ok(true)
}

/// Records the effect of a new expiry.
pub(super) fn record_expiry(db: &mut Db<'_, '_>, key: &Key<'_>, at_ms: i64) {
    if db.is_recorded() {
        let at_ms = at_ms.to_string();
        db.effect(&[b"PEXPIREAT".into(), key.bytes.into(), at_ms.as_bytes().into()]);
    }
}

/// Converts the argument to Unix milliseconds. The time may be in the past.
fn to_unix_ms(bytes: &[u8], now_ms: i64, given: TimeArgument) -> Result<i64, Text> {
    let n = parse::integer(bytes)?;
    let ms = if given.seconds { n.checked_mul(1000) } else { Some(n) };
    let at = if given.absolute { ms } else { ms.and_then(|ms| ms.checked_add(now_ms)) };
    at.ok_or_else(|| errors::invalid_expire_time(given.command).into())
}

/// The conditions of the EXPIRE family. Some may be combined (`XX GT`).
#[derive(Default)]
struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    fn parse(call: &Call<'_, '_>) -> Result<Condition, ErrorText> {
        let mut condition = Condition::default();
        for at in 3..call.args.len() {
            let option = match call.args.at(at) {
                o if o.eq_ignore_ascii_case(b"NX") => &mut condition.nx,
                o if o.eq_ignore_ascii_case(b"XX") => &mut condition.xx,
                o if o.eq_ignore_ascii_case(b"GT") => &mut condition.gt,
                o if o.eq_ignore_ascii_case(b"LT") => &mut condition.lt,
                o => return Err([b"ERR Unsupported option ", errors::c_text(o)].concat()),
            };
            *option = true;
        }
        if condition.nx && (condition.xx || condition.gt || condition.lt) {
            return Err(b"ERR NX and XX, GT or LT options at the same time are not compatible".to_vec());
        }
        if condition.gt && condition.lt {
            return Err(b"ERR GT and LT options at the same time are not compatible".to_vec());
        }
        Ok(condition)
    }

    /// True when the condition holds. A key without an expiry counts as expiring later than all others.
    fn holds(&self, current_ms: Option<i64>, new_ms: i64) -> bool {
        match current_ms {
            None => !self.xx && !self.gt,
            Some(current_ms) => {
                !self.nx && (!self.gt || new_ms > current_ms) && (!self.lt || new_ms < current_ms)
            }
        }
    }
}

/// `TTL key`. Reply: the rounded seconds until expiry; -1 without expiry, -2 for a missing key.
pub(crate) fn ttl(call: &mut Call<'_, '_>) {
    reply_expiry(call, |at_ms, now_ms| rounded_seconds((at_ms - now_ms).max(0)));
}

/// `PTTL key`: like TTL, in milliseconds.
pub(crate) fn pttl(call: &mut Call<'_, '_>) {
    reply_expiry(call, |at_ms, now_ms| (at_ms - now_ms).max(0));
}

/// `EXPIRETIME key`. Reply: the expiry as rounded Unix seconds; -1 and -2 like TTL.
pub(crate) fn expiretime(call: &mut Call<'_, '_>) {
    reply_expiry(call, |at_ms, _| rounded_seconds(at_ms));
}

/// `PEXPIRETIME key`: like EXPIRETIME, in milliseconds.
pub(crate) fn pexpiretime(call: &mut Call<'_, '_>) {
    reply_expiry(call, |at_ms, _| at_ms);
}

fn reply_expiry(call: &mut Call<'_, '_>, figure: impl Fn(i64, i64) -> i64) {
    let mut db = call.txn.db(call.db);
    call.reply.int(match db.look(&call.keys[0]).map(|r| r.expire_at_ms()) {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => figure(at_ms, call.now_ms),
    });
}

fn rounded_seconds(ms: i64) -> i64 {
    // Unsigned, so that the largest expiry plus half a second does not overflow.
    ((ms.max(0) as u64 + 500) / 1000) as i64
}

/// `PERSIST key`: removes the expiry. Reply: 1 when the key had one, else 0.
pub(crate) fn persist(call: &mut Call<'_, '_>) {
    let key = &call.keys[0];
    let mut db = call.txn.db(call.db);
    let had = db.get_to_write(key).is_some_and(|r| r.expire_at_ms().is_some());
    if had {
        db.set_expiry(key, None);
    }
    call.reply.int(had.into());
}

#[cfg(test)]
mod tests {
    use crate::fixture::{Fixture, START_MS};

    #[test]
    fn key_exists_until_its_expiry() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET k v", "+OK|"),
            ("TTL k", ":-1|"),
            ("TTL none", ":-2|"),
            ("EXPIRE none 10", ":0|"),
            ("EXPIRE k 10", ":1|"),
            ("TTL k", ":10|"),
            ("PTTL k", ":10000|"),
        ]);
        f.advance_ms(8_501);
        f.script(&[("TTL k", ":1|"), ("PTTL k", ":1499|")]);
        assert_eq!(f.run("PEXPIRETIME k"), format!(":{}|", START_MS + 10_000));
        assert_eq!(f.run("EXPIRETIME k"), format!(":{}|", START_MS / 1000 + 10));
        f.advance_ms(1_499);
        f.script(&[("EXISTS k", ":0|"), ("PTTL k", ":-2|"), ("PERSIST k", ":0|"), ("TYPE k", "+none|")]);
    }

    #[test]
    fn expiries_in_every_unit_and_in_the_past() {
        let mut f = Fixture::new();
        for (line, left) in [
            ("EXPIRE k 5", 5_000),
            ("PEXPIRE k 5", 5),
            (&*format!("EXPIREAT k {}", START_MS / 1000 + 7), 7_000),
            (&*format!("PEXPIREAT k {}", START_MS + 7), 7),
        ] {
            f.script(&[("SET k v", "+OK|"), (line, ":1|")]);
            assert_eq!(f.run("PTTL k"), format!(":{left}|"), "{line}");
            f.script(&[("PERSIST k", ":1|"), ("PERSIST k", ":0|"), ("TTL k", ":-1|")]);
        }
        for line in
            ["EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k -9223372036854775808", "EXPIREAT k 1", "PEXPIREAT k -5"]
        {
            f.script(&[("SET k v", "+OK|"), (line, ":1|"), ("EXISTS k", ":0|")]);
        }
    }

    #[test]
    fn an_expiry_is_set_only_when_its_condition_holds() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET k v", "+OK|"),
            ("EXPIRE k 100 XX", ":0|"),
            ("EXPIRE k 100 GT", ":0|"),
            ("EXPIRE k 100 LT", ":1|"),
            ("EXPIRE k 200 nx", ":0|"),
            ("EXPIRE k 200 lt", ":0|"),
            ("EXPIRE k 100 GT", ":0|"),
            ("EXPIRE k 200 XX GT", ":1|"),
            ("EXPIRE k 300 XX LT", ":0|"),
            ("EXPIRE k 200 LT", ":0|"),
            ("TTL k", ":200|"),
            ("PERSIST k", ":1|"),
            ("EXPIRE k 100 NX NX", ":1|"),
            ("EXPIRE k -1 GT", ":0|"),
            ("EXPIRE k -1 LT", ":1|"),
            ("EXISTS k", ":0|"),
        ]);
    }

    #[test]
    fn errors_and_their_order() {
        let mut f = Fixture::new();
        let nx = "-ERR NX and XX, GT or LT options at the same time are not compatible|";
        f.script(&[
            ("EXPIRE k x FOO", "-ERR Unsupported option FOO|"),
            ("EXPIRE k x NX XX", nx),
            ("EXPIRE k x GT NX", nx),
            ("EXPIRE k x NX GT LT", nx),
            ("EXPIRE k x GT LT", "-ERR GT and LT options at the same time are not compatible|"),
            ("EXPIRE k x", "-ERR value is not an integer or out of range|"),
            ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command|"),
            ("EXPIRE k -9223372036854775808", "-ERR invalid expire time in 'expire' command|"),
            ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command|"),
            ("EXPIREAT k 9223372036854775807", "-ERR invalid expire time in 'expireat' command|"),
            ("PEXPIREAT k 9223372036854775807", ":0|"),
            ("EXPIRE k", "-ERR wrong number of arguments for 'expire' command|"),
            ("SET k v", "+OK|"),
            ("PEXPIREAT k 9223372036854775807", ":1|"),
            ("PEXPIRETIME k", ":9223372036854775806|"),
            ("EXPIRETIME k", ":9223372036854776|"),
        ]);
    }
}
