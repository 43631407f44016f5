//! Expiry in a [`Shard`]: finds what is due, and removes keys and fields of hashes.

use super::Shard;
use crate::event::ExpiredCounts;
use crate::extendible::{Location, Positions, position_of};
use crate::journal::Removal;
use crate::record::{Value, key_expiry_ms};
use crate::types::OnGone;
use crate::types::hash::{FIELDS_NAMED_MAX, FIELDS_REMOVED_MAX};
use crate::{Key, KeyEvent};

/// Called with a key, an event, and the data that the event removed, as [`FieldsExpired::events`] gives them.
type OnExpiry<'a> = &'a mut dyn FnMut(&[u8], KeyEvent, Option<&Removal>);

/// Result of [`Shard::expire_fields`]: what the expiry of a record, or of fields in it, has changed.
pub(crate) struct FieldsExpired {
    /// The place of the record after the change.
    pub(crate) at: Location,
    /// True when the record stays. If false, the caller must remove the record.
    pub(crate) stays: bool,
    /// Number of fields that expired.
    expired: usize,
    /// True when the value still has the memory of expired fields.
    pub(crate) has_more: bool,
    /// The expired fields, with names only if the caller asked for names. `None` when no field expired.
    fields: Option<Removal>,
}

impl FieldsExpired {
    /// The number of keys, 0 or 1, and of fields. As in Redis, a hash that loses its last field to expiry is no expired
    /// key.
    pub(crate) fn counts(&self) -> ExpiredCounts {
        let is_expired_key = !self.stays && self.fields.is_none();
        ExpiredCounts { keys: usize::from(is_expired_key), fields: self.expired }
    }
    /// The events of the key, each with the data that it removed, `None` for nothing. A hash that loses its last field to
    /// expiry has the event `del` instead of `expired`.
    pub(crate) fn events(&self) -> impl Iterator<Item = (KeyEvent, Option<&Removal>)> {
        let fields = self.fields.as_ref();
        let key = if fields.is_some() { KeyEvent::DEL } else { KeyEvent::EXPIRED };
        let fields = fields.map(|removal| (KeyEvent::FIELDS_EXPIRED, Some(removal).filter(|_| self.stays)));
        fields.into_iter().chain((!self.stays).then_some((key, Some(&Removal::Key))))
    }
}

/// Result of [`Shard::expire_step`].
pub(crate) struct ExpireStep {
    pub(crate) expired: ExpiredCounts,
    /// Number of records that were looked at. Fields that were freed count as records.
    pub(crate) looked_at: usize,
    /// Where to continue: at the same place again, while a hash there still has the memory of expired fields.
    pub(crate) next: Option<u64>,
}

