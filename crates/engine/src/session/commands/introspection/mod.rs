//! COMMAND and its subcommands: the facts of the command table, in the reply formats of redis-server 7.0.

mod docs;
mod info;

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::TABLE;
use crate::session::run::NextStep;
use docs::docs;
use info::info;
use smallvec::SmallVec;
use strand_commands::dispatch::{self, InvalidKeys, Resolved};
use strand_commands::spec::{CommandSpec, Flags, KeySpec};
use strand_commands::{errors, glob, introspect};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Maximum number of names in one COMMAND DOCS or COMMAND INFO: several times the number of commands. A name has a few
/// bytes in the request, but its description has kilobytes in the reply.
const NAMES_MAX: usize = 1024;

/// Writes the reply of a subcommand. An error is the whole text of the reply.
pub(super) type Describe = fn(Args<'_>, &mut Reply<'_>) -> Result<(), ErrorText>;

impl Session {
    /// Runs a subcommand with a short reply.
    pub(super) fn describe(&mut self, describe: Describe, args: Args<'_>) -> Outcome {
        if args.len() > ARGS_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        describe(args, &mut self.reply())?;
        DONE
    }
    /// Runs a subcommand that describes the named commands. Without names it describes the whole table. That reply has
    /// hundreds of kilobytes, so a helper thread writes it.
    pub(super) fn describe_named(&mut self, describe: Describe, args: Args<'_>) -> Outcome {
        match args.len() - 2 {
            0 => Ok(NextStep::Detach),
            names if names > NAMES_MAX => {
                Err(format!("ERR too many command names: expected at most {NAMES_MAX}").into())
            }
            _ => self.describe(describe, args),
        }
    }
}

/// Runs COMMAND without a subcommand: describes every command.
pub(super) fn infos(reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.array(TABLE.rows().len());
    all().for_each(|found| info(reply, &found));
    Ok(())
}

/// Runs COMMAND COUNT.
pub(super) fn count(_args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.int(TABLE.rows().len() as i64);
    Ok(())
}

/// Runs COMMAND HELP.
pub(super) fn help(_args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    introspect::help(reply, "COMMAND", HELP);
    Ok(())
}

/// COMMAND INFO [name ...]: null for an unknown name.
pub(super) fn info_of(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    if args.len() == 2 {
        return infos(reply);
    }
    reply.array(args.len() - 2);
    for name in args.skip(2).iter() {
        match TABLE.lookup_full_name(name) {
            Some(found) => info(reply, &found),
            None => reply.null(),
        }
    }
    Ok(())
}

fn all() -> impl Iterator<Item = Resolved> {
    TABLE.rows().iter().map(|spec| Resolved { spec, container: None })
}

fn subcommands(container: &'static CommandSpec) -> impl Iterator<Item = Resolved> {
    container.subcommands.iter().map(move |spec| Resolved { spec, container: Some(container) })
}

/// Writes a set of simple strings, each after `prefix`.
fn words(reply: &mut Reply<'_>, prefix: &str, words: &[&str]) {
    reply.set(words.len());
    words.iter().for_each(|word| reply.simple(&format!("{prefix}{word}")));
}

/// Writes the name and the value of one fact.
fn text(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

/// COMMAND DOCS [name ...]: unknown names are left out.
pub(super) fn docs_of(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let found: Vec<Resolved> = match args.len() {
        2 => all().collect(),
        _ => args.skip(2).iter().filter_map(|name| TABLE.lookup_full_name(name)).collect(),
    };
    reply.map(found.len());
    for one in found {
        reply.bulk(one.full_name().as_bytes());
        docs(reply, &one);
    }
    Ok(())
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]: subcommands too, by full name.
pub(super) fn list(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
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
        _ => return Err(errors::SYNTAX.into()),
    };
    let mut names: Vec<String> = Vec::new();
    for found in all().flat_map(|found| std::iter::once(found).chain(subcommands(found.spec))) {
        let name = found.full_name();
        match keep(&found, &name) {
            Ok(true) => names.push(name),
            Ok(false) => {}
            Err(why) => return Err(why.into()),
        }
    }
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// COMMAND GETKEYS. A whole command follows as its arguments.
pub(super) fn get_keys(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    keys_of(args, reply, false)
}

/// COMMAND GETKEYSANDFLAGS. A whole command follows as its arguments.
pub(super) fn get_keys_and_flags(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    keys_of(args, reply, true)
}

fn keys_of(args: Args<'_>, reply: &mut Reply<'_>, with_flags: bool) -> Result<(), ErrorText> {
    let args = args.skip(2);
    let found = match TABLE.lookup(args.at(0)) {
        Some(container) if !container.subcommands.is_empty() && args.len() > 1 => {
            dispatch::subcommand(container, args.at(1))
                .map(|spec| Resolved { spec, container: Some(container) })
        }
        other => other.map(|spec| Resolved { spec, container: None }),
    };
    let Some(found) = found else { return Err(errors::INVALID_COMMAND.into()) };
    if found.spec.keys.iter().all(KeySpec::is_no_key) {
        return Err(errors::NO_KEY_ARGUMENTS.into());
    }
    if !found.arity_fits(args.len()) {
        return Err(errors::INVALID_COMMAND_ARITY.into());
    }
    match introspect::keys_with_flags(found.spec, args) {
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
        Err(InvalidKeys) => return Err(errors::INVALID_COMMAND_ARGUMENTS.into()),
    }
    Ok(())
}

const HELP: &[&str] = &[
    "(no subcommand)",
    "    Describe every command.",
    "COUNT",
    "    Count the commands.",
    "DOCS [<command-name> ...]",
    "    Document the named commands, or all of them.",
    "GETKEYS <full-command>",
    "    Return the keys of a command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys of a command, and what the command does to each key.",
    "INFO [<command-name> ...]",
    "    Describe the named commands, or all of them.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    List the names of all commands, or of the commands that match the filter.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use strand_chain::Chain;
    use strand_wire::args::Argv;
    use strand_wire::reply::Protocol;

    fn run(protocol: Protocol, line: &str) -> String {
        let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
        let args = argv.args();
        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, protocol);
        let done = match args.get(1) {
            None => infos(&mut reply),
            Some(b"COUNT") => count(args, &mut reply),
            Some(b"DOCS") => docs_of(args, &mut reply),
            Some(b"GETKEYS") => get_keys(args, &mut reply),
            Some(b"GETKEYSANDFLAGS") => get_keys_and_flags(args, &mut reply),
            Some(b"INFO") => info_of(args, &mut reply),
            _ => list(args, &mut reply),
        };
        if let Err(text) = done {
            reply.error_bytes(&text);
        }
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
        assert_eq!(run2("COMMAND COUNT"), format!(":{}|", TABLE.rows().len()));
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
        assert!(run(Protocol::Resp3, "COMMAND DOCS").starts_with(&format!("%{}|", TABLE.rows().len())));
    }

    #[test]
    fn command_list_filters() {
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
    fn command_getkeys_finds_keys_and_flags() {
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
