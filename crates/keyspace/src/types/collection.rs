//! [`Collection`]: the interface of all types except the string. [`Changed`]: whether a write changed a value.
//!
//! A new type is one module that implements [`Collection`], and one line in the list of types
//! ([`crate::collections!`]). The list generates the variants of [`Value`] and [`ValueRef`], and calls the method of the
//! type for each of them. This module knows no keys and no commands.

use super::{Bytes, Wanted};
use crate::record::{Value, ValueRef};
use std::ops::Range;

/// A part of a value's memory. Dropping a piece takes about 50 us, so drop it where that delays nobody.
pub type Piece = Box<dyn Send>;

/// Whether a write changed a value. A write that changed nothing is not reported, so no index reads the key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub enum Changed {
    /// The value is unchanged.
    No,
    /// Something changed that is beside the elements, like a consumer group of a stream. The change is counted and
    /// recorded. As in redis-server, it fails no EXEC of a client that watches the key, and outdates no client's copy.
    Beside,
    /// Some bytes of the value changed.
    Yes,
}

impl Changed {
    /// [`Changed::Beside`] if `changed`.
    pub fn beside(changed: bool) -> Changed {
        if changed { Changed::Beside } else { Changed::No }
    }
}

impl From<bool> for Changed {
    fn from(changed: bool) -> Changed {
        if changed { Changed::Yes } else { Changed::No }
    }
}

/// Called with the name of each expired field, if at most 1,024 fields expired together (`hash::FIELDS_NAMED_MAX`).
/// `None`: the caller does not need the names.
pub type OnGone<'a> = Option<&'a mut dyn FnMut(&[u8])>;

/// Conversion between a collection and a [`Value`]. The list of types generates the implementations.
pub trait AsValue: Sized {
    /// The collection in `value`; `None` when the value is of another type.
    fn of(value: ValueRef<'_>) -> Option<&Self>;
    /// Like [`AsValue::of`], but returns a reference for writing.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// The collection as a value of any type.
    fn into_value(self) -> Value;
}

/// Arguments of a command on a collection, for a prefetch. Each type knows which of them names an element.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The argument after the key, which is the third word of the command. Empty when there is none.
    pub third: &'a [u8],
    /// The last argument of the command.
    pub last: &'a [u8],
}

/// A value of many elements.
///
/// A clone is a snapshot. It shares the parts of a large value, and costs at most one pointer per part. All sums
/// are kept up to date, so only [`Collection::into_pieces`] takes longer for a larger value.
pub trait Collection: AsValue + Clone + Default + std::fmt::Debug {
    /// Redis's name of the type, for TYPE.
    const TYPE_NAME: &'static str;
    /// True when the key stays after its last element was removed (streams). Otherwise the key is deleted then.
    const STAYS_WHEN_EMPTY: bool = false;

    /// Number of elements of the value. A walk over all of them costs this number times 50 to 200 ns.
    fn len(&self) -> usize;
    /// True when the value has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Redis's name of the encoding, for OBJECT ENCODING.
    fn encoding(&self) -> &'static str;
    /// Number of heap bytes of the value.
    fn heap_bytes(&self) -> usize;
    /// Approximate number of allocations of the value.
    fn parts(&self) -> usize;
    /// Visits about `count` texts of the value, starting at `cursor`, for searches over values. A text is an
    /// element or the value of a field; with the latter comes the field's name. Returns the next cursor; 0 at the
    /// end. A text that exists during the whole walk is visited at least once, even if the value is written between
    /// two calls.
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64;
    /// Earliest expiry of a field (unix milliseconds). `i64::MAX` when no field expires. A type whose fields expire
    /// implements this method and those up to [`Collection::set_key_expiry_ms`].
    #[inline]
    fn field_expiry_ms(&self) -> i64 {
        i64::MAX
    }
    /// Expires the fields that are due at `now_ms`. Calls `gone` with each of them, if they are at most
    /// [`crate::types::hash::FIELDS_NAMED_MAX`], and returns their number. Only
    /// about a hundred fields are removed per call; the others are hidden until later calls remove them.
    fn expire_fields(&mut self, now_ms: i64, gone: OnGone<'_>) -> usize {
        let _ = (now_ms, gone);
        0
    }
    /// True when a field is due at `now_ms` and is not hidden yet.
    fn shows_due_fields(&self, now_ms: i64) -> bool {
        let _ = now_ms;
        false
    }
    /// Hides the fields that are due at `now_ms` without expiring them. Called in a replica, where the primary decides
    /// what expires.
    fn hide_fields(&mut self, now_ms: i64) {
        let _ = now_ms;
    }
    /// True when [`Collection::hide_fields`] has hidden fields that have not expired.
    fn hides_fields(&self) -> bool {
        false
    }
    /// Undoes [`Collection::hide_fields`]. Fields that have expired stay hidden.
    fn show_fields(&mut self) {}
    /// Expiry of the value's key, `i64::MAX` for never. Valid while some field expires, because the record then has the
    /// earliest expiry of the key and all fields. Also valid directly after the last expiry of a field was removed.
    fn key_expiry_ms(&self) -> i64 {
        i64::MAX
    }
    /// Sets [`Collection::key_expiry_ms`]. Called while some field expires.
    fn set_key_expiry_ms(&mut self, expiry_ms: i64) {
        let _ = expiry_ms;
    }
    /// The waiting clients that the value can serve now, as a range of what they want. `None`: no client waits for
    /// this type. Clients that wait as a consumer group are not in the range.
    fn serves(&self) -> Option<Range<Wanted>> {
        None
    }
    /// True when one of the two values was cloned from the other and neither was changed since. Compares small
    /// values by content. May return false for large values that are equal. Costs at most one pointer comparison
    /// per part.
    fn is_unchanged(&self, since: &Self) -> bool;
    /// Splits all memory of the value into pieces, and passes them to `hand_out`. A value that is freed quickly is
    /// one piece or none.
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece));
    /// Prefetches the memory that a look-up in the value needs. Each `step` reads what the step before has
    /// prefetched, and prefetches what that points to. Returns true when another step is needed.
    fn prefetch(&self, step: usize) -> bool {
        let _ = step;
        false
    }
    /// Prefetches the memory that look-ups of the elements named by `parts` need. Returns false when there is
    /// nothing to prefetch.
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        let _ = parts;
        false
    }
}
