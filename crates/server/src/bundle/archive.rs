//! [`Bundle`]: entries in a tar file compressed with zstd. The first entry is a manifest with the length and the
//! SHA-256 of each other entry.
//!
//! The reader trusts nothing. It bounds sizes and counts, accepts only plain names, and requires that the entries
//! match the manifest exactly.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the manifest's entry.
const MANIFEST: &str = "manifest.json";
/// Name and version of the bundle's format, as the manifest records them.
const FORMAT: &str = "strand-bundle-1";
/// Maximum number of entries in one bundle.
const ENTRIES_MAX: usize = 256;
/// Maximum number of bytes of one entry.
const ENTRY_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of bytes of all entries together.
const BUNDLE_BYTES_MAX: u64 = 512 << 20;
/// Maximum length of an entry's name, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// Maximum decompression window that a reader allocates, as a power of 2.
const WINDOW_LOG_MAX: u32 = 27;
const ZSTD_LEVEL: i32 = 3;
/// Only the user who made a bundle may read it: it has names of keys and clients.
const FILE_MODE: u32 = 0o600;

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    /// Path of the entry in the bundle.
    pub name: String,
    /// Content of the entry.
    pub bytes: Vec<u8>,
}

/// A bundle: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Version of the program that made the bundle.
    pub version: String,
    /// Time of creation, in unix seconds.
    pub made_s: u64,
    /// All entries except the manifest, by name.
    pub entries: Vec<BundleFile>,
    manifest: Vec<u8>,
}

impl Bundle {
    /// Makes a bundle of `entries`, from which `redacted` secrets were removed.
    pub fn new(entries: Vec<BundleFile>, redacted: usize) -> Bundle {
        let made_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let version = env!("CARGO_PKG_VERSION").to_string();
        let row = |entry: &BundleFile| json!({ "name": entry.name, "bytes": entry.bytes.len(), "sha256": digest(&entry.bytes) });
        let manifest = json!({
            "form": FORMAT,
            "version": version,
            "made_s": made_s,
            "secrets_taken_out": redacted,
            "entries": entries.iter().map(row).collect::<Vec<_>>(),
        });
        Bundle { version, made_s, entries, manifest: manifest.to_string().into_bytes() }
    }
    /// The digest of the manifest, which covers the whole bundle.
    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }
    /// Writes the bundle to a new file. Returns the file's length.
    ///
    /// # Errors
    /// Errors of the system, also when the file exists.
    pub fn write(&self, path: &Path) -> io::Result<u64> {
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        let written = self.write_to(&file).and_then(|()| file.sync_all()).and_then(|()| file.metadata());
        if written.is_err() {
            // Remove a partial bundle, because it is useless.
            let _ = std::fs::remove_file(path);
        }
        written.map(|metadata| metadata.len())
    }
    /// The bundle as the bytes of a file.
    ///
    /// # Errors
    /// Errors of the compressor.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).map(|()| bytes)
    }
    fn write_to(&self, out: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(zstd::Encoder::new(out, ZSTD_LEVEL)?);
        let manifest = [(MANIFEST, &self.manifest)].into_iter();
        for (name, bytes) in manifest.chain(self.entries.iter().map(|e| (e.name.as_str(), &e.bytes))) {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(self.made_s);
            tar.append_data(&mut header, name, bytes.as_slice())?;
        }
        tar.into_inner()?.finish()?.flush()
    }
    /// Reads a bundle from a file and checks all of it.
    ///
    /// # Errors
    /// When the file cannot be read, is no bundle, or was changed.
    pub fn read(path: &Path) -> Result<Bundle, BundleError> {
        Bundle::read_from(File::open(path).map_err(BundleError::Open)?)
    }
    fn read_from(from: impl Read) -> Result<Bundle, BundleError> {
        let broken = BundleError::Broken;
        let mut decoder = zstd::Decoder::new(from).map_err(broken)?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(broken)?;
        let mut tar = tar::Archive::new(decoder.take(BUNDLE_BYTES_MAX));
        let mut entries = Vec::new();
        for entry in tar.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            if entries.len() > ENTRIES_MAX {
                return Err(BundleError::TooMany);
            }
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap_or_default();
            if !is_plain_path(&name) || !entry.header().entry_type().is_file() {
                return Err(BundleError::NoFile(name));
            }
            let mut bytes = Vec::new();
            entry.by_ref().take(ENTRY_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(broken)?;
            if bytes.len() as u64 > ENTRY_BYTES_MAX {
                return Err(BundleError::TooLong(name));
            }
            entries.push(BundleFile { name, bytes });
        }
        if entries.first().is_none_or(|first| first.name != MANIFEST) {
            return Err(BundleError::NoManifest);
        }
        let manifest = entries.remove(0).bytes;
        Bundle::check(manifest, entries)
    }
    /// Compares the entries with the manifest.
    fn check(manifest: Vec<u8>, entries: Vec<BundleFile>) -> Result<Bundle, BundleError> {
        let listed: Value = serde_json::from_slice(&manifest).map_err(BundleError::Manifest)?;
        if listed["form"] != FORMAT {
            return Err(BundleError::Form);
        }
        let rows = listed["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.len() != entries.len() {
            return Err(BundleError::Count { entries: entries.len(), rows: rows.len() });
        }
        for (row, entry) in rows.iter().zip(&entries) {
            let fits = row["name"] == entry.name.as_str()
                && row["bytes"] == entry.bytes.len()
                && row["sha256"] == digest(&entry.bytes).as_str();
            if !fits {
                return Err(BundleError::Changed(entry.name.clone()));
            }
        }
        Ok(Bundle {
            version: listed["version"].as_str().unwrap_or_default().into(),
            made_s: listed["made_s"].as_u64().unwrap_or(0),
            entries,
            manifest,
        })
    }
}

