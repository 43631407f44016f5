//! Bounds the time for parsing a message: counts the steps of the parsing library before the library parses the
//! message.
//!
//! For each multipart header the library searches for the header's boundary in the rest of the message. If the boundary
//! does not occur, the search reads to the end. Thus the steps for a message with many multipart headers grow with the
//! square of the message's size: 2 MB take most of a minute. [`check`] computes an upper bound of these steps in one
//! pass, and refuses a message above [`STEPS_MAX`]. It also decodes and counts the messages inside base64 or
//! quoted-printable content, to the depth to which the library decodes them. It assumes that no boundary occurs, so the
//! count can be too high but never too low.
//!
//! In a header field the library searches for the end of each encoded word (`=?charset?q?text?=`). If a word has no end, the
//! search reads to the end of the field. For each continued parameter (`name*1=`), the library searches through the
//! parameters that it has found. Both grow with the square of the field's size: a subject of 320 kB took 25 seconds.

use super::MailError;
use memchr::{memchr, memchr_iter, memchr2_iter};

/// Maximum number of steps to parse one message. A step searches one byte, or compares [`COMPARED_PER_STEP`] bytes.
/// This number of steps takes some seconds.
pub const STEPS_MAX: u64 = 4 << 30;
/// The library decodes messages within messages up to this depth.
const DECODED_DEPTH_MAX: usize = 3;
/// The steps of a message of up to this number of bytes are not counted: they cannot exceed [`STEPS_MAX`]. In a message
/// of `n` bytes at most half of the bytes are dashes, and half are headers of 9 bytes: at most `n / 18` headers are
/// compared at `n / 2` places, in `n / 16` steps each. These are `n * n * n / 576` steps. Encoded content in the
/// message adds up to 7 times as many steps.
const UNCOUNTED_BYTES_MAX: usize = 6 << 10;
const _: () = assert!(8 * (UNCOUNTED_BYTES_MAX as u64).pow(3) / 576 < STEPS_MAX);
/// Number of bytes that the library compares with a boundary in one step.
const COMPARED_PER_STEP: u64 = 16;

/// Refuses a message that takes too many steps to parse.
///
/// # Errors
/// [`MailError::Costly`].
pub(crate) fn check(message: &[u8]) -> Result<(), MailError> {
    if message.len() <= UNCOUNTED_BYTES_MAX {
        return Ok(());
    }
    match count(message, DECODED_DEPTH_MAX, STEPS_MAX) {
        Some(_) => Ok(()),
        None => Err(MailError::Costly),
    }
}

/// Counts the steps for `bytes` and for the messages that are encoded in `bytes`. `None` when there are more than
/// `allowed`.
fn count(bytes: &[u8], depth: usize, allowed: u64) -> Option<u64> {
    let mut steps = count_plain(bytes, allowed)?;
    steps += count_fields(bytes, allowed - steps)?;
    if depth == 0 || find(bytes, b"message/").next().is_none() {
        return Some(steps);
    }
    if find(bytes, b"base64").next().is_some() {
        for decoded in base64_bodies(bytes) {
            steps += count(&decoded, depth - 1, allowed - steps)?;
        }
    }
    if find(bytes, b"quoted-printable").next().is_some() {
        steps += count(&unquote(bytes), depth - 1, allowed - steps)?;
    }
    Some(steps)
}

/// Counts the steps for `bytes` without decoding content. Assumes that each multipart header makes the library search
/// to the end, and compare the boundary at each pair of dashes.
fn count_plain(bytes: &[u8], allowed: u64) -> Option<u64> {
    let headers: Vec<usize> = find(bytes, b"multipart").collect();
    let (mut steps, mut dashes, mut after, mut field_end) = (0u64, 0u64, bytes.len(), bytes.len());
    for at in headers.into_iter().rev() {
        let gap = &bytes[at..after];
        dashes += memchr_iter(b'-', gap).filter(|i| bytes.get(at + i + 1) == Some(&b'-')).count() as u64;
        // A header field ends at the end of a line. If a blank follows, the field continues on the next line.
        let ends = memchr_iter(b'\n', gap).find(|i| !matches!(bytes.get(at + i + 1), Some(b' ' | b'\t')));
        field_end = ends.map_or(field_end, |i| at + i);
        let compared = dashes.saturating_mul((field_end - at) as u64) / COMPARED_PER_STEP;
        steps = steps.saturating_add((bytes.len() - at) as u64).saturating_add(compared);
        if steps > allowed {
            return None;
        }
        after = at;
    }
    Some(steps)
}

