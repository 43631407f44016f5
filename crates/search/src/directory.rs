//! [`IndexDirectory`]: the files of a text index in memory, with a lock that threads wait for without a pause.
//! [`Directories`]: all of them, and how many of their bytes pass.
//!
//! A reader that loads the index and the removal of old files exclude each other. The library's own lock is a file: a
//! thread that finds the file sleeps for 100 ms and looks again. So some searches took 100 ms longer, about one in 150 of
//! those that follow a write. A thread that waits for this directory's lock is woken when the lock is free.
//!
//! The files of a dropped index stay in memory while a merge writes or a search reads. No eviction frees them.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, FileSlice, Lock, RamDirectory, WatchCallback, WatchHandle, WritePtr,
};

/// The directories of all text indexes, those of dropped indexes too while something uses their files.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<Vec<Weak<Shared>>>);

impl Directories {
    /// A new, empty directory.
    pub(crate) fn create(&self) -> IndexDirectory {
        let directory = IndexDirectory::default();
        self.0.lock().push(Arc::downgrade(&directory.0));
        directory
    }
    /// Bytes that are free soon, without an eviction (estimated): deleted documents that a merge will drop, segments that
    /// are merged, their merged segment, and all files of dropped indexes.
    pub(crate) fn passing_bytes(&self) -> usize {
        self.alive().iter().map(|shared| shared.passing_bytes()).sum()
    }
    /// Bytes of the files of dropped indexes.
    pub(crate) fn dropped_bytes(&self) -> usize {
        let all = self.alive();
        let dropped = all.iter().filter(|shared| shared.is_dropped.load(Relaxed));
        dropped.map(|shared| shared.files.total_mem_usage()).sum()
    }
    /// Bytes of the segments that are merged now.
    pub(crate) fn merging_bytes(&self) -> usize {
        self.alive().iter().map(|shared| shared.merging_bytes.load(Relaxed)).sum()
    }
    fn alive(&self) -> Vec<Arc<Shared>> {
        let mut all = self.0.lock();
        let alive: Vec<Arc<Shared>> = all.iter().filter_map(Weak::upgrade).collect();
        if alive.len() < all.len() {
            *all = alive.iter().map(Arc::downgrade).collect();
        }
        alive
    }
}

/// The files of one index. Clones share the files, the lock and the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexDirectory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: RamDirectory,
    lock: WaitingLock,
    is_dropped: AtomicBool,
    /// See [`IndexDirectory::set_lasting_bytes`].
    lasting_bytes: AtomicUsize,
    /// Bytes of the segments that are merged. 0: no merge runs.
    merging_bytes: AtomicUsize,
    /// Bytes of all files when the merge was started.
    unmerged_bytes: AtomicUsize,
}

impl Shared {
    fn passing_bytes(&self) -> usize {
        let now = self.files.total_mem_usage();
        let lasting = if self.is_dropped.load(Relaxed) { 0 } else { self.lasting_bytes.load(Relaxed) };
        // While a merge runs, the merged segment grows among the files. When the merge has ended, the old segments are no
        // files, but the searcher still has them.
        let grown = now.saturating_sub(self.unmerged_bytes.load(Relaxed));
        let merging = self.merging_bytes.load(Relaxed);
        // Beside the files, the library needs memory for a merge: with nothing for it, a limit of 64 MB kept a fifth fewer
        // keys beside an index of 20 MB.
        now.saturating_sub(lasting) + merging.saturating_sub(grown) + merging / 2
    }
}

impl IndexDirectory {
    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> usize {
        self.0.files.total_mem_usage()
    }
    /// Sets the bytes of the segments without the deleted documents that a merge will drop.
    pub(crate) fn set_lasting_bytes(&self, bytes: usize) {
        self.0.lasting_bytes.store(bytes, Relaxed);
    }
    /// Sets the bytes of the segments that are merged. 0: no merge runs.
    pub(crate) fn set_merging_bytes(&self, bytes: usize) {
        if bytes > 0 && self.0.merging_bytes.load(Relaxed) == 0 {
            self.0.unmerged_bytes.store(self.bytes(), Relaxed);
        }
        self.0.merging_bytes.store(bytes, Relaxed);
    }
    /// Says that the index is dropped: all files go when nothing uses them any longer.
    pub(crate) fn set_dropped(&self) {
        self.0.is_dropped.store(true, Relaxed);
    }
}

