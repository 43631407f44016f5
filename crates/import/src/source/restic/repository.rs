//! [`Repository`]: the files of a restic repository in a local folder, opened with a password.
//!
//! Snapshots and index files are sealed JSON ([`super::crypto`]). Sealed blobs are in pack files, at offsets that the
//! index has. In format 2, blobs and files may be compressed by zstd. A blob's id is the SHA-256 of its bytes. Each
//! read checks the id.

use super::crypto::{Key, SEAL_BYTES};
use crate::calendar;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The id of a blob, a pack or a file.
pub(super) type Id = [u8; 32];

/// Maximum number of bytes of a blob. restic's data blobs have up to 8 MiB. A tree blob grows with its folder.
pub(super) const BLOB_BYTES_MAX: u32 = 256 << 20;
/// Maximum number of bytes of a snapshot, key or index file, packed or unpacked.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of files of one folder of the repository.
const FILES_MAX: usize = 1_000_000;
/// Maximum number of key files for which the password is tried. Each try takes half a second.
const KEYS_MAX: usize = 20;
/// The versions of the repository format that can be read.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=2;
/// The first byte of a file that is compressed.
const COMPRESSED: u8 = 2;

/// The error of bytes that the repository's key does not open.
const NOT_AUTHENTIC: &str = "it was changed, or sealed with another key";

/// A repository.
pub(super) struct Repository {
    folder: PathBuf,
    key: Key,
    /// All blobs, in the order of their ids.
    blobs: Vec<Blob>,
    /// The ids of the packs, by [`Blob::pack`].
    packs: Vec<Id>,
    /// The pack file that was read last.
    open: RefCell<Option<(u32, File)>>,
}

/// Where a blob is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob {
    id: Id,
    pack: u32,
    offset: u32,
    length: u32,
    /// The number of unpacked bytes of the blob. 0 when the blob is not compressed.
    raw_length: u32,
}

impl Blob {
    /// The number of the blob's bytes.
    pub(super) fn len(&self) -> u64 {
        match self.raw_length {
            0 => u64::from(self.length).saturating_sub(SEAL_BYTES as u64),
            raw => u64::from(raw),
        }
    }
}

#[derive(Deserialize)]
struct Config {
    version: u32,
}

/// The fields of a snapshot file that are used.
#[derive(Deserialize)]
pub(super) struct Snapshot {
    time: String,
    tree: String,
}

#[derive(Deserialize)]
struct IndexFile {
    #[serde(default)]
    packs: Vec<IndexedPack>,
}

#[derive(Deserialize)]
struct IndexedPack {
    id: String,
    blobs: Vec<IndexedBlob>,
}

#[derive(Deserialize)]
struct IndexedBlob {
    id: String,
    offset: u32,
    length: u32,
    #[serde(default)]
    uncompressed_length: u32,
}

