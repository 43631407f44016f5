//! The sorted set commands about members and their scores. [`range`] has ranges of every kind, [`pop`] the commands
//! on the ends, [`combine`] unions, intersections and differences, [`random`] ZRANDMEMBER, and [`scan`] ZSCAN.

mod bounds;
mod combine;
mod pop;
mod random;
mod range;
mod scan;

pub(crate) use combine::{
    source_elements, zdiff, zdiffstore, zdiffstore_long, zinter, zintercard, zinterstore, zinterstore_long,
    zunion, zunionstore, zunionstore_long,
};
pub(crate) use pop::{
    bzmpop, bzmpop_elements, bzmpop_long, bzpopmax, bzpopmin, pop_elements, zmpop, zmpop_elements,
    zmpop_long, zpopmax, zpopmin,
};
pub(crate) use random::zrandmember;
pub(crate) use range::*;
pub(crate) use scan::{zscan, zscan_long};

use super::collection::{read, update, update_existing};
use crate::call::{Call, LaneCall};
use crate::copy_write;
use crate::cost::{Merge, Slices};
use crate::errors;
use crate::events::named;
use crate::long;
use crate::parse::Text;
use crate::strtod;
use strand_keyspace::types::zset::Set;
use strand_keyspace::{Changed, Collection, ZSetValue};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const NX_AND_XX: &str = "ERR XX and NX options at the same time are not compatible";
const GT_LT_NX: &str = "ERR GT, LT, and/or NX options at the same time are not compatible";
const INCR_OF_ONE: &str = "ERR INCR option supports a single increment-element pair";
const NOT_A_NUMBER: &str = "ERR resulting score is not a number (NaN)";

/// `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]`. Reply: the number of new members; with
/// CH the number of members that are new or have another score; with INCR the new score, or null when an option
/// forbids the change.
pub(crate) fn zadd(call: &mut Call<'_, '_>) {
    add(call, false);
}

/// `ZINCRBY key increment member`: ZADD with INCR. Reply: the new score.
pub(crate) fn zincrby(call: &mut Call<'_, '_>) {
    add(call, true);
}

/// ZADD of many members, on the lane. All scores are checked before the first member is set.
pub(crate) fn zadd_long(call: &mut LaneCall<'_>) {
    let Ok(options) = Options::parse(call.args, false) else { return long::run_locked_by_name("zadd", call) };
    let slices = Slices { head: options.from, step: 2, merge: Merge::Sum, of_system: false };
    match (options.from + 1..call.args.len()).step_by(2).all(|i| strtod::parse(call.args.at(i - 1)).is_some())
    {
        true => {
            let (spec, run) = long::spec_and_handler("zadd");
            copy_write::run_in_slices(spec, run, slices, call);
        }
        false => call.reply.error(errors::NOT_A_FLOAT),
    }
}

fn add(call: &mut Call<'_, '_>, incr: bool) {
    match try_add(call, incr) {
        Ok(Added::Count(n)) => call.reply.int(n),
        Ok(Added::Score(Some(score))) => call.reply.double(score),
        Ok(Added::Score(None)) => call.reply.null(),
        Err(text) => call.reply.error(&text),
    }
}

enum Added {
    Count(i64),
    Score(Option<f64>),
}

fn try_add(call: &mut Call<'_, '_>, incr: bool) -> Result<Added, Text> {
    let args = call.args;
    let options = Options::parse(args, incr)?;
    if options.incr {
        call.txn.set_event(named::ZINCR);
    }
    let pairs = || (options.from..args.len()).step_by(2).map(|i| (args.at(i), i + 1));
    // Check all scores first, so that no member is set if one score is wrong.
    for (score, _) in pairs() {
        strtod::parse(score).ok_or(errors::NOT_A_FLOAT)?;
    }
    let change = |zset: &mut ZSetValue, settings: &_| {
        let (mut added, mut updated, mut last) = (0, 0, None);
        for (score, member) in pairs() {
            let score = strtod::parse(score).ok_or(errors::NOT_A_FLOAT)?;
            let Some(score) = options.score(zset, args.at(member), score)? else { continue };
            last = Some(score);
            match zset.set(super::collection::argument(args, member), score, settings) {
                Set::Added => added += 1,
                Set::Updated => updated += 1,
                Set::Unchanged => {}
            }
        }
        let reply = match options.incr {
            true => Added::Score(last),
            false => Added::Count(if options.ch { added + updated } else { added }),
        };
        Ok((reply, (added + updated > 0).into()))
    };
    update(call, change)
}

/// The options of ZADD.
struct Options {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
    /// The position of the first score among the arguments.
    from: usize,
}

