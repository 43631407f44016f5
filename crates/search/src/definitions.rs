//! Lists the commands that recreate all indexes and all sets of patterns. Snapshots save these commands. The journal gets
//! each of them when it runs.

use crate::service::Search;
use std::sync::Arc;
use strand_commands::serial::system;
use strand_wire::args::Args;

/// A command as a list of its words.
pub(crate) type Words = Vec<Vec<u8>>;

/// Copies the words of a command that creates an index or a set of patterns. The index or the set keeps them.
pub(crate) fn words(args: Args<'_>) -> Words {
    args.iter().map(<[u8]>::to_vec).collect()
}

impl Search {
    /// The commands that recreate every text index, trigram index and set of patterns. A recreated index starts
    /// with the keys that exist then, even if it was created with SKIPINITIALSCAN.
    /// Waits for no shard.
    pub fn definitions(&self) -> Vec<Arc<Words>> {
        let mut all = self.text_definitions();
        all.extend(self.trigrams.definitions());
        all.extend(self.regexes.definitions());
        all
    }
    /// Records in the journal a command that changes a definition. Call this under the lock of the definitions, so that
    /// the journal has their order.
    pub(crate) fn record(&self, words: &[Vec<u8>]) {
        self.keyspace.record(system::echo(words).iter().map(Vec::as_slice));
    }
}
