//! [`HashValue`]: a hash. Its fields and values are packed in one allocation while the hash is small, and are in a
//! table when it is large.
//!
//! Redis's thresholds decide the reply of OBJECT ENCODING. A hash beyond the thresholds still stays packed as long
//! as a linear search through its fields costs less than the cache misses of a look-up in a table. HSET of one of
//! five fields of 256 bytes ran at 0.92 M operations per processor second as a table, and at 1.18 M packed (`make
//! versus ARGS='--only "HSET p30"'`).

mod expiring;

use super::fields::Fields;
use super::packed::Packed;
use super::wanted::published;
use super::{Bytes, Collection, OnGone, Parts, Piece, Wanted};
use crate::Settings;
use crate::extendible::INLINE_BYTES_MAX;
use expiring::ExpiringHash;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use super::fields::key_fields_with;
pub(crate) use expiring::{FIELDS_NAMED_MAX, FIELDS_REMOVED_MAX};

/// Maximum number of fields of a hash that is packed although it exceeds Redis's thresholds. Fields and values longer
/// than [`INLINE_BYTES_MAX`] are never packed, because a table can share them with replies.
const OUTGROWN_FIELDS_MAX: usize = 32;
/// Maximum number of bytes of a hash that is packed although it exceeds Redis's thresholds.
const OUTGROWN_BYTES_MAX: usize = 4096;

/// Maximum expiry of a field, in unix milliseconds: redis-server's limit.
pub const EXPIRY_MS_MAX: i64 = (1 << 46) - 1;

/// A hash. The clone of a large hash is a snapshot that shares all segments. A write copies only the segments that
/// it changes.
#[derive(Debug, Clone, Default)]
pub struct HashValue(Form);

#[derive(Debug, Clone)]
enum Form {
    Packed(Packed),
    Boxed(Box<Boxed>),
}

#[derive(Debug, Clone)]
enum Boxed {
    Table(Fields),
    /// A hash in which some field expires, or in which some field expired earlier.
    Expiring(ExpiringHash),
}

impl Default for Form {
    fn default() -> Form {
        Form::Packed(Packed::default())
    }
}

