//! Culling: removes objects from caches when the disk is too full, as [`super::limits`] says.
//!
//! The caches of all sources share the disk. A run removes objects from idle caches first: from caches that no run has
//! open. Then it removes objects from its own cache. A cache that another run has open is left to that run.

use super::DiskCache;
use super::index::{INDEX, Index};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// Maximum number of objects that one call culls. The bound limits the time that a run waits.
const CULLED_PER_CALL_MAX: u64 = 64;

impl DiskCache {
    /// Culls objects if the disk is too full. Returns whether the cache may store now, and the number of culled
    /// objects.
    pub(super) fn make_room(&self) -> io::Result<(bool, u64)> {
        let mut free = (self.probe)(&self.folder)?;
        let mut state = self.state();
        state.is_culling |= free.is_below(&self.limits, |shares| shares.cull);
        let mut culled = 0;
        // Idle caches are open only during this call, so that other runs can open them.
        let mut idle = None;
        while state.is_culling && self.limits.culls && culled < CULLED_PER_CALL_MAX {
            if !free.is_below(&self.limits, |shares| shares.run) {
                state.is_culling = false;
                break;
            }
            if !idle.get_or_insert_with(|| self.idle()).remove_oldest() {
                let oldest = state.index.remove_oldest();
                if state.count_failure(oldest) != Some(true) {
                    break;
                }
            }
            culled += 1;
            free = (self.probe)(&self.folder)?;
        }
        Ok((!free.is_below(&self.limits, |shares| shares.stop), culled))
    }

    /// The other caches in the folder of all caches.
    fn idle(&self) -> IdleCaches {
        let beside = self.folder.parent().and_then(|parent| std::fs::read_dir(parent).ok());
        let mut folders: Vec<_> = { beside.into_iter().flatten().flatten() }
            .filter_map(|entry| {
                let used = entry.path().join(INDEX).metadata().ok()?.modified().ok()?;
                (entry.path() != self.folder).then(|| (used, entry.path()))
            })
            .collect();
        // Newest use first: `remove_oldest` takes folders from the end.
        folders.sort_unstable_by(|a, b| b.cmp(a));
        IdleCaches { open: None, folders }
    }
}

/// Caches of other sources that no run has open.
struct IdleCaches {
    /// The cache from which objects are removed now, with the time of its last use and its folder.
    open: Option<(Index, (SystemTime, PathBuf))>,
    /// The other caches: the time of the last use and the folder. The cache that was unused the longest is last.
    folders: Vec<(SystemTime, PathBuf)>,
}

impl IdleCaches {
    /// Removes the object that was not used for the longest time. Returns false when there is none.
    fn remove_oldest(&mut self) -> bool {
        loop {
            if let Some((index, _)) = &mut self.open
                && let Ok(true) = index.remove_oldest()
            {
                return true;
            }
            if let Some((index, (_, folder))) = self.open.take() {
                // The cache is empty. A run that opens it at this moment fetches its parts again.
                drop(index);
                let _ = std::fs::remove_dir_all(folder);
            }
            let Some(next) = self.folders.pop() else { return false };
            self.open = Index::open(&next.1).ok().map(|index| (index, next));
        }
    }
}

