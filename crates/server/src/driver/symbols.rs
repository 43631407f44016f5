//! [`Symbols`]: names of functions, by the program's own tables. [`apart`]: work that reads these tables.
//!
//! The first name makes the library read all tables: 50 to 100 ms of processor time without a pause, and 100 MB of memory
//! or more. So this work has a thread of its own, at the lowest priority. The thread holds no lock that a worker needs,
//! so a worker on the same core goes first. At the priority of workers, a worker waited for the end of a time slice. Net
//! p99.9 of a GET beside `strand bundle` (`make cliffs ARGS='--only "9 strand bundle" --scale 0.25'`, the server on one
//! core): 4.2 ms before, 0.4 to 0.5 ms now; nice 10 gained a quarter of that. The price: while a load takes all of the
//! one core, a bundle takes 2.0 s in place of 0.5 s (quick profile).

use super::LOWEST_NICE;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread;
use strand_diag::profile::Frame;

/// The names of functions by address, each looked up once.
#[derive(Default)]
pub struct Symbols {
    known: HashMap<usize, Vec<Frame>>,
}

impl Symbols {
    /// The functions of a stack, innermost first.
    pub fn frames(&mut self, addresses: &[usize]) -> Vec<Frame> {
        addresses
            .iter()
            .flat_map(|at| self.known.entry(*at).or_insert_with(|| resolve(*at)).clone())
            .collect()
    }
}

/// The function at an address, and the functions inlined there, innermost first.
fn resolve(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    // `address` is the return address, and the call is the instruction before the return address.
    let at = address.saturating_sub(1) as *mut std::ffi::c_void;
    backtrace::resolve(at, |symbol| {
        let name = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
        let file = symbol.filename().map(|file| file.display().to_string()).unwrap_or_default();
        frames.push(Frame { function: name, file, line: symbol.lineno().unwrap_or(0) });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{address:#x}"), ..Frame::default() });
    }
    frames
}

/// The thread of [`apart`]. `None` when the system could not create it.
static THREAD: LazyLock<Option<Sender<Work>>> = LazyLock::new(|| {
    let (sender, works) = channel::<Work>();
    let serve = move || {
        // On Linux a call without an id affects only the calling thread. A failure only means longer waits.
        let _ = rustix::process::setpriority_process(None, LOWEST_NICE);
        works.into_iter().for_each(|work| work());
    };
    thread::Builder::new().name("names".into()).spawn(serve).ok().map(|_| sender)
});

type Work = Box<dyn FnOnce() + Send>;

/// Starts the thread of [`apart`]. Without this call it starts with its first work.
pub fn start() {
    LazyLock::force(&THREAD);
}

/// Runs `work`, which looks names up, on a thread of the lowest priority, and waits for its end. Frees the tables of
/// names after it, because they take tens of megabytes.
///
/// # Errors
/// A description for users when there is no such thread, or `work` panics.
pub fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let failed = || "no thread looks up the names of functions".to_string();
    let (done, result) = sync_channel(1);
    let work = move || {
        let made = catch_unwind(AssertUnwindSafe(work));
        backtrace::clear_symbol_cache();
        // The caller waits for this message.
        let _ = done.send(made);
    };
    THREAD.as_ref().and_then(|thread| thread.send(Box::new(work)).ok()).ok_or_else(failed)?;
    result.recv().map_err(|_| failed())?.map_err(|_| failed())
}
