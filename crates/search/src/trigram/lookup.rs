//! Which documents of a [`Segment`] may fulfil a [`Query`].
//!
//! The lists of all that must hold are read from the shortest on, as long as reading one costs less than looking at the
//! documents that are left.

use super::grams::{GRAM_BYTES, Gram, gram};
use super::postings::{Lists, Segment};
use super::query::Query;

/// A list so many times as long as the candidates left costs more to read than they do to look at.
const LIST_PER_CANDIDATE_MAX: usize = 300;
/// For so many bytes of texts, finding their lists costs what looking at a candidate does.
const TEXT_BYTES_PER_CANDIDATE: usize = 8;

/// The documents that may match, ascending; `None`: all.
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
                    left = Some(left.map_or_else(|| found.clone(), |left| both(left, &found)));
                }
            }
            left
        }
    }
}

/// The documents that may have all texts among `queries`, of which there is one.
fn all_of(segment: &Segment, queries: &[Query]) -> Vec<u32> {
    let mut demands = Vec::new();
    for q in queries {
        if let Query::Text(text) = q
            && lists_of(segment, text, &mut demands).is_none()
        {
            return Vec::new();
        }
    }
    // The shortest first: what is left costs little to look at.
    demands.sort_unstable_by_key(Lists::cost);
    let (mut left, mut list) = (None::<Vec<u32>>, Vec::new());
    for lists in demands {
        if left.as_ref().is_some_and(|l| l.len() * LIST_PER_CANDIDATE_MAX < lists.cost()) {
            break;
        }
        segment.decode_all(&lists, &mut list);
        left = Some(match left {
            Some(left) => both(left, &list),
            None => std::mem::take(&mut list),
        });
    }
    left.unwrap_or_default()
}

/// Adds the lists in all of which a document is that has `text`; `None` when none is.
fn lists_of(segment: &Segment, text: &[u8], out: &mut Vec<Lists>) -> Option<()> {
    for at in 0..text.len() - 2 {
        let known = &text[at..text.len().min(at + GRAM_BYTES)];
        let lists = segment.find(known)?;
        // Behind the text any byte may follow; reading the lists of all is worth it only where there is nothing else.
        if known.len() == GRAM_BYTES || at == 0 || lists.are_few() {
            out.push(lists);
        }
    }
    Some(())
}

/// What two ascending lists have in common.
fn both(mut a: Vec<u32>, b: &[u32]) -> Vec<u32> {
    let mut at = 0;
    a.retain(|id| {
        at += b[at..].iter().take_while(|other| *other < id).count();
        b.get(at) == Some(id)
    });
    a
}

/// True when a document with these grams, in any order, fulfils a query.
pub(crate) fn has(grams: &[Gram], query: &Query) -> bool {
    match query {
        Query::All => true,
        Query::Text(text) if text.len() < GRAM_BYTES => {
            let missing = 8 * (GRAM_BYTES - text.len());
            grams.iter().any(|g| g >> missing == gram(text) >> missing)
        }
        Query::Text(text) => text.windows(GRAM_BYTES).all(|w| grams.contains(&gram(w))),
        Query::And(all) => all.iter().all(|q| has(grams, q)),
        Query::Or(all) => all.iter().any(|q| has(grams, q)),
    }
}
