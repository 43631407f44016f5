//! The memory that a command may need on a helper thread. A job that would not fit waits or is refused.
//!
//! Only work that creates data is checked: a read builds a reply, a command with DENYOOM stores a result, an index
//! copies texts, a script holds what it computes. A command that removes data always runs. The sizes are quick
//! estimates. EXEC needs what its commands need together.
//!
//! A request that arrives is not checked here: its bytes count as its client's memory, at every door, and fast clients
//! are slowed ([`crate::headroom`]).

use super::lane::{LaneCheck, LaneWrite};
use super::multi::Queued;
use super::phases::ParkReason;
use super::run::NextStep;
use super::script::runs_script;
use super::transaction::Transaction;
use super::{Session, Turn};
use crate::Now;
use crate::acl::DenialContext;
use crate::headroom::{WorkAdmission, refusal};
use strand_commands::call::RunsOn;
use strand_commands::cost::{self, LONG_ELEMENTS};
use strand_commands::run;
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_keyspace::Key;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

/// Number of keys whose values are looked at. Each of the other keys counts as the mean of these keys.
const KEYS_SAMPLED: usize = 128;
/// Bytes per key in a reply that lists every key: its name and the protocol's overhead.
const KEY_REPLY_BYTES: u64 = 48;
/// Minimum memory that the writer of an index takes.
const INDEX_BYTES_MIN: u64 = 32 << 20;
/// Expected size of an index of all data: one part in this many of the data's bytes. The trigram index of mails takes
/// 0.43 of the text (docs/benchmarks.md). Text indexes were not measured for this.
const INDEX_PART: u64 = 2;

/// Memory counted for a long script: as much as it may take on a worker before it moves to the lane. The interpreter's
/// own limit bounds a script that takes more.
const SCRIPT_BYTES: u64 = 8 << 20;
/// Maximum number of bytes that a document counts as in a search's reply. The mean size of all values stands for the
/// size of a document, and a few huge values must not make every search look huge.
const DOCUMENT_BYTES_MAX: u64 = 64 << 10;

/// The helper threads that a command goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The helper threads for long commands.
    Normal,
    /// The helper threads for hard patterns.
    Hard,
    /// The helper threads for long commands. The job checks the rights first, because the check itself is long. Until
    /// then the client may learn nothing about the data, so the values are not looked at.
    Unchecked,
    /// The helper threads for long commands. The job only checks the rights. A denial is recorded with this context.
    OnlyCheck(DenialContext),
}

