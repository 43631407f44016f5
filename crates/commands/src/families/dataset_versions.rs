//! IMPORT.VERSION PUBLISH, LOG and WAIT: the published versions of a dataset.

use super::import_version::{new_hash, record};
use crate::call::Call;
use crate::dataset_versions::{
    PublishedVersion, VERSION_BYTES_MAX, VERSIONS_LISTED_MAX, encode, hold_number, is_name, list, parse_token,
};
use crate::errors;
use crate::parse;
use crate::wait::{Wait, milliseconds};
use strand_keyspace::{Bytes, Changed, HashValue, PUBLISHED_FIELD, Wanted};
use strand_wire::args::Args;

/// Maximum number of bytes of a client's name in an error text.
const SHOWN_BYTES_MAX: usize = 128;

/// The answer to PUBLISH and SET with the number of a hold from before a flush or a swap.
const FLUSHED: &str = "ERR the database was flushed or swapped after the import began: import again";

/// `IMPORT.VERSION PUBLISH dataset version [HOLD number]`: declares that all documents of the version are stored.
/// Reply: the version name, or an error if the database was flushed or swapped after HOLD replied this number. If
/// the newest version is published again, it keeps its number.
pub(crate) fn publish(call: &mut Call<'_, '_>) {
    let (dataset, name) = (call.args.at(2), call.args.at(3));
    if !is_name(name) {
        return call
            .reply
            .error(&format!("ERR a version id has 1 to {VERSION_BYTES_MAX} letters and digits"));
    }
    if let Err(text) = check_hold(call, 4) {
        return call.reply.error(text);
    }
    let (mut versions, settings) = (listed_versions(call), call.txn.keyspace().settings());
    if let Some(last) = versions.first().filter(|last| last.name == name) {
        return call.reply.bulk(&last.token(dataset));
    }
    let number = versions.first().map_or(1, |last| last.number.saturating_add(1));
    versions.insert(0, PublishedVersion { number, name: name.to_vec() });
    versions.truncate(VERSIONS_LISTED_MAX);
    let text = encode(&versions);
    let system = call.txn.keyspace().system_db(call.db);
    let mut db = call.txn.db(system);
    let set = |hash: &mut HashValue| (hash.set(PUBLISHED_FIELD, Bytes::Slice(&text), settings), Changed::Yes);
    if db.change_or_create(&call.keys[0], set).is_err() {
        db.insert(&call.keys[0], new_hash(PUBLISHED_FIELD, Bytes::Slice(&text), settings), None);
    }
    // Without the number of the hold: another server counts its own flushes.
    record(call, 4);
    call.reply.bulk(&versions[0].token(dataset));
}

/// Checks the arguments `[HOLD number]` that begin at position `at`.
///
/// # Errors
/// The text of the error reply: the database was flushed or swapped after HOLD replied this number, or the arguments
/// are invalid.
pub(super) fn check_hold(call: &Call<'_, '_>, at: usize) -> Result<(), &'static str> {
    let args = call.args;
    match args.len() - at {
        0 => Ok(()),
        2 if args.is(at, "HOLD") => match parse::integer(args.at(at + 1))? {
            number if number == hold_number(call.txn.keyspace(), call.db) => Ok(()),
            _ => Err(FLUSHED),
        },
        _ => Err(errors::SYNTAX),
    }
}

/// `IMPORT.VERSION LOG dataset`. Reply: an array of pairs of version name and version id, the newest first.
pub(crate) fn log(call: &mut Call<'_, '_>) {
    let versions = listed_versions(call);
    call.reply.array(versions.len());
    for version in &versions {
        call.reply.array(2);
        call.reply.bulk(&version.token(call.args.at(2)));
        call.reply.bulk(&version.name);
    }
}

/// The beginning of a name, for an error text.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// `IMPORT.VERSION WAIT dataset version VISIBLE [TIMEOUT milliseconds]`: waits until the version is published. The
/// version is given by its version id or its version name. Reply: the version name, or null after the timeout.
pub(crate) fn wait(call: &mut Call<'_, '_>) {
    let timeout_ms = match timeout(call.args) {
        Ok(timeout_ms) => timeout_ms,
        Err(text) => return call.reply.error(text),
    };
    let (dataset, asked) = (call.args.at(2), call.args.at(3));
    let versions = listed_versions(call);
    let last = versions.first().map_or(0, |last| last.number);
    let (found, next) = match parse_token(asked) {
        Some((of, number)) if of == dataset && number > 0 => {
            ((number <= last).then(|| asked.to_vec()), number)
        }
        Some((of, _)) => {
            let (asked, dataset) = (shown(asked), shown(dataset));
            let text = match of == call.args.at(2) {
                true => format!("ERR {asked} is not a version: the first is {dataset}@1"),
                false => format!("ERR {asked} is a version of another dataset: expected {dataset}@NUMBER"),
            };
            return call.reply.error(&text);
        }
        None if !is_name(asked) => return call.reply.error("ERR expected a version id or a version name"),
        None => {
            let found = versions.iter().find(|version| version.name == asked);
            (found.map(|version| version.token(dataset)), last.saturating_add(1))
        }
    };
    match found {
        Some(token) => call.reply.bulk(&token),
        None => {
            call.reply.null_array();
            let wait = Wait::at_each(timeout_ms, 2, 1, &Wanted::Version(next));
            call.wait = Some(Wait { of_system: true, ..wait });
        }
    }
}

