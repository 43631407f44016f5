//! `bit`: LuaBitOp 1.0.2 on 32-bit words.

use crate::args::Args;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// 2^52 + 2^51. When this is added to a double, the low bits of the sum are the number modulo 2^32, rounded to
/// nearest.
const TO_LOW_WORD: f64 = 6_755_399_441_055_744.0;

/// Creates the table `bit`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    macro_rules! function {
        ($name:literal, $run:expr) => {
            library
                .set($name, lua.create_function(|lua, values: MultiValue| $run(&Args::new(lua, values)))?)?;
        };
    }
    function!("tobit", |args: &Args<'_>| Ok(number(word(args, 1)?)));
    function!("bnot", |args: &Args<'_>| Ok(number(!word(args, 1)?)));
    function!("bswap", |args: &Args<'_>| Ok(number(word(args, 1)?.swap_bytes())));
    function!("band", |args: &Args<'_>| fold(args, |a, b| a & b));
    function!("bor", |args: &Args<'_>| fold(args, |a, b| a | b));
    function!("bxor", |args: &Args<'_>| fold(args, |a, b| a ^ b));
    function!("lshift", |args: &Args<'_>| shift(args, |a, n| a << n));
    function!("rshift", |args: &Args<'_>| shift(args, |a, n| a >> n));
    function!("arshift", |args: &Args<'_>| shift(args, |a, n| ((a as i32) >> n) as u32));
    function!("rol", |args: &Args<'_>| shift(args, u32::rotate_left));
    function!("ror", |args: &Args<'_>| shift(args, u32::rotate_right));
    function!("tohex", to_hex);
    Ok(library)
}

fn word(args: &Args<'_>, n: usize) -> Result<u32> {
    Ok((args.number(n)? + TO_LOW_WORD).to_bits() as u32)
}

fn number(word: u32) -> f64 {
    f64::from(word as i32)
}

fn fold(args: &Args<'_>, operation: fn(u32, u32) -> u32) -> Result<f64> {
    let first = word(args, 1)?;
    (2..=args.len()).try_fold(first, |all, n| Ok(operation(all, word(args, n)?))).map(number)
}

fn shift(args: &Args<'_>, operation: fn(u32, u32) -> u32) -> Result<f64> {
    Ok(number(operation(word(args, 1)?, word(args, 2)? & 31)))
}

fn to_hex(args: &Args<'_>) -> Result<Value> {
    let word_ = word(args, 1)?;
    let digits = if args.get(2).is_none() { 8 } else { word(args, 2)? as i32 };
    let text = format!("{word_:08x}");
    let text = if digits < 0 { text.to_uppercase() } else { text };
    let shown = digits.unsigned_abs().min(8) as usize;
    Ok(Value::String(args.lua.create_string(&text[8 - shown..])?))
}
