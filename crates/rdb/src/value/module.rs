//! Module values. They contain their module's name and version and can be skipped without the module.

use std::fmt;

use crate::primitive as p;
use crate::source::Source;
use crate::{Error, Result};

/// The opcodes that precede each part of a module value.
const EOF: u64 = 0;
const SIGNED: u64 = 1;
const UNSIGNED: u64 = 2;
const FLOAT: u64 = 3;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

/// A module's type: nine characters and a version, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleId(pub u64);

impl ModuleId {
    /// The version of the module's encoding, 0 to 1023.
    pub fn version(self) -> u16 {
        (self.0 & 0x3ff) as u16
    }
    /// The nine characters of the type's name.
    pub fn name(self) -> [u8; 9] {
        const CHARS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        std::array::from_fn(|i| CHARS[(self.0 >> (58 - 6 * i)) as usize & 0x3f])
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (version {})", String::from_utf8_lossy(&self.name()), self.version())
    }
}

/// Skips a module value, from the end of its ID to the end of the value.
pub(crate) fn skip(source: &mut impl Source) -> Result<()> {
    loop {
        match p::length(source)? {
            EOF => return Ok(()),
            SIGNED | UNSIGNED => drop(p::length(source)?),
            FLOAT => drop(p::array::<4>(source)?),
            DOUBLE => drop(p::array::<8>(source)?),
            STRING => p::skip_string(source)?,
            other => return Err(Error::unexpected("opcode 0 to 5 in a module's value", other)),
        }
    }
}

/// Skips a module's data besides the keys: its ID, the time of loading, and its value. Returns the ID.
pub(crate) fn skip_aux(source: &mut impl Source) -> Result<ModuleId> {
    let id = ModuleId(p::length(source)?);
    if p::length(source)? != UNSIGNED {
        return Err(Error::Corrupt("a module's data without its load time"));
    }
    p::length(source)?;
    skip(source)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_value_is_skipped_and_its_module_named() {
        let name = b"ReJSON-RL";
        let mut id = 0u64;
        for c in name {
            let at = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                .iter()
                .position(|x| x == c);
            id = id << 6 | at.unwrap() as u64;
        }
        let id = ModuleId(id << 10 | 3);
        assert_eq!((id.name(), id.version()), (*name, 3));
        assert_eq!(id.to_string(), "ReJSON-RL (version 3)");
        let bytes = b"\x05\x02{}\x01\x0a\x02\x41\x00\x03abcd\x04abcdefgh\x05\xc0\x07\x00rest";
        let mut source = &bytes[..];
        skip(&mut source).unwrap();
        assert_eq!(source, b"rest");
        for cut in 0..bytes.len() - 4 {
            assert!(matches!(skip(&mut &bytes[..cut]), Err(Error::Truncated)));
        }
        assert!(skip(&mut &b"\x06"[..]).is_err());
    }
}
