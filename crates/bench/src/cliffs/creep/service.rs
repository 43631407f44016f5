//! T4 to T6: checks of the server alone.

use super::check::quantile;
use super::contestants::{Contestant, SET, Sample, Strand, define};
use super::*;
use crate::report::grouped;
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use strand_testkit::process::{Program, Server};
use strand_wire::client::{Value, encode_command};

/// T4: a set is redefined repeatedly, with searches in between.
///
/// # Errors
/// Errors of the server.
pub(super) fn measure_memory(extent: &Extent<'_>) -> Cell {
    const PART_TIME: usize = 100;
    let server = Server::measured(Program::Strand, &extent.options.strand, &["--workers", "1"], "0", &[])?;
    let mut client = server.connect()?;
    let (rounds, mut at_fifth) = (extent.size(extent.share * REDEFINITIONS), 0);
    for first in (0..rounds).step_by(PART_TIME) {
        let mut batch = Vec::new();
        for i in first..first + PART_TIME {
            let pattern = format!("(?:error|warn)-{i}[0-9]{{1,3}}|[a-f]{{2,4}}{i}");
            encode_command(&mut batch, &["RX.SET", SET, "ID", "p", &pattern]);
            encode_command(&mut batch, &["RX.MATCH", SET, "some text with warn-1 and dead17 in it"]);
        }
        std::io::Write::write_all(client.stream(), &batch)?;
        for _ in 0..2 * PART_TIME {
            if let Value::Error(e) = client.reply()? {
                return Err(String::from_utf8_lossy(&e).into_owned().into());
            }
        }
        if at_fifth == 0 && first + PART_TIME >= rounds / 5 {
            at_fifth = server.status_kb("VmRSS")?;
        }
    }
    let at_end = server.status_kb("VmRSS")?;
    let figure = |name: &str| -> Result<u64> {
        let Value::Bulk(info) = server.connect()?.call(&["INFO", "memory"])? else {
            return Err("INFO".into());
        };
        let text = String::from_utf8_lossy(&info).into_owned();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).ok_or("no such line")?;
        Ok(line.trim_start_matches(':').trim().parse()?)
    };
    let Value::Array(stats) = client.call(&["RX.STATS", SET])? else { return Err("RX.STATS".into()) };
    let of_set: i64 = stats
        .chunks(2)
        .filter(|p| matches!(&p[0], Value::Bulk(n) if n == b"cache_bytes" || n == b"compiled_bytes"))
        .map(|p| if let Value::Int(n) = p[1] { n } else { 0 })
        .sum();
    let counted = figure("used_memory_regexes")?;
    let (from, to) = (at_fifth as f64 / 1024.0, at_end as f64 / 1024.0);
    let text = format!("{from:.1} / {to:.1} ({rounds} times; counted {counted} bytes, of the set {of_set})");
    Ok((text, to - from <= 4.0 && counted >= of_set as u64))
}

/// T5: the cost of more workers. On two cores, one of which the client needs, more workers are not faster,
/// but their cost shows in processor time.
///
/// # Errors
/// Errors of the server.
pub(super) fn measure_workers(extent: &Extent<'_>) -> Cell {
    let cores = thread::available_parallelism()?.get().max(2);
    let more = cores.min(16);
    let rate = |workers: usize| -> Result<f64> {
        let all = format!("0-{}", cores - 1);
        let server = Server::measured(
            Program::Strand,
            &extent.options.strand,
            &["--workers", &workers.to_string()],
            &all,
            &[],
        )?;
        define(&server, &subjects()[2], &[])?;
        let each = extent.size(SHORT_TEXTS) / 16;
        let before = server.cpu()?;
        thread::scope(|scope| {
            let running: Vec<_> = (0..16).map(|_| scope.spawn(|| short_texts(&server, each))).collect();
            running.into_iter().try_for_each(|r| r.join().unwrap_or_else(|_| Err("panicked".into())))
        })?;
        Ok((16 * each) as f64 / (server.cpu()? - before).as_secs_f64())
    };
    let (one, many) = (rate(1)?, rate(more)?);
    Ok((format!("{} / {} ({more} workers)", grouped(one), grouped(many)), many >= 0.7 * one))
}

fn short_texts(server: &Server, n: usize) -> Result<()> {
    const PIPELINE: usize = 30;
    let mut client = server.connect()?;
    let mut batch = Vec::new();
    (0..PIPELINE)
        .for_each(|_| encode_command(&mut batch, &["RX.MATCH", SET, "0123456789abcdef 123 abcdefghi #"]));
    for _ in 0..n.div_ceil(PIPELINE) {
        std::io::Write::write_all(client.stream(), &batch)?;
        for _ in 0..PIPELINE {
            client.reply()?;
        }
    }
    Ok(())
}

/// T6: four clients send only hard texts.
///
/// # Errors
/// Errors of the server.
pub(super) fn measure_saturation(extent: &Extent<'_>) -> Cell {
    let subject = &subjects()[0];
    let mut strand = Strand::start(&extent.options.strand, subject)?;
    let rng = &mut Rng::with_seed(3);
    let easy: Vec<Vec<u8>> = (0..EASY_TEXTS).map(|_| subject.easy(rng, TEXT_BYTES)).collect();
    let hard: Vec<Vec<u8>> = (0..200).map(|_| subject.hard(rng, TEXT_BYTES)).collect();
    let order: Vec<usize> = (0..1000).map(|i| i % EASY_TEXTS).collect();
    strand.run(&easy, 1, &order, PART_TIME_ALONE)?;
    let quiet = quantile(&all(strand.run(&easy, 1, &order, PART_TIME_ALONE)?), 0.99);
    let (stop, address) = (AtomicBool::new(false), strand.server.address);
    let seconds = Duration::from_secs_f64(SATURATED_S * extent.options.scale * extent.share);
    let during = thread::scope(|scope| -> Result<Vec<Sample>> {
        for t in 0..4 {
            let (stop, hard) = (&stop, &hard);
            scope.spawn(move || -> Result<()> {
                super::super::event::lower_priority()?;
                let mut client = strand_testkit::client::Client::connect(address)?;
                for text in hard.iter().cycle().skip(t * 50) {
                    if stop.load(Relaxed) {
                        break;
                    }
                    client.call(&[b"RX.MATCH", SET.as_bytes(), text])?;
                }
                Ok(())
            });
        }
        let (begun, mut during) = (Instant::now(), Vec::new());
        let result = loop {
            match strand.run(&easy, 1, &order, PART_TIME_ALONE) {
                Ok(samples) => during.extend(all(samples)),
                Err(e) => break Err(e),
            }
            if begun.elapsed() >= seconds {
                break Ok(during);
            }
        };
        stop.store(true, Relaxed);
        result
    })?;
    let p99 = quantile(&during, 0.99);
    Ok((
        format!("{} / {} ({} texts)", grouped(quiet), grouped(p99), during.len()),
        p99 <= 2.0 * quiet + 200.0,
    ))
}

fn all(samples: Vec<Option<Sample>>) -> Vec<Sample> {
    samples.into_iter().flatten().collect()
}
