//! GEOSEARCH and GEOSEARCHSTORE, and the older GEORADIUS commands.
//!
//! A large search runs on the lane, on a snapshot. A large search that stores its result computes it, from a clone, while no
//! shard is locked ([`crate::optimistic`]). A worker clones nothing.

use super::{point, send_distance, send_point, unit_m};
use crate::call::{Call, LaneCall};
use crate::cost::LONG_ELEMENTS;
use crate::errors;
use crate::families::collection::send;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::{self, Text, wrong_type};
use crate::strtod;
use strand_keyspace::types::geo::{self, Point, Shape, ShapeForm};
use strand_keyspace::{AsValue, Bytes, Collection, Db, Key, KeyHash, Settings, Value, ValueRef, ZSetValue};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const NO_MEMBER: &str = "ERR could not decode requested zset member";
const NO_RADIUS: &str = "ERR need numeric radius";
const NEGATIVE_RADIUS: &str = "ERR radius cannot be negative";
const NO_WIDTH: &str = "ERR need numeric width";
const NO_HEIGHT: &str = "ERR need numeric height";
const NEGATIVE_SIDE: &str = "ERR height or width cannot be negative";
const COUNT: &str = "ERR COUNT must be > 0";
const ANY_WITHOUT_COUNT: &str = "ERR the ANY argument requires COUNT argument";

/// Number of members visited between two pauses: about 50 us.
const PAUSE_MEMBERS: usize = 256;

/// `GEORADIUS key longitude latitude radius unit [options] [STORE key | STOREDIST key]`
pub(crate) fn georadius(call: &mut Call<'_, '_>) {
    run(call, Command::Radius { by_member: false, stores: true });
}
/// `GEORADIUS_RO key longitude latitude radius unit [options]`
pub(crate) fn georadius_ro(call: &mut Call<'_, '_>) {
    run(call, Command::Radius { by_member: false, stores: false });
}
/// `GEORADIUSBYMEMBER key member radius unit [options] [STORE key | STOREDIST key]`
pub(crate) fn georadiusbymember(call: &mut Call<'_, '_>) {
    run(call, Command::Radius { by_member: true, stores: true });
}
/// `GEORADIUSBYMEMBER_RO key member radius unit [options]`
pub(crate) fn georadiusbymember_ro(call: &mut Call<'_, '_>) {
    run(call, Command::Radius { by_member: true, stores: false });
}
/// `GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height unit
/// [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`
pub(crate) fn geosearch(call: &mut Call<'_, '_>) {
    run(call, Command::Search { stores: false });
}
/// `GEOSEARCHSTORE destination source ... [STOREDIST]`. Reply: how many members were stored.
pub(crate) fn geosearchstore(call: &mut Call<'_, '_>) {
    run(call, Command::Search { stores: true });
}
/// GEORADIUS of a large sorted set, on the lane.
pub(crate) fn georadius_long(call: &mut LaneCall<'_>) {
    run_long(call, Command::Radius { by_member: false, stores: true });
}
/// GEORADIUSBYMEMBER of a large sorted set, on the lane.
pub(crate) fn georadiusbymember_long(call: &mut LaneCall<'_>) {
    run_long(call, Command::Radius { by_member: true, stores: true });
}
/// GEOSEARCHSTORE of a large sorted set, on the lane.
pub(crate) fn geosearchstore_long(call: &mut LaneCall<'_>) {
    run_long(call, Command::Search { stores: true });
}

/// The work of GEOSEARCH in a sorted set, in elements.
pub(crate) fn geosearch_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    search_elements(args, value, Command::Search { stores: false })
}
/// The work of GEOSEARCHSTORE in a sorted set.
pub(crate) fn geosearchstore_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    search_elements(args, value, Command::Search { stores: true })
}
/// The work of GEORADIUS and GEORADIUS_RO in a sorted set.
pub(crate) fn georadius_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    search_elements(args, value, Command::Radius { by_member: false, stores: true })
}
/// The work of GEORADIUSBYMEMBER and GEORADIUSBYMEMBER_RO in a sorted set.
pub(crate) fn georadiusbymember_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    search_elements(args, value, Command::Radius { by_member: true, stores: true })
}

/// Cost per member in elements. In the worst case a search computes the distance of each member and adds it to the
/// reply, which takes about 700 ns per member.
pub(crate) const MEMBER_ELEMENTS: usize = 4;

