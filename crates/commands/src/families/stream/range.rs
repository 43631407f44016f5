//! XRANGE and XREVRANGE.

use super::{ids, send_entries};
use crate::call::Call;
use crate::errors;
use crate::families::collection;
use crate::parse::{self, Text};
use strand_keyspace::types::stream::{Id, StreamValue};
use strand_wire::args::Args;

/// The arguments of XRANGE and XREVRANGE.
pub(super) struct Range {
    pub(super) start: Id,
    pub(super) end: Id,
    /// Maximum number of entries. `None`: all.
    pub(super) count: Option<u64>,
}

impl Range {
    pub(super) fn parse(args: Args<'_>, back: bool) -> Result<Range, Text> {
        let (first, last) = if back { (3, 2) } else { (2, 3) };
        let (start, end) = (ids::start(args.at(first))?, ids::end(args.at(last))?);
        let mut count = None;
        for at in (4..args.len()).step_by(2) {
            if !args.is(at, "COUNT") || at + 1 >= args.len() {
                return Err(errors::SYNTAX.into());
            }
            // redis-server uses -1 for a missing COUNT, and treats a given COUNT of -1 as 0.
            count = Some(u64::try_from(parse::integer(args.at(at + 1))?).unwrap_or(0));
        }
        Ok(Range { start, end, count })
    }
}

/// `XRANGE key start end [COUNT n]`. Reply: the entries in the interval, the oldest first; null with a COUNT of 0.
pub(crate) fn xrange(call: &mut Call<'_, '_>) {
    range(call, false);
}

/// `XREVRANGE key end start [COUNT n]`. Reply: like XRANGE, the newest first.
pub(crate) fn xrevrange(call: &mut Call<'_, '_>) {
    range(call, true);
}

fn range(call: &mut Call<'_, '_>, back: bool) {
    let Range { start, end, count } = match Range::parse(call.args, back) {
        Ok(range) => range,
        Err(text) => return call.reply.error(&text),
    };
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        let Some(stream) = stream else { return reply.array(0) };
        if count == Some(0) {
            return reply.null_array();
        }
        let entries = stream.entries();
        let count = entries.count(start, end, count.unwrap_or(u64::MAX));
        match back {
            false => send_entries(reply, count, entries.range(start, end)),
            true => send_entries(reply, count, entries.range_back(start, end)),
        }
    });
}
