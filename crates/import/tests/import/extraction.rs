//! Documents other than mail: their text, and the fields that the documents name themselves.

use crate::fake::{Fake, State, Stored, counts};
use crate::files::{Tree, mail};
use crate::nested::{deflated, zip};
use std::collections::BTreeMap;
use strand_import::container::{Container, ContainerBuilder};
use strand_import::extract::child::ExtractorProgram;
use strand_import::{ImportMode, ImportOptions, Silent};

#[test]
fn text_pages_and_tables_are_read() {
    let fake = Fake::start();
    let tree = Tree::new(&[
        (
            "page.html",
            "<html><head><title>A page</title></head><body><p>One</p><p>two &amp; three</p></body></html>",
        ),
        ("table.csv", "name,age\nAda,36\nBo,7\n"),
        ("notes.txt", "just text"),
        ("empty.txt", ""),
    ]);
    tree.write("latin.txt", b"Gr\xf6\xdfe der B\xe4ume in M\xfcnchen \xfcber H\xe4user");
    tree.write("data.bin", [0u8, 1, 2, 3, 0, 255].repeat(100));
    assert_eq!(counts(&fake.import(tree.path())).0, [6, 0, 0, 0, 0]);
    for (id, field, value) in [
        ("page.html", "kind", Some("html")),
        ("page.html", "title", Some("A page")),
        ("page.html", "body", Some("One\ntwo & three")),
        ("table.csv", "kind", Some("table")),
        ("table.csv", "columns", Some("name\nage")),
        ("table.csv", "rows", Some("2")),
        ("table.csv", "body", Some("name\tage\nAda\t36\nBo\t7")),
        ("notes.txt", "body", Some("just text")),
        ("latin.txt", "body", Some("Gr\u{f6}\u{df}e der B\u{e4}ume in M\u{fc}nchen \u{fc}ber H\u{e4}user")),
        ("empty.txt", "body", None),
        ("data.bin", "kind", Some("file")),
        ("data.bin", "body", None),
    ] {
        assert_eq!(fake.field(id, field).as_deref(), value, "{id} {field}");
    }
    // A touched file with equal bytes is not sent. A file with other bytes of the same size is sent.
    tree.write("notes.txt", "just text");
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 6, 0], 1));
    tree.write("notes.txt", "just TEXT");
    assert_eq!(counts(&fake.import(tree.path())), ([0, 1, 0, 5, 0], 1));
    assert_eq!(fake.field("notes.txt", "body").as_deref(), Some("just TEXT"));
}

