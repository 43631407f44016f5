//! [`quick`]: a function for Lua that answers plain calls in place.

use crate::plain::Short;
use crate::stack::{Values, closure, push_text};
use mlua::ffi::{self, lua_State, lua_upvalueindex};
use mlua::{Function, Lua, MultiValue, Value};
use std::any::Any;
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Upvalue: the slow function. It handles calls whose arguments or results are not plain.
const SLOW: c_int = lua_upvalueindex(1);
/// Upvalue: the string `ok`, the field of a status reply's table.
const OK: c_int = lua_upvalueindex(2);
/// Upvalue: the guarded C function, or nil.
const ORIGINAL: c_int = lua_upvalueindex(3);

thread_local! {
    /// The panic of [`Quick::answer`], until the slow function resumes it beyond Lua's frames.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// The result of a quick function.
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
    /// The C function that [`guard`] got does the whole call.
    Original,
}

/// The quick part of a function.
pub trait Quick {
    /// Answers a call. `text` is the buffer for [`Answer::Text`] and [`Answer::Status`]. A panic is caught, and the
    /// slow function resumes it.
    fn answer(values: &Values<'_>, text: &mut Short) -> Answer;
}

/// Makes a function for Lua. The function calls `Q`, and then `slow` if `Q` returns [`Answer::Slow`] or
/// [`Answer::Finish`]. Lua reports an error of `slow` at the line that called the quick function.
///
/// # Errors
/// Fails if Lua has no memory for the function.
pub fn quick<Q: Quick>(
    lua: &Lua,
    slow: impl Fn(&Lua, MultiValue) -> mlua::Result<Value> + 'static,
) -> mlua::Result<Function> {
    build::<Q>(lua, Value::Nil, slow)
}

/// Makes a function for Lua that runs the C function `original` if `Q` returns [`Answer::Original`]. So `Q` can refuse
/// arguments with which `original` would run for too long, or would crash. `original` must have no upvalues.
///
/// # Errors
/// Fails if Lua has no memory for the function.
pub fn guard<Q: Quick>(
    lua: &Lua,
    original: Function,
    slow: impl Fn(&Lua, MultiValue) -> mlua::Result<Value> + 'static,
) -> mlua::Result<Function> {
    build::<Q>(lua, Value::Function(original), slow)
}

fn build<Q: Quick>(
    lua: &Lua,
    original: Value,
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
    closure(lua, call::<Q>, [Value::Function(slow), Value::String(ok), original])
}

/// Calls `Q` and catches a panic. This is a separate function, so that the frame of [`call`] has no value with a
/// destructor when Lua raises an error.
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
    // SAFETY: `state` is Lua's state of this call, and `values` is dropped before the stack changes.
    let answer = ask::<Q>(&unsafe { Values::new(state, len) }, &mut text);
    // From here on Lua may raise errors. This frame has `text`, `answer` and numbers, none with a destructor.
    match answer {
        // SAFETY: this takes one of the free slots.
        Answer::Nil => unsafe { ffi::lua_pushnil(state) },
        // SAFETY: this takes one of the free slots.
        Answer::Bool(yes) => unsafe { ffi::lua_pushboolean(state, c_int::from(yes)) },
        // SAFETY: this takes one of the free slots.
        Answer::Number(number) => unsafe { ffi::lua_pushnumber(state, number) },
        // SAFETY: this takes one of the free slots, and the frame has no value with a destructor.
        Answer::Text => unsafe { push_text(state, text.as_bytes()) },
        Answer::Status => {
            // SAFETY: the table and its entry take three of the free slots, and the frame has no value with a
            // destructor.
            unsafe { ffi::lua_createtable(state, 0, 1) };
            // SAFETY: `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, OK) };
            // SAFETY: the text takes one of these three slots, and the frame has no value with a destructor.
            unsafe { push_text(state, text.as_bytes()) };
            // SAFETY: the table is below the key and the value, which this call removes from the stack.
            unsafe { ffi::lua_rawset(state, -3) };
        }
        Answer::Original => {
            // SAFETY: `build` made the closure with this upvalue.
            let Some(original) = (unsafe { ffi::lua_tocfunction(state, ORIGINAL) }) else { return 0 };
            // SAFETY: the stack is as Lua left it for this call, so `original` finds its arguments as if Lua had called
            // it. The frame has no value with a destructor.
            return unsafe { original(state) };
        }
        Answer::Slow => {
            // SAFETY: this takes one of the free slots, and `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, SLOW) };
            // SAFETY: the function just pushed moves below the arguments.
            unsafe { ffi::lua_insert(state, 1) };
            // SAFETY: the slow function is below its `len` arguments, and the frame has no value with a destructor.
            unsafe { finish(state, len) };
        }
        Answer::Finish => {
            // SAFETY: this takes one of the free slots, and `quick` made the closure with this upvalue.
            unsafe { ffi::lua_pushvalue(state, SLOW) };
            // SAFETY: the slow function is on top of the stack, without arguments, and the frame has no value with a
            // destructor.
            unsafe { finish(state, 0) };
        }
    }
    1
}

/// Calls the slow function. If it succeeds, its value is on top of the stack. If it fails, raises its error.
///
/// # Safety
/// `state` must be the state of the running C function. The top of its stack must be the slow function, followed by
/// its `len` arguments. No frame above Lua's last protected call may have a value with a destructor.
unsafe fn finish(state: *mut lua_State, len: c_int) {
    // SAFETY: the caller guarantees the contract above. A call makes its own room on the stack. Its two results
    // replace the function and its arguments, and one free slot remains for the second result.
    unsafe { ffi::lua_call(state, len, 2) };
    // SAFETY: index -2 is the first of the two results.
    if unsafe { ffi::lua_toboolean(state, -2) } == 0 {
        // SAFETY: the error is on top of the stack. Lua reports it one level up, at the caller's line.
        unsafe { ffi::lua_error(state) };
    }
}
