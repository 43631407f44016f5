//! The DEBUG subcommands that read or make data, on a helper thread: LISTPACK, QUICKLIST, HTSTATS, HTSTATS-KEY,
//! POPULATE.

use crate::admission::SAMPLE_WAIT_US;
use crate::memory::OUT_OF_MEMORY;
use crate::{Engine, Now};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, StrRef};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Maximum number of keys of one POPULATE.
const POPULATE_KEYS_MAX: usize = 100_000_000;
/// Keys between two checks whether to continue.
const POPULATE_SLICE: usize = 256;

/// The subcommands of this module, each with its minimum and maximum number of arguments.
const SUBCOMMANDS: [(&str, usize, usize); 5] =
    [("HTSTATS", 3, 3), ("HTSTATS-KEY", 3, 3), ("LISTPACK", 3, 3), ("POPULATE", 3, 5), ("QUICKLIST", 3, 4)];

/// True when this module runs the subcommand of DEBUG.
pub(super) fn is_one(args: Args<'_>) -> bool {
    SUBCOMMANDS.iter().any(|(name, least, most)| args.is(1, name) && (*least..=*most).contains(&args.len()))
}

/// Runs a subcommand of DEBUG.
pub(super) fn run(
    engine: &Engine,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    if args.is(1, "HTSTATS") {
        tables(engine, args, reply)
    } else if args.is(1, "POPULATE") {
        populate(engine, args, db, now, reply)
    } else {
        value(engine, args, db, now, reply)
    }
}

/// HTSTATS: the shape of a database's tables.
fn tables(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let keyspace = &*engine.keyspace;
    let db = parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?;
    let db = usize::try_from(db)
        .ok()
        .filter(|db| *db < keyspace.databases())
        .ok_or("ERR Out of range database")?;
    let (shape, expiring) = (keyspace.shape(db), keyspace.expiring_len(db));
    let mut text = String::from("[Dictionary HT]\n");
    for (name, n) in [
        ("number of elements", shape.items),
        ("segments", shape.segments),
        ("entries of the directories", shape.directory),
        ("elements in the fullest segment", shape.segment_items_max),
        ("most elements moved by one command", shape.moved_max),
        ("bytes of keys and values in the segments", shape.entries_bytes),
        ("bytes in all", shape.heap_bytes),
    ] {
        writeln!(text, " {name}: {n}").expect("a string takes everything");
    }
    write!(text, "[Expires HT]\n number of elements: {expiring} (in the records)\n")
        .expect("a string takes everything");
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// HTSTATS-KEY, LISTPACK, QUICKLIST: facts about a value with this encoding. The last two write them to the log.
fn value(
    engine: &Engine,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let key = engine.keyspace.key(args.at(2));
    let mut locked = engine.keyspace.lock(&[key.hash], now.unix_ms());
    let mut db = locked.db(db);
    let record = db.peek(&key).ok_or(errors::NO_SUCH_KEY)?;
    let value = record.value();
    let (kind, encoding) = (value.type_name(), value.encoding());
    let (elements, bytes) = (value.elements(), value.heap_bytes());
    drop(locked);
    let text = format!("a {kind}, {encoding}: {elements} elements, {bytes} bytes of heap");
    let (wanted, done): (&[&str], _) = if args.is(1, "LISTPACK") {
        (&["listpack", "listpackex"], "Listpack structure printed on stdout")
    } else if args.is(1, "QUICKLIST") {
        (&["quicklist"], "Quicklist structure printed on stdout")
    } else {
        (&["hashtable", "skiplist"], "")
    };
    if !wanted.contains(&encoding) {
        return Err(match wanted {
            ["listpack", _] => "ERR Not a listpack encoded object.",
            ["quicklist"] => "ERR Not a quicklist encoded object.",
            _ => "ERR The value stored at the specified key is not represented using an hash table",
        }
        .into());
    }
    if done.is_empty() {
        reply.verbatim("txt", format!("{text}\n").as_bytes());
    } else {
        let name = &args.at(2)[..args.at(2).len().min(super::debug::LOG_BYTES_MAX)];
        engine.host.log(&format!("DEBUG {}: '{}' is {text}", args.at(1).escape_ascii(), name.escape_ascii()));
        reply.simple(done);
    }
    Ok(())
}

/// POPULATE: creates the missing keys among `prefix:0`, `prefix:1` and so on.
fn populate(
    engine: &Engine,
    args: Args<'_>,
    db: usize,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let number =
        |i: usize| match args.get(i).map(|text| parse_int(text).and_then(|n| usize::try_from(n).ok())) {
            None => Ok(0),
            Some(n) => n.ok_or("ERR value is out of range, must be positive"),
        };
    let (count, size) = (number(2)?, number(4)?);
    let prefix = args.get(3).unwrap_or(b"key");
    let size_max = engine.keyspace.settings().proto_max_bulk_len.load(Relaxed) as usize;
    if count > POPULATE_KEYS_MAX || size > size_max {
        return Err(format!("ERR at most {POPULATE_KEYS_MAX} keys with values of {size_max} bytes").into());
    }
    for i in 0..count {
        if i % POPULATE_SLICE == 0 {
            engine.host.yield_now();
            let is_stopping = || engine.scripts.stopping.load(Relaxed);
            let is_over = || {
                engine.sample_memory();
                engine.memory.over_bytes(engine.keyspace.data_bytes() as u64) > 0
            };
            while engine.memory.is_limited() && is_over() && !is_stopping() {
                if !engine.memory.is_limit_passing() {
                    return Err(OUT_OF_MEMORY.into());
                }
                engine.host.nap_us(SAMPLE_WAIT_US);
            }
            if is_stopping() {
                return Err("ERR the server is shutting down".into());
            }
        }
        let name = [prefix, format!(":{i}").as_bytes()].concat();
        let mut text = format!("value:{i}").into_bytes();
        if size > 0 {
            text.resize(size, 0);
        }
        let key: Key<'_> = engine.keyspace.key(&name);
        let mut locked = engine.keyspace.lock(&[key.hash], now.unix_ms());
        let mut db = locked.db(db);
        if db.peek(&key).is_none() {
            db.set_str(&key, StrRef::of(&text), None);
        }
    }
    reply.ok();
    Ok(())
}
