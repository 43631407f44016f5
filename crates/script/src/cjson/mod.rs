//! `cjson`: lua-cjson 2.1.0, as in redis-server. This file has the library's table and its settings, [`encode`] writes
//! JSON, and [`decode`] reads JSON.
//!
//! Left out: `encode_keep_buffer` has no effect, because there is no buffer to keep. As in redis-server, settings
//! hold for all scripts of EVAL until SCRIPT FLUSH, and other settings for all functions.

mod decode;
mod encode;

use crate::args::Args;
use crate::state::{self, CodeKind};
pub(crate) use encode::format_general;
use mlua::{LightUserData, Lua, MultiValue, Result, Table, Value};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// Maximum nesting, unless the script sets another maximum.
const DEPTH_MAX: i64 = 1000;
/// Upper limit of the nesting settings, because each level takes memory of the thread's stack.
const DEPTH_LIMIT: i64 = 1000;
/// Maximum number of digits with which a number is encoded.
const PRECISION_MAX: i64 = 14;

/// Settings of `cjson` that a script can change.
struct Settings {
    /// 0: off, 1: on, 2: write `null`.
    encode_invalid_numbers: AtomicI64,
    decode_invalid_numbers: AtomicI64,
    encode_max_depth: AtomicI64,
    decode_max_depth: AtomicI64,
    precision: AtomicI64,
    sparse_convert: AtomicI64,
    sparse_ratio: AtomicI64,
    sparse_safe: AtomicI64,
    keep_buffer: AtomicI64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            encode_invalid_numbers: 0.into(),
            decode_invalid_numbers: 1.into(),
            encode_max_depth: DEPTH_MAX.into(),
            decode_max_depth: DEPTH_MAX.into(),
            precision: PRECISION_MAX.into(),
            sparse_convert: 0.into(),
            sparse_ratio: 2.into(),
            sparse_safe: 10.into(),
            keep_buffer: 1.into(),
        }
    }
}

/// The settings that all interpreters share.
static SHARED: LazyLock<SettingsByKind> =
    LazyLock::new(|| SettingsByKind { of_scripts: Arc::default(), of_functions: Arc::default() });

/// The settings of scripts of EVAL, and of functions.
#[derive(Clone)]
struct SettingsByKind {
    of_scripts: Arc<Settings>,
    of_functions: Arc<Settings>,
}

impl SettingsByKind {
    /// The settings for the code that runs now.
    fn current(&self) -> &Settings {
        match state::kind() {
            CodeKind::Script => &self.of_scripts,
            CodeKind::Function => &self.of_functions,
        }
    }
}

/// SCRIPT FLUSH: the settings of scripts are the default ones again.
pub fn reset_cjson() {
    let (now, fresh) = (&*SHARED.of_scripts, Settings::default());
    for (setting, default) in [
        (&now.encode_invalid_numbers, fresh.encode_invalid_numbers),
        (&now.decode_invalid_numbers, fresh.decode_invalid_numbers),
        (&now.encode_max_depth, fresh.encode_max_depth),
        (&now.decode_max_depth, fresh.decode_max_depth),
        (&now.precision, fresh.precision),
        (&now.sparse_convert, fresh.sparse_convert),
        (&now.sparse_ratio, fresh.sparse_ratio),
        (&now.sparse_safe, fresh.sparse_safe),
        (&now.keep_buffer, fresh.keep_buffer),
    ] {
        setting.store(default.into_inner(), Relaxed);
    }
}

/// Creates the table `cjson`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    library_with(lua, &SHARED)
}

