//! Documents that moved within their source: the run copies them at the server, and the result equals a first import.

use crate::fake::{Fake, State, Stored, counts, interrupted};
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use crate::nested::{deflated, mailbox, tar, with_attachment, zip};
use std::path::Path;
use strand_import::{ImportOptions, Silent, Summary};

/// A tree with many documents that never move, so that the deletion budget allows the removals of each test.
fn tree() -> Tree {
    let tree = Tree::new(&[]);
    for i in 0..20 {
        tree.write(&format!("stay/{i}.eml"), mail(&format!("stays {i}"), "here"));
    }
    for folder in ["a", "m", "z"] {
        for i in 0..3 {
            tree.write(&format!("{folder}/{i}.eml"), mail(&format!("{folder} {i}"), "words"));
        }
        tree.write(&format!("{folder}/t.txt"), format!("a text of {folder}"));
        tree.write(&format!("{folder}/n.csv"), format!("x,y\n1,{folder}\n"));
    }
    tree
}

fn rename(tree: &Tree, from: &str, to: &str) {
    let to = tree.at(to);
    std::fs::create_dir_all(to.parent().expect("below the tree")).expect("writable");
    std::fs::rename(tree.at(from), to).expect("it is there");
}

/// Imports the source, and asserts that the server then holds the same keys as after a first import of the source.
#[track_caller]
fn follow(fake: &Fake, source: &Path) -> Summary {
    let summary = fake.import(source);
    let fresh = Fake::start();
    fresh.import(source);
    assert_eq!(fake.state().keys, fresh.state().keys);
    summary
}

#[test]
fn a_folder_that_is_renamed_is_not_read() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    // The new name sorts before the old one, then after the old one. At last the folder moves into another folder.
    for (from, to) in [("m", "b"), ("b", "y"), ("y", "stay/deep/er")] {
        rename(&tree, from, to);
        let summary = follow(&fake, tree.path());
        assert_eq!((counts(&summary), summary.moved), (([5, 0, 5, 30, 0], 0), 5), "{from} {to}");
    }
    assert_eq!(fake.import(tree.path()).opened, 0);
}

#[test]
fn a_file_that_is_renamed_is_read_and_not_sent() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    fake.writes();
    for (from, to) in
        [("m/1.eml", "m/9.eml"), ("m/9.eml", "a/1b.eml"), ("a/1b.eml", "z/sub/1.eml"), ("a/n.csv", "a/o.csv")]
    {
        rename(&tree, from, to);
        let summary = follow(&fake, tree.path());
        assert_eq!((counts(&summary), summary.moved), (([1, 0, 1, 34, 0], 1), 1), "{from} {to}");
        let writes = fake.writes();
        let count = |name: &str| writes.iter().filter(|write| *write == name).count();
        // The first COPY only tests whether the user may run the command.
        assert_eq!((count("COPY"), count("HSET"), count("UNLINK")), (2, 1, 1), "{writes:?}");
    }
}

#[test]
fn a_moved_document_is_recognised_by_its_bytes_and_not_by_its_times() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    let before = std::fs::metadata(tree.at("m/1.eml")).expect("there").modified().expect("known");
    rename(&tree, "m/1.eml", "m/8.eml");
    // The content changes, but size, inode and modification time stay.
    tree.write("m/8.eml", mail("m 1", "drows"));
    let file = std::fs::File::options().write(true).open(tree.at("m/8.eml")).expect("there");
    file.set_modified(before).expect("ours");
    let summary = follow(&fake, tree.path());
    assert_eq!((counts(&summary), summary.moved), (([1, 0, 1, 34, 0], 1), 0));
    // A new suffix changes the kind of the document, so its text must be extracted again.
    rename(&tree, "z/t.txt", "z/t.csv");
    assert_eq!(follow(&fake, tree.path()).moved, 0);
}

