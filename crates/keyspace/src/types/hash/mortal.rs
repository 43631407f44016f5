//! [`Mortal`]: a hash with expiring fields. It holds the hash itself and the expiry of each such field.
//!
//! The expiries are a sorted set of fields (a double holds milliseconds up to 2^53 exactly). So the next expiry is
//! found at once at every size, and a clone is as cheap as that of a hash. An expired field becomes *hidden*:
//! every method treats it as missing. Hidden fields are removed a few at a time ([`Mortal::expire`]), so a hash of
//! a million fields that expire together blocks nobody.

use super::super::zset::ZSetValue;
use super::super::{Bytes, Collection, Piece};
use super::HashValue;
use crate::Settings;

/// Hidden fields that are removed together: about 100 us.
const REMOVED_MAX: usize = 128;
/// Draws of a random field. All but the last may hit a hidden field.
const DRAWS_MAX: usize = 64;

/// A hash and the expiries of its fields.
#[derive(Debug, Clone)]
pub(super) struct Mortal {
    /// All fields, hidden ones included.
    plain: HashValue,
    /// Expiries in unix milliseconds, for the fields that expire.
    expiries: ZSetValue,
    /// Fields with this expiry or an earlier one are hidden.
    hidden_ms: i64,
    /// Expiry of the key, `i64::MAX` for never. Stored here because the record's own place holds the earliest
    /// expiry of key and fields. Valid while some field expires.
    pub(super) key_expiry_ms: i64,
}

impl Mortal {
    pub(super) fn new(plain: HashValue) -> Mortal {
        Mortal { plain, expiries: ZSetValue::new(), hidden_ms: i64::MIN, key_expiry_ms: i64::MAX }
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        if self.is_hidden(field) { None } else { self.plain.get(field) }
    }
    /// Sets `field` without an expiry. Returns true when it is new.
    pub(super) fn set(&mut self, field: &[u8], value: Bytes<'_>, settings: &Settings) -> bool {
        let hidden = self.is_hidden(field);
        self.expiries.remove(field);
        self.plain.set(field, value, settings) || hidden
    }
    /// As [`Mortal::set`], but keeps the field's expiry.
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
    /// Expiry of `field`. `Some(None)` for never, `None` when there is no such field.
    pub(super) fn expiry_ms(&self, field: &[u8]) -> Option<Option<i64>> {
        self.get(field)?;
        Some(self.expiries.score(field).map(|score| score as i64))
    }
    /// Sets the expiry of an existing field.
    pub(super) fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>, settings: &Settings) {
        match expiry_ms {
            Some(at) => {
                self.expiries.set(field, at as f64, settings);
            }
            None => {
                self.expiries.remove(field);
            }
        }
    }
    /// The earliest expiry of a field. `i64::MAX` when none expires.
    pub(super) fn next_expiry_ms(&self) -> i64 {
        self.expiries.get(0).map_or(i64::MAX, |(_, score)| score as i64)
    }
    /// Hides the fields that are due at `now_ms`, and removes some of the hidden fields. Calls `gone` with each
    /// newly hidden field, and returns their number.
    pub(super) fn expire(&mut self, now_ms: i64, gone: super::OnGone<'_>) -> usize {
        let (before, hidden) = (self.len(), self.hidden());
        self.hidden_ms = now_ms;
        let after = self.len();
        if let Some(gone) = gone {
            self.expiries.iter(hidden).take(before - after).for_each(|(field, _)| gone(&field));
        }
        let removed = self.hidden().min(REMOVED_MAX);
        for (field, _) in self.expiries.iter(0).take(removed) {
            self.plain.remove(&field);
        }
        if removed > 0 {
            self.expiries.remove_range(0..removed);
        }
        before - after
    }
    pub(super) fn len(&self) -> usize {
        self.plain.len() - self.hidden()
    }
    /// Pairs of field and value: first those that expire, the earliest first.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (Bytes<'_>, Bytes<'_>)> + '_> {
        let expiring = self.expiries.iter(self.hidden()).filter_map(|(field, _)| {
            let value = self.plain.get(&field)?;
            Some((field, value))
        });
        let others = self.plain.iter().filter(|(field, _)| self.expiries.score(field).is_none());
        Box::new(expiring.chain(others))
    }
    /// Fields that expire, with their expiries, in order of expiry.
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
        drawn.or_else(|| self.iter().next())
    }
    pub(super) fn plain(&self) -> &HashValue {
        &self.plain
    }
    /// As [`Collection::is_unchanged`], with the expiry of the key.
    pub(super) fn is_same(&self, other: &Mortal) -> bool {
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
    fn hidden(&self) -> usize {
        if self.next_expiry_ms() > self.hidden_ms {
            return 0;
        }
        self.expiries.partition_point(|_, score| score as i64 <= self.hidden_ms)
    }
    fn is_hidden(&self, field: &[u8]) -> bool {
        // Usually no field is hidden.
        self.next_expiry_ms() <= self.hidden_ms
            && self.expiries.score(field).is_some_and(|score| score as i64 <= self.hidden_ms)
    }
}
