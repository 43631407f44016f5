//! The options of SORT and SORT_RO.

use crate::call::KeyRights;
use crate::errors;
use crate::parse::{self, Text};
use crate::spec::Access;
use smallvec::SmallVec;
use std::ops::Range;
use strand_wire::args::Args;

/// Maximum number of GET patterns per call. The result has one value per element and pattern.
const GETS_MAX: usize = 1024;

const TOO_MANY_GETS: &str = "ERR too many GET patterns: expected at most 1024";
const BY_DENIED: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
const GET_DENIED: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";

/// The options of a call.
pub(super) struct SortOptions<'a> {
    pub(super) descending: bool,
    /// ALPHA: sorts texts, not numbers.
    pub(super) alpha: bool,
    /// True when a script calls the command.
    pub(super) in_script: bool,
    pub(super) by: By<'a>,
    pub(super) gets: SmallVec<[Get<'a>; 4]>,
    /// The index of the argument that is the destination.
    pub(super) store: Option<usize>,
    start: i64,
    /// Maximum number of elements in the result. A negative number means all.
    count: i64,
}

/// The keys by which the elements are sorted.
#[derive(Clone, Copy)]
pub(super) enum By<'a> {
    /// The elements themselves.
    Element,
    /// The elements are not sorted: they keep the order of the value.
    Nothing,
    /// The values at keys that are made from the elements.
    Keys(Pattern<'a>),
}

/// What one GET pattern returns for each element.
#[derive(Clone, Copy)]
pub(super) enum Get<'a> {
    /// `#`: the element itself.
    Element,
    /// Nothing, because the pattern has no star.
    Nothing,
    /// The value at a key that is made from the element.
    Keys(Pattern<'a>),
}

impl Get<'_> {
    pub(super) fn reads_key(&self) -> bool {
        matches!(self, Get::Keys(_))
    }
}

/// A pattern of a key. The element replaces its first star. After `->` follows a field of the hash at the key.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) suffix: &'a [u8],
    pub(super) field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a [u8]) -> Option<Pattern<'a>> {
        let star = memchr::memchr(b'*', pattern)?;
        let (prefix, rest) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = memchr::memmem::find(rest, b"->").filter(|at| at + 2 < rest.len());
        Some(match arrow {
            Some(at) => Pattern { prefix, suffix: &rest[..at], field: Some(&rest[at + 2..]) },
            None => Pattern { prefix, suffix: rest, field: None },
        })
    }
}

impl<'a> SortOptions<'a> {
    /// Reads the arguments of SORT, or of SORT_RO, which cannot store. `rights` says what the user may do with keys
    /// that are not arguments.
    pub(super) fn parse(
        args: Args<'a>,
        stores: bool,
        rights: Option<&dyn KeyRights>,
    ) -> Result<SortOptions<'a>, Text> {
        let mut options = SortOptions {
            descending: false,
            alpha: false,
            in_script: false,
            by: By::Element,
            gets: SmallVec::new(),
            store: None,
            start: 0,
            count: -1,
        };
        let reads_all = || rights.is_none_or(|rights| rights.allows_prefix(b"", Access::READ));
        let mut sorts = true;
        let mut at = 2;
        while at < args.len() {
            let suffix = args.len() - at - 1;
            let takes = if args.is(at, "ASC") || args.is(at, "DESC") {
                options.descending = args.is(at, "DESC");
                0
            } else if args.is(at, "ALPHA") {
                options.alpha = true;
                0
            } else if args.is(at, "LIMIT") && suffix >= 2 {
                options.start = parse::integer(args.at(at + 1))?;
                options.count = parse::integer(args.at(at + 2))?;
                2
            } else if stores && args.is(at, "STORE") && suffix >= 1 {
                options.store = Some(at + 1);
                1
            } else if args.is(at, "BY") && suffix >= 1 {
                match Pattern::parse(args.at(at + 1)) {
                    None => sorts = false,
                    Some(_) if !reads_all() => return Err(BY_DENIED.into()),
                    Some(pattern) => options.by = By::Keys(pattern),
                }
                1
            } else if args.is(at, "GET") && suffix >= 1 {
                if !reads_all() {
                    return Err(GET_DENIED.into());
                }
                if options.gets.len() == GETS_MAX {
                    return Err(TOO_MANY_GETS.into());
                }
                options.gets.push(match args.at(at + 1) {
                    b"#" => Get::Element,
                    pattern => Pattern::parse(pattern).map_or(Get::Nothing, Get::Keys),
                });
                1
            } else {
                return Err(errors::SYNTAX.into());
            };
            at += 1 + takes;
        }
        // As in redis-server, a BY pattern without a star has its effect wherever it is among the options.
        if !sorts {
            options.by = By::Nothing;
        }
        Ok(options)
    }
    /// True when BY or GET reads keys that are made from the elements.
    pub(super) fn reads_keys(&self) -> bool {
        self.reads_weights() || self.gets.iter().any(Get::reads_key)
    }
    /// True when BY reads keys.
    pub(super) fn reads_weights(&self) -> bool {
        matches!(self.by, By::Keys(_))
    }
    /// The range of positions that LIMIT selects of `len` elements.
    pub(super) fn window(&self, len: usize) -> Range<usize> {
        let start = usize::try_from(self.start.max(0)).map_or(len, |start| start.min(len));
        let count = usize::try_from(self.count).map_or(len, |count| count.min(len));
        start..start.saturating_add(count).min(len)
    }
}

/// The position of the destination, for the key specs: after the last STORE that is not itself an argument of
/// another option, or of STORE. The position is that of [`SortOptions::store`] if the options are valid.
pub(crate) fn destination(args: Args<'_>) -> Option<usize> {
    let (mut at, mut found) = (2, None);
    while at < args.len() {
        if args.is(at, "LIMIT") {
            at += 2;
        } else if args.is(at, "GET") || args.is(at, "BY") {
            at += 1;
        } else if args.is(at, "STORE") && at + 1 < args.len() {
            found = Some(at + 1);
            at += 1;
        }
        at += 1;
    }
    found
}
