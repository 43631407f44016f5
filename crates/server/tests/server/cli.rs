//! Command line, configuration, and errors at the start.

use crate::harness::{Folder, STRAND, Server, strand};

#[track_caller]
fn fails(args: &[&str], code: i32, said: &[&str]) {
    let output = strand(args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for s in said {
        assert!(text.contains(s), "{text:?} does not say {s:?}");
    }
}

#[test]
fn errors_of_the_command_line_name_the_option() {
    fails(&["serve", "--no-such-option", "1"], 1, &["no-such-option"]);
    fails(&["serve", "--port", "abc"], 1, &["port", "abc"]);
    fails(&["serve", "--port", "70000"], 1, &["port", "70000"]);
    fails(&["serve", "/no/such/file.conf"], 1, &["/no/such/file.conf"]);
    fails(&["serve", "--bind", "192.0.2.1", "--port", "0"], 1, &["192.0.2.1"]);
    fails(&["serve", "--port", "0", "--logfile", "/no/such/folder/log"], 1, &["/no/such/folder/log"]);
    fails(
        &["serve", "--port", "0", "--dir", "/no/such/folder"],
        1,
        &["dir", "/no/such/folder", "No such file"],
    );
    fails(&["serve", "--bind", "", "--port", "6379"], 1, &["port 6379: `bind` names no address"]);
    fails(&["cli", "-p", "abc"], 2, &["'abc'", "expected a port from 0 to 65535"]);
    fails(&["doctor", "--server", "127.0.0.1:99999"], 2, &["127.0.0.1:99999: the port is too large"]);
    fails(&["doctor", "--server", "127.0.0.1"], 2, &["127.0.0.1: expected HOST:PORT"]);
    fails(&["no-such-command"], 2, &["no-such-command"]);
}

#[test]
fn options_without_effect_are_refused() {
    fails(&["jobs", "serve", "f", "--service", "h:1"], 2, &["--service has no effect here", "listen"]);
    fails(&["jobs", "serve", "f", "--server", "h:1"], 2, &["--server has no effect here", "add NAME SOURCE"]);
    fails(&["jobs", "list", "--service", "h:1", "--server", "h:2"], 2, &["--server has no effect here"]);
    fails(&["jobs", "pause", "j", "--tls"], 2, &["--tls has no effect here", "-- --tls"]);
    fails(&["profile", "heap", "--seconds", "1"], 2, &["--seconds has no effect here"]);
    fails(&["profile", "cpu", "--seconds", "301"], 2, &["1..=300"]);
    fails(&["bundle", "show", "f", "--entry", "e", "--console"], 2, &["--entry", "--console"]);
}

#[test]
fn a_wrong_user_line_is_named_by_its_file_and_number() {
    let folder = Folder::new();
    let file = folder.write("users.conf", "port 0\nhttp-port 0\nuser ann on\nuser ann off\n");
    fails(&["serve", &file], 1, &["users.conf:4: user 'ann': Duplicate"]);
}

#[test]
fn too_few_open_files_are_named_with_the_number_that_is_needed() {
    let serve = "ulimit -n 20; exec \"$0\" serve --port 0 --http-port 0 --save '' --workers 2";
    let output = std::process::Command::new("sh").args(["-c", serve, STRAND]).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the limit of open files is 20: raise it to at least 81"), "{text}");
}

#[test]
fn an_rdb_file_is_read_to_its_end_or_to_where_it_is_damaged() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdb/tests/data/redis-3.2.13-tight.rdb");
    let output = strand(&["check", "rdb", file]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for said in ["RDB version 7", "database 0: 36 keys, 6 with an expiry", "checksum: right", "whole"] {
        assert!(text.contains(said), "{text:?} does not say {said:?}");
    }
    let (folder, whole) = (Folder::new(), std::fs::read(file).expect("a file of the tests"));
    let cut = folder.write("cut.rdb", "");
    std::fs::write(&cut, &whole[..300]).expect("the folder is ours");
    fails(&["check", "rdb", &cut], 1, &["offset 300", "key", "ends too early"]);
    let twice = folder.write("twice.rdb", "");
    std::fs::write(&twice, b"REDIS0010\xfe\0\0\x01k\x011\0\x01k\x012\xff\0\0\0\0\0\0\0\0")
        .expect("the folder is ours");
    fails(&["check", "rdb", &twice], 1, &["offset 21", "key \"k\"", "the key is in the file twice"]);
    fails(&["check", "rdb", "/no/such.rdb"], 1, &["/no/such.rdb", "No such file"]);
}

#[test]
fn a_busy_port_is_a_clear_error() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = held.local_addr().expect("bound").port().to_string();
    fails(&["serve", "--bind", "127.0.0.1", "--port", &port], 1, &["127.0.0.1", &port, "in use"]);
}