fn library_with(lua: &Lua, settings: &SettingsByKind) -> Result<Table> {
    let library = lua.create_table()?;
    macro_rules! function {
        ($name:literal, $run:expr) => {
            let shared = settings.clone();
            library.set(
                $name,
                lua.create_function(move |lua, values: MultiValue| {
                    let args = Args::new(lua, values);
                    $run(&args, shared.current())
                })?,
            )?;
        };
    }
    function!("encode", encode::encode);
    function!("decode", decode::decode);
    function!("encode_max_depth", |args: &Args<'_>, s: &Settings| integer_setting(
        args,
        &s.encode_max_depth,
        1,
        i64::from(i32::MAX)
    ));
    function!("decode_max_depth", |args: &Args<'_>, s: &Settings| integer_setting(
        args,
        &s.decode_max_depth,
        1,
        i64::from(i32::MAX)
    ));
    function!("encode_number_precision", |args: &Args<'_>, s: &Settings| integer_setting(
        args,
        &s.precision,
        1,
        PRECISION_MAX
    ));
    function!("encode_keep_buffer", |args: &Args<'_>, s: &Settings| switch_setting(
        args,
        &s.keep_buffer,
        false
    ));
    function!("encode_invalid_numbers", |args: &Args<'_>, s: &Settings| switch_setting(
        args,
        &s.encode_invalid_numbers,
        true
    ));
    function!("decode_invalid_numbers", |args: &Args<'_>, s: &Settings| switch_setting(
        args,
        &s.decode_invalid_numbers,
        false
    ));
    function!("encode_sparse_array", sparse_array);
    let new = |lua: &Lua, ()| {
        let own = Arc::<Settings>::default();
        library_with(lua, &SettingsByKind { of_scripts: own.clone(), of_functions: own })
    };
    library.set("new", lua.create_function(new)?)?;
    library.set("null", null())?;
    library.set("_NAME", "cjson")?;
    library.set("_VERSION", "2.1.0")?;
    Ok(library)
}

fn null() -> Value {
    Value::LightUserData(LightUserData(null_mut()))
}

fn one_argument(args: &Args<'_>) -> Result<()> {
    if args.len() > 1 { Err(args.bad(2, "found too many arguments")) } else { Ok(()) }
}

/// Reads a setting that is an integer, and sets it if the script gives a value.
fn integer_setting(args: &Args<'_>, setting: &AtomicI64, min: i64, max: i64) -> Result<Value> {
    one_argument(args)?;
    if !args.is_none(1) {
        let number = args.int(1)?;
        if !(min..=max).contains(&number) {
            return Err(args.bad(1, &format!("expected integer between {min} and {max}")));
        }
        setting.store(number, Relaxed);
    }
    Ok(Value::Number(setting.load(Relaxed) as f64))
}

/// Reads a setting that is off, on or `null`, and sets it if the script gives a value.
fn switch_setting(args: &Args<'_>, setting: &AtomicI64, allows_null: bool) -> Result<Value> {
    one_argument(args)?;
    set_switch(args, setting, allows_null)?;
    Ok(match setting.load(Relaxed) {
        2 => Value::String(args.lua.create_string("null")?),
        on => Value::Boolean(on == 1),
    })
}

fn set_switch(args: &Args<'_>, setting: &AtomicI64, allows_null: bool) -> Result<()> {
    let found = match args.get(1) {
        None | Some(Value::Nil) => return Ok(()),
        Some(Value::Boolean(on)) => i64::from(*on),
        Some(_) => match &*args.string(1)?.as_bytes() {
            b"off" => 0,
            b"on" => 1,
            b"null" if allows_null => 2,
            other => {
                let text = String::from_utf8_lossy(other);
                return Err(args.bad(1, &format!("invalid option '{text}'")));
            }
        },
    };
    setting.store(found, Relaxed);
    Ok(())
}

fn sparse_array(args: &Args<'_>, s: &Settings) -> Result<(bool, f64, f64)> {
    if args.len() > 3 {
        return Err(args.bad(4, "found too many arguments"));
    }
    set_switch(args, &s.sparse_convert, false)?;
    for (n, setting) in [(2, &s.sparse_ratio), (3, &s.sparse_safe)] {
        if !args.is_none(n) {
            let number = args.int(n)?;
            if !(0..=i64::from(i32::MAX)).contains(&number) {
                // As in redis-server, the text names argument 1 also for the others.
                return Err(args.bad(1, &format!("expected integer between 0 and {}", i32::MAX)));
            }
            setting.store(number, Relaxed);
        }
    }
    Ok((
        s.sparse_convert.load(Relaxed) == 1,
        s.sparse_ratio.load(Relaxed) as f64,
        s.sparse_safe.load(Relaxed) as f64,
    ))
}
