//! [`Id`]: the ID of a stream's entry. It consists of unix milliseconds and a sequence number within the
//! millisecond.

/// The ID of an entry. IDs order by time, then by sequence number. Redis writes it as `ms-seq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The first part of the ID: Unix milliseconds.
    pub ms: u64,
    /// The second part of the ID: a sequence number within the millisecond.
    pub seq: u64,
}

impl Id {
    /// The lowest ID. No entry can have it.
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    /// The highest ID.
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// The ID with the parts `ms` and `seq`.
    pub const fn new(ms: u64, seq: u64) -> Id {
        Id { ms, seq }
    }
    /// The next higher ID. `None` for the highest.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { ms: self.ms, seq }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }
    /// The next lower ID. `None` for the lowest.
    pub fn previous(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { ms: self.ms, seq }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
    /// The 16 bytes that Redis stores: both numbers big-endian, so that the order of bytes is the order of IDs.
    pub fn to_bytes(self) -> [u8; 16] {
        ((u128::from(self.ms) << 64) | u128::from(self.seq)).to_be_bytes()
    }
    /// The ID from its 16 bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Id {
        let both = u128::from_be_bytes(bytes);
        Id { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}
