//! [`ArchiveBudget`]: bounds an archive and all archives in it: the bytes that they may unpack to, and the entries that they
//! may list. It also borrows the memory that one archive needs.

use super::bytes::bound_error;
use super::limits::ArchiveLimits;
use crate::memory::{FREE_BYTES, Loan, Memory};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Bytes of memory for an entry of a listing until the archive is closed: its name twice, its token, and its nodes in
/// two maps. Measured as the resident set of `strand import --to ndjson:/dev/null`: 100,000 messages of a mailbox hold
/// 69 MB more than two messages do, and 100,000 members of a zip 100 MB, with the containers that the run counts
/// elsewhere.
const ENTRY_BYTES: u64 = 700;

/// The budget of one archive.
#[derive(Debug)]
pub(crate) struct ArchiveBudget {
    limits: ArchiveLimits,
    /// Shared by the outermost archive and all archives in it.
    left: Rc<Remaining>,
    memory: Memory,
    /// The archive's path, for requests of memory.
    path: Vec<u8>,
    /// Maximum number of bytes that are held without a loan.
    free_bytes: u64,
    /// Bytes that are held without a loan.
    unlent_bytes: Cell<u64>,
    /// Loans that end when the archive is closed.
    loans: RefCell<Vec<Loan>>,
}

#[derive(Debug)]
struct Remaining {
    bytes: Cell<u64>,
    entries: Cell<u64>,
}

impl Remaining {
    fn of(limits: &ArchiveLimits) -> Rc<Remaining> {
        Rc::new(Remaining { bytes: Cell::new(limits.bytes), entries: Cell::new(limits.entries) })
    }
}

impl ArchiveBudget {
    /// The budget of the outermost archive at `path`.
    pub(crate) fn new(limits: ArchiveLimits, memory: Memory, path: &[u8]) -> ArchiveBudget {
        ArchiveBudget {
            limits,
            left: Remaining::of(&limits),
            memory,
            path: path.to_vec(),
            free_bytes: FREE_BYTES,
            unlent_bytes: Cell::new(0),
            loans: RefCell::default(),
        }
    }

    /// The budget of the archive at `path` in the archive of this budget. Its bytes without a loan are reduced, so that
    /// all nested archives together hold at most as many bytes without a loan as two outermost archives.
    pub(crate) fn for_inner(&self, path: &[u8]) -> ArchiveBudget {
        let free_bytes = FREE_BYTES / self.limits.depth.max(1) as u64;
        let inner = ArchiveBudget::new(self.limits, self.memory.clone(), path);
        ArchiveBudget { left: self.left.clone(), free_bytes, ..inner }
    }

    /// The budget of an archive that may unpack to `bytes`. It borrows no memory.
    pub(super) fn for_bytes(bytes: u64) -> ArchiveBudget {
        ArchiveBudget::new(ArchiveLimits { bytes, ..ArchiveLimits::default() }, Memory::default(), b"")
    }

    /// A full budget with the same limits, to list the archive again.
    pub(super) fn renewed(&self) -> ArchiveBudget {
        ArchiveBudget { left: Remaining::of(&self.limits), ..self.for_inner(&self.path) }
    }

    /// Largest ratio of unpacked bytes to packed bytes.
    pub(super) fn ratio(&self) -> u64 {
        self.limits.ratio
    }

    /// Counts bytes that were unpacked.
    pub(super) fn unpack(&self, bytes: u64) -> io::Result<()> {
        let left = self.left.bytes.get().checked_sub(bytes);
        self.left.bytes.set(left.unwrap_or(0));
        let most = self.limits.bytes;
        left.map(|_| ()).ok_or_else(|| bound_error(format!("it unpacks to more than {most} bytes")))
    }

    /// True when a hard link to an entry of `bytes` bytes may count as an entry and as unpacked bytes. Links leave half of
    /// both bounds to the other entries: an archive is not refused because of its links.
    pub(super) fn has_room_for_link(&self, bytes: u64) -> bool {
        let left_bytes = self.left.bytes.get().saturating_sub(bytes);
        left_bytes >= self.limits.bytes / 2 && self.left.entries.get() > self.limits.entries / 2
    }

    /// Counts one entry of a listing.
    pub(super) fn list(&self) -> io::Result<()> {
        let left = self.left.entries.get().checked_sub(1);
        self.left.entries.set(left.unwrap_or(0));
        let most = self.limits.entries;
        left.map(|_| ()).ok_or_else(|| bound_error(format!("it holds more than {most} entries")))?;
        self.hold(ENTRY_BYTES);
        Ok(())
    }

    /// Waits until the run may hold `bytes` more. The archive holds them until it is closed.
    pub(super) fn hold(&self, bytes: u64) {
        let unlent = self.unlent_bytes.get() + bytes;
        let is_free = unlent <= self.free_bytes;
        self.unlent_bytes.set(if is_free { unlent } else { 0 });
        if !is_free {
            self.loans.borrow_mut().push(self.memory.lend(unlent, &self.path));
        }
    }

    /// Waits until the run may hold `bytes` more. The run holds them until the loan is dropped.
    pub(super) fn lend(&self, bytes: u64) -> Loan {
        match bytes <= self.free_bytes {
            true => Loan::default(),
            false => self.memory.lend(bytes, &self.path),
        }
    }
}
