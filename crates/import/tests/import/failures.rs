//! Failed documents, files that change during the import, errors of the server, and missing sources.

use crate::fake::{Fake, Stored, counts};
use crate::files::{Tree, mail};
use strand_import::{ImportError, ImportOptions, Outcome, Progress, RemoteOptions, Silent};

#[test]
fn failed_documents_are_reported_again_without_being_opened_until_they_are_repaired() {
    let (fake, tree) =
        (Fake::start(), Tree::new(&[("a.eml", &mail("fine", "x")), ("broken.eml", "no header here\n")]));
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary), ([1, 0, 0, 0, 1], 2));
    assert_eq!(summary.failed_documents[0].path, b"broken.eml");
    assert_eq!(summary.failed_documents[0].reason, "there is no header field");
    let again = fake.import(tree.path());
    assert_eq!((counts(&again), again.failed_documents), (([0, 0, 0, 1, 1], 0), summary.failed_documents));
    tree.write("broken.eml", mail("repaired", "y"));
    assert_eq!(counts(&fake.import(tree.path())).0, [1, 0, 0, 1, 0]);
    // A document that becomes invalid is removed from the server.
    tree.write("a.eml", "");
    assert_eq!(counts(&fake.import(tree.path())).0, [0, 0, 0, 1, 1]);
    assert_eq!(fake.ids(), ["broken.eml"]);
    tree.remove("a.eml");
    assert_eq!(counts(&fake.import(tree.path())).0, [0, 0, 0, 1, 0]);
}

/// Changes the source once the run has listed the folder.
struct AfterListing<F: FnMut()>(F);
impl<F: FnMut()> Progress for AfterListing<F> {
    fn listed(&mut self, _: &[u8], _: u64) {
        (self.0)();
    }
}

#[test]
fn a_vanished_file_is_reported_and_removed_by_the_next_run() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "2"))]));
    fake.import(tree.path());
    tree.write("b.eml", mail("b", "changed"));
    tree.write("c.eml", mail("c", "3"));
    let mut progress = AfterListing(|| {
        tree.remove("b.eml");
        tree.remove("c.eml");
    });
    let summary = strand_import::run(&fake.options(tree.path()), &mut progress).unwrap();
    assert_eq!(counts(&summary).0, [0, 0, 0, 1, 2]);
    assert!(summary.failed_documents.iter().all(|d| d.reason.contains("vanished")));
    assert_eq!(fake.field("b.eml", "body").as_deref(), Some("2"), "what is not known to be gone stays");
    assert_eq!(counts(&fake.import(tree.path())).0, [0, 0, 1, 1, 0]);
    assert_eq!(fake.ids(), ["a.eml"]);
}

#[test]
fn a_file_written_after_the_listing_is_sent_and_read_again_by_the_next_run() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "2"))]));
    let mut progress = AfterListing(|| tree.write("b.eml", mail("b", "newer")));
    strand_import::run(&fake.options(tree.path()), &mut progress).unwrap();
    assert_eq!(fake.field("b.eml", "body").as_deref(), Some("newer"));
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 2, 0], 1));
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 2, 0], 0));
}

#[test]
fn folders_nested_too_deep_are_failed_documents() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
    let deep = "d/".repeat(strand_import::job::DEPTH_MAX + 1);
    tree.write(&format!("{deep}x.eml"), mail("deep", "x"));
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [1, 0, 0, 0, 1]);
    assert!(summary.failed_documents[0].reason.contains("deep"));
}

#[test]
fn a_folder_that_cannot_be_read_is_a_failed_document_and_keeps_its_documents() {
    use std::os::unix::fs::PermissionsExt;
    let (fake, tree) =
        (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("shut/b.eml", &mail("b", "2"))]));
    fake.import(tree.path());
    let allow = |mode| std::fs::set_permissions(tree.at("shut"), PermissionsExt::from_mode(mode)).unwrap();
    allow(0o000);
    let skip = std::fs::read_dir(tree.at("shut")).is_ok();
    if skip {
        println!("skipped: this user may read everything");
    } else {
        let summary = fake.import(tree.path());
        assert_eq!(counts(&summary).0, [0, 0, 0, 1, 1]);
        assert!(summary.failed_documents[0].reason.contains("shut"));
        assert_eq!(fake.ids(), ["a.eml", "shut/b.eml"]);
    }
    allow(0o755);
    assert_eq!(counts(&fake.import(tree.path())).0, [0, 0, 0, 2, 0]);
}

