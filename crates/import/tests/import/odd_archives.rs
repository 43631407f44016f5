//! Archives that other programs accept although they are not as usual: empty tars, tars of the format v7, and archives
//! with bytes behind their end.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::nested::{gzip, stored, tar, zip};

/// The output of the tar command with these arguments, in the folder of the tree.
fn tar_output(tree: &Tree, arguments: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new("tar").arg("-C").arg(tree.path()).args(arguments).output();
    let output = output.expect("tar runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_tar_that_has_become_empty_loses_its_documents() {
    let empty = tar_output(&Tree::new(&[]), &["-cf", "-", "-T", "/dev/null"]);
    assert!(empty.len() == 10_240 && empty.iter().all(|byte| *byte == 0));
    let full = tar(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "2"))]);
    let packed = |bytes: &[u8], name: &str| if name == "e.tar" { bytes.to_vec() } else { gzip(bytes) };
    for name in ["e.tar", "e.tar.gz", "e.tgz"] {
        let (tree, fake) = (Tree::new(&[]), Fake::start());
        tree.write(name, packed(&full, name));
        assert_eq!(counts(&fake.import(tree.path())).0, [3, 0, 0, 0, 0], "{name}");
        // Neither a download that has only zeros so far nor half an end of an archive is an empty tar.
        for zeros in [2 << 20, 512] {
            if name == "e.tar" {
                tree.write(name, vec![0; zeros]);
                let summary = fake.import(tree.path());
                assert_eq!((summary.removed, summary.failed), (0, 1), "{zeros}");
                let said = "the tar begins with zeros and has 2097152 bytes";
                let reason = &summary.failed_documents[0].reason;
                assert!(zeros == 512 || reason.starts_with(said), "{reason}");
            }
        }
        tree.write(name, packed(&empty, name));
        let summary = fake.import(tree.path());
        assert_eq!((summary.removed, summary.failed, fake.ids()), (2, 0, vec![name.to_owned()]), "{name}");
        assert_eq!(fake.field(name, "kind").as_deref(), Some("archive"), "{name}");
        assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 1, 0], 0), "{name}");
        let fresh = Fake::start();
        fresh.import(tree.path());
        assert_eq!(fake.state().keys, fresh.state().keys, "{name}");
    }
    // Zeros with another name are no archive.
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write("zeros", &empty);
    tree.write("zeros.gz", gzip(&empty));
    fake.import(tree.path());
    assert_eq!(fake.ids(), ["zeros", "zeros.gz", "zeros.gz/zeros"]);
    assert_eq!(fake.field("zeros", "kind").as_deref(), Some("file"));
}

#[test]
fn a_tar_of_the_format_v7_is_an_archive() {
    let files = Tree::new(&[("a.eml", &mail("a", "1")), ("in/b.eml", &mail("b", "2"))]);
    let v7 = tar_output(&files, &["--format=v7", "-cf", "-", "a.eml", "in"]);
    assert_ne!(&v7[257..262], b"ustar");
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write("old.tar", &v7);
    tree.write("old.tar.gz", gzip(&v7));
    assert_eq!(counts(&fake.import(tree.path())).0, [6, 0, 0, 0, 0]);
    assert_eq!(fake.field("old.tar/in/b.eml", "subject").as_deref(), Some("b"));
    assert_eq!(fake.field("old.tar.gz/a.eml", "subject").as_deref(), Some("a"));
}

#[test]
fn an_entry_that_replaces_another_counts_alone_whatever_its_name_begins_with() {
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    let files = Tree::new(&[("c.eml", &mail("old", "1"))]);
    let old = tar_output(&files, &["-b", "1", "-cf", "-", "c.eml"]);
    files.write("c.eml", mail("new", "2"));
    let new = tar_output(&files, &["-cf", "-", "./c.eml"]);
    // Without its end, which has two blocks of zeros.
    let joined = [&old[..1024], &new[..]].concat();
    tree.write("t.tar", &joined);
    fake.import(tree.path());
    assert_eq!(fake.ids(), ["t.tar", "t.tar/c.eml"]);
    assert_eq!(fake.field("t.tar/c.eml", "subject").as_deref(), Some("new"));
}

