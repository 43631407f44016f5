//! A bucket of an S3-compatible server: each prefix is a container, each object a document.
//!
//! [`S3`] lists with a delimiter, page by page, through the `object_store` library. The library signs requests. If the
//! server is busy (503 SlowDown, 429, 500), the library sends the request again, with growing pauses. A document's
//! token is made of its entity tag, size and time of change. If it changes between two ranges, the read fails.
//!
//! Credentials come from the places where the AWS SDKs look: the environment, the profile in `~/.aws`, then the role of
//! the container or the machine.

use super::store::{REGION, build, builder, client_options};
use super::throttle::{REQUESTS_IN_FLIGHT_MAX, Throttle};
use super::versions::{VERSION_NOTE, Version, Versions};
use super::{Fetch, Piece, RemoteObject, RemoteOptions, Runtime, Whole, changed, text_with_causes, vanished};
use crate::container::{ContainerBuilder, ContainerDigest, ContainerError, Entry, EntryKind, digest};
use crate::source::parts::{self, Parted, Spill};
use crate::source::{
    Identity, LOCATION_NOTE, ListError, Listing, Object, ReadError, Skipped, Source, Tokens,
};
use object_store::aws::{AmazonS3, AmazonS3ConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// The beginning of the name of a bucket as a source.
pub const SCHEME: &str = "s3://";
/// Maximum number of pages of one prefix. A page has up to 1,000 keys.
pub const PAGES_MAX: usize = 100_000;
/// The error for a server whose pages form a cycle.
pub(super) const PAGE_CYCLE: &str = "the server's listing does not end: its next page is an earlier page";
/// A part of the library's error text when the server does not support ranges: it responds with 200 instead of 206.
const NO_RANGES: &str = "non-partial response";
/// The first block of an object that was requested before the object is opened.
struct Prefetch {
    key: String,
    token: Vec<u8>,
    task: tokio::task::JoinHandle<Option<Piece>>,
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A bucket, or the part of it below a prefix.
pub struct S3 {
    store: Rc<AmazonS3>,
    runtime: Runtime,
    /// The prefix. It is empty, or it ends in a slash.
    prefix: String,
    /// The source as the user gave it, for messages.
    shown: PathBuf,
    /// Server and bucket, as a part of the cache's names.
    place: String,
    /// True when the server has listed an object without an entity tag. Then no object is cached: time and size do not
    /// identify bytes.
    is_untagged: bool,
    throttle: Throttle,
    parted: Parted,
    /// Lists the bucket's content at an earlier time. `None`: the present content is listed.
    versions: Option<Versions>,
    /// Prefetched first blocks, in the order in which they will be read.
    prefetches: VecDeque<Prefetch>,
    /// What the last listing of the root had to say.
    warning: Option<String>,
    /// The object that was opened last. An archive is opened twice: once for its beginning, and once to list it.
    last: Option<(String, Vec<u8>, Rc<RemoteObject<S3Fetch>>)>,
}

impl S3 {
    /// Opens `location`, the text after [`SCHEME`]: `bucket/prefix`. Sends no request yet.
    ///
    /// # Errors
    /// When the location or an option is not valid.
    pub fn open(location: &str, options: &RemoteOptions) -> io::Result<S3> {
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        if bucket.is_empty() {
            return Err(io::Error::other("expected s3://bucket or s3://bucket/prefix"));
        }
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let runtime = super::runtime()?;
        let throttle = Throttle::new();
        let builder = builder(bucket, options)?.with_http_connector(throttle.clone());
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        let is_url = reqwest::Url::parse(&endpoint)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !endpoint.is_empty() && !is_url {
            let text =
                format!("the endpoint {endpoint:?} is not a URL: expected a value like https://HOST:PORT");
            return Err(io::Error::other(text));
        }
        let place = format!("s3\0{endpoint}\0{bucket}\0");
        let region =
            builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_else(|| REGION.to_owned());
        let is_plain = endpoint.starts_with("http://");
        let store = build(builder).map_err(other)?;
        let versions = match options.as_of {
            None => None,
            Some(as_of) => {
                let server = match endpoint.as_str() {
                    "" => format!("https://s3.{region}.amazonaws.com"),
                    endpoint => endpoint.to_owned(),
                };
                let client = Versions::client(&throttle, &client_options(is_plain))?;
                let credentials = (!options.anonymous).then(|| store.credentials().clone());
                Some(Versions { client, url: format!("{server}/{bucket}"), region, credentials, as_of })
            }
        };
        let shown = PathBuf::from(format!("{SCHEME}{location}"));
        let store = Rc::new(store);
        let prefetches = VecDeque::new();
        Ok(S3 {
            store,
            runtime,
            prefix,
            shown,
            place,
            is_untagged: false,
            throttle,
            parted: Parted::new(options.list_cutoff),
            versions,
            prefetches,
            warning: None,
            last: None,
        })
    }

    fn key(&self, path: &[u8]) -> io::Result<String> {
        let path = std::str::from_utf8(path).map_err(|_| vanished())?;
        Ok(format!("{}{path}", self.prefix))
    }

    /// Returns the first block of a key, if the block was prefetched.
    fn take_prefetched(&mut self, key: &str, entry: &Entry<'_>) -> Option<Piece> {
        let matches = |prefetch: &Prefetch| prefetch.key == key && prefetch.token == entry.token;
        let at = self.prefetches.iter().position(matches)?;
        let mut prefetch = self.prefetches.remove(at)?;
        self.runtime.block_on(&mut prefetch.task).ok()?
    }

    /// Adds the keys and prefixes one level below `prefix` to `builder`.
    fn list_into(&self, prefix: &str, lister: &mut Lister) -> io::Result<()> {
        if let Some(versions) = &self.versions {
            let lister = RefCell::new(lister);
            let mut document = |version: &Version| lister.borrow_mut().version(version, prefix);
            let mut folder = |below: &str| lister.borrow_mut().folder(below.trim_end_matches('/'), prefix);
            return self.runtime.block_on(versions.list(prefix, PAGES_MAX, &mut document, &mut folder));
        }
        let mut page_token = None;
        // If a page token occurs twice, the pages form a cycle. Compare each token with one earlier token, which is
        // replaced at pages 1, 2, 4, 8 and so on: this finds a cycle of any length (Brent's algorithm).
        let mut earlier_token = None;
        for number in 1..=PAGES_MAX {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token,
                ..PaginatedListOptions::default()
            };
            let asked = self.store.list_paginated((!prefix.is_empty()).then_some(prefix), options);
            let page = self.runtime.block_on(asked).map_err(|error| server_error(&error))?;
            for below in &page.result.common_prefixes {
                lister.folder(below.as_ref(), prefix)?;
            }
            for object in &page.result.objects {
                lister.document(object, prefix)?;
            }
            page_token = page.page_token;
            if page_token.is_none() {
                return Ok(());
            }
            if page_token == earlier_token {
                return Err(io::Error::other(PAGE_CYCLE));
            }
            if number.is_power_of_two() {
                earlier_token.clone_from(&page_token);
            }
        }
        Err(io::Error::other(format!("more than {PAGES_MAX} pages of keys")))
    }

    /// Finds out why there is nothing below the prefix.
    fn check_prefix(&mut self) -> io::Result<()> {
        if self.has_key(self.prefix.trim_end_matches('/')) {
            return Err(other(
                "SOURCE is an object. Give the prefix above it as SOURCE, and the object's name with --include",
            ));
        }
        self.warning = Some(format!("no key begins with {:?}", self.prefix));
        Ok(())
    }

    /// True when the first page of keys that begin with `key` has the key itself. Errors are ignored.
    fn has_key(&self, key: &str) -> bool {
        if let Some(versions) = &self.versions {
            let mut keys = Vec::new();
            let mut document = |version: &Version| {
                keys.push(version.key.clone());
                Ok(())
            };
            let _ = self.runtime.block_on(versions.list(key, 1, &mut document, &mut |_| Ok(())));
            return keys.iter().any(|found| found == key);
        }
        let options = PaginatedListOptions { delimiter: Some("/".into()), ..PaginatedListOptions::default() };
        let page = self.runtime.block_on(self.store.list_paginated(Some(key), options));
        page.is_ok_and(|page| page.result.objects.iter().any(|object| object.location.as_ref() == key))
    }
}

impl Source for S3 {
    fn tokens(&self) -> Tokens {
        Tokens::Stamps
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn list(&mut self, path: &[u8], _distrust: bool) -> Result<Listing, ListError> {
        let shown = match path {
            b"" => self.shown.clone(),
            path => self.shown.join(String::from_utf8_lossy(path).as_ref()),
        };
        let failed = |error: io::Error| ListError::Io { path: shown.clone(), error };
        if let Some((above, part)) = parts::divide(path) {
            let listed = match self.parted.part(above, part) {
                Some(listed) => listed,
                None => {
                    self.parted.keep(above);
                    self.list(above, false)?;
                    let listed = self.parted.part(above, part);
                    listed.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
                }
            };
            return listed.map_err(parts::failed(shown.clone()));
        }
        let mut prefix = self.key(path).map_err(failed)?;
        if !path.is_empty() {
            prefix.push('/');
        }
        let listed_max = self.parted.begin(path);
        let mut lister = Lister { listed_max, ..Lister::default() };
        self.list_into(&prefix, &mut lister).map_err(failed)?;
        self.is_untagged |= lister.is_untagged;
        if path.is_empty() && !self.prefix.is_empty() && lister.has_nothing() {
            self.check_prefix().map_err(failed)?;
        }
        if lister.spill.is_none() && listed_max > 0 {
            return lister.finish().map_err(|error| ListError::Container { path: shown.clone(), error });
        }
        // A container that was recorded in parts stays in parts, even if it has no documents now.
        lister.spill().map_err(failed)?;
        let (spill, folders) = (lister.spill.take().expect("just made"), &lister.folders);
        let blob = self.parted.finish(path, spill, folders).map_err(failed)?;
        Ok(Listing { blob, skipped: Skipped::default(), racy_for_ns: 0, refused: lister.refused })
    }

    fn makes_parts(&self) -> bool {
        true
    }

    fn keep_parts(&mut self, path: &[u8]) {
        self.parted.keep(path);
    }

    /// The entity tag and the size. A tag is a weak digest (MD5) or no digest of the bytes, so it is not certain.
    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        let bytes = entry.token.get(..TAG_DIGEST_BYTES)?.to_vec();
        (entry.token.len() > TAG_DIGEST_BYTES).then_some(Identity { bytes, is_certain: false })
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let key = self.key(&crate::job::join(path, entry.get(LOCATION_NOTE).unwrap_or(entry.name)))?;
        if let Some((last, token, object)) = &self.last
            && *last == key
            && *token == entry.token
        {
            return Ok(Box::new(object.clone()));
        }
        let location = Key::parse(&key).map_err(|error| ReadError::Io(other(error)))?;
        let (store, runtime) = (self.store.clone(), self.runtime.clone());
        let fetch = S3Fetch {
            store,
            runtime,
            location,
            version: version_of(entry),
            listed_size: entry.size,
            whole: RefCell::default(),
        };
        let object = Rc::new(match self.take_prefetched(&key, entry) {
            Some(first) => RemoteObject::with_first(fetch, first),
            None => RemoteObject::new(fetch),
        });
        self.last = Some((key, entry.token.to_vec(), object.clone()));
        Ok(Box::new(object))
    }

    fn prefetch_max(&self) -> usize {
        self.throttle.in_flight_max()
    }

    fn prefetch(&mut self, path: &[u8], entry: &Entry<'_>) {
        let key = self.key(&crate::job::join(path, entry.get(LOCATION_NOTE).unwrap_or(entry.name)));
        let Some((key, location)) = key.ok().and_then(|key| Some((key.clone(), Key::parse(&key).ok()?)))
        else {
            return;
        };
        let (store, listed_size, version) = (AmazonS3::clone(&self.store), entry.size, version_of(entry));
        let task = self.runtime.spawn(async move {
            let first = super::FIRST_BLOCK_BYTES;
            let range = (listed_size > first).then_some(GetRange::Bounded(0..first));
            // Ignore errors: the block is requested again when the object is opened, and that request reports the
            // error.
            let options = GetOptions { range, version, ..GetOptions::default() };
            let got = store.get_opts(&location, options).await.ok()?;
            if got.meta.size != listed_size {
                return None;
            }
            let (size, token) = (got.meta.size, token(&got.meta));
            Some(Piece { bytes: got.bytes().await.ok()?.into(), size, token })
        });
        if self.prefetches.len() >= 2 * REQUESTS_IN_FLIGHT_MAX {
            self.prefetches.pop_front();
        }
        self.prefetches.push_back(Prefetch { key, token: entry.token.to_vec(), task });
    }

    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let key = self.key(&crate::job::join(path, entry.get(LOCATION_NOTE).unwrap_or(entry.name))).ok()?;
        (!self.is_untagged).then(|| format!("{}{key}", self.place).into_bytes())
    }
}

