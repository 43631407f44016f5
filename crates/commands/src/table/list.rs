//! The rows of group `list`: elements in an order.

use crate::cost::{Cost, Merge, SlowPath, pops_one};
use crate::families::list;
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// The arguments of LMOVEM and BLMOVEM that say how many elements are moved, and in which order.
const HOW_MANY: &[Arg] = &[
    Arg::oneof("selector", &[Arg::integer("count").token("COUNT"), Arg::integer("exactly").token("EXACTLY")]),
    Arg::oneof("ordering", &[Arg::word("obo", "OBO"), Arg::word("bulk", "BULK")]),
];

/// Group `list`, by name.
pub(crate) const LIST: &[CommandSpec] = &[
    CommandSpec::new(
        "blmove",
        "list",
        "6.2.0",
        "O(1)",
        "Takes an element off an end of a list and adds it to an end of another; blocks until an element exists.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::NOSCRIPT, F::BLOCKING])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::oneof("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::oneof("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::double("timeout"),
    ])
    .exec(Exec::Inline(list::blmove)),
    CommandSpec::new(
        "blmovem",
        "list",
        "8.10.0",
        "O(N) with the number of elements moved",
        "Takes elements off an end of a list and adds them to an end of another; blocks until they exist.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::BLOCKING])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::oneof("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::oneof("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::double("timeout"),
        Arg::block("how-many", HOW_MANY).optional(),
    ])
    .exec(Exec::Estimated(list::blmovem, Cost::InData(list::blmovem_elements), SlowPath::Locked)),
    CommandSpec::new(
        "blmpop",
        "list",
        "7.0.0",
        "O(N+M) with the number of keys given and of elements taken",
        "Takes elements off an end of the first list that has any; blocks until an element exists.",
    )
    .flags(&[F::WRITE, F::BLOCKING, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(2, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[
        Arg::double("timeout"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::oneof("where", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .exec(Exec::Estimated(
        list::blmpop,
        Cost::InData(list::blmpop_elements),
        SlowPath::Own(list::blmpop_long),
    )),
    CommandSpec::new(
        "blpop",
        "list",
        "2.0.0",
        "O(N) with the number of keys given",
        "Takes the first element off the first list that has any; blocks until an element exists.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT, F::BLOCKING])
    .keys(&[KeySpec::range(1, -2, 1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple(), Arg::double("timeout")])
    .history(&[("6.0.0", "The timeout may have a fraction.")])
    .exec(Exec::Estimated(list::blpop, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "brpop",
        "list",
        "2.0.0",
        "O(N) with the number of keys given",
        "Takes the last element off the first list that has any; blocks until an element exists.",
    )
    .flags(&[F::WRITE, F::NOSCRIPT, F::BLOCKING])
    .keys(&[KeySpec::range(1, -2, 1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0).multiple(), Arg::double("timeout")])
    .history(&[("6.0.0", "The timeout may have a fraction.")])
    .exec(Exec::Estimated(list::brpop, Cost::Arguments, SlowPath::Locked)),
    CommandSpec::new(
        "brpoplpush",
        "list",
        "2.2.0",
        "O(1)",
        "Takes the last element off a list and prepends it to another list; blocks until an element exists.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::NOSCRIPT, F::BLOCKING])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[Arg::key("source", 0), Arg::key("destination", 1), Arg::double("timeout")])
    .history(&[("6.0.0", "The timeout may have a fraction.")])
    .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")
    .exec(Exec::Inline(list::brpoplpush)),
    CommandSpec::new(
        "lindex",
        "list",
        "1.0.0",
        "O(log N) with the number of elements",
        "Returns an element of a list by its index.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::integer("index")])
    .exec(Exec::Inline(list::lindex)),
    CommandSpec::new(
        "linsert",
        "list",
        "2.2.0",
        "O(N) with the number of elements up to the pivot",
        "Inserts an element before or after another element of a list.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[
        Arg::key("key", 0),
        Arg::oneof("where", &[Arg::word("before", "BEFORE"), Arg::word("after", "AFTER")]),
        Arg::string("pivot"),
        Arg::string("element"),
    ])
    .exec(Exec::Estimated(list::linsert, Cost::Search(list::linsert_elements, 1), SlowPath::CopyWrite)),
    CommandSpec::new("llen", "list", "1.0.0", "O(1)", "Returns the number of elements of a list.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO])])
        .args(&[Arg::key("key", 0)])
        .exec(Exec::Inline(list::llen)),
    CommandSpec::new(
        "lmove",
        "list",
        "6.2.0",
        "O(1)",
        "Takes an element off an end of a list and adds it to an end of another list.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::oneof("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::oneof("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
    ])
    .exec(Exec::Inline(list::lmove)),
    CommandSpec::new(
        "lmovem",
        "list",
        "8.10.0",
        "O(N) with the number of elements moved",
        "Takes elements off an end of a list and adds them to an end of another list.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::oneof("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::oneof("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::block("how-many", HOW_MANY).optional(),
    ])
    .exec(Exec::Estimated(list::lmovem, Cost::InData(list::movem_elements), SlowPath::Locked)),
    CommandSpec::new(
        "lmpop",
        "list",
        "7.0.0",
        "O(N+M) with the number of keys given and of elements taken",
        "Takes elements off an end of the first list that has any.",
    )
    .flags(&[F::WRITE, F::MOVABLEKEYS])
    .keys(&[KeySpec::counted(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::oneof("where", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::integer("count").token("COUNT").optional(),
    ])
    .exec(Exec::Estimated(
        list::lmpop,
        Cost::InData(list::lmpop_elements),
        SlowPath::Own(list::lmpop_long),
    )),
    CommandSpec::new(
        "lpop",
        "list",
        "1.0.0",
        "O(N) with the number of elements taken",
        "Takes the first elements off a list.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional().since("6.2.0")])
    .history(&[("6.2.0", "Takes a count.")])
    .exec(Exec::Estimated(
        list::lpop,
        Cost::InDataUnless(pops_one, list::pop_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "lpos",
        "list",
        "6.0.6",
        "O(N) with the number of elements looked at",
        "Returns the indexes of the elements of a list that equal the given element.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::string("element"),
        Arg::integer("rank").token("RANK").optional(),
        Arg::integer("num-matches").token("COUNT").optional(),
        Arg::integer("len").token("MAXLEN").optional(),
    ])
    .exec(Exec::Estimated(list::lpos, Cost::Search(list::lpos_elements, 1), SlowPath::CopyValues)),
    CommandSpec::new(
        "lpush",
        "list",
        "1.0.0",
        "O(N) with the number of elements given",
        "Prepends elements to a list.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("element").multiple()])
    .history(&[("2.4.0", "Takes several elements.")])
    .exec(Exec::Estimated(list::lpush, Cost::Arguments, SlowPath::fields(Merge::Any))),
    CommandSpec::new(
        "lpushx",
        "list",
        "2.2.0",
        "O(N) with the number of elements given",
        "Prepends elements to a list that exists.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("element").multiple()])
    .history(&[("4.0.0", "Takes several elements.")])
    .exec(Exec::Estimated(list::lpushx, Cost::Arguments, SlowPath::fields(Merge::Any))),
    CommandSpec::new(
        "lrange",
        "list",
        "1.0.0",
        "O(log N + M) with the number of elements and of those returned",
        "Returns a range of elements of a list.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")])
    .exec(Exec::Estimated(list::lrange, Cost::InData(list::range_elements), SlowPath::CopyValues)),
    CommandSpec::new(
        "lrem",
        "list",
        "1.0.0",
        "O(N) with the number of elements",
        "Removes the elements of a list that equal the given element.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count"), Arg::string("element")])
    .exec(Exec::Estimated(list::lrem, Cost::Search(list::lrem_elements, 1), SlowPath::CopyWrite)),
    CommandSpec::new(
        "lset",
        "list",
        "1.0.0",
        "O(log N) with the number of elements",
        "Replaces an element of a list by its index.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[Arg::key("key", 0), Arg::integer("index"), Arg::string("element")])
    .exec(Exec::Inline(list::lset)),
    CommandSpec::new(
        "ltrim",
        "list",
        "1.0.0",
        "O(log N + M) with the number of elements and of those removed",
        "Removes all elements of a list that are not in a range.",
    )
    .flags(&[F::WRITE])
    .keys(&[KeySpec::one(1, &[K::RW, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")])
    .exec(Exec::Estimated(list::ltrim, Cost::InData(list::trim_elements), SlowPath::CopyWrite)),
    CommandSpec::new(
        "rpop",
        "list",
        "1.0.0",
        "O(N) with the number of elements taken",
        "Takes the last elements off a list.",
    )
    .flags(&[F::WRITE, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE])])
    .args(&[Arg::key("key", 0), Arg::integer("count").optional().since("6.2.0")])
    .history(&[("6.2.0", "Takes a count.")])
    .exec(Exec::Estimated(
        list::rpop,
        Cost::InDataUnless(pops_one, list::pop_elements),
        SlowPath::CopyWrite,
    )),
    CommandSpec::new(
        "rpoplpush",
        "list",
        "1.2.0",
        "O(1)",
        "Takes the last element off a list and prepends it to another list.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::DELETE]), KeySpec::one(2, &[K::RW, K::INSERT])])
    .args(&[Arg::key("source", 0), Arg::key("destination", 1)])
    .deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")
    .exec(Exec::Inline(list::rpoplpush)),
    CommandSpec::new(
        "rpush",
        "list",
        "1.0.0",
        "O(N) with the number of elements given",
        "Appends elements to a list.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("element").multiple()])
    .history(&[("2.4.0", "Takes several elements.")])
    .exec(Exec::Estimated(list::rpush, Cost::Arguments, SlowPath::fields(Merge::Any))),
    CommandSpec::new(
        "rpushx",
        "list",
        "2.2.0",
        "O(N) with the number of elements given",
        "Appends elements to a list that exists.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RW, K::INSERT])])
    .args(&[Arg::key("key", 0), Arg::string("element").multiple()])
    .history(&[("4.0.0", "Takes several elements.")])
    .exec(Exec::Estimated(list::rpushx, Cost::Arguments, SlowPath::fields(Merge::Any))),
];
