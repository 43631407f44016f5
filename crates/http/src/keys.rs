//! `/v1/keys/{key}`: one key's value.
//!
//! A string is sent as its bytes, with `ETag` and `Range`. A hash is a JSON object, and the other types are JSON
//! arrays ([`crate::collections`]). `Strand-Type` is the type. `Strand-TTL-Ms` is the remaining time in
//! milliseconds, in a response and in a PUT (where `keep` keeps the remaining time). A PUT with a known length is
//! written directly into the memory of the new value while it arrives. A chunked PUT is gathered first, up to
//! [`CHUNKED_BYTES_MAX`]. A PUT with `Strand-Type: hash` is a JSON object that replaces the key, by HREPLACE.
//!
//! A conditional write is one command, so no other write can come in between: SET with NX or XX for `*`, SETIF and
//! DELIF for entity tags.

use crate::body::ResponseBody;
use crate::collections::{self, ATTEMPTS_MAX, CollectionType, KeyCondition};
use crate::conditions::{self, Condition, Conditions, Verdict};
use crate::exchange::{Context, Request, Response};
use crate::json::JsonWriter;
use crate::json_reader::Words;
use crate::problem::Problem;
use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use std::rc::Rc;
use strand_chain::Chain;
use strand_digest::Digest;
use strand_wire::events::Event;

/// Maximum length of a body whose length is not announced, in bytes.
pub const CHUNKED_BYTES_MAX: usize = 64 << 20;
/// Maximum length of a JSON value, in bytes. The reader yields between values, but not inside a string.
pub const JSON_BYTES_MAX: usize = 1 << 20;
/// The response header with the type of a value.
pub const TYPE: HeaderName = HeaderName::from_static("strand-type");
/// The header with a value's remaining time, in milliseconds.
pub const TTL_MS: HeaderName = HeaderName::from_static("strand-ttl-ms");

/// Answers GET and HEAD of a key.
pub async fn get(context: Rc<Context>, request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    for _ in 0..ATTEMPTS_MAX {
        if let Some(response) = try_get(&context, &request, &key).await? {
            return Ok(response);
        }
    }
    Err(Problem::always_changed())
}

/// Answers GET and HEAD of a key. `None`: another client changed the key between two commands.
async fn try_get(context: &Rc<Context>, request: &Request, key: &[u8]) -> Result<Option<Response>, Problem> {
    let conditions = Conditions::of(&request.parts.headers)?;
    let session = &context.session;
    session.command(&[b"GET", key]);
    session.command(&[b"PTTL", key]);
    match session.event().await? {
        Event::Text { is_error: false, .. } => {
            let value = session.text().await?;
            let ttl_ms = ttl(context).await?;
            send_string(context, &request.parts, &conditions, value, ttl_ms).await.map(Some)
        }
        Event::Error(text) if text.starts_with(b"WRONGTYPE") => {
            let ttl_ms = ttl(context).await?;
            send_collection(context, &conditions, key, ttl_ms).await
        }
        other => {
            // Read the reply to its end, because a reply that is not read would hold a block of memory.
            session.skip_unread_replies().await?;
            Err(match other {
                Event::Error(text) => Problem::of_reply(&text),
                _ if conditions.evaluate(None) == Verdict::Failed => {
                    Problem::precondition_failed("there is no such key")
                }
                _ => Problem::not_found("there is no such key"),
            })
        }
    }
}

async fn ttl(context: &Context) -> Result<i64, Problem> {
    match context.session.event().await? {
        Event::Int(ttl_ms) => Ok(ttl_ms),
        Event::Error(text) => Err(Problem::of_reply(&text)),
        _ => Ok(-1),
    }
}

fn describe(headers: &mut HeaderMap, kind: &'static str, ttl_ms: i64) {
    headers.insert(TYPE, HeaderValue::from_static(kind));
    if ttl_ms >= 0 {
        headers.insert(TTL_MS, HeaderValue::from(ttl_ms));
    }
}