impl HashValue {
    /// An empty hash, which is packed.
    pub fn new() -> HashValue {
        HashValue::default()
    }
    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        match &self.0 {
            Form::Packed(packed) => packed.get(field).map(Bytes::Slice),
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => fields.get(field),
                Boxed::Expiring(expiring) => expiring.get(field),
            },
        }
    }
    /// Sets the value of `field` and removes the field's expiry. Returns true when the field is new. At the
    /// thresholds in `settings` the hash leaves Redis's compact form, and it never returns to it.
    pub fn set<'v>(&mut self, field: &[u8], value: impl Into<Bytes<'v>>, settings: &Settings) -> bool {
        let value = value.into();
        let bytes_max = settings.hash_max_listpack_value.load(Relaxed);
        let entries_max = settings.hash_max_listpack_entries.load(Relaxed);
        if let Form::Packed(packed) = &mut self.0 {
            let is_outgrown = packed.is_outgrown();
            let found = packed.find(field);
            if is_outgrown && found.has_value_len(value.len()) {
                return packed.set_at(found, field, &value);
            }
            let small = field.len().max(value.len()) as u64 <= bytes_max && !is_outgrown;
            if small && packed.has_room(field.len().saturating_add(value.len())) {
                let new = packed.set_at(found, field, &value);
                if packed.len() as u64 > entries_max {
                    self.outgrow();
                }
                return new;
            }
            if packed.len() < OUTGROWN_FIELDS_MAX
                && field.len().max(value.len()) <= INLINE_BYTES_MAX
                && packed.used_bytes() + field.len() + value.len() < OUTGROWN_BYTES_MAX
            {
                let new = packed.set_at(found, field, &value);
                packed.set_outgrown();
                return new;
            }
            self.unpack();
        }
        match &mut self.0 {
            Form::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(fields) => fields.set(field, value),
                Boxed::Expiring(expiring) => expiring.set(field, value, settings),
            },
            Form::Packed(_) => unreachable!("unpacked above"),
        }
    }
    /// Like [`HashValue::set`], but keeps the field's expiry.
    pub fn update<'v>(&mut self, field: &[u8], value: impl Into<Bytes<'v>>, settings: &Settings) -> bool {
        match self.expiring_mut() {
            Some(expiring) => expiring.update(field, value.into(), settings),
            None => self.set(field, value, settings),
        }
    }
    /// Expiry of `field` (unix milliseconds). `None`: there is no such field. `Some(None)`: the field never
    /// expires.
    pub fn expiry_ms(&self, field: &[u8]) -> Option<Option<i64>> {
        match self.expiring() {
            Some(expiring) => expiring.expiry_ms(field),
            None => self.get(field).map(|_| None),
        }
    }
    /// Sets the expiry of `field` (`None`: never), at most [`EXPIRY_MS_MAX`]. Returns false when there is no such
    /// field.
    pub fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>, settings: &Settings) -> bool {
        if self.get(field).is_none() {
            return false;
        }
        if self.expiring().is_none() {
            if expiry_ms.is_none() {
                return true;
            }
            let plain = std::mem::take(self);
            self.0 = Form::Boxed(Box::new(Boxed::Expiring(ExpiringHash::new(plain))));
        }
        if let Some(expiring) = self.expiring_mut() {
            expiring.set_expiry(field, expiry_ms.map(|at| at.min(EXPIRY_MS_MAX)), settings);
        }
        true
    }
    /// The fields with an expiry, each with its expiry (unix milliseconds), the earliest first.
    pub fn expiries(&self) -> impl Iterator<Item = (Bytes<'_>, i64)> {
        self.expiring().into_iter().flat_map(ExpiringHash::expiries)
    }
    #[inline]
    fn expiring(&self) -> Option<&ExpiringHash> {
        match &self.0 {
            Form::Packed(_) => None,
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(_) => None,
                Boxed::Expiring(expiring) => Some(expiring),
            },
        }
    }
    fn expiring_mut(&mut self) -> Option<&mut ExpiringHash> {
        match &mut self.0 {
            Form::Packed(_) => None,
            Form::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(_) => None,
                Boxed::Expiring(expiring) => Some(expiring),
            },
        }
    }
    fn table(&self) -> Option<&Fields> {
        match &self.0 {
            Form::Packed(_) => None,
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => Some(fields),
                Boxed::Expiring(_) => None,
            },
        }
    }
    fn is_packed(&self) -> bool {
        matches!(self.0, Form::Packed(_))
    }
    /// Removes `field`. Returns true when it existed.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => packed.remove(field),
            Form::Boxed(boxed) => match &mut **boxed {
                Boxed::Table(fields) => fields.remove(field),
                Boxed::Expiring(expiring) => expiring.remove(field),
            },
        }
    }
    /// All fields with their values. In the order of insertion while the hash is packed.
    pub fn iter(&self) -> impl Iterator<Item = (Bytes<'_>, Bytes<'_>)> {
        let packed = match &self.0 {
            Form::Packed(packed) => Some(packed),
            Form::Boxed(_) => None,
        };
        let packed = packed.into_iter().flat_map(Packed::iter);
        let packed = packed.map(|(field, value)| (Bytes::Slice(field), Bytes::Slice(value)));
        let table = self.table().into_iter().flat_map(|fields| fields.iter());
        packed.chain(table).chain(self.expiring().into_iter().flat_map(|expiring| expiring.iter()))
    }
    /// HSCAN with Redis's guarantee: calls `visit` for about `count` fields, starting at `cursor`. Returns the next
    /// cursor; 0 at the end. A packed hash is visited whole. The cost grows with `count` plus one segment.
    pub fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        match &self.0 {
            Form::Packed(_) => {
                self.iter().for_each(|(field, value)| visit(field, value));
                0
            }
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => fields.scan(cursor, count, visit),
                Boxed::Expiring(expiring) => expiring.scan(cursor, count, visit),
            },
        }
    }
    /// A random field with its value, all with equal chance. `None` when the hash is empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, Bytes<'_>)> {
        match &self.0 {
            Form::Packed(packed) if packed.len() == 0 => None,
            Form::Packed(packed) => self.iter().nth(rng.usize(..packed.len())),
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => fields.random(rng),
                Boxed::Expiring(expiring) => expiring.random(rng),
            },
        }
    }
    /// Number of expired fields that still take memory. [`HashValue::random`] and [`HashValue::iter`] pass over them.
    pub fn hidden_fields(&self) -> usize {
        self.expiring().map_or(0, ExpiringHash::hidden)
    }
    /// Marks a packed hash that exceeds Redis's thresholds, or changes it to a table if it is too large to be
    /// packed.
    fn outgrow(&mut self) {
        match &mut self.0 {
            Form::Packed(packed)
                if packed.len() <= OUTGROWN_FIELDS_MAX && packed.used_bytes() <= OUTGROWN_BYTES_MAX =>
            {
                packed.set_outgrown();
            }
            _ => self.unpack(),
        }
    }
    fn unpack(&mut self) {
        let mut fields = Fields::new();
        for (field, value) in self.iter() {
            fields.set(&field, value);
        }
        self.0 = Form::Boxed(Box::new(Boxed::Table(fields)));
    }
}