impl Session {
    /// Sends the current command to a helper thread for long commands.
    pub(super) fn send_to_lane(&mut self, spec: &'static CommandSpec, now: Now) -> NextStep {
        self.send_to(Lane::Normal, spec, now)
    }
    /// Sends the current command to a helper thread once its expected memory is free. Every job leaves its session
    /// here.
    pub(super) fn send_to(&mut self, lane: Lane, spec: &'static CommandSpec, now: Now) -> NextStep {
        let mut reservation = None;
        // A transaction whose commands have run cannot wait or be refused any more.
        let has_run = self.outgoing_transaction.as_ref().is_some_and(Transaction::has_run);
        if self.engine.headroom.is_known() && !has_run && !matches!(lane, Lane::OnlyCheck(_)) {
            let bytes = self.needed_bytes(lane, spec, now);
            match self.engine.admit_work(bytes, self.postponed_us(now), now) {
                WorkAdmission::Now(reserved) => reservation = reserved,
                WorkAdmission::Later { at_us: until_mono_us } => {
                    self.restore_outgoing();
                    self.park(ParkReason::Memory, now);
                    return NextStep::Stop(Turn::Sleep { until_mono_us });
                }
                WorkAdmission::Refused { missing_bytes } => {
                    (self.outgoing_transaction, self.outgoing_script) = (None, None);
                    let name = self.engine.stats.ids.name(self.last_command).replace('|', " ");
                    return self.reject(spec, refusal(&name, bytes, missing_bytes).as_bytes());
                }
            }
        }
        // A job that checks the rights itself is counted as a call when the rights are granted. A session that makes
        // the attempt of a blocking command again was counted at its first attempt.
        let is_checked = matches!(lane, Lane::Normal | Lane::Hard);
        if is_checked && self.own_attempt.is_none() {
            self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
        }
        let mut job = self.lane_job(spec, if lane == Lane::Hard { RunsOn::Hard } else { RunsOn::Lane });
        job.check = match lane {
            Lane::Normal | Lane::Hard => LaneCheck::IsDone,
            Lane::Unchecked => LaneCheck::ThenRun,
            Lane::OnlyCheck(context) => LaneCheck::ThenReturn(context),
        };
        job.reservation = reservation;
        job.write = LaneWrite::of_sent(&job);
        NextStep::Stop(Turn::Lane(job))
    }
    /// Takes back what EXEC or a script prepared for its job. The command is retried from its beginning.
    fn restore_outgoing(&mut self) {
        self.outgoing_script = None;
        if let Some(mut transaction) = self.outgoing_transaction.take() {
            self.watch = std::mem::take(&mut transaction.watch);
            self.queue = Some(std::mem::take(&mut transaction.queue));
            self.update_guard();
        }
    }
    /// An estimate of the memory of the current command while it runs, without its arguments. 0 for a command that
    /// creates nothing.
    fn needed_bytes(&self, lane: Lane, spec: &'static CommandSpec, now: Now) -> u64 {
        let args = self.argv.args();
        let mut samples_left = KEYS_SAMPLED;
        let Some(transaction) = &self.outgoing_transaction else {
            let request_bytes = self.request_bytes.saturating_sub(self.input.len()) as u64;
            let is_many = lane == Lane::Unchecked || args.len() > LONG_ELEMENTS;
            return match spec.exec.on_keys() {
                // Hashing this many keys would take milliseconds on a worker. Their bytes in the request stand for the
                // needed bytes.
                Some(_) if is_many && creates_data(spec) => request_bytes,
                _ => self.needed_bytes_of(spec, args, &mut samples_left, now),
            };
        };
        // Of EXEC only the commands count whose cost grows with the data. The replies of the other commands are as
        // small as their requests. The first of the growing commands stand for all of them.
        let queue = &transaction.queue;
        let (mut sum, mut sampled) = (0u64, 0u64);
        for &at in &queue.growing_samples {
            if samples_left == 0 {
                break;
            }
            let Queued { spec, argv } = &queue.commands[at as usize];
            sampled += 1;
            sum = sum.saturating_add(self.needed_bytes_of(spec, argv.args(), &mut samples_left, now));
        }
        let all = queue.growing_commands as u128;
        (u128::from(sum) * all / u128::from(sampled.max(1))).try_into().unwrap_or(u64::MAX)
    }
    /// Does what [`Session::needed_bytes`] does, for one command with few arguments. Reads no more than `samples_left`
    /// keys, and subtracts their number from `samples_left`.
    fn needed_bytes_of(
        &self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        samples_left: &mut usize,
        now: Now,
    ) -> u64 {
        let keyspace = &*self.engine.keyspace;
        let data_bytes = keyspace.data_bytes() as u64;
        match spec.exec {
            Exec::Service(_) if spec.flags.has(Flags::INDEXES) => INDEX_BYTES_MIN + data_bytes / INDEX_PART,
            Exec::Service(_) if spec.flags.has(Flags::READONLY) => {
                let records = keyspace.records();
                search_limit(args).min(records) * (data_bytes / records.max(1)).min(DOCUMENT_BYTES_MAX)
            }
            Exec::Walk(_) if spec.flags.has(Flags::READONLY) => {
                // The keys of all databases: the count of one database needs the shards' locks, which a long command
                // may hold.
                keyspace.records() * KEY_REPLY_BYTES
            }
            exec if exec.on_keys().is_some() && creates_data(spec) => {
                let keys = run::keys_of(spec, args, keyspace);
                let sampled = &keys[..keys.len().min(*samples_left)];
                *samples_left -= sampled.len();
                // Does not wait for a locked shard; its keys count as 0 bytes.
                let bytes = |key: &Key<'_>| {
                    let txn = keyspace.try_lock(&[key.hash], now.unix_ms());
                    txn.map_or(0, |mut txn| cost::worked_bytes(spec.cost(), args, &mut txn, self.db, key))
                };
                let sum: u64 = sampled.iter().map(bytes).sum();
                (u128::from(sum) * keys.len() as u128 / sampled.len().max(1) as u128) as u64
            }
            _ if runs_script(spec) => SCRIPT_BYTES,
            _ => 0,
        }
    }
}

/// The number of documents that a search is asked for: `LIMIT offset number` or `LIMIT number`. 0 without LIMIT: the
/// service's default is small.
fn search_limit(args: Args<'_>) -> u64 {
    let limit = (1..args.len()).take(LONG_ELEMENTS).rfind(|at| args.is(*at, "LIMIT"));
    let number = |at: usize| args.get(at).and_then(parse_int).and_then(|n| u64::try_from(n).ok());
    limit.and_then(|at| number(at + 2).or_else(|| number(at + 1))).unwrap_or(0)
}

/// True for commands that build a reply from data, or store a result.
fn creates_data(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::READONLY) || spec.flags.has(Flags::DENYOOM)
}
