//! Full synchronization: a snapshot of one moment for all replicas that wait, then the stream after that moment.
//!
//! The snapshot is written to a file without a name in the working folder, and each replica gets the file at its own
//! speed. A snapshot that went straight to a slow replica would keep the old versions of records that clients
//! change, and writes would wait for the replica (`snapshot-memory-budget`). So `repl-diskless-sync` has no effect.

use super::stream::Stream;
use super::{Phase, Replica};
use crate::config::Opt;
use crate::host::ScratchFile;
use crate::persist::{Moment, aux_fields};
use crate::{Engine, Now, system_text};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_commands::serial::file::{Saving, save};

/// Number of bytes of the snapshot that are read at a time.
const PART_BYTES: usize = 64 << 10;
/// No part is read while more bytes than this wait for the replica.
const UNSENT_BYTES_MAX: u64 = 1 << 20;
/// Time between two looks at a replica that has enough to receive.
const LOOK_EVERY_US: u64 = 1_000;

impl Engine {
    /// `PSYNC` and `SYNC`: the replica gets a snapshot and then the stream. The work is done on threads.
    pub(crate) fn sync_replica(self: &Arc<Self>, replica: &Arc<Replica>) {
        let mut state = self.replication.state.lock();
        state.alone_since_us = None;
        replica.hear(self.host.mono_us());
        state.replicas.push(replica.clone());
        state.waiting.push(replica.clone());
        self.replication.totals.full.fetch_add(1, Relaxed);
        if std::mem::replace(&mut state.is_syncing, true) {
            return;
        }
        drop(state);
        let engine = self.clone();
        let spawned = self.host.spawn("replica-sync", Box::new(move || engine.sync_waiting_replicas()));
        if let Err(why) = spawned {
            while let Some(waiting) = self.take_waiting_replicas() {
                self.refuse_replicas(&waiting, &why);
            }
        }
    }
    /// Makes snapshots until no replica waits. Runs on a thread of its own.
    fn sync_waiting_replicas(self: &Arc<Self>) {
        while let Some(waiting) = self.take_waiting_replicas() {
            let sync = || self.begin_replication().and_then(|()| self.sync_replicas(&waiting));
            let done = catch_unwind(AssertUnwindSafe(sync));
            let done = done.unwrap_or_else(|_| Err(io::Error::other("the snapshot panicked, see the log")));
            if let Err(why) = done {
                self.refuse_replicas(&waiting, &why);
            }
        }
    }
    /// The replicas that wait for a snapshot with the same parts as the first one's. `None`, and the thread ends, when no
    /// replica waits.
    fn take_waiting_replicas(&self) -> Option<Vec<Arc<Replica>>> {
        let mut state = self.replication.state.lock();
        state.is_syncing = !state.waiting.is_empty();
        let parts = state.waiting.first()?.facts.parts;
        let (taken, later) =
            std::mem::take(&mut state.waiting).into_iter().partition(|replica| replica.facts.parts == parts);
        state.waiting = later;
        Some(taken)
    }
    fn refuse_replicas(&self, replicas: &[Arc<Replica>], why: &io::Error) {
        if replicas.iter().all(|replica| replica.phase() == Phase::Gone) {
            return self.host.log("A snapshot for replicas is given up, because they have left");
        }
        self.host.warn(&format!("Cannot synchronize replicas: {}", system_text(why)));
        replicas.iter().for_each(|replica| replica.client.kill());
    }
    /// Switches replication on: from now on the journal's bytes are kept.
    fn begin_replication(self: &Arc<Self>) -> io::Result<()> {
        self.while_nobody_takes(|_| {
            if self.replication.is_on() {
                return Ok(());
            }
            self.spawn_feeding_thread()?;
            // With a file that has no base yet, the journal is off, too.
            if !self.keyspace.journal().is_on() {
                self.keyspace.switch_journal(true);
            }
            let begin = self.keyspace.journal().frontier();
            let mut state = self.replication.state.lock();
            (state.end, state.stream) = (begin, Stream::of_journal(begin));
            self.replication.set_on(true);
            Ok(())
        })
    }
    fn sync_replicas(self: &Arc<Self>, replicas: &[Arc<Replica>]) -> io::Result<()> {
        self.check_disk_room(self.persist.snapshot_bytes()).map_err(io::Error::other)?;
        let now = self.host.now();
        {
            let state = self.replication.state.lock();
            replicas.iter().for_each(|replica| replica.keep_from(state.end));
        }
        let names: Vec<String> = replicas.iter().map(|replica| replica.name()).collect();
        self.host.log(&format!("Starting a snapshot for replicas: {}", names.join(", ")));
        let (file, offset) = self.write_replica_snapshot(replicas, now)?;
        for replica in replicas {
            let (engine, file, to) = (self.clone(), file.clone(), replica.clone());
            let work = Box::new(move || {
                let send = || engine.send_snapshot(&to, &*file, offset);
                if catch_unwind(AssertUnwindSafe(send)).is_err() {
                    engine.refuse_snapshot(&to, &io::Error::other("the sender panicked, see the log"));
                }
            });
            self.host.spawn("replica-send", work)?;
        }
        Ok(())
    }
    /// Writes the snapshot, and announces its moment to the replicas. Returns the file, and the journal's offset of the
    /// moment.
    fn write_replica_snapshot(
        &self,
        replicas: &[Arc<Replica>],
        now: Now,
    ) -> io::Result<(Arc<dyn ScratchFile>, u64)> {
        let flag = |option| self.config.number(option) != 0;
        let parts = replicas.first().map(|replica| replica.facts.parts).unwrap_or_default();
        let mut offset = 0;
        let never_cancelled = AtomicBool::new(false);
        let delay = self.delay_or_cancel(&never_cancelled);
        let file = self.host.scratch_file(&mut |out| {
            let someone_waits =
                |_: Option<bool>| match replicas.iter().all(|replica| replica.phase() == Phase::Gone) {
                    true => Err(io::Error::other("the replicas have left")),
                    false => Ok(()),
                };
            let (moment, position) =
                self.take_moment_of_stream(|| self.long_locks.announce_while(None, someone_waits))?;
            if !position.is_known() {
                return Err(io::Error::other("this server has lost its primary"));
            }
            offset = position.offset;
            self.drain_journal();
            let id = &position.id;
            for replica in replicas {
                let reply = format!("+FULLRESYNC {id} {offset}\r\n");
                replica.begin_at(offset, if replica.facts.is_silent { "" } else { &reply });
            }
            let mut aux = aux_fields(self, now, false).to_vec();
            aux.extend(position.aux_fields());
            let Moment { snapshot, definitions, .. } = moment;
            let saving = Saving {
                aux: &aux,
                commands: &if parts.data { definitions.encoded_commands() } else { Vec::new() },
                functions: &if parts.functions { definitions.libraries() } else { Vec::new() },
                compress: flag(Opt::RdbCompression),
                checksum: flag(Opt::RdbChecksum),
                lru: self.config.choice(Opt::MaxMemoryPolicy).ends_with("-lru"),
                expiry_ms: i64::MIN,
                clock_ms: &|| self.host.now().unix_ms(),
                pause: &|| self.host.yield_now(),
                progress: &|keys| delay(keys).and_then(|()| someone_waits(None)),
            };
            save(parts.data.then_some(snapshot), &saving, out).map(drop)
        })?;
        Ok((file, offset))
    }
    /// Sends the snapshot to a replica, and then lets the replica have the stream. Runs on a thread of its own.
    fn send_snapshot(&self, replica: &Replica, file: &dyn ScratchFile, offset: u64) {
        replica.begin_snapshot(&format!("${}\r\n", file.bytes()));
        let (mut at, mut part) = (0, vec![0; PART_BYTES]);
        let mut progress_us = self.host.mono_us();
        let mut unsent = u64::MAX;
        while at < file.bytes() && replica.phase() == Phase::Loading {
            let waits = replica.unsent_bytes();
            if waits > UNSENT_BYTES_MAX {
                let now_us = self.host.mono_us();
                if waits < unsent {
                    progress_us = now_us;
                }
                unsent = waits;
                if now_us.saturating_sub(progress_us) > self.seconds(Opt::ReplTimeout) {
                    self.host
                        .warn(&format!("Disconnecting timedout replica (full sync): {}", replica.name()));
                    return replica.client.kill();
                }
                self.host.nap_us(LOOK_EVERY_US);
                continue;
            }
            match file.read_at(&mut part, at) {
                Ok(0) => return self.refuse_snapshot(replica, &io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    replica.send_part(&part[..n]);
                    (at, unsent) = (at + n as u64, u64::MAX);
                    progress_us = self.host.mono_us();
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return self.refuse_snapshot(replica, &why),
            }
        }
        if replica.phase() != Phase::Loading {
            return;
        }
        replica.go_online(offset, self.host.mono_us());
        self.replicas_changed();
        self.host.log(&format!("Synchronization with replica {} succeeded", replica.name()));
    }
    fn refuse_snapshot(&self, replica: &Replica, why: &io::Error) {
        self.host.warn(&format!("Cannot send a snapshot to {}: {}", replica.name(), system_text(why)));
        replica.client.kill();
    }
    /// Takes everything that the journal has up to now. May block.
    pub(super) fn drain_journal(&self) {
        let tail = self.keyspace.journal().tail();
        let is_behind = || {
            let state = self.replication.state.lock();
            !state.stream.is_from_primary && state.end < state.stream.offset_of(tail)
        };
        while is_behind() {
            if !self.feed_replicas() {
                self.host.yield_now();
            }
        }
    }
}
