//! [`PrimaryClient`]: the connection to the primary as a client: CLIENT LIST shows it, CLIENT KILL ends it, and its
//! commands are in the statistics.

use crate::clients::{Client, ClientFacts};
use crate::monitors::Caller;
use crate::session::{CommandKind, kind_of};
use crate::stats::{CommandCounter, Stat};
use crate::{Engine, Now, PeerInfo, TABLE};
use std::sync::Arc;
use strand_commands::replay::Replay;
use strand_commands::spec::CommandSpec;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

/// The place of the counters. The thread is no worker.
const SLOT: usize = 0;

/// The registered client, as long as this lives.
pub(super) struct PrimaryClient<'e> {
    engine: &'e Engine,
    client: Arc<Client>,
    /// The number of the latest command.
    command: u32,
}

impl<'e> PrimaryClient<'e> {
    pub(super) fn new(engine: &'e Engine, peer: PeerInfo) -> PrimaryClient<'e> {
        let client = engine.clients.add_primary(peer, engine.host.now());
        PrimaryClient { engine, client, command: u32::MAX }
    }
    /// True when CLIENT KILL has ended the connection.
    pub(super) fn is_killed(&self) -> bool {
        self.client.is_killed()
    }
    /// Counts a command of the stream that has run, or that was queued since MULTI.
    pub(super) fn count(
        &mut self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        now: Now,
        took_ns: u64,
        failed: u64,
    ) {
        let stats = &self.engine.stats;
        self.command = stats.ids.of(spec);
        stats.count(SLOT, self.command, CommandCounter::Calls, 1);
        stats.add(SLOT, Stat::Commands, 1);
        if failed > 0 {
            stats.count(SLOT, self.command, CommandCounter::Failed, 1);
        }
        // The arguments of a queued command are in the queue.
        if !args.is_empty() {
            self.engine.note_lap(&self.client, spec, args, now, took_ns);
        }
    }
    /// Sends a command of the stream, which is about to run, to the clients in MONITOR. As in redis-server, the commands of
    /// a transaction are shown when they run, and SELECT with its new database.
    #[cold]
    pub(super) fn show_to_monitors(&self, replay: &Replay, args: Args<'_>, now: Now) {
        let Ok(found) = TABLE.resolve(args) else { return };
        let mut db = replay.db();
        let mut show = |spec: &'static CommandSpec, args: Args<'_>| {
            if kind_of(spec) == CommandKind::Select {
                let selected = parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok());
                db = selected.unwrap_or(db);
            }
            self.engine.send_to_monitors(spec, args, db, Caller::Client(&self.client), now);
        };
        if kind_of(found.spec) == CommandKind::Exec {
            replay.queued().for_each(|(spec, args)| show(spec, args));
        } else if replay.in_multi() {
            return;
        }
        show(found.spec, args);
    }
    /// Publishes the connection's state for CLIENT LIST.
    pub(super) fn update(&self, db: usize, input_bytes: usize) {
        self.client.update(ClientFacts {
            last_us: self.engine.host.mono_us(),
            command: self.command,
            db,
            resp3: false,
            no_evict: false,
            no_touch: false,
            input_bytes,
            args_bytes: 0,
            queued: None,
            queued_bytes: 0,
            watches: false,
            paused: false,
            output_bytes: 0,
        });
    }
}

impl Drop for PrimaryClient<'_> {
    fn drop(&mut self) {
        self.engine.clients.remove(self.client.id);
    }
}
