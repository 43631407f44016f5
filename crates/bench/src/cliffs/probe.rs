//! The probe: one connection that GETs a random one of 10,000 keys in a closed loop, on core 1, with the server on
//! core 0.
//!
//! Each event has two distributions of wait times. The distribution of the probes *sent* has one value for each
//! request that was sent. But a closed loop sends nothing while it waits, so a stall of 300 ms is one value among
//! thousands. The distribution of the probes *due* corrects for that, as HdrHistogram does: a slow probe also counts
//! for the probes that would have been sent during its wait, one for each median of the quiet probes. In an event of
//! 300 ms, a single wait of 0.6 ms is then the p99.9. Both distributions have equal maxima. The reported `probes` is
//! the number of sent probes.

use super::Result;
use crate::fill::{self, push_key};
use crate::load::histogram;
use crate::report::median;
use fastrand::Rng;
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use strand_testkit::process::Server;

const PROBE_KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 64;

/// The probing connection.
pub struct Probe {
    stream: TcpStream,
    rng: Rng,
    request: Vec<u8>,
    expected_reply: Vec<u8>,
}

impl Probe {
    /// Connects, and creates the keys.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn open(server: &Server) -> Result<Probe> {
        let value = fill::value(VALUE_BYTES);
        fill::probe_keys(server, PROBE_KEYS, &value)?;
        let expected_reply = [b"$64\r\n", &value[..], b"\r\n"].concat();
        Ok(Probe {
            stream: fill::connect(server)?,
            rng: Rng::with_seed(1),
            request: Vec::new(),
            expected_reply,
        })
    }

    /// Sends one GET and measures its round trip. The key exists unless the event removes all keys.
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
        while have < self.expected_reply.len() && &reply[..have] != b"$-1\r\n" {
            match self.stream.read(&mut reply[have..])? {
                0 => return Err("the server closed the probe's connection".into()),
                n => have += n,
            }
        }
        let took = start.elapsed();
        if &reply[..have] == b"$-1\r\n" || reply[..have] == self.expected_reply[..] {
            return Ok(took);
        }
        Err(format!("the probe got {:?}", String::from_utf8_lossy(&reply[..have])).into())
    }
}

/// Round trips in microseconds: of the probes sent, and of the probes due.
#[derive(Debug)]
pub struct Micros {
    sent: Histogram<u64>,
    due: Histogram<u64>,
    /// Interval between the probes due, in microseconds. 0 while the quiet median is unknown.
    interval_us: u64,
}

impl Micros {
    /// Empty histograms.
    ///
    /// # Errors
    /// Never, with these bounds.
    pub fn new(interval_us: u64) -> Result<Micros> {
        Ok(Micros { sent: histogram()?, due: histogram()?, interval_us })
    }

    /// Records the round trip of one probe.
    pub fn record(&mut self, took: Duration) {
        let took_us = took.as_micros() as u64;
        // The histograms resize themselves, so they accept every value.
        let _ = self.sent.record(took_us);
        let _ = self.due.record_correct(took_us, self.interval_us);
    }

    /// Recomputes the distribution of the probes due, with the median of the sent probes as the interval.
    pub fn with_own_interval(self) -> Micros {
        let interval_us = self.at(0.5);
        Micros { due: self.sent.clone_correct(interval_us), interval_us, ..self }
    }

    /// A quantile of the round trips of the probes sent, in microseconds.
    pub fn at(&self, quantile: f64) -> u64 {
        self.sent.value_at_quantile(quantile)
    }

    /// A quantile of the round trips of the probes due, in microseconds.
    pub fn due_at(&self, quantile: f64) -> u64 {
        self.due.value_at_quantile(quantile)
    }

    fn max(&self) -> u64 {
        self.sent.max()
    }
}

/// Number of figures of an [`Outcome`].
pub const COLUMNS: usize = 9;

/// Results of probing around one event.
#[derive(Debug)]
pub struct Outcome {
    /// Round trips before the event, and after the event for as long as the event took.
    pub quiet: Micros,
    /// Round trips from the event's start until a little after its end.
    pub during: Micros,
    /// The round trips of `during`, minus the time in which other processes or the host held a core.
    pub net: Micros,
    /// Duration of each run of the event.
    pub event_ms: Vec<f64>,
}

impl Outcome {
    /// The figures of the row and of the JSON, in the order of the columns.
    pub fn figures(&self) -> [(&'static str, f64); COLUMNS] {
        [
            ("quiet_p99.9_us", self.quiet.at(0.999) as f64),
            ("quiet_max_us", self.quiet.max() as f64),
            ("p99.9_us", self.during.at(0.999) as f64),
            ("max_us", self.during.max() as f64),
            ("net_p99.9_us", self.net.at(0.999) as f64),
            ("net_due_p99.9_us", self.net.due_at(0.999) as f64),
            ("net_max_us", self.net.max() as f64),
            ("event_ms", median(&self.event_ms)),
            ("probes", self.during.sent.len() as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_stall_shows_in_the_quantile_of_due_probes() {
        let mut micros = Micros::new(50).expect("sane bounds");
        for _ in 0..10_000 {
            micros.record(Duration::from_micros(50));
        }
        micros.record(Duration::from_millis(300));
        let (sent, due) = (micros.at(0.999), micros.due_at(0.999));
        assert!(due > 250_000 && sent == 50, "{due} {sent}");
        assert_eq!((micros.sent.len(), micros.max() / 1000), (10_001, 300));
        let own = Micros { interval_us: 0, ..micros }.with_own_interval();
        assert_eq!((own.due_at(0.999), own.interval_us), (due, 50));
    }
}
