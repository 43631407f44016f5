//! The index of a cache: which parts of each object are stored, and in which order objects were used.
//!
//! The index has three tables in one redb file. Changes become durable in groups, and when the index is closed. A kill
//! loses the last group of changes, and a later run fetches these parts again. If a cache was not closed, the next
//! opening removes all files that are not in the index.

use super::error::{CacheError, OpenError};
use crate::container::digest;
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Key: the object. Value: its version, the number of its last use, and the number of its parts.
const OBJECTS: TableDefinition<u128, (u128, u64, u64)> = TableDefinition::new("objects");
/// Key: the object and the offset of a part. Value: the length and the digest of the part.
const PARTS: TableDefinition<(u128, u64), (u32, u128)> = TableDefinition::new("parts");
/// Key: the number of a use. Value: the object that was used.
const USES: TableDefinition<u64, u128> = TableDefinition::new("uses");
/// Maximum number of bytes of the index in memory.
const MEMORY_BYTES: usize = 4 << 20;
/// Maximum number of changes that are lost when the process is killed.
const CHANGES_PER_SYNC: u32 = 1024;
/// Maximum number of uses that are in memory only. The next change of the tables writes them.
const USED_MAX: usize = 1024;
/// The name of the index's file. Its time of change is the time of the cache's last use.
pub(super) const INDEX: &str = "index.redb";
/// The name of a file that exists while the cache is open. If the file exists when the cache is opened, the last
/// process did not close the cache.
const OPEN_MARK: &str = "open";

/// The path of the file with an object's version.
pub(super) fn path(folder: &Path, object: u128, version: u128) -> PathBuf {
    folder.join(format!("objects/{:02x}/{object:032x}-{version:032x}", object >> 120))
}

pub(super) struct Index {
    folder: PathBuf,
    database: Database,
    /// The number of the next use.
    next_use: u64,
    /// Objects whose use is not noted yet.
    used: BTreeSet<u128>,
    changes: u32,
}

/// Converts an error of redb.
fn index_error(error: impl Into<redb::Error>) -> CacheError {
    CacheError::Index(error.into())
}

/// Converts an error of redb that makes a new index necessary.
fn damaged(error: impl Into<redb::Error>) -> OpenError {
    OpenError::Damaged(error.into().to_string())
}

impl Index {
    /// Opens the index in `folder`. If the index cannot be read, deletes it and all files of the cache.
    pub(super) fn open(folder: &Path) -> Result<Index, OpenError> {
        let file = folder.join(INDEX);
        let is_dirty = folder.join(OPEN_MARK).exists() || !file.exists();
        let (index, is_dirty) = match Index::load(folder, &file) {
            Err(OpenError::Damaged(_)) => {
                let _ = std::fs::remove_file(&file);
                (Index::load(folder, &file)?, true)
            }
            opened => (opened?, is_dirty),
        };
        if is_dirty {
            index.sweep().map_err(damaged)?;
        }
        std::fs::write(folder.join(OPEN_MARK), b"").map_err(OpenError::Io)?;
        Ok(index)
    }

    fn load(folder: &Path, file: &Path) -> Result<Index, OpenError> {
        let database = crate::database::open(file, MEMORY_BYTES)?;
        let write = database.begin_write().map_err(damaged)?;
        let next_use = {
            write.open_table(OBJECTS).map_err(damaged)?;
            write.open_table(PARTS).map_err(damaged)?;
            let uses = write.open_table(USES).map_err(damaged)?;
            let last = uses.last().map_err(damaged)?.map(|(number, _)| number.value());
            last.map_or(0, |last| last.saturating_add(1))
        };
        write.commit().map_err(damaged)?;
        Ok(Index { folder: folder.to_path_buf(), database, next_use, used: BTreeSet::new(), changes: 0 })
    }

    /// Returns the length and the digest of a part.
    pub(super) fn find(
        &mut self,
        object: u128,
        version: u128,
        offset: u64,
    ) -> Result<Option<(u32, u128)>, CacheError> {
        let read = self.database.begin_read().map_err(index_error)?;
        let objects = read.open_table(OBJECTS).map_err(index_error)?;
        let known = objects.get(object).map_err(index_error)?.map(|entry| entry.value().0);
        if known != Some(version) {
            return Ok(None);
        }
        let parts = read.open_table(PARTS).map_err(index_error)?;
        let part = parts.get((object, offset)).map_err(index_error)?.map(|entry| entry.value());
        if part.is_some() {
            self.used.insert(object);
            if self.used.len() > USED_MAX {
                self.change(|_, _| Ok(()))?;
            }
        }
        Ok(part)
    }

