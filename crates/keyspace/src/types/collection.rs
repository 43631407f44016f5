//! [`Collection`]: the interface of every type except the string. [`Changed`]: whether a write changed a value.
//!
//! A new type is one module that implements [`Collection`], and one line in the list of types (`crate::record`).
//! The list generates the variants of [`Value`] and [`ValueRef`]. The compiler then names the missing parts. This
//! module knows no key, no expiry and no command.

use super::Bytes;
use crate::record::{Value, ValueRef};

/// Part of a value's memory, to be dropped where that may take a while: about 50 us each.
pub type Piece = Box<dyn Send>;

/// Whether a write changed the value. A write that changed nothing is not noted, so no index reads the key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Changed {
    /// The value is unchanged.
    No,
    /// Some bytes of the value changed.
    Yes,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// How a collection lies in a [`Value`]. The list of types generates the implementations.
pub trait Stored: Sized {
    /// The collection in `value`; `None` when the value is of another type.
    fn of(value: ValueRef<'_>) -> Option<&Self>;
    /// As [`Stored::of`], for writing.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// The collection as a value.
    fn into_value(self) -> Value;
}

/// Arguments of a command on a collection that may name a part of it. The type decides which argument does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The argument after the key. Empty when there is none.
    pub third: &'a [u8],
    /// The last argument.
    pub last: &'a [u8],
}

/// A value of many elements.
///
/// A clone is a snapshot. It shares the parts of a large value, and costs at most one pointer a part. All sums are
/// kept current, so the cost of no method except [`Collection::into_pieces`] grows with the value.
pub trait Collection: Stored + Clone + Default + std::fmt::Debug {
    /// Redis's name of the type, for TYPE.
    const TYPE_NAME: &'static str;
    /// True when the key stays after its last element was removed (streams). Otherwise the key goes too.
    const STAYS_WHEN_EMPTY: bool = false;

    /// Number of elements: the cost of a walk over the whole value, in units of 50 to 200 ns.
    fn len(&self) -> usize;
    /// True when the value has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Redis's name of the encoding, for OBJECT ENCODING.
    fn encoding(&self) -> &'static str;
    /// Heap bytes behind the value.
    fn heap_bytes(&self) -> usize;
    /// Approximate number of allocations.
    fn parts(&self) -> usize;
    /// Visits about `count` texts of the value, starting at `cursor`, for searches over values. Returns the next
    /// cursor, 0 at the end. A text that stays is visited at least once, even with writes between two calls. The
    /// value of a field comes with the field's name. Any other text comes alone.
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64;
    /// Earliest expiry of a part of the value (unix milliseconds). `i64::MAX` when no part expires.
    #[inline]
    fn field_expiry_ms(&self) -> i64 {
        i64::MAX
    }
    /// True when neither value was changed since one was cloned from the other. Compares small values; may return
    /// false for large values that are equal. Costs at most one pointer comparison a part.
    fn is_unchanged(&self, since: &Self) -> bool;
    /// Passes all memory of the value to `hand_out` in pieces. A value that is freed quickly is one piece or none.
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece));
    /// Prefetches the memory that a look-up in the value needs. Each `step` reads what the step before has
    /// prefetched. Returns true when another step has something to prefetch.
    fn prefetch(&self, step: usize) -> bool {
        let _ = step;
        false
    }
    /// Prefetches the memory that look-ups of these parts of the value need. Returns false when it prefetches
    /// nothing.
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        let _ = parts;
        false
    }
}
