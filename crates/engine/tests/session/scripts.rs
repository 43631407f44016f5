//! Long scripts: they leave the worker, lock nothing while they only read, and are atomic.

use crate::fixture::{Peer, Server, Stop, command, words};
use std::cell::{Cell, RefCell};

/// A loop that takes too long for a worker.
const LONG: &str = "for i = 1, 300000 do end";

/// Runs a script that goes to the lane. `meanwhile` is called at each pause of the run. Returns the reply.
#[track_caller]
fn run_long(server: &Server, peer: &mut Peer, line: &str, meanwhile: &dyn Fn()) -> String {
    peer.hold_jobs = true;
    peer.feed(&command(line), usize::MAX);
    assert_eq!(peer.drive(server), Stop::Parked, "{:.60}", line);
    let job = peer.job.take().expect("a job");
    peer.session.lane_done(job.run(server.now, meanwhile));
    while peer.drive(server) == Stop::Flush {}
    peer.replies()
}

#[test]
fn a_long_script_that_only_reads_sees_one_moment_and_holds_no_shard() {
    let mut server = Server::new();
    let (mut peer, other) = (server.connect(), RefCell::new(server.connect()));
    peer.run(&server, "MSET a 1 b 1 c 1");
    peer.run(&server, "SET soon 1 PX 100000");
    peer.run(&server, "RPUSH list 1 2 3");
    // The script reads one key twice. Other clients change, create and remove other keys meanwhile.
    let reads = "return {redis.call('get', KEYS[1]), redis.call('mget', 'b', 'c'), redis.call('exists', 'new'), \
                 redis.call('lrange', 'list', 0, -1), redis.call('ttl', 'soon'), redis.call('type', 'list')}";
    let line = format!(
        "EVAL \"{LONG} local first = redis.call('get', KEYS[1]) {LONG} {reads}\" 6 a b c new list soon"
    );
    let pauses = Cell::new(0);
    let reply = run_long(&server, &mut peer, &line, &|| {
        let writes = ["MSET a 2 b 2 new 2", "DEL c soon", "RPUSH list 4", "FLUSHALL", "MSET a 3 b 3 c 3"];
        let write = writes[pauses.get() % writes.len()];
        let reply = other.borrow_mut().run(&server, write);
        assert!(reply.starts_with(['+', ':']), "{write}: {reply}");
        pauses.set(pauses.get() + 1);
    });
    assert_eq!(reply, "*6|$1|1|*2|$1|1|$1|1|:0|*3|$1|1|$1|2|$1|3|:100|+list|");
    assert!(pauses.get() > 10, "{} pauses", pauses.get());
}

#[test]
fn transfers_never_change_the_sum_that_a_long_script_finds() {
    const KEYS: usize = 200;
    let mut server = Server::new();
    let (mut peer, other) = (server.connect(), RefCell::new(server.connect()));
    (0..KEYS).for_each(|i| drop(peer.run(&server, &format!("SET n{i} 100"))));
    let sum = format!(
        "local sum = 0 for i = 0, {} do sum = sum + redis.call('get', 'n' .. i) for j = 1, 2000 do end end",
        KEYS - 1
    );
    let seed = Cell::new(7);
    let transfer = || {
        let mut rng = fastrand::Rng::with_seed(seed.replace(seed.get() + 1));
        let (from, to) = (rng.usize(..KEYS), rng.usize(..KEYS));
        let (mut other, mut reply) = (other.borrow_mut(), String::new());
        for line in ["MULTI", &format!("DECRBY n{from} 7"), &format!("INCRBY n{to} 7"), "EXEC"] {
            reply = other.run(&server, line);
        }
        assert!(reply.starts_with("*2|"), "{reply}");
    };
    let line = format!("EVAL \"{sum} return sum\" 0");
    for _ in 0..3 {
        assert_eq!(run_long(&server, &mut peer, &line, &transfer), format!(":{}|", KEYS * 100));
    }
    // A script that writes at its end restarts with its shards locked, so that the sum and the write are of one
    // moment.
    let line = format!("EVAL \"{sum} redis.call('set', 'sum', sum) return redis.call('get', 'sum')\" 0");
    let total = (KEYS * 100).to_string();
    for _ in 0..3 {
        let reply = run_long(&server, &mut peer, &line, &|| {});
        assert_eq!(reply, format!("${}|{total}|", total.len()));
    }
    assert_eq!(other.borrow_mut().run(&server, "GET sum"), format!("${}|{total}|", total.len()));
}

