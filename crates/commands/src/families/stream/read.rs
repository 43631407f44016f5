//! XREAD and XREADGROUP.
//!
//! When there is nothing to read, the reply is null. A command with BLOCK also says what it would wait for
//! ([`crate::wait`]).

use super::{effects, ids, no_group, send_entries, send_entry, send_id};
use crate::call::Call;
use crate::errors;
use crate::events::named;
use crate::parse::{self, Text};
use crate::wait::{Wait, milliseconds};
use strand_chain::Chain;
use strand_keyspace::types::stream::{Id, StreamValue};
use strand_keyspace::{Changed, Db, Key, Wanted};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Protocol, Reply};

/// The arguments of XREAD and XREADGROUP.
#[derive(Debug)]
pub(super) struct ReadOptions<'a> {
    /// Maximum number of entries per stream.
    pub(super) count: u64,
    /// BLOCK: the time to wait. `None` without BLOCK.
    block_ms: Option<u64>,
    no_ack: bool,
    /// The group and the consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// The position of the first key among the arguments.
    first: usize,
    /// The number of keys. The same number of IDs follows the keys.
    pub(super) streams: usize,
}

/// Which entries of a stream the command reads.
#[derive(Clone, Copy, Debug)]
enum From {
    /// The entries after this ID.
    After(Id),
    /// The entries that the group has not read yet.
    New,
}

impl<'a> ReadOptions<'a> {
    /// `refuses_block`: the option BLOCK is an error, as in scripts.
    pub(super) fn parse(
        args: Args<'a>,
        in_group: bool,
        refuses_block: bool,
    ) -> Result<ReadOptions<'a>, Text> {
        let mut options =
            ReadOptions { count: u64::MAX, block_ms: None, no_ack: false, group: None, first: 0, streams: 0 };
        let mut at = 1;
        while at < args.len() {
            let more = args.len() - 1 - at;
            let is = |word: &str| args.is(at, word);
            if is("BLOCK") && more > 0 {
                if refuses_block {
                    let name = String::from_utf8_lossy(args.at(0));
                    return Err(format!("ERR {name}{BLOCK_REFUSED}").into());
                }
                at += 1;
                options.block_ms = Some(milliseconds(args.at(at))?);
            } else if is("COUNT") && more > 0 {
                at += 1;
                let count = u64::try_from(parse::integer(args.at(at))?).unwrap_or(0);
                options.count = if count == 0 { u64::MAX } else { count };
            } else if is("STREAMS") && more > 0 {
                (options.first, options.streams) = (at + 1, more / 2);
                if !more.is_multiple_of(2) {
                    let text = "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                                specified.";
                    return Err(text.into());
                }
                break;
            } else if is("GROUP") && more >= 2 {
                only_in_group("GROUP", in_group)?;
                options.group = Some((args.at(at + 1), args.at(at + 2)));
                at += 2;
            } else if is("NOACK") {
                only_in_group("NOACK", in_group)?;
                options.no_ack = true;
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 1;
        }
        if options.streams == 0 {
            return Err(errors::SYNTAX.into());
        }
        if in_group && options.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(options)
    }
    /// The argument that is the ID for the stream with index `i`.
    fn id(&self, args: Args<'a>, i: usize) -> &'a [u8] {
        args.at(self.first + self.streams + i)
    }
    /// The ID after which the stream is read. The caller does not know which of several streams this is, so it gets
    /// the lowest of all IDs.
    pub(super) fn lowest(&self, args: Args<'a>, stream: &StreamValue) -> Option<Id> {
        let after = |i: usize| match (self.id(args, i), self.group) {
            (b"$", _) => None,
            (b">", Some((group, _))) => Some(stream.group(group)?.last_id()),
            (_, Some(_)) => None,
            (id, None) => ids::strict(id, 0).ok(),
        };
        (0..self.streams).filter_map(after).min()
    }
    /// Maximum number of pending entries that the call may read (those of a consumer, with an ID instead of `>`).
    pub(super) fn history(&self, args: Args<'a>, stream: &StreamValue) -> usize {
        let Some((group, _)) = self.group else { return 0 };
        let is_history = (0..self.streams).any(|i| self.id(args, i) != b">");
        let pending = stream.group(group).map_or(0, |group| group.pending());
        if is_history { pending.min(usize::try_from(self.count).unwrap_or(usize::MAX)) } else { 0 }
    }
    /// True when the row's key specs have found the same keys as these options. They have not if a group or a
    /// consumer has the name STREAMS.
    fn has_keys(&self, args: Args<'a>, keys: &[Key<'_>]) -> bool {
        let named = (0..self.streams).map(|i| args.at(self.first + i));
        keys.len() == self.streams && named.eq(keys.iter().map(|key| key.bytes))
    }
}

/// The end of the error for BLOCK in a script.
const BLOCK_REFUSED: &str = " command is not allowed with BLOCK option from scripts";

