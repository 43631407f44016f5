//! The times at which a job is due: after an interval, at the times of a cron expression, or on a user's request.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use std::time::Duration;

/// Number of the fields of a cron expression.
pub(super) const CRON_FIELDS: usize = 5;

/// When a job is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Trigger {
    /// Only when a user requests a run.
    #[default]
    Demand,
    /// When this interval has passed since the job's last start.
    Every(Duration),
    /// At the times of a cron expression, in the machine's time zone.
    Cron(Box<Cron>),
}

/// Reads a duration: `90s`, `10m`, `2h`, `1d`, `500ms`. `None` when the text has another form.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().ok()?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(ms).map(Duration::from_millis)
}

/// Reads a cron expression of five fields.
///
/// # Errors
/// The library's error, also for a time that never comes, such as the 30th of February.
pub(crate) fn cron(text: &str) -> Result<Trigger, CronError> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(text)?;
    cron.find_next_occurrence(&jiff::Zoned::now(), false)?;
    Ok(Trigger::Cron(Box::new(cron)))
}

/// The time at which a job is due next, in milliseconds since 1970. `last_ms` is the time of the job's last start, if
/// there was one. `jitter_ms` is added to the due time.
pub fn next_ms(trigger: &Trigger, last_ms: Option<u64>, now_ms: u64, jitter_ms: u64) -> Option<u64> {
    let due = match trigger {
        Trigger::Demand => return None,
        Trigger::Every(interval) => {
            let interval = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            // If several intervals were missed, the job is due once. If the clock was set back, the last start may be
            // in the future: then count from now.
            last_ms.map_or(now_ms, |last| last.min(now_ms).saturating_add(interval).max(now_ms))
        }
        Trigger::Cron(cron) => {
            let now = jiff::Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?;
            let now = now.to_zoned(jiff::tz::TimeZone::system());
            let next = cron.find_next_occurrence(&now, false).ok()?;
            u64::try_from(next.timestamp().as_millisecond()).ok()?
        }
    };
    Some(due.saturating_add(jitter_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_parsed() {
        let read = |text| duration(text).map(|d| d.as_millis());
        assert_eq!((read("500ms"), read("10m"), read("1d")), (Some(500), Some(600_000), Some(86_400_000)));
        for bad in ["", "10", "m", "1.5h", "-1s", "99999999999999999999d", "1w"] {
            assert!(duration(bad).is_none(), "{bad:?}");
        }
    }

    /// docs/jobs.md says what this test checks. The library decides these times.
    #[test]
    fn times_that_the_clock_skips_or_repeats() {
        let berlin = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let next = |text: &str, from: &str, skipped: usize| {
            let Trigger::Cron(cron) = cron(text).unwrap() else { panic!("{text}") };
            let from = from.parse::<jiff::civil::DateTime>().unwrap().to_zoned(berlin.clone()).unwrap();
            let next = cron.iter_after(from).nth(skipped).unwrap();
            next.strftime("%F %H:%M %:z").to_string()
        };
        let (spring, autumn) = ("2027-03-28T00:00", "2027-10-31T00:00");
        // 02:00 to 03:00 does not exist.
        assert_eq!(next("30 2 * * *", spring, 0), "2027-03-28 03:00 +02:00");
        assert_eq!(next("*/30 2 * * *", spring, 0), "2027-03-29 02:00 +02:00");
        assert_eq!(next("0 1,2 * * *", spring, 1), "2027-03-29 01:00 +02:00");
        assert_eq!(next("*/30 * * * *", spring, 3), "2027-03-28 03:00 +02:00");
        // 02:00 to 03:00 comes twice.
        assert_eq!(next("30 2 * * *", autumn, 0), "2027-10-31 02:30 +02:00");
        assert_eq!(next("30 2 * * *", autumn, 1), "2027-11-01 02:30 +01:00");
        assert_eq!(next("*/30 2 * * *", autumn, 1), "2027-10-31 02:30 +02:00");
        assert_eq!(next("*/30 2 * * *", autumn, 2), "2027-10-31 02:00 +01:00");
    }

    #[test]
    fn the_next_run_follows_the_schedule() {
        let every = Trigger::Every(Duration::from_secs(60));
        assert_eq!(next_ms(&every, None, 5, 0), Some(5));
        assert_eq!(next_ms(&every, Some(1_000), 5_000, 7), Some(61_007));
        assert_eq!(next_ms(&every, Some(1_000), 1_000_000, 0), Some(1_000_000));
        assert_eq!(next_ms(&every, Some(9_000_000), 5_000, 0), Some(65_000), "the clock was set back");
        assert_eq!(next_ms(&Trigger::Demand, Some(1), 2, 3), None);
        // The offset of every time zone is a multiple of five minutes.
        let five = cron("*/5 * * * *").unwrap();
        assert_eq!(next_ms(&five, None, 1_700_000_000_000, 0), Some(1_700_000_100_000));
        assert_eq!(next_ms(&five, None, 1_700_000_100_000, 0), Some(1_700_000_400_000));
        for bad in ["61 * * * *", "x", "0 */5 * * * *", "0 0 1 1 * 2030", "0 0 30 2 *"] {
            assert!(cron(bad).is_err(), "{bad}");
        }
    }
}
