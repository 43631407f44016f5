//! [`Cached`]: a source that is read through a disk cache.
//!
//! If the cache has the first part of a document, in the listed version, the document is opened at the source only when
//! another part is missing in the cache. Every other document is opened at the source. Its parts are stored in the
//! cache if the document still has the listed version.

use super::remote::{block_at, block_range, changed};
use super::{Identity, ListError, Listing, Object, ReadError, Source, Stat, Tokens};
use crate::cache::{CacheOptions, CacheUse, Version};
use crate::container::{Container, ContainerBuilder, Entry};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// A source that is read through a cache.
pub(super) struct Cached {
    source: Rc<RefCell<Box<dyn Source>>>,
    cache: Rc<CacheUse>,
}

impl Cached {
    /// Reads `source` through the cache of `place`, the source's location. If the cache cannot be used, reads without
    /// it.
    pub(super) fn new(source: Box<dyn Source>, options: &CacheOptions, place: &[u8]) -> Cached {
        Cached { source: Rc::new(RefCell::new(source)), cache: Rc::new(CacheUse::open(options, place)) }
    }
}

impl Source for Cached {
    fn tokens(&self) -> Tokens {
        self.source.borrow().tokens()
    }

    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError> {
        self.source.borrow_mut().list(path, distrust)
    }

    fn warning(&mut self) -> Option<String> {
        self.source.borrow_mut().warning()
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let name = self.source.borrow().cache_name(path, entry).filter(|_| !entry.token.is_empty());
        let Some(name) = name else { return self.source.borrow_mut().open(path, entry) };
        let version = Version::new(&name, entry.token);
        let mut inner = None;
        if entry.size > 0 && !self.cache.has(version, 0) {
            let object = self.source.borrow_mut().open(path, entry)?;
            let stat = object.stat()?;
            if stat.token != entry.token || stat.size != entry.size {
                return Ok(object);
            }
            inner = Some(object);
        }
        let mut listed = ContainerBuilder::new(0);
        let pushed = listed.push(entry.kind, entry.name, entry.size, entry.token, entry.pairs());
        let listed =
            pushed.and_then(|()| listed.finish()).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(CachedObject {
            source: self.source.clone(),
            cache: self.cache.clone(),
            path: path.to_vec(),
            listed,
            version,
            size: entry.size,
            token: entry.token.to_vec(),
            state: RefCell::new(State { inner, last: None }),
        }))
    }

    fn is_remote(&self) -> bool {
        self.source.borrow().is_remote()
    }

    fn makes_parts(&self) -> bool {
        self.source.borrow().makes_parts()
    }

    fn keep_parts(&mut self, path: &[u8]) {
        self.source.borrow_mut().keep_parts(path);
    }

    fn size(&mut self, entry: &Entry<'_>) -> Option<u64> {
        self.source.borrow_mut().size(entry)
    }

    fn prefetch_max(&self) -> usize {
        self.source.borrow().prefetch_max()
    }

    /// Makes the source fetch the document, unless the cache has it.
    fn prefetch(&mut self, path: &[u8], entry: &Entry<'_>) {
        let name = self.source.borrow().cache_name(path, entry).filter(|_| !entry.token.is_empty());
        if entry.size > 0 && !name.is_some_and(|name| self.cache.has(Version::new(&name, entry.token), 0)) {
            self.source.borrow_mut().prefetch(path, entry);
        }
    }

    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        self.source.borrow().cache_name(path, entry)
    }

    fn cache(&self) -> Option<&CacheUse> {
        Some(&self.cache)
    }

    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        self.source.borrow().identity(entry)
    }
}

/// A document that is read through the cache.
struct CachedObject {
    source: Rc<RefCell<Box<dyn Source>>>,
    cache: Rc<CacheUse>,
    path: Vec<u8>,
    /// A container with the document's entry.
    listed: Vec<u8>,
    version: Version,
    size: u64,
    token: Vec<u8>,
    state: RefCell<State>,
}

struct State {
    /// The document at the source. `None` until a part is missing in the cache.
    inner: Option<Box<dyn Object>>,
    /// The part that was read last, with its number.
    last: Option<(u64, Vec<u8>)>,
}

impl CachedObject {
    /// Reads the part with this number from the source, and stores it in the cache.
    fn fetch(&self, state: &mut State, number: u64) -> io::Result<Vec<u8>> {
        if state.inner.is_none() {
            let container = Container::parse(&self.listed).expect("built when it was opened");
            let opened = self.source.borrow_mut().open(&self.path, &container.entry(0));
            state.inner = Some(opened.map_err(|error| match error {
                ReadError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })?);
        }
        let object = state.inner.as_ref().expect("just opened");
        let range = block_range(number);
        let len = usize::try_from(range.end.min(self.size) - range.start).unwrap_or(0);
        let (mut bytes, mut done) = (vec![0; len], 0);
        while done < len {
            match object.read_at(range.start + done as u64, &mut bytes[done..]) {
                Ok(0) => return Err(changed()),
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Read the token after the bytes. If it is still the listed token, the bytes belong to the listed version.
        let stat = object.stat()?;
        if stat.token != self.token || stat.size != self.size {
            return Err(changed());
        }
        self.cache.keep(self.version, range.start, &bytes);
        Ok(bytes)
    }
}

impl Object for CachedObject {
    fn stat(&self) -> io::Result<Stat> {
        Ok(Stat { size: self.size, token: self.token.clone(), is_young: false })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if offset >= self.size || into.is_empty() {
            return Ok(0);
        }
        let number = block_at(offset);
        let start = block_range(number).start;
        let state = &mut *self.state.borrow_mut();
        if state.last.as_ref().is_none_or(|(last, _)| *last != number) {
            let expected = block_range(number).end.min(self.size) - start;
            let found = self.cache.part(self.version, start).filter(|part| part.len() as u64 == expected);
            let part = match found {
                Some(part) => part,
                None => self.fetch(state, number)?,
            };
            state.last = Some((number, part));
        }
        let (_, part) = state.last.as_ref().expect("just read");
        let rest = part.get((offset - start) as usize..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}
