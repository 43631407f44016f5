//! Users over real sockets: files, several workers, and connections that close because their user was removed.

use crate::harness::{Client, Folder, STRAND, Server, comes_true, command, strand};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

const NO_PING: &str = "-NOPERM this user has no permissions to run the 'ping' command\r\n";

#[test]
fn rights_change_on_every_worker_at_once() {
    let server = Server::start(&["--workers", "2"]);
    let mut admin = server.connect();
    admin.call("ACL SETUSER bob on >pw +@all ~*", "+OK\r\n");
    let mut bobs: Vec<_> = (0..6).map(|_| server.connect()).collect();
    bobs.iter_mut().for_each(|bob| bob.call("AUTH bob pw", "+OK\r\n"));
    for round in 0..20 {
        let (rule, reply) = if round % 2 == 0 { ("-ping", NO_PING) } else { ("+ping", "+PONG\r\n") };
        admin.call(&format!("ACL SETUSER bob {rule}"), "+OK\r\n");
        bobs.iter_mut().for_each(|bob| bob.call("PING", reply));
    }
    admin.call("ACL DELUSER bob", ":1\r\n");
    // These connections are closed although nobody sends anything.
    bobs.iter_mut().for_each(|bob| bob.expect_end());
    admin.call("PING", "+PONG\r\n");
}

#[test]
fn users_are_kept_in_a_file() {
    let folder = Folder::new();
    let file = folder.write("users.acl", "user bob on >pw +get +acl|whoami ~*\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
    let server = Server::start(&["--aclfile", &file]);
    let (mut admin, mut bob) = (server.connect(), server.connect());
    bob.call("AUTH bob pw", "+OK\r\n");
    bob.call("ACL WHOAMI", "$3\r\nbob\r\n");
    admin.call("ACL SETUSER eve on +set", "+OK\r\n");
    admin.call("ACL SAVE", "+OK\r\n");
    let digest = "30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";
    let saved = format!(
        "user bob on #{digest} ~* resetchannels -@all +get +acl|whoami\nuser default on nopass ~* &* +@all\nuser eve on \
         resetchannels -@all +set\n"
    );
    let text = std::fs::read_to_string(&file).expect("there");
    let sorted = |text: &str| {
        let mut words: Vec<String> =
            text.split_inclusive([' ', '\n']).map(|w| w.trim().to_string()).collect();
        words.sort();
        words
    };
    assert_eq!(sorted(&text), sorted(&saved));
    let mode = std::fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "a file keeps its permissions");
    assert_eq!(std::fs::read_dir(&folder.0).expect("there").count(), 1, "nothing is left beside it");
    std::fs::write(&file, "user eve on nopass +@all ~*\n").expect("ours");
    admin.call("ACL LOAD", "+OK\r\n");
    bob.expect_end();
    admin.call("ACL USERS", "*2\r\n$7\r\ndefault\r\n$3\r\neve\r\n");
    std::fs::remove_file(&file).expect("there");
    let gone = format!("-ERR Error loading ACLs, opening file '{file}': No such file or directory\r\n");
    admin.call("ACL LOAD", &gone);
    admin.call("ACL SAVE", "+OK\r\n");
    let mode = std::fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "digests are for the server alone");
    std::fs::remove_dir_all(&folder.0).expect("ours");
    admin.call(
        "ACL SAVE",
        "-ERR There was an error trying to save the ACLs. Please check the server logs for more information\r\n",
    );
}

#[test]
fn an_invalid_acl_file_is_a_clear_error() {
    let folder = Folder::new();
    let file = folder.write("wrong.acl", "user bob on\nnonsense\n");
    let fails = |args: &[&str], said: &str| {
        let output = strand(&[&["serve", "--port", "0", "--bind", "127.0.0.1"], args].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains(said), "{text}");
    };
    fails(&["--aclfile", &file], "wrong.acl:2 should start with user keyword");
    fails(&["--aclfile", "/no/such/file.acl"], "No such file or directory");
    fails(&["--user", "bob", "on", "+@nope"], "Unknown command or category name in ACL");
}

#[test]
fn an_import_needs_rights_on_its_dataset_alone() {
    let server = Server::start(&[]);
    let mut admin = server.connect();
    admin.call(
        "ACL SETUSER importer on >pw +hset +hdel +unlink +exists +import.version +ft._list +ft.create ~mail:* ~mail",
        "+OK\r\n",
    );
    let folder = Folder::new();
    folder.write("one.eml", "Subject: hello\n\nworld\n");
    let import = |into: &str| {
        let mut command = Command::new(STRAND);
        command.args(["import", &folder.0.display().to_string(), "--into", into, "--quiet"]);
        command.args(["--server", &server.address.to_string(), "--user", "importer"]);
        command.env("STRAND_PASSWORD", "pw").output().expect("the built binary runs")
    };
    let done = import("mail");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let refused = import("other");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(1) && text.contains("no permissions to access one of the keys"),
        "{text}"
    );
    admin.call("KEYS *", "*1\r\n$12\r\nmail:one.eml\r\n");
    // A list of datasets shows only those that the user may read.
    admin.call("IMPORT.VERSION SET secret / x", "+OK\r\n");
    let mut importer = server.connect();
    importer.call("AUTH importer pw", "+OK\r\n");
    importer.call("IMPORT.VERSION DATASETS", "*1\r\n$4\r\nmail\r\n");
    importer.call(
        "IMPORT.VERSION LIST secret",
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    );
    assert_eq!(admin.line_of("IMPORT.VERSION DATASETS", 0), "*2");
    admin = server.connect();
    // So does the status of the imports that run.
    for dataset in ["secret", "mail"] {
        admin.call(&format!("IMPORT.VERSION HOLD {dataset}"), ":1\r\n");
    }
    admin.call("ACL SETUSER importer +import.status", "+OK\r\n");
    importer.call(
        "IMPORT.STATUS mail secret",
        "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    );
    assert_eq!(importer.line_of("IMPORT.STATUS", 0), "*2");
    assert_eq!(server.connect().line_of("IMPORT.STATUS", 0), "*4");
    // A search shows only what the user may read.
    admin.call("ACL SETUSER reader on >pw +ft.search %R~mail:t*", "+OK\r\n");
    let mut reader = server.connect();
    reader.call("AUTH reader pw", "+OK\r\n");
    reader.call("FT.SEARCH mail world NOCONTENT", "*1\r\n:0\r\n");
    admin.call("ACL SETUSER reader %R~mail:o*", "+OK\r\n");
    reader.send(&command("FT.SEARCH mail world NOCONTENT"));
    reader.expect(b"*2\r\n:1\r\n$12\r\nmail:one.eml\r\n");
}

