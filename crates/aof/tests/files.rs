//! Files of real servers. All are valid except one that was cut.

mod common;

use proptest::prelude::*;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use strand_aof::check::{CheckProblem, Report, check};
use strand_aof::manifest::Manifest;

fn folders() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = std::fs::read_dir(data).expect("the data").flatten().map(|entry| entry.path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The files of a folder, in the order of loading.
fn files(folder: &Path) -> Vec<PathBuf> {
    let old = folder.join("appendonly.aof");
    if old.exists() {
        return vec![old];
    }
    let folder = folder.join("appendonlydir");
    let text = std::fs::read(folder.join("appendonly.aof.manifest")).expect("a manifest");
    let manifest = Manifest::parse(&text).expect("a manifest of redis-server");
    assert_eq!(manifest.text().as_bytes(), text);
    manifest.to_load().map(|file| folder.join(&file.name)).collect()
}

fn checked(path: &Path) -> Report {
    check(BufReader::new(std::fs::File::open(path).expect("it is there")), None)
}

#[test]
fn files_of_real_servers_are_whole() {
    let (mut whole, mut cut, mut with_rdb, mut with_times) = (0, 0, 0, 0);
    for folder in folders() {
        for path in files(&folder) {
            let report = checked(&path);
            with_rdb += usize::from(report.rdb.is_some());
            with_times += usize::from(report.times.is_some());
            match &report.problem {
                None => {
                    assert_eq!(
                        report.good_bytes,
                        path.metadata().expect("there").len(),
                        "{}",
                        path.display()
                    );
                    whole += 1;
                }
                Some(CheckProblem::Command(invalid)) if invalid.is_truncated() => {
                    assert!(path.to_string_lossy().contains("-cut/"), "{}: {invalid}", path.display());
                    cut += 1;
                }
                Some(problem) => panic!("{}: {problem}", path.display()),
            }
        }
    }
    assert_eq!((whole, cut, with_rdb), (20, 1, 6));
    assert!(with_times >= 4, "{with_times}");
}

/// A real file cut at any place is valid up to an earlier place, and everything before that place is complete.
#[test]
fn a_cut_real_file_is_valid_up_to_a_command() {
    let folder =
        folders().into_iter().find(|path| path.ends_with("redis-7.0.15-plain")).expect("it is there");
    let path = files(&folder).pop().expect("an increment");
    let bytes = std::fs::read(path).expect("it is there");
    let mut places = std::collections::BTreeSet::new();
    for cut in 0..bytes.len() {
        let report = check(&bytes[..cut], None);
        assert!(report.good_bytes <= cut as u64);
        assert_eq!(report.problem.is_none(), report.good_bytes == cut as u64, "cut at {cut}");
        places.insert(report.good_bytes);
    }
    assert!(places.len() > 20, "{}", places.len());
    for good in places {
        let report = check(&bytes[..good as usize], None);
        assert!(report.problem.is_none(), "{good}: {:?}", report.problem);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Real files and manifests with bytes changed and removed.
    #[test]
    fn changed_files_are_judged(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0usize..20), 0..4),
    ) {
        thread_local!(static REAL: Vec<Vec<u8>> = folders().iter().flat_map(|folder| {
            let manifest = std::fs::read(folder.join("appendonlydir/appendonly.aof.manifest")).ok();
            let files = files(folder).into_iter().map(|path| std::fs::read(path).expect("there"));
            files.chain(manifest).collect::<Vec<_>>()
        }).collect());
        let mut bytes = REAL.with(|real| real[pick.index(real.len())].clone());
        for (at, byte, gone) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.drain(at + 1..(at + 1 + gone).min(bytes.len()));
        }
        common::fuzz(&bytes);
    }
}
