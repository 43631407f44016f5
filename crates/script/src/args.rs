//! [`Args`]: the arguments of one of Strand's functions, read as `lauxlib.c` reads them, with its error texts.

use crate::errors;
use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

/// Maximum number of arguments and results of a function together. Lua has room for 8,000 (`LUAI_MAXCSTACK`), and mlua
/// needs some of that room.
const STACK_MAX: usize = 7950;

/// The arguments of a call from Lua to one of Strand's functions.
pub(crate) struct Args<'l> {
    pub(crate) lua: &'l Lua,
    values: MultiValue,
    /// How many levels up the script is, whose position an error has.
    caller_level: usize,
}

impl<'l> Args<'l> {
    pub(crate) fn new(lua: &'l Lua, values: MultiValue) -> Args<'l> {
        Args { lua, values, caller_level: 1 }
    }
    /// The arguments of a function that a function of the prelude calls for the script.
    pub(crate) fn of_wrapper(lua: &'l Lua, values: MultiValue) -> Args<'l> {
        Args { lua, values, caller_level: 2 }
    }
    /// Number of arguments in the call.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
    /// Returns argument `n`. The first argument has number 1.
    pub(crate) fn get(&self, n: usize) -> Option<&Value> {
        self.values.get(n - 1)
    }
    /// True when argument `n` is missing or nil.
    pub(crate) fn is_none(&self, n: usize) -> bool {
        self.get(n).is_none_or(Value::is_nil)
    }
    pub(crate) fn into_values(self) -> MultiValue {
        self.values
    }
    /// Argument `n` as a string. A number counts as its text.
    pub(crate) fn string(&self, n: usize) -> Result<LuaString> {
        match self.get(n) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(number @ (Value::Integer(_) | Value::Number(_))) => {
                let text = self.lua.coerce_string(number.clone())?;
                text.ok_or_else(|| self.wrong_type(n, "string"))
            }
            _ => Err(self.wrong_type(n, "string")),
        }
    }
    /// Argument `n` as a number. A string that spells a number counts.
    pub(crate) fn number(&self, n: usize) -> Result<f64> {
        let number = match self.get(n) {
            Some(text @ Value::String(_)) => self.lua.coerce_number(text.clone())?,
            value => value.and_then(number_of),
        };
        number.ok_or_else(|| self.wrong_type(n, "number"))
    }
    /// Argument `n` as an integer, truncated towards zero.
    pub(crate) fn int(&self, n: usize) -> Result<i64> {
        Ok(self.number(n)? as i64)
    }
    pub(crate) fn int_or(&self, n: usize, default: i64) -> Result<i64> {
        if self.is_none(n) { Ok(default) } else { self.int(n) }
    }
    pub(crate) fn table(&self, n: usize) -> Result<Table> {
        match self.get(n) {
            Some(Value::Table(table)) => Ok(table.clone()),
            _ => Err(self.wrong_type(n, "table")),
        }
    }
    /// Checks that Lua's stack has room for `values` arguments and results.
    ///
    /// # Errors
    /// When it has not. The text is that of `luaL_checkstack`.
    pub(crate) fn check_stack(&self, values: usize, why: &str) -> Result<()> {
        if values > STACK_MAX {
            return Err(self.error(format!("stack overflow ({why})")));
        }
        Ok(())
    }
    /// The error for a bad argument `n`.
    pub(crate) fn bad(&self, n: usize, why: &str) -> mlua::Error {
        errors::bad_argument(self.lua, n, why)
    }
    /// An error whose text starts with the caller's position.
    pub(crate) fn error(&self, text: impl AsRef<[u8]>) -> mlua::Error {
        errors::error_at(self.lua, self.caller_level, text)
    }
    pub(crate) fn wrong_type(&self, n: usize, expected: &str) -> mlua::Error {
        let got = self.get(n).map_or("no value", type_name);
        self.bad(n, &format!("{expected} expected, got {got}"))
    }
}

/// The number in a value. `None` when the value is not a number.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// Lua's name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}