/// A key in a listing.
struct Listed {
    name: Vec<u8>,
    size: u64,
    token: Vec<u8>,
    /// The id of the version, if the bucket's content at an earlier time is listed.
    version: Option<String>,
}

impl Listed {
    fn spill(&self, spill: &mut Spill) -> io::Result<()> {
        let version = self.version.as_ref().map(|id| (VERSION_NOTE, id.as_bytes()));
        spill.push(&self.name, self.size, &self.token, version)
    }
}

/// Builds the container of a prefix while the prefix is listed.
#[derive(Default)]
struct Lister {
    documents: Vec<Listed>,
    folders: BTreeSet<Vec<u8>>,
    is_untagged: bool,
    /// True when the prefix itself is a key.
    has_marker: bool,
    refused: Vec<(Vec<u8>, String)>,
    /// Maximum number of documents in `documents`. If there are more, all documents go to the spill.
    listed_max: usize,
    spill: Option<Spill>,
}

impl Lister {
    fn folder(&mut self, below: &str, prefix: &str) -> io::Result<()> {
        match name_below(below, prefix) {
            Some("") => {
                let reason =
                    "a key that begins with a slash, or has two slashes in a row, is not imported".to_owned();
                self.refused.push((b"/".to_vec(), reason));
            }
            Some(name) if parts::number(name.as_bytes()).is_some() => {
                self.refused.push((name.as_bytes().to_vec(), parts::RESERVED.to_owned()));
            }
            Some(name) => drop(self.folders.insert(name.as_bytes().to_vec())),
            None => return Err(unexpected_key(below, prefix)),
        }
        Ok(())
    }

