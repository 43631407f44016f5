//! RESTORE of any bytes under a right checksum: a whole value or none. Unit test: crates/commands/src/families/dump/tests.rs.
#![no_main]

use strand_commands::serial::{digest::ValueDigest, digest_of, of_payload, payload};
use strand_keyspace::Settings;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [version, body @ ..] = data else { return };
    let version = [10u16, 12, 80, 9][usize::from(version % 4)];
    let mut bytes = [body, &version.to_le_bytes()].concat();
    bytes.extend_from_slice(&strand_rdb::Crc64::of(&bytes).to_le_bytes());
    let settings = Settings::default();
    if let Ok(value) = of_payload(&bytes, &settings, &|| {}) {
        // What was restored can be dumped and restored, and is then the same.
        let again = of_payload(&payload(value.view(), &|| {}), &settings, &|| {}).expect("our own payload");
        let digest = |value: &strand_keyspace::Value| digest_of(value.view(), false, ValueDigest::new);
        assert_eq!(digest(&again), digest(&value));
        assert_eq!(again.view().encoding(), value.view().encoding());
    }
});
