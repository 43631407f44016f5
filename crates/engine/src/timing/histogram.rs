//! [`Histogram`]: counts of durations, shared by many threads. [`Spread`]: a histogram's counts at one moment.
//!
//! The buckets are those of an HDR histogram with two significant digits, as in redis-server: a value has an error of
//! at most 1 %.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The longest duration that has a bucket of its own, as in redis-server. In nanoseconds.
pub(crate) const NS_MAX: u64 = 1_000_000_000;
/// Each value below this has a bucket of its own. Above this value, the width of the buckets doubles with each
/// doubling of the value.
const EXACT: u64 = 256;
/// Number of buckets for each doubling of the value.
const HALF: usize = EXACT as usize / 2;
/// Number of buckets up to [`NS_MAX`].
const BUCKETS: usize = bucket_of(NS_MAX) + 1;
/// First step of LATENCY HISTOGRAM. Each step is twice the previous one: about 1, 2, 4 us.
const FIRST_STEP_NS: u64 = 1024;

const fn bucket_of(ns: u64) -> usize {
    let shift = (63 - (ns | (EXACT - 1)).leading_zeros() as usize) + 1 - EXACT.trailing_zeros() as usize;
    shift * HALF + (ns >> shift) as usize
}

/// The largest value of a bucket.
const fn highest(bucket: usize) -> u64 {
    let shift = (bucket / HALF).saturating_sub(1);
    let within = (bucket - shift * HALF) as u64;
    ((within + 1) << shift) - 1
}

/// The number of values in each bucket: about 24 KiB.
pub(crate) struct Histogram(Box<[AtomicU64]>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Histogram {
    /// Memory that a histogram takes, in bytes.
    pub(crate) const BYTES: usize = BUCKETS * size_of::<AtomicU64>();
    /// Adds `n` calls of `ns` nanoseconds each.
    #[inline]
    pub(crate) fn add(&self, ns: u64, n: u64) {
        self.0[bucket_of(ns.clamp(1, NS_MAX))].fetch_add(n, Relaxed);
    }
    /// Adds this histogram's counts to `counts`.
    pub(crate) fn add_to(&self, counts: &mut [u64]) {
        counts.iter_mut().zip(&self.0).for_each(|(sum, count)| *sum += count.load(Relaxed));
    }
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }
}

/// The sum of several histograms.
pub(crate) struct Spread {
    counts: Box<[u64]>,
    total: u64,
}

impl Spread {
    pub(crate) fn of<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Spread {
        let mut counts = Spread::no_counts();
        for histogram in histograms {
            histogram.add_to(&mut counts);
        }
        Spread::of_counts(counts)
    }
    /// Zero counts, for [`Spread::of_counts`].
    pub(crate) fn no_counts() -> Box<[u64]> {
        vec![0; BUCKETS].into_boxed_slice()
    }
    /// A spread made from counts by bucket.
    pub(crate) fn of_counts(counts: Box<[u64]>) -> Spread {
        let total = counts.iter().sum();
        Spread { counts, total }
    }
    /// The duration that `percent` of the calls did not exceed, in microseconds. `None` without calls.
    pub(crate) fn percentile_us(&self, percent: f64) -> Option<f64> {
        (self.total > 0).then(|| self.percentile(percent) as f64 / 1000.0)
    }
    /// Number of calls in all buckets.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
    /// The duration that `percent` of the calls did not exceed, in nanoseconds.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent.clamp(0.0, 100.0) / 100.0 * self.total as f64) + 0.5) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        found.map_or(0, highest)
    }
    /// Pairs of microseconds and the number of calls that took at most this long. Only steps with new calls.
    pub(crate) fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let (mut pairs, mut seen, mut at, mut step_ns) = (Vec::new(), 0, 0, FIRST_STEP_NS);
        while seen < self.total && step_ns < NS_MAX {
            let bucket = bucket_of(step_ns);
            let more: u64 = self.counts[at..=bucket].iter().sum();
            if more > 0 {
                seen += more;
                pairs.push((highest(bucket) / 1000, seen));
            }
            (at, step_ns) = (bucket + 1, step_ns * 2);
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bucket_that_ends_at_or_above_it() {
        for ns in (0..5000).chain([5_000_000, 999_999_999, NS_MAX]) {
            let bucket = bucket_of(ns);
            assert!(highest(bucket) >= ns && (bucket == 0 || highest(bucket - 1) < ns), "{ns}");
            assert!(highest(bucket) - ns <= ns / 100, "{ns} is known to 1 %");
        }
        assert_eq!((highest(bucket_of(5000)), highest(bucket_of(11_000))), (5023, 11_007));
        assert_eq!(bucket_of(NS_MAX), BUCKETS - 1);
    }

    #[test]
    fn a_histogram_gives_percentiles_and_cumulative_counts() {
        let histogram = Histogram::default();
        assert!(Spread::of([&histogram].into_iter()).cumulative_us().is_empty());
        histogram.add(300, 90);
        histogram.add(5000, 9);
        histogram.add(40_000_000, 1);
        histogram.add(u64::MAX, 0);
        let other = Histogram::default();
        other.add(0, 100);
        let spread = Spread::of([&histogram, &other].into_iter());
        assert_eq!(spread.total(), 200);
        let percentiles = [0.0, 50.0, 95.0, 99.0, 99.9, 100.0].map(|p| spread.percentile(p));
        assert_eq!(
            percentiles,
            [1, 1, 301, 5023, highest(bucket_of(40_000_000)), highest(bucket_of(40_000_000))]
        );
        assert_eq!(spread.cumulative_us(), [(1, 190), (8, 199), (67_633, 200)]);
        histogram.reset();
        assert_eq!(Spread::of([&histogram].into_iter()).total(), 0);
    }
}