/// Counts the steps for encoded words and continued parameters. Every line that begins like a header field counts as one,
/// also in a body.
fn count_fields(bytes: &[u8], allowed: u64) -> Option<u64> {
    let (mut steps, mut at) = (0u64, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let mut ends = memchr_iter(b'\n', rest).map(|end| end + 1);
        let end = ends.find(|end| !matches!(rest.get(*end), Some(b' ' | b'\t'))).unwrap_or(rest.len());
        let field = &rest[..end];
        at += end;
        if !begins_like_a_field(field) {
            continue;
        }
        let words = memchr_iter(b'=', field).filter(|i| field.get(i + 1) == Some(&b'?'));
        let searched: u64 = words.map(|i| (field.len() - i) as u64).sum();
        let parameters = memchr_iter(b'*', field).count() as u64;
        steps = steps.saturating_add(searched).saturating_add(parameters.saturating_mul(parameters));
        if steps > allowed {
            return None;
        }
    }
    Some(steps)
}

/// True for a name and a colon.
fn begins_like_a_field(line: &[u8]) -> bool {
    let name = line.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')).count();
    let after = line[name..].iter().find(|b| !matches!(b, b' ' | b'\t'));
    name > 0 && after == Some(&b':')
}

/// The offsets of `word` in `bytes`, ignoring case. `word` is in lower case.
fn find<'a>(bytes: &'a [u8], word: &'static [u8]) -> impl Iterator<Item = usize> + 'a {
    let starts = memchr2_iter(word[0], word[0].to_ascii_uppercase(), bytes);
    starts.filter(move |at| bytes.get(*at..at + word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word)))
}

/// Decodes every body that may be base64: the bytes from a blank line to the first byte that is not in base64's
/// alphabet.
fn base64_bodies(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let end = at + memchr(b'\n', &bytes[at..])? + 1;
            at = end;
            let blank = bytes[end..].iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r'));
            if blank.is_none_or(|i| bytes[end + i] != b'\n') {
                continue;
            }
            let (decoded, taken) = decode_base64(&bytes[end..]);
            // Continue after the body: a blank line within the body does not begin another body.
            at = end + taken;
            if !decoded.is_empty() {
                return Some(decoded);
            }
        }
    })
}

/// Decodes base64 up to the first byte that is not part of it. Skips blanks and padding. Returns the decoded bytes, and
/// the number of bytes of `text` that were read.
fn decode_base64(text: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut bits, mut bit_count) = (Vec::new(), 0u32, 0);
    for (i, byte) in text.iter().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                // The letters after the padding begin a new group.
                bit_count = 0;
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            // The library skips a single dash.
            b'-' if text.get(i + 1) != Some(&b'-') => continue,
            _ => return (out, i),
        };
        bits = bits << 6 | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            out.push((bits >> bit_count) as u8);
        }
    }
    (out, text.len())
}