impl Options {
    fn parse(args: Args<'_>, incr: bool) -> Result<Options, Text> {
        let mut o = Options { nx: false, xx: false, gt: false, lt: false, ch: false, incr, from: 2 };
        while o.from < args.len() {
            let option = if args.is(o.from, "NX") {
                &mut o.nx
            } else if args.is(o.from, "XX") {
                &mut o.xx
            } else if args.is(o.from, "GT") {
                &mut o.gt
            } else if args.is(o.from, "LT") {
                &mut o.lt
            } else if args.is(o.from, "CH") {
                &mut o.ch
            } else if args.is(o.from, "INCR") {
                &mut o.incr
            } else {
                break;
            };
            *option = true;
            o.from += 1;
        }
        let left = args.len() - o.from;
        if left == 0 || left % 2 == 1 {
            return Err(errors::SYNTAX.into());
        }
        if o.nx && o.xx {
            return Err(NX_AND_XX.into());
        }
        if (o.nx && (o.gt || o.lt)) || (o.gt && o.lt) {
            return Err(GT_LT_NX.into());
        }
        if o.incr && left > 2 {
            return Err(INCR_OF_ONE.into());
        }
        Ok(o)
    }
    /// The new score of `member`. `None` when the member keeps its score.
    fn score(&self, zset: &ZSetValue, member: &[u8], given: f64) -> Result<Option<f64>, Text> {
        let old =
            if self.nx || self.xx || self.gt || self.lt || self.incr { zset.score(member) } else { None };
        let Some(old) = old else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.incr { old + given } else { given };
        if score.is_nan() {
            return Err(NOT_A_NUMBER.into());
        }
        let refused = (self.lt && score >= old) || (self.gt && score <= old);
        Ok((!refused).then_some(score))
    }
}

/// `ZREM key member [member ...]`. Reply: how many were removed.
pub(crate) fn zrem(call: &mut Call<'_, '_>) {
    let members = call.args.skip(2);
    let removed = update_existing(call, |zset: &mut ZSetValue, _| {
        let removed = members.iter().filter(|member| zset.remove(member).is_some()).count();
        (removed as i64, Changed::from(removed > 0))
    });
    match removed {
        Ok(removed) => call.reply.int(removed.unwrap_or(0)),
        Err(text) => call.reply.error(&text),
    }
}

/// `ZCARD key`. Reply: the number of members, 0 without a sorted set.
pub(crate) fn zcard(call: &mut Call<'_, '_>) {
    read(call, |zset: Option<&ZSetValue>, reply| reply.int(zset.map_or(0, |zset| zset.len() as i64)));
}

/// `ZSCORE key member`. Reply: the score, or null.
pub(crate) fn zscore(call: &mut Call<'_, '_>) {
    let member = call.args.at(2);
    read(call, |zset: Option<&ZSetValue>, reply| {
        score_or_null(reply, zset.and_then(|zset| zset.score(member)));
    });
}

/// `ZMSCORE key member [member ...]`. Reply: an array of scores, null for a missing one.
pub(crate) fn zmscore(call: &mut Call<'_, '_>) {
    let members = call.args.skip(2);
    read(call, |zset: Option<&ZSetValue>, reply| {
        reply.array(members.len());
        for member in members.iter() {
            if reply.exceeds_limit() {
                return;
            }
            score_or_null(reply, zset.and_then(|zset| zset.score(member)));
        }
    });
}

fn score_or_null(reply: &mut Reply<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

/// `ZRANK key member [WITHSCORE]`. Reply: how many members come before this one, or null; with WITHSCORE an array with
/// the rank and the score.
pub(crate) fn zrank(call: &mut Call<'_, '_>) {
    rank(call, "zrank", |rank, _| rank);
}

/// `ZREVRANK key member [WITHSCORE]`: ZRANK from the end.
pub(crate) fn zrevrank(call: &mut Call<'_, '_>) {
    rank(call, "zrevrank", |rank, len| len - 1 - rank);
}

fn rank(call: &mut Call<'_, '_>, command: &str, count: fn(usize, usize) -> usize) {
    let with_score = match call.args.len() {
        3 => false,
        4 if call.args.is(3, "WITHSCORE") => true,
        4 => return call.reply.error(errors::SYNTAX),
        _ => {
            let text = format!("ERR wrong number of arguments for '{command}' command");
            return call.reply.error(&text);
        }
    };
    let member = call.args.at(2);
    read(call, |zset: Option<&ZSetValue>, reply| {
        let found = zset.and_then(|zset| Some((zset.rank(member)?, zset.len())));
        match (found, with_score) {
            (Some(((rank, score), len)), true) => {
                reply.array(2);
                reply.int(count(rank, len) as i64);
                reply.double(score);
            }
            (Some(((rank, _), len)), false) => reply.int(count(rank, len) as i64),
            (None, true) => reply.null_array(),
            (None, false) => reply.null(),
        }
    });
}

#[cfg(test)]
mod tests;
