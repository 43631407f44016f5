//! [`SystemWatch`]: the kernel's figures about the process and the machine, once per second, for the history.
//!
//! A figure that the kernel does not have (no pressure figures, no control group) is left out. The counters of
//! threads are summed by name while the threads exist, so the sums never decrease when a thread ends.

use super::allocator;
use super::control_group::ControlGroups;
use super::stacks::{Stacks, StacksError};
use procfs::process::{Process, Task};
use procfs::{CpuPressure, Current, CurrentSI, IoPressure, KernelStats, Meminfo, MemoryPressure};
use rustix::process::Signal;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use strand_diag::history::Figure;

/// Maximum number of thread names that get a series of their own. All other threads share one series.
const THREAD_NAMES_MAX: usize = 16;
/// Name of the shared series.
const OTHER_THREADS: &str = "others";

const NS: f64 = 1e9;
const US: f64 = 1e6;

/// Counters of a thread at the last round.
#[derive(Debug, Default)]
struct Thread {
    name: String,
    cpu_ns: u64,
    wait_ns: u64,
    voluntary: u64,
    forced: u64,
    /// Number of the last round in which the thread existed.
    round: u64,
}

/// The watch over the kernel's figures: see the module.
#[derive(Debug, Default)]
pub struct SystemWatch {
    threads: HashMap<i32, Thread>,
    cpu_ns: BTreeMap<String, u64>,
    wait_ns: u64,
    voluntary: u64,
    forced: u64,
    round: u64,
    groups: ControlGroups,
    /// The memory of the machine. 0: unknown.
    machine_bytes: u64,
    /// The lowest limit of memory of the control groups at the last look. 0: none.
    group_limit_bytes: u64,
}

impl SystemWatch {
    /// A watch that knows [`SystemWatch::size_bytes`] before the first figures.
    pub fn new() -> SystemWatch {
        let mut watch = SystemWatch { machine_bytes: allocator::machine_bytes(), ..SystemWatch::default() };
        watch.control_groups(&mut Vec::new());
        watch
    }
    /// The memory that the process may use: the machine's, or the lowest limit of the control groups if that limit is
    /// lower. 0: unknown.
    pub fn size_bytes(&self) -> u64 {
        let known = [self.machine_bytes, self.group_limit_bytes];
        known.into_iter().filter(|bytes| *bytes > 0).min().unwrap_or(0)
    }
    /// All current figures, except those of the disk.
    pub fn figures(&mut self) -> Vec<Figure> {
        let mut out = Vec::new();
        if let Ok(me) = Process::myself() {
            self.sample_threads(&me);
            process(&me, &mut out);
        }
        out.push(Figure::rate("cpu.waiting", "cores", self.wait_ns as f64 / NS));
        out.push(Figure::rate("switches.voluntary", "1/s", self.voluntary as f64));
        out.push(Figure::rate("switches.forced", "1/s", self.forced as f64));
        pressure(&mut out);
        machine(&mut out);
        self.control_groups(&mut out);
        for (name, ns) in &self.cpu_ns {
            out.push(Figure::rate(format!("cpu.thread.{name}"), "cores", *ns as f64 / NS));
        }
        out
    }
    /// The figures about the memory of the machine and of the control groups.
    pub fn memory_figures(&mut self) -> Vec<Figure> {
        let mut out = Vec::new();
        memory(&mut out);
        self.control_groups(&mut out);
        out
    }
    fn control_groups(&mut self, out: &mut Vec<Figure>) {
        self.groups.refresh();
        let memory = self.groups.memory();
        self.group_limit_bytes = memory.map_or(0, |memory| memory.lowest_limit_bytes);
        if let Some(memory) = memory {
            out.push(Figure::gauge("cgroup.memory.limit", "bytes", memory.limit_bytes as f64));
            out.push(Figure::gauge("cgroup.memory.used", "bytes", memory.used_bytes as f64));
        }
        if let Some(us) = self.groups.throttled_us() {
            out.push(Figure::rate("cgroup.cpu.throttled", "share", us as f64 / US));
        }
        if let Some(us) = self.groups.memory_pressure_us() {
            out.push(Figure::rate("cgroup.pressure.memory", "share", us as f64 / US));
        }
    }
    fn sample_threads(&mut self, me: &Process) {
        self.round += 1;
        let Ok(tasks) = me.tasks() else { return };
        for task in tasks.flatten() {
            let (Ok(times), Ok(status)) = (task.schedstat(), task.status()) else { continue };
            let thread = self.threads.entry(task.tid).or_default();
            thread.name = thread_group(&status.name);
            thread.round = self.round;
            let grown = |last: &mut u64, now: u64| now.saturating_sub(std::mem::replace(last, now));
            let cpu_ns = grown(&mut thread.cpu_ns, times.sum_exec_runtime);
            self.wait_ns += grown(&mut thread.wait_ns, times.run_delay);
            self.voluntary += grown(&mut thread.voluntary, status.voluntary_ctxt_switches.unwrap_or(0));
            self.forced += grown(&mut thread.forced, status.nonvoluntary_ctxt_switches.unwrap_or(0));
            let is_known = self.cpu_ns.contains_key(&thread.name) || self.cpu_ns.len() < THREAD_NAMES_MAX;
            let name = if is_known { thread.name.as_str() } else { OTHER_THREADS };
            match self.cpu_ns.get_mut(name) {
                Some(sum) => *sum += cpu_ns,
                None => _ = self.cpu_ns.insert(name.to_string(), cpu_ns),
            }
        }
        let round = self.round;
        self.threads.retain(|_, thread| thread.round == round);
    }
}

