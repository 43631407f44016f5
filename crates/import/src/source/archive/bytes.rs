//! The bytes of archives: ranges of objects, and unpacked streams.
//!
//! A [`Window`] is a range of an open object. A reader of a window, and a window in a window, copy no bytes. An
//! [`Unpacking`] is a compressed stream as an object. It unpacks only as far as it is read: first into memory, then
//! into a temporary file.

use super::budget::ArchiveBudget;
use super::limits::RATIO_FREE_BYTES;
use crate::memory::Loan;
use crate::source::{Object, Stat};
use crate::temporary::TemporaryFile;
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

/// Maximum number of unpacked bytes in memory. A longer stream is unpacked into a temporary file.
const MEMORY_BYTES: usize = 4 << 20;
/// Bytes that are read and unpacked at a time.
const BLOCK_BYTES: usize = 64 * 1024;

/// A range of an open object.
#[derive(Clone)]
pub(crate) struct Window {
    object: Rc<dyn Object>,
    at: u64,
    len: u64,
}

impl Window {
    /// The whole object, with its present length.
    pub(crate) fn whole(object: Rc<dyn Object>) -> io::Result<Window> {
        let len = object.stat()?.size;
        Ok(Window { object, at: 0, len })
    }
    pub(super) fn len(&self) -> u64 {
        self.len
    }
    /// The `len` bytes at `at`.
    pub(super) fn part(&self, at: u64, len: u64) -> io::Result<Window> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(Window { object: self.object.clone(), at: self.at + at, len }),
            _ => {
                let size = self.len;
                Err(archive_error(format!(
                    "an entry has {len} bytes at byte {at}, the archive has only {size} bytes"
                )))
            }
        }
    }
    /// Reads the `len` bytes at `at` into memory. The caller must bound `len`.
    pub(super) fn bytes(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.part(at, len as u64)?.reader().read_to_end(&mut bytes)?;
        match bytes.len() == len {
            true => Ok(bytes),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
    pub(super) fn reader(&self) -> WindowReader {
        WindowReader { window: self.clone(), position: 0 }
    }
}

impl Object for Window {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { size: self.len, token: Vec::new(), is_young: false })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = into.len().min(left);
        if len == 0 { Ok(0) } else { self.object.read_at(self.at + offset, &mut into[..len]) }
    }
}

/// Reads a window from its beginning.
pub(super) struct WindowReader {
    window: Window,
    position: u64,
}

impl Read for WindowReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.window.read_at(self.position, into)?;
        self.position += got as u64;
        Ok(got)
    }
}

/// A compressed stream as an object.
pub(super) struct Unpacking {
    state: RefCell<State>,
    budget: Rc<ArchiveBudget>,
    packed_bytes: u64,
    /// The number and the checksum of the unpacked bytes according to the archive.
    claimed: Option<(u64, u32)>,
    /// The memory for the spool.
    _loan: Loan,
}

struct State {
    /// The decoder. `None` at the end of the stream.
    reader: Option<Decoder>,
    spool: Spool,
    crc: flate2::Crc,
    /// How the content differs from what the archive says. Each later read has this error, too.
    difference: Option<String>,
}

/// A decoder with its memory.
pub(super) struct Decoder {
    reader: Box<dyn Read>,
    _loan: Loan,
}

impl Decoder {
    /// Waits until the run may hold `bytes` of memory, and then makes a decoder that needs them.
    pub(super) fn new<R: Read + 'static>(
        budget: &ArchiveBudget,
        bytes: u64,
        make: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<Decoder> {
        let loan = budget.lend(bytes);
        Ok(Decoder { reader: Box::new(make()?), _loan: loan })
    }
    /// A decoder that ends after `bytes`.
    pub(super) fn take(self, bytes: u64) -> Decoder {
        Decoder { reader: Box::new(self.reader.take(bytes)), ..self }
    }
}

impl Read for Decoder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

enum Spool {
    Memory(Vec<u8>),
    File(TemporaryFile, u64),
}