#[test]
fn renames_in_a_revision_are_copied_without_reading() {
    let (tree, fake) = (tree(), Fake::start());
    init(&tree);
    commit(&tree);
    fake.import(&source(tree.path(), "main"));
    let moves = [
        ("m", "b"),
        ("b", "stay/y"),
        ("z/2.eml", "z/c/2.eml"),
        ("stay/3.eml", "a/3.eml"),
        ("a/3.eml", "z/3.eml"),
    ];
    for (from, to) in moves {
        rename(&tree, from, to);
        commit(&tree);
        let summary = follow(&fake, &source(tree.path(), "main"));
        assert_eq!(
            (summary.added, summary.opened, summary.moved),
            (summary.removed, 0, summary.added),
            "{from} {to}"
        );
        assert!(summary.moved > 0);
    }
    // One document is copied, then two documents swap their folders.
    std::fs::copy(tree.at("a/0.eml"), tree.at("a/copy.eml")).expect("writable");
    rename(&tree, "a/0.eml", "stay/zero.eml");
    commit(&tree);
    let summary = follow(&fake, &source(tree.path(), "main"));
    assert_eq!((summary.added, summary.removed, summary.moved), (2, 1, 2));
    rename(&tree, "a/1.eml", "z/from-a.eml");
    rename(&tree, "z/1.eml", "a/from-z.eml");
    commit(&tree);
    let summary = follow(&fake, &source(tree.path(), "main"));
    assert_eq!((summary.added, summary.removed, summary.moved, summary.opened), (2, 2, 2, 0));
}

/// What each step of [`steps`] changes: documents added, updated and removed.
type Step = (&'static str, fn(&Tree), [u64; 3]);

/// Moves in which another document takes the old key before the moved document can be copied from it.
const STEPS: [Step; 8] = [
    ("to the folder above, which stays", |tree| rename(tree, "a/0.eml", "up.eml"), [1, 0, 1]),
    ("two folders up", |tree| rename(tree, "stay/in/deep.eml", "deep.eml"), [1, 0, 1]),
    (
        "into a new folder of a folder that loses a document",
        |tree| {
            rename(tree, "a/1.eml", "z/new/1.eml");
            rename(tree, "z/0.eml", "a/from-z.eml");
        },
        [2, 0, 2],
    ),
    ("names swapped in a folder", |tree| swap(tree, "m/0.eml", "m/1.eml"), [0, 2, 0]),
    ("names swapped between folders", |tree| swap(tree, "a/2.eml", "z/2.eml"), [0, 2, 0]),
    (
        "names passed on",
        |tree| {
            rename(tree, "m/2.eml", "m/3.eml");
            rename(tree, "m/1.eml", "m/2.eml");
            rename(tree, "m/0.eml", "m/1.eml");
        },
        [1, 2, 1],
    ),
    ("folders swapped", |tree| swap(tree, "a", "m"), [3, 6, 3]),
    ("into the place of one that is gone", |tree| rename(tree, "stay/0.eml", "z/1.eml"), [0, 1, 1]),
];

fn swap(tree: &Tree, one: &str, other: &str) {
    rename(tree, one, "hold");
    rename(tree, other, one);
    rename(tree, "hold", other);
}

fn tree_of_steps() -> Tree {
    let tree = tree();
    tree.write("stay/in/deep.eml", mail("deep", "in a folder"));
    tree.write("stay/in/other.eml", mail("other", "in a folder"));
    tree
}

#[test]
fn a_document_whose_old_key_is_overwritten_first_is_copied_from_the_stash() {
    let (tree, fake) = (tree_of_steps(), Fake::start());
    fake.import(tree.path());
    for (what, change, expected) in STEPS {
        change(&tree);
        let summary = follow(&fake, tree.path());
        assert_eq!([summary.added, summary.updated, summary.removed], expected, "{what}");
        assert_eq!(summary.moved, summary.added + summary.updated, "{what}");
        assert_eq!(fake.import(tree.path()).opened, 0, "{what}");
    }
}

#[test]
fn documents_that_a_revision_swaps_are_copied_without_reading() {
    let (tree, fake) = (tree_of_steps(), Fake::start());
    init(&tree);
    commit(&tree);
    fake.import(&source(tree.path(), "main"));
    for (what, change, expected) in STEPS {
        change(&tree);
        commit(&tree);
        let summary = follow(&fake, &source(tree.path(), "main"));
        assert_eq!([summary.added, summary.updated, summary.removed], expected, "{what}");
        assert_eq!((summary.moved, summary.opened), (summary.added + summary.updated, 0), "{what}");
    }
}

#[test]
fn an_atomic_run_copies_moved_documents() {
    let (tree, fake) = (tree_of_steps(), Fake::start());
    let atomic = |fake: &Fake| ImportOptions { atomic: true, ..fake.options(tree.path()) };
    let run = |fake: &Fake| strand_import::run(&atomic(fake), &mut Silent);
    run(&fake).expect("nothing goes wrong");
    for (what, change, expected) in STEPS {
        change(&tree);
        let summary = run(&fake).expect("nothing goes wrong");
        assert_eq!([summary.added, summary.updated, summary.removed], expected, "{what}");
        assert_eq!(summary.moved, summary.added + summary.updated, "{what}");
        let fresh = Fake::start();
        fresh.import(tree.path());
        assert_eq!(fake.state().keys, fresh.state().keys, "{what}");
    }
    // A foreign key is not overwritten, neither by a new document nor by a replaced one.
    for taken in ["d:m/9.eml", "d:m/from-z.eml"] {
        fake.state().keys.insert(taken.as_bytes().to_vec(), Stored::Text);
    }
    rename(&tree, "m/2.eml", "m/9.eml");
    swap(&tree, "m/from-z.eml", "z/1.eml");
    let summary = run(&fake).expect("nothing goes wrong");
    assert_eq!(summary.failed, 2);
    assert_eq!(fake.state().keys[&b"d:m/9.eml"[..]], Stored::Text);
    assert_eq!(fake.state().keys[&b"d:m/from-z.eml"[..]], Stored::Text);
}

#[test]
fn documents_that_cannot_be_stashed_are_read() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    fake.state().refuse = Some(("COPY d\x01aside", "NOPERM no permissions to access a key"));
    rename(&tree, "a/0.eml", "up.eml");
    rename(&tree, "m", "b");
    let summary = follow(&fake, tree.path());
    assert_eq!((summary.added, summary.moved, summary.failed), (6, 5, 0));
    fake.state().refuse = None;
    rename(&tree, "a/1.eml", "up1.eml");
    assert_eq!(follow(&fake, tree.path()).moved, 1);
}

