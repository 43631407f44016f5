//! The table `redis`: `call`, `pcall`, `error_reply`, `log` and so on.

use crate::args::Args;
use crate::cjson::format_general;
use crate::errors::{self, Thrown};
use crate::state::{self, CallOutcome};
use crate::{convert, load};
use mlua::{Lua, MultiValue, Result, Table, Value};
use sha1::{Digest, Sha1};
use std::cell::{Cell, RefCell};
use strand_chain::Chain;
use strand_lua::{Answer, Plain, Quick, Short, Values, quick};
use strand_wire::args::Argv;
use strand_wire::digits::Digits;

/// The version of redis-server that Strand behaves like.
const VERSION: &str = "7.0.15";
const VERSION_NUMBER: i64 = 0x0007_000f;

/// Number of digits of a number that a command gets.
const DIGITS: usize = 17;

/// Functions that only EVAL has. The functions of a library do not have them.
pub(crate) const ONLY_IN_SCRIPTS: [&str; 3] = ["breakpoint", "debug", "replicate_commands"];

/// Creates the table `redis` for scripts and functions (`call`), or for a library that is being loaded (`load`).
pub(crate) fn library(lua: &Lua, purpose: &str) -> Result<Table> {
    let api = lua.create_table()?;
    for (name, number) in [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)] {
        api.set(name, number)?;
    }
    api.set("REDIS_VERSION", VERSION)?;
    api.set("REDIS_VERSION_NUM", VERSION_NUMBER)?;
    api.set("log", lua.create_function(log)?)?;
    if purpose == "load" {
        api.set("register_function", lua.create_function(load::register)?)?;
        return Ok(api);
    }
    for (name, number) in
        [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)]
    {
        api.set(name, number)?;
    }
    api.set("call", quick::<Call>(lua, |lua, values| call(lua, values, true))?)?;
    api.set("pcall", quick::<Call>(lua, |lua, values| call(lua, values, false))?)?;
    api.set("acl_check_cmd", lua.create_function(acl_check_cmd)?)?;
    api.set("error_reply", lua.create_function(|lua, values| single_reply(lua, values, "err"))?)?;
    api.set("status_reply", lua.create_function(|lua, values| single_reply(lua, values, "ok"))?)?;
    api.set("sha1hex", lua.create_function(sha1hex)?)?;
    api.set("setresp", lua.create_function(set_resp)?)?;
    api.set("set_repl", lua.create_function(set_repl)?)?;
    api.set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    // A breakpoint does nothing, because there is no debugger.
    api.set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    api.set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok(api)
}

/// A command that has run: its result and its reply.
type CommandResult = Result<(CallOutcome, Chain)>;

thread_local! {
    /// A command that [`Call`] has run, and whose reply [`call`] must convert.
    static COMMAND_RESULT: Cell<Option<CommandResult>> = const { Cell::new(None) };
    /// Buffers of [`Call`]: the arguments and the reply.
    static BUFFERS: RefCell<(Argv, Chain)> = RefCell::default();
}

/// The quick part of `redis.call` and `redis.pcall`: runs a command whose arguments are texts and numbers, and converts
/// a reply that is short and no table. [`call`] does the rest.
struct Call;

impl Quick for Call {
    fn answer(values: &Values<'_>, text: &mut Short) -> Answer {
        COMMAND_RESULT.set(None);
        BUFFERS.with_borrow_mut(|(argv, out)| {
            argv.clear();
            out.rewind();
            for value in values.iter() {
                match value {
                    Some(Plain::Text(text)) => argv.push(text),
                    Some(Plain::Number(number)) => push_number(argv, number),
                    _ => {
                        argv.clear();
                        return Answer::Slow;
                    }
                }
            }
            if argv.is_empty() {
                return Answer::Slow;
            }
            let done = run_on_host(argv, out);
            // The buffers of a thread must not keep a large argument.
            argv.clear();
            if matches!(done, Ok(CallOutcome::Replied))
                && let Some(answer) = convert::plain_reply(out, text)
                && state::count_steps(out.len() as u32)
            {
                return answer;
            }
            COMMAND_RESULT.set(Some(done.map(|called| (called, std::mem::take(out)))));
            Answer::Finish
        })
    }
}

/// Runs a command on the host.
///
/// # Errors
/// When the run must stop.
fn run_on_host(argv: &Argv, out: &mut Chain) -> Result<CallOutcome> {
    // Charge a command as much as some instructions.
    state::charge(32)?;
    let resp3 = state::resp3();
    state::with_host(|host| host.call(argv, resp3, out))
}

/// Appends a number as C's `%.17g` prints it.
fn push_number(argv: &mut Argv, number: f64) {
    match number.is_nan() {
        true => argv.push(format_general(number, DIGITS).as_bytes()),
        false => argv.push(Digits::double(number).as_slice()),
    }
}

