//! [`Fake`]: a server with the commands that the importer uses. Tests can read and set its state and inject faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use strand_chain::Chain;
use strand_import::{ImportError, ImportOptions, Silent, Summary};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};
use strand_wire::resp::{Decoded, Decoder, RequestLimits};

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Text,
}

/// The server's data, and the faults that it injects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub keys: BTreeMap<Vec<u8>, Stored>,
    pub versions: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub indexes: BTreeSet<Vec<u8>>,
    /// The names of the executed commands.
    pub executed: Vec<String>,
    /// The arguments of the reports, in the order in which they arrived.
    pub reports: Vec<Vec<String>>,
    /// The names of the published versions.
    pub published: Vec<String>,
    /// The number of the command at which the server closes the connection: before the command is executed, or with
    /// `cut_after_executing` after it and without a reply.
    pub cut_at: Option<usize>,
    pub cut_after_executing: bool,
    /// Command name and error text: the server refuses each such command. With a space and a word after the name, it
    /// refuses only commands in which an argument begins with the word.
    pub refuse: Option<(&'static str, &'static str)>,
    pub password: Option<&'static str>,
    /// The server refuses the container with this number among those that it gets.
    pub refused_container: Option<usize>,
    /// Number of containers that the server has got.
    pub containers: usize,
    /// At the command with this number, the data is replaced by that of another state: a flush or a swap.
    pub replaced_at: Option<(usize, Box<State>)>,
    /// Number of flushes and swaps.
    pub flushes: i64,
}

/// The states that interrupted runs leave on a server with the state `before`: each run loses the connection before
/// one of its commands. The last state is that of a whole run. A connection that is lost after a command leaves the
/// state of one that is lost before the next command. A transaction executes many commands at once, so no interruption
/// can separate them.
pub fn interrupted<R>(before: &State, import: impl Fn(&Fake) -> Result<R, ImportError>) -> Vec<State> {
    let run = |cut_at: Option<usize>| {
        let fake = Fake::with(State { executed: Vec::new(), cut_at, ..before.clone() });
        let outcome = import(&fake);
        let state = State { cut_at: None, ..fake.state().clone() };
        (outcome, state)
    };
    let (outcome, whole) = run(None);
    assert!(outcome.is_ok(), "nothing interrupts this run");
    let mut states = Vec::new();
    for cut in 0..whole.executed.len() {
        match run(Some(cut)) {
            (Ok(_), _) => {}
            (Err(ImportError::Lost { .. }), state) => states.push(state),
            (Err(error), _) => panic!("cut at {cut}: {error}"),
        }
    }
    states.push(whole);
    states
}

/// A server in this process, on its own port until it is dropped. Tests start thousands of them, so that ports which
/// are never given back would be taken away from the servers of other tests.
pub struct Fake {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    is_ended: Arc<AtomicBool>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        // The thread waits in accept().
        let _ = TcpStream::connect(self.address);
    }
}

impl Fake {
    pub fn start() -> Fake {
        Fake::with(State::default())
    }

    pub fn with(state: State) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(state));
        let is_ended = Arc::new(AtomicBool::new(false));
        let (shared, ends) = (state.clone(), is_ended.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                // The real server sets TCP_NODELAY, too. Otherwise a second small reply waits 40 ms for the first one's
                // delayed ACK.
                stream.set_nodelay(true).expect("a TCP socket");
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Fake { address, state, is_ended }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds it")
    }

    pub fn options(&self, source: &std::path::Path) -> ImportOptions {
        ImportOptions { address: self.address.to_string(), ..ImportOptions::new(source, "d") }
    }

    pub fn try_import(&self, source: &std::path::Path) -> Result<Summary, ImportError> {
        strand_import::run(&self.options(source), &mut Silent)
    }

    #[track_caller]
    pub fn import(&self, source: &std::path::Path) -> Summary {
        self.try_import(source).expect("nothing goes wrong")
    }

    /// The ids of all documents.
    pub fn ids(&self) -> Vec<String> {
        self.state().keys.keys().map(|k| String::from_utf8_lossy(&k[2..]).into_owned()).collect()
    }

    /// One field of a document.
    pub fn field(&self, id: &str, field: &str) -> Option<String> {
        match self.state().keys.get(format!("d:{id}").as_bytes()) {
            Some(Stored::Hash(hash)) => {
                hash.get(field.as_bytes()).map(|v| String::from_utf8_lossy(v).into_owned())
            }
            _ => None,
        }
    }

    /// The writing commands that were executed since the last call of this method.
    pub fn writes(&self) -> Vec<String> {
        let executed = std::mem::take(&mut self.state().executed);
        let questions =
            ["IMPORT.VERSION GET", "IMPORT.VERSION LIST", "FT._LIST", "FT.INFO", "EXISTS", "HGETALL", "TYPE"];
        executed.into_iter().filter(|c| !questions.contains(&c.as_str())).collect()
    }
}

