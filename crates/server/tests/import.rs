//! `strand import` with a real `strand serve`: counts, exit codes, searches afterwards, and interrupted runs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use strand_testkit::client::Client;
use strand_testkit::process::{Server, free_port};
use strand_wire::client::Value;

const STRAND: &str = env!("CARGO_BIN_EXE_strand");
/// Maximum wait for an event, in seconds.
const WAIT_S_MAX: u64 = 60;

fn server() -> Server {
    Server::strand(Path::new(STRAND), &[], None).expect("the built binary starts")
}

fn command(server: &str, source: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(STRAND);
    command.arg("import").arg(source).args(["--into", "mail", "--server", server]).args(more);
    command.env_remove("STRAND_PASSWORD").stdin(Stdio::null());
    command
}

fn import(server: &Server, source: &Path, more: &[&str]) -> Output {
    command(&server.address.to_string(), source, more).output().expect("the built binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last line on the standard output, without its time.
#[track_caller]
fn last_line(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let line = out.lines().last().expect("a summary");
    let (counts, time) = line.rsplit_once(" (").expect("the time in parentheses");
    let seconds = time.strip_suffix(" s)").expect("seconds");
    assert!(seconds.parse::<f64>().is_ok(), "{line}");
    counts.to_owned()
}

/// Calls one command. Spaces separate its words; `+` is a space within a word.
#[track_caller]
fn call(client: &mut Client, words: &str) -> Value {
    let words: Vec<_> = words.split(' ').map(|w| w.replace('+', " ")).collect();
    let value = client.call(&words).expect("a reply");
    assert!(!matches!(value, Value::Error(_)), "{words:?}: {value:?}");
    value
}

#[track_caller]
fn size(client: &mut Client) -> i64 {
    match call(client, "DBSIZE") {
        Value::Int(n) => n,
        other => panic!("{other:?}"),
    }
}

/// A folder that is removed when the test ends.
struct Folder(PathBuf, #[expect(dead_code, reason = "removes the folder when dropped")] tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let made = tempfile::Builder::new().prefix("strand-import-e2e-").tempdir();
        let made = made.expect("the temporary folder is writable");
        Folder(made.path().to_path_buf(), made)
    }
    /// Creates a folder with `count` messages, in subfolders of 500.
    fn of_mails(count: usize) -> Folder {
        let folder = Folder::new();
        for i in 0..count {
            let dir = folder.0.join(format!("{:02}", i / 500));
            std::fs::create_dir_all(&dir).expect("writable");
            let body = format!("Text of message {i}.\n").repeat(200);
            let mail = format!("From: a{i}@example.org\nSubject: message {i}\n\n{body}");
            std::fs::write(dir.join(format!("{i:05}.eml")), mail).expect("writable");
        }
        folder
    }
}

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mail")
}

#[test]
fn the_samples_are_imported_read_and_searched() {
    let server = server();
    let mut client = server.connect().expect("it accepts");
    let dry = import(&server, &samples(), &["--dry-run"]);
    assert_eq!(last_line(&dry), "mail: 39 added, 0 updated, 0 removed, 0 unchanged, 1 failed");
    assert!(
        text(&dry.stdout).contains("+ inbox/0001-welcome.eml\n")
            && text(&dry.stdout).contains("+ index mail\n")
    );
    assert_eq!((size(&mut client), call(&mut client, "FT._LIST")), (0, Value::Array(vec![])));

    let first = import(&server, &samples(), &[]);
    assert_eq!(last_line(&first), "mail: 39 added, 0 updated, 0 removed, 0 unchanged, 1 failed");
    assert!(text(&first.stderr).contains("support/0113-broken.eml: the file is binary, not mail"));
    assert_eq!(size(&mut client), 39, "the version's containers are no keys of the database");
    let Value::Array(found) = call(&mut client, "FT.SEARCH mail invoice+-draft LIMIT 0 50 RETURN 1 subject")
    else {
        panic!("an array");
    };
    let found = format!("{found:?}");
    assert!(found.len() > 100 && !found.contains("draft"), "{found}");
    let Value::Array(keys) = call(&mut client, "RX.GREP VALUES ticket-[0-9]{4} PREFIX mail: LIMIT 10") else {
        panic!("an array");
    };
    assert_eq!(keys.len(), 10);

    assert_eq!(import(&server, &samples(), &["--strict", "--quiet"]).status.code(), Some(3));
    let again = import(&server, &samples(), &["--verbose"]);
    assert_eq!(last_line(&again), "mail: 0 added, 0 updated, 0 removed, 39 unchanged, 1 failed");
    assert!(text(&again.stderr).contains("opened 0 documents (0 bytes), listed 5 folders, recorded 0"));
}

