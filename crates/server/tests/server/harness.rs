//! A real `strand serve` on a free port, and connections that send raw bytes. Every wait has a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use strand_testkit::generate::Generator;

/// Maximum wait for a reply, in milliseconds. A bundle of a debug build takes up to 29 s beside six programs that never
/// sleep, on two cores.
pub const REPLY_MS_MAX: u64 = 60_000;
/// Maximum wait for the end of a process, in milliseconds.
const END_MS_MAX: u64 = 20_000;

pub const STRAND: &str = env!("CARGO_BIN_EXE_strand");

/// The server's binary: the one built with the tests, or the one named by STRAND_BINARY (an absolute path).
fn binary() -> std::ffi::OsString {
    std::env::var_os("STRAND_BINARY").unwrap_or_else(|| STRAND.into())
}

/// A running server, ended on drop.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    pub folder: Folder,
}

/// Options that turn reports of stuck workers off. On a busy machine a worker looks stuck, and looking up the names
/// in its stack costs a debug build a second and 300 MB, which is more than tests of time and memory allow.
const NO_STACKS: [&str; 2] = ["--watchdog-period", "0"];

impl Server {
    /// Starts `strand serve --port 0 --bind 127.0.0.1` with these options.
    pub fn start(options: &[&str]) -> Server {
        Server::try_start(options).unwrap_or_else(|log| panic!("the server did not start: {log}"))
    }

    /// Does what [`Server::start`] does. The error is the server's log.
    pub fn try_start(options: &[&str]) -> Result<Server, String> {
        // Turn HTTP and snapshots off, unless a test asks for them.
        let mut args = [&["--http-port", "0", "--save", ""], options].concat();
        args.extend(["--port", "0", "--bind", "127.0.0.1"]);
        args.extend(NO_STACKS);
        let driver = io_driver(options);
        args.extend(driver.iter().map(String::as_str));
        Server::try_spawn(Command::new(binary()).arg("serve").args(args), "")
    }

    /// Starts `strand serve` with exactly these arguments, and with `stdin` as its input.
    pub fn start_as(args: &[&str], stdin: &str) -> Server {
        Server::spawn(Command::new(binary()).arg("serve").args(args), stdin)
    }

