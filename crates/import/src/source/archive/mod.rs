//! Archives: a document that holds documents, as a source.
//!
//! [`Format::of`] decides by a document's name and beginning whether it is an archive. [`Archive::open`] lists the
//! whole archive once. The archive is then a [`Source`], like a folder: folders in a zip or tar are containers, and
//! messages of a mailbox and attachments of a mail are documents. A compressed file holds one document. A member of a
//! zip is unpacked when it is read. A compressed stream is unpacked when it is listed. [`limits`] bounds the cost of a
//! hostile archive.

mod budget;
mod bytes;
mod decoders;
pub mod limits;
mod mail;
pub(crate) mod mbox;
mod parts;
mod path;
mod tar;
mod zip;

pub(crate) use budget::ArchiveBudget;
pub(crate) use bytes::Window;
pub(crate) use mbox::Prefix;
pub(crate) use parts::{Parts, unzipped};

use super::{Identity, ListError, Listing, Object, ReadError, Skipped, Source, Stat, Tokens};
use crate::container::{
    Container, ContainerBuilder, ContainerDigest, ContainerError, Entry, EntryKind, NAME_BYTES_MAX, digest,
    digest_of,
};
use crate::memory::MEMORY_FACTOR;
use bytes::Unpacking;
use decoders::Codec;
use path::{checked_path, split};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

/// Endings of the names of archives. A document with another ending is never an archive. A document without a dot in
/// its name may be an archive too, because mail programs give such names to mailboxes. The bytes then decide.
const SUFFIXES: [&str; 13] =
    ["zip", "jar", "tar", "tgz", "gz", "txz", "xz", "tzst", "zst", "mbox", "mbx", "ova", "apk"];
/// The endings of [`SUFFIXES`] that mailboxes have.
const MAILBOX_SUFFIXES: [&str; 2] = ["mbox", "mbx"];

/// The endings of [`SUFFIXES`] that tars have.
const TAR_SUFFIXES: [&str; 2] = ["tar", "ova"];
/// The endings of [`SUFFIXES`] that compressed tars have.
const PACKED_TAR_SUFFIXES: [&str; 3] = ["tgz", "txz", "tzst"];

/// The endings of [`SUFFIXES`] that zips have. A zip with one of these names may have a program in front.
const ZIP_SUFFIXES: [&str; 3] = ["zip", "jar", "apk"];
/// The first bytes of programs that unpack the zip behind them: a script, and programs of Linux and Windows.
const PROGRAMS: [&[u8]; 3] = [b"#!", b"\x7fELF", b"MZ"];

/// Bytes of a token that is a digest.
const DIGEST_BYTES: usize = size_of::<ContainerDigest>();

/// The kind of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Zip,
    Tar,
    Gzip,
    Xz,
    Zstd,
    Mailbox,
    /// A mail with attachments.
    Mail,
}

/// The part of a name behind the last dot. `None` when the name has no dot.
fn ending(name: &[u8]) -> Option<&[u8]> {
    name.iter().rposition(|b| *b == b'.').map(|dot| &name[dot + 1..])
}

fn is_one_of(ending: &[u8], suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| ending.eq_ignore_ascii_case(suffix.as_bytes()))
}

/// True when the name says that the document is a tar.
fn is_tar_name(name: &[u8]) -> bool {
    ending(name).is_some_and(|ending| is_one_of(ending, &TAR_SUFFIXES))
}

/// True when the name says that the document is a zip.
fn is_zip_name(name: &[u8]) -> bool {
    ending(name).is_some_and(|ending| is_one_of(ending, &ZIP_SUFFIXES))
}

/// True when the name says that the document is a compressed tar: `a.tgz` or `a.tar.gz`.
fn is_packed_tar_name(name: &[u8]) -> bool {
    let before_ending = || name.iter().rposition(|b| *b == b'.').map(|dot| &name[..dot]);
    ending(name).is_some_and(|ending| is_one_of(ending, &PACKED_TAR_SUFFIXES))
        || before_ending().is_some_and(is_tar_name)
}

impl Format {
    /// True when a document of this name may be an archive.
    pub(crate) fn is_archive_name(name: &[u8]) -> bool {
        ending(name).is_none_or(|ending| is_one_of(ending, &SUFFIXES))
    }

