//! [`Commands`]: the commands of a file, one after another, with their offsets.
//!
//! As strict as redis-check-aof: every byte is checked. Memory grows with the bytes in the file, not with the
//! lengths they announce.

use std::io::{self, ErrorKind, Read};
use strand_chain::Body;
use strand_wire::args::Argv;

/// Size of the read buffer.
const BUFFER_BYTES: usize = 256 << 10;
/// Arguments of at least this length get their own allocation, which grows as bytes arrive.
const LARGE_BYTES_MIN: usize = 32 << 10;
/// Maximum length of a line `*N` or `$N`.
const NUMBER_LINE_BYTES_MAX: usize = 24;
/// Maximum length of an annotation line (`#...`).
const ANNOTATION_BYTES_MAX: usize = 1024;
/// Maximum number of arguments of a command, as in redis-server.
const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Maximum length of an argument. It exceeds the largest `proto-max-bulk-len`.
const ARGUMENT_BYTES_MAX: i64 = 1 << 40;

/// The next item of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A command. Its arguments are in the caller's [`Argv`].
    Command,
    /// The commands after this annotation ran at this time or later, in unix seconds.
    Timestamp(i64),
    /// An annotation without a meaning for the server, such as a remark.
    Annotation,
    /// The end of the file has been reached.
    End,
}

/// Why a file is invalid, and where.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset}: {problem}")]
pub struct InvalidCommand {
    /// Offset of the first invalid byte.
    pub offset: u64,
    /// What is wrong with the byte at this offset.
    pub problem: ReadProblem,
}

/// The kinds of errors, see [`InvalidCommand`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadProblem {
    /// The file ends inside a command.
    #[error("the file ends inside a command")]
    Truncated,
    /// The file has a byte that does not fit the format.
    #[error("expected {expected}, found {found:?}")]
    Unexpected {
        /// What the format requires at this place.
        expected: &'static str,
        /// The bytes that the file has at this place, in printable form.
        found: String,
    },
    /// The allocator has no memory for an argument of this many bytes.
    #[error("no memory for an argument of {0} bytes")]
    Memory(u64),
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Io(io::Error),
}

// `#[from]` would make the cause a source too, and the text has the cause in it already.
impl From<io::Error> for ReadProblem {
    fn from(error: io::Error) -> ReadProblem {
        ReadProblem::Io(error)
    }
}

impl InvalidCommand {
    /// True when the file is valid but too short.
    pub fn is_truncated(&self) -> bool {
        matches!(self.problem, ReadProblem::Truncated)
    }
}

/// Reads the commands of a file, one after another.
pub struct Commands<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes of `buffer` that were read from the file and not yet parsed are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Number of bytes of the file before `buffer[0]`.
    buffer_offset: u64,
    /// True when the reader has no more bytes for `buffer`.
    is_at_end: bool,
    /// The I/O error that ended the reading, if any.
    failure: Option<io::Error>,
}

impl<R: Read> Commands<R> {
    /// Reads the bytes of `read_ahead`, which start at `offset` of the file, and then `reader`.
    pub fn new(reader: R, read_ahead: &[u8], offset: u64) -> Commands<R> {
        let mut buffer = vec![0; BUFFER_BYTES.max(read_ahead.len())].into_boxed_slice();
        buffer[..read_ahead.len()].copy_from_slice(read_ahead);
        Commands {
            reader,
            buffer,
            start: 0,
            end: read_ahead.len(),
            buffer_offset: offset,
            is_at_end: false,
            failure: None,
        }
    }
    /// The offset of the next item.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }
    /// Reads one item. The arguments of a command replace the content of `argv`.
    ///
    /// # Errors
    /// The error and its position. Nothing more can be read after it.
    pub fn next(&mut self, argv: &mut Argv) -> Result<Item, InvalidCommand> {
        argv.clear();
        loop {
            match self.buffered(1) {
                [] => return if self.failure.is_some() { Err(self.truncated()) } else { Ok(Item::End) },
                // Skip a line feed: a server whose write failed left it in place of a command.
                [b'\n', ..] => self.start += 1,
                [b'#', ..] => return self.annotation(),
                _ => break,
            }
        }
        let count = self.number(b'*', "* and the number of a command's arguments", 1..=ARGUMENTS_MAX)?;
        for _ in 0..count {
            let len = self.number(b'$', "$ and the length of an argument", 0..=ARGUMENT_BYTES_MAX)?;
            match len as usize {
                len @ 0..LARGE_BYTES_MIN => {
                    let bytes = self.buffered(len);
                    if bytes.len() < len {
                        return Err(self.truncated());
                    }
                    argv.push(&bytes[..len]);
                    self.start += len;
                }
                len => self.read_large_argument(len, argv)?,
            }
            self.expect_line_end()?;
        }
        Ok(Item::Command)
    }