#[test]
fn hard_links_in_a_tar_have_the_bytes_that_they_name() {
    let long = "x".repeat(120);
    let long_name = format!("{long}.eml");
    let files = Tree::new(&[(&long_name, &mail("s", "words"))]);
    std::fs::hard_link(files.at(&long_name), files.at("twin.eml")).expect("a link");
    let listed = [long_name.clone(), "twin.eml".to_owned()];
    for format in ["gnu", "pax"] {
        let format = format!("--format={format}");
        let whole = tar_output(&files, &[&format, "-cf", "-", "--", &listed[0], &listed[1]]);
        let (tree, fake) = (Tree::new(&[]), Fake::start());
        tree.write("t.tar", &whole);
        let summary = fake.import(tree.path());
        assert_eq!((summary.added, summary.skipped.links), (3, 0), "{format}");
        assert_eq!(fake.field("t.tar/twin.eml", "subject").as_deref(), Some("s"), "{format}");
        assert_eq!(counts(&fake.import(tree.path())).0, [0, 0, 0, 3, 0], "{format}");
        // The entry that the link names is not in this tar.
        let at = memchr::memmem::find(&whole, b"twin.eml").expect("the link");
        let fake = Fake::start();
        tree.write("t.tar", &whole[at - at % 512..]);
        let summary = fake.import(tree.path());
        if format.ends_with("gnu") {
            assert_eq!((summary.skipped.links, fake.ids()), (1, vec!["t.tar".to_owned()]));
        }
    }
    // Many links to a large file unpack to much more than the tar.
    let files = Tree::new(&[("0", &"x".repeat(2 << 20))]);
    let names: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    names[1..].iter().for_each(|name| std::fs::hard_link(files.at("0"), files.at(name)).expect("a link"));
    let arguments: Vec<&str> = ["-cf", "-"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let (ids, reason) = import_one("t.tar", &tar_output(&files, &arguments));
    // Those within the bounds are documents, and the others are skipped.
    assert!((50..200).contains(&ids.len()) && reason.is_empty(), "{} documents: {reason}", ids.len());
}

#[test]
fn a_zip_with_a_program_in_front_is_opened() {
    let whole = zip(&[stored("a.eml", mail("a", "1").as_bytes())]);
    for program in [&b"#!/bin/sh\nexec java -jar $0\n"[..], b"MZ\x90\0", b"\x7fELF\x02\x01"] {
        for name in ["x.zip", "x.JAR"] {
            let (ids, reason) = import_one(name, &[program, &whole].concat());
            assert_eq!(ids, [name.to_owned(), format!("{name}/a.eml")], "{reason}");
        }
        let (ids, _) = import_one("x.txt", &[program, &whole].concat());
        assert_eq!(ids, ["x.txt"]);
    }
}

#[test]
fn messages_without_a_blank_line_between_them_are_apart() {
    let one = |subject: &str| format!("From a@b.example Mon Jan  6 10:00:00 2025\n{}", mail(subject, "text"));
    let quoted = mail("third", ">From a@b.example Mon Jan  6 10:00:00 2025\nFrom 10:00 on");
    let joined = format!("{}\n{}\n{}", one("first").trim_end(), one("second").trim_end(), quoted);
    let joined = joined.replacen("\nFrom: a@b.example\nSubject: third", "\nX: y", 1);
    let (ids, reason) = import_one("x.mbox", joined.as_bytes());
    assert_eq!((ids.len(), reason), (3, String::new()), "{ids:?}");
}

/// Imports the bytes as `name`. Returns the ids of the documents, and the reason of the first failure.
fn import_one(name: &str, bytes: &[u8]) -> (Vec<String>, String) {
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write(name, bytes);
    let summary = fake.import(tree.path());
    (fake.ids(), summary.failed_documents.first().map_or(String::new(), |failed| failed.reason.clone()))
}

#[test]
fn a_zip_with_bytes_behind_its_end_is_opened() {
    let whole = zip(&[stored("a.eml", mail("a", "1").as_bytes())]);
    let opened = ["x.zip".to_owned(), "x.zip/a.eml".to_owned()];
    let commented = |says: u16, comment: &[u8]| {
        let mut bytes = whole.clone();
        let at = bytes.len() - 2;
        bytes[at..].copy_from_slice(&says.to_le_bytes());
        [bytes, comment.to_vec()].concat()
    };
    let junk = |bytes: &[u8]| [&whole[..], bytes].concat();
    for bytes in [
        whole.clone(),
        junk(b"\r\n"),
        junk(&[0; 512]),
        // Something that looks like an end record, and is not.
        junk(b"PK\x05\x06 is no record of this zip"),
        commented(4, b"word"),
        commented(4, b"wo"),
        commented(4, b"words behind"),
    ] {
        assert_eq!(
            import_one("x.zip", &bytes),
            (opened.to_vec(), String::new()),
            "{:?}",
            bytes.escape_ascii().to_string()
        );
    }
    // An archive that is stored in a cut-off archive does not stand for the whole archive.
    let outer = zip(&[stored("first.txt", b"first"), stored("inner.zip", &whole)]);
    let cut = memchr::memmem::rfind(&outer, b"PK\x01\x02").expect("a directory") - 60;
    let end = memchr::memmem::find(&outer[..cut + 61], b"PK\x05\x06").map_or(cut, |at| at + 22);
    let cut_off = [&outer[..end], b"x"].concat();
    let (ids, reason) = import_one("x.zip", &cut_off);
    assert_eq!(ids, ["x.zip"], "{reason}");
}

#[test]
fn the_error_of_a_damaged_zip_names_the_cause() {
    let whole = zip(&[stored("a.eml", b"From: a@b.example\n\nx"), stored("b.txt", b"b")]);
    let directory = memchr::memmem::find(&whole, b"PK\x01\x02").expect("a directory");
    let end = whole.len() - 22;
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let len = whole.len() - 5;
    for (bytes, said) in [
        (whole[..len].to_vec(), format!("there is no end-of-directory record in its last {len} bytes")),
        (changed(end + 17, 9), "its end record says that the directory is".to_owned()),
        (changed(directory, b'Q'), format!("byte {directory}: there is no directory")),
        (changed(end + 10, 7), "its directory has 2 entries, its end record says 7".to_owned()),
        (changed(directory + 29, 200), "the entry at byte 0 of its directory is cut off".to_owned()),
    ] {
        let (_, reason) = import_one("x.zip", &bytes);
        let said = format!("the zip is damaged: {said}");
        assert!(reason.starts_with(&said), "{reason:?} does not say {said:?}");
    }
    let second = memchr::memmem::rfind(&whole[..directory], b"PK\x03\x04").expect("an entry");
    let (_, reason) = import_one("x.zip", &changed(second, b'Q'));
    assert_eq!(reason, format!("the zip is damaged: byte {second}: there is no header of the entry"));
}

#[test]
fn bytes_behind_a_gzip_stream_are_ignored() {
    let packed = gzip(mail("a", "1").as_bytes());
    for junk in [&b"junk"[..], b"\0\0\0\0", b"\0x", b"a longer line of text\n"] {
        let (ids, reason) = import_one("a.eml.gz", &[&packed[..], junk].concat());
        assert_eq!((ids, reason.as_str()), (vec!["a.eml.gz".to_owned(), "a.eml.gz/a.eml".to_owned()], ""));
    }
    let (ids, reason) = import_one("a.eml.gz", &packed[..packed.len() - 3]);
    assert!(ids.len() == 1 && !reason.is_empty(), "{ids:?}");
}
