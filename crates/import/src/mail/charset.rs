//! Text of mail whose character set is not named. Old mail has such bytes in its header and in its text.
//!
//! RFC 5322 allows only ASCII there, and newer mail has UTF-8. Other bytes would become replacement characters, so the
//! character set is guessed ([`charset`]). Headers in ISO-2022-JP are ASCII with escape sequences; they are decoded, too.
//! Left out: the headers of nested messages, and of parts except for the names of attachments.

use super::body::html_text;
use super::{PARSER, cost, header_bytes, header_name};
use crate::extract::{HtmlTime, charset};
use encoding_rs::{Encoding, ISO_2022_JP};
use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::{Encoding as TransferEncoding, Message, MessagePart, MimeHeaders, PartType};
use std::borrow::Cow;

/// The escape sequence with which a text in ISO-2022-JP changes to two bytes a character (RFC 1468).
const TO_KANJI: &[u8] = b"\x1b$";

/// The message with the lines of its header in UTF-8.
pub(super) fn with_readable_header(message: &[u8]) -> Cow<'_, [u8]> {
    let (header, rest) = message.split_at(header_bytes(message));
    if is_readable(header) {
        return Cow::Borrowed(message);
    }
    // A few letters are too little for a guess. The rest of the mail is usually in the same language.
    let mut readable = in_utf_8(header, charset::named_or_guessed(message));
    readable.extend_from_slice(rest);
    Cow::Owned(readable)
}

/// Maximum number of header bytes of one message that are read again for the names of its attachments. The names beyond
/// have replacement characters.
const NAMES_BYTES_MAX: usize = 64 * 1024;

/// Finds the names of the attachments of one message.
#[derive(Default)]
pub(super) struct AttachmentNames {
    /// Number of header bytes that were read again.
    reread_bytes: usize,
    /// The character set of headers that are not readable. The search takes time, so it is done once a message.
    encoding: Option<&'static Encoding>,
}

impl AttachmentNames {
    /// The name of the attachment `part` of `message`.
    pub(super) fn name<'m>(
        &mut self,
        message: &'m Message<'_>,
        part: &'m MessagePart<'_>,
    ) -> Option<Cow<'m, str>> {
        let name = part.attachment_name()?;
        let header = part.offset_header as usize..part.offset_body as usize;
        match message.raw_message.get(header) {
            Some(header) if !is_readable(header) => {
                let encoding =
                    *self.encoding.get_or_insert_with(|| charset::named_or_guessed(&message.raw_message));
                let readable = in_utf_8(&name_fields(header), encoding);
                self.reread_bytes += readable.len();
                // The decoded bytes may take longer to parse than the raw bytes, which were checked.
                if self.reread_bytes > NAMES_BYTES_MAX || cost::check(&readable).is_err() {
                    return Some(name.into());
                }
                let read = PARSER.parse(&readable);
                Some(
                    read.and_then(|part| part.attachment_name().map(str::to_owned))
                        .map_or(name.into(), Cow::Owned),
                )
            }
            _ => Some(name.into()),
        }
    }
}

/// The fields of a part's header that may name the part. White space continues a field on the next line.
fn name_fields(header: &[u8]) -> Vec<u8> {
    let (mut fields, mut is_kept) = (Vec::new(), false);
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(b" ") && !line.starts_with(b"\t") {
            is_kept = header_name(line).is_some_and(|name| {
                name.eq_ignore_ascii_case(b"content-type")
                    || name.eq_ignore_ascii_case(b"content-disposition")
            });
        }
        if is_kept {
            fields.extend_from_slice(line);
        }
    }
    fields
}

/// True for a header that is UTF-8 without the escape sequences of ISO-2022-JP.
fn is_readable(header: &[u8]) -> bool {
    std::str::from_utf8(header).is_ok() && memchr::memmem::find(header, TO_KANJI).is_none()
}

/// The lines of a header in UTF-8. `encoding`: the character set of lines that are not UTF-8.
fn in_utf_8(header: &[u8], encoding: &'static Encoding) -> Vec<u8> {
    let mut readable = Vec::with_capacity(header.len() * 3 / 2);
    for line in header.split_inclusive(|byte| *byte == b'\n') {
        let decoded = if memchr::memmem::find(line, TO_KANJI).is_some() {
            ISO_2022_JP.decode_without_bom_handling_and_without_replacement(line)
        } else if std::str::from_utf8(line).is_err() && !charset::is_mostly_utf_8(line) {
            Some(encoding.decode_without_bom_handling(line).0)
        } else {
            None
        };
        readable.extend_from_slice(decoded.as_deref().map_or(line, str::as_bytes));
    }
    readable
}

