//! What makes all indexes and sets of patterns again: the commands that made them, for who saves them.

use crate::service::Search;
use strand_wire::args::Args;

/// A command: its words.
pub(crate) type Words = Vec<Vec<u8>>;

/// The words of a command that has made something, to be kept with it.
pub(crate) fn words(args: Args<'_>) -> Words {
    args.iter().map(<[u8]>::to_vec).collect()
}

impl Search {
    /// The commands that make every text index, trigram index and set of patterns that is here now. An index is filled with
    /// what is there when it is made, also one that was made with SKIPINITIALSCAN.
    pub fn definitions(&self, now_ms: i64) -> Vec<Words> {
        let mut all = self.text_definitions(now_ms);
        all.extend(self.trigrams.definitions());
        all.extend(self.regexes.definitions());
        all
    }
}
