//! [`Table`]: the part of one database in a shard, with the counts of its records. [`Sums`] adds such counts.

use super::KeyPositions;
use crate::extendible::{Content, ExtendibleTable, Location};
use crate::record::{Value, key_expiry_ms};

/// The part of one database in a shard.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) records: ExtendibleTable<Value, KeyPositions>,
    /// Number of records with an expiry.
    pub(crate) expiring: usize,
    /// Sum of the expiries of all records with an expiry, in milliseconds since 1970.
    pub(crate) expiries_ms: i128,
    /// Number of hashes with fields that expire.
    pub(crate) mortal: usize,
}

/// The sums of the counters of one or more tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Number of heap bytes of the tables.
    pub(crate) bytes: usize,
    /// Number of records that clients can reach (those of even slots).
    pub(crate) records: usize,
    /// Number of records that clients can reach and that have an expiry.
    pub(crate) expiring: usize,
}

impl Sums {
    #[inline]
    pub(super) fn plus(self, other: Sums) -> Sums {
        Sums {
            bytes: self.bytes + other.bytes,
            records: self.records + other.records,
            expiring: self.expiring + other.expiring,
        }
    }
    pub(super) fn minus(self, other: Sums) -> Sums {
        Sums {
            bytes: self.bytes - other.bytes,
            records: self.records - other.records,
            expiring: self.expiring - other.expiring,
        }
    }
}

impl Table {
    pub(super) fn new(base_bits: u8, positions: &KeyPositions) -> Table {
        Table {
            records: ExtendibleTable::new(base_bits, positions.clone()),
            expiring: 0,
            expiries_ms: 0,
            mortal: 0,
        }
    }
    /// Counts a record with this expiry (`i64::MAX`: none).
    #[inline]
    pub(super) fn count_expiry(&mut self, expiry_ms: i64) {
        if expiry_ms != i64::MAX {
            self.expiring += 1;
            self.expiries_ms += i128::from(expiry_ms);
        }
    }
    /// Undoes [`Table::count_expiry`].
    #[inline]
    pub(super) fn uncount_expiry(&mut self, expiry_ms: i64) {
        if expiry_ms != i64::MAX {
            self.expiring -= 1;
            self.expiries_ms -= i128::from(expiry_ms);
        }
    }
    /// Subtracts the record at `at` from the counts, before it is removed or replaced.
    #[inline]
    pub(super) fn uncount(&mut self, at: Location) {
        let item = self.records.at(at);
        if item.expiry_ms() == i64::MAX {
            return;
        }
        let expiry_ms = key_expiry_ms(&item);
        if let Content::Outside(value) = item.content() {
            self.mortal -= usize::from(value.field_expiry_ms() != i64::MAX);
        }
        self.uncount_expiry(expiry_ms);
    }
    /// Sums of this table, which has this slot. A slot other than 0 also counts the bytes of the `Table` itself.
    pub(crate) fn sums(&self, slot: usize) -> Sums {
        let own_bytes = if slot == 0 { 0 } else { size_of::<Table>() + size_of::<(usize, Box<Table>)>() };
        let bytes = own_bytes + self.records.heap_bytes();
        match slot & 1 {
            0 => Sums { bytes, records: self.records.len(), expiring: self.expiring },
            _ => Sums { bytes, ..Sums::default() },
        }
    }
}