impl Repository {
    /// Opens the repository in `folder`.
    ///
    /// # Errors
    /// When there is no repository, when the password is wrong, or when a file of the repository is damaged.
    pub(super) fn open(folder: &Path, password: &[u8]) -> io::Result<Repository> {
        let config = read_file(&folder.join("config")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => other("there is no restic repository"),
            _ => error,
        })?;
        let mut found = None;
        for name in names(&folder.join("keys"))?.iter().take(KEYS_MAX) {
            found = Key::unlock(&read_file(&folder.join("keys").join(name))?, password)?;
            if found.is_some() {
                break;
            }
        }
        let key = found.ok_or_else(|| other("the password opens none of the repository's keys"))?;
        let damaged = |why: &dyn std::fmt::Display| other(format!("the file config is damaged: {why}"));
        let bytes = key.open(&config).ok_or_else(|| damaged(&NOT_AUTHENTIC))?;
        let config: Config = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if !FORMATS.contains(&config.version) {
            let known = format!("{} to {}", FORMATS.start(), FORMATS.end());
            return Err(other(format!("the repository has format {}, expected {known}", config.version)));
        }
        let (blobs, packs, open) = (Vec::new(), Vec::new(), RefCell::new(None));
        let mut repository = Repository { folder: folder.to_path_buf(), key, blobs, packs, open };
        repository.load_index()?;
        Ok(repository)
    }

    fn load_index(&mut self) -> io::Result<()> {
        for name in names(&self.folder.join("index"))? {
            let index: IndexFile = self.json("index", &name)?;
            for pack in index.packs {
                let number = u32::try_from(self.packs.len()).map_err(other)?;
                self.packs.push(id(&pack.id)?);
                for blob in pack.blobs {
                    let IndexedBlob { id: name, offset, length, uncompressed_length: raw_length } = blob;
                    self.blobs.push(Blob { id: id(&name)?, pack: number, offset, length, raw_length });
                }
            }
        }
        // A blob may be in several packs. Keep one of them.
        self.blobs.sort_unstable_by_key(|blob| blob.id);
        self.blobs.dedup_by_key(|blob| blob.id);
        self.blobs.shrink_to_fit();
        Ok(())
    }

    /// The id of a snapshot's tree. `wanted` is `latest`, or the beginning of the snapshot's id.
    ///
    /// # Errors
    /// When no snapshot matches, or when several ids begin with `wanted`.
    pub(super) fn snapshot(&self, wanted: &str) -> io::Result<Id> {
        let names = names(&self.folder.join("snapshots"))?;
        let mut found: Option<((i64, u32), String)> = None;
        let mut matching = 0;
        for name in names.iter().filter(|name| wanted == "latest" || name.starts_with(wanted)) {
            let snapshot: Snapshot = self.json("snapshots", name)?;
            let time = time_key(&snapshot.time);
            matching += 1;
            if found.as_ref().is_none_or(|(newest, _)| *newest < time) {
                found = Some((time, snapshot.tree));
            }
        }
        match found {
            Some(_) if wanted != "latest" && matching > 1 => {
                Err(other(format!("{matching} snapshots begin with {wanted:?}")))
            }
            Some((_, tree)) => id(&tree),
            None => Err(other(format!("the repository has no snapshot {wanted:?}"))),
        }
    }

    /// Looks up a blob in the index.
    pub(super) fn find(&self, id: &Id) -> Option<Blob> {
        let at = self.blobs.binary_search_by_key(id, |blob| blob.id).ok()?;
        Some(self.blobs[at])
    }

    /// Reads the bytes of a blob.
    ///
    /// # Errors
    /// When the blob is damaged, or its pack cannot be read.
    pub(super) fn read(&self, blob: Blob) -> io::Result<Vec<u8>> {
        let pack = || hex(&self.packs[blob.pack as usize]);
        let damaged = |why: &dyn std::fmt::Display| {
            let (id, offset, pack) = (hex(&blob.id), blob.offset, pack());
            other(format!("the blob {id} at byte {offset} of the pack {pack} is damaged: {why}"))
        };
        if blob.length > BLOB_BYTES_MAX || blob.raw_length > BLOB_BYTES_MAX {
            return Err(other(format!("the blob {} has more than {BLOB_BYTES_MAX} bytes", hex(&blob.id))));
        }
        let mut open = self.open.borrow_mut();
        if open.as_ref().is_none_or(|(pack, _)| *pack != blob.pack) {
            *open = Some((blob.pack, self.open_pack(blob.pack)?));
        }
        let (_, file) = open.as_ref().expect("just opened");
        let mut sealed = vec![0; blob.length as usize];
        file.read_exact_at(&mut sealed, u64::from(blob.offset)).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(&"the pack ends before the blob does"),
            kind => io::Error::new(kind, format!("cannot read the pack {}: {error}", pack())),
        })?;
        let mut bytes = self.key.open(&sealed).ok_or_else(|| damaged(&NOT_AUTHENTIC))?;
        if blob.raw_length > 0 {
            let unpacked = zstd::bulk::decompress(&bytes, blob.raw_length as usize);
            bytes = unpacked.map_err(|error| damaged(&error))?;
        }
        match Sha256::digest(&bytes)[..] == blob.id {
            true => Ok(bytes),
            false => Err(damaged(&"its id is not the SHA-256 of its bytes")),
        }
    }

    fn open_pack(&self, number: u32) -> io::Result<File> {
        let name = hex(&self.packs[number as usize]);
        let folder = self.folder.join("data");
        // In old repositories, packs are not in subfolders named by the first byte of the id.
        let opened = match File::open(folder.join(&name[..2]).join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(folder.join(&name)),
            opened => opened,
        };
        opened.map_err(|error| io::Error::new(error.kind(), format!("cannot open the pack {name}: {error}")))
    }

    /// Reads a sealed JSON file.
    fn json<T: DeserializeOwned>(&self, folder: &str, name: &str) -> io::Result<T> {
        let damaged =
            |why: &dyn std::fmt::Display| other(format!("the file {folder}/{name} is damaged: {why}"));
        let sealed = read_file(&self.folder.join(folder).join(name))?;
        let mut bytes = self.key.open(&sealed).ok_or_else(|| damaged(&NOT_AUTHENTIC))?;
        if bytes.first() == Some(&COMPRESSED) {
            let unpacking = zstd::stream::read::Decoder::new(&bytes[1..]).map_err(|error| damaged(&error))?;
            let mut unpacked = Vec::new();
            unpacking.take(FILE_BYTES_MAX).read_to_end(&mut unpacked).map_err(|error| damaged(&error))?;
            bytes = unpacked;
        }
        serde_json::from_slice(&bytes).map_err(|error| damaged(&error))
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names of a folder's files that are ids, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let list = std::fs::read_dir(folder);
    let list = list.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", folder.display())))?;
    let mut names = Vec::new();
    for entry in list.take(FILES_MAX) {
        names.extend(entry?.file_name().into_string().ok().filter(|name| id(name).is_ok()));
    }
    names.sort();
    Ok(names)
}

