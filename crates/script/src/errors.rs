//! [`Thrown`]: what our functions raise in a script, and what the script sees of it.
//!
//! A Rust function can raise nothing but an error object. The script must not see that: `pcall`, `xpcall` and
//! `coroutine.resume` of the sandbox turn it into the string or the table that redis-server raises.

use mlua::{Error, Lua, Table, Value};
use std::fmt;

/// An error on its way through Lua.
#[derive(Clone, Debug)]
pub(crate) enum Thrown {
    /// A plain text, its position in front.
    Text(Vec<u8>),
    /// `{err = TEXT}`; `counted`: the error statistics have it already.
    Reply { text: Vec<u8>, counted: bool },
    /// The run is over: nothing may catch this.
    Stop,
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thrown::Text(text) | Thrown::Reply { text, .. } => f.write_str(&String::from_utf8_lossy(text)),
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

/// An error with the position of the function that called ours in front, as `luaL_error` has it.
pub(crate) fn error(lua: &Lua, text: impl AsRef<[u8]>) -> Error {
    Thrown::Text([where_is(lua, 1).as_bytes(), text.as_ref()].concat()).into()
}

/// As [`error`], of argument `n`, as `luaL_argerror` has it: the function is called what its caller calls it.
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

/// A table `{err = "ERR TEXT"}`, as errors of the `redis` functions are.
pub(crate) fn reply(text: &str) -> Error {
    Thrown::Reply { text: format!("ERR {text}").into_bytes(), counted: false }.into()
}

/// `user_script:1: ` of the function `level` levels up; nothing for one that is not Lua.
pub(crate) fn where_is(lua: &Lua, level: usize) -> String {
    let found = lua.inspect_stack(level, |debug| {
        let source = debug.source();
        debug.current_line().map(|line| format!("{}:{line}: ", source.short_src.unwrap_or_default()))
    });
    found.flatten().unwrap_or_default()
}

/// The same as `(source, line)`: `@user_script`, 1.
pub(crate) fn source_and_line(lua: &Lua, level: usize) -> Option<(bool, String, i64)> {
    lua.inspect_stack(level, |debug| {
        let source = debug.source();
        let line = debug.current_line().map_or(-1, |line| line as i64);
        (source.what == "C", source.source.unwrap_or_default().into_owned(), line)
    })
}

/// What the script sees of an error value.
///
/// # Errors
/// The error again when the run is over.
pub(crate) fn visible(lua: &Lua, value: Value) -> mlua::Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    match error.downcast_ref::<Thrown>() {
        Some(Thrown::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        Some(Thrown::Reply { text, counted }) => Ok(Value::Table(table(lua, text, *counted)?)),
        Some(Thrown::Stop) => Err(Thrown::Stop.into()),
        None => Ok(Value::String(lua.create_string(plain(error))?)),
    }
}

/// `{err = TEXT}`.
pub(crate) fn table(lua: &Lua, text: &[u8], counted: bool) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    if counted {
        table.raw_set("ignore_error_stats_update", true)?;
    }
    Ok(table)
}

/// The text of an error that is none of ours, without the traceback.
fn plain(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => plain(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        Error::RuntimeError(text) => text.lines().next().unwrap_or_default().into(),
        other => other.to_string().lines().next().unwrap_or_default().into(),
    }
}
