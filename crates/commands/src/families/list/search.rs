//! Commands that search for elements by their bytes: LINSERT, LREM, LPOS.

use crate::call::Call;
use crate::cost::{LONG_ELEMENTS, part_elements};
use crate::errors;
use crate::families::collection::{argument, read, visit_existing};
use crate::parse::{self, Text};
use strand_chain::Chain;
use strand_keyspace::types::Bytes;
use strand_keyspace::types::list::End;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{AsValue, Changed, Collection, ListValue, ValueRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Number of elements compared between two checks whether the client still waits for the reply.
const LOOKED_AT: usize = 4096;

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
     negative to start from the end of the list";

/// Number of elements at an end of a long list among which an estimate looks for what a call wants. A call that finds it
/// there runs on the worker: a queue of 40,000 jobs removes its first job with LREM in 2 us, and on the lane in 17 us.
const LOOKED_AHEAD: usize = 512;

/// The elements that LINSERT visits.
pub(crate) fn linsert_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    visited_elements(value, args.at(3), End::Front, 1)
}
/// The elements that LREM visits.
pub(crate) fn lrem_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    // A call with an error is cheap.
    let Ok(count) = parse::integer(args.at(2)) else { return 0 };
    let (end, max) = removal(count);
    visited_elements(value, args.at(3), end, max)
}
/// The elements that LPOS visits.
pub(crate) fn lpos_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let Ok(options) = PositionOptions::parse(args) else { return 0 };
    let wanted = match options.count {
        Some(0) => usize::MAX,
        count => {
            let before = usize::try_from(options.rank - 1).unwrap_or(usize::MAX);
            before.saturating_add(count.unwrap_or(1))
        }
    };
    let visited = visited_elements(value, args.at(2), options.from, wanted);
    match options.len_max {
        0 => visited,
        most => visited.min(part_elements(most, value)),
    }
}
/// The elements that a search visits which begins at `end` and stops at the match with the number `wanted`: all, unless
/// the matches are near that end.
fn visited_elements(value: ValueRef<'_>, element: &[u8], end: End, wanted: usize) -> usize {
    let Some(list) = ListValue::of(value) else { return 0 };
    let all = part_elements(list.len(), value);
    if all <= LONG_ELEMENTS || wanted > LOOKED_AHEAD {
        return all;
    }
    let place = |elements: &mut dyn Iterator<Item = Bytes<'_>>| {
        let mut places = elements.take(LOOKED_AHEAD).enumerate();
        let mut matches = places.by_ref().filter(|(_, bytes)| **bytes == *element).map(|(i, _)| i);
        matches.nth(wanted - 1)
    };
    let found = match end {
        End::Front => place(&mut list.iter(0)),
        End::Back => place(&mut list.iter_back(list.len())),
    };
    found.map_or(all, |i| part_elements(i + 1, value))
}

/// `LINSERT key BEFORE|AFTER pivot element`. Reply: the new length, -1 without the pivot, 0 without a list.
pub(crate) fn linsert(call: &mut Call<'_, '_>) {
    let after = match call.args {
        args if args.is(2, "AFTER") => 1,
        args if args.is(2, "BEFORE") => 0,
        _ => return call.reply.error(errors::SYNTAX),
    };
    let (pivot, element) = (call.args.at(3), argument(call.args, 4));
    let inserted = visit_existing(call, |list: &mut ListValue, pauses| {
        let found = list.iter(0).position(|bytes| {
            pauses.may_continue();
            *bytes == *pivot
        });
        match found {
            Some(at) => {
                list.insert(at + after, element);
                (list.len() as i64, Changed::Yes)
            }
            None => (-1, Changed::No),
        }
    });
    match inserted {
        Ok(len) => call.reply.int(len.unwrap_or(0)),
        Err(text) => call.reply.error(&text),
    }
}

/// `LREM key count element`: removes the first `count` elements that equal `element`. A negative count begins at
/// the end of the list, and 0 removes all. Reply: the number of removed elements.
pub(crate) fn lrem(call: &mut Call<'_, '_>) {
    let count = match parse::integer(call.args.at(2)) {
        Ok(count) => count,
        Err(text) => return call.reply.error(text),
    };
    let element = call.args.at(3);
    let (end, max) = removal(count);
    let removed = visit_existing(call, |list: &mut ListValue, pauses| {
        let removed = list.remove_equal(element, end, max, || {
            pauses.may_continue();
        });
        (removed as i64, (removed > 0).into())
    });
    match removed {
        Ok(removed) => call.reply.int(removed.unwrap_or(0)),
        Err(text) => call.reply.error(&text),
    }
}

