//! [`Wire`]: the connection to the primary, as lines, bytes and requests.

use super::client::PrimaryClient;
use crate::Engine;
use crate::host::Link;
use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use strand_chain::Chain;
use strand_wire::client::encode_command;
use strand_wire::replica::{LineTooLong, take_line};

/// A read waits at most this long for bytes, so that an acknowledgement is sent in time, and another primary does not wait.
const READ_MS_MAX: u64 = 100;

/// Number of bytes of a long input that are decoded from one chain.
const PART_BYTES: usize = 32 << 10;

/// The connection.
pub(super) struct Wire<'e> {
    engine: &'e Engine,
    link: Box<dyn Link>,
    pub(super) client: PrimaryClient<'e>,
    /// The number of the primary ([`super::State::number`]).
    number: u64,
    /// The primary is silent for at most this time.
    timeout: Duration,
    /// Bytes that have arrived and are not used yet.
    pub(super) input: Chain,
    /// A part of the stream before `input`, if `input` is long: see [`Wire::next_part`].
    front: Chain,
    /// True when [`Wire::next_part`] has returned `front`.
    is_in_part: bool,
    /// Number of bytes that have arrived.
    pub(super) received: u64,
}

impl<'e> Wire<'e> {
    pub(super) fn new(
        engine: &'e Engine,
        link: Box<dyn Link>,
        number: u64,
        timeout: Duration,
    ) -> io::Result<Wire<'e>> {
        link.set_read_timeout(Duration::from_millis(READ_MS_MAX))?;
        let client = PrimaryClient::new(engine, link.peer());
        Ok(Wire {
            engine,
            link,
            client,
            number,
            timeout,
            input: Chain::new(),
            front: Chain::new(),
            is_in_part: false,
            received: 0,
        })
    }
    /// Waits until bytes have arrived.
    ///
    /// # Errors
    /// As [`Wire::fill`]. Also when the primary is silent for too long, or another primary was set.
    pub(super) fn fill_or_fail(&mut self) -> io::Result<()> {
        let silent_since_us = self.engine.host.mono_us();
        loop {
            if !self.engine.following.is_current(self.number) {
                return Err(io::Error::other("this primary is not followed any more"));
            }
            if self.fill()? {
                return Ok(());
            }
            let silent_us = self.engine.host.mono_us().saturating_sub(silent_since_us);
            if u128::from(silent_us) > self.timeout.as_micros() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the primary is silent"));
            }
        }
    }
    /// Reads what has arrived. False when nothing arrived in time.
    ///
    /// # Errors
    /// The system's error. Also an error when the primary has closed the connection.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let read = self.link.read(self.input.spare());
        if self.client.is_killed() {
            return Err(io::Error::other("the connection was killed by CLIENT KILL"));
        }
        self.input.filled(read.as_ref().map_or(0, |n| *n));
        match read {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the primary has closed the connection")),
            Ok(n) => {
                self.received += n as u64;
                self.engine.replication.totals.input_bytes.fetch_add(n as u64, Relaxed);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(true),
            Err(e) => Err(e),
        }
    }
    /// The bytes to decode next: the input, or a part of a long input. The caller shares the bytes with each command, so
    /// the time for a command grows with their length.
    pub(super) fn next_part(&mut self) -> &mut Chain {
        if self.front.is_empty() && self.input.len() > PART_BYTES {
            self.front = self.input.split_to(PART_BYTES);
        }
        self.is_in_part = !self.front.is_empty();
        if self.is_in_part { &mut self.front } else { &mut self.input }
    }
    /// Adds bytes of the input to the part, because a command in the part is not complete. False when there are none: then
    /// more must arrive.
    pub(super) fn extend_part(&mut self) -> bool {
        if !self.is_in_part {
            return false;
        }
        if self.input.is_empty() {
            self.input = std::mem::take(&mut self.front);
            return false;
        }
        self.front.push_chain(self.input.split_to(self.input.len().min(PART_BYTES)));
        true
    }
    /// Number of bytes that have arrived and are not decoded yet.
    pub(super) fn undecoded_bytes(&self) -> usize {
        self.front.len() + self.input.len()
    }
    /// Sends bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.link.write_all(bytes)?;
        self.link.flush()
    }
    /// Sends a command.
    pub(super) fn send_command(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut request = Vec::new();
        encode_command(&mut request, words);
        self.send(&request)
    }
    /// Sends a command and returns the line of its reply.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> io::Result<String> {
        self.send_command(words)?;
        self.line()
    }
    /// The next line without its end. Empty lines, with which the primary shows that it lives, are skipped.
    ///
    /// # Errors
    /// As [`Wire::fill`]. Also when no line comes in time, or the line is too long.
    pub(super) fn line(&mut self) -> io::Result<String> {
        loop {
            let line = take_line(&mut self.input).map_err(|LineTooLong| {
                io::Error::new(ErrorKind::InvalidData, "a line of the primary is too long")
            })?;
            match line {
                Some(line) => return Ok(String::from_utf8_lossy(&line).into_owned()),
                None => self.fill_or_fail()?,
            }
        }
    }
}
