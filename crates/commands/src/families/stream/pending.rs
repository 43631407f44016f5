//! Commands about pending entries (entries that were delivered and not acknowledged): XACK, XPENDING, XCLAIM and
//! XAUTOCLAIM.

use super::add::change_existing;
use super::{effects, ids, no_group, send_entry, send_id};
use crate::call::Call;
use crate::errors;
use crate::events::named;
use crate::families::collection;
use crate::parse::{self, Text};
use strand_chain::Chain;
use strand_keyspace::Changed;
use strand_keyspace::types::stream::{Claim, Entries, Group, Id, StreamValue};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// The default COUNT of XAUTOCLAIM.
const CLAIMS_DEFAULT: i64 = 100;
/// Number of pending entries that XAUTOCLAIM visits per entry of its COUNT.
const LOOKS_PER_CLAIM: i64 = 10;
/// Maximum COUNT of XAUTOCLAIM.
const CLAIMS_MAX: i64 = i64::MAX / 16;

/// `XACK key group id [id ...]`: acknowledges entries. Reply: how many were pending.
pub(crate) fn xack(call: &mut Call<'_, '_>) {
    let (group, args) = (call.args.at(2), call.args.skip(3));
    count_lookup(call);
    let done = change_existing(call, |stream, _| {
        let done = stream.change_group(group, |group, _| {
            // Check all IDs before the first entry is acknowledged.
            let all: Vec<Id> = args.iter().map(|id| ids::strict(id, 0)).collect::<Result<_, _>>()?;
            Ok::<usize, Text>(all.into_iter().filter(|id| group.acknowledge(*id)).count())
        });
        let done = done.transpose()?.unwrap_or(0);
        Ok((done, Changed::beside(done > 0)))
    });
    match done {
        Ok(done) => call.reply.int(done.unwrap_or(0) as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// The arguments of XPENDING's long form.
pub(super) struct PendingRange<'a> {
    idle_ms: i64,
    pub(super) start: Id,
    pub(super) end: Id,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingRange<'a> {
    /// Parses the arguments. `None` for the summary.
    pub(super) fn parse(args: Args<'a>) -> Result<Option<PendingRange<'a>>, Text> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(errors::SYNTAX.into());
        }
        let (mut idle_ms, mut from) = (0, 3);
        if args.is(3, "IDLE") {
            idle_ms = parse::integer(args.at(4))?;
            if args.len() < 8 {
                return Err(errors::SYNTAX.into());
            }
            from += 2;
        }
        let count = usize::try_from(parse::integer(args.at(from + 2))?).unwrap_or(0);
        let (start, end) = (ids::start(args.at(from))?, ids::end(args.at(from + 1))?);
        let consumer = args.get(from + 3);
        // redis-server reads no further argument, so XPENDING k g - + 1 c more is not an error.
        Ok(Some(PendingRange { idle_ms, start, end, count, consumer }))
    }
    /// Maximum number of pending entries that are visited. With IDLE that is all, because entries that are not idle
    /// long enough are skipped.
    pub(super) fn visits_max(&self) -> usize {
        if self.idle_ms == 0 { self.count } else { usize::MAX }
    }
}

/// `XPENDING key group [[IDLE ms] start end count [consumer]]`. Without a range, the reply is the number of pending
/// entries, the first and the last ID, and the number per consumer. With a range, the reply has per entry its ID,
/// consumer, idle time and number of deliveries.
pub(crate) fn xpending(call: &mut Call<'_, '_>) {
    let (args, now_ms) = (call.args, call.now_ms);
    let span = match PendingRange::parse(args) {
        Ok(span) => span,
        Err(text) => return call.reply.error(&text),
    };
    collection::read(call, |stream: Option<&StreamValue>, reply| {
        let Some(group) = stream.and_then(|stream| stream.group(args.at(2))) else {
            return reply.error_bytes(&no_group(args.at(1), args.at(2), ""));
        };
        match span {
            None => summary(group, reply),
            Some(span) => list(group, &span, now_ms, reply),
        }
    });
}

fn summary(group: &Group, reply: &mut Reply<'_>) {
    reply.array(4);
    reply.int(group.pending() as i64);
    let (first, last) = (group.pending_from(Id::MIN).next(), group.last_pending());
    let (Some((first, _)), Some(last)) = (first, last) else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    send_id(reply, first);
    send_id(reply, last);
    let busy = || group.each_consumer().filter(|consumer| consumer.pending() > 0);
    reply.array(busy().count());
    for consumer in busy() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_int(consumer.pending() as i64);
    }
}

