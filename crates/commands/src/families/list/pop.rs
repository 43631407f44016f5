//! LPOP, RPOP, LMPOP, LMOVE and RPOPLPUSH, which remove elements from the ends of lists. Also their blocking forms.
//!
//! A blocking command makes the same attempt. If the attempt finds nothing, the handler stores what the
//! client would wait for ([`crate::wait`]).

use super::{end, send_range};
use crate::call::{Call, LaneCall};
use crate::cost::part_elements;
use crate::errors;
use crate::events::named;
use crate::families::collection::{read, send, update_existing};
use crate::families::first_pop::{self, PopsFirst, counted_keys};
use crate::parse::{self, Text, wrong_type};
use crate::wait::{Wait, seconds};
use smallvec::SmallVec;
use std::ops::Range;
use strand_chain::Blob;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::Bytes;
use strand_keyspace::types::list::End;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, Collection, Key, KeyEvent, ListValue, ValueRef, Wanted};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// An element that is moved from one list to another. A short element needs no allocation.
pub(super) enum Moved {
    Short(SmallVec<[u8; 64]>),
    Shared(Blob),
}

impl Moved {
    pub(super) fn of(bytes: Bytes<'_>) -> Moved {
        match bytes {
            Bytes::Slice(slice) => Moved::Short(SmallVec::from_slice(slice)),
            Bytes::Shared(blob) => Moved::Shared(blob.clone()),
        }
    }
    pub(super) fn bytes(&self) -> Bytes<'_> {
        match self {
            Moved::Short(short) => Bytes::Slice(short),
            Moved::Shared(blob) => Bytes::Shared(blob),
        }
    }
}

/// `LPOP key [count]`. Reply: the first element or null; with a count, an array of the elements, or null without a
/// list.
pub(crate) fn lpop(call: &mut Call<'_, '_>) {
    pop(call, End::Front, "lpop");
}

/// `RPOP key [count]`: LPOP from the end.
pub(crate) fn rpop(call: &mut Call<'_, '_>) {
    pop(call, End::Back, "rpop");
}

fn pop(call: &mut Call<'_, '_>, from: End, command: &str) {
    let count = match call.args.len() {
        2 => None,
        3 => match parse::at_least_zero(call.args.at(2), errors::NOT_POSITIVE) {
            Ok(count) => Some(count),
            Err(_) => return call.reply.error(errors::NOT_POSITIVE),
        },
        _ => {
            let text = format!("ERR wrong number of arguments for '{command}' command");
            return call.reply.error(&text);
        }
    };
    if count == Some(0) {
        return read(call, |list: Option<&ListValue>, reply| match list {
            Some(_) => reply.array(0),
            None => reply.null_array(),
        });
    }
    let key = &call.keys[0];
    let (reply, mut db) = (&mut *call.reply, call.txn.db(call.db));
    let popped = db.change(key, |list: &mut ListValue| {
        let taken = popped_range(list, from, count.unwrap_or(1));
        match count {
            Some(_) => send_range(reply, list, taken.clone(), from),
            None => list.get(taken.start).into_iter().for_each(|element| send(reply, element)),
        }
        list.remove(taken);
        ((), Changed::Yes)
    });
    match popped {
        Ok(Some(())) => {}
        Ok(None) if count.is_some() => call.reply.null_array(),
        Ok(None) => call.reply.null(),
        Err(other) => call.reply.error(wrong_type(other)),
    }
}

/// `LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count]`: removes elements from the first list that exists. Reply:
/// the key of that list and an array of the elements, or null.
pub(crate) fn lmpop(call: &mut Call<'_, '_>) {
    first_pop::pop_counted::<ListValue>(call, counted_keys(call.args, 1, end));
}

/// `BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]`: like LMPOP, but waits if no list exists.
pub(crate) fn blmpop(call: &mut Call<'_, '_>) {
    first_pop::pop_counted_or_wait::<ListValue>(call, counted_keys(call.args, 2, end));
}

/// LMPOP of many elements, on the lane.
pub(crate) fn lmpop_long(call: &mut LaneCall<'_>) {
    first_pop::pop_counted_long::<ListValue>(call, counted_keys(call.args, 1, end));
}

/// BLMPOP of many elements, on the lane.
pub(crate) fn blmpop_long(call: &mut LaneCall<'_>) {
    first_pop::pop_counted_long::<ListValue>(call, counted_keys(call.args, 2, end));
}

/// `BLPOP key [key ...] timeout`: removes the first element of the first list that exists, or waits for a list.
/// Reply: the key and the element, or null after the timeout.
pub(crate) fn blpop(call: &mut Call<'_, '_>) {
    first_pop::pop_one_or_wait::<ListValue>(call, End::Front);
}

/// `BRPOP key [key ...] timeout`: BLPOP from the end.
pub(crate) fn brpop(call: &mut Call<'_, '_>) {
    first_pop::pop_one_or_wait::<ListValue>(call, End::Back);
}

impl PopsFirst for ListValue {
    const WANTED: Wanted = Wanted::List;