#[test]
fn a_script_whose_moment_is_lost_begins_anew() {
    const KEYS: usize = 1200;
    let mut server = Server::new();
    let (mut peer, other) = (server.connect(), RefCell::new(server.connect()));
    let text = |of: &str| of.repeat(64 << 10);
    (0..KEYS).for_each(|i| drop(peer.run(&server, &format!("SET n{i} {}", text("a")))));
    let line = format!(
        "EVAL \"{LONG} local n = 0 for i = 0, {} do \
         if redis.call('getrange', 'n' .. i, 0, 0) == 'b' then n = n + 1 end end return n\" 0",
        KEYS - 1
    );
    // At the first pause of the run, every key is overwritten, with more bytes than a view keeps.
    let is_written = Cell::new(false);
    let reply = run_long(&server, &mut peer, &line, &|| {
        if !is_written.replace(true) {
            let mut other = other.borrow_mut();
            (0..KEYS).for_each(|i| drop(other.run(&server, &format!("SET n{i} {}", text("b")))));
        }
    });
    assert_eq!(reply, format!(":{KEYS}|"), "not a part of them");
}

#[test]
fn a_client_that_keeps_copies_hears_of_a_key_that_its_long_script_read() {
    let mut server = Server::new();
    let (mut peer, mut other) = (server.connect(), server.connect());
    peer.run(&server, "HELLO 3");
    peer.run(&server, "CLIENT TRACKING ON");
    peer.run(&server, "SET a 1");
    let line = format!("EVAL \"{LONG} local a = redis.call('get', 'a') {LONG} return a\" 1 a");
    assert_eq!(run_long(&server, &mut peer, &line, &|| {}), "$1|1|");
    other.run(&server, "SET a 2");
    assert_eq!(peer.hears(&server), ">2|$10|invalidate|*1|$1|a|");
}

#[test]
fn functions_have_names_of_any_case_and_globals_that_nobody_changes() {
    let mut server = Server::with("enable-debug-command yes");
    let mut a = server.connect();
    let library = "#!lua name=l\nredis.register_function('Fn', function() return 'found' end)\n\
        redis.register_function('globals', function() getmetatable(_G).__index = {} end)\n\
        redis.register_function('bignum', function() redis.setresp(3)\n\
        return redis.call('debug', 'protocol', 'bignum').big_number end)";
    assert_eq!(a.send(&server, &words(&["FUNCTION", "LOAD", library])), "$1|l|");
    for name in ["Fn", "fn", "FN"] {
        assert_eq!(a.run(&server, &format!("FCALL {name} 0")), "$5|found|");
    }
    let again = "#!lua name=other\nredis.register_function('fN', function() end)";
    let reply = a.send(&server, &words(&["FUNCTION", "LOAD", again]));
    assert!(reply.contains("already exists"), "{reply}");
    assert!(a.run(&server, "FCALL globals 0").contains("Attempt to modify a readonly table"));
    assert!(a.run(&server, "FCALL bignum 0").contains("not allowed from script"));
    a.run(&server, "DEBUG SET-DISABLE-DENY-SCRIPTS 1");
    assert_eq!(a.run(&server, "FCALL bignum 0"), "$37|1234567999999999999999999999999999999|");
    let text = "-ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.|";
    assert_eq!(a.run(&server, "FUNCTION FLUSH SYNC x"), text);
    assert_eq!(a.run(&server, "FUNCTION DELETE l"), "+OK|");
    assert_eq!(a.run(&server, "FCALL fn 0"), "-ERR Function not found|");
}

