//! LMOVEM: LMOVE of several elements at once.

use super::end;
use super::pop::{Moved, popped_at, pushed_at, taken};
use crate::call::Call;
use crate::cost::part_elements;
use crate::errors;
use crate::families::collection::{send, update_existing};
use crate::parse::{self, Text, wrong_type};
use strand_keyspace::types::list::End;
use strand_keyspace::{Changed, Collection, ListValue, ValueRef};
use strand_wire::args::Args;

/// What a call asks for.
#[derive(Clone, Copy)]
struct Wish {
    from: End,
    to: End,
    count: usize,
    /// With fewer elements than that nothing is moved.
    exactly: bool,
    /// Each element is put in front of the one before it, where both ends are the same one.
    one_by_one: bool,
}

/// `LMOVEM source destination LEFT|RIGHT LEFT|RIGHT [COUNT count|EXACTLY count OBO|BULK]`. Reply: an array of the elements
/// moved, as they lie in the destination; null where there is nothing to move.
pub(crate) fn lmovem(call: &mut Call<'_, '_>) {
    let moved = Wish::parse(call.args).and_then(|wish| match call.keys[0].bytes == call.keys[1].bytes {
        true => within(call, wish),
        false => between(call, wish),
    });
    match moved {
        Ok(Some(moved)) => {
            call.reply.array(moved.len());
            moved.iter().for_each(|element| send(call.reply, element.bytes()));
        }
        Ok(None) => call.reply.null_array(),
        Err(text) => call.reply.error(&text),
    }
}

/// What LMOVEM costs on one of its lists.
pub(crate) fn movem_elements(args: Args<'_>, value: ValueRef<'_>) -> usize {
    Wish::parse(args).map_or(0, |wish| part_elements(wish.count, value))
}

impl Wish {
    fn parse(args: Args<'_>) -> Result<Wish, Text> {
        let (from, to) = (end(args.at(3))?, end(args.at(4))?);
        let one = Wish { from, to, count: 1, exactly: false, one_by_one: true };
        match args.len() {
            5 => return Ok(one),
            8 if args.is(5, "COUNT") || args.is(5, "EXACTLY") => {}
            _ => return Err(errors::SYNTAX.into()),
        }
        if !args.is(7, "OBO") && !args.is(7, "BULK") {
            return Err(errors::SYNTAX.into());
        }
        let count = parse::at_least_zero(args.at(6), errors::NOT_POSITIVE)
            .map_err(|_| Text::from(errors::NOT_POSITIVE))?;
        Ok(Wish { count, exactly: args.is(5, "EXACTLY"), one_by_one: args.is(7, "OBO"), ..one })
    }
    /// The elements to move, as they will lie in the destination; `None` where they are too few.
    fn of(self, list: &ListValue) -> Option<Vec<Moved>> {
        if self.exactly && list.len() < self.count {
            return None;
        }
        let places = taken(list, self.from, self.count);
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

fn between(call: &mut Call<'_, '_>, wish: Wish) -> Result<Option<Vec<Moved>>, Text> {
    let (source, destination) = (&call.keys[0], &call.keys[1]);
    let mut db = call.txn.db(call.db);
    let Some(list) = db.read::<ListValue>(source).map_err(wrong_type)? else { return Ok(None) };
    let moved = wish.of(list);
    // Neither list is changed when one of the values is no list.
    db.peek_at::<ListValue>(destination).map_err(wrong_type)?;
    let Some(moved) = moved else { return Ok(None) };
    if moved.is_empty() {
        return Ok(Some(moved));
    }
    db.txn_call_next(pushed_at(wish.to));
    let pushed = db.change_or_create(destination, |list: &mut ListValue| {
        wish.push(list, &moved);
        ((), Changed::Yes)
    });
    pushed.map_err(wrong_type)?;
    db.txn_call_next(popped_at(wish.from));
    let popped = db.change(source, |list: &mut ListValue| {
        let places = taken(list, wish.from, moved.len());
        list.remove(places);
        ((), Changed::Yes)
    });
    popped.map_err(wrong_type)?;
    Ok(Some(moved))
}

/// Moves elements within one list, whose expiry stays, also when all are moved.
fn within(call: &mut Call<'_, '_>, wish: Wish) -> Result<Option<Vec<Moved>>, Text> {
    call.txn.call_next(pushed_at(wish.to));
    let moved = update_existing(call, |list: &mut ListValue, _| {
        let moved = wish.of(list).unwrap_or_default();
        if moved.is_empty() {
            return (wish.of(list), Changed::No);
        }
        let places = taken(list, wish.from, moved.len());
        list.remove(places);
        wish.push(list, &moved);
        (Some(moved), Changed::Yes)
    })?;
    if moved.as_ref().is_some_and(|moved| moved.as_ref().is_some_and(|moved| !moved.is_empty())) {
        call.txn.db(call.db).tell_event(&call.keys[0], popped_at(wish.from));
    }
    Ok(moved.flatten())
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

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
