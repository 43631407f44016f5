//! Ranges of a sorted set by rank, by score or by member. They are counted, sent, stored or removed.
//!
//! The arguments of each command are parsed to a [`Query`]. For a given sorted set, a query is a range of ranks.

use super::super::collection::{read, send, visit_existing};
use super::bounds::{Bounds, RangeBy};
use crate::call::{Call, LaneCall};
use crate::copy_write::{self, ChangeReport, KeyEffect};
use crate::cost::part_elements;
use crate::errors;
use crate::long;
use crate::optimistic::{self, OptimisticWrite, Pauses};
use crate::parse::{self, Text, wrong_type};
use std::ops::Range;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Changed, Collection, Db, Key, Settings, Value, ValueRef, ZSetValue};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

const LIMIT_BY_RANK: &str =
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
const SCORES_BY_LEX: &str = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";

/// The range that a command names, its direction, and its LIMIT.
#[derive(Debug)]
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    offset: i64,
    /// The count of LIMIT. A negative number means all.
    limit: i64,
    with_scores: bool,
}

/// What the name of a command says about its arguments.
#[derive(Clone, Copy)]
struct CommandForm {
    /// The index of the argument that is the key to read.
    key: usize,
    by: Option<RangeBy>,
    reverse: Option<bool>,
    stores: bool,
}

