//! Retries, which read only failed documents again, and the verification of the server's documents against the source.

use crate::fake::{Fake, State, Stored, counts};
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use std::path::Path;
use strand_import::connection::Target;
use strand_import::datasets::{self, Dataset};
use strand_import::{ImportError, ImportMode, ImportOptions, Outcome, Progress, Silent, Summary};

fn run(fake: &Fake, source: &Path, mode: ImportMode) -> Result<Summary, ImportError> {
    strand_import::run(&ImportOptions { mode, ..fake.options(source) }, &mut Silent)
}

fn retry(fake: &Fake, source: &Path) -> Summary {
    run(fake, source, ImportMode::RetryFailed).expect("nothing goes wrong")
}

fn errors(fake: &Fake) -> (Vec<String>, Dataset) {
    let address = fake.address.to_string();
    let target = Target { address: &address, tls: None, username: None, password: None, db: 0 };
    let mut failures = Vec::new();
    let dataset = datasets::errors(&target, "d", &mut |path, reason| {
        failures.push(format!("{}: {reason}", String::from_utf8_lossy(path)));
    });
    (failures, dataset.expect("nothing goes wrong"))
}

const NO_MAIL: &str = "there is no header field";

/// A folder with three documents that cannot be imported, one of them in a mailbox.
fn tree() -> Tree {
    let mailbox = format!(
        "From ada@example.org Mon Jan  6 10:00:00 2025\n{}\nFrom ada@example.org Mon Jan  6 10:00:00 2025\nno mail\n\n",
        mail("in", "x")
    );
    Tree::new(&[
        ("a/good.eml", &mail("good", "g")),
        ("a/bad.eml", "no mail\n"),
        ("b/c/worse.eml", "no mail either\n"),
        ("b/box.mbox", &mailbox),
        ("z/fine.eml", &mail("fine", "f")),
    ])
}

#[test]
fn only_what_failed_is_read_again() {
    let (fake, tree) = (Fake::start(), tree());
    assert_eq!(counts(&fake.import(tree.path())).0, [4, 0, 0, 0, 3]);
    let (failures, dataset) = errors(&fake);
    assert_eq!(failures.len(), 3);
    assert_eq!(
        [&failures[0], &failures[2]],
        [&format!("a/bad.eml: {NO_MAIL}"), &format!("b/c/worse.eml: {NO_MAIL}")]
    );
    assert!(
        failures[1].starts_with("b/box.mbox/") && failures[1].ends_with(&format!(".eml: {NO_MAIL}")),
        "{failures:?}"
    );
    assert_eq!(
        dataset,
        Dataset { name: "d".into(), containers: 6, documents: 4, failed: 3, interrupted: 0, running: None }
    );

    // Nothing is repaired yet: the retry writes nothing, and opens only the three documents and the mailbox.
    fake.writes();
    let again = retry(&fake, tree.path());
    assert_eq!((counts(&again).0, again.opened), ([0, 0, 0, 4, 3], 4));
    assert_eq!(fake.writes(), Vec::<String>::new());

    tree.write("a/bad.eml", mail("mended", "m"));
    tree.write("a/good.eml", mail("changed", "c"));
    tree.write("a/new.eml", mail("new", "n"));
    tree.remove("z/fine.eml");
    let mended = retry(&fake, tree.path());
    assert_eq!(counts(&mended).0, [1, 0, 0, 4, 2]);
    assert_eq!(fake.field("a/bad.eml", "subject").as_deref(), Some("mended"));
    assert_eq!(fake.field("a/good.eml", "subject").as_deref(), Some("good"));
    assert_eq!(errors(&fake).0.len(), 2);
    // A complete import finds the other changes.
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 1, 1, 3, 2]);
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
    assert_eq!(fake.state().versions, fresh.state().versions);
}

