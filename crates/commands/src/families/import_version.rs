//! IMPORT.VERSION: the state of an imported dataset in the session's database.
//!
//! The state is a hash whose key is the dataset's name. It is in the system companion of the database: SELECT
//! cannot reach it, its key collides with no key of an application, and FLUSHDB and SWAPDB include it. A field is
//! the path of a container, and the field's value is the container (docs/formats/container.md). This module does
//! not look into them. Nothing else writes to the companion, so a value of another type counts as missing.

use super::collection::{argument, send, send_or_null};
use super::dataset_versions::check_hold;
use super::hash::each;
use super::listing::SLICE_KEYS;
use crate::call::{Call, LaneCall};
use crate::serial::system;
use strand_keyspace::journal::Arg;
use strand_keyspace::{
    AsValue, Bytes, Changed, Collection, HashValue, PUBLISHED_FIELD, Settings, Txn, Value,
};

/// `IMPORT.VERSION GET dataset path`. Reply: the container, or null.
pub(crate) fn get(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.txn.keyspace().system_db(call.db));
    let hash: Option<&HashValue> = db.peek_at(&call.keys[0]).ok().flatten();
    send_or_null(call.reply, hash.and_then(|h| h.get(call.args.at(3))));
}

/// `IMPORT.VERSION LIST dataset`. Reply: an array of the paths with a container, in no order.
pub(crate) fn list(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.txn.keyspace().system_db(call.db));
    let hash: Option<&HashValue> = db.peek_at(&call.keys[0]).ok().flatten();
    let containers = hash.map_or(0, |hash| hash.len() - usize::from(hash.get(PUBLISHED_FIELD).is_some()));
    call.reply.array(containers);
    each(hash, call.reply, |reply, path, _| {
        if path[..] != *PUBLISHED_FIELD {
            send(reply, path);
        }
    });
}

/// `IMPORT.VERSION DATASETS`, on the lane. Reply: an array, in no order, of the datasets that have a container and
/// that the user may read.
pub(crate) fn datasets(call: &mut LaneCall<'_>) {
    let (keyspace, db) = (call.keyspace, call.keyspace.system_db(call.db));
    let mut names = Vec::new();
    let mut cursor = 0;
    loop {
        let known = names.len();
        cursor = keyspace.scan(db, cursor, SLICE_KEYS, call.now_ms, &mut |record| {
            names.push(record.key().to_vec());
        });
        // Check the rights while no shard is locked, because a user may have many patterns.
        let found: Vec<Vec<u8>> = names.drain(known..).filter(|name| call.may_read(name)).collect();
        names.extend(found);
        if cursor == 0 || call.cancelled() {
            break;
        }
        call.pause();
    }
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
}

/// `IMPORT.VERSION SET dataset path container [HOLD number]`: records a container. Reply: OK, or an error if the database
/// was flushed or swapped after HOLD replied this number.
pub(crate) fn set(call: &mut Call<'_, '_>) {
    if let Err(text) = check_hold(call, 5) {
        return call.reply.error(text);
    }
    let keyspace = call.txn.keyspace();
    let (path, container) = (call.args.at(3), argument(call.args, 4));
    let key = &call.keys[0];
    let mut db = call.txn.db(keyspace.system_db(call.db));
    let set = db.change_or_create(key, |hash: &mut HashValue| {
        (hash.set(path, container, keyspace.settings()), Changed::Yes)
    });
    if set.is_err() {
        db.insert(key, new_hash(path, container, keyspace.settings()), None);
    }
    // Without the number of the hold: another server counts its own flushes.
    record(call, 5);
    call.reply.ok();
}

/// Records the first `words` words of the command, which has changed a companion, as its effect.
pub(super) fn record(call: &mut Call<'_, '_>, words: usize) {
    if call.txn.is_recorded() {
        record_words(call.txn, call.db, &call.args.iter().take(words).collect::<Vec<_>>());
    }
}

/// Records a command about a companion of `db` as an effect. redis-server runs an ECHO without any effect.
pub(crate) fn record_words(txn: &mut Txn<'_>, db: usize, words: &[&[u8]]) {
    let [echo, message] = system::import_echo(words);
    txn.effect(db, &[Arg::Bytes(&echo), Arg::Bytes(&message)]);
}

/// A new hash with one field.
pub(super) fn new_hash(field: &[u8], value: Bytes<'_>, settings: &Settings) -> Value {
    let mut hash = HashValue::new();
    hash.set(field, value, settings);
    hash.into_value()
}

/// `IMPORT.VERSION DEL dataset path [path ...]`: removes containers. The dataset is removed together with its last
/// container. Reply: how many of the containers existed.
pub(crate) fn del(call: &mut Call<'_, '_>) {
    let key = &call.keys[0];
    let mut db = call.txn.db(call.txn.keyspace().system_db(call.db));
    let paths = call.args.skip(3);
    let removed = db.change(key, |hash: &mut HashValue| {
        let removed = paths.iter().filter(|path| **path != *PUBLISHED_FIELD && hash.remove(path)).count();
        if removed > 0 && hash.len() == 1 {
            // A dataset without containers does not exist, so it has no published versions.
            hash.remove(PUBLISHED_FIELD);
        }
        (removed, (removed > 0).into())
    });
    let removed = removed.ok().flatten().unwrap_or(0);
    if removed > 0 {
        record(call, call.args.len());
    }
    call.reply.int(removed as i64);
}

