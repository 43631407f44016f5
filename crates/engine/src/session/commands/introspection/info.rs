//! One entry of COMMAND INFO.

use super::{subcommands, text, words};
use smallvec::SmallVec;
use strand_commands::dispatch::Resolved;
use strand_commands::spec::{BeginSearch, FindKeys, KeySpec};
use strand_wire::reply::Reply;

/// Writes ten values: name, arity, flags, first key, last key, step, ACL categories, tips, key specs, subcommands.
pub(super) fn info(reply: &mut Reply<'_>, found: &Resolved) {
    let spec = found.spec;
    reply.array(10);
    reply.bulk(found.full_name().as_bytes());
    reply.int(spec.arity.into());
    let flags: SmallVec<[&str; 8]> = spec.flags.names().collect();
    words(reply, "", &flags);
    let (first, last, step) = legacy_range(spec.keys);
    [first, last, step].iter().for_each(|n| reply.int(*n));
    let categories: SmallVec<[&str; 8]> = spec.categories().names().collect();
    words(reply, "@", &categories);
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.keys.len());
    spec.keys.iter().for_each(|keys| key_spec(reply, keys));
    if spec.subcommands.is_empty() {
        return reply.set(0);
    }
    reply.array(spec.subcommands.len());
    subcommands(spec).for_each(|sub| info(reply, &sub));
}

/// The first key, the last key and the step, for old clients: the key specs, as far as three numbers can describe them.
fn legacy_range(keys: &[KeySpec]) -> (i64, i64, i64) {
    let range = |k: &KeySpec| match (k.begin, k.find) {
        (BeginSearch::Index(at), FindKeys::Range { last, step, .. }) => {
            let last = if last >= 0 { at as i64 + i64::from(last) } else { last.into() };
            Some((at as i64, last, step as i64))
        }
        _ => None,
    };
    if let [only] = keys {
        return range(only).unwrap_or_default();
    }
    let mut joined: Option<(i64, i64, i64)> = None;
    for (first, last, step) in keys.iter().filter_map(range) {
        // Only ranges that follow one another without a gap can be reported as one range.
        if step != 1 || joined.is_some_and(|(_, before, _)| before != first - 1) {
            return (0, 0, 0);
        }
        joined = Some((joined.map_or(first, |(f, ..)| f.min(first)), last, 1));
    }
    joined.unwrap_or_default()
}

fn key_spec(reply: &mut Reply<'_>, keys: &KeySpec) {
    reply.map(if keys.notes.is_empty() { 3 } else { 4 });
    if !keys.notes.is_empty() {
        text(reply, "notes", keys.notes);
    }
    reply.bulk(b"flags");
    let flags: SmallVec<[&str; 4]> = keys.flags.names().collect();
    words(reply, "", &flags);
    reply.bulk(b"begin_search");
    reply.map(2);
    match keys.begin {
        BeginSearch::Index(at) => {
            text(reply, "type", "index");
            numbers(reply, &[("index", at as i64)]);
        }
        BeginSearch::Keyword(word, from) => {
            text(reply, "type", "keyword");
            reply.bulk(b"spec");
            reply.map(2);
            text(reply, "keyword", word);
            reply.bulk(b"startfrom");
            reply.int(from.into());
        }
        BeginSearch::Unknown => unknown(reply),
    }
    reply.bulk(b"find_keys");
    reply.map(2);
    match keys.find {
        FindKeys::Range { last, step, limit } => {
            text(reply, "type", "range");
            numbers(reply, &[("lastkey", last.into()), ("keystep", step as i64), ("limit", limit as i64)]);
        }
        FindKeys::KeyNumber { number, first, step } => {
            text(reply, "type", "keynum");
            numbers(
                reply,
                &[("keynumidx", number as i64), ("firstkey", first as i64), ("keystep", step as i64)],
            );
        }
        FindKeys::Unknown(_) => unknown(reply),
    }
}

/// Writes the type `unknown` and an empty `spec`.
fn unknown(reply: &mut Reply<'_>) {
    text(reply, "type", "unknown");
    numbers(reply, &[]);
}

/// Writes `spec` and a map of numbers.
fn numbers(reply: &mut Reply<'_>, pairs: &[(&str, i64)]) {
    reply.bulk(b"spec");
    reply.map(pairs.len());
    for (name, n) in pairs {
        reply.bulk(name.as_bytes());
        reply.int(*n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_get_a_range() {
        assert_eq!(legacy_range(&[]), (0, 0, 0));
        assert_eq!(legacy_range(&[KeySpec::one(1, &[])]), (1, 1, 1));
        assert_eq!(legacy_range(&[KeySpec::range(1, -1, 2, &[])]), (1, -1, 2));
        assert_eq!(legacy_range(&[KeySpec::one(1, &[]), KeySpec::one(2, &[])]), (1, 2, 1));
        assert_eq!(legacy_range(&[KeySpec::one(1, &[]), KeySpec::one(3, &[])]), (0, 0, 0));
    }
}
