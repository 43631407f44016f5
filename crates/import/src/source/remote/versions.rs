//! Lists the content of a bucket at an earlier time, from the versions of its objects.
//!
//! The library cannot list versions. So [`Versions`] sends `ListObjectVersions` itself, signed by the library's signer.
//! For each key the newest version at or before the time counts. If it is a delete marker, the key did not exist then.
//! [`Newest`] finds these versions.

use super::page::truncated;
use super::s3::{PAGE_CYCLE, other, server_error};
use super::throttle::Throttle;
use super::{BACKOFF_FIRST, BACKOFF_MAX, RETRIES_MAX};
use crate::calendar;
use crate::extract::push_characters;
use object_store::aws::{AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quick_xml::Reader;
use quick_xml::events::Event;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

/// The note with the id of the version from which a document was read.
pub(super) const VERSION_NOTE: &[u8] = b"~version";
/// The characters that are not escaped in a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Lists a bucket's content at one time.
pub(super) struct Versions {
    pub(super) client: HttpClient,
    /// The URL of the server and the bucket.
    pub(super) url: String,
    pub(super) region: String,
    /// The credentials. `None`: send requests without credentials.
    pub(super) credentials: Option<AwsCredentialProvider>,
    pub(super) as_of: Moment,
}

/// A time. Servers list the times of versions in milliseconds or finer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Whole seconds since 1970, rounded down.
    pub seconds: i64,
    /// The rest of the time.
    pub nanoseconds: u32,
}

/// One version of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) size: u64,
    /// The time at which the version was written.
    pub(super) moment: Moment,
    /// True for a delete marker.
    is_marker: bool,
    /// True for the version that the key has now. It is the newer one of two versions with equal times.
    is_latest: bool,
}

/// One page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    versions: Vec<Version>,
    prefixes: Vec<String>,
    /// The key and the version id after which the next page begins. `None`: this is the last page.
    next: Option<(String, String)>,
}

/// The error for a text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected a time like 2026-11-22T20:00:00Z, or seconds since 1970")]
pub struct TimeError(String);

/// Reads a time in the form of RFC 3339, or in seconds since 1970.
///
/// # Errors
/// When the text has another form.
pub fn parse_moment(text: &str) -> Result<Moment, TimeError> {
    if let Ok(seconds) = text.parse() {
        return Ok(Moment { seconds, nanoseconds: 0 });
    }
    moment(text).ok_or_else(|| TimeError(text.into()))
}

/// Reads a time in the form of RFC 3339.
fn moment(text: &str) -> Option<Moment> {
    calendar::rfc_3339(text).map(|(seconds, nanoseconds)| Moment { seconds, nanoseconds })
}

impl Versions {
    pub(super) fn client(
        throttle: &Throttle,
        options: &object_store::ClientOptions,
    ) -> io::Result<HttpClient> {
        throttle.connect(options).map_err(other)
    }

