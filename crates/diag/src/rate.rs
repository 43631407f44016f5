//! [`Rate`]: the growth of a counter, averaged over the last few samples.

/// Number of samples that are averaged.
const SAMPLES: usize = 16;

/// The growth of a counter per second, as the mean of the last 16 samples.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    last: Option<(u64, u64)>,
    samples: [f64; SAMPLES],
    taken: usize,
}

impl Rate {
    /// Adds a sample: the counter's `value` at `now_us`. A sample with the time of the last one is ignored.
    /// When the counter was reset, averaging starts again.
    pub fn sample(&mut self, value: u64, now_us: u64) {
        if let Some((last_value, last_us)) = self.last {
            if now_us <= last_us {
                return;
            }
            let grown = value.saturating_sub(last_value) as f64;
            self.samples[self.taken % SAMPLES] = grown * 1e6 / (now_us - last_us) as f64;
            self.taken += 1;
        }
        self.last = Some((value, now_us));
    }
    /// Growth of the counter per second; 0 before the second sample.
    pub fn per_second(&self) -> f64 {
        let n = self.taken.min(SAMPLES);
        if n == 0 { 0.0 } else { self.samples[..n].iter().sum::<f64>() / n as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_mean_of_the_last_samples() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), 0.0);
        for i in 0..=10 {
            rate.sample(i * 50, i * 100_000);
        }
        assert!((rate.per_second() - 500.0).abs() < 1e-6);
        rate.sample(9999, 1_000_000);
        assert!((rate.per_second() - 500.0).abs() < 1e-6, "the time did not move");
        for i in 11..60 {
            rate.sample(500, i * 100_000);
        }
        assert_eq!(rate.per_second(), 0.0);
        rate.sample(0, 9_000_000);
        assert_eq!(rate.per_second(), 0.0, "a reset counter does not count backwards");
    }
}
