//! SCRIPT and FUNCTION: management of scripts and libraries.

use super::{DONE, Outcome, Session};
use crate::Engine;
use crate::scripts::functions::Functions;
use crate::session::run::NextStep;
use crate::session::script::load;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_chain::Chain;
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::glob::{NAME_STEPS_MAX, Pattern};
use strand_commands::{errors, introspect};
use strand_rdb::dump;
use strand_rdb::write::Writer;
use strand_script::{CallOutcome, Host, Library, VM_BYTES_MAX, VmLimits};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Reply};

/// Maximum time for a library's chunk, as in redis-server.
const LOAD_US_MAX: u64 = 500_000;
/// Maximum number of steps for a library's chunk. A fast machine reaches this number before the time limit.
const LOAD_STEPS_MAX: u64 = 500_000_000;
const LOAD_LIMITS: VmLimits = VmLimits { soft_bytes: VM_BYTES_MAX, depth_max: 100 };

const SCRIPT_HELP: &[&str] = &[
    "DEBUG (YES|SYNC|NO)",
    "    NO has no effect. YES and SYNC fail: Strand has no Lua debugger.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return for each digest whether the server has the script.",
    "FLUSH [ASYNC|SYNC]",
    "    Remove all scripts. ASYNC and SYNC have the same effect.",
    "KILL",
    "    End the scripts that run and have written nothing.",
    "LOAD <script>",
    "    Keep a script, and return its digest.",
];

const FUNCTION_HELP: &[&str] = &[
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a library from its code, and return its name. REPLACE: replace a library of this name.",
    "DELETE <LIBRARY NAME>",
    "    Delete a library and its functions.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return the libraries: name, engine, functions, and with WITHCODE the code.",
    "    LIBRARYNAME: only libraries whose names match.",
    "STATS",
    "    Return the script or function that has run longest: name, command, milliseconds. Null if none runs.",
    "    Return also the engine, with its numbers of libraries and functions.",
    "KILL",
    "    End the functions that run and have written nothing.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all libraries. ASYNC and SYNC have the same effect.",
    "DUMP",
    "    Return a payload with all libraries, for RESTORE.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Create the libraries of a payload. If one fails, nothing is changed.",
    "    * FLUSH: remove all other libraries first.",
    "    * APPEND (default): fail if a library exists.",
    "    * REPLACE: replace libraries that exist.",
];

/// The function that does a command's work. An error is the whole text of the reply.
pub(super) type ScriptSubcommand = fn(&Engine, Args<'_>, &mut Reply<'_>) -> Result<(), ErrorText>;

impl Session {
    /// Runs a command about scripts that is quick enough for the worker.
    pub(super) fn scripting(&mut self, run: ScriptSubcommand, args: Args<'_>) -> Outcome {
        let engine = self.engine.clone();
        run(&engine, args, &mut self.reply())?;
        DONE
    }
    /// `SCRIPT EXISTS`: on a helper thread when the digests are many.
    pub(super) fn script_exists(&mut self, args: Args<'_>) -> Outcome {
        match args.len() > LONG_ELEMENTS {
            true => Ok(NextStep::Detach),
            false => self.scripting(script_exists, args),
        }
    }
    /// Runs a command that walks over all libraries: on a helper thread when they are many.
    pub(super) fn with_libraries(&mut self, run: ScriptSubcommand, args: Args<'_>) -> Outcome {
        let are_many = self.engine.scripts.functions.read().are_many();
        match are_many {
            true => Ok(NextStep::Detach),
            false => self.scripting(run, args),
        }
    }
}

pub(super) fn script_debug(_: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    if args.is(2, "NO") {
        reply.ok();
        return Ok(());
    }
    if !args.is(2, "YES") && !args.is(2, "SYNC") {
        return Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into());
    }
    Err("ERR SCRIPT DEBUG is not supported: there is no Lua debugger".into())
}

pub(super) fn script_exists(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.array(args.len() - 2);
    args.skip(2).iter().for_each(|sha| reply.int(engine.scripts.find(sha).is_some().into()));
    Ok(())
}

