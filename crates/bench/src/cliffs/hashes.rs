//! One key with two million fields: read whole, scanned, half deleted, copied, removed, expired.

use super::keyspace::size;
use super::{FIELDS, Lab, MANY, Result};
use crate::fill;
use std::time::Duration;

const HGETALL: &str = "9 HGETALL of a huge hash";
const HKEYS: &str = "9 HKEYS of a huge hash";
const HSCAN: &str = "9 HSCAN with COUNT 1000000, to the end";
const HDEL: &str = "9 HDEL of many fields";
const COPY: &str = "9 COPY of a huge hash";
const DEL: &str = "9 DEL of a huge hash";
const EXPIRY: &str = "9 expiry of a huge hash";

pub(super) const ROWS: &[&str] = &[HGETALL, HKEYS, HSCAN, HDEL, COPY, DEL, EXPIRY];

/// The hash expires after this time.
const EXPIRE_MS: u64 = 50;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let (fields, many) = (lab.options.size(FIELDS), lab.options.size(MANY));
    fill::hash(&lab.server, "hash", fields)?;
    lab.stall(HGETALL, 2, |client, _| client.call(&["HGETALL", "hash"]).map(drop));
    lab.stall(HKEYS, 2, |client, _| client.call(&["HKEYS", "hash"]).map(drop));
    lab.stall(HSCAN, 1, |client, _| client.scan(&["HSCAN", "hash", "0", "COUNT", "1000000"], 2));
    let names = (0..many.min(fields / 2)).map(|f| format!("field:{f:08}"));
    let hdel: Vec<String> = ["HDEL".to_string(), "hash".to_string()].into_iter().chain(names).collect();
    lab.stall(HDEL, 1, |client, _| client.call(&hdel).map(drop));
    if lab.wants(COPY) {
        lab.stall(COPY, 1, |client, _| client.call(&["COPY", "hash", "copy"]).map(drop));
    } else if lab.wants(DEL) {
        fill::hash(&lab.server, "copy", fields)?;
    }
    lab.stall(DEL, 1, |client, _| client.call(&["DEL", "copy"]).map(drop));
    if lab.wants(EXPIRY) {
        let others = size(&lab.server)? - 1;
        let quiet = lab.quiet();
        lab.server.connect()?.call(&["PEXPIRE", "hash", &EXPIRE_MS.to_string()])?;
        std::thread::sleep(Duration::from_millis(EXPIRE_MS - 5));
        lab.stall_after(quiet, EXPIRY, 1, move |client, _| client.wait_for_size(others));
    }
    Ok(())
}
