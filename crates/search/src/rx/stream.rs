//! RX.STREAM: a text that arrives in pieces. A stream reports every *end* of every match of every pattern, as the
//! automaton passes it. It cannot report starts, because it does not keep the text.
//!
//! A stream belongs to the client that opened it, and is closed when this client disconnects. The stream keeps the set
//! as it was when the stream was opened. It runs on the full DFA if there is one, else on the simulation, which stores
//! a list of states between two pieces.

use super::set::Set;
use super::*;
use crate::error::SearchError;
use crate::regex::{Halt, Machine, SearchBudget, Simulation, StreamState};
use crate::service::{Search, check_arity, check_may_use};
use parking_lot::Mutex;
use regex_automata::dfa::Automaton;
use regex_automata::util::primitives::StateID;
use regex_automata::{Input, PatternID};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use strand_commands::call::{LaneCall, RunsOn};

/// Maximum number of open streams of a client.
pub(crate) const STREAMS_PER_CLIENT_MAX: usize = 64;
/// Maximum number of match ends in the reply to one piece. Further ends are only counted.
pub(crate) const ENDS_MAX: usize = 10_000;
/// Number of bytes that are fed between two checks whether the search must stop.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of compiled bytes of the sets of a client's streams, each set counted once. A stream keeps its set
/// alive even after a redefinition.
const SETS_BYTES_MAX: u64 = 256 << 20;

/// All open streams. The lock of this table is held only briefly. A worker never waits for the lock of a stream.
/// [`Streams::tick`] frees the streams of disconnected clients.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    clients: Mutex<HashMap<u64, Client>>,
    /// The clients that have disconnected, whose streams are still to be freed.
    disconnected: Mutex<Vec<Client>>,
    totals: Arc<Totals>,
}

