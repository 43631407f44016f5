//! The phases of a command before it runs: [`Parked`] during a wait, [`Waits`] after the run.
//!
//! A command's time has four phases. *Queued*: waiting for a helper thread. *Parked*: waiting for another cause (a
//! shard under a long lock, a pause, memory, the disk). *Executing*. *Flushing*: waiting until the client takes the
//! reply. The first two phases are rare, and only a waiting command pays for their record. [`super::laps`] times the
//! execution, and the driver reports the flushing.

use super::{Session, State};
use crate::clients::Client;
use crate::timing::Event;
use crate::{Engine, Now};
use std::sync::Arc;
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;

/// Why a command was parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkReason {
    /// The command needs a shard that is under a long lock.
    Shard,
    /// The command waits for the end of CLIENT PAUSE.
    Pause,
    /// The command waits for memory below `maxmemory`.
    Memory,
    /// The command waits for subscribers, which take messages more slowly than the messages arrive.
    Subscribers,
    /// The command waits for a snapshot that is over its memory budget, or for the loading of data.
    Snapshot,
    /// The command would change an indexed key, and many changed keys wait to be indexed.
    Indexes,
    /// The command has run, and its reply waits for the disk (`appendfsync always`). Also WAITAOF.
    Disk,
    /// The command waits for a key: BLPOP and related commands, XREAD and XREADGROUP with BLOCK.
    Keys,
    /// WAIT: the command waits for a replica, or for its timeout.
    Replicas,
    /// AUTH or HELLO waits because many logins have failed.
    Logins,
    /// SHUTDOWN waits for the last save and for replicas.
    Shutdown,
}

/// Number of reasons in [`ParkReason`].
pub(crate) const PARK_REASONS: usize = ParkReason::ALL.len();

impl ParkReason {
    /// All reasons, in the order of their numbers.
    pub(crate) const ALL: [ParkReason; 11] = [
        ParkReason::Shard,
        ParkReason::Pause,
        ParkReason::Memory,
        ParkReason::Subscribers,
        ParkReason::Snapshot,
        ParkReason::Indexes,
        ParkReason::Disk,
        ParkReason::Keys,
        ParkReason::Replicas,
        ParkReason::Logins,
        ParkReason::Shutdown,
    ];
    /// The name of the reason, as users see it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ParkReason::Shard => "shard",
            ParkReason::Pause => "pause",
            ParkReason::Memory => "memory",
            ParkReason::Subscribers => "subscribers",
            ParkReason::Snapshot => "snapshot",
            ParkReason::Indexes => "indexes",
            ParkReason::Disk => "disk",
            ParkReason::Keys => "keys",
            ParkReason::Replicas => "replicas",
            ParkReason::Logins => "logins",
            ParkReason::Shutdown => "shutdown",
        }
    }
}

/// A command that waits to run.
pub(crate) struct Parked {
    since_us: u64,
    reason: ParkReason,
    /// The holder of the shard, where known.
    holder: Option<Arc<str>>,
    /// As in redis-server, a client that CLIENT PAUSE or SHUTDOWN keeps waiting counts as a blocked client.
    counted: Option<CountedAsBlocked>,
}

impl Parked {
    /// True when CLIENT PAUSE keeps the client waiting.
    pub(super) fn is_pause(&self) -> bool {
        self.reason == ParkReason::Pause
    }
    /// The wait of a command that goes to a helper thread. Its client no longer counts as blocked.
    pub(super) fn handed_over(mut self: Box<Self>) -> Box<Self> {
        self.counted = None;
        self
    }
    fn new(since_us: u64, reason: ParkReason) -> Parked {
        Parked { since_us, reason, holder: None, counted: None }
    }
}

/// Counts a client as blocked until this is dropped.
struct CountedAsBlocked(Arc<Engine>);

impl CountedAsBlocked {
    fn begin(engine: &Arc<Engine>) -> CountedAsBlocked {
        engine.clients.count_blocked(false);
        CountedAsBlocked(engine.clone())
    }
}

impl Drop for CountedAsBlocked {
    fn drop(&mut self) {
        self.0.clients.uncount_blocked(false);
    }
}

/// The times that a command waited before it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// Microseconds until a helper thread took the command.
    pub(crate) queued_us: u64,
    /// Microseconds for which the command was parked.
    pub(crate) parked_us: u64,
    /// The reason why the command was parked, if it was.
    pub(crate) reason: Option<ParkReason>,
    /// The holder of the shard, where known.
    pub(crate) holder: Option<Arc<str>>,
}

impl Waits {
    /// The name of what the command waited for, if the command was parked.
    pub(crate) fn reason_name(&self) -> Option<&'static str> {
        self.reason.map(ParkReason::name)
    }
    /// The waits of a command that may have been parked until now.
    pub(crate) fn of(parked: Option<&Parked>, now: Now) -> Waits {
        let Some(parked) = parked else { return Waits::default() };
        Waits {
            queued_us: 0,
            parked_us: now.mono_us.saturating_sub(parked.since_us),
            reason: Some(parked.reason),
            holder: parked.holder.clone(),
        }
    }
}

