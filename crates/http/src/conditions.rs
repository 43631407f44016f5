//! Entity tags, conditional requests and ranges (RFC 9110, sections 8.8.3, 13 and 14).
//!
//! The tag of a string is its [`Digest`], keyed by a secret of the process. It is a strong tag: a client cannot
//! construct two values with equal tags. Hashing costs about 0.1 ns per byte and is done in slices, between which
//! other tasks run. Values above [`Settings::etag_bytes_max`](crate::Settings) have no tag, so a range of a huge
//! value costs only as much as the range. Hashes have no tag. A request may ask for one range. A request for several
//! ranges gets the whole value, as section 14.2 allows.

use crate::problem::Problem;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE};
use std::ops::Range;
use strand_chain::Chain;
use strand_digest::Digest;
use tokio::task::yield_now;

/// Number of bytes that are hashed before other tasks run: about 30 us.
const SLICE_BYTES: usize = 256 * 1024;

/// A strong entity tag, quotes included.
pub type Tag = String;

/// The entity tag of a value with this digest.
pub fn tag_of(digest: &str) -> Tag {
    format!("\"{digest}\"")
}

/// Computes the entity tag of `value`.
pub async fn tag(value: &Chain, seed: u64) -> Tag {
    if value.front().len() == value.len() && value.len() <= SLICE_BYTES {
        return tag_of(&Digest::of(value.front(), seed));
    }
    let (mut digest, mut done) = (Digest::new(seed), 0);
    for slice in value.slices() {
        for part in slice.chunks(SLICE_BYTES) {
            digest.update(part);
            done += part.len();
            if done >= SLICE_BYTES {
                done = 0;
                yield_now().await;
            }
        }
    }
    tag_of(&digest.text())
}

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request may continue.
    Proceed,
    /// The response is 304 for GET and HEAD, and 412 for other methods.
    NotModified,
    /// A condition failed, so the response has status 412.
    Failed,
}

/// The content of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `*`: any existing value satisfies the condition.
    Any,
    /// A value with one of these tags. A weak tag includes its prefix `W/`.
    Tags(Vec<String>),
}

impl Condition {
    /// The digests for SETIF and DELIF, or `*`. In a strong comparison (`weak` is false) a weak tag matches no
    /// value: it keeps its `W/`, which no digest starts with.
    pub fn digests(&self, weak: bool) -> Vec<&str> {
        let Condition::Tags(tags) = self else { return vec!["*"] };
        let digest = |tag| match Some(tag).and_then(|t: &str| t.strip_prefix('"')?.strip_suffix('"')) {
            // `"*"` in quotes is a tag that no value has. It keeps its quotes, because `*` alone would match any value.
            None | Some("*") => tag,
            Some(digest) => digest,
        };
        let strong = |tag| if weak { str::strip_prefix(tag, "W/").unwrap_or(tag) } else { tag };
        tags.iter().map(|tag| digest(strong(tag.as_str()))).collect()
    }
}

/// The conditions in the headers of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The header `If-Match`
    pub matches: Option<Condition>,
    /// The header `If-None-Match`
    pub none_matches: Option<Condition>,
}

