//! The limits of a run: limits on archives, the memory that the service lends for archives, and the bytes that are
//! read.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::nested::{stored, zip};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use strand_import::memory::{FREE_BYTES, Lender, Memory};
use strand_import::{ImportOptions, Silent, Summary};

/// Lends memory without a limit and records each loan.
#[derive(Default)]
struct Loans(Mutex<Lent>);

#[derive(Clone, Debug, Default)]
struct Lent {
    held: u64,
    most: u64,
    /// The paths of the documents that got a loan.
    paths: Vec<String>,
}

impl Lender for Loans {
    fn take(&self, bytes: u64, path: &[u8]) {
        let mut lent = self.0.lock().unwrap();
        lent.held += bytes;
        lent.most = lent.most.max(lent.held);
        lent.paths.push(String::from_utf8_lossy(path).into_owned());
    }
    fn give_back(&self, bytes: u64) {
        self.0.lock().unwrap().held -= bytes;
    }
    fn containers(&self, _: u64) {}
}

/// Imports the tree and asserts that all loans were returned. Returns the maximum number of bytes that were lent at
/// once.
fn lent(source: &Path) -> (Summary, Lent) {
    let (fake, loans) = (Fake::start(), Arc::new(Loans::default()));
    let lender: Arc<dyn Lender> = loans.clone();
    let options = ImportOptions { memory: Memory(Some(lender)), attachments: true, ..fake.options(source) };
    let summary = strand_import::run(&options, &mut Silent).expect("the import goes through");
    let lent = loans.0.lock().unwrap().clone();
    assert_eq!(lent.held, 0, "everything is given back");
    (summary, lent)
}

