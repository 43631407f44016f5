//! [`IndexDirectory`]: the files of a text index in memory, with a lock that threads wait for without a pause.
//!
//! A reader that loads the index and the removal of old files exclude each other. The library's own lock is a file: a
//! thread that finds the file sleeps for 100 ms and looks again. So some searches took 100 ms longer, about one in 150 of
//! those that follow a write. A thread that waits for this directory's lock is woken when the lock is free.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, FileSlice, Lock, RamDirectory, WatchCallback, WatchHandle, WritePtr,
};

/// The files of one index. Clones share the files and the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexDirectory {
    files: RamDirectory,
    lock: Arc<WaitingLock>,
}

impl IndexDirectory {
    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> usize {
        self.files.total_mem_usage()
    }
}

/// True while a thread has the lock.
#[derive(Debug, Default)]
struct WaitingLock {
    is_held: Mutex<bool>,
    released: Condvar,
}

/// Has the lock until it is dropped, on any thread.
struct Held(Arc<WaitingLock>);

impl Held {
    fn wait_for(lock: &Arc<WaitingLock>) -> Held {
        let mut is_held = lock.is_held.lock();
        lock.released.wait_while(&mut is_held, |is_held| *is_held);
        *is_held = true;
        Held(lock.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.0.is_held.lock() = false;
        self.0.released.notify_one();
    }
}

impl Directory for IndexDirectory {
    /// Waits for the lock of [`IndexDirectory`] if `lock` may be waited for. The library has one lock of this kind.
    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        match lock.is_blocking {
            true => Ok(DirectoryLock::from(Box::new(Held::wait_for(&self.lock)))),
            false => self.files.acquire_lock(lock),
        }
    }
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.files.get_file_handle(path)
    }
    fn open_read(&self, path: &Path) -> Result<FileSlice, OpenReadError> {
        self.files.open_read(path)
    }
    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.files.delete(path)
    }
    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.files.exists(path)
    }
    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.files.open_write(path)
    }
    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.files.atomic_read(path)
    }
    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.files.atomic_write(path, data)
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }
    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.files.watch(callback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tantivy::directory::{INDEX_WRITER_LOCK, META_LOCK};

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
