//! [`Departures`]: a worker closes few connections at a time, so that those who stay need not wait for a crowd that
//! leaves in one moment. Connections of HTTP close without a turn.
//!
//! To close a connection takes 15 us, most of it in the kernel. A connection waits for its turn before it is closed. The
//! engine has forgotten its session then, and its memory is still used.

use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

/// A part of a turn's time in which connections may close, as a divisor: a worker that is busy closes more of them in its
/// longer turns. Otherwise 3,000 connections took 3 s to leave beside 16 busy ones (before: 0.2 s).
const PART_OF_TURN: u32 = 10;
/// Time to close a connection.
const CLOSING: Duration = Duration::from_micros(15);

/// Number of connections that a worker may always close before it serves its other connections. Without a bound, 5,000
/// connections that left at once delayed the others by 60 to 80 ms, with 16 by 20 to 35 ms, and with 4 by 3 to 5 ms (`make
/// cliffs ARGS='--only "11 5000 connections leave at once"'`). While connections wait to
/// close, each that arrives lets one more close: otherwise clients that come and go for each command would fill the server.
const DEPARTURES_PER_TURN_MIN: usize = 4;

/// The order in which a worker's connections close.
pub struct Departures {
    /// A permit for each connection that may close now.
    turns: Semaphore,
    is_used: Notify,
}

impl Default for Departures {
    fn default() -> Departures {
        Departures { turns: Semaphore::new(DEPARTURES_PER_TURN_MIN), is_used: Notify::new() }
    }
}

impl Departures {
    /// Waits until the calling connection may close.
    pub async fn turn(&self) {
        // The semaphore is never closed, so this does not fail.
        if let Ok(permit) = self.turns.acquire().await {
            permit.forget();
        }
        self.is_used.notify_one();
    }

    /// Call this when a connection arrives.
    pub fn arrived(&self) {
        if self.turns.available_permits() == 0 {
            self.turns.add_permits(1);
        }
    }

    /// Gives the permits back after the worker's other connections had a turn. Never returns.
    pub async fn serve(&self) {
        self.serve_by(Instant::now).await;
    }
    /// Does what [`Departures::serve`] does, by this clock.
    async fn serve_by(&self, now: impl Fn() -> Instant) {
        loop {
            self.is_used.notified().await;
            let began = now();
            tokio::task::yield_now().await;
            let more = (now().duration_since(began) / PART_OF_TURN).as_nanos() / CLOSING.as_nanos();
            let permits = DEPARTURES_PER_TURN_MIN.max(more as usize);
            self.turns.add_permits(permits.saturating_sub(self.turns.available_permits()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    #[test]
    fn few_connections_close_in_a_turn_and_more_when_others_arrive() {
        const CROWD: usize = 50;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (departures, closed) = (Rc::new(Departures::default()), Rc::new(Cell::new(0)));
            for _ in 0..CROWD {
                let (departures, closed) = (departures.clone(), closed.clone());
                spawn_local(async move {
                    departures.turn().await;
                    closed.set(closed.get() + 1);
                });
            }
            yield_now().await;
            assert_eq!(closed.get(), DEPARTURES_PER_TURN_MIN, "nobody gives permits back yet");
            departures.arrived();
            yield_now().await;
            assert_eq!(closed.get(), DEPARTURES_PER_TURN_MIN + 1);

            let serving = departures.clone();
            // This clock stands still: no turn takes long.
            let start = Instant::now();
            spawn_local(async move { serving.serve_by(|| start).await });
            let mut turns = 0;
            while closed.get() < CROWD {
                let before = closed.get();
                yield_now().await;
                assert!(closed.get() - before < CROWD / 2, "{before}, then {}", closed.get());
                turns += 1;
                assert!(turns < 1000, "{} of {CROWD}", closed.get());
            }
            // A connection that is alone closes at once.
            for _ in 0..3 {
                yield_now().await;
            }
            assert_eq!(departures.turns.available_permits(), DEPARTURES_PER_TURN_MIN);
        });
    }
}
