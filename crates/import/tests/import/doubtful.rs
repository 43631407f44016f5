//! Sources that change while a run reads them, or that cannot be read: no run trusts what it does not know, and no run
//! removes documents because it could not read.

use crate::fake::{Fake, Stored, counts, interrupted};
use crate::files::{Tree, mail};
use crate::nested::{gzip, mailbox, stored, tar, with_attachment, zip};
use strand_import::source::archive::limits::ArchiveLimits;
use strand_import::{ImportOptions, MaxDelete, Outcome, Progress, Silent, Summary};

/// Calls a function once, when the run reports the document or the listing at this path.
struct At<'a, F: FnMut()> {
    document: Option<&'a [u8]>,
    listing: Option<&'a [u8]>,
    then: Option<F>,
}

impl<F: FnMut()> At<'_, F> {
    fn call(&mut self) {
        if let Some(mut then) = self.then.take() {
            then();
        }
    }
}

impl<F: FnMut()> Progress for At<'_, F> {
    fn document(&mut self, path: &[u8], _: Outcome<'_>) {
        if self.document == Some(path) {
            self.call();
        }
    }
    fn listed(&mut self, path: &[u8], _: u64) {
        if self.listing == Some(path) {
            self.call();
        }
    }
}

/// Imports, and calls `then` after the document `document`.
fn import_beside(fake: &Fake, tree: &Tree, document: &str, then: impl FnMut()) -> Summary {
    let mut at = At { document: Some(document.as_bytes()), listing: None, then: Some(then) };
    strand_import::run(&fake.options(tree.path()), &mut at).expect("nothing goes wrong")
}

/// Imports, and calls `then` after the root was listed.
fn import_after_listing(fake: &Fake, tree: &Tree, then: impl FnMut()) -> Summary {
    let mut at = At { document: None, listing: Some(b""), then: Some(then) };
    strand_import::run(&fake.options(tree.path()), &mut at).expect("nothing goes wrong")
}

fn with_attachments(fake: &Fake, tree: &Tree) -> Summary {
    let options = ImportOptions { attachments: true, ..fake.options(tree.path()) };
    strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
}

#[test]
fn an_archive_that_changes_after_it_was_opened_is_opened_again_by_the_next_run() {
    let version = |text: &str| zip(&[stored("in.txt", text.as_bytes()), stored(text, b"only here")]);
    let tree = Tree::new(&[("a.txt", "text")]);
    for in_place in [true, false] {
        let fake = Fake::start();
        tree.write("m.zip", version("one"));
        // The run opens all archives of a folder before it reads the folder's documents.
        import_beside(&fake, &tree, "a.txt", || match in_place {
            true => tree.write("m.zip", version("a second")),
            false => {
                tree.write("new", version("a second"));
                std::fs::rename(tree.at("new"), tree.at("m.zip")).expect("ours");
            }
        });
        fake.import(tree.path());
        assert_eq!(fake.field("m.zip/in.txt", "body").as_deref(), Some("a second"), "in place: {in_place}");
        assert_eq!(fake.ids(), ["a.txt", "m.zip", "m.zip/a second", "m.zip/in.txt"]);
        assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 4, 0], 0));
    }
}

#[test]
fn an_archive_that_cannot_be_read_keeps_its_documents() {
    let (fake, tree) =
        (Fake::start(), Tree::new(&[("a.txt", "text"), ("m.eml", &with_attachment("s", "p.txt", "x"))]));
    tree.write("m.zip", zip(&[stored("in.txt", b"one")]));
    assert_eq!(counts(&with_attachments(&fake, &tree)).0, [5, 0, 0, 0, 0]);
    tree.write("m.zip", zip(&[stored("in.txt", b"a second")]));
    let failed = import_after_listing(&fake, &tree, || tree.remove("m.zip"));
    assert_eq!((failed.removed, failed.failed), (1, 1), "this run imports no attachments: {failed}");
    assert_eq!(fake.ids(), ["a.txt", "m.eml", "m.zip", "m.zip/in.txt"]);
    assert_eq!(fake.import(tree.path()).removed, 2, "now the source has lost the archive");
}

