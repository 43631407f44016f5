//! [`DueDocuments`]: when documents must be read again, because a field of their hash expires.

use std::collections::{BTreeSet, HashMap};

/// What a key costs in [`DueDocuments`] besides its bytes.
const DUE_ENTRY_BYTES: usize = 80;

/// The documents with a field that expires.
#[derive(Default)]
pub(crate) struct DueDocuments {
    /// When to read a document again, and its key.
    by_time: BTreeSet<(i64, Box<[u8]>)>,
    /// The time in `by_time`, by the fingerprint of the key.
    times: HashMap<u128, i64>,
    /// Bytes of the keys and times (estimated).
    pub(crate) bytes: usize,
}

impl DueDocuments {
    /// The document at `key` is due at this time; `None`: never.
    pub(crate) fn set(&mut self, fingerprint: u128, key: &[u8], at_ms: Option<i64>) {
        let before = match at_ms {
            Some(at_ms) => self.times.insert(fingerprint, at_ms),
            None if self.times.is_empty() => None,
            None => self.times.remove(&fingerprint),
        };
        if let Some(before) = before.filter(|before| at_ms != Some(*before))
            && self.by_time.remove(&(before, key.into()))
        {
            self.bytes -= key.len() + DUE_ENTRY_BYTES;
        }
        if let Some(at_ms) = at_ms
            && self.by_time.insert((at_ms, key.into()))
        {
            self.bytes += key.len() + DUE_ENTRY_BYTES;
        }
    }
    /// Takes the keys that are due. Reading their documents again sets their next times.
    pub(crate) fn take(&mut self, now_ms: i64) -> Vec<Box<[u8]>> {
        let mut keys = Vec::new();
        while self.by_time.first().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let Some((_, key)) = self.by_time.pop_first() else { break };
            self.bytes -= key.len() + DUE_ENTRY_BYTES;
            keys.push(key);
        }
        keys
    }
}
