//! INFO: its sections and their order.

use super::info_keysizes::keysizes;
use super::info_sections::{self as sections, Facts};
use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::session::run::NextStep;
use crate::{Engine, Now};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// A section: its name, when it is shown, and the function that writes it.
type Section = (&'static str, SectionVisibility, fn(&Facts<'_>, &mut String));

/// When a section is shown. A section that is named is always shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionVisibility {
    /// The section is also part of a plain INFO.
    ByDefault,
    /// The section is part of "all" and "everything".
    InAll,
    /// The section is shown only by its name, because it reads every key.
    ByName,
}
use SectionVisibility::{ByDefault, ByName, InAll};

/// All sections in display order.
const SECTIONS: &[Section] = &[
    ("server", ByDefault, sections::server),
    ("clients", ByDefault, sections::clients),
    ("memory", ByDefault, sections::memory),
    ("persistence", ByDefault, sections::persistence),
    ("stats", ByDefault, sections::stats),
    ("replication", ByDefault, sections::replication),
    ("cpu", ByDefault, sections::cpu),
    ("modules", ByDefault, sections::modules),
    ("commandstats", InAll, sections::commandstats),
    ("errorstats", ByDefault, sections::errorstats),
    ("latencystats", InAll, sections::latencystats),
    ("cluster", ByDefault, sections::cluster),
    ("keyspace", ByDefault, sections::keyspace),
    ("keysizes", ByName, keysizes),
    ("search", ByDefault, sections::search),
    ("importstats", InAll, sections::importstats),
];

/// With more shards INFO runs on a helper thread, because counting keys locks every shard.
const COUNTED_AT_ONCE_SHARDS_MAX: usize = 256;

impl Session {
    pub(super) fn info(&mut self, args: Args<'_>, now: Now) -> Outcome {
        self.update_client_info();
        // Run on a helper thread when a named section reads every key, or when several sections sum up the histograms
        // of every command.
        let of = |kind: SectionVisibility| {
            SECTIONS.iter().filter(move |(name, shown, _)| *shown == kind && wanted(args, name, kind))
        };
        let is_long = of(ByName).next().is_some() || of(InAll).nth(1).is_some();
        if is_long
            || self.engine.keyspace.shards() > COUNTED_AT_ONCE_SHARDS_MAX
            || args.len() > ARGS_AT_ONCE_MAX
        {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        let keys = match named("keyspace", args) {
            // A helper thread waits for a shard under a long lock.
            true => match engine.keyspace.try_in_use() {
                None => return Ok(NextStep::Detach),
                known => known,
            },
            false => None,
        };
        write_sections(&Facts { engine: &engine, now, keys }, args, &|| (), &mut self.reply());
        DONE
    }
}

/// True when a section that INFO shows counts or reads keys.
pub(super) fn reads_keys(args: Args<'_>) -> bool {
    named("keyspace", args) || named("keysizes", args)
}

/// INFO, on a helper thread. `pause` is called after each section.
pub(super) fn info(
    engine: &Engine,
    args: Args<'_>,
    now: Now,
    pause: &dyn Fn(),
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let keys = named("keyspace", args).then(|| engine.keyspace.in_use());
    write_sections(&Facts { engine, now, keys }, args, pause, reply);
    Ok(())
}

fn write_sections(facts: &Facts<'_>, args: Args<'_>, pause: &dyn Fn(), reply: &mut Reply<'_>) {
    let mut text = String::new();
    for (name, shown, write) in SECTIONS {
        if wanted(args, name, *shown) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write(facts, &mut text);
            pause();
        }
    }
    reply.verbatim("txt", text.as_bytes());
}

/// True when INFO shows the section with this name.
fn named(section: &str, args: Args<'_>) -> bool {
    SECTIONS.iter().any(|(name, shown, _)| *name == section && wanted(args, name, *shown))
}

fn wanted(args: Args<'_>, name: &str, shown: SectionVisibility) -> bool {
    let by_default = shown == ByDefault;
    let named = |asked: &[u8]| {
        let is = |word: &str| asked.eq_ignore_ascii_case(word.as_bytes());
        is(name) || ((is("everything") || is("all")) && shown != ByName) || (is("default") && by_default)
    };
    if args.len() == 1 { by_default } else { args.skip(1).iter().any(named) }
}