/// True while a thread has the lock.
#[derive(Debug, Default)]
struct WaitingLock {
    is_held: Mutex<bool>,
    released: Condvar,
}

/// Has the lock until it is dropped, on any thread.
struct Held(Arc<Shared>);

impl Held {
    fn wait_for(shared: &Arc<Shared>) -> Held {
        let mut is_held = shared.lock.is_held.lock();
        shared.lock.released.wait_while(&mut is_held, |is_held| *is_held);
        *is_held = true;
        Held(shared.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.lock.is_held.lock() = false;
        self.0.lock.released.notify_one();
    }
}

impl Directory for IndexDirectory {
    /// Waits for the lock of [`IndexDirectory`] if `lock` may be waited for. The library has one lock of this kind.
    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        match lock.is_blocking {
            true => Ok(DirectoryLock::from(Box::new(Held::wait_for(&self.0)))),
            false => self.0.files.acquire_lock(lock),
        }
    }
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.0.files.get_file_handle(path)
    }
    fn open_read(&self, path: &Path) -> Result<FileSlice, OpenReadError> {
        self.0.files.open_read(path)
    }
    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.0.files.delete(path)
    }
    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.0.files.exists(path)
    }
    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.0.files.open_write(path)
    }
    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.0.files.atomic_read(path)
    }
    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.0.files.atomic_write(path, data)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.0.files.sync_directory()
    }
    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.0.files.watch(callback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use tantivy::directory::{INDEX_WRITER_LOCK, META_LOCK};

    /// A directory with a file of this number of bytes.
    fn with_file(directories: &Directories, bytes: usize) -> IndexDirectory {
        let directory = directories.create();
        directory.atomic_write(Path::new("file"), &vec![0; bytes]).expect("a file in memory");
        directory
    }

    #[test]
    fn bytes_pass_while_a_merge_runs_and_when_the_index_is_dropped() {
        let directories = Directories::default();
        let directory = with_file(&directories, 1000);
        directory.set_lasting_bytes(900);
        assert_eq!((directories.passing_bytes(), directories.merging_bytes()), (100, 0));
        // The merged segment is as large as its segments, and half of it is memory of the library.
        directory.set_merging_bytes(400);
        assert_eq!((directories.passing_bytes(), directories.merging_bytes()), (100 + 600, 400));
        directory.atomic_write(Path::new("merged"), &[0; 300]).expect("a file in memory");
        assert_eq!(directories.passing_bytes(), 100 + 300 + 100 + 200);
        directory.set_merging_bytes(0);
        assert_eq!((directories.passing_bytes(), directories.dropped_bytes()), (400, 0));
        let user = directory.clone();
        directory.set_dropped();
        drop(directory);
        assert_eq!((directories.passing_bytes(), directories.dropped_bytes()), (1300, 1300));
        let _other = with_file(&directories, 10);
        drop(user);
        assert_eq!((directories.passing_bytes(), directories.dropped_bytes()), (10, 0));
        assert_eq!(directories.0.lock().len(), 1, "nothing is left of the directory without users");
    }

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let (directory, inside) = (IndexDirectory::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _held = directory.clone().acquire_lock(&META_LOCK).expect("the lock");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let writer = directory.acquire_lock(&INDEX_WRITER_LOCK).expect("the writer's lock");
        assert!(directory.acquire_lock(&INDEX_WRITER_LOCK).is_err(), "nobody waits for this lock");
        drop(writer);
        directory.acquire_lock(&INDEX_WRITER_LOCK).expect("the lock is free again");
    }
}
