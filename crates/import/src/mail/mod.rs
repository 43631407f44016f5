//! Mail: from the bytes of one message to the fields of one document.
//!
//! [`looks_like_mail`] decides by content whether a file is mail. [`extract`] parses a message with the mail-parser
//! library, after [`cost`] has checked that parsing takes a bounded number of steps. This module does what the library
//! leaves to its caller: it removes the mbox `From ` line at the beginning, refuses files that are not mail, collects
//! the text of nested messages, and formats addresses and dates. The list of fields is [`crate::fields::FIELDS`].

mod body;
mod charset;
pub mod cost;
mod date;
mod error;
mod words;

pub(crate) use body::Body;
pub(crate) use error::MailError;

use crate::extract::TEXT_BYTES_MAX;
use crate::fields::Fields;
use charset::AttachmentNames;
use mail_parser::{Addr, Address, HeaderName, HeaderValue, Message, MessageParser, MimeHeaders, PartType};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Maximum number of bytes of a message. A larger message becomes a failed document. Parsing needs about four times the
/// message's size.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Maximum depth of nested messages whose text is imported.
pub const NESTED_MAX: usize = 8;
/// A message of up to this number of bytes is parsed on the caller's stack. A larger message is parsed on a thread with
/// a stack that fits the message: the library drops nested messages recursively, and 29 bytes of mail can make one
/// level.
const OWN_STACK_BYTES_MAX: usize = 256 * 1024;
/// Bytes of stack for each byte of a message with a thread of its own: over four times the measured need of nesting.
/// Only the pages in use take memory.
const STACK_PER_BYTE: usize = 16;
/// Maximum number of lines in which [`looks_like_mail`] searches for a field of [`MAIL_HEADERS`].
const SNIFF_LINES_MAX: usize = 200;
/// A file whose name and place do not say that it is mail must have one of these header fields.
const MAIL_HEADERS: [&[u8]; 9] = [
    b"from",
    b"date",
    b"received",
    b"return-path",
    b"message-id",
    b"delivered-to",
    b"mime-version",
    b"reply-to",
    b"x-mailer",
];

/// Parses only the header fields that become fields of a document, and MIME's fields. All other fields are skipped: the
/// `Received` fields alone took 11 % of the time of an import (`cargo bench -p strand-server --bench import`, by perf).
static PARSER: LazyLock<MessageParser> = LazyLock::new(|| {
    let parser = MessageParser::new().with_mime_headers().default_header_ignore();
    let parser = parser.header_id(HeaderName::MessageId).header_raw(HeaderName::Date);
    let parser = parser.header_text(HeaderName::Subject).header_address(HeaderName::From);
    parser.header_address(HeaderName::To).header_address(HeaderName::Cc)
});

/// True when the bytes begin like a message: with an mbox `From ` line, or with header fields of which one is in
/// [`MAIL_HEADERS`].
pub fn looks_like_mail(bytes: &[u8]) -> bool {
    let bytes = &*with_line_feeds(bytes);
    let (message, mbox_line) = strip_mbox_line(bytes);
    if mbox_line {
        return true;
    }
    for (i, line) in message.split(|b| *b == b'\n').take(SNIFF_LINES_MAX).enumerate() {
        if i > 0 && matches!(line.first(), Some(b' ' | b'\t')) {
            continue;
        }
        match header_name(line) {
            Some(name) if MAIL_HEADERS.iter().any(|h| name.eq_ignore_ascii_case(h)) => return true,
            Some(_) => {}
            None => return false,
        }
    }
    false
}

/// The message with line feeds, if only carriage returns end its lines.
pub(crate) fn with_line_feeds(bytes: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', bytes).is_some() || memchr::memchr(b'\r', bytes).is_none() {
        return Cow::Borrowed(bytes);
    }
    Cow::Owned(bytes.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect())
}

