//! An index follows its keys: through writes, deletion, expiry, renaming, other types, emptied databases and
//! concurrent writers.

use super::{START_MS, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use strand_keyspace::TOUCHED_FULL;

fn world() -> World {
    let w = World::new();
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT n NUMERIC SORTABLE g TAG");
    w
}

#[test]
fn writes_are_seen_at_once() {
    let w = world();
    assert_eq!(w.found("i", "*"), "");
    w.hset("k:1", &[("t", "dog")]);
    assert_eq!(w.found("i", "dog"), "k:1");
    w.hset("k:1", &[("t", "cat")]);
    assert_eq!((w.found("i", "dog"), w.found("i", "cat")), ("".into(), "k:1".into()));
    w.hset("k:1", &[("n", "3")]);
    assert_eq!(w.found("i", "cat @n:[3 3]"), "k:1");
    w.hset("elsewhere", &[("t", "cat")]);
    assert_eq!(w.found("i", "cat"), "k:1");
    w.del("k:1");
    assert_eq!(w.found("i", "*"), "");
    w.hset("k:1", &[("t", "bird")]);
    assert_eq!(w.found("i", "*"), "k:1");
}

#[test]
fn keys_of_other_types_leave_the_index() {
    let w = world();
    for i in 1..=4 {
        w.hset(&format!("k:{i}"), &[("t", "dog"), ("x", "y")]);
    }
    assert_eq!(w.found("i", "dog"), "k:1 k:2 k:3 k:4");
    w.set("k:1", b"a string now");
    w.hdel("k:2", "t");
    w.rename("k:3", "k:9");
    w.rename("k:4", "other");
    assert_eq!(w.found("i", "*"), "k:9");
    w.rename("other", "k:4");
    assert_eq!(w.found("i", "*"), "k:4 k:9");
}

#[test]
fn an_invalid_number_keeps_the_document_out() {
    let w = world();
    assert_eq!(w.found("i", "*"), "", "the first scan is over");
    w.hset("k:1", &[("t", "dog"), ("n", "seven")]);
    w.hset("k:2", &[("t", "dog"), ("n", "7")]);
    assert_eq!(w.found("i", "dog"), "k:2");
    w.hset("k:2", &[("n", "nan")]);
    assert_eq!(w.found("i", "dog"), "");
    assert!(
        w.search.info().contains(&("search_indexing_failures".into(), "2".into())),
        "{:?}",
        w.search.info()
    );
    w.hset("k:1", &[("n", "-0")]);
    assert_eq!(w.found("i", "@n:[0 0]"), "k:1");
    let info = w.search.info();
    let (_, state) = info.iter().find(|(name, _)| name == "search_index_0").expect("there is an index");
    assert!(state.starts_with("name=i,documents=1,percent_indexed=1,"), "{state}");
    assert!(state.contains(",failures=2,"), "{state}");
}

#[test]
fn expired_keys_disappear_on_time_without_any_access() {
    let mut w = world();
    w.hset("k:1", &[("t", "dog")]);
    w.hset("k:2", &[("t", "dog")]);
    w.expire_at("k:1", Some(START_MS + 1000));
    assert_eq!(w.found("i", "dog"), "k:1 k:2");
    w.now_ms = START_MS + 999;
    assert_eq!(w.found("i", "dog"), "k:1 k:2");
    w.now_ms = START_MS + 1000;
    assert_eq!(w.found("i", "dog"), "k:2");
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 1, "the total too");
    w.hset("k:2", &[("n", "1")]);
    w.expire_at("k:2", Some(START_MS + 2000));
    w.expire_at("k:2", None);
    w.now_ms = START_MS + 3000;
    assert_eq!(w.found("i", "dog"), "k:2", "PERSIST");
}

#[test]
fn expired_fields_disappear_on_time_without_any_access() {
    let mut w = world();
    w.hset("k:1", &[("t", "dog"), ("n", "7")]);
    w.hset("k:2", &[("t", "dog")]);
    w.expire_field_at("k:1", "t", START_MS + 1000);
    w.expire_field_at("k:2", "t", START_MS + 2000);
    assert_eq!(w.found("i", "dog"), "k:1 k:2");
    w.now_ms = START_MS + 1000;
    assert_eq!(w.found("i", "dog"), "k:2");
    assert_eq!(w.found("i", "@n:[7 7]"), "k:1", "the other field stays");
    // A value that is written again does not expire.
    w.hset("k:2", &[("t", "dog")]);
    w.now_ms = START_MS + 2000;
    assert_eq!(w.found("i", "dog"), "k:2");
}

#[test]
fn a_drop_with_documents_runs_to_its_end_without_its_client() {
    let w = world();
    (0..1000).for_each(|i| w.hset(&format!("k:{i}"), &[("t", "dog")]));
    w.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    w.ok("FT.DROPINDEX i DD");
    assert_eq!(w.keyspace.len(0), 0);
}

