//! The rows of group `geo`: positions on the earth, in sorted sets.

use crate::cost::{Cost, SlowPath};
use crate::families::geo;
use crate::spec::{Arg, BeginSearch, CommandSpec, Exec, FindKeys, Flags as F, KeyFlags as K, KeySpec};

/// Group `geo`, by name.
pub(crate) const GEO: &[CommandSpec] = &[
    CommandSpec::new(
        "geoadd",
        "geo",
        "3.2.0",
        "O(log N) for each member, N members of the sorted set",
        "Stores positions as members of a sorted set.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::RW, K::UPDATE])])
    .args(&[
        Arg::key("key", 0),
        Arg::oneof("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional().since("6.2.0"),
        Arg::word("change", "CH").optional().since("6.2.0"),
        Arg::block(
            "longitude_latitude_member",
            &[Arg::double("longitude"), Arg::double("latitude"), Arg::string("member")],
        )
        .multiple(),
    ])
    .history(&[("6.2.0", "`CH`, `NX` and `XX`.")])
    .exec(Exec::Estimated(geo::geoadd, Cost::Arguments, SlowPath::Own(geo::geoadd_long))),
    CommandSpec::new("geodist", "geo", "3.2.0", "O(1)", "Returns how far two members are from each other.")
        .flags(&[F::READONLY])
        .keys(SOURCE)
        .args(&[Arg::key("key", 0), Arg::string("member1"), Arg::string("member2"), UNIT.optional()])
        .exec(Exec::Inline(geo::geodist)),
    CommandSpec::new(
        "geohash",
        "geo",
        "3.2.0",
        "O(1) for each member",
        "Returns the positions of members as geohashes.",
    )
    .flags(&[F::READONLY])
    .keys(SOURCE)
    .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
    .arity(-2)
    .exec(Exec::Estimated(geo::geohash, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new("geopos", "geo", "3.2.0", "O(1) for each member", "Returns the positions of members.")
        .flags(&[F::READONLY])
        .keys(SOURCE)
        .args(&[Arg::key("key", 0), Arg::string("member").multiple()])
        .arity(-2)
        .exec(Exec::Estimated(geo::geopos, Cost::Arguments, SlowPath::CopyValues)),
    CommandSpec::new(
        "georadius",
        "geo",
        "3.2.0",
        OF_SEARCH,
        "Finds members around a position, or stores them.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS]), behind("STORE", 6), behind("STOREDIST", 6)])
    .args(&[
        Arg::key("key", 0),
        Arg::double("longitude"),
        Arg::double("latitude"),
        Arg::double("radius"),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT_SINCE,
        ORDER,
        Arg::key("key", 1).token("STORE").optional(),
        Arg::key("key", 2).token("STOREDIST").optional(),
    ])
    .history(&[("6.2.0", "`ANY` after `COUNT`."), ("7.0.0", "Units in upper case.")])
    .deprecated("6.2.0", "GEOSEARCH and GEOSEARCHSTORE with BYRADIUS")
    .exec(Exec::Estimated(
        geo::georadius,
        Cost::Search(geo::georadius_elements, geo::MEMBER_ELEMENTS),
        SlowPath::Own(geo::georadius_long),
    )),
    CommandSpec::new("georadius_ro", "geo", "3.2.10", OF_SEARCH, "Finds members around a position.")
        .flags(&[F::READONLY])
        .keys(SOURCE)
        .args(&[
            Arg::key("key", 0),
            Arg::double("longitude"),
            Arg::double("latitude"),
            Arg::double("radius"),
            UNIT,
            WITHCOORD,
            WITHDIST,
            WITHHASH,
            COUNT_SINCE,
            ORDER,
        ])
        .history(&[("6.2.0", "`ANY` after `COUNT`.")])
        .deprecated("6.2.0", "GEOSEARCH with BYRADIUS")
        .exec(Exec::Estimated(
            geo::georadius_ro,
            Cost::Search(geo::georadius_elements, geo::MEMBER_ELEMENTS),
            SlowPath::CopyValues,
        )),
    CommandSpec::new(
        "georadiusbymember",
        "geo",
        "3.2.0",
        OF_SEARCH,
        "Finds members around another member, or stores them.",
    )
    .flags(&[F::WRITE, F::DENYOOM, F::MOVABLEKEYS])
    .keys(&[KeySpec::one(1, &[K::RO, K::ACCESS]), behind("STORE", 5), behind("STOREDIST", 5)])
    .args(&[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::double("radius"),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
        Arg::key("key", 1).token("STORE").optional(),
        Arg::key("key", 2).token("STOREDIST").optional(),
    ])
    .history(&[("7.0.0", "Units in upper case.")])
    .deprecated("6.2.0", "GEOSEARCH and GEOSEARCHSTORE with BYRADIUS and FROMMEMBER")
    .exec(Exec::Estimated(
        geo::georadiusbymember,
        Cost::Search(geo::georadiusbymember_elements, geo::MEMBER_ELEMENTS),
        SlowPath::Own(geo::georadiusbymember_long),
    )),
    CommandSpec::new(
        "georadiusbymember_ro",
        "geo",
        "3.2.10",
        OF_SEARCH,
        "Finds members around another member.",
    )
    .flags(&[F::READONLY])
    .keys(SOURCE)
    .args(&[
        Arg::key("key", 0),
        Arg::string("member"),
        Arg::double("radius"),
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
    ])
    .deprecated("6.2.0", "GEOSEARCH with BYRADIUS and FROMMEMBER")
    .exec(Exec::Estimated(
        geo::georadiusbymember_ro,
        Cost::Search(geo::georadiusbymember_elements, geo::MEMBER_ELEMENTS),
        SlowPath::CopyValues,
    )),
    CommandSpec::new("geosearch", "geo", "6.2.0", OF_SEARCH, "Finds members within a circle or a box.")
        .flags(&[F::READONLY])
        .keys(SOURCE)
        .args(&[Arg::key("key", 0), FROM, BY, ORDER, COUNT, WITHCOORD, WITHDIST, WITHHASH])
        .arity(-7)
        .history(&[("7.0.0", "Units in upper case.")])
        .exec(Exec::Estimated(
            geo::geosearch,
            Cost::Search(geo::geosearch_elements, geo::MEMBER_ELEMENTS),
            SlowPath::CopyValues,
        )),
    CommandSpec::new(
        "geosearchstore",
        "geo",
        "6.2.0",
        OF_SEARCH,
        "Stores the members within a circle or a box as another sorted set.",
    )
    .flags(&[F::WRITE, F::DENYOOM])
    .keys(&[KeySpec::one(1, &[K::OW, K::UPDATE]), KeySpec::one(2, &[K::RO, K::ACCESS])])
    .args(&[
        Arg::key("destination", 0),
        Arg::key("source", 1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Arg::word("storedist", "STOREDIST").optional(),
    ])
    .arity(-8)
    .history(&[("7.0.0", "Units in upper case.")])
    .exec(Exec::Estimated(
        geo::geosearchstore,
        Cost::Search(geo::geosearchstore_elements, geo::MEMBER_ELEMENTS),
        SlowPath::Own(geo::geosearchstore_long),
    )),
];

const OF_SEARCH: &str = "O(N+log M), N members in cells around the shape, M of the sorted set";
const SOURCE: &[KeySpec] = &[KeySpec::one(1, &[K::RO, K::ACCESS])];

/// The key spec for a key that follows this word.
const fn behind(word: &'static str, from: i32) -> KeySpec {
    KeySpec::new(
        &[K::OW, K::UPDATE],
        BeginSearch::Keyword(word, from),
        FindKeys::Range { last: 0, step: 1, limit: 0 },
    )
}

const UNIT: Arg = Arg::oneof(
    "unit",
    &[Arg::word("m", "M"), Arg::word("km", "KM"), Arg::word("ft", "FT"), Arg::word("mi", "MI")],
);
const WITHCOORD: Arg = Arg::word("withcoord", "WITHCOORD").optional();
const WITHDIST: Arg = Arg::word("withdist", "WITHDIST").optional();
const WITHHASH: Arg = Arg::word("withhash", "WITHHASH").optional();
const ORDER: Arg = Arg::oneof("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional();
const COUNT: Arg =
    Arg::block("count", &[Arg::integer("count").token("COUNT"), Arg::word("any", "ANY").optional()])
        .optional();
const COUNT_SINCE: Arg = Arg::block(
    "count",
    &[Arg::integer("count").token("COUNT"), Arg::word("any", "ANY").optional().since("6.2.0")],
)
.optional();
const FROM: Arg = Arg::oneof(
    "from",
    &[
        Arg::string("member").token("FROMMEMBER"),
        Arg::block("longitude_latitude", &[Arg::double("longitude"), Arg::double("latitude")])
            .token("FROMLONLAT"),
    ],
);
const BY: Arg = Arg::oneof(
    "by",
    &[
        Arg::block("circle", &[Arg::double("radius").token("BYRADIUS"), UNIT]),
        Arg::block("box", &[Arg::double("width").token("BYBOX"), Arg::double("height"), UNIT]),
    ],
);
