//! LMPOP, BLPOP, ZMPOP, BZPOPMIN and similar commands: they remove elements from the first of their keys that
//! exists.
//!
//! A blocking command makes the same attempt. If the attempt finds nothing, the handler stores what the
//! client would wait for ([`crate::wait`]).

use crate::call::{Call, LaneCall};
use crate::copy_write::{self, ChangeReport, KeyEffect};
use crate::errors;
use crate::long;
use crate::parse::{Text, wrong_type};
use crate::wait::{Wait, seconds};
use strand_keyspace::types::list::End;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, Collection, Key, KeyEvent, Value, Wanted};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// A collection from whose two ends elements can be removed.
pub(crate) trait PopsFirst: Collection {
    /// What a client waits for if no key exists.
    const WANTED: Wanted;
    /// The event that is reported when elements are removed from the end `from`, and the name of the command that
    /// does only that.
    fn pop_of(from: End) -> (KeyEvent, &'static [u8]);
    /// Removes up to `count` elements from one end, and replies with the key and an array of these elements.
    /// Without a count, removes one element, and replies with the key and the element.
    fn pop_with_key(&mut self, key: &Key<'_>, from: End, count: Option<usize>, reply: &mut Reply<'_>);
}

/// LMPOP and ZMPOP. `arguments` are the parsed end and count.
pub(crate) fn pop_counted<T: PopsFirst>(call: &mut Call<'_, '_>, arguments: Result<(End, usize), Text>) {
    match arguments {
        Ok((from, count)) => drop(pop_first::<T>(call, from, Some(count))),
        Err(text) => call.reply.error(&text),
    }
}

/// Long calls of LMPOP, ZMPOP, BLMPOP and BZMPOP. No shard is locked while the reply is written.
pub(crate) fn pop_counted_long<T: PopsFirst>(call: &mut LaneCall<'_>, arguments: Result<(End, usize), Text>) {
    match arguments {
        Ok((from, count)) => {
            let (event, command) = T::pop_of(from);
            let (spec, run) = long::spec_and_handler(&String::from_utf8_lossy(call.args.at(0)));
            let effect = |_: &Value| Some(KeyEffect { command, arguments: vec![count.to_string()] });
            copy_write::run(spec, run, call, Some(ChangeReport { event: Some(event), effect: &effect }));
        }
        Err(text) => call.reply.error(&text),
    }
}

/// BLMPOP and BZMPOP: the timeout, then the arguments of LMPOP or ZMPOP.
pub(crate) fn pop_counted_or_wait<T: PopsFirst>(
    call: &mut Call<'_, '_>,
    arguments: Result<(End, usize), Text>,
) {
    let timeout = |arguments| Ok((arguments, seconds(call.args.at(1))?));
    match arguments.and_then(timeout) {
        Ok(((from, count), timeout_ms)) => pop_or_wait::<T>(call, from, Some(count), timeout_ms, 3),
        Err(text) => call.reply.error(&text),
    }
}

/// BLPOP, BRPOP, BZPOPMIN and BZPOPMAX: the keys, then the timeout.
pub(crate) fn pop_one_or_wait<T: PopsFirst>(call: &mut Call<'_, '_>, from: End) {
    match seconds(call.args.at(call.args.len() - 1)) {
        Ok(timeout_ms) => pop_or_wait::<T>(call, from, None, timeout_ms, 1),
        Err(text) => call.reply.error(text),
    }
}

/// Parses the arguments of LMPOP and ZMPOP: the number of keys (argument `number`), the keys, the end, the count.
pub(crate) fn counted_keys(
    args: Args<'_>,
    number: usize,
    end: fn(&[u8]) -> Result<End, &'static str>,
) -> Result<(End, usize), Text> {
    const BAD_COUNT: &str = "ERR count should be greater than 0";
    let keys = positive(args.at(number), "ERR numkeys should be greater than 0")?;
    let at = keys.saturating_add(number + 1);
    let from = end(args.get(at).ok_or(errors::SYNTAX)?)?;
    let mut count = None;
    let mut option = at + 1;
    while option < args.len() {
        let value = args.get(option + 1).filter(|_| count.is_none() && args.is(option, "COUNT"));
        count = Some(positive(value.ok_or(errors::SYNTAX)?, BAD_COUNT)?);
        option += 2;
    }
    Ok((from, count.unwrap_or(1)))
}

/// Like [`pop_first`], but waits when no key exists. The keys begin at argument `first`.
fn pop_or_wait<T: PopsFirst>(
    call: &mut Call<'_, '_>,
    from: End,
    count: Option<usize>,
    timeout_ms: u64,
    first: usize,
) {
    if !pop_first::<T>(call, from, count) {
        call.wait = Some(Wait::at_each(timeout_ms, first, call.keys.len(), &T::WANTED));
    }
}

/// Removes elements from the first key that exists. If no key exists, replies with null and returns false.
fn pop_first<T: PopsFirst>(call: &mut Call<'_, '_>, from: End, count: Option<usize>) -> bool {
    let (event, command) = T::pop_of(from);
    call.txn.set_event(event);
    for key in call.keys {
        let reply = &mut *call.reply;
        let popped = call.txn.db(call.db).change(key, |collection: &mut T| {
            collection.pop_with_key(key, from, count, reply);
            ((), Changed::Yes)
        });
        match popped {
            Ok(Some(())) => {
                if call.is_recorded() {
                    let count = count.unwrap_or(1).to_string();
                    call.effect(&[command.into(), key.bytes.into(), count.as_bytes().into()]);
                }
                return true;
            }
            Ok(None) => {}
            Err(other) => {
                call.reply.error(wrong_type(other));
                return true;
            }
        }
    }
    call.reply.null_array();
    false
}

/// Parses a number of at least 1. `text` is the error text for anything else.
fn positive(bytes: &[u8], text: &'static str) -> Result<usize, &'static str> {
    parse_int(bytes).filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok()).ok_or(text)
}