    fn document(&mut self, object: &ObjectMeta, prefix: &str) -> io::Result<()> {
        self.push(object.location.as_ref(), prefix, object.e_tag.as_deref(), object.size, token(object), None)
    }

    fn version(&mut self, version: &Version, prefix: &str) -> io::Result<()> {
        let Version { key, id, tag, size, moment, .. } = version;
        self.push(key, prefix, Some(tag), *size, token_of(tag, *size, moment.seconds), Some(id.clone()))
    }

    fn push(
        &mut self,
        key: &str,
        prefix: &str,
        tag: Option<&str>,
        size: u64,
        token: Vec<u8>,
        version: Option<String>,
    ) -> io::Result<()> {
        self.is_untagged |= tag.is_none_or(str::is_empty);
        match name_below(key, prefix) {
            // The prefix itself is a key. Some tools create such a key, without bytes, for a folder.
            Some("") => {
                self.has_marker = true;
                if size > 0 {
                    let reason = "an object whose key ends in a slash is not imported".to_owned();
                    self.refused.push((b"/".to_vec(), reason));
                }
            }
            Some(name) if parts::number(name.as_bytes()).is_some() => {
                self.refused.push((name.as_bytes().to_vec(), parts::RESERVED.to_owned()));
            }
            Some(name) => {
                let listed = Listed { name: name.as_bytes().to_vec(), size, token, version };
                if let Some(spill) = &mut self.spill {
                    return listed.spill(spill);
                }
                self.documents.push(listed);
                if self.documents.len() > self.listed_max {
                    self.spill()?;
                }
            }
            None => return Err(unexpected_key(key, prefix)),
        }
        Ok(())
    }

