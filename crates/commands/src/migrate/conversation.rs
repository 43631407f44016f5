//! [`Conversation`]: what MIGRATE sends to the other server, and the replies. [`Held`]: the shards that are held meanwhile.

use super::{ConnectionLost, NotConnected, PeerLink, Peers, Target};
use crate::call::LaneTxn;
use crate::parse::Text;
use std::time::Duration;

const NOT_CONNECTED: &str = "IOERR error or timeout connecting to the client";
pub(super) const NOT_SENT: &str = "IOERR error or timeout writing to target instance";
const NOT_READ: &str = "IOERR error or timeout reading to target instance";

/// The shards of the keys that are being moved, while they are held.
pub(super) struct Held<'a> {
    /// `None` when the other server took too long.
    pub(super) txn: Option<LaneTxn<'a>>,
    /// The time that is left to hold them.
    pub(super) left: Duration,
}

impl Held<'_> {
    fn count(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

/// The conversation with the other server.
pub(super) struct Conversation<'a> {
    peers: &'a dyn Peers,
    pub(super) target: &'a Target<'a>,
    /// The time in unix milliseconds.
    clock: &'a dyn Fn() -> i64,
    link: Box<dyn PeerLink>,
    /// The commands that come before the first key of a connection: AUTH and SELECT. And the number of their replies.
    first_commands: (Vec<u8>, usize),
    /// The commands that must be sent before the next key: empty when they are sent.
    pub(super) preamble: Vec<u8>,
    /// Number of replies to `preamble` that were not read yet.
    preamble_replies: usize,
    /// True until a reply to `preamble` is an error.
    preamble_accepted: bool,
    /// The first error reply of the other server.
    pub(super) first_error: Option<Text>,
}

impl<'a> Conversation<'a> {
    /// Connects to `target`. `first_commands`: see [`Conversation::first_commands`].
    ///
    /// # Errors
    /// The error reply of MIGRATE.
    pub(super) fn begin(
        peers: &'a dyn Peers,
        target: &'a Target<'a>,
        clock: &'a dyn Fn() -> i64,
        first_commands: (Vec<u8>, usize),
    ) -> Result<Conversation<'a>, Text> {
        Ok(Conversation {
            peers,
            target,
            clock,
            link: connect(peers, target)?,
            preamble: first_commands.0.clone(),
            preamble_replies: first_commands.1,
            first_commands,
            preamble_accepted: true,
            first_error: None,
        })
    }
    /// Moves `txn` to the present time, and returns the time: the other server counts a TTL from the arrival of the key.
    pub(super) fn set_now(&self, txn: &mut LaneTxn<'_>) -> i64 {
        let now_ms = (self.clock)();
        txn.set_now_ms(now_ms);
        now_ms
    }
    /// Closes the connection, and opens another one.
    pub(super) fn connect_again(&mut self) -> Result<(), Text> {
        self.link = connect(self.peers, self.target)?;
        self.preamble = self.first_commands.0.clone();
        self.preamble_replies = self.first_commands.1;
        self.preamble_accepted = true;
        Ok(())
    }
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), Text> {
        self.link.send(request).map_err(|ConnectionLost| NOT_SENT.into())
    }
    /// Sends `request`. Lets the shards go if that takes too long.
    pub(super) fn send_held(&mut self, request: &[u8], held: &mut Held<'_>) -> Result<(), Text> {
        let sent = self.link.send_within(request, held.left);
        let (bytes, waited) = sent.map_err(|ConnectionLost| Text::from(NOT_SENT))?;
        held.count(waited);
        if bytes < request.len() {
            held.txn = None;
            self.send(&request[bytes..])?;
        }
        Ok(())
    }
    /// Reads the reply to a key. Returns true when the other server has stored the key. If a reply to `preamble`
    /// was an error, no key counts as stored.
    pub(super) fn read_is_stored(&mut self, held: &mut Held<'_>) -> Result<bool, Text> {
        for _ in 0..std::mem::take(&mut self.preamble_replies) {
            self.preamble_accepted &= self.read(held)?;
        }
        Ok(self.read(held)? && self.preamble_accepted)
    }
    /// Reads a reply. Returns false when the reply is an error. Lets the shards go if that takes too long.
    fn read(&mut self, held: &mut Held<'_>) -> Result<bool, Text> {
        if held.txn.is_some() {
            match self.link.await_input(held.left) {
                Some(waited) => held.count(waited),
                None => held.txn = None,
            }
        }
        let line = self.link.line().map_err(|ConnectionLost| Text::from(NOT_READ))?;
        let Some(error) = line.strip_prefix(b"-") else { return Ok(true) };
        let text = String::from_utf8_lossy(error);
        self.first_error
            .get_or_insert_with(|| format!("ERR Target instance replied with error: {text}").into());
        Ok(false)
    }
}

fn connect(peers: &dyn Peers, target: &Target<'_>) -> Result<Box<dyn PeerLink>, Text> {
    peers.connect(target).map_err(|why| match why {
        NotConnected::Unreachable => NOT_CONNECTED.into(),
        // redis-server notices a refused connection only when it writes, so this is its error for writing.
        NotConnected::Refused => NOT_SENT.into(),
    })
}