/// Bytes of all streams, open or about to be freed.
#[derive(Debug, Default)]
struct Totals {
    streams: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Client {
    next: u64,
    open: HashMap<u64, Arc<OpenStream>>,
}

/// A stream that is open.
#[derive(Debug)]
struct OpenStream {
    /// The name of the set. The user may lose the right to use the set while the stream is open.
    name: Vec<u8>,
    set: Arc<Set>,
    stream: Mutex<Stream>,
}

#[derive(Debug)]
struct Stream {
    state: State,
    /// Number of bytes fed to the stream so far.
    position: u64,
    /// Bytes of the stream that the totals include.
    bytes: u64,
    totals: Arc<Totals>,
}

impl Stream {
    fn new(state: State, totals: Arc<Totals>) -> Stream {
        totals.streams.fetch_add(1, Relaxed);
        let mut stream = Stream { state, position: 0, bytes: 0, totals };
        stream.count();
        stream
    }
    /// Updates the counted bytes of the stream.
    fn count(&mut self) {
        let state = match &self.state {
            State::Full(_) => 0,
            State::Simulated(both) => size_of_val(&**both) + both.0.heap_bytes() + both.1.heap_bytes(),
        };
        let bytes = (size_of::<OpenStream>() + state) as u64;
        self.totals.bytes.fetch_add(bytes, Relaxed);
        self.totals.bytes.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Relaxed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.totals.streams.fetch_sub(1, Relaxed);
        self.totals.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[derive(Debug)]
enum State {
    Full(StateID),
    Simulated(Box<(Simulation, StreamState)>),
}

/// The ends of matches that were found in one piece.
#[derive(Debug, Default)]
struct Ends {
    count: u64,
    rows: Vec<(PatternID, u64)>,
}

impl Ends {
    fn add(&mut self, pattern: PatternID, at: u64) {
        self.count += 1;
        if self.rows.len() < ENDS_MAX {
            self.rows.push((pattern, at));
        }
    }
    /// Adds the ends of `patterns` patterns at one place. `pattern` gives each of them. Ends that no row shows are only
    /// counted, because each byte of a text may end a thousand matches.
    fn add_all(&mut self, patterns: usize, at: u64, pattern: impl Fn(usize) -> PatternID) {
        let shown = patterns.min(ENDS_MAX - self.rows.len());
        self.rows.extend((0..shown).map(|i| (pattern(i), at)));
        self.count += patterns as u64;
    }
}

impl Streams {
    /// Number of heap bytes of all streams.
    pub(crate) fn bytes(&self) -> u64 {
        self.totals.bytes.load(Relaxed)
    }
    /// Number of open streams.
    pub(crate) fn len(&self) -> u64 {
        self.totals.streams.load(Relaxed)
    }
    /// Closes the streams of a disconnected client.
    pub(crate) fn client_gone(&self, client: u64) {
        let gone = self.clients.lock().remove(&client);
        if let Some(gone) = gone {
            self.disconnected.lock().push(gone);
        }
    }
    /// Frees the memory that disconnected clients left behind. Called several times per second on a helper thread.
    pub(crate) fn tick(&self) {
        let left = std::mem::take(&mut *self.disconnected.lock());
        drop(left);
    }
    fn get(&self, client: u64, id: u64) -> Result<Arc<OpenStream>, SearchError> {
        let clients = self.clients.lock();
        clients.get(&client).and_then(|c| c.open.get(&id)).cloned().ok_or_else(no_such_stream)
    }
    fn close(&self, client: u64, id: u64) {
        let closed = self.clients.lock().get_mut(&client).and_then(|c| c.open.remove(&id));
        drop(closed);
    }
}

impl Client {
    /// Compiled bytes of `set` and of the sets of this client's streams.
    fn sets_bytes(&self, set: &Arc<Set>) -> u64 {
        let mut sets: Vec<&Arc<Set>> = self.open.values().map(|open| &open.set).chain([set]).collect();
        sets.sort_unstable_by_key(|set| Arc::as_ptr(set));
        sets.dedup_by_key(|set| Arc::as_ptr(set));
        sets.iter().map(|set| set.compiled_bytes()).sum()
    }
}

/// `RX.STREAM OPEN name`: returns the stream's number, valid for this client only.
///
/// # Errors
/// When the set does not exist or cannot be streamed, or too many streams are open.
pub(crate) fn open(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_may_use(call, call.args.at(2))?;
    let set = search.regexes.set(call.args.at(2))?;
    let too_big = || SearchError::refused("ERR The set is too big for a stream: use fewer patterns");
    let machine = set.ends().ok_or_else(too_big)?;
    if machine.nfa.look_set_any().contains_word_unicode() {
        let text = "ERR Unicode word boundaries are not supported in streams: use (?-u:\\b)";
        return Err(SearchError::refused(text));
    }
    let start = machine.full().and_then(|dfa| dfa.start_state_forward(&Input::new(b"")).ok());
    let state = start.map_or_else(|| State::Simulated(Box::default()), State::Full);
    let stream = Mutex::new(Stream::new(state, search.streams.totals.clone()));
    let mut clients = search.streams.clients.lock();
    if call.cancelled() {
        // The client has disconnected meanwhile and its streams are closed, so nothing would close the new stream.
        return Err(SearchError::Cancelled);
    }
    let client = clients.entry(call.client).or_default();
    if client.open.len() == STREAMS_PER_CLIENT_MAX {
        let text = format!("ERR Too many streams: at most {STREAMS_PER_CLIENT_MAX} are open at a time");
        return Err(SearchError::Refused(text));
    }
    if client.sets_bytes(&set) > SETS_BYTES_MAX {
        let text = format!("ERR The sets of this client's streams exceed {SETS_BYTES_MAX} bytes: close some");
        return Err(SearchError::Refused(text));
    }
    client.next += 1;
    client.open.insert(client.next, Arc::new(OpenStream { name: call.args.at(2).to_vec(), set, stream }));
    call.reply.int(client.next as i64);
    Ok(())
}

/// `RX.STREAM FEED stream text`: returns an array of the bytes fed so far, the number of ends in this piece, and
/// the first [`ENDS_MAX`] of them as rows `[id, offset]`. Offsets count from the start of the stream. An end is
/// reported once the byte after it has arrived.
///
/// # Errors
/// When the stream does not exist, or its deadline passes, which closes it.
pub(crate) fn feed(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 4)?;
    let text = call.args.at(3);
    if text.len() > TEXT_BYTES_MAX {
        let text = format!("ERR The text is too long: at most {TEXT_BYTES_MAX} bytes are allowed");
        return Err(SearchError::Refused(text));
    }
    feed_stream(search, call, text, false)
}

/// `RX.STREAM CLOSE stream`: like FEED, for the matches that end with the text.
///
/// # Errors
/// When the stream does not exist.
pub(crate) fn close(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    feed_stream(search, call, b"", true)
}

fn feed_stream(
    search: &Search,
    call: &mut LaneCall<'_>,
    text: &[u8],
    is_last: bool,
) -> Result<(), SearchError> {
    let id = std::str::from_utf8(call.args.at(2)).ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let open = search.streams.get(call.client, id)?;
    check_may_use(call, &open.name)?;
    // This lock is free, because a client runs one command at a time.
    let mut stream = open.stream.lock();
    let set = &open.set;
    let machine = set.ends().ok_or_else(no_such_stream)?;
    let cancelled = || {
        call.pause();
        call.cancelled()
    };
    let deadline = (call.runs_on != RunsOn::Worker).then(|| Instant::now() + set.deadline);
    let budget = SearchBudget::new(call.runs_on, &cancelled, deadline);
    let (mut ends, from) = (Ends::default(), stream.position);
    budget.spend(text.len())?;
    if !machine.is_full() {
        // The budget must cover the worst case, because a piece cannot move to another thread once the search in it
        // has started.
        budget.afford(machine.states(), text.len())?;
    }
    let passed = match &mut stream.state {
        State::Full(state) => feed_full_dfa(machine, state, text, is_last, from, &mut ends, &budget),
        State::Simulated(both) => {
            let (simulation, state) = &mut **both;
            let mut each = |pattern, at: usize| ends.add(pattern, from + at as u64);
            simulation.feed(&machine.nfa, state, text, is_last, &mut each, &budget)
        }
    };
    stream.position += text.len() as u64;
    stream.count();
    let position = stream.position;
    drop(stream);
    if is_last || passed.is_err() {
        search.streams.close(call.client, id);
    }
    passed?;
    call.reply.array(3);
    call.reply.int(position as i64);
    call.reply.int(ends.count as i64);
    call.reply.array(ends.rows.len());
    for (pattern, at) in &ends.rows {
        call.reply.array(2);
        call.reply.bulk(&set.members[pattern.as_usize()].id);
        call.reply.int(*at as i64);
    }
    Ok(())
}

/// Feeds a piece to the full DFA, which reports matches one byte late.
fn feed_full_dfa(
    machine: &Machine,
    state: &mut StateID,
    text: &[u8],
    is_last: bool,
    from: u64,
    ends: &mut Ends,
    budget: &SearchBudget<'_>,
) -> Result<(), Halt> {
    let Some(dfa) = machine.full() else { return Ok(()) };
    let mut report = |state: StateID, at: u64| {
        if dfa.is_special_state(state) && dfa.is_match_state(state) {
            ends.add_all(dfa.match_len(state), at, |i| dfa.match_pattern(state, i));
        }
    };
    for (n, piece) in text.chunks(PIECE_BYTES).enumerate() {
        for (i, byte) in piece.iter().enumerate() {
            *state = dfa.next_state(*state, *byte);
            report(*state, from + (n * PIECE_BYTES + i) as u64);
        }
        budget.check()?;
    }
    if is_last {
        *state = dfa.next_eoi_state(*state);
        report(*state, from + text.len() as u64);
    }
    Ok(())
}

fn no_such_stream() -> SearchError {
    SearchError::refused("ERR No such stream")
}
