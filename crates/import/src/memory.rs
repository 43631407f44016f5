//! [`Memory`]: the memory of a run. A [`Lender`] bounds the memory of several runs together. Each run waits for the
//! lender before it reads a large document.

use crate::extract::DOCUMENT_BYTES_MAX;
use std::sync::Arc;

/// Bytes that a run may hold for one document without the lender's permission.
pub const FREE_BYTES: u64 = 2 << 20;
/// Bytes of memory that extraction needs for each byte of a document.
pub const MEMORY_FACTOR: u64 = 5;

/// Bytes that the extractor process holds while it waits for a document.
pub const EXTRACTOR_BYTES: u64 = 4 << 20;

/// Lends memory to a run.
pub trait Lender: Send + Sync {
    /// Waits until the run may hold `bytes` more for the document `path`.
    fn take(&self, bytes: u64, path: &[u8]);
    /// Reports that the run holds `bytes` less.
    fn give_back(&self, bytes: u64);
    /// Reports that the containers of the run take `bytes` of memory now. The lender never delays containers.
    fn containers(&self, bytes: u64);
}

/// The lender of a run. By default there is none, and the run's memory is not bounded.
#[derive(Clone, Default)]
pub struct Memory(pub Option<Arc<dyn Lender>>);

/// Borrowed bytes. The drop gives them back to the lender.
#[must_use]
#[derive(Default)]
pub(crate) struct Loan(Option<Arc<dyn Lender>>, u64);

impl Memory {
    /// Waits for the memory that a document of `size` bytes needs. An unknown size counts as the largest possible size.
    pub(crate) fn for_document(&self, size: Option<u64>, path: &[u8]) -> Loan {
        let bytes = size.unwrap_or(DOCUMENT_BYTES_MAX).min(DOCUMENT_BYTES_MAX) * MEMORY_FACTOR;
        if bytes > FREE_BYTES { self.lend(bytes, path) } else { Loan::default() }
    }

    /// Waits for the memory of a process that extracts documents. `path` is the first document.
    pub(crate) fn for_extractor(&self, path: &[u8]) -> Loan {
        self.lend(EXTRACTOR_BYTES, path)
    }

    /// Waits for `bytes` of memory for the document `path`.
    pub(crate) fn lend(&self, bytes: u64, path: &[u8]) -> Loan {
        match &self.0 {
            Some(lender) => {
                lender.take(bytes, path);
                Loan(Some(lender.clone()), bytes)
            }
            None => Loan::default(),
        }
    }

    /// Reports to the lender how many bytes the run's containers take now.
    pub(crate) fn containers(&self, bytes: usize) {
        if let Some(lender) = &self.0 {
            lender.containers(bytes as u64);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(lender) = &self.0 {
            lender.give_back(self.1);
        }
    }
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan({} bytes)", self.1)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Memory(lent)" } else { "Memory(free)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// Records the loans.
    #[derive(Default)]
    struct Notes(Mutex<(u64, u64)>);

    impl Lender for Notes {
        fn take(&self, bytes: u64, _path: &[u8]) {
            let mut notes = self.0.lock().unwrap();
            *notes = (notes.0 + bytes, notes.1.max(bytes));
        }
        fn give_back(&self, bytes: u64) {
            self.0.lock().unwrap().0 -= bytes;
        }
        fn containers(&self, _bytes: u64) {}
    }

    /// The bytes that are lent for a document of this size.
    fn lent(size: Option<u64>) -> u64 {
        let notes = Arc::new(Notes::default());
        let lender: Arc<dyn Lender> = notes.clone();
        drop(Memory(Some(lender)).for_document(size, b"x"));
        let (held, most) = *notes.0.lock().unwrap();
        assert_eq!(held, 0, "everything is given back");
        most
    }

    proptest! {
        #[test]
        fn an_unknown_size_counts_as_the_largest(size in any::<u64>()) {
            prop_assert!(lent(Some(size)) <= lent(None));
            let needed = size.min(DOCUMENT_BYTES_MAX) * MEMORY_FACTOR;
            prop_assert_eq!(lent(Some(size)), if needed > FREE_BYTES { needed } else { 0 });
        }
    }
}
