//! The stream: where its bytes come from, and its ids.
//!
//! The stream of a primary is its journal. The stream of a replica is its primary's stream, byte by byte as it arrives,
//! with the primary's id and offsets. So the replicas of one primary, their own replicas, and the primary agree about
//! offsets. When a replica becomes a primary ([`Engine::begin_own_stream`]), its stream goes on at the same offset under
//! a new id, and the former id stays valid up to this offset as the *second id*. So the other replicas of the former
//! primary, and the former primary itself, continue with what they lack.
//!
//! The offsets of a primary's stream and of its journal differ by a constant ([`Stream::shift`]).

use super::State;
use crate::Engine;
use crate::config::Opt;
use crate::following::Position;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use strand_chain::Chain;

/// Where the stream comes from, and where it may be continued. Besides the id ([`Engine::replication_id`]).
#[derive(Default)]
pub(super) struct Stream {
    /// True when the stream is the primary's, false when it is the journal.
    pub(super) is_from_primary: bool,
    /// The journal's offset at which the stream begins. Journal bytes before it are not in the stream.
    pub(super) begin: u64,
    /// The difference between an offset of the stream and the offset of the same byte in the journal.
    pub(super) shift: i64,
    /// The former id, and the offset up to which it is valid.
    pub(super) second: Option<(String, u64)>,
}

impl Stream {
    /// A stream that is the journal from `begin` on.
    pub(super) fn of_journal(begin: u64) -> Stream {
        Stream { begin, ..Stream::default() }
    }
    /// The stream's offset for an offset of the journal.
    pub(super) fn offset_of(&self, journal_offset: u64) -> u64 {
        journal_offset.saturating_add_signed(self.shift)
    }
    /// The journal's offset for an offset of the stream. 0 for an offset before the journal.
    pub(super) fn journal_offset_of(&self, offset: u64) -> u64 {
        offset.saturating_add_signed(self.shift.saturating_neg())
    }
}

impl State {
    /// Adds the journal's new bytes, which end at this offset of the journal.
    pub(super) fn append_journal(&mut self, bytes: &Chain, end: u64, backlog_bytes_max: usize) {
        let before = self.stream.begin.saturating_sub(end - bytes.len() as u64);
        if self.stream.is_from_primary || before >= bytes.len() as u64 {
            return;
        }
        let mut bytes = bytes.share();
        bytes.advance(before as usize);
        self.append(&bytes, self.stream.offset_of(end), backlog_bytes_max);
    }
    /// Adds new bytes of the primary's stream, which end at this offset of the stream.
    fn append_of_primary(&mut self, bytes: &Chain, end: u64, backlog_bytes_max: usize) {
        if !self.stream.is_from_primary {
            return;
        }
        if self.end + bytes.len() as u64 != end {
            // The first bytes of a long command were not kept, because there was no replica.
            self.backlog = Chain::new();
            self.disconnect();
        }
        self.append(bytes, end, backlog_bytes_max);
    }
    /// Disconnects the replicas, which get no later byte. They come back, and get what they lack.
    pub(super) fn disconnect(&self) {
        for replica in &self.replicas {
            replica.end();
            replica.client.kill();
        }
    }
}

