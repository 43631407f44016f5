//! Documents that have moved within their source: copied at the server, and the same as if they had been imported anew.

use crate::fake::{Fake, State, Stored, counts};
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use crate::nested::{deflated, zip};
use std::path::Path;
use strand_import::Summary;

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
        assert_eq!((count("COPY"), count("HSET"), count("UNLINK")), (1, 1, 1), "{writes:?}");
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
    // One document becomes two, and one of two that change places is read.
    std::fs::copy(tree.at("a/0.eml"), tree.at("a/copy.eml")).expect("writable");
    rename(&tree, "a/0.eml", "stay/zero.eml");
    commit(&tree);
    let summary = follow(&fake, &source(tree.path(), "main"));
    assert_eq!((summary.added, summary.removed, summary.moved), (2, 1, 2));
    rename(&tree, "a/1.eml", "z/from-a.eml");
    rename(&tree, "z/1.eml", "a/from-z.eml");
    commit(&tree);
    let summary = follow(&fake, &source(tree.path(), "main"));
    assert_eq!((summary.added, summary.removed, summary.moved), (2, 2, 1));
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

#[test]
fn a_run_that_is_cut_short_anywhere_is_mended_by_the_next() {
    let tree = tree();
    let fake = Fake::start();
    fake.import(tree.path());
    let before = fake.state().clone();
    rename(&tree, "m", "b");
    rename(&tree, "a/1.eml", "z/from-a.eml");
    rename(&tree, "z/1.eml", "a/from-z.eml");
    let whole = Fake::with(State { executed: Vec::new(), ..before.clone() });
    whole.import(tree.path());
    let commands = whole.state().executed.len();
    let expected = whole.state().keys.clone();
    for cut_at in 0..commands {
        for cut_after_executing in [false, true] {
            let cut =
                State { executed: Vec::new(), cut_at: Some(cut_at), cut_after_executing, ..before.clone() };
            let fake = Fake::with(cut);
            assert!(fake.try_import(tree.path()).is_err(), "cut at {cut_at}");
            fake.state().cut_at = None;
            fake.import(tree.path());
            assert_eq!(fake.state().keys, expected, "cut at {cut_at}");
        }
    }
}
