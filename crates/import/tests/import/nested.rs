//! Archives in archives: their documents, the cost of a change, and the errors for hostile archives.

use crate::fake::{Fake, counts, interrupted};
use crate::files::{Tree, mail};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use strand_import::source::archive::limits;
use strand_import::{ImportOptions, Silent, Summary};

/// One entry of a zip archive that a test writes.
pub struct Entry<'a> {
    name: &'a str,
    bytes: &'a [u8],
    deflated: bool,
}

pub fn stored<'a>(name: &'a str, bytes: &'a [u8]) -> Entry<'a> {
    Entry { name, bytes, deflated: false }
}

pub fn deflated<'a>(name: &'a str, bytes: &'a [u8]) -> Entry<'a> {
    Entry { name, bytes, deflated: true }
}

pub fn zip(entries: &[Entry<'_>]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut crc = flate2::Crc::new();
        crc.update(entry.bytes);
        let packed = match entry.deflated {
            false => entry.bytes.to_vec(),
            true => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
                encoder.write_all(entry.bytes).unwrap();
                encoder.finish().unwrap()
            }
        };
        let mut facts = vec![20, 0, 0, 0, if entry.deflated { 8 } else { 0 }, 0, 0, 0, 0x21, 0];
        facts.extend(crc.sum().to_le_bytes());
        facts.extend((packed.len() as u32).to_le_bytes());
        facts.extend((entry.bytes.len() as u32).to_le_bytes());
        facts.extend((entry.name.len() as u16).to_le_bytes());
        facts.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&facts);
        directory.extend([0; 6]);
        directory.extend([0, 0, 0xa4, 0x81]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(entry.name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&facts);
        out.extend(entry.name.as_bytes());
        out.extend(packed);
    }
    let at = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([(entries.len() as u16).to_le_bytes(), (entries.len() as u16).to_le_bytes()].concat());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// A tar archive of these files, made by the tar command.
pub fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let tree = Tree::new(files);
    let output =
        std::process::Command::new("tar").arg("cf").arg("-").arg("-C").arg(tree.path()).arg(".").output();
    let output = output.expect("tar runs");
    assert!(output.status.success());
    output.stdout
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn mailbox(messages: &[&str]) -> String {
    let one = |text: &&str| format!("From ada@example.org Mon Jan  6 10:00:00 2025\n{}\n", mail(text, text));
    messages.iter().map(one).collect()
}

pub fn with_attachment(subject: &str, name: &str, text: &str) -> String {
    format!(
        "From: a@b.example\nSubject: {subject}\nMessage-ID:\n <{subject}@b.example>\nMIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=x\n\n\
         --x\n\nsee there\n--x\nContent-Type: application/octet-stream; name=\"{name}\"\n\
         Content-Disposition: attachment; filename=\"{name}\"\n\n{text}\n--x--\n"
    )
}

fn import_all(fake: &Fake, source: &Path) -> Summary {
    let options = ImportOptions { attachments: true, ..fake.options(source) };
    strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
}

