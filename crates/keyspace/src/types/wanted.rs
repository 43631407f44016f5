//! [`Wanted`]: what a client that waits for a key wants there. A type says which of them a value serves
//! ([`Collection::serves`](super::Collection::serves)).

use super::hash::HashValue;
use super::stream::Id;

/// What a waiter wants at a key. The waiters of a key are in one queue, in the order of `Wanted`. So the waiters that
/// a value serves are neighbours. The order of the variants matters: the range of each type ends where the next variant
/// begins, and `Group` is the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// A published version of a dataset, with this number or a higher one ([`PUBLISHED_FIELD`]).
    Version(u64),
    /// The key holds a list (which is never empty).
    List,
    /// The key holds a sorted set (which is never empty).
    ZSet,
    /// Entries of a stream with IDs above this one.
    After(Id),
    /// Entries of a stream that the consumer group with this name has not read.
    Group(Box<[u8]>),
}

/// A field of a dataset's hash in a system companion. It lists the dataset's published versions, and begins with
/// the number of the newest version in decimal digits.
pub const PUBLISHED_FIELD: &[u8] = b"/published";

impl Wanted {
    /// True when one piece of data serves any number of waiters, because they read it without removing it.
    /// Then no waiter waits behind another one.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Wanted::After(_) | Wanted::Version(_))
    }
}

/// The number of the newest published version, from a dataset's hash; 0 when no version is published.
pub(super) fn published(hash: &HashValue) -> u64 {
    let Some(list) = hash.get(PUBLISHED_FIELD) else { return 0 };
    let digits = list.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |n, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}
