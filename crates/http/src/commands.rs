//! `POST /v1/commands`: commands in, results out, both streamed.
//!
//! The body is a JSON array of commands, or one command after another (NDJSON). The form is detected from the body,
//! and the response has the same form. A command is an array of strings and numbers; the strings follow the
//! convention of [`text`](crate::text). Its result is an object with the member `result` or `error`. Results keep the order of
//! the commands. A command is sent when it has arrived, before the results of earlier commands are known. If the
//! body is cut short, the results end with an object with the member `problem`.

use crate::body::ResponseBody;
use crate::elements::{BodyForm, Elements};
use crate::exchange::{Context, Request, Response};
use crate::json::JsonWriter;
use crate::json_reader::{JsonReader, NotJson, Words};
use crate::problem::Problem;
use crate::session_client::Gone;
use crate::turns::Steps;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use json_event_parser::JsonEvent;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{self, Poll, ready};
use strand_wire::events::Event;
use tokio::task::yield_now;

/// Maximum number of commands sent and not yet answered.
const OUTSTANDING_MAX: usize = 1024;
/// Maximum number of bytes of results held for a client that sends without reading. Above this limit the request's body
/// is not read.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Number of commands that are taken from a body before other tasks run.
const COMMANDS_PER_TURN: u64 = 64;
/// Maximum number of arguments of a command, equal to RESP's limit.
const ARGUMENTS_MAX: usize = 1 << 20;

/// Commands that are refused, because they change the state of the connection or have no reply. The request itself
/// sets credentials and the database.
const REFUSED: &[&[u8]] = &[
    b"AUTH",
    b"DISCARD",
    b"EXEC",
    b"HELLO",
    b"MONITOR",
    b"MULTI",
    b"PSUBSCRIBE",
    b"PSYNC",
    b"PUNSUBSCRIBE",
    b"QUIT",
    b"REPLCONF",
    b"RESET",
    b"SELECT",
    b"SHUTDOWN",
    b"SSUBSCRIBE",
    b"SUBSCRIBE",
    b"SUNSUBSCRIBE",
    b"SYNC",
    b"UNSUBSCRIBE",
    b"UNWATCH",
    b"WATCH",
];

/// What a result waits for.
enum Waiting {
    /// The result waits for the reply of the session.
    Reply,
    /// Nothing, because the command was refused: the result is this error.
    Refused(String),
}

/// What the response does next.
enum Step {
    /// The JSON of the next command.
    Command(Vec<u8>),
    BodyEnds(Option<Problem>),
    Event(Result<Event, Gone>),
    Refused(String),
    Done,
}

