//! A turn: decode, find the row, check the gates ([`super::gates`]), lock, call the handler, and repeat within
//! bounds.
//!
//! Every command passes this code, so it is short: no shared counter, one lock, and clock readings shared by
//! neighbouring commands ([`super::laps`]). Gates look only at the table's flags, never at the command's name.

use super::blocked::KeylessWait;
use super::data::DataOutcome;
use super::multi::abort_text;
use super::needs::Lane;
use super::phases::ParkReason;
use super::session_command::{CommandKind, SessionCommand, kind_of};
use super::{COMMANDS_PER_TURN_MAX, LoginWait, Session, State, Turn, script};
use crate::monitors::Caller;
use crate::stats::{CommandCounter, Stat};
use crate::tracking::TrackingFlags;
use crate::{Now, TABLE};
use strand_commands::call::ServiceOutcome;
use strand_commands::cost::{LONG_ELEMENTS, is_quick};
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_wire::resp::{Decoded, UNAUTHENTICATED_REQUEST_BYTES_MAX};

/// Work budget of a turn, in elements (see [`strand_commands::cost::Cost`]). Other work is converted to elements. The
/// budget bounds every turn to one or two milliseconds.
const WORK_PER_TURN: isize = 2 * LONG_ELEMENTS as isize;
/// Number of elements that every command counts as, at least.
const COMMAND_WORK: isize = WORK_PER_TURN / COMMANDS_PER_TURN_MAX as isize;
/// Bytes of a reply about the server that count as one element, because the reply is formatted text.
const TEXT_BYTES_PER_ELEMENT: usize = 16;

/// Maximum memory for arguments that an idle session keeps, in bytes. Thousands of sessions may be idle at once.
const IDLE_ARGV_BYTES_MAX: usize = 4096;

/// After a larger command the host gets the replaced values at once, not at the next tick. Otherwise a client that
/// overwrites large values in a loop would fill the memory between two ticks.
const RECLAIM_AT_ONCE_BYTES: usize = 1 << 20;

/// What the session does after a command.
pub(super) enum NextStep {
    /// The session runs the next command.
    Continue,
    /// The turn ends. The session's state says why.
    Stop(Turn),
    /// The command moves to a helper thread. Only from a session's command.
    Detach,
    /// A shard of the command is under a long lock. The session retries the command after a wake-up.
    ShardLocked,
    /// A part of the command is done. The next part runs in the next turn. Only a session's own command returns this.
    Yield,
    /// The command waits for this cause and is retried at this time, on the clock of [`Now::mono_us`]. Only from a
    /// session's command.
    Park(ParkReason, u64),
    /// A wait that no key ends. Only from a session's command.
    Block(KeylessWait),
}

impl Session {
    /// Executes a bounded number of the held requests. May be called at any time: it does nothing while the session
    /// waits for something else.
    pub fn run(&mut self, now: Now) -> Turn {
        if self.client.is_killed() {
            self.abort();
        }
        if self.disk.offset.is_some() && self.is_waiting_for_disk() {
            return Turn::AwaitWake;
        }
        if self.disk.since_us > 0 {
            self.record_disk_wait(now);
        }
        if self.settings.is_stale(&self.engine) {
            self.refresh_settings();
        }
        if self.identity.is_removed && !self.awaits_admin() {
            match self.state {
                State::OnLane { .. } => self.abort(),
                State::Closing | State::Aborted => {}
                // The last reply may say why the session ends.
                _ => _ = self.close(),
            }
        }
        if self.meter.active && self.replica.is_some() {
            self.hear_replica(now);
        }
        // A client that reads its queued output is not idle. Writing the last reply does not show that the client
        // reads.
        let reads = !self.replies.out.is_empty() || matches!(self.state, State::Draining);
        if std::mem::take(&mut self.meter.active) || (reads && self.replies.out.len() < self.output.unwritten)
        {
            self.last_active_us = now.mono_us;
        } else if self.timeout_deadline_us().is_some_and(|deadline| now.mono_us >= deadline) {
            self.engine.stats.add(self.slot(), Stat::IdleCloses, 1);
            self.abort_because("idle for too long");
        }
        if !matches!(self.login_wait, LoginWait::Nothing) {
            self.check_login_timeout(now);
        }
        let out_before = self.replies.out.len();
        self.catch_up_with_changes();
        self.deliver_messages();
        if self.replica.is_some() {
            self.take_stream();
        }
        self.engine.diag.turn_watch.begin_turn(self.client.peer.worker, self.client.id, now.mono_us);
        let turn = self.run_commands(now);
        self.engine.diag.turn_watch.end_turn(self.client.peer.worker);
        self.laps.pause(&self.engine, self.client.peer.worker, now);
        // A command that ends the session has also written a reply.
        self.replies.seal();
        let turn = self.check_output(turn, now);
        self.output.unwritten = self.replies.out.len();
        self.end_turn(self.replies.out.len() - out_before);
        if self.engine.persist.aof.gates.is_on() && !self.replies.out.is_empty() {
            self.hold_replies(turn, now)
        } else {
            turn
        }
    }

