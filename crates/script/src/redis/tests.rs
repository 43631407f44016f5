//! `redis.call` and `redis.pcall` with every kind of argument and reply. The server's tests compare both with
//! redis-server.

use crate::state::{CallOutcome, Host};
use crate::vm::{Input, RunEnd, Script, VM_BYTES_MAX, Vm, VmLimits};
use strand_chain::Chain;
use strand_wire::args::Argv;
use strand_wire::reply::{Protocol, Reply};

/// A host whose commands are named by the reply that they give.
struct Replies;

impl Host for Replies {
    fn call(&mut self, argv: &Argv, resp3: bool, out: &mut Chain) -> CallOutcome {
        let args = argv.args();
        let protocol = if resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        let mut reply = Reply::new(out, protocol);
        match args.at(0) {
            b"text" => reply.bulk(args.at(1)),
            b"args" => reply.bulk(&args.iter().skip(1).collect::<Vec<_>>().join(&b'|')),
            b"count" => reply.int(args.len() as i64),
            b"int" => reply.int(i64::MIN),
            b"status" => reply.simple("FINE"),
            b"null" => reply.null(),
            b"nulls" => reply.null_array(),
            b"error" => reply.error("CODE of the host"),
            b"double" => reply.double(1.5),
            b"bool" => reply.bool(true),
            b"big" => reply.big_number(b"123456789012345678901234567890"),
            b"verbatim" => reply.verbatim("txt", b"words"),
            b"array" => {
                reply.array(3);
                reply.bulk(b"a");
                reply.int(2);
                reply.error("ERR nested");
            }
            b"map" => {
                reply.map(1);
                reply.bulk(b"k");
                reply.bulk(b"v");
            }
            b"set" => {
                reply.set(1);
                reply.bulk(b"m");
            }
            b"attribute" => {
                let mut head = Chain::new();
                head.push_slice(b"|1\r\n$3\r\nkey\r\n*2\r\n:1\r\n:2\r\n");
                reply.raw(head);
                reply.bulk(b"after it");
            }
            b"stop" => return CallOutcome::Stop,
            b"panic" => panic!("on purpose"),
            _ => return CallOutcome::Refused("ERR unknown".into()),
        }
        CallOutcome::Replied
    }
    fn is_permitted(&mut self, _argv: &Argv) -> Option<bool> {
        Some(true)
    }
    fn log(&mut self, _level: i64, _text: &[u8]) {}
    fn may_continue(&mut self, _steps: u64, _vm_bytes: usize) -> bool {
        true
    }
}

fn run_in(vm: &mut Vm, body: &[u8], args: &[&[u8]]) -> (RunEnd, String) {
    let script = Script::new(body).expect("a script");
    let mut out = Chain::new();
    let limits = VmLimits { soft_bytes: VM_BYTES_MAX, depth_max: 1000 };
    let keys: [&[u8]; 1] = [b"k1"];
    let input = Input { keys: keys.into_iter(), args: args.iter().copied(), limits };
    let ended = vm.run(&script, input, &mut Replies, &mut Reply::new(&mut out, Protocol::Resp2));
    (ended, out.slices().collect::<Vec<_>>().concat().escape_ascii().to_string().replace("\\r\\n", "|"))
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    let mut vm = Vm::new().expect("memory");
    for (body, want) in cases {
        let (ended, reply) = run_in(&mut vm, body.as_bytes(), &[]);
        assert_eq!((ended, reply.as_str()), (RunEnd::Done, *want), "{body}");
    }
}

