//! ZPOPMIN, ZPOPMAX and ZMPOP, which remove members from the ends of sorted sets. Also their blocking forms.
//!
//! A blocking command makes the same attempt. If the attempt finds nothing, the handler stores what the
//! client would wait for ([`crate::wait`]).

use super::super::collection::{read, send};
use crate::call::{Call, LaneCall};
use crate::cost::part_elements;
use crate::errors;
use crate::events::named;
use crate::families::first_pop::{self, PopsFirst, counted_keys};
use crate::optimistic::Pauses;
use crate::parse::{self, Text, wrong_type};
use std::ops::Range;
use strand_keyspace::types::list::End;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, Collection, Key, KeyEvent, ValueRef, Wanted, ZSetValue};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// `ZPOPMIN key [count]`: removes the members with the lowest scores. Reply: an array in which each member is
/// followed by its score; in RESP3 with a count, an array of pairs.
pub(crate) fn zpopmin(call: &mut Call<'_, '_>) {
    pop(call, End::Front);
}

/// `ZPOPMAX key [count]`: ZPOPMIN from the end.
pub(crate) fn zpopmax(call: &mut Call<'_, '_>) {
    pop(call, End::Back);
}

fn pop(call: &mut Call<'_, '_>, from: End) {
    let count = match call.args.len() {
        2 => None,
        3 => match parse::at_least_zero(call.args.at(2), errors::NOT_POSITIVE) {
            Ok(count) => Some(count),
            Err(_) => return call.reply.error(errors::NOT_POSITIVE),
        },
        _ => return call.reply.error(errors::SYNTAX),
    };
    if count == Some(0) {
        return read(call, |_: Option<&ZSetValue>, reply| reply.array(0));
    }
    let nested = count.is_some() && call.reply.protocol() == Protocol::Resp3;
    let (reply, mut db) = (&mut *call.reply, call.txn.db(call.db));
    let popped = db.change(&call.keys[0], |zset: &mut ZSetValue| {
        let pop_range = pop_range(zset, from, count.unwrap_or(1));
        reply.array(if nested { pop_range.len() } else { 2 * pop_range.len() });
        send_taken(reply, zset, &pop_range, from, nested);
        Pauses::new(&mut || reply.pause()).pieces_back(pop_range, |piece| zset.remove_range(piece));
        ((), Changed::Yes)
    });
    match popped {
        Ok(Some(())) => {}
        Ok(None) => call.reply.array(0),
        Err(other) => call.reply.error(wrong_type(other)),
    }
}

/// `ZMPOP numkeys key [key ...] MIN|MAX [COUNT count]`: removes members from the first sorted set that exists.
/// Reply: the key of that set and an array of pairs, or null.
pub(crate) fn zmpop(call: &mut Call<'_, '_>) {
    first_pop::pop_counted::<ZSetValue>(call, arguments(call.args, 1));
}

/// `BZMPOP timeout numkeys key [key ...] MIN|MAX [COUNT count]`: like ZMPOP, but waits if no sorted set exists.
pub(crate) fn bzmpop(call: &mut Call<'_, '_>) {
    first_pop::pop_counted_or_wait::<ZSetValue>(call, arguments(call.args, 2));
}

/// ZMPOP of many members, on the lane.
pub(crate) fn zmpop_long(call: &mut LaneCall<'_>) {
    first_pop::pop_counted_long::<ZSetValue>(call, arguments(call.args, 1));
}

/// BZMPOP of many members, on the lane.
pub(crate) fn bzmpop_long(call: &mut LaneCall<'_>) {
    first_pop::pop_counted_long::<ZSetValue>(call, arguments(call.args, 2));
}

/// `BZPOPMIN key [key ...] timeout`: removes the member with the lowest score from the first sorted set that
/// exists, or waits for a sorted set. Reply: the key, the member and its score, or null after the timeout.
pub(crate) fn bzpopmin(call: &mut Call<'_, '_>) {
    first_pop::pop_one_or_wait::<ZSetValue>(call, End::Front);
}

/// `BZPOPMAX key [key ...] timeout`: BZPOPMIN from the end.
pub(crate) fn bzpopmax(call: &mut Call<'_, '_>) {
    first_pop::pop_one_or_wait::<ZSetValue>(call, End::Back);
}

impl PopsFirst for ZSetValue {
    const WANTED: Wanted = Wanted::ZSet;

    fn pop_of(from: End) -> (KeyEvent, &'static [u8]) {
        match from {
            End::Front => (named::ZPOPMIN, b"ZPOPMIN"),
            End::Back => (named::ZPOPMAX, b"ZPOPMAX"),
        }
    }
    fn pop_with_key(&mut self, key: &Key<'_>, from: End, count: Option<usize>, reply: &mut Reply<'_>) {
        let pop_range = pop_range(self, from, count.unwrap_or(1));
        reply.array(if count.is_some() { 2 } else { 3 });
        reply.bulk(key.bytes);
        if count.is_some() {
            reply.array(pop_range.len());
        }
        send_taken(reply, self, &pop_range, from, count.is_some());
        Pauses::new(&mut || reply.pause()).pieces_back(pop_range, |piece| self.remove_range(piece));
    }
}

fn arguments(args: Args<'_>, number: usize) -> Result<(End, usize), Text> {
    counted_keys(args, number, |word| match word {
        min if min.eq_ignore_ascii_case(b"min") => Ok(End::Front),
        max if max.eq_ignore_ascii_case(b"max") => Ok(End::Back),
        _ => Err(errors::SYNTAX),
    })
}

fn pop_range(zset: &ZSetValue, from: End, count: usize) -> Range<usize> {
    let (len, count) = (zset.len(), count.min(zset.len()));
    if from == End::Front { 0..count } else { len - count..len }
}

fn send_taken(reply: &mut Reply<'_>, zset: &ZSetValue, pop_range: &Range<usize>, from: End, nested: bool) {
    let members = if from == End::Front { zset.iter(pop_range.start) } else { zset.iter_back(pop_range.end) };
    for (member, score) in members.take(pop_range.len()) {
        if reply.exceeds_limit() {
            return;
        }
        if nested {
            reply.array(2);
        }
        send(reply, member);
        reply.double(score);
    }
}

/// The cost of ZPOPMIN and ZPOPMAX on a sorted set, in elements.
pub(crate) fn pop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let count = args.get(2).map_or(Some(1), parse_int);
    part_elements(count.and_then(|n| usize::try_from(n).ok()).unwrap_or(0), value)
}

/// The cost of ZMPOP on one of its sorted sets, in elements.
pub(crate) fn zmpop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    arguments(args, 1).map_or(0, |(_, count)| part_elements(count, value))
}

/// The cost of BZMPOP on one of its sorted sets, in elements.
pub(crate) fn bzmpop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    arguments(args, 2).map_or(0, |(_, count)| part_elements(count, value))
}