    /// The kind of archive that the ending of the name promises, as in [`Format::kind`]. `None` when the name has no
    /// ending of an archive.
    pub(crate) fn promised_kind(name: &[u8]) -> Option<&'static str> {
        let ending = ending(name).filter(|ending| is_one_of(ending, &SUFFIXES))?;
        if is_one_of(ending, &MAILBOX_SUFFIXES) { Format::Mailbox.kind() } else { Format::Zip.kind() }
    }

    /// The kind of the archive with this name and this beginning. `None` when the document is not an archive.
    pub(crate) fn of(name: &[u8], beginning: &[u8]) -> Option<Format> {
        if !Format::is_archive_name(name) {
            return None;
        }
        let magics: [(&[u8], Format); 5] = [
            (b"PK\x03\x04", Format::Zip),
            (b"PK\x05\x06", Format::Zip),
            (b"\x1f\x8b\x08", Format::Gzip),
            (b"\xfd7zXZ\0", Format::Xz),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
        ];
        let is_program = is_zip_name(name) && PROGRAMS.iter().any(|magic| beginning.starts_with(magic));
        if is_program {
            return Some(Format::Zip);
        }
        let found =
            magics.into_iter().find(|(magic, _)| beginning.starts_with(magic)).map(|(_, format)| format);
        found.or_else(|| {
            if tar::is_tar(beginning, is_tar_name(name)) {
                Some(Format::Tar)
            } else {
                mbox::is_mailbox(beginning).then_some(Format::Mailbox)
            }
        })
    }
}

impl Format {
    /// The value of the field `kind` of the archive's document. `None` for a mail, whose document has the kind `mail`.
    pub(crate) fn kind(self) -> Option<&'static str> {
        match self {
            Format::Mail => None,
            Format::Mailbox => Some("mailbox"),
            _ => Some("archive"),
        }
    }
}

/// Where the bytes of a member are.
enum Bytes {
    /// In the archive, not compressed.
    Range { at: u64, len: u64 },
    /// In a zip.
    Zipped(zip::Member),
    /// In a stream that was unpacked when it was listed.
    Unpacked(Window),
    /// In memory.
    Held(Rc<Vec<u8>>),
    /// A message that an earlier run recorded. Its offset is searched when the message is read.
    NotLocated,
}

struct Member {
    /// The version token. Empty when nothing is known about the bytes.
    token: Vec<u8>,
    size: u64,
    bytes: Bytes,
}

/// A folder in an archive.
#[derive(Default)]
struct Folder {
    /// The documents, by name.
    files: BTreeMap<Vec<u8>, Member>,
    /// The names of the folders in this folder.
    folders: BTreeSet<Vec<u8>>,
}

/// An open archive.
pub(crate) struct Archive {
    /// The archive as the user gave it, for messages.
    shown: PathBuf,
    window: Window,
    budget: Rc<ArchiveBudget>,
    /// The folders, by path. The root's path is empty.
    folders: BTreeMap<Vec<u8>, Folder>,
    /// Names that cannot be documents, and the reasons, by folder.
    refused: BTreeMap<Vec<u8>, Vec<(Vec<u8>, String)>>,
    skipped: Skipped,
}

impl Archive {
    /// Opens and lists the whole archive `name`.
    ///
    /// # Errors
    /// When the archive is damaged, or exceeds a limit.
    pub(crate) fn open(
        name: &[u8],
        format: Format,
        window: Window,
        budget: Rc<ArchiveBudget>,
    ) -> io::Result<Archive> {
        let mut archive = Archive::of(name, window, budget);
        let mut found = Vec::new();
        match format {
            Format::Zip => archive.zip(&mut found)?,
            Format::Tar => archive.tar(&mut found)?,
            Format::Mailbox => {
                let messages = mbox::messages(&archive.window, 0, &archive.budget)?;
                found = archive.name_messages(messages);
            }
            Format::Gzip | Format::Xz | Format::Zstd => archive.stream(name, format, &mut found)?,
            Format::Mail => {
                let size = usize::try_from(archive.window.len()).unwrap_or(usize::MAX);
                let size = size.min(crate::mail::MESSAGE_BYTES_MAX as usize + 1);
                archive.budget.hold(size as u64 * MEMORY_FACTOR);
                for (name, bytes) in mail::attachments(&archive.window.bytes(0, size)?)? {
                    archive.budget.list()?;
                    let (token, size) = (digest(&bytes).to_vec(), bytes.len() as u64);
                    found.push((name, Member { token, size, bytes: Bytes::Held(Rc::new(bytes)) }));
                }
            }
        }
        archive.add_members(found)?;
        Ok(archive)
    }