#[test]
fn numbers_become_texts_as_c_prints_them() {
    check(&[
        ("return redis.call('args', 1, -2, 0, 3.0)", "$8|1|-2|0|3|"),
        ("return redis.call('args', 0.1, 1e15, -2.5)", "$41|0.10000000000000001|1000000000000000|-2.5|"),
        (
            "return redis.call('args', 99999999999999999, 1e17, 1e300)",
            "$35|1e+17|1e+17|1.0000000000000001e+300|",
        ),
        ("return redis.call('args', 1e-17, 1e-5)", "$45|1.0000000000000001e-17|1.0000000000000001e-05|"),
        ("return redis.call('args', -0.0 * 1)", "$2|-0|"),
        ("return redis.call('args', 1/0, -1/0)", "$8|inf|-inf|"),
        ("return redis.call('args', 2^53, -2^53)", "$34|9007199254740992|-9007199254740992|"),
        ("return redis.call('args', tostring(0.1), '007')", "$7|0.1|007|"),
    ]);
}

#[test]
fn texts_may_have_any_bytes_and_any_length() {
    check(&[
        ("return redis.call('text', 'a\\0b\\255')", "$4|a\\x00b\\xff|"),
        ("return redis.call('text', '')", "$0||"),
        ("return #redis.call('text', ('x'):rep(1024))", ":1024|"),
        ("return #redis.call('text', ('x'):rep(1025))", ":1025|"),
        ("return #redis.call('text', ('x'):rep(1000000))", ":1000000|"),
        ("return redis.call('text', '$3\\r\\nabc')", "$7|$3|abc|"),
        ("return KEYS[1] .. #ARGV", "$3|k10|"),
    ]);
    let mut vm = Vm::new().expect("memory");
    let all: Vec<u8> = (0..=255).collect();
    let (_, reply) = run_in(&mut vm, b"return {ARGV[1] == ARGV[2], #ARGV[1], ARGV[3]}", &[&all, &all, b""]);
    assert_eq!(reply, "*3|:1|:256|$0||");
}

#[test]
fn other_arguments_are_refused_with_redis_own_words() {
    const WRONG: &str = "Lua redis lib command arguments must be strings or integers";
    const NONE: &str = "Please specify at least one argument for this redis lib call";
    let mut vm = Vm::new().expect("memory");
    let place = |body: &str| format!(" script: {}, on @user_script:1.|", crate::sha_of(body.as_bytes()));
    for (call, text) in [
        ("'text', {}", WRONG),
        ("'text', nil", WRONG),
        ("'text', true", WRONG),
        ("'text', type", WRONG),
        ("{}", WRONG),
        ("", NONE),
    ] {
        let body = format!("return redis.call({call})");
        assert_eq!(run_in(&mut vm, body.as_bytes(), &[]).1, format!("-ERR {text}{}", place(&body)), "{body}");
        let body = format!("return redis.pcall({call}).err");
        assert_eq!(run_in(&mut vm, body.as_bytes(), &[]).1, format!("${}|ERR {text}|", text.len() + 4));
        let body = format!("return {{pcall(redis.call{}{call})}}", if call.is_empty() { "" } else { ", " });
        assert_eq!(
            run_in(&mut vm, body.as_bytes(), &[]).1,
            format!("*2|$-1|${}|ERR {text}|", text.len() + 4)
        );
    }
}

#[test]
fn every_kind_of_reply_arrives() {
    check(&[
        ("return type(redis.call('int')) .. redis.call('int')", "$26|number-9.2233720368548e+18|"),
        ("return redis.call('status')", "+FINE|"),
        ("local t = redis.call('status') return t.ok .. tostring(next(t, 'ok'))", "$7|FINEnil|"),
        ("return tostring(redis.call('null')) .. tostring(redis.call('nulls'))", "$10|falsefalse|"),
        ("return redis.call('double')", "$3|1.5|"),
        ("return redis.call('bool')", ":1|"),
        ("local t = redis.call('array') return {t[1], t[2], t[3].err}", "*3|$1|a|:2|$10|ERR nested|"),
        ("local t = redis.call('map') return t[1] .. t[2]", "$2|kv|"),
        ("return redis.call('set')", "*1|$1|m|"),
        ("return redis.call('big')", "$30|123456789012345678901234567890|"),
        ("return redis.call('verbatim')", "$5|words|"),
    ]);
}

