//! Tests of what must be true of every row.

use super::TABLE;
use crate::session::SessionCommand;
use std::collections::BTreeSet;
use strand_commands::cost::{Cost, SlowPath};
use strand_commands::dispatch::key_positions;
use strand_commands::spec::{Arg, BeginSearch, CommandSpec, Exec, FindKeys, Flags, KeyFlags as K, KeySpec};
use strand_wire::args::Argv;

/// Every row, with the full name for messages.
fn rows() -> impl Iterator<Item = (String, &'static CommandSpec)> {
    TABLE.rows().iter().flat_map(|c| {
        let subs = c.subcommands.iter().map(|s| (format!("{}|{}", c.name, s.name), s));
        std::iter::once((c.name.to_owned(), c)).chain(subs)
    })
}

#[test]
fn names_are_sorted_unique_and_lower_case() {
    assert!(TABLE.rows().is_sorted_by(|a, b| a.name < b.name));
    for c in TABLE.rows() {
        assert!(c.subcommands.is_sorted_by(|a, b| a.name < b.name), "{}", c.name);
    }
    for (name, spec) in rows() {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        assert!(!spec.name.is_empty() && spec.name.bytes().all(allowed), "{name}");
    }
}

#[test]
fn every_row_is_found_in_any_case_and_nothing_else() {
    for spec in TABLE.rows() {
        for name in [spec.name.to_owned(), spec.name.to_ascii_uppercase()] {
            assert!(TABLE.lookup(name.as_bytes()).is_some_and(|found| std::ptr::eq(found, spec)), "{name}");
        }
        let doubled = spec.name.repeat(2);
        let is_row = |name: &str| TABLE.rows().iter().any(|row| row.name == name);
        assert_eq!(TABLE.lookup(doubled.as_bytes()).is_some(), is_row(&doubled), "{doubled}");
    }
}

#[test]
fn the_row_of_a_sessions_command_says_what_runs() {
    let mut sessions = 0;
    for (name, spec) in rows() {
        if let Exec::Session(held) = spec.exec {
            assert!(held.is::<SessionCommand>(), "{name}");
            sessions += 1;
        }
    }
    assert!(sessions > 100, "{sessions}");
}

#[test]
fn every_row_is_documented() {
    for (name, spec) in rows() {
        let sentence =
            spec.summary.starts_with(|c: char| c.is_ascii_uppercase()) && spec.summary.ends_with('.');
        assert!(sentence, "{name}: {:?}", spec.summary);
        for (field, text) in [("since", spec.since), ("group", spec.group), ("complexity", spec.complexity)] {
            assert!(!text.is_empty(), "{name} has no {field}");
        }
        assert_eq!(spec.since.split('.').count(), 3, "{name}");
        assert!(
            spec.history
                .iter()
                .all(|(version, change)| version.split('.').count() == 3 && !change.is_empty())
        );
        let deprecated = spec.doc_flags.contains(&"deprecated");
        assert_eq!(deprecated, spec.deprecated.is_some(), "{name}");
        spec.args.iter().for_each(|arg| check_arg(&name, spec, arg));
    }
}

#[test]
fn costs_fit_the_keys() {
    for (name, spec) in rows() {
        if let Exec::Estimated(_, cost, slow) = spec.exec {
            assert!(!matches!(cost, Cost::Fixed), "{name} costs little: Exec::Inline");
            assert!(!matches!(cost, Cost::Keyspace | Cost::Budget), "{name} would never run on a worker");
            if matches!(slow, SlowPath::CopyValues) {
                assert!(spec.flags.has(Flags::READONLY) && !spec.keys.is_empty(), "{name} changes its keys");
            }
        }
        let key_range = |k: &KeySpec| matches!(k.find, FindKeys::Range { last, .. } if last != 0);
        let on_keys = spec.exec.on_keys().is_some();
        assert!(
            matches!(spec.cost(), Cost::Arguments | Cost::Sources | Cost::Combination(..))
                || matches!(spec.cost(), Cost::InData(_) | Cost::Search(..) | Cost::InDataUnless(..))
                || !on_keys
                || !spec.keys.iter().any(key_range),
            "{name} takes any number of keys"
        );
    }
}

fn check_arg(command: &str, spec: &CommandSpec, arg: &Arg) {
    const KINDS: [&str; 9] =
        ["string", "integer", "double", "key", "pattern", "unix-time", "pure-token", "oneof", "block"];
    let name = format!("{command} {}", arg.name);
    assert!(KINDS.contains(&arg.kind) && !arg.name.is_empty(), "{name}");
    // A pattern argument of SORT makes keys.
    let makes_keys = arg.kind == "key" || (arg.kind == "pattern" && spec.group == "generic");
    assert!(if arg.key_spec.is_some() { makes_keys } else { arg.kind != "key" }, "{name}");
    assert!(arg.key_spec.is_none_or(|at| at < spec.keys.len()), "{name}");
    assert_eq!(["oneof", "block"].contains(&arg.kind), !arg.args.is_empty(), "{name}");
    assert!(arg.kind != "pure-token" || arg.token.is_some(), "{name}");
    arg.args.iter().for_each(|inner| check_arg(command, spec, inner));
}

