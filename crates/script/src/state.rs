//! State of the run on the current thread: its limits, and the [`Host`] that runs its commands.
//!
//! The functions of an interpreter live longer than a run, so they cannot hold what a run borrows (the shards).
//! They find it here. It is set during a run, on the run's thread.

use crate::errors::Thrown;
use scoped_tls_hkt::scoped_thread_local;
use std::cell::{Cell, RefCell};
use strand_chain::Chain;
use strand_wire::args::Argv;

/// Number of steps between two calls of [`Host::may_continue`]. A step is a Lua instruction, a character that a pattern
/// examines, or a produced byte.
pub(crate) const STEPS_PER_TICK: u32 = 10_000;
/// A reply, or all arguments together, of at most this many bytes takes little memory as Lua values.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Maximum number of nested calls from Rust functions into Lua (`gsub` with a function). 190 calls take between 0.7 and
/// 1 MiB of the thread's stack, which has 2 MiB on a worker.
const DEPTH_MAX: u32 = 90;

/// What a script can ask for. The engine implements it on the shards that a run holds.
pub trait Host {
    /// Runs a command and appends its reply to `out`, in RESP3 if `resp3`.
    fn call(&mut self, argv: &Argv, resp3: bool, out: &mut Chain) -> CallOutcome;
    /// Checks whether the script's user may run this command. `None` when the command, or its number of arguments, is
    /// wrong.
    fn is_permitted(&mut self, argv: &Argv) -> Option<bool>;
    /// Runs `redis.log`. The level is 0 (debug) to 3 (warning).
    fn log(&mut self, level: i64, text: &[u8]);
    /// Notes that the script has done about `steps` more steps, and that its interpreter has `vm_bytes` bytes. Returns
    /// false when the script must stop.
    fn may_continue(&mut self, steps: u64, vm_bytes: usize) -> bool;
}

/// Result of a command that a script calls.
#[derive(Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The command has written its reply, which may be an error.
    Replied,
    /// The command did not run. Holds the whole error text with its code.
    Refused(String),
    /// The run of the script must stop.
    Stop,
}

/// The kind of code that is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CodeKind {
    #[default]
    Script,
    Function,
}

