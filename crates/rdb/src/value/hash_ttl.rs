//! Expiry times of hash fields, in the forms used outside packed blobs.

use crate::primitive as p;
use crate::source::Source;
use crate::{Error, Result};

pub(super) const NO_TIME: Error = Error::Corrupt("a field's expiry that is no time");

/// Position and base of a field's expiry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ttl {
    /// Redis 7.4: before the field; milliseconds after the hash's smallest expiry, plus one; 0: none.
    Relative { smallest_ms: i64 },
    /// Redis 7.4's release candidates: before the field; unix milliseconds; 0: none.
    Absolute,
    /// Valkey 9: after the value; unix milliseconds; -1: none.
    Valkey,
}

impl Ttl {
    /// [`Ttl::Relative`] with base `smallest_ms`.
    pub(super) fn relative(smallest_ms: i64) -> Result<Ttl> {
        if smallest_ms < 0 { Err(NO_TIME) } else { Ok(Ttl::Relative { smallest_ms }) }
    }

    /// Reads an expiry before the field.
    pub(super) fn before(self, source: &mut impl Source) -> Result<Option<i64>> {
        let base_ms = match self {
            // Minus one, because 0 means "none".
            Ttl::Relative { smallest_ms } => smallest_ms - 1,
            Ttl::Absolute => 0,
            Ttl::Valkey => return Ok(None),
        };
        match p::length(source)? {
            0 => Ok(None),
            n => i64::try_from(n).ok().and_then(|n| base_ms.checked_add(n)).ok_or(NO_TIME).map(Some),
        }
    }

    /// Reads an expiry after the value.
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
