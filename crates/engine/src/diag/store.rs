//! [`Store`]: the history's rows of 15 seconds and 5 minutes on the disk.
//!
//! The file is append-only, in the format of [`strand_diag::history`]. It is rewritten when half of it is obsolete. The
//! file is not a database: a row of about 450 bytes is added every 15 seconds, and no row is ever looked up. A database
//! adds pages, a cache and 48 seconds of build time, and would serve no query. No row waits for the disk. After a power
//! failure some rows may be missing, and a cut row is dropped.
//!
//! While the disk is full or fails, the rows of that time are missing on the disk, with no other effect. From then on
//! each new row tries to rewrite the whole file. The old file stays until a rewrite succeeds.

use crate::Host;
use crate::folder::{AppendFile, Folder};
use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use strand_diag::history::{HEADER, History, LEVELS, Loaded, Recorder};

/// The name of the history's file.
pub(super) const FILE: &str = "history";
/// Maximum number of bytes that are read from a file.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// A file is rewritten when it has grown by this many bytes and to twice its size.
const GROWTH_BYTES_MIN: u64 = 4 << 20;

/// The history on the disk. See the module.
pub(super) struct Store {
    folder: Arc<dyn Folder>,
    /// The history's file, open for appending. `None`: the file must be rewritten.
    file: Option<Box<dyn AppendFile>>,
    /// Number of series whose names are in the file.
    series: usize,
    /// Length of the file after its last rewrite.
    rewritten_bytes: u64,
    last_error: Option<String>,
}

impl Store {
    /// Loads the history from the folder.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(folder: Arc<dyn Folder>, recorder: &mut Recorder) -> io::Result<(Store, Loaded)> {
        let loaded = match folder.open(FILE)? {
            Some((file, _)) => recorder.history_mut().load(&mut file.take(FILE_BYTES_MAX))?,
            None => Loaded::default(),
        };
        Ok((Store { folder, file: None, series: 0, rewritten_bytes: 0, last_error: None }, loaded))
    }
    /// True when the last row was written without an error.
    pub(super) fn is_healthy(&self) -> bool {
        self.last_error.is_none()
    }
    /// The error of the last attempt to write the history.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }
    /// Stops writing because the disk is needed for other files. Rows will be missing, so only a rewritten file is
    /// complete.
    pub(super) fn suspend(&mut self) {
        self.file = None;
    }
    /// Call this when levels have grown by a row. Writes the new rows.
    pub(super) fn append_rows(&mut self, history: &History, grown: [bool; LEVELS], host: &dyn Host) {
        if !grown[1..].contains(&true) {
            return;
        }
        match self.try_append_rows(history, grown) {
            Ok(()) => {
                if self.last_error.take().is_some() {
                    host.log("The history is on the disk again");
                }
            }
            Err(e) => {
                // A part of a row may be in the file, so only a rewritten file is complete.
                self.file = None;
                let text = e.to_string();
                if self.last_error.replace(text.clone()).is_none() {
                    host.warn(&format!("The history cannot be written to the disk: {text}"));
                }
            }
        }
    }
    fn try_append_rows(&mut self, history: &History, grown: [bool; LEVELS]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return self.rewrite_file(history);
        };
        let mut bytes = Vec::new();
        if self.series != history.series().len() {
            bytes.extend(history.names_record());
        }
        (1..LEVELS)
            .filter(|level| grown[*level])
            .filter_map(|level| history.row_record(level))
            .for_each(|row| bytes.extend(row));
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match file.append(&[IoSlice::new(rest)])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => rest = rest.get(n..).unwrap_or_default(),
            }
        }
        self.series = history.series().len();
        if file.bytes() > self.rewritten_bytes * 2 + GROWTH_BYTES_MIN {
            self.file = None;
        }
        Ok(())
    }
    fn rewrite_file(&mut self, history: &History) -> io::Result<()> {
        self.folder.replace(FILE, false, &mut |out| history.save(out))?;
        let file = self.folder.append_to(FILE)?;
        self.rewritten_bytes = file.bytes().max(HEADER.len() as u64);
        self.series = history.series().len();
        self.file = Some(file);
        Ok(())
    }
}
