//! Counters: [`Stats`] for all workers, and [`Tally`] for one turn of a session. A tally costs no atomic operation
//! until the turn ends.

use crate::TABLE;
use crate::session::{PARK_REASONS, ParkReason};
use crate::timing::{Event, Events, Histogram, Histograms};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_commands::spec::{CommandSpec, Flags};
use strand_diag::{Counters, Rate};

/// Number of copies of the counters. The workers share the copies.
const SLOTS: usize = 16;

/// Maximum number of error codes that are counted separately besides the server's own. Clients can make up codes with
/// scripts and DEBUG ERROR.
const MADE_UP_CODES_MAX: usize = 128;
/// Maximum length of a code that is counted separately, in bytes.
const CODE_BYTES_MAX: usize = 64;
/// What all other codes count as.
const OTHER_CODE: &[u8] = b"ERR";
/// The codes of the server's own errors, and of redis-server's that a script may pass on. Alerts depend on them, so they
/// always have a place.
const OWN_CODES: [&[u8]; 28] = [
    b"BUSY",
    b"BUSYGROUP",
    b"BUSYKEY",
    b"CROSSSLOT",
    b"DENIED",
    b"ERR",
    b"EXECABORT",
    b"INPROG",
    b"INVALIDOBJ",
    b"IOERR",
    b"LOADING",
    b"MASTERDOWN",
    b"MISCONF",
    b"NOAUTH",
    b"NOGROUP",
    b"NOMASTERLINK",
    b"NOPERM",
    b"NOPROTO",
    b"NOREPLICAS",
    b"NOSCRIPT",
    b"NOTBUSY",
    b"OOM",
    b"READONLY",
    b"TESTFAILED",
    b"UNBLOCKED",
    b"UNKILLABLE",
    b"WRONGPASS",
    b"WRONGTYPE",
];

/// Counters of the server, by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stat {
    /// Number of accepted connections.
    Connections,
    /// Number of refused connections (`maxclients`, protected mode).
    Rejected,
    /// Number of calls of commands, without the refused ones.
    Commands,
    /// Number of bytes received from clients.
    InputBytes,
    /// Number of bytes of output for clients.
    OutputBytes,
    /// Number of reads from sockets that returned bytes.
    Reads,
    /// Number of error replies.
    Errors,
    /// Number of clients closed because their unfinished or queued requests were too large.
    QueryLimitCloses,
    /// Number of clients closed because their waiting output exceeded a limit.
    OutputLimitCloses,
    /// Number of clients closed by `maxmemory-clients`.
    ClientEvictions,
    /// Number of clients closed because they were idle for too long, or did not log in in time.
    IdleCloses,
    /// Number of lookups of keys that found a record.
    KeyspaceHits,
    /// Number of lookups of keys that found no record.
    KeyspaceMisses,
    /// Time that active expiry took, in microseconds.
    ExpireCycleUs,
    /// Slices of active expiry that ended before all expired keys were removed.
    ExpireCapReached,
}

/// Number of [`Stat`]s.
const STATS: usize = Stat::ExpireCapReached as usize + 1;

/// The counters that each command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandCounter {
    /// Number of calls, without the refused ones.
    Calls,
    /// Number of calls that were refused before they ran.
    Rejected,
    /// Number of calls that ran and replied with an error.
    Failed,
    /// Total execution time of the command, in nanoseconds.
    Ns,
}

/// Number of [`CommandCounter`]s.
const PER_COMMAND: usize = CommandCounter::Ns as usize + 1;

