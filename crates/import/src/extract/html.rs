//! The text of web pages, by html5ever's tokenizer alone.
//!
//! No tree is built, so deep nesting takes no memory and cannot overflow the stack. The text has no scripts and styles.
//! A block element begins a line. A tab divides the cells of a table's row.

use super::{ExtractError, Text};
use crate::fields::Fields;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use std::cell::{Cell, RefCell};

/// Number of bytes that the tokenizer gets between two checks of the bounds.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of a title.
const TITLE_BYTES_MAX: usize = 4096;
/// Inline elements. All other elements begin a line.
const IN_LINE: [&str; 32] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub",
    "sup", "tt", "u", "var",
];

/// True when the document begins like an HTML page.
pub(super) fn looks_like_html(beginning: &[u8]) -> bool {
    let beginning = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning).trim_ascii_start();
    let begins =
        |word: &str| beginning.get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word.as_bytes()));
    begins("<!doctype html") || begins("<html")
}

/// Adds the page's text to `text`, and its title to `fields`.
pub(super) fn extract(page: &str, text: &mut Text, fields: &mut Fields) -> Result<(), ExtractError> {
    let sink = Sink {
        text: RefCell::new(std::mem::replace(text, Text::new())),
        title: RefCell::default(),
        hidden: Cell::default(),
    };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let queue = BufferQueue::default();
    let mut rest = page;
    let mut done = Ok(());
    while !rest.is_empty() && done.is_ok() && !tokenizer.sink.text.borrow().is_full() {
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
        queue.push_back(StrTendril::from(piece));
        let _ = tokenizer.feed(&queue);
        rest = behind;
        done = tokenizer.sink.text.borrow().check_time();
    }
    tokenizer.end();
    let Sink { text: read, title, .. } = tokenizer.sink;
    *text = read.into_inner();
    fields.set_text("title", title.into_inner().split_whitespace().collect::<Vec<_>>().join(" ").as_str());
    done
}

/// Whether the characters at the current place are text of the page.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Hidden {
    /// They are text of the page.
    #[default]
    No,
    /// They are in a script or style, and are dropped.
    Raw,
    /// They are the page's title.
    Title,
}

struct Sink {
    text: RefCell<Text>,
    title: RefCell<String>,
    hidden: Cell<Hidden>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::CharacterTokens(characters) => match self.hidden.get() {
                Hidden::No => append(&mut self.text.borrow_mut(), &characters),
                Hidden::Raw => {}
                Hidden::Title => {
                    let mut title = self.title.borrow_mut();
                    let room = TITLE_BYTES_MAX.saturating_sub(title.len());
                    title.push_str(&characters[..characters.floor_char_boundary(room)]);
                }
            },
            Token::TagToken(tag) => return self.tag(&tag),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl Sink {
    fn tag(&self, tag: &Tag) -> TokenSinkResult<()> {
        let (name, begins) = (&*tag.name, tag.kind == TagKind::StartTag);
        let raw = match name {
            "script" => Some((Hidden::Raw, RawKind::ScriptData)),
            "style" | "noframes" | "iframe" => Some((Hidden::Raw, RawKind::Rawtext)),
            "title" => Some((Hidden::Title, RawKind::Rcdata)),
            "textarea" => Some((Hidden::No, RawKind::Rcdata)),
            _ => None,
        };
        if let Some((hidden, kind)) = raw {
            self.hidden.set(if begins { hidden } else { Hidden::No });
            return if begins { TokenSinkResult::RawData(kind) } else { TokenSinkResult::Continue };
        }
        let mut text = self.text.borrow_mut();
        match name {
            "td" | "th" if begins => {
                if !text.text.is_empty() && !text.text.ends_with(['\n', '\t']) {
                    text.push("\t");
                }
            }
            "td" | "th" => {}
            name if IN_LINE.contains(&name) => {}
            _ => text.end_line(),
        }
        TokenSinkResult::Continue
    }
}

/// Appends the words with one blank between two words, as a browser shows them.
fn append(text: &mut Text, characters: &str) {
    let mut words = characters.split_ascii_whitespace();
    let ends_a_word = |text: &Text| text.text.is_empty() || text.text.ends_with([' ', '\n', '\t']);
    let Some(first) = words.next() else {
        if !ends_a_word(text) && !characters.is_empty() {
            text.push(" ");
        }
        return;
    };
    if characters.starts_with(|c: char| c.is_ascii_whitespace()) && !ends_a_word(text) {
        text.push(" ");
    }
    text.push(first);
    for word in words {
        text.push(" ");
        text.push(word);
    }
    if characters.ends_with(|c: char| c.is_ascii_whitespace()) {
        text.push(" ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> (String, Option<String>) {
        let (mut text, mut fields) = (Text::new(), Fields::default());
        extract(page, &mut text, &mut fields).unwrap();
        let title = fields.get("title").map(|t| String::from_utf8(t.to_vec()).unwrap());
        let lines: Vec<&str> = text.finish().lines().map(str::trim_end).collect();
        (lines.join("\n"), title)
    }

    #[test]
    fn the_text_of_a_page_is_its_visible_text() {
        let page = "<!DOCTYPE html><html><head><title>A &amp; <b>\n B</title><style>p { x }</style></head>\
            <body><h1>Head</h1>\n<p>One <b>bo</b>ld&eacute; word<br>and a line<script>var x = '<p>no</p>';</script>\
            <table><tr><td>1<td>2</tr><tr><th>3</th><th>4</th></tr></table><!-- no --><ul><li>x<li>y</ul>end";
        let (text, title) = read(page);
        assert_eq!(text, "Head\nOne bold\u{e9} word\nand a line\n1\t2\n3\t4\nx\ny\nend");
        assert_eq!(title.as_deref(), Some("A & <b> B"));
    }

    #[test]
    fn hostile_pages_are_read_in_bounded_time() {
        assert_eq!(read(&"<div>".repeat(200_000)).0, "");
        assert_eq!(read(&("<b><i>".repeat(50_000) + "x")).0, "x");
        assert_eq!(read("<script>never ends").0, "");
        assert_eq!(read("a<").0, "a<");
        let (text, _) = read(&"<p>word".repeat(super::super::TEXT_BYTES_MAX / 4));
        assert!(text.len() <= super::super::TEXT_BYTES_MAX);
    }
}
