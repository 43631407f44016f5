//! Counting: counters and rates that everyone uses, so this crate depends on nothing of ours.
//!
//! [`Counters`] is a block of counters in one copy for each worker, so that adding never moves a cache line between
//! cores; reading sums the copies. [`Rate`] makes "per second" of a growing counter. [`history`] keeps figures over time, [`sketch`] the
//! heaviest keys, [`profile`] stacks.
//!
//! **Invariant:** depends on no crate of ours; reads no data and no clock; a scrape costs the same however much data
//! there is.

mod counters;
pub mod history;
pub mod profile;
mod rate;
pub mod sketch;

pub use counters::Counters;
pub use rate::Rate;
