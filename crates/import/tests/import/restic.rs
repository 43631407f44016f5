//! Snapshots of restic repositories, compared with the output of restic itself. Without restic on this machine the
//! tests print that they did nothing.

use crate::fake::{Fake, counts};
use crate::files::{Tree, mail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use strand_import::{ImportOptions, MaxDelete, Outcome, Progress, RemoteOptions, Silent, Summary};

const PASSWORD: &str = "a pass word";

/// A restic repository, and the folder that it backs up.
struct Restic {
    repository: Tree,
    work: Tree,
}

impl Restic {
    /// A repository that `restic init` has made. `None` when restic is not installed.
    fn new() -> Restic {
        let this = Restic::without_repository();
        this.call(&["init"]);
        this
    }
    /// An empty repository of this format, whose password costs nothing to check. restic takes 0.2 s of processor time
    /// for a password, in each of its 40 calls here. The files in `restic_repository` were made by `restic init`; then
    /// the key was sealed again with scrypt's least parameters (N = 2, r = 1, p = 1).
    fn with_cheap_password(format: &str) -> Restic {
        let this = Restic::without_repository();
        let template =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/restic_repository").join(format);
        for folder in ["data", "index", "keys", "locks", "snapshots"] {
            std::fs::create_dir_all(this.path().join(folder)).expect("writable");
        }
        std::fs::copy(template.join("config"), this.path().join("config")).expect("readable");
        for key in std::fs::read_dir(template.join("keys")).expect("a folder") {
            let key = key.expect("readable");
            std::fs::copy(key.path(), this.path().join("keys").join(key.file_name())).expect("writable");
        }
        this
    }
    fn without_repository() -> Restic {
        let version = Command::new("restic").arg("version").output();
        version.expect("Debian's restic, which make setup installs");
        let this = Restic { repository: Tree::new(&[]), work: Tree::new(&[]) };
        // With a byte order mark, which restic ignores, too.
        this.repository.write("password", format!("\u{feff}{PASSWORD}\n"));
        this
    }
    fn path(&self) -> PathBuf {
        self.repository.at("repository")
    }
    fn call(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("restic");
        command.arg("-r").arg(self.path()).arg("--no-cache").args(arguments).current_dir(self.work.path());
        let output = command.env("RESTIC_PASSWORD", PASSWORD).output().expect("it was there before");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "restic {arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("JSON")
    }
    /// Backs up the folder. Returns the snapshot's id.
    fn backup(&self) -> String {
        let work = self.work.path().canonicalize().expect("it is there");
        let output = self.call(&["backup", "--json", &work.display().to_string()]);
        let summary = output.lines().find(|line| line.contains("\"summary\"")).expect("at the end");
        let (_, rest) = summary.split_once("\"snapshot_id\":\"").expect("its id");
        rest.split('"').next().expect("its end").to_owned()
    }
    /// The source of an import: the backed-up folder in the snapshot, without the folders above.
    fn source(&self, snapshot: &str) -> PathBuf {
        let work = self.work.path().canonicalize().expect("it is there");
        PathBuf::from(format!("restic:{}@{snapshot}:{}", self.path().display(), work.display()))
    }
    fn remote(&self) -> RemoteOptions {
        RemoteOptions { password_file: Some(self.repository.at("password")), ..RemoteOptions::default() }
    }
    fn import(&self, fake: &Fake, snapshot: &str) -> (Summary, BTreeMap<String, char>) {
        let mut outcomes = Outcomes::default();
        let source = self.source(snapshot);
        let max_delete = MaxDelete::Percent(100);
        let options = ImportOptions { remote: self.remote(), max_delete, ..fake.options(&source) };
        let summary = strand_import::run(&options, &mut outcomes).expect("nothing goes wrong");
        (summary, outcomes.0)
    }
    /// The changes of files between two snapshots, from `restic diff`.
    fn diff(&self, old: &str, new: &str) -> BTreeMap<String, char> {
        let work = self.work.path().canonicalize().expect("it is there");
        let prefix = format!("{}/", work.display());
        let output = self.call(&["diff", old, new]);
        let mut changes = BTreeMap::new();
        for line in output.lines() {
            let Some((sign, path)) = line.split_once(' ') else { continue };
            let Some(path) = path.trim().strip_prefix(&prefix) else { continue };
            if path.ends_with('/') {
                continue;
            }
            let sign = match sign {
                "+" => 'A',
                "-" => 'D',
                "M" => 'M',
                other => panic!("{other:?} of {line:?}"),
            };
            changes.insert(path.to_owned(), sign);
        }
        changes
    }
}

#[derive(Default)]
struct Outcomes(BTreeMap<String, char>);

impl Progress for Outcomes {
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let sign = match outcome {
            Outcome::Added => 'A',
            Outcome::Updated => 'M',
            Outcome::Removed => 'D',
            Outcome::Failed(reason) => panic!("{}: {reason}", String::from_utf8_lossy(path)),
            Outcome::Unchanged => return,
        };
        self.0.insert(String::from_utf8_lossy(path).into_owned(), sign);
    }
}

