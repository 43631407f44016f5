//! [`Batch`]: keys that were read from a file and are to be stored in the keyspace, on any thread.
//!
//! The keys of a batch are sorted by their positions in the keyspace, and their memory is prefetched. So the memory
//! of the next keys arrives while one key is stored.

use super::file::{Loading, NotLoaded, RdbProblem, shown};
use strand_chain::{Blob, CACHE_LINE_BYTES, prefetch};
use strand_keyspace::types::string::{Str, StrRef};
use strand_keyspace::{Key, Keyspace, Txn, Value};
use strand_rdb::Text;
use strand_rdb::write::KeyHead;

/// Maximum number of keys in a batch. In a table of 5 M keys, two or three keys of a batch are in one segment and
/// share its cache misses. Without the prefetches of [`Batch::put`], one core stored 1.93 M keys per second; with a
/// quarter as many keys per batch 1.66 M, with four times as many 1.82 M.
const KEYS_MAX: usize = 16 << 10;
/// Bytes of the file after which a batch ends. A single value may be larger.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Number of keys whose memory is prefetched together.
const AHEAD_KEYS: usize = 16;
/// Bytes that are prefetched of a key, and of the short string after the key.
const TEXT_BYTES: usize = 2 * CACHE_LINE_BYTES;
/// A string longer than this gets a blob at once, which the keyspace keeps. A shorter one is copied into a record
/// later.
const COPIED_BYTES_MAX: usize = 512;

/// A batch of keys. The documentation of the module explains it.
pub struct Batch {
    loading: Loading,
    /// The keys, one after the other. A short string follows its key here.
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Offset in the file at which the batch starts.
    began_at: u64,
}

struct Item {
    /// End of the key in [`Batch::bytes`].
    key_end: usize,
    /// End of the key and its short string, if it has one, in [`Batch::bytes`].
    end: usize,
    db: usize,
    head: KeyHead,
    /// The value of the key. `None`: the value is the short string between `key_end` and `end`.
    value: Option<Value>,
    /// Offset in the file at which the value ends.
    offset: u64,
}

impl Batch {
    pub(super) fn new(loading: Loading, began_at: u64) -> Batch {
        Batch { loading, bytes: Vec::new(), items: Vec::new(), began_at }
    }
    /// Adds a key. The caller must call [`Batch::ends_at`] next.
    pub(super) fn add(&mut self, db: usize, key: &[u8], head: KeyHead, value: Value) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.items.push(Item { key_end, end: key_end, db, head, value: Some(value), offset: 0 });
    }
    /// Like [`Batch::add`], for a string. A short string needs no allocation.
    pub(super) fn add_string(&mut self, db: usize, key: &[u8], head: KeyHead, text: Text<'_>) {
        if text.len() > COPIED_BYTES_MAX {
            let blob = match text {
                Text::Owned(bytes) => Blob::from(bytes),
                text => Blob::from(&*text),
            };
            return self.add(db, key, head, Value::Str(Str::Raw(blob)));
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(&text);
        self.items.push(Item { key_end, end: self.bytes.len(), db, head, value: None, offset: 0 });
    }
    /// Sets the offset in the file at which the last key's value ends. Returns true when the batch is large enough.
    pub(super) fn ends_at(&mut self, offset: u64) -> bool {
        if let Some(last) = self.items.last_mut() {
            last.offset = offset;
        }
        self.items.len() >= KEYS_MAX || offset >= self.began_at + FILE_BYTES_MAX
    }
    /// Takes the keys out as a batch, and begins a new batch at `offset` of the file.
    pub(super) fn take(&mut self, offset: u64) -> Batch {
        let next = Batch {
            bytes: Vec::with_capacity(self.bytes.len()),
            items: Vec::with_capacity(self.items.len()),
            ..Batch::new(self.loading, offset)
        };
        std::mem::replace(self, next)
    }
    /// Stores the keys in the keyspace, in the order of their positions. So one lock of a shard serves several
    /// keys, and neighbouring keys share cache lines. If the file has two values of one key, they keep their order.
    ///
    /// The memory of the next keys is prefetched: the items, the texts, and the places of the new records. (`make
    /// durable ARGS='--only load'`, both builds in turn: one core loads 2.02 M keys per second with the prefetches of
    /// items and places, 1.50 M without them.)
    ///
    /// # Errors
    /// Fails if a key exists already. The keys before it, in the order of positions, were stored.
    pub fn put(mut self, keyspace: &Keyspace) -> Result<(), NotLoaded> {
        let mut begin = 0;
        let places = self.items.iter().map(|item| (std::mem::replace(&mut begin, item.end), item.key_end));
        let keys: Vec<Key<'_>> = places.map(|(begin, end)| keyspace.key(&self.bytes[begin..end])).collect();
        let places = keys.iter().enumerate().map(|(at, key)| (keyspace.place_of(key.hash), at as u32));
        let mut order: Vec<(u64, u32)> = places.collect();
        order.sort_unstable();
        let keys: Vec<Key<'_>> = order.iter().map(|(_, at)| keys[*at as usize]).collect();
        let mut done = 0;
        for of_shard in keys.chunk_by(|a, b| keyspace.shard_of(a.hash) == keyspace.shard_of(b.hash)) {
            for together in of_shard.chunks(AHEAD_KEYS) {
                let these = &order[done..done + together.len()];
                done += together.len();
                // The items and the texts of the next keys lie anywhere in the batch, which is larger than the cache of
                // a core.
                for (key, (_, at)) in keys.iter().zip(&order).skip(done).take(AHEAD_KEYS) {
                    prefetch(&self.items[*at as usize], size_of::<Item>());
                    prefetch(key.bytes, TEXT_BYTES);
                }
                let mut txn = keyspace.lock(&[together[0].hash], self.loading.now_ms);
                if self.loading.keep_expired {
                    // The commands after this part of the file say which keys and fields expired.
                    txn.set_replaying();
                }
                // Most files have one database. If the keys are of several, only this hint is useless.
                txn.db(self.items[these[0].1 as usize].db).prefetch_new(together);
                for (key, (_, at)) in together.iter().zip(these) {
                    self.items[*at as usize].put(&mut txn, key, &self.bytes, self.loading)?;
                }
            }
        }
        Ok(())
    }
}

impl Item {
    /// Stores one item. `bytes` has its key and its short string. Takes the value out of the item.
    fn put(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        bytes: &[u8],
        loading: Loading,
    ) -> Result<(), NotLoaded> {
        let Item { db, head, offset, key_end, end, .. } = *self;
        let mut db = txn.db(db);
        let is_put = match (self.value.take(), loading.replace) {
            (Some(value), true) => {
                db.insert(key, value, head.expires_at_ms);
                true
            }
            (Some(value), false) => db.insert_new(key, value, head.expires_at_ms),
            (None, true) => {
                db.set_str(key, StrRef::of(&bytes[key_end..end]), head.expires_at_ms);
                true
            }
            (None, false) => db.set_new_str(key, StrRef::of(&bytes[key_end..end]), head.expires_at_ms),
        };
        if !is_put {
            return Err(NotLoaded { offset, problem: RdbProblem::Duplicate(shown(key.bytes)) });
        }
        if head.idle_s.is_some() || head.freq.is_some() {
            db.set_usage(key, head.idle_s, head.freq);
        }
        Ok(())
    }
}