fn list(group: &Group, span: &PendingRange<'_>, now_ms: i64, reply: &mut Reply<'_>) {
    let only = match span.consumer.map(|name| group.find_consumer(name)) {
        // A consumer that does not exist has no pending entries.
        Some(None) => return reply.array(0),
        Some(Some(id)) => group.consumer(id),
        None => None,
    };
    let found = || {
        let of_all = only.is_none().then(|| group.pending_from(span.start)).into_iter().flatten();
        let of_one = only.into_iter().flat_map(|consumer| consumer.pending_from(span.start));
        let of_one = of_one.filter_map(|id| Some((id, group.pending_at(id)?)));
        of_all
            .chain(of_one)
            .take_while(|(id, _)| *id <= span.end)
            .filter(|(_, p)| span.idle_ms == 0 || now_ms.wrapping_sub(p.delivered_ms) >= span.idle_ms)
            .take(span.count)
    };
    reply.array(found().count());
    for (id, pending) in found() {
        if reply.exceeds_limit() {
            return;
        }
        reply.array(4);
        send_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).map_or(b"", |consumer| consumer.name()));
        reply.int(now_ms.wrapping_sub(pending.delivered_ms).max(0));
        reply.int(pending.deliveries as i64);
    }
}

/// The arguments of XCLAIM and XAUTOCLAIM.
struct Claiming {
    /// XAUTOCLAIM: the first ID.
    start: Id,
    /// XAUTOCLAIM: the maximum number of entries to claim.
    count: i64,
    claim: Claim,
    just_ids: bool,
    last_id: Id,
}

fn claiming(min_idle: &[u8], command: &str, now_ms: i64) -> Result<Claiming, Text> {
    let text = || format!("ERR Invalid min-idle-time argument for {command}");
    let min_idle_ms = parse::integer(min_idle).map_err(|_| text())?;
    let claim = Claim {
        delivered_until_ms: (min_idle_ms > 0).then(|| now_ms.saturating_sub(min_idle_ms)),
        delivered_ms: now_ms,
        deliveries: None,
        keep_deliveries: false,
        force: false,
    };
    Ok(Claiming { start: Id::MIN, count: CLAIMS_DEFAULT, claim, just_ids: false, last_id: Id::MIN })
}

/// `XCLAIM key group consumer min-idle-ms id [id ...] [IDLE ms] [TIME unix-ms] [RETRYCOUNT n] [FORCE] [JUSTID] [LASTID
/// id]`: gives pending entries to a consumer. Reply: the entries, or their IDs.
pub(crate) fn xclaim(call: &mut Call<'_, '_>) {
    let (args, now_ms) = (call.args, call.now_ms);
    let mut part = Chain::new();
    let mut reply = call.reply.part(&mut part);
    let mut done = ClaimChanges::default();
    let claimed = in_group(call, |group, entries| {
        let asked = claiming(args.at(4), "XCLAIM", now_ms);
        let mut asked = asked.map_err(|text| text.into_owned().into_bytes())?;
        let all: Vec<Id> = args.skip(5).iter().map_while(|id| ids::strict(id, 0).ok()).collect();
        claim_options(args, 5 + all.len(), now_ms, &mut asked)?;
        if asked.last_id > group.last_id() {
            group.set_last_id(asked.last_id);
            done.advanced = true;
        }
        let (mut consumer, mut claimed) = (None, 0);
        for id in all {
            let Some(entry) = entries.get(id) else {
                if group.acknowledge(id) {
                    done.acknowledged.push((args.at(2).to_vec(), id));
                }
                continue;
            };
            if !group.can_claim(id, &asked.claim) {
                continue;
            }
            let consumer = *consumer.get_or_insert_with(|| group.see_consumer(args.at(3), now_ms));
            group.claim(id, consumer, &asked.claim);
            done.claimed.push(id);
            match asked.just_ids {
                true => send_id(&mut reply, id),
                false => send_entry(&mut reply, &entry),
            }
            claimed += 1;
        }
        Ok((claimed, !done.is_empty()))
    });
    done.record_effects(call);
    match claimed {
        Ok(claimed) => {
            call.reply.array(claimed);
            call.reply.raw(part);
        }
        Err(text) => call.reply.error_bytes(&text),
    }
}

