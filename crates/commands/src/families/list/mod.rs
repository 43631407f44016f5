//! The list commands. Commands that remove elements from the ends are in [`pop`], LMOVEM and BLMOVEM in
//! [`move_many`], and commands that compare elements in [`search`].

mod move_many;
mod pop;
mod search;

pub(crate) use move_many::{blmovem, blmovem_elements, lmovem, movem_elements};
pub(crate) use pop::{
    blmove, blmpop, blmpop_elements, blmpop_long, blpop, brpop, brpoplpush, lmove, lmpop, lmpop_elements,
    lmpop_long, lpop, pop_elements, rpop, rpoplpush,
};
pub(crate) use search::{linsert, linsert_elements, lpos, lpos_elements, lrem, lrem_elements};

use super::collection::{self, argument, read, send, send_or_null};
use crate::call::Call;
use crate::cost::part_elements;
use crate::errors;
use crate::parse::{self, Text};
use std::ops::Range;
use strand_keyspace::types::list::End;
use strand_keyspace::{Changed, Collection, ListValue, ValueRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Number of elements whose removal takes as long as one element of other work, because whole pages are dropped.
const REMOVED_PER_ELEMENT: usize = 64;

/// `LPUSH key element [element ...]`. Reply: the new length.
pub(crate) fn lpush(call: &mut Call<'_, '_>) {
    push(call, End::Front, true);
}

/// `RPUSH key element [element ...]`. Reply: the new length.
pub(crate) fn rpush(call: &mut Call<'_, '_>) {
    push(call, End::Back, true);
}

/// `LPUSHX key element [element ...]`: LPUSH if the list exists. Reply: the new length, 0 without a list.
pub(crate) fn lpushx(call: &mut Call<'_, '_>) {
    push(call, End::Front, false);
}

/// `RPUSHX key element [element ...]`: RPUSH if the list exists. Reply: the new length, 0 without a list.
pub(crate) fn rpushx(call: &mut Call<'_, '_>) {
    push(call, End::Back, false);
}

fn push(call: &mut Call<'_, '_>, end: End, create: bool) {
    let args = call.args;
    let push = |list: &mut ListValue| {
        (2..args.len()).for_each(|i| list.push(end, argument(args, i)));
        (list.len() as i64, Changed::Yes)
    };
    let len = match create {
        true => collection::update(call, |list, _| Ok(push(list))),
        false => collection::update_existing(call, |list, _| push(list)).map(|len| len.unwrap_or(0)),
    };
    match len {
        Ok(len) => call.reply.int(len),
        Err(text) => call.reply.error(&text),
    }
}

/// `LLEN key`. Reply: the length, 0 without a list.
pub(crate) fn llen(call: &mut Call<'_, '_>) {
    read(call, |list: Option<&ListValue>, reply| reply.int(list.map_or(0, |list| list.len() as i64)));
}

/// `LINDEX key index`: a negative index counts from the end. Reply: the element, or null.
pub(crate) fn lindex(call: &mut Call<'_, '_>) {
    let index = call.args.at(2);
    read(call, |list: Option<&ListValue>, reply| {
        // When the list is missing, an error in the index is not reported, as in redis-server.
        let Some(list) = list else { return reply.null() };
        match parse::integer(index) {
            Ok(index) => send_or_null(reply, place(index, list.len()).and_then(|i| list.get(i))),
            Err(text) => reply.error(text),
        }
    });
}

/// `LSET key index element`. Reply: OK, or an error when the index is out of range.
pub(crate) fn lset(call: &mut Call<'_, '_>) {
    let (index, element) = (call.args.at(2), argument(call.args, 3));
    let set = collection::update_existing(call, |list: &mut ListValue, _| {
        let at = match parse::integer(index) {
            Ok(index) => place(index, list.len()).ok_or(errors::INDEX_OUT_OF_RANGE),
            Err(text) => Err(text),
        };
        match at {
            Ok(at) => {
                list.set(at, element);
                (Ok(()), Changed::Yes)
            }
            Err(text) => (Err(text), Changed::No),
        }
    });
    match set {
        Ok(Some(Ok(()))) => call.reply.ok(),
        Ok(Some(Err(text))) => call.reply.error(text),
        Ok(None) => call.reply.error(errors::NO_SUCH_KEY),
        Err(text) => call.reply.error(&text),
    }
}

/// `LRANGE key start stop`. Reply: an array of the elements from one index to the other, both included.
pub(crate) fn lrange(call: &mut Call<'_, '_>) {
    let (start, stop) = match bounds(call.args) {
        Ok(bounds) => bounds,
        Err(text) => return call.reply.error(&text),
    };
    read(call, |list: Option<&ListValue>, reply| {
        let Some(list) = list else { return reply.array(0) };
        send_range(reply, list, range(start, stop, list.len()), End::Front);
    });
}

/// `LTRIM key start stop`: removes all elements that LRANGE would not return. Reply: OK.
pub(crate) fn ltrim(call: &mut Call<'_, '_>) {
    let (start, stop) = match bounds(call.args) {
        Ok(bounds) => bounds,
        Err(text) => return call.reply.error(&text),
    };
    let trimmed = collection::update_existing(call, |list: &mut ListValue, _| {
        let (len, kept) = (list.len(), range(start, stop, list.len()));
        list.remove(kept.end..len);
        list.remove(0..kept.start);
        // LTRIM counts as a change even if it removes nothing, as in redis-server. WATCH and events depend on this.
        ((), true.into())
    });
    match trimmed {
        Ok(_) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

/// The cost of LRANGE on a list, in elements.
pub(crate) fn range_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let Ok((start, stop)) = bounds(args) else { return 0 };
    part_elements(range(start, stop, value.elements()).len(), value)
}

/// The cost of LTRIM on a list, in elements.
pub(crate) fn trim_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let Ok((start, stop)) = bounds(args) else { return 0 };
    (value.elements() - range(start, stop, value.elements()).len()) / REMOVED_PER_ELEMENT
}

fn bounds(args: Args<'_>) -> Result<(i64, i64), Text> {
    Ok((parse::integer(args.at(2))?, parse::integer(args.at(3))?))
}

/// The position to which an index refers. A negative index counts from the end.
fn place(index: i64, len: usize) -> Option<usize> {
    let at = if index < 0 { index + len as i64 } else { index };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// The range of positions from `start` to `stop`, both included. Negative numbers count from the end.
pub(crate) fn range(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let start = if start < 0 { (start + len).max(0) } else { start };
    let stop = if stop < 0 { stop + len } else { stop.min(len - 1) };
    if start > stop || start >= len { 0..0 } else { start as usize..stop as usize + 1 }
}

/// Sends an array of the elements in a range, beginning at the end `from` of the range.
fn send_range(reply: &mut Reply<'_>, list: &ListValue, range: Range<usize>, from: End) {
    reply.array(range.len());
    let elements = match from {
        End::Front => list.iter(range.start),
        End::Back => list.iter_back(range.end),
    };
    for element in elements.take(range.len()) {
        if reply.exceeds_limit() {
            return;
        }
        send(reply, element);
    }
}

/// Parses the argument `LEFT` or `RIGHT`.
fn end(word: &[u8]) -> Result<End, &'static str> {
    match word {
        left if left.eq_ignore_ascii_case(b"left") => Ok(End::Front),
        right if right.eq_ignore_ascii_case(b"right") => Ok(End::Back),
        _ => Err(errors::SYNTAX),
    }
}

#[cfg(test)]
mod tests;
