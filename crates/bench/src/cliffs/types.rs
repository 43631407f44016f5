//! One value of each type with a million elements: read whole, computed with, partly deleted, removed. Also
//! strings of many bits.

use super::{LARGE_MB, Lab, Result};
use crate::fill::{self, Collection};

const LRANGE: &str = "9 LRANGE of a huge list";
const LINSERT: &str = "9 LINSERT at the end of a huge list";
const LREM: &str = "9 LREM in a huge list";
const LTRIM: &str = "9 LTRIM of half a huge list";
const SORT: &str = "9 SORT of a huge list";
const SMEMBERS: &str = "9 SMEMBERS of a huge set";
const SINTER: &str = "9 SINTER of two huge sets";
const SUNIONSTORE: &str = "9 SUNIONSTORE of two huge sets";
const SDIFFSTORE: &str = "9 SDIFFSTORE of two huge sets";
const ZRANGE: &str = "9 ZRANGE of a huge sorted set";
const ZUNION: &str = "9 ZUNION of two huge sorted sets";
const ZUNIONSTORE: &str = "9 ZUNIONSTORE of two huge sorted sets";
const ZINTERSTORE: &str = "9 ZINTERSTORE of two huge sorted sets";
const ZDIFFSTORE: &str = "9 ZDIFFSTORE of two huge sorted sets";
const ZREMRANGE: &str = "9 ZREMRANGEBYRANK of half a huge sorted set";
const GEOSEARCH: &str = "9 GEOSEARCH over a huge sorted set";
const XRANGE: &str = "9 XRANGE of a huge stream";
const XTRIM: &str = "9 XTRIM of half a huge stream";
const BITCOUNT: &str = "9 BITCOUNT of a large string";
const BITPOS: &str = "9 BITPOS in a large string";
const BITOP: &str = "9 BITOP of two large strings";
const PFMERGE: &str = "9 PFMERGE of many";
const EXEC: &str = "9 EXEC of LRANGE of a huge list";
const DEL: &str = "9 DEL of a huge value of each type";

pub(super) const ROWS: &[&str] = &[
    LRANGE,
    LINSERT,
    LREM,
    LTRIM,
    SORT,
    SMEMBERS,
    SINTER,
    SUNIONSTORE,
    SDIFFSTORE,
    ZRANGE,
    ZUNION,
    ZUNIONSTORE,
    ZINTERSTORE,
    ZDIFFSTORE,
    ZREMRANGE,
    GEOSEARCH,
    XRANGE,
    XTRIM,
    BITCOUNT,
    BITPOS,
    BITOP,
    PFMERGE,
    EXEC,
    DEL,
];

/// Number of elements of a value at scale 1.
const ELEMENTS: f64 = 1_000_000.0;
/// Number of HyperLogLogs that are merged.
const MERGED: f64 = 1_000.0;
/// Members that one GEOADD adds to the set of places.
const PLACES_PER_COMMAND: u64 = 100;

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let elements = lab.options.size(ELEMENTS);
    for (name, kind, count) in [
        ("list", Collection::List, elements),
        ("numbers", Collection::Set, elements),
        ("set", Collection::Set, elements),
        ("set2", Collection::Set, elements / 2),
        ("zset", Collection::ZSet, elements),
        ("zset2", Collection::ZSet, elements / 2),
        ("stream", Collection::Stream, elements),
    ] {
        fill::collection(&lab.server, name, kind, count)?;
    }
    lists(lab, elements)?;
    measure_command(lab, SMEMBERS, "SMEMBERS set");
    measure_command(lab, SINTER, "SINTER set set2");
    measure_command(lab, SUNIONSTORE, "SUNIONSTORE stored set set2");
    measure_command(lab, SDIFFSTORE, "SDIFFSTORE stored set set2");
    measure_command(lab, ZRANGE, "ZRANGE zset 0 -1 WITHSCORES");
    measure_command(lab, ZUNION, "ZUNION 2 zset zset2");
    measure_command(lab, ZUNIONSTORE, "ZUNIONSTORE zstored 2 zset zset2");
    measure_command(lab, ZINTERSTORE, "ZINTERSTORE zstored 2 zset zset2");
    measure_command(lab, ZDIFFSTORE, "ZDIFFSTORE zstored 2 zset zset2");
    measure_command(lab, ZREMRANGE, &format!("ZREMRANGEBYRANK zset 0 {}", elements / 2));
    measure_command(lab, XRANGE, "XRANGE stream - +");
    measure_command(lab, XTRIM, &format!("XTRIM stream MAXLEN {}", elements / 2));
    if lab.wants(GEOSEARCH) {
        places(lab, elements)?;
        measure_command(lab, GEOSEARCH, "GEOSEARCH places FROMLONLAT 0 0 BYRADIUS 5000 km ASC COUNT 10");
    }
    strings(lab)?;
    lab.stall(DEL, 1, |client, _| {
        let names = ["list", "set", "zset2", "stream", "numbers"];
        names.into_iter().try_for_each(|name| client.call(&["DEL", name]).map(drop))
    });
    Ok(())
}

