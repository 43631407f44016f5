//! Filters: which documents they include, what a change of the filter does, and the comparison of two sources.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use crate::git::{commit, init, source};
use std::path::Path;
use strand_import::filter::ByteSize;
use strand_import::{
    FilterOptions, ImportOptions, MaxDelete, Outcome, Progress, RemoteOptions, Silent, Summary,
};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| w.to_string()).collect()
}

fn import(fake: &Fake, source: &Path, filter: &FilterOptions) -> Summary {
    let max_delete = MaxDelete::Percent(100);
    let options = ImportOptions { filter: filter.clone(), max_delete, ..fake.options(source) };
    strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
}

fn files() -> Tree {
    let tree =
        Tree::new(&[("readme.txt", "short"), ("page.html", "<p>hello</p>"), ("old/x.eml", &mail("x", "x"))]);
    for folder in ["a", "a/b", "a/b/c", "d"] {
        tree.write(&format!("{folder}/one.eml"), mail(folder, "one"));
        tree.write(&format!("{folder}/two.txt"), format!("{folder} two"));
        tree.write(&format!("{folder}/long.txt"), "long ".repeat(1000));
    }
    tree
}

/// Filters, each with the ids of the documents that it includes.
fn filters() -> Vec<(FilterOptions, Vec<&'static str>)> {
    let all = FilterOptions::default();
    let mails = vec!["a/b/c/one.eml", "a/b/one.eml", "a/one.eml", "d/one.eml"];
    vec![
        (
            FilterOptions { include: words(&["*.eml"]), exclude: words(&["old/"]), ..all.clone() },
            mails.clone(),
        ),
        (FilterOptions { types: words(&["mail"]), exclude: words(&["/old"]), ..all.clone() }, mails),
        (
            FilterOptions { min_size: Some(ByteSize(1000)), exclude: words(&["b"]), ..all.clone() },
            vec!["a/long.txt", "d/long.txt"],
        ),
        (
            FilterOptions { max_size: Some(ByteSize(12)), ..all },
            vec!["a/b/c/two.txt", "a/b/two.txt", "a/two.txt", "d/two.txt", "page.html", "readme.txt"],
        ),
    ]
}

/// Imports without a filter, with each filter, and without one again. Each time the result must equal a first import
/// with that filter.
fn follow(at: &Path, files: u64) {
    let none = FilterOptions::default();
    let fake = Fake::start();
    assert_eq!(import(&fake, at, &none).added, files);
    let all = filters();
    let steps = all.iter().flat_map(|step| [Some(step), None]).chain(all.iter().map(Some)).chain([None]);
    for step in steps {
        let filter = step.map_or(&none, |(filter, _)| filter);
        let summary = import(&fake, at, filter);
        let fresh = Fake::start();
        let first = import(&fresh, at, filter);
        assert_eq!(summary.added + summary.updated + summary.unchanged, first.added, "{filter:?}");
        match step {
            Some((_, ids)) => assert_eq!(&fake.ids(), ids, "{filter:?}"),
            None => assert_eq!(fake.ids().len() as u64, files),
        }
        assert_eq!(fake.state().keys, fresh.state().keys, "{filter:?}");
        // The records of a revision have no sizes, but name the same containers.
        let recorded = |fake: &Fake| {
            let versions = &fake.state().versions;
            versions.values().flat_map(|v| v.keys().cloned()).collect::<Vec<_>>()
        };
        assert_eq!(recorded(&fake), recorded(&fresh), "{filter:?}");
        let again = import(&fake, at, filter);
        assert_eq!(counts(&again), ([0, 0, 0, first.added, 0], 0), "{filter:?}");
    }
}

#[test]
fn changing_the_filter_of_a_folder_equals_a_first_import() {
    let tree = files();
    follow(tree.path(), 15);
}

#[test]
fn changing_the_filter_of_a_revision_equals_a_first_import() {
    let tree = files();
    init(&tree);
    commit(&tree);
    follow(&source(tree.path(), "HEAD"), 15);
}

#[test]
fn an_unchanged_tree_is_skipped_under_the_same_filter() {
    let (fake, tree) = (Fake::start(), files());
    init(&tree);
    commit(&tree);
    let (at, filter) = (source(tree.path(), "HEAD"), &filters()[0].0);
    import(&fake, &at, filter);
    tree.write("d/three.eml", mail("three", "3"));
    commit(&tree);
    let summary = import(&fake, &at, filter);
    assert_eq!(counts(&summary), ([1, 0, 0, 4, 0], 1));
    assert_eq!((summary.containers, summary.containers_skipped), (2, 1), "the root and d; not a");
}

#[test]
fn filters_do_not_apply_inside_archives() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("x.txt", "x")]));
    let mailbox: String = ["1", "2"]
        .map(|n| format!("From ada@example.org Mon Jan  6 10:00:00 2025\n{}\n", mail(n, n)))
        .concat();
    tree.write("in/box.mbox", mailbox);
    let filter = FilterOptions { include: words(&["*.mbox"]), ..FilterOptions::default() };
    assert_eq!(import(&fake, tree.path(), &filter).added, 3);
    let filter = FilterOptions { exclude: words(&["*.mbox"]), ..FilterOptions::default() };
    let summary = import(&fake, tree.path(), &filter);
    assert_eq!((counts(&summary).0, summary.skipped.filtered), ([1, 0, 3, 0, 0], 1));
}

#[test]
fn bad_filters_are_refused_before_any_command_is_sent() {
    let (fake, tree) = (Fake::start(), files());
    let filter = FilterOptions { include: words(&["a["]), ..FilterOptions::default() };
    let options = ImportOptions { filter, ..fake.options(tree.path()) };
    let error = strand_import::run(&options, &mut Silent).expect_err("no glob").to_string();
    assert!(error.contains("--include") && fake.state().executed.is_empty(), "{error}");
}