/// The work of a search: the members in the cells around the shape.
fn search_elements(args: Args<'_>, value: ValueRef<'_>, command: Command) -> usize {
    let Some(zset) = ZSetValue::of(value) else { return 0 };
    let all = zset.len() * MEMBER_ELEMENTS;
    if all <= LONG_ELEMENTS {
        return all;
    }
    // A call with an error is cheap.
    let Ok(search) = Parser::new(args, command, Some(zset)).parse() else { return 0 };
    if let Some(looked_at) = search.looks_at_first(zset) {
        return looked_at * MEMBER_ELEMENTS;
    }
    let visited = geo::cover(&search.center, &search.shape).into_iter().map(|scores| {
        let rank = |end: f64| zset.partition_point(|_, score| score < end);
        rank(scores.end).saturating_sub(rank(scores.start))
    });
    visited.sum::<usize>() * MEMBER_ELEMENTS
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Radius { by_member: bool, stores: bool },
    Search { stores: bool },
}

impl Command {
    /// The index of the argument that is the sorted set to search.
    fn source(self) -> usize {
        if self == (Command::Search { stores: true }) { 2 } else { 1 }
    }
}

/// The search that the arguments describe.
struct Search {
    center: Point,
    shape: Shape,
    order: Option<Order>,
    /// Maximum number of members in the result. 0 means all.
    count: usize,
    /// ANY: the result has the first members found, not the nearest.
    any: bool,
    with_distance: bool,
    with_score: bool,
    with_point: bool,
    store: Option<Store>,
}

impl Search {
    /// Number of members that the search looks at, if it stops after few of them (ANY).
    fn looks_at_first(&self, zset: &ZSetValue) -> Option<usize> {
        const LOOKED_AHEAD: usize = 256;
        if !self.any {
            return None;
        }
        let nearby = self.nearby(zset).take(LOOKED_AHEAD).enumerate();
        let mut within = nearby.filter(|(_, (_, _, _, distance_m))| distance_m.is_some());
        within.nth(self.count - 1).map(|(i, _)| i + 1)
    }
    /// The members in the cells around the shape, each with its score, its position, and its distance in metres if it is
    /// within the shape.
    fn nearby<'z>(&self, zset: &'z ZSetValue) -> impl Iterator<Item = (Bytes<'z>, f64, Point, Option<f64>)> {
        let members = geo::cover(&self.center, &self.shape).into_iter().flat_map(|scores| {
            let from = zset.partition_point(|_, score| score < scores.start);
            zset.iter(from).take_while(move |(_, score)| *score < scores.end)
        });
        members.map(|(member, score)| {
            let point = Point::of_score(score);
            (member, score, point, self.shape.distance_m(&self.center, &point))
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

#[derive(Clone, Copy)]
struct Store {
    /// The index of the argument that is the destination.
    at: usize,
    /// STOREDIST: the scores in the destination are the distances.
    distances: bool,
}

/// A member whose position is within the shape.
struct GeoMatch<'a> {
    member: Bytes<'a>,
    score: f64,
    point: Point,
    distance_m: f64,
}

fn run(call: &mut Call<'_, '_>, command: Command) {
    let searching = Searching::new(call.args, command, call.keys, call.txn.keyspace().settings());
    let mut db = call.txn.db(call.db);
    let parsed =
        searching.read_counted(&mut db).and_then(|zset| searching.parse(zset).map(|search| (zset, search)));
    match parsed {
        Err(text) => call.reply.error(&text),
        Ok((zset, search)) if search.store.is_some() => {
            let stored = searching.result(zset, &search, &|| {});
            searching.store(&mut db, &stored);
            answer_stored(call.reply, Ok(stored));
        }
        Ok((zset, search)) => answer(call.reply, zset, &search),
    }
}

fn run_long(call: &mut LaneCall<'_>, command: Command) {
    let settings = call.keyspace.settings();
    // The keys are the source and, if the row's key specs find it, the destination.
    let first = call.keyspace.key(call.args.at(command.source()));
    let mut keys = vec![first];
    let destinations = (1..call.args.len()).filter(|at| is_destination(call.args, command, *at));
    keys.extend(destinations.map(|at| call.keyspace.key(call.args.at(at))));
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    let mut searching = Searching::new(call.args, command, &keys, settings);
    let parsed = {
        let mut txn = call.lock(&hashes);
        txn.set_no_touch(call.no_touch);
        let mut db = txn.db(call.db);
        let zset = searching.read_counted(&mut db);
        let parsed = zset.and_then(|zset| searching.parse(zset).map(|search| (zset.cloned(), search)));
        call.lookups = txn.lookups();
        parsed
    };
    match parsed {
        Err(text) => call.reply.error(&text),
        Ok((_, search)) if search.store.is_some() => {
            let stored = optimistic::apply(call, &hashes, &mut searching);
            answer_stored(call.reply, stored);
        }
        Ok((zset, search)) => {
            call.pause();
            let pause = || {
                call.pause();
                !call.cancelled()
            };
            let found = zset.as_ref().and_then(|zset| find(zset, &search, &mut || pause()));
            let found = found.unwrap_or_default();
            send_found(call.reply, &search, &found);
        }
    }
}

/// True when the argument at `at` names the destination.
fn is_destination(args: Args<'_>, command: Command, at: usize) -> bool {
    match command {
        Command::Search { stores } => stores && at == 1,
        Command::Radius { by_member, stores } => {
            let options = if by_member { 5 } else { 6 };
            stores && at > options && (args.is(at - 1, "STORE") || args.is(at - 1, "STOREDIST"))
        }
    }
}

/// A call of one of the commands. It is also the [`OptimisticWrite`] of a search whose result is stored.
struct Searching<'a> {
    args: Args<'a>,
    command: Command,
    keys: &'a [Key<'a>],
    settings: &'a Settings,
}

