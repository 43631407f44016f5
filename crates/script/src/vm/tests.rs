//! Scripts on an interpreter alone. The server's tests compare them with redis-server.

use super::*;
use strand_chain::Chain;
use strand_wire::args::Argv;
use strand_wire::reply::Protocol;

/// A host that replies to every command with the command's arguments, and stops after some ticks.
struct Echo {
    ticks_left: u64,
}

impl Host for Echo {
    fn call(&mut self, argv: &Argv, _resp3: bool, out: &mut Chain) -> state::CallOutcome {
        let mut reply = Reply::new(out, Protocol::Resp2);
        reply.array(argv.len());
        argv.args().iter().for_each(|arg| reply.bulk(arg));
        state::CallOutcome::Replied
    }
    fn is_permitted(&mut self, _argv: &Argv) -> Option<bool> {
        Some(true)
    }
    fn log(&mut self, _level: i64, _text: &[u8]) {}
    fn may_continue(&mut self, _steps: u64, _vm_bytes: usize) -> bool {
        self.ticks_left = self.ticks_left.saturating_sub(1);
        self.ticks_left > 0
    }
}

const NO_LIMIT: VmLimits = VmLimits { soft_bytes: VM_BYTES_MAX, depth_max: 1000 };
/// The size of a lane thread's stack, because nesting takes memory of the stack.
const STACK_BYTES: usize = 16 << 20;

fn run_in(vm: &mut Vm, body: &str, ticks: u64) -> (RunEnd, String) {
    run_within(vm, body, ticks, NO_LIMIT)
}

fn run_within(vm: &mut Vm, body: &str, ticks: u64, limits: VmLimits) -> (RunEnd, String) {
    let script = Script::new(body.as_bytes()).expect("a script");
    let mut out = Chain::new();
    let mut host = Echo { ticks_left: ticks };
    let keys: [&[u8]; 1] = [b"k1"];
    let args: [&[u8]; 1] = [b"a1"];
    let input = Input { keys: keys.into_iter(), args: args.into_iter(), limits };
    let ended = vm.run(&script, input, &mut host, &mut Reply::new(&mut out, Protocol::Resp2));
    (ended, String::from_utf8_lossy(&out.slices().collect::<Vec<_>>().concat()).into_owned())
}

fn run(body: &str) -> String {
    let mut vm = Vm::new().expect("memory");
    let (ended, reply) = run_in(&mut vm, body, 1_000_000);
    assert_eq!(ended, RunEnd::Done, "{body}");
    reply
}

#[test]
fn values_go_both_ways() {
    assert_eq!(run("return {KEYS[1], ARGV[1], 3.9, true}"), "*4\r\n$2\r\nk1\r\n$2\r\na1\r\n:3\r\n:1\r\n");
    assert_eq!(run("return redis.call('a', 1, 2.5)"), "*3\r\n$1\r\na\r\n$1\r\n1\r\n$3\r\n2.5\r\n");
    assert_eq!(run("return {double=1.5}"), "$3\r\n1.5\r\n");
    let error = run("local t = nil; return t.x");
    assert!(
        error.starts_with("-ERR user_script:1: attempt to index local 't' (a nil value) script: "),
        "{error}"
    );
    assert!(error.ends_with(", on @user_script:1.\r\n"), "{error}");
}