    fn pop_of(from: End) -> (KeyEvent, &'static [u8]) {
        let command: &[u8] = if from == End::Front { b"LPOP" } else { b"RPOP" };
        (pop_event(from), command)
    }
    fn pop_with_key(&mut self, key: &Key<'_>, from: End, count: Option<usize>, reply: &mut Reply<'_>) {
        let taken = popped_range(self, from, count.unwrap_or(1));
        reply.array(2);
        reply.bulk(key.bytes);
        match count {
            Some(_) => send_range(reply, self, taken.clone(), from),
            None => self.get(taken.start).into_iter().for_each(|element| send(reply, element)),
        }
        self.remove(taken);
    }
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`. Reply: the element moved, or null without a source.
pub(crate) fn lmove(call: &mut Call<'_, '_>) {
    let ends = end(call.args.at(3)).and_then(|from| Ok((from, end(call.args.at(4))?)));
    match ends {
        Ok((from, to)) => move_one(call, from, to, None),
        Err(text) => call.reply.error(text),
    }
}

/// `RPOPLPUSH source destination`: LMOVE from right to left.
pub(crate) fn rpoplpush(call: &mut Call<'_, '_>) {
    move_one(call, End::Back, End::Front, None);
}

/// `BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout`: LMOVE that waits for the source.
pub(crate) fn blmove(call: &mut Call<'_, '_>) {
    let arguments =
        || Ok::<_, &str>((end(call.args.at(3))?, end(call.args.at(4))?, seconds(call.args.at(5))?));
    match arguments() {
        Ok((from, to, timeout_ms)) => move_one(call, from, to, Some(timeout_ms)),
        Err(text) => call.reply.error(text),
    }
}

/// `BRPOPLPUSH source destination timeout`: BLMOVE from right to left.
pub(crate) fn brpoplpush(call: &mut Call<'_, '_>) {
    match seconds(call.args.at(3)) {
        Ok(timeout_ms) => move_one(call, End::Back, End::Front, Some(timeout_ms)),
        Err(text) => call.reply.error(text),
    }
}

/// Moves an element. If the source is missing, a call with a timeout waits.
fn move_one(call: &mut Call<'_, '_>, from: End, to: End, timeout_ms: Option<u64>) {
    let moved = match call.keys[0].bytes == call.keys[1].bytes {
        true => rotate(call, from, to),
        false => try_move(call, from, to).map_err(Text::from),
    };
    match moved {
        Ok(Some(moved)) => {
            send(call.reply, moved.bytes());
            if call.is_recorded() && timeout_ms.is_some() {
                let [source, destination] = [call.keys[0].bytes, call.keys[1].bytes].map(Arg::Bytes);
                call.effect(&[b"LMOVE".into(), source, destination, word_of(from), word_of(to)]);
            }
        }
        Ok(None) => {
            call.reply.null();
            call.wait = timeout_ms.map(|timeout_ms| Wait::at_each(timeout_ms, 1, 1, &Wanted::List));
        }
        Err(text) => call.reply.error(&text),
    }
}

fn try_move(call: &mut Call<'_, '_>, from: End, to: End) -> Result<Option<Moved>, &'static str> {
    let (source, destination) = (&call.keys[0], &call.keys[1]);
    let mut db = call.txn.db(call.db);
    // If the source or the destination is no list, this fails before any list is changed.
    let Some(list) = db.read_to_write::<ListValue>(source).map_err(wrong_type)? else { return Ok(None) };
    let Some(moved) = list.get(end_place(list, from)).map(Moved::of) else { return Ok(None) };
    db.set_event(push_event(to));
    let pushed = db.change_or_create(destination, |list: &mut ListValue| {
        list.push(to, moved.bytes());
        ((), Changed::Yes)
    });
    pushed.map_err(wrong_type)?;
    db.set_event(pop_event(from));
    let popped = db.change(source, |list: &mut ListValue| {
        let at = end_place(list, from);
        list.remove(at..at + 1);
        ((), Changed::Yes)
    });
    popped.map_err(wrong_type)?;
    Ok(Some(moved))
}

/// Moves an element within one list. The list keeps its expiry even if this is its only element.
fn rotate(call: &mut Call<'_, '_>, from: End, to: End) -> Result<Option<Moved>, Text> {
    call.txn.set_event(push_event(to));
    let moved = update_existing(call, |list: &mut ListValue, _| {
        let at = end_place(list, from);
        let moved = list.get(at).map(Moved::of);
        if let (Some(moved), true) = (&moved, from != to) {
            list.remove(at..at + 1);
            list.push(to, moved.bytes());
        }
        (moved, Changed::Yes)
    })?;
    if moved.as_ref().is_some_and(Option::is_some) {
        call.txn.db(call.db).report_event(&call.keys[0], pop_event(from));
    }
    Ok(moved.flatten())
}

fn word_of(end: End) -> Arg<'static> {
    Arg::Bytes(if end == End::Front { b"LEFT" } else { b"RIGHT" })
}

/// The event that a pop at this end reports.
pub(super) fn pop_event(end: End) -> KeyEvent {
    if end == End::Front { named::LPOP } else { named::RPOP }
}

/// The event that a push at this end reports.
pub(super) fn push_event(end: End) -> KeyEvent {
    if end == End::Front { named::LPUSH } else { named::RPUSH }
}

/// The cost of LPOP and RPOP on a list, in elements.
pub(crate) fn pop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let count = args.get(2).map_or(Some(1), parse_int);
    part_elements(count.and_then(|n| usize::try_from(n).ok()).unwrap_or(0), value)
}

/// The cost of LMPOP on one of its lists, in elements.
pub(crate) fn lmpop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    counted_keys(args, 1, end).map_or(0, |(_, count)| part_elements(count, value))
}

/// The cost of BLMPOP on one of its lists, in elements.
pub(crate) fn blmpop_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    counted_keys(args, 2, end).map_or(0, |(_, count)| part_elements(count, value))
}

/// The range of positions of the `count` elements at one end.
pub(super) fn popped_range(list: &ListValue, from: End, count: usize) -> Range<usize> {
    let (len, count) = (list.len(), count.min(list.len()));
    match from {
        End::Front => 0..count,
        End::Back => len - count..len,
    }
}

fn end_place(list: &ListValue, end: End) -> usize {
    match end {
        End::Front => 0,
        End::Back => list.len().saturating_sub(1),
    }
}
