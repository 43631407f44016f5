//! The feeding thread: passes the journal's new bytes on to the replicas, and looks after the replicas.
//!
//! The journal wakes the thread when it has new bytes. After a turn with bytes the thread naps, so that a turn takes the
//! bytes of many commands. The thread ends when replication is switched off.

use super::Phase;
use crate::config::Opt;
use crate::{Engine, Now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use strand_chain::Chain;

/// Time between two turns while the journal has new bytes.
const TURN_EVERY_US: u64 = 500;
/// Time between two looks at the replicas.
const LOOK_EVERY_US: u64 = 1_000_000;

/// A command of the stream that changes nothing. With it a replica knows that this server lives.
const PING: &[&[u8]] = &[b"PING"];
/// Asks the replicas for an acknowledgement.
const GETACK: &[&[u8]] = &[b"REPLCONF", b"GETACK", b"*"];

impl Engine {
    /// The feeding thread.
    pub(super) fn run_feeding_thread(&self) {
        // The thread that switches replication on takes the journal until it has done so.
        self.await_taker();
        while catch_unwind(AssertUnwindSafe(|| self.feed_until_stopped())).is_err() {
            // Without this thread, writers would wait forever. The panic is in the log.
            self.host.nap_us(LOOK_EVERY_US);
        }
    }
    fn feed_until_stopped(&self) {
        let (mut look_at_us, mut pinged_us) = (0, self.host.mono_us());
        while self.replication.is_on() {
            let now = self.host.now();
            if self.asks_for_acks() {
                self.replication.wants_acks.store(false, SeqCst);
                self.append_if_heard(GETACK);
            }
            if now.mono_us >= look_at_us {
                look_at_us = now.mono_us + LOOK_EVERY_US;
                if self.replication.len() == 0 {
                    // The first ping comes a period after the first replica.
                    pinged_us = now.mono_us;
                } else if now.mono_us >= pinged_us.saturating_add(self.seconds(Opt::ReplPingReplicaPeriod)) {
                    pinged_us = now.mono_us;
                    self.append_if_heard(PING);
                }
                if !self.look_after_replicas(now) {
                    return;
                }
            }
            match self.feed_replicas() {
                true => self.host.nap_us(TURN_EVERY_US),
                false => self.await_journal(look_at_us.saturating_sub(now.mono_us)),
            }
        }
    }
    /// True when a command waits for acknowledgements that may be asked for. As in redis-server, the stream does not grow
    /// by this while CLIENT PAUSE lasts.
    fn asks_for_acks(&self) -> bool {
        self.replication.wants_acks.load(SeqCst) && !self.pause.stops_clients(self.host.mono_us())
    }
    /// Waits until the journal has new bytes, a command wants acknowledgements, or the time is over.
    fn await_journal(&self, at_most_us: u64) {
        let (journal, work) = (self.keyspace.journal(), &self.replication.work);
        let seen = work.changes();
        if self.replication.state.lock().stream.is_from_primary {
            work.wait(seen, Some(at_most_us));
            return;
        }
        journal.begin_await();
        let has_all = {
            let state = self.replication.state.lock();
            state.stream.offset_of(journal.tail()) == state.end
        };
        match has_all && !self.asks_for_acks() {
            true => _ = work.wait(seen, Some(at_most_us)),
            // Some transaction has its place in the journal and has not put its bytes there yet.
            false => self.host.yield_now(),
        }
        journal.end_await();
    }
    /// Takes the journal's new bytes for the replicas. True when there were some. May block.
    pub fn feed_replicas(&self) -> bool {
        let before = {
            let state = self.replication.state.lock();
            // The bytes come from the primary, and the thread that follows it passes them on.
            if state.stream.is_from_primary {
                return false;
            }
            state.end
        };
        self.take_for_replicas();
        self.replication.state.lock().end != before
    }
    /// An option in seconds, as microseconds.
    pub(super) fn seconds(&self, option: Opt) -> u64 {
        (self.config.number(option).max(0) as u64).saturating_mul(1_000_000)
    }
    /// Adds a command to the stream if a replica hears it. The stream of a replica has only what its primary sends. The
    /// stream does not grow while FAILOVER waits for a replica that has all of it, and during the last save: after a
    /// restart from this save, replicas continue only if they have no more than the save.
    fn append_if_heard(&self, command: &[&[u8]]) {
        let state = self.replication.state.lock();
        let is_still = self.replication.failover.is_on() || self.persist.is_in_last_save();
        if !state.replicas.is_empty() && !state.stream.is_from_primary && !is_still {
            self.keyspace.journal().append_for_replicas(command);
        }
    }
    /// Ends replicas that are silent, tells waiting replicas that this server lives, and switches replication off when
    /// there has been no replica for long. Returns false then.
    fn look_after_replicas(&self, now: Now) -> bool {
        let timeout_us = self.seconds(Opt::ReplTimeout);
        let replicas = self.replication.state.lock().replicas.clone();
        for replica in &replicas {
            match replica.phase() {
                Phase::Waiting => replica.keep_alive(),
                Phase::Online if !replica.facts.is_silent => {
                    if replica.lag_s(now.mono_us).saturating_mul(1_000_000) > timeout_us {
                        self.host.warn(&format!(
                            "Disconnecting timedout replica (streaming sync): {}",
                            replica.name()
                        ));
                        replica.client.kill();
                    }
                }
                Phase::Online | Phase::Loading | Phase::Gone => {}
            }
            // The session checks its soft limit.
            if replica.has_waiting() {
                replica.client.wake_handle().wake();
            }
        }
        self.replicas_changed();
        let stops = self.is_backlog_over(&self.replication.state.lock());
        !(stops && self.while_nobody_takes(|has_file| self.stop_replication(has_file)))
    }
    /// True when the backlog may be freed: there has been no replica for `repl-backlog-ttl` seconds.
    fn is_backlog_over(&self, state: &super::State) -> bool {
        let ttl_us = self.seconds(Opt::ReplBacklogTtl);
        let is_over = |since_us: u64| ttl_us > 0 && self.host.mono_us().saturating_sub(since_us) > ttl_us;
        let is_free = state.replicas.is_empty() && !state.is_syncing && !state.stream.is_from_primary;
        is_free && state.alone_since_us.is_some_and(is_over)
    }
    /// Switches replication off and frees the backlog, unless a replica has come. Later replicas get all data. True when
    /// replication is off. The caller takes the journal. May block.
    fn stop_replication(&self, has_file: bool) -> bool {
        let mut state = self.replication.state.lock();
        if !self.is_backlog_over(&state) {
            return false;
        }
        (state.backlog, state.stream.second) = (Chain::new(), None);
        self.replication.set_on(false);
        *self.replication_id.lock() = self.new_replication_id();
        drop(state);
        if !has_file {
            self.end_journal();
        }
        self.host.log("The replication backlog is freed, because no replica is connected.");
        true
    }
    /// Lets the feeding thread ask the replicas for acknowledgements.
    pub(crate) fn ask_for_acks(&self) {
        if !self.replication.wants_acks.swap(true, SeqCst) {
            self.replication.work.notify();
        }
    }
    /// Records bytes that were sent to a replica.
    pub(crate) fn count_sent_to_replica(&self, bytes: usize) {
        self.replication.totals.output_bytes.fetch_add(bytes as u64, Relaxed);
    }
}
