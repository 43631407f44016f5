//! The console: pages at `/` that show the server in a browser, and the stream of figures that they display.
//!
//! The files are in `crates/http/console` and are compiled into the program. They load nothing from other sites.
//! They contain no secret, so they need no login. The data comes from the public routes, with the rights of the
//! user whose name and password the page sends as a header. There is no cookie, so no other page can act in the
//! user's name. The policies in [`GUARDS`] let a page run only its own scripts, forbid building markup from text,
//! and forbid framing.

use crate::auth::credentials;
use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::json::JsonWriter;
use crate::problem::Problem;
use crate::route::{Parameter, Route};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::http::HeaderName;
use hyper::{Method, StatusCode};
use std::rc::Rc;
use std::sync::OnceLock;
use strand_digest::xxh3_text;

/// Allowed interval between two events of the stream, in milliseconds.
const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// Interval between two events when the parameter `every` is missing, in milliseconds.
const EVERY_MS_DEFAULT: u64 = 1_000;

/// The headers of every file of the console.
pub const GUARDS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console",
    ),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
];

/// A file of the console.
struct Asset {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $media:ident),* $(,)?) => {
        &[$(Asset { name: $name, media: $media, bytes: include_bytes!(concat!("../console/", $name)) }),*]
    };
}

const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

static ASSETS: &[Asset] = assets![
    "api.js": JS,
    "charts.js": JS,
    "console.css": CSS,
    "dom.js": JS,
    "format.js": JS,
    "icon.svg": SVG,
    "index.html": HTML,
    "live.js": JS,
    "main.js": JS,
    "mark.js": JS,
    "theme.js": JS,
    "uplot.LICENSE": TEXT,
    "uplot.css": CSS,
    "uplot.js": JS,
    "views/clients.js": JS,
    "views/config.js": JS,
    "views/history.js": JS,
    "views/imports.js": JS,
    "views/keys.js": JS,
    "views/latency.js": JS,
    "views/memory.js": JS,
    "views/overview.js": JS,
    "views/profiles.js": JS,
    "views/search.js": JS,
    "views/slowlog.js": JS,
    "views/terminal.js": JS,
    "views/users.js": JS,
];

/// Finds a file of the console by its name. Returns its media type and its bytes.
pub fn asset(name: &str) -> Option<(&'static str, &'static [u8])> {
    ASSETS.iter().find(|asset| asset.name == name).map(|asset| (asset.media, asset.bytes))
}

/// The console's own routes. The OpenAPI description does not list them.
pub static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/console/live",
        operation: "consoleLive",
        summary: "INFO everything as server-sent events, until the client goes",
        parameters: &[Parameter {
            name: "every",
            place: "query",
            kind: "integer",
            required: false,
            summary: "Milliseconds between two events",
        }],
        accepts: &[],
        responses: &[(200, "Events", "text/event-stream")],
        needs_session: true,
        run: |context, request, _| Box::pin(live(context, request)),
    },
    Route {
        method: Method::GET,
        path: "/console/{file}",
        operation: "consoleFile",
        summary: "A file of the console",
        parameters: &[Parameter {
            name: "file",
            place: "path",
            kind: "string",
            required: true,
            summary: "Its name",
        }],
        accepts: &[],
        responses: &[(200, "The file", "*/*"), (304, "The client has it", "")],
        needs_session: false,
        run: |_, request, name| Box::pin(async move { file(&request, &name) }),
    },
    Route {
        method: Method::GET,
        path: "/",
        operation: "console",
        summary: "The console",
        parameters: &[],
        accepts: &[],
        responses: &[(200, "The page", HTML), (304, "The client has it", "")],
        needs_session: false,
        run: |_, request, _| Box::pin(async move { file(&request, b"index.html") }),
    },
];

fn file(request: &Request, name: &[u8]) -> Result<Response, Problem> {
    let at = ASSETS.iter().position(|asset| asset.name.as_bytes() == name);
    let at = at.ok_or_else(|| Problem::not_found("the console has no such file"))?;
    let (asset, tag) = (&ASSETS[at], &tags()[at]);
    let has_it =
        request.parts.headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = Response::new(match has_it {
        true => ResponseBody::Empty,
        false => ResponseBody::whole(asset.bytes),
    });
    if has_it {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.extend(HeaderValue::from_str(tag).map(|tag| (ETAG, tag)));
    for (name, value) in GUARDS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The entity tags of the console's files.
fn tags() -> &'static [String] {
    static TAGS: OnceLock<Vec<String>> = OnceLock::new();
    TAGS.get_or_init(|| ASSETS.iter().map(|asset| format!("\"{}\"", xxh3_text(asset.bytes))).collect())
}

/// `GET /console/live?every=ms`: sends `{"info": "..."}` repeatedly. The login is checked before each event, so a
/// deleted user gets no more events.
async fn live(context: Rc<Context>, request: Request) -> Result<Response, Problem> {
    let every = request.query.number("every", EVERY_MS_DEFAULT, *EVERY_MS.start(), *EVERY_MS.end())?;
    let db = request.query.number("db", 0, 0, i32::MAX as u64)?;
    context.session.command(&[b"INFO", b"everything"]);
    let mut info = context.session.line().await?.unwrap_or_default();
    let body = ResponseBody::generated(|writer| async move {
        let mut json = JsonWriter::new(writer, &context.session);
        loop {
            json.raw("data: {\"info\":");
            json.string(&info);
            json.raw("}\n\n");
            json.flush().await;
            if !context.pause(every).await {
                return Ok(());
            }
            let Ok(who) = credentials(&request.parts.headers) else { return Ok(()) };
            let version = context.settings.users_version.0();
            if context.session.log_in(who, version, db).await.is_err() {
                return Ok(());
            }
            context.session.command(&[b"INFO", b"everything"]);
            let Ok(Some(next)) = context.session.line().await else { return Ok(()) };
            info = next;
        }
    });
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_named_by_a_page_exists() {
        let names: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.name).collect();
        assert!(ASSETS.is_sorted_by_key(|asset| asset.name) && names.len() == ASSETS.len());
        for asset in ASSETS.iter().filter(|asset| asset.media == JS || asset.media == HTML) {
            let text = std::str::from_utf8(asset.bytes).expect("text");
            for part in text.split("\"/console/").skip(1) {
                let name = part.split('"').next().expect("a name");
                assert!(names.contains(name) || name.starts_with("live"), "{} names {name}", asset.name);
            }
            let folder = asset.name.rfind('/').map_or("", |at| &asset.name[..=at]);
            for part in text.split("from \"").skip(1) {
                let name = part.split('"').next().expect("a name");
                let found = match (name.strip_prefix("./"), name.strip_prefix("../")) {
                    (Some(beside), _) => names.contains(&*format!("{folder}{beside}")),
                    (_, Some(above)) => !folder.is_empty() && names.contains(above),
                    _ => false,
                };
                assert!(found, "{} imports {name}", asset.name);
            }
        }
    }

    #[test]
    fn the_pages_load_nothing_from_other_sites_and_are_small() {
        let mut bytes = 0;
        for asset in ASSETS {
            bytes += asset.bytes.len();
            let text = std::str::from_utf8(asset.bytes).expect("text");
            let is_ours = !asset.name.starts_with("uplot");
            let foreign = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !is_ours || !(foreign.contains("http://") || foreign.contains("https://")),
                "{}",
                asset.name
            );
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=\"",
            ] {
                assert!(!text.contains(word), "{} has {word}", asset.name);
            }
        }
        assert!(bytes < 250_000, "{bytes} bytes, even without compression");
    }
}
