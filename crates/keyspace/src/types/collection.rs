//! [`Collection`]: what every type but the string says of itself, and [`Changed`]: whether a write changed anything.
//!
//! A new type is one module that implements [`Collection`] and one line in the list of types (`crate::record`). The list
//! makes the variants of [`Value`] and [`ValueRef`]; the compiler then names what the type still owes. Nothing here knows
//! a key, an expiry or a command.

use super::Bytes;
use crate::record::{Value, ValueRef};

/// Part of a value's memory, to be dropped where freeing it may take a while: some 50 us of work each.
pub type Piece = Box<dyn Send>;

/// Whether a write changed the value. What did not change is not noted: no index looks at the key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Changed {
    /// The value is as it was.
    No,
    /// Some of its bytes are others.
    Yes,
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// How a collection lies in a [`Value`]. The list of types implements this.
pub trait Stored: Sized {
    /// The collection in `value`; `None` when the value is of another type.
    fn of(value: ValueRef<'_>) -> Option<&Self>;
    /// As [`Stored::of`], for writing.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// The collection as a value.
    fn into_value(self) -> Value;
}

/// Arguments of a command on a collection that may name a part of it: which one does depends on the type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The argument behind the key. Empty when there is none.
    pub third: &'a [u8],
    /// The last argument.
    pub last: &'a [u8],
}

/// A value of many elements.
///
/// A clone is a snapshot: it shares the parts of a large value, and costs at most a pointer a part. All sums are counted
/// along, so that no method here but [`Collection::into_pieces`] costs what grows with the value.
pub trait Collection: Stored + Clone + Default + std::fmt::Debug {
    /// Redis's name of the type, as TYPE answers.
    const TYPE_NAME: &'static str;
    /// The key stays when the last element is removed (streams). Else the key goes with the last element.
    const STAYS_WHEN_EMPTY: bool = false;

    /// Number of elements: what a walk over the whole value costs, in units of 50 to 200 ns.
    fn len(&self) -> usize;
    /// True when the value has no element.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Redis's name of the encoding, as OBJECT ENCODING answers.
    fn encoding(&self) -> &'static str;
    /// Bytes of heap behind the value.
    fn heap_bytes(&self) -> usize;
    /// How many allocations freeing the value costs, about.
    fn parts(&self) -> usize;
    /// Visits about `count` texts of the value from `cursor` on, and returns the next cursor, 0 at the end: for searches
    /// over values. A text that stays is visited at least once, whatever is written between two calls. A field's value
    /// comes with the field's name, a text of another kind alone.
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64;
    /// Nothing in the value expires by itself before this (unix milliseconds); `i64::MAX` when nothing ever does.
    #[inline]
    fn field_expiry_ms(&self) -> i64 {
        i64::MAX
    }
    /// True when neither was changed since one was cloned from the other. A small one is compared; a large one may be said to
    /// be another although it is equal. Costs a pointer for each part at most.
    fn is_unchanged(&self, since: &Self) -> bool;
    /// Hands out all memory of the value in pieces. A value that is freed quickly is one piece or none.
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece));
    /// Asks for the memory that a look-up in the value needs. Each `step` reads what the step before has asked for; true
    /// when another step has something to ask for.
    fn prefetch(&self, step: usize) -> bool {
        let _ = step;
        false
    }
    /// Asks for the memory that look-ups of these parts of the value will need. False when it asks for nothing.
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        let _ = parts;
        false
    }
}
