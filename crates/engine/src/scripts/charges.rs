//! What a running script takes: the growth of its interpreter, and its draft. The memory ledger hears of both while the
//! script runs.

use super::copies::Copies;
use super::run::{ScriptAccess, ScriptRun};
use crate::memory::{Charge, DraftCharge, Purpose};

/// The ledger is updated when the memory has changed by this many bytes.
const STEP_BYTES: u64 = 128 << 10;
/// What a written key of a draft takes besides its key and its record, until its promise is carried out. Measured: 500 bytes
/// at the peak of a script that increments 200,000 keys.
const DRAFTED_KEY_BYTES: usize = 512;

impl ScriptRun<'_, '_> {
    /// Charges the growth of the interpreter, which has `vm_bytes` bytes now.
    pub(super) fn charge_interpreter(&mut self, vm_bytes: u64) {
        let grown_bytes = vm_bytes.saturating_sub(self.vm_charged_bytes);
        if grown_bytes.abs_diff(self.grown.as_ref().map_or(0, Charge::bytes)) >= STEP_BYTES {
            self.grown = Some(Charge::new(&self.engine.memory, Purpose::Scripts, grown_bytes));
        }
    }
    /// Charges the draft on which the script runs.
    pub(super) fn charge_draft(&mut self) {
        if self.mode != ScriptAccess::Draft {
            return;
        }
        let notes_bytes = self.txn.kept_events().1 + self.txn.effects_bytes();
        let keys_bytes = self.copies.as_ref().map_or(0, Copies::written) * DRAFTED_KEY_BYTES;
        let bytes = (self.txn.held_data_bytes() + notes_bytes + keys_bytes) as u64;
        if bytes.abs_diff(self.draft.as_ref().map_or(0, DraftCharge::bytes)) >= STEP_BYTES {
            self.draft = Some(DraftCharge::new(&self.engine.memory, bytes));
        }
    }
}
