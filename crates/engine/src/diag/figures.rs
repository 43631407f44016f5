//! The engine's own figures, by name, once per second.
//!
//! A name is a group and words, separated by dots: `ops.hash`, `latency.p99`, `memory.clients`. Names are stable
//! across versions, because dashboards and the history's file use them.

use crate::memory::Purpose;
use crate::stats::Stat;
use crate::timing::Spread;
use crate::{Engine, Now};
use strand_diag::history::Figure;

/// Families without a latency series, to bound the number of series.
const ABOUT_CONNECTIONS: [&str; 6] = ["acl", "connection", "diag", "pubsub", "server", "transactions"];

/// The counts of the histograms at the last sample, by family.
#[derive(Default)]
pub(super) struct Latencies {
    families: Vec<Option<Box<[u64]>>>,
}

impl Latencies {
    pub(super) fn bytes(&self) -> usize {
        self.families.iter().flatten().map(|counts| size_of_val(&**counts)).sum()
    }
    /// The growth of a family's counts since the last sample.
    fn since(&mut self, family: usize, now: &[u64]) -> Box<[u64]> {
        if self.families.len() <= family {
            self.families.resize_with(family + 1, || None);
        }
        let before = self.families[family].get_or_insert_with(|| vec![0; now.len()].into());
        // After CONFIG RESETSTAT the counts are smaller than before, and all of them are new.
        let was_reset = now.iter().zip(&*before).any(|(now, before)| now < before);
        let grown = |(now, before): (&u64, &u64)| if was_reset { *now } else { now - before };
        let more = now.iter().zip(&*before).map(grown).collect();
        before.copy_from_slice(now);
        more
    }
}

impl Engine {
    /// Adds the engine's figures to a sample of the history.
    pub(super) fn add_figures(&self, out: &mut Vec<Figure>, now: Now) {
        self.add_commands(out);
        self.add_keys(out, now);
        self.add_clients(out);
        self.add_memory(out);
    }
    /// Adds the operations and latencies of the command families.
    fn add_commands(&self, out: &mut Vec<Figure>) {
        let stats = &self.stats;
        let mut latencies = self.diag.latencies.lock();
        let mut all = Spread::no_counts();
        for (at, (family, ids)) in stats.ids.families().iter().enumerate() {
            let calls: u64 = ids.iter().map(|id| stats.calls(*id)).sum();
            out.push(Figure::rate(format!("ops.{family}"), "1/s", calls as f64));
            let mut counts = Spread::no_counts();
            let any =
                calls > 0 && ids.iter().filter(|id| stats.histograms.add_to(**id, &mut counts)).count() > 0;
            let mut p99 = f64::NAN;
            if any {
                let more = latencies.since(at, &counts);
                all.iter_mut().zip(&more).for_each(|(sum, n)| *sum += n);
                p99 = Spread::of_counts(more).percentile_us(99.0).unwrap_or(f64::NAN);
            }
            if !ABOUT_CONNECTIONS.contains(family) {
                out.push(Figure::peak(format!("latency.{family}.p99"), "us", p99));
            }
        }
        out.push(Figure::rate("ops.total", "1/s", stats.get(Stat::Commands) as f64));
        out.push(Figure::rate("ops.errors", "1/s", stats.get(Stat::Errors) as f64));
        let all = Spread::of_counts(all);
        for (name, percent) in
            [("latency.p50", 50.0), ("latency.p99", 99.0), ("latency.p999", 99.9), ("latency.max", 100.0)]
        {
            out.push(Figure::peak(name, "us", all.percentile_us(percent).unwrap_or(f64::NAN)));
        }
    }
    fn add_keys(&self, out: &mut Vec<Figure>, _now: Now) {
        let (stats, keyspace) = (&self.stats, &self.keyspace);
        for (name, n) in [
            ("keys.hits", stats.get(Stat::KeyspaceHits)),
            ("keys.misses", stats.get(Stat::KeyspaceMisses)),
            ("keys.evicted", keyspace.evicted_total()),
            ("keys.expired", keyspace.expired_total()),
        ] {
            out.push(Figure::rate(name, "1/s", n as f64));
        }
        // These take no lock: the history goes on while a command holds shards for long.
        out.push(Figure::gauge("keys.count", "count", keyspace.records() as f64));
        out.push(Figure::gauge("keys.expiring", "count", keyspace.expiring_records() as f64));
    }
    fn add_clients(&self, out: &mut Vec<Figure>) {
        let stats = &self.stats;
        for (name, n) in [
            ("clients.accepted", stats.get(Stat::Connections)),
            ("clients.rejected", stats.get(Stat::Rejected)),
            ("clients.evicted", stats.get(Stat::ClientEvictions)),
        ] {
            out.push(Figure::rate(name, "1/s", n as f64));
        }
        out.push(Figure::gauge("clients.connected", "count", self.clients.len() as f64));
        out.push(Figure::gauge("clients.blocked", "count", self.clients.blocked_len() as f64));
        out.push(Figure::rate("net.in", "bytes/s", stats.get(Stat::InputBytes) as f64));
        out.push(Figure::rate("net.out", "bytes/s", stats.get(Stat::OutputBytes) as f64));
    }
    fn add_memory(&self, out: &mut Vec<Figure>) {
        let ledger = self.ledger();
        let facts = ledger.facts;
        for purpose in Purpose::ALL {
            let bytes = ledger.share(purpose);
            out.push(Figure::gauge(format!("memory.{}", purpose.name()), "bytes", bytes as f64));
        }
        out.push(Figure::gauge("memory.other", "bytes", ledger.other_bytes() as f64));
        for (name, bytes) in [
            ("memory.used", facts.used_bytes),
            ("memory.ready", facts.ready_bytes),
            ("memory.active", facts.active_bytes),
            ("memory.resident", facts.resident_bytes),
            ("memory.rss", facts.rss_bytes),
            ("memory.limit", self.memory.limit_bytes()),
        ] {
            out.push(Figure::gauge(name, "bytes", bytes as f64));
        }
    }
}
