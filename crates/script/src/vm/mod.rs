//! [`Vm`]: one interpreter with its compiled scripts. It stays on its thread.

use crate::load::{self, Registered, RegisteredFunction};
use crate::sandbox::{Sandbox, compile};
use crate::shebang::{self, ScriptFlags};
use crate::state::{self, CodeKind, Host};
use crate::{convert, errors, redis};
use mlua::state::{GcIncParams, GcMode};
use mlua::{BString, Function, Lua, Result, Table, Value};
use sha1::{Digest, Sha1};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use strand_lua::Passed;
use strand_wire::reply::{ErrorText, Reply};

pub(crate) mod hook;

/// Maximum memory of one interpreter in bytes. Memory that Strand's functions use outside the interpreter has a limit
/// of its own, which is equal.
pub const VM_BYTES_MAX: usize = 256 << 20;
/// Maximum number of compiled scripts that an interpreter keeps. When it is reached, the interpreter drops all of
/// them.
const COMPILED_MAX: usize = 1000;
/// Maximum number of functions of libraries that an interpreter keeps references to. When it is reached, the interpreter
/// drops all of these references. The functions stay in `Vm::functions`.
const CALLED_MAX: usize = 1000;
/// The collector begins a cycle when memory has grown to this percentage of what was alive after its last cycle. A
/// short script leaves some hundred bytes in an interpreter of some hundred kilobytes, so each cycle marks much and
/// frees little: with Lua's 200 % a GET in a script paid 1,000 instructions for this.
const PAUSE_PERCENT: i32 = 500;
const SCRIPT_NAME: &[u8] = b"@user_script";
const FUNCTION_NAME: &[u8] = b"@user_function";

/// A script as the client sent it.
#[derive(Debug)]
pub struct Script {
    /// The script's digest: 40 hexadecimal digits in lower case.
    pub sha: String,
    /// The text to compile: without its first line, if that is a shebang.
    text: Box<[u8]>,
    /// The flags in the script's first line.
    pub flags: ScriptFlags,
    reaches_tables: bool,
}

impl Script {
    /// Length in bytes of the text that is compiled.
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }
    /// Reads the first line. Compiles nothing.
    ///
    /// # Errors
    /// redis-server's text about the error in that line.
    pub fn new(body: &[u8]) -> std::result::Result<Script, ErrorText> {
        let (flags, text) = shebang::script(body)?;
        let reaches_tables = reaches_tables(text);
        Ok(Script { sha: sha_of(body), text: text.into(), flags, reaches_tables })
    }
    /// Number of heap bytes that the script takes.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + self.sha.capacity() + size_of::<Script>()
    }
}

/// False when the text contains no name that leads to `table.insert` or a similar function, which writes past
/// metatables.
fn reaches_tables(text: &[u8]) -> bool {
    [&b"table"[..], b"_G", b"load"].iter().any(|name| memchr::memmem::find(text, name).is_some())
}

/// The digest that EVALSHA takes.
pub fn sha_of(body: &[u8]) -> String {
    redis::hex(&Sha1::digest(body))
}

/// A loaded library.
#[derive(Debug)]
pub struct Library {
    /// Name of the library.
    pub name: Vec<u8>,
    /// The library's whole text.
    pub code: Vec<u8>,
    /// Functions of the library, by name.
    pub functions: Vec<FunctionInfo>,
}

/// A function of a library.
#[derive(Clone, Debug)]
pub struct FunctionInfo {
    /// Name of the function.
    pub name: Vec<u8>,
    /// The author's description.
    pub description: Option<Vec<u8>>,
    /// Flags of the function.
    pub flags: ScriptFlags,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The script has ended, and its reply is written.
    Done,
    /// The script has ended, and its reply is the error of a command that it called. The host has seen this error.
    CommandFailed,
    /// The host stopped the run at this place (`@user_script:1`). No reply was written.
    Stopped(Option<String>),
}

