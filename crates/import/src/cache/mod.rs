//! The disk cache: parts of remote objects, and texts that were extracted, kept between runs.
//!
//! [`DiskCache`] keeps each version of an object as one sparse file. An index ([`index`]) says which parts of the file
//! are there. A part is found by the object, its version token and its offset. The cache hands a part out only if its
//! length and digest are as recorded. So a damaged part, an older version or a missing file counts as not cached.
//! [`limits`] says how much of the disk is filled, and `culling` makes room. [`texts`] keeps the text of a document.
//! Nothing here makes a run fail: after `FAILURES_MAX` failures in a row the cache is not used any more.
//!
//! Each source has a cache of its own in the user's folder, because a process locks the index of a cache that it has
//! open. So runs that read different sources at once all have a cache.

mod culling;
mod error;
mod index;
pub mod limits;
pub(crate) mod texts;

use crate::container::digest;
use error::{CacheError, OpenError};
use index::Index;
use limits::{Free, Limits};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The name of the folder that holds everything. It lies in the folder that the user names. No file outside of it is
/// touched.
const FOLDER: &str = "strand-cache";
/// Longest part in bytes.
pub const PART_BYTES_MAX: usize = 16 << 20;
/// Number of failures in a row after which the cache is not used any more.
const FAILURES_MAX: u32 = 8;
/// How often a cache that another process has open is asked for. The other process may be culling it, which is short.
const OPENS_MAX: u32 = 10;
/// The pause between two of these attempts.
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Where a cache is, and how much of the disk it may fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder. It is created if it is missing.
    pub folder: PathBuf,
    /// How much of its disk may be filled.
    pub limits: Limits,
}

/// One version of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    object: u128,
    version: u128,
}

impl Version {
    /// The version with the token `token` of the object `name`. The name includes the object's source.
    pub fn new(name: &[u8], token: &[u8]) -> Version {
        let number = |bytes| u128::from_le_bytes(digest(bytes));
        Version { object: number(name), version: number(token) }
    }
    fn path(&self, folder: &Path) -> PathBuf {
        index::path(folder, self.object, self.version)
    }
}

/// The result of storing a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// True when the part is stored.
    pub stored: bool,
    /// True when the disk is too full.
    pub refused: bool,
    /// Number of objects that were culled to make room.
    pub culled: u64,
}

/// What a run read from a cache, and stored in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Parts of objects that were read from the cache.
    pub hits: u64,
    /// Bytes of these parts.
    pub hit_bytes: u64,
    /// Parts that were read from the source.
    pub misses: u64,
    /// Documents whose text was in the cache. Their bytes were not read.
    pub texts: u64,
    /// Bytes that were stored, texts among them.
    pub stored_bytes: u64,
    /// Parts that were not stored, because the disk is too full.
    pub refused: u64,
    /// Number of objects that were culled to make room.
    pub culled: u64,
    /// Why the cache is not used any more.
    pub aside: Option<String>,
}

impl CacheCounts {
    /// The sum of two counts.
    pub fn plus(self, other: CacheCounts) -> CacheCounts {
        CacheCounts {
            hits: self.hits + other.hits,
            hit_bytes: self.hit_bytes + other.hit_bytes,
            misses: self.misses + other.misses,
            texts: self.texts + other.texts,
            stored_bytes: self.stored_bytes + other.stored_bytes,
            refused: self.refused + other.refused,
            culled: self.culled + other.culled,
            aside: self.aside.or(other.aside),
        }
    }
    fn count(&mut self, put: Put, bytes: usize) {
        self.stored_bytes += if put.stored { bytes as u64 } else { 0 };
        self.refused += u64::from(put.refused);
        self.culled += put.culled;
    }
}

/// Returns how much is free on the disk of a path.
type Probe = dyn Fn(&Path) -> io::Result<Free> + Send + Sync;

/// The cache of a source on a disk. The runs of one process share it. Other processes cannot open it meanwhile.
pub struct DiskCache {
    /// The folder of this cache. The caches of other sources lie beside it.
    folder: PathBuf,
    limits: Limits,
    probe: Box<Probe>,
    state: Mutex<State>,
}

