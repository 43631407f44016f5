//! The body of a mail: which parts of a message are its text, and this text.
//!
//! The parsing library says which parts are text and which are attachments. It is strict: a mail whose only text is
//! `text/calendar`, or is not divided as its header says, has no text for the library. [`Body::of`] then chooses the
//! first part with text (RFC 2046, section 4.1.4: a kind of text that is not known is plain text). [`text_of`] also
//! reads base64 with plain text behind it, which the footers of mailing lists make.

use super::charset;
use crate::extract::{HtmlTime, charset as bytes_charset};
use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::charsets::map::charset_decoder;
use mail_parser::decoders::html::html_to_text;
use mail_parser::{GetHeader, HeaderName, Message, MessagePart, MimeHeaders, PartType};
use std::borrow::Cow;

/// The parts of a message that are its body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Body<'m> {
    /// The texts of the body. None is blank.
    texts: Vec<Cow<'m, str>>,
    /// The part that the library counts as an attachment, and that is the body.
    chosen: Option<usize>,
}

impl<'m> Body<'m> {
    /// The body of `message`, without the messages in it. The first of these that has more than white space: the text
    /// parts, the HTML parts, and the first other part with text that is not an attachment.
    pub(crate) fn of(message: &'m Message<'_>) -> Body<'m> {
        Body::with_texts(message, usize::MAX)
    }
    /// As [`Body::of`], with one text at most: enough to tell the attachments.
    pub(crate) fn in_short(message: &'m Message<'_>) -> Body<'m> {
        Body::with_texts(message, 1)
    }
    fn with_texts(message: &'m Message<'_>, texts_max: usize) -> Body<'m> {
        let (time, mut blank) = (HtmlTime::new(), Vec::new());
        for ids in [&message.text_body, &message.html_body] {
            let mut texts = Vec::new();
            for id in ids.iter().map(|id| *id as usize) {
                let part = message.parts.get(id).filter(|_| texts.len() < texts_max && !blank.contains(&id));
                let Some(part) = part else { continue };
                match text_of(message, part, &time) {
                    Some(text) => texts.push(text),
                    None => blank.push(id),
                }
            }
            if !texts.is_empty() {
                return Body { texts, chosen: None };
            }
        }
        let leaves = message.parts.iter().filter(|part| !is_multipart(part)).count();
        let candidates = message.parts.iter().enumerate().filter(|(_, part)| may_be_body(part, leaves == 1));
        let others = candidates.filter(|(at, _)| !blank.contains(at));
        let mut found = others.filter_map(|(at, part)| Some((at, text_of(message, part, &time)?)));
        found.next().map_or_else(Body::default, |(at, text)| Body { texts: vec![text], chosen: Some(at) })
    }

    /// The texts of the body.
    pub(super) fn texts(&self) -> &[Cow<'m, str>] {
        &self.texts
    }

    /// The attachments of `message`, whose body this is: each with its number among all attachments of the library.
    pub(crate) fn attachments<'a, 'x>(
        &self,
        message: &'a Message<'x>,
    ) -> impl Iterator<Item = (usize, &'a MessagePart<'x>)> {
        let ids = message.attachments.iter().map(|id| *id as usize).enumerate();
        ids.filter(|(_, id)| self.chosen != Some(*id))
            .filter_map(|(number, id)| Some((number, message.parts.get(id)?)))
    }
}

fn is_multipart(part: &MessagePart<'_>) -> bool {
    matches!(part.body, PartType::Multipart(_))
}

/// True when a part that is no text for the library may be the body: text of any kind, or a part whose header says
/// `multipart`, and that has no boundary. A part with a name is an attachment, unless the message has no other part.
fn may_be_body(part: &MessagePart<'_>, is_alone: bool) -> bool {
    let kind = part.content_type().map(|kind| kind.ctype());
    let is_text = match &part.body {
        PartType::Text(_) | PartType::Html(_) => kind.is_none_or(|kind| matches!(kind, "text" | "multipart")),
        PartType::Binary(_) | PartType::InlineBinary(_) => kind == Some("multipart"),
        _ => false,
    };
    let is_attachment = part.content_disposition().is_some_and(|disposition| disposition.is_attachment());
    is_text && !is_attachment && (is_alone || part.attachment_name().is_none())
}

