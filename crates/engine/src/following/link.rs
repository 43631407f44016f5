//! The thread `replica-link`: connects to the primary, and runs the commands of its stream.

use super::wire::Wire;
use super::{Phase, Position};
use crate::config::Opt;
use crate::host::Dial;
use crate::persist::run_other;
use crate::{Engine, TABLE, system_text};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use strand_chain::Chain;
use strand_commands::replay::{Replay, ReplayError};
use strand_wire::args::{Args, Argv};
use strand_wire::resp::{Decoded, Decoder, RequestLimits};

/// Time between two attempts to connect.
const RETRY_US: u64 = 1_000_000;
/// Time between two acknowledgements.
const ACK_EVERY_US: u64 = 1_000_000;
/// Time between two acknowledgements during the first second of a connection. redis-server sends a replica nothing after
/// a snapshot until an acknowledgement, and forgets one that comes before it has noticed the end of its child.
const FIRST_ACKS_EVERY_US: u64 = 100_000;
/// The replicas of this server get the stream in pieces of about this size, or when no more bytes have arrived.
const UNPASSED_BYTES_MAX: usize = 64 << 10;
/// While CLIENT PAUSE stops the primary's commands, the link reads no more when this number of bytes waits.
const PAUSED_BYTES_MAX: usize = 64 << 20;
/// Time between two looks whether the pause is over.
const PAUSE_NAP_US: u64 = 10_000;