thread_local! {
    /// Number of times that the hook was called.
    pub(super) static HOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The hook may run at any time, even in the cleanup between two runs. It must neither stay at every instruction
/// nor stop the cleanup.
#[test]
fn ten_thousand_short_runs_are_hooked_a_few_times() {
    const RUNS: usize = 10_000;
    let mut vm = Vm::new().expect("memory");
    HOOKS.set(0);
    for _ in 0..RUNS {
        let (ended, reply) = run_in(&mut vm, "table.insert(string, 'left') return #string", 1_000_000);
        assert_eq!((ended, reply.as_str()), (RunEnd::Done, ":1\r\n"));
    }
    assert!((1..RUNS / 5).contains(&HOOKS.get()), "{} times", HOOKS.get());
}

/// Attempts to leave something behind, or to reach protected data, in every way that Lua has.
#[test]
fn nothing_of_a_run_is_left_for_the_next() {
    let mut vm = Vm::new().expect("memory");
    for attempt in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "string.format = nil",
        "rawset(string, 'format', nil)",
        "getmetatable('').__index = nil",
        "rawset(getmetatable('').__index, 'len', nil)",
        "getmetatable('').__index.len = nil",
        "setmetatable(_G, {})",
        "setmetatable(string, {})",
        "redis.call = nil",
        "for k, v in pairs(_G) do if k == 'string' then v.len = nil end end",
        "for k in pairs(redis) do redis[k] = nil end",
        "getmetatable(_G).__index = nil",
        "getmetatable(redis).__index = nil",
        "rawset(getmetatable(_G), 'x', 1)",
        "loadstring('x = 1')()",
        "load(function() return nil end) x = 1",
        "coroutine.wrap(function() x = 1 end)()",
        "collectgarbage('stop')",
        "table.insert(redis, 'left') error('x')",
        "table.insert(_G, 'left') error('x')",
        "error(redis)",
        "_G['ta' .. 'ble'].insert(redis, 'left') error('x')",
        "loadstring('return ta' .. 'ble')().insert(redis, 'left') error('x')",
        "getmetatable('').__index['ta' .. 'ble'].insert(redis, 'left')",
        "coroutine['ta' .. 'ble'].insert(redis, 'left')",
        "local t = {} for k, v in pairs(string) do t[k] = v end t.len = nil error('x')",
    ] {
        run_in(&mut vm, attempt, 1_000_000);
        let (_, sane) = run_in(
            &mut vm,
            "return {('abc'):len(), string.format('%d', 1), type(redis.call), tostring(rawget(_G, 'x')), \
             tostring(rawget(redis, 1)), tostring(rawget(_G, 1)), \
             tostring(rawget(redis, 'line'))}",
            1000,
        );
        assert_eq!(
            sane,
            "*7\r\n:3\r\n$1\r\n1\r\n$8\r\nfunction\r\n$3\r\nnil\r\n$3\r\nnil\r\n$3\r\nnil\r\n$3\r\nnil\r\n",
            "{attempt}"
        );
    }
    for (attempt, text) in [
        ("return tostring(loadstring('\\27Lua'))", "$3\r\nnil\r\n"),
        ("return tostring(loadstring(string.dump(function() end)))", "$3\r\nnil\r\n"),
        ("return tostring(rawget(_G, 'dofile'))", "$3\r\nnil\r\n"),
        ("return tostring(rawget(_G, 'getfenv'))", "$3\r\nnil\r\n"),
        ("return tostring(rawget(_G, 'debug'))", "$3\r\nnil\r\n"),
        ("return tostring(rawget(_G, 'newproxy'))", "$3\r\nnil\r\n"),
        ("return tostring(rawget(_G, 'io'))", "$3\r\nnil\r\n"),
    ] {
        assert_eq!(run_in(&mut vm, attempt, 1000).1, text, "{attempt}");
    }
}

/// Each of these would run for hours or forever.
#[test]
fn a_run_that_is_stopped_ends_whatever_it_does() {
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(a_run_that_is_stopped_ends_whatever_it_does_here);
    thread.expect("a thread").join().expect("it passes");
}
fn a_run_that_is_stopped_ends_whatever_it_does_here() {
    let mut vm = Vm::new().expect("memory");
    for hostile in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(error) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "local function f() return f() end f()",
        "coroutine.wrap(function() while true do pcall(function() while true do end end) end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "string.find(('a'):rep(4000), ('a*'):rep(20) .. 'b')",
        "while true do pcall(string.find, ('a'):rep(4000), ('a*'):rep(20) .. 'b') end",
        "string.gsub(('a'):rep(4000), ('a-'):rep(20) .. 'b', '')",
        "for w in string.gmatch(('a'):rep(4000), ('a*'):rep(20) .. 'b') do end",
        "string.gsub(('x'):rep(1000000), '.*', ('%0'):rep(1000000), 1)",
        "string.gsub(('x'):rep(1000000), '(.*)', ('%1'):rep(1000000), 1)",
        "while true do redis.pcall('x') end",
        "while true do local s = ('x'):rep(1000000) end",
        "while true do collectgarbage() end",
        "while true do loadstring('return 1') end",
        "load(function() return 'x' end)",
        "local t = {} t[1] = t t[2] = t while true do pcall(cjson.encode, t) end",
        "table.sort({3, 2, 1, 5, 4}, function() while true do end end)",
        "setmetatable({}, {__index = function() while true do end end}).x = nil; \
         local y = setmetatable({}, {__index = function() while true do end end}).x",
        "while true do string.gsub('a', 'a', function() error('x') end) end",
        "local t = {} t[1] = t t[2] = t return t",
    ] {
        let (ended, reply) = run_in(&mut vm, hostile, 30);
        let is_error = ended == RunEnd::Done && reply.contains('-');
        assert!(matches!(ended, RunEnd::Stopped(_)) || is_error, "{hostile}: {reply:.200}");
        assert_eq!(run_in(&mut vm, "return 1", 1000).1, ":1\r\n", "after {hostile}");
    }
}