    /// True when nothing was listed, not even the prefix itself.
    fn has_nothing(&self) -> bool {
        let is_empty = self.documents.is_empty() && self.folders.is_empty() && self.refused.is_empty();
        is_empty && self.spill.is_none() && !self.has_marker
    }

    /// Moves the documents to a new spill. All further documents go there too.
    fn spill(&mut self) -> io::Result<()> {
        if self.spill.is_none() {
            let mut spill = Spill::new()?;
            let listed = std::mem::take(&mut self.documents);
            listed.iter().try_for_each(|listed| listed.spill(&mut spill))?;
            self.spill = Some(spill);
        }
        Ok(())
    }

    fn finish(self) -> Result<Listing, ContainerError> {
        let mut builder = ContainerBuilder::new(0);
        let mut taken: BTreeSet<Vec<u8>> = self.folders.clone();
        if !self.folders.is_empty() {
            taken.extend(self.documents.iter().map(|listed| listed.name.clone()));
        }
        for folder in &self.folders {
            builder.push(EntryKind::Container, folder, 0, &[], [])?;
        }
        for Listed { name, size, token, version } in &self.documents {
            let version = version.as_ref().map(|id| (VERSION_NOTE, id.as_bytes()));
            if !self.folders.contains(name) {
                builder.push(EntryKind::Document, name, *size, token, version)?;
                continue;
            }
            // A folder has the key's name, because other keys begin with it and a slash. The document gets a name with
            // a number, and a note with its key.
            let numbers = (2..).map(|n: u64| [name, format!("~{n}").as_bytes()].concat());
            let free = numbers.into_iter().find(|free| !taken.contains(free)).expect("numbers do not end");
            let pairs = [(LOCATION_NOTE, &name[..])].into_iter().chain(version);
            builder.push(EntryKind::Document, &free, *size, token, pairs)?;
            taken.insert(free);
        }
        let blob = builder.finish()?;
        Ok(Listing { blob, skipped: Skipped::default(), racy_for_ns: 0, refused: self.refused })
    }
}

