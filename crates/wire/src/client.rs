//! The client's side of RESP: encodes commands and parses replies. For the importer, the benchmarks and the tests.
//!
//! [`ReplyParser`] consumes replies from a chain. It keeps incomplete replies on its own stack, so it can resume at
//! every byte, and deep nesting cannot overflow the thread's stack. It parses RESP2 and RESP3.

use crate::digits::Digits;
use crate::resp::ProtocolError;
use strand_chain::{Body, Chain, OutOfMemory};

/// Maximum length in bytes of a line (a header, an error, a simple string) that a parser accepts.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum length in bytes of a bulk or verbatim string that a parser accepts.
pub const BULK_BYTES_MAX: usize = 512 << 20;
/// Maximum number of items of one aggregate that a parser accepts. A map's keys and values both count.
pub const ITEMS_MAX: usize = 1 << 27;
/// Maximum nesting of aggregates that a parser accepts.
pub const DEPTH_MAX: usize = 64;
/// Maximum number of items for which memory is reserved before they arrive.
const ITEMS_RESERVED_MAX: usize = 1024;

/// A parsed reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A simple string: `+text`
    Simple(Vec<u8>),
    /// An error: `-text`, and RESP3's `!`
    Error(Vec<u8>),
    /// An integer: `:n`
    Int(i64),
    /// A bulk string: `$`
    Bulk(Vec<u8>),
    /// A null: `$-1`, `*-1` or `_`
    Null,
    /// A null in place of a bulk string (`$-1`), from a parser that keeps the kinds of nulls
    NullBulk,
    /// A null in place of an array (`*-1`), from a parser that keeps the kinds of nulls
    NullArray,
    /// An array: `*`
    Array(Vec<Value>),
    /// A map: `%`
    Map(Vec<(Value, Value)>),
    /// A set: `~`
    Set(Vec<Value>),
    /// A push: `>`
    Push(Vec<Value>),
    /// A double: `,`
    Double(f64),
    /// The unparsed text of a double (`,`), from a parser that keeps the text of doubles
    DoubleText(Vec<u8>),
    /// A boolean: `#`
    Bool(bool),
    /// A verbatim string (`=`): its format and its text
    Verbatim(String, Vec<u8>),
    /// A big number: `(`
    BigNumber(Vec<u8>),
}

