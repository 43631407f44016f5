//! The gates: the checks that may keep a command from running now. They look at the table's flags, and at a command's name
//! only where no flag says what matters.

use super::needs::Lane;
use super::phases::ParkReason;
use super::run::NextStep;
use super::session_command::{CommandKind, SessionCommand, kind_of};
use super::transaction::shards_of_queue;
use super::{RetryState, Session, State, Turn, script};
use crate::Now;
use crate::admission::Admission;
use crate::config::Opt;
use crate::memory::OUT_OF_MEMORY;
use crate::persist::{Adds, RETRY_US, Verdict};
use crate::scripts::busy_text;
use crate::tracking::TrackingFlags;
use smallvec::SmallVec;
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::dispatch::{self, Resolved};
use strand_commands::spec::{CommandSpec, Flags};
use strand_commands::wait::may_wait;
use strand_commands::{cost, run};
use strand_wire::args::Args;

/// The error of a client that must authenticate first.
pub(in crate::session) const NO_AUTH: &str = "NOAUTH Authentication required.";

/// The error while there is no connection to the primary (`replica-serve-stale-data no`).
const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

impl Session {
    /// The gates that few commands need. `Some`: the command does not run now.
    #[cold]
    pub(super) fn gate(&mut self, found: &Resolved, now: Now) -> Option<NextStep> {
        // As in redis-server, the invalidations of a client's own write come before the reply to its next command.
        let tracking = self.client.tracked.mode();
        if tracking.has(TrackingFlags::ON) && !tracking.has(TrackingFlags::BCAST) {
            self.deliver_messages();
            if matches!(self.state, State::Aborted) {
                return Some(NextStep::Stop(Turn::Abort));
            }
        }
        let flags = self.effective_flags(found.spec);
        if !self.retry.is_retry {
            self.retry = RetryState { caching: self.flags.caching, ..RetryState::default() };
        }
        if self.settings.is_stale(&self.engine) {
            self.refresh_settings();
            if self.identity.is_removed {
                return Some(NextStep::Stop(self.close()));
            }
        }
        if found.spec.flags.has(Flags::PROTECTED)
            && let Some(name) = self.forbidden_command(found.spec)
        {
            let option = name.to_ascii_lowercase();
            let text = format!(
                "ERR {name} command not allowed. If the enable-{option}-command option is set to \"local\", you can run it \
                 from a local connection, otherwise you need to set this option in the configuration file, and then \
                 restart the server."
            );
            return Some(self.reject(found.spec, text.as_bytes()));
        }
        if !self.identity.authenticated && self.settings.password && !flags.has(Flags::NO_AUTH) {
            return Some(self.reject(found.spec, NO_AUTH.as_bytes()));
        }
        let is_continuation = self.progress.is_under_way();
        let is_limited = self.is_guarded() && !self.identity.user.is_unrestricted();
        let is_granted = self.retry.is_granted;
        let is_long_check = is_limited && !is_granted && !is_continuation && self.is_long_check(found.spec);
        if is_limited
            && !is_granted
            && !is_long_check
            && !is_continuation
            && let Some(next) = self.refuse_if_denied(found.spec, now)
        {
            return Some(next);
        }
        if self.engine.persist.alerts() != 0
            && let Some(next) = self.persist_gate(found, flags, now)
        {
            return Some(next);
        }
        if self.is_in_subscriber_mode() && !is_allowed_to_subscribers(found.spec) {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
                 context",
                found.full_name()
            );
            return Some(self.reject(found.spec, text.as_bytes()));
        }
        // A reply would be a part of the stream.
        if self.is_replica() && kind_of(found.spec) != CommandKind::Replication {
            return Some(self.reject(found.spec, b"ERR Replica can't interact with the keyspace"));
        }
        // As in redis-server, a client in MONITOR counts as a replica.
        if self.is_monitor()
            && [Flags::WRITE, Flags::READONLY, Flags::MAY_REPLICATE].iter().any(|flag| flags.has(*flag))
        {
            return Some(self.reject(found.spec, b"ERR Replica can't interact with the keyspace"));
        }
        if self.engine.pause.is_set()
            && !self.is_replica()
            && let Some(until_mono_us) =
                self.engine.pause.waits_until(self.is_paused(found.spec), now.mono_us)
        {
            self.last_command = self.engine.stats.ids.of(found.spec);
            return Some(self.sleep_until(ParkReason::Pause, until_mono_us, now));
        }
        // This gate comes before the memory gate: nothing is evicted from shards that a script has.
        if self.engine.long_locks.any()
            && !self.queues(found.spec)
            && let Some(next) = self.long_lock_gate(found.spec, now)
        {
            return Some(next);
        }
        // This gate comes after the pause gate, because a pause freezes the data. As in redis-server, nothing is
        // evicted or denied during a pause.
        if flags.has(Flags::DENYOOM) && self.engine.memory.is_watched() {
            let bytes = self.request_bytes.saturating_sub(self.input.len());
            if self.engine.headroom.is_low()
                && let Some(until_mono_us) =
                    self.client.growth_limit.delay_until_us(bytes as u64, now.mono_us)
            {
                return Some(self.sleep_until(ParkReason::Memory, until_mono_us, now));
            }
        }
        // As in redis-server, no command is queued while memory is short, and MULTI and WATCH get this error, too.
        let in_multi = self.queues(found.spec)
            || self.queue.is_some() && matches!(kind_of(found.spec), CommandKind::Multi | CommandKind::Watch);
        let denies_oom = flags.has(Flags::DENYOOM) || in_multi;
        // A script waits for eviction as other commands do. Its own commands are refused if nothing can be evicted.
        if self.engine.memory.is_limited() && (denies_oom || self.runs_script_that_may_write(found.spec)) {
            let request_bytes = self.request_bytes.saturating_sub(self.input.len());
            let args = self.argv.args();
            let bytes = request_bytes.saturating_add(cost::string_bytes_needed(found.spec, args));
            match self.engine.admit(self.slot(), bytes, now) {
                Admission::Granted => {}
                Admission::Refused if !denies_oom => {}
                Admission::Later { at_us: until_mono_us } => {
                    return Some(self.sleep_until(ParkReason::Memory, until_mono_us, now));
                }
                Admission::Refused => return Some(self.reject(found.spec, OUT_OF_MEMORY.as_bytes())),
            }
        }
        if is_long_check {
            self.last_command = self.engine.stats.ids.of(found.spec);
            let may_leave = found.spec.exec.on_keys().is_some() || script::runs_script(found.spec);
            let lane = match may_leave && !self.queues(found.spec) {
                true => Lane::Unchecked,
                false => Lane::OnlyCheck(self.denial_context()),
            };
            return Some(self.send_to(lane, found.spec, now));
        }
        if self.queues(found.spec) {
            return Some(self.enqueue(found));
        }
        if self.engine.pubsub.is_congested()
            && self.may_publish(flags)
            && self.engine.pubsub.wait(&self.client)
        {
            self.park(ParkReason::Subscribers, now);
            return Some(NextStep::Stop(Turn::AwaitWake));
        }
        if self.engine.monitors.any() {
            self.send_to_monitors(found.spec, now);
        }
        self.remember_read_keys(found.spec);
        may_wait(found.spec, self.argv.args()).then(|| self.blocking(found.spec, now))
    }

    /// Parks the command, which is retried at this time on the clock of [`Now::mono_us`].
    fn sleep_until(&mut self, reason: ParkReason, until_mono_us: u64, now: Now) -> NextStep {
        self.park(reason, now);
        NextStep::Stop(Turn::Sleep { until_mono_us })
    }

    /// Parks the command, which is retried at this time, or later if many other commands are parked.
    fn retry_at(&mut self, reason: ParkReason, at_mono_us: u64, now: Now) -> NextStep {
        let until_mono_us = self.engine.retries.next(self.slot(), at_mono_us);
        self.sleep_until(reason, until_mono_us, now)
    }
    /// The gate for shards that are locked for long.
    fn long_lock_gate(&mut self, spec: &'static CommandSpec, now: Now) -> Option<NextStep> {
        let long_locks = &self.engine.long_locks;
        let shards = self.shards_of(spec);
        let waits = shards.as_ref().is_some_and(|shards| {
            long_locks.wait(shards.as_deref(), self.client.id, self.client.wake_handle())
        });
        let busy = match shards {
            Some(shards) if waits => long_locks.is_busy(shards.as_deref()),
            // The shards of these keys are known only while the command runs.
            _ if cost::may_read_other_keys(spec, self.argv.args()) => long_locks.is_busy(None),
            _ => None,
        };
        // A command that has waited for a key was accepted before the script was busy.
        if let Some(is_function) = busy.filter(|_| self.own_attempt.is_none()) {
            return Some(self.reject(spec, busy_text(is_function).as_bytes()));
        }
        waits.then(|| {
            self.park(ParkReason::Shard, now);
            NextStep::Stop(Turn::AwaitWake)
        })
    }

    /// The gate for loading, saving, failed saves, and indexes that are behind.
    fn persist_gate(&mut self, found: &Resolved, flags: Flags, now: Now) -> Option<NextStep> {
        let is_ping = kind_of(found.spec) == CommandKind::Ping;
        let is_queued = self.queues(found.spec);
        let adds = match is_queued {
            true => Adds::Nothing,
            false if self.runs_script_that_may_write(found.spec) => Adds::Writes,
            false if self.may_publish(flags) && self.engine.passes_messages_on() => Adds::Messages,
            false => Adds::Nothing,
        };
        match self.engine.persist.verdict(found.spec.flags, flags, adds, is_ping, now) {
            Verdict::Run if self.engine.is_data_stale() && self.needs_fresh_data(found.spec) => {
                Some(self.reject(found.spec, MASTER_DOWN.as_bytes()))
            }
            Verdict::Run
                if !is_queued
                    && self.engine.persist.awaits_indexes()
                    && self.changes_indexed_keys(found.spec) =>
            {
                Some(self.retry_at(ParkReason::Indexes, now.mono_us + RETRY_US, now))
            }
            Verdict::Run => None,
            Verdict::Refuse(text) => Some(self.reject(found.spec, text.as_bytes())),
            // A queued command does not wait now, but later as a part of EXEC.
            Verdict::RetryAt(_) if is_queued => None,
            Verdict::RetryAt(until_mono_us) => Some(self.retry_at(ParkReason::Snapshot, until_mono_us, now)),
            Verdict::EndSession => Some(NextStep::Stop(self.close())),
        }
    }

    /// The shards for which the gate looks for long locks: shards that the current command locks on the worker, or on a
    /// helper thread that does not look for long locks itself. `Some(None)`: all shards. `None`: no shard, or shards
    /// that are known only later.
    fn shards_of(&self, spec: &'static CommandSpec) -> Option<Option<SmallVec<[usize; 8]>>> {
        let (keyspace, args) = (&self.engine.keyspace, self.argv.args());
        if cost::locks_all(spec) || SessionCommand::of_row(spec).is_some_and(|own| (own.locks_shards)(args)) {
            return Some(None);
        }
        if let Some(queue) = &self.queue
            && kind_of(spec) == CommandKind::Exec
        {
            // A longer transaction runs on a helper thread, which makes the same check.
            let is_on_worker = !queue.is_broken && !queue.runs_on_lane();
            return is_on_worker.then(|| Some(shards_of_queue(keyspace, queue, &self.watch).into()));
        }
        let is_on_worker = self.elements(spec) <= LONG_ELEMENTS;
        let locks_keys = spec.exec.on_keys().is_some() || kind_of(spec) == CommandKind::Watch;
        (locks_keys && is_on_worker).then(|| {
            let keys = run::keys_of(spec, args, keyspace);
            Some(keys.iter().map(|key| keyspace.shard_of(key.hash)).collect())
        })
    }

    /// The flags of the current command. EXEC includes the flags of the queued commands. A script or function that
    /// declares its flags writes and needs memory unless it says otherwise, as in redis-server.
    pub(super) fn effective_flags(&self, spec: &'static CommandSpec) -> Flags {
        match &self.queue {
            Some(queue) if kind_of(spec) == CommandKind::Exec => Flags(spec.flags.0 | queue.flags),
            _ if script::runs_script(spec) => script::effective_flags(&self.engine, spec, self.argv.args()),
            _ => spec.flags,
        }
    }

    /// True when the current command runs a script that may write. EXEC includes the queued scripts.
    fn runs_script_that_may_write(&self, spec: &'static CommandSpec) -> bool {
        self.any_command(spec, |spec, args| self.is_script_that_may_write(spec, args))
    }
    fn is_script_that_may_write(&self, spec: &'static CommandSpec, args: Args<'_>) -> bool {
        script::runs_script(spec)
            && spec.flags.has(Flags::MAY_REPLICATE)
            && !script::declares_no_writes(&self.engine, spec, args)
    }

    /// True when the current command, a queued one, or the script that it runs, may change a key that an index follows. A
    /// script changes the keys that it declares, or unknown keys if it declares none.
    fn changes_indexed_keys(&self, spec: &'static CommandSpec) -> bool {
        // Only database 0 has indexes. These commands may change another database than the selected one.
        let is_select = |spec, _: Args<'_>| kind_of(spec) == CommandKind::Select;
        let may_be_first = self.db == 0 || self.any_command(spec, is_select);
        self.any_command(spec, |spec, args| {
            let is_script = self.is_script_that_may_write(spec, args);
            let may_write_to_first = may_be_first || matches!(spec.name, "move" | "copy");
            if !(is_script || spec.flags.has(Flags::WRITE) && may_write_to_first) {
                return false;
            }
            // A command with very many keys waits without a look at them.
            if args.len() > LONG_ELEMENTS {
                return true;
            }
            let keys = dispatch::keys_to_lock(spec, args);
            is_script && keys.is_empty() || keys.iter().any(|at| self.engine.keyspace.tracks(args.at(*at)))
        })
    }

    /// True when the current command, a queued one, or the script that it runs, must not run on stale data.
    fn needs_fresh_data(&self, spec: &'static CommandSpec) -> bool {
        let is_queued = self.queues(spec);
        let needs = |spec: &'static CommandSpec, args: Args<'_>| match script::runs_script(spec) {
            true => !is_queued && !script::declares_allow_stale(&self.engine, spec, args),
            false => !spec.flags.has(Flags::STALE),
        };
        needs(spec, self.argv.args()) || self.any_command(spec, needs)
    }

    /// True when the pause stops the current command. PAUSE ALL stops every command. As in redis-server, PAUSE WRITE stops
    /// writes, PUBLISH, PFCOUNT, every script that does not declare that it writes nothing, and EXEC of one of these.
    fn is_paused(&self, spec: &'static CommandSpec) -> bool {
        self.engine.pause.stops_all()
            || self.any_command(spec, |spec, args| {
                spec.flags.has(Flags::WRITE)
                    || (spec.flags.has(Flags::MAY_REPLICATE)
                        && !script::declares_no_writes(&self.engine, spec, args))
            })
    }

    /// True when `is_such` is true for the current command or, if it is EXEC, for a queued command.
    fn any_command(
        &self,
        spec: &'static CommandSpec,
        is_such: impl Fn(&'static CommandSpec, Args<'_>) -> bool,
    ) -> bool {
        match &self.queue {
            Some(queue) if kind_of(spec) == CommandKind::Exec => {
                queue.commands.iter().any(|queued| is_such(queued.spec, queued.argv.args()))
            }
            _ => is_such(spec, self.argv.args()),
        }
    }

    /// Remembers the keys that the current command is about to read, if the client keeps copies.
    fn remember_read_keys(&mut self, spec: &'static CommandSpec) {
        if self.client.tracked.mode() == TrackingFlags::OFF {
            return;
        }
        let args = self.argv.args();
        if args.len() > LONG_ELEMENTS {
            // The command runs on a helper thread and remembers its keys there.
            return;
        }
        self.engine.remember(&self.client, self.flags.caching, spec, args);
        let keeps_flag = match kind_of(spec) {
            // CLIENT CACHING applies to the next command that is not a CLIENT command, and to a transaction as a
            // whole.
            CommandKind::Multi | CommandKind::Exec => true,
            // These commands use the flag again: a script for its commands, a blocking command when it is served.
            CommandKind::Script(_) => true,
            _ if may_wait(spec, args) => true,
            _ => args.is(0, "CLIENT"),
        };
        self.flags.caching &= keeps_flag;
    }
    /// True when a command with these flags may send messages to subscribers.
    fn may_publish(&self, flags: Flags) -> bool {
        let publishes = flags.has(Flags::PUBSUB) && !flags.has(Flags::NOSCRIPT);
        publishes
            || flags.has(Flags::all(&[Flags::MAY_REPLICATE, Flags::NOSCRIPT]))
            || (flags.has(Flags::WRITE) && self.engine.keyspace.has_listener())
    }
    /// The name of a protected command that this client may not call: DEBUG or MODULE.
    fn forbidden_command(&self, spec: &CommandSpec) -> Option<&'static str> {
        let (name, option) = match kind_of(spec) {
            CommandKind::Debug => ("DEBUG", Opt::EnableDebugCommand),
            _ => ("MODULE", Opt::EnableModuleCommand),
        };
        let allowed = match self.engine.config.number(option) {
            0 => false,
            1 => true,
            _ => self.client.peer.local,
        };
        (!allowed).then_some(name)
    }
}

/// True for the commands that RESP2's subscriber mode allows.
fn is_allowed_to_subscribers(spec: &CommandSpec) -> bool {
    SessionCommand::of_row(spec).is_some_and(|own| own.allowed_to_subscribers)
}
