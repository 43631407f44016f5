//! FT.CHANGES: finds the documents that were added to a query's answer, updated in it or removed from it between two
//! versions.
//!
//! A segment that both versions have is skipped unless documents in it were deleted between the versions, so the cost
//! grows with the segments that changed, not with the index.

use crate::document::{EXPIRE, KEY, NUMBER};
use crate::error::{SearchError, lossy};
use crate::exec::{Scan, key_of, plan};
use crate::meter::Meter;
use crate::options::SearchOptions;
use crate::service::{Search, check_arity};
use crate::versions::{self, Version};
use std::collections::BTreeMap;
use std::time::Instant;
use strand_commands::call::LaneCall;
use tantivy::query::{EnableScoring, Query};

/// Number of bytes that are counted for one document in addition to its key.
const DOCUMENT_BYTES: usize = 64;

/// `FT.CHANGES index query FROM version [TO version] ...`: without TO, the second version is the index as it is now.
/// Reply: a map with the numbers of added, updated and removed documents, and a list of these documents, each with its
/// change, in the order of their keys.
pub(crate) fn difference(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let begun = Instant::now();
    check_arity(call, 5)?;
    search.drain(call.now_ms);
    let name = call.args.at(1);
    let entry = search.healthy_entry(name)?.ok_or_else(|| SearchError::NoSuchIndex(lossy(name)))?;
    let options = SearchOptions::parse_difference(call.args, &entry.index.schema)?;
    let meter = Meter::new(call.cancel, &search.requests_bytes);
    options.deadline(begun).into_iter().for_each(|deadline| meter.end_at(deadline));
    let query = plan(&entry.index, call.args.at(2), &options, &meter)?;
    let from = options.from.ok_or_else(|| SearchError::refused("FT.CHANGES needs FROM and a version"))?;
    let old = versions::find(search, &entry, call, from)?;
    let new = match options.to {
        Some(to) => versions::find(search, &entry, call, to)?,
        None => {
            search.catch_up(&entry, call.now_ms, &|| meter.check_now())?;
            Version { searcher: entry.index.searcher(), at_ms: call.now_ms }
        }
    };
    meter.check_now()?;
    let scan = Scan::of_keys(search, &entry.index, call, &meter);
    let before = matches_only_in(&scan, &*query, &old, &new)?;
    let after = matches_only_in(&scan, &*query, &new, &old)?;
    drop(query);
    let changes = changes(&before, &after);
    let count = |change| changes.iter().filter(|(_, what)| *what == change).count() as i64;
    let shown = || changes.iter().skip(options.offset).take(options.count);
    let reply = &mut *call.reply;
    reply.map(4);
    for (name, change) in
        [("added", Change::Added), ("updated", Change::Updated), ("removed", Change::Removed)]
    {
        reply.simple(name);
        reply.int(count(change));
    }
    reply.simple("documents");
    reply.array(shown().count());
    for (key, change) in shown() {
        reply.array(2);
        reply.simple(match change {
            Change::Added => "added",
            Change::Updated => "updated",
            Change::Removed => "removed",
        });
        reply.bulk(key);
        if reply.exceeds_limit() {
            break;
        }
    }
    Ok(())
}

/// How a document that the query matches in at least one of the two versions differs between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Added,
    Updated,
    Removed,
}

/// The keys of matching documents, each with the document's number ([`NUMBER`]).
type Matches = BTreeMap<Vec<u8>, u64>;

/// The differences between the two sets of matches, in the order of the keys.
fn changes<'m>(before: &'m Matches, after: &'m Matches) -> Vec<(&'m [u8], Change)> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (&key[..], Change::Removed));
    let there = after.iter().filter_map(|(key, number)| match before.get(key) {
        None => Some((&key[..], Change::Added)),
        Some(then) if then != number => Some((&key[..], Change::Updated)),
        Some(_) => None,
    });
    let mut changes: Vec<_> = gone.chain(there).collect();
    changes.sort_by_key(|(key, _)| *key);
    changes
}

/// The matches of `query` in `version`, without documents that are certain to be in `other` too.
fn matches_only_in(
    scan: &Scan<'_>,
    query: &dyn Query,
    version: &Version,
    other: &Version,
) -> Result<Matches, SearchError> {
    let mut matches = Matches::new();
    let (scan, searcher) = (&scan.at(version.at_ms), &version.searcher);
    let weight = query.weight(EnableScoring::disabled_from_searcher(searcher));
    scan.meter.check()?;
    let weight = weight?;
    for reader in searcher.segment_readers() {
        let expire = reader.fast_fields().column_opt::<i64>(EXPIRE)?;
        // A document may be in the segments of both versions, and have expired in one of them.
        let may_have_expired = expire.as_ref().is_some_and(|times| times.min_value() <= other.at_ms)
            && version.at_ms < other.at_ms;
        let has_expired = |doc| {
            let at_ms = expire.as_ref().and_then(|times| times.first(doc));
            at_ms.is_some_and(|at_ms| at_ms <= other.at_ms)
        };
        let other_segment = other
            .searcher
            .segment_readers()
            .iter()
            .find(|other_segment| other_segment.segment_id() == reader.segment_id());
        // A deleted document stays deleted in its segment. If `other` has at most as many deleted documents in
        // this segment, it has every document that is live here.
        if !may_have_expired
            && other_segment.is_some_and(|other| other.num_deleted_docs() <= reader.num_deleted_docs())
        {
            continue;
        }
        let Some(keys) = reader.fast_fields().bytes(KEY)? else { continue };
        let numbers = reader.fast_fields().u64(NUMBER)?;
        scan.walk(reader, &*weight, &keys, &mut |doc, _| {
            if other_segment.is_some_and(|other| !other.is_deleted(doc)) && !has_expired(doc) {
                return Ok(());
            }
            if let (Some(key), Some(number)) = (key_of(&keys, doc)?, numbers.first(doc)) {
                scan.meter.hold(key.len() + DOCUMENT_BYTES)?;
                matches.insert(key, number);
            }
            Ok(())
        })?;
    }
    Ok(matches)
}