/// Appends `args` to `out` as a multibulk request.
pub fn encode_command<T: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[T]) {
    let header = |out: &mut Vec<u8>, kind: u8, n: usize| {
        out.push(kind);
        out.extend_from_slice(Digits::unsigned(n as u64).as_slice());
        out.extend_from_slice(b"\r\n");
    };
    header(out, b'*', args.len());
    for arg in args.iter().map(T::as_ref) {
        header(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// A resumable reply parser. Attributes (`|`) are parsed and left out.
#[derive(Debug)]
pub struct ReplyParser {
    /// Maximum number of bytes of one reply.
    reply_bytes_max: usize,
    /// Bytes of the incomplete reply: those that the parser holds, and those that headers have announced.
    reply_bytes: usize,
    /// True when doubles are returned as [`Value::DoubleText`].
    keeps_double_text: bool,
    /// True when the nulls of RESP2 are returned as [`Value::NullBulk`] and [`Value::NullArray`].
    keeps_null_kinds: bool,
    /// Incomplete aggregates, outermost first.
    open_aggregates: Vec<Aggregate>,
    /// The string whose header was read last.
    string: Option<StringBody>,
}

/// An incomplete aggregate.
#[derive(Debug)]
struct Aggregate {
    kind: u8,
    missing: usize,
    items: Vec<Value>,
}

/// An incomplete bulk, verbatim or blob-error string: its bytes, then its line end.
#[derive(Debug)]
struct StringBody {
    kind: u8,
    body: Body,
}

impl Default for ReplyParser {
    fn default() -> ReplyParser {
        ReplyParser {
            reply_bytes_max: usize::MAX,
            reply_bytes: 0,
            keeps_double_text: false,
            keeps_null_kinds: false,
            open_aggregates: Vec::new(),
            string: None,
        }
    }
}

impl ReplyParser {
    /// A parser at the start of a reply. Only the limits of this module apply.
    pub fn new() -> ReplyParser {
        ReplyParser::default()
    }
    /// Sets the limit on the bytes of one reply: its strings, its lines and the memory of each item. A length in a
    /// header counts as soon as it is read, so a reply that is too large fails before its bytes arrive.
    pub fn set_reply_bytes_max(&mut self, bytes: usize) {
        self.reply_bytes_max = bytes;
    }
    /// Returns doubles as their text from now on, for programs that display replies.
    pub fn keep_double_text(&mut self) {
        self.keeps_double_text = true;
    }
    /// Distinguishes the nulls `$-1`, `*-1` and `_` from now on, for programs that compare servers.
    pub fn keep_null_kinds(&mut self) {
        self.keeps_null_kinds = true;
    }
    /// Consumes one whole reply from `input`; `Ok(None)` when more bytes are needed.
    ///
    /// # Errors
    /// Fails if the bytes are not RESP or exceed a limit. The parser cannot be used after an error.
    pub fn next(&mut self, input: &mut Chain) -> Result<Option<Value>, ProtocolError> {
        loop {
            let value = match &mut self.string {
                Some(string) => {
                    if !string.take(input)? {
                        return Ok(None);
                    }
                    self.string.take().map(StringBody::into_value).transpose()?
                }
                None => {
                    let Some(line) = take_line(input)? else { return Ok(None) };
                    self.charge(line.len())?;
                    self.judge_line(&line)?
                }
            };
            if let Some(value) = value
                && let Some(reply) = self.place(value)
            {
                self.reply_bytes = 0;
                return Ok(Some(reply));
            }
        }
    }
    /// True when part of a reply has been consumed.
    pub fn in_reply(&self) -> bool {
        self.string.is_some() || !self.open_aggregates.is_empty()
    }

    /// Parses a line. Returns the value of the line; `None` when the line is the header of a string or an aggregate.
    fn judge_line(&mut self, line: &[u8]) -> Result<Option<Value>, ProtocolError> {
        let Some((&kind, text)) = line.split_first() else {
            return Err(error("an empty line where a reply begins"));
        };
        let value = match kind {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Int(number(text)?),
            b'_' if text.is_empty() => Value::Null,
            b'#' if text == b"t" => Value::Bool(true),
            b'#' if text == b"f" => Value::Bool(false),
            b',' if self.keeps_double_text => {
                double(text)?;
                Value::DoubleText(text.to_vec())
            }
            b',' => Value::Double(double(text)?),
            b'(' => Value::BigNumber(big_number(text)?),
            b'$' if text == b"-1" && self.keeps_null_kinds => Value::NullBulk,
            b'*' if text == b"-1" && self.keeps_null_kinds => Value::NullArray,
            b'$' | b'*' if text == b"-1" => Value::Null,
            b'$' | b'=' | b'!' => {
                let len = length(text, BULK_BYTES_MAX, 1)?;
                self.charge(len)?;
                self.string = Some(StringBody { kind, body: Body::new(len) });
                return Ok(None);
            }
            b'*' | b'~' | b'>' => return self.open(kind, length(text, ITEMS_MAX, 1)?),
            b'%' | b'|' => return self.open(kind, length(text, ITEMS_MAX, 2)?),
            _ => return Err(error(&format!("not a reply: '{}'", line[..line.len().min(32)].escape_ascii()))),
        };
        Ok(Some(value))
    }
    /// Opens an aggregate of `missing` items. Returns the aggregate if it has none.
    fn open(&mut self, kind: u8, missing: usize) -> Result<Option<Value>, ProtocolError> {
        if self.open_aggregates.len() == DEPTH_MAX {
            return Err(error("replies nested too deep"));
        }
        self.charge(missing.saturating_mul(size_of::<Value>()))?;
        let items = Vec::with_capacity(missing.min(ITEMS_RESERVED_MAX));
        let aggregate = Aggregate { kind, missing, items };
        if missing == 0 {
            return Ok(aggregate.into_value());
        }
        self.open_aggregates.push(aggregate);
        Ok(None)
    }
    /// Counts bytes of the current reply against the limit.
    fn charge(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.reply_bytes = self.reply_bytes.saturating_add(bytes);
        if self.reply_bytes > self.reply_bytes_max {
            return Err(error(&format!("a reply holds more than {} bytes", self.reply_bytes_max)));
        }
        Ok(())
    }
    /// Adds a value to the innermost aggregate. Returns the reply if the value completes it.
    fn place(&mut self, mut value: Value) -> Option<Value> {
        loop {
            let Some(top) = self.open_aggregates.last_mut() else { return Some(value) };
            top.items.push(value);
            top.missing -= 1;
            if top.missing > 0 {
                return None;
            }
            // Drop an attribute; the value that it describes follows.
            value = self.open_aggregates.pop()?.into_value()?;
        }
    }
}

impl Aggregate {
    /// The complete aggregate; `None` for an attribute.
    fn into_value(self) -> Option<Value> {
        match self.kind {
            b'*' => Some(Value::Array(self.items)),
            b'~' => Some(Value::Set(self.items)),
            b'>' => Some(Value::Push(self.items)),
            b'%' => {
                let mut pairs = Vec::with_capacity(self.items.len() / 2);
                let mut items = self.items.into_iter();
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
                Some(Value::Map(pairs))
            }
            _ => None,
        }
    }
}

impl StringBody {
    /// Consumes bytes of the string. Returns true when the string and its line end are complete.
    fn take(&mut self, input: &mut Chain) -> Result<bool, ProtocolError> {
        while self.body.remaining() > 0 && !input.is_empty() {
            let taken = self.body.try_fill_from(input.front());
            input.advance(taken.map_err(|OutOfMemory| error("no memory for a string of this length"))?);
        }
        let mut end = [0; 2];
        if self.body.remaining() > 0 || !input.peek(&mut end) {
            return Ok(false);
        }
        if end != *b"\r\n" {
            return Err(error("a string does not end where it should"));
        }
        input.advance(2);
        Ok(true)
    }
    fn into_value(self) -> Result<Value, ProtocolError> {
        let text = self.body.into_blob().to_vec();
        match self.kind {
            b'$' => Ok(Value::Bulk(text)),
            b'!' => Ok(Value::Error(text)),
            _ => match text.split_at_checked(4) {
                Some(([format @ .., b':'], rest)) if format.is_ascii() => {
                    Ok(Value::Verbatim(String::from_utf8_lossy(format).into_owned(), rest.to_vec()))
                }
                _ => Err(error("a verbatim string without its format")),
            },
        }
    }
}

/// Consumes a line with its line end.
fn take_line(input: &mut Chain) -> Result<Option<Vec<u8>>, ProtocolError> {
    let Some(len) = input.find(b'\n', LINE_BYTES_MAX + 2) else {
        if input.len() > LINE_BYTES_MAX + 1 {
            return Err(error("a line is too long"));
        }
        return Ok(None);
    };
    let mut line = vec![0; len];
    input.peek(&mut line);
    input.advance(len + 1);
    match line.pop() {
        Some(b'\r') => Ok(Some(line)),
        _ => Err(error("a line does not end in CR LF")),
    }
}

/// Parses a length, checks it against `max`, and multiplies it by `each`, the number of items that one counted item
/// has.
fn length(text: &[u8], max: usize, each: usize) -> Result<usize, ProtocolError> {
    usize::try_from(number(text)?)
        .ok()
        .and_then(|n| n.checked_mul(each))
        .filter(|n| *n <= max)
        .ok_or_else(|| error("a length is out of range"))
}

fn number(text: &[u8]) -> Result<i64, ProtocolError> {
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    number.ok_or_else(|| error("not a number"))
}

fn double(text: &[u8]) -> Result<f64, ProtocolError> {
    let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
    number.ok_or_else(|| error("not a double"))
}

fn big_number(text: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(error("not a number"));
    }
    Ok(text.to_vec())
}

fn error(text: &str) -> ProtocolError {
    ProtocolError::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Protocol, Reply};

    /// Parses `bytes` in pieces of `piece` bytes, to the end or to the first error.
    fn parse(bytes: &[u8], piece: usize) -> Result<Vec<Value>, ProtocolError> {
        let (mut parser, mut input, mut values) = (ReplyParser::new(), Chain::new(), Vec::new());
        for part in bytes.chunks(piece) {
            input.push_slice(part);
            while let Some(value) = parser.next(&mut input)? {
                values.push(value);
            }
        }
        assert!(!parser.in_reply() && input.is_empty(), "nothing is left over");
        Ok(values)
    }

    #[test]
    fn every_kind_at_every_piece_size() {
        let bytes = b"+OK\r\n-ERR no\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n_\r\n*2\r\n:1\r\n*1\r\n$0\r\n\r\n%1\r\n+k\r\n~1\r\n:2\r\n\
            >1\r\n#t\r\n|1\r\n+ttl\r\n:3\r\n,1.5\r\n,inf\r\n#f\r\n=7\r\ntxt:a\nb\r\n(-12\r\n!5\r\nERR x\r\n*0\r\n%0\r\n|0\r\n:9\r\n";
        let bulk = |b: &[u8]| Value::Bulk(b.to_vec());
        let simple = |b: &[u8]| Value::Simple(b.to_vec());
        let expected = vec![
            simple(b"OK"),
            Value::Error(b"ERR no".to_vec()),
            Value::Int(-7),
            bulk(b"a\r\n"),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Array(vec![Value::Int(1), Value::Array(vec![bulk(b"")])]),
            Value::Map(vec![(simple(b"k"), Value::Set(vec![Value::Int(2)]))]),
            Value::Push(vec![Value::Bool(true)]),
            Value::Double(1.5),
            Value::Double(f64::INFINITY),
            Value::Bool(false),
            Value::Verbatim("txt".into(), b"a\nb".to_vec()),
            Value::BigNumber(b"-12".to_vec()),
            Value::Error(b"ERR x".to_vec()),
            Value::Array(vec![]),
            Value::Map(vec![]),
            Value::Int(9),
        ];
        for piece in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(parse(bytes, piece).as_ref(), Ok(&expected), "in pieces of {piece}");
        }
    }

    #[test]
    fn doubles_can_keep_their_text() {
        let (mut parser, mut input) = (ReplyParser::new(), Chain::new());
        parser.keep_double_text();
        input.push_slice(b",1.1000000000000001\r\n,x\r\n");
        let text = Value::DoubleText(b"1.1000000000000001".to_vec());
        assert_eq!(parser.next(&mut input), Ok(Some(text)));
        assert!(parser.next(&mut input).is_err());
    }

    #[test]
    fn nulls_can_keep_their_kinds() {
        let (mut parser, mut input) = (ReplyParser::new(), Chain::new());
        parser.keep_null_kinds();
        input.push_slice(b"*3\r\n$-1\r\n*-1\r\n_\r\n");
        let nulls = Value::Array(vec![Value::NullBulk, Value::NullArray, Value::Null]);
        assert_eq!(parser.next(&mut input), Ok(Some(nulls)));
    }

    #[test]
    fn replies_of_the_server_are_parsed() {
        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp3);
        reply.map(1);
        reply.bulk(b"key");
        reply.double(0.1);
        let value = ReplyParser::new().next(&mut out).expect("it is RESP").expect("it is whole");
        assert_eq!(value, Value::Map(vec![(Value::Bulk(b"key".to_vec()), Value::Double(0.1))]));
    }

    #[test]
    fn invalid_input_and_exceeded_limits_are_errors() {
        let deep = |n: usize| [b"*1\r\n".repeat(n), b":1\r\n".to_vec()].concat();
        assert!(parse(&deep(DEPTH_MAX), 9).is_ok());
        let long_line = [vec![b'+'], vec![b'x'; LINE_BYTES_MAX + 1]].concat();
        for bad in [
            &deep(DEPTH_MAX + 1)[..],
            &long_line,
            b"\r\n",
            b"hello\r\n",
            b":1\n",
            b":\r\n",
            b":9223372036854775808\r\n",
            b"$-2\r\n",
            b"$536870913\r\n",
            b"*134217729\r\n",
            b"%67108865\r\n",
            b"$1\r\nab\r\n",
            b"=3\r\nabc\r\n",
            b"=4\r\ntxt;\r\n",
            b",x\r\n",
            b"(\r\n",
            b"#x\r\n",
            b"_x\r\n",
        ] {
            let shown = bad[..bad.len().min(40)].escape_ascii();
            assert!(parse(bad, 1000).is_err(), "{shown}");
        }
    }

    #[test]
    fn declared_length_is_not_allocated_in_advance() {
        let mut input = Chain::new();
        input.push_slice(b"*134217728\r\n*134217728\r\n$536870912\r\nabc");
        let mut parser = ReplyParser::new();
        assert_eq!(parser.next(&mut input), Ok(None));
        assert!(parser.in_reply());
        assert!(parser.open_aggregates.iter().all(|a| a.items.capacity() <= ITEMS_RESERVED_MAX));
    }

    #[test]
    fn a_reply_may_be_bounded_as_a_whole() {
        let answers = |bytes: &[u8]| {
            let mut parser = ReplyParser::new();
            parser.set_reply_bytes_max(4096);
            let mut input = Chain::new();
            input.push_slice(bytes);
            let mut replies = 0;
            loop {
                match parser.next(&mut input) {
                    Ok(Some(_)) => replies += 1,
                    Ok(None) => return Ok(replies),
                    Err(error) => return Err(error.0),
                }
            }
        };
        let bulk = [&b"$1000\r\n"[..], &[b'x'; 1000], b"\r\n"].concat();
        assert_eq!(answers(&bulk.repeat(100)), Ok(100), "each reply by itself");
        assert!(answers(&[b"*5\r\n".to_vec(), bulk.repeat(5)].concat()).unwrap_err().contains("4096"));
        for announced in ["$5000\r\n", "*1000\r\n", "%500\r\n", "*1\r\n*1\r\n~1000\r\n"] {
            assert!(answers(announced.as_bytes()).is_err(), "{announced:?}");
        }
        assert!(answers(&[&b"+"[..], &[b'x'; 5000], b"\r\n"].concat()).is_err());
    }

    #[test]
    fn commands_are_encoded_as_multibulk() {
        let mut out = Vec::new();
        encode_command(&mut out, &[&b"SET"[..], b"", b"0123456789"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
    }
}
