//! [`Extractor`]: one process for a run. It extracts the run's documents, and it may die of one of them.
//!
//! The run starts the process at the first document that needs it and uses the process again for each further one. A
//! socket pair carries a document there and its fields back. The process has [`ExtractorProgram::memory_bytes`] of
//! memory and [`ExtractorProgram::time`] for a document. The run kills a process that takes longer. After a death a
//! new process takes the document. If that process dies too, the document has failed. Small documents stay in the run's
//! own process: their size bounds the work, and the way through the socket would cost more than the work.
//!
//! [`serve`] is the other end of the socket.

use super::pdf::PROCESS_BYTES as PDF_PROCESS_BYTES;
use super::{Content, DOCUMENT_BYTES_MAX, ExtractError, TIME_MAX};
use crate::fields::Fields;
use crate::memory::{Loan, Memory};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Pages and tables up to this size are extracted in the run's own process.
pub const IN_PLACE_BYTES_MAX: usize = 64 << 10;
/// Maximum memory of the process in bytes. The kernel applies the limit to the address space.
pub const CHILD_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// How much longer than [`TIME_MAX`] the run waits. The process itself gives up at [`TIME_MAX`], and says so.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of bytes of the process's answer to one document.
const ANSWER_BYTES_MAX: u64 = 2 * DOCUMENT_BYTES_MAX;
/// Bytes that are written or read at a time. Between two blocks the run looks at the deadline.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes before a document: its kind (two bytes) and its length.
const REQUEST_HEAD_BYTES: usize = 10;
/// Bytes before an answer: whether all of the document could be read, and the length of the answer.
const ANSWER_HEAD_BYTES: usize = 9;
/// The process gives free memory back at once, because nothing in it needs memory before the next document.
const ALLOCATOR: [(&str, &str); 1] =
    [("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,background_thread:false")];

/// The program that calls [`serve`], and the bounds of its processes.
#[derive(Clone, Debug)]
pub struct ExtractorProgram {
    /// The program.
    pub path: PathBuf,
    /// The arguments of the program.
    pub arguments: Vec<OsString>,
    /// The address space of a process, in bytes.
    pub memory_bytes: u64,
    /// The longest time for one document.
    pub time: Duration,
}

impl ExtractorProgram {
    /// A program with the default bounds.
    pub fn new(path: impl Into<PathBuf>, arguments: impl IntoIterator<Item = OsString>) -> ExtractorProgram {
        ExtractorProgram {
            path: path.into(),
            arguments: arguments.into_iter().collect(),
            memory_bytes: CHILD_MEMORY_BYTES_MAX,
            time: TIME_MAX + GRACE,
        }
    }
}

/// Extracts the documents of a run. Without a program all of them are extracted in this process.
#[derive(Default)]
pub struct Extractor {
    program: Option<ExtractorProgram>,
    memory: Memory,
    child: Option<Running>,
    started: u64,
}

/// The reason why a process gave no answer.
enum Broken {
    Late,
    Ended(String),
}

impl Extractor {
    /// An extractor with or without a program. `memory` counts what the process holds.
    pub fn new(program: Option<ExtractorProgram>, memory: Memory) -> Extractor {
        Extractor { program, memory, child: None, started: 0 }
    }

    /// The number of processes that were started.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Adds the fields of the document `bytes` at `path` to `fields`.
    ///
    /// # Errors
    /// The reason why the document could not be read, or not all of it.
    pub(crate) fn extract(
        &mut self,
        content: Content,
        bytes: &[u8],
        path: &[u8],
        fields: &mut Fields,
    ) -> Result<(), ExtractError> {
        let _loan = (content == Content::Pdf).then(|| self.memory.lend(PDF_PROCESS_BYTES, path));
        let Some(program) = self.program.as_ref().filter(|_| is_for_a_child(content, bytes.len())) else {
            return super::extract(content, bytes, fields);
        };
        let program = program.clone();
        let mut died = false;
        loop {
            let mut child = match self.child.take() {
                Some(child) => child,
                None => self.start(&program, path)?,
            };
            match child.ask(content, bytes, Instant::now() + program.time) {
                Ok((answer, failure)) => {
                    self.child = Some(child);
                    fields.add(answer);
                    return failure.map_or(Ok(()), |told| Err(ExtractError::Reported(told)));
                }
                Err(Broken::Late) => return Err(ExtractError::Late(program.time)),
                // The process may have been killed, or the document before may be the cause of its death. So a second
                // process tries this document.
                Err(Broken::Ended(_)) if !died => died = true,
                Err(Broken::Ended(how)) => {
                    return Err(ExtractError::BrokeOff { how, memory_mib: program.memory_bytes >> 20 });
                }
            }
        }
    }

    fn start(&mut self, program: &ExtractorProgram, path: &[u8]) -> Result<Running, ExtractError> {
        let loan = self.memory.for_extractor(path);
        let started = Running::start(program, loan);
        self.started += 1;
        started.map_err(ExtractError::Start)
    }
}

