//! [`KeySpec`]: where a command's keys are, and what the command does to them.

use super::KeyFlags;
use strand_wire::args::Args;

/// Where a command's keys are, as in `COMMAND INFO`'s key specifications.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// A remark on when these keys are keys; mostly empty.
    pub notes: &'static str,
    /// What the command does to those keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// Which arguments from there on are keys.
    pub find: FindKeys,
}

/// Rows are written with these.
impl KeySpec {
    /// The key at argument `at`.
    pub const fn one(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::range(at, 0, 1, flags)
    }
    /// Keys from argument `at` to `last` (relative to `at`; negative from the end), each `step`.
    pub const fn range(at: usize, last: i32, step: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::Range { last, step, limit: 0 })
    }
    /// Keys whose number stands at argument `at`; the first key follows it.
    pub const fn counted(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::KeyNumber { number: 0, first: 1, step: 1 })
    }
    /// Any spec.
    pub const fn new(flags: &[KeyFlags], begin: BeginSearch, find: FindKeys) -> KeySpec {
        KeySpec { notes: "", flags: KeyFlags::all(flags), begin, find }
    }
    /// Keys that COMMAND INFO calls `unknown`: `find` has the position of the one there is, if it is among the arguments;
    /// without it the keys' names are in the data, and the command needs rights on every key.
    pub const fn unknown(find: Option<fn(Args<'_>) -> Option<usize>>, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Unknown, FindKeys::Unknown(find))
    }
    /// With a remark on when these keys are keys.
    pub const fn notes(self, notes: &'static str) -> KeySpec {
        KeySpec { notes, ..self }
    }
    /// True when what the spec finds is no key (`not_key`).
    #[inline]
    pub const fn is_no_key(&self) -> bool {
        self.flags.has(KeyFlags::NOT_KEY)
    }
    /// True when the keys cannot be told from the arguments alone, or not all of them.
    pub const fn has_hidden_keys(&self) -> bool {
        self.is_incomplete() || matches!(self.find, FindKeys::Unknown(None))
    }
    /// True when the command has keys that no spec can find (`incomplete`).
    #[inline]
    pub const fn is_incomplete(&self) -> bool {
        self.flags.has(KeyFlags::INCOMPLETE)
    }
}

impl KeyFlags {
    /// What a user needs to be allowed to do with these keys.
    pub const fn access(self) -> Access {
        const WRITES: u16 = KeyFlags::all(&[KeyFlags::UPDATE, KeyFlags::INSERT, KeyFlags::DELETE]).0;
        Access { read: self.has(KeyFlags::ACCESS), write: self.0 & WRITES != 0 }
    }
}

/// What is done to a key, as ACL rules tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its value is read, or told from (`access`).
    pub read: bool,
    /// Its value is changed, made or removed (`update`, `insert`, `delete`).
    pub write: bool,
}

impl Access {
    /// Reading alone.
    pub const READ: Access = Access { read: true, write: false };
    /// Writing alone.
    pub const WRITE: Access = Access { read: false, write: true };
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
pub enum BeginSearch {
    /// At this argument.
    Index(usize),
    /// After this keyword, searched from argument `start_from` on (negative: from the end backwards).
    Keyword(&'static str, i32),
    /// Nowhere that a client could be told.
    Unknown,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug)]
pub enum FindKeys {
    /// From the beginning to `last` (relative; negative counts from the end of the arguments, -1 is the last), each
    /// `step` arguments; `limit` 2 halves the range, as in Redis.
    Range {
        /// Relative to the beginning; negative: from the end.
        last: i32,
        /// Distance from key to key.
        step: usize,
        /// 0 and 1: no limit; n: only the first 1/n of the rest.
        limit: usize,
    },
    /// A count at `number` (relative), the keys from `first` (relative), each `step`.
    KeyNumber {
        /// Where the count is.
        number: usize,
        /// Where the first key is.
        first: usize,
        /// Distance from key to key.
        step: usize,
    },
    /// As [`KeySpec::unknown`] says.
    Unknown(Option<fn(Args<'_>) -> Option<usize>>),
}
