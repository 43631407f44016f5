//! [`ExpiringHash`]: a hash with fields that expire. It consists of a plain hash and the expiries of its fields.
//!
//! The expiries are a sorted set of fields. (A double holds milliseconds up to 2^53 exactly.) So the next
//! expiry is found at once, however many fields expire, and a clone is as cheap as the clone of a plain hash.
//! A field that expires is first only *hidden*: every method treats it as missing. Hidden fields are removed
//! a few at a time ([`ExpiringHash::expire`]). So a hash whose million fields expire together delays nobody.
//!
//! A replica removes no field before its primary does. There a field that is due is *veiled*: clients do not see the
//! field ([`ExpiringHash::hide`]), and the commands of the primary do ([`ExpiringHash::show`]).

use super::super::zset::ZSetValue;
use super::super::{Bytes, Collection, OnGone, Piece};
use super::HashValue;
use crate::Settings;

/// Maximum number of hidden fields that are removed together, which takes about 100 us.
pub(crate) const FIELDS_REMOVED_MAX: usize = 128;
/// Maximum number of fields that expire together and that are named one by one. To name a field takes about 280 ns.
pub(crate) const FIELDS_NAMED_MAX: usize = 1024;
/// Maximum number of draws for a random field. A draw that hits a hidden field is repeated.
const DRAWS_MAX: usize = 64;

/// A hash and the expiries of its fields.
#[derive(Debug, Clone)]
pub(super) struct ExpiringHash {
    /// All fields with their values, including hidden fields.
    plain: HashValue,
    /// The fields that expire, with their expiries in unix milliseconds.
    expiries: ZSetValue,
    /// Fields with this expiry or an earlier one are hidden, or veiled. `i64::MIN` while no field is.
    hidden_ms: i64,
    /// Fields with this expiry or an earlier one have expired and will be removed. Never later than `hidden_ms`.
    expired_ms: i64,
    /// Expiry of the key, `i64::MAX` for never. Stored here, because the record has the earliest expiry of the key
    /// and all fields. Only valid while some field expires.
    pub(super) key_expiry_ms: i64,
}

