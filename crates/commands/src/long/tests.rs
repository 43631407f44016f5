//! Long calls in the fixture: their replies, and how often they pause.

use super::*;
use crate::copy_write::LOCKED_ARGUMENTS_MAX;
use crate::errors;
use crate::fixture::Fixture;
use crate::optimistic::PAUSE_WRITES;
use crate::table::DATA;

fn numbered(words: &[&str], n: usize, each: impl Fn(usize) -> Vec<String>) -> Vec<String> {
    words.iter().map(|w| w.to_string()).chain((0..n).flat_map(each)).collect()
}

/// Runs a command. Returns the reply as text, with `|` for CR LF.
fn run(f: &mut Fixture, args: &[String]) -> String {
    String::from_utf8_lossy(&f.run_args(args)).replace("\r\n", "|")
}

#[test]
fn many_keys_are_set_read_counted_and_removed_in_slices() {
    let mut f = Fixture::new();
    let n = LONG_ELEMENTS + 100;
    assert_eq!(run(&mut f, &numbered(&["MSET"], n, |i| vec![format!("k{i}"), format!("{i}")])), "+OK|");
    // The keys are hashed, promised, and set in slices.
    assert_eq!(f.pauses.take(), 3 * n.div_ceil(SLICE_ARGUMENTS));
    // One key that is named twice, one that is missing, and one of another type. They are in different slices.
    f.run("HSET k7 f v");
    f.script(&[("DEL k7", ":1|"), ("HSET k7 f v", ":1|"), ("DEL k300", ":1|")]);
    let mut all = numbered(&["MGET"], n, |i| vec![format!("k{i}")]);
    all.push("k0".into());
    let want: String = (0..n)
        .map(|i| if i == 7 || i == 300 { "$-1|".into() } else { format!("${}|{i}|", i.to_string().len()) })
        .collect();
    assert_eq!(run(&mut f, &all), format!("*{}|{want}$1|0|", n + 1));
    for (command, want) in [("EXISTS", n), ("TOUCH", n), ("UNLINK", n - 1), ("DEL", 0)] {
        all[0] = command.into();
        assert_eq!(run(&mut f, &all), format!(":{want}|"), "{command}");
    }
    assert!(f.keyspace.is_empty(0));
}

#[test]
fn many_fields_are_set_in_slices_and_read_at_one_moment() {
    let mut f = Fixture::new();
    let n = LONG_ELEMENTS;
    let pairs = |i: usize| vec![format!("f{i}"), format!("{i}")];
    for (n, slices) in [(n, 1), (LOCKED_ARGUMENTS_MAX, 2 * LOCKED_ARGUMENTS_MAX / PAUSE_WRITES)] {
        assert_eq!(run(&mut f, &numbered(&["HSET", "h"], n, pairs)), format!(":{n}|"));
        assert_eq!(f.pauses.take(), slices, "{n}");
        assert_eq!(run(&mut f, &numbered(&["HDEL", "h"], n, |i| vec![format!("f{i}")])), format!(":{n}|"));
        f.pauses.take();
    }
    assert_eq!(run(&mut f, &numbered(&["HSET", "h"], n, pairs)), format!(":{n}|"));
    assert_eq!(run(&mut f, &numbered(&["HMSET", "h"], n, pairs)), "+OK|");
    let mut odd = numbered(&["HSET", "h"], n, pairs);
    odd.push("x".into());
    assert_eq!(run(&mut f, &odd), "-ERR wrong number of arguments for 'hset' command|");
    f.pauses.take();
    let fields = numbered(&["HMGET", "h"], n, |i| vec![format!("f{i}")]);
    assert!(run(&mut f, &fields).starts_with(&format!("*{n}|$1|0|$1|1|")));
    assert!((2..8).contains(&f.pauses.take()), "one snapshot, and a pause in the reply");
    for (command, elements) in [("HGETALL", 2 * n), ("HKEYS", n), ("HVALS", n)] {
        let reply = f.run(&format!("{command} h"));
        assert!(reply.starts_with(&format!("*{elements}|")), "{command}");
        assert_eq!(reply.matches('|').count(), 1 + 2 * elements);
    }
    assert_eq!(f.run(&format!("HRANDFIELD h {}", n + 1)).matches("|f").count(), n);
    assert_eq!(f.run(&format!("HSCAN h 0 COUNT {}", n + 1)).matches("|f").count(), n);
    let mut delete = fields;
    delete[0] = "HDEL".into();
    assert_eq!(run(&mut f, &delete), format!(":{n}|"));
    f.script(&[("EXISTS h", ":0|")]);
}

