//! Samples of commands: the key, the duration, the moved bytes ([`crate::diag::hot`]).

use super::Session;
use crate::Engine;
use crate::clients::Client;
use crate::diag::hot::{COMMANDS_PER_SAMPLE, KEYS_MAX};
use strand_commands::dispatch;
use strand_commands::spec::CommandSpec;
use strand_diag::sketch::Weight;
use strand_wire::args::Args;

impl Session {
    /// Takes a sample of the current command, which has run and was timed alone.
    #[cold]
    pub(super) fn take_sample(&mut self, spec: &CommandSpec, took_ns: u64) {
        // A parked command is always sampled, so it counts as one command and not as [`COMMANDS_PER_SAMPLE`] commands.
        let weight = if self.parked.is_some() { 1.0 } else { f64::from(COMMANDS_PER_SAMPLE) };
        self.sample.next = self.rng.u32(1..2 * COMMANDS_PER_SAMPLE);
        let moved = self.request_bytes.saturating_sub(self.input.len())
            + self.replies.out.len().saturating_sub(self.sample.out_bytes);
        let weight = Weight { count: 1.0, bytes: moved as f64, ns: took_ns as f64 }.part(weight);
        self.engine.add_sample(self.slot(), spec, self.argv.args(), self.db, &weight);
    }
}

impl Engine {
    /// Samples a command that ran on a helper thread.
    pub(super) fn sample_long(
        &self,
        client: &Client,
        spec: &CommandSpec,
        args: Args<'_>,
        db: usize,
        took_ns: u64,
        bytes: usize,
    ) {
        let weight = Weight { count: 1.0, bytes: bytes as f64, ns: took_ns as f64 };
        self.add_sample(client.peer.worker, spec, args, db, &weight);
    }
    fn add_sample(&self, slot: usize, spec: &CommandSpec, args: Args<'_>, db: usize, weight: &Weight) {
        // For a command with thousands of keys, finding their positions would cost more than the rest.
        if spec.keys.is_empty() || args.len() > ARGUMENTS_MAX {
            return;
        }
        let positions = dispatch::keys_to_lock(spec, args);
        let each = weight.part(1.0 / positions.len().max(1) as f64);
        let each = Weight { count: weight.count, ..each };
        for at in positions.iter().take(KEYS_MAX) {
            self.diag.hot.add(slot, db, args.at(*at), &each);
        }
    }
}

/// Commands with more arguments are not sampled.
const ARGUMENTS_MAX: usize = 256;
