//! Append-only files that a server does not start with: damaged files, files of other programs, and the folder of
//! another server. What is refused stays as it is.

use crate::aof::{call, contents, copy_of, folder, info, link, start};
use crate::harness::{STRAND, is_true_within};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The error message of a server that does not start.
fn refusal(folder: &Path, more: &[&str]) -> String {
    let dir = folder.to_str().expect("a plain path");
    let args = [
        "serve",
        "--http-port",
        "0",
        "--port",
        "0",
        "--bind",
        "127.0.0.1",
        "--dir",
        dir,
        "--appendonly",
        "yes",
    ];
    let mut command = std::process::Command::new(STRAND);
    let mut child = command
        .args(args)
        .args(more)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the built binary starts");
    let mut ended = None;
    let ends = is_true_within(Duration::from_secs(20), || {
        ended = child.try_wait().expect("our child");
        ended.is_some()
    });
    let _ = child.kill();
    let mut told = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
    let _ = child.wait();
    assert!(ends && !ended.expect("it has ended").success(), "{told}");
    told
}

#[test]
fn a_truncated_file_is_cut_after_its_last_whole_command() {
    let set = |key: &str| format!("*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n$1\r\n1\r\n");
    let multi = "*1\r\n$5\r\nMULTI\r\n";
    for (tail, kept) in [
        ("*3\r\n$3\r\nSET\r\n$1\r\nx", set("a")),
        (&format!("{multi}{}", set("x")), set("a")),
        (&format!("{multi}{}*1\r\n$4\r\nEX", set("x")), set("a")),
        ("#TS:17", set("a")),
    ] {
        let folder = folder();
        let file = folder.path().join("appendonly.aof");
        std::fs::write(&file, set("a") + tail).expect("written");
        let told = refusal(folder.path(), &["--aof-load-truncated", "no"]);
        assert!(told.contains("Unexpected end of file") && told.contains("strand check aof --fix"), "{told}");
        let server = start(folder.path(), &[]);
        let mut client = link(&server);
        assert_eq!(
            (call(&mut client, &["DBSIZE"]), call(&mut client, &["GET", "a"])),
            ("1".into(), "1".into())
        );
        let now = std::fs::read_to_string(folder.path().join("appendonlydir/appendonly.aof")).expect("there");
        assert_eq!(now, kept);
    }
}

#[test]
fn invalid_append_only_files_are_refused_and_unchanged() {
    let real = "redis-7.0.15-rdb-base";
    let dir = "appendonlydir/appendonly.aof";
    type Damage = fn(&Path);
    fn change(path: PathBuf, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(&path).expect("there");
        change(&mut bytes);
        std::fs::write(path, bytes).expect("written");
    }
    let damages: [(Damage, &[&str]); 9] = [
        (
            |dir| {
                change(dir.with_extension("aof.3.incr.aof"), |b| {
                    let at = b.windows(3).position(|w| w == b"\n*3").expect("a command");
                    b[at + 1] = b'+';
                })
            },
            &["3.incr.aof", "offset "],
        ),
        (
            |dir| change(dir.with_extension("aof.2.incr.aof"), |b| b.truncate(b.len() - 1)),
            &["2.incr.aof", "not the last"],
        ),
        (|dir| change(dir.with_extension("aof.2.base.rdb"), |b| b[5000] ^= 1), &["2.base.rdb", "offset "]),
        (
            |dir| change(dir.with_extension("aof.2.base.rdb"), |b| b.truncate(3000)),
            &["2.base.rdb", "offset "],
        ),
        (
            |dir| std::fs::remove_file(dir.with_extension("aof.2.incr.aof")).expect("there"),
            &["2.incr.aof", "the file does not exist"],
        ),
        (|dir| change(dir.with_extension("aof.manifest"), |b| b.clear()), &["manifest", "empty"]),
        (
            |dir| change(dir.with_extension("aof.manifest"), |b| *b = b"file ../x seq 1 type b\n".to_vec()),
            &["manifest", "line 1", "just a filename"],
        ),
        (
            |dir| {
                let frob = b"*2\r\n$4\r\nFROB\r\n$1\r\nx\r\n";
                change(dir.with_extension("aof.3.incr.aof"), |b| *b = [&b[..0], frob].concat());
            },
            &["3.incr.aof", "offset 0", "unknown command"],
        ),
        (
            |dir| {
                let select = b"*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n";
                change(dir.with_extension("aof.3.incr.aof"), |b| b.extend(select));
            },
            &["3.incr.aof", "SELECT 99", "16 databases"],
        ),
    ];
    for (damage, words) in damages {
        let folder = copy_of(real);
        damage(&folder.path().join(dir));
        let before = contents(folder.path());
        let told = refusal(folder.path(), &[]);
        for word in words.iter().chain(&["strand check aof", "appendonlydir"]) {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        assert_eq!(contents(folder.path()), before, "{words:?}");
    }
}

/// A single file of Redis before 7 is read before it is moved. A damaged file stays where it is.
#[test]
fn a_damaged_single_file_is_not_moved() {
    let folder = copy_of("redis-6.2.16-rdb-base");
    let path = folder.path().join("appendonly.aof");
    let mut bytes = std::fs::read(&path).expect("there");
    let good = bytes.clone();
    bytes.extend(b"*2\r\n$4\r\nFROB\r\n$1\r\nx\r\n");
    std::fs::write(&path, &bytes).expect("written");
    for _ in 0..2 {
        let told = refusal(folder.path(), &[]);
        let offset = format!("offset {}", good.len());
        for word in ["appendonly.aof", &offset, "unknown command", "`strand check aof appendonly.aof`"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        assert_eq!(std::fs::read(&path).expect("it is still there"), bytes);
        assert_eq!(contents(&folder.path().join("appendonlydir")), BTreeMap::new());
    }
    // A truncated file is moved, and then cut to its last whole command.
    bytes.truncate(good.len() + 9);
    std::fs::write(&path, &bytes).expect("written");
    let server = start(folder.path(), &[]);
    assert!(call(&mut link(&server), &["INFO", "keyspace"]).contains("db0:keys=43,"));
    assert!(!path.exists());
    assert_eq!(std::fs::read(folder.path().join("appendonlydir/appendonly.aof")).expect("moved"), good);
}

#[test]
fn two_servers_do_not_write_one_folder() {
    let folder = folder();
    let server = start(folder.path(), &["--appendfsync", "always"]);
    let mut client = link(&server);
    assert_eq!(call(&mut client, &["SET", "key", "value"]), "OK");
    let before = contents(folder.path());
    let told = refusal(folder.path(), &[]);
    for part in ["appendonlydir", "another server (process", "writes there", "give this server another dir"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert_eq!(contents(folder.path()), before);
    // The first server goes on, and another folder is free.
    assert_eq!(call(&mut client, &["SET", "key", "again"]), "OK");
    drop(start(folder.path(), &["--appenddirname", "elsewhere"]));
    drop((client, server));
    let next = start(folder.path(), &[]);
    assert_eq!(call(&mut link(&next), &["GET", "key"]), "again");
    assert_eq!(info(&mut link(&next), "aof_enabled"), "1");
}