#[test]
fn every_kind_of_archive_holds_documents() {
    let tree = Tree::new(&[("plain.eml", &mail("plain", "p"))]);
    let (one, two) = (mail("one", "1"), mail("two", "2"));
    let long = mail("long", &"words of a long mail\n".repeat(20_000));
    tree.write(
        "a.zip",
        zip(&[
            stored("in/one.eml", one.as_bytes()),
            deflated("in/deep/two.eml", two.as_bytes()),
            deflated("long.eml", long.as_bytes()),
            stored("in/one.eml", b"twice"),
            stored("empty/", b""),
        ]),
    );
    let packed =
        tar(&[("x/three.eml", &mail("three", "3")), (&format!("{}/four.txt", "long-name".repeat(20)), "4")]);
    tree.write("b.tar", &packed);
    tree.write("b.tgz", gzip(&packed));
    tree.write("b.tar.zst", zstd::encode_all(&packed[..], 1).unwrap());
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&packed).unwrap();
    tree.write("b.tar.xz", xz.finish().unwrap());
    tree.write("note.eml.gz", gzip(mail("packed", "gz").as_bytes()));
    tree.write("box.mbox", mailbox(&["m1", "m2", "m2"]));
    tree.write("single", mailbox(&["alone"]));
    let fake = Fake::start();
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [9 + 4 + 4 * 2 + 1 + 3, 0, 0, 0, 0], "{:?}", summary.failed_documents);
    let field = |id: &str, name: &str| fake.field(id, name).unwrap_or_default();
    assert_eq!(field("a.zip", "kind"), "archive");
    assert_eq!(field("a.zip/in/one.eml", "subject"), "one");
    assert_eq!(field("a.zip/in/deep/two.eml", "subject"), "two");
    assert_eq!(field("a.zip/in/deep/two.eml", "parent"), "a.zip");
    assert!(field("a.zip/long.eml", "body").len() > 400_000);
    assert!(fake.ids().contains(&"a.zip/in/one.eml~2".to_owned()));
    for name in ["b.tar", "b.tgz", "b.tar.zst", "b.tar.xz"] {
        assert_eq!(field(&format!("{name}/x/three.eml"), "subject"), "three", "{name}");
        assert_eq!(field(&format!("{name}/{}/four.txt", "long-name".repeat(20)), "size"), "1", "{name}");
    }
    assert_eq!(field("note.eml.gz/note.eml", "subject"), "packed");
    assert_eq!((field("box.mbox", "kind"), field("single", "kind")), ("mailbox".into(), "mail".into()));
    let messages: Vec<_> = fake.ids().into_iter().filter(|id| id.starts_with("box.mbox/")).collect();
    assert!(messages.len() == 3 && messages.iter().any(|id| id.ends_with("~2")), "{messages:?}");
    fake.writes();
    let again = fake.import(tree.path());
    assert_eq!((counts(&again), fake.writes()), (([0, 0, 0, 25, 0], 0), vec![]));
    // Documents of an archive that the server lost are sent again.
    fake.state().keys.remove(&b"d:b.tgz/x/three.eml"[..]);
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 0, 0, 24, 0]);
    // An appended message adds one document. The other messages keep their ids and are not read.
    tree.write("box.mbox", mailbox(&["m1", "m2", "m2", "m3"]));
    let appended = fake.import(tree.path());
    assert_eq!(counts(&appended), ([1, 1, 0, 24, 0], 2));
    // An archive is replaced by a folder, another one is gone: the documents of both archives are removed.
    tree.remove("b.tar");
    tree.write("b.tar/five.eml", mail("five", "5"));
    tree.remove("b.tar.zst");
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 0, 3 + 3, 20, 0]);
    assert!(!fake.ids().iter().any(|id| id.starts_with("b.tar.zst")));
    tree.remove("b.tar");
    tree.write("b.tar", &packed);
    assert_eq!(counts(&fake.import(tree.path())).0, [3, 0, 1, 20, 0]);
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn a_changed_attachment_in_a_mailbox_in_a_zip_in_a_repository_is_found() {
    let tree = Tree::new(&[]);
    let write = |text: &str| {
        let mails = ["first", "second"].map(|subject| {
            let text = if subject == "second" { text } else { "same" };
            format!(
                "From a@b.example Mon Jan  6 10:00:00 2025\n{}\n",
                with_attachment(subject, "plan.txt", text)
            )
        });
        let inner = zip(&[deflated("boxes/all.mbox", mails.concat().as_bytes()), stored("other.txt", b"x")]);
        tree.write("deep/er/outer.zip", zip(&[stored("inner.zip", &inner)]));
    };
    let git = |args: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-C"])
            .arg(tree.path())
            .args(args)
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
            .status();
        assert!(done.expect("git runs").success());
    };
    git(&["init", "-q", "-b", "main"]);
    write("old plan");
    tree.write("README", "words");
    tree.write("side/note.eml", mail("note", "n"));
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "one"]);
    write("new plan");
    git(&["commit", "-q", "-a", "-m", "two"]);
    let at =
        |revision: &str| std::path::PathBuf::from(format!("git+file://{}@{revision}", tree.path().display()));
    let fake = Fake::start();
    // Both zips, the mailbox, two mails with an attachment each, other.txt, README and the note.
    assert_eq!(counts(&import_all(&fake, &at("main~1"))).0, [10, 0, 0, 0, 0]);
    let attachments =
        || -> Vec<String> { fake.ids().into_iter().filter(|id| id.ends_with(".eml/plan.txt")).collect() };
    let before = attachments();
    assert_eq!(before.len(), 2);
    assert_eq!(fake.field(&before[0], "parent").as_deref(), before[0].strip_suffix("/plan.txt"));
    let was = fake.state().keys.clone();
    let summary = import_all(&fake, &at("main"));
    // The attachment is one update. Both zips count, because they were packed to another size, and the mail, because
    // its bytes are others. Nothing is added or removed, and only the hashes of the attachment and the zips are others.
    assert_eq!(counts(&summary).0, [0, 4, 0, 6, 0], "{summary}");
    assert_eq!(attachments(), before);
    let now = fake.state().keys.clone();
    let changed: Vec<_> =
        now.iter().filter(|(key, value)| was.get(*key) != Some(value)).map(|(key, _)| key).collect();
    assert!(changed.len() == 3 && now.len() == was.len(), "{changed:?}");
    let again = import_all(&fake, &at("main"));
    assert_eq!((counts(&again), again.containers), (([0, 0, 0, 10, 0], 0), 1));
    let fresh = Fake::start();
    import_all(&fresh, &at("main"));
    assert_eq!(fake.state().keys, fresh.state().keys);
    // Without the option for attachments, the attachments are removed.
    assert_eq!(counts(&fake.import(&at("main~1"))).0[2], 2);
    assert!(attachments().is_empty());
}