#[test]
fn an_error_in_a_slice_is_the_reply_and_what_was_done_stays() {
    let mut f = Fixture::new();
    f.all_long = true;
    f.script(&[
        ("SET s v", "+OK|"),
        ("HSET s f v", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("HGETALL s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command|"),
        ("EXISTS a", ":0|"),
        ("MSETNX a 1 s 2", ":0|"),
        ("EXISTS a", ":0|"),
        ("MSETNX a 1 b 2", ":1|"),
        ("MGET a b s none", "*4|$1|1|$1|2|$1|v|$-1|"),
    ]);
}

#[test]
fn expired_keys_are_not_seen_and_a_snapshot_is_a_use() {
    let mut f = Fixture::new();
    f.all_long = true;
    f.script(&[("HSET h f v", ":1|"), ("SET s v", "+OK|"), ("PEXPIRE h 5", ":1|"), ("PEXPIRE s 5", ":1|")]);
    f.advance_ms(4);
    f.script(&[("HGETALL h", "*2|$1|f|$1|v|"), ("MGET s", "*1|$1|v|")]);
    f.advance_ms(1);
    f.script(&[("HGETALL h", "*0|"), ("MGET s", "*1|$-1|"), ("EXISTS h s", ":0|"), ("DEL h s", ":0|")]);
    f.script(&[("HSET h f v", ":1|")]);
    f.advance_ms(10_000);
    f.script(&[("OBJECT IDLETIME h", ":10|"), ("HKEYS h", "*1|$1|f|"), ("OBJECT IDLETIME h", ":0|")]);
}

#[test]
fn cancelled_call_sends_no_reply_but_keeps_its_changes() {
    let mut f = Fixture::new();
    f.cancel.store(true, Ordering::Relaxed);
    let n = LONG_ELEMENTS;
    run(&mut f, &numbered(&["MSET"], n, |i| vec![format!("k{i}"), "v".into()]));
    assert_eq!(f.keyspace.len(0), n);
    let mut keys = numbered(&["MGET"], n, |i| vec![format!("k{i}")]);
    assert_eq!(run(&mut f, &keys), "*0|", "stopped before the first slice");
    assert_eq!(f.run("SCAN 0 COUNT 100000"), "*2|$1|0|*0|");
    // Nulls count like values.
    let fields = numbered(&["HMGET", "none"], 5 * n, |i| vec![format!("f{i}")]);
    f.pauses.take();
    let reply = f.run_args(&fields).len();
    assert!(reply < 9000 && f.pauses.take() <= 3, "{reply}");
    keys[0] = "UNLINK".into();
    run(&mut f, &keys);
    assert!(f.keyspace.is_empty(0));
}

#[test]
fn a_reply_stops_growing_at_its_bound() {
    let mut f = Fixture::new();
    let value = "v".repeat(1000);
    f.run_args(&["SET", "s", &value]);
    for i in 0..LONG_ELEMENTS {
        f.run_args(&["HSET", "h", &format!("f{i}"), &value]);
    }
    f.reply_bytes_max = 100_000;
    let mget = numbered(&["MGET"], 2 * LONG_ELEMENTS, |_| vec!["s".into()]);
    let commands = [
        mget,
        numbered(&["HGETALL", "h"], 0, |_| vec![]),
        numbered(&["HSCAN", "h", "0", "COUNT", "1000000"], 0, |_| vec![]),
        numbered(&["HRANDFIELD", "h", "-100000", "WITHVALUES"], 0, |_| vec![]),
    ];
    for all_long in [false, true] {
        f.all_long = all_long;
        for command in &commands {
            let bytes = f.run_args(command).len();
            assert!((100_001..=103_000).contains(&bytes), "{}: {bytes}", command[0]);
        }
    }
}

#[test]
fn large_pops_from_the_first_of_several_keys_run_on_a_copy() {
    let mut f = Fixture::new();
    let n = LONG_ELEMENTS + 10;
    let many = n - 1;
    for (left, right) in [("LMPOP 2", "ZMPOP 2"), ("BLMPOP 0 2", "BZMPOP 0 2")] {
        run(&mut f, &numbered(&["RPUSH", "l"], n, |i| vec![format!("{i}")]));
        run(&mut f, &numbered(&["ZADD", "z"], n, |i| vec![format!("{i}"), format!("{i}")]));
        f.pauses.take();
        let reply = f.run(&format!("{left} none l LEFT COUNT {many}"));
        assert!(reply.starts_with(&format!("*2|$1|l|*{many}|$1|0|$1|1|")), "{left}");
        assert!(f.pauses.take() > 1, "{left}");
        let reply = f.run(&format!("{right} none z MIN COUNT {many}"));
        assert!(reply.starts_with(&format!("*2|$1|z|*{many}|*2|$1|0|$1|0|*2|$1|1|$1|1|")), "{right}");
        assert!(f.pauses.take() > 1, "{right}");
        f.script(&[
            ("LRANGE l 0 -1", &format!("*1|$4|{many}|")),
            ("ZRANGE z 0 -1", &format!("*1|$4|{many}|")),
        ]);
        // The key is removed together with its last element.
        f.all_long = true;
        f.run(&format!("{left} none l RIGHT COUNT 5"));
        f.run(&format!("{right} none z MAX COUNT 5"));
        f.script(&[("EXISTS l z", ":0|"), ("SET none x", "+OK|")]);
        for line in [format!("{left} none l LEFT COUNT 9"), format!("{right} none z MIN COUNT 9")] {
            assert_eq!(f.run(&line), format!("-{}|", errors::WRONG_TYPE), "{line}");
        }
        f.run("DEL none");
        f.all_long = false;
    }
}

/// What a call does and answers does not depend on where it runs, when nobody else writes.
#[test]
fn long_runs_reply_like_the_handlers() {
    const WORDS: [&str; 16] =
        ["a", "b", "c", "h", "i", "0", "1", "-2", "5", "x", "COUNT", "MATCH", "*", "f", "g", ""];
    let seed = 11;
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut here, mut lane) = (Fixture::new(), Fixture::new());
    lane.all_long = true;
    // SPOP removes random members, and its own tests run both forms. PFCOUNT of one key stores its estimate in the
    // value, but only on the worker. (A single key never makes the call long.)
    let is_estimated = |c: &&crate::spec::CommandSpec| matches!(c.exec, crate::spec::Exec::Estimated(..));
    let rows: Vec<_> =
        DATA.rows().iter().filter(is_estimated).filter(|c| !["pfcount", "spop"].contains(&c.name)).collect();
    assert!(rows.len() > 15);
    for f in [&mut here, &mut lane] {
        for line in ["HSET h f 1 g 2 x 3", "HSET i a 1", "SET a 1", "SET b 2"] {
            f.run(line);
        }
    }
    for round in 0..8_000 {
        let row = rows[rng.usize(..rows.len())];
        let least = row.arity.unsigned_abs() as usize;
        let n = if row.arity < 0 { least + rng.usize(..5) } else { least };
        let mut args = vec![row.name];
        args.extend((1..n).map(|_| WORDS[rng.usize(..WORDS.len())]));
        // These commands need the same random numbers on both sides, but a snapshot draws its own random numbers
        // first. DUMP shows the estimate that PFCOUNT stores in the value, which happens only on the worker.
        let draws = ["hrandfield", "srandmember", "zrandmember", "randomkey", "dump"].contains(&row.name);
        let (want, got) = (here.run_args(&args), lane.run_args(&args));
        assert!(draws || want == got, "seed {seed}, round {round}: {args:?}: {want:?}, {got:?}");
        if draws {
            assert_eq!(want.first(), got.first(), "seed {seed}, round {round}: {args:?}");
        }
        assert_eq!(here.keyspace.len(0), lane.keyspace.len(0), "seed {seed}, round {round}: {args:?}");
        if rng.u8(..) < 20 {
            for f in [&mut here, &mut lane] {
                f.run_args(&["HSET", "h", "f", "1", "g", "2", "x", "3"]);
                f.run_args(&["PEXPIRE", "a", "2"]);
                f.advance_ms(1);
            }
        }
    }
}