fn only_in_group(option: &str, in_group: bool) -> Result<(), Text> {
    if in_group {
        return Ok(());
    }
    let text = format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.");
    Err(text.into())
}

/// The error when a script calls XREAD or XREADGROUP with the option BLOCK.
pub(crate) fn refusal_in_script(args: Args<'_>) -> Option<Text> {
    let parsed = ReadOptions::parse(args, args.is(0, "XREADGROUP"), true);
    parsed.err().filter(|text| text.ends_with(BLOCK_REFUSED))
}

/// True when XREAD or XREADGROUP with these arguments may wait.
pub(crate) fn may_wait(args: Args<'_>) -> bool {
    ReadOptions::parse(args, args.is(0, "XREADGROUP"), false).is_ok_and(|options| options.block_ms.is_some())
}

/// `XREAD [COUNT n] [BLOCK ms] STREAMS key [key ...] id [id ...]`. Reply: a map from keys to the entries after
/// these IDs (in RESP2 an array of pairs). A stream without such entries is left out. The reply is null when no
/// stream has any.
pub(crate) fn xread(call: &mut Call<'_, '_>) {
    if let Err(text) = read(call) {
        call.reply.error_bytes(&text);
    }
}

fn read(call: &mut Call<'_, '_>) -> Result<(), ErrorText> {
    let (args, keys) = (call.args, call.keys);
    let options = ReadOptions::parse(args, false, false).map_err(bytes_of)?;
    if !options.has_keys(args, keys) {
        return Err(errors::SYNTAX.into());
    }
    let mut db = call.txn.db(call.db);
    let mut froms = Vec::with_capacity(options.streams);
    for (i, key) in keys.iter().enumerate() {
        let stream = stream_at(&mut db, key)?;
        let from = match options.id(args, i) {
            b"$" => stream.map_or(Id::MIN, |s| s.entries().last_id()),
            b">" => {
                let text = "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                            <consumer> option.";
                return Err(text.into());
            }
            id => ids::strict(id, 0)?,
        };
        froms.push(from);
    }
    // The first entry to read. `None` when there is none.
    let next = |stream: &StreamValue, from: Id| {
        let last = stream.entries().last_entry_id()?;
        if last > from { from.next() } else { None }
    };
    let mut served = 0;
    for (key, from) in keys.iter().zip(&froms) {
        let has_more = stream_at(&mut db, key)?.is_some_and(|stream| next(stream, *from).is_some());
        served += usize::from(has_more);
    }
    if served == 0 {
        call.reply.null_array();
        call.wait = options.block_ms.map(|timeout_ms| Wait {
            timeout_ms,
            wanted: (options.first..).zip(froms.iter().map(|from| Wanted::After(*from))).collect(),
            argv: with_ids(args, &options, &froms),
            of_system: false,
        });
        return Ok(());
    }
    open(call.reply, served);
    for (key, from) in keys.iter().zip(&froms) {
        // redis-server counts two look-ups of a stream, and these are done.
        let Some(stream) = db.peek_at::<StreamValue>(key).ok().flatten() else { continue };
        let Some(start) = next(stream, *from) else { continue };
        let count = stream.entries().count(start, Id::MAX, options.count);
        open_stream(call.reply, key.bytes);
        send_entries(call.reply, count, stream.entries().range(start, Id::MAX));
    }
    Ok(())
}

/// `XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] [NOACK] STREAMS key [key ...] id [id ...]`. With the ID
/// `>`, it reads entries that the group has not read, which are then pending at the consumer. With any other ID, it
/// reads entries that are pending at the consumer. The reply has the form of XREAD's.
pub(crate) fn xreadgroup(call: &mut Call<'_, '_>) {
    if let Err(text) = read_group(call) {
        call.reply.error_bytes(&text);
    }
}