/// The text of a part that the library could not read, because the part names no character set or a wrong one.
pub(super) fn guessed_text(message: &Message<'_>, part: &MessagePart<'_>, time: &HtmlTime) -> Option<String> {
    let (PartType::Text(read) | PartType::Html(read)) = &part.body else { return None };
    let charset_name = part.content_type().and_then(|kind| kind.attribute("charset"));
    // The library reads other bytes than ASCII as windows-1252 then, one character a byte.
    let is_wrongly_ascii =
        !read.is_ascii() && charset_name.is_some_and(|name| charset::is_ascii(name.as_bytes()));
    if !is_wrongly_ascii && !read.contains(char::REPLACEMENT_CHARACTER) {
        return None;
    }
    let raw = message.raw_message.get(part.offset_body as usize..part.offset_end as usize)?;
    let bytes = match part.encoding {
        TransferEncoding::None => Cow::Borrowed(raw),
        TransferEncoding::QuotedPrintable => Cow::Owned(quoted_printable_decode(raw)?),
        TransferEncoding::Base64 => Cow::Owned(base64_decode(raw)?),
    };
    // The library may have read other bytes than these. And the sender may have written replacement characters.
    let is_as_read = match is_wrongly_ascii {
        true => read.chars().count() == bytes.len(),
        false => {
            std::str::from_utf8(&bytes).is_err()
                && String::from_utf8_lossy(&bytes).trim_end() == read.trim_end()
        }
    };
    if !is_as_read {
        return None;
    }
    Some(match part.body {
        PartType::Html(_) => html_text(&charset::decode_html(&bytes), time),
        _ => charset::decode(&bytes).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::fields::Fields;
    use crate::mail::extract;
    use encoding_rs::{ISO_2022_JP, KOI8_R, SHIFT_JIS, UTF_8, WINDOWS_1252};

    fn field(mail: &[u8], name: &str) -> String {
        let mut fields = Fields::default();
        extract(mail, &mut fields).expect("a mail");
        String::from_utf8(fields.get(name).unwrap_or_default().to_vec()).expect("UTF-8")
    }

    #[test]
    fn text_and_header_without_a_character_set_are_guessed() {
        let german = "Die Größe der Bäume in München übertrifft die Höhe der Häuser.";
        let russian = "Съешь же ещё этих мягких французских булок, да выпей чаю.";
        for (encoding, text) in [(WINDOWS_1252, german), (KOI8_R, russian)] {
            for line_end in ["\n", "\r\n"] {
                let lines =
                    [&format!("From: {text} <a@b.example>"), &format!("Subject: {text}"), "", text, ""];
                let bytes = encoding.encode(&lines.join(line_end)).0.into_owned();
                assert_eq!(field(&bytes, "subject"), text);
                assert_eq!(field(&bytes, "body"), text);
                assert_eq!(field(&bytes, "from_address"), "a@b.example");
            }
        }
    }

    #[test]
    fn encoded_text_without_a_character_set_is_guessed() {
        for (encoding, body) in [
            ("quoted-printable", "Gr=FC=DFe aus M=FCnchen"),
            ("base64", "R3L832UgYXVzIE38bmNoZW4="),
            ("8bit", "Gr\u{fc}\u{df}e aus M\u{fc}nchen"),
        ] {
            for kind in ["text/plain", "text/html", "text/plain; charset=utf-8"] {
                let mail = format!(
                    "From: a@b.example\nMIME-Version: 1.0\nContent-Type: {kind}\nContent-Transfer-Encoding: {encoding}\n\n{body}\n"
                );
                let bytes = WINDOWS_1252.encode(&mail).0.into_owned();
                assert_eq!(field(&bytes, "body"), "Grüße aus München", "{kind}, {encoding}");
            }
        }
    }

    #[test]
    fn header_has_the_character_set_of_the_text() {
        let mail = "From: a@b.example\nSubject: я\nContent-Type: text/plain; charset=koi8-r\n\nы\n";
        let bytes = KOI8_R.encode(mail).0.into_owned();
        assert_eq!((field(&bytes, "subject"), field(&bytes, "body")), ("я".to_string(), "ы".to_string()));
    }

    #[test]
    fn names_of_attachments_have_the_character_set_of_the_text() {
        for (encoding, name) in [
            (WINDOWS_1252, "Größe und Gewicht.txt"),
            (KOI8_R, "Съешь же ещё.txt"),
            (SHIFT_JIS, "日本語の文書.txt"),
            (ISO_2022_JP, "日本語の文書.txt"),
            (UTF_8, "Größe und Gewicht.txt"),
        ] {
            for header in ["Content-Disposition: attachment; filename", "Content-Type: image/png; name"] {
                let mail = format!(
                    "From: a@b.example\nSubject: {name}\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
                     Content-Type: text/plain; charset={}\n\nText\n--b\n{header}=\"{name}\"\n\nx\n--b--\n",
                    encoding.name()
                );
                let bytes = encoding.encode(&mail).0.into_owned();
                let found = (field(&bytes, "subject"), field(&bytes, "attachments"));
                assert_eq!(found, (name.to_string(), name.to_string()), "{}, {header}", encoding.name());
            }
        }
    }

    #[test]
    fn hard_headers_of_attachments_are_not_read_again() {
        let name = "Größe.txt";
        let part = |line: &str| {
            format!(
                "--b\nContent-Type: text/plain;\n filename={line}\nContent-Disposition: attachment;\n filename=\"{name}\"\n\nx\n"
            )
        };
        let head = "From: a@b.example\nContent-Type: multipart/mixed; boundary=b; charset=windows-1252\n\n";
        let names = |parts: &str| {
            let mail = format!("{head}{parts}--b--\n");
            field(&WINDOWS_1252.encode(&mail).0, "attachments")
        };
        assert_eq!(names(&part("x")), name);
        // Without `ESC ( B`, which the decoder drops, each of these is the begin of an encoded word.
        let hidden = format!("\u{1b}$B0!\u{1b}(B{}", "=\u{1b}(B?aa?q?x".repeat(20_000));
        assert_eq!(names(&part(&hidden)), "Gr\u{fffd}\u{fffd}e.txt");
        let many = names(&part(&"y".repeat(1000)).repeat(100));
        let readable = many.lines().filter(|line| *line == name).count();
        assert!((50..70).contains(&readable) && many.lines().count() == 100, "{readable}");
    }

    #[test]
    fn wrong_name_of_ascii_is_ignored() {
        let text = "Съешь же ещё этих мягких французских булок, да выпей чаю.";
        let mail = format!(
            "From: a@b.example\nX-Note: charset=koi8-u\nSubject: {text}\nContent-Type: text/plain; charset=us-ascii\n\n{text}\n"
        );
        for bytes in [KOI8_R.encode(&mail).0.into_owned(), mail.into_bytes()] {
            assert_eq!(
                (field(&bytes, "subject"), field(&bytes, "body")),
                (text.to_string(), text.to_string())
            );
        }
    }

    #[test]
    fn stray_byte_does_not_change_the_other_letters() {
        let text = "Die Größe der Bäume in München";
        for kind in ["text/plain", "text/plain; charset=utf-8"] {
            let mail =
                format!("From: a@b.example\nSubject: {text} \nContent-Type: {kind}\n\n{text}").into_bytes();
            let at = mail.iter().position(|byte| *byte == b'\n').expect("a line") + "\nSubject: ".len();
            let stray = [&mail[..at], b"\xff", &mail[at..], b"\xff"].concat();
            assert_eq!(field(&stray, "subject"), format!("\u{fffd}{text}"), "{kind}");
            assert_eq!(field(&stray, "body"), format!("{text}\u{fffd}"), "{kind}");
        }
    }

    #[test]
    fn replacement_characters_of_the_sender_stay() {
        let mail = "From: a@b.example\nSubject: \u{fffd}\n\na \u{fffd} b\n";
        assert_eq!(field(mail.as_bytes(), "subject"), "\u{fffd}");
        assert_eq!(field(mail.as_bytes(), "body"), "a \u{fffd} b");
    }
}