/// `IMPORT.VERSION HELP`. Reply: lines of text.
pub(crate) fn help(call: &mut Call<'_, '_>) {
    crate::introspect::help(
        call.reply,
        "IMPORT.VERSION",
        &[
            "DATASETS",
            "    List the datasets that have a container and that you may read.",
            "DEL <dataset> <path> [<path> ...]",
            "    Forget the containers at these paths; reply how many there were.",
            "GET <dataset> <path>",
            "    Return the container recorded at this path, or null.",
            "HOLD <dataset>",
            "    Keep other importers off the dataset while this connection exists; reply the number of the hold,",
            "    or 0 when another connection holds the dataset.",
            "KEEP <dataset> <version> [COUNT <count>]",
            "    Keep what the text indexes find now as this version, for FT.SEARCH and FT.CHANGES; reply",
            "    the number of indexes, or null if you must send the command again.",
            "LIST <dataset>",
            "    List the paths that have a container.",
            "LOG <dataset>",
            "    List the version name and the version id of each published version, the newest first.",
            "PUBLISH <dataset> <version> [HOLD <number>]",
            "    Say that all documents of the version have arrived; reply the version name. With HOLD: an error",
            "    if the database was flushed or swapped after HOLD replied this number.",
            "REPORT <dataset> <name> <value> [<name> <value> ...]",
            "    Record the progress of this connection's import; reply 1, or 0 if it does not hold the dataset.",
            "SET <dataset> <path> <container> [HOLD <number>]",
            "    Record a container. With HOLD: the error of PUBLISH.",
            "WAIT <dataset> <version> VISIBLE [TIMEOUT <milliseconds>]",
            "    Wait until the version (a version id or a version name) is published; reply the version name, or null",
            "    after the timeout.",
        ],
    );
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use strand_wire::reply::Protocol;

    #[test]
    fn containers_are_kept_apart_from_keys() {
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION GET mail a/b", "$-1|"),
            ("IMPORT.VERSION LIST mail", "*0|"),
            ("IMPORT.VERSION SET mail a/b one", "+OK|"),
            ("IMPORT.VERSION SET mail a/b two", "+OK|"),
            ("IMPORT.VERSION GET mail a/b", "$3|two|"),
            ("IMPORT.VERSION LIST mail", "*1|$3|a/b|"),
            ("IMPORT.VERSION DATASETS", "*1|$4|mail|"),
            ("IMPORT.VERSION SET mail c three", "+OK|"),
            ("EXISTS mail", ":0|"),
            ("DBSIZE", ":0|"),
            ("KEYS *", "*0|"),
            ("SCAN 0", "*2|$1|0|*0|"),
            ("RANDOMKEY", "$-1|"),
            ("HSET mail f v", ":1|"),
            ("DEL mail", ":1|"),
            ("IMPORT.VERSION DEL mail c d c", ":1|"),
            ("IMPORT.VERSION DEL mail a/b", ":1|"),
            ("IMPORT.VERSION DEL mail a/b", ":0|"),
            ("IMPORT.VERSION LIST mail", "*0|"),
            ("IMPORT.VERSION DATASETS", "*0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[("IMPORT.VERSION GET mail a/b", "_|")]);
    }

    #[test]
    fn many_paths_are_listed_and_forgotten_on_the_lane() {
        use crate::cost::LONG_ELEMENTS;
        let mut f = Fixture::new();
        f.run("HSET mail f v");
        let n = LONG_ELEMENTS + 1;
        (0..n).for_each(|i| drop(f.run(&format!("IMPORT.VERSION SET mail p{i} c"))));
        f.pauses.take();
        let list = f.run("IMPORT.VERSION LIST mail");
        assert!(list.starts_with(&format!("*{n}|")) && list.matches("|p").count() == n);
        assert!(f.pauses.take() > 1, "on a snapshot, with pauses in the reply");
        let mut del: Vec<String> = ["IMPORT.VERSION", "DEL", "mail"].map(String::from).into();
        del.extend((0..9 * n).map(|i| format!("p{i}")));
        assert_eq!(f.run_args(&del), format!(":{n}\r\n").as_bytes());
        assert!(f.pauses.take() > 9 * n / 200);
        f.script(&[("IMPORT.VERSION LIST mail", "*0|"), ("HLEN mail", ":1|")]);
    }

    #[test]
    fn containers_move_with_their_database() {
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION SET mail p one", "+OK|"),
            ("SWAPDB 0 1", "+OK|"),
            ("IMPORT.VERSION GET mail p", "$-1|"),
        ]);
        f.db = 1;
        f.script(&[
            ("IMPORT.VERSION GET mail p", "$3|one|"),
            ("FLUSHDB", "+OK|"),
            ("IMPORT.VERSION GET mail p", "$-1|"),
        ]);
    }

    #[test]
    fn a_wrong_number_of_arguments_is_an_error() {
        let mut f = Fixture::new();
        f.script(&[
            ("IMPORT.VERSION", "-ERR wrong number of arguments for 'import.version' command|"),
            ("IMPORT.VERSION GET mail", "-ERR wrong number of arguments for 'import.version|get' command|"),
            ("IMPORT.VERSION DEL mail", "-ERR wrong number of arguments for 'import.version|del' command|"),
            ("IMPORT.VERSION FOO", "-ERR unknown subcommand 'FOO'. Try IMPORT.VERSION HELP.|"),
        ]);
        assert!(f.run("IMPORT.VERSION HELP").starts_with("*29|+IMPORT.VERSION "));
    }
}