/// The lines of a run with `--json`.
#[track_caller]
fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let out = text(&output.stdout);
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn every_line_is_json_and_every_exit_code_has_its_cause() {
    let (server, folder) = (server(), Folder::of_mails(300));
    std::fs::write(folder.0.join("00/bad.eml"), "no mail\n").expect("writable");
    let first = import(&server, &folder.0, &["--json", "--exclude", "*9.eml", "--max-size", "1M"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let lines = json_lines(&first);
    let of = |event: &str| lines.iter().filter(|l| l["event"] == event).collect::<Vec<_>>();
    assert_eq!((of("index").len(), of("container").len(), of("document").len()), (1, 2, 271));
    let failed: Vec<_> = of("document").into_iter().filter(|d| d["outcome"] == "failed").collect();
    assert!(failed.len() == 1 && failed[0]["path"] == "00/bad.eml", "{failed:?}");
    assert_eq!(failed[0]["reason"], "there is no header field");
    let summary = lines.last().expect("a summary");
    assert_eq!(summary["event"], "summary");
    for (name, number) in [("added", 270), ("failed", 1), ("removed", 0), ("skipped_by_filter", 30)] {
        assert_eq!(summary[name], number, "{summary}");
    }
    let strict = import(&server, &folder.0, &["--json", "--strict", "--exclude", "*9.eml"]);
    assert_eq!(strict.status.code(), Some(3));
    let stopped = import(&server, &folder.0, &["--json", "--type", "html"]);
    assert_eq!(stopped.status.code(), Some(4), "{}", text(&stopped.stderr));
    let error = json_lines(&stopped).pop().expect("an error");
    assert!(error["event"] == "error" && error["exit_code"] == 4, "{error}");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("270 of 270")), "{error}");
    assert_eq!(import(&server, &folder.0, &["--type", "no-such"]).status.code(), Some(2));
    assert_eq!(import(&server, &folder.0.join("none"), &[]).status.code(), Some(5));
    assert_eq!(command("127.0.0.1:1", &folder.0, &[]).output().expect("it runs").status.code(), Some(1));
}

#[test]
fn two_sources_are_compared_without_a_server() {
    let (one, two) = (Folder::of_mails(3), Folder::of_mails(4));
    let diff = |more: &[&str]| {
        let mut command = Command::new(STRAND);
        command.arg("diff").args([&one.0, &two.0]).args(more).stdin(Stdio::null());
        command.output().expect("the built binary runs")
    };
    let output = diff(&[]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "+ 00/00003.eml\n1 added, 0 updated, 0 removed, 3 unchanged, 0 failed\n";
    assert_eq!(text(&output.stdout), expected);
    let same = diff(&["--exclude", "00003.eml", "--quiet"]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    let lines = json_lines(&diff(&["--json"]));
    assert!(lines[lines.len() - 2]["outcome"] == "added" && lines[lines.len() - 1]["added"] == 1);
    std::fs::remove_dir_all(&two.0).expect("it is there");
    assert_eq!(diff(&[]).status.code(), Some(6));
    std::fs::create_dir_all(&two.0).expect("writable");
}

#[test]
fn an_edited_archive_is_imported_incrementally() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let archives = ["mail-easy-ham-1.tar.gz", "mail-spam-1.tar.gz"].map(|name| data.join(name));
    if !archives.iter().all(|a| a.exists()) {
        println!("skipped: the mail archives are not there");
        return;
    }
    let (server, folder) = (server(), Folder::new());
    let unpack = |archive: &Path| {
        let done = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&folder.0).status();
        assert!(done.expect("tar runs").success());
    };
    unpack(&archives[0]);
    let first = import(&server, &folder.0, &["--strict"]);
    assert_eq!(last_line(&first), "mail: 2500 added, 0 updated, 0 removed, 0 unchanged, 0 failed");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder.0).expect("unpacked").map(|e| e.expect("readable").path()).collect();
    names.sort();
    for (i, path) in names.iter().enumerate() {
        if i % 10 == 0 {
            std::fs::remove_file(path).expect("it is there");
        } else if i % 50 == 1 {
            let mut bytes = std::fs::read(path).expect("it is there");
            bytes.extend_from_slice(b"\nstrandedword\n");
            std::fs::write(path, bytes).expect("writable");
        }
    }
    unpack(&archives[1]);
    let second = import(&server, &folder.0, &["--verbose", "--strict"]);
    assert_eq!(last_line(&second), "mail: 500 added, 50 updated, 250 removed, 2200 unchanged, 0 failed");
    assert!(text(&second.stderr).contains("opened 550 documents"), "{}", text(&second.stderr));
    let third = import(&server, &folder.0, &["--verbose", "--strict"]);
    assert_eq!(last_line(&third), "mail: 0 added, 0 updated, 0 removed, 2750 unchanged, 0 failed");
    assert!(text(&third.stderr).contains("opened 0 documents"), "{}", text(&third.stderr));
    let mut client = server.connect().expect("it accepts");
    assert_eq!(size(&mut client), 2750);
    // In two of the edited mails, the new line lies after the last MIME part. Those mails have changed, but not their
    // text.
    let found = call(&mut client, "FT.SEARCH mail strandedword LIMIT 0 0");
    assert_eq!(found, Value::Array(vec![Value::Int(48)]));
}

