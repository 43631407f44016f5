//! The sorted set commands on a small keyspace, on a worker and in their long forms.

use crate::fixture::Fixture;
use strand_wire::reply::Protocol;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

#[test]
fn members_get_and_keep_their_scores() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.script(&[
            ("ZADD z 1 a 2 b 3 c", ":3|"),
            ("ZADD z CH 5 a 2 b", ":1|"),
            ("ZADD z XX 9 d", ":0|"),
            ("ZADD z NX 9 a", ":0|"),
            ("ZADD z GT CH 4 a 4 b", ":1|"),
            ("ZADD z LT CH 6 a 1 c", ":1|"),
            ("ZADD z INCR 1.5 c", "$3|2.5|"),
            ("ZADD z NX INCR 1 c", "$-1|"),
            ("ZINCRBY z -0.5 c", "$1|2|"),
            ("ZADD z 1 x bad y", "-ERR value is not a valid float|"),
            ("ZCARD z", ":3|"),
            ("ZRANGE z 0 -1 WITHSCORES", "*6|$1|c|$1|2|$1|b|$1|4|$1|a|$1|5|"),
            ("ZSCORE z b", "$1|4|"),
            ("ZMSCORE z b none", "*2|$1|4|$-1|"),
            ("ZRANK z a", ":2|"),
            ("ZREVRANK z a WITHSCORE", "*2|:0|$1|5|"),
            ("ZRANK z none", "$-1|"),
            ("ZRANK z none WITHSCORE", "*-1|"),
            ("ZRANK z a WITHOUT", "-ERR syntax error|"),
            ("ZADD i inf m", ":1|"),
            ("ZINCRBY i -inf m", "-ERR resulting score is not a number (NaN)|"),
            ("ZREM z a none", ":1|"),
            ("ZREM z b c", ":2|"),
            ("EXISTS z", ":0|"),
            ("ZADD new XX 1 a", ":0|"),
            ("EXISTS new", ":0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[("ZSCORE i m", ",inf|"), ("ZRANGE i 0 -1 WITHSCORES", "*1|*2|$1|m|,inf|")]);
    }
}

#[test]
fn ranges_of_every_kind() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.run("ZADD z 1 a 2 b 3 c 4 d");
        f.run("ZADD l 0 a 0 b 0 c 0 d");
        f.script(&[
            ("ZRANGE z 1 2", "*2|$1|b|$1|c|"),
            ("ZRANGE z 0 0 REV", "*1|$1|d|"),
            ("ZREVRANGE z 0 1", "*2|$1|d|$1|c|"),
            ("ZRANGE z (1 3 BYSCORE", "*2|$1|b|$1|c|"),
            ("ZRANGE z +inf (1 BYSCORE REV LIMIT 1 1", "*1|$1|c|"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT -1 5", "*0|"),
            ("ZREVRANGEBYSCORE z 3 2", "*2|$1|c|$1|b|"),
            ("ZRANGE l [b (d BYLEX", "*2|$1|b|$1|c|"),
            ("ZRANGEBYLEX l - + LIMIT 2 -1", "*2|$1|c|$1|d|"),
            ("ZREVRANGEBYLEX l + [c", "*2|$1|d|$1|c|"),
            ("ZCOUNT z 2 (4", ":2|"),
            ("ZLEXCOUNT l (a +", ":3|"),
            ("ZRANGESTORE s z 0 1", ":2|"),
            ("ZRANGE s 0 -1", "*2|$1|a|$1|b|"),
            ("ZRANGESTORE s z 9 9", ":0|"),
            ("EXISTS s", ":0|"),
            ("ZREMRANGEBYRANK z 0 0", ":1|"),
            ("ZREMRANGEBYSCORE z 3 3", ":1|"),
            ("ZREMRANGEBYLEX l [a (c", ":2|"),
            ("ZRANGE z 0 -1", "*2|$1|b|$1|d|"),
            ("ZRANGE l 0 -1", "*2|$1|c|$1|d|"),
        ]);
    }
}

