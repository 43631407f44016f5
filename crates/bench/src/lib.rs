//! Benchmarks of Strand beside redis-server in one run, for `make versus`, `make cliffs`, `make scaling` and `make
//! durable`.
//!
//! [`fill`] creates data. [`load`] measures the headline workloads, and [`exchange`] measures what goes from
//! client to client. [`cliffs`] measures what must stay flat, and has the RE2 program. [`report`] prints the
//! figures with the [`machine`]. docs/benchmarks.md is made from stored figures. Servers and client come from
//! testkit.
//!
//! **Invariant:** other crates depend on this one only as a dev-dependency. The built binary is measured.

pub mod cliffs;
pub mod exchange;
pub mod fill;
pub mod load;
pub mod machine;
pub mod options;
#[cfg(test)]
mod page;
pub mod report;
pub mod workloads;
