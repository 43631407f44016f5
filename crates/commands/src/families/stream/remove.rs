//! XDELEX and XACKDEL: they delete entries, and the client decides what happens to entries that are pending in
//! groups.

use super::add::change_existing;
use super::{effects, ids};
use crate::call::Call;
use crate::errors;
use crate::parse::Text;
use strand_keyspace::types::stream::{Group, Id, StreamValue};
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Changed, ValueRef};
use strand_wire::args::Args;

/// The codes in replies. A reply has one code per ID.
const NOT_THERE: i64 = -1;
const DELETED: i64 = 1;
const STILL_NEEDED: i64 = 2;

const NOT_A_NUMBER: &str = "ERR Number of IDs must be a positive integer";
const OTHER_NUMBER: &str = "ERR The `numids` parameter must match the number of arguments";

/// `XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`. Reply for each ID: -1 when the entry is missing, 1
/// when it was deleted, 2 when a group still needs it.
pub(crate) fn xdelex(call: &mut Call<'_, '_>) {
    run(call, None);
}

/// `XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]`: acknowledges entries of a group and deletes
/// them. Reply for each ID: -1 when it is not pending, 1 when it was deleted, 2 when another group still needs it.
pub(crate) fn xackdel(call: &mut Call<'_, '_>) {
    let group = call.args.at(2);
    run(call, Some(group));
}

/// The cost of a call: each group is searched for each ID.
pub(crate) fn delete_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Stream(stream) => args.len().saturating_mul(1 + stream.groups()),
        _ => 0,
    }
}

/// What happens to deleted entries that are pending in groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum References {
    /// KEEPREF: the entries stay pending.
    Keep,
    /// DELREF: the entries are no longer pending.
    Delete,
    /// ACKED: an entry is not deleted if some group has not read it or not acknowledged it.
    Acked,
}

fn run(call: &mut Call<'_, '_>, group: Option<&[u8]>) {
    let (references, all) = match parse(call.args, if group.is_some() { 3 } else { 2 }) {
        Ok(parsed) => parsed,
        Err(text) => return call.reply.error(&text),
    };
    let mut gone = RemovalChanges::default();
    let codes = change_existing(call, |stream, _| {
        let codes: Vec<i64> =
            all.iter().map(|id| remove(stream, *id, group, references, &mut gone)).collect();
        let changed = match gone.deleted.is_empty() {
            true => Changed::beside(!gone.acknowledged.is_empty()),
            false => Changed::Yes,
        };
        Ok((codes, changed))
    });
    match codes {
        Ok(codes) => {
            effects::record_removed(call, &gone.acknowledged, &gone.deleted);
            call.reply.array(all.len());
            let codes = codes.unwrap_or_else(|| vec![NOT_THERE; all.len()]);
            codes.iter().for_each(|code| call.reply.int(*code));
        }
        Err(text) => call.reply.error(&text),
    }
}

/// What a call of XDELEX or XACKDEL has changed.
#[derive(Default)]
struct RemovalChanges {
    /// Entries that are no longer pending, each with its group.
    acknowledged: Vec<(Vec<u8>, Id)>,
    deleted: Vec<Id>,
}

fn remove(
    stream: &mut StreamValue,
    id: Id,
    group: Option<&[u8]>,
    references: References,
    gone: &mut RemovalChanges,
) -> i64 {
    if let Some(group) = group {
        if stream.change_group(group, |group, _| group.acknowledge(id)) != Some(true) {
            return NOT_THERE;
        }
        gone.acknowledged.push((group.to_vec(), id));
    }
    let is_there = stream.entries().get(id).is_some();
    match references {
        References::Keep => {}
        References::Delete => {
            let names: Vec<Vec<u8>> = stream.each_group().map(|(name, _)| name.to_vec()).collect();
            for name in names {
                if stream.change_group(&name, |group, _| group.acknowledge(id)) == Some(true) {
                    gone.acknowledged.push((name, id));
                }
            }
        }
        References::Acked => {
            let needs = |group: &Group| group.last_id() < id || group.pending_at(id).is_some();
            if is_there && stream.each_group().any(|(_, group)| needs(group)) {
                return STILL_NEEDED;
            }
        }
    }
    if stream.delete(id) {
        gone.deleted.push(id);
    }
    if is_there || group.is_some() { DELETED } else { NOT_THERE }
}

