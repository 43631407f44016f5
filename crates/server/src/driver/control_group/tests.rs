//! Tests of the control groups, with the kernel's files in a folder of the test.

use super::*;

const MB: u64 = 1 << 20;

/// A folder that looks like the root of a machine.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(membership: &str, mounts: &str) -> Machine {
        let machine = Machine(tempfile::tempdir().expect("a folder"));
        machine.write("proc/self/cgroup", membership);
        machine.write("proc/self/mountinfo", mounts);
        machine
    }
    fn write(&self, path: &str, text: impl ToString) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text.to_string()).expect("written");
    }
    /// Creates the files of a group of version 2. A tenth of the used memory is cached files.
    fn version_2(&self, group: &str, max: &str, high: &str, used_mb: u64) {
        let file = |name: &str| format!("sys/fs/cgroup/{group}/{name}");
        self.write(&file("memory.max"), format!("{max}\n"));
        self.write(&file("memory.high"), format!("{high}\n"));
        self.write(&file("memory.current"), format!("{}\n", used_mb * MB));
        let cached = used_mb * MB / 20;
        self.write(
            &file("memory.stat"),
            format!("anon 5\nactive_file {cached}\ninactive_file {cached}\nactive_file_x 9\n"),
        );
        self.write(&file("cgroup.events"), "populated 1\n");
    }
    /// Creates the files of a group of version 1.
    fn version_1(&self, group: &str, limit: u64, used_mb: u64) {
        let file = |name: &str| format!("sys/fs/cgroup/memory/{group}/{name}");
        self.write(&file("memory.limit_in_bytes"), limit);
        self.write(&file("memory.usage_in_bytes"), used_mb * MB);
        self.write(
            &file("memory.stat"),
            format!("active_file 1\ninactive_file 2\ntotal_active_file {MB}\ntotal_inactive_file {MB}\n"),
        );
    }
    fn groups(&self) -> ControlGroups {
        ControlGroups::in_root(self.0.path())
    }
    /// The limit and the used memory of the tightest group, and the lowest limit, in MB.
    fn memory(&self) -> Option<(u64, u64, u64)> {
        let memory = self.groups().memory()?;
        Some((memory.limit_bytes / MB, memory.used_bytes / MB, memory.lowest_limit_bytes / MB))
    }
}

const MOUNT_2: &str = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const MOUNT_1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
     31 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n";
/// Version 1's number for no limit.
const NO_LIMIT_1: u64 = 9_223_372_036_854_771_712;

#[test]
fn a_container_of_version_2_sees_its_own_group_at_the_top() {
    let machine = Machine::new("0::/\n", MOUNT_2);
    assert_eq!(machine.memory(), None);
    machine.version_2("", &(200 * MB).to_string(), "max", 100);
    assert_eq!(machine.memory(), Some((200, 90, 200)));
    // The limit is asked anew each time, because it may be changed.
    machine.version_2("", "max", "max", 100);
    assert_eq!(machine.memory(), None);
    machine.version_2("", &(200 * MB).to_string(), &(150 * MB).to_string(), 100);
    assert_eq!(machine.memory(), Some((150, 90, 150)), "memory.high counts");
    assert_eq!(machine.groups().memory_pressure_us(), None);
    machine.write(
        "sys/fs/cgroup/memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
    );
    assert_eq!(machine.groups().memory_pressure_us(), Some(7));
}

#[test]
fn a_service_of_systemd_has_the_limits_of_its_unit_and_its_slices() {
    let machine = Machine::new("0::/system.slice/strand.service\n", MOUNT_2);
    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 5\n");
    machine.version_2("system.slice", &(1000 * MB).to_string(), "max", 100);
    machine.version_2("system.slice/strand.service", "max", "max", 50);
    assert_eq!(machine.memory(), Some((1000, 90, 1000)), "the slice has a limit");
    machine.version_2("system.slice/strand.service", &(300 * MB).to_string(), "max", 50);
    assert_eq!(machine.memory(), Some((300, 45, 300)));
    // Other services of the slice use almost all of the slice's memory.
    machine.version_2("system.slice", &(1000 * MB).to_string(), "max", 1000);
    assert_eq!(machine.memory(), Some((1000, 900, 300)), "100 MB are left, and not 255 MB");
    // Each group counts how long its own limit has stopped the group.
    machine.write("sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 5\nthrottled_usec 11\n");
    machine.write("sys/fs/cgroup/system.slice/strand.service/cpu.stat", "throttled_usec 7\n");
    assert_eq!(machine.groups().throttled_us(), Some(18));
}

