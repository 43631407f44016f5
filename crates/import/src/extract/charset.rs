//! Character sets: whether bytes are text, and the text itself.
//!
//! A byte order mark decides first. Without one, the bytes are UTF-16 if every other byte is zero, or ISO-2022-JP if a
//! page says so and has an escape; both are valid UTF-8, too. Otherwise valid UTF-8 is UTF-8. Else the character set
//! that a page names decides. Without a name, text that is mostly UTF-8 is UTF-8, and last comes a guess by the letters'
//! frequencies (chardetng, which browsers use).

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, ISO_2022_JP, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};
use std::borrow::Cow;

/// Number of bytes at the beginning of a page in which the name of its character set is searched.
const META_BYTES: usize = 1024;
/// Number of bytes from which the character set is guessed.
const GUESS_BYTES: usize = 64 * 1024;
/// The byte with which ISO-2022-JP changes the meaning of the bytes after it.
const ESCAPE: u8 = 0x1b;

/// True when a document with this beginning is text in some character set.
pub(super) fn is_text(beginning: &[u8]) -> bool {
    if Encoding::for_bom(beginning).is_some() || utf_16(beginning).is_some() {
        return true;
    }
    // Text has at most one control character in 100 bytes, and never a zero. Escape is allowed, because ISO-2022-JP and
    // the colours of terminals use it.
    let is_control_byte = |b: &u8| matches!(b, 0..=8 | 14..=26 | 28..=31 | 127);
    !beginning.contains(&0)
        && beginning.iter().filter(|b| is_control_byte(b)).count() * 100 <= beginning.len()
}

/// The text of a document.
pub(crate) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    decode_as(bytes, None)
}

/// The text of a page, which may name its character set.
pub(crate) fn decode_html(bytes: &[u8]) -> Cow<'_, str> {
    decode_as(bytes, declared(&bytes[..bytes.len().min(META_BYTES)]))
}

fn decode_as<'a>(bytes: &'a [u8], declared: Option<&'static Encoding>) -> Cow<'a, str> {
    if let Some((encoding, mark_bytes)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[mark_bytes..]).0;
    }
    let escaped = declared.filter(|encoding| *encoding == ISO_2022_JP && bytes.contains(&ESCAPE));
    if let Some(encoding) = utf_16(&bytes[..bytes.len().min(super::SNIFF_BYTES)]).or(escaped) {
        return encoding.decode_without_bom_handling(bytes).0;
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    if declared.is_none() && is_mostly_utf_8(bytes) {
        return String::from_utf8_lossy(bytes);
    }
    declared.unwrap_or_else(|| guessed(bytes)).decode_without_bom_handling(bytes).0
}

/// The character set of a mail whose header is not UTF-8: the one that the mail names, or a guess.
pub(crate) fn named_or_guessed(mail: &[u8]) -> &'static Encoding {
    let beginning = &mail[..mail.len().min(GUESS_BYTES)];
    let content_type = memchr::memmem::find(&beginning.to_ascii_lowercase(), b"content-type:");
    let declared = content_type.and_then(|from| declared(&beginning[from..]));
    declared.filter(|encoding| *encoding != UTF_8).unwrap_or_else(|| guessed(mail))
}

/// True when more characters that are not ASCII are valid UTF-8 than invalid: a text that was cut inside a character, or has
/// a stray byte. Text in another character set is hardly ever valid UTF-8.
pub(crate) fn is_mostly_utf_8(bytes: &[u8]) -> bool {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    valid > invalid
}

fn guessed(bytes: &[u8]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(&bytes[..bytes.len().min(GUESS_BYTES)], bytes.len() <= GUESS_BYTES);
    detector.guess(None, Utf8Detection::Allow)
}

/// UTF-16 without a byte order mark. In text that is mostly Latin, every other byte is zero.
fn utf_16(beginning: &[u8]) -> Option<&'static Encoding> {
    let zeros = |from: usize| beginning.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let (even, odd, half) = (zeros(0), zeros(1), beginning.len() / 2);
    if half < 4 {
        return None;
    }
    if even == 0 && odd * 10 >= half * 7 {
        Some(UTF_16LE)
    } else if odd == 0 && even * 10 >= half * 7 {
        Some(UTF_16BE)
    } else {
        None
    }
}

