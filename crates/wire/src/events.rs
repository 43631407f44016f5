//! [`Events`]: reads replies as a sequence of events, for code that forwards replies without holding them whole.
//!
//! A string is announced with its length. Its bytes are then taken as they arrive and share the blocks of the
//! input, so a value of any size is not copied. An aggregate is announced with the number of its values. Supports
//! RESP2 and RESP3 without attributes, which this server never sends. For whole replies see
//! [`client`](crate::client).

use crate::resp::ProtocolError;
use line::Line;
use strand_chain::Chain;

/// Maximum length in bytes of a line (a header, an error, a simple string) that is accepted.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting of aggregates that is accepted.
pub const DEPTH_MAX: usize = 64;

/// The next part of a reply, as [`Events`] reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A simple string: `+text`
    Simple(Vec<u8>),
    /// An error: `-text`
    Error(Vec<u8>),
    /// An integer: `:n`
    Int(i64),
    /// A double (`,`): the unparsed number
    Double(Vec<u8>),
    /// A big number (`(`): the unparsed digits
    BigNumber(Vec<u8>),
    /// A boolean: `#`
    Bool(bool),
    /// A null: `$-1`, `*-1` or `_`
    Null,
    /// The header of a string: `$`, `!` or `=`. `len` bytes follow, see [`Events::take`]. The text of `=` starts with
    /// its format and a colon.
    Text {
        /// True for a blob error.
        is_error: bool,
        /// True for a verbatim string.
        is_verbatim: bool,
        /// Length of the text.
        len: usize,
    },
    /// An aggregate. `values` values follow; a map counts keys and values.
    Open {
        /// The aggregate's type: `*`, `%`, `~` or `>`.
        kind: u8,
        /// Number of values that follow.
        values: usize,
    },
}

/// A resumable reader of replies.
#[derive(Debug, Default)]
pub struct Events {
    /// For each incomplete aggregate, the number of missing values, outermost first.
    open_aggregates: Vec<usize>,
    /// Bytes of the current string that are not taken.
    text_left: usize,
    /// True while the line end after the string is not read.
    text_end: bool,
    /// Replies completed since the last call of [`Events::take_ended`].
    replies_ended: usize,
}

impl Events {
    /// A reader at the start of a reply.
    pub fn new() -> Events {
        Events::default()
    }
    /// True between two replies.
    pub fn is_between(&self) -> bool {
        self.open_aggregates.is_empty() && !self.text_end
    }
    /// Bytes of the current string that were not taken yet.
    pub fn text_left(&self) -> usize {
        self.text_left
    }
    /// Number of replies completed since the last call.
    pub fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.replies_ended)
    }
    /// Skips the rest of the current string and its line end. Returns false when more bytes are needed.
    ///
    /// # Errors
    /// Fails if the string is not followed by a line end.
    pub fn end_text(&mut self, input: &mut Chain) -> Result<bool, ProtocolError> {
        let n = self.text_left.min(input.len());
        self.text_left -= n;
        input.advance(n);
        Ok(self.text_left == 0 && self.line_end(input)?)
    }
    /// The next event. Skips the rest of the current string. `Ok(None)` when more bytes are needed.
    ///
    /// # Errors
    /// Fails if the bytes are not a reply or exceed a limit. The reader cannot be used after an error.
    pub fn next(&mut self, input: &mut Chain) -> Result<Option<Event>, ProtocolError> {
        if !self.end_text(input)? {
            return Ok(None);
        }
        let Some(line) = Line::take(input)? else { return Ok(None) };
        let event = judge(line.bytes())?;
        match event {
            Event::Text { len, .. } => (self.text_left, self.text_end) = (len, true),
            Event::Open { values, .. } if values > 0 => {
                if self.open_aggregates.len() == DEPTH_MAX {
                    return Err(ProtocolError::new("replies nested too deep"));
                }
                self.open_aggregates.push(values);
            }
            _ => self.value_ends(),
        }
        Ok(Some(event))
    }
    /// Takes the bytes of the current string that have arrived, up to `bytes_max`.
    ///
    /// # Errors
    /// Fails if the string is not followed by a line end.
    pub fn take(&mut self, input: &mut Chain, bytes_max: usize) -> Result<Chain, ProtocolError> {
        let n = self.text_left.min(bytes_max).min(input.len());
        self.text_left -= n;
        let taken = input.split_to(n);
        if self.text_left == 0 {
            self.line_end(input)?;
        }
        Ok(taken)
    }

    /// Consumes the line end of a string. Returns false when it has not arrived.
    fn line_end(&mut self, input: &mut Chain) -> Result<bool, ProtocolError> {
        if !self.text_end {
            return Ok(true);
        }
        let mut end = [0; 2];
        if !input.peek(&mut end) {
            return Ok(false);
        }
        if end != *b"\r\n" {
            return Err(ProtocolError::new("a string does not end where it should"));
        }
        input.advance(2);
        self.text_end = false;
        self.value_ends();
        Ok(true)
    }
    /// Counts a complete value, and the aggregates that it completes.
    fn value_ends(&mut self) {
        while let Some(missing) = self.open_aggregates.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open_aggregates.pop();
        }
        self.replies_ended += 1;
    }
}

