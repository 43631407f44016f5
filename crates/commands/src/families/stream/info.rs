//! XINFO.

use super::{no_group_at, send_entries, send_entry, send_id, wrong_subcommand_arguments};
use crate::call::Call;
use crate::errors;
use crate::families::collection;
use crate::introspect;
use crate::parse;
use strand_keyspace::types::stream::{Consumer, Entries, Group, Id, StreamValue};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Number of entries that XINFO STREAM FULL shows without COUNT. Also its number of pending entries per group and
/// per consumer.
const COUNT_DEFAULT: u64 = 10;

/// `XINFO STREAM key [FULL [COUNT n]]`. Reply: a map.
pub(crate) fn xinfo_stream(call: &mut Call<'_, '_>) {
    let args = call.args;
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        let Some(stream) = stream else { return reply.error(errors::NO_SUCH_KEY) };
        match full_count(args) {
            Ok(None) => brief(stream, reply),
            Ok(Some(count)) => full(stream, count, reply),
            Err(text) => reply.error_bytes(&text),
        }
    });
}

/// The COUNT of FULL; `u64::MAX` means all. `None` without FULL.
pub(super) fn full_count(args: Args<'_>) -> Result<Option<u64>, ErrorText> {
    match args.len() {
        3 => return Ok(None),
        4 if args.is(3, "FULL") => return Ok(Some(COUNT_DEFAULT)),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => {}
        _ => return Err(wrong_subcommand_arguments(args)),
    }
    Ok(Some(match parse::integer(args.at(5))? {
        0 => u64::MAX,
        n => u64::try_from(n).unwrap_or(COUNT_DEFAULT),
    }))
}

fn head(entries: &Entries, reply: &mut Reply<'_>) {
    reply.bulk(b"length");
    reply.int(entries.len() as i64);
    reply.bulk(b"radix-tree-keys");
    reply.int(entries.blocks() as i64);
    reply.bulk(b"radix-tree-nodes");
    reply.int(entries.radix_nodes() as i64);
    for (name, id) in
        [("last-generated-id", entries.last_id()), ("max-deleted-entry-id", entries.max_deleted_id())]
    {
        reply.bulk(name.as_bytes());
        send_id(reply, id);
    }
    reply.bulk(b"entries-added");
    reply.int(entries.added() as i64);
    reply.bulk(b"recorded-first-entry-id");
    send_id(reply, entries.first_id());
}

fn brief(stream: &StreamValue, reply: &mut Reply<'_>) {
    let entries = stream.entries();
    reply.map(10);
    head(entries, reply);
    reply.bulk(b"groups");
    reply.int(stream.groups() as i64);
    let first = entries.range(Id::MIN, Id::MAX).next();
    let last = entries.range_back(Id::MIN, Id::MAX).next();
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        reply.bulk(name.as_bytes());
        match entry {
            Some(entry) => send_entry(reply, &entry),
            None => reply.null(),
        }
    }
}

fn full(stream: &StreamValue, count: u64, reply: &mut Reply<'_>) {
    let entries = stream.entries();
    reply.map(9);
    head(entries, reply);
    reply.bulk(b"entries");
    send_entries(reply, entries.count(Id::MIN, Id::MAX, count), entries.range(Id::MIN, Id::MAX));
    reply.bulk(b"groups");
    reply.array(stream.groups());
    for (name, group) in stream.each_group() {
        if reply.exceeds_limit() {
            return;
        }
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        progress(stream, group, reply);
        reply.bulk(b"pel-count");
        reply.int(group.pending() as i64);
        reply.bulk(b"pending");
        let shown = shown(group.pending(), count);
        reply.array(shown);
        for (id, pending) in group.pending_from(Id::MIN).take(shown) {
            if reply.exceeds_limit() {
                return;
            }
            reply.array(4);
            send_id(reply, id);
            reply.bulk(group.consumer(pending.consumer).map_or(b"", Consumer::name));
            reply.int(pending.delivered_ms);
            reply.int(pending.deliveries as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.consumers());
        group.each_consumer().for_each(|consumer| full_consumer(group, consumer, count, reply));
    }
}

fn full_consumer(group: &Group, consumer: &Consumer, count: u64, reply: &mut Reply<'_>) {
    if reply.exceeds_limit() {
        return;
    }
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    reply.bulk(b"seen-time");
    reply.int(consumer.seen_ms());
    reply.bulk(b"pel-count");
    reply.int(consumer.pending() as i64);
    reply.bulk(b"pending");
    let shown = shown(consumer.pending(), count);
    reply.array(shown);
    let all = consumer.pending_from(Id::MIN).filter_map(|id| Some((id, group.pending_at(id)?)));
    for (id, pending) in all.take(shown) {
        if reply.exceeds_limit() {
            return;
        }
        reply.array(3);
        send_id(reply, id);
        reply.int(pending.delivered_ms);
        reply.int(pending.deliveries as i64);
    }
}

fn shown(there: usize, count: u64) -> usize {
    there.min(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Sends up to which entry a group has read.
fn progress(stream: &StreamValue, group: &Group, reply: &mut Reply<'_>) {
    reply.bulk(b"last-delivered-id");
    send_id(reply, group.last_id());
    for (name, number) in
        [("entries-read", group.entries_read().map(|n| n as i64)), ("lag", stream.lag(group))]
    {
        reply.bulk(name.as_bytes());
        match number {
            Some(n) => reply.int(n),
            None => reply.null(),
        }
    }
}

/// `XINFO GROUPS key`. Reply: an array of maps.
pub(crate) fn xinfo_groups(call: &mut Call<'_, '_>) {
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        let Some(stream) = stream else { return reply.error(errors::NO_SUCH_KEY) };
        reply.array(stream.groups());
        for (name, group) in stream.each_group() {
            if reply.exceeds_limit() {
                return;
            }
            reply.map(6);
            reply.bulk(b"name");
            reply.bulk(name);
            reply.bulk(b"consumers");
            reply.int(group.consumers() as i64);
            reply.bulk(b"pending");
            reply.int(group.pending() as i64);
            progress(stream, group, reply);
        }
    });
}

/// `XINFO CONSUMERS key group`. Reply: an array of maps.
pub(crate) fn xinfo_consumers(call: &mut Call<'_, '_>) {
    let (args, now_ms) = (call.args, call.now_ms);
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        let Some(stream) = stream else { return reply.error(errors::NO_SUCH_KEY) };
        let Some(group) = stream.group(args.at(3)) else {
            return reply.error_bytes(&no_group_at(args.at(2), args.at(3)));
        };
        reply.array(group.consumers());
        for consumer in group.each_consumer() {
            if reply.exceeds_limit() {
                return;
            }
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(consumer.name());
            reply.bulk(b"pending");
            reply.int(consumer.pending() as i64);
            reply.bulk(b"idle");
            reply.int(now_ms.wrapping_sub(consumer.seen_ms()).max(0));
        }
    });
}

/// `XINFO HELP`. Reply: lines of text.
pub(crate) fn xinfo_help(call: &mut Call<'_, '_>) {
    introspect::help(
        call.reply,
        "XINFO",
        &[
            "CONSUMERS <key> <groupname>",
            "    Return each consumer of a group: name, number of pending entries, milliseconds without a command.",
            "GROUPS <key>",
            "    Return each group: name, numbers of consumers and pending entries, last ID, entries read, lag.",
            "STREAM <key> [FULL [COUNT <count>]]",
            "    Return length, IDs and internal numbers of a stream, the number of groups, the first and the last entry.",
            "    FULL: also the groups and consumers. COUNT (10 by default; 0: all) limits each list of entries and pending entries.",
        ],
    );
}
