//! [`Credentials`]: the content of an `Authorization` header, for AUTH.

use crate::problem::Problem;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// Maximum length of an `Authorization` header that is parsed, in bytes.
const AUTHORIZATION_BYTES_MAX: usize = 8 * 1024;

/// The name and password of a user, as a request sends them.
#[derive(Clone, Eq)]
pub struct Credentials {
    /// The user; `default` when the header names none.
    pub user: Vec<u8>,
    /// The password, as the client sent it.
    pub password: Vec<u8>,
}

impl PartialEq for Credentials {
    /// Compares in constant time, so the time does not reveal a part of a password. Behind a proxy, one connection
    /// may serve many people.
    fn eq(&self, other: &Credentials) -> bool {
        self.user == other.user && bool::from(self.password.ct_eq(&other.password))
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user.escape_ascii())
    }
}

/// The credentials of a request: `Basic` (RFC 7617), or `Bearer` with the token `user:password` or the password of
/// the default user.
///
/// # Errors
/// 401 for a header of another scheme and for one that does not parse.
pub fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(header) = all.next() else { return Ok(None) };
    let bytes = header.as_bytes();
    let bad = || {
        Problem::unauthorized(
            "malformed Authorization header: expected `Basic` and Base64 of user:password, or `Bearer` and a token",
        )
    };
    if all.next().is_some() || bytes.len() > AUTHORIZATION_BYTES_MAX {
        return Err(bad());
    }
    let space = bytes.iter().position(|b| *b == b' ').ok_or_else(bad)?;
    let (scheme, token) = (&bytes[..space], bytes[space..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"basic") {
        let pair = BASE64_STANDARD.decode(token).map_err(|_| bad())?;
        let colon = pair.iter().position(|b| *b == b':').ok_or_else(bad)?;
        return Ok(Some(of(&pair[..colon], &pair[colon + 1..])));
    }
    if scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty() {
        return Ok(Some(match token.iter().position(|b| *b == b':') {
            Some(colon) => of(&token[..colon], &token[colon + 1..]),
            None => of(b"", token),
        }));
    }
    Err(Problem::unauthorized("unknown scheme in the Authorization header: expected Basic or Bearer"))
}

fn of(user: &[u8], password: &[u8]) -> Credentials {
    let user = if user.is_empty() { b"default" } else { user };
    Credentials { user: user.to_vec(), password: password.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<Option<(String, String)>, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().expect("a header value"));
        let text = |b: Vec<u8>| String::from_utf8(b).expect("text");
        let found = credentials(&headers).map_err(|p| p.status.as_u16())?;
        Ok(found.map(|c| (text(c.user), text(c.password))))
    }

    #[test]
    fn basic_and_bearer_headers_give_user_and_password() {
        let pair = |u: &str, p: &str| Ok(Some((u.to_string(), p.to_string())));
        assert_eq!(read("Basic YW5uOnMzY3I6ZXQ="), pair("ann", "s3cr:et"));
        assert_eq!(read("basic OnNlc2FtZQ=="), pair("default", "sesame"));
        assert_eq!(read("Bearer sesame"), pair("default", "sesame"));
        assert_eq!(read("BEARER ann:s3cr:et"), pair("ann", "s3cr:et"));
        for bad in ["Basic", "Basic !!!", "Basic YW5u", "Bearer ", "Digest x"] {
            assert_eq!(read(bad), Err(401), "{bad}");
        }
        assert_eq!(credentials(&HeaderMap::new()).expect("no header"), None);
        assert!(!format!("{:?}", of(b"ann", b"secret")).contains("secret"));
    }
}