/// Collects the differences that a comparison reports.
#[derive(Default)]
struct Differences(Vec<String>);

impl Progress for Differences {
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let sign = match outcome {
            Outcome::Added => '+',
            Outcome::Removed => '-',
            Outcome::Updated => '~',
            Outcome::Failed(_) => '!',
            Outcome::Unchanged => return,
        };
        self.0.push(format!("{sign} {}", String::from_utf8_lossy(path)));
    }
}

#[track_caller]
fn compared(before: &Path, after: &Path, filter: &FilterOptions) -> Vec<String> {
    let mut differences = Differences::default();
    let summary = strand_import::compare(before, after, filter, &RemoteOptions::default(), &mut differences)
        .expect("both can be listed");
    let changed = summary.added + summary.updated + summary.removed + summary.failed;
    assert_eq!(changed as usize, differences.0.len());
    differences.0
}

#[test]
fn two_sources_are_compared_by_their_bytes() {
    let tree = files();
    let copy = tree.copy();
    let all = FilterOptions::default();
    assert_eq!(compared(tree.path(), copy.path(), &all), Vec::<String>::new());
    copy.write("a/b/two.txt", "a/b TWO");
    copy.write("a/long.txt", "long ".repeat(999) + "lon!!");
    copy.write("new/in/x.txt", "new");
    copy.remove("d");
    // A file replaces a folder.
    copy.remove("old");
    copy.write("old", "a file now");
    let expected = [
        "~ a/b/two.txt",
        "~ a/long.txt",
        "- d/long.txt",
        "- d/one.eml",
        "- d/two.txt",
        "+ new/in/x.txt",
        "- old/x.eml",
        "+ old",
    ];
    assert_eq!(compared(tree.path(), copy.path(), &all), expected);
    let mails = FilterOptions { types: words(&["mail"]), ..all.clone() };
    assert_eq!(compared(tree.path(), copy.path(), &mails), ["- d/one.eml", "- old/x.eml"]);
    assert!(
        strand_import::compare(tree.path(), &tree.at("none"), &all, &RemoteOptions::default(), &mut Silent)
            .is_err()
    );
}

#[test]
fn a_revision_is_compared_with_another_and_with_a_folder() {
    let tree = files();
    init(&tree);
    let first = commit(&tree);
    tree.write("a/b/c/two.txt", "changed");
    tree.remove("d/one.eml");
    let second = commit(&tree);
    let all = FilterOptions::default();
    let (first, second) = (source(tree.path(), &first), source(tree.path(), &second));
    assert_eq!(compared(&first, &second, &all), ["~ a/b/c/two.txt", "- d/one.eml"]);
    let visible = FilterOptions { exclude: words(&[".git"]), ..all };
    assert_eq!(compared(&second, tree.path(), &visible), Vec::<String>::new());
    assert_eq!(compared(tree.path(), &first, &visible), ["~ a/b/c/two.txt", "+ d/one.eml"]);
}

#[test]
fn gitignore_files_in_a_source_are_obeyed_as_git_does() {
    let tree = Tree::new(&[
        (
            ".gitignore",
            "*.log\n/build/\n!keep.log\ndeep/secret\n# a comment\n[bad\n*.{jpg,png}\n[[:alpha:]].md\n",
        ),
        ("a.jpg", "yes"),
        ("b.{jpg,png}", "no"),
        ("c.md", "no"),
        ("1.md", "yes"),
        ("a.txt", "a"),
        ("a.log", "no"),
        ("keep.log", "yes"),
        ("build/out.txt", "no"),
        ("in/build/out.txt", "yes"),
        ("in/.gitignore", "!special.log\n/top.txt\nkeep.log\n*/\n!build/\n!below/\n"),
        ("in/special.log", "yes"),
        ("in/keep.log", "no"),
        ("in/top.txt", "no"),
        ("in/below/top.txt", "yes"),
        ("in/below/x.log", "no"),
        ("in/other/x.txt", "no"),
        ("deep/secret/x.txt", "no"),
        ("deep/more/deep/secret/x.txt", "yes"),
    ]);
    init(&tree);
    // git lists the files that are not ignored.
    let listed = crate::git::git(tree.path(), &["ls-files", "-z", "--others", "--exclude-standard"]);
    let mut expected: Vec<_> = listed
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| String::from_utf8_lossy(n).into_owned())
        .collect();
    expected.sort();
    assert!(expected.len() == 10, "{expected:?}");
    let obeying = FilterOptions { gitignore: true, ..FilterOptions::default() };
    let fake = Fake::start();
    import(&fake, tree.path(), &obeying);
    assert_eq!(fake.ids(), expected);

    // The revision contains all files, also ignored ones.
    crate::git::git(tree.path(), &["add", "-A", "--force"]);
    crate::git::git(tree.path(), &["commit", "-q", "-m", "all"]);
    let fake = Fake::start();
    import(&fake, &source(tree.path(), "main"), &obeying);
    assert_eq!(fake.ids(), expected);
    let again = import(&fake, &source(tree.path(), "main"), &obeying);
    assert_eq!((again.unchanged, again.opened, again.containers), (expected.len() as u64, 0, 1));
    // The rules at the root change: the tree `deep` is unchanged, but other documents in it are included.
    tree.write(".gitignore", "*.log\n");
    crate::git::git(tree.path(), &["commit", "-q", "-a", "-m", "rules"]);
    import(&fake, &source(tree.path(), "main"), &obeying);
    assert!(
        fake.ids().contains(&"deep/secret/x.txt".to_owned())
            && fake.ids().contains(&"build/out.txt".to_owned())
    );
    assert!(!fake.ids().contains(&"keep.log".to_owned()));
}
