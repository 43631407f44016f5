//! What the keys of a call are used for, according to the command's row. Also the reply that all HELP subcommands
//! have.

use crate::dispatch::{self, InvalidKeys};
use crate::migrate;
use crate::spec::{Access, CommandSpec, KeyFlags as K};
use smallvec::SmallVec;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// The reply of a container's HELP: a heading, these lines, and the line about HELP itself.
pub fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Print this help.");
}

/// Positions of the keys, and what the command does to each key: the content of COMMAND GETKEYSANDFLAGS.
///
/// # Errors
/// Fails if a key spec does not fit the arguments.
pub fn keys_with_flags(spec: &'static CommandSpec, args: Args<'_>) -> Result<Vec<(usize, K)>, InvalidKeys> {
    if spec.name == "migrate" {
        let flags = K::all(&[K::RW, K::ACCESS, K::DELETE]);
        let positions = migrate::key_positions(args);
        let found = (!positions.is_empty()).then(|| positions.map(|at| (at, flags)).collect());
        return found.ok_or(InvalidKeys);
    }
    let mut out = Vec::new();
    for keys in spec.keys {
        let positions = match dispatch::positions_of(keys, args) {
            // GEORADIUS also works without STORE, to which this spec belongs.
            Err(InvalidKeys) if spec.group == "geo" => continue,
            positions => positions?,
        };
        let flags = if keys.flags.has(K::VARIABLE) { varying_flags(spec, args) } else { keys.flags };
        out.extend(positions.into_iter().map(|at| (at, flags)));
    }
    Ok(out)
}

/// Positions of the keys in `args`, and what the command does to each key, in the order of the key specs. If a spec
/// does not fit the arguments, only the keys found so far count, and the handler replies with an error.
pub fn key_accesses(spec: &CommandSpec, args: Args<'_>) -> SmallVec<[(usize, Access); 4]> {
    if spec.name == "migrate" {
        let access = K::all(&[K::RW, K::ACCESS, K::DELETE]).access();
        return migrate::key_positions(args).map(|at| (at, access)).collect();
    }
    let mut out = SmallVec::new();
    for keys in spec.keys {
        let flags = if keys.flags.has(K::VARIABLE) { varying_flags(spec, args) } else { keys.flags };
        out.extend(dispatch::followed(keys, args).into_iter().map(|at| (at, flags.access())));
    }
    out
}

/// What a call does to its keys, for commands whose arguments decide this.
fn varying_flags(spec: &CommandSpec, args: Args<'_>) -> K {
    const READS: [&str; 5] = ["GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE"];
    match spec.name {
        // SET only writes, unless GET or a condition makes it read the old value.
        "set" if !(3..args.len()).any(|i| READS.iter().any(|word| args.is(i, word))) => {
            K::all(&[K::OW, K::UPDATE])
        }
        "bitfield" if only_gets(args) => K::all(&[K::RO, K::ACCESS]),
        _ => K::all(&[K::RW, K::ACCESS, K::UPDATE]),
    }
}

/// True when a BITFIELD has no operation that writes.
fn only_gets(args: Args<'_>) -> bool {
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        at += if args.is(at, "GET") && more >= 2 {
            3
        } else if args.is(at, "OVERFLOW") && more >= 1 {
            2
        } else {
            return false;
        };
    }
    true
}
