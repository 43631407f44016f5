//! Revisions of git repositories, against git itself.

use crate::fake::{Fake, State, counts, interrupted};
use crate::files::{Tree, mail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use strand_import::{ImportOptions, MaxDelete, Outcome, Progress, Summary};

/// Runs git with `args` in `folder`, and returns its output.
#[track_caller]
pub fn git(folder: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "-C"])
        .arg(folder)
        .args(args)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
        .env_remove("GIT_DIR")
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn line(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("ASCII").trim().to_owned()
}

pub fn init(tree: &Tree) {
    git(tree.path(), &["init", "-q", "-b", "main"]);
}

/// Commits all files of the folder. Returns the commit's id.
pub fn commit(tree: &Tree) -> String {
    git(tree.path(), &["add", "-A"]);
    git(tree.path(), &["commit", "-q", "--allow-empty", "-m", "c"]);
    line(git(tree.path(), &["rev-parse", "HEAD"]))
}

pub fn source(repository: &Path, revision: &str) -> PathBuf {
    PathBuf::from(format!("git+file://{}@{revision}", repository.display()))
}

/// Collects the outcome of each document that a run reports.
#[derive(Default)]
struct Outcomes(BTreeMap<Vec<u8>, char>);

impl Progress for Outcomes {
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let sign = match outcome {
            Outcome::Added => 'A',
            Outcome::Updated => 'M',
            Outcome::Removed => 'D',
            Outcome::Failed(_) => '!',
            Outcome::Unchanged => return,
        };
        let before = self.0.insert(path.to_vec(), sign);
        assert!(before.is_none() || sign == '!', "{:?} is reported twice", String::from_utf8_lossy(path));
    }
}

fn run(fake: &Fake, source: &Path) -> (Summary, BTreeMap<Vec<u8>, char>) {
    let mut outcomes = Outcomes::default();
    // Going through the history removes more documents than the default budget allows.
    let options = ImportOptions { max_delete: MaxDelete::Percent(100), ..fake.options(source) };
    let summary = strand_import::run(&options, &mut outcomes).expect("nothing goes wrong");
    (summary, outcomes.0)
}

/// The changes of regular files between two commits, from `git diff-tree -r --no-renames`: A, D or M by path.
fn diff_tree(repository: &Path, old: &str, new: &str) -> BTreeMap<Vec<u8>, char> {
    let raw = git(repository, &["diff-tree", "-r", "--no-renames", "--raw", "-z", "--no-abbrev", old, new]);
    let mut fields = raw.split(|b| *b == 0).filter(|f| !f.is_empty());
    let mut changes = BTreeMap::new();
    while let (Some(facts), Some(path)) = (fields.next(), fields.next()) {
        let facts = String::from_utf8_lossy(facts).into_owned();
        let [old_mode, new_mode, old_id, new_id, _] = facts.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{facts}");
        };
        let sign = match (old_mode.starts_with(":100"), new_mode.starts_with("100")) {
            (false, true) => 'A',
            (true, false) => 'D',
            (true, true) if old_id != new_id => 'M',
            // Only the mode changed, or neither is a file.
            _ => continue,
        };
        changes.insert(path.to_vec(), sign);
    }
    changes
}

/// Imports the revisions one after the other and compares each run with git. Compares the last result with a first
/// import. Returns the number of changes.
fn follow(repository: &Path, revisions: &[String]) -> usize {
    let fake = Fake::start();
    let mut failed = BTreeSet::new();
    let mut changes = 0;
    let (first, outcomes) = run(&fake, &source(repository, &revisions[0]));
    assert_eq!(first.updated + first.removed + first.unchanged, 0);
    failed.extend(outcomes.into_iter().filter(|(_, sign)| *sign == '!').map(|(path, _)| path));
    for pair in revisions.windows(2) {
        let (summary, mut outcomes) = run(&fake, &source(repository, &pair[1]));
        failed.extend(outcomes.iter().filter(|(_, sign)| **sign == '!').map(|(path, _)| path.clone()));
        let mut expected = diff_tree(repository, &pair[0], &pair[1]);
        // Files that are named as mail but are none are failed documents, so git reports them differently.
        expected.retain(|path, _| !failed.contains(path));
        outcomes.retain(|path, _| !failed.contains(path));
        assert_eq!(outcomes, expected, "{pair:?}");
        changes += expected.len();
        let files = git(repository, &["ls-tree", "-r", "-z", &pair[1]]);
        let files = files.split(|b| *b == 0).filter(|line| line.starts_with(b"100")).count() as u64;
        assert_eq!(summary.added + summary.updated + summary.unchanged + summary.failed, files, "{pair:?}");
        // A run opens only the folders on the path of a change or of a failed document.
        let mut folders = BTreeSet::from([Vec::new()]);
        for path in diff_tree(repository, &pair[0], &pair[1]).keys().chain(&failed) {
            folders.extend(
                path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| path[..i].to_vec()),
            );
        }
        let modes = git(repository, &["diff-tree", "-r", "-t", "--name-only", "-z", &pair[0], &pair[1]]);
        folders.extend(modes.split(|b| *b == 0).map(<[u8]>::to_vec));
        assert!(summary.containers <= folders.len() as u64, "{} containers", summary.containers);
    }
    let fresh = Fake::start();
    fresh.import(&source(repository, revisions.last().expect("one at least")));
    assert_eq!(fake.state().keys, fresh.state().keys);
    assert_eq!(fake.state().versions, fresh.state().versions);
    changes
}

