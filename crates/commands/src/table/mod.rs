//! The table itself: [`COMMANDS`], gathered from the groups and sorted by name while compiling.
//!
//! Each group is a module with one static of rows; a new group is one line in `GROUPS`.

mod acl;
mod alone;
mod bitmap;
mod connection;
mod diag;
mod generic;
mod geo;
mod hash;
mod hyperloglog;
mod import;
mod list;
mod pubsub;
mod regex;
mod scripting;
mod search;
mod server;
mod set;
mod stream;
mod string;
mod transactions;
mod zset;

use crate::spec::CommandSpec;

/// Every top-level command, sorted by name.
pub static COMMANDS: &[CommandSpec] = &SORTED;

const GROUPS: [&[CommandSpec]; 22] = [
    acl::ACL,
    alone::CLUSTER,
    alone::OTHERS,
    bitmap::BITMAP,
    stream::STREAM,
    string::STRING,
    transactions::TRANSACTIONS,
    generic::GENERIC,
    geo::GEO,
    hash::HASH,
    hyperloglog::HYPERLOGLOG,
    list::LIST,
    pubsub::PUBSUB,
    zset::ZSET,
    connection::CONNECTION,
    diag::DIAG,
    server::SERVER,
    set::SET,
    search::SEARCH,
    regex::REGEX,
    scripting::SCRIPTING,
    import::IMPORT,
];

const TOTAL: usize = {
    let (mut n, mut g) = (0, 0);
    while g < GROUPS.len() {
        n += GROUPS[g].len();
        g += 1;
    }
    n
};

static SORTED: [CommandSpec; TOTAL] = gather();

/// Insertion sort of all rows by name, while compiling.
const fn gather() -> [CommandSpec; TOTAL] {
    let mut out = [CommandSpec::new("", "", "", "", ""); TOTAL];
    let (mut n, mut g) = (0, 0);
    while g < GROUPS.len() {
        let mut i = 0;
        while i < GROUPS[g].len() {
            let row = GROUPS[g][i];
            let mut at = n;
            while at > 0 && less(row.name, out[at - 1].name) {
                out[at] = out[at - 1];
                at -= 1;
            }
            out[at] = row;
            n += 1;
            i += 1;
        }
        g += 1;
    }
    out
}

