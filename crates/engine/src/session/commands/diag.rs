//! DIAG: the server's own figures, as JSON. All subcommands but HELP run on a helper thread.
//!
//! DIAG needs the rights of an administrator, because figures show the work of all clients.

use super::{DONE, Outcome, SYNTAX, Session, diag_commands as commands};
use crate::memory::Purpose;
use crate::{Engine, Now};
use serde_json::{Value, json};
use strand_commands::introspect;
use strand_diag::history::{History, ROWS_MAX, STEPS_S, Span, Table};
use strand_keyspace::TYPE_NAMES;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Number of rows of DIAG HISTORY without POINTS.
const POINTS_DEFAULT: usize = 1_000;
/// Maximum number of rows that POINTS may ask for.
const POINTS_MAX: usize = 10_000;
/// Maximum number of words of SERIES. They are separated by commas.
const PATTERNS_MAX: usize = 256;
/// The time span of DIAG HISTORY without FROM.
const SPAN_MS_DEFAULT: i64 = (ROWS_MAX[0] as u64 * STEPS_S[0] * 1000) as i64;

impl Session {
    pub(super) fn diag_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "DIAG", HELP);
        DONE
    }
}

/// Runs a subcommand of DIAG on a helper thread.
pub(super) fn run(engine: &Engine, args: Args<'_>, now: Now, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let text = if args.is(1, "HISTORY") {
        history(engine, args, now)?
    } else if args.is(1, "LIVE") {
        live(engine, args)?
    } else if args.is(1, "MEMORY") {
        memory(engine, now).to_string()
    } else if args.is(1, "LOG") {
        String::from_utf8_lossy(&engine.host.log_tail()).into_owned()
    } else if args.is(1, "SYSTEM") {
        let report = engine.host.system_report().into_iter().map(|(name, text)| (name, Value::String(text)));
        Value::Object(report.collect()).to_string()
    } else if args.is(1, "DOCTOR") {
        commands::doctor(engine, now).to_string()
    } else if args.is(1, "PHASES") {
        commands::phases(engine).to_string()
    } else if args.is(1, "SLOWLOG") {
        commands::slowlog(engine, args)?.to_string()
    } else if args.is(1, "HOTKEYS") {
        commands::hotkeys(engine, args)?.to_string()
    } else if args.is(1, "BIGKEYS") {
        commands::bigkeys(engine, now).to_string()
    } else if args.is(1, "PROFILE") {
        return commands::profile(engine, args, reply);
    } else {
        series(engine).to_string()
    };
    reply.bulk(text.as_bytes());
    Ok(())
}

/// `DIAG HISTORY [FROM s] [TO s] [STEP s] [POINTS n] [SERIES name,name]`
fn history(engine: &Engine, args: Args<'_>, now: Now) -> Result<String, ErrorText> {
    let mut span = Span {
        from_ms: now.unix_ms() - SPAN_MS_DEFAULT,
        to_ms: i64::MAX,
        step_s: None,
        rows_max: POINTS_DEFAULT,
    };
    let mut patterns: &[u8] = b"";
    let mut at = 2;
    while at < args.len() {
        let value = args.get(at + 1).ok_or(SYNTAX)?;
        let number = |least: i64, most: i64| {
            let number = parse_int(value).filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| {
                let name = String::from_utf8_lossy(args.at(at)).to_uppercase();
                format!("ERR {name} must be a whole number from {least} to {most}").into_bytes()
            })
        };
        // A positive number means seconds since 1970, a negative number means seconds before now.
        let moment = || match number(-SECONDS_MAX, SECONDS_MAX)? {
            ago @ ..0 => Ok::<i64, Vec<u8>>(now.unix_ms() + ago * 1000),
            seconds => Ok(seconds * 1000),
        };
        if args.is(at, "FROM") {
            span.from_ms = moment()?;
        } else if args.is(at, "TO") {
            span.to_ms = moment()?;
        } else if args.is(at, "STEP") {
            span.step_s = Some(number(1, SECONDS_MAX)? as u64);
        } else if args.is(at, "POINTS") {
            span.rows_max = number(1, POINTS_MAX as i64)? as usize;
        } else if args.is(at, "SERIES") {
            patterns = value;
        } else {
            return Err(SYNTAX.into());
        }
        at += 2;
    }
    let (names, table) = {
        let recorder = engine.diag.recorder.lock();
        let history = recorder.history();
        let numbers = chosen(history, patterns)?;
        let names: Vec<_> = numbers.iter().map(|at| history.series()[*at].clone()).collect();
        (names, history.read(span, &numbers))
    };
    Ok(table_text(&names, &table, now))
}

/// Maximum number of seconds in FROM and TO.
const SECONDS_MAX: i64 = 1 << 40;