/// Limits of a run, besides those that the host sets.
#[derive(Clone, Copy, Debug)]
pub struct VmLimits {
    /// The interpreter may grow by this number of bytes. A run that needs more is stopped. With [`VM_BYTES_MAX`] the script
    /// gets an error instead.
    pub soft_bytes: usize,
    /// Maximum nesting of tables that are encoded, decoded or returned. Each level takes some kilobytes of the
    /// thread's stack. Deeper nesting stops the run.
    pub depth_max: usize,
}

/// Input of a run: keys, arguments, and limits.
#[derive(Clone, Debug)]
pub struct Input<K, A> {
    /// The keys, which the script finds in `KEYS`.
    pub keys: K,
    /// The other arguments, which the script finds in `ARGV`.
    pub args: A,
    /// Limits of the run.
    pub limits: VmLimits,
}

/// A Lua interpreter with its sandbox.
pub struct Vm {
    lua: Lua,
    sandbox: Sandbox,
    /// Compiled scripts by their digests. Clients send digests, but this map has only digests of scripts that were
    /// kept.
    scripts: HashMap<String, Function, ahash::RandomState>,
    libraries: HashMap<Vec<u8>, LoadedLibrary, ahash::RandomState>,
    /// The functions of the loaded libraries: for each library's name a table with the functions by name. They are in
    /// tables of Lua, because an interpreter has room for only a few thousand references from Rust.
    functions: Table,
    /// Number of functions in [`LoadedLibrary::called`] of all libraries.
    called: usize,
    /// Memory that a new interpreter takes, in bytes.
    base_bytes: usize,
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vm({} bytes, {} scripts)", self.used_bytes(), self.scripts.len())
    }
}

struct LoadedLibrary {
    library: Arc<Library>,
    /// References to the functions that were called, by name.
    called: HashMap<Vec<u8>, Function, ahash::RandomState>,
    reaches_tables: bool,
}

/// The error when no interpreter can be created, because memory is missing.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NoMemory(#[from] mlua::Error);

