//! A bucket of an S3-compatible server: each prefix is a container, each object a document.
//!
//! [`S3`] lists by delimiter, page by page, through the `object_store` library. The library signs requests. If the server
//! is too busy for a request (503 SlowDown, 429, 500), the library sends it again, with growing pauses. A document's
//! token is its entity tag, size and time of change. Its ranges are asked for on the condition that the tag is unchanged.
//!
//! Credentials come from the places where the AWS SDKs look: the environment, the profile in `~/.aws`, then the role of
//! the container or the machine.

use super::profile;
use super::throttle::{Throttle, UNDER_WAY_MAX};
use super::versions::{VERSION_NOTE, Version, Versions};
use super::{ANSWER_TIMEOUT, BACKOFF_FIRST, BACKOFF_MAX, CONNECT_TIMEOUT, RETRIES_MAX, RETRY_TIMEOUT};
use super::{Fetch, Piece, RemoteObject, RemoteOptions, Runtime, Whole, changed, vanished};
use crate::container::{Builder, ContainerError, Digest, Entry, Kind, digest};
use crate::source::parts::{self, Parted, Spill};
use crate::source::{AT_NOTE, Identity, ListError, Listing, Object, ReadError, Skipped, Source, Tokens};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, RetryConfig,
};
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
/// The error for a server whose pages lead in a circle.
pub(super) const SAME_PAGE: &str = "the server leads to the same page again";
/// The library's error text for a server that did not respond with a range (some respond 200 instead of 206).
const NO_RANGES: &str = "non-partial response";
/// The region of a bucket by default.
const REGION: &str = "us-east-1";

/// A first block that is on its way.
struct Ahead {
    key: String,
    token: Vec<u8>,
    task: tokio::task::JoinHandle<Option<Piece>>,
}

impl Drop for Ahead {
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
    /// Server and bucket, as a part of the names in a cache.
    place: String,
    /// True when the server has listed an object without an entity tag. Time and size alone are not enough for a cache.
    is_untagged: bool,
    throttle: Throttle,
    parted: Parted,
    /// Lists the versions of a moment. `None`: lists the current content of the bucket.
    versions: Option<Versions>,
    /// First blocks that were requested ahead, in the order in which they will be wanted.
    ahead: VecDeque<Ahead>,
    /// The object that was opened last. It is kept because an archive is opened twice: to be looked at, and to be read.
    last: Option<(String, Vec<u8>, Rc<RemoteObject<S3Fetch>>)>,
}

impl S3 {
    /// Opens `location`: what follows [`SCHEME`], `bucket/prefix`. Nothing is asked of the server yet.
    ///
    /// # Errors
    /// The reason why the name or an option is wrong.
    pub fn open(location: &str, options: &RemoteOptions) -> io::Result<S3> {
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        if bucket.is_empty() {
            return Err(io::Error::other("expected s3://bucket or s3://bucket/prefix"));
        }
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let runtime = super::runtime()?;
        let throttle = Throttle::new();
        let builder = builder(bucket, options).with_http_connector(throttle.clone());
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        let place = format!("s3\0{endpoint}\0{bucket}\0");
        let region =
            builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or_else(|| REGION.to_owned());
        let is_plain = endpoint.starts_with("http://");
        let store = builder.build().map_err(other)?;
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
        let ahead = VecDeque::new();
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
            ahead,
            last: None,
        })
    }

    fn key(&self, path: &[u8]) -> io::Result<String> {
        let path = std::str::from_utf8(path).map_err(|_| vanished())?;
        Ok(format!("{}{path}", self.prefix))
    }

    /// Returns the first block of a key, if the block was requested ahead.
    fn take_ahead(&mut self, key: &str, entry: &Entry<'_>) -> Option<Piece> {
        let is_it = |ahead: &Ahead| ahead.key == key && ahead.token == entry.token;
        let at = self.ahead.iter().position(is_it)?;
        let mut ahead = self.ahead.remove(at)?;
        self.runtime.block_on(&mut ahead.task).ok()?
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
        // If a page's token comes again, the pages lead in a circle. `held` is one earlier token, replaced after ever
        // more pages, so a circle of any length is found (Brent's algorithm).
        let mut held = None;
        for number in 1..=PAGES_MAX {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token,
                ..PaginatedListOptions::default()
            };
            let asked = self.store.list_paginated((!prefix.is_empty()).then_some(prefix), options);
            let page = self.runtime.block_on(asked).map_err(|error| told(&error))?;
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
            if page_token == held {
                return Err(io::Error::other(SAME_PAGE));
            }
            if number.is_power_of_two() {
                held.clone_from(&page_token);
            }
        }
        Err(io::Error::other(format!("more than {PAGES_MAX} pages of keys")))
    }
}