impl Unpacking {
    pub(super) fn new(
        decoder: Decoder,
        packed_bytes: u64,
        claimed: Option<(u64, u32)>,
        budget: Rc<ArchiveBudget>,
    ) -> Unpacking {
        let spool = Spool::Memory(Vec::new());
        let state =
            RefCell::new(State { reader: Some(decoder), spool, crc: flate2::Crc::new(), difference: None });
        let loan = budget.lend(claimed.map_or(u64::MAX, |(size, _)| size).min(MEMORY_BYTES as u64));
        Unpacking { state, budget, packed_bytes, claimed, _loan: loan }
    }

    /// Unpacks until there are `bytes` bytes, or to the end.
    fn unpack_to(&self, bytes: u64) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        if let Some(difference) = &state.difference {
            return Err(archive_error(difference.clone()));
        }
        // A reader that knows the size reads nothing behind the last byte. The checksum is compared only at the end of the
        // stream, so the end is read together with the last byte.
        let reaches_end = self.claimed.is_some_and(|(size, _)| bytes >= size);
        let bytes = if reaches_end { u64::MAX } else { bytes };
        let mut block = Vec::new();
        while state.spool.len() < bytes {
            let Some(decoder) = &mut state.reader else { break };
            block.resize(BLOCK_BYTES, 0);
            let got = match decoder.read(&mut block) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            };
            if got == 0 {
                state.reader = None;
                let found = (state.spool.len(), state.crc.sum());
                if let Some(claimed) = self.claimed.filter(|claimed| *claimed != found) {
                    let difference = format!(
                        "its content differs from what the archive says: {} bytes with checksum {:08x}, expected {} \
                         bytes with checksum {:08x}",
                        found.0, found.1, claimed.0, claimed.1
                    );
                    state.difference = Some(difference.clone());
                    return Err(archive_error(difference));
                }
                break;
            }
            self.budget.unpack(got as u64)?;
            state.crc.update(&block[..got]);
            state.spool.append(&block[..got])?;
            check_ratio(self.packed_bytes, state.spool.len(), &self.budget)?;
        }
        Ok(())
    }
}

impl Object for Unpacking {
    fn stat(&self) -> io::Result<Stat> {
        let size = match self.claimed {
            Some((size, _)) => size,
            None => {
                self.unpack_to(u64::MAX)?;
                self.state.borrow().spool.len()
            }
        };
        Ok(Stat { size, token: Vec::new(), is_young: false })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.unpack_to(offset.saturating_add(into.len() as u64))?;
        self.state.borrow().spool.read_at(offset, into)
    }
}

impl Spool {
    fn len(&self) -> u64 {
        match self {
            Spool::Memory(bytes) => bytes.len() as u64,
            Spool::File(_, len) => *len,
        }
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Spool::Memory(held) if held.len() + bytes.len() <= MEMORY_BYTES => held.extend_from_slice(bytes),
            Spool::Memory(held) => {
                let file = TemporaryFile::new()?;
                file.write_all_at(held, 0)?;
                let len = held.len() as u64;
                *self = Spool::File(file, len);
                return self.append(bytes);
            }
            Spool::File(file, len) => {
                file.write_all_at(bytes, *len)?;
                *len += bytes.len() as u64;
            }
        }
        Ok(())
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Spool::Memory(bytes) => {
                let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
                let len = rest.len().min(into.len());
                into[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
            Spool::File(file, _) => file.read_at(into, offset),
        }
    }
}

/// Checks that `packed` bytes may unpack to `unpacked` bytes.
pub(super) fn check_ratio(packed: u64, unpacked: u64, budget: &ArchiveBudget) -> io::Result<()> {
    let ratio = budget.ratio();
    let allowed = packed.saturating_mul(ratio).saturating_add(RATIO_FREE_BYTES);
    match unpacked > allowed {
        true => Err(bound_error(format!("it unpacks to more than {ratio} times its size"))),
        false => Ok(()),
    }
}

/// The error for an archive that exceeds a bound, with this text.
pub(super) fn bound_error(text: String) -> io::Error {
    io::Error::new(ErrorKind::QuotaExceeded, text)
}

/// The error for a damaged or refused archive, with this text.
pub(super) fn archive_error(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}
