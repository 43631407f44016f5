//! [`Store`]: the history's rows of 15 seconds and of 5 minutes on the disk.
//!
//! A file that only grows, in the form of [`strand_diag::history`], and is written anew when half of it is of no use any more.
//! Not a database: a row is some 450 bytes every 15 seconds, nothing is ever looked up, and what a database adds (pages, a
//! cache, 48 seconds of building) would serve no question. No row waits for the disk; after a power failure some may
//! be missing, and a row that is cut is left out.
//!
//! A disk that is full, or fails, costs the rows of that time on the disk and nothing else: from then on each new row tries
//! to write the whole file, and the old one stays until that has worked.

use crate::Host;
use crate::folder::{AppendFile, Folder};
use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use strand_diag::history::{HEADER, History, LEVELS, Loaded, Recorder};

/// The file's name.
pub(super) const FILE: &str = "history";
/// No more of a file is read.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// A file is written anew when it has grown by so much, and to twice its size.
const GROWTH_BYTES_MIN: u64 = 4 << 20;

/// See the module.
pub(super) struct Store {
    folder: Arc<dyn Folder>,
    /// `None`: the file is to be written anew.
    file: Option<Box<dyn AppendFile>>,
    /// Series whose names the file has.
    series: usize,
    /// Bytes after it was written anew.
    whole_bytes: u64,
    trouble: Option<String>,
}

impl Store {
    /// Takes what the folder has.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn open(folder: Arc<dyn Folder>, recorder: &mut Recorder) -> io::Result<(Store, Loaded)> {
        let loaded = match folder.open(FILE)? {
            Some((file, _)) => recorder.history_mut().load(&mut file.take(FILE_BYTES_MAX))?,
            None => Loaded::default(),
        };
        Ok((Store { folder, file: None, series: 0, whole_bytes: 0, trouble: None }, loaded))
    }
    /// True when the last row went to the disk.
    pub(super) fn is_well(&self) -> bool {
        self.trouble.is_none()
    }
    /// What was wrong with the last try.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
    /// The disk is needed for other things, or was: rows are missing, so that only a new file is whole.
    pub(super) fn stand_aside(&mut self) {
        self.file = None;
    }
    /// Levels have grown by a row.
    pub(super) fn keep(&mut self, history: &History, grown: [bool; LEVELS], host: &dyn Host) {
        if !grown[1..].contains(&true) {
            return;
        }
        match self.try_keep(history, grown) {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    host.log("The history is on the disk again");
                }
            }
            Err(e) => {
                // What was written of a row is not known: only a new file is whole.
                self.file = None;
                let text = e.to_string();
                if self.trouble.replace(text.clone()).is_none() {
                    host.log(&format!("The history cannot be written to the disk: {text}"));
                }
            }
        }
    }
    fn try_keep(&mut self, history: &History, grown: [bool; LEVELS]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return self.write_anew(history);
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
        if file.bytes() > self.whole_bytes * 2 + GROWTH_BYTES_MIN {
            self.file = None;
        }
        Ok(())
    }
    fn write_anew(&mut self, history: &History) -> io::Result<()> {
        self.folder.replace(FILE, false, &mut |out| history.save(out))?;
        let file = self.folder.append_to(FILE)?;
        self.whole_bytes = file.bytes().max(HEADER.len() as u64);
        self.series = history.series().len();
        self.file = Some(file);
        Ok(())
    }
}