impl Collection for HashValue {
    const TYPE_NAME: &'static str = "hash";

    fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len(),
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => fields.len(),
                Boxed::Expiring(expiring) => expiring.len(),
            },
        }
    }
    fn encoding(&self) -> &'static str {
        match (&self.0, self.expiring()) {
            (Form::Packed(packed), _) if !packed.is_outgrown() => "listpack",
            (_, Some(expiring)) if expiring.plain().encoding() == "listpack" => "listpackex",
            _ => "hashtable",
        }
    }
    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => size_of::<Boxed>() + fields.heap_bytes(),
                Boxed::Expiring(expiring) => size_of::<Boxed>() + expiring.heap_bytes(),
            },
        }
    }
    fn parts(&self) -> usize {
        match &self.0 {
            Form::Packed(_) => 2,
            Form::Boxed(boxed) => match &**boxed {
                Boxed::Table(fields) => fields.parts(),
                Boxed::Expiring(expiring) => expiring.parts(),
            },
        }
    }
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64 {
        self.scan(cursor, count, &mut |field, value| visit(Some(field), value))
    }
    #[inline]
    fn field_expiry_ms(&self) -> i64 {
        self.expiring().map_or(i64::MAX, ExpiringHash::next_expiry_ms)
    }
    fn expire_fields(&mut self, now_ms: i64, gone: OnGone<'_>) -> usize {
        self.expiring_mut().map_or(0, |expiring| expiring.expire(now_ms, gone))
    }
    fn shows_due_fields(&self, now_ms: i64) -> bool {
        self.expiring().is_some_and(|expiring| expiring.shows_due(now_ms))
    }
    fn hide_fields(&mut self, now_ms: i64) {
        if let Some(expiring) = self.expiring_mut() {
            expiring.hide(now_ms);
        }
    }
    fn hides_fields(&self) -> bool {
        self.expiring().is_some_and(ExpiringHash::is_veiled)
    }
    fn show_fields(&mut self) {
        if let Some(expiring) = self.expiring_mut() {
            expiring.show();
        }
    }
    fn key_expiry_ms(&self) -> i64 {
        self.expiring().map_or(i64::MAX, |expiring| expiring.key_expiry_ms)
    }
    fn set_key_expiry_ms(&mut self, expiry_ms: i64) {
        if let Some(expiring) = self.expiring_mut() {
            expiring.key_expiry_ms = expiry_ms;
        }
    }
    fn serves(&self) -> Option<Range<Wanted>> {
        Some(Wanted::Version(0)..Wanted::Version(published(self).saturating_add(1)))
    }
    fn is_unchanged(&self, since: &HashValue) -> bool {
        match (&self.0, &since.0) {
            (Form::Packed(a), Form::Packed(b)) => a.is_same(b),
            (Form::Boxed(a), Form::Boxed(b)) => match (&**a, &**b) {
                (Boxed::Table(a), Boxed::Table(b)) => a.is_same(b),
                (Boxed::Expiring(a), Boxed::Expiring(b)) => a.is_same(b),
                (Boxed::Table(_), Boxed::Expiring(_)) | (Boxed::Expiring(_), Boxed::Table(_)) => false,
            },
            (Form::Packed(_), Form::Boxed(_)) | (Form::Boxed(_), Form::Packed(_)) => false,
        }
    }
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        match self.0 {
            Form::Packed(_) => {}
            Form::Boxed(boxed) => match *boxed {
                Boxed::Table(fields) => {
                    fields.into_pieces().for_each(|segments| hand_out(Box::new(segments)));
                }
                Boxed::Expiring(expiring) => expiring.into_pieces(hand_out),
            },
        }
    }
    #[inline]
    fn prefetch(&self, step: usize) -> bool {
        match (&self.0, step) {
            (Form::Packed(packed), 0) => packed.prefetch(),
            (Form::Packed(_), _) => {}
            (Form::Boxed(boxed), 0) => strand_chain::prefetch(&**boxed, size_of::<Fields>()),
            (Form::Boxed(boxed), _) => match (&**boxed, step) {
                (Boxed::Table(fields), 1) => fields.prefetch(),
                (Boxed::Table(fields), _) => fields.prefetch_items(),
                (Boxed::Expiring(_), _) => return false,
            },
        }
        matches!(self.0, Form::Boxed(_)) && step < 2
    }
    /// The field is the third word of HSET and HGET.
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        let Form::Boxed(boxed) = &self.0 else { return false };
        let Boxed::Table(fields) = &**boxed else { return false };
        fields.prefetch_all(parts.iter().map(|part| part.third).filter(|part| !part.is_empty()))
    }
}

#[cfg(test)]
mod tests;
