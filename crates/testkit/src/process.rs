//! [`Server`]: a real server as a child process on a free port of 127.0.0.1. It is ended by its pid when dropped.

use crate::client::Client;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use strand_wire::client::Value;

/// Maximum wait for a new server to answer PING, in milliseconds.
const START_MS_MAX: u64 = 20_000;
/// Maximum number of ports tried, because another program may take a port first.
const START_TRIES_MAX: usize = 10;

/// Which program a [`Server`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Strand's own binary.
    Strand,
    /// Debian's `redis-server`.
    Redis,
}

/// Raises the limit of open files of this process and its children to the hard limit (Debian's soft limit is
/// 1,024). Returns the new limit.
///
/// # Errors
/// Errors of the system.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.current.unwrap_or(u64::MAX))
}

impl Program {
    /// The program's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Program::Strand => "strand",
            Program::Redis => "redis-server",
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The address of the server.
    pub address: SocketAddr,
    /// The program that runs.
    pub kind: Program,
    /// The server's working folder. It is deleted after the server has ended.
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts `strand serve` from `binary` with command-line `options`.
    ///
    /// # Errors
    /// When the server cannot be started or does not reply in time.
    pub fn strand(binary: &Path, options: &[&str], core: Option<usize>) -> io::Result<Server> {
        let cores = core.map(|c| c.to_string());
        Server::start(Program::Strand, binary, &strand_args(options), cores.as_deref(), &[])
    }

    /// Starts `redis-server` without persistence.
    ///
    /// # Errors
    /// When it is not installed or does not reply in time.
    pub fn redis(options: &[&str], core: Option<usize>) -> io::Result<Server> {
        let cores = core.map(|c| c.to_string());
        Server::start(Program::Redis, Path::new("redis-server"), &redis_args(options), cores.as_deref(), &[])
    }

    /// Starts a server of either kind with `program`, a script that runs it.
    ///
    /// # Errors
    /// When the server cannot be started or does not reply in time.
    pub fn started_by(program: &Path, kind: Program, options: &[&str]) -> io::Result<Server> {
        let args = match kind {
            Program::Strand => strand_args(options),
            Program::Redis => redis_args(options),
        };
        Server::start(kind, program, &args, None, &[])
    }

    /// Starts a server of either kind for a measurement. `cores` is a list for `taskset -c`, and `environment` is
    /// added to the environment. `strand` is Strand's binary; redis-server is the installed one.
    ///
    /// # Errors
    /// When the server cannot be started or does not reply in time.
    pub fn measured(
        kind: Program,
        strand: &Path,
        options: &[&str],
        cores: &str,
        environment: &[(&str, &str)],
    ) -> io::Result<Server> {
        let (binary, args) = match kind {
            Program::Strand => (strand, strand_args(options)),
            Program::Redis => (Path::new("redis-server"), redis_args(options)),
        };
        Server::start(kind, binary, &args, Some(cores), environment)
    }

    /// Ends the server with SHUTDOWN, so that its exit handlers run. Returns its log.
    ///
    /// # Errors
    /// When the server does not end in time.
    pub fn shut_down(mut self) -> io::Result<String> {
        self.connect()?.send(&["SHUTDOWN", "NOSAVE"])?;
        let end = Instant::now() + Duration::from_millis(START_MS_MAX);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err(io::Error::other(format!("{} does not end", self.kind.name())));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        std::fs::read_to_string(self.directory.path().join("log"))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection.
    ///
    /// # Errors
    /// When the server does not accept.
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(self.address)
    }