#[test]
fn each_pair_of_commits_of_a_random_history_matches_git_diff_tree() {
    let tree = Tree::new(&[]);
    init(&tree);
    let mut random = numbers(0x5eed);
    let mut revisions = Vec::new();
    for round in 0..30 {
        for _ in 0..1 + random() % 8 {
            let depth = random() % 4;
            let mut path: String = (0..depth).map(|_| format!("d{}/", random() % 3)).collect();
            // A name may be a folder in one commit and a file in another. `x-y` sorts before `x/y` in bytes.
            path.push_str(["x", "x-y", "x.z", "d1", "m.eml", "ä"][(random() % 6) as usize]);
            let at = tree.at(&path);
            if random().is_multiple_of(3) && at.symlink_metadata().is_ok() {
                tree.remove(&path);
            } else if !at.is_dir() && !at.ancestors().skip(1).any(Path::is_file) {
                tree.write(&path, mail("s", &format!("{round} {}", random() % 5)));
            }
        }
        revisions.push(commit(&tree));
    }
    // Any two commits may follow each other, in either direction of the history.
    let walk: Vec<_> = (0..60).map(|_| revisions[(random() % 30) as usize].clone()).collect();
    assert!(follow(tree.path(), &walk) > 200);
}

/// A pseudorandom number generator with a fixed seed.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    }
}

#[test]
fn pairs_of_commits_of_this_project_match_git_diff_tree() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !here.join(".git").exists() {
        println!("skipped: this is no checkout");
        return;
    }
    let commits = String::from_utf8(git(&here, &["rev-list", "-n", "400", "HEAD"])).expect("ASCII");
    let commits: Vec<String> = commits.lines().map(str::to_owned).collect();
    let mut random = numbers(7);
    // Neighbouring commits, then distant pairs.
    let mut walk: Vec<_> = commits.iter().take(15).cloned().collect();
    walk.extend((0..10).map(|_| commits[(random() as usize) % commits.len()].clone()));
    let changes = follow(&here, &walk);
    println!("{changes} changes between {} commits", walk.len());
}

#[test]
fn only_changed_folders_are_opened() {
    let tree = Tree::new(&[
        ("a.eml", &mail("a", "1")),
        ("in/b.eml", &mail("b", "2")),
        ("in/deep/c.eml", &mail("c", "3")),
    ]);
    init(&tree);
    commit(&tree);
    let fake = Fake::start();
    assert_eq!(counts(&fake.import(&source(tree.path(), "main"))), ([3, 0, 0, 0, 0], 3));
    let names = |fake: &Fake| fake.state().versions[&b"d"[..]].keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&fake), [&b"."[..], b"in", b"in/deep"]);
    assert_eq!(fake.field("in/deep/c.eml", "subject").as_deref(), Some("c"));
    let again = fake.import(&source(tree.path(), "main"));
    assert_eq!((counts(&again), again.containers, again.containers_skipped), (([0, 0, 0, 3, 0], 0), 1, 1));
    // Each run tries the failed document again, and opens only the folders on its path.
    tree.write("in/deep/broken.eml", "no header\n");
    tree.write("other/d.eml", mail("d", "4"));
    commit(&tree);
    let summary = fake.import(&source(tree.path(), "main"));
    assert_eq!((counts(&summary).0, summary.containers), ([1, 0, 0, 3, 1], 4));
    let summary = fake.import(&source(tree.path(), "main"));
    assert_eq!((counts(&summary), summary.containers), (([0, 0, 0, 4, 1], 0), 3));
    tree.write("in/deep/broken.eml", mail("repaired", "5"));
    commit(&tree);
    assert_eq!(counts(&fake.import(&source(tree.path(), "main"))), ([1, 0, 0, 4, 0], 1));
    assert_eq!(names(&fake), [&b"."[..], b"in", b"in/deep", b"other"]);
    tree.remove("in");
    commit(&tree);
    assert_eq!(counts(&fake.import(&source(tree.path(), "main"))), ([0, 0, 3, 2, 0], 0));
    assert_eq!(fake.ids(), ["a.eml", "other/d.eml"]);
    assert_eq!(names(&fake), [&b"."[..], b"other"]);
}

