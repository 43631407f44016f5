//! How many steps the parsing library would take for a message, counted before the message is parsed.
//!
//! For each multipart header the library searches for the header's boundary, from the header on. If the boundary does
//! not occur, the search goes to the end of the message. So the steps of a message with many such headers grow with the
//! square of its size: 2 MB take most of a minute. [`check`] counts an upper bound of these steps in one pass, and
//! refuses a message above [`STEPS_MAX`]. Messages inside base64 or quoted-printable content are decoded and counted
//! too, as deep as the library decodes them. The count does not check which boundaries occur, so it can only be too
//! high.

use super::MailError;
use memchr::{memchr, memchr_iter, memchr2_iter};

/// Maximum number of steps (bytes walked over) that parsing one message may take: some seconds.
pub const STEPS_MAX: u64 = 4 << 30;
/// The library decodes messages within messages up to this depth.
const DECODED_DEPTH_MAX: usize = 3;
/// A message of up to this many bytes is not counted, because its steps cannot exceed [`STEPS_MAX`]. Of `n` bytes at
/// most half are dashes and half are headers of 9 bytes. So at most `n / 18` headers are compared at `n / 2` places,
/// `n / 16` steps each, and that is `n * n * n / 576` steps. Encoded content in the message takes up to 7 times as many
/// steps in addition.
const UNCOUNTED_BYTES_MAX: usize = 6 << 10;
const _: () = assert!(8 * (UNCOUNTED_BYTES_MAX as u64).pow(3) / 576 < STEPS_MAX);
/// Bytes that are compared with a boundary in one step.
const COMPARED_PER_STEP: u64 = 16;

/// Refuses a message that takes too many steps to parse.
///
/// # Errors
/// The reason why it is a dead letter.
pub(crate) fn check(message: &[u8]) -> Result<(), MailError> {
    if message.len() <= UNCOUNTED_BYTES_MAX {
        return Ok(());
    }
    match count(message, DECODED_DEPTH_MAX, STEPS_MAX) {
        Some(_) => Ok(()),
        None => Err(MailError::Costly),
    }
}

/// Steps for `bytes` and for the messages that are encoded in it. `None` when they exceed `allowed`.
fn count(bytes: &[u8], depth: usize, allowed: u64) -> Option<u64> {
    let mut steps = count_plain(bytes, allowed)?;
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

/// Steps for `bytes` as they are. Each multipart header may make the library search to the end, and compare the
/// boundary wherever two dashes stand.
fn count_plain(bytes: &[u8], allowed: u64) -> Option<u64> {
    let headers: Vec<usize> = find(bytes, b"multipart").collect();
    let (mut steps, mut dashes, mut after, mut field_end) = (0u64, 0u64, bytes.len(), bytes.len());
    for at in headers.into_iter().rev() {
        let gap = &bytes[at..after];
        dashes += memchr_iter(b'-', gap).filter(|i| bytes.get(at + i + 1) == Some(&b'-')).count() as u64;
        // A header field ends at a line end that no blank follows.
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

/// The places at which `word` (in lower case) begins in `bytes`, in upper or lower case.
fn find<'a>(bytes: &'a [u8], word: &'static [u8]) -> impl Iterator<Item = usize> + 'a {
    let starts = memchr2_iter(word[0], word[0].to_ascii_uppercase(), bytes);
    starts.filter(move |at| bytes.get(*at..at + word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word)))
}

/// Every body that may be base64: from a blank line to the first byte that is not a letter of base64.
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
            // A body with blank lines is one body: nothing within it is a beginning.
            at = end + taken;
            if !decoded.is_empty() {
                return Some(decoded);
            }
        }
    })
}

/// The decoded bytes, and the number of bytes of text that were read. Blanks and padding are skipped.
fn decode_base64(text: &[u8]) -> (Vec<u8>, usize) {
    let (mut out, mut bits, mut have) = (Vec::new(), 0u32, 0);
    for (i, byte) in text.iter().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                // The letters after the padding begin a new group.
                have = 0;
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            // The library passes over a single dash.
            b'-' if text.get(i + 1) != Some(&b'-') => continue,
            _ => return (out, i),
        };
        bits = bits << 6 | u32::from(value);
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    (out, text.len())
}

/// The whole text as if all of it were quoted-printable.
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
            // A soft line end, perhaps behind blanks.
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
    fn so_are_those_that_are_encoded() {
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
    fn counting_is_linear() {
        let words = "multipart".repeat(200_000);
        assert!(count_plain(words.as_bytes(), u64::MAX).is_some());
        assert_eq!(count_plain(b"a multipart/b", u64::MAX), Some(11));
        assert_eq!(decode_base64(b"SGVs\r\nbG8= --x"), (b"Hello".to_vec(), 11));
        assert_eq!(unquote(b"a=3Db=\r\nc=\n="), b"a=bc");
    }
}