/// The replies are those of redis-server 7.0. The fixture runs the journal on a second keyspace.
#[test]
fn ranges_of_members_that_are_not_in_order() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.run("ZADD z 1 m 2 01");
        f.script(&[
            ("ZRANGEBYLEX z (a +", "*0|"),
            ("ZRANGEBYLEX z [0 (b", "*0|"),
            ("ZRANGEBYLEX z - +", "*2|$1|m|$2|01|"),
            ("ZREVRANGEBYLEX z + (a", "*0|"),
            ("ZREVRANGEBYLEX z [b -", "*0|"),
            ("ZLEXCOUNT z [0 +", ":2|"),
            ("ZREMRANGEBYLEX z (a +", ":0|"),
            ("ZREMRANGEBYLEX z [b [a", ":0|"),
            ("ZADD y 1 a 2 z 3 c 4 b 5 x", ":5|"),
            ("ZRANGEBYLEX y [a [d", "*1|$1|a|"),
            ("ZRANGEBYLEX y [a [x", "*1|$1|a|"),
            ("ZREVRANGEBYLEX y [x [a", "*5|$1|x|$1|b|$1|c|$1|z|$1|a|"),
            ("ZRANGESTORE s y [a [x BYLEX", ":1|"),
            ("ZRANGESTORE s y [x [a BYLEX REV", ":5|"),
            ("ZRANGE s 0 -1", "*5|$1|a|$1|z|$1|c|$1|b|$1|x|"),
            ("ZREMRANGEBYLEX y [a [x", ":1|"),
            ("ZRANGE y 0 -1", "*4|$1|z|$1|c|$1|b|$1|x|"),
        ]);
    }
}

/// The journal names ranks, because redis-server begins at a random level of a skip list.
#[test]
fn the_effect_of_a_range_of_members_that_are_not_in_order_names_ranks() {
    let long = "l".repeat(70);
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.run(&format!("ZADD z 1 b 2 {long} 3 c 4 a"));
        f.run("ZRANGESTORE s z [a [d BYLEX");
        f.run("ZREMRANGEBYLEX z [a [d");
        let effects = f.effects();
        assert!(effects.contains("$11 ZRANGESTORE $1 s $1 z $1 0 $1 0 "), "{effects}");
        assert!(effects.contains("$15 ZREMRANGEBYRANK $1 z $1 0 $1 0 "), "{effects}");
        assert!(!effects.contains("BYLEX"), "{effects}");
    }
}

#[test]
fn ends_and_random_members() {
    let mut f = Fixture::new();
    f.run("ZADD z 1 a 2 b 3 c 4 d");
    f.script(&[
        ("ZPOPMIN z", "*2|$1|a|$1|1|"),
        ("ZPOPMAX z 2", "*4|$1|d|$1|4|$1|c|$1|3|"),
        ("ZPOPMIN z 0", "*0|"),
        ("ZPOPMIN none", "*0|"),
        ("ZRANDMEMBER z", "$1|b|"),
        ("ZRANDMEMBER z -2 WITHSCORES", "*4|$1|b|$1|2|$1|b|$1|2|"),
        ("ZRANDMEMBER none 1", "*0|"),
        ("ZSCAN z 0", "*2|$1|0|*2|$1|b|$1|2|"),
        ("ZADD whole 1e17 a", ":1|"),
        ("ZSCAN whole 0", "*2|$1|0|*2|$1|a|$18|100000000000000000|"),
        ("ZADD whole 1e19 a", ":0|"),
        ("ZSCAN whole 0", "*2|$1|0|*2|$1|a|$5|1e+19|"),
        ("ZMPOP 2 none z MAX COUNT 5", "*2|$1|z|*1|*2|$1|b|$1|2|"),
        ("ZMPOP 1 z MAX", "*-1|"),
    ]);
    for i in 0..300 {
        f.run(&format!("ZADD z {i} m{i}"));
    }
    for count in [5, 200, 300, 1000] {
        let reply = f.run(&format!("ZRANDMEMBER z {count}"));
        let seen: std::collections::BTreeSet<&str> =
            reply.split('|').filter(|p| p.starts_with('m')).collect();
        assert_eq!(seen.len(), count.min(300));
    }
}