/// The series that match a list of names with `*`. An empty list matches all.
fn chosen(history: &History, patterns: &[u8]) -> Result<Vec<usize>, ErrorText> {
    let patterns: Vec<&[u8]> = patterns.split(|b| *b == b',').filter(|p| !p.is_empty()).collect();
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("ERR too many series: expected at most {PATTERNS_MAX}").into());
    }
    let fits = |name: &str| {
        let fits = |pattern: &&[u8]| match pattern.strip_suffix(b"*") {
            Some(prefix) => name.as_bytes().starts_with(prefix),
            None => name.as_bytes() == *pattern,
        };
        patterns.is_empty() || patterns.iter().any(fits)
    };
    let all = history.series().iter().enumerate();
    Ok(all.filter(|(_, series)| fits(&series.name)).map(|(at, _)| at).collect())
}

/// The table as JSON, column by column, as plots need it. It is written without a library, because a table may have a
/// million numbers of a few bytes each.
fn table_text(names: &[strand_diag::history::Series], table: &Table, now: Now) -> String {
    let mut text = format!("{{\"now_ms\":{},\"step_s\":{},\"times_ms\":[", now.unix_ms(), table.step_s);
    join(&mut text, table.times.iter().map(|time| Some(*time)));
    text.push_str("],\"series\":[");
    for (i, (series, column)) in names.iter().zip(&table.columns).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let (name, unit) = (json!(series.name), json!(series.unit));
        text += &format!("{comma}{{\"name\":{name},\"unit\":{unit},\"values\":[");
        join(&mut text, column.iter().map(|value| Some(*value).filter(|value| value.is_finite())));
        text.push_str("]}");
    }
    text.push_str("]}");
    text
}

fn join<T: std::fmt::Display>(text: &mut String, values: impl Iterator<Item = Option<T>>) {
    use std::fmt::Write;
    for (i, value) in values.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match value {
            Some(value) => write!(text, "{comma}{value}"),
            None => write!(text, "{comma}null"),
        };
    }
}

/// A figure with the digits that DIAG HISTORY prints: a whole number has no fraction. Null when the figure is not finite.
fn number(figure: f32) -> Value {
    serde_json::from_str(&figure.to_string()).unwrap_or_default()
}

/// `DIAG LIVE [SERIES name,name]`: the newest row.
fn live(engine: &Engine, args: Args<'_>) -> Result<String, ErrorText> {
    let patterns = match args.len() {
        2 => b"".as_slice(),
        4 if args.is(2, "SERIES") => args.at(3),
        _ => return Err(SYNTAX.into()),
    };
    let recorder = engine.diag.recorder.lock();
    let history = recorder.history();
    let numbers = chosen(history, patterns)?;
    let Some((time, row)) = history.newest(0) else {
        return Ok(json!({ "time_ms": null, "values": {} }).to_string());
    };
    let value = |at: usize| row.get(at).map_or(Value::Null, |value| number(*value));
    let values: serde_json::Map<String, Value> =
        numbers.iter().map(|at| (history.series()[*at].name.clone(), value(*at))).collect();
    Ok(json!({ "time_ms": time, "values": values }).to_string())
}

/// `DIAG MEMORY`: all bytes in use by purpose, and the other resident memory of the process.
fn memory(engine: &Engine, now: Now) -> Value {
    let ledger = engine.ledger();
    let facts = ledger.facts;
    let purposes =
        Purpose::ALL.map(|p| json!({ "name": p.name(), "bytes": ledger.share(p), "about": p.description() }));
    // In this list, each entry excludes the entries before it.
    let rss = [
        ("used", facts.used_bytes as i64, "given out by the allocator: all purposes and the unnamed rest"),
        (
            "ready",
            facts.ready_bytes as i64,
            "free memory that the allocator keeps ready for each thread, and buffers of the network",
        ),
        (
            "pages",
            facts.active_bytes as i64 - facts.allocated_bytes() as i64,
            "free places in pages that are in use",
        ),
        (
            "retained",
            facts.resident_bytes as i64 - facts.active_bytes as i64,
            "freed pages and the allocator's own tables",
        ),
        (
            "outside",
            facts.rss_bytes as i64 - facts.resident_bytes as i64,
            "the program's code, stacks, rings; negative: pages never touched",
        ),
    ];
    json!({
        "now_ms": now.unix_ms(),
        "used": facts.used_bytes,
        "peak": engine.memory.peak_bytes(facts.used_bytes),
        "limit": engine.memory.limit_bytes(),
        "rss": facts.rss_bytes,
        "system": facts.system_bytes,
        "purposes": purposes,
        "other": ledger.other_bytes(),
        "resident": rss.map(|(name, bytes, about)| json!({ "name": name, "bytes": bytes, "about": about })),
        "data_by_type": data_by_type(engine, now),
    })
}

