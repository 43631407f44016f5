//! The replies of COMMAND over the table, in the shapes of redis-server 7.0, and the shape of every HELP.
//!
//! The session calls [`command`]; nothing here needs more than the arguments and the table.

mod docs;
mod info;

use crate::dispatch::{self, InvalidKeys, Resolved};
use crate::errors;
use crate::glob;
use crate::migrate;
use crate::spec::{Access, CommandSpec, Flags, KeyFlags as K, KeySpec, SessionCommand};
use crate::table::COMMANDS;
use docs::docs;
use info::info;
use smallvec::SmallVec;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Runs COMMAND or one of its subcommands.
///
/// # Panics
/// When `which` is none of the `Command` variants.
pub fn command(which: SessionCommand, args: Args<'_>, reply: &mut Reply<'_>) {
    match which {
        SessionCommand::Command => infos(reply),
        SessionCommand::CommandCount => reply.int(COMMANDS.len() as i64),
        SessionCommand::CommandInfo if args.len() == 2 => infos(reply),
        SessionCommand::CommandInfo => {
            reply.array(args.len() - 2);
            for name in args.skip(2).iter() {
                match dispatch::lookup_full_name(name) {
                    Some(found) => info(reply, &found),
                    None => reply.null(),
                }
            }
        }
        SessionCommand::CommandDocs => docs_of(args, reply),
        SessionCommand::CommandList => list(args, reply),
        SessionCommand::CommandGetKeys => get_keys(args, reply, false),
        SessionCommand::CommandGetKeysAndFlags => get_keys(args, reply, true),
        SessionCommand::CommandHelp => help(reply, "COMMAND", COMMAND_HELP),
        other => panic!("{other:?} is not of COMMAND"),
    }
}

/// The reply of a container's HELP: a heading, the lines given, and the line about HELP itself.
pub fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Print this help.");
}

const COMMAND_HELP: &[&str] = &[
    "(no subcommand)",
    "    Describe every command.",
    "COUNT",
    "    Count the commands.",
    "DOCS [<command-name> ...]",
    "    Document the named commands, or all of them.",
    "GETKEYS <full-command>",
    "    Pick the keys out of a command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Pick the keys out of a command and tell what it does to each.",
    "INFO [<command-name> ...]",
    "    Describe the named commands, or all of them.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    List the names of the commands, all or those that match.",
];

fn all() -> impl Iterator<Item = Resolved> {
    COMMANDS.iter().map(|spec| Resolved { spec, container: None })
}

fn subcommands(container: &'static CommandSpec) -> impl Iterator<Item = Resolved> {
    container.subcommands.iter().map(move |spec| Resolved { spec, container: Some(container) })
}

fn infos(reply: &mut Reply<'_>) {
    reply.array(COMMANDS.len());
    all().for_each(|found| info(reply, &found));
}

/// A set of simple strings.
fn words(reply: &mut Reply<'_>, prefix: &str, words: &[&str]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(&format!("{prefix}{word}")));
}

