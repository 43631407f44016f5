//! Messages to the service manager: the process id in a file (`pidfile`), and systemd's notifications
//! (`supervised`).

use super::clock::Clock;
use super::ticker::Ticker;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};
use strand_engine::{Config, Engine};

/// The messages to the service manager. Dropping this value removes the `pidfile`.
pub struct Manager {
    pid_file: Option<PathBuf>,
    is_supervised: bool,
}

impl Manager {
    /// Writes the `pidfile`, if a path is configured. A failure is logged and does not stop the start, as in
    /// redis-server.
    pub fn new(config: &Config) -> Manager {
        let path = config.pidfile();
        let write = |path: &String| match fs::write(path, format!("{}\n", std::process::id())) {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!("cannot write the process id to {path} (pidfile): {e}");
                false
            }
        };
        // Keep the absolute path, because the working folder may have changed when the file is removed.
        let pid_file = Some(path).filter(|path| !path.is_empty() && write(path));
        let pid_file = pid_file.and_then(|path| std::path::absolute(path).ok());
        Manager { pid_file, is_supervised: is_supervised(&config.supervised()) }
    }
    /// Reports that the server takes connections.
    pub fn ready(&self) {
        self.send("STATUS=Ready to accept connections\nREADY=1\n");
    }
    /// Reports that the server begins to stop.
    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }
    fn send(&self, state: &str) {
        if self.is_supervised
            && let Err(e) = notify(state)
        {
            tracing::warn!("cannot notify systemd: {e}");
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Some(path) = &self.pid_file {
            // Ignore an error, because another program may have removed the file.
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts the messages to systemd's watchdog. Two messages are sent within the watchdog's time, unless a worker has
/// been in one turn for that long. `None` without a watchdog.
///
/// # Errors
/// When the system gives no thread.
pub fn watchdog(engine: Arc<Engine>, clock: Clock) -> io::Result<Option<Ticker>> {
    let waits_us = env::var("WATCHDOG_USEC").ok().and_then(|us| us.parse::<u64>().ok()).filter(|us| *us > 0);
    let is_ours = env::var("WATCHDOG_PID").map_or(true, |pid| pid.parse() == Ok(std::process::id()));
    let Some(waits_us) = waits_us.filter(|_| is_ours && is_supervised(&engine.config().supervised())) else {
        return Ok(None);
    };
    Ticker::start("watchdog", move || {
        match engine.longest_turn_us(clock.now()) < waits_us {
            true => {
                if let Err(e) = notify("WATCHDOG=1\n") {
                    tracing::warn!("cannot notify systemd's watchdog: {e}");
                }
            }
            false => {
                tracing::error!(
                    "a worker is stuck: systemd's watchdog gets no sign of life and may end the process"
                )
            }
        }
        Duration::from_micros(waits_us / 2)
    })
    .map(Some)
}

/// True when there is a service manager, and `supervised` allows messages to it.
fn is_supervised(supervised: &str) -> bool {
    let has_socket = env::var_os("NOTIFY_SOCKET").is_some();
    match supervised {
        "systemd" if !has_socket => {
            tracing::warn!("supervised systemd: NOTIFY_SOCKET is not set, so systemd is not notified");
            false
        }
        "upstart" => {
            tracing::warn!("supervised upstart has no effect: upstart is not supported");
            false
        }
        "systemd" | "auto" => has_socket,
        _ => false,
    }
}

/// Sends one message to systemd's socket: a path or, with `@`, a name in the abstract namespace.
fn notify(state: &str) -> io::Result<()> {
    let name = env::var_os("NOTIFY_SOCKET").ok_or(io::ErrorKind::NotFound)?;
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.send_to_addr(state.as_bytes(), &SocketAddr::from_abstract_name(name)?)?,
        None => socket.send_to(state.as_bytes(), &name)?,
    };
    Ok(())
}