/// The counts `[added, updated, removed, unchanged, failed]`, and the number of opened documents.
pub fn counts(summary: &Summary) -> ([u64; 5], u64) {
    let Summary { added, updated, removed, unchanged, failed, opened, .. } = summary;
    ([*added, *updated, *removed, *unchanged, *failed], *opened)
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("not zero");
    let (mut decoder, mut input, mut argv) = (Decoder::new(RequestLimits::FULL), Chain::new(), Argv::new());
    let mut session = Session { allowed: state.lock().expect("unpoisoned").password.is_none(), queue: None };
    loop {
        let mut output = Chain::new();
        loop {
            match decoder.decode(&mut input, &mut argv) {
                Ok(Decoded::Command) => {}
                Ok(Decoded::NeedsBytes) => break,
                Ok(Decoded::LimitReached) => {}
                Err(error) => panic!("the importer sent nonsense: {error}"),
            }
            let mut state = state.lock().expect("unpoisoned");
            let cut = state.cut_at == Some(state.executed.len());
            if cut && !state.cut_after_executing {
                return;
            }
            session.take(&mut state, argv.args(), &mut Reply::new(&mut output, Protocol::Resp2));
            if cut {
                return;
            }
            argv.clear();
        }
        let mut bytes = Vec::new();
        output.slices().for_each(|s| bytes.extend_from_slice(s));
        if stream.write_all(&bytes).is_err() {
            return;
        }
        let mut block = [0; 16 * 1024];
        // A large argument is read directly into its buffer.
        let got = match decoder.body_spare() {
            Some(spare) if input.is_empty() => {
                let got = stream.read(spare).unwrap_or(0);
                decoder.body_filled(got);
                got
            }
            _ => {
                let got = stream.read(&mut block).unwrap_or(0);
                input.push_slice(&block[..got]);
                got
            }
        };
        if got == 0 {
            return;
        }
    }
}

/// The state of one connection.
struct Session {
    allowed: bool,
    /// The commands queued since MULTI.
    queue: Option<Vec<Vec<Vec<u8>>>>,
}

impl Session {
    fn take(&mut self, state: &mut State, args: Args<'_>, reply: &mut Reply<'_>) {
        let name = args.at(0).to_ascii_uppercase();
        match (&name[..], &mut self.queue) {
            (b"MULTI", None) => {
                self.queue = Some(Vec::new());
                reply.ok();
            }
            (b"EXEC", Some(queue)) => {
                let queue = std::mem::take(queue);
                self.queue = None;
                reply.array(queue.len());
                queue.iter().for_each(|args| {
                    execute(state, Argv::from_slices(args).args(), reply, &mut self.allowed)
                });
            }
            (_, Some(queue)) => {
                queue.push(args.iter().map(<[u8]>::to_vec).collect());
                reply.simple("QUEUED");
            }
            (_, None) => execute(state, args, reply, &mut self.allowed),
        }
    }
}