#[test]
fn a_key_of_another_type_is_a_failed_document_that_is_tried_again() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "2"))]));
    fake.state().keys.insert(b"d:a.eml".to_vec(), Stored::Text);
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [1, 0, 0, 0, 1]);
    assert!(summary.failed_documents[0].reason.contains("not a hash"), "{:?}", summary.failed_documents);
    assert_eq!(fake.state().keys[&b"d:a.eml"[..]], Stored::Text);
    fake.state().keys.remove(&b"d:a.eml"[..]);
    assert_eq!(counts(&fake.import(tree.path())), ([1, 0, 0, 1, 0], 1));
}

#[track_caller]
fn fails(result: Result<strand_import::Summary, ImportError>, said: &[&str]) {
    let text = result.expect_err("it must fail").to_string();
    said.iter().for_each(|s| assert!(text.contains(s), "{text:?} does not say {s:?}"));
}

#[test]
fn a_server_that_refuses_ends_the_run_and_the_next_one_completes_it() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "2"))]));
    fake.state().refuse = Some(("HSET", "OOM command not allowed when used memory > 'maxmemory'."));
    fails(fake.try_import(tree.path()), &["HSET", "OOM command not allowed"]);
    fake.state().refuse = Some(("IMPORT.VERSION", "ERR unknown command 'IMPORT.VERSION'"));
    fails(fake.try_import(tree.path()), &["IMPORT.VERSION", "unknown command"]);
    fake.state().refuse = None;
    assert_eq!(counts(&fake.import(tree.path())).0, [2, 0, 0, 0, 0]);
}

#[test]
fn authentication_is_sent_when_the_server_requires_it() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
    fake.state().password = Some("sesame");
    fails(fake.try_import(tree.path()), &["NOAUTH"]);
    let with = |password: &str| {
        let options = ImportOptions { password: Some(password.to_owned()), ..fake.options(tree.path()) };
        strand_import::run(&options, &mut Silent)
    };
    fails(with("wrong-secret"), &["AUTH", "WRONGPASS"]);
    assert!(!with("wrong-secret").unwrap_err().to_string().contains("wrong-secret"));
    assert_eq!(with("sesame").unwrap().added, 1);
}

#[test]
fn a_closed_port_and_a_server_of_another_protocol_are_errors() {
    let tree = Tree::new(&[("a.eml", &mail("a", "1"))]);
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let options = ImportOptions { address: address.clone(), ..ImportOptions::new(tree.path(), "d") };
    fails(strand_import::run(&options, &mut Silent), &["cannot connect", &address]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ImportOptions { address: listener.local_addr().unwrap().to_string(), ..options };
    let web = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    fails(
        strand_import::run(&options, &mut Silent),
        &["does not speak the Redis protocol", &options.address],
    );
    web.join().unwrap();
}

#[test]
fn a_missing_source_and_a_file_as_source_are_errors() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("file", "x")]));
    fails(fake.try_import(&tree.at("none")), &["none", "No such file"]);
    fails(fake.try_import(&tree.at("file")), &["file", "SOURCE is a file"]);
    assert!(fake.writes().is_empty());
}

#[test]
fn names_of_datasets_are_checked() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    for into in ["", "a b", "a:", "a\n", &"x".repeat(300)] {
        let options = ImportOptions { into: into.to_owned(), ..fake.options(tree.path()) };
        assert!(
            matches!(strand_import::run(&options, &mut Silent), Err(ImportError::Options(_))),
            "{into:?}"
        );
    }
    let options = ImportOptions { db: 1, ..fake.options(tree.path()) };
    fails(strand_import::run(&options, &mut Silent), &["--db 1", "--no-index"]);
}

#[test]
fn an_option_for_another_source_and_an_unknown_type_are_errors() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let of_others = [
        (
            RemoteOptions { password_file: Some("p".into()), ..Default::default() },
            ["--password-file", "only for a restic repository"],
        ),
        (RemoteOptions { region: Some("r".into()), ..Default::default() }, ["--region", "only for a bucket"]),
        (
            RemoteOptions { profile: Some("p".into()), ..Default::default() },
            ["--profile", "only for a bucket"],
        ),
        (RemoteOptions { anonymous: true, ..Default::default() }, ["--anonymous", "only for a bucket"]),
    ];
    for (remote, words) in of_others {
        let options = ImportOptions { remote, ..fake.options(tree.path()) };
        fails(strand_import::run(&options, &mut Silent), &words);
    }
    let filter = strand_import::FilterOptions { types_not: vec!["foo".to_owned()], ..Default::default() };
    let options = ImportOptions { filter, ..fake.options(tree.path()) };
    fails(strand_import::run(&options, &mut Silent), &["--type-not foo: unknown type; expected mail"]);
}

