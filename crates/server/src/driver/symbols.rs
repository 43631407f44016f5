//! [`Symbols`]: names of functions, by the program's own tables. [`on_names_thread`]: work that reads these tables.
//!
//! The first name makes the library read all tables: 50 to 100 ms of processor time without a pause, and 100 MB of
//! memory or more. So this work has a thread of its own, at the lowest priority. The thread holds no lock that a
//! worker needs, so a worker on the same core goes first. When this thread had the priority of workers, a worker waited
//! for the end of its time slice. Net p99.9 of a GET beside `strand bundle` (`make cliffs ARGS='--only "9 strand
//! bundle" --scale 0.25'`, the server on one core): 4.2 ms before, 0.4 to 0.5 ms now; nice 10 gained a quarter of that.
//! The price: while a load takes all of the one core, a bundle takes 2.0 s in place of 0.5 s (quick profile). Where the
//! lowest priority starves ([`priority::is_lowest_starved`]), a second thread works at the usual priority.
//!
//! A bundle looks names up four times, so the tables are kept for [`TABLES_KEPT`] after the last look-up.

use super::priority::{self, Lowest};
use super::profiler_memory;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;
use std::time::Duration;
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

/// The tables of names take tens of megabytes. They are freed when no name was looked up for this time.
const TABLES_KEPT: Duration = Duration::from_secs(2);

/// The thread of [`on_names_thread`] with the lowest priority. It starts with its first work. `None` when the system
/// could not create it.
static LOWEST: LazyLock<Option<Sender<Work>>> =
    LazyLock::new(|| spawn("names", || Some(priority::lowest_unless_starved())));
/// The thread of [`on_names_thread`] for a machine on which the lowest priority starves.
static USUAL: LazyLock<Option<Sender<Work>>> = LazyLock::new(|| spawn("names-usual", || None));

type Work = Box<dyn FnOnce() + Send>;

fn spawn(name: &str, begin: fn() -> Option<Lowest>) -> Option<Sender<Work>> {
    let (sender, works) = channel();
    let run = move || {
        let _priority = begin();
        serve(&works);
    };
    thread::Builder::new().name(name.into()).spawn(run).ok().map(|_| sender)
}

fn serve(works: &Receiver<Work>) {
    while let Ok(mut work) = works.recv() {
        loop {
            profiler_memory::within(work);
            match works.recv_timeout(TABLES_KEPT) {
                Ok(next) => work = next,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        profiler_memory::within(backtrace::clear_symbol_cache);
    }
}

/// The error when the thread that looks names up does not run, or its work panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the names of functions cannot be looked up: the thread for it is not running")]
pub struct NoNames;

/// Runs `work`, which looks names up, on a thread of its own, and waits for its end.
///
/// # Errors
/// When there is no such thread, or `work` panics.
pub fn on_names_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoNames> {
    let (done, result) = sync_channel(1);
    let work = move || {
        // The caller waits for this message.
        let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let thread = if priority::is_lowest_starved() { &*USUAL } else { &*LOWEST };
    thread.as_ref().and_then(|thread| thread.send(Box::new(work)).ok()).ok_or(NoNames)?;
    result.recv().map_err(|_| NoNames)?.map_err(|_| NoNames)
}
