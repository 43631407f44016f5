//! HRANDFIELD: random fields, with or without repetition.

use super::{send, send_or_null};
use crate::call::Call;
use crate::cost::LONG_ELEMENTS;
use crate::errors;
use crate::parse::{self, Text};
use std::collections::HashSet;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Collection, HashValue};
use strand_wire::reply::{Protocol, Reply};

/// Maximum number of fields that one call with a negative count returns. Without a limit, a client could request a
/// reply of any size.
const DRAWN_MAX: u64 = 1024 * 1024;

/// `HRANDFIELD key [count [WITHVALUES]]`. Without a count, the reply is one random field or null. With a positive
/// count, it is an array of this many different fields. With a negative count, each field is drawn independently,
/// so fields may repeat. WITHVALUES adds the values: as pairs in RESP3, as a flat array in RESP2.
pub(crate) fn hrandfield(call: &mut Call<'_, '_>) {
    let choice = match FieldChoice::parse(call) {
        Ok(choice) => choice,
        Err(text) => return call.reply.error(&text),
    };
    let mut db = call.txn.db(call.db);
    let hash: Option<&HashValue> = match db.read(&call.keys[0]) {
        Ok(hash) => hash,
        Err(_) => return call.reply.error(errors::WRONG_TYPE),
    };
    // A walk over all visible fields also passes over the hidden ones. A long walk belongs on a helper thread.
    let walks = hash.is_some_and(is_mostly_hidden);
    if walks && hash.is_some_and(|hash| hash.hidden_fields() > LONG_ELEMENTS) && call.reply.counts_copies() {
        return call.reply.give_up();
    }
    match (choice, hash) {
        (FieldChoice::One, hash) => {
            send_or_null(call.reply, hash.and_then(|h| h.random(call.rng)).map(|(field, _)| field));
        }
        (_, None) => call.reply.array(0),
        (FieldChoice::Distinct { count, values }, Some(hash)) => {
            distinct(hash, count, values, call.reply, call.rng)
        }
        (FieldChoice::Drawn { count, .. }, Some(_)) if count > DRAWN_MAX => {
            call.reply.error(errors::OUT_OF_RANGE)
        }
        (FieldChoice::Drawn { count, values }, Some(hash)) => {
            announce(call.reply, count as usize, values);
            let listed: Vec<_> = if walks { hash.iter().collect() } else { Vec::new() };
            for _ in 0..count {
                if call.reply.exceeds_limit() {
                    break;
                }
                let pair = if walks { call.rng.choice(&listed).copied() } else { hash.random(call.rng) };
                send_pair(call.reply, pair.expect("a hash in the keyspace has a field"), values);
            }
        }
    }
}

enum FieldChoice {
    One,
    Distinct { count: u64, values: bool },
    Drawn { count: u64, values: bool },
}

impl FieldChoice {
    fn parse(call: &Call<'_, '_>) -> Result<FieldChoice, Text> {
        let Some(count) = call.args.get(2) else { return Ok(FieldChoice::One) };
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
        Ok(if drawn { FieldChoice::Drawn { count, values } } else { FieldChoice::Distinct { count, values } })
    }
}

/// True when draws would seldom find a field that has not expired.
fn is_mostly_hidden(hash: &HashValue) -> bool {
    hash.hidden_fields() > hash.len()
}