#[test]
fn a_foreign_key_at_the_new_place_is_not_overwritten() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    swap(&tree, "m/0.eml", "m/1.eml");
    fake.state().keys.insert(b"d:m/1.eml".to_vec(), Stored::Text);
    let summary = fake.import(tree.path());
    assert_eq!(summary.failed, 1);
    assert_eq!(fake.state().keys[&b"d:m/1.eml"[..]], Stored::Text);
    fake.state().keys.remove(&b"d:m/1.eml"[..]);
    follow(&fake, tree.path());
}

#[test]
fn documents_in_a_renamed_archive_are_copied() {
    let tree = tree();
    let mails: Vec<String> = (0..6).map(|i| mail(&format!("packed {i}"), "in an archive")).collect();
    let packed = |names: [&str; 3]| {
        let entries: Vec<_> =
            names.iter().zip(&mails).map(|(name, mail)| deflated(name, mail.as_bytes())).collect();
        zip(&entries)
    };
    let inner = packed(["in/x.eml", "in/y.eml", "z.eml"]);
    tree.write("m/a.zip", zip(&[deflated("nested.zip", &inner), deflated("p.eml", mails[3].as_bytes())]));
    tree.write("m/b.tar", tar(&[("t/1.eml", &mails[4]), ("2.eml", &mails[5])]));
    tree.write("m/c.mbox", mailbox(&["one", "two"]));
    tree.write("m/d.eml", with_attachment("attached", "notes.txt", "the notes"));
    let fake = Fake::start();
    let run = |fake: &Fake| {
        let options = ImportOptions { attachments: true, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
    };
    run(&fake);
    let moves =
        [("m", "b"), ("b/a.zip", "b/q.zip"), ("b/b.tar", "up.tar"), ("b/c.mbox", "z/c.mbox"), ("b", "y/b")];
    // 4 + 2 + 2 + 1 documents are in archives, 5 + 1 are not. The archives' own documents are not moved: they are built
    // from name and size.
    for ((from, to), moved) in moves.into_iter().zip([15, 4, 2, 2, 11]) {
        rename(&tree, from, to);
        let summary = run(&fake);
        assert_eq!((summary.moved, summary.failed), (moved, 0), "{from} {to}");
        let fresh = Fake::start();
        run(&fresh);
        assert_eq!(fake.state().keys, fresh.state().keys, "{from} {to}");
    }
    // Within an archive, one entry is renamed, one moves to the folder above, and two swap their names.
    let names = [
        (["in/w.eml", "in/y.eml", "z.eml"], 1),
        (["in/w.eml", "y.eml", "z.eml"], 1),
        (["in/w.eml", "z.eml", "y.eml"], 2),
    ];
    for (names, moved) in names {
        let inner = packed(names);
        let whole = zip(&[deflated("nested.zip", &inner), deflated("p.eml", mails[3].as_bytes())]);
        tree.write("y/b/q.zip", whole);
        let summary = run(&fake);
        assert_eq!((summary.moved, summary.failed), (moved, 0), "{names:?}");
        let fresh = Fake::start();
        run(&fresh);
        assert_eq!(fake.state().keys, fresh.state().keys, "{names:?}");
    }
}

#[test]
fn documents_that_the_server_cannot_copy_are_read() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    fake.state().keys.remove(&b"d:m/0.eml"[..]);
    rename(&tree, "m", "b");
    let summary = follow(&fake, tree.path());
    assert_eq!((summary.opened, summary.moved), (1, 4));
    fake.state().refuse = Some(("COPY", "NOPERM this user has no permissions to run the 'copy' command"));
    fake.writes();
    rename(&tree, "b", "c");
    let summary = follow(&fake, tree.path());
    assert_eq!((summary.opened, summary.moved, summary.failed), (5, 0, 0));
    assert_eq!(
        fake.writes().iter().filter(|write| *write == "COPY").count(),
        1,
        "the permission is tested once"
    );
    fake.state().refuse = None;
    // Another client has set the key of the new place: that key stays.
    fake.state().keys.insert(b"d:e/1.eml".to_vec(), Stored::Text);
    rename(&tree, "c", "e");
    let summary = fake.import(tree.path());
    assert_eq!((summary.added, summary.failed), (4, 1));
    assert_eq!(fake.state().keys[&b"d:e/1.eml"[..]], Stored::Text);
    fake.state().keys.remove(&b"d:e/1.eml"[..]);
    assert_eq!(follow(&fake, tree.path()).opened, 1);
}

