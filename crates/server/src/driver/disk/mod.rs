//! Snapshots as files. [`replace`] replaces a file, [`open`] reads one, and a [`DirLock`] keeps a second server
//! from writing the same file.
//!
//! A new file is written under a temporary name in the same folder, created with O_EXCL (which never follows a
//! link), synced, and renamed. So a crash, a full disk or an error leaves the old file unchanged. [`sync_folder`] puts
//! the new name on the disk.

use super::page_cache::PageCache;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use strand_engine::{OpenedFile, ScratchFile, WriteFile};

/// A file written in parts is synced each time this number of bytes was written, as in redis-server.
const SYNC_BYTES: usize = 4 << 20;
/// Maximum number of syncs that may be queued while writing continues. Old versions of records that clients change are
/// kept in memory until they are written, so a writer that waited for each sync would keep more of them. On a disk
/// without other load, one of many syncs took a second.
const SYNCS_AHEAD_MAX: usize = 16;
/// Number of bytes that are read from a file at a time.
const READ_BYTES: usize = 1 << 20;
/// Suffix of temporary files. The next server removes those that a killed server left.
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Number of random characters in the names of temporary files.
const RANDOM_CHARS: usize = 6;
/// Maximum number of attempts to take a lock, because an ending server may remove the lock's file while another server
/// opens the file.
const LOCK_TRIES_MAX: usize = 100;

/// Replaces the file `name` in `folder`, an absolute path, by what `write` writes. Until [`sync_folder`] a crash may bring
/// the old file back.
///
/// # Errors
/// Errors of `write` and of the system. The old file is unchanged, and no temporary file stays.
pub fn replace(folder: &Path, name: &str, in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
    let mut temporary = tempfile::Builder::new()
        .prefix(&format!("{name}."))
        .suffix(TEMPORARY_SUFFIX)
        .rand_bytes(RANDOM_CHARS)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(folder)?;
    if in_parts {
        write_and_sync(temporary.as_file(), write)?;
    } else {
        write(temporary.as_file_mut())?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(folder.join(name)).map(drop).map_err(|e| e.error)
}

/// Writes what `write` writes to a file without a name in `folder`.
///
/// # Errors
/// Errors of `write` and of the system.
pub fn write_scratch(folder: &Path, write: &mut WriteFile<'_>) -> io::Result<Scratch> {
    let mut file = tempfile::tempfile_in(folder)?;
    write(&mut file)?;
    let bytes = file.metadata()?.len();
    Ok(Scratch { file, bytes })
}

/// A file without a name.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    bytes: u64,
}

impl ScratchFile for Scratch {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, target: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, target, at)
    }
}

/// Returns when the names of all files in `folder` are on the disk.
///
/// # Errors
/// Errors of the system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Writes a file while another thread syncs it.
fn write_and_sync(file: &File, write: &mut WriteFile<'_>) -> io::Result<()> {
    thread::scope(|scope| {
        let (ask, asked) = mpsc::sync_channel(SYNCS_AHEAD_MAX);
        let cache = PageCache::default();
        let sync = move || {
            asked.iter().try_for_each(|written: u64| {
                file.sync_data()?;
                cache.drop_synced(file, written);
                Ok(())
            })
        };
        let syncs = thread::Builder::new().name("save-sync".into()).spawn_scoped(scope, sync)?;
        let mut synced = Synced { file, ask, bytes: 0, unsynced_bytes: 0 };
        let wrote = write(&mut synced);
        drop(synced);
        // A failed write may be the consequence of a failed sync, so report the sync's error first.
        syncs.join().expect("a sync does not panic").and(wrote)
    })
}

/// A file that another thread syncs while this thread writes the file.
struct Synced<'f> {
    file: &'f File,
    /// The channel by which the syncing thread learns the number of bytes written so far.
    ask: mpsc::SyncSender<u64>,
    bytes: u64,
    unsynced_bytes: usize,
}

impl Write for Synced<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wrote = self.file.write(bytes)?;
        self.bytes += wrote as u64;
        self.unsynced_bytes += wrote;
        if self.unsynced_bytes >= SYNC_BYTES {
            self.ask
                .send(self.bytes)
                .map_err(|_| io::Error::other("the file cannot be synced: an earlier sync has failed"))?;
            self.unsynced_bytes = 0;
        }
        Ok(wrote)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens the file `name` in the working folder. Also returns its length. `None` when it does not exist.
///
/// # Errors
/// Errors of the system, also when it is not a regular file.
pub fn open(name: &str) -> io::Result<Option<OpenedFile>> {
    if name.is_empty() { Ok(None) } else { open_at(Path::new(name)) }
}

