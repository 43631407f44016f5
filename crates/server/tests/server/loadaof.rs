//! DEBUG LOADAOF and DEBUG RELOAD: the data becomes what the files say.

use crate::aof::{
    Link, call, digest, digest_here, digest_there, folder, info, link, shut_down, start, until_rewritten,
};
use crate::harness::{Server, comes_true};
use crate::stopping::Increment;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn debug_loadaof_replaces_the_data_with_the_files_content() {
    let folder = folder();
    let server = start(folder.path(), &["--appendfsync", "everysec"]);
    let mut client = link(&server);
    for line in [
        &["HSET", "hash", "a", "1"][..],
        &["ZADD", "ranks", "1", "a"],
        &["SELECT", "3"],
        &["SADD", "set", "x"],
    ] {
        call(&mut client, line);
    }
    for i in 0..300 {
        call(&mut client, &["RPUSH", &format!("list:{}", i % 7), &i.to_string()]);
        if i == 150 {
            assert!(call(&mut client, &["BGREWRITEAOF"]).contains("append only file rewriting"));
        }
    }
    call(&mut client, &["SET", "expires", "1", "EX", "10000"]);
    let (before, ttl) = (digest(&mut client), call(&mut client, &["PEXPIRETIME", "expires"]));
    for _ in 0..3 {
        assert_eq!(call(&mut client, &["DEBUG", "LOADAOF"]), "OK");
        assert_eq!(digest(&mut client), before);
        assert_eq!(call(&mut client, &["PEXPIRETIME", "expires"]), ttl);
        assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    }
    // The server continues where the file stopped, and nothing was written twice.
    assert_eq!(call(&mut client, &["INCR", "counter"]), "1");
    let after = digest(&mut client);
    shut_down(server);
    assert_eq!(digest_here(folder.path()), after);
    assert_eq!(digest_there(folder.path()), after);
    let none = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = link(&none);
    call(&mut client, &["SET", "kept", "1"]);
    let text = "ERR Error trying to load the AOF files, check server logs.";
    assert_eq!(call(&mut client, &["DEBUG", "LOADAOF"]), text);
    assert_eq!(call(&mut client, &["GET", "kept"]), "1");
}

#[test]
fn debug_loadaof_loads_what_a_rewrite_without_an_append_only_file_left() {
    let folder = folder();
    let dir = folder.path().to_str().expect("a path of a test");
    for preamble in ["yes", "no"] {
        let server = Server::start(&[
            "--enable-debug-command",
            "yes",
            "--dir",
            dir,
            "--aof-use-rdb-preamble",
            preamble,
        ]);
        let mut client = link(&server);
        call(&mut client, &["RPUSH", "list", "a", "1"]);
        call(&mut client, &["BGREWRITEAOF"]);
        comes_true(|| info(&mut client, "aof_rewrite_in_progress") == "0");
        let before = digest(&mut client);
        call(&mut client, &["SET", "not in the files", "1"]);
        assert_eq!(call(&mut client, &["DEBUG", "LOADAOF"]), "OK");
        assert_eq!(digest(&mut client), before);
        assert_eq!(call(&mut client, &["INCR", "counter"]), "1");
        shut_down(server);
    }
}

#[test]
fn debug_reload_is_no_change_of_its_own() {
    let folder = folder();
    let server = start(folder.path(), &["--appendfsync", "always"]);
    let mut client = link(&server);
    for n in 0..100 {
        call(&mut client, &["SET", &format!("key:{n}"), "value"]);
    }
    let before = digest(&mut client);
    assert_eq!(call(&mut client, &["DEBUG", "RELOAD"]), "OK");
    assert_eq!(digest(&mut client), before);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(info(&mut client, "rdb_last_load_keys_loaded"), "100");
    assert_eq!(info(&mut client, "rdb_saves"), "0", "it counts as no save");
    // Functions are a part of the data. The file does not have this one.
    call(
        &mut client,
        &["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"],
    );
    assert_eq!(call(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]), "OK");
    assert_eq!(call(&mut client, &["FCALL", "f", "0"]), "ERR Function not found");
    call(&mut client, &["SET", "key:1", "other"]);
    until_rewritten(&mut client);
    let before = digest(&mut client);
    shut_down(server);
    assert_eq!(digest_there(folder.path()), before);
}