impl Engine {
    /// The thread: follows the primary with this number until another is set.
    pub(super) fn run_link(&self, number: u64) {
        // Writes of clients that were admitted before are made before the primary's data comes.
        self.await_begun_writes(|| self.following.is_current(number));
        if !self.leave_former_stream(number) {
            return;
        }
        self.clients.all().iter().for_each(|client| client.end_wait_of_primary());
        self.following.update(number, |_| self.following.is_settling.store(false, SeqCst));
        self.replicas_changed();
        while self.following.is_current(number) {
            let why = match catch_unwind(AssertUnwindSafe(|| self.follow_once(number))) {
                Ok(Ok(())) => return,
                Ok(Err(why)) => why,
                Err(_) => {
                    // The panic is in the log. What the command has changed is not known.
                    self.following.state.lock().lose_position();
                    io::Error::other("a command of the stream has failed with a panic")
                }
            };
            if !self.following.is_current(number) {
                return;
            }
            self.host.warn(&format!("Connection with the primary lost: {}", system_text(&why)));
            let seen = self.following.changed.changes();
            self.following.update(number, |state| {
                if state.phase == Phase::Connected {
                    state.down_since_us = Some(self.host.mono_us());
                }
                state.phase = Phase::Down;
            });
            if self.following.is_current(number) {
                self.following.changed.wait(seen, Some(RETRY_US));
            }
        }
    }
    /// Waits for a command of the former primary's stream that is still applied. The data of a server that was a primary is
    /// of its own stream, from which the new primary may be able to continue. False when another primary was set, or the
    /// replica that FAILOVER names lacks a write.
    fn leave_former_stream(&self, number: u64) -> bool {
        let failed = {
            // Who sets another primary waits for this lock before it looks at the stream.
            let _applied = self.following.applying.lock();
            if !self.following.is_current(number) {
                return false;
            }
            let own = self.leave_own_stream();
            let mut state = self.following.state.lock();
            if let Some(own) = own {
                state.position = own;
            }
            let end = state.position.offset;
            state.takeover.filter(|takeover| takeover.offset.is_some_and(|offset| offset != end))
        };
        let Some(takeover) = failed else { return true };
        let why = "the replica lacks a write that this server accepted before the failover";
        // After FAILOVER ABORT this server still follows the replica.
        if self.abort_failover(Some(takeover.number), why).is_err() && self.following.is_current(number) {
            self.stop_following();
        }
        false
    }
    /// Connects once, and follows until the connection ends.
    ///
    /// # Errors
    /// Why the connection has ended. `Ok` when another primary was set.
    fn follow_once(&self, number: u64) -> io::Result<()> {
        let (host, port) = match &self.following.state.lock().primary {
            Some((host, port)) => (host.clone(), *port),
            None => return Ok(()),
        };
        self.following.update(number, |state| state.phase = Phase::Connecting);
        let timeout = Duration::from_secs(self.config.number(Opt::ReplTimeout).max(1) as u64);
        let source = String::from_utf8_lossy(&self.config.text(Opt::BindSourceAddr)).into_owned();
        let source = match &*source {
            "" => None,
            text => Some(text.parse().map_err(|_| io::Error::other("bind-source-addr is no IP address"))?),
        };
        let link = self.host.dial(Dial {
            host: &host,
            port,
            tls: self.config.number(Opt::TlsReplication) == 1,
            source,
            timeout,
        })?;
        let mut wire = Wire::new(self, link, number, timeout)?;
        self.introduce(&mut wire)?;
        let (before, takeover) = {
            let state = self.following.state.lock();
            if state.number != number {
                return Ok(());
            }
            (state.position.clone(), state.takeover)
        };
        let (id, next) = match &*before.id {
            "" => ("?".to_owned(), "-1".to_owned()),
            id => (id.to_owned(), (before.offset + 1).to_string()),
        };
        let psync: &[&[u8]] = &[b"PSYNC", id.as_bytes(), next.as_bytes(), b"FAILOVER"];
        let reply = wire.ask(if takeover.is_some() { psync } else { &psync[..3] })?;
        if let Some(takeover) = takeover {
            if !["+FULLRESYNC", "+CONTINUE"].iter().any(|start| reply.starts_with(start)) {
                let why = format!("Failover target rejected psync request: {reply}");
                let _ = self.abort_failover(Some(takeover.number), &why);
                return Err(refused("PSYNC", &reply));
            }
            self.following.update(number, |state| state.takeover = None);
            self.end_failover(takeover.number);
        }
        let words: Vec<&str> = reply.split(' ').collect();
        let position = match *words {
            ["+FULLRESYNC", id, offset] => {
                let offset: i64 = offset.parse().map_err(|_| refused("PSYNC", &reply))?;
                let offset = u64::try_from(offset).map_err(|_| refused("PSYNC", &reply))?;
                self.following.own_keys.forget();
                self.following.update(number, |state| {
                    state.phase = Phase::Snapshot;
                    state.lose_position();
                });
                self.receive_snapshot(&mut wire, number, id, offset)?
            }
            ["+CONTINUE"] => before,
            ["+CONTINUE", id] => {
                let _applied = self.following.applying.lock();
                if !self.following.is_current(number) {
                    return Ok(());
                }
                self.rename_stream_of_primary(id, before.offset);
                let position = Position { id: id.to_owned(), ..before };
                self.following.state.lock().position = position.clone();
                position
            }
            _ => return Err(refused("PSYNC", &reply)),
        };
        {
            let mut state = self.following.state.lock();
            if state.number != number {
                return Ok(());
            }
            (state.phase, state.heard_us) = (Phase::Connected, self.host.mono_us());
            state.read_offset = position.offset;
        }
        self.host.log(&format!("Following {host}:{port} from offset {}", position.offset));
        self.apply_stream(&mut wire, position, timeout, number)
    }
    /// Tells the primary who this server is.
    fn introduce(&self, wire: &mut Wire) -> io::Result<()> {
        let pong = wire.ask(&[b"PING"])?;
        // As in redis-server, these errors still allow a login.
        let may_continue = ["+", "-NOAUTH", "-NOPERM", "-ERR operation not permitted"];
        if !may_continue.iter().any(|start| pong.starts_with(start)) {
            return Err(refused("PING", &pong));
        }
        let (user, password) = (self.config.text(Opt::MasterUser), self.config.text(Opt::MasterAuth));
        if !password.is_empty() {
            let words: &[&[u8]] = match user.is_empty() {
                true => &[b"AUTH", &password],
                false => &[b"AUTH", &user, &password],
            };
            let reply = wire.ask(words)?;
            if !reply.starts_with('+') {
                // redis-server's words.
                return Err(io::Error::other(format!("Unable to AUTH to MASTER: {}", shown(&reply))));
            }
        }
        let port = match (self.config.number(Opt::ReplicaAnnouncePort), self.config.tls_port()) {
            (0, tls_port) if tls_port > 0 && self.config.number(Opt::TlsReplication) == 1 => {
                tls_port.to_string()
            }
            (0, _) => self.config.port().to_string(),
            (port, _) => port.to_string(),
        };
        // A primary that does not know one of these replies with an error, and works without it.
        wire.ask(&[b"REPLCONF", b"listening-port", port.as_bytes()])?;
        let ip = self.config.text(Opt::ReplicaAnnounceIp);
        if !ip.is_empty() {
            wire.ask(&[b"REPLCONF", b"ip-address", &ip])?;
        }
        wire.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        Ok(())
    }
    /// Runs the commands of the stream.
    fn apply_stream(
        &self,
        wire: &mut Wire,
        position: Position,
        timeout: Duration,
        number: u64,
    ) -> io::Result<()> {
        let databases = self.keyspace.databases();
        if position.db >= databases {
            self.following.update(number, super::State::lose_position);
            let text =
                format!("the stream selects database {}, and this server has {databases}", position.db);
            return Err(io::Error::other(text));
        }
        let used = wire.received - wire.undecoded_bytes() as u64;
        let begin = position.offset.wrapping_sub(used);
        let mut replay = Replay::new(&TABLE, self.host.mono_us());
        replay.set_db(position.db);
        let mut stream = Stream {
            replay,
            offset: position.offset,
            begin,
            raw: Chain::new(),
            has_failed: false,
            silent_us: 0,
            in_file: None,
            unsynced: None,
            newest: None,
        };
        let (mut decoder, mut argv) = (Decoder::new(RequestLimits::FULL), Argv::new());
        let (mut ack_at_us, begun_us) = (0, self.host.mono_us());
        loop {
            let now_us = self.host.mono_us();
            if now_us >= ack_at_us {
                let is_young = now_us.saturating_sub(begun_us) < ACK_EVERY_US;
                ack_at_us = now_us + if is_young { FIRST_ACKS_EVERY_US } else { ACK_EVERY_US };
                stream.note_applied(self);
                stream.acknowledge(self, wire)?;
                wire.client.update(stream.replay.db(), wire.undecoded_bytes());
            } else if stream.has_become_safe(self) {
                stream.acknowledge(self, wire)?;
            }
            // As in redis-server, CLIENT PAUSE stops the primary's commands, too. They arrive meanwhile.
            if self.pause.stops_clients(now_us) {
                match wire.undecoded_bytes() < PAUSED_BYTES_MAX {
                    true => self.receive(&mut stream, wire, timeout, number)?,
                    false => self.host.nap_us(PAUSE_NAP_US),
                }
                if !self.following.is_current(number) {
                    return Ok(());
                }
                continue;
            }
            let part = wire.next_part();
            let mut encoded = part.share();
            let decoded = decoder.decode(part, &mut argv);
            stream.raw.push_chain(encoded.split_to(encoded.len() - part.len()));
            drop(encoded);
            let decoded = decoded.map_err(|error| {
                // What follows in the stream cannot be found.
                self.following.update(number, super::State::lose_position);
                io::Error::new(ErrorKind::InvalidData, String::from_utf8_lossy(&error.message()).into_owned())
            })?;
            match decoded {
                Decoded::Command => {
                    if !self.apply(&mut stream, wire, &mut argv, number)? {
                        return Ok(());
                    }
                    argv.clear();
                }
                Decoded::LimitReached => {}
                Decoded::NeedsBytes if wire.extend_part() => {}
                Decoded::NeedsBytes => {
                    self.shorten(&mut stream.raw);
                    let mut state = self.following.state.lock();
                    if state.number != number {
                        return Ok(());
                    }
                    self.pass_on(&mut state);
                    drop(state);
                    wire.client.update(stream.replay.db(), wire.undecoded_bytes());
                    self.receive(&mut stream, wire, timeout, number)?;
                }
            }
        }
    }
    /// Waits for bytes of the stream, for a short time.
    ///
    /// # Errors
    /// As [`Wire::fill`]. Also when the primary is silent for too long.
    fn receive(
        &self,
        stream: &mut Stream,
        wire: &mut Wire,
        timeout: Duration,
        number: u64,
    ) -> io::Result<()> {
        let begun_us = self.host.mono_us();
        if wire.fill()? {
            stream.silent_us = 0;
            let read_offset = stream.begin.wrapping_add(wire.received);
            self.following.update(number, |state| {
                (state.heard_us, state.read_offset) = (self.host.mono_us(), read_offset);
            });
            return Ok(());
        }
        stream.silent_us += self.host.mono_us().saturating_sub(begun_us);
        match stream.silent_us > timeout.as_micros() as u64 {
            true => Err(io::Error::new(ErrorKind::TimedOut, "the primary is silent")),
            false => Ok(()),
        }
    }
    /// Runs a command of the stream. False when another primary was set.
    fn apply(&self, stream: &mut Stream, wire: &mut Wire, argv: &mut Argv, number: u64) -> io::Result<bool> {
        let asks_for_ack = argv.args().is(0, "REPLCONF") && argv.args().is(1, "GETACK");
        if asks_for_ack {
            stream.note_applied(self);
            stream.acknowledge(self, wire)?;
        }
        {
            let _applying = self.following.applying.lock();
            if !self.following.is_current(number) {
                return Ok(false);
            }
            if !argv.is_empty() {
                let now = self.host.now();
                let run = &mut |spec, args: Args<'_>, db| match self.publish_from_primary(args) {
                    true => Ok(None),
                    false => run_other(self, spec, args, db, now),
                };
                if self.monitors.any() {
                    wire.client.show_to_monitors(&stream.replay, argv.args(), now);
                }
                let (failed, begun_ns) = (stream.replay.failed, self.host.mono_ns());
                let done = stream.replay.command(&self.keyspace, argv, now.unix_ms(), run);
                if let Some(spec) = stream.replay.latest {
                    let took_ns = self.host.mono_ns().saturating_sub(begun_ns);
                    wire.client.count(spec, argv.args(), now, took_ns, stream.replay.failed - failed);
                }
                if let Err(ReplayError::Database { .. }) = &done {
                    // Later commands would change another database.
                    self.following.update(number, super::State::lose_position);
                }
                stream.report(self, done)?;
            }
            let end = stream.begin.wrapping_add(wire.received - wire.undecoded_bytes() as u64);
            // After an interruption the stream continues before the transaction.
            if !stream.replay.in_multi() {
                stream.offset = end;
                let mut state = self.following.state.lock();
                (state.position.offset, state.position.db) = (end, stream.replay.db());
                state.unpassed.push_chain(std::mem::take(&mut stream.raw));
                if state.unpassed.len() > UNPASSED_BYTES_MAX {
                    self.pass_on(&mut state);
                }
            }
        }
        Ok(true)
    }
    /// Drops the first bytes of a long command, if no replica of this server needs them.
    fn shorten(&self, raw: &mut Chain) {
        let excess = raw.len().saturating_sub(self.config.number(Opt::ReplBacklogSize) as usize);
        if excess > 0 && self.replication.len() == 0 {
            raw.advance(excess);
        }
    }
}

