//! Which documents an import adds, updates, removes and leaves unchanged, and which ones it opens.

use crate::fake::{Fake, State, Stored, counts};
use crate::files::{Tree, mail};
use std::os::unix::ffi::OsStrExt;
use strand_import::{ImportOptions, Silent};

fn sample() -> Tree {
    Tree::new(&[
        ("a.eml", &mail("one", "first")),
        ("b.eml", &mail("two", "second")),
        ("notes.txt", "no mail at all"),
        ("sub/c.eml", &mail("three", "third")),
        ("sub/deep/d.eml", &mail("four", "fourth")),
    ])
}

#[test]
fn the_same_import_again_opens_and_writes_nothing() {
    let (fake, tree) = (Fake::start(), sample());
    assert_eq!(counts(&fake.import(tree.path())), ([5, 0, 0, 0, 0], 5));
    assert_eq!(fake.ids(), ["a.eml", "b.eml", "notes.txt", "sub/c.eml", "sub/deep/d.eml"]);
    assert_eq!(fake.field("sub/c.eml", "subject").as_deref(), Some("three"));
    assert_eq!(fake.field("notes.txt", "kind").as_deref(), Some("text"));
    assert_eq!(fake.field("notes.txt", "size").as_deref(), Some("14"));
    assert!(fake.state().indexes.contains(&b"d"[..]));
    assert_eq!(fake.state().versions[&b"d"[..]].len(), 3, "three folders and no intent");
    fake.writes();
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 5, 0], 0));
    assert_eq!(fake.writes(), [""; 0]);
}

#[test]
fn only_what_changed_is_opened() {
    let (fake, tree) = (Fake::start(), sample());
    fake.import(tree.path());
    tree.write("b.eml", mail("two", "second, edited"));
    tree.write("e.eml", mail("five", "fifth"));
    tree.remove("sub/deep/d.eml");
    assert_eq!(counts(&fake.import(tree.path())), ([1, 1, 1, 3, 0], 2));
    assert_eq!(fake.field("b.eml", "body").as_deref(), Some("second, edited"));
    assert_eq!(fake.ids(), ["a.eml", "b.eml", "e.eml", "notes.txt", "sub/c.eml"]);
}

#[test]
fn documents_that_the_server_lost_are_sent_again() {
    let (fake, tree) = (Fake::start(), sample());
    // More documents than one command asks for.
    (0..200).for_each(|i| tree.write(&format!("many/{i}.txt"), "text"));
    fake.import(tree.path());
    for lost in ["d:b.eml", "d:sub/deep/d.eml", "d:many/0.txt", "d:many/150.txt"] {
        assert!(fake.state().keys.remove(lost.as_bytes()).is_some(), "{lost}");
    }
    assert_eq!(counts(&fake.import(tree.path())), ([4, 0, 0, 201, 0], 4));
    assert_eq!(fake.field("sub/deep/d.eml", "subject").as_deref(), Some("four"));
    assert_eq!(fake.ids().len(), 205);
    fake.writes();
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 205, 0], 0));
    assert_eq!(fake.writes(), [""; 0]);
    // A document that is missing both at the server and in the source is no error.
    fake.state().keys.remove(&b"d:b.eml"[..]);
    tree.remove("b.eml");
    assert_eq!(fake.import(tree.path()).unchanged, 204);
    assert_eq!(fake.ids().len(), 204);
}

#[test]
fn a_copy_of_the_tree_is_opened_and_found_equal() {
    let (fake, tree) = (Fake::start(), sample());
    fake.import(tree.path());
    fake.writes();
    let copy = tree.copy();
    assert_eq!(counts(&fake.import(copy.path())), ([0, 0, 0, 5, 0], 5));
    let writes = fake.writes();
    assert!(writes.iter().all(|c| c.starts_with("IMPORT.VERSION ")), "no document is sent: {writes:?}");
    assert_eq!(counts(&fake.import(copy.path())), ([0, 0, 0, 5, 0], 0));
}

#[test]
fn an_update_removes_fields_that_the_document_no_longer_has() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    tree.write("a.eml", format!("Cc: x@example.net\nMessage-ID: <1@example.org>\n{}", mail("s", "text")));
    fake.import(tree.path());
    assert_eq!(fake.field("a.eml", "cc").as_deref(), Some("x@example.net"));
    tree.write("a.eml", mail("s", "text"));
    fake.import(tree.path());
    assert_eq!((fake.field("a.eml", "cc"), fake.field("a.eml", "message_id")), (None, None));
    // This holds also for a hash that no record of the dataset mentions.
    fake.state().versions.clear();
    let Some(Stored::Hash(hash)) = fake.state().keys.get_mut(&b"d:a.eml"[..]).cloned() else {
        panic!("a hash")
    };
    let mut stale = hash.clone();
    stale.insert(b"attachments".to_vec(), b"old".to_vec());
    fake.state().keys.insert(b"d:a.eml".to_vec(), Stored::Hash(stale));
    fake.import(tree.path());
    assert_eq!(fake.state().keys[&b"d:a.eml"[..]], Stored::Hash(hash));
}