/// A page of errors in the place of an archive says nothing about the archive's documents. A file without the name of an
/// archive may become something else, and a mailbox may become empty.
#[test]
fn an_archive_name_without_an_archive_keeps_the_documents_of_the_last_run() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.txt", "text")]));
    let archives = [
        ("m.zip", zip(&[stored("in.txt", b"one")])),
        ("m.tar.gz", gzip(&tar(&[("in.txt", "one")]))),
        ("m.mbox", mailbox(&["one", "two"]).into_bytes()),
    ];
    for (name, bytes) in &archives {
        let write = |bytes: &[u8]| {
            tree.write(name, bytes);
            fake.import(tree.path())
        };
        write(bytes);
        let ids = fake.ids();
        assert!(ids.len() >= 3, "{ids:?}");
        for lost in [&b"<!DOCTYPE html><title>Log in</title>"[..], b"PK", b""] {
            let is_empty_mailbox = lost.is_empty() && *name == "m.mbox";
            let summary = write(lost);
            if is_empty_mailbox {
                assert_eq!((summary.removed, summary.failed), (2, 0), "{summary}");
                continue;
            }
            assert_eq!((summary.removed, summary.failed), (0, 1), "{name}, {lost:?}: {summary}");
            assert_eq!(fake.ids(), ids);
            let again = fake.import(tree.path());
            assert_eq!((again.removed, again.failed), (0, 1), "the next run says it again: {again}");
        }
        assert_eq!((write(bytes).failed, fake.ids()), (0, ids));
        tree.remove(name);
        fake.import(tree.path());
        assert_eq!(fake.ids(), ["a.txt"], "now the source has lost the archive");
        // What never was an archive is a file.
        assert_eq!(write(b"<!DOCTYPE html>").failed, 0);
        tree.remove(name);
    }
    tree.write("Inbox", mailbox(&["one", "two"]));
    fake.import(tree.path());
    tree.write("Inbox", "notes");
    let summary = fake.import(tree.path());
    assert_eq!((summary.removed, summary.failed), (2, 0), "{summary}");
}

#[test]
fn a_mail_beyond_a_bound_of_archives_fails_and_keeps_its_attachments() {
    let attachment = |number: usize| {
        format!("--x\nContent-Disposition: attachment; filename=\"f{number}.txt\"\n\ntext {number}\n")
    };
    let all: String = (0..10).map(attachment).collect();
    let text = format!("From: a@b.example\nContent-Type: multipart/mixed; boundary=x\n\n{all}--x--\n");
    let (fake, tree) = (Fake::start(), Tree::new(&[("m.eml", &text)]));
    assert_eq!(counts(&with_attachments(&fake, &tree)).0, [11, 0, 0, 0, 0]);
    tree.write("m.eml", text.replace("text 9", "text nine"));
    let archives = ArchiveLimits { entries: 5, ..ArchiveLimits::default() };
    let options = ImportOptions { attachments: true, archives, ..fake.options(tree.path()) };
    let bounded = strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
    assert_eq!((bounded.removed, bounded.failed), (0, 1), "{bounded}");
    assert_eq!(fake.ids().len(), 11);
    assert_eq!(counts(&with_attachments(&fake, &tree)).0, [0, 1, 0, 10, 0]);
}

#[test]
fn attachments_come_and_go_with_the_option_also_in_unchanged_mails() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("in/m.eml", &with_attachment("s", "p.txt", "x"))]));
    let box_of = |text: &str| format!("From a@b.example Mon Jan  6 10:00:00 2025\n{text}\n").repeat(2);
    tree.write(
        "z.zip",
        zip(&[stored("in/box.mbox", box_of(&with_attachment("t", "q.txt", "y")).as_bytes())]),
    );
    fake.import(tree.path());
    let without = fake.ids();
    assert!(!without.iter().any(|id| id.ends_with("p.txt") || id.ends_with("q.txt")), "{without:?}");
    for _ in 0..2 {
        let with = with_attachments(&fake, &tree);
        assert_eq!((with.added, with.updated, with.removed, with.failed), (3, 0, 0, 0), "{with}");
        assert_eq!(counts(&with_attachments(&fake, &tree)).1, 0, "nothing is opened again");
        assert_eq!(fake.import(tree.path()).removed, 3);
        assert_eq!(fake.ids(), without);
    }
}

#[test]
fn a_document_that_can_be_read_again_has_not_failed() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.txt", "text"), ("b.txt", "text")]));
    fake.import(tree.path());
    tree.write("b.txt", "other text");
    assert_eq!(import_after_listing(&fake, &tree, || tree.remove("b.txt")).failed, 1);
    tree.write("b.txt", "text");
    assert_eq!(fake.import(tree.path()).failed, 0);
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 2, 0], 0));
}

