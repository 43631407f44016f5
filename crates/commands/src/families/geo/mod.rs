//! GEOADD, GEODIST, GEOHASH and GEOPOS: positions on the earth in sorted sets. Searches are in [`search`].
//!
//! A position is stored as the score of its member. [`strand_keyspace::types::geo`] has the arithmetic. Every score
//! stands for some position, so these commands work on every sorted set.

mod search;

pub(crate) use search::{
    MEMBER_ELEMENTS, georadius, georadius_elements, georadius_long, georadius_ro, georadiusbymember,
    georadiusbymember_elements, georadiusbymember_long, georadiusbymember_ro, geosearch, geosearch_elements,
    geosearchstore, geosearchstore_elements, geosearchstore_long,
};

use super::collection::{self, read};
use crate::call::{Call, LaneCall};
use crate::copy_write;
use crate::cost::{Merge, Slices};
use crate::errors;
use crate::long;
use crate::parse::Text;
use crate::strtod;
use strand_keyspace::ZSetValue;
use strand_keyspace::types::geo::Point;
use strand_keyspace::types::zset::Set;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const UNIT: &str = "ERR unsupported unit provided. please use M, KM, FT, MI";

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]`. Reply: how many members are
/// new, with CH also those that moved.
pub(crate) fn geoadd(call: &mut Call<'_, '_>) {
    match add(call) {
        Ok(count) => call.reply.int(count),
        Err(text) => call.reply.error(&text),
    }
}

/// GEOADD of many members, on the lane. All positions are checked before the first member is set.
pub(crate) fn geoadd_long(call: &mut LaneCall<'_>) {
    let (spec, run) = long::spec_and_handler("geoadd");
    let Ok(options) = Options::parse(call.args) else { return long::run_locked(spec, run, call) };
    let wrong = options.members(call.args).find_map(|at| point(call.args, at).err());
    let slices = Slices { head: options.from, step: 3, merge: Merge::Sum, of_system: false };
    match wrong {
        None => copy_write::run_in_slices(spec, run, slices, call),
        Some(text) => call.reply.error(&text),
    }
}

struct Options {
    nx: bool,
    xx: bool,
    ch: bool,
    /// The position of the first longitude among the arguments.
    from: usize,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Text> {
        let mut o = Options { nx: false, xx: false, ch: false, from: 2 };
        while o.from < args.len() {
            let option = if args.is(o.from, "NX") {
                &mut o.nx
            } else if args.is(o.from, "XX") {
                &mut o.xx
            } else if args.is(o.from, "CH") {
                &mut o.ch
            } else {
                break;
            };
            *option = true;
            o.from += 1;
        }
        let given = args.len() - o.from;
        match given == 0 || !given.is_multiple_of(3) || (o.nx && o.xx) {
            true => Err(errors::SYNTAX.into()),
            false => Ok(o),
        }
    }
    /// The positions of the members' longitudes among the arguments.
    fn members(&self, args: Args<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        (self.from..args.len()).step_by(3)
    }
}

fn add(call: &mut Call<'_, '_>) -> Result<i64, Text> {
    let args = call.args;
    let options = Options::parse(args)?;
    let members = options.members(args);
    let scores: Result<Vec<f64>, Text> = members.clone().map(|at| Ok(point(args, at)?.score())).collect();
    let scores = scores?;
    let Options { nx, xx, ch, .. } = options;
    collection::update(call, |zset: &mut ZSetValue, settings| {
        let (mut added, mut updated) = (0, 0);
        for (at, score) in members.zip(&scores) {
            let member = args.at(at + 2);
            let is_there = (nx || xx) && zset.score(member).is_some();
            if (nx && is_there) || (xx && !is_there) {
                continue;
            }
            match zset.set(collection::argument(args, at + 2), *score, settings) {
                Set::Added => added += 1,
                Set::Updated => updated += 1,
                Set::Unchanged => {}
            }
        }
        let reply = if ch { added + updated } else { added };
        Ok((reply, (added + updated > 0).into()))
    })
}

/// `GEOPOS key [member ...]`. Reply: an array of pairs of longitude and latitude, null for a missing member.
pub(crate) fn geopos(call: &mut Call<'_, '_>) {
    each(call, |reply, point| match point {
        Some(point) => send_point(reply, &point),
        None => reply.null_array(),
    });
}

/// `GEOHASH key [member ...]`. Reply: an array of geohashes, null for a missing member.
pub(crate) fn geohash(call: &mut Call<'_, '_>) {
    each(call, |reply, point| match point {
        Some(point) => reply.bulk(&point.geohash()),
        None => reply.null(),
    });
}

fn each(call: &mut Call<'_, '_>, answer: impl Fn(&mut Reply<'_>, Option<Point>)) {
    let members = call.args.skip(2);
    read(call, |zset: Option<&ZSetValue>, reply| {
        reply.array(members.len());
        for member in members.iter() {
            if reply.exceeds_limit() {
                break;
            }
            answer(reply, zset.and_then(|zset| zset.score(member)).map(Point::of_score));
        }
    });
}

/// `GEODIST key member1 member2 [M | KM | FT | MI]`. Reply: the distance, or null.
pub(crate) fn geodist(call: &mut Call<'_, '_>) {
    let args = call.args;
    let unit_m = match args.len() {
        4 => Ok(1.0),
        5 => unit_m(args.at(4)),
        _ => Err(errors::SYNTAX),
    };
    let unit_m = match unit_m {
        Ok(unit_m) => unit_m,
        Err(text) => return call.reply.error(text),
    };
    read(call, |zset: Option<&ZSetValue>, reply| {
        let point = |at| zset?.score(args.at(at)).map(Point::of_score);
        match (point(2), point(3)) {
            (Some(a), Some(b)) => send_distance(reply, a.distance_m(&b) / unit_m),
            _ => reply.null(),
        }
    });
}

/// Parses the longitude and the latitude at these arguments.
fn point(args: Args<'_>, at: usize) -> Result<Point, Text> {
    let point = Point {
        longitude: strtod::parse(args.at(at)).ok_or(errors::NOT_A_FLOAT)?,
        latitude: strtod::parse(args.at(at + 1)).ok_or(errors::NOT_A_FLOAT)?,
    };
    if point.is_valid() {
        return Ok(point);
    }
    let Point { longitude, latitude } = point;
    Err(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into())
}

/// The length of a unit in metres.
fn unit_m(word: &[u8]) -> Result<f64, &'static str> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = UNITS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    unit.map(|(_, metres)| *metres).ok_or(UNIT)
}

/// Sends a distance with four decimals. It is a bulk string in RESP3, too.
fn send_distance(reply: &mut Reply<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn send_point(reply: &mut Reply<'_>, point: &Point) {
    reply.array(2);
    for angle in [point.longitude, point.latitude] {
        // The unrounded number with 17 decimals, without trailing zeros.
        let text = format!("{angle:.17}");
        reply.double_text(text.trim_end_matches('0').trim_end_matches('.'));
    }
}

#[cfg(test)]
mod tests {
    use crate::errors;
    use crate::fixture::Fixture;
    use strand_wire::reply::Protocol;

    pub(super) fn sicily() -> Fixture {
        let mut f = Fixture::new();
        f.script(&[("GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|")]);
        f
    }

    #[test]
    fn positions_are_stored_and_read() {
        let mut f = sicily();
        f.script(&[
            ("ZSCORE s Palermo", "$16|3479099956230698|"),
            ("GEODIST s Palermo Catania", "$11|166274.1516|"),
            ("GEODIST s Palermo Catania km", "$8|166.2742|"),
            ("GEODIST s Palermo Catania MI", "$8|103.3182|"),
            ("GEODIST s Palermo none", "$-1|"),
            ("GEODIST none a b", "$-1|"),
            ("GEODIST s a b light-years", "-ERR unsupported unit provided. please use M, KM, FT, MI|"),
            ("GEODIST s a b m m", "-ERR syntax error|"),
            ("GEOHASH s Palermo none Catania", "*3|$11|sqc8b49rny0|$-1|$11|sqdtr74hyu0|"),
            ("GEOPOS s none Palermo", "*2|*-1|*2|$20|13.36138933897018433|$20|38.11555639549629859|"),
            ("GEOPOS none a", "*1|*-1|"),
            ("GEOPOS s", "*0|"),
            ("GEOADD s NX 1 1 Palermo", ":0|"),
            ("GEOADD s XX 1 1 new", ":0|"),
            ("GEOADD s CH XX 1 1 Palermo", ":1|"),
            ("GEOADD s CH 1 1 Palermo 2 2 new", ":1|"),
            ("GEOADD s NX XX 1 1 a", "-ERR syntax error|"),
            ("GEOADD s NX CH 1", "-ERR syntax error|"),
            ("GEOADD s x 1 a", "-ERR value is not a valid float|"),
            ("GEOADD s 181 0 a", "-ERR invalid longitude,latitude pair 181.000000,0.000000|"),
            ("GEOADD s 0 0 a -inf 0 b", "-ERR invalid longitude,latitude pair -inf,0.000000|"),
            ("ZCARD s", ":3|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[
            ("GEOPOS s Catania none", "*2|*2|,15.08726745843887329|,37.50266842333162032|_|"),
            ("GEODIST s Catania Catania", "$6|0.0000|"),
        ]);
    }

    #[test]
    fn every_command_minds_the_type() {
        let mut f = Fixture::new();
        f.run("SET k v");
        for line in [
            "GEOADD k 1 1 a",
            "GEODIST k a b",
            "GEOHASH k a",
            "GEOPOS k a",
            "GEORADIUS k 1 1 1 m",
            "GEORADIUS_RO k x",
            "GEORADIUSBYMEMBER k a 1 m",
            "GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 1 m",
            "GEOSEARCHSTORE d k FROMLONLAT 1 1 BYRADIUS 1 m",
        ] {
            let want = if line.ends_with("_RO k x") {
                "-ERR wrong number of arguments for 'georadius_ro' command|".into()
            } else {
                format!("-{}|", errors::WRONG_TYPE)
            };
            assert_eq!(f.run(line), want, "{line}");
        }
    }
}
