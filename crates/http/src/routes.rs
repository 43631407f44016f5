//! The table of routes. Requests are dispatched from it, and the OpenAPI description is generated from it.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use crate::route::{Found, Parameter, Route};
use crate::{bundle, commands, console, diag, import, keys, metrics, openapi, search, text, update};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use std::rc::Rc;
use std::sync::OnceLock;

const fn parameter(
    name: &'static str,
    place: &'static str,
    kind: &'static str,
    summary: &'static str,
) -> Parameter {
    Parameter { name, place, kind, required: false, summary }
}
const fn required(name: &'static str, place: &'static str, summary: &'static str) -> Parameter {
    Parameter { name, place, kind: "string", required: true, summary }
}

const KEY: Parameter = required("key", "path", "The key, percent-encoded");
const DB: Parameter = parameter("db", "query", "integer", "Number of the database; default 0");
const IF_MATCH: Parameter = parameter(
    "If-Match",
    "header",
    "string",
    "Entity tags, one of which the value must have, or * for any value",
);
const IF_NONE_MATCH: Parameter = parameter(
    "If-None-Match",
    "header",
    "string",
    "Entity tags, none of which the value may have, or * for no value",
);
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

macro_rules! handler {
    ($f:path) => {
        |context, request, rest| Box::pin($f(context, request, rest))
    };
}

