//! [`Table`]: the part of one database in a shard, with the counts of its records. [`Counted`] is one
//! record's share in these counts. [`Sums`] adds the counts of tables.

use super::KeyPositions;
use crate::extendible::{Content, ExtendibleTable, ItemMetadata, Location};
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

/// What the counts of a [`Table`] know of one record. It is read before the table is changed. For a record
/// without an expiry only the entry's metadata is read: to read its layout as well took 51 instructions for each key of
/// an MSET (callgrind).
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Expiry of the key in unix milliseconds; `i64::MAX` for never.
    pub(super) expiry_ms: i64,
    /// True for a hash with fields that expire.
    is_mortal: bool,
}

impl Counted {
    #[inline]
    pub(super) fn of(
        records: &ExtendibleTable<Value, KeyPositions>,
        at: Location,
        metadata: ItemMetadata<'_>,
    ) -> Counted {
        // A hash with fields that expire has an expiry in its entry.
        if metadata.expiry_ms() == i64::MAX {
            return Counted { expiry_ms: i64::MAX, is_mortal: false };
        }
        let item = records.at(at);
        let is_mortal = match item.content() {
            Content::Outside(value) => value.field_expiry_ms() != i64::MAX,
            Content::Int(_) | Content::Bytes(..) => false,
        };
        Counted { expiry_ms: key_expiry_ms(&item), is_mortal }
    }
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
    /// Subtracts a record from the counts, before it is removed or replaced.
    #[inline]
    pub(super) fn uncount(&mut self, counted: Counted) {
        self.mortal -= usize::from(counted.is_mortal);
        self.uncount_expiry(counted.expiry_ms);
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
