//! The disk cache: parts of remote objects, and texts that were extracted, kept between runs.
//!
//! [`DiskCache`] keeps each version of an object as one sparse file. An index ([`index`]) says which parts of the file
//! are stored. A part is found by the object, its version token and its offset. The cache returns a part only if its
//! length and digest equal those in the index: a damaged part, an older version or a missing file counts as not
//! cached. [`limits`] says how much of the disk is filled, and `culling` removes objects. [`texts`] stores the text of
//! a document. A failure of the cache never makes a run fail: after `FAILURES_MAX` failures in a row the run works
//! without the cache.
//!
//! Each source has a cache of its own in the user's folder, because a process locks the index of an open cache. Runs
//! that read different sources at the same time therefore all have a cache.

mod culling;
mod error;
mod index;
pub mod limits;
pub(crate) mod texts;

use crate::container::digest;
use error::{CacheError, OpenError};
use index::Index;
use limits::{CacheLimits, Free};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The name of the folder of all caches, in the folder that the user names. The cache touches no file outside of it.
const FOLDER: &str = "strand-cache";
/// Longest part in bytes.
pub const PART_BYTES_MAX: usize = 16 << 20;
/// Number of failures in a row after which the cache is not used any more.
const FAILURES_MAX: u32 = 8;
/// Maximum number of attempts to open a cache that another process has open. If that process only culls the cache, it
/// closes the cache soon.
const OPENS_MAX: u32 = 10;
/// The pause between two attempts to open a cache.
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// Where a cache is, and how much of the disk it may fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The folder. It is created if it is missing.
    pub folder: PathBuf,
    /// How much of its disk may be filled.
    pub limits: CacheLimits,
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

/// Counts a run's reads from a cache and writes to it.
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
    /// Why the run works without the cache. `None` while the cache is in use.
    pub disabled_reason: Option<String>,
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
            disabled_reason: self.disabled_reason.or(other.disabled_reason),
        }
    }
    fn count(&mut self, put: Put, bytes: usize) {
        self.stored_bytes += if put.stored { bytes as u64 } else { 0 };
        self.refused += u64::from(put.refused);
        self.culled += put.culled;
    }
}

/// Returns how much of a path's disk is free.
type Probe = dyn Fn(&Path) -> io::Result<Free> + Send + Sync;

/// The cache of one source on a disk. The runs of a process share it. Other processes cannot open it at the same time.
pub struct DiskCache {
    /// The folder of this cache. The caches of other sources lie beside it.
    folder: PathBuf,
    limits: CacheLimits,
    probe: Box<Probe>,
    state: Mutex<State>,
}

struct State {
    index: Index,
    is_culling: bool,
    failures: u32,
    disabled_reason: Option<String>,
}

/// The open caches of this process, by their folders.
static OPEN: Mutex<Vec<(PathBuf, Weak<DiskCache>)>> = Mutex::new(Vec::new());

