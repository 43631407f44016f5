//! [`Headroom`]: how much memory the process can take before the kernel kills it, and what has to wait for memory.
//!
//! The hard limits are those of the control group and the machine. `maxmemory` is a chosen limit with its own rules
//! in [`crate::admission`]. One sample per second tells the free memory; between samples the allocator's sum tells
//! the growth. While the limits are unknown, everything is admitted, and a check costs one load.
//!
//! Work that may need much memory (a reply of a large collection, an index, an import) declares its need before it
//! begins. It is admitted with a [`Reservation`], waits for the end of other work, or is refused. While little memory
//! is free, the clients that make memory grow fastest are slowed.

use crate::clients::Client;
use crate::{Engine, MemoryFacts, Now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use strand_diag::history::Figure;

/// Work that needs less memory than this is always admitted, because it makes no difference.
pub(crate) const WORK_BYTES_MIN: u64 = 4 << 20;
/// The need of an import at its start: some documents in flight, and their replies.
pub(crate) const IMPORT_BYTES: u64 = 32 << 20;
/// All memory divided by this number is never given to work, because replies, sockets and the kernel need memory.
const KEPT_PART: u64 = 32;
/// A fast client fills a small control group in less than a second. So until the next sample, the data may take only the
/// free memory divided by this number. The rest is for clients, replies, and pages that the allocator returns later: 8
/// clients that wrote 600,000 small values a second made the group grow by 1.4 bytes for each byte of data.
const GROUP_STEP_PART: u64 = 3;
/// Pages that the allocator does not use are returned at once while the free memory of a control group is less than the
/// limit divided by this number.
const UNUSED_WANTED_PART: u64 = 4;
/// A control group whose room for data is less than its limit divided by this number is full.
const ROOM_PART_MIN: u64 = 256;
/// How long work waits for other work before it is refused.
const WORK_WAIT_US: u64 = 30_000_000;
/// Time between two requests of waiting work.
const WORK_RETRY_US: u64 = 20_000;

/// Clients are slowed from the time when less than this percentage is free until [`RECOVERED_PERCENT`] is free.
const LOW_PERCENT: u64 = 10;
const RECOVERED_PERCENT: u64 = 12;
/// A client that added less than this since the last check is not slowed.
const GROWTH_BYTES_MIN: u64 = 256 << 10;
/// Time between two checks of the growth.
const CHECK_EVERY_US: u64 = 100_000;
/// Slowed clients together need at least this many seconds to fill the free memory.
const HORIZON_S: u64 = 20;
/// A slowed client may write at least this many bytes per second, so no client is stopped.
const RATE_BYTES_MIN: u64 = 64 << 10;
/// Maximum delay of a slowed client, however much it wrote at once.
const SLOWED_US_MAX: u64 = 1_000_000;
/// The sample of everything is taken each second. After this time it is late.
const LATE_SAMPLE_US: u64 = 2_000_000;

/// The free memory, and the part of it that is reserved.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// All memory that the process may use: the control group's limit or the machine's memory. 0: unknown.
    size_bytes: AtomicU64,
    /// The free memory at the last sample.
    free_bytes: AtomicU64,
    /// The bytes that were in use at the last sample.
    used_bytes: AtomicU64,
    /// When the last sample was taken, on the clock of [`Now::mono_us`].
    sampled_us: AtomicU64,
    /// Bytes reserved for running work.
    reserved_bytes: AtomicU64,
    /// True while clients are slowed or checked.
    is_low: AtomicBool,
    checked_us: AtomicU64,
}

/// Memory reserved for work until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    headroom: Arc<Headroom>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.headroom.reserved_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// Whether a piece of work may begin.
#[derive(Debug)]
pub(crate) enum WorkAdmission {
    /// Work may begin. Keep the reservation until the work ends.
    Now(Option<Reservation>),
    /// Work must wait: other work will free enough memory.
    Later {
        /// When to ask again, on the clock of [`Now::mono_us`].
        at_us: u64,
    },
    /// Work is refused, because too little memory is free.
    Refused {
        /// The number of bytes that are missing for the work.
        missing_bytes: u64,
    },
}

/// The rate at which one client may make memory grow.
#[derive(Debug, Default)]
pub(crate) struct GrowthLimit {
    /// Bytes that the client's commands brought since the last check.
    grown_bytes: AtomicU64,
    /// Bytes that the client may bring per second. 0: no limit.
    bytes_per_s: AtomicU64,
    /// When the client may write again.
    free_at_us: AtomicU64,
}