fn hash(fake: &Fake, id: &str) -> BTreeMap<String, String> {
    let state = fake.state();
    let Some(Stored::Hash(hash)) = state.keys.get(format!("d:{id}").as_bytes()) else { panic!("no {id}") };
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    hash.iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[test]
fn a_documents_own_fields_are_removed_when_it_has_others() {
    let fake = Fake::start();
    let tree = Tree::new(&[("a.json", r#"{"one":1,"two":{"deep":"x"}}"#), ("b.json", r#"{"b":true}"#)]);
    fake.import(tree.path());
    let one = hash(&fake, "a.json");
    assert_eq!(
        (one["json.one"].as_str(), one["json.two.deep"].as_str(), one["kind"].as_str()),
        ("1", "x", "json")
    );
    tree.write("a.json", r#"{"two":{"deep":"y"},"three":[1,2]}"#);
    assert_eq!(counts(&fake.import(tree.path())).0, [0, 1, 0, 1, 0]);
    let two = hash(&fake, "a.json");
    assert!(
        !two.contains_key("json.one") && two["json.two.deep"] == "y" && two["json.three"] == "1\n2",
        "{two:?}"
    );
    // The file is no valid JSON any more: its text is kept, the run reports the problem, and its fields are removed.
    tree.write("a.json", "{ broken");
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [0, 0, 0, 1, 1]);
    assert!(summary.failed_documents[0].reason.contains("not valid JSON"), "{:?}", summary.failed_documents);
    let broken = hash(&fake, "a.json");
    assert!(
        broken.keys().all(|name| !name.starts_with("json.")) && broken["body"] == "{ broken",
        "{broken:?}"
    );
    assert_eq!(counts(&fake.import(tree.path())), ([0, 0, 0, 1, 1], 0), "it stays a failure");
    let fresh = Fake::start();
    fresh.import(tree.path());
    assert_eq!(fake.state().keys, fresh.state().keys);
}

#[test]
fn a_foreign_key_is_kept_and_a_stale_hash_is_replaced() {
    let stale = BTreeMap::from([(b"json.old".to_vec(), b"1".to_vec())]);
    let keys =
        BTreeMap::from([(b"d:a.json".to_vec(), Stored::Text), (b"d:b.json".to_vec(), Stored::Hash(stale))]);
    let fake = Fake::with(State { keys, ..State::default() });
    let tree = Tree::new(&[("a.json", r#"{"a":1}"#), ("b.json", r#"{"b":2}"#)]);
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [1, 0, 0, 0, 1]);
    assert!(summary.failed_documents[0].reason.contains("is not a hash"));
    assert_eq!(fake.state().keys[&b"d:a.json"[..]], Stored::Text);
    let b = hash(&fake, "b.json");
    assert!(b["json.b"] == "2" && !b.contains_key("json.old"), "{b:?}");
}

#[test]
fn office_files_are_read_and_broken_ones_keep_their_names() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let word = br#"<?xml version="1.0"?><w:document xmlns:w="w"><w:body>
        <w:p><w:r><w:t>Hello &amp; </w:t></w:r><w:r><w:t>goodbye</w:t></w:r></w:p>
        <w:p><w:r><w:t>second</w:t><w:tab/><w:t>line</w:t></w:r></w:p></w:body></w:document>"#;
    tree.write(
        "a.docx",
        zip(&[deflated("[Content_Types].xml", b"<x/>"), deflated("word/document.xml", word)]),
    );
    let slide = |text: &str| {
        format!("<p:sld xmlns:a='a' xmlns:p='p'><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>")
    };
    let (two, ten) = (slide("slide two"), slide("slide ten"));
    let slides = [
        deflated("ppt/slides/slide10.xml", ten.as_bytes()),
        deflated("ppt/slides/slide2.xml", two.as_bytes()),
    ];
    tree.write("b.pptx", zip(&slides));
    let strings = b"<sst><si><t>name</t></si><si><r><t>A</t></r><r><t>da</t></r></si></sst>";
    let sheet = b"<worksheet><sheetData>
        <row><c t='s'><v>0</v></c><c><v>12.5</v></c></row>
        <row><c t='s'><v>1</v></c><c t='inlineStr'><is><t>in</t></is></c></row></sheetData></worksheet>";
    let parts = [deflated("xl/sharedStrings.xml", strings), deflated("xl/worksheets/sheet1.xml", sheet)];
    tree.write("c.xlsx", zip(&parts));
    let open = b"<office:document-content xmlns:office='o' xmlns:text='t'>
        <text:h>Head</text:h><text:p>An <text:span>open</text:span> one</text:p></office:document-content>";
    tree.write("d.odt", zip(&[deflated("content.xml", open)]));
    let zeros = vec![b' '; 30 << 20];
    tree.write("bomb.docx", zip(&[deflated("word/document.xml", &[&b"<w:t>"[..], &zeros].concat())]));
    tree.write("cut.docx", &zip(&[deflated("word/document.xml", word)])[..100]);
    let summary = fake.import(tree.path());
    assert_eq!(counts(&summary).0, [4, 0, 0, 0, 2], "{:?}", summary.failed_documents);
    for (id, body) in [
        ("a.docx", "Hello & goodbye\nsecond\tline"),
        ("b.pptx", "slide two\nslide ten"),
        ("c.xlsx", "name\t12.5\nAda\tin"),
        ("d.odt", "Head\nAn open one"),
    ] {
        assert_eq!(fake.field(id, "body").as_deref(), Some(body), "{id}");
        assert_eq!(fake.field(id, "kind").as_deref(), Some("office"), "{id}");
    }
    for id in ["bomb.docx", "cut.docx"] {
        assert_eq!(fake.field(id, "name").as_deref(), Some(id));
    }
    assert!(summary.failed_documents[0].reason.contains("100 times"), "{:?}", summary.failed_documents);
}

#[test]
fn an_attachment_is_a_document_of_its_own_with_its_text() {
    let fake = Fake::start();
    let attached = "From: a@b.example\nSubject: s\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n\
        --x\n\nsee there\n--x\nContent-Type: text/csv; name=\"t.csv\"\n\
        Content-Disposition: attachment; filename=\"t.csv\"\n\nname,age\nAda,36\n--x--\n";
    let tree = Tree::new(&[("m.eml", attached), ("n.eml", &mail("n", "n"))]);
    let options = ImportOptions { attachments: true, ..fake.options(tree.path()) };
    strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
    assert_eq!(fake.ids(), ["m.eml", "m.eml/t.csv", "n.eml"]);
    assert_eq!(fake.field("m.eml/t.csv", "parent").as_deref(), Some("m.eml"));
    assert_eq!(fake.field("m.eml/t.csv", "columns").as_deref(), Some("name\nage"));
}

/// A newer version of strand extracts every document again. One that this machine cannot extract keeps its text.
#[test]
fn a_document_that_this_machine_cannot_extract_keeps_the_text_of_equal_bytes() {
    let (fake, tree) = (Fake::start(), Tree::new(&[]));
    let open = |text: &str| {
        let content = format!(
            "<office:document-content xmlns:office='o' xmlns:text='t'><text:p>{text}</text:p></office:document-content>"
        );
        zip(&[deflated("content.xml", content.as_bytes())])
    };
    tree.write("a.odt", open("the text"));
    fake.import(tree.path());
    let good = fake.field("a.odt", "body");
    assert_eq!(good.as_deref(), Some("the text"));
    fake.state()
        .versions
        .get_mut(&b"d"[..])
        .unwrap()
        .values_mut()
        .for_each(|blob| *blob = of_version_0(blob));

    let dies = ExtractorProgram::new("/bin/false", []);
    let without = ImportOptions { extractor: Some(dies), ..fake.options(tree.path()) };
    let run = |options: &ImportOptions| strand_import::run(options, &mut Silent).expect("nothing goes wrong");
    let summary = run(&without);
    assert_eq!(counts(&summary).0, [0, 0, 0, 0, 1]);
    assert!(summary.failed_documents[0].reason.contains("crashed twice"), "{:?}", summary.failed_documents);
    assert_eq!(fake.field("a.odt", "body"), good);
    // Neither does a retry that fails, too, remove the text.
    let retry = ImportMode::RetryFailed;
    assert_eq!(counts(&run(&ImportOptions { mode: retry, ..without.clone() })).0, [0, 0, 0, 0, 1]);
    assert_eq!(fake.field("a.odt", "body"), good);
    let healed = run(&ImportOptions { mode: retry, ..fake.options(tree.path()) });
    assert_eq!((counts(&healed).0, fake.field("a.odt", "body")), ([0, 1, 0, 0, 0], good));
    // The old text is not that of other bytes.
    tree.write("a.odt", open("another text"));
    assert_eq!(counts(&run(&without)).0, [0, 0, 0, 0, 1]);
    assert_eq!(fake.field("a.odt", "body"), None);
}

/// The record as if an extractor of version 0 had made its documents.
fn of_version_0(blob: &[u8]) -> Vec<u8> {
    let container = Container::parse(blob).expect("recorded by the run");
    let mut builder = ContainerBuilder::new(0);
    for entry in container.iter() {
        builder
            .push(entry.kind, entry.name, entry.size, entry.token, entry.pairs())
            .expect("it was a container");
    }
    builder.finish().expect("it was a container")
}

#[test]
fn an_empty_file_of_any_format_is_a_document() {
    let names = ["a.json", "a.geojson", "a.html", "a.csv", "a.txt", "a.pdf", "a.docx"];
    let tree = Tree::new(&names.map(|name| (name, "")));
    tree.write("blank.json", " \r\n");
    tree.write("marked.json", "\u{feff}");
    tree.write("open.json", "{");
    let fake = Fake::start();
    let summary = fake.import(tree.path());
    let failed: Vec<_> = summary.failed_documents.iter().map(|failed| &failed.path[..]).collect();
    assert_eq!(failed, [b"open.json"], "{:?}", summary.failed_documents);
    assert_eq!(fake.ids().len(), names.len() + 3);
    assert_eq!(fake.field("a.json", "kind").as_deref(), Some("json"));
}