/// The text of a part: plain, or HTML that is converted to text. `None` when it is blank, or when the part has none.
fn text_of<'m>(message: &'m Message<'_>, part: &'m MessagePart<'_>, time: &HtmlTime) -> Option<Cow<'m, str>> {
    let read = mended_base64(message, part, time).or_else(|| charset::guessed_text(message, part, time));
    let text = match (read, &part.body) {
        (Some(text), _) => Cow::Owned(text),
        (None, PartType::Text(text)) => Cow::Borrowed(&**text),
        (None, PartType::Html(html)) => Cow::Owned(html_text(html, time)),
        (None, PartType::Binary(bytes) | PartType::InlineBinary(bytes))
            if part.content_type().is_some_and(|kind| kind.ctype() == "multipart") =>
        {
            bytes_charset::decode(bytes)
        }
        _ => return None,
    };
    (!is_blank(&text)).then_some(text)
}

/// The text of HTML. When the time is over, the parsing library reads the HTML: its cost is in line with the length, but it
/// joins some words.
pub(super) fn html_text(page: &str, time: &HtmlTime) -> String {
    time.text_of(page).unwrap_or_else(|| html_to_text(page))
}

/// True for a text without a visible character. Programs write no-break spaces and characters without a width into texts
/// that shall be empty.
fn is_blank(text: &str) -> bool {
    let is_invisible =
        |c| matches!(c, '\u{ad}' | '\u{34f}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
    text.chars().all(|c| c.is_whitespace() || is_invisible(c))
}

/// The text of a part in base64 that the library could not decode, because other lines follow the base64.
fn mended_base64(message: &Message<'_>, part: &MessagePart<'_>, time: &HtmlTime) -> Option<String> {
    let encoding = part.headers.header_value(&HeaderName::ContentTransferEncoding)?.as_text()?;
    if !part.is_encoding_problem || !encoding.eq_ignore_ascii_case("base64") {
        return None;
    }
    let raw = message.raw_message.get(part.offset_body as usize..part.offset_end as usize)?;
    let (encoded, rest) = raw.split_at(base64_bytes(raw));
    let bytes = base64_decode(encoded).filter(|bytes| !bytes.is_empty())?;
    let kind = part.content_type();
    let is_html = kind.is_some_and(|kind| kind.subtype() == Some("html"));
    let name = kind.and_then(|kind| kind.attribute("charset"));
    let decoder = name.and_then(|name| charset_decoder(name.as_bytes()));
    let named =
        decoder.map(|decode| decode(&bytes)).filter(|text| !text.contains(char::REPLACEMENT_CHARACTER));
    let text = match (named, is_html) {
        (Some(text), true) => html_text(&text, time),
        (Some(text), false) => text,
        (None, true) => html_text(&bytes_charset::decode_html(&bytes), time),
        (None, false) => bytes_charset::decode(&bytes).into_owned(),
    };
    let rest = bytes_charset::decode(rest);
    Some(match rest.trim() {
        "" => text,
        rest => format!("{}\n\n{rest}", text.trim_end()),
    })
}

/// The number of bytes at the beginning of `raw` that are lines of base64: up to a line with padding, to a blank line, or to
/// a line with another character.
fn base64_bytes(raw: &[u8]) -> usize {
    let mut len = 0;
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        if text.is_empty() && len > 0 {
            break;
        }
        let letters = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
        if !letters.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/')) {
            break;
        }
        len += line.len();
        if letters.len() < text.len() {
            break;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use crate::fields::Fields;
    use crate::mail::extract;
    use encoding_rs::KOI8_R;

    /// The fields `body` and `attachments` of a mail with this rest of its header.
    fn read(rest: &str) -> (String, String) {
        read_bytes(format!("From: a@b.example\nMIME-Version: 1.0\n{rest}").as_bytes())
    }

    fn read_bytes(mail: &[u8]) -> (String, String) {
        let mut fields = Fields::default();
        extract(mail, &mut fields).expect("a mail");
        let text = |name| String::from_utf8(fields.get(name).unwrap_or_default().to_vec()).expect("UTF-8");
        (text("body"), text("attachments"))
    }

    fn body(text: &str) -> (String, String) {
        (text.to_owned(), String::new())
    }

    #[test]
    fn html_is_the_body_when_the_plain_text_is_blank() {
        for blank in ["", " \n\t", "\u{a0}\n", "\u{200b}\u{feff}"] {
            for (begin, end) in [
                ("", ""),
                (
                    "Content-Type: multipart/related; boundary=c\n\n--c\n",
                    "--c\nContent-Type: image/png\n\nx\n--c--\n",
                ),
            ] {
                let mail = format!(
                    "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain; charset=utf-8\n\n\
                     {blank}\n--b\n{begin}Content-Type: text/html\n\n<p>invoice <b>4711</b></p>\n{end}--b--\n"
                );
                assert_eq!(read(&mail), body("invoice 4711"), "{blank:?} {begin}");
            }
        }
        assert_eq!(read("Content-Type: text/plain\n\n \n"), body(""));
    }

    #[test]
    fn the_words_of_html_stay_apart_and_scripts_are_no_text() {
        let html = "<title>no text</title><style>p{color:red}</style><p>from <b>x</b> y<br>z</p>\
                    <table><tr><td>A</td><td>B</td></tr></table><script>f()</script>";
        assert_eq!(read(&format!("Content-Type: text/html\n\n{html}\n")), body("from x y\nz\nA\tB"));
    }

    #[test]
    fn a_tag_with_very_many_attributes_ends_within_the_time_of_a_mail() {
        let attributes: String = (0..400_000).map(|n| format!("a{n:x} ")).collect();
        let (text, _) = read(&format!("Content-Type: text/html\n\n<a {attributes}>linked</a> text\n"));
        assert!(text.ends_with("text"), "{text:.40}");
    }

    #[test]
    fn the_only_text_is_the_body_whatever_its_kind() {
        for kind in [
            "text",
            "text/enriched",
            "text/markdown",
            "text/calendar; method=REQUEST; name=invite.ics",
            "multipart/mixed",
            "multipart/mixed; boundary=nowhere",
            "multipart/alternative",
        ] {
            assert_eq!(read(&format!("Content-Type: {kind}\n\nthe words\n")), body("the words"), "{kind}");
        }
        let mixed =
            |parts: &str| read(&format!("Content-Type: multipart/mixed; boundary=b\n\n{parts}--b--\n"));
        let image = "--b\nContent-Type: image/png; name=i.png\n\nx\n";
        let calendar = "--b\nContent-Type: text/calendar\n\nBEGIN:VCALENDAR\n";
        assert_eq!(mixed(&format!("{image}{calendar}")), ("BEGIN:VCALENDAR".to_owned(), "i.png".to_owned()));
        // Beside a body, a part of another kind is an attachment.
        assert_eq!(mixed(&format!("--b\n\nwords\n{calendar}")), body("words"));
        // A part with a name stays an attachment, and one that says so.
        let table = "--b\nContent-Type: text/csv; name=t.csv\n\n1,2\n";
        assert_eq!(mixed(&format!("{image}{table}")), (String::new(), "i.png\nt.csv".to_owned()));
        let disposed =
            "--b\nContent-Type: text/csv\nContent-Disposition: attachment; filename=t.csv\n\n1,2\n";
        assert_eq!(mixed(disposed), (String::new(), "t.csv".to_owned()));
        // Other data is never a body.
        assert_eq!(read("Content-Type: application/pdf\n\nx\n"), body(""));
        assert_eq!(
            read("Content-Type: application/pdf\nContent-Transfer-Encoding: base64\n\n!!\n"),
            body("")
        );
    }

    #[test]
    fn base64_with_plain_text_behind_it_is_decoded() {
        let mail = |kind: &str, text: &str| {
            read(&format!("Content-Type: {kind}\nContent-Transfer-Encoding: base64\n\n{text}"))
        };
        let plain = "text/plain; charset=utf-8";
        let footer = "\n____\nlist footer\n";
        // `Grüße an alle`, in one line and in two.
        for encoded in ["R3LDvMOfZSBhbiBhbGxl\n", "R3LDvMOf\nZSBhbiBhbGxl\n"] {
            assert_eq!(
                mail(plain, &format!("{encoded}{footer}")),
                body("Grüße an alle\n\n____\nlist footer")
            );
        }
        // `Grüße`, with padding: the letters behind it are not base64.
        assert_eq!(mail(plain, "R3LDvMOfZQ==\nfooter\n--\nend\n"), body("Grüße\n\nfooter\n--\nend"));
        // The first word of the footer has only letters of base64.
        assert_eq!(
            mail(plain, "R3LDvMOfZSBhbiBhbGxl\n\nUnsubscribe\nfoot!\n"),
            body("Grüße an alle\n\nUnsubscribe\nfoot!")
        );
        // `<p>x y</p>`.
        assert_eq!(mail("text/html", "PHA+eCB5PC9wPg==\n--\nend\n"), body("x y\n\n--\nend"));
        assert_eq!(mail(plain, "not base64 at all!\n"), body("not base64 at all!"));
        let part = format!(
            "--b\nContent-Type: {plain}\nContent-Transfer-Encoding: base64\n\nR3LDvMOfZQ==\n!\n--b--\n"
        );
        assert_eq!(read(&format!("Content-Type: multipart/mixed; boundary=b\n\n{part}")), body("Grüße\n\n!"));
        // `съ` in KOI8-R.
        let koi = "From: a@b.example\nContent-Type: text/plain; charset=koi8-r\nContent-Transfer-Encoding: base64\n\n\
                   098=\n-- \nя\n";
        assert_eq!(read_bytes(&KOI8_R.encode(koi).0).0.lines().next(), Some("съ"));
    }
}
