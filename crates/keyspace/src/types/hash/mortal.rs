//! [`Mortal`]: a hash of which fields expire: the hash itself, and when which field does.
//!
//! The expiries are a sorted set of the fields (a time in milliseconds is exact in a double up to 2^53), so the next one is
//! found at once in a compact and in a large hash, and a clone is as cheap as the hash's. A field whose time has come is
//! *hidden*: every method answers as if it were gone. Hidden fields are removed a few at a time ([`Mortal::expire`]), so that a
//! hash of a million fields that expire together holds nobody up.

use super::super::zset::ZSetValue;
use super::super::{Bytes, Collection, Piece};
use super::HashValue;
use crate::Settings;

/// Hidden fields that are removed together: some 100 us.
const REMOVED_MAX: usize = 128;
/// Draws of a random field, of which all but the last may hit a hidden one.
const DRAWS_MAX: usize = 64;

/// A hash and the expiries of its fields.
#[derive(Debug, Clone)]
pub(super) struct Mortal {
    /// All fields, hidden ones too.
    plain: HashValue,
    /// Unix milliseconds, for the fields that expire.
    expiries: ZSetValue,
    /// Fields are hidden whose expiry is not after this.
    hidden_ms: i64,
    /// When the key expires, `i64::MAX` for never. Kept here for the record, whose own place holds what comes first: the end of
    /// the key or of a field. Means something while some field expires.
    pub(super) key_expiry_ms: i64,
}

impl Mortal {
    pub(super) fn new(plain: HashValue) -> Mortal {
        Mortal { plain, expiries: ZSetValue::new(), hidden_ms: i64::MIN, key_expiry_ms: i64::MAX }
    }
    pub(super) fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        if self.is_hidden(field) { None } else { self.plain.get(field) }
    }
    /// Sets `field`, which does not expire from then on; true when it is new.
    pub(super) fn set(&mut self, field: &[u8], value: Bytes<'_>, settings: &Settings) -> bool {
        let hidden = self.is_hidden(field);
        self.expiries.remove(field);
        self.plain.set(field, value, settings) || hidden
    }
    /// As [`Mortal::set`]; a field that expires goes on doing so.
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
    /// When `field` expires, `Some(None)` for never; `None` when it is not there.
    pub(super) fn expiry_ms(&self, field: &[u8]) -> Option<Option<i64>> {
        self.get(field)?;
        Some(self.expiries.score(field).map(|score| score as i64))
    }
    /// Says when `field`, which is there, expires.
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
    /// The first expiry of a field, `i64::MAX` when none expires.
    pub(super) fn next_expiry_ms(&self) -> i64 {
        self.expiries.get(0).map_or(i64::MAX, |(_, score)| score as i64)
    }
    /// Hides what has expired by then, and removes some of what is hidden; how many fields were there before and are not now.
    /// Each of those is given to `gone`.
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
    /// Fields with their values: first those that expire, the soonest in front.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (Bytes<'_>, Bytes<'_>)> + '_> {
        let expiring = self.expiries.iter(self.hidden()).filter_map(|(field, _)| {
            let value = self.plain.get(&field)?;
            Some((field, value))
        });
        let others = self.plain.iter().filter(|(field, _)| self.expiries.score(field).is_none());
        Box::new(expiring.chain(others))
    }
    /// Fields that expire, with their expiries in their order.
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
    /// As [`Collection::is_unchanged`]; the end of the key counts, too.
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
        // Mostly nothing is.
        self.next_expiry_ms() <= self.hidden_ms
            && self.expiries.score(field).is_some_and(|score| score as i64 <= self.hidden_ms)
    }
}
