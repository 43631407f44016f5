//! [`Xml`]: an XML body as a sequence of nodes, read while it arrives. Each node has its line and column.
//!
//! quick-xml does the parsing. Features that can be used to attack a server are refused or bounded. A document type
//! is refused, so only the five entities of XML exist, and no external ones. Depth, attributes and the size of a
//! node have named limits.

use crate::exchange::Request;
use crate::problem::Problem;
use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::escape::EscapeError;
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesStart, Event};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};
use tokio::task::yield_now;

/// Maximum nesting of elements.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of attributes of one element.
pub const ATTRIBUTES_MAX: usize = 16;
/// Maximum length of a node (a tag, a text, a comment), in bytes. The parser takes about 1 ns per byte and does not
/// yield inside a node.
pub const NODE_BYTES_MAX: usize = 8 << 20;

/// Maximum number of line ends remembered within a node. A position after the last remembered line end is reported
/// approximately.
const LINE_ENDS_MAX: usize = 4096;
/// Number of copies of a node's bytes in memory: the parser has one, and the node has one.
const HELD_PER_BYTE: u64 = 2;
/// Maximum capacity of the buffer that is stored between nodes, in bytes.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;
/// Number of bytes that are read before other tasks run: about 100 us.
const TURN_BYTES: u64 = 8 * 1024;

/// A source of the bytes of a document.
pub trait Source {
    /// The next bytes; `None` at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Problem>>;
    /// Sets the number of bytes that the parser holds.
    fn hold(&mut self, bytes: usize);
}

impl Source for Request {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        Request::poll_data(self, cx)
    }
    fn hold(&mut self, bytes: usize) {
        Request::hold(self, bytes);
    }
}

/// A node of an XML document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A start tag. An empty element is a start tag and an end tag.
    Open {
        /// The element's name.
        name: String,
        /// The element's attributes, each a name and a value.
        attributes: Vec<(String, String)>,
    },
    /// An end tag, with the element's name.
    Close(String),
    /// Text, CDATA or a character reference. Adjacent text may arrive as several nodes.
    Text(String),
    /// The document has ended.
    End,
}

/// A place in a document. Lines and columns start at 1; columns count bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the line in the document.
    pub line: u64,
    /// Number of the byte within the line.
    pub column: u64,
}

/// Reads a document node by node.
pub struct Xml<S> {
    reader: Reader<PositionedSource<S>>,
    buffer: Vec<u8>,
    depth: usize,
    /// Position in the document at which the last node starts, in bytes.
    at: u64,
}

impl<S: Source + Unpin> Xml<S> {
    /// A reader of the document in `source`.
    pub fn new(source: S) -> Xml<S> {
        let mut reader = Reader::from_reader(PositionedSource::new(source));
        reader.config_mut().expand_empty_elements = true;
        Xml { reader, buffer: Vec::new(), depth: 0, at: 0 }
    }
    /// The position at which the last node starts.
    pub fn place(&self) -> Position {
        self.reader.get_ref().place(self.at)
    }
    /// The problem 400 with this detail, at the position of the last node.
    pub fn problem(&self, detail: impl AsRef<str>) -> Problem {
        at(Problem::bad_request(described(detail.as_ref(), self.place())), self.place())
    }
    /// The next node.
    ///
    /// # Errors
    /// 400 with line and column when the document is broken, 413 when a limit is passed.
    pub async fn next(&mut self) -> Result<Node, Problem> {
        loop {
            self.at = self.reader.buffer_position();
            let counted = self.reader.get_mut();
            counted.drop_lines_before(self.at);
            if counted.taken - counted.taken_at_yield >= TURN_BYTES {
                counted.taken_at_yield = counted.taken;
                yield_now().await;
            }
            self.buffer.clear();
            if self.buffer.capacity() > BUFFER_KEPT_BYTES {
                self.buffer = Vec::new();
            }
            let event = match self.reader.read_event_into_async(&mut self.buffer).await {
                Ok(event) => event,
                Err(error) => return Err(broken(&mut self.reader, &error)),
            };
            let node = match event {
                Event::Start(start) => read_start(&start),
                Event::End(end) => Ok(Some(Node::Close(end.name().as_ref().to_string()))),
                Event::Text(text) => Ok(Some(Node::Text(text.xml10_content().into_owned()))),
                Event::CData(text) => Ok(Some(Node::Text(text.xml10_content().into_owned()))),
                Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                    Ok(Some(c)) if is_xml_char(c) => Ok(Some(Node::Text(c.into()))),
                    Ok(None) => match quick_xml::escape::resolve_predefined_entity(&reference) {
                        Some(text) => Ok(Some(Node::Text(text.into()))),
                        None => Err(Refusal::Entity(reference.to_string())),
                    },
                    _ => Err(Refusal::Character(reference.to_string())),
                },
                Event::DocType(_) => Err(Refusal::DocType),
                Event::Decl(declaration) => match declaration.encoding() {
                    Some(Ok(name)) if !name.eq_ignore_ascii_case("utf-8") => {
                        Err(Refusal::Encoding(name.to_string()))
                    }
                    _ => Ok(None),
                },
                Event::Empty(_) | Event::Comment(_) | Event::PI(_) => Ok(None),
                Event::Eof if self.depth > 0 => Err(Refusal::Unclosed { depth: self.depth }),
                Event::Eof => Ok(Some(Node::End)),
            };
            let node = node.map_err(|refusal| self.problem(refusal.to_string()))?;
            match &node {
                Some(Node::Open { .. }) if self.depth == DEPTH_MAX => {
                    return Err(self.problem(Refusal::Depth.to_string()));
                }
                Some(Node::Open { .. }) => self.depth += 1,
                Some(Node::Close(_)) => self.depth -= 1,
                _ => {}
            }
            if let Some(node) = node {
                return Ok(node);
            }
        }
    }
}

