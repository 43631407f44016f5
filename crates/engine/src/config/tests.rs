//! The whole configuration: text in, values out; all or nothing.

use super::*;

fn load(text: &str) -> Result<Config, ConfigError> {
    let config = Config::new();
    let source =
        |name: &str, text: &str| ConfigText { name: name.into(), text: text.into(), is_numbered: true };
    config.load(&source("a.conf", text), &mut |name| match name {
        "more.conf" => Ok(vec![source(name, "timeout 9\n")]),
        "two*.conf" => {
            Ok(vec![source("two-1.conf", "hz 11"), source("two-2.conf", "\nhz 12\nactiverehashing no")])
        }
        "wrong.conf" => Ok(vec![source(name, "# x\nhz y")]),
        "loop.conf" => Ok(vec![source(name, "include loop.conf")]),
        "tree.conf" => Ok(vec![source(name, "include tree.conf"); 3]),
        _ => Err("no such file".into()),
    })?;
    Ok(config)
}

fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<Vec<Opt>, SetError> {
    config.set(&pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect::<Vec<_>>(), false)
}

#[test]
fn a_file_is_read() {
    let config = load(
        "# comment\n\n  PORT 7000\r\nbind 127.0.0.1 -::1\nmaxclients \"12\"\nsave \"\"\nappendonly no\n\
         client-output-buffer-limit normal 1mb 2mb 3\nhash-max-ziplist-entries 7\nrequirepass 'a b'\ninclude more.conf\n",
    )
    .unwrap();
    assert_eq!(config.port(), 7000);
    assert_eq!(config.bind(), ["127.0.0.1", "-::1"]);
    assert_eq!(config.maxclients(), 12);
    assert_eq!(config.timeout_s(), 9);
    assert_eq!(config.requirepass(), b"a b");
    assert_eq!(config.number(Opt::HashMaxListpackEntries), 7);
    assert_eq!(config.output_limits()[0], [1 << 20, 2 << 20, 3]);
}

#[test]
fn a_bad_line_is_named_and_explained() {
    let cases = [
        ("port 1\nfoo bar", "a.conf:2: there is no option \"foo\"; `strand serve --help` lists the options"),
        ("maxmemroy 1gb", "a.conf:1: there is no option \"maxmemroy\"; did you mean maxmemory?"),
        (
            "port x",
            "a.conf:1: \"port x\": argument couldn't be parsed into an integer; it takes a whole number from 0 to 65535",
        ),
        ("port", "a.conf:1: \"port\": wrong number of arguments; it takes a whole number from 0 to 65535"),
        (
            "port 1 2",
            "a.conf:1: \"port 1 2\": wrong number of arguments; it takes a whole number from 0 to 65535",
        ),
        (
            "requirepass secret word",
            "a.conf:1: \"requirepass\": wrong number of arguments; it takes one word, or a text in quotes",
        ),
        (
            "databases 0",
            "a.conf:1: \"databases 0\": argument must be between 1 and 2147483647 inclusive; it takes a whole number from 1",
        ),
        ("\n\nmaxclients \"10", "a.conf:3: the quotes do not match in \"maxclients\""),
        ("include nofile", "a.conf:1: no such file"),
        (
            "port 1\ninclude wrong.conf",
            "wrong.conf:2: \"hz y\": argument couldn't be parsed into an integer; it takes a whole number from 0",
        ),
        ("include loop.conf", "loop.conf:1: files are included more than 16 deep"),
        ("include", "a.conf:1: \"include\": wrong number of arguments"),
        (
            "save 900",
            "a.conf:1: \"save 900\": Invalid save parameters; it takes <seconds> <changes>, once or more, or \"\"",
        ),
        (
            "maxmemory 1tb",
            "a.conf:1: \"maxmemory 1tb\": argument must be a memory value; it takes a number of bytes, such as 1000, 100mb or 2gb",
        ),
        ("daemonize y", "a.conf:1: \"daemonize y\": argument must be 'yes' or 'no'"),
        (
            "appendfsync often",
            "a.conf:1: \"appendfsync often\": argument(s) must be one of the following: everysec, always, no",
        ),
        ("port 1\n# a\0b", "a.conf:2: there is a NUL byte in this line; the file is not a text file"),
        ("port\0 1", "a.conf:1: there is a NUL byte in this line; the file is not a text file"),
        (
            "sentinel monitor m 127.0.0.1 6379 2",
            "a.conf:1: sentinel is an option of Redis Sentinel; Strand is a data server",
        ),
        (
            "\u{1b}[31m 1",
            "a.conf:1: there is no option \"\\u{1b}[31m\"; `strand serve --help` lists the options",
        ),
    ];
    for (text, said) in cases {
        assert_eq!(load(text).expect_err(text).to_string(), said);
    }
    let replica = load("port 1\nreplicaof 10.0.0.1 x").expect_err("it is no port").to_string();
    assert!(replica.contains("a.conf:2") && replica.contains("Invalid master port"), "{replica}");
    let renamed = load("rename-command CONFIG \"\"").expect_err("it would stay reachable").to_string();
    assert!(renamed.contains("-config"), "{renamed}");
    let long = load(&format!("{} 1", "x".repeat(1000))).expect_err("no option").to_string();
    assert!(long.contains("xxx...\"") && long.len() < 200, "{long}");
}