#[test]
fn an_archive_that_takes_a_folders_name_keeps_its_documents() {
    let (tree, fake) = (tree(), Fake::start());
    tree.write("x/0.eml", mail("plain", "in a folder"));
    fake.import(tree.path());
    tree.remove("x");
    rename(&tree, "m/0.eml", "y.eml");
    tree.write("x", zip(&[deflated("0.eml", mail("packed", "in an archive").as_bytes())]));
    follow(&fake, tree.path());
    assert_eq!(fake.field("x/0.eml", "subject").as_deref(), Some("packed"));
    // The archive becomes a folder again.
    std::fs::remove_file(tree.at("x")).expect("it is there");
    tree.write("x/0.eml", mail("plain", "in a folder"));
    follow(&fake, tree.path());
    assert_eq!(fake.field("x/0.eml", "subject").as_deref(), Some("plain"));
}

/// Interrupts an import into `before` at every command. After each interruption, asserts that the next import leads to
/// the same keys as an uninterrupted one.
#[track_caller]
fn cut_everywhere(before: &State, options: impl Fn(&Fake) -> ImportOptions) -> usize {
    let run = |fake: &Fake| strand_import::run(&options(fake), &mut Silent);
    let states = interrupted(before, run);
    let expected = &states.last().expect("a whole run").keys;
    for (cut, state) in states.iter().enumerate() {
        let fake = Fake::with(state.clone());
        run(&fake).expect("nothing goes wrong");
        let state = fake.state();
        assert_eq!(&state.keys, expected, "cut at {cut}");
        let names: Vec<_> = state.versions[&b"d"[..]].keys().collect();
        assert!(names.iter().all(|name| !name.ends_with(b"/")), "no intent is left: {names:?}");
    }
    states.len() - 1
}