impl<'a> Query<'a> {
    fn parse(args: Args<'a>, form: CommandForm) -> Result<Query<'a>, Text> {
        let (mut by, mut reverse) = (form.by, form.reverse);
        let (mut offset, mut limit, mut with_scores) = (0, -1, false);
        let mut at = form.key + 3;
        while at < args.len() {
            if !form.stores && args.is(at, "WITHSCORES") {
                with_scores = true;
            } else if args.is(at, "LIMIT") && at + 2 < args.len() {
                (offset, limit) = (parse::integer(args.at(at + 1))?, parse::integer(args.at(at + 2))?);
                at += 2;
            } else if reverse.is_none() && args.is(at, "REV") {
                reverse = Some(true);
            } else if by.is_none() && args.is(at, "BYLEX") {
                by = Some(RangeBy::Lex);
            } else if by.is_none() && args.is(at, "BYSCORE") {
                by = Some(RangeBy::Score);
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 1;
        }
        let (by, reverse) = (by.unwrap_or(RangeBy::Rank), reverse.unwrap_or(false));
        if limit != -1 && by == RangeBy::Rank {
            return Err(LIMIT_BY_RANK.into());
        }
        if with_scores && by == RangeBy::Lex {
            return Err(SCORES_BY_LEX.into());
        }
        let (mut low, mut high) = (args.at(form.key + 1), args.at(form.key + 2));
        if reverse && by != RangeBy::Rank {
            (low, high) = (high, low);
        }
        let bounds = Bounds::parse(by, low, high)?;
        if by == RangeBy::Rank {
            (offset, limit) = (0, -1);
        }
        Ok(Query { bounds, reverse, offset, limit, with_scores })
    }
    /// Number of members up to the last one that LIMIT selects.
    fn most(&self) -> usize {
        let to_usize = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        to_usize(self.offset).saturating_add(to_usize(self.limit))
    }
    /// The ranks that the query selects.
    fn ranks(&self, zset: &ZSetValue) -> Range<usize> {
        let all = self.bounds.first_ranks(zset, self.reverse, self.most());
        // A negative offset skips all members, as in redis-server.
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(all.len());
        let taken = usize::try_from(self.limit).unwrap_or(usize::MAX).min(all.len() - skipped);
        match self.reverse {
            false => all.start + skipped..all.start + skipped + taken,
            true => all.end - skipped - taken..all.end - skipped,
        }
    }
}

/// The members with these ranks, in the direction of the query.
fn members<'z>(
    zset: &'z ZSetValue,
    ranks: &Range<usize>,
    reverse: bool,
) -> impl Iterator<Item = (Bytes<'z>, f64)> {
    let members = if reverse { zset.iter_back(ranks.end) } else { zset.iter(ranks.start) };
    members.take(ranks.len())
}

const RANGE: CommandForm = CommandForm { key: 1, by: None, reverse: None, stores: false };

const fn fixed(by: RangeBy, reverse: bool) -> CommandForm {
    CommandForm { key: 1, by: Some(by), reverse: Some(reverse), stores: false }
}

/// `ZRANGE key start stop [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`. Reply: an array of members, with
/// WITHSCORES also their scores.
pub(crate) fn zrange(call: &mut Call<'_, '_>) {
    answer(call, RANGE);
}
/// `ZREVRANGE key start stop [WITHSCORES]`: ranks from the end.
pub(crate) fn zrevrange(call: &mut Call<'_, '_>) {
    answer(call, fixed(RangeBy::Rank, true));
}
/// `ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]`.
pub(crate) fn zrangebyscore(call: &mut Call<'_, '_>) {
    answer(call, fixed(RangeBy::Score, false));
}
/// `ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]`.
pub(crate) fn zrevrangebyscore(call: &mut Call<'_, '_>) {
    answer(call, fixed(RangeBy::Score, true));
}
/// `ZRANGEBYLEX key min max [LIMIT offset count]`.
pub(crate) fn zrangebylex(call: &mut Call<'_, '_>) {
    answer(call, fixed(RangeBy::Lex, false));
}
/// `ZREVRANGEBYLEX key max min [LIMIT offset count]`.
pub(crate) fn zrevrangebylex(call: &mut Call<'_, '_>) {
    answer(call, fixed(RangeBy::Lex, true));
}

fn answer(call: &mut Call<'_, '_>, form: CommandForm) {
    let query = match Query::parse(call.args, form) {
        Ok(query) => query,
        Err(text) => return call.reply.error(&text),
    };
    read(call, |zset: Option<&ZSetValue>, reply| {
        let Some(zset) = zset else { return reply.array(0) };
        let ranks = query.ranks(zset);
        announce(reply, ranks.len(), query.with_scores);
        for (member, score) in members(zset, &ranks, query.reverse) {
            if reply.exceeds_limit() {
                return;
            }
            send_member(reply, member, query.with_scores.then_some(score));
        }
    });
}

/// Begins an array of members. If it has scores, it is a flat array in RESP2 and an array of pairs in RESP3.
pub(super) fn announce(reply: &mut Reply<'_>, members: usize, with_scores: bool) {
    reply.array(if with_scores && reply.protocol() == Protocol::Resp2 { 2 * members } else { members });
}
pub(super) fn send_member(reply: &mut Reply<'_>, member: Bytes<'_>, score: Option<f64>) {
    if score.is_some() && reply.protocol() == Protocol::Resp3 {
        reply.array(2);
    }
    send(reply, member);
    if let Some(score) = score {
        reply.double(score);
    }
}

/// `ZRANGESTORE destination source min max [BYSCORE|BYLEX] [REV] [LIMIT offset count]`. Reply: how many members were
/// stored.
pub(crate) fn zrangestore(call: &mut Call<'_, '_>) {
    let settings = call.txn.keyspace().settings();
    let stored = StoreWrite::new(call.args, call.keys, settings)
        .and_then(|mut storing| optimistic::apply_at_once(&mut call.txn.db(call.db), &mut storing));
    match stored {
        Ok(stored) => call.reply.int(stored.len() as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// ZRANGESTORE of many members, on the lane.
pub(crate) fn zrangestore_long(call: &mut LaneCall<'_>) {
    let keys = [1, 2].map(|at| call.keyspace.key(call.args.at(at)));
    let settings = call.keyspace.settings();
    let stored = StoreWrite::new(call.args, &keys, settings)
        .and_then(|mut storing| optimistic::apply(call, &keys.map(|key| key.hash), &mut storing));
    match stored {
        Ok(stored) => call.reply.int(stored.len() as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// A ZRANGESTORE, with its destination, its source and its query.
struct StoreWrite<'a> {
    query: Query<'a>,
    keys: &'a [Key<'a>],
    settings: &'a Settings,
    /// The start and the stop of the effect, if the effect must name ranks.
    rank_words: Option<[String; 2]>,
}

impl<'a> StoreWrite<'a> {
    fn new(args: Args<'a>, keys: &'a [Key<'a>], settings: &'a Settings) -> Result<StoreWrite<'a>, Text> {
        let query = Query::parse(args, CommandForm { key: 2, stores: true, ..RANGE })?;
        Ok(StoreWrite { query, keys, settings, rank_words: None })
    }
}

impl OptimisticWrite for StoreWrite<'_> {
    type Source = Option<ZSetValue>;
    type Outcome = ZSetValue;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<ZSetValue>, Text> {
        Ok(db.read::<ZSetValue>(&self.keys[1]).map_err(wrong_type)?.cloned())
    }
    fn is_same(&self, before: &Option<ZSetValue>, now: &Option<ZSetValue>) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => now.is_same(before),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    fn compute(&mut self, source: &Option<ZSetValue>, pause: &dyn Fn()) -> Result<ZSetValue, Text> {
        let mut stored = ZSetValue::new();
        self.rank_words = None;
        let Some(zset) = source else { return Ok(stored) };
        let mut pause = || {
            pause();
            true
        };
        let mut pauses = Pauses::new(&mut pause);
        let ranks = self.query.ranks(zset);
        self.rank_words = self.query.bounds.rank_words(zset, &ranks);
        for (member, score) in members(zset, &ranks, self.query.reverse) {
            stored.set(member, score, self.settings);
            pauses.may_continue();
        }
        Ok(stored)
    }
    fn store(&self, db: &mut Db<'_, '_>, stored: &ZSetValue) {
        let [destination, source] = [&self.keys[0], &self.keys[1]];
        let changed = if stored.is_empty() {
            db.delete(destination)
        } else {
            db.insert(destination, Value::ZSet(stored.clone()), None);
            true
        };
        if let (Some([start, stop]), true) = (&self.rank_words, changed && db.is_recorded()) {
            let words = [b"ZRANGESTORE", destination.bytes, source.bytes, start.as_bytes(), stop.as_bytes()];
            db.effect(&words.map(Arg::Bytes));
        }
    }
}

/// `ZCOUNT key min max`. Reply: how many members have a score in the range.
pub(crate) fn zcount(call: &mut Call<'_, '_>) {
    count(call, RangeBy::Score);
}
/// `ZLEXCOUNT key min max`. Reply: how many members lie in the range.
pub(crate) fn zlexcount(call: &mut Call<'_, '_>) {
    count(call, RangeBy::Lex);
}

fn count(call: &mut Call<'_, '_>, by: RangeBy) {
    match Bounds::parse(by, call.args.at(2), call.args.at(3)) {
        Ok(bounds) => read(call, |zset: Option<&ZSetValue>, reply| {
            reply.int(zset.map_or(0, |zset| bounds.count(zset) as i64));
        }),
        Err(text) => call.reply.error(&text),
    }
}

/// `ZREMRANGEBYRANK key start stop`. Reply: how many members it removed.
pub(crate) fn zremrangebyrank(call: &mut Call<'_, '_>) {
    remove(call, RangeBy::Rank);
}
/// `ZREMRANGEBYSCORE key min max`. Reply: how many members it removed.
pub(crate) fn zremrangebyscore(call: &mut Call<'_, '_>) {
    remove(call, RangeBy::Score);
}
/// `ZREMRANGEBYLEX key min max`. Reply: how many members it removed.
pub(crate) fn zremrangebylex(call: &mut Call<'_, '_>) {
    remove(call, RangeBy::Lex);
}

fn remove(call: &mut Call<'_, '_>, by: RangeBy) {
    let bounds = match Bounds::parse(by, call.args.at(2), call.args.at(3)) {
        Ok(bounds) => bounds,
        Err(text) => return call.reply.error(&text),
    };
    let (is_recorded, mut effect) = (call.is_recorded(), None);
    let removed = visit_existing(call, |zset: &mut ZSetValue, pauses| {
        let ranks = bounds.ranks(zset, false);
        let removed = ranks.len();
        if is_recorded && removed > 0 {
            effect = removal_by_rank(&bounds, zset, &ranks);
        }
        pauses.pieces_back(ranks, |piece| zset.remove_range(piece));
        (removed as i64, Changed::from(removed > 0))
    });
    match removed {
        Ok(removed) => {
            if let Some(effect) = effect {
                effect.record(&mut call.txn.db(call.db), call.keys[0].bytes);
            }
            call.reply.int(removed.unwrap_or(0));
        }
        Err(text) => call.reply.error(&text),
    }
}

/// A removal of these ranks, if the effect of a removal by `bounds` must name ranks.
fn removal_by_rank(bounds: &Bounds<'_>, zset: &ZSetValue, ranks: &Range<usize>) -> Option<KeyEffect> {
    let words = bounds.rank_words(zset, ranks)?;
    Some(KeyEffect { command: b"ZREMRANGEBYRANK", arguments: words.to_vec() })
}

/// ZREMRANGEBYLEX of many members, on the lane.
pub(crate) fn zremrangebylex_long(call: &mut LaneCall<'_>) {
    let (spec, run) = long::spec_and_handler("zremrangebylex");
    let bounds = Bounds::parse(RangeBy::Lex, call.args.at(2), call.args.at(3));
    let effect = |before: &Value| match (&bounds, before) {
        (Ok(bounds), Value::ZSet(zset)) => removal_by_rank(bounds, zset, &bounds.ranks(zset, false)),
        _ => None,
    };
    copy_write::run(spec, run, call, Some(ChangeReport { event: None, effect: &effect }));
}

/// The cost of ZRANGE on a sorted set, in elements.
pub(crate) fn range_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, RANGE)
}
/// The cost of ZREVRANGE on a sorted set.
pub(crate) fn revrange_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, fixed(RangeBy::Rank, true))
}
/// The cost of ZRANGEBYSCORE on a sorted set.
pub(crate) fn range_by_score_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, fixed(RangeBy::Score, false))
}
/// The cost of ZREVRANGEBYSCORE on a sorted set.
pub(crate) fn revrange_by_score_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, fixed(RangeBy::Score, true))
}
/// The cost of ZRANGEBYLEX on a sorted set.
pub(crate) fn range_by_lex_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, fixed(RangeBy::Lex, false))
}
/// The cost of ZREVRANGEBYLEX on a sorted set.
pub(crate) fn revrange_by_lex_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, fixed(RangeBy::Lex, true))
}
/// The cost of ZRANGESTORE on its source. A destination that is a sorted set counts too.
pub(crate) fn rangestore_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    query_elements(args, value, CommandForm { key: 2, stores: true, ..RANGE })
}
/// The cost of ZREMRANGEBYRANK on a sorted set.
pub(crate) fn remove_by_rank_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    removed_elements(args, value, RangeBy::Rank)
}
/// The cost of ZREMRANGEBYSCORE on a sorted set.
pub(crate) fn remove_by_score_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    removed_elements(args, value, RangeBy::Score)
}
/// The cost of ZREMRANGEBYLEX on a sorted set.
pub(crate) fn remove_by_lex_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    removed_elements(args, value, RangeBy::Lex)
}

fn query_elements(args: Args<'_>, value: ValueRef<'_>, form: CommandForm) -> usize {
    match (value, Query::parse(args, form)) {
        (ValueRef::ZSet(zset), Ok(query)) => {
            part_elements(query.bounds.cost(zset, query.most(), || query.ranks(zset).len()), value)
        }
        _ => 0,
    }
}
fn removed_elements(args: Args<'_>, value: ValueRef<'_>, by: RangeBy) -> usize {
    match (value, Bounds::parse(by, args.at(2), args.at(3))) {
        (ValueRef::ZSet(zset), Ok(bounds)) => {
            bounds.cost(zset, usize::MAX, || bounds.ranks(zset, false).len())
        }
        _ => 0,
    }
}