async fn send_string(
    context: &Context,
    asked: &Parts,
    conditions: &Conditions,
    mut value: Chain,
    ttl_ms: i64,
) -> Result<Response, Problem> {
    let tag = match value.len() <= context.settings.etag_bytes_max {
        true => Some(conditions::tag(&value, context.settings.etag_seed).await),
        false => None,
    };
    let mut response = Response::new(ResponseBody::Empty);
    let headers = response.headers_mut();
    describe(headers, "string", ttl_ms);
    if let Some(tag) = tag.as_ref().and_then(|t| HeaderValue::from_str(t).ok()) {
        headers.insert(ETAG, tag);
    }
    match conditions.evaluate(Some(tag.as_deref())) {
        Verdict::Proceed => {}
        Verdict::Failed => {
            return Err(Problem::precondition_failed(
                "the key has another value: its entity tag does not match",
            ));
        }
        Verdict::NotModified => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
    }
    let len = value.len();
    // Only GET has ranges (RFC 9110, section 14.2).
    let part = match asked.method {
        Method::GET => conditions::range(&asked.headers, len, tag.as_deref())?,
        _ => None,
    };
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(part) = part {
        let range = format!("bytes {}-{}/{len}", part.start, part.end - 1);
        headers.extend(HeaderValue::from_str(&range).ok().map(|range| (CONTENT_RANGE, range)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        value.advance(part.start);
        value = value.split_to(part.len());
    }
    let holding = context.session.http_end().holding();
    *response.body_mut() = ResponseBody::chain(value, context.outgoing.clone(), holding);
    Ok(response)
}

/// Sends a value that is no string. `None`: another client changed the key meanwhile.
async fn send_collection(
    context: &Rc<Context>,
    conditions: &Conditions,
    key: &[u8],
    ttl_ms: i64,
) -> Result<Option<Response>, Problem> {
    let session = &context.session;
    session.command(&[b"TYPE", key]);
    let kind = session.line().await?.unwrap_or_default();
    match (kind.as_slice(), conditions.evaluate(Some(None))) {
        (b"none", _) => return Err(Problem::not_found("there is no such key")),
        // A string has entity tags.
        (b"string", _) => return Ok(None),
        (_, Verdict::Failed) => {
            return Err(Problem::precondition_failed("only strings have entity tags"));
        }
        (_, Verdict::Proceed) => {}
        (_, Verdict::NotModified) => {
            let mut response = Response::new(ResponseBody::Empty);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(Some(response));
        }
    }
    let Some(kind) = CollectionType::from_name(&kind) else {
        let kind = String::from_utf8_lossy(&kind);
        return Err(Problem::new(
            StatusCode::NOT_IMPLEMENTED,
            format!("a value of the type {kind} cannot be sent over HTTP"),
        ));
    };
    session.command(&kind.read_command(key));
    let first = match session.event().await? {
        Event::Error(text) if text.starts_with(b"WRONGTYPE") => return Ok(None),
        Event::Error(text) => return Err(Problem::of_reply(&text)),
        // Only a stream may be empty. Every other key was deleted.
        Event::Open { values: 0, .. } if kind != CollectionType::Stream => return Ok(None),
        first => first,
    };
    let streamed = context.clone();
    let mut response = Response::new(ResponseBody::generated(|writer| async move {
        let mut json = JsonWriter::new(writer, &streamed.session);
        json.value(&streamed.session, first).await?;
        json.flush().await;
        Ok(())
    }));
    describe(response.headers_mut(), kind.name(), ttl_ms);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Some(response))
}

/// Maximum time to live in milliseconds: half of the largest expiry, because the current time is added to it.
const TTL_MS_MAX: u64 = i64::MAX as u64 / 2;
/// Parts of a body that are shorter than this are joined until they have `GATHERED_BYTES`.
const SMALL_PART_BYTES: usize = 4 * 1024;
const GATHERED_BYTES: usize = 64 * 1024;
/// More bytes than an argument of a command takes besides its own bytes.
const FRAME_BYTES: usize = 32;

/// The expiry of a PUT's value.
pub enum Expiry {
    /// The value never expires.
    Never,
    /// The value keeps the expiry of the old value.
    Keep,
    /// The value expires this many milliseconds from now.
    AfterMs(u64),
}

impl Expiry {
    /// The options of SET for this expiry.
    fn options(&self) -> Vec<Vec<u8>> {
        match self {
            Expiry::Never => Vec::new(),
            Expiry::Keep => vec![b"KEEPTTL".to_vec()],
            Expiry::AfterMs(ms) => vec![b"PX".to_vec(), ms.to_string().into_bytes()],
        }
    }
    fn of(headers: &HeaderMap) -> Result<Expiry, Problem> {
        let Some(value) = at_most_one(headers, &TTL_MS, "Strand-TTL-Ms")? else { return Ok(Expiry::Never) };
        let text = value.to_str().unwrap_or_default();
        if text.eq_ignore_ascii_case("keep") {
            return Ok(Expiry::Keep);
        }
        let ms = text
            .parse()
            .ok()
            .filter(|ms| (1..=TTL_MS_MAX).contains(ms) && text.bytes().all(|b| b.is_ascii_digit()));
        ms.map(Expiry::AfterMs).ok_or_else(|| {
            Problem::bad_request(format!(
                "Strand-TTL-Ms is {text:?}: expected a number of milliseconds above 0, or `keep`"
            ))
        })
    }
}

/// The value of a header that a request has at most once. `name` is the header's name as the documents write it.
///
/// # Errors
/// 400 when the header is repeated.
fn at_most_one<'h>(
    headers: &'h HeaderMap,
    header: &HeaderName,
    name: &str,
) -> Result<Option<&'h HeaderValue>, Problem> {
    let mut values = headers.get_all(header).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Problem::bad_request(format!("expected at most one {name} header"))),
        (value, None) => Ok(value),
    }
}

