//! The creep test: what a regular expression costs after hard texts, beside hard texts, and the hundred-thousandth time.
//! Strand, the `regex` crate and RE2 get the same patterns and texts in the same run.
//!
//! T1: an easy text after 400 hard ones, by one thread. T2: easy texts among 5 % hard ones, by four. T3: text that is not
//! ASCII. T4: memory over redefinitions. T5: what more workers cost. T6: easy texts while hard ones keep the hard lane busy.
//! T7: the same results. Strand's figures are round trips over a socket, with one worker on core 0 and the client on
//! core 1; the others run on core 1, without a socket.

mod contestants;
mod texts;

use super::{Options, Result};
use crate::process::{Kind, Server};
use crate::report::{Report, Row, grouped};
use contestants::{Contestant, Re2, SET, Sample, Stock, Strand, define};
use fastrand::Rng;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use strand_wire::client::{Value, encode_command};
use texts::{Subject, subjects};

const TEXT_BYTES: usize = 64 << 10;
const EASY_TEXTS: usize = 20;
const EASY_ROUNDS: usize = 100;
const HARD: f64 = 400.0;
const MIXED: f64 = 4_000.0;
const MIXED_THREADS: usize = 4;
const PLANTED: usize = 200;
const PLANTED_BYTES: usize = 600;
const REDEFINITIONS: f64 = 100_000.0;
const SATURATED_S: f64 = 60.0;
const SHORT_TEXTS: f64 = 300_000.0;
/// A contestant that has become slow is not waited for longer than this in one part of a check, in seconds.
const PART_S_MAX: f64 = 30.0;
/// Searches between two looks at that.
const PART: usize = 8;

/// The names of rows without a pattern of their own.
const T4: &str = "creep T4: memory after redefinitions, MB at a fifth / at the end";
const T5: &str = "creep T5: short texts a server CPU-second, 1 / more workers";
const T6: &str = "creep T6: easy texts, quiet p99 / with the hard lane saturated, us";

/// What one contestant gave in one check: the cell, and whether it passes; or why there is nothing.
type Cell = Result<(String, bool)>;

/// Runs the checks that are wanted.
///
/// # Errors
/// Never: a check that fails says so in its cell.
pub(super) fn run(options: &Options) -> Result<Report> {
    let title = format!(
        "Creep (texts of {} KiB; times in microseconds; what does not pass says FAIL)",
        TEXT_BYTES >> 10
    );
    let mut report = Report::new(&title, &["check", "strand", "regex crate", "RE2"]);
    let mut re2: Option<std::result::Result<PathBuf, String>> = None;
    for subject in subjects() {
        let names = [
            format!("creep T1 {}: easy before / after / hard", subject.name),
            format!("creep T2 {}: easy p50 / p99 in the mix / last tenth to first", subject.name),
            format!("creep T3 {}: ASCII / not", subject.name),
            format!("creep T7 {}: different results", subject.name),
        ];
        let is_words = subject.name == "P6";
        let wanted: Vec<&String> =
            names.iter().filter(|n| options.wants(n) && (is_words || !n.contains(" T3 "))).collect();
        if wanted.is_empty() {
            continue;
        }
        let binary = re2.get_or_insert_with(|| Re2::build().map_err(|e| e.to_string())).clone();
        let all = [
            Check::take(options, &subject, &|| Ok(Box::new(Strand::start(&options.strand, &subject)?))),
            Check::take(options, &subject, &|| Ok(Box::new(Stock::new(&subject, true)?))),
            Check::take(options, &subject, &|| Ok(Box::new(Re2::start(&binary.clone()?, &subject)?))),
        ];
        let want = match Stock::new(&subject, false) {
            Ok(mut stock) => results(&mut stock, options, &subject),
            Err(e) => Err(e),
        };
        for name in wanted {
            let cells = all.each_ref().map(|check| {
                let check = check.as_ref().map_err(|e| e.to_string())?;
                match &name[6..8] {
                    "T1" => check.after_hard(),
                    "T2" => check.mixed(),
                    "T3" => check.not_ascii(),
                    _ => check.same(want.as_ref().map_err(|e| e.to_string())?),
                }
            });
            report.row(row(name, cells));
        }
    }
    for (name, check) in [(T4, memory as fn(&Options) -> Cell), (T5, workers), (T6, saturated)] {
        if options.wants(name) {
            report.row(row(name, [check(options), Err("-".into()), Err("-".into())]));
        }
    }
    if let Some(Ok(binary)) = re2 {
        let _ = std::fs::remove_file(binary);
    }
    Ok(report)
}

fn row(name: &str, cells: [Cell; 3]) -> Row {
    let check = name.split(':').next().unwrap_or(name);
    let mut row = Row::new(&[name], format!("make cliffs ARGS='--only \"{check}\"'"));
    for (who, cell) in ["strand", "regex", "re2"].iter().zip(cells) {
        match cell {
            Ok((text, passes)) => {
                row.figure(format!("{who}_passes"), f64::from(u8::from(passes)));
                row.cell(if passes { text } else { format!("{text} FAIL") });
            }
            Err(why) => row.cell(why.to_string()),
        }
    }
    row
}