#[test]
fn a_definition_is_kept_whatever_its_words_are() {
    let w = World::new();
    w.hset("d:1", &[("t", "dog")]);
    for (given, kept) in [
        ("i PREFIX 2 skipinitialscan d: SCHEMA t TEXT", "i PREFIX 2 skipinitialscan d: SCHEMA t TEXT"),
        (
            "j PREFIX 1 d: STOPWORDS 1 skipinitialscan SCHEMA t TEXT",
            "j PREFIX 1 d: STOPWORDS 1 skipinitialscan SCHEMA t TEXT",
        ),
        ("k PREFIX 2 schema d: SKIPINITIALSCAN SCHEMA t TEXT", "k PREFIX 2 schema d: SCHEMA t TEXT"),
        (
            "skipinitialscan SKIPINITIALSCAN PREFIX 1 d: SCHEMA t TEXT",
            "skipinitialscan PREFIX 1 d: SCHEMA t TEXT",
        ),
    ] {
        w.ok(&format!("FT.CREATE {given}"));
        let kept: Vec<Vec<u8>> =
            super::words(&format!("FT.CREATE {kept}")).into_iter().map(Vec::from).collect();
        assert!(w.search.definitions().contains(&std::sync::Arc::new(kept.clone())), "{given}");
        let again = World::new();
        again.hset("d:1", &[("t", "dog")]);
        again.run(&kept);
        assert_eq!(again.found(std::str::from_utf8(&kept[1]).unwrap(), "dog"), "d:1", "{given}");
    }
}

#[test]
fn existing_keys_are_scanned_and_concurrent_writes_are_not_lost() {
    let w = World::new();
    (0..3000).for_each(|i| w.hset(&format!("k:{i}"), &[("t", "old")]));
    (0..100).for_each(|i| w.set(&format!("s:{i}"), b"x"));
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    w.hset("k:5", &[("t", "new")]);
    w.del("k:6");
    assert_eq!(w.keys("i old LIMIT 0 0").0, 2998);
    assert_eq!(w.found("i", "new"), "k:5");
    w.ok("FT.CREATE skipped PREFIX 1 k: SKIPINITIALSCAN SCHEMA t TEXT");
    w.hset("k:7", &[("t", "new")]);
    assert_eq!(w.found("skipped", "*"), "k:7");
}

#[test]
fn a_timeout_includes_the_first_scan() {
    let w = World::new();
    // More than a search scans before it looks at the clock.
    let text = "a dog and a cat ".repeat(50);
    (0..20_000).for_each(|i| w.hset(&format!("k:{i}"), &[("t", &text)]));
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    assert_eq!(w.error("FT.SEARCH i dog TIMEOUT 1"), "Timeout limit was reached");
    let entry = w.search.entry(b"i").expect("an index");
    assert_ne!(*entry.scan.lock(), crate::follow::Scan::Done, "the search does not finish the scan");
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 20_000, "the next search does");
}

#[test]
fn the_background_indexes_without_searches() {
    let mut w = World::new();
    (0..500).for_each(|i| w.hset(&format!("k:{i}"), &[("t", "dog")]));
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    (500..1000).for_each(|i| w.hset(&format!("k:{i}"), &[("t", "dog")]));
    for _ in 0..100 {
        w.now_ms += 100;
        w.search.tick(w.now_ms);
    }
    assert_eq!(w.keyspace.touched_len(), 0);
    let commits = |w: &World| w.search.info().iter().find(|(n, _)| n == "search_commits").unwrap().1.clone();
    let before = commits(&w);
    assert_ne!(before, "0");
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 1000);
    assert_eq!(commits(&w), before, "the search had nothing left to commit");
}

#[test]
fn flushing_database_0_drops_the_indexes() {
    let w = world();
    w.hset("k:1", &[("t", "dog")]);
    assert_eq!(w.found("i", "dog"), "k:1");
    w.keyspace.flush(0);
    assert_eq!(w.error("FT.SEARCH i dog"), "i: no such index");
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    w.hset("k:2", &[("t", "dog")]);
    assert_eq!(w.found("i", "dog"), "k:2");
    w.keyspace.flush(0);
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    assert_eq!(w.found("i", "*"), "", "an index made right after the flush stays");
}

#[test]
fn info_waits_for_no_commit() {
    let mut w = world();
    w.hset("k:1", &[("t", "dog")]);
    w.expire_field_at("k:1", "t", START_MS + 1000);
    assert_eq!(w.found("i", "dog"), "k:1");
    let entry = w.search.entry(b"i").expect("an index");
    let bytes = entry.index.key_set_bytes();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = w.search.clone();
    let held = entry.index.lock_writer();
    // Run this on a thread of its own. A thread that never returns is abandoned.
    std::thread::spawn(move || sender.send((other.info(), other.indexes_bytes())));
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("INFO does not wait for the writer");
    drop(held);
    w.now_ms = START_MS + 1000;
    assert_eq!(w.found("i", "dog"), "");
    assert!(entry.index.key_set_bytes() < bytes, "the field is no longer due");
}

