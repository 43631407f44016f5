//! IMPORT.VERSION HOLD, REPORT and STATUS.

use super::{DONE, NextStep, Outcome, SYNTAX, Session};
use crate::Now;
use crate::headroom::{IMPORT_BYTES, WorkAdmission, refusal};
use crate::importers::REPORT_BYTES_MAX;
use crate::session::waits::ParkReason;
use strand_wire::args::Args;

impl Session {
    /// `IMPORT.VERSION HOLD dataset`. Reply: 1, or 0 when another connection holds the dataset. OOM when the memory
    /// for the start of an import is missing.
    pub(super) fn import_version_hold(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let engine = self.engine.clone();
        match engine.admit_work(IMPORT_BYTES, self.postponed_us(now), now) {
            // Drop the reservation, because the data of an import counts when it arrives.
            WorkAdmission::Now(_) => {}
            WorkAdmission::Later { at_us } => return Ok(NextStep::Postpone(ParkReason::Memory, at_us)),
            WorkAdmission::Refused { missing_bytes } => {
                return Err(refusal("an import", IMPORT_BYTES, missing_bytes).into());
            }
        }
        let is_held = engine.importers.hold(&engine.clients, self.db, args.at(2), self.client.id);
        self.reply().int(i64::from(is_held));
        DONE
    }

    /// `IMPORT.VERSION REPORT dataset name value [name value ...]`. Reply: 1, or 0 when this connection does not hold the
    /// dataset.
    pub(super) fn import_version_report(&mut self, args: Args<'_>) -> Outcome {
        let words: Vec<Vec<u8>> = (3..args.len()).map(|i| args.at(i).to_vec()).collect();
        if !words.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        if words.iter().map(Vec::len).sum::<usize>() > REPORT_BYTES_MAX {
            return Err(format!("ERR a report has {REPORT_BYTES_MAX} bytes at the most").into());
        }
        let engine = self.engine.clone();
        let is_taken = engine.importers.report(self.db, args.at(2), self.client.id, words);
        self.reply().int(i64::from(is_taken));
        DONE
    }

    /// `IMPORT.VERSION STATUS dataset`. Reply: a map with the client that imports into the dataset now and its last
    /// report, or null.
    pub(super) fn import_version_status(&mut self, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        let status = engine.importers.status(&engine.clients, self.db, args.at(2));
        let mut reply = self.reply();
        match status {
            None => reply.null(),
            Some((client, report)) => {
                reply.map(report.len() / 2 + 1);
                reply.bulk(b"client");
                reply.int(client as i64);
                report.iter().for_each(|word| reply.bulk(word));
            }
        }
        DONE
    }
}