/// What XCLAIM or XAUTOCLAIM has changed.
#[derive(Default)]
struct ClaimChanges {
    /// Entries that are no longer pending, because the stream does not have them any more.
    acknowledged: Vec<(Vec<u8>, Id)>,
    claimed: Vec<Id>,
    /// True when the last ID of the group has changed.
    advanced: bool,
}

impl ClaimChanges {
    fn is_empty(&self) -> bool {
        self.acknowledged.is_empty() && self.claimed.is_empty() && !self.advanced
    }
    /// Records the effects.
    fn record_effects(&self, call: &mut Call<'_, '_>) {
        if !call.is_recorded() {
            return;
        }
        call.txn.no_effect();
        effects::record_removed(call, &self.acknowledged, &[]);
        let (args, key) = (call.args, &call.keys[0]);
        let mut db = call.txn.db(call.db);
        effects::record_claimed(&mut db, key, args.at(2), args.at(3), &self.claimed);
        if self.advanced {
            effects::record_group_advanced(&mut db, key, args.at(2));
        }
    }
}

/// Parses the options of XCLAIM, beginning at argument `from`.
fn claim_options(args: Args<'_>, from: usize, now_ms: i64, asked: &mut Claiming) -> Result<(), ErrorText> {
    let (mut delivered_ms, mut at) = (None, from);
    while at < args.len() {
        let value = args.get(at + 1);
        let is = |word: &str| args.is(at, word);
        let number = |option: &str, value: &[u8]| {
            parse::integer(value).map_err(|_| format!("ERR Invalid {option} option argument for XCLAIM"))
        };
        match value {
            _ if is("FORCE") => asked.claim.force = true,
            _ if is("JUSTID") => (asked.just_ids, asked.claim.keep_deliveries) = (true, true),
            Some(value) if is("IDLE") => delivered_ms = Some(now_ms.wrapping_sub(number("IDLE", value)?)),
            Some(value) if is("TIME") => delivered_ms = Some(number("TIME", value)?),
            Some(value) if is("RETRYCOUNT") => {
                asked.claim.deliveries = u64::try_from(number("RETRYCOUNT", value)?).ok();
            }
            Some(value) if is("LASTID") => asked.last_id = ids::strict(value, 0)?,
            _ => {
                return Err([b"ERR Unrecognized XCLAIM option '", errors::c_text(args.at(at)), b"'"].concat());
            }
        }
        at += if is("FORCE") || is("JUSTID") { 1 } else { 2 };
    }
    // A time in the future or before 1970 counts as now, because clients compute the time by their own clocks.
    asked.claim.delivered_ms = delivered_ms.filter(|ms| (0..=now_ms).contains(ms)).unwrap_or(now_ms);
    Ok(())
}

