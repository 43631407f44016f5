//! [`RecordRef`]: one key with its value, its expiry and its usage, as it lies in a shard's table.

use crate::db::OtherType;
use crate::extendible::{Content, Item, OutsideValue};
use crate::types::string::{Str, StrRef};
use crate::types::{AsValue, Bytes, Collection, OnGone, Parts, Piece, Wanted};
use crate::usage::Usage;
use crate::{Db, Key, Settings};
use std::ops::Range;
use strand_chain::Blob;

/// A value with more allocations than this, or of at least [`BIG_BYTES_MIN`] bytes, is *big*: a helper thread frees
/// it.
const BIG_PARTS_MIN: usize = 64;
/// Bytes of memory whose release costs a system call and page faults.
const BIG_BYTES_MIN: usize = 1 << 20;

/// Bytes of a blob that are prefetched. If the blob is longer, the processor's own prefetcher loads the rest.
const PREFETCH_BYTES: usize = 4 * strand_chain::CACHE_LINE_BYTES;

/// The list of collection types: calls the macro `$then` with it. A new type adds one line here.
#[macro_export]
macro_rules! collections {
    ($then:ident) => {
        $then! {
            /// The value is a hash.
            Hash($crate::types::hash::HashValue),
            /// The value is a set.
            Set($crate::types::set::SetValue),
            /// The value is a list.
            List($crate::types::list::ListValue),
            /// The value is a sorted set.
            ZSet($crate::types::zset::ZSetValue),
            /// The value is a stream.
            Stream($crate::types::stream::StreamValue),
        }
    };
}

