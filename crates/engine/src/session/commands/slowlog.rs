//! SLOWLOG GET LEN RESET HELP.

use super::{DONE, Next, Outcome, Session};
use crate::Engine;
use strand_commands::introspect;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Entries of GET unless it says how many.
const GET_DEFAULT: usize = 10;
/// More entries than this are written on a helper thread.
const GET_AT_ONCE_MAX: usize = 128;

impl Session {
    pub(super) fn slowlog_get(&mut self, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        let count = count(args)?;
        if count.min(engine.slow_log.len()) > GET_AT_ONCE_MAX {
            return Ok(Next::Detach);
        }
        write(&engine, count, &mut self.reply());
        DONE
    }
    pub(super) fn slowlog_len(&mut self) -> Outcome {
        let len = self.engine.slow_log.len();
        self.reply().int(len as i64);
        DONE
    }
    pub(super) fn slowlog_reset(&mut self) -> Outcome {
        self.engine.slow_log.reset();
        self.ok()
    }
    pub(super) fn slowlog_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "SLOWLOG", HELP);
        DONE
    }
}

/// SLOWLOG GET on a helper thread.
pub(super) fn get(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Vec<u8>> {
    write(engine, count(args)?, reply);
    Ok(())
}

fn count(args: Args<'_>) -> Result<usize, Vec<u8>> {
    if args.len() > 3 {
        let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
        return Err([head, args.at(1), b"'. Try SLOWLOG HELP."].concat());
    }
    match args.get(2).map(parse_int) {
        None => Ok(GET_DEFAULT),
        Some(Some(-1)) => Ok(usize::MAX),
        Some(Some(n @ 0..)) => Ok(n as usize),
        Some(_) => Err("ERR count should be greater than or equal to -1".into()),
    }
}

fn write(engine: &Engine, count: usize, reply: &mut Reply<'_>) {
    let entries = engine.slow_log.newest(count);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.int(entry.id as i64);
        reply.int(entry.unix_s);
        reply.int(entry.took_us as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.addr.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
}

const HELP: &[&str] = &[
    "GET [<count>]",
    "    Return the newest slow commands (10 unless a count is given; -1: all), each as",
    "    id, Unix time, microseconds, arguments, client's address, client's name.",
    "LEN",
    "    Return how many slow commands are kept.",
    "RESET",
    "    Forget them.",
];
