//! Parts: how a container with very many documents is listed and recorded in pieces.
//!
//! If a container has more documents than a bound ([`LISTED_MAX`]), its documents are divided into up to [`PARTS`]
//! child containers, the parts. A hash of a document's name chooses the part. A part is not a folder: the path of the
//! document `a` in a part of the folder `x` is `x/a` ([`crate::job::join`]). While such a container is listed, its
//! documents are written to a temporary file ([`Spill`]), and read back one part at a time. So the memory for a listing
//! does not depend on the number of documents. A container that was recorded in parts stays in parts. A container that
//! was recorded in one piece is divided ([`split`]).

use super::{LOCATION_NOTE, ListError, Listing, Skipped};
use crate::container::{Container, ContainerBuilder, ContainerError, Entry, EntryKind, digest};
use crate::temporary::TemporaryFile;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// Default maximum number of documents of a container in memory. A container with more documents is listed in parts.
pub const LISTED_MAX: usize = 100_000;
/// Maximum number of parts of a container.
pub const PARTS: usize = 256;
/// Bytes of documents that are buffered before they are written to the temporary file.
const BUFFERED_BYTES_MAX: usize = 16 << 20;
/// The beginning of a part's name. Two hexadecimal digits follow. A folder or document with such a name cannot be
/// imported.
const NAME_PREFIX: &[u8] = b"\x01part-";
/// The reason of the failure of a folder or document whose name is reserved for parts.
pub const RESERVED: &str = "the name is reserved for parts of large folders: rename the file or folder";

/// The name of a part.
pub fn name_of(part: u8) -> Vec<u8> {
    [NAME_PREFIX, format!("{part:02x}").as_bytes()].concat()
}

/// The number of the part that holds the document `name`.
pub fn part_of(name: &[u8]) -> u8 {
    digest(name)[0]
}

/// The number of the part with this name. `None` when `name` is not the name of a part.
pub fn number(name: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    match name.strip_prefix(NAME_PREFIX)? {
        [high, low] => u8::try_from((digit(*high)? << 4) | digit(*low)?).ok(),
        _ => None,
    }
}

/// Divides the path of a part into the path of its container and the part's number. `None` when `path` is not the path
/// of a part.
pub fn divide(path: &[u8]) -> Option<(&[u8], u8)> {
    let at = path.len().checked_sub(NAME_PREFIX.len() + 2)?;
    let part = number(&path[at..])?;
    match at {
        0 => Some((&b""[..], part)),
        at => path[..at].strip_suffix(b"/").map(|above| (above, part)),
    }
}

/// True when the container is listed or recorded in parts.
pub fn has_parts(container: Container<'_>) -> bool {
    container.iter().any(|entry| entry.kind == EntryKind::Container && number(entry.name).is_some())
}

/// Divides a container into parts. Returns the container with its parts instead of its documents, and the parts by
/// their numbers. `None` when the container has no documents.
///
/// # Errors
/// The errors of [`ContainerBuilder`].
#[allow(clippy::type_complexity)]
pub fn split(whole: Container<'_>) -> Result<Option<(Vec<u8>, BTreeMap<u8, Vec<u8>>)>, ContainerError> {
    let push =
        |into: &mut ContainerBuilder, e: Entry<'_>| into.push(e.kind, e.name, e.size, e.token, e.pairs());
    let mut rest = ContainerBuilder::new(whole.producer());
    let mut parts: BTreeMap<u8, ContainerBuilder> = BTreeMap::new();
    for entry in whole.iter() {
        match entry.kind {
            EntryKind::Container => push(&mut rest, entry)?,
            EntryKind::Document => {
                let part = parts
                    .entry(part_of(entry.name))
                    .or_insert_with(|| ContainerBuilder::new(whole.producer()));
                push(part, entry)?;
            }
        }
    }
    if parts.is_empty() {
        return Ok(None);
    }
    for part in parts.keys().filter(|part| whole.find(&name_of(**part)).is_none()) {
        rest.push(EntryKind::Container, &name_of(*part), 0, &[], [])?;
    }
    let parts = parts.into_iter().map(|(part, builder)| Ok((part, builder.finish()?)));
    Ok(Some((rest.finish()?, parts.collect::<Result<_, ContainerError>>()?)))
}

