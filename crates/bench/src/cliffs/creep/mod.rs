//! The creep test: the cost of a regular expression after hard texts, beside hard texts, and at the
//! hundred-thousandth search. Strand, the `regex` crate and RE2 get equal patterns and texts in one run.
//!
//! T1: an easy text after 400 hard texts, on one thread. T2: easy texts among 5 % hard ones, on four threads. T3:
//! text that is not ASCII. T4: memory over redefinitions. T5: the cost of more workers. T6: easy texts while hard
//! texts keep the hard lane busy. T7: equal results. Strand's figures are round trips over a socket, with one
//! worker on core 0 and the client on core 1. The other engines run on core 1, without a socket. [`check`] has T1 to
//! T3 and T7, [`service`] has T4 to T6.
//!
//! A run of all rows has some minutes for everything, but a contestant that has become slow would need half an
//! hour for this test. So in a run of all rows a part of a check ends after [`PART_TIME`]. When the creep test is
//! selected by name, it ends after [`PART_TIME_ALONE`].

mod check;
mod contestants;
mod service;
mod texts;

use super::{Options, Result};
use crate::report::{Report, ReportRow};
use check::Check;
use contestants::{Re2, RegexCrate, Strand};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use texts::subjects;

const TEXT_BYTES: usize = 64 << 10;
const EASY_TEXTS: usize = 20;
const HARD: f64 = 400.0;
const MIXED: f64 = 4_000.0;
const REDEFINITIONS: f64 = 100_000.0;
const SATURATED_S: f64 = 60.0;
const SHORT_TEXTS: f64 = 300_000.0;
/// The part of T4 and T6 that a run of all rows does.
const SHARE: f64 = 0.1;
/// Time limit of a contestant in one part of a check (four times this in the mix).
const PART_TIME: Duration = Duration::from_millis(500);
const PART_TIME_ALONE: Duration = Duration::from_secs(30);

/// Names of the rows that do not depend on a pattern.
const T4: &str = "creep T4: memory after redefinitions, MB at a fifth / at the end";
const T5: &str = "creep T5: short texts a server CPU-second, 1 / more workers";
const T6: &str = "creep T6: easy texts, quiet p99 / with the hard lane saturated, us";

/// Result of one contestant in one check: the cell, and whether it passes. An error when there is no result.
type Cell = Result<(String, bool)>;

/// How much of the test runs, and how long it may take.
struct Extent<'a> {
    options: &'a Options,
    /// Time limit for one part of a check.
    part: Duration,
    /// The part of T4 and T6 that is done: 1 is all.
    share: f64,
}

impl Extent<'_> {
    fn of(options: &Options) -> Extent<'_> {
        match options.only {
            Some(_) => Extent { options, part: PART_TIME_ALONE.mul_f64(options.scale.min(1.0)), share: 1.0 },
            None => Extent { options, part: PART_TIME, share: SHARE },
        }
    }
    fn size(&self, at_scale_1: f64) -> usize {
        self.options.size(at_scale_1) as usize
    }
}

/// True when some row of the test is wanted.
pub(super) fn is_wanted(options: &Options) -> bool {
    options.only.as_deref().is_none_or(|only| only.contains("creep"))
}

/// Runs the wanted checks.
///
/// # Errors
/// Never. A check that fails says so in its cell.
pub(super) fn run(options: &Options) -> Result<Report> {
    let extent = &Extent::of(options);
    let title = format!(
        "Creep (texts of {} KiB; times in microseconds; FAIL: the check did not pass)",
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
        let timed = |who: &str, start: check::Start<'_>| {
            let begun = Instant::now();
            let check = Check::run(extent, &subject, start);
            eprintln!("  creep {} on {who}: {:.1} s", subject.name, begun.elapsed().as_secs_f64());
            check
        };
        let all = [
            timed("strand", &|| Ok(Box::new(Strand::start(&options.strand, &subject)?))),
            timed("the regex crate", &|| Ok(Box::new(RegexCrate::new(&subject, true)?))),
            timed("RE2", &|| Ok(Box::new(Re2::start(&binary.clone()?, &subject)?))),
        ];
        let want = RegexCrate::new(&subject, false)
            .and_then(|mut engine| check::results(&mut engine, extent, &subject));
        for name in wanted {
            let cells = all.each_ref().map(|check| {
                let check = check.as_ref().map_err(|e| e.to_string())?;
                match &name[6..8] {
                    "T1" => check.judge_easy_after_hard(),
                    "T2" => check.judge_mix(),
                    "T3" => check.judge_non_ascii(),
                    _ => check.judge_results(want.as_ref().map_err(|e| e.to_string())?),
                }
            });
            report.row(row(name, cells));
        }
    }
    let alone = [
        (T4, service::measure_memory as fn(&Extent<'_>) -> Cell),
        (T5, service::measure_workers),
        (T6, service::measure_saturation),
    ];
    for (name, check) in alone {
        if options.wants(name) {
            report.row(row(name, [check(extent), Err("-".into()), Err("-".into())]));
        }
    }
    if let Some(Ok(binary)) = re2 {
        let _ = binary.parent().map(std::fs::remove_dir_all);
    }
    Ok(report)
}

fn row(name: &str, cells: [Cell; 3]) -> ReportRow {
    let check = name.split(':').next().unwrap_or(name);
    let mut row = ReportRow::new(&[name], format!("make cliffs ARGS='--only \"{check}\"'"));
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