/// Reads an id of 64 hexadecimal digits.
pub(super) fn id(text: &str) -> io::Result<Id> {
    let mut id = Id::default();
    let digits = text.as_bytes();
    let is_hex = digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit);
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)).filter(|_| is_hex) {
        let pair = std::str::from_utf8(pair).expect("two digits");
        *byte = u8::from_str_radix(pair, 16).expect("two digits");
    }
    if is_hex { Ok(id) } else { Err(other(format!("{text:?}: expected an id of 64 hexadecimal digits"))) }
}

/// The hexadecimal digits of an id.
pub(super) fn hex(id: &[u8]) -> String {
    id.iter().map(|b| format!("{b:02x}")).collect()
}

/// A time as a pair for comparisons: seconds since 1970, and nanoseconds. A text that is no time is before all times.
fn time_key(time: &str) -> (i64, u32) {
    calendar::rfc_3339(time).unwrap_or((i64::MIN, 0))
}

pub(super) fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_compare_across_zones_and_fractions() {
        let times = [
            "2026-11-22T20:00:00+01:00",
            "2026-11-22T19:00:00.5Z",
            "2026-11-22T19:00:00.56789-00:00",
            "2026-11-22T17:00:01.000000001-02:00",
        ];
        assert!(times.windows(2).all(|pair| time_key(pair[0]) < time_key(pair[1])));
        assert_eq!(time_key("never").0, i64::MIN);
    }

    #[test]
    fn ids_are_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(hex(&id(&text).unwrap()), text);
        for bad in ["", "00", &text[1..], &format!("{}g", &text[1..]), "\u{e9}".repeat(32).as_str()] {
            assert!(id(bad).is_err(), "{bad}");
        }
    }
}
