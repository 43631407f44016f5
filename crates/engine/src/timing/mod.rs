//! Durations of commands: [`Histograms`] for each command (INFO latencystats, LATENCY HISTOGRAM), and [`Events`]
//! longer than `latency-monitor-threshold` (LATENCY LATEST and related commands).
//!
//! The code that runs commands ([`crate::session`]) reads the clock and passes the durations.

mod events;
mod histogram;
mod report;

pub(crate) use events::{Event, Events, SAMPLES_MAX, Series};
pub(crate) use histogram::{Histogram, Spread};
pub(crate) use report::{doctor, graph, longest};

use std::sync::OnceLock;

/// Maximum number of copies of a histogram. The workers share the copies. Each copy has about 24 KiB, and every
/// called command has a histogram.
const COPIES_MAX: usize = 4;

/// A histogram for each command, made at its first call.
pub(crate) struct Histograms {
    of_commands: Box<[OnceLock<Histogram>]>,
    copies: usize,
}

impl Histograms {
    pub(crate) fn new(commands: usize, workers: usize) -> Histograms {
        let copies = workers.clamp(1, COPIES_MAX);
        Histograms { of_commands: (0..commands * copies).map(|_| OnceLock::new()).collect(), copies }
    }
    /// Adds `n` calls of command `id` of `ns` nanoseconds each.
    #[inline]
    pub(crate) fn add(&self, slot: usize, id: u32, ns: u64, n: u64) {
        let at = id as usize * self.copies + slot % self.copies;
        if let Some(histogram) = self.of_commands.get(at) {
            histogram.get_or_init(Histogram::default).add(ns, n);
        }
    }
    /// The durations of command `id`. `None` when it was not called.
    pub(crate) fn of(&self, id: u32) -> Option<Spread> {
        let from = id as usize * self.copies;
        let copies = self.of_commands.get(from..from + self.copies)?;
        let spread = Spread::of(copies.iter().filter_map(OnceLock::get));
        (spread.total() > 0).then_some(spread)
    }
    /// Adds the counts of command `id` to `counts`. False when the command was never called.
    pub(crate) fn add_to(&self, id: u32, counts: &mut [u64]) -> bool {
        let from = id as usize * self.copies;
        let copies = self.of_commands.get(from..from + self.copies).unwrap_or_default();
        copies.iter().filter_map(OnceLock::get).inspect(|histogram| histogram.add_to(counts)).count() > 0
    }
    /// Memory of the histograms in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.of_commands.iter().filter_map(OnceLock::get).count() * Histogram::BYTES
    }
    pub(crate) fn reset(&self) {
        self.of_commands.iter().filter_map(OnceLock::get).for_each(Histogram::reset);
    }
}
