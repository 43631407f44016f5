//! DIAG: what the server knows of itself, as JSON. All but HELP run on a helper thread.
//!
//! Who may call DIAG is who may administrate: figures tell of the work of all clients.

use super::{DONE, Outcome, SYNTAX, Session};
use crate::{Engine, Now};
use serde_json::{Value, json};
use strand_commands::introspect;
use strand_diag::history::{History, ROWS_MAX, STEPS_S, Span, Table};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Rows of DIAG HISTORY unless POINTS says how many.
const POINTS_DEFAULT: usize = 1_000;
/// Most rows that may be asked for.
const POINTS_MAX: usize = 10_000;
/// Most words of SERIES, separated by commas.
const PATTERNS_MAX: usize = 256;
/// What DIAG HISTORY shows unless FROM says since when.
const SPAN_MS_DEFAULT: i64 = (ROWS_MAX[0] as u64 * STEPS_S[0] * 1000) as i64;

impl Session {
    pub(super) fn diag_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "DIAG", HELP);
        DONE
    }
}

/// Runs one of them, on a helper thread.
pub(super) fn run(engine: &Engine, args: Args<'_>, now: Now, reply: &mut Reply<'_>) -> Result<(), Vec<u8>> {
    let text = if args.is(1, "HISTORY") {
        history(engine, args, now)?
    } else if args.is(1, "LIVE") {
        live(engine, args)?
    } else {
        series(engine).to_string()
    };
    reply.bulk(text.as_bytes());
    Ok(())
}

/// `DIAG HISTORY [FROM s] [TO s] [STEP s] [POINTS n] [SERIES name,name]`
fn history(engine: &Engine, args: Args<'_>, now: Now) -> Result<String, Vec<u8>> {
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
            number.ok_or_else(|| "ERR value is not an integer or out of range".as_bytes().to_vec())
        };
        // Seconds since 1970, or before now where they are negative.
        let moment = || match number(-SECONDS_MAX, SECONDS_MAX)? {
            ago @ ..0 => Ok::<i64, Vec<u8>>(now.unix_ms() + ago * 1000),
            seconds => Ok(seconds * 1000),
        };
        match () {
            () if args.is(at, "FROM") => span.from_ms = moment()?,
            () if args.is(at, "TO") => span.to_ms = moment()?,
            () if args.is(at, "STEP") => span.step_s = Some(number(1, SECONDS_MAX)? as u64),
            () if args.is(at, "POINTS") => span.rows_max = number(1, POINTS_MAX as i64)? as usize,
            () if args.is(at, "SERIES") => patterns = value,
            () => return Err(SYNTAX.into()),
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

/// No time is farther away.
const SECONDS_MAX: i64 = 1 << 40;

/// The series that a list of names with `*` fits; all for an empty one.
fn chosen(history: &History, patterns: &[u8]) -> Result<Vec<usize>, Vec<u8>> {
    let patterns: Vec<&[u8]> = patterns.split(|b| *b == b',').filter(|p| !p.is_empty()).collect();
    if patterns.len() > PATTERNS_MAX {
        return Err("ERR too many series".into());
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

/// Columns, as plots take them. Written by hand: a number is a few bytes, and there may be a million of them.
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

/// `DIAG LIVE [SERIES name,name]`: the newest row.
fn live(engine: &Engine, args: Args<'_>) -> Result<String, Vec<u8>> {
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
    let value = |at: usize| match row.get(at).filter(|value| value.is_finite()) {
        Some(value) => json!(value),
        None => Value::Null,
    };
    let values: serde_json::Map<String, Value> =
        numbers.iter().map(|at| (history.series()[*at].name.clone(), value(*at))).collect();
    Ok(json!({ "time_ms": time, "values": values }).to_string())
}

/// `DIAG SERIES`: what there is, and what it takes.
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
    "HISTORY [FROM <seconds>] [TO <seconds>] [STEP <seconds>] [POINTS <n>] [SERIES <name>[,<name>...]]",
    "    Return figures over time as JSON: the last 15 minutes unless FROM says since when (Unix",
    "    time, or seconds before now when negative). A name may end with *.",
    "LIVE [SERIES <name>[,<name>...]]",
    "    Return the newest row of the history.",
    "SERIES",
    "    Return the names and units of all series, and what the history takes.",
];