/// The number of bytes of the header of `message`.
fn header_bytes(message: &[u8]) -> usize {
    let is_end = |at: &usize| matches!(message[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]);
    memchr::memchr_iter(b'\n', message).find(is_end).unwrap_or(message.len())
}

/// Adds the fields of a message to `fields`.
///
/// # Errors
/// The reason why the message becomes a failed document.
pub(crate) fn extract(bytes: &[u8], fields: &mut Fields) -> Result<(), MailError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(MailError::Empty);
    }
    let bytes = &*with_line_feeds(bytes);
    let (message, _) = strip_mbox_line(bytes);
    let first = message.split(|b| *b == b'\n').next().unwrap_or(&[]);
    if header_name(first).is_none() {
        let binary = memchr::memchr(0, &message[..message.len().min(4096)]).is_some();
        return Err(if binary { MailError::Binary } else { MailError::NoHeader });
    }
    let message = &*charset::with_readable_header(message);
    cost::check(message)?;
    let message = words::with_whole_words(message);
    if let Cow::Owned(joined) = &message {
        // Joined words may be longer.
        cost::check(joined)?;
    }
    let message = &*message;
    with_stack(message.len(), || parse(message, fields))?
}

/// Calls `parse` on a stack that is large enough for a message of `bytes` bytes.
pub(crate) fn with_stack<T: Send>(bytes: usize, parse: impl FnOnce() -> T + Send) -> Result<T, MailError> {
    if bytes <= OWN_STACK_BYTES_MAX {
        return Ok(parse());
    }
    std::thread::scope(|scope| {
        let stack = std::thread::Builder::new().stack_size(bytes * STACK_PER_BYTE);
        match stack.spawn_scoped(scope, parse) {
            Ok(thread) => thread.join().map_err(|_| MailError::Panic),
            Err(error) => Err(MailError::Stack { bytes, error }),
        }
    })
}

/// Parses a message, and calls `each` with it. `None`: the message cannot be parsed.
///
/// The library counts the only part of a multipart message as text only when a boundary follows. So a message that was
/// cut off in its first part has no text. Such a message is parsed again with the boundary that is missing at its end.
pub(crate) fn with_parsed<T>(message: &[u8], each: impl FnOnce(&Message<'_>) -> T) -> Option<T> {
    let parsed = PARSER.parse(message)?;
    let has_text = !parsed.text_body.is_empty() || !parsed.html_body.is_empty();
    let may_be_cut = !has_text && parsed.parts.len() <= 2;
    let kind =
        parsed.content_type().filter(|kind| may_be_cut && kind.ctype().eq_ignore_ascii_case("multipart"));
    let boundary = kind.and_then(|kind| kind.attribute("boundary"));
    let Some(boundary) = boundary else { return Some(each(&parsed)) };
    let completed = [message, b"\n--", boundary.as_bytes(), b"--\n"].concat();
    // If the boundary occurs nowhere else, everything lies in front of it, and the library leaves it out.
    let completed = PARSER.parse(&completed[..]).filter(|completed| completed.parts.len() > 1);
    Some(each(completed.as_ref().unwrap_or(&parsed)))
}

fn parse(message: &[u8], fields: &mut Fields) -> Result<(), MailError> {
    with_parsed(message, |parsed| set_fields(parsed, fields)).ok_or(MailError::Unreadable)
}

fn set_fields(parsed: &Message<'_>, fields: &mut Fields) {
    set_headers(parsed, fields);
    let body = Body::of(parsed);
    let mut text = String::new();
    append_text(parsed, &body, &mut text, 0);
    text.truncate(text.trim_end().len());
    fields.set_text("body", &text);
    let mut names = Vec::new();
    append_attachments(parsed, &body, &mut names);
    fields.set_text("attachments", &names.join("\n"));
}

/// True when the file has a second message: a `From ` line with a time in it, after a blank line.
pub fn has_more_messages(bytes: &[u8]) -> bool {
    memchr::memmem::find_iter(bytes, b"\nFrom ").any(|at| {
        let before = bytes[..at].strip_suffix(b"\r").unwrap_or(&bytes[..at]);
        let line = bytes[at + 1..].split(|b| *b == b'\n').next().unwrap_or(&[]);
        before.ends_with(b"\n")
            && line.windows(3).any(|w| w[0].is_ascii_digit() && w[1] == b':' && w[2].is_ascii_digit())
    })
}

/// Removes blank lines and one mbox separator (`From address date`, perhaps quoted as `>From `) from the beginning.
/// Returns the rest, and whether there was a separator.
fn strip_mbox_line(bytes: &[u8]) -> (&[u8], bool) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let bytes = skip_blank_lines(bytes);
    let unquoted = bytes.strip_prefix(b">").unwrap_or(bytes);
    if !unquoted.starts_with(b"From ") {
        return (bytes, false);
    }
    let rest = memchr::memchr(b'\n', bytes).map_or(&[][..], |end| &bytes[end + 1..]);
    (skip_blank_lines(rest), true)
}

