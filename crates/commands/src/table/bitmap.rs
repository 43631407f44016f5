//! The rows of group `bitmap`: strings as arrays of bits.

use crate::cost::{Cost, Long};
use crate::families::bitmap;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, KeySpec};

/// Group `bitmap`, by name.
pub(crate) static BITMAP: &[CommandSpec] = &[
    CommandSpec {
        name: "bitcount",
        arity: -2,
        flags: F::READONLY,
        acl: &["read", "bitmap", "slow"],
        keys: &[KeySpec::one(1, &["RO", "access"])],
        summary: "Counts the bits of a string that are 1.",
        since: "2.6.0",
        group: "bitmap",
        complexity: "O(N), N bytes",
        history: &[("7.0.0", "`BYTE` and `BIT`.")],
        args: &[
            Arg::key("key", 0),
            Arg::block("index", &[Arg::integer("start"), Arg::integer("end"), UNIT]).optional(),
        ],
        handler: Handler::Data(bitmap::bitcount),
        cost: Cost::Digest,
        long: Long::Snapshot,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "bitfield",
        arity: -2,
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "bitmap", "slow"],
        keys: &[KeySpec {
            notes: "Read only when every operation is a GET",
            ..KeySpec::one(1, &["RW", "access", "update", "variable_flags"])
        }],
        summary: "Reads, sets and adds to integers of any width at any bit of a string.",
        since: "3.2.0",
        group: "bitmap",
        complexity: "O(1) for each operation",
        args: &[
            Arg::key("key", 0),
            Arg::oneof(
                "operation",
                &[
                    Arg::block("encoding_offset", &[ENCODING, OFFSET]).token("GET"),
                    Arg::block(
                        "write",
                        &[
                            Arg::oneof(
                                "wrap_sat_fail",
                                &[
                                    Arg::word("wrap", "WRAP"),
                                    Arg::word("sat", "SAT"),
                                    Arg::word("fail", "FAIL"),
                                ],
                            )
                            .token("OVERFLOW")
                            .optional(),
                            Arg::oneof(
                                "write_operation",
                                &[
                                    Arg::block(
                                        "encoding_offset_value",
                                        &[ENCODING, OFFSET, Arg::integer("value")],
                                    )
                                    .token("SET"),
                                    Arg::block(
                                        "encoding_offset_increment",
                                        &[ENCODING, OFFSET, Arg::integer("increment")],
                                    )
                                    .token("INCRBY"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
            .optional()
            .multiple(),
        ],
        handler: Handler::Data(bitmap::bitfield),
        cost: Cost::BitField,
        long: Long::Held,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "bitfield_ro",
        arity: -2,
        flags: F::all(&[F::READONLY, F::FAST]),
        acl: &["read", "bitmap", "fast"],
        keys: &[KeySpec::one(1, &["RO", "access"])],
        summary: "Reads integers of any width at any bit of a string.",
        since: "6.0.0",
        group: "bitmap",
        complexity: "O(1) for each operation",
        args: &[
            Arg::key("key", 0),
            Arg::block("encoding_offset", &[ENCODING, OFFSET])
                .token("GET")
                .optional()
                .multiple()
                .multiple_token(),
        ],
        handler: Handler::Data(bitmap::bitfield_ro),
        cost: Cost::Arguments,
        long: Long::Snapshot,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "bitop",
        arity: -4,
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "bitmap", "slow"],
        keys: &[KeySpec::one(2, &["OW", "update"]), KeySpec::range(3, -1, 1, &["RO", "access"])],
        summary: "Combines strings bit by bit and stores the result.",
        since: "2.6.0",
        group: "bitmap",
        complexity: "O(N), N bytes of all strings",
        args: &[Arg::string("operation"), Arg::key("destkey", 0), Arg::key("key", 1).multiple()],
        handler: Handler::Data(bitmap::bitop),
        cost: Cost::Sources,
        long: Long::Own(bitmap::bitop_long),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "bitpos",
        arity: -3,
        flags: F::READONLY,
        acl: &["read", "bitmap", "slow"],
        keys: &[KeySpec::one(1, &["RO", "access"])],
        summary: "Finds the first bit of a string that is 1, or 0.",
        since: "2.8.7",
        group: "bitmap",
        complexity: "O(N), N bytes",
        history: &[("7.0.0", "`BYTE` and `BIT`.")],
        args: &[
            Arg::key("key", 0),
            Arg::integer("bit"),
            Arg::block(
                "index",
                &[Arg::integer("start"), Arg::block("end_index", &[Arg::integer("end"), UNIT]).optional()],
            )
            .optional(),
        ],
        handler: Handler::Data(bitmap::bitpos),
        cost: Cost::Digest,
        long: Long::Snapshot,
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "getbit",
        arity: 3,
        flags: F::all(&[F::READONLY, F::FAST]),
        acl: &["read", "bitmap", "fast"],
        keys: &[KeySpec::one(1, &["RO", "access"])],
        summary: "Reads one bit of a string.",
        since: "2.2.0",
        group: "bitmap",
        complexity: "O(1)",
        args: &[Arg::key("key", 0), OFFSET],
        handler: Handler::Data(bitmap::getbit),
        ..CommandSpec::EMPTY
    },
    CommandSpec {
        name: "setbit",
        arity: 4,
        flags: F::all(&[F::WRITE, F::DENYOOM]),
        acl: &["write", "bitmap", "slow"],
        keys: &[KeySpec::one(1, &["RW", "access", "update"])],
        summary: "Sets one bit of a string, padding with zeros, and replies with what it was.",
        since: "2.2.0",
        group: "bitmap",
        complexity: "O(1)",
        args: &[Arg::key("key", 0), OFFSET, Arg::integer("value")],
        handler: Handler::Data(bitmap::setbit),
        cost: Cost::SetBit,
        long: Long::Held,
        ..CommandSpec::EMPTY
    },
];

const ENCODING: Arg = Arg::string("encoding");
const OFFSET: Arg = Arg::integer("offset");
/// What BITCOUNT and BITPOS count their positions in.
const UNIT: Arg =
    Arg::oneof("index_unit", &[Arg::word("byte", "BYTE"), Arg::word("bit", "BIT")]).optional().since("7.0.0");
