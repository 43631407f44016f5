//! ZRANDMEMBER: random members, with or without repetition.

use super::range::{announce, send_member};
use crate::call::Call;
use crate::errors;
use crate::families::collection::send;
use crate::parse::{self, Text, wrong_type};
use std::collections::HashSet;
use strand_keyspace::{Collection, ZSetValue};
use strand_wire::reply::Reply;

/// Maximum number of members that one call with a negative count returns. Without a limit, a client could request a
/// reply of any size.
const DRAWN_MAX: u64 = 1024 * 1024;

/// `ZRANDMEMBER key [count [WITHSCORES]]`. Without a count, the reply is one random member or null. With a positive
/// count, it is an array of this many different members. With a negative count, each member is drawn independently,
/// so members may repeat.
pub(crate) fn zrandmember(call: &mut Call<'_, '_>) {
    let wish = match parse_count(call) {
        Ok(wish) => wish,
        Err(text) => return call.reply.error(&text),
    };
    let mut db = call.txn.db(call.db);
    let zset = match db.read::<ZSetValue>(&call.keys[0]) {
        Ok(zset) => zset,
        Err(other) => return call.reply.error(wrong_type(other)),
    };
    let (reply, rng) = (&mut *call.reply, &mut *call.rng);
    match (wish, zset) {
        (None, None) => reply.null(),
        (None, Some(zset)) => zset.random(rng).into_iter().for_each(|(member, _)| send(reply, member)),
        (Some(_), None) => reply.array(0),
        (Some((count, scores)), Some(zset)) if count >= 0 => {
            distinct(zset, count.unsigned_abs(), scores, reply, rng);
        }
        (Some((count, _)), Some(_)) if count.unsigned_abs() > DRAWN_MAX => reply.error(errors::OUT_OF_RANGE),
        (Some((count, scores)), Some(zset)) => {
            let count = count.unsigned_abs() as usize;
            announce(reply, count, scores);
            for (member, score) in (0..count).map_while(|_| zset.random(rng)) {
                if reply.exceeds_limit() {
                    return;
                }
                send_member(reply, member, scores.then_some(score));
            }
        }
    }
}

/// Parses the count, and whether scores are wanted. `None` without a count.
fn parse_count(call: &Call<'_, '_>) -> Result<Option<(i64, bool)>, Text> {
    let Some(count) = call.args.get(2) else { return Ok(None) };
    let count = parse::integer_in(count, -i64::MAX, i64::MAX)?;
    let scores = match call.args.len() {
        3 => false,
        4 if call.args.is(3, "WITHSCORES") => true,
        _ => return Err(errors::SYNTAX.into()),
    };
    if scores && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(errors::OUT_OF_RANGE.into());
    }
    Ok(Some((count, scores)))
}

/// Sends `count` different members. Every set of this many members is equally likely.
fn distinct(zset: &ZSetValue, count: u64, scores: bool, reply: &mut Reply<'_>, rng: &mut fastrand::Rng) {
    /// If the count is below the number of members divided by this, it is faster to draw members and to reject
    /// repeated ones.
    const SPARSE: usize = 3;
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(zset.len());
    announce(reply, wanted, scores);
    if wanted <= zset.len() / SPARSE {
        let mut seen: HashSet<usize> = HashSet::default();
        while seen.len() < wanted && !reply.exceeds_limit() {
            let rank = rng.usize(..zset.len());
            if seen.insert(rank)
                && let Some((member, score)) = zset.get(rank)
            {
                send_member(reply, member, scores.then_some(score));
            }
        }
        return;
    }
    // Walk over the set once. Take each member with a probability of the number still wanted divided by the number
    // still left.
    let (mut wanted, mut left) = (wanted, zset.len());
    for (member, score) in zset.iter(0) {
        if reply.exceeds_limit() {
            return;
        }
        if rng.usize(0..left) < wanted {
            send_member(reply, member, scores.then_some(score));
            wanted -= 1;
        }
        left -= 1;
    }
}
