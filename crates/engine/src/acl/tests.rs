//! Rules, descriptions, checks and files, compared with redis-server 7.0.15.

use super::load::{merge_selectors, rewrite_users};
use super::*;
use strand_wire::args::Argv;

fn rules(line: &str) -> Vec<Vec<u8>> {
    merge_selectors(line.split(' ').map(str::as_bytes)).expect("parentheses are closed")
}
fn set(acl: &Acl, name: &str, line: &str) -> Result<(), String> {
    let done = acl.set_user(name.as_bytes(), &rules(line), false);
    done.map_err(|(rule, error)| format!("{}: {}", String::from_utf8_lossy(&rule), error))
}
fn line(acl: &Acl, name: &str) -> String {
    String::from_utf8(acl.get(name.as_bytes()).expect("a user").line()).expect("text")
}
fn may(acl: &Acl, name: &str, command: &str) -> Result<(), Denied> {
    let argv = Argv::from_slices(&command.split(' ').collect::<Vec<_>>());
    let found =
        crate::TABLE.resolve(argv.args()).map_err(|e| String::from_utf8(e).unwrap()).expect("a command");
    acl.get(name.as_bytes()).expect("a user").check(found.spec, argv.args(), &mut || true)
}

#[test]
fn users_are_described_as_redis_server_describes_them() {
    let acl = Acl::new();
    assert_eq!(line(&acl, "default"), "user default on nopass ~* &* +@all");
    // Each line is applied to a new user. The second text is redis-server 7.0.15's description.
    for (given, want) in [
        ("", "off resetchannels -@all"),
        ("reset", "off sanitize-payload resetchannels -@all"),
        ("on nopass allkeys allchannels allcommands", "on nopass ~* &* +@all"),
        (
            "ON >foo",
            "on #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae resetchannels -@all",
        ),
        ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
        ("~x* %R~r* %W~w* %RW~rw %r~x* &ch &ch", "off ~x* %R~r* %W~w* ~rw resetchannels &ch -@all"),
        ("%R~a %W~a", "off ~a resetchannels -@all"),
        // A pattern may follow this rule. No pattern may follow redis-server's `~*`.
        ("%RW~* %R~a", "off %RW~* %R~a resetchannels -@all"),
        ("%R", "off %R~ resetchannels -@all"),
        ("%RW~*", "off ~* resetchannels -@all"),
        ("+@read -get", "off resetchannels -@all +@read -get"),
        ("+@all -@dangerous", "off resetchannels +@all -@dangerous"),
        ("+@all -@dangerous +@dangerous", "off resetchannels +@all"),
        ("+@all -get +get", "off resetchannels +@all"),
        ("+@hyperloglog +@string", "off resetchannels -@all +@string +@hyperloglog"),
        ("+@all -config", "off resetchannels +@all -config"),
        ("+config|get", "off resetchannels -@all +config|get"),
        ("+select|0 +SELECT|0", "off resetchannels -@all +select|0"),
        ("+select|0 +select", "off resetchannels -@all +select"),
        ("+acl -acl|setuser", "off resetchannels -@all +acl -acl|setuser"),
        (
            "(+get ~a*) ( +set   ~b* )",
            "off resetchannels -@all (~a* resetchannels -@all +get) (~b* resetchannels -@all +set)",
        ),
        ("(+get) clearselectors ()", "off resetchannels -@all (resetchannels -@all)"),
        ("(+get \"~a)", "off resetchannels -@all (resetchannels -@all)"),
    ] {
        set(&acl, "u", given).unwrap_or_else(|e| panic!("{given}: {e}"));
        assert_eq!(line(&acl, "u"), format!("user u {want}"), "{given}");
        acl.delete([&b"u"[..]].into_iter());
    }
}