/// True for a character that XML allows in a document.
fn is_xml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// Why a node that the XML parser accepts is refused. The problem that has this text also has the position of the node.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("&{0}; is an unknown entity: expected &lt; &gt; &amp; &apos; or &quot;")]
    Entity(String),
    #[error("&{0}; is not a character: expected the number of a character that XML allows")]
    Character(String),
    #[error("document types are not supported: remove <!DOCTYPE")]
    DocType,
    #[error("the encoding is {0}: expected UTF-8")]
    Encoding(String),
    #[error("the document ends inside an element: expected {depth} more end tags")]
    Unclosed { depth: usize },
    #[error("this element is nested {depth} deep: expected at most {DEPTH_MAX}", depth = DEPTH_MAX + 1)]
    Depth,
    #[error("the element {0} has too many attributes: expected at most {ATTRIBUTES_MAX}")]
    Attributes(String),
    #[error("the element {element} has a malformed attribute, expected name=\"value\": {error}")]
    Attribute { element: String, error: AttrError },
    #[error(
        "the value of the attribute {attribute} has a malformed reference, expected &name; or &#number;: {error}"
    )]
    Value { attribute: String, error: EscapeError },
}

fn read_start(start: &BytesStart<'_>) -> Result<Option<Node>, Refusal> {
    let element = || start.name().as_ref().to_string();
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| Refusal::Attribute { element: element(), error })?;
        if attributes.len() == ATTRIBUTES_MAX {
            return Err(Refusal::Attributes(element()));
        }
        let name = attribute.key.as_ref().to_string();
        match quick_xml::escape::unescape(&attribute.value) {
            Ok(value) => attributes.push((name, value.into_owned())),
            Err(error) => return Err(Refusal::Value { attribute: name, error }),
        }
    }
    Ok(Some(Node::Open { name: element(), attributes }))
}

/// The problem for an error of the parser: the source's own problem, or an error at a position of the document.
fn broken<S: Source + Unpin>(reader: &mut Reader<PositionedSource<S>>, error: &quick_xml::Error) -> Problem {
    if let Some(problem) = reader.get_mut().problem.take() {
        return problem;
    }
    let place = reader.get_ref().place(reader.error_position());
    at(Problem::bad_request(described(&error.to_string(), place)), place)
}

fn described(detail: &str, place: Position) -> String {
    format!("line {}, column {}: {detail}", place.line, place.column)
}

/// Adds a position in the document to a problem.
pub fn at(problem: Problem, place: Position) -> Problem {
    problem.member("line", place.line).member("column", place.column)
}