/// Adds a row that measures one command, given as words separated by spaces.
fn measure_command(lab: &mut Lab<'_>, name: &'static str, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    lab.stall(name, 1, |client, _| client.call(&words).map(drop));
}

fn lists(lab: &mut Lab<'_>, elements: u64) -> Result<()> {
    let last = format!("element:{:08}", elements - 1);
    measure_command(lab, LRANGE, "LRANGE list 0 -1");
    measure_command(lab, SORT, "SORT list ALPHA LIMIT 0 10");
    measure_command(lab, LINSERT, &format!("LINSERT list BEFORE {last} new"));
    measure_command(lab, LREM, &format!("LREM list 0 {last}"));
    lab.stall(EXEC, 1, |client, _| client.pipeline(b"MULTI\r\nLRANGE list 0 -1\r\nEXEC\r\n").map(drop));
    if lab.wants(LTRIM) {
        lab.server.connect()?.call(&["COPY", "list", "trimmed"])?;
        measure_command(lab, LTRIM, &format!("LTRIM trimmed {} -1", elements / 2));
    }
    Ok(())
}

/// Creates a sorted set of places all over the earth.
fn places(lab: &Lab<'_>, elements: u64) -> Result<()> {
    let mut client = lab.server.connect()?;
    for first in (0..elements).step_by(PLACES_PER_COMMAND as usize) {
        let mut words = vec!["GEOADD".to_string(), "places".to_string()];
        for i in first..(first + PLACES_PER_COMMAND).min(elements) {
            let (longitude, latitude) = (i * 7919 % 360_000, i * 104_729 % 170_000);
            words.push(format!("{}", longitude as f64 / 1000.0 - 180.0));
            words.push(format!("{}", latitude as f64 / 1000.0 - 85.0));
            words.push(format!("place:{i:08}"));
        }
        client.call(&words)?;
    }
    Ok(())
}

fn strings(lab: &mut Lab<'_>) -> Result<()> {
    if [BITCOUNT, BITPOS, BITOP].iter().any(|row| lab.wants(row)) {
        let bits = (lab.options.size(LARGE_MB) << 23).saturating_sub(1).to_string();
        let mut client = lab.server.connect()?;
        for name in ["bits", "bits2"] {
            client.call(&["SETBIT", name, &bits, "1"])?;
        }
        measure_command(lab, BITCOUNT, "BITCOUNT bits");
        measure_command(lab, BITPOS, "BITPOS bits 1");
        measure_command(lab, BITOP, "BITOP OR combined bits bits2");
        lab.server.connect()?.call(&["UNLINK", "bits", "bits2", "combined"])?;
    }
    if lab.wants(PFMERGE) {
        let merged = lab.options.size(MERGED);
        let mut client = lab.server.connect()?;
        for i in 0..merged {
            let mut words = vec!["PFADD".to_string(), format!("log:{i}")];
            words.extend((0..1000).map(|n| format!("{}", i * 1000 + n)));
            client.call(&words)?;
        }
        let names: Vec<String> = (0..merged).map(|i| format!("log:{i}")).collect();
        measure_command(lab, PFMERGE, &format!("PFMERGE merged {}", names.join(" ")));
    }
    Ok(())
}
