//! Lua with Redis's environment: what EVAL and FCALL run in.
//!
//! A [`Vm`] is an interpreter in a sandbox: the globals of redis-server 7.0, which no script can change, with functions of our
//! own where Lua's would not end ([`pattern`]) or would get past the sandbox. A [`Script`] or a [`Library`] is plain data; each
//! interpreter compiles it when it first meets it. What a script asks of the server goes to a [`Host`].
//!
//! A run is bounded: the interpreter's memory by [`VM_BYTES_MAX`], its time by the host, which is asked after each few
//! thousand steps whether it goes on. A step is an instruction of Lua, a character that a pattern looks at, a byte that a
//! function makes. A stopped run cannot catch its own end.
//!
//! **Invariant:** knows nothing of the keyspace, sessions, threads or clocks; commands and their effects are the host's.
//! Left out: the debugger, and libraries in C.

mod args;
mod bits;
mod cjson;
mod cmsgpack;
mod convert;
mod errors;
mod load;
pub mod pattern;
mod redis;
mod sandbox;
mod shebang;
mod state;
mod strings;
mod structs;
mod vm;

pub use shebang::{ScriptFlags, library_name};
pub use state::{Called, Host};
pub use vm::{Ended, FunctionInfo, Input, Library, Limits, Script, VM_BYTES_MAX, Vm, compile_error, sha_of};
