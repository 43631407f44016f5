//! What survives when the power fails, the disk is full, or the disk has errors. The servers write their append-only files
//! to a [`Disk`] in memory.

use crate::disk::Disk;
use crate::fixture::{self, Asked, Peer, Server, words};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

/// Number of crashes that a test makes. The variable STRAND_CRASHES changes it.
const CRASHES: u64 = 300;
const PEERS: usize = 3;

/// Time between two turns of the writing thread.
const TURN_US: u64 = 20_000;

/// A turn of the writing thread. Only these turns move the clock.
fn write_turn(server: &Server) {
    server.step_us.store(TURN_US, Relaxed);
    server.engine.write_aof(false);
    server.step_us.store(0, Relaxed);
}

pub fn open(disk: &Disk, more: &str) -> Server {
    Server::on_disk(more, Arc::new(disk.clone())).expect("the disk is whole")
}

/// Notes the last number after each name in `text`: `a=5`.
fn note(replies: &str, counter: usize, known: &mut [u64]) {
    for reply in replies.split('|') {
        let number = reply.trim_start_matches([':', '$', '*']).parse().unwrap_or(0);
        if reply.starts_with(':') {
            known[counter] = known[counter].max(number);
        }
    }
}

/// The power fails at any operation on the disk, also during rewrites. Everything that a reply to a write or to a read
/// has shown exists afterwards.
#[test]
fn with_always_no_acknowledged_write_is_lost_when_the_power_fails() {
    let crashes = strand_testkit::env_number("STRAND_CRASHES", CRASHES);
    let (disk, mut known, mut rng) = (Disk::default(), [0u64; PEERS], fastrand::Rng::with_seed(18));
    let (mut replies, mut waited, mut rewrites) = (0u64, 0u64, 0u64);
    for crash in 0..crashes {
        let mut server = open(&disk, "appendfsync always\nenable-debug-command yes");
        let mut peers: Vec<Peer> = (0..PEERS).map(|_| server.connect()).collect();
        for (counter, known) in known.iter().enumerate() {
            peers[0].feed(&crate::fixture::command(&format!("INCRBY c:{counter} 0")), usize::MAX);
            peers[0].drive(&server);
            server.engine.write_aof(false);
            peers[0].drive(&server);
            let found: u64 = peers[0].replies().trim_matches([':', '|']).parse().expect("a number");
            assert!(found >= *known, "{found} of {known} in crash {crash}");
        }
        disk.power_fails_after(rng.usize(0..40));
        // Run turns for the waiting clients. The limit on turns matters when no operation on the disk is left before
        // the power fails.
        for _ in 0..200 {
            if disk.is_dead() {
                break;
            }
            match rng.u8(0..20) {
                0..5 => {
                    server.engine.write_aof(false);
                }
                5 => {
                    rewrites += 1;
                    peers[0].run(&server, "BGREWRITEAOF");
                }
                _ => {
                    let (at, counter) = (rng.usize(0..PEERS), rng.usize(0..PEERS));
                    let read = rng.bool();
                    let line =
                        if read { format!("INCRBY c:{counter} 0") } else { format!("INCR c:{counter}") };
                    // A peer sends one command at a time, because its replies are told apart by their order.
                    let early = peers[at].run(&server, &line);
                    note(&early, counter, &mut known);
                    for _ in 0..rng.u8(0..3) {
                        waited += u64::from(early.is_empty());
                        server.engine.write_aof(false);
                    }
                    let late = {
                        peers[at].drive(&server);
                        peers[at].replies()
                    };
                    note(&late, counter, &mut known);
                    replies += u64::from(!early.is_empty() || !late.is_empty());
                    if early.is_empty() && late.is_empty() {
                        // The old session continues to wait, and nobody reads its replies.
                        peers[at] = server.connect();
                    }
                }
            }
        }
        drop(peers);
        disk.recover(&mut rng);
    }
    assert!(replies > crashes && waited > crashes && rewrites > 0, "{replies} {waited} {rewrites}");
    println!(
        "always: {crashes} crashes, {replies} replies, {waited} waits for the disk, {rewrites} rewrites, 0 replies lost"
    );
}