/// A pseudorandom number generator with a fixed seed.
fn numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    }
}

#[test]
fn each_pair_of_snapshots_matches_restic_diff() {
    for format in ["1", "2"] {
        let restic = Restic::with_cheap_password(format);
        let mut random = numbers(5);
        let mut snapshots = Vec::new();
        // A mode that no new folder has.
        restic.work.write(
            "always/long.bin",
            (0..6_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
        );
        restic.work.write("always/empty.txt", "");
        std::os::unix::fs::symlink("empty.txt", restic.work.at("always/link")).expect("writable");
        for round in 0..5 {
            for _ in 0..6 {
                let name = format!("d{}/{}.eml", random() % 3, random() % 4);
                if random().is_multiple_of(3) && restic.work.at(&name).exists() {
                    restic.work.remove(&name);
                } else {
                    restic.work.write(&name, mail("s", &format!("{round} {}", random() % 5)));
                }
            }
            snapshots.push(restic.backup());
        }
        let fake = Fake::start();
        let (first, _) = restic.import(&fake, &snapshots[0]);
        assert_eq!((first.updated, first.removed, first.failed, first.skipped.links), (0, 0, 0, 1));
        let walk = [1, 2, 3, 4, 0, 3, 1, 4];
        let mut before = &snapshots[0];
        let mut changes = 0;
        for now in walk.map(|i| &snapshots[i]) {
            let (summary, outcomes) = restic.import(&fake, now);
            let expected = restic.diff(before, now);
            assert_eq!(outcomes, expected, "format {format}: {before} to {now}");
            assert!(summary.containers_skipped >= 1 && summary.failed == 0, "always/ is skipped by its tree");
            changes += expected.len();
            before = now;
        }
        assert!(changes > 20, "{changes}");
        let fresh = Fake::start();
        let (whole, _) = restic.import(&fresh, "latest");
        assert_eq!(fake.state().keys, fresh.state().keys);
        assert_eq!(fake.state().versions, fresh.state().versions);
        // The snapshot's import equals an import of the folder itself.
        let local = Fake::start();
        let plain = local.import(restic.work.path());
        assert_eq!(counts(&plain).0[0], counts(&whole).0[0]);
        assert_eq!(local.state().keys, fresh.state().keys);
    }
}

#[test]
fn names_are_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let restic = Restic::new();
    let names: [&[u8]; 4] =
        [b"caf\xe9.eml", b"a\\b \"c\".eml", "\u{e4}\n\u{1f600}.eml".as_bytes(), b"plain.eml"];
    for name in names {
        let path = restic.work.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, mail("s", "1")).expect("writable");
    }
    let snapshot = restic.backup();
    let fake = Fake::start();
    restic.import(&fake, &snapshot[..8]);
    let local = Fake::start();
    local.import(restic.work.path());
    assert_eq!(fake.state().keys, local.state().keys);
}

#[test]
fn invalid_repositories_are_refused_and_damaged_packs_are_failed_documents() {
    let restic = Restic::with_cheap_password("2");
    restic.work.write("a.eml", mail("s", "1"));
    restic.backup();
    let fake = Fake::start();
    let error = |source: &str, password: Option<&str>| {
        let password_file = password.map(|text| {
            restic.repository.write("other", text);
            restic.repository.at("other")
        });
        let remote = RemoteOptions { password_file, ..RemoteOptions::default() };
        let options = ImportOptions { remote, ..fake.options(PathBuf::from(source).as_path()) };
        strand_import::run(&options, &mut Silent).expect_err("it cannot work").to_string()
    };
    let path = restic.path().display().to_string();
    for (source, password, said) in [
        (format!("restic:{path}"), Some("wrong"), "opens none of the repository's keys"),
        (format!("restic:{path}"), None, "needs a password"),
        (format!("restic:{path}@0000"), Some(PASSWORD), "no snapshot \"0000\""),
        (format!("restic:{path}@latest:/no/where"), Some(PASSWORD), "no folder \"/no/where\""),
        (format!("restic:{}", restic.work.path().display()), Some(PASSWORD), "no restic repository"),
    ] {
        let text = error(&source, password);
        assert!(text.contains(said), "{source}: {text}");
    }
    // The documents in a damaged pack are failed documents. No document is imported in part.
    for folder in std::fs::read_dir(restic.path().join("data")).expect("it is there") {
        for pack in std::fs::read_dir(folder.expect("readable").path()).expect("a folder") {
            let pack = pack.expect("readable").path();
            let mut bytes = std::fs::read(&pack).expect("readable");
            bytes[20] ^= 1;
            std::fs::remove_file(&pack).expect("writable");
            std::fs::write(&pack, bytes).expect("writable");
        }
    }
    let fake = Fake::start();
    let options = ImportOptions { remote: restic.remote(), ..fake.options(&restic.source("latest")) };
    match strand_import::run(&options, &mut Silent) {
        Ok(summary) => {
            assert!(summary.failed > 0);
            assert!(summary.failed_documents.iter().all(|document| document.reason.contains("is damaged")));
        }
        Err(error) => assert!(error.to_string().contains("is damaged"), "{error}"),
    }
}