#[test]
fn scripts_that_declare_no_writes_publish_nothing() {
    let mut server = Server::new();
    let mut a = server.connect();
    for call in ["'publish', 'channel', 'text'", "'pfcount', KEYS[1]", "'set', KEYS[1], 'x'"] {
        let script = format!("#!lua flags=no-writes\nreturn redis.call({call})");
        let reply = a.send(&server, &words(&["EVAL", &script, "1", "k"]));
        assert!(reply.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{reply}");
    }
}

#[test]
fn a_command_that_a_script_may_not_call_counts_as_rejected() {
    let mut server = Server::new();
    let mut a = server.connect();
    a.run(&server, "EVAL \"redis.pcall('shutdown')\" 0");
    let stats = a.run(&server, "INFO commandstats");
    assert!(stats.contains("cmdstat_shutdown:calls=0,") && stats.contains("rejected_calls=1,"), "{stats}");
}

#[test]
fn in_a_script_expiries_count_from_their_command_and_nothing_expires() {
    let mut server = Server::new();
    let mut a = server.connect();
    // The clock moves by 100 ms with each command or more, and starts 5 s before the time of the first request.
    server.step_us.store(100_000, std::sync::atomic::Ordering::Relaxed);
    let late = "for _ = 1, 40 do redis.call('time') end";
    let line = format!("EVAL \"{late} return redis.call('set', KEYS[1], 'v', 'px', 50)\" 1 lock");
    assert_eq!(a.run(&server, &line), "+OK|");
    assert_eq!(a.run(&server, "GET lock"), "$1|v|", "the 50 ms count from SET");
    let calls = "redis.call('set', KEYS[1], 'v', 'px', 50) local left = redis.call('pttl', KEYS[1]) \
        local value = redis.call('get', KEYS[1]) local past = redis.call('pexpire', KEYS[1], -1) \
        return {left, value, past, redis.call('exists', KEYS[1])}";
    assert_eq!(a.run(&server, &format!("EVAL \"{late} {calls}\" 1 other")), "*4|:0|$1|v|:1|:0|");
}

#[test]
fn a_script_that_ends_half_way_through_its_reply_leaves_nothing_of_it() {
    let mut server = Server::new();
    let mut a = server.connect();
    // CLIENT NO-TOUCH keeps the transaction on the worker, where a reply may have few levels.
    a.script(
        &server,
        &[
            ("MULTI", "+OK|"),
            ("CLIENT NO-TOUCH OFF", "+QUEUED|"),
            ("EVAL \"local t = 1 for i = 1, 40 do t = {t, 1} end return t\" 0", "+QUEUED|"),
            ("EVAL \"return {redis.pcall('incr', 'text'), {1, {2}}}\" 0", "+QUEUED|"),
        ],
    );
    let reply = a.run(&server, "EXEC");
    let (nothing, rest) =
        reply.strip_prefix("*3|").and_then(|rest| rest.split_once("-ERR the script takes")).expect(&reply);
    assert_eq!(nothing, "+OK|");
    assert!(rest.ends_with("*2|:1|*2|:1|*1|:2|"), "{reply}");
    assert_eq!(a.run(&server, "ECHO x"), "$1|x|");
}

#[test]
fn functions_restore_replaces_libraries_that_exchanged_a_function() {
    let mut server = Server::new();
    let mut a = server.connect();
    let load = |names: &[(&str, &str)]| -> Vec<Vec<u8>> {
        let code = |(library, function): &(&str, &str)| {
            let code = format!(
                "#!lua name={library}\nredis.register_function('{function}', function() return '{library}' end)"
            );
            words(&["FUNCTION", "LOAD", &code])
        };
        names.iter().map(code).collect()
    };
    for line in load(&[("a", "f"), ("b", "g")]) {
        assert!(a.send(&server, &line).starts_with('$'));
    }
    a.feed(&words(&["FUNCTION", "DUMP"]), usize::MAX);
    while a.drive(&server) == Stop::Flush {}
    let dump = a.received_bytes();
    let from = dump.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    let payload = dump[from..dump.len() - 2].to_vec();
    assert_eq!(a.run(&server, "FUNCTION FLUSH"), "+OK|");
    for line in load(&[("a", "fa"), ("b", "f")]) {
        assert!(a.send(&server, &line).starts_with('$'));
    }
    let mut request = format!("*4\r\n$8\r\nFUNCTION\r\n$7\r\nRESTORE\r\n${}\r\n", payload.len()).into_bytes();
    request.extend_from_slice(&payload);
    request.extend_from_slice(b"\r\n$7\r\nREPLACE\r\n");
    assert_eq!(a.send(&server, &request), "+OK|");
    assert_eq!(a.run(&server, "FCALL f 0"), "$1|a|");
    assert_eq!(a.run(&server, "FCALL g 0"), "$1|b|");
}

/// As in redis-server, the settings of cjson are those of all scripts, or those of all functions.
#[test]
fn the_settings_of_cjson_are_of_scripts_or_of_functions_and_end_with_a_flush() {
    let mut server = Server::new();
    let mut client = server.connect();
    let library = "#!lua name=l\\nredis.register_function{function_name='enc',\
                   callback=function() return cjson.encode({1/3}) end,flags={'NO-WRITES'}}";
    let (third, short) = ("$18|[0.33333333333333]|", "$7|[0.333]|");
    let encode = "EVAL \"return cjson.encode({1/3})\" 0";
    client.script(
        &server,
        &[
            (&format!("FUNCTION LOAD \"{library}\""), "$1|l|"),
            ("EVAL \"cjson.encode_number_precision(3) return 1\" 0", ":1|"),
            (encode, short),
            ("FCALL enc 0", third),
            ("SCRIPT FLUSH", "+OK|"),
            (encode, third),
            // An index that no array has makes an object.
            ("EVAL \"return cjson.encode({[1700000000000]='x'})\" 0", "$21|{\"1700000000000\":\"x\"}|"),
            ("EVAL \"return cjson.encode({{},[2^31]='x'})\" 0", "$25|{\"1\":{},\"2147483648\":\"x\"}|"),
        ],
    );
    let sparse = client.run(&server, "EVAL \"return cjson.encode({[2^31-1]=1})\" 0");
    assert!(sparse.contains("excessively sparse array"), "{sparse}");
}