/// What a contestant's searches took.
struct Check {
    /// Easy texts before the hard ones, the hard ones, and easy texts after them.
    before: Vec<Sample>,
    hard: Vec<Sample>,
    after: Vec<Sample>,
    /// Easy texts by several threads, warm, and the mix with whether each was hard.
    warm: Vec<Sample>,
    mix: Vec<(Sample, bool)>,
    results: Vec<usize>,
}

/// Makes a contestant that knows nothing yet.
type Start<'a> = &'a dyn Fn() -> Result<Box<dyn Contestant>>;

impl Check {
    fn take(options: &Options, subject: &Subject, start: Start<'_>) -> Result<Check> {
        let hard_texts = options.size(HARD) as usize;
        let rng = &mut Rng::with_seed(77);
        let mut texts: Vec<Vec<u8>> = (0..EASY_TEXTS).map(|_| subject.easy(rng, TEXT_BYTES)).collect();
        texts.extend((0..hard_texts).map(|_| subject.hard(rng, TEXT_BYTES)));
        let easy = |n: usize| (0..n).map(|i| i % EASY_TEXTS).collect::<Vec<_>>();
        let hard = |i: usize| EASY_TEXTS + i % hard_texts;

        let limit = Duration::from_secs_f64(PART_S_MAX * options.scale.min(1.0));
        let mut one = start()?;
        bounded(&mut *one, &texts, 1, &easy(EASY_ROUNDS), limit)?;
        let before = bounded(&mut *one, &texts, 1, &easy(EASY_ROUNDS), limit)?;
        let hard_ones = bounded(&mut *one, &texts, 1, &(0..hard_texts).map(hard).collect::<Vec<_>>(), limit)?;
        let after = bounded(&mut *one, &texts, 1, &easy(EASY_ROUNDS), limit)?;
        drop(one);

        let mut many = start()?;
        bounded(&mut *many, &texts, MIXED_THREADS, &easy(4 * EASY_ROUNDS), limit)?;
        let warm = bounded(&mut *many, &texts, MIXED_THREADS, &easy(4 * EASY_ROUNDS), limit)?;
        let mut hards = 0;
        let order: Vec<usize> = (0..options.size(MIXED))
            .map(|_| match rng.usize(..20) {
                0 => {
                    hards += 1;
                    hard(hards)
                }
                _ => rng.usize(..EASY_TEXTS),
            })
            .collect();
        let samples = bounded(&mut *many, &texts, MIXED_THREADS, &order, 4 * limit)?;
        let mix = samples.into_iter().zip(order.iter().map(|t| *t >= EASY_TEXTS)).collect();
        drop(many);
        let results = results(&mut *start()?, options, subject)?;
        Ok(Check { before, hard: hard_ones, after, warm, mix, results })
    }

    fn after_hard(&self) -> Cell {
        let [before, hard, after] = [&self.before, &self.hard, &self.after].map(|s| quantile(s, 0.5));
        let text = format!("{} / {} / {}", grouped(before), grouped(after), grouped(hard));
        Ok((text, after <= 3.0 * before + 50.0))
    }

    fn mixed(&self) -> Cell {
        let easy: Vec<Sample> = self.mix.iter().filter(|m| !m.1).map(|m| m.0).collect();
        let tenth = (easy.len() / 10).max(1);
        let (warm, p99) = (quantile(&self.warm, 0.5), quantile(&easy, 0.99));
        let drift = quantile(&easy[easy.len() - tenth..], 0.5) / quantile(&easy[..tenth], 0.5);
        let text = format!("{} / {} / {drift:.2} ({} searches)", grouped(warm), grouped(p99), self.mix.len());
        Ok((text, p99 <= 5.0 * warm && drift <= 1.2))
    }

    fn not_ascii(&self) -> Cell {
        let [ascii, other] = [&self.before, &self.hard].map(|s| quantile(s, 0.5));
        Ok((format!("{} / {}", grouped(ascii), grouped(other)), other <= 3.0 * ascii))
    }

    fn same(&self, want: &[usize]) -> Cell {
        let both = self.results.iter().zip(want);
        let different = both.clone().filter(|(a, b)| a != b).count();
        let found = both.clone().filter(|(_, n)| **n > 0).count();
        Ok((format!("{different} of {}, {found} of which match", both.len()), different == 0))
    }
}

/// How many patterns match, on texts short and long of which many match.
fn results(contestant: &mut dyn Contestant, options: &Options, subject: &Subject) -> Result<Vec<usize>> {
    let rng = &mut Rng::with_seed(5);
    let mut texts: Vec<Vec<u8>> = (0..PLANTED).map(|_| subject.planted(rng, PLANTED_BYTES)).collect();
    texts.extend((0..options.size(10.0)).map(|_| subject.planted(rng, TEXT_BYTES)));
    let order: Vec<usize> = (0..texts.len()).collect();
    let limit = Duration::from_secs_f64(PART_S_MAX);
    Ok(bounded(contestant, &texts, 1, &order, limit)?.iter().map(|s| s.matches).collect())
}

