//! What several stream commands share. [`add`] has the commands that add and remove entries, [`range`] ranges,
//! [`read`] XREAD and XREADGROUP, [`group`] XGROUP, [`pending`] pending entries, [`info`] XINFO, and [`ids`] IDs.
//! [`costs`] estimates the costs of calls. [`effects`] has the effects that the journal records.

mod add;
pub(crate) mod costs;
mod effects;
mod group;
mod ids;
mod info;
mod pending;
mod range;
mod read;
mod remove;

pub(crate) use add::{xadd, xdel, xlen, xsetid, xtrim, xtrim_long};
pub(crate) use group::{
    xgroup_create, xgroup_createconsumer, xgroup_delconsumer, xgroup_destroy, xgroup_help, xgroup_setid,
};
pub(crate) use info::{xinfo_consumers, xinfo_groups, xinfo_help, xinfo_stream};
pub(crate) use pending::{xack, xautoclaim, xclaim, xpending};
pub(crate) use range::{xrange, xrevrange};
pub(crate) use read::{may_wait, refusal_in_script, xread, xreadgroup};
pub(crate) use remove::{delete_elements, xackdel, xdelex};

use crate::errors;
use strand_keyspace::types::stream::{Id, Item, StreamEntry};
use strand_wire::args::Args;
use strand_wire::digits::Digits;
use strand_wire::reply::Reply;

/// Maximum length of an ID's text: two numbers of 20 digits and a dash.
const ID_TEXT_MAX: usize = 41;

/// Sends an ID as a bulk string.
fn send_id(reply: &mut Reply<'_>, id: Id) {
    let (mut text, mut len) = ([0; ID_TEXT_MAX], 0);
    let (ms, seq) = (Digits::unsigned(id.ms), Digits::unsigned(id.seq));
    for part in [ms.as_slice(), b"-", seq.as_slice()] {
        text[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    reply.bulk(&text[..len]);
}

/// Sends an entry: its ID, then an array of its fields and values.
fn send_entry(reply: &mut Reply<'_>, entry: &StreamEntry<'_>) {
    reply.array(2);
    send_id(reply, entry.id());
    reply.array(2 * entry.len());
    for (field, value) in entry.pairs() {
        send_item(reply, field);
        send_item(reply, value);
    }
}

fn send_item(reply: &mut Reply<'_>, item: Item<'_>) {
    match item {
        Item::Int(n) => reply.bulk_int(n),
        Item::Text(text) => reply.bulk(text),
    }
}

/// Sends entries, until nobody waits for the reply any more. `count` is their number.
fn send_entries<'s>(reply: &mut Reply<'_>, count: u64, entries: impl Iterator<Item = StreamEntry<'s>>) {
    reply.array(count as usize);
    for entry in entries.take(count as usize) {
        if reply.exceeds_limit() {
            return;
        }
        send_entry(reply, &entry);
    }
}

/// `NOGROUP No such key 'k' or consumer group 'g'`, followed by `tail`.
fn no_group(key: &[u8], group: &[u8], tail: &str) -> Vec<u8> {
    let (key, group) = (errors::c_text(key), errors::c_text(group));
    [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'", tail.as_bytes()].concat()
}

/// `NOGROUP No such consumer group 'g' for key name 'k'`
fn no_group_at(key: &[u8], group: &[u8]) -> Vec<u8> {
    let (key, group) = (errors::c_text(key), errors::c_text(group));
    [b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"].concat()
}

/// redis-server's error for a known subcommand with a wrong number of arguments.
fn wrong_subcommand_arguments(args: Args<'_>) -> Vec<u8> {
    const QUOTED_BYTES_MAX: usize = 128;
    let subcommand = args.at(1);
    let quoted = errors::c_text(&subcommand[..subcommand.len().min(QUOTED_BYTES_MAX)]);
    let container = args.at(0).to_ascii_uppercase();
    let head = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, quoted, b"'. Try ", &container, b" HELP."].concat()
}

#[cfg(test)]
mod tests;
