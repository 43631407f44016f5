//! Extraction: the text and the fields of a document that is not mail.
//!
//! [`Content::of`] decides by name and beginning which kind a document has. [`extract`] reads HTML ([`html`]), text in
//! any character set ([`charset`]), JSON and tables ([`tables`]), office files ([`office`]) and PDF ([`pdf`]). All
//! extractors are bounded: a document has at most [`DOCUMENT_BYTES_MAX`] bytes, [`TEXT_BYTES_MAX`] bytes of text are
//! kept, and extraction takes at most [`TIME_MAX`]. A document of unknown kind gets only name and size. So does a
//! document whose extraction fails, and the failure is reported. Expensive documents are extracted in a child process
//! ([`child`]).

pub(crate) mod charset;
pub mod child;
mod error;
mod html;
mod office;
mod patience;
mod pdf;
mod tables;

use crate::fields::Fields;
pub(crate) use error::ExtractError;
pub(crate) use office::push_characters;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::Duration;

/// Maximum number of bytes of a document whose content is read.
pub const DOCUMENT_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of bytes of text that are kept of a document. Text beyond it is dropped.
pub const TEXT_BYTES_MAX: usize = 8 << 20;
/// Maximum processor time for the extraction of one document.
pub const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum processor time to read the HTML of one mail.
const MAIL_HTML_TIME_MAX: Duration = Duration::from_secs(2);
/// Number of bytes at the beginning that decide whether a document is text.
const SNIFF_BYTES: usize = 4096;

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A web page.
    Html,
    /// Text in some character set.
    Text,
    /// One JSON value.
    Json,
    /// A table as text, with this byte between the cells of a row.
    Table(u8),
    /// A text document of Office Open XML (docx).
    Word,
    /// A presentation of Office Open XML (pptx).
    Slides,
    /// A spreadsheet of Office Open XML (xlsx).
    Sheets,
    /// Any file of OpenDocument.
    OpenDocument,
    /// Portable Document Format.
    Pdf,
}

/// The endings of names, and the kind that each stands for. The document's beginning must have that kind too.
const SUFFIXES: [(&str, Content); 18] = [
    ("html", Content::Html),
    ("htm", Content::Html),
    ("xhtml", Content::Html),
    ("json", Content::Json),
    ("geojson", Content::Json),
    ("csv", Content::Table(b',')),
    ("tsv", Content::Table(b'\t')),
    ("docx", Content::Word),
    ("docm", Content::Word),
    ("pptx", Content::Slides),
    ("pptm", Content::Slides),
    ("xlsx", Content::Sheets),
    ("xlsm", Content::Sheets),
    ("odt", Content::OpenDocument),
    ("ods", Content::OpenDocument),
    ("odp", Content::OpenDocument),
    ("odg", Content::OpenDocument),
    ("pdf", Content::Pdf),
];

impl Content {
    /// The kind of the document with this name and this beginning. `None`: the document's content is not read.
    pub fn of(name: &[u8], beginning: &[u8]) -> Option<Content> {
        if beginning.starts_with(b"%PDF-") {
            return Some(Content::Pdf);
        }
        let named = match name.iter().rposition(|b| *b == b'.') {
            Some(dot) => SUFFIXES.iter().find(|(s, _)| name[dot + 1..].eq_ignore_ascii_case(s.as_bytes())),
            None => None,
        };
        let named = named.map(|(_, content)| *content);
        if beginning.starts_with(b"PK\x03\x04") {
            let is_packed = |c: &Content| {
                matches!(c, Content::Word | Content::Slides | Content::Sheets | Content::OpenDocument)
            };
            return named.filter(is_packed);
        }
        if !charset::is_text(&beginning[..beginning.len().min(SNIFF_BYTES)]) {
            return None;
        }
        match named {
            Some(named @ (Content::Html | Content::Json | Content::Table(_))) => Some(named),
            _ if html::looks_like_html(beginning) => Some(Content::Html),
            _ => Some(Content::Text),
        }
    }

    /// The kind as two bytes, for [`Content::from_code`].
    fn code(self) -> [u8; 2] {
        match self {
            Content::Html => [0, 0],
            Content::Text => [1, 0],
            Content::Json => [2, 0],
            Content::Table(delimiter) => [3, delimiter],
            Content::Word => [4, 0],
            Content::Slides => [5, 0],
            Content::Sheets => [6, 0],
            Content::OpenDocument => [7, 0],
            Content::Pdf => [8, 0],
        }
    }

    fn from_code([what, delimiter]: [u8; 2]) -> Option<Content> {
        Some(match what {
            0 => Content::Html,
            1 => Content::Text,
            2 => Content::Json,
            3 => Content::Table(delimiter),
            4 => Content::Word,
            5 => Content::Slides,
            6 => Content::Sheets,
            7 => Content::OpenDocument,
            8 => Content::Pdf,
            _ => return None,
        })
    }

    /// The value of the field `kind`.
    pub fn kind(self) -> &'static str {
        match self {
            Content::Html => "html",
            Content::Text => "text",
            Content::Json => "json",
            Content::Table(_) => "table",
            Content::Word | Content::Slides | Content::Sheets | Content::OpenDocument => "office",
            Content::Pdf => "pdf",
        }
    }
}

/// The variables of the environment that a child process needs to start, to name characters and to find the reader of PDF
/// files. The run's other variables may be secrets, and a document may be hostile.
const KEPT_VARIABLES: [&str; 8] =
    ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH", pdf::VARIABLE];

