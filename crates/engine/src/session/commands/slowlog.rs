//! SLOWLOG with its subcommands GET, LEN, RESET and HELP.

use super::{DONE, NextStep, Outcome, Session};
use crate::Engine;
use crate::slowlog::SlowLogEntry;
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::introspect;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Number of entries of SLOWLOG GET when the client gives no count.
const GET_DEFAULT: usize = 10;
/// With more entries than this, the reply is written on a helper thread.
const GET_AT_ONCE_MAX: usize = 128;

impl Session {
    pub(super) fn slowlog_get(&mut self, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        let wanted = wanted(args)?;
        if wanted.count.min(engine.slow_log.len()) > GET_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        write(&engine, &wanted, &mut self.reply());
        DONE
    }
    pub(super) fn slowlog_len(&mut self) -> Outcome {
        let len = self.engine.slow_log.len();
        self.reply().int(len as i64);
        DONE
    }
    pub(super) fn slowlog_reset(&mut self) -> Outcome {
        reset(&self.engine.clone(), &mut self.reply());
        DONE
    }
    pub(super) fn slowlog_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "SLOWLOG", HELP);
        DONE
    }
}

/// Runs SLOWLOG RESET on any thread.
pub(super) fn reset(engine: &Engine, reply: &mut Reply<'_>) {
    let entries = engine.slow_log.reset();
    engine.host.reclaim(Box::new(entries));
    reply.ok();
}

/// Runs SLOWLOG GET on a helper thread.
pub(super) fn get(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    write(engine, &wanted(args)?, reply);
    Ok(())
}

/// The options of SLOWLOG GET.
struct GetOptions {
    count: usize,
    /// True when each entry has its phases as a seventh element.
    phases: bool,
}

fn wanted(args: Args<'_>) -> Result<GetOptions, ErrorText> {
    let phases = args.len() == 4 && args.is(3, "PHASES");
    if args.len() > 3 && !phases {
        let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
        return Err([head, args.at(1), b"'. Try SLOWLOG HELP."].concat());
    }
    let count = match args.get(2).map(parse_int) {
        None => GET_DEFAULT,
        Some(Some(-1)) => usize::MAX,
        Some(Some(n @ 0..)) => n as usize,
        Some(_) => return Err("ERR count should be greater than or equal to -1".into()),
    };
    Ok(GetOptions { count, phases })
}

fn write(engine: &Engine, wanted: &GetOptions, reply: &mut Reply<'_>) {
    let entries = engine.slow_log.newest(wanted.count);
    reply.array(entries.len());
    for entry in entries {
        reply.array(if wanted.phases { 7 } else { 6 });
        reply.int(entry.id as i64);
        reply.int(entry.unix_s);
        reply.int(entry.took_us as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(entry.name.as_bytes());
        if wanted.phases {
            write_phases(&entry, reply);
        }
    }
}

/// The phases of the command in microseconds: a map; in RESP2 a list of names and values.
fn write_phases(entry: &SlowLogEntry, reply: &mut Reply<'_>) {
    let waits = &entry.waits;
    reply.map(6);
    for (name, us) in [
        ("queued", waits.queued_us),
        ("parked", waits.parked_us),
        ("executing", entry.took_us),
        ("flushing", entry.flushing_us.load(Relaxed)),
    ] {
        reply.bulk(name.as_bytes());
        reply.int(us as i64);
    }
    for (name, text) in [("parked-on", waits.reason_name()), ("held-by", waits.holder.as_deref())] {
        reply.bulk(name.as_bytes());
        match text {
            Some(text) => reply.bulk(text.as_bytes()),
            None => reply.null(),
        }
    }
}

const HELP: &[&str] = &[
    "GET [<count> [PHASES]]",
    "    Return the newest slow commands (10 unless a count is given; -1: all), each as",
    "    id, Unix time, microseconds, arguments, client's address, client's name. With PHASES",
    "    also how long the command was queued, parked (on what, held by which command), executing, flushing.",
    "LEN",
    "    Return how many slow commands are kept.",
    "RESET",
    "    Remove all entries.",
];