    /// `appendfsync always`: the writes that the turn made or read may not be on the disk yet. Until they are, no
    /// reply leaves and the session executes nothing.
    #[cold]
    fn hold_replies(&mut self, turn: Turn, now: Now) -> Turn {
        if matches!(turn, Turn::Abort) {
            return turn;
        }
        self.disk.offset = Some(self.engine.keyspace.journal().tail());
        match turn {
            _ if !self.is_waiting_for_disk() => turn,
            // The job runs during the wait.
            Turn::Lane(job) => Turn::Lane(job),
            _ => {
                self.disk.since_us = now.mono_us;
                Turn::AwaitWake
            }
        }
    }
    #[cold]
    fn is_waiting_for_disk(&mut self) -> bool {
        let gates = &self.engine.persist.aof.gates;
        let wake = || self.client.wake_handle();
        let waits = self.disk.offset.is_some_and(|offset| gates.wait(offset, self.client.id, wake()));
        if !waits || matches!(self.state, State::Aborted) {
            self.disk.offset = None;
        }
        self.disk.offset.is_some()
    }

    /// Ends the session when `login-timeout` has passed.
    #[cold]
    fn check_login_timeout(&mut self, now: Now) {
        let has_begun = self.request_bytes > 0 && !self.must_log_in();
        if has_begun && matches!(self.login_wait, LoginWait::Login { .. }) {
            self.login_wait = LoginWait::Head { since_us: now.mono_us };
        }
        if self.login_deadline_us().is_some_and(|deadline| now.mono_us >= deadline) {
            self.engine.stats.add(self.slot(), Stat::IdleCloses, 1);
            self.abort_because("no login in time");
        }
    }

    /// Lifts the bound on unwritten output when the client has stopped reading and waits until the server takes more
    /// requests. Returns true then. Until the client has read everything, only the configured limits bound its output.
    #[cold]
    fn lift_bound_if_stalled(&mut self, now: Now) -> bool {
        if self.replies.out.len() < self.output.unwritten {
            self.output.stalled_since_us = now.mono_us;
        }
        if self.stall_deadline_us().is_none_or(|deadline| now.mono_us < deadline) {
            return false;
        }
        self.output.bytes_max = usize::MAX;
        true
    }

    fn run_commands(&mut self, now: Now) -> Turn {
        if self.output.bytes_max == usize::MAX && self.replies.out.is_empty() {
            self.update_guard();
        }
        let drains = matches!(self.state, State::Draining) && !self.output_drained();
        if drains && !self.lift_bound_if_stalled(now) {
            return Turn::Flush;
        }
        match self.state {
            State::Ready => {}
            State::Draining => self.state = State::Ready,
            State::Parked => {
                self.state = State::Ready;
                self.last_active_us = now.mono_us;
                self.retry.is_retry = true;
                if self.client.tracked.mode() != TrackingFlags::OFF {
                    self.flags.caching |= self.retry.caching;
                }
                let next = self.execute(now);
                self.retry.is_retry = false;
                self.record_park(now);
                self.engine.long_locks.client_has_run(self.client.id);
                self.end_own_attempt();
                if let NextStep::Stop(turn) = next {
                    return turn;
                }
            }
            State::Blocked(_) => {
                if let Some(turn) = self.check_ticket(now) {
                    return turn;
                }
            }
            State::Sleeping { until_us } if now.mono_us < until_us => {
                return Turn::Sleep { until_mono_us: until_us };
            }
            State::Sleeping { .. } => {
                self.state = State::Ready;
                self.last_active_us = now.mono_us;
                self.reply().ok();
                self.end_command();
            }
            State::ExecResumes(_) => {
                if let State::ExecResumes(transaction) = std::mem::replace(&mut self.state, State::Ready)
                    && let NextStep::Stop(turn) = self.resume_exec(*transaction, now)
                {
                    return turn;
                }
                // A command of the transaction may have removed the session's user.
                if self.identity.is_removed {
                    return self.close();
                }
            }
            State::OnLane { .. } => return Turn::AwaitWake,
            State::Closing => return Turn::Close,
            State::Aborted => return Turn::Abort,
        }
        self.meter.work_left = WORK_PER_TURN;
        while self.meter.work_left > 0 {
            self.meter.work_left -= COMMAND_WORK;
            if self.replies.out.len() >= self.output.bytes_max {
                self.state = State::Draining;
                self.output.stalled_since_us = now.mono_us;
                return Turn::Flush;
            }
            self.look_ahead();
            match self.requests.decode(&mut self.input, &mut self.argv, &mut self.request_bytes) {
                Ok(Decoded::Command) => {}
                Ok(Decoded::NeedsBytes) => return self.await_rest_of_request(),
                Ok(Decoded::LimitReached) => return Turn::Again,
                Err(invalid) => {
                    self.fail_request(&invalid.text);
                    if !invalid.is_recoverable {
                        return self.close();
                    }
                    self.end_command();
                    continue;
                }
            }
            if self.argv.is_empty() {
                // Empty requests do not count towards the next request's length.
                self.request_bytes = self.input.len() + self.requests.held_bytes();
                continue;
            }
            if let NextStep::Stop(turn) = self.execute(now) {
                return turn;
            }
        }
        if self.input.is_empty() && self.requests.held_bytes() == 0 { Turn::Read } else { Turn::Again }
    }

