//! LMOVEM and BLMOVEM: like LMOVE and BLMOVE, for several elements at once.

use super::end;
use super::pop::{Moved, pop_event, popped_range, push_event};
use crate::call::Call;
use crate::cost::part_elements;
use crate::errors;
use crate::families::collection::{send, update_existing};
use crate::parse::{self, Text, wrong_type};
use crate::wait::{Wait, seconds};
use smallvec::SmallVec;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::list::End;
use strand_keyspace::{Changed, Collection, ListValue, ValueRef, Wanted};
use strand_wire::args::Args;

/// The index of the argument of LMOVEM at which COUNT or EXACTLY may be.
const HOW_MANY: usize = 5;
/// The index of the argument of BLMOVEM at which COUNT or EXACTLY may be, after the timeout.
const WAITING_HOW_MANY: usize = 6;

/// The options of a call of LMOVEM or BLMOVEM.
#[derive(Clone, Copy)]
struct MoveOptions {
    from: End,
    to: End,
    count: usize,
    /// EXACTLY: nothing is moved if the source has fewer elements.
    exactly: bool,
    /// OBO: the elements are moved one by one. So their order is reversed if they are removed and added at the same
    /// end of the lists.
    one_by_one: bool,
}

/// `LMOVEM source destination LEFT|RIGHT LEFT|RIGHT [COUNT count|EXACTLY count OBO|BULK]`. Reply: an array of the moved
/// elements in the order of the destination; null when nothing was moved.
pub(crate) fn lmovem(call: &mut Call<'_, '_>) {
    let options = MoveOptions::parse(call.args, HOW_MANY);
    move_many(call, options.map(|options| (options, None)));
}

/// `BLMOVEM source destination LEFT|RIGHT LEFT|RIGHT timeout [COUNT count|EXACTLY count OBO|BULK]`: LMOVEM that waits
/// for the source; with EXACTLY, for that many elements.
pub(crate) fn blmovem(call: &mut Call<'_, '_>) {
    let args = call.args;
    let arguments = || {
        // redis-server checks the arguments from left to right.
        end(args.at(3)).and_then(|_| end(args.at(4)))?;
        let timeout_ms = seconds(args.at(5))?;
        Ok((MoveOptions::parse(args, WAITING_HOW_MANY)?, Some(timeout_ms)))
    };
    move_many(call, arguments());
}

/// Moves elements. If the source has too few, a call with a timeout waits.
fn move_many(call: &mut Call<'_, '_>, arguments: Result<(MoveOptions, Option<u64>), Text>) {
    let moved = arguments.and_then(|(options, timeout_ms)| {
        let moved = match call.keys[0].bytes == call.keys[1].bytes {
            true => within(call, options),
            false => between(call, options),
        };
        Ok((moved?, timeout_ms))
    });
    match moved {
        Ok((Some(moved), timeout_ms)) => {
            call.reply.array(moved.len());
            moved.iter().for_each(|element| send(call.reply, element.bytes()));
            if call.is_recorded() && timeout_ms.is_some() {
                let rest = [1, 2, 3, 4].into_iter().chain(WAITING_HOW_MANY..call.args.len());
                let mut effect: SmallVec<[Arg<'_>; 8]> = SmallVec::new();
                effect.push(b"LMOVEM".into());
                effect.extend(rest.map(|at| Arg::Bytes(call.args.at(at))));
                call.effect(&effect);
            }
        }
        Ok((None, timeout_ms)) => {
            call.reply.null_array();
            call.wait = timeout_ms.map(|timeout_ms| Wait::at_each(timeout_ms, 1, 1, &Wanted::List));
        }
        Err(text) => call.reply.error(&text),
    }
}

/// The cost of LMOVEM on one of its lists, in elements.
pub(crate) fn movem_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    MoveOptions::parse(args, HOW_MANY).map_or(0, |options| options.elements(value))
}

/// The cost of BLMOVEM on one of its lists, in elements.
pub(crate) fn blmovem_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    MoveOptions::parse(args, WAITING_HOW_MANY).map_or(0, |options| options.elements(value))
}