/// Generates [`Value`] and [`ValueRef`] from the list of collection types.
macro_rules! types {
    ($($(#[$doc:meta])* $variant:ident($collection:ty),)*) => {
        /// A value of any type that is owned: a value outside a table, or on its way into a table.
        #[derive(Debug, Clone)]
        pub enum Value {
            /// The value is a string.
            Str(Str),
            $($(#[$doc])* $variant($collection),)*
        }

        /// A borrowed view of a value of any type.
        #[derive(Debug, Clone, Copy)]
        pub enum ValueRef<'a> {
            /// The value is a string.
            Str(StrRef<'a>),
            $($(#[$doc])* $variant(&'a $collection),)*
        }

        /// Redis's names of all types, for TYPE and for SCAN's option TYPE.
        pub const TYPE_NAMES: &[&str] = &["string", $(<$collection>::TYPE_NAME,)*];

        impl Value {
            /// A view of the value.
            #[inline]
            pub fn view(&self) -> ValueRef<'_> {
                match self {
                    Value::Str(s) => ValueRef::Str(s.view()),
                    $(Value::$variant(collection) => ValueRef::$variant(collection),)*
                }
            }
            /// True when the value was not changed since `since` was cloned from it. May be false for equal values:
            /// see [`Collection::is_unchanged`].
            pub fn is_unchanged(&self, since: &Value) -> bool {
                match (self, since) {
                    (Value::Str(now), Value::Str(since)) => now.is_same(since),
                    $((Value::$variant(now), Value::$variant(since)) => now.is_unchanged(since),)*
                    (Value::Str(_), _) $(| (Value::$variant(_), _))* => false,
                }
            }
            /// An empty value of this type.
            pub fn emptied(&self) -> Value {
                match self {
                    Value::Str(_) => Value::Str(Str::Raw(Blob::default())),
                    $(Value::$variant(_) => Value::$variant(<$collection>::default()),)*
                }
            }
            /// Replaces the value at `key` by this value: see [`Db::replace`].
            pub(crate) fn replace_at(self, db: &mut Db<'_, '_>, key: &Key<'_>) -> Result<Option<Value>, OtherType> {
                match self {
                    Value::Str(s) => {
                        db.update_str(key, s.view());
                        Ok(None)
                    }
                    $(Value::$variant(new) => db.replace_collection(key, new),)*
                }
            }
            /// See [`Collection::field_expiry_ms`].
            #[inline]
            pub(crate) fn field_expiry_ms(&self) -> i64 {
                match self {
                    Value::Str(_) => i64::MAX,
                    $(Value::$variant(collection) => collection.field_expiry_ms(),)*
                }
            }
            /// See [`Collection::key_expiry_ms`].
            #[inline]
            fn kept_key_expiry_ms(&self) -> i64 {
                match self {
                    Value::Str(_) => i64::MAX,
                    $(Value::$variant(collection) => collection.key_expiry_ms(),)*
                }
            }
            /// See [`Collection::set_key_expiry_ms`].
            fn set_key_expiry_ms(&mut self, expiry_ms: i64) {
                match self {
                    Value::Str(_) => {}
                    $(Value::$variant(collection) => collection.set_key_expiry_ms(expiry_ms),)*
                }
            }
            /// See [`Collection::expire_fields`].
            pub(crate) fn expire_fields(&mut self, now_ms: i64, gone: OnGone<'_>) -> usize {
                match self {
                    Value::Str(_) => 0,
                    $(Value::$variant(collection) => collection.expire_fields(now_ms, gone),)*
                }
            }
            /// See [`Collection::shows_due_fields`].
            pub(crate) fn shows_due_fields(&self, now_ms: i64) -> bool {
                match self {
                    Value::Str(_) => false,
                    $(Value::$variant(collection) => collection.shows_due_fields(now_ms),)*
                }
            }
            /// See [`Collection::hides_fields`].
            pub(crate) fn hides_fields(&self) -> bool {
                match self {
                    Value::Str(_) => false,
                    $(Value::$variant(collection) => collection.hides_fields(),)*
                }
            }
            /// See [`Collection::hide_fields`].
            pub(crate) fn hide_fields(&mut self, now_ms: i64) {
                match self {
                    Value::Str(_) => {}
                    $(Value::$variant(collection) => collection.hide_fields(now_ms),)*
                }
            }
            /// See [`Collection::show_fields`].
            pub(crate) fn show_fields(&mut self) {
                match self {
                    Value::Str(_) => {}
                    $(Value::$variant(collection) => collection.show_fields(),)*
                }
            }
            /// Splits the memory of the value into pieces, each of which is freed quickly, and passes them to
            /// `hand_out`.
            pub fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
                match self {
                    Value::Str(s) => hand_out(Box::new(s)),
                    $(Value::$variant(collection) => collection.into_pieces(hand_out),)*
                }
            }
        }

        impl<'a> ValueRef<'a> {
            /// Redis's name of the type, such as `string` or `hash`.
            pub fn type_name(&self) -> &'static str {
                match self {
                    ValueRef::Str(_) => "string",
                    $(ValueRef::$variant(_) => <$collection>::TYPE_NAME,)*
                }
            }
            /// Redis's name of the encoding, such as `int`, `embstr`, `raw`, `listpack` or `hashtable`.
            pub fn encoding(&self) -> &'static str {
                match self {
                    ValueRef::Str(s) => s.encoding(),
                    $(ValueRef::$variant(collection) => collection.encoding(),)*
                }
            }
            /// Number of elements of a collection; 1 for a string.
            pub fn elements(&self) -> usize {
                match self {
                    ValueRef::Str(_) => 1,
                    $(ValueRef::$variant(collection) => collection.len(),)*
                }
            }
            /// Heap bytes of the value. The call takes the same time for every size of value.
            pub fn heap_bytes(&self) -> usize {
                match self {
                    ValueRef::Str(s) => s.heap_bytes(),
                    $(ValueRef::$variant(collection) => collection.heap_bytes(),)*
                }
            }
            /// Number of allocations of the value. The call takes the same time for every size of value.
            pub fn parts(&self) -> usize {
                match self {
                    ValueRef::Str(_) => 1,
                    $(ValueRef::$variant(collection) => collection.parts(),)*
                }
            }
            /// See [`Collection::walk_texts`]. A string counts as one text.
            pub fn walk_texts(
                &self,
                cursor: u64,
                count: usize,
                visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
            ) -> u64 {
                match self {
                    ValueRef::Str(StrRef::Blob { blob, .. }) => visit(None, Bytes::Shared(blob)),
                    ValueRef::Str(s) => visit(None, Bytes::Slice(s.bytes(&mut [0; 20]))),
                    $(ValueRef::$variant(collection) => return collection.walk_texts(cursor, count, visit),)*
                }
                0
            }
            /// An owned copy. It shares blobs and the segments of large collections with the original.
            pub fn to_value(&self) -> Value {
                match self {
                    ValueRef::Str(s) => Value::Str(s.to_str()),
                    $(ValueRef::$variant(collection) => Value::$variant((*collection).clone()),)*
                }
            }
            /// A copy with the fields that a replica hides from its clients, if there are such fields. A file has the copy,
            /// because the primary decides what has expired.
            pub fn with_hidden_fields(&self) -> Option<Value> {
                let hides = match self {
                    ValueRef::Str(_) => false,
                    $(ValueRef::$variant(collection) => collection.hides_fields(),)*
                };
                hides.then(|| {
                    let mut copy = self.to_value();
                    copy.show_fields();
                    copy
                })
            }
            /// Prefetches the value: see [`prefetch_outside`].
            #[inline]
            fn prefetch(&self, step: usize) -> bool {
                match self {
                    ValueRef::Str(StrRef::Blob { blob, .. }) if step == 0 => {
                        blob.prefetch(PREFETCH_BYTES);
                        false
                    }
                    ValueRef::Str(_) => false,
                    $(ValueRef::$variant(collection) => collection.prefetch(step),)*
                }
            }
        }

        impl ValueRef<'_> {
            /// See [`Collection::serves`].
            pub(crate) fn serves(&self) -> Option<Range<Wanted>> {
                match self {
                    ValueRef::Str(_) => None,
                    $(ValueRef::$variant(collection) => collection.serves(),)*
                }
            }
            /// Prefetches the parts of the value: see [`Collection::prefetch_parts`].
            pub(crate) fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
                match self {
                    ValueRef::Str(_) => false,
                    $(ValueRef::$variant(collection) => collection.prefetch_parts(parts),)*
                }
            }
        }

        $(impl AsValue for $collection {
            #[inline]
            fn of(value: ValueRef<'_>) -> Option<&$collection> {
                if let ValueRef::$variant(collection) = value { Some(collection) } else { None }
            }
            #[inline]
            fn of_mut(value: &mut Value) -> Option<&mut $collection> {
                if let Value::$variant(collection) = value { Some(collection) } else { None }
            }
            fn into_value(self) -> Value {
                Value::$variant(self)
            }
        })*

        // A `Value` lies in a segment, and a collection lies in the `Value` itself, so a read goes from the segment
        // directly to the parts of the collection.
        const _: () = assert!(size_of::<Value>() == 24 $(&& size_of::<$collection>() <= 16)*);
    };
}

