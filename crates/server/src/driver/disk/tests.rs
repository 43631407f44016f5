//! Locks, and files left by a killed server. Tests with real servers check that a file is replaced completely or not
//! at all.

use super::*;

#[test]
fn a_name_is_locked_once_and_leftover_files_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let take = |name| DirLock::acquire(folder.path(), name);
    let clean = |name: &str| remove_leftovers(folder.path(), |file| file == name);
    let names = || {
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .expect("there")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    for name in ["dump.rdb.aB3dE6.tmp", "dump.rdb.short.tmp", "other.rdb.aB3dE6.tmp", "dump.rdb.aB3d.6.tmp"] {
        std::fs::write(at(name), "x").expect("a file");
    }
    let mut lock = take("dump.rdb").expect("free");
    assert!(lock.is_for(folder.path(), "dump.rdb") && !lock.is_for(folder.path(), "other.rdb"));
    assert_eq!(clean("dump.rdb"), 1);
    assert_eq!(
        names(),
        ["dump.rdb.aB3d.6.tmp", "dump.rdb.lock", "dump.rdb.short.tmp", "other.rdb.aB3dE6.tmp"]
    );
    let taken = take("dump.rdb").expect_err("it is locked");
    assert_eq!(
        (taken.kind(), taken.to_string()),
        (io::ErrorKind::WouldBlock, format!("another server (process {})", std::process::id()))
    );
    let _other = take("other.rdb").expect("another name");
    assert_eq!(clean("other.rdb"), 1);
    drop(lock);
    assert!(!names().contains(&"dump.rdb.lock".to_string()));
    take("dump.rdb").expect("free again");
    // A symbolic link in the place of the lock's file is not followed.
    std::os::unix::fs::symlink("victim", at("linked.rdb.lock")).expect("a link");
    assert!(take("linked.rdb").is_err());
    assert!(!names().contains(&"victim".to_string()));

    std::fs::write(at("dump.rdb"), "old").expect("a file");
    let failed = replace(folder.path(), "dump.rdb", true, &mut |out| {
        out.write_all(b"half")?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(failed.expect_err("on purpose").kind(), io::ErrorKind::StorageFull);
    assert_eq!(std::fs::read_to_string(at("dump.rdb")).expect("there"), "old");
    let files = names();
    replace(folder.path(), "dump.rdb", true, &mut |out| out.write_all(&vec![b'x'; 2 * SYNC_BYTES + 1]))
        .expect("replaced");
    assert_eq!(std::fs::metadata(at("dump.rdb")).expect("there").len(), 2 * SYNC_BYTES as u64 + 1);
    assert_eq!(names(), files, "nothing is left beside it");
}

#[test]
fn a_lock_stays_its_owners_when_the_folder_is_renamed() {
    let parent = tempfile::tempdir().expect("a folder");
    let (old, new) = (parent.path().join("old"), parent.path().join("new"));
    std::fs::create_dir(&old).expect("a folder");
    let mut lock = DirLock::acquire(&old, "dump.rdb").expect("free");
    std::fs::rename(&old, &new).expect("renamed");
    assert!(lock.is_for(&new, "dump.rdb") && !lock.is_for(&old, "dump.rdb"));
    // A second rename that the lock does not know of, and another server at the former place.
    std::fs::rename(&new, &old).expect("renamed");
    std::fs::create_dir(&new).expect("a folder");
    let _other = DirLock::acquire(&new, "dump.rdb").expect("free");
    drop(lock);
    assert!(new.join("dump.rdb.lock").exists(), "the other server's lock stays");
    // A lock whose file is gone protects nothing.
    let mut lock = DirLock::acquire(&old, "dump.rdb").expect("unlocked at the end");
    std::fs::remove_file(old.join("dump.rdb.lock")).expect("it is there");
    assert!(!lock.is_for(&old, "dump.rdb"));
}

#[test]
fn the_advice_is_for_the_kind_of_the_error() {
    let of = |errno: rustix::io::Errno| {
        let folder = Path::new("/data");
        let error = io::Error::from(errno);
        (advice(&error, folder), with_path(error, &folder.join("x")).to_string())
    };
    for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT] {
        assert!(of(errno).0.starts_with("Make room in /data: `df -h`"), "{errno}");
    }
    assert!(of(rustix::io::Errno::ROFS).0.contains("/data is mounted read-only"));
    let (todo, text) = of(rustix::io::Errno::ACCESS);
    assert!(todo.starts_with("Give a dir that this server may write to") && todo.contains("/data"), "{todo}");
    assert!(text.starts_with("/data/x: Permission denied") && text.contains("rights r and w"), "{text}");
    let own = with_path(io::Error::other("not a regular file"), Path::new("/data/x"));
    assert_eq!(own.to_string(), "not a regular file", "a text of ours stays");
}