/// A source that records where lines start.
struct PositionedSource<S> {
    source: S,
    current: Bytes,
    /// Number of bytes handed to the parser.
    taken: u64,
    /// Position in the document at which the current node starts, in bytes.
    node: u64,
    lines: Lines,
    /// Value of `taken` at the last yield to other tasks.
    taken_at_yield: u64,
    problem: Option<Problem>,
}

impl<S> PositionedSource<S> {
    fn new(source: S) -> PositionedSource<S> {
        PositionedSource {
            source,
            current: Bytes::new(),
            taken: 0,
            node: 0,
            lines: Lines { line: 1, start: 0, ends: Vec::new(), dropped_ends: 0, last_dropped_end: 0 },
            taken_at_yield: 0,
            problem: None,
        }
    }
    /// Drops the lines that end before `node`. No later call may ask for a place before `node`.
    fn drop_lines_before(&mut self, node: u64) {
        self.lines.drop_lines_before(node);
        self.node = node;
    }
    fn place(&self, at: u64) -> Position {
        self.lines.place(at)
    }
}

/// The starts of lines from the current node on, in bounded memory.
struct Lines {
    /// Number of the line in which the node starts. The first line has number 1.
    line: u64,
    /// The offset of the start of that line.
    start: u64,
    /// Offsets of the line ends after the start of the node, at most [`LINE_ENDS_MAX`].
    ends: Vec<u64>,
    /// Number of line ends of the node that were not stored, because `ends` was full.
    dropped_ends: u64,
    /// Offset of the last line end that was not stored.
    last_dropped_end: u64,
}

impl Lines {
    fn push(&mut self, end: u64) {
        match self.ends.len() < LINE_ENDS_MAX {
            true => self.ends.push(end),
            false => {
                self.dropped_ends += 1;
                self.last_dropped_end = end;
            }
        }
    }
    /// Counts the line ends before offset `at`. Returns how many of these are in `ends`, how many there are in total,
    /// and the offset at which the line that contains `at` starts.
    fn count_before(&self, at: u64) -> (usize, u64, u64) {
        let stored = self.ends.partition_point(|end| *end < at);
        match self.dropped_ends > 0 && self.last_dropped_end < at {
            true => (stored, stored as u64 + self.dropped_ends, self.last_dropped_end + 1),
            false => {
                (stored, stored as u64, stored.checked_sub(1).map_or(self.start, |last| self.ends[last] + 1))
            }
        }
    }
    /// Drops the lines that end before `node`. No later call may ask for a place before `node`.
    fn drop_lines_before(&mut self, node: u64) {
        let (stored, lines, start) = self.count_before(node);
        if lines > stored as u64 {
            self.dropped_ends = 0;
        }
        self.ends.drain(..stored);
        (self.line, self.start) = (self.line + lines, start);
    }
    fn place(&self, at: u64) -> Position {
        let (_, lines, start) = self.count_before(at);
        Position { line: self.line + lines, column: at.saturating_sub(start) + 1 }
    }
}

impl<S: Source + Unpin> AsyncBufRead for PositionedSource<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.current.is_empty() {
            this.source.hold(((this.taken - this.node) * HELD_PER_BYTE) as usize);
            let next = match this.taken - this.node > NODE_BYTES_MAX as u64 {
                true => Err(Problem::too_large(NODE_BYTES_MAX as u64)),
                false => ready!(this.source.poll_data(cx)),
            };
            match next {
                Ok(bytes) => this.current = bytes.unwrap_or_default(),
                Err(problem) => {
                    this.problem = Some(problem);
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
            }
        }
        Poll::Ready(Ok(&this.current))
    }
    fn consume(self: Pin<&mut Self>, n: usize) {
        let this = self.get_mut();
        let taken = this.current.split_to(n.min(this.current.len()));
        memchr::memchr_iter(b'\n', &taken).for_each(|i| this.lines.push(this.taken + i as u64));
        this.taken += taken.len() as u64;
    }
}

impl<S: Source + Unpin> AsyncRead for PositionedSource<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = {
            let bytes = ready!(self.as_mut().poll_fill_buf(cx))?;
            let n = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..n]);
            n
        };
        self.consume(n);
        Poll::Ready(Ok(()))
    }
}
