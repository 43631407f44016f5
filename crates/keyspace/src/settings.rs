//! [`Settings`]: values that the administrator may change while the server runs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bit of [`Settings::listens`]: the keyspace's listener wants events.
pub const LISTENER: u64 = 1;
/// Bit of [`Settings::listens`]: the journal records changes.
pub const JOURNAL: u64 = 2;

/// Tunables, with the names of redis-server's. Read them with `Relaxed`.
#[derive(Debug)]
pub struct Settings {
    /// The option `hash-max-listpack-entries` (default 512).
    pub hash_max_listpack_entries: AtomicU64,
    /// `hash-max-listpack-value` in bytes (default 64).
    pub hash_max_listpack_value: AtomicU64,
    /// `stream-node-max-bytes` (default 4096): maximum size of a stream's block before the next entry begins a new
    /// block. 0: no limit.
    pub stream_node_max_bytes: AtomicU64,
    /// `stream-node-max-entries` (default 100): maximum number of entries per block, deleted ones included. 0: no
    /// limit.
    pub stream_node_max_entries: AtomicU64,
    /// The option `zset-max-listpack-entries` (default 128).
    pub zset_max_listpack_entries: AtomicU64,
    /// `zset-max-listpack-value` in bytes (default 64).
    pub zset_max_listpack_value: AtomicU64,
    /// `proto-max-bulk-len` in bytes (default 512 MB): maximum length of a string.
    pub proto_max_bulk_len: AtomicU64,
    /// `hll-sparse-max-bytes` (default 3000): a HyperLogLog with more bytes is stored in the dense representation.
    pub hll_sparse_max_bytes: AtomicU64,
    /// `set-max-intset-entries` (default 512): maximum number of integers in a set with the encoding `intset`.
    pub set_max_intset_entries: AtomicU64,
    /// 1 when `maxmemory-policy` is an LFU policy, else 0. With 1, `OBJECT FREQ` works and `OBJECT IDLETIME` does
    /// not.
    pub lfu: AtomicU64,
    /// `lfu-log-factor` (default 10): with a higher factor, the access counter rises more slowly.
    pub lfu_log_factor: AtomicU64,
    /// `lfu-decay-time` (default 1): the access counter falls by one per this number of minutes. 0: it never falls.
    pub lfu_decay_time: AtomicU64,
    /// 1 while another server decides what expires: a key or a field of a hash that has expired is missing for commands,
    /// and stays. 0: what has expired is removed.
    pub keeps_expired: AtomicU64,
    /// The receivers of changes: the bits [`LISTENER`] and [`JOURNAL`]. 0: none.
    pub listens: AtomicU64,
}

impl Settings {
    /// A copy of the tunables with `listens` set to 0.
    pub(crate) fn quiet(&self) -> Settings {
        let Settings {
            hash_max_listpack_entries,
            hash_max_listpack_value,
            stream_node_max_bytes,
            stream_node_max_entries,
            zset_max_listpack_entries,
            zset_max_listpack_value,
            proto_max_bulk_len,
            hll_sparse_max_bytes,
            set_max_intset_entries,
            lfu,
            lfu_log_factor,
            lfu_decay_time,
            keeps_expired,
            listens: _,
        } = self;
        let now = |tunable: &AtomicU64| AtomicU64::new(tunable.load(Relaxed));
        Settings {
            hash_max_listpack_entries: now(hash_max_listpack_entries),
            hash_max_listpack_value: now(hash_max_listpack_value),
            stream_node_max_bytes: now(stream_node_max_bytes),
            stream_node_max_entries: now(stream_node_max_entries),
            zset_max_listpack_entries: now(zset_max_listpack_entries),
            zset_max_listpack_value: now(zset_max_listpack_value),
            proto_max_bulk_len: now(proto_max_bulk_len),
            hll_sparse_max_bytes: now(hll_sparse_max_bytes),
            set_max_intset_entries: now(set_max_intset_entries),
            lfu: now(lfu),
            lfu_log_factor: now(lfu_log_factor),
            lfu_decay_time: now(lfu_decay_time),
            keeps_expired: now(keeps_expired),
            listens: AtomicU64::new(0),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            hash_max_listpack_entries: AtomicU64::new(512),
            hash_max_listpack_value: AtomicU64::new(64),
            stream_node_max_bytes: AtomicU64::new(4096),
            stream_node_max_entries: AtomicU64::new(100),
            zset_max_listpack_entries: AtomicU64::new(128),
            zset_max_listpack_value: AtomicU64::new(64),
            proto_max_bulk_len: AtomicU64::new(512 << 20),
            hll_sparse_max_bytes: AtomicU64::new(3000),
            set_max_intset_entries: AtomicU64::new(512),
            lfu: AtomicU64::new(0),
            lfu_log_factor: AtomicU64::new(10),
            lfu_decay_time: AtomicU64::new(1),
            keeps_expired: AtomicU64::new(0),
            listens: AtomicU64::new(0),
        }
    }
}
