//! Scripts of stream commands, on a worker and on the lane. The corpus compares exact replies with those of
//! redis-server.

use crate::fixture::Fixture;
use strand_wire::reply::Protocol;

#[test]
fn entries_are_added_read_and_removed() {
    let mut f = Fixture::new();
    f.script(&[
        ("XADD s 5-1 a 1 b 2", "$3|5-1|"),
        ("XADD s 5-* a 3 b x", "$3|5-2|"),
        ("XADD s * c 4", "$15|1700000000000-0|"),
        ("XADD s * c 5", "$15|1700000000000-1|"),
        ("XLEN s", ":4|"),
        ("XRANGE s 5-2 5-2", "*1|*2|$3|5-2|*4|$1|a|$1|3|$1|b|$1|x|"),
        ("XREVRANGE s + - COUNT 1", "*1|*2|$15|1700000000000-1|*2|$1|c|$1|5|"),
        ("XRANGE s - + COUNT 0", "*-1|"),
        ("XDEL s 5-1 7-7", ":1|"),
        ("XTRIM s MAXLEN 1", ":2|"),
        ("XDEL s 1700000000000-1", ":1|"),
        ("XLEN s", ":0|"),
        ("TYPE s", "+stream|"),
        ("OBJECT ENCODING s", "$6|stream|"),
        ("XADD none NOMKSTREAM 1-1 f v", "$-1|"),
        ("EXISTS none", ":0|"),
        ("XADD none 0-0 f v", "-ERR The ID specified in XADD must be greater than 0-0|"),
        ("XGROUP CREATE none g x MKSTREAM", "-ERR Invalid stream ID specified as stream command argument|"),
        ("EXISTS none", ":0|"),
        ("XSETID s 18446744073709551615-18446744073709551615", "+OK|"),
        ("XADD s * f v", "-ERR The stream has exhausted the last possible ID, unable to add more items|"),
        ("SET t x", "+OK|"),
        ("XADD t * f v", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
}

#[test]
fn a_stream_is_trimmed_on_the_lane_as_on_a_worker() {
    for long in [false, true] {
        let mut f = Fixture::new();
        (1..=250).for_each(|id| drop(f.run(&format!("XADD s {id}-0 f v"))));
        f.all_long = long;
        f.script(&[
            ("XTRIM s MAXLEN ~ 120", ":100|"),
            ("XTRIM s MINID = 110", ":9|"),
            ("XTRIM s MAXLEN 500", ":0|"),
            ("XTRIM s MAXLEN 2", ":139|"),
            ("XRANGE s - + COUNT 1", "*1|*2|$5|249-0|*2|$1|f|$1|v|"),
            ("XTRIM s MAXLEN 0", ":2|"),
            ("XLEN s", ":0|"),
            ("XTRIM none MAXLEN 0", ":0|"),
            ("XTRIM s MAXLEN x", "-ERR value is not an integer or out of range|"),
            ("SET t x", "+OK|"),
            ("XTRIM t MAXLEN 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}

#[test]
fn groups_deliver_claim_and_acknowledge() {
    let mut f = Fixture::new();
    f.script(&[
        ("XGROUP CREATE s g $ MKSTREAM", "+OK|"),
        ("XADD s 1-1 f v", "$3|1-1|"),
        ("XADD s 1-2 f v", "$3|1-2|"),
        ("XREADGROUP GROUP g a COUNT 1 STREAMS s >", "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|f|$1|v|"),
        ("XREADGROUP GROUP g b NOACK STREAMS s >", "*1|*2|$1|s|*1|*2|$3|1-2|*2|$1|f|$1|v|"),
        ("XREADGROUP GROUP g a BLOCK 10 STREAMS s >", "*-1|"),
        ("XPENDING s g", "*4|:1|$3|1-1|$3|1-1|*1|*2|$1|a|$1|1|"),
    ]);
    f.advance_ms(500);
    f.script(&[
        ("XPENDING s g - + 10", "*1|*4|$3|1-1|$1|a|:500|:1|"),
        ("XPENDING s g IDLE 501 - + 10", "*0|"),
        ("XCLAIM s g c 501 1-1", "*0|"),
        ("XCLAIM s g c 500 1-1 JUSTID", "*1|$3|1-1|"),
        ("XPENDING s g - + 10 c", "*1|*4|$3|1-1|$1|c|:0|:1|"),
        ("XPENDING s g - + 10 a", "*0|"),
        ("XDEL s 1-1", ":1|"),
        ("XREADGROUP GROUP g c STREAMS s 0", "*1|*2|$1|s|*1|*2|$3|1-1|*-1|"),
        ("XAUTOCLAIM s g d 0 -", "*3|$3|0-0|*0|*1|$3|1-1|"),
        ("XACK s g 1-1", ":0|"),
        ("XINFO GROUPS s", "*1|*12|$4|name|$1|g|$9|consumers|:3|$7|pending|:0|$17|last-delivered-id|$3|1-2|$12|entries-read|:2|$3|lag|:0|"),
        ("XGROUP DELCONSUMER s g c", ":0|"),
        ("XGROUP DESTROY s g", ":1|"),
        ("XGROUP DESTROY s g", ":0|"),
    ]);
    f.protocol = Protocol::Resp3;
    f.script(&[("XREAD STREAMS s 0", "%1|$1|s|*1|*2|$3|1-2|*2|$1|f|$1|v|"), ("XREAD STREAMS s $", "_|")]);
}

/// A call has the same reply and the same effect on a worker and on the lane.
#[test]
fn long_runs_equal_short_runs() {
    let lines = [
        "XADD s MAXLEN ~ 200 1000-1 f v",
        "XRANGE s 3 +",
        "XREVRANGE s + 3 COUNT 20",
        "XGROUP CREATE s g 0",
        "XREAD COUNT 3 STREAMS s t 0 0",
        "XREADGROUP GROUP g c COUNT 150 STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XPENDING s g",
        "XPENDING s g - + 100",
        "XCLAIM s g d 0 150 151 152",
        "XAUTOCLAIM s g e 0 - COUNT 20",
        "XACK s g 150 151 700",
        "XDEL s 150 151 700",
        "XINFO STREAM s FULL",
        "XINFO STREAM s",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XGROUP DELCONSUMER s g e",
        "XGROUP DESTROY s g",
        "XTRIM s MINID = 900",
        "XRANGE s - +",
    ];
    let run = |all_long: bool| -> Vec<String> {
        let mut f = Fixture::new();
        (1..=500).for_each(|i| _ = f.run(&format!("XADD s {i} n {i}")));
        (1..=5).for_each(|i| _ = f.run(&format!("XADD t {i} n {i}")));
        f.all_long = all_long;
        lines.iter().map(|line| f.run(line)).collect()
    };
    let (short, long) = (run(false), run(true));
    for ((line, short), long) in lines.iter().zip(&short).zip(&long) {
        assert_eq!(short, long, "{line}");
        assert!(!short.starts_with('-'), "{line}: {short}");
    }
}

/// Long calls go to the lane. Short ones do not, however long the stream is.
#[test]
fn only_expensive_calls_are_long() {
    let mut f = Fixture::new();
    (1..=20_000).for_each(|i| _ = f.run(&format!("XADD s {i} n {i}")));
    f.run("XGROUP CREATE s g 0");
    f.run("XREADGROUP GROUP g c COUNT 10000 STREAMS s >");
    for line in [
        "XRANGE s - +",
        "XRANGE s 100 10000",
        "XREVRANGE s + - COUNT 5000",
        "XREAD STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XPENDING s g IDLE 5 - + 1",
        "XPENDING s g - + 10000",
        "XAUTOCLAIM s g c 0 - COUNT 500",
        "XGROUP DELCONSUMER s g c",
        "XINFO STREAM s FULL COUNT 0",
    ] {
        assert!(f.is_line_long(line), "{line}");
    }
    for line in [
        "XRANGE s 100 200",
        "XRANGE s - + COUNT 100",
        "XREVRANGE s + - COUNT 100",
        "XREAD COUNT 100 STREAMS s 0",
        "XADD s * f v",
        "XADD s MAXLEN 10 * f v",
        "XTRIM s MAXLEN 10",
        "XPENDING s g - + 10",
        "XPENDING s g",
        "XAUTOCLAIM s g c 0 -",
        "XGROUP DESTROY s g",
        "XINFO STREAM s",
        "XINFO STREAM s FULL",
    ] {
        assert!(!f.is_line_long(line), "{line}");
    }
}

#[test]
fn counters_beyond_the_numbers_of_commands_are_recorded_readably() {
    let mut f = Fixture::new();
    let max = i64::MAX;
    f.script(&[
        ("XADD s 1-1 f v", "$3|1-1|"),
        ("XADD s 2-1 f v", "$3|2-1|"),
        (&format!("XGROUP CREATE s g 0 ENTRIESREAD {max}"), "+OK|"),
    ]);
    f.run("XREADGROUP GROUP g c STREAMS s >");
    f.run(&format!("XCLAIM s g c 0 1-1 RETRYCOUNT {max}"));
    f.run("XCLAIM s g d 0 1-1");
    let effects = f.effects();
    assert!(effects.contains(&format!("ENTRIESREAD $19 {max}")), "{effects}");
    assert!(effects.contains(&format!("RETRYCOUNT $19 {max}")), "{effects}");
    assert!(!effects.contains("9223372036854775808"), "{effects}");
}