    /// The bytes of the file from the current position on: at least `n`, unless the file ends.
    fn buffered(&mut self, n: usize) -> &[u8] {
        if self.end - self.start < n && !self.is_at_end {
            self.fetch(n);
        }
        &self.buffer[self.start..self.end]
    }
    #[cold]
    fn fetch(&mut self, n: usize) {
        debug_assert!(n <= self.buffer.len());
        self.buffer.copy_within(self.start..self.end, 0);
        self.buffer_offset += self.start as u64;
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < n && !self.is_at_end {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_at_end = true,
                Ok(read) => self.end += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => (self.is_at_end, self.failure) = (true, Some(e)),
            }
        }
    }
    /// Reads a line that consists of `mark` (`*` or `$`) and a number.
    fn number(
        &mut self,
        mark: u8,
        expected: &'static str,
        allowed: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, InvalidCommand> {
        let bytes = self.buffered(NUMBER_LINE_BYTES_MAX);
        // The line is usually short, so parse it in one pass.
        let (mut value, mut at, negative) = match bytes {
            [first, ..] if *first != mark => return Err(self.unexpected(0, expected)),
            [_, b'-', ..] => (0i64, 2, true),
            [_, ..] => (0, 1, false),
            [] => return Err(self.truncated()),
        };
        let digits_from = at;
        while let Some(digit) = bytes.get(at).filter(|b| b.is_ascii_digit())
            && at < NUMBER_LINE_BYTES_MAX - 2
        {
            value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
            at += 1;
        }
        match &bytes[at.min(bytes.len())..] {
            [b'\r', b'\n', ..] if at > digits_from && !negative && allowed.contains(&value) => {
                self.start += at + 2;
                Ok(value)
            }
            [b'\r', b'\n', ..] => Err(self.unexpected(0, expected)),
            [] | [b'\r'] => Err(self.truncated()),
            _ => Err(self.unexpected(at, "\\r\\n after a number")),
        }
    }
    fn expect_line_end(&mut self) -> Result<(), InvalidCommand> {
        match self.buffered(2) {
            [b'\r', b'\n', ..] => {
                self.start += 2;
                Ok(())
            }
            [] | [b'\r'] => Err(self.truncated()),
            _ => Err(self.unexpected(0, "\\r\\n after an argument")),
        }
    }
    /// Reads an argument into its own allocation.
    fn read_large_argument(&mut self, len: usize, argv: &mut Argv) -> Result<(), InvalidCommand> {
        let mut body = Body::new(len);
        while body.remaining() > 0 {
            let buffered = &self.buffer[self.start..self.end];
            if buffered.is_empty() && self.is_at_end {
                return Err(self.truncated());
            }
            match body.try_fill_from(buffered) {
                Ok(taken) => self.start += taken,
                Err(_) => {
                    return Err(InvalidCommand {
                        offset: self.offset(),
                        problem: ReadProblem::Memory(len as u64),
                    });
                }
            }
            if body.remaining() > 0 {
                self.fetch(1);
            }
        }
        argv.push_blob(body.into_blob());
        Ok(())
    }
    fn annotation(&mut self) -> Result<Item, InvalidCommand> {
        let bytes = self.buffered(ANNOTATION_BYTES_MAX);
        let Some(end) = bytes.iter().take(ANNOTATION_BYTES_MAX).position(|b| *b == b'\n') else {
            let is_truncated = bytes.len() < ANNOTATION_BYTES_MAX;
            return Err(if is_truncated {
                self.truncated()
            } else {
                self.unexpected(0, "an annotation of one line")
            });
        };
        let time = bytes[..end].trim_ascii().strip_prefix(b"#TS:");
        let time = time.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        self.start += end + 1;
        Ok(time.map_or(Item::Annotation, Item::Timestamp))
    }
    #[cold]
    fn truncated(&mut self) -> InvalidCommand {
        let problem = self.failure.take().map_or(ReadProblem::Truncated, ReadProblem::Io);
        InvalidCommand { offset: self.buffer_offset + self.end as u64, problem }
    }
    #[cold]
    fn unexpected(&mut self, ahead: usize, expected: &'static str) -> InvalidCommand {
        const SHOWN_BYTES_MAX: usize = 16;
        let from = self.start + ahead;
        let found = &self.buffer[from..self.end.min(from + SHOWN_BYTES_MAX)];
        let found = String::from_utf8_lossy(found).into_owned();
        InvalidCommand {
            offset: self.buffer_offset + from as u64,
            problem: ReadProblem::Unexpected { expected, found },
        }
    }
}

#[cfg(test)]
mod tests;
