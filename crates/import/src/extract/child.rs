//! [`Extractor`]: a child process that extracts the documents of a run, so that a hostile document cannot crash the
//! run.
//!
//! The run starts the process at the first document that needs one, and uses it for all further documents. The run
//! sends a document over a socket pair and receives the document's fields. The process gives a document up after
//! [`TIME_MAX`]. A process that does not answer within [`ExtractorProgram::time`] is killed, and the document has
//! failed. The process may use [`ExtractorProgram::memory_bytes`] of memory. If the process dies, a new process
//! extracts the document. If that process dies too, the document has failed. Small documents are extracted in the run's
//! own process: their size bounds the work, and sending them over the socket would cost more than the work.
//!
//! The process runs [`serve`].

use super::patience::Patience;
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
use std::time::Duration;

/// Pages, JSON values and tables up to this number of bytes are extracted in the run's own process.
pub const IN_PLACE_BYTES_MAX: usize = 64 << 10;
/// Maximum memory of the process in bytes. The kernel applies the limit to the address space.
pub const CHILD_MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Time that the run waits in addition to [`TIME_MAX`]. The process checks [`TIME_MAX`] only between two pieces of a
/// document. Then it answers with an error and lives on, which is cheaper than a kill and a new process.
const GRACE: Duration = Duration::from_secs(5);
/// Maximum number of bytes of the process's answer to one document.
const ANSWER_BYTES_MAX: u64 = 2 * DOCUMENT_BYTES_MAX;
/// Maximum number of bytes of one read or write on the socket. The run checks its patience between two calls.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes before a document: its kind (two bytes) and its length.
const REQUEST_HEAD_BYTES: usize = 10;
/// Bytes before an answer: whether all of the document could be read, and the length of the answer.
const ANSWER_HEAD_BYTES: usize = 9;
/// The first byte of an answer: the whole document was extracted.
const WHOLE: u8 = 1;
/// The first byte of an answer: not all of the document could be extracted.
const FAILED: u8 = 0;
/// The first byte of an answer: as [`FAILED`], and [`ExtractError::may_pass`].
const MAY_PASS: u8 = 2;
/// Settings of the process's allocator: return free memory to the system at once. Between two documents the process
/// needs none.
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
    /// The run kills the process when one document takes longer. 25 s by default: [`TIME_MAX`] and 5 s more.
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

/// Extracts the documents of a run. Without a program, the run's own process extracts all documents.
#[derive(Default)]
pub struct Extractor {
    program: Option<ExtractorProgram>,
    memory: Memory,
    child: Option<Running>,
    started: u64,
}

