//! [`Check`]: the times of one contestant's searches, and whether it passes T1, T2, T3 and T7.
//!
//! Other programs on the machine can spoil a mix (T2). A mix that does not pass is run again, up to [`MIXES_MAX`]
//! times in all, and the best mix counts. The mixes run one after another on the same engines, and drift is measured
//! from the first tenth of the first mix. So a real slowdown shows in every mix, and a disturbance shows in only one.
//! All mixes together get the time limit of one mix.

use super::contestants::{Contestant, Sample};
use super::texts::Subject;
use super::*;
use crate::report::grouped;
use fastrand::Rng;

const EASY_ROUNDS: usize = 100;
const MIXED_THREADS: usize = 4;
const MIXES_MAX: usize = 3;
/// One text in this many of a mix is a hard text.
const HARD_SHARE: usize = 20;
const PLANTED: usize = 200;
const PLANTED_BYTES: usize = 600;

/// The times that a contestant's searches took.
pub(super) struct Check {
    /// The easy texts that are searched before the hard texts.
    before: Vec<Sample>,
    /// The hard texts.
    hard: Vec<Sample>,
    /// The easy texts that are searched after the hard texts.
    after: Vec<Sample>,
    /// The easy texts that are searched on several warm threads.
    warm: Vec<Sample>,
    /// The mixes of easy and hard texts.
    mixes: Vec<Mix>,
    results: Vec<usize>,
}

/// One mix of easy and hard texts.
struct Mix {
    searches: usize,
    /// The p99 of the mix's easy texts, in microseconds.
    p99: f64,
    /// The median of the first tenth of the easy texts, in microseconds.
    first: f64,
    /// The median of the last tenth of the easy texts, in microseconds.
    last: f64,
}

/// Creates a new contestant.
pub(super) type Start<'a> = &'a dyn Fn() -> Result<Box<dyn Contestant>>;

impl Check {
    /// Measures all searches of T1 to T3 and T7 with new contestants.
    ///
    /// # Errors
    /// When the contestant does not start, or fails.
    pub(super) fn run(extent: &Extent<'_>, subject: &Subject, start: Start<'_>) -> Result<Check> {
        let hard_texts = extent.size(HARD);
        let rng = &mut Rng::with_seed(77);
        let mut texts: Vec<Vec<u8>> = (0..EASY_TEXTS).map(|_| subject.easy(rng, TEXT_BYTES)).collect();
        texts.extend((0..hard_texts).map(|_| subject.hard(rng, TEXT_BYTES)));
        let easy = |n: usize| (0..n).map(|i| i % EASY_TEXTS).collect::<Vec<_>>();
        let hard = |i: usize| EASY_TEXTS + i % hard_texts;

        let mut one = start()?;
        let mut alone = |order: &[usize]| search_within_limit(&mut *one, &texts, 1, order, extent.part);
        alone(&easy(EASY_ROUNDS))?;
        let before = alone(&easy(EASY_ROUNDS))?;
        let hard_ones = alone(&(0..hard_texts).map(hard).collect::<Vec<_>>())?;
        let after = alone(&easy(EASY_ROUNDS))?;
        drop(one);

        let mut many = start()?;
        search_within_limit(&mut *many, &texts, MIXED_THREADS, &easy(4 * EASY_ROUNDS), extent.part)?;
        let warm =
            search_within_limit(&mut *many, &texts, MIXED_THREADS, &easy(4 * EASY_ROUNDS), extent.part)?;
        let (begun, mut hards) = (Instant::now(), 0);
        let mut check =
            Check { before, hard: hard_ones, after, warm, mixes: Vec::new(), results: Vec::new() };
        while check.mixes.len() < MIXES_MAX && !check.judge_mix().is_ok_and(|cell| cell.1) {
            let left = (4 * extent.part).saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let order: Vec<usize> = (0..extent.size(MIXED))
                .map(|_| match rng.usize(..HARD_SHARE) {
                    0 => {
                        hards += 1;
                        hard(hards)
                    }
                    _ => rng.usize(..EASY_TEXTS),
                })
                .collect();
            let samples = many.run(&texts, MIXED_THREADS, &order, left)?;
            check.mixes.push(Mix::of(&samples, |i| order[i] >= EASY_TEXTS));
        }
        drop(many);
        check.results = results(&mut *start()?, extent, subject)?;
        Ok(check)
    }

    /// Result of T1: easy texts after hard ones.
    ///
    /// # Errors
    /// None.
    pub(super) fn judge_easy_after_hard(&self) -> Cell {
        let [before, hard, after] = [&self.before, &self.hard, &self.after].map(|s| quantile(s, 0.5));
        let text = format!("{} / {} / {}", grouped(before), grouped(after), grouped(hard));
        Ok((text, after <= 3.0 * before + 50.0))
    }

