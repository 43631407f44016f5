//! INCR and similar commands, which change an integer in place. Also INCRBYFLOAT, which computes in x87 long
//! doubles.

use crate::call::Call;
use crate::errors;
use crate::long_double::LongDouble;
use crate::parse::{self, string_of};
use strand_keyspace::StrRef;

/// `INCR key`: adds 1. Reply: the sum.
pub(crate) fn incr(call: &mut Call<'_, '_>) {
    add(call, 1);
}

/// `DECR key`: subtracts 1. Reply: the difference.
pub(crate) fn decr(call: &mut Call<'_, '_>) {
    add(call, -1);
}

/// `INCRBY key increment`: adds an integer. Reply: the sum.
pub(crate) fn incrby(call: &mut Call<'_, '_>) {
    match parse::integer(call.args.at(2)) {
        Ok(n) => add(call, n),
        Err(text) => call.reply.error(text),
    }
}

/// `DECRBY key decrement`: subtracts an integer. Reply: the difference.
pub(crate) fn decrby(call: &mut Call<'_, '_>) {
    match parse::integer(call.args.at(2)).map(i64::checked_neg) {
        Ok(Some(n)) => add(call, n),
        Ok(None) => call.reply.error(errors::DECREMENT_OVERFLOW),
        Err(text) => call.reply.error(text),
    }
}

/// `INCRBYFLOAT key increment`: adds a number. Reply: the sum as text.
pub(crate) fn incrbyfloat(call: &mut Call<'_, '_>) {
    match add_float(call) {
        Ok(text) => call.reply.bulk(text.as_bytes()),
        Err(text) => call.reply.error(text),
    }
}

fn add(call: &mut Call<'_, '_>, n: i64) {
    match add_in_place(call, n) {
        Ok(sum) => call.reply.int(sum),
        Err(text) => call.reply.error(text),
    }
}

/// Adds `n` to the integer at the key, in place. The expiry stays.
fn add_in_place(call: &mut Call<'_, '_>, n: i64) -> Result<i64, &'static str> {
    let key = &call.keys[0];
    let mut db = call.txn.db(call.db);
    let old = match string_of(db.peek(key))? {
        Some(s) => s.as_int().ok_or(errors::NOT_AN_INTEGER)?,
        None => 0,
    };
    let sum = old.checked_add(n).ok_or(errors::OVERFLOW)?;
    db.update_str(key, StrRef::Int(sum));
    Ok(sum)
}

fn add_float(call: &mut Call<'_, '_>) -> Result<String, &'static str> {
    let key = &call.keys[0];
    let mut db = call.txn.db(call.db);
    let before = match string_of(db.peek(key))? {
        None => LongDouble::ZERO,
        Some(StrRef::Int(n)) => LongDouble::from_int(n),
        Some(s) => parse::long_double(s.bytes(&mut [0; 20]))?,
    };
    let increment = parse::long_double(call.args.at(2))?;
    let text = before.add(increment).ok_or(errors::NAN_OR_INFINITY)?.to_text();
    // The sum is stored as bytes even if it is an integer, so that OBJECT ENCODING is the same as in redis-server.
    db.update_str(key, StrRef::Bytes { bytes: text.as_bytes(), edited: false });
    db.effect(&[b"SET".into(), key.bytes.into(), text.as_bytes().into(), b"KEEPTTL".into()]);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range|";
    const OVERFLOW: &str = "-ERR increment or decrement would overflow|";

    #[test]
    fn counts_within_64_bits() {
        Fixture::new().script(&[
            ("INCR a", ":1|"),
            ("INCRBY a 9", ":10|"),
            ("DECR a", ":9|"),
            ("DECRBY a 20", ":-11|"),
            ("DECRBY a -9223372036854775808", "-ERR decrement would overflow|"),
            ("SET a 9223372036854775806", "+OK|"),
            ("INCR a", ":9223372036854775807|"),
            ("INCR a", OVERFLOW),
            ("SET a -9223372036854775808", "+OK|"),
            ("DECR a", OVERFLOW),
            ("INCRBY a x", NOT_AN_INTEGER),
            ("INCRBY a 1.5", NOT_AN_INTEGER),
            ("INCRBY a 9223372036854775808", NOT_AN_INTEGER),
            ("SET a 01", "+OK|"),
            ("INCR a", NOT_AN_INTEGER),
            ("SET a ''", "+OK|"),
            ("INCR a", NOT_AN_INTEGER),
            ("SET a 1", "+OK|"),
            ("APPEND a 2", ":2|"),
            ("INCR a", ":13|"),
        ]);
    }

    #[test]
    fn keeps_the_expiry() {
        let mut f = Fixture::new();
        f.script(&[
            ("SET a 1 PX 100", "+OK|"),
            ("INCR a", ":2|"),
            ("INCRBYFLOAT a 0.5", "$3|2.5|"),
            ("PTTL a", ":100|"),
        ]);
        f.advance_ms(100);
        f.script(&[("INCR a", ":1|"), ("PTTL a", ":-1|")]);
    }

    #[test]
    fn adds_floats() {
        let mut f = Fixture::new();
        f.script(&[
            ("INCRBYFLOAT a 10.50", "$4|10.5|"),
            ("INCRBYFLOAT a 0.1", "$4|10.6|"),
            ("INCRBYFLOAT a -5", "$3|5.6|"),
            ("SET a 5.0e3", "+OK|"),
            ("INCRBYFLOAT a 2.0e2", "$4|5200|"),
            ("INCRBYFLOAT a abc", "-ERR value is not a valid float|"),
            ("INCRBYFLOAT a inf", "-ERR increment would produce NaN or Infinity|"),
            ("SET a x", "+OK|"),
            ("INCRBYFLOAT a 1", "-ERR value is not a valid float|"),
            ("HSET h f v", ":1|"),
            ("INCRBYFLOAT h 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("INCR h", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("SET a 1", "+OK|"),
            ("INCRBYFLOAT a 1", "$1|2|"),
            ("OBJECT ENCODING a", "$6|embstr|"),
        ]);
    }
}
