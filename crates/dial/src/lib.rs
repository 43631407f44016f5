//! Blocking connections of clients to a server. [`Stream`] is a connection by TCP, TLS or a Unix socket, and
//! [`Tls`] holds the certificates of a client.
//!
//! **Invariant:** this crate knows bytes, not the protocol: it uses none of Strand's crates.

mod anchored;
mod stream;
mod tls;

pub use anchored::{Anchored, may_sign_others};
pub use stream::{DialError, DialOptions, Stream};
pub use tls::{Tls, TlsError, TlsSettings};
