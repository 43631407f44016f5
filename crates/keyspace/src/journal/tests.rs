//! Tests of the journal: order, offsets, panics, shared arguments, and a full journal.

use super::effects::Arg;
use super::*;
use std::time::Duration;
use strand_chain::Blob;

fn effects(args: &[Arg<'_>]) -> Box<Effects> {
    effects_of(&[(0, args)])
}

fn effects_of(commands: &[(usize, &[Arg<'_>])]) -> Box<Effects> {
    let mut effects = Journal::effects();
    commands.iter().for_each(|(db, args)| effects.add(*db, args.iter().copied()));
    effects
}

fn encoded(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend(*arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn taken(journal: &Journal) -> Vec<u8> {
    let mut out = Chain::new();
    journal.take(&mut out);
    out.slices().flatten().copied().collect()
}

#[test]
fn bytes_come_in_the_order_of_their_places() {
    let journal = Journal::new();
    let first = journal.place(effects(&[Arg::Bytes(b"A")])).expect("an effect");
    let second = journal.place(effects(&[Arg::Bytes(b"B")])).expect("an effect");
    std::thread::scope(|scope| {
        scope.spawn(|| second.write());
    });
    assert_eq!(taken(&journal), b"", "the first has not put its bytes");
    first.write();
    assert_eq!(taken(&journal), [encoded(&[b"A"]), encoded(&[b"B"])].concat());
    assert_eq!(journal.take(&mut Chain::new()).end, journal.tail());
    assert!(journal.place(Journal::effects()).is_none(), "nothing was done");
}

#[test]
fn panic_fills_the_stream_with_padding() {
    let journal = Journal::new();
    drop(journal.place(effects(&[Arg::Bytes(b"DEL"), Arg::Bytes(b"key")])));
    journal.place(effects(&[Arg::Bytes(b"B")])).expect("an effect").write();
    let stream = taken(&journal);
    assert_eq!(stream, [encoded(&[b"PING", b"--"]), encoded(&[b"B"])].concat());
}

#[test]
fn the_stream_selects_a_database_only_where_it_changes() {
    let journal = Journal::new();
    let command = [Arg::Bytes(b"DEL"), Arg::Bytes(b"key")];
    let place = |dbs: &[usize]| {
        let commands: Vec<_> = dbs.iter().map(|db| (*db, &command[..])).collect();
        journal.place(effects_of(&commands)).expect("an effect")
    };
    let shown = || {
        let text = String::from_utf8(taken(&journal)).expect("words");
        let lines = text.split("\r\n").filter(|line| !line.starts_with(['*', '$']));
        lines.collect::<Vec<_>>().join(" ").replace("DEL key", "DEL").trim_end().to_string()
    };
    for (dbs, want) in [
        (&[0][..], "DEL"),
        (&[3], "SELECT 3 DEL"),
        (&[3], "DEL"),
        (&[3, 0], "MULTI DEL SELECT 0 DEL EXEC"),
        (&[5, 5, 12], "SELECT 5 MULTI DEL DEL SELECT 12 DEL EXEC"),
        (&[12], "DEL"),
        // Such a large number is not remembered.
        (&[300], "SELECT 300 DEL"),
        (&[300], "SELECT 300 DEL"),
        (&[255], "SELECT 255 DEL"),
        (&[0], "SELECT 0 DEL"),
    ] {
        place(dbs).write();
        assert_eq!(shown(), want, "{dbs:?}");
    }
    // A file that begins here begins with a SELECT.
    place(&[0]).write();
    shown();
    assert_eq!(journal.select_again(), journal.tail());
    assert_eq!(shown(), "");
    journal.append_for_replicas(&[b"PING"]);
    assert_eq!(shown(), "PING");
    place(&[0]).write();
    assert_eq!(shown(), "SELECT 0 DEL");
    // After a panic, what follows finds its database.
    for dbs in [&[4][..], &[4], &[4, 9], &[9, 10], &[300], &[2, 300]] {
        drop(place(dbs));
        let last = *dbs.last().expect("one");
        place(&[last]).write();
        let stream = shown();
        let selected = stream.split(' ').filter_map(|word| word.parse().ok()).next_back();
        assert_eq!(
            selected,
            if dbs == [4] && !stream.contains("SELECT") { None } else { Some(last) },
            "{stream}"
        );
        assert!(stream.contains("PING") || stream.contains("GET"), "{stream}");
        assert_eq!(journal.take(&mut Chain::new()).end, journal.tail());
    }
}

#[test]
fn large_arguments_are_shared_and_come_at_their_places() {
    let journal = Journal::new();
    let large = Blob::from(vec![7; 100_000]);
    let args = [Arg::Bytes(b"SET"), Arg::Bytes(b"k"), Arg::Blob(&large)];
    journal.place(effects(&args)).expect("an effect").write();
    journal.place(effects(&args)).expect("an effect").write();
    let mut out = Chain::new();
    journal.take(&mut out);
    assert!(out.slices().any(|slice| slice.as_ptr() == large.as_ptr()), "it was copied");
    let all: Vec<u8> = out.slices().flatten().copied().collect();
    let one = encoded(&[b"SET", b"k", &large]);
    assert_eq!(all, [one.clone(), one].concat());
}

/// Several threads write while one thread takes. The stream is complete, and the effects of each thread are in
/// order.
#[test]
fn many_threads_make_one_stream() {
    const THREADS: usize = 4;
    const EACH: usize = 2_000;
    let journal = Journal::new();
    let mut out = Chain::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                for n in 0..EACH {
                    let (name, n) = (thread.to_string(), n.to_string());
                    let args = [Arg::Bytes(name.as_bytes()), Arg::Bytes(n.as_bytes())];
                    journal.place(effects(&args)).expect("an effect").write();
                }
            });
        }
        for _ in 0..1_000 {
            journal.take(&mut out);
        }
    });
    assert_eq!(journal.take(&mut out).end, journal.tail());
    assert_eq!(out.len() as u64, journal.tail());
    let all: Vec<u8> = out.slices().flatten().copied().collect();
    let text = String::from_utf8(all).expect("digits");
    let mut next = [0; THREADS];
    for command in text.split("*2\r\n").skip(1) {
        let mut words = command.split("\r\n").filter(|word| !word.starts_with('$'));
        let thread: usize = words.next().and_then(|word| word.parse().ok()).expect("a thread");
        assert_eq!(words.next(), Some(next[thread].to_string().as_str()));
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; THREADS]);
}