/// Each of these takes few instructions, and long in functions of C.
#[test]
fn loops_in_c_count_their_steps() {
    const TICKS: u64 = 100;
    let fill = "local t, f = {}, function() end for i = 1, 20000 do t[i] = 1 end";
    for body in [
        "for i = 1, 100 do table.remove(t, 1) end",
        "for i = 1, 100 do table.insert(t, 1, 1) end",
        "for i = 1, 100 do table.maxn(t) end",
        "for i = 1, 100 do table.foreachi(t, math.randomseed) end",
        "for i = 1, 100 do table.foreach(t, math.randomseed) end",
        "for i = 1, 20000 do coroutine.create(f) end",
        "for i = 1, 20000 do coroutine.wrap(f) end",
    ] {
        let mut vm = Vm::new().expect("memory");
        let (ended, reply) = run_in(&mut vm, &format!("{fill} {body}"), TICKS);
        assert!(matches!(ended, RunEnd::Stopped(_)), "{body}: {reply}");
        assert_eq!(run_in(&mut vm, "return 1", TICKS).1, ":1\r\n", "after {body}");
    }
    // `table.maxn` visits entries with any key.
    let fill_others = "local t = {} for i = 1, 1e5 do t[-i] = 1 end";
    for (body, is_stopped) in [("", false), ("for i = 1, 600 do table.maxn(t) end", true)] {
        let mut vm = Vm::new().expect("memory");
        let (ended, _) = run_in(&mut vm, &format!("{fill_others} {body}"), 5 * TICKS);
        assert_eq!(matches!(ended, RunEnd::Stopped(_)), is_stopped, "{body}");
    }
    // Calls that move nothing are as cheap as before.
    let (ended, _) = run_in(
        &mut Vm::new().expect("memory"),
        &format!("{fill} for i = 1, 10000 do t[#t + 1] = 1 table.remove(t) table.remove(t, -5) end"),
        TICKS,
    );
    assert_eq!(ended, RunEnd::Done);
}

#[test]
fn guarded_functions_have_lua_s_results_and_texts() {
    for (body, want) in [
        ("local t = {1, 2, 3} return {table.remove(t), table.remove(t, 1), #t}", "*3\r\n:3\r\n:1\r\n:1\r\n"),
        ("return select('#', table.remove({}, 1))", ":0\r\n"),
        ("return {select('#', table.remove({1}, 9)), table.maxn{1, [9] = 1}}", "*2\r\n:0\r\n:9\r\n"),
        ("local n = 0 table.foreach({1, 2, x = 3}, function(k, v) n = n + v end) return n", ":6\r\n"),
        ("return table.foreachi({5, 6}, function(k, v) return k == 2 and v or nil end)", ":6\r\n"),
        (
            "return select(2, pcall(table.remove, 1))",
            "$60\r\nbad argument #1 to '?' (table expected, got number)",
        ),
        (
            "table.maxn()",
            "-ERR user_script:1: bad argument #1 to 'maxn' (table expected, got no value) script: ",
        ),
        ("table.foreach({}, 1)", "-ERR user_script:1: bad argument #2 to 'foreach' (function expected, got "),
        (
            "coroutine.wrap(1)",
            "-ERR user_script:1: bad argument #1 to 'wrap' (Lua function expected) script: ",
        ),
    ] {
        let reply = run(body);
        let text = want.split_once("\r\nbad").map_or(want, |(_, text)| text);
        assert!(reply.contains(text), "{body}: {reply}");
    }
}

/// An instruction on a long string takes long, so the hook must come more often.
#[test]
fn the_hook_comes_more_often_while_the_interpreter_is_large() {
    let mut vm = Vm::new().expect("memory");
    let hooks = |vm: &mut Vm, body: &str| {
        HOOKS.set(0);
        let (ended, reply) = run_in(vm, body, 1_000_000);
        assert_eq!((ended, reply.as_str()), (RunEnd::Done, ":1\r\n"), "{body}");
        HOOKS.get()
    };
    let small = hooks(&mut vm, "for i = 1, 1e5 do end return 1");
    assert!((90..200).contains(&small), "{small}");
    let large = hooks(&mut vm, "local s = ('x'):rep(5e7) for i = 1, 1e5 do end return 1");
    assert!(large > 5 * small, "{large}");
    // A text that is known before its first instruction changes the pace at once.
    let stopped =
        run_in(&mut vm, "local s = ('x'):rep(5e7) for i = 1, 500 do local b = s < s end return 1", 3).0;
    assert!(matches!(stopped, RunEnd::Stopped(_)));
    let after = hooks(&mut vm, "collectgarbage() collectgarbage() for i = 1, 1e5 do end return 1");
    assert!(after < 2 * small, "{after}");
}

