//! Tests of IMPORT.VERSION KEEP: which versions an index keeps.

use super::{Value, World, words};
use crate::table::KEEP;
use crate::versions::DATASETS_KEPT_MAX;
use strand_commands::call::RunsOn;

impl World {
    /// Runs a line that begins with `IMPORT.VERSION KEEP`, whose row is in another crate's table of subcommands.
    fn keep(&self, line: &str) -> Value {
        self.execute(KEEP[0].exec, &words(line), RunsOn::Hard).expect("the hard lane runs every command")
    }

    /// The names of the kept versions, oldest first.
    fn kept(&self) -> Vec<String> {
        let entry = self.search.entries().into_iter().next().expect("an index");
        entry.kept.lock().iter().map(|kept| String::from_utf8_lossy(&kept.name).into_owned()).collect()
    }
}

#[test]
fn an_index_keeps_the_newest_versions_of_each_dataset() {
    let w = World::new();
    w.ok("FT.CREATE i PREFIX 2 d: e: SCHEMA t TEXT");
    for line in ["d v1", "e w1", "d v2", "d v3 COUNT 2", "d v4 COUNT 2", "d v4 COUNT 2"] {
        assert_eq!(w.keep(&format!("IMPORT.VERSION KEEP {line}")), Value::Int(1), "{line}");
    }
    assert_eq!(w.kept(), ["w1", "v3", "v4"]);
    assert_eq!(w.keep("IMPORT.VERSION KEEP none v1"), Value::Int(0), "no index has the dataset");
}

#[test]
fn count_0_drops_all_versions_of_the_dataset_without_indexing_anything() {
    let w = World::new();
    w.ok("FT.CREATE i PREFIX 2 d: e: SCHEMA t TEXT");
    for line in ["d v1", "e w1", "d v2"] {
        assert_eq!(w.keep(&format!("IMPORT.VERSION KEEP {line}")), Value::Int(1), "{line}");
    }
    w.hset("d:1", &[("t", "word")]);
    assert_eq!(w.keep("IMPORT.VERSION KEEP d v3 COUNT 0"), Value::Int(0));
    assert_eq!(w.kept(), ["w1"], "versions of other datasets stay");
    assert_eq!(w.keyspace.touched_len(), 1, "the changed key waits for the next search");
}

#[test]
fn names_of_versions_and_datasets_are_bounded_and_counted() {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA t TEXT");
    let keep = |dataset: &str, version: &str| w.keep(&format!("IMPORT.VERSION KEEP {dataset} {version}"));
    let bytes = || w.search.entries()[0].kept_bytes();
    assert_eq!(keep(&"d".repeat(60 * 1024), "v"), Value::Int(0), "no key of this dataset is indexed");
    assert_eq!(
        keep("d", &"v".repeat(129)),
        Value::Error(b"ERR The version id must have at most 128 bytes".into())
    );
    assert_eq!((w.kept().len(), bytes()), (0, 0));
    assert_eq!(keep(&"d".repeat(10_000), "v"), Value::Int(1));
    assert!(bytes() > 10_000);
    for i in 1..DATASETS_KEPT_MAX {
        assert_eq!(keep(&format!("d{i}"), "v"), Value::Int(1));
    }
    assert_eq!(keep("d7", "v2"), Value::Int(1), "a dataset that is kept already");
    let before = (w.kept().len(), bytes());
    assert_eq!(keep("one-more", "v"), Value::Int(1));
    assert_eq!((w.kept().len(), before.1 - bytes() > 9_000), (before.0, true), "the oldest goes");
}

#[test]
fn a_version_has_the_documents_that_expired_later() {
    let mut w = World::new();
    w.ok("FT.CREATE i PREFIX 1 d: SCHEMA t TEXT");
    for key in ["d:1", "d:2", "d:3", "d:4"] {
        w.hset(key, &[("t", "word")]);
    }
    w.expire_at("d:2", Some(w.now_ms + 1000));
    w.expire_at("d:3", Some(w.now_ms + 1000));
    w.expire_at("d:4", Some(w.now_ms - 1));
    assert_eq!(w.keep("IMPORT.VERSION KEEP d v1"), Value::Int(1));
    w.expire_at("d:3", None);
    w.now_ms += 1000;
    assert_eq!(w.keep("IMPORT.VERSION KEEP d v2 COUNT 2"), Value::Int(1));
    let sorted = |line: &str| {
        let (total, mut keys) = w.keys(line);
        keys.sort();
        (total, keys.join(" "))
    };
    assert_eq!(sorted("i word VERSION v1"), (3, "d:1 d:2 d:3".into()));
    for now in ["i word VERSION v2", "i word"] {
        assert_eq!(sorted(now), (2, "d:1 d:3".into()), "{now}");
    }
    for changes in ["FT.CHANGES i * FROM v1", "FT.CHANGES i word FROM v1 TO v2"] {
        let Value::Array(parts) = w.line(changes) else { panic!("{changes}") };
        let counts = [&parts[1], &parts[3], &parts[5]];
        assert_eq!(counts, [&Value::Int(0), &Value::Int(1), &Value::Int(1)], "{changes}: d:3, d:2");
    }
    let Value::Array(parts) = w.line("FT.CHANGES i word FROM v2") else { panic!() };
    assert_eq!([&parts[1], &parts[3], &parts[5]], [&Value::Int(0); 3]);
}
