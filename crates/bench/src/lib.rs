//! The figures: Strand beside redis-server in one run, behind `make versus`, `make cliffs`, `make scaling` and
//! `make durable`.
//!
//! [`fill`] makes data, [`load`] measures on it with the headline's workloads, [`exchange`] what goes
//! from client to client, [`cliffs`] probes what must stay flat (RE2's shim is
//! with it), [`report`] prints what came out, beside the [`machine`] that it came from. The servers and the client are testkit's.
//!
//! **Invariant:** no crate depends on this one except as a dev-dependency; what is measured is the built binary.

pub mod cliffs;
pub mod exchange;
pub mod fill;
pub mod load;
pub mod machine;
pub mod report;
