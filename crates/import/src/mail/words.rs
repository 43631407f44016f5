//! Encoded words (`=?utf-8?B?w7w=?=`, RFC 2047) whose characters are divided between neighbours.
//!
//! A word must hold whole characters, and the parsing library decodes each word alone. Many programs divide the bytes of a
//! text anywhere instead. [`with_whole_words`] joins the words of such a text before the message is parsed.

use super::header_bytes;
use encoding_rs::Encoding;
use mail_parser::decoders::base64::base64_decode;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

/// Maximum number of bytes of the name of a character set.
const CHARSET_BYTES_MAX: usize = 40;

/// An encoded word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word<'m> {
    /// Where the word is in the header.
    range: Range<usize>,
    charset: &'m [u8],
    /// The encoding in lower case: `b` or `q`.
    encoding: u8,
    data: &'m [u8],
}

/// The message with the words of its header joined where a character is divided between neighbours of the same character
/// set and encoding.
pub(super) fn with_whole_words(message: &[u8]) -> Cow<'_, [u8]> {
    let header = &message[..header_bytes(message)];
    let (mut joined, mut copied, mut run) = (Vec::new(), 0, Vec::<Word<'_>>::new());
    let mut words = Words { header, at: 0 }.peekable();
    while let Some(word) = words.next() {
        run.push(word);
        if words.peek().is_some_and(|next| are_neighbours(header, &run[run.len() - 1], next)) {
            continue;
        }
        if let Some(text) = text_of(&run) {
            joined.extend_from_slice(&header[copied..run[0].range.start]);
            joined.extend_from_slice(encoded(&text).as_bytes());
            copied = run[run.len() - 1].range.end;
        }
        run.clear();
    }
    if copied == 0 {
        return Cow::Borrowed(message);
    }
    joined.extend_from_slice(&message[copied..]);
    Cow::Owned(joined)
}

/// The encoded words of a header.
struct Words<'m> {
    header: &'m [u8],
    at: usize,
}

impl<'m> Iterator for Words<'m> {
    type Item = Word<'m>;

    fn next(&mut self) -> Option<Word<'m>> {
        loop {
            let start = self.at + memchr::memmem::find(&self.header[self.at..], b"=?")?;
            self.at = start + 2;
            if let Some(word) = self.word(start) {
                self.at = word.range.end;
                return Some(word);
            }
        }
    }
}

impl<'m> Words<'m> {
    /// The word that begins at `start`.
    fn word(&self, start: usize) -> Option<Word<'m>> {
        let rest = &self.header[start + 2..];
        let charset_bytes = rest.iter().take(CHARSET_BYTES_MAX + 1).position(|b| *b == b'?')?;
        let (charset, rest) = rest.split_at(charset_bytes);
        let [b'?', encoding @ (b'b' | b'B' | b'q' | b'Q'), b'?', rest @ ..] = rest else { return None };
        // RFC 2231: a language may follow the name.
        let charset = charset.split(|b| *b == b'*').next().unwrap_or_default();
        let data_bytes = memchr::memchr2(b'?', b'\n', rest)?;
        let (data, rest) = rest.split_at(data_bytes);
        rest.starts_with(b"?=").then(|| Word {
            range: start..self.header.len() - rest.len() + 2,
            charset,
            encoding: encoding.to_ascii_lowercase(),
            data,
        })
    }
}

/// True when only white space lies between two words of the same character set and encoding.
fn are_neighbours(header: &[u8], word: &Word<'_>, next: &Word<'_>) -> bool {
    let between = &header[word.range.end..next.range.start];
    // A line that does not begin with white space is another field.
    let is_folded =
        |(at, byte): (usize, &u8)| *byte != b'\n' || matches!(between.get(at + 1), Some(b' ' | b'\t'));
    word.encoding == next.encoding
        && word.charset.eq_ignore_ascii_case(next.charset)
        && between.iter().all(u8::is_ascii_whitespace)
        && between.iter().enumerate().all(is_folded)
}