/// The name of `key` directly below `prefix`. Empty for the prefix itself. `None` when the key is not directly below.
fn name_below<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    if key == prefix.trim_end_matches('/') {
        return Some("");
    }
    key.strip_prefix(prefix).filter(|name| !name.contains('/'))
}

fn unexpected_key(key: &str, prefix: &str) -> io::Error {
    other(format!("the server lists the key {key:?}, expected a key directly below {prefix:?}"))
}

/// Number of bytes at the beginning of a token that are the digest of entity tag and size.
const TAG_DIGEST_BYTES: usize = size_of::<ContainerDigest>();

/// The token: entity tag, size and time of change. The time is in whole seconds, because an HTTP header has no
/// fractions.
fn token(meta: &ObjectMeta) -> Vec<u8> {
    token_of(meta.e_tag.as_deref().unwrap_or_default(), meta.size, meta.last_modified.timestamp())
}

fn token_of(tag: &str, size: u64, seconds: i64) -> Vec<u8> {
    let tag = tag.trim_matches('"');
    let mut token = digest(format!("{tag}\0{size}").as_bytes()).to_vec();
    token.extend_from_slice(&seconds.to_le_bytes());
    token
}

fn version_of(entry: &Entry<'_>) -> Option<String> {
    entry.get(VERSION_NOTE).map(|id| String::from_utf8_lossy(id).into_owned())
}

