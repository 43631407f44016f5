//! The context of measured figures: machine, kernel, versions, date.

use crate::report::quote;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The facts about the machine, each with its name.
#[derive(Clone, Debug)]
pub struct Machine(Vec<(&'static str, String)>);

impl Machine {
    /// Asks the system for its facts, and the two programs for their versions.
    pub fn here(strand: &Path) -> Machine {
        Machine(vec![
            ("date", date()),
            ("commit", first_line_of(Command::new("git").args(["rev-parse", "--short", "HEAD"]))),
            ("cpu", cpu_model()),
            ("cores", std::thread::available_parallelism().map_or(0, |n| n.get()).to_string()),
            ("memory_mb", memory_mb()),
            ("kernel", read("/proc/sys/kernel/osrelease").trim().to_string()),
            ("strand", first_line(strand, "--version")),
            ("redis", first_line(Path::new("redis-server"), "--version")),
        ])
    }

    /// The facts about the machine in one line, for people.
    pub fn line(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
    }

    /// The facts about the machine as a JSON object.
    pub fn json(&self) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{}:{}", quote(name), quote(value))).collect();
        format!("{{{}}}", pairs.join(","))
    }
}

/// Today, in UTC, as `YYYY-MM-DD`.
fn date() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of the `days`th day after 1970-01-01 in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| (y.is_multiple_of(4) && !y.is_multiple_of(100)) || y.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, left + 1)
}

fn cpu_model() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split(':').nth(1)).map_or("unknown", str::trim).to_string()
}

fn memory_mb() -> String {
    let text = read("/proc/meminfo");
    let kb = text
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kb.map_or("unknown".into(), |kb| (kb / 1024).to_string())
}

fn first_line(program: &Path, option: &str) -> String {
    first_line_of(Command::new(program).arg(option))
}

fn first_line_of(command: &mut Command) -> String {
    let output = command.output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_string()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(civil(20_818), (2026, 12, 31));
        assert_eq!(civil(20_819), (2027, 1, 1));
    }

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::here(Path::new("/nonexistent"));
        assert!(
            machine.line().contains("kernel: ") && machine.json().starts_with("{\"date\":\"20"),
            "{machine:?}"
        );
    }
}
