//! One object of a web server: a dataset of one document, which may be an archive that holds many.
//!
//! [`Http`] requests ranges. If the server does not support ranges, it sends the whole object, which is stored in a
//! temporary file. The document's token is made of its entity tag, its time of change and its size. If the server sends
//! neither a tag nor a time, the document has no token, and each run reads it.

use super::{ANSWER_TIMEOUT, BACKOFF_FIRST, BACKOFF_MAX, CONNECT_TIMEOUT, RETRIES_MAX, RETRY_TIMEOUT};
use super::{Fetch, Piece, RemoteObject, Runtime, Whole, changed, text_with_causes, vanished};
use crate::container::{ContainerBuilder, Entry, EntryKind, NAME_BYTES_MAX, digest};
use crate::requests::SentRequest;
use crate::source::{ListError, Listing, Object, ReadError, Skipped, Source, Tokens};
use reqwest::header::{self, HeaderMap};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The beginnings of the names of sources on a web server.
pub const SCHEMES: [&str; 2] = ["http://", "https://"];
/// Maximum number of bytes that are read of a response to one range. A server may send more bytes than were requested.
const ANSWER_BYTES_MAX: u64 = 2 * super::BLOCK_BYTES;

/// Maximum number of times that a response that was cut in its body is requested again.
const BODY_RETRIES_MAX: usize = 2;
/// Maximum number of attempts to connect.
const CONNECT_RETRIES_MAX: usize = 3;

/// One object of a web server.
pub struct Http {
    object: Rc<RemoteObject<HttpFetch>>,
    name: Vec<u8>,
    /// The URL without user and password.
    shown: PathBuf,
    /// True when HEAD gets the size and the token first, because a cache may have the bytes.
    uses_head: bool,
    /// True when the server's entity tag is strong: different bytes have different tokens.
    is_strong: bool,
}

