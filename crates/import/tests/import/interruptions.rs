//! Runs that are interrupted at every command: the next run must end as if there had been no interruption.

use crate::fake::{Fake, State, Stored, counts, interrupted};
use crate::files::{Tree, mail};
use crate::nested::{stored, zip};
use std::collections::BTreeMap;
use strand_import::{ImportError, ImportOptions, MaxDelete, Silent, Summary};

/// Three trees: before the interrupted run, during it, and during the next run. The third tree lacks documents and a
/// folder that only the interrupted run had seen.
fn trees() -> [Tree; 3] {
    let first =
        [("a.eml", "1"), ("b.eml", "2"), ("old/c.eml", "3"), ("old/in/d.eml", "4"), ("same/s.eml", "5")];
    let second = [
        ("a.eml", "1"),
        ("b.eml", "2 new"),
        ("e.eml", "6"),
        ("f.eml", "7"),
        ("same/s.eml", "5"),
        ("up/g.eml", "8"),
        ("up/in/h.eml", "9"),
    ];
    let third =
        [("a.eml", "1"), ("b.eml", "2 new"), ("f.eml", "7"), ("same/s.eml", "5"), ("same/t.eml", "10")];
    [&first[..], &second[..], &third[..]].map(|files| {
        let tree = Tree::new(&[]);
        files.iter().for_each(|(name, text)| tree.write(name, mail("s", text)));
        tree
    })
}

/// Asserts that the run counted as added and as removed what really came and went: it found the keys of `before`, and
/// left the keys `after`.
fn assert_counts(summary: &Summary, before: &State, after: &BTreeMap<Vec<u8>, Stored>, case: &str) {
    let came = after.keys().filter(|key| !before.keys.contains_key(*key)).count();
    let went = before.keys.keys().filter(|key| !after.contains_key(*key)).count();
    let counted = (summary.added, summary.removed);
    assert_eq!(counted, (came as u64, went as u64), "{case}: {summary:?}");
}

#[test]
fn a_run_interrupted_at_any_command_loses_and_leaves_nothing() {
    let [first, second, third] = trees();
    let base = Fake::start();
    base.import(first.path());
    let before = base.state().clone();
    let fresh = |tree: &Tree| {
        let fake = Fake::start();
        fake.import(tree.path());
        fake.state().keys.clone()
    };
    let (expected_second, expected_third) = (fresh(&second), fresh(&third));

    let mut cuts = 0;
    for cut in 0.. {
        let mut survived = false;
        for after_executing in [false, true] {
            let state = State {
                executed: Vec::new(),
                cut_at: Some(cut),
                cut_after_executing: after_executing,
                ..before.clone()
            };
            let fake = Fake::with(state);
            match fake.try_import(second.path()) {
                Ok(summary) => {
                    assert_eq!(counts(&summary).0, [4, 1, 2, 2, 0]);
                    assert_eq!(fake.state().keys, expected_second);
                    survived = true;
                    continue;
                }
                Err(ImportError::Lost { .. }) => cuts += 1,
                Err(other) => panic!("cut at {cut}: {other}"),
            }
            fake.state().cut_at = None;
            let cut_short = fake.state().clone();
            // The next run finds the first tree again, the same tree as the interrupted run, or a third tree.
            let trees = [(&first, &before.keys), (&second, &expected_second), (&third, &expected_third)];
            for (tree, expected) in trees {
                let fake = Fake::with(cut_short.clone());
                let summary = fake.import(tree.path());
                assert_eq!(&fake.state().keys, expected, "cut at {cut}, executed: {after_executing}");
                assert_counts(&summary, &cut_short, expected, &format!("cut at {cut}"));
                let names: Vec<_> = fake.state().versions[&b"d"[..]].keys().cloned().collect();
                assert!(names.iter().all(|n| !n.ends_with(b"/")), "no intent is left: {names:?}");
                fake.writes();
                let again = fake.import(tree.path());
                assert_eq!((counts(&again).1, fake.writes().len()), (0, 0), "cut at {cut}");
            }
        }
        if survived {
            break;
        }
    }
    assert!(cuts > 40, "only {cuts} cuts");
    println!("{cuts} cuts");
}

#[test]
fn two_interrupted_runs_in_a_row_lose_and_leave_nothing() {
    let [first, second, third] = trees();
    let base = Fake::start();
    base.import(first.path());
    let before = base.state().clone();
    let cut_import = |state: &State, cut: usize, tree: &Tree| {
        let fake = Fake::with(State {
            executed: Vec::new(),
            cut_at: Some(cut),
            cut_after_executing: true,
            ..state.clone()
        });
        let survived = fake.try_import(tree.path()).is_ok();
        fake.state().cut_at = None;
        let after = fake.state().clone();
        (!survived).then_some(after)
    };
    let mut cuts = 0;
    // Only each fourth command of the first run and each second one of the second run: all pairs take too long.
    for once in (0..).step_by(4) {
        let Some(state) = cut_import(&before, once, &second) else { break };
        for twice in (0..).step_by(2) {
            let Some(state) = cut_import(&state, twice, &third) else { break };
            cuts += 1;
            let fake = Fake::with(state.clone());
            let summary = fake.import(first.path());
            assert_eq!(fake.state().keys, before.keys, "cut at {once}, then at {twice}");
            assert_counts(&summary, &state, &before.keys, &format!("cut at {once}, then at {twice}"));
        }
    }
    assert!(cuts > 100, "only {cuts} pairs of cuts");
}