/// The state of a connection's stream.
struct Stream {
    replay: Replay,
    /// The offset of the end of what was applied.
    offset: u64,
    /// The offset of the connection's first byte, if all its bytes were of the stream. It may lie before 0, and wraps.
    begin: u64,
    /// The bytes after `offset` that were decoded.
    raw: Chain,
    /// True when a command has failed.
    has_failed: bool,
    /// How long the link has waited for bytes since the last ones. The time for which commands run does not count.
    silent_us: u64,
    /// The offset up to which the stream is on the disk, in the append-only file. `None`: unknown.
    in_file: Option<u64>,
    /// What is awaited, and what was noted after it.
    unsynced: Option<Applied>,
    newest: Option<Applied>,
}

/// An offset of the stream, and the journal's offset of the end of its effects.
#[derive(Clone, Copy)]
struct Applied {
    offset: u64,
    tail: u64,
}

impl Stream {
    /// Notes what was applied, so that [`Stream::has_become_safe`] tells when it is on the disk.
    fn note_applied(&mut self, engine: &Engine) {
        let applied = Applied { offset: self.offset, tail: engine.keyspace.journal().tail() };
        match self.unsynced {
            None if self.in_file == Some(self.offset) => {}
            None => self.unsynced = Some(applied),
            Some(_) => self.newest = Some(applied),
        }
        self.has_become_safe(engine);
    }
    /// Acknowledges what was applied, and what is on the disk.
    fn acknowledge(&self, engine: &Engine, wire: &mut Wire) -> io::Result<()> {
        let offset = self.offset.to_string();
        let in_file = self.in_file.filter(|_| engine.persist.aof.has_this_data());
        match in_file.map(|offset| offset.to_string()) {
            None => wire.send_command(&[b"REPLCONF", b"ACK", offset.as_bytes()]),
            Some(in_file) => {
                wire.send_command(&[b"REPLCONF", b"ACK", offset.as_bytes(), b"FACK", in_file.as_bytes()])
            }
        }
    }
    /// True when something that [`Stream::note_applied`] has noted is on the disk now, and was not before.
    fn has_become_safe(&mut self, engine: &Engine) -> bool {
        if self.unsynced.is_none() || !engine.persist.aof.has_this_data() {
            return false;
        }
        let synced = engine.persist.aof.gates.synced();
        let mut has_become = false;
        while let Some(applied) = self.unsynced.take_if(|applied| synced >= applied.tail) {
            (self.in_file, self.unsynced, has_become) = (Some(applied.offset), self.newest.take(), true);
        }
        has_become
    }
    /// Logs the first command of the connection that failed. As in redis-server, the stream goes on.
    ///
    /// # Errors
    /// The stream cannot go on: it selects a database that this server does not have.
    fn report(&mut self, engine: &Engine, done: Result<(), ReplayError>) -> io::Result<()> {
        let why = match done {
            Err(why @ ReplayError::Database { .. }) => return Err(io::Error::other(why.to_string())),
            Err(why) => Some(why.to_string()),
            Ok(()) => self.replay.first_error.take(),
        };
        if let Some(why) = why
            && !std::mem::replace(&mut self.has_failed, true)
        {
            engine.host.warn(&format!(
                "A command of the primary's stream failed: {why}. Later failures of this connection are not logged"
            ));
        }
        Ok(())
    }
}

fn refused(what: &str, reply: &str) -> io::Error {
    io::Error::other(format!("the primary replies to {what}: {}", shown(reply)))
}

/// The part of a reply that is logged.
fn shown(reply: &str) -> String {
    reply.chars().take(200).collect()
}
