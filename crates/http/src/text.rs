//! Byte strings in JSON, in both directions, and in URIs.
//!
//! The convention: a byte string is a JSON string. Valid UTF-8 is written unchanged. Other bytes, and text that
//! starts with `base64:` itself, are written as `base64:` and their Base64 (RFC 4648, padded). So every byte string
//! has exactly one form. The convention applies to values and to the member names of objects.

use crate::problem::Problem;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;

/// Prefix of a JSON string that has bytes in Base64, because the bytes are not valid UTF-8.
pub const BASE64_PREFIX: &str = "base64:";

/// Appends `bytes` as a JSON string, quotes included.
pub fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    match is_plain(bytes) {
        true => escape(bytes, out),
        false => {
            out.extend_from_slice(BASE64_PREFIX.as_bytes());
            out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
        }
    }
    out.push(b'"');
}

/// True when `bytes` can be written unchanged.
pub fn is_plain(bytes: &[u8]) -> bool {
    !bytes.starts_with(BASE64_PREFIX.as_bytes()) && std::str::from_utf8(bytes).is_ok()
}

/// Appends UTF-8 `bytes` with JSON's escapes. `bytes` may be any part of a text.
pub fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    for (i, &b) in bytes.iter().enumerate() {
        let short = match b {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => continue,
        };
        out.extend_from_slice(&bytes[from..i]);
        from = i + 1;
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            out.extend_from_slice(format!("{b:04x}").as_bytes());
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

/// Appends the bytes of a JSON string to `out`. Returns `None` when the text starts with `base64:` and is not valid
/// Base64; then `out` may have a part of the bytes.
pub fn unquote(text: &str, out: &mut Vec<u8>) -> Option<()> {
    match text.strip_prefix(BASE64_PREFIX) {
        Some(encoded) => BASE64_STANDARD.decode_vec(encoded, out).ok(),
        None => {
            out.extend_from_slice(text.as_bytes());
            Some(())
        }
    }
}

/// Decodes percent-encoding in a part of a URI. `place` names the part in the error.
///
/// # Errors
/// 400 when a `%` is not followed by two hexadecimal digits.
pub fn percent_decode(text: &str, place: &str) -> Result<Vec<u8>, Problem> {
    let is_digit = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let is_whole = |at: usize| is_digit(bytes.get(at + 1)) && is_digit(bytes.get(at + 2));
    match memchr::memchr_iter(b'%', bytes).all(is_whole) {
        true => Ok(percent_decode_str(text).collect()),
        false => Err(Problem::bad_request(format!(
            "the {place} has a % that two hexadecimal digits do not follow"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn utf8_stays_text_and_other_bytes_become_base64() {
        for (bytes, json) in [
            (&b"plain"[..], r#""plain""#),
            (b"a\"b\\c\n\x01\x7f", "\"a\\\"b\\\\c\\n\\u0001\x7f\""),
            ("é\u{1F600}".as_bytes(), "\"é\u{1F600}\""),
            (b"\xff\x00", r#""base64:/wA=""#),
            (b"base64:x", r#""base64:YmFzZTY0Ong=""#),
            (b"", r#""""#),
        ] {
            let mut out = Vec::new();
            quote(bytes, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), json);
        }
        assert_eq!(unquote("base64:!", &mut Vec::new()), None);
    }

    proptest! {
        #[test]
        fn every_byte_string_survives_quoting(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            quote(&bytes, &mut out);
            let text: String = serde_json::from_slice(&out).expect("JSON");
            let mut back = Vec::new();
            prop_assert_eq!(unquote(&text, &mut back), Some(()));
            prop_assert_eq!(back, bytes);
        }
    }
}