/// Answers PUT of a key.
pub async fn put(context: Rc<Context>, mut request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    // A part must not replace the whole value (RFC 9110, section 14.5).
    if request.parts.headers.contains_key(CONTENT_RANGE) {
        return Err(
            Problem::bad_request("a PUT replaces the whole value, so it has no Content-Range").closing()
        );
    }
    let expiry = Expiry::of(&request.parts.headers)?;
    let conditions = Conditions::of(&request.parts.headers)?;
    match at_most_one(&request.parts.headers, &TYPE, "Strand-Type")?.map(HeaderValue::as_bytes) {
        None | Some(b"string") => put_string(&context, &mut request, &key, &expiry, &conditions).await,
        Some(name) => match CollectionType::from_name(name) {
            Some(CollectionType::Hash) => put_hash(&context, &mut request, &key, &expiry, &conditions).await,
            Some(kind) => put_collection(&context, &mut request, &key, kind, &expiry, &conditions).await,
            None => Err(Problem::bad_request(format!(
                "Strand-Type is \"{}\": expected string, hash, list, set, zset or stream",
                name.escape_ascii()
            ))),
        },
    }
}

async fn put_string(
    context: &Context,
    request: &mut Request,
    key: &[u8],
    expiry: &Expiry,
    conditions: &Conditions,
) -> Result<Response, Problem> {
    let (condition, ttl) = (WriteCondition::of(conditions, context), expiry.options());
    let command: &[&[u8]] = match condition {
        WriteCondition::Digests(_) => &[b"SETIF", key, b""],
        _ => &[b"SET", key, b""],
    };
    context.check_rights(&[command])?;
    let session = &context.session;
    let known = request.body.size_hint().exact();
    let gathered = match known {
        Some(_) => None,
        None => Some(gather(request, CHUNKED_BYTES_MAX).await?),
    };
    let len = known.map_or_else(|| gathered.iter().flatten().map(Bytes::len).sum(), |n| n as usize);
    if len > context.settings.bulk_bytes_max {
        return Err(Problem::too_large(context.settings.bulk_bytes_max as u64));
    }
    let options: Vec<&[u8]> = condition.options().chain(ttl.iter().map(Vec::as_slice)).collect();
    // Beyond this limit the session would end without a reply.
    let beside = command.iter().chain(&options).map(|argument| argument.len() + FRAME_BYTES).sum();
    let len_max = context.settings.query_bytes_max.saturating_sub(beside);
    if len > len_max {
        return Err(Problem::too_large(len_max as u64).member("option", "client-query-buffer-limit"));
    }
    // Only a SET with a condition reports whether the key existed. Ask with EXISTS before any other SET.
    let asks = matches!(condition, WriteCondition::None);
    if asks {
        session.command(&[b"EXISTS", key]);
    }
    session.begin_command(3 + options.len());
    session.argument(command[0]);
    session.argument(key);
    session.begin_argument(len);
    let mut digest =
        (len <= context.settings.etag_bytes_max).then(|| Digest::new(context.settings.etag_seed));
    let mut pass = |part: Bytes| {
        digest.iter_mut().for_each(|d| d.update(&part));
        session.http_end().push_bytes(part);
    };
    match gathered {
        Some(parts) => {
            for part in parts {
                session.wait_for_room().await?;
                pass(part);
            }
        }
        None => {
            let mut left = len;
            while left > 0 {
                session.wait_for_room().await?;
                // A client that stops early leaves an incomplete command, which is dropped when the connection ends.
                let part = request.data().await?.ok_or_else(|| {
                    session.http_end().close();
                    Problem::bad_request("the body is shorter than its Content-Length").closing()
                })?;
                left -= part.len().min(left);
                pass(part);
            }
        }
    }
    session.end_argument();
    options.iter().for_each(|option| session.argument(option));
    // A user who may write but not read is not told whether the key existed.
    let was_there = if asks { session.line().await.ok().flatten().map(|n| n != b"0") } else { None };
    let done = session.line().await?;
    let was_there = match (&condition, done) {
        (WriteCondition::None, _) => was_there,
        (_, None) => return Err(condition.failed()),
        (WriteCondition::Absent, _) => Some(false),
        (WriteCondition::Present, _) => Some(true),
        (WriteCondition::Digests(_), Some(n)) => Some(n != b"0"),
    };
    let mut response = write_response(was_there);
    let tag = digest.and_then(|d| HeaderValue::from_str(&conditions::tag_of(&d.text())).ok());
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
    Ok(response)
}