struct State {
    index: Index,
    is_culling: bool,
    failures: u32,
    aside: Option<String>,
}

/// The open caches of this process, by their folders.
static OPEN: Mutex<Vec<(PathBuf, Weak<DiskCache>)>> = Mutex::new(Vec::new());

impl DiskCache {
    /// Opens the cache of `source`, or takes the one of this process.
    ///
    /// # Errors
    /// The reason why the cache cannot be used, for a person: another process has it, or the folder cannot be written.
    pub(crate) fn open(options: &CacheOptions, source: &[u8]) -> Result<Arc<DiskCache>, CacheError> {
        let name = u128::from_le_bytes(digest(source));
        let folder = options.folder.join(FOLDER).join(format!("{name:032x}"));
        let failed = |error| CacheError::File { path: folder.clone(), error };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, cache)| cache.strong_count() > 0);
        if let Some(cache) = open.iter().filter(|(at, _)| *at == folder).find_map(|(_, c)| c.upgrade()) {
            return Ok(cache);
        }
        let probe = |path: &Path| Ok(Free::of(&rustix::fs::statvfs(path)?));
        let cache = Arc::new(DiskCache::with(folder.clone(), options.limits, Box::new(probe))?);
        open.push((folder, Arc::downgrade(&cache)));
        Ok(cache)
    }

    fn with(folder: PathBuf, limits: Limits, probe: Box<Probe>) -> Result<DiskCache, CacheError> {
        let mut opened = Index::open(&folder);
        for _ in 1..OPENS_MAX {
            let Err(OpenError::Taken) = opened else { break };
            std::thread::sleep(OPEN_PAUSE);
            opened = Index::open(&folder);
        }
        let index = opened.map_err(|error| CacheError::Open { folder: folder.clone(), error })?;
        let state = State { index, is_culling: false, failures: 0, aside: None };
        Ok(DiskCache { folder, limits, probe, state: Mutex::new(state) })
    }

    /// The part at `offset`. `None` when it is missing or damaged.
    pub fn get(&self, of: Version, offset: u64) -> Option<Vec<u8>> {
        let (len, expected) = {
            let mut state = self.state();
            if state.aside.is_some() {
                return None;
            }
            let found = state.index.find(of.object, of.version, offset);
            state.judge(found)??
        };
        let mut bytes = vec![0; (len as usize).min(PART_BYTES_MAX)];
        let read = File::open(of.path(&self.folder)).and_then(|file| file.read_exact_at(&mut bytes, offset));
        if read.is_ok() && u128::from_le_bytes(digest(&bytes)) == expected {
            return Some(bytes);
        }
        let mut state = self.state();
        let removed = state.index.remove(of.object);
        state.judge(removed);
        None
    }

    /// Stores the part at `offset`, if there is room.
    pub fn put(&self, of: Version, offset: u64, bytes: &[u8]) -> Put {
        let mut put = Put::default();
        if bytes.len() > PART_BYTES_MAX || self.state().aside.is_some() {
            return put;
        }
        match self.make_room() {
            Ok((room, culled)) => {
                put.culled = culled;
                put.refused = !room;
            }
            Err(error) => self.state().fail(CacheError::File { path: self.folder.clone(), error }),
        }
        if put.refused {
            return put;
        }
        let path = of.path(&self.folder);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
            let file = File::options().create(true).truncate(false).write(true).open(&path)?;
            file.write_all_at(bytes, offset)
        });
        let mut state = self.state();
        let stored = match written {
            Ok(()) => state.index.insert(of.object, of.version, offset, bytes),
            Err(error) => {
                // A half-written part is removed. It would fill the disk for nothing.
                let _ = state.index.remove(of.object);
                let _ = std::fs::remove_file(&path);
                Err(CacheError::File { path, error })
            }
        };
        put.stored = state.judge(stored).is_some();
        if put.stored {
            state.failures = 0;
        }
        put
    }

    /// The reason why the cache is not used any more. `None` while it is used.
    pub fn aside(&self) -> Option<String> {
        self.state().aside.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the value, and counts an error as a failure. Only a part that was stored ends a row of failures, because
    /// reads still succeed on a full disk.
    fn judge<T>(&mut self, result: Result<T, CacheError>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }
    fn fail(&mut self, error: CacheError) {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.aside = Some(error.to_string());
        }
    }
}