/// Number of shards whose records are read to estimate the memory of each type. Of 2 M keys in 128 shards, four
/// shards hold about 60,000, read one segment at a time.
const SHARDS_SAMPLED: usize = 4;
/// More shards are read until they have this many keys, so the figures of a small keyspace are exact.
const KEYS_SAMPLED_MIN: u64 = 10_000;

/// Memory of the records of a few shards by type, and their share of all keys.
fn data_by_type(engine: &Engine, now: Now) -> Value {
    let keyspace = &*engine.keyspace;
    let in_use = keyspace.in_use();
    let all: usize = in_use.values().map(|keys| keys.all).sum();
    let mut types = [(0u64, 0u64); TYPE_NAMES.len()];
    let looked_at = |types: &[(u64, u64)]| types.iter().map(|(keys, _)| keys).sum::<u64>();
    for shard in 0..keyspace.shards() {
        if shard >= SHARDS_SAMPLED && looked_at(&types) >= KEYS_SAMPLED_MIN {
            break;
        }
        for db in in_use.keys() {
            keyspace.for_each_in_shard(shard, *db, now.unix_ms(), &mut |record| {
                let value = record.value();
                let named = TYPE_NAMES.iter().position(|name| *name == value.type_name());
                if let Some((keys, bytes)) = named.and_then(|at| types.get_mut(at)) {
                    *keys += 1;
                    *bytes += record.heap_bytes() as u64;
                }
            });
        }
        engine.host.yield_now();
    }
    let looked_at = looked_at(&types);
    let shown = TYPE_NAMES.iter().zip(types).filter(|(_, (keys, _))| *keys > 0);
    let shown: Vec<Value> =
        shown.map(|(name, (keys, bytes))| json!({ "type": name, "keys": keys, "bytes": bytes })).collect();
    json!({ "keys": all, "keys_looked_at": looked_at, "types": shown })
}

/// `DIAG SERIES`: the series and their memory.
fn series(engine: &Engine) -> Value {
    let (on_disk, trouble) = engine.diag.disk_state();
    let recorder = engine.diag.recorder.lock();
    let history = recorder.history();
    let series = history.series().iter().map(|series| json!({ "name": series.name, "unit": series.unit }));
    let levels = STEPS_S.iter().enumerate().map(|(level, step_s)| {
        json!({ "step_s": step_s, "rows": history.len(level), "rows_max": ROWS_MAX[level] })
    });
    json!({
        "series": series.collect::<Vec<_>>(),
        "levels": levels.collect::<Vec<_>>(),
        "bytes": engine.diag.bytes(),
        "figures_without_a_series": history.refused(),
        "clock_jumps": recorder.clock_jumps(),
        "sampled_us": engine.diag.sampled_us(),
        "on_disk": on_disk,
        "disk_trouble": trouble,
    })
}

const HELP: &[&str] = &[
    "BIGKEYS",
    "    Return the largest of the keys that DIAG HOTKEYS has seen. No keys are scanned.",
    "DOCTOR",
    "    Return what is wrong now, what the server did by itself, and what to do.",
    "HISTORY [FROM <seconds>] [TO <seconds>] [STEP <seconds>] [POINTS <n>] [SERIES <name>[,<name>...]]",
    "    Return figures over time as JSON, from FROM on (Unix time; a negative number means seconds",
    "    before now; default: 15 minutes ago). A name may end with *.",
    "HOTKEYS [RESET]",
    "    Return the keys that were used most in the last minutes, by count, bytes and time.",
    "LIVE [SERIES <name>[,<name>...]]",
    "    Return the newest row of the history.",
    "LOG",
    "    Return the newest lines of the log.",
    "MEMORY",
    "    Return the memory of each purpose, the rest of the resident memory, and an estimate of the data by type.",
    "PHASES",
    "    Return for each command how long its calls executed, waited for a helper thread (queued) and waited",
    "    for other causes (parked). Also return how long replies waited for clients (flushing).",
    "PROFILE HEAP|ALLOCS [FOLDED]",
    "    Return where the memory in use (HEAP), or all memory since the start (ALLOCS), was allocated, in pprof (gzip) or folded.",
    "PROFILE MEMORY",
    "    Return both profiles of memory in both forms, of one moment: ALLOCS folded, ALLOCS in pprof, HEAP",
    "    folded, HEAP in pprof. The four profiles together cost as much as one profile.",
    "PROFILE CPU START [SECONDS <seconds>]",
    "    Begin to sample processor time; return the number of the profile.",
    "PROFILE CPU STOP <number> [FOLDED]",
    "    End this profile, and return where processor time went.",
    "SERIES",
    "    Return the names and units of all series, and the memory and disk space of the history.",
    "SLOWLOG [<count>]",
    "    Return slow commands with their phases, and commands that waited long, with the causes of the waits.",
    "SYSTEM",
    "    Return the kernel's text about the process, its threads and the machine.",
];