/// A dense number for every row of the command table, subcommands included.
pub(crate) struct CommandIds {
    names: Vec<String>,
    fast: Vec<bool>,
    subcommands: HashMap<usize, u32>,
    families: Vec<(&'static str, Vec<u32>)>,
}

impl CommandIds {
    /// Numbers all rows of the command table.
    pub(crate) fn new() -> CommandIds {
        let mut names: Vec<String> = TABLE.rows().iter().map(|c| c.name.to_string()).collect();
        let mut fast: Vec<bool> = TABLE.rows().iter().map(|c| c.flags.has(Flags::FAST)).collect();
        let mut subcommands = HashMap::new();
        let mut groups: Vec<&'static str> = TABLE.rows().iter().map(|c| c.group).collect();
        for container in TABLE.rows() {
            for sub in container.subcommands {
                groups.push(container.group);
                subcommands.insert(address(sub), names.len() as u32);
                names.push(format!("{}|{}", container.name, sub.name));
                fast.push(sub.flags.has(Flags::FAST));
            }
        }
        let mut families: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
        groups.iter().enumerate().for_each(|(id, group)| families.entry(group).or_default().push(id as u32));
        CommandIds { names, fast, subcommands, families: families.into_iter().collect() }
    }
    /// The groups of commands, each with the numbers of its rows.
    pub(crate) fn families(&self) -> &[(&'static str, Vec<u32>)] {
        &self.families
    }
    /// The number of a row of the table.
    pub(crate) fn of(&self, spec: &'static CommandSpec) -> u32 {
        let offset = address(spec).wrapping_sub(TABLE.rows().as_ptr() as usize) / size_of::<CommandSpec>();
        if offset < TABLE.rows().len() {
            return offset as u32;
        }
        self.subcommands.get(&address(spec)).copied().unwrap_or(0)
    }
    /// The name in CLIENT LIST and INFO: `get`, `client|id`. `NULL` for an unknown number.
    pub(crate) fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("NULL", |n| n)
    }
    /// The number of rows.
    pub(crate) fn len(&self) -> u32 {
        self.names.len() as u32
    }
}

fn address(spec: &'static CommandSpec) -> usize {
    std::ptr::from_ref(spec) as usize
}

/// Counters of all workers.
pub(crate) struct Stats {
    pub(crate) ids: CommandIds,
    /// One counter for each [`Stat`].
    counters: Counters,
    /// For each command, one counter for each [`CommandCounter`].
    commands: Counters,
    errors: Mutex<ErrorCounts>,
    /// The option `latency-tracking`.
    tracks: AtomicBool,
    /// Execution times of commands.
    pub(crate) histograms: Histograms,
    /// Waiting times of commands for a helper thread. Only commands that waited are counted.
    pub(crate) queued: Histograms,
    /// Waiting times of commands for other reasons. Only commands that waited are counted.
    pub(crate) parked: Histograms,
    /// For each cause: the number of parked commands, and their microseconds.
    park_reasons: Counters,
    /// Times until a full socket accepted the rest of the output.
    pub(crate) flushing: Histogram,
    /// Slow events, for LATENCY.
    pub(crate) events: Events,
    pub(crate) rates: Mutex<Rates>,
}

/// Numbers of error replies by error code.
#[derive(Default)]
struct ErrorCounts {
    by_code: BTreeMap<Vec<u8>, u64>,
    /// Number of codes that are not the server's own.
    made_up: usize,
}

impl ErrorCounts {
    fn add(&mut self, code: &[u8], n: u64) {
        let code = if has_form_of_code(code) { code } else { OTHER_CODE };
        if let Some(known) = self.by_code.get_mut(code) {
            *known += n;
            return;
        }
        let is_own = OWN_CODES.binary_search(&code).is_ok();
        let code = if is_own || self.made_up < MADE_UP_CODES_MAX { code } else { OTHER_CODE };
        self.made_up += usize::from(!is_own && code != OTHER_CODE);
        *self.by_code.entry(code.into()).or_default() += n;
    }
}

/// True when the first word of an error is a code, and no word of a text.
fn has_form_of_code(word: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    word.len() <= CODE_BYTES_MAX
        && word.first().is_some_and(u8::is_ascii_uppercase)
        && word.iter().all(is_part)
}

/// Rates for `INFO stats`, sampled by [`crate::Engine::tick`].
#[derive(Default)]
pub(crate) struct Rates {
    pub(crate) commands: Rate,
    pub(crate) input_bytes: Rate,
    pub(crate) output_bytes: Rate,
    /// Bytes from a primary, and for replicas.
    pub(crate) replication_input_bytes: Rate,
    pub(crate) replication_output_bytes: Rate,
}

impl Stats {
    pub(crate) fn new(workers: usize) -> Stats {
        let ids = CommandIds::new();
        let commands = Counters::new(ids.names.len() * PER_COMMAND, SLOTS);
        Stats {
            histograms: Histograms::new(ids.names.len(), workers),
            queued: Histograms::new(ids.names.len(), 1),
            parked: Histograms::new(ids.names.len(), 1),
            park_reasons: Counters::new(2 * PARK_REASONS, 1),
            flushing: Histogram::default(),
            events: Events::default(),
            tracks: true.into(),
            ids,
            counters: Counters::new(STATS, SLOTS),
            commands,
            errors: Mutex::default(),
            rates: Mutex::default(),
        }
    }
    /// Adds `n` to a counter. `slot` is the worker's number, so that workers rarely share a counter's copy.
    pub(crate) fn add(&self, slot: usize, stat: Stat, n: u64) {
        self.counters.add(slot, stat as usize, n);
    }
    /// The sum of a counter over all its copies.
    pub(crate) fn get(&self, stat: Stat) -> u64 {
        self.counters.get(stat as usize)
    }
    /// Adds `n` to a counter of command `id`.
    pub(crate) fn count(&self, slot: usize, id: u32, counter: CommandCounter, n: u64) {
        self.commands.add(slot, id as usize * PER_COMMAND + counter as usize, n);
    }
    /// Records `n` consecutive calls of command `id` that took `ns` nanoseconds together and ended at `unix_s`.
    pub(crate) fn record_calls(&self, slot: usize, id: u32, n: u64, ns: u64, unix_s: i64) {
        if n == 0 {
            return;
        }
        self.count(slot, id, CommandCounter::Ns, ns);
        if self.tracks.load(Relaxed) {
            self.histograms.add(slot, id, ns / n, n);
        }
        let is_fast = self.ids.fast.get(id as usize).is_some_and(|fast| *fast);
        self.events.note(if is_fast { Event::FastCommand } else { Event::Command }, ns / 1000, unix_s);
    }
    /// Counts a command that was parked.
    pub(crate) fn record_park_reason(&self, reason: ParkReason, us: u64) {
        self.park_reasons.add(0, 2 * reason as usize, 1);
        self.park_reasons.add(0, 2 * reason as usize + 1, us);
    }
    /// For each cause: the number of parked commands, and their microseconds.
    pub(crate) fn park_reasons(&self) -> [(ParkReason, [u64; 2]); PARK_REASONS] {
        ParkReason::ALL.map(|reason| (reason, [0, 1].map(|i| self.park_reasons.get(2 * reason as usize + i))))
    }
    /// Sets `latency-tracking`. Recorded values stay.
    pub(crate) fn set_tracking(&self, tracks: bool) {
        self.tracks.store(tracks, Relaxed);
    }
    /// The option `latency-tracking`.
    pub(crate) fn is_tracking(&self) -> bool {
        self.tracks.load(Relaxed)
    }
    /// Counts an error reply. `code` is its first word.
    #[cold]
    pub(crate) fn error(&self, slot: usize, code: &[u8]) {
        self.add_errors(slot, code, 1);
    }
    /// Counts `n` error replies with this code.
    #[cold]
    pub(crate) fn add_errors(&self, slot: usize, code: &[u8], n: u64) {
        self.add(slot, Stat::Errors, n);
        self.errors.lock().add(code, n);
    }
    /// The error codes and their counts.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let own = |(code, n): (&Vec<u8>, &u64)| (String::from_utf8_lossy(code).into_owned(), *n);
        self.errors.lock().by_code.iter().map(own).collect()
    }
    /// The commands that were called or rejected: name, calls, rejected, failed, nanoseconds.
    pub(crate) fn commands(&self) -> Vec<(&str, [u64; PER_COMMAND])> {
        let get = |id: usize, what: usize| self.commands.get(id * PER_COMMAND + what);
        let rows = self.ids.names.iter().enumerate();
        let rows = rows.map(|(id, name)| (name.as_str(), std::array::from_fn(|what| get(id, what))));
        rows.filter(|(_, n): &(&str, [u64; PER_COMMAND])| n.iter().any(|n| *n > 0)).collect()
    }
    /// Number of calls of command `id`.
    pub(crate) fn calls(&self, id: u32) -> u64 {
        self.commands.get(id as usize * PER_COMMAND + CommandCounter::Calls as usize)
    }
    /// Bytes of all histograms.
    pub(crate) fn histogram_bytes(&self) -> u64 {
        [&self.histograms, &self.queued, &self.parked].map(|h| h.bytes() as u64).iter().sum()
    }
    /// Resets the statistics (CONFIG RESETSTAT).
    pub(crate) fn reset(&self) {
        (0..STATS).for_each(|i| self.counters.reset(i));
        (0..self.ids.names.len() * PER_COMMAND).for_each(|i| self.commands.reset(i));
        (0..2 * PARK_REASONS).for_each(|i| self.park_reasons.reset(i));
        *self.errors.lock() = ErrorCounts::default();
        [&self.histograms, &self.queued, &self.parked].into_iter().for_each(Histograms::reset);
        self.flushing.reset();
        *self.rates.lock() = Rates::default();
    }
}