impl<'a> Searching<'a> {
    fn new(args: Args<'a>, command: Command, keys: &'a [Key<'a>], settings: &'a Settings) -> Searching<'a> {
        Searching { args, command, keys, settings }
    }
    /// Reads the source, and counts a hit or a miss.
    fn read_counted<'d>(&self, db: &'d mut Db<'_, '_>) -> Result<Option<&'d ZSetValue>, Text> {
        let Some(key) = self.key(self.command.source()) else { return Ok(None) };
        Ok(db.read::<ZSetValue>(key).map_err(wrong_type)?)
    }
    fn parse(&self, zset: Option<&ZSetValue>) -> Result<Search, Text> {
        Parser::new(self.args, self.command, zset).parse()
    }
    /// The index of the destination's argument, and what is stored there.
    fn result(&self, zset: Option<&ZSetValue>, search: &Search, pause: &dyn Fn()) -> (usize, ZSetValue) {
        let mut stored = ZSetValue::new();
        let Some(store) = search.store else { return (0, stored) };
        let mut may_continue = || {
            pause();
            true
        };
        let found = zset.and_then(|zset| find(zset, search, &mut may_continue)).unwrap_or_default();
        for found in &found {
            let distance = found.distance_m / search.shape.unit_m;
            stored.set(found.member, if store.distances { distance } else { found.score }, self.settings);
        }
        (store.at, stored)
    }
    /// The key that is the argument at `at`.
    fn key(&self, at: usize) -> Option<&Key<'a>> {
        let bytes = self.args.at(at);
        self.keys.iter().find(|key| key.bytes == bytes)
    }
}

impl OptimisticWrite for Searching<'_> {
    type Source = Option<ZSetValue>;
    type Outcome = (usize, ZSetValue);

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<ZSetValue>, Text> {
        let Some(key) = self.key(self.command.source()) else { return Ok(None) };
        Ok(db.read::<ZSetValue>(key).map_err(wrong_type)?.cloned())
    }
    fn is_same(&self, before: &Option<ZSetValue>, now: &Option<ZSetValue>) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => before.is_same(now),
            (None, None) => true,
            _ => false,
        }
    }
    fn compute(&mut self, zset: &Option<ZSetValue>, pause: &dyn Fn()) -> Result<(usize, ZSetValue), Text> {
        let search = self.parse(zset.as_ref())?;
        Ok(self.result(zset.as_ref(), &search, pause))
    }
    fn store(&self, db: &mut Db<'_, '_>, (at, stored): &(usize, ZSetValue)) {
        let Some(key) = self.key(*at) else { return };
        if stored.is_empty() {
            db.delete(key);
        } else {
            db.insert(key, Value::ZSet(stored.clone()), None);
        }
    }
}

fn answer_stored(reply: &mut Reply<'_>, stored: Result<(usize, ZSetValue), Text>) {
    match stored {
        Ok((_, stored)) => reply.int(stored.len() as i64),
        Err(text) => reply.error(&text),
    }
}

fn answer(reply: &mut Reply<'_>, zset: Option<&ZSetValue>, search: &Search) {
    let found = zset.and_then(|zset| find(zset, search, &mut || reply.pause())).unwrap_or_default();
    send_found(reply, search, &found);
}

