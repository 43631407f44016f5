//! `/v1/keys/{key}`: one key's value.
//!
//! A string comes as its bytes, with `ETag` and `Range`; a hash as a JSON object. `Strand-Type` tells the type, `Strand-TTL-Ms`
//! the milliseconds left, in a response and in a PUT (where `keep` keeps what is left). A PUT whose length is known goes
//! straight into the value's own memory as it comes; one without (chunked) is gathered first, up to
//! [`CHUNKED_BYTES_MAX`]. With `Strand-Type: hash` it is a JSON object that replaces the key: DEL and HSET, so that a
//! reader in between sees no key.
//!
//! `If-Match: *` and `If-None-Match: *` of a PUT are SET's XX and NX, so nothing can come in between. Another condition on a
//! PUT or DELETE would have to be looked at apart from the write, and is refused: a check that a second writer can slip
//! through is worse than none.

use crate::body::ResponseBody;
use crate::conditions::{self, Condition, Conditions, Tagger, Verdict};
use crate::json::JsonWriter;
use crate::link::Link;
use crate::problem::Problem;
use crate::serve::{Context, Request, Response};
use crate::text;
use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
};
use hyper::{HeaderMap, StatusCode};
use serde_json::Value;
use std::rc::Rc;
use strand_chain::Chain;
use strand_wire::digits::Digits;
use strand_wire::events::Event;

/// Longest body of unknown length that is taken, in bytes.
pub const CHUNKED_BYTES_MAX: usize = 64 << 20;
/// Longest JSON of a hash that is taken, in bytes: it is parsed in one go, some 5 ns a byte.
pub const HASH_BYTES_MAX: usize = 1 << 20;
/// The header that tells a value's type.
pub const TYPE: HeaderName = HeaderName::from_static("strand-type");
/// The header that tells how many milliseconds a value has left.
pub const TTL_MS: HeaderName = HeaderName::from_static("strand-ttl-ms");

/// GET and HEAD.
pub async fn get(context: Rc<Context>, request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    let conditions = Conditions::of(&request.parts.headers)?;
    let link = &context.link;
    link.command(&[b"GET", &key]);
    link.command(&[b"PTTL", &key]);
    match link.event().await? {
        Event::Text { is_error: false, .. } => {
            let value = link.text().await?;
            let ttl_ms = ttl(&context).await?;
            string(&context, &request.parts.headers, &conditions, value, ttl_ms).await
        }
        Event::Error(text) if text.starts_with(b"WRONGTYPE") => {
            let ttl_ms = ttl(&context).await?;
            other(context, &conditions, &key, ttl_ms).await
        }
        Event::Error(text) => Err(Problem::of_reply(&text)),
        _ if conditions.judge(None) == Verdict::Failed => {
            Err(Problem::precondition_failed("there is no such key"))
        }
        _ => Err(Problem::not_found("there is no such key")),
    }
}