#[test]
fn with_always_a_reply_waits_for_the_disk_and_others_do_not_wait_for_it() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync always");
    let (mut a, mut b) = (server.connect(), server.connect());
    assert_eq!(a.run(&server, "SET k 1"), "", "it is not on the disk");
    assert_eq!(b.run(&server, "GET k"), "", "what it would tell is not on the disk");
    server.engine.write_aof(false);
    assert!(a.wakes.count() > 0 && b.wakes.count() > 0);
    a.drive(&server);
    b.drive(&server);
    assert_eq!((a.replies(), b.replies()), ("+OK|".into(), "$1|1|".into()));
    assert_eq!(a.run(&server, "GET k"), "$1|1|", "all is on the disk");
    // When replies need not wait any more, the waiting clients still get theirs after a sync.
    assert_eq!(a.run(&server, "SET k 2"), "");
    assert_eq!(b.run(&server, "CONFIG SET appendfsync no"), "+OK|");
    a.drive(&server);
    assert_eq!(a.replies(), "", "it is not on the disk");
    server.engine.write_aof(false);
    a.drive(&server);
    assert_eq!(a.replies(), "+OK|");
    let known = disk.after_power_failure();
    let mut again = open(&known, "");
    assert_eq!(again.connect().run(&again, "GET k"), "$1|2|");
    // Without an append-only file, nobody waits for its syncs.
    assert_eq!(b.run(&server, "SET k 3"), "+OK|");
    assert_eq!(a.run(&server, "WAITAOF 1 0 0"), "");
    assert_eq!(b.run(&server, "CONFIG SET appendonly no"), "+OK|");
    a.drive(&server);
    assert_eq!(a.replies(), "*2|:1|:0|", "the end syncs");
    let off = "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.|";
    assert_eq!(a.run(&server, "WAITAOF 1 0 0"), off);
}

/// Until the first base is complete no manifest names the files. A server that ended then would leave no data.
#[test]
fn no_server_ends_before_its_first_base_is_complete() {
    let disk = Disk::default();
    let mut server = Server::with_folder("save \"\"", "", Some(Arc::new(disk.clone()))).expect("it starts");
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    disk.set_room(Some(0));
    assert_eq!(peer.run(&server, "CONFIG SET appendonly yes"), "+OK|");
    for end in ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN SAVE NOW"] {
        assert_eq!(peer.run(&server, end), "-ERR Errors trying to SHUTDOWN. Check logs.|", "{end}");
    }
    let ends = |server: &Server| server.asked.try_iter().any(|asked| matches!(asked, Asked::Shutdown(_)));
    assert!(!ends(&server));
    disk.set_room(None);
    server.advance_ms(60_000);
    server.engine.tick(server.now);
    assert_eq!(peer.run(&server, "SHUTDOWN NOSAVE"), "");
    assert!(ends(&server));
    let mut again = open(&disk, "");
    assert_eq!(again.connect().run(&again, "GET a"), "$1|1|");
}

/// Changes before the first base are safe when the base is complete, also when they never reached an increment.
#[test]
fn nothing_is_safe_before_the_first_base_is_complete() {
    let disk = Disk::default();
    let mut server = Server::with_folder("save \"\"", "", Some(Arc::new(disk.clone()))).expect("it starts");
    let (mut peer, mut waiting) = (server.connect(), server.connect());
    disk.set_room(Some(0));
    assert_eq!(peer.run(&server, "CONFIG SET appendonly yes"), "+OK|");
    assert_eq!(waiting.run(&server, "WAITAOF 1 0 0"), "");
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    server.engine.write_aof(false);
    assert!(peer.run(&server, "SET a 2").starts_with("-MISCONF "));
    disk.set_room(None);
    assert_eq!(peer.run(&server, "CONFIG SET appendfsync always"), "+OK|");
    server.advance_ms(60_000);
    server.engine.tick(server.now);
    assert_eq!(peer.run(&server, "GET a"), "", "the reply waits for a sync");
    // The bytes of the write were dropped, because the base has the key.
    server.engine.write_aof(false);
    peer.drive(&server);
    assert_eq!(peer.replies(), "$1|1|");
    waiting.drive(&server);
    assert_eq!(waiting.replies(), "*2|:1|:0|");
    let mut again = open(&disk.after_power_failure(), "");
    assert_eq!(again.connect().run(&again, "GET a"), "$1|1|");
}

