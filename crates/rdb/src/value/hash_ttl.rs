//! Expiry times of hash fields, in the forms used outside packed blobs.

use crate::primitive as p;
use crate::source::Source;
use crate::{Error, Result};

pub(super) const INVALID_EXPIRY: Error =
    Error::Corrupt("a hash field with an expiry that is not a valid time");

/// Where a field's expiry is stored, and what it is relative to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ttl {
    /// Redis 7.4: the expiry is before the field, in milliseconds after the hash's smallest expiry, plus one. 0: no
    /// expiry.
    Relative { smallest_ms: i64 },
    /// Redis 7.4's release candidates: the expiry is before the field, in unix milliseconds. 0: no expiry.
    Absolute,
    /// Valkey 9: the expiry is after the value, in unix milliseconds. -1: no expiry.
    Valkey,
}

impl Ttl {
    /// The form [`Ttl::Relative`] with the smallest expiry `smallest_ms`.
    pub(super) fn relative(smallest_ms: i64) -> Result<Ttl> {
        if smallest_ms < 0 { Err(INVALID_EXPIRY) } else { Ok(Ttl::Relative { smallest_ms }) }
    }

    /// Reads an expiry that is stored before the field, if the form stores it there.
    pub(super) fn before(self, source: &mut impl Source) -> Result<Option<i64>> {
        let base_ms = match self {
            // Subtract one, because 0 means "no expiry".
            Ttl::Relative { smallest_ms } => smallest_ms - 1,
            Ttl::Absolute => 0,
            Ttl::Valkey => return Ok(None),
        };
        match p::length(source)? {
            0 => Ok(None),
            n => i64::try_from(n).ok().and_then(|n| base_ms.checked_add(n)).ok_or(INVALID_EXPIRY).map(Some),
        }
    }

    /// Reads an expiry that is stored after the value, if the form stores it there.
    pub(super) fn after(self, source: &mut impl Source) -> Result<Option<i64>> {
        match self {
            Ttl::Relative { .. } | Ttl::Absolute => Ok(None),
            Ttl::Valkey => match p::i64_le(source)? {
                -1 => Ok(None),
                at if at >= 0 => Ok(Some(at)),
                _ => Err(INVALID_EXPIRY),
            },
        }
    }
}