impl ExpiringHash {
    pub(super) fn new(plain: HashValue) -> ExpiringHash {
        ExpiringHash {
            plain,
            expiries: ZSetValue::new(),
            hidden_ms: i64::MIN,
            expired_ms: i64::MIN,
            key_expiry_ms: i64::MAX,
        }
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        if self.is_hidden(field) { None } else { self.plain.get(field) }
    }
    /// Sets the value of `field` and removes the field's expiry. Returns true when the field is new.
    pub(super) fn set(&mut self, field: &[u8], value: Bytes<'_>, settings: &Settings) -> bool {
        let hidden = self.is_hidden(field);
        self.expiries.remove(field);
        self.plain.set(field, value, settings) || hidden
    }
    /// Like [`ExpiringHash::set`], but keeps the field's expiry.
    pub(super) fn update(&mut self, field: &[u8], value: Bytes<'_>, settings: &Settings) -> bool {
        if self.is_hidden(field) {
            return self.set(field, value, settings);
        }
        self.plain.set(field, value, settings)
    }
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let hidden = self.is_hidden(field);
        self.expiries.remove(field);
        self.plain.remove(field) && !hidden
    }
    /// Expiry of `field`. `None`: there is no such field. `Some(None)`: the field never expires.
    pub(super) fn expiry_ms(&self, field: &[u8]) -> Option<Option<i64>> {
        self.get(field)?;
        Some(self.expiries.score(field).map(|score| score as i64))
    }
    /// Sets the expiry of a field, which must exist.
    pub(super) fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>, settings: &Settings) {
        match expiry_ms {
            Some(at) => {
                // The clock has gone back. The field would count as hidden, so all hidden fields are removed first, in this one
                // call: 0.7 s for a million fields.
                while at <= self.expired_ms {
                    self.expire(self.expired_ms, None);
                }
                if at <= self.hidden_ms {
                    self.show();
                }
                self.expiries.set(field, at as f64, settings);
            }
            None => {
                self.expiries.remove(field);
            }
        }
    }
    /// The earliest expiry of a field. `i64::MAX` when no field expires.
    pub(super) fn next_expiry_ms(&self) -> i64 {
        self.expiries.get(0).map_or(i64::MAX, |(_, score)| score as i64)
    }
    /// Hides the fields that are due at `now_ms`. Calls `gone` with each of them, if they are at most
    /// [`FIELDS_NAMED_MAX`], and returns their number. Also removes at most [`FIELDS_REMOVED_MAX`] of all hidden fields.
    pub(super) fn expire(&mut self, now_ms: i64, gone: OnGone<'_>) -> usize {
        self.show();
        let (before, hidden) = (self.len(), self.hidden());
        // A transaction may have an earlier time than the one before. A hidden field stays hidden.
        self.expired_ms = self.expired_ms.max(now_ms);
        self.hidden_ms = self.expired_ms;
        let after = self.len();
        if let Some(gone) = gone
            && before - after <= FIELDS_NAMED_MAX
        {
            self.expiries.iter(hidden).take(before - after).for_each(|(field, _)| gone(&field));
        }
        let removed = self.hidden().min(FIELDS_REMOVED_MAX);
        for (field, _) in self.expiries.iter(0).take(removed) {
            self.plain.remove(&field);
        }
        if removed > 0 {
            self.expiries.remove_range(0..removed);
        }
        if self.hidden() == 0 {
            // A transaction with an earlier time may set an expiry that is not later than `hidden_ms`.
            (self.hidden_ms, self.expired_ms) = (i64::MIN, i64::MIN);
        }
        before - after
    }
    /// True when a field is due at `now_ms` and is not hidden yet.
    pub(super) fn shows_due(&self, now_ms: i64) -> bool {
        self.hidden_ms < now_ms && self.due(now_ms) > self.hidden()
    }
    /// Veils the fields that are due at `now_ms`, and removes none.
    pub(super) fn hide(&mut self, now_ms: i64) {
        self.hidden_ms = self.hidden_ms.max(now_ms);
    }
    /// True when a field may be veiled.
    pub(super) fn is_veiled(&self) -> bool {
        self.hidden_ms > self.expired_ms
    }
    /// Shows the veiled fields again.
    pub(super) fn show(&mut self) {
        self.hidden_ms = self.expired_ms;
    }
    pub(super) fn len(&self) -> usize {
        self.plain.len() - self.hidden()
    }
    /// All fields with their values: first the fields that expire, in order of expiry, then the others.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (Bytes<'_>, Bytes<'_>)> + '_> {
        let expiring = self.expiries.iter(self.hidden()).filter_map(|(field, _)| {
            let value = self.plain.get(&field)?;
            Some((field, value))
        });
        let others = self.plain.iter().filter(|(field, _)| self.expiries.score(field).is_none());
        Box::new(expiring.chain(others))
    }
    /// The fields that expire, with their expiries, the earliest first.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (Bytes<'_>, i64)> {
        self.expiries.iter(self.hidden()).map(|(field, score)| (field, score as i64))
    }
    pub(super) fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        if self.plain.is_packed() {
            self.iter().for_each(|(field, value)| visit(field, value));
            return 0;
        }
        self.plain.scan(cursor, count, &mut |field, value| {
            if !self.is_hidden(&field) {
                visit(field, value);
            }
        })
    }
    pub(super) fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, Bytes<'_>)> {
        if self.len() == 0 {
            return None;
        }
        let drawn = (0..DRAWS_MAX).find_map(|_| self.plain.random(rng).filter(|(f, _)| !self.is_hidden(f)));
        // Nearly all fields are hidden, and soon they will be freed.
        drawn.or_else(|| self.iter().nth(rng.usize(..self.len())))
    }
    pub(super) fn plain(&self) -> &HashValue {
        &self.plain
    }
    /// Like [`Collection::is_unchanged`]. Also compares the expiry of the key.
    pub(super) fn is_same(&self, other: &ExpiringHash) -> bool {
        self.plain.is_unchanged(&other.plain)
            && self.expiries.is_same(&other.expiries)
            && self.key_expiry_ms == other.key_expiry_ms
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.plain.heap_bytes() + self.expiries.heap_bytes()
    }
    pub(super) fn parts(&self) -> usize {
        self.plain.parts() + self.expiries.parts()
    }
    pub(super) fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        self.plain.into_pieces(hand_out);
        self.expiries.into_pieces(hand_out);
    }

    /// Number of hidden fields.
    pub(super) fn hidden(&self) -> usize {
        self.due(self.hidden_ms)
    }
    /// Number of fields that are due at `now_ms`, hidden fields included.
    fn due(&self, now_ms: i64) -> usize {
        if self.next_expiry_ms() > now_ms {
            return 0;
        }
        self.expiries.partition_point(|_, score| score as i64 <= now_ms)
    }
    fn is_hidden(&self, field: &[u8]) -> bool {
        // Usually no field is hidden.
        self.next_expiry_ms() <= self.hidden_ms
            && self.expiries.score(field).is_some_and(|score| score as i64 <= self.hidden_ms)
    }
}
