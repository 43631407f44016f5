//! The rows of group `bitmap`: strings as arrays of bits.

use crate::cost::{Cost, SlowPath};
use crate::families::bitmap;
use crate::spec::{Arg, CommandSpec, Exec, Flags as F, KeyFlags as K, KeySpec};

/// Group `bitmap`, by name.
pub(crate) const BITMAP: &[CommandSpec] = &[
    CommandSpec::new(
        "bitcount",
        "bitmap",
        "2.6.0",
        "O(N), N bytes",
        "Counts the bits of a string that are 1.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("index", &[Arg::integer("start"), Arg::integer("end"), UNIT]).optional(),
    ])
    .history(&[("7.0.0", "`BYTE` and `BIT`.")])
    .exec(Exec::Estimated(
        bitmap::bitcount,
        Cost::InData(bitmap::bitcount_elements),
        SlowPath::CopyValues,
    )),
    CommandSpec::new(
        "bitfield",
        "bitmap",
        "3.2.0",
        "O(1) for each operation",
        "Returns, sets or changes integers of any width at any bit of a string.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE, K::VARIABLE])
        .notes("Read only when every operation is a GET")])
    .args(&[
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
                            &[Arg::word("wrap", "WRAP"), Arg::word("sat", "SAT"), Arg::word("fail", "FAIL")],
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
    ])
    .exec(Exec::Estimated(bitmap::bitfield, Cost::BitField, SlowPath::Locked)),
    CommandSpec::new(
        "bitfield_ro",
        "bitmap",
        "6.0.0",
        "O(1) for each operation",
        "Returns integers of any width at any bit of a string.",
    )
    .flags(&[F::READONLY, F::FAST])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::block("encoding_offset", &[ENCODING, OFFSET])
            .token("GET")
            .optional()
            .multiple()
            .multiple_token(),
    ])
    .exec(Exec::Estimated(bitmap::bitfield_ro, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "bitop",
        "bitmap",
        "2.6.0",
        "O(N), N bytes of all strings",
        "Combines strings bit by bit and stores the result.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(2, &[K::OW, K::UPDATE]), KeySpec::range(3, -1, 1, &[K::RO, K::ACCESS])])
    .args(&[Arg::string("operation"), Arg::key("destkey", 0), Arg::key("key", 1).multiple()])
    .exec(Exec::Estimated(bitmap::bitop, Cost::Sources, SlowPath::Own(bitmap::bitop_long))),
    CommandSpec::new(
        "bitpos",
        "bitmap",
        "2.8.7",
        "O(N), N bytes",
        "Finds the first bit of a string that is 1, or 0.",
    )
    .flags(&[F::READONLY])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("key", 0),
        Arg::integer("bit"),
        Arg::block(
            "index",
            &[Arg::integer("start"), Arg::block("end_index", &[Arg::integer("end"), UNIT]).optional()],
        )
        .optional(),
    ])
    .history(&[("7.0.0", "`BYTE` and `BIT`.")])
    .exec(Exec::Estimated(
        bitmap::bitpos,
        Cost::Search(bitmap::bitpos_elements, 1),
        SlowPath::CopyValues,
    )),
    CommandSpec::new("getbit", "bitmap", "2.2.0", "O(1)", "Returns one bit of a string.")
        .flags(&[F::READONLY, F::FAST])
        .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS])])
        .args(&[Arg::key("key", 0), OFFSET])
        .exec(Exec::Inline(bitmap::getbit)),
    CommandSpec::new(
        "setbit",
        "bitmap",
        "2.2.0",
        "O(1)",
        "Sets one bit of a string, padding with zeros, and returns the old bit.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::ACCESS, K::UPDATE])])
    .args(&[Arg::key("key", 0), OFFSET, Arg::integer("value")])
    .exec(Exec::Estimated(bitmap::setbit, Cost::SetBit, SlowPath::Locked)),
];

const ENCODING: Arg = Arg::string("encoding");
const OFFSET: Arg = Arg::integer("offset");
/// The unit in which BITCOUNT and BITPOS count positions.
const UNIT: Arg =
    Arg::oneof("index_unit", &[Arg::word("byte", "BYTE"), Arg::word("bit", "BIT")]).optional().since("7.0.0");