/// Sends `count` different fields. Every set of this many fields is equally likely.
fn distinct(hash: &HashValue, count: u64, values: bool, reply: &mut Reply<'_>, rng: &mut fastrand::Rng) {
    /// If the count is below the number of fields divided by this, it is faster to draw fields and to reject
    /// repeated ones.
    const SPARSE: usize = 3;
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(hash.len());
    announce(reply, wanted, values);
    if wanted <= hash.len() / SPARSE && !is_mostly_hidden(hash) {
        let mut seen: HashSet<Vec<u8>> = HashSet::default();
        while seen.len() < wanted && !reply.exceeds_limit() {
            let pair = hash.random(rng).expect("a hash in the keyspace has a field");
            if seen.insert(pair.0.to_vec()) {
                send_pair(reply, pair, values);
            }
        }
        return;
    }
    // Walk over the hash once. Take each field with a probability of the number still wanted divided by the number
    // still left.
    let (mut wanted, mut left) = (wanted, hash.len());
    for pair in hash.iter() {
        if reply.exceeds_limit() {
            break;
        }
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

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use std::collections::{BTreeMap, BTreeSet};
    use strand_wire::reply::Protocol;

    /// The words in a flat array of RESP2.
    fn words(reply: &str) -> Vec<&str> {
        reply.split('|').filter(|p| p.starts_with(['f', 'v'])).collect()
    }

    fn fixture_with(fields: usize) -> Fixture {
        let mut f = Fixture::new();
        for n in 0..fields {
            f.run(&format!("HSET h f{n} v{n}"));
        }
        f
    }

    #[test]
    fn hrandfield_without_a_count_replies_with_one_field_or_null() {
        let mut f = fixture_with(1);
        f.script(&[
            ("HRANDFIELD h", "$2|f0|"),
            ("HRANDFIELD none", "$-1|"),
            ("HRANDFIELD none 5", "*0|"),
            ("HRANDFIELD none -5 WITHVALUES", "*0|"),
            ("HRANDFIELD h 0", "*0|"),
            ("HRANDFIELD h 5", "*1|$2|f0|"),
            ("HRANDFIELD h -2", "*2|$2|f0|$2|f0|"),
            ("HRANDFIELD h 5 withvalues", "*2|$2|f0|$2|v0|"),
            ("HRANDFIELD h -2 WITHVALUES", "*4|$2|f0|$2|v0|$2|f0|$2|v0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[
            ("HRANDFIELD none", "_|"),
            ("HRANDFIELD h 5 WITHVALUES", "*1|*2|$2|f0|$2|v0|"),
            ("HRANDFIELD h -2 WITHVALUES", "*2|*2|$2|f0|$2|v0|*2|$2|f0|$2|v0|"),
        ]);
    }

    #[test]
    fn errors_and_their_order() {
        let mut f = fixture_with(1);
        let range = "-ERR value is out of range|";
        f.script(&[
            ("HRANDFIELD h x FOO", "-ERR value is not an integer or out of range|"),
            ("HRANDFIELD h 1 FOO", "-ERR syntax error|"),
            ("HRANDFIELD h 1 WITHVALUES FOO", "-ERR syntax error|"),
            ("HRANDFIELD none 4611686018427387904 WITHVALUES", range),
            ("HRANDFIELD none -4611686018427387904 WITHVALUES", range),
            ("HRANDFIELD h 4611686018427387903 WITHVALUES", "*2|$2|f0|$2|v0|"),
            ("HRANDFIELD h 9223372036854775807", "*1|$2|f0|"),
            ("HRANDFIELD h -9223372036854775807", range),
            (
                "HRANDFIELD h -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|",
            ),
        ]);
    }

    #[test]
    fn distinct_fields_are_drawn_for_any_share_of_the_hash() {
        for (fields, count) in [(10, 2), (10, 5), (10, 10), (10, 20), (600, 3), (600, 250), (600, 599)] {
            let mut f = fixture_with(fields);
            let reply = f.run(&format!("HRANDFIELD h {count} WITHVALUES"));
            let words = words(&reply);
            let pairs: BTreeMap<&str, &str> = words.chunks(2).map(|p| (p[0], p[1])).collect();
            assert_eq!(words.len(), 2 * count.min(fields), "{count} of {fields}");
            assert_eq!(pairs.len(), count.min(fields), "{count} of {fields}: all different");
            assert!(pairs.iter().all(|(field, value)| field[1..] == value[1..]));
        }
    }

    #[test]
    fn every_field_comes_up_about_as_often() {
        let mut f = fixture_with(20);
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for line in ["HRANDFIELD h 4", "HRANDFIELD h 15", "HRANDFIELD h -10"] {
            for _ in 0..200 {
                words(&f.run(line)).into_iter().for_each(|w| *times.entry(w.into()).or_default() += 1);
            }
        }
        // On average, each field is drawn 200 * (4 + 15 + 10) / 20 = 290 times.
        assert_eq!(times.keys().collect::<BTreeSet<_>>().len(), 20);
        assert!(times.values().all(|n| (200..380).contains(n)), "{times:?}");
    }

    /// Expired fields are hidden, and take memory until they are freed. Draws would hit them nearly always.
    #[test]
    fn visible_fields_among_many_hidden_ones_are_drawn_fairly() {
        let mut f = fixture_with(20);
        for from in (0..6_000).step_by(100) {
            let fields: Vec<String> = (from..from + 100).map(|n| format!("x{n}")).collect();
            let pairs: Vec<String> = fields.iter().map(|field| format!("{field} v")).collect();
            f.run(&format!("HSET h {}", pairs.join(" ")));
            f.run(&format!("HPEXPIRE h 100 FIELDS 100 {}", fields.join(" ")));
        }
        f.now_ms += 101;
        let mut times: BTreeMap<String, u32> = BTreeMap::new();
        for line in ["HRANDFIELD h 4", "HRANDFIELD h 15", "HRANDFIELD h -10"] {
            for _ in 0..10 {
                words(&f.run(line)).into_iter().for_each(|w| *times.entry(w.into()).or_default() += 1);
            }
        }
        assert_eq!((times.len(), times.values().sum::<u32>()), (20, 290));
        assert_eq!(f.run("HLEN h"), ":20|");
    }
}