#[test]
fn a_clone_without_the_old_trees_is_imported() {
    let tree = Tree::new(&[
        ("in/a.eml", &mail("a", "1")),
        ("in/b.eml", &mail("b", "2")),
        ("c.eml", &mail("c", "3")),
    ]);
    init(&tree);
    commit(&tree);
    let fake = Fake::start();
    fake.import(&source(tree.path(), "main"));
    tree.remove("in/a.eml");
    tree.write("in/b.eml", mail("b", "new"));
    commit(&tree);
    let clones = Tree::new(&[]);
    let url = format!("file://{}", tree.path().display());
    git(clones.path(), &["clone", "-q", "--depth", "1", &url, "shallow"]);
    let summary = fake.import(&source(&clones.at("shallow"), "main"));
    assert_eq!(counts(&summary).0, [0, 1, 1, 1, 0]);
    assert_eq!(fake.ids(), ["c.eml", "in/b.eml"]);
}

#[test]
fn a_recheck_stores_what_the_server_has_lost() {
    let tree = Tree::new(&[("in/a.eml", &mail("a", "1")), ("c.eml", &mail("c", "3"))]);
    init(&tree);
    commit(&tree);
    let (fake, revision) = (Fake::start(), source(tree.path(), "main"));
    fake.import(&revision);
    fake.state().keys.remove(&b"d:in/a.eml"[..]);
    assert_eq!(counts(&fake.import(&revision)).0, [0, 0, 0, 2, 0], "an unchanged folder is not opened");
    let options = ImportOptions { recheck: true, ..fake.options(&revision) };
    let summary = strand_import::run(&options, &mut strand_import::Silent).expect("nothing goes wrong");
    assert_eq!(counts(&summary).0, [1, 0, 0, 1, 0]);
    assert_eq!(fake.ids(), ["c.eml", "in/a.eml"]);
    assert_eq!(counts(&fake.import(&revision)).0, [0, 0, 0, 2, 0]);
}

#[test]
fn bare_repositories_links_submodules_and_tags() {
    let tree = Tree::new(&[("a@b.eml", &mail("a", "1")), ("run.sh", "x")]);
    init(&tree);
    std::os::unix::fs::symlink("a@b.eml", tree.at("link")).unwrap();
    let first = commit(&tree);
    git(tree.path(), &["update-index", "--add", "--cacheinfo", &format!("160000,{first},sub")]);
    git(tree.path(), &["commit", "-q", "-m", "sub"]);
    git(tree.path(), &["tag", "-a", "v1", "-m", "one"]);
    let bare = Tree::new(&[]);
    git(tree.path(), &["clone", "-q", "--bare", ".", &bare.at("at@home.git").display().to_string()]);
    let bare = bare.at("at@home.git");
    git(&bare, &["gc", "-q"]);
    for revision in ["v1", "main", "HEAD", &first[..10], "main~1"] {
        let fake = Fake::start();
        let summary = fake.import(&source(&bare, revision));
        assert_eq!(counts(&summary).0, [2, 0, 0, 0, 0], "{revision}");
        assert_eq!(summary.skipped.links, 1);
        assert_eq!(
            summary.skipped.submodules,
            u64::from(!revision.ends_with("~1") && !first.starts_with(revision))
        );
    }
    let fake = Fake::start();
    assert_eq!(counts(&fake.import(Path::new(&format!("git+file://{}", bare.display())))).0, [2, 0, 0, 0, 0]);
    for (revision, said) in [("nowhere", "nowhere"), ("", "a")] {
        let error = fake.try_import(&source(&bare, revision));
        let text = error.expect_err("there is none").to_string();
        assert!(text.contains(said), "{text}");
    }
    let text = fake.try_import(Path::new("git+file:///no/such/repository")).expect_err("none").to_string();
    assert!(text.contains("/no/such/repository"), "{text}");
}