/// True when a document may be expensive or hostile enough to need a process that may die.
fn is_for_a_child(content: Content, len: usize) -> bool {
    match content {
        // A zip of XML unpacks to much more than its size.
        Content::Word | Content::Slides | Content::Sheets | Content::OpenDocument => true,
        Content::Html | Content::Json | Content::Table(_) => len > IN_PLACE_BYTES_MAX,
        // Text is only decoded. For PDF, another program (`pdftotext`) is started for each document.
        Content::Text | Content::Pdf => false,
    }
}

/// A running process. It is killed when this value is dropped.
struct Running {
    child: Child,
    socket: UnixStream,
    /// The memory of the process. It is given back when the process is gone.
    _loan: Loan,
}

impl Running {
    fn start(program: &ExtractorProgram, loan: Loan) -> io::Result<Running> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(ALLOCATOR)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let running = Running { child, socket, _loan: loan };
        // The bound is set before the process gets a byte that could make it grow. The process writes no core file when
        // it dies.
        let pid = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw);
        for (resource, most) in [(Resource::As, program.memory_bytes), (Resource::Core, 0)] {
            prlimit(pid, resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        Ok(running)
    }

    /// Sends the document and receives the answer.
    fn ask(
        &mut self,
        content: Content,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(Fields, Option<String>), Broken> {
        converse(&self.socket, content, bytes, deadline).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Broken::Late,
            _ => {
                // The process has ended, or its answer is invalid. In both cases it must not go on.
                let _ = self.child.kill();
                Broken::Ended(match self.child.wait() {
                    Ok(status) => match status.signal() {
                        Some(signal) => format!("the process ended by signal {signal}"),
                        None => format!("the process ended with {}", status.code().unwrap_or_default()),
                    },
                    Err(error) => error.to_string(),
                })
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended, or is not needed any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn converse(
    mut socket: &UnixStream,
    content: Content,
    bytes: &[u8],
    deadline: Instant,
) -> io::Result<(Fields, Option<String>)> {
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let mut head = content.code().to_vec();
    head.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    for piece in std::iter::once(&head[..]).chain(bytes.chunks(PIECE_BYTES)) {
        let mut rest = piece;
        while !rest.is_empty() {
            socket.set_write_timeout(left()?)?;
            let written = uninterrupted(|| socket.write(rest))?;
            rest = &rest[written..];
        }
    }
    let mut answer = Vec::new();
    let mut read_to = |answer: &mut Vec<u8>, len: usize| {
        while answer.len() < len {
            let at = answer.len();
            answer.resize(len.min(at + PIECE_BYTES), 0);
            socket.set_read_timeout(left()?)?;
            let got = uninterrupted(|| socket.read(&mut answer[at..]))?;
            answer.truncate(at + got);
            if got == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(())
    };
    read_to(&mut answer, ANSWER_HEAD_BYTES)?;
    let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
    let (is_whole, len) = answer.split_first().ok_or_else(nonsense)?;
    let (is_whole, len) = (*is_whole == 1, u64::from_le_bytes(len.try_into().map_err(|_| nonsense())?));
    if len > ANSWER_BYTES_MAX {
        return Err(nonsense());
    }
    answer.clear();
    read_to(&mut answer, len as usize)?;
    let mut rest = &answer[..];
    let reason = match is_whole {
        true => None,
        false => {
            let reason = crate::fields::take(&mut rest).ok_or_else(nonsense)?;
            Some(String::from_utf8_lossy(reason).into_owned())
        }
    };
    Ok((Fields::decode(rest).ok_or_else(nonsense)?, reason))
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(mut ask: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match ask() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Extracts documents that come over the socket, until the other end closes it. The process ends when its parent does.
///
/// # Errors
/// Errors of the socket.
pub fn serve(mut socket: UnixStream) -> io::Result<()> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut document = Vec::new();
    loop {
        let mut head = [0; REQUEST_HEAD_BYTES];
        match socket.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            done => done?,
        }
        let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
        let (code, len) = head.split_at(2);
        let content = Content::from_code([code[0], code[1]]).ok_or_else(nonsense)?;
        let len = u64::from_le_bytes(len.try_into().map_err(|_| nonsense())?);
        if len > DOCUMENT_BYTES_MAX {
            return Err(nonsense());
        }
        document.clear();
        document.reserve_exact(len as usize);
        if (&socket).take(len).read_to_end(&mut document)? < len as usize {
            return Ok(());
        }
        let mut fields = Fields::default();
        let done = super::extract(content, &document, &mut fields);
        // Free the document, so that the process holds none of it while it waits for the next document.
        document = Vec::new();
        let mut body = Vec::new();
        if let Err(error) = &done {
            crate::fields::put(&mut body, error.to_string().as_bytes());
        }
        fields.encode(&mut body, |_| true);
        socket.write_all(&[u8::from(done.is_ok())])?;
        socket.write_all(&(body.len() as u64).to_le_bytes())?;
        socket.write_all(&body)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> ExtractorProgram {
        ExtractorProgram::new("/bin/sh", ["-c", script].map(OsString::from))
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn one_socket_carries_many_documents_and_their_fields() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || serve(theirs));
        let long = format!("<title>T</title><p>{}</p>", "long ".repeat(400_000));
        for (content, document, body, is_whole) in [
            (Content::Html, "<title>T</title><p>hello</p>", "hello", true),
            (Content::Html, &long[..], "long", true),
            (Content::Json, "{ broken", "{ broken", false),
            (Content::Table(b';'), "a;b\n1;2\n", "a\tb\n1\t2", true),
            (Content::Word, "no zip", "", false),
        ] {
            let (fields, failure) = converse(&ours, content, document.as_bytes(), far()).unwrap();
            let mut expected = Fields::default();
            let told = super::super::extract(content, document.as_bytes(), &mut expected);
            assert!(fields.present().eq(expected.present()), "{content:?}");
            assert_eq!(
                (failure, is_whole),
                (told.err().map(|error| error.to_string()), fields_are_whole(&expected, body, is_whole))
            );
        }
        let (fields, _) = converse(&ours, Content::Json, br#"{"a":{"b":1}}"#, far()).unwrap();
        assert!(fields.present().any(|field| field == ("json.a.b", &b"1"[..])));
        drop(ours);
        server.join().unwrap().expect("the other end closed the socket");
    }

    /// Checks the fields against a row of the table. Returns `is_whole`.
    fn fields_are_whole(fields: &Fields, body: &str, is_whole: bool) -> bool {
        let got = fields.get("body").unwrap_or_default();
        assert!(got.starts_with(body.as_bytes()) && got.is_empty() == body.is_empty());
        is_whole
    }

    #[test]
    fn a_process_that_is_late_is_killed_and_one_that_ends_is_told() {
        let mut fields = Fields::default();
        let slow = ExtractorProgram { time: Duration::from_millis(50), ..sh("exec sleep 1000") };
        let mut extractor = Extractor::new(Some(slow), Memory::default());
        let late = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
        assert_eq!(late.to_string(), "its extraction took more than 1 s");
        assert!(extractor.child.is_none());
        for (script, told) in [
            (
                "kill -SEGV $$",
                "the extractor died of this document twice (the process ended by signal 11; its limit is 1024 MiB of memory)",
            ),
            (
                "kill -ABRT $$",
                "the extractor died of this document twice (the process ended by signal 6; its limit is 1024 MiB of memory)",
            ),
        ] {
            let mut extractor = Extractor::new(Some(sh(script)), Memory::default());
            let ended = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
            assert_eq!((ended.to_string().as_str(), extractor.started()), (told, 2));
        }
        let none = ExtractorProgram::new("/no/such/program", []);
        let mut extractor = Extractor::new(Some(none), Memory::default());
        let none = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
        assert!(matches!(none, ExtractError::Start(_)), "{none}");
    }

    #[test]
    fn a_process_that_talks_nonsense_is_not_believed() {
        // The first process claims an answer of 2^56 bytes. The second claims that all was read, and sends bytes that
        // are no fields.
        for script in [r"printf '\001\0\0\0\0\0\0\0\001' >&0", r"printf '\001\003\0\0\0\0\0\0\0abc' >&0"] {
            let mut extractor = Extractor::new(Some(sh(script)), Memory::default());
            let mut fields = Fields::default();
            let told = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
            assert!(matches!(told, ExtractError::BrokeOff { .. }) && fields.present().count() == 0, "{told}");
        }
    }

    #[test]
    fn a_new_process_takes_the_document_of_one_that_had_ended() {
        let mut extractor = Extractor::new(Some(sh("exit 3")), Memory::default());
        // A process that was started before, and has ended.
        let mut gone = Running::start(&sh("exit 0"), Memory::default().for_extractor(b"")).unwrap();
        gone.child.wait().unwrap();
        extractor.child = Some(gone);
        let told = extractor.extract(Content::Word, b"x", b"a.docx", &mut Fields::default()).unwrap_err();
        assert!(extractor.started() == 1 && matches!(told, ExtractError::BrokeOff { .. }), "{told}");
    }

    #[test]
    fn small_pages_and_all_text_stay_in_this_process() {
        let mut extractor = Extractor::new(Some(sh("exit 3")), Memory::default());
        for content in [Content::Html, Content::Json, Content::Table(b','), Content::Text] {
            let mut fields = Fields::default();
            extractor.extract(content, b"1", b"x", &mut fields).unwrap();
            assert_eq!((fields.get("body"), extractor.started()), (Some(&b"1"[..]), 0), "{content:?}");
        }
        let large = vec![b' '; IN_PLACE_BYTES_MAX + 1];
        extractor.extract(Content::Json, &large, b"x", &mut Fields::default()).unwrap_err();
        assert_eq!(extractor.started(), 2);
    }
}
