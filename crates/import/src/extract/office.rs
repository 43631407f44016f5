//! The text of office files: zips of XML.
//!
//! quick-xml reads each part as a stream of events. No tree is built. A paragraph becomes a line. A row of a
//! spreadsheet becomes a line of cells. The unpacked size is bounded like that of any archive.

use super::{Content, ExtractError, Text};
use crate::source::archive::{Parts, unzipped};
use quick_xml::Reader;
use quick_xml::events::Event;
use std::io::{BufRead, BufReader};

/// Maximum number of unpacked bytes of all parts of one file together.
const PARTS_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of bytes of a spreadsheet's shared strings, which are held in memory.
const STRINGS_BYTES_MAX: usize = 64 << 20;
/// The part of a spreadsheet with the strings that the cells of all sheets share.
const SHARED_STRINGS: &str = "xl/sharedStrings.xml";
/// Number of events between two checks of the time.
const EVENTS_PER_TIME_CHECK: usize = 4096;

/// The elements that hold text, and the elements that end a line.
struct Shape {
    text: &'static [&'static str],
    line: &'static [&'static str],
}

const WORD: Shape = Shape { text: &["t"], line: &["p", "br", "tr"] };
const SLIDES: Shape = Shape { text: &["t"], line: &["p", "br"] };
const OPEN_DOCUMENT: Shape = Shape { text: &["p", "h"], line: &["p", "h", "line-break", "table-row"] };

/// Adds the file's text.
pub(super) fn extract(content: Content, bytes: &[u8], text: &mut Text) -> Result<(), ExtractError> {
    let mut parts = unzipped(bytes, PARTS_BYTES_MAX).map_err(ExtractError::Zip)?;
    let mut names: Vec<String> = parts.names().filter(|name| is_wanted(content, name)).collect();
    // Sort by length first, so that slide 10 follows slide 9.
    names.sort_by_key(|name| (name.len(), name.clone()));
    if names.is_empty() {
        return Err(ExtractError::NoText);
    }
    if content == Content::Sheets {
        let strings = match open(&mut parts, SHARED_STRINGS)? {
            Some(part) => shared_strings(part, text)?,
            None => Vec::new(),
        };
        for name in &names {
            if let Some(part) = open(&mut parts, name)? {
                sheet(part, &strings, text)?;
            }
        }
        return Ok(());
    }
    let shape = match content {
        Content::Word => WORD,
        Content::Slides => SLIDES,
        _ => OPEN_DOCUMENT,
    };
    for name in &names {
        if let Some(part) = open(&mut parts, name)? {
            read_part(part, &shape, text)?;
            text.end_line();
        }
    }
    Ok(())
}

/// Opens the part `name`. `None` when the file has no such part.
fn open<'n>(
    parts: &mut Parts,
    name: &'n str,
) -> Result<Option<Part<'n, impl BufRead + use<>>>, ExtractError> {
    let part = parts.open(name).map_err(ExtractError::Zip)?;
    Ok(part.map(|part| Part::new(name, BufReader::new(part))))
}

fn is_wanted(content: Content, name: &str) -> bool {
    let begins = |prefixes: &[&str]| name.ends_with(".xml") && prefixes.iter().any(|p| name.starts_with(p));
    match content {
        Content::Word => begins(&[
            "word/document",
            "word/header",
            "word/footer",
            "word/footnotes",
            "word/endnotes",
            "word/comments",
        ]),
        Content::Slides => begins(&["ppt/slides/slide", "ppt/notesSlides/notesSlide"]),
        Content::Sheets => begins(&["xl/worksheets/sheet"]),
        _ => name == "content.xml",
    }
}

/// The XML of one part, read event by event.
struct Part<'n, R> {
    name: &'n str,
    xml: Reader<R>,
    buffer: Vec<u8>,
    seen: usize,
}

impl<'n, R: BufRead> Part<'n, R> {
    fn new(name: &'n str, part: R) -> Part<'n, R> {
        let mut xml = Reader::from_reader(part);
        xml.config_mut().check_end_names = false;
        Part { name, xml, buffer: Vec::new(), seen: 0 }
    }

    /// The next event. `None` at the end of the part, or when the text is full.
    ///
    /// # Errors
    /// When the XML is damaged, or the time is over.
    fn next(&mut self, text: &Text) -> Result<Option<Event<'_>>, ExtractError> {
        self.buffer.clear();
        self.seen += 1;
        if self.seen.is_multiple_of(EVENTS_PER_TIME_CHECK) {
            text.check_time()?;
        }
        if text.is_full() {
            return Ok(None);
        }
        match self.xml.read_event_into(&mut self.buffer) {
            Ok(Event::Eof) => Ok(None),
            Ok(event) => Ok(Some(event)),
            Err(error) => {
                let offset = self.xml.error_position();
                Err(ExtractError::Xml { part: self.name.to_owned(), offset, error })
            }
        }
    }
}