/// Runs what of `order` can be done in time: all, unless a search takes very long.
fn bounded(
    contestant: &mut dyn Contestant,
    texts: &[Vec<u8>],
    threads: usize,
    order: &[usize],
    limit: Duration,
) -> Result<Vec<Sample>> {
    let (begun, mut samples) = (Instant::now(), Vec::new());
    for part in order.chunks(PART * threads) {
        samples.extend(contestant.run(texts, threads, part)?);
        if begun.elapsed() >= limit {
            break;
        }
    }
    Ok(samples)
}

/// Microseconds.
fn quantile(samples: &[Sample], share: f64) -> f64 {
    let mut micros: Vec<f64> = samples.iter().map(|s| s.took.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    let at = ((micros.len() as f64 * share).ceil() as usize).clamp(1, micros.len().max(1)) - 1;
    micros.get(at).copied().unwrap_or(f64::NAN)
}

/// T4: a set is defined again and again and searched with in between.
fn memory(options: &Options) -> Cell {
    const PART: usize = 100;
    let server = Server::measured(Kind::Strand, &options.strand, &["--workers", "1"], "0", &[])?;
    let mut client = server.connect()?;
    let (rounds, mut at_fifth) = (options.size(REDEFINITIONS) as usize, 0);
    for first in (0..rounds).step_by(PART) {
        let mut batch = Vec::new();
        for i in first..first + PART {
            let pattern = format!("(?:error|warn)-{i}[0-9]{{1,3}}|[a-f]{{2,4}}{i}");
            encode_command(&mut batch, &["RX.SET", SET, "ID", "p", &pattern]);
            encode_command(&mut batch, &["RX.MATCH", SET, "some text with warn-1 and dead17 in it"]);
        }
        std::io::Write::write_all(client.stream(), &batch)?;
        for _ in 0..2 * PART {
            if let Value::Error(e) = client.reply()? {
                return Err(String::from_utf8_lossy(&e).into_owned().into());
            }
        }
        if at_fifth == 0 && first + PART >= rounds / 5 {
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
    let counted = figure("used_memory_caches")?;
    let (from, to) = (at_fifth as f64 / 1024.0, at_end as f64 / 1024.0);
    let text = format!("{from:.1} / {to:.1} ({rounds} times; counted {counted} bytes, of the set {of_set})");
    Ok((text, to - from <= 4.0 && counted >= of_set as u64))
}

/// T5: on two cores more workers cannot be twice as fast beside their client; what they cost shows in the processor's time.
fn workers(options: &Options) -> Cell {
    let cores = thread::available_parallelism()?.get().max(2);
    let more = cores.min(16);
    let rate = |workers: usize| -> Result<f64> {
        let all = format!("0-{}", cores - 1);
        let server =
            Server::measured(Kind::Strand, &options.strand, &["--workers", &workers.to_string()], &all, &[])?;
        define(&server, &subjects()[2], &[])?;
        let each = options.size(SHORT_TEXTS) as usize / 16;
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

/// T6: four clients send nothing but hard texts.
fn saturated(options: &Options) -> Cell {
    let subject = &subjects()[0];
    let mut strand = Strand::start(&options.strand, subject)?;
    let rng = &mut Rng::with_seed(3);
    let easy: Vec<Vec<u8>> = (0..EASY_TEXTS).map(|_| subject.easy(rng, TEXT_BYTES)).collect();
    let hard: Vec<Vec<u8>> = (0..200).map(|_| subject.hard(rng, TEXT_BYTES)).collect();
    let order: Vec<usize> = (0..1000).map(|i| i % EASY_TEXTS).collect();
    strand.run(&easy, 1, &order)?;
    let quiet = quantile(&strand.run(&easy, 1, &order)?, 0.99);
    let (stop, address) = (AtomicBool::new(false), strand.server.address);
    let seconds = Duration::from_secs_f64(SATURATED_S * options.scale);
    let during = thread::scope(|scope| -> Result<Vec<Sample>> {
        for t in 0..4 {
            let (stop, hard) = (&stop, &hard);
            scope.spawn(move || -> Result<()> {
                super::event::lower_priority()?;
                let mut client = crate::client::Client::connect(address)?;
                for text in hard.iter().cycle().skip(t * 50) {
                    if stop.load(Relaxed) {
                        break;
                    }
                    client.call(&[b"RX.MATCH", SET.as_bytes(), text])?;
                }
                Ok(())
            });
        }
        let (begun, mut all) = (Instant::now(), Vec::new());
        let result = loop {
            match strand.run(&easy, 1, &order) {
                Ok(samples) => all.extend(samples),
                Err(e) => break Err(e),
            }
            if begun.elapsed() >= seconds {
                break Ok(all);
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
