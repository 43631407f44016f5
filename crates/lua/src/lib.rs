//! Functions for Lua that read their arguments on Lua's own stack and push their results there.
//!
//! A function of mlua gets its arguments as handles: each handle is a slot in a list, a reference count and a
//! destructor. A short script spends more time on handles than on its command. This crate has the two places where
//! each script passes: [`quick()`] makes a function such as `redis.call`, and a [`Runner`] passes keys and arguments
//! to a script and takes the script's result. Both handle plain values ([`Plain`]) in place. mlua converts tables,
//! errors and long texts, so each of these conversions has one implementation.
//!
//! **Errors and panics.** Lua raises an error with `longjmp`, which ends the frames above `lua_pcall`
//! without their destructors. So a function of this crate that calls a part of Lua that may raise an error has only
//! plain data in its frame at that moment: numbers, references and [`Short`], which has no destructor. The
//! callers' code ([`Quick::answer`]) runs in a frame that has ended by then. A panic never unwinds through Lua's
//! frames. The quick function catches the panic, and a function of mlua resumes it.
//!
//! **Invariant:** this crate knows nothing about the rest of Strand: no commands, no replies, no limits. Besides
//! `strand-chain`, `strand-pages` and `strand-ring` it is the only crate with `unsafe`: Lua's stack is reached by C
//! functions.

#[allow(unsafe_code)]
mod plain;
#[allow(unsafe_code)]
mod quick;
#[allow(unsafe_code)]
mod run;
#[allow(unsafe_code)]
mod stack;

pub use plain::{Plain, SHORT_MAX, Short};
pub use quick::{Answer, Quick, guard, quick};
pub use run::{Ended, Passed, Runner};
pub use stack::Values;

#[cfg(test)]
mod tests;
