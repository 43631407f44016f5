//! The log: lines to the standard error or a file, at redis-server's levels, changeable while the server runs.

use std::fs::OpenOptions;
use std::io;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the level of the log.
#[derive(Clone)]
pub struct LogLevel(reload::Handle<LevelFilter, Registry>);

impl LogLevel {
    /// Takes a `loglevel` by its name.
    pub fn set(&self, name: &str) {
        // It fails only when the log is gone.
        let _ = self.0.modify(|filter| *filter = level(name));
    }
}

/// Starts the log at `loglevel`, to `logfile` (appended to; empty: the standard error).
///
/// # Errors
/// When the file cannot be opened.
pub fn start(loglevel: &str, logfile: &str) -> io::Result<LogLevel> {
    let writer = match logfile {
        "" => BoxMakeWriter::new(io::stderr),
        path => BoxMakeWriter::new(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)),
    };
    let (filter, handle) = reload::Layer::new(level(loglevel));
    let lines = fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
    // A second log in one process (tests) keeps the first.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Ok(LogLevel(handle))
}

/// Sends panics to the log, with where they happened; the text of a panic is ours, never a client's data.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        tracing::error!("panic in thread {}: {panic}", thread.name().unwrap_or("unnamed"));
    }));
}

fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}
