//! [`Record`]: one key with its value and expiry, and how it was used.

use crate::name::Name;
use crate::segmented::{Item, position_of};
use crate::types::{hash::HashValue, string::Str};
use crate::usage::{Access, Usage};
use crate::{Key, Settings};
use strand_chain::prefetch;

/// A value with more parts than this, or more bytes than [`BIG_BYTES_MIN`], is freed on a helper thread.
const BIG_PARTS_MIN: usize = 64;
/// Freeing this many bytes costs a system call and page faults.
const BIG_BYTES_MIN: usize = 1 << 20;

/// Of a value's allocation, this much is asked for ahead; the processor's own prefetchers go on from there.
const PREFETCH_BYTES: usize = 4 * strand_chain::CACHE_LINE_BYTES;

/// A value of any type.
#[derive(Debug, Clone)]
pub enum Value {
    /// A string.
    Str(Str),
    /// A hash.
    Hash(Box<HashValue>),
}

impl Value {
    /// Redis's name of the type: `string`, `hash`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Str(_) => "string",
            Value::Hash(_) => "hash",
        }
    }
    /// Redis's name of the encoding: `int`, `embstr`, `raw`, `listpack`, `hashtable`.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::Str(s) => s.encoding(),
            Value::Hash(h) => h.encoding(),
        }
    }
    /// Bytes of heap behind the value. Costs nothing that grows with the value.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Str(s) => s.heap_bytes(),
            Value::Hash(h) => size_of::<HashValue>() + h.heap_bytes(),
        }
    }
    /// How many allocations freeing it costs. Costs nothing that grows with the value.
    pub fn parts(&self) -> usize {
        match self {
            Value::Str(_) => 1,
            Value::Hash(h) => h.parts(),
        }
    }
    /// True when freeing it takes long enough to be left to a helper thread.
    pub fn is_big(&self) -> bool {
        self.parts() > BIG_PARTS_MIN || self.heap_bytes() >= BIG_BYTES_MIN
    }
}

/// One key, its value, its expiry and when it was last used. The expiry changes only through [`crate::Db::set_expiry`].
#[derive(Debug)]
pub struct Record {
    name: Name,
    expire_at_ms: i64,
    /// The hash position in the upper 40 bits, [`Usage`] in the lower 24.
    position_and_usage: u64,
    /// The value.
    pub value: Value,
}

// One cache line, and one size class of the allocator.
const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    pub(crate) fn new(key: &Key<'_>, value: Value, expire_at_ms: i64, usage: Usage) -> Record {
        let position_and_usage = position_of(key.hash.0) << 24 | u64::from(usage.0);
        Record { name: Name::new(key.bytes), expire_at_ms, position_and_usage, value }
    }
    /// Asks for the first bytes of the value before they are needed.
    #[inline]
    pub(crate) fn prefetch_value(&self) {
        match &self.value {
            Value::Str(Str::Int(_)) => {}
            Value::Str(Str::Raw(blob) | Str::Edited(blob)) => blob.prefetch(PREFETCH_BYTES),
            Value::Hash(hash) => prefetch(&**hash, size_of::<HashValue>()),
        }
    }
    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.name.as_slice()
    }
    /// When it expires (unix milliseconds), if ever.
    #[inline]
    pub fn expire_at_ms(&self) -> Option<i64> {
        (self.expire_at_ms != i64::MAX).then_some(self.expire_at_ms)
    }
    /// How long ago it was last read or written, in whole seconds: `OBJECT IDLETIME`. As in Redis it starts again after
    /// 194 days, and means nothing under an LFU policy.
    pub fn idle_s(&self, now_ms: i64) -> u32 {
        self.usage().idle_s(now_ms)
    }
    /// The logarithmic access counter of `OBJECT FREQ`, as it has decayed by now; under an LFU policy only.
    pub fn frequency(&self, now_ms: i64, settings: &Settings) -> u8 {
        self.usage().frequency(now_ms, settings)
    }
    /// Bytes of heap in all: record, key, value, its place in the table (`MEMORY USAGE`).
    pub fn heap_bytes(&self) -> usize {
        // A pointer and a tag, in a table that is three fifths full on average.
        const PLACE_BYTES: usize = 15;
        size_of::<Record>() + PLACE_BYTES + self.name.heap_bytes() + self.value.heap_bytes()
    }

    #[inline]
    pub(crate) fn is_at(&self, position: u64, key: &[u8]) -> bool {
        self.position() == position && self.key() == key
    }
    #[inline]
    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expire_at_ms <= now_ms
    }
    /// `i64::MAX` when never.
    pub(crate) fn deadline_ms(&self) -> i64 {
        self.expire_at_ms
    }
    pub(crate) fn set_deadline_ms(&mut self, expire_at_ms: i64) {
        self.expire_at_ms = expire_at_ms;
    }
    /// Marks it used.
    #[inline]
    pub(crate) fn touch(&mut self, access: &mut Access<'_>) {
        let used = access.again(self.usage());
        // Reading a hot key again in the same second must not dirty its cache line.
        if used != self.usage() {
            self.position_and_usage = self.position_and_usage & !0xff_ffff | u64::from(used.0);
        }
    }
    /// Where its key's hash is in hash order.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.position_and_usage >> 24
    }
    #[inline]
    fn usage(&self) -> Usage {
        Usage(self.position_and_usage as u32 & 0xff_ffff)
    }
}

impl Item for Box<Record> {
    #[inline]
    fn position(&self) -> u64 {
        (**self).position()
    }
    #[inline]
    fn deadline_ms(&self) -> i64 {
        self.expire_at_ms
    }
}
