//! The run that a thread is at: what it may still do, and the [`Host`] that runs its commands.
//!
//! Functions of an interpreter live longer than a run, so they cannot hold what a run borrows (the shards). They find it
//! here: it is set for the time of a run, on the run's thread.

use crate::errors::Thrown;
use scoped_tls_hkt::scoped_thread_local;
use std::cell::{Cell, RefCell};
use strand_chain::Chain;
use strand_wire::args::Argv;

/// Steps between two looks at the host: instructions of Lua, characters of a pattern, bytes that a function makes.
pub(crate) const STEPS_PER_TICK: u32 = 10_000;
/// A reply, or all arguments, of so many bytes take little memory as values of Lua.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// Rust functions that call Lua inside one another (`gsub` with a function): each takes stack of the thread.
const DEPTH_MAX: u32 = 16;

/// What a script can ask for. The engine implements it on the shards that a run holds.
pub trait Host {
    /// Runs a command; its reply, in RESP3 where `resp3`, is appended to `out`.
    fn call(&mut self, argv: &Argv, resp3: bool, out: &mut Chain) -> Called;
    /// Whether the script's user may run this command; `None`: there is none, or not with so many arguments.
    fn may(&mut self, argv: &Argv) -> Option<bool>;
    /// `redis.log`: level 0 (debug) to 3 (warning).
    fn log(&mut self, level: i64, text: &[u8]);
    /// The script has done about so many steps more. False: it has to stop.
    fn goes_on(&mut self, steps: u64) -> bool;
}

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Called {
    /// The reply is written; it may be an error.
    Replied,
    /// It was not run; the whole text of the error, with its code.
    Refused(String),
    /// The run has to stop.
    Stop,
}

/// What runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
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
    static KIND: Cell<Kind> = const { Cell::new(Kind::Script) };
    /// Bytes that our functions may still make in this run outside the interpreter's own memory.
    static BYTES_MAX: Cell<usize> = const { Cell::new(0) };
    /// What the interpreter may hold before the run is stopped.
    static SOFT_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
    /// How deep functions of ours may go into tables in one another: each level takes stack of the thread.
    static LEVELS_MAX: Cell<usize> = const { Cell::new(0) };
    /// Where the run was when it was stopped.
    static STOPPED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Sets `host` for the time of `work`. True: it was stopped.
pub(crate) fn run<R>(
    host: &mut dyn Host,
    kind: Kind,
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
/// When there is none: a library is being loaded again, which calls nothing.
pub(crate) fn with_host<R>(ask: impl FnOnce(&mut dyn Host) -> R) -> mlua::Result<R> {
    if !HOST.is_set() {
        return Err(Thrown::Stop.into());
    }
    Ok(HOST.with(|host| ask(host)))
}

/// Sets what the interpreter may hold in the next run, and how deep tables in one another may be.
pub(crate) fn set_limits(soft_bytes: usize, levels_max: usize) {
    SOFT_BYTES.set(soft_bytes);
    LEVELS_MAX.set(levels_max);
}
/// A function of ours is so deep in tables in one another.
///
/// # Errors
/// When that is too much for this thread: the run has to stop.
pub(crate) fn check_level(level: usize) -> mlua::Result<()> {
    if level > LEVELS_MAX.get() { Err(stop()) } else { Ok(()) }
}
/// Where the run was when it was stopped: `@user_script:1`.
pub(crate) fn set_stopped_at(place: Option<String>) {
    STOPPED_AT.set(place);
}
pub(crate) fn has_place() -> bool {
    STOPPED_AT.with_borrow(Option::is_some)
}
pub(crate) fn stopped_at() -> Option<String> {
    STOPPED_AT.take()
}
/// True when it holds no more than that.
pub(crate) fn is_within(used_bytes: usize) -> bool {
    used_bytes <= SOFT_BYTES.get()
}

/// True inside [`run`].
pub(crate) fn is_running() -> bool {
    HOST.is_set()
}
/// True when the run has been told to stop.
pub(crate) fn is_stopped() -> bool {
    STOPPED.get()
}
/// Ends the run: whatever the script does next fails.
pub(crate) fn stop() -> mlua::Error {
    STOPPED.set(true);
    Thrown::Stop.into()
}
pub(crate) fn kind() -> Kind {
    KIND.get()
}
pub(crate) fn resp3() -> bool {
    RESP3.get()
}
pub(crate) fn set_resp3(resp3: bool) {
    RESP3.set(resp3);
}

/// Counts steps. False: the run has to stop.
pub(crate) fn goes_on(steps: u32) -> bool {
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
    let goes_on = HOST.is_set() && HOST.with(|host| host.goes_on(done));
    if !goes_on {
        STOPPED.set(true);
    }
    goes_on
}

/// Counts steps, or bytes that are made.
///
/// # Errors
/// When the run has to stop.
pub(crate) fn charge(steps: usize) -> mlua::Result<()> {
    if goes_on(steps.min(u32::MAX as usize) as u32) { Ok(()) } else { Err(stop()) }
}

/// As [`charge`], of a buffer outside the interpreter that is about to be `bytes` long.
///
/// # Errors
/// When the run has to stop, or may not have so much.
pub(crate) fn check_bytes(bytes: usize) -> mlua::Result<()> {
    if bytes > BYTES_MAX.get() {
        return Err(Thrown::Text(b"not enough memory".to_vec()).into());
    }
    Ok(())
}

/// One level deeper into Lua, called from Rust.
///
/// # Errors
/// When it is too deep.
pub(crate) fn deeper<R>(lua: &mlua::Lua, call: impl FnOnce() -> mlua::Result<R>) -> mlua::Result<R> {
    let depth = DEPTH.get();
    if depth == DEPTH_MAX {
        return Err(crate::errors::error(lua, "C stack overflow"));
    }
    DEPTH.set(depth + 1);
    let done = call();
    DEPTH.set(depth);
    done
}
