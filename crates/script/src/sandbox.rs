//! The globals of scripts, as in redis-server 7.0: which functions exist, and how they are protected against
//! changes.
//!
//! Redis patches its Lua for read-only tables. Here each read-only table is a proxy: an empty table with a
//! metatable that leads to the real one. The functions that could detect or bypass the proxy (`rawset`,
//! `setmetatable`, `pairs`, the metatable of strings, `load` of bytecode) are Strand's own.

use crate::args::Args;
use crate::convert::until_zero;
use crate::errors::{self, Thrown, bad_argument, error};
use crate::state::{self, CodeKind};
use crate::{bits, cjson, cmsgpack, guards, redis, strings, structs};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strand_lua::Runner;
use strand_wire::reply::ErrorText;

/// The names of Lua's own functions that scripts may use.
const BASE: [&str; 14] = [
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "rawequal",
    "select",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "_VERSION",
    "coroutine",
    "table",
];
/// The first byte of compiled Lua code.
const BYTECODE: u8 = 0x1b;
/// The name of the prelude's chunk.
pub(crate) const PRELUDE: &str = "=prelude";
const READ_ONLY: &str = "Attempt to modify a readonly table";
/// Maximum number of bytes that `load` collects from its function.
const LOAD_BYTES_MAX: usize = 16 << 20;

/// The tables that belong to an interpreter's sandbox.
pub(crate) struct Sandbox {
    /// The globals as scripts see them: a proxy.
    pub(crate) script_globals: Table,
    /// The globals of functions. While a library is loaded, their metatable leads to `load_real` instead.
    pub(crate) function_globals: Table,
    function_meta: Table,
    function_real: Table,
    load_real: Table,
    /// Calls scripts and functions, with their keys and arguments.
    pub(crate) runner: Runner,
    /// `load(f, handler)` runs a library's chunk.
    pub(crate) load: Function,
    pub(crate) handler: Function,
    pub(crate) sweep: Function,
}

impl Sandbox {
    /// Creates an interpreter and its sandbox.
    pub(crate) fn open() -> Result<(Lua, Sandbox)> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let sandbox = Sandbox::build(&lua)?;
        Ok((lua, sandbox))
    }
    fn build(lua: &Lua) -> Result<Sandbox> {
        let native = lua.create_table()?;
        let protected = lua.create_table()?;
        native.set("protected", &protected)?;
        native.set("next_match", lua.create_function(strings::next_match)?)?;
        native.set("visible", lua.create_function(errors::visible)?)?;
        native.set("out_of_memory", lua.create_function(|lua, ()| errors::out_of_memory(lua))?)?;
        native.set("stopped", lua.create_function(|_, ()| Ok(state::is_stopped()))?)?;
        let read_only = |lua: &Lua, _: MultiValue| Err::<(), _>(error(lua, READ_ONLY));
        native.set("readonly", lua.create_function(read_only)?)?;
        let prelude: Table =
            lua.load(include_str!("prelude.lua")).set_name(PRELUDE).set_mode(ChunkMode::Text).call(native)?;
        let protect: Function = prelude.get("protect")?;
        let raw = lua.globals();
        errors::keep_pcall(lua, raw.get("pcall")?)?;

        let real = lua.create_table()?;
        for name in BASE {
            real.set(name, raw.get::<Value>(name)?)?;
        }
        for name in ["pcall", "xpcall"] {
            real.set(name, prelude.get::<Function>(name)?)?;
        }
        base_functions(lua, &real, &protected, raw.get("next")?)?;
        let coroutine: Table = raw.get("coroutine")?;
        coroutine.set("resume", prelude.get::<Function>("resume")?)?;
        guards::install(lua, &real, &raw.get("table")?, &coroutine)?;
        let string: Table = raw.get("string")?;
        strings::install(lua, &string, prelude.get("matches")?)?;
        let math: Table = raw.get("math")?;
        random(lua, &math)?;
        let api = redis::library(lua, "call")?;
        let function_api = lua.create_table()?;
        for pair in api.pairs::<String, Value>() {
            let (name, value) = pair?;
            if !redis::ONLY_IN_SCRIPTS.contains(&&*name) {
                function_api.raw_set(name, value)?;
            }
        }
        for (name, library) in [
            ("bit", bits::library(lua)?),
            ("cjson", cjson::library(lua)?),
            ("cmsgpack", cmsgpack::library(lua)?),
            ("coroutine", coroutine),
            ("math", math),
            ("redis", api),
            ("string", string.clone()),
            ("struct", structs::library(lua)?),
            ("table", raw.get("table")?),
        ] {
            real.set(name, protect.call::<Table>(library)?)?;
        }
        // Methods of strings are found in the real table. The metatable shows only the proxy.
        let shown = lua.create_table()?;
        shown.set("__index", real.get::<Table>("string")?)?;
        let strings = lua.create_table()?;
        strings.set("__index", string)?;
        strings.set("__metatable", protect.call::<Table>(shown)?)?;
        lua.set_type_metatable::<mlua::LuaString>(Some(strings));

        let missing = lua.create_table()?;
        missing.set("__index", lua.create_function(no_such_global)?)?;
        let globals = |from: &Table| -> Result<(Table, Table)> {
            let own = lua.create_table()?;
            for pair in from.pairs::<Value, Value>() {
                let (name, value) = pair?;
                own.raw_set(name, value)?;
            }
            own.set_metatable(Some(missing.clone()))?;
            let proxy: Table = protect.call(&own)?;
            own.raw_set("_G", &proxy)?;
            Ok((own, proxy))
        };
        let (script_real, script_globals) = globals(&real)?;
        // Keep the metatable of the functions' proxy, to redirect it while a library is loaded.
        let (function_real, _) = globals(&real)?;
        function_real.raw_set("redis", protect.call::<Table>(function_api)?)?;
        let (load_real, _) = globals(&lua.create_table()?)?;
        let load_api = redis::library(lua, "load")?;
        load_api.set_metatable(Some(missing))?;
        load_real.raw_set("redis", protect.call::<Table>(load_api)?)?;
        load_real.raw_set("_G", Value::Nil)?;
        let function_meta = lua.create_table()?;
        function_meta.raw_set("__index", &function_real)?;
        function_meta.raw_set("__newindex", lua.create_function(read_only)?)?;
        function_meta.raw_set("__metatable", prelude.get::<Table>("shield")?)?;
        let function_globals = lua.create_table()?;
        function_globals.set_metatable(Some(function_meta.clone()))?;
        function_real.raw_set("_G", &function_globals)?;
        protected.raw_set(&function_globals, &function_real)?;
        let loader = Loader { script: script_globals.clone(), function: function_globals.clone() };
        loader.install(lua, &[&script_real, &function_real])?;
        // A chunk without an environment must find nothing that only Strand may use.
        lua.set_globals(script_globals.clone())?;
        let handler = lua.create_function(handler)?;
        // KEYS and ARGV are set in the real table behind the proxy.
        let runner = Runner::new(lua, &script_real, &handler)?;
        Ok(Sandbox {
            script_globals,
            function_globals,
            function_meta,
            function_real,
            load_real,
            runner,
            load: prelude.get("load")?,
            handler,
            sweep: prelude.get("sweep")?,
        })
    }
    /// Sets whether a library is being loaded. Its chunk then sees little but `redis.register_function`.
    pub(crate) fn set_loading(&self, loading: bool) -> Result<()> {
        let globals = if loading { &self.load_real } else { &self.function_real };
        self.function_meta.raw_set("__index", globals)
    }
}

