//! [`Reply`]: encodes replies directly into the output chain, in RESP2 or RESP3.
//!
//! A short value is written together with its header and line ends to the chain's tail, without an allocation. A
//! long blob is shared with the chain. Handlers call one method for each kind of value. Only this module knows the
//! bytes for each protocol.

use crate::digits::{Digits, put_int, put_unsigned};
use strand_chain::{Blob, Chain, ROOM_BYTES_MAX};

/// The protocol that a session speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, which every session speaks at first.
    #[default]
    Resp2,
    /// RESP3, which a session speaks after `HELLO 3`.
    Resp3,
}

/// The text of an error reply: the code, a space and the message, such as `ERR syntax error`. Without the `-` before
/// it and the line end.
pub type ErrorText = Vec<u8>;

/// A blob of at least this length is shared with the output chain. A shorter one is copied.
pub const SHARE_BYTES_MIN: usize = 16 * 1024;
/// Values up to this length are written together with their header and line ends.
const TOGETHER_BYTES_MAX: usize = 2048;
/// Maximum length of a header: its type, a number and the line end.
const HEADER_BYTES_MAX: usize = 1 + 20 + 2;
/// Maximum length of the text of a simple string or an error that is written at once.
const SHORT_LINE_BYTES_MAX: usize = 64;
const _: () = assert!(HEADER_BYTES_MAX + TOGETHER_BYTES_MAX + 2 <= ROOM_BYTES_MAX);
/// A pausing reply pauses each time it has grown by this many bytes. Scattered small values of this size take about
/// 100 us.
pub const PAUSE_BYTES: usize = 8 * 1024;

/// Called from time to time by a reply on a helper thread. Returns false when the rest of the reply is not needed.
pub type Pause<'a> = &'a dyn Fn() -> bool;

/// Encodes the reply of one command. An aggregate announces its length; its values must follow.
pub struct Reply<'a> {
    out: &'a mut Chain,
    /// When `out` is longer than this, the next value must first pause, or must be dropped.
    check_bytes: usize,
    /// When `out` is longer than this, no further values are written.
    out_bytes_max: usize,
    pause: Option<Pause<'a>>,
    /// True when shared values do not count against the limit.
    copies_only: bool,
    protocol: Protocol,
    error: ErrorCode,
}

/// Maximum length of an error code that is kept. redis-server's codes are shorter.
const ERROR_CODE_BYTES_MAX: usize = 15;
/// An error text has a code if a space is among this number of bytes.
const CODE_END_MAX: usize = 32;

/// The first word of the first error that was written.
#[derive(Clone, Copy, Debug)]
struct ErrorCode {
    len: u8,
    bytes: [u8; ERROR_CODE_BYTES_MAX],
}

impl std::fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({:?}, {} of {} bytes)", self.protocol, self.out.len(), self.out_bytes_max)
    }
}