impl Http {
    /// Opens `url`. Sends no request yet. `uses_head`: HEAD gets the size and the token before the bytes are requested.
    ///
    /// # Errors
    /// When the URL is not valid.
    pub fn open(url: &str, uses_head: bool) -> io::Result<Http> {
        let url = Url::parse(url).map_err(io::Error::other)?;
        let shown = PathBuf::from(shown(url.as_str()));
        let runtime = super::runtime()?;
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(ANSWER_TIMEOUT)
            // A redirect to another server must not send the first URL, whose query may have a secret in it.
            .referer(false)
            .user_agent(concat!("strand/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(http_error)?;
        let name = name_of(&url);
        let fetch = HttpFetch { client, runtime, url, whole: RefCell::new(None) };
        let object = Rc::new(RemoteObject::new(fetch));
        Ok(Http { object, name, shown, uses_head, is_strong: false })
    }
}

impl Source for Http {
    fn tokens(&self) -> Tokens {
        Tokens::Stamps
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn list(&mut self, path: &[u8], _distrust: bool) -> Result<Listing, ListError> {
        let failed = |error: io::Error| ListError::Io { path: self.shown.clone(), error };
        if !path.is_empty() {
            return Err(failed(vanished()));
        }
        let head = if self.uses_head { self.object.fetch.head() } else { None };
        self.is_strong = head.is_some();
        let (size, token) = head.map_or_else(|| self.object.pinned(), Ok).map_err(failed)?;
        let mut builder = ContainerBuilder::new(0);
        let pushed = builder.push(EntryKind::Document, &self.name, size, &token, []);
        let built = pushed.and_then(|()| builder.finish());
        let blob = built.map_err(|error| ListError::Container { path: self.shown.clone(), error })?;
        Ok(Listing { blob, skipped: Skipped::default(), racy_for_ns: 0, refused: Vec::new() })
    }

    fn open(&mut self, _path: &[u8], _entry: &Entry<'_>) -> Result<Box<dyn Object>, ReadError> {
        Ok(Box::new(self.object.clone()))
    }

    fn cache_name(&self, _path: &[u8], _entry: &Entry<'_>) -> Option<Vec<u8>> {
        self.is_strong.then(|| format!("http\0{}", self.object.fetch.url).into_bytes())
    }
}

/// The text of a source for messages and reports. A URL of a web server is shown without user, password and query. The
/// URL of another source is shown without the user and password before its host.
pub(crate) fn shown(source: &str) -> String {
    let Some((scheme, rest)) = source.split_once("://") else { return source.to_owned() };
    // What is before the `@` is a path.
    if source.starts_with(super::super::git::SCHEME) {
        return source.to_owned();
    }
    let without_user = |text: &str| text.rsplit_once('@').map_or(text, |(_, host)| host).to_owned();
    if !SCHEMES.iter().any(|scheme| source.starts_with(scheme)) {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        return format!("{scheme}://{}{path}", without_user(authority));
    }
    match Url::parse(source) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string()
        }
        // Nothing says where the password of a wrong URL ends, so everything before the last `@` is left out.
        Err(_) => {
            let rest = without_user(rest);
            format!("{scheme}://{}", rest.split_once('?').map_or(&rest[..], |(before, _)| before))
        }
    }
}

/// The value of `Content-Length`, if the response has this header.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The document's name: the last part of the URL's path, or the host if the path is empty.
fn name_of(url: &Url) -> Vec<u8> {
    let last = url.path_segments().and_then(|mut parts| parts.rfind(|part| !part.is_empty()));
    let mut name: Vec<u8> = percent_encoding::percent_decode_str(last.unwrap_or_default()).collect();
    name.iter_mut().filter(|b| matches!(b, b'/' | 0)).for_each(|b| *b = b'_');
    name.truncate(NAME_BYTES_MAX);
    match &name[..] {
        b"" | b"." | b".." => url.host_str().unwrap_or("document").as_bytes().to_vec(),
        _ => name,
    }
}

/// Gets ranges of a URL.
struct HttpFetch {
    client: reqwest::Client,
    runtime: Runtime,
    url: Url,
    /// The whole object, if the server does not support ranges.
    whole: RefCell<Option<Whole>>,
}

impl Fetch for HttpFetch {
    fn fetch(&self, range: Range<u64>, token: Option<&[u8]>) -> io::Result<Piece> {
        if self.whole.borrow().is_none() {
            let answered = self.runtime.block_on(self.fetch_range(range.clone(), token))?;
            if let Some(piece) = answered {
                return Ok(piece);
            }
        }
        self.whole.borrow().as_ref().expect("kept by the request").piece(range)
    }
}

impl HttpFetch {
    /// Gets the size and the token of the object by HEAD. `None` when the server does not send them, or when its entity
    /// tag is weak: then different bytes may have equal tags.
    fn head(&self) -> Option<(u64, Vec<u8>)> {
        let request = self.client.head(self.url.clone()).header(header::ACCEPT_ENCODING, "identity");
        let sent =
            async { tokio::time::timeout(ANSWER_TIMEOUT, self.send_noted("HEAD", request)).await.ok()?.ok() };
        let response = self.runtime.block_on(sent).filter(|response| response.status() == StatusCode::OK)?;
        let headers = response.headers();
        let is_strong = headers.get(header::ETAG).is_some_and(|tag| !tag.as_bytes().starts_with(b"W/"));
        let size = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
        is_strong.then(|| (size, token(headers, size)))
    }

    /// Sends a request, and notes it ([`crate::requests`]).
    async fn send_noted(&self, method: &str, request: RequestBuilder) -> reqwest::Result<Response> {
        let host = self.url.host_str().unwrap_or_default();
        let host = self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let sent_request = SentRequest::new(method, &host, 0);
        let response = request.send().await?;
        sent_request.answered(response.status().as_u16(), length(response.headers()));
        Ok(response)
    }

