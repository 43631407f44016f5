//! Sources on other machines: an S3-compatible bucket ([`s3`]) and one object of a web server ([`http`]).
//!
//! The importer reads at offsets and blocks. The network libraries are asynchronous. [`RemoteObject`] connects them. It
//! fetches an object in blocks, and keeps a few blocks in memory. All blocks must have the version of the first block,
//! so an object is read in one version or the read fails. The first block's response also has the size and the token,
//! so no other request is needed for them.

pub mod http;
mod page;
mod profile;
pub mod s3;
mod store;
pub mod throttle;
pub mod versions;

use super::{Object, Stat, text_with_causes};
use crate::cache::CacheOptions;
use crate::temporary::TemporaryFile;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the first block of an object. They decide whether the rest of the object is read.
const FIRST_BLOCK_BYTES: u64 = super::read::BEGINNING_BYTES;
/// Bytes of each further block of an object.
const BLOCK_BYTES: u64 = 1 << 20;
/// Maximum number of blocks of an object that are kept in memory.
const BLOCKS_KEPT: usize = 4;
/// Maximum number of bytes of an object on a server that does not support ranges.
pub const WHOLE_BYTES_MAX: u64 = 16 << 30;
/// Maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for one response, including its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of times that a request is sent again if the server is busy or the request was lost.
pub const RETRIES_MAX: usize = 6;
/// Maximum time for one request with all its retries.
pub const RETRY_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause before the first retry. It doubles with each retry, up to [`BACKOFF_MAX`].
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Maximum pause before a retry.
const BACKOFF_MAX: Duration = Duration::from_secs(15);

/// Options of remote sources. More settings come from the environment.
#[derive(Clone, Debug, Default)]
pub struct RemoteOptions {
    /// The S3-compatible server, `http://host:port`. `None`: the environment's server, or Amazon's.
    pub endpoint: Option<String>,
    /// The bucket's region.
    pub region: Option<String>,
    /// The profile in the credentials files.
    pub profile: Option<String>,
    /// True: send requests without credentials.
    pub anonymous: bool,
    /// Import the bucket's content at this time. The bucket must keep versions. `None`: now.
    pub as_of: Option<versions::Moment>,
    /// The file with the password of a restic repository. `None`: `RESTIC_PASSWORD_FILE` or `RESTIC_PASSWORD` has it.
    pub password_file: Option<PathBuf>,
    /// Maximum number of documents of one container in memory while the container is listed. A larger container is
    /// listed through a temporary file. The bound applies to folders too. `None`: the default bound.
    pub list_cutoff: Option<usize>,
    /// The disk cache. Folders can have a cache too. `None`: no cache.
    pub cache: Option<CacheOptions>,
}

/// The runtime of the network libraries. It runs only while the importer waits for a response.
type Runtime = Rc<tokio::runtime::Runtime>;

fn runtime() -> io::Result<Runtime> {
    // The call fails if the process has a provider already. Then that provider is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(Rc::new(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
}

/// A range of an object's bytes, and the object's version.
struct Piece {
    bytes: Vec<u8>,
    /// The whole object's size.
    size: u64,
    token: Vec<u8>,
}

/// Gets ranges of one object.
trait Fetch {
    /// Returns the bytes at `range`, up to the end of the object. `token` is the expected version, if there is one.
    fn fetch(&self, range: Range<u64>, token: Option<&[u8]>) -> io::Result<Piece>;
}

/// An object on another machine.
struct RemoteObject<F> {
    fetch: F,
    state: RefCell<Fetched>,
}

#[derive(Default)]
struct Fetched {
    /// Size and token of the object's version, known after the first response. All further blocks must be of this
    /// version.
    pinned: Option<(u64, Vec<u8>)>,
    /// Blocks by their numbers. The block that was used last is at the end.
    blocks: VecDeque<(u64, Rc<Vec<u8>>)>,
}

impl<F: Fetch> RemoteObject<F> {
    fn new(fetch: F) -> RemoteObject<F> {
        RemoteObject { fetch, state: RefCell::new(Fetched::default()) }
    }

    /// An object with its first block, which was prefetched.
    fn with_first(fetch: F, first: Piece) -> RemoteObject<F> {
        let object = RemoteObject::new(fetch);
        {
            let state = &mut *object.state.borrow_mut();
            if first.bytes.len() as u64 == FIRST_BLOCK_BYTES.min(first.size) {
                state.pinned = Some((first.size, first.token));
                state.blocks.push_back((0, Rc::new(first.bytes)));
            }
        }
        object
    }

    /// Returns size and token of the object.
    fn pinned(&self) -> io::Result<(u64, Vec<u8>)> {
        if let Some(pinned) = &self.state.borrow().pinned {
            return Ok(pinned.clone());
        }
        self.block(0)?;
        Ok(self.state.borrow().pinned.clone().expect("the first block pins"))
    }

