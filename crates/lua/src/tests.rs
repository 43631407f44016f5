//! Quick functions and runners on an interpreter of their own. The tests of `strand-script` have the conversions.

use super::*;
use mlua::{Error, Function, Lua, MultiValue, Table, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A quick function. Its first argument says what it answers, the second is the value.
struct Probe;

impl Quick for Probe {
    fn answer(values: &Values<'_>, text: &mut Short) -> Answer {
        let mut given = values.iter();
        let Some(Some(Plain::Text(wanted))) = given.next() else { return Answer::Slow };
        if wanted == b"count" {
            // How many arguments there are, and the sum of all numbers.
            let sum: f64 =
                given.map(|value| if let Some(Plain::Number(number)) = value { number } else { 0.0 }).sum();
            assert!(text.set(format!("{} {} {sum}", values.len(), values.is_empty()).as_bytes()));
            return Answer::Text;
        }
        match (wanted, given.next().flatten()) {
            (b"text", Some(Plain::Text(value))) if text.set(value) => Answer::Text,
            (b"status", Some(Plain::Text(value))) if text.set(value) => Answer::Status,
            (b"number", Some(Plain::Number(number))) => Answer::Number(number),
            (b"bool", Some(Plain::Bool(yes))) => Answer::Bool(yes),
            (b"nil", None | Some(Plain::Nil)) => Answer::Nil,
            (b"finish", _) => Answer::Finish,
            (b"panic", _) => panic!("on purpose"),
            _ => Answer::Slow,
        }
    }
}

/// The slow function: raises an error without arguments, and for `fail`. Otherwise returns its arguments as a table.
fn slow(lua: &Lua, values: MultiValue) -> mlua::Result<Value> {
    match values.front() {
        None => Err(Error::runtime("finished")),
        Some(Value::String(text)) if text.as_bytes() == *b"fail" => Err(Error::runtime("failed")),
        _ => Ok(Value::Table(lua.create_sequence_from(values)?)),
    }
}

fn lua() -> Lua {
    let lua = Lua::new();
    let f = quick::<Probe>(&lua, slow).expect("memory");
    lua.globals().set("f", f).expect("memory");
    lua
}

fn eval(lua: &Lua, chunk: &str) -> String {
    let shown: String =
        lua.load(chunk).set_name("=chunk").eval().unwrap_or_else(|error| format!("error: {error}"));
    shown.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn values_convert_to_lua_and_back() {
    let lua = lua();
    for (chunk, want) in [
        ("return f('text', 'x')", "x"),
        ("return f('text', '')", ""),
        ("return tostring(f('text', 'a\\0b\\255') == 'a\\0b\\255')", "true"),
        ("return #f('text', ('x'):rep(1024))", "1024"),
        ("return f('number', 2.5) .. type(f('number', 2.5))", "2.5number"),
        ("return f('number', -3) .. ''", "-3"),
        ("return tostring(1 / f('number', -0.0))", "-inf"),
        ("return tostring(f('bool', true)) .. tostring(f('bool', false))", "truefalse"),
        ("return tostring(f('nil')) .. select('#', f('nil', nil))", "nil1"),
        ("local t = f('status', 'fine') return t.ok .. type(next(t, 'ok'))", "finenil"),
        ("return f('count', 1, '2', {}, 3, nil)", "6 false 4"),
    ] {
        assert_eq!(eval(&lua, chunk), want, "{chunk}");
    }
}

#[test]
fn slow_function_gets_calls_that_are_not_plain() {
    let lua = lua();
    for (chunk, want) in [
        // Too long for the buffer.
        ("local t = f('text', ('x'):rep(1025)) return #t .. t[1] .. #t[2]", "2text1025"),
        ("return #f({}, 'x')", "2"),
        ("return select(2, pcall(f, 'finish', 'x')) .. ''", "error: runtime error: chunk:1: "),
        ("local ok, e = pcall(f, 'finish') return tostring(ok) .. tostring(e):sub(-8)", "falsefinished"),
        ("local ok, e = pcall(f, 'fail') return tostring(ok) .. tostring(e):sub(-6)", "falsefailed"),
        ("local ok, e = pcall(f) return tostring(ok) .. tostring(e):sub(-8)", "falsefinished"),
        ("return coroutine.wrap(function(...) return #f(...) end)({}, 2, 3)", "3"),
        ("return coroutine.wrap(function(...) return f(...) end)('text', 'inside')", "inside"),
    ] {
        assert!(eval(&lua, chunk).starts_with(want), "{chunk}: {}", eval(&lua, chunk));
    }
}

#[test]
fn an_error_of_the_slow_function_is_raised_one_level_below_the_caller() {
    let lua = lua();
    let levels = lua
        .create_function(|lua, _: Value| {
            let line = |level| lua.inspect_stack(level, |debug| debug.current_line()).flatten();
            Ok(format!("{:?} {:?}", line(1), line(2)))
        })
        .expect("memory");
    lua.globals().set("levels", levels).expect("memory");
    let chunk = "\n\nreturn select(2, xpcall(function()\n local x = f('fail') return x end, levels))";
    assert_eq!(eval(&lua, chunk), "None Some(4)");
}

#[test]
fn panic_crosses_lua_and_the_state_stays_usable() {
    let lua = lua();
    for chunk in [
        "f('panic')",
        "coroutine.wrap(function() f('panic') end)()",
        "string.gsub('a', 'a', function() f('panic') end)",
    ] {
        let run = || lua.load(chunk).exec();
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"), "{chunk}");
        assert_eq!(eval(&lua, "return f('text', 'after')"), "after");
    }
}

#[test]
fn many_arguments_fit_as_far_as_lua_passes_them() {
    let lua = lua();
    let chunk = |n| format!("local t = {{}} for i = 1, {n} do t[i] = i end return f('count', unpack(t))");
    assert_eq!(eval(&lua, &chunk(7900)), "7901 false 31208950");
    assert!(eval(&lua, &chunk(10_000)).contains("too many results to unpack"));
    let chunk = "local t = {{}} for i = 1, 7900 do t[i + 1] = i end return #f(unpack(t)) .. ''";
    assert_eq!(eval(&lua, chunk), "7901");
}

#[test]
fn missing_memory_is_an_error_and_no_end() {
    let lua = lua();
    for kind in ["text", "status"] {
        lua.gc_collect().expect("a collection");
        lua.set_memory_limit(lua.used_memory() + (1 << 20)).expect("a limit");
        let chunk = format!("local t = {{}} for i = 1, 1e6 do t[i] = f('{kind}', ('x'):rep(1000) .. i) end");
        let error = lua.load(&chunk).exec().expect_err("no memory is left");
        assert!(matches!(error, Error::MemoryError(_)), "{error}");
        // A script may catch the error.
        let caught = format!("local ok, e = pcall(function() {chunk} end) return e");
        lua.gc_collect().expect("a collection");
        assert_eq!(eval(&lua, &caught), "not enough memory");
        lua.set_memory_limit(0).expect("a limit");
        assert_eq!(eval(&lua, "return f('text', 'after')"), "after");
    }
}

/// A runner whose handler puts `handled: ` before the error.
fn runner(lua: &Lua) -> Runner {
    let handler: Function =
        lua.load("return function(e) return 'handled: ' .. tostring(e) end").eval().expect("a function");
    Runner::new(lua, &lua.globals(), &handler).expect("memory")
}

fn is_false(lua: &Lua, global: &str) -> bool {
    matches!(lua.globals().raw_get(global), Ok(Value::Boolean(false)))
}

fn ended(lua: &Lua, runner: &Runner, passed: Passed, chunk: &str, keys: &[&[u8]]) -> String {
    let function = lua.load(chunk).set_name("=chunk").into_function().expect("a chunk");
    let args: [&[u8]; 2] = [b"", b"a\0b"];
    let shown = runner.run(&function, passed, keys, &args, |ended| match ended {
        Ended::Plain(Plain::Text(text)) => format!("'{}'", text.escape_ascii()),
        Ended::Plain(plain) => format!("{plain:?}"),
        Ended::Value(value) => value.type_name().to_owned(),
        Ended::Error(error) => error.to_string().expect("a text"),
    });
    shown.unwrap_or_else(|error| format!("error: {error}"))
}

#[test]
fn keys_and_arguments_reach_a_script_and_its_result_comes_back() {
    let lua = lua();
    let runner = runner(&lua);
    for (chunk, want) in [
        ("return KEYS[1]", "'k1'"),
        ("return #KEYS .. #ARGV", "'22'"),
        ("return ARGV[1] .. ARGV[2]", "'a\\x00b'"),
        ("return select('#', ...)", "Number(0.0)"),
        ("return true", "Bool(true)"),
        ("return", "Nil"),
        ("return 1, 2", "Number(1.0)"),
        ("return KEYS", "table"),
        ("return ('x'):rep(1025)", "string"),
        ("return print", "function"),
        ("error('no')", "handled: chunk:1: no"),
        ("error({})", "handled: table: "),
        ("f('fail')", "handled: "),
        ("KEYS = nil return KEYS", "Nil"),
        ("local function f() return 1 + f() end return f()", "handled: "),
    ] {
        let shown = ended(&lua, &runner, Passed::Globals, chunk, &[b"k1", b"k2"]);
        assert!(shown.starts_with(want), "{chunk}: {shown}");
        for name in ["KEYS", "ARGV"] {
            assert!(is_false(&lua, name), "after {chunk}");
        }
    }
    let chunk = "local keys, args = ... return keys[1] .. #args .. tostring(KEYS)";
    assert_eq!(ended(&lua, &runner, Passed::Arguments, chunk, &[b"k"]), "'k2false'");
    let many: Vec<&[u8]> = vec![b"key"; 10_000];
    assert_eq!(ended(&lua, &runner, Passed::Globals, "return #KEYS", &many), "Number(10000.0)");
    let function: Table = lua.load("return {KEYS, ARGV}").eval().expect("a table");
    assert_eq!(function.raw_len(), 2);
}

#[test]
fn a_script_in_a_script_has_its_own_result() {
    let lua = lua();
    let inner = runner(&lua);
    let nested =
        lua.create_function(move |lua, ()| Ok(ended(lua, &inner, Passed::Arguments, "return 'in'", &[])));
    lua.globals().set("nested", nested.expect("memory")).expect("memory");
    let outer = runner(&lua);
    assert_eq!(ended(&lua, &outer, Passed::Globals, "return nested() .. KEYS[1]", &[b"k"]), "'\\'in\\'k'");
}

#[test]
fn missing_memory_for_the_tables_leaves_no_keys() {
    let lua = lua();
    let runner = runner(&lua);
    let long = vec![b'x'; 1 << 20];
    lua.gc_collect().expect("a collection");
    lua.set_memory_limit(lua.used_memory() + (1 << 18)).expect("a limit");
    let function = lua.load("return 1").into_function().expect("a chunk");
    let ended = runner.run(&function, Passed::Globals, &[b"k"], &[&long], |_| ());
    assert!(matches!(ended, Err(Error::MemoryError(_))), "{ended:?}");
    assert!(is_false(&lua, "KEYS"));
    lua.set_memory_limit(0).expect("a limit");
    assert_eq!(runner.run(&function, Passed::Globals, &[], &[], |_| 7).ok(), Some(7));
}

#[test]
fn a_short_text_holds_what_fits() {
    let mut text = Short::new();
    assert_eq!(text.as_bytes(), b"");
    assert!(text.set(b"a\0b") && text.as_bytes() == b"a\0b");
    assert_eq!(format!("{text:?}"), "Short(a\\x00b)");
    let long = [7; SHORT_MAX + 1];
    assert!(!text.set(&long) && text.as_bytes() == b"a\0b");
    assert!(text.set(&long[1..]) && text.as_bytes() == &long[1..]);
    assert!(text.set(b"") && text.as_bytes().is_empty());
}
