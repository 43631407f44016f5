//! [`check`]: checks a page of ListObjectsV2 before the library reads the page.
//!
//! The library takes any XML for a page: a login page is an empty prefix for it, and a truncated page without
//! NextContinuationToken is the last page. An import would then remove the documents that are not in the page.

use crate::extract::push_characters;
use quick_xml::Reader;
use quick_xml::events::Event;

/// The names of the root element of a page begin with this text. S3 sends `ListBucketResult`.
const ROOT: &str = "ListBucket";

/// Why a page is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageError {
    #[error("the server does not answer with a listing: expected the element ListBucketResult, got {0}")]
    NoListing(String),
    #[error("the listing's XML is damaged at byte {offset}: {error}")]
    Xml { offset: u64, error: String },
    #[error(
        "the listing is truncated, and has no NextContinuationToken: the server does not support ListObjectsV2"
    )]
    NoNext,
    #[error("the listing has {0:?} for IsTruncated: expected true or false")]
    Truncated(String),
}

/// True for the query of a request for a page.
pub(super) fn is_listing(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "list-type=2"))
}

/// The value of the element IsTruncated. `None` for a text that is no boolean of XML.
pub(super) fn truncated(value: &str) -> Option<bool> {
    let is = |words: [&str; 2]| words.iter().any(|word| value.trim().eq_ignore_ascii_case(word));
    if is(["true", "1"]) {
        return Some(true);
    }
    is(["false", "0"]).then_some(false)
}

/// Checks that `body` is a page, and that the page names its successor if there is one.
///
/// # Errors
/// [`PageError`].
pub(super) fn check(body: &[u8]) -> Result<(), PageError> {
    let text = String::from_utf8_lossy(body);
    let mut xml = Reader::from_str(&text);
    let (mut depth, mut value) = (0usize, String::new());
    let (mut is_truncated, mut has_next) = (false, false);
    loop {
        let event = xml
            .read_event()
            .map_err(|error| PageError::Xml { offset: xml.error_position(), error: error.to_string() })?;
        match event {
            Event::Eof if depth == 0 => return Err(PageError::NoListing("no element".to_owned())),
            Event::Eof => {
                let error = "the page ends too early".to_owned();
                return Err(PageError::Xml { offset: xml.buffer_position(), error });
            }
            Event::Start(e) | Event::Empty(e) if depth == 0 && !e.local_name().as_ref().starts_with(ROOT) => {
                return Err(PageError::NoListing(format!("<{}>", e.local_name().as_ref())));
            }
            Event::Empty(_) if depth == 0 => return Ok(()),
            Event::Start(_) => {
                depth += 1;
                value.clear();
            }
            Event::End(e) => {
                depth -= 1;
                match (depth, e.local_name().as_ref()) {
                    (1, "IsTruncated") => {
                        is_truncated =
                            truncated(&value).ok_or_else(|| PageError::Truncated(value.clone()))?;
                    }
                    (1, "NextContinuationToken") => has_next = !value.trim().is_empty(),
                    (0, _) if is_truncated && !has_next => return Err(PageError::NoNext),
                    (0, _) => return Ok(()),
                    _ => {}
                }
            }
            event => push_characters(&event, &mut |more| value.push_str(more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_that_names_its_successor_is_accepted() {
        let page = |inner: &str| {
            format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\">{inner}</ListBucketResult>")
        };
        let accepted = [
            page(""),
            page("<IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents>"),
            page("<NextContinuationToken>t</NextContinuationToken><IsTruncated>true</IsTruncated>"),
            page("<Contents><IsTruncated>true</IsTruncated></Contents>"),
            page("<IsTruncated>TRUE</IsTruncated><NextContinuationToken>t</NextContinuationToken>"),
            "<ListBucketResult/>".to_owned(),
        ];
        for text in accepted {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
        let truncated = "<IsTruncated>true</IsTruncated>";
        for text in
            [truncated.to_owned(), format!("{truncated}<NextContinuationToken></NextContinuationToken>")]
        {
            assert_eq!(check(page(&text).as_bytes()), Err(PageError::NoNext), "{text}");
        }
        for odd in ["yes", "t", ""] {
            let text = page(&format!("<IsTruncated>{odd}</IsTruncated>"));
            assert_eq!(check(text.as_bytes()), Err(PageError::Truncated(odd.to_owned())));
        }
        for (text, got) in [
            ("<html>login please</html>", "<html>"),
            ("<Error><Code>InternalError</Code></Error>", "<Error>"),
            ("", "no element"),
            ("login please", "no element"),
        ] {
            assert_eq!(check(text.as_bytes()), Err(PageError::NoListing(got.to_owned())), "{text}");
        }
        assert!(matches!(check(b"<ListBucketResult><Key>a</Key>"), Err(PageError::Xml { .. })));
        assert!(matches!(
            check(b"<ListBucketResult><Key>a</Kez></ListBucketResult>"),
            Err(PageError::Xml { .. })
        ));
    }

    #[test]
    fn a_listing_is_known_by_its_query() {
        assert!(is_listing(Some("delimiter=%2F&list-type=2&prefix=a")));
        assert!(!is_listing(Some("versions=&list-type=20")) && !is_listing(None));
    }
}
