//! `strand check aof` compared with redis-check-aof, on copies of equal files.

use crate::harness::STRAND;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../aof/tests/data").join(name)
}

/// Copies a folder of files and of folders with files.
pub fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the data").flatten() {
        let place = to.join(entry.file_name());
        match entry.file_type().expect("known").is_dir() {
            true => {
                std::fs::create_dir(&place).expect("made");
                copy(&entry.path(), &place);
            }
            false => _ = std::fs::copy(entry.path(), place).expect("copied"),
        }
    }
}

fn run(program: &str, args: &[&str], file: &Path, answer: &str) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    // Ignore an error: a process that does not ask has already ended.
    let _ = child.stdin.take().expect("piped").write_all(answer.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn ours(args: &[&str], file: &Path) -> Output {
    run(STRAND, &[&["check", "aof"], args].concat(), file, "")
}

#[test]
fn check_aof_judges_as_redis_check_aof() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, file, is_whole) in [
        ("redis-6.2.16-plain", "appendonly.aof", true),
        ("redis-6.2.16-rdb-base", "appendonly.aof", true),
        ("redis-7.0.15-plain", "appendonlydir/appendonly.aof.manifest", true),
        ("redis-7.0.15-plain", "appendonlydir/appendonly.aof.2.base.aof", true),
        ("redis-7.0.15-rdb-base", "appendonlydir/appendonly.aof.manifest", true),
        ("redis-7.0.15-rdb-base-cut", "appendonlydir/appendonly.aof.manifest", false),
        ("redis-7.0.15-rdb-base-cut", "appendonlydir/appendonly.aof.3.incr.aof", false),
        ("redis-7.0.15-rdb-base-cut", "expected.json", false),
    ] {
        let (a, b) = (folder.path().join(format!("{name}-{}", file.replace('/', "-"))), "redis");
        let b = a.with_extension(b);
        for place in [&a, &b] {
            std::fs::create_dir(place).expect("made");
            copy(&data(name), place);
        }
        let said = ours(&[], &a.join(file));
        assert_eq!(said.status.success(), is_whole, "{name}/{file}: {said:?}");
        let problem = String::from_utf8_lossy(&said.stderr).into_owned();
        let theirs = run("redis-check-aof", &[], &b.join(file), "");
        assert_eq!(theirs.status.success(), is_whole, "{name}/{file}: {theirs:?}");
        if is_whole || file.ends_with("json") {
            continue;
        }
        let last = "appendonlydir/appendonly.aof.3.incr.aof";
        let before = std::fs::read(a.join(last)).expect("there");
        // Without an answer to its question, the program cuts nothing.
        assert!(!ours(&["--fix"], &a.join(file)).status.success());
        assert_eq!(std::fs::read(a.join(last)).expect("there"), before);
        let fixed = ours(&["--fix", "--yes"], &a.join(file));
        assert!(fixed.status.success(), "{fixed:?}");
        assert!(run("redis-check-aof", &["--fix"], &b.join(file), "y\n").status.success());
        let read = |folder: &Path| std::fs::read(folder.join(last)).expect("there");
        assert_eq!(read(&a), read(&b), "{name}/{file}");
        assert!(read(&a).len() < before.len());
        let place = format!("--fix cuts the file at offset {}, after", read(&a).len());
        assert!(problem.contains(&place), "{place} in {problem}");
        assert!(ours(&[], &a.join(file)).status.success());
    }
}

#[test]
fn check_aof_names_the_file_the_offset_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    copy(&data("redis-7.0.15-plain"), folder.path());
    let manifest = folder.path().join("appendonlydir/appendonly.aof.manifest");
    let base = folder.path().join("appendonlydir/appendonly.aof.2.base.aof");
    let mut bytes = std::fs::read(&base).expect("there");
    bytes[1000] = b'\0';
    std::fs::write(&base, &bytes).expect("written");
    let said = ours(&["--fix", "--yes"], &manifest);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success());
    for word in ["2.base.aof", "offset ", "expected ", "only the last file can be cut"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert_eq!(std::fs::read(&base).expect("there"), bytes);
    std::fs::write(&manifest, "file ../../etc/passwd seq 1 type b\n").expect("written");
    let text = String::from_utf8_lossy(&ours(&[], &manifest).stderr).into_owned();
    assert!(text.contains("line 1") && text.contains("just a filename"), "{text}");
    let text = String::from_utf8_lossy(&ours(&[], &folder.path().join("none")).stderr).into_owned();
    assert!(text.contains("none: No such file"), "{text}");
}

