//! Jobs that run when their folder changes: one thread and one inotify queue for each.
//!
//! The thread only reports to the board that something changed. The board waits until the folder is quiet. The run then
//! compares the folder as any run does, so a lost or duplicated event costs at most one run. A run also starts when a
//! watch begins, so a change before the watch is not missed.

use super::{Service, State, now_ms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of watched jobs.
const WATCHED_MAX: usize = 64;
/// Maximum number of folders in the folder of one job.
const FOLDERS_MAX: usize = 100_000;
/// Number of bytes of events that are read at once.
const EVENTS_BYTES: usize = 64 << 10;
/// Time between two checks whether the job must still be watched.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Pause before the next attempt to watch a folder that could not be watched.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Service {
    /// Begins to watch the folders of all jobs that ask to be watched and are not watched yet.
    pub(super) fn watch(self: &Arc<Self>, state: &mut State) {
        for (name, source) in state.board.watched_folders() {
            let key = (name.clone(), source.clone());
            if state.watched.contains(&key) {
                continue;
            }
            if state.watched.len() >= WATCHED_MAX {
                let text = format!("too many watched jobs: expected at most {WATCHED_MAX}");
                state.board.set_watch_error(&name, Some(text));
                continue;
            }
            let service = self.clone();
            let run = move || service.keep_watching(&name, &source);
            match std::thread::Builder::new().name("jobs-watch".to_owned()).spawn(run) {
                Ok(_) => drop(state.watched.insert(key)),
                Err(error) => state.board.set_watch_error(&key.0, Some(error.to_string())),
            }
        }
    }

    fn keep_watching(&self, name: &str, source: &str) {
        while self.still_watches(name, source) {
            let watched = Folders::watch(Path::new(source)).and_then(|mut folders| {
                self.lock().board.set_watch_error(name, None);
                self.report_change(name);
                folders.follow(&|| self.report_change(name), &|| self.still_watches(name, source))
            });
            match watched {
                Ok(()) => return,
                Err(error) => self.lock().board.set_watch_error(name, Some(error.to_string())),
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// False when the job must not be watched any more. Then removes the job from the set of watched jobs.
    fn still_watches(&self, name: &str, source: &str) -> bool {
        let mut state = self.lock();
        let is_wanted = state.board.watched_folders().iter().any(|(n, s)| n == name && s == source);
        if !is_wanted {
            state.watched.remove(&(name.to_owned(), source.to_owned()));
        }
        is_wanted
    }

    fn report_change(&self, name: &str) {
        self.lock().board.note_folder_change(name, now_ms());
        self.changed.notify_all();
    }
}

/// Why the folder of a job cannot be watched. The thread tries again after [`RETRY_PAUSE`].
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("cannot watch {path}: {error}", path = path.display())]
    System { path: PathBuf, error: io::Error },
    #[error("{root}: too many folders to watch: expected at most {FOLDERS_MAX}", root = root.display())]
    TooMany { root: PathBuf },
    #[error("{root}: the kernel watches no more folders: raise fs.inotify.max_user_watches", root = root.display())]
    Kernel { root: PathBuf },
    #[error(
        "{root}: the kernel dropped reports of changes: raise fs.inotify.max_queued_events",
        root = root.display()
    )]
    Overflow { root: PathBuf },
    #[error("{root}: the folder was removed or renamed", root = root.display())]
    Gone { root: PathBuf },
}

/// The watched folders of one job.
struct Folders {
    queue: OwnedFd,
    root: PathBuf,
    root_number: i32,
    paths: HashMap<i32, PathBuf>,
    /// Folders below the root that this process may not read. The import reports them as failed. They are watched once
    /// their rights, or those of a folder above them, change.
    denied: HashSet<PathBuf>,
}

