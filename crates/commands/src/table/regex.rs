//! The rows of group `regex`: regular expressions over keys and values.

use crate::cost::Cost;
use crate::spec::{Arg, CommandSpec, Flags as F, Handler, ServiceCommand};

/// Group `regex`, by name.
pub(crate) static REGEX: &[CommandSpec] = &[CommandSpec {
    name: "rx.grep",
    arity: -3,
    flags: F::READONLY,
    acl: &["keyspace", "read", "slow", "dangerous"],
    summary: "Finds the keys whose name or value matches a regular expression.",
    since: "0.1.0",
    group: "regex",
    complexity: "O(N), N bytes of the keys or values looked at",
    args: &[
        Arg::oneof("where", &[Arg::word("keys", "KEYS"), Arg::word("values", "VALUES")]),
        Arg::pattern("pattern"),
        Arg::string("prefix").token("PREFIX").optional(),
        Arg::integer("limit").token("LIMIT").optional(),
        Arg::word("nocase", "NOCASE").optional(),
        Arg::word("withvalues", "WITHVALUES").optional(),
    ],
    handler: Handler::Service(ServiceCommand::RxGrep),
    cost: Cost::Budget,
    ..CommandSpec::EMPTY
}];