/// Maximum number of different commands that a tally holds at one time.
const TALLY_PLACES: usize = 8;

/// A session's calls in one turn, by command.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    places: [(u32, u32); TALLY_PLACES],
    calls: u64,
}

impl Tally {
    /// Counts a call of command `id`.
    #[inline]
    pub(crate) fn call(&mut self, id: u32, slot: usize, stats: &Stats) {
        self.calls += 1;
        let place = &mut self.places[id as usize % TALLY_PLACES];
        if place.0 != id && place.1 > 0 {
            stats.count(slot, place.0, CommandCounter::Calls, u64::from(place.1));
            place.1 = 0;
        }
        *place = (id, place.1 + 1);
    }
    /// Adds the tally to the shared counters. Returns the number of calls.
    pub(crate) fn fold(&mut self, slot: usize, stats: &Stats) -> u64 {
        for (id, n) in &mut self.places {
            if *n > 0 {
                stats.count(slot, *id, CommandCounter::Calls, u64::from(*n));
                *n = 0;
            }
        }
        std::mem::take(&mut self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_loses_no_call() {
        let stats = Stats::new(3);
        let mut tally = Tally::default();
        let ids = (stats.ids.names.len() as u32).min(20);
        for i in 0..1000 {
            tally.call(i * 7 % ids, 3, &stats);
        }
        assert_eq!(tally.fold(3, &stats), 1000);
        assert_eq!(tally.fold(3, &stats), 0);
        assert_eq!(stats.commands().iter().map(|(_, n)| n[0]).sum::<u64>(), 1000);
        stats.record_calls(3, 0, 2, 7, 0);
        assert_eq!(stats.commands()[0].1[3], 7);
        assert_eq!(stats.histograms.of(0).map(|spread| spread.total()), Some(2));
        stats.reset();
        assert!(stats.commands().is_empty() && stats.histograms.of(0).is_none());
    }

    #[test]
    fn made_up_codes_leave_a_place_to_the_servers_own() {
        assert!(OWN_CODES.is_sorted());
        let mut errors = ErrorCounts::default();
        for i in 0..1000 {
            errors.add(format!("MADE_UP{i}").as_bytes(), 1);
        }
        for word in ["typo1:", "my", "My-x", "A:B", "", "9A", "_A", &"A".repeat(65)] {
            errors.add(word.as_bytes(), 1);
        }
        errors.add(b"OOM", 2);
        errors.add(b"MADE_UP0", 1);
        let of = |code: &str| errors.by_code.get(code.as_bytes()).copied();
        assert_eq!((of("OOM"), of("MADE_UP0"), of("MADE_UP127")), (Some(2), Some(2), Some(1)));
        assert_eq!((of("ERR"), of("MADE_UP128")), (Some(1000 - 128 + 8), None));
        assert_eq!(errors.by_code.len(), 128 + 2);
    }

    #[test]
    fn every_row_has_a_number_and_a_name() {
        let ids = CommandIds::new();
        for c in TABLE.rows() {
            assert_eq!(ids.name(ids.of(c)), c.name);
            for s in c.subcommands {
                assert_eq!(ids.name(ids.of(s)), format!("{}|{}", c.name, s.name));
            }
        }
        assert_eq!(ids.name(u32::MAX), "NULL");
    }
}
