//! A disk in memory: bytes that were not synced are lost when the power fails, and operations fail on request. Servers
//! write their append-only files to it.

use std::collections::BTreeMap;
use std::io::{self, Cursor, IoSlice};
use std::sync::Arc;
use std::time::Duration;
use strand_engine::{AppendFile, Folder, OpenedFile, SyncFile, WriteFile};

/// Maximum time for which a sync is held back, so that a test that forgets to end the sync does not hang.
const HELD_BACK_MAX: Duration = Duration::from_secs(20);

// These locks hold threads back, because the test plays the disk.
#[allow(clippy::disallowed_types)]
#[derive(Clone, Default)]
pub struct Disk(Arc<parking_lot::Mutex<State>>, Arc<parking_lot::Condvar>);

#[derive(Default)]
pub struct State {
    files: BTreeMap<String, File>,
    /// Number of operations until the power fails.
    power_left: Option<usize>,
    /// Number of bytes that still fit on the disk.
    room: Option<usize>,
    syncs_fail: bool,
    /// Number of syncs of the folder until they fail.
    folder_syncs_left: Option<usize>,
    /// What a power failure brings back in the place of files that were replaced since the last sync of the folder.
    /// `None`: there was no file.
    replaced: BTreeMap<String, Option<File>>,
    /// The error with which every change of a file fails.
    refuses: Option<rustix::io::Errno>,
    /// While this is true, a sync that has begun does not end.
    syncs_wait: bool,
    syncing: usize,
}

#[derive(Clone, Default)]
struct File {
    bytes: Vec<u8>,
    /// Length of the part of the file that survives a power failure.
    synced: usize,
}

impl State {
    /// Undoes the replacements since the last sync of the folder.
    fn bring_back(&mut self) {
        for (name, old) in std::mem::take(&mut self.replaced) {
            match old {
                Some(old) => self.files.insert(name, old),
                None => self.files.remove(&name),
            };
        }
    }
}

