//! The real mails of ../shared/data, if that folder exists: two versions of a dataset with a known difference.

use crate::fake::{Fake, counts};
use crate::files::Tree;
use std::path::{Path, PathBuf};
use std::process::Command;

fn archive(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    let there = path.exists();
    if !there {
        println!("skipped: {name} is not there");
    }
    there.then_some(path)
}

fn unpack(archive: &Path, tree: &Tree) {
    let done = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(tree.path()).status();
    assert!(done.expect("tar runs").success());
}

fn names(tree: &Tree) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(tree.path())
        .expect("unpacked")
        .map(|e| e.expect("readable").file_name().into_string().expect("ASCII"))
        .collect();
    names.sort();
    names
}

#[test]
fn version_1_then_version_2_then_nothing() {
    let (Some(ham), Some(spam)) = (archive("mail-easy-ham-1.tar.gz"), archive("mail-spam-1.tar.gz")) else {
        return;
    };
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    unpack(&ham, &tree);
    let first = fake.import(tree.path());
    println!("{first}");
    assert_eq!(counts(&first), ([2500, 0, 0, 0, 0], 2500));
    let ham_names = names(&tree);
    ham_names.iter().step_by(10).for_each(|name| tree.remove(name));
    for name in ham_names.iter().skip(1).step_by(50) {
        let mut bytes = std::fs::read(tree.at(name)).expect("a mail");
        bytes.extend_from_slice(b"\none line more\n");
        tree.write(name, bytes);
    }
    unpack(&spam, &tree);
    let second = fake.import(tree.path());
    println!("{second}");
    assert_eq!(counts(&second), ([500, 50, 250, 2200, 0], 550));
    assert!(
        second.to_string().starts_with("d: 500 added, 50 updated, 250 removed, 2200 unchanged, 0 failed (")
    );
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 2750, 0], 0));
    assert_eq!(fake.ids(), names(&tree));
}

/// The test mails of the mail parser's crate, some of them malformed, in Cargo's registry.
fn mails_of_the_parser() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let found = Command::new("find")
        .arg(cargo.expect("a home").join("registry/src"))
        .args(["-path", "*/mail-parser-*/resources/eml/*.eml"])
        .output();
    let found = String::from_utf8(found.expect("find runs").stdout).expect("plain names");
    found.lines().map(PathBuf::from).collect()
}

#[test]
fn the_parsers_test_mails_are_imported_or_failed() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let mails = mails_of_the_parser();
    if mails.is_empty() {
        println!("skipped: the sources of mail-parser are not there");
        return;
    }
    for (i, path) in mails.iter().enumerate() {
        let name = path.file_name().expect("a file").to_string_lossy();
        tree.write(&format!("{i:04}-{name}"), std::fs::read(path).expect("a mail"));
    }
    let options = strand_import::ImportOptions { attachments: true, ..fake.options(tree.path()) };
    let run = || strand_import::run(&options, &mut strand_import::Silent).expect("nothing goes wrong");
    let first = run();
    println!("{} mails: {first}", mails.len());
    for document in &first.failed_documents {
        println!("{}: {}", String::from_utf8_lossy(&document.path), document.reason);
    }
    let at_top = |ids: &[String]| ids.iter().filter(|id| !id.contains('/')).count();
    let failed = first.failed_documents.iter().filter(|document| !document.path.contains(&b'/')).count();
    assert_eq!(
        at_top(&fake.ids()) + failed,
        mails.len(),
        "each is a document, or a failed document with its reason"
    );
    assert!(failed * 20 <= mails.len(), "{failed} of {} failed", mails.len());
    let again = run();
    assert_eq!((again.added, again.updated, again.removed, again.failed), (0, 0, 0, first.failed));
}

#[test]
fn the_samples_are_imported_and_the_broken_one_is_a_failed_document() {
    let fake = Fake::start();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mail");
    let summary = fake.import(&samples);
    println!("{summary}");
    assert_eq!(counts(&summary).0, [39, 0, 0, 0, 1]);
    assert_eq!(summary.failed_documents[0].path, b"support/0113-broken.eml");
    let field = |id: &str, name: &str| fake.field(id, name).unwrap_or_default();
    let subjects = [
        ("inbox/0005-gruesse.eml", "Grüße aus der Glashütte"),
        ("inbox/0006-commande.eml", "Commande de lampes en été"),
        ("inbox/0007-nihon.eml", "照明の見積もり"),
        ("inbox/0008-svet.eml", "Заказ на лампы"),
        ("inbox/0009-dengju.eml", "关于台灯的询价"),
        ("inbox/0010-quote.eml", "“Moonrise” lamps – your quote"),
    ];
    for (id, subject) in subjects {
        assert_eq!(field(id, "subject"), subject);
        assert!(!field(id, "body").contains('\u{fffd}') && field(id, "kind") == "mail", "{id}");
    }
    assert!(field("inbox/0007-nihon.eml", "body").starts_with("こんにちは"));
    assert!(field("inbox/0008-svet.eml", "body").contains("настольные"));
    assert!(field("inbox/0009-dengju.eml", "body").contains("黄铜台灯"));
    assert!(field("inbox/0010-quote.eml", "body").contains("€140 apiece"));
    assert_eq!(field("inbox/0012-mbox-line.eml", "message_id"), "20250112.40@lantern.example");
    assert_eq!(field("inbox/0011-forwarded.eml", "attachments"), "A lamp for the lighthouse museum");
    assert!(field("inbox/0011-forwarded.eml", "body").contains("clockwork that turns the shade"));
    assert_eq!(field("invoices/0201-invoice-2024-311.eml", "attachments"), "invoice-2024-311.pdf");
    assert_eq!(field("invoices/0207-open-items.eml", "attachments"), "offene Posten Jänner.csv");
    let html = field("support/0107-ticket-1051.eml", "body");
    assert!(html.contains("the invoice for our forty bedside lamps") && !html.contains("color"), "{html}");
    assert!(field("lists/0307-digest.eml", "body").contains("press one when an invoice arrives"));
}