impl<'a> Reply<'a> {
    /// A reply that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Chain, protocol: Protocol) -> Reply<'a> {
        Reply::bounded(out, protocol, usize::MAX)
    }
    /// Like [`Reply::new`], for a client that is closed when more than `out_bytes_max` bytes wait for it. Above
    /// the limit further values are dropped, so one command cannot fill the memory. The reply is then incomplete
    /// and must not be sent, see [`Reply::exceeds_limit`].
    #[inline]
    pub fn bounded(out: &'a mut Chain, protocol: Protocol, out_bytes_max: usize) -> Reply<'a> {
        Reply {
            out,
            check_bytes: out_bytes_max,
            out_bytes_max,
            pause: None,
            copies_only: false,
            protocol,
            error: ErrorCode { len: 0, bytes: [0; ERROR_CODE_BYTES_MAX] },
        }
    }
    /// Limits the copied bytes to `bytes`; shared values do not count. Above the limit further values are dropped
    /// and [`Reply::exceeds_limit`] is true.
    pub fn copying(mut self, bytes: usize) -> Reply<'a> {
        self.out_bytes_max = self.out_bytes_max.min(self.out.len().saturating_add(bytes));
        self.check_bytes = self.out_bytes_max;
        self.copies_only = true;
        self
    }
    /// Puts a reply with a copy limit ([`Reply::copying`]) over its limit. Called when a command turns out to be
    /// too expensive on this thread and will run again on another.
    ///
    /// # Panics
    /// Panics if the reply has no copy limit.
    pub fn give_up(&mut self) {
        assert!(self.copies_only, "give_up needs a copy limit");
        self.out.push_slice(b"-");
        self.out_bytes_max = self.out.len() - 1;
        self.check_bytes = self.out_bytes_max;
    }
    /// Calls `pause` after each [`PAUSE_BYTES`] written.
    pub fn pausing(mut self, pause: Pause<'a>) -> Reply<'a> {
        self.pause = Some(pause);
        self.check_bytes = self.out_bytes_max.min(self.out.len() + PAUSE_BYTES);
        self
    }
    /// A reply in this protocol that is written to another chain, for values whose number is not known yet.
    /// [`Reply::raw`] appends that chain. The limit of the part is the room left in this reply.
    pub fn part<'p>(&self, out: &'p mut Chain) -> Reply<'p> {
        Reply::bounded(out, self.protocol, self.room_left())
    }
    /// True when the reply has a copy limit: [`Reply::copying`].
    pub fn counts_copies(&self) -> bool {
        self.copies_only
    }
    /// Number of bytes that may still be written below the limit.
    pub fn room_left(&self) -> usize {
        self.out_bytes_max.saturating_sub(self.out.len())
    }
    /// True when the reply is over its limit and therefore incomplete. Handlers with many values stop then.
    #[inline]
    pub fn exceeds_limit(&self) -> bool {
        self.out.len() > self.out_bytes_max
    }
    /// The code (`ERR`, `WRONGTYPE`) of the first error in this reply, for statistics.
    #[inline]
    pub fn error_code(&self) -> Option<&[u8]> {
        (self.error.len > 0).then(|| &self.error.bytes[..usize::from(self.error.len)])
    }
    /// The protocol in which replies are written.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// Bytes queued so far in the output chain.
    #[inline]
    pub fn out_len(&self) -> usize {
        self.out.len()
    }
    /// Writes the reply `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.push_slice(b"+OK\r\n");
    }
    /// Writes the reply `+QUEUED`.
    #[inline]
    pub fn queued(&mut self) {
        self.out.push_slice(b"+QUEUED\r\n");
    }
    /// Writes a simple string (`+text`). CR and LF inside the text become spaces; at its ends they are dropped.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.simple_bytes(text.as_bytes());
    }
    /// Does what [`Reply::simple`] does, for a text that may not be UTF-8.
    #[inline]
    pub fn simple_bytes(&mut self, text: &[u8]) {
        self.line(b'+', text);
    }
    /// Writes an error (`-text`). The text starts with the code (`ERR ...`, `WRONGTYPE ...`). CR and LF inside the
    /// text become spaces; at its ends they are dropped.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }
    /// Does what [`Reply::error`] does, for a text that quotes a client's bytes, which may not be UTF-8.
    pub fn error_bytes(&mut self, text: &[u8]) {
        if self.error.len == 0 {
            self.note_error(text);
        }
        self.line(b'-', text);
    }
    fn note_error(&mut self, text: &[u8]) {
        // As in redis-server, a text without a space near its start has no code of its own and counts as ERR.
        let end = text.iter().take(CODE_END_MAX).position(|b| matches!(b, b' ' | b'\r' | b'\n'));
        self.set_error_code(end.map_or(&b"ERR"[..], |end| &text[..end]));
    }
    fn set_error_code(&mut self, code: &[u8]) {
        for (to, from) in self.error.bytes.iter_mut().zip(code) {
            *to = *from;
            self.error.len += 1;
        }
    }
    /// Writes an integer (`:n`).
    #[inline]
    pub fn int(&mut self, n: i64) {
        self.number(b':', n);
    }
    /// Writes a bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if bytes.len() > TOGETHER_BYTES_MAX || self.is_due() {
            return self.long_bulk(bytes);
        }
        let room = self.out.room(HEADER_BYTES_MAX + bytes.len() + 2);
        room[0] = b'$';
        let head = 1 + put_unsigned(&mut room[1..], bytes.len() as u64);
        room[head..head + 2].copy_from_slice(b"\r\n");
        let rest = &mut room[head + 2..];
        rest[..bytes.len()].copy_from_slice(bytes);
        rest[bytes.len()..bytes.len() + 2].copy_from_slice(b"\r\n");
        self.out.filled(head + bytes.len() + 4);
    }
    /// Writes a bulk string. A long `blob` is shared.
    #[inline]
    pub fn bulk_blob(&mut self, blob: &Blob) {
        if blob.len() < SHARE_BYTES_MIN {
            return self.bulk(blob);
        }
        if self.is_due() && !self.check() {
            return;
        }
        if self.copies_only {
            self.out_bytes_max = self.out_bytes_max.saturating_add(blob.len());
            self.check_bytes = self.out_bytes_max;
        }
        self.number(b'$', blob.len() as i64);
        self.out.push_blob(blob.clone());
        self.out.push_slice(b"\r\n");
    }
    /// Writes a part of a blob as a bulk string. A long part is shared.
    ///
    /// # Panics
    /// Panics if the part exceeds the blob.
    pub fn bulk_part(&mut self, blob: &Blob, part: std::ops::Range<usize>) {
        if part.len() < SHARE_BYTES_MIN {
            return self.bulk(&blob[part]);
        }
        self.number(b'$', part.len() as i64);
        self.out.push_part(blob.clone(), part);
        self.out.push_slice(b"\r\n");
    }
    /// Writes a decimal integer as a bulk string.
    #[inline]
    pub fn bulk_int(&mut self, n: i64) {
        self.bulk(Digits::int(n).as_slice());
    }
    /// Writes the null of a missing value: `$-1` or `_`.
    #[inline]
    pub fn null(&mut self) {
        if self.is_due() && !self.check() {
            return;
        }
        self.out.push_slice(if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" });
    }
    /// Writes the null of a missing array: `*-1` or `_`.
    pub fn null_array(&mut self) {
        self.out.push_slice(if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" });
    }
    /// Writes the header of an array of `n` values.
    #[inline]
    pub fn array(&mut self, n: usize) {
        self.number(b'*', n as i64);
    }
    /// Writes the header of a map of `n` pairs (RESP2: an array of 2n).
    pub fn map(&mut self, n: usize) {
        match self.protocol {
            Protocol::Resp3 => self.number(b'%', n as i64),
            Protocol::Resp2 => self.number(b'*', 2 * n as i64),
        }
    }
    /// Writes the header of a set of `n` values (RESP2: an array).
    pub fn set(&mut self, n: usize) {
        self.number(if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, n as i64);
    }
    /// Writes the header of a push of `n` values (RESP2: an array).
    pub fn push(&mut self, n: usize) {
        self.number(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, n as i64);
    }
    /// Writes a double (RESP2: a bulk string), printed as redis-server 7.0 prints doubles; see [`Digits::double`].
    pub fn double(&mut self, x: f64) {
        let digits = Digits::double(x);
        match self.protocol {
            Protocol::Resp3 => self.line(b',', digits.as_slice()),
            Protocol::Resp2 => self.bulk(digits.as_slice()),
        }
    }
    /// Writes a double that is already text (RESP2: a bulk string).
    pub fn double_text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
            Protocol::Resp2 => self.bulk(text.as_bytes()),
        }
    }
    /// Writes an integer of any size, given as decimal digits (RESP2: a bulk string).
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.protocol {
            Protocol::Resp3 => self.line(b'(', digits),
            Protocol::Resp2 => self.bulk(digits),
        }
    }
    /// Writes a boolean (RESP2: 1 or 0).
    pub fn bool(&mut self, yes: bool) {
        match self.protocol {
            Protocol::Resp3 => self.out.push_slice(if yes { b"#t\r\n" } else { b"#f\r\n" }),
            Protocol::Resp2 => self.int(yes.into()),
        }
    }
    /// Writes a verbatim string with a format of three bytes (RESP2: a bulk string).
    ///
    /// # Panics
    /// Panics if the format is not three bytes long.
    pub fn verbatim(&mut self, format: impl AsRef<[u8]>, text: &[u8]) {
        let format = format.as_ref();
        assert_eq!(format.len(), 3, "a verbatim format has three letters");
        match self.protocol {
            Protocol::Resp3 => {
                self.number(b'=', text.len() as i64 + 4);
                self.out.push_slice(format);
                self.out.push_slice(b":");
                self.out.push_slice(text);
                self.out.push_slice(b"\r\n");
            }
            Protocol::Resp2 => self.bulk(text),
        }
    }
    /// Appends values that are encoded already.
    pub fn raw(&mut self, encoded: Chain) {
        self.out.push_chain(encoded);
    }

    /// Does what [`Reply::raw`] does, and leaves `encoded` empty, with its block if it is short.
    pub fn raw_of(&mut self, encoded: &mut Chain) {
        self.out.push_all_of(encoded);
    }

    /// Appends a reply that is already encoded. `error` is the reply's error code, if it is an error.
    pub fn raw_reply(&mut self, encoded: Chain, error: Option<&[u8]>) {
        if let Some(code) = error
            && self.error.len == 0
        {
            self.set_error_code(code);
        }
        self.out.push_chain(encoded);
    }

    /// Called between two pieces of work without output, about 50 us each. Pauses if the reply is pausing. Returns
    /// false when the reply is no longer needed.
    #[inline]
    pub fn pause(&mut self) -> bool {
        self.pause.is_none_or(|pause| pause())
    }

    /// True when [`Reply::check`] must run.
    #[inline]
    fn is_due(&self) -> bool {
        self.out.len() > self.check_bytes
    }
    /// Pauses if the reply is pausing. Returns false when no further value may be written.
    #[cold]
    fn check(&mut self) -> bool {
        if let Some(pause) = self.pause
            && !self.exceeds_limit()
        {
            if !pause() {
                self.out_bytes_max = 0;
            }
            self.check_bytes = self.out_bytes_max.min(self.out.len() + PAUSE_BYTES);
        }
        !self.exceeds_limit()
    }
    /// Writes a simple string or an error, whose text may contain any bytes.
    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        if text.len() > SHORT_LINE_BYTES_MAX || text.iter().any(is_line_end) {
            return self.long_line(kind, text);
        }
        let n = text.len();
        let room = self.out.room(n + 3);
        room[0] = kind;
        room[1..=n].copy_from_slice(text);
        room[n + 1..n + 3].copy_from_slice(b"\r\n");
        self.out.filled(n + 3);
    }
    #[inline(never)]
    fn long_line(&mut self, kind: u8, text: &[u8]) {
        self.out.push_slice(&[kind]);
        // A line end inside the text would end the reply. Those after an error are dropped, as in redis-server.
        let end = match kind {
            b'-' => text.iter().rposition(|b| !is_line_end(b)).map_or(0, |last| last + 1),
            _ => text.len(),
        };
        for (i, part) in text[..end].split(is_line_end).enumerate() {
            if i > 0 {
                self.out.push_slice(b" ");
            }
            self.out.push_slice(part);
        }
        self.out.push_slice(b"\r\n");
    }
    /// Writes a header: a type and a number on one line.
    #[inline]
    fn number(&mut self, kind: u8, n: i64) {
        let room = self.out.room(HEADER_BYTES_MAX);
        room[0] = kind;
        let end = 1 + put_int(&mut room[1..], n);
        room[end..end + 2].copy_from_slice(b"\r\n");
        self.out.filled(end + 2);
    }
    #[inline(never)]
    fn long_bulk(&mut self, bytes: &[u8]) {
        if self.is_due() && !self.check() {
            return;
        }
        self.number(b'$', bytes.len() as i64);
        self.out.push_slice(bytes);
        self.out.push_slice(b"\r\n");
    }
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(protocol: Protocol, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Chain::new();
        write(&mut Reply::new(&mut out, protocol));
        String::from_utf8(out.slices().flatten().copied().collect()).expect("the tests write text")
    }

    /// Checks that `write` produces `resp2` and `resp3`, which are from `DEBUG PROTOCOL` of redis-server 7.0.
    #[track_caller]
    fn check(resp2: &str, resp3: &str, write: impl Fn(&mut Reply<'_>)) {
        assert_eq!(encoded(Protocol::Resp2, &write), resp2);
        assert_eq!(encoded(Protocol::Resp3, &write), resp3);
    }

    #[test]
    fn every_kind_in_both_protocols() {
        check("+OK\r\n", "+OK\r\n", |r| r.ok());
        check("+  a  b \r\n", "+  a  b \r\n", |r| r.simple("\r\na\r\nb\n"));
        check("-ERR  a\r\n", "-ERR  a\r\n", |r| r.error("ERR \na\r\n"));
        check(":-12\r\n", ":-12\r\n", |r| r.int(-12));
        check("$11\r\nHello World\r\n", "$11\r\nHello World\r\n", |r| r.bulk(b"Hello World"));
        check("$0\r\n\r\n", "$0\r\n\r\n", |r| r.bulk(b""));
        check("$20\r\n-9223372036854775808\r\n", "$20\r\n-9223372036854775808\r\n", |r| r.bulk_int(i64::MIN));
        check("$-1\r\n*-1\r\n", "_\r\n_\r\n", |r| {
            r.null();
            r.null_array();
        });
        check("*3\r\n", "*3\r\n", |r| r.array(3));
        check("*6\r\n", "%3\r\n", |r| r.map(3));
        check("*3\r\n", "~3\r\n", |r| r.set(3));
        check("*2\r\n", ">2\r\n", |r| r.push(2));
        check(":1\r\n:0\r\n", "#t\r\n#f\r\n", |r| {
            r.bool(true);
            r.bool(false);
        });
        check("$4\r\n3.25\r\n", ",3.25\r\n", |r| r.double(3.25));
        check("$4\r\n-inf\r\n", ",-inf\r\n", |r| r.double(f64::NEG_INFINITY));
        let big = "1234567999999999999999999999999999999";
        check(&format!("$37\r\n{big}\r\n"), &format!("({big}\r\n"), |r| r.big_number(big.as_bytes()));
        let text = "This is a verbatim\nstring";
        check(&format!("$25\r\n{text}\r\n"), &format!("=29\r\ntxt:{text}\r\n"), |r| {
            r.verbatim("txt", text.as_bytes());
        });
    }

    #[test]
    fn a_quoted_text_cannot_end_the_line() {
        let error = |text: &'static [u8]| encoded(Protocol::Resp2, |r| r.error_bytes(text));
        assert_eq!(error(b"ERR got 'a\r\n+OK\r\nb'"), "-ERR got 'a  +OK  b'\r\n");
        assert_eq!(error(b"\r\nERR x\n\r"), "-  ERR x\r\n");
        assert_eq!(error(b"\n"), "-\r\n");
        assert_eq!(encoded(Protocol::Resp2, |r| r.simple("a\nb")), "+a b\r\n");
    }

    #[test]
    fn nothing_is_added_to_a_reply_over_its_limit() {
        let mut out = Chain::new();
        out.push_slice(b"+before\r\n");
        let mut reply = Reply::bounded(&mut out, Protocol::Resp2, 100);
        let (long, shared) = (vec![b'x'; TOGETHER_BYTES_MAX + 1], Blob::from(vec![b'x'; SHARE_BYTES_MIN]));
        reply.array(1_000_000);
        assert!(!reply.exceeds_limit());
        let mut nulls = Chain::new();
        let mut only_nulls = reply.part(&mut nulls);
        (0..1000).for_each(|_| only_nulls.null());
        assert!(only_nulls.exceeds_limit() && nulls.len() < 100);
        let mut parts = Chain::new();
        let mut part = reply.part(&mut parts);
        for _ in 0..1000 {
            part.bulk(b"0123456789");
        }
        assert!(part.exceeds_limit());
        assert!((81..100).contains(&parts.len()), "one more than the bound: {}", parts.len());
        reply.raw(parts);
        assert!(reply.exceeds_limit(), "the outer reply is over its limit too");
        let held = reply.out_len();
        for _ in 0..1000 {
            reply.bulk(b"0123456789");
            reply.bulk(&long);
            reply.bulk_blob(&shared);
        }
        assert_eq!(reply.out_len(), held);
    }

    #[test]
    fn shared_values_do_not_count_as_copied() {
        let shared = Blob::from(vec![b'x'; SHARE_BYTES_MIN]);
        let mut out = Chain::new();
        out.push_slice(b"+before\r\n");
        let mut reply = Reply::new(&mut out, Protocol::Resp2).copying(1000);
        (0..20).for_each(|_| reply.bulk_blob(&shared));
        assert!(!reply.exceeds_limit() && reply.out_len() > 20 * SHARE_BYTES_MIN);
        (0..200).for_each(|_| reply.bulk(b"0123456789"));
        assert!(reply.exceeds_limit());
        let copied = reply.out_len() - 20 * SHARE_BYTES_MIN;
        assert!((1000..1100).contains(&copied), "{copied}");
        let held = reply.out_len();
        reply.bulk_blob(&shared);
        assert_eq!(reply.out_len(), held);
    }

    #[test]
    fn pausing_reply_stops_when_pause_returns_false() {
        let shared = Blob::from(vec![b'x'; SHARE_BYTES_MIN]);
        let (mut whole, mut pausing) = (Chain::new(), Chain::new());
        let pauses = std::cell::Cell::new(0);
        let write = |reply: &mut Reply<'_>| {
            for i in 0..20_000 {
                match i % 4000 {
                    0 => reply.bulk_blob(&shared),
                    1 => reply.bulk(&[b'x'; 3000]),
                    _ => reply.bulk(b"0123456789"),
                }
            }
        };
        write(&mut Reply::new(&mut whole, Protocol::Resp2));
        let pause = || {
            pauses.set(pauses.get() + 1);
            true
        };
        write(&mut Reply::new(&mut pausing, Protocol::Resp2).pausing(&pause));
        assert!(whole.slices().flatten().eq(pausing.slices().flatten()));
        let n = whole.len() / (2 * PAUSE_BYTES + SHARE_BYTES_MIN);
        assert!((n..=whole.len() / PAUSE_BYTES).contains(&pauses.get()), "{}", pauses.get());
        pausing.clear();
        let mut reply = Reply::new(&mut pausing, Protocol::Resp2).pausing(&|| false);
        write(&mut reply);
        assert!(reply.exceeds_limit() && reply.out_len() < SHARE_BYTES_MIN + PAUSE_BYTES);
        let (pauses, mut nothing) = (std::cell::Cell::new(0), Chain::new());
        let pause = || {
            pauses.set(pauses.get() + 1);
            pauses.get() < 3
        };
        let mut reply = Reply::new(&mut nothing, Protocol::Resp2).pausing(&pause);
        assert!((0..5).take_while(|_| reply.pause()).count() == 2 && pauses.get() == 3);
        assert!(Reply::new(&mut nothing, Protocol::Resp2).pause(), "nothing to pause for");
    }

    #[test]
    fn values_of_every_length_are_framed() {
        for len in
            [1, 9, 10, TOGETHER_BYTES_MAX, TOGETHER_BYTES_MAX + 1, SHARE_BYTES_MIN, 5 * SHARE_BYTES_MIN]
        {
            let value = "v".repeat(len);
            let expected = format!("${len}\r\n{value}\r\n").repeat(20);
            let blob = Blob::from(value.as_str());
            assert_eq!(
                encoded(Protocol::Resp2, |r| (0..20).for_each(|_| r.bulk(value.as_bytes()))),
                expected
            );
            assert_eq!(encoded(Protocol::Resp3, |r| (0..20).for_each(|_| r.bulk_blob(&blob))), expected);
        }
        let blob = Blob::from(vec![0; SHARE_BYTES_MIN]);
        let mut out = Chain::new();
        Reply::new(&mut out, Protocol::Resp2).bulk_blob(&blob);
        assert!(out.slices().any(|s| std::ptr::eq(s, blob.as_slice())), "a long blob is shared");
    }
}
