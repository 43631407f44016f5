//! Imports with the disk cache: cached bytes are not fetched again, and outdated bytes are never used.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use strand_import::cache::limits::{CacheLimits, Shares};
use strand_import::{CacheCounts, CacheOptions, ImportOptions, RemoteOptions, Silent, Summary};

/// Limits that never stop the cache, however full the test machine's disk is.
fn options(cache: &Tree) -> RemoteOptions {
    let least = Shares { run: 0, cull: 0, stop: 0 };
    let limits = CacheLimits { blocks: least, files: least, culls: true };
    let cache = Some(CacheOptions { folder: cache.path().to_path_buf(), limits });
    RemoteOptions { cache, ..RemoteOptions::default() }
}

/// Imports into a new dataset, so that every document is read.
fn fresh(source: &Tree, cache: &Tree) -> (Fake, Summary, CacheCounts) {
    let fake = Fake::start();
    let options = ImportOptions { remote: options(cache), ..fake.options(source.path()) };
    let summary = strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
    let counts = summary.cache.clone().expect("there is one");
    (fake, summary, counts)
}

fn long() -> String {
    let line = |i: u32| format!("{:x}\n", i.wrapping_mul(2_654_435_761));
    mail("long", &(0..300_000).map(line).collect::<String>())
}

#[test]
fn a_second_import_reads_nothing_of_the_source() {
    let (cache, source) = (Tree::new(&[]), Tree::new(&[("a.eml", &mail("a", "1")), ("in/empty.txt", "")]));
    source.write("in/long.eml", long());
    source.write("in/b.bin", vec![0u8; 70_000]);
    let (first, summary, cache_counts) = fresh(&source, &cache);
    assert_eq!(counts(&summary).0, [4, 0, 0, 0, 0]);
    assert_eq!((cache_counts.hits, cache_counts.texts, &cache_counts.disabled_reason), (0, 0, &None));
    assert!(cache_counts.misses >= 5 && cache_counts.stored_bytes > 2_000_000, "{cache_counts:?}");
    let (again, _, cache_counts) = fresh(&source, &cache);
    assert_eq!((cache_counts.misses, cache_counts.stored_bytes), (0, 0), "{cache_counts:?}");
    assert_eq!(first.state().keys, again.state().keys);
    assert_eq!(first.state().versions, again.state().versions);
}

#[test]
fn changed_documents_are_never_read_from_the_cache() {
    let (cache, source) =
        (Tree::new(&[]), Tree::new(&[("a.eml", &mail("a", "1")), ("b.eml", &mail("b", "1"))]));
    fresh(&source, &cache);
    source.write("a.eml", mail("a", "2"));
    let (fake, _, cache_counts) = fresh(&source, &cache);
    assert_eq!(fake.field("a.eml", "body").as_deref(), Some("2"));
    assert_eq!(cache_counts.misses, 1);
    source.remove("b.eml");
    let (fake, ..) = fresh(&source, &cache);
    assert_eq!(fake.ids(), ["a.eml"]);
}

#[test]
fn a_run_with_a_failed_cache_continues() {
    let source = Tree::new(&[("a.eml", &mail("a", "1"))]);
    // A file is in the place of the cache's folder.
    let taken = Tree::new(&[("strand-cache", "")]);
    let (fake, summary, cache_counts) = fresh(&source, &taken);
    assert_eq!(counts(&summary).0, [1, 0, 0, 0, 0]);
    assert!(
        cache_counts.disabled_reason.is_some_and(|why| why.contains("strand-cache"))
            && fake.ids() == ["a.eml"]
    );
}

#[test]
fn a_cached_text_is_used_for_equal_bytes_under_another_name() {
    let (cache, source) =
        (Tree::new(&[]), Tree::new(&[("a.eml", &mail("a", "1")), ("x.json", "{\"k\": [1, 2]}")]));
    source.write("page.html", "<p>some <b>words</b>");
    crate::git::init(&source);
    let first = crate::git::commit(&source);
    let run = |revision: &str| {
        let fake = Fake::start();
        let place = crate::git::source(source.path(), revision);
        let options = ImportOptions { remote: options(&cache), ..fake.options(&place) };
        let summary = strand_import::run(&options, &mut Silent).expect("nothing goes wrong");
        let texts = summary.cache.as_ref().expect("there is one").texts;
        (fake, summary, texts)
    };
    let (plain, _, texts) = run(&first);
    assert_eq!(texts, 0);
    let (again, summary, texts) = run(&first);
    assert_eq!((texts, summary.opened, summary.bytes_read), (3, 0, 0));
    assert_eq!(plain.state().keys, again.state().keys);
    assert_eq!(plain.state().versions, again.state().versions);
    // One file is renamed, one moved, one gets another suffix, and one changes.
    source.write("in/b.eml", mail("a", "1"));
    source.remove("a.eml");
    source.write("x.txt", "{\"k\": [1, 2]}");
    source.write("page.html", "<p>others");
    let second = crate::git::commit(&source);
    let (fake, summary, texts) = run(&second);
    assert_eq!((texts, summary.opened), (2, 2), "the mail and x.json are known, x.txt and the page are not");
    assert_eq!(fake.field("in/b.eml", "path").as_deref(), Some("in/b.eml"));
    assert_eq!(fake.field("page.html", "body").as_deref(), Some("others"));
    assert_eq!(fake.field("x.txt", "kind").as_deref(), Some("text"));
    assert_eq!(fake.field("x.json", "json.k").as_deref(), Some("1\n2"));
}

#[test]
fn a_document_that_could_not_be_read_is_tried_again() {
    let (cache, source) = (Tree::new(&[]), Tree::new(&[("broken.json", "{"), ("x.json", "1")]));
    for texts in [0, 1] {
        let (_, summary, cache_counts) = fresh(&source, &cache);
        assert_eq!((counts(&summary).0, cache_counts.texts), ([1, 0, 0, 0, 1], texts));
        assert_eq!(summary.opened, 2 - texts);
    }
}
