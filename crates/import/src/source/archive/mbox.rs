//! Mailboxes: a sequence of messages, each after a `From ` line.
//!
//! [`messages`] returns the offset of each message, the digest of its bytes, and the digest of its Message-ID. It reads
//! the mailbox once, and does not hold it in memory. A separator is a line that begins with `From ` and has a time in
//! it. It is the first line, or it follows a blank line, or it is a whole envelope line. [`Prefix`] shows whether a mailbox
//! only grew.

use super::budget::ArchiveBudget;
use super::bytes::Window;
use crate::container::{ContainerDigest, digest, digest_of};
use std::io::{self, BufRead, BufReader};

/// Number of bytes at the beginning of a line that decide whether the line is a separator.
const LINE_BYTES_MAX: usize = 512;
/// Maximum number of bytes of a line that are read at a time.
const PIECE_BYTES: u64 = 4096;
/// Bytes of the mailbox that are read at a time.
const BLOCK_BYTES: usize = 256 * 1024;

/// The name of the header field with the Message-ID, in lower case.
const MESSAGE_ID: &[u8] = b"message-id:";

/// A message with its `From ` line.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Offset of the `From ` line in the mailbox.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// The digest of the bytes.
    pub(super) digest: ContainerDigest,
    /// The digest of the Message-ID. `None` when the message has no Message-ID.
    pub(super) id: Option<ContainerDigest>,
}

/// The state of a mailbox at an earlier time: its length, and a digest of samples of its bytes.
///
/// If the samples are equal and the mailbox is longer now, it has only grown: a mail program that removes a message, or
/// changes a message's length, moves all later bytes, and the last sample is the end of the prefix. A change between
/// the samples that keeps the length of a message is not noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) len: u64,
    samples: ContainerDigest,
}

impl Prefix {
    /// Length of [`Prefix::to_bytes`].
    pub(crate) const BYTES: usize = 8 + size_of::<ContainerDigest>();
    /// Minimum length of a mailbox with a prefix. Reading a shorter mailbox takes about as long as reading the samples
    /// from a remote source.
    const LEN_MIN: u64 = 16 << 20;
    /// Number of samples. The first sample is the beginning of the prefix, and the last sample is its end.
    const SAMPLES: u64 = 16;
    const SAMPLE_BYTES: u64 = 64 * 1024;

    /// The prefix of the first `len` bytes of the mailbox. `None` when `len` is less than [`Prefix::LEN_MIN`].
    ///
    /// # Errors
    /// When the mailbox cannot be read, or has fewer bytes.
    pub(crate) fn of(mailbox: &Window, len: u64) -> io::Result<Option<Prefix>> {
        if len < Prefix::LEN_MIN {
            return Ok(None);
        }
        let mut hasher = blake3::Hasher::new();
        let last = len - Prefix::SAMPLE_BYTES;
        for number in 0..Prefix::SAMPLES {
            let is_last = number + 1 == Prefix::SAMPLES;
            let at = if is_last { last } else { last / (Prefix::SAMPLES - 1) * number };
            hasher.update(&mailbox.bytes(at, Prefix::SAMPLE_BYTES as usize)?);
        }
        Ok(Some(Prefix { len, samples: digest_of(&hasher) }))
    }

    /// The length as 8 bytes, little-endian, then the digest.
    pub(crate) fn to_bytes(self) -> [u8; Prefix::BYTES] {
        let mut bytes = [0; Prefix::BYTES];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.samples);
        bytes
    }
    /// Reads what [`Prefix::to_bytes`] wrote. `None` when `bytes` has another length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Prefix> {
        let (len, samples) = bytes.split_first_chunk()?;
        Some(Prefix { len: u64::from_le_bytes(*len), samples: samples.try_into().ok()? })
    }

    /// The messages after this prefix. `None` when the mailbox did not only grow by whole messages.
    pub(super) fn appended(
        &self,
        mailbox: &Window,
        budget: &ArchiveBudget,
    ) -> io::Result<Option<Vec<Message>>> {
        if mailbox.len() <= self.len || Prefix::of(mailbox, self.len)? != Some(*self) {
            return Ok(None);
        }
        let before = mailbox.bytes(self.len.saturating_sub(3), self.len.min(3) as usize)?;
        let line = mailbox.bytes(self.len, (mailbox.len() - self.len).min(LINE_BYTES_MAX as u64) as usize)?;
        let is_whole = before.ends_with(b"\n\n") || before == b"\n\r\n";
        if !is_whole || !is_mailbox(&line) {
            return Ok(None);
        }
        messages(mailbox, self.len, budget).map(Some)
    }
}

/// True when the first line is a separator.
pub(crate) fn is_mailbox(beginning: &[u8]) -> bool {
    is_separator(beginning.split(|b| *b == b'\n').next().unwrap_or_default())
}

/// True when the line is a separator.
pub(crate) fn is_separator(line: &[u8]) -> bool {
    let time = |w: &[u8]| w[0].is_ascii_digit() && w[1] == b':' && w[2].is_ascii_digit();
    line.starts_with(b"From ") && line[..line.len().min(LINE_BYTES_MAX)].windows(3).any(time)
}

