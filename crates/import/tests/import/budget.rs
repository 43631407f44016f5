//! The deletion budget: a run on an emptied source stops before it removes anything.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::git;
use crate::nested::{mailbox, stored, zip};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strand_import::{Forecast, ImportError, ImportOptions, MaxDelete, Outcome, Progress, Silent};

/// `count` mails in nested folders, 50 in each.
fn mails(count: usize) -> Tree {
    let tree = Tree::new(&[]);
    for i in 0..count {
        tree.write(&format!("f{}/in/{i}.eml", i / 50), mail("s", &i.to_string()));
    }
    tree
}

#[test]
fn an_emptied_source_stops_the_run_before_anything_is_removed() {
    let (fake, tree) = (Fake::start(), mails(600));
    fake.import(tree.path());
    let before = fake.state().clone();
    let empty = Tree::new(&[]);
    match fake.try_import(empty.path()) {
        Err(ImportError::TooManyDeletions { removed: 600, held: 600, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(fake.state().keys, before.keys);
    assert_eq!(fake.state().versions, before.versions);
    // A run may remove 20 %. It may remove one more document only with the option.
    tree.remove("f0");
    tree.remove("f1");
    (100..120).for_each(|i| tree.remove(&format!("f2/in/{i}.eml")));
    tree.remove("f3/in/150.eml");
    let error = fake.try_import(tree.path()).expect_err("121 of 600").to_string();
    assert!(error.contains("121 of 600") && error.contains("--max-delete"), "{error}");
    assert_eq!(fake.state().keys, before.keys);
    let with = |max_delete| {
        let options = ImportOptions { max_delete, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent)
    };
    assert!(with(MaxDelete::Documents(120)).is_err());
    tree.write("f3/in/150.eml", mail("s", "150"));
    assert_eq!(counts(&fake.import(tree.path())).0[2], 120);
    tree.remove("f3");
    tree.remove("f4");
    assert_eq!(counts(&with(MaxDelete::Percent(100)).expect("all may go")).0[2], 100);
}

#[test]
fn an_emptied_source_of_few_documents_stops_the_run_too() {
    let (fake, tree) = (Fake::start(), mails(3));
    fake.import(tree.path());
    let empty = Tree::new(&[]);
    // The second run finds folders that are new, and also empty.
    for folder in [None, Some("lost+found/in")] {
        folder
            .into_iter()
            .for_each(|name| std::fs::create_dir_all(empty.path().join(name)).expect("a folder"));
        match fake.try_import(empty.path()) {
            Err(ImportError::TooManyDeletions { removed: 3, held: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    // A source that still has a document may lose all documents that the server knows of.
    let other = Tree::new(&[]);
    other.write("new.eml", mail("s", "new"));
    assert_eq!(counts(&fake.import(other.path())).0, [1, 0, 3, 0, 0]);
    let options = ImportOptions { max_delete: MaxDelete::Documents(1), ..fake.options(empty.path()) };
    let done = strand_import::run(&options, &mut Silent).expect("one may go");
    assert_eq!(counts(&done).0[2], 1);
}

/// The documents of an archive that cannot be read stay, and count when the archive around it is removed.
#[test]
fn documents_of_a_failed_archive_in_an_archive_count_as_removals() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("one.eml", &mail("one", "1"))]));
    let paths: Vec<String> = (0..150).map(|i| format!("in/{i}.txt")).collect();
    let members: Vec<_> = paths.iter().map(|path| stored(path, b"text")).collect();
    let inner = zip(&members);
    tree.write("outer.zip", zip(&[stored("inner.zip", &inner), stored("b.txt", b"text")]));
    assert_eq!(counts(&fake.import(tree.path())).0, [154, 0, 0, 0, 0]);
    tree.write("outer.zip", zip(&[stored("inner.zip", &inner[..9_000]), stored("b.txt", b"text")]));
    let summary = fake.import(tree.path());
    assert_eq!((summary.failed, summary.removed, fake.ids().len()), (1, 0, 154), "{summary}");
    tree.remove("outer.zip");
    let error = fake.try_import(tree.path()).expect_err("153 of 154 would go").to_string();
    assert!(error.contains("153 of 154 documents"), "{error}");
    assert_eq!(fake.ids().len(), 154);
}

#[test]
fn an_archive_that_lost_its_documents_stops_the_run() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("one.eml", &mail("one", "1"))]));
    let names: Vec<String> = (0..150).map(|i| format!("m{i}")).collect();
    let messages: Vec<&str> = names.iter().map(String::as_str).collect();
    let paths: Vec<String> = (0..150).map(|i| format!("in/{i}.txt")).collect();
    let packed = |count: usize| {
        let members: Vec<_> = paths[..count].iter().map(|path| stored(path, b"text")).collect();
        zip(&members)
    };
    tree.write("box.mbox", mailbox(&messages));
    tree.write("a.zip", packed(150));
    fake.import(tree.path());
    let before = fake.state().keys.clone();
    let losses: [(&str, Vec<u8>); 3] = [
        ("box.mbox", Vec::new()),
        ("box.mbox", mailbox(&messages[..40]).into_bytes()),
        ("a.zip", packed(40)),
    ];
    for (name, bytes) in losses {
        let whole = std::fs::read(tree.path().join(name)).unwrap();
        tree.write(name, bytes);
        let error = fake.try_import(tree.path()).expect_err("150 of 303, or 110").to_string();
        assert!(error.contains("of 303 documents"), "{name}: {error}");
        assert_eq!(fake.state().keys, before, "{name}");
        tree.write(name, whole);
        fake.import(tree.path());
        assert_eq!(fake.state().keys, before, "{name}");
    }
    // The losses of two archives are summed. Removals within the budget are executed.
    tree.write("box.mbox", mailbox(&messages[..90]));
    tree.write("a.zip", packed(90));
    assert!(matches!(
        fake.try_import(tree.path()),
        Err(ImportError::TooManyDeletions { removed: 120, held: 303, .. })
    ));
    let options = ImportOptions { max_delete: MaxDelete::Documents(120), ..fake.options(tree.path()) };
    strand_import::run(&options, &mut Silent).expect("120 may go");
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn messages_whose_ids_change_do_not_count_as_deleted() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let message =
        |i: usize| format!("From a@b Mon Jan  6 10:00:00 2025\nMessage-ID: <{i}@b>\n\ntext {i}\n\n");
    let box_of = |first: usize| -> String { (first..150).map(message).collect() };
    tree.write("box.mbox", box_of(0));
    fake.import(tree.path());
    // Other messages have these names now, so the ids of the messages come from their bytes.
    let others: String = (0..150).map(|i| message(i).replace("text", "other")).collect();
    tree.write("box.mbox", others + &box_of(0));
    assert_eq!(counts(&fake.import(tree.path())).0[1..], [151, 0, 0, 0]);
    // The other messages are removed, so the names are free again.
    tree.write("box.mbox", box_of(0));
    let error = fake.try_import(tree.path()).expect_err("150 others are gone").to_string();
    assert!(error.contains("150 of 301"), "{error}");
}

