//! [`Batch`]: keys that were read from a file and wait to be put into the keyspace, by any thread.
//!
//! The keys of a batch are sorted by their place in the keyspace and looked up together, so the memory of the next keys
//! arrives while one key is put.

use super::file::{Loading, NotLoaded, Problem, shown};
use strand_keyspace::types::string::Str;
use strand_keyspace::{Key, Keyspace, Txn, Value};
use strand_rdb::write::KeyHead;

/// Keys of a batch.
const KEYS_MAX: usize = 4096;
/// Bytes of the file in a batch. A single larger value exceeds this.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Keys whose memory is fetched at once.
const AHEAD_KEYS: usize = 16;

/// See the module.
pub struct Batch {
    loading: Loading,
    /// The bytes of all keys, one after the other.
    keys: Vec<u8>,
    items: Vec<Item>,
    /// The position of the file's reader at the start of the batch.
    began_at: u64,
}

struct Item {
    /// The end of the key in [`Batch::keys`].
    key_end: usize,
    db: usize,
    head: KeyHead,
    value: Value,
    /// The end of the value in the file.
    offset: u64,
}

impl Batch {
    pub(super) fn new(loading: Loading, began_at: u64) -> Batch {
        Batch { loading, keys: Vec::new(), items: Vec::new(), began_at }
    }
    /// Adds a key whose value ends at `offset` of the file. Returns true when the batch is full.
    pub(super) fn add(&mut self, db: usize, key: &[u8], head: KeyHead, value: Value, offset: u64) -> bool {
        self.keys.extend_from_slice(key);
        self.items.push(Item { key_end: self.keys.len(), db, head, value, offset });
        self.items.len() >= KEYS_MAX || offset >= self.began_at + FILE_BYTES_MAX
    }
    /// Takes this batch and leaves an empty one.
    pub(super) fn take(&mut self, offset: u64) -> Batch {
        let next = Batch {
            keys: Vec::with_capacity(self.keys.len()),
            items: Vec::with_capacity(self.items.len()),
            ..Batch::new(self.loading, offset)
        };
        std::mem::replace(self, next)
    }
    /// Puts the keys into the keyspace, in the order of their places there: a shard is locked once for several keys,
    /// and neighbours share what is in the processor's cache. Two values of one key keep the order of the file.
    ///
    /// # Errors
    /// At a key that exists already. The keys before it in that order have been put.
    pub fn put(mut self, keyspace: &Keyspace) -> Result<(), NotLoaded> {
        let mut begin = 0;
        let ends = self.items.iter().map(|item| item.key_end);
        let keys = ends.map(|end| keyspace.key(&self.keys[std::mem::replace(&mut begin, end)..end]));
        let mut order: Vec<(u64, usize, Key<'_>)> =
            keys.enumerate().map(|(at, key)| (keyspace.place_of(key.hash), at, key)).collect();
        order.sort_unstable_by_key(|(place, at, _)| (*place, *at));
        let keys: Vec<Key<'_>> = order.iter().map(|(_, _, key)| *key).collect();
        let mut put = 0;
        for of_shard in keys.chunk_by(|a, b| keyspace.shard_of(a.hash) == keyspace.shard_of(b.hash)) {
            for together in of_shard.chunks(AHEAD_KEYS) {
                let first = order[put].1;
                // Most files have one database. A wrong database only makes the prefetch useless.
                keyspace.prefetch(self.items[first].db, together);
                let mut txn = keyspace.lock(&[together[0].hash], self.loading.now_ms);
                for key in together {
                    self.items[order[put].1].put(&mut txn, key, self.loading)?;
                    put += 1;
                }
            }
        }
        Ok(())
    }
}

impl Item {
    /// Puts the key, and takes its value out of the item.
    fn put(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, loading: Loading) -> Result<(), NotLoaded> {
        let value = std::mem::replace(&mut self.value, Value::Str(Str::Int(0)));
        let Item { db, head, offset, .. } = *self;
        let mut db = txn.db(db);
        if loading.replace {
            db.insert(key, value, head.expires_at_ms);
        } else if !db.insert_new(key, value, head.expires_at_ms) {
            return Err(NotLoaded { offset, problem: Problem::Duplicate(shown(key.bytes)) });
        }
        if head.expires_at_ms.is_none_or(|at| at > loading.now_ms) {
            db.set_usage(key, head.idle_s, head.freq);
        }
        Ok(())
    }
}
