//! The folder of the append-only file: when `dir` changes, and when the manifest is lost.

use crate::aof::{call, contents, folder, link, redis_at, shut_down, start, until_rewritten};
use crate::harness::{Server, comes_true};

#[test]
fn the_append_only_file_stays_in_its_folder_when_dir_changes() {
    let (first, second) = (folder(), folder());
    let config = first.path().join("strand.conf");
    let text = format!(
        "dir {}\nappendonly yes\nsave \"\"\nport 0\nbind 127.0.0.1\nhttp-port 0\nenable-protected-configs yes\n",
        first.path().display()
    );
    std::fs::write(&config, text).expect("ours");
    let server = Server::start_as(&[config.to_str().expect("a plain path")], "");
    let mut client = server.connect();
    client.call("SET a 1", "+OK\r\n");
    let empty = client.line_of("CONFIG SET dir \"\"", 0);
    assert!(empty.ends_with("'dir') - No such file or directory"), "{empty}");
    let new = second.path().to_str().expect("a plain path").to_owned();
    client.call(&format!("CONFIG SET dir {new}"), "+OK\r\n");
    comes_true(|| server.folder.log_text().contains("The append-only file stays in "));
    let refused = client.line_of("CONFIG REWRITE", 0);
    assert!(
        refused.contains(&*first.path().to_string_lossy()) && refused.contains("appendonly no"),
        "{refused}"
    );
    client.call("CONFIG SET appendonly no", "+OK\r\n");
    client.call("CONFIG REWRITE", "+OK\r\n");
    client.call("CONFIG SET appendonly yes", "+OK\r\n");
    comes_true(|| second.path().join("appendonlydir/appendonly.aof.manifest").exists());
    comes_true(|| client.line_of("CONFIG REWRITE", 0) == "+OK");
    comes_true(|| client.bulk("INFO persistence").contains("aof_rewrite_in_progress:0"));
    drop((client, server));
    let again = Server::start_as(&[config.to_str().expect("a plain path")], "");
    again.connect().call("GET a", "$1\r\n1\r\n");
}

/// As in redis-server, a server that finds no manifest begins without data. The files that only the lost manifest named
/// stay as they are, also when the new files are rewritten, and with the manifest restored they are the data again.
#[test]
fn files_of_a_lost_manifest_stay() {
    let folder = folder();
    let files = folder.path().join("appendonlydir");
    let (manifest, kept) = (files.join("appendonly.aof.manifest"), folder.path().join("kept"));
    let server = start(folder.path(), &[]);
    assert_eq!(call(&mut link(&server), &["SET", "before", "1"]), "OK");
    shut_down(server);
    std::fs::rename(&manifest, &kept).expect("there");
    let before = contents(&files);
    assert_eq!(before.len(), 2, "a base and an increment");
    let is_kept = || before.iter().all(|(path, bytes)| contents(&files).get(path) == Some(bytes));
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    assert_eq!(call(&mut client, &["DBSIZE"]), "0");
    assert!(server.folder.log_text().contains("no manifest names this file"), "the log says it");
    for value in ["1", "2"] {
        assert_eq!(call(&mut client, &["SET", "after", value]), "OK");
        call(&mut client, &["BGREWRITEAOF"]);
        until_rewritten(&mut client);
        assert!(is_kept());
    }
    shut_down(server);
    let redis = redis_at(folder.path());
    let mut client = redis.connect().expect("it listens");
    assert_eq!(call(&mut client, &["GET", "after"]), "2", "redis-server reads the new files");
    drop((client, redis));
    std::fs::rename(&kept, &manifest).expect("there");
    assert!(is_kept());
    let server = start(folder.path(), &[]);
    let mut client = link(&server);
    assert_eq!(
        (call(&mut client, &["GET", "before"]), call(&mut client, &["EXISTS", "after"])),
        ("1".into(), "0".into())
    );
}
