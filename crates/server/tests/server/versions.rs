//! Versions of datasets, as importers publish them: which client waits for a version, which client searches a
//! version, and what changed between two versions.

use crate::harness::{Client, Folder, STRAND, Server, comes_true, command};
use std::process::{Command, Stdio};
use strand_wire::client::Value;

/// Number of waiters. It exceeds the number that one publication serves by itself.
const CROWD: usize = 600;

fn importer(server: &Server, folder: &Folder, more: &[&str]) -> Command {
    let mut command = Command::new(STRAND);
    command.args(["import", &folder.0.display().to_string(), "--into", "mail", "--json"]).args(more);
    command.args(["--server", &server.address.to_string()]).env_remove("STRAND_PASSWORD");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn import(server: &Server, folder: &Folder, more: &[&str]) -> String {
    let output = importer(server, folder, more).output().expect("the built binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().last().expect("a summary").to_owned()
}

fn mail(folder: &Folder, name: &str, subject: &str, body: &str) {
    folder.write(name, &format!("From: a@example.org\nSubject: {subject}\n\n{body}\n"));
}

fn blocked(client: &mut Client) -> String {
    let info = client.bulk("INFO clients");
    info.lines().find(|line| line.starts_with("blocked_clients:")).expect("INFO tells it").to_owned()
}

#[test]
fn a_client_waits_until_an_import_is_visible() {
    let (server, folder) = (Server::start(&[]), Folder::new());
    mail(&folder, "a.eml", "first invoice", "text");
    let (mut waiter, mut other) = (server.connect(), server.connect());
    waiter.send(&command("IMPORT.VERSION WAIT mail mail@1 VISIBLE"));
    comes_true(|| blocked(&mut other) == "blocked_clients:1");
    let summary = import(&server, &folder, &[]);
    assert!(summary.contains(r#""token":"mail@1""#), "{summary}");
    waiter.expect(b"$6\r\nmail@1\r\n");
    waiter.call("FT.SEARCH mail invoice NOCONTENT VERSION mail@1", "*2\r\n:1\r\n$10\r\nmail:a.eml\r\n");
    waiter.call("IMPORT.VERSION WAIT mail mail@1 VISIBLE TIMEOUT 1", "$6\r\nmail@1\r\n");
    waiter.call("IMPORT.VERSION WAIT mail mail@2 VISIBLE TIMEOUT 1", "*-1\r\n");
    // An import without changes publishes no new version, unless it is published at one moment.
    assert!(import(&server, &folder, &[]).contains(r#""token":"mail@1""#));
    waiter.send(&command("IMPORT.VERSION WAIT mail mail@2 VISIBLE"));
    comes_true(|| blocked(&mut other) == "blocked_clients:1");
    mail(&folder, "b.eml", "second invoice", "text");
    assert!(import(&server, &folder, &["--atomic"]).contains(r#""token":"mail@2""#));
    waiter.expect(b"$6\r\nmail@2\r\n");
    waiter.call("FT.SEARCH mail invoice LIMIT 0 0 VERSION mail@2", "*1\r\n:2\r\n");
    // A dry run publishes nothing.
    mail(&folder, "c.eml", "third invoice", "text");
    assert!(!import(&server, &folder, &["--dry-run"]).contains("token"));
    waiter.call("IMPORT.VERSION WAIT mail mail@3 VISIBLE TIMEOUT 1", "*-1\r\n");
}

#[test]
fn an_import_whose_database_is_flushed_or_swapped_fails() {
    let (server, folder) = (Server::start(&[]), Folder::new());
    let mut admin = server.connect();
    (0..100).for_each(|i| mail(&folder, &format!("{i:03}.eml"), "invoice", &"text ".repeat(400)));
    // In a transaction, no document is stored before the end.
    for (command, args, begun) in [
        ("FLUSHALL", &["--rate", "50k"][..], "DBSIZE"),
        ("SWAPDB 0 1", &["--rate", "50k", "--atomic"], "IMPORT.STATUS"),
    ] {
        admin.call("FLUSHALL", "+OK\r\n");
        // The import takes about four seconds.
        let slow = importer(&server, &folder, args).spawn().expect("the built binary runs");
        comes_true(|| ![":0", "*0"].contains(&server.connect().line_of(begun, 0).as_str()));
        admin.call(command, "+OK\r\n");
        let output = slow.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(
            text.contains("the database was flushed or swapped after the import began: import again"),
            "{text}"
        );
        admin.call("IMPORT.VERSION LOG mail", "*0\r\n");
        // The next run stores every document.
        import(&server, &folder, &[]);
        admin.call("DBSIZE", ":100\r\n");
    }
}

#[test]
fn an_importer_says_why_the_server_closed_the_connection() {
    let (server, folder) = (Server::start(&["--proto-max-bulk-len", "1mb"]), Folder::new());
    mail(&folder, "long.eml", "invoice", &"text ".repeat(1 << 20));
    let output = importer(&server, &folder, &[]).output().expect("the built binary runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ERR Protocol error: invalid bulk length"), "{text}");
}

#[test]
fn many_clients_wait_only_for_their_own_version() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    let mut crowd: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
    for (i, client) in crowd.iter_mut().enumerate() {
        let version = ["d@2", "two"][i % 2];
        client.send(&command(&format!("IMPORT.VERSION WAIT d {version} VISIBLE")));
    }
    comes_true(|| blocked(&mut admin) == format!("blocked_clients:{CROWD}"));
    // Containers and another version are not what these clients wait for.
    admin.call("IMPORT.VERSION SET d . container", "+OK\r\n");
    admin.call("IMPORT.VERSION PUBLISH d one", "$3\r\nd@1\r\n");
    admin.call("IMPORT.VERSION SET d . changed", "+OK\r\n");
    assert_eq!(blocked(&mut admin), format!("blocked_clients:{CROWD}"));
    // A waiter that disconnects is forgotten, and a waiter that CLIENT UNBLOCK ends gets null.
    crowd.pop();
    comes_true(|| blocked(&mut admin) == format!("blocked_clients:{}", CROWD - 1));
    let mut told = server.connect();
    let id = told.line_of("CLIENT ID", 0);
    told.send(&command("IMPORT.VERSION WAIT d d@9 VISIBLE"));
    comes_true(|| blocked(&mut admin) == format!("blocked_clients:{CROWD}"));
    admin.call(&format!("CLIENT UNBLOCK {}", &id[1..]), ":1\r\n");
    told.expect(b"*-1\r\n");
    for words in ["MULTI", "IMPORT.VERSION PUBLISH d two", "IMPORT.VERSION WAIT d d@7 VISIBLE"] {
        admin.line_of(words, 0);
    }
    admin.call("EXEC", "*2\r\n$3\r\nd@2\r\n*-1\r\n");
    crowd.iter_mut().for_each(|client| client.expect(b"$3\r\nd@2\r\n"));
    assert_eq!(blocked(&mut admin), "blocked_clients:0");
}

#[test]
fn a_search_at_a_version_and_the_changes_between_two() {
    let (server, folder) = (Server::start(&[]), Folder::new());
    mail(&folder, "changed.eml", "invoice one", "old text");
    mail(&folder, "gone.eml", "invoice two", "text");
    mail(&folder, "same.eml", "invoice three", "text");
    mail(&folder, "unsent.eml", "letter", "text");
    import(&server, &folder, &[]);
    std::fs::remove_file(folder.0.join("gone.eml")).expect("ours");
    mail(&folder, "changed.eml", "invoice 1", "new text, longer than before");
    mail(&folder, "added.eml", "invoice four", "text");
    import(&server, &folder, &[]);
    let mut client = server.connect();
    let search = "FT.SEARCH mail invoice SORTBY name RETURN 1 subject VERSION";
    client.call(
        &format!("{search} mail@2"),
        "*7\r\n:3\r\n$14\r\nmail:added.eml\r\n*2\r\n$7\r\nsubject\r\n$12\r\ninvoice four\r\n\
         $16\r\nmail:changed.eml\r\n*2\r\n$7\r\nsubject\r\n$9\r\ninvoice 1\r\n\
         $13\r\nmail:same.eml\r\n*2\r\n$7\r\nsubject\r\n$13\r\ninvoice three\r\n",
    );
    // Documents that were written since the version show no fields.
    client.call(
        &format!("{search} mail@1"),
        "*7\r\n:3\r\n$16\r\nmail:changed.eml\r\n$-1\r\n$13\r\nmail:gone.eml\r\n$-1\r\n\
         $13\r\nmail:same.eml\r\n*2\r\n$7\r\nsubject\r\n$13\r\ninvoice three\r\n",
    );
    client.call("FT.SEARCH mail old NOCONTENT VERSION mail@1", "*2\r\n:1\r\n$16\r\nmail:changed.eml\r\n");
    client.call("FT.SEARCH mail old NOCONTENT", "*1\r\n:0\r\n");
    client.call("FT.SEARCH mail old NOCONTENT VERSION mail@2", "*1\r\n:0\r\n");
    let changes = |added, updated, removed, documents: &[(&str, &str)]| {
        let numbers = format!("+added\r\n:{added}\r\n+updated\r\n:{updated}\r\n+removed\r\n:{removed}\r\n");
        let rows =
            documents.iter().map(|(what, key)| format!("*2\r\n+{what}\r\n${}\r\n{key}\r\n", key.len()));
        let rows: String = rows.collect();
        format!("*8\r\n{numbers}+documents\r\n*{}\r\n{rows}", documents.len())
    };
    let (added, updated) = (("added", "mail:added.eml"), ("updated", "mail:changed.eml"));
    let removed = ("removed", "mail:gone.eml");
    let all = changes(1, 1, 1, &[added, updated, removed]);
    client.call("FT.CHANGES mail invoice FROM mail@1 TO mail@2", &all);
    client.call("FT.CHANGES mail * FROM mail@1", &all);
    client.call("FT.CHANGES mail invoice FROM mail@1 LIMIT 1 1", &changes(1, 1, 1, &[updated]));
    // The document entered the answer of one query and left the answer of another.
    client.call("FT.CHANGES mail old FROM mail@1", &changes(0, 0, 1, &[("removed", "mail:changed.eml")]));
    client.call("FT.CHANGES mail new FROM mail@1", &changes(1, 0, 0, &[("added", "mail:changed.eml")]));
    client.call("FT.CHANGES mail invoice FROM mail@2 TO mail@2", &changes(0, 0, 0, &[]));
    let back = changes(1, 1, 1, &[("removed", "mail:added.eml"), updated, ("added", "mail:gone.eml")]);
    client.call("FT.CHANGES mail invoice FROM mail@2 TO mail@1", &back);
    // A document that is written by hand is in no version, and is a change since the last version.
    client.call("HSET mail:same.eml subject hand", ":0\r\n");
    client.call("FT.CHANGES mail hand FROM mail@2", &changes(1, 0, 0, &[("added", "mail:same.eml")]));
    client.call("FT.SEARCH mail hand LIMIT 0 0 VERSION mail@2", "*1\r\n:0\r\n");
    // Two versions are kept, unless the option says otherwise.
    mail(&folder, "new.eml", "invoice five", "text");
    import(&server, &folder, &[]);
    client.call("FT.SEARCH mail invoice VERSION mail@1", "-ERR the index does not keep version mail@1\r\n");
    client.call("FT.SEARCH mail invoice LIMIT 0 0 VERSION mail@2", "*1\r\n:3\r\n");
    client.call("FT.SEARCH mail invoice VERSION mail@4", "-ERR version mail@4 is not published yet\r\n");
    client.call("FT.CHANGES mail invoice TO mail@3 LIMIT 0 1", "-FT.CHANGES needs FROM and a version\r\n");
    client.call(
        "FT.CHANGES mail invoice FROM mail@3 NOCONTENT",
        "-Unknown argument `NOCONTENT` at position 3 for <main>\r\n",
    );
    client.call(
        "FT.SEARCH mail invoice SORTBY title VERSION mail@3",
        "-`VERSION with SORTBY of a field that is not SORTABLE` is not supported\r\n",
    );
    mail(&folder, "last.eml", "invoice six", "text");
    import(&server, &folder, &["--keep-versions", "0"]);
    client.call("FT.SEARCH mail invoice VERSION mail@4", "-ERR the index does not keep version mail@4\r\n");
    let log = client.line_of("IMPORT.VERSION LOG mail", 0);
    assert_eq!(log, "*4");
}

#[test]
fn a_version_is_unchanged_while_its_index_is_merged() {
    const ROUNDS: usize = 40;
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.call("FT.CREATE d PREFIX 1 d: SCHEMA n NUMERIC t TEXT", "+OK\r\n");
    (0..20).for_each(|i| client.call(&format!("HSET d:{i} n {i} t word"), ":2\r\n"));
    client.call("IMPORT.VERSION KEEP d one", ":1\r\n");
    client.call("IMPORT.VERSION PUBLISH d one", "$3\r\nd@1\r\n");
    for round in 0..ROUNDS {
        client.call(&format!("HSET d:{} n 100 t other", round % 10), ":0\r\n");
        client.call(&format!("HSET e:{round} n 1"), ":1\r\n");
        client.send(&command("FT.SEARCH d other LIMIT 0 0"));
        client.expect(format!("*1\r\n:{}\r\n", (round + 1).min(10)).as_bytes());
        client.call("FT.SEARCH d word LIMIT 0 0 VERSION d@1", "*1\r\n:20\r\n");
        client.call("FT.SEARCH d * FILTER n 0 19 LIMIT 0 0 VERSION one", "*1\r\n:20\r\n");
    }
    assert_eq!(client.line_of("FT.CHANGES d * FROM d@1 LIMIT 0 0", 4), ":10");
}

#[test]
fn metrics_count_imports_by_dataset() {
    let (server, doors) = Server::start_doors(&["--http-port"], &[]);
    let folder = Folder::new();
    mail(&folder, "a.eml", "first", "text");
    mail(&folder, "b.eml", "second", "text");
    folder.write("bad.eml", "no mail\n");
    import(&server, &folder, &[]);
    std::fs::remove_file(folder.0.join("a.eml")).expect("ours");
    import(&server, &folder, &[]);
    let metrics = || {
        let mut client = Client::connect(doors[0]);
        client.send(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut client.stream, &mut text).expect("it ends");
        String::from_utf8_lossy(&text).into_owned()
    };
    // The server notices a moment later that the importer has disconnected.
    comes_true(|| metrics().contains("strand_import_running{db=\"0\",dataset=\"mail\"} 0\n"));
    let text = metrics();
    let of = |name: &str, more: &str| format!("strand_import_{name}{{db=\"0\",dataset=\"mail\"{more}}}");
    for (name, more, number) in [
        ("runs_total", "", 2),
        ("documents_total", ",outcome=\"added\"", 2),
        ("documents_total", ",outcome=\"removed\"", 1),
        ("documents_total", ",outcome=\"failed\"", 2),
        ("objects_opened_total", "", 3),
    ] {
        let line = format!("{} {number}\n", of(name, more));
        assert!(text.contains(&line), "{line} in {text}");
    }
}

/// Number of times that `bytes` is in a reply.
fn occurrences(reply: &Value, bytes: &[u8]) -> usize {
    match reply {
        Value::Bulk(bulk) => usize::from(bulk == bytes),
        Value::Array(parts) => parts.iter().map(|part| occurrences(part, bytes)).sum(),
        _ => 0,
    }
}

/// A search reads documents after it has found them, while other clients write.
#[test]
fn a_search_beside_writers_shows_nothing_newer_than_the_version_and_misses_no_element() {
    const DOCUMENTS: usize = 300;
    const SEARCHES: usize = 40;
    let server = Server::start(&["--workers", "2"]);
    let connect = || strand_testkit::client::Client::connect(server.address).expect("it listens");
    let mut client = connect();
    let mut call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        client.call(&words).expect("a reply")
    };
    call("FT.CREATE i PREFIX 1 d: SCHEMA t TEXT");
    (0..DOCUMENTS).for_each(|i| drop(call(&format!("HSET d:{i} t old"))));
    assert_eq!(call("IMPORT.VERSION KEEP d v1"), Value::Int(1));
    (0..2000).for_each(|i| drop(call(&format!("RPUSH list element-{i}"))));
    call("RPUSH list needle");
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = connect();
            for i in (0..DOCUMENTS).cycle() {
                if ends.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let key = format!("d:{i}");
                writer.call(&["HSET", &key, "t", "new"]).expect("a reply");
                writer.call(&["LMOVE", "list", "list", "LEFT", "RIGHT"]).expect("a reply");
            }
        });
        for _ in 0..SEARCHES {
            let found = call("FT.SEARCH i old LIMIT 0 300 VERSION v1");
            let keys = call("RX.GREP VALUES needle PREFIX list");
            let (newer, elements) = (occurrences(&found, b"new"), occurrences(&keys, b"list"));
            if (newer, elements) != (0, 1) {
                ends.store(true, std::sync::atomic::Ordering::Relaxed);
                panic!("{newer} documents are newer than the version; {elements} of 1 lists were found");
            }
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
