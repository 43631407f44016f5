//! [`Runner`]: calls a script, with keys and arguments as tables, and takes its result.

use crate::plain::{Plain, Short};
use crate::stack::{closure, plain, push_text};
use mlua::ffi::{self, lua_State, lua_upvalueindex};
use mlua::{Function, LightUserData, Lua, Table, Value};
use std::ffi::c_int;

/// Upvalue: the error handler.
const HANDLER: c_int = lua_upvalueindex(1);
/// Upvalues: the table of globals, and the names `KEYS` and `ARGV`.
const GLOBALS: c_int = lua_upvalueindex(2);
const NAMES: [c_int; 2] = [lua_upvalueindex(3), lua_upvalueindex(4)];
/// Stack indices of [`call`]: the script's function, the pointer to the [`Job`], and the error handler.
const FUNCTION: c_int = 1;
const JOB: c_int = 2;
const HANDLER_AT: c_int = 3;

/// How a script gets its keys and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// As the globals KEYS and ARGV. After the call both globals are false.
    Globals,
    /// As two arguments.
    Arguments,
}

/// How a call ended.
#[derive(Debug, PartialEq)]
pub enum Ended<'p> {
    /// The function returned a plain value.
    Plain(Plain<'p>),
    /// The function returned another value.
    Value(Value),
    /// The function raised an error. The value is the result of the error handler.
    Error(Value),
}

/// Calls functions of one interpreter.
#[derive(Debug)]
pub struct Runner {
    with_globals: Function,
    with_arguments: Function,
}

/// Input and output of [`call`], which [`Runner::run`] passes by pointer.
struct Job<'j> {
    /// Keys and arguments.
    lists: [&'j [&'j [u8]]; 2],
    /// The result, if it is plain. Its text is in `text`.
    result: Option<Plain<'static>>,
    text: Short,
}