fn execute(state: &mut State, args: Args<'_>, reply: &mut Reply<'_>, allowed: &mut bool) {
    let name = String::from_utf8_lossy(args.at(0)).to_uppercase();
    let words = if name == "IMPORT.VERSION" { 2 } else { 1 };
    let words: Vec<_> = (0..words).map(|i| String::from_utf8_lossy(args.at(i)).into_owned()).collect();
    if name == "AUTH" {
        *allowed = state.password.is_some_and(|p| args.at(args.len() - 1) == p.as_bytes());
        return if *allowed { reply.ok() } else { reply.error("WRONGPASS invalid username-password pair") };
    }
    if !*allowed {
        return reply.error("NOAUTH Authentication required.");
    }
    if words.last().is_some_and(|word| word == "REPORT") {
        let report = args.skip(3).iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        state.reports.push(report);
    }
    if words.last().is_some_and(|word| ["HOLD", "REPORT", "KEEP"].contains(&word.as_str())) {
        return reply.int(1 + state.flushes);
    }
    if words.last().is_some_and(|word| word == "PUBLISH") {
        state.published.push(String::from_utf8_lossy(args.at(3)).into_owned());
        return reply.bulk(&[args.at(2), b"@1"].concat());
    }
    if let Some((_, other)) = state.replaced_at.take_if(|(at, _)| *at == state.executed.len()) {
        (state.keys, state.versions) = (other.keys, other.versions);
        state.flushes += 1;
    }
    state.executed.push(words.join(" "));
    let is_refused = |(refused, _): &(&str, &str)| match refused.split_once(' ') {
        Some((refused, key)) => name == refused && args.iter().any(|arg| arg.starts_with(key.as_bytes())),
        None => *refused == name,
    };
    if let Some((_, text)) = state.refuse.filter(is_refused) {
        return reply.error(text);
    }
    match name.as_str() {
        "HSET" | "HDEL" => match state
            .keys
            .entry(args.at(1).to_vec())
            .or_insert(Stored::Hash(BTreeMap::new()))
        {
            Stored::Text => reply.error("WRONGTYPE Operation against a key holding the wrong kind of value"),
            Stored::Hash(hash) if name == "HSET" => {
                let pairs =
                    (2..args.len()).step_by(2).map(|i| (args.at(i).to_vec(), args.at(i + 1).to_vec()));
                reply.int(pairs.filter(|(k, v)| hash.insert(k.clone(), v.clone()).is_none()).count() as i64);
            }
            Stored::Hash(hash) => {
                reply.int(args.skip(2).iter().filter(|f| hash.remove(*f).is_some()).count() as i64);
            }
        },
        "HREPLACE" => {
            let nx = args.at(2) == b"NX";
            let first = if nx { 4 } else { 3 };
            if nx && state.keys.contains_key(args.at(1)) {
                return reply.null();
            }
            let pairs = (first..args.len()).step_by(2);
            let hash = pairs.map(|i| (args.at(i).to_vec(), args.at(i + 1).to_vec())).collect();
            let before = state.keys.insert(args.at(1).to_vec(), Stored::Hash(hash));
            reply.int(i64::from(before.is_some()));
        }
        "HGETALL" => match state.keys.get(args.at(1)) {
            Some(Stored::Text) => {
                reply.error("WRONGTYPE Operation against a key holding the wrong kind of value")
            }
            Some(Stored::Hash(hash)) => {
                reply.array(2 * hash.len());
                hash.iter().flat_map(|(name, value)| [name, value]).for_each(|part| reply.bulk(part));
            }
            None => reply.array(0),
        },
        "COPY" => match state.keys.get(args.at(1)).cloned() {
            Some(copied) if args.get(3) == Some(b"REPLACE") || !state.keys.contains_key(args.at(2)) => {
                state.keys.insert(args.at(2).to_vec(), copied);
                reply.int(1);
            }
            _ => reply.int(0),
        },
        "EXISTS" => reply.int(args.skip(1).iter().filter(|k| state.keys.contains_key(*k)).count() as i64),
        "UNLINK" => {
            reply.int(args.skip(1).iter().filter(|key| state.keys.remove(*key).is_some()).count() as i64);
        }
        "TYPE" => reply.simple(match state.keys.get(args.at(1)) {
            None => "none",
            Some(Stored::Text) => "string",
            Some(Stored::Hash(_)) => "hash",
        }),
        "IMPORT.VERSION" => version(state, args, reply),
        // The fake server has no other import.
        "IMPORT.STATUS" => reply.array(0),
        "FT._LIST" => {
            reply.array(state.indexes.len());
            state.indexes.iter().for_each(|name| reply.bulk(name));
        }
        "FT.CREATE" => {
            assert_eq!(args.at(6), [args.at(1), b":"].concat());
            state.indexes.insert(args.at(1).to_vec());
            reply.ok();
        }
        "SELECT" => reply.ok(),
        other => reply.error(&format!("ERR unknown command '{other}'")),
    }
}

fn version(state: &mut State, args: Args<'_>, reply: &mut Reply<'_>) {
    if args.at(1) == b"DATASETS" {
        reply.array(state.versions.len());
        return state.versions.keys().for_each(|name| reply.bulk(name));
    }
    let dataset = state.versions.entry(args.at(2).to_vec()).or_default();
    match args.at(1) {
        b"GET" => match dataset.get(args.at(3)) {
            Some(blob) => reply.bulk(blob),
            None => reply.null(),
        },
        b"SET" => {
            state.containers += 1;
            let is_old = args.len() > 6 && args.at(6) != (1 + state.flushes).to_string().as_bytes();
            if is_old || state.refused_container == Some(state.containers) {
                return reply.error("ERR this container is refused");
            }
            dataset.insert(args.at(3).to_vec(), args.at(4).to_vec());
            reply.ok();
        }
        b"LIST" => {
            reply.array(dataset.len());
            dataset.keys().for_each(|name| reply.bulk(name));
        }
        b"DEL" => reply.int(args.skip(3).iter().filter(|p| dataset.remove(*p).is_some()).count() as i64),
        other => panic!("IMPORT.VERSION {other:?}"),
    }
    state.versions.retain(|_, containers| !containers.is_empty());
}