impl Folders {
    /// Watches `root` and all folders below `root`.
    fn watch(root: &Path) -> Result<Folders, WatchError> {
        let failed = |error: Errno| WatchError::System { path: root.to_owned(), error: error.into() };
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(failed)?;
        let mut folders = Folders {
            queue,
            root: root.to_path_buf(),
            root_number: -1,
            paths: HashMap::new(),
            denied: HashSet::new(),
        };
        folders.root_number = folders.add(root)?.ok_or_else(|| failed(Errno::NOENT))?;
        folders.add_below(root)?;
        Ok(folders)
    }

    /// Watches one folder. Returns the watch's number, or `None` when the folder is gone or may not be read.
    fn add(&mut self, path: &Path) -> Result<Option<i32>, WatchError> {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        // The root may be a link to a folder. No link below is followed, as in the import.
        let follow = if path == self.root { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        match inotify::add_watch(&self.queue, path, wanted | follow) {
            Ok(number) => {
                self.paths.insert(number, path.to_path_buf());
                self.denied.remove(path);
                if self.paths.len() + self.denied.len() > FOLDERS_MAX {
                    return Err(WatchError::TooMany { root: self.root.clone() });
                }
                Ok(Some(number))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(Errno::ACCESS) if path != self.root => {
                self.denied.insert(path.to_path_buf());
                Ok(None)
            }
            Err(Errno::NOSPC) => Err(WatchError::Kernel { root: self.root.clone() }),
            Err(error) => Err(WatchError::System { path: path.to_owned(), error: error.into() }),
        }
    }

    /// Watches the folders below `path`, which is watched already.
    fn add_below(&mut self, path: &Path) -> Result<(), WatchError> {
        let mut open = vec![path.to_path_buf()];
        while let Some(path) = open.pop() {
            let entries = match std::fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied && path != self.root => {
                    self.denied.insert(path);
                    continue;
                }
                Err(error) => return Err(WatchError::System { path, error }),
            };
            for entry in entries.flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && self.add(&entry.path())?.is_some() {
                    open.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Calls `report_change` after each change, until `is_still_wanted` returns false. Fails when the root is gone,
    /// or when events were lost.
    fn follow(
        &mut self,
        report_change: &dyn Fn(),
        is_still_wanted: &dyn Fn() -> bool,
    ) -> Result<(), WatchError> {
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BYTES];
        loop {
            let mut ready = [PollFd::new(&self.queue, PollFlags::IN)];
            match poll(&mut ready, Some(&CHECK_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) if is_still_wanted() => continue,
                Ok(0) | Err(Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(self.system_error(error)),
            }
            let added = self.read(&mut buffer)?;
            report_change();
            for path in added {
                if self.add(&path)?.is_some() {
                    self.add_below(&path)?;
                }
            }
        }
    }

    fn system_error(&self, error: Errno) -> WatchError {
        WatchError::System { path: self.root.clone(), error: error.into() }
    }

    /// Reads events. Returns the new folders.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) -> Result<Vec<PathBuf>, WatchError> {
        let mut added = Vec::new();
        let mut events = Reader::new(&self.queue, buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(added),
                Err(error) => return Err(self.system_error(error)),
            };
            let (what, number) = (event.events(), event.wd());
            let has_moved = what.contains(ReadFlags::MOVE_SELF) && number == self.root_number;
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                return Err(WatchError::Overflow { root: self.root.clone() });
            }
            if what.contains(ReadFlags::IGNORED) {
                self.paths.remove(&number);
            }
            if has_moved || !self.paths.contains_key(&self.root_number) {
                return Err(WatchError::Gone { root: self.root.clone() });
            }
            let Some(path) = self.paths.get(&number).filter(|_| what.contains(ReadFlags::ISDIR)) else {
                continue;
            };
            // An event of the root has no name.
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let path = name.map_or_else(|| path.clone(), |name| path.join(name));
            if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                added.push(path);
            } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                self.denied.retain(|denied| !denied.starts_with(&path));
            } else if what.contains(ReadFlags::ATTRIB) {
                added.extend(self.denied.iter().filter(|denied| denied.starts_with(&path)).cloned());
            }
        }
    }
}
