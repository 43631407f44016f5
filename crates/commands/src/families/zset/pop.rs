//! Taking members off the ends of sorted sets: ZPOPMIN, ZPOPMAX, ZMPOP.
//!
//! Each command is one attempt; its form that blocks is the same attempt with a wait in front.

use super::super::collection::{read, send};
use crate::call::Call;
use crate::cost::part_elements;
use crate::errors;
use crate::families::list::counted_keys;
use crate::parse::{self, Text, wrong_type};
use std::ops::Range;
use strand_keyspace::types::list::End;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, Collection, ValueRef, ZSetValue};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// `ZPOPMIN key [count]`. Reply: an array of the members with the lowest scores, each followed by its score; in RESP3, with
/// a count, an array of pairs.
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
        let taken = taken(zset, from, count.unwrap_or(1));
        reply.array(if nested { taken.len() } else { 2 * taken.len() });
        send_taken(reply, zset, &taken, from, nested);
        zset.remove_range(taken);
        ((), Changed::Yes)
    });
    match popped {
        Ok(Some(())) => {}
        Ok(None) => call.reply.array(0),
        Err(other) => call.reply.error(wrong_type(other)),
    }
}

/// `ZMPOP numkeys key [key ...] MIN|MAX [COUNT count]`: takes members off the first sorted set that there is. Reply: its
/// key and an array of pairs, or null.
pub(crate) fn zmpop(call: &mut Call<'_, '_>) {
    let (from, count) = match arguments(call.args) {
        Ok(arguments) => arguments,
        Err(text) => return call.reply.error(&text),
    };
    for key in call.keys {
        let reply = &mut *call.reply;
        let popped = call.txn.db(call.db).change(key, |zset: &mut ZSetValue| {
            let taken = taken(zset, from, count);
            reply.array(2);
            reply.bulk(key.bytes);
            reply.array(taken.len());
            send_taken(reply, zset, &taken, from, true);
            zset.remove_range(taken);
            ((), Changed::Yes)
        });
        match popped {
            Ok(Some(())) => return,
            Ok(None) => {}
            Err(other) => return call.reply.error(wrong_type(other)),
        }
    }
    call.reply.null_array();
}

fn arguments(args: Args<'_>) -> Result<(End, usize), Text> {
    counted_keys(args, |word| match word {
        min if min.eq_ignore_ascii_case(b"min") => Ok(End::Front),
        max if max.eq_ignore_ascii_case(b"max") => Ok(End::Back),
        _ => Err(errors::SYNTAX),
    })
}

fn taken(zset: &ZSetValue, from: End, count: usize) -> Range<usize> {
    let (len, count) = (zset.len(), count.min(zset.len()));
    if from == End::Front { 0..count } else { len - count..len }
}

fn send_taken(reply: &mut Reply<'_>, zset: &ZSetValue, taken: &Range<usize>, from: End, nested: bool) {
    let members = if from == End::Front { zset.iter(taken.start) } else { zset.iter_back(taken.end) };
    for (member, score) in members.take(taken.len()) {
        if reply.is_over() {
            return;
        }
        if nested {
            reply.array(2);
        }
        send(reply, member);
        reply.double(score);
    }
}

/// What ZPOPMIN and ZPOPMAX cost on a sorted set.
pub(crate) fn pop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let count = args.get(2).map_or(Some(1), parse_int);
    part_elements(count.and_then(|n| usize::try_from(n).ok()).unwrap_or(0), value)
}

/// What ZMPOP costs on one of its sorted sets.
pub(crate) fn zmpop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    arguments(args).map_or(0, |(_, count)| part_elements(count, value))
}
