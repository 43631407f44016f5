//! `strand bundle show FILE --console`: the server's console on a bundle, without a server.
//!
//! The pages are the pages of a server's HTTP door. They send commands. This module answers a command from the bundle's
//! content, and any other command with an error, so nothing can be changed. Any user of this machine may connect; a
//! bundle has no secrets.

use crate::bundle::archive::Bundle;
use crate::cli::error::CliError;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use strand_http::console::{GUARDS, asset};

/// Maximum size of a request's body, in bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// Maximum number of commands of a request.
const COMMANDS_MAX: usize = 256;
/// Time limit for reading the HTTP head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections at once. More connections wait.
const CONNECTIONS_MAX: usize = 64;
/// Number of rows of a history when POINTS is missing.
const POINTS_DEFAULT: usize = 1_000;

/// Serves the console until the process ends. Passes its address to `ready`.
///
/// # Errors
/// When the address is not available.
pub(super) fn serve(
    bundle: Bundle,
    listen: SocketAddr,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), CliError> {
    let failed = |error| CliError::Listen { address: listen, error };
    if !listen.ip().is_loopback() {
        return Err(CliError::NotLocal(listen));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(failed)?;
        ready(listener.local_addr().map_err(failed)?);
        let bundle = Rc::new(bundle);
        let places = Rc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(_place) = places.acquire().await else { return Ok(()) };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (bundle, places) = (bundle.clone(), places.clone());
            tokio::task::spawn_local(async move {
                let _place = places.acquire().await;
                let answer = service_fn(|request| answer(request, bundle.clone()));
                let mut server = http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                // Ignore the error, because an error of one client does not matter to the other clients.
                let _ = server.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    })
}

async fn answer(request: Request<Incoming>, bundle: Rc<Bundle>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_loopback_host(host) {
        return Ok(problem(
            StatusCode::FORBIDDEN,
            "the Host header names another machine: expected localhost or a loopback address",
        ));
    }
    let path = head.uri.path();
    let file = if path == "/" { Some("index.html") } else { path.strip_prefix("/console/") };
    Ok(match (&head.method, path) {
        (&Method::GET, "/console/live") => {
            let event = json!({ "info": info(&bundle) });
            response(StatusCode::OK, "text/event-stream", format!("data: {event}\n\n").into())
        }
        (&Method::POST, "/v1/commands") => match Limited::new(body, BODY_BYTES_MAX).collect().await {
            Err(_) => problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or incomplete"),
            Ok(body) => match run_all(&bundle, &body.to_bytes()) {
                Ok(lines) => response(StatusCode::OK, "application/x-ndjson", lines.into()),
                Err(why) => problem(StatusCode::BAD_REQUEST, why),
            },
        },
        (&Method::GET, _) => match file.and_then(asset) {
            Some((media, bytes)) => {
                let mut response = response(StatusCode::OK, media, Bytes::from_static(bytes));
                for (name, value) in GUARDS {
                    let (name, value) = (HeaderName::from_static(name), HeaderValue::from_static(value));
                    response.headers_mut().insert(name, value);
                }
                response
            }
            None => {
                problem(StatusCode::NOT_FOUND, "there is nothing at this path: a bundle has only the console")
            }
        },
        _ => problem(
            StatusCode::METHOD_NOT_ALLOWED,
            "a bundle is read-only: expected GET, or POST of /v1/commands",
        ),
    })
}

/// True when the browser addresses this machine. A page of another site, which addresses the console by that site's
/// name, is refused.
fn is_loopback_host(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn response(status: StatusCode, media: &'static str, bytes: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn problem(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    response(status, "application/problem+json", json!({ "detail": why }).to_string().into())
}

/// Runs the commands of `body`, each a list of words on one line. Returns one line per command.
fn run_all(bundle: &Bundle, body: &[u8]) -> Result<String, &'static str> {
    let mut lines = String::new();
    let asked = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (i, line) in asked.enumerate() {
        let Ok(Value::Array(words)) = serde_json::from_slice(line) else {
            return Err("a line is not a list");
        };
        if i >= COMMANDS_MAX {
            return Err("too many commands");
        }
        let word = |word: &Value| word.as_str().map_or_else(|| word.to_string(), String::from);
        let words: Vec<String> = words.iter().map(word).collect();
        let line = match run(bundle, &words) {
            Some(result) => json!({ "result": result }),
            None => json!({ "error": "ERR the bundle has no reply to this command" }),
        };
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    Ok(lines)
}

/// The bundle's reply to a command, or `None` when the bundle has no reply to it.
fn run(bundle: &Bundle, words: &[String]) -> Option<Value> {
    let upper: Vec<String> = words.iter().take(2).map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    let entry = |name: &str| {
        let found = bundle.entries.iter().find(|entry| entry.name == name)?;
        Some(String::from_utf8_lossy(&found.bytes).into_owned())
    };
    let parsed = |name: &str| serde_json::from_str::<Value>(&entry(name)?).ok();
    match upper.as_slice() {
        ["PING"] => Some("PONG".into()),
        ["INFO", ..] => Some(info(bundle).into()),
        ["ACL", "WHOAMI"] => Some("a bundle".into()),
        ["ACL", "LIST"] => parsed("acl.json"),
        ["CLIENT", "LIST"] => entry("clients.txt").map(Value::from),
        // The console shows a page only if its command exists.
        ["COMMAND", "INFO"] => {
            let is_there = |word: &String| match word.as_str() {
                "DIAG" => json!([word]),
                _ => Value::Null,
            };
            Some(words.iter().skip(2).map(is_there).collect())
        }
        ["CONFIG", "GET"] => parsed("config.json"),
        ["DIAG", "HISTORY"] => history(words, parsed),
        ["DIAG", "LOG"] => entry("diag/log.txt").map(Value::from),
        ["DIAG", "SERIES"] => entry("history/state.json").map(Value::from),
        ["DIAG", what @ ("BIGKEYS" | "DOCTOR" | "HOTKEYS" | "MEMORY" | "PHASES" | "SLOWLOG" | "SYSTEM")] => {
            entry(&format!("diag/{}.json", what.to_ascii_lowercase())).map(Value::from)
        }
        ["DIAG", "PROFILE"] => {
            let kind = words.get(2)?.to_ascii_lowercase();
            let is_folded = words.get(3).is_some_and(|word| word.eq_ignore_ascii_case("folded"));
            let name = format!("profiles/{kind}.folded.txt");
            entry(&name).filter(|_| is_folded).map(Value::from)
        }
        ["FT._LIST"] => parsed("search/indexes.json"),
        ["IMPORT.VERSION", "DATASETS"] => parsed("imports.json"),
        ["LATENCY", "LATEST"] => parsed("latency.json"),
        ["LATENCY", "DOCTOR"] => entry("latency.txt").map(Value::from),
        ["MEMORY", "DOCTOR"] => Some(parsed("diag/doctor.json")?["text"].clone()),
        ["MEMORY", "MALLOC-STATS"] => entry("allocator.txt").map(Value::from),
        ["SLOWLOG", "GET"] => Some(slow_log(&parsed("diag/slowlog.json")?)),
        _ => None,
    }
}

/// INFO, with a line by which the pages know that there is no server.
fn info(bundle: &Bundle) -> String {
    let found = bundle.entries.iter().find(|entry| entry.name == "info.txt");
    let text = found.map(|entry| String::from_utf8_lossy(&entry.bytes).into_owned()).unwrap_or_default();
    format!("{text}\r\n# Bundle\r\nstrand_bundle:{}\r\n", bundle.made_s)
}

/// Converts the log to the form that SLOWLOG GET with PHASES replies.
fn slow_log(log: &Value) -> Value {
    let row = |entry: &Value| {
        json!([
            entry["id"],
            entry["unix_s"],
            entry["executing_us"],
            entry["args"],
            entry["client"],
            entry["client_name"],
            {
                "queued": entry["queued_us"],
                "parked": entry["parked_us"],
                "executing": entry["executing_us"],
                "flushing": entry["flushing_us"],
                "parked-on": entry["parked_on"],
                "held-by": entry["held_by"],
            },
        ])
    };
    log["slow"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(row).collect()
}

/// Answers `DIAG HISTORY FROM -seconds POINTS n SERIES names` from the bundle's table with the matching step.
fn history(words: &[String], parsed: impl Fn(&str) -> Option<Value>) -> Option<Value> {
    let option = |name: &str| {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(name))?;
        words.get(at + 1).map(String::as_str)
    };
    let ago_s = option("FROM").and_then(|from| from.parse::<i64>().ok()).unwrap_or(-900).saturating_neg();
    let points = option("POINTS").and_then(|n| n.parse::<usize>().ok()).unwrap_or(POINTS_DEFAULT).max(1);
    let name = match ago_s {
        ..=900 => "history/seconds.json",
        901..=86_400 => "history/day.json",
        _ => "history/month.json",
    };
    let mut table = parsed(name)?;
    let from_ms = table["now_ms"].as_i64()?.saturating_sub(ago_s.saturating_mul(1000));
    let times = table["times_ms"].as_array()?;
    let rows: Vec<usize> =
        (0..times.len()).filter(|at| times[*at].as_i64().is_some_and(|ms| ms >= from_ms)).collect();
    let step = rows.len().div_ceil(points).max(1);
    let rows: Vec<usize> = rows.into_iter().step_by(step).collect();
    let pick = |column: &Value| -> Value {
        let of = column.as_array().map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|at| of.get(*at).cloned().unwrap_or_default()).collect()
    };
    let wanted: Vec<&str> = option("SERIES").map(|names| names.split(',').collect()).unwrap_or_default();
    let fits = |name: &str| {
        wanted.is_empty()
            || wanted.iter().any(|wanted| match wanted.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *wanted,
            })
    };
    let series = table["series"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let series: Vec<Value> = series
        .filter(|one| one["name"].as_str().is_some_and(fits))
        .map(|one| json!({ "name": one["name"], "unit": one["unit"], "values": pick(&one["values"]) }))
        .collect();
    let times = pick(&table["times_ms"]);
    let out: Map<String, Value> = [
        ("now_ms".to_string(), table["now_ms"].take()),
        ("step_s".to_string(), table["step_s"].take()),
        ("times_ms".to_string(), times),
        ("series".to_string(), series.into()),
    ]
    .into_iter()
    .collect();
    // The JSON is a string here, as in the server's reply.
    Some(Value::Object(out).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::archive::BundleFile;

    fn bundle() -> Bundle {
        let history = json!({
            "now_ms": 10_000, "step_s": 1, "times_ms": [8_000, 9_000, 10_000],
            "series": [
                { "name": "ops.total", "unit": "1/s", "values": [1, null, 3] },
                { "name": "memory.used", "unit": "bytes", "values": [4, 5, 6] },
            ],
        });
        let slow =
            json!({ "slow": [{ "id": 7, "args": ["GET", "<k>"], "executing_us": 12, "queued_us": 3 }] });
        let entries = [
            ("config.json", "{\"port\":\"1\"}".to_string()),
            ("diag/slowlog.json", slow.to_string()),
            ("history/seconds.json", history.to_string()),
            ("info.txt", "redis_version:7\r\n".to_string()),
        ];
        let entry = |(name, text): (&str, String)| BundleFile { name: name.into(), bytes: text.into_bytes() };
        Bundle::new(entries.into_iter().map(entry).collect(), 0)
    }

    fn ask(words: &[&str]) -> Option<Value> {
        run(&bundle(), &words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_are_answered_from_the_bundle_and_writes_are_refused() {
        assert_eq!(ask(&["config", "get", "*"]), Some(json!({ "port": "1" })));
        assert!(
            ask(&["INFO"]).is_some_and(|info| info.as_str().is_some_and(|t| t.contains("strand_bundle:")))
        );
        let slow = ask(&["SLOWLOG", "GET", "9", "PHASES"]).expect("it is there");
        assert_eq!(
            (&slow[0][0], &slow[0][3][1], &slow[0][6]["queued"]),
            (&json!(7), &json!("<k>"), &json!(3))
        );
        for words in
            [&["CONFIG", "SET", "port", "2"][..], &["FLUSHALL"], &["SLOWLOG", "RESET"], &["GET", "k"], &[]]
        {
            assert_eq!(ask(words), None, "{words:?}");
        }
        let body = b"[\"PING\"]\n[\"FLUSHALL\"]\n";
        let lines = run_all(&bundle(), body).expect("lists");
        assert_eq!(
            lines,
            "{\"result\":\"PONG\"}\n{\"error\":\"ERR the bundle has no reply to this command\"}\n"
        );
        assert!(run_all(&bundle(), b"{}").is_err() && run_all(&bundle(), &b"[]\n".repeat(300)).is_err());
    }

    #[test]
    fn a_query_returns_a_part_of_the_history() {
        let words = ["DIAG", "HISTORY", "FROM", "-1", "POINTS", "5", "SERIES", "ops.*,none"];
        let text = ask(&words).expect("it is there");
        let table: Value = serde_json::from_str(text.as_str().expect("a text")).expect("JSON");
        assert_eq!(table["times_ms"], json!([9_000, 10_000]));
        assert_eq!(table["series"], json!([{ "name": "ops.total", "unit": "1/s", "values": [null, 3] }]));
        let text = ask(&["DIAG", "HISTORY", "POINTS", "2"]).expect("it is there");
        let table: Value = serde_json::from_str(text.as_str().expect("a text")).expect("JSON");
        assert_eq!(
            (&table["times_ms"], &table["series"][1]["values"]),
            (&json!([8_000, 10_000]), &json!([4, 6]))
        );
        assert_eq!(ask(&["DIAG", "HISTORY", "FROM", "-86400"]), None, "the bundle has no day");
        assert!(ask(&["DIAG", "HISTORY", "FROM", "x", "POINTS", "-1"]).is_some());
    }

    #[test]
    fn pages_of_other_sites_are_refused_by_host() {
        assert!(
            ["127.0.0.1:80", "localhost:1", "[::1]:9", "localhost"].iter().all(|host| is_loopback_host(host))
        );
        assert!(
            !["", "evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"]
                .iter()
                .any(|host| is_loopback_host(host))
        );
    }
}
