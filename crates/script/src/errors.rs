//! [`Thrown`]: the errors that Strand's functions raise in a script, and their form for the script.
//!
//! A Rust function can raise only an error object, which the script must not see. The sandbox's `pcall`, `xpcall`
//! and `coroutine.resume` turn the object into the string or the table that redis-server raises.

use crate::state;
use mlua::{Error, Function, Lua, MultiValue, Table, Value};
use std::fmt;

/// redis-server's name of the field that marks an error as already in the statistics.
const COUNTED: &str = "ignore_error_stats_update";

/// An error on its way through Lua, from a Rust function to the script.
#[derive(Clone, Debug)]
pub(crate) enum Thrown {
    /// A plain text, which starts with the error's position.
    Text(Vec<u8>),
    /// The table `{err = TEXT}`. `counted`: the error is already in the statistics.
    Reply { text: Vec<u8>, counted: bool },
    /// A value that a callback of the script raised. It is in the registry at [`RAISED`] until the script sees it.
    Raised,
    /// The run is over. No script may catch this error.
    Stop,
}

/// The value of [`Thrown::Raised`] in the registry. There is at most one, because nothing of the script runs between the
/// error and the place that catches the error.
const RAISED: &str = "strand.raised";
/// Lua's own error when it has no memory.
const NO_MEMORY: &[u8] = b"not enough memory";
/// Lua's own `pcall` in the registry.
const PCALL: &str = "strand.pcall";

/// Keeps Lua's own `pcall` for [`call`].
pub(crate) fn keep_pcall(lua: &Lua, pcall: Function) -> mlua::Result<()> {
    lua.set_named_registry_value(PCALL, pcall)
}

/// Calls a function of the script. Returns its first result, or the value that it raised.
///
/// # Errors
/// An error of one of Strand's functions, and too deep nesting.
pub(crate) fn call(
    lua: &Lua,
    function: &Function,
    mut values: MultiValue,
) -> mlua::Result<std::result::Result<Value, Value>> {
    let pcall: Function = lua.named_registry_value(PCALL)?;
    values.push_front(Value::Function(function.clone()));
    match state::call_nested(lua, || pcall.call::<(bool, Value)>(values))? {
        (true, value) => Ok(Ok(value)),
        (false, Value::Error(error)) => Err(*error),
        (false, raised) => Ok(Err(raised)),
    }
}

/// True when a run ended with Lua's own error about memory.
pub(crate) fn ended_without_memory(outcome: &mlua::Result<(bool, Value)>) -> bool {
    match outcome {
        Ok((true, _)) => false,
        Ok((false, raised)) => is_no_memory(raised),
        Err(error) => is_memory_error(error),
    }
}

/// True for Lua's own error about memory.
pub(crate) fn is_no_memory(raised: &Value) -> bool {
    matches!(raised, Value::String(text) if text.as_bytes() == NO_MEMORY)
}

/// True for an error of mlua about memory.
pub(crate) fn is_memory_error(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_memory_error(cause),
        _ => false,
    }
}

/// What follows an error of Lua about memory, before the script sees the error.
///
/// # Errors
/// When the run may have more memory on a helper thread. The run stops.
pub(crate) fn out_of_memory(lua: &Lua) -> mlua::Result<()> {
    if !state::stop_without_memory() {
        return Ok(());
    }
    // The error needs memory, too. The limit is set again for the next run.
    lua.set_memory_limit(crate::vm::VM_BYTES_MAX)?;
    Err(state::stop())
}

/// The error that raises `value` in the script.
///
/// # Errors
/// When the interpreter has no memory.
pub(crate) fn raise(lua: &Lua, value: Value) -> mlua::Result<Error> {
    lua.set_named_registry_value(RAISED, value)?;
    Ok(Thrown::Raised.into())
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thrown::Text(text) | Thrown::Reply { text, .. } => f.write_str(&String::from_utf8_lossy(text)),
            Thrown::Raised => f.write_str("a callback raised an error"),
            Thrown::Stop => f.write_str("the script was stopped"),
        }
    }
}