/// The reason why a process gave no valid answer.
#[derive(Debug)]
enum NoAnswer {
    /// There was no answer in time.
    Timeout,
    /// The socket closed or failed.
    Disconnected(io::Error),
    /// The bytes that the process sent are not an answer. The text says what is wrong with them.
    Invalid(String),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> NoAnswer {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NoAnswer::Timeout,
            _ => NoAnswer::Disconnected(error),
        }
    }
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
        let mut is_retry = false;
        loop {
            let mut child = match self.child.take() {
                Some(child) => child,
                None => self.start(&program, path)?,
            };
            match child.ask(content, bytes, Patience::new(program.time)) {
                Ok((answer, failure)) => {
                    self.child = Some(child);
                    fields.add(answer);
                    return failure.map_or(Ok(()), Err);
                }
                Err(NoAnswer::Timeout) => return Err(ExtractError::Timeout(program.time)),
                // Something else may have killed the process, or the document before this one may be the cause. So a
                // second process tries this document.
                Err(_) if !is_retry => is_retry = true,
                Err(NoAnswer::Invalid(problem)) => return Err(ExtractError::InvalidAnswer { problem }),
                Err(NoAnswer::Disconnected(error)) => {
                    let how = child.end().unwrap_or_else(|| error.to_string());
                    return Err(ExtractError::Died { how, memory_mib: program.memory_bytes >> 20 });
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

/// True when a document may be so expensive or hostile that it must be extracted in a child process.
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
            .env_clear()
            .envs(super::kept_environment())
            .envs(ALLOCATOR)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let running = Running { child, socket, _loan: loan };
        // The limits are set before the process gets a document that could make it grow. A limit of 0 for core files: a
        // crash writes none.
        let pid = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw);
        for (resource, limit) in [(Resource::As, program.memory_bytes), (Resource::Core, 0)] {
            prlimit(pid, resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
        }
        Ok(running)
    }

    /// Sends the document and receives the answer: the fields, and the reason why not all of the document could be
    /// read.
    fn ask(
        &mut self,
        content: Content,
        bytes: &[u8],
        patience: Patience,
    ) -> Result<(Fields, Option<ExtractError>), NoAnswer> {
        converse(&self.socket, content, bytes, patience)
    }

    /// Ends a process whose socket is closed. Returns how the process ended, in words.
    fn end(mut self) -> Option<String> {
        // A process that still runs, with its socket closed, is of no use.
        let _ = self.child.kill();
        let status = self.child.wait().ok()?;
        Some(match status.signal() {
            Some(signal) => format!("the process ended by signal {signal}"),
            None => format!("the process ended with {}", status.code().unwrap_or_default()),
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

/// Sends a document over the socket and receives the answer.
fn converse(
    mut socket: &UnixStream,
    content: Content,
    bytes: &[u8],
    mut patience: Patience,
) -> Result<(Fields, Option<ExtractError>), NoAnswer> {
    let mut head = content.code().to_vec();
    head.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    for piece in std::iter::once(&head[..]).chain(bytes.chunks(PIECE_BYTES)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let written = within(&mut patience, |slice| {
                socket.set_write_timeout(Some(slice))?;
                socket.write(rest)
            })?;
            rest = &rest[written..];
        }
    }
    let mut answer = Vec::new();
    let mut read_to = |answer: &mut Vec<u8>, len: usize| {
        while answer.len() < len {
            let at = answer.len();
            answer.resize(len.min(at + PIECE_BYTES), 0);
            let got = within(&mut patience, |slice| {
                socket.set_read_timeout(Some(slice))?;
                socket.read(&mut answer[at..])
            })?;
            answer.truncate(at + got);
            if got == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
        Ok(())
    };
    read_to(&mut answer, ANSWER_HEAD_BYTES)?;
    let (outcome, len) = answer.split_first_chunk::<1>().expect("ANSWER_HEAD_BYTES were read");
    let len = u64::from_le_bytes(len.try_into().expect("ANSWER_HEAD_BYTES were read"));
    let outcome = outcome[0];
    if len > ANSWER_BYTES_MAX {
        let problem = format!("a length of {len} bytes, at most {ANSWER_BYTES_MAX} are allowed");
        return Err(NoAnswer::Invalid(problem));
    }
    answer.clear();
    read_to(&mut answer, len as usize)?;
    let mut rest = &answer[..];
    let failure = match outcome {
        WHOLE => None,
        _ => {
            let problem = || NoAnswer::Invalid(format!("no reason of a failure in {len} bytes"));
            let reason = crate::fields::take(&mut rest).ok_or_else(problem)?;
            let reason = String::from_utf8_lossy(reason).into_owned();
            Some(ExtractError::Reported { reason, may_pass: outcome == MAY_PASS })
        }
    };
    let problem = || NoAnswer::Invalid(format!("{} bytes are not a list of fields", rest.len()));
    Ok((Fields::decode(rest).ok_or_else(problem)?, failure))
}

/// Makes a system call until it succeeds or fails, or no patience is left. `call` gets the time that one call may wait.
fn within(patience: &mut Patience, mut call: impl FnMut(Duration) -> io::Result<usize>) -> io::Result<usize> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let done = patience.wait(|slice| match call(slice) {
        Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => None,
        done => Some(done),
    });
    done.unwrap_or_else(|| Err(TimedOut.into()))
}

/// Runs in the child process: extracts the documents that the socket brings until the run closes the socket. The kernel
/// kills the process when the run's process ends.
///
/// # Errors
/// Errors of the socket, and [`io::ErrorKind::InvalidData`] for a request that is not valid.
pub fn serve(mut socket: UnixStream) -> io::Result<()> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut document = Vec::new();
    loop {
        let mut head = [0; REQUEST_HEAD_BYTES];
        match socket.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            done => done?,
        }
        let invalid = |problem| io::Error::new(io::ErrorKind::InvalidData, problem);
        let (code, len) = head.split_at(2);
        let unknown = || invalid(format!("unknown kind of document {code:?}"));
        let content = Content::from_code([code[0], code[1]]).ok_or_else(unknown)?;
        let len = u64::from_le_bytes(len.try_into().expect("REQUEST_HEAD_BYTES are two and eight"));
        if len > DOCUMENT_BYTES_MAX {
            return Err(invalid(format!(
                "a document of {len} bytes, at most {DOCUMENT_BYTES_MAX} are allowed"
            )));
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
        let outcome = match &done {
            Ok(()) => WHOLE,
            Err(error) if error.may_pass() => MAY_PASS,
            Err(_) => FAILED,
        };
        socket.write_all(&[outcome])?;
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

    fn far() -> Patience {
        Patience::new(Duration::from_secs(600))
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
            let result = super::super::extract(content, document.as_bytes(), &mut expected);
            assert!(fields.present().eq(expected.present()), "{content:?}");
            assert_eq!(
                (failure.map(|error| error.to_string()), is_whole),
                (result.err().map(|error| error.to_string()), fields_are_whole(&expected, body, is_whole))
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
    fn a_slow_process_is_killed_and_the_signal_of_a_dead_process_is_reported() {
        let mut fields = Fields::default();
        let slow = ExtractorProgram { time: Duration::from_millis(50), ..sh("exec sleep 1000") };
        let mut extractor = Extractor::new(Some(slow), Memory::default());
        let late = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
        assert_eq!(late.to_string(), "the extraction took more than 1 s");
        assert!(extractor.child.is_none());
        for (script, expected) in [
            (
                "kill -SEGV $$",
                "the extractor crashed twice on this document (the process ended by signal 11; its limit is 1024 MiB of memory)",
            ),
            (
                "kill -ABRT $$",
                "the extractor crashed twice on this document (the process ended by signal 6; its limit is 1024 MiB of memory)",
            ),
        ] {
            let mut extractor = Extractor::new(Some(sh(script)), Memory::default());
            let ended = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
            assert_eq!((ended.to_string().as_str(), extractor.started()), (expected, 2));
        }
        let none = ExtractorProgram::new("/no/such/program", []);
        let mut extractor = Extractor::new(Some(none), Memory::default());
        let none = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
        assert!(matches!(none, ExtractError::Start(_)), "{none}");
    }

    #[test]
    fn an_invalid_answer_is_reported_as_such_and_gives_no_fields() {
        for (answer, problem) in [
            (
                r"'\001\0\0\0\0\0\0\0\001'",
                "a length of 72057594037927936 bytes, at most 134217728 are allowed",
            ),
            (r"'\001\003\0\0\0\0\0\0\0abc'", "3 bytes are not a list of fields"),
            (r"'\0\003\0\0\0\0\0\0\0abc'", "no reason of a failure in 3 bytes"),
        ] {
            // The script reads the request first: a process that ends with unread bytes resets the connection.
            let script = format!("head -c {} >/dev/null; printf {answer} >&0", REQUEST_HEAD_BYTES + 1);
            let mut extractor = Extractor::new(Some(sh(&script)), Memory::default());
            let mut fields = Fields::default();
            let error = extractor.extract(Content::Word, b"x", b"a.docx", &mut fields).unwrap_err();
            let expected =
                format!("the extractor answered this document twice with invalid bytes: {problem}");
            assert_eq!((error.to_string(), extractor.started()), (expected, 2));
            assert_eq!(fields.present().count(), 0);
        }
    }

    #[test]
    fn a_new_process_reads_the_document_when_the_old_one_had_ended() {
        let mut extractor = Extractor::new(Some(sh("exit 3")), Memory::default());
        // The extractor's present process has ended.
        let mut exited = Running::start(&sh("exit 0"), Memory::default().for_extractor(b"")).unwrap();
        exited.child.wait().unwrap();
        extractor.child = Some(exited);
        let error = extractor.extract(Content::Word, b"x", b"a.docx", &mut Fields::default()).unwrap_err();
        assert!(extractor.started() == 1 && matches!(error, ExtractError::Died { .. }), "{error}");
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