#[test]
fn memory_and_depth_have_bounds() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(memory_and_depth_have_bounds_here);
    thread.expect("a thread").join().expect("it passes");
}
fn memory_and_depth_have_bounds_here() {
    for (hostile, text) in [
        ("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000000) .. i end", "not enough memory"),
        ("return ('x'):rep(1e10)", "not enough memory"),
        ("return {pcall(string.rep, 'x', 1e10)}", "not enough memory"),
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f(s) return s:gsub('.', f) end return f('x')", "C stack overflow"),
        ("return ('('):rep(100000) .. '1'", "(((("),
        ("return loadstring('return ' .. ('('):rep(100000) .. '1')()", "attempt to call a nil value"),
        ("return ('a'):rep(20000):find(('a-'):rep(10000) .. 'b')", "pattern too complex"),
        ("local t = {} for i = 1, 2000 do t = {t} end return cjson.encode(t)", "excessive nesting"),
        ("return cjson.decode(('['):rep(5000))", "too many nested"),
        ("return cmsgpack.unpack(('\\145'):rep(5000))", "nested too deep"),
        ("return unpack({}, 1, 1e8)", "too many results to unpack"),
        ("return unpack({}, -2147483648, 2147483647)", "too many results to unpack"),
        ("return unpack({}, 0, 2147483647)", "too many results to unpack"),
        ("return unpack({}, -2147483648)", "too many results to unpack"),
        ("return unpack({}, '-2147483648', '0x7fffffff')", "too many results to unpack"),
        ("return table.insert({}, -2147483648, 1)", "not enough memory"),
    ] {
        // An interpreter that has grown to this size is not used again.
        let mut vm = Vm::new().expect("memory");
        let (ended, reply) = run_in(&mut vm, hostile, 1_000_000);
        assert!(ended == RunEnd::Done && reply.contains(text), "{hostile}: {reply:.300}");
    }
}

#[test]
fn libraries_register_functions_and_see_little_while_they_load() {
    let mut vm = Vm::new().expect("memory");
    let mut host = Echo { ticks_left: 1000 };
    let code = b"#!lua name=lib\nlocal n = 0\nredis.register_function('f', function(keys, args) n = n + 1 return {n, \
                 keys[1], args[1]} end)\nredis.register_function{function_name='g', callback=function() return KEYS end, \
                 flags={'no-writes'}}";
    let library = Arc::new(vm.load_library(code, NO_LIMIT, &mut host).expect("a library"));
    assert_eq!(library.functions.len(), 2);
    assert!(library.functions.iter().any(|f| f.flags.no_writes));
    let mut call = |name: &[u8]| {
        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let (keys, args): ([&[u8]; 1], [&[u8]; 1]) = ([b"k"], [b"a"]);
        let input = Input { keys: keys.into_iter(), args: args.into_iter(), limits: NO_LIMIT };
        vm.call(&library, name, input, &mut host, &mut reply);
        String::from_utf8_lossy(&out.slices().collect::<Vec<_>>().concat()).into_owned()
    };
    assert_eq!(call(b"f"), "*3\r\n:1\r\n$1\r\nk\r\n$1\r\na\r\n");
    assert_eq!(call(b"f"), "*3\r\n:2\r\n$1\r\nk\r\n$1\r\na\r\n");
    assert!(call(b"g").contains("nonexistent global variable 'KEYS'"));
    let code = b"#!lua name=own\nredis.register_function('f', redis.register_function)";
    let own = Arc::new(vm.load_library(code, NO_LIMIT, &mut host).expect("a library"));
    let mut out = Chain::new();
    let none: [&[u8]; 0] = [];
    let input = Input { keys: none.into_iter(), args: none.into_iter(), limits: NO_LIMIT };
    vm.call(&own, b"f", input, &mut host, &mut Reply::new(&mut out, Protocol::Resp2));
    let reply = String::from_utf8_lossy(out.front()).into_owned();
    assert!(reply.contains("redis.register_function can only be called on FUNCTION LOAD command"), "{reply}");
    for (code, text) in [
        ("return 1", "Missing library metadata"),
        ("#!lua\0 name=x\nreturn 1", "Invalid library metadata"),
        ("#!lua name=x\nredis.call('a')", "nonexistent global variable 'call'"),
        ("#!lua name=x\nwhile true do end", "FUNCTION LOAD timeout"),
        ("#!lua name=x\nlocal a = string", "nonexistent global variable 'string'"),
        ("#!lua name=x\nlocal a = 1", "No functions registered"),
    ] {
        let mut host = Echo { ticks_left: 100 };
        let error = vm.load_library(code.as_bytes(), NO_LIMIT, &mut host).expect_err(code);
        assert!(
            String::from_utf8_lossy(&error).contains(text),
            "{code}: {}",
            String::from_utf8_lossy(&error)
        );
    }
}

