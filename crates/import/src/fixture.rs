//! For tests: a folder that is gone when its test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new one; `name` helps to find it when a test hangs.
    pub fn new(name: &str) -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strand-import-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        TempDir(path)
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Writes a file, making the folders above it.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("writable");
        std::fs::write(path, bytes).expect("writable");
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
