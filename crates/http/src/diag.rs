//! `/v1/history`, `/v1/series` and `/v1/live`: the server's figures over time, for plots. `/v1/diag/`: its reports.
//! `/debug/pprof/`: profiles.
//!
//! Each route runs a DIAG command, so the user needs the right to DIAG. `/v1/live` checks again every second, so a
//! user who loses the right gets an error within a second.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use crate::search::json_response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use std::rc::Rc;

/// Interval between two events of `/v1/live`, in milliseconds.
const LIVE_STEP_MS: u64 = 1_000;
/// Maximum number of events of one response of `/v1/live`: half an hour. After that a browser's event source reconnects
/// by itself.
const LIVE_EVENTS_MAX: usize = 1_800;

/// The parameters of `/v1/history` that are numbers, each with the matching argument of DIAG HISTORY.
const NUMBERS: [(&str, &str); 4] = [("from", "FROM"), ("to", "TO"), ("step", "STEP"), ("points", "POINTS")];

/// Answers `GET /v1/history`
pub async fn history(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let mut args: Vec<&[u8]> = vec![b"DIAG", b"HISTORY"];
    for (name, word) in NUMBERS {
        if let Some(value) = request.query.integer(name)? {
            args.extend([word.as_bytes(), value.as_bytes()]);
        }
    }
    if let Some(series) = request.query.get("series") {
        args.extend([b"SERIES", series.as_bytes()]);
    }
    json(&context, &args).await
}

/// Answers `GET /v1/series`
pub async fn series(context: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    json(&context, &[b"DIAG", b"SERIES"]).await
}

/// The reports that have no parameters.
const REPORTS: [&str; 6] = ["bigkeys", "doctor", "hotkeys", "memory", "phases", "slowlog"];

/// Answers `GET /v1/diag/{report}`
pub async fn report(context: Rc<Context>, _: Request, name: Vec<u8>) -> Result<Response, Problem> {
    match REPORTS.iter().find(|report| report.as_bytes() == name) {
        Some(report) => json(&context, &[b"DIAG", report.as_bytes()]).await,
        None => Err(Problem::not_found(format!("unknown report: expected one of {}", REPORTS.join(", ")))),
    }
}

/// Length of a CPU profile in seconds, when the parameter `seconds` is missing.
const PROFILE_SECONDS: u64 = 30;

/// Answers `GET /debug/pprof/heap`, `/debug/pprof/allocs` and `/debug/pprof/profile?seconds=`. `format=folded`
/// returns text.
pub async fn profile(context: Rc<Context>, request: Request, name: Vec<u8>) -> Result<Response, Problem> {
    let folded = match request.query.get("format") {
        None | Some("pprof") => false,
        Some("folded") => true,
        Some(_) => return Err(Problem::bad_request("unknown format: expected pprof or folded")),
    };
    let started;
    let mut args: Vec<&[u8]> = match &name[..] {
        b"heap" => vec![b"DIAG", b"PROFILE", b"HEAP"],
        b"allocs" => vec![b"DIAG", b"PROFILE", b"ALLOCS"],
        b"profile" => {
            let wanted = request.query.get("seconds").map(str::parse::<u64>);
            let wanted = wanted.unwrap_or(Ok(PROFILE_SECONDS));
            let seconds =
                wanted.map_err(|_| Problem::bad_request("the query parameter `seconds` is not a number"))?;
            let number = seconds.to_string();
            let start: [&[u8]; 6] = [b"DIAG", b"PROFILE", b"CPU", b"START", b"SECONDS", number.as_bytes()];
            context.session.command(&start);
            started = context.session.line().await?.unwrap_or_default();
            // When the server stops, the response has the profile of the time until then.
            context.pause(seconds.saturating_mul(1000)).await;
            vec![b"DIAG", b"PROFILE", b"CPU", b"STOP", &started]
        }
        _ => return Err(Problem::not_found("unknown profile: expected heap, allocs or profile")),
    };
    if folded {
        args.push(b"FOLDED");
    }
    context.session.command(&args);
    let bytes = context.session.line().await?.unwrap_or_default();
    let mut response = Response::new(ResponseBody::whole(bytes));
    let kind = if folded { "text/plain; charset=utf-8" } else { "application/octet-stream" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Runs a command whose reply is JSON and returns the JSON as a response.
pub async fn json(context: &Rc<Context>, args: &[&[u8]]) -> Result<Response, Problem> {
    context.session.command(args);
    let text = context.session.line().await?.unwrap_or_default();
    let mut response = json_response(ResponseBody::whole(text));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Answers `GET /v1/live`: one event per second.
pub async fn live(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let series = request.query.get("series").map(|names| names.as_bytes().to_vec());
    // Ask once before the response begins, so that an error gets its own status.
    let mut newest = ask(&context, &series).await?;
    let body = ResponseBody::generated(|writer| async move {
        for _ in 0..LIVE_EVENTS_MAX {
            writer.send([b"event: figures\ndata: ", newest.as_slice(), b"\n\n"].concat()).await;
            if !context.pause(LIVE_STEP_MS).await {
                break;
            }
            newest = match ask(&context, &series).await {
                Ok(newest) => newest,
                Err(problem) => {
                    let text = format!("event: problem\ndata: {}\n\n", problem.document());
                    writer.send(text.into_bytes()).await;
                    break;
                }
            };
        }
        Ok(())
    });
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn ask(context: &Context, series: &Option<Vec<u8>>) -> Result<Vec<u8>, Problem> {
    match series {
        Some(names) => context.session.command(&[b"DIAG", b"LIVE", b"SERIES", names]),
        None => context.session.command(&[b"DIAG", b"LIVE"]),
    }
    Ok(context.session.line().await?.unwrap_or_default())
}