    /// Executes the current command.
    #[inline]
    pub(super) fn execute(&mut self, now: Now) -> NextStep {
        let found = match TABLE.resolve(self.argv.args()) {
            Ok(found) => found,
            Err(text) => return self.reject_unresolved(&text),
        };
        let spec = found.spec;
        // A user change is reported to its caller when it is complete. From then on no command may start with the old
        // rights, also not in the middle of a turn.
        let gated = self.is_guarded()
            || self.settings.is_stale(&self.engine)
            || spec.flags.0 & (Flags::PROTECTED.0 | Flags::BLOCKING.0) != 0
            || self.engine.pause.is_set()
            || self.engine.monitors.any()
            || self.engine.long_locks.any()
            || self.engine.pubsub.is_congested()
            || self.engine.persist.alerts() != 0
            || (self.engine.memory.is_watched()
                && (spec.flags.has(Flags::DENYOOM) || script::runs_script(spec)));
        if gated && let Some(next) = self.gate(&found, now) {
            return next;
        }
        self.last_command = self.engine.stats.ids.of(spec);
        if let Some(run) = spec.exec.on_keys() {
            let alone = self.begin_lap(spec, now);
            let ran = if is_quick(spec, self.argv.args()) {
                self.data::<false>(spec, run, now)
            } else {
                self.estimated(spec, run, now)
            };
            if ran == DataOutcome::ShardLocked {
                self.laps.take_back();
                self.park(ParkReason::Shard, now);
                return NextStep::Stop(Turn::AwaitWake);
            }
            if ran == DataOutcome::TooLong {
                self.laps.take_back();
                return self.send_to_lane(spec, now);
            }
            self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
            // No request follows: read the clock for the last time in this turn while the arguments still exist.
            if alone || self.input.is_empty() {
                self.end_lap(spec, now);
            }
            self.argv.clear();
            self.end_command();
            return NextStep::Continue;
        }
        match spec.exec {
            Exec::Inline(_) | Exec::Estimated(..) => unreachable!("handled above"),
            Exec::Session(command) => {
                let own = SessionCommand::of(command);
                let alone = self.begin_lap(spec, now);
                let argv = std::mem::take(&mut self.argv);
                let len_before = self.replies.len();
                let outcome = own.run(self, argv.args(), now);
                let wrote = self.replies.len().saturating_sub(len_before);
                self.meter.work_left -= (wrote / TEXT_BYTES_PER_ELEMENT) as isize;
                self.argv = argv;
                use NextStep::{Detach, Park, ShardLocked, Yield};
                let is_done = !matches!(outcome, Ok(ShardLocked | Detach));
                if own.kind == CommandKind::Exec && is_done && self.engine.monitors.any() {
                    let caller = Caller::Client(&self.client);
                    self.engine.send_to_monitors(spec, self.argv.args(), self.db, caller, now);
                }
                if let Ok(ShardLocked | Yield | Park(..) | Detach) = outcome {
                    self.laps.take_back();
                }
                if let Ok(ShardLocked) = outcome {
                    self.park(ParkReason::Shard, now);
                    return NextStep::Stop(Turn::AwaitWake);
                }
                if let Ok(NextStep::Yield) = outcome {
                    self.state = State::Parked;
                    return NextStep::Stop(Turn::Again);
                }
                if let Ok(NextStep::Park(reason, until_mono_us)) = outcome {
                    self.park(reason, now);
                    return NextStep::Stop(Turn::Sleep { until_mono_us });
                }
                if let Ok(NextStep::Block(wait)) = &outcome {
                    self.end_lap(spec, now);
                    self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
                    return self.block_keyless(spec, wait, now);
                }
                if let Ok(NextStep::Detach) = outcome {
                    return self.send_to_lane(spec, now);
                }
                match &outcome {
                    // Record the command now, because its arguments are gone when the session wakes.
                    Ok(NextStep::Stop(Turn::Sleep { until_mono_us })) => {
                        self.laps.take_back();
                        let took_ns = until_mono_us.saturating_sub(now.mono_us) * 1000;
                        self.engine.note_lap(&self.client, spec, self.argv.args(), now, took_ns);
                    }
                    _ if alone || self.input.is_empty() => self.end_lap(spec, now),
                    _ => {}
                }
                self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
                match outcome {
                    // A command that ends the turn has set the session's state itself.
                    Ok(NextStep::Stop(turn)) => {
                        self.argv.clear();
                        return NextStep::Stop(turn);
                    }
                    Ok(_) => {}
                    Err(text) => self.fail(CommandCounter::Failed, &text),
                }
            }
            Exec::ServiceOnText(service, _) => {
                self.begin_lap(spec, now);
                let lane = match self.run_service(spec, service, now) {
                    ServiceOutcome::Done => None,
                    ServiceOutcome::Lane => Some(Lane::Normal),
                    ServiceOutcome::Hard => Some(Lane::Hard),
                };
                if let Some(lane) = lane {
                    self.laps.take_back();
                    return self.send_to(lane, spec, now);
                }
                self.end_lap(spec, now);
                self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
            }
            Exec::Walk(_) | Exec::Heavy(_) | Exec::Service(_) => {
                return self.send_to_lane(spec, now);
            }
            Exec::Container => unreachable!("resolve rejects a container without subcommand"),
        }
        self.argv.clear();
        self.end_command();
        NextStep::Continue
    }

