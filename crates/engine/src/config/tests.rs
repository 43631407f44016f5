//! Config as a whole: text in, values out; all or nothing.

use super::*;

fn load(text: &str) -> Result<Config, ConfigError> {
    let config = Config::new();
    config.load(text, &mut |name| match name {
        "more.conf" => Ok("timeout 9\n".into()),
        "loop.conf" => Ok("include loop.conf".into()),
        _ => Err("no such file".into()),
    })?;
    Ok(config)
}

fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<Vec<Opt>, SetError> {
    config.set(&pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect::<Vec<_>>())
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
fn a_bad_line_is_named_with_redis_s_words() {
    let cases = [
        ("port 1\nfoo bar", 2, "foo bar", "Bad directive or wrong number of arguments"),
        ("port x", 1, "port x", "argument couldn't be parsed into an integer"),
        ("port", 1, "port", "wrong number of arguments"),
        ("port 1 2", 1, "port 1 2", "wrong number of arguments"),
        ("databases 0", 1, "databases 0", "argument must be between 1 and 2147483647 inclusive"),
        ("\n\nmaxclients \"10", 3, "maxclients \"10", "Unbalanced quotes in configuration line"),
        ("include nofile", 1, "include nofile", "no such file"),
        ("include loop.conf", 1, "include loop.conf", "files are included more than 16 deep"),
        ("save 900 1", 1, "save 900 1", "data is not written to disk by this version; the only value is ''"),
        ("maxmemory 1tb", 1, "maxmemory 1tb", "argument must be a memory value"),
        (
            "daemonize yes",
            1,
            "daemonize yes",
            "running in the background is not supported, use a service manager; the only value is 'no'",
        ),
    ];
    for (text, line, shown, reason) in cases {
        let err = load(text).expect_err(text);
        assert_eq!((err.line, err.text.as_str(), err.reason.as_str()), (line, shown, reason));
    }
}

#[test]
fn set_is_all_or_nothing() {
    let config = Config::new();
    let refused =
        |name: &str, reason: &str| Err(SetError::Refused { name: name.into(), reason: reason.into() });
    let before = config.generation();
    let cases: &[(&[(&str, &str)], _)] = &[
        (&[("timeout", "5"), ("foo", "1")], Err(SetError::Unknown("foo".into()))),
        (
            &[("timeout", "5"), ("maxclients", "0")],
            refused("maxclients", "argument must be between 1 and 4294967295 inclusive"),
        ),
        (&[("timeout", "5"), ("Timeout", "6")], refused("Timeout", "duplicate parameter")),
        (&[("timeout", "5"), ("databases", "3")], refused("databases", "can't set immutable config")),
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
        assert_eq!(set(&config, pairs), *want, "{pairs:?}");
    }
    assert_eq!(config.generation(), before);
    assert_eq!(config.timeout_s(), 0);
    assert_eq!(set(&config, &[("TIMEOUT", "5"), ("hz", "9999")]), Ok(vec![Opt::Timeout, Opt::Hz]));
    assert_eq!((config.timeout_s(), config.hz()), (5, 500));
    assert!(config.generation() > before);
    assert_eq!(set(&config, &[("save", ""), ("appendonly", "no")]).map(|o| o.len()), Ok(2));
}

#[test]
fn every_option_goes_through_its_own_text() {
    let config = Config::new();
    for (option, spec) in table::ALL.iter().zip(OPTIONS) {
        let text = config.text(*option);
        let line = match spec.kind {
            Kind::Words | Kind::OutputLimits => format!("{} {}", spec.name, String::from_utf8_lossy(&text)),
            _ => format!("{} {}", spec.name, text::quote(&text)),
        };
        config.load(&line, &mut |_| unreachable!()).unwrap();
        assert_eq!(config.text(*option), text, "{}", spec.name);
    }
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
