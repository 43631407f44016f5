//! [`ScriptCall`]: the script and the keys of a call of EVAL or FCALL.

use super::{ScriptCommand, ScriptSource};
use crate::Engine;
use crate::scripts::functions::Function;
use crate::scripts::run::ScriptRun;
use crate::scripts::{CachedScript, Interpreter, Routes};
use smallvec::SmallVec;
use std::sync::Arc;
use strand_commands::errors;
use strand_keyspace::KeyHash;
use strand_keyspace::types::string::parse_int;
use strand_script::{Input, RunEnd, Script, ScriptFlags, VmLimits, compile_error, sha_of};
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// The script or function that a call runs.
enum Callable {
    Script(Arc<CachedScript>),
    Function(Function),
}

/// A call of EVAL or FCALL with valid arguments.
pub(in crate::session) struct ScriptCall {
    callable: Callable,
    /// The keys are the arguments from index 3 to before this index.
    keys_end: usize,
    /// True when the command is read-only.
    pub(super) read_only: bool,
}

/// Number of hexadecimal digits of a script's digest.
const DIGEST_LEN: usize = 40;
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

impl ScriptCall {
    /// Finds the script or function of the arguments.
    ///
    /// # Errors
    /// The whole text of the error reply.
    pub(super) fn of(
        engine: &Engine,
        command: ScriptCommand,
        args: Args<'_>,
    ) -> Result<ScriptCall, ErrorText> {
        let (is_function, read_only) = (command.by == ScriptSource::Function, command.read_only);
        let function = match is_function {
            true => Some(engine.scripts.functions.read().find(args.at(1)).ok_or("ERR Function not found")?),
            false => None,
        };
        if command.by == ScriptSource::Digest && args.at(1).len() != DIGEST_LEN {
            return Err(NO_SCRIPT.into());
        }
        let number = parse_int(args.at(2));
        let number = number.ok_or(if is_function {
            "ERR Bad number of keys provided"
        } else {
            errors::NOT_AN_INTEGER
        })?;
        if number > args.len() as i64 - 3 {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        if number < 0 {
            return Err("ERR Number of keys can't be negative".into());
        }
        let callable = match function {
            Some(function) => Callable::Function(function),
            None => Callable::Script(script(engine, command, args.at(1))?),
        };
        let script_call = ScriptCall { callable, keys_end: 3 + number as usize, read_only };
        let flags = script_call.flags();
        if read_only && !flags.compatible && !flags.no_writes {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        Ok(script_call)
    }
    /// True when the script may write nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.flags().no_writes
    }
    pub(super) fn flags(&self) -> ScriptFlags {
        match &self.callable {
            Callable::Script(cached) => cached.script.flags,
            Callable::Function(function) => function.info.flags,
        }
    }
    pub(super) fn routes(&self) -> &Routes {
        match &self.callable {
            Callable::Script(cached) => &cached.routes,
            Callable::Function(function) => &function.routes,
        }
    }
    /// Length in bytes of the text that an interpreter compiles before its first run.
    pub(super) fn text_bytes(&self) -> usize {
        match &self.callable {
            Callable::Script(cached) => cached.script.text_bytes(),
            Callable::Function(function) => function.library.code.len(),
        }
    }
    pub(super) fn name(&self) -> String {
        match &self.callable {
            Callable::Script(cached) => cached.script.sha.clone(),
            Callable::Function(function) => String::from_utf8_lossy(&function.info.name).into_owned(),
        }
    }
    pub(super) fn is_function(&self) -> bool {
        matches!(self.callable, Callable::Function(_))
    }
    /// The shards of the declared keys, ascending.
    pub(super) fn declared(&self, engine: &Engine, args: Args<'_>) -> SmallVec<[usize; 8]> {
        let keyspace = &engine.keyspace;
        let hashes: SmallVec<[KeyHash; 8]> =
            (3..self.keys_end).map(|i| keyspace.key(args.at(i)).hash).collect();
        keyspace.shards_of(&hashes)
    }
    /// The error when the script may not start.
    fn refusal(&self, out_of_memory: bool) -> Option<&'static str> {
        let flags = self.flags();
        let refused = out_of_memory && !flags.compatible && !flags.allow_oom && !self.is_read_only();
        refused.then_some(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        )
    }
    /// Runs the script with `run`. At the end writes the reply to `reply`.
    pub(super) fn run(
        &self,
        vm: &mut Interpreter,
        args: Args<'_>,
        limits: VmLimits,
        run: &mut ScriptRun<'_, '_>,
        reply: &mut Reply<'_>,
    ) -> RunEnd {
        if let Some(text) = self.refusal(run.out_of_memory) {
            reply.error(text);
            return RunEnd::Done;
        }
        let keys = (3..self.keys_end).map(|i| args.at(i));
        let rest = (self.keys_end..args.len()).map(|i| args.at(i));
        let input = Input { keys, args: rest, limits };
        match &self.callable {
            Callable::Script(cached) => vm.vm.run(&cached.script, input, run, reply),
            Callable::Function(function) => {
                vm.vm.call(&function.library, &function.info.name, input, run, reply)
            }
        }
    }
}

/// The flags of the script or function that a command names: of a text, a digest or a name. `None`: there is none, or it
/// is a text that declares no flags.
pub(super) fn declared_flags(engine: &Engine, command: ScriptCommand, named: &[u8]) -> Option<ScriptFlags> {
    match command.by {
        ScriptSource::Function => Some(engine.scripts.functions.read().find(named)?.info.flags),
        ScriptSource::Digest => Some(engine.scripts.find(named)?.script.flags),
        ScriptSource::Text if !named.starts_with(b"#!") => None,
        ScriptSource::Text => Some(Script::new(named).ok()?.flags),
    }
}

/// The script of EVAL or EVALSHA.
fn script(engine: &Engine, command: ScriptCommand, text: &[u8]) -> Result<Arc<CachedScript>, ErrorText> {
    if command.by == ScriptSource::Digest {
        return engine.scripts.find(text).ok_or_else(|| NO_SCRIPT.into());
    }
    load(engine, text, false)
}

/// Reads, compiles and keeps a script.
pub(in crate::session) fn load(
    engine: &Engine,
    text: &[u8],
    by_load: bool,
) -> Result<Arc<CachedScript>, ErrorText> {
    if !by_load && let Some(cached) = engine.scripts.find(sha_of(text).as_bytes()) {
        return Ok(cached);
    }
    let script = Script::new(text).map_err(|text| [b"ERR ", &text[..]].concat())?;
    let mut vm = engine.scripts.take_interpreter()?;
    let compiled = vm.vm.compile(&script);
    engine.scripts.return_interpreter(vm);
    compiled.map_err(|text| compile_error(&text))?;
    engine.scripts.keep(script, by_load)
}