    #[cold]
    pub(super) fn reject(&mut self, spec: &'static CommandSpec, text: &[u8]) -> NextStep {
        self.last_command = self.engine.stats.ids.of(spec);
        if kind_of(spec) == CommandKind::Exec {
            self.end_transaction();
            self.fail(CommandCounter::Rejected, &abort_text(text));
        } else {
            self.break_queue();
            self.forget_caching();
            self.fail(CommandCounter::Rejected, text);
        }
        self.argv.clear();
        self.end_command();
        NextStep::Continue
    }

    /// Replies to an unknown command or subcommand, or to a wrong number of arguments.
    #[cold]
    fn reject_unresolved(&mut self, text: &[u8]) -> NextStep {
        let args = self.argv.args();
        let row = TABLE.lookup(args.at(0)).and_then(|c| {
            let mut subs = c.subcommands.iter();
            // An unknown subcommand counts for no command.
            if c.subcommands.is_empty() || args.len() < 2 {
                Some(c)
            } else {
                subs.find(|s| args.is(1, s.name))
            }
        });
        match row {
            Some(spec) => self.reject(spec, text),
            None if HTTP_WORDS.iter().any(|word| args.is(0, word)) => NextStep::Stop(self.close()),
            None => {
                self.last_command = u32::MAX;
                self.break_queue();
                self.forget_caching();
                self.fail(CommandCounter::Rejected, text);
                self.argv.clear();
                self.end_command();
                NextStep::Continue
            }
        }
    }

    /// Replies with an error and counts it for the last command.
    #[cold]
    pub(super) fn fail(&mut self, counter: CommandCounter, text: &[u8]) {
        self.fail_request(text);
        if !self.is_replica() {
            self.count_call(counter);
        }
    }
    /// Replies with an error about what is no command.
    fn fail_request(&mut self, text: &[u8]) {
        if self.is_replica() {
            return self.disconnect_replica(text);
        }
        let mut reply = self.reply();
        reply.error_bytes(text);
        let code = reply.error_code().unwrap_or_default().to_vec();
        self.engine.stats.error(self.slot(), &code);
    }

    #[cold]
    pub(super) fn count_error(&self, counter: CommandCounter, code: &[u8]) {
        self.engine.stats.error(self.slot(), code);
        self.count_call(counter);
    }
    /// Counts a failed or rejected call of the current command.
    pub(super) fn count_call(&self, counter: CommandCounter) {
        if self.last_command != u32::MAX {
            self.engine.stats.count(self.slot(), self.last_command, counter, 1);
        }
    }