fn argv(values: &MultiValue) -> Result<Argv> {
    if values.is_empty() {
        return Err(errors::reply("Please specify at least one argument for this redis lib call"));
    }
    let mut argv = Argv::new();
    for value in values {
        match value {
            Value::String(text) => argv.push(&text.as_bytes()),
            Value::Integer(number) => push_number(&mut argv, *number as f64),
            Value::Number(number) => push_number(&mut argv, *number),
            _ => return Err(errors::reply("Lua redis lib command arguments must be strings or integers")),
        }
    }
    Ok(argv)
}

/// The part of `redis.call` and `redis.pcall` that makes tables and errors. `values` is empty when [`Call`] has run the
/// command.
fn call(lua: &Lua, values: MultiValue, raises: bool) -> Result<Value> {
    let raise_or_return = |error: mlua::Error| match (raises, error.downcast_ref::<Thrown>()) {
        (false, Some(Thrown::Reply { text, counted })) => {
            Ok(Value::Table(errors::table(lua, text, *counted)?))
        }
        _ => Err(error),
    };
    let (called, out) = match COMMAND_RESULT.take() {
        Some(result) => result?,
        None => {
            let mut out = Chain::new();
            match argv(&values) {
                Ok(argv) => (run_on_host(&argv, &mut out)?, out),
                Err(error) => return raise_or_return(error),
            }
        }
    };
    match called {
        CallOutcome::Replied => {}
        CallOutcome::Refused(text) => {
            return raise_or_return(Thrown::Reply { text: text.into_bytes(), counted: true }.into());
        }
        CallOutcome::Stop => return Err(state::stop()),
    }
    match convert::reply_value(lua, &out)? {
        Ok(value) => Ok(value),
        Err(text) => raise_or_return(Thrown::Reply { text, counted: true }.into()),
    }
}

fn acl_check_cmd(_: &Lua, values: MultiValue) -> Result<bool> {
    let argv = argv(&values)?;
    let is_permitted = state::with_host(|host| host.is_permitted(&argv))?;
    is_permitted.ok_or_else(|| errors::reply("Invalid command passed to redis.acl_check_cmd()"))
}

/// Creates the table `{err = TEXT}` or `{ok = TEXT}`.
fn single_reply(lua: &Lua, values: MultiValue, field: &str) -> Result<Table> {
    let text = match (values.len(), values.front()) {
        (1, Some(Value::String(text))) => text.as_bytes().to_vec(),
        _ => return errors::table(lua, b"ERR wrong number or type of arguments", false),
    };
    if field == "err" {
        let text = convert::until_zero(&text);
        let text = text.strip_prefix(b"-").unwrap_or(text);
        let has_code = text.contains(&b' ');
        let text = if has_code { text.to_vec() } else { [b"ERR ", text].concat() };
        return errors::table(lua, &text, false);
    }
    let table = lua.create_table()?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(table)
}

fn sha1hex(lua: &Lua, values: MultiValue) -> Result<String> {
    if values.len() != 1 {
        return Err(errors::reply("wrong number of arguments"));
    }
    let text = values.front().cloned().and_then(|value| lua.coerce_string(value).ok().flatten());
    let text = text.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
    state::charge(text.len())?;
    Ok(hex(&Sha1::digest(&text)))
}

/// The bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}

fn set_resp(lua: &Lua, values: MultiValue) -> Result<()> {
    let args = Args::new(lua, values);
    if args.len() != 1 {
        return Err(errors::reply("redis.setresp() requires one argument."));
    }
    match args.int(1) {
        Ok(2) => state::set_resp3(false),
        Ok(3) => state::set_resp3(true),
        _ => return Err(errors::reply("RESP version must be 2 or 3.")),
    }
    Ok(())
}

/// Checks the flags of `redis.set_repl`. They have no other effect, because a script cannot choose how its effects
/// are replicated.
fn set_repl(lua: &Lua, values: MultiValue) -> Result<()> {
    let args = Args::new(lua, values);
    if args.len() != 1 {
        return Err(errors::reply("redis.set_repl() requires two arguments."));
    }
    // As in redis-server, what is no number counts as 0.
    if !(0..=3).contains(&args.int(1).unwrap_or(0)) {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(errors::reply(text));
    }
    Ok(())
}

fn log(lua: &Lua, values: MultiValue) -> Result<()> {
    let args = Args::new(lua, values);
    if args.len() < 2 {
        return Err(errors::reply("redis.log() requires two arguments or more."));
    }
    let is_number = |value: &Value| lua.coerce_number(value.clone()).is_ok_and(|number| number.is_some());
    if !args.get(1).is_some_and(is_number) {
        return Err(errors::reply("First argument must be a number (log level)."));
    }
    let level = args.int(1)?;
    if !(0..=3).contains(&level) {
        return Err(errors::reply("Invalid debug level."));
    }
    let mut text = Vec::new();
    for (n, value) in args.into_values().into_iter().skip(1).enumerate() {
        if let Some(part) = lua.coerce_string(value)? {
            if n > 0 {
                text.push(b' ');
            }
            state::charge(part.as_bytes().len())?;
            text.extend_from_slice(&part.as_bytes());
        }
    }
    state::with_host(|host| host.log(level, &text))
}

#[cfg(test)]
mod tests;
