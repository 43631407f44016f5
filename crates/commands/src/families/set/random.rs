//! SPOP, which removes random members, and SRANDMEMBER, which returns random members.

use super::{send, send_all};
use crate::call::{Call, LaneCall};
use crate::errors;
use crate::events::named;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::{self, Text, wrong_type};
use std::collections::HashSet;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Changed, Collection, Db, Key, Member, SetValue};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Maximum number of members that one call with a negative count returns. Without a limit, a client could request a
/// reply of any size.
const DRAWN_MAX: u64 = 1024 * 1024;
/// If the count is below the number of members divided by this, it is faster to draw members and to reject repeated
/// ones.
const SPARSE: usize = 3;
/// Number of members visited between two pauses: about 50 us.
const PAUSE_MEMBERS: usize = 512;

/// `SRANDMEMBER key [count]`. Without a count, the reply is one random member or null. With a positive count, it is
/// an array of this many different members. With a negative count, each member is drawn independently, so members
/// may repeat.
pub(crate) fn srandmember(call: &mut Call<'_, '_>) {
    let count = match count_of_srandmember(call.args) {
        Ok(count) => count,
        Err(text) => return call.reply.error(&text),
    };
    let mut db = call.txn.db(call.db);
    let set = match db.read::<SetValue>(&call.keys[0]) {
        Ok(set) => set,
        Err(other) => return call.reply.error(wrong_type(other)),
    };
    match (count, set) {
        (None, set) => match set.and_then(|set| set.random(call.rng)) {
            Some(member) => send(call.reply, member),
            None => call.reply.null(),
        },
        (Some(_), None) => call.reply.array(0),
        (Some(count), Some(set)) if count >= 0 => {
            let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(set.len());
            call.reply.array(wanted);
            let reply = &mut *call.reply;
            distinct(set, wanted, call.rng, &mut |member| {
                send(reply, member);
                !reply.exceeds_limit()
            });
        }
        (Some(count), Some(_)) if count.unsigned_abs() > DRAWN_MAX => call.reply.error(errors::OUT_OF_RANGE),
        (Some(count), Some(set)) => {
            call.reply.array(count.unsigned_abs() as usize);
            for _ in 0..count.unsigned_abs() {
                if call.reply.exceeds_limit() {
                    break;
                }
                send(call.reply, set.random(call.rng).expect("a set in the keyspace has a member"));
            }
        }
    }
}

fn count_of_srandmember(args: Args<'_>) -> Result<Option<i64>, Text> {
    match args.len() {
        2 => Ok(None),
        3 => parse::integer_in(args.at(2), -i64::MAX, i64::MAX).map(Some),
        _ => Err(errors::SYNTAX.into()),
    }
}