/// The response to a write: 201 for a new key, and 204 for an existing key or when it is unknown whether the key
/// existed.
fn write_response(was_there: Option<bool>) -> Response {
    let mut response = Response::new(ResponseBody::Empty);
    let is_new = was_there == Some(false);
    *response.status_mut() = if is_new { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    response
}

/// The condition of a write, as options of commands that check the condition and write in one step.
enum WriteCondition {
    None,
    /// The key must not exist: `If-None-Match: *`
    Absent,
    /// The key must exist: `If-Match: *`
    Present,
    /// The value must or must not have certain tags: the options of SETIF and DELIF.
    Digests(Vec<Vec<u8>>),
}

impl WriteCondition {
    fn of(conditions: &Conditions, context: &Context) -> WriteCondition {
        match (&conditions.matches, &conditions.none_matches) {
            (None, None) => return WriteCondition::None,
            (Some(Condition::Any), None) => return WriteCondition::Present,
            (None, Some(Condition::Any)) => return WriteCondition::Absent,
            _ => {}
        }
        let settings = &context.settings;
        let seed = (settings.etag_seed as i64).to_string().into_bytes();
        let limit = settings.etag_bytes_max.to_string().into_bytes();
        let mut options = vec![b"SEED".to_vec(), seed, b"LIMIT".to_vec(), limit];
        for (word, condition) in [("MATCH", &conditions.matches), ("NOMATCH", &conditions.none_matches)] {
            for digest in condition.iter().flat_map(|c| c.digests(word == "NOMATCH")) {
                options.extend([word.into(), digest.into()]);
            }
        }
        WriteCondition::Digests(options)
    }
    fn options(&self) -> impl Iterator<Item = &[u8]> {
        let (word, options): (&[u8], &[Vec<u8>]) = match self {
            WriteCondition::None => (b"", &[]),
            WriteCondition::Absent => (b"NX", &[]),
            WriteCondition::Present => (b"XX", &[]),
            WriteCondition::Digests(options) => (b"", options),
        };
        Some(word).filter(|w| !w.is_empty()).into_iter().chain(options.iter().map(Vec::as_slice))
    }
    fn failed(&self) -> Problem {
        Problem::precondition_failed(match self {
            WriteCondition::Absent => "the key exists",
            WriteCondition::Present => "there is no such key",
            WriteCondition::None | WriteCondition::Digests(_) => {
                "the condition does not hold for the current value"
            }
        })
    }
}

async fn put_collection(
    context: &Context,
    request: &mut Request,
    key: &[u8],
    kind: CollectionType,
    expiry: &Expiry,
    conditions: &Conditions,
) -> Result<Response, Problem> {
    let condition = condition_of_collection(context, conditions)?;
    let wanted = match condition {
        WriteCondition::Absent => KeyCondition::Absent,
        WriteCondition::Present => KeyCondition::Present,
        WriteCondition::None | WriteCondition::Digests(_) => KeyCondition::Any,
    };
    context.check_rights(&[&kind.write_command(key)])?;
    let commands = kind.commands(key, &json(request).await?, words_of(context)).await?;
    let was_there =
        collections::replace(context, key, &commands, expiry, wanted, || condition.failed()).await?;
    Ok(write_response(Some(was_there)))
}

/// The condition of a write to a key whose value is not a string.
fn condition_of_collection(context: &Context, conditions: &Conditions) -> Result<WriteCondition, Problem> {
    match WriteCondition::of(conditions, context) {
        WriteCondition::Digests(_) => Err(Problem::unprocessable(
            "only strings have entity tags: expected `If-Match: *` or `If-None-Match: *` for a value of another type",
        )),
        condition => Ok(condition),
    }
}

/// No words yet. Their memory will count as the client's.
fn words_of(context: &Context) -> Words {
    Words::new(context.session.http_end().holding())
}

/// Reads a body that should be JSON.
async fn json(request: &mut Request) -> Result<Vec<u8>, Problem> {
    Ok(gather(request, JSON_BYTES_MAX).await?.concat())
}

async fn put_hash(
    context: &Context,
    request: &mut Request,
    key: &[u8],
    expiry: &Expiry,
    conditions: &Conditions,
) -> Result<Response, Problem> {
    let condition = condition_of_collection(context, conditions)?;
    context.check_rights(&[&CollectionType::Hash.write_command(key)])?;
    let fields = collections::hash_fields(&json(request).await?, words_of(context)).await?;
    let (session, ttl) = (&context.session, expiry.options());
    let options: Vec<&[u8]> = condition.options().chain(ttl.iter().map(Vec::as_slice)).collect();
    session.begin_command(3 + options.len() + fields.len());
    [&b"HREPLACE"[..], key].into_iter().chain(options).for_each(|a| session.argument(a));
    session.argument(b"FIELDS");
    session.arguments(fields.iter()).await?;
    match session.line().await? {
        Some(n) => Ok(write_response(Some(n != b"0"))),
        None => Err(condition.failed()),
    }
}

/// Answers DELETE of a key.
pub async fn delete(context: Rc<Context>, request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    let condition = WriteCondition::of(&Conditions::of(&request.parts.headers)?, &context);
    match &condition {
        WriteCondition::Absent => {
            return Err(Problem::precondition_failed(
                "`If-None-Match: *` requires a missing key, and a missing key cannot be deleted",
            ));
        }
        WriteCondition::None | WriteCondition::Present => context.session.command(&[b"DEL", &key]),
        WriteCondition::Digests(_) => {
            let command: Vec<&[u8]> = [&b"DELIF"[..], &key].into_iter().chain(condition.options()).collect();
            context.session.command(&command);
        }
    }
    match context.session.line().await?.as_deref() {
        None => Err(condition.failed()),
        Some(b"0") if matches!(condition, WriteCondition::Present) => Err(condition.failed()),
        Some(b"0") => Err(Problem::not_found("there is no such key")),
        Some(_) => Ok(write_response(None)),
    }
}

/// Reads a whole body, in the parts in which it arrived.
async fn gather(request: &mut Request, bytes_max: usize) -> Result<Vec<Bytes>, Problem> {
    let announced = request.body.size_hint().exact();
    if announced.is_some_and(|n| n > bytes_max as u64) {
        return Err(Problem::too_large(bytes_max as u64));
    }
    // Join small parts, because a body of one-byte chunks would need 32 bytes of memory per byte.
    let (mut parts, mut small, mut len) = (Vec::new(), Vec::new(), 0);
    while let Some(part) = request.data().await? {
        len += part.len();
        if len > bytes_max {
            let problem = Problem::too_large(bytes_max as u64);
            return Err(match request.parts.headers.contains_key(CONTENT_LENGTH) {
                true => problem,
                false => problem.member("hint", "send a Content-Length: then the body may be longer"),
            });
        }
        if part.len() < SMALL_PART_BYTES {
            small.extend_from_slice(&part);
        }
        if part.len() >= SMALL_PART_BYTES || small.len() >= GATHERED_BYTES {
            parts.extend((!small.is_empty()).then(|| Bytes::from(std::mem::take(&mut small))));
        }
        if part.len() >= SMALL_PART_BYTES {
            parts.push(part);
        }
        request.hold(len);
    }
    parts.extend((!small.is_empty()).then(|| Bytes::from(small)));
    Ok(parts)
}
