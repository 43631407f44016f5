//! The costs of calls on streams, in elements, estimated from the arguments and the stream: see
//! [`Cost::InData`](crate::cost::Cost).

use super::add::{AddOptions, Trimming};
use super::pending::{PendingRange, autoclaim_looks};
use super::range::Range;
use super::{info, read};
use crate::cost::{ELEMENT_BYTES, LONG_ELEMENTS, QUICK_ARGUMENTS};
use strand_keyspace::types::stream::{Id, StreamValue, Trim};
use strand_keyspace::{Settings, ValueRef};
use strand_wire::args::Args;

/// A cost at which a call is long, so that counting may stop.
const ENOUGH: u64 = LONG_ELEMENTS as u64 + 1;

/// The cost of XRANGE.
pub(crate) fn range(args: Args<'_>, value: ValueRef<'_>) -> usize {
    Range::parse(args, false).map_or(0, |range| span(value, &range))
}

/// The cost of XREVRANGE.
pub(crate) fn range_back(args: Args<'_>, value: ValueRef<'_>) -> usize {
    Range::parse(args, true).map_or(0, |range| span(value, &range))
}

fn span(value: ValueRef<'_>, range: &Range) -> usize {
    // A few entries are expensive only if they are large, and their bytes are counted while the reply is written.
    let count = range.count.unwrap_or(u64::MAX);
    match value {
        ValueRef::Stream(stream) => read_of(stream, range.start, range.end, count),
        _ => 0,
    }
}

/// The cost of reading at most `count` entries.
fn read_of(stream: &StreamValue, start: Id, end: Id, count: u64) -> usize {
    let (entries, bytes) = stream.entries().weigh(start, end, count.min(ENOUGH));
    let share = |bytes: usize| match entries {
        0 => 0,
        entries => bytes as u64 / entries * count.min(entries),
    };
    (count.min(entries) as usize).max(share(bytes) as usize / ELEMENT_BYTES)
}

/// The cost of XREAD and XREADGROUP on one of their streams.
pub(crate) fn read(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Stream(stream) = value else { return 0 };
    let Ok(options) = read::ReadOptions::parse(args, args.is(0, "XREADGROUP"), false) else { return 0 };
    let last = stream.entries().last_entry_id().unwrap_or(Id::MIN);
    // With nothing to read, the cost must be 0: the call may wait, and a long call cannot wait.
    match options.lowest(args, stream).filter(|after| *after < last) {
        Some(after) => read_of(stream, after.next().unwrap_or(Id::MAX), Id::MAX, options.count),
        None => options.history(args, stream),
    }
}

/// True for an XADD without options, in which the ID follows the key.
pub(crate) fn adds_only(args: Args<'_>) -> bool {
    let is_word = |id: &[u8]| id.first().is_some_and(u8::is_ascii_alphabetic);
    args.len() <= QUICK_ARGUMENTS && !args.get(2).is_some_and(is_word)
}

/// The cost of XADD: its arguments, and the blocks that its trimming removes.
pub(crate) fn add(args: Args<'_>, value: ValueRef<'_>) -> usize {
    trim(AddOptions::parse(args, true, &Settings::default()).ok().and_then(|options| options.trimming), value)
}

/// The cost of XTRIM: the blocks that it removes.
pub(crate) fn xtrim(args: Args<'_>, value: ValueRef<'_>) -> usize {
    trim(
        AddOptions::parse(args, false, &Settings::default()).ok().and_then(|options| options.trimming),
        value,
    )
}

fn trim(trimming: Option<Trimming>, value: ValueRef<'_>) -> usize {
    let (Some(trimming), ValueRef::Stream(stream)) = (trimming, value) else { return 0 };
    let entries = stream.entries();
    let blocks = entries.blocks();
    match trimming.trim {
        _ if blocks <= LONG_ELEMENTS => 0,
        Trim::MaxLen(max) => {
            let gone = entries.len().saturating_sub(max);
            (u128::from(gone) * blocks as u128 / u128::from(entries.len().max(1))) as usize
        }
        Trim::MinId(min) => {
            entries.raw_blocks().take(ENOUGH as usize).take_while(|(id, _)| *id < min).count()
        }
    }
}

/// The cost of XAUTOCLAIM: the pending entries that it visits.
pub(crate) fn autoclaim(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Stream(stream) = value else { return 0 };
    autoclaim_looks(args).min(stream.group(args.at(2)).map_or(0, |group| group.pending()))
}

/// The cost of XPENDING: the consumers, or the pending entries that it visits.
pub(crate) fn pending(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Stream(stream) = value else { return 0 };
    let Some(group) = stream.group(args.at(2)) else { return 0 };
    match PendingRange::parse(args) {
        Ok(Some(span)) => span.visits_max().min(group.pending()),
        Ok(None) => group.consumers(),
        Err(_) => 0,
    }
}

/// The cost of XGROUP DESTROY and DELCONSUMER: the pending entries that they free.
pub(crate) fn group(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Stream(stream) = value else { return 0 };
    let Some(group) = stream.group(args.at(3)) else { return 0 };
    match args.get(4) {
        None => group.pending() / FREED_PER_ELEMENT + group.consumers(),
        Some(name) => group.find_consumer(name).and_then(|id| group.consumer(id)).map_or(0, |c| c.pending()),
    }
}

/// Number of pending entries that are freed in the time of one element.
const FREED_PER_ELEMENT: usize = 8;

/// The cost of XINFO STREAM: a few elements. With FULL, the requested number of entries of the stream, of its groups and of
/// their consumers.
pub(crate) fn info(args: Args<'_>, value: ValueRef<'_>) -> usize {
    let ValueRef::Stream(stream) = value else { return 0 };
    let groups = stream.groups();
    if args.is(1, "GROUPS") {
        return groups;
    }
    if args.is(1, "CONSUMERS") {
        return stream.group(args.at(3)).map_or(0, |group| group.consumers());
    }
    let Ok(Some(count)) = info::full_count(args) else { return 0 };
    let shown = |there: usize| there.min(usize::try_from(count).unwrap_or(usize::MAX));
    let mut elements = read_of(stream, Id::MIN, Id::MAX, count);
    for (_, group) in stream.each_group() {
        elements += 1 + shown(group.pending());
        for consumer in group.each_consumer() {
            elements += 1 + shown(consumer.pending());
            if elements > LONG_ELEMENTS {
                return elements;
            }
        }
    }
    elements
}
