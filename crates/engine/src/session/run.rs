//! A turn: decode, find the row, check the gates ([`super::gates`]), lock, call the handler; again, within bounds.
//!
//! What every command passes is here and small: no shared counter, one lock, and a clock that neighbours share
//! ([`super::laps`]). Gates look at the table's flags only, never at
//! which command it is.

use super::blocked::Pointless;
use super::data::Ran;
use super::waits::On;
use super::{Awaited, COMMANDS_PER_TURN_MAX, Session, State, Turn};
use crate::Now;
use crate::monitors::Caller;
use crate::stats::{PerCommand, Stat};
use smallvec::SmallVec;
use strand_commands::call::{RunsOn, ServiceOutcome};
use strand_commands::cost::{LONG_ELEMENTS, is_quick};
use strand_commands::dispatch;
use strand_commands::spec::{CommandSpec, Exec, Flags, SessionCommand};
use strand_keyspace::{Key, Parts};
use strand_wire::resp::{Progress, UNAUTHENTICATED_REQUEST_BYTES_MAX};

/// Elements (see [`strand_commands::cost::Cost`]) in a turn: it lasts a millisecond or two at most, whatever the commands in it.
const WORK_PER_TURN: isize = 2 * LONG_ELEMENTS as isize;
/// What every command counts as.
const COMMAND_WORK: isize = WORK_PER_TURN / COMMANDS_PER_TURN_MAX as isize;
/// Of a reply about the server itself, so many bytes count as an element: they are formatted.
const TEXT_BYTES: usize = 16;

/// Room for arguments that a session keeps while it waits for a request: thousands may do so at once.
const IDLE_ARGV_BYTES_MAX: usize = 4096;

/// After a command larger than this what was replaced is handed to the host at once, not at the next tick: a client that
/// overwrites large values in a loop would fill the memory between two ticks.
const RECLAIM_AT_ONCE_BYTES: usize = 1 << 20;

/// Requests whose keys are looked up together. Each waits for three lines of memory (bucket, record, value); a core has
/// some ten to twenty such waits going at a time. Measured with `make versus` (1 M keys, 256-byte values, pipeline 30, operations
/// per CPU-second without / with): GET 0.42 / 1.27 M, SET 0.45 / 1.37 M, INCR 0.94 / 2.4 M; redis-server 0.49, 0.43, 0.85 M.
const LOOK_AHEAD_REQUESTS: usize = 16;
/// Where all of them are of one key whose value has nothing to be asked for, the next look comes after so many: of LPUSH at
/// pipeline 30 to one list the looks took 11 % of the server's time (perf), a look at every 64th takes 2 %.
const ONE_KEY_REQUESTS: usize = 64;
/// Less input than this is not looked ahead into: two of the shortest requests with a key.
const LOOK_AHEAD_BYTES_MIN: usize = 2 * b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".len();
/// More input than this is no lone request, or one whose copying takes longer than the memory of its key.
const LONE_REQUEST_BYTES_MAX: usize = 512;

/// After a command.
pub(super) enum Next {
    /// The next one.
    Go,
    /// The turn ends; the session's state says why.
    Stop(Turn),
    /// The command wants to run on a helper thread after all: from a session's command only.
    Detach,
    /// The command needs a shard that is held for long: it is tried again when the session is woken.
    Taken,
    /// A part of the command is done; the next comes in the next turn: from a session's command only.
    GoOn,
    /// The command is to be tried again at this time, on the clock of [`Now::mono_us`]: from a session's command only.
    Postpone(u64),
    /// The command waits for nothing but the time: from a session's command only.
    Block(Pointless),
}