#[test]
fn the_run_after_an_interrupted_move_completes_the_move() {
    let tree = tree_of_steps();
    let fake = Fake::start();
    fake.import(tree.path());
    rename(&tree, "m", "b");
    rename(&tree, "a/1.eml", "z/from-a.eml");
    rename(&tree, "z/1.eml", "a/from-z.eml");
    let before = fake.state().clone();
    let cuts = cut_everywhere(&before, |fake| fake.options(tree.path()));
    assert!(cuts > 30, "{cuts}");
    for (what, change, _) in STEPS.into_iter().filter(|(what, ..)| !what.starts_with("into a new")) {
        let tree = tree_of_steps();
        let fake = Fake::start();
        fake.import(tree.path());
        change(&tree);
        let before = fake.state().clone();
        let cuts = cut_everywhere(&before, |fake| fake.options(tree.path()));
        assert!(cuts > 10, "{what}: {cuts}");
        let atomic = |fake: &Fake| ImportOptions { atomic: true, ..fake.options(tree.path()) };
        assert!(cut_everywhere(&before, atomic) > 5, "{what}");
    }
}

#[test]
fn the_run_after_an_interrupted_move_of_archives_completes_the_move() {
    let tree = tree();
    let mails: Vec<String> = (0..3).map(|i| mail(&format!("packed {i}"), "in an archive")).collect();
    let packed = |names: [&str; 3]| {
        let entries: Vec<_> =
            names.iter().zip(&mails).map(|(name, mail)| deflated(name, mail.as_bytes())).collect();
        zip(&entries)
    };
    tree.write("m/a.zip", packed(["x.eml", "in/y.eml", "z.eml"]));
    tree.write("z/b.zip", packed(["x.eml", "in/y.eml", "z.eml"]));
    tree.write("z/c.mbox", mailbox(&["one", "two"]));
    let fake = Fake::start();
    fake.import(tree.path());
    rename(&tree, "m/a.zip", "up.zip");
    rename(&tree, "z/c.mbox", "m/c.mbox");
    tree.write("z/b.zip", packed(["in/y.eml", "x.eml", "y.eml"]));
    let before = fake.state().clone();
    assert_eq!(Fake::with(before.clone()).import(tree.path()).moved, 3 + 2 + 3);
    assert!(cut_everywhere(&before, |fake| fake.options(tree.path())) > 30);
}

#[test]
fn the_run_after_an_interrupted_move_removes_the_stash() {
    // The next run removes the stash of the interrupted run, also when the source is back in its first state.
    let tree = tree();
    let fake = Fake::start();
    fake.import(tree.path());
    let before = fake.state().clone();
    for cut_at in 0.. {
        swap(&tree, "m/0.eml", "m/1.eml");
        rename(&tree, "a/0.eml", "up.eml");
        let fake = Fake::with(State { executed: Vec::new(), cut_at: Some(cut_at), ..before.clone() });
        let done = fake.try_import(tree.path()).is_ok();
        fake.state().cut_at = None;
        swap(&tree, "m/0.eml", "m/1.eml");
        rename(&tree, "up.eml", "a/0.eml");
        fake.import(tree.path());
        assert_eq!(fake.state().keys, before.keys, "cut at {cut_at}");
        if done {
            break;
        }
    }
}
