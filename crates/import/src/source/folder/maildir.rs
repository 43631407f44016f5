//! A Maildir: a folder with `cur`, `new` and `tmp`.
//!
//! A document's name is the unique part of the file name, before `:2,flags`. So a message keeps its id when a mail
//! program marks it as read, changes its flags or moves it from `new` to `cur`. The flags are metadata: after a change
//! of flags the run updates the document without reading the message. Messages in `tmp` are not delivered yet, so they
//! are not listed. Files that mail programs keep beside the messages are not listed either. Folders in the Maildir are
//! containers, with the leading dot of Maildir++ (`.Sub`) or without it.

use super::{FoundAs, ListError, Lister};
use crate::source::beneath;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::Dir;
use std::collections::HashSet;
use std::io;

const PARTS: [&str; 3] = ["cur", "new", "tmp"];
/// Maximum number of times that `cur` is listed again because messages were renamed during the listing.
const RELISTS_MAX: usize = 3;
/// The reason why a message is not imported.
const NAME_OF_FOLDER: &str = "a message and a folder of the Maildir have this name: rename the folder";
/// The text between the unique part and the flags of a file name.
const FLAGS_SEPARATOR: &[u8] = b":2,";

/// True when `dir` has the three folders of a Maildir.
pub(super) fn is_maildir(dir: BorrowedFd<'_>) -> bool {
    PARTS.iter().all(|part| matches!(FoundAs::look(dir, part.as_bytes()), Ok(FoundAs::Folder)))
}

/// The unique part of a message's file name, and its flags.
pub fn split_name(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().position(|b| *b == b':') {
        Some(at) => (&name[..at], name[at..].strip_prefix(FLAGS_SEPARATOR).unwrap_or_default()),
        None => (name, &[]),
    }
}