impl Drop for IdleCaches {
    fn drop(&mut self) {
        if let Some((index, (used, folder))) = self.open.take() {
            drop(index);
            // Restore the time of the last use: culling does not count as a use, so this cache is culled next again.
            let _ = File::open(folder.join(INDEX)).and_then(|file| file.set_modified(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CacheLimits, Free, Put, Version};
    use super::*;
    use crate::fixture::TempDir;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    fn version(name: &str, token: &str) -> Version {
        Version::new(name.as_bytes(), token.as_bytes())
    }

    /// A disk of 100 blocks. Each file of a cache takes one block, and other files take `others` blocks. The cache is
    /// that of `source`.
    fn disk_of(dir: &TempDir, source: &str, limits: CacheLimits) -> (DiskCache, Arc<AtomicU64>) {
        let others = Arc::new(AtomicU64::new(0));
        let (taken, all) = (others.clone(), dir.path().to_path_buf());
        let probe = move |_: &Path| {
            let caches = std::fs::read_dir(&all).into_iter().flatten();
            let ours: u64 = caches.map(|cache| files_in(&cache.expect("readable").path())).sum();
            Ok(Free { blocks: (100u64.saturating_sub(ours + taken.load(Relaxed)), 100), files: (0, 0) })
        };
        let folder = dir.path().join(source);
        std::fs::create_dir_all(&folder).unwrap();
        (DiskCache::with(folder, limits, Box::new(probe)).expect("writable"), others)
    }

    fn small_disk(dir: &TempDir, limits: CacheLimits) -> (DiskCache, Arc<AtomicU64>) {
        disk_of(dir, "one", limits)
    }

    /// The number of files of a cache.
    fn files_in(cache: &Path) -> u64 {
        let folders = std::fs::read_dir(cache.join("objects")).into_iter().flatten();
        folders.map(|f| std::fs::read_dir(f.unwrap().path()).map_or(0, |list| list.count() as u64)).sum()
    }

    #[test]
    fn a_disk_that_fills_is_culled_from_cull_to_run_the_longest_unused_first() {
        let dir = TempDir::new("cache");
        let (cache, others) = small_disk(&dir, CacheLimits::default());
        let name = |i: u64| version(&i.to_string(), "1");
        let mut culled = 0;
        // While at least 7 blocks are free, nothing is culled.
        for i in 0..93 {
            culled += cache.put(name(i), 0, b"x").culled;
        }
        assert_eq!(culled, 0);
        assert!(cache.get(name(0), 0).is_some(), "used again, so not the oldest any more");
        assert!(cache.put(name(93), 0, b"x").stored);
        // Now 6 blocks are free: culling continues until 10 blocks are free.
        let put = cache.put(name(94), 0, b"x");
        assert_eq!((put.stored, put.culled), (true, 4));
        let there: Vec<_> = (0..95).filter(|i| cache.get(name(*i), 0).is_some()).collect();
        assert_eq!(there, [vec![0], (5..95).collect()].concat());
        // Other files fill the disk: the cache culls all that it can, and below *stop* it stores nothing.
        others.store(98, Relaxed);
        let puts = [cache.put(name(500), 0, b"x"), cache.put(name(500), 0, b"x")];
        assert_eq!(puts.map(|put| put.culled), [CULLED_PER_CALL_MAX, 91 - CULLED_PER_CALL_MAX]);
        assert!(puts.iter().all(|put| put.refused && !put.stored) && files_in(&dir.path().join("one")) == 0);
    }

    #[test]
    fn caches_that_no_run_has_open_are_culled_first_and_their_folders_go() {
        let dir = TempDir::new("cache");
        let name = |i: u64| version(&i.to_string(), "1");
        let fill = |source: &str, count: u64| {
            let (cache, others) = disk_of(&dir, source, CacheLimits::default());
            assert!((0..count).all(|i| cache.put(name(i), 0, source.as_bytes()).stored));
            (cache, others)
        };
        // Each cache is used later than the cache before. The caches `used` and `own` stay open.
        let mut modified = std::time::UNIX_EPOCH;
        for source in ["first", "second"] {
            drop(fill(source, 20));
            modified += std::time::Duration::from_secs(1);
            let index = std::fs::File::open(dir.path().join(source).join("index.redb")).unwrap();
            index.set_modified(modified).unwrap();
        }
        let (used, _) = fill("used", 20);
        let (cache, others) = fill("own", 5);
        others.store(28, Relaxed);
        // 7 of 100 blocks are free. The next write begins culling, which ends when 10 blocks are free.
        let put = cache.put(name(500), 0, b"x");
        assert_eq!((put.stored, put.culled), (true, 0));
        assert_eq!(cache.put(name(501), 0, b"x").culled, 4);
        let files_left = |source: &str| files_in(&dir.path().join(source));
        assert_eq!(
            (files_left("first"), files_left("second"), files_left("used"), files_left("own")),
            (16, 20, 20, 7)
        );
        // A cache that lost some of its objects still returns the others.
        others.store(52, Relaxed);
        assert_eq!(cache.put(name(502), 0, b"x").culled, 25);
        assert!(!dir.path().join("first").exists());
        assert_eq!((files_left("second"), files_left("used"), files_left("own")), (11, 20, 8));
        let (second, _) = disk_of(&dir, "second", CacheLimits::default());
        assert_eq!(second.get(name(19), 0).as_deref(), Some(&b"second"[..]));
        // A cache culls its own objects last, and never objects of another open cache.
        others.store(99, Relaxed);
        let put = cache.put(name(503), 0, b"x");
        assert_eq!((put.culled, files_left("used"), files_left("own")), (8, 20, 0), "{put:?}");
        assert_eq!(used.get(name(0), 0).as_deref(), Some(&b"used"[..]));
    }

    #[test]
    fn below_stop_nothing_is_stored_and_reading_still_works() {
        let dir = TempDir::new("cache");
        let (cache, others) = small_disk(&dir, CacheLimits { culls: false, ..CacheLimits::default() });
        assert!(cache.put(version("a", "1"), 0, b"x").stored);
        others.store(97, Relaxed);
        let put = cache.put(version("b", "1"), 0, b"x");
        assert_eq!(put, Put { stored: false, refused: true, culled: 0 });
        assert!(cache.get(version("a", "1"), 0).is_some() && cache.get(version("b", "1"), 0).is_none());
        others.store(0, Relaxed);
        assert!(cache.put(version("b", "1"), 0, b"x").stored);
    }
}
