//! DIAG PHASES, SLOWLOG, HOTKEYS, BIGKEYS and DOCTOR: the waits and durations of commands, and their keys.

use crate::diag::hot::{COMMANDS_PER_SAMPLE, MEASURES};
use crate::diag::otlp::trace_id;
use crate::slowlog::SlowLogEntry;
use crate::timing::Spread;
use crate::{Engine, Now, ProfileRequest};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::errors;
use strand_diag::sketch::{By, SketchRow};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Number of keys that are shown for each measure (count, bytes, time).
const KEYS_SHOWN: usize = 32;
/// Number of entries of each log that DIAG SLOWLOG shows when the client gives no number.
const SLOWLOG_ENTRIES_SHOWN: usize = 128;
/// Number of words before the arguments of a DIAG command: DIAG and the subcommand.
const COMMAND_WORDS: usize = 2;
/// Duration of a CPU profile, in seconds, when the client gives none.
const PROFILE_DEFAULT_S: u64 = 30;
/// Maximum duration of a CPU profile, in seconds.
const PROFILE_MAX_S: u64 = 300;

/// `DIAG PHASES`
pub(super) fn phases(engine: &Engine) -> Value {
    let stats = &engine.stats;
    let ids = 0..stats.ids.len();
    let commands = ids.filter_map(|id| {
        // Yield, because summing a command's histograms takes some microseconds and a worker may wait for this core.
        engine.host.yield_now();
        let phases = [("executing", &stats.histograms), ("queued", &stats.queued), ("parked", &stats.parked)];
        let known = phases.iter().filter_map(|(name, of)| Some((name.to_string(), spread(&of.of(id)?))));
        let mut row: Map<String, Value> = known.collect();
        if row.is_empty() {
            return None;
        }
        row.insert("command".into(), stats.ids.name(id).into());
        row.insert("calls".into(), stats.calls(id).into());
        Some(Value::Object(row))
    });
    let flushing = Spread::of([&stats.flushing].into_iter());
    let commands: Vec<Value> = commands.collect();
    let park_reasons = stats.park_reasons().into_iter().filter(|(_, [count, _])| *count > 0);
    let park_reasons =
        park_reasons.map(|(on, [count, us])| json!({ "on": on.name(), "count": count, "total": us }));
    let parked_on: Vec<Value> = park_reasons.collect();
    json!({ "unit": "us", "commands": commands, "parked_on": parked_on, "flushing": spread(&flushing) })
}

fn spread(spread: &Spread) -> Value {
    let at = |percent| spread.percentile_us(percent);
    json!({ "count": spread.total(), "p50": at(50.0), "p99": at(99.0), "p999": at(99.9), "max": at(100.0) })
}

/// `DIAG SLOWLOG [count]`: commands with a long execution, and commands with a long wait before it.
pub(super) fn slowlog(engine: &Engine, args: Args<'_>) -> Result<Value, ErrorText> {
    let count = match args.get(COMMAND_WORDS).map(parse_int) {
        None => SLOWLOG_ENTRIES_SHOWN,
        Some(Some(n @ 0..)) => n as usize,
        Some(_) => return Err(errors::NOT_AN_INTEGER.into()),
    };
    let shown = |entries: Vec<std::sync::Arc<SlowLogEntry>>| {
        entries.iter().take(count).map(|e| entry(engine, e)).collect::<Vec<_>>()
    };
    Ok(json!({
        "slower_than_us": engine.slow_log.slow_us(),
        "slow": shown(engine.slow_log.newest(count)),
        "waited": shown(engine.slow_log.waited()),
    }))
}

fn entry(engine: &Engine, entry: &SlowLogEntry) -> Value {
    json!({
        "trace_id": trace_id(engine, entry),
        "id": entry.id,
        "unix_s": entry.unix_s,
        "args": entry.args.iter().map(|arg| text(arg)).collect::<Vec<_>>(),
        "client": entry.addr,
        "client_name": entry.name,
        "queued_us": entry.waits.queued_us,
        "parked_us": entry.waits.parked_us,
        "parked_on": entry.waits.reason_name(),
        "held_by": entry.waits.holder.as_deref(),
        "executing_us": entry.took_us,
        "flushing_us": entry.flushing_us.load(Relaxed),
    })
}

