//! [`Budget`]: the bytes and entries that an archive, and all archives in it, may still unpack and list, and the memory
//! that one archive holds.

use super::bytes::refused;
use super::limits::ArchiveLimits;
use crate::memory::{FREE_BYTES, Loan, Memory};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// Bytes that an entry of a listing holds until the archive is closed: its name twice, its token, and its places in two
/// maps. Measured as the resident set of `strand import --to ndjson:/dev/null`: 100,000 messages of a mailbox hold 69 MB
/// more than two messages do, and 100,000 members of a zip 100 MB, with the containers that the run counts elsewhere.
const ENTRY_BYTES: u64 = 700;

/// The budget of one archive.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: ArchiveLimits,
    /// Shared with the archives in this one, and with the archives that this one lies in.
    left: Rc<Left>,
    memory: Memory,
    /// The archive's path, for those who wait for its memory.
    path: Vec<u8>,
    /// Bytes that are held without a loan, at most.
    free_bytes: u64,
    /// Bytes that are held, and that no loan covers yet.
    unlent_bytes: Cell<u64>,
    /// Loans that end when the archive is closed.
    loans: RefCell<Vec<Loan>>,
}

#[derive(Debug)]
struct Left {
    bytes: Cell<u64>,
    entries: Cell<u64>,
}

impl Left {
    fn of(limits: &ArchiveLimits) -> Rc<Left> {
        Rc::new(Left { bytes: Cell::new(limits.bytes), entries: Cell::new(limits.entries) })
    }
}

impl Budget {
    /// The budget of the outermost archive at `path`.
    pub(crate) fn new(limits: ArchiveLimits, memory: Memory, path: &[u8]) -> Budget {
        Budget {
            limits,
            left: Left::of(&limits),
            memory,
            path: path.to_vec(),
            free_bytes: FREE_BYTES,
            unlent_bytes: Cell::new(0),
            loans: RefCell::default(),
        }
    }

    /// The budget of the archive at `path`, which lies in the archive of this budget. All archives that are open at once
    /// hold together no more without a loan than two outermost archives would.
    pub(crate) fn within(&self, path: &[u8]) -> Budget {
        let free_bytes = FREE_BYTES / self.limits.depth.max(1) as u64;
        let inner = Budget::new(self.limits, self.memory.clone(), path);
        Budget { left: self.left.clone(), free_bytes, ..inner }
    }

    /// The budget of an archive that may unpack to `bytes`. Its memory is not counted.
    pub(super) fn of(bytes: u64) -> Budget {
        Budget::new(ArchiveLimits { bytes, ..ArchiveLimits::default() }, Memory::default(), b"")
    }

    /// A budget for listing the archive once more.
    pub(super) fn renewed(&self) -> Budget {
        Budget { left: Left::of(&self.limits), ..self.within(&self.path) }
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
        left.map(|_| ()).ok_or_else(|| refused(format!("it unpacks to more than {most} bytes")))
    }

    /// Counts one entry of a listing.
    pub(super) fn list(&self) -> io::Result<()> {
        let left = self.left.entries.get().checked_sub(1);
        self.left.entries.set(left.unwrap_or(0));
        let most = self.limits.entries;
        left.map(|_| ()).ok_or_else(|| refused(format!("it holds more than {most} entries")))?;
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

    /// Waits until the run may hold `bytes` more. They are held as long as the loan.
    pub(super) fn lend(&self, bytes: u64) -> Loan {
        match bytes <= self.free_bytes {
            true => Loan::default(),
            false => self.memory.lend(bytes, &self.path),
        }
    }
}