#[test]
fn files_are_bounded_in_number_and_patterns_name_several() {
    let tree = load("include tree.conf").expect_err("it has no end").to_string();
    assert!(
        tree.ends_with("files are included more than 16 deep") || tree.contains("more than 1000 files"),
        "{tree}"
    );
    let config = load("include two*.conf").unwrap();
    assert_eq!(config.hz(), 12);
    assert_eq!(config.notes()[0].place.to_string(), "two-2.conf:3");
}

#[test]
fn options_without_effect_are_accepted_and_noted_once() {
    let config = load(
        "daemonize no\nio-threads 4\nsave 900 1\nsave 60 1000\nport 1\nalways-show-logo no\nloadmodule /x.so a\n\
         lua-replicate-commands yes\nft.workers 3\nDaemonize yes\nslaveof no one\n",
    )
    .unwrap();
    assert_eq!(config.text(table::find(b"save").unwrap()), b"900 1 60 1000");
    let notes: Vec<_> = config.notes().iter().map(|n| (n.to_string(), n.is_default)).collect();
    let said = [
        (
            "a.conf:2: io-threads has no effect: threads are set with \"workers\" (default: one for each core)",
            false,
        ),
        ("a.conf:6: always-show-logo has no effect: there is no logo", true),
        (
            "a.conf:7: \"loadmodule\" has no effect: modules are not loaded, so their commands do not exist",
            false,
        ),
        (
            "a.conf:8: \"lua-replicate-commands\" has no effect: redis-server 7.0 ignores this option, too",
            false,
        ),
        (
            "a.conf:9: \"ft.workers\" has no effect: it looks like an option of a module, and modules are not loaded",
            false,
        ),
        (
            "a.conf:10: daemonize has no effect: the server stays in the foreground; let a service manager run it",
            false,
        ),
        ("a.conf:11: replicaof has no effect: this server follows no primary", true),
    ];
    // Skip options that have an effect in this version; all others must be noted.
    let acts = |text: &str| {
        let name = text.split([' ', ':']).nth(3).unwrap_or_default();
        find(name.as_bytes()).is_some_and(|o| o.spec().no_effect.is_none())
    };
    let said: Vec<_> = said.iter().filter(|(t, _)| !acts(t)).map(|(t, d)| (t.to_string(), *d)).collect();
    assert_eq!(notes, said);
}

#[test]
fn save_points_begin_anew_with_each_source_of_them() {
    let save = table::find(b"save").unwrap();
    for (text, points) in [
        ("", "3600 1 300 100 60 10000"),
        ("save 1 2\nsave 3 4", "1 2 3 4"),
        ("save 1 2\nsave \"\"\nsave 5 6", "5 6"),
        ("save", ""),
    ] {
        assert_eq!(String::from_utf8(load(text).unwrap().text(save)).unwrap(), points, "{text}");
    }
    let config = load("save 1 2").unwrap();
    set(&config, &[("save", "7 8")]).unwrap();
    assert_eq!(config.text(save), b"7 8", "CONFIG SET replaces them");
}

/// The names that CONFIG GET * of redis-server 7.0.15 lists, former names included.
const REDIS_NAMES: &str = include_str!("redis_names.txt");

