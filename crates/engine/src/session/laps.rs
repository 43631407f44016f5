//! Execution times of commands: [`Laps`] reads the clock between two commands.
//!
//! A reading of the clock costs about 20 ns, a fiftieth of a GET in a pipeline. So consecutive calls of one command
//! with constant cost share a reading: up to [`LAPS_MAX`] of them are timed together, and each counts with the mean.
//! A pipeline of GETs pays 1 to 2 ns per command for this. Where every fifth command is a SET, two in three share a
//! reading and a command pays 7 ns (0.7 % of its time). A command that may be slow is always timed alone. The reading
//! at its end is also the start of the next command.

use super::Session;
use super::phases::Waits;
use crate::clients::Client;
use crate::{Engine, Now};
use strand_commands::cost::{Cost, QUICK_ARGUMENTS, is_quick};
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_wire::args::Args;

/// Maximum number of commands that are timed together.
const LAPS_MAX: u32 = 16;

/// The commands that have begun since the last reading of the clock.
#[derive(Debug, Default)]
pub(super) struct Laps {
    began_ns: u64,
    /// True when the clock was read at the end of the last command, and no other work has come since.
    is_fresh: bool,
    id: u32,
    n: u32,
}

impl Laps {
    /// Starts command `id`. `alone`: it is timed alone.
    #[inline]
    pub(super) fn begin(&mut self, engine: &Engine, slot: usize, id: u32, alone: bool, now: Now) {
        if self.n > 0 && self.id == id && self.n < LAPS_MAX && !alone {
            self.n += 1;
        } else {
            self.begin_another(engine, slot, id, now);
        }
    }
    #[inline(never)]
    fn begin_another(&mut self, engine: &Engine, slot: usize, id: u32, now: Now) {
        if self.n > 0 {
            self.end(engine, slot, now);
        } else if !self.is_fresh {
            self.began_ns = engine.host.mono_ns();
        }
        engine.diag.turn_watch.set_command(slot, id);
        (self.id, self.n) = (id, 1);
    }
    /// Removes the last command that began: it is retried later or runs elsewhere.
    pub(super) fn take_back(&mut self) {
        self.n = self.n.saturating_sub(1);
        self.is_fresh = false;
    }
    /// Ends all commands that have begun. Returns the time of a single command in nanoseconds, and `None` for
    /// several.
    #[inline(never)]
    pub(super) fn end(&mut self, engine: &Engine, slot: usize, now: Now) -> Option<u64> {
        let ended_ns = engine.host.mono_ns();
        let (took_ns, n) = (ended_ns.saturating_sub(self.began_ns), std::mem::take(&mut self.n));
        (self.began_ns, self.is_fresh) = (ended_ns, true);
        engine.stats.record_calls(slot, self.id, n.into(), took_ns, unix_s(ended_ns, now));
        (n == 1).then_some(took_ns)
    }
    /// Does what [`Laps::end`] does, and records the command if it was slow. Call this while the command's arguments
    /// exist.
    pub(super) fn end_noted(
        &mut self,
        engine: &Engine,
        client: &Client,
        spec: &CommandSpec,
        args: Args<'_>,
        now: Now,
    ) {
        if let Some(took_ns) = self.end(engine, client.peer.worker, now) {
            engine.note_slow(client, spec, args, now, took_ns / 1000, Waits::default());
        }
    }
    /// Ends the timing because other work comes before the next command.
    pub(super) fn pause(&mut self, engine: &Engine, slot: usize, now: Now) {
        if self.n > 0 {
            self.end(engine, slot, now);
        }
        self.is_fresh = false;
    }
}

/// The unix time at which the monotonic clock showed `mono_ns`, computed from both clocks at the beginning of the
/// turn.
fn unix_s(mono_ns: u64, now: Now) -> i64 {
    let later_us = (mono_ns / 1000).saturating_sub(now.mono_us);
    now.unix_us.saturating_add_unsigned(later_us).div_euclid(1_000_000)
}

/// True when a command with these arguments may be slow and is timed alone.
pub(super) fn may_be_slow(spec: &CommandSpec, args: Args<'_>) -> bool {
    match spec.exec {
        Exec::Session(_) => !spec.flags.has(Flags::FAST),
        Exec::Inline(_) | Exec::Estimated(..) => match spec.cost() {
            Cost::Arguments => args.len() > QUICK_ARGUMENTS,
            _ => !is_quick(spec, args),
        },
        _ => true,
    }
}

impl Engine {
    /// Records a slow command of `client`.
    pub(super) fn note_slow(
        &self,
        client: &Client,
        spec: &CommandSpec,
        args: Args<'_>,
        now: Now,
        took_us: u64,
        waits: Waits,
    ) {
        if self.slow_log.is_slow(took_us) && !spec.flags.has(Flags::SKIP_SLOWLOG) {
            self.slow_log.note(&self.config, client, args, now, took_us, waits);
        }
    }
    /// Records the time of a command of `client` that was timed alone.
    pub(crate) fn note_lap(
        &self,
        client: &Client,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
        took_ns: u64,
    ) {
        self.note_waited_lap(client, spec, args, now, took_ns, Waits::default());
    }
    /// Does what `note_lap` does, for a command that waited before it ran.
    pub(super) fn note_waited_lap(
        &self,
        client: &Client,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
        took_ns: u64,
        waits: Waits,
    ) {
        let unix_s = now.unix_us.saturating_add_unsigned(took_ns / 1000).div_euclid(1_000_000);
        self.stats.record_calls(client.peer.worker, self.stats.ids.of(spec), 1, took_ns, unix_s);
        self.note_slow(client, spec, args, now, took_ns / 1000, waits);
    }
}

impl Session {
    /// Starts the current command. Returns true when its time is measured alone.
    // Always inlined, like `Table::resolve`.
    #[inline(always)]
    pub(super) fn begin_lap(&mut self, spec: &CommandSpec, now: Now) -> bool {
        let bytes = self.request_bytes - self.input.len();
        self.sample.next = self.sample.next.saturating_sub(1);
        self.sample.out_bytes = self.replies.out.len();
        let alone = self.sample.is_on()
            || bytes > self.settings.shared_lap_bytes_max
            || may_be_slow(spec, self.argv.args());
        self.laps.begin(&self.engine, self.client.peer.worker, self.last_command, alone, now);
        alone
    }
    /// Ends the current command while its arguments exist.
    #[inline(never)]
    pub(super) fn end_lap(&mut self, spec: &CommandSpec, now: Now) {
        let Some(took_ns) = self.laps.end(&self.engine, self.client.peer.worker, now) else { return };
        let is_looked_at = self.sample.is_on() || self.parked.is_some();
        if is_looked_at || self.engine.slow_log.is_slow(took_ns / 1000) {
            self.record_lap(spec, took_ns, now);
        }
    }
    /// Handles the current command if it was slow, has waited, or is a sample.
    #[cold]
    fn record_lap(&mut self, spec: &CommandSpec, took_ns: u64, now: Now) {
        let args = self.argv.args();
        let waits = Waits::of(self.parked.as_deref(), now);
        if waits.reason.is_some() {
            self.engine.note_waits(&self.client, spec, args, now, &waits);
        }
        self.engine.note_slow(&self.client, spec, args, now, took_ns / 1000, waits);
        if self.sample.is_on() {
            self.take_sample(spec, took_ns);
        }
    }
}