/// Visits `wanted` different members, until `visit` returns false. Every set of this many members is equally
/// likely.
fn distinct(
    set: &SetValue,
    wanted: usize,
    rng: &mut fastrand::Rng,
    visit: &mut dyn FnMut(Member<'_>) -> bool,
) {
    if wanted <= set.len() / SPARSE {
        let mut seen: HashSet<Vec<u8>> = HashSet::with_capacity(wanted);
        while seen.len() < wanted {
            let member = set.random(rng).expect("more members than are wanted");
            if seen.insert(member.to_vec()) && !visit(member) {
                return;
            }
        }
        return;
    }
    // Walk over the set once. Take each member with a probability of the number still wanted divided by the number
    // still left.
    let (mut wanted, mut left) = (wanted, set.len());
    for member in set.iter() {
        if rng.usize(0..left) < wanted {
            wanted -= 1;
            if !visit(member) {
                return;
            }
        }
        left -= 1;
    }
}

/// `SPOP key [count]`: removes random members, and the key with its last member. Reply: without a count, one member or
/// null; with a count, a set.
pub(crate) fn spop(call: &mut Call<'_, '_>) {
    match count_of_spop(call.args) {
        Ok(None) => pop_one(call),
        Ok(Some(count)) => {
            let popped = pop_many(call, count);
            answer(call.reply, popped);
        }
        Err(text) => call.reply.error(&text),
    }
}

/// SPOP with a large count, on the lane.
pub(crate) fn spop_long(call: &mut LaneCall<'_>) {
    let popped = count_of_spop(call.args).and_then(|count| {
        let (key, mut rng) = (call.keyspace.key(call.args.at(1)), fastrand::Rng::with_seed(call.rng.u64(..)));
        let mut popping = PopWrite { key: &key, count: count.unwrap_or(1), rng: &mut rng };
        let popped = optimistic::apply(call, &[key.hash], &mut popping)?;
        Ok((count.is_some(), popped))
    });
    match popped {
        Ok((true, popped)) => answer(call.reply, Ok(popped)),
        // Only a call with a count is long, but the tests also run other calls here.
        Ok((false, popped)) => {
            let whole = popped.all.iter().flat_map(|set| set.iter()).map(|member| member.to_vec());
            match popped.members.iter().cloned().chain(whole).next() {
                Some(member) => call.reply.bulk(&member),
                None => call.reply.null(),
            }
        }
        Err(text) => call.reply.error(&text),
    }
}

fn count_of_spop(args: Args<'_>) -> Result<Option<usize>, Text> {
    match args.len() {
        2 => Ok(None),
        3 => {
            let count = parse::integer(args.at(2)).ok().and_then(|n| usize::try_from(n).ok());
            count.map(Some).ok_or(errors::NOT_POSITIVE.into())
        }
        _ => Err(errors::SYNTAX.into()),
    }
}

fn pop_one(call: &mut Call<'_, '_>) {
    let (key, rng) = (&call.keys[0], &mut *call.rng);
    let popped = call.txn.db(call.db).change(key, |set: &mut SetValue| {
        let member = set.random(rng).map(|member| member.to_vec());
        let removed = member.as_ref().is_some_and(|member| set.remove(member));
        (member, removed.into())
    });
    match popped {
        Ok(Some(Some(member))) => {
            call.effect(&[b"SREM".into(), key.bytes.into(), (&member[..]).into()]);
            call.reply.bulk(&member);
        }
        Ok(_) => call.reply.null(),
        Err(other) => call.reply.error(wrong_type(other)),
    }
}

/// SPOP with a count, on the worker. It draws and removes the members in place: on a copy, each removal would copy a segment
/// (of a set of a million members, SPOP of one took 61 us in place of 6).
fn pop_many(call: &mut Call<'_, '_>, count: usize) -> Result<PopOutcome, Text> {
    let (key, rng) = (&call.keys[0], &mut *call.rng);
    let mut db = call.txn.db(call.db);
    let popped = db.change(key, |set: &mut SetValue| {
        if count >= set.len() {
            return (None, Changed::No);
        }
        let mut members = Vec::new();
        distinct(set, count, rng, &mut |member| {
            members.push(member.to_vec());
            true
        });
        members.iter().for_each(|member| _ = set.remove(member));
        let any = !members.is_empty();
        (Some(members), any.into())
    });
    match popped.map_err(wrong_type)? {
        // The whole set, or no set.
        None | Some(None) => optimistic::apply_at_once(&mut db, &mut PopWrite { key, count, rng }),
        Some(Some(members)) => {
            record_pop(&mut db, key, &members);
            Ok(PopOutcome { members, all: None, left: SetValue::new() })
        }
    }
}

/// Records the effect of a pop of these members.
fn record_pop(db: &mut Db<'_, '_>, key: &Key<'_>, members: &[Vec<u8>]) {
    if db.is_recorded() && !members.is_empty() {
        let members: Vec<Arg<'_>> = members.iter().map(|member| Arg::Bytes(member)).collect();
        db.effect(&[&[b"SREM".into(), key.bytes.into()], &members[..]].concat());
    }
}

struct PopWrite<'a> {
    key: &'a Key<'a>,
    count: usize,
    rng: &'a mut fastrand::Rng,
}

/// The members that SPOP removes, and the members that stay.
struct PopOutcome {
    members: Vec<Vec<u8>>,
    /// The whole set, if all its members are removed.
    all: Option<SetValue>,
    left: SetValue,
}

impl OptimisticWrite for PopWrite<'_> {
    type Source = Option<SetValue>;
    type Outcome = PopOutcome;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<SetValue>, Text> {
        Ok(db.read_to_write::<SetValue>(self.key).map_err(wrong_type)?.cloned())
    }
    fn is_same(&self, before: &Option<SetValue>, now: &Option<SetValue>) -> bool {
        match (before, now) {
            (Some(before), Some(now)) => before.is_same(now),
            (None, None) => true,
            _ => false,
        }
    }
    fn compute(&mut self, source: &Option<SetValue>, pause: &dyn Fn()) -> Result<PopOutcome, Text> {
        let mut popped = PopOutcome { members: Vec::new(), all: None, left: SetValue::new() };
        let Some(set) = source else { return Ok(popped) };
        if self.count >= set.len() {
            popped.all = Some(set.clone());
            return Ok(popped);
        }
        let members = &mut popped.members;
        distinct(set, self.count, self.rng, &mut |member| {
            members.push(member.to_vec());
            if members.len().is_multiple_of(PAUSE_MEMBERS) {
                pause();
            }
            true
        });
        popped.left = set.clone();
        for (i, member) in popped.members.iter().enumerate() {
            if i % PAUSE_MEMBERS == PAUSE_MEMBERS - 1 {
                pause();
            }
            popped.left.remove(member);
        }
        Ok(popped)
    }
    fn store(&self, db: &mut Db<'_, '_>, popped: &PopOutcome) {
        if popped.all.is_some() {
            db.report_event(self.key, named::SPOP);
            db.delete(self.key);
        } else if !popped.members.is_empty() {
            let left = popped.left.clone();
            // The key had a set a moment ago, and its shard is still locked.
            let _ = db.change(self.key, |set: &mut SetValue| (*set = left, Changed::Yes));
        }
        if db.is_recorded() && popped.all.is_some() {
            db.effect(&[b"DEL".into(), self.key.bytes.into()]);
        } else {
            record_pop(db, self.key, &popped.members);
        }
    }
}