    /// Ends a command: CLIENT REPLY advances.
    #[inline]
    pub(super) fn end_command(&mut self) {
        if self.request_bytes - self.input.len() > RECLAIM_AT_ONCE_BYTES {
            self.engine.reclaim();
        }
        self.request_bytes = self.input.len();
        // A command that was refused between two slices leaves nothing to the next command.
        self.progress = super::Progress::default();
        self.replies.end_command();
    }

    /// Waits for the rest of a request, within the limit for incomplete requests.
    fn await_rest_of_request(&mut self) -> Turn {
        if self.must_log_in() && self.request_bytes > UNAUTHENTICATED_REQUEST_BYTES_MAX {
            self.fail_request(b"ERR Protocol error: unauthenticated request length");
            return self.close();
        }
        if self.request_bytes <= self.settings.query_bytes_max {
            if self.argv.heap_bytes() > IDLE_ARGV_BYTES_MAX && !self.requests.in_frame() {
                self.argv.release();
            }
            return Turn::Read;
        }
        self.abort_over_query_limit(self.request_bytes)
    }

    /// Enforces `client-output-buffer-limit` for the client's class.
    fn check_output(&mut self, turn: Turn, now: Now) -> Turn {
        let held = match self.is_replica() {
            true => self.limited_replica_bytes(),
            false => self.replies.out.len() + self.client.inbox.waiting_bytes() as usize,
        };
        let limits = self.settings.output(self.output_class());
        let exceeds = |bytes: usize| bytes > 0 && held > bytes;
        let mut is_soft_limit_expired = false;
        if !exceeds(limits.soft_bytes) {
            self.output.over_soft_since_us = None;
        } else {
            let since = *self.output.over_soft_since_us.get_or_insert(now.mono_us);
            is_soft_limit_expired = now.mono_us.saturating_sub(since) > limits.soft_us;
        }
        // A job that no thread gets would count as running for good. The next turn ends the session.
        let stays = matches!(turn, Turn::Lane(_) | Turn::Abort);
        if !exceeds(limits.hard_bytes) && !is_soft_limit_expired || stays {
            return turn;
        }
        self.abort_over_output(held, !exceeds(limits.hard_bytes));
        Turn::Abort
    }

    pub(super) fn refresh_settings(&mut self) {
        self.settings = super::SessionSettings::of(&self.engine);
        let before = self.identity.user.clone();
        self.identity.is_removed |= !self.refresh_user() || !self.may_keep_subscriptions(&before);
        self.update_inbox_limit();
        self.limits_changed();
    }
    /// Call this when the authentication or the settings of the session changed.
    pub(super) fn limits_changed(&mut self) {
        self.update_guard();
        self.requests.set_limits(&self.settings, self.identity.authenticated);
    }
    /// Ends the session once its replies are written.
    pub(super) fn close(&mut self) -> Turn {
        self.stop_waiting();
        self.state = State::Closing;
        self.input.clear();
        self.requests.end();
        Turn::Close
    }
    pub(super) fn abort(&mut self) {
        self.cancel_job();
        self.stop_waiting();
        self.state = State::Aborted;
        self.input.clear();
        self.requests.end();
    }

    /// Adds the turn's counts to the shared counters.
    fn end_turn(&mut self, out_bytes: usize) {
        let (slot, stats) = (self.client.peer.worker, &self.engine.stats);
        let commands = self.tally.fold(slot, stats);
        if commands > 0 && !self.must_log_in() {
            self.login_wait = LoginWait::Nothing;
        }
        for (stat, n) in [
            (Stat::Commands, commands),
            (Stat::InputBytes, std::mem::take(&mut self.meter.input_bytes)),
            (Stat::OutputBytes, out_bytes as u64 + std::mem::take(&mut self.meter.lane_reply_bytes)),
            (Stat::Reads, std::mem::take(&mut self.meter.reads)),
            (Stat::KeyspaceHits, std::mem::take(&mut self.meter.lookups.hits)),
            (Stat::KeyspaceMisses, std::mem::take(&mut self.meter.lookups.misses)),
        ] {
            if n > 0 {
                stats.add(slot, stat, n);
            }
        }
        self.update_client_info();
        // A client that holds more than all clients may hold is closed at once. The sum is checked in the background. A
        // client that may not be closed leaves the check to the background, because the check looks at all clients.
        let holds_too_much = |bytes_max: u64| !self.flags.no_evict && self.client.held_bytes() > bytes_max;
        if self.settings.clients_bytes_max.is_some_and(holds_too_much) {
            self.engine.evict_clients();
        }
    }
}

/// The words that begin a line only in an HTTP request, which a web page may have made a browser send. As in redis-server,
/// the connection closes before a command hidden in the body is reached.
const HTTP_WORDS: [&str; 2] = ["post", "host:"];
