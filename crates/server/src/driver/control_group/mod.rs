//! [`ControlGroups`]: the limits of the control groups that this process is in, and what the groups use.
//!
//! A limit of a group also counts for all groups below it, so each lookup asks the process's own group and all its
//! ancestors, up to the top of the mounted hierarchy. With version 1 each controller has a hierarchy of its own. With
//! version 2 there is one hierarchy. A machine may have both. The paths are found once, and again after the process has
//! been moved to another group.

use procfs::process::MountInfo;
use procfs::{FromRead, MemoryPressure};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of groups from the process's own group to the top.
const LEVELS_MAX: usize = 64;
/// From this number of bytes on, a limit means that there is none: version 1 has no word for this.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// The files of a group that a version of control groups has.
#[derive(Debug)]
struct Files {
    /// Files with a limit of memory. The lowest limit counts.
    limits: &'static [&'static str],
    /// File with the memory in use.
    usage: &'static str,
    /// Names in `memory.stat` of the pages of files, also of the groups below.
    cached: [&'static str; 2],
    /// Name in `cpu.stat` of the time that the group was stopped, and how many of its units are a microsecond.
    throttled: (&'static str, u64),
}

static VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cached: ["total_active_file", "total_inactive_file"],
    throttled: ("throttled_time", 1000),
};
/// Over `memory.high` the kernel does not end a process, but stops it again and again for up to two seconds. Without swap
/// a server over `memory.high` hardly runs, so `memory.high` counts as a limit.
static VERSION_2: Files = Files {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cached: ["active_file", "inactive_file"],
    throttled: ("throttled_usec", 1),
};

/// A control group.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    files: &'static Files,
}

impl Group {
    /// The number in a file. `None` without the file, or if the file has a word (`max`).
    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.path.join(file)).ok()?.trim().parse().ok()
    }
    /// The number in a line `name 123` of `text`.
    fn line(text: &str, name: &str) -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }
    fn limit_bytes(&self) -> Option<u64> {
        let limits = self.files.limits.iter().filter_map(|file| self.number(file));
        limits.filter(|bytes| *bytes < UNLIMITED_BYTES).min()
    }
    /// The memory in use without cached files: cached files also count for the group, but the kernel drops them first.
    fn used_bytes(&self) -> Option<u64> {
        let usage = self.number(self.files.usage)?;
        let stat = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        let cached = self.files.cached.iter().filter_map(|name| Group::line(&stat, name));
        Some(usage.saturating_sub(cached.fold(0, u64::saturating_add)))
    }
    fn throttled_us(&self) -> Option<u64> {
        let (name, units_per_us) = self.files.throttled;
        let stat = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        Group::line(&stat, name).map(|units| units / units_per_us)
    }
}

/// The memory of the group that has the least free memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupMemory {
    /// The group's limit.
    pub limit_bytes: u64,
    /// What the group uses, without cached files.
    pub used_bytes: u64,
    /// The lowest limit of all groups.
    pub lowest_limit_bytes: u64,
}

/// The control groups of this process: see the module.
#[derive(Debug)]
pub struct ControlGroups {
    /// `/`. A test has a folder of its own.
    root: PathBuf,
    /// Content of `/proc/self/cgroup` for which the groups were found.
    membership: String,
    /// Groups that may limit memory, each hierarchy's own group first.
    memory: Vec<Group>,
    /// Groups that may limit processor time.
    cpu: Vec<Group>,
    /// File with the memory pressure of the own group.
    pressure: Option<PathBuf>,
}

impl Default for ControlGroups {
    fn default() -> ControlGroups {
        ControlGroups::in_root(Path::new("/"))
    }
}

