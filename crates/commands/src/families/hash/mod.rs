//! The hash commands that read and write fields. Fields that expire are in [`expiry`], HRANDFIELD in
//! [`random`], HSCAN in [`scan`].
//!
//! Reads and writes use [`super::collection`], which creates the key with its first field, and removes the key with
//! its last field.

mod expiry;
mod random;
mod scan;

pub(crate) use expiry::{
    hexpire, hexpireat, hexpiretime, hgetdel, hgetex, hpersist, hpexpire, hpexpireat, hpexpiretime, hpttl,
    hsetex, httl,
};
pub(crate) use random::hrandfield;
pub(crate) use scan::{hscan, hscan_long};

use super::collection::{self, argument, read, send, send_or_null};
use crate::call::Call;
use crate::errors;
use crate::long_double::LongDouble;
use crate::parse::{self, Text};
use strand_keyspace::types::Bytes;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, Collection, HashValue, Settings};
use strand_wire::reply::Reply;

/// `HSET key field value [field value ...]`. Reply: how many fields are new.
pub(crate) fn hset(call: &mut Call<'_, '_>) {
    match set_pairs(call, "hset") {
        Ok(created) => call.reply.int(created),
        Err(text) => call.reply.error(&text),
    }
}

/// `HMSET key field value [field value ...]`: an older HSET. Reply: OK.
pub(crate) fn hmset(call: &mut Call<'_, '_>) {
    match set_pairs(call, "hmset") {
        Ok(_) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

fn set_pairs(call: &mut Call<'_, '_>, command: &str) -> Result<i64, Text> {
    let args = call.args;
    if args.len() % 2 == 1 {
        return Err(format!("ERR wrong number of arguments for '{command}' command").into());
    }
    update(call, |hash, settings| {
        let pairs = (2..args.len()).step_by(2);
        let new = pairs.map(|i| i64::from(hash.set(args.at(i), argument(args, i + 1), settings))).sum();
        Ok((new, Changed::Yes))
    })
}

/// `HSETNX key field value`: sets a field only if it is missing. Reply: 1 when set, else 0.
pub(crate) fn hsetnx(call: &mut Call<'_, '_>) {
    let args = call.args;
    let set = update(call, |hash, settings| {
        let set = hash.get(args.at(2)).is_none() && hash.set(args.at(2), argument(args, 3), settings);
        Ok((set, set.into()))
    });
    match set {
        Ok(set) => call.reply.int(set.into()),
        Err(text) => call.reply.error(&text),
    }
}

/// `HINCRBY key field increment`: adds to an integer. A missing field counts as 0. Reply: the sum.
pub(crate) fn hincrby(call: &mut Call<'_, '_>) {
    match add_integer(call) {
        Ok(sum) => call.reply.int(sum),
        Err(text) => call.reply.error(&text),
    }
}

fn add_integer(call: &mut Call<'_, '_>) -> Result<i64, Text> {
    let field = call.args.at(2);
    let increment = parse::integer(call.args.at(3))?;
    update(call, |hash, settings| {
        let old = match hash.get(field) {
            Some(value) => parse_int(&value).ok_or(errors::HASH_NOT_AN_INTEGER)?,
            None => 0,
        };
        let sum = old.checked_add(increment).ok_or(errors::OVERFLOW)?;
        hash.update(field, sum.to_string().as_bytes(), settings);
        Ok((sum, Changed::Yes))
    })
}

/// `HINCRBYFLOAT key field increment`: adds to a number in 80-bit arithmetic, as redis-server does. A missing field
/// counts as 0. Reply: the sum as text.
pub(crate) fn hincrbyfloat(call: &mut Call<'_, '_>) {
    match add_float(call) {
        Ok((sum, has_expiry)) => {
            let (key, field) = (call.args.at(1), call.args.at(2));
            let value = sum.as_bytes().into();
            // HSET would remove the field's expiry.
            match has_expiry {
                true => call.effect(&[
                    b"HSETEX".into(),
                    key.into(),
                    b"KEEPTTL".into(),
                    b"FIELDS".into(),
                    b"1".into(),
                    field.into(),
                    value,
                ]),
                false => call.effect(&[b"HSET".into(), key.into(), field.into(), value]),
            }
            call.reply.bulk(sum.as_bytes());
        }
        Err(text) => call.reply.error(&text),
    }
}

/// The sum as text, and true when the field has an expiry.
fn add_float(call: &mut Call<'_, '_>) -> Result<(String, bool), Text> {
    let field = call.args.at(2);
    let increment = parse::long_double(call.args.at(3))?;
    if increment.is_infinite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    update(call, |hash, settings| {
        let old = match hash.get(field) {
            Some(value) => LongDouble::parse(&value).ok_or(errors::HASH_NOT_A_FLOAT)?,
            None => LongDouble::ZERO,
        };
        let sum = old.add(increment).ok_or(errors::NAN_OR_INFINITY)?.to_text();
        hash.update(field, sum.as_bytes(), settings);
        Ok(((sum, hash.expiry_ms(field).flatten().is_some()), Changed::Yes))
    })
}

/// `HDEL key field [field ...]`: removes fields, and the key with its last field. Reply: how many existed.
pub(crate) fn hdel(call: &mut Call<'_, '_>) {
    let fields = call.args.skip(2);
    let removed = collection::update_existing(call, |hash: &mut HashValue, _| {
        let removed = fields.iter().filter(|field| hash.remove(field)).count();
        (removed, (removed > 0).into())
    });
    match removed {
        Ok(removed) => call.reply.int(removed.unwrap_or(0) as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// `HGET key field`. Reply: the value, or null.
pub(crate) fn hget(call: &mut Call<'_, '_>) {
    let field = call.args.at(2);
    read(call, |hash: Option<&HashValue>, reply| send_or_null(reply, hash.and_then(|h| h.get(field))));
}

/// `HMGET key field [field ...]`. Reply: an array of values, null for a missing one.
pub(crate) fn hmget(call: &mut Call<'_, '_>) {
    let fields = call.args.skip(2);
    read(call, |hash: Option<&HashValue>, reply| {
        reply.array(fields.len());
        for field in fields.iter() {
            if reply.exceeds_limit() {
                break;
            }
            send_or_null(reply, hash.and_then(|h| h.get(field)));
        }
    });
}

/// `HEXISTS key field`. Reply: 1 or 0.
pub(crate) fn hexists(call: &mut Call<'_, '_>) {
    let field = call.args.at(2);
    read(call, |hash: Option<&HashValue>, reply| {
        reply.int(hash.is_some_and(|h| h.get(field).is_some()).into())
    });
}

/// `HSTRLEN key field`. Reply: the value's length in bytes, 0 for a missing one.
pub(crate) fn hstrlen(call: &mut Call<'_, '_>) {
    let field = call.args.at(2);
    read(call, |hash: Option<&HashValue>, reply| {
        reply.int(hash.and_then(|h| h.get(field)).map_or(0, |v| v.len() as i64))
    });
}

/// `HLEN key`. Reply: the number of fields.
pub(crate) fn hlen(call: &mut Call<'_, '_>) {
    read(call, |hash: Option<&HashValue>, reply| reply.int(hash.map_or(0, |h| h.len() as i64)));
}

/// `HGETALL key`. Reply: a map of fields and values (RESP2: a flat array), empty for a missing key.
pub(crate) fn hgetall(call: &mut Call<'_, '_>) {
    read(call, |hash: Option<&HashValue>, reply| {
        reply.map(hash.map_or(0, HashValue::len));
        each(hash, reply, |reply, field, value| {
            send(reply, field);
            send(reply, value);
        });
    });
}

/// `HKEYS key`. Reply: an array of all fields.
pub(crate) fn hkeys(call: &mut Call<'_, '_>) {
    read(call, |hash: Option<&HashValue>, reply| {
        reply.array(hash.map_or(0, HashValue::len));
        each(hash, reply, |reply, field, _| send(reply, field));
    });
}

/// `HVALS key`. Reply: an array of all values.
pub(crate) fn hvals(call: &mut Call<'_, '_>) {
    read(call, |hash: Option<&HashValue>, reply| {
        reply.array(hash.map_or(0, HashValue::len));
        each(hash, reply, |reply, _, value| send(reply, value));
    });
}

/// Changes the hash at the first key. The hash is created with its first field.
fn update<R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut HashValue, &Settings) -> Result<(R, Changed), Text>,
) -> Result<R, Text> {
    collection::update(call, change)
}

/// Calls `write` for each field and value, until nobody waits for the reply any more.
pub(super) fn each(
    hash: Option<&HashValue>,
    reply: &mut Reply<'_>,
    mut write: impl FnMut(&mut Reply<'_>, Bytes<'_>, Bytes<'_>),
) {
    for (field, value) in hash.iter().flat_map(|h| h.iter()) {
        if reply.exceeds_limit() {
            return;
        }
        write(reply, field, value);
    }
}

#[cfg(test)]
mod tests {
    use crate::errors;
    use crate::fixture::Fixture;
    use strand_wire::reply::Protocol;

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    #[test]
    fn fields_are_set_read_and_deleted() {
        let mut f = Fixture::new();
        f.script(&[
            ("HSET h a 1 b 2 a 3", ":2|"),
            ("HSET h a 4 c 5", ":1|"),
            ("HMSET h d 6", "+OK|"),
            ("HLEN h", ":4|"),
            ("HGET h a", "$1|4|"),
            ("HGET h x", "$-1|"),
            ("HGET none x", "$-1|"),
            ("HMGET h a x b", "*3|$1|4|$-1|$1|2|"),
            ("HMGET none a x", "*2|$-1|$-1|"),
            ("HEXISTS h a", ":1|"),
            ("HEXISTS h x", ":0|"),
            ("HSETNX h a 9", ":0|"),
            ("HSETNX h e 10", ":1|"),
            ("HSTRLEN h e", ":2|"),
            ("HSTRLEN h x", ":0|"),
            ("HSTRLEN none x", ":0|"),
            ("HDEL h a a x", ":1|"),
            ("HDEL none a", ":0|"),
            ("HDEL h b c d e", ":4|"),
            ("EXISTS h", ":0|"),
            ("HSETNX new f v", ":1|"),
            ("HSET h a", "-ERR wrong number of arguments for 'hset' command|"),
            ("HSET h a b c", "-ERR wrong number of arguments for 'hset' command|"),
            ("HMSET h a b c", "-ERR wrong number of arguments for 'hmset' command|"),
        ]);
    }

    #[test]
    fn the_whole_hash_in_both_protocols() {
        let mut f = Fixture::new();
        f.script(&[
            ("HSET h a 1", ":1|"),
            ("HGETALL h", "*2|$1|a|$1|1|"),
            ("HKEYS h", "*1|$1|a|"),
            ("HVALS h", "*1|$1|1|"),
            ("HGETALL none", "*0|"),
            ("HKEYS none", "*0|"),
            ("HVALS none", "*0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[
            ("HGETALL h", "%1|$1|a|$1|1|"),
            ("HKEYS h", "*1|$1|a|"),
            ("HGETALL none", "%0|"),
            ("HGET none a", "_|"),
            ("HMGET h x", "*1|_|"),
        ]);
    }

    #[test]
    fn every_command_minds_the_type() {
        let mut f = Fixture::new();
        f.script(&[("SET s v", "+OK|")]);
        for line in [
            "HSET s f v",
            "HMSET s f v",
            "HSETNX s f v",
            "HGET s f",
            "HMGET s f",
            "HDEL s f",
            "HEXISTS s f",
            "HSTRLEN s f",
            "HLEN s",
            "HKEYS s",
            "HVALS s",
            "HGETALL s",
            "HINCRBY s f 1",
            "HINCRBYFLOAT s f 1",
            "HRANDFIELD s",
            "HRANDFIELD s 1",
            "HSCAN s 0",
            "HSCAN s 0 FOO",
        ] {
            assert_eq!(f.run(line), WRONG_TYPE, "{line}");
        }
        // Errors in the arguments are reported before other errors.
        f.script(&[
            ("HSET s f", "-ERR wrong number of arguments for 'hset' command|"),
            ("HSET s f v f", "-ERR wrong number of arguments for 'hset' command|"),
            ("HINCRBY s f x", "-ERR value is not an integer or out of range|"),
            ("HINCRBYFLOAT s f x", "-ERR value is not a valid float|"),
            ("HINCRBYFLOAT s f inf", "-ERR value is NaN or Infinity|"),
            ("HRANDFIELD s x", "-ERR value is not an integer or out of range|"),
            ("HSCAN s x FOO", "-ERR invalid cursor|"),
            ("GET s", "$1|v|"),
        ]);
    }

    #[test]
    fn fields_are_incremented_as_integers_and_as_floats() {
        let mut f = Fixture::new();
        f.script(&[
            ("HINCRBY h n 5", ":5|"),
            ("HINCRBY h n -7", ":-2|"),
            ("HINCRBYFLOAT h n 2.5", "$3|0.5|"),
            ("HINCRBY h n 1", &format!("-{}|", errors::HASH_NOT_AN_INTEGER)),
            ("HINCRBYFLOAT h x 0.1", "$3|0.1|"),
            ("HINCRBYFLOAT h x 0.2", "$3|0.3|"),
            ("HINCRBYFLOAT h y 5.0e3", "$4|5000|"),
            ("HSET h t text m 9223372036854775807", ":2|"),
            ("HINCRBY h t 1", "-ERR hash value is not an integer|"),
            ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float|"),
            ("HINCRBY h m 1", "-ERR increment or decrement would overflow|"),
            ("HINCRBYFLOAT h m 1", "$19|9223372036854775808|"),
            ("HINCRBY none n x", "-ERR value is not an integer or out of range|"),
            ("EXISTS none", ":0|"),
        ]);
    }

    #[test]
    fn long_values_and_any_bytes() {
        let mut f = Fixture::new();
        let long = vec![0xab; 40_000];
        let field = b"\x00\xff\r\n".as_slice();
        assert_eq!(f.run_args(&[b"HSET", b"h".as_slice(), field, &long]), b":1\r\n");
        let want = [b"$40000\r\n".as_slice(), &long, b"\r\n"].concat();
        assert_eq!(f.run_args(&[b"HGET", b"h".as_slice(), field]), want);
        f.script(&[("OBJECT ENCODING h", "$9|hashtable|")]);
    }
}
