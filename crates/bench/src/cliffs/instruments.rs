//! What observing a server costs its clients: a scrape of `/metrics` ten times a second, and `strand bundle`.
//!
//! redis-server has neither, so these rows have only Strand's figures. The scrape is measured with a full keyspace,
//! because the cost of an exporter that walks the data would show there. Under full load, short rounds with scrapes
//! alternate with rounds without. The machine's noise moves a p99.9 by more than the scrapes do, and the median of the
//! ratios of neighbouring rounds removes that noise.

use super::{KEYS, Lab, Result, event};
use crate::fill::{self, Content};
use crate::load::{self, RequestKind, Workload};
use crate::report::{grouped, median};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strand_testkit::process::Program;

const SCRAPE: &str = "12 scrape of /metrics at 10 Hz";
const BUNDLE: &str = "9 strand bundle";

const LOADED: &str = "12 p99.9 under full load with a scrape at 10 Hz, of that without";

const INSTRUMENTS: &str =
    "operations per CPU-second with latency-tracking, slow log and heap-profiling, of that without";

pub(super) const ROWS: &[&str] = &[SCRAPE, BUNDLE, LOADED, INSTRUMENTS];

/// The instruments that can be turned off: the option, its value when off, its value when on.
const SWITCHES: [[&str; 3]; 3] = [
    ["latency-tracking", "no", "yes"],
    ["slowlog-log-slower-than", "-1", "10000"],
    ["heap-profiling", "no", "yes"],
];

/// Number of scrapes in one event. The time between two scrapes is [`SCRAPE_EVERY`].
const SCRAPES: u32 = 50;
/// Number of pairs of rounds under full load. In a pair, one round has scrapes and the other has none.
const PAIRS: u64 = 40;
/// Number of scrapes in a round.
const ROUND_SCRAPES: u32 = 5;
/// Length of a round in seconds.
const ROUND_S: f64 = 0.5;
/// The load of the headline workloads, which leaves a server with one worker no time to spare.
const CONNECTIONS: usize = 8;
const PIPELINE: usize = 30;
const VALUE_BYTES: usize = 256;
const SCRAPE_EVERY: Duration = Duration::from_millis(100);
/// Maximum wait for a scrape's reply.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    if lab.server.kind != Program::Strand {
        return Ok(());
    }
    fill::keys(&lab.server, lab.options.size(KEYS), Content::Bytes(64))?;
    let (http_port, strand) = (lab.http_port, lab.options.strand.clone());
    lab.stall(SCRAPE, 1, |_, _| scrape_often(http_port, SCRAPES));
    lab.cost(LOADED, scrape_under_load);
    lab.cost(INSTRUMENTS, instruments_under_load);
    lab.stall(BUNDLE, 3, |_, server| {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(&strand);
        command.arg("bundle").args(["--server", &server.address.to_string()]);
        command.arg("--output").arg(folder.path().join("bundle.tar.zst"));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("strand bundle: {status}").into()) }
    });
    Ok(())
}

/// Measures the p99.9 of a batch's round trip under full load with scrapes, divided by the p99.9 without
/// scrapes: the median of all pairs.
fn scrape_under_load(lab: &mut Lab<'_>) -> Result<(String, Vec<(&'static str, f64)>)> {
    let (server, port, workload) = (&lab.server, lab.http_port, full_load(lab));
    let [waits, rates] = run_pairs(|is_scraped, seed| {
        std::thread::scope(|scope| {
            let scraping = is_scraped.then(|| {
                scope.spawn(move || {
                    event::lower_priority()?;
                    scrape_often(port, ROUND_SCRAPES)
                })
            });
            let measured = load::run(server, workload, ROUND_S, seed)?;
            if let Some(scraping) = scraping {
                scraping.join().unwrap_or_else(|_| Err("the scrape panicked".into()))?;
            }
            Ok([measured.round_trips_us.value_at_quantile(0.999) as f64, measured.per_second()])
        })
    })?;
    let [without_us, with_us] = [0, 1].map(|i| median(&waits[i]));
    let (of_waits, of_rates) = (median_ratio(&waits), median_ratio(&rates));
    let text = format!(
        "{of_waits:.3} ({} us, without {} us; operations {of_rates:.3})",
        grouped(with_us),
        grouped(without_us)
    );
    let figures = vec![
        ("p99.9_of_without", of_waits),
        ("p99.9_us", with_us),
        ("without_p99.9_us", without_us),
        ("operations_of_without", of_rates),
    ];
    Ok((text, figures))
}

