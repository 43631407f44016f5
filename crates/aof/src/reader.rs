//! [`Commands`]: the commands of a file, one after the other, with the offset of each.
//!
//! As strict as redis-check-aof: every byte is looked at. Memory follows the bytes that are there, not the lengths that they
//! claim.

use std::io::{self, ErrorKind, Read};
use strand_chain::Body;
use strand_wire::args::Argv;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Arguments from this length on have an allocation of their own, which grows as their bytes come.
const LARGE_BYTES_MIN: usize = 32 << 10;
/// A line with a number is no longer.
const NUMBER_LINE_BYTES_MAX: usize = 24;
/// An annotation is no longer.
const ANNOTATION_BYTES_MAX: usize = 1024;
/// Most arguments of a command, as redis-server counts them.
const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Longest argument: larger than `proto-max-bulk-len` may say.
const ARGUMENT_BYTES_MAX: i64 = 1 << 40;

/// What is in the file next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A command; its arguments are in the caller's [`Argv`].
    Command,
    /// From here on commands ran at this time or later, in unix seconds.
    Timestamp(i64),
    /// A line for people.
    Annotation,
    /// The file is at its end.
    End,
}

/// What is wrong, and where that was noticed.
#[derive(Debug, thiserror::Error)]
#[error("offset {offset}: {problem}")]
pub struct Broken {
    /// Of the first byte that is not as it should be.
    pub offset: u64,
    /// What it is.
    pub problem: Problem,
}

/// See [`Broken`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends inside a command.
    #[error("the file ends inside a command")]
    Cut,
    /// Other bytes than a command has at that place.
    #[error("expected {expected}, found {found:?}")]
    Unexpected {
        /// What belongs there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A value that no memory is left for.
    #[error("no memory for an argument of {0} bytes")]
    Memory(u64),
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl Broken {
    /// True when the file is too short, and as it should be up to there.
    pub fn is_cut(&self) -> bool {
        matches!(self.problem, Problem::Cut)
    }
}

/// Reads a file.
pub struct Commands<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes at hand are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Bytes of the file before `buffer[0]`.
    passed: u64,
    /// There are no more bytes ...
    is_over: bool,
    /// ... since they could not be read.
    failure: Option<io::Error>,
}

impl<R: Read> Commands<R> {
    /// Reads what `held` has, which lies at `offset` of the file, and what `reader` gives behind that.
    pub fn new(reader: R, held: &[u8], offset: u64) -> Commands<R> {
        let mut buffer = vec![0; BUFFER_BYTES.max(held.len())].into_boxed_slice();
        buffer[..held.len()].copy_from_slice(held);
        Commands { reader, buffer, start: 0, end: held.len(), passed: offset, is_over: false, failure: None }
    }
    /// Where the next item begins.
    pub fn offset(&self) -> u64 {
        self.passed + self.start as u64
    }
    /// Reads one item. The arguments of a command are put into `argv`, which is cleared before.
    ///
    /// # Errors
    /// What is wrong, and where. Nothing more can be read then.
    pub fn next(&mut self, argv: &mut Argv) -> Result<Item, Broken> {
        argv.clear();
        loop {
            match self.at_hand(1) {
                [] => return if self.failure.is_some() { Err(self.cut()) } else { Ok(Item::End) },
                // What a writer that failed has put in the place of a command that never came.
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
                    let bytes = self.at_hand(len);
                    if bytes.len() < len {
                        return Err(self.cut());
                    }
                    argv.push(&bytes[..len]);
                    self.start += len;
                }
                len => self.large(len, argv)?,
            }
            self.line_end()?;
        }
        Ok(Item::Command)
    }

    /// The bytes at hand: at least `n` of them, unless the file has no more.
    fn at_hand(&mut self, n: usize) -> &[u8] {
        if self.end - self.start < n && !self.is_over {
            self.fetch(n);
        }
        &self.buffer[self.start..self.end]
    }
    #[cold]
    fn fetch(&mut self, n: usize) {
        debug_assert!(n <= self.buffer.len());
        self.buffer.copy_within(self.start..self.end, 0);
        self.passed += self.start as u64;
        (self.start, self.end) = (0, self.end - self.start);
        while self.end < n && !self.is_over {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_over = true,
                Ok(read) => self.end += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => (self.is_over, self.failure) = (true, Some(e)),
            }
        }
    }
    /// A line with a mark and a number.
    fn number(
        &mut self,
        mark: u8,
        expected: &'static str,
        allowed: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, Broken> {
        let bytes = self.at_hand(NUMBER_LINE_BYTES_MAX);
        // The usual line is short, and looked at once.
        let (mut value, mut at, negative) = match bytes {
            [first, ..] if *first != mark => return Err(self.unexpected(0, expected)),
            [_, b'-', ..] => (0i64, 2, true),
            [_, ..] => (0, 1, false),
            [] => return Err(self.cut()),
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
            [] | [b'\r'] => Err(self.cut()),
            _ => Err(self.unexpected(at, "\\r\\n behind a number")),
        }
    }
    fn line_end(&mut self) -> Result<(), Broken> {
        match self.at_hand(2) {
            [b'\r', b'\n', ..] => {
                self.start += 2;
                Ok(())
            }
            [] | [b'\r'] => Err(self.cut()),
            _ => Err(self.unexpected(0, "\\r\\n behind an argument")),
        }
    }
    /// An argument that is received in an allocation of its own.
    fn large(&mut self, len: usize, argv: &mut Argv) -> Result<(), Broken> {
        let mut body = Body::new(len);
        while body.remaining() > 0 {
            let held = &self.buffer[self.start..self.end];
            if held.is_empty() && self.is_over {
                return Err(self.cut());
            }
            match body.try_fill_from(held) {
                Ok(taken) => self.start += taken,
                Err(_) => return Err(Broken { offset: self.offset(), problem: Problem::Memory(len as u64) }),
            }
            if body.remaining() > 0 {
                self.fetch(1);
            }
        }
        argv.push_blob(body.into_blob());
        Ok(())
    }
    fn annotation(&mut self) -> Result<Item, Broken> {
        let bytes = self.at_hand(ANNOTATION_BYTES_MAX);
        let Some(end) = bytes.iter().take(ANNOTATION_BYTES_MAX).position(|b| *b == b'\n') else {
            let is_cut = bytes.len() < ANNOTATION_BYTES_MAX;
            return Err(if is_cut { self.cut() } else { self.unexpected(0, "an annotation of one line") });
        };
        let time = bytes[..end].trim_ascii().strip_prefix(b"#TS:");
        let time = time.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        self.start += end + 1;
        Ok(time.map_or(Item::Annotation, Item::Timestamp))
    }
    #[cold]
    fn cut(&mut self) -> Broken {
        let problem = self.failure.take().map_or(Problem::Cut, Problem::Io);
        Broken { offset: self.passed + self.end as u64, problem }
    }
    #[cold]
    fn unexpected(&mut self, ahead: usize, expected: &'static str) -> Broken {
        const SHOWN_BYTES_MAX: usize = 16;
        let from = self.start + ahead;
        let found = &self.buffer[from..self.end.min(from + SHOWN_BYTES_MAX)];
        let found = String::from_utf8_lossy(found).into_owned();
        Broken { offset: self.passed + from as u64, problem: Problem::Unexpected { expected, found } }
    }
}

#[cfg(test)]
mod tests;
