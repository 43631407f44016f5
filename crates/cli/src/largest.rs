//! `--bigkeys`, `--memkeys` and `--hotkeys`: walks all keys with SCAN and keeps the largest key of each type, or
//! the most used keys.

use crate::client::write_stdout;
use crate::connection::{Connection, ConnectionError};
use crate::interrupts::Interrupts;
use crate::modes::{scan_page, string};
use crate::options::{CliMode, Options};
use strand_wire::client::Value;
use strand_wire::quote::quoted;

/// With `-i`, the walk pauses each time it has read this number of pages of SCAN.
const PAGES_PER_WAIT: u64 = 100;
/// Maximum number of keys shown by `--hotkeys`.
const HOT_KEYS_MAX: usize = 16;
/// A progress line is printed after this many keys.
const KEYS_PER_LINE: u64 = 1_000_000;

struct Kind {
    name: &'static str,
    count_by: &'static str,
    unit: &'static str,
    biggest: u64,
    biggest_key: String,
    total: u64,
    count: u64,
}

/// The types, in redis-cli's order.
fn kinds() -> Vec<Kind> {
    let kind = |name, count_by, unit| Kind {
        name,
        count_by,
        unit,
        biggest: 0,
        biggest_key: String::new(),
        total: 0,
        count: 0,
    };
    vec![
        kind("list", "LLEN", "items"),
        kind("hash", "HLEN", "fields"),
        kind("string", "STRLEN", "bytes"),
        kind("stream", "XLEN", "entries"),
        kind("set", "SCARD", "members"),
        kind("zset", "ZCARD", "members"),
    ]
}

/// Walks all keys. Ctrl-C ends the walk, and the result so far is printed.
///
/// # Errors
/// When the connection ends or SCAN is refused.
pub fn run(
    connection: &mut Connection,
    options: &Options,
    interrupts: &Interrupts,
) -> Result<(), ConnectionError> {
    match options.mode {
        CliMode::HotKeys => find_hottest(connection, options, interrupts),
        CliMode::MemoryKeys(samples) => find_largest(connection, options, Some(samples), interrupts),
        _ => find_largest(connection, options, None, interrupts),
    }
}

fn write_text(text: std::fmt::Arguments<'_>) {
    write_stdout(text.to_string().as_bytes());
}

fn quoted_key(key: &[u8]) -> String {
    let mut out = Vec::new();
    quoted(&mut out, key);
    String::from_utf8_lossy(&out).into_owned()
}

fn key_count(connection: &mut Connection) -> Result<u64, ConnectionError> {
    match connection.ask(&["DBSIZE"])? {
        Value::Int(n) => Ok(u64::try_from(n).unwrap_or(0)),
        other => string(other).map(|_| 0),
    }
}

const SCANNING: &str = "# average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec
# per 100 SCAN commands (not usually needed).\n\n";