fn judge(line: &[u8]) -> Result<Event, ProtocolError> {
    let Some((&kind, text)) = line.split_first() else {
        return Err(ProtocolError::new("an empty line where a reply begins"));
    };
    Ok(match kind {
        b'+' => Event::Simple(text.to_vec()),
        b'-' => Event::Error(text.to_vec()),
        b':' => Event::Int(number(text)?),
        b',' => Event::Double(text.to_vec()),
        b'(' => Event::BigNumber(text.to_vec()),
        b'_' => Event::Null,
        b'#' => Event::Bool(text == b"t"),
        b'$' | b'*' if text == b"-1" => Event::Null,
        b'$' | b'=' | b'!' => {
            Event::Text { is_error: kind == b'!', is_verbatim: kind == b'=', len: length(text, 1)? }
        }
        b'*' | b'~' | b'>' => Event::Open { kind, values: length(text, 1)? },
        b'%' => Event::Open { kind, values: length(text, 2)? },
        _ => return Err(ProtocolError::new("not a reply")),
    })
}

fn number(text: &[u8]) -> Result<i64, ProtocolError> {
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    number.ok_or_else(|| ProtocolError::new("not a number"))
}

fn length(text: &[u8], each: usize) -> Result<usize, ProtocolError> {
    let length = usize::try_from(number(text)?).ok().and_then(|n| n.checked_mul(each));
    length.filter(|n| *n <= isize::MAX as usize).ok_or_else(|| ProtocolError::new("a length is out of range"))
}

/// Lines without their line end. Short lines are not allocated.
mod line {
    use super::{LINE_BYTES_MAX, ProtocolError};
    use strand_chain::Chain;

    const INLINE_BYTES: usize = 32;

    pub(super) enum Line {
        Short([u8; INLINE_BYTES], usize),
        Long(Vec<u8>),
    }

