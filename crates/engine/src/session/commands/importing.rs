//! IMPORT.VERSION HOLD.

use super::{DONE, Outcome, Session};
use strand_wire::args::Args;

impl Session {
    /// `IMPORT.VERSION HOLD dataset`. Reply: 1, or 0 when another connection holds the dataset.
    pub(super) fn import_version_hold(&mut self, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        let is_held = engine.importers.hold(&engine.clients, self.db, args.at(2), self.client.id);
        self.reply().int(i64::from(is_held));
        DONE
    }
}