#[test]
fn every_kind_of_reply_of_resp3_arrives() {
    check(&[
        ("redis.setresp(3) return type(redis.call('null')) .. type(redis.call('nulls'))", "$6|nilnil|"),
        ("redis.setresp(3) return type(redis.call('bool'))", "$7|boolean|"),
        ("redis.setresp(3) return tostring(redis.call('double').double)", "$3|1.5|"),
        ("redis.setresp(3) return redis.call('attribute')", "$8|after it|"),
        ("redis.setresp(3) return redis.call('map').map.k", "$1|v|"),
        ("redis.setresp(3) return tostring(redis.call('set').set.m)", "$4|true|"),
        ("redis.setresp(3) return redis.call('big').big_number", "$30|123456789012345678901234567890|"),
        (
            "redis.setresp(3) local v = redis.call('verbatim').verbatim_string return v.format .. v.string",
            "$8|txtwords|",
        ),
        ("redis.setresp(3) return redis.call('text', 'x') .. redis.call('count')", "$2|x1|"),
        ("redis.setresp(3) redis.setresp(2) return tostring(redis.call('null'))", "$5|false|"),
    ]);
}

#[test]
fn errors_are_raised_caught_and_found_on_their_lines() {
    let sha = |body: &str| crate::sha_of(body.as_bytes());
    let mut vm = Vm::new().expect("memory");
    for (body, line) in [
        ("\nlocal x = redis.call('error')\nreturn x", 2),
        ("local function f()\n\n\n local x = redis.call('error') return x end\nlocal y = f() return y", 4),
    ] {
        let want = format!("-CODE of the host script: {}, on @user_script:{line}.|", sha(body));
        assert_eq!(run_in(&mut vm, body.as_bytes(), &[]).1, want);
    }
    let body = "redis.call('x')";
    let want = format!("-ERR unknown script: {}, on @user_script:1.|", sha(body));
    assert_eq!(run_in(&mut vm, body.as_bytes(), &[]).1, want);
    for (body, how) in [
        ("return redis.pcall('error')", RunEnd::CommandFailed),
        ("local t = redis.pcall('error') t.err = t.err return t", RunEnd::CommandFailed),
        ("return {err = redis.pcall('error').err}", RunEnd::Done),
    ] {
        assert_eq!(run_in(&mut vm, body.as_bytes(), &[]), (how, "-CODE of the host|".into()), "{body}");
    }
    check(&[
        ("local ok, e = pcall(redis.call, 'error') return {ok, e}", "*2|$-1|$16|CODE of the host|"),
        (
            "local t = redis.pcall('error') return {t.err, t.ignore_error_stats_update}",
            "*2|$16|CODE of the host|:1|",
        ),
        (
            "return {pcall(function() return pcall(function() redis.call('x') end) end)}",
            "*3|:1|$-1|$11|ERR unknown|",
        ),
        (
            "return {pcall(function() pcall(redis.call, 'x') redis.call('error') end)}",
            "*2|$-1|$16|CODE of the host|",
        ),
        (
            "return {xpcall(function() redis.call('error') end, function(e) return e.err .. '!' end)}",
            "*2|$-1|$17|CODE of the host!|",
        ),
        (
            "local c = coroutine.create(function() redis.call('error') end) local ok, e = coroutine.resume(c) \
             return {ok, e.err, redis.call('text', 'on')}",
            "*3|$-1|$16|CODE of the host|$2|on|",
        ),
        ("return coroutine.wrap(function() return redis.call('text', 'in') end)()", "$2|in|"),
        ("return loadstring(\"return redis.call('text', 'loaded')\")()", "$6|loaded|"),
    ]);
}

