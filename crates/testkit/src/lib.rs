//! What the tests and the benchmarks share: real servers as child processes, a blocking client, the differential runner and
//! the checker of concurrent histories.
//!
//! [`process::Server`] is a `strand` or `redis-server` of our own on a free port; [`client::Client`] speaks RESP to it;
//! [`differential`] sends the commands of [`generate`] and of the corpus to both and compares the replies; [`hostile`] has
//! requests that mean harm; [`linearizability`]
//! judges what concurrent clients saw.
//!
//! **Invariant:** no crate depends on this one except as a dev-dependency; nothing here mocks a server.

pub mod client;
pub mod compare;
pub mod differential;
pub mod generate;
pub mod hostile;
pub mod linearizability;
pub mod process;
pub mod quoting;
pub mod sequences;
pub mod shrink;
