//! [`open`]: opens a file of the library redb, also when the file is damaged.
//!
//! The library creates a file in several steps. A full disk or a killed process would leave a file that the library does not
//! open again, so a new file gets its name when it is complete.
//!
//! Left out: a damaged page that only a later read, a write or the end of the run meets. The library reads most pages without
//! their checksums, and panics on some of them. A check of the whole file at each run would cost more than a small run.

use crate::sink::{folder_of, temporary_name};
use redb::{Database, DatabaseError, StorageError};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;

/// Opens or creates the file, with a cache of at most `cache_bytes`.
///
/// # Errors
/// The library's error, [`StorageError::Corrupted`] for a file of another kind. The library panics on some damaged files:
/// such a panic is an error, too.
pub(crate) fn open(path: &Path, cache_bytes: usize) -> Result<Database, DatabaseError> {
    // The hook for panics belongs to the process, so one file is opened at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let of_file = |path: &Path| {
        let opened = Database::builder().set_cache_size(cache_bytes).create(path);
        opened.map_err(|error| match error {
            DatabaseError::Storage(StorageError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                DatabaseError::Storage(StorageError::Corrupted(error.to_string()))
            }
            error => error,
        })
    };
    let usual = take_hook();
    // A damaged file is no fault of the program, so there is no report of a panic.
    set_hook(Box::new(|_| ()));
    let opened =
        catch_unwind(AssertUnwindSafe(|| if path.exists() { of_file(path) } else { create(path, &of_file) }));
    set_hook(usual);
    opened.unwrap_or_else(|_| {
        let why = "its tables contradict each other".to_owned();
        Err(DatabaseError::Storage(StorageError::Corrupted(why)))
    })
}

/// Creates the file, or opens the file that another process has created meanwhile.
fn create(
    path: &Path,
    of_file: &dyn Fn(&Path) -> Result<Database, DatabaseError>,
) -> Result<Database, DatabaseError> {
    let folder = folder_of(path);
    let io = |error: std::io::Error| DatabaseError::Storage(StorageError::Io(error));
    // As for any new file, the umask takes some of these permissions away.
    let permissions = Permissions::from_mode(0o666);
    let new = temporary_name().permissions(permissions).tempfile_in(folder).map_err(io)?;
    let database = of_file(new.path())?;
    match new.persist_noclobber(path) {
        Ok(_) => {
            // The name must survive a power failure, because the records say what the destination has.
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
            Ok(database)
        }
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => of_file(path),
        Err(error) => Err(io(error.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    const TABLE: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("t");

    #[test]
    fn a_new_file_has_its_name_when_it_is_complete() {
        let dir = TempDir::new("database");
        let path = dir.path().join("file.redb");
        // What the library leaves when it is killed at the beginning.
        std::fs::write(&path, [0; 8192]).expect("ours");
        let error = open(&path, 1 << 20).expect_err("not a database");
        assert!(matches!(error, DatabaseError::Storage(StorageError::Corrupted(_))), "{error}");
        std::fs::remove_file(&path).expect("ours");
        let database = open(&path, 1 << 20).expect("a new file");
        let names =
            || std::fs::read_dir(dir.path()).expect("ours").map(|entry| entry.expect("ours").file_name());
        assert_eq!(names().collect::<Vec<_>>(), ["file.redb"]);
        assert!(matches!(open(&path, 1 << 20), Err(DatabaseError::DatabaseAlreadyOpen)));
        drop(database);
        open(&path, 1 << 20).expect("the file is complete");
        // Two processes that create the file at a time.
        let of_file = |path: &Path| Database::builder().create(path);
        create(&path, &of_file).expect("the file of the other process");
        assert_eq!(names().collect::<Vec<_>>(), ["file.redb"]);
    }

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
