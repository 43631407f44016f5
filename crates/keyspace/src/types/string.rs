//! [`Str`]: the string type, either an integer or a blob.

use strand_chain::Blob;

/// Maximum length in bytes of a string with the encoding `embstr`.
pub const EMBSTR_BYTES_MAX: usize = 44;

/// Buffer for a formatted `i64`, for example in [`Str::bytes`].
pub type IntBuffer = [u8; 20];

/// A string value.
#[derive(Debug, Clone)]
pub enum Str {
    /// The string is a canonical decimal integer.
    Int(i64),
    /// Bytes exactly as a command has set them.
    Raw(Blob),
    /// Bytes that a command has edited in place (APPEND, SETRANGE). The encoding is `raw`, whatever the length.
    Edited(Blob),
}

impl Str {
    /// A string of these bytes. It is stored as an integer if the bytes are an integer in canonical form (`-0`,
    /// `+1`, `01` are not).
    pub fn from_slice(bytes: &[u8]) -> Str {
        match parse_int(bytes) {
            Some(n) => Str::Int(n),
            None => Str::Raw(Blob::from(bytes)),
        }
    }
    /// A view of the string.
    pub fn view(&self) -> StrRef<'_> {
        match self {
            Str::Int(n) => StrRef::Int(*n),
            Str::Raw(blob) => StrRef::Blob { blob, edited: false },
            Str::Edited(blob) => StrRef::Blob { blob, edited: true },
        }
    }
    /// True when one of the two was cloned from the other and neither was changed since. Compares short strings by
    /// content. May return false for long strings that are equal.
    pub fn is_same(&self, other: &Str) -> bool {
        /// Strings up to this length may be stored in a table. Each read of such a string copies it, so pointers
        /// cannot be compared.
        const COPIED_BYTES_MAX: usize = 4096;
        match (self, other) {
            (Str::Int(a), Str::Int(b)) => a == b,
            (Str::Raw(a) | Str::Edited(a), Str::Raw(b) | Str::Edited(b)) => {
                a.as_ptr() == b.as_ptr()
                    || (a.len().max(b.len()) <= COPIED_BYTES_MAX && a.as_slice() == b.as_slice())
            }
            (Str::Int(_), Str::Raw(_) | Str::Edited(_)) | (Str::Raw(_) | Str::Edited(_), Str::Int(_)) => {
                false
            }
        }
    }
    /// Length of the string in bytes.
    pub fn len(&self) -> usize {
        match self {
            Str::Int(n) => int_len(*n),
            Str::Raw(b) | Str::Edited(b) => b.len(),
        }
    }
    /// True when the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes. If the string is an integer, its text is written to `buffer`.
    pub fn bytes<'a>(&'a self, buffer: &'a mut IntBuffer) -> &'a [u8] {
        match self {
            Str::Int(n) => format_int(*n, buffer),
            Str::Raw(b) | Str::Edited(b) => b,
        }
    }
    /// The integer, if the string is an integer in canonical form.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Str::Int(n) => Some(*n),
            Str::Raw(b) | Str::Edited(b) => parse_int(b),
        }
    }
    /// The blob, to be edited in place. An integer is changed to its text. From now on the encoding is `raw`.
    pub fn edit(&mut self) -> &mut Blob {
        let blob = match std::mem::replace(self, Str::Int(0)) {
            Str::Int(n) => Blob::from(format_int(n, &mut [0; 20])),
            Str::Raw(b) | Str::Edited(b) => b,
        };
        *self = Str::Edited(blob);
        match self {
            Str::Edited(b) => b,
            _ => unreachable!("set on the line above"),
        }
    }
    /// The encoding of the string: `int`, `embstr` or `raw`.
    pub fn encoding(&self) -> &'static str {
        match self {
            Str::Int(_) => "int",
            Str::Raw(b) if b.len() <= EMBSTR_BYTES_MAX => "embstr",
            _ => "raw",
        }
    }
    /// Heap bytes of the string.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Str::Int(_) => 0,
            Str::Raw(b) | Str::Edited(b) => b.heap_bytes(),
        }
    }
}

/// A borrowed view of a string in the keyspace, wherever it is stored.
#[derive(Debug, Clone, Copy)]
pub enum StrRef<'a> {
    /// The string is a canonical decimal integer.
    Int(i64),
    /// The string's bytes are in a record of a table.
    Bytes {
        /// The bytes of the string.
        bytes: &'a [u8],
        /// True when a command has edited the bytes in place (APPEND, SETRANGE). The encoding is then `raw`,
        /// whatever the length.
        edited: bool,
    },
    /// Bytes in a blob of their own, which a reply may share.
    Blob {
        /// The blob with the bytes.
        blob: &'a Blob,
        /// True when a command has edited the bytes in place.
        edited: bool,
    },
}

