//! XADD, XTRIM, XDEL, XSETID, XLEN.

use super::send_id;
use super::{effects, ids};
use crate::call::{Call, LaneCall};
use crate::errors;
use crate::events::named;
use crate::families::collection;
use crate::long;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::{self, Text, wrong_type};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use strand_keyspace::types::stream::{Id, NotAdded, StreamValue, Trim};
use strand_keyspace::{AsValue, Changed, Collection, Db, Key, Settings};
use strand_wire::args::Args;

/// Number of full blocks. Without LIMIT, approximate trimming removes at most as many entries as these blocks have.
const LIMIT_BLOCKS: u64 = 100;
/// The default LIMIT when the number of entries per block is not limited.
const LIMIT_DEFAULT: u64 = 10_000;
/// The highest default LIMIT, however many entries a block may have.
const LIMIT_MAX: u64 = 1_000_000;

const TOO_SMALL: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// redis-server also sends this error when no sequence number is left for a millisecond.
const TOO_LARGE: &str = "ERR Elements are too large to be stored";

/// How XADD and XTRIM trim a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trimming {
    pub(super) trim: Trim,
    pub(super) approximate: bool,
    pub(super) limit: u64,
}

/// The options of XADD and XTRIM.
#[derive(Debug)]
pub(super) struct AddOptions {
    pub(super) trimming: Option<Trimming>,
    no_make: bool,
    /// The ID of the new entry, and whether the client gave the sequence number. `None`: a new ID with the current
    /// time (`*`).
    id: Option<(Id, bool)>,
    /// The position of the ID among the arguments.
    at: usize,
}

impl AddOptions {
    /// Parses the arguments, beginning after the key. For XADD (`adds`) it stops at the ID, otherwise at the end.
    pub(super) fn parse(args: Args<'_>, adds: bool, settings: &Settings) -> Result<AddOptions, Text> {
        AddOptions::parse_from(args, adds, false, settings)
    }
    /// Like [`AddOptions::parse`]. `replays`: the command is from a file. There, as in redis-server, LIMIT has no effect,
    /// and may stand without `~`: redis-server writes the exact threshold of a trim, and leaves the LIMIT that the client sent.
    fn parse_from(
        args: Args<'_>,
        adds: bool,
        replays: bool,
        settings: &Settings,
    ) -> Result<AddOptions, Text> {
        let (mut trim, mut approximate, mut limit, mut limited) = (None, false, 0u64, false);
        let mut options = AddOptions { trimming: None, no_make: false, id: None, at: 2 };
        while options.at < args.len() {
            let more = args.len() - 1 - options.at;
            let is = |word: &str| args.is(options.at, word);
            if adds && args.at(options.at) == b"*" {
                break;
            } else if more > 0 && (is("MAXLEN") || is("MINID")) {
                if trim.is_some() {
                    let text =
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible";
                    return Err(text.into());
                }
                let by_len = is("MAXLEN");
                let sign = args.at(options.at + 1);
                approximate = more >= 2 && sign == b"~";
                options.at += if approximate || (more >= 2 && sign == b"=") { 2 } else { 1 };
                let threshold = args.at(options.at);
                trim = Some(match by_len {
                    true => Trim::MaxLen(at_least_zero(threshold, "MAXLEN")?),
                    false => Trim::MinId(ids::strict(threshold, 0)?),
                });
            } else if more > 0 && is("LIMIT") {
                options.at += 1;
                limit = at_least_zero(args.at(options.at), "LIMIT")?;
                limited = true;
            } else if adds && is("NOMKSTREAM") {
                options.no_make = true;
            } else if adds {
                options.id = Some(ids::for_add(args.at(options.at))?);
                break;
            } else {
                return Err(errors::SYNTAX.into());
            }
            options.at += 1;
        }
        if limit > 0 && trim.is_none() {
            let text = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
            return Err(text.into());
        }
        if !adds && trim.is_none() {
            return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
        }
        if replays {
            limit = 0;
        } else if limited && !approximate {
            return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
        } else if approximate && !limited {
            limit = match settings.stream_node_max_entries.load(Relaxed).saturating_mul(LIMIT_BLOCKS) {
                0 => LIMIT_DEFAULT,
                limit => limit.min(LIMIT_MAX),
            };
        }
        options.trimming = trim.map(|trim| Trimming { trim, approximate, limit });
        Ok(options)
    }
    /// The ID of a new entry.
    fn next_id(&self, last: Id, now_ms: i64) -> Result<Id, Text> {
        let text = "ERR The stream has exhausted the last possible ID, unable to add more items";
        let next = last.next().ok_or(text)?;
        match self.id {
            Some((id, true)) => Ok(id),
            Some((id, false)) if id.ms != last.ms => Ok(id),
            Some((id, false)) => Ok(Id::new(id.ms, last.seq.checked_add(1).ok_or(TOO_LARGE)?)),
            None => {
                let now = Id::new(u64::try_from(now_ms).unwrap_or(0), 0);
                Ok(if now.ms > last.ms { now } else { next })
            }
        }
    }
}