/// The routes for programs. (The console's own routes are in `console`.)
pub static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/v1/keys/{key}",
        operation: "getKey",
        summary: "Reads a value: a string as bytes, a hash as a JSON object, a list, set, zset or stream as a JSON array",
        parameters: &[
            KEY,
            DB,
            IF_MATCH,
            IF_NONE_MATCH,
            parameter(
                "Range",
                "header",
                "string",
                "One range of bytes; a request for several ranges gets the whole value",
            ),
            parameter("If-Range", "header", "string", "Entity tag of the value to which the range belongs"),
        ],
        accepts: &[],
        responses: &[
            (200, "The value, with the headers Strand-Type and Strand-TTL-Ms", "*/*"),
            (206, "The requested range", BYTES),
            (304, "The client has the current value", ""),
        ],
        needs_session: true,
        run: handler!(keys::get),
    },
    Route {
        method: Method::PUT,
        path: "/v1/keys/{key}",
        operation: "putKey",
        summary: "Writes a value",
        parameters: &[
            KEY,
            DB,
            IF_MATCH,
            IF_NONE_MATCH,
            parameter(
                "Strand-Type",
                "header",
                "string",
                "string (default), hash (the body is a JSON object), list, set, zset or stream (the body is a JSON array)",
            ),
            parameter(
                "Strand-TTL-Ms",
                "header",
                "string",
                "Milliseconds until the key expires, or keep for the present expiry",
            ),
        ],
        accepts: &[BYTES, JSON],
        responses: &[(201, "The key is new", ""), (204, "The value was replaced", "")],
        needs_session: true,
        run: handler!(keys::put),
    },
    Route {
        method: Method::DELETE,
        path: "/v1/keys/{key}",
        operation: "deleteKey",
        summary: "Removes a key",
        parameters: &[KEY, DB, IF_MATCH, IF_NONE_MATCH],
        accepts: &[],
        responses: &[(204, "The key existed", "")],
        needs_session: true,
        run: handler!(keys::delete),
    },
    Route {
        method: Method::POST,
        path: "/v1/commands",
        operation: "runCommands",
        summary: "Runs commands: one array of commands, or one command per line (NDJSON). A command is an array of strings and numbers",
        parameters: &[DB],
        accepts: &[JSON, "application/x-ndjson"],
        responses: &[(
            200,
            "One object for each command, in order, with the member result or error: an array if the body is an array, else NDJSON",
            "*/*",
        )],
        needs_session: true,
        run: handler!(commands::run),
    },
    Route {
        method: Method::GET,
        path: "/v1/search/{index}",
        operation: "search",
        summary: "Searches a text index (FT.SEARCH)",
        parameters: &[
            required("index", "path", "Name of the index"),
            required("q", "query", "The query, in FT.SEARCH's language"),
            parameter("limit", "query", "integer", "Maximum number of results; default 10"),
            parameter("offset", "query", "integer", "Number of results to skip"),
            parameter(
                "fields",
                "query",
                "string",
                "Names of the fields to return, separated by commas; default all",
            ),
            parameter(
                "sortby",
                "query",
                "string",
                "Name of a SORTABLE field by which the results are sorted",
            ),
            parameter("desc", "query", "boolean", "Sort in descending order"),
            DB,
        ],
        accepts: &[],
        responses: &[(200, "total, documents (id, fields), and next if there are more results", JSON)],
        needs_session: true,
        run: handler!(search::search),
    },
    Route {
        method: Method::GET,
        path: "/v1/grep",
        operation: "grep",
        summary: "Finds keys or values by a regular expression (RX.GREP)",
        parameters: &[
            required("pattern", "query", "The regular expression"),
            parameter("in", "query", "string", "Where to search: keys, or values (default)"),
            parameter("prefix", "query", "string", "Search only keys with this prefix"),
            parameter("limit", "query", "integer", "Maximum number of matches; default 1000"),
            parameter("nocase", "query", "boolean", "Ignore case"),
            parameter(
                "lines",
                "query",
                "boolean",
                "Also return the first matching line, and the field that it is in",
            ),
            DB,
        ],
        accepts: &[],
        responses: &[(200, "matches (key; with lines also field and line)", JSON)],
        needs_session: true,
        run: handler!(search::grep),
    },
    Route {
        method: Method::GET,
        path: "/v1/import",
        operation: "importStatus",
        summary: "Lists the imported datasets",
        parameters: &[DB],
        accepts: &[],
        responses: &[(
            200,
            "datasets (name, containers, interrupted, and running while an import runs)",
            JSON,
        )],
        needs_session: true,
        run: handler!(import::status),
    },
    Route {
        method: Method::POST,
        path: "/v1/update",
        operation: "update",
        summary: "Takes Solr's XML update messages: <add> and <delete>",
        parameters: &[
            parameter("prefix", "query", "string", "Prefix of the keys; a document's id follows"),
            parameter(
                "separator",
                "query",
                "string",
                "Text between the values of a field with several values; default a comma",
            ),
            parameter("wt", "query", "string", "xml for Solr's XML response; default JSON"),
            DB,
        ],
        accepts: &["text/xml", "application/xml"],
        responses: &[(200, "responseHeader, added, deleted", "*/*")],
        needs_session: true,
        run: handler!(update::update),
    },
    Route {
        method: Method::GET,
        path: "/v1/history",
        operation: "history",
        summary: "Returns figures over time: operations, latency, memory, processor, disk, clients",
        parameters: &[
            parameter(
                "from",
                "query",
                "string",
                "Start, in seconds since 1970; a negative number counts back from now",
            ),
            parameter("to", "query", "string", "End, in the form of from; default now"),
            parameter("step", "query", "integer", "Minimum number of seconds between two points"),
            parameter("points", "query", "integer", "Maximum number of points; default 1000"),
            parameter(
                "series",
                "query",
                "string",
                "Names of series, separated by commas; a name may end with *; default all",
            ),
        ],
        accepts: &[],
        responses: &[(200, "now_ms, step_s, times_ms, series (name, unit, values)", JSON)],
        needs_session: true,
        run: handler!(diag::history),
    },
    Route {
        method: Method::GET,
        path: "/v1/diag/{report}",
        operation: "diagnose",
        summary: "Returns a report on the server: memory, phases, slowlog, hotkeys, bigkeys or doctor (see DIAG HELP)",
        parameters: &[required("report", "path", "Name of the report")],
        accepts: &[],
        responses: &[(200, "The reply of the DIAG subcommand with this name", JSON)],
        needs_session: true,
        run: handler!(diag::report),
    },
    Route {
        method: Method::GET,
        path: "/v1/bundle",
        operation: "bundle",
        summary: "Returns all facts that the server knows about itself in one file, like strand bundle; strand bundle show opens it",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "A tar file, compressed with zstd", "application/zstd")],
        needs_session: true,
        run: handler!(bundle::bundle),
    },
    Route {
        method: Method::GET,
        path: "/debug/pprof/{profile}",
        operation: "profile",
        summary: "Returns a profile of the memory in use (heap), of all allocations (allocs) or of the processor (profile)",
        parameters: &[
            required("profile", "path", "heap, allocs or profile"),
            parameter(
                "seconds",
                "query",
                "integer",
                "Seconds for which processor time is sampled; default 30",
            ),
            parameter("format", "query", "string", "pprof (compressed with gzip; default) or folded (text)"),
        ],
        accepts: &[],
        responses: &[(200, "The profile", BYTES)],
        needs_session: true,
        run: handler!(diag::profile),
    },
    Route {
        method: Method::GET,
        path: "/v1/series",
        operation: "historySeries",
        summary: "Lists the series of the history, and the memory and disk that they use",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "series (name, unit), levels, bytes, on_disk", JSON)],
        needs_session: true,
        run: handler!(diag::series),
    },
    Route {
        method: Method::GET,
        path: "/v1/live",
        operation: "liveFigures",
        summary: "Sends the newest row of the history every second",
        parameters: &[parameter("series", "query", "string", "As for /v1/history")],
        accepts: &[],
        responses: &[(200, "Events named figures, each with time_ms and values", "text/event-stream")],
        needs_session: true,
        run: handler!(diag::live),
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        operation: "metrics",
        summary: "Returns counters and gauges for Prometheus",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "The text format of Prometheus", "text/plain")],
        needs_session: true,
        run: handler!(metrics::metrics),
    },
    Route {
        method: Method::GET,
        path: "/healthz",
        operation: "health",
        summary: "Succeeds while the process runs",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "ok", "text/plain")],
        needs_session: false,
        run: handler!(health),
    },
    Route {
        method: Method::GET,
        path: "/livez",
        operation: "live",
        summary: "Does what /healthz does",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "ok", "text/plain")],
        needs_session: false,
        run: handler!(health),
    },
    Route {
        method: Method::GET,
        path: "/readyz",
        operation: "ready",
        summary: "Tells whether the server is ready for clients",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "ready is true", JSON), (503, "ready is false, and reasons says why", JSON)],
        needs_session: false,
        run: handler!(ready),
    },
    Route {
        method: Method::GET,
        path: "/v1/openapi.json",
        operation: "describe",
        summary: "Returns this description",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "An OpenAPI 3.1 document", JSON)],
        needs_session: false,
        run: handler!(describe),
    },
];