impl Vm {
    /// A new interpreter. Takes a millisecond or less.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new() -> std::result::Result<Vm, NoMemory> {
        let (lua, sandbox) = Sandbox::open()?;
        set_pause(&lua, PAUSE_PERCENT);
        lua.gc_collect()?;
        lua.set_memory_limit(VM_BYTES_MAX)?;
        let base_bytes = lua.used_memory();
        let functions = lua.create_table()?;
        let (scripts, libraries) = (HashMap::default(), HashMap::default());
        let vm = Vm { lua, sandbox, scripts, libraries, functions, called: 0, base_bytes };
        hook::set(&vm.lua)?;
        Ok(vm)
    }
    /// Memory that the interpreter takes, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.lua.used_memory()
    }
    /// Memory that the interpreter takes above that of a new interpreter.
    pub fn grown_bytes(&self) -> usize {
        self.used_bytes().saturating_sub(self.base_bytes)
    }
    /// Drops the compiled scripts.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }
    /// Drops the libraries that are no longer current.
    pub fn retain_libraries(&mut self, is_current: impl Fn(&Arc<Library>) -> bool) {
        let (functions, called) = (&self.functions, &mut self.called);
        self.libraries.retain(|name, loaded| {
            let stays = is_current(&loaded.library);
            if !stays {
                *called -= loaded.called.len();
                // Ignore an error: without memory for the name, the functions stay until the library is loaded again.
                let _ = functions.raw_set(BString::from(&**name), Value::Nil);
            }
            stays
        });
    }
    /// Loads a library, unless exactly this library is loaded.
    fn load(
        &mut self,
        library: &Arc<Library>,
        limits: VmLimits,
        host: &mut dyn Host,
    ) -> std::result::Result<(), LoadError> {
        if self.libraries.get(&library.name).is_some_and(|loaded| Arc::ptr_eq(&loaded.library, library)) {
            return Ok(());
        }
        let (_, registered) = self.run_library(&library.code, limits, host)?;
        let name = BString::from(&*library.name);
        self.functions.raw_set(name, registered.by_name).map_err(LoadError::of)?;
        let reaches_tables = reaches_tables(&library.code);
        let loaded = LoadedLibrary { library: library.clone(), called: HashMap::default(), reaches_tables };
        if let Some(old) = self.libraries.insert(library.name.clone(), loaded) {
            self.called -= old.called.len();
        }
        Ok(())
    }
    /// Keeps a reference to a function of a loaded library, if the library has the function and there is memory.
    fn keep_reference(&mut self, library: &[u8], name: &[u8]) -> Result<()> {
        if self.libraries.get(library).is_none_or(|loaded| loaded.called.contains_key(name)) {
            return Ok(());
        }
        if self.called >= CALLED_MAX {
            self.libraries.values_mut().for_each(|loaded| loaded.called.clear());
            self.called = 0;
        }
        let functions: Table = self.functions.raw_get(BString::from(library))?;
        let function: Option<Function> = functions.raw_get(BString::from(name))?;
        if let (Some(function), Some(loaded)) = (function, self.libraries.get_mut(library)) {
            loaded.called.insert(name.to_vec(), function);
            self.called += 1;
        }
        Ok(())
    }
    /// Compiles a script.
    ///
    /// # Errors
    /// Lua's error text.
    pub fn compile(&mut self, script: &Script) -> std::result::Result<(), ErrorText> {
        if self.scripts.contains_key(&script.sha) {
            return Ok(());
        }
        let compiled = compile(&self.lua, &script.text, SCRIPT_NAME, &self.sandbox.script_globals);
        let function = compiled.map_err(|error| error.to_string().into_bytes())??;
        if self.scripts.len() == COMPILED_MAX {
            self.scripts.clear();
        }
        self.scripts.insert(script.sha.clone(), function);
        Ok(())
    }
    /// Runs a script.
    pub fn run<'a>(
        &mut self,
        script: &Script,
        input: Input<impl Iterator<Item = &'a [u8]>, impl Iterator<Item = &'a [u8]>>,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> RunEnd {
        let Input { keys, args, limits } = input;
        let function = match self.scripts.get(&script.sha) {
            Some(function) => function,
            None => {
                if let Err(text) = self.compile(script) {
                    reply.error_bytes(&compile_error(&text));
                    return RunEnd::Done;
                }
                &self.scripts[&script.sha]
            }
        };
        let run = Run { kind: CodeKind::Script, limits, needs_sweep: script.reaches_tables };
        self.run_and_reply(run, function, &script.sha, [keys.collect(), args.collect()], host, reply)
    }
    /// Calls a function of a library.
    pub fn call<'a>(
        &mut self,
        library: &Arc<Library>,
        name: &[u8],
        input: Input<impl Iterator<Item = &'a [u8]>, impl Iterator<Item = &'a [u8]>>,
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> RunEnd {
        let Input { keys, args, limits } = input;
        // The library's functions may have been registered in another interpreter only.
        match self.load(library, limits, host) {
            Ok(()) => {}
            Err(LoadError::Stopped) => return RunEnd::Stopped(None),
            Err(LoadError::Text(text)) => {
                reply.error_bytes(&[b"ERR ", &text[..]].concat());
                return RunEnd::Done;
            }
        }
        if let Err(error) = self.keep_reference(&library.name, name) {
            reply.error(&format!("ERR {error}"));
            return RunEnd::Done;
        }
        let loaded = self.libraries.get(&library.name);
        let needs_sweep = loaded.is_some_and(|loaded| loaded.reaches_tables);
        let Some(function) = loaded.and_then(|loaded| loaded.called.get(name)) else {
            reply.error("ERR Function not found");
            return RunEnd::Done;
        };
        let run = Run { kind: CodeKind::Function, limits, needs_sweep };
        let shown = String::from_utf8_lossy(name);
        self.run_and_reply(run, function, &shown, [keys.collect(), args.collect()], host, reply)
    }
    /// Reads a library and runs its chunk once.
    ///
    /// # Errors
    /// redis-server's error text. A stopped run returns the text of a timeout.
    pub fn load_library(
        &mut self,
        code: &[u8],
        limits: VmLimits,
        host: &mut dyn Host,
    ) -> std::result::Result<Library, ErrorText> {
        let (name, registered) = self.run_library(code, limits, host).map_err(|error| match error {
            LoadError::Text(text) => text,
            LoadError::Stopped => b"Error registering functions: ERR FUNCTION LOAD timeout".to_vec(),
        })?;
        if registered.functions.is_empty() {
            return Err(b"No functions registered".to_vec());
        }
        let info =
            |r: RegisteredFunction| FunctionInfo { name: r.name, description: r.description, flags: r.flags };
        let functions = registered.functions.into_iter().map(info).collect();
        Ok(Library { name, code: code.to_vec(), functions })
    }
    fn run_library(
        &mut self,
        code: &[u8],
        limits: VmLimits,
        host: &mut dyn Host,
    ) -> std::result::Result<(Vec<u8>, Registered), LoadError> {
        let (name, text) = shebang::library(code).map_err(LoadError::Text)?;
        let failed = LoadError::of;
        let globals = &self.sandbox.function_globals;
        let compiled = compile(&self.lua, text, FUNCTION_NAME, globals).map_err(failed)?;
        let function =
            compiled.map_err(|text| LoadError::Text([b"Error compiling function: ", &text[..]].concat()))?;
        self.sandbox.set_loading(true).map_err(failed)?;
        let run = || {
            let done = self.sandbox.load.call::<(bool, Value)>((function, &self.sandbox.handler));
            if errors::ended_without_memory(&done) {
                state::stop_without_memory();
            }
            done
        };
        let as_function = Run { kind: CodeKind::Function, limits, needs_sweep: true };
        let collected = load::collect(&self.lua, || self.with_run_state(host, as_function, run));
        self.sandbox.set_loading(false).map_err(failed)?;
        let (registered, (done, stopped)) = collected.map_err(failed)?;
        if stopped {
            return Err(LoadError::Stopped);
        }
        match done.map_err(failed)? {
            (true, _) => Ok((name, registered)),
            (false, error) => {
                let text = error_parts(&error).0;
                Err(LoadError::Text([b"Error registering functions: ", &text[..]].concat()))
            }
        }
    }
    /// Calls a function for `host`, writes its result or its error, and restores the interpreter.
    fn run_and_reply(
        &self,
        run: Run,
        function: &Function,
        name: &str,
        [keys, args]: [Texts<'_>; 2],
        host: &mut dyn Host,
        reply: &mut Reply<'_>,
    ) -> RunEnd {
        let passed = if run.kind == CodeKind::Script { Passed::Globals } else { Passed::Arguments };
        let mut is_counted = false;
        let (written, stopped) = self.with_run_state(host, run, || {
            let write = |result: strand_lua::Ended<'_>| match result {
                _ if state::is_stopped() => Ok(()),
                strand_lua::Ended::Error(error)
                    if errors::is_no_memory(&error) && state::stop_without_memory() =>
                {
                    Ok(())
                }
                strand_lua::Ended::Plain(value) => convert::write_plain(reply, value, state::resp3()),
                strand_lua::Ended::Value(value) => {
                    is_counted = errors::is_counted(&value);
                    convert::write(reply, &value, state::resp3())
                }
                strand_lua::Ended::Error(error) => {
                    is_counted = errors::is_counted(&error);
                    reply.error_bytes(&runtime_error(&error, name));
                    Ok(())
                }
            };
            let done = self.sandbox.runner.run(function, passed, &keys, &args, write).and_then(|done| done);
            done.inspect_err(|error| _ = errors::is_memory_error(error) && state::stop_without_memory())
        });
        if stopped {
            return RunEnd::Stopped(state::stopped_at());
        }
        if let Err(error) = written {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            reply.error(&format!("ERR Error running script {name}, {first}"));
            return RunEnd::Done;
        }
        if is_counted { RunEnd::CommandFailed } else { RunEnd::Done }
    }
    fn with_run_state<R>(
        &self,
        host: &mut dyn Host,
        Run { kind, limits, needs_sweep }: Run,
        work: impl FnOnce() -> R,
    ) -> (R, bool) {
        let soft_bytes = limits.soft_bytes.saturating_add(self.base_bytes).min(VM_BYTES_MAX);
        let is_limited = soft_bytes < VM_BYTES_MAX;
        state::set_limits(is_limited, limits.depth_max);
        state::set_used_bytes(self.lua.used_memory());
        state::set_stopped_at(None);
        if is_limited {
            // This cannot fail, because the interpreter uses mlua's own allocator.
            let _ = self.lua.set_memory_limit(soft_bytes);
        }
        let (done, stopped) = state::run(host, kind, VM_BYTES_MAX, work);
        if is_limited {
            let _ = self.lua.set_memory_limit(VM_BYTES_MAX);
        }
        hook::restore(&self.lua, stopped);
        if needs_sweep {
            let _ = self.sandbox.sweep.call::<()>(());
        }
        if state::set_large(false) {
            set_pause(&self.lua, PAUSE_PERCENT);
        }
        (done, stopped)
    }
}