/// Looks up the kind of an entry of a folder: [`FoundAs::look`], except in tests.
type Look<'a> = &'a dyn Fn(BorrowedFd<'_>, &[u8]) -> io::Result<FoundAs>;

/// Lists the messages and folders of the Maildir `dir`.
///
/// # Errors
/// When a folder cannot be read, or when messages were renamed during every listing of `cur`. The run must not take an
/// incomplete listing: it would remove the messages that the listing misses.
pub(super) fn list(dir: BorrowedFd<'_>, lister: &mut Lister) -> Result<(), ListError> {
    list_with(dir, lister, &FoundAs::look)
}

fn list_with(dir: BorrowedFd<'_>, lister: &mut Lister, look: Look<'_>) -> Result<(), ListError> {
    // `new` is listed before `cur`: a message that moves from `new` to `cur` during the listing is found twice. In the
    // other order the listing could miss the message.
    let mut names = Names { messages: HashSet::new(), folders: list_folders(dir, lister)? };
    let mut renamed = list_messages(dir, "new", &mut names, lister, look)?
        | list_messages(dir, "cur", &mut names, lister, look)?;
    // A change of flags renames a message. The listing of `cur` may have returned the old name, which is gone now, and
    // missed the new name. The message must not count as removed, so `cur` is listed again.
    for _ in 0..RELISTS_MAX {
        if !renamed {
            break;
        }
        renamed = list_messages(dir, "cur", &mut names, lister, look)?;
    }
    if renamed {
        let listings = RELISTS_MAX + 1;
        let error = format!(
            "a mail program renamed or removed messages during each of {listings} listings, so the listing may miss \
             messages; the next import lists the folder again"
        );
        return Err(lister.io_error(b"cur", io::Error::new(io::ErrorKind::ResourceBusy, error)));
    }
    Ok(())
}

/// The names that were listed.
struct Names {
    /// The unique parts of the messages.
    messages: HashSet<Vec<u8>>,
    folders: HashSet<Vec<u8>>,
}

/// Lists the folders of the Maildir, and returns their names.
fn list_folders(dir: BorrowedFd<'_>, lister: &mut Lister) -> Result<HashSet<Vec<u8>>, ListError> {
    let mut names = HashSet::new();
    for entry in Dir::read_from(dir).map_err(|e| lister.io_error(b"", e.into()))? {
        let entry = entry.map_err(|e| lister.io_error(b"", e.into()))?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        match FoundAs::look(dir, name).map_err(|e| lister.io_error(name, e))? {
            FoundAs::Nothing => {}
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::Folder if PARTS.iter().any(|part| name == part.as_bytes()) => {}
            FoundAs::Folder => {
                lister.folder(name)?;
                names.insert(name.to_vec());
            }
            FoundAs::File(_) | FoundAs::Special => lister.skipped.maildir += 1,
        }
    }
    Ok(names)
}

/// Lists the messages in the folder `part` of the Maildir. Messages whose unique part is in `names` are listed already.
/// Refuses a message with the name of a folder, because a container has each name once. Returns true when a file name
/// vanished before the importer looked the file up.
fn list_messages(
    dir: BorrowedFd<'_>,
    part: &str,
    names: &mut Names,
    lister: &mut Lister,
    look: Look<'_>,
) -> Result<bool, ListError> {
    let mut has_vanished = false;
    let folder = beneath::open(dir, part.as_bytes()).map_err(|e| lister.io_error(part.as_bytes(), e))?;
    for entry in Dir::read_from(&folder).map_err(|e| lister.io_error(part.as_bytes(), e.into()))? {
        let entry = entry.map_err(|e| lister.io_error(part.as_bytes(), e.into()))?;
        let file_name = entry.file_name().to_bytes();
        if matches!(file_name, b"." | b"..") {
            continue;
        }
        let at = [part.as_bytes(), b"/", file_name].concat();
        let (unique, flags) = split_name(file_name);
        match look(folder.as_fd(), file_name).map_err(|e| lister.io_error(&at, e))? {
            FoundAs::Nothing => has_vanished = true,
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::File(stamp) if !file_name.starts_with(b".") && !unique.is_empty() => {
                match names.messages.insert(unique.to_vec()) {
                    true if names.folders.contains(unique) => {
                        lister.refused.push((unique.to_vec(), NAME_OF_FOLDER.to_owned()));
                    }
                    true => lister.document(unique, &stamp, Some((&at, flags)))?,
                    false => {}
                }
            }
            _ => lister.skipped.maildir += 1,
        }
    }
    Ok(has_vanished)
}

#[cfg(test)]
mod tests {
    use super::super::Parted;
    use super::*;
    use crate::container::Container;
    use crate::fixture::TempDir;
    use crate::source::Listing;
    use std::cell::Cell;

    #[test]
    fn the_unique_part_ends_at_the_colon() {
        assert_eq!(split_name(b"1700.M1P2.host:2,FS"), (&b"1700.M1P2.host"[..], &b"FS"[..]));
        assert_eq!(split_name(b"1700.M1P2.host,S=12:2,"), (&b"1700.M1P2.host,S=12"[..], &b""[..]));
        assert_eq!(split_name(b"1700.M1P2.host"), (&b"1700.M1P2.host"[..], &b""[..]));
        assert_eq!(split_name(b"1700.M1P2.host:1,x"), (&b"1700.M1P2.host"[..], &b""[..]));
    }

    /// Lists a Maildir with one message. The first `renames` look-ups find that the message's file name is gone.
    fn list_while_renamed(renames: usize) -> Result<Listing, ListError> {
        let maildir = TempDir::new("renamed");
        PARTS.iter().for_each(|part| std::fs::create_dir(maildir.path().join(part)).unwrap());
        maildir.write("cur/1700.M1.host:2,S", b"From: a@example.org\n\nx");
        let dir = std::fs::File::open(maildir.path()).unwrap();
        let mut parted = Parted::new(None);
        let mut lister = Lister::new("maildir".into(), false, parted.begin(b""));
        let lookups = Cell::new(0);
        let look = |dir: BorrowedFd<'_>, name: &[u8]| {
            lookups.set(lookups.get() + 1);
            if lookups.get() <= renames { Ok(FoundAs::Nothing) } else { FoundAs::look(dir, name) }
        };
        list_with(dir.as_fd(), &mut lister, &look)?;
        lister.finish(b"", &mut parted)
    }

    #[test]
    fn a_renamed_message_is_found_by_another_listing() {
        for renames in 0..=RELISTS_MAX {
            let listing = list_while_renamed(renames).unwrap();
            let listed = Container::parse(&listing.blob).unwrap();
            assert!(listed.find(b"1700.M1.host").is_some(), "after {renames} renames");
        }
    }

    #[test]
    fn a_maildir_whose_messages_are_renamed_during_every_listing_is_an_error() {
        let error = list_while_renamed(RELISTS_MAX + 1).unwrap_err().to_string();
        assert!(error.starts_with("maildir/cur: ") && error.contains("each of 4 listings"), "{error}");
    }
}