/// The folder cannot be synced after the manifest's replacement. Then a crash may bring the old manifest back, and
/// with it only the old files. So writes are refused, nothing that the old manifest names is removed, and the next
/// base repairs everything.
#[test]
fn a_folder_that_cannot_be_synced_loses_nothing() {
    // The syncs of the folder in a rewrite: behind the new increment, behind the base, behind the manifest with it.
    for good_syncs in 0..4 {
        let disk = Disk::default();
        let mut server = open(&disk, "appendfsync everysec");
        let mut peer = server.connect();
        assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
        server.engine.write_aof(true);
        disk.set_folder_syncs(Some(good_syncs));
        peer.run(&server, "BGREWRITEAOF");
        assert!(
            peer.run(&server, "INFO persistence").contains("aof_last_bgrewrite_status:err"),
            "{good_syncs}"
        );
        let reply = peer.run(&server, "SET b 2");
        let is_refused = reply == "-MISCONF Errors writing to the AOF file: Input/output error|";
        assert!(is_refused || reply == "+OK|", "{reply}");
        server.engine.write_aof(true);
        // The new manifest or the old one is found after a crash.
        for crashed in [disk.after_a_kill(), disk.after_power_failure()] {
            let mut again = open(&crashed, "");
            let kept = if is_refused { "*2|$1|1|$-1|" } else { "*2|$1|1|$1|2|" };
            assert_eq!(again.connect().run(&again, "MGET a b"), kept, "{good_syncs}");
        }
        disk.set_folder_syncs(None);
        server.advance_ms(60_000);
        server.engine.tick(server.now);
        if !peer.run(&server, "INFO persistence").contains("aof_last_bgrewrite_status:ok") {
            peer.run(&server, "BGREWRITEAOF");
        }
        assert_eq!(peer.run(&server, "SET c 3"), "+OK|", "{good_syncs}");
        server.engine.write_aof(true);
        for crashed in [disk.after_a_kill(), disk.after_power_failure()] {
            let mut again = open(&crashed, "");
            assert_eq!(again.connect().run(&again, "MGET a c"), "*2|$1|1|$1|3|", "{good_syncs}");
            assert_eq!(crashed.names().len(), 3, "{:?}", crashed.names());
        }
    }
}

/// CONFIG SET changes all of its options or none, so a certificate that fails leaves the append-only file as it was.
#[test]
fn a_certificate_that_fails_leaves_the_append_only_file_on() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    // The fixture's host waits for a second reload only at the first.
    server.reloads.store(1, Relaxed);
    let mut peer = server.connect();
    let reply = peer.run(&server, "CONFIG SET appendonly no tls-cert-file bad");
    assert!(reply.contains("Unable to update TLS configuration"), "{reply}");
    peer.run(&server, "SET k 1");
    server.engine.write_aof(true);
    let mut again = open(&disk.after_a_kill(), "");
    assert_eq!(again.connect().run(&again, "GET k"), "$1|1|");
}