/// Keys or arguments.
type Texts<'t> = SmallVec<[&'t [u8]; 8]>;

/// What [`Vm::with_run_state`] needs to know of a run.
struct Run {
    kind: CodeKind,
    limits: VmLimits,
    /// True when the run may have left something in a proxy.
    needs_sweep: bool,
}

/// Lifts the interpreter's memory limit while something small is created. With a limit each allocation is a
/// protected call, which costs more than the rest of a short script. Later allocations of the script count again.
pub(crate) struct MemoryLimitLift<'l>(&'l Lua, usize);

impl<'l> MemoryLimitLift<'l> {
    pub(crate) fn new(lua: &'l Lua) -> MemoryLimitLift<'l> {
        // This cannot fail, because the interpreter uses mlua's own allocator.
        let before = lua.set_memory_limit(0).unwrap_or(VM_BYTES_MAX);
        MemoryLimitLift(lua, before)
    }
}

impl Drop for MemoryLimitLift<'_> {
    fn drop(&mut self) {
        let _ = self.0.set_memory_limit(self.1);
    }
}

enum LoadError {
    Text(Vec<u8>),
    Stopped,
}

impl LoadError {
    fn of(error: mlua::Error) -> LoadError {
        LoadError::Text(error.to_string().into_bytes())
    }
}

