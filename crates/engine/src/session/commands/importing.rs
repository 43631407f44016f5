//! IMPORT.VERSION HOLD and REPORT, and IMPORT.STATUS.

use super::{DONE, NextStep, Outcome, SYNTAX, Session};
use crate::acl::Rights;
use crate::headroom::{IMPORT_BYTES, WorkAdmission, refusal};
use crate::importers::{REPORT_BYTES_MAX, REPORT_WORDS_MAX, Status};
use crate::session::phases::ParkReason;
use crate::{Now, TABLE};
use std::collections::BTreeSet;
use strand_commands::call::KeyRights;
use strand_commands::dataset_versions::hold_number;
use strand_commands::spec::Access;
use strand_wire::args::Args;

/// The name of the row that [`Session::import_status`] runs for.
const STATUS: &[u8] = b"import.status";

impl Session {
    /// `IMPORT.VERSION HOLD dataset`. Reply: the number of this hold (see [`hold_number`]), or 0 when another connection
    /// holds the dataset. OOM when the memory for the start of an import is missing.
    pub(super) fn import_version_hold(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let engine = self.engine.clone();
        match engine.admit_work(IMPORT_BYTES, self.postponed_us(now), now) {
            // Drop the reservation, because the data of an import counts when it arrives.
            WorkAdmission::Now(_) => {}
            WorkAdmission::Later { at_us } => return Ok(NextStep::Park(ParkReason::Memory, at_us)),
            WorkAdmission::Refused { missing_bytes } => {
                return Err(refusal("an import", IMPORT_BYTES, missing_bytes).into());
            }
        }
        // Read the number first: a flush after this line makes PUBLISH refuse the number.
        let number = hold_number(engine.keyspace(), self.db);
        let is_held = engine.importers.hold(&engine.clients, self.db, args.at(2), self.client.id);
        self.reply().int(if is_held { number } else { 0 });
        DONE
    }

    /// `IMPORT.VERSION REPORT dataset name value [name value ...]`. Reply: 1, or 0 when this connection does not hold the
    /// dataset.
    pub(super) fn import_version_report(&mut self, args: Args<'_>) -> Outcome {
        let count = args.len() - 3;
        if !count.is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        if count > REPORT_WORDS_MAX {
            return Err(format!("ERR a report may have at most {REPORT_WORDS_MAX} words").into());
        }
        let words: Vec<Vec<u8>> = (3..args.len()).map(|i| args.at(i).to_vec()).collect();
        if words.iter().map(Vec::len).sum::<usize>() > REPORT_BYTES_MAX {
            return Err(format!("ERR a report may have at most {REPORT_BYTES_MAX} bytes").into());
        }
        let engine = self.engine.clone();
        let is_taken = engine.importers.report(self.db, args.at(2), self.client.id, words);
        self.reply().int(i64::from(is_taken));
        DONE
    }

    /// `IMPORT.STATUS [dataset ...]`. Reply: a map from each dataset into which an import runs now to a map of the
    /// importing client and its last report. Without arguments: the datasets that the user may read.
    pub(super) fn import_status(&mut self, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        let named: Option<BTreeSet<&[u8]>> = (args.len() > 1).then(|| args.skip(1).iter().collect());
        let mut running = engine.importers.status(&engine.clients, self.db, named.as_ref());
        if named.is_none()
            && let Some(rights) =
                TABLE.lookup(STATUS).and_then(|spec| Rights::of(&self.identity.user, spec, args))
        {
            running.retain(|status| rights.allows(&status.dataset, Access::READ));
        }
        let mut reply = self.reply();
        reply.map(running.len());
        for Status { dataset, client, report } in &running {
            reply.bulk(dataset);
            reply.map(report.len() / 2 + 1);
            reply.bulk(b"client");
            reply.int(*client as i64);
            report.iter().for_each(|word| reply.bulk(word));
        }
        DONE
    }
}