/// The collector rests longer than Lua's does, but not so long that it lacks memory.
#[test]
fn garbage_has_bounds_in_small_interpreters_and_in_large_ones() {
    let mut vm = Vm::new().expect("memory");
    let mut most = 0;
    for _ in 0..10_000 {
        assert_eq!(run_in(&mut vm, "return #{KEYS[1] .. 'x', {}, {}}", 1_000_000).1, ":3\r\n");
        most = most.max(vm.grown_bytes());
    }
    assert!((1 << 17..hook::LARGE_BYTES).contains(&most), "{most} bytes");
    // 60 MB are alive, and 600 MB become garbage.
    let body = "local x, t = ('x'):rep(100000), {} for i = 1, 600 do t[i] = x .. i end \
                for i = 1, 6000 do local s = x .. i for j = 1, 50 do end end return #t";
    for _ in 0..2 {
        assert_eq!(run_in(&mut vm, body, 1_000_000).1, ":600\r\n");
    }
}

/// A few instructions make a long string. No hook runs between them, so the memory limit ends the run.
#[test]
fn a_run_that_reaches_a_worker_s_memory_limit_stops_and_cannot_catch_that() {
    let mut vm = Vm::new().expect("memory");
    let limited = VmLimits { soft_bytes: 4 << 20, ..NO_LIMIT };
    let long = "local s = 'x' for i = 1, 24 do s = s .. s end";
    for body in [
        format!("{long} return #s"),
        format!("pcall(function() {long} end) return 'caught'"),
        format!("xpcall(function() {long} end, function(e) return e end) return 'caught'"),
        format!("coroutine.resume(coroutine.create(function() {long} end)) return 'caught'"),
        format!("pcall(coroutine.wrap(function() {long} end)) return 'caught'"),
        format!("pcall(string.gsub, 'a', 'a', function() {long} end) return 'caught'"),
        "pcall(function() local s = ('x'):rep(8e6) end) return 'caught'".to_owned(),
        "local t = {} for i = 1, 1e6 do t[i] = i end return 'caught'".to_owned(),
    ] {
        let (ended, reply) = run_within(&mut vm, &body, 1_000_000, limited);
        assert!(matches!(ended, RunEnd::Stopped(_)) && reply.is_empty(), "{body}: {ended:?} {reply}");
        // Without the limit of a worker the script runs to its end.
        let (ended, reply) = run_in(&mut vm, &body, 1_000_000);
        assert!(ended == RunEnd::Done && !reply.starts_with('-'), "{body}: {ended:?} {reply}");
    }
    let own = "return select(2, pcall(error, 'not enough memory', 0))";
    assert_eq!(run_in(&mut vm, own, 1_000_000).1, "$17\r\nnot enough memory\r\n");
}

/// C reads these indexes otherwise than a careless guard would. Each of them made C write past its stack.
#[test]
fn unpack_refuses_every_number_of_results_that_overflows() {
    for call in [
        "unpack({}, -2147483647, 1/0)",
        "unpack({}, '-0x80000000', 2147483647)",
        "unpack({}, '-2147483648\\0', 2147483647)",
        "unpack({}, -2147483648, 2147483647)",
        "unpack({}, 1e19, 2147483647)",
    ] {
        let reply = run(&format!("return {{pcall(function() return {call} end)}}"));
        // redis-server refuses them, or has no results.
        assert!(reply.contains("too many results to unpack") || reply == "*1\r\n:1\r\n", "{call}: {reply}");
    }
    assert_eq!(run("return {unpack({1, 2, 3}, '0x2', '3')}"), "*2\r\n:2\r\n:3\r\n");
    assert_eq!(run("local t = {1, 2} table.insert(t, '0x1', 3) return t"), "*3\r\n:3\r\n:1\r\n:2\r\n");
}