/// The table of an uncaught error: `{err =, source =, line =}`.
fn handler(lua: &Lua, value: Value) -> Result<Table> {
    if state::is_stopped() {
        return errors::table(lua, b"ERR stopped", false);
    }
    let value = errors::visible(lua, value)?;
    let table = match value {
        Value::Table(table) if table.metatable().is_none() => table,
        // The table may be a proxy, which later scripts see, too. So the place of the error goes into a copy.
        Value::Table(table) => {
            let copy = lua.create_table()?;
            copy.raw_set("err", table.raw_get::<Value>("err")?)?;
            copy
        }
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Integer(_) | Value::Number(_) => {
                    lua.coerce_string(other)?.map(|text| text.as_bytes().to_vec()).unwrap_or_default()
                }
                Value::Boolean(yes) => yes.to_string().into_bytes(),
                other => crate::args::type_name(other).as_bytes().to_vec(),
            };
            errors::table(lua, &[b"ERR ", &text[..]].concat(), false)?
        }
    };
    let (mut level, mut place) = (1, errors::source_and_line(lua, 1));
    if place.as_ref().is_some_and(|(is_c, ..)| *is_c) {
        // The lowest frame is that of the runner. A function of the sandbox has no line when it was called from there.
        place = errors::source_and_line(lua, 3).and(errors::source_and_line(lua, 2));
        level = 2;
    }
    if place.as_ref().is_some_and(|(_, source, _)| source == PRELUDE) {
        // The script called this function of the prelude.
        place = errors::source_and_line(lua, level + 1);
    }
    if let Some((_, source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

fn no_such_global(lua: &Lua, (_, name): (Value, Value)) -> Result<Value> {
    let Some(name) = lua.coerce_string(name)? else {
        return Err(error(lua, "Second argument to luaProtectedTableError must be a string or number"));
    };
    let name = name.as_bytes();
    let text =
        [b"Script attempted to access nonexistent global variable '", until_zero(&name), b"'"].concat();
    Err(error(lua, text))
}

/// Sets Lua's functions that must know the sandbox's proxies, or that need a bound on their work.
fn base_functions(lua: &Lua, real: &Table, protected: &Table, next: Function) -> Result<()> {
    let shield = protected.clone();
    let is_protected = move |table: &Table| shield.raw_get::<Option<Table>>(table);
    let check = is_protected.clone();
    real.set(
        "setmetatable",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let table = args.table(1)?;
            let meta = match args.get(2) {
                Some(Value::Nil) => None,
                Some(Value::Table(meta)) => Some(meta.clone()),
                _ => return Err(args.bad(2, "nil or table expected")),
            };
            if check(&table)?.is_some() {
                return Err(Thrown::Text(READ_ONLY.into()).into());
            }
            if let Some(old) = table.metatable()
                && !old.raw_get::<Value>("__metatable")?.is_nil()
            {
                return Err(args.error("cannot change a protected metatable"));
            }
            table.set_metatable(meta)?;
            Ok(table)
        })?,
    )?;
    let check = is_protected.clone();
    real.set(
        "rawset",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let table = args.table(1)?;
            if check(&table)?.is_some() {
                return Err(Thrown::Text(READ_ONLY.into()).into());
            }
            for n in [2, 3] {
                if args.get(n).is_none() {
                    return Err(args.bad(n, "value expected"));
                }
            }
            let (key, value) = (args.get(2).cloned(), args.get(3).cloned());
            table
                .raw_set(key.unwrap_or(Value::Nil), value.unwrap_or(Value::Nil))
                .map_err(without_position)?;
            Ok(table)
        })?,
    )?;
    let check = is_protected.clone();
    real.set(
        "rawget",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let table = args.table(1)?;
            let Some(key) = args.get(2).cloned() else { return Err(args.bad(2, "value expected")) };
            check(&table)?.unwrap_or(table).raw_get::<Value>(key)
        })?,
    )?;
    real.set(
        "pairs",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let table = args.table(1)?;
            let seen = match is_protected(&table)? {
                None => table,
                Some(real) => {
                    let copy = lua.create_table()?;
                    for pair in real.pairs::<Value, Value>() {
                        let (key, value) = pair?;
                        copy.raw_set(key, value)?;
                    }
                    copy
                }
            };
            Ok((next.clone(), seen, Value::Nil))
        })?,
    )?;
    real.set("collectgarbage", lua.create_function(collect_garbage)?)?;
    real.set("gcinfo", lua.create_function(|lua, ()| Ok((lua.used_memory() / 1024) as f64))?)?;
    Ok(())
}

