//! The table itself: [`COMMANDS`], gathered from the groups and sorted by name while compiling.
//!
//! Each group is a module with one static of rows; a new group is one line in [`GROUPS`].

mod connection;
mod generic;
mod hash;
mod import;
mod regex;
mod search;
mod server;
mod string;

use crate::spec::CommandSpec;

/// Every top-level command, sorted by name.
pub static COMMANDS: &[CommandSpec] = &SORTED;

const GROUPS: [&[CommandSpec]; 8] = [
    string::STRING,
    generic::GENERIC,
    hash::HASH,
    connection::CONNECTION,
    server::SERVER,
    search::SEARCH,
    regex::REGEX,
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
    let mut out = [CommandSpec::EMPTY; TOTAL];
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