impl Session {
    /// Executes a bounded number of the requests that are held. May be called at any time: it does nothing while the
    /// session waits for something else.
    pub fn run(&mut self, now: Now) -> Turn {
        if self.client.is_killed() {
            self.abort();
        }
        if self.disk.offset.is_some() && self.still_awaits_disk() {
            return Turn::AwaitWake;
        }
        if self.disk.since_us > 0 {
            self.has_awaited_disk(now);
        }
        if self.settings.is_stale(&self.engine) {
            self.refresh_settings();
        }
        if self.identity.is_removed && !self.awaits_admin() {
            match self.state {
                State::OnLane { .. } => self.abort(),
                State::Closing | State::Aborted => {}
                // Its last reply may tell that it is gone.
                _ => _ = self.close(),
            }
        }
        // Whoever reads what is queued is not idle; the last reply's being written is no sign of life.
        let reads = !self.replies.out.is_empty() || matches!(self.state, State::Draining);
        if std::mem::take(&mut self.meter.active) || (reads && self.replies.out.len() < self.output.left) {
            self.last_active_us = now.mono_us;
        } else if self.timeout_deadline_us().is_some_and(|deadline| now.mono_us >= deadline) {
            self.engine.stats.add(self.slot(), Stat::IdleCloses, 1);
            self.abort();
        }
        if !matches!(self.awaited, Awaited::Nothing) {
            self.look_at_login(now);
        }
        let out_before = self.replies.out.len();
        self.look_for_post();
        self.engine.diag.stuck.begins(self.client.peer.worker, self.client.id, now.mono_us);
        let turn = self.work(now);
        self.engine.diag.stuck.ends(self.client.peer.worker);
        self.laps.pause(&self.engine, self.client.peer.worker, now);
        // A command that ends the session has replied, too.
        self.replies.seal();
        let turn = self.check_output(turn, now);
        self.output.left = self.replies.out.len();
        self.end_turn(self.replies.out.len() - out_before);
        if self.engine.persist.aof.gates.is_on() && !self.replies.out.is_empty() {
            self.keep_back(turn, now)
        } else {
            turn
        }
    }

    /// `appendfsync always`: what the turn wrote or has seen may not be on the disk yet. Until it is, no reply leaves, and nothing
    /// more is executed.
    #[cold]
    fn keep_back(&mut self, turn: Turn, now: Now) -> Turn {
        if matches!(turn, Turn::Abort) {
            return turn;
        }
        self.disk.offset = Some(self.engine.keyspace.journal().tail());
        match turn {
            _ if !self.still_awaits_disk() => turn,
            // It runs meanwhile.
            Turn::Lane(job) => Turn::Lane(job),
            _ => {
                self.disk.since_us = now.mono_us;
                Turn::AwaitWake
            }
        }
    }
    #[cold]
    fn still_awaits_disk(&mut self) -> bool {
        let gates = &self.engine.persist.aof.gates;
        let waits = self
            .disk
            .offset
            .is_some_and(|offset| gates.wait(offset, self.client.id, self.client.wake_handle()));
        if !waits || matches!(self.state, State::Aborted) {
            self.disk.offset = None;
        }
        self.disk.offset.is_some()
    }

    /// `login-timeout`.
    #[cold]
    fn look_at_login(&mut self, now: Now) {
        if matches!(self.awaited, Awaited::Login { .. }) && !self.must_log_in() && self.frame_bytes > 0 {
            self.awaited = Awaited::Head { since_us: now.mono_us };
        }
        if self.login_deadline_us().is_some_and(|deadline| now.mono_us >= deadline) {
            self.engine.stats.add(self.slot(), Stat::IdleCloses, 1);
            self.abort();
        }
    }

    /// True when the client has stopped reading and waits for the server to take more requests: from now on, until it has
    /// read everything, its output is bounded by the limits of the configuration alone.
    #[cold]
    fn runs_on(&mut self, now: Now) -> bool {
        if self.replies.out.len() < self.output.left {
            self.output.stalled_since_us = now.mono_us;
        }
        if self.stall_deadline_us().is_none_or(|deadline| now.mono_us < deadline) {
            return false;
        }
        self.output.bytes_max = usize::MAX;
        true
    }