/// The published versions of the dataset that the arguments name, the newest first.
fn listed_versions(call: &mut Call<'_, '_>) -> Vec<PublishedVersion> {
    let system = call.txn.keyspace().system_db(call.db);
    let mut db = call.txn.db(system);
    list(db.peek_at(&call.keys[0]).ok().flatten())
}

/// Parses the arguments after the version: `VISIBLE [TIMEOUT milliseconds]`. 0 means no timeout.
fn timeout(args: Args<'_>) -> Result<u64, &'static str> {
    match args.len() {
        5 if args.is(4, "VISIBLE") => Ok(0),
        7 if args.is(4, "VISIBLE") && args.is(5, "TIMEOUT") => milliseconds(args.at(6)),
        _ => Err(errors::SYNTAX),
    }
}

#[cfg(test)]
mod tests {
    use crate::dataset_versions::VERSIONS_LISTED_MAX;
    use crate::fixture::Fixture;

    #[test]
    fn versions_are_numbered_and_not_listed_as_containers() {
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION LOG mail", "*0|"),
            ("IMPORT.VERSION SET mail . one", "+OK|"),
            ("IMPORT.VERSION PUBLISH mail aa", "$6|mail@1|"),
            ("IMPORT.VERSION PUBLISH mail aa", "$6|mail@1|"),
            ("IMPORT.VERSION PUBLISH mail bb", "$6|mail@2|"),
            ("IMPORT.VERSION PUBLISH mail aa", "$6|mail@3|"),
            ("IMPORT.VERSION LOG mail", "*3|*2|$6|mail@3|$2|aa|*2|$6|mail@2|$2|bb|*2|$6|mail@1|$2|aa|"),
            ("IMPORT.VERSION LIST mail", "*1|$1|.|"),
            ("IMPORT.VERSION DEL mail /published", ":0|"),
            ("IMPORT.VERSION DEL mail .", ":1|"),
            ("IMPORT.VERSION DATASETS", "*0|"),
            ("IMPORT.VERSION LOG mail", "*0|"),
        ]);
    }

    #[test]
    fn no_version_is_published_whose_documents_were_flushed() {
        let flushed = "-ERR the database was flushed or swapped after the import began: import again|";
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION PUBLISH mail aa HOLD 1", "$6|mail@1|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD 2", flushed),
            ("SWAPDB 1 2", "+OK|"),
            ("IMPORT.VERSION PUBLISH mail bb HOLD 1", "$6|mail@2|"),
            ("SET key value", "+OK|"),
            ("FLUSHALL", "+OK|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD 1", flushed),
            ("IMPORT.VERSION LOG mail", "*0|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD 2", "$6|mail@1|"),
            ("SWAPDB 0 1", "+OK|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD 2", flushed),
            ("IMPORT.VERSION PUBLISH mail aa HOLD 3", "$6|mail@1|"),
            ("IMPORT.VERSION SET mail . one HOLD 3", "+OK|"),
            ("IMPORT.VERSION SET mail . two HOLD 2", flushed),
            ("IMPORT.VERSION GET mail .", "$3|one|"),
            ("IMPORT.VERSION SET mail . one HOLD", "-ERR syntax error|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD x", "-ERR value is not an integer or out of range|"),
            ("IMPORT.VERSION PUBLISH mail aa HELD 3", "-ERR syntax error|"),
            ("IMPORT.VERSION PUBLISH mail aa HOLD", "-ERR syntax error|"),
        ]);
    }

    #[test]
    fn version_list_is_bounded_and_numbers_increase() {
        let mut f = Fixture::new();
        let all = VERSIONS_LISTED_MAX + 5;
        for i in 1..=all {
            assert!(f.run(&format!("IMPORT.VERSION PUBLISH d v{i}")).ends_with(&format!("|d@{i}|")));
        }
        assert!(f.run("IMPORT.VERSION LOG d").starts_with(&format!("*{VERSIONS_LISTED_MAX}|*2|$4|d@{all}|")));
    }

    #[test]
    fn a_wait_without_a_session_answers_at_once() {
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION WAIT mail mail@1 VISIBLE", "*-1|"),
            ("IMPORT.VERSION PUBLISH mail aa", "$6|mail@1|"),
            ("IMPORT.VERSION WAIT mail mail@1 VISIBLE TIMEOUT 10", "$6|mail@1|"),
            ("IMPORT.VERSION WAIT mail aa VISIBLE", "$6|mail@1|"),
            ("IMPORT.VERSION WAIT mail mail@2 VISIBLE", "*-1|"),
            ("IMPORT.VERSION WAIT mail bb VISIBLE", "*-1|"),
            (
                "IMPORT.VERSION WAIT mail news@1 VISIBLE",
                "-ERR news@1 is a version of another dataset: expected mail@NUMBER|",
            ),
            ("IMPORT.VERSION WAIT mail mail@0 VISIBLE", "-ERR mail@0 is not a version: the first is mail@1|"),
            ("IMPORT.VERSION WAIT mail a-b VISIBLE", "-ERR expected a version id or a version name|"),
            ("IMPORT.VERSION WAIT mail aa HIDDEN", "-ERR syntax error|"),
            (
                "IMPORT.VERSION WAIT mail aa VISIBLE TIMEOUT x",
                "-ERR timeout is not an integer or out of range|",
            ),
            ("IMPORT.VERSION WAIT mail aa VISIBLE TIMEOUT -1", "-ERR timeout is negative|"),
            ("IMPORT.VERSION PUBLISH mail a-b", "-ERR a version id has 1 to 128 letters and digits|"),
        ]);
    }
}
