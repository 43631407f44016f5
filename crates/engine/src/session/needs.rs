//! The memory that a command may need on a helper thread. A job that would not fit waits or is refused.
//!
//! Only work that creates data is checked: a read builds a reply, a command with DENYOOM stores a result, an index
//! copies texts. A command that removes data always runs. The sizes are quick estimates.

use super::run::Next;
use super::waits::On;
use super::{Session, Turn};
use crate::Now;
use crate::headroom::{Admitted, refusal};
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::long;
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_keyspace::Key;

/// Keys with a value that is checked. The other keys count as the mean of these.
const KEYS_LOOKED_AT: usize = 128;
/// Bytes per key in a reply that lists every key: its name and the protocol's overhead.
const KEY_REPLY_BYTES: u64 = 48;
/// Least memory of an index writer.
const INDEX_BYTES_MIN: u64 = 32 << 20;
/// Expected size of an index of all data: one part in this many of the data's bytes. The trigram index of mails takes
/// 0.43 of the text (docs/benchmarks.md). Text indexes were not measured for this.
const INDEX_PART: u64 = 2;

impl Session {
    /// Sends the command in hand to a helper thread once its expected memory is free.
    pub(super) fn send_to_lane(&mut self, spec: &'static CommandSpec, now: Now) -> Next {
        let mut reservation = None;
        if self.engine.headroom.is_known() {
            let bytes = self.needed_bytes(spec, now);
            match self.engine.admit_work(bytes, self.postponed_us(now), now) {
                Admitted::Now(promised) => reservation = promised,
                Admitted::Later { at_us: until_mono_us } => {
                    self.postpone(On::Memory, now);
                    return Next::Stop(Turn::Sleep { until_mono_us });
                }
                Admitted::Refused { missing_bytes } => {
                    let name = self.engine.stats.ids.name(self.last_command).replace('|', " ");
                    return self.reject(spec, refusal(&name, bytes, missing_bytes).as_bytes());
                }
            }
        }
        self.tally.call(self.last_command, self.client.peer.worker, &self.engine.stats);
        let mut job = self.park(spec);
        job.reservation = reservation;
        Next::Stop(Turn::Lane(job))
    }
    /// An estimate of the memory of the command in hand while it runs, without its arguments. 0 for a command that
    /// creates nothing.
    fn needed_bytes(&self, spec: &'static CommandSpec, now: Now) -> u64 {
        let keyspace = &*self.engine.keyspace;
        match spec.exec {
            Exec::Service(_) if spec.flags.has(Flags::INDEXES) => {
                INDEX_BYTES_MIN + keyspace.data_bytes() as u64 / INDEX_PART
            }
            Exec::Walk(_) if spec.flags.has(Flags::READONLY) => {
                // The keys of all databases: the count of one database needs the shards' locks, which a long command
                // may hold.
                keyspace.records() * KEY_REPLY_BYTES
            }
            // Hashing this many keys would take milliseconds on a worker. Their bytes in the request stand for the
            // needed bytes.
            exec if exec.on_keys().is_some() && makes(spec) && self.argv.args().len() > LONG_ELEMENTS => {
                self.frame_bytes.saturating_sub(self.input.len()) as u64
            }
            exec if exec.on_keys().is_some() && makes(spec) => {
                let keys = long::keys(spec, self.argv.args(), keyspace);
                let looked_at = &keys[..keys.len().min(KEYS_LOOKED_AT)];
                // A locked shard is not waited for; its keys count as nothing.
                let bytes = |key: &Key<'_>| {
                    let txn = keyspace.try_lock(&[key.hash], now.unix_ms());
                    txn.map_or(0, |mut txn| txn.db(self.db).heap_bytes_at(key) as u64)
                };
                let sum: u64 = looked_at.iter().map(bytes).sum();
                (u128::from(sum) * keys.len() as u128 / looked_at.len().max(1) as u128) as u64
            }
            _ => 0,
        }
    }
}

/// True for commands that build a reply from data, or store a result.
fn makes(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::READONLY) || spec.flags.has(Flags::DENYOOM)
}