    /// Requests a range. `None`: the server sent the whole object, which is in `whole` now. A response that is cut in its
    /// body is requested again.
    async fn fetch_range(&self, range: Range<u64>, expected: Option<&[u8]>) -> io::Result<Option<Piece>> {
        let mut pause = BACKOFF_FIRST;
        for attempt in 0.. {
            let response = self.send(&range).await?;
            match self.read_response(response, &range, expected).await {
                Err(error) if is_cut(&error) && attempt < BODY_RETRIES_MAX => {}
                other => return other,
            }
            tokio::time::sleep(pause.mul_f64(fastrand::f64() / 2.0 + 0.75)).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        unreachable!("the last attempt returns")
    }

    /// Reads the response to a request for a range.
    async fn read_response(
        &self,
        mut response: Response,
        range: &Range<u64>,
        expected: Option<&[u8]>,
    ) -> io::Result<Option<Piece>> {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let no_range = || bad_answer("no valid header Content-Range".to_owned());
                let (first, size) = content_range(response.headers()).ok_or_else(no_range)?;
                if first != Some(range.start) {
                    let expected = range.start;
                    return Err(bad_answer(format!("a range from {first:?}, expected byte {expected}")));
                }
                let token = token(response.headers(), size);
                let wanted = range.end.min(size).saturating_sub(range.start);
                let mut bytes = Vec::new();
                while let Some(chunk) = response.chunk().await.map_err(body_error)? {
                    bytes.extend_from_slice(&chunk);
                    if bytes.len() as u64 > ANSWER_BYTES_MAX.max(wanted) {
                        return Err(bad_answer(format!("more than the {wanted} bytes of the range")));
                    }
                }
                bytes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
                Ok(Some(Piece { bytes, size, token }))
            }
            // An empty object has no range, so the server refuses every range.
            StatusCode::RANGE_NOT_SATISFIABLE => match content_range(response.headers()) {
                Some((None, size)) if size == 0 || size <= range.start => {
                    Ok(Some(Piece { bytes: Vec::new(), size, token: token(response.headers(), size) }))
                }
                _ => Err(bad_answer("the status 416 and no valid size".to_owned())),
            },
            // The server supported ranges before. So this is another version of the object, or another server.
            _ if expected.is_some() => Err(changed()),
            _ => {
                let mut whole = Whole::new()?;
                while let Some(chunk) = response.chunk().await.map_err(body_error)? {
                    whole.append(&chunk)?;
                }
                whole.token = token(response.headers(), whole.size);
                *self.whole.borrow_mut() = Some(whole);
                Ok(None)
            }
        }
    }

    /// Sends the request. If the server is busy or the request was lost, sends it again after a pause.
    async fn send(&self, range: &Range<u64>) -> io::Result<Response> {
        let started = Instant::now();
        let mut pause = BACKOFF_FIRST;
        for attempt in 0.. {
            let request = self
                .client
                .get(self.url.clone())
                .header(header::ACCEPT_ENCODING, "identity")
                .header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
            let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.send_noted("GET", request)).await;
            let retries_max = match &sent {
                Ok(Err(error)) if error.is_connect() => CONNECT_RETRIES_MAX,
                _ => RETRIES_MAX,
            };
            let is_last = attempt >= retries_max || started.elapsed() > RETRY_TIMEOUT;
            let retry_after = match sent {
                Err(_) if is_last => {
                    return Err(io::Error::other(format!("no answer for {} s", ANSWER_TIMEOUT.as_secs())));
                }
                Err(_) => None,
                Ok(Err(error)) if is_last || error.is_builder() || error.is_redirect() => {
                    return Err(http_error(error));
                }
                Ok(Err(_)) => None,
                Ok(Ok(response)) => match response.status() {
                    StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                        return Ok(response);
                    }
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT if !is_last => {
                        Some(self::retry_after(response.headers()))
                    }
                    status if status.is_server_error() && !is_last => {
                        Some(self::retry_after(response.headers()))
                    }
                    status => return Err(io::Error::other(format!("the server answers {status}"))),
                },
            };
            let requested = retry_after.flatten().unwrap_or(Duration::ZERO);
            tokio::time::sleep(pause.mul_f64(fastrand::f64() / 2.0 + 0.75).max(requested)).await;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
        unreachable!("the last attempt returns")
    }
}

/// The pause in `Retry-After`, up to [`BACKOFF_MAX`].
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(BACKOFF_MAX))
}

/// The first byte of the range (if the response has bytes) and the size of the whole object, from `bytes 0-9/100` or
/// `bytes */100`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, u64)> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let first = match range {
        "*" => None,
        range => Some(range.split_once('-')?.0.parse().ok()?),
    };
    Some((first, size.parse().ok()?))
}