#[test]
fn failed_documents_of_a_revision_are_read_again() {
    let (fake, tree) = (Fake::start(), tree());
    init(&tree);
    commit(&tree);
    let at = source(tree.path(), "HEAD");
    assert_eq!(counts(&fake.import(&at)).0, [4, 0, 0, 0, 3]);
    assert_eq!(errors(&fake).0.len(), 3);
    let again = retry(&fake, &at);
    assert_eq!((counts(&again).0, again.containers_skipped), ([0, 0, 0, 4, 3], 1), "z is not looked at");
    tree.write("b/c/worse.eml", mail("mended", "m"));
    tree.write("z/new.eml", mail("new", "n"));
    commit(&tree);
    assert_eq!(counts(&retry(&fake, &at)).0, [1, 0, 0, 4, 2]);
    assert_eq!(counts(&fake.import(&at)).0, [1, 0, 0, 5, 2]);
    let fresh = Fake::start();
    fresh.import(&at);
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn a_retry_needs_a_whole_import_before_it() {
    let (fake, tree) = (Fake::start(), tree());
    assert!(matches!(run(&fake, tree.path(), ImportMode::RetryFailed), Err(ImportError::Options(_))));
    let cut = Fake::with(State { cut_at: Some(12), ..State::default() });
    assert!(cut.try_import(tree.path()).is_err());
    cut.state().cut_at = None;
    assert!(matches!(run(&cut, tree.path(), ImportMode::RetryFailed), Err(ImportError::Options(_))));
    assert_eq!(fake.ids(), Vec::<String>::new());
}

/// Collects the failures that a run reports.
#[derive(Default)]
struct Failures(Vec<String>);

impl Progress for Failures {
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        if let Outcome::Failed(reason) = outcome {
            self.0.push(format!("{}: {reason}", String::from_utf8_lossy(path)));
        }
    }
}

#[test]
fn verification_compares_the_server_with_the_source() {
    let (fake, tree) = (Fake::start(), tree());
    tree.write("a/data.json", "{\"x\": 1}");
    fake.import(tree.path());
    let verify = |fake: &Fake| {
        let mut failures = Failures::default();
        let options = ImportOptions { mode: ImportMode::Verify, ..fake.options(tree.path()) };
        let summary = strand_import::run(&options, &mut failures).expect("nothing goes wrong");
        (summary, failures.0)
    };
    let dead = 3;
    let (summary, _) = verify(&fake);
    assert_eq!((counts(&summary).0, summary.recorded), ([0, 0, 0, 5, dead], 0));

    let set = |key: &str, field: &str, value: &str| match fake.state().keys.get_mut(key.as_bytes()) {
        Some(Stored::Hash(hash)) => drop(hash.insert(field.as_bytes().to_vec(), value.as_bytes().to_vec())),
        other => panic!("{other:?}"),
    };
    set("d:a/good.eml", "subject", "forged");
    set("d:a/data.json", "json.more", "2");
    fake.state().keys.remove(&b"d:z/fine.eml"[..]);
    tree.write("z/new.eml", mail("new", "n"));
    tree.remove("b/box.mbox");
    let before = fake.state().clone();
    let (summary, failures) = verify(&fake);
    for expected in [
        "a/good.eml: the field subject differs at the server",
        "a/data.json: the server has a field json.more, the source does not",
        "z/fine.eml: the server does not have it",
        "z/new.eml: the server does not have it",
        "b/box.mbox: the server has it, the source does not",
    ] {
        assert!(failures.iter().any(|line| line == expected), "{expected}: {failures:?}");
    }
    assert_eq!(
        (summary.unchanged, summary.added + summary.updated + summary.removed),
        (0, 0),
        "{failures:?}"
    );
    assert_eq!(fake.state().keys, before.keys);
    assert_eq!(fake.state().versions, before.versions);
}

#[test]
fn a_folder_that_cannot_be_listed_stays_among_the_failures() {
    let depth = 129;
    let below = |from: usize| (from..=depth).map(|i| format!("{i}/")).collect::<String>();
    let tree = Tree::new(&[("good.eml", &mail("good", "g"))]);
    tree.write(&format!("{}deep.eml", below(1)), mail("deep", "d"));
    let fake = Fake::start();
    let shown = |fake: &Fake| {
        let (failures, dataset) = errors(fake);
        assert_eq!(failures.len() as u64, dataset.failed);
        failures
    };
    for _ in 0..2 {
        assert_eq!(fake.import(tree.path()).failed, 1);
        assert_eq!(
            shown(&fake),
            [format!("{}: folders are nested more than 128 deep", below(1).trim_end_matches('/'))]
        );
        assert_eq!(retry(&fake, tree.path()).failed, 1);
        assert_eq!(shown(&fake).len(), 1);
    }
    std::fs::rename(tree.at("1/2"), tree.at("2")).expect("ours");
    assert_eq!(fake.import(tree.path()).failed, 0);
    assert_eq!(shown(&fake), [""; 0]);
    assert_eq!(fake.ids(), [format!("{}deep.eml", below(2)), "good.eml".into()]);
}
