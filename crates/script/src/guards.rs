//! Guards for C functions of Lua that no hook can interrupt, and that Lua's authors did not write for hostile arguments.
//!
//! `unpack` computes the number of its results as a C `int`. With `unpack({}, -2147483648, 2147483647)` that number
//! overflows, and the process ends. `table.insert`, `table.remove`, `table.sort`, `table.concat`, `table.maxn`,
//! `table.foreach` and `table.foreachi` are loops over the table, so their steps are counted before they run.
//! Each coroutine counts its instructions from zero, so creating one counts, too.

use crate::args::Args;
use crate::convert::to_c_integer;
use crate::errors::{self, Thrown};
use crate::sandbox::PRELUDE;
use crate::state;
use crate::vm::hook::FULL_PACE_BYTES;
use mlua::{Lua, MultiValue, Result, Table, Value};
use strand_lua::{Answer, Plain, Quick, Short, Values, guard};

/// Maximum number of results that fits into a C `int`. Lua itself refuses more than 8,000.
const RESULTS_MAX: i64 = i32::MAX as i64;
/// Maximum number of elements that `table.insert` may move. More elements do not fit into an interpreter's memory.
const MOVED_MAX: i64 = 1 << 26;
/// Memory of an entry of a table whose key is not 1, 2, 3 and so on, in bytes.
const ENTRY_BYTES: usize = 40;
/// Steps that the creation of a coroutine counts. A coroutine with fewer instructions than the hook waits for is never
/// hooked.
const COROUTINE_STEPS: usize = 100;

/// Puts the guards in place of the functions in `base`, `table` and `coroutine`.
pub(crate) fn install(lua: &Lua, base: &Table, table: &Table, coroutine: &Table) -> Result<()> {
    let too_many =
        |lua: &Lua, _: MultiValue| Err::<Value, _>(errors::error(lua, "too many results to unpack"));
    base.set("error", guard::<RaisedAt>(lua, base.get("error")?, raise_at)?)?;
    base.set("unpack", guard::<Unpack>(lua, base.get("unpack")?, too_many)?)?;
    table.set("insert", guard::<Insert>(lua, table.get("insert")?, end)?)?;
    table.set("sort", guard::<Sort>(lua, table.get("sort")?, end)?)?;
    table.set("remove", guard::<Remove>(lua, table.get("remove")?, end)?)?;
    table.set("maxn", guard::<Maxn>(lua, table.get("maxn")?, end)?)?;
    for name in ["concat", "foreach", "foreachi"] {
        table.set(name, guard::<Walk>(lua, table.get(name)?, end)?)?;
    }
    for name in ["create", "wrap"] {
        coroutine.set(name, guard::<Coroutine>(lua, coroutine.get(name)?, end)?)?;
    }
    Ok(())
}

/// The end of a call that was refused.
fn end(_: &Lua, _: MultiValue) -> Result<Value> {
    match state::is_stopped() {
        true => Err(state::stop()),
        false => Err(Thrown::Text(b"not enough memory".to_vec()).into()),
    }
}

/// Argument `n` as Lua's C functions read an `int`. `None`: a missing argument, or one that is no number. A guard must
/// read the number exactly as C does: C also reads texts like `0x10`, and the part of a text before a zero byte.
fn int(values: &Values<'_>, n: i32) -> Option<i64> {
    // C takes the low 32 bits of the number as 64 bits.
    values.c_number(n).map(int_of)
}

fn int_of(number: f64) -> i64 {
    i64::from(to_c_integer(number) as i32)
}

/// `error (message [, level])`, of which Lua's own version would count the frames of the prelude.
struct RaisedAt;

impl Quick for RaisedAt {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        let is_text = matches!(values.iter().next(), Some(Some(Plain::Text(_) | Plain::Number(_))));
        // Below level 3 there is no frame of the prelude, except for `pcall(error, text, 2)`.
        if is_text && int(values, 2).is_some_and(|level| level > 2) { Answer::Slow } else { Answer::Original }
    }
}

/// Raises the text with the position of a function that called the script's function.
fn raise_at(lua: &Lua, values: MultiValue) -> Result<Value> {
    let args = Args::new(lua, values);
    // Level 0 is this function, and level 1 the guard.
    let (mut at, mut left) = (2, int_of(args.number(2)?) - 1);
    while let Some((_, source, _)) = errors::source_and_line(lua, at) {
        state::charge(1)?;
        if source != PRELUDE {
            left -= 1;
        }
        if left < 0 {
            break;
        }
        at += 1;
    }
    Err(errors::error_at(lua, at, &*args.string(1)?.as_bytes()))
}

/// `unpack (list [, i [, j]])`
struct Unpack;

impl Quick for Unpack {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        let first = int(values, 2).unwrap_or(1);
        let last = int(values, 3).unwrap_or_else(|| values.table_len(1) as i64);
        if last - first >= RESULTS_MAX { Answer::Slow } else { Answer::Original }
    }
}

/// `table.insert (table, [pos,] value)`
struct Insert;

impl Quick for Insert {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        if values.len() != 3 {
            return Answer::Original;
        }
        let moved = int(values, 2).map_or(0, |at| values.table_len(1) as i64 + 1 - at);
        if moved > MOVED_MAX { Answer::Slow } else { counted(moved.max(0) as usize) }
    }
}

/// `table.sort (table [, comp])`
struct Sort;

impl Quick for Sort {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        let len = values.table_len(1);
        counted(len * (len | 1).ilog2() as usize)
    }
}

/// `table.remove (table [, pos])`
struct Remove;

impl Quick for Remove {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        let len = values.table_len(1) as i64;
        let moved = int(values, 2).map_or(0, |at| if at >= 1 { len - at } else { 0 });
        counted(moved.max(0) as usize)
    }
}

/// `table.maxn (table)`
struct Maxn;

impl Quick for Maxn {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        // Lua does not say how many entries have other keys than 1, 2, 3 and so on. In a large interpreter there may be many.
        let used_bytes = state::used_bytes();
        let entries = if used_bytes > FULL_PACE_BYTES { used_bytes / ENTRY_BYTES } else { 0 };
        counted(values.table_len(1) + entries)
    }
}

/// A function that visits the elements 1, 2, 3 and so on of its first argument. `table.foreach` visits others, too, and
/// calls a function for each of them.
struct Walk;

impl Quick for Walk {
    fn answer(values: &Values<'_>, _: &mut Short) -> Answer {
        counted(values.table_len(1))
    }
}

/// `coroutine.create (f)` and `coroutine.wrap (f)`
struct Coroutine;

impl Quick for Coroutine {
    fn answer(_: &Values<'_>, _: &mut Short) -> Answer {
        counted(COROUTINE_STEPS)
    }
}

/// Counts the steps of a call.
fn counted(steps: usize) -> Answer {
    match state::count_steps(steps.min(u32::MAX as usize) as u32) {
        true => Answer::Original,
        false => Answer::Slow,
    }
}