impl Engine {
    /// The offset of the end of the stream.
    pub(crate) fn stream_end(&self) -> u64 {
        let state = self.replication.state.lock();
        match state.stream.is_from_primary {
            true => state.end,
            false => state.stream.offset_of(self.keyspace.journal().tail()),
        }
    }
    /// The second id and the offset up to which it is valid.
    pub(crate) fn second_replication_id(&self) -> Option<(String, u64)> {
        self.replication.state.lock().stream.second.clone()
    }
    /// Sets the id, and forgets the second one.
    pub(crate) fn set_replication_id(&self, id: String) {
        self.replication.state.lock().stream.second = None;
        *self.replication_id.lock() = id;
    }
    /// The position in this server's own stream that an offset of the journal has, after which the stream selects a
    /// database. `None`: replication is off, or the stream is a primary's.
    pub(crate) fn own_position(&self, journal_offset: u64) -> Option<Position> {
        let state = self.replication.state.lock();
        let is_own = self.replication.is_on() && !state.stream.is_from_primary;
        let id = is_own.then(|| self.replication_id.lock().clone())?;
        Some(Position { id, offset: state.stream.offset_of(journal_offset), db: 0 })
    }
    /// Keeps new bytes of the primary's stream, which end at this offset, for the replicas of this server.
    pub(crate) fn pass_stream_on(&self, bytes: &Chain, end: u64) {
        let backlog_bytes_max = self.config.number(Opt::ReplBacklogSize) as usize;
        self.replication.state.lock().append_of_primary(bytes, end, backlog_bytes_max);
    }
    /// From now on the stream is a primary's, at `position`, because the data here is the primary's. Replicas of this
    /// server are disconnected, and get all data.
    pub(crate) fn begin_stream_of_primary(&self, position: &Position) -> io::Result<()> {
        let Some(engine) = self.me() else { return Ok(()) };
        self.while_nobody_takes(|has_file| {
            engine.spawn_feeding_thread()?;
            let mut state = self.replication.state.lock();
            let was_journal = self.replication.is_on() && !state.stream.is_from_primary;
            state.stream = Stream { is_from_primary: true, ..Stream::default() };
            (state.backlog, state.end) = (Chain::new(), position.offset);
            state.disconnect();
            *self.replication_id.lock() = position.id.clone();
            self.replication.set_on(true);
            drop(state);
            if was_journal && !has_file {
                self.end_journal();
            }
            Ok(())
        })
    }
    /// The primary's stream goes on under another id. `end`: the end of what this server has of it.
    pub(crate) fn rename_stream_of_primary(&self, id: &str, end: u64) {
        let mut state = self.replication.state.lock();
        let mut current = self.replication_id.lock();
        if *current != id {
            state.stream.second = Some((std::mem::replace(&mut *current, id.to_owned()), end));
            // The replicas of this server learn the new id when they come back.
            state.disconnect();
        }
    }
    /// This server becomes a replica: its journal is no longer the stream. Returns the end of its own stream, from which
    /// the primary may be able to continue. `None`: replication is off. The caller knows that no client writes any more.
    /// May block.
    pub(crate) fn leave_own_stream(&self) -> Option<Position> {
        loop {
            if !self.replication.is_on() || self.replication.state.lock().stream.is_from_primary {
                return None;
            }
            self.drain_journal();
            let left = self.while_nobody_takes(|has_file| {
                let journal = self.keyspace.journal();
                let (end, id) = (journal.tail(), self.replication_id.lock().clone());
                let mut state = self.replication.state.lock();
                if state.end != state.stream.offset_of(end) {
                    return None;
                }
                state.stream.is_from_primary = true;
                state.disconnect();
                // A new primary selects a database before its first command.
                let position = Position { id, offset: state.end, db: 0 };
                drop(state);
                if !has_file {
                    self.end_journal();
                }
                Some(position)
            });
            if left.is_some() {
                return left;
            }
        }
    }
    /// This server becomes a primary: its journal is the stream from now on, which goes on at the offset that its primary's
    /// stream had, under a new id. `is_of_stream`: the data here is that of the primary's stream, so the former id stays
    /// valid up to here. Call it before clients may write. May block.
    pub(crate) fn begin_own_stream(&self, is_of_stream: bool) {
        let id = self.new_replication_id();
        self.while_nobody_takes(|_| {
            let mut state = self.replication.state.lock();
            if !self.replication.is_on() || !state.stream.is_from_primary {
                return;
            }
            drop(state);
            // With a file that has no base yet, the journal is off, too.
            if !self.keyspace.journal().is_on() {
                self.keyspace.switch_journal(true);
            }
            let journal = self.keyspace.journal();
            // The primary's stream may have selected any database.
            let begin = journal.select_again();
            state = self.replication.state.lock();
            let former = std::mem::replace(&mut *self.replication_id.lock(), id);
            let shift = state.end.cast_signed().wrapping_sub(begin.cast_signed());
            let second = is_of_stream.then_some((former, state.end));
            state.stream = Stream { is_from_primary: false, begin, shift, second };
            if !is_of_stream {
                state.backlog = Chain::new();
            }
            // The replicas of this server learn the new id when they come back.
            state.disconnect();
            // `repl-backlog-ttl` begins now.
            state.alone_since_us = Some(self.host.mono_us());
        });
        self.replication.work.notify();
    }
    /// Switches the journal off, because neither a file nor a replica needs its bytes.
    pub(super) fn end_journal(&self) {
        self.keyspace.switch_journal(false);
        self.take_journal(&mut Chain::new());
    }
    /// Starts the feeding thread, unless replication is on.
    pub(super) fn spawn_feeding_thread(self: &Arc<Self>) -> io::Result<()> {
        if self.replication.is_on() {
            return Ok(());
        }
        let engine = self.clone();
        self.host.spawn("replica-feed", Box::new(move || engine.run_feeding_thread()))
    }
}

impl super::Replication {
    pub(super) fn set_on(&self, on: bool) {
        self.is_on.store(on, SeqCst);
    }
}
