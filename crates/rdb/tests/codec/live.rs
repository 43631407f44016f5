//! redis-server reads Strand's output, Strand reads redis-server's output, and the digests are equal.

use crate::common::{Packing, Value, read_file, read_payload, write_file, write_payload};
use crate::files::digest;
use crate::manifest::data_files;
use crate::payloads::payloads;
use strand_rdb::digest::ValueDigest;
use strand_testkit::client::Client;
use strand_testkit::process::Server;
use strand_wire::client::Value as Reply;

fn server() -> (Server, Client) {
    let server = Server::redis(&["--enable-debug-command", "yes"], None).expect("redis-server");
    let client = server.connect().expect("a connection");
    (server, client)
}

fn text(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) => bytes.to_vec(),
        Reply::Array(all) if all.len() == 1 => text(&all[0]),
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn values_are_exchanged_with_redis_server() {
    let (_server, mut redis) = server();
    let mut exchanged = 0;
    for (payload, _) in payloads() {
        let ours = read_payload(&payload).unwrap();
        if matches!(&ours, Value::Hash(hash) if hash.values().any(|(_, at)| at.is_some())) {
            continue; // 7.0 has no expiring fields.
        }
        for (packing, compress) in
            [(Packing::Packed, true), (Packing::Unpacked, true), (Packing::Packed, false)]
        {
            let written = write_payload(&ours, packing, compress);
            let reply = redis.call(&[&b"RESTORE"[..], b"k", b"0", &written, b"REPLACE"]).unwrap();
            assert_eq!(text(&reply), b"OK", "{ours:?}");
            let theirs = text(&redis.call(&["DUMP", "k"]).unwrap());
            let mut again = read_payload(&theirs).unwrap();
            let digest = text(&redis.call(&["DEBUG", "DIGEST-VALUE", "k"]).unwrap());
            let own = again.digest(ValueDigest::new, false).unwrap().to_hex();
            assert_eq!(String::from_utf8(digest).unwrap(), own, "{again:?}");
            let mut expected = ours.clone();
            crate::common::normalize(&mut expected);
            // The format that redis-server chooses decides whether the sign of zero is kept, so ignore the sign.
            for value in [&mut again, &mut expected] {
                if let Value::SortedSet(set) = value {
                    set.values_mut().for_each(|bits| *bits = (f64::from_bits(*bits) + 0.0).to_bits());
                }
            }
            assert_eq!(again, expected);
            exchanged += 1;
        }
    }
    assert!(exchanged > 800, "{exchanged}");
}

#[test]
fn redis_server_loads_our_files_with_equal_digests() {
    let (_server, mut redis) = server();
    let Reply::Array(pair) = redis.call(&["CONFIG", "GET", "dir"]).unwrap() else { panic!("a pair") };
    let folder = std::path::PathBuf::from(String::from_utf8(text(&pair[1])).unwrap());
    let mut loaded = 0;
    for path in data_files("-many.rdb")
        .into_iter()
        .chain(data_files("-tight.rdb"))
        .chain(data_files("7.0.15-mixed.rdb"))
    {
        let (mut read, _) = read_file(&std::fs::read(&path).unwrap()).unwrap();
        let field_expiry =
            |value: &Value| matches!(value, Value::Hash(hash) if hash.values().any(|(_, at)| at.is_some()));
        read.records.retain(|record| !field_expiry(&record.value));
        read.records.sort_by_key(|record| record.db);
        for packing in [Packing::Packed, Packing::Unpacked] {
            std::fs::write(folder.join("dump.rdb"), write_file(&read.records, packing, true)).unwrap();
            let reply = redis.call(&["DEBUG", "RELOAD", "NOSAVE"]).unwrap();
            assert_eq!(text(&reply), b"OK", "{}", path.display());
            // redis-server now saves the data that it holds. The sign of zero may be lost.
            assert_eq!(text(&redis.call(&["SAVE"]).unwrap()), b"OK");
            let (theirs, _) = read_file(&std::fs::read(folder.join("dump.rdb")).unwrap()).unwrap();
            assert_eq!(theirs.records.len(), read.records.len(), "{}", path.display());
            let debug_digest = text(&redis.call(&["DEBUG", "DIGEST"]).unwrap());
            assert_eq!(
                String::from_utf8(debug_digest).unwrap(),
                digest(&theirs.records),
                "{}",
                path.display()
            );
            loaded += 1;
        }
    }
    assert!(loaded > 30, "{loaded}");
}