impl MoveOptions {
    /// Parses the arguments. If the number of elements is given, it begins at position `at`.
    fn parse(args: Args<'_>, at: usize) -> Result<MoveOptions, Text> {
        let (from, to) = (end(args.at(3))?, end(args.at(4))?);
        let one = MoveOptions { from, to, count: 1, exactly: false, one_by_one: true };
        if args.len() == at {
            return Ok(one);
        }
        let exactly = args.len() == at + 3 && args.is(at, "EXACTLY");
        if args.len() != at + 3 || !(exactly || args.is(at, "COUNT")) {
            return Err(errors::SYNTAX.into());
        }
        if !args.is(at + 2, "OBO") && !args.is(at + 2, "BULK") {
            return Err(errors::SYNTAX.into());
        }
        let count = parse::at_least_zero(args.at(at + 1), errors::NOT_POSITIVE)
            .map_err(|_| Text::from(errors::NOT_POSITIVE))?;
        Ok(MoveOptions { count, exactly, one_by_one: args.is(at + 2, "OBO"), ..one })
    }
    fn elements(self, value: ValueRef<'_>) -> usize {
        match self.exactly && value.elements() < self.count {
            // If there are too few elements, nothing is moved, which costs nothing.
            true => 0,
            false => part_elements(self.count, value),
        }
    }
    /// The elements to move, in the order that they get in the destination. `None` when the source has too few.
    fn of(self, list: &ListValue) -> Option<Vec<Moved>> {
        if self.exactly && list.len() < self.count {
            return None;
        }
        let places = popped_range(list, self.from, self.count);
        let mut moved: Vec<Moved> = list.iter(places.start).take(places.len()).map(Moved::of).collect();
        if self.one_by_one && self.from == self.to {
            moved.reverse();
        }
        Some(moved)
    }
    fn push(self, list: &mut ListValue, moved: &[Moved]) {
        match self.to {
            End::Front => moved.iter().rev().for_each(|element| list.push(End::Front, element.bytes())),
            End::Back => moved.iter().for_each(|element| list.push(End::Back, element.bytes())),
        }
    }
}

fn between(call: &mut Call<'_, '_>, options: MoveOptions) -> Result<Option<Vec<Moved>>, Text> {
    let (source, destination) = (&call.keys[0], &call.keys[1]);
    let mut db = call.txn.db(call.db);
    let Some(list) = db.read_to_write::<ListValue>(source).map_err(wrong_type)? else { return Ok(None) };
    let moved = options.of(list);
    // Check the type of the destination, too, before any list is changed.
    db.peek_at::<ListValue>(destination).map_err(wrong_type)?;
    let Some(moved) = moved else { return Ok(None) };
    if moved.is_empty() {
        return Ok(Some(moved));
    }
    db.set_event(push_event(options.to));
    let pushed = db.change_or_create(destination, |list: &mut ListValue| {
        options.push(list, &moved);
        ((), Changed::Yes)
    });
    pushed.map_err(wrong_type)?;
    db.set_event(pop_event(options.from));
    let popped = db.change(source, |list: &mut ListValue| {
        let places = popped_range(list, options.from, moved.len());
        list.remove(places);
        ((), Changed::Yes)
    });
    popped.map_err(wrong_type)?;
    Ok(Some(moved))
}