    /// Calls `document` with the version that was the newest at the time, for each key one level below `prefix`. Calls
    /// `folder` with each prefix one level below `prefix`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        pages_max: usize,
        document: &mut dyn FnMut(&Version) -> io::Result<()>,
        folder: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut next, mut newest) = (None, Newest::default());
        // Finds a cycle of pages, like the listing without versions.
        let mut earlier_page = None;
        for number in 1..=pages_max {
            let page = self.page(prefix, next.as_ref()).await?;
            for below in &page.prefixes {
                folder(below)?;
            }
            newest.add(page.versions, self.as_of);
            next = page.next;
            if next.is_none() {
                return newest.into_documents().try_for_each(|version| document(&version));
            }
            newest.complete_documents().try_for_each(|version| document(&version))?;
            if next == earlier_page {
                return Err(other(PAGE_CYCLE));
            }
            if number.is_power_of_two() {
                earlier_page.clone_from(&next);
            }
        }
        Err(other(format!("more than {pages_max} pages of versions")))
    }

    async fn page(&self, prefix: &str, after: Option<&(String, String)>) -> io::Result<Page> {
        let encoded = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
        let mut url = format!("{}?delimiter=%2F", self.url);
        if let Some((key, id)) = after {
            url = format!("{url}&key-marker={}", encoded(key));
            if !id.is_empty() {
                url = format!("{url}&version-id-marker={}", encoded(id));
            }
        }
        url = format!("{url}&prefix={}&versions=", encoded(prefix));
        let mut pause = BACKOFF_FIRST;
        for attempt in 0.. {
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = url.parse().map_err(other)?;
            if let Some(credentials) = &self.credentials {
                let credential = credentials.get_credential().await.map_err(|error| server_error(&error))?;
                let signer = AwsAuthorizer::new(&credential, "s3", &self.region);
                signer.try_authorize(&mut request, None).map_err(other)?;
            }
            let failed = match self.client.execute(request).await {
                Ok(response) => {
                    let status = response.status();
                    let body = response.into_body().bytes().await.map_err(other)?;
                    let text = String::from_utf8_lossy(&body);
                    if status.is_success() {
                        return parse(&text).map_err(other);
                    }
                    let failed = super::s3::xml_error(&text)
                        .unwrap_or_else(|| other(format!("the server answers {status}")));
                    if !(status.is_server_error() || status == reqwest::StatusCode::TOO_MANY_REQUESTS) {
                        return Err(failed);
                    }
                    failed
                }
                Err(error) => other(error),
            };
            if attempt >= RETRIES_MAX {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        unreachable!("the last attempt returns")
    }
}

/// The newest version of each key, while a listing is read page by page.
///
/// The pages divide the list of keys, but the versions of one key need not be in a row: some servers list all delete
/// markers of a page before all other versions, and some list them behind these. So a key is complete at the end of its
/// last page. Only the last key of a page can continue on the next page. This key is the last one among the delete
/// markers or the last one among the other versions. The page's `NextKeyMarker` does not decide, because a server may
/// write more than a key there. So at most two keys stay from page to page.
#[derive(Default)]
struct Newest {
    by_key: BTreeMap<String, Version>,
    /// The key of the last delete marker, and the key of the last other version.
    last_keys: [String; 2],
}

impl Newest {
    /// Adds the versions of a page that are not newer than `as_of`.
    fn add(&mut self, page: Vec<Version>, as_of: Moment) {
        for version in page {
            self.last_keys[usize::from(version.is_marker)].clone_from(&version.key);
            if version.moment > as_of {
                continue;
            }
            match self.by_key.entry(version.key.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(version)),
                Entry::Occupied(mut entry) => {
                    let held = entry.get();
                    if (version.moment, version.is_latest) > (held.moment, held.is_latest) {
                        entry.insert(version);
                    }
                }
            }
        }
    }

    /// Removes the keys whose versions are all known, and returns their newest versions without the delete markers.
    fn complete_documents(&mut self) -> impl Iterator<Item = Version> + use<> {
        let (open, complete) =
            std::mem::take(&mut self.by_key).into_iter().partition(|(key, _)| self.last_keys.contains(key));
        self.by_key = open;
        Newest { by_key: complete, ..Newest::default() }.into_documents()
    }

    /// The newest versions of all keys without the delete markers.
    fn into_documents(self) -> impl Iterator<Item = Version> + use<> {
        self.by_key.into_values().filter(|version| !version.is_marker)
    }
}

/// Why a page of a listing cannot be read.
#[derive(Debug, thiserror::Error)]
enum PageError {
    #[error("the listing's XML is damaged at byte {offset}: {error}")]
    Xml { offset: u64, error: quick_xml::Error },
    #[error("the listing has the size {value:?} for {key:?}: expected a number of bytes")]
    Size { key: String, value: String },
    #[error("the listing has the time {value:?} for {key:?}: expected a time like 2026-11-22T20:00:00Z")]
    Time { key: String, value: String },
    #[error("the server does not list versions")]
    NoVersions,
    #[error("the listing of versions is truncated, and has no NextKeyMarker")]
    NoNext,
    #[error("the listing of versions ends too early")]
    TooShort,
    #[error("the listing has {0:?} for IsTruncated: expected true or false")]
    Truncated(String),
}