fn builder(bucket: &str, options: &RemoteOptions) -> AmazonS3Builder {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = options.profile.clone().or_else(|| variable("AWS_PROFILE"));
    let profile = profile::load(name.as_deref().unwrap_or("default"));
    let setting = |name: &str| profile.get(name).cloned();
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    // A profile from the command line takes precedence over the environment.
    let from_profile = options.profile.is_some() || variable("AWS_ACCESS_KEY_ID").is_none();
    if let (true, Some(id), Some(secret)) =
        (from_profile, setting("aws_access_key_id"), setting("aws_secret_access_key"))
    {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        if let Some(token) = setting("aws_session_token") {
            builder = builder.with_token(token);
        }
    }
    let region = options.region.clone().or_else(|| variable("AWS_REGION"));
    let region = region.or_else(|| variable("AWS_DEFAULT_REGION")).or_else(|| setting("region"));
    let endpoint = options.endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL_S3"));
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL")).or_else(|| setting("endpoint_url"));
    let is_plain = endpoint.as_deref().is_some_and(|e| e.starts_with("http://"));
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    let client = client_options(is_plain);
    let backoff = BackoffConfig { init_backoff: BACKOFF_FIRST, max_backoff: BACKOFF_MAX, base: 2.0 };
    builder
        .with_region(region.unwrap_or_else(|| REGION.to_owned()))
        .with_skip_signature(options.anonymous)
        .with_client_options(client)
        .with_retry(RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT })
}

fn client_options(is_plain: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(ANSWER_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(is_plain)
}

impl Source for S3 {
    fn tokens(&self) -> Tokens {
        Tokens::Stamps
    }

    fn is_remote(&self) -> bool {
        true
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
        if lister.spill.is_none() && listed_max > 0 {
            return lister.finish().map_err(|error| ListError::Container { path: shown.clone(), error });
        }
        // A container that was recorded in parts stays in parts, even when it is empty now.
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

    /// Entity tag and size. A tag is a weak digest of the bytes (MD5), or none at all, so the bytes must decide.
    fn identity(&self, entry: &Entry<'_>) -> Option<Identity> {
        let bytes = entry.token.get(..TAGGED_BYTES)?.to_vec();
        (entry.token.len() > TAGGED_BYTES).then_some(Identity { bytes, is_certain: false })
    }

    fn open(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        let key = self.key(&crate::job::join(path, entry.get(AT_NOTE).unwrap_or(entry.name)))?;
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
        let object = Rc::new(match self.take_ahead(&key, entry) {
            Some(first) => RemoteObject::with_first(fetch, first),
            None => RemoteObject::new(fetch),
        });
        self.last = Some((key, entry.token.to_vec(), object.clone()));
        Ok(Box::new(object))
    }

    fn ahead(&self) -> usize {
        self.throttle.under_way()
    }

    fn prefetch(&mut self, path: &[u8], entry: &Entry<'_>) {
        let key = self.key(&crate::job::join(path, entry.get(AT_NOTE).unwrap_or(entry.name)));
        let Some((key, location)) = key.ok().and_then(|key| Some((key.clone(), Key::parse(&key).ok()?)))
        else {
            return;
        };
        let (store, listed_size, version) = (AmazonS3::clone(&self.store), entry.size, version_of(entry));
        let task = self.runtime.spawn(async move {
            let first = super::FIRST_BLOCK_BYTES;
            let range = (listed_size > first).then_some(GetRange::Bounded(0..first));
            // An error here is ignored, because the block is requested again when it is wanted. That request reports
            // the error.
            let options = GetOptions { range, version, ..GetOptions::default() };
            let got = store.get_opts(&location, options).await.ok()?;
            if got.meta.size != listed_size {
                return None;
            }
            let (size, token) = (got.meta.size, token(&got.meta));
            Some(Piece { bytes: got.bytes().await.ok()?.into(), size, token })
        });
        if self.ahead.len() >= 2 * UNDER_WAY_MAX {
            self.ahead.pop_front();
        }
        self.ahead.push_back(Ahead { key, token: entry.token.to_vec(), task });
    }

    fn cache_name(&self, path: &[u8], entry: &Entry<'_>) -> Option<Vec<u8>> {
        let key = self.key(&crate::job::join(path, entry.get(AT_NOTE).unwrap_or(entry.name))).ok()?;
        (!self.is_untagged).then(|| format!("{}{key}", self.place).into_bytes())
    }
}

/// A key in a listing.
struct Listed {
    name: Vec<u8>,
    size: u64,
    token: Vec<u8>,
    /// The version, if it is not the newest one.
    version: Option<String>,
}

impl Listed {
    fn spill(&self, spill: &mut Spill) -> io::Result<()> {
        let version = self.version.as_ref().map(|id| (VERSION_NOTE, id.as_bytes()));
        spill.push(&self.name, self.size, &self.token, version)
    }
}

/// A container while a prefix is listed into it.
#[derive(Default)]
struct Lister {
    documents: Vec<Listed>,
    folders: BTreeSet<Vec<u8>>,
    is_untagged: bool,
    refused: Vec<(Vec<u8>, String)>,
    /// Maximum number of documents in `documents`. If there are more, all of them go to the disk.
    listed_max: usize,
    spill: Option<Spill>,
}

impl Lister {
    fn folder(&mut self, below: &str, prefix: &str) -> io::Result<()> {
        match name_below(below, prefix) {
            Some("") => {
                let reason = "keys with a slash in front are not imported".to_owned();
                self.refused.push((b"/".to_vec(), reason));
            }
            Some(name) if parts::number(name.as_bytes()).is_some() => {
                self.refused.push((name.as_bytes().to_vec(), parts::RESERVED.to_owned()));
            }
            Some(name) => drop(self.folders.insert(name.as_bytes().to_vec())),
            None => return Err(strange(below, prefix)),
        }
        Ok(())
    }

    fn document(&mut self, object: &ObjectMeta, prefix: &str) -> io::Result<()> {
        self.push(object.location.as_ref(), prefix, object.e_tag.as_deref(), object.size, token(object), None)
    }

    fn version(&mut self, version: &Version, prefix: &str) -> io::Result<()> {
        let Version { key, id, tag, size, seconds, .. } = version;
        self.push(key, prefix, Some(tag), *size, token_of(tag, *size, *seconds), Some(id.clone()))
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
            // The prefix itself is a key. Some tools create such a key for a folder.
            Some("") => {}
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
            None => return Err(strange(key, prefix)),
        }
        Ok(())
    }

    /// Moves the documents to the disk. All further documents go there too.
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
        let mut builder = Builder::new(0);
        let mut taken: BTreeSet<Vec<u8>> = self.folders.clone();
        if !self.folders.is_empty() {
            taken.extend(self.documents.iter().map(|listed| listed.name.clone()));
        }
        for folder in &self.folders {
            builder.push(Kind::Container, folder, 0, &[], [])?;
        }
        for Listed { name, size, token, version } in &self.documents {
            let version = version.as_ref().map(|id| (VERSION_NOTE, id.as_bytes()));
            if !self.folders.contains(name) {
                builder.push(Kind::Document, name, *size, token, version)?;
                continue;
            }
            // The key is a prefix of other keys too. The document gets a number, and a note of its key.
            let numbers = (2..).map(|n: u64| [name, format!("~{n}").as_bytes()].concat());
            let free = numbers.into_iter().find(|free| !taken.contains(free)).expect("numbers do not end");
            let pairs = [(AT_NOTE, &name[..])].into_iter().chain(version);
            builder.push(Kind::Document, &free, *size, token, pairs)?;
            taken.insert(free);
        }
        let blob = builder.finish()?;
        Ok(Listing { blob, skipped: Skipped::default(), racy_for_ns: 0, refused: self.refused })
    }
}