/// Parses the options, beginning at argument `at`, and the IDs.
fn parse(args: Args<'_>, mut at: usize) -> Result<(References, Vec<Id>), Text> {
    let (mut references, mut all) = (None, None);
    while at < args.len() {
        let named = if args.is(at, "KEEPREF") {
            Some(References::Keep)
        } else if args.is(at, "DELREF") {
            Some(References::Delete)
        } else if args.is(at, "ACKED") {
            Some(References::Acked)
        } else {
            None
        };
        if named.is_some() && references.is_none() {
            references = named;
            at += 1;
            continue;
        }
        if !args.is(at, "IDS") || all.is_some() || at + 1 >= args.len() {
            return Err(errors::SYNTAX.into());
        }
        let number = parse_int(args.at(at + 1)).filter(|n| *n > 0).ok_or(NOT_A_NUMBER)?;
        let rest = args.skip(at + 2);
        let number = usize::try_from(number).ok().filter(|n| *n <= rest.len()).ok_or(OTHER_NUMBER)?;
        let ids = rest.iter().take(number).map(|id| ids::strict(id, 0)).collect::<Result<Vec<Id>, _>>()?;
        all = Some(ids);
        at += 2 + number;
    }
    Ok((references.unwrap_or(References::Keep), all.ok_or(errors::SYNTAX)?))
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    fn filled() -> Fixture {
        let mut f = Fixture::new();
        for id in 1..=4 {
            f.run(&format!("XADD s {id}-0 f v"));
        }
        for group in ["g", "h"] {
            f.run(&format!("XGROUP CREATE s {group} 0"));
        }
        f.run("XREADGROUP GROUP g c COUNT 3 STREAMS s >");
        f.run("XREADGROUP GROUP h c COUNT 2 STREAMS s >");
        f
    }

    #[test]
    fn entries_are_deleted_as_references_allow() {
        let mut f = filled();
        f.script(&[
            ("XDELEX s ACKED IDS 2 1-0 9-0", "*2|:2|:-1|"),
            ("XACK s g 1-0", ":1|"),
            ("XDELEX s ACKED IDS 1 1-0", "*1|:2|"),
            ("XACK s h 1-0", ":1|"),
            ("XDELEX s IDS 1 1-0 ACKED", "*1|:1|"),
            ("XDELEX s ACKED IDS 1 4-0", "*1|:2|"),
            ("XDELEX s IDS 1 2-0", "*1|:1|"),
            ("XPENDING s g", "*4|:2|$3|2-0|$3|3-0|*1|*2|$1|c|$1|2|"),
            ("XDELEX s DELREF IDS 2 2-0 3", "*2|:-1|:1|"),
            ("XPENDING s g", "*4|:0|$-1|$-1|*-1|"),
            ("XLEN s", ":1|"),
            ("XDELEX none IDS 2 1-0 2-0", "*2|:-1|:-1|"),
        ]);
    }

    #[test]
    fn acknowledged_entries_are_deleted() {
        let mut f = filled();
        f.script(&[
            ("XACKDEL s g ACKED IDS 2 1-0 4-0", "*2|:2|:-1|"),
            ("XACKDEL s h ACKED IDS 1 1-0", "*1|:1|"),
            ("XACKDEL s g IDS 1 2-0", "*1|:1|"),
            ("XPENDING s h", "*4|:1|$3|2-0|$3|2-0|*1|*2|$1|c|$1|1|"),
            ("XACKDEL s g DELREF IDS 1 3-0", "*1|:1|"),
            ("XLEN s", ":1|"),
            ("XACKDEL s none IDS 1 4-0", "*1|:-1|"),
            ("XACKDEL none g IDS 1 4-0", "*1|:-1|"),
        ]);
    }

    #[test]
    fn arguments_are_checked_before_anything_is_done() {
        let mut f = filled();
        f.script(&[
            ("XDELEX s IDS 0 1-0", "-ERR Number of IDs must be a positive integer|"),
            ("XDELEX s IDS x 1-0", "-ERR Number of IDs must be a positive integer|"),
            ("XDELEX s IDS 2 1-0", "-ERR The `numids` parameter must match the number of arguments|"),
            ("XDELEX s IDS 1 1-0 2-0", "-ERR syntax error|"),
            ("XDELEX s KEEPREF ACKED IDS 1 1-0", "-ERR syntax error|"),
            ("XDELEX s IDS 2 1-0 x", "-ERR Invalid stream ID specified as stream command argument|"),
            ("XLEN s", ":4|"),
            ("SET t v", "+OK|"),
            ("XDELEX t IDS 1 1-0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}
