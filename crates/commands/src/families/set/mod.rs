//! The set commands about members. SPOP and SRANDMEMBER are in [`random`], SSCAN in [`scan`], intersections, unions and
//! differences in [`algebra`].

mod algebra;
mod random;
mod scan;

pub(crate) use algebra::{
    difference_elements, sdiff, sdiffstore, sdiffstore_long, sinter, sintercard, sinterstore,
    sinterstore_long, sunion, sunionstore, sunionstore_long,
};
pub(crate) use random::{spop, spop_long, srandmember};
pub(crate) use scan::{sscan, sscan_long};

use super::collection::{self, read};
use crate::call::Call;
use crate::events::named;
use crate::parse::{Text, wrong_type};
use strand_keyspace::{Collection, Member, SetValue};
use strand_wire::reply::Reply;

/// `SADD key member [member ...]`. Reply: how many members are new.
pub(crate) fn sadd(call: &mut Call<'_, '_>) {
    let members = call.args.skip(2);
    let added = collection::update(call, |set: &mut SetValue, settings| {
        let added = members.iter().filter(|member| set.add(member, settings)).count();
        Ok((added, (added > 0).into()))
    });
    answer_count(call.reply, added);
}

/// `SREM key member [member ...]`: removes members, and the key with its last member. Reply: how many existed.
pub(crate) fn srem(call: &mut Call<'_, '_>) {
    let members = call.args.skip(2);
    let removed = collection::update_existing(call, |set: &mut SetValue, _| {
        let removed = members.iter().filter(|member| set.remove(member)).count();
        (removed, (removed > 0).into())
    });
    answer_count(call.reply, removed.map(|removed| removed.unwrap_or(0)));
}

/// `SMOVE source destination member`. Reply: 1 when the member was in the source.
pub(crate) fn smove(call: &mut Call<'_, '_>) {
    match move_member(call) {
        Ok(moved) => call.reply.int(moved.into()),
        Err(text) => call.reply.error(&text),
    }
}

fn move_member(call: &mut Call<'_, '_>) -> Result<bool, Text> {
    let [from, to] = call.keys else { return Ok(false) };
    let (member, settings) = (call.args.at(3), call.txn.keyspace().settings());
    let mut db = call.txn.db(call.db);
    let Some(there) = db.read_to_write::<SetValue>(from).map_err(wrong_type)?.map(|set| set.contains(member))
    else {
        return Ok(false);
    };
    db.read_to_write::<SetValue>(to).map_err(wrong_type)?;
    if !there || from.bytes == to.bytes {
        return Ok(there);
    }
    let removed = db.change(from, |set: &mut SetValue| ((), set.remove(member).into()));
    removed.map_err(wrong_type)?;
    db.set_event(named::SADD);
    let added = db.change_or_create(to, |set: &mut SetValue| ((), set.add(member, settings).into()));
    added.map_err(wrong_type)?;
    Ok(true)
}

/// `SISMEMBER key member`. Reply: 1 or 0.
pub(crate) fn sismember(call: &mut Call<'_, '_>) {
    let member = call.args.at(2);
    read(call, |set: Option<&SetValue>, reply| reply.int(set.is_some_and(|set| set.contains(member)).into()));
}

/// `SMISMEMBER key member [member ...]`. Reply: an array of 1 and 0.
pub(crate) fn smismember(call: &mut Call<'_, '_>) {
    let members = call.args.skip(2);
    read(call, |set: Option<&SetValue>, reply| {
        reply.array(members.len());
        for member in members.iter() {
            if reply.exceeds_limit() {
                break;
            }
            reply.int(set.is_some_and(|set| set.contains(member)).into());
        }
    });
}

/// `SCARD key`. Reply: the number of members.
pub(crate) fn scard(call: &mut Call<'_, '_>) {
    read(call, |set: Option<&SetValue>, reply| reply.int(set.map_or(0, |set| set.len() as i64)));
}

/// `SMEMBERS key`. Reply: all members.
pub(crate) fn smembers(call: &mut Call<'_, '_>) {
    read(call, |set: Option<&SetValue>, reply| send_all(reply, set));
}