fn skip_blank_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix(b"\r\n").or_else(|| bytes.strip_prefix(b"\n")) {
        bytes = rest;
    }
    bytes
}

/// The name of the header field that begins in `line`. RFC 5322 allows printable ASCII without the colon. Old mail also
/// has blanks before the colon.
fn header_name(line: &[u8]) -> Option<&[u8]> {
    let colon = memchr::memchr(b':', line)?;
    let name = line[..colon].trim_ascii_end();
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some(name)
}

fn set_headers(message: &Message<'_>, fields: &mut Fields) {
    let message_id = message.header_values(HeaderName::MessageId).find_map(HeaderValue::as_text);
    fields.set_text("message_id", message_id.unwrap_or(""));
    let dates = message.header_values(HeaderName::Date).filter_map(HeaderValue::as_text);
    if let Some(seconds) = dates.filter_map(date::parse).next() {
        fields.set("date", seconds.to_string().into_bytes());
    }
    let from = all_addresses(message, HeaderName::From).next();
    let from: Vec<&Addr<'_>> = from.into_iter().flat_map(Address::iter).collect();
    fields.set_text("from", &display(&from));
    fields.set_text("from_address", &addresses(&from).join(","));
    let mut recipients = Vec::new();
    for (field, name) in [("to", HeaderName::To), ("cc", HeaderName::Cc)] {
        // RFC 5322, section 4.5.3: the lists of several fields are one list.
        let all: Vec<&Addr<'_>> = all_addresses(message, name).flat_map(Address::iter).collect();
        fields.set_text(field, &display(&all));
        recipients.extend(addresses(&all));
    }
    fields.set_text("to_address", &recipients.join(","));
    fields.set_text("subject", &one_line(subject(message)));
}

/// The message's subject. If there are several, the first one, which mail programs show.
fn subject<'a>(message: &'a Message<'_>) -> &'a str {
    message.header_values(HeaderName::Subject).find_map(HeaderValue::as_text).unwrap_or("")
}

/// The addresses in each header field `name` of the message.
fn all_addresses<'a, 'x>(
    message: &'a Message<'x>,
    name: HeaderName<'x>,
) -> impl Iterator<Item = &'a Address<'x>> {
    message.header_values(name).filter_map(HeaderValue::as_address)
}

/// The addresses as a mail program shows them: `Name <address>, ...`.
fn display(addresses: &[&Addr<'_>]) -> String {
    let one = |a: &&Addr<'_>| match (a.name(), a.address()) {
        (Some(name), Some(address)) => format!("{} <{}>", one_line(name), one_line(address)),
        (Some(text), None) | (None, Some(text)) => one_line(text),
        (None, None) => String::new(),
    };
    let all: Vec<_> = addresses.iter().map(one).filter(|s| !s.is_empty()).collect();
    all.join(", ")
}