/// An error of Lua, unchanged and without a position.
fn without_position(error: mlua::Error) -> mlua::Error {
    match error {
        mlua::Error::RuntimeError(text) => {
            Thrown::Text(text.lines().next().unwrap_or_default().as_bytes().to_vec()).into()
        }
        other => other,
    }
}

/// `collectgarbage` for scripts. A script must not change the pace of the garbage collector.
fn collect_garbage(lua: &Lua, values: MultiValue) -> Result<f64> {
    const OPTIONS: [&[u8]; 7] =
        [b"stop", b"restart", b"collect", b"count", b"step", b"setpause", b"setstepmul"];
    let args = Args::new(lua, values);
    let option = if args.is_none(1) { b"collect".to_vec() } else { args.string(1)?.as_bytes().to_vec() };
    if !OPTIONS.contains(&&option[..]) {
        let text = String::from_utf8_lossy(&option);
        return Err(bad_argument(lua, 1, &format!("invalid option '{text}'")));
    }
    match &option[..] {
        b"count" => return Ok(lua.used_memory() as f64 / 1024.0),
        b"collect" | b"step" => {
            state::charge(lua.used_memory() / 16)?;
            lua.gc_collect()?;
        }
        _ => {}
    }
    Ok(0.0)
}

/// `loadstring` and `load`, for source text only, with the globals of the run.
#[derive(Clone)]
struct Loader {
    script: Table,
    function: Table,
}

