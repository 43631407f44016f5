//! The reply of FT.SEARCH: RediSearch's flat array in RESP2, its map in RESP3.

use crate::exec::{Hit, SortValue};
use crate::follow::to_blob;
use crate::options::Options;
use strand_chain::Blob;
use strand_commands::call::LaneCall;
use strand_keyspace::{Keyspace, ValueRef};
use strand_wire::reply::{Protocol, Reply};

/// A result's fields as (name, value).
type Document = Vec<(Blob, Blob)>;

/// Reads the documents of `page` and writes the reply. A document that went away since the search is left out.
pub(crate) fn write(
    keyspace: &Keyspace,
    options: &Options,
    total: usize,
    page: Vec<Hit>,
    call: &mut LaneCall<'_>,
) {
    let with_fields = !options.no_content && options.fields.as_ref().is_none_or(|f| !f.is_empty());
    let found = page.len();
    let page: Vec<(Hit, Document)> = match with_fields {
        false => page.into_iter().map(|hit| (hit, Document::new())).collect(),
        true => page
            .into_iter()
            .filter_map(|hit| load(keyspace, &hit.key, options, call.now_ms).map(|d| (hit, d)))
            .collect(),
    };
    let total = total - (found - page.len());
    match call.reply.protocol() {
        Protocol::Resp2 => write_array(options, total, &page, with_fields, call.reply),
        Protocol::Resp3 => write_map(options, total, &page, with_fields, call.reply),
    }
}

fn load(keyspace: &Keyspace, key: &[u8], options: &Options, now_ms: i64) -> Option<Document> {
    let key = keyspace.key(key);
    let mut locked = keyspace.lock(&[key.hash], now_ms);
    let mut db = locked.db(0);
    let ValueRef::Hash(hash) = db.peek(&key)?.value() else { return None };
    Some(match &options.fields {
        None => hash.iter().map(|(f, v)| (to_blob(f), to_blob(v))).collect(),
        Some(fields) => fields
            .iter()
            .filter_map(|(source, shown)| hash.get(source).map(|v| (Blob::from(&shown[..]), to_blob(v))))
            .collect(),
    })
}

fn write_array(
    options: &Options,
    total: usize,
    page: &[(Hit, Document)],
    with_fields: bool,
    reply: &mut Reply<'_>,
) {
    let per_hit =
        1 + [options.with_scores, options.with_sort_keys, with_fields].iter().filter(|b| **b).count();
    reply.array(1 + page.len() * per_hit);
    reply.int(total as i64);
    for (hit, document) in page {
        reply.bulk(&hit.key);
        if options.with_scores {
            reply.double(hit.score);
        }
        if options.with_sort_keys {
            sort_key(hit, reply);
        }
        if with_fields {
            reply.array(document.len() * 2);
            for (field, value) in document {
                reply.bulk_blob(field);
                reply.bulk_blob(value);
            }
        }
    }
}

fn write_map(
    options: &Options,
    total: usize,
    page: &[(Hit, Document)],
    with_fields: bool,
    reply: &mut Reply<'_>,
) {
    reply.map(5);
    reply.simple("attributes");
    reply.array(0);
    reply.simple("total_results");
    reply.int(total as i64);
    reply.simple("format");
    reply.simple("STRING");
    reply.simple("results");
    reply.array(page.len());
    for (hit, document) in page {
        let pairs =
            2 + [options.with_scores, options.with_sort_keys, with_fields].iter().filter(|b| **b).count();
        reply.map(pairs);
        reply.simple("id");
        reply.bulk(&hit.key);
        if options.with_scores {
            reply.simple("score");
            reply.double(hit.score);
        }
        if options.with_sort_keys {
            reply.simple("sortkey");
            sort_key(hit, reply);
        }
        if with_fields {
            reply.simple("extra_attributes");
            reply.map(document.len());
            for (field, value) in document {
                reply.bulk_blob(field);
                reply.bulk_blob(value);
            }
        }
        reply.simple("values");
        reply.array(0);
    }
    reply.simple("warning");
    reply.array(0);
}

/// `#` and a number, `$` and a text, or null.
fn sort_key(hit: &Hit, reply: &mut Reply<'_>) {
    match &hit.sort {
        SortValue::Number(n) => reply.bulk(format!("#{n}").as_bytes()),
        SortValue::Text(t) => reply.bulk(&[b"$", &t[..]].concat()),
        SortValue::Score | SortValue::Missing => reply.null(),
    }
}