#[test]
fn a_damaged_record_is_an_error_that_changes_nothing() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("sub/a.eml", &mail("a", "1"))]));
    fake.import(tree.path());
    let mut blob = fake.state().versions[&b"d"[..]][&b"sub"[..]].clone();
    blob[20] ^= 1;
    fake.state().versions.get_mut(&b"d"[..]).unwrap().insert(b"sub".to_vec(), blob);
    fake.writes();
    fails(fake.try_import(tree.path()), &["sub", "checksum", "IMPORT.VERSION DEL"]);
    assert!(fake.writes().is_empty());
}

/// A server that answers each `IMPORT.VERSION GET` with the result of `answer` for the container's name.
fn hostile(answer: fn(&[u8]) -> Vec<u8>) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // The thread ends with its connection, at the latest with the process.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut input, mut block) = (Vec::new(), [0; 4096]);
        loop {
            let mut replies = Vec::new();
            while let Some((args, used)) = request(&input) {
                input.drain(..used);
                match args.as_slice() {
                    [_, get, _, name] if get == b"GET" => replies.extend(answer(name)),
                    [_, hold, _] if hold == b"HOLD" => replies.extend(b":1\r\n"),
                    [command, ..] if command == b"EXISTS" => replies.extend(b":0\r\n"),
                    _ => replies.extend(b"+OK\r\n"),
                }
            }
            let got = stream.write_all(&replies).and_then(|()| stream.read(&mut block)).unwrap_or(0);
            if got == 0 {
                return;
            }
            input.extend_from_slice(&block[..got]);
        }
    });
    address
}

/// Parses the first request in `bytes`, if it is complete. Returns the request and its length.
fn request(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let line = |at: usize| {
        let end = at + bytes[at..].windows(2).position(|w| w == b"\r\n")?;
        Some((std::str::from_utf8(&bytes[at + 1..end]).ok()?.parse::<usize>().ok()?, end + 2))
    };
    let (count, mut at) = (!bytes.is_empty()).then(|| line(0))??;
    let mut args = Vec::new();
    for _ in 0..count {
        let (len, from) = (at < bytes.len()).then(|| line(at))??;
        args.push(bytes.get(from..from + len)?.to_vec());
        at = from + len + 2;
    }
    (at <= bytes.len()).then_some((args, at))
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

#[test]
fn an_endlessly_nested_record_ends_the_run_with_an_error() {
    use strand_import::container::{ContainerBuilder, EntryKind};
    let address = hostile(|name| {
        if name.ends_with(b"/") {
            return b"$-1\r\n".to_vec();
        }
        let mut nest = ContainerBuilder::new(0);
        nest.push(EntryKind::Container, b"n", 0, b"t", []).unwrap();
        bulk(&nest.finish().unwrap())
    });
    let tree = Tree::new(&[]);
    let options = ImportOptions { address, index: false, ..ImportOptions::new(tree.path(), "d") };
    // The import has its own thread: endless recursion would overflow the stack and end all tests.
    let run = std::thread::spawn(move || strand_import::run(&options, &mut Silent));
    fails(run.join().unwrap(), &["nested more than 128 deep"]);
}

#[test]
fn a_reply_larger_than_any_container_ends_the_run_with_an_error() {
    type Answer = fn(&[u8]) -> Vec<u8>;
    let answers: [Answer; 3] = [
        |_| b"*100000000\r\n".to_vec(),
        |_| b"$536900000\r\n".to_vec(),
        |_| [&b"*2\r\n"[..], &bulk(&[0; 1000]), b"$536870912\r\n"].concat(),
    ];
    for answer in answers {
        let tree = Tree::new(&[]);
        let options =
            ImportOptions { address: hostile(answer), index: false, ..ImportOptions::new(tree.path(), "d") };
        fails(
            strand_import::run(&options, &mut Silent),
            &["does not speak the Redis protocol", &options.address],
        );
    }
}

#[test]
fn every_document_is_reported_to_the_progress() {
    #[derive(Default)]
    struct Outcomes(Vec<String>);
    impl Progress for Outcomes {
        fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
            self.0.push(format!("{} {outcome:?}", String::from_utf8_lossy(path)));
        }
    }
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", "broken")]));
    let mut outcomes = Outcomes::default();
    strand_import::run(&fake.options(tree.path()), &mut outcomes).unwrap();
    assert_eq!(outcomes.0, ["a.eml Added", "b.eml Failed(\"there is no header field\")"]);
}

#[test]
fn with_too_many_indexes_the_error_names_the_way_out() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
    fake.state().refuse = Some(("FT.CREATE", "Too many indexes: at most 64 are allowed"));
    let error = fake.try_import(tree.path()).expect_err("there is no room for an index").to_string();
    assert!(error.contains("at most 64 are allowed") && error.contains("--no-index"), "{error}");
    let without = ImportOptions { index: false, ..fake.options(tree.path()) };
    assert_eq!(strand_import::run(&without, &mut Silent).expect("nothing goes wrong").added, 1);
}