/// The environment of a child process that reads a document.
fn kept_environment() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    KEPT_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Adds the fields of the document `bytes` to `fields`.
///
/// # Errors
/// When the document, or a part of it, could not be read. `fields` then has what could be read.
pub(crate) fn extract(content: Content, bytes: &[u8], fields: &mut Fields) -> Result<(), ExtractError> {
    let mut text = Text::new();
    let read = match content {
        Content::Html => html::extract(&charset::decode_html(bytes), &mut text, fields),
        Content::Text => {
            text.push(&charset::decode(bytes));
            Ok(())
        }
        Content::Json => tables::json(bytes, &mut text, fields),
        Content::Table(delimiter) => tables::table(&charset::decode(bytes), delimiter, &mut text, fields),
        Content::Word | Content::Slides | Content::Sheets | Content::OpenDocument => {
            office::extract(content, bytes, &mut text)
        }
        Content::Pdf => pdf::extract(bytes, &mut text),
    };
    fields.set_text("body", text.finish());
    read
}

/// Collects the text of a document, up to [`TEXT_BYTES_MAX`] bytes and for at most [`TIME_MAX`].
struct Text {
    text: String,
    is_full: bool,
    /// The processor time of this thread when the extraction began. A stop of the process does not count.
    started: Duration,
    time_max: Duration,
}

impl Text {
    fn new() -> Text {
        Text { text: String::new(), is_full: false, started: processor_time(), time_max: TIME_MAX }
    }
    /// Appends `addition`, or the beginning of `addition` that fits.
    fn push(&mut self, addition: &str) {
        let room = TEXT_BYTES_MAX - self.text.len();
        if addition.len() <= room {
            self.text.push_str(addition);
            return;
        }
        self.is_full = true;
        self.text.push_str(&addition[..addition.floor_char_boundary(room)]);
    }
    /// Ends the line, if a line has begun.
    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.push("\n");
        }
    }
    /// True when the text has no room for more.
    fn is_full(&self) -> bool {
        self.is_full || self.text.len() >= TEXT_BYTES_MAX
    }
    /// Fails when the extraction has taken more than its time.
    fn check_time(&self) -> Result<(), ExtractError> {
        match processor_time().saturating_sub(self.started) > self.time_max {
            true => Err(ExtractError::Timeout(TIME_MAX)),
            false => Ok(()),
        }
    }
    fn finish(&self) -> &str {
        self.text.trim()
    }
}

/// The processor time that is left to read the HTML of one mail.
#[derive(Debug)]
pub(crate) struct HtmlTime(Cell<Duration>);

impl HtmlTime {
    pub(crate) fn new() -> HtmlTime {
        HtmlTime(Cell::new(MAIL_HTML_TIME_MAX))
    }
    /// The text of an HTML page. `None` when the time is over: a tag with very many attributes takes long.
    pub(crate) fn text_of(&self, page: &str) -> Option<String> {
        let mut text = Text { time_max: self.0.get(), ..Text::new() };
        if text.time_max.is_zero() {
            return None;
        }
        let read = html::extract(page, &mut text, &mut Fields::default());
        self.0.set(self.0.get().saturating_sub(processor_time().saturating_sub(text.started)));
        read.is_ok().then(|| text.finish().to_string())
    }
}

/// The processor time that the calling thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_follows_from_the_name_and_the_first_bytes() {
        for (name, beginning, content) in [
            ("a.txt", &b"hello"[..], Some(Content::Text)),
            ("a", b"hello", Some(Content::Text)),
            ("a.HTM", b"hello", Some(Content::Html)),
            ("a", b" <!DOCTYPE html><p>", Some(Content::Html)),
            ("a.json", b"{}", Some(Content::Json)),
            ("a.csv", b"a,b", Some(Content::Table(b','))),
            ("a.csv", b"a\0b\x01", None),
            ("a.docx", b"PK\x03\x04", Some(Content::Word)),
            ("a.docx", b"hello", Some(Content::Text)),
            ("a.bin", b"PK\x03\x04", None),
            ("a.pdf", b"%PDF-1.4", Some(Content::Pdf)),
            ("a.bin", b"%PDF-1.4", Some(Content::Pdf)),
            ("a.pdf", b"\x01\x02\0\0", None),
            ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
            ("a.txt", b"h\0e\0l\0l\0o\0", Some(Content::Text)),
        ] {
            assert_eq!(Content::of(name.as_bytes(), beginning), content, "{name} {beginning:?}");
        }
    }

    #[test]
    fn text_is_cut_at_its_bound_and_at_a_character() {
        let mut text = Text::new();
        text.push(&"x".repeat(TEXT_BYTES_MAX - 1));
        assert!(!text.is_full());
        text.push("\u{e9}\u{e9}");
        assert!(text.is_full() && text.finish().len() == TEXT_BYTES_MAX - 1);
        text.push("more");
        assert!(text.finish().len() <= TEXT_BYTES_MAX);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_give_fields_or_an_error_and_never_a_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            which in 0usize..7,
        ) {
            let contents = [
                Content::Html, Content::Text, Content::Json, Content::Table(b','),
                Content::Word, Content::Sheets, Content::OpenDocument,
            ];
            let mut fields = Fields::default();
            let _ = extract(contents[which], &bytes, &mut fields);
            assert!(fields.get("body").is_none_or(|body| std::str::from_utf8(body).is_ok()));
        }
    }
}