collections!(types);

impl Value {
    /// The earliest expiry of the value's fields (unix milliseconds). `None`: no field expires.
    pub fn first_field_expiry_ms(&self) -> Option<i64> {
        Some(self.field_expiry_ms()).filter(|expiry_ms| *expiry_ms != i64::MAX)
    }
    /// Stores the key's expiry inside the value if fields of it expire. Returns the earlier expiry of the key and
    /// the fields, which the caller stores in the record's expiry.
    #[inline]
    pub(crate) fn joined_expiry_ms(&mut self, key_expiry_ms: i64) -> i64 {
        match self.field_expiry_ms() {
            i64::MAX => key_expiry_ms,
            field_expiry_ms => {
                self.set_key_expiry_ms(key_expiry_ms);
                field_expiry_ms.min(key_expiry_ms)
            }
        }
    }
    /// Like [`Value::joined_expiry_ms`], after fields were changed in place. `before_ms` is the record's expiry before
    /// the change, and `was_mortal` says whether a field had an expiry then. Also returns whether a field has one
    /// now. `None`: no field has an expiry, before and after.
    pub(crate) fn rejoined_expiry_ms(&mut self, before_ms: i64, was_mortal: bool) -> Option<(i64, bool)> {
        let is_mortal = self.field_expiry_ms() != i64::MAX;
        let key_expiry_ms = match (was_mortal, is_mortal) {
            (false, false) => return None,
            (false, true) => before_ms,
            (true, _) => self.kept_key_expiry_ms(),
        };
        Some((self.joined_expiry_ms(key_expiry_ms), is_mortal))
    }
    /// Heap bytes of the value. The call takes the same time for every size of value.
    pub fn heap_bytes(&self) -> usize {
        self.view().heap_bytes()
    }
    /// True when freeing the value takes so long that a helper thread should do it.
    pub fn is_big(&self) -> bool {
        self.view().parts() > BIG_PARTS_MIN || self.heap_bytes() >= BIG_BYTES_MIN
    }
}