#[test]
fn no_field_of_an_earlier_version_stays_after_an_interruption() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.json", "{\"x\": 1, \"y\": 2}"), ("b.txt", "text")]));
    fake.import(tree.path());
    assert_eq!(fake.field("a.json", "json.x").as_deref(), Some("1"));
    let before = fake.state().clone();
    tree.write("a.json", "{\"z\": 3}");
    let fresh = Fake::start();
    fresh.import(tree.path());
    let states = interrupted(&before, |fake| fake.try_import(tree.path()));
    assert!(states.len() > 2);
    for state in states {
        let fake = Fake::with(state);
        fake.import(tree.path());
        assert_eq!(fake.state().keys, fresh.state().keys);
        assert!(fake.state().keys.values().all(|value| matches!(value, Stored::Hash(_))));
    }
}

#[test]
fn members_of_one_name_get_numbers_without_a_search_for_each() {
    const MEMBERS: usize = 20_000;
    let names: Vec<_> = (0..MEMBERS).map(|_| stored("f.txt", b"text")).collect();
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    tree.write("m.zip", zip(&names));
    assert_eq!(fake.import(tree.path()).added, 1 + MEMBERS as u64);
    assert!(fake.field(&format!("m.zip/f.txt~{MEMBERS}"), "body").is_some());
}

#[test]
fn a_message_with_the_name_of_a_folder_fails_alone() {
    let tree = Tree::new(&[
        ("cur/a:2,S", &mail("a", "1")),
        ("cur/foo:2,S", &mail("b", "2")),
        ("foo/c.eml", &mail("c", "3")),
    ]);
    ["new", "tmp"].iter().for_each(|name| std::fs::create_dir(tree.at(name)).expect("ours"));
    let fake = Fake::start();
    assert_eq!(counts(&fake.import(tree.path())).0, [2, 0, 0, 0, 1]);
    assert_eq!(fake.ids(), ["a", "foo/c.eml"]);
}

/// A folder with two mails with an attachment each, one of them in a subfolder.
fn attached() -> Tree {
    Tree::new(&[
        ("a/m.eml", &with_attachment("s", "p.txt", "x")),
        ("z.eml", &with_attachment("t", "q.txt", "y")),
    ])
}

#[test]
fn a_cut_run_that_switches_attachments_leaves_no_mail_half_done() {
    let tree = attached();
    let run = |fake: &Fake, attachments: bool| {
        strand_import::run(&ImportOptions { attachments, ..fake.options(tree.path()) }, &mut Silent)
    };
    for with in [true, false] {
        let [end, fresh] = [Fake::start(), Fake::start()];
        run(&end, with).expect("nothing goes wrong");
        run(&fresh, with).expect("nothing goes wrong");
        let before = end.state().clone();
        let states = interrupted(&before, |fake| run(fake, !with));
        assert!(states.len() > 4);
        for state in states {
            let fake = Fake::with(state);
            run(&fake, with).expect("nothing goes wrong");
            assert_eq!(fake.state().keys, fresh.state().keys, "with attachments: {with}");
        }
    }
}

#[test]
fn attachments_of_a_mail_that_is_gone_go_after_a_cut_run() {
    let run = |fake: &Fake, tree: &Tree, attachments: bool| {
        let max_delete = MaxDelete::Percent(100);
        let options = ImportOptions { attachments, max_delete, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent)
    };
    let text = with_attachment("s", "p.txt", "x");
    let maildir = Tree::new(&[("new/old", &text)]);
    ["cur", "tmp"].iter().for_each(|name| std::fs::create_dir(maildir.at(name)).expect("ours"));
    for (tree, lost, came) in [(attached(), "z.eml", "y.eml"), (maildir, "new/old", "new/young")] {
        let end = Fake::start();
        run(&end, &tree, false).expect("nothing goes wrong");
        tree.write(came, &text);
        let before = end.state().clone();
        let states = interrupted(&before, |fake| run(fake, &tree, true));
        for gone in [lost, came] {
            let next = tree.copy();
            next.remove(gone);
            for (state, with) in states.iter().flat_map(|state| [(state, true), (state, false)]) {
                let [fake, fresh] = [Fake::with(state.clone()), Fake::start()];
                [&fake, &fresh].iter().for_each(|at| drop(run(at, &next, with).expect("nothing goes wrong")));
                assert_eq!(fake.state().keys, fresh.state().keys, "{gone}, with attachments: {with}");
            }
        }
    }
}