/// Decodes the whole text as quoted-printable.
fn unquote(text: &[u8]) -> Vec<u8> {
    let hex = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(next) = memchr(b'=', &text[at..]) {
        out.extend_from_slice(&text[at..at + next]);
        at += next + 1;
        match (hex(text.get(at)), hex(text.get(at + 1))) {
            (Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            // A soft line break, perhaps with blanks before the end of the line.
            _ => {
                let blanks = text[at..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
                let rest = &text[at + blanks..];
                let rest = rest.strip_prefix(b"\r").unwrap_or(rest);
                if let Some(rest) = rest.strip_prefix(b"\n") {
                    at = text.len() - rest.len();
                }
            }
        }
    }
    out.extend_from_slice(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;

    /// One multipart in which `count` parts open a boundary that never comes.
    fn unclosed(count: usize) -> String {
        let mut text = "From: a@b.example\nContent-Type: multipart/mixed; boundary=x\n\n".to_owned();
        for i in 0..count {
            text.push_str(&format!("--x\nContent-Type: multipart/mixed; boundary=b{i}\n\nwords\n"));
        }
        text
    }

    fn attached(encoding: &str, body: &str) -> String {
        format!(
            "From: a@b.example\nContent-Type: message/rfc822\nContent-Transfer-Encoding: {encoding}\n\n{body}\n"
        )
    }

    #[test]
    fn many_unclosed_boundaries_are_refused_before_they_are_parsed() {
        let hostile = unclosed(14_000);
        assert!(
            hostile.len() < 1 << 20
                && check(hostile.as_bytes()).unwrap_err().to_string().contains("multipart")
        );
        let mut fields = crate::fields::Fields::default();
        let refused = crate::mail::extract(hostile.as_bytes(), &mut fields).unwrap_err();
        assert!(matches!(refused, MailError::Costly), "{refused}");
        assert!(check(unclosed(2_000).as_bytes()).is_ok());
    }

    #[test]
    fn encoded_messages_with_many_unclosed_boundaries_are_refused() {
        let hostile = unclosed(14_000);
        let lines = |text: &str| {
            let letters = base64::engine::general_purpose::STANDARD.encode(text);
            letters.as_bytes().chunks(76).map(|c| String::from_utf8_lossy(c) + "\n").collect::<String>()
        };
        assert!(check(attached("base64", &lines(&hostile)).as_bytes()).is_err());
        assert!(check(attached("base64", &lines(&attached("BASE64", &lines(&hostile)))).as_bytes()).is_err());
        let quoted = hostile.replace('m', "=6D").replace('\n', "=\n\n");
        assert!(check(attached("quoted-printable", &quoted).as_bytes()).is_err());
        assert!(check(attached("base64", &lines(&unclosed(1_000))).as_bytes()).is_ok());
    }

    #[test]
    fn a_boundary_of_dashes_is_compared_at_every_dash() {
        let dashes = "-".repeat(400_000);
        let long =
            format!("From: a@b.example\nContent-Type: multipart/mixed; boundary={dashes}x\n\n{dashes}\n");
        assert!(check(long.as_bytes()).is_err());
        let short = format!(
            "From: a@b.example\nContent-Type: multipart/mixed; boundary={}x\n\n{dashes}\n",
            &dashes[..70]
        );
        assert!(check(short.as_bytes()).is_ok());
    }

    #[test]
    fn encoded_words_without_end_and_many_continued_parameters_are_refused() {
        let subject = |n: usize| format!("From: a@b.example\nSubject: {}\n\nwords\n", "=?aa?q?x".repeat(n));
        assert!(check(subject(40_000).as_bytes()).is_err());
        assert!(check(subject(4_000).as_bytes()).is_ok());
        let folded = subject(40_000).replace("x=?", "x\n =?");
        assert!(check(folded.as_bytes()).is_err());
        let parameters = |n: usize| {
            let names = (0..n).map(|i| format!("; n{i}*1=x")).collect::<String>();
            format!("From: a@b.example\nContent-Type: text/plain{names}\n\nwords\n")
        };
        assert!(check(parameters(70_000).as_bytes()).is_err());
        assert!(check(parameters(1_000).as_bytes()).is_ok());
        // Many words with their ends are fine, as in a list of 2,000 receivers.
        let receivers = "=?utf-8?q?J=C3=BCrgen?= <j@b.example>,\n ".repeat(2_000);
        assert!(check(format!("To: {receivers}\n\nwords\n").as_bytes()).is_ok());
        let body = format!("From: a@b.example\n\n{}\n", "<a href=?x>".repeat(400_000));
        assert!(check(body.as_bytes()).is_ok(), "a body has no fields");
    }

    #[test]
    fn counting_is_linear() {
        let words = "multipart".repeat(200_000);
        assert!(count_plain(words.as_bytes(), u64::MAX).is_some());
        assert_eq!(count_plain(b"a multipart/b", u64::MAX), Some(11));
        assert_eq!(decode_base64(b"SGVs\r\nbG8= --x"), (b"Hello".to_vec(), 11));
        assert_eq!(unquote(b"a=3Db=\r\nc=\n="), b"a=bc");
    }
}