#[test]
fn many_arguments_arrive_as_far_as_lua_passes_them() {
    let fill =
        |n| format!("local t = {{'count'}} for i = 2, {n} do t[i] = i end return redis.call(unpack(t))");
    let mut vm = Vm::new().expect("memory");
    assert_eq!(run_in(&mut vm, fill(7900).as_bytes(), &[]).1, ":7900|");
    let (_, reply) = run_in(&mut vm, fill(10_000).as_bytes(), &[]);
    assert!(reply.contains("too many results to unpack"), "{reply}");
    let args: Vec<&[u8]> = vec![b"argument"; 10_000];
    assert_eq!(run_in(&mut vm, b"return {#ARGV, ARGV[10000]}", &args).1, "*2|:10000|$8|argument|");
}

#[test]
fn a_stop_inside_a_command_cannot_be_caught() {
    let mut vm = Vm::new().expect("memory");
    for body in [
        "redis.call('stop')",
        "redis.pcall('stop') while true do end",
        "while true do pcall(redis.call, 'stop') end",
        "coroutine.wrap(function() redis.call('stop') end)()",
        "xpcall(function() redis.call('stop') end, function() while true do end end) return 1",
    ] {
        let (ended, reply) = run_in(&mut vm, body.as_bytes(), &[]);
        assert!(matches!(ended, RunEnd::Stopped(_)) && reply.is_empty(), "{body}: {reply}");
        assert_eq!(run_in(&mut vm, b"return redis.call('text', 'after')", &[]).1, "$5|after|");
    }
}

#[test]
fn missing_memory_inside_a_command_is_an_error_of_the_script() {
    // Long texts take most of the memory, short ones the rest.
    let fill = "local t = {} local function fill(n) local x = ('x'):rep(n) \
                for i = 1, 1e9 do t[#t + 1] = redis.call('text', i .. x) end end \
                local long, why = pcall(fill, 1000000) ";
    let mut vm = Vm::new().expect("memory");
    let (ended, reply) = run_in(&mut vm, format!("{fill} fill(900)").as_bytes(), &[]);
    assert!(ended == RunEnd::Done && reply.contains("not enough memory"), "{reply}");
    let caught = format!(
        "{fill} local ok, e = pcall(fill, 900) t = nil collectgarbage() \
                          return {{why, e, redis.call('count')}}"
    );
    let (ended, reply) = run_in(&mut Vm::new().expect("memory"), caught.as_bytes(), &[]);
    assert_eq!((ended, reply.as_str()), (RunEnd::Done, "*3|$17|not enough memory|$17|not enough memory|:1|"));
}

/// Lua's handler of errors cannot take a panic, and is called until Lua's limit of nested calls ends it.
#[test]
fn a_panic_of_the_host_ends_the_script_alone() {
    let mut vm = Vm::new().expect("memory");
    for body in ["redis.call('panic')", "redis.pcall('panic')", "pcall(redis.call, 'panic')"] {
        let (ended, reply) = run_in(&mut vm, body.as_bytes(), &[]);
        let sha = crate::sha_of(body.as_bytes());
        let want = format!("-ERR C stack overflow script: {sha}, on =[C]:-1.|");
        assert_eq!((ended, reply), (RunEnd::Done, want), "{body}");
        assert_eq!(run_in(&mut vm, b"return redis.call('text', 'after')", &[]).1, "$5|after|");
    }
}

#[test]
fn functions_have_redis_server_s_results_and_texts() {
    check(&[
        ("return select('#', loadstring('return 1'))", ":1|"),
        ("return select('#', load(function() end))", ":1|"),
        ("local t = {} table.insert(t, loadstring('return 1')) return t[1]()", ":1|"),
        ("return {select('#', loadstring('x x')), type(select(2, loadstring('x x')))}", "*2|:2|$6|string|"),
        (
            "local f, text = load(function() return {} end) return {tostring(f), text}",
            "*2|$3|nil|$51|user_script:1: reader function must return a string|",
        ),
        ("return select('#', string.gmatch('a b', '^%a')())", ":0|"),
        ("local n = 0 for w in string.gmatch('a b', '%a') do n = n + 1 end return n", ":2|"),
        ("return redis.error_reply('a\\0b c')", "-ERR a|"),
        ("return redis.error_reply('-a b\\0 c')", "-a b|"),
        ("return {struct.unpack('c1c0', '3abc')}", "*2|$3|abc|:5|"),
        ("return {struct.unpack('sc0', '0x2\\0abc')}", "*2|$2|ab|:7|"),
    ]);
}

