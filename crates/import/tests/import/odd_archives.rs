//! Archives that other programs accept although they are not as usual: empty tars, tars of the format v7, and archives
//! with bytes behind their end.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::nested::{gzip, tar};

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