    impl Line {
        /// Consumes a line and its line end from `input`.
        pub(super) fn take(input: &mut Chain) -> Result<Option<Line>, ProtocolError> {
            let Some(len) = input.find(b'\n', LINE_BYTES_MAX + 2) else {
                if input.len() > LINE_BYTES_MAX + 1 {
                    return Err(ProtocolError::new("a line is too long"));
                }
                return Ok(None);
            };
            let line = if len <= INLINE_BYTES {
                let mut bytes = [0; INLINE_BYTES];
                input.peek(&mut bytes[..len]);
                Line::Short(bytes, len)
            } else {
                let mut bytes = vec![0; len];
                input.peek(&mut bytes);
                Line::Long(bytes)
            };
            input.advance(len + 1);
            match line.all().last() {
                Some(b'\r') => Ok(Some(line)),
                _ => Err(ProtocolError::new("a line does not end in CR LF")),
            }
        }
        fn all(&self) -> &[u8] {
            match self {
                Line::Short(bytes, len) => &bytes[..*len],
                Line::Long(bytes) => bytes,
            }
        }
        /// The line without its line end.
        pub(super) fn bytes(&self) -> &[u8] {
            let all = self.all();
            &all[..all.len() - 1]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All events of `bytes` as text, read in pieces of `piece` bytes. Strings are in brackets, and `.` marks the end
    /// of a reply.
    fn shown(bytes: &[u8], piece: usize) -> String {
        let (mut events, mut input, mut out) = (Events::new(), Chain::new(), String::new());
        for part in bytes.chunks(piece) {
            input.push_slice(part);
            loop {
                while events.text_left() > 0 && !input.is_empty() {
                    let text = events.take(&mut input, 3).expect("RESP");
                    text.slices().for_each(|s| out += &String::from_utf8_lossy(s));
                }
                match events.next(&mut input).expect("RESP") {
                    Some(Event::Text { len, is_error, is_verbatim }) => {
                        out += &format!(
                            "${len}{}",
                            if is_error {
                                "!"
                            } else if is_verbatim {
                                "="
                            } else {
                                ""
                            }
                        );
                    }
                    Some(event) => out += &format!("{event:?}"),
                    None => break,
                }
            }
        }
        assert!(events.is_between() && input.is_empty(), "{out}");
        out
    }

    #[test]
    fn every_kind_at_every_piece_size() {
        let bytes = b"+OK\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n%1\r\n$1\r\nk\r\n$0\r\n\r\n\
            =5\r\ntxt:x\r\n!3\r\nERR\r\n_\r\n#t\r\n,1.5\r\n~0\r\n-ERR no\r\n";
        let whole = shown(bytes, bytes.len());
        for piece in [1, 2, 3, 5, 8] {
            assert_eq!(shown(bytes, piece), whole, "in pieces of {piece}");
        }
        assert!(whole.starts_with("Simple([79, 75])$3a\r\nOpen { kind: 42, values: 2 }Int(1)"), "{whole}");
        assert!(whole.contains("Open { kind: 37, values: 2 }$1k$0$5=txt:x$3!ERRNullBool(true)"), "{whole}");
    }

    #[test]
    fn an_unread_text_is_skipped() {
        let (mut events, mut input) = (Events::new(), Chain::new());
        input.push_slice(b"*2\r\n$5\r\nhel");
        assert!(matches!(events.next(&mut input), Ok(Some(Event::Open { .. }))));
        assert!(matches!(events.next(&mut input), Ok(Some(Event::Text { len: 5, .. }))));
        assert_eq!(events.next(&mut input), Ok(None));
        input.push_slice(b"lo\r\n:7\r\n");
        assert_eq!(events.take_ended(), 0);
        assert_eq!(events.next(&mut input), Ok(Some(Event::Int(7))));
        assert!(events.is_between());
        input.push_slice(b"$1\r\nx");
        events.next(&mut input).expect("a header");
        assert_eq!((events.end_text(&mut input), events.take_ended()), (Ok(false), 1));
        input.push_slice(b"\r\n:8\r\n");
        assert_eq!((events.end_text(&mut input), events.take_ended(), input.len()), (Ok(true), 1, 4));
    }

    #[test]
    fn invalid_input_is_an_error() {
        for bad in [
            &b"\r\n"[..],
            b"hello\r\n",
            b":1\n",
            b":x\r\n",
            b"$-2\r\n",
            b"|1\r\n",
            b"%9223372036854775807\r\n",
        ] {
            let mut input = Chain::new();
            input.push_slice(bad);
            assert!(Events::new().next(&mut input).is_err(), "{}", bad.escape_ascii());
        }
        let mut input = Chain::new();
        input.push_slice(b"$1\r\nab\r\n");
        let mut events = Events::new();
        events.next(&mut input).expect("a header");
        assert!(events.take(&mut input, 9).is_err());
        let mut input = Chain::new();
        input.push_slice(&b"*1\r\n".repeat(DEPTH_MAX + 1));
        let mut events = Events::new();
        (0..DEPTH_MAX).for_each(|_| assert!(events.next(&mut input).is_ok()));
        assert!(events.next(&mut input).is_err());
    }
}
