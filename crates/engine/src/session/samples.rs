//! One command in some: whose key it was, what it took, what it moved ([`crate::diag::hot`]).

use super::Session;
use crate::Engine;
use crate::clients::Client;
use crate::diag::hot::{EVERY, KEYS_MAX};
use strand_commands::dispatch;
use strand_commands::spec::CommandSpec;
use strand_diag::sketch::Weight;
use strand_wire::args::Args;

impl Session {
    /// The command in hand, which has run and was timed by itself, is looked at.
    #[cold]
    pub(super) fn take_sample(&mut self, spec: &CommandSpec, took_ns: u64) {
        // One that was parked is looked at whatever its turn: it counts for itself.
        let weight = if self.postponed.is_some() { 1.0 } else { f64::from(EVERY) };
        self.sample.next = self.rng.u32(0..2 * EVERY - 1);
        let moved = self.frame_bytes.saturating_sub(self.input.len())
            + self.replies.out.len().saturating_sub(self.sample.out_bytes);
        let weight = Weight { count: 1.0, bytes: moved as f64, ns: took_ns as f64 }.part(weight);
        self.engine.add_sample(self.slot(), spec, self.argv.args(), self.db, &weight);
    }
}

impl Engine {
    /// A command has run on a helper thread.
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
        // Of a command with thousands of keys the positions alone would cost more than all else here.
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

/// Commands with more arguments are not looked at.
const ARGUMENTS_MAX: usize = 256;