/// A script that writes `k`, logs `holds k`, runs until a client subscribes to `go`, and writes `k` again. No machine is
/// too slow or too fast for a script that waits. The script logs only in its last run: the first loop is too long for a run
/// on a worker, and OBJECT is not for a run on copies.
const HOLDER: &str = "EVAL redis.call('object','encoding','k');redis.call('set','k','first');\
                      for\ti=1,1e5\tdo\tlocal\ta=i\tend;redis.log(redis.LOG_WARNING,'holds\tk');\
                      local\tn=0;repeat\tn=n+1;until\tredis.call('pubsub','numsub','go')[2]==1\tor\tn==1e8;\
                      redis.call('set','k','secret');return\t1 1 k";

/// Starts the script, and waits until the script has the shard of `k`. FUNCTION STATS shows a script that still waits, too.
fn hold(server: &Server, holder: &mut Client) {
    let held = || server.folder.log_text().matches("holds\tk").count();
    let before = held();
    holder.send(&command(HOLDER));
    comes_true(|| held() > before);
}

/// Ends the script of `holder`, and waits until nobody subscribes to `go`.
fn release(server: &Server, holder: &mut Client) {
    let mut subscriber = server.connect();
    subscriber.send(&command("SUBSCRIBE go"));
    holder.expect(b":1\r\n");
    drop(subscriber);
    comes_true(|| server.connect().line_of("PUBSUB NUMSUB go", 3) == ":0");
}

/// Waits until a client of the user `u` has begun the command in `words`.
fn await_command(server: &Server, words: &str) {
    let name = words.split(' ').next().expect("a name").to_lowercase();
    let has_begun = |line: &str| line.contains(" user=u ") && line.contains(&format!(" cmd={name} "));
    comes_true(|| server.connect().bulk("CLIENT LIST").lines().any(has_begun));
}

#[test]
fn a_command_that_waits_for_its_keys_has_the_rights_and_the_time_of_its_run() {
    // No script is busy, however slow the machine is.
    let server = Server::start(&["--busy-reply-threshold", "0"]);
    let (mut admin, mut holder) = (server.connect(), server.connect());
    let many = |command: &str, rest: &str, n: usize| {
        let words: Vec<String> = (0..n).map(|i| format!("p{i}{rest}")).collect();
        format!("{command} {}", words.join(" "))
    };
    let mget = many("MGET k", "", 5000);
    let scripts = "EVAL for\ti=1,3e5\tdo\tlocal\ta=i\tend;return\tredis.call('get','k') 0";
    let denied = "-NOPERM ";
    for (commands, start) in [
        (vec![mget.clone()], denied),
        (vec![many("MSET k v", " v", 3001)], denied),
        (vec![many("DEL k", "", 6000)], denied),
        (vec!["LCS k k".to_owned()], denied),
        (vec![scripts.to_owned()], "-"),
        (vec!["MULTI".into(), "EVAL return\tredis.call('get','k') 0".into(), "EXEC".into()], "*1"),
    ] {
        admin.call("ACL SETUSER u reset on nopass ~* +@all", "+OK\r\n");
        let mut client = server.connect();
        client.call("AUTH u x", "+OK\r\n");
        hold(&server, &mut holder);
        commands.iter().for_each(|words| client.send(&command(words)));
        await_command(&server, commands.last().expect("one at least"));
        admin.call("ACL SETUSER u resetkeys", "+OK\r\n");
        release(&server, &mut holder);
        let lines: Vec<String> = commands.iter().map(|_| client.line()).collect();
        let last = lines.last().expect("one at least");
        assert!(last.starts_with(start) && !lines.concat().contains("secret"), "{commands:?}: {lines:?}");
        if last == "*1" {
            assert!(client.line().starts_with("-"), "the script is denied");
        }
        assert_eq!(admin.bulk("GET k"), "secret");
    }
    // A user who was removed.
    admin.call("ACL SETUSER u reset on nopass ~* +@all", "+OK\r\n");
    let mut client = server.connect();
    client.call("AUTH u x", "+OK\r\n");
    hold(&server, &mut holder);
    client.send(&command("FLUSHALL"));
    await_command(&server, "FLUSHALL");
    admin.call("ACL DELUSER u", ":1\r\n");
    release(&server, &mut holder);
    client.expect_end();
    assert_eq!(admin.bulk("GET k"), "secret");
    // A key that expires while a command waits.
    admin.call("SET short value PX 150", "+OK\r\n");
    hold(&server, &mut holder);
    admin.send(&command(&mget.replace("MGET k", "MGET short k")));
    std::thread::sleep(Duration::from_millis(200));
    release(&server, &mut holder);
    assert_eq!(admin.line(), "*5002");
    assert_eq!(admin.line(), "$-1", "the key has expired");
}