#[test]
fn a_switch_of_attachments_reaches_what_could_not_be_read_then() {
    let mails =
        [("a.eml", "p.txt"), ("b.eml", "q.txt")].map(|(name, part)| (name, with_attachment("s", part, "x")));
    let whole = zip(&mails.each_ref().map(|(name, text)| stored(name, text.as_bytes())));
    let tree = Tree::new(&[("x/z.eml", &with_attachment("t", "r.txt", "y"))]);
    for with in [true, false] {
        let run = |fake: &Fake, attachments: bool| {
            let options = ImportOptions { attachments, ..fake.options(tree.path()) };
            strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
        };
        let [fake, fresh] = [Fake::start(), Fake::start()];
        tree.write("x/a.zip", &whole);
        run(&fake, !with);
        run(&fresh, with);
        tree.write("x/a.zip", &whole[..whole.len() / 2]);
        assert_eq!(run(&fake, with).failed, 1);
        tree.write("x/a.zip", &whole);
        assert_eq!(run(&fake, with).failed, 0);
        assert_eq!(fake.state().keys, fresh.state().keys, "with attachments: {with}");
        assert_eq!(counts(&run(&fake, with)).1, 0, "nothing is left to do");
    }
}

#[test]
fn a_retry_imports_a_repaired_archive_whole_and_keeps_attachments() {
    let retry = |fake: &Fake, tree: &Tree| {
        let options =
            ImportOptions { mode: strand_import::ImportMode::RetryFailed, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
    };
    let (fake, tree) = (Fake::start(), attached());
    tree.write(
        "a.zip",
        zip(&[stored("good.txt", b"one"), stored("gone.txt", b"x"), stored("bad.eml", b"no mail")]),
    );
    with_attachments(&fake, &tree);
    let good = mail("repaired", "b");
    tree.write(
        "a.zip",
        zip(&[stored("good.txt", b"a second"), stored("new.txt", b"y"), stored("bad.eml", good.as_bytes())]),
    );
    assert_eq!(retry(&fake, &tree).failed, 0);
    let fresh = Fake::start();
    with_attachments(&fresh, &tree);
    assert_eq!(fake.state().keys, fresh.state().keys);
    assert_eq!(counts(&with_attachments(&fake, &tree)).1, 0, "nothing is left to do");
}

#[test]
fn a_folder_whose_archive_lost_a_document_is_imported_once() {
    for atomic in [false, true] {
        let (fake, tree) = (Fake::start(), Tree::new(&[("y/b.txt", "text"), ("x/c.txt", "text")]));
        tree.write("x/a.zip", zip(&[stored("p.txt", b"content")]));
        fake.import(tree.path());
        tree.write("x/a.zip", zip(&[stored("q.txt", b"content")]));
        let options = ImportOptions { atomic, ..fake.options(tree.path()) };
        let summary = strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
        assert_eq!(summary.added + summary.updated + summary.unchanged, 4, "{summary}");
        assert_eq!(fake.ids(), ["x/a.zip", "x/a.zip/q.txt", "x/c.txt", "y/b.txt"]);
    }
}

#[test]
fn a_source_of_empty_folders_is_empty() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("in/a.txt", "a"), ("in/b.txt", "b")]));
    fake.import(tree.path());
    tree.remove("in/a.txt");
    tree.remove("in/b.txt");
    std::fs::create_dir_all(tree.at("in")).expect("ours");
    let stopped = fake.try_import(tree.path()).expect_err("everything would be removed").to_string();
    assert!(stopped.contains("2 of 2 documents"), "{stopped}");
    assert_eq!(fake.ids().len(), 2);
}

#[test]
fn a_retry_of_an_archive_removes_no_more_than_it_may() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.txt", "a")]));
    let names: Vec<String> = (0..200).map(|i| format!("{i}.txt")).collect();
    let whole = zip(&names.iter().map(|name| stored(name, name.as_bytes())).collect::<Vec<_>>());
    tree.write("a.zip", &whole);
    fake.import(tree.path());
    tree.write("a.zip", &whole[..whole.len() / 2]);
    assert_eq!(fake.import(tree.path()).failed, 1);
    tree.write("a.zip", zip(&[stored("0.txt", b"0.txt")]));
    let options = ImportOptions { mode: strand_import::ImportMode::RetryFailed, ..fake.options(tree.path()) };
    let stopped = strand_import::run(&options, &mut Silent).expect_err("too many").to_string();
    assert!(stopped.contains("199 of 200 documents"), "{stopped}");
    assert_eq!(fake.ids().len(), 202);
    // The retry has ended early, so a whole run follows.
    let options = ImportOptions { max_delete: "100%".parse().expect("a share"), ..fake.options(tree.path()) };
    assert_eq!(strand_import::run(&options, &mut Silent).expect("it is allowed").removed, 199);
}
