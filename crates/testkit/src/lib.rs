//! What the tests and benchmarks share: real servers as child processes, a blocking client, the differential runner,
//! and the load generator behind `make versus` and `make cliffs`.
//!
//! [`process::Server`] is a `strand` or `redis-server` of our own on a free port; [`client::Client`] speaks RESP to it;
//! [`differential`] sends the same commands to both and compares the replies; [`fill`] makes data, [`load`] measures on
//! it, [`report`] prints what came out.
//!
//! **Invariant:** no crate depends on this one except as a dev-dependency; nothing here mocks a server.

pub mod client;
pub mod cliffs;
pub mod compare;
pub mod differential;
pub mod fill;
pub mod generate;
pub mod linearizability;
pub mod load;
pub mod machine;
pub mod process;
pub mod quoting;
pub mod report;
