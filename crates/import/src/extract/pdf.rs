//! The text of PDF files, by Poppler's `pdftotext` in a process of its own.
//!
//! A hostile file can make a PDF library crash or loop forever. So a child process does the work. The child gets the
//! document on its standard input, at most [`MEMORY_BYTES_MAX`] of memory and [`super::TIME_MAX`] of time. At most
//! [`super::TEXT_BYTES_MAX`] bytes of its output are kept. If `pdftotext` is not installed, the document's failure says
//! so.

use super::patience::Patience;
use super::{ExtractError, TEXT_BYTES_MAX, TIME_MAX, Text};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};

/// The name of the program, if [`VARIABLE`] is not set.
const PROGRAM: &str = "pdftotext";
/// The environment variable that names another program.
pub(super) const VARIABLE: &str = "STRAND_PDFTOTEXT";
/// Bytes that the child holds for a small document: 9,924 kB of resident set for a page (`time pdftotext`). The memory
/// for a large document is counted by the document's size in addition.
pub(super) const PROCESS_BYTES: u64 = 10 << 20;
/// Maximum memory of the child, in bytes.
pub(super) const MEMORY_BYTES_MAX: u64 = 2 << 30;
/// Maximum number of bytes of the child's error output that are reported.
const COMPLAINT_BYTES_MAX: u64 = 300;

/// Adds the document's text.
pub(super) fn extract(bytes: &[u8], text: &mut Text) -> Result<(), ExtractError> {
    let program = std::env::var_os(VARIABLE).unwrap_or_else(|| PROGRAM.into());
    let mut command = Command::new(&program);
    // Without `-q`, the program says why it refuses a document.
    command.args(["-enc", "UTF-8", "-nopgbrk", "-", "-"]);
    let spawned = confine(&mut command).spawn();
    let program = program.to_string_lossy().into_owned();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(ExtractError::NoPdfReader { program });
        }
        Err(error) => return Err(ExtractError::PdfStart { program, error }),
    };
    let read = converse(&mut child, bytes);
    // The child has ended, or is not needed any more.
    kill(&mut child);
    let status = child.wait();
    let (answer, complaint) = match read {
        Ok(read) => read,
        Err(reason) => return Err(ExtractError::Pdf { program, reason }),
    };
    text.push(&String::from_utf8_lossy(&answer));
    let cut = answer.len() > TEXT_BYTES_MAX;
    let ended = match status {
        Ok(status) if status.success() || cut => return Ok(()),
        // A limit of time or memory, or the kernel, may have ended the program.
        Ok(status) if status.signal().is_some() => {
            return Err(ExtractError::Pdf { program, reason: status.to_string() });
        }
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let complaint = match first_error(&complaint) {
        "" => ended,
        line => line.to_owned(),
    };
    Err(ExtractError::PdfRefused { program, complaint })
}

/// The first line of the program's error output. A line with an error goes before warnings, which do not say why the program
/// refused the document.
fn first_error(complaint: &str) -> &str {
    let mut lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or_default();
    lines.find(|line| !line.contains("Warning")).unwrap_or(first)
}

/// Gives the child pipes, a process group of its own, and an environment without secrets.
fn confine(command: &mut Command) -> &mut Command {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    pipes.env_clear().envs(super::kept_environment()).process_group(0)
}

/// Kills the child and its children: the program may be a script that starts the reader. The caller has not waited for
/// the child, so its process group still exists.
fn kill(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
}

/// What the channel brings in time.
fn received<T>(channel: &mpsc::Receiver<T>, patience: &mut Patience) -> Result<T, RecvTimeoutError> {
    let received = patience.wait(|slice| match channel.recv_timeout(slice) {
        Err(RecvTimeoutError::Timeout) => None,
        received => Some(received),
    });
    received.unwrap_or(Err(RecvTimeoutError::Timeout))
}

/// Sends the document and receives the child's output and error output. Waits at most [`TIME_MAX`].
fn converse(child: &mut Child, bytes: &[u8]) -> Result<(Vec<u8>, String), String> {
    // The limits are set before the child gets a document that could make it grow.
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, most) in [(Resource::As, MEMORY_BYTES_MAX), (Resource::Cpu, TIME_MAX.as_secs())] {
        prlimit(pid, resource, limit(most))
            .map_err(|error| format!("its memory and time cannot be limited: {error}"))?;
    }
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("its pipes are missing".to_owned());
    };
    std::thread::scope(|scope| {
        let (answers, answer) = mpsc::channel();
        let (complaints, complaint) = mpsc::channel();
        scope.spawn(move || {
            let mut answer = Vec::new();
            let _ = stdout.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut answer);
            let _ = answers.send(answer);
        });
        scope.spawn(move || {
            let mut complaint = Vec::new();
            let mut stderr = stderr;
            let _ = stderr.by_ref().take(COMPLAINT_BYTES_MAX).read_to_end(&mut complaint);
            // Read the rest of the error output too: a child with a full pipe would wait forever.
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            let _ = complaints.send(String::from_utf8_lossy(&complaint).into_owned());
        });
        scope.spawn(move || {
            // Ignore errors: a child that needs only a part of the document closes its end of the pipe early.
            let _ = stdin.write_all(bytes);
        });
        let mut patience = Patience::new(TIME_MAX);
        let answer = received(&answer, &mut patience);
        let is_whole = answer.as_ref().is_ok_and(|text| text.len() <= TEXT_BYTES_MAX);
        let complaint = match is_whole {
            true => received(&complaint, &mut patience),
            false => Ok(String::new()),
        };
        if !is_whole || complaint.is_err() {
            // The pipes close, so the three threads end too.
            kill(child);
        }
        let timeout = |_| format!("the extraction took more than {} s", TIME_MAX.as_secs());
        Ok((answer.map_err(timeout)?, complaint.map_err(timeout)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_reported_and_a_warning_only_without_an_error() {
        let warning = "Syntax Warning: May not be a PDF file";
        for (complaint, reported) in [
            ("", ""),
            (" \n", ""),
            ("Syntax Warning: May not be a PDF file\n", warning),
            ("Syntax Warning: x\nSyntax Error: no trailer \nSyntax Error: y", "Syntax Error: no trailer"),
        ] {
            assert_eq!(first_error(complaint), reported);
        }
    }

    /// `cargo test` runs this test with variables that stand for secrets.
    #[test]
    fn the_child_gets_no_secrets() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let mut command = Command::new("env");
        let output = confine(&mut command).output().expect("env runs");
        let variables = String::from_utf8_lossy(&output.stdout);
        assert!(variables.contains("PATH=") && !variables.contains("CARGO_MANIFEST_DIR"), "{variables}");
    }

    #[test]
    fn the_children_of_a_script_are_killed_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "{ sleep 10; echo late; } & echo begun; wait"]);
        let mut child = confine(&mut command).spawn().expect("sh runs");
        let mut output = child.stdout.take().expect("it has a pipe");
        output.read_exact(&mut [0; 6]).expect("the script says that it has begun");
        kill(&mut child);
        // The pipe closes when the last process that holds it has ended. A process that is not killed writes first.
        assert_eq!(output.read_to_end(&mut Vec::new()).expect("readable"), 0);
        assert!(child.wait().is_ok());
    }
}
