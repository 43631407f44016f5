//! [`Runner`]: calls a script, with keys and arguments as tables, and takes its result.

use crate::plain::{Plain, Short};
use crate::stack::{closure, plain, push_text};
use mlua::ffi::{self, lua_State, lua_upvalueindex};
use mlua::{Function, LightUserData, Lua, Table, Value};
use std::ffi::c_int;

/// The error handler.
const HANDLER: c_int = lua_upvalueindex(1);
/// The table of globals, and the names of both tables there.
const GLOBALS: c_int = lua_upvalueindex(2);
const NAMES: [c_int; 2] = [lua_upvalueindex(3), lua_upvalueindex(4)];
/// Where [`call`] finds the function and its job, and where it puts the handler.
const FUNCTION: c_int = 1;
const JOB: c_int = 2;
const HANDLER_AT: c_int = 3;

/// How a script gets its keys and arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// As the globals KEYS and ARGV, for the time of the call. Otherwise these globals are false.
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
    /// The function raised an error. This is what the handler made of it.
    Error(Value),
}

/// Calls functions of one interpreter.
#[derive(Debug)]
pub struct Runner {
    with_globals: Function,
    with_arguments: Function,
}

/// What [`Runner::run`] and [`call`] tell each other.
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
    /// When memory is missing.
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
    /// When memory for the tables is missing.
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
    // SAFETY: this is one of the arguments of `Runner::run`, the only caller: scripts cannot reach this function.
    let job = unsafe { ffi::lua_touserdata(state, JOB) }.cast::<Job<'_>>();
    // SAFETY: the job is in the frame of `Runner::run`, which waits for this function and does not touch the job.
    let lists = unsafe { (*job).lists };
    // SAFETY: a slot of the free ones (as all pushes below, seven at most), and an upvalue of the closure.
    unsafe { ffi::lua_pushvalue(state, HANDLER) };
    // SAFETY: the function is the first argument.
    unsafe { ffi::lua_pushvalue(state, FUNCTION) };
    for list in lists {
        // SAFETY: `push_list` needs two slots, and the frame has no destructor.
        unsafe { push_list(state, list) };
    }
    let mut arguments = 2;
    if IN_GLOBALS {
        arguments = 0;
        // ARGV is the last of both tables.
        for name in NAMES.into_iter().rev() {
            // SAFETY: the name is an upvalue of this closure.
            unsafe { ffi::lua_pushvalue(state, name) };
            // SAFETY: the name moves below the table.
            unsafe { ffi::lua_insert(state, -2) };
            // SAFETY: the globals are an upvalue of this closure. The two values on top are taken.
            unsafe { ffi::lua_rawset(state, GLOBALS) };
        }
    }
    // SAFETY: the function is on the stack, with its arguments above it, and the handler is at its place.
    let status = unsafe { ffi::lua_pcall(state, arguments, 1, HANDLER_AT) };
    if IN_GLOBALS {
        for name in NAMES {
            // SAFETY: the name is an upvalue of this closure.
            unsafe { ffi::lua_pushvalue(state, name) };
            // SAFETY: a slot of the free ones.
            unsafe { ffi::lua_pushboolean(state, 0) };
            // SAFETY: the two values on top are taken. The entry exists, so this needs no memory.
            unsafe { ffi::lua_rawset(state, GLOBALS) };
        }
    }
    let fine = status == ffi::LUA_OK;
    // SAFETY: the last value is the result, or the error. It is copied before the stack changes.
    let result = unsafe { plain(state, -1) }.filter(|_| fine);
    // SAFETY: as above, and no other reference to the job exists at this moment.
    let is_kept = result.is_some_and(|value| unsafe { keep(job, value) });
    // SAFETY: a slot of the free ones.
    unsafe { ffi::lua_pushboolean(state, c_int::from(fine)) };
    if is_kept {
        return 1;
    }
    // SAFETY: whether the call was fine moves below its value.
    unsafe { ffi::lua_insert(state, -2) };
    2
}

/// Keeps a plain value in the job. False when its text is too long.
///
/// # Safety
/// `job` must point to a job that nothing else refers to.
unsafe fn keep(job: *mut Job<'_>, value: Plain<'_>) -> bool {
    // SAFETY: the caller's promise.
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
/// may have a destructor.
unsafe fn push_list(state: *mut lua_State, list: &[&[u8]]) {
    let len = c_int::try_from(list.len()).unwrap_or(c_int::MAX);
    // SAFETY: the caller's promise.
    unsafe { ffi::lua_createtable(state, len, 0) };
    for (n, text) in (1..=len).zip(list) {
        // SAFETY: the caller's promise.
        unsafe { push_text(state, text) };
        // SAFETY: the table is below the text, which is taken.
        unsafe { ffi::lua_rawseti_(state, -2, n) };
    }
}
