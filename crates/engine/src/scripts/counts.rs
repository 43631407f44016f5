//! [`RunCounts`]: what the commands of a script's run add to the statistics.
//!
//! The counts stay with the run until its end, because a run that restarts must count its commands once.

use super::run::ScriptRun;
use crate::stats::{CommandCounter, Stat, Stats};
use smallvec::SmallVec;
use strand_commands::spec::CommandSpec;
use strand_script::CallOutcome;
use strand_wire::args::Args;

/// The counts of one run. Each command and each error code has one entry, however often the run uses it.
#[derive(Default)]
pub(crate) struct RunCounts {
    calls: SmallVec<[(u32, CommandCounter, u64); 4]>,
    errors: Vec<(Box<[u8]>, u64)>,
}

impl RunCounts {
    fn call(&mut self, id: u32, counter: CommandCounter) {
        match self.calls.iter_mut().find(|known| (known.0, known.1) == (id, counter)) {
            Some((_, _, n)) => *n += 1,
            None => self.calls.push((id, counter, 1)),
        }
    }
    fn error(&mut self, code: &[u8]) {
        match self.errors.iter_mut().find(|(known, _)| **known == *code) {
            Some((_, n)) => *n += 1,
            None => self.errors.push((code.into(), 1)),
        }
    }
    /// Adds the counts to the statistics of the worker `slot`.
    pub(crate) fn add_to(&self, stats: &Stats, slot: usize) {
        for (id, counter, n) in &self.calls {
            stats.count(slot, *id, *counter, *n);
            if *counter == CommandCounter::Calls {
                stats.add(slot, Stat::Commands, *n);
            }
        }
        for (code, n) in &self.errors {
            stats.add_errors(slot, code, *n);
        }
    }
}

impl ScriptRun<'_, '_> {
    /// Refuses to run a command, and counts the error. `spec` is `None` if there is no such command.
    pub(crate) fn refused(&mut self, spec: Option<&'static CommandSpec>, text: &str) -> CallOutcome {
        let code = text.split(' ').next().unwrap_or(text);
        self.counts.error(code.as_bytes());
        if let Some(spec) = spec {
            self.counts.call(self.engine.stats.ids.of(spec), CommandCounter::Rejected);
        }
        CallOutcome::Refused(text.into())
    }
    /// Counts a command that has run, with its time and its error.
    pub(super) fn count_call(
        &mut self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        began_ns: u64,
        error: Option<&[u8]>,
    ) {
        let id = self.engine.stats.ids.of(spec);
        self.counts.call(id, CommandCounter::Calls);
        if let Some(code) = error {
            self.counts.error(code);
            self.counts.call(id, CommandCounter::Failed);
        }
        let took_ns = self.engine.host.mono_ns().saturating_sub(began_ns);
        self.engine.note_lap(self.client, spec, args, self.now, took_ns);
    }
}
