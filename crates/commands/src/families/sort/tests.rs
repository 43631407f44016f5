//! SORT and SORT_RO on the worker and on the lane.

use crate::fixture::Fixture;

fn filled() -> Fixture {
    let mut f = Fixture::new();
    f.script(&[
        ("RPUSH l 3 1 10 2", ":4|"),
        ("MSET w_1 7 w_2 9 w_3 1 w_10 4 o_1 one o_2 two o_3 three", "+OK|"),
        ("HSET h_1 f x w 5", ":2|"),
        ("HSET h_2 f y", ":1|"),
        ("SADD s b a c", ":3|"),
        ("ZADD z 1 c 2 b 3 a", ":3|"),
    ]);
    f
}

/// Runs the call on the worker and on the lane, and compares both replies.
#[track_caller]
fn both(f: &mut Fixture, steps: &[(&str, &str)]) {
    for long in [false, true] {
        f.all_long = long;
        f.script(steps);
    }
    f.all_long = false;
}

#[test]
fn elements_are_ordered() {
    let mut f = filled();
    both(
        &mut f,
        &[
            ("SORT l", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("SORT l DESC", "*4|$2|10|$1|3|$1|2|$1|1|"),
            ("SORT l ALPHA", "*4|$1|1|$2|10|$1|2|$1|3|"),
            ("SORT l LIMIT 1 2", "*2|$1|2|$1|3|"),
            ("SORT l LIMIT -1 -5", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("SORT l LIMIT 4 1", "*0|"),
            ("SORT_RO s ALPHA DESC", "*3|$1|c|$1|b|$1|a|"),
            ("SORT none", "*0|"),
            ("SORT s", "-ERR One or more scores can't be converted into double|"),
            ("RPUSH wide 1 1e400", ":2|"),
            ("SORT wide", "-ERR One or more scores can't be converted into double|"),
            ("DEL wide", ":1|"),
            ("SORT s LIMIT 0 0", "-ERR One or more scores can't be converted into double|"),
            ("SORT w_1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("SORT_RO l STORE d", "-ERR syntax error|"),
            ("SORT l LIMIT x 1", "-ERR value is not an integer or out of range|"),
            ("SORT l LIMIT 1", "-ERR syntax error|"),
        ],
    );
}

#[test]
fn by_and_get_patterns_choose_order_and_reply() {
    let mut f = filled();
    // A number ends at a zero byte.
    f.run_args(&["MSET", "z_1", "\0five", "z_2", "2\0x", "z_3", "3\0\0", "z_10", "1\0"]);
    both(
        &mut f,
        &[
            ("SORT l BY w_*", "*4|$1|3|$2|10|$1|1|$1|2|"),
            ("SORT l BY w_* DESC LIMIT 0 1 GET # GET o_* GET h_*->f GET none", "*4|$1|2|$3|two|$1|y|$-1|"),
            ("SORT l BY h_*->w GET #", "*4|$2|10|$1|2|$1|3|$1|1|"),
            ("SORT l BY o_* ALPHA", "*4|$2|10|$1|1|$1|3|$1|2|"),
            ("SORT l BY o_*", "-ERR One or more scores can't be converted into double|"),
            ("SORT l BY z_*", "*4|$1|1|$2|10|$1|2|$1|3|"),
            ("SORT l BY nosort", "*4|$1|3|$1|1|$2|10|$1|2|"),
            ("SORT l BY nosort DESC LIMIT 1 2", "*2|$2|10|$1|1|"),
            ("SORT z BY nosort LIMIT 0 2", "*2|$1|c|$1|b|"),
            ("SORT z BY nosort DESC", "*3|$1|a|$1|b|$1|c|"),
            ("SORT l GET h_*-> GET l_* GET l", "*12|$-1|$-1|$-1|$-1|$-1|$-1|$-1|$-1|$-1|$-1|$-1|$-1|"),
        ],
    );
}

#[test]
fn the_result_is_stored() {
    let mut f = filled();
    both(
        &mut f,
        &[
            ("SORT l STORE d", ":4|"),
            ("LRANGE d 0 -1", "*4|$1|1|$1|2|$1|3|$2|10|"),
            ("SORT l BY w_* GET o_* GET # STORE d LIMIT 0 2", ":4|"),
            ("LRANGE d 0 -1", "*4|$5|three|$1|3|$0||$2|10|"),
            ("SORT s BY nosort STORE d", ":3|"),
            ("LRANGE d 0 -1", "*3|$1|a|$1|b|$1|c|"),
            ("SORT d ALPHA DESC STORE d", ":3|"),
            ("LRANGE d 0 -1", "*3|$1|c|$1|b|$1|a|"),
            ("SORT s STORE d", "-ERR One or more scores can't be converted into double|"),
            ("EXISTS d", ":1|"),
            ("SORT none STORE d", ":0|"),
            ("EXISTS d", ":0|"),
        ],
    );
}

/// Keys that are too many to be read at one moment are read in slices, and the call pauses between them.
#[test]
fn large_sort_runs_in_slices() {
    let mut f = Fixture::new();
    let n = 5_000;
    let elements: Vec<String> = (0..n).map(|i| (i * 7919 % n).to_string()).collect();
    let with_name = |name: &str, of: &dyn Fn(usize) -> Vec<String>| {
        let mut args: Vec<String> = name.split(' ').map(str::to_owned).collect();
        args.extend((0..n as usize).flat_map(of));
        args
    };
    f.run_args(&with_name("RPUSH l", &|i| vec![elements[i].clone()]));
    f.run_args(&with_name("MSET", &|i| vec![format!("w_{i}"), (n as usize - i).to_string()]));
    let pauses = f.pauses.get();
    assert_eq!(f.run("SORT l BY w_* LIMIT 0 3 GET # GET w_*"), "*6|$4|4999|$1|1|$4|4998|$1|2|$4|4997|$1|3|");
    assert!(f.pauses.get() > pauses + 30);
    assert_eq!(f.run("SORT l BY w_* STORE d"), ":5000|");
    assert_eq!(f.run("LRANGE d 0 1"), "*2|$4|4999|$4|4998|");
    assert_eq!(f.run("SORT l LIMIT 4998 2 STORE d"), ":2|");
    assert_eq!(f.run("LRANGE d 0 1"), "*2|$4|4998|$4|4999|");
}
