//! The list commands on a small keyspace, on a worker and in their long forms.

use crate::fixture::Fixture;
use strand_wire::reply::Protocol;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn elements_are_pushed_and_popped_at_both_ends() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.script(&[
            ("LPUSHX l a", ":0|"),
            ("RPUSH l a b", ":2|"),
            ("LPUSH l c d", ":4|"),
            ("LRANGE l 0 -1", "*4|$1|d|$1|c|$1|a|$1|b|"),
            ("RPUSHX l e", ":5|"),
            ("LPUSHX l f", ":6|"),
            ("LLEN l", ":6|"),
            ("LINDEX l -1", "$1|e|"),
            ("LINDEX l 6", "$-1|"),
            ("LINDEX none x", "$-1|"),
            ("LSET l -6 g", "+OK|"),
            ("LSET l 6 g", "-ERR index out of range|"),
            ("LSET none 0 g", "-ERR no such key|"),
            ("LPOP l", "$1|g|"),
            ("RPOP l 2", "*2|$1|e|$1|b|"),
            ("LPOP l 0", "*0|"),
            ("LPOP none 0", "*-1|"),
            ("LPOP none", "$-1|"),
            ("LPOP l 9", "*3|$1|d|$1|c|$1|a|"),
            ("EXISTS l", ":0|"),
            ("LRANGE l 0 -1", "*0|"),
            ("LPOP l 1 2", "-ERR wrong number of arguments for 'lpop' command|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[("LPOP l", "_|"), ("RPOP l 2", "_|"), ("LINDEX l 0", "_|")]);
    }
}

#[test]
fn lrange_and_ltrim_keep_the_same_elements() {
    let mut f = Fixture::new();
    f.run("RPUSH l 0 1 2 3 4");
    for (start, stop, want) in [
        (0, 0, "0"),
        (1, 3, "123"),
        (-2, -1, "34"),
        (-100, 1, "01"),
        (3, 100, "34"),
        (3, 2, ""),
        (5, 9, ""),
        (0, -6, ""),
        (i64::MIN, i64::MAX, "01234"),
    ] {
        let reply = f.run(&format!("LRANGE l {start} {stop}"));
        let got: String = reply.split('|').filter(|p| p.len() == 1).collect();
        assert_eq!(got, want, "{start} {stop}");
        f.run("DEL t");
        f.run("COPY l t");
        assert_eq!(f.run(&format!("LTRIM t {start} {stop}")), "+OK|");
        assert_eq!(f.run("LRANGE t 0 -1"), reply);
    }
    f.script(&[("LTRIM none 0 1", "+OK|"), ("LTRIM t 5 1", "+OK|"), ("EXISTS t", ":0|")]);
}

#[test]
fn elements_move_from_list_to_list_and_within_one() {
    let mut f = Fixture::new();
    f.script(&[
        ("RPUSH a 1 2 3", ":3|"),
        ("LMOVE a b LEFT RIGHT", "$1|1|"),
        ("RPOPLPUSH a b", "$1|3|"),
        ("LRANGE b 0 -1", "*2|$1|3|$1|1|"),
        ("LMOVE b b left right", "$1|3|"),
        ("LRANGE b 0 -1", "*2|$1|1|$1|3|"),
        ("LMOVE none b LEFT LEFT", "$-1|"),
        ("LMOVE a b UP LEFT", "-ERR syntax error|"),
        ("SET s v", "+OK|"),
        ("LMOVE a s LEFT LEFT", WRONG_TYPE),
        ("LMOVE s a LEFT LEFT", WRONG_TYPE),
        ("LMOVE none s LEFT LEFT", "$-1|"),
        ("LRANGE a 0 -1", "*1|$1|2|"),
        ("EXPIRE a 100", ":1|"),
        ("RPOPLPUSH a a", "$1|2|"),
        ("TTL a", ":100|"),
        ("LMOVE a b RIGHT RIGHT", "$1|2|"),
        ("EXISTS a", ":0|"),
        ("LMPOP 2 none b RIGHT COUNT 2", "*2|$1|b|*2|$1|2|$1|3|"),
        ("LMPOP 2 none b RIGHT", "*2|$1|b|*1|$1|1|"),
        ("LMPOP 2 none b RIGHT", "*-1|"),
        ("LMPOP 0 b LEFT", "-ERR numkeys should be greater than 0|"),
        ("LMPOP 1 b LEFT COUNT 0", "-ERR count should be greater than 0|"),
        ("LMPOP 2 b LEFT", "-ERR syntax error|"),
        ("LMPOP 1 s LEFT", WRONG_TYPE),
    ]);
}

#[test]
fn elements_are_searched() {
    let mut f = Fixture::new();
    f.script(&[
        ("RPUSH l a b c a b a", ":6|"),
        ("LPOS l a", ":0|"),
        ("LPOS l a RANK 2", ":3|"),
        ("LPOS l a RANK -1", ":5|"),
        ("LPOS l a COUNT 0", "*3|:0|:3|:5|"),
        ("LPOS l a COUNT 2 RANK -2", "*2|:3|:0|"),
        ("LPOS l a COUNT 0 MAXLEN 4", "*2|:0|:3|"),
        ("LPOS l x", "$-1|"),
        ("LPOS l x COUNT 1", "*0|"),
        ("LPOS none a COUNT 1", "*0|"),
        ("LPOS none a", "$-1|"),
        ("LINSERT l BEFORE b x", ":7|"),
        ("LINSERT l after b y", ":8|"),
        ("LINSERT l AFTER none y", ":-1|"),
        ("LINSERT none AFTER a y", ":0|"),
        ("LINSERT l NEAR a y", "-ERR syntax error|"),
        ("LRANGE l 0 -1", "*8|$1|a|$1|x|$1|b|$1|y|$1|c|$1|a|$1|b|$1|a|"),
        ("LREM l -2 a", ":2|"),
        ("LREM l 0 b", ":2|"),
        ("LREM l 5 none", ":0|"),
        ("LREM none 5 none", ":0|"),
        ("LRANGE l 0 -1", "*4|$1|a|$1|x|$1|y|$1|c|"),
    ]);
}

#[test]
fn every_command_minds_the_type() {
    let mut f = Fixture::new();
    f.run("SET s v");
    for line in [
        "LPUSH s a",
        "RPUSHX s a",
        "LLEN s",
        "LINDEX s 0",
        "LSET s 0 a",
        "LRANGE s 0 1",
        "LTRIM s 0 1",
        "LPOP s",
        "RPOP s 0",
        "LREM s 0 a",
        "LINSERT s BEFORE a b",
        "LPOS s a",
    ] {
        assert_eq!(f.run(line), WRONG_TYPE, "{line}");
    }
}

#[test]
fn long_calls_run_on_the_lane_with_equal_replies() {
    let mut f = Fixture::new();
    for n in 0..100 {
        let line: Vec<String> = (0..100).map(|i| format!("element:{}", n * 100 + i)).collect();
        f.run(&format!("RPUSH l {}", line.join(" ")));
    }
    f.pauses.take();
    assert!(f.run("LRANGE l 0 99").starts_with("*100|$9|element:0|"));
    assert_eq!(f.pauses.take(), 0);
    assert!(f.run("LRANGE l 0 -1").starts_with("*10000|$9|element:0|"));
    assert!(f.pauses.take() > 10);
    assert_eq!(f.run("LPOS l element:9999"), ":9999|");
    assert_eq!(f.run("LINSERT l BEFORE element:5000 x"), ":10001|");
    assert_eq!(f.run("LREM l 0 x"), ":1|");
    assert!(f.run("RPOP l 5000").starts_with("*5000|$12|element:9999|"));
    assert_eq!(f.run("LTRIM l 0 9"), "+OK|");
    assert_eq!(f.run("LLEN l"), ":10|");
}