impl Session {
    /// Parks the current command. The command is retried when the session is woken.
    #[cold]
    pub(super) fn park(&mut self, reason: ParkReason, now: Now) {
        self.state = State::Parked;
        // The wait for a key is over. A wait for the server begins, and its duration is measured from now.
        if let Some(keys) = self.parked.take_if(|parked| parked.reason == ParkReason::Keys) {
            self.engine.note_parked(self.last_command, &Waits::of(Some(&keys), now));
        }
        if self.parked.is_none() {
            let holder =
                self.engine.long_locks.holder_for(self.client.id).filter(|_| reason == ParkReason::Shard);
            let is_counted = matches!(reason, ParkReason::Pause | ParkReason::Shutdown);
            let counted = is_counted.then(|| CountedAsBlocked::begin(&self.engine));
            self.parked = Some(Box::new(Parked { since_us: now.mono_us, reason, holder, counted }));
            // This makes the command a sample, so that it is timed alone.
            self.sample.next = 0;
        }
    }
    /// Records that the current command has waited for a key since `since_us` and now makes an attempt itself. A wait
    /// that is already recorded continues.
    pub(super) fn record_key_wait(&mut self, since_us: u64) {
        self.parked.get_or_insert_with(|| Box::new(Parked::new(since_us, ParkReason::Keys)));
    }
    /// When the wait of the current command began, if it waits.
    pub(super) fn postponed_since_us(&self) -> Option<u64> {
        self.parked.as_ref().map(|parked| parked.since_us)
    }
    /// Records a wait of a blocked command that ends now. With `args`, the wait is also entered in the
    /// slow log. A wait for keys is counted only, because the client asked for the wait.
    #[cold]
    pub(super) fn record_block(
        &mut self,
        spec: &'static CommandSpec,
        args: Option<Args<'_>>,
        reason: ParkReason,
        since_us: u64,
        now: Now,
    ) {
        let waits = Waits::of(Some(&Parked::new(since_us, reason)), now);
        self.engine.note_parked(self.engine.stats.ids.of(spec), &waits);
        if let Some(args) = args {
            self.engine.note_waits(&self.client, spec, args, now, &waits);
        }
    }
    /// How long the current command has been parked so far.
    pub(super) fn postponed_us(&self, now: Now) -> u64 {
        self.parked.as_ref().map_or(0, |parked| now.mono_us.saturating_sub(parked.since_us))
    }
    /// Call this when a parked command has run or goes to a helper thread.
    #[cold]
    pub(super) fn record_park(&mut self, now: Now) {
        match self.state {
            State::Parked => return,
            // The wait for a key goes on, and is counted at its end.
            State::Blocked(_) => self.parked = None,
            _ => {}
        }
        if let Some(parked) = self.parked.take() {
            self.engine.note_parked(self.last_command, &Waits::of(Some(&parked), now));
        }
    }
    /// Records that the replies of the last commands have waited for the disk since `disk.since_us`.
    #[cold]
    pub(super) fn record_disk_wait(&mut self, now: Now) {
        let since_us = std::mem::take(&mut self.disk.since_us);
        let parked = Parked::new(since_us, ParkReason::Disk);
        self.engine.note_parked(self.last_command, &Waits::of(Some(&parked), now));
    }
}

impl Engine {
    /// Counts a parked command.
    pub(super) fn note_parked(&self, id: u32, waits: &Waits) {
        self.stats.parked.add(0, id, waits.parked_us * 1000, 1);
        if let Some(reason) = waits.reason {
            self.stats.record_park_reason(reason, waits.parked_us);
        }
    }
    /// Records a command of `client` that waited for long before it ran.
    #[cold]
    pub(crate) fn note_waits(
        &self,
        client: &Client,
        spec: &CommandSpec,
        args: Args<'_>,
        now: Now,
        waits: &Waits,
    ) {
        // A client that waits for a key asked for that wait.
        let parked_us = if waits.reason == Some(ParkReason::Keys) { 0 } else { waits.parked_us };
        for (event, us) in [(Event::CommandQueued, waits.queued_us), (Event::CommandParked, parked_us)] {
            self.stats.events.note(event, us, now.unix_s());
        }
        let long = waits.queued_us.max(parked_us);
        if self.slow_log.is_slow(long) && !spec.flags.has(Flags::SKIP_SLOWLOG) {
            self.slow_log.note_wait(client, args, now, waits);
        }
    }
    /// Called by the driver when the socket of `client` has accepted its output after `took_us`.
    pub fn flushed(&self, client: u64, took_us: u64) {
        self.stats.flushing.add(took_us * 1000, 1);
        self.slow_log.note_flushing(client, took_us);
    }
}
