//! `string.find`, `match`, `gmatch`, `gsub`, `rep`, `format` and more: as in Lua 5.1, with a budget.
//!
//! Lua's own versions are C functions that no hook can interrupt. The functions here count steps, and bound what they
//! produce.

use crate::args::Args;
use crate::errors::Thrown;
use crate::pattern::{Capture, Matcher, Stop};
use crate::state;
use crate::vm::hook;
use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};

const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Replaces the functions of the string table that may take long. `matches`: see [`gmatch`].
pub(crate) fn install(lua: &Lua, string: &Table, matches: Function) -> Result<()> {
    let format: Function = string.get("format")?;
    string.set("find", lua.create_function(|lua, args| find_or_match(lua, args, true))?)?;
    string.set("match", lua.create_function(|lua, args| find_or_match(lua, args, false))?)?;
    let gmatch = gmatch(lua, matches)?;
    string.set("gfind", gmatch.clone())?;
    string.set("gmatch", gmatch)?;
    string.set("gsub", lua.create_function(gsub)?)?;
    string.set("rep", lua.create_function(rep)?)?;
    // Charge once before the call, because the work of this function grows with the length of its arguments.
    string.set(
        "format",
        lua.create_function(move |lua, values: MultiValue| self::format(lua, &format, values))?,
    )?;
    for name in ["lower", "upper", "reverse", "byte", "len", "sub", "char", "dump"] {
        debug_assert!(string.contains_key(name)?, "Lua has it");
    }
    Ok(())
}

fn stop_error(args: &Args<'_>, stop: Stop) -> mlua::Error {
    match stop {
        Stop::Malformed(text) => args.error(text),
        Stop::Budget => state::stop(),
    }
}

fn capture_value(lua: &Lua, capture: Capture<'_>) -> Result<Value> {
    Ok(match capture {
        Capture::Text(text) => Value::String(lua.create_string(text)?),
        Capture::Position(at) => Value::Number(at as f64),
    })
}

/// The captures of a match as Lua values. With `whole`, a pattern without captures yields the whole match.
fn captures(
    args: &Args<'_>,
    m: &Matcher<'_, '_>,
    start: usize,
    end: usize,
    whole: bool,
) -> Result<Vec<Value>> {
    let n = if m.captures() == 0 && whole { 1 } else { m.captures() };
    let capture = |i| m.capture(i, start, end).map_err(|stop| stop_error(args, stop));
    (0..n).map(|i| capture_value(args.lua, capture(i)?)).collect()
}

/// Runs `string.find` (`with_positions`) or `string.match`.
fn find_or_match(lua: &Lua, values: MultiValue, with_positions: bool) -> Result<MultiValue> {
    let args = Args::new(lua, values);
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let (s, p) = (&*subject.as_bytes(), &*pattern.as_bytes());
    let init = start_index(args.int_or(3, 1)?, s.len());
    let plain = args.get(4).is_some_and(|v| !matches!(v, Value::Nil | Value::Boolean(false)));
    if with_positions && (plain || !p.iter().any(|c| SPECIALS.contains(c))) {
        state::charge(s.len() - init)?;
        let Some(at) = find_plain(&s[init..], p) else { return Ok(nil()) };
        let start = init + at + 1;
        return Ok([start, start + p.len() - 1].map(|n| Value::Number(n as f64)).into_iter().collect());
    }
    let (anchored, rest) = p.strip_prefix(b"^").map_or((false, p), |rest| (true, rest));
    let mut budget = state::count_steps;
    let mut m = Matcher::new(s, rest, &mut budget);
    for at in init..=s.len() {
        if let Some(end) = m.match_at(at).map_err(|stop| stop_error(&args, stop))? {
            state::charge(m.uncounted_steps())?;
            let found = captures(&args, &m, at, end, !with_positions)?;
            let positions = if with_positions { vec![at + 1, end] } else { Vec::new() };
            return Ok(positions.into_iter().map(|n| Value::Number(n as f64)).chain(found).collect());
        }
        if anchored {
            break;
        }
    }
    state::charge(m.uncounted_steps())?;
    Ok(nil())
}

fn nil() -> MultiValue {
    [Value::Nil].into_iter().collect()
}

/// Index at which a search starts, counted from 0. Negative numbers count from the end.
fn start_index(init: i64, len: usize) -> usize {
    let init = if init < 0 { init.saturating_add(len as i64) } else { init.saturating_sub(1) };
    (init.max(0) as u64).min(len as u64) as usize
}

fn find_plain(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    memchr::memmem::find(text, wanted)
}

/// The next match of a loop over `gmatch`: the index at which the next search begins, then the captures. After the last
/// match there are no captures. The arguments
/// are the subject, the pattern, and the index at which the search begins, counted from 0. `gmatch` itself is a function of
/// the prelude, because Lua must hold the texts: an interpreter has room for only a few thousand references from Rust.
pub(crate) fn next_match(lua: &Lua, values: MultiValue) -> Result<MultiValue> {
    let args = Args::of_wrapper(lua, values);
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let from = args.int(3)?.max(0) as usize;
    let (s, p) = (&*subject.as_bytes(), &*pattern.as_bytes());
    let mut budget = state::count_steps;
    let mut m = Matcher::new(s, p, &mut budget);
    for start in from..=s.len() {
        if let Some(end) = m.match_at(start).map_err(|stop| stop_error(&args, stop))? {
            let next = if end == start { end + 1 } else { end };
            state::charge(m.uncounted_steps())?;
            let found = captures(&args, &m, start, end, true)?;
            return Ok(std::iter::once(Value::Number(next as f64)).chain(found).collect());
        }
    }
    state::charge(m.uncounted_steps())?;
    Ok([Value::Number(s.len() as f64 + 1.0)].into_iter().collect())
}