impl std::error::Error for Thrown {}

impl From<Thrown> for Error {
    fn from(thrown: Thrown) -> Error {
        Error::external(thrown)
    }
}

/// An error that starts with the position of the caller, as from `luaL_error`.
pub(crate) fn error(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    error_at(lua, 1, text)
}

/// An error that starts with the position of the function `level` levels up.
pub(crate) fn error_at(lua: &Lua, level: usize, text: impl AsRef<[u8]>) -> Error {
    Thrown::Text([caller_position(lua, level).as_bytes(), text.as_ref()].concat()).into()
}

/// An error for argument `n`, as from `luaL_argerror`. Its text names the function as the caller does, and starts
/// with the caller's position.
pub(crate) fn bad_argument(lua: &Lua, n: usize, why: &str) -> Error {
    let names = lua.inspect_stack(0, |debug| {
        let names = debug.names();
        (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
    });
    let (name, is_method) = names.unwrap_or_default();
    let name = name.unwrap_or_else(|| "?".into());
    if is_method && n == 1 {
        return error(lua, format!("calling '{name}' on bad self ({why})"));
    }
    let n = if is_method { n - 1 } else { n };
    error(lua, format!("bad argument #{n} to '{name}' ({why})"))
}

/// A table `{err = "ERR TEXT"}`, the form of errors of the `redis` functions.
pub(crate) fn reply(text: &str) -> Error {
    Thrown::Reply { text: format!("ERR {text}").into_bytes(), counted: false }.into()
}

/// The position `user_script:1: ` of the function `level` levels up. Empty for a function that is not written in Lua.
pub(crate) fn caller_position(lua: &Lua, level: usize) -> String {
    let found = lua.inspect_stack(level, |debug| {
        let source = debug.source();
        debug.current_line().map(|line| format!("{}:{line}: ", source.short_src.unwrap_or_default()))
    });
    found.flatten().unwrap_or_default()
}

/// The position of the function `level` levels up, as three values: whether it is a C function, its source, its line.
/// For example: false, `@user_script`, 1.
pub(crate) fn source_and_line(lua: &Lua, level: usize) -> Option<(bool, String, i64)> {
    lua.inspect_stack(level, |debug| {
        let source = debug.source();
        let line = debug.current_line().map_or(-1, |line| line as i64);
        (source.what == "C", source.source.unwrap_or_default().into_owned(), line)
    })
}

/// Converts an error to the form that the script may see.
///
/// # Errors
/// The error itself when the run is over.
pub(crate) fn visible(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    match error.downcast_ref::<Thrown>() {
        Some(Thrown::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Thrown::Reply { text, counted }) => Ok(Value::Table(table(lua, text, *counted)?)),
        Some(Thrown::Raised) => {
            let raised = lua.named_registry_value(RAISED)?;
            lua.unset_named_registry_value(RAISED)?;
            Ok(raised)
        }
        Some(Thrown::Stop) => Err(Thrown::Stop.into()),
        None if is_memory_error(error) => {
            out_of_memory(lua)?;
            Ok(Value::String(lua.create_string(NO_MEMORY)?))
        }
        None => Ok(Value::String(lua.create_string(message_of(error))?)),
    }
}

/// True for the table of an error that is already in the statistics.
pub(crate) fn is_counted(value: &Value) -> bool {
    let Value::Table(table) = value else { return false };
    let is_error = || table.raw_get("err").is_ok_and(|text: Value| matches!(text, Value::String(_)));
    table.raw_get(COUNTED).is_ok_and(|counted: Option<bool>| counted == Some(true)) && is_error()
}

/// Creates the table `{err = TEXT}`.
pub(crate) fn table(lua: &Lua, text: &[u8], counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if counted {
        table.raw_set(COUNTED, true)?;
    }
    Ok(table)
}

/// The text of an error that is not [`Thrown`], without the traceback.
fn message_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => message_of(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        Error::RuntimeError(text) => text.lines().next().unwrap_or_default().into(),
        other => other.to_string().lines().next().unwrap_or_default().into(),
    }
}