/// An increment never gets the name of an obsolete file, which is removed later.
#[test]
fn a_new_increment_survives_the_removal_of_obsolete_files() {
    for (keeps_old, restarts) in [(false, false), (false, true), (true, true)] {
        let disk = Disk::default();
        let mut server = open(&disk, "aof-disable-auto-gc yes");
        let mut peer = server.connect();
        peer.script(&server, &[("INCR n", ":1|"), ("INCR n", ":2|"), ("CONFIG SET appendonly no", "+OK|")]);
        assert!(peer.run(&server, "BGREWRITEAOF").starts_with("+Background"));
        let gc = if keeps_old { "aof-disable-auto-gc yes" } else { "aof-disable-auto-gc no" };
        if restarts {
            server = open(&disk, gc);
            peer = server.connect();
        } else {
            peer.script(
                &server,
                &[(&format!("CONFIG SET {gc}"), "+OK|"), ("CONFIG SET appendonly yes", "+OK|")],
            );
        }
        assert_eq!(peer.run(&server, "INCR n"), ":3|", "{:?}", disk.names());
        server.engine.write_aof(true);
        for crashed in [disk.after_a_kill(), disk.after_power_failure()] {
            let mut again = open(&crashed, "");
            assert_eq!(again.connect().run(&again, "GET n"), "$1|3|", "{:?}", crashed.names());
        }
        assert_eq!(disk.names().len() > 3, keeps_old, "{:?}", disk.names());
    }
}

/// A server that is killed at any operation of a rewrite leaves at most one base that nothing loads, and the next start
/// removes that base.
#[test]
fn a_kill_in_a_rewrite_leaves_no_base_behind() {
    let mut unused_bases = 0;
    for operations in 0..100 {
        let disk = Disk::default();
        let mut server = open(&disk, "appendfsync everysec");
        let mut peer = server.connect();
        assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
        server.engine.write_aof(true);
        disk.power_fails_after(operations);
        peer.run(&server, "BGREWRITEAOF");
        let is_killed = disk.is_dead();
        let crashed = disk.after_a_kill();
        let bases = |disk: &Disk| disk.names().iter().filter(|name| name.contains(".base.")).count();
        let manifest = String::from_utf8(crashed.bytes("appendonly.aof.manifest")).expect("text");
        unused_bases += usize::from(bases(&crashed) == 2 && manifest.contains(".1.base.rdb seq 1 type b"));
        let mut again = open(&crashed, "");
        let mut peer = again.connect();
        assert_eq!(peer.run(&again, "GET a"), "$1|1|", "{operations}");
        assert_eq!(bases(&crashed), 1, "{operations}: {:?}", crashed.names());
        peer.run(&again, "BGREWRITEAOF");
        assert_eq!(crashed.names().len(), 3, "{operations}: {:?}", crashed.names());
        if !is_killed {
            assert!(unused_bases > 0, "no kill came between the base and the manifest");
            return;
        }
    }
    panic!("a rewrite has more than 100 operations");
}

/// A server whose disk is full starts again, and answers reads.
#[test]
fn a_full_disk_keeps_no_server_from_starting() {
    let disk = Disk::default();
    let mut server = open(&disk, "aof-disable-auto-gc yes");
    let mut peer = server.connect();
    peer.script(&server, &[("SET a 1", "+OK|"), ("SET b 2", "+OK|")]);
    assert!(peer.run(&server, "BGREWRITEAOF").starts_with("+Background"));
    server.engine.write_aof(true);
    disk.set_room(Some(0));
    let mut again = open(&disk, "appendfsync everysec");
    let mut peer = again.connect();
    assert_eq!(peer.run(&again, "SET a 3"), "+OK|");
    again.engine.write_aof(false);
    assert!(peer.run(&again, "SET a 4").starts_with("-MISCONF "));
    assert_eq!(peer.run(&again, "GET b"), "$1|2|");
}

/// A base has the idle times and access counters of keys.
#[test]
fn a_base_keeps_the_usage_of_keys() {
    for (policy, used, kept) in
        [("allkeys-lru", "OBJECT IDLETIME a", ":0|"), ("allkeys-lfu", "OBJECT FREQ a", ":5|")]
    {
        let disk = Disk::default();
        let options = format!("maxmemory-policy {policy}");
        let mut server = open(&disk, &options);
        let mut peer = server.connect();
        peer.script(&server, &[("SET a 1", "+OK|"), (used, kept)]);
        assert!(peer.run(&server, "BGREWRITEAOF").starts_with("+Background"));
        server.engine.write_aof(true);
        let mut again = open(&disk, &options);
        assert_eq!(again.connect().run(&again, used), kept, "{policy}");
    }
}