/// The character set that a page names in `<meta charset=...>`, or an XML declaration in `encoding=...`.
fn declared(beginning: &[u8]) -> Option<&'static Encoding> {
    let lower = beginning.to_ascii_lowercase();
    let at = |word: &[u8]| memchr::memmem::find(&lower, word).map(|at| at + word.len());
    let from = at(b"charset=").or_else(|| at(b"encoding="))?;
    let rest = &lower[from..];
    let label = rest.strip_prefix(b"\"").or(rest.strip_prefix(b"'")).unwrap_or(rest);
    let is_label = |b: &&u8| b.is_ascii_alphanumeric() || b"-_:.".contains(b);
    let label: Vec<u8> = label.iter().take(40).take_while(is_label).copied().collect();
    // Bytes that are not UTF-8 are not ASCII either.
    if is_ascii(&label) {
        return None;
    }
    // The page up to here is ASCII, so it cannot be UTF-16, even if it says so.
    let named = Encoding::for_label(&label)?;
    // Ignore names that browsers refuse for safety (iso-2022-kr): they decode a whole page to one replacement
    // character.
    (named != REPLACEMENT).then(|| if named == UTF_16LE || named == UTF_16BE { UTF_8 } else { named })
}

/// True for a name of ASCII.
pub(crate) fn is_ascii(label: &[u8]) -> bool {
    label.eq_ignore_ascii_case(b"us-ascii") || label.eq_ignore_ascii_case(b"ascii")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str =
        "Die Größe der Bäume in München übertrifft die Höhe der Häuser, sagte der Bürgermeister.";
    const RUSSIAN: &str =
        "Съешь же ещё этих мягких французских булок, да выпей чаю. Широкая электрификация южных губерний.";

    #[test]
    fn every_character_set_gives_the_same_text() {
        assert_eq!(decode(SAMPLE.as_bytes()), SAMPLE);
        let latin = encoding_rs::WINDOWS_1252.encode(SAMPLE).0.into_owned();
        assert!(is_text(&latin));
        assert_eq!(decode(&latin), SAMPLE);
        // A stray byte, and a text that was cut inside a character.
        assert_eq!(decode(&[SAMPLE.as_bytes(), b"\xff"].concat()), format!("{SAMPLE}\u{fffd}"));
        assert_eq!(decode(&[SAMPLE.as_bytes(), b"\xc3"].concat()), format!("{SAMPLE}\u{fffd}"));
        for encoding in [encoding_rs::WINDOWS_1251, encoding_rs::KOI8_R] {
            assert_eq!(decode(&encoding.encode(RUSSIAN).0), RUSSIAN, "{}", encoding.name());
        }
        let plain = "plain letters, no accent";
        let little: Vec<u8> = plain.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = plain.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!([decode(&little), decode(&big)], [plain, plain]);
        let little: Vec<u8> = SAMPLE.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = SAMPLE.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [&little, &big] {
            assert!(is_text(bytes));
            assert_eq!(decode(bytes), SAMPLE);
        }
        for (mark, bytes) in
            [(&b"\xff\xfe"[..], &little[..]), (b"\xfe\xff", &big), (b"\xef\xbb\xbf", SAMPLE.as_bytes())]
        {
            assert_eq!(decode(&[mark, bytes].concat()), SAMPLE);
        }
    }

    #[test]
    fn the_character_set_of_a_page_is_detected() {
        for head in [
            "<meta charset=koi8-r>",
            "<?xml version='1.0' encoding='KOI8-R'?>",
            "<META content=\"text/html; charset=KOI8-R\">",
        ] {
            let page = encoding_rs::KOI8_R.encode("я").0.into_owned();
            let page = [head.as_bytes(), &page].concat();
            assert!(decode_html(&page).ends_with('я'), "{head}");
        }
        assert_eq!(decode_html(b"<meta charset=utf-16>x"), "<meta charset=utf-16>x");
        let page = [b"<meta charset=iso-2022-jp>", &*ISO_2022_JP.encode("日本語").0].concat();
        assert!(decode_html(&page).ends_with("日本語"), "{}", decode_html(&page));
        assert!(decode_html(b"<meta charset=iso-2022-kr>text").ends_with("text"));
    }

    #[test]
    fn binary_bytes_are_not_text() {
        assert!(!is_text(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"));
        assert!(!is_text(&(0..=255).collect::<Vec<u8>>()));
        assert!(is_text(b"") && is_text(b"\x1b[1mbold\x1b[0m and more text that is longer than its colours"));
    }
}