impl Conditions {
    /// Parses the headers.
    ///
    /// # Errors
    /// 400 when a header is not a list of tags.
    pub fn of(headers: &HeaderMap) -> Result<Conditions, Problem> {
        Ok(Conditions {
            matches: condition(headers, IF_MATCH)?,
            none_matches: condition(headers, IF_NONE_MATCH)?,
        })
    }
    /// Evaluates the conditions in the order of section 13.2.2. `value` is `None` when the key does not exist. Its
    /// inner value is `None` when the value has no tag, so that only `*` matches.
    pub fn evaluate(&self, value: Option<Option<&str>>) -> Verdict {
        let fits = |condition: &Condition, weak: bool| match (condition, value) {
            (_, None) => false,
            (Condition::Any, Some(_)) => true,
            (Condition::Tags(tags), Some(tag)) => tag.is_some_and(|tag| {
                tags.iter().any(|t| t == tag || (weak && t.strip_prefix("W/") == Some(tag)))
            }),
        };
        if self.matches.as_ref().is_some_and(|c| !fits(c, false)) {
            return Verdict::Failed;
        }
        if self.none_matches.as_ref().is_some_and(|c| fits(c, true)) {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }
}

fn condition(headers: &HeaderMap, name: HeaderName) -> Result<Option<Condition>, Problem> {
    if !headers.contains_key(&name) {
        return Ok(None);
    }
    let bad = || {
        Problem::bad_request(format!(
            "the header {name} is not a list of entity tags: expected * or quoted tags like \"a\", \"b\""
        ))
    };
    let mut tags = Vec::new();
    for value in headers.get_all(&name) {
        // Empty elements of a list are ignored (RFC 9110, section 5.6.1).
        let between = [' ', '\t', ','];
        let mut rest = value.to_str().map_err(|_| bad())?.trim_matches(between);
        if rest == "*" {
            return Ok(Some(Condition::Any));
        }
        while !rest.is_empty() {
            let weak = rest.starts_with("W/");
            let opened = rest[if weak { 2 } else { 0 }..].strip_prefix('"').ok_or_else(bad)?;
            let end = opened.find('"').ok_or_else(bad)?;
            let tag = &rest[..rest.len() - opened.len() + end + 1];
            tags.push(tag.to_string());
            rest = opened[end + 1..].trim_start_matches(between);
        }
    }
    match tags.is_empty() {
        true => Err(bad()),
        false => Ok(Some(Condition::Tags(tags))),
    }
}

/// The range of a value of `len` bytes that the request asks for; `None` for the whole value.
///
/// # Errors
/// 416 when the range lies outside the value.
pub fn range(headers: &HeaderMap, len: usize, tag: Option<&str>) -> Result<Option<Range<usize>>, Problem> {
    let one = |name: HeaderName| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    let Some(asked) = one(RANGE) else { return Ok(None) };
    if headers.contains_key(IF_RANGE) && one(IF_RANGE) != tag {
        return Ok(None);
    }
    // Ignore an invalid range, and a list of ranges.
    let Some((first, last)) = asked.strip_prefix("bytes=").and_then(|r| r.trim().split_once('-')) else {
        return Ok(None);
    };
    let number = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        // A number that is too large to parse lies beyond the value's end.
        true => Some(text.parse().unwrap_or(usize::MAX)),
        false => None,
    };
    let part = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(len),
        (Some(first), None) if last.is_empty() => first..len,
        (None, Some(0)) if first.is_empty() => len..len,
        (None, Some(suffix)) if first.is_empty() => len - suffix.min(len)..len,
        _ => return Ok(None),
    };
    match part.start < len {
        true => Ok(Some(part)),
        false => Err(Problem::range_not_satisfiable(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.clone(), v.parse().expect("a value"))).collect()
    }

    #[test]
    fn one_range_returns_a_part_and_several_ranges_return_the_whole_value() {
        let part = |range: &str| {
            let found = super::range(&headers(&[(RANGE, range)]), 10, None);
            found.map(|r| r.map(|r| (r.start, r.end))).map_err(|p| p.status.as_u16())
        };
        assert_eq!(part("bytes=0-3"), Ok(Some((0, 4))));
        assert_eq!(part("bytes=3-"), Ok(Some((3, 10))));
        assert_eq!(part("bytes=3-99999999999999999999999"), Ok(Some((3, 10))));
        assert_eq!(part("bytes=-4"), Ok(Some((6, 10))));
        assert_eq!(part("bytes=-40"), Ok(Some((0, 10))));
        for (bad, want) in [("bytes=10-", 416), ("bytes=-0", 416), ("bytes=99999999999999999999999-", 416)] {
            assert_eq!(part(bad), Err(want), "{bad}");
        }
        for ignored in
            ["bytes=", "bytes=-", "bytes=3-1", "lines=1-2", "bytes=0-1,3-4", "bytes=x-2", "bytes=+1-2"]
        {
            assert_eq!(part(ignored), Ok(None), "{ignored}");
        }
        let if_range = |tag: &str| headers(&[(RANGE, "bytes=0-3"), (IF_RANGE, tag)]);
        assert!(super::range(&if_range("\"a\""), 10, Some("\"a\"")).unwrap().is_some());
        assert!(super::range(&if_range("\"b\""), 10, Some("\"a\"")).unwrap().is_none());
        assert!(super::range(&headers(&[(RANGE, "bytes=-1")]), 0, None).is_err());
    }

    #[test]
    fn conditions_are_evaluated_against_the_value_and_its_tag() {
        let of = |name: HeaderName, value: &str| Conditions::of(&headers(&[(name, value)])).expect("tags");
        let a = Some(Some("\"a\""));
        for (conditions, value, verdict) in [
            (of(IF_MATCH, "*"), None, Verdict::Failed),
            (of(IF_MATCH, "*"), Some(None), Verdict::Proceed),
            (of(IF_MATCH, "\"x\", \"a\""), a, Verdict::Proceed),
            (of(IF_MATCH, "W/\"a\""), a, Verdict::Failed),
            (of(IF_MATCH, "\"a\""), Some(None), Verdict::Failed),
            (of(IF_NONE_MATCH, "*"), None, Verdict::Proceed),
            (of(IF_NONE_MATCH, "*"), a, Verdict::NotModified),
            (of(IF_NONE_MATCH, "W/\"a\""), a, Verdict::NotModified),
            (of(IF_NONE_MATCH, "\"b\",\"c\""), a, Verdict::Proceed),
            (Conditions::default(), None, Verdict::Proceed),
        ] {
            assert_eq!(conditions.evaluate(value), verdict, "{conditions:?} on {value:?}");
        }
        let tags = of(IF_MATCH, "\"a\", W/\"b\", \"*\"").matches.expect("there");
        assert_eq!(tags.digests(true), ["a", "b", "\"*\""]);
        assert_eq!(tags.digests(false), ["a", "W/\"b\"", "\"*\""]);
        assert_eq!(Condition::Any.digests(false), ["*"]);
        for bad in ["", "a", "\"a", "\"a\" b"] {
            assert!(Conditions::of(&headers(&[(IF_MATCH, bad)])).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tag_does_not_depend_on_the_values_blocks() {
        let now = |value: &Chain| crate::turns::complete(tag(value, 7));
        let bytes: Vec<u8> = (0..SLICE_BYTES * 2 + 17).map(|i| (i * 7) as u8).collect();
        let (mut one, mut many) = (Chain::new(), Chain::new());
        one.push_blob(bytes.as_slice().into());
        bytes.chunks(3000).for_each(|c| many.push_slice(c));
        let mut digest = Digest::new(7);
        bytes.chunks(100).for_each(|c| digest.update(c));
        assert_eq!(now(&one), now(&many));
        assert_eq!(now(&one), tag_of(&digest.text()));
        let mut short = Chain::new();
        short.push_slice(b"v");
        assert_eq!(now(&short), tag_of(&Digest::of(b"v", 7)));
        assert_eq!(now(&short).len(), 34);
    }
}