/// A mailbox of these messages, after a message with an attachment of 17 MB.
fn large_mailbox(ids: impl IntoIterator<Item = u32>) -> Vec<u8> {
    const FROM: &str = "From ada@example.org Mon Jan  6 10:00:00 2025\n";
    let attached = with_attachment("large", "a.bin", &"a line of a long attachment\n".repeat(600_000));
    let mut mailbox = format!("{FROM}{attached}\n");
    for id in ids {
        mailbox += &format!("{FROM}Message-ID: <{id}@example.org>\nSubject: {id}\n\nbody\n\n");
    }
    mailbox.into_bytes()
}

#[test]
fn a_grown_mailbox_is_read_from_its_previous_end() {
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    let import = || counts(&fake.import(tree.path())).0;
    tree.write("box.mbox", large_mailbox(0..10));
    assert_eq!(import(), [12, 0, 0, 0, 0]);
    // The change keeps the length and lies between the sampled bytes: a run that reads from the previous end misses it.
    let mut bytes = large_mailbox(0..11);
    let at = bytes.windows(4).skip(bytes.len() / 2 / 1000 * 1000).position(|w| w == b"long").expect("a line");
    let at = at + bytes.len() / 2 / 1000 * 1000;
    bytes[at..at + 4].copy_from_slice(b"LONG");
    tree.write("box.mbox", &bytes);
    assert_eq!(import(), [1, 1, 0, 11, 0]);
    // A mailbox of unchanged length is read as a whole.
    tree.write("box.mbox", &bytes);
    assert_eq!(import(), [0, 1, 0, 12, 0]);
    // Several messages have one Message-ID, before and after the previous end. Two of them have equal bytes.
    let mut again = large_mailbox([5, 20, 20]);
    again.drain(..large_mailbox([]).len());
    bytes.extend(again);
    tree.write("box.mbox", &bytes);
    assert_eq!(import(), [3, 1, 0, 12, 0]);
    // One message is removed while others are added, so the previous end is in another place.
    tree.write("box.mbox", large_mailbox((1..11).chain([5, 20, 20, 30, 31])));
    assert_eq!(import(), [2, 2, 1, 13, 0]);
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn a_document_that_the_server_lost_is_found_in_the_part_of_a_mailbox_that_is_not_read() {
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    tree.write("box.mbox", large_mailbox(0..10));
    fake.import(tree.path());
    let lost = fake.ids().into_iter().rfind(|id| id.starts_with("box.mbox/")).expect("a message");
    fake.state().keys.remove(format!("d:{lost}").as_bytes());
    tree.write("box.mbox", large_mailbox(0..11));
    fake.import(tree.path());
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn a_run_interrupted_while_a_mailbox_grows_leaves_each_message_once() {
    let (first, second) = (Tree::new(&[]), Tree::new(&[]));
    first.write("box.mbox", large_mailbox(0..3));
    second.write("box.mbox", large_mailbox(0..5));
    let cuts = cut_at_every_command(&first, &second);
    assert!(cuts > 4, "only {cuts} cuts");
}

#[test]
fn a_run_interrupted_at_any_command_loses_and_leaves_nothing() {
    let (first, second) = (Tree::new(&[]), Tree::new(&[]));
    let (one, two, new) = (mail("one", "1"), mail("two", "2"), mail("two", "new"));
    first.write("a.zip", zip(&[stored("x/one.eml", one.as_bytes()), stored("two.eml", two.as_bytes())]));
    first.write("gone.tar", tar(&[("y/three.eml", &mail("three", "3"))]));
    first.write("turns", mailbox(&["t1", "t2"]));
    first.write("plain.eml", &one);
    second.write("a.zip", zip(&[stored("two.eml", new.as_bytes()), stored("z/four.eml", one.as_bytes())]));
    second.write("box.mbox", mailbox(&["m1", "m2"]));
    second.write("turns", "no mailbox");
    second.write("plain.eml", &one);
    let cuts = cut_at_every_command(&first, &second);
    assert!(cuts > 20, "only {cuts} cuts");
}

/// Imports `first`, then `second`, and interrupts the second run everywhere ([`interrupted`]). Each time a further run
/// of either tree must lead to what the tree holds. Returns the number of interrupted runs.
fn cut_at_every_command(first: &Tree, second: &Tree) -> usize {
    let base = Fake::start();
    base.import(first.path());
    let before = base.state().clone();
    let expected = [first, second].map(|tree| {
        let fake = Fake::start();
        fake.import(tree.path());
        let keys = fake.state().keys.clone();
        (tree, keys)
    });
    let states = interrupted(&before, |fake| fake.try_import(second.path()));
    for (cut, state) in states.iter().enumerate() {
        for (tree, keys) in &expected {
            let fake = Fake::with(state.clone());
            fake.import(tree.path());
            assert_eq!(&fake.state().keys, keys, "cut at {cut}");
            let names: Vec<_> = fake.state().versions[&b"d"[..]].keys().cloned().collect();
            assert!(names.iter().all(|n| !n.ends_with(b"/")), "no intent is left: {names:?}");
        }
    }
    states.len() - 1
}

#[test]
fn hostile_archives_are_refused_by_name() {
    let tree = Tree::new(&[("fine.eml", &mail("fine", "f"))]);
    let zeros = vec![0; 8 << 20];
    tree.write("bomb.zip", zip(&[deflated("zeros.eml", &zeros)]));
    tree.write("bomb.gz", gzip(&zeros));
    let mut overlapping =
        zip(&[stored("a.eml", b"From: a@b.example\n\nx"), stored("b.eml", b"From: a@b.example\n\ny")]);
    let second = memchr::memmem::rfind(&overlapping, b"PK\x01\x02").unwrap();
    overlapping[second + 42..second + 46].fill(0);
    tree.write("overlapping.zip", overlapping);
    let mut encrypted = zip(&[stored("secret.eml", b"From: a@b.example\n\nx")]);
    let directory = memchr::memmem::rfind(&encrypted, b"PK\x01\x02").unwrap();
    encrypted[directory + 8] |= 1;
    tree.write("encrypted.zip", encrypted);
    let mut lying = zip(&[stored("lying.eml", b"From: a@b.example\n\nx")]);
    let at = memchr::memmem::find(&lying, b"\n\nx").unwrap();
    lying[at + 2] = b'y';
    tree.write("lying.zip", lying);
    tree.write(
        "out.zip",
        zip(&[stored("../../etc/passwd", b"x"), stored("/abs/./olute.eml", mail("abs", "a").as_bytes())]),
    );
    let whole = zip(&[stored("a.eml", mail("a", "1").as_bytes())]);
    tree.write("cut.zip", &whole[..whole.len() - 5]);
    tree.write("many.mbox", "From a 1:1\n\n".repeat(limits::ENTRIES_MAX as usize + 1));
    let nested = (0..=limits::DEPTH_MAX)
        .fold(mail("deep", "d").into_bytes(), |inner, i| zip(&[stored(&format!("{i}.zip"), &inner)]));
    tree.write("nested.zip", nested);
    let fake = Fake::start();
    let summary = fake.import(tree.path());
    let reason = |path: &str| {
        let found = summary.failed_documents.iter().find(|d| d.path.starts_with(path.as_bytes()));
        found.map_or(String::new(), |d| d.reason.clone())
    };
    for (path, said) in [
        ("bomb.zip/zeros.eml", "more than 100 times"),
        ("bomb.gz", "more than 100 times"),
        ("overlapping.zip", "overlap"),
        ("encrypted.zip/secret.eml", "encrypted"),
        ("lying.zip/lying.eml", "differs from what the archive says"),
        ("out.zip/../../etc/passwd", "leads out of the archive"),
        ("cut.zip", "damaged"),
        ("many.mbox", "more than 100000 entries"),
        ("nested.zip/", "nested more than 16 deep"),
    ] {
        assert!(reason(path).contains(said), "{path}: {:?}", reason(path));
    }
    assert_eq!(fake.field("out.zip/abs/olute.eml", "subject").as_deref(), Some("abs"));
    assert_eq!(fake.field("fine.eml", "subject").as_deref(), Some("fine"));
    assert_eq!(fake.field("cut.zip", "kind").as_deref(), Some("archive"), "its name and size stay");
    // The next run reports the errors again, and imports the archives that were repaired.
    assert_eq!(fake.import(tree.path()).failed, summary.failed);
    tree.write("cut.zip", &whole);
    assert_eq!(fake.import(tree.path()).failed, summary.failed - 1);
    assert_eq!(fake.field("cut.zip/a.eml", "subject").as_deref(), Some("a"));
}

/// The checksum of a zip's entry is compared also when the reader of the entry knows its size, and stops there.
#[test]
fn archives_in_a_zip_are_compared_with_its_checksums() {
    let inner = tar(&[("a.eml", &mail("a", "one")), ("b.eml", &mail("b", "two"))]);
    let mailbox = mailbox(&["m1", "m2"]).into_bytes();
    for (name, bytes, word) in [("in.tar", &inner, &b"one"[..]), ("in.mbox", &mailbox, &b"m1"[..])] {
        let tree = Tree::new(&[]);
        let mut zip = zip(&[stored(name, bytes)]);
        let at = zip.windows(word.len()).position(|found| found == word).expect("stored as it is");
        zip[at] ^= 1;
        tree.write("x.zip", &zip);
        let (fake, mut failed) = (Fake::start(), 0);
        for _ in 0..2 {
            let summary = fake.import(tree.path());
            failed = summary.failed;
            let reason = summary.failed_documents.first().map_or("", |document| &document.reason);
            assert!(reason.contains("differs from what the archive says"), "{name}: {reason:?}");
        }
        assert!(failed > 0 && !fake.ids().iter().any(|id| id.ends_with(".eml")), "{name}: {:?}", fake.ids());
    }
}

/// A tar that is still being copied. Nothing says that the documents behind the cut are gone.
#[test]
fn a_tar_that_is_cut_off_keeps_its_documents() {
    let long = format!("{}.txt", "long".repeat(40));
    let whole = tar(&[("a.txt", "one"), (&long, "two"), ("z.txt", "three")]);
    let zeros = whole.chunks(512).rposition(|block| block.iter().any(|b| *b != 0)).expect("it has files");
    let end = (zeros + 1) * 512;
    // The cut behind the header of the long name is on the border of two blocks.
    let behind_name =
        whole.chunks(512).position(|block| block.starts_with(b"././@LongLink")).expect("GNU tar") + 2;
    let mut cuts: Vec<usize> = (0..end).step_by(397).filter(|cut| cut % 512 != 0).collect();
    cuts.push(behind_name * 512);
    let tree = Tree::new(&[]);
    tree.write("t.tar", &whole);
    let fake = Fake::start();
    assert_eq!(fake.import(tree.path()).failed, 0);
    let ids = fake.ids();
    assert_eq!(ids.len(), 4);
    for cut in cuts {
        tree.write("t.tar", &whole[..cut]);
        let summary = fake.import(tree.path());
        assert!(
            summary.failed > 0 && summary.removed == 0 && fake.ids() == ids,
            "{cut} of {end}: {summary:?}"
        );
    }
    // Some programs write no blocks of zeros.
    tree.write("t.tar", &whole[..end]);
    assert_eq!((fake.import(tree.path()).failed, fake.ids()), (0, ids));
}

#[test]
fn links_pipes_and_paths_out_of_a_tar_are_skipped() {
    let packed = Tree::new(&[]);
    for name in ["real.eml", "up.eml", "abs.eml"] {
        packed.write(name, mail(name, "words"));
    }
    std::os::unix::fs::symlink("/etc/passwd", packed.at("out")).unwrap();
    std::fs::hard_link(packed.at("real.eml"), packed.at("twin.eml")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(packed.at("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    let tar = std::process::Command::new("tar")
        .args(["cf", "-", "-P", "--transform", "s,^up,../../up,", "--transform", "s,^abs,/abs,", "-C"])
        .arg(packed.path())
        .args(["real.eml", "up.eml", "abs.eml", "out", "twin.eml", "pipe"])
        .output()
        .expect("tar runs");
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    let tree = Tree::new(&[]);
    tree.write("t.tar", tar.stdout);
    let fake = Fake::start();
    let summary = fake.import(tree.path());
    assert_eq!(fake.ids(), ["t.tar", "t.tar/abs.eml", "t.tar/real.eml", "t.tar/twin.eml"]);
    assert_eq!(fake.field("t.tar/twin.eml", "subject").as_deref(), Some("real.eml"), "a hard link");
    assert_eq!((summary.skipped.links, summary.skipped.special, summary.failed), (1, 1, 1));
    assert_eq!(summary.failed_documents[0].path, b"t.tar/../../up.eml");
    assert!(summary.failed_documents[0].reason.contains("leads out of the archive"));
}

#[test]
fn damaged_archives_never_end_a_run() {
    let mails = [mail("a", "1"), mail("b", "2")];
    let archives = [
        ("x.zip", zip(&[deflated("a.eml", mails[0].as_bytes()), stored("d/b.eml", mails[1].as_bytes())])),
        ("x.tar", tar(&[("a.eml", &mails[0]), ("d/b.eml", &mails[1])])),
        ("x.tgz", gzip(&tar(&[("a.eml", &mails[0])]))),
        ("x.mbox", mailbox(&["m1", "m2"]).into_bytes()),
    ];
    let fake = Fake::start();
    let tree = Tree::new(&[("stays.eml", &mail("stays", "0"))]);
    let mut state = 99u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for _ in 0..40 {
        for (name, bytes) in &archives {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random(6) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            if random(3) == 0 {
                bytes.truncate(random(bytes.len()));
            }
            tree.write(name, bytes);
        }
        fake.import(tree.path());
    }
    archives.iter().for_each(|(name, _)| tree.remove(name));
    fake.import(tree.path());
    assert_eq!(fake.ids(), ["stays.eml"]);
}

/// GNU tar writes a sparse file as a map and the parts that have data. Its content is not in one piece, so it is left
/// out. What follows it in the archive is read.
#[test]
fn sparse_files_in_a_tar_are_skipped_and_later_members_are_read() {
    let tree = Tree::new(&[("b-after.eml", &mail("after", "text"))]);
    let path = tree.path().join("a-sparse");
    let mut sparse = std::fs::File::create(&path).unwrap();
    // Four parts fit into the header of GNU's old format. The others are in blocks behind the header.
    for part in 0..60u64 {
        sparse.seek(SeekFrom::Start(part << 20)).unwrap();
        sparse.write_all(b"data").unwrap();
    }
    drop(sparse);
    for format in ["gnu", "posix"] {
        let done = std::process::Command::new("tar")
            .args(["--sparse", &format!("--format={format}"), "-cf", "-", "-C"])
            .args([tree.path(), Path::new("a-sparse"), Path::new("b-after.eml")])
            .output()
            .expect("tar runs");
        assert!(done.status.success() && done.stdout.len() < 10 << 20, "the file system keeps the holes");
        let packed = Tree::new(&[]);
        packed.write("x.tar", &done.stdout);
        let fake = Fake::start();
        let summary = fake.import(packed.path());
        assert_eq!(counts(&summary).0, [2, 0, 0, 0, 0], "{format}: {:?}", summary.failed_documents);
        assert_eq!(fake.ids(), ["x.tar", "x.tar/b-after.eml"], "{format}");
    }
}
