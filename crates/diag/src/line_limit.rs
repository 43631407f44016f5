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
        let mut unsaid = 0;
        if now_us.saturating_sub(self.since_us) >= self.interval_us {
            unsaid = self.count.saturating_sub(self.lines_max);
            (self.since_us, self.count) = (now_us, 0);
        }
        self.count += 1;
        (self.count <= self.lines_max, unsaid)
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
        assert_eq!(limit.add(3_000_000), (true, 990));
        assert_eq!(limit.add(3_000_000), (true, 0));
    }
}