/// The name under which a thread is counted: each worker by itself, other threads of one kind together.
fn thread_group(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    if name.starts_with("worker") {
        return name;
    }
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    if kind.is_empty() { OTHER_THREADS.into() } else { kind.into() }
}

fn process(me: &Process, out: &mut Vec<Figure>) {
    if let Ok(io) = me.io() {
        out.push(Figure::rate("io.read", "bytes/s", io.read_bytes as f64));
        out.push(Figure::rate("io.written", "bytes/s", io.write_bytes as f64));
    }
    if let Ok(stat) = me.stat() {
        let per_s = procfs::ticks_per_second() as f64;
        out.push(Figure::rate("cpu.user", "cores", stat.utime as f64 / per_s));
        out.push(Figure::rate("cpu.system", "cores", stat.stime as f64 / per_s));
        out.push(Figure::rate("faults.major", "1/s", stat.majflt as f64));
        out.push(Figure::gauge("threads", "count", stat.num_threads as f64));
    }
    if let Ok(files) = me.fd_count() {
        out.push(Figure::gauge("files.open", "count", files as f64));
    }
}

/// Adds the shares of time in which some tasks, or all tasks (`full`), waited for the processor, for memory, or for the
/// disk.
fn pressure(out: &mut Vec<Figure>) {
    let mut add = |name: &'static str, us: Option<u64>| {
        if let Some(us) = us {
            out.push(Figure::rate(name, "share", us as f64 / US));
        }
    };
    add("pressure.cpu", CpuPressure::current().ok().map(|p| p.some.total));
    let memory = MemoryPressure::current().ok();
    add("pressure.memory", memory.as_ref().map(|p| p.some.total));
    add("pressure.memory.full", memory.map(|p| p.full.total));
    let io = IoPressure::current().ok();
    add("pressure.io", io.as_ref().map(|p| p.some.total));
    add("pressure.io.full", io.map(|p| p.full.total));
}

fn machine(out: &mut Vec<Figure>) {
    if let Ok(kernel) = KernelStats::current() {
        let (cpu, per_s) = (kernel.total, procfs::ticks_per_second() as f64);
        let busy = cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0);
        out.push(Figure::rate("host.cpu.busy", "cores", busy as f64 / per_s));
        out.push(Figure::rate("host.cpu.steal", "cores", cpu.steal.unwrap_or(0) as f64 / per_s));
    }
    memory(out);
    if let Ok(devices) = procfs::net::dev_status() {
        let all = || devices.iter().filter(|(name, _)| *name != "lo").map(|(_, device)| device);
        out.push(Figure::rate("host.net.in", "bytes/s", all().map(|d| d.recv_bytes).sum::<u64>() as f64));
        out.push(Figure::rate("host.net.out", "bytes/s", all().map(|d| d.sent_bytes).sum::<u64>() as f64));
    }
}

fn memory(out: &mut Vec<Figure>) {
    if let Ok(memory) = Meminfo::current() {
        if let Some(bytes) = memory.mem_available {
            out.push(Figure::gauge("host.memory.available", "bytes", bytes as f64));
        }
        out.push(Figure::gauge(
            "host.swap.used",
            "bytes",
            memory.swap_total.saturating_sub(memory.swap_free) as f64,
        ));
    }
}

/// The figures of the file system of the working folder. A network's file system may not answer.
pub fn disk_figures() -> Vec<Figure> {
    let mut out = Vec::new();
    if let Ok(stat) = rustix::fs::statvfs(".") {
        let unit = stat.f_frsize as f64;
        out.push(Figure::gauge("disk.free", "bytes", stat.f_bavail as f64 * unit));
        out.push(Figure::gauge("disk.size", "bytes", stat.f_blocks as f64 * unit));
    }
    out
}

/// The files of `/proc` that a report has. No file with the environment or the command line is among them, because
/// these may contain passwords. No file takes longer to read with more data; `smaps_rollup` would, because it walks
/// over all pages.
const REPORTED: [&str; 13] = [
    "/proc/self/io",
    "/proc/self/limits",
    "/proc/self/mountinfo",
    "/proc/self/status",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/self/cgroup",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/overcommit_memory",
    "/proc/version",
];
/// Maximum number of bytes of a file in a report.
const REPORTED_BYTES_MAX: usize = 64 << 10;

