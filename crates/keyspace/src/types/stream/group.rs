//! [`Group`]: a consumer group. It knows up to which entry it has read, and which entries are pending at which
//! consumer.

use super::entries::Entries;
use super::id::Id;
use super::map::SharedMap;
use std::ops::Bound;
use std::sync::Arc;

/// Name of a group or a consumer: any bytes.
pub type Name = Arc<[u8]>;

/// Number of bytes of the reference counts of a name.
const NAME_HEAD_BYTES: usize = 16;

/// Heap bytes of the name of a group or a consumer.
pub(super) fn name_bytes(name: &[u8]) -> usize {
    NAME_HEAD_BYTES + name.len()
}

/// The number of a consumer within its group. The number of a deleted consumer is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerId(u64);

/// A pending entry: it was delivered to a consumer, which has not acknowledged it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Time of the last delivery, in unix milliseconds.
    pub delivered_ms: i64,
    /// Number of times that the entry was delivered.
    pub deliveries: u64,
    /// The consumer at which the entry is pending.
    pub consumer: ConsumerId,
}

/// A consumer: the name of a client within a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Name,
    seen_ms: i64,
    pending: SharedMap<Id, ()>,
}

impl Consumer {
    /// Name of the consumer.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
    /// Time of the consumer's last command, in unix milliseconds.
    pub fn seen_ms(&self) -> i64 {
        self.seen_ms
    }
    /// Number of entries pending at this consumer.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    /// The entries pending at this consumer, starting at `start`.
    pub fn pending_from(&self, start: Id) -> impl Iterator<Item = Id> {
        self.pending.ascend(Bound::Included(&start)).map(|(id, _)| *id)
    }
}

/// The options of XCLAIM and XAUTOCLAIM.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Claims only entries whose last delivery was at this time or earlier (unix milliseconds). `None`: claims any
    /// entry.
    pub delivered_until_ms: Option<i64>,
    /// The new time of the last delivery, in unix milliseconds.
    pub delivered_ms: i64,
    /// The new number of deliveries. `None`: the number rises by one.
    pub deliveries: Option<u64>,
    /// True: if `deliveries` is `None`, the number of deliveries stays the same.
    pub keep_deliveries: bool,
    /// True: also claims an entry that is not pending.
    pub force: bool,
}

/// A consumer group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    last_id: Id,
    entries_read: Option<u64>,
    pending: SharedMap<Id, Pending>,
    consumers: SharedMap<ConsumerId, Consumer>,
    by_name: SharedMap<Name, ConsumerId>,
    next_consumer: u64,
    /// Heap bytes of the consumers' names and of their pending entries.
    consumer_bytes: usize,
    consumer_parts: usize,
}

