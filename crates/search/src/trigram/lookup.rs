//! Finds the documents of a [`Segment`] that may satisfy a [`Query`].
//!
//! When several lists must all match, the shortest list is read first. Reading stops as soon as the next list costs
//! more than checking the remaining candidates.

use super::grams::{GRAM_BYTES, Gram, gram};
use super::postings::{Lists, Segment};
use super::query::Query;

/// When a list has more postings than this per remaining candidate, reading the list costs more than checking the
/// candidates.
const LIST_PER_CANDIDATE_MAX: usize = 300;
/// Number of bytes of query text whose lists are found in the time in which one candidate is checked.
const TEXT_BYTES_PER_CANDIDATE: usize = 8;

/// The documents that may match, in ascending order; `None`: all documents.
pub(crate) fn candidates(segment: &Segment, query: &Query) -> Option<Vec<u32>> {
    match query {
        Query::All => None,
        Query::Text(_) => Some(all_of(segment, std::slice::from_ref(query))),
        Query::Or(all) => {
            let mut out = Vec::new();
            for q in all {
                out.extend(candidates(segment, q)?);
            }
            out.sort_unstable();
            out.dedup();
            Some(out)
        }
        Query::And(all) => {
            let has_text = all.iter().any(|q| matches!(q, Query::Text(_)));
            let mut left = has_text.then(|| all_of(segment, all));
            let mut others: Vec<&Query> = all.iter().filter(|q| !matches!(q, Query::Text(_))).collect();
            others.sort_by_key(|q| q.weight());
            for q in others {
                if left.as_ref().is_some_and(|l| l.len() <= q.weight() / TEXT_BYTES_PER_CANDIDATE) {
                    break;
                }
                if let Some(found) = candidates(segment, q) {
                    left = Some(left.map_or_else(|| found.clone(), |left| intersect(left, &found)));
                }
            }
            left
        }
    }
}

/// The documents that may contain every text among `queries`. At least one query is a text.
fn all_of(segment: &Segment, queries: &[Query]) -> Vec<u32> {
    let mut demands = Vec::new();
    for q in queries {
        if let Query::Text(text) = q
            && lists_of(segment, text, &mut demands).is_none()
        {
            return Vec::new();
        }
    }
    // Read the shortest list first, because it leaves the fewest candidates.
    demands.sort_unstable_by_key(Lists::cost);
    let (mut left, mut list) = (None::<Vec<u32>>, Vec::new());
    for lists in demands {
        if left.as_ref().is_some_and(|l| l.len() * LIST_PER_CANDIDATE_MAX < lists.cost()) {
            break;
        }
        segment.decode_all(&lists, &mut list);
        left = Some(match left {
            Some(left) => intersect(left, &list),
            None => std::mem::take(&mut list),
        });
    }
    left.unwrap_or_default()
}

/// Adds the lists for `text` to `out`. A document that contains `text` is in every one of the added lists. `None`
/// when no document contains it.
fn lists_of(segment: &Segment, text: &[u8], out: &mut Vec<Lists>) -> Option<()> {
    for at in 0..text.len() - 2 {
        let known = &text[at..text.len().min(at + GRAM_BYTES)];
        let lists = segment.find(known)?;
        // After the text, any byte may follow. Read the lists of all following bytes only if the text has no other
        // lists.
        if known.len() == GRAM_BYTES || at == 0 || lists.are_few() {
            out.push(lists);
        }
    }
    Some(())
}

/// The intersection of two ascending lists.
fn intersect(mut a: Vec<u32>, b: &[u32]) -> Vec<u32> {
    let mut at = 0;
    a.retain(|id| {
        at += b[at..].iter().take_while(|other| *other < id).count();
        b.get(at) == Some(id)
    });
    a
}

/// True when a document with these grams, in any order, satisfies the query.
pub(crate) fn satisfies(grams: &[Gram], query: &Query) -> bool {
    match query {
        Query::All => true,
        Query::Text(text) if text.len() < GRAM_BYTES => {
            let missing = 8 * (GRAM_BYTES - text.len());
            grams.iter().any(|g| g >> missing == gram(text) >> missing)
        }
        Query::Text(text) => text.windows(GRAM_BYTES).all(|w| grams.contains(&gram(w))),
        Query::And(all) => all.iter().all(|q| satisfies(grams, q)),
        Query::Or(all) => all.iter().any(|q| satisfies(grams, q)),
    }
}