#[test]
fn errors_have_redis_server_s_texts_and_positions() {
    let many = |body: &str| format!("return select('#', {body})");
    let mut vm = Vm::new().expect("memory");
    for (body, want) in [
        ("return _G[nil]", "Second argument to luaProtectedTableError must be a string or number"),
        ("return _G[{}]", "Second argument to luaProtectedTableError must be a string or number"),
        ("return _G['a\\0b']", "nonexistent global variable \\'a\\' script"),
        (
            &many("struct.unpack(('b'):rep(9000), ('x'):rep(9000))"),
            "user_script:1: stack overflow (too many results)",
        ),
        (&many("struct.unpack(('b'):rep(7948), ('x'):rep(9000))"), ":7949|"),
        (
            &many("cmsgpack.unpack(('\\1'):rep(8000))"),
            "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
        ),
        (&many("cmsgpack.unpack(('\\1'):rep(7949))"), ":7949|"),
        ("return cjson.decode('\"\\\\')", "invalid escape code at character 2"),
        ("return cjson.decode('0xZ')", "Expected the end but found invalid token at character 2"),
        (
            "return cjson.decode('[0xxf]')",
            "Expected comma or array end but found invalid token at character 3",
        ),
        ("return select(2, pcall(function() error('x', 3) end))", "$16|user_script:1: x|"),
        ("return select(2, pcall(function() error('x', 2) end))", "$1|x|"),
        ("return select(2, pcall(error, 'x', 3))", "$1|x|"),
        ("return select(2, pcall(error, 'x', 0))", "$1|x|"),
        ("return select(2, xpcall(function() error('x', 3) end, tostring))", "$16|user_script:1: x|"),
        ("return select(2, pcall(coroutine.wrap(function() error('x', 2) end)))", "$1|x|"),
        ("coroutine.wrap(function() error('x', 2) end)()", "-ERR user_script:1: x script"),
        ("return type(select(2, pcall(error, {}, 3)))", "$5|table|"),
        ("local function f()\n error(5, 2) end\nf()", "-ERR user_script:3: 5 script"),
    ] {
        let (_, reply) = run_in(&mut vm, body.as_bytes(), &[]);
        assert!(reply.contains(want), "{body}: {reply}");
    }
}

#[test]
fn a_verbatim_string_s_format_has_three_bytes() {
    let mut vm = Vm::new().expect("memory");
    for (format, want) in [("txt", "txt"), ("t\\0t", "t  "), ("", "   "), ("\\255\\254xyz", "\\xff\\xfex")] {
        let body =
            format!("redis.setresp(3) return {{verbatim_string = {{format = '{format}', string = 'ab'}}}}");
        let script = Script::new(body.as_bytes()).expect("a script");
        let mut out = Chain::new();
        let limits = VmLimits { soft_bytes: VM_BYTES_MAX, depth_max: 1000 };
        let none: [&[u8]; 0] = [];
        let input = Input { keys: none.into_iter(), args: none.into_iter(), limits };
        vm.run(&script, input, &mut Replies, &mut Reply::new(&mut out, Protocol::Resp3));
        let reply = out.slices().collect::<Vec<_>>().concat().escape_ascii().to_string();
        assert_eq!(reply, format!("=6\\r\\n{want}:ab\\r\\n"), "{format}");
    }
}