impl Group {
    pub(super) fn new(last_id: Id, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }
    /// ID of the last entry that was delivered.
    pub fn last_id(&self) -> Id {
        self.last_id
    }
    /// Number of entries that the group has read, if known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }
    /// Sets the ID of the last delivered entry.
    pub fn set_last_id(&mut self, last_id: Id) {
        self.last_id = last_id;
    }
    /// Sets the number of entries that the group has read.
    pub fn set_entries_read(&mut self, entries_read: Option<u64>) {
        self.entries_read = entries_read;
    }
    /// Number of pending entries of the group.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    /// The pending entries, starting at `start`.
    pub fn pending_from(&self, start: Id) -> impl Iterator<Item = (Id, Pending)> {
        self.pending.ascend(Bound::Included(&start)).map(|(id, pending)| (*id, *pending))
    }
    /// The entry with this ID, if it is pending.
    pub fn pending_at(&self, id: Id) -> Option<Pending> {
        self.pending.get(&id).copied()
    }
    /// The highest ID of a pending entry.
    pub fn last_pending(&self) -> Option<Id> {
        self.pending.last().map(|(id, _)| *id)
    }
    /// Number of consumers of the group.
    pub fn consumers(&self) -> usize {
        self.consumers.len()
    }
    /// The consumers in order of name.
    pub fn each_consumer(&self) -> impl Iterator<Item = &Consumer> {
        self.by_name.iter().filter_map(|(_, id)| self.consumers.get(id))
    }
    /// The consumer with this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.by_name.get(name).copied()
    }
    /// The consumer with this number. `None` when it was deleted.
    pub fn consumer(&self, id: ConsumerId) -> Option<&Consumer> {
        self.consumers.get(&id)
    }
    /// Adds a consumer. `None` when the name is taken.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> Option<ConsumerId> {
        if self.find_consumer(name).is_some() {
            return None;
        }
        let (name, id) = (Name::from(name), ConsumerId(self.next_consumer));
        self.next_consumer += 1;
        self.consumer_bytes += name_bytes(&name);
        self.consumer_parts += 1;
        self.by_name.insert(name.clone(), id);
        self.consumers.insert(id, Consumer { name, seen_ms: now_ms, pending: SharedMap::default() });
        Some(id)
    }
    /// The consumer with this name. Creates it if it is missing. Sets the time of its last command to `now_ms`.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> ConsumerId {
        let known = self.find_consumer(name);
        if let Some(id) = known {
            self.set_seen(id, now_ms);
            return id;
        }
        self.create_consumer(name, now_ms).expect("there is none of this name")
    }
    /// Sets the time of a consumer's last command, in unix milliseconds.
    pub fn set_seen(&mut self, id: ConsumerId, seen_ms: i64) {
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.seen_ms = seen_ms;
        }
    }
    /// Deletes a consumer and its pending entries. Returns the number of these entries; `None` when there is no
    /// consumer with this name.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let id = self.by_name.remove(name)?;
        let consumer = self.consumers.remove(&id)?;
        self.consumer_bytes -= name_bytes(name) + consumer.pending.heap_bytes();
        self.consumer_parts -= 1 + consumer.pending.parts();
        for (pending, _) in consumer.pending.iter() {
            self.pending.remove(pending);
        }
        Some(consumer.pending.len())
    }
    /// Notes that the group has read the entry `id`, if `id` is above the last one that it has read.
    pub fn advance(&mut self, id: Id, entries: &Entries) {
        if id <= self.last_id {
            return;
        }
        match self.entries_read {
            Some(read) if !entries.has_tombstone_from(id) => self.entries_read = Some(read.wrapping_add(1)),
            _ if entries.added() > 0 => self.entries_read = entries.distance_from_first(id),
            _ => {}
        }
        self.last_id = id;
    }
    /// Delivers an entry to a consumer. The entry becomes pending there. (After XGROUP SETID it may be pending
    /// elsewhere already.)
    pub fn deliver(&mut self, id: Id, consumer: ConsumerId, now_ms: i64) {
        let new = Pending { delivered_ms: now_ms, deliveries: 1, consumer };
        match self.pending.insert(id, new) {
            Some(old) if old.consumer == consumer => {}
            old => {
                if let Some(old) = old {
                    self.change_consumer(old.consumer, |pending| _ = pending.remove(&id));
                }
                self.change_consumer(consumer, |pending| _ = pending.insert(id, ()));
            }
        }
    }
    /// Delivers a pending entry once more to the consumer at which it is pending.
    pub fn deliver_again(&mut self, id: Id, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }
    /// Makes an entry no longer pending, because it was acknowledged or does not exist any more. Returns true when the
    /// entry was pending.
    pub fn acknowledge(&mut self, id: Id) -> bool {
        let Some(old) = self.pending.remove(&id) else { return false };
        self.change_consumer(old.consumer, |pending| _ = pending.remove(&id));
        true
    }
    /// True when [`Group::claim`] would give this entry to a consumer.
    pub fn can_claim(&self, id: Id, claim: &Claim) -> bool {
        match self.pending.get(&id) {
            Some(old) => claim.delivered_until_ms.is_none_or(|until_ms| old.delivered_ms <= until_ms),
            None => claim.force,
        }
    }
    /// Makes an entry pending at `consumer`. If `claim` does not allow this, does nothing and returns false.
    pub fn claim(&mut self, id: Id, consumer: ConsumerId, claim: &Claim) -> bool {
        if !self.can_claim(id, claim) {
            return false;
        }
        let old = self.pending.get(&id).copied();
        let deliveries = old.map_or(1, |old| old.deliveries);
        let more = u64::from(!claim.keep_deliveries);
        let deliveries = claim.deliveries.unwrap_or(deliveries.wrapping_add(more));
        self.pending.insert(id, Pending { delivered_ms: claim.delivered_ms, deliveries, consumer });
        if old.map(|old| old.consumer) != Some(consumer) {
            if let Some(old) = old {
                self.change_consumer(old.consumer, |pending| _ = pending.remove(&id));
            }
            self.change_consumer(consumer, |pending| _ = pending.insert(id, ()));
        }
        true
    }
    /// Adds a pending entry of a stored stream. Returns false when the entry is pending already or its consumer is
    /// missing.
    pub fn restore_pending(&mut self, id: Id, pending: Pending) -> bool {
        if self.pending.get(&id).is_some() || self.consumers.get(&pending.consumer).is_none() {
            return false;
        }
        self.pending.insert(id, pending);
        self.change_consumer(pending.consumer, |all| _ = all.insert(id, ()));
        true
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let maps = self.pending.heap_bytes() + self.consumers.heap_bytes() + self.by_name.heap_bytes();
        maps + self.consumer_bytes
    }
    pub(super) fn parts(&self) -> usize {
        let maps = self.pending.parts() + self.consumers.parts() + self.by_name.parts();
        maps + self.consumer_parts
    }
    pub(super) fn into_pieces(self, hand_out: &mut dyn FnMut(Box<dyn Send>)) {
        self.pending.into_pieces(hand_out);
        // Take one consumer at a time, because each may have many pending entries.
        self.consumers.into_each(&mut |_, consumer| consumer.pending.into_pieces(hand_out));
        self.by_name.into_pieces(hand_out);
    }
    fn change_consumer(&mut self, id: ConsumerId, change: impl FnOnce(&mut SharedMap<Id, ()>)) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        self.consumer_bytes -= consumer.pending.heap_bytes();
        self.consumer_parts -= consumer.pending.parts();
        change(&mut consumer.pending);
        self.consumer_bytes += consumer.pending.heap_bytes();
        self.consumer_parts += consumer.pending.parts();
    }
}
