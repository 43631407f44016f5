//! Disk pressure: what stops first when the data's disk has little free space.
//!
//! First the optional writes: the history stays in memory. Then writes that would not fit: a snapshot or a rewrite that
//! needs more than the free space does not start, so that it does not take the last blocks from the append-only file.
//! Such a snapshot or rewrite counts as failed. At last the readiness check fails, while the server continues.
//! [`crate::persist`] reports errors of writes.

use super::Diag;
use crate::{Engine, Now};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Space is low when the free share of the disk is below this number and fewer than [`LOW_BYTES`] are free.
const LOW_SHARE: f64 = 0.05;
const LOW_BYTES: u64 = 1 << 30;
/// Space is almost gone when the free share of the disk is below this number and fewer than [`NEARLY_FULL_BYTES`] are
/// free.
const NEARLY_FULL_SHARE: f64 = 0.01;
const NEARLY_FULL_BYTES: u64 = 128 << 20;

/// The disk's free space at the last sample.
#[derive(Debug)]
pub(super) struct DiskSpace {
    /// Free bytes of the disk. `u64::MAX`: unknown.
    free_bytes: AtomicU64,
    is_low: AtomicBool,
    is_nearly_full: AtomicBool,
}

/// The error when the disk has too little free space for a file.
#[derive(Debug, thiserror::Error)]
#[error("the file would need {} MiB of the disk, {} MiB more than is free", megabytes(*needed_bytes), megabytes(*missing_bytes))]
pub(crate) struct DiskTooFull {
    needed_bytes: u64,
    missing_bytes: u64,
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

impl Default for DiskSpace {
    fn default() -> DiskSpace {
        DiskSpace { free_bytes: u64::MAX.into(), is_low: false.into(), is_nearly_full: false.into() }
    }
}

impl Diag {
    /// True while space is low: optional files are not written.
    pub(super) fn is_disk_low(&self) -> bool {
        self.disk.is_low.load(Relaxed)
    }
    /// True while space is almost gone.
    pub(super) fn is_disk_nearly_full(&self) -> bool {
        self.disk.is_nearly_full.load(Relaxed)
    }
}

impl Engine {
    /// Records the free space and acts when its level changes. Called with every sample.
    pub(super) fn check_disk_space(&self, now: Now) {
        let newest = |name| self.diag.newest(name).map(f64::from);
        let Some((free, size)) = newest("disk.free").zip(newest("disk.size")).filter(|(_, size)| *size > 0.0)
        else {
            return;
        };
        let disk = &self.diag.disk;
        disk.free_bytes.store(free as u64, Relaxed);
        let is_below = |share: f64, bytes: u64| free < size * share && free < bytes as f64;
        disk.is_nearly_full.store(is_below(NEARLY_FULL_SHARE, NEARLY_FULL_BYTES), Relaxed);
        let is_low = is_below(LOW_SHARE, LOW_BYTES);
        if disk.is_low.swap(is_low, Relaxed) == is_low {
            return;
        }
        let action = match is_low {
            true => format!("{free:.0} of {size:.0} bytes are free on the disk: the history stays in memory"),
            false => "the disk has enough free space again: the history is written to it".into(),
        };
        if let Some(store) = &mut *self.diag.store.lock() {
            store.suspend();
        }
        self.host.warn(&action);
        self.diag.action_log.add(now.unix_s(), "disk-pressure", action);
    }
    /// Checks that the disk has room for another file of about `bytes`.
    ///
    /// # Errors
    /// When the disk has less free space than that.
    pub(crate) fn check_disk_room(&self, bytes: u64) -> Result<(), DiskTooFull> {
        let free = self.diag.disk.free_bytes.load(Relaxed);
        match bytes.checked_sub(free).filter(|missing| *missing > 0) {
            None => Ok(()),
            Some(missing_bytes) => Err(DiskTooFull { needed_bytes: bytes, missing_bytes }),
        }
    }
}