#[test]
fn replacements_of_objects_do_not_count() {
    let tree = Tree::new(&[("a.eml", &mail("first", "1"))]);
    init(&tree);
    commit(&tree);
    let replaced = line(git(tree.path(), &["rev-parse", "HEAD:a.eml"]));
    tree.write("other", mail("other", "2"));
    let other = line(git(tree.path(), &["hash-object", "-w", "other"]));
    git(tree.path(), &["replace", &replaced, &other]);
    assert!(line(git(tree.path(), &["show", "HEAD:a.eml"])).contains("other"));
    let fake = Fake::start();
    fake.import(&source(tree.path(), "main"));
    assert_eq!(fake.field("a.eml", "subject").as_deref(), Some("first"));
}

#[test]
fn a_submodule_is_imported_as_a_repository() {
    let inner = Tree::new(&[("in/a.eml", &mail("of the submodule", "1"))]);
    init(&inner);
    let pinned = commit(&inner);
    let tree = Tree::new(&[("b.eml", &mail("of the tree", "2"))]);
    init(&tree);
    let from = inner.path().display().to_string();
    git(tree.path(), &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &from, "lib"]);
    commit(&tree);
    // The submodule gets a new commit, but the outer tree still names the old one.
    inner.write("in/later.eml", mail("later", "3"));
    commit(&inner);
    let listed = line(git(tree.path(), &["ls-tree", "-r", "HEAD", "lib"]));
    let named = listed.split_whitespace().nth(2).expect("mode, kind, id, name");
    assert_eq!(named, pinned);
    let fake = Fake::start();
    let summary = fake.import(&source(tree.path(), "main"));
    assert_eq!(
        (counts(&summary).0, summary.skipped.submodules),
        ([2, 0, 0, 0, 0], 1),
        "b.eml and .gitmodules"
    );
    let fake = Fake::start();
    fake.import(&source(&tree.at(".git/modules/lib"), named));
    assert_eq!(fake.ids(), ["in/a.eml"]);
}

#[test]
fn a_damaged_pack_loses_nothing() {
    let tree = Tree::new(&[]);
    init(&tree);
    let long = |text: &str| mail("s", &(0..200).map(|i| format!("{text} {}\n", i * i)).collect::<String>());
    for name in ["a.eml", "b.eml", "in/c.eml", "in/deep/d.eml"] {
        tree.write(name, long(name));
    }
    commit(&tree);
    let fake = Fake::start();
    fake.import(&source(tree.path(), "main"));
    let before = fake.state().clone();
    for name in ["b.eml", "in/c.eml", "in/deep/e.eml"] {
        tree.write(name, long(&format!("{name} anew")));
    }
    commit(&tree);
    git(tree.path(), &["gc", "-q", "--aggressive"]);
    let fresh = Fake::start();
    fresh.import(&source(tree.path(), "main"));
    let expected = fresh.state().keys.clone();
    let packs =
        std::fs::read_dir(tree.at(".git/objects/pack")).expect("a folder").map(|e| e.expect("a file").path());
    let packs: Vec<_> = packs.filter(|path| path.extension().is_some_and(|end| end == "pack")).collect();
    let [pack] = &packs[..] else { panic!("{packs:?}") };
    let whole = std::fs::read(pack).expect("a pack");
    // The pack is replaced by a new file: git makes packs read-only.
    let write = |bytes: &[u8]| {
        std::fs::remove_file(pack).expect("it is there");
        std::fs::write(pack, bytes).expect("it can be written");
    };
    let mut random = numbers(0xbad);
    let (mut refused, mut failed) = (0, 0);
    for round in 0..80 {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(random() as usize % whole.len());
        } else {
            let at = random() as usize % whole.len();
            bytes[at] ^= 1 << (random() % 8);
        }
        write(&bytes);
        let fake = Fake::with(before.clone());
        match fake.try_import(&source(tree.path(), "main")) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(&tree.path().display().to_string()), "round {round}: {text}");
                refused += 1;
            }
            Ok(summary) => failed += summary.failed,
        }
        // Each document has its old text or its new text, and none is missing.
        let kept = fake.state().keys.clone();
        assert!(before.keys.keys().all(|key| kept.contains_key(key)), "round {round}: {:?}", fake.ids());
        for (key, document) in &kept {
            let known = [before.keys.get(key), expected.get(key)];
            let shown = String::from_utf8_lossy(key);
            assert!(known.contains(&Some(document)), "round {round}: {shown} is {document:?}");
        }
        write(&whole);
        fake.import(&source(tree.path(), "main"));
        assert_eq!(fake.state().keys, expected, "round {round}");
    }
    assert!(refused > 10 && failed > 10, "{refused} runs refused, {failed} documents failed");
}