    /// Result of T2: easy texts among hard ones.
    ///
    /// # Errors
    /// When no mix was run.
    pub(super) fn judge_mix(&self) -> Cell {
        let warm = quantile(&self.warm, 0.5);
        let first = self.mixes.first().ok_or("no mix")?.first;
        let judged = |mix: &Mix| {
            let drift = mix.last / first;
            // How far the mix is over the limits.
            ((mix.p99 / (5.0 * warm)).max(drift / 1.2), drift, mix.p99)
        };
        let best = self.mixes.iter().map(judged).min_by(|a, b| a.0.total_cmp(&b.0));
        let (worse, drift, p99) = best.ok_or("no mix")?;
        let searches: Vec<String> = self.mixes.iter().map(|m| grouped(m.searches as f64)).collect();
        let text =
            format!("{} / {} / {drift:.2} ({} searches)", grouped(warm), grouped(p99), searches.join(" + "));
        Ok((text, worse <= 1.0))
    }

    /// Result of T3: text that is not ASCII.
    ///
    /// # Errors
    /// None.
    pub(super) fn judge_non_ascii(&self) -> Cell {
        let [ascii, other] = [&self.before, &self.hard].map(|s| quantile(s, 0.5));
        Ok((format!("{} / {}", grouped(ascii), grouped(other)), other <= 3.0 * ascii))
    }

    /// Result of T7: whether the contestant's results equal `want`.
    ///
    /// # Errors
    /// None.
    pub(super) fn judge_results(&self, want: &[usize]) -> Cell {
        let both = self.results.iter().zip(want);
        let different = both.clone().filter(|(a, b)| a != b).count();
        let found = both.clone().filter(|(_, n)| **n > 0).count();
        Ok((format!("{different} of {}, {found} of which match", both.len()), different == 0))
    }
}

impl Mix {
    fn of(samples: &[Option<Sample>], is_hard: impl Fn(usize) -> bool) -> Mix {
        let easy = samples.iter().enumerate().filter(|(i, _)| !is_hard(*i));
        let easy: Vec<Sample> = easy.filter_map(|(_, s)| *s).collect();
        let tenth = (easy.len() / 10).max(1).min(easy.len());
        Mix {
            searches: samples.iter().flatten().count(),
            p99: quantile(&easy, 0.99),
            first: quantile(&easy[..tenth], 0.5),
            last: quantile(&easy[easy.len() - tenth..], 0.5),
        }
    }
}

/// The number of matching patterns for each of several short and long texts, of which many match.
///
/// # Errors
/// The contestant's error.
pub(super) fn results(
    contestant: &mut dyn Contestant,
    extent: &Extent<'_>,
    subject: &Subject,
) -> Result<Vec<usize>> {
    let rng = &mut Rng::with_seed(5);
    let mut texts: Vec<Vec<u8>> =
        (0..PLANTED).map(|_| subject.with_planted_match(rng, PLANTED_BYTES)).collect();
    texts.extend((0..extent.size(10.0)).map(|_| subject.with_planted_match(rng, TEXT_BYTES)));
    let order: Vec<usize> = (0..texts.len()).collect();
    Ok(search_within_limit(contestant, &texts, 1, &order, extent.part)?.iter().map(|s| s.matches).collect())
}

/// Searches the texts in this order. Returns only the searches that were done within the time limit.
fn search_within_limit(
    contestant: &mut dyn Contestant,
    texts: &[Vec<u8>],
    threads: usize,
    order: &[usize],
    limit: Duration,
) -> Result<Vec<Sample>> {
    Ok(contestant.run(texts, threads, order, limit)?.into_iter().flatten().collect())
}

/// A quantile of the searches' times, in microseconds.
pub(super) fn quantile(samples: &[Sample], share: f64) -> f64 {
    let mut micros: Vec<f64> = samples.iter().map(|s| s.took.as_secs_f64() * 1e6).collect();
    micros.sort_by(f64::total_cmp);
    let at = ((micros.len() as f64 * share).ceil() as usize).clamp(1, micros.len().max(1)) - 1;
    micros.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mix in which every tenth text is hard, and the easy one at `i` takes `micros(i)` microseconds.
    fn mix(micros: impl Fn(usize) -> u64) -> Mix {
        let took = |i: usize| Duration::from_micros(if i.is_multiple_of(10) { 90_000 } else { micros(i) });
        let samples: Vec<Option<Sample>> =
            (0..1000).map(|i| Some(Sample { took: took(i), matches: 0 })).chain([None; 100]).collect();
        Mix::of(&samples, |i| i.is_multiple_of(10))
    }

    fn passes(mixes: Vec<Mix>) -> bool {
        let warm = vec![Sample { took: Duration::from_micros(100), matches: 0 }];
        let [before, hard, after] = [(); 3].map(|()| Vec::new());
        let check = Check { before, hard, after, warm, mixes, results: Vec::new() };
        check.judge_mix().expect("a mix").1
    }

    #[test]
    fn a_slowdown_in_every_mix_counts_and_a_disturbance_of_one_mix_does_not() {
        let (flat, noisy) = (|_| 100, |i| if (500..700).contains(&i) { 3_000 } else { 100 });
        let creeping = |i| 100 + i as u64 / 2;
        assert_eq!(mix(flat).searches, 1000);
        assert!(passes(vec![mix(flat)]));
        assert!(!passes(vec![mix(noisy)]), "p99");
        assert!(passes(vec![mix(noisy), mix(flat)]));
        assert!(!passes(vec![mix(creeping)]), "drift");
        assert!(!passes(vec![mix(creeping), mix(|_| 550)]), "flat, but where the first one ended");
        assert!(passes(vec![mix(creeping), mix(flat)]));
    }
}