    /// Opens a mailbox that has grown since its state `before`. `recorded` has the messages of that state, so only the
    /// bytes after them are read. `None` when the mailbox did not only grow, or when the record is incomplete.
    ///
    /// # Errors
    /// When the mailbox cannot be read, or exceeds a limit.
    pub(crate) fn open_appended(
        name: &[u8],
        window: Window,
        budget: Rc<ArchiveBudget>,
        before: &Prefix,
        recorded: Container<'_>,
    ) -> io::Result<Option<Archive>> {
        let is_known =
            |entry: Entry<'_>| entry.kind == EntryKind::Document && entry.token.len() == DIGEST_BYTES;
        if !recorded.iter().all(is_known) {
            return Ok(None);
        }
        let Some(messages) = before.appended(&window, &budget)? else { return Ok(None) };
        recorded.iter().try_for_each(|_| budget.list())?;
        let mut archive = Archive::of(name, window, budget);
        let recorded_member = |entry: Entry<'_>| {
            (
                entry.name.to_vec(),
                Member { token: entry.token.to_vec(), size: entry.size, bytes: Bytes::NotLocated },
            )
        };
        let files = recorded.iter().map(recorded_member).collect();
        archive.folders.insert(Vec::new(), Folder { files, folders: BTreeSet::new() });
        let found = archive.name_messages(messages);
        archive.add_members(found)?;
        Ok(Some(archive))
    }

    /// True when the document `name` is imported as one mail and not as an archive: a mail without attachments, or a
    /// mailbox of one message whose name has no dot.
    pub(crate) fn is_one_mail(&self, name: &[u8], format: Format) -> bool {
        let documents: usize = self.folders.values().map(|folder| folder.files.len()).sum();
        match format {
            Format::Mail => documents == 0,
            Format::Mailbox => documents < 2 && !name.contains(&b'.'),
            _ => false,
        }
    }

    /// The identity of a document in an archive. A zip's directory has only a checksum of 32 bits and the size, so
    /// equal identities are not certain to mean equal bytes. In other archives the token is a digest of the bytes.
    pub(crate) fn identity_of(entry: &Entry<'_>) -> Option<Identity> {
        let (bytes, is_certain) = match entry.token.len() {
            DIGEST_BYTES => (entry.token, true),
            zip::TOKEN_BYTES => (&entry.token[zip::IDENTITY], false),
            _ => return None,
        };
        Some(Identity { bytes: bytes.to_vec(), is_certain })
    }

    fn of(name: &[u8], window: Window, budget: Rc<ArchiveBudget>) -> Archive {
        Archive {
            shown: PathBuf::from(String::from_utf8_lossy(name).into_owned()),
            window,
            budget,
            folders: BTreeMap::from([(Vec::new(), Folder::default())]),
            refused: BTreeMap::new(),
            skipped: Skipped::default(),
        }
    }

    fn zip(&mut self, found: &mut Vec<(Vec<u8>, Member)>) -> io::Result<()> {
        for member in zip::members(&self.window, &self.budget)? {
            if member.is_link {
                self.skipped.links += 1;
            } else if !member.name.ends_with(b"/") {
                let (token, size) = (member.token.clone(), member.size);
                found.push((member.name.clone(), Member { token, size, bytes: Bytes::Zipped(member) }));
            }
        }
        Ok(())
    }

    fn tar(&mut self, found: &mut Vec<(Vec<u8>, Member)>) -> io::Result<()> {
        let members = tar::members(&self.window, &self.budget)?;
        self.skipped.links += members.links;
        self.skipped.special += members.special;
        // If a name occurs twice, the file was replaced. The last member counts, as it does for tar. `./a` is the same
        // name as `a`.
        let checked = |name: Vec<u8>| checked_path(&name).unwrap_or(name);
        let (mut last, mut linked_bytes) = (BTreeMap::new(), 0u64);
        for file in members.files {
            let place = match file.content {
                tar::Content::Here { offset, size } => (offset, size),
                tar::Content::In(target) => {
                    let place: Option<(u64, u64)> = last.get(&checked(target)).copied();
                    // A small tar can name a large file many times. Links beyond the bounds are skipped.
                    let fits = |(_, len): &(u64, u64)| {
                        self.budget.has_room_for_link(*len)
                            && bytes::check_ratio(
                                self.window.len(),
                                linked_bytes.saturating_add(*len),
                                &self.budget,
                            )
                            .is_ok()
                    };
                    let Some(place) = place.filter(fits) else {
                        self.skipped.links += 1;
                        continue;
                    };
                    self.budget.unpack(place.1)?;
                    linked_bytes += place.1;
                    place
                }
            };
            last.insert(checked(file.name), place);
        }
        let mut digests = BTreeMap::new();
        for (name, (at, len)) in last {
            let token = match digests.get(&at) {
                Some(token) if len > 0 => Vec::clone(token),
                _ => {
                    let mut hasher = blake3::Hasher::new();
                    io::copy(&mut self.window.part(at, len)?.reader(), &mut hasher)?;
                    digest_of(&hasher).to_vec()
                }
            };
            if len > 0 {
                digests.insert(at, token.clone());
            }
            found.push((name, Member { token, size: len, bytes: Bytes::Range { at, len } }));
        }
        // Read to the end, because an outer archive's checksum is compared there.
        let last = self.window.len().saturating_sub(1);
        self.window.bytes(last, (self.window.len() - last) as usize)?;
        Ok(())
    }

    /// Names the messages of a mailbox. A name is made of the Message-ID, so a message keeps its name when a part of it
    /// changes. A message without a Message-ID, or with the Message-ID of an earlier message, gets a name from its
    /// bytes. No name depends on other messages' positions, so names stay when a message is removed.
    fn name_messages(&self, messages: Vec<mbox::Message>) -> Vec<(Vec<u8>, Member)> {
        let name_of = |digest: &ContainerDigest| {
            let name: String = digest[..10].iter().map(|b| format!("{b:02x}")).collect();
            format!("{name}.eml").into_bytes()
        };
        let existing = &self.folders[&[][..]].files;
        let mut taken = BTreeSet::new();
        let named = messages.into_iter().map(|message| {
            let by_id = message.id.as_ref().map(name_of);
            let name = by_id.filter(|name| !existing.contains_key(name) && taken.insert(name.clone()));
            let bytes = Bytes::Range { at: message.offset, len: message.len };
            let member = Member { token: message.digest.to_vec(), size: message.len, bytes };
            (name.unwrap_or_else(|| name_of(&message.digest)), member)
        });
        named.collect()
    }

    fn member(&self, folder: &[u8], name: &[u8]) -> Option<&Member> {
        self.folders.get(folder)?.files.get(name)
    }

    /// Reads the mailbox to find the offsets of the messages that an earlier run recorded. A message that does not
    /// exist any more is removed from the archive, so the mailbox is read only once for this.
    fn locate(&mut self) -> io::Result<()> {
        let messages = mbox::messages(&self.window, 0, &self.budget.renewed())?;
        let places: BTreeMap<ContainerDigest, (u64, u64)> =
            messages.into_iter().map(|message| (message.digest, (message.offset, message.len))).collect();
        for folder in self.folders.values_mut() {
            folder.files.retain(|_, member| {
                if matches!(member.bytes, Bytes::NotLocated) {
                    let Some((at, len)) = places.get(&member.token[..]) else { return false };
                    member.bytes = Bytes::Range { at: *at, len: *len };
                }
                true
            });
        }
        Ok(())
    }

    /// Lists a compressed stream: the members of a tar in the stream, or the stream's content as one document.
    fn stream(&mut self, name: &[u8], format: Format, found: &mut Vec<(Vec<u8>, Member)>) -> io::Result<()> {
        let codec = match format {
            Format::Gzip => Codec::Gzip,
            Format::Xz => Codec::Xz,
            _ => Codec::Zstd,
        };
        let unpacked = |memory_bytes: u64| {
            let decoder = codec.decoder(self.window.reader(), memory_bytes, &self.budget)?;
            let unpacking = Unpacking::new(decoder, self.window.len(), None, self.budget.clone());
            Window::whole(Rc::new(unpacking))
        };
        let header = self.window.bytes(0, self.window.len().min(decoders::HEADER_BYTES as u64) as usize)?;
        let unpacked = match unpacked(codec.stated_bytes(&header)) {
            Err(error) if Codec::needs_more(&error) => unpacked(codec.bytes_max())?,
            other => other?,
        };
        let beginning_bytes = unpacked.len().min(tar::BEGINNING_BYTES as u64);
        let beginning = unpacked.bytes(0, beginning_bytes as usize)?;
        if tar::is_tar(&beginning, is_packed_tar_name(name)) {
            self.window = unpacked;
            return self.tar(found);
        }
        self.budget.list()?;
        let mut hasher = blake3::Hasher::new();
        io::copy(&mut unpacked.reader(), &mut hasher)?;
        let (token, size) = (digest_of(&hasher).to_vec(), unpacked.len());
        found.push((unpacked_name(name), Member { token, size, bytes: Bytes::Unpacked(unpacked) }));
        Ok(())
    }

    /// Adds the members to the folders in their names.
    fn add_members(&mut self, found: Vec<(Vec<u8>, Member)>) -> io::Result<()> {
        let mut files = Vec::new();
        for (name, member) in found {
            match checked_path(&name) {
                Ok(path) => {
                    self.add_folders(split(&path).0)?;
                    files.push((path, member));
                }
                Err(error) => {
                    let mut shown = name;
                    shown.truncate(NAME_BYTES_MAX);
                    self.refused.entry(Vec::new()).or_default().push((shown, error.to_string()));
                }
            }
        }
        // The number for the next member of each name that occurs again.
        let mut numbers: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (path, member) in files {
            let (folder, name) = split(&path);
            let folder = self.folders.entry(folder.to_vec()).or_default();
            let taken = |name: &[u8]| folder.files.contains_key(name) || folder.folders.contains(name);
            let mut free = name.to_vec();
            if taken(&free) {
                // A file or a folder has the name already. Append a number.
                let number = numbers.entry(path.clone()).or_insert(2);
                while taken(&free) {
                    free = [name, format!("~{number}").as_bytes()].concat();
                    *number += 1;
                }
            }
            folder.files.insert(free, member);
        }
        Ok(())
    }

    /// Adds the folder `path` and the folders above it. Each new folder counts as an entry, because a short name in an
    /// archive can have a hundred folders in it.
    fn add_folders(&mut self, mut path: &[u8]) -> io::Result<()> {
        let mut below = None;
        loop {
            let is_new = !self.folders.contains_key(path);
            if is_new {
                self.budget.list()?;
                self.budget.hold(path.len() as u64);
            }
            self.folders.entry(path.to_vec()).or_default().folders.extend(below);
            if !is_new {
                return Ok(());
            }
            let (above, name) = split(path);
            below = Some(name.to_vec());
            path = above;
        }
    }
}

