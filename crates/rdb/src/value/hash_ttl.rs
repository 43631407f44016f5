//! When a field expires: the forms that hashes outside packed blobs have it in.

use crate::primitive as p;
use crate::source::Source;
use crate::{Error, Result};

pub(super) const NO_TIME: Error = Error::Corrupt("a field's expiry that is no time");

/// Where a field's expiry stands and what it counts from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ttl {
    /// Redis 7.4: before the field, one more than the milliseconds after the hash's smallest expiry; 0 is none.
    Relative { smallest_ms: i64 },
    /// Redis 7.4's release candidates: before the field, unix milliseconds; 0 is none.
    Absolute,
    /// Valkey 9: behind the value, unix milliseconds; -1 is none.
    Valkey,
}

impl Ttl {
    /// [`Ttl::Relative`] to `smallest_ms`.
    pub(super) fn relative(smallest_ms: i64) -> Result<Ttl> {
        if smallest_ms < 0 { Err(NO_TIME) } else { Ok(Ttl::Relative { smallest_ms }) }
    }

    /// What stands before the field.
    pub(super) fn before(self, source: &mut impl Source) -> Result<Option<i64>> {
        let base_ms = match self {
            // One less, because 0 stands for "none".
            Ttl::Relative { smallest_ms } => smallest_ms - 1,
            Ttl::Absolute => 0,
            Ttl::Valkey => return Ok(None),
        };
        match p::length(source)? {
            0 => Ok(None),
            n => i64::try_from(n).ok().and_then(|n| base_ms.checked_add(n)).ok_or(NO_TIME).map(Some),
        }
    }

    /// What stands behind the value.
    pub(super) fn after(self, source: &mut impl Source) -> Result<Option<i64>> {
        match self {
            Ttl::Relative { .. } | Ttl::Absolute => Ok(None),
            Ttl::Valkey => match p::i64_le(source)? {
                -1 => Ok(None),
                at if at >= 0 => Ok(Some(at)),
                _ => Err(NO_TIME),
            },
        }
    }
}