#[test]
fn help_and_version_are_complete() {
    let help = strand(&["serve", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(help.status.success());
    for option in strand_engine::config::OPTIONS {
        let is_listed = text.contains(&format!("--{} <", option.name));
        let has_effect = option.no_effect.is_none();
        assert_eq!(is_listed, has_effect || !option.is_hidden(), "{}: {text}", option.name);
    }
    let help = String::from_utf8_lossy(&strand(&["--help"]).stdout).into_owned();
    assert!(help.contains("serve") && help.contains("import") && help.contains("Exit codes"), "{help}");
    for words in [&["--version"][..], &["serve", "--version"]] {
        let version = String::from_utf8_lossy(&strand(words).stdout).into_owned();
        assert_eq!(version.trim(), format!("strand {}", env!("CARGO_PKG_VERSION")));
    }
    let folder = Folder::new();
    assert!(strand(&["man", &folder.0.display().to_string()]).status.success());
    for page in ["strand", "strand-import", "strand-jobs-add", "strand-check-aof"] {
        assert!(folder.0.join(format!("{page}.1")).exists(), "{page}");
    }
}

/// bash itself completes the options of `serve` and their values.
#[test]
fn bash_completes_configuration_options() {
    let folder = Folder::new();
    let script = folder.0.join("strand.bash");
    std::fs::write(&script, strand(&["completions", "bash"]).stdout).expect("ours");
    for (words, expected) in [
        ("serve --logl", "--loglevel"),
        ("serve file.conf --maxmemory-p", "--maxmemory-policy"),
        ("serve --appendonly ''", "yes no"),
        ("serve --loglevel n", "notice"),
        ("import --into d --ever", ""),
        ("jobs add --ever", "--every"),
    ] {
        let text = format!(
            "source {}; COMP_WORDS=(strand {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); \
             _strand strand \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo ${{COMPREPLY[*]}}",
            script.display()
        );
        let bash =
            std::process::Command::new("bash").args(["--norc", "-c", &text]).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), expected, "{words}: {bash:?}");
    }
}

#[test]
fn a_full_disk_below_the_standard_output_is_an_error() {
    let folder = Folder::new();
    let (before, after) = (folder.0.join("before"), folder.0.join("after"));
    for path in [&before, &after] {
        std::fs::create_dir(path).expect("the folder is ours");
    }
    folder.write("after/a.txt", "text");
    let [before, after] = [before, after].map(|path| path.display().to_string());
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    for (words, code) in [
        (&["diff", &after, &after][..], 6),
        (&["diff", &after, &after, "--json"], 6),
        (&["diff", &before, &after], 6),
        (&["diff", &before, &after, "--json"], 6),
        (&["diff", &before, "/no/such/folder", "--json"], 6),
        (&["import", &after, "--into", "d", "--to", "-"], 1),
        (&["--version"], 1),
        (&["--help"], 1),
        (&["jobs", "add", "--help"], 1),
    ] {
        let child =
            std::process::Command::new(env!("CARGO_BIN_EXE_strand")).args(words).stdout(full()).output();
        let child = child.expect("it runs");
        let text = String::from_utf8_lossy(&child.stderr).into_owned();
        assert!(child.status.code() == Some(code) && text.contains("No space left"), "{words:?}: {text}");
    }
}

#[test]
fn file_include_stdin_and_options_are_combined() {
    let folder = Folder::new();
    folder.write("more.conf", "timeout 77\n");
    let include = folder.0.join("more.conf").display().to_string();
    let file = folder.write(
        "strand.conf",
        &format!("# a comment\nport 0\nBIND 127.0.0.1\ninclude {include}\ndatabases 4\n"),
    );
    folder.write("part-2.conf", "maxclients 22\n");
    folder.write("part-1.conf", "maxclients 21\nactiverehashing no\n");
    let parts = folder.0.join("part-?.conf").display().to_string();
    let none = folder.0.join("none*.conf").display().to_string();
    let stdin = format!("hz 25\ndatabases 9\ninclude {parts}\ninclude {none}\n");
    let server = Server::start_as(&[&file, "--databases", "5", "-"], &stdin);
    let mut client = server.connect();
    client.call("CONFIG GET timeout", "*2\r\n$7\r\ntimeout\r\n$2\r\n77\r\n");
    client.call("CONFIG GET hz", "*2\r\n$2\r\nhz\r\n$2\r\n25\r\n");
    client.call("CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$2\r\n22\r\n");
    let log = server.folder.log_text();
    assert!(log.contains("part-1.conf:2: activerehashing has no effect: "), "{log}");
    client.call("SELECT 4", "+OK\r\n");
    client.call("SELECT 5", "-ERR DB index is out of range\r\n");
    let server = Server::start_as(&["-", "--port", "0"], "maxclients 33\nbind 127.0.0.1\n");
    server.connect().call("CONFIG GET maxclients", "*2\r\n$10\r\nmaxclients\r\n$2\r\n33\r\n");
    fails(
        &["serve", &folder.write("bad.conf", "port 0\n\nnonsense 1\n")],
        1,
        &["bad.conf:3: there is no option \"nonsense\""],
    );
    fails(&["serve", &folder.write("nul.conf", "port 0\n# a\0b\n")], 1, &["nul.conf:2: there is a NUL byte"]);
    fails(
        &["serve", "--timout", "3"],
        1,
        &["command line: there is no option \"timout\"; did you mean timeout?"],
    );
    fails(&["serve", "/dev/zero"], 1, &["/dev/zero", "too long"]);
}