/// Removes a folder of the source when the run reads the first document, long after the plan.
struct LosesFolder<'a>(&'a Tree);

impl Progress for LosesFolder<'_> {
    fn document(&mut self, _: &[u8], outcome: Outcome<'_>) {
        if matches!(outcome, Outcome::Added) {
            (0..300).for_each(|i| self.0.remove(&format!("z/{i}.eml")));
        }
    }
}

#[test]
fn what_the_source_loses_after_the_plan_counts_too() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a/0.eml", &mail("a", "0"))]));
    (0..300).for_each(|i| tree.write(&format!("z/{i}.eml"), mail("z", &i.to_string())));
    fake.import(tree.path());
    for (max_delete, allowed) in [(MaxDelete::Documents(0), 0), (MaxDelete::default(), 100)] {
        tree.write("a/new.eml", mail("a", &allowed.to_string()));
        (0..300).for_each(|i| tree.write(&format!("z/{i}.eml"), mail("z", &i.to_string())));
        let options = ImportOptions { max_delete, ..fake.options(tree.path()) };
        match strand_import::run(&options, &mut LosesFolder(&tree)) {
            Err(ImportError::LostMeanwhile { gone, held: 301 }) => assert_eq!(gone, allowed),
            other => panic!("{other:?}"),
        }
        let left = fake.ids().iter().filter(|id| id.starts_with("z/")).count() as u64;
        assert_eq!(left, 300 - allowed);
        tree.remove("a/new.eml");
        (0..300).for_each(|i| tree.write(&format!("z/{i}.eml"), mail("z", &i.to_string())));
        fake.import(tree.path());
    }
}

