//! CONFIG SET `bind`, `port` and the ports of the other doors: the server listens elsewhere, and its connections stay.
//!
//! [`Listening`] knows where the server listens on TCP. A change opens what is missing, and the main thread, which owns
//! the listeners, closes what is not wanted any more ([`ListenerChange`]). A change that fails leaves everything as it
//! was. The file of `unixsocket` does not change while the server runs.

use super::door::{self, Listener, Place, Wanted};
use super::host::Request;
use super::listen::BindError;
use parking_lot::Mutex;
use std::sync::mpsc;
use strand_engine::Config;
use tokio::sync::mpsc::UnboundedSender;

/// Where the server listens on TCP.
#[derive(Debug, Default)]
pub struct Listening {
    places: Mutex<Vec<Place>>,
}

/// A change of the listeners. The main thread makes the change and drops this value, which tells the sender.
pub struct ListenerChange {
    /// The listeners to close.
    pub closed: Vec<Place>,
    /// The new listeners.
    pub opened: Vec<Listener>,
    /// Dropped when the change is made.
    _done: mpsc::Sender<()>,
}

impl std::fmt::Debug for ListenerChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} listeners to close, {} new ones", self.closed.len(), self.opened.len())
    }
}

impl Listening {
    /// Notes listeners with which the server starts.
    pub fn note(&self, listeners: &[Listener]) {
        self.places.lock().extend(listeners.iter().filter_map(Listener::place));
    }
    /// Listens where `config` says, and nowhere else. May resolve names, so it may block.
    ///
    /// # Errors
    /// When an address is not available. Then nothing has changed.
    pub fn change(
        &self,
        config: &Config,
        needs_password: bool,
        requests: &UnboundedSender<Request>,
    ) -> Result<(), BindError> {
        let mut places = self.places.lock();
        let backlog = config.tcp_backlog() as i32;
        let wanted = door::wanted(config, needs_password)?;
        let is_wanted = |place: &Place| wanted.iter().any(|wanted| wanted.place == *place);
        let (kept, closed): (Vec<Place>, Vec<Place>) = places.iter().copied().partition(is_wanted);
        let missing: Vec<&Wanted> = wanted.iter().filter(|wanted| !kept.contains(&wanted.place)).collect();
        // `*` and 127.0.0.1 cannot have one port at the same time, so the old address may be in the way.
        let in_the_way = |error: &BindError| {
            error.is_in_use() && closed.iter().any(|place| place.address.port() == error.port())
        };
        let opened = match open(&missing, backlog) {
            Err(error) if in_the_way(&error) => {
                apply(&closed, Vec::new(), requests);
                open(&missing, backlog).inspect_err(|_| {
                    let again = closed.iter().filter_map(|place| door::open_again(place, backlog));
                    let again: Vec<Listener> = again.collect();
                    *places = kept.iter().copied().chain(again.iter().filter_map(Listener::place)).collect();
                    apply(&[], again, requests);
                })?
            }
            opened => opened?,
        };
        *places = kept.into_iter().chain(opened.iter().filter_map(Listener::place)).collect();
        apply(&closed, opened, requests);
        Ok(())
    }
}

fn open(missing: &[&Wanted], backlog: i32) -> Result<Vec<Listener>, BindError> {
    let mut opened = Vec::new();
    for wanted in missing {
        opened.extend(wanted.open(backlog)?);
    }
    Ok(opened)
}

/// Lets the main thread make the change, and waits until that is done.
fn apply(closed: &[Place], opened: Vec<Listener>, requests: &UnboundedSender<Request>) {
    let (sender, done) = mpsc::channel();
    let change = ListenerChange { closed: closed.to_vec(), opened, _done: sender };
    // The receiver is gone only when the server is stopping.
    if requests.send(Request::Listen(change)).is_ok() {
        let _ = done.recv();
    }
}