fn send_found(reply: &mut Reply<'_>, search: &Search, found: &[GeoMatch<'_>]) {
    reply.array(found.len());
    let with = [search.with_distance, search.with_score, search.with_point];
    let parts = with.iter().filter(|with| **with).count();
    for found in found {
        if reply.exceeds_limit() {
            return;
        }
        if parts > 0 {
            reply.array(1 + parts);
        }
        send(reply, found.member);
        if search.with_distance {
            send_distance(reply, found.distance_m / search.shape.unit_m);
        }
        if search.with_score {
            reply.int(found.score as i64);
        }
        if search.with_point {
            send_point(reply, &found.point);
        }
    }
}

/// Finds the members within the shape, and returns them in the order that the options name. Calls `may_continue` now
/// and then. Returns `None` when `may_continue` returns false.
fn find<'z>(
    zset: &'z ZSetValue,
    search: &Search,
    may_continue: &mut dyn FnMut() -> bool,
) -> Option<Vec<GeoMatch<'z>>> {
    let enough = if search.any { search.count } else { usize::MAX };
    let mut found = Vec::new();
    for (i, (member, score, point, distance_m)) in search.nearby(zset).enumerate() {
        if (i + 1).is_multiple_of(PAUSE_MEMBERS) && !may_continue() {
            return None;
        }
        if let Some(distance_m) = distance_m {
            found.push(GeoMatch { member, score, point, distance_m });
            if found.len() >= enough {
                break;
            }
        }
    }
    let ascending = |a: &GeoMatch<'_>, b: &GeoMatch<'_>| a.distance_m.total_cmp(&b.distance_m);
    match search.order {
        Some(Order::Nearest) => found.sort_by(ascending),
        Some(Order::Farthest) => found.sort_by(|a, b| ascending(b, a)),
        None => {}
    }
    if search.count > 0 {
        found.truncate(search.count);
    }
    Some(found)
}

/// Parses the arguments, and finds errors in the same order as redis-server.
struct Parser<'a> {
    args: Args<'a>,
    command: Command,
    zset: Option<&'a ZSetValue>,
    center: Option<Point>,
    /// True when the option FROMMEMBER was given.
    from_member: bool,
    shape: Option<Shape>,
}