/// Finds the largest keys. With `memory`, the size of a key is its MEMORY USAGE with this number of samples.
/// Otherwise the size is the number of elements.
fn find_largest(
    connection: &mut Connection,
    options: &Options,
    memory: Option<Option<u64>>,
    interrupts: &Interrupts,
) -> Result<(), ConnectionError> {
    let all = key_count(connection)?;
    write_text(format_args!("\n# Scanning the entire keyspace to find biggest keys as well as\n{SCANNING}"));
    let (mut kinds, mut cursor, mut sampled, mut pages, mut key_bytes) =
        (kinds(), b"0".to_vec(), 0u64, 0u64, 0);
    loop {
        let percent = 100.0 * sampled as f64 / all as f64;
        let (next, keys) = scan_page(connection, &cursor, options)?;
        pages += 1;
        keys.iter().try_for_each(|key| connection.send(&[&b"TYPE"[..], key]))?;
        let mut types = Vec::new();
        for _ in &keys {
            types.push(string(connection.reply()?)?);
        }
        let place = |word: &[u8]| kinds.iter().position(|kind| kind.name.as_bytes() == word);
        let found: Vec<(usize, &Vec<u8>)> =
            types.iter().zip(&keys).filter_map(|(word, key)| Some((place(word)?, key))).collect();
        for (kind, key) in &found {
            match memory {
                None => connection.send(&[kinds[*kind].count_by.as_bytes(), key])?,
                Some(None) => connection.send(&[&b"MEMORY"[..], b"USAGE", key])?,
                Some(Some(samples)) => {
                    let samples = samples.to_string();
                    connection.send(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", samples.as_bytes()])?;
                }
            }
        }
        for (kind, key) in found {
            let kind = &mut kinds[kind];
            let size = match connection.reply()? {
                Value::Int(n) => u64::try_from(n).unwrap_or(0),
                // Skip the key: it was deleted, or its type has changed.
                _ => {
                    let command = if memory.is_some() { "MEMORY" } else { kind.count_by };
                    complain!(
                        "Warning:  {command} on '{}' failed (may have changed type)",
                        String::from_utf8_lossy(key)
                    );
                    0
                }
            };
            let unit = if memory.is_some() { "bytes" } else { kind.unit };
            (kind.total, kind.count, sampled) = (kind.total + size, kind.count + 1, sampled + 1);
            key_bytes += key.len();
            if kind.biggest < size {
                kind.biggest_key = quoted_key(key);
                write_text(format_args!(
                    "[{percent:05.2}%] Biggest {:<6} found so far '{}' with {size} {unit}\n",
                    kind.name, kind.biggest_key
                ));
                kind.biggest = size;
            }
            if sampled % KEYS_PER_LINE == 0 {
                write_text(format_args!("[{percent:05.2}%] Sampled {sampled} keys so far\n"));
            }
        }
        if next == b"0" || interrupts.pressed() {
            break;
        }
        cursor = next;
        if let Some(interval) = options.interval.filter(|_| pages % PAGES_PER_WAIT == 0) {
            interrupts.sleep(interval);
        }
    }
    let share = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
    write_summary_head(sampled, all, interrupts);
    write_text(format_args!(
        "Total key length in bytes is {key_bytes} (avg len {:.2})\n\n",
        share(key_bytes as u64, sampled)
    ));
    let unit = |kind: &Kind| if memory.is_some() { "bytes" } else { kind.unit };
    for kind in kinds.iter().filter(|kind| !kind.biggest_key.is_empty()) {
        write_text(format_args!(
            "Biggest {:>6} found '{}' has {} {}\n",
            kind.name,
            kind.biggest_key,
            kind.biggest,
            unit(kind)
        ));
    }
    write_text(format_args!("\n"));
    for kind in &kinds {
        write_text(format_args!(
            "{} {}s with {} {} ({:05.2}% of keys, avg size {:.2})\n",
            kind.count,
            kind.name,
            kind.total,
            unit(kind),
            100.0 * share(kind.count, sampled),
            share(kind.total, kind.count)
        ));
    }
    Ok(())
}

/// Writes the head of the summary. After Ctrl-C the head says which part of the keys was read.
fn write_summary_head(sampled: u64, all: u64, interrupts: &Interrupts) {
    let part = match interrupts.pressed() {
        true => format!("[{:05.2}%] ", 100.0 * sampled as f64 / all.max(1) as f64),
        false => String::new(),
    };
    write_text(format_args!("\n-------- summary -------\n\n{part}Sampled {sampled} keys in the keyspace!\n"));
}

fn find_hottest(
    connection: &mut Connection,
    options: &Options,
    interrupts: &Interrupts,
) -> Result<(), ConnectionError> {
    let all = key_count(connection)?;
    write_text(format_args!("\n# Scanning the entire keyspace to find hot keys as well as\n{SCANNING}"));
    let (mut hottest, mut cursor, mut sampled, mut pages): (Vec<(u64, String)>, _, u64, u64) =
        (Vec::new(), b"0".to_vec(), 0, 0);
    loop {
        let percent = 100.0 * sampled as f64 / all as f64;
        let (next, keys) = scan_page(connection, &cursor, options)?;
        pages += 1;
        keys.iter().try_for_each(|key| connection.send(&[&b"OBJECT"[..], b"FREQ", key]))?;
        for key in &keys {
            let uses = match connection.reply()? {
                Value::Int(n) => u64::try_from(n).unwrap_or(0),
                Value::Null => continue,
                other => string(other).map(|_| 0)?,
            };
            sampled += 1;
            if sampled % KEYS_PER_LINE == 0 {
                write_text(format_args!("[{percent:05.2}%] Sampled {sampled} keys so far\n"));
            }
            if hottest.len() == HOT_KEYS_MAX && hottest.last().is_some_and(|(least, _)| *least >= uses)
                || uses == 0
            {
                continue;
            }
            let key = quoted_key(key);
            write_text(format_args!("[{percent:05.2}%] Hot key '{key}' found so far with counter {uses}\n"));
            let at = hottest.partition_point(|(other, _)| *other >= uses);
            hottest.insert(at, (uses, key));
            hottest.truncate(HOT_KEYS_MAX);
        }
        if next == b"0" || interrupts.pressed() {
            break;
        }
        cursor = next;
        if let Some(interval) = options.interval.filter(|_| pages % PAGES_PER_WAIT == 0) {
            interrupts.sleep(interval);
        }
    }
    write_summary_head(sampled, all, interrupts);
    for (uses, key) in hottest {
        write_text(format_args!("hot key found with counter: {uses}\tkeyname: {key}\n"));
    }
    Ok(())
}