impl GrowthLimit {
    /// Decides about a command with `bytes` of arguments. `Some`: the command must wait until this time.
    pub(crate) fn delay_until_us(&self, bytes: u64, now_us: u64) -> Option<u64> {
        let rate = self.bytes_per_s.load(Relaxed);
        let free_at_us = self.free_at_us.load(Relaxed);
        if rate > 0 && now_us < free_at_us {
            return Some(free_at_us);
        }
        self.grown_bytes.fetch_add(bytes, Relaxed);
        if rate > 0 {
            let costs_us = (u128::from(bytes) * 1_000_000 / u128::from(rate)).min(u128::from(SLOWED_US_MAX));
            // An idle client accumulates no credit.
            self.free_at_us.store(now_us + costs_us as u64, Relaxed);
        }
        None
    }
    fn is_slowed(&self) -> bool {
        self.bytes_per_s.load(Relaxed) > 0
    }
}

impl Headroom {
    /// Records a sample. A `size_bytes` of 0 means unknown.
    pub(crate) fn record_sample(&self, size_bytes: u64, free_bytes: u64, used_bytes: u64) {
        self.free_bytes.store(free_bytes, Relaxed);
        self.used_bytes.store(used_bytes, Relaxed);
        self.size_bytes.store(size_bytes, Relaxed);
    }
    /// True while the limits of the system are known.
    pub(crate) fn is_known(&self) -> bool {
        self.size_bytes.load(Relaxed) > 0
    }
    /// True while clients are slowed or checked.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Relaxed)
    }
    /// The memory that is free now, when `used_bytes` are in use.
    fn free_now(&self, used_bytes: u64) -> u64 {
        let used_then = self.used_bytes.load(Relaxed);
        let free = self.free_bytes.load(Relaxed).saturating_add(used_then.saturating_sub(used_bytes));
        free.saturating_sub(used_bytes.saturating_sub(used_then)).min(self.size_bytes.load(Relaxed))
    }
    /// Decides on work that needs `bytes` and has waited for `waited_us`.
    pub(crate) fn admit(
        self: &Arc<Headroom>,
        bytes: u64,
        used_bytes: u64,
        waited_us: u64,
        now: Now,
    ) -> WorkAdmission {
        let size_bytes = self.size_bytes.load(Relaxed);
        if size_bytes == 0 || bytes < WORK_BYTES_MIN {
            return WorkAdmission::Now(None);
        }
        // The reservation comes before the check, so of two concurrent requests at least one sees the reservation of
        // the other.
        let reserved = self.reserved_bytes.fetch_add(bytes, Relaxed);
        let reservation = Reservation { headroom: self.clone(), bytes };
        let free = self.free_now(used_bytes).saturating_sub(size_bytes / KEPT_PART);
        match free.saturating_sub(reserved) {
            left if bytes <= left => WorkAdmission::Now(Some(reservation)),
            _ if bytes <= free && waited_us < WORK_WAIT_US => {
                WorkAdmission::Later { at_us: now.mono_us + WORK_RETRY_US }
            }
            left => WorkAdmission::Refused { missing_bytes: bytes - left },
        }
    }
}

/// The error text for refused work.
pub(crate) fn refusal(what: &str, bytes: u64, missing_bytes: u64) -> String {
    let mb = |bytes: u64| bytes.div_ceil(1 << 20);
    format!("OOM {what} would need {} MiB, {} MiB more than is free", mb(bytes), mb(missing_bytes))
}

