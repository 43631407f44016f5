//! [`Reply`]: replies encoded straight into the output chain, in RESP2 or RESP3.

use strand_chain::{Blob, Chain};

/// The protocol a session speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, the default.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// A blob at least this long is shared with the output chain; a shorter one is copied into it.
pub const SHARE_BYTES_MIN: usize = 16 * 1024;

/// Encodes one command's reply. Aggregates announce their length first and are followed by that many values.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Chain,
    protocol: Protocol,
    error: ErrorCode,
}

/// Longest error code that is kept; redis-server's are shorter.
const ERROR_CODE_BYTES_MAX: usize = 15;

/// The first word of the first error written.
#[derive(Clone, Copy, Debug)]
struct ErrorCode {
    len: u8,
    bytes: [u8; ERROR_CODE_BYTES_MAX],
}

impl<'a> Reply<'a> {
    /// Writes to the end of `out`.
    pub fn new(out: &'a mut Chain, protocol: Protocol) -> Reply<'a> {
        Reply { out, protocol, error: ErrorCode { len: 0, bytes: [0; ERROR_CODE_BYTES_MAX] } }
    }
    /// The code (`ERR`, `WRONGTYPE`) of the first error written through this reply, if one was: for statistics.
    pub fn error_code(&self) -> Option<&[u8]> {
        (self.error.len > 0).then(|| &self.error.bytes[..usize::from(self.error.len)])
    }
    /// The protocol in use.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// Bytes queued so far in the output chain.
    pub fn out_len(&self) -> usize {
        self.out.len()
    }
    /// `+OK`
    pub fn ok(&mut self) {
        self.out.push_slice(b"+OK\r\n");
    }
    /// `+text`; CR and LF in it become spaces.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }
    /// `-text`: the code comes first (`ERR ...`, `WRONGTYPE ...`); CR and LF in it become spaces.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }
    /// As [`Reply::error`] for a text that quotes what a client sent (bytes, perhaps not UTF-8).
    pub fn error_bytes(&mut self, text: &[u8]) {
        if self.error.len == 0 {
            let code = text.iter().take(ERROR_CODE_BYTES_MAX).take_while(|b| !b.is_ascii_whitespace());
            for (to, from) in self.error.bytes.iter_mut().zip(code) {
                *to = *from;
                self.error.len += 1;
            }
        }
        self.line(b'-', text);
    }
    /// `:n`
    pub fn int(&mut self, n: i64) {
        self.number(b':', n);
    }
    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', bytes.len() as i64);
        self.out.push_slice(bytes);
        self.out.push_slice(b"\r\n");
    }
    /// A bulk string that shares `blob` when it is long.
    pub fn bulk_blob(&mut self, blob: &Blob) {
        if blob.len() < SHARE_BYTES_MIN {
            return self.bulk(blob);
        }
        self.number(b'$', blob.len() as i64);
        self.out.push_blob(blob.clone());
        self.out.push_slice(b"\r\n");
    }
    /// A decimal integer as a bulk string.
    pub fn bulk_int(&mut self, n: i64) {
        self.bulk(n.to_string().as_bytes());
    }
    /// The null of a missing value: `$-1` or `_`.
    pub fn null(&mut self) {
        self.out.push_slice(if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }
    /// The null of a missing array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        self.out.push_slice(if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }
    /// An array of `n` values.
    pub fn array(&mut self, n: usize) {
        self.number(b'*', n as i64);
    }
    /// A map of `n` pairs (RESP2: an array of 2n).
    pub fn map(&mut self, n: usize) {
        match self.protocol {
            Protocol::Resp3 => self.number(b'%', n as i64),
            Protocol::Resp2 => self.number(b'*', 2 * n as i64),
        }
    }
    /// A set of `n` values (RESP2: an array).
    pub fn set(&mut self, n: usize) {
        self.number(if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, n as i64);
    }
    /// A push of `n` values (RESP2: an array).
    pub fn push(&mut self, n: usize) {
        self.number(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, n as i64);
    }
    /// A double (RESP2: a bulk string), in Redis's shortest form.
    pub fn double(&mut self, x: f64) {
        let text =
            if x.is_infinite() { if x > 0.0 { "inf".into() } else { "-inf".into() } } else { format!("{x}") };
        match self.protocol {
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
            Protocol::Resp2 => self.bulk(text.as_bytes()),
        }
    }
    /// A boolean (RESP2: 1 or 0).
    pub fn bool(&mut self, yes: bool) {
        match self.protocol {
            Protocol::Resp3 => self.out.push_slice(if yes { b"#t\r\n" } else { b"#f\r\n" }),
            Protocol::Resp2 => self.int(yes.into()),
        }
    }
    /// A verbatim string with a three-letter format (RESP2: a bulk string).
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        match self.protocol {
            Protocol::Resp3 => {
                self.number(b'=', text.len() as i64 + 4);
                self.out.push_slice(format.as_bytes());
                self.out.push_slice(b":");
                self.out.push_slice(text);
                self.out.push_slice(b"\r\n");
            }
            Protocol::Resp2 => self.bulk(text),
        }
    }
    /// Appends an already encoded reply.
    pub fn raw(&mut self, encoded: Chain) {
        self.out.push_chain(encoded);
    }
    fn line(&mut self, kind: u8, text: &[u8]) {
        let mut line = Vec::with_capacity(text.len() + 3);
        line.push(kind);
        line.extend(text.iter().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { *b }));
        line.extend_from_slice(b"\r\n");
        self.out.push_slice(&line);
    }
    fn number(&mut self, kind: u8, n: i64) {
        self.out.push_slice(format!("{}{n}\r\n", kind as char).as_bytes());
    }
}