impl Disk {
    /// Creates a file that counts as synced.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.0.lock().files.insert(name.into(), File { bytes: bytes.to_vec(), synced: bytes.len() });
    }

    /// The names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().files.keys().cloned().collect()
    }

    /// The bytes of a file, synced or not.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.lock().files[name].bytes.clone()
    }

    /// Sets how many bytes fit on the disk. `None` removes the limit.
    pub fn set_room(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }
    /// Sets whether syncs of files fail.
    pub fn set_syncs_fail(&self, fail: bool) {
        self.0.lock().syncs_fail = fail;
    }
    /// Sets the number of syncs of the folder until they fail. `None`: they do not fail.
    pub fn set_folder_syncs(&self, left: Option<usize>) {
        self.0.lock().folder_syncs_left = left;
    }
    /// Sets the error with which every change of a file fails.
    pub fn set_refuses(&self, errno: Option<rustix::io::Errno>) {
        self.0.lock().refuses = errno;
    }
    /// Begins an operation on the disk.
    fn state(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.0.lock();
        match &mut state.power_left {
            Some(0) => return Err(io::Error::other("the power has failed")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }
    /// Begins an operation that changes files.
    fn changing(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state()?;
        match state.refuses {
            Some(errno) => Err(io::Error::from_raw_os_error(errno.raw_os_error())),
            None => Ok(state),
        }
    }
    pub fn is_dead(&self) -> bool {
        self.0.lock().power_left == Some(0)
    }
    pub fn power_fails_after(&self, operations: usize) {
        self.0.lock().power_left = Some(operations);
    }
    /// From now on, syncs end only with [`Disk::end_syncs`].
    pub fn hold_syncs(&self) {
        self.0.lock().syncs_wait = true;
    }
    pub fn end_syncs(&self) {
        self.0.lock().syncs_wait = false;
        self.1.notify_all();
    }
    /// Waits until a sync is in progress.
    pub fn await_sync(&self) {
        let mut state = self.0.lock();
        while state.syncing == 0 {
            assert!(!self.1.wait_for(&mut state, HELD_BACK_MAX).timed_out(), "no sync has begun");
        }
    }
    /// The disk as a new process finds it after the old one was killed.
    pub fn after_a_kill(&self) -> Disk {
        let files = self.0.lock().files.clone();
        Disk(Arc::new(parking_lot::Mutex::new(State { files, ..State::default() })), Arc::default())
    }
    /// The disk as a new process finds it after a power failure: nothing that was not synced is there.
    pub fn after_power_failure(&self) -> Disk {
        let disk = self.after_a_kill();
        let mut state = disk.0.lock();
        state.replaced = self.0.lock().replaced.clone();
        state.bring_back();
        state.files.values_mut().for_each(|file| file.bytes.truncate(file.synced));
        drop(state);
        disk
    }
    /// Restores the power. Of each part that was not synced, a random prefix survives.
    pub fn recover(&self, rng: &mut fastrand::Rng) {
        let mut state = self.0.lock();
        state.power_left = None;
        if rng.bool() {
            state.bring_back();
        }
        state.replaced.clear();
        for file in state.files.values_mut() {
            let kept = rng.usize(file.synced..=file.bytes.len());
            file.bytes.truncate(kept);
            file.synced = kept;
        }
    }
}

impl Folder for Disk {
    fn open(&self, name: &str) -> io::Result<Option<OpenedFile>> {
        let bytes = self.state()?.files.get(name).map(|file| file.bytes.clone());
        Ok(bytes.map(|bytes| {
            let len = bytes.len() as u64;
            (Box::new(Cursor::new(bytes)) as Box<_>, len)
        }))
    }
    fn replace(&self, name: &str, _in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        let synced = bytes.len();
        if self.changing()?.room.is_some_and(|room| room < synced) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        let mut state = self.changing()?;
        let old = state.files.insert(name.into(), File { bytes, synced });
        state.replaced.entry(name.into()).or_insert(old);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = self.state()?;
        match &mut state.folder_syncs_left {
            Some(0) => return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())),
            Some(left) => *left -= 1,
            None => {}
        }
        state.replaced.clear();
        Ok(())
    }
    fn append_to(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        self.changing()?.files.entry(name.into()).or_default();
        Ok(Box::new(Growing { disk: self.clone(), name: name.into() }))
    }
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.changing()?;
        let file = state.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.truncate(bytes as usize);
        file.synced = file.bytes.len();
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.changing()?.files.remove(name);
        Ok(())
    }
    fn adopt(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
}

struct Growing {
    disk: Disk,
    name: String,
}

impl Growing {
    fn with<R>(&self, change: impl FnOnce(&mut File) -> R) -> io::Result<R> {
        let mut state = self.disk.changing()?;
        Ok(change(state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?))
    }
}

impl AppendFile for Growing {
    fn bytes(&self) -> u64 {
        self.disk.0.lock().files.get(&self.name).map_or(0, |file| file.bytes.len() as u64)
    }
    fn append(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.disk.changing()?;
        // Like the system, the disk may write only a part of the bytes.
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut takes = all.len().min(1 + all.len() / 2);
        if let Some(room) = &mut state.room {
            if *room == 0 {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
            }
            takes = takes.min(*room);
            *room -= takes;
        }
        let file = state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.extend_from_slice(&all[..takes]);
        Ok(takes)
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.with(|file| {
            file.bytes.truncate(bytes as usize);
            file.synced = file.synced.min(file.bytes.len());
        })
    }
    fn sync_file(&self) -> Arc<dyn SyncFile> {
        Arc::new(Growing { disk: self.disk.clone(), name: self.name.clone() })
    }
}

impl SyncFile for Growing {
    /// Syncs a file. Bytes that are appended during the sync are not on the disk afterwards.
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let len = state.files.get(&self.name).map_or(0, |file| file.bytes.len());
        state.syncing += 1;
        self.disk.1.notify_all();
        while state.syncs_wait && !self.disk.1.wait_for(&mut state, HELD_BACK_MAX).timed_out() {}
        state.syncing -= 1;
        if state.power_left == Some(0) {
            return Err(io::Error::other("the power has failed"));
        }
        if state.syncs_fail {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        let file = state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        file.synced = file.synced.max(len.min(file.bytes.len()));
        Ok(())
    }
}