#[test]
fn journal_full_alert_is_set_while_too_many_bytes_wait() {
    let (journal, alerts) = (Journal::new(), Arc::new(AtomicU16::new(0)));
    journal.set_alerts(alerts.clone());
    let large = Blob::from(vec![7; WAITING_BYTES_MAX / 4]);
    for _ in 0..4 {
        assert_eq!(alerts.load(Relaxed), 0);
        journal
            .place(effects(&[Arg::Bytes(b"SET"), Arg::Bytes(b"k"), Arg::Blob(&large)]))
            .expect("an effect")
            .write();
    }
    assert_eq!(alerts.load(Relaxed), JOURNAL_FULL);
    journal.take(&mut Chain::new());
    assert_eq!(alerts.load(Relaxed), 0);
}

#[test]
fn sleeping_taker_is_woken_when_many_bytes_wait() {
    let (journal, woken) = (Journal::new(), Arc::new(AtomicU16::new(0)));
    let count = woken.clone();
    journal.set_wake(Box::new(move || _ = count.fetch_add(1, Relaxed)));
    let half = Blob::from(vec![7; WAKE_BYTES / 2]);
    let put_half = || {
        let set = effects(&[Arg::Bytes(b"SET"), Arg::Bytes(b"k"), Arg::Blob(&half)]);
        journal.place(set).expect("an effect").write();
    };
    put_half();
    put_half();
    assert_eq!(woken.load(Relaxed), 0, "the taker is awake");
    assert!(!journal.begin_sleep(), "much waits already");
    journal.take(&mut Chain::new());
    assert!(journal.begin_sleep());
    put_half();
    assert_eq!(woken.load(Relaxed), 0, "little waits");
    put_half();
    assert_eq!(woken.load(Relaxed), 1);
    put_half();
    assert_eq!(woken.load(Relaxed), 1, "it was woken");
    journal.take(&mut Chain::new());
    journal.end_sleep();
    put_half();
    put_half();
    assert_eq!(woken.load(Relaxed), 1, "the taker is awake");
}