#[test]
fn removing_a_folder_removes_all_documents_below_it() {
    let (fake, tree) = (Fake::start(), sample());
    fake.import(tree.path());
    tree.remove("sub");
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 2, 3, 0], 0));
    assert_eq!(fake.ids(), ["a.eml", "b.eml", "notes.txt"]);
    assert_eq!(fake.state().versions[&b"d"[..]].keys().collect::<Vec<_>>(), [b"."]);
}

#[test]
fn a_file_becomes_a_folder_and_back() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("x", &mail("file", "f"))]));
    fake.import(tree.path());
    tree.remove("x");
    tree.write("x/y.eml", mail("inner", "i"));
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 0, 1, 0, 0]);
    assert_eq!(fake.ids(), ["x/y.eml"]);
    tree.remove("x");
    tree.write("x", mail("file", "f"));
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 0, 1, 0, 0]);
    assert_eq!(fake.ids(), ["x"]);
}

#[test]
fn a_maildir_keeps_ids_when_flags_change_and_does_not_read_again() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    for part in ["cur", "new", "tmp", ".Archive/cur", ".Archive/new", ".Archive/tmp"] {
        std::fs::create_dir_all(tree.at(part)).unwrap();
    }
    tree.write("cur/1.host:2,S", mail("seen", "a"));
    tree.write("cur/2.host:2,", mail("unseen", "b"));
    tree.write("new/3.host", mail("fresh", "c"));
    tree.write("tmp/4.host", mail("half a deliv", "d"));
    tree.write("dovecot-uidlist", "3 V1");
    tree.write(".Archive/cur/5.host:2,RS", mail("old", "e"));
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary), ([4, 0, 0, 0, 0], 4));
    assert_eq!(summary.skipped.maildir, 1);
    assert_eq!(fake.ids(), [".Archive/5.host", "1.host", "2.host", "3.host"]);
    assert_eq!(fake.field("1.host", "flags").as_deref(), Some("S"));
    assert_eq!(fake.field("2.host", "flags"), None);
    // One message gets a flag, one loses a flag, and one moves from new to cur.
    std::fs::rename(tree.at("cur/2.host:2,"), tree.at("cur/2.host:2,FS")).unwrap();
    std::fs::rename(tree.at("cur/1.host:2,S"), tree.at("cur/1.host:2,")).unwrap();
    std::fs::rename(tree.at("new/3.host"), tree.at("cur/3.host:2,")).unwrap();
    assert_eq!(counts(&fake.import(tree.path())), ([0, 2, 0, 2, 0], 0));
    assert_eq!(fake.field("2.host", "flags").as_deref(), Some("FS"));
    assert_eq!(
        (fake.field("1.host", "flags"), fake.field("1.host", "subject").as_deref()),
        (None, Some("seen"))
    );
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 4, 0], 0));
}

#[test]
fn links_and_special_files_are_counted_and_names_are_bytes() {
    let (fake, tree) = (Fake::start(), sample());
    std::os::unix::fs::symlink(tree.at("a.eml"), tree.at("link.eml")).unwrap();
    std::os::unix::fs::symlink(tree.path(), tree.at("circle")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9.eml");
    std::fs::write(tree.path().join(odd), mail("odd", "name")).unwrap();
    let summary = fake.import(tree.path());
    assert_eq!(summary.added, 6);
    assert_eq!((summary.skipped.links, summary.skipped.special), (2, 1));
    assert!(fake.state().keys.contains_key(&b"d:caf\xe9.eml"[..]));
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 6, 0], 0));
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let (fake, tree) = (Fake::start(), sample());
    let dry = |fake: &Fake| {
        let options = ImportOptions { dry_run: true, ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent).unwrap()
    };
    assert_eq!(counts(&dry(&fake)).0, [5, 0, 0, 0, 0]);
    assert!(fake.writes().is_empty());
    assert_eq!(fake.state().clone(), State::default());
    fake.import(tree.path());
    fake.writes();
    let before = fake.state().clone();
    tree.write("a.eml", mail("one", "edited"));
    tree.remove("sub");
    tree.write("new/f.eml", mail("six", "sixth"));
    assert_eq!(counts(&dry(&fake)).0, [1, 1, 2, 2, 0]);
    assert!(fake.writes().is_empty());
    assert_eq!(fake.state().clone(), before);
}

#[test]
fn no_index_is_created_when_unwanted_or_present() {
    let (fake, tree) = (Fake::start(), sample());
    let options = ImportOptions { index: false, ..fake.options(tree.path()) };
    strand_import::run(&options, &mut Silent).unwrap();
    assert!(fake.state().indexes.is_empty());
    fake.import(tree.path());
    fake.writes();
    fake.import(tree.path());
    assert!(fake.writes().is_empty());
}

#[test]
fn a_large_message_arrives_whole() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let body = "many words make a long line\n".repeat(100_000);
    tree.write("a.eml", mail("large", &body));
    tree.write("b.eml", mail("small", "x"));
    assert_eq!(counts(&fake.import(tree.path())).0, [2, 0, 0, 0, 0]);
    assert_eq!(fake.field("a.eml", "body").unwrap(), body.trim_end());
}
