//! The hook of the interpreter: it counts the work of a run, and stops a run that must stop.

use super::set_pause;
use crate::{errors, state};
use mlua::{HookTriggers, Lua, Result, VmState};
use std::cell::Cell;

/// Number of instructions between two calls of the hook in a small interpreter.
const INSTRUCTIONS_MAX: u32 = 1_000;
/// From this size on the hook comes more often. It is the memory limit of a worker, so runs on workers are hooked as
/// rarely as runs of small interpreters.
pub(crate) const FULL_PACE_BYTES: usize = 4 << 20;
/// An instruction may copy or compare strings, or walk a table, that take the interpreter's whole memory. In a large
/// interpreter, the number of instructions between two calls of the hook × the bytes is at most this number. With 1,000
/// instructions at any size, a loop with `a .. n` and a string of 10 MB held its thread for more than 25 s. With this
/// number it holds the thread for half a second, and loops over tables of 30 MB take 10 % longer.
const BYTES_PER_HOOK: usize = 8 << 30;
/// As many bytes of memory as a large interpreter has count as one step in the hook.
const LARGE_BYTES_PER_STEP: usize = 16 << 10;
/// As many bytes of memory as the interpreter has grown by count as one step in the hook.
const GROWN_BYTES_PER_STEP: usize = 8;
/// From this size on an interpreter counts as large for the collector.
pub(super) const LARGE_BYTES: usize = 1 << 20;
/// The pause of the collector in percent, from [`LARGE_BYTES`] on.
const LARGE_PAUSE_PERCENT: i32 = 200;

thread_local! {
    /// Number of instructions between two calls of the hook in this thread's run.
    static INSTRUCTIONS: Cell<u32> = const { Cell::new(INSTRUCTIONS_MAX) };
}

/// Sets the hook as a new run needs it.
pub(super) fn set(lua: &Lua) -> Result<()> {
    set_pace(lua, INSTRUCTIONS_MAX)
}

/// Sets the hook back after a run that was stopped, or that was large. It cannot fail once the hook was set.
pub(super) fn restore(lua: &Lua, stopped: bool) {
    if stopped || INSTRUCTIONS.get() != INSTRUCTIONS_MAX {
        let _ = set(lua);
    }
}

/// Sets the hook of the interpreter's current coroutine, and of coroutines that it creates.
fn set_pace(lua: &Lua, instructions: u32) -> Result<()> {
    INSTRUCTIONS.set(instructions);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(instructions), |lua, _| hook(lua))
}

/// Number of instructions between two calls of the hook, for an interpreter of this size.
fn pace(used_bytes: usize) -> u32 {
    if used_bytes <= FULL_PACE_BYTES {
        return INSTRUCTIONS_MAX;
    }
    // The number changes with the size's powers of two only, because each change takes time.
    let instructions = BYTES_PER_HOOK >> (used_bytes.ilog2() + 1);
    (instructions as u32).clamp(1, INSTRUCTIONS_MAX)
}

/// Sets the pace for an interpreter that is about to have a text of `bytes` bytes more. Without it, a long text would be
/// known only at the next call of the hook.
///
/// # Errors
/// When there is no memory for the hook.
pub(crate) fn expect_text(lua: &Lua, bytes: usize) -> Result<()> {
    if bytes < LARGE_BYTES {
        return Ok(());
    }
    let instructions = pace(lua.used_memory().saturating_add(bytes));
    if instructions < INSTRUCTIONS.get() { set_pace(lua, instructions) } else { Ok(()) }
}

/// The hook. Called during a run, and during the cleanup between two runs.
fn hook(lua: &Lua) -> Result<VmState> {
    #[cfg(test)]
    super::tests::HOOKS.set(super::tests::HOOKS.get() + 1);
    // The cleanup after a run has no host, and runs to its end.
    if !state::is_running() {
        return Ok(VmState::Continue);
    }
    let used_bytes = lua.used_memory();
    if used_bytes > LARGE_BYTES && !state::set_large(true) {
        set_pause(lua, LARGE_PAUSE_PERCENT);
        // The next cycle begins now: the last one may have allowed more than the interpreter can have.
        lua.gc_restart();
    }
    let before_bytes = state::set_used_bytes(used_bytes);
    // The hook never comes more rarely again in a run. Otherwise a script could grow and shrink, and each time have a
    // thousand instructions on long strings.
    let instructions = pace(used_bytes).min(INSTRUCTIONS.get());
    let steps = match instructions {
        INSTRUCTIONS_MAX => used_bytes.saturating_sub(before_bytes) / GROWN_BYTES_PER_STEP,
        // A loop that makes long strings grows and shrinks. Both count.
        _ => used_bytes.abs_diff(before_bytes) / GROWN_BYTES_PER_STEP + used_bytes / LARGE_BYTES_PER_STEP,
    };
    let steps = u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(instructions);
    if !state::is_stopped() && state::count_steps(steps) {
        // A coroutine that was created earlier has another pace, so set the pace at each call in a large interpreter.
        if instructions != INSTRUCTIONS_MAX {
            set_pace(lua, instructions)?;
        }
        return Ok(VmState::Continue);
    }
    if !state::has_stop_place() {
        let place = errors::source_and_line(lua, 0);
        state::set_stopped_at(place.map(|(_, source, line)| format!("{source}:{line}")));
    }
    let stop = state::stop();
    // From here on each instruction fails, so that no pcall catches the end. In a coroutine this starts when the
    // hook runs there.
    set_pace(lua, 1)?;
    Err(stop)
}
