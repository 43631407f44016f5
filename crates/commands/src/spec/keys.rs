//! [`KeySpec`]: where a command's keys are, and what the command does to them.

use super::KeyFlags;
use strand_wire::args::Args;

/// Where a command's keys are, as in the key specifications of COMMAND INFO.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// A remark that says when these arguments are keys. Usually empty.
    pub notes: &'static str,
    /// What the command does to these keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// Which arguments are keys, counted from where the search begins.
    pub find: FindKeys,
}

/// Constructors, as rows use them.
impl KeySpec {
    /// The key at argument `at`.
    pub const fn one(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::range(at, 0, 1, flags)
    }
    /// Every `step`-th argument from `at` to `last` is a key. `last` is relative to `at`; a negative number counts
    /// from the end of the arguments.
    pub const fn range(at: usize, last: i32, step: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::Range { last, step, limit: 0 })
    }
    /// Argument `at` is the number of keys, and the keys follow it.
    pub const fn counted(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::KeyNumber { number: 0, first: 1, step: 1 })
    }
    /// A spec with these parts.
    pub const fn new(flags: &[KeyFlags], begin: BeginSearch, find: FindKeys) -> KeySpec {
        KeySpec { notes: "", flags: KeyFlags::all(flags), begin, find }
    }
    /// A spec that COMMAND INFO shows as `unknown`. If the command has one such key and the key is an argument,
    /// `find` returns its position. Without `find`, the names of the keys are in the data, and the command needs
    /// rights on every key.
    pub const fn unknown(find: Option<fn(Args<'_>) -> Option<usize>>, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Unknown, FindKeys::Unknown(find))
    }
    /// Adds a remark that says when these arguments are keys.
    pub const fn notes(self, notes: &'static str) -> KeySpec {
        KeySpec { notes, ..self }
    }
    /// True when the arguments that the spec finds are not keys (`not_key`).
    #[inline]
    pub const fn is_no_key(&self) -> bool {
        self.flags.has(KeyFlags::NOT_KEY)
    }
    /// True when the command may use keys that are not among its arguments.
    pub const fn has_hidden_keys(&self) -> bool {
        self.is_incomplete() || matches!(self.find, FindKeys::Unknown(None))
    }
    /// True when the command has keys that no spec finds (`incomplete`).
    #[inline]
    pub const fn is_incomplete(&self) -> bool {
        self.flags.has(KeyFlags::INCOMPLETE)
    }
}

impl KeyFlags {
    /// The rights that a user needs on these keys.
    pub const fn access(self) -> Access {
        const WRITES: u16 = KeyFlags::all(&[KeyFlags::UPDATE, KeyFlags::INSERT, KeyFlags::DELETE]).0;
        Access { read: self.has(KeyFlags::ACCESS), write: self.0 & WRITES != 0 }
    }
}

/// How a command uses a key, as far as ACL rules distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The command reads the value, or the reply depends on it (`access`).
    pub read: bool,
    /// The command changes, makes or removes the value (`update`, `insert`, `delete`).
    pub write: bool,
}

impl Access {
    /// Reads only.
    pub const READ: Access = Access { read: true, write: false };
    /// Writes only.
    pub const WRITE: Access = Access { read: false, write: true };
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
pub enum BeginSearch {
    /// At the argument with this index.
    Index(usize),
    /// After this keyword. The number is the argument at which the search for the keyword begins. If it is
    /// negative, the search begins at that distance from the end, and goes backwards.
    Keyword(&'static str, i32),
    /// At a place that COMMAND INFO cannot describe.
    Unknown,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug)]
pub enum FindKeys {
    /// Every `step`-th argument from the begin to `last` is a key. `last` is relative to the begin; a negative
    /// number counts from the end of the arguments, and -1 is the last one. As in Redis, a `limit` of 2 halves the
    /// range.
    Range {
        /// The last key, relative to the begin. A negative number counts from the end.
        last: i32,
        /// Distance from one key to the next, in arguments.
        step: usize,
        /// If this is 0 or 1, all of the range has keys. If it is n, only the first 1/n of the remaining arguments
        /// has keys.
        limit: usize,
    },
    /// The argument at `number` (relative to the begin) is the number of keys. From `first` (relative) on, every
    /// `step`-th argument is a key.
    KeyNumber {
        /// Where the number of keys is, relative to the begin.
        number: usize,
        /// Where the first key is, relative to the begin.
        first: usize,
        /// Distance from one key to the next, in arguments.
        step: usize,
    },
    /// See [`KeySpec::unknown`].
    Unknown(Option<fn(Args<'_>) -> Option<usize>>),
}