impl std::fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DiskCache({})", self.folder.display())
    }
}

/// A run's use of a cache, with its counts.
#[derive(Debug)]
pub struct CacheUse {
    cache: Option<Arc<DiskCache>>,
    counts: std::cell::RefCell<CacheCounts>,
}

impl CacheUse {
    /// Opens the cache of `source`. If that fails, the run goes on without a cache, and says why.
    pub fn open(options: &CacheOptions, source: &[u8]) -> CacheUse {
        let (cache, aside) = match DiskCache::open(options, source) {
            Ok(cache) => (Some(cache), None),
            Err(error) => (None, Some(error.to_string())),
        };
        CacheUse { cache, counts: CacheCounts { aside, ..CacheCounts::default() }.into() }
    }
    /// A part of an object.
    pub(crate) fn part(&self, of: Version, offset: u64) -> Option<Vec<u8>> {
        let found = self.cache.as_ref()?.get(of, offset);
        let counts = &mut *self.counts.borrow_mut();
        match &found {
            Some(bytes) => {
                counts.hits += 1;
                counts.hit_bytes += bytes.len() as u64;
            }
            None => counts.misses += 1,
        }
        found
    }
    /// True when the cache has the part. Counts neither a hit nor a miss.
    pub(crate) fn has(&self, of: Version, offset: u64) -> bool {
        let Some(cache) = &self.cache else { return false };
        let found = cache.state().index.find(of.object, of.version, offset);
        matches!(found, Ok(Some(_)))
    }
    /// Returns the text of a document. `None` when the cache does not have it.
    pub(crate) fn text(&self, of: Version) -> Option<texts::Text> {
        let text = texts::Text::decode(&self.cache.as_ref()?.get(of, 0)?)?;
        self.counts.borrow_mut().texts += 1;
        Some(text)
    }
    /// Stores a part, or the text of a document.
    pub(crate) fn keep(&self, of: Version, offset: u64, bytes: &[u8]) {
        if let Some(cache) = &self.cache {
            let put = cache.put(of, offset, bytes);
            self.counts.borrow_mut().count(put, bytes.len());
        }
    }
    /// The counts so far.
    pub fn counts(&self) -> CacheCounts {
        let mut counts = self.counts.borrow().clone();
        let aside = self.cache.as_ref().and_then(|cache| cache.aside());
        counts.aside = counts.aside.or(aside);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    const SOURCE: &[u8] = b"s3://bucket/prefix";

    fn version(name: &str, token: &str) -> Version {
        Version::new(name.as_bytes(), token.as_bytes())
    }

    fn open(dir: &TempDir) -> Arc<DiskCache> {
        let options = CacheOptions { folder: dir.path().to_path_buf(), limits: roomy() };
        DiskCache::open(&options, SOURCE).expect("a folder of our own")
    }

    /// The folder of the cache, in the folder that the user names.
    fn own(dir: &TempDir) -> String {
        let name = u128::from_le_bytes(digest(SOURCE));
        format!("{}/{FOLDER}/{name:032x}", dir.path().display())
    }

    /// Limits that no test machine's disk reaches.
    fn roomy() -> Limits {
        let least = limits::Shares { run: 0, cull: 0, stop: 0 };
        Limits { blocks: least, files: least, culls: true }
    }

    #[test]
    fn parts_survive_a_restart_and_belong_to_one_version() {
        let dir = TempDir::new("cache");
        let large = vec![7; 300_000];
        {
            let cache = open(&dir);
            assert!(cache.get(version("a", "1"), 0).is_none());
            assert!(cache.put(version("a", "1"), 0, b"first").stored);
            assert!(cache.put(version("a", "1"), 5 << 30, &large).stored, "a part far behind");
            assert!(cache.put(version("b", "1"), 0, b"").stored);
            assert!(Arc::ptr_eq(&cache, &open(&dir)), "one cache a process");
        }
        let cache = open(&dir);
        assert_eq!(cache.get(version("a", "1"), 0).as_deref(), Some(&b"first"[..]));
        assert_eq!(cache.get(version("a", "1"), 5 << 30), Some(large));
        assert_eq!(cache.get(version("b", "1"), 0), Some(Vec::new()));
        for (other, offset) in [(version("a", "2"), 0), (version("c", "1"), 0), (version("a", "1"), 1)] {
            assert!(cache.get(other, offset).is_none());
        }
        // The new version of an object replaces the old version.
        assert!(cache.put(version("a", "2"), 0, b"second").stored);
        assert_eq!(cache.get(version("a", "2"), 0).as_deref(), Some(&b"second"[..]));
        assert!(cache.get(version("a", "1"), 0).is_none() && cache.get(version("a", "2"), 5 << 30).is_none());
    }

    fn files(dir: &TempDir) -> Vec<PathBuf> {
        let list =
            |path: &Path| std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
        let objects = Path::new(&own(dir)).join("objects");
        if objects.exists() {
            list(&objects).iter().flat_map(|folder| list(folder)).collect()
        } else {
            Vec::new()
        }
    }

    #[test]
    fn what_is_damaged_or_gone_is_not_handed_out() {
        let dir = TempDir::new("cache");
        let cache = open(&dir);
        for damage in 0..4 {
            assert!(cache.put(version("a", "1"), 0, b"some bytes").stored);
            let [file] = &files(&dir)[..] else { panic!("one file") };
            match damage {
                0 => std::fs::write(file, b"some bytez").unwrap(),
                1 => std::fs::write(file, b"some").unwrap(),
                2 => std::fs::remove_file(file).unwrap(),
                _ => std::fs::write(file, b"").unwrap(),
            }
            assert!(cache.get(version("a", "1"), 0).is_none(), "damage {damage}");
            assert!(files(&dir).is_empty() && cache.aside().is_none());
        }
    }

    #[test]
    fn a_cache_that_was_not_closed_or_whose_index_is_damaged_begins_anew() {
        let dir = TempDir::new("cache");
        drop(open(&dir));
        // A file that no index knows, as a killed process leaves it.
        let left = format!("{}/objects/ab", own(&dir));
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(format!("{left}/{:032x}-{:032x}", 1, 2), b"left").unwrap();
        std::fs::write(format!("{}/open", own(&dir)), b"").unwrap();
        let cache = open(&dir);
        assert!(files(&dir).is_empty());
        assert!(cache.put(version("a", "1"), 0, b"x").stored);
        drop(cache);
        let at = format!("{}/index.redb", own(&dir));
        for damage in [&b"no index"[..], b""] {
            std::fs::write(&at, damage).unwrap();
            let cache = open(&dir);
            assert!(cache.get(version("a", "1"), 0).is_none());
            assert!(cache.put(version("a", "1"), 0, b"y").stored && files(&dir).len() == 1);
        }
        dir.write("outside", b"ours");
        assert!(dir.path().join("outside").exists());
    }

    #[test]
    fn a_cache_that_cannot_write_steps_aside() {
        let dir = TempDir::new("cache");
        let cache = open(&dir);
        // There is a file in place of the folder of objects, so nothing can be written below it.
        std::fs::write(format!("{}/objects", own(&dir)), b"").unwrap();
        for i in 0..FAILURES_MAX {
            assert!(cache.aside().is_none(), "after {i}");
            assert!(!cache.put(version("a", "1"), 0, b"x").stored);
        }
        assert!(cache.aside().is_some());
        let folder = Path::new(&own(&dir)).join("objects");
        let counted = CacheUse::open(&CacheOptions { folder, limits: roomy() }, SOURCE);
        assert!(counted.counts().aside.is_some_and(|why| why.contains("objects")));
        assert!(counted.part(version("a", "1"), 0).is_none());
    }
}