pub(super) fn script_flush(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    check_flush_type(args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
    engine.host.reclaim(engine.scripts.flush());
    reply.ok();
    Ok(())
}

pub(super) fn script_help(_: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    introspect::help(reply, "SCRIPT", SCRIPT_HELP);
    Ok(())
}

pub(super) fn script_kill(engine: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    engine.scripts.kill(false)?;
    reply.ok();
    Ok(())
}

pub(super) fn function_kill(engine: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    engine.scripts.kill(true)?;
    reply.ok();
    Ok(())
}

pub(super) fn function_delete(
    engine: &Engine,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    change(engine, Some(args), Edit::InPlace, |functions| match functions.remove(args.at(2)) {
        true => Ok(()),
        false => Err("ERR Library not found".into()),
    })?;
    reply.ok();
    Ok(())
}

pub(super) fn function_dump(engine: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.bulk(&payload(&engine.scripts.functions.read().clone()));
    Ok(())
}

pub(super) fn function_flush(
    engine: &Engine,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    if args.len() > 3 {
        return Err(wrong_arguments(args));
    }
    check_flush_type(args, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option")?;
    let mut old = Functions::default();
    change(engine, Some(args), Edit::InPlace, |functions| {
        std::mem::swap(functions, &mut old);
        Ok(())
    })?;
    reply.ok();
    Ok(())
}

pub(super) fn function_help(_: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    introspect::help(reply, "FUNCTION", FUNCTION_HELP);
    Ok(())
}

pub(super) fn function_list(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    list(&engine.scripts.functions.read().clone(), args, reply)
}

/// The error for too many arguments of a subcommand of FUNCTION.
fn wrong_arguments(args: Args<'_>) -> ErrorText {
    let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, args.at(1), b"'. Try FUNCTION HELP."].concat()
}

fn check_flush_type(args: Args<'_>, text: &str) -> Result<(), ErrorText> {
    let fits = args.len() == 2 || (args.len() == 3 && (args.is(2, "SYNC") || args.is(2, "ASYNC")));
    if fits { Ok(()) } else { Err(text.into()) }
}

/// What an edit of the libraries changes when it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    /// Nothing. So it edits the libraries themselves, and costs no more when there are many.
    InPlace,
    /// Perhaps some libraries. So it edits a copy.
    OfCopy,
}

/// Applies a change to the libraries completely or not at all. The libraries are a part of the data. So the journal gets
/// the command, under the lock of the libraries, so that it has the order of the changes. A snapshot keeps the libraries
/// of its moment, so the change is made to a copy while it does.
fn change(
    engine: &Engine,
    command: Option<Args<'_>>,
    kind: Edit,
    edit: impl FnOnce(&mut Functions) -> Result<(), ErrorText>,
) -> Result<(), ErrorText> {
    let mut current = engine.scripts.functions.write();
    // What is dropped is freed without the lock.
    let mut copy = (kind == Edit::OfCopy).then(|| current.clone());
    let changed = Arc::make_mut(copy.as_mut().unwrap_or(&mut current));
    edit(changed)?;
    changed.set_new_version();
    if let Some(command) = command {
        engine.keyspace.record(command.iter());
    }
    if let Some(copy) = copy {
        let old = std::mem::replace(&mut *current, copy);
        drop(current);
        drop(old);
    }
    Ok(())
}

fn payload(functions: &Functions) -> Vec<u8> {
    let mut writer = Writer::new(true);
    functions.libraries.values().for_each(|library| writer.function(&library.code));
    dump::seal(writer, strand_rdb::VERSION_WRITTEN)
}

