//! A disk in memory: bytes that were not synced are lost when the power fails, and operations fail on request. Servers
//! write their append-only files to it.

use crate::fixture::{self, Peer, Server};
use std::collections::BTreeMap;
use std::io::{self, Cursor, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;
use strand_engine::{AppendFile, Folder, OpenedFile, SyncFile, WriteFile};

/// Number of crashes that a test makes. The variable STRAND_CRASHES changes it.
const CRASHES: u64 = 300;
const PEERS: usize = 3;

/// Maximum time for which a sync is held back, so that a test that forgets to end the sync does not hang.
const HELD_BACK_MAX: Duration = Duration::from_secs(20);

// These locks hold threads back, because the test plays the disk.
#[allow(clippy::disallowed_types)]
#[derive(Clone, Default)]
pub struct Disk(Arc<parking_lot::Mutex<State>>, Arc<parking_lot::Condvar>);

#[derive(Default)]
pub struct State {
    files: BTreeMap<String, File>,
    /// Number of operations until the power fails.
    power_left: Option<usize>,
    /// Number of bytes that still fit on the disk.
    room: Option<usize>,
    syncs_fail: bool,
    /// The error with which every change of a file fails.
    refuses: Option<rustix::io::Errno>,
    /// While this is true, a sync that has begun does not end.
    syncs_wait: bool,
    syncing: usize,
}

#[derive(Clone, Default)]
struct File {
    bytes: Vec<u8>,
    /// Length of the part of the file that survives a power failure.
    synced: usize,
}

impl Disk {
    /// Creates a file that counts as synced.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.0.lock().files.insert(name.into(), File { bytes: bytes.to_vec(), synced: bytes.len() });
    }

    /// The names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().files.keys().cloned().collect()
    }

    /// The bytes of a file, synced or not.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.lock().files[name].bytes.clone()
    }

    /// Sets how many bytes fit on the disk. `None` removes the limit.
    pub fn set_room(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }
    /// Begins an operation on the disk.
    fn state(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let mut state = self.0.lock();
        match &mut state.power_left {
            Some(0) => return Err(io::Error::other("the power has failed")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }
    /// Begins an operation that changes files.
    fn changing(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state()?;
        match state.refuses {
            Some(errno) => Err(io::Error::from_raw_os_error(errno.raw_os_error())),
            None => Ok(state),
        }
    }
    fn is_dead(&self) -> bool {
        self.0.lock().power_left == Some(0)
    }
    fn power_fails_after(&self, operations: usize) {
        self.0.lock().power_left = Some(operations);
    }
    /// From now on, syncs end only with [`Disk::end_syncs`].
    fn hold_syncs(&self) {
        self.0.lock().syncs_wait = true;
    }
    fn end_syncs(&self) {
        self.0.lock().syncs_wait = false;
        self.1.notify_all();
    }
    /// Waits until a sync is in progress.
    fn await_sync(&self) {
        let mut state = self.0.lock();
        while state.syncing == 0 {
            assert!(!self.1.wait_for(&mut state, HELD_BACK_MAX).timed_out(), "no sync has begun");
        }
    }
    /// The disk as a new process finds it after the old one was killed.
    fn after_a_kill(&self) -> Disk {
        let files = self.0.lock().files.clone();
        Disk(Arc::new(parking_lot::Mutex::new(State { files, ..State::default() })), Arc::default())
    }
    /// Restores the power. Of each part that was not synced, a random prefix survives.
    fn recover(&self, rng: &mut fastrand::Rng) {
        let mut state = self.0.lock();
        state.power_left = None;
        for file in state.files.values_mut() {
            let kept = rng.usize(file.synced..=file.bytes.len());
            file.bytes.truncate(kept);
            file.synced = kept;
        }
    }
}

impl Folder for Disk {
    fn open(&self, name: &str) -> io::Result<Option<OpenedFile>> {
        let bytes = self.state()?.files.get(name).map(|file| file.bytes.clone());
        Ok(bytes.map(|bytes| {
            let len = bytes.len() as u64;
            (Box::new(Cursor::new(bytes)) as Box<_>, len)
        }))
    }
    fn replace(&self, name: &str, _in_parts: bool, write: &mut WriteFile<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        let synced = bytes.len();
        if self.changing()?.room.is_some_and(|room| room < synced) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        self.changing()?.files.insert(name.into(), File { bytes, synced });
        Ok(())
    }
    fn append_to(&self, name: &str) -> io::Result<Box<dyn AppendFile>> {
        self.changing()?.files.entry(name.into()).or_default();
        Ok(Box::new(Growing { disk: self.clone(), name: name.into() }))
    }
    fn cut(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut state = self.changing()?;
        let file = state.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.truncate(bytes as usize);
        file.synced = file.bytes.len();
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.changing()?.files.remove(name);
        Ok(())
    }
    fn adopt(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }
}

struct Growing {
    disk: Disk,
    name: String,
}

impl Growing {
    fn with<R>(&self, change: impl FnOnce(&mut File) -> R) -> io::Result<R> {
        let mut state = self.disk.changing()?;
        Ok(change(state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?))
    }
}

impl AppendFile for Growing {
    fn bytes(&self) -> u64 {
        self.disk.0.lock().files.get(&self.name).map_or(0, |file| file.bytes.len() as u64)
    }
    fn append(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.disk.changing()?;
        // Like the system, the disk may write only a part of the bytes.
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut takes = all.len().min(1 + all.len() / 2);
        if let Some(room) = &mut state.room {
            if *room == 0 {
                return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
            }
            takes = takes.min(*room);
            *room -= takes;
        }
        let file = state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        file.bytes.extend_from_slice(&all[..takes]);
        Ok(takes)
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.with(|file| {
            file.bytes.truncate(bytes as usize);
            file.synced = file.synced.min(file.bytes.len());
        })
    }
    fn sync_file(&self) -> Arc<dyn SyncFile> {
        Arc::new(Growing { disk: self.disk.clone(), name: self.name.clone() })
    }
}

impl SyncFile for Growing {
    /// Syncs a file. Bytes that are appended during the sync are not on the disk afterwards.
    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state()?;
        let len = state.files.get(&self.name).map_or(0, |file| file.bytes.len());
        state.syncing += 1;
        self.disk.1.notify_all();
        while state.syncs_wait && !self.disk.1.wait_for(&mut state, HELD_BACK_MAX).timed_out() {}
        state.syncing -= 1;
        if state.power_left == Some(0) {
            return Err(io::Error::other("the power has failed"));
        }
        if state.syncs_fail {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        let file = state.files.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        file.synced = file.synced.max(len.min(file.bytes.len()));
        Ok(())
    }
}

/// Time between two turns of the writing thread.
const TURN_US: u64 = 20_000;

/// A turn of the writing thread. Only these turns move the clock.
fn write_turn(server: &Server) {
    server.step_us.store(TURN_US, Relaxed);
    server.engine.write_aof(false);
    server.step_us.store(0, Relaxed);
}

fn open(disk: &Disk, more: &str) -> Server {
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
    // When replies need not wait any more, the waiting clients are released.
    assert_eq!(a.run(&server, "SET k 2"), "");
    assert_eq!(b.run(&server, "CONFIG SET appendfsync no"), "+OK|");
    a.drive(&server);
    assert_eq!(a.replies(), "+OK|");
}

#[test]
fn effects_are_written_once_a_full_disk_has_room_again() {
    let disk = Disk::default();
    let mut server = open(&disk, "appendfsync everysec");
    let mut peer = server.connect();
    assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
    server.engine.write_aof(false);
    disk.0.lock().room = Some(10);
    assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
    server.engine.write_aof(false);
    let refused = "-MISCONF Errors writing to the AOF file: No space left on device|";
    for (line, reply) in [("SET c 3", refused), ("PING", refused), ("GET b", "$1|2|")] {
        assert_eq!(peer.run(&server, line), reply, "{line}");
    }
    // The writes of scripts are refused, too, also within EXEC. A script that declares its flags does not start.
    let set = "EVAL \"return redis.call('set', 'c', 3)\" 0";
    assert!(peer.run(&server, set).starts_with(refused.trim_end_matches('|')));
    assert!(peer.run(&server, "EVAL \"return redis.pcall('set', 'c', 3)['err']\" 0").contains("MISCONF"));
    assert_eq!(peer.run(&server, "EVAL \"#!lua\nreturn 1\" 0"), refused);
    assert_eq!(peer.run(&server, "EVAL \"return redis.call('get', 'b')\" 0"), "$1|2|");
    peer.run(&server, "MULTI");
    peer.run(&server, set);
    assert!(peer.run(&server, "EXEC").starts_with("*1|-MISCONF"));
    assert_eq!(peer.run(&server, "EXISTS c"), ":0|");
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_write_status:err"));
    disk.0.lock().room = None;
    server.step_us.store(2_000_000, std::sync::atomic::Ordering::Relaxed);
    // The clock has moved since the last turn read it.
    server.engine.write_aof(false);
    server.engine.write_aof(false);
    assert_eq!(peer.run(&server, "SET c 3"), "+OK|");
    assert!(peer.run(&server, "INFO persistence").contains("aof_last_write_status:ok"));
    server.engine.write_aof(true);
    let mut again = open(&disk, "");
    let mut peer = again.connect();
    assert_eq!(peer.run(&again, "MGET a b c"), "*3|$1|1|$1|2|$1|3|");
    // With `always` no client may get a reply, so the process ends.
    let mut server = open(&disk, "appendfsync always");
    let mut peer = server.connect();
    disk.0.lock().room = Some(10);
    assert_eq!(peer.run(&server, "SET d 4"), "");
    server.engine.write_aof(false);
    peer.drive(&server);
    assert_eq!(peer.replies(), "");
    assert!(server.died.lock().as_deref().is_some_and(|text| text.contains("'always'. Exiting...")));
}

/// The file system becomes read-only, or the disk has errors. No server starts on such a disk. A running server refuses
/// writes, answers reads, and continues when the disk works again.
#[test]
fn a_disk_that_takes_nothing_refuses_writes_and_a_start() {
    use rustix::io::Errno;
    for (errno, text) in [(Errno::ROFS, "Read-only file system"), (Errno::IO, "Input/output error")] {
        let empty = Disk::default();
        empty.0.lock().refuses = Some(errno);
        let why = Server::on_disk("", Arc::new(empty)).err().expect("nothing can be written");
        assert!(why.contains(text), "{why}");
        let disk = Disk::default();
        let mut server = open(&disk, "appendfsync everysec");
        let mut peer = server.connect();
        assert_eq!(peer.run(&server, "SET a 1"), "+OK|");
        server.engine.write_aof(false);
        disk.0.lock().refuses = Some(errno);
        assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
        server.engine.write_aof(false);
        let refused = format!("-MISCONF Errors writing to the AOF file: {text}|");
        for (line, reply) in [("SET c 3", refused.as_str()), ("GET b", "$1|2|")] {
            assert_eq!(peer.run(&server, line), reply, "{line} with {text}");
        }
        disk.0.lock().refuses = None;
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
    disk.0.lock().syncs_fail = true;
    server.engine.write_aof(false);
    assert!(server.engine.sync_aof());
    let refused = "-MISCONF Errors writing to the AOF file: Input/output error|";
    assert_eq!(peer.run(&server, "SET b 2"), refused);
    disk.0.lock().syncs_fail = false;
    // A later successful sync says nothing about what was lost before.
    server.engine.write_aof(false);
    assert!(server.engine.sync_aof());
    assert_eq!(peer.run(&server, "WAITAOF 1 0 1"), "");
    server.advance_ms(10);
    peer.drive(&server);
    assert_eq!(peer.replies(), "*2|:0|:0|");
    assert_eq!(peer.run(&server, "SET b 2"), refused);
    server.advance_ms(60_000);
    server.engine.tick(server.now);
    assert_eq!(peer.run(&server, "SET b 2"), "+OK|");
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