/// The addresses in lower case, without names.
fn addresses(addresses: &[&Addr<'_>]) -> Vec<String> {
    let all = addresses.iter().filter_map(|a| a.address());
    all.map(|a| one_line(a).to_lowercase()).filter(|a| !a.is_empty()).collect()
}

/// Appends the text of a message: its body, then the subjects and texts of the messages in it. So a search finds the
/// words of a forwarded mail.
fn append_text(message: &Message<'_>, body: &Body<'_>, out: &mut String, depth: usize) {
    body.texts().iter().for_each(|text| append_paragraph(text, out));
    if depth >= NESTED_MAX {
        return;
    }
    for part in &message.parts {
        if let PartType::Message(nested) = &part.body {
            append_paragraph(&one_line(subject(nested)), out);
            append_text(nested, &Body::of(nested), out, depth + 1);
        }
    }
}

/// Appends a blank line and `text`, with `\n` as the end of each line. Cuts the text where `out` has [`TEXT_BYTES_MAX`]
/// bytes without that blank line.
fn append_paragraph(text: &str, out: &mut String) {
    let text = text.trim_end();
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX.saturating_sub(out.len()))];
    if text.is_empty() {
        return;
    }
    if !out.is_empty() {
        out.push_str("\n\n");
    }
    if memchr::memchr(b'\r', text.as_bytes()).is_none() {
        return out.push_str(text);
    }
    for piece in text.split("\r\n") {
        out.push_str(piece);
        out.push('\n');
    }
    out.pop();
}

/// Appends the names of the attachments. A nested message without a name gets its subject as its name.
fn append_attachments(message: &Message<'_>, body: &Body<'_>, names: &mut Vec<String>) {
    let mut attachment_names = AttachmentNames::default();
    for (_, part) in body.attachments(message) {
        let name = match (attachment_names.name(message, part), &part.body) {
            (Some(name), _) => one_line(&name),
            (None, PartType::Message(nested)) => one_line(subject(nested)),
            (None, _) => String::new(),
        };
        if !name.is_empty() {
            names.push(name);
        }
    }
}