/// Moves elements within one list. The list keeps its expiry even if all its elements are moved.
fn within(call: &mut Call<'_, '_>, options: MoveOptions) -> Result<Option<Vec<Moved>>, Text> {
    call.txn.set_event(push_event(options.to));
    let moved = update_existing(call, |list: &mut ListValue, _| {
        let moved = options.of(list).unwrap_or_default();
        if moved.is_empty() {
            return (options.of(list), Changed::No);
        }
        let places = popped_range(list, options.from, moved.len());
        list.remove(places);
        options.push(list, &moved);
        (Some(moved), Changed::Yes)
    })?;
    if moved.as_ref().is_some_and(|moved| moved.as_ref().is_some_and(|moved| !moved.is_empty())) {
        call.txn.db(call.db).report_event(&call.keys[0], pop_event(options.from));
    }
    Ok(moved.flatten())
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn blmovem_moves_like_lmovem() {
        let mut fixture = Fixture::new();
        fixture.script(&[
            ("BLMOVEM a b LEFT RIGHT 0", "*-1|"),
            ("RPUSH a 1 2 3 4", ":4|"),
            ("BLMOVEM a b LEFT RIGHT 0 EXACTLY 5 BULK", "*-1|"),
            ("BLMOVEM a b LEFT LEFT 0.5 EXACTLY 2 OBO", "*2|$1|2|$1|1|"),
            ("BLMOVEM a b RIGHT RIGHT 0 COUNT 9 BULK", "*2|$1|3|$1|4|"),
            ("BLMOVEM b b LEFT RIGHT 0", "*1|$1|2|"),
            ("LRANGE b 0 -1", "*4|$1|1|$1|3|$1|4|$1|2|"),
            ("BLMOVEM b a UP LEFT -1", "-ERR syntax error|"),
            ("BLMOVEM b a LEFT LEFT -1", "-ERR timeout is negative|"),
            ("BLMOVEM b a LEFT LEFT x COUNT", "-ERR timeout is not a float or out of range|"),
            ("BLMOVEM b a LEFT LEFT 0 COUNT 2", "-ERR syntax error|"),
            ("BLMOVEM b a LEFT LEFT 0 COUNT -2 OBO", "-ERR value is out of range, must be positive|"),
        ]);
    }

    #[test]
    fn several_elements_are_moved() {
        for all_long in [false, true] {
            let mut f = Fixture::new();
            f.all_long = all_long;
            f.script(&[
                ("RPUSH a 1 2 3 4", ":4|"),
                ("RPUSH b 6 7", ":2|"),
                ("LMOVEM a b LEFT LEFT COUNT 2 OBO", "*2|$1|2|$1|1|"),
                ("LRANGE b 0 -1", "*4|$1|2|$1|1|$1|6|$1|7|"),
                ("LMOVEM b a LEFT LEFT count 2 bulk", "*2|$1|2|$1|1|"),
                ("LRANGE a 0 -1", "*4|$1|2|$1|1|$1|3|$1|4|"),
                ("LMOVEM a b RIGHT RIGHT EXACTLY 3 OBO", "*3|$1|4|$1|3|$1|1|"),
                ("LMOVEM a b RIGHT RIGHT EXACTLY 2 BULK", "*-1|"),
                ("LRANGE b 0 -1", "*5|$1|6|$1|7|$1|4|$1|3|$1|1|"),
                ("LMOVEM b a RIGHT LEFT", "*1|$1|1|"),
                ("LMOVEM b a RIGHT LEFT COUNT 2 OBO", "*2|$1|4|$1|3|"),
                ("LRANGE a 0 -1", "*4|$1|4|$1|3|$1|1|$1|2|"),
                ("LMOVEM b a LEFT RIGHT COUNT 9 BULK", "*2|$1|6|$1|7|"),
                ("EXISTS b", ":0|"),
                ("LMOVEM b a LEFT RIGHT COUNT 9 BULK", "*-1|"),
                ("LMOVEM b a LEFT RIGHT", "*-1|"),
                ("LMOVEM a b LEFT RIGHT COUNT 0 BULK", "*0|"),
                ("EXISTS b", ":0|"),
                ("LMOVEM a a LEFT LEFT EXACTLY 2 OBO", "*2|$1|3|$1|4|"),
                ("LMOVEM a a LEFT LEFT EXACTLY 2 BULK", "*2|$1|3|$1|4|"),
                ("LMOVEM a a LEFT LEFT EXACTLY 9 BULK", "*-1|"),
                ("LMOVEM a a LEFT RIGHT COUNT 0 OBO", "*0|"),
                ("PEXPIRE a 100", ":1|"),
                ("LMOVEM a a RIGHT LEFT COUNT 9 OBO", "*6|$1|3|$1|4|$1|1|$1|2|$1|6|$1|7|"),
                ("PTTL a", ":100|"),
                ("LMOVEM a b LEFT UP", "-ERR syntax error|"),
                ("LMOVEM a b LEFT LEFT COUNT 2", "-ERR syntax error|"),
                ("LMOVEM a b LEFT LEFT COUNT 2 FOO", "-ERR syntax error|"),
                ("LMOVEM a b LEFT LEFT FOO 2 OBO", "-ERR syntax error|"),
                ("LMOVEM a b LEFT LEFT COUNT -1 OBO", "-ERR value is out of range, must be positive|"),
                ("SET s v", "+OK|"),
                (
                    "LMOVEM a s LEFT LEFT",
                    "-WRONGTYPE Operation against a key holding the wrong kind of value|",
                ),
                (
                    "LMOVEM s a LEFT LEFT",
                    "-WRONGTYPE Operation against a key holding the wrong kind of value|",
                ),
                ("LLEN a", ":6|"),
            ]);
        }
    }
}