/// Why a file is not accepted as a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file cannot be opened.
    #[error("{0}")]
    Open(io::Error),
    /// The archive cannot be read.
    #[error("the file is not a bundle, or is damaged: {0}")]
    Broken(io::Error),
    /// The archive has too many entries.
    #[error("the bundle has too many entries: expected at most {ENTRIES_MAX}")]
    TooMany,
    /// An entry leads out of the archive, or is a link.
    #[error(
        "the entry {name:?} is not a regular file with a plain relative path",
        name = .0.escape_debug().to_string()
    )]
    NoFile(String),
    /// An entry is too long.
    #[error("the entry {0} is too long: expected at most {ENTRY_BYTES_MAX} bytes")]
    TooLong(String),
    /// The first entry is not the manifest.
    #[error("the bundle has no manifest: expected {MANIFEST} as its first entry")]
    NoManifest,
    /// The manifest is no JSON.
    #[error("the manifest of the bundle is not valid JSON: {0}")]
    Manifest(serde_json::Error),
    /// Another version of the program made the bundle.
    #[error("the manifest has another format: expected {FORMAT}")]
    Form,
    /// The manifest lists other entries than there are.
    #[error("the bundle has {entries} entries: expected {rows}, as in its manifest")]
    Count {
        /// The number of entries.
        entries: usize,
        /// The number of entries in the manifest.
        rows: usize,
    },
    /// An entry is not the one that the manifest lists.
    #[error("the entry {0} differs from its digest in the manifest: the bundle was changed")]
    Changed(String),
}

/// True when `name` is a relative path without `.` and `..`.
fn is_plain_path(name: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.len() <= NAME_BYTES_MAX && name.split('/').all(plain) && name.bytes().all(|b| b.is_ascii_graphic())
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle() -> Bundle {
        let entry = |name: &str, bytes: &[u8]| BundleFile { name: name.into(), bytes: bytes.to_vec() };
        Bundle::new(vec![entry("a/b.txt", b"text"), entry("c.json", &[0xff; 5000])], 3)
    }

    fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).expect("an encoder"));
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            // Sets the name directly, because `append_data` would reject a bad name.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, *bytes).expect("a vector takes everything");
        }
        tar.into_inner().and_then(zstd::Encoder::finish).expect("a vector takes everything")
    }

    #[test]
    fn a_bundle_survives_writing_and_an_existing_file_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("b.tar.zst");
        let bundle = bundle();
        assert!(bundle.write(&path).expect("it is ours") > 0);
        assert_eq!(Bundle::read(&path).expect("it was written"), bundle);
        assert_eq!(bundle.write(&path).expect_err("it is there").kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_changed_bundle_is_refused() {
        let good = bundle();
        let (manifest, second) = (good.manifest.as_slice(), good.entries[1].bytes.as_slice());
        let refused = |files: &[(&str, &[u8])], why: &str| {
            let text = Bundle::read_from(packed(files).as_slice()).expect_err("it is refused").to_string();
            assert!(text.contains(why), "{text}");
        };
        assert!(
            Bundle::read_from(
                packed(&[(MANIFEST, manifest), ("a/b.txt", b"text"), ("c.json", second)]).as_slice()
            )
            .is_ok()
        );
        refused(&[(MANIFEST, manifest), ("a/b.txt", b"tExt"), ("c.json", second)], "a/b.txt differs from");
        refused(&[(MANIFEST, manifest), ("a/b.txt", b"text")], "1 entries: expected 2");
        refused(&[(MANIFEST, manifest), ("a/b.txt", b"text"), ("c.json", second), ("d", b"")], "3 entries");
        refused(&[("a/b.txt", b"text"), (MANIFEST, manifest)], "no manifest");
        refused(&[(MANIFEST, b"{}"), ("a/b.txt", b"text")], "another format");
        refused(&[(MANIFEST, b"{"), ("a/b.txt", b"text")], "the manifest");
        for name in ["../up", "/root", "a//b", "a/./b", "a b", ""] {
            refused(&[(MANIFEST, manifest), (name, b"text")], "not a regular file");
        }
        // A bundle that is damaged or truncated anywhere gives an error, never a panic.
        let whole = packed(&[(MANIFEST, manifest), ("a/b.txt", b"text"), ("c.json", second)]);
        for at in 0..whole.len() {
            assert!(Bundle::read_from(&whole[..at]).is_err(), "{at}");
        }
        assert!(Bundle::read_from(&b"hello"[..]).is_err());
    }
}