impl DiskCache {
    /// Opens the cache of `source`, or returns it if this process has it open already.
    ///
    /// # Errors
    /// When another process has the cache open, or when the folder cannot be written.
    pub(crate) fn open(options: &CacheOptions, source: &[u8]) -> Result<Arc<DiskCache>, CacheError> {
        let name = u128::from_le_bytes(digest(source));
        let folder = options.folder.join(FOLDER).join(format!("{name:032x}"));
        let failed = |error| CacheError::File { path: folder.clone(), error };
        create_folder(&folder).map_err(failed)?;
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

    fn with(folder: PathBuf, limits: CacheLimits, probe: Box<Probe>) -> Result<DiskCache, CacheError> {
        let mut opened = Index::open(&folder);
        for _ in 1..OPENS_MAX {
            let Err(OpenError::InUse) = opened else { break };
            std::thread::sleep(OPEN_PAUSE);
            opened = Index::open(&folder);
        }
        let index = opened.map_err(|error| CacheError::Open { folder: folder.clone(), error })?;
        let state = State { index, is_culling: false, failures: 0, disabled_reason: None };
        Ok(DiskCache { folder, limits, probe, state: Mutex::new(state) })
    }

    /// The part at `offset`. `None` when it is missing or damaged.
    pub fn get(&self, of: Version, offset: u64) -> Option<Vec<u8>> {
        let (len, expected) = {
            let mut state = self.state();
            if state.disabled_reason.is_some() {
                return None;
            }
            let found = state.index.find(of.object, of.version, offset);
            state.count_failure(found)??
        };
        let mut bytes = vec![0; (len as usize).min(PART_BYTES_MAX)];
        let read = File::open(of.path(&self.folder)).and_then(|file| file.read_exact_at(&mut bytes, offset));
        if read.is_ok() && u128::from_le_bytes(digest(&bytes)) == expected {
            return Some(bytes);
        }
        let mut state = self.state();
        let removed = state.index.remove(of.object);
        state.count_failure(removed);
        None
    }

    /// Stores the part at `offset`, if there is room.
    pub fn put(&self, of: Version, offset: u64, bytes: &[u8]) -> Put {
        let mut put = Put::default();
        if bytes.len() > PART_BYTES_MAX || self.state().disabled_reason.is_some() {
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
        let written = path.parent().map_or(Ok(()), create_folder).and_then(|()| {
            let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            file.write_all_at(bytes, offset)
        });
        let mut state = self.state();
        let stored = match written {
            Ok(()) => state.index.insert(of.object, of.version, offset, bytes),
            Err(error) => {
                // Remove the half-written part, which nobody could use.
                let _ = state.index.remove(of.object);
                let _ = std::fs::remove_file(&path);
                Err(CacheError::File { path, error })
            }
        };
        put.stored = state.count_failure(stored).is_some();
        if put.stored {
            state.failures = 0;
        }
        put
    }

    /// The reason why runs work without this cache. `None` while the cache is in use.
    pub fn disabled_reason(&self) -> Option<String> {
        self.state().disabled_reason.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the value of `result`, and counts an error as a failure. A success does not reset the count: only a
    /// stored part does, because reads succeed even on a full disk.
    fn count_failure<T>(&mut self, result: Result<T, CacheError>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }
    fn fail(&mut self, error: CacheError) {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.disabled_reason = Some(error.to_string());
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
    /// Opens the cache of `source`. If that fails, the run works without a cache, and the counts have the reason.
    pub fn open(options: &CacheOptions, source: &[u8]) -> CacheUse {
        let (cache, disabled_reason) = match DiskCache::open(options, source) {
            Ok(cache) => (Some(cache), None),
            Err(error) => (None, Some(error.to_string())),
        };
        CacheUse { cache, counts: CacheCounts { disabled_reason, ..CacheCounts::default() }.into() }
    }
    /// Returns a part of an object. `None` when the cache does not have it. Counts a hit or a miss.
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
    /// Stores a part of an object, or the text of a document.
    pub(crate) fn keep(&self, of: Version, offset: u64, bytes: &[u8]) {
        if let Some(cache) = &self.cache {
            let put = cache.put(of, offset, bytes);
            self.counts.borrow_mut().count(put, bytes.len());
        }
    }
    /// The counts so far.
    pub fn counts(&self) -> CacheCounts {
        let mut counts = self.counts.borrow().clone();
        let disabled_reason = self.cache.as_ref().and_then(|cache| cache.disabled_reason());
        counts.disabled_reason = counts.disabled_reason.or(disabled_reason);
        counts
    }
}

/// Creates a folder and the folders above it, for the importer's user only: a source may be readable for fewer users than
/// the folder of the cache.
fn create_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
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
    fn roomy() -> CacheLimits {
        let least = limits::Shares { run: 0, cull: 0, stop: 0 };
        CacheLimits { blocks: least, files: least, culls: true }
    }

    #[test]
    fn blocks_survive_a_restart_and_belong_to_one_version() {
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
    fn only_the_importers_user_can_read_the_cache() {
        use std::os::unix::fs::PermissionsExt;
        let dir = TempDir::new("cache");
        assert!(open(&dir).put(version("a", "1"), 0, b"some bytes").stored);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(Path::new(&own(&dir))), mode(&files(&dir)[0])), (0o700, 0o600));
    }

    #[test]
    fn damaged_or_missing_files_are_not_returned() {
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
            assert!(files(&dir).is_empty() && cache.disabled_reason().is_none());
        }
    }

    #[test]
    fn a_cache_that_was_not_closed_or_has_a_damaged_index_is_emptied() {
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
    fn a_cache_that_cannot_write_is_disabled() {
        let dir = TempDir::new("cache");
        let cache = open(&dir);
        // There is a file in place of the folder of objects, so nothing can be written below it.
        std::fs::write(format!("{}/objects", own(&dir)), b"").unwrap();
        for i in 0..FAILURES_MAX {
            assert!(cache.disabled_reason().is_none(), "after {i}");
            assert!(!cache.put(version("a", "1"), 0, b"x").stored);
        }
        assert!(cache.disabled_reason().is_some());
        let folder = Path::new(&own(&dir)).join("objects");
        let counted = CacheUse::open(&CacheOptions { folder, limits: roomy() }, SOURCE);
        assert!(counted.counts().disabled_reason.is_some_and(|why| why.contains("objects")));
        assert!(counted.part(version("a", "1"), 0).is_none());
    }
}