/// The documents of one container in a temporary file, by their parts.
pub struct Spill {
    file: TemporaryFile,
    len: u64,
    buffered: BTreeMap<u8, ContainerBuilder>,
    buffered_bytes: usize,
    /// For each part, the ranges of its pieces in the file. A piece is a container.
    pieces: Vec<Vec<Range<u64>>>,
    /// New names of documents that have the name of a folder, by the old names.
    renamed: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Spill {
    /// An empty spill.
    ///
    /// # Errors
    /// When a temporary file cannot be created.
    pub fn new() -> io::Result<Spill> {
        Ok(Spill {
            file: TemporaryFile::new()?,
            len: 0,
            buffered: BTreeMap::new(),
            buffered_bytes: 0,
            pieces: vec![Vec::new(); PARTS],
            renamed: BTreeMap::new(),
        })
    }

    /// Adds a document.
    ///
    /// # Errors
    /// Errors of the disk, and of a container that cannot hold the entry.
    pub fn push<'p>(
        &mut self,
        name: &[u8],
        size: u64,
        token: &[u8],
        pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
    ) -> io::Result<()> {
        let builder = self.buffered.entry(part_of(name)).or_insert_with(|| ContainerBuilder::new(0));
        let before = builder.bytes();
        builder.push(EntryKind::Document, name, size, token, pairs).map_err(io::Error::other)?;
        self.buffered_bytes += builder.bytes() - before;
        if self.buffered_bytes >= BUFFERED_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        for (part, builder) in std::mem::take(&mut self.buffered) {
            let piece = builder.finish().map_err(io::Error::other)?;
            self.file.write_all_at(&piece, self.len)?;
            let end = self.len + piece.len() as u64;
            self.pieces[usize::from(part)].push(self.len..end);
            self.len = end;
        }
        self.buffered_bytes = 0;
        Ok(())
    }