async fn ttl(context: &Context) -> Result<i64, Problem> {
    match context.link.event().await? {
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

async fn string(
    context: &Context,
    asked: &HeaderMap,
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
    match conditions.judge(Some(tag.as_deref())) {
        Verdict::Go => {}
        Verdict::Failed => return Err(Problem::precondition_failed("the value is another one")),
        Verdict::NotModified => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
    }
    let len = value.len();
    let part = conditions::range(asked, len, tag.as_deref())?;
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
    *response.body_mut() = ResponseBody::Chain(value, context.outgoing.clone());
    Ok(response)
}

/// A value that is no string.
async fn other(
    context: Rc<Context>,
    conditions: &Conditions,
    key: &[u8],
    ttl_ms: i64,
) -> Result<Response, Problem> {
    let link = &context.link;
    link.command(&[b"TYPE", key]);
    let kind = link.line().await?.unwrap_or_default();
    match (kind.as_slice(), conditions.judge(Some(None))) {
        (b"none", _) => return Err(Problem::not_found("there is no such key")),
        (_, Verdict::Failed) => return Err(Problem::precondition_failed("hashes have no entity tag")),
        (b"hash", Verdict::Go) => {}
        (b"hash", Verdict::NotModified) => {
            let mut response = Response::new(ResponseBody::Empty);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        (kind, _) => {
            let kind = String::from_utf8_lossy(kind);
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, format!("a {kind} cannot be shown here")));
        }
    }
    link.command(&[b"HGETALL", key]);
    let first = match link.event().await? {
        Event::Error(text) => return Err(Problem::of_reply(&text)),
        first => first,
    };
    let streamed = context.clone();
    let mut response = Response::new(ResponseBody::made(|writer| async move {
        let mut json = JsonWriter::new(writer);
        json.value(&streamed.link, first).await?;
        json.flush().await;
        Ok(())
    }));
    describe(response.headers_mut(), "hash", ttl_ms);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// When a PUT's value goes.
/// The longest time to live: half of what an expiry can be, as now is added to it.
const TTL_MS_MAX: u64 = i64::MAX as u64 / 2;
/// Parts of a chunked body that are shorter are put together, up to so many bytes.
const SMALL_PART_BYTES: usize = 4 * 1024;
const GATHERED_BYTES: usize = 64 * 1024;

enum Expiry {
    Never,
    Keep,
    AfterMs(u64),
}

impl Expiry {
    fn of(headers: &HeaderMap) -> Result<Expiry, Problem> {
        let Some(value) = headers.get(TTL_MS) else { return Ok(Expiry::Never) };
        let text = value.to_str().unwrap_or_default();
        if text.eq_ignore_ascii_case("keep") {
            return Ok(Expiry::Keep);
        }
        let ms = text
            .parse()
            .ok()
            .filter(|ms| (1..=TTL_MS_MAX).contains(ms) && text.bytes().all(|b| b.is_ascii_digit()));
        ms.map(Expiry::AfterMs).ok_or_else(|| {
            Problem::bad_request("Strand-TTL-Ms is a number of milliseconds above 0, or `keep`")
        })
    }
}

/// PUT.
pub async fn put(context: Rc<Context>, mut request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    let expiry = Expiry::of(&request.parts.headers)?;
    let only = presence(&Conditions::of(&request.parts.headers)?)?;
    match request.parts.headers.get(TYPE).map(HeaderValue::as_bytes) {
        None | Some(b"string") => {}
        Some(b"hash") if only.is_some() => {
            return Err(Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "a hash cannot be written under a condition",
            ));
        }
        Some(b"hash") => return put_hash(&context, &mut request, &key, &expiry).await,
        Some(_) => return Err(Problem::bad_request("Strand-Type is string or hash")),
    }
    let link = &context.link;
    let known = request.body.size_hint().exact();
    let gathered = match known {
        Some(_) => None,
        None => Some(gather(link, &mut request, CHUNKED_BYTES_MAX).await?),
    };
    let len = known.map_or_else(|| gathered.iter().flatten().map(Bytes::len).sum(), |n| n as usize);
    if len > context.settings.bulk_bytes_max {
        return Err(Problem::too_large(context.settings.bulk_bytes_max as u64));
    }
    let ttl = match expiry {
        Expiry::AfterMs(ms) => Some(Digits::unsigned(ms)),
        _ => None,
    };
    let mut options: Vec<&[u8]> = Vec::new();
    options.extend(only);
    match &ttl {
        Some(ms) => options.extend([&b"PX"[..], ms.as_slice()]),
        None if matches!(expiry, Expiry::Keep) => options.push(b"KEEPTTL"),
        None => {}
    }
    link.command(&[b"EXISTS", &key]);
    link.begin_command(3 + options.len());
    link.argument(b"SET");
    link.argument(&key);
    link.begin_argument(len);
    let mut tagger =
        (len <= context.settings.etag_bytes_max).then(|| Tagger::new(context.settings.etag_seed));
    let mut pass = |part: Bytes| {
        tagger.iter_mut().for_each(|t| t.update(&part));
        link.front().push_bytes(part);
    };
    match gathered {
        Some(parts) => {
            for part in parts {
                link.room().await?;
                pass(part);
            }
        }
        None => {
            let mut left = len;
            while left > 0 {
                link.room().await?;
                // A client that ends early leaves half a command, which ends with the connection.
                let part = request.data().await?.ok_or_else(|| {
                    context.link.front().close();
                    Problem::bad_request("the body is shorter than it was to be").closing()
                })?;
                left -= part.len().min(left);
                pass(part);
            }
        }
    }
    link.end_argument();
    options.iter().for_each(|option| link.argument(option));
    let was_there = link.line().await?.is_some_and(|n| n != b"0");
    let mut response = match link.line().await? {
        Some(_) => Response::new(ResponseBody::Empty),
        None => {
            return Err(Problem::precondition_failed(if was_there {
                "the key is there"
            } else {
                "there is no such key"
            }));
        }
    };
    *response.status_mut() = if was_there { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    let tag = tagger.and_then(|t| HeaderValue::from_str(&t.tag()).ok());
    response.headers_mut().extend(tag.map(|tag| (ETAG, tag)));
    Ok(response)
}

/// SET's option for the conditions, when they are of the kind that it has.
fn presence(conditions: &Conditions) -> Result<Option<&'static [u8]>, Problem> {
    match (&conditions.matches, &conditions.none_matches) {
        (None, None) => Ok(None),
        (Some(Condition::Any), None) => Ok(Some(b"XX")),
        (None, Some(Condition::Any)) => Ok(Some(b"NX")),
        _ => Err(Problem::unprocessable(
            "a write can be made to depend on `If-Match: *` or `If-None-Match: *`, not on an entity tag",
        )),
    }
}

async fn put_hash(
    context: &Context,
    request: &mut Request,
    key: &[u8],
    expiry: &Expiry,
) -> Result<Response, Problem> {
    let bad = |detail: String| Problem::bad_request(detail);
    let body: Vec<u8> = gather(&context.link, request, HASH_BYTES_MAX).await?.concat();
    let object = match serde_json::from_slice(&body) {
        Ok(Value::Object(object)) if !object.is_empty() => object,
        Ok(_) => return Err(bad("a hash is a JSON object with a member at least".into())),
        Err(e) => {
            return Err(bad(format!("the body is no JSON: {e}"))
                .member("line", e.line())
                .member("column", e.column()));
        }
    };
    let mut fields = Vec::with_capacity(2 * object.len());
    for (name, value) in object {
        let value = match value {
            Value::String(text) => text::unquote(text),
            Value::Number(n) => Some(n.to_string().into_bytes()),
            _ => None,
        };
        let (Some(field), Some(value)) = (text::unquote(name.clone()), value) else {
            return Err(bad(format!("the member {name:?} is no string (or its Base64 is none)")));
        };
        fields.extend([field, value]);
    }
    let link = &context.link;
    link.command(&[b"PTTL", key]);
    let kept = link.line().await?.and_then(|t| String::from_utf8(t).ok()?.parse::<i64>().ok());
    link.command(&[b"DEL", key]);
    link.begin_command(2 + fields.len());
    link.argument(b"HSET");
    link.argument(key);
    for field in &fields {
        link.room().await?;
        link.argument(field);
    }
    let ttl_ms = match expiry {
        Expiry::AfterMs(ms) => Some(*ms as i64),
        Expiry::Keep => kept.filter(|ms| *ms > 0),
        Expiry::Never => None,
    };
    if let Some(ms) = ttl_ms {
        link.command(&[b"PEXPIRE", key, Digits::int(ms).as_slice()]);
    }
    let was_there = link.line().await?.is_some_and(|n| n != b"0");
    link.line().await?;
    if ttl_ms.is_some() {
        link.line().await?;
    }
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = if was_there { StatusCode::NO_CONTENT } else { StatusCode::CREATED };
    Ok(response)
}

/// DELETE.
pub async fn delete(context: Rc<Context>, request: Request, key: Vec<u8>) -> Result<Response, Problem> {
    let only = presence(&Conditions::of(&request.parts.headers)?)?;
    if only == Some(b"NX") {
        return Err(Problem::precondition_failed("what is not there cannot be deleted"));
    }
    context.link.command(&[b"DEL", &key]);
    match context.link.line().await?.as_deref() {
        Some(b"0") if only.is_some() => Err(Problem::precondition_failed("there is no such key")),
        Some(b"0") => Err(Problem::not_found("there is no such key")),
        _ => {
            let mut response = Response::new(ResponseBody::Empty);
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
    }
}

/// A whole body, in the parts that it came in.
async fn gather(link: &Link, request: &mut Request, bytes_max: usize) -> Result<Vec<Bytes>, Problem> {
    let announced = request.body.size_hint().exact();
    if announced.is_some_and(|n| n > bytes_max as u64) {
        return Err(Problem::too_large(bytes_max as u64));
    }
    // Small ones together: a body in chunks of one byte would cost 32 bytes a byte.
    let (mut parts, mut small, mut len) = (Vec::new(), Vec::new(), 0);
    while let Some(part) = request.data().await? {
        len += part.len();
        if len > bytes_max {
            let problem = Problem::too_large(bytes_max as u64);
            return Err(match request.parts.headers.contains_key(CONTENT_LENGTH) {
                true => problem,
                false => problem.member("hint", "a body with a Content-Length may be longer"),
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
        link.front().hold(len);
    }
    parts.extend((!small.is_empty()).then(|| Bytes::from(small)));
    Ok(parts)
}