    /// Notes that a part was written into the object's file. Removes an older version of the object.
    pub(super) fn insert(
        &mut self,
        object: u128,
        version: u128,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), CacheError> {
        let len = u32::try_from(bytes.len()).expect("a part has at most PART_BYTES_MAX bytes");
        let part = (len, u128::from_le_bytes(digest(bytes)));
        let folder = self.folder.clone();
        self.change(|write, next_use| {
            let known = write
                .open_table(OBJECTS)
                .map_err(index_error)?
                .get(object)
                .map_err(index_error)?
                .map(|e| e.value());
            let is_other = known.is_some_and(|(known, ..)| known != version);
            if is_other {
                remove(write, &folder, object)?;
            }
            let before = known.filter(|_| !is_other);
            let mut uses = write.open_table(USES).map_err(index_error)?;
            if let Some((_, used, _)) = before {
                uses.remove(used).map_err(index_error)?;
            }
            uses.insert(*next_use, object).map_err(index_error)?;
            let count = before.map_or(0, |(_, _, parts)| parts) + 1;
            let mut objects = write.open_table(OBJECTS).map_err(index_error)?;
            objects.insert(object, (version, *next_use, count)).map_err(index_error)?;
            *next_use += 1;
            let mut parts = write.open_table(PARTS).map_err(index_error)?;
            parts.insert((object, offset), part).map_err(index_error)?;
            Ok(())
        })
    }

    /// Removes the object, whatever its version.
    pub(super) fn remove(&mut self, object: u128) -> Result<(), CacheError> {
        let folder = self.folder.clone();
        self.used.remove(&object);
        self.change(|write, _| remove(write, &folder, object))
    }

    /// Removes the object that was not used for the longest time. Returns false when there is no object.
    pub(super) fn remove_oldest(&mut self) -> Result<bool, CacheError> {
        let folder = self.folder.clone();
        self.change(|write, _| {
            let first = write
                .open_table(USES)
                .map_err(index_error)?
                .first()
                .map_err(index_error)?
                .map(|(_, o)| o.value());
            let Some(object) = first else { return Ok(false) };
            remove(write, &folder, object)?;
            Ok(true)
        })
    }

    /// Changes the tables in one transaction. The transaction also writes the uses since the last change.
    fn change<T>(
        &mut self,
        make: impl FnOnce(&WriteTransaction, &mut u64) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        let mut write = self.database.begin_write().map_err(index_error)?;
        self.changes += 1;
        let is_synced = self.changes >= CHANGES_PER_SYNC;
        let durability = if is_synced { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(index_error)?;
        for object in std::mem::take(&mut self.used) {
            let mut objects = write.open_table(OBJECTS).map_err(index_error)?;
            let known = objects.get(object).map_err(index_error)?.map(|entry| entry.value());
            let Some((version, used, parts)) = known else { continue };
            let mut uses = write.open_table(USES).map_err(index_error)?;
            uses.remove(used).map_err(index_error)?;
            uses.insert(self.next_use, object).map_err(index_error)?;
            objects.insert(object, (version, self.next_use, parts)).map_err(index_error)?;
            self.next_use += 1;
        }
        let made = make(&write, &mut self.next_use)?;
        write.commit().map_err(index_error)?;
        if is_synced {
            self.changes = 0;
        }
        Ok(made)
    }

    /// Removes the files that are not in the index.
    fn sweep(&self) -> Result<(), redb::Error> {
        let read = self.database.begin_read()?;
        let objects = read.open_table(OBJECTS)?;
        let Ok(folders) = std::fs::read_dir(self.folder.join("objects")) else { return Ok(()) };
        for folder in folders.flatten() {
            for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let name = file.file_name();
                let known = name.to_str().and_then(|name| {
                    let (object, version) = name.split_once('-')?;
                    let object = u128::from_str_radix(object, 16).ok()?;
                    let version = u128::from_str_radix(version, 16).ok()?;
                    let entry = objects.get(object).ok()??;
                    (entry.value().0 == version).then_some(())
                });
                if known.is_none() {
                    let _ = std::fs::remove_file(file.path());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // Make the last changes durable. If that fails, parts are fetched again.
        self.changes = CHANGES_PER_SYNC;
        if self.change(|_, _| Ok(())).is_ok() {
            let _ = std::fs::remove_file(self.folder.join(OPEN_MARK));
        }
    }
}

/// Removes the object from all tables, and its file from the disk.
fn remove(write: &WriteTransaction, folder: &Path, object: u128) -> Result<(), CacheError> {
    let mut objects = write.open_table(OBJECTS).map_err(index_error)?;
    let Some((version, used, _)) = objects.remove(object).map_err(index_error)?.map(|entry| entry.value())
    else {
        return Ok(());
    };
    write.open_table(USES).map_err(index_error)?.remove(used).map_err(index_error)?;
    let mut parts = write.open_table(PARTS).map_err(index_error)?;
    parts.retain_in((object, 0)..=(object, u64::MAX), |_, _| false).map_err(index_error)?;
    let path = path(folder, object, version);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(CacheError::File { path, error }),
        _ => Ok(()),
    }
}