/// The name directly below `prefix`. Empty for the prefix itself. `None` for a key that was not asked for.
fn name_below<'a>(key: &'a str, prefix: &str) -> Option<&'a str> {
    if key == prefix.trim_end_matches('/') {
        return Some("");
    }
    key.strip_prefix(prefix).filter(|name| !name.contains('/'))
}

fn strange(key: &str, prefix: &str) -> io::Error {
    other(format!("the server lists the key {key:?} below {prefix:?}"))
}

/// Bytes of the digest of entity tag and size at the beginning of a token.
const TAGGED_BYTES: usize = size_of::<Digest>();

/// The token: entity tag, size, and time of change in whole seconds, because a response's header has no fractions.
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
    /// The version. `None`: the newest one.
    version: Option<String>,
    /// A block is at most as long as the object was when it was listed.
    listed_size: u64,
    /// All of the object, from a server that answers ranges with everything.
    whole: RefCell<Option<Whole>>,
}

impl Fetch for S3Fetch {
    fn fetch(&self, range: Range<u64>, _token: Option<&[u8]>) -> io::Result<Piece> {
        if let Some(whole) = &*self.whole.borrow() {
            return whole.piece(range);
        }
        let wanted = range.start..range.end.min(self.listed_size);
        // An empty object has no range. So a whole object is requested without a range.
        let is_whole = wanted.start == 0 && wanted.end >= self.listed_size;
        let bounded = (!is_whole).then_some(GetRange::Bounded(wanted));
        self.runtime.block_on(async {
            match self.get(bounded).await {
                Ok(got) => {
                    let (size, token) = (got.meta.size, token(&got.meta));
                    let bytes = got.bytes().await.map_err(|error| told(&error))?;
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
        let got = self.store.get_opts(&self.location, options).await.map_err(|error| told(&error))?;
        if got.meta.size == self.listed_size { Ok(got) } else { Err(changed()) }
    }

    /// All of the object, from a server that answers ranges with everything.
    async fn get_whole(&self) -> io::Result<Whole> {
        let got = self.get(None).await?;
        let mut whole = Whole::new()?;
        whole.token = token(&got.meta);
        let mut stream = got.into_stream();
        while let Some(chunk) = std::future::poll_fn(|task| stream.as_mut().poll_next(task)).await {
            whole.append(&chunk.map_err(|error| told(&error))?)?;
        }
        if whole.size == self.listed_size { Ok(whole) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// The server's error text, without the text that the library adds.
fn told(error: &object_store::Error) -> io::Error {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return vanished();
    }
    let text = error.to_string();
    said(&text).unwrap_or_else(|| other(text.trim_start_matches("Generic S3 error: ")))
}

/// The error in an XML response.
pub(super) fn said(text: &str) -> Option<io::Error> {
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