/// Gets ranges of one key.
struct S3Fetch {
    store: Rc<AmazonS3>,
    runtime: Runtime,
    location: Key,
    /// The id of the version. `None`: the newest version.
    version: Option<String>,
    /// The size in the listing. No range goes beyond it.
    listed_size: u64,
    /// The whole object, if the server does not support ranges.
    whole: RefCell<Option<Whole>>,
}

impl Fetch for S3Fetch {
    fn fetch(&self, range: Range<u64>, _token: Option<&[u8]>) -> io::Result<Piece> {
        if let Some(whole) = &*self.whole.borrow() {
            return whole.piece(range);
        }
        let wanted = range.start..range.end.min(self.listed_size);
        // An empty object has no range, so a whole object is requested without a range.
        let is_whole = wanted.start == 0 && wanted.end >= self.listed_size;
        let bounded = (!is_whole).then_some(GetRange::Bounded(wanted));
        self.runtime.block_on(async {
            match self.get(bounded).await {
                Ok(got) => {
                    let (size, token) = (got.meta.size, token(&got.meta));
                    let bytes = got.bytes().await.map_err(|error| server_error(&error))?;
                    Ok(Piece { bytes: bytes.into(), size, token })
                }
                Err(error) if !is_whole && error.to_string().contains(NO_RANGES) => {
                    let whole = self.get_whole().await?;
                    let piece = whole.piece(range);
                    *self.whole.borrow_mut() = Some(whole);
                    piece
                }
                Err(error) => Err(error),
            }
        })
    }
}

impl S3Fetch {
    async fn get(&self, range: Option<GetRange>) -> io::Result<GetResult> {
        let options = GetOptions { range, version: self.version.clone(), ..GetOptions::default() };
        let got = self.store.get_opts(&self.location, options).await.map_err(|error| server_error(&error))?;
        if got.meta.size == self.listed_size { Ok(got) } else { Err(changed()) }
    }

    /// Gets the whole object from a server that does not support ranges.
    async fn get_whole(&self) -> io::Result<Whole> {
        let got = self.get(None).await?;
        let mut whole = Whole::new()?;
        whole.token = token(&got.meta);
        let mut stream = got.into_stream();
        while let Some(chunk) = std::future::poll_fn(|task| stream.as_mut().poll_next(task)).await {
            whole.append(&chunk.map_err(|error| server_error(&error))?)?;
        }
        if whole.size == self.listed_size { Ok(whole) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Converts an error of the library: to the server's own error text if there is one, else to the library's text with
/// its causes.
pub(super) fn server_error(error: &object_store::Error) -> io::Error {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return vanished();
    }
    let text = text_with_causes(error);
    xml_error(&text).unwrap_or_else(|| other(text.trim_start_matches("Generic S3 error: ")))
}

/// The error in `text`, an XML response of an S3 server. `None` when `text` has no error code.
pub(super) fn xml_error(text: &str) -> Option<io::Error> {
    let between = |from: &str, to: &str| Some(text.split_once(from)?.1.split_once(to)?.0);
    match (between("<Code>", "</Code>"), between("<Message>", "</Message>")) {
        (Some(code), Some(message)) => {
            let plain = quick_xml::escape::unescape(message).unwrap_or(message.into());
            Some(other(format!("the server answers {code}: {plain}")))
        }
        (Some(code), None) => Some(other(format!("the server answers {code}"))),
        _ => None,
    }
}

pub(super) fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}
