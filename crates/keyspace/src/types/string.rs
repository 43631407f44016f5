//! [`Str`]: the string type: an integer stored as one, or a blob.

use strand_chain::Blob;

/// Longest string that Redis calls `embstr`, in bytes.
pub const EMBSTR_BYTES_MAX: usize = 44;

/// Room for a formatted `i64` ([`Str::bytes`] writes integers here).
pub type IntBuffer = [u8; 20];

/// A string value.
#[derive(Debug, Clone)]
pub enum Str {
    /// A canonical decimal integer.
    Int(i64),
    /// Bytes as they were set.
    Raw(Blob),
    /// Bytes that a command changed in place (APPEND, SETRANGE): `raw` whatever their length.
    Edited(Blob),
}

impl Str {
    /// From bytes, as an integer when they are one in canonical form (`-0`, `+1`, `01` are not).
    pub fn from_slice(bytes: &[u8]) -> Str {
        match parse_int(bytes) {
            Some(n) => Str::Int(n),
            None => Str::Raw(Blob::from(bytes)),
        }
    }
    /// As [`Str::from_slice`], sharing `blob`.
    pub fn from_blob(blob: Blob) -> Str {
        match parse_int(&blob) {
            Some(n) => Str::Int(n),
            None => Str::Raw(blob),
        }
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes(&mut [0; 20]).len()
    }
    /// True when the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes; `buffer` is used when the value is an integer.
    pub fn bytes<'a>(&'a self, buffer: &'a mut IntBuffer) -> &'a [u8] {
        match self {
            Str::Int(n) => {
                use std::io::Write;
                let mut w = &mut buffer[..];
                write!(w, "{n}").expect("20 bytes hold any i64");
                let left = w.len();
                &buffer[..20 - left]
            }
            Str::Raw(b) | Str::Edited(b) => b,
        }
    }
    /// The integer it is, if its bytes are a canonical one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Str::Int(n) => Some(*n),
            Str::Raw(b) | Str::Edited(b) => parse_int(b),
        }
    }
    /// The blob for editing in place; an integer becomes its text. Marks the value `raw`.
    pub fn edit(&mut self) -> &mut Blob {
        let blob = match std::mem::replace(self, Str::Int(0)) {
            Str::Int(n) => Blob::from(n.to_string().as_bytes()),
            Str::Raw(b) | Str::Edited(b) => b,
        };
        *self = Str::Edited(blob);
        match self {
            Str::Edited(b) => b,
            _ => unreachable!("set on the line above"),
        }
    }
    /// `int`, `embstr` or `raw`.
    pub fn encoding(&self) -> &'static str {
        match self {
            Str::Int(_) => "int",
            Str::Raw(b) if b.len() <= EMBSTR_BYTES_MAX => "embstr",
            _ => "raw",
        }
    }
    /// Bytes of heap behind it.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Str::Int(_) => 0,
            Str::Raw(b) | Str::Edited(b) => b.heap_bytes(),
        }
    }
}

/// A canonical decimal `i64`: what Redis's `string2ll` accepts.
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