fn at_least_zero(bytes: &[u8], option: &str) -> Result<u64, Text> {
    u64::try_from(parse::integer(bytes)?)
        .map_err(|_| format!("ERR The {option} argument must be >= 0.").into())
}

/// `XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT n]] *|id field value [field value ...]`. Reply: the
/// entry's ID; null with NOMKSTREAM and a missing key.
pub(crate) fn xadd(call: &mut Call<'_, '_>) {
    match add(call) {
        Ok(Some(id)) => send_id(call.reply, id),
        Ok(None) => call.reply.null(),
        Err(text) => call.reply.error(&text),
    }
}

fn add(call: &mut Call<'_, '_>) -> Result<Option<Id>, Text> {
    let (args, now_ms) = (call.args, call.now_ms);
    let settings = call.txn.keyspace().settings();
    let options = AddOptions::parse_from(args, true, call.txn.is_replaying(), settings)?;
    let from = options.at + 1;
    let fields = args.len().saturating_sub(from);
    if fields < 2 || fields % 2 == 1 {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    }
    if options.id == Some((Id::MIN, true)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let (trimming, no_make) = (options.trimming, options.no_make);
    let mut trimmed = false;
    let change = |stream: &mut StreamValue, settings: &Settings| {
        let id = options.next_id(stream.entries().last_id(), now_ms)?;
        let pairs = (0..fields / 2).map(|i| (args.at(from + 2 * i), args.at(from + 2 * i + 1)));
        stream.append(id, pairs, settings).map_err(|not_added| match not_added {
            NotAdded::IdTooSmall => TOO_SMALL,
            NotAdded::TooLarge => TOO_LARGE,
        })?;
        if let Some(Trimming { trim, approximate, limit }) = trimming {
            trimmed = stream.trim(trim, approximate, limit) > 0;
        }
        Ok((id, Changed::Yes))
    };
    let added =
        if no_make { change_existing(call, change) } else { collection::update(call, change).map(Some) }?;
    if trimmed {
        call.txn.db(call.db).report_event(&call.keys[0], named::XTRIM);
    }
    if let (Some(id), true) = (added, call.is_recorded()) {
        let len = trimmed.then(|| effects::len(call));
        effects::record_added(call, id, from, len);
    }
    Ok(added)
}

/// `XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT n]`: removes the oldest entries. Reply: how many.
pub(crate) fn xtrim(call: &mut Call<'_, '_>) {
    let settings = call.txn.keyspace().settings();
    let options = AddOptions::parse_from(call.args, false, call.txn.is_replaying(), settings);
    let trimmed = options.and_then(|options| {
        change_existing(call, |stream, _| {
            let removed = options.trimming.map_or(0, |t| stream.trim(t.trim, t.approximate, t.limit));
            Ok((removed, Changed::from(removed > 0)))
        })
    });
    if trimmed.as_ref().is_ok_and(|removed| removed.is_some_and(|removed| removed > 0)) && call.is_recorded()
    {
        let len = effects::len(call);
        effects::record_trimmed(&mut call.txn.db(call.db), &call.keys[0], len);
    }
    match trimmed {
        Ok(removed) => call.reply.int(removed.unwrap_or(0) as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// XTRIM of many entries, on the lane. A copy of the stream is trimmed while no shard is locked, and then replaces
/// the stream.
pub(crate) fn xtrim_long(call: &mut LaneCall<'_>) {
    let options = AddOptions::parse(call.args, false, call.keyspace.settings());
    let Ok(AddOptions { trimming: Some(trimming), .. }) = options else {
        return long::run_locked_by_name("xtrim", call);
    };
    let key = call.keyspace.key(call.args.at(1));
    let mut trims = TrimWrite { key, trimming, replaced: RefCell::default() };
    let trimmed = optimistic::apply(call, &[key.hash], &mut trims);
    if let Some(replaced) = trims.replaced.take() {
        call.keyspace.dispose(replaced.into_value());
    }
    match trimmed {
        Ok((removed, _)) => call.reply.int(removed as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// An XTRIM on a copy.
struct TrimWrite<'a> {
    key: Key<'a>,
    trimming: Trimming,
    /// The former stream. It is freed while no shard is locked.
    replaced: RefCell<Option<StreamValue>>,
}

impl OptimisticWrite for TrimWrite<'_> {
    type Source = Option<StreamValue>;
    /// The number of removed entries, and the stream without them.
    type Outcome = (u64, Option<StreamValue>);

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<StreamValue>, Text> {
        Ok(db.read::<StreamValue>(&self.key).map_err(wrong_type)?.cloned())
    }
    fn is_same(&self, before: &Option<StreamValue>, now: &Option<StreamValue>) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => now.is_unchanged(before),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    fn compute(
        &mut self,
        source: &Option<StreamValue>,
        pause: &dyn Fn(),
    ) -> Result<(u64, Option<StreamValue>), Text> {
        let Trimming { trim, approximate, limit } = self.trimming;
        let mut stream = source.clone();
        pause();
        let removed = stream.as_mut().map_or(0, |stream| stream.trim(trim, approximate, limit));
        pause();
        Ok((removed, stream))
    }
    fn store(&self, db: &mut Db<'_, '_>, (removed, trimmed): &(u64, Option<StreamValue>)) {
        let Some(trimmed) = trimmed.as_ref().filter(|_| *removed > 0) else { return };
        let replaced = db.change(&self.key, |value: &mut StreamValue| {
            (std::mem::replace(value, trimmed.clone()), Changed::Yes)
        });
        *self.replaced.borrow_mut() = replaced.ok().flatten();
        if db.is_recorded() {
            effects::record_trimmed(db, &self.key, trimmed.entries().len());
        }
    }
}

/// `XDEL key id [id ...]`: deletes entries. In groups where they are pending, they stay pending. Reply: how many
/// existed.
pub(crate) fn xdel(call: &mut Call<'_, '_>) {
    let args = call.args.skip(2);
    let deleted = change_existing(call, |stream, _| {
        // Check all IDs before the first entry is deleted.
        let all: Vec<Id> = args.iter().map(|id| ids::strict(id, 0)).collect::<Result<_, _>>()?;
        let deleted = all.into_iter().filter(|id| stream.delete(*id)).count();
        Ok((deleted, Changed::from(deleted > 0)))
    });
    match deleted {
        Ok(deleted) => call.reply.int(deleted.unwrap_or(0) as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// `XLEN key`. Reply: the number of entries.
pub(crate) fn xlen(call: &mut Call<'_, '_>) {
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        reply.int(stream.map_or(0, |s| s.entries().len() as i64));
    });
}

/// `XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id]`: sets the stream's counters, for replication and
/// RESTORE. Reply: OK.
pub(crate) fn xsetid(call: &mut Call<'_, '_>) {
    match set_id(call) {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

fn set_id(call: &mut Call<'_, '_>) -> Result<(), Text> {
    let args = call.args;
    let id = ids::strict(args.at(2), 0)?;
    let (mut added, mut max_deleted) = (None, Id::MIN);
    for at in (3..args.len()).step_by(2) {
        let value = args.get(at + 1).ok_or(errors::SYNTAX)?;
        if args.is(at, "ENTRIESADDED") {
            let n = parse::integer(value)?;
            added = Some(u64::try_from(n).map_err(|_| "ERR entries_added must be positive")?);
        } else if args.is(at, "MAXDELETEDID") {
            max_deleted = ids::strict(value, 0)?;
            if id < max_deleted {
                let text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                return Err(text.into());
            }
        } else {
            return Err(errors::SYNTAX.into());
        }
    }
    let set = change_existing(call, |stream, _| {
        let entries = stream.entries();
        if entries.last_entry_id().is_some_and(|last| id < last) {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
        }
        if added.is_some_and(|added| added < entries.len()) {
            let text = "ERR The entries_added specified in XSETID is smaller than the target stream length";
            return Err(text.into());
        }
        stream.set_ids(id, added, (max_deleted != Id::MIN).then_some(max_deleted));
        Ok(((), Changed::Beside))
    })?;
    set.ok_or(errors::NO_SUCH_KEY.into())
}

/// Changes the stream at the first key. `None` when the key is missing.
///
/// # Errors
/// WRONGTYPE, or the error of `change`. If `change` fails, it must have changed nothing.
pub(super) fn change_existing<R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut StreamValue, &Settings) -> Result<(R, Changed), Text>,
) -> Result<Option<R>, Text> {
    let changed = collection::update_existing(call, |stream, settings| match change(stream, settings) {
        Ok((result, changed)) => (Ok(result), changed),
        Err(text) => (Err(text), Changed::No),
    });
    changed?.transpose()
}