    /// A server with RESP and a door for each of `ports` (options such as `--pack4-port`), at free ports. Also
    /// returns the addresses of these doors.
    pub fn start_doors(ports: &[&str], options: &[&str]) -> (Server, Vec<SocketAddr>) {
        // Try several times, because another program may take a free port first.
        for _ in 0..20 {
            let free = || strand_testkit::process::free_port().expect("loopback has ports");
            let picked: Vec<u16> = ports.iter().map(|_| free()).collect();
            let port = free().to_string();
            let mut args: Vec<String> = options.iter().map(|o| o.to_string()).collect();
            args.extend(io_driver(options));
            args.extend(["--port", &port].map(str::to_string));
            args.extend(NO_STACKS.map(str::to_string));
            if !options.contains(&"--bind") {
                args.extend(["--bind", "127.0.0.1"].map(str::to_string));
            }
            for (option, port) in ports.iter().zip(&picked) {
                args.extend([option.to_string(), port.to_string()]);
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            match Server::try_spawn(Command::new(binary()).arg("serve").args(args), "") {
                Ok(server) => {
                    return (server, picked.iter().map(|p| SocketAddr::from(([127, 0, 0, 1], *p))).collect());
                }
                Err(log) => assert!(log.contains("in use"), "the server did not start: {log}"),
            }
        }
        panic!("no free ports");
    }

    /// Does what [`Server::start`] does, with a limit of `files` open files.
    pub fn start_limited(files: u64, options: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\"")).arg(STRAND).arg("serve");
        Server::spawn(
            command.args(options).args(["--http-port", "0", "--port", "0", "--bind", "127.0.0.1"]),
            "",
        )
    }

    /// Does what [`Server::start`] does, with this variable in the server's environment.
    pub fn start_with(name: &str, value: &str, options: &[&str]) -> Server {
        Server::start_env(&[(name, value)], options)
    }

    /// Does what [`Server::start`] does, with these variables in the server's environment.
    pub fn start_env(variables: &[(&str, &str)], options: &[&str]) -> Server {
        let mut command = Command::new(STRAND);
        command.arg("serve").args(options).args(["--http-port", "0", "--port", "0", "--bind", "127.0.0.1"]);
        Server::spawn(command.envs(variables.iter().copied()), "")
    }

    fn spawn(command: &mut Command, stdin: &str) -> Server {
        Server::try_spawn(command, stdin).unwrap_or_else(|log| panic!("the server did not start: {log}"))
    }

    /// Starts a server. The error is the server's log.
    fn try_spawn(command: &mut Command, stdin: &str) -> Result<Server, String> {
        let folder = Folder::new();
        let mut child = command
            .current_dir(&folder.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(folder.log())
            .spawn()
            .expect("the built binary starts");
        child.stdin.take().expect("piped").write_all(stdin.as_bytes()).expect("it takes its stdin");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let line =
            out.lines().map_while(Result::ok).find(|l| l.starts_with("Ready to accept connections on "));
        let Some(line) = line else {
            let _ = child.wait();
            return Err(folder.log_text());
        };
        let address =
            line.rsplit(' ').next().and_then(|a| a.parse().ok()).expect("the line ends with an address");
        Ok(Server { child, address, folder })
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).expect("a child's pid");
        rustix::process::kill_process(pid, signal).expect("it lives");
    }

    /// Processor time of all the server's threads.
    pub fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
        let ns = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(ns.sum())
    }

    /// Fails when the idle server uses as much processor time as a thousand PINGs.
    #[track_caller]
    pub fn costs_nothing(&self) {
        // The cheapest of three intervals, because earlier requests may still run in the first.
        let idle = (0..3).map(|_| {
            let before = self.cpu();
            std::thread::sleep(Duration::from_millis(100));
            self.cpu().saturating_sub(before) * 3
        });
        let idle = idle.min().expect("three");
        let before = self.cpu();
        let mut client = self.connect();
        (0..1000).for_each(|_| client.call("PING", "+PONG\r\n"));
        let pings = self.cpu().saturating_sub(before);
        assert!(idle < pings, "{idle:?} of processor time in 300 ms of idleness, {pings:?} for 1,000 PINGs");
    }

    /// A value from `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`.
    pub fn memory(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let line = text.lines().find_map(|l| l.strip_prefix(name)).expect("the kernel names it");
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Waits for the end of the server's process.
    pub fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_millis(END_MS_MAX);
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end: {}", self.folder.log_text());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log: {}", self.folder.log_text());
        }
    }
}

/// Adds the option for the driver of sockets that STRAND_IO_DRIVER names: STRAND_IO_DRIVER=epoll cargo test -p
/// strand-server --test server. Without the variable all tests use io_uring, although most of them have few connections.
fn io_driver(options: &[&str]) -> Vec<String> {
    let driver = std::env::var("STRAND_IO_DRIVER").ok().filter(|driver| !driver.is_empty());
    let driver = driver.unwrap_or_else(|| "io_uring".into());
    if options.contains(&"--io-driver") { Vec::new() } else { vec!["--io-driver".into(), driver] }
}

/// Waits until `what` is true, with the limit of this module.
#[track_caller]
pub fn comes_true(what: impl FnMut() -> bool) {
    assert!(is_true_within(Duration::from_millis(REPLY_MS_MAX), what), "it does not come true");
}

