//! [`Moment`]: everything that a snapshot or a base has, as of one moment: the records, the libraries of functions, and
//! the definitions of the services (indexes and sets of patterns).

use crate::Engine;
use crate::config::Opt;
use crate::following::Position;
use crate::scripts::functions::Functions;
use std::io;
use std::sync::Arc;
use strand_commands::serial::system;
use strand_keyspace::{Snapshot, Txn};

/// Number of attempts to take records and definitions at one position of the journal.
const TRIES: usize = 1000;
/// Number of attempts to find the primary's stream between two commands, and the time between two attempts.
const STREAM_TRIES: usize = 20;
const NAP_US: u64 = 500;

/// The data of one moment.
pub(crate) struct Moment<'k> {
    pub(crate) snapshot: Snapshot<'k>,
    pub(crate) definitions: Definitions,
    /// The position in the journal: changes before it are in the moment, and changes after it are not.
    pub(crate) offset: u64,
}

/// The libraries, indexes and sets of patterns of one moment.
pub(crate) struct Definitions {
    functions: Arc<Functions>,
    services: Vec<Arc<Vec<Vec<u8>>>>,
}

impl Definitions {
    /// The texts of all function libraries.
    pub(crate) fn libraries(&self) -> Vec<Vec<u8>> {
        self.functions.texts()
    }
    /// The commands that create the indexes and sets of patterns.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &[Vec<u8>]> {
        self.services.iter().map(|words| words.as_slice())
    }
    /// These commands as an RDB file has them.
    pub(crate) fn encoded_commands(&self) -> Vec<Vec<u8>> {
        self.commands().map(system::encode_command).collect()
    }
}

impl Engine {
    /// Takes the data of this moment, and the position in the stream of replication. `lock` locks all shards for long.
    /// May block.
    pub(crate) fn take_moment_of_stream<L>(
        &self,
        lock: impl Fn() -> io::Result<L>,
    ) -> io::Result<(Moment<'_>, Position)> {
        // On a replica no command of the primary's stream is half applied at the moment. A command may wait for the
        // shards, so the shards are locked only for a try. After some tries the stream waits for the shards instead.
        let mut tries = 0;
        let (_between_commands, _lock) = loop {
            tries += 1;
            if tries == STREAM_TRIES {
                break (self.following.between_commands(), lock()?);
            }
            let locked = lock()?;
            match self.following.try_between_commands() {
                Some(guard) => break (guard, locked),
                None => drop(locked),
            }
            self.host.nap_us(NAP_US);
        };
        let moment = self.take_moment(&mut self.keyspace.lock_all(0));
        let position = self.passed_position().or_else(|| self.own_position(moment.offset));
        Ok((moment, position.unwrap_or_default()))
    }
    /// Takes the data of this moment. `all` holds all shards, so no record changes meanwhile. A definition may change,
    /// because it needs no shard: then the journal grows, and the definitions are taken again.
    pub(crate) fn take_moment<'k>(&self, all: &mut Txn<'k>) -> Moment<'k> {
        let budget_bytes = self.config.number(Opt::SnapshotMemoryBudget) as usize;
        let snapshot = all.snapshot(budget_bytes, self.persist.alerts.clone());
        let journal = self.keyspace.journal();
        let mut tries = 0;
        loop {
            let offset = journal.select_again();
            let functions = self.scripts.functions.read().clone();
            let definitions = Definitions { functions, services: self.host.definitions() };
            tries += 1;
            if journal.tail() == offset || tries == TRIES {
                return Moment { snapshot, definitions, offset };
            }
        }
    }
}