    /// CPU time of the process so far, user and system, all threads.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn cpu(&self) -> io::Result<Duration> {
        let mut total_ns = 0u64;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total_ns += text.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total_ns))
    }

    /// The value of a line of `/proc/PID/status` in kB, such as `VmRSS` or `VmHWM`.
    ///
    /// # Errors
    /// When `/proc` cannot be read or has no such line.
    pub fn status_kb(&self, name: &str) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = text.lines().find_map(|l| l.strip_prefix(name).and_then(|r| r.strip_prefix(':')));
        line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no {name} in /proc status")))
    }

    /// Resets the peak (`VmHWM`) to the currently resident memory.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub fn reset_peak(&self) -> io::Result<()> {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")
    }

    /// Tries several ports, because another program may have taken a port that was free a moment ago.
    fn start(
        kind: Program,
        binary: &Path,
        args: &[String],
        cores: Option<&str>,
        environment: &[(&str, &str)],
    ) -> io::Result<Server> {
        let mut tries = 0..START_TRIES_MAX;
        loop {
            let started = Server::start_at(free_port()?, kind, binary, args, cores, environment);
            let is_lost = started.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse);
            if !is_lost || tries.next().is_none() {
                return started;
            }
        }
    }

    fn start_at(
        port: u16,
        kind: Program,
        binary: &Path,
        args: &[String],
        cores: Option<&str>,
        environment: &[(&str, &str)],
    ) -> io::Result<Server> {
        let directory = tempfile::Builder::new().prefix("strand-testkit-").tempdir()?;
        let binary =
            if binary.components().count() > 1 { binary.canonicalize()? } else { binary.to_path_buf() };
        let mut command = match cores {
            Some(cores) => {
                let mut c = Command::new("taskset");
                c.arg("-c").arg(cores).arg(&binary);
                c
            }
            None => Command::new(&binary),
        };
        command.args(args).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.envs(environment.iter().copied());
        let log = std::fs::File::create_new(directory.path().join("log"))?;
        let child = command
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", binary.display())))?;
        let mut server = Server { child, address: SocketAddr::from(([127, 0, 0, 1], port)), kind, directory };
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> io::Result<()> {
        let end = Instant::now() + Duration::from_millis(START_MS_MAX);
        loop {
            if let Ok(mut c) = self.connect()
                && let Ok(info) = c.call(&["INFO", "server"])
                && is_reply_of(self.pid(), &info)
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                let kind = match log.contains("in use") {
                    true => io::ErrorKind::AddrInUse,
                    false => io::ErrorKind::Other,
                };
                return Err(io::Error::new(
                    kind,
                    format!("{} ended at start ({status}): {log}", self.kind.name()),
                ));
            }
            if Instant::now() > end {
                return Err(io::Error::other(format!("{} did not answer PING in time", self.kind.name())));
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// False when the reply to INFO shows that the port belongs to another process: a server of a concurrent test may
/// have been faster. True also when the server does not show its process, because it wants a password or a right.
fn is_reply_of(pid: u32, info: &Value) -> bool {
    let text = match info {
        Value::Bulk(text) | Value::Verbatim(_, text) => text,
        Value::Error(text) => return text.starts_with(b"NOAUTH ") || text.starts_with(b"NOPERM "),
        _ => return false,
    };
    let server_pid =
        text.split(|b| *b == b'\n').find_map(|line| line.trim_ascii_end().strip_prefix(b"process_id:"));
    server_pid == Some(pid.to_string().as_bytes())
}

fn strand_args(options: &[&str]) -> Vec<String> {
    // Enable HTTP and snapshots only on request, because servers that run side by side would compete for the port and
    // the file.
    ["serve", "--http-port", "0", "--save", ""].iter().chain(options).map(|s| s.to_string()).collect()
}

fn redis_args(options: &[&str]) -> Vec<String> {
    let alone = ["--save", "", "--appendonly", "no", "--daemonize", "no", "--enable-debug-command", "yes"];
    alone.iter().chain(options).map(|s| s.to_string()).collect()
}

/// The ports of [`free_port`]: below those that Linux gives to clients, so that no connection takes the port meanwhile.
const FREE_PORTS: std::ops::Range<u16> = 16_000..32_000;
/// Number of ports that [`free_port`] tries.
const FREE_PORT_TRIES: usize = 1_000;

/// A random port of 127.0.0.1 that was free a moment ago.
///
/// # Errors
/// When no free port was found.
pub fn free_port() -> io::Result<u16> {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = std::iter::repeat_with(|| fastrand::u16(FREE_PORTS)).take(FREE_PORT_TRIES);
    ports.find(is_free).ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_at_the_port_is_recognised() {
        let info = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        assert!(is_reply_of(42, &info("# Server\r\nprocess_id:42\r\nuptime:1\r\n")));
        assert!(!is_reply_of(42, &info("# Server\r\nprocess_id:421\r\n")));
        assert!(!is_reply_of(42, &info("")));
        assert!(!is_reply_of(42, &Value::Error(b"ERR unknown command 'INFO'".to_vec())));
        assert!(is_reply_of(42, &Value::Error(b"NOAUTH Authentication required.".to_vec())));
    }

    #[test]
    fn a_lost_port_is_recognised() {
        let first = Server::redis(&[], None).expect("redis-server is installed");
        let (kind, binary) = (Program::Redis, Path::new("redis-server"));
        let port = first.address.port();
        let second = Server::start_at(port, kind, binary, &redis_args(&[]), None, &[]);
        assert_eq!(second.expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
        assert!(first.connect().and_then(|mut c| c.call(&["PING"])).is_ok());
    }
}