impl Runner {
    /// A runner that sets KEYS and ARGV in `globals`. `handler` gets each error in the frame that raised it.
    ///
    /// # Errors
    /// Fails if Lua has no memory for the functions.
    pub fn new(lua: &Lua, globals: &Table, handler: &Function) -> mlua::Result<Runner> {
        let names = [lua.create_string("KEYS")?, lua.create_string("ARGV")?];
        for name in &names {
            globals.raw_set(name, false)?;
        }
        let [keys, args] = names.map(Value::String);
        let handler = Value::Function(handler.clone());
        let upvalues = [handler.clone(), Value::Table(globals.clone()), keys, args];
        Ok(Runner {
            with_globals: closure(lua, call::<true>, upvalues)?,
            with_arguments: closure(lua, call::<false>, [handler])?,
        })
    }
    /// Calls `function`, and `take` with its result.
    ///
    /// # Errors
    /// Fails if Lua has no memory for the tables of keys and arguments.
    pub fn run<R>(
        &self,
        function: &Function,
        passed: Passed,
        keys: &[&[u8]],
        args: &[&[u8]],
        take: impl FnOnce(Ended<'_>) -> R,
    ) -> mlua::Result<R> {
        let mut job = Job { lists: [keys, args], result: None, text: Short::new() };
        let runner = match passed {
            Passed::Globals => &self.with_globals,
            Passed::Arguments => &self.with_arguments,
        };
        let at = LightUserData((&raw mut job).cast());
        let (fine, value) = runner.call::<(bool, Value)>((function, at))?;
        Ok(take(match (fine, job.result) {
            (true, Some(Plain::Text(_))) => Ended::Plain(Plain::Text(job.text.as_bytes())),
            (true, Some(plain)) => Ended::Plain(plain),
            (true, None) => Ended::Value(value),
            (false, _) => Ended::Error(value),
        }))
    }
}

/// The C function. It has two arguments, the function and a pointer to the [`Job`], and `LUA_MINSTACK` (20) free
/// slots. Its frame has only numbers and pointers, so Lua may raise errors. Returns whether the function raised no
/// error, and a value that is not plain.
unsafe extern "C-unwind" fn call<const IN_GLOBALS: bool>(state: *mut lua_State) -> c_int {
    // SAFETY: the second argument is the pointer that `Runner::run` passes. Scripts cannot call this function.
    let job = unsafe { ffi::lua_touserdata(state, JOB) }.cast::<Job<'_>>();
    // SAFETY: the job is in the frame of `Runner::run`, which waits for this function and does not touch the job.
    let lists = unsafe { (*job).lists };
    // SAFETY: this takes one of the free slots (this function takes seven at most), and the handler is an upvalue.
    unsafe { ffi::lua_pushvalue(state, HANDLER) };
    // SAFETY: the function is the first argument.
    unsafe { ffi::lua_pushvalue(state, FUNCTION) };
    for list in lists {
        // SAFETY: `push_list` takes two free slots, and the frame has no value with a destructor.
        unsafe { push_list(state, list) };
    }
    let mut arguments = 2;
    if IN_GLOBALS {
        arguments = 0;
        // ARGV was pushed last, so it is on top of the stack.
        for name in NAMES.into_iter().rev() {
            // SAFETY: the name is an upvalue of this closure.
            unsafe { ffi::lua_pushvalue(state, name) };
            // SAFETY: the name moves below the table.
            unsafe { ffi::lua_insert(state, -2) };
            // SAFETY: the globals are an upvalue of this closure. This call removes the name and the table.
            unsafe { ffi::lua_rawset(state, GLOBALS) };
        }
    }
    // SAFETY: the function is on the stack below its arguments, and index `HANDLER_AT` is the handler.
    let status = unsafe { ffi::lua_pcall(state, arguments, 1, HANDLER_AT) };
    if IN_GLOBALS {
        for name in NAMES {
            // SAFETY: the name is an upvalue of this closure.
            unsafe { ffi::lua_pushvalue(state, name) };
            // SAFETY: this takes one of the free slots.
            unsafe { ffi::lua_pushboolean(state, 0) };
            // SAFETY: this call removes the name and the value. The entry exists, so no memory is needed.
            unsafe { ffi::lua_rawset(state, GLOBALS) };
        }
    }
    let fine = status == ffi::LUA_OK;
    // SAFETY: the top of the stack is the result or the error. `keep` copies it before the stack changes.
    let result = unsafe { plain(state, -1) }.filter(|_| fine);
    // SAFETY: the pointer is valid, because `Runner::run` waits, and no other reference to the job exists now.
    let is_kept = result.is_some_and(|value| unsafe { keep(job, value) });
    // SAFETY: this takes one of the free slots.
    unsafe { ffi::lua_pushboolean(state, c_int::from(fine)) };
    if is_kept {
        return 1;
    }
    // SAFETY: the boolean on top moves below the value of the call.
    unsafe { ffi::lua_insert(state, -2) };
    2
}

/// Stores a plain value in the job. Returns false when its text is too long for [`Short`].
///
/// # Safety
/// `job` must point to a job that nothing else refers to.
unsafe fn keep(job: *mut Job<'_>, value: Plain<'_>) -> bool {
    // SAFETY: the caller guarantees that this is the only reference.
    let job = unsafe { &mut *job };
    let (value, is_kept) = match value {
        Plain::Text(text) => (Plain::Text(&[]), job.text.set(text)),
        Plain::Nil => (Plain::Nil, true),
        Plain::Bool(yes) => (Plain::Bool(yes), true),
        Plain::Number(number) => (Plain::Number(number), true),
    };
    job.result = is_kept.then_some(value);
    is_kept
}

/// Pushes a table of texts. Raises an error of Lua when memory is missing.
///
/// # Safety
/// `state` must be the state of the running C function with two free slots. No frame above Lua's last protected call
/// may have a value with a destructor.
unsafe fn push_list(state: *mut lua_State, list: &[&[u8]]) {
    let len = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
    // SAFETY: the caller guarantees the contract above.
    unsafe { ffi::lua_createtable(state, len, 0) };
    for (n, text) in (1..=len).zip(list) {
        // SAFETY: the caller guarantees the contract above.
        unsafe { push_text(state, text) };
        // SAFETY: the table is below the text, which this call removes from the stack.
        unsafe { ffi::lua_rawseti_(state, -2, n) };
    }
}