#[test]
fn arity_flags_and_handlers_fit_together() {
    for (name, spec) in rows() {
        let depth = if name.contains('|') { 2 } else { 1 };
        assert!(spec.arity.abs() >= depth && spec.arity != 0, "{name}");
        assert!(!(spec.flags.has(Flags::WRITE) && spec.flags.has(Flags::READONLY)), "{name}");
        if matches!(spec.exec, Exec::Container) {
            assert!(!spec.subcommands.is_empty(), "{name}");
        }
        assert!(spec.subcommands.iter().all(|s| s.subcommands.is_empty()), "{name}");
        let categories: BTreeSet<&str> = spec.categories().names().collect();
        assert!(categories.contains("fast") != categories.contains("slow"), "{name}");
        assert_eq!(categories.contains("fast"), spec.flags.has(Flags::FAST), "{name}");
        assert_eq!(categories.contains("write"), spec.flags.has(Flags::WRITE), "{name}");
    }
}

/// Commands whose last keys may be missing: PFMERGE's sources, and the datasets of IMPORT.STATUS.
const MAY_NAME_NO_KEY: [&str; 2] = ["pfmerge", "import.status"];

#[test]
fn key_specs_are_sane() {
    for (name, spec) in rows() {
        // Skip shard channels, which are spread like keys but are not keys.
        for keys in spec.keys.iter().filter(|keys| !keys.is_no_key()) {
            let kinds = [K::RW, K::RO, K::OW, K::RM].into_iter().filter(|kind| keys.flags.has(*kind)).count();
            assert_eq!(kinds, 1, "{name} says once whether it reads or writes");
            // PFCOUNT stores a count in a key that it only reads. The rows of scripts do not say what a script writes.
            let writes = !keys.flags.has(K::RO) && spec.name != "pfcount" && spec.group != "scripting";
            assert!(!writes || spec.flags.has(Flags::WRITE), "{name} writes a key but is no write command");
            match keys.begin {
                BeginSearch::Index(at) => {
                    let there = at < spec.arity.unsigned_abs() as usize || MAY_NAME_NO_KEY.contains(&&*name);
                    assert!(at >= 1 && there, "{name}");
                }
                BeginSearch::Keyword(word, from) => assert!(!word.is_empty() && from != 0, "{name}"),
                BeginSearch::Unknown => assert!(matches!(keys.find, FindKeys::Unknown(_)), "{name}"),
            }
            let step = match keys.find {
                FindKeys::Range { step, .. } | FindKeys::KeyNumber { step, .. } => step,
                FindKeys::Unknown(_) => 1,
            };
            assert!(step >= 1, "{name}");
        }
    }
}

#[test]
fn groups_hold_what_they_are_for() {
    let of = |group: &str| rows().filter(|(_, s)| s.group == group).count();
    let groups: BTreeSet<&str> = rows().map(|(_, s)| s.group).collect();
    let known = [
        "bitmap",
        "cluster",
        "connection",
        "diag",
        "generic",
        "geo",
        "hash",
        "hyperloglog",
        "import",
        "list",
        "pubsub",
        "regex",
        "scripting",
        "search",
        "server",
        "set",
        "sorted-set",
        "stream",
        "string",
        "transactions",
    ];
    assert_eq!(groups, BTreeSet::from(known));
    assert_eq!((of("string"), of("hash"), of("search"), of("regex")), (27, 29, 6, 21));
    assert_eq!((of("bitmap"), of("hyperloglog"), of("set"), of("stream")), (7, 5, 17, 27));
}

#[test]
fn arities_below_the_keys_cannot_happen() {
    // After the arity check, the key specs of our rows always find keys, with three exceptions: counts of keys,
    // commands that may name no key, and keys behind a word that may be missing.
    let by_index =
        |spec: &&CommandSpec| spec.keys.iter().all(|keys| matches!(keys.begin, BeginSearch::Index(_)));
    for spec in rows().map(|(_, spec)| spec).filter(by_index) {
        let n = spec.arity.unsigned_abs() as usize;
        let argv = Argv::from_slices(&vec!["x"; n]);
        let counted = spec.keys.iter().any(|keys| matches!(keys.find, FindKeys::KeyNumber { .. }));
        // GEORADIUS stores only if its arguments say so.
        let known = counted || MAY_NAME_NO_KEY.contains(&spec.name) || spec.group == "geo";
        assert!(known || key_positions(spec, argv.args()).is_ok(), "{}", spec.name);
    }
}
