//! `GET /v1/bundle`: a bundle as `strand bundle` makes it, with the rights of the request's user.
//!
//! The session runs the commands of a [`Packer`], and the server makes the archive of the replies on a helper thread.

use crate::body::ResponseBody;
use crate::budget::RequestBudget;
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use crate::session_client::Value;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

/// Maximum number of bytes of all replies together.
const REPLIES_BYTES_MAX: usize = 256 << 20;

/// Makes one bundle. The next bundle can begin when this packer is dropped.
pub trait Packer {
    /// The commands whose replies the bundle needs, in order.
    fn commands(&self) -> Vec<&'static [&'static str]>;
    /// Makes the archive from the replies to the commands, in the order of the commands. `Err` is the text of an error
    /// reply. `secrets`: the passwords that the archive must not contain.
    fn pack(
        self: Box<Self>,
        replies: Vec<Result<Value, Vec<u8>>>,
        secrets: Vec<Vec<u8>>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, PackError>>>>;
}

/// Why no archive is made. The server is at fault, not the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The archive cannot be written.
    #[error("the archive of the bundle cannot be made: {0}")]
    Archive(io::Error),
    /// The thread that makes the archive cannot be started.
    #[error("the thread that makes the bundle cannot be started: {0}")]
    Thread(io::Error),
    /// The thread that makes the archive ended before its work was done.
    #[error("the bundle could not be made, see the log")]
    Panic,
}

/// Returns a [`Packer`], or `None` while another bundle is being made.
#[derive(Clone)]
pub struct Bundler(pub Rc<dyn Fn() -> Option<Box<dyn Packer>>>);

impl std::fmt::Debug for Bundler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bundler")
    }
}

/// Answers a request for a diagnostic bundle.
pub async fn bundle(context: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    // Require only this right, because without it nothing would be left in the bundle. For any other command that the
    // user may not run, the bundle contains the error reply.
    context.check_rights(&[&[b"DIAG", b"SYSTEM"]])?;
    let Some(packer) = context.settings.bundler.0() else {
        let detail = "another bundle is being made: try again when it is complete";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let mut budget = RequestBudget::new(context.session.http_end().holding(), REPLIES_BYTES_MAX);
    let mut replies = Vec::new();
    for command in packer.commands() {
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        context.session.command(&words);
        let reply = context.session.reply().await?;
        let bytes = match &reply {
            Ok(value) => value.bytes(),
            Err(text) => text.len(),
        };
        let too_large = |_| Problem::new(StatusCode::INSUFFICIENT_STORAGE, "the bundle is too large");
        budget.reserve(bytes).map_err(too_large)?;
        replies.push(reply);
    }
    let secrets = context.session.password().into_iter().collect();
    let packed = packer.pack(replies, secrets).await;
    let bytes = packed.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    drop(budget);
    let mut response = Response::new(ResponseBody::whole(bytes));
    for (name, value) in [
        (CONTENT_TYPE, "application/zstd"),
        (CONTENT_DISPOSITION, "attachment; filename=\"strand-bundle.tar.zst\""),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
