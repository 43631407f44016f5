//! The probe: one connection that GETs a random one of 10,000 keys in a closed loop, on core 1, the server on core 0.
//!
//! A closed loop sends nothing while it waits, so a stall of 300 ms is one probe among thousands, and a quantile would
//! not show it. [`Micros`] therefore counts a slow probe as the probes that would have been due meanwhile (one every
//! quiet median), as HdrHistogram does; the maximum needs no correction. What is reported as `probes` are real ones.

use super::Result;
use crate::fill::{self, push_key};
use crate::load::histogram;
use crate::process::Server;
use crate::report::median;
use fastrand::Rng;
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PROBE_KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 64;

/// The probing connection.
pub struct Probe {
    stream: TcpStream,
    rng: Rng,
    request: Vec<u8>,
    found: Vec<u8>,
}

impl Probe {
    /// Connects, and makes the keys.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn open(server: &Server) -> Result<Probe> {
        let value = fill::value(VALUE_BYTES);
        fill::probe_keys(server, PROBE_KEYS, &value)?;
        let found = [b"$64\r\n", &value[..], b"\r\n"].concat();
        Ok(Probe { stream: fill::connect(server)?, rng: Rng::with_seed(1), request: Vec::new(), found })
    }

    /// One GET. Its key is there unless the event was to remove all keys.
    ///
    /// # Errors
    /// When the reply is neither the value nor null, or does not come.
    pub fn get(&mut self) -> Result<Duration> {
        self.request.clear();
        self.request.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$16\r\n");
        push_key(&mut self.request, b"prb:", self.rng.u64(..PROBE_KEYS));
        self.request.extend_from_slice(b"\r\n");
        let (start, mut reply) = (Instant::now(), [0; 128]);
        self.stream.write_all(&self.request)?;
        let mut have = 0;
        while have < self.found.len() && &reply[..have] != b"$-1\r\n" {
            match self.stream.read(&mut reply[have..])? {
                0 => return Err("the server closed the probe's connection".into()),
                n => have += n,
            }
        }
        let took = start.elapsed();
        if &reply[..have] == b"$-1\r\n" || reply[..have] == self.found[..] {
            return Ok(took);
        }
        Err(format!("the probe got {:?}", String::from_utf8_lossy(&reply[..have])).into())
    }
}

/// Round trips in microseconds, corrected for what the closed loop omits.
#[derive(Debug)]
pub struct Micros {
    histogram: Histogram<u64>,
    /// A probe is due every so many microseconds; 0 for no correction.
    interval_us: u64,
    probes: u64,
}

impl Micros {
    /// An empty one.
    ///
    /// # Errors
    /// Never, with these bounds.
    pub fn new(interval_us: u64) -> Result<Micros> {
        Ok(Micros { histogram: histogram()?, interval_us, probes: 0 })
    }

    /// Counts one probe.
    pub fn record(&mut self, took: Duration) {
        self.probes += 1;
        // The histogram resizes itself, so no value is refused.
        let _ = self.histogram.record_correct(took.as_micros() as u64, self.interval_us);
    }

    /// The same, corrected with its own median as the time between two probes.
    pub fn corrected(self) -> Micros {
        let interval_us = self.at(0.5);
        Micros { histogram: self.histogram.clone_correct(interval_us), interval_us, ..self }
    }

    /// A quantile.
    pub fn at(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile)
    }
}

/// Figures of an [`Outcome`].
pub const COLUMNS: usize = 8;

/// What the probe felt.
#[derive(Debug)]
pub struct Outcome {
    /// Before the event and after it, for as long.
    pub quiet: Micros,
    /// From its start to a little after its end.
    pub during: Micros,
    /// The same less what other processes took.
    pub net: Micros,
    /// How long the event itself took, each time it was run.
    pub event_ms: Vec<f64>,
}

impl Outcome {
    /// What is shown and what is in JSON, in the order of the columns.
    pub fn figures(&self) -> [(&'static str, f64); COLUMNS] {
        [
            ("quiet_p99.9_us", self.quiet.at(0.999) as f64),
            ("quiet_max_us", self.quiet.histogram.max() as f64),
            ("p99.9_us", self.during.at(0.999) as f64),
            ("max_us", self.during.histogram.max() as f64),
            ("net_p99.9_us", self.net.at(0.999) as f64),
            ("net_max_us", self.net.histogram.max() as f64),
            ("event_ms", median(&self.event_ms)),
            ("probes", self.during.probes as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_stall_shows_in_the_quantile() {
        let mut corrected = Micros::new(50).expect("sane bounds");
        let mut plain = Micros::new(0).expect("sane bounds");
        for _ in 0..10_000 {
            corrected.record(Duration::from_micros(50));
            plain.record(Duration::from_micros(50));
        }
        corrected.record(Duration::from_millis(300));
        plain.record(Duration::from_millis(300));
        assert!(
            corrected.at(0.999) > 250_000 && plain.at(0.999) == 50,
            "{} {}",
            corrected.at(0.999),
            plain.at(0.999)
        );
        assert_eq!((corrected.probes, corrected.histogram.max() / 1000), (10_001, 300));
    }
}