#[test]
fn check_aof_finds_the_manifest_in_a_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    copy(&data("redis-7.0.15-rdb-base"), folder.path());
    let dir = folder.path().join("appendonlydir");
    assert!(ours(&[], &dir).status.success());
    std::fs::write(dir.join("other.manifest"), "").expect("written");
    let text = String::from_utf8_lossy(&ours(&[], &dir).stderr).into_owned();
    assert!(text.contains("has 2 manifests"), "{text}");
    let text = String::from_utf8_lossy(&ours(&[], folder.path()).stderr).into_owned();
    assert!(text.contains("has 0 manifests"), "{text}");
}

#[test]
fn check_aof_needs_a_cut_for_yes_and_a_time_for_a_cut_by_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("appendonly.aof");
    std::fs::write(&file, "*1\r\n$4\r\nPING\r\n").expect("written");
    assert_eq!(ours(&["--yes"], &file).status.code(), Some(2));
    assert_eq!(ours(&["--yes", "--fix", "--truncate-to-timestamp", "1"], &file).status.code(), Some(2));
    let said = ours(&["--yes", "--truncate-to-timestamp", "1"], &file);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.contains("nothing to cut: the file has no timestamps"), "{text}");
}

#[test]
fn check_aof_cuts_to_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let set = |n: usize| format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n{n}\r\n");
    let file = folder.path().join("appendonly.aof");
    let first = format!("#TS:100\r\n{}", set(1));
    std::fs::write(&file, format!("{first}#TS:200\r\n{}", set(2))).expect("written");
    assert!(ours(&["--yes", "--truncate-to-timestamp", "300"], &file).status.success());
    // Nothing is before this time, and 0 is no time. Neither changes the file.
    let whole = std::fs::read_to_string(&file).expect("there");
    assert!(!ours(&["--yes", "--truncate-to-timestamp", "50"], &file).status.success());
    assert!(ours(&["--yes", "--truncate-to-timestamp", "0"], &file).status.success());
    assert_eq!(std::fs::read_to_string(&file).expect("there"), whole);
    // A problem behind the place of the cut is cut off, too.
    std::fs::write(&file, format!("{whole}*3\r\n$3")).expect("written");
    assert!(ours(&["--yes", "--truncate-to-timestamp", "150"], &file).status.success());
    assert_eq!(std::fs::read_to_string(&file).expect("there"), first);
}

#[test]
fn the_file_of_a_running_server_is_not_cut_and_an_empty_manifest_is_not_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let server =
        crate::aof::start(folder.path(), &["--appendfsync", "always", "--aof-timestamp-enabled", "yes"]);
    server.connect().call("SET a 1", "+OK\r\n");
    let files = folder.path().join("appendonlydir");
    let increment = files.join("appendonly.aof.1.incr.aof");
    let whole = std::fs::read(&increment).expect("written");
    std::fs::OpenOptions::new()
        .append(true)
        .open(&increment)
        .and_then(|mut file| file.write_all(b"*2\r\n"))
        .expect("ours");
    let refused = ours(&["--fix", "--yes"], &files);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && text.contains("appendonly.aof.lock is locked"), "{text}");
    let elsewhere = folder.path().join("link.aof");
    std::os::unix::fs::symlink(&increment, &elsewhere).expect("ours");
    assert!(!ours(&["--fix", "--yes"], &elsewhere).status.success());
    drop(server);
    assert!(ours(&["--fix", "--yes"], &files).status.success());
    assert_eq!(std::fs::read(&increment).expect("there"), whole);
    std::fs::write(files.join("appendonly.aof.manifest"), "").expect("ours");
    let empty = ours(&[], &files);
    let text = String::from_utf8_lossy(&empty.stderr);
    assert!(!empty.status.success() && text.contains("Found an empty AOF manifest"), "{text}");
}
