//! [`EventClient`]: the connection that causes the event, on a thread beside the probe's.
//!
//! The client shares core 1 with the probe, and must not disturb the probe, although a reply to KEYS has 46 MB. The
//! client's thread has the lowest priority, so the scheduler gives the core to the probe as soon as the probe's reply
//! arrives. The client reads and writes 16 KiB at a time: the probe then waits for at most about 5 us of kernel time.
//! It has one buffer, which stays in the cache, and keeps only the first and last bytes of a reply. The client reads
//! replies while the event runs, because a server with bounded output could not finish the event otherwise.

use super::Result;
use crate::fill;
use std::io::{Read, Write};
use std::net::TcpStream;
use strand_testkit::process::Server;
use strand_wire::client::encode_command;

const PIECE_BYTES: usize = 16 << 10;
/// A request that is sent after each command. When the reply to it arrives, the command's reply is complete.
const MARK: &[u8] = b"*2\r\n$4\r\nPING\r\n$8\r\nfinished\r\n";
const MARK_REPLY: &[u8] = b"\r\n$8\r\nfinished\r\n";
/// Number of bytes kept from the start of a reply.
const HEAD_BYTES: usize = 64;
/// Maximum number of calls of DBSIZE, one every 10 ms.
const SIZE_STEPS_MAX: usize = 1_500;
/// Maximum number of steps of one SCAN.
const STEPS_MAX: usize = 1_000_000;

/// A connection that sends requests and drops the replies.
pub(super) struct EventClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl EventClient {
    pub(super) fn connect(server: &Server) -> Result<EventClient> {
        Ok(EventClient { stream: fill::connect(server)?, buffer: vec![0; PIECE_BYTES] })
    }

    /// Sends one command and reads the whole reply. Returns the first bytes of the reply.
    pub(super) fn call<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<Vec<u8>> {
        let mut request = Vec::new();
        encode_command(&mut request, args);
        self.pipeline(&request)
    }

    /// Sends the bytes of one or more commands, and reads all replies, as [`EventClient::call`] does.
    pub(super) fn pipeline(&mut self, requests: &[u8]) -> Result<Vec<u8>> {
        self.send(requests)?;
        self.send(MARK)?;
        self.drain()
    }

    /// Sends bytes in small pieces.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(bytes.chunks(PIECE_BYTES).try_for_each(|piece| self.stream.write_all(piece))?)
    }

    /// Reads up to the reply to [`MARK`].
    fn drain(&mut self) -> Result<Vec<u8>> {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        while !tail.ends_with(MARK_REPLY) {
            let n = self.stream.read(&mut self.buffer)?;
            if n == 0 {
                return Err("the server closed the connection".into());
            }
            if head.len() < HEAD_BYTES {
                head.extend_from_slice(&self.buffer[..n.min(HEAD_BYTES - head.len())]);
            }
            tail.extend_from_slice(&self.buffer[n.saturating_sub(MARK_REPLY.len())..n]);
            tail.drain(..tail.len().saturating_sub(MARK_REPLY.len()));
        }
        if head.starts_with(b"-") {
            return Err(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().into());
        }
        Ok(head)
    }

    /// Repeats a command with a cursor at word `cursor` until the cursor is 0 again.
    pub(super) fn scan(&mut self, words: &[&str], cursor: usize) -> Result<()> {
        let mut words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        for _ in 0..STEPS_MAX {
            let head = self.call(&words)?;
            let text = String::from_utf8_lossy(&head);
            words[cursor] = text.lines().nth(2).ok_or("the reply to a scan has no cursor")?.to_string();
            if words[cursor] == "0" {
                return Ok(());
            }
        }
        Err("the scan does not end".into())
    }

    /// Calls DBSIZE until it is at most `keys`. Gives up after a limited number of calls.
    pub(super) fn wait_for_size(&mut self, keys: u64) -> Result<()> {
        let (mut size, step) = (0, std::time::Duration::from_millis(10));
        for _ in 0..SIZE_STEPS_MAX {
            let head = self.call(&["DBSIZE"])?;
            let text = String::from_utf8_lossy(&head);
            let number = text.lines().next().and_then(|l| l.strip_prefix(':')?.parse::<u64>().ok());
            size = number.ok_or("the reply to DBSIZE is not a number")?;
            if size <= keys {
                return Ok(());
            }
            std::thread::sleep(step);
        }
        Err(format!("{} keys are still there after 15 s", size - keys).into())
    }
}

/// Gives this thread a lower priority than the probe's thread.
pub(super) fn lower_priority() -> Result<()> {
    // On Linux a call without an id affects only the calling thread. The priority is lowered from the
    // process's own, so it is below the probe's even when the whole run has a low priority.
    let own = rustix::process::getpriority_process(None)?;
    rustix::process::setpriority_process(None, (own + 19).min(19))?;
    Ok(())
}