/// Expiry of the key, `i64::MAX` for never. The record's own expiry may be earlier, because it may be that of a
/// hash field.
#[inline]
pub(crate) fn key_expiry_ms(item: &Item<'_, Value>) -> i64 {
    match item.expiry_ms() {
        i64::MAX => i64::MAX,
        expiry_ms => match item.content() {
            Content::Outside(value) => value.key_expiry_ms(expiry_ms),
            Content::Int(_) | Content::Bytes(..) => expiry_ms,
        },
    }
}

impl OutsideValue for Value {
    fn key_expiry_ms(&self, expiry_ms: i64) -> i64 {
        match self.field_expiry_ms() {
            i64::MAX => expiry_ms,
            _ => self.kept_key_expiry_ms(),
        }
    }
    fn heap_bytes(&self) -> usize {
        Value::heap_bytes(self)
    }
    fn from_int(n: i64) -> Value {
        Value::Str(Str::Int(n))
    }
    fn from_bytes(bytes: &[u8], edited: bool) -> Value {
        let blob = Blob::from(bytes);
        Value::Str(if edited { Str::Edited(blob) } else { Str::Raw(blob) })
    }
}

/// A borrowed record: one key with its value, its expiry and its usage.
#[derive(Clone, Copy)]
pub struct RecordRef<'a>(pub(crate) Item<'a, Value>);

impl<'a> RecordRef<'a> {
    /// The record's key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.0.key()
    }
    /// The record's key: as a slice, or as a blob that the caller may share if the key is long.
    pub fn key_bytes(&self) -> Bytes<'a> {
        self.0.key_bytes()
    }
    /// The record's value.
    #[inline]
    pub fn value(&self) -> ValueRef<'a> {
        match self.0.content() {
            Content::Int(n) => ValueRef::Str(StrRef::Int(n)),
            Content::Bytes(bytes, edited) => ValueRef::Str(StrRef::Bytes { bytes, edited }),
            Content::Outside(value) => value.view(),
        }
    }
    /// Expiry of the record (unix milliseconds), if any.
    #[inline]
    pub fn expire_at_ms(&self) -> Option<i64> {
        let expiry_ms = key_expiry_ms(&self.0);
        (expiry_ms != i64::MAX).then_some(expiry_ms)
    }
    /// `OBJECT IDLETIME`: time since the last read or write, in whole seconds. As in Redis, the number wraps after
    /// 194 days. Under an LFU policy the number has no meaning.
    pub fn idle_s(&self, now_ms: i64) -> u32 {
        self.usage().idle_s(now_ms)
    }
    /// `OBJECT FREQ`: the logarithmic access counter, with its decay until `now_ms`. Only under an LFU policy.
    pub fn frequency(&self, now_ms: i64, settings: &Settings) -> u8 {
        self.usage().frequency(now_ms, settings)
    }
    /// All heap bytes of the record (`MEMORY USAGE`): key, value, metadata, and its place in the table.
    pub fn heap_bytes(&self) -> usize {
        // Bytes per record of a table that is three fifths full on average: a handle and a tag. Below,
        // `inline / 12` is the record's share of the segment's spare heap.
        const PLACE_BYTES: usize = 8;
        let inline = self.0.inline_bytes();
        let outside = match self.0.content() {
            Content::Outside(value) => size_of::<Value>() + value.heap_bytes() + self.0.outside_key_bytes(),
            _ => 0,
        };
        PLACE_BYTES + inline + inline / 12 + outside
    }

    #[inline]
    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.0.expiry_ms() <= now_ms && key_expiry_ms(&self.0) <= now_ms
    }
    #[inline]
    fn usage(&self) -> Usage {
        Usage(self.0.usage())
    }
}

impl std::fmt::Debug for RecordRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("RecordRef");
        f.field("key", &String::from_utf8_lossy(self.key()));
        f.field("value", &self.value()).field("expire_at_ms", &self.expire_at_ms()).finish()
    }
}

/// Prefetches the data of a value outside the table that a look-up in the value needs. Step 0 begins. Each later
/// `step` reads what the step before has prefetched, and prefetches what that points to. Returns true when another
/// step is needed.
#[inline]
pub(crate) fn prefetch_outside(item: Item<'_, Value>, step: usize) -> bool {
    if step == 0 {
        return item.prefetch_outside();
    }
    match item.content() {
        Content::Outside(value) => value.view().prefetch(step - 1),
        Content::Int(_) | Content::Bytes(..) => false,
    }
}