fn xz(level: u32, bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn memory_is_lent_before_an_archive_takes_it() {
    let text = mail("packed", "words");
    let mebibytes = |lent: &Lent| lent.most >> 20;
    let one = |name: &str, bytes: &[u8]| {
        let tree = Tree::new(&[]);
        tree.write(name, bytes);
        let (summary, lent) = lent(tree.path());
        assert_eq!(summary.failed, 0, "{name}: {:?}", summary.failed_documents);
        lent
    };
    // Small archives need no loan.
    let small = zip(&[stored("a.eml", text.as_bytes()), stored("b.eml", text.as_bytes())]);
    assert!(one("a.zip", &small).paths.is_empty());
    // The process that reads a PDF gets a loan of 10 MiB, whether it can read the document or not.
    let tree = Tree::new(&[("a.pdf", "%PDF-1.4\nno page")]);
    assert_eq!(mebibytes(&lent(tree.path()).1), 10);
    // A decoder takes what the stream's header says: `xz -9` names a dictionary of 64 MiB, `xz -6` one of 8 MiB. The
    // spool takes 4 MiB.
    for (level, expected) in [(6, 12), (9, 68)] {
        assert_eq!(mebibytes(&one("a.eml.xz", &xz(level, text.as_bytes()))), expected, "xz -{level}");
    }
    // When a later part of a stream needs more memory than the first, the stream is read again with the maximum.
    let both = [xz(0, b"From: a@b.example\n\n"), xz(9, b"words")].concat();
    assert_eq!(mebibytes(&one("a.eml.xz", &both)), 66 + 4);
    // An open archive holds its list of entries.
    let many: String =
        (0..20_000).map(|i| format!("From a@b.example 1:1\nSubject: {i}\n\nbody\n\n")).collect();
    let many = one("many.mbox", many.as_bytes());
    assert!(
        many.most + FREE_BYTES >= 20_000 * 700 && many.paths.iter().all(|p| p == "many.mbox"),
        "{many:?}"
    );
    // The outer and the inner archive hold their memory at the same time.
    let inner = xz(6, &zip(&[stored("in.eml.xz", &xz(6, text.as_bytes()))]));
    let deep = one("deep.zip", &zip(&[stored("deep.zip.xz", &inner)]));
    assert!(deep.paths.iter().any(|path| path == "deep.zip/deep.zip.xz/deep.zip/in.eml.xz"), "{deep:?}");
    // A mail with a large attachment is in memory together with its parsed parts.
    let attached = "a line of an attachment\n".repeat(100_000);
    let large = format!(
        "From: a@b.example\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\ntext\n--b\n\
         Content-Disposition: attachment; filename=a.txt\n\n{attached}\n--b--\n"
    );
    let large_bytes = large.len() as u64;
    assert!(one("large.eml", large.as_bytes()).most >= 5 * large_bytes);
}

#[test]
fn limits_on_archives_are_chosen_by_name() {
    let tree = Tree::new(&[]);
    let (one, two) = (mail("one", "1"), mail("two", "2"));
    let inner = zip(&[stored("one.eml", one.as_bytes())]);
    tree.write("a.zip", zip(&[stored("in.zip", &inner), stored("two.eml", two.as_bytes())]));
    let fake = Fake::start();
    let import = |limits: &str| {
        let options = ImportOptions { archives: limits.parse().unwrap(), ..fake.options(tree.path()) };
        let summary = strand_import::run(&options, &mut Silent).expect("the import goes through");
        let reasons: Vec<_> =
            summary.failed_documents.iter().map(|document| document.reason.clone()).collect();
        (summary.failed, reasons.join("; "))
    };
    let bytes = inner.len();
    for (limits, said) in [
        ("depth=1", "archives are nested more than 1 deep".to_owned()),
        ("depth=0", "archives are nested more than 0 deep".to_owned()),
        ("entries=2", "it holds more than 2 entries".to_owned()),
        (&format!("bytes={bytes}"), format!("it unpacks to more than {bytes} bytes")),
    ] {
        let (failed, reasons) = import(limits);
        assert!(failed > 0 && reasons.contains(&said), "{limits}: {reasons}");
    }
    assert_eq!(import("entries=3,bytes=100k").0, 0);
    assert_eq!(fake.ids(), ["a.zip", "a.zip/in.zip", "a.zip/in.zip/one.eml", "a.zip/two.eml"]);
}

/// An archive needs a few bytes for a path of a hundred folders, and a run needs memory for each of them.
#[test]
fn folders_of_an_archive_count_as_entries() {
    let tree = Tree::new(&[]);
    let (one, two) = (mail("one", "1"), mail("two", "2"));
    tree.write("a.zip", zip(&[stored("d/e/one.eml", one.as_bytes()), stored("d/e/two.eml", two.as_bytes())]));
    let fake = Fake::start();
    let import = |limits: &str| {
        let options = ImportOptions { archives: limits.parse().unwrap(), ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent).expect("the import goes through")
    };
    let summary = import("entries=3");
    assert!(summary.failed_documents[0].reason.contains("it holds more than 3 entries"), "{summary:?}");
    assert_eq!(import("entries=4").failed, 0);
    assert_eq!(fake.ids(), ["a.zip", "a.zip/d/e/one.eml", "a.zip/d/e/two.eml"]);
}

#[test]
fn a_changed_zip_is_read_only_in_its_directory_and_changed_entries() {
    const MEMBERS: usize = 40;
    const MEMBER_BYTES: usize = 50_000;
    let body = "words of a long mail\n".repeat(MEMBER_BYTES / 21);
    let mails = |changed: usize| -> Vec<String> {
        (0..MEMBERS).map(|i| mail(&format!("{i} {}", i == changed), &body)).collect()
    };
    let packed = |mails: &[String]| {
        let names: Vec<String> = (0..mails.len()).map(|i| format!("{i}.eml")).collect();
        zip(&names.iter().zip(mails).map(|(name, mail)| stored(name, mail.as_bytes())).collect::<Vec<_>>())
    };
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write("a.zip", packed(&mails(MEMBERS)));
    let first = fake.import(tree.path());
    assert!(first.bytes_read as usize > MEMBERS * MEMBER_BYTES, "{} bytes", first.bytes_read);
    tree.write("a.zip", packed(&mails(7)));
    let second = fake.import(tree.path());
    assert_eq!(counts(&second).0, [0, 2, 0, MEMBERS as u64 - 1, 0]);
    // The last 64 KiB of the archive are searched for the directory. The archive's own document reads the beginning.
    let most = MEMBER_BYTES + 4 * (64 << 10);
    assert!((second.bytes_read as usize) < most, "{} bytes", second.bytes_read);
    // An archive with an unchanged token is not read.
    assert_eq!(fake.import(tree.path()).bytes_read, 0);
}

#[test]
fn pipes_sockets_and_devices_in_a_folder_are_counted_and_left_out() {
    let tree = Tree::new(&[("fine.eml", &mail("fine", "f"))]);
    let made = std::process::Command::new("mkfifo").arg(tree.at("pipe.eml")).status();
    assert!(made.expect("mkfifo runs").success());
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("socket.zip")).expect("a socket");
    std::os::unix::fs::symlink("/dev/zero", tree.at("device.eml")).unwrap();
    let fake = Fake::start();
    let summary = fake.import(tree.path());
    assert_eq!((fake.ids(), summary.failed), (vec!["fine.eml".to_owned()], 0));
    assert_eq!((summary.skipped.special, summary.skipped.links), (2, 1));
}
