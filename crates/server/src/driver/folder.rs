//! [`DiskFolder`]: the folder of an append-only file on the disk.
//!
//! The folder is opened once, with an absolute path, so CONFIG SET dir does not move it. A lock keeps other servers
//! out.

use super::disk::{self, DirLock};
use super::page_cache::PageCache;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use strand_engine::{AppendFile, Folder, OpenedFile, SyncFile, WriteFile};

/// Rights of a new folder, before the umask.
const FOLDER_MODE: u32 = 0o755;

/// The folder of an append-only file: see the module.
#[derive(Debug)]
pub struct DiskFolder {
    /// Path that the process's working folder had when this folder was opened.
    parent: PathBuf,
    path: PathBuf,
    _lock: DirLock,
}

impl DiskFolder {
    /// Opens the folder `name` in the working folder, and creates it if it is missing. `file` is the name of the
    /// append-only file.
    ///
    /// # Errors
    /// Errors of the system. `WouldBlock` when another server has the folder.
    pub fn open(name: &str, file: &str) -> io::Result<Arc<dyn Folder>> {
        let parent = std::env::current_dir()?;
        let path = parent.join(name);
        match DirBuilder::new().mode(FOLDER_MODE).create(&path) {
            Ok(()) => disk::sync_folder(&parent)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(e) => {
                let todo = disk::advice(&e, &parent);
                let why = format!("it cannot be made in {}: {e}. {todo}", parent.display());
                return Err(io::Error::new(e.kind(), why));
            }
        }
        let lock = DirLock::acquire(&path, file).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => {
                io::Error::other(format!("{e} writes there: give this server another dir"))
            }
            kind => {
                let lock = disk::lock_path(&path, file);
                let todo = disk::advice(&e, &path);
                io::Error::new(kind, format!("its lock file {} cannot be used: {e}. {todo}", lock.display()))
            }
        })?;
        let left = disk::remove_leftovers(&path, |name| is_replaced(name, file));
        if left > 0 {
            tracing::info!("removed {left} unfinished files of a killed server from {}", path.display());
        }
        Ok(Arc::new(DiskFolder { parent, path, _lock: lock }))
    }
}

impl Folder for DiskFolder {
    fn open(&self, name: &str) -> io::Result<Option<OpenedFile>> {
        let path = self.path.join(name);
        disk::open_at(&path).map_err(|e| disk::with_path(e, &path))
    }
    fn replace(&self, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
        disk::replace(&self.path, name, in_parts, write)
    }
    fn sync(&self) -> io::Result<()> {
        disk::sync_folder(&self.path)
    }
    fn append_to(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path.join(name);
        let file = openat(rustix::fs::CWD, &path, flags, Mode::from_raw_mode(0o644));
        let file = File::from(file.map_err(|e| disk::with_path(e.into(), &path))?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        // The new name must be on the disk before any content of the file counts as saved.
        self.sync()?;
        let file = Arc::new(OnDisk { file, cache: PageCache::default() });
        Ok(Box::new(AppendOnDisk { file, bytes: metadata.len() }))
    }
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()> {
        let file = File::options().write(true).open(self.path.join(name))?;
        file.set_len(bytes)?;
        file.sync_all()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
    fn adopt(&self, name: &str) -> io::Result<()> {
        std::fs::rename(self.parent.join(name), self.path.join(name))?;
        self.sync()?;
        disk::sync_folder(&self.parent)
    }
}

/// True for the names of files that [`Folder::replace`] writes for the append-only file `file`: the manifest and bases.
fn is_replaced(name: &str, file: &str) -> bool {
    let Some(rest) = name.strip_prefix(file).and_then(|rest| rest.strip_prefix('.')) else { return false };
    let base = rest.strip_suffix(".base.rdb").or_else(|| rest.strip_suffix(".base.aof"));
    rest == "manifest" || base.is_some_and(|seq| seq.parse::<u64>().is_ok())
}

/// A file that is appended to.
struct AppendOnDisk {
    file: Arc<OnDisk>,
    bytes: u64,
}

struct OnDisk {
    file: File,
    cache: PageCache,
}

impl AppendFile for AppendOnDisk {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn append(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let wrote = (&self.file.file).write_vectored(slices)?;
        self.bytes += wrote as u64;
        Ok(wrote)
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.file.set_len(bytes)?;
        self.bytes = bytes;
        Ok(())
    }
    fn sync_file(&self) -> Arc<dyn SyncFile> {
        self.file.clone()
    }
}

impl SyncFile for OnDisk {
    fn sync(&self) -> io::Result<()> {
        // Bytes that are added during the sync may still be only in memory, so read the length before.
        let before = self.file.metadata().map_or(0, |metadata| metadata.len());
        self.file.sync_data()?;
        self.cache.drop_synced(&self.file, before);
        Ok(())
    }
}
