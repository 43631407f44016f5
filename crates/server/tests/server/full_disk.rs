//! A full disk. A limit on the size of files makes the system refuse writes like a full disk, after a partial
//! write. Replies and the remaining data are compared with redis-server.

use crate::aof::{call, folder, text};
use crate::harness::{STRAND, comes_true};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::path::Path;
use strand_testkit::client::Client;
use strand_testkit::process::{Program, Server};

/// Maximum number of writes until one is refused.
const WRITES_MAX: usize = 3_000;
/// Length of a value in bytes.
const VALUE_BYTES: usize = 1_000;

/// A server with a limit on the size of its files.
struct Limited {
    server: Server,
    link: Client,
}

impl Limited {
    fn start(kind: Program, folder: &Path, more: &[&str]) -> Limited {
        let dir = folder.to_str().expect("a plain path");
        let options = [&["--dir", dir], more].concat();
        // redis-server ends at a file that is too large, unless the signal is ignored.
        let start = match kind {
            Program::Strand => format!("exec {STRAND}"),
            Program::Redis => "trap '' XFSZ\nexec redis-server".into(),
        };
        let script = folder.join("start.sh");
        std::fs::write(&script, format!("#!/bin/sh\n{start} \"$@\"\n")).expect("written");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
        let server = Server::started_by(&script, kind, &options).expect("it starts");
        let mut link = server.connect().expect("it listens");
        comes_true(|| info(&mut link, "loading") == "0");
        Limited { server, link }
    }
    fn limit(&self, bytes: Option<u64>) {
        let pid = Pid::from_raw(self.server.pid() as i32);
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("our child");
    }
    fn call(&mut self, args: &[&str]) -> String {
        call(&mut self.link, args)
    }
    /// Writes until a write is refused. Returns the number of acknowledged writes.
    fn fill(&mut self) -> usize {
        let value = "x".repeat(VALUE_BYTES);
        for i in 0..WRITES_MAX {
            let reply = self.link.call(&["SET", &format!("key:{i}"), &value]).map(text);
            if reply.ok().as_deref() != Some("OK") {
                return i;
            }
            // Yield, so that background writes reach the limit while there is more to write.
            if i % 100 == 99 {
                std::thread::yield_now();
            }
        }
        WRITES_MAX
    }
}

fn info(link: &mut Client, field: &str) -> String {
    crate::aof::info(link, field)
}

fn both(tell: impl Fn(Program, &Path) -> Vec<String>) {
    let [ours, theirs] = [Program::Strand, Program::Redis].map(|kind| {
        let folder = folder();
        tell(kind, folder.path())
    });
    assert_eq!(ours, theirs);
}

#[test]
fn writes_are_refused_until_the_append_only_file_has_room() {
    both(|kind, folder| {
        let options = ["--appendonly", "yes", "--appendfsync", "everysec", "--enable-debug-command", "yes"];
        let mut limited = Limited::start(kind, folder, &options);
        assert_eq!(limited.call(&["SET", "first", "1"]), "OK");
        limited.limit(Some(200_000));
        limited.fill();
        comes_true(|| limited.call(&["SET", "refused", "1"]) != "OK");
        let mut told: Vec<String> =
            [&["SET", "refused", "1"][..], &["PING"], &["GET", "first"], &["DEL", "first"]]
                .iter()
                .map(|line| limited.call(line))
                .collect();
        // redis-server reports each partial write as a lack of space. Strand reports the system's error.
        let reason = if kind == Program::Strand { "File too large" } else { "No space left on device" };
        told.iter_mut().for_each(|line| *line = line.replace(reason, "(why)"));
        told.push(info(&mut limited.link, "aof_last_write_status"));
        limited.limit(None);
        comes_true(|| limited.call(&["SET", "last", "1"]) == "OK");
        told.push(info(&mut limited.link, "aof_last_write_status"));
        comes_true(|| info(&mut limited.link, "aof_buffer_length") == "0");
        let digest = limited.call(&["DEBUG", "DIGEST"]);
        drop(limited);
        let mut again = Limited::start(kind, folder, &options);
        assert_eq!(again.call(&["DEBUG", "DIGEST"]), digest, "{kind:?}");
        told
    });
}

#[test]
fn with_always_a_full_disk_ends_the_process_without_losing_acknowledged_writes() {
    both(|kind, folder| {
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut limited = Limited::start(kind, folder, &options);
        limited.limit(Some(100_000));
        let acknowledged = limited.fill();
        assert!((50..WRITES_MAX).contains(&acknowledged), "{acknowledged} writes");
        comes_true(|| limited.server.connect().is_err());
        drop(limited);
        let mut again = Limited::start(kind, folder, &options);
        let found: usize = again.call(&["DBSIZE"]).parse().expect("a number");
        assert!((acknowledged..=acknowledged + 1).contains(&found), "{found} of {acknowledged}");
        vec![again.call(&["SET", "more", "1"])]
    });
}

#[test]
fn a_snapshot_that_has_no_room_leaves_the_old_one() {
    both(|kind, folder| {
        let options = ["--save", "3600 1000000", "--rdbcompression", "no"];
        let mut limited = Limited::start(kind, folder, &options);
        assert_eq!(limited.call(&["SET", "first", "1"]), "OK");
        assert_eq!(limited.call(&["SAVE"]), "OK");
        let before = std::fs::read(folder.join("dump.rdb")).expect("there");
        assert_eq!(limited.fill(), WRITES_MAX);
        limited.limit(Some(500_000));
        let mut told = vec![limited.call(&["SAVE"]), limited.call(&["BGSAVE"])];
        comes_true(|| info(&mut limited.link, "rdb_bgsave_in_progress") == "0");
        told.push(info(&mut limited.link, "rdb_last_bgsave_status"));
        for line in [&["SET", "refused", "1"][..], &["PING"], &["GET", "first"]] {
            told.push(limited.call(line));
        }
        assert_eq!(std::fs::read(folder.join("dump.rdb")).expect("there"), before, "{kind:?}");
        let names = std::fs::read_dir(folder).expect("there").flatten().map(|entry| entry.file_name());
        let left: Vec<_> = names.filter(|name| name != "dump.rdb.lock" && name != "strand-history").collect();
        assert_eq!(left.len(), 2, "{left:?}");
        limited.limit(None);
        told.push(limited.call(&["BGSAVE"]));
        comes_true(|| info(&mut limited.link, "rdb_bgsave_in_progress") == "0");
        told.push(info(&mut limited.link, "rdb_last_bgsave_status"));
        told.push(limited.call(&["SET", "taken", "1"]));
        told
    });
}

/// A folder in which not even root may write. A server starts, as redis-server does, and logs why it saves
/// nothing.
#[test]
fn the_log_names_a_folder_that_cannot_be_written() {
    let server = crate::harness::Server::start(&["--dir", "/proc", "--save", "60 1"]);
    let mut client = crate::aof::link(&server);
    assert_eq!(call(&mut client, &["SAVE"]), "ERR");
    let mut command = std::process::Command::new("timeout");
    let args =
        ["--http-port", "0", "--port", "0", "--bind", "127.0.0.1", "--dir", "/proc", "--appendonly", "yes"];
    let refused = command.args(["60", STRAND, "serve"]).args(args).output().expect("the built binary starts");
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    for part in ["cannot use the folder appendonlydir", "cannot be made in /proc", "Give a dir that"] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    // The other server logs this at its start.
    assert!(
        told.contains(
            "snapshots cannot be written: cannot lock dump.rdb: the lock file dump.rdb.lock in /proc"
        ),
        "{told}"
    );
}
