//! What happens to a record whose expiry has passed, when a transaction finds it. Active expiry ([`crate::sweep`]) finds
//! the others.
//!
//! Usually the record is removed, or the expired fields of its hash are. In a replica the primary decides what expires
//! ([`crate::Settings::keeps_expired`]): there, clients miss what has expired, and the primary's commands find it.
//!
//! The path of an expired field of a hash, from the primary to a replica: the ticker (`crates/server/src/driver/ticker.rs`)
//! calls [`crate::Keyspace::expire_slice`], which calls `Shard::expire_step`. The fields become a `Removal`
//! (`journal/removal.rs`): HDEL with their names, or an ECHO when they are very many. The stream brings this command to the
//! replica: `crates/engine/src/following/link.rs` reads the command, and `crates/commands/src/replay.rs` runs it.

use crate::extendible::{Content, Location, position_of};
use crate::record::key_expiry_ms;
use crate::{Db, Key};

impl Db<'_, '_> {
    /// Handles a record whose expiry, or the expiry of one of its fields, has passed. Removes the record if
    /// the key itself expired, or if no field is left. Otherwise removes the expired fields and returns the new
    /// place of the record.
    #[cold]
    pub(crate) fn expire(&mut self, key: &Key<'_>, at: Location) -> Option<Location> {
        let (slot, now_ms) = (self.slot, self.txn.clock.expiry_ms);
        if self.txn.is_replaying() {
            self.show_fields(key, at);
            return Some(at);
        }
        if self.txn.clock.keeps_expired && !self.txn.removes_kept {
            return self.hide_expired(key, at);
        }
        let names_fields = self.txn.listens();
        let shard = self.changed(key);
        let expired = shard.expire_fields(slot, at, key, now_ms, names_fields);
        let value = if expired.stays { None } else { shard.remove(slot, expired.at, key) };
        self.txn.garbage(value);
        self.txn.report_expiry(slot, key.bytes, &expired);
        expired.stays.then_some(expired.at)
    }
    /// Hides the fields of a hash that are due. Returns `None` when the key, or each of its fields, has expired. Removes
    /// nothing.
    fn hide_expired(&mut self, key: &Key<'_>, at: Location) -> Option<Location> {
        let (slot, now_ms) = (self.slot, self.txn.clock.expiry_ms);
        let record = self.shard(key).table(slot)?.records.at(at);
        if key_expiry_ms(&record) <= now_ms {
            return None;
        }
        let Content::Outside(value) = record.content() else { return Some(at) };
        if value.shows_due_fields(now_ms) {
            self.changed(key).change_unnoted(slot, at, key, |value| value.hide_fields(now_ms));
        }
        let record = self.record(key, at)?;
        (record.value().elements() > 0).then_some(at)
    }
    /// Shows hidden fields to the commands of the primary, for which they have not expired.
    fn show_fields(&mut self, key: &Key<'_>, at: Location) {
        let slot = self.slot;
        let record = self.shard(key).table(slot).map(|table| table.records.at(at));
        if let Some(Content::Outside(value)) = record.map(|record| record.content())
            && value.hides_fields()
        {
            self.changed(key).change_unnoted(slot, at, key, |value| value.show_fields());
        }
    }
    /// Removes the record of a key that has expired and was kept, before the key is added again.
    #[cold]
    pub(crate) fn remove_kept(&mut self, key: &Key<'_>) {
        let (slot, position) = (self.slot, position_of(key.hash.0));
        let at = self.shard(key).table(slot).and_then(|table| table.records.locate(position, key.bytes));
        let value = at.and_then(|at| self.changed(key).remove(slot, at, key));
        self.txn.garbage(value);
    }
}

#[cfg(test)]
mod tests {
    use crate::types::hash::HashValue;
    use crate::types::{Changed, Collection};
    use crate::{Key, Keyspace, Txn};
    use std::sync::atomic::Ordering::Relaxed;