#[test]
fn several_sorted_sets_are_combined() {
    for all_long in [false, true] {
        let mut f = Fixture::new();
        f.all_long = all_long;
        f.run("ZADD a 1 x 2 y 3 z");
        f.run("ZADD b 10 y 20 z 30 w");
        f.script(&[
            ("ZUNION 2 a b WITHSCORES", "*8|$1|x|$1|1|$1|y|$2|12|$1|z|$2|23|$1|w|$2|30|"),
            ("ZINTER 2 a b WEIGHTS 2 1 AGGREGATE MIN WITHSCORES", "*4|$1|y|$1|4|$1|z|$1|6|"),
            ("ZUNION 2 a b AGGREGATE COUNT WITHSCORES", "*8|$1|w|$1|1|$1|x|$1|1|$1|y|$1|2|$1|z|$1|2|"),
            ("ZINTER 2 a b WEIGHTS 2 5 AGGREGATE count WITHSCORES", "*4|$1|y|$1|7|$1|z|$1|7|"),
            ("ZUNIONSTORE d 2 a b WEIGHTS inf -inf AGGREGATE COUNT", ":4|"),
            ("ZRANGE d 0 -1 WITHSCORES", "*8|$1|w|$4|-inf|$1|y|$1|0|$1|z|$1|0|$1|x|$3|inf|"),
            ("ZINTER 2 a none", "*0|"),
            ("ZDIFF 2 a b WITHSCORES", "*2|$1|x|$1|1|"),
            ("ZDIFF 2 none b", "*0|"),
            ("ZINTERCARD 2 a b", ":2|"),
            ("ZINTERCARD 2 a b LIMIT 1", ":1|"),
            ("ZUNIONSTORE d 2 a b", ":4|"),
            ("ZINTERSTORE d 2 d b AGGREGATE MAX", ":3|"),
            ("ZRANGE d 0 -1 WITHSCORES", "*6|$1|y|$2|12|$1|z|$2|23|$1|w|$2|30|"),
            ("ZDIFFSTORE d 1 none", ":0|"),
            ("EXISTS d", ":0|"),
            ("SADD m 1 w x", ":3|"),
            ("ZUNION 2 a m WITHSCORES", "*10|$1|1|$1|1|$1|w|$1|1|$1|x|$1|2|$1|y|$1|2|$1|z|$1|3|"),
            ("ZINTER 2 m b WEIGHTS 5 1 WITHSCORES", "*2|$1|w|$2|35|"),
            ("ZDIFF 2 m a", "*2|$1|1|$1|w|"),
            ("ZUNION 0 a", "-ERR at least 1 input key is needed for 'zunion' command|"),
            ("ZUNION 3 a b", "-ERR syntax error|"),
            ("SET s v", "+OK|"),
            ("ZUNION 2 a s FOO", WRONG_TYPE),
        ]);
    }
}

#[test]
fn long_calls_leave_the_worker() {
    let mut f = Fixture::new();
    let line: Vec<String> = (0..6000).map(|i| format!("{i} m{i}")).collect();
    assert_eq!(f.run(&format!("ZADD z {}", line.join(" "))), ":6000|");
    assert_eq!(f.run("OBJECT ENCODING z"), "$8|skiplist|");
    f.pauses.take();
    assert!(f.run("ZRANGE z 0 99").starts_with("*100|$2|m0|"));
    assert_eq!(f.pauses.take(), 0);
    assert!(f.run("ZRANGE z 0 -1").starts_with("*6000|$2|m0|"));
    assert!(f.pauses.take() > 5);
    assert_eq!(f.run("ZUNIONSTORE d 2 z z"), ":6000|");
    assert_eq!(f.run("ZSCORE d m5999"), "$5|11998|");
    assert_eq!(f.run("ZREMRANGEBYSCORE z 0 4999"), ":5000|");
    assert_eq!(f.run("ZRANK z m5000"), ":0|");
    let (mut cursor, mut seen) = (String::from("0"), std::collections::BTreeSet::new());
    loop {
        let reply = f.run(&format!("ZSCAN d {cursor} COUNT 5000"));
        let parts: Vec<&str> = reply.split('|').collect();
        cursor = parts[2].into();
        seen.extend(parts.iter().filter(|p| p.starts_with('m')).map(|p| p.to_string()));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 6000);
}
