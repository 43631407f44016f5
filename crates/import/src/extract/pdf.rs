//! The text of PDF files, by Poppler's `pdftotext` in a process of its own.
//!
//! A hostile file can make the libraries for PDF crash, or run for ever. So a child does the work, and the child may die.
//! It gets the document on its standard input, [`MEMORY_BYTES_MAX`] of memory and [`super::TIME_MAX`] of time. Only
//! [`super::TEXT_BYTES_MAX`] bytes of its answer are taken. If `pdftotext` is not installed, the failure says so.

use super::{ExtractError, TEXT_BYTES_MAX, TIME_MAX, Text};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// The name of the program. An environment variable may name another program.
const PROGRAM: &str = "pdftotext";
pub(super) const VARIABLE: &str = "STRAND_PDFTOTEXT";
/// Bytes that the child holds for a small document: 9,924 kB of resident set for a page (`time pdftotext`). What a large
/// document takes beyond this is counted by the document's size.
pub(super) const PROCESS_BYTES: u64 = 10 << 20;
/// Maximum memory of the child, in bytes.
pub(super) const MEMORY_BYTES_MAX: u64 = 2 << 30;
/// Maximum number of bytes of the child's error output that are reported.
const COMPLAINT_BYTES_MAX: u64 = 300;

/// Adds the document's text.
pub(super) fn extract(bytes: &[u8], text: &mut Text) -> Result<(), ExtractError> {
    let program = std::env::var_os(VARIABLE).unwrap_or_else(|| PROGRAM.into());
    let spawned = Command::new(&program)
        .args(["-enc", "UTF-8", "-nopgbrk", "-q", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| {
        let program = program.to_string_lossy().into_owned();
        match error.kind() {
            std::io::ErrorKind::NotFound => ExtractError::NoPdfReader { program },
            _ => ExtractError::PdfStart { program, error },
        }
    })?;
    let read = converse(&mut child, bytes);
    // The child has ended, or is not needed any more.
    let _ = child.kill();
    let status = child.wait();
    let (answer, complaint) = read.map_err(ExtractError::Pdf)?;
    text.push(&String::from_utf8_lossy(&answer));
    let cut = answer.len() > TEXT_BYTES_MAX;
    let ended = match status {
        Ok(status) if status.success() || cut => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let complaint = complaint.trim().replace('\n', "; ");
    Err(ExtractError::PdfRefused { complaint: if complaint.is_empty() { ended } else { complaint } })
}

/// Sends the document and takes the child's answer. Waits no longer than the child may take.
fn converse(child: &mut Child, bytes: &[u8]) -> Result<(Vec<u8>, String), String> {
    // The bound is set before the child gets a byte that could make it grow.
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, most) in [(Resource::As, MEMORY_BYTES_MAX), (Resource::Cpu, TIME_MAX.as_secs())] {
        prlimit(pid, resource, limit(most))
            .map_err(|error| format!("pdftotext cannot be bounded: {error}"))?;
    }
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("pdftotext has no pipes".to_owned());
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
            // A child whose complaints nobody reads would wait for room in the pipe.
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            let _ = complaints.send(String::from_utf8_lossy(&complaint).into_owned());
        });
        scope.spawn(move || {
            // A child that needs only a part of the document closes its end of the pipe. An error here is no failure.
            let _ = stdin.write_all(bytes);
        });
        let began = Instant::now();
        let answer = answer.recv_timeout(TIME_MAX);
        let is_whole = answer.as_ref().is_ok_and(|text| text.len() <= TEXT_BYTES_MAX);
        let complaint = match is_whole {
            true => complaint.recv_timeout(TIME_MAX.saturating_sub(began.elapsed())),
            false => Ok(String::new()),
        };
        if !is_whole || complaint.is_err() {
            // The pipes close, so the three threads end too.
            let _ = child.kill();
        }
        let late = |_| format!("its extraction took more than {} s", TIME_MAX.as_secs());
        Ok((answer.map_err(late)?, complaint.map_err(late)?))
    })
}