/// Makes `gmatch` of the prelude's `matches`, which makes an iterator of a subject and a pattern.
fn gmatch(lua: &Lua, matches: Function) -> Result<Function> {
    lua.create_function(move |lua, values: MultiValue| {
        let args = Args::new(lua, values);
        matches.call::<Function>((args.string(1)?, args.string(2)?))
    })
}

/// What `gsub` puts in place of a match.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(Function),
}

fn gsub(lua: &Lua, values: MultiValue) -> Result<(LuaString, f64)> {
    let args = Args::new(lua, values);
    let (subject, pattern) = (args.string(1)?, args.string(2)?);
    let (s, p) = (&*subject.as_bytes(), &*pattern.as_bytes());
    let replacement = match args.get(3) {
        Some(Value::Table(table)) => Replacement::Table(table.clone()),
        Some(Value::Function(function)) => Replacement::Function(function.clone()),
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => Replacement::Text(args.string(3)?),
        _ => return Err(args.bad(3, "string/function/table expected")),
    };
    let times = if args.is_none(4) { s.len() as i64 + 1 } else { args.int(4)? };
    let (anchored, rest) = p.strip_prefix(b"^").map_or((false, p), |rest| (true, rest));
    let mut budget = state::count_steps;
    let mut m = Matcher::new(s, rest, &mut budget);
    let (mut out, mut at, mut n) = (Vec::new(), 0, 0);
    while n < times {
        let found = m.match_at(at).map_err(|stop| stop_error(&args, stop))?;
        if let Some(end) = found {
            n += 1;
            replace(&args, &m, &replacement, s, at, end, &mut out)?;
        }
        match found {
            Some(end) if end > at => at = end,
            _ if at < s.len() => {
                out.push(s[at]);
                at += 1;
            }
            _ => break,
        }
        if anchored {
            break;
        }
    }
    state::charge(m.uncounted_steps())?;
    append(&mut out, &s[at.min(s.len())..])?;
    Ok((lua.create_string(out)?, n as f64))
}

/// Appends bytes, and counts them. A short replacement may name a long match very often, so the size is checked before
/// each part.
fn append(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    state::check_bytes(out.len().saturating_add(bytes.len()))?;
    state::charge(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends what takes the place of the match `start..end`.
fn replace(
    args: &Args<'_>,
    m: &Matcher<'_, '_>,
    replacement: &Replacement,
    s: &[u8],
    start: usize,
    end: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let lua = args.lua;
    let capture = |i| m.capture(i, start, end).map_err(|stop| stop_error(args, stop));
    let new = match replacement {
        Replacement::Text(text) => {
            let text = &*text.as_bytes();
            state::charge(text.len())?;
            state::check_bytes(out.len().saturating_add(text.len()))?;
            let mut rest = text.iter();
            while let Some(&c) = rest.next() {
                match c {
                    b'%' => match rest.next() {
                        Some(b'0') => append(out, &s[start..end])?,
                        Some(digit) if digit.is_ascii_digit() => match capture(usize::from(digit - b'1'))? {
                            Capture::Text(text) => append(out, text)?,
                            Capture::Position(at) => out.extend_from_slice(at.to_string().as_bytes()),
                        },
                        Some(&other) => out.push(other),
                        None => out.push(0),
                    },
                    c => out.push(c),
                }
            }
            return Ok(());
        }
        Replacement::Table(table) => table.get::<Value>(capture_value(lua, capture(0)?)?)?,
        Replacement::Function(function) => {
            let values: MultiValue = captures(args, m, start, end, true)?.into_iter().collect();
            match crate::errors::call(lua, function, values)? {
                Ok(value) => value,
                Err(raised) => return Err(crate::errors::raise(lua, raised)?),
            }
        }
    };
    match new {
        Value::Nil | Value::Boolean(false) => append(out, &s[start..end]),
        Value::String(text) => append(out, &text.as_bytes()),
        number @ (Value::Integer(_) | Value::Number(_)) => match lua.coerce_string(number)? {
            Some(text) => append(out, &text.as_bytes()),
            None => Ok(()),
        },
        other => {
            let kind = crate::args::type_name(&other);
            Err(args.error(format!("invalid replacement value (a {kind})")))
        }
    }
}

fn rep(lua: &Lua, values: MultiValue) -> Result<LuaString> {
    let args = Args::new(lua, values);
    let (text, n) = (args.string(1)?, args.int(2)?.max(0));
    let text = &*text.as_bytes();
    let bytes = text.len().saturating_mul(n as usize);
    state::check_bytes(bytes)?;
    state::charge(bytes)?;
    hook::expect_text(lua, bytes)?;
    lua.create_string(text.repeat(n as usize))
}

fn format(lua: &Lua, format: &Function, values: MultiValue) -> Result<Value> {
    let bytes: usize = values
        .iter()
        .map(|v| match v {
            Value::String(text) => text.as_bytes().len(),
            _ => 1,
        })
        .sum();
    state::check_bytes(bytes)?;
    state::charge(bytes)?;
    // Make a new error with the script's position. Lua's own error has the position of the caller, which is a Rust
    // function without a position.
    format.call(values).map_err(|error| match error {
        mlua::Error::RuntimeError(text) => {
            let text = text.lines().next().unwrap_or_default().replacen("to '?'", "to 'format'", 1);
            crate::errors::error(lua, text)
        }
        mlua::Error::CallbackError { .. } | mlua::Error::MemoryError(_) => error,
        other => Thrown::Text(other.to_string().into_bytes()).into(),
    })
}