impl Loader {
    fn install(self, lua: &Lua, globals: &[&Table]) -> Result<()> {
        let loader = self.clone();
        let loadstring = lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let text = args.string(1)?;
            let name = if args.is_none(2) { text.clone() } else { args.string(2)? };
            loader.load(lua, &text.as_bytes(), &name.as_bytes())
        })?;
        let load = lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let Some(Value::Function(pieces)) = args.get(1) else {
                return Err(args.wrong_type(1, "function"));
            };
            let name =
                if args.is_none(2) { b"=(load)".to_vec() } else { args.string(2)?.as_bytes().to_vec() };
            let mut text = Vec::new();
            loop {
                // As in Lua, `load` returns the error of its function.
                let piece = match errors::call(lua, pieces, MultiValue::new()) {
                    Ok(Ok(piece)) => piece,
                    Ok(Err(raised)) => return Ok(failed(raised)),
                    Err(error) => return Ok(failed(errors::visible(lua, Value::Error(Box::new(error)))?)),
                };
                match piece {
                    Value::Nil => break,
                    Value::String(piece) if piece.as_bytes().is_empty() => break,
                    Value::String(piece) => text.extend_from_slice(&piece.as_bytes()),
                    number @ (Value::Integer(_) | Value::Number(_)) => {
                        let piece = lua.coerce_string(number)?;
                        text.extend(piece.iter().flat_map(|piece| piece.as_bytes().to_vec()));
                    }
                    _ => {
                        let error = args.error("reader function must return a string");
                        return Ok(failed(errors::visible(lua, Value::Error(Box::new(error)))?));
                    }
                }
                state::charge(1)?;
                if text.len() > LOAD_BYTES_MAX {
                    return Err(Thrown::Text(b"not enough memory".to_vec()).into());
                }
            }
            self.load(lua, &text, &name)
        })?;
        for table in globals {
            table.raw_set("loadstring", &loadstring)?;
            table.raw_set("load", &load)?;
        }
        Ok(())
    }
    /// Returns the function alone, or nil and the error text.
    fn load(&self, lua: &Lua, text: &[u8], name: &[u8]) -> Result<MultiValue> {
        let globals = match state::kind() {
            CodeKind::Script => &self.script,
            CodeKind::Function => &self.function,
        };
        state::charge(text.len())?;
        match compile(lua, text, name, globals)? {
            Ok(function) => Ok([Value::Function(function)].into_iter().collect()),
            Err(text) => Ok(failed(Value::String(lua.create_string(text)?))),
        }
    }
}

/// The results of `load` when it fails.
fn failed(error: Value) -> MultiValue {
    [Value::Nil, error].into_iter().collect()
}

/// Compiles source text. Returns Lua's error text if it fails. `name` as in Lua: `@file`, `=name` or the text
/// itself.
pub(crate) fn compile(
    lua: &Lua,
    text: &[u8],
    name: &[u8],
    globals: &Table,
) -> Result<std::result::Result<Function, ErrorText>> {
    if text.first() == Some(&BYTECODE) {
        let shown = [&displayed_name(name)[..], b":1: unexpected symbol near 'char(27)'"].concat();
        return Ok(Err(shown));
    }
    let until_nul = name.split(|c| *c == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(until_nul).into_owned();
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text).set_environment(globals.clone());
    match chunk.into_function() {
        Ok(function) => Ok(Ok(function)),
        Err(mlua::Error::SyntaxError { message, .. }) => Ok(Err(message.into_bytes())),
        Err(mlua::Error::MemoryError(_)) => Ok(Err(b"not enough memory".to_vec())),
        Err(other) => Err(other),
    }
}

/// The name of a chunk as Lua shows it in errors.
fn displayed_name(name: &[u8]) -> Vec<u8> {
    match name.first() {
        Some(b'@' | b'=') => name[1..].to_vec(),
        _ => [b"[string \"", name.split(|c| *c == b'\n').next().unwrap_or_default(), b"\"]"].concat(),
    }
}

/// `math.random` and `math.randomseed` as in redis-server: the 48-bit generator of `drand48`.
fn random(lua: &Lua, math: &Table) -> Result<()> {
    const FIRST: u64 = 0x1234_ABCD_330E;
    const MAX: u32 = i32::MAX as u32;
    let bits = Arc::new(AtomicU64::new(FIRST));
    let seeded = bits.clone();
    math.set(
        "random",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            let next = bits.load(Relaxed).wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
            bits.store(next, Relaxed);
            let r = f64::from((next >> 17) as u32 % MAX) / f64::from(MAX);
            let int = |n| Ok::<_, mlua::Error>(args.int(n)? as i32);
            match args.len() {
                0 => Ok(r),
                1 => {
                    let upper = int(1)?;
                    if upper < 1 {
                        return Err(args.bad(1, "interval is empty"));
                    }
                    Ok((r * f64::from(upper)).floor() + 1.0)
                }
                2 => {
                    let (lower, upper) = (int(1)?, int(2)?);
                    if lower > upper {
                        return Err(args.bad(2, "interval is empty"));
                    }
                    Ok((r * (f64::from(upper) - f64::from(lower) + 1.0)).floor() + f64::from(lower))
                }
                _ => Err(args.error("wrong number of arguments")),
            }
        })?,
    )?;
    math.set(
        "randomseed",
        lua.create_function(move |lua, values: MultiValue| {
            let args = Args::new(lua, values);
            seeded.store(u64::from(args.int(1)? as u32) << 16 | 0x330E, Relaxed);
            Ok(())
        })?,
    )?;
    Ok(())
}
