//! The usage of a record, in 24 bits as in Redis: the second of the last use. Under an LFU policy: the minute of
//! the last use, and a logarithmic access counter.

use crate::Settings;
use std::sync::atomic::Ordering::Relaxed;

/// Access counter of a new record. It is above 0, so that a new record is not the first to be evicted.
pub(crate) const FREQUENCY_NEW: u8 = 5;
const SECONDS_MASK: u32 = 0xff_ffff;
const MINUTES_MASK: u32 = 0xffff;
/// A use may be later than the clock that it is compared with, because the clock was set back. Up to this number of
/// seconds, the record counts as used now. Without this, the difference would wrap to 194 days.
const SECONDS_AHEAD_MAX: u32 = 3600;

/// 24 bits: the second of the last use or, under an LFU policy, 16 bits of minutes above an 8-bit counter.
/// When the policy changes between LFU and others, a record's bits are misread until its next use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage(pub(crate) u32);

impl Usage {
    /// The usage of a record that was last used `idle_s` seconds ago. At most 194 days, the range of the 24-bit
    /// clock, less [`SECONDS_AHEAD_MAX`].
    pub(crate) fn idle_for(idle_s: u64, now_ms: i64) -> Usage {
        let idle_s = idle_s.min(u64::from(SECONDS_MASK - SECONDS_AHEAD_MAX)) as u32;
        Usage(seconds(now_ms).wrapping_sub(idle_s) & SECONDS_MASK)
    }
    /// The usage of a record that was used now, with this access counter.
    pub(crate) fn used_often(frequency: u8, now_ms: i64) -> Usage {
        Usage(minutes(now_ms) << 8 | u32::from(frequency))
    }
    pub(crate) fn idle_s(self, now_ms: i64) -> u32 {
        let idle_s = seconds(now_ms).wrapping_sub(self.0) & SECONDS_MASK;
        if idle_s > SECONDS_MASK - SECONDS_AHEAD_MAX { 0 } else { idle_s }
    }
    pub(crate) fn frequency(self, now_ms: i64, settings: &Settings) -> u8 {
        let decay_minutes = settings.lfu_decay_time.load(Relaxed);
        let counter = self.0 as u8;
        let idle_minutes = minutes(now_ms).wrapping_sub(self.0 >> 8) & MINUTES_MASK;
        let idle_minutes =
            if idle_minutes > MINUTES_MASK - SECONDS_AHEAD_MAX / 60 { 0 } else { idle_minutes };
        match u64::from(idle_minutes).checked_div(decay_minutes) {
            Some(periods) => counter.saturating_sub(periods.min(255) as u8),
            None => counter, // A decay time of 0 means no decay.
        }
    }
}

/// What is needed to compute the [`Usage`] of a record that is used now.
pub(crate) struct Access<'a> {
    pub(crate) now_ms: i64,
    /// True under an LFU policy of `maxmemory-policy`.
    pub(crate) lfu: bool,
    pub(crate) settings: &'a Settings,
    /// State of a small random generator, which decides whether the counter rises.
    pub(crate) random: &'a mut u64,
}

impl Access<'_> {
    /// The usage that a new record gets.
    #[inline]
    pub(crate) fn of_new(&self) -> Usage {
        match self.lfu {
            false => Usage(seconds(self.now_ms)),
            true => Usage(minutes(self.now_ms) << 8 | u32::from(FREQUENCY_NEW)),
        }
    }
    /// The usage that a record has after one more use.
    #[inline]
    pub(crate) fn after_use(&mut self, before: Usage) -> Usage {
        if self.lfu { self.count(before) } else { Usage(seconds(self.now_ms)) }
    }
    /// Counts a use under an LFU policy. The higher the counter is, the smaller is the chance that it rises. With
    /// factor 10, the counter reaches 255 after about a million uses.
    #[cold]
    fn count(&mut self, before: Usage) -> Usage {
        let counter = before.frequency(self.now_ms, self.settings);
        let above = u64::from(counter.saturating_sub(FREQUENCY_NEW));
        let one_in = above.saturating_mul(self.settings.lfu_log_factor.load(Relaxed)).saturating_add(1);
        *self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let up = (*self.random >> 33).is_multiple_of(one_in);
        Usage(minutes(self.now_ms) << 8 | u32::from(counter.saturating_add(u8::from(up))))
    }
}

fn seconds(now_ms: i64) -> u32 {
    now_ms.div_euclid(1000) as u32 & SECONDS_MASK
}
fn minutes(now_ms: i64) -> u32 {
    now_ms.div_euclid(60_000) as u32 & MINUTES_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access<'a>(now_ms: i64, settings: &'a Settings, random: &'a mut u64) -> Access<'a> {
        Access { now_ms, lfu: true, settings, random }
    }

    #[test]
    fn idle_time_is_in_seconds_and_wraps_as_redis_s() {
        let settings = Settings::default();
        let used = Access { lfu: false, ..access(1_700_000_000_999, &settings, &mut 1) }.of_new();
        assert_eq!(used.idle_s(1_700_000_000_999), 0);
        assert_eq!(used.idle_s(1_700_000_001_000), 1);
        assert_eq!(used.idle_s(1_700_000_000_000 + (1 << 24) * 1000), 0);
    }
    #[test]
    fn set_usage_is_read_back() {
        let now_ms = 1_700_000_000_999;
        let longest = SECONDS_MASK - SECONDS_AHEAD_MAX;
        for idle_s in [0, 1, 100_000, longest.into()] {
            assert_eq!(u64::from(Usage::idle_for(idle_s, now_ms).idle_s(now_ms)), idle_s);
        }
        assert_eq!(Usage::idle_for(u64::MAX, now_ms).idle_s(now_ms), longest);
        // The clock was set back after the use.
        assert_eq!(Usage::idle_for(0, now_ms).idle_s(now_ms - 60_000), 0);
        assert_eq!(Usage::used_often(200, now_ms).frequency(now_ms - 60_000, &Settings::default()), 200);
        assert_eq!(Usage::used_often(200, now_ms).frequency(now_ms, &Settings::default()), 200);
    }
    #[test]
    fn the_counter_rises_logarithmically_and_decays() {
        let (settings, mut random) = (Settings::default(), 7);
        let mut used = access(0, &settings, &mut random).of_new();
        assert_eq!(used.frequency(0, &settings), 5);
        for _ in 0..100_000 {
            used = access(0, &settings, &mut random).after_use(used);
        }
        // From the table in redis.conf: with factor 10, 100 K hits give 142.
        assert!((130..=155).contains(&used.frequency(0, &settings)), "{used:?}");
        let top = used.frequency(0, &settings);
        assert_eq!(used.frequency(3 * 60_000, &settings), top - 3);
        assert_eq!(used.frequency(1000 * 60_000, &settings), 0);
        settings.lfu_decay_time.store(0, Relaxed);
        assert_eq!(used.frequency(1000 * 60_000, &settings), top);
    }
    #[test]
    fn a_hundred_hits_are_about_ten() {
        let (settings, mut random) = (Settings::default(), 3);
        let mut used = access(0, &settings, &mut random).of_new();
        for _ in 0..100 {
            used = access(0, &settings, &mut random).after_use(used);
        }
        assert!((7..=16).contains(&used.frequency(0, &settings)), "{used:?}");
    }
}