impl<'a> Parser<'a> {
    fn new(args: Args<'a>, command: Command, zset: Option<&'a ZSetValue>) -> Parser<'a> {
        Parser { args, command, zset, center: None, from_member: false, shape: None }
    }
    fn parse(mut self) -> Result<Search, Text> {
        let mut search = Search {
            center: Point { longitude: 0.0, latitude: 0.0 },
            shape: Shape { form: ShapeForm::Circle { radius: 0.0 }, unit_m: 1.0 },
            order: None,
            count: 0,
            any: false,
            with_distance: false,
            with_score: false,
            with_point: false,
            store: None,
        };
        let mut at = self.fixed()?;
        if self.command == (Command::Search { stores: true }) {
            search.store = Some(Store { at: 1, distances: false });
        }
        while at < self.args.len() {
            at += self.option(at, &mut search)?;
        }
        self.check(&search)?;
        // Without a sorted set there is no member to look up.
        search.center = self.center.unwrap_or(search.center);
        search.shape = self.shape.unwrap_or(search.shape);
        if search.count > 0 && search.order.is_none() && !search.any {
            search.order = Some(Order::Nearest);
        }
        Ok(search)
    }
    /// Parses the arguments at fixed positions. Returns the position of the first option.
    fn fixed(&mut self) -> Result<usize, Text> {
        match self.command {
            Command::Radius { by_member: false, .. } => {
                self.center = Some(point(self.args, 2)?);
                self.shape = Some(self.circle(4)?);
                Ok(6)
            }
            Command::Radius { by_member: true, .. } => {
                if self.zset.is_some() {
                    self.center = self.member(2)?;
                    self.shape = Some(self.circle(3)?);
                }
                Ok(5)
            }
            Command::Search { .. } => Ok(self.command.source() + 1),
        }
    }
    /// Parses the option at position `at`. Returns the number of its arguments.
    fn option(&mut self, at: usize, search: &mut Search) -> Result<usize, Text> {
        let args = self.args;
        let more = args.len() - at - 1;
        let is_search = matches!(self.command, Command::Search { .. });
        let by_radius = matches!(self.shape, Some(Shape { form: ShapeForm::Circle { .. }, .. }));
        if args.is(at, "WITHDIST") {
            search.with_distance = true;
        } else if args.is(at, "WITHHASH") {
            search.with_score = true;
        } else if args.is(at, "WITHCOORD") {
            search.with_point = true;
        } else if args.is(at, "ANY") {
            search.any = true;
        } else if args.is(at, "ASC") {
            search.order = Some(Order::Nearest);
        } else if args.is(at, "DESC") {
            search.order = Some(Order::Farthest);
        } else if args.is(at, "COUNT") && more >= 1 {
            let count = parse::integer(args.at(at + 1))?;
            search.count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(COUNT)?;
            return Ok(2);
        } else if is_destination(args, self.command, at + 1) && !is_search && more >= 1 {
            let is_first = (self.fixed_end()..at).all(|earlier| !args.is(earlier, word_of(args, at)));
            if !is_first {
                // If there are two such words, the key specs find only one key, so the other would not be
                // locked.
                return Err(errors::SYNTAX.into());
            }
            search.store = Some(Store { at: at + 1, distances: args.is(at, "STOREDIST") });
            return Ok(2);
        } else if args.is(at, "STOREDIST") && self.command == (Command::Search { stores: true }) {
            search.store = Some(Store { at: 1, distances: true });
        } else if !is_search {
            return Err(errors::SYNTAX.into());
        } else if args.is(at, "FROMMEMBER") && more >= 1 && (self.center.is_none() || self.from_member) {
            self.from_member = true;
            if self.zset.is_some() {
                self.center = self.member(at + 1)?;
            }
            return Ok(2);
        } else if args.is(at, "FROMLONLAT") && more >= 2 && !self.from_member {
            self.center = Some(point(args, at + 1)?);
            return Ok(3);
        } else if args.is(at, "BYRADIUS") && more >= 2 && (self.shape.is_none() || by_radius) {
            self.shape = Some(self.circle(at + 1)?);
            return Ok(3);
        } else if args.is(at, "BYBOX") && more >= 3 && !by_radius {
            self.shape = Some(self.rectangle(at + 1)?);
            return Ok(4);
        } else {
            return Err(errors::SYNTAX.into());
        }
        Ok(1)
    }
    /// The position of the first option, which follows the arguments at fixed positions.
    fn fixed_end(&self) -> usize {
        match self.command {
            Command::Radius { by_member, .. } => 6 - usize::from(by_member),
            Command::Search { .. } => self.command.source() + 1,
        }
    }
    /// Checks whether the options are compatible.
    fn check(&self, search: &Search) -> Result<(), Text> {
        let is_search = matches!(self.command, Command::Search { .. });
        let name = || String::from_utf8_lossy(errors::c_text(self.args.at(0))).into_owned();
        if search.store.is_some() && (search.with_distance || search.with_score || search.with_point) {
            let what = if is_search { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )
            .into());
        }
        if is_search && self.center.is_none() && !self.from_member {
            let name = name();
            return Err(
                format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}").into()
            );
        }
        if is_search && self.shape.is_none() {
            let name = name();
            return Err(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}").into());
        }
        if search.any && search.count == 0 {
            return Err(ANY_WITHOUT_COUNT.into());
        }
        Ok(())
    }
    /// The position on the earth of the member that this argument names.
    fn member(&self, at: usize) -> Result<Option<Point>, Text> {
        let score = self.zset.and_then(|zset| zset.score(self.args.at(at)));
        Ok(Some(Point::of_score(score.ok_or(NO_MEMBER)?)))
    }
    /// Parses a radius and its unit.
    fn circle(&self, at: usize) -> Result<Shape, Text> {
        let radius = strtod::parse(self.args.at(at)).ok_or(NO_RADIUS)?;
        if radius < 0.0 {
            return Err(NEGATIVE_RADIUS.into());
        }
        Ok(Shape { form: ShapeForm::Circle { radius }, unit_m: unit_m(self.args.at(at + 1))? })
    }
    /// Parses a width, a height and their unit.
    fn rectangle(&self, at: usize) -> Result<Shape, Text> {
        let width = strtod::parse(self.args.at(at)).ok_or(NO_WIDTH)?;
        let height = strtod::parse(self.args.at(at + 1)).ok_or(NO_HEIGHT)?;
        if width < 0.0 || height < 0.0 {
            return Err(NEGATIVE_SIDE.into());
        }
        Ok(Shape { form: ShapeForm::Box { width, height }, unit_m: unit_m(self.args.at(at + 2))? })
    }
}

/// The word STORE or STOREDIST, depending on which of them is the argument at `at`.
fn word_of(args: Args<'_>, at: usize) -> &'static str {
    if args.is(at, "STORE") { "STORE" } else { "STOREDIST" }
}