impl<'a> StrRef<'a> {
    /// A view of these bytes as a string. It is an integer if the bytes are an integer in canonical form.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> StrRef<'a> {
        match parse_int(bytes) {
            Some(n) => StrRef::Int(n),
            None => StrRef::Bytes { bytes, edited: false },
        }
    }
    /// Length of the string in bytes.
    pub fn len(&self) -> usize {
        match self {
            StrRef::Int(n) => int_len(*n),
            StrRef::Bytes { bytes, .. } => bytes.len(),
            StrRef::Blob { blob, .. } => blob.len(),
        }
    }
    /// True when the string is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes. If the string is an integer, its text is written to `buffer`.
    pub fn bytes<'b>(&self, buffer: &'b mut IntBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            StrRef::Int(n) => format_int(*n, buffer),
            StrRef::Bytes { bytes, .. } => bytes,
            StrRef::Blob { blob, .. } => blob,
        }
    }
    /// The integer, if the string is an integer in canonical form.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            StrRef::Int(n) => Some(*n),
            StrRef::Bytes { bytes, .. } => parse_int(bytes),
            StrRef::Blob { blob, .. } => parse_int(blob),
        }
    }
    /// The encoding of the string: `int`, `embstr` or `raw`.
    pub fn encoding(&self) -> &'static str {
        match self {
            StrRef::Int(_) => "int",
            StrRef::Bytes { bytes, edited: false } if bytes.len() <= EMBSTR_BYTES_MAX => "embstr",
            StrRef::Blob { blob, edited: false } if blob.len() <= EMBSTR_BYTES_MAX => "embstr",
            _ => "raw",
        }
    }
    /// The bytes as a blob: the string's own blob if it has one, else a copy.
    pub fn to_blob(&self) -> Blob {
        match self {
            StrRef::Blob { blob, .. } => (*blob).clone(),
            other => Blob::from(other.bytes(&mut [0; 20])),
        }
    }
    /// Heap bytes of a string that has a blob of its own; 0 for a string in a record.
    pub fn heap_bytes(&self) -> usize {
        match self {
            StrRef::Int(_) | StrRef::Bytes { .. } => 0,
            StrRef::Blob { blob, .. } => blob.heap_bytes(),
        }
    }
    /// An owned copy. A blob is shared and not copied.
    pub fn to_str(&self) -> Str {
        match *self {
            StrRef::Int(n) => Str::Int(n),
            StrRef::Bytes { bytes, edited: false } => Str::Raw(Blob::from(bytes)),
            StrRef::Bytes { bytes, edited: true } => Str::Edited(Blob::from(bytes)),
            StrRef::Blob { blob, edited: false } => Str::Raw(blob.clone()),
            StrRef::Blob { blob, edited: true } => Str::Edited(blob.clone()),
        }
    }
}

fn int_len(n: i64) -> usize {
    usize::from(n < 0) + n.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1
}

/// Writes the decimal form of `n` to the end of `buffer`, and returns that part of `buffer`.
pub fn format_int(n: i64, buffer: &mut IntBuffer) -> &[u8] {
    let (mut at, mut rest) = (buffer.len(), n.unsigned_abs());
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if n < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

/// Parses an `i64` in canonical decimal form. Accepts what Redis's `string2ll` accepts.
pub fn parse_int(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > 20 {
        return None;
    }
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut n: u64 = 0;
    for d in digits {
        if !d.is_ascii_digit() {
            return None;
        }
        n = n.checked_mul(10)?.checked_add(u64::from(d - b'0'))?;
    }
    if negative { 0i64.checked_sub_unsigned(n) } else { i64::try_from(n).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_what_redis_takes_for_one() {
        for n in [
            0,
            1,
            -1,
            9,
            10,
            -10,
            99,
            100,
            12345,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            1_000_000_000_000_000_000,
        ] {
            let text = n.to_string();
            assert_eq!(parse_int(text.as_bytes()), Some(n));
            assert_eq!(format_int(n, &mut [0; 20]), text.as_bytes());
            assert_eq!(Str::Int(n).len(), text.len());
            assert_eq!(Str::from_slice(text.as_bytes()).encoding(), "int");
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            "00",
            " 1",
            "1 ",
            "1a",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "111111111111111111111",
        ] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text}");
            assert_eq!(Str::from_slice(text.as_bytes()).len(), text.len());
        }
    }
    #[test]
    fn encodings_have_redis_s_names() {
        assert_eq!(Str::from_slice(&[b'x'; 44]).encoding(), "embstr");
        assert_eq!(Str::from_slice(&[b'x'; 45]).encoding(), "raw");
        let mut s = Str::from_slice(b"-12");
        s.edit().extend_from_slice(b"3");
        assert_eq!((s.encoding(), s.as_int()), ("raw", Some(-123)));
        assert_eq!(s.bytes(&mut [0; 20]), b"-123");
    }
}