const fn less(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

#[cfg(test)]
mod page;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Cost, SlowPath};
    use crate::fixture::Fixture;
    use crate::spec::{Arg, BeginSearch, Exec, FindKeys, Flags, KeyFlags as K, KeySpec};
    use std::collections::BTreeSet;
    use strand_chain::Chain;
    use strand_wire::client::ReplyParser;

    /// Every row, with the full name for messages.
    fn rows() -> impl Iterator<Item = (String, &'static CommandSpec)> {
        COMMANDS.iter().flat_map(|c| {
            let subs = c.subcommands.iter().map(|s| (format!("{}|{}", c.name, s.name), s));
            std::iter::once((c.name.to_owned(), c)).chain(subs)
        })
    }

    #[test]
    fn names_are_sorted_unique_and_lower_case() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for c in COMMANDS {
            assert!(c.subcommands.is_sorted_by(|a, b| a.name < b.name), "{}", c.name);
        }
        for (name, spec) in rows() {
            let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
            assert!(!spec.name.is_empty() && spec.name.bytes().all(allowed), "{name}");
        }
    }

    #[test]
    fn every_row_is_documented() {
        for (name, spec) in rows() {
            let sentence =
                spec.summary.starts_with(|c: char| c.is_ascii_uppercase()) && spec.summary.ends_with('.');
            assert!(sentence, "{name}: {:?}", spec.summary);
            for (field, text) in
                [("since", spec.since), ("group", spec.group), ("complexity", spec.complexity)]
            {
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
                if matches!(slow, SlowPath::Snapshot) {
                    assert!(
                        spec.flags.has(Flags::READONLY) && !spec.keys.is_empty(),
                        "{name} changes its keys"
                    );
                }
            }
            let key_range = |k: &KeySpec| matches!(k.find, FindKeys::Range { last, .. } if last != 0);
            let on_keys = spec.exec.on_keys().is_some();
            assert!(
                matches!(
                    spec.cost(),
                    Cost::Arguments | Cost::Sources | Cost::InData(_) | Cost::InDataUnless(..)
                ) || !on_keys
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
        // SORT's patterns make keys.
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

    #[test]
    fn key_specs_are_sane() {
        for (name, spec) in rows() {
            // A shard channel is spread like a key, and is none.
            for keys in spec.keys.iter().filter(|keys| !keys.is_no_key()) {
                let kinds =
                    [K::RW, K::RO, K::OW, K::RM].into_iter().filter(|kind| keys.flags.has(*kind)).count();
                assert_eq!(kinds, 1, "{name} says once whether it reads or writes");
                // PFCOUNT keeps a count in a key that it may only read; what a script does is the script's.
                let writes = !keys.flags.has(K::RO) && spec.name != "pfcount" && spec.group != "scripting";
                assert!(
                    !writes || spec.flags.has(Flags::WRITE),
                    "{name} writes a key but is no write command"
                );
                match keys.begin {
                    BeginSearch::Index(at) => {
                        let there = at < spec.arity.unsigned_abs() as usize || name == "pfmerge";
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
        assert_eq!((of("string"), of("hash"), of("search"), of("regex")), (27, 29, 5, 21));
        assert_eq!((of("bitmap"), of("hyperloglog"), of("set"), of("stream")), (7, 5, 17, 27));
    }

    /// Whatever the arguments, a handler writes exactly one reply of valid RESP and does not panic.
    #[test]
    fn every_command_answers_once_whatever_its_arguments() {
        const WORDS: [&str; 30] = [
            "a",
            "b",
            "h",
            "",
            "0",
            "1",
            "-1",
            "5",
            "10",
            "3.5",
            "inf",
            "9223372036854775807",
            "-9223372036854775808",
            "x",
            "*",
            "[a-",
            "EX",
            "PX",
            "EXAT",
            "NX",
            "GET",
            "MATCH",
            "COUNT",
            "TYPE",
            "WITHVALUES",
            "LEN",
            "IDX",
            "DB",
            "REPLACE",
            "\r\n",
        ];
        let seed = 20;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut f = Fixture::new();
        let run_here: Vec<_> = rows()
            .filter(|(_, s)| s.exec.on_keys().is_some() || matches!(s.exec, Exec::Walk(_) | Exec::Heavy(_)))
            // Takes a second each time, and no arguments.
            .filter(|(_, s)| s.name != "pfselftest")
            .collect();
        for round in 0..12_000 {
            let (name, spec) = &run_here[rng.usize(0..run_here.len())];
            let mut args: Vec<&str> = name.split('|').collect();
            let least = (spec.arity.unsigned_abs() as usize).saturating_sub(args.len());
            let more = if spec.arity < 0 { rng.usize(0..6) } else { 0 };
            args.extend((0..least + more).map(|_| WORDS[rng.usize(0..WORDS.len())]));
            f.protocol = if rng.bool() {
                strand_wire::reply::Protocol::Resp2
            } else {
                strand_wire::reply::Protocol::Resp3
            };
            f.advance_ms(rng.i64(0..3));
            f.all_long = rng.bool();
            // Keep the strings small: SETRANGE may take one to the limit.
            f.keyspace.settings().proto_max_bulk_len.store(1 << 16, std::sync::atomic::Ordering::Relaxed);
            let bytes = f.run_args(&args);
            let mut chain = Chain::new();
            chain.push_slice(&bytes);
            let reply = ReplyParser::new().next(&mut chain);
            assert!(
                matches!(reply, Ok(Some(_))) && chain.is_empty(),
                "seed {seed}, round {round}: {args:?} gave {:?}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
