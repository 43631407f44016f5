//! Protects a server on the browser's own machine against web pages of other sites.
//!
//! A page of any site can send requests to 127.0.0.1. Requests that change data need a media type or a method for
//! which the browser sends a preflight request first, and Strand does not answer preflight requests. The `Origin`
//! header is checked as well. Resources that a page loads (`<script>`, `<img>`) have no `Origin`, but browsers send
//! the page's relation to the server in `Sec-Fetch-Site`. Each response forbids use by pages of other origins
//! ([`forbid_embedding`]), for browsers that respect these headers.
//!
//! A site can also point its own name to 127.0.0.1 (DNS rebinding). The browser would then treat the page as the
//! server's own, with any credentials that the page makes up where none are needed. So a client on this machine
//! must address the server by IP address or as localhost. (A proxy in front of the server must set `Host`
//! accordingly.)

use crate::problem::Problem;
use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::HeaderName;
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};
use std::net::{IpAddr, Ipv6Addr};

/// The header in which the browser reports how the requesting page is related to the server.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests from pages of other sites. `peer_is_local`: the client is on this machine.
///
/// # Errors
/// 403 and 421; 400 when `Host` is missing or repeated (RFC 9112, 3.2).
pub fn check(parts: &Parts, peer_is_local: bool) -> Result<(), Problem> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version >= Version::HTTP_11) {
        return Err(Problem::bad_request("expected exactly one Host header"));
    }
    of_headers(&parts.headers, peer_is_local, leads_to_console(parts))
}

/// True when a page of any site links to the console. This is safe, because the console's page reveals nothing without
/// a login, changes nothing and cannot be framed.
fn leads_to_console(parts: &Parts) -> bool {
    let says = |name, value: &str| {
        parts.headers.get(name).is_some_and(|v: &HeaderValue| v.as_bytes() == value.as_bytes())
    };
    parts.method == hyper::Method::GET
        && parts.uri.path() == "/"
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document")
}

/// Marks a response: a browser may show it only to pages of this origin and may not guess its media type.
pub fn forbid_embedding(headers: &mut HeaderMap) {
    for (name, value) in EMBEDDING {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The headers of [`forbid_embedding`].
pub const EMBEDDING: [(&str, &str); 2] =
    [("cross-origin-resource-policy", "same-origin"), ("x-content-type-options", "nosniff")];

/// The accepted values of `Sec-Fetch-Site`: a page of this server, and no page at all (an address typed in).
const FETCH_SITES: [&[u8]; 2] = [b"same-origin", b"none"];

/// True when a page of another site sends the request.
pub fn is_foreign(headers: &HeaderMap) -> bool {
    has_foreign_origin(headers) || is_foreign_fetch(headers)
}

fn has_foreign_origin(headers: &HeaderMap) -> bool {
    let host = text(headers, HOST);
    text(headers, ORIGIN)
        .is_some_and(|origin| origin.split_once("://").map(|(_, authority)| authority) != host)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

fn is_foreign_fetch(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().any(|v| !FETCH_SITES.contains(&v.as_bytes()))
}

fn of_headers(headers: &HeaderMap, peer_is_local: bool, is_link: bool) -> Result<(), Problem> {
    if has_foreign_origin(headers) || (is_foreign_fetch(headers) && !is_link) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "a page of another site may not use this server"));
    }
    match text(headers, HOST) {
        Some(host) if peer_is_local && !is_local_name(host) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header is a name: expected the server's IP address or localhost",
        )),
        _ => Ok(()),
    }
}

/// True when a `Host` header is an IP address or localhost.
fn is_local_name(host: &str) -> bool {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|h| h.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_refused() {
        let status = |pairs: &[(HeaderName, &str)], local: bool| {
            let headers = pairs.iter().map(|(n, v)| (n.clone(), v.parse().expect("a value"))).collect();
            of_headers(&headers, local, false).map_or_else(|p| p.status.as_u16(), |()| 200)
        };
        for (host, local, want) in [
            ("127.0.0.1:8379", true, 200),
            ("[::1]:8379", true, 200),
            ("localhost", true, 200),
            ("LOCALHOST:8379", true, 200),
            ("strand.localhost:1", true, 200),
            ("evil.example:8379", true, 421),
            ("localhost.evil.example", true, 421),
            ("127.0.0.1.evil.example", true, 421),
            ("strand.example:8379", false, 200),
        ] {
            assert_eq!(status(&[(HOST, host)], local), want, "{host}");
        }
        assert_eq!(status(&[(HOST, "name"), (hyper::header::AUTHORIZATION, "Bearer x")], true), 421);
        assert_eq!(status(&[], true), 200);
        let fetched = |site: &str| status(&[(HOST, "127.0.0.1:8379"), (SEC_FETCH_SITE, site)], true);
        assert_eq!(["same-origin", "none"].map(fetched), [200, 200]);
        assert_eq!(["cross-site", "same-site", "what comes next", ""].map(fetched), [403; 4]);
        let from = |origin: &str| status(&[(HOST, "127.0.0.1:8379"), (ORIGIN, origin)], true);
        assert_eq!(from("http://127.0.0.1:8379"), 200);
        for other in ["http://evil.example", "null", "http://127.0.0.1:80", ""] {
            assert_eq!(from(other), 403, "{other}");
        }
    }
}