/// Opens a file. Also returns its length. `None` when it does not exist.
///
/// # Errors
/// As [`open`].
pub fn open_at(path: &Path) -> io::Result<Option<OpenedFile>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(Some((Box::new(BufReader::with_capacity(READ_BYTES, file)), metadata.len())))
}

/// Keeps another server from writing the same snapshot. The lock is a kernel lock on a file beside the snapshot,
/// so it ends with the process in every case.
#[derive(Debug)]
pub struct DirLock {
    file: File,
    path: PathBuf,
}

impl DirLock {
    /// Locks `name` in `folder`, an absolute path.
    ///
    /// # Errors
    /// `WouldBlock` when another server has the lock, with the text `another server (process N)`. Otherwise errors of
    /// the system.
    pub fn acquire(folder: &Path, name: &str) -> io::Result<DirLock> {
        let path = lock_path(folder, name);
        for _ in 0..LOCK_TRIES_MAX {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(openat(rustix::fs::CWD, &path, flags, Mode::from_raw_mode(0o644))?);
            if let Err(e) = flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                let e = io::Error::from(e);
                if e.kind() != io::ErrorKind::WouldBlock {
                    return Err(e);
                }
                let mut pid = String::new();
                let _ = file.take(32).read_to_string(&mut pid);
                let holder = match pid.trim() {
                    "" => "another server".to_owned(),
                    pid => format!("another server (process {pid})"),
                };
                return Err(io::Error::new(io::ErrorKind::WouldBlock, holder));
            }
            // The former owner may have removed the file between open and lock. Then this lock protects nothing,
            // because another server can lock a new file with this name.
            if is_at(&file, &path) {
                file.set_len(0)?;
                file.rewind()?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(DirLock { file, path });
            }
        }
        Err(io::Error::other("the lock file was replaced at each attempt to lock it"))
    }
    /// True when this is the lock of `name` in `folder`. The folder may have been renamed since the lock was taken. A
    /// lock whose file somebody has removed is nobody's.
    pub fn is_for(&mut self, folder: &Path, name: &str) -> bool {
        let path = lock_path(folder, name);
        let is_ours = is_at(&self.file, &path);
        if is_ours {
            self.path = path;
        }
        is_ours
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Remove the file while it is locked, so nobody can lock it before it is gone. Another file at the path is
        // another server's.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
        let _ = flock(self.file.as_fd(), FlockOperation::Unlock);
    }
}

/// What helps against `error`, which the system gave for a file that was to be written in `folder`.
pub fn advice(error: &io::Error, folder: &Path) -> String {
    let folder = folder.display();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("Make room in {folder}: `df -h` shows free bytes, `df -i` free inodes, `quota` the quota")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("{folder} is mounted read-only: mount it to be written, or give a dir on another disk")
        }
        _ => format!(
            "Give a dir that this server may write to: the user that runs the server needs the rights w and x for {folder}, \
             and rw for the files in it"
        ),
    }
}

/// `error` with the path of the file and with the rights that are missing, unless the text is not the system's own. The
/// kind stays.
pub fn with_path(error: io::Error, path: &Path) -> io::Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    let rights = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". The user that runs the server needs the rights r and w for the file, and x for its folders"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{rights}", path.display()))
}

/// True when `file` is the file at `path`.
pub fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::metadata(path);
    there.is_ok_and(|there| {
        file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    })
}

/// Path of the lock file of [`DirLock::acquire`].
pub fn lock_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.lock"))
}

/// Removes the temporary files that a killed server left. `is_ours` takes the name of the file that [`replace`] was to
/// write. The caller has the [`DirLock`], so no other server writes these files. Returns the number of removed files.
pub fn remove_leftovers(folder: &Path, is_ours: impl Fn(&str) -> bool) -> usize {
    let is_left = |path: &Path| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let parts = file.strip_suffix(TEMPORARY_SUFFIX).and_then(|rest| rest.rsplit_once('.'));
        let (name, random) = parts.unwrap_or_default();
        random.len() == RANDOM_CHARS
            && random.bytes().all(|b| b.is_ascii_alphanumeric())
            && is_ours(name)
            && path.symlink_metadata().is_ok_and(|m| m.is_file())
    };
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let left = entries.flatten().map(|entry| entry.path()).filter(|path| is_left(path));
    left.filter(|path| std::fs::remove_file(path).is_ok()).count()
}

#[cfg(test)]
mod tests;