/// Effects keep the expiry of fields.
#[test]
fn a_field_that_is_incremented_keeps_its_expiry_in_the_file() {
    let disk = Disk::default();
    let mut server = open(&disk, "");
    let mut peer = server.connect();
    for line in ["HSET h f 1 i 1", "HPEXPIRE h 100000 FIELDS 2 f i", "HINCRBYFLOAT h f 0.5", "HINCRBY h i 2"]
    {
        assert!(!peer.run(&server, line).starts_with('-'), "{line}");
    }
    assert_eq!(peer.run(&server, "HSETEX h KEEPTTL FIELDS 1 i 9"), ":1|");
    let expiries = "HPEXPIRETIME h FIELDS 2 f i";
    let before = peer.run(&server, expiries);
    assert!(!before.contains(":-1"), "{before}");
    server.engine.write_aof(true);
    let mut again = open(&disk, "");
    let mut peer = again.connect();
    assert_eq!(peer.run(&again, expiries), before);
    assert_eq!(peer.run(&again, "HMGET h f i"), "*2|$3|1.5|$1|9|");
}

/// A script that is too long for a worker is undone and runs again. A field that expired in the first run leaves no effect
/// when the field comes back with the undone run.
#[test]
fn an_undone_script_leaves_no_expiry_in_the_file() {
    let disk = Disk::default();
    let mut server = open(&disk, "");
    let mut peer = server.connect();
    peer.run(&server, "HSET h f 1 g 2");
    peer.run(&server, "HPEXPIRE h 100 FIELDS 1 f");
    let eval = |server: &Server, peer: &mut Peer, script| {
        peer.send(server, &words(&["EVAL", script, "2", "h", "p"]))
    };
    eval(&server, &mut peer, "redis.call('SET', KEYS[2], redis.call('DUMP', KEYS[1]))");
    server.advance_ms(200);
    peer.script(&server, &[("HSET h f keep", ":1|"), ("HGET h g", "$1|2|")]);
    let script = "redis.call('RESTORE', KEYS[1], 0, redis.call('GET', KEYS[2]), 'REPLACE') \
                  local fields = redis.call('HLEN', KEYS[1]) \
                  local steps = 0 for i = 1, 100000 do steps = steps + i end \
                  return fields";
    assert_eq!(eval(&server, &mut peer, script), ":1|");
    server.engine.write_aof(true);
    let name = disk.names().into_iter().find(|name| name.contains(".incr.")).expect("an increment");
    let file = String::from_utf8_lossy(&disk.bytes(&name)).into_owned();
    let commands = file[file.find("keep").expect("HSET")..].split("\r\n").filter(|line| line.is_ascii());
    let commands: Vec<_> = commands.filter(|line| ["RESTORE", "HDEL", "DEL"].contains(line)).collect();
    assert_eq!(commands, ["RESTORE", "HDEL"], "{file}");
    let mut again = open(&disk, "");
    assert_eq!(again.connect().run(&again, "HGETALL h"), "*2|$1|g|$1|2|");
}

/// The file system becomes read-only, or the disk has errors. No server starts on such a disk. A running server refuses
/// writes, answers reads, and continues when the disk works again.
#[test]
fn a_disk_that_takes_nothing_refuses_writes_and_a_start() {
    use rustix::io::Errno;
    for (errno, text) in [(Errno::ROFS, "Read-only file system"), (Errno::IO, "Input/output error")] {
        let empty = Disk::default();
        empty.set_refuses(Some(errno));
        let why = Server::on_disk("", Arc::new(empty)).err().expect("nothing can be written");
        assert!(why.contains(text), "{why}");
        let disk = Disk::default();
        let mut server = open(&disk, "appendfsync everysec");
        let mut peer = server.connect();
        assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
        server.engine.write_aof(false);
        disk.set_refuses(Some(errno));
        assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
        server.engine.write_aof(false);
        let refused = format!("-MISCONF Errors writing to the AOF file: {text}|");
        for (line, reply) in [("SET c 3", refused.as_str()), ("GET b", "$1|2|")] {
            assert_eq!(peer.run(&server, line), reply, "{line} with {text}");
        }
        disk.set_refuses(None);
        server.step_us.store(2_000_000, Relaxed);
        // The clock has moved since the last turn read it.
        (0..2).for_each(|_| server.engine.write_aof(false));
        assert_eq!(peer.run(&server, "SET c 3"), "+OK|", "{text}");
        server.engine.write_aof(true);
        let mut again = open(&disk, "");
        assert_eq!(again.connect().run(&again, "MGET a b c"), "*3|$1|1|$1|2|$1|3|");
    }
}

