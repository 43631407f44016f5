//! Documents that have moved within their source: copied at the server, and the same as if they had been imported anew.

use crate::fake::{Fake, State, Stored, counts};
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use crate::nested::{deflated, mailbox, tar, with_attachment, zip};
use std::path::Path;
use strand_import::{ImportOptions, Silent, Summary};

/// Many documents that stay, so that what goes is few.
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

/// Imports, and holds what the server has now against a first import of the source.
#[track_caller]
fn follow(fake: &Fake, source: &Path) -> Summary {
    let summary = fake.import(source);
    let anew = Fake::start();
    anew.import(source);
    assert_eq!(fake.state().keys, anew.state().keys);
    summary
}

#[test]
fn a_folder_that_is_renamed_is_not_read() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    // Before and behind its old place in the order of names, and into another folder.
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
        // The first COPY asks whether the user may copy.
        assert_eq!((count("COPY"), count("HSET"), count("UNLINK")), (2, 1, 1), "{writes:?}");
    }
}

#[test]
fn bytes_decide_and_not_times() {
    let (tree, fake) = (tree(), Fake::start());
    fake.import(tree.path());
    let before = std::fs::metadata(tree.at("m/1.eml")).expect("there").modified().expect("known");
    rename(&tree, "m/1.eml", "m/8.eml");
    // As many bytes at the same inode, and the time is set back.
    tree.write("m/8.eml", mail("m 1", "drows"));
    let file = std::fs::File::options().write(true).open(tree.at("m/8.eml")).expect("there");
    file.set_modified(before).expect("ours");
    let summary = follow(&fake, tree.path());
    assert_eq!((counts(&summary), summary.moved), (([1, 0, 1, 34, 0], 1), 0));
    // A name of another kind is extracted anew.
    rename(&tree, "z/t.txt", "z/t.csv");
    assert_eq!(follow(&fake, tree.path()).moved, 0);
}