    fn block(&self, number: u64) -> io::Result<Rc<Vec<u8>>> {
        let mut state = self.state.borrow_mut();
        if let Some(at) = state.blocks.iter().position(|(n, _)| *n == number) {
            let found = state.blocks.remove(at).expect("just found");
            state.blocks.push_back(found.clone());
            return Ok(found.1);
        }
        let token = state.pinned.as_ref().map(|(_, token)| &token[..]);
        let piece = self.fetch.fetch(block_range(number), token)?;
        let version = (piece.size, piece.token);
        if state.pinned.as_ref().is_some_and(|pinned| *pinned != version) {
            return Err(changed());
        }
        let range = block_range(number);
        let expected = range.end.min(version.0).saturating_sub(range.start);
        if piece.bytes.len() as u64 != expected {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.pinned = Some(version);
        let bytes = Rc::new(piece.bytes);
        state.blocks.push_back((number, bytes.clone()));
        if state.blocks.len() > BLOCKS_KEPT {
            state.blocks.pop_front();
        }
        Ok(bytes)
    }
}

impl<F: Fetch> Object for Rc<RemoteObject<F>> {
    fn stat(&self) -> io::Result<Stat> {
        let (size, token) = self.pinned()?;
        Ok(Stat { size, token, is_young: false })
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if offset >= self.pinned()?.0 || into.is_empty() {
            return Ok(0);
        }
        let number = block_at(offset);
        let block = self.block(number)?;
        let rest = &block[(offset - block_range(number).start) as usize..];
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// The number of the block that holds the byte at `offset`.
pub(super) fn block_at(offset: u64) -> u64 {
    if offset < FIRST_BLOCK_BYTES { 0 } else { 1 + (offset - FIRST_BLOCK_BYTES) / BLOCK_BYTES }
}

/// The bytes of a block.
pub(super) fn block_range(number: u64) -> Range<u64> {
    match number {
        0 => 0..FIRST_BLOCK_BYTES,
        n => FIRST_BLOCK_BYTES + (n - 1) * BLOCK_BYTES..FIRST_BLOCK_BYTES + n * BLOCK_BYTES,
    }
}

/// A whole object in a temporary file, from a server that does not support ranges.
struct Whole {
    file: TemporaryFile,
    size: u64,
    token: Vec<u8>,
}

impl Whole {
    fn new() -> io::Result<Whole> {
        Ok(Whole { file: TemporaryFile::new()?, size: 0, token: Vec::new() })
    }
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.size + bytes.len() as u64 > WHOLE_BYTES_MAX {
            let text =
                format!("the server does not support ranges and sends more than {WHOLE_BYTES_MAX} bytes");
            return Err(io::Error::other(text));
        }
        self.file.write_all_at(bytes, self.size)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
    fn piece(&self, range: Range<u64>) -> io::Result<Piece> {
        let range = range.start.min(self.size)..range.end.min(self.size);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start)?;
        Ok(Piece { bytes, size: self.size, token: self.token.clone() })
    }
}

pub(super) fn changed() -> io::Error {
    io::Error::other("the object changed while it was read")
}

/// The error for an object that does not exist any more. [`super::ReadError`] recognizes it by its error number.
fn vanished() -> io::Error {
    rustix::io::Errno::NOENT.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Counts requests; from request `changes_at` on the object is another version.
    struct Counted {
        bytes: Vec<u8>,
        requests: Rc<Cell<u32>>,
        changes_at: u32,
    }

    impl Fetch for Counted {
        fn fetch(&self, range: Range<u64>, _token: Option<&[u8]>) -> io::Result<Piece> {
            self.requests.set(self.requests.get() + 1);
            let size = self.bytes.len() as u64;
            let range = range.start.min(size) as usize..range.end.min(size) as usize;
            let token = vec![u8::from(self.requests.get() >= self.changes_at)];
            Ok(Piece { bytes: self.bytes[range].to_vec(), size, token })
        }
    }

    fn object(len: usize, changes_at: u32) -> (Rc<RemoteObject<Counted>>, Vec<u8>, Rc<Cell<u32>>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 7 % 251) as u8).collect();
        let requests = Rc::new(Cell::new(0));
        let counted = Counted { bytes: bytes.clone(), requests: requests.clone(), changes_at };
        (Rc::new(RemoteObject::new(counted)), bytes, requests)
    }

    #[test]
    fn blocks_make_up_the_object_and_each_is_fetched_once() {
        let lens =
            [0, 1, FIRST_BLOCK_BYTES as usize, FIRST_BLOCK_BYTES as usize + 1, 3 * BLOCK_BYTES as usize + 9];
        for (len, expected) in lens.into_iter().zip([1, 1, 1, 2, 4]) {
            let (object, bytes, requests) = object(len, u32::MAX);
            assert_eq!(object.stat().unwrap().size, len as u64);
            let (mut all, mut at) = (Vec::new(), 0);
            let mut into = vec![0; 100_000];
            loop {
                let got = object.read_at(at, &mut into).unwrap();
                if got == 0 {
                    break;
                }
                all.extend_from_slice(&into[..got]);
                at += got as u64;
            }
            assert!(all == bytes, "{len} bytes");
            assert_eq!(requests.get(), expected, "{len} bytes");
        }
    }

    #[test]
    fn an_object_that_changes_is_not_mixed() {
        let (object, _, _) = object(2 * BLOCK_BYTES as usize, 2);
        assert!(object.read_at(0, &mut [0; 10]).is_ok());
        let error = object.read_at(BLOCK_BYTES, &mut [0; 10]).unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }
}
