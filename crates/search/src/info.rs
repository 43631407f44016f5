//! FT.INFO, with RediSearch's names in RediSearch's order (only the names that apply to Strand), and the search
//! lines of INFO.

use crate::error::lossy;
use crate::follow::Scan;
use crate::index::WRITER_BYTES_MAX;
use crate::schema::{FieldKind, FieldSpec};
use crate::service::{Search, TextIndexEntry};
use std::sync::atomic::Ordering::Relaxed;
use strand_wire::reply::Reply;

const MEGABYTE: f64 = 1_048_576.0;
/// Stands for a missing error or key.
const UNKNOWN: &str = "N/A";

/// Writes the reply of FT.INFO.
pub(crate) fn reply(search: &Search, entry: &TextIndexEntry, reply: &mut Reply<'_>) {
    let (index, schema) = (&entry.index, &entry.index.schema);
    let searcher = index.searcher();
    let scan = *entry.scan.lock();
    let terms: usize = searcher
        .segment_readers()
        .iter()
        .flat_map(|r| {
            index
                .fields
                .words
                .iter()
                .flatten()
                .map(move |f| r.inverted_index(*f).map_or(0, |i| i.terms().num_terms()))
        })
        .sum();
    let max_doc: u64 = searcher.segment_readers().iter().map(|r| u64::from(r.max_doc())).sum();
    let percent = match scan {
        Scan::Done => 1.0,
        Scan::At(_, visited) => (visited as f64 / search.keyspace.len(0).max(1) as f64).min(1.0),
    };
    let stop_words = schema.own_stop_words.as_ref();

    reply.map(21 + usize::from(stop_words.is_some()));
    text(reply, "index_name", &index.name);
    reply.simple("index_options");
    reply.array(0);
    reply.simple("index_definition");
    reply.map(4);
    text(reply, "key_type", b"HASH");
    reply.simple("prefixes");
    reply.array(schema.prefixes.len());
    schema.prefixes.iter().for_each(|p| reply.bulk(p));
    text(reply, "default_language", b"english");
    number(reply, "default_score", schema.score);
    reply.simple("attributes");
    reply.array(schema.fields.len());
    schema.fields.iter().for_each(|f| attribute(f, reply));
    number(reply, "num_docs", searcher.num_docs() as f64);
    number(reply, "max_doc_id", max_doc as f64);
    number(reply, "num_terms", terms as f64);
    number(reply, "inverted_sz_mb", index.segment_bytes() as f64 / MEGABYTE);
    number(reply, "key_table_size_mb", index.key_set_bytes() as f64 / MEGABYTE);
    number(
        reply,
        "total_index_memory_sz_mb",
        (index.segment_bytes() + index.key_set_bytes()) as f64 / MEGABYTE,
    );
    number(reply, "writer_sz_mb_max", WRITER_BYTES_MAX as f64 / MEGABYTE);
    number(reply, "segments", searcher.segment_readers().len() as f64);
    number(reply, "commits", index.counts.commits.load(Relaxed) as f64);
    number(reply, "hash_indexing_failures", index.counts.failures.load(Relaxed) as f64);
    number(reply, "total_indexing_time", index.counts.indexing_us.load(Relaxed) as f64 / 1000.0);
    number(reply, "indexing", f64::from(u8::from(scan != Scan::Done)));
    number(reply, "percent_indexed", percent);
    reply.simple("versions_kept");
    let kept = entry.kept.lock();
    reply.array(kept.len());
    kept.iter().for_each(|kept| reply.bulk(&kept.name));
    reply.simple("number_of_uses");
    reply.int(index.counts.uses.load(Relaxed) as i64);
    reply.simple("dialect_stats");
    reply.map(1);
    reply.simple("dialect_2");
    reply.int(i64::from(index.counts.uses.load(Relaxed) > 0));
    let last = index.counts.last_failure.lock().clone();
    let (why, key) = last.map_or((None, None), |failure| (Some(failure.why.to_string()), failure.key));
    reply.simple("Index Errors");
    reply.map(3);
    number(reply, "indexing failures", index.counts.failures.load(Relaxed) as f64);
    text(reply, "last indexing error", why.as_deref().unwrap_or(UNKNOWN).as_bytes());
    text(reply, "last indexing error key", key.as_deref().unwrap_or(UNKNOWN.as_bytes()));
    if let Some(words) = stop_words {
        reply.simple("stopwords_list");
        reply.array(words.len());
        words.iter().for_each(|w| reply.bulk(w.as_bytes()));
    }
}

