//! Lua with Redis's environment, for EVAL and FCALL.
//!
//! A [`Vm`] is an interpreter in a sandbox. It has the globals of redis-server 7.0, which no script can change.
//! Strand replaces Lua's functions that would not end ([`pattern`]) or would escape the sandbox. A [`Script`] or a
//! [`Library`] is plain data, which each interpreter compiles at its first use. A script's commands go to a
//! [`Host`].
//!
//! A run is bounded. [`VM_BYTES_MAX`] bounds the interpreter's memory. The host bounds the time: every few
//! thousand steps it decides whether the run continues. A step is a Lua instruction, a character that a pattern
//! examines, or a byte that a function produces. A stopped run cannot catch its own end.
//!
//! **Invariant:** this crate knows nothing of the keyspace, sessions, threads or clocks. The host runs commands
//! and owns their effects. Left out: the debugger, and libraries in C.

mod args;
mod bits;
mod cjson;
mod cmsgpack;
mod convert;
mod errors;
mod guards;
mod load;
pub mod pattern;
mod redis;
mod sandbox;
mod shebang;
mod state;
mod strings;
mod structs;
mod vm;

pub use cjson::reset_cjson;
pub use shebang::{ScriptFlags, library_name};
pub use state::{CallOutcome, Host};
pub use vm::{
    FunctionInfo, Input, Library, RunEnd, Script, VM_BYTES_MAX, Vm, VmLimits, compile_error, sha_of,
};