#[test]
fn the_share_of_a_revision_includes_unchanged_folders_below_the_first_level() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let folder = |name: &str, count: usize| {
        (0..count).for_each(|i| tree.write(&format!("src/{name}/{i}.txt"), format!("{name} {i}")));
    };
    (0..3).for_each(|i| folder(&format!("keep{i}"), 300));
    folder("old", 150);
    git::init(&tree);
    git::commit(&tree);
    let source = git::source(tree.path(), "main");
    assert_eq!(counts(&fake.import(&source)).0[0], 1_050);
    tree.remove("src/old");
    git::commit(&tree);
    let options = ImportOptions { max_delete: MaxDelete::Percent(14), ..fake.options(&source) };
    match strand_import::run(&options, &mut Silent) {
        Err(ImportError::TooManyDeletions { removed: 150, held: 1_050, gone: 0 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(counts(&fake.import(&source)).0[2], 150);
}

/// Failed documents of an archive are at the server, too, so they count when the archive goes.
#[test]
fn the_share_includes_documents_of_archives_that_could_not_be_extracted() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    (0..700).for_each(|i| tree.write(&format!("f{}/{i}.txt", i / 100), i.to_string()));
    let names: Vec<String> = (0..150).map(|i| format!("{i}.docx")).collect();
    let bad: Vec<_> = names.iter().map(|name| stored(name, b"PK\x03\x04 is no document")).collect();
    tree.write("a.zip", zip(&bad));
    let summary = fake.import(tree.path());
    assert_eq!((summary.added, summary.failed, fake.ids().len()), (701, 150, 851), "{summary}");
    tree.remove("a.zip");
    let with = |max_delete| {
        let options = ImportOptions { max_delete, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent)
    };
    match with(MaxDelete::Documents(150)) {
        Err(ImportError::TooManyDeletions { removed: 151, gone: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(with(MaxDelete::Documents(151)).expect("they may go").removed, 151);
}

/// A revision in which nothing is left but what could not be imported is as suspicious as an empty folder.
#[test]
fn a_failed_document_does_not_hide_that_a_revision_is_empty() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    (0..5).for_each(|i| tree.write(&format!("in/{i}.txt"), i.to_string()));
    tree.write("in/bad.eml", "no header\n");
    git::init(&tree);
    git::commit(&tree);
    let source = git::source(tree.path(), "main");
    assert_eq!(fake.import(&source).added, 5);
    (0..5).for_each(|i| tree.remove(&format!("in/{i}.txt")));
    git::commit(&tree);
    match fake.try_import(&source) {
        Err(ImportError::TooManyDeletions { removed: 5, gone: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Keeps the forecast that the run reports.
#[derive(Default)]
struct ReportedForecast(Option<Forecast>);

impl Progress for ReportedForecast {
    fn forecast(&mut self, forecast: &Forecast) {
        assert!(self.0.replace(*forecast).is_none(), "reported once");
    }
}

#[test]
fn the_forecast_matches_the_run() {
    let (fake, tree) = (Fake::start(), mails(300));
    let run = || {
        let mut reported = ReportedForecast::default();
        let options = ImportOptions { forecast: true, ..fake.options(tree.path()) };
        let summary = strand_import::run(&options, &mut reported).expect("nothing goes wrong");
        let forecast = reported.0.expect("reported");
        let counts = (forecast.containers, forecast.documents, forecast.removed);
        assert_eq!(counts, (summary.containers, summary.opened, summary.removed));
        assert!(forecast.bytes >= summary.bytes_read, "{forecast:?}");
        assert!(forecast.memory_bytes >= forecast.bytes, "{forecast:?}");
        counts
    };
    assert_eq!(run(), (13, 300, 0));
    assert_eq!(run(), (13, 0, 0));
    tree.write("f0/in/0.eml", mail("s", "changed"));
    tree.write("new/deep/x.eml", mail("s", "new"));
    tree.remove("f5");
    assert_eq!(run(), (13, 2, 50));
}

#[test]
fn reports_estimate_the_remaining_time_from_the_second_run_on_or_from_a_forecast() {
    let (fake, tree) = (Fake::start(), mails(300));
    let run_and_report = |fake: &Fake, forecast| {
        fake.state().reports.clear();
        let options = ImportOptions { forecast, report_every: Duration::ZERO, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut ReportedForecast::default()).expect("nothing goes wrong");
        let reports = std::mem::take(&mut fake.state().reports);
        reports
            .into_iter()
            .map(|words| words.chunks(2).map(|w| (w[0].clone(), w[1].clone())).collect())
            .collect()
    };
    let reports: Vec<BTreeMap<String, String>> = run_and_report(&fake, true);
    let (before, during): (Vec<_>, Vec<_>) = reports
        .iter()
        .filter(|r| r.contains_key("to_read"))
        .partition(|r| !r.contains_key("remaining_milliseconds"));
    assert!(!before.is_empty(), "nothing was read yet: there is no pace");
    assert!(during.len() >= 299 && reports.iter().filter_map(|r| r.get("to_read")).all(|all| all == "300"));
    assert!(during.iter().all(|r| r["remaining_milliseconds"].parse::<u64>().is_ok()));
    // No documents remain to be read, only listings. At the end no listings remain either.
    let reports = run_and_report(&fake, false);
    let remaining =
        |r: &BTreeMap<String, String>| r.get("remaining_milliseconds").map(|ms| ms.parse::<u64>());
    assert_eq!(
        reports.iter().filter_map(|r| r.get("to_read")).collect::<BTreeSet<_>>(),
        BTreeSet::from([&"0".to_owned()])
    );
    assert_eq!(remaining(reports.last().expect("one at least")), Some(Ok(0)));
    // The plan reports its progress, too.
    assert!(reports.iter().any(|r| r["path"] == "f5/in" && !r.contains_key("to_read")), "{reports:?}");
    // A first run has no estimate. The next run estimates the changes, and includes a new folder once it is listed.
    let fake = Fake::start();
    assert!(run_and_report(&fake, false).iter().all(|r| !r.contains_key("to_read")));
    (0..7).for_each(|i| tree.write(&format!("f1/in/{}.eml", 50 + i), mail("s", "changed")));
    (0..5).for_each(|i| tree.write(&format!("new/deep/{i}.eml"), mail("s", "new")));
    let reports = run_and_report(&fake, false);
    let to_read: BTreeSet<_> = reports.iter().filter_map(|r| r.get("to_read").cloned()).collect();
    assert_eq!(to_read, BTreeSet::from(["7".to_owned(), "12".to_owned()]));
    let last = reports.last().expect("one at least");
    assert_eq!((&last["read"][..], &last["to_read"][..], remaining(last)), ("12", "12", Some(Ok(0))));
}
