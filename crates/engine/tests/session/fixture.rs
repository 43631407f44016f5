//! A server without sockets: an engine, a clock that only the test moves, and peers that send and receive bytes.

#![allow(dead_code)] // Each test binary uses its part of it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use strand_chain::Chain;
use strand_commands::call::{LaneCall, RunsOn, ServiceOutcome, ServiceRun};
use strand_diag::history::Figure;
use strand_engine::config::Opt;
use strand_engine::*;
use strand_keyspace::Keyspace;
use strand_wire::client::encode_command;

/// What the engine asked the fixture's host for.
#[derive(Debug)]
pub enum Asked {
    Shutdown(ShutdownRequest),
    ConfigChanged(String),
    Rewritten(String),
    ClientGone(u64),
}

/// Where the clock starts.
const START: Now = Now { unix_us: 1_700_000_000_123_456, mono_us: 5_000_000 };

/// Number of workers. The connections are spread over them.
const WORKERS: usize = 3;

/// A wait without a timeout is checked again after this time.
const WAIT_US_MAX: u64 = 1_000_000;
/// Time that the host takes to read a bad certificate, if nobody else reads one meanwhile.
const SLOW_RELOAD_MS: usize = 300;

pub struct TestHost {
    /// Number of bytes that the allocator reports as given out.
    used_bytes: Arc<AtomicU64>,
    /// The time on the clock.
    mono_us: AtomicU64,
    /// How far the clock moves each time it is read.
    step_us: Arc<AtomicU64>,
    asked: parking_lot::Mutex<mpsc::Sender<Asked>>,
    acl_files: Arc<parking_lot::Mutex<BTreeMap<String, Vec<u8>>>>,
    reloads: Arc<AtomicUsize>,
    on_clock: OnClock,
    folder: Option<Arc<dyn Folder>>,
    figures: Arc<parking_lot::Mutex<Vec<Figure>>>,
    purges: Arc<AtomicUsize>,
    shrinks: Arc<AtomicUsize>,
    system_bytes: Arc<AtomicU64>,
    died: Arc<parking_lot::Mutex<Option<String>>>,
    logged: Arc<parking_lot::Mutex<Vec<String>>>,
}

/// What runs when the server reads the clock next.
pub type OnClock = Arc<parking_lot::Mutex<Option<Box<dyn FnOnce() + Send>>>>;