impl Shard {
    /// The first slot at or after `slot` whose table may have something that has expired at `now_ms`.
    pub(crate) fn next_due(&mut self, slot: usize, now_ms: i64) -> Option<usize> {
        if slot == 0 && self.first.records.expiry_ms() <= now_ms {
            return Some(0);
        }
        if self.others_expiry_ms > now_ms {
            return None;
        }
        let place = self.place(slot).unwrap_or_else(|place| place);
        let due = self.others[place..].iter().find(|(_, table)| table.records.expiry_ms() <= now_ms);
        let due = due.map(|(slot, _)| *slot);
        if due.is_none() {
            let expiries = self.others.iter().map(|(_, table)| table.records.expiry_ms());
            self.others_expiry_ms = expiries.min().unwrap_or(i64::MAX);
        }
        due
    }
    /// Removes the expired records of the first segment at or after `from` that has any, and notes their keys: see
    /// [`crate::extendible::ExtendibleTable::expire_step`]. Adds values that lay outside the table to `garbage`. Calls `report` with
    /// each event of [`FieldsExpired::events`], with names of fields only if `names_fields`.
    pub(crate) fn expire_step(
        &mut self,
        slot: usize,
        from: u64,
        now_ms: i64,
        garbage: &mut Vec<Value>,
        names_fields: bool,
        report: OnExpiry<'_>,
    ) -> ExpireStep {
        let (mut expired, mut notes) = (ExpiredCounts::default(), std::mem::take(&mut self.changed_keys));
        let mut watchers = std::mem::take(&mut self.watchers);
        let mut in_part = Vec::new();
        let keepers = self.keepers.take();
        // A view must keep each record before the record is removed.
        let stay = keepers.as_ref().is_some_and(|keepers| !keepers.views.is_empty());
        let (mut looked_at, mut next) = self.change_table(slot, |table| {
            let (mut expiring, mut mortal, mut expiries_ms) = (0, 0, 0);
            let gone = &mut |key: &[u8], position, value: Option<Value>| {
                expired.keys += 1;
                expiring += 1;
                mortal +=
                    usize::from(value.as_ref().is_some_and(|value| value.field_expiry_ms() != i64::MAX));
                garbage.extend(value);
                report(key, KeyEvent::EXPIRED, Some(&Removal::Key));
                if watchers.has_any() {
                    watchers.raise(slot, key);
                }
                if let Some(keepers) = &keepers {
                    keepers.reads.iter().for_each(|shard_reads| shard_reads.note_write(slot, position));
                    keepers.note_name(slot, key);
                }
                if slot == 0 {
                    notes.note(position, key, None);
                }
            };
            let step = table.records.expire_step(from, now_ms, stay, gone, &mut in_part, &mut expiries_ms);
            table.expiring -= expiring;
            table.expiries_ms -= expiries_ms;
            table.mortal -= mortal;
            step
        });
        (self.changed_keys, self.watchers, self.keepers) = (notes, watchers, keepers);
        for key in in_part {
            let position = self.positions.position(&key);
            let key = Key { bytes: &key, hash: self.positions.hash(&key) };
            let at = self.table(slot).and_then(|table| table.records.locate(position, key.bytes));
            let Some(at) = at else { continue };
            let fields = self.expire_fields(slot, at, &key, now_ms, names_fields);
            if fields.has_more {
                looked_at += FIELDS_REMOVED_MAX;
                next = Some(from);
            }
            if !fields.stays {
                garbage.extend(self.remove(slot, fields.at, &key));
            }
            expired += fields.counts();
            fields.events().for_each(|(event, removal)| report(key.bytes, event, removal));
        }
        ExpireStep { expired, looked_at, next }
    }
    /// Removes the expired fields of a value, one of whose expiries has passed. The record does not stay if the key
    /// itself expired or no field is left. The result has names of fields only if `names_fields`.
    pub(crate) fn expire_fields(
        &mut self,
        slot: usize,
        at: Location,
        key: &Key<'_>,
        now_ms: i64,
        names_fields: bool,
    ) -> FieldsExpired {
        self.keep(slot, position_of(key.hash.0), key.bytes);
        let mut fields = Vec::new();
        let mut add = |field: &[u8]| fields.push(field.to_vec());
        let expired = self.change_table(slot, |table| {
            if key_expiry_ms(&table.records.at(at)) <= now_ms {
                return None;
            }
            table.records.change_outside(at, |value| {
                let add: OnGone<'_> = if names_fields { Some(&mut add) } else { None };
                let gone = value.expire_fields(now_ms, add);
                (gone, value.view().elements() == 0, value.field_expiry_ms() <= now_ms)
            })
        });
        let Some((gone, is_empty, has_more)) = expired else {
            return FieldsExpired { at, stays: false, expired: 0, has_more: false, fields: None };
        };
        let fields = match gone {
            0 => None,
            1..=FIELDS_NAMED_MAX => Some(Removal::Fields(fields)),
            _ => Some(Removal::FieldsUntil(now_ms)),
        };
        if gone > 0 {
            // An expiry does not count as a change: see [`crate::Keyspace::changes`].
            self.note(slot, position_of(key.hash.0), key.bytes);
        }
        self.update_record_expiry(slot, at, key, true);
        let found = self.table(slot).and_then(|t| t.records.locate(position_of(key.hash.0), key.bytes));
        let at = found.unwrap_or(at);
        FieldsExpired { at, stays: !is_empty, expired: gone, has_more: has_more && !is_empty, fields }
    }
}
