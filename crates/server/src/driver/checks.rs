//! System settings that cost the server something. Checked once at the start, and reported in the log and by DIAG
//! DOCTOR.

use std::fs;

/// A setting that should change: the name of the rule, the finding, and the advice.
pub type Check = (&'static str, String, String);

/// The settings that are checked.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Content of `/sys/kernel/mm/transparent_hugepage/enabled`
    pub huge_pages: String,
    /// Content of `/proc/sys/vm/overcommit_memory`
    pub overcommit: String,
    /// Content of `/proc/sys/net/core/somaxconn`
    pub somaxconn: String,
    /// The option `tcp-backlog`
    pub backlog: u32,
    /// The value of `maxclients`, and the number of clients that the limit of open files allows.
    pub clients: (usize, usize),
}

impl Settings {
    /// The current settings.
    pub fn read(backlog: u32, clients: (usize, usize)) -> Settings {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Settings {
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            overcommit: read("/proc/sys/vm/overcommit_memory"),
            somaxconn: read("/proc/sys/net/core/somaxconn"),
            backlog,
            clients,
        }
    }
    /// The settings that should change. Unknown settings are not judged.
    pub fn findings(&self) -> Vec<Check> {
        let mut found = Vec::new();
        if self.huge_pages.contains("[always]") {
            found.push((
                "huge-pages",
                "transparent huge pages are always used: memory that is freed in small pieces stays resident"
                    .into(),
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".into(),
            ));
        }
        if self.overcommit.trim() == "2" {
            found.push((
                "overcommit",
                "the kernel limits how much memory may be reserved (vm.overcommit_memory is 2): an allocation may fail \
                 although memory is free, and then the process ends"
                    .into(),
                "sysctl vm.overcommit_memory=0 (Strand never forks, so it does not need the value 1)".into(),
            ));
        }
        let waiting = self.somaxconn.trim().parse::<u32>();
        if let Ok(most) = waiting.as_ref().copied()
            && most < self.backlog
        {
            found.push((
                "somaxconn",
                format!("tcp-backlog is {}, but the kernel lets only {most} connections wait", self.backlog),
                format!("sysctl net.core.somaxconn={}", self.backlog),
            ));
        }
        let (wanted, allowed) = self.clients;
        if allowed < wanted {
            found.push((
                "open-files",
                format!("the limit of open files allows {allowed} clients, and maxclients was {wanted}"),
                "Raise the limit (`ulimit -n`, LimitNOFILE of a systemd unit)".into(),
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_with_known_bad_values_are_findings() {
        let rules = |settings: &Settings| settings.findings().iter().map(|check| check.0).collect::<Vec<_>>();
        let well = Settings {
            huge_pages: "always [madvise] never\n".into(),
            overcommit: "0\n".into(),
            somaxconn: "4096\n".into(),
            backlog: 511,
            clients: (10_000, 10_000),
        };
        assert!(rules(&well).is_empty() && rules(&Settings::default()).is_empty());
        let bad = Settings {
            huge_pages: "[always] madvise never\n".into(),
            overcommit: "2\n".into(),
            somaxconn: "128\n".into(),
            clients: (10_000, 900),
            ..well
        };
        assert_eq!(rules(&bad), ["huge-pages", "overcommit", "somaxconn", "open-files"]);
    }
}
