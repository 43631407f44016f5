//! [`spawn`]: starts a thread. Its error names the thread, and says what helps.

use rustix::io::Errno;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts `work` on a thread with this name.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_by(Builder::new(), name, work)
}

/// Does what [`spawn`] does, with the stack of `builder`.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn_by<T: Send + 'static>(
    builder: Builder,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let spawned = builder.name(name.into()).spawn(work);
    spawned.map_err(|error| io::Error::new(error.kind(), ThreadError { name: name.into(), error }))
}

/// A thread cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("the thread {name} cannot be started: {error}{}", advice(.error))]
struct ThreadError {
    name: String,
    error: io::Error,
}

/// What helps against the refusal of a thread.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => {
            ". Raise the limit of processes and threads (`ulimit -u`, TasksMax and LimitNPROC of a systemd unit, pids.max of \
             the control group)"
        }
        Some(Errno::NOMEM) => ". There is no memory for the thread's stack",
        _ => "",
    }
}
