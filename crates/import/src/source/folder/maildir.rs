//! A Maildir: a folder with `cur`, `new` and `tmp`.
//!
//! A document's name is the unique part of the file name, before `:2,flags`. So a message keeps its id when a mail
//! program marks it as read, changes its flags or moves it from `new` to `cur`. The flags are metadata: after a change
//! of flags the run updates the document without reading the message. Messages in `tmp` are not delivered yet, so they
//! are not listed. Files that mail programs keep beside the messages are not listed either. Folders in the Maildir are
//! containers, with the leading dot of Maildir++ (`.Sub`) or without it.

use super::{FoundAs, ListError, Lister, now_ns};
use crate::source::beneath;
use crate::source::stamp::Stamp;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Dir, statat};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

const PARTS: [&str; 3] = ["cur", "new", "tmp"];
/// Maximum number of times that the messages are listed again because messages were renamed during the listing.
const RELISTS_MAX: usize = 6;
/// The pause before the messages are listed again for the first time. It doubles with each further listing, so that a
/// mail program can end its work on many messages.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The reason why a message is not imported.
const NAME_OF_FOLDER: &str = "a message and a folder of the Maildir have this name: rename the folder";
/// The text between the unique part and the flags of a file name.
const FLAGS_SEPARATOR: &[u8] = b":2,";

/// True when `dir` has the three folders of a Maildir.
///
/// # Errors
/// When an entry cannot be looked up. A Maildir that is listed as a plain folder would lose all of its messages.
pub(super) fn is_maildir(dir: BorrowedFd<'_>) -> io::Result<bool> {
    for part in PARTS {
        if !matches!(FoundAs::look(dir, part.as_bytes())?, FoundAs::Folder) {
            return Ok(false);
        }
    }
    Ok(true)
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
/// When a folder cannot be read, or when messages were renamed during every listing. The run must not take an
/// incomplete listing: it would remove the messages that the listing misses.
pub(super) fn list(dir: BorrowedFd<'_>, lister: &mut Lister) -> Result<(), ListError> {
    list_with(dir, lister, &FoundAs::look)
}

fn list_with(dir: BorrowedFd<'_>, lister: &mut Lister, look: Look<'_>) -> Result<(), ListError> {
    let mut names = Names { messages: HashSet::new(), folders: list_folders(dir, lister)? };
    let skipped = lister.skipped;
    let (mut pause, mut young_for, mut seen) = (PAUSE_FIRST, Duration::ZERO, None);
    for listing in 0..=RELISTS_MAX {
        if listing > 0 {
            // The clock of a file system may have whole seconds.
            std::thread::sleep(pause.max(young_for));
            pause *= 2;
            lister.skipped = skipped;
        }
        // A change of flags renames a message. The system may return the old name, which is gone when it is looked up,
        // or neither name, if the message moves from the part of the folder that is not read yet to the part that is.
        // The message must not count as removed, so both folders are listed again until nothing changes meanwhile.
        let before = stamps(dir, lister)?;
        let now = now_ns();
        // `new` is listed before `cur`: a message that moves from `new` to `cur` during the listing is found twice. In
        // the other order the listing could miss the message.
        let has_vanished = list_messages(dir, "new", &mut names, lister, look)?
            | list_messages(dir, "cur", &mut names, lister, look)?;
        let racy_for_ns = before.iter().map(|stamp| stamp.racy_for_ns(now)).max().unwrap_or_default();
        young_for = Duration::from_nanos(racy_for_ns.unsigned_abs());
        // The clock of a file server may be ahead. Stamps that stay equal for the whole window are old.
        let (stamps_seen, since, window) = *seen.get_or_insert((before, Instant::now(), young_for));
        if stamps_seen != before {
            seen = Some((before, Instant::now(), young_for));
        } else if since.elapsed() >= window {
            young_for = Duration::ZERO;
        }
        if !has_vanished && young_for.is_zero() && before == stamps(dir, lister)? {
            return Ok(());
        }
    }
    let listings = RELISTS_MAX + 1;
    let error = format!(
        "a mail program renamed, added or removed messages during each of {listings} listings, so the listing may miss \
         messages; the next import lists the folder again"
    );
    Err(lister.io_error(b"cur", io::Error::new(io::ErrorKind::ResourceBusy, error)))
}

/// The facts about `new` and `cur` that change with every rename in them.
fn stamps(dir: BorrowedFd<'_>, lister: &Lister) -> Result<[Stamp; 2], ListError> {
    let stamp = |part: &str| {
        let stat = statat(dir, part, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| Stamp::of_stat(&stat)).map_err(|e| lister.io_error(part.as_bytes(), e.into()))
    };
    Ok([stamp("new")?, stamp("cur")?])
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

/// Lists the messages in the folder `part` of the Maildir. Messages whose unique part is in `names` are listed already,
/// and not looked up again. Refuses a message with the name of a folder, because a container has each name once. Returns
/// true when a file name vanished before the importer looked the file up.
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
        if names.messages.contains(unique) {
            continue;
        }
        match look(folder.as_fd(), file_name).map_err(|e| lister.io_error(&at, e))? {
            FoundAs::Nothing => has_vanished = true,
            FoundAs::Link => lister.skipped.links += 1,
            FoundAs::File(stamp) if !file_name.starts_with(b".") && !unique.is_empty() => {
                names.messages.insert(unique.to_vec());
                if names.folders.contains(unique) {
                    lister.refused.push((unique.to_vec(), NAME_OF_FOLDER.to_owned()));
                } else {
                    lister.document(unique, &stamp, Some((&at, flags)))?;
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
        for renames in [0, 1, RELISTS_MAX] {
            let listing = list_while_renamed(renames).unwrap();
            let listed = Container::parse(&listing.blob).unwrap();
            assert!(listed.find(b"1700.M1.host").is_some(), "after {renames} renames");
        }
    }

    /// The system may return neither name of a message that is renamed while the folder is read. The test adds a message
    /// after the names were read: the first listing does not return its name.
    #[test]
    fn a_message_that_a_listing_misses_is_found_by_another_listing() {
        let maildir = TempDir::new("missed");
        PARTS.iter().for_each(|part| std::fs::create_dir(maildir.path().join(part)).unwrap());
        maildir.write("cur/1700.M1.host:2,S", b"From: a@example.org\n\nx");
        let dir = std::fs::File::open(maildir.path()).unwrap();
        let mut parted = Parted::new(None);
        let mut lister = Lister::new("maildir".into(), false, parted.begin(b""));
        let look = |dir: BorrowedFd<'_>, name: &[u8]| {
            maildir.write("cur/1700.M2.host:2,", b"From: a@example.org\n\ny");
            FoundAs::look(dir, name)
        };
        list_with(dir.as_fd(), &mut lister, &look).unwrap();
        let listing = lister.finish(b"", &mut parted).unwrap();
        assert!(Container::parse(&listing.blob).unwrap().find(b"1700.M2.host").is_some());
    }

    #[test]
    fn a_maildir_whose_messages_are_renamed_during_every_listing_is_an_error() {
        let error = list_while_renamed(RELISTS_MAX + 1).unwrap_err().to_string();
        assert!(error.starts_with("maildir/cur: ") && error.contains("each of 7 listings"), "{error}");
    }
}
