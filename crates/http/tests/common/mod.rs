//! Shared by the tests of the parsers and the fuzz target. Checks that no input of a client or session panics, that
//! splitting the input does not change the result, and that written output parses again.

use bytes::{Buf, Bytes};
use hyper::HeaderMap;
use hyper::body::Body;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE};
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use strand_chain::Chain;
use strand_http::auth;
use strand_http::body::ResponseBody;
use strand_http::conditions::{self, Conditions};
use strand_http::elements::{BodyForm, Elements};
use strand_http::json::JsonWriter;
use strand_http::pipe::pipe;
use strand_http::problem::Problem;
use strand_http::query::Query;
use strand_http::session_client::SessionClient;
use strand_http::text;
use strand_http::xml::{Node, Source, Xml};

/// Maximum number of polls of a future before the test fails.
const POLLS_MAX: usize = 1_000_000;

/// The body of the fuzz target `http_parsers`. The first byte selects the parser, the second the size of the
/// pieces.
pub fn fuzz_http_parsers(data: &[u8]) {
    let [which, piece, rest @ ..] = data else { return };
    let piece = usize::from(*piece) + 1;
    match which % 5 {
        0 => xml(rest, piece),
        1 => elements(rest, piece),
        2 => query(rest),
        3 => headers(rest),
        _ => replies(rest, piece),
    }
}

/// A body that arrives in these pieces.
pub struct Parts(pub VecDeque<Bytes>);

impl Source for Parts {
    fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        Poll::Ready(Ok(self.0.pop_front()))
    }
    fn hold(&mut self, _: usize) {}
}

/// Runs a future that never waits for anything else, and returns its output.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
    }
    panic!("the future never ends");
}

/// The nodes of a document, with adjacent texts joined; `None` when the document is refused.
fn nodes(data: &[u8], piece: usize) -> Option<Vec<Node>> {
    let mut xml = Xml::new(Parts(data.chunks(piece).map(Bytes::copy_from_slice).collect()));
    let mut nodes = Vec::new();
    loop {
        let node = match wait(xml.next()) {
            Ok(node) => node,
            Err(problem) => {
                let document = problem.document();
                assert!(document["line"].as_u64() >= Some(1) && document["column"].as_u64() >= Some(1));
                return None;
            }
        };
        match (nodes.last_mut(), node) {
            (_, Node::End) => return Some(nodes),
            (Some(Node::Text(text)), Node::Text(more)) => text.push_str(&more),
            (_, node) => nodes.push(node),
        }
    }
}

fn xml(data: &[u8], piece: usize) {
    assert_eq!(nodes(data, piece), nodes(data, data.len().max(1)));
}

fn commands(body: &[u8], piece: usize) -> Option<(Vec<Vec<u8>>, BodyForm)> {
    let (mut elements, mut found) = (Elements::new(), Vec::new());
    for part in body.chunks(piece) {
        elements.push(part);
        assert!(elements.held() <= body.len());
        while let Some(command) = elements.next_command().ok()? {
            found.push(command);
        }
    }
    elements.end().ok()?;
    Some((found, elements.form()))
}

fn elements(data: &[u8], piece: usize) {
    let found = commands(data, piece);
    assert_eq!(found, commands(data, data.len().max(1)));
    // An input that the JSON parser reads as an array of arrays must be read the same way here.
    if let Ok(all) = serde_json::from_slice::<Vec<Vec<serde_json::Value>>>(data)
        && !all.is_empty()
    {
        assert_eq!(found.map(|(commands, form)| (commands.len(), form)), Some((all.len(), BodyForm::Array)));
    }
}

fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(query) = Query::parse(text) {
        assert_eq!(Query::parse(&query.text()).ok(), Some(query));
    }
    let mut quoted = Vec::new();
    text::quote(data, &mut quoted);
    let json: String = serde_json::from_slice(&quoted).expect("JSON");
    let mut unquoted = Vec::new();
    assert_eq!(text::unquote(&json, &mut unquoted), Some(()));
    assert_eq!(unquoted, data);
}

fn headers(data: &[u8]) {
    let [which, len, value @ ..] = data else { return };
    let names: [HeaderName; 5] = [IF_MATCH, IF_NONE_MATCH, RANGE, IF_RANGE, AUTHORIZATION];
    let name = names[usize::from(*which) % names.len()].clone();
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let headers: HeaderMap = [(name, value)].into_iter().collect();
    let len = usize::from(*len);
    if let Ok(Some(part)) = conditions::range(&headers, len, Some("\"tag\"")) {
        assert!(part.start < part.end && part.end <= len);
    }
    if let Ok(conditions) = Conditions::of(&headers) {
        let all = [&conditions.matches, &conditions.none_matches].into_iter().flatten();
        assert!(all.flat_map(|c| c.digests(true)).all(|digest| !digest.is_empty() || data.contains(&b'"')));
        conditions.evaluate(Some(Some("\"tag\"")));
    }
    let _ = auth::credentials(&headers);
}

/// Checks that every reply of a session becomes one JSON value, however the reply is split.
fn replies(data: &[u8], piece: usize) {
    let written = |piece: usize| {
        let (http_end, session_end) = pipe();
        let mut session_end = Some(session_end);
        let ended = Rc::new(Cell::new(false));
        let whole = ended.clone();
        let mut body = ResponseBody::generated(|writer| async move {
            let session = SessionClient::new(http_end);
            let mut json = JsonWriter::new(writer, &session);
            let first = session.event().await?;
            json.value(&session, first).await?;
            json.flush().await;
            whole.set(true);
            Ok(())
        });
        let mut cx = Context::from_waker(Waker::noop());
        let (mut out, mut parts) = (Vec::new(), data.chunks(piece));
        for _ in 0..POLLS_MAX {
            match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    out.extend_from_slice(frame.into_data().ok().expect("data").chunk());
                }
                Poll::Ready(_) => return ended.get().then_some(out),
                Poll::Pending => match (parts.next(), &mut session_end) {
                    (Some(part), Some(session_end)) => {
                        let mut chain = Chain::new();
                        chain.push_slice(part);
                        session_end.write(&mut chain, usize::MAX);
                    }
                    // The session ends at this point of the test.
                    _ => session_end = None,
                },
            }
        }
        panic!("the future never ends");
    };
    let (found, whole) = (written(piece), written(data.len().max(1)));
    // An error that follows a value directly may be found before or after the value is written.
    if found.is_some() && whole.is_some() {
        assert_eq!(found, whole);
    }
    for json in found.into_iter().chain(whole) {
        serde_json::from_slice::<serde_json::Value>(&json).expect("one JSON value");
    }
}
