//! [`LineLimit`]: which of many lines about one matter are logged.

/// Counts the lines of the current interval, so that only the first ones are logged.
#[derive(Clone, Debug)]
pub struct LineLimit {
    lines_max: u64,
    interval_us: u64,
    since_us: u64,
    count: u64,
}

impl LineLimit {
    /// At most `lines_max` lines in `interval_us` microseconds.
    pub const fn new(lines_max: u64, interval_us: u64) -> LineLimit {
        LineLimit { lines_max, interval_us, since_us: 0, count: 0 }
    }
    /// Counts a line at `now_us`. Returns whether this line is logged, and the number of lines of the last interval that
    /// were not logged.
    pub fn add(&mut self, now_us: u64) -> (bool, u64) {
        let left_out = self.take_left_out(now_us);
        if self.count == 0 {
            self.since_us = now_us;
        }
        self.count += 1;
        (self.count <= self.lines_max, left_out)
    }
    /// Ends the interval if its time is over at `now_us`. Returns the number of its lines that were not logged.
    pub fn take_left_out(&mut self, now_us: u64) -> u64 {
        if now_us.saturating_sub(self.since_us) < self.interval_us {
            return 0;
        }
        std::mem::take(&mut self.count).saturating_sub(self.lines_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_an_interval_are_logged_and_the_others_counted() {
        let mut limit = LineLimit::new(10, 1_000_000);
        let said = (0..1000).filter(|i| limit.add(1_000_000 + i).0).count();
        assert_eq!(said, 10);
        assert_eq!(limit.take_left_out(1_999_999), 0);
        assert_eq!(limit.add(3_000_000), (true, 990));
        assert_eq!(limit.add(3_000_000), (true, 0));
        let said = (0..100).filter(|_| limit.add(3_500_000).0).count();
        assert_eq!(said, 8);
        assert_eq!((limit.take_left_out(4_000_000), limit.take_left_out(9_000_000)), (92, 0));
        // A new interval begins with its first line.
        let said = (0..100).filter(|i| limit.add(9_000_000 + i * 9_999).0).count();
        assert_eq!(said, 10);
    }
}