    /// Call this after the last document was added. A document with the name of one of `folders` gets a new name, with
    /// a number at the end.
    fn finish(&mut self, folders: &BTreeSet<Vec<u8>>) -> io::Result<()> {
        self.flush()?;
        let mut by_part: BTreeMap<u8, Vec<&Vec<u8>>> = BTreeMap::new();
        folders.iter().for_each(|name| by_part.entry(part_of(name)).or_default().push(name));
        for (part, names) in by_part {
            let clashes = self.existing(part, &names.iter().map(|name| &name[..]).collect())?;
            for name in clashes {
                let numbers = (2..).map(|n: u64| [&name[..], format!("~{n}").as_bytes()].concat());
                for free in numbers {
                    let wanted = BTreeSet::from([&free[..]]);
                    if !folders.contains(&free) && self.existing(part_of(&free), &wanted)?.is_empty() {
                        self.renamed.insert(name.clone(), free);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns which of `names` are names of documents in the part.
    fn existing(&self, part: u8, names: &BTreeSet<&[u8]>) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.for_each(part, |entry| {
            if names.contains(entry.name) {
                found.push(entry.name.to_vec());
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn for_each(
        &self,
        part: u8,
        mut take: impl FnMut(Entry<'_>) -> Result<(), ContainerError>,
    ) -> io::Result<()> {
        for piece in &self.pieces[usize::from(part)] {
            let mut blob = vec![0; (piece.end - piece.start) as usize];
            self.file.read_exact_at(&mut blob, piece.start)?;
            let container = Container::parse(&blob).map_err(io::Error::other)?;
            container.iter().try_for_each(&mut take).map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// The listing of one part.
    fn part(&self, part: u8) -> io::Result<Vec<u8>> {
        let mut builder = ContainerBuilder::new(0);
        let push = |builder: &mut ContainerBuilder, entry: Entry<'_>| {
            builder.push(entry.kind, entry.name, entry.size, entry.token, entry.pairs())
        };
        self.for_each(part, |entry| match self.renamed.contains_key(entry.name) {
            true => Ok(()),
            false => push(&mut builder, entry),
        })?;
        for (name, free) in self.renamed.iter().filter(|(_, free)| part_of(free) == part) {
            self.for_each(part_of(name), |entry| match entry.name == name {
                true => {
                    let pairs = [(LOCATION_NOTE, &name[..])].into_iter().chain(entry.pairs());
                    builder.push(entry.kind, free, entry.size, entry.token, pairs)
                }
                false => Ok(()),
            })?;
        }
        builder.finish().map_err(io::Error::other)
    }
}

/// The containers of a source that are listed in parts.
pub struct Parted {
    /// Maximum number of documents of a container in memory.
    listed_max: usize,
    /// The spills of the container that was listed last and of the containers above it, with their paths.
    spills: Vec<(Vec<u8>, Spill)>,
    /// The paths of containers that stay in parts.
    kept: BTreeSet<Vec<u8>>,
}

impl Parted {
    /// `listed_max`: the maximum number of documents of a container in memory. `None`: [`LISTED_MAX`].
    pub fn new(listed_max: Option<usize>) -> Parted {
        let listed_max = listed_max.unwrap_or(LISTED_MAX);
        Parted { listed_max, spills: Vec::new(), kept: BTreeSet::new() }
    }

    /// Makes the container at `path` stay in parts, even if it has few documents.
    pub fn keep(&mut self, path: &[u8]) {
        self.kept.insert(path.to_vec());
    }

    /// Begins the listing of a container. Returns the maximum number of its documents in memory: 0 if it stays in
    /// parts.
    pub fn begin(&mut self, path: &[u8]) -> usize {
        let leads = |above: &[u8]| {
            above.is_empty() || path.starts_with(above) && path.get(above.len()) == Some(&b'/')
        };
        self.spills.retain(|(above, _)| above != path && leads(above));
        if self.kept.contains(path) { 0 } else { self.listed_max }
    }

    /// Ends the listing of a container whose documents are in `spill`. The listing has the parts instead of the
    /// documents.
    ///
    /// # Errors
    /// Errors of the disk, and of a container that cannot hold an entry.
    pub fn finish(
        &mut self,
        path: &[u8],
        mut spill: Spill,
        folders: &BTreeSet<Vec<u8>>,
    ) -> io::Result<Vec<u8>> {
        spill.finish(folders)?;
        let mut builder = ContainerBuilder::new(0);
        let renamed: BTreeSet<u8> = spill.renamed.values().map(|free| part_of(free)).collect();
        let parts =
            (0..=u8::MAX).filter(|n| !spill.pieces[usize::from(*n)].is_empty() || renamed.contains(n));
        for name in folders.iter().cloned().chain(parts.map(name_of)) {
            builder.push(EntryKind::Container, &name, 0, &[], []).map_err(io::Error::other)?;
        }
        self.keep(path);
        self.spills.push((path.to_vec(), spill));
        builder.finish().map_err(io::Error::other)
    }

    /// The listing of part `part` of the container `above`. `None` when that container was not listed before.
    pub fn part(&self, above: &[u8], part: u8) -> Option<io::Result<Listing>> {
        let (_, spill) = self.spills.iter().find(|(path, _)| path == above)?;
        Some(spill.part(part).map(|blob| Listing {
            blob,
            skipped: Skipped::default(),
            racy_for_ns: 0,
            refused: Vec::new(),
        }))
    }
}

/// Converts an error of the listing at `path`.
pub fn failed(path: PathBuf) -> impl FnOnce(io::Error) -> ListError {
    |error| ListError::Io { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_differ_from_all_other_names() {
        for part in 0..=u8::MAX {
            assert_eq!(number(&name_of(part)), Some(part));
            assert_eq!(divide(&name_of(part)), Some((&b""[..], part)));
            assert_eq!(divide(&[b"a/b/", &name_of(part)[..]].concat()), Some((&b"a/b"[..], part)));
        }
        for other in
            ["part-00", "\x01part-0", "\x01part-000", "\x01part-0G", "\x01part-0A", "x\x01part-00", ""]
        {
            assert_eq!((number(other.as_bytes()), divide(other.as_bytes())), (None, None), "{other:?}");
        }
        assert_eq!(crate::job::join(&[b"a/", &name_of(7)[..]].concat(), b"x"), b"a/x");
        assert_eq!(crate::job::join(&name_of(7), b"x"), b"x");
        assert_eq!(crate::job::join(b"a", &name_of(7)), [b"a/", &name_of(7)[..]].concat());
    }

    #[test]
    fn a_listing_on_disk_equals_the_listing_in_memory() {
        let mut spill = Spill::new().unwrap();
        let documents: BTreeSet<Vec<u8>> = (0..3000).map(|n| format!("d{n}").into_bytes()).collect();
        for (i, name) in documents.iter().enumerate() {
            spill.push(name, i as u64, b"t", [(&b"k"[..], &name[..])]).unwrap();
            if i % 700 == 0 {
                spill.flush().unwrap();
            }
        }
        spill.push(b"both", 1, b"t", []).unwrap();
        spill.push(b"both~2", 2, b"t", []).unwrap();
        let folders = BTreeSet::from([b"both".to_vec(), b"folder".to_vec()]);
        let mut parted = Parted::new(None);
        let root = parted.finish(b"x", spill, &folders).unwrap();
        let root = Container::parse(&root).unwrap();
        assert!(has_parts(root) && root.find(b"both").is_some() && root.find(b"folder").is_some());
        let mut seen = BTreeSet::new();
        for entry in root.iter() {
            let Some(part) = number(entry.name) else { continue };
            let blob = parted.part(b"x", part).unwrap().unwrap().blob;
            for entry in Container::parse(&blob).unwrap().iter() {
                assert!(part_of(entry.name) == part && seen.insert(entry.name.to_vec()));
                if entry.name == b"both~3" {
                    assert_eq!((entry.size, entry.get(LOCATION_NOTE)), (1, Some(&b"both"[..])));
                } else if entry.name != b"both~2" {
                    assert_eq!(entry.get(b"k"), Some(entry.name));
                }
            }
        }
        let mut expected = documents;
        expected.extend([b"both~2".to_vec(), b"both~3".to_vec()]);
        assert!(seen == expected);
        // Containers that are not on this path are dropped.
        assert_eq!(parted.begin(b"x/folder"), LISTED_MAX);
        assert!(parted.part(b"x", 0).is_some());
        assert_eq!(parted.begin(b"y"), LISTED_MAX);
        assert!(parted.part(b"x", 0).is_none() && parted.begin(b"x") == 0);
    }

    #[test]
    fn a_container_that_grew_is_divided() {
        let mut whole = ContainerBuilder::new(9);
        for n in 0..500 {
            let note = [(&b"~digest"[..], &b"d"[..])];
            whole.push(EntryKind::Document, format!("d{n}").as_bytes(), n, b"t", note).unwrap();
        }
        whole.push(EntryKind::Container, b"folder", 3, b"u", []).unwrap();
        let whole = whole.finish().unwrap();
        let (rest, parts) = split(Container::parse(&whole).unwrap()).unwrap().unwrap();
        let rest = Container::parse(&rest).unwrap();
        assert_eq!((rest.len(), rest.producer()), (parts.len() + 1, 9));
        assert_eq!(rest.find(b"folder").unwrap().token, b"u");
        let views: Vec<_> = parts.values().map(|blob| Container::parse(blob).unwrap()).collect();
        assert_eq!(views.iter().map(Container::len).sum::<usize>(), 500);
        assert!(views.iter().flat_map(|v| v.iter()).all(|e| e.get(b"~digest").is_some()));
        assert!(split(rest).unwrap().is_none());
    }
}