#[test]
fn a_file_has_what_an_import_keeps_about_its_dataset() {
    for preamble in ["yes", "no"] {
        let folder = folder();
        let options = ["--aof-use-rdb-preamble", preamble, "--appendfsync", "always"];
        let server = start(folder.path(), &options);
        let mut client = link(&server);
        let paths: Vec<String> = (0..5_000).map(|n| format!("path:{n}")).collect();
        for path in &paths {
            client.send(&["IMPORT.VERSION", "SET", "mail", path, "container"]).expect("sent");
        }
        paths.iter().for_each(|_| drop(client.reply().expect("a reply")));
        for (at, line) in [
            &["IMPORT.VERSION", "PUBLISH", "mail", "v1"][..],
            &["IMPORT.VERSION", "SET", "mail", "late", "one"],
            &["MULTI"],
            &["IMPORT.VERSION", "SET", "mail", "late", "two"],
            &["SET", "mail:1", "document"],
            &["EXEC"],
            &["SELECT", "2"],
            &["IMPORT.VERSION", "SET", "files", "a", "1"],
            &["IMPORT.VERSION", "SET", "files", "b", "2"],
            &["IMPORT.VERSION", "DEL", "files", "a", "none"],
        ]
        .iter()
        .enumerate()
        {
            let reply = call(&mut client, line);
            assert!(!reply.starts_with("ERR"), "{line:?}: {reply}");
            if at == 1 {
                call(&mut client, &["BGREWRITEAOF"]);
                until_rewritten(&mut client);
            }
        }
        call(&mut client, &["SELECT", "0"]);
        call(&mut client, &["IMPORT.VERSION", "PUBLISH", "mail", "v2"]);
        // A helper thread removes more than 4,096 paths.
        let forget =
            [&["IMPORT.VERSION", "DEL", "mail"][..], &paths.iter().map(String::as_str).collect::<Vec<_>>()];
        assert_eq!(call(&mut client, &forget.concat()), "5000");
        let seen = |client: &mut Link| {
            [
                &["IMPORT.VERSION", "LIST", "mail"][..],
                &["IMPORT.VERSION", "LOG", "mail"],
                &["IMPORT.VERSION", "GET", "mail", "late"],
                &["SELECT", "2"],
                &["IMPORT.VERSION", "LIST", "files"],
                &["IMPORT.VERSION", "GET", "files", "b"],
            ]
            .map(|line| call(client, line))
        };
        let before = seen(&mut client);
        assert_ne!(before[1], "Array([])", "versions are published");
        assert_eq!((before[2].as_str(), before[5].as_str()), ("two", "2"));
        shut_down(server);
        let digest = digest_here(folder.path());
        assert_eq!(digest_there(folder.path()), digest, "redis-server loads the file");
        let server = start(folder.path(), &options);
        assert_eq!(seen(&mut link(&server)), before, "preamble {preamble}");
        assert_eq!(call(&mut link(&server), &["DEBUG", "LOADAOF"]), "OK");
        assert_eq!(seen(&mut link(&server)), before, "preamble {preamble}, loaded again");
    }
}

/// A client's long transactions run on copies of their records, and their changes are made at one moment. No such moment
/// lies between the save and the load of a reload.
#[test]
fn reloads_lose_no_long_transaction_that_was_answered() {
    for (appendonly, reload) in [("no", "DEBUG RELOAD"), ("yes", "DEBUG RELOAD"), ("yes", "DEBUG LOADAOF")] {
        let options = ["--workers", "2", "--appendonly", appendonly, "--enable-debug-command", "yes"];
        let server = Server::start(&options);
        let (mut admin, mut writer) = (server.connect(), server.connect());
        let is_over = AtomicBool::new(false);
        let answered = std::thread::scope(|scope| {
            let writes = || Increment::in_long_exec(1).repeat(&mut writer, || !is_over.load(Relaxed));
            let writes = scope.spawn(writes);
            for _ in 0..30 {
                admin.call(reload, "+OK\r\n");
            }
            is_over.store(true, Relaxed);
            writes.join().expect("it ends")
        });
        assert_eq!(admin.bulk("GET n:1"), answered.to_string(), "{appendonly}, {reload}");
    }
}
