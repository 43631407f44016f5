//! [`KeySpec`]: where a command's keys are, and what the command does to them.

use super::KeyFlags;
use strand_wire::args::Args;

/// Where a command's keys are, as in the key specifications of COMMAND INFO.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// A remark on when these arguments are keys. Mostly empty.
    pub notes: &'static str,
    /// What the command does to those keys.
    pub flags: KeyFlags,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// Which arguments from there on are keys.
    pub find: FindKeys,
}

/// The forms that the rows use.
impl KeySpec {
    /// The key at argument `at`.
    pub const fn one(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::range(at, 0, 1, flags)
    }
    /// Keys from argument `at` to `last` (relative to `at`; a negative number counts from the end), at every `step`-th
    /// argument.
    pub const fn range(at: usize, last: i32, step: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::Range { last, step, limit: 0 })
    }
    /// Keys whose number is argument `at`. The first key follows the number.
    pub const fn counted(at: usize, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::KeyNumber { number: 0, first: 1, step: 1 })
    }
    /// Any spec.
    pub const fn new(flags: &[KeyFlags], begin: BeginSearch, find: FindKeys) -> KeySpec {
        KeySpec { notes: "", flags: KeyFlags::all(flags), begin, find }
    }
    /// Keys that COMMAND INFO calls `unknown`. `find` returns the position of the only key, if it is an argument.
    /// Without `find` the data has the names of the keys, and the command needs rights on every key.
    pub const fn unknown(find: Option<fn(Args<'_>) -> Option<usize>>, flags: &[KeyFlags]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Unknown, FindKeys::Unknown(find))
    }
    /// Adds a remark on when these arguments are keys.
    pub const fn notes(self, notes: &'static str) -> KeySpec {
        KeySpec { notes, ..self }
    }
    /// True when the arguments that the spec finds are not keys (`not_key`).
    #[inline]
    pub const fn is_no_key(&self) -> bool {
        self.flags.has(KeyFlags::NOT_KEY)
    }
    /// True when the arguments alone do not tell all keys.
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

/// What a command does to a key, as far as ACL rules distinguish it.
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
    /// At this argument.
    Index(usize),
    /// After this keyword, searched from argument `start_from` on. A negative number searches backwards from the end.
    Keyword(&'static str, i32),
    /// At no place that can be told to a client.
    Unknown,
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug)]
pub enum FindKeys {
    /// From the beginning to `last` (relative; a negative number counts from the end of the arguments, -1 is the last),
    /// at every `step`-th argument. As in Redis, `limit` 2 halves the range.
    Range {
        /// Relative to the beginning. A negative number counts from the end.
        last: i32,
        /// Distance from key to key.
        step: usize,
        /// 0 and 1: no limit; n: only the first 1/n of the rest.
        limit: usize,
    },
    /// A count at `number` (relative), and keys from `first` (relative) on, at every `step`-th argument.
    KeyNumber {
        /// Where the count is.
        number: usize,
        /// Where the first key is.
        first: usize,
        /// Distance from key to key.
        step: usize,
    },
    /// See [`KeySpec::unknown`].
    Unknown(Option<fn(Args<'_>) -> Option<usize>>),
}