/// Joins the text to one line: each run of white space becomes one blank, and other control characters are removed.
fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().filter(|c| !c.is_control()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields_of(text: &str) -> Result<Fields, MailError> {
        let mut fields = Fields::default();
        extract(text.as_bytes(), &mut fields).map(|()| fields)
    }

    #[test]
    fn a_plain_message_with_an_mbox_line() {
        let fields = fields_of(concat!(
            "From ada@example.org Mon Jan  6 10:00:00 2025\n",
            "Message-ID: <1@example.org>\nDate: Mon, 6 Jan 2025 11:00:00 +0100\n",
            "From: \"Ada L.\" <Ada@Example.org>\nTo: Bo <bo@example.net>,\n c@example.net\nCc: d@example.net\n",
            "Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?=\n\nHello\nthere\n"
        ))
        .unwrap();
        let get = |name| fields.get(name).map(|v| String::from_utf8_lossy(v).into_owned());
        assert_eq!(get("message_id").as_deref(), Some("1@example.org"));
        assert_eq!(get("date").as_deref(), Some("1736157600"));
        assert_eq!(get("from").as_deref(), Some("Ada L. <Ada@Example.org>"));
        assert_eq!(get("from_address").as_deref(), Some("ada@example.org"));
        assert_eq!(get("to").as_deref(), Some("Bo <bo@example.net>, c@example.net"));
        assert_eq!(get("to_address").as_deref(), Some("bo@example.net,c@example.net,d@example.net"));
        assert_eq!(get("subject").as_deref(), Some("Grüße"));
        assert_eq!(get("body").as_deref(), Some("Hello\nthere"));
        assert_eq!(get("attachments"), None);
    }

    #[test]
    fn of_several_equal_fields_the_first_counts_and_lists_of_recipients_are_joined() {
        let fields = fields_of(concat!(
            "Message-ID: <1@x>\nMessage-ID: <2@x>\nDate: Mon, 6 Jan 2025 11:00:00 +0100\n",
            "Date: Tue, 7 Jan 2025 11:00:00 +0100\nFrom: a@b.example\nFrom: c@d.example\n",
            "To: e@f.example\nTo: G <g@h.example>\nSubject: the first\nSubject: the second\n\ntext\n"
        ))
        .unwrap();
        for (name, value) in [
            ("message_id", "1@x"),
            ("date", "1736157600"),
            ("from", "a@b.example"),
            ("from_address", "a@b.example"),
            ("to", "e@f.example, G <g@h.example>"),
            ("to_address", "e@f.example,g@h.example"),
            ("subject", "the first"),
        ] {
            assert_eq!(fields.get(name), Some(value.as_bytes()), "{name}");
        }
    }

    #[test]
    fn html_becomes_text_unless_the_mail_has_a_plain_alternative() {
        let html = fields_of("From: a@b.example\nContent-Type: text/html\n\n<p>One <b>two</b></p>").unwrap();
        assert_eq!(html.get("body"), Some(&b"One two"[..]));
        let both = fields_of(concat!(
            "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=x\n\n",
            "--x\nContent-Type: text/plain\n\nplain\n--x\nContent-Type: text/html\n\n<p>markup</p>\n--x--\n"
        ))
        .unwrap();
        assert_eq!(both.get("body"), Some(&b"plain"[..]));
    }

    #[test]
    fn a_mail_that_was_cut_off_in_its_first_part_has_the_text_so_far() {
        let whole = concat!(
            "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"x y\"\n\n",
            "--x y\nContent-Type: text/plain\n\nthe text\nso far\n--x y--\n"
        );
        let text_of = |text: &str| fields_of(text).unwrap().get("body").map(<[u8]>::to_vec);
        let start = whole.find("the text").unwrap() + "the text".len();
        assert_eq!(text_of(&whole[..start]).as_deref(), Some(&b"the text"[..]));
        assert_eq!(text_of(&whole[..start + 8]).as_deref(), Some(&b"the text\nso far"[..]));
        assert_eq!(text_of(whole).as_deref(), Some(&b"the text\nso far"[..]));
        assert_eq!(
            text_of("From: a@b.example\nContent-Type: multipart/mixed\n\nno boundary").as_deref(),
            Some(&b"no boundary"[..])
        );
    }

    #[test]
    fn a_nested_message_gives_its_text_and_its_subject_as_a_name() {
        let fields = fields_of(concat!(
            "From: a@b.example\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n",
            "--x\n\nSee below.\n--x\nContent-Type: message/rfc822\n\n",
            "From: c@d.example\nSubject: inner words\n\ndeep text\n--x--\n"
        ))
        .unwrap();
        assert_eq!(fields.get("attachments"), Some(&b"inner words"[..]));
        assert_eq!(fields.get("body"), Some(&b"See below.\n\ninner words\n\ndeep text"[..]));
    }

    #[test]
    fn carriage_returns_alone_end_lines() {
        let mail = "From: a@b.example\rSubject: s\r\rone\rtwo\r";
        let fields = fields_of(mail).unwrap();
        assert_eq!(fields.get("subject"), Some(&b"s"[..]));
        assert_eq!(fields.get("body"), Some(&b"one\ntwo"[..]));
        assert!(looks_like_mail(b"X-Seen: 1\rReceived: from a\r\rtext"));
    }

    #[test]
    fn reasons_of_failed_documents() {
        let reason = |text: &str| fields_of(text).unwrap_err().to_string();
        assert_eq!(reason(""), "the file is empty");
        assert_eq!(reason(" \r\n\n"), "the file is empty");
        assert_eq!(reason("just words\nno header\n"), "there is no header field");
        assert_eq!(reason("\0\x01\x02\0\n"), "the file is binary, not mail");
        assert_eq!(reason("From nobody Mon Jan  6 10:00:00 2025\n"), "there is no header field");
    }

    #[test]
    fn decides_by_content() {
        assert!(looks_like_mail(b"From x@y Mon Jan  6 10:00:00 2025\nX: y\n"));
        assert!(looks_like_mail(b"X-Seen: 1\nReceived: from a\n\tby b\nSubject: s\n\nbody"));
        assert!(!looks_like_mail(b"# Title\n\nFrom: someone\n"));
        assert!(!looks_like_mail(b"key: value\nother: value\n"));
        assert!(!looks_like_mail(b""));
        assert!(!looks_like_mail(b"\x7fELF\x02\x01\x01\0\0\0"));
    }

    #[test]
    fn deep_nesting_and_many_parts_are_parsed() {
        let deep =
            format!("From: a@b.example\n{}last words\n", "Content-Type: message/rfc822\n\n".repeat(50_000));
        assert!(fields_of(&deep).is_ok());
        let mut parts = "From: a@b.example\nContent-Type: multipart/mixed; boundary=x\n\n".to_owned();
        (0..20_000).for_each(|i| parts.push_str(&format!("--x\n\npart {i}\n")));
        assert!(fields_of(&parts).unwrap().get("body").is_some());
        let html =
            format!("From: a@b.example\nContent-Type: text/html\n\n{}deep", "<div><!-- ".repeat(50_000));
        assert!(fields_of(&html).is_ok());
        let mut nested = "From: a@b.example\n".to_owned();
        (0..2_000).for_each(|i| {
            nested.push_str(&format!("Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n"))
        });
        nested.push_str("\nwords\n");
        assert!(fields_of(&nested).is_ok());
    }

    mod fuzz {
        use super::super::*;
        use proptest::prelude::*;

        const SEEDS: [&str; 3] = [
            "From a@b Mon Jan  6 10:00:00 2025\nFrom: =?koi8-r?B?5M/C?= <a@b.example>\nDate: Mon, 6 Jan 2025 10:00:00 +0100\n\nx",
            "To: a@b\nContent-Type: multipart/mixed; boundary=\"x\"\n\n--x\nContent-Type: text/html\n\n\
             <p>a&amp;b\n--x\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nRnJvbTogYUBiCgpoaQo=\n--x--\n",
            "Subject: =?iso-2022-jp?B?GyRCPkhMQBsoQg==?=\n\
             Content-Type: text/plain; charset=gb2312; name*0*=utf-8''%e2; name*1=x\n\
             Content-Transfer-Encoding: quoted-printable\n\n=C4=E3=\n=BA",
        ];

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(256))]
            #[test]
            fn mutated_mails_never_panic(
                seed in 0..SEEDS.len(),
                edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0u8..3), 0..12),
            ) {
                let mut bytes = SEEDS[seed].as_bytes().to_vec();
                for (at, byte, what) in edits {
                    let at = at.index(bytes.len().max(1));
                    match what {
                        _ if bytes.is_empty() => {}
                        0 => bytes[at] = byte,
                        1 => { bytes.remove(at); }
                        _ => bytes.truncate(at.max(bytes.len() / 2)),
                    }
                }
                looks_like_mail(&bytes);
                has_more_messages(&bytes);
                let _ = extract(&bytes, &mut Fields::default());
            }
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let mut text = String::new();
        append_paragraph(&"\u{e9}".repeat(TEXT_BYTES_MAX / 2 - 1), &mut text);
        append_paragraph("\u{e9}words", &mut text);
        assert!(text.ends_with("\n\n\u{e9}") && text.len() == TEXT_BYTES_MAX + 2);
        append_paragraph("words", &mut text);
        assert_eq!(text.len(), TEXT_BYTES_MAX + 2);
    }
}