fn answer(reply: &mut Reply<'_>, popped: Result<PopOutcome, Text>) {
    let popped = match popped {
        Ok(popped) => popped,
        Err(text) => return reply.error(&text),
    };
    if popped.all.is_some() {
        return send_all(reply, popped.all.as_ref());
    }
    reply.set(popped.members.len());
    for member in &popped.members {
        if reply.exceeds_limit() {
            return;
        }
        reply.bulk(member);
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;
    use std::collections::BTreeSet;
    use strand_wire::reply::Protocol;

    fn fixture_with(members: usize) -> Fixture {
        let mut f = Fixture::new();
        for n in 0..members {
            f.run(&format!("SADD s m{n}"));
        }
        f
    }
    fn members(reply: &str) -> Vec<&str> {
        reply.split('|').filter(|part| part.starts_with('m')).collect()
    }

    #[test]
    fn srandmember_without_a_count_replies_with_one_member_or_null() {
        let mut f = fixture_with(1);
        f.script(&[
            ("SRANDMEMBER s", "$2|m0|"),
            ("SRANDMEMBER none", "$-1|"),
            ("SRANDMEMBER none 5", "*0|"),
            ("SRANDMEMBER none -5", "*0|"),
            ("SRANDMEMBER s 0", "*0|"),
            ("SRANDMEMBER s 5", "*1|$2|m0|"),
            ("SRANDMEMBER s -2", "*2|$2|m0|$2|m0|"),
            ("SRANDMEMBER s x", "-ERR value is not an integer or out of range|"),
            ("SRANDMEMBER s 1 1", "-ERR syntax error|"),
            ("SRANDMEMBER s -1048577", "-ERR value is out of range|"),
            (
                "SRANDMEMBER s -9223372036854775808",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|",
            ),
            ("SPOP s 0", "*0|"),
            ("SPOP s -1", "-ERR value is out of range, must be positive|"),
            ("SPOP s x", "-ERR value is out of range, must be positive|"),
            ("SPOP s 1 1", "-ERR syntax error|"),
            ("SPOP s", "$2|m0|"),
            ("EXISTS s", ":0|"),
            ("SPOP s", "$-1|"),
            ("SPOP s 3", "*0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[("SADD s 1", ":1|"), ("SRANDMEMBER s 2", "*1|$1|1|"), ("SPOP s 2", "~1|$1|1|")]);
    }

    #[test]
    fn spop_removes_members_and_srandmember_does_not() {
        for (all, count) in [(30, 3), (30, 20), (200, 10), (200, 150), (20, 20), (20, 50)] {
            for long in [false, true] {
                let mut f = fixture_with(all);
                f.run("PEXPIRE s 1000");
                f.all_long = long;
                let drawn = f.run(&format!("SRANDMEMBER s {count}"));
                assert_eq!(members(&drawn).into_iter().collect::<BTreeSet<_>>().len(), count.min(all));
                let popped = f.run(&format!("SPOP s {count}"));
                let popped: BTreeSet<_> = members(&popped).into_iter().collect();
                assert_eq!(popped.len(), count.min(all));
                f.all_long = false;
                let left = f.run("SMEMBERS s");
                let left: BTreeSet<_> = members(&left).into_iter().collect();
                assert!(popped.is_disjoint(&left) && popped.len() + left.len() == all);
                assert_eq!(f.run("PTTL s"), if left.is_empty() { ":-2|" } else { ":1000|" });
            }
        }
    }

    #[test]
    fn every_member_comes_up_about_as_often() {
        let mut f = fixture_with(20);
        let mut times = std::collections::BTreeMap::<String, u32>::new();
        for line in ["SRANDMEMBER s 4", "SRANDMEMBER s 15", "SRANDMEMBER s -10"] {
            for _ in 0..200 {
                members(&f.run(line)).into_iter().for_each(|m| *times.entry(m.into()).or_default() += 1);
            }
        }
        // Each number is expected to be 290. The bounds are five standard deviations of the binomial distribution.
        assert!(times.len() == 20 && times.values().all(|n| (205..375).contains(n)), "{times:?}");
    }
}
