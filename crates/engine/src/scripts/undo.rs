//! [`Undo`]: the former records of the keys that a run has written, so that the run can restart elsewhere.

use std::collections::BTreeMap;
use strand_commands::cost::LONG_BYTES;
use strand_keyspace::{Key, Txn, Value, ValueRef};

/// Maximum number of keys with a kept record.
const KEYS_MAX: usize = 1024;
/// Maximum number of elements or bytes of a kept value. A longer string would be copied by the write while its former
/// value is kept. A larger collection has many parts: to share all of them takes long.
const ELEMENTS_MAX: usize = 1 << 20;

/// The value and expiry of a key. `None`: the key did not exist.
type PreviousRecord = Option<(Value, Option<i64>)>;

/// The former records, by database and key.
#[derive(Default)]
pub(crate) struct Undo {
    former: BTreeMap<(usize, Box<[u8]>), PreviousRecord>,
}

impl Undo {
    /// Keeps the records at `keys`, which are about to be written. False: the records are too many or too large.
    pub(crate) fn save(&mut self, txn: &mut Txn<'_>, db: usize, keys: &[Key<'_>]) -> bool {
        for key in keys {
            let place = (db, Box::from(key.bytes));
            if self.former.contains_key(&place) {
                continue;
            }
            let mut at = txn.db(db);
            let record = at.peek(key);
            let too_much = record.as_ref().is_some_and(|record| match record.value() {
                ValueRef::Str(text) => text.len() > LONG_BYTES,
                collection => collection.elements() > ELEMENTS_MAX,
            });
            if too_much || self.former.len() == KEYS_MAX {
                return false;
            }
            let former = record.map(|record| (record.value().to_value(), record.expire_at_ms()));
            self.former.insert(place, former);
        }
        true
    }
    /// True when the run has written this key.
    pub(crate) fn has(&self, db: usize, key: &[u8]) -> bool {
        !self.former.is_empty() && self.former.contains_key(&(db, Box::from(key)))
    }
    /// Restores all kept records.
    pub(crate) fn roll_back(self, txn: &mut Txn<'_>) {
        for ((db, bytes), former) in self.former {
            let key = txn.keyspace().key(&bytes);
            match former {
                Some((value, expire_at_ms)) => {
                    txn.db(db).insert(&key, value, expire_at_ms);
                }
                None => {
                    txn.db(db).delete(&key);
                }
            }
        }
    }
}
