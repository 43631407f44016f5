//! The figures: Strand beside redis-server in one run, behind `make versus`, `make cliffs`, `make scaling` and
//! `make durable`.
//!
//! [`fill`] makes data. [`load`] measures the headline's workloads on it, [`exchange`] what goes from client to client.
//! [`cliffs`] probes what must stay flat; RE2's shim is there, too. [`report`] prints the figures beside the [`machine`].
//! docs/benchmarks.md is made from figures that were kept. The servers and the client are testkit's.
//!
//! **Invariant:** no crate depends on this one except as a dev-dependency; what is measured is the built binary.

pub mod cliffs;
pub mod exchange;
pub mod fill;
pub mod load;
pub mod machine;
pub mod options;
#[cfg(test)]
mod page;
pub mod report;