impl Host for TestHost {
    fn mono_us(&self) -> u64 {
        let happens = self.on_clock.lock().take();
        happens.into_iter().for_each(|happens| happens());
        self.mono_us.fetch_add(self.step_us.load(Relaxed), Relaxed)
    }
    fn now(&self) -> Now {
        let mono_us = self.mono_us();
        Now { unix_us: 1_700_000_000_000_000 + mono_us as i64, mono_us }
    }
    fn die(&self, text: &str) {
        self.died.lock().get_or_insert(text.into());
    }
    fn shutdown(&self, request: ShutdownRequest) {
        let _ = self.asked.lock().send(Asked::Shutdown(request));
    }
    fn config_changed(&self, name: &str) {
        let _ = self.asked.lock().send(Asked::ConfigChanged(name.into()));
    }
    // This method may block, because it runs on a helper thread.
    #[allow(clippy::disallowed_methods)]
    fn reload_tls(&self, config: &Config) -> io::Result<()> {
        let is_bad = config.text(Opt::TlsCertFile) == b"bad";
        self.reloads.fetch_add(1, Relaxed);
        for _ in 0..SLOW_RELOAD_MS {
            if !is_bad || self.reloads.load(Relaxed) > 1 {
                break;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        if is_bad { Err(io::Error::other("no")) } else { Ok(()) }
    }
    fn random_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(0xa5);
        Ok(())
    }
}

impl HostServices for TestHost {
    /// The text of the request says on which thread it must be searched.
    fn run_service(&self, _run: ServiceRun, call: &mut LaneCall<'_>) -> ServiceOutcome {
        let args = call.args;
        let wants = match args.get(2) {
            Some(b"lane") if call.runs_on == RunsOn::Worker => ServiceOutcome::Lane,
            Some(b"hard") if call.runs_on != RunsOn::Hard => ServiceOutcome::Hard,
            _ => ServiceOutcome::Done,
        };
        if wants != ServiceOutcome::Done {
            return wants;
        }
        let may = |key: &[u8]| match (call.may_read(key), call.may_write(key)) {
            (true, true) => "rw",
            (true, false) => "r",
            (false, true) => "w",
            (false, false) => "",
        };
        let keys: Vec<String> = (3..args.len())
            .map(|i| format!("{}={}", String::from_utf8_lossy(args.at(i)), may(args.at(i))))
            .collect();
        let keys = if keys.is_empty() { String::new() } else { format!(": {}", keys.join(" ")) };
        let place = if args.is(0, "RX.MATCH") { format!(" {:?}", call.runs_on) } else { String::new() };
        let name = String::from_utf8_lossy(args.at(0));
        call.reply.simple(&format!("{name} ran{place}{keys}"));
        wants
    }
    fn shrink_caches(&self) {
        self.shrinks.fetch_add(1, Relaxed);
    }
    fn client_gone(&self, client: u64) {
        let _ = self.asked.lock().send(Asked::ClientGone(client));
    }
    fn info_search(&self) -> Vec<(String, String)> {
        vec![("search_indexes".into(), "0".into())]
    }
}

impl HostFiles for TestHost {
    fn open_folder(&self, _name: &str, _file: &str) -> std::io::Result<Option<Arc<dyn Folder>>> {
        Ok(self.folder.clone())
    }
    fn change_dir(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        match path {
            b"/nosuch" => Err(io::Error::from_raw_os_error(2)),
            path => Ok(path.into()),
        }
    }
    fn read_acl_file(&self, path: &str) -> io::Result<Vec<u8>> {
        self.acl_files.lock().get(path).cloned().ok_or_else(|| io::Error::from_raw_os_error(2))
    }
    fn write_acl_file(&self, path: &str, text: &dyn Fn() -> Vec<u8>) -> io::Result<()> {
        if path.contains("readonly") {
            return Err(io::Error::other("no"));
        }
        self.acl_files.lock().insert(path.into(), text());
        Ok(())
    }
    fn scratch_file(&self, write: &mut WriteFile<'_>) -> io::Result<Arc<dyn ScratchFile>> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        Ok(Arc::new(InMemory(bytes)))
    }
    fn rewrite_config(&self, edit: &dyn Fn(&str) -> String) -> io::Result<()> {
        let _ = self.asked.lock().send(Asked::Rewritten(edit("# mine\n")));
        Ok(())
    }
}

/// A file of a test.
struct InMemory(Vec<u8>);

impl ScratchFile for InMemory {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, target: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = &self.0[at as usize..];
        let n = rest.len().min(target.len());
        target[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

impl HostLog for TestHost {
    fn log(&self, text: &str) {
        self.logged.lock().push(text.into());
    }
    fn warn(&self, text: &str) {
        self.logged.lock().push(format!("warning: {text}"));
    }
}

impl HostThreads for TestHost {
    fn worker_place(&self, _worker: usize, with_stack: bool) -> String {
        if with_stack { "; its stack" } else { "; no stack" }.into()
    }
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        match name {
            // Do not start these threads: the test runs their turns.
            "aof" | "aof-sync" | "replica-feed" | "replica-link" => {}
            // Start the threads that load, because the reading thread waits for them.
            name if name.starts_with("load-") => _ = thread(work),
            _ => work(),
        }
        Ok(())
    }
    fn signal(&self) -> Box<dyn Signal> {
        Box::<Changes>::default()
    }
    fn reclaim(&self, garbage: Box<dyn Send>) {
        drop(garbage);
    }
}

impl HostFigures for TestHost {
    fn memory(&self) -> MemoryFacts {
        MemoryFacts {
            used_bytes: self.used_bytes.load(Relaxed),
            active_bytes: 2 << 20,
            rss_bytes: 3 << 20,
            system_bytes: self.system_bytes.load(Relaxed),
            ..MemoryFacts::default()
        }
    }
    fn system_figures(&self) -> Vec<Figure> {
        self.figures.lock().clone()
    }
    fn memory_figures(&self) -> Vec<Figure> {
        self.figures.lock().clone()
    }
    fn purge_memory(&self) {
        self.purges.fetch_add(1, Relaxed);
    }
    fn cpu(&self) -> CpuFacts {
        CpuFacts { system_us: 1_000_002, user_us: 3 }
    }
}

// The engine only waits at the host's [`Signal`]. Here the test is the host.
#[allow(clippy::disallowed_types)]
/// Lets threads of a test wait for each other.
#[derive(Default)]
struct Changes {
    count: parking_lot::Mutex<u64>,
    changed: parking_lot::Condvar,
}

impl Signal for Changes {
    fn changes(&self) -> u64 {
        *self.count.lock()
    }
    fn wait(&self, seen: u64, at_most_us: Option<u64>) -> bool {
        let mut count = self.count.lock();
        let at_most = std::time::Duration::from_micros(at_most_us.unwrap_or(WAIT_US_MAX));
        self.changed.wait_while_for(&mut count, |count| *count == seen, at_most);
        *count != seen || at_most_us.is_none()
    }
    fn notify(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }
}

/// Counts how often a session is woken.
#[derive(Default)]
pub struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn queue(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Wakes {
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

pub struct Server {
    pub engine: Arc<Engine>,
    pub now: Now,
    pub asked: mpsc::Receiver<Asked>,
    /// Bytes that the allocator reports as given out. The test sets them.
    pub used_bytes: Arc<AtomicU64>,
    /// Time by which the clock moves at each timed command.
    pub step_us: Arc<AtomicU64>,
    pub acl_files: Arc<parking_lot::Mutex<BTreeMap<String, Vec<u8>>>>,
    /// How often the engine asked the host to read certificates.
    pub reloads: Arc<AtomicUsize>,
    /// What runs during the next timed command, before its handler.
    pub on_clock: OnClock,
    /// Figures of the system for the history.
    pub figures: Arc<parking_lot::Mutex<Vec<Figure>>>,
    /// How often the engine asked the host to return free pages.
    pub purges: Arc<AtomicUsize>,
    /// How often the engine asked the host to drop its caches.
    pub shrinks: Arc<AtomicUsize>,
    /// Memory that the machine reports. 0 means unknown.
    pub system_bytes: Arc<AtomicU64>,
    /// The last message of an engine that ended its process.
    pub died: Arc<parking_lot::Mutex<Option<String>>>,
    /// The lines of the log.
    pub logged: Arc<parking_lot::Mutex<Vec<String>>>,
    connections: usize,
}

impl Server {
    pub fn new() -> Server {
        Server::with("")
    }
    /// A server with this configuration text.
    pub fn with(text: &str) -> Server {
        Server::with_acl_file(text, "").expect("the users are right")
    }
    /// A server with this configuration text, and with `acl` as the text of the ACL file `users.acl`.
    pub fn with_acl_file(text: &str, acl: &str) -> Result<Server, String> {
        Server::with_folder(text, acl, None)
    }
    /// A server with this configuration text and an append-only file in `folder`, which the server loads.
    pub fn on_disk(text: &str, folder: Arc<dyn Folder>) -> Result<Server, String> {
        Server::on_disk_at(text, folder, START)
    }
    /// Does what [`Server::on_disk`] does, at this time.
    pub fn on_disk_at(text: &str, folder: Arc<dyn Folder>, now: Now) -> Result<Server, String> {
        let mut server = Server::with_folder(&format!("appendonly yes\n{text}"), "", Some(folder))?;
        server.now = now;
        let found = server.engine.find_aof().map_err(|why| why.to_string())?;
        server.engine.begin_loading(found.total_bytes(), server.now);
        server.engine.start_aof(found, server.now).map_err(|why| why.to_string())?;
        Ok(server)
    }
    /// A server with this configuration text, this ACL file, and a folder for an append-only file.
    pub fn with_folder(text: &str, acl: &str, folder: Option<Arc<dyn Folder>>) -> Result<Server, String> {
        let config = Config::new();
        config.load_text(text).unwrap();
        let keyspace = Arc::new(Keyspace::new(config.shards().max(8), config.databases(), [1, 2, 3, 4]));
        let (send, asked) = mpsc::channel();
        let used_bytes = Arc::new(AtomicU64::new(1 << 20));
        let step_us = Arc::new(AtomicU64::new(0));
        let acl_files = Arc::new(parking_lot::Mutex::new(BTreeMap::from([("users.acl".into(), acl.into())])));
        let reloads = Arc::new(AtomicUsize::new(0));
        let on_clock = OnClock::default();
        let figures = Arc::<parking_lot::Mutex<Vec<Figure>>>::default();
        let shrinks = Arc::<AtomicUsize>::default();
        let (purges, system_bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let died = Arc::<parking_lot::Mutex<Option<String>>>::default();
        let logged = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let host = Arc::new(TestHost {
            asked: parking_lot::Mutex::new(send),
            used_bytes: used_bytes.clone(),
            mono_us: AtomicU64::new(0),
            step_us: step_us.clone(),
            acl_files: acl_files.clone(),
            reloads: reloads.clone(),
            on_clock: on_clock.clone(),
            folder,
            figures: figures.clone(),
            purges: purges.clone(),
            shrinks: shrinks.clone(),
            system_bytes: system_bytes.clone(),
            died: died.clone(),
            logged: logged.clone(),
        });
        let facts = ServerFacts {
            pid: 42,
            config_file: "/tmp/strand.conf".into(),
            workers: WORKERS,
            ..ServerFacts::default()
        };
        let engine = Engine::new(config, keyspace, host, facts, START);
        engine.load_users().map_err(|why| why.to_string())?;
        Ok(Server {
            engine,
            now: START,
            asked,
            used_bytes,
            step_us,
            acl_files,
            reloads,
            on_clock,
            figures,
            purges,
            shrinks,
            system_bytes,
            died,
            logged,
            connections: 0,
        })
    }
    pub fn advance_ms(&mut self, ms: u64) {
        self.now.unix_us += ms as i64 * 1000;
        self.now.mono_us += ms * 1000;
    }
    /// Delivers published messages to the sessions of the subscribers. See [`Peer::hears`].
    pub fn hand_out(&self) {
        (0..WORKERS).for_each(|worker| while self.engine.deliver(worker) == Delivery::More {});
    }
    pub fn try_connect(&mut self, local: bool) -> Result<Peer, String> {
        self.try_connect_by(Framing::Resp, local)
    }
    pub fn try_connect_by(&mut self, framing: Framing, local: bool) -> Result<Peer, String> {
        self.connections += 1;
        let peer = PeerInfo {
            addr: format!("127.0.0.1:{}", 40_000 + self.connections),
            laddr: "127.0.0.1:6379".into(),
            fd: 7 + self.connections as i32,
            worker: self.connections % WORKERS,
            local,
            unix: false,
            framing,
        };
        let wakes = Arc::new(Wakes::default());
        let session = Session::open(&self.engine, peer, wakes.clone(), self.connections as u64, self.now);
        let session = session.map_err(|refusal| text(&bytes(&refusal)))?;
        Ok(Peer {
            session,
            wakes,
            job: None,
            hold_jobs: false,
            hold_output: false,
            ended: None,
            received: Vec::new(),
        })
    }
    pub fn connect(&mut self) -> Peer {
        self.try_connect(true).expect("the server takes it")
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Close,
    Abort,
}

pub struct Peer {
    pub session: Session,
    pub wakes: Arc<Wakes>,
    pub job: Option<Box<LaneJob>>,
    /// Keep lane jobs in `job` instead of running them at once.
    pub hold_jobs: bool,
    /// True when the peer does not read replies.
    pub hold_output: bool,
    pub ended: Option<End>,
    received: Vec<u8>,
}

/// Why `Peer::drive` stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Read,
    Flush,
    Parked,
    Sleep(u64),
    Blocked(Option<u64>),
    Ended,
}

impl Peer {
    /// Gives bytes to the session, as the driver does, at most `piece` at a time.
    pub fn feed(&mut self, mut input: &[u8], piece: usize) {
        while !input.is_empty() {
            let room = self.session.read_target();
            let n = room.len().min(input.len()).min(piece);
            room[..n].copy_from_slice(&input[..n]);
            self.session.received(n);
            input = &input[n..];
        }
    }
    /// Runs the session until it waits for something.
    pub fn drive(&mut self, server: &Server) -> Stop {
        self.drive_at(server.now)
    }
    /// Does what [`Peer::drive`] does, at this time.
    pub fn drive_at(&mut self, now: Now) -> Stop {
        loop {
            let turn = self.session.run(now);
            if !self.hold_output {
                self.take_output(usize::MAX);
            }
            match turn {
                Turn::Read => return Stop::Read,
                Turn::Again => {}
                Turn::Flush if self.session.output_drained() => {}
                Turn::Flush => return Stop::Flush,
                Turn::Lane(job) if self.hold_jobs => {
                    self.job = Some(job);
                    return Stop::Parked;
                }
                Turn::Lane(job) => self.session.lane_done(job.run(now, &|| {})),
                Turn::AwaitWake => return Stop::Parked,
                Turn::Blocked { until_mono_us } => return Stop::Blocked(until_mono_us),
                Turn::Sleep { until_mono_us } => return Stop::Sleep(until_mono_us),
                Turn::Close => {
                    self.ended = Some(End::Close);
                    return Stop::Ended;
                }
                Turn::Abort => {
                    self.ended = Some(End::Abort);
                    return Stop::Ended;
                }
            }
        }
    }
    /// Reads up to `n` bytes of replies.
    pub fn take_output(&mut self, n: usize) {
        let out = self.session.output();
        let all = bytes(out);
        let n = n.min(all.len());
        self.received.extend_from_slice(&all[..n]);
        out.advance(n);
    }
    /// All bytes that the peer has received so far.
    pub fn received_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }
    /// All replies so far, as text with `|` for CRLF.
    pub fn replies(&mut self) -> String {
        text(&std::mem::take(&mut self.received))
    }
    /// Sends bytes, runs, and returns the replies.
    pub fn send(&mut self, server: &Server, input: &[u8]) -> String {
        self.feed(input, usize::MAX);
        self.drive(server);
        self.replies()
    }
    /// Delivers all published messages. Returns what this session received.
    pub fn hears(&mut self, server: &Server) -> String {
        server.hand_out();
        self.drive(server);
        self.replies()
    }
    /// Sends one command, given as a line with Redis's quoting. Returns the reply.
    pub fn run(&mut self, server: &Server, line: &str) -> String {
        self.send(server, &command(line))
    }
    /// Runs lines and compares the replies.
    #[track_caller]
    pub fn script(&mut self, server: &Server, steps: &[(&str, &str)]) {
        for (line, want) in steps {
            assert_eq!(self.run(server, line), *want, "{line}");
        }
    }
}

/// Runs `work` on a thread beside the test.
// The engine has no threads of its own. Here the test is its host.
#[allow(clippy::disallowed_methods)]
pub fn thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(work)
}

/// Encodes a line as a multibulk request.
pub fn command(line: &str) -> Vec<u8> {
    let words = strand_engine::config::text::split_words(line.as_bytes()).expect("quotes are closed");
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(&word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A request of these words, which may have blanks and line ends.
pub fn words(words: &[&str]) -> Vec<u8> {
    let mut request = Vec::new();
    encode_command(&mut request, words);
    request
}

pub fn bytes(chain: &Chain) -> Vec<u8> {
    chain.slices().flatten().copied().collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}