impl Source for Archive {
    fn tokens(&self) -> Tokens {
        Tokens::Stamps
    }

    fn list(&mut self, path: &[u8], _distrust: bool) -> Result<Listing, ListError> {
        let failed = |error: ContainerError| ListError::Container { path: self.shown.clone(), error };
        let mut builder = ContainerBuilder::new(0);
        if let Some(folder) = self.folders.get(path) {
            for (name, member) in &folder.files {
                let pushed = builder.push(EntryKind::Document, name, member.size, &member.token, []);
                pushed.map_err(failed)?;
            }
            for name in &folder.folders {
                builder.push(EntryKind::Container, name, 0, &[], []).map_err(failed)?;
            }
        }
        let blob = builder.finish().map_err(failed)?;
        // The listing of the root counts everything in the archive that is not listed.
        let skipped = if path.is_empty() { self.skipped } else { Skipped::default() };
        let refused = self.refused.get(path).cloned().unwrap_or_default();
        Ok(Listing { blob, skipped, racy_for_ns: 0, refused })
    }

    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        Archive::identity_of(entry)
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let needs_offset = |member: &Member| matches!(member.bytes, Bytes::NotLocated);
        if self.member(path, entry.name).is_some_and(needs_offset) {
            self.locate().map_err(ReadError::Io)?;
        }
        let member = self.member(path, entry.name).ok_or(ReadError::Vanished)?;
        let object: Box<dyn Object> = match &member.bytes {
            Bytes::Range { at, len } => Box::new(self.window.part(*at, *len).map_err(ReadError::Io)?),
            Bytes::Zipped(zipped) => zip::open(&self.window, zipped, &self.budget).map_err(ReadError::Io)?,
            Bytes::Unpacked(window) => Box::new(window.clone()),
            Bytes::Held(bytes) => Box::new(InMemory(bytes.clone())),
            // `locate` sets the offset of such a message, or removes the message.
            Bytes::NotLocated => return Err(ReadError::Vanished),
        };
        Ok(Box::new(Tokened { object, token: member.token.clone() }))
    }
}

/// An object with the token of its entry in the listing.
struct Tokened {
    object: Box<dyn Object>,
    token: Vec<u8>,
}

impl Object for Tokened {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { token: self.token.clone(), ..self.object.stat()? })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.object.read_at(offset, into)
    }
}

/// Bytes in memory.
struct InMemory(Rc<Vec<u8>>);

impl Object for InMemory {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { size: self.0.len() as u64, token: Vec::new(), is_young: false })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// The name of a compressed file's content: the file's name without its ending.
fn unpacked_name(name: &[u8]) -> Vec<u8> {
    let name = split(name).1;
    match name.iter().rposition(|b| *b == b'.') {
        Some(dot) if dot > 0 => name[..dot].to_vec(),
        _ => [name, b".unpacked"].concat(),
    }
}