#[test]
fn after_a_sync_that_failed_only_a_new_base_lets_writes_go_on() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    server.step_us.store(2_000_000, std::sync::atomic::Ordering::Relaxed);
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    disk.set_syncs_fail(true);
    server.engine.write_aof(false);
    assert!(server.engine.sync_aof());
    let refused = "-MISCONF Errors writing to the AOF file: Input/output error|";
    assert_eq!(peer.run(&server, "SET b 2"), refused);
    disk.set_syncs_fail(false);
    // A later successful sync says nothing about what was lost before.
    server.engine.write_aof(false);
    assert!(server.engine.sync_aof());
    assert_eq!(peer.run(&server, "WAITAOF 1 0 1"), "");
    server.advance_ms(10);
    peer.drive(&server);
    assert_eq!(peer.replies(), "*2|:0|:0|");
    assert_eq!(peer.run(&server, "SET b 2"), refused);
    // The rewrite is retried until it succeeds.
    for (room, reply) in [(Some(0), refused), (Some(0), refused), (None, "+OK|")] {
        disk.set_room(room);
        server.advance_ms(60_000);
        server.engine.tick(server.now);
        assert_eq!(peer.run(&server, "SET b 2"), reply);
    }
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_bgrewrite_status:ok"));
}

/// With `everysec` a slow disk stops no write. A killed process loses what was not written yet, whatever the disk does.
#[test]
fn a_slow_sync_keeps_nobody_from_writing() {
    const WRITES: usize = 300;
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    let mut peer = server.connect();
    let pending = |peer: &mut Peer, server: &Server, field: &str| {
        let info = peer.run(server, "INFO persistence");
        let line = info.split_once(&format!("{field}:")).map(|(_, rest)| rest.split('|').next());
        line.flatten().and_then(|number| number.parse::<u64>().ok()).expect("the field")
    };
    disk.hold_syncs();
    let sync = until_ordered(&disk, &server, &mut peer);
    for _ in 0..WRITES {
        peer.run(&server, "INCR c");
        write_turn(&server);
    }
    let counted: u64 = peer.run(&server, "INCRBY c 0").trim_matches([':', '|']).parse().expect("a number");
    write_turn(&server);
    assert_eq!(pending(&mut peer, &server, "aof_pending_bio_fsync"), 1);
    // Six seconds have passed. A delay is counted every two seconds.
    assert!((2..=4).contains(&pending(&mut peer, &server, "aof_delayed_fsync")));
    let mut killed = open(&disk.after_a_kill(), "");
    let mut other = killed.connect();
    assert_eq!(other.run(&killed, "INCRBY c 0"), format!(":{counted}|"));
    disk.end_syncs();
    sync.join().expect("the sync ends");
    assert_eq!(pending(&mut peer, &server, "aof_pending_bio_fsync"), 0);
    assert_eq!(pending(&mut peer, &server, "aof_buffer_length"), 0);
}

/// Writes until a sync is in progress. The sync runs on a thread of its own.
fn until_ordered(disk: &Disk, server: &Server, peer: &mut Peer) -> JoinHandle<bool> {
    for _ in 0..200 {
        peer.run(server, "INCR c");
        write_turn(server);
        if peer.run(server, "INFO persistence").contains("aof_pending_bio_fsync:1") {
            let engine = server.engine.clone();
            let sync = fixture::thread(move || engine.sync_aof());
            disk.await_sync();
            return sync;
        }
    }
    panic!("no sync was ordered in four seconds");
}

