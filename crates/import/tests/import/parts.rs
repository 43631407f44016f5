//! Folders with more documents than a run holds in memory: they are listed and recorded in parts, and behave like any
//! other folder.

use crate::fake::{Fake, counts, interrupted};
use crate::files::{Tree, mail};
use std::path::Path;
use strand_import::{FilterOptions, ImportOptions, MaxDelete, RemoteOptions, Silent, Summary, compare};

fn options(fake: &Fake, source: &Path, cutoff: usize) -> ImportOptions {
    let remote = RemoteOptions { list_cutoff: Some(cutoff), ..RemoteOptions::default() };
    ImportOptions { remote, ..fake.options(source) }
}

fn import(fake: &Fake, source: &Path, cutoff: usize) -> Summary {
    strand_import::run(&options(fake, source, cutoff), &mut Silent).expect("nothing goes wrong")
}

fn fill(tree: &Tree, numbers: std::ops::Range<u32>) {
    for n in numbers {
        tree.write(&format!("big/{n}.eml"), mail("s", &n.to_string()));
    }
}

fn parts(fake: &Fake) -> usize {
    let state = fake.state();
    state.versions.values().flat_map(|v| v.keys()).filter(|name| name.contains(&1)).count()
}

#[test]
fn a_folder_larger_than_memory_is_recorded_in_parts() {
    let (fake, tree) =
        (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1")), ("big/in/b.eml", &mail("b", "2"))]));
    fill(&tree, 0..8);
    let same_as_whole = || {
        let fresh = Fake::start();
        import(&fresh, tree.path(), 1000);
        assert_eq!(fake.state().keys, fresh.state().keys);
    };
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([10, 0, 0, 0, 0], 10));
    assert_eq!(parts(&fake), 0);
    // The folder grows: documents that were there are neither read nor sent again.
    fill(&tree, 8..40);
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([32, 0, 0, 10, 0], 32));
    assert!(
        parts(&fake) > 20
            && fake.state().versions.values().flat_map(|v| v.keys()).all(|k| !k.ends_with(b"/"))
    );
    same_as_whole();
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([0, 0, 0, 42, 0], 0));
    // One document is updated, one is removed, one is added.
    tree.write("big/3.eml", mail("s", "three"));
    tree.remove("big/4.eml");
    fill(&tree, 40..41);
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([1, 1, 1, 40, 0], 2));
    same_as_whole();
    // The folder shrinks and stays in parts. Then it is empty, then removed.
    (0..41).filter(|n| *n != 4 && *n != 7).for_each(|n| tree.remove(&format!("big/{n}.eml")));
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([0, 0, 39, 3, 0], 0));
    assert_eq!(parts(&fake), 1);
    tree.remove("big/7.eml");
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([0, 0, 1, 2, 0], 0));
    fill(&tree, 0..2);
    assert_eq!(counts(&import(&fake, tree.path(), 1000)), ([2, 0, 0, 2, 0], 2));
    same_as_whole();
    tree.remove("big");
    assert_eq!(counts(&import(&fake, tree.path(), 10)), ([0, 0, 3, 1, 0], 0));
    assert_eq!((parts(&fake), fake.ids()), (0, vec!["a.eml".to_owned()]));
}

#[test]
fn a_run_interrupted_while_a_folder_is_divided_loses_and_leaves_nothing() {
    let (first, second, third) = (Tree::new(&[]), Tree::new(&[]), Tree::new(&[]));
    fill(&first, 0..6);
    fill(&second, 1..12);
    fill(&third, 2..8);
    // The trees have equal files at different inodes: every document is read, but unchanged documents are not sent.
    let base = Fake::start();
    import(&base, first.path(), 8);
    let before = base.state().clone();
    let expected = {
        let fresh = Fake::start();
        import(&fresh, third.path(), 1000);
        fresh.state().keys.clone()
    };
    let states = interrupted(&before, |fake| {
        let all = ImportOptions { max_delete: MaxDelete::Percent(100), ..options(fake, second.path(), 8) };
        strand_import::run(&all, &mut Silent)
    });
    for (cut, state) in states.iter().enumerate() {
        let fake = Fake::with(state.clone());
        import(&fake, third.path(), 8);
        assert_eq!(fake.state().keys, expected, "cut at {cut}");
        assert_eq!(counts(&import(&fake, third.path(), 8)), ([0, 0, 0, 6, 0], 0), "cut at {cut}");
    }
    assert!(states.len() > 31, "{}", states.len());
}

#[test]
fn filters_ignore_files_and_comparisons_treat_parts_as_one_folder() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("big/.gitignore", "1*.eml\n")]));
    fill(&tree, 0..30);
    let filter =
        FilterOptions { gitignore: true, exclude: vec!["*5.eml".into()], ..FilterOptions::default() };
    let filtered = ImportOptions { filter: filter.clone(), ..options(&fake, tree.path(), 10) };
    let summary = strand_import::run(&filtered, &mut Silent).unwrap();
    // The documents are 0, 2 to 9 and 20 to 29 without 5 and 25, and the .gitignore file.
    assert_eq!(summary.added, 9 + 10 - 2 + 1);
    assert!(!fake.ids().contains(&"big/12.eml".to_owned()) && fake.ids().contains(&"big/20.eml".to_owned()));
    let copy = Tree::new(&[("big/.gitignore", "1*.eml\n")]);
    fill(&copy, 1..31);
    let differences = |cutoff| {
        let remote = RemoteOptions { list_cutoff: Some(cutoff), ..RemoteOptions::default() };
        let none = FilterOptions::default();
        counts(&compare(tree.path(), copy.path(), &none, &remote, &mut Silent).unwrap()).0
    };
    assert_eq!(differences(10), [1, 0, 1, 30, 0]);
    assert_eq!(differences(30), [1, 0, 1, 30, 0]);
    assert_eq!(differences(1000), [1, 0, 1, 30, 0]);
}

#[test]
fn a_folder_or_file_with_the_name_of_a_part_is_a_failed_document() {
    for reserved in ["\u{1}part-00/a.eml", "\u{1}part-00"] {
        let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
        // A file can be an archive, whose documents would get the ids of the folder's documents.
        tree.write(
            reserved,
            crate::nested::zip(&[crate::nested::stored("a.eml", mail("other", "2").as_bytes())]),
        );
        let summary = fake.import(tree.path());
        assert_eq!(counts(&summary).0, [1, 0, 0, 0, 1], "{reserved:?}");
        assert!(summary.failed_documents[0].reason.contains("parts"), "{:?}", summary.failed_documents);
        assert_eq!(
            (fake.ids(), fake.field("a.eml", "subject").as_deref()),
            (vec!["a.eml".into()], Some("a"))
        );
    }
}

#[test]
fn a_revision_with_the_name_of_a_part_fails_and_names_it() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
    tree.write("\u{1}part-00", "x");
    crate::git::init(&tree);
    crate::git::commit(&tree);
    let summary = fake.import(&crate::git::source(tree.path(), "main"));
    let reason = &summary.failed_documents[0].reason;
    assert!(reason.contains("\\u{1}part-00") && reason.contains("reserved"), "{reason}");
}
