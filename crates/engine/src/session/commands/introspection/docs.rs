//! One entry of COMMAND DOCS.

use super::{subcommands, text, words};
use smallvec::SmallVec;
use strand_commands::dispatch::Resolved;
use strand_commands::spec::Arg;
use strand_wire::reply::Reply;

/// Writes a map of the row's facts. Facts that the row does not have are left out.
pub(super) fn docs(reply: &mut Reply<'_>, found: &Resolved) {
    let spec = found.spec;
    let optional = [
        !spec.doc_flags.is_empty(),
        spec.deprecated.is_some(),
        spec.deprecated.is_some(),
        !spec.history.is_empty(),
        !spec.args.is_empty(),
        !spec.subcommands.is_empty(),
    ];
    reply.map(4 + optional.iter().filter(|there| **there).count());
    text(reply, "summary", spec.summary);
    text(reply, "since", spec.since);
    text(reply, "group", spec.group);
    text(reply, "complexity", spec.complexity);
    if !spec.doc_flags.is_empty() {
        reply.bulk(b"doc_flags");
        words(reply, "", spec.doc_flags);
    }
    if let Some((since, instead)) = spec.deprecated {
        text(reply, "deprecated_since", since);
        text(reply, "replaced_by", instead);
    }
    if !spec.history.is_empty() {
        reply.bulk(b"history");
        reply.set(spec.history.len());
        for (version, change) in spec.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !spec.args.is_empty() {
        arguments(reply, spec.args);
    }
    if !spec.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(spec.subcommands.len());
        for sub in subcommands(spec) {
            reply.bulk(sub.full_name().as_bytes());
            docs(reply, &sub);
        }
    }
}

fn arguments(reply: &mut Reply<'_>, args: &[Arg]) {
    reply.bulk(b"arguments");
    reply.array(args.len());
    for arg in args {
        let flags: SmallVec<[&str; 3]> =
            [(arg.optional, "optional"), (arg.multiple, "multiple"), (arg.multiple_token, "multiple_token")]
                .iter()
                .filter(|(set, _)| *set)
                .map(|(_, name)| *name)
                .collect();
        let optional = [
            arg.key_spec.is_some(),
            arg.token.is_some(),
            arg.since.is_some(),
            arg.deprecated_since.is_some(),
            !flags.is_empty(),
            !arg.args.is_empty(),
        ];
        reply.map(2 + optional.iter().filter(|there| **there).count());
        text(reply, "name", arg.name);
        text(reply, "type", arg.kind);
        if let Some(at) = arg.key_spec {
            reply.bulk(b"key_spec_index");
            reply.int(at as i64);
        }
        for (name, value) in
            [("token", arg.token), ("since", arg.since), ("deprecated_since", arg.deprecated_since)]
        {
            if let Some(value) = value {
                text(reply, name, value);
            }
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            words(reply, "", &flags);
        }
        if !arg.args.is_empty() {
            arguments(reply, arg.args);
        }
    }
}
