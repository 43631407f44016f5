//! The command table for ACL rules: every row by number, and the categories.

use crate::stats::CommandIds;
use std::ops::Range;
use std::sync::LazyLock;
use strand_commands::dispatch::Resolved;
use strand_commands::spec::{Categories, CommandSpec};

/// The groups of commands that redis-server lacks.
const OUR_GROUPS: [&str; 3] = ["import", "regex", "search"];

/// The names of all ACL categories.
pub(crate) const CATEGORIES: [&str; Categories::NAMES.len()] = Categories::NAMES;

/// Every row of the command table, by its number.
pub(crate) static ACL_TABLE: LazyLock<AclTable> = LazyLock::new(AclTable::new);

/// The rows of the command table, containers and subcommands included, with dense numbers.
pub(crate) struct AclTable {
    rows: Vec<AclRow>,
    ids: CommandIds,
}

/// One row of the command table, as ACL rules see it.
pub(crate) struct AclRow {
    /// The full name in lower case: `get`, `client|id`.
    pub(crate) name: String,
    /// The numbers of the command's subcommands.
    pub(crate) subcommands: Range<usize>,
    pub(crate) is_subcommand: bool,
    /// True when redis-server lacks the command.
    is_ours: bool,
    categories: Categories,
}

impl AclTable {
    fn new() -> AclTable {
        let mut next = crate::TABLE.rows().len();
        let mut rows = Vec::new();
        for spec in crate::TABLE.rows() {
            let subcommands = next..next + spec.subcommands.len();
            next = subcommands.end;
            rows.push(AclRow::new(spec, None, subcommands));
        }
        for container in crate::TABLE.rows() {
            rows.extend(container.subcommands.iter().map(|s| AclRow::new(s, Some(container), 0..0)));
        }
        AclTable { rows, ids: CommandIds::new() }
    }
    /// All rows: the commands by name, then the subcommands.
    pub(crate) fn rows(&self) -> &[AclRow] {
        &self.rows
    }
    /// The commands by name, each followed by its subcommands.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = usize> {
        (0..crate::TABLE.rows().len())
            .flat_map(|id| std::iter::once(id).chain(self.rows[id].subcommands.clone()))
    }
    /// The number of a command's row.
    pub(crate) fn id(&self, spec: &'static CommandSpec) -> usize {
        self.ids.of(spec) as usize
    }
    /// The number of the command or subcommand with this full name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        let Resolved { spec, .. } = crate::TABLE.lookup_full_name(name)?;
        Some(self.id(spec))
    }
}

impl AclRow {
    fn new(spec: &'static CommandSpec, container: Option<&CommandSpec>, subcommands: Range<usize>) -> AclRow {
        let name = match container {
            Some(c) => format!("{}|{}", c.name, spec.name),
            None => spec.name.to_string(),
        };
        let is_ours = OUR_GROUPS.contains(&spec.group);
        AclRow {
            name,
            subcommands,
            is_subcommand: container.is_some(),
            is_ours,
            categories: spec.categories(),
        }
    }
    /// True when the row is in this category of [`CATEGORIES`].
    pub(crate) fn is_in(&self, category: usize) -> bool {
        self.categories.has(category)
    }
}

/// The index of a category, in upper or lower case.
pub(crate) fn category(name: &[u8]) -> Option<usize> {
    CATEGORIES.iter().position(|c| name.eq_ignore_ascii_case(c.as_bytes()))
}

/// A set of commands: a bit for each row, and one bit for the commands of later versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandSet {
    bits: Box<[u64]>,
    future: bool,
}

impl CommandSet {
    /// The empty set, or the set of all commands.
    pub(crate) fn new(all: bool) -> CommandSet {
        let words = ACL_TABLE.rows.len().div_ceil(u64::BITS as usize);
        CommandSet { bits: vec![if all { u64::MAX } else { 0 }; words].into(), future: all }
    }
    /// True when the set includes commands of later versions.
    pub(crate) fn has_future(&self) -> bool {
        self.future
    }
    #[inline]
    pub(crate) fn has(&self, id: usize) -> bool {
        self.bits[id / 64] & (1 << (id % 64)) != 0
    }
    fn set(&mut self, id: usize, on: bool) {
        let (word, bit) = (&mut self.bits[id / 64], 1 << (id % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }
    /// Adds or removes a command. A container brings its subcommands.
    pub(crate) fn change(&mut self, id: usize, on: bool) {
        self.set(id, on);
        ACL_TABLE.rows[id].subcommands.clone().for_each(|sub| self.set(sub, on));
    }
    /// The number of a category's rows in the set, and outside the set. In redis-server's categories only its own
    /// commands count, so that Strand's commands do not change the description of a user.
    pub(crate) fn count(&self, category: usize) -> (usize, usize) {
        let ours = category >= Categories::REDIS;
        let members =
            ACL_TABLE.rows.iter().enumerate().filter(|(_, r)| r.is_in(category) && (ours || !r.is_ours));
        members.fold((0, 0), |(on, off), (id, _)| if self.has(id) { (on + 1, off) } else { (on, off + 1) })
    }
}

/// The numbers of the rows of one category.
pub(crate) fn members(category: usize) -> impl Iterator<Item = usize> {
    ACL_TABLE.rows.iter().enumerate().filter(move |(_, row)| row.is_in(category)).map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_own_numbers() {
        for (id, row) in ACL_TABLE.rows().iter().enumerate() {
            assert_eq!(ACL_TABLE.find(row.name.as_bytes()), Some(id));
            assert_eq!(row.is_subcommand, row.name.contains('|'));
        }
        let mut all: Vec<usize> = ACL_TABLE.in_order().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..ACL_TABLE.rows().len()));
    }

    #[test]
    fn a_container_brings_its_subcommands() {
        let mut set = CommandSet::new(false);
        let (client, id) = (ACL_TABLE.find(b"client").unwrap(), ACL_TABLE.find(b"CLIENT|id").unwrap());
        set.change(client, true);
        assert!(set.has(client) && set.has(id) && !set.has(ACL_TABLE.find(b"get").unwrap()));
        set.change(id, false);
        assert!(set.has(client) && !set.has(id));
    }
}
