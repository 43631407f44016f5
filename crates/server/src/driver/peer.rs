//! Connections of the server to another server, for MIGRATE. They run on helper threads, so they may wait.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use strand_commands::migrate::{Claim, ConnectionLost, NotConnected, PeerLink, Peers, Target};

/// After this number of sent bytes, the timeout starts again.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum length of a line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Connects MIGRATE to other servers, and holds the keys that MIGRATE moves at this moment.
#[derive(Debug, Default)]
pub(super) struct OtherServers {
    /// The database and the name of each key.
    moving: Mutex<BTreeSet<(usize, Vec<u8>)>>,
    /// Signalled when keys have moved.
    moved: Condvar,
}

impl Peers for OtherServers {
    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn PeerLink>, NotConnected> {
        connect(target)
    }
    fn claim(&self, db: usize, keys: &[&[u8]], timeout: Duration) -> Option<Box<dyn Claim + '_>> {
        let keys: Vec<(usize, Vec<u8>)> = keys.iter().map(|key| (db, key.to_vec())).collect();
        let deadline = Deadline::in_(timeout);
        let mut moving = self.moving.lock();
        while keys.iter().any(|key| moving.contains(key)) {
            self.moved.wait_for(&mut moving, deadline.left()?);
        }
        moving.extend(keys.iter().cloned());
        Some(Box::new(MovingKeys { servers: self, keys }))
    }
}

/// The keys that one MIGRATE moves.
struct MovingKeys<'s> {
    servers: &'s OtherServers,
    keys: Vec<(usize, Vec<u8>)>,
}

impl Claim for MovingKeys<'_> {}

impl Drop for MovingKeys<'_> {
    fn drop(&mut self) {
        let mut moving = self.servers.moving.lock();
        for key in &self.keys {
            moving.remove(key);
        }
        drop(moving);
        self.servers.moved.notify_all();
    }
}

/// Connects to `target`.
fn connect(target: &Target<'_>) -> Result<Box<dyn PeerLink>, NotConnected> {
    let unreachable = NotConnected::Unreachable;
    let host = std::str::from_utf8(target.host).map_err(|_| unreachable)?;
    let port = std::str::from_utf8(target.port)
        .ok()
        .and_then(|port| port.parse::<u16>().ok())
        .filter(|port| *port > 0);
    let addresses = (host, port.unwrap_or(0)).to_socket_addrs().map_err(|_| unreachable)?;
    if port.is_none() {
        // redis-server connects to a port for every text: 0, or a part of the number. Usually nobody listens there. But it
        // finds no address with a negative port.
        return Err(if target.port.starts_with(b"-") { unreachable } else { NotConnected::Refused });
    }
    let deadline = Deadline::in_(target.timeout);
    let mut why = unreachable;
    for address in addresses {
        let left = deadline.left().ok_or(unreachable)?;
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|_| unreachable)?;
                return Ok(Box::new(Peer { stream, timeout: target.timeout, input: Vec::new() }));
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => why = NotConnected::Refused,
            Err(_) => {}
        }
    }
    Err(why)
}

/// A connection to another server.
struct Peer {
    stream: TcpStream,
    timeout: Duration,
    /// Bytes that were received after the last line.
    input: Vec<u8>,
}

impl Peer {
    /// Sends bytes until the deadline. Returns the number of bytes that were sent.
    fn send_until(&mut self, bytes: &[u8], deadline: &Deadline) -> Result<usize, ConnectionLost> {
        let mut sent = 0;
        while sent < bytes.len()
            && let Some(left) = deadline.left()
        {
            self.stream.set_write_timeout(Some(left)).map_err(|_| ConnectionLost)?;
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => return Err(ConnectionLost),
                Ok(more) => sent += more,
                Err(e) if is_no_failure(e.kind()) => {}
                Err(_) => return Err(ConnectionLost),
            }
        }
        Ok(sent)
    }
    /// Reads the bytes that arrive next. Returns false when none came before the deadline.
    fn read_until(&mut self, deadline: &Deadline) -> Result<bool, ConnectionLost> {
        while let Some(left) = deadline.left() {
            self.stream.set_read_timeout(Some(left)).map_err(|_| ConnectionLost)?;
            let mut more = [0; 4096];
            match self.stream.read(&mut more) {
                Ok(0) => return Err(ConnectionLost),
                Ok(n) => {
                    self.input.extend_from_slice(&more[..n]);
                    return Ok(true);
                }
                Err(e) if is_no_failure(e.kind()) => {}
                Err(_) => return Err(ConnectionLost),
            }
        }
        Ok(false)
    }
}

impl PeerLink for Peer {
    fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionLost> {
        for piece in bytes.chunks(PIECE_BYTES) {
            if self.send_until(piece, &Deadline::in_(self.timeout))? < piece.len() {
                return Err(ConnectionLost);
            }
        }
        Ok(())
    }
    fn send_within(&mut self, bytes: &[u8], wait: Duration) -> Result<(usize, Duration), ConnectionLost> {
        let begun = Instant::now();
        let sent = self.send_until(bytes, &Deadline::in_(wait))?;
        Ok((sent, begun.elapsed()))
    }
    fn await_input(&mut self, wait: Duration) -> Option<Duration> {
        let begun = Instant::now();
        // A connection that has ended counts: the next read of a line fails at once.
        let is_there = !self.input.is_empty() || self.read_until(&Deadline::in_(wait)) != Ok(false);
        is_there.then(|| begun.elapsed())
    }
    fn line(&mut self) -> Result<Vec<u8>, ConnectionLost> {
        let deadline = Deadline::in_(self.timeout);
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.input[looked_at..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.input.drain(..=looked_at + end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            looked_at = self.input.len();
            if looked_at > LINE_BYTES_MAX {
                return Err(ConnectionLost);
            }
            if !self.read_until(&deadline)? {
                return Err(ConnectionLost);
            }
        }
    }
}

/// True for errors that do not end the connection. The deadline handles timeouts.
fn is_no_failure(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A deadline. `None` when the deadline is beyond the range of the clock.
struct Deadline(Option<Instant>);

impl Deadline {
    fn in_(time: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(time))
    }
    /// The time left, never zero. `None` when the deadline has passed.
    fn left(&self) -> Option<Duration> {
        match self.0 {
            Some(at) => at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()),
            None => Some(Duration::MAX),
        }
    }
}
