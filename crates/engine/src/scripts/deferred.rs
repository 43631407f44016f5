//! [`DeferredAction`]: what a run of a script may do only once, at its end.

use crate::Engine;
use crate::clients::Client;
use crate::pubsub::{Namespace, Payload};
use strand_keyspace::Txn;
use strand_wire::args::Argv;

/// An action that waits until the run is done, because a run that restarts must not repeat the action.
pub(crate) struct DeferredAction {
    /// The number of the run's events that come before the action.
    pub(super) events_before: usize,
    pub(super) action: ActionKind,
}

/// What a [`DeferredAction`] does.
pub(super) enum ActionKind {
    /// Publish this message.
    Publish(Namespace, Argv),
    /// Remember that the client keeps a copy of a key that the run wrote before.
    Remember(Box<[u8]>),
}

impl DeferredAction {
    /// At the end of the run: sends the events of its changes and does the delayed actions, in the order of the
    /// script.
    pub(crate) fn run_all(all: &[DeferredAction], engine: &Engine, client: &Client, txn: &mut Txn<'_>) {
        for DeferredAction { events_before, action } in all {
            txn.report_events_until(*events_before);
            match action {
                ActionKind::Publish(kind, argv) => {
                    let args = argv.args();
                    engine.pubsub.publish(*kind, args.at(1), &Payload::of(args, 2));
                    engine.pass_message_on(args, Some(txn));
                }
                ActionKind::Remember(key) => engine.tracking.remember(client, key),
            }
        }
        txn.report_events();
    }
}
