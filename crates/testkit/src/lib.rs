//! Shared by tests and benchmarks: real servers as child processes, a blocking client, the differential runner, and
//! the checker of concurrent histories.
//!
//! [`process::Server`] runs `strand` or `redis-server` on a free port, and [`client::Client`] is its RESP client.
//! [`differential`] sends the commands of [`generate`] and of the corpus to both servers and compares the replies.
//! [`expiring`] generates commands on data that expires all the time, and [`dataset`] reads what a server has.
//! [`hostile`] has malicious requests. [`linearizability`] checks the histories of concurrent clients.
//!
//! **Invariant:** other crates use this one only as a dev-dependency, and nothing here mocks a server.

pub mod client;
pub mod compare;
pub mod dataset;
pub mod differential;
pub mod expiring;
pub mod generate;
pub mod hostile;
pub mod linearizability;
pub mod process;
pub mod quoting;
pub mod sequences;
pub mod shrink;

/// The number in the environment variable `name`, or `default` when the variable is not there or has no number. Tests
/// are made longer by such variables, and repeated with a seed.
pub fn env_number<N: std::str::FromStr>(name: &str, default: N) -> N {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