fn list(functions: &Functions, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let (mut pattern, mut with_code) = (None, false);
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "WITHCODE") && !with_code {
            with_code = true;
        } else if args.is(at, "LIBRARYNAME") && pattern.is_none() {
            at += 1;
            pattern = Some(args.get(at).ok_or("ERR library name argument was not given")?);
        } else {
            return Err([b"ERR Unknown argument ", args.at(at)].concat());
        }
        at += 1;
    }
    let pattern = pattern.map(|pattern| Pattern::new(pattern, true));
    let mut steps_left = NAME_STEPS_MAX;
    let mut shown: Vec<&Arc<Library>> = Vec::new();
    for library in functions.libraries.values() {
        let fits = match &pattern {
            None => true,
            Some(pattern) => {
                pattern.matches_name(&String::from_utf8_lossy(&library.name), &mut steps_left)?
            }
        };
        shown.extend(fits.then_some(library));
    }
    reply.array(shown.len());
    for library in shown {
        reply.map(if with_code { 4 } else { 3 });
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            match &function.description {
                Some(text) => reply.bulk(text),
                None => reply.null(),
            }
            reply.bulk(b"flags");
            reply.set(function.flags.names().count());
            function.flags.names().for_each(|name| reply.simple(name));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

pub(super) fn function_stats(engine: &Engine, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let functions = engine.scripts.functions.read().clone();
    reply.map(2);
    reply.bulk(b"running_script");
    match engine.scripts.longest() {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(running.name.as_bytes());
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|arg| reply.bulk(arg));
            reply.bulk(b"duration_ms");
            reply.int((engine.host.mono_us().saturating_sub(running.began_us) / 1000) as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(functions.libraries.len() as i64);
    reply.bulk(b"functions_count");
    reply.int(functions.len() as i64);
    Ok(())
}

/// SCRIPT LOAD, on a helper thread, because compiling takes long.
pub(super) fn script_load(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let known = load(engine, args.at(2), true)?;
    reply.bulk(known.script.sha.as_bytes());
    Ok(())
}

/// Runs FUNCTION LOAD on a helper thread.
pub(super) fn function_load(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let mut options = 2..args.len() - 1;
    let replace = !options.is_empty();
    if let Some(at) = options.find(|at| !args.is(*at, "REPLACE")) {
        return Err([b"ERR Unknown option given: ", args.at(at)].concat());
    }
    let code = args.at(args.len() - 1);
    if !replace
        && let Ok(name) = strand_script::library_name(code)
        && engine.scripts.functions.read().libraries.contains_key(&name)
    {
        let name = String::from_utf8_lossy(&name);
        return Err(format!("ERR Library '{name}' already exists").into_bytes());
    }
    let library = library(engine, code)?;
    let name = library.name.clone();
    change(engine, Some(args), Edit::InPlace, |functions| {
        functions.add(library, replace).map_err(|error| format!("ERR {error}").into_bytes())
    })?;
    reply.bulk(&name);
    Ok(())
}

/// Runs FUNCTION RESTORE on a helper thread.
pub(super) fn function_restore(
    engine: &Engine,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    restore(engine, args)?;
    reply.ok();
    Ok(())
}

fn restore(engine: &Engine, args: Args<'_>) -> Result<(), ErrorText> {
    if args.len() > 4 {
        return Err(wrong_arguments(args));
    }
    let policies = ["APPEND", "FLUSH", "REPLACE"];
    let policy = match args.len() {
        3 => Some(0),
        _ => policies.iter().position(|policy| args.is(3, policy)),
    };
    let policy =
        policy.ok_or("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")?;
    let payload = dump::open(args.at(2)).map_err(|_| errors::WRONG_PAYLOAD)?;
    let codes = payload.functions().map_err(|_| "ERR failed loading functions payload")?;
    let libraries: Vec<Library> = codes.iter().map(|code| library(engine, code)).collect::<Result<_, _>>()?;
    change(engine, Some(args), Edit::OfCopy, |functions| {
        match policies[policy] {
            "FLUSH" => *functions = Functions::default(),
            // Remove them all first, because a function may have moved from one of these libraries to another.
            "REPLACE" => libraries.iter().for_each(|library| _ = functions.remove(&library.name)),
            _ => {}
        }
        for library in libraries {
            let name = String::from_utf8_lossy(&library.name).into_owned();
            let exists = functions.libraries.contains_key(&library.name);
            if exists && policies[policy] == "APPEND" {
                return Err(format!("ERR Library {name} already exists").into_bytes());
            }
            functions.add(library, true).map_err(|error| format!("ERR {error}").into_bytes())?;
        }
        Ok(())
    })
}

/// Loads a library from a file. It replaces a loaded library with the same name.
///
/// # Errors
/// Why the library cannot be loaded. Its text is kept.
pub(crate) fn load_library(engine: &Engine, code: &[u8]) -> Result<(), ErrorText> {
    let library = library(engine, code);
    let mut problem = None;
    change(engine, None, Edit::InPlace, |functions| {
        let added = library
            .and_then(|library| functions.add(library, true).map_err(|error| error.to_string().into_bytes()));
        problem = added.err();
        if problem.is_some() {
            functions.keep_unloaded(code);
        }
        Ok(())
    })?;
    problem.map_or(Ok(()), Err)
}

/// Compiles a library and runs its chunk.
fn library(engine: &Engine, code: &[u8]) -> Result<Library, ErrorText> {
    let mut vm = engine.scripts.take_interpreter()?;
    let mut host = Loading { engine, steps: 0, began_us: engine.host.mono_us() };
    let library = vm.vm.load_library(code, LOAD_LIMITS, &mut host);
    engine.scripts.return_interpreter(vm);
    library.map_err(|text| [b"ERR ", &text[..]].concat())
}

/// The host of a library while it is loaded. It may only log.
struct Loading<'e> {
    engine: &'e Engine,
    steps: u64,
    began_us: u64,
}

impl Host for Loading<'_> {
    fn call(&mut self, _argv: &Argv, _resp3: bool, _out: &mut Chain) -> CallOutcome {
        CallOutcome::Refused("ERR This Redis command is not allowed from script".into())
    }
    fn is_permitted(&mut self, _argv: &Argv) -> Option<bool> {
        None
    }
    fn log(&mut self, level: i64, text: &[u8]) {
        self.engine.host.script_logs(level, text);
    }
    fn may_continue(&mut self, steps: u64, _vm_bytes: usize) -> bool {
        self.steps += steps;
        let took_us = self.engine.host.mono_us().saturating_sub(self.began_us);
        self.steps < LOAD_STEPS_MAX && took_us < LOAD_US_MAX && !self.engine.scripts.stopping.load(Relaxed)
    }
}