fn read_group(call: &mut Call<'_, '_>) -> Result<(), ErrorText> {
    let (args, keys, now_ms) = (call.args, call.keys, call.now_ms);
    let options = ReadOptions::parse(args, true, false).map_err(bytes_of)?;
    if !options.has_keys(args, keys) {
        return Err(errors::SYNTAX.into());
    }
    let (group, consumer) = options.group.ok_or(errors::SYNTAX)?;
    let mut db = call.txn.db(call.db);
    let mut froms = Vec::with_capacity(options.streams);
    for (i, key) in keys.iter().enumerate() {
        let stream = stream_at(&mut db, key)?;
        if stream.and_then(|stream| stream.group(group)).is_none() {
            return Err(no_group(key.bytes, group, " in XREADGROUP with GROUP option"));
        }
        let from = match options.id(args, i) {
            b"$" => {
                let text = "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                            history of this consumer by specifying a proper ID, or use the > ID to get new \
                            messages. The $ ID would just return an empty result set.";
                return Err(text.into());
            }
            b">" => From::New,
            id => match ids::strict(id, 0)? {
                Id::MAX => From::New,
                id => From::After(id),
            },
        };
        froms.push(from);
    }
    call.txn.no_effect();
    let mut db = call.txn.db(call.db);
    // Stream by stream: if a key is given twice, the second read depends on the first.
    let (mut out, mut served) = (Chain::new(), 0);
    let mut reply = call.reply.part(&mut out);
    for (key, from) in keys.iter().zip(&froms) {
        let consumers = |stream: &StreamValue| stream.group(group).map_or(0, |group| group.consumers());
        let mut is_new = false;
        let sent = db.change::<StreamValue, _>(key, |stream| {
            let before = consumers(stream);
            let sent =
                send_from_group(stream, *from, (group, consumer), key.bytes, &options, now_ms, &mut reply);
            is_new = consumers(stream) > before;
            let changed = Changed::beside(sent.is_some());
            (sent, changed)
        });
        if is_new {
            db.report_event(key, named::CREATE_CONSUMER);
        }
        let Ok(Some(Some(given))) = sent else { continue };
        if db.is_recorded() {
            if is_new {
                effects::record_consumer_created(&mut db, key, group, consumer);
            }
            effects::record_claimed(&mut db, key, group, consumer, &given);
            if matches!(from, From::New) {
                effects::record_group_advanced(&mut db, key, group);
            }
        }
        served += 1;
    }
    match served {
        0 => {
            call.reply.null_array();
            call.wait = options.block_ms.map(|timeout_ms| {
                Wait::at_each(timeout_ms, options.first, options.streams, &Wanted::Group(group.into()))
            });
        }
        _ => {
            open(call.reply, served);
            call.reply.raw(out);
        }
    }
    Ok(())
}

/// Sends one stream of an XREADGROUP. Returns the entries that are pending at the consumer now, or `None` when
/// there was nothing to read.
fn send_from_group(
    stream: &mut StreamValue,
    from: From,
    (group, consumer): (&[u8], &[u8]),
    key: &[u8],
    options: &ReadOptions<'_>,
    now_ms: i64,
    reply: &mut Reply<'_>,
) -> Option<Vec<Id>> {
    let sent = stream.change_group(group, |group, entries| {
        let mut given = Vec::new();
        let start = match from {
            From::After(after) => {
                let start = after.next()?;
                let id = group.see_consumer(consumer, now_ms);
                let count = usize::try_from(options.count).unwrap_or(usize::MAX);
                let all = group.consumer(id).into_iter().flat_map(|c| c.pending_from(start));
                let pending: Vec<Id> = all.take(count).collect();
                open_stream(reply, key);
                reply.array(pending.len());
                for id in pending {
                    match entries.get(id) {
                        Some(entry) => {
                            send_entry(reply, &entry);
                            group.deliver_again(id, now_ms);
                            given.push(id);
                        }
                        None => {
                            reply.array(2);
                            send_id(reply, id);
                            reply.null_array();
                        }
                    }
                }
                return Some(given);
            }
            From::New => group.last_id(),
        };
        let start = entries.last_entry_id().filter(|last| *last > start).and_then(|_| start.next())?;
        let id = group.see_consumer(consumer, now_ms);
        let count = entries.count(start, Id::MAX, options.count);
        open_stream(reply, key);
        reply.array(count as usize);
        for entry in entries.range(start, Id::MAX).take(count as usize) {
            group.advance(entry.id(), entries);
            send_entry(reply, &entry);
            if !options.no_ack {
                group.deliver(entry.id(), id, now_ms);
                given.push(entry.id());
            }
        }
        Some(given)
    });
    sent.flatten()
}

/// The arguments, with the last ID of each stream in place of `$`. `None` when there is no `$`.
fn with_ids(args: Args<'_>, options: &ReadOptions<'_>, froms: &[Id]) -> Option<Argv> {
    if !(0..options.streams).any(|i| options.id(args, i) == b"$") {
        return None;
    }
    let ids_at = options.first + options.streams;
    let mut argv = Argv::new();
    for i in 0..args.len() {
        match i.checked_sub(ids_at).and_then(|stream| froms.get(stream)) {
            Some(from) => argv.push(from.to_string().as_bytes()),
            None => argv.push(args.at(i)),
        }
    }
    Some(argv)
}

/// Begins a reply that has this number of streams.
fn open(reply: &mut Reply<'_>, streams: usize) {
    match reply.protocol() {
        Protocol::Resp2 => reply.array(streams),
        Protocol::Resp3 => reply.map(streams),
    }
}

/// Begins the entries of the stream at `key`.
fn open_stream(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.protocol() == Protocol::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

fn stream_at<'d>(db: &'d mut Db<'_, '_>, key: &Key<'_>) -> Result<Option<&'d StreamValue>, &'static str> {
    db.read::<StreamValue>(key).map_err(|_| errors::WRONG_TYPE)
}

fn bytes_of(text: Text) -> Vec<u8> {
    text.into_owned().into_bytes()
}