scoped_thread_local!(static mut HOST: for<'a> &'a mut (dyn Host + 'a));

thread_local! {
    static STOPPED: Cell<bool> = const { Cell::new(false) };
    static RESP3: Cell<bool> = const { Cell::new(false) };
    static STEPS_LEFT: Cell<u32> = const { Cell::new(0) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static KIND: Cell<CodeKind> = const { Cell::new(CodeKind::Script) };
    /// Maximum number of bytes that Strand's functions may have outside the interpreter's own memory in this run.
    static BYTES_MAX: Cell<usize> = const { Cell::new(0) };
    /// True when the run has less memory than a run on a helper thread.
    static IS_MEMORY_LIMITED: Cell<bool> = const { Cell::new(false) };
    /// Memory of the interpreter at the last hook, or at the start of the run.
    static USED_BYTES: Cell<usize> = const { Cell::new(0) };
    /// Maximum nesting of tables in Strand's functions. Each level takes memory of the thread's stack.
    static LEVELS_MAX: Cell<usize> = const { Cell::new(0) };
    /// True when the interpreter has become large in this run.
    static IS_LARGE: Cell<bool> = const { Cell::new(false) };
    /// Place at which the run was stopped.
    static STOPPED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Sets `host` as the host of this thread while `work` runs. Also returns true when the run was stopped.
pub(crate) fn run<R>(
    host: &mut dyn Host,
    kind: CodeKind,
    bytes_max: usize,
    work: impl FnOnce() -> R,
) -> (R, bool) {
    STOPPED.set(false);
    RESP3.set(false);
    STEPS_LEFT.set(STEPS_PER_TICK);
    DEPTH.set(0);
    KIND.set(kind);
    BYTES_MAX.set(bytes_max);
    let done = HOST.set(host, work);
    (done, STOPPED.replace(false))
}

/// The host of the run on this thread.
///
/// # Errors
/// When there is none: a library that is being loaded again must not call it.
pub(crate) fn with_host<R>(work: impl FnOnce(&mut dyn Host) -> R) -> mlua::Result<R> {
    if !HOST.is_set() {
        return Err(Thrown::Stop.into());
    }
    Ok(HOST.with(|host| work(host)))
}

/// Says whether the next run has less memory than a run on a helper thread, and sets its maximum nesting of tables.
pub(crate) fn set_limits(is_memory_limited: bool, levels_max: usize) {
    IS_MEMORY_LIMITED.set(is_memory_limited);
    LEVELS_MAX.set(levels_max);
}
/// Checks the nesting of tables in one of Strand's functions.
///
/// # Errors
/// When it is too deep for this thread. The run must stop.
pub(crate) fn check_level(level: usize) -> mlua::Result<()> {
    if level > LEVELS_MAX.get() { Err(stop()) } else { Ok(()) }
}
/// Records the place at which the run was stopped, such as `@user_script:1`.
pub(crate) fn set_stopped_at(place: Option<String>) {
    STOPPED_AT.set(place);
}
pub(crate) fn has_stop_place() -> bool {
    STOPPED_AT.with_borrow(Option::is_some)
}
pub(crate) fn stopped_at() -> Option<String> {
    STOPPED_AT.take()
}
/// Stops a run whose interpreter has no memory, if a run on a helper thread has more. Returns whether it did.
pub(crate) fn stop_without_memory() -> bool {
    let is_limited = IS_MEMORY_LIMITED.get();
    if is_limited {
        STOPPED.set(true);
    }
    is_limited
}
/// Notes the memory of the interpreter. Returns what was noted before.
pub(crate) fn set_used_bytes(used_bytes: usize) -> usize {
    USED_BYTES.replace(used_bytes)
}

/// Memory of the interpreter as it was noted last.
pub(crate) fn used_bytes() -> usize {
    USED_BYTES.get()
}

/// Notes whether the interpreter is large. Returns what was noted before.
pub(crate) fn set_large(is_large: bool) -> bool {
    IS_LARGE.replace(is_large)
}

/// True inside [`run`].
pub(crate) fn is_running() -> bool {
    HOST.is_set()
}
/// True when the run must stop.
pub(crate) fn is_stopped() -> bool {
    STOPPED.get()
}
/// Ends the run. Everything that the script does next fails.
pub(crate) fn stop() -> mlua::Error {
    STOPPED.set(true);
    Thrown::Stop.into()
}
pub(crate) fn kind() -> CodeKind {
    KIND.get()
}
pub(crate) fn resp3() -> bool {
    RESP3.get()
}
pub(crate) fn set_resp3(resp3: bool) {
    RESP3.set(resp3);
}

/// Counts steps. Returns false when the run must stop.
pub(crate) fn count_steps(steps: u32) -> bool {
    if STOPPED.get() {
        return false;
    }
    let left = STEPS_LEFT.get();
    if steps < left {
        STEPS_LEFT.set(left - steps);
        return true;
    }
    STEPS_LEFT.set(STEPS_PER_TICK);
    let done = u64::from(STEPS_PER_TICK - left.min(STEPS_PER_TICK)) + u64::from(steps);
    let may_continue = HOST.is_set() && HOST.with(|host| host.may_continue(done, USED_BYTES.get()));
    if !may_continue {
        STOPPED.set(true);
    }
    may_continue
}

/// Counts steps, or produced bytes.
///
/// # Errors
/// When the run must stop.
pub(crate) fn charge(steps: usize) -> mlua::Result<()> {
    if count_steps(steps.min(u32::MAX as usize) as u32) { Ok(()) } else { Err(stop()) }
}

/// Checks the size of a buffer outside the interpreter that is about to have `bytes` bytes.
///
/// # Errors
/// When the buffer would be too large.
pub(crate) fn check_bytes(bytes: usize) -> mlua::Result<()> {
    if bytes > BYTES_MAX.get() {
        return Err(Thrown::Text(b"not enough memory".to_vec()).into());
    }
    Ok(())
}

/// Calls from Rust into Lua, and counts the nesting of such calls.
///
/// # Errors
/// When the nesting is too deep.
pub(crate) fn call_nested<R>(lua: &mlua::Lua, call: impl FnOnce() -> mlua::Result<R>) -> mlua::Result<R> {
    let depth = DEPTH.get();
    if depth == DEPTH_MAX {
        return Err(crate::errors::error(lua, "C stack overflow"));
    }
    DEPTH.set(depth + 1);
    let done = call();
    DEPTH.set(depth);
    done
}