/// Starts Strand with the configuration of Debian's redis-server 7.0.15: its file, and the options of its service.
#[test]
fn debian_s_own_configuration_starts_a_server() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.join(name).display().to_string();
    let text = include_str!("debian_redis.conf")
        .replace("/var/log/redis/redis-server.log", &path("strand.log"))
        .replace("/run/redis/redis-server.pid", &path("strand.pid"))
        .replace("/var/lib/redis", &folder.0.display().to_string());
    let file = folder.write("redis.conf", &text);
    let socket = std::os::unix::net::UnixDatagram::bind(folder.0.join("notify")).expect("the folder is ours");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("not zero");
    let told = || {
        let mut message = [0; 256];
        let bytes = socket.recv(&mut message).expect("it tells its manager");
        String::from_utf8_lossy(&message[..bytes]).into_owned()
    };
    let options = [&file, "--supervised", "systemd", "--daemonize", "no"];
    let mut server = Server::start_with("NOTIFY_SOCKET", &path("notify"), &options);
    assert!(told().contains("READY=1"));
    let pid = std::fs::read_to_string(path("strand.pid")).expect("it is written");
    assert_eq!(pid.trim().parse(), Ok(server.pid()));
    let mut client = server.connect();
    client.call("CONFIG GET appendfilename", "*2\r\n$14\r\nappendfilename\r\n$14\r\nappendonly.aof\r\n");
    assert!(client.bulk("INFO server").contains("executable"), "it serves");
    let log = std::fs::read_to_string(path("strand.log")).expect("it logs where it is told to");
    assert!(!log.contains("WARN") || log.contains("maxclients") || log.contains("freed memory"), "{log}");
    let defaults = log
        .lines()
        .filter(|l| l.contains("options without effect, which have their default values: "))
        .count();
    assert_eq!(defaults, 1, "{log}");
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(server.end().success());
    assert!(told().contains("STOPPING=1"));
    assert!(!folder.0.join("strand.pid").exists());

    let server = Server::start_as(&[&file, "--port", "0", "--http-port", "0"], "");
    let log = std::fs::read_to_string(path("strand.log")).expect("it logs where it is told to");
    let warned = format!("{file}:7: daemonize has no effect: the server stays in the foreground");
    assert!(log.contains(&warned), "{log}");
    drop(server);
}

#[test]
fn several_addresses_share_the_port() {
    let server = Server::start_as(&["--port", "0", "--bind", "127.0.0.1", "127.0.0.2", "-192.0.2.1"], "");
    let mut first = server.connect();
    first.call("PING", "+PONG\r\n");
    let other = std::net::SocketAddr::from(([127, 0, 0, 2], server.address.port()));
    assert!(std::net::TcpStream::connect(other).is_ok());
}

#[test]
fn a_password_is_asked_for() {
    let server = Server::start(&["--requirepass", "sesame"]);
    let mut client = server.connect();
    client.call("GET k", "-NOAUTH Authentication required.\r\n");
    client.call("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    client.call("AUTH sesame", "+OK\r\n");
    client.call("GET k", "$-1\r\n");
    client.call("CONFIG SET requirepass other", "+OK\r\n");
    let mut next = server.connect();
    next.call("AUTH sesame", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    next.call("AUTH default other", "+OK\r\n");
}

#[test]
fn the_log_level_changes_while_it_runs() {
    let server = Server::start(&["--loglevel", "warning"]);
    let mut client = server.connect();
    assert!(!server.folder.log_text().contains("INFO"), "{}", server.folder.log_text());
    client.call("CONFIG SET loglevel notice", "+OK\r\n");
    client.send(b"SHUTDOWN\r\n");
    client.expect_end();
    let mut server = server;
    assert!(server.end().success());
    assert!(server.folder.log_text().contains("INFO"), "{}", server.folder.log_text());
}
