//! For tests: a temporary folder that is removed when its test ends.

use std::path::Path;

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// A new folder. `name` helps to find the folder when a test hangs.
    pub fn new(name: &str) -> TempDir {
        let made = tempfile::Builder::new().prefix(&format!("strand-import-{name}-")).tempdir();
        TempDir(made.expect("the temporary folder is writable"))
    }
    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    /// Writes a file. Creates the folders above it.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the folder")).expect("writable");
        std::fs::write(path, bytes).expect("writable");
    }
}
