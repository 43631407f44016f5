//! Current problems, the server's own actions, and advice: [`Engine::examine`] (DIAG DOCTOR, `strand doctor`).
//!
//! Every rule uses facts that are already known: the newest rows of the history, the configuration, the host's
//! findings at the start. So a query has a constant cost for any amount of data. [`Engine::take_actions`] runs with every
//! sample and takes the actions that need no permission.

use super::Diag;
use crate::config::Opt;
use crate::stats::Stat;
use crate::timing;
use crate::{Engine, Now};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write;
use strand_diag::history::Span;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The problem does no harm yet, but may do so later.
    Notice,
    /// The problem does harm now.
    Warning,
    /// Clients are refused, or data is not safe.
    Alert,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Notice => "notice",
            Level::Warning => "warning",
            Level::Alert => "alert",
        }
    }
}

/// A problem that a rule has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule that found it. The name is stable across versions.
    pub(crate) rule: &'static str,
    pub(crate) level: Level,
    /// What the problem is.
    pub(crate) problem: String,
    /// What the operator should do about the problem.
    pub(crate) advice: String,
}

/// Something that the server did by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) unix_s: i64,
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

/// The server's newest actions, and what the decision about the next action needs.
#[derive(Default)]
pub(crate) struct ActionLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    actions: VecDeque<Action>,
    /// Consecutive samples with memory pressure.
    pressed_samples: u32,
    purged_s: u64,
    /// Consecutive samples in which the control group's memory was almost used up ([`CEILING_SHARE`]).
    full_samples: u32,
}

/// Maximum number of actions that are kept.
const ACTIONS_MAX: usize = 64;
/// "Now" in a finding means this number of seconds at the end of the history.
const NOW_S: u64 = 10;
/// Share of time in which a thread waits for memory. The first constant is the share for a finding, the second the
/// share for an action.
const PRESSURE_MIN: f32 = 0.02;
const PRESSURE_FOR_ACTION: f32 = 0.10;
/// Number of consecutive samples with memory pressure before an action.
const PRESSED_SAMPLES: u32 = 3;
/// Minimum number of seconds between two of these actions.
const PURGE_INTERVAL_S: u64 = 30;
/// The machine's memory pressure counts while less than this share of the process's memory is available on the machine.
const SHORT_SHARE: f32 = 0.20;
/// A control group or a machine with this share in use is nearly full.
const FULL_SHARE: f32 = 0.95;
/// With this share of a control group in use, the server takes no more memory until only [`CEILING_END_SHARE`] is in
/// use.
const CEILING_SHARE: f32 = 0.97;
const CEILING_END_SHARE: f32 = 0.90;
/// The disk has low space when its free share is below this number, or when fewer than [`DISK_FREE_BYTES`] are free.
const DISK_FREE_SHARE: f32 = 0.05;
const DISK_FREE_BYTES: f32 = 1e9;
/// The share of a core taken by other machines that makes a finding.
const STEAL_CORES: f32 = 0.10;
/// The share of a core lost to throttling that makes a finding.
const THROTTLED_SHARE: f32 = 0.05;
/// The share of `maxclients` that makes a finding.
const CLIENTS_SHARE: f64 = 0.9;
/// Evictions per second that make a finding.
const EVICTIONS_PER_S: f32 = 1.0;

impl ActionLog {
    pub(crate) fn all(&self) -> Vec<Action> {
        self.state.lock().actions.iter().cloned().collect()
    }
    pub(crate) fn add(&self, unix_s: i64, rule: &'static str, text: String) {
        let mut state = self.state.lock();
        state.actions.push_front(Action { unix_s, rule, text });
        state.actions.truncate(ACTIONS_MAX);
    }
}