#[test]
fn folders_recorded_before_the_interruption_are_not_sent_again() {
    let tree = Tree::new(&[]);
    for folder in ["a", "b", "c"] {
        (0..5).for_each(|i| tree.write(&format!("{folder}/{i}.eml"), mail("s", &i.to_string())));
    }
    let fake = Fake::start();
    // A folder costs an intent, five documents, the record and the removal of the intent. The cut is in the third
    // folder.
    fake.state().cut_at = Some(2 + 2 + 1 + 2 * 10 + 4);
    assert!(matches!(fake.try_import(tree.path()), Err(ImportError::Lost { .. })));
    fake.state().cut_at = None;
    assert_eq!(counts(&fake.import(tree.path())), ([5, 0, 0, 10, 0], 5));
}

/// Imports `first`, then `second`, which is interrupted everywhere. Each time a run of each of `next` must lead to what a
/// fresh import of that tree leads to.
fn interrupt_between(first: &Tree, second: &Tree, next: &[&Tree]) {
    let base = Fake::start();
    base.import(first.path());
    let before = base.state().clone();
    let states = interrupted(&before, |fake| fake.try_import(second.path()));
    assert!(states.len() > 4, "{} states", states.len());
    for tree in next {
        let fresh = Fake::start();
        fresh.import(tree.path());
        for (cut, state) in states.iter().enumerate() {
            let fake = Fake::with(state.clone());
            let summary = fake.import(tree.path());
            assert_eq!(fake.state().keys, fresh.state().keys, "cut at {cut}");
            assert_counts(&summary, state, &fresh.state().keys, &format!("cut at {cut}"));
            assert_eq!(counts(&fake.import(tree.path())).1, 0, "cut at {cut}: nothing is left to do");
        }
    }
}

#[test]
fn a_file_in_a_folders_place_leaves_nothing_after_an_interruption() {
    let folders = Tree::new(&[("x.d/a.txt", "1"), ("x.d/in/b.txt", "2"), ("kept.txt", "3")]);
    let files = Tree::new(&[("x.d", "4"), ("kept.txt", "3")]);
    let neither = Tree::new(&[("kept.txt", "3")]);
    let deeper = [
        Tree::new(&[("up/x.d/a.txt", "1"), ("up/kept.txt", "3")]),
        Tree::new(&[("up/x.d", "4"), ("up/kept.txt", "3")]),
    ];
    let next = [&folders, &files, &neither];
    interrupt_between(&folders, &files, &next);
    interrupt_between(&files, &folders, &next);
    interrupt_between(&deeper[0], &deeper[1], &[&deeper[0], &neither]);
    interrupt_between(&deeper[1], &deeper[0], &[&deeper[1], &neither]);
    // The next run goes on with what the interrupted one has done.
    for (first, second) in [(&files, &folders), (&folders, &files)] {
        let base = Fake::start();
        base.import(first.path());
        let before = base.state().clone();
        for once in interrupted(&before, |fake| fake.try_import(second.path())) {
            let removed = Fake::with(once.clone()).import(second.path()).removed;
            assert!(removed <= 2, "only the documents of the first tree, not {removed}");
            // The next run is interrupted, too. All pairs take too long.
            for twice in interrupted(&once, |fake| fake.try_import(first.path())).into_iter().step_by(4) {
                let fake = Fake::with(twice.clone());
                fake.import(first.path());
                assert_eq!(fake.state().keys, before.keys);
                let fake = Fake::with(twice);
                fake.import(neither.path());
                assert_eq!(fake.ids(), ["kept.txt"]);
            }
        }
    }
}

/// An interrupted run does not weaken `--max-delete`.
#[test]
fn a_source_that_is_not_mounted_after_an_interruption_removes_nothing() {
    let names = ["a.eml", "b.eml", "in/c.eml", "in/d.eml", "in/box.zip"];
    let tree = |text: &str| {
        let tree = Tree::new(&[]);
        for name in &names[..4] {
            tree.write(name, mail("s", text));
        }
        tree.write(names[4], zip(&[stored("z.txt", text.as_bytes())]));
        tree
    };
    let (first, second, unmounted) = (tree("1"), tree("2"), Tree::new(&[]));
    let recorded = Fake::start();
    recorded.import(first.path());
    let before = [State::default(), recorded.state().clone()];
    for state in before.iter().flat_map(|before| interrupted(before, |fake| fake.try_import(second.path()))) {
        let (keys, fake) = (state.keys.clone(), Fake::with(state));
        let all = ImportOptions { max_delete: MaxDelete::Percent(100), ..fake.options(unmounted.path()) };
        if keys.is_empty() {
            continue;
        }
        match fake.try_import(unmounted.path()) {
            Err(ImportError::TooManyDeletions { removed, held, .. }) => {
                assert_eq!((removed, held), (keys.len() as u64, keys.len() as u64));
            }
            other => panic!("{} documents: {other:?}", keys.len()),
        }
        assert_eq!(fake.state().keys, keys);
        // The summary has each document that the server had.
        let removed = strand_import::run(&all, &mut Silent).expect("all may go").removed;
        assert_eq!((removed, fake.state().keys.len()), (keys.len() as u64, 0));
    }
}