/// Measures operations per second of the server's processor time under full load with the instruments that
/// can be turned off, divided by the figure without these instruments: the median of all pairs.
fn instruments_under_load(lab: &mut Lab<'_>) -> Result<(String, Vec<(&'static str, f64)>)> {
    let (server, workload) = (&lab.server, full_load(lab));
    let mut client = server.connect()?;
    let [rates] = run_pairs(|are_on, seed| {
        for [option, off, on] in SWITCHES {
            client.call(&["CONFIG", "SET", option, if are_on { on } else { off }])?;
        }
        Ok([load::run(server, workload, ROUND_S, seed)?.per_cpu_second()])
    })?;
    let [without, with] = [0, 1].map(|i| median(&rates[i]));
    let of_rates = median_ratio(&rates);
    let text = format!("{of_rates:.3} ({}, without {})", grouped(with), grouped(without));
    Ok((text, vec![("of_without", of_rates), ("with_per_cpu_s", with), ("without_per_cpu_s", without)]))
}

/// The load on the server during a round.
fn full_load(lab: &Lab<'_>) -> Workload {
    Workload {
        operation: RequestKind::Mixed,
        pipeline: PIPELINE,
        connections: CONNECTIONS,
        keys: lab.options.size(KEYS),
        value_bytes: VALUE_BYTES,
    }
}

/// The figures of the rounds without the instrument, then of the rounds with it.
type Rounds = [Vec<f64>; 2];

/// Runs pairs of rounds, one without (false) and one with (true). A round gives `FIGURES` figures. The two
/// rounds of a pair swap places from pair to pair, so that neither kind is always measured on a server that
/// was just busy.
fn run_pairs<const FIGURES: usize>(
    mut round: impl FnMut(bool, u64) -> Result<[f64; FIGURES]>,
) -> Result<[Rounds; FIGURES]> {
    let mut all = [(); FIGURES].map(|()| Rounds::default());
    for pair in 0..PAIRS {
        for is_with in [pair % 2 == 0, pair % 2 == 1] {
            let figures = round(is_with, pair)?;
            all.iter_mut()
                .zip(figures)
                .for_each(|(rounds, figure)| rounds[usize::from(is_with)].push(figure));
        }
    }
    Ok(all)
}

/// The figure with the instrument divided by the figure without it: the median of the ratios of all pairs.
fn median_ratio([without, with]: &Rounds) -> f64 {
    median(&with.iter().zip(without).map(|(with, without)| with / without).collect::<Vec<_>>())
}

/// Scrapes as a monitoring agent does: on one connection, at fixed times.
fn scrape_often(port: u16, scrapes: u32) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    let start = Instant::now();
    for n in 0..scrapes {
        std::thread::sleep((SCRAPE_EVERY * n).saturating_sub(start.elapsed()));
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let (mut reply, mut piece) = (Vec::new(), [0; 16 << 10]);
        while !is_complete(&reply)? {
            match stream.read(&mut piece)? {
                0 => return Err("the server closed the scrape's connection".into()),
                n => reply.extend_from_slice(&piece[..n]),
            }
        }
    }
    Ok(())
}

/// True when the reply has arrived completely.
fn is_complete(reply: &[u8]) -> Result<bool> {
    let Some(end) = reply.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(false) };
    let head = std::str::from_utf8(&reply[..end])?.to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(format!("the scrape got {:?}", head.lines().next()).into());
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.ok_or("the scrape's reply has no length")?.trim().parse()?;
    Ok(reply.len() >= end + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_complete_only_with_its_last_byte() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        for len in 0..reply.len() {
            assert!(!is_complete(&reply[..len]).expect("so far it is good"), "{len}");
        }
        assert!(is_complete(reply).expect("it is good"));
        assert!(
            is_complete(b"HTTP/1.1 500 No\r\n\r\n").is_err()
                && is_complete(b"HTTP/1.1 200 OK\r\n\r\n").is_err()
        );
    }
}