/// Where LREM with this count begins, and how many elements it removes at most.
fn removal(count: i64) -> (End, usize) {
    let end = if count < 0 { End::Back } else { End::Front };
    (end, if count == 0 { usize::MAX } else { count.unsigned_abs() as usize })
}

/// `LPOS key element [RANK rank] [COUNT count] [MAXLEN len]`. Reply: the index of an equal element, or null; with
/// COUNT an array of indexes.
pub(crate) fn lpos(call: &mut Call<'_, '_>) {
    let (options, element) = (PositionOptions::parse(call.args), call.args.at(2));
    let options = match options {
        Ok(options) => options,
        Err(text) => return call.reply.error(&text),
    };
    read(call, |list: Option<&ListValue>, reply| {
        let mut out = Chain::new();
        let mut found = MatchIndexes { reply: reply.part(&mut out), indexes: 0 };
        if let Some(list) = list {
            options.find_matches(list, element, &mut found);
        }
        let indexes = found.indexes;
        match (options.count, indexes) {
            (Some(_), indexes) => reply.array(indexes),
            (None, 0) => return reply.null(),
            (None, _) => {}
        }
        reply.raw(out);
    });
}

/// The options of LPOS: which of the equal elements are wanted.
struct PositionOptions {
    /// The number of the first match that is wanted. The first match has number 1.
    rank: u64,
    from: End,
    /// Maximum number of matches; 0 means all. `None`: one match, and the reply is no array.
    count: Option<usize>,
    /// Maximum number of elements that are compared; 0 means all.
    len_max: usize,
}

/// The indexes of the matches, as elements of the reply.
struct MatchIndexes<'a> {
    reply: Reply<'a>,
    indexes: usize,
}

impl PositionOptions {
    fn parse(args: Args<'_>) -> Result<PositionOptions, Text> {
        let mut options = PositionOptions { rank: 1, from: End::Front, count: None, len_max: 0 };
        let mut at = 3;
        while at < args.len() {
            let value = args.get(at + 1).ok_or(errors::SYNTAX)?;
            if args.is(at, "RANK") {
                let rank = parse::integer(value)?;
                if rank == 0 {
                    return Err(RANK_ZERO.into());
                }
                // `i64::MIN` has no positive counterpart. In redis-server it stays negative, so the first match is
                // wanted.
                options.rank = rank.checked_abs().map_or(1, i64::unsigned_abs);
                options.from = if rank < 0 { End::Back } else { End::Front };
            } else if args.is(at, "COUNT") {
                options.count = Some(not_negative(value, "ERR COUNT can't be negative")?);
            } else if args.is(at, "MAXLEN") {
                options.len_max = not_negative(value, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 2;
        }
        Ok(options)
    }
    /// Finds the wanted elements, and adds their indexes to `found`.
    fn find_matches(&self, list: &ListValue, element: &[u8], found: &mut MatchIndexes<'_>) {
        let len = list.len();
        let elements = match self.from {
            End::Front => list.iter(0),
            End::Back => list.iter_back(len),
        };
        let looked_at_max = if self.len_max == 0 { len } else { self.len_max };
        let mut matches = 0;
        for (i, bytes) in elements.take(looked_at_max).enumerate() {
            if i % LOOKED_AT == 0 && found.reply.exceeds_limit() {
                return;
            }
            if *bytes != *element {
                continue;
            }
            matches += 1;
            if matches < self.rank {
                continue;
            }
            found.reply.int(if self.from == End::Front { i } else { len - 1 - i } as i64);
            found.indexes += 1;
            match self.count {
                Some(0) => {}
                Some(count) if found.indexes < count => {}
                _ => return,
            }
        }
    }
}

/// Parses a number of at least 0. `text` is the error text for anything else.
fn not_negative(bytes: &[u8], text: &'static str) -> Result<usize, &'static str> {
    parse_int(bytes).and_then(|n| usize::try_from(n).ok()).ok_or(text)
}