#[test]
fn every_option_of_redis_server_is_known() {
    let unknown: Vec<_> = REDIS_NAMES.lines().filter(|name| find(name.as_bytes()).is_none()).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn set_is_all_or_nothing() {
    let config = Config::new();
    let refused = |name: &str, reason: &str| Err((name.to_string(), reason.to_string()));
    let before = config.generation();
    let cases: &[(&[(&str, &str)], _)] = &[
        (&[("timeout", "5"), ("foo", "1")], refused("foo", "no such option")),
        (
            &[("timeout", "5"), ("maxclients", "0")],
            refused("maxclients", "argument must be between 1 and 4294967295 inclusive"),
        ),
        (&[("timeout", "5"), ("Timeout", "6")], refused("Timeout", "duplicate parameter")),
        (&[("timeout", "5"), ("databases", "3")], refused("databases", "can't set immutable config")),
        (&[("databases", "3"), ("foo", "1")], refused("databases", "can't set immutable config")),
        (&[("dir", "/tmp")], refused("dir", "can't set protected config")),
        (&[("timeout", "-1")], refused("timeout", "argument must be between 0 and 2147483647 inclusive")),
        (
            &[("loglevel", "x")],
            refused("loglevel", "argument(s) must be one of the following: debug, verbose, notice, warning"),
        ),
        (&[("protected-mode", "x")], refused("protected-mode", "argument must be 'yes' or 'no'")),
        (&[("proto-max-bulk-len", "1x")], refused("proto-max-bulk-len", "argument must be a memory value")),
        (
            &[("client-output-buffer-limit", "normal 1 2")],
            refused("client-output-buffer-limit", "Wrong number of arguments in buffer limit configuration."),
        ),
        (
            &[("client-output-buffer-limit", "x 1 2 3")],
            refused(
                "client-output-buffer-limit",
                "Invalid client class specified in buffer limit configuration.",
            ),
        ),
        (
            &[("client-output-buffer-limit", "normal 1 2 -3")],
            refused(
                "client-output-buffer-limit",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
        ),
    ];
    for (pairs, want) in cases {
        let shown = set(&config, pairs).map_err(|error| match error {
            SetError::Unknown(name) => (String::from_utf8(name).unwrap(), "no such option".into()),
            SetError::Refused { name, reason } => (String::from_utf8(name).unwrap(), reason.to_string()),
        });
        assert_eq!(shown, *want, "{pairs:?}");
    }
    assert_eq!(config.generation(), before);
    assert_eq!(config.timeout_s(), 0);
    assert_eq!(set(&config, &[("TIMEOUT", "5"), ("hz", "9999")]), Ok(vec![Opt::Timeout, Opt::Hz]));
    assert_eq!((config.timeout_s(), config.hz()), (5, 500));
    assert!(config.generation() > before);
    assert_eq!(set(&config, &[("save", ""), ("appendonly", "no")]).map(|o| o.len()), Ok(2));
}

#[test]
fn quotes_may_put_all_words_of_an_option_into_one() {
    let text = "shutdown-on-sigint \"now nosave\"\nclient-output-buffer-limit \"normal 1 2 3\"\noom-score-adj-values '0 1 2'\n\
                latency-tracking-info-percentiles \"50 99\"\nsave \"3600 1 300 10\"\n";
    let config = load(text).unwrap();
    for (option, want) in [
        (Opt::ShutdownOnSigint, "nosave now"),
        (Opt::OomScoreAdjValues, "0 1 2"),
        (Opt::LatencyTrackingInfoPercentiles, "50 99"),
        (Opt::Save, "3600 1 300 10"),
    ] {
        assert_eq!(config.text(option), want.as_bytes());
    }
    assert!(config.text(Opt::ClientOutputBufferLimit).starts_with(b"normal 1 2 3 "));
}

#[test]
fn every_option_goes_through_its_own_text() {
    let config = Config::new();
    for (option, spec) in table::ALL.iter().zip(OPTIONS) {
        let text = config.text(*option);
        let line = line(spec, &config.values.read()[*option as usize]);
        config.load_text(&line).unwrap();
        assert_eq!(config.text(*option), text, "{}", spec.name);
    }
}

#[test]
fn a_primary_has_no_line_of_a_replica() {
    let config = load("replicaof 10.0.0.1 1\nport 7000\n").unwrap();
    let old = config.rewrite("slaveof 10.0.0.2 2\nport 1\n");
    assert_eq!(old, "replicaof 10.0.0.1 1\nport 7000\n");
    config.set_primary(None);
    assert_eq!(config.rewrite(&old), "port 7000\n");
}

#[test]
fn rewriting_writes_what_was_changed_and_reads_back() {
    let config = load("port 7000\n").unwrap();
    set(&config, &[("timeout", "5"), ("requirepass", "a \"b"), ("proto-max-bulk-len", "2mb")]).unwrap();
    let text = config.rewrite("# mine\nrequirepass old\nport 7000\n");
    assert_eq!(
        text, "# mine\nport 7000\n# Generated by CONFIG REWRITE\nproto-max-bulk-len 2097152\ntimeout 5\n",
        "passwords are kept with their users"
    );
    let again = load(&text).unwrap();
    let mut others = table::ALL.iter().filter(|o| **o != Opt::RequirePass);
    assert!(others.all(|o| again.text(*o) == config.text(*o)));
}
