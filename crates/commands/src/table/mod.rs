//! [`Table`]: commands, sorted by name, with an index to find them. A table is made from groups of rows at compile
//! time.
//!
//! [`GROUPS`] has the rows of this crate, which are the commands about the data. The engine makes the table of all
//! commands from them, from the rows of its sessions, and from the rows of the services. Each group is a module
//! with one list of rows. A new group is one more line in [`GROUPS`].

mod bitmap;
mod generic;
mod geo;
mod hash;
mod hyperloglog;
mod import;
mod index;
mod list;
mod server;
mod set;
mod stream;
mod string;
mod zset;

pub use import::IMPORT_VERSION;
pub use index::{Slot, index};
pub use server::MEMORY;

use crate::dispatch::{self, Resolved};
use crate::errors;
use crate::spec::CommandSpec;
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

/// The commands about the data, except [`MEMORY`] and [`IMPORT_VERSION`], to which other crates add subcommands.
pub const GROUPS: &[&[CommandSpec]] = &[
    bitmap::BITMAP,
    generic::GENERIC,
    geo::GEO,
    hash::HASH,
    hyperloglog::HYPERLOGLOG,
    list::LIST,
    server::SERVER,
    set::SET,
    stream::STREAM,
    string::STRING,
    zset::ZSET,
];

/// A table of only the commands of this crate, for commands that run other commands, and for tests.
pub(crate) static DATA: Table = crate::table!(&[crate::rows!(GROUPS), &[MEMORY, IMPORT_VERSION]]);

/// Commands by name. The macro [`table!`](crate::table!) makes a table.
#[derive(Debug)]
pub struct Table {
    rows: &'static [CommandSpec],
    slots: &'static [Slot],
}

impl Table {
    /// A table of sorted rows and their index, both of which [`table!`](crate::table!) makes.
    pub const fn new(rows: &'static [CommandSpec], slots: &'static [Slot]) -> Table {
        assert!(slots.len().is_power_of_two());
        Table { rows, slots }
    }
    /// Every top-level command, sorted by name.
    #[inline]
    pub const fn rows(&self) -> &'static [CommandSpec] {
        self.rows
    }
    /// Finds the row of the command `name`, in any ASCII case. Finds no subcommands.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        index::lookup(self.rows, self.slots, name)
    }
    /// Finds the row of the command or subcommand that `args` name, and checks the number of arguments.
    ///
    /// # Errors
    /// The whole error reply as redis-server words it (`ERR unknown command ...`, `ERR unknown subcommand ...`,
    /// `ERR wrong number of arguments for 'get' command`).
    ///
    /// # Panics
    /// Panics if `args` is empty. The decoder never returns an empty command.
    // Always inlined into the path of every command. With `begin_lap` this saves 31 of a PING's 1,175 instructions.
    #[inline(always)]
    pub fn resolve(&self, args: Args<'_>) -> Result<Resolved, ErrorText> {
        let Some(spec) = self.lookup(args.at(0)) else { return Err(errors::unknown_command(args)) };
        let found = if spec.subcommands.is_empty() {
            Resolved { spec, container: None }
        } else {
            resolve_in_container(spec, args)?
        };
        if found.arity_fits(args.len()) { Ok(found) } else { Err(errors::wrong_arity(&found)) }
    }
    /// Finds a row by its full name, as in COMMAND INFO and COMMAND DOCS: `get`, `client|setname`.
    pub fn lookup_full_name(&self, name: &[u8]) -> Option<Resolved> {
        match memchr::memchr(b'|', name) {
            None => self.lookup(name).map(|spec| Resolved { spec, container: None }),
            Some(at) => {
                let container = self.lookup(&name[..at])?;
                let spec = dispatch::subcommand(container, &name[at + 1..])?;
                Some(Resolved { spec, container: Some(container) })
            }
        }
    }
}

/// Finds the subcommand that `args` name. The container itself when they name none.
#[inline(never)]
fn resolve_in_container(container: &'static CommandSpec, args: Args<'_>) -> Result<Resolved, ErrorText> {
    let Some(word) = args.get(1) else { return Ok(Resolved { spec: container, container: None }) };
    match dispatch::subcommand(container, word) {
        Some(spec) => Ok(Resolved { spec, container: Some(container) }),
        None => Err(errors::unknown_subcommand(args)),
    }
}

/// Makes a [`Table`] from groups of rows at compile time.
#[macro_export]
macro_rules! table {
    ($groups:expr) => {{
        const ROWS: &[$crate::spec::CommandSpec] = $crate::rows!($groups);
        const SLOTS: &[$crate::table::Slot] =
            &$crate::table::index::<{ (ROWS.len() * 2).next_power_of_two() }>(ROWS);
        $crate::table::Table::new(ROWS, SLOTS)
    }};
}

/// Makes one sorted list from groups of rows at compile time. The list is for a table, or for a container whose
/// subcommands are in different crates.
#[macro_export]
macro_rules! rows {
    ($groups:expr) => {{
        const GIVEN: &[&[$crate::spec::CommandSpec]] = $groups;
        const GATHERED: &[$crate::spec::CommandSpec] =
            &$crate::table::gather::<{ $crate::table::total(GIVEN) }>(GIVEN);
        GATHERED
    }};
}

/// Number of rows in all groups.
pub const fn total(groups: &[&[CommandSpec]]) -> usize {
    let (mut n, mut g) = (0, 0);
    while g < groups.len() {
        n += groups[g].len();
        g += 1;
    }
    n
}

/// All rows of the groups, sorted by name (with insertion sort).
pub const fn gather<const TOTAL: usize>(groups: &[&[CommandSpec]]) -> [CommandSpec; TOTAL] {
    let mut out = [CommandSpec::new("", "", "", "", ""); TOTAL];
    let (mut n, mut g) = (0, 0);
    while g < groups.len() {
        let mut i = 0;
        while i < groups[g].len() {
            let row = groups[g][i];
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
mod tests {
    use super::*;
    use crate::fixture::Fixture;
    use crate::spec::Exec;
    use strand_chain::Chain;
    use strand_wire::client::ReplyParser;

    /// Every row with its full name, for messages.
    fn rows() -> impl Iterator<Item = (String, &'static CommandSpec)> {
        DATA.rows().iter().flat_map(|c| {
            let subs = c.subcommands.iter().map(|s| (format!("{}|{}", c.name, s.name), s));
            std::iter::once((c.name.to_owned(), c)).chain(subs)
        })
    }

    /// Whatever the arguments are, a handler writes exactly one reply of valid RESP and does not panic.
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
            // PFSELFTEST takes a second and has no arguments.
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
            // Keep strings small, because SETRANGE may extend one to the limit.
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
