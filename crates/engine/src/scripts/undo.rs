//! [`Undo`]: what was at the keys that a run has written, so that the run can begin anew elsewhere.

use std::collections::BTreeMap;
use strand_commands::cost::LONG_BYTES;
use strand_keyspace::{Key, Txn, Value, ValueRef};

/// Most keys whose former values are kept.
const KEYS_MAX: usize = 1024;
/// A string as long is copied when it is written while its former value is kept; a collection with as many elements has so
/// many parts that even sharing them takes a while.
const ELEMENTS_MAX: usize = 1 << 20;

/// The value and expiry of a key; `None`: there was none.
type Former = Option<(Value, Option<i64>)>;

/// The former values of keys, by database and key.
#[derive(Default)]
pub(crate) struct Undo {
    former: BTreeMap<(usize, Box<[u8]>), Former>,
}

impl Undo {
    /// Keeps what is at `keys`, which are about to be written. False: too much for it.
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
    /// True when something is kept of this key: the run has written it.
    pub(crate) fn has(&self, db: usize, key: &[u8]) -> bool {
        !self.former.is_empty() && self.former.contains_key(&(db, Box::from(key)))
    }
    /// Puts everything back.
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