/// Sends all members of a set.
fn send_all(reply: &mut Reply<'_>, set: Option<&SetValue>) {
    reply.set(set.map_or(0, SetValue::len));
    for member in set.iter().flat_map(|set| set.iter()) {
        if reply.exceeds_limit() {
            return;
        }
        send(reply, member);
    }
}

fn send(reply: &mut Reply<'_>, member: Member<'_>) {
    match member {
        Member::Int(n) => reply.bulk_int(n),
        Member::Bytes(bytes) => reply.bulk(bytes),
    }
}

fn answer_count(reply: &mut Reply<'_>, count: Result<usize, Text>) {
    match count {
        Ok(count) => reply.int(count as i64),
        Err(text) => reply.error(&text),
    }
}

#[cfg(test)]
mod tests {
    use crate::errors;
    use crate::fixture::Fixture;
    use strand_wire::reply::Protocol;

    #[test]
    fn members_come_and_go() {
        let mut f = Fixture::new();
        f.script(&[
            ("SADD s 3 1 2 3", ":3|"),
            ("OBJECT ENCODING s", "$6|intset|"),
            ("SMEMBERS s", "*3|$1|1|$1|2|$1|3|"),
            ("SADD s 1 x", ":1|"),
            ("OBJECT ENCODING s", "$9|hashtable|"),
            ("TYPE s", "+set|"),
            ("SCARD s", ":4|"),
            ("SISMEMBER s x", ":1|"),
            ("SISMEMBER s 01", ":0|"),
            ("SMISMEMBER s x y 1", "*3|:1|:0|:1|"),
            ("SMISMEMBER none x y", "*2|:0|:0|"),
            ("SREM s x x y", ":1|"),
            ("SMOVE s t 1", ":1|"),
            ("SMOVE s t 1", ":0|"),
            ("SMOVE s s 2", ":1|"),
            ("SMOVE none t 1", ":0|"),
            ("SMEMBERS t", "*1|$1|1|"),
            ("SREM s 2 3", ":2|"),
            ("EXISTS s", ":0|"),
            ("SREM s 2", ":0|"),
            ("SMOVE t s 1", ":1|"),
            ("EXISTS t", ":0|"),
            ("SMEMBERS none", "*0|"),
            ("SCARD none", ":0|"),
        ]);
        f.protocol = Protocol::Resp3;
        f.script(&[("SMEMBERS s", "~1|$1|1|"), ("SMEMBERS none", "~0|"), ("SPOP none", "_|")]);
    }

    #[test]
    fn a_set_that_is_copied_stays_as_it_was() {
        let mut f = Fixture::new();
        for i in 0..3000 {
            f.run(&format!("SADD s member:{i}"));
        }
        f.script(&[
            ("PEXPIRE s 500", ":1|"),
            ("COPY s t", ":1|"),
            ("SREM s member:7", ":1|"),
            ("SADD t more", ":1|"),
            ("SCARD s", ":2999|"),
            ("SCARD t", ":3001|"),
            ("SISMEMBER t member:7", ":1|"),
            ("PTTL s", ":500|"),
            ("DEL s t", ":2|"),
        ]);
    }

    #[test]
    fn every_command_minds_the_type() {
        let mut f = Fixture::new();
        f.script(&[("SET h v", "+OK|"), ("SADD s 1", ":1|")]);
        for line in [
            "SADD h x",
            "SREM h x",
            "SISMEMBER h x",
            "SMISMEMBER h x",
            "SCARD h",
            "SMEMBERS h",
            "SMOVE h s x",
            "SMOVE s h x",
            "SPOP h",
            "SPOP h 2",
            "SRANDMEMBER h",
            "SRANDMEMBER h -2",
            "SSCAN h 0",
            "SINTER s h",
            "SINTER none h",
            "SUNION s h",
            "SDIFF s h",
            "SINTERCARD 2 s h",
            "SINTERSTORE d s h",
            "SUNIONSTORE d s h",
            "SDIFFSTORE d s h",
        ] {
            for long in [false, true] {
                f.all_long = long;
                assert_eq!(f.run(line), format!("-{}|", errors::WRONG_TYPE), "{line}");
            }
        }
        f.script(&[
            ("EXISTS d", ":0|"),
            ("SMOVE none h x", ":0|"),
            ("SINTERSTORE h s", ":1|"),
            ("TYPE h", "+set|"),
        ]);
    }
}
