//! The bundle of the HTTP door: the connection's session runs the commands, and a helper thread makes the archive.

use super::contents::{QUERIES, assemble};
use crate::driver::priority;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_http::session_client::Value;
use strand_http::{Bundler, PackError, Packer};
use strand_wire::client::Value as Reply;
use strand_wire::reply::ErrorText;

/// True while a bundle is being made. Only one bundle is made at a time, because the replies take some 20 MB.
static IS_BEING_MADE: AtomicBool = AtomicBool::new(false);

/// The bundler of a connection.
pub fn bundler() -> Bundler {
    Bundler(Rc::new(|| {
        let is_free = IS_BEING_MADE.compare_exchange(false, true, Relaxed, Relaxed).is_ok();
        is_free.then(|| Box::new(MakingBundle) as Box<dyn Packer>)
    }))
}

/// Exists while a bundle is being made. Dropped when the archive is complete, or when the client disconnects; then the
/// next bundle can be made.
struct MakingBundle;

impl Drop for MakingBundle {
    fn drop(&mut self) {
        IS_BEING_MADE.store(false, Relaxed);
    }
}

impl Packer for MakingBundle {
    fn commands(&self) -> Vec<&'static [&'static str]> {
        QUERIES.iter().map(|asked| asked.args).collect()
    }
    fn pack(
        self: Box<Self>,
        replies: Vec<Result<Value, ErrorText>>,
        secrets: Vec<Vec<u8>>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, PackError>>>> {
        let (done, packed) = tokio::sync::oneshot::channel();
        let work = move || {
            // Use the lowest priority, so that the worker on this core runs first. Where the lowest priority starves,
            // the bundle would never be made.
            let _priority = (!priority::is_lowest_starved()).then(priority::lowest_unless_starved);
            let replies =
                replies.into_iter().map(|reply| reply.map_or_else(Reply::Error, to_reply)).collect();
            let bytes = assemble(replies, secrets, false).bytes();
            // Allow the next bundle first, because a client may request it as soon as it has this bundle.
            drop(self);
            // This fails only when the client has disconnected.
            let _ = done.send(bytes.map_err(PackError::Archive));
        };
        let begun = std::thread::Builder::new().name("bundle".into()).spawn(work);
        Box::pin(async move {
            begun.map_err(PackError::Thread)?;
            packed.await.map_err(|_| PackError::Panic)?
        })
    }
}

/// Converts a reply of the session to the form that replies of a connection have.
fn to_reply(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Null,
        Value::Text(text) => Reply::Bulk(text),
        Value::List(values) => Reply::Array(values.into_iter().map(to_reply).collect()),
    }
}