impl ControlGroups {
    fn in_root(root: &Path) -> ControlGroups {
        let mut groups = ControlGroups {
            root: root.into(),
            membership: String::new(),
            memory: Vec::new(),
            cpu: Vec::new(),
            pressure: None,
        };
        groups.refresh();
        groups
    }
    /// Finds the groups again, if the process has been moved to other groups.
    pub fn refresh(&mut self) {
        let membership = fs::read_to_string(self.root.join("proc/self/cgroup")).unwrap_or_default();
        if membership == self.membership {
            return;
        }
        let mounts = fs::read_to_string(self.root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounts: Vec<MountInfo> =
            mounts.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect();
        let version_1 = |controller: &str| {
            let path = member_of(&membership, |controllers| controllers.split(',').any(|c| c == controller));
            let is_there = |mount: &&MountInfo| {
                mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)
            };
            self.levels(mounts.iter().filter(is_there), path, &VERSION_1)
        };
        let version_2 = || {
            let path = member_of(&membership, str::is_empty);
            self.levels(mounts.iter().filter(|mount| mount.fs_type == "cgroup2"), path, &VERSION_2)
        };
        // A controller is in one hierarchy only. In the other hierarchies its files are missing.
        let mut memory = version_1("memory");
        let mut cpu = version_1("cpu");
        memory.extend(version_2());
        cpu.extend(version_2());
        // The group at the top has everything on the machine. This group alone lacks `cgroup.events`.
        let own = version_2().into_iter().next().map(|group| group.path);
        self.pressure =
            own.filter(|path| path.join("cgroup.events").exists()).map(|path| path.join("memory.pressure"));
        self.memory = memory;
        self.cpu = cpu;
        self.membership = membership;
    }
    /// The memory of the group that has the least free memory. `None` when no group has a limit.
    pub fn memory(&self) -> Option<GroupMemory> {
        let limited: Vec<(u64, &Group)> =
            self.memory.iter().filter_map(|group| Some((group.limit_bytes()?, group))).collect();
        let lowest_limit_bytes = limited.iter().map(|(limit, _)| *limit).min()?;
        let known = limited.into_iter().filter_map(|(limit, group)| Some((limit, group.used_bytes()?)));
        let (limit_bytes, used_bytes) =
            known.min_by_key(|(limit, used)| limit.saturating_sub(*used)).unwrap_or((lowest_limit_bytes, 0));
        Some(GroupMemory { limit_bytes, used_bytes, lowest_limit_bytes })
    }
    /// How long the groups' limits of processor time have stopped the threads, in microseconds. `None` when no group
    /// counts this time.
    pub fn throttled_us(&self) -> Option<u64> {
        self.cpu.iter().filter_map(Group::throttled_us).reduce(u64::saturating_add)
    }
    /// How long some thread of the process's own group has waited for memory, in microseconds. `None` without a group
    /// of version 2.
    pub fn memory_pressure_us(&self) -> Option<u64> {
        MemoryPressure::from_file(self.pressure.as_ref()?).ok().map(|pressure| pressure.some.total)
    }
    /// The groups from the one at `path` to the top of the hierarchy that `mounts` show, the own group first. A mount may
    /// show a part of the hierarchy only. The mount that shows most of the ancestors counts.
    fn levels<'m>(
        &self,
        mounts: impl Iterator<Item = &'m MountInfo>,
        path: Option<&str>,
        files: &'static Files,
    ) -> Vec<Group> {
        let Some(path) = path else { return Vec::new() };
        let shown = mounts.filter_map(|mount| {
            let point = unescaped(mount.mount_point.as_os_str().as_encoded_bytes());
            let mounted = unescaped(mount.root.as_bytes());
            let top = self.root.join(point.strip_prefix("/").ok()?);
            match Path::new(path).strip_prefix(mounted) {
                // `..` leads to groups that the mount does not show.
                Ok(below) => below
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)))
                    .then(|| (top, below.to_path_buf())),
                // In a container, the path may be the host's path, and the mount may show the container's group.
                Err(_) => (!path.contains("/..")).then(|| (top, PathBuf::new())),
            }
        });
        let Some((top, below)) = shown.max_by_key(|(_, below)| below.components().count()) else {
            return Vec::new();
        };
        let own = top.join(below);
        let levels = own.ancestors().take_while(|level| level.starts_with(&top)).take(LEVELS_MAX);
        levels.map(|level| Group { path: level.into(), files }).collect()
    }
}

/// The path in the line `number:controllers:path` of `membership` whose controllers are `wanted`.
fn member_of(membership: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    membership.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        (wanted(controllers) && path.starts_with('/')).then_some(path)
    })
}

/// A path of `mountinfo` without the escapes (`\040`) that the kernel writes for spaces and similar bytes.
fn unescaped(path: &[u8]) -> PathBuf {
    let (mut out, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *byte == b'\\');
        let escaped = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests;