/// Answers a request with commands.
pub async fn run(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let media = request.media();
    // A page of another site cannot send these media types without a preflight request (see `origin`).
    if !["application/json", "application/x-ndjson", "application/jsonl"].contains(&media.as_str()) {
        let detail = "unsupported Content-Type: expected application/json or application/x-ndjson";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let mut source = Source { request, elements: Elements::new() };
    // An error before the first command gets a response with its own status.
    let mut next = match poll_fn(|cx| source.poll_next(cx)).await? {
        Some(json) => Some(arguments(&context, &json, 1).await?),
        None => None,
    };
    let form = source.elements.form();
    let body = ResponseBody::generated(|writer| async move {
        let mut json = JsonWriter::new(writer, &context.session).holding(HELD_BYTES_MAX);
        let is_array = form == BodyForm::Array;
        if is_array {
            json.raw("[");
        }
        let (mut waiting, mut written) = (VecDeque::new(), 0u64);
        let (mut ended, mut sent) = (None, 0u64);
        loop {
            if let Some(args) = next.take() {
                waiting.push_back(send(&context, &args).await);
                sent += 1;
                if sent % COMMANDS_PER_TURN == 0 {
                    yield_now().await;
                }
            }
            let step = poll_fn(|cx| next_step(cx, &context, &mut source, &waiting, &ended, &mut json));
            match step.await {
                Step::Command(text) => {
                    match arguments(&context, &text, source.elements.command_count()).await {
                        Ok(args) => next = Some(args),
                        Err(problem) => ended = Some(Some(problem)),
                    }
                    continue;
                }
                Step::BodyEnds(problem) => {
                    ended = Some(problem);
                    continue;
                }
                Step::Done => break,
                Step::Event(event) => {
                    write_separator(&mut json, is_array, &mut written);
                    match event? {
                        Event::Error(text) => json.error(&text),
                        first => {
                            json.raw("{\"result\":");
                            json.value(&context.session, first).await?;
                            json.raw("}");
                        }
                    }
                }
                Step::Refused(text) => {
                    write_separator(&mut json, is_array, &mut written);
                    json.error(text.as_bytes());
                }
            }
            waiting.pop_front();
            json.raw(if is_array { "" } else { "\n" });
            json.flush_if_full().await;
        }
        if let Some(Some(problem)) = ended {
            write_separator(&mut json, is_array, &mut written);
            json.raw(&serde_json::json!({ "problem": problem.document() }).to_string());
            json.raw(if is_array { "" } else { "\n" });
        }
        json.raw(if is_array { "]" } else { "" });
        json.flush().await;
        Ok(())
    });
    let mut response = Response::new(body);
    let media = if form == BodyForm::Array { "application/json" } else { "application/x-ndjson" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(response)
}

/// Starts a result. Writes a comma before every result but the first, if the results are an array.
fn write_separator(json: &mut JsonWriter, is_array: bool, written: &mut u64) {
    if is_array && *written > 0 {
        json.raw(",");
    }
    *written += 1;
}

/// Finds the next step: takes a command while the limits allow one, and otherwise waits for the reply to the oldest
/// one.
fn next_step(
    cx: &mut task::Context<'_>,
    context: &Context,
    source: &mut Source,
    waiting: &VecDeque<Waiting>,
    ended: &Option<Option<Problem>>,
    json: &mut JsonWriter,
) -> Poll<Step> {
    if ended.is_none() && waiting.len() < OUTSTANDING_MAX && context.session.http_end().has_room() {
        match source.poll_next(cx) {
            Poll::Ready(Ok(Some(text))) => return Poll::Ready(Step::Command(text)),
            Poll::Ready(Ok(None)) => return Poll::Ready(Step::BodyEnds(None)),
            Poll::Ready(Err(problem)) => return Poll::Ready(Step::BodyEnds(Some(problem))),
            Poll::Pending => {}
        }
    }
    match waiting.front() {
        Some(Waiting::Refused(text)) => return Poll::Ready(Step::Refused(text.clone())),
        Some(Waiting::Reply) => {
            if let Poll::Ready(event) = context.session.poll_event() {
                return Poll::Ready(Step::Event(event));
            }
        }
        None if ended.is_some() => return Poll::Ready(Step::Done),
        None => {}
    }
    // No result can be written now, so send those that have been gathered.
    json.try_flush();
    Poll::Pending
}

/// Sends a command to the session, unless it is refused here.
async fn send(context: &Context, args: &Words) -> Waiting {
    let is = |i: usize, word: &[u8]| args.get(i).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
    let of_client: [&[u8]; 4] = [b"NO-EVICT", b"NO-TOUCH", b"REPLY", b"TRACKING"];
    let changes_client = is(0, b"CLIENT") && of_client.iter().any(|word| is(1, word));
    // The hold would last as long as the connection.
    let holds = is(0, b"IMPORT.VERSION") && is(1, b"HOLD");
    if REFUSED.iter().any(|word| is(0, word)) || changes_client || holds {
        let words = if changes_client || holds { 2 } else { 1 };
        let name = args.iter().take(words).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
        let name = name.to_ascii_uppercase();
        return Waiting::Refused(format!(
            "ERR {name} cannot be used over HTTP: commands that change the connection, or have no reply, are refused"
        ));
    }
    context.session.begin_command(args.len());
    // The pipe may have no room: the command is in memory already, and the replies of earlier commands must be read.
    let mut steps = Steps::default();
    for arg in args.iter() {
        context.session.argument(arg);
        steps.step().await;
    }
    Waiting::Reply
}

/// The commands in the body of a request.
struct Source {
    request: Request,
    elements: Elements,
}

impl Source {
    /// The JSON of the next command; `None` at the end of the body.
    fn poll_next(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<Vec<u8>>, Problem>> {
        loop {
            if let Some(json) = self.elements.next_command()? {
                return Poll::Ready(Ok(Some(json)));
            }
            self.request.hold(self.elements.held());
            match ready!(self.request.poll_data(cx))? {
                Some(bytes) => self.elements.push(&bytes),
                None => {
                    self.elements.end()?;
                    return Poll::Ready(Ok(None));
                }
            }
        }
    }
}

/// The arguments of command number `number` of the body. All their memory counts as the client's.
async fn arguments(context: &Context, json: &[u8], number: u64) -> Result<Words, Problem> {
    let mut holding = context.session.http_end().holding();
    holding.set(json.len());
    read_arguments(json, number, Words::new(context.session.http_end().holding())).await
}

async fn read_arguments(json: &[u8], number: u64, mut args: Words) -> Result<Words, Problem> {
    let bad =
        |detail: &str| Problem::bad_request(format!("command {number}: {detail}")).member("command", number);
    let mut reader = JsonReader::new(json);
    let not_json = |error: NotJson| bad(&format!("not a JSON array: {error}"));
    if reader.next().await.map_err(not_json)? != JsonEvent::StartArray {
        return Err(bad("not a JSON array"));
    }
    loop {
        let event = reader.next().await.map_err(not_json)?;
        match event {
            JsonEvent::EndArray => break,
            JsonEvent::String(_) | JsonEvent::Number(_) => args
                .push_scalar(&event)
                .ok_or_else(|| bad("the text after `base64:` is not Base64 with padding"))?,
            _ => return Err(bad("an argument has another type: expected a string or a number")),
        }
    }
    match args.len() {
        1..=ARGUMENTS_MAX => Ok(args),
        n => Err(bad(&format!("{n} arguments: expected 1 to {ARGUMENTS_MAX}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::complete;

    #[test]
    fn arguments_are_strings_and_numbers() {
        let read = |text: &str| {
            complete(read_arguments(text.as_bytes(), 1, Words::default()))
                .map(|words| words.iter().map(<[u8]>::to_vec).collect::<Vec<_>>())
                .map_err(|p| p.document()["detail"].to_string())
        };
        assert_eq!(
            read(r#"["SET","a",1,-2.5,"base64:/w=="]"#).unwrap(),
            [b"SET".to_vec(), b"a".to_vec(), b"1".to_vec(), b"-2.5".to_vec(), vec![0xff]]
        );
        // A number is sent as the client wrote it.
        for number in [
            "1.10",
            "1e+5",
            "1E5",
            "-0",
            "123456789012345678901234567890",
            "0.1000000000000000055511151231257827",
        ] {
            assert_eq!(read(&format!("[{number}]")).unwrap(), [number.as_bytes()]);
        }
        let object = r#"{"$serde_json::private::Number":"7"}"#;
        for bad in [object, "[]", "[null]", "[[\"a\"]]", "[\"base64:!\"]", "[1", "{}"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(REFUSED.is_sorted());
    }
}
