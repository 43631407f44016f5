//! HRANDFIELD: random fields, with or without repetition.

use super::{hash_of, send, send_or_null};
use crate::call::Call;
use crate::errors;
use crate::parse::{self, Text};
use std::collections::HashSet;
use strand_keyspace::HashValue;
use strand_keyspace::types::Bytes;
use strand_wire::reply::{Protocol, Reply};

/// Most fields that one call with a negative count draws: the reply's size is the client's to choose otherwise.
const DRAWN_MAX: u64 = 1024 * 1024;

/// `HRANDFIELD key [count [WITHVALUES]]`. Reply: without a count one field or null; with one an array of that many
/// different fields, with a negative one that many fields drawn independently. WITHVALUES adds the values: pairs in
/// RESP3, a flat array in RESP2.
pub(crate) fn hrandfield(call: &mut Call<'_, '_>) {
    let wish = match Wish::parse(call) {
        Ok(wish) => wish,
        Err(text) => return call.reply.error(&text),
    };
    let mut db = call.locked.db(call.db);
    let hash = match hash_of(db.get(&call.keys[0])) {
        Ok(hash) => hash,
        Err(text) => return call.reply.error(text),
    };
    match (wish, hash) {
        (Wish::One, hash) => {
            send_or_null(call.reply, hash.and_then(|h| h.random(call.rng)).map(|(field, _)| field));
        }
        (_, None) => call.reply.array(0),
        (Wish::Distinct { count, values }, Some(hash)) => distinct(hash, count, values, call.reply, call.rng),
        (Wish::Drawn { count, .. }, Some(_)) if count > DRAWN_MAX => call.reply.error(errors::OUT_OF_RANGE),
        (Wish::Drawn { count, values }, Some(hash)) => {
            announce(call.reply, count as usize, values);
            for _ in 0..count {
                let pair = hash.random(call.rng).expect("a hash in the keyspace has a field");
                send_pair(call.reply, pair, values);
            }
        }
    }
}

enum Wish {
    One,
    Distinct { count: u64, values: bool },
    Drawn { count: u64, values: bool },
}

impl Wish {
    fn parse(call: &Call<'_, '_>) -> Result<Wish, Text> {
        let Some(count) = call.args.get(2) else { return Ok(Wish::One) };
        let count = parse::integer_in(count, -i64::MAX, i64::MAX)?;
        let values = match call.args.len() {
            3 => false,
            4 if call.args.is(3, "WITHVALUES") => true,
            _ => return Err(errors::SYNTAX.into()),
        };
        if values && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
            return Err(errors::OUT_OF_RANGE.into());
        }
        let drawn = count < 0;
        let count = count.unsigned_abs();
        Ok(if drawn { Wish::Drawn { count, values } } else { Wish::Distinct { count, values } })
    }
}

/// `count` different pairs, each set of them as likely as any other.
fn distinct(hash: &HashValue, count: u64, values: bool, reply: &mut Reply<'_>, rng: &mut fastrand::Rng) {
    /// Drawing and rejecting repeats pays below one part in this many of the hash.
    const SPARSE: usize = 3;
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(hash.len());
    announce(reply, wanted, values);
    if wanted <= hash.len() / SPARSE {
        let mut seen: HashSet<Vec<u8>> = HashSet::default();
        while seen.len() < wanted {
            let pair = hash.random(rng).expect("a hash in the keyspace has a field");
            if seen.insert(pair.0.to_vec()) {
                send_pair(reply, pair, values);
            }
        }
        return;
    }
    // One walk: each pair is taken with the probability of wanted among those that are left.
    let (mut wanted, mut left) = (wanted, hash.len());
    for pair in hash.iter() {
        if rng.usize(0..left) < wanted {
            send_pair(reply, pair, values);
            wanted -= 1;
        }
        left -= 1;
    }
}

fn announce(reply: &mut Reply<'_>, count: usize, values: bool) {
    reply.array(if values && reply.protocol() == Protocol::Resp2 { count * 2 } else { count });
}

fn send_pair(reply: &mut Reply<'_>, (field, value): (Bytes<'_>, Bytes<'_>), values: bool) {
    if values && reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
    send(reply, field);
    if values {
        send(reply, value);
    }
}
