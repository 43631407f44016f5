//! The primary's snapshot: its bytes go to a file without a name, and are loaded when all have arrived.

use super::Position;
use super::wire::Wire;
use crate::Engine;
use crate::host::ScratchFile;
use crate::persist::DataError;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use strand_commands::serial::file::check_header;
use strand_wire::replica::{MARK_BYTES, SnapshotEnd};

/// While a snapshot is loaded, the primary gets a byte at this interval, so that it does not give this server up.
const KEEP_ALIVE_US: u64 = 1_000_000;

impl Engine {
    /// Receives a snapshot and replaces the data with it. The data is then at `offset` of the stream with this id. Returns
    /// this position.
    pub(super) fn receive_snapshot(
        &self,
        wire: &mut Wire<'_>,
        number: u64,
        id: &str,
        offset: u64,
    ) -> io::Result<Position> {
        let line = wire.line()?;
        let end = SnapshotEnd::parse(&line).ok_or_else(|| {
            let shown: String = line.chars().take(100).collect();
            let text = format!("expected the length of a snapshot, got {shown:?}");
            io::Error::new(ErrorKind::InvalidData, text)
        })?;
        self.following.update(number, |state| {
            state.snapshot_bytes = 0;
            state.snapshot_bytes_all = if let SnapshotEnd::After(bytes) = end { Some(bytes) } else { None };
        });
        self.host.log("Receiving a snapshot from the primary");
        let file = self.host.scratch_file(&mut |out| self.copy_snapshot(wire, &end, number, out))?;
        let bytes = match end {
            SnapshotEnd::After(_) => file.bytes(),
            SnapshotEnd::Mark(_) => file.bytes() - MARK_BYTES as u64,
        };
        check_begin(&*file, bytes)?;
        self.host.log(&format!("Loading a snapshot of {bytes} bytes from the primary"));
        let mut source = SnapshotReader { engine: self, file, at: 0, bytes, wire, kept_alive_us: 0 };
        let _applying = self.following.applying.lock();
        self.await_rewrite();
        if !self.following.is_current(number) {
            return Err(io::Error::other("this primary is not followed any more"));
        }
        let db = self.load_from_primary(&mut source, bytes, self.host.now()).map_err(|why| {
            io::Error::other(match why {
                DataError::Snapshot { offset, problem, .. } => format!(
                    "the snapshot is damaged at offset {offset}: {problem}. This server has no data now. An append-only \
                     file keeps the former data"
                ),
                other => other.to_string(),
            })
        })?;
        let position = Position { id: id.to_owned(), offset, db };
        self.begin_stream_of_primary(&position)?;
        self.following.state.lock().position = position.clone();
        Ok(position)
    }
    /// Copies the snapshot's bytes, with the mark at their end, from the connection to `out`.
    fn copy_snapshot(
        &self,
        wire: &mut Wire<'_>,
        end: &SnapshotEnd,
        number: u64,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let (mut copied, mut last) = (0u64, Vec::with_capacity(2 * MARK_BYTES));
        loop {
            while !wire.input.is_empty() {
                let front = wire.input.front();
                let left = if let SnapshotEnd::After(bytes) = end { bytes - copied } else { u64::MAX };
                let n = front.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                out.write_all(&front[..n])?;
                last.extend_from_slice(&front[n.saturating_sub(MARK_BYTES)..n]);
                last.drain(..last.len().saturating_sub(MARK_BYTES));
                wire.input.advance(n);
                copied += n as u64;
                if left == n as u64 {
                    break;
                }
            }
            let is_whole = match end {
                SnapshotEnd::After(bytes) => copied == *bytes,
                // After the mark the primary waits for an acknowledgement, so the mark ends what has arrived.
                SnapshotEnd::Mark(mark) => last == mark,
            };
            self.following.update(number, |state| {
                (state.snapshot_bytes, state.heard_us) = (copied, self.host.mono_us());
            });
            if is_whole {
                return Ok(());
            }
            wire.fill_or_fail()?;
        }
    }
}

/// Checks the snapshot's first bytes, before the snapshot replaces this server's data.
fn check_begin(file: &dyn ScratchFile, bytes: u64) -> io::Result<()> {
    let mut start = [0; 16];
    let end = bytes.min(start.len() as u64) as usize;
    let mut len = 0;
    while len < end {
        match file.read_at(&mut start[len..end], len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    check_header(&start[..len]).map_err(|problem| {
        let text = format!(
            "the primary's snapshot of {bytes} bytes cannot be loaded: {problem}. This server keeps its data"
        );
        io::Error::new(ErrorKind::InvalidData, text)
    })
}

/// Reads the snapshot to be loaded, and tells the primary meanwhile that this server lives.
struct SnapshotReader<'a, 'e> {
    engine: &'a Engine,
    file: Arc<dyn ScratchFile>,
    at: u64,
    bytes: u64,
    wire: &'a mut Wire<'e>,
    kept_alive_us: u64,
}

impl Read for SnapshotReader<'_, '_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let now_us = self.engine.host.mono_us();
        if now_us >= self.kept_alive_us + KEEP_ALIVE_US {
            self.kept_alive_us = now_us;
            self.wire.send(b"\n")?;
        }
        let left = usize::try_from(self.bytes - self.at).unwrap_or(usize::MAX);
        let n = left.min(target.len());
        let read = self.file.read_at(&mut target[..n], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
