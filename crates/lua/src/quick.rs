//! [`quick`]: a function for Lua that answers plain calls in place.

use crate::plain::Short;
use crate::stack::{Values, closure, push_text};
use mlua::ffi::{self, lua_State, lua_upvalueindex};
use mlua::{Function, Lua, MultiValue, Value};
use std::any::Any;
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The function of mlua that finishes what is not plain.
const SLOW: c_int = lua_upvalueindex(1);
/// The name of a status in its table.
const OK: c_int = lua_upvalueindex(2);

thread_local! {
    /// A panic on its way past Lua's frames to the slow function.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// What a quick function answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// Lua's `nil`.
    Nil,
    /// Lua's `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// The text in the buffer, as a string.
    Text,
    /// The text in the buffer, in the table `{ok = TEXT}`.
    Status,
    /// The slow function does the whole call. It gets the arguments.
    Slow,
    /// The slow function finishes the call. It gets no arguments.
    Finish,
}

/// The quick part of a function.
pub trait Quick {
    /// Answers a call. `text` is the buffer for [`Answer::Text`] and [`Answer::Status`]. A panic goes on in the slow
    /// function.
    fn answer(values: &Values<'_>, text: &mut Short) -> Answer;
}

/// Makes a function for Lua. It asks `Q`, and calls `slow` where `Q` says so. An error of `slow` is raised at the level
/// of the quick function, as if there were no slow one.
///
/// # Errors
/// When memory is missing.
pub fn quick<Q: Quick>(
    lua: &Lua,
    slow: impl Fn(&Lua, MultiValue) -> mlua::Result<Value> + 'static,
) -> mlua::Result<Function> {
    let slow = lua.create_function(move |lua, values| {
        if let Some(panic) = PANIC.take() {
            resume_unwind(panic);
        }
        Ok(match slow(lua, values) {
            Ok(value) => (true, value),
            Err(error) => (false, Value::Error(Box::new(error))),
        })
    })?;
    let ok = lua.create_string("ok")?;
    closure(lua, call::<Q>, [Value::Function(slow), Value::String(ok)])
}

/// Asks `Q`. In a function of its own, so that nothing with a destructor is left in the frame of [`call`].
#[inline]
fn ask<Q: Quick>(values: &Values<'_>, text: &mut Short) -> Answer {
    catch_unwind(AssertUnwindSafe(|| Q::answer(values, text))).unwrap_or_else(|panic| {
        PANIC.set(Some(panic));
        Answer::Finish
    })
}

/// The C function. When Lua calls a C function, the stack has the arguments and `LUA_MINSTACK` (20) free slots.
unsafe extern "C-unwind" fn call<Q: Quick>(state: *mut lua_State) -> c_int {
    let mut text = Short::new();
    // SAFETY: Lua called this function with its state, and the arguments stay where they are until it returns.
    let len = unsafe { ffi::lua_gettop(state) };
    // SAFETY: as above, and `values` ends before the stack changes.
    let answer = ask::<Q>(&unsafe { Values::new(state, len) }, &mut text);
    // From here on Lua may raise errors. This frame has `text`, `answer` and numbers, none with a destructor.
    match answer {
        // SAFETY: one slot of the free ones.
        Answer::Nil => unsafe { ffi::lua_pushnil(state) },
        // SAFETY: one slot of the free ones.
        Answer::Bool(yes) => unsafe { ffi::lua_pushboolean(state, c_int::from(yes)) },
        // SAFETY: one slot of the free ones.
        Answer::Number(number) => unsafe { ffi::lua_pushnumber(state, number) },
        // SAFETY: one slot of the free ones, and no destructor is in the frame.
        Answer::Text => unsafe { push_text(state, text.as_bytes()) },
        Answer::Status => {
            // SAFETY: three slots of the free ones, and no destructor is in the frame.
            unsafe { ffi::lua_createtable(state, 0, 1) };
            // SAFETY: `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, OK) };
            // SAFETY: as for the table.
            unsafe { push_text(state, text.as_bytes()) };
            // SAFETY: the table is below the two values, which this takes.
            unsafe { ffi::lua_rawset(state, -3) };
        }
        Answer::Slow => {
            // SAFETY: one slot of the free ones, and `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, SLOW) };
            // SAFETY: the function just pushed moves below the arguments.
            unsafe { ffi::lua_insert(state, 1) };
            // SAFETY: as described at `finish`, with the arguments above the function.
            unsafe { finish(state, len) };
        }
        Answer::Finish => {
            // SAFETY: one slot of the free ones, and `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, SLOW) };
            // SAFETY: as described at `finish`.
            unsafe { finish(state, 0) };
        }
    }
    1
}

/// Calls the slow function, which is below its `len` arguments, and leaves its value on the stack, or raises its error.
///
/// # Safety
/// `state` must be the state of the running C function, and its stack must be as described. No frame above Lua's last
/// protected call may have a destructor.
unsafe fn finish(state: *mut lua_State, len: c_int) {
    // SAFETY: the caller's promise. A call makes its own room on the stack. Its two results replace at least the
    // function, and a slot is free for the second.
    unsafe { ffi::lua_call(state, len, 2) };
    // SAFETY: the first of the two results.
    if unsafe { ffi::lua_toboolean(state, -2) } == 0 {
        // SAFETY: the error is the last value. It is raised here, so the caller's line is one level up.
        unsafe { ffi::lua_error(state) };
    }
}
