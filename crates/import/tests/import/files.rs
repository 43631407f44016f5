//! Temporary folders for tests, and mail messages to write into them.

use std::path::{Path, PathBuf};

/// A temporary folder.
pub struct Tree(tempfile::TempDir);

impl Tree {
    /// A folder with these files.
    pub fn new(files: &[(&str, &str)]) -> Tree {
        let made = tempfile::Builder::new().prefix("strand-import-it-").tempdir();
        let tree = Tree(made.expect("the temporary folder is writable"));
        files.iter().for_each(|(name, text)| tree.write(name, text));
        tree
    }
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
    /// Writes a file, making the folders above it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().expect("below the tree")).expect("writable");
        std::fs::write(path, text).expect("writable");
    }
    pub fn remove(&self, name: &str) {
        let path = self.at(name);
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
            .expect("it was there");
    }
    /// A copy of the folder: equal bytes at other inodes, with other times.
    pub fn copy(&self) -> Tree {
        let copy = Tree::new(&[]);
        let done = std::process::Command::new("cp").arg("-r").arg(self.at(".")).arg(copy.path()).status();
        assert!(done.expect("cp runs").success());
        copy
    }
}

/// A small message.
pub fn mail(subject: &str, body: &str) -> String {
    format!(
        "From: Ada <ada@example.org>\nTo: bo@example.net\nSubject: {subject}\nDate: Mon, 6 Jan 2025 10:00:00 +0000\n\n{body}\n"
    )
}