#[test]
fn wrong_rules_change_nothing_and_are_named() {
    let acl = Acl::new();
    set(&acl, "u", "on nopass").unwrap();
    let all_keys = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
        effect. Try 'resetkeys' to start with an empty list of patterns";
    let all_channels = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have \
        any effect. Try 'resetchannels' to start with an empty list of channels";
    let unknown = "Unknown command or category name in ACL";
    let bad_hash =
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
    for (given, rule, want) in [
        ("off foo", "foo", "Syntax error"),
        ("off +", "+", unknown),
        ("-", "-", unknown),
        ("+@", "+@", unknown),
        ("+@foo", "+@foo", unknown),
        ("+nosuch", "+nosuch", unknown),
        ("+nosuch|x", "+nosuch|x", unknown),
        ("+config|nosuch", "+config|nosuch", unknown),
        ("-config|", "-config|", unknown),
        ("-get|x", "-get|x", unknown),
        ("+config|", "+config|", "Syntax error"),
        ("+get|", "+get|", "Syntax error"),
        ("+config|get|x", "+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("~* ~a", "~a", all_keys),
        ("&* &a", "&a", all_channels),
        ("~a\tb", "~a\tb", "Syntax error"),
        ("%x~a", "%x~a", "Syntax error"),
        ("%RR~a", "%RR~a", "Syntax error"),
        ("%Ra", "%Ra", "Syntax error"),
        ("%~a", "%~a", "Syntax error"),
        ("#12", "#12", bad_hash),
        ("!12", "!12", bad_hash),
        ("<nope", "<nope", "The password you are trying to remove from the user does not exist"),
        ("(on)", "(on)", "Syntax error"),
        ("(+get nopass)", "(+get nopass)", "Syntax error"),
    ] {
        assert_eq!(set(&acl, "u", given), Err(format!("{rule}: {want}")), "{given}");
        assert_eq!(line(&acl, "u"), "user u on nopass resetchannels -@all");
    }
}

#[test]
fn limits_are_kept() {
    let acl = Acl::new();
    let many = |rule: &str, n: usize| {
        (0..n).map(|i| rule.replace('N', &i.to_string()).into_bytes()).collect::<Vec<_>>()
    };
    for (rule, most) in [
        ("~N", selector::PATTERNS_MAX),
        ("&N", selector::PATTERNS_MAX),
        ("+select|N", selector::FIRST_ARGUMENTS_MAX),
        (">N", user::PASSWORDS_MAX),
        ("(~N)", user::SELECTORS_MAX),
    ] {
        assert!(acl.set_user(b"u", &many(rule, most), false).is_ok(), "{rule}");
        let over = acl.set_user(b"v", &many(rule, most + 1), false).map_err(|(_, error)| error);
        assert!(matches!(over, Err(RuleError::TooMany(_, n)) if n == most), "{rule}");
        assert!(acl.get(b"v").is_none());
        acl.delete([&b"u"[..]].into_iter());
    }
    let halves = [
        many("~N", selector::PATTERNS_MAX / 2 + 1),
        vec![[b"(", &many("~N", selector::PATTERNS_MAX / 2).join(&b' ')[..], b")"].concat()],
    ]
    .concat();
    assert!(
        matches!(acl.set_user(b"v", &halves, false), Err((_, RuleError::TooMany(..)))),
        "of all selectors together"
    );
    let long = [&b">"[..], &vec![b'x'; PASSWORD_BYTES_MAX + 1]].concat();
    let error = acl.set_user(b"v", &[long], false).map_err(|(_, error)| error);
    assert_eq!(error, Err(RuleError::LongPassword(PASSWORD_BYTES_MAX)));
}

#[test]
fn checks_of_many_keys_are_counted_and_can_be_given_up() {
    let acl = Acl::new();
    set(&acl, "u", "+mget +get ~x (+mget ~y ~z)").unwrap();
    let user = acl.get(b"u").unwrap();
    let argv = Argv::from_slices(&[&["mget"], &["y"; 200][..]].concat());
    let spec = |name: &str| crate::TABLE.lookup(name.as_bytes()).unwrap();
    // Each of three patterns counts 9 elements: 8 at its start and one for the byte of the key.
    assert_eq!(user.steps(spec("mget"), argv.args()), 201 * 3 * 9);
    assert_eq!(user.steps(spec("get"), argv.args()), 3 * 9);
    assert_eq!(user.steps(spec("ping"), argv.args()), 0);
    assert_eq!(acl.default_user().steps(spec("mget"), argv.args()), 0);
    let many: Vec<String> = (0..1000).map(|i| format!("~z{i}")).collect();
    set(&acl, "u", &format!("clearselectors {} ~y", many.join(" "))).unwrap();
    let user = acl.get(b"u").unwrap();
    let mut asked = 0;
    let mut check = |may_continue: bool| {
        user.check(spec("mget"), argv.args(), &mut || {
            asked += 1;
            may_continue
        })
    };
    assert_eq!((check(true), check(false)), (Ok(()), Err(Denied::Interrupted)));
    let looks = 200 * 1001 * 9 / selector::STEPS_PER_CHECK;
    assert!((looks..looks + 3).contains(&asked), "{asked}");
}

#[test]
fn the_bytes_of_keys_count_where_a_pattern_looks_at_them_again() {
    let acl = Acl::new();
    set(&acl, "u", "+get +set ~user:* ~*:cart*").unwrap();
    let user = acl.get(b"u").unwrap();
    let steps = |words: &[&str]| {
        let argv = Argv::from_slices(words);
        user.steps(crate::TABLE.lookup(words[0].as_bytes()).unwrap(), argv.args())
    };
    let (start, long) = (8 + 6 + 8 + 7, "x".repeat(1 << 20));
    assert_eq!(steps(&["get", "k"]), start + 5 * 4, "all arguments are few");
    assert_eq!(steps(&["get", &long]), start + 5 * (1 << 20));
    assert_eq!(steps(&["set", "k", &long]), start + 5, "a value is no key");
    // A check of a long key also calls `may_continue`.
    let argv = Argv::from_slices(&["get", &":ca".repeat(1 << 18)]);
    let mut asked = 0;
    let denied = user.check(crate::TABLE.lookup(b"get").unwrap(), argv.args(), &mut || {
        asked += 1;
        asked < 10
    });
    assert_eq!((denied, asked), (Err(Denied::Interrupted), 10));
}

#[test]
fn every_key_under_a_prefix_may_be_read() {
    use strand_commands::call::KeyRights;
    use strand_commands::spec::Access;
    let acl = Acl::new();
    let argv = Argv::from_slices(&["rx.grep", "keys", "x"]);
    let spec = crate::TABLE.resolve(argv.args()).expect("a command").spec;
    for (rules, prefix, want) in [
        ("~app:*", "app:", true),
        ("~app:*", "app:mail:", true),
        ("~app:*", "app", false),
        ("~app:*", "", false),
        ("~app:", "app:", false),
        ("~app:\\*", "app:", false),
        ("~app:\\*", "app:*", false),
        ("~a[*", "a[", false),
        ("~a?p:*", "app:1", true),
        ("%W~*", "app:", false),
        ("%R~*", "", true),
        ("~app:1* ~app:*", "app:", true),
    ] {
        set(&acl, "prefix", &format!("reset on +@all {rules}")).unwrap();
        let rights = Rights::of(&acl.get(b"prefix").expect("a user"), spec, argv.args()).expect("limited");
        assert_eq!(rights.allows_prefix(prefix.as_bytes(), Access::READ), want, "{prefix:?} with {rules}");
    }
}

#[test]
fn commands_and_keys_are_checked() {
    let acl = Acl::new();
    set(&acl, "u", "+get +set +copy +mget +select|1 +config|get ~x* %R~r* %W~w* (+get ~y) (+hget %R~h)")
        .unwrap();
    for (command, want) in [
        ("get x1", Ok(())),
        ("get r1", Ok(())),
        ("get y", Ok(())),
        ("get w1", Err(Denied::Key(1))),
        ("get z", Err(Denied::Key(1))),
        ("set w1 v", Ok(())),
        ("set w1 v get", Err(Denied::Key(1))),
        ("set x1 v GET", Ok(())),
        ("set r1 v", Err(Denied::Key(1))),
        ("set y v", Err(Denied::Key(1))),
        ("copy r1 w1", Ok(())),
        ("copy w1 r1", Err(Denied::Key(1))),
        ("copy r1 r2", Err(Denied::Key(2))),
        ("mget x1 r1", Ok(())),
        ("mget x1 y", Err(Denied::Key(2))),
        ("hget h f", Ok(())),
        ("hget x1 f", Err(Denied::Key(1))),
        ("select 1", Ok(())),
        ("select 2", Err(Denied::Command)),
        ("config get x", Ok(())),
        ("config set x y", Err(Denied::Command)),
        ("del x1", Err(Denied::Command)),
        ("auth x", Ok(())),
        ("ping", Err(Denied::Command)),
    ] {
        assert_eq!(may(&acl, "u", command), want, "{command}");
        assert_eq!(may(&acl, "default", command), Ok(()));
    }
}

#[test]
fn a_described_user_can_be_created_again() {
    const RULES: [&str; 20] = [
        "+@read",
        "-@read",
        "+@write",
        "-@write",
        "+@fast",
        "-@slow",
        "+@string",
        "-@hash",
        "+@admin",
        "-@dangerous",
        "+@all",
        "-@all",
        "+get",
        "-set",
        "+config",
        "-config|set",
        "+config|get",
        "-client|kill",
        "+select|1",
        "+@keyspace",
    ];
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..300 {
        let given: Vec<&str> = (0..rng.usize(1..12)).map(|_| RULES[rng.usize(0..RULES.len())]).collect();
        let acl = Acl::new();
        set(&acl, "a", &given.join(" ")).unwrap();
        let shown = line(&acl, "a");
        set(&acl, "b", shown.strip_prefix("user a ").unwrap()).unwrap();
        let (a, b) = (acl.get(b"a").unwrap(), acl.get(b"b").unwrap());
        assert_eq!(a.selectors[0].commands, b.selectors[0].commands, "round {round}: {given:?} is {shown}");
        let select = ACL_TABLE.find(b"select").unwrap();
        let shown = |u: &User| {
            u.selectors[0].first_arguments.contains_key(&select) && !u.selectors[0].commands.has(select)
        };
        assert_eq!(shown(&a), shown(&b), "round {round}");
    }
}

#[test]
fn no_rule_harms() {
    const PIECES: [&str; 30] = [
        "+",
        "-",
        "@",
        "|",
        "~",
        "%",
        "R",
        "W",
        "&",
        "(",
        ")",
        " ",
        "#",
        ">",
        "<",
        "!",
        "get",
        "config",
        "all",
        "reset",
        "\"",
        "'",
        "\\x",
        "\u{e9}",
        "\n",
        "\r",
        "\t",
        "\x0b",
        "\nuser u on",
        "(~a",
    ];
    let (acl, mut rng) = (Acl::new(), fastrand::Rng::with_seed(5));
    for _ in 0..40_000 {
        let mut rule: Vec<u8> =
            (0..rng.usize(0..6)).flat_map(|_| PIECES[rng.usize(0..PIECES.len())].bytes()).collect();
        if rng.u8(0..10) == 0 {
            rule.push(rng.u8(..));
        }
        if acl.set_user(b"u", &[rule], rng.bool()).is_ok() {
            let file = acl.get(b"u").expect("it is set").line();
            let again = Acl::new();
            let shown = String::from_utf8_lossy(&file);
            assert_eq!(again.load(&file, "f", false), Ok(()), "{shown}");
            assert_eq!(again.get(b"u").expect("it is there").line(), file, "{shown}");
        }
        if rng.u8(0..8) == 0 {
            acl.delete([&b"u"[..]].into_iter());
        }
    }
}

#[test]
fn a_rule_that_would_be_others_in_a_file_is_refused() {
    let acl = Acl::new();
    for rule in [
        "+get|a\nuser evil on nopass ~* +@all",
        "+get|a b",
        "~a\nb",
        "&a\rb",
        "%R~a\tb",
        "(~a) +get)",
        "(+get|a\nb)",
    ] {
        let refused = acl.set_user(b"u", &[rule.into()], false);
        assert_eq!(refused.map_err(|(_, error)| error), Err(RuleError::Syntax), "{rule:?}");
    }
    assert!(acl.get(b"u").is_none());
}

#[test]
fn passwords_open_and_close() {
    let acl = Acl::new();
    let opens = |password: &str| acl.authenticate(b"u", password.as_bytes()).is_some();
    assert!(!opens(""));
    set(&acl, "u", ">one >two").unwrap();
    assert!(!opens("one"), "the user is off");
    set(&acl, "u", "on").unwrap();
    assert!(opens("one") && opens("two") && !opens("") && !opens("ones"));
    set(&acl, "u", "<one").unwrap();
    assert!(!opens("one") && opens("two"));
    let digest = password::PasswordDigest::of(b"two").unwrap().hex();
    set(&acl, "u", &format!("!{digest} #{digest} #{digest}")).unwrap();
    assert_eq!(acl.get(b"u").unwrap().password_digests(), [digest]);
    set(&acl, "u", "nopass").unwrap();
    assert!(opens("whatever"));
    set(&acl, "u", "resetpass").unwrap();
    assert!(!opens("two") && !opens(""));
}

#[test]
fn parentheses_are_joined() {
    let merged = |line: &str| {
        let joined = merge_selectors(line.split(' ').map(str::as_bytes));
        joined.map(|rules| rules.iter().map(|r| String::from_utf8_lossy(r).into_owned()).collect::<Vec<_>>())
    };
    assert_eq!(merged("on (+get ~a) off"), Ok(vec!["on".into(), "(+get ~a)".into(), "off".into()]));
    assert_eq!(merged("( )"), Ok(vec!["( )".into()]));
    assert_eq!(merged("on (+get ~a"), Err(1));
    assert_eq!(merged("( ) ("), Err(2));
}

#[test]
fn acl_files_are_taken_whole_or_not_at_all() {
    let acl = Acl::new();
    set(&acl, "old", "on").unwrap();
    let old = acl.get(b"old").unwrap();
    let wrong =
        "user a on +@nosuch ~x\n\nnonsense\nuser\nuser b\tc on\nuser a on\nuser d on foo bar\nuser e (+get\n";
    let errors = String::from_utf8(acl.load(wrong.as_bytes(), "f.acl", false).unwrap_err()).unwrap();
    assert_eq!(
        errors,
        "f.acl:1: Error in applying operation '+@nosuch': Unknown command or category name in ACL. f.acl:3 \
         should start with user keyword followed by the username. f.acl:4 should start with user keyword followed by \
         the username. 'f.acl:5: username 'b\tc' contains invalid characters. WARNING: Duplicate user 'a' found on line 6. \
         f.acl:7: Syntax error. f.acl:8: Unmatched parenthesis in selector definition.WARNING: ACL errors detected, no change to the \
         previously active ACL rules was performed"
    );
    assert!(acl.current(&old).is_some());
    assert!(acl.load(b"user old on (+get ~a b)", "f.acl", false).is_err(), "b is no rule of a selector");
    acl.load(b"  user old  on >foo (+get   ~a)\r\n\nuser new on\n", "f.acl", false).unwrap();
    assert!(acl.current(&old).is_none(), "it counts as another user");
    let text = String::from_utf8(acl.text()).unwrap();
    assert_eq!(
        text,
        "user default on nopass ~* &* +@all\nuser new on resetchannels -@all\nuser old on \
         #2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae resetchannels -@all (~a resetchannels -@all \
         +get)\n"
    );
    acl.load(text.as_bytes(), "f.acl", false).unwrap();
    assert_eq!(String::from_utf8(acl.text()).unwrap(), text);
    let default = acl.default_user();
    acl.load(b"user default off", "f.acl", false).unwrap();
    assert_eq!(acl.current(&default).map(|u| u.is_on()), Some(false), "the default user stays the same one");
}

#[test]
fn configuration_files_get_lines_that_they_can_read_again() {
    let acl = Acl::new();
    acl.set_user(b"q\"\xff", &rules("on ~a\\ +get (+set ~b)"), false).unwrap();
    let text = rewrite_users("port 1\nuser gone on\n# x\n", &acl.all());
    assert_eq!(
        text,
        "port 1\nuser default on nopass ~* &* +@all\n# x\nuser \"q\\\"\\xff\" on \"~a\\\\\" resetchannels -@all +get (~b \
         resetchannels -@all +set)\n"
    );
    assert_eq!(rewrite_users(&text, &acl.all()), text);
    assert_eq!(rewrite_users(&text, &[]), "port 1\n# x\n");
    let config = crate::Config::new();
    config.load_text(&text).unwrap();
    let again = Acl::new();
    config.users().iter().for_each(|user| again.configure(&user.words, false).unwrap());
    // A declared default user is a default user after `reset`.
    let text = String::from_utf8_lossy(&again.text()).replace(" sanitize-payload", "");
    assert_eq!(text, String::from_utf8_lossy(&acl.text()));
}

#[test]
fn declared_users_may_be_wrong() {
    let acl = Acl::new();
    let declare = |line: &str| {
        acl.configure(&line.split(' ').map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>(), false)
    };
    declare("a on (+get ~x)").unwrap();
    declare("default on >x +@all ~a").unwrap();
    assert!(line(&acl, "default").ends_with("~a resetchannels +@all"));
    for (line, part) in
        [("a on", "Duplicate"), ("b +@x", "Unknown"), ("b (+get", "parenthesis"), ("b\tc on", "Spaces")]
    {
        assert!(declare(line).unwrap_err().to_string().contains(part), "{line}");
    }
}
