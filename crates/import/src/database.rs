//! [`open`]: opens a file of the library redb, also when the file is damaged.
//!
//! Left out: a damaged page that only a later read, a write or the end of the run meets. The library reads most pages without
//! their checksums, and panics on some of them. A check of the whole file at each run would cost more than a small run.

use redb::{Database, DatabaseError, StorageError};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;

/// Opens or creates the file, with a cache of at most `cache_bytes`.
///
/// # Errors
/// The library's error. The library panics on some damaged files: such a panic is an error, too.
pub(crate) fn open(path: &Path, cache_bytes: usize) -> Result<Database, DatabaseError> {
    // The hook for panics belongs to the process, so one file is opened at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let usual = take_hook();
    // A damaged file is no fault of the program, so there is no report of a panic.
    set_hook(Box::new(|_| ()));
    let opened =
        catch_unwind(AssertUnwindSafe(|| Database::builder().set_cache_size(cache_bytes).create(path)));
    set_hook(usual);
    opened.unwrap_or_else(|_| {
        let why = "its tables contradict each other".to_owned();
        Err(DatabaseError::Storage(StorageError::Corrupted(why)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("t");

    /// Zeroes each page of a file in turn. The file opens, or there is an error.
    #[test]
    fn no_damaged_page_makes_the_opening_panic() {
        let dir = TempDir::new("database");
        let path = dir.path().join("file.redb");
        let database = open(&path, 1 << 20).expect("a new file");
        let write = database.begin_write().expect("it is new");
        let mut table = write.open_table(TABLE).expect("it is new");
        (0..2000).for_each(|i| _ = table.insert(i, &[7; 100][..]).expect("there is room"));
        drop(table);
        write.commit().expect("there is room");
        drop(database);
        let whole = std::fs::read(&path).expect("ours");
        let mut errors = 0;
        for page in (0..whole.len()).step_by(4096) {
            let mut damaged = whole.clone();
            damaged[page..whole.len().min(page + 4096)].fill(0);
            std::fs::write(&path, &damaged).expect("ours");
            // The library may panic when it closes a damaged file.
            errors += usize::from(open(&path, 1 << 20).map(std::mem::forget).is_err());
        }
        assert!(errors > 0, "no damage was noticed");
    }
}