fn attribute(field: &FieldSpec, reply: &mut Reply<'_>) {
    let mut flags: Vec<&str> = Vec::new();
    let mut options: Vec<(&str, String)> = Vec::new();
    match &field.kind {
        FieldKind::Text { weight, no_stem } => {
            options.push(("WEIGHT", weight.to_string()));
            flags.extend(no_stem.then_some("NOSTEM"));
        }
        FieldKind::Tag { separator, case_sensitive } => {
            options.push(("SEPARATOR", lossy(&[*separator])));
            flags.extend(case_sensitive.then_some("CASESENSITIVE"));
        }
        FieldKind::Numeric => {}
    }
    flags.extend(field.sortable.then_some("SORTABLE"));
    flags.extend(field.unnormalized.then_some("UNF"));
    flags.extend(field.no_index.then_some("NOINDEX"));
    reply.array(6 + options.len() * 2 + flags.len());
    text(reply, "identifier", &field.identifier);
    text(reply, "attribute", &field.attribute);
    text(reply, "type", field.kind.name().as_bytes());
    for (name, value) in options {
        text(reply, name, value.as_bytes());
    }
    flags.iter().for_each(|f| reply.simple(f));
}

fn text(reply: &mut Reply<'_>, name: &str, value: &[u8]) {
    reply.simple(name);
    reply.bulk(value);
}

fn number(reply: &mut Reply<'_>, name: &str, value: f64) {
    reply.simple(name);
    reply.double(value);
}

/// The lines of INFO about search.
pub(crate) fn lines(search: &Search) -> Vec<(String, String)> {
    let entries = search.entries();
    let sum = |f: fn(&TextIndexEntry) -> u64| entries.iter().map(|e| f(e)).sum::<u64>();
    let g = &search.grep;
    let counts = [
        ("search_indexes", entries.len() as u64),
        ("search_documents", sum(|e| e.index.searcher().num_docs())),
        ("search_segment_bytes", sum(|e| e.index.segment_bytes() as u64)),
        ("search_segments", sum(|e| e.index.searcher().segment_readers().len() as u64)),
        ("search_writer_bytes_max", sum(|_| WRITER_BYTES_MAX as u64)),
        ("search_versions_kept", sum(|e| e.kept.lock().len() as u64)),
        ("search_versions_kept_bytes", sum(TextIndexEntry::kept_bytes)),
        ("search_documents_added", sum(|e| e.index.counts.added.load(Relaxed))),
        ("search_indexing_failures", sum(|e| e.index.counts.failures.load(Relaxed))),
        ("search_commits", sum(|e| e.index.counts.commits.load(Relaxed))),
        ("search_indexes_scanning", sum(|e| u64::from(e.scan.try_lock().is_none_or(|s| *s != Scan::Done)))),
        ("search_keys_waiting", search.keyspace.touched_len() as u64),
        ("regex_sets", search.regexes.len() as u64),
        ("regex_sets_bytes", search.regexes.bytes()),
        ("regex_streams", search.streams.len()),
        ("regex_greps", g.greps.load(Relaxed)),
        ("regex_greps_indexed", g.indexed.load(Relaxed)),
        ("regex_indexes", search.trigrams.len() as u64),
        ("regex_indexes_bytes", search.trigrams.bytes()),
        ("regex_searches", g.searches.load(Relaxed)),
        ("regex_bytes", g.bytes.load(Relaxed)),
        ("regex_cache_clears", g.clears.load(Relaxed)),
        ("regex_give_ups", g.give_ups.load(Relaxed)),
        ("regex_quits", g.quits.load(Relaxed)),
        ("regex_cache_resets", g.resets.load(Relaxed)),
    ];
    let sums = counts.into_iter().map(|(name, n)| (name.to_string(), n.to_string()));
    let each = entries.iter().enumerate();
    sums.chain(each.map(|(number, entry)| (format!("search_index_{number}"), state(search, entry)))).collect()
}

/// The state of one index, as a value of INFO.
fn state(search: &Search, entry: &TextIndexEntry) -> String {
    let index = &entry.index;
    // A scan that is running holds this lock. INFO does not wait for it.
    let percent = match entry.scan.try_lock().as_deref() {
        Some(Scan::Done) => "1".to_string(),
        Some(Scan::At(_, visited)) => {
            format!("{:.3}", (*visited as f64 / search.keyspace.len(0).max(1) as f64).min(1.0))
        }
        None => "scanning".to_string(),
    };
    format!(
        "name={},documents={},percent_indexed={percent},segments={},bytes={},failures={},versions_kept={}",
        escaped(&index.name),
        index.searcher().num_docs(),
        index.searcher().segment_readers().len(),
        index.segment_bytes() + index.key_set_bytes(),
        index.counts.failures.load(Relaxed),
        entry.kept.lock().len(),
    )
}

/// A name as part of a line: bytes that would end the name are in hexadecimal, after a `%`.
fn escaped(name: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"%,=\"\\".contains(&byte);
    let shown = |byte: &u8| match is_plain(*byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02x}"),
    };
    name.iter().map(shown).collect()
}

#[test]
fn a_name_cannot_end_its_place_in_a_line() {
    assert_eq!(escaped(b"mail"), "mail");
    assert_eq!(escaped(b"a,b=c\r\nd %\xff"), "a%2cb%3dc%0d%0ad%20%25%ff");
}
