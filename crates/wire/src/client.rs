//! The client's side of RESP: encode a command, parse replies. For the importer, the benchmarks and the tests. STARTING VERSION.

use strand_chain::Chain;

/// A parsed reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text`
    Error(Vec<u8>),
    /// `:n`
    Int(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1`, `_`
    Null,
    /// `*`
    Array(Vec<Value>),
    /// `%`
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `>`
    Push(Vec<Value>),
    /// `,`
    Double(f64),
    /// `#`
    Bool(bool),
    /// `=`: format and text
    Verbatim(String, Vec<u8>),
    /// `(`
    BigNumber(Vec<u8>),
}

/// Appends `args` to `out` as a multibulk request.
pub fn encode_command<T: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[T]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for a in args {
        let a = a.as_ref();
        out.extend_from_slice(format!("${}\r\n", a.len()).as_bytes());
        out.extend_from_slice(a);
        out.extend_from_slice(b"\r\n");
    }
}

/// A resumable reply parser.
#[derive(Debug, Default)]
pub struct ReplyParser {}

impl ReplyParser {
    /// A parser at the start of a reply.
    pub fn new() -> ReplyParser {
        ReplyParser::default()
    }
    /// Consumes one whole reply from `input`; `Ok(None)` when more bytes are needed.
    ///
    /// # Errors
    /// When the bytes are not RESP.
    pub fn next(&mut self, _input: &mut Chain) -> Result<Option<Value>, crate::resp::ProtocolError> {
        Ok(None)
    }
}