impl Diag {
    /// The mean of a series over the last seconds. `None` when unknown.
    fn recent(&self, name: &str) -> Option<f32> {
        let recorder = self.recorder.lock();
        let history = recorder.history();
        let at = history.series().iter().position(|series| series.name == name)?;
        let (newest_ms, _) = history.newest(0)?;
        let span = Span {
            from_ms: newest_ms - (NOW_S as i64 - 1) * 1000,
            to_ms: newest_ms,
            step_s: Some(1),
            rows_max: NOW_S as usize,
        };
        let table = history.read(span, &[at]);
        let known: Vec<f32> = table.columns.first()?.iter().copied().filter(|v| v.is_finite()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
    }
    /// The newest value of a series of the history.
    pub(crate) fn newest(&self, name: &str) -> Option<f32> {
        let recorder = self.recorder.lock();
        let history = recorder.history();
        let at = history.series().iter().position(|series| series.name == name)?;
        history.newest(0)?.1.get(at).copied().filter(|value| value.is_finite())
    }
}

impl Engine {
    /// Takes the server's own actions. Called with every sample.
    pub(super) fn take_actions(&self, now: Now) {
        self.limit_memory_to_group(now);
        self.check_disk_space(now);
        let diag = &self.diag;
        let pressed = self.memory_pressure(|name| diag.newest(name));
        let pressed = pressed.filter(|(share, _)| *share >= PRESSURE_FOR_ACTION);
        let full = self.full_group_share().is_some();
        let mono_s = now.mono_us / 1_000_000;
        {
            let mut state = diag.action_log.state.lock();
            state.pressed_samples = if pressed.is_some() || full { state.pressed_samples + 1 } else { 0 };
            let is_due = state.purged_s == 0 || mono_s >= state.purged_s + PURGE_INTERVAL_S;
            if state.pressed_samples < PRESSED_SAMPLES || !is_due {
                return;
            }
            state.purged_s = mono_s;
        }
        let before = self.host.memory().resident_bytes;
        self.forget_spare();
        self.host.shrink_caches();
        strand_chain::free_pooled();
        self.host.purge_memory();
        let freed = before.saturating_sub(self.host.memory().resident_bytes);
        let why = match pressed {
            Some((_, whose)) if !full => format!("threads of {whose} wait for memory"),
            _ => "the control group is nearly full".into(),
        };
        let action = format!(
            "{why}: emptied the caches of pattern sets, freed spare buffers, and returned {freed} bytes to the system"
        );
        self.host.log(&action);
        diag.action_log.add(now.unix_s(), "memory-pressure", action);
    }
    /// Limits memory before the kernel kills the process. When the control group's memory is almost used up, the memory
    /// in use becomes the limit. Keys are then evicted by `maxmemory-policy`, or commands that need memory are refused
    /// with OOM, as with `maxmemory`.
    fn limit_memory_to_group(&self, now: Now) {
        let share = self.group_share();
        let is_limited = self.memory.ceiling_bytes() > 0;
        let is_almost_used_up = {
            let mut state = self.diag.action_log.state.lock();
            state.full_samples =
                if share.is_some_and(|share| share >= CEILING_SHARE) { state.full_samples + 1 } else { 0 };
            state.full_samples > PRESSED_SAMPLES
        };
        let action = if is_almost_used_up && !is_limited {
            let used = self.host.used_bytes();
            self.memory.set_ceiling(used.max(1));
            format!(
                "the control group's memory is almost used up: until memory is free again, the server takes no more than \
                 the {used} bytes that it uses now"
            )
        } else if is_limited && share.is_none_or(|share| share < CEILING_END_SHARE) {
            self.memory.set_ceiling(0);
            "the control group has free memory again: the only limit is maxmemory".into()
        } else {
            return;
        };
        self.sample_memory();
        self.forget_spare();
        self.host.log(&action);
        self.diag.action_log.add(now.unix_s(), "memory-ceiling", action);
    }
    /// The share of time in which threads wait for memory, and whose threads: of the control group or the machine.
    /// The larger share counts. Threads of other groups may wait because of the limits of these groups. So the machine's
    /// share counts only while the machine has little free memory, too.
    fn memory_pressure(&self, share_of: impl Fn(&str) -> Option<f32>) -> Option<(f32, &'static str)> {
        let group = share_of("cgroup.pressure.memory").map(|share| (share, "the control group"));
        let size = self.host.memory().system_bytes as f32;
        let available = self.diag.newest("host.memory.available");
        let is_short = size == 0.0 || available.is_none_or(|bytes| bytes < size * SHORT_SHARE);
        let machine = share_of("pressure.memory").filter(|_| is_short).map(|share| (share, "the machine"));
        group.into_iter().chain(machine).max_by(|a, b| a.0.total_cmp(&b.0))
    }
    /// The used share of the control group's memory, when it is nearly full.
    fn full_group_share(&self) -> Option<f32> {
        self.group_share().filter(|share| *share >= FULL_SHARE)
    }
    /// The used share of the control group's memory, when it has a limit.
    fn group_share(&self) -> Option<f32> {
        let (used, limit) =
            (self.diag.newest("cgroup.memory.used")?, self.diag.newest("cgroup.memory.limit")?);
        (limit > 0.0).then_some(used / limit)
    }
    /// The reasons to send clients elsewhere for now. Empty when the server is ready.
    pub fn unready(&self) -> Vec<String> {
        let alerts = self.persist.alerts();
        let mut reasons = Vec::new();
        if self.persist.is_loading() {
            reasons.push("the data is being loaded".into());
        }
        if alerts & crate::persist::FAILURES != 0 {
            reasons
                .push("writes are refused: a snapshot or the append-only file could not be written".into());
        }
        if self.diag.is_disk_nearly_full() {
            reasons.push("the disk that holds the data is almost full".into());
        }
        if self.is_data_stale() {
            reasons.push("the link to the primary is down, and replica-serve-stale-data is no".into());
        }
        reasons
    }
    /// The current problems, the worst first.
    pub(crate) fn examine(&self, now: Now) -> Vec<Finding> {
        let mut found = Vec::new();
        self.examine_memory(&mut found);
        self.examine_disk(&mut found);
        self.examine_machine(&mut found);
        self.examine_clients(&mut found);
        self.examine_time(&mut found);
        self.examine_scripts(&mut found, now);
        self.examine_link(&mut found, now);
        for (rule, problem, advice) in self.host.start_checks() {
            found.push(Finding { rule, level: Level::Notice, problem, advice });
        }
        found.sort_by_key(|found| std::cmp::Reverse(found.level));
        found
    }
    fn examine_memory(&self, found: &mut Vec<Finding>) {
        let ledger = self.ledger();
        let used = ledger.facts.used_bytes;
        let limit = self.memory.limit_bytes();
        let over = self.memory.over_bytes(self.keyspace.data_bytes() as u64);
        let mut add = |rule, level, problem: String, advice: &str| {
            found.push(Finding { rule, level, problem, advice: advice.into() });
        };
        let ceiling = self.memory.ceiling_bytes();
        if ceiling > 0 {
            add(
                "memory-ceiling",
                Level::Alert,
                format!(
                    "the control group's memory is almost used up: the server takes at most {ceiling} bytes until memory is free again"
                ),
                "Raise the group's limit, set maxmemory below it, or remove data",
            );
        } else if limit > 0 && over > 0 && !self.memory.is_limit_passing() {
            add(
                "maxmemory",
                Level::Alert,
                format!(
                    "{used} bytes are used and maxmemory is {limit}: commands that need memory are refused with OOM"
                ),
                "Raise maxmemory, remove data, or choose a maxmemory-policy that has something to evict",
            );
        } else if self.diag.recent("keys.evicted").is_some_and(|n| n >= EVICTIONS_PER_S) {
            add(
                "evicting",
                Level::Warning,
                format!(
                    "keys are evicted for maxmemory ({limit} bytes), {:.0} a second",
                    self.diag.recent("keys.evicted").unwrap_or(0.0)
                ),
                "If the hit rate matters (keys.hits, keys.misses in the history), raise maxmemory",
            );
        }
        if limit == 0
            && ledger.facts.system_bytes > 0
            && ledger.facts.rss_bytes as f32 > ledger.facts.system_bytes as f32 * 0.8
        {
            add(
                "no-maxmemory",
                Level::Warning,
                format!(
                    "the process has {} of {} bytes of memory, and maxmemory sets no limit",
                    ledger.facts.rss_bytes, ledger.facts.system_bytes
                ),
                "Set maxmemory below what the machine has, before the kernel ends the process",
            );
        }
        if let Some(share) = self.full_group_share() {
            add(
                "cgroup-memory",
                Level::Alert,
                format!(
                    "{:.0} % of the control group's memory is used: at 100 % the kernel ends the process (memory.high: stops the process \
                     again and again)",
                    share * 100.0
                ),
                "Raise the group's limit, or set maxmemory below it",
            );
        }
        let pressure = self.memory_pressure(|name| self.diag.recent(name));
        if let Some((share, whose)) = pressure.filter(|(share, _)| *share >= PRESSURE_MIN) {
            add(
                "memory-pressure",
                if share >= PRESSURE_FOR_ACTION { Level::Alert } else { Level::Warning },
                format!("threads of {whose} wait for memory for {:.0} % of the time", share * 100.0),
                "Find what grows (memory.* in the history, DIAG MEMORY); move other programs away, or raise the group's limit",
            );
        }
        let slowed = self.slowed_clients();
        if slowed > 0 {
            add(
                "memory-growth",
                Level::Warning,
                format!(
                    "memory is almost used up: the server slows down the {slowed} clients whose writes take the most memory"
                ),
                "The actions below name these clients. Raise the limit of the machine or control group, set maxmemory \
                 below this limit, or remove data",
            );
        }
        let clients = self.clients.len() as u64;
        let held = ledger.share(crate::memory::Purpose::Clients);
        if clients > 0 && held / clients > 200 << 10 {
            add(
                "client-buffers",
                Level::Warning,
                format!("{held} bytes wait in the buffers of {clients} clients"),
                "Find clients that do not read their replies: tot-mem in CLIENT LIST; set client-output-buffer-limit or maxmemory-clients",
            );
        }
    }
    fn examine_disk(&self, found: &mut Vec<Finding>) {
        let (free, size) = (self.diag.newest("disk.free"), self.diag.newest("disk.size"));
        if let (Some(free), Some(size)) = (free, size)
            && size > 0.0
            && (free / size < DISK_FREE_SHARE || free < DISK_FREE_BYTES)
        {
            found.push(Finding {
                rule: "disk-space",
                level: if self.diag.is_disk_nearly_full() { Level::Alert } else { Level::Warning },
                problem: format!("{free:.0} of {size:.0} bytes are free where the data is kept"),
                advice: "Make room: snapshots and the append-only file are written beside the old ones"
                    .into(),
            });
        }
        if self.persist.alerts() & crate::persist::FAILURES != 0 {
            found.push(Finding {
                rule: "persistence",
                level: Level::Alert,
                problem: "a snapshot or the append-only file could not be written: writes are refused".into(),
                advice: "INFO persistence and the log have the reason; remove the cause, then send BGSAVE or BGREWRITEAOF".into(),
            });
        } else if self.persist.last_save_failed() {
            found.push(Finding {
                rule: "snapshot",
                level: Level::Warning,
                problem: "the last snapshot could not be written".into(),
                advice: "The log has the reason; remove the cause, then send BGSAVE".into(),
            });
        }
        let failed = self.persist.failed_rewrites();
        if failed > 0 {
            found.push(Finding {
                rule: "rewrite",
                level: Level::Warning,
                problem: format!(
                    "the last {failed} rewrites of the append-only file failed, so the file grows"
                ),
                advice: "The log has the reason; remove the cause, then send BGREWRITEAOF".into(),
            });
        }
        if let (_, Some(trouble)) = self.diag.disk_state() {
            found.push(Finding {
                rule: "history-disk",
                level: Level::Notice,
                problem: format!("the history cannot be written to the disk: {trouble}"),
                advice: "Nothing is lost while the server runs; make room on the disk".into(),
            });
        }
    }
    fn examine_link(&self, found: &mut Vec<Finding>, now: Now) {
        let Some((host, port, since_us)) = crate::following::unreachable_primary(self) else { return };
        let is_refused = self.is_data_stale();
        let since = match since_us {
            Some(since_us) => {
                format!("for {} s", now.mono_us.saturating_sub(since_us) / 1_000_000)
            }
            None => "since this server began to follow".into(),
        };
        found.push(Finding {
            rule: "primary-link",
            level: if is_refused { Level::Alert } else { Level::Warning },
            problem: format!(
                "the link to the primary {host}:{port} is down {since}, and clients {}",
                if is_refused { "get MASTERDOWN" } else { "read old data" }
            ),
            advice: "See whether the primary runs and can be reached (the log has the reason), or make this server a \
                     primary: REPLICAOF NO ONE"
                .into(),
        });
    }
    fn examine_machine(&self, found: &mut Vec<Finding>) {
        let mut check_min = |rule, name, min: f32, problem: &str, advice: &str| {
            if let Some(value) = self.diag.recent(name).filter(|value| *value >= min) {
                found.push(Finding {
                    rule,
                    level: Level::Warning,
                    problem: format!("{problem} ({name} {value:.2})"),
                    advice: advice.into(),
                });
            }
        };
        check_min(
            "steal",
            "host.cpu.steal",
            STEAL_CORES,
            "other guests of the host take processor time that this machine needs",
            "Move the guest, or give it cores of its own",
        );
        check_min(
            "throttled",
            "cgroup.cpu.throttled",
            THROTTLED_SHARE,
            "the control group's processor limit stops the server now and then",
            "Raise the group's processor limit: latency suffers first",
        );
        check_min(
            "major-faults",
            "faults.major",
            10.0,
            "memory of the server is read back from the disk",
            "The kernel has swapped memory out: free some memory, or switch off swap",
        );
    }
    fn examine_clients(&self, found: &mut Vec<Finding>) {
        let (clients, max) = (self.clients.len(), self.config.maxclients());
        if clients as f64 >= max as f64 * CLIENTS_SHARE {
            found.push(Finding {
                rule: "clients",
                level: if clients >= max { Level::Alert } else { Level::Warning },
                problem: format!("{clients} clients are connected and maxclients is {max}"),
                advice: "Raise maxclients (and the limit of open files), or find the client that keeps connecting: CLIENT LIST".into(),
            });
        }
        if self.diag.recent("clients.rejected").is_some_and(|n| n > 0.0) {
            found.push(Finding {
                rule: "rejected",
                level: Level::Alert,
                problem: format!(
                    "connections are refused; {} since the start",
                    self.stats.get(Stat::Rejected)
                ),
                advice: "See maxclients and protected-mode".into(),
            });
        }
    }
    fn examine_time(&self, found: &mut Vec<Finding>) {
        let jumps = self.diag.recorder.lock().clock_jumps();
        if jumps > 0 {
            found.push(Finding {
                rule: "clock",
                level: Level::Warning,
                problem: format!("the wall clock has jumped {jumps} times since the start"),
                advice: "Keys expire by the wall clock. Let NTP adjust the clock slowly, without jumps"
                    .into(),
            });
        }
        if let Some((name, ms)) = self.diag.turn_watch.newest() {
            found.push(Finding {
                rule: "stuck-worker",
                level: Level::Warning,
                problem: format!("a worker was busy with one command for {ms} ms: {name}"),
                advice: "See the log for the time, and report it: no command should hold a worker this long"
                    .into(),
            });
        }
        if self.config.number(Opt::LatencyMonitorThreshold) > 0 {
            let events = timing::longest(&self.stats.events);
            if !events.is_empty() {
                found.push(Finding {
                    rule: "latency",
                    level: Level::Notice,
                    problem: events,
                    advice: "LATENCY DOCTOR explains the events, DIAG SLOWLOG lists the commands".into(),
                });
            }
        }
    }
    fn examine_scripts(&self, found: &mut Vec<Finding>, now: Now) {
        for script in self.scripts.busy() {
            let seconds = now.mono_us.saturating_sub(script.began_us) / 1_000_000;
            let (kind, group) =
                if script.is_function { ("function", "FUNCTION") } else { ("script", "SCRIPT") };
            found.push(Finding {
                rule: "busy-script",
                level: Level::Alert,
                problem: format!(
                    "the {kind} {} has run for {seconds} s: commands that need its keys get BUSY",
                    script.name
                ),
                advice: format!(
                    "Send {group} KILL; if the reply is UNKILLABLE, the {kind} has written, and only SHUTDOWN NOSAVE ends it"
                ),
            });
        }
    }
    /// The findings and the actions as text.
    pub(crate) fn doctor_text(&self, now: Now) -> String {
        let (found, action_log) = (self.examine(now), self.diag.action_log.all());
        let mut text = String::new();
        if found.is_empty() {
            text.push_str("Nothing is wrong.\n");
        }
        // Writing to a string does not fail.
        for Finding { rule, level, problem, advice } in found {
            let _ = writeln!(text, "{}: {problem}. [{rule}]\n  To do: {advice}.", level.name());
        }
        for Action { unix_s, rule, text: action } in action_log {
            let _ = writeln!(text, "done at {unix_s}: {action}. [{rule}]");
        }
        text
    }
}
