//! A keyspace of two million keys: during growth, during commands on all of it or on 100,000 keys, when half of it
//! expires at once, and when it is emptied.

use super::event::EventClient;
use super::{EXPIRING, KEYS, Lab, MANY, Result};
use crate::fill::{self, Content, push_key};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strand_testkit::process::{Program, Server};
use strand_wire::client::Value;

const GROWTH: &str = "7 growth of the keyspace";
const KEYS_ALL: &str = "9 KEYS *";
const SCAN: &str = "9 SCAN with COUNT 1000000, to the end";
const MSET: &str = "9 MSET of many keys";
const MGET: &str = "9 MGET of many keys";
const DEL: &str = "9 DEL of many keys";
const GREP: &str = "9 RX.GREP over all values";
const EXPIRY: &str = "9 keys that expire in one second";
const BGSAVE: &str = "9 BGSAVE beside writes";
const FLUSH: &str = "9 FLUSHALL SYNC";

pub(super) const ROWS: &[&str] = &[GROWTH, KEYS_ALL, SCAN, MSET, MGET, DEL, GREP, BGSAVE, EXPIRY, FLUSH];

/// Number of batches of writes between two checks whether the snapshot is done.
const BATCHES_PER_CHECK: u64 = 200;
/// Maximum number of checks whether the snapshot is done.
const SAVE_CHECKS_MAX: u64 = 10_000;

/// Number of keys in one write during growth. It is small, so that the probe does not wait for the writes
/// themselves.
const GROWTH_BATCH: u64 = 25;
/// Keys per second that a fill reaches at least, even on a busy machine.
const FILL_PER_S_MIN: u64 = 200_000;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let (keys, many) = (lab.options.size(KEYS), lab.options.size(MANY));
    if lab.wants(GROWTH) {
        lab.stall(GROWTH, 1, |client, _| grow(client, keys));
    } else {
        fill::keys(&lab.server, keys, Content::Bytes(64))?;
    }
    lab.stall(KEYS_ALL, 3, |client, _| client.call(&["KEYS", "*"]).map(drop));
    lab.stall(SCAN, 1, |client, _| client.scan(&["SCAN", "0", "COUNT", "1000000"], 1));
    if [MSET, MGET, DEL].iter().any(|row| lab.wants(row)) {
        let (set, names) = (many_keys(many, true), many_keys(many, false));
        let with = |name: &str, rest: &[Vec<u8>]| [vec![name.as_bytes().to_vec()], rest.to_vec()].concat();
        let (mset, mget, del) = (with("MSET", &set), with("MGET", &names), with("DEL", &names));
        lab.stall(MSET, 3, |client, _| client.call(&mset).map(drop));
        EventClient::connect(&lab.server)?.call(&mset)?;
        lab.stall(MGET, 3, |client, _| client.call(&mget).map(drop));
        lab.stall(DEL, 1, |client, _| client.call(&del).map(drop));
    }
    if lab.server.kind == Program::Strand {
        lab.stall(GREP, 1, |client, _| {
            client.call(&["RX.GREP", "VALUES", "q[0-9]+z", "LIMIT", "10"]).map(drop)
        });
    }
    lab.stall(BGSAVE, 3, |client, server| save(client, server, keys));
    if lab.wants(EXPIRY) {
        expire(lab)?;
    }
    lab.stall(FLUSH, 1, |client, _| client.call(&["FLUSHALL", "SYNC"]).map(drop));
    Ok(())
}

fn grow(client: &mut EventClient, keys: u64) -> Result<()> {
    let (value, mut batch) = (fill::value(64), Vec::new());
    for first in (0..keys).step_by(GROWTH_BATCH as usize) {
        batch.clear();
        (first..(first + GROWTH_BATCH).min(keys)).for_each(|k| fill::set(&mut batch, k, &value));
        client.pipeline(&batch)?;
    }
    Ok(())
}

/// Starts a snapshot, and writes all keys repeatedly until it is done.
fn save(client: &mut EventClient, server: &Server, keys: u64) -> Result<()> {
    client.call(&["BGSAVE"])?;
    let (mut control, mut next, value, mut batch) = (server.connect()?, 0, fill::value(64), Vec::new());
    for _ in 0..SAVE_CHECKS_MAX {
        for _ in 0..BATCHES_PER_CHECK {
            batch.clear();
            (0..GROWTH_BATCH).for_each(|k| fill::set(&mut batch, (next + k) % keys, &value));
            next += GROWTH_BATCH;
            client.pipeline(&batch)?;
        }
        let Value::Bulk(info) = control.call(&["INFO", "persistence"])? else {
            return Err("INFO is a text".into());
        };
        if String::from_utf8_lossy(&info).contains("rdb_bgsave_in_progress:0") {
            return Ok(());
        }
    }
    Err("the snapshot does not end".into())
}

/// Keys that only the rows of many keys use. With `values`, each key is followed by a value.
fn many_keys(many: u64, values: bool) -> Vec<Vec<u8>> {
    let value = fill::value(64);
    let mut words = Vec::new();
    for k in 0..many {
        let mut key = Vec::new();
        push_key(&mut key, b"mst:", k);
        words.push(key);
        if values {
            words.push(value.clone());
        }
    }
    words
}

/// Lets all keys of the row expire in one millisecond. The event begins at that millisecond, and ends when the keys are
/// removed, so that DBSIZE has the value from before the row.
fn expire(lab: &mut Lab<'_>) -> Result<()> {
    let expiring = lab.options.size(EXPIRING);
    let size_before = size(&lab.server)?;
    let at_ms = now_ms()? + 1500 + expiring * 1000 / FILL_PER_S_MIN;
    fill::expiring_at(&lab.server, expiring, at_ms)?;
    let quiet = lab.quiet();
    let left_ms = at_ms.checked_sub(now_ms()?).ok_or("the fill was slower than the expiry")?;
    std::thread::sleep(Duration::from_millis(left_ms.saturating_sub(5)));
    lab.stall_after(quiet, EXPIRY, 1, move |client, _| client.wait_for_size(size_before));
    Ok(())
}

pub(super) fn size(server: &Server) -> Result<u64> {
    match server.connect()?.call(&["DBSIZE"])? {
        Value::Int(n) => Ok(n as u64),
        other => Err(format!("DBSIZE answers {other:?}").into()),
    }
}

fn now_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}