#[test]
fn iterators_of_gmatch_need_no_references() {
    let mut vm = Vm::new().expect("memory");
    let many = "local t = {} for i = 1, 20000 do t[i] = string.gmatch('a b', '%a') end \
                return {#t, t[1](), t[1](), t[20000](), t[1]() == nil}";
    assert_eq!(run_in(&mut vm, many, 1_000_000).1, "*5\r\n:20000\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n:1\r\n");
    assert_eq!(run_in(&mut vm, "return string.gsub('a', 'a', 'b')", 1_000_000).1, "$1\r\nb\r\n");
    let error = run("for w in string.gmatch('a', '[a') do end");
    assert!(error.starts_with("-ERR user_script:1: malformed pattern (missing ']')"), "{error}");
    assert!(error.ends_with("on @user_script:1.\r\n"), "{error}");
    let error = run("return string.gmatch({}, 'a')");
    assert!(
        error.contains("user_script:1: bad argument #1 to 'gmatch' (string expected, got table)"),
        "{error}"
    );
}

#[test]
fn every_function_of_a_large_library_is_called() {
    const FUNCTIONS: usize = 9_000;
    let code = format!(
        "#!lua name=many\nfor i = 1, {FUNCTIONS} do redis.register_function('f' .. i, function() return i end) end"
    );
    let mut vm = Vm::new().expect("memory");
    let mut host = Echo { ticks_left: 1_000_000 };
    let library = Arc::new(vm.load_library(code.as_bytes(), NO_LIMIT, &mut host).expect("a library"));
    assert_eq!(library.functions.len(), FUNCTIONS);
    let mut other = Vm::new().expect("memory");
    for i in 1..=FUNCTIONS {
        let mut out = Chain::new();
        let none = std::iter::empty::<&[u8]>;
        let input = Input { keys: none(), args: none(), limits: NO_LIMIT };
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        let ended = other.call(&library, format!("f{i}").as_bytes(), input, &mut host, &mut reply);
        assert_eq!((ended, out.front()), (RunEnd::Done, format!(":{i}\r\n").as_bytes()));
    }
    other.retain_libraries(|_| false);
    assert_eq!((other.called, other.libraries.len()), (0, 0));
}

#[test]
fn a_reply_that_fails_half_way_leaves_nothing_of_itself() {
    let mut vm = Vm::new().expect("memory");
    let large = "local s = string.rep('x', 1024 * 1024) local t = {} for i = 1, 300 do t[i] = s end return t";
    let (ended, reply) = run_in(&mut vm, large, 1_000_000);
    assert_eq!(ended, RunEnd::Done);
    assert!(reply.starts_with("-ERR Error running script") && reply.ends_with("not enough memory\r\n"));
}

/// redis-server 7.0 replies the same.
#[test]
fn what_a_callback_raises_arrives_unchanged() {
    for (body, text) in [
        (
            "local _, e = pcall(string.gsub, 'a', 'a', function() error({code = 5}) end) return e.code",
            ":5\r\n",
        ),
        (
            "local _, e = pcall(string.gsub, 'a', 'a', function() error('l1\\nl2', 0) end) return e",
            "$5\r\nl1\nl2\r\n",
        ),
        ("local _, e = pcall(string.gsub, 'a', 'a', function() error() end) return type(e)", "$3\r\nnil\r\n"),
        (
            "local f, e = load(function() error({code = 9}) end) return {tostring(f), e.code}",
            "*2\r\n$3\r\nnil\r\n:9\r\n",
        ),
        (
            "local inner = function() error({code = 1}) end \
             local outer = function() return string.gsub('a', 'a', inner) end \
             local _, e = pcall(string.gsub, 'a', 'a', outer) return e.code",
            ":1\r\n",
        ),
        (
            "local _, e = pcall(string.gsub, 'a', 'a', function() redis.call() end) return e",
            "$64\r\nERR Please specify at least one argument for this redis lib call\r\n",
        ),
    ] {
        assert_eq!(run(body), text, "{body}");
    }
    let error = run("string.gsub('a', 'a', function() error({err = 'MY boom'}) end)");
    assert!(error.starts_with("-MY boom script: ") && error.ends_with(", on @user_script:1.\r\n"), "{error}");
}
