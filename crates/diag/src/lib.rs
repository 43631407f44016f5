//! Counters, rates and profiles. Every crate may use this one, so it depends on no other crate of Strand.
//!
//! [`Counters`] is a block of counters with one copy per worker, so adding never moves a cache line between cores;
//! reading sums the copies. [`Rate`] turns a growing counter into "per second".
//! [`LineLimit`] bounds the lines of a log. [`history`] keeps figures over
//! time, [`sketch`] the heaviest keys, [`profile`] stacks.
//!
//! **Invariant:** this crate depends on no other crate of Strand and reads neither data nor clocks. A scrape does
//! not become slower with more data.

mod counters;
pub mod history;
mod line_limit;
pub mod profile;
mod rate;
pub mod sketch;

pub use counters::Counters;
pub use line_limit::LineLimit;
pub use rate::Rate;