fn set_pause(lua: &Lua, percent: i32) {
    lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(percent)));
}

/// The reply for a script that does not compile.
pub fn compile_error(text: &[u8]) -> Vec<u8> {
    [b"ERR Error compiling script (new function): ", text].concat()
}

/// The text and the place in the table that the error handler made.
fn error_parts(error: &Value) -> (Vec<u8>, Option<(Vec<u8>, i64)>) {
    let Value::Table(table) = error else {
        let text = match error {
            Value::String(text) => text.as_bytes().to_vec(),
            _ => b"execution failure".to_vec(),
        };
        return (text, None);
    };
    let text = match table.raw_get("err") {
        Ok(Value::String(text)) => text.as_bytes().to_vec(),
        Ok(number @ (Value::Integer(_) | Value::Number(_))) => number.to_string().unwrap_or_default().into(),
        // redis-server crashes on such a table.
        _ => b"ERR the error object is a table without a text".to_vec(),
    };
    let place = match (table.raw_get::<Value>("source"), table.raw_get::<Option<i64>>("line")) {
        (Ok(Value::String(source)), Ok(Some(line))) => Some((source.as_bytes().to_vec(), line)),
        _ => None,
    };
    (text, place)
}

fn runtime_error(error: &Value, name: &str) -> Vec<u8> {
    if !matches!(error, Value::Table(_)) {
        let text = error_parts(error).0;
        return [b"ERR Error running script ", name.as_bytes(), b", ", &text].concat();
    }
    let (mut text, place) = error_parts(error);
    if let Some((source, line)) = place {
        text.extend_from_slice(format!(" script: {name}, on ").as_bytes());
        text.extend_from_slice(&source);
        text.extend_from_slice(format!(":{line}.").as_bytes());
    }
    text
}

#[cfg(test)]
mod tests;
