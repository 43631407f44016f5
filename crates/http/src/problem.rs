//! [`Problem`]: errors as RFC 9457 problem documents. Also maps the session's error replies to statuses.

use crate::body::ResponseBody;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// The media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error that is reported to a client.
#[derive(Debug)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem with this status, and with a sentence about what has happened.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into(), members: Map::new(), headers: Vec::new() }
    }
    /// The problem 400: the request is malformed.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }
    /// The problem 404: nothing is at this path.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }
    /// The problem 405, with the allowed methods.
    pub fn method_not_allowed(allowed: &str) -> Problem {
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("this path supports {allowed}"))
            .header(ALLOW, allowed)
    }
    /// The problem 422: the request is valid, but the server does not support it.
    pub fn unprocessable(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
    /// The problem 408: the client was too slow. The connection ends.
    pub fn stalled() -> Problem {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "no byte of the body arrived for http-keepalive seconds")
            .closing()
    }
    /// The problem 409: other clients changed the key during each attempt.
    pub fn always_changed() -> Problem {
        Problem::new(StatusCode::CONFLICT, "the key changed during each attempt")
    }
    /// The problem 412: a condition of the request is not met.
    pub fn precondition_failed(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::PRECONDITION_FAILED, detail)
    }
    /// The problem 413: the body is too large. The connection ends, because the rest of the body is not read.
    pub fn too_large(bytes_max: u64) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have at most {bytes_max} bytes"))
            .member("limit", bytes_max)
            .closing()
    }
    /// The problem 416: the range lies outside the value.
    pub fn range_not_satisfiable(len: usize) -> Problem {
        Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the value has {len} bytes"))
            .header(CONTENT_RANGE, &format!("bytes */{len}"))
    }
    /// The problem 401: the login is missing or has failed.
    pub fn unauthorized(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, detail)
            .header(WWW_AUTHENTICATE, "Basic realm=\"strand\", charset=\"UTF-8\", Bearer realm=\"strand\"")
    }
    /// The problem for an error reply of the session. The text stays, with one exception; the error code becomes the member `code`. A text
    /// that begins with no code (as in RediSearch, `Unknown index name`) has the code `ERR`.
    pub fn of_reply(text: &[u8]) -> Problem {
        let text = match text.starts_with(b"NOAUTH HELLO") {
            // redis-server's text names options of a command that no client of HTTP sends.
            true => "NOAUTH Authentication required: send a header Authorization, Basic or Bearer".into(),
            false => String::from_utf8_lossy(text).into_owned(),
        };
        // EXEC tells why a command was not queued.
        let cause = text.strip_prefix("EXECABORT Transaction discarded because of: ").unwrap_or(&text);
        let word = cause.split(' ').next().unwrap_or_default();
        let is_code = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let code = if is_code { word } else { "ERR" }.to_string();
        let status = match code.as_str() {
            "NOAUTH" | "WRONGPASS" => return Problem::unauthorized(text).member("code", code),
            "NOPERM" | "DENIED" => StatusCode::FORBIDDEN,
            "WRONGTYPE" => StatusCode::CONFLICT,
            "OOM" => StatusCode::INSUFFICIENT_STORAGE,
            // The request is correct. This server takes the request later, or another server takes it now.
            "BUSY" | "LOADING" | "MISCONF" | "MASTERDOWN" | "NOREPLICAS" | "READONLY" | "TRYAGAIN" => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ if text.contains("no such index") || text.contains("Unknown index name") => {
                StatusCode::NOT_FOUND
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, text).member("code", code)
    }
    /// Adds an extension member to the problem document.
    pub fn member(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(name.into(), value.into());
        self
    }
    /// Adds a header to the response.
    pub fn header(mut self, name: HeaderName, value: &str) -> Problem {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
    /// Closes the connection after the response.
    pub fn closing(self) -> Problem {
        self.header(CONNECTION, "close")
    }
    /// The problem as a JSON document.
    pub fn document(&self) -> Value {
        let mut document = self.members.clone();
        let title = self.status.canonical_reason().unwrap_or("Error");
        document.insert("type".into(), json!("about:blank"));
        document.insert("title".into(), json!(title));
        document.insert("status".into(), json!(self.status.as_u16()));
        document.insert("detail".into(), json!(self.detail));
        Value::Object(document)
    }
    /// The response with the problem document.
    pub fn response(self) -> Response<ResponseBody> {
        let mut response = Response::new(ResponseBody::whole(self.document().to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_become_statuses_and_keep_their_text() {
        for (text, status) in [
            ("NOAUTH Authentication required.", 401),
            ("WRONGPASS invalid username-password pair or user is disabled.", 401),
            ("NOPERM this user has no permissions", 403),
            ("WRONGTYPE Operation against a key", 409),
            ("OOM command not allowed", 507),
            ("MASTERDOWN Link with MASTER is down", 503),
            ("NOREPLICAS Not enough good replicas to write.", 503),
            ("READONLY You can't write against a read only replica.", 503),
            ("ERR syntax error", 400),
        ] {
            let problem = Problem::of_reply(text.as_bytes());
            assert_eq!(problem.status.as_u16(), status);
            let document = problem.document();
            assert_eq!((&document["detail"], &document["status"]), (&json!(text), &json!(status)));
            assert_eq!(document["code"], text.split(' ').next().unwrap());
        }
        let response = Problem::unauthorized("no").response();
        assert!(response.headers()[WWW_AUTHENTICATE].to_str().unwrap().contains("Bearer"));
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
    }
}