#[test]
fn a_dataset_moves_between_a_folder_and_its_repository() {
    let tree = Tree::new(&[("a.eml", &mail("a", "1")), ("in/b.eml", &mail("b", "2"))]);
    let fake = Fake::start();
    fake.import(tree.path());
    let repository = tree.copy();
    init(&repository);
    commit(&repository);
    repository.remove("in");
    repository.write("c/d.eml", mail("d", "3"));
    commit(&repository);
    // Tokens of different sources cannot be compared, so all documents are sent again.
    assert_eq!(counts(&fake.import(&source(repository.path(), "main~1"))).0, [0, 2, 0, 0, 0]);
    assert_eq!(counts(&fake.import(&source(repository.path(), "main"))).0, [1, 0, 1, 1, 0]);
    assert_eq!(fake.ids(), ["a.eml", "c/d.eml"]);
    // Neither the way back nor a repository without the old trees needs these trees.
    fake.import(tree.path());
    assert_eq!(fake.ids(), ["a.eml", "in/b.eml"]);
    fake.import(&source(repository.path(), "main"));
    let other = Tree::new(&[("x/y.eml", &mail("y", "9"))]);
    init(&other);
    commit(&other);
    assert_eq!(counts(&fake.import(&source(other.path(), "main"))).0, [1, 0, 2, 0, 0]);
    assert_eq!(fake.ids(), ["x/y.eml"]);
}

#[test]
fn a_run_interrupted_at_any_command_loses_and_leaves_nothing() {
    let tree = Tree::new(&[]);
    init(&tree);
    for (name, text) in [
        ("a.eml", "1"),
        ("b.eml", "2"),
        ("old/c.eml", "3"),
        ("old/in/d.eml", "4"),
        ("same/s.eml", "5"),
        ("up/x.eml", "0"),
    ] {
        tree.write(name, mail("s", text));
    }
    let first = commit(&tree);
    tree.remove("old");
    for (name, text) in [("b.eml", "2 new"), ("e.eml", "6"), ("up/g.eml", "8"), ("up/in/h.eml", "9")] {
        tree.write(name, mail("s", text));
    }
    let second = commit(&tree);
    tree.remove("e.eml");
    tree.remove("up/in");
    tree.write("same/t.eml", mail("s", "10"));
    let third = commit(&tree);
    let at = |revision: &str| source(tree.path(), revision);
    let base = Fake::start();
    base.import(&at(&first));
    let before = base.state().clone();
    let fresh = |revision: &str| {
        let fake = Fake::start();
        fake.import(&at(revision));
        let State { keys, versions, .. } = fake.state().clone();
        (keys, versions)
    };
    let expected = [&first, &second, &third].map(|revision| (revision, fresh(revision)));
    let states = interrupted(&before, |fake| fake.try_import(&at(&second)));
    for (cut, state) in states.iter().enumerate() {
        for (revision, (keys, versions)) in &expected {
            let fake = Fake::with(state.clone());
            let summary = fake.import(&at(revision));
            assert_eq!(&fake.state().keys, keys, "cut at {cut}");
            assert_eq!(&fake.state().versions, versions, "cut at {cut}");
            assert_eq!(
                summary.added + summary.updated + summary.unchanged,
                keys.len() as u64,
                "cut at {cut}: {summary}"
            );
        }
    }
    assert!(states.len() > 21, "only {} states", states.len());
}

#[test]
fn a_repository_that_cannot_be_opened_says_why() {
    let (fake, tree) = (Fake::start(), Tree::new(&[("a.eml", &mail("a", "1"))]));
    git(tree.path(), &["init", "-q", "-b", "main", "--object-format=sha256"]);
    let error = fake.try_import(&source(tree.path(), "main")).expect_err("strand knows SHA-1").to_string();
    assert!(error.contains("the repository has SHA-256 ids, which strand cannot read"), "{error}");
    let config = std::fs::read_to_string(tree.at(".git/config")).expect("git wrote it");
    tree.write(".git/config", config.replace("sha256", "md5"));
    let error = fake.try_import(&source(tree.path(), "main")).expect_err("nobody knows it").to_string();
    assert!(error.contains("configuration could not be loaded: ") && error.contains("md5"), "{error}");
}
