//! A session and its jobs on the lane: it makes a job of the current command, takes the result, and cancels the job.

use super::lane::{
    JobHandle, JobInput, LaneCheck, LaneDone, LaneJob, RightsCheck, is_hard_pattern, runs_without_client,
};
use super::phases::Parked;
use super::{Session, State};
use crate::Now;
use crate::acl::Rights;
use crate::memory::{Charge, Purpose};
use crate::stats::CommandCounter;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use strand_commands::call::{KeyRights, LaneCall, RunsOn, ServiceOutcome, ServiceRun};
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_keyspace::Lookups;
use strand_wire::reply::Reply;

/// The cancel flag of a call on a worker, which is never set, because such a call is short.
static NOT_CANCELLED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

impl Session {
    /// Takes the result of the parked command. Call [`Session::run`] next. Ignored when the session has ended
    /// meanwhile.
    pub fn lane_done(&mut self, done: LaneDone) {
        if !matches!(self.state, State::OnLane { .. }) {
            return;
        }
        self.state = State::Ready;
        // The client did not cause the wait, so it does not count as idle.
        self.meter.active = true;
        self.argv = done.argv;
        match done.rights_check {
            RightsCheck::Granted => (self.retry.is_granted, self.retry.sent_to_monitors) = (true, true),
            RightsCheck::GrantedToSession => self.retry.is_granted = true,
            RightsCheck::Unchanged | RightsCheck::Denied => {}
        }
        if done.must_block {
            // The data that was too much for a worker is gone: the session tries the command here again, and the
            // command waits. Or the session continues with a command whose rights were checked.
            self.state = State::Parked;
            return;
        }
        if let Some(transaction) = done.transaction {
            self.db = done.selected_db.unwrap_or(self.db);
            self.count_lookups(done.lookups);
            self.state = State::ExecResumes(Box::new(transaction));
            return;
        }
        self.argv.clear();
        self.end_own_attempt();
        if let Some(code) = &done.error {
            let denied = done.rights_check == RightsCheck::Denied;
            if denied {
                self.break_queue();
            }
            let counter = if denied { CommandCounter::Rejected } else { CommandCounter::Failed };
            match done.error_is_counted {
                true => self.count_call(counter),
                false => self.count_error(counter, code),
            }
        }
        if done.rights_check == RightsCheck::Granted {
            self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
        }
        self.db = done.selected_db.unwrap_or(self.db);
        self.count_lookups(done.lookups);
        // The limit may have changed since the reply was made.
        if done.is_cut && self.replies.is_wanted() && !self.replies.is_too_long(done.out.len()) {
            return self.abort_over_output_limit(done.out.len());
        }
        let before = self.replies.out.len();
        self.reply().raw(done.out);
        // From here on the reply counts as the client's memory.
        drop(done.charge);
        self.end_command();
        self.meter.lane_reply_bytes += self.replies.out.len().saturating_sub(before) as u64;
        if std::mem::take(&mut self.flags.ends_after_exec) {
            let _ = self.close();
        }
    }
    pub(super) fn count_lookups(&mut self, lookups: Lookups) {
        self.meter.lookups.hits += lookups.hits;
        self.meter.lookups.misses += lookups.misses;
    }
    /// Runs the current command, whose cost grows with its text, on the worker, unless the text is too long for a
    /// worker.
    pub(super) fn run_service(
        &mut self,
        spec: &'static CommandSpec,
        service: ServiceRun,
        now: Now,
    ) -> ServiceOutcome {
        let elements = self.elements(spec);
        self.meter.work_left -= elements.min(LONG_ELEMENTS) as isize;
        self.flags.uses_service = true;
        if elements > LONG_ELEMENTS {
            return ServiceOutcome::Lane;
        }
        let rights = Rights::of(&self.identity.user, spec, self.argv.args());
        let bytes_max = self.replies.bytes_max(self.settings.reply_bytes_max);
        let mut reply = Reply::bounded(self.replies.target(), self.protocol, bytes_max);
        let mut call = LaneCall {
            spec: Some(spec),
            args: self.argv.args(),
            client: self.client.id,
            runs_on: RunsOn::Worker,
            db: self.db,
            now_ms: now.unix_ms(),
            keyspace: &self.engine.keyspace,
            long_locks: &self.engine.long_locks,
            reply: &mut reply,
            rng: &mut self.rng,
            cancel: &NOT_CANCELLED,
            no_touch: self.flags.no_touch,
            rights: rights.as_ref().map(|r| r as &dyn KeyRights),
            lookups: Lookups::default(),
            error_is_counted: false,
            waits: false,
            yield_now: &|| {},
        };
        let served = self.engine.host.run_service(service, &mut call);
        let error = call.reply.error_code().map(<[u8]>::to_vec);
        if let Some(code) = error {
            self.count_error(CommandCounter::Failed, &code);
        }
        served
    }
    /// Makes a job of the current command. [`Session::send_to`] decides whether the job may begin.
    pub(super) fn lane_job(&mut self, spec: &'static CommandSpec, runs_on: RunsOn) -> Box<LaneJob> {
        self.flags.uses_service |= matches!(spec.exec, Exec::Service(_) | Exec::ServiceOnText(..));
        let hard_pattern = is_hard_pattern(spec, self.argv.args());
        let bytes = self.argv.heap_bytes()
            + self.outgoing_transaction.as_ref().map_or(0, |leaving| leaving.queue.bytes());
        let charge = Charge::new(&self.engine.memory, Purpose::Jobs, bytes as u64);
        let args = Some((std::mem::take(&mut self.argv), charge));
        let input = Mutex::new(JobInput { args, is_abandoned: false });
        let handle = Arc::new(JobHandle { cancel: Arc::new(AtomicBool::new(false)), input });
        let queued = self.outgoing_transaction.as_ref().map_or(0, |leaving| leaving.queue.flags);
        let is_admin = Flags(spec.flags.0 | queued).has(Flags::ADMIN);
        self.state = State::OnLane { handle: handle.clone(), spec, is_admin };
        Box::new(LaneJob {
            engine: self.engine.clone(),
            handle,
            spec,
            db: self.db,
            protocol: self.protocol,
            rng_seed: self.rng.u64(..),
            no_touch: self.flags.no_touch,
            client: self.client.clone(),
            reply_bytes_max: self.replies.job_bytes_max(self.settings.reply_bytes_max),
            user: self.identity.user.clone(),
            check: LaneCheck::IsDone,
            runs_on,
            hard_pattern,
            caching: std::mem::take(&mut self.flags.caching),
            transaction: self.outgoing_transaction.take(),
            script: self.outgoing_script.take(),
            sent_ns: self.engine.host.mono_ns(),
            parked: self.parked.take().map(Parked::handed_over),
            reservation: None,
            write: None,
        })
    }
    /// True while the session waits for a read-only job and holds no further input.
    pub fn only_reads(&self) -> bool {
        matches!(&self.state, State::OnLane { spec, .. } if !runs_without_client(spec))
            && self.input.is_empty()
    }
    /// Tells the running job, if any, that no client waits for it. If the job has not begun, its arguments are freed
    /// at once. A command that runs without its client keeps them. The gone client then counts against `maxclients`
    /// until the job begins. So clients that connect, send and disconnect fill no more memory than clients that stay.
    pub(super) fn cancel_job(&self) {
        let State::OnLane { handle, spec, .. } = &self.state else { return };
        handle.cancel.store(true, Relaxed);
        let mut input = handle.input.lock();
        if !runs_without_client(spec) {
            input.args = None;
        } else if input.args.is_some() && !input.is_abandoned {
            input.is_abandoned = true;
            self.engine.clients.count_orphaned_command();
        }
    }
}