    /// A transaction at this time. `replays`: it runs the primary's commands.
    fn lock<'k>(keyspace: &'k Keyspace, key: &Key<'_>, now_ms: i64, replays: bool) -> Txn<'k> {
        let mut txn = keyspace.lock(&[key.hash], now_ms);
        if replays {
            txn.set_replaying();
        }
        txn
    }

    /// The fields that a read finds.
    fn fields(keyspace: &Keyspace, key: &Key<'_>, now_ms: i64) -> Vec<String> {
        let mut txn = lock(keyspace, key, now_ms, false);
        let mut db = txn.db(0);
        let hash = db.read::<HashValue>(key).expect("a hash");
        let names = hash.into_iter().flat_map(HashValue::iter).map(|(field, _)| field.to_vec());
        let mut names: Vec<String> = names.map(|name| String::from_utf8(name).expect("text")).collect();
        names.sort();
        names
    }

    fn change<R>(
        keyspace: &Keyspace,
        key: &Key<'_>,
        (now_ms, replays): (i64, bool),
        change: impl FnOnce(&mut HashValue) -> R,
    ) -> R {
        let mut txn = lock(keyspace, key, now_ms, replays);
        txn.db(0).change_or_create(key, |hash| (change(hash), Changed::Yes)).expect("a hash")
    }

    #[test]
    fn in_a_replica_clients_miss_due_fields_and_the_primary_finds_them() {
        let keyspace = Keyspace::new(4, 16, [1, 2, 3, 4]);
        let key = keyspace.key(b"hash");
        keyspace.settings().keeps_expired.store(1, Relaxed);
        change(&keyspace, &key, (0, true), |hash| {
            for (field, expiry_ms) in [("a", Some(100)), ("b", Some(200)), ("c", None)] {
                hash.set(field.as_bytes(), b"1", keyspace.settings());
                hash.set_expiry(field.as_bytes(), expiry_ms, keyspace.settings());
            }
        });
        assert_eq!(fields(&keyspace, &key, 99), ["a", "b", "c"]);
        assert_eq!(fields(&keyspace, &key, 100), ["b", "c"]);
        assert_eq!(fields(&keyspace, &key, 250), ["c"]);
        // For the primary `a` has not expired: it makes the field permanent. Its reads find `a`.
        {
            let mut txn = lock(&keyspace, &key, 250, true);
            let mut db = txn.db(0);
            let hash = db.read::<HashValue>(&key).expect("a hash").expect("the key");
            assert_eq!((hash.len(), hash.get(b"a").is_some()), (3, true));
        }
        // So does a file.
        assert_eq!(fields(&keyspace, &key, 250), ["c"]);
        {
            let mut txn = lock(&keyspace, &key, 250, false);
            let mut db = txn.db(0);
            let copy = db.peek(&key).and_then(|record| record.value().with_hidden_fields());
            assert_eq!(copy.map(|copy| copy.view().elements()), Some(3));
        }
        assert_eq!(fields(&keyspace, &key, 250), ["c"]);
        change(&keyspace, &key, (250, true), |hash| {
            assert_eq!(hash.len(), 3);
            hash.set_expiry(b"a", None, keyspace.settings());
        });
        assert_eq!(fields(&keyspace, &key, 250), ["a", "c"]);
        // The primary removes what never expires. The key stays for the primary, and clients miss it.
        change(&keyspace, &key, (250, true), |hash| (hash.remove(b"a"), hash.remove(b"c")));
        assert_eq!(fields(&keyspace, &key, 250), [""; 0]);
        assert_eq!(keyspace.len(0), 1);
        change(&keyspace, &key, (250, true), |hash| hash.set(b"d", b"1", keyspace.settings()));
        assert_eq!(fields(&keyspace, &key, 250), ["d"]);
        // This server becomes a primary: what is due expires.
        keyspace.settings().keeps_expired.store(0, Relaxed);
        assert_eq!(fields(&keyspace, &key, 250), ["d"]);
        assert_eq!(change(&keyspace, &key, (250, false), |hash| hash.hidden_fields()), 0);
    }
}
