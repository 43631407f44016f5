//! Failed documents in archives: a run reports them again, and does not read the unchanged archive.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::nested::{deflated, gzip, mailbox, stored, tar, with_attachment, zip};
use std::path::Path;
use strand_import::{ImportMode, ImportOptions, Silent, Summary};

/// A zip with a wrong checksum in its directory.
fn damaged_zip() -> Vec<u8> {
    let mut bytes = zip(&[stored("x.eml", mail("x", "words").as_bytes())]);
    let directory = memchr::memmem::rfind(&bytes, b"PK\x01\x02").expect("a directory");
    bytes[directory] = b'Q';
    bytes
}

fn encrypted_zip() -> Vec<u8> {
    let mut bytes = zip(&[stored("secret.eml", b"From: a@b.example\n\nx"), stored("open.txt", b"open")]);
    let directory = memchr::memmem::find(&bytes, b"PK\x01\x02").expect("a directory");
    bytes[directory + 8] |= 1;
    bytes
}

fn mailbox_with_a_bad_message() -> String {
    let message = format!("From ada@example.org Mon Jan  6 10:00:00 2025\nno mail\n\n{}", mailbox(&["m1"]));
    message
        + &format!("From a@b.example Mon Jan  6 10:00:00 2025\n{}\n", with_attachment("s", "bad.eml", "bad"))
}

/// Archives of each kind. In each of them at least one document fails.
fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let bad = tar(&[("good.eml", &mail("good", "g")), ("in/bad.eml", "bad")]);
    let box_of = mailbox_with_a_bad_message();
    vec![
        ("a.tar", bad.clone()),
        ("a.tar.gz", gzip(&bad)),
        ("bad.eml.gz", gzip(b"bad")),
        ("box.mbox", box_of.clone().into_bytes()),
        ("cut.tar.gz", gzip(&bad)[..100].to_vec()),
        ("damaged.zip", damaged_zip()),
        ("encrypted.zip", encrypted_zip()),
        ("m.eml", with_attachment("m", "bad.eml", "bad").into_bytes()),
        (
            "z.zip",
            zip(&[
                deflated("in/a.tar", &bad),
                stored("in/box.mbox", box_of.as_bytes()),
                stored("in/damaged.zip", &damaged_zip()),
                stored("in/encrypted.zip", &encrypted_zip()),
                stored("bad.json", b"{"),
                stored("good.txt", b"good"),
            ]),
        ),
    ]
}

fn run(fake: &Fake, source: &Path, mode: ImportMode) -> Summary {
    let options = ImportOptions { mode, attachments: true, ..fake.options(source) };
    strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
}