/// `XAUTOCLAIM key group consumer min-idle-ms start [COUNT n] [JUSTID]`: gives pending entries to a consumer. Reply:
/// the ID to continue from (0-0 at the end); the entries, or their IDs; the IDs of pending entries that were deleted.
pub(crate) fn xautoclaim(call: &mut Call<'_, '_>) {
    let (args, now_ms) = (call.args, call.now_ms);
    let asked = match autoclaim_options(args, now_ms) {
        Ok(asked) => asked,
        Err(text) => return call.reply.error(&text),
    };
    let mut part = Chain::new();
    let mut reply = call.reply.part(&mut part);
    let mut effect = ClaimChanges::default();
    let done = in_group(call, |group, entries| {
        let looks = usize::try_from(asked.count.saturating_mul(LOOKS_PER_CLAIM)).unwrap_or(usize::MAX);
        let (mut left, mut looked) = (asked.count, 0);
        let (mut consumer, mut claimed, mut deleted) = (None, 0, Vec::new());
        let mut next = asked.start;
        let mut cursor = Id::MIN;
        loop {
            let Some(id) = group.pending_from(next).next().map(|(id, _)| id) else { break };
            if looked == looks || left == 0 {
                cursor = id;
                break;
            }
            looked += 1;
            match entries.get(id) {
                None => {
                    group.acknowledge(id);
                    effect.acknowledged.push((args.at(2).to_vec(), id));
                    deleted.push(id);
                    left -= 1;
                }
                Some(entry) if group.can_claim(id, &asked.claim) => {
                    let consumer = *consumer.get_or_insert_with(|| group.see_consumer(args.at(3), now_ms));
                    group.claim(id, consumer, &asked.claim);
                    effect.claimed.push(id);
                    match asked.just_ids {
                        true => send_id(&mut reply, id),
                        false => send_entry(&mut reply, &entry),
                    }
                    claimed += 1;
                    left -= 1;
                }
                Some(_) => {}
            }
            match id.next() {
                Some(after) => next = after,
                None => break,
            }
        }
        Ok(((cursor, claimed, deleted), !effect.is_empty()))
    });
    effect.record_effects(call);
    match done {
        Ok((cursor, claimed, deleted)) => {
            call.reply.array(3);
            send_id(call.reply, cursor);
            call.reply.array(claimed);
            call.reply.raw(part);
            call.reply.array(deleted.len());
            deleted.into_iter().for_each(|id| send_id(call.reply, id));
        }
        Err(text) => call.reply.error_bytes(&text),
    }
}

fn autoclaim_options(args: Args<'_>, now_ms: i64) -> Result<Claiming, Text> {
    let mut asked = claiming(args.at(4), "XAUTOCLAIM", now_ms)?;
    asked.start = ids::start(args.at(5))?;
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "COUNT") && at + 1 < args.len() {
            let count = parse::integer(args.at(at + 1)).ok().filter(|n| (1..=CLAIMS_MAX).contains(n));
            asked.count = count.ok_or("ERR COUNT must be > 0")?;
            at += 1;
        } else if args.is(at, "JUSTID") {
            (asked.just_ids, asked.claim.keep_deliveries) = (true, true);
        } else {
            return Err(errors::SYNTAX.into());
        }
        at += 1;
    }
    Ok(asked)
}

/// The number of entries that XAUTOCLAIM visits, for its cost. 0 when the arguments are wrong.
pub(super) fn autoclaim_looks(args: Args<'_>) -> usize {
    let count = autoclaim_options(args, 0).map_or(0, |asked| asked.count);
    usize::try_from(count.saturating_mul(LOOKS_PER_CLAIM)).unwrap_or(usize::MAX)
}

/// As in redis-server, these commands count as reads.
fn count_lookup(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let is_hit = db.peek(&call.keys[0]).is_some();
    db.count_lookup(is_hit);
}

/// Calls `change` with the group that is named by argument 2. `change` also returns whether it has changed something.
///
/// # Errors
/// NOGROUP when the key or group is missing, and the errors of `change`.
fn in_group<R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut Group, &Entries) -> Result<(R, bool), ErrorText>,
) -> Result<R, ErrorText> {
    let args = call.args;
    let mut is_new = false;
    count_lookup(call);
    let done = change_existing(call, |stream, _| {
        let done = stream.change_group(args.at(2), |group, entries| {
            let before = group.consumers();
            let done = change(group, entries);
            is_new = group.consumers() > before;
            done
        });
        let changed = Changed::beside(matches!(done, Some(Ok((_, true)))));
        Ok((done.map(|done| done.map(|(result, _)| result)), changed))
    });
    if is_new {
        call.txn.db(call.db).report_event(&call.keys[0], named::CREATE_CONSUMER);
    }
    match done {
        Ok(done) => done.flatten().unwrap_or_else(|| Err(no_group(args.at(1), args.at(2), ""))),
        Err(text) => Err(text.into_owned().into_bytes()),
    }
}