#[test]
fn a_document_is_indexed_when_its_wrong_number_has_expired() {
    let mut w = World::new();
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT n NUMERIC");
    w.hset("k:1", &[("t", "dog"), ("n", "abc")]);
    w.expire_field_at("k:1", "n", START_MS + 1000);
    assert_eq!(w.found("i", "dog"), "");
    // Nothing notes the key, as on a replica without its primary.
    w.now_ms = START_MS + 1000;
    assert_eq!(w.found("i", "dog"), "k:1");
}

#[test]
fn merges_drop_deleted_documents_and_end_by_themselves() {
    let w = world();
    let entry = w.search.entry(b"i").expect("an index");
    for i in 0..200 {
        w.hset(&format!("k:{i}"), &[("t", &format!("dog word{i}"))]);
        assert_eq!(w.keys("i dog LIMIT 0 0").0, i + 1);
        assert!(entry.index.searcher().segment_readers().len() < 40, "segments are merged");
    }
    (0..150).for_each(|i| w.del(&format!("k:{i}")));
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 50);
    assert!(w.search.passing_bytes() > 0, "deleted documents are in segments");
    let is_mostly_alive = || {
        w.search.tick(START_MS);
        let searcher = entry.index.searcher();
        let segments = searcher.segment_readers();
        segments.iter().all(|segment| segment.num_deleted_docs() * 3 <= segment.max_doc())
    };
    // Merges run on a thread of the library.
    let begun = std::time::Instant::now();
    while !is_mostly_alive() && begun.elapsed() < std::time::Duration::from_secs(60) {
        std::thread::yield_now();
    }
    assert!(is_mostly_alive());
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 50);
}

#[test]
fn the_files_of_a_dropped_index_pass_until_nothing_reads_them() {
    let w = world();
    let drop_index = || w.ok("FT.DROPINDEX i");
    let flush = || {
        w.keyspace.flush(0);
        w.search.tick(w.now_ms);
    };
    let fail = || {
        w.search.entry(b"i").expect("an index").index.fail();
        assert_eq!(w.found("i", "dog"), "k:1");
    };
    let words: Vec<String> = (0..10_000).map(|i| format!("word{i}")).collect();
    let text = format!("dog {}", words.join(" "));
    // The files that name the segments count as well.
    let nothing = 0..20_000;
    for (end, is_left) in [(&drop_index as &dyn Fn(), false), (&fail, true), (&flush, false)] {
        if w.search.entry(b"i").is_none() {
            w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
        }
        w.hset("k:1", &[("t", &text)]);
        assert_eq!(w.found("i", "dog"), "k:1");
        let entry = w.search.entry(b"i").expect("an index");
        let (bytes, reading) = (entry.index.segment_bytes() as u64, entry.index.searcher());
        let dropped = bytes..bytes + nothing.end;
        assert!(bytes > 2 * nothing.end && nothing.contains(&w.search.passing_bytes()));
        end();
        assert!(dropped.contains(&w.search.passing_bytes()), "also while a command has the index");
        assert!(w.search.indexes_bytes() >= bytes);
        drop(entry);
        assert!(dropped.contains(&w.search.passing_bytes()));
        drop(reading);
        assert!(nothing.contains(&w.search.passing_bytes()));
        assert_eq!(w.search.entry(b"i").is_some(), is_left);
    }
}

#[test]
fn a_failed_index_is_built_again() {
    let w = world();
    w.hset("k:1", &[("t", "dog")]);
    assert_eq!(w.found("i", "dog"), "k:1");
    w.search.entry(b"i").expect("an index").index.fail();
    w.hset("k:2", &[("t", "dog")]);
    assert_eq!(w.found("i", "dog"), "k:1 k:2");
}

#[test]
fn two_indexes_over_shared_keys() {
    let w = world();
    w.ok("FT.CREATE all SCHEMA t TEXT");
    w.hset("k:1", &[("t", "dog")]);
    w.hset("other", &[("t", "dog")]);
    assert_eq!((w.found("i", "dog"), w.found("all", "dog")), ("k:1".into(), "k:1 other".into()));
    w.ok("FT.DROPINDEX i");
    w.hset("k:2", &[("t", "dog")]);
    assert_eq!(w.found("all", "dog"), "k:1 k:2 other");
}