/// Reads a page.
fn parse(text: &str) -> Result<Page, PageError> {
    let mut xml = Reader::from_str(text);
    let (mut page, mut value) = (Page::default(), String::new());
    let (mut version, mut in_prefixes, mut is_truncated) = (None::<Version>, false, false);
    let (mut next_key, mut next_id, mut is_listing, mut depth) =
        (String::new(), String::new(), false, 0usize);
    loop {
        let event = xml.read_event();
        match event.map_err(|error| PageError::Xml { offset: xml.error_position(), error })? {
            Event::Eof if depth > 0 => return Err(PageError::TooShort),
            Event::Eof => break,
            Event::Start(e) => {
                value.clear();
                depth += 1;
                match e.local_name().as_ref() {
                    "ListVersionsResult" if depth == 1 => is_listing = true,
                    "Version" => version = Some(Version::default()),
                    "DeleteMarker" => version = Some(Version { is_marker: true, ..Version::default() }),
                    "CommonPrefixes" => in_prefixes = true,
                    _ => {}
                }
            }
            Event::End(e) => {
                depth -= 1;
                let name = e.local_name();
                let text = std::mem::take(&mut value);
                match (name.as_ref(), &mut version) {
                    ("Version" | "DeleteMarker", version) => page.versions.extend(version.take()),
                    ("Key", Some(version)) => version.key = text,
                    ("VersionId", Some(version)) => version.id = text,
                    ("IsLatest", Some(version)) => version.is_latest = text.trim() == "true",
                    ("ETag", Some(version)) => version.tag = text,
                    ("Size", Some(version)) => {
                        let key = &version.key;
                        let invalid = |_| PageError::Size { key: key.clone(), value: text.clone() };
                        version.size = text.trim().parse().map_err(invalid)?;
                    }
                    ("LastModified", Some(version)) => {
                        let invalid = || PageError::Time { key: version.key.clone(), value: text.clone() };
                        version.moment = moment(text.trim()).ok_or_else(invalid)?;
                    }
                    ("CommonPrefixes", _) => in_prefixes = false,
                    ("Prefix", None) if in_prefixes => page.prefixes.push(text),
                    ("IsTruncated", None) => {
                        is_truncated = truncated(&text).ok_or(PageError::Truncated(text))?;
                    }
                    ("NextKeyMarker", None) => next_key = text,
                    ("NextVersionIdMarker", None) => next_id = text,
                    _ => {}
                }
            }
            event => push_characters(&event, &mut |more| value.push_str(more)),
        }
    }
    match (is_listing, is_truncated && next_key.is_empty()) {
        (false, _) => Err(PageError::NoVersions),
        (_, true) => Err(PageError::NoNext),
        _ => {
            page.next = is_truncated.then_some((next_key, next_id));
            Ok(page)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read() {
        let text = "<?xml version=\"1.0\"?><ListVersionsResult xmlns=\"x\"><Name>b</Name><Prefix>p/</Prefix>\
            <IsTruncated>true</IsTruncated><NextKeyMarker>p/c&amp;d</NextKeyMarker><NextVersionIdMarker>9</NextVersionIdMarker>\
            <Version><Key>p/a</Key><VersionId>2</VersionId><IsLatest>true</IsLatest><LastModified>1970-01-01T00:01:00.500Z</LastModified>\
            <ETag>&quot;e&quot;</ETag><Size>7</Size><Owner><ID>o</ID></Owner></Version>\
            <DeleteMarker><Key>p/b</Key><VersionId>1</VersionId><LastModified>1970-01-01T00:00:01Z</LastModified></DeleteMarker>\
            <CommonPrefixes><Prefix>p/x/</Prefix></CommonPrefixes></ListVersionsResult>";
        let page = parse(text).unwrap();
        let a = Version {
            key: "p/a".into(),
            id: "2".into(),
            tag: "\"e\"".into(),
            size: 7,
            moment: Moment { seconds: 60, nanoseconds: 500_000_000 },
            is_marker: false,
            is_latest: true,
        };
        let b = Version {
            key: "p/b".into(),
            id: "1".into(),
            moment: Moment { seconds: 1, nanoseconds: 0 },
            is_marker: true,
            ..Version::default()
        };
        let next = Some(("p/c&d".to_owned(), "9".to_owned()));
        assert_eq!(page, Page { versions: vec![a, b], prefixes: vec!["p/x/".into()], next });
        for bad in [
            "",
            "<a/>",
            "<ListBucketResult></ListBucketResult>",
            "<ListVersionsResult><IsTruncated>true</IsTruncated></ListVersionsResult>",
            "<ListVersionsResult><Version><Size>x</Size></Version></ListVersionsResult>",
            "<ListVersionsResult><Name>b</Name>",
            "<html><ListVersionsResult></ListVersionsResult></html>",
            "<ListVersionsResult><IsTruncated>yes</IsTruncated></ListVersionsResult>",
            "<ListVersionsResult><Version><LastModified>x</LastModified></Version></ListVersionsResult>",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// A version of `key`, written `seconds` after 1970.
    fn version(key: &str, seconds: i64, is_marker: bool) -> Version {
        let moment = Moment { seconds, nanoseconds: 0 };
        Version { key: key.into(), moment, is_marker, ..Version::default() }
    }

    #[test]
    fn a_delete_marker_hides_its_key_wherever_the_page_has_it() {
        let in_a_row = [version("a", 2, true), version("a", 1, false), version("b", 1, false)];
        let arrangements: [fn(&mut Vec<Version>); 3] = [
            |_| {},
            |page| page.sort_by_key(|version| !version.is_marker),
            |page| page.sort_by_key(|version| version.is_marker),
        ];
        for arrange in arrangements {
            for (as_of, expected) in [(0, &[][..]), (1, &["a", "b"]), (2, &["b"]), (9, &["b"])] {
                let as_of = Moment { seconds: as_of, nanoseconds: 0 };
                for at in 0..=in_a_row.len() {
                    let [first, second] = [&in_a_row[..at], &in_a_row[at..]].map(|page| {
                        let mut page = page.to_vec();
                        arrange(&mut page);
                        page
                    });
                    let shown = format!("{first:?} {second:?}");
                    let mut newest = Newest::default();
                    newest.add(first, as_of);
                    let mut documents: Vec<_> = newest.complete_documents().collect();
                    newest.add(second, as_of);
                    documents.extend(newest.into_documents());
                    let keys: Vec<_> = documents.iter().map(|version| &version.key[..]).collect();
                    assert_eq!(keys, expected, "{shown}");
                }
            }
        }
    }

    #[test]
    fn few_keys_stay_from_page_to_page() {
        let as_of = Moment { seconds: 9, nanoseconds: 0 };
        let (mut newest, mut documents) = (Newest::default(), 0);
        for page in 0..50 {
            let key = |number: usize| format!("{page:02}/{number:03}");
            let markers = (0..100).step_by(3).map(|number| version(&key(number), 2, true));
            let others = (0..100).map(|number| version(&key(number), 1, false));
            newest.add(markers.chain(others).collect(), as_of);
            documents += newest.complete_documents().count();
            assert!(newest.by_key.len() <= 2, "{:?}", newest.by_key.keys());
        }
        assert_eq!(documents + newest.into_documents().count(), 50 * 66);
    }

    #[test]
    fn of_two_versions_of_one_time_the_latest_counts() {
        let latest = Version { is_latest: true, ..version("a", 1, true) };
        for page in [[latest.clone(), version("a", 1, false)], [version("a", 1, false), latest]] {
            let mut newest = Newest::default();
            newest.add(page.to_vec(), Moment { seconds: 1, nanoseconds: 0 });
            assert_eq!(newest.into_documents().count(), 0);
        }
    }

    #[test]
    fn times_are_seconds_or_rfc_3339() {
        for (text, seconds, nanoseconds) in
            [("60", 60, 0), ("1970-01-01T00:01:00Z", 60, 0), ("1969-12-31T23:59:59.25Z", -1, 250_000_000)]
        {
            assert_eq!(parse_moment(text), Ok(Moment { seconds, nanoseconds }), "{text}");
        }
        for bad in
            ["", "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00Zjunk"]
        {
            let error = parse_moment(bad).expect_err("no time").to_string();
            assert!(error.contains("expected a time like 2026-11-22T20:00:00Z"), "{error}");
        }
    }
}
