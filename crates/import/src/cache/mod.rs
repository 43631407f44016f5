//! The disk cache: parts of remote objects, and texts that were extracted, kept between runs.
//!
//! [`DiskCache`] keeps each version of an object as one sparse file. An index ([`index`]) says which parts of the file
//! are there. A part is found by the object, its version token and its offset. The cache hands a part out only if its
//! length and digest are as recorded. So a damaged part, an older version or a missing file counts as not cached.
//! [`limits`] says how much of the disk is filled. [`texts`] keeps the text of a document. Nothing here makes a run
//! fail: after `FAILURES_MAX` failures in a row the cache is not used any more.

mod index;
pub mod limits;
pub(crate) mod texts;

use crate::container::digest;
use index::Index;
use limits::{Free, Limits};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The name of the folder that holds everything. It lies in the folder that the user names. No file outside of it is
/// touched.
const FOLDER: &str = "strand-cache";
/// Longest part in bytes.
pub const PART_BYTES_MAX: usize = 16 << 20;
/// Maximum number of objects that one call culls. A run waits no longer than for these.
const CULLED_PER_CALL_MAX: u64 = 64;
/// Number of failures in a row after which the cache is not used any more.
const FAILURES_MAX: u32 = 8;

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

/// A cache on a disk. The jobs of one process share it. Other processes cannot open it meanwhile.
pub struct DiskCache {
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
    /// Opens the cache, or takes the one of this process.
    ///
    /// # Errors
    /// The reason why the cache cannot be used, for a person: another process has it, or the folder cannot be written.
    pub(crate) fn open(options: &CacheOptions) -> Result<Arc<DiskCache>, String> {
        let folder = options.folder.join(FOLDER);
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
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

    fn with(folder: PathBuf, limits: Limits, probe: Box<Probe>) -> Result<DiskCache, String> {
        let index = Index::open(&folder)?;
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
            Err(error) => self.state().fail(error.to_string()),
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
                Err(format!("{}: {error}", path.display()))
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

    /// Culls if culling is due. Returns whether there is room, and the number of culled objects.
    fn make_room(&self) -> io::Result<(bool, u64)> {
        let mut free = (self.probe)(&self.folder)?;
        let mut state = self.state();
        state.is_culling |= free.is_below(&self.limits, |shares| shares.cull);
        let mut culled = 0;
        while state.is_culling && self.limits.culls && culled < CULLED_PER_CALL_MAX {
            if !free.is_below(&self.limits, |shares| shares.run) {
                state.is_culling = false;
                break;
            }
            let oldest = state.index.remove_oldest();
            if state.judge(oldest) != Some(true) {
                break;
            }
            culled += 1;
            free = (self.probe)(&self.folder)?;
        }
        Ok((!free.is_below(&self.limits, |shares| shares.stop), culled))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the value, and counts an error as a failure. Only a part that was stored ends a row of failures, because
    /// reads still succeed on a full disk.
    fn judge<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }
    fn fail(&mut self, error: String) {
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            self.aside = Some(error);
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
    /// Opens the cache. If that fails, the run goes on without a cache, and says why.
    pub fn open(options: &CacheOptions) -> CacheUse {
        let (cache, aside) = match DiskCache::open(options) {
            Ok(cache) => (Some(cache), None),
            Err(error) => (None, Some(error)),
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
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    fn version(name: &str, token: &str) -> Version {
        Version::new(name.as_bytes(), token.as_bytes())
    }

    fn open(dir: &TempDir) -> Arc<DiskCache> {
        let options = CacheOptions { folder: dir.path().to_path_buf(), limits: roomy() };
        DiskCache::open(&options).expect("a folder of our own")
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
        let objects = dir.path().join(FOLDER).join("objects");
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
        dir.write(&format!("{FOLDER}/objects/ab/{:032x}-{:032x}", 1, 2), b"left");
        dir.write(&format!("{FOLDER}/open"), b"");
        let cache = open(&dir);
        assert!(files(&dir).is_empty());
        assert!(cache.put(version("a", "1"), 0, b"x").stored);
        drop(cache);
        let at = dir.path().join(FOLDER).join("index.redb");
        for damage in [&b"no index"[..], b""] {
            std::fs::write(&at, damage).unwrap();
            let cache = open(&dir);
            assert!(cache.get(version("a", "1"), 0).is_none());
            assert!(cache.put(version("a", "1"), 0, b"y").stored && files(&dir).len() == 1);
        }
        dir.write("outside", b"ours");
        assert!(dir.path().join("outside").exists());
    }

    /// A disk of 100 blocks. Each file of the cache takes one block, and other files take `others` blocks.
    fn small_disk(dir: &TempDir, limits: Limits) -> (DiskCache, Arc<AtomicU64>) {
        let others = Arc::new(AtomicU64::new(0));
        let taken = others.clone();
        let objects = dir.path().join("objects");
        let probe = move |_: &Path| {
            let count = |path: &Path| std::fs::read_dir(path).map_or(0, |list| list.count() as u64);
            let folders = std::fs::read_dir(&objects).into_iter().flatten();
            let ours: u64 = folders.map(|f| count(&f.expect("readable").path())).sum();
            Ok(Free { blocks: (100u64.saturating_sub(ours + taken.load(Relaxed)), 100), files: (0, 0) })
        };
        (DiskCache::with(dir.path().to_path_buf(), limits, Box::new(probe)).expect("writable"), others)
    }

    #[test]
    fn a_disk_that_fills_is_culled_from_cull_to_run_the_longest_unused_first() {
        let dir = TempDir::new("cache");
        let (cache, others) = small_disk(&dir, Limits::default());
        let name = |i: u64| version(&i.to_string(), "1");
        let mut culled = 0;
        // While at least 7 blocks are free, nothing is culled.
        for i in 0..93 {
            culled += cache.put(name(i), 0, b"x").culled;
        }
        assert_eq!(culled, 0);
        assert!(cache.get(name(0), 0).is_some(), "used again, so not the oldest any more");
        assert!(cache.put(name(93), 0, b"x").stored);
        // Now 6 blocks are free: culling goes on until 10 are free.
        let put = cache.put(name(94), 0, b"x");
        assert_eq!((put.stored, put.culled), (true, 4));
        let there: Vec<_> = (0..95).filter(|i| cache.get(name(*i), 0).is_some()).collect();
        assert_eq!(there, [vec![0], (5..95).collect()].concat());
        // Other files fill the disk: the cache culls all that it can, and below *stop* it stores nothing.
        others.store(98, Relaxed);
        let puts = [cache.put(name(500), 0, b"x"), cache.put(name(500), 0, b"x")];
        assert_eq!(puts.map(|put| put.culled), [CULLED_PER_CALL_MAX, 91 - CULLED_PER_CALL_MAX]);
        assert!(puts.iter().all(|put| put.refused && !put.stored) && files_in(&dir) == 0);
    }

    fn files_in(dir: &TempDir) -> u64 {
        let folders = std::fs::read_dir(dir.path().join("objects")).into_iter().flatten();
        folders.map(|f| std::fs::read_dir(f.unwrap().path()).unwrap().count() as u64).sum()
    }

    #[test]
    fn below_stop_nothing_is_stored_and_reading_goes_on() {
        let dir = TempDir::new("cache");
        let (cache, others) = small_disk(&dir, Limits { culls: false, ..Limits::default() });
        assert!(cache.put(version("a", "1"), 0, b"x").stored);
        others.store(97, Relaxed);
        let put = cache.put(version("b", "1"), 0, b"x");
        assert_eq!(put, Put { stored: false, refused: true, culled: 0 });
        assert!(cache.get(version("a", "1"), 0).is_some() && cache.get(version("b", "1"), 0).is_none());
        others.store(0, Relaxed);
        assert!(cache.put(version("b", "1"), 0, b"x").stored);
    }

    #[test]
    fn a_cache_that_cannot_write_steps_aside() {
        let dir = TempDir::new("cache");
        let cache = open(&dir);
        // There is a file in place of the folder of objects, so nothing can be written below it.
        dir.write(&format!("{FOLDER}/objects"), b"");
        for i in 0..FAILURES_MAX {
            assert!(cache.aside().is_none(), "after {i}");
            assert!(!cache.put(version("a", "1"), 0, b"x").stored);
        }
        assert!(cache.aside().is_some());
        let counted = CacheUse::open(&CacheOptions {
            folder: dir.path().join(FOLDER).join("objects"),
            limits: roomy(),
        });
        assert!(counted.counts().aside.is_some_and(|why| why.contains("objects")));
        assert!(counted.part(version("a", "1"), 0).is_none());
    }
}
