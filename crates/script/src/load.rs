//! Loads a library: runs its chunk once, which registers functions.

use crate::errors;
use crate::shebang::{BAD_NAME, ScriptFlags, is_name};
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use std::cell::RefCell;

/// Maximum number of functions of one library.
const FUNCTIONS_MAX: usize = 10_000;

/// A function registered by a library.
pub(crate) struct RegisteredFunction {
    pub(crate) name: Vec<u8>,
    pub(crate) description: Option<Vec<u8>>,
    pub(crate) flags: ScriptFlags,
}

/// The functions that a library has registered.
pub(crate) struct Registered {
    /// What is known of each function.
    pub(crate) functions: Vec<RegisteredFunction>,
    /// The functions by name. They are in a table of Lua, because an interpreter has room for only a few thousand references
    /// from Rust.
    pub(crate) by_name: Table,
}

thread_local! {
    /// The functions registered by the library that this thread is loading.
    static REGISTERED: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

/// Runs `load`. Returns the functions registered meanwhile, and the result of `load`.
///
/// # Errors
/// When the interpreter has no memory.
pub(crate) fn collect<R>(lua: &Lua, load: impl FnOnce() -> R) -> Result<(Registered, R)> {
    let by_name = lua.create_table()?;
    let nothing = || Registered { functions: Vec::new(), by_name: by_name.clone() };
    REGISTERED.set(Some(nothing()));
    let done = load();
    Ok((REGISTERED.take().unwrap_or_else(nothing), done))
}

/// Runs `redis.register_function(name, callback)` or `redis.register_function{function_name=, callback=, flags=,
/// description=}`.
pub(crate) fn register(lua: &Lua, values: MultiValue) -> Result<()> {
    let not_loading = || errors::reply("redis.register_function can only be called on FUNCTION LOAD command");
    if REGISTERED.with_borrow(Option::is_none) {
        return Err(not_loading());
    }
    let values: Vec<Value> = values.into_iter().collect();
    let (registered, function) = match &values[..] {
        [Value::Table(named)] => from_named_arguments(lua, named)?,
        [_] => {
            return Err(errors::reply(
                "calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            ));
        }
        [name, callback] => {
            let text = "first argument to redis.register_function must be a string";
            let name = text_of(lua, name).ok_or_else(|| errors::reply(text))?;
            let Value::Function(function) = callback else {
                return Err(errors::reply("second argument to redis.register_function must be a function"));
            };
            let registered = RegisteredFunction { name, description: None, flags: ScriptFlags::default() };
            (registered, function.clone())
        }
        _ => return Err(errors::reply("wrong number of arguments to redis.register_function")),
    };
    if !is_name(&registered.name) {
        return Err(errors::reply(BAD_NAME));
    }
    REGISTERED.with_borrow_mut(|all| {
        let Some(all) = all else {
            return Err(not_loading());
        };
        let name = lua.create_string(&registered.name)?;
        if all.by_name.contains_key(&name)? {
            return Err(errors::reply("Function already exists in the library"));
        }
        if all.functions.len() == FUNCTIONS_MAX {
            return Err(errors::reply("too many functions in the library"));
        }
        all.by_name.raw_set(name, function)?;
        all.functions.push(registered);
        Ok(())
    })
}

/// The text of a value that is a string or a number.
fn text_of(lua: &Lua, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            lua.coerce_string(value.clone()).ok().flatten().map(|text| text.as_bytes().to_vec())
        }
        _ => None,
    }
}

fn from_named_arguments(lua: &Lua, named: &Table) -> Result<(RegisteredFunction, Function)> {
    let (mut name, mut function, mut description) = (None, None, None);
    let mut flags = ScriptFlags::default();
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = match &key {
            Value::String(key) => key.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        match &key[..] {
            b"function_name" => {
                let text = "function_name argument given to redis.register_function must be a string";
                name = Some(text_of(lua, &value).ok_or_else(|| errors::reply(text))?);
            }
            b"description" => {
                let text = "description argument given to redis.register_function must be a string";
                description = Some(text_of(lua, &value).ok_or_else(|| errors::reply(text))?);
            }
            b"callback" => {
                let Value::Function(callback) = value else {
                    let text = "callback argument given to redis.register_function must be a function";
                    return Err(errors::reply(text));
                };
                function = Some(callback);
            }
            b"flags" => {
                let Value::Table(names) = value else {
                    let text = "flags argument to redis.register_function must be a table representing function flags";
                    return Err(errors::reply(text));
                };
                flags = flags_of(&names)?;
            }
            _ => return Err(errors::reply("unknown argument given to redis.register_function")),
        }
    }
    let Some(name) = name else {
        return Err(errors::reply("redis.register_function must get a function name argument"));
    };
    let Some(function) = function else {
        return Err(errors::reply("redis.register_function must get a callback argument"));
    };
    Ok((RegisteredFunction { name, description, flags }, function))
}

fn flags_of(names: &Table) -> Result<ScriptFlags> {
    let mut flags = ScriptFlags::default();
    for i in 1.. {
        match names.raw_get::<Value>(i)? {
            Value::Nil => break,
            // As in redis-server, the case does not matter here, unlike in the line `#!lua flags=`.
            Value::String(name) if flags.set(&name.as_bytes().to_ascii_lowercase()) => {}
            _ => return Err(errors::reply("unknown flag given")),
        }
    }
    Ok(flags)
}