fn read_part(mut part: Part<'_, impl BufRead>, shape: &Shape, text: &mut Text) -> Result<(), ExtractError> {
    let mut inside = 0usize;
    while let Some(event) = part.next(text)? {
        match event {
            Event::Start(e) if shape.text.contains(&e.local_name().as_ref()) => inside += 1,
            Event::End(e) => {
                let name = e.local_name();
                inside = inside.saturating_sub(usize::from(shape.text.contains(&name.as_ref())));
                if shape.line.contains(&name.as_ref()) {
                    text.end_line();
                }
            }
            Event::Empty(e) => match e.local_name().as_ref() {
                "tab" => text.push("\t"),
                "s" if inside > 0 => text.push(" "),
                name if shape.line.contains(&name) => text.end_line(),
                _ => {}
            },
            event if inside > 0 => push_characters(&event, &mut |more| text.push(more)),
            _ => {}
        }
    }
    Ok(())
}

/// Appends the text of an event, if the event has text.
pub(crate) fn push_characters(event: &Event<'_>, push: &mut dyn FnMut(&str)) {
    match event {
        Event::Text(t) => push(t.as_ref()),
        Event::CData(t) => push(t.as_ref()),
        Event::GeneralRef(r) => match (r.resolve_char_ref().ok().flatten(), r.as_ref()) {
            (Some(c), _) => push(c.encode_utf8(&mut [0; 4])),
            (None, "lt") => push("<"),
            (None, "gt") => push(">"),
            (None, "amp") => push("&"),
            (None, "quot") => push("\""),
            (None, "apos") => push("'"),
            _ => {}
        },
        _ => {}
    }
}

/// The strings that the cells of all sheets share.
fn shared_strings(mut part: Part<'_, impl BufRead>, text: &Text) -> Result<Vec<String>, ExtractError> {
    let (mut strings, mut bytes, mut is_text) = (Vec::new(), 0, false);
    while let Some(event) = part.next(text)? {
        match event {
            Event::Start(e) if e.local_name().as_ref() == "si" => strings.push(String::new()),
            Event::Start(e) if e.local_name().as_ref() == "t" => is_text = true,
            Event::End(e) if e.local_name().as_ref() == "t" => is_text = false,
            Event::Empty(e) if e.local_name().as_ref() == "si" => strings.push(String::new()),
            event if is_text => {
                if let Some(last) = strings.last_mut() {
                    push_characters(&event, &mut |more| {
                        bytes += more.len();
                        last.push_str(more);
                    });
                }
            }
            _ => {}
        }
        if bytes + strings.len() * size_of::<String>() > STRINGS_BYTES_MAX {
            return Err(ExtractError::Strings { bytes_max: STRINGS_BYTES_MAX });
        }
    }
    Ok(strings)
}

fn sheet(mut part: Part<'_, impl BufRead>, strings: &[String], text: &mut Text) -> Result<(), ExtractError> {
    // A cell's value is in `v`, or in `t` of `is`. The cell's attribute `t` says its type.
    let (mut value, mut is_value, mut is_shared) = (String::new(), false, false);
    while let Some(event) = part.next(text)? {
        match event {
            Event::Start(e) => match e.local_name().as_ref() {
                "c" => {
                    let kind = e.attributes().flatten().find(|a| a.key.as_ref() == "t");
                    is_shared = kind.is_some_and(|a| a.value.as_ref() == "s");
                    value.clear();
                }
                "v" | "t" => is_value = true,
                _ => {}
            },
            Event::End(e) => match e.local_name().as_ref() {
                "v" | "t" => is_value = false,
                "c" if !value.is_empty() => {
                    let shared = value.trim().parse::<usize>().ok().filter(|_| is_shared);
                    let shown = match shared {
                        Some(index) => strings.get(index).map_or("", String::as_str),
                        None => &value,
                    };
                    if !text.text.is_empty() && !text.text.ends_with('\n') {
                        text.push("\t");
                    }
                    text.push(shown);
                }
                "row" => text.end_line(),
                _ => {}
            },
            event if is_value && value.len() < super::TEXT_BYTES_MAX => {
                push_characters(&event, &mut |more| value.push_str(more));
            }
            _ => {}
        }
    }
    text.end_line();
    Ok(())
}