/// Starts an import of `source` and waits until the server has some of it.
fn start_and_wait(server: &Server, source: &Path, documents: i64) -> (Child, Client) {
    let mut client = server.connect().expect("it accepts");
    let mut child = command(&server.address.to_string(), source, &["--no-index", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the built binary runs");
    let end = Instant::now() + Duration::from_secs(WAIT_S_MAX);
    while size(&mut client) < documents {
        assert!(Instant::now() < end, "the import does not come on");
        assert!(child.try_wait().expect("our child").is_none(), "the import ended too early");
    }
    (child, client)
}

#[test]
fn a_killed_import_is_resumed() {
    let (server, folder) = (server(), Folder::of_mails(3000));
    let (mut child, mut client) = start_and_wait(&server, &folder.0, 700);
    child.kill().expect("our child");
    child.wait().expect("our child");
    let first = format!("{}/00/00000.eml", folder.0.display());
    std::fs::remove_file(first).expect("it was there");
    let rest = last_line(&import(&server, &folder.0, &["--no-index"]));
    // Folders that were recorded before the kill are not imported again; the folder in progress is. No document is
    // lost or duplicated.
    assert!(rest.contains(" 1 removed, ") && !rest.contains(" 0 unchanged, "), "{rest}");
    assert_eq!(size(&mut client), 2999);
    let third = last_line(&import(&server, &folder.0, &["--no-index"]));
    assert_eq!(third, "mail: 0 added, 0 updated, 0 removed, 2999 unchanged, 0 failed");
    let Value::Array(paths) = call(&mut client, "IMPORT.VERSION LIST mail") else { panic!("an array") };
    assert_eq!(paths.len(), 7, "the root and six folders, no intent");
}

#[test]
fn the_error_names_a_server_that_disconnects() {
    let (server, folder) = (server(), Folder::of_mails(3000));
    let address = server.address.to_string();
    let (child, client) = start_and_wait(&server, &folder.0, 10);
    drop((client, server));
    let output = child.wait_with_output().expect("our child");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("lost the server at") && said.contains(&address), "{said}");
}

#[test]
fn each_failure_has_an_error_and_its_exit_code() {
    let folder = Folder::of_mails(1);
    let nobody = format!("127.0.0.1:{}", free_port().expect("a port"));
    let fails = |command: &mut Command, code: i32, said: &[&str]| {
        let output = command.output().expect("the built binary runs");
        let text = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        said.iter().for_each(|s| assert!(text.contains(s), "{text:?} does not say {s:?}"));
    };
    fails(&mut command(&nobody, &folder.0, &[]), 1, &["cannot connect", &nobody]);
    fails(&mut command(&nobody, Path::new("/no/such/folder"), &[]), 5, &["/no/such/folder", "No such file"]);
    fails(&mut command(&nobody, Path::new("/dev/null"), &[]), 5, &["/dev/null", "SOURCE is a file"]);
    fails(&mut command(&nobody, &folder.0, &["--db", "3"]), 2, &["--no-index"]);
    fails(&mut command(&nobody, &folder.0, &["--no-such-option"]), 2, &["--no-such-option"]);
    fails(Command::new(STRAND).arg("import").arg(&folder.0), 2, &["--into"]);
    let locked = Server::strand(Path::new(STRAND), &[], None).expect("it starts");
    let mut client = locked.connect().expect("it accepts");
    call(&mut client, "CONFIG SET requirepass sesame");
    let address = locked.address.to_string();
    fails(&mut command(&address, &folder.0, &[]), 1, &["NOAUTH"]);
    fails(&mut command(&address, &folder.0, &["--password", "guess"]), 1, &["WRONGPASS"]);
    let known = command(&address, &folder.0, &[]).env("STRAND_PASSWORD", "sesame").output();
    assert_eq!(known.expect("it runs").status.code(), Some(0));
}

#[test]
fn control_characters_of_a_server_are_escaped() {
    use std::io::{Read, Write};
    let folder = Folder::of_mails(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let rude = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the importer comes");
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"-ERR \x1b]0;owned\x07\x1b[2J\r\n").expect("it reads");
    });
    let output = command(&address, &folder.0, &[]).output().expect("the built binary runs");
    rude.join().expect("it answered");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said:?}");
    assert!(said.contains(r"\u{1b}]0;owned\u{7}") && !said.contains(['\x1b', '\x07']), "{said:?}");
}
