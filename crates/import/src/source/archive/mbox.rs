//! Mailboxes: a sequence of messages, each behind a `From ` line.
//!
//! [`messages`] returns the place of each message, and the digest of its bytes. The mailbox is read once, and never held in
//! memory. A separator is a line that begins with `From ` and has a time in it. It is the first line, or it follows a
//! blank line.

use super::bytes::{Budget, Window};
use crate::container::{Digest, digest_of};
use std::io::{self, BufRead, BufReader};

/// Number of leading bytes of a line that decide whether the line is a separator.
const LINE_BYTES_MAX: usize = 512;
/// Maximum number of bytes of a line that are read at a time.
const PIECE_BYTES: u64 = 4096;
/// Bytes of the mailbox that are read at a time.
const BLOCK_BYTES: usize = 256 * 1024;

/// A message with its `From ` line.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) digest: Digest,
}

/// True when a mailbox may have this beginning.
pub(crate) fn is_mailbox(beginning: &[u8]) -> bool {
    is_separator(beginning.split(|b| *b == b'\n').next().unwrap_or_default())
}

/// True for a line that begins a message of a mailbox.
pub(crate) fn is_separator(line: &[u8]) -> bool {
    let time = |w: &[u8]| w[0].is_ascii_digit() && w[1] == b':' && w[2].is_ascii_digit();
    line.starts_with(b"From ") && line[..line.len().min(LINE_BYTES_MAX)].windows(3).any(time)
}

/// The messages in their order. Bytes before the first separator belong to no message.
pub(super) fn messages(mailbox: &Window, budget: &Budget) -> io::Result<Vec<Message>> {
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, mailbox.reader());
    let mut messages: Vec<Message> = Vec::new();
    let mut hasher = blake3::Hasher::new();
    let (mut at, mut begun, mut after_blank) = (0u64, None, true);
    let (mut piece, mut at_line) = (Vec::new(), true);
    loop {
        // A line, or a piece of a long one.
        piece.clear();
        let len = io::Read::take(&mut reader, PIECE_BYTES).read_until(b'\n', &mut piece)? as u64;
        let begins = at_line && after_blank && is_separator(&piece);
        if len == 0 || begins {
            if let Some(from) = begun {
                messages.push(Message { at: from, len: at - from, digest: digest_of(&hasher) });
            }
            if len == 0 {
                return Ok(messages);
            }
            budget.list()?;
            begun = Some(at);
            hasher.reset();
        }
        hasher.update(&piece);
        at += len;
        after_blank = at_line && matches!(&piece[..], b"\n" | b"\r\n");
        at_line = piece.ends_with(b"\n");
    }
}
