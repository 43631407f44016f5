//! Random commands on few keys whose values, and fields of hashes, expire all the time. The fixture replays the journal at
//! its end: on replicas and after a restart there must be what the commands left here.

use crate::fixture::Fixture;
use crate::spec::Flags;
use crate::table::{GROUPS, IMPORT_VERSION};
use std::collections::HashSet;
use strand_testkit::expiring::{ExpiringCommands, names};
use strand_testkit::{dataset, env_number};

/// Number of sequences. The variable STRAND_SEQUENCES changes it.
const SEQUENCES: u64 = 400;
/// Number of commands of a sequence.
const COMMANDS: usize = 60;
/// Number of databases that the commands use.
const DATABASES: usize = 2;

/// Commands that write, and are in no sequence.
const NOT_RUN: &[(&str, &str)] = &[
    ("MIGRATE", "needs another server; tests of its own"),
    ("PFDEBUG", "tests of its own"),
    ("RESTORE-ASKING", "RESTORE by another name"),
];

/// Runs a sequence, and prints its commands if `shows` is true. Panics when the replay of its journal makes other data.
fn run(seed: u64, shows: bool) {
    let (mut commands, mut f) = (ExpiringCommands::new(seed), Fixture::new());
    for _ in 0..COMMANDS {
        f.advance_ms(commands.rng.i64(0..3));
        f.all_long = commands.rng.u8(..4) == 0;
        f.db = if commands.rng.u8(..6) == 0 { 1 } else { 0 };
        let args = commands.command(f.now_ms);
        let reply = f.run_args(&args);
        if shows {
            println!("{} [{}] {} -> {}", f.now_ms, f.db, dataset::text_of(&args), reply.escape_ascii());
        }
        commands.note_reply(&args, &reply);
    }
    let mut twin = f.replayed();
    for db in 0..DATABASES {
        let [here, there] = [&mut f, &mut twin].map(|f| {
            f.db = db;
            dataset::lines(&mut |command| f.run_args(command))
        });
        assert_eq!(here, there, "database {db}");
    }
}

#[test]
fn the_journal_of_data_that_expires_makes_equal_data() {
    let (first, sequences) = (env_number("STRAND_SEED", 1), env_number("STRAND_SEQUENCES", SEQUENCES));
    for seed in first..first + sequences {
        let ended = std::panic::catch_unwind(|| run(seed, sequences == 1));
        assert!(
            ended.is_ok(),
            "repeat with STRAND_SEED={seed} STRAND_SEQUENCES=1 cargo test -p strand-commands --lib -- the_journal_of_data"
        );
    }
}

/// A new command that writes gets a template, or a line in [`NOT_RUN`].
#[test]
fn the_sequences_have_every_command_that_writes() {
    let known: HashSet<String> =
        names().into_iter().chain(NOT_RUN.iter().map(|(name, _)| (*name).into())).collect();
    let rows = GROUPS.iter().copied().flatten().chain([&IMPORT_VERSION]);
    for row in rows {
        let name = row.name.to_uppercase();
        let subcommands =
            row.subcommands.iter().map(|sub| (sub, format!("{name} {}", sub.name.to_uppercase())));
        for (spec, name) in subcommands.chain([(row, name.clone())]) {
            assert!(!spec.flags.has(Flags::WRITE) || known.contains(&name), "{name} has no template");
        }
    }
}