/// True for a whole line of an envelope: `From address weekday month day time year`, perhaps with a zone in front of the
/// year or behind it. Such a line is a separator without a blank line before it, too: some programs write none.
fn is_envelope(line: &[u8]) -> bool {
    const WEEKDAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let words: Vec<&[u8]> =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(9).collect();
    let [b"From", _, weekday, month, day, time, rest @ ..] = &words[..] else { return false };
    let is_number = |word: &[u8], lens: std::ops::RangeInclusive<usize>| {
        lens.contains(&word.len()) && word.iter().all(u8::is_ascii_digit)
    };
    let is_zone = |word: &[u8]| match word {
        [b'+' | b'-', digits @ ..] => is_number(digits, 4..=4),
        name => (1..=5).contains(&name.len()) && name.iter().all(u8::is_ascii_uppercase),
    };
    let is_year = |word: &[u8]| is_number(word, 4..=4);
    let is_end = match rest {
        [year] => is_year(year),
        [first, second] => is_year(first) && is_zone(second) || is_zone(first) && is_year(second),
        _ => false,
    };
    let mut parts = time.split(|b| *b == b':');
    WEEKDAYS.contains(weekday)
        && MONTHS.contains(month)
        && is_number(day, 1..=2)
        && (2..=3).contains(&parts.clone().count())
        && parts.all(|part| is_number(part, 1..=2))
        && is_end
}

/// The messages from the offset `from` on, in order. Bytes before the first separator belong to no message.
pub(super) fn messages(mailbox: &Window, from: u64, budget: &ArchiveBudget) -> io::Result<Vec<Message>> {
    let part = mailbox.part(from, mailbox.len() - from)?;
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, part.reader());
    let mut messages: Vec<Message> = Vec::new();
    let mut hasher = blake3::Hasher::new();
    let (mut at, mut begun, mut after_blank) = (from, None, true);
    let (mut piece, mut at_line) = (Vec::new(), true);
    let mut id = IdReader::default();
    loop {
        // A line, or a piece of a long line.
        piece.clear();
        let len = io::Read::take(&mut reader, PIECE_BYTES).read_until(b'\n', &mut piece)? as u64;
        let begins = at_line && is_separator(&piece) && (after_blank || is_envelope(&piece));
        if len == 0 || begins {
            if let Some(from) = begun {
                let id = std::mem::take(&mut id).found;
                messages.push(Message { offset: from, len: at - from, digest: digest_of(&hasher), id });
            }
            if len == 0 {
                return Ok(messages);
            }
            budget.list()?;
            begun = Some(at);
            hasher.reset();
        } else if at_line {
            id.line(&piece);
        }
        hasher.update(&piece);
        at += len;
        after_blank = at_line && matches!(&piece[..], b"\n" | b"\r\n");
        at_line = piece.ends_with(b"\n");
    }
}

/// Finds the Message-ID among the lines of a message.
#[derive(Default)]
struct IdReader {
    found: Option<ContainerDigest>,
    /// True when the last line was only the field's name: the value is in the next line.
    is_folded: bool,
    /// True after the end of the message's header, and after the Message-ID.
    is_over: bool,
}

impl IdReader {
    fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii_end();
        if self.is_over || line.is_empty() {
            self.is_over = true;
            return;
        }
        let named =
            line.len() >= MESSAGE_ID.len() && line[..MESSAGE_ID.len()].eq_ignore_ascii_case(MESSAGE_ID);
        let value = match line {
            _ if named => line[MESSAGE_ID.len()..].trim_ascii(),
            [b' ' | b'\t', value @ ..] if self.is_folded => value.trim_ascii(),
            _ => b"",
        };
        self.is_folded = named && value.is_empty();
        if !value.is_empty() {
            (self.found, self.is_over) = (Some(digest(value)), true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_envelope_line_needs_no_blank_line() {
        for line in [
            "From ada@example.org Mon Jan  6 10:00:00 2025\n",
            "From - Mon Jan 06 10:00 2025\r\n",
            "From a@b Mon Jan 6 10:00:00 2025 +0100",
            "From a@b Mon Jan 6 10:00:00 CET 2025",
        ] {
            assert!(is_envelope(line.as_bytes()) && is_separator(line.as_bytes()), "{line}");
        }
        for line in [
            ">From ada@example.org Mon Jan  6 10:00:00 2025",
            "From Mon Jan 6 10:00:00 2025",
            "From a@b Mon Jan 6 10:00:00 2025 we met",
            "From a@b Mon Jan 6 10:00:00 2025 +0100 x",
            "From 10:00 on we met",
            "From a@b monday Jan 6 10:00:00 2025",
            "From a@b Mon Jan 6 10 2025",
            "From a@b Mon Jan 6 1:2:3:4 2025",
            "",
        ] {
            assert!(!is_envelope(line.as_bytes()), "{line}");
        }
    }
}