impl Engine {
    /// Records the distance to the limits of the system. `used_bytes` were in use when the system gave `figures`. Called
    /// with every sample.
    pub(crate) fn sample_headroom(&self, used_bytes: u64, figures: &[Figure], now: Now) {
        self.headroom.sampled_us.store(now.mono_us, Relaxed);
        let newest = |name| {
            let figure = figures.iter().find(|figure| figure.name == name);
            figure.map(|figure| figure.value as u64)
        };
        let group = newest("cgroup.memory.limit").zip(newest("cgroup.memory.used"));
        let group =
            group.filter(|(limit, _)| *limit > 0).map(|(limit, used)| (limit, limit.saturating_sub(used)));
        let MemoryFacts { system_bytes, resident_bytes, active_bytes, .. } = self.host.memory();
        let machine = newest("host.memory.available")
            .filter(|_| system_bytes > 0)
            .map(|free| (system_bytes, free.min(system_bytes)));
        // Use the limit that leaves less free memory.
        let least = group.into_iter().chain(machine).min_by_key(|(_, free)| *free);
        let (size, free) = least.unwrap_or_default();
        self.headroom.record_sample(size, free, used_bytes);
        let room = free.saturating_sub(size / KEPT_PART);
        let limit = used_bytes.saturating_add(room.min(free / GROUP_STEP_PART)).max(1);
        let is_of_group = least.is_some() && least == group;
        // The allocator returns unused pages within a second, but on a busy machine its threads come late.
        let unused = resident_bytes.saturating_sub(active_bytes);
        if is_of_group && free < size / UNUSED_WANTED_PART && unused > size / KEPT_PART {
            self.host.purge_memory();
        }
        let has_more = is_of_group && room > size / ROOM_PART_MIN;
        if self.memory.set_group_limit(if is_of_group { limit } else { 0 }, has_more) {
            self.sample_memory();
            self.forget_spare();
        }
    }
    /// Samples the memory alone when the sample of everything is late: its thread asks the disk, which may hang, and
    /// writers may wait for the next figures of their control group.
    pub(crate) fn sample_late_headroom(&self, now: Now) {
        let sampled_us = self.headroom.sampled_us.load(Relaxed);
        if sampled_us > 0 && now.mono_us.saturating_sub(sampled_us) > LATE_SAMPLE_US {
            let used_bytes = self.host.used_bytes();
            self.sample_headroom(used_bytes, &self.host.memory_figures(), now);
        }
    }
    /// Decides on work that needs `bytes`.
    pub(crate) fn admit_work(&self, bytes: u64, waited_us: u64, now: Now) -> WorkAdmission {
        if bytes < WORK_BYTES_MIN || !self.headroom.is_known() {
            return WorkAdmission::Now(None);
        }
        self.headroom.admit(bytes, self.host.used_bytes(), waited_us, now)
    }
    /// Slows the clients that make memory grow fastest while little is free. Runs in the background, about ten times
    /// per second.
    pub(crate) fn slow_clients(&self, now: Now) {
        let headroom = &self.headroom;
        let size = headroom.size_bytes.load(Relaxed);
        let free = if size == 0 { 0 } else { headroom.free_now(self.host.used_bytes()) };
        if !headroom.is_low() {
            if size > 0 && free < size / 100 * LOW_PERCENT {
                // From here on the growth of each client is counted.
                headroom.is_low.store(true, Relaxed);
                headroom.checked_us.store(now.mono_us, Relaxed);
                self.memory.watch(true);
                self.clients
                    .all()
                    .iter()
                    .for_each(|client| client.growth_limit.grown_bytes.store(0, Relaxed));
            }
            return;
        }
        if size == 0 || free >= size / 100 * RECOVERED_PERCENT {
            self.stop_slowing(now);
            return;
        }
        if now.mono_us < headroom.checked_us.load(Relaxed) + CHECK_EVERY_US {
            return;
        }
        headroom.checked_us.store(now.mono_us, Relaxed);
        self.choose_slowed(free, now);
    }
    fn choose_slowed(&self, free_bytes: u64, now: Now) {
        let grown = |client: Arc<Client>| (client.growth_limit.grown_bytes.swap(0, Relaxed), client);
        let mut all: Vec<_> = self.clients.all().into_iter().map(grown).collect();
        let total: u64 = all.iter().map(|(bytes, _)| bytes).sum();
        all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let (mut slowed, mut covered) = (Vec::new(), 0);
        for (bytes, client) in all {
            // Slow the fastest clients, until together they make up half of the growth. A slowed client stays slowed.
            let is_fast = bytes >= GROWTH_BYTES_MIN && covered * 2 < total;
            covered += bytes;
            if is_fast || client.growth_limit.is_slowed() {
                slowed.push((bytes, client));
            }
        }
        let rate = (free_bytes / HORIZON_S / slowed.len().max(1) as u64).max(RATE_BYTES_MIN);
        for (bytes, client) in slowed {
            if client.growth_limit.bytes_per_s.swap(rate, Relaxed) == 0 {
                let action = format!(
                    "client {} ({}) may write {rate} bytes a second: since the last check it has sent {bytes} bytes of writes",
                    client.id, client.peer.addr
                );
                self.host.log(&action);
                self.diag.action_log.add(now.unix_s(), "memory-growth", action);
            }
        }
    }
    fn stop_slowing(&self, now: Now) {
        let slowed = self.slowed_clients();
        self.headroom.is_low.store(false, Relaxed);
        self.memory.watch(false);
        for client in self.clients.all() {
            client.growth_limit.bytes_per_s.store(0, Relaxed);
            client.growth_limit.free_at_us.store(0, Relaxed);
        }
        if slowed > 0 {
            let action = format!("memory is free again: {slowed} clients are no longer slowed");
            self.host.log(&action);
            self.diag.action_log.add(now.unix_s(), "memory-growth", action);
        }
    }
    /// The number of clients that are slowed now.
    pub(crate) fn slowed_clients(&self) -> usize {
        if !self.headroom.is_low() {
            return 0;
        }
        self.clients.all().iter().filter(|client| client.growth_limit.is_slowed()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn at(mono_us: u64) -> Now {
        Now { unix_us: 0, mono_us }
    }

    #[test]
    fn work_is_admitted_waits_or_is_refused() {
        let headroom = Arc::new(Headroom::default());
        assert!(matches!(headroom.admit(1 << 50, 0, 0, at(0)), WorkAdmission::Now(None)), "nothing is known");
        headroom.record_sample(320 * MB, 110 * MB, 50 * MB);
        assert!(matches!(headroom.admit(MB, 50 * MB, 0, at(0)), WorkAdmission::Now(None)), "it is little");
        let WorkAdmission::Now(Some(first)) = headroom.admit(60 * MB, 50 * MB, 0, at(0)) else {
            panic!("it fits")
        };
        // A part of 320 MB is kept: 40 MB are left of 100 MB, and 60 MB come back.
        let WorkAdmission::Later { at_us } = headroom.admit(70 * MB, 50 * MB, 0, at(7)) else {
            panic!("it waits")
        };
        assert_eq!(at_us, 7 + WORK_RETRY_US);
        let refused = |bytes, used, waited_us| match headroom.admit(bytes, used, waited_us, at(0)) {
            WorkAdmission::Refused { missing_bytes } => missing_bytes / MB,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(150 * MB, 50 * MB, 0), 110, "more than all that is free");
        assert_eq!(refused(70 * MB, 50 * MB, WORK_WAIT_US), 30, "it has waited for long");
        drop(first);
        assert_eq!(headroom.reserved_bytes.load(Relaxed), 0, "who was refused has nothing");
        assert!(matches!(headroom.admit(70 * MB, 50 * MB, 0, at(0)), WorkAdmission::Now(Some(_))));
        // Since the sample, the allocator has given out 50 MB more. In the second case it got 20 MB back.
        assert_eq!(refused(70 * MB, 100 * MB, 0), 20);
        assert!(matches!(headroom.admit(120 * MB, 30 * MB, 0, at(0)), WorkAdmission::Now(Some(_))));
        assert_eq!(
            refusal("hgetall", 70 * MB, 20 * MB - 5),
            "OOM hgetall would need 70 MiB, 20 MiB more than is free"
        );
    }

    #[test]
    fn a_slowed_client_waits_for_what_it_wrote_and_never_for_long() {
        let limit = GrowthLimit::default();
        assert_eq!(limit.delay_until_us(1 << 40, 10), None, "nobody is slowed");
        assert_eq!(limit.grown_bytes.load(Relaxed), 1 << 40);
        limit.bytes_per_s.store(1_000_000, Relaxed);
        assert_eq!(limit.delay_until_us(5_000, 100), None, "what was written before does not count");
        assert_eq!(
            (limit.delay_until_us(1, 200), limit.delay_until_us(1, 5_099)),
            (Some(5_100), Some(5_100))
        );
        assert_eq!(limit.delay_until_us(u64::MAX >> 8, 5_100), None);
        assert_eq!(limit.delay_until_us(1, 5_101), Some(5_100 + SLOWED_US_MAX));
        limit.bytes_per_s.store(0, Relaxed);
        assert_eq!(limit.delay_until_us(1, 5_102), None, "the client is no longer slowed");
    }
}