async fn health(_: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let mut response = Response::new(ResponseBody::whole("ok\n"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

async fn ready(context: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let reasons = context.settings.unready.0();
    let is_ready = reasons.is_empty();
    let text = serde_json::json!({ "ready": is_ready, "reasons": reasons }).to_string();
    let mut response = search::json_response(ResponseBody::whole(text));
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

async fn describe(_: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| openapi::document(ROUTES).to_string());
    Ok(search::json_response(ResponseBody::whole(text.as_str())))
}

/// The part of a path before its braces, and whether the path has braces.
fn stem(path: &'static str) -> (&'static str, bool) {
    match path.find('{') {
        Some(brace) => (&path[..brace], true),
        None => (path, false),
    }
}

/// Finds the route of a request. A slash at the end of a path without braces is ignored.
///
/// # Errors
/// 404, 405 with the allowed methods, or 400 when a key is not encoded correctly.
pub fn find(method: &Method, path: &str) -> Result<Found, Problem> {
    let mut allowed = Vec::new();
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    for route in ROUTES.iter().chain(console::ROUTES) {
        let (stem, has_rest) = stem(route.path);
        let rest = match path.strip_prefix(stem) {
            Some(rest) if has_rest => rest,
            Some("" | "/") => "",
            _ => continue,
        };
        if route.method == wanted {
            return Ok(Found { route, rest: text::percent_decode(rest, "path")? });
        }
        allowed.push(route.method.as_str());
        if route.method == Method::GET {
            allowed.push("HEAD");
        }
    }
    match allowed.is_empty() {
        true => Err(Problem::not_found("no route has this path; GET /v1/openapi.json lists the routes")),
        false => Err(Problem::method_not_allowed(&allowed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_are_found() {
        let found = |method: Method, path: &str| match find(&method, path) {
            Ok(found) => {
                (found.route.operation.to_string(), String::from_utf8_lossy(&found.rest).into_owned())
            }
            Err(problem) => (problem.status.as_u16().to_string(), String::new()),
        };
        for (method, path, operation, rest) in [
            (Method::GET, "/v1/keys/a%2Fb%20c", "getKey", "a/b c"),
            (Method::HEAD, "/v1/keys/a/b", "getKey", "a/b"),
            (Method::DELETE, "/v1/keys/", "deleteKey", ""),
            (Method::POST, "/v1/update/", "update", ""),
            (Method::GET, "/v1/openapi.json", "describe", ""),
            (Method::GET, "/", "console", ""),
            (Method::GET, "/console/live", "consoleLive", ""),
            (Method::GET, "/console/views/keys.js", "consoleFile", "views/keys.js"),
            (Method::POST, "/", "405", ""),
            (Method::GET, "/v1/keys", "404", ""),
            (Method::GET, "/v1/updates", "404", ""),
            (Method::PATCH, "/v1/keys/a", "405", ""),
            (Method::GET, "/v1/update", "405", ""),
            (Method::GET, "/v1/keys/100%", "400", ""),
            (Method::GET, "/v1/keys/%4", "400", ""),
            (Method::GET, "/v1/keys/%zz", "400", ""),
        ] {
            assert_eq!(found(method, path), (operation.to_string(), rest.to_string()), "{path}");
        }
        assert!(find(&Method::GET, "/v1/keys/%ff").is_ok_and(|found| found.rest == [0xff]));
    }

    #[test]
    fn every_route_is_complete_and_unique() {
        for route in ROUTES.iter().chain(console::ROUTES) {
            let braces = route.path.matches('{').count();
            let in_path: Vec<&Parameter> = route.parameters.iter().filter(|p| p.place == "path").collect();
            assert_eq!(in_path.len(), braces, "{}", route.path);
            assert!(in_path.iter().all(|p| p.required && route.path.ends_with(&format!("{{{}}}", p.name))));
            assert!(!route.responses.is_empty() && !route.summary.ends_with('.'), "{}", route.path);
            assert_eq!(
                route.accepts.is_empty(),
                route.method == Method::GET || route.method == Method::DELETE
            );
        }
    }

    #[test]
    fn the_document_has_the_routes_and_no_others() {
        let document = openapi::document(ROUTES);
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                described.push((path.clone(), method.to_ascii_uppercase()));
                assert!(operation["responses"]["default"].is_object());
                let ids = operation["parameters"].as_array().expect("parameters");
                assert!(ids.iter().all(|p| p["in"] != "path" || path.contains(p["name"].as_str().unwrap())));
            }
        }
        let mut routes = Vec::new();
        for route in ROUTES {
            routes.push((route.path.to_string(), route.method.to_string()));
            if route.method == Method::GET {
                routes.push((route.path.to_string(), "HEAD".to_string()));
            }
        }
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
        let mut ids: Vec<&str> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|m| m.as_object().unwrap().values())
            .map(|o| o["operationId"].as_str().unwrap())
            .collect();
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), all, "operations have names of their own");
    }
}