#[test]
fn version_1_has_a_hierarchy_for_each_controller() {
    let machine = Machine::new("4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/\n", MOUNT_1);
    machine.version_1("", NO_LIMIT_1, 9000);
    machine.version_1("a", NO_LIMIT_1, 100);
    machine.version_1("a/b", NO_LIMIT_1, 100);
    machine.version_1("c", 5 * MB, 1);
    assert_eq!(machine.memory(), None, "a number that large is no limit");
    machine.version_1("a", 200 * MB, 102);
    assert_eq!(machine.memory(), Some((200, 100, 200)));
    machine.write("sys/fs/cgroup/cpu,cpuacct/c/cpu.stat", "nr_throttled 1\nthrottled_time 25000\n");
    assert_eq!(machine.groups().throttled_us(), Some(25));
    // On a machine with both versions, version 2 has the pressure, but not of a group at its top.
    let both = "35 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    machine.write("proc/self/mountinfo", format!("{MOUNT_1}{both}"));
    machine
        .write("sys/fs/cgroup/unified/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
    assert_eq!((machine.memory(), machine.groups().memory_pressure_us()), (Some((200, 100, 200)), None));
}

#[test]
fn a_mount_may_show_a_part_of_the_hierarchy() {
    let part = "35 31 0:32 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    let machine = Machine::new("4:memory:/docker/7/in\\side\n", part);
    machine.version_1("", 300 * MB, 12);
    machine.version_1("in\\side", 200 * MB, 12);
    assert_eq!(machine.memory(), Some((200, 10, 200)));
    machine.write("proc/self/cgroup", "4:memory:/docker/7\n");
    assert_eq!(machine.memory(), Some((300, 10, 300)));
    // The path is the host's, the mount is a container's.
    machine.write("proc/self/cgroup", "4:memory:/pods/9\n");
    assert_eq!(machine.memory(), Some((300, 10, 300)));
    // The process is outside of what its mounts show.
    machine.write("proc/self/cgroup", "4:memory:/../other\n");
    assert_eq!(machine.memory(), None);
    let outside = "35 31 0:32 /.. /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    machine.write("proc/self/mountinfo", outside);
    machine.version_1("other", 100 * MB, 12);
    assert_eq!(machine.memory(), Some((100, 10, 100)));
    // Of two mounts, the one that shows more ancestors counts. A mount point may have spaces.
    let whole = "36 31 0:32 / /sys/fs/cgroup/all\\040of\\134it rw - cgroup cgroup rw,memory\n";
    machine.write("proc/self/mountinfo", format!("{part}{whole}"));
    machine.write("proc/self/cgroup", "4:memory:/docker/7\n");
    machine.write("sys/fs/cgroup/all of\\it/docker/memory.limit_in_bytes", 50 * MB);
    machine.write("sys/fs/cgroup/all of\\it/docker/memory.usage_in_bytes", 5 * MB);
    assert_eq!(machine.memory(), Some((50, 5, 50)));
}

#[test]
fn a_process_may_be_moved_to_another_group() {
    let machine = Machine::new("0::/one\n", MOUNT_2);
    machine.version_2("one", &(200 * MB).to_string(), "max", 100);
    machine.version_2("two", &(100 * MB).to_string(), "max", 100);
    let mut groups = machine.groups();
    let limit_mb = |groups: &ControlGroups| groups.memory().map(|memory| memory.limit_bytes / MB);
    assert_eq!(limit_mb(&groups), Some(200));
    machine.write("proc/self/cgroup", "0::/two\n");
    assert_eq!(limit_mb(&groups), Some(200));
    groups.refresh();
    assert_eq!(limit_mb(&groups), Some(100));
}

#[test]
fn garbage_means_that_there_is_no_limit() {
    for membership in ["", "0", "0::", "0::x", "::::", "\0\n0::/\u{7f}\n", "4:memory\n", "0::/../../..\n"] {
        for mounts in ["", "x", "1 2 3", "35 24 0:30 / sys rw - cgroup2 cgroup2 rw\n", MOUNT_2] {
            let machine = Machine::new(membership, mounts);
            machine.version_2("", "18446744073709551616", "-1", 100);
            assert_eq!(machine.memory(), None, "{membership:?} {mounts:?}");
        }
    }
    let machine = Machine::new(&format!("0::/{}\n", "a/".repeat(500)), MOUNT_2);
    assert_eq!(machine.groups().memory.len(), LEVELS_MAX);
    let machine = Machine::new("0::/\n", &format!("garbage\n\n{MOUNT_2}"));
    machine.version_2("", "5242880", "x", 1);
    machine.write("sys/fs/cgroup/memory.stat", "active_file\ninactive_file 18446744073709551615\n");
    assert_eq!(machine.memory(), Some((5, 0, 5)));
    machine.write("sys/fs/cgroup/memory.current", "");
    assert_eq!(machine.memory(), Some((5, 0, 5)), "the limit is known");
    assert_eq!(unescaped(b"\\04\\999\\"), Path::new("\\04\\999\\"));
}

/// The kernel's own files. Prints what they say.
#[test]
fn this_machine_has_groups_or_not() {
    let groups = ControlGroups::default();
    println!("{:?} {:?} {:?}", groups.memory(), groups.throttled_us(), groups.memory_pressure_us());
    assert!(groups.memory().is_none_or(|memory| memory.lowest_limit_bytes <= memory.limit_bytes));
}
