//! Servers that refuse a container, or lose their data, during a run. The next run makes the dataset what the source
//! holds.

use crate::fake::{Fake, State};
use crate::files::Tree;
use crate::nested::{stored, zip};
use strand_import::{ImportOptions, MaxDelete, Silent};

/// Three folders and an archive. `round` is in each text.
fn tree(round: &str) -> Tree {
    let text = format!("the text of {round}");
    let tree =
        Tree::new(&[("a/1.txt", &text), ("a/2.txt", "equal"), ("b/c/3.txt", &text), ("b/4.txt", &text)]);
    tree.write("d.zip", zip(&[stored("5.txt", text.as_bytes()), stored(round, b"only here")]));
    tree
}

/// The sources of three runs. The third has lost a folder and a file.
fn trees() -> [Tree; 3] {
    let trees = [tree("one"), tree("two"), tree("three")];
    std::fs::remove_dir_all(trees[2].at("a")).expect("ours");
    std::fs::remove_file(trees[2].at("b/4.txt")).expect("ours");
    trees
}

/// A server without data, and a server with the documents of `tree`.
fn states(tree: &Tree) -> [State; 2] {
    let fake = Fake::start();
    let empty = fake.state().clone();
    fake.import(tree.path());
    let full = fake.state().clone();
    [empty, full]
}

/// Runs an import of `second` with the faults that `spoil` adds to the state, one run for each number, until a run has
/// no fault. After each, a good run of `third` must give what a first run gives.
fn spoiled(before: &State, second: &Tree, third: &Tree, spoil: impl Fn(&mut State, usize)) {
    let fresh = Fake::start();
    fresh.import(third.path());
    let mut failed = 0;
    for nth in 0.. {
        let mut state = State { executed: Vec::new(), containers: 0, ..before.clone() };
        spoil(&mut state, nth);
        let fake = Fake::with(state);
        let outcome = fake.try_import(second.path());
        let is_over = nth > fake.state().executed.len();
        failed += usize::from(outcome.is_err());
        fake.state().refused_container = None;
        fake.state().replaced_at = None;
        // What is left of the data may be all gone in the third tree.
        let all = ImportOptions { max_delete: MaxDelete::Percent(100), ..fake.options(third.path()) };
        strand_import::run(&all, &mut Silent).expect("nothing goes wrong");
        assert_eq!(fake.state().keys, fresh.state().keys, "{nth}: {outcome:?}");
        if is_over {
            break;
        }
    }
    assert!(failed > 2, "{failed}");
}

/// A flush after a change in one folder: the folders above it need no intent of their own, and get one.
#[test]
fn a_flush_during_a_change_deep_in_the_tree_leaves_no_document() {
    let [first, second, third] = [tree("one"), tree("one"), tree("one")];
    second.write("b/c/3.txt", "another text");
    std::fs::remove_dir_all(third.at("b")).expect("ours");
    let [empty, full] = states(&first);
    spoiled(&full, &second, &third, |state, nth| state.replaced_at = Some((nth, Box::new(empty.clone()))));
}

#[test]
fn a_refused_container_leaves_no_document_that_no_run_knows() {
    let [first, second, third] = trees();
    let [empty, full] = states(&first);
    for before in [&empty, &full] {
        for third in [&third, &first] {
            spoiled(before, &second, third, |state, nth| {
                state.refused_container = Some(nth + 1);
            });
        }
    }
}

#[test]
fn a_flush_or_swap_during_a_run_leaves_no_document_that_no_run_knows() {
    let [first, second, third] = trees();
    let [empty, full] = states(&first);
    for (before, other) in [(&empty, &empty), (&full, &empty), (&empty, &full), (&full, &full)] {
        for third in [&third, &first] {
            spoiled(before, &second, third, |state, nth| {
                state.replaced_at = Some((nth, Box::new(other.clone())));
            });
        }
    }
}
