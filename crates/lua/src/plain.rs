//! [`Plain`] and [`Short`]: values that need no handle.

use std::mem::MaybeUninit;

/// Maximum number of bytes of a [`Short`]. A longer text costs so much to copy that a handle no longer matters.
pub const SHORT_MAX: usize = 1024;

/// A value of Lua that needs no handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plain<'p> {
    /// Lua's `nil`.
    Nil,
    /// Lua's `true` or `false`.
    Bool(bool),
    /// A number. Lua 5.1 has no integers.
    Number(f64),
    /// A string, which may have any bytes.
    Text(&'p [u8]),
}

/// A text of at most [`SHORT_MAX`] bytes, in place. It has no destructor, so Lua may raise an error while a frame
/// holds the text.
pub struct Short {
    bytes: [MaybeUninit<u8>; SHORT_MAX],
    /// Number of bytes that are initialised.
    len: usize,
}

impl Short {
    /// An empty text.
    #[inline]
    pub(crate) const fn new() -> Short {
        Short { bytes: [MaybeUninit::uninit(); SHORT_MAX], len: 0 }
    }
    /// Sets the text. Returns false, and changes nothing, when `text` is too long.
    #[inline]
    pub fn set(&mut self, text: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(..text.len()) else { return false };
        room.write_copy_of_slice(text);
        self.len = text.len();
        true
    }
    /// The text.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        // SAFETY: `set` has written this many bytes.
        unsafe { bytes.assume_init_ref() }
    }
}

impl std::fmt::Debug for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Short({})", self.as_bytes().escape_ascii())
    }
}