#[test]
fn a_revision_moves_without_reading() {
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
    // One document becomes two, and two change places.
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

/// Moves of documents that lose their old places before they can be copied from there.
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
fn a_document_is_copied_although_its_place_is_lost_first() {
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
fn in_a_revision_nothing_of_that_is_read() {
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
fn with_atomic_too_documents_are_copied() {
    let (tree, fake) = (tree_of_steps(), Fake::start());
    let atomic = |fake: &Fake| ImportOptions { atomic: true, ..fake.options(tree.path()) };
    let run = |fake: &Fake| strand_import::run(&atomic(fake), &mut Silent);
    run(&fake).expect("nothing goes wrong");
    for (what, change, expected) in STEPS {
        change(&tree);
        let summary = run(&fake).expect("nothing goes wrong");
        assert_eq!([summary.added, summary.updated, summary.removed], expected, "{what}");
        assert_eq!(summary.moved, summary.added + summary.updated, "{what}");
        let anew = Fake::start();
        anew.import(tree.path());
        assert_eq!(fake.state().keys, anew.state().keys, "{what}");
    }
    // Somebody's key is not overwritten, neither where a document comes nor where one is replaced.
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
fn what_may_not_be_laid_aside_is_read() {
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
fn what_somebody_put_in_the_place_of_a_document_stays() {
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
fn what_is_in_an_archive_moves_with_it() {
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
    // Of 4 + 2 + 2 + 1 documents that are in archives, and 5 + 1 that are not: archives are made anew of name and size.
    for ((from, to), moved) in moves.into_iter().zip([15, 4, 2, 2, 11]) {
        rename(&tree, from, to);
        let summary = run(&fake);
        assert_eq!((summary.moved, summary.failed), (moved, 0), "{from} {to}");
        let anew = Fake::start();
        run(&anew);
        assert_eq!(fake.state().keys, anew.state().keys, "{from} {to}");
    }
    // Within an archive: an entry is renamed, one moves up, and two swap their names.
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
        let anew = Fake::start();
        run(&anew);
        assert_eq!(fake.state().keys, anew.state().keys, "{names:?}");
    }
}

#[test]
fn what_the_server_lost_or_may_not_copy_is_read() {
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
    assert_eq!(fake.writes().iter().filter(|write| *write == "COPY").count(), 1, "asked once");
    fake.state().refuse = None;
    // Somebody has put a key where the document shall be: that key stays.
    fake.state().keys.insert(b"d:e/1.eml".to_vec(), Stored::Text);
    rename(&tree, "c", "e");
    let summary = fake.import(tree.path());
    assert_eq!((summary.added, summary.failed), (4, 1));
    assert_eq!(fake.state().keys[&b"d:e/1.eml"[..]], Stored::Text);
    fake.state().keys.remove(&b"d:e/1.eml"[..]);
    assert_eq!(follow(&fake, tree.path()).opened, 1);
}

#[test]
fn an_archive_that_takes_a_folders_name_keeps_what_is_in_it() {
    let (tree, fake) = (tree(), Fake::start());
    tree.write("x/0.eml", mail("plain", "in a folder"));
    fake.import(tree.path());
    tree.remove("x");
    rename(&tree, "m/0.eml", "y.eml");
    tree.write("x", zip(&[deflated("0.eml", mail("packed", "in an archive").as_bytes())]));
    follow(&fake, tree.path());
    assert_eq!(fake.field("x/0.eml", "subject").as_deref(), Some("packed"));
    // And back.
    std::fs::remove_file(tree.at("x")).expect("it is there");
    tree.write("x/0.eml", mail("plain", "in a folder"));
    follow(&fake, tree.path());
    assert_eq!(fake.field("x/0.eml", "subject").as_deref(), Some("plain"));
}

/// Cuts an import into `before` at every command, and holds what the next import makes of it against a whole one.
#[track_caller]
fn cut_everywhere(before: &State, options: impl Fn(&Fake) -> ImportOptions) -> usize {
    let run = |fake: &Fake| strand_import::run(&options(fake), &mut Silent);
    let whole = Fake::with(State { executed: Vec::new(), ..before.clone() });
    run(&whole).expect("nothing goes wrong");
    let commands = whole.state().executed.len();
    let expected = whole.state().keys.clone();
    let mut cuts = 0;
    for cut_at in 0..commands {
        for cut_after_executing in [false, true] {
            let cut =
                State { executed: Vec::new(), cut_at: Some(cut_at), cut_after_executing, ..before.clone() };
            let fake = Fake::with(cut);
            // In a transaction many commands are executed at once, and none of them is cut off from the others.
            cuts += usize::from(run(&fake).is_err());
            fake.state().cut_at = None;
            run(&fake).expect("nothing goes wrong");
            let state = fake.state();
            assert_eq!(state.keys, expected, "cut at {cut_at}");
            let names: Vec<_> = state.versions[&b"d"[..]].keys().collect();
            assert!(names.iter().all(|name| !name.ends_with(b"/")), "no intent is left: {names:?}");
        }
    }
    cuts
}

#[test]
fn a_run_that_is_cut_short_anywhere_is_mended_by_the_next() {
    let tree = tree_of_steps();
    let fake = Fake::start();
    fake.import(tree.path());
    rename(&tree, "m", "b");
    rename(&tree, "a/1.eml", "z/from-a.eml");
    rename(&tree, "z/1.eml", "a/from-z.eml");
    let before = fake.state().clone();
    let cuts = cut_everywhere(&before, |fake| fake.options(tree.path()));
    assert!(cuts > 60, "{cuts}");
    for (what, change, _) in STEPS.into_iter().filter(|(what, ..)| !what.starts_with("into a new")) {
        let tree = tree_of_steps();
        let fake = Fake::start();
        fake.import(tree.path());
        change(&tree);
        let before = fake.state().clone();
        let cuts = cut_everywhere(&before, |fake| fake.options(tree.path()));
        assert!(cuts > 20, "{what}: {cuts}");
        let atomic = |fake: &Fake| ImportOptions { atomic: true, ..fake.options(tree.path()) };
        assert!(cut_everywhere(&before, atomic) > 10, "{what}");
    }
}

#[test]
fn so_is_one_that_moves_archives_and_what_is_in_them() {
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
    assert!(cut_everywhere(&before, |fake| fake.options(tree.path())) > 60);
}

#[test]
fn a_document_comes_back_after_a_cut() {
    // What was laid aside by the run that was cut short is gone, also when the source is as before.
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