fn token(headers: &HeaderMap, size: u64) -> Vec<u8> {
    let of = |name| headers.get(name).map(|value: &header::HeaderValue| value.as_bytes());
    match (of(header::ETAG), of(header::LAST_MODIFIED)) {
        (None, None) => Vec::new(),
        (tag, time) => {
            let parts = [tag.unwrap_or_default(), time.unwrap_or_default(), &size.to_le_bytes()[..]];
            digest(&parts.join(&0)).to_vec()
        }
    }
}

fn bad_answer(found: String) -> io::Error {
    io::Error::other(format!("the server's answer to a request for a range has {found}"))
}

/// The error for a response that was cut in its body ([`is_cut`]).
fn body_error(error: reqwest::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, text_with_causes(&error.without_url()))
}

/// True for an error of [`body_error`].
fn is_cut(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted
}

/// The text of the library's error and of its causes, without the URL, which may have a password in it.
fn http_error(error: reqwest::Error) -> io::Error {
    io::Error::other(text_with_causes(&error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// A server that sends these responses, each over a connection of its own. Returns the URL of a document, and the
    /// thread that returns the requests.
    fn serve(responses: &'static [&'static str]) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a.txt?key=secret", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let answer = |response: &&str| {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
                let request: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                stream.write_all(response.as_bytes()).unwrap();
                request.join("\n")
            };
            responses.iter().map(answer).collect()
        });
        (url, server)
    }

    fn text(url: &str) -> String {
        let http = Http::open(url, false).unwrap();
        let mut bytes = vec![0; http.object.pinned().unwrap().0 as usize];
        let got = http.object.read_at(0, &mut bytes).unwrap();
        String::from_utf8(bytes[..got].to_vec()).unwrap()
    }

    #[test]
    fn a_response_that_is_cut_in_its_body_is_requested_again() {
        let (url, server) = serve(&[
            "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwor",
            "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwords",
        ]);
        assert_eq!(text(&url), "words");
        assert_eq!(server.join().unwrap().len(), 2);
    }

    #[test]
    fn a_redirect_does_not_send_the_first_url() {
        let (url, server) = serve(&[
            "HTTP/1.1 302 Found\r\nLocation: /b.txt\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwords",
        ]);
        assert_eq!(text(&url), "words");
        let requests = server.join().unwrap();
        assert!(requests[0].contains("key=secret") && !requests[1].contains("secret"), "{requests:?}");
    }

    #[test]
    fn the_name_of_a_document_is_the_end_of_its_url() {
        let name = |url: &str| String::from_utf8(name_of(&Url::parse(url).unwrap())).unwrap();
        assert_eq!(name("http://h/a/b.zip?x=1#y"), "b.zip");
        assert_eq!(name("http://h/a/b%20c.zip/"), "b c.zip");
        assert_eq!(name("http://h/a%2fb"), "a_b");
        assert_eq!(name("http://h.example:81/"), "h.example");
        assert_eq!(name("http://h/%2e%2e"), "h");
    }

    #[test]
    fn content_ranges_are_parsed() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, text.parse().unwrap());
            content_range(&headers)
        };
        assert_eq!(read("bytes 5-9/100"), Some((Some(5), 100)));
        assert_eq!(read("bytes */0"), Some((None, 0)));
        for odd in ["", "bytes", "bytes 5-9", "bytes 5-9/*", "items 5-9/100", "bytes x-9/100"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let http = Http::open("https://ada:secret@h.example/x.zip?key=secret", false).unwrap();
        assert_eq!(http.shown, PathBuf::from("https://h.example/x.zip"));
        assert!(Http::open("http://", false).is_err());
        for (source, expected) in [
            ("http://ada:se@cret@h.example/x.zip?X-Amz-Signature=secret", "http://h.example/x.zip"),
            ("http://ada:secret@h.example:99999/x.zip?key=secret", "http://h.example:99999/x.zip"),
            ("http://ada:secret@h h/x.zip", "http://h h/x.zip"),
            ("s3://ada:se@cret@bucket/a@b", "s3://bucket/a@b"),
            ("git+file:///a/repository@main", "git+file:///a/repository@main"),
            ("/a/folder@home?x", "/a/folder@home?x"),
        ] {
            assert_eq!(shown(source), expected);
        }
    }
}
