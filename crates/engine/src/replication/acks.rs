//! [`Acks`]: commands that wait until replicas have acknowledged an offset of the stream (WAIT, WAITAOF).

use super::{Phase, Replica};
use crate::config::Opt;
use crate::host::wake_together;
use crate::{Engine, ShutdownRequest, Wake};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Time between two requests for acknowledgements at the end of the server.
const ASK_EVERY_US: u64 = 100_000;

/// Time between two looks at the replicas at the end of the server.
const LOOK_EVERY_US: u64 = 5_000;

/// True for a replica that has its snapshot and sends acknowledgements.
fn acknowledges(replica: &Arc<Replica>) -> bool {
    replica.phase() == Phase::Online && !replica.facts.is_silent
}

/// What a command waits for. Ordered by kind and number of replicas, then by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AckWait {
    /// True when the replicas must have the offset on their disks.
    pub(crate) in_file: bool,
    /// The number of replicas.
    pub(crate) replicas: usize,
    /// The offset of the stream.
    pub(crate) offset: u64,
    /// The number of the waiting client.
    pub(crate) client: u64,
}

/// The waiting commands.
#[derive(Default)]
pub(super) struct Acks {
    waiting: Mutex<BTreeMap<AckWait, Arc<dyn Wake>>>,
}

impl Engine {
    /// Number of replicas that have the stream up to `offset`, or have it on their disks.
    pub(crate) fn replicas_at(&self, offset: u64, in_file: bool) -> usize {
        self.acked_offsets(in_file).iter().filter(|acked| **acked >= offset).count()
    }
    /// The acknowledged offsets, as offsets of the journal, the highest first. Empty on a replica, whose stream is not its
    /// journal.
    fn acked_offsets(&self, in_file: bool) -> Vec<u64> {
        let state = self.replication.state.lock();
        let online = state.replicas.iter().filter(|replica| acknowledges(replica));
        if state.stream.is_from_primary {
            return Vec::new();
        }
        let in_journal = |replica: &Arc<Replica>| state.stream.journal_offset_of(replica.acked(in_file));
        let mut offsets: Vec<u64> = online.map(in_journal).collect();
        offsets.sort_unstable_by(|a, b| b.cmp(a));
        offsets
    }
    /// True when a SHUTDOWN with these options waits for replicas.
    pub(crate) fn awaits_replicas_at_end(&self, request: ShutdownRequest) -> bool {
        let state = self.replication.state.lock();
        !request.now
            && self.config.number(Opt::ShutdownTimeout) > 0
            && state.replicas.iter().any(acknowledges)
    }
    /// Waits until the replicas have everything that was written so far, until `until_us` on the clock of [`Now::mono_us`],
    /// or until `given_up` is set. May block.
    ///
    /// [`Now::mono_us`]: crate::Now::mono_us
    pub(crate) fn await_replicas(&self, until_us: u64, given_up: &AtomicBool) {
        let end = self.end_of_written();
        let mut ask_at_us = 0;
        while !self.lagging_replicas(end).0.is_empty()
            && !given_up.load(Relaxed)
            && self.host.mono_us() < until_us
        {
            let now_us = self.host.mono_us();
            if now_us >= ask_at_us {
                if ask_at_us == 0 {
                    self.host.log("Waiting for replicas before shutting down.");
                }
                ask_at_us = now_us + ASK_EVERY_US;
                self.ask_for_acks();
            }
            self.host.nap_us(LOOK_EVERY_US);
        }
        if !given_up.load(Relaxed) {
            let (lagging, all) = self.lagging_replicas(end);
            for (name, behind, lag_s) in &lagging {
                let text =
                    format!("Lagging replica {name} reported offset {behind} behind master, lag={lag_s}");
                self.host.log(&text);
            }
            let near = all - lagging.len();
            self.host.log(&format!("{near} of {all} replicas are in sync when shutting down."));
        }
    }
    /// The offset of the stream up to which everything was written that has been written so far.
    fn end_of_written(&self) -> u64 {
        let tail = self.keyspace.journal().tail();
        let state = self.replication.state.lock();
        if state.stream.is_from_primary { state.end } else { state.stream.offset_of(tail) }
    }
    /// The replicas that lack a part of the stream before `end`: name, number of bytes, and seconds since the last
    /// acknowledgement. Also the number of all replicas that acknowledge.
    fn lagging_replicas(&self, end: u64) -> (Vec<(String, u64, u64)>, usize) {
        let now_us = self.host.mono_us();
        let state = self.replication.state.lock();
        let online = || state.replicas.iter().filter(|replica| acknowledges(replica));
        let behind = |replica: &Arc<Replica>| end.saturating_sub(replica.acked(false));
        let lagging = online().filter(|replica| behind(replica) > 0);
        let lagging = lagging.map(|replica| (replica.name(), behind(replica), replica.lag_s(now_us)));
        (lagging.collect(), online().count())
    }
    /// Registers `wake`, which is called when enough replicas have acknowledged, and asks the replicas.
    pub(crate) fn await_acks(&self, wait: AckWait, wake: Arc<dyn Wake>) {
        self.replication.acks.waiting.lock().insert(wait, wake);
        self.ask_for_acks();
        // An acknowledgement may have come meanwhile.
        self.acknowledged();
    }
    /// Ends a wait that may be over already.
    pub(crate) fn forget_acks(&self, wait: AckWait) {
        self.replication.acks.waiting.lock().remove(&wait);
    }
    /// Call this when a replica has acknowledged. Wakes the commands whose wait may be over. They stay registered until
    /// their wait has ended, because a replica may leave meanwhile. The cost grows with the replicas and the woken
    /// commands, not with all that wait.
    pub(crate) fn acknowledged(&self) {
        if self.replication.acks.waiting.lock().is_empty() {
            return;
        }
        let mut woken: Vec<Arc<dyn Wake>> = Vec::new();
        for in_file in [false, true] {
            let offsets = self.acked_offsets(in_file);
            let waiting = self.replication.acks.waiting.lock();
            for (i, acked) in offsets.iter().enumerate() {
                let at = |offset, client| AckWait { in_file, replicas: i + 1, offset, client };
                woken.extend(waiting.range(at(0, 0)..=at(*acked, u64::MAX)).map(|(_, wake)| wake.clone()));
            }
        }
        wake_together(woken.iter());
    }
}