#[test]
fn keys_and_values_are_bytes() {
    let w = world();
    let key = w.keyspace.key(b"k:\xff\xfe\0");
    {
        let mut hash = strand_keyspace::HashValue::new();
        hash.set(b"t", b"dog \xff\xfe tail", w.keyspace.settings());
        let value = strand_keyspace::Value::Hash(hash);
        w.keyspace.lock(&[key.hash], w.now_ms).db(0).insert(&key, value, None);
    }
    let strand_wire::client::Value::Array(all) = w.line("FT.SEARCH i 'dog tail' NOCONTENT") else { panic!() };
    assert_eq!(all[1], strand_wire::client::Value::Bulk(b"k:\xff\xfe\0".to_vec()));
    w.keyspace.lock(&[key.hash], w.now_ms).db(0).remove(&key);
    assert_eq!(w.found("i", "dog"), "");
}

/// Writers announce each write that was acknowledged. Searches must then find each of these writes, and no document
/// twice, while the index merges segments.
#[test]
fn a_search_sees_every_write_acknowledged_before_it() {
    const WRITERS: usize = 2;
    const WRITES: usize = 60;
    let w = world();
    let written: [AtomicUsize; WRITERS] = Default::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (w, written) = (&w, &written);
                scope.spawn(move || {
                    for i in 1..=WRITES {
                        // The document `k:WRITER` of each writer counts up, and each step also adds a new document.
                        w.hset(&format!("k:{writer}"), &[("n", &i.to_string()), ("t", "counter")]);
                        w.hset(&format!("k:{writer}:{i}"), &[("n", &i.to_string()), ("t", "fresh")]);
                        written[writer].store(i, Ordering::SeqCst);
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        // Some searches take over what another one has drained and committed meanwhile.
        for _ in 0..6 {
            let (w, written, stop) = (&w, &written, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    for (writer, written) in written.iter().enumerate() {
                        let acknowledged = written.load(Ordering::SeqCst);
                        if acknowledged == 0 {
                            continue;
                        }
                        let fresh = w.keys(&format!(
                            "i '@t:fresh @n:[{acknowledged} inf]' INKEYS 1 k:{writer}:{acknowledged}"
                        ));
                        assert_eq!(fresh.0, 1, "write {acknowledged} of writer {writer} is missing");
                        let counter =
                            w.keys(&format!("i '@t:counter @n:[{acknowledged} inf]' INKEYS 1 k:{writer}"));
                        assert_eq!(
                            counter.0, 1,
                            "the counter of writer {writer} is behind {acknowledged}, or doubled"
                        );
                    }
                }
            });
        }
        for writer in writers {
            writer.join().expect("the writer");
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(w.keys("i fresh LIMIT 0 0").0 as usize, WRITERS * WRITES);
    assert_eq!(w.keys("i counter LIMIT 0 0").0 as usize, WRITERS);
}

/// The keys that wait set how long a search waits. They count until they are indexed, and the background says when some
/// are left.
#[test]
fn keys_count_as_waiting_until_they_are_indexed() {
    let w = world();
    let alerts = Arc::new(AtomicU16::new(0));
    w.keyspace.set_touched_alerts(alerts.clone());
    assert_eq!(w.found("i", "*"), "");
    let text = "a dog and a cat ".repeat(100);
    (0..3000).for_each(|n| w.hset(&format!("k:{n}"), &[("t", &text)]));
    assert_eq!(w.keyspace.touched_len(), 3000);
    assert_eq!(
        alerts.load(Ordering::Relaxed),
        TOUCHED_FULL,
        "more than a quarter second's work, before the first look"
    );
    let mut ticks = 0;
    while w.search.tick(START_MS) {
        assert!(w.keyspace.touched_len() > 0);
        ticks += 1;
        assert!(ticks < 1000, "{} keys wait", w.keyspace.touched_len());
    }
    w.search.drain(START_MS);
    assert_eq!((w.keyspace.touched_len(), alerts.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(w.keys("i cat NOCONTENT LIMIT 0 0").0, 3000);
}

/// A first scan does not index again what was written after the index was created.
#[test]
fn a_first_scan_passes_over_keys_that_are_indexed_already() {
    let w = World::new();
    (0..3000).for_each(|n| w.hset(&format!("k:{n}"), &[("t", "old")]));
    w.ok("FT.CREATE i PREFIX 1 k: SCHEMA t TEXT");
    (0..1500).for_each(|n| w.hset(&format!("k:{n}"), &[("t", "new")]));
    w.search.drain(START_MS);
    let added = || w.search.entry(b"i").expect("the index").index.counts.added.load(Ordering::Relaxed);
    assert_eq!(added(), 1500);
    let found = |query: &str| w.keys(&format!("i {query} NOCONTENT LIMIT 0 0")).0;
    assert_eq!((found("new"), found("old"), found("*")), (1500, 1500, 3000));
    assert_eq!(added(), 3000);
}