/// Maximum number of functions of a stack in a report. The stack of an event loop has about 40 functions.
const FRAMES_MAX: usize = 96;

/// The threads of the process that take the signal for their stack. The allocator's own threads block all signals.
pub fn threads() -> Vec<i32> {
    let bit = 1 << (Signal::PROF.as_raw() - 1);
    let tasks = Process::myself().and_then(|me| me.tasks());
    let takes = |task: &Task| task.status().is_ok_and(|status| status.sigblk & bit == 0);
    tasks.into_iter().flatten().flatten().filter(takes).map(|task| task.tid).collect()
}

/// The system's own texts, for a bundle, and the stacks of the threads. Yields the core after each file, because a
/// worker may wait for the core.
pub fn report(stacks: &Result<Stacks, StacksError>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = REPORTED
        .iter()
        .filter_map(|path| {
            std::thread::yield_now();
            let mut bytes = fs::read(path).ok()?;
            bytes.truncate(REPORTED_BYTES_MAX);
            Some((path.to_string(), String::from_utf8_lossy(&bytes).into_owned()))
        })
        .collect();
    let mut threads = String::new();
    for task in Process::myself().and_then(|me| me.tasks()).into_iter().flatten().flatten() {
        std::thread::yield_now();
        let Ok(status) = task.status() else { continue };
        let cpu_ms = task.schedstat().map_or(0, |times| times.sum_exec_runtime / 1_000_000);
        let file = |name: &str| {
            fs::read_to_string(format!("/proc/self/task/{}/{name}", task.tid)).unwrap_or_default()
        };
        // Only root may read the kernel stack (`stack`).
        let (waits_in, stack) = (file("wchan"), file("stack"));
        threads += &format!(
            "{} {} {} {cpu_ms} ms, waits in {waits_in}\n{stack}",
            task.tid, status.name, status.state
        );
        let frames = stacks.as_ref().ok().and_then(|all| all.get(&task.tid)).map(Vec::as_slice);
        for frame in frames.unwrap_or_default().iter().take(FRAMES_MAX) {
            threads += &match frame.file.as_str() {
                "" => format!("    {}\n", frame.function),
                file => format!("    {} ({file}:{})\n", frame.function, frame.line),
            };
        }
    }
    if let Err(why) = stacks {
        threads += &format!("{why}\n");
    }
    all.push(("threads".into(), threads));
    all
}

/// Finds the thread `name` of this process. Returns its id, and as text for a log line its state and what it waits for
/// in the kernel.
pub fn thread_place(name: &str) -> Option<(i32, String)> {
    let tasks = Process::myself().and_then(|me| me.tasks());
    let (tid, state) = tasks.into_iter().flatten().flatten().find_map(|task| {
        let status = task.status().ok()?;
        (status.name == name).then_some((task.tid, status.state))
    })?;
    let waits_in = fs::read_to_string(format!("/proc/self/task/{tid}/wchan")).unwrap_or_default();
    let waits_in = if matches!(waits_in.as_str(), "" | "0") { "nothing" } else { waits_in.as_str() };
    Some((tid, format!("; the thread is in state {state}, and waits in the kernel in {waits_in}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn thread_times_are_summed_by_name_and_survive_the_thread() {
        for (name, counted) in [
            ("worker-3", "worker-3"),
            ("lane-11", "lane"),
            ("ticker", "ticker"),
            ("a/b \u{7}", "a_b__"),
            ("17", "others"),
        ] {
            assert_eq!(thread_group(name), counted);
        }
        let mut watch = SystemWatch::default();
        let (go, wait) = channel::<()>();
        let work = move || {
            let mut x = 1u64;
            (0..20_000_000u64).for_each(|i| x = x.wrapping_mul(31).wrapping_add(i));
            let _ = wait.recv();
            x
        };
        let thread = std::thread::Builder::new().name("watched-1".into()).spawn(work).expect("a thread");
        let used = |watch: &SystemWatch| watch.cpu_ns.get("watched").copied().unwrap_or(0);
        let seen = (0..100_000).any(|_| {
            watch.figures();
            used(&watch) > 1_000_000
        });
        assert!(seen, "{watch:?}");
        let before = used(&watch);
        drop(go);
        thread.join().expect("it ends");
        watch.figures();
        assert!(used(&watch) >= before && watch.threads.values().all(|t| t.name != "watched"));
    }

    #[test]
    fn every_figure_exists_exactly_once() {
        let figures = [SystemWatch::default().figures(), disk_figures()].concat();
        for name in [
            "cpu.user",
            "io.read",
            "host.cpu.busy",
            "host.memory.available",
            "disk.free",
            "files.open",
            "threads",
        ] {
            assert_eq!(figures.iter().filter(|f| f.name == name).count(), 1, "{name}");
        }
        let of = |name: &str| figures.iter().find(|f| f.name == name).map_or(0.0, |f| f.value);
        assert!(of("disk.free") <= of("disk.size") && of("threads") >= 1.0, "{figures:?}");
    }
}
