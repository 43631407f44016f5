//! [`Batch`]: keys that were read from a file and are still to be put into the keyspace, on any thread.
//!
//! The keys of a batch are looked up together, so that the memory of the next comes while one is put.

use super::file::{Loading, NotLoaded, Problem, shown};
use strand_keyspace::{Key, Keyspace, Value};
use strand_rdb::write::KeyHead;

/// Keys of a batch.
const KEYS_MAX: usize = 512;
/// Bytes of the file that a batch is made of, unless one value has more.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Keys whose memory is asked for at once.
const AHEAD_KEYS: usize = 16;

/// See the module.
pub struct Batch {
    loading: Loading,
    /// The keys, side by side.
    keys: Vec<u8>,
    items: Vec<Item>,
    /// Where the file's reader was when it began.
    began_at: u64,
}

struct Item {
    /// Behind the key, in [`Batch::keys`].
    key_end: usize,
    db: usize,
    head: KeyHead,
    value: Value,
    /// Behind the value, in the file.
    offset: u64,
}

impl Batch {
    pub(super) fn new(loading: Loading, began_at: u64) -> Batch {
        Batch { loading, keys: Vec::new(), items: Vec::new(), began_at }
    }
    /// Takes one more key, whose value ends at `offset` of the file; true when it is enough.
    pub(super) fn add(&mut self, db: usize, key: &[u8], head: KeyHead, value: Value, offset: u64) -> bool {
        self.keys.extend_from_slice(key);
        self.items.push(Item { key_end: self.keys.len(), db, head, value, offset });
        self.items.len() >= KEYS_MAX || offset >= self.began_at + FILE_BYTES_MAX
    }
    /// This batch, and an empty one in its place.
    pub(super) fn take(&mut self, offset: u64) -> Batch {
        let next = Batch {
            keys: Vec::with_capacity(self.keys.len()),
            items: Vec::with_capacity(self.items.len()),
            ..Batch::new(self.loading, offset)
        };
        std::mem::replace(self, next)
    }
    /// Puts the keys into the keyspace.
    ///
    /// # Errors
    /// At a key that is there already. Those before it are put.
    pub fn put(self, keyspace: &Keyspace) -> Result<(), NotLoaded> {
        let mut begin = 0;
        let keys: Vec<Key<'_>> = self
            .items
            .iter()
            .map(|item| keyspace.key(&self.keys[std::mem::replace(&mut begin, item.key_end)..item.key_end]))
            .collect();
        for (at, (item, key)) in self.items.into_iter().zip(&keys).enumerate() {
            if at % AHEAD_KEYS == 0 {
                // Most files are of one database; a wrong one costs the hint alone.
                keyspace.prefetch(item.db, &keys[at..keys.len().min(at + AHEAD_KEYS)]);
            }
            item.put(keyspace, key, self.loading)?;
        }
        Ok(())
    }
}

impl Item {
    fn put(self, keyspace: &Keyspace, key: &Key<'_>, loading: Loading) -> Result<(), NotLoaded> {
        let Item { db, head, value, offset, .. } = self;
        let mut txn = keyspace.lock(&[key.hash], loading.now_ms);
        let mut db = txn.db(db);
        if !loading.replace && db.peek(key).is_some() {
            return Err(NotLoaded { offset, problem: Problem::Duplicate(shown(key.bytes)) });
        }
        db.insert(key, value, head.expires_at_ms);
        if head.expires_at_ms.is_none_or(|at| at > loading.now_ms) {
            db.set_usage(key, head.idle_s, head.freq);
        }
        Ok(())
    }
}
