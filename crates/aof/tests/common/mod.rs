//! Checks for random bytes, used by a test and by a fuzzer (fuzz/fuzz_targets/aof_file.rs).

use strand_aof::check::check;
use strand_aof::manifest::Manifest;

/// Reads `data` as a file and as a manifest. Nothing may panic, and whatever is reported as valid must be valid.
pub fn fuzz(data: &[u8]) {
    let report = check(data, Some(0));
    let good = report.good_bytes as usize;
    assert!(good <= data.len());
    if report.problem.is_some() && report.rdb.is_none() {
        assert!(check(&data[..good], None).problem.is_none());
    }
    if let Ok(manifest) = Manifest::parse(data)
        && manifest.to_load().next().is_some()
    {
        assert_eq!(Manifest::parse(manifest.text().as_bytes()), Ok(manifest));
    }
}