/// Bytes as text. Bytes that are not UTF-8 are escaped.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// `DIAG PROFILE HEAP|ALLOCS [FOLDED]`, `DIAG PROFILE MEMORY`, `DIAG PROFILE CPU START [SECONDS n]`,
/// `DIAG PROFILE CPU STOP id [FOLDED]`
pub(super) fn profile(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let args = args.skip(COMMAND_WORDS);
    let syntax = || Vec::from(super::SYNTAX);
    // Whether FOLDED follows the `len` arguments.
    let folded = |len: usize| match args.len() {
        given if given == len => Ok(false),
        given if given == len + 1 && args.is(len, "FOLDED") => Ok(true),
        _ => Err(syntax()),
    };
    if args.is(0, "MEMORY") && args.len() == 1 {
        let profiles = engine.host.memory_profiles().map_err(|why| why.0.into_bytes())?;
        reply.array(profiles.len());
        profiles.iter().for_each(|profile| reply.bulk(profile));
        return Ok(());
    }
    let ask = if args.is(0, "HEAP") {
        ProfileRequest::Heap { folded: folded(1)? }
    } else if args.is(0, "ALLOCS") {
        ProfileRequest::Allocs { folded: folded(1)? }
    } else if args.is(0, "CPU") && args.is(1, "START") {
        let seconds = match args.len() {
            2 => PROFILE_DEFAULT_S,
            4 if args.is(2, "SECONDS") => parse_int(args.at(3))
                .and_then(|n| u64::try_from(n).ok())
                .filter(|n| (1..=PROFILE_MAX_S).contains(n))
                .ok_or_else(|| format!("ERR seconds must be between 1 and {PROFILE_MAX_S}").into_bytes())?,
            _ => return Err(syntax()),
        };
        ProfileRequest::CpuStart { seconds }
    } else if args.is(0, "CPU") && args.is(1, "STOP") && args.len() > 2 {
        let id = parse_int(args.at(2)).and_then(|id| u64::try_from(id).ok());
        ProfileRequest::CpuStop { id: id.ok_or_else(syntax)?, folded: folded(3)? }
    } else {
        return Err(syntax());
    };
    reply.bulk(&engine.host.profile(ask).map_err(|why| why.0.into_bytes())?);
    Ok(())
}

/// `DIAG DOCTOR`
pub(super) fn doctor(engine: &Engine, now: Now) -> Value {
    let findings = engine.examine(now).into_iter().map(|found| {
        json!({ "rule": found.rule, "level": found.level.name(), "what": found.problem, "todo": found.advice })
    });
    let actions = engine
        .diag
        .action_log
        .all()
        .into_iter()
        .map(|act| json!({ "unix_s": act.unix_s, "rule": act.rule, "did": act.text }));
    json!({
        "findings": findings.collect::<Vec<_>>(),
        "actions": actions.collect::<Vec<_>>(),
        "text": engine.doctor_text(now),
    })
}

/// `DIAG HOTKEYS [RESET]`
pub(super) fn hotkeys(engine: &Engine, args: Args<'_>) -> Result<Value, ErrorText> {
    let args = args.skip(COMMAND_WORDS);
    if args.len() == 1 && args.is(0, "RESET") {
        engine.diag.hot.clear();
    } else if !args.is_empty() {
        return Err(super::SYNTAX.into());
    }
    let rows = |by: By| -> Vec<Value> {
        let row = |row: SketchRow| {
            json!({
                "db": row.db,
                "key": text(&row.key),
                "key_bytes": row.key_bytes,
                "count": row.weight.count.round() as u64,
                "bytes": row.weight.bytes.round() as u64,
                "time_us": (row.weight.ns / 1000.0).round() as u64,
            })
        };
        engine.diag.hot.heaviest(by).into_iter().take(KEYS_SHOWN).map(row).collect()
    };
    let [by_count, by_bytes, by_time] = MEASURES.map(rows);
    Ok(json!({
        "one_command_in": COMMANDS_PER_SAMPLE,
        "by_count": by_count,
        "by_bytes": by_bytes,
        "by_time": by_time,
    }))
}

/// A sampled key with its current size.
struct SizedKey {
    bytes: usize,
    elements: usize,
    type_name: &'static str,
    db: usize,
    name: Box<[u8]>,
}

/// `DIAG BIGKEYS`: the largest of the sampled keys, with their current sizes.
pub(super) fn bigkeys(engine: &Engine, now: Now) -> Value {
    let seen = MEASURES.into_iter().flat_map(|by| engine.diag.hot.heaviest(by));
    let whole = seen.filter(|row| row.key.len() == row.key_bytes);
    let keys: BTreeSet<(usize, Box<[u8]>)> = whole.map(|row| (row.db, (*row.key).into())).collect();
    let mut sized: Vec<SizedKey> = keys
        .into_iter()
        .filter_map(|(db, name)| {
            let key = engine.keyspace.key(&name);
            let mut txn = engine.keyspace.lock(&[key.hash], now.unix_ms());
            let (bytes, elements, type_name) = txn.db(db).peek(&key).map(|record| {
                let value = record.value();
                (record.heap_bytes(), value.elements(), value.type_name())
            })?;
            Some(SizedKey { bytes, elements, type_name, db, name: name.clone() })
        })
        .collect();
    sized.sort_by_key(|key| std::cmp::Reverse(key.bytes));
    let row = |key: SizedKey| {
        json!({
            "db": key.db,
            "key": text(&key.name),
            "type": key.type_name,
            "bytes": key.bytes,
            "elements": key.elements,
        })
    };
    json!({ "keys": sized.into_iter().take(KEYS_SHOWN).map(row).collect::<Vec<_>>() })
}