fn failures(summary: &Summary) -> Vec<String> {
    let line = |failed: &strand_import::FailedDocument| {
        format!("{}: {}", String::from_utf8_lossy(&failed.path), failed.reason)
    };
    let mut lines: Vec<_> = summary.failed_documents.iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn failures_in_an_unchanged_archive_are_reported_again_without_a_read() {
    for (name, bytes) in archives() {
        let (tree, fake) = (Tree::new(&[]), Fake::start());
        tree.write(name, &bytes);
        let first = run(&fake, tree.path(), ImportMode::Import);
        assert!(first.failed > 0, "{name}");
        fake.writes();
        for _ in 0..2 {
            let again = run(&fake, tree.path(), ImportMode::Import);
            assert_eq!((again.opened, again.bytes_read), (0, 0), "{name}: {:?}", failures(&again));
            assert_eq!(failures(&again), failures(&first), "{name}");
            assert_eq!(counts(&again).0, [0, 0, 0, first.added, first.failed], "{name}");
            assert_eq!(fake.writes(), Vec::<String>::new(), "{name}");
        }
        let retried = run(&fake, tree.path(), ImportMode::RetryFailed);
        assert!(retried.bytes_read > 0, "{name}");
        assert_eq!(failures(&retried), failures(&first), "{name}");
        let verified = run(&fake, tree.path(), ImportMode::Verify);
        assert!(verified.bytes_read > 0, "{name}");
        assert_eq!(failures(&verified), failures(&first), "{name}");
        let kept = run(&fake, tree.path(), ImportMode::Import);
        assert_eq!((kept.bytes_read, failures(&kept)), (0, failures(&first)), "{name}");

        // A changed archive is opened, and so is an archive from which the server lost a document.
        tree.write(name, &bytes);
        let changed = run(&fake, tree.path(), ImportMode::Import);
        assert!(changed.bytes_read > 0, "{name}");
        assert_eq!(failures(&changed), failures(&first), "{name}");
        if let Some(lost) = fake.ids().into_iter().find(|id| id.ends_with("good.eml")) {
            fake.state().keys.remove(format!("d:{lost}").as_bytes());
            let restored = run(&fake, tree.path(), ImportMode::Import);
            assert_eq!((restored.added, failures(&restored)), (1, failures(&first)), "{name}");
        }
    }
}

#[test]
fn a_failed_document_in_a_folder_that_changes_leaves_the_archives_closed() {
    let tree = Tree::new(&[]);
    archives().iter().for_each(|(name, bytes)| tree.write(name, bytes));
    let fake = Fake::start();
    let first = run(&fake, tree.path(), ImportMode::Import);
    tree.write("new.txt", "new");
    let second = run(&fake, tree.path(), ImportMode::Import);
    assert_eq!((counts(&second).0, second.bytes_read), ([1, 0, 0, first.added, first.failed], 3));
    assert_eq!(failures(&second), failures(&first));
    // The records still say what the server holds: all of it goes with the archives.
    archives().iter().for_each(|(name, _)| tree.remove(name));
    let third = run(&fake, tree.path(), ImportMode::Import);
    assert_eq!(
        (third.removed, third.failed),
        (first.added + first.failed - failed_without_document(&first), 0)
    );
    assert_eq!(fake.ids(), ["new.txt"]);
}

/// Number of failed documents that the server does not have. It has the names and sizes of the others.
fn failed_without_document(summary: &Summary) -> u64 {
    let kept = ["cut.tar.gz", "damaged.zip", "bad.json"];
    let is_kept =
        |line: &&String| kept.iter().any(|name| line.split(": ").next().is_some_and(|p| p.ends_with(name)));
    summary.failed - failures(summary).iter().filter(is_kept).count() as u64
}

/// A mailbox above 16 MiB with a message that is not a mail.
#[test]
fn a_grown_mailbox_with_a_failed_message_is_read_from_its_previous_end() {
    const FROM: &str = "From ada@example.org Mon Jan  6 10:00:00 2025\n";
    let text = "a line of a long mail\n".repeat(800_000);
    let mut bytes = format!("{FROM}no mail\n\n{FROM}{}\n", mail("long", &text)).into_bytes();
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write("box.mbox", &bytes);
    let first = fake.import(tree.path());
    assert_eq!(counts(&first).0, [2, 0, 0, 0, 1]);
    bytes.extend(format!("{FROM}{}\n", mail("new", "n")).bytes());
    tree.write("box.mbox", &bytes);
    let grown = fake.import(tree.path());
    assert_eq!((counts(&grown).0, failures(&grown)), ([1, 1, 0, 1, 1], failures(&first)));
    assert!(grown.bytes_read < 4 << 20, "{} bytes", grown.bytes_read);
    let again = fake.import(tree.path());
    assert_eq!((counts(&again).0, again.bytes_read), ([0, 0, 0, 3, 1], 0));
    let retried = run(&fake, tree.path(), ImportMode::RetryFailed);
    assert_eq!(failures(&retried), failures(&first));
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

/// Another run may have higher bounds, so an archive beyond a bound is opened by each run.
#[test]
fn an_archive_beyond_a_bound_is_opened_again() {
    let tree = Tree::new(&[]);
    tree.write("zeros.txt.gz", gzip(&vec![b' '; 8 << 20]));
    let fake = Fake::start();
    for _ in 0..2 {
        let summary = fake.import(tree.path());
        assert_eq!((summary.failed, summary.bytes_read > 0), (1, true));
        assert!(summary.failed_documents[0].reason.contains("more than 100 times"), "{summary:?}");
    }
    let archives = "ratio=10000".parse().expect("a bound");
    let options = ImportOptions { archives, ..fake.options(tree.path()) };
    let summary = strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
    assert_eq!(counts(&summary).0[4], 0, "{:?}", failures(&summary));
    assert_eq!(fake.ids(), ["zeros.txt.gz", "zeros.txt.gz/zeros.txt"]);
}
