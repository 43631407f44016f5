//! The seeded simulator: an engine with simulated clients, a simulated clock and simulated scheduling, whose histories
//! are checked.
//!
//! The seed decides everything: what the clients ask ([`plan`]), how their bytes are cut, which connection, helper
//! thread or round of housekeeping runs next, where it is interrupted, and how far the clock moves meanwhile
//! ([`world`]). Everything happens on one thread, so a seed that fails will fail again in the same way. What the
//! clients saw is then compared with a database that runs one call after the other ([`linearizability`]).
//!
//! `STRAND_SEEDS` sets the number of seeds. `STRAND_SEED` runs one seed.

mod client;
mod plan;
mod world;

use parking_lot::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_testkit::linearizability::{self, Call, Request};
use world::{Fault, World};

/// Number of seeds that a test runs. The variable STRAND_SEEDS changes it.
const SEEDS: u64 = 200;

/// The outcome of running a seed.
struct Run {
    history: Vec<Call<Request>>,
    /// A digest of every decision. Two runs with equal traces took the same course.
    trace: u64,
    /// Number of decisions that the seed led to.
    steps: usize,
    /// How often a command was interrupted before its end.
    interruptions: usize,
    /// Number of jobs that ran on helper threads.
    jobs: usize,
    /// Number of waits that were served, and of waits that ended with nothing.
    waits: (usize, usize),
}

/// Why a seed failed.
#[derive(Debug)]
enum Failure {
    /// A client waits forever.
    Stuck(String),
    /// No order of the calls explains what the clients saw.
    History(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Stuck(what) => write!(f, "somebody waits for ever: {what}"),
            Failure::History(why) => write!(f, "{why}"),
        }
    }
}

/// Runs one seed and checks its history.
fn simulate(seed: u64, fault: Option<Fault>) -> Result<Run, Failure> {
    let run = World::new(seed, fault).run()?;
    match linearizability::check(&run.history) {
        Ok(_) => Ok(run),
        Err(rejected) => Err(Failure::History(rejected.to_string())),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The sums of what the runs of all seeds have tried.
#[derive(Default)]
struct Tried {
    calls: usize,
    steps: usize,
    interruptions: usize,
    jobs: usize,
    waits: (usize, usize),
}

impl Tried {
    fn add(&mut self, run: &Run) {
        self.calls += run.history.len();
        self.steps += run.steps;
        self.interruptions += run.interruptions;
        self.jobs += run.jobs;
        self.waits = (self.waits.0 + run.waits.0, self.waits.1 + run.waits.1);
    }
}

/// Runs one seed. Panics when the seed fails, and prints the command that runs the seed again.
fn run_seed(seed: u64) -> Run {
    let again = format!("STRAND_SEED={seed} cargo test --workspace --test session -- simulation::every");
    match std::panic::catch_unwind(|| simulate(seed, None)) {
        Ok(Ok(run)) => run,
        Ok(Err(failure)) => panic!("seed {seed}: {failure}\nagain: {again}"),
        Err(panic) => {
            println!("seed {seed} panicked\nagain: {again}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn every_seed_has_a_history_that_one_call_after_the_other_explains() {
    let seeds = match number("STRAND_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("STRAND_SEEDS").unwrap_or(SEEDS),
    };
    let is_one = seeds.end - seeds.start == 1;
    // Each seed runs on one thread, and each core runs seeds. The failure of a seed ends the others' turns.
    let (next, tried) = (AtomicU64::new(seeds.start), Mutex::new(Tried::default()));
    let run_seeds = || {
        while let seed = next.fetch_add(1, Relaxed)
            && seed < seeds.end
        {
            let run = std::panic::catch_unwind(|| run_seed(seed)).unwrap_or_else(|panic| {
                next.store(seeds.end, Relaxed);
                std::panic::resume_unwind(panic)
            });
            tried.lock().add(&run);
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores).for_each(|_| _ = scope.spawn(run_seeds));
    });
    let Tried { calls, steps, interruptions, jobs, waits } = tried.into_inner();
    println!(
        "{calls} calls, {steps} steps, {interruptions} interruptions, {jobs} jobs, waits served and not: {waits:?}"
    );
    assert!(is_one || (interruptions > 0 && jobs > 0 && waits.0 > 0 && waits.1 > 0), "too little was tried");
}

#[test]
fn a_seed_goes_the_same_way_again() {
    for seed in 0..5 {
        let [first, second] =
            [(); 2].map(|()| World::new(seed, None).run().unwrap_or_else(|e| panic!("{e}")));
        assert_eq!((first.trace, first.steps), (second.trace, second.steps), "seed {seed}");
        assert!(first.history == second.history, "seed {seed}");
    }
    let traces: std::collections::BTreeSet<u64> =
        (0..5).map(|seed| World::new(seed, None).run().unwrap_or_else(|e| panic!("{e}")).trace).collect();
    assert_eq!(traces.len(), 5, "seeds differ");
}

/// Checks that the planted bug is found by at least `at_least` of `of` seeds.
fn is_found(fault: Fault, of: u64, at_least: usize) {
    let found = (0..of).filter(|seed| simulate(*seed, Some(fault)).is_err()).count();
    println!("{fault:?}: found by {found} of {of} seeds");
    assert!(found >= at_least, "{fault:?} was found by {found} of {of} seeds alone");
}

#[test]
fn a_lost_update_is_found() {
    is_found(Fault::LostUpdate, 20, 3);
}

#[test]
fn a_transaction_that_is_not_whole_is_found() {
    is_found(Fault::TornTransaction, 20, 5);
}

#[test]
fn a_wake_up_that_is_lost_is_found() {
    is_found(Fault::LostWake, 40, 3);
}

#[test]
fn a_key_that_lives_too_long_is_found() {
    is_found(Fault::SlowClock, 40, 3);
}
