//! Solr's update messages: puts and deletes as XML, written by quick-xml.
//!
//! A put is an element `doc`, and a delete is an element `id`. [`Envelope`] writes the elements around puts and
//! deletes. So a batch of changes can be divided anywhere, and sent again in parts.

use quick_xml::Writer;
use quick_xml::escape::escape;
use quick_xml::events::{BytesStart, BytesText, Event};
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// The beginning of an XML file.
pub(super) const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Put,
    Delete,
}

/// Writes the elements around puts and deletes: `update`, and in it `add` and `delete`.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    is_begun: bool,
    /// The kind of the element that is open now.
    open: Option<ChangeKind>,
    commit_within: Option<Duration>,
}

impl Envelope {
    pub(super) fn new(commit_within: Option<Duration>) -> Envelope {
        Envelope { is_begun: false, open: None, commit_within }
    }

    /// Writes the tags before the next change, which is of this kind.
    pub(super) fn begin_change(&mut self, kind: ChangeKind, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_begun, true) {
            event(out, Event::Start(BytesStart::new("update")));
        }
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        let mut start = BytesStart::new(element(kind));
        if let Some(within) = self.commit_within {
            start.push_attribute(("commitWithin", &*within.as_millis().to_string()));
        }
        event(out, Event::Start(start));
        self.open = Some(kind);
    }

    /// Writes the tags after the last change.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_begun, true) {
            event(out, Event::Start(BytesStart::new("update")));
        }
        self.close(out);
        event(out, Event::End(BytesStart::new("update").to_end()));
        out.push(b'\n');
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(kind) = self.open.take() {
            event(out, Event::End(BytesStart::new(element(kind)).to_end()));
            out.push(b'\n');
        }
    }
}

fn element(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Put => "add",
        ChangeKind::Delete => "delete",
    }
}

/// Writes a put.
pub(super) fn put<'a, N: AsRef<str>>(
    out: &mut Vec<u8>,
    id: &str,
    fields: impl Iterator<Item = (N, &'a [u8])>,
) {
    event(out, Event::Start(BytesStart::new("doc")));
    field(out, "id", id);
    for (name, value) in fields {
        field(out, name.as_ref(), &String::from_utf8_lossy(value));
    }
    event(out, Event::End(BytesStart::new("doc").to_end()));
    out.push(b'\n');
}

/// Writes a delete.
pub(super) fn delete(out: &mut Vec<u8>, id: &str) {
    event(out, Event::Start(BytesStart::new("id")));
    text(out, id);
    event(out, Event::End(BytesStart::new("id").to_end()));
    out.push(b'\n');
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut start = BytesStart::new("field");
    start.push_attribute(("name", &*allowed(name)));
    event(out, Event::Start(start));
    text(out, value);
    event(out, Event::End(BytesStart::new("field").to_end()));
}

fn text(out: &mut Vec<u8>, value: &str) {
    let value = allowed(value);
    let mut escaped = escape(value);
    // An XML parser replaces a carriage return by a line feed, unless it is escaped.
    if escaped.contains('\r') {
        escaped = Cow::Owned(escaped.replace('\r', "&#13;"));
    }
    event(out, Event::Text(BytesText::from_escaped(escaped)));
}

fn event(out: &mut Vec<u8>, event: Event<'_>) {
    Writer::new(out).write_event(event).expect("a vector takes everything");
}

/// Replaces the characters that XML does not allow.
fn allowed(text: &str) -> Cow<'_, str> {
    let bad = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(bad) { Cow::Owned(text.replace(bad, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The key of the document `path` in Solr: `DATASET:path`. If the path is not UTF-8 or has characters that XML does not
/// allow, the key is `DATASET%:path`, with these bytes and every percent sign written as `%` and two hexadecimal
/// digits.
pub(super) fn id(dataset: &str, path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(path)
            if !path.contains('\u{fffe}')
                && !path.contains('\u{ffff}')
                && !path.contains(char::is_control) =>
        {
            format!("{dataset}:{path}")
        }
        _ => {
            let mut id = format!("{dataset}%:");
            for byte in path {
                match byte {
                    0x20..=0x24 | 0x26..=0x7e => id.push(char::from(*byte)),
                    byte => drop(write!(id, "%{byte:02X}")),
                }
            }
            id
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_have_solrs_format() {
        let (mut out, mut envelope) = (Vec::new(), Envelope::new(Some(Duration::from_millis(1500))));
        envelope.begin_change(ChangeKind::Put, &mut out);
        put(&mut out, "m:a&b", [("t", &b"1 < 2\r\x01\xff"[..])].into_iter());
        envelope.begin_change(ChangeKind::Put, &mut out);
        put(&mut out, "m:b", [("\"q\"", &b""[..])].into_iter());
        envelope.begin_change(ChangeKind::Delete, &mut out);
        delete(&mut out, "m:]]>");
        envelope.end(&mut out);
        let expected = [
            "<update><add commitWithin=\"1500\"><doc><field name=\"id\">m:a&amp;b</field>",
            "<field name=\"t\">1 &lt; 2&#13;\u{fffd}\u{fffd}</field></doc>\n",
            "<doc><field name=\"id\">m:b</field><field name=\"&quot;q&quot;\"></field></doc>\n</add>\n",
            "<delete commitWithin=\"1500\"><id>m:]]&gt;</id>\n</delete>\n</update>\n",
        ];
        assert_eq!(String::from_utf8(out).unwrap(), expected.concat());
        let mut empty = Vec::new();
        Envelope::new(None).end(&mut empty);
        assert_eq!(empty, b"<update></update>\n");
    }

    #[test]
    fn every_path_has_its_own_id() {
        assert_eq!(id("m", "a/\u{e9} %.eml".as_bytes()), "m:a/\u{e9} %.eml");
        assert_eq!(id("m", b"a/\xe9 %.eml"), "m%:a/%E9 %25.eml");
        assert_eq!(id("m", b"a\nb"), "m%:a%0Ab");
    }
}
