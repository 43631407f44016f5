//! INFO: which sections, in which order.

use super::info_sections::{self as sections, Facts};
use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::session::run::Next;
use crate::{Engine, Now};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// A section: its name, whether a plain INFO shows it, and what writes it.
type Section = (&'static str, bool, fn(&Facts<'_>, &mut String));

/// All sections, in the order in which they are shown.
const SECTIONS: &[Section] = &[
    ("server", true, sections::server),
    ("clients", true, sections::clients),
    ("memory", true, sections::memory),
    ("persistence", true, sections::persistence),
    ("stats", true, sections::stats),
    ("replication", true, sections::replication),
    ("cpu", true, sections::cpu),
    ("modules", true, sections::modules),
    ("commandstats", false, sections::commandstats),
    ("errorstats", true, sections::errorstats),
    ("latencystats", false, sections::latencystats),
    ("cluster", true, sections::cluster),
    ("keyspace", true, sections::keyspace),
    ("search", true, sections::search),
];

/// With more shards than this INFO runs on a helper thread: counting keys locks every shard.
const COUNTED_AT_ONCE_SHARDS_MAX: usize = 64;

impl Session {
    pub(super) fn info(&mut self, args: Args<'_>, now: Now) -> Outcome {
        self.publish();
        if self.engine.keyspace.shards() > COUNTED_AT_ONCE_SHARDS_MAX || args.len() > ARGS_AT_ONCE_MAX {
            return Ok(Next::Detach);
        }
        let engine = self.engine.clone();
        info(&engine, args, now, &mut self.reply());
        DONE
    }
}

/// INFO, here or on a helper thread.
pub(super) fn info(engine: &Engine, args: Args<'_>, now: Now, reply: &mut Reply<'_>) {
    let facts = Facts { engine, now };
    let mut text = String::new();
    for (name, by_default, write) in SECTIONS {
        if wanted(args, name, *by_default) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write(&facts, &mut text);
        }
    }
    reply.verbatim("txt", text.as_bytes());
}

fn wanted(args: Args<'_>, name: &str, by_default: bool) -> bool {
    let named = |asked: &[u8]| {
        let is = |word: &str| asked.eq_ignore_ascii_case(word.as_bytes());
        // As in redis-server, "all" leaves out what modules say and "everything" does not.
        is(name) || is("everything") || (is("all") && name != "modules") || (is("default") && by_default)
    };
    if args.len() == 1 { by_default } else { args.skip(1).iter().any(named) }
}