/// Waits until `what` is true. Returns false when that takes longer than `wait`.
pub fn is_true_within(wait: Duration, mut what: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + wait;
    loop {
        if what() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Random commands of the whole table, deterministic for a `seed`.
pub fn generator(seed: u64, now_s: i64) -> Generator {
    Generator::new(strand_engine::TABLE.rows(), seed, now_s)
}

/// Runs `strand` to its end.
pub fn strand(args: &[&str]) -> Output {
    Command::new(STRAND).args(args).stdin(Stdio::null()).output().expect("the built binary starts")
}

/// A temporary folder, removed on drop.
pub struct Folder(
    pub PathBuf,
    #[expect(dead_code, reason = "removes the folder when dropped")] tempfile::TempDir,
);

impl Folder {
    pub fn new() -> Folder {
        let made = tempfile::Builder::new()
            .prefix("strand-server-")
            .tempdir()
            .expect("a folder for temporary files");
        Folder(made.path().to_path_buf(), made)
    }
    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the folder is ours");
        path.display().to_string()
    }
    fn log_path(&self) -> PathBuf {
        self.0.join("log")
    }
    fn log(&self) -> std::fs::File {
        std::fs::File::create(self.log_path()).expect("the folder is ours")
    }
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        Client::of(stream)
    }
    /// A connection to a Unix socket. Its descriptor is in the type of TCP.
    pub fn connect_unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("the server accepts");
        Client::of(OwnedFd::from(stream).into())
    }
    fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        stream.set_write_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        Client { stream, input: Vec::new() }
    }
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes them");
    }
    /// Reads bytes, which must be exactly `expected`.
    #[track_caller]
    pub fn expect(&mut self, expected: &[u8]) {
        let mut got = vec![0; expected.len()];
        let mut have = 0;
        while have < got.len() {
            if !self.input.is_empty() {
                let n = self.input.len().min(got.len() - have);
                got[have..have + n].copy_from_slice(&self.input[..n]);
                self.input.drain(..n);
                have += n;
                continue;
            }
            match self.stream.read(&mut got[have..]) {
                Ok(n) if n > 0 => have += n,
                end => panic!("{end:?} after {:?}, expected {:?}", text(&got[..have]), text(expected)),
            }
        }
        assert!(got == expected, "got {:?}, expected {:?}", text(&got), text(expected));
    }
    /// Sends a command (words separated by spaces) and reads its reply, which must be exactly `expected`.
    #[track_caller]
    pub fn call(&mut self, words: &str, expected: &str) {
        self.send(&command(words));
        self.expect(expected.as_bytes());
    }
    /// Reads one line, without its CR LF.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.try_line().unwrap_or_else(|| panic!("no line after {:?}", text(&self.input)))
    }
    /// Does what [`Client::line`] does. `None` when no line comes.
    pub fn try_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.input.windows(2).position(|w| w == b"\r\n") {
                let line = text(&self.input[..end]);
                self.input.drain(..end + 2);
                return Some(line);
            }
            let mut more = [0; 4096];
            match self.stream.read(&mut more) {
                Ok(n) if n > 0 => self.input.extend_from_slice(&more[..n]),
                _ => return None,
            }
        }
    }
    /// Sends a command and reads `lines` lines of its reply. Returns the last of these lines.
    #[track_caller]
    pub fn line_of(&mut self, words: &str, lines: usize) -> String {
        self.send(&command(words));
        (0..=lines).map(|_| self.line()).last().expect("one at least")
    }
    /// Sends a command and reads its reply, a bulk string.
    #[track_caller]
    pub fn bulk(&mut self, words: &str) -> String {
        self.send(&command(words));
        let head = self.line();
        let kind = &head[..1];
        assert!(kind == "$" || kind == "=", "{head}");
        let mut body = vec![0; head[1..].parse::<usize>().expect("a length") + 2];
        let held = self.input.len().min(body.len());
        body[..held].copy_from_slice(&self.input[..held]);
        self.input.drain(..held);
        self.stream.read_exact(&mut body[held..]).expect("the body follows");
        body.truncate(body.len() - 2);
        String::from_utf8_lossy(&body).into_owned()
    }
    /// Reads until the end of the stream, which must come.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let mut rest = std::mem::take(&mut self.input);
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "more came: {:?}", text(&rest)),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }
}

/// A multibulk request of the words in `words`.
pub fn command(words: &str) -> Vec<u8> {
    let words: Vec<&str> = words.split(' ').collect();
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|w| out.push_str(&format!("${}\r\n{w}\r\n", w.len())));
    out.into_bytes()
}

/// A large value of `len` bytes, a multiple of 64. Each 64 bytes begin with a number of their own, so a test notices
/// lost, duplicated and moved bytes. A debug build takes 3.5 s to make 64 MB with a number for each four bytes.
pub fn numbered(len: usize) -> Vec<u8> {
    let mut value: Vec<u8> = (0..64).collect::<Vec<u8>>().repeat(len / 64);
    for (i, line) in (0u32..).zip(value.chunks_exact_mut(64)) {
        line[..4].copy_from_slice(&i.wrapping_mul(0x9E37_79B1).to_le_bytes());
    }
    value
}

/// The beginning of `bytes`, for messages.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned()
}
