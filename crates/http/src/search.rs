//! `/v1/search/{index}` and `/v1/grep`: FT.SEARCH and RX.GREP. Replies become JSON while they arrive.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::json::JsonWriter;
use crate::problem::Problem;
use crate::query::bad_parameter;
use crate::session_client::{Gone, SessionClient};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::rc::Rc;
use strand_wire::events::Event;

/// Number of results of a search when `limit` is missing.
const LIMIT_DEFAULT: u64 = 10;
/// Maximum number of results of a search, and maximum offset. Both equal FT.SEARCH's limit.
const LIMIT_MAX: u64 = 1_000_000;
/// Number of matches of a grep when `limit` is missing.
const GREP_LIMIT_DEFAULT: u64 = 1000;

/// Answers `GET /v1/search/{index}?q=...&limit=...&offset=...&fields=a,b&sortby=f&desc`
pub async fn search(context: Rc<Context>, request: Request, index: Vec<u8>) -> Result<Response, Problem> {
    let query = &request.query;
    let q = query.require("q")?;
    let limit = query.number("limit", LIMIT_DEFAULT, 0, LIMIT_MAX)?;
    let offset = query.number("offset", 0, 0, LIMIT_MAX)?;
    let mut args: Vec<Vec<u8>> = vec![b"FT.SEARCH".to_vec(), index, q.into()];
    if let Some(fields) = query.get("fields") {
        let fields: Vec<&str> = fields.split(',').filter(|f| !f.is_empty()).collect();
        // Each field with its alias, because a field may have the name `as`.
        args.extend([b"RETURN".to_vec(), (3 * fields.len()).to_string().into()]);
        args.extend(fields.into_iter().flat_map(|field| [field, "AS", field].map(Into::into)));
    }
    if let Some(field) = query.get("sortby") {
        let order = if query.flag("desc")? { "DESC" } else { "ASC" };
        args.extend([b"SORTBY".to_vec(), field.into(), order.into()]);
    }
    args.extend([b"LIMIT".to_vec(), offset.to_string().into(), limit.to_string().into()]);
    args.extend([b"DIALECT".to_vec(), b"2".to_vec()]);
    let pairs = match ask(&context, &args).await? {
        Event::Open { kind: b'%', values } => values / 2,
        _ => return Err(unexpected()),
    };
    // The URI of the next page.
    let next = offset + limit;
    let next_path =
        format!("{}?{}", request.parts.uri.path(), request.query.with("offset", next.to_string()).text());
    Ok(json_response(ResponseBody::generated(|writer| async move {
        let (mut json, session) = (JsonWriter::new(writer, &context.session), &context.session);
        json.raw("{");
        let mut total = 0;
        for _ in 0..pairs {
            match name(session).await?.as_slice() {
                b"total_results" => {
                    if let Event::Int(n) = session.event().await? {
                        total = n;
                        json.raw(&format!("\"total\":{n},"));
                    }
                }
                b"results" => documents(session, &mut json).await?,
                _ => session.skip_value().await?,
            }
        }
        if limit > 0 && total > next as i64 {
            json.raw(",\"next\":");
            json.string(next_path.as_bytes());
        }
        json.raw("}");
        json.flush().await;
        Ok(())
    })))
}

/// Writes `"documents":[{"id":...,"fields":{...}},...]` from a reply of FT.SEARCH.
async fn documents(session: &SessionClient, json: &mut JsonWriter) -> Result<(), Gone> {
    let results = items(session).await?;
    json.raw("\"documents\":[");
    for i in 0..results {
        json.raw(if i == 0 { "{" } else { ",{" });
        let Event::Open { values, .. } = session.event().await? else { return Err(Gone) };
        let mut first = true;
        for _ in 0..values / 2 {
            let member = match name(session).await?.as_slice() {
                b"id" => "\"id\":",
                b"extra_attributes" => "\"fields\":",
                b"score" => "\"score\":",
                _ => {
                    session.skip_value().await?;
                    continue;
                }
            };
            json.raw(if first { "" } else { "," });
            first = false;
            json.raw(member);
            let value = session.event().await?;
            json.value(session, value).await?;
        }
        json.raw("}");
    }
    json.raw("]");
    Ok(())
}

/// Answers `GET /v1/grep?pattern=...&in=keys|values&prefix=...&limit=...&nocase&lines`
pub async fn grep(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let query = &request.query;
    let pattern = query.require("pattern")?;
    let place = match query.get("in") {
        None | Some("values") => "VALUES",
        Some("keys") => "KEYS",
        Some(other) => return Err(bad_parameter("in", other, "keys or values")),
    };
    let lines = query.flag("lines")?;
    let limit = query.number("limit", GREP_LIMIT_DEFAULT, 1, LIMIT_MAX)?;
    let mut args: Vec<Vec<u8>> = vec![b"RX.GREP".to_vec(), place.into(), pattern.into()];
    if let Some(prefix) = query.get("prefix") {
        args.extend([b"PREFIX".to_vec(), prefix.into()]);
    }
    args.extend([b"LIMIT".to_vec(), limit.to_string().into()]);
    if query.flag("nocase")? {
        args.push(b"NOCASE".to_vec());
    }
    if lines {
        args.push(b"WITHVALUES".to_vec());
    }
    let Event::Open { values, .. } = ask(&context, &args).await? else { return Err(unexpected()) };
    Ok(json_response(ResponseBody::generated(move |writer| async move {
        let (mut json, session) = (JsonWriter::new(writer, &context.session), &context.session);
        json.raw("{\"matches\":[");
        for i in 0..values {
            json.raw(if i == 0 { "{" } else { ",{" });
            let members: &[&str] =
                if lines { &["\"key\":", ",\"field\":", ",\"line\":"] } else { &["\"key\":"] };
            if lines {
                items(session).await?;
            }
            for member in members {
                json.raw(member);
                let value = session.event().await?;
                json.value(session, value).await?;
            }
            json.raw("}");
        }
        json.raw("]}");
        json.flush().await;
        Ok(())
    })))
}

/// Sends a command. Returns the first event of its reply.
async fn ask(context: &Context, args: &[Vec<u8>]) -> Result<Event, Problem> {
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    context.session.command(&args);
    match context.session.event().await? {
        Event::Error(text) => Err(Problem::of_reply(&text)),
        first => Ok(first),
    }
}

/// Reads the next key of a map.
async fn name(session: &SessionClient) -> Result<Vec<u8>, Gone> {
    match session.event().await? {
        Event::Simple(name) => Ok(name),
        Event::Text { .. } => session.bytes().await,
        _ => Err(Gone),
    }
}

/// Reads the start of an array, and returns the array's length.
async fn items(session: &SessionClient) -> Result<usize, Gone> {
    match session.event().await? {
        Event::Open { values, .. } => Ok(values),
        _ => Err(Gone),
    }
}

fn unexpected() -> Problem {
    Problem::new(hyper::StatusCode::INTERNAL_SERVER_ERROR, "the reply has another form than expected")
        .closing()
}

/// A response whose body is JSON.
pub fn json_response(body: ResponseBody) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