/// The power fails at any operation while each sync takes up to 0.9 seconds. What a reply has shown more than two
/// seconds before exists afterwards.
#[test]
fn with_everysec_nothing_older_than_two_seconds_is_lost() {
    const SAFE_TURNS: usize = 2_000_000 / TURN_US as usize;
    let crashes = strand_testkit::env_number("STRAND_CRASHES", CRASHES);
    // Run fewer crashes, because each takes hundreds of turns and a thread of its own.
    let crashes = (crashes / 100).max(20);
    let (disk, mut rng) = (Disk::default(), fastrand::Rng::with_seed(19));
    let (mut safe, mut lost, mut syncs) = (0u64, 0u64, 0u64);
    let mut acknowledged = 0;
    for crash in 0..crashes {
        let mut server = open(&disk, "appendfsync everysec");
        let mut peer = server.connect();
        let number = |peer: &mut Peer, line: &str| {
            peer.run(&server, line).trim_matches([':', '|']).parse::<u64>().unwrap_or(0)
        };
        let found = number(&mut peer, "INCRBY c 0");
        assert!(found >= safe, "{found} of {safe} in crash {crash}");
        lost += u64::from(acknowledged > found);
        disk.hold_syncs();
        disk.power_fails_after(rng.usize(100..2_000));
        let (mut history, mut under_way) = (vec![found], None);
        for turn in 0..2_000 {
            if disk.is_dead() {
                break;
            }
            history.push(number(&mut peer, "INCR c"));
            write_turn(&server);
            under_way = match under_way.take() {
                None if peer.run(&server, "INFO persistence").contains("aof_pending_bio_fsync:1") => {
                    let engine = server.engine.clone();
                    let sync = fixture::thread(move || engine.sync_aof());
                    if !disk.is_dead() {
                        disk.await_sync();
                    }
                    syncs += 1;
                    Some((sync, turn + rng.usize(1..45)))
                }
                Some((sync, ends)) if ends <= turn => {
                    disk.end_syncs();
                    let _: bool = JoinHandle::join(sync).expect("the sync ends");
                    disk.hold_syncs();
                    None
                }
                other => other,
            };
        }
        acknowledged = *history.iter().max().expect("it began with one");
        safe = history.len().checked_sub(1 + SAFE_TURNS).map_or(found, |at| history[at].max(found));
        disk.end_syncs();
        if let Some((sync, _)) = under_way {
            sync.join().expect("the sync ends");
        }
        drop(peer);
        disk.recover(&mut rng);
    }
    assert!(syncs > crashes && lost > 0, "{syncs} {lost}");
    println!(
        "everysec: {crashes} crashes, {syncs} syncs, {lost} that lost something, 0 that lost what was 2 s old"
    );
}

#[test]
fn slow_writes_and_syncs_are_events_of_latency() {
    let disk = Disk::default();
    let slow = "latency-monitor-threshold 1\nappendfsync ";
    for (fsync, kinds) in
        [("no", &["aof-write-alone"][..]), ("always", &["aof-write-alone", "aof-fsync-always"])]
    {
        let mut server = open(&disk, &format!("{slow}{fsync}"));
        let mut peer = server.connect();
        peer.feed(&crate::fixture::command("SET k 1"), usize::MAX);
        peer.drive(&server);
        // Each time the clock is read, it moves.
        server.step_us.store(5_000, std::sync::atomic::Ordering::Relaxed);
        server.engine.write_aof(false);
        server.step_us.store(0, std::sync::atomic::Ordering::Relaxed);
        peer.drive(&server);
        assert_eq!(peer.replies(), "+OK|");
        let latest = peer.run(&server, "LATENCY LATEST");
        server.engine.write_aof(false);
        for kind in kinds.iter().chain(&["aof-write"]) {
            assert!(latest.contains(&format!("|{kind}|")), "{kind} with {fsync}: {latest}");
        }
        assert_eq!(latest.contains("aof-fsync-always"), fsync == "always");
    }
}