/// The text of neighbours, if they have more whole characters together than alone.
fn text_of(words: &[Word<'_>]) -> Option<String> {
    if words.len() < 2 {
        return None;
    }
    let encoding = Encoding::for_label(words[0].charset)?;
    let bytes: Vec<Vec<u8>> = words.iter().map(decoded).collect::<Option<_>>()?;
    let text = |bytes: &[u8]| encoding.decode_without_bom_handling(bytes).0.into_owned();
    let damages = |text: &str| text.matches(char::REPLACEMENT_CHARACTER).count();
    let alone: usize = bytes.iter().map(|bytes| damages(&text(bytes))).sum();
    let together = text(&bytes.concat());
    (damages(&together) < alone).then_some(together)
}

/// The bytes of a word.
fn decoded(word: &Word<'_>) -> Option<Vec<u8>> {
    if word.encoding == b'b' {
        return base64_decode(word.data);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(word.data.len()), word.data);
    while let [first, after @ ..] = rest {
        rest = after;
        let hex = |at: usize| after.get(at).and_then(|b| char::from(*b).to_digit(16));
        bytes.push(match (first, hex(0), hex(1)) {
            (b'=', Some(high), Some(low)) => {
                rest = &after[2..];
                (high << 4 | low) as u8
            }
            (b'_', ..) => b' ',
            (other, ..) => *other,
        });
    }
    Some(bytes)
}

/// The text as one encoded word.
fn encoded(text: &str) -> String {
    let mut word = String::from("=?utf-8?Q?");
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => word.push(char::from(byte)),
            _ => drop(write!(word, "={byte:02X}")),
        }
    }
    word.push_str("?=");
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::mail::extract;

    fn field(mail: &str, name: &str) -> String {
        let mut fields = Fields::default();
        extract(mail.as_bytes(), &mut fields).expect("a mail");
        String::from_utf8(fields.get(name).unwrap_or_default().to_vec()).expect("UTF-8")
    }

    #[test]
    fn a_character_between_two_words_is_whole() {
        for (words, text) in [
            // `Größe`, divided within the `ö`.
            ("=?utf-8?B?R3LD?=\n =?utf-8?B?tsOfZQ==?=", "Größe"),
            ("=?UTF-8?b?R3LD?= \r\n\t=?utf-8*de?B?tsOfZQ==?=", "Größe"),
            ("=?utf-8?Q?Gr=C3?= =?utf-8?Q?=B6=C3?= =?utf-8?q?=9Fe?=", "Größe"),
            // `日本`, divided within the `日` and within the `本`.
            ("=?shift_jis?B?k/qW?= =?shift_jis?B?ew==?=", "日本"),
            ("=?utf-8?Q?a_?= =?utf-8?Q?b?=", "a b"),
            ("=?utf-8?Q?a=C3?= x =?utf-8?Q?=B6?=", "a\u{fffd} x \u{fffd}"),
            ("=?utf-8?Q?a=C3?= =?utf-8?B?tg==?=", "a\u{fffd}\u{fffd}"),
        ] {
            for line_end in ["\n", "\r\n"] {
                let lines =
                    [&format!("From: {words} <a@b.example>"), &format!("Subject: {words}"), "", "text", ""];
                let mail = lines.join(line_end);
                assert_eq!(field(&mail, "subject"), text, "{words}");
                assert_eq!(field(&mail, "from"), format!("{text} <a@b.example>"), "{words}");
            }
        }
    }

    #[test]
    fn only_divided_words_of_one_field_of_the_header_are_joined() {
        for unchanged in [
            "Subject: =?utf-8?B?R3LDtg==?= =?utf-8?B?w59l?=\n\nx",
            "Subject: =?utf-8?Q?a=C3?=\nTo: =?utf-8?Q?=B6?=\n\nx",
            "Subject: =?utf-8?Q?a=C3?=\n\n=?utf-8?Q?a=C3?= =?utf-8?Q?=B6?=",
            "Subject: =?=?utf-8?=?utf-8?Q?=?x??=\n\n",
            "Subject: =?utf-8?Q?=C3?= =?none?Q?=B6?= =?none?Q?=B6?=\n\n",
        ] {
            assert!(matches!(with_whole_words(unchanged.as_bytes()), Cow::Borrowed(_)), "{unchanged}");
        }
        let mail = b"Subject: a =?utf-8?Q?=C3?= =?utf-8?Q?=B6?= b =?utf-8?Q?=C3?=  =?utf-8?Q?=9F?= c\n\nx";
        let joined = b"Subject: a =?utf-8?Q?=C3=B6?= b =?utf-8?Q?=C3=9F?= c\n\nx";
        assert_eq!(&*with_whole_words(mail), joined);
    }

    #[test]
    fn begins_of_words_without_an_end_take_little_time() {
        let mail = format!("Subject: {}\n\n", "=?utf-8?Q?x".repeat(1 << 20));
        assert!(matches!(with_whole_words(mail.as_bytes()), Cow::Borrowed(_)));
    }
}