    fn work(&mut self, now: Now) -> Turn {
        if self.output.bytes_max == usize::MAX && self.replies.out.is_empty() {
            self.guard();
        }
        let drains = matches!(self.state, State::Draining) && !self.output_drained();
        if drains && !self.runs_on(now) {
            return Turn::Flush;
        }
        match self.state {
            State::Ready => {}
            State::Draining => self.state = State::Ready,
            State::Postponed => {
                self.state = State::Ready;
                self.last_active_us = now.mono_us;
                self.again.is_retry = true;
                let next = self.execute(now);
                self.again.is_retry = false;
                self.was_parked(now);
                self.engine.long_locks.has_run(self.client.id);
                self.has_come();
                if let Next::Stop(turn) = next {
                    return turn;
                }
            }
            State::Blocked(_) => {
                if let Some(turn) = self.look_at_ticket(now) {
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
                self.command_ends();
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
            match self.requests.decode(&mut self.input, &mut self.argv, &mut self.frame_bytes) {
                Ok(Progress::Command) => {}
                Ok(Progress::Incomplete) => return self.half_frame(),
                Ok(Progress::More) => return Turn::Again,
                Err(broken) => {
                    self.fail(PerCommand::Failed, &broken.text);
                    if !broken.goes_on {
                        return self.close();
                    }
                    self.command_ends();
                    continue;
                }
            }
            if self.argv.is_empty() {
                // Empty requests are no part of one that is too long.
                self.frame_bytes = self.input.len() + self.requests.held_bytes();
                continue;
            }
            if let Next::Stop(turn) = self.execute(now) {
                return turn;
            }
        }
        if self.input.is_empty() && self.requests.held_bytes() == 0 { Turn::Read } else { Turn::Again }
    }

    /// Asks for the memory that a lone request will need. True when it was asked for: let other sessions do something
    /// before [`Session::run`], so that it has come by then.
    pub fn prefetch(&mut self) -> bool {
        let front = self.input.front();
        let fits = (LOOK_AHEAD_BYTES_MIN / 2..=LONE_REQUEST_BYTES_MAX).contains(&front.len());
        if !fits || self.requests.in_frame() || !matches!(self.state, State::Ready) {
            return false;
        }
        let (keyspace, db) = (&*self.engine.keyspace, self.db);
        self.requests.look_ahead(front, 1, &mut |ahead| keyspace.prefetch(db, &[keyspace.key(ahead.key)])) > 0
    }

    /// Once for each few requests of a pipeline: asks for the memory that they will need.
    #[inline]
    fn look_ahead(&mut self) {
        if self.meter.looked_ahead > 0 {
            self.meter.looked_ahead -= 1;
            return;
        }
        let front = self.input.front();
        if front.len() < LOOK_AHEAD_BYTES_MIN {
            return;
        }
        let keyspace = &*self.engine.keyspace;
        let mut keys: SmallVec<[Key<'_>; LOOK_AHEAD_REQUESTS]> = SmallVec::new();
        let mut parts: SmallVec<[Parts<'_>; LOOK_AHEAD_REQUESTS]> = SmallVec::new();
        let mut requests = self.requests.look_ahead(front, LOOK_AHEAD_REQUESTS, &mut |ahead| {
            let key = keyspace.key(ahead.key);
            if keys.last().is_none_or(|last| last.hash != key.hash) {
                keys.push(key);
            }
            if keys.len() == 1 {
                parts.push(Parts { third: ahead.third, last: ahead.last });
            }
        });
        match &keys[..] {
            _ if requests <= 1 => {}
            [only] => {
                if !keyspace.prefetch_parts(self.db, only, &parts) {
                    requests = ONE_KEY_REQUESTS;
                }
            }
            keys => keyspace.prefetch(self.db, keys),
        }
        self.meter.looked_ahead = requests.saturating_sub(1);
    }

    /// Executes the command in hand.
    #[inline]
    pub(super) fn execute(&mut self, now: Now) -> Next {
        let found = match dispatch::resolve(self.argv.args()) {
            Ok(found) => found,
            Err(text) => return self.unresolved(&text),
        };
        let spec = found.spec;
        // Whoever changed a user was told so: from then on nothing begins by the old rights, in the middle of a turn either.
        let gated = self.is_guarded()
            || self.settings.is_stale(&self.engine)
            || spec.flags.0 & (Flags::PROTECTED.0 | Flags::BLOCKING.0) != 0
            || self.engine.pause.is_set()
            || self.engine.monitors.any()
            || self.engine.long_locks.any()
            || self.engine.pubsub.is_congested()
            || self.engine.persist.alerts() != 0
            || (self.engine.memory.is_watched() && spec.flags.has(Flags::DENYOOM));
        if gated && let Some(next) = self.gate(&found, now) {
            return next;
        }
        self.last_command = self.engine.stats.ids.of(spec);
        if let Some(run) = spec.exec.on_keys() {
            let alone = self.lap_begins(spec, now);
            let ran = if is_quick(spec, self.argv.args()) {
                self.data::<false>(spec, run, now)
            } else {
                self.estimated(spec, run, now)
            };
            if ran == Ran::Blocked {
                self.laps.take_back();
                self.postpone(On::Shard, now);
                return Next::Stop(Turn::AwaitWake);
            }
            if ran == Ran::TooLong {
                self.laps.take_back();
                return self.send_to_lane(spec, now);
            }
            self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
            // Nothing follows: the turn's last reading of the clock is made while the arguments are there.
            if alone || self.input.is_empty() {
                self.lap_ends(spec, now);
            }
            self.argv.clear();
            self.command_ends();
            return Next::Go;
        }
        match spec.exec {
            Exec::Inline(_) | Exec::Estimated(..) => unreachable!("seen to above"),
            Exec::Session(command) => {
                let alone = self.lap_begins(spec, now);
                let argv = std::mem::take(&mut self.argv);
                let held = self.replies.len();
                let outcome = self.session_command(command, argv.args(), now);
                let wrote = self.replies.len().saturating_sub(held);
                self.meter.work_left -= (wrote / TEXT_BYTES) as isize;
                self.argv = argv;
                let is_over = !matches!(outcome, Ok(Next::Taken | Next::Detach));
                if matches!(command, SessionCommand::Exec) && is_over && self.engine.monitors.any() {
                    let (args, caller) = (self.argv.args(), Caller::Client(&self.client));
                    self.engine.tell_monitors(spec, args, self.db, caller, now);
                }
                if let Ok(Next::Taken | Next::GoOn | Next::Postpone(_) | Next::Detach) = outcome {
                    self.laps.take_back();
                }
                if let Ok(Next::Taken) = outcome {
                    self.postpone(On::Shard, now);
                    return Next::Stop(Turn::AwaitWake);
                }
                if let Ok(Next::GoOn) = outcome {
                    self.state = State::Postponed;
                    return Next::Stop(Turn::Again);
                }
                if let Ok(Next::Postpone(until_mono_us)) = outcome {
                    self.state = State::Postponed;
                    return Next::Stop(Turn::Sleep { until_mono_us });
                }
                if let Ok(Next::Block(wait)) = &outcome {
                    self.lap_ends(spec, now);
                    self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
                    return self.block_for(spec, wait, now);
                }
                match &outcome {
                    Ok(Next::Detach) => {}
                    // It is noted here, where its arguments are known, and not when it wakes.
                    Ok(Next::Stop(Turn::Sleep { until_mono_us })) => {
                        self.laps.take_back();
                        let took_ns = until_mono_us.saturating_sub(now.mono_us) * 1000;
                        self.engine.note_lap(&self.client, spec, self.argv.args(), now, took_ns);
                    }
                    _ if alone || self.input.is_empty() => self.lap_ends(spec, now),
                    _ => {}
                }
                self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
                match outcome {
                    Ok(Next::Go | Next::GoOn | Next::Postpone(_) | Next::Taken | Next::Block(_)) => {}
                    Ok(Next::Detach) => return Next::Stop(Turn::Lane(self.park(spec))),
                    // A command that ends the turn says itself how it ends.
                    Ok(Next::Stop(turn)) => {
                        self.argv.clear();
                        return Next::Stop(turn);
                    }
                    Err(text) => self.fail(PerCommand::Failed, &text),
                }
            }
            Exec::ServiceOnText(command, _) => {
                self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
                self.lap_begins(spec, now);
                match self.serve(spec, command, now) {
                    ServiceOutcome::Done => self.lap_ends(spec, now),
                    ServiceOutcome::Lane => {
                        self.laps.take_back();
                        return Next::Stop(Turn::Lane(self.park(spec)));
                    }
                    ServiceOutcome::Hard => {
                        self.laps.take_back();
                        return Next::Stop(Turn::Lane(self.park_at(spec, RunsOn::Hard)));
                    }
                }
            }
            Exec::Walk(_) | Exec::Heavy(_) | Exec::Service(_) => {
                return self.send_to_lane(spec, now);
            }
            Exec::Container => unreachable!("resolve rejects a container without subcommand"),
        }
        self.argv.clear();
        self.command_ends();
        Next::Go
    }

    #[cold]
    pub(super) fn reject(&mut self, spec: &'static CommandSpec, text: &[u8]) -> Next {
        self.last_command = self.engine.stats.ids.of(spec);
        if matches!(spec.exec, Exec::Session(SessionCommand::Exec)) {
            self.end_transaction();
            let why = text.strip_prefix(b"ERR ").unwrap_or(text);
            let text = [b"EXECABORT Transaction discarded because of: ", why].concat();
            self.fail(PerCommand::Rejected, &text);
        } else {
            self.break_queue();
            self.fail(PerCommand::Rejected, text);
        }
        self.argv.clear();
        self.command_ends();
        Next::Go
    }

    /// No such command or subcommand, or not so many arguments.
    #[cold]
    fn unresolved(&mut self, text: &[u8]) -> Next {
        let args = self.argv.args();
        let row = dispatch::lookup(args.at(0)).map(|c| {
            let mut subs = c.subcommands.iter();
            subs.find(|s| args.is(1, s.name)).unwrap_or(c)
        });
        match row {
            Some(spec) => self.reject(spec, text),
            None if HTTP_WORDS.iter().any(|w| args.at(0).eq_ignore_ascii_case(w)) => Next::Stop(self.close()),
            None => {
                self.last_command = u32::MAX;
                self.break_queue();
                self.fail(PerCommand::Rejected, text);
                self.argv.clear();
                self.command_ends();
                Next::Go
            }
        }
    }

    /// Replies with an error and counts it for the last command.
    #[cold]
    pub(super) fn fail(&mut self, what: PerCommand, text: &[u8]) {
        let mut reply = self.reply();
        reply.error_bytes(text);
        let code = reply.error_code().unwrap_or_default().to_vec();
        self.count_error(what, &code);
    }

    #[cold]
    pub(super) fn count_error(&self, what: PerCommand, code: &[u8]) {
        self.engine.stats.error(self.slot(), code);
        if self.last_command != u32::MAX {
            self.engine.stats.command(self.slot(), self.last_command, what, 1);
        }
    }

    /// What follows every command: CLIENT REPLY moves on.
    #[inline]
    pub(super) fn command_ends(&mut self) {
        if self.frame_bytes - self.input.len() > RECLAIM_AT_ONCE_BYTES {
            self.engine.reclaim();
        }
        self.frame_bytes = self.input.len();
        self.replies.command_ends();
    }

    /// Waits for the rest of a request, within the limit on what is held of it.
    fn half_frame(&mut self) -> Turn {
        if self.must_log_in() && self.frame_bytes > UNAUTHENTICATED_REQUEST_BYTES_MAX {
            self.fail(PerCommand::Failed, b"ERR Protocol error: unauthenticated request length");
            return self.close();
        }
        if self.frame_bytes <= self.settings.query_bytes_max {
            if self.argv.heap_bytes() > IDLE_ARGV_BYTES_MAX && !self.requests.in_frame() {
                self.argv.release();
            }
            return Turn::Read;
        }
        self.engine.stats.add(self.slot(), Stat::QueryLimitCloses, 1);
        self.abort();
        Turn::Abort
    }

    /// `client-output-buffer-limit` of the client's class.
    fn check_output(&mut self, turn: Turn, now: Now) -> Turn {
        let held = self.replies.out.len() + self.client.inbox.waiting_bytes() as usize;
        let limits = self.settings.output(self.is_subscriber());
        let over = |bytes: usize| bytes > 0 && held > bytes;
        let mut over_for_too_long = false;
        if !over(limits.soft_bytes) {
            self.output.over_soft_since_us = None;
        } else {
            let since = *self.output.over_soft_since_us.get_or_insert(now.mono_us);
            over_for_too_long = now.mono_us.saturating_sub(since) > limits.soft_us;
        }
        if !over(limits.hard_bytes) && !over_for_too_long {
            return turn;
        }
        self.over_output_limit();
        Turn::Abort
    }
    pub(super) fn over_output_limit(&mut self) {
        self.engine.stats.add(self.slot(), Stat::OutputLimitCloses, 1);
        self.abort();
    }

    pub(super) fn refresh_settings(&mut self) {
        self.settings = super::SessionSettings::of(&self.engine);
        let before = self.identity.user.clone();
        self.identity.is_removed |= !self.refresh_user() || !self.may_listen_on(&before);
        self.tell_output_limit();
        self.limits_changed();
    }
    /// To be called when the session's authentication or its settings changed.
    pub(super) fn limits_changed(&mut self) {
        self.guard();
        self.requests.set_limits(&self.settings, self.identity.authenticated);
    }
    /// Ends the session when its replies are written.
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

    /// Hands the turn's counts to everybody.
    fn end_turn(&mut self, out_bytes: usize) {
        let (slot, stats) = (self.client.peer.worker, &self.engine.stats);
        let commands = self.tally.fold(slot, stats);
        if commands > 0 && !self.must_log_in() {
            self.awaited = Awaited::Nothing;
        }
        for (stat, n) in [
            (Stat::Commands, commands),
            (Stat::InputBytes, std::mem::take(&mut self.meter.input_bytes)),
            (Stat::OutputBytes, out_bytes as u64),
            (Stat::Reads, std::mem::take(&mut self.meter.reads)),
            (Stat::KeyspaceHits, std::mem::take(&mut self.meter.lookups.hits)),
            (Stat::KeyspaceMisses, std::mem::take(&mut self.meter.lookups.misses)),
        ] {
            if n > 0 {
                stats.add(slot, stat, n);
            }
        }
        self.publish();
    }
}

/// Words that only an HTTP request begins a line with. A browser was made to send it: the connection ends before a
/// command hidden in its body is reached, as in redis-server.
const HTTP_WORDS: [&[u8]; 2] = [b"post", b"host:"];
