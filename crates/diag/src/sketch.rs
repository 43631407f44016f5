//! [`Sketch`]: the heaviest keys of a stream, in bounded memory (Space-Saving, Metwally, Agrawal and El Abbadi 2005).
//!
//! A sketch keeps [`ROWS_MAX`] keys. A new key replaces the lightest one and inherits its weight as its
//! error. So a key with more than `1/ROWS_MAX` of all weight is always present. The key's whole weight is between
//! [`SketchRow::weight`] and the sum of [`SketchRow::weight`] and [`SketchRow::error`].

/// Number of keys in a sketch.
pub const ROWS_MAX: usize = 64;
/// Maximum number of bytes kept of a key. Of a longer key, only the first bytes are kept.
pub const KEY_BYTES_MAX: usize = 128;

/// What the weight of a key measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The number of commands that used the key.
    Count,
    /// The bytes of the requests and replies of the commands that used the key.
    Bytes,
    /// The duration of the commands that used the key.
    Time,
}

/// What one or more uses of a key cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Number of uses of the key.
    pub count: f64,
    /// Bytes of the requests and replies that used the key.
    pub bytes: f64,
    /// Time that the uses of the key took, in nanoseconds.
    pub ns: f64,
}

impl Weight {
    fn by(&self, by: By) -> f64 {
        match by {
            By::Count => self.count,
            By::Bytes => self.bytes,
            By::Time => self.ns,
        }
    }
    fn add(&mut self, more: &Weight) {
        self.count += more.count;
        self.bytes += more.bytes;
        self.ns += more.ns;
    }
    /// This fraction of the weight.
    pub fn part(&self, part: f64) -> Weight {
        Weight { count: self.count * part, bytes: self.bytes * part, ns: self.ns * part }
    }
}

/// A key or its start, stored in place. Replacing a key allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyText {
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl KeyText {
    fn of(key: &[u8]) -> KeyText {
        let kept = &key[..key.len().min(KEY_BYTES_MAX)];
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..kept.len()].copy_from_slice(kept);
        KeyText { bytes, len: kept.len() as u8 }
    }
}

impl std::ops::Deref for KeyText {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A row of a sketch.
#[derive(Clone, Debug, PartialEq)]
pub struct SketchRow {
    /// Number of the key's database.
    pub db: usize,
    /// The key, or the start of a long key.
    pub key: KeyText,
    /// The length of the whole key.
    pub key_bytes: usize,
    /// The weight since the key entered the sketch.
    pub weight: Weight,
    /// The key's whole weight may exceed `weight` by at most this much, because the key may have been in the sketch
    /// before. This error is the weight plus the error of the key that was replaced.
    pub error: f64,
}

/// The heaviest keys, see the module.
#[derive(Clone, Debug)]
pub struct Sketch {
    by: By,
    /// The hash of each row's key. Every use of a key searches this array.
    hashes: Vec<u64>,
    /// The weight plus the error of each row.
    scores: Vec<f64>,
    rows: Vec<SketchRow>,
}

impl Sketch {
    /// An empty sketch.
    pub fn new(by: By) -> Sketch {
        Sketch {
            by,
            hashes: Vec::with_capacity(ROWS_MAX),
            scores: Vec::with_capacity(ROWS_MAX),
            rows: Vec::with_capacity(ROWS_MAX),
        }
    }
    /// Counts a use of a key. `hash` is the hash of database and key.
    pub fn add(&mut self, hash: u64, db: usize, key: &[u8], weight: &Weight) {
        let score = weight.by(self.by);
        if let Some(at) = self.hashes.iter().position(|h| *h == hash) {
            self.scores[at] += score;
            self.rows[at].weight.add(weight);
            return;
        }
        let row =
            |error| SketchRow { db, key: KeyText::of(key), key_bytes: key.len(), weight: *weight, error };
        if self.rows.len() < ROWS_MAX {
            self.hashes.push(hash);
            self.scores.push(score);
            self.rows.push(row(0.0));
            return;
        }
        let lightest =
            self.scores.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at);
        let error = self.scores[lightest];
        self.hashes[lightest] = hash;
        self.scores[lightest] = error + score;
        self.rows[lightest] = row(error);
    }
    /// Adds the contents of another sketch.
    pub fn merge(&mut self, other: &Sketch) {
        for (hash, row) in other.hashes.iter().zip(&other.rows) {
            self.add(*hash, row.db, &row.key, &row.weight);
            if let Some(at) = self.hashes.iter().position(|h| h == hash) {
                self.rows[at].key_bytes = row.key_bytes;
            }
        }
    }
    /// Halves all weights, so that keys that became heavy recently can rise.
    pub fn age(&mut self) {
        self.scores.iter_mut().for_each(|score| *score /= 2.0);
        for row in &mut self.rows {
            row.weight = row.weight.part(0.5);
            row.error /= 2.0;
        }
    }
    /// The rows, ordered by [`SketchRow::weight`], heaviest first.
    pub fn heaviest(&self) -> Vec<SketchRow> {
        let mut rows = self.rows.clone();
        rows.sort_by(|a, b| b.weight.by(self.by).total_cmp(&a.weight.by(self.by)));
        rows
    }
    /// Removes all rows.
    pub fn clear(&mut self) {
        self.hashes.clear();
        self.scores.clear();
        self.rows.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    fn hash(key: &[u8]) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
    }

    #[test]
    fn heavy_keys_are_found_among_many_in_bounded_memory() {
        let (mut by_count, mut by_time) = (Sketch::new(By::Count), Sketch::new(By::Time));
        let mut add = |key: String, ns: f64| {
            let weight = Weight { count: 1.0, bytes: 100.0, ns };
            by_count.add(hash(key.as_bytes()), 0, key.as_bytes(), &weight);
            by_time.add(hash(key.as_bytes()), 0, key.as_bytes(), &weight);
        };
        // One use in twenty is of the hot key, and one in a thousand is slow. All other keys are used once.
        for i in 0..100_000u64 {
            match i {
                i if i % 1000 == 7 => add("slow".into(), 1e6),
                i if i.is_multiple_of(20) => add("hot".into(), 500.0),
                i => add(format!("cold:{i}"), 500.0),
            }
        }
        let first = &by_count.heaviest()[0];
        assert_eq!(&*first.key, b"hot");
        assert!(
            (4_900.0..=5_000.0).contains(&first.weight.count) && first.error <= 100_000.0 / ROWS_MAX as f64
        );
        assert_eq!(&*by_time.heaviest()[0].key, b"slow");
        assert_eq!(by_count.heaviest().len(), ROWS_MAX);
        by_count.age();
        assert!(by_count.heaviest()[0].weight.count <= 2_500.0);
        let mut both = Sketch::new(By::Count);
        both.merge(&by_count);
        both.merge(&by_count);
        assert!(both.heaviest()[0].weight.count > 4_800.0);
        let long = vec![b'k'; 1000];
        both.clear();
        both.add(1, 3, &long, &Weight { count: 1.0, ..Weight::default() });
        let row = &both.heaviest()[0];
        assert_eq!((row.db, row.key.len(), row.key_bytes), (3, KEY_BYTES_MAX, 1000));
    }
}