/// A listener that panics while shards are held and half of the work is done, as a handler with a fault
/// would.
#[derive(Debug)]
struct Panics;

impl crate::Listener for Panics {
    fn report(&self, _db: usize, key: &[u8], _event: crate::KeyEvent, _changed: bool, _by: u64) {
        assert!(!key.starts_with(b"panic"), "the test's panic");
    }
    fn report_all(&self) {}
}

#[test]
fn a_panic_leaves_no_lock_and_no_half_effect() {
    let keyspace = crate::Keyspace::new(4, 16, [1, 2, 3, 4]);
    keyspace.set_listener(Arc::new(Panics));
    keyspace.settings().listens.store(crate::LISTENER, Relaxed);
    keyspace.switch_journal(true);
    let set = |name: &[u8]| {
        let hashes = [keyspace.key(b"before").hash, keyspace.key(name).hash];
        let mut txn = keyspace.lock(&hashes, 0);
        for key in [&b"before"[..], name] {
            txn.begin_command(|| (crate::KeyEvent::NONE, false), true, 1);
            txn.db(0).set_str(&keyspace.key(key), crate::StrRef::of(b"1"), None);
            txn.end_command(0, || SentArgs::Args([b"SET".into(), Arg::Bytes(key), b"1".into()].into_iter()));
        }
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| set(b"panic")));
    assert!(caught.is_err());
    assert_eq!(taken(keyspace.journal()), b"", "half of a transaction is none");
    let all: Vec<usize> = (0..keyspace.shards()).collect();
    assert!(keyspace.lock_shards_together(&all, 1, Duration::from_millis(1), 0).is_some(), "all are free");
    set(b"after");
    let one = |key: &[u8]| encoded(&[b"SET", key, b"1"]);
    let whole =
        [select(0), encoded(&[b"MULTI"]), one(b"before"), one(b"after"), encoded(&[b"EXEC"])].concat();
    assert_eq!(taken(keyspace.journal()), whole);
}

#[test]
fn bytes_for_replicas_follow_the_effects_and_are_told() {
    let journal = Journal::new();
    journal.append_for_replicas(&[b"PING"]);
    let mut both = effects(&[Arg::Bytes(b"A")]);
    both.add_for_replicas([Arg::Bytes(b"PUBLISH")].into_iter());
    let mut alone = Journal::effects();
    alone.add_for_replicas([Arg::Bytes(b"PUBLISH")].into_iter());
    for effects in [both, alone] {
        journal.place(effects).expect("an effect").write();
    }
    journal.place(effects(&[Arg::Bytes(b"B")])).expect("an effect").write();
    let mut out = Chain::new();
    let TakenBytes { end, for_replicas } = journal.take(&mut out);
    let [ping, publish] = [encoded(&[b"PING"]), encoded(&[b"PUBLISH"])];
    let [a, b] = [encoded(&[b"A"]), encoded(&[b"B"])];
    let bytes: Vec<u8> = out.slices().flatten().copied().collect();
    assert_eq!(bytes, [&ping[..], &a, &publish, &publish, &b].concat());
    assert_eq!(end, journal.tail());
    let after_a = (ping.len() + a.len()) as u64;
    assert_eq!(for_replicas, [0..ping.len() as u64, after_a..after_a + 2 * publish.len() as u64]);
    // A panic fills the place with a command that selects no database.
    let mut alone = Journal::effects();
    alone.add_for_replicas([Arg::Bytes(b"PUBLISH")].into_iter());
    drop(journal.place(alone));
    assert_eq!(taken(&journal), padding(publish.len()));
}
