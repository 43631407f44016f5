//! What a command waits for before it runs: [`Postponed`] while it does, [`Waits`] when it has run.
//!
//! A command's time has four phases. *Queued*: for a helper thread. *Parked*: for somebody else (a shard that a long command
//! holds, a pause, memory, the disk). *Executing*. *Flushing*: for the client to take its reply. The first two are rare, and only
//! who waits pays for telling it; executing is timed by [`super::laps`]; flushing the driver tells.

use super::{Session, State};
use crate::clients::Client;
use crate::timing::Event;
use crate::{Engine, Now};
use std::sync::Arc;
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;

/// What a command is parked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// A shard that somebody holds for long.
    Shard,
    /// CLIENT PAUSE.
    Pause,
    /// Room under `maxmemory`.
    Memory,
    /// Subscribers who take messages more slowly than they come.
    Subscribers,
    /// A snapshot that must not keep more, or data that is being loaded.
    Snapshot,
    /// `appendfsync always`: the reply waits, the command has run.
    Disk,
}

impl On {
    /// The name, for readers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            On::Shard => "shard",
            On::Pause => "pause",
            On::Memory => "memory",
            On::Subscribers => "subscribers",
            On::Snapshot => "snapshot",
            On::Disk => "disk",
        }
    }
}

/// A command that does not run yet.
#[derive(Clone, Debug)]
pub(crate) struct Postponed {
    since_us: u64,
    on: On,
    /// Who holds what it waits for, where that is known.
    holder: Option<Arc<str>>,
}

/// What a command has waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Microseconds until a helper thread took it.
    pub(crate) queued_us: u64,
    /// Microseconds that it was parked.
    pub(crate) parked_us: u64,
    /// On what, if it was.
    pub(crate) on: Option<&'static str>,
    /// Who held that.
    pub(crate) holder: Option<Arc<str>>,
}

impl Waits {
    /// Of a command that was parked until now, if it was.
    pub(crate) fn of(postponed: Option<&Postponed>, now: Now) -> Waits {
        let Some(postponed) = postponed else { return Waits::default() };
        Waits {
            queued_us: 0,
            parked_us: now.mono_us.saturating_sub(postponed.since_us),
            on: Some(postponed.on.name()),
            holder: postponed.holder.clone(),
        }
    }
}

impl Session {
    /// The command in hand waits for something; it is tried again when the session is woken.
    #[cold]
    pub(super) fn postpone(&mut self, on: On, now: Now) {
        self.state = State::Postponed;
        if self.postponed.is_none() {
            let holder = self.engine.long_locks.holder_for(self.client.id).filter(|_| on == On::Shard);
            self.postponed = Some(Box::new(Postponed { since_us: now.mono_us, on, holder }));
            // So that it is timed by itself when it runs.
            self.sample.next = 0;
        }
    }
    /// How long the command in hand has been parked.
    pub(super) fn postponed_us(&self, now: Now) -> u64 {
        self.postponed.as_ref().map_or(0, |postponed| now.mono_us.saturating_sub(postponed.since_us))
    }
    /// A command that was parked has run, or goes to a helper thread.
    #[cold]
    pub(super) fn was_parked(&mut self, now: Now) {
        if matches!(self.state, State::Postponed) {
            return;
        }
        if let Some(postponed) = self.postponed.take() {
            self.engine.note_parked(self.last_command, &Waits::of(Some(&postponed), now));
        }
    }
    /// The replies of the last commands have waited for the disk since `since_us`.
    #[cold]
    pub(super) fn has_awaited_disk(&mut self, now: Now) {
        let since_us = std::mem::take(&mut self.disk.since_us);
        let postponed = Postponed { since_us, on: On::Disk, holder: None };
        self.engine.note_parked(self.last_command, &Waits::of(Some(&postponed), now));
    }
}

impl Engine {
    /// A command was parked.
    pub(super) fn note_parked(&self, id: u32, waits: &Waits) {
        self.stats.parked.add(0, id, waits.parked_us * 1000, 1);
    }
    /// A command of `client` has waited before it ran: it is noted when that was long, whatever it took then.
    #[cold]
    pub(crate) fn note_waits(
        &self,
        client: &Client,
        spec: &CommandSpec,
        args: Args<'_>,
        now: Now,
        waits: &Waits,
    ) {
        for (event, us) in [(Event::CommandQueued, waits.queued_us), (Event::CommandParked, waits.parked_us)]
        {
            self.stats.events.note(event, us, now.unix_s());
        }
        let long = waits.queued_us.max(waits.parked_us);
        if self.slow_log.is_slow(long) && !spec.flags.has(Flags::SKIP_SLOWLOG) {
            self.slow_log.note_wait(client, args, now, waits);
        }
    }
    /// The socket of `client` has taken what it would not take for so long: from the driver.
    pub fn flushed(&self, client: u64, took_us: u64) {
        self.stats.flushing.add(took_us * 1000, 1);
        self.slow_log.note_flushing(client, took_us);
    }
}