/// A name and its value.
fn text(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

/// COMMAND DOCS [name ...]: unknown names are left out.
fn docs_of(args: Args<'_>, reply: &mut Reply<'_>) {
    let found: Vec<Resolved> = match args.len() {
        2 => all().collect(),
        _ => args.skip(2).iter().filter_map(dispatch::lookup_full_name).collect(),
    };
    reply.map(found.len());
    for one in found {
        reply.bulk(one.full_name().as_bytes());
        docs(reply, &one);
    }
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]: subcommands too, by full name.
fn list(args: Args<'_>, reply: &mut Reply<'_>) {
    let (pattern, mut steps_left);
    let keep: &mut dyn FnMut(&Resolved, &str) -> Result<bool, &'static str> = match args.len() {
        2 => &mut |_, _| Ok(true),
        5 if args.is(2, "FILTERBY") && args.is(3, "MODULE") => &mut |_, _| Ok(false),
        5 if args.is(2, "FILTERBY") && args.is(3, "ACLCAT") => {
            &mut |found, _| Ok(found.spec.categories().names().any(|category| args.is(4, category)))
        }
        5 if args.is(2, "FILTERBY") && args.is(3, "PATTERN") => {
            (pattern, steps_left) = (glob::Pattern::new(args.at(4), true), glob::NAME_STEPS_MAX);
            &mut |_, name| pattern.matches_name(name, &mut steps_left)
        }
        _ => return reply.error(errors::SYNTAX),
    };
    let mut names: Vec<String> = Vec::new();
    for found in all().flat_map(|found| std::iter::once(found).chain(subcommands(found.spec))) {
        let name = found.full_name();
        match keep(&found, &name) {
            Ok(true) => names.push(name),
            Ok(false) => {}
            Err(why) => return reply.error(why),
        }
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
}

/// COMMAND GETKEYS and GETKEYSANDFLAGS: a whole command follows.
fn get_keys(args: Args<'_>, reply: &mut Reply<'_>, with_flags: bool) {
    let args = args.skip(2);
    let found = match dispatch::lookup(args.at(0)) {
        Some(container) if !container.subcommands.is_empty() && args.len() > 1 => {
            dispatch::subcommand(container, args.at(1))
                .map(|spec| Resolved { spec, container: Some(container) })
        }
        other => other.map(|spec| Resolved { spec, container: None }),
    };
    let Some(found) = found else { return reply.error(errors::INVALID_COMMAND) };
    if found.spec.keys.iter().all(KeySpec::is_no_key) {
        return reply.error(errors::NO_KEY_ARGUMENTS);
    }
    if !found.arity_fits(args.len()) {
        return reply.error(errors::INVALID_COMMAND_ARITY);
    }
    match keys_with_flags(found.spec, args) {
        Ok(keys) => {
            reply.array(keys.len());
            for (at, flags) in keys {
                if with_flags {
                    reply.array(2);
                }
                reply.bulk(args.at(at));
                if with_flags {
                    words(reply, "", &flags.names().collect::<SmallVec<[&str; 4]>>());
                }
            }
        }
        Err(InvalidKeys) if found.spec.flags.has(Flags::NO_MANDATORY_KEYS) => reply.array(0),
        Err(InvalidKeys) => reply.error(errors::INVALID_COMMAND_ARGUMENTS),
    }
}

/// Positions of the keys and what the command does to each.
fn keys_with_flags(spec: &'static CommandSpec, args: Args<'_>) -> Result<Vec<(usize, K)>, InvalidKeys> {
    if spec.name == "migrate" {
        let flags = K::all(&[K::RW, K::ACCESS, K::DELETE]);
        return Ok(migrate::key_positions(args).map(|at| (at, flags)).collect());
    }
    let mut out = Vec::new();
    for keys in spec.keys {
        let positions = match dispatch::positions_of(keys, args) {
            // GEORADIUS need not store.
            Err(InvalidKeys) if spec.group == "geo" => continue,
            positions => positions?,
        };
        let flags = if keys.flags.has(K::VARIABLE) { varying_flags(spec, args) } else { keys.flags };
        out.extend(positions.into_iter().map(|at| (at, flags)));
    }
    Ok(out)
}

/// Positions of the keys in `args` and what the command does to each, in the order of the key specs. Where a spec cannot be
/// followed, the command says so itself.
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

/// What a call does to its keys where that depends on its arguments.
fn varying_flags(spec: &CommandSpec, args: Args<'_>) -> K {
    match spec.name {
        // It writes, and reads the old value only with GET or IFEQ.
        "set" if !(3..args.len()).any(|i| args.is(i, "GET") || args.is(i, "IFEQ")) => {
            K::all(&[K::OW, K::UPDATE])
        }
        "bitfield" if only_gets(args) => K::all(&[K::RO, K::ACCESS]),
        _ => K::all(&[K::RW, K::ACCESS, K::UPDATE]),
    }
}

/// True when no operation of a BITFIELD writes.
fn only_gets(args: Args<'_>) -> bool {
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        at += match () {
            () if args.is(at, "GET") && more >= 2 => 3,
            () if args.is(at, "OVERFLOW") && more >= 1 => 2,
            () => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_chain::Chain;
    use strand_wire::args::Argv;
    use strand_wire::reply::Protocol;

    fn run(protocol: Protocol, line: &str) -> String {
        let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
        let found = dispatch::resolve(argv.args()).expect("a command");
        let crate::spec::Exec::Session(which) = found.spec.exec else { panic!("{line}") };
        let mut out = Chain::new();
        command(which, argv.args(), &mut Reply::new(&mut out, protocol));
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        String::from_utf8(bytes).expect("text").replace("\r\n", "|")
    }
    fn run2(line: &str) -> String {
        run(Protocol::Resp2, line)
    }

    #[test]
    fn info_has_the_shape_of_redis() {
        assert_eq!(
            run2("COMMAND INFO get nope"),
            "*2|*10|$3|get|:2|*2|+readonly|+fast|:1|:1|:1|*3|+@read|+@string|+@fast|*0|*1|*6|$5|flags|*2|+RO|+access|\
             $12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|$9|find_keys|*4|$4|type|$5|range|$4|spec|*6|\
             $7|lastkey|:0|$7|keystep|:1|$5|limit|:0|*0|$-1|"
        );
        assert_eq!(
            run(Protocol::Resp3, "COMMAND INFO GET"),
            "*1|*10|$3|get|:2|~2|+readonly|+fast|:1|:1|:1|~3|+@read|+@string|+@fast|~0|~1|%3|$5|flags|~2|+RO|+access|\
             $12|begin_search|%2|$4|type|$5|index|$4|spec|%1|$5|index|:1|$9|find_keys|%2|$4|type|$5|range|$4|spec|%3|\
             $7|lastkey|:0|$7|keystep|:1|$5|limit|:0|~0|"
        );
        assert!(run2("COMMAND INFO client|setname").starts_with("*1|*10|$14|client|setname|:3|"));
        assert_eq!(run2("COMMAND"), run2("COMMAND INFO"));
        assert_eq!(run2("COMMAND COUNT"), format!(":{}|", COMMANDS.len()));
    }

    #[test]
    fn docs_name_what_there_is() {
        let docs = run2("COMMAND DOCS getset nope");
        assert!(docs.starts_with("*2|$6|getset|*16|$7|summary|"), "{docs}");
        assert!(
            docs.contains("$9|doc_flags|*1|+deprecated|$16|deprecated_since|$5|6.2.0|$11|replaced_by|"),
            "{docs}"
        );
        let tail = "$9|arguments|*2|*6|$4|name|$3|key|$4|type|$3|key|$14|key_spec_index|:0|*4|$4|name|$5|value|$4|type|$6|string|";
        assert!(docs.ends_with(tail), "{docs}");
        assert!(run(Protocol::Resp3, "COMMAND DOCS").starts_with(&format!("%{}|", COMMANDS.len())));
    }

    #[test]
    fn lists_filter() {
        assert_eq!(run2("COMMAND LIST FILTERBY PATTERN cLient|Getn*"), "*1|$14|client|getname|");
        assert_eq!(run2("COMMAND LIST FILTERBY MODULE x"), "*0|");
        assert_eq!(run2("COMMAND LIST FILTERBY ACLCAT nope"), "*0|");
        assert!(run2("COMMAND LIST FILTERBY ACLCAT STRING").contains("|$3|get|"));
        for bad in [
            "COMMAND LIST x",
            "COMMAND LIST FILTERBY PATTERN",
            "COMMAND LIST FILTERBY x y",
            "COMMAND LIST x PATTERN y",
        ] {
            assert_eq!(run2(bad), "-ERR syntax error|", "{bad}");
        }
    }

    #[test]
    fn keys_and_flags() {
        for (line, want) in [
            ("COMMAND GETKEYS get a", "*1|$1|a|"),
            ("COMMAND GETKEYS mset a b c d", "*2|$1|a|$1|c|"),
            ("COMMAND GETKEYS object encoding k", "*1|$1|k|"),
            ("COMMAND GETKEYSANDFLAGS copy a b", "*2|*2|$1|a|*2|+RO|+access|*2|$1|b|*2|+OW|+update|"),
            ("COMMAND GETKEYSANDFLAGS set a b", "*1|*2|$1|a|*2|+OW|+update|"),
            ("COMMAND GETKEYSANDFLAGS set a b get", "*1|*2|$1|a|*3|+RW|+access|+update|"),
            ("COMMAND GETKEYS nope a", "-ERR Invalid command specified|"),
            ("COMMAND GETKEYS object nope a", "-ERR Invalid command specified|"),
            ("COMMAND GETKEYS get a b", "-ERR Invalid number of arguments specified for command|"),
            ("COMMAND GETKEYS config get", "-ERR The command has no key arguments|"),
            ("COMMAND GETKEYS ping x", "-ERR The command has no key arguments|"),
        ] {
            assert_eq!(run2(line), want, "{line}");
        }
    }
}
