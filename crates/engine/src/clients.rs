//! The registry of clients, shared by all workers. CLIENT LIST shows it and CLIENT KILL searches it.
//!
//! Each session owns an [`Arc<Client>`] and writes its changing fields once per turn, relaxed. Names change rarely
//! and are behind a lock. The registry itself is locked only when a client connects, disconnects or is looked up.

use crate::headroom::GrowthLimit;
use crate::host::wake_together;
use crate::pubsub::{Frame, Inbox};
use crate::session::Ticket;
use crate::stats::CommandIds;
use crate::tracking::{Tracked, TrackingFlags};
use crate::{Now, PeerInfo, Wake};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use strand_keyspace::WatchFlag;

/// The part of a session that other threads can read.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: PeerInfo,
    wake: Arc<dyn Wake>,
    opened_us: u64,
    killed: AtomicBool,
    texts: Mutex<Texts>,
    turn_fields: TurnFields,
    /// The ticket at the keys that the client waits for.
    ticket: Mutex<Option<Arc<Ticket>>>,
    /// Bytes that the driver has received and the session has not seen.
    pub(crate) unread_bytes: Arc<AtomicU64>,
    /// Raised when a key that the client watches has changed.
    pub(crate) watch_flag: Mutex<WatchFlag>,
    /// Messages for the client.
    pub(crate) inbox: Inbox,
    /// True while the client is in MONITOR.
    pub(crate) is_monitor: AtomicBool,
    /// True when the client is a replica.
    pub(crate) is_replica: AtomicBool,
    /// True for the connection to this server's primary.
    is_primary: AtomicBool,
    /// The client's tracking of keys (CLIENT TRACKING).
    pub(crate) tracked: Tracked,
    /// The rate at which the client may make memory grow.
    pub(crate) growth_limit: GrowthLimit,
}

/// The texts that describe a client in CLIENT LIST.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_ver: String,
    /// The user's name, in a form that may be shown.
    pub(crate) user: String,
}

/// The fields of a client that change every turn.
#[derive(Debug, Default)]
struct TurnFields {
    last_us: AtomicU64,
    command: AtomicU32,
    db: AtomicU32,
    resp3: AtomicBool,
    no_evict: AtomicBool,
    no_touch: AtomicBool,
    input_bytes: AtomicU64,
    args_bytes: AtomicU64,
    output_bytes: AtomicU64,
    /// 1 + the number of commands queued since MULTI. 0 outside a transaction.
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    /// True while the client watches keys.
    watches: AtomicBool,
    /// True while CLIENT PAUSE keeps the client waiting.
    paused: AtomicBool,
}

/// A session's state for its [`Client`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientFacts {
    pub(crate) last_us: u64,
    pub(crate) command: u32,
    pub(crate) db: usize,
    pub(crate) resp3: bool,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    pub(crate) input_bytes: usize,
    pub(crate) args_bytes: usize,
    /// Number of commands queued since MULTI.
    pub(crate) queued: Option<usize>,
    /// Number of bytes of the queued commands.
    pub(crate) queued_bytes: usize,
    /// True while the client watches keys.
    pub(crate) watches: bool,
    /// True while CLIENT PAUSE keeps the client waiting.
    pub(crate) paused: bool,
    pub(crate) output_bytes: usize,
}

impl Client {
    fn new(id: u64, peer: PeerInfo, wake: Arc<dyn Wake>, now: Now) -> Client {
        let turn_fields =
            TurnFields { last_us: now.mono_us.into(), command: u32::MAX.into(), ..TurnFields::default() };
        Client {
            id,
            peer,
            wake,
            opened_us: now.mono_us,
            killed: false.into(),
            texts: Mutex::new(Texts { user: "default".into(), ..Texts::default() }),
            turn_fields,
            ticket: Mutex::default(),
            unread_bytes: Arc::default(),
            watch_flag: Mutex::default(),
            inbox: Inbox::default(),
            is_monitor: false.into(),
            is_replica: false.into(),
            is_primary: false.into(),
            tracked: Tracked::default(),
            growth_limit: GrowthLimit::default(),
        }
    }
    /// A client without a connection, for the commands of a file. Its id is 0, and no lookup finds it.
    pub(crate) fn for_file(now: Now) -> Client {
        let (addr, laddr) = (String::new(), String::new());
        let peer = PeerInfo { addr, laddr, fd: -1, local: true, ..PeerInfo::default() };
        Client::new(0, peer, Arc::new(Nobody), now)
    }
    pub(crate) fn update(&self, s: ClientFacts) {
        let m = &self.turn_fields;
        m.last_us.store(s.last_us, Relaxed);
        m.command.store(s.command, Relaxed);
        m.db.store(s.db as u32, Relaxed);
        m.resp3.store(s.resp3, Relaxed);
        m.no_evict.store(s.no_evict, Relaxed);
        m.no_touch.store(s.no_touch, Relaxed);
        m.input_bytes.store(s.input_bytes as u64, Relaxed);
        m.args_bytes.store(s.args_bytes as u64, Relaxed);
        m.output_bytes.store(s.output_bytes as u64, Relaxed);
        m.queued_bytes.store(s.queued_bytes as u64, Relaxed);
        m.watches.store(s.watches, Relaxed);
        m.paused.store(s.paused, Relaxed);
        m.queued.store(s.queued.map_or(0, |n| n as u64 + 1), Relaxed);
    }
    /// Publishes the sizes for the current command: bytes of the request and the input after it, and bytes of its
    /// arguments.
    pub(crate) fn update_request(&self, input_bytes: usize, args_bytes: usize) {
        self.turn_fields.input_bytes.store(input_bytes as u64, Relaxed);
        self.turn_fields.args_bytes.store(args_bytes as u64, Relaxed);
    }
    /// Publishes the number of bytes of the replies that are not written yet.
    pub(crate) fn set_output_bytes(&self, bytes: usize) {
        self.turn_fields.output_bytes.store(bytes as u64, Relaxed);
    }
    pub(crate) fn texts(&self) -> Texts {
        self.texts.lock().clone()
    }
    pub(crate) fn set_texts(&self, change: impl FnOnce(&mut Texts)) {
        change(&mut self.texts.lock());
    }
    /// The handle that wakes the session.
    pub(crate) fn wake_handle(&self) -> &Arc<dyn Wake> {
        &self.wake
    }
    /// Sends a push message to the client.
    pub(crate) fn push_frame(&self, frame: Frame) {
        // A message would be a part of the stream.
        if self.is_replica.load(Relaxed) || self.is_primary.load(Relaxed) {
            return;
        }
        if self.inbox.put(frame, self.output_bytes()) {
            self.wake.wake();
        }
    }
    /// Number of bytes of messages and replies that the client's socket has not taken yet.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.inbox.waiting_bytes() + self.output_bytes()
    }
    /// CLIENT GETREDIR: the client id that gets the invalidations, 0 for this client, -1 while tracking is off.
    pub(crate) fn redirect(&self) -> i64 {
        if self.tracked.mode().has(TrackingFlags::ON) { self.tracked.redirect() as i64 } else { -1 }
    }
    /// The client's class in CLIENT LIST and CLIENT KILL.
    pub(crate) fn class(&self) -> &'static str {
        match self.is_replica.load(Relaxed) {
            true => "slave",
            false if self.is_primary.load(Relaxed) => "master",
            false if self.inbox.is_subscriber() => "pubsub",
            false => "normal",
        }
    }
    /// Marks the client for closing and wakes its session.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        self.wake.wake();
    }
    /// Sets the ticket of a wait. `None`: the client does not wait.
    pub(crate) fn set_ticket(&self, ticket: Option<Arc<Ticket>>) {
        *self.ticket.lock() = ticket;
    }
    /// CLIENT UNBLOCK. False when the client does not wait.
    pub(crate) fn unblock(&self, with_error: bool) -> bool {
        let ticket = self.ticket.lock().clone();
        ticket.is_some_and(|ticket| ticket.unblock(with_error))
    }
    /// Ends the client's wait because this server became a replica.
    pub(crate) fn end_wait_of_primary(&self) {
        let ticket = self.ticket.lock().clone();
        if let Some(ticket) = ticket {
            ticket.end_by_role();
        }
    }
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }
    /// Bytes held for the client: requests, arguments, replies.
    pub(crate) fn held_bytes(&self) -> u64 {
        let m = &self.turn_fields;
        let seen_bytes = m.queued_bytes.load(Relaxed)
            + m.input_bytes.load(Relaxed)
            + m.args_bytes.load(Relaxed)
            + m.output_bytes.load(Relaxed);
        seen_bytes + self.unread_bytes.load(Relaxed) + self.inbox.bytes()
    }
    pub(crate) fn input_bytes(&self) -> u64 {
        self.turn_fields.input_bytes.load(Relaxed)
    }
    pub(crate) fn output_bytes(&self) -> u64 {
        self.turn_fields.output_bytes.load(Relaxed)
    }
    /// Age of the connection in whole seconds.
    pub(crate) fn age_s(&self, now: Now) -> u64 {
        now.mono_us.saturating_sub(self.opened_us) / 1_000_000
    }
    /// The client's line of CLIENT LIST, without the line end.
    pub(crate) fn line(&self, ids: &CommandIds, now: Now) -> String {
        let (m, texts) = (&self.turn_fields, self.texts());
        let seconds_since = |us: u64| now.mono_us.saturating_sub(us) / 1_000_000;
        let mut flags = String::new();
        let queued = m.queued.load(Relaxed);
        let mode = self.tracked.mode();
        for (set, letter) in [
            (self.is_replica.load(Relaxed), 'S'),
            (self.is_primary.load(Relaxed), 'M'),
            (self.is_monitor.load(Relaxed), 'O'),
            (self.inbox.is_subscriber(), 'P'),
            (queued > 0, 'x'),
            (self.ticket.lock().is_some() || m.paused.load(Relaxed), 'b'),
            (mode.has(TrackingFlags::ON), 't'),
            (mode.has(TrackingFlags::BROKEN), 'R'),
            (mode.has(TrackingFlags::BCAST), 'B'),
            (m.watches.load(Relaxed) && self.watch_flag.lock().has_changed(), 'd'),
            (self.is_killed(), 'A'),
            (self.peer.unix, 'U'),
            (m.no_evict.load(Relaxed), 'e'),
            (m.no_touch.load(Relaxed), 'T'),
        ] {
            if set {
                flags.push(letter);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let mut line = format!(
            "id={} addr={} laddr={} fd={} name={}",
            self.id, self.peer.addr, self.peer.laddr, self.peer.fd, texts.name
        );
        let (age, idle) = (seconds_since(self.opened_us), seconds_since(m.last_us.load(Relaxed)));
        let out = m.output_bytes.load(Relaxed);
        let [channels, patterns, shard_channels] = self.inbox.subscriptions();
        // Sizes of redis-server's own buffers (qbuf-free, rbs, rbp) have no counterpart here and are 0.
        let written = write!(
            line,
            " age={age} idle={idle} flags={flags} db={} sub={channels} psub={patterns} ssub={shard_channels} multi={} \
             qbuf={} qbuf-free=0 argv-mem={} multi-mem={} rbs=0 rbp=0 obl={out} oll=0 omem={out} tot-mem={} events={} cmd={} \
             user={} redir={} resp={} \
             lib-name={} lib-ver={}",
            m.db.load(Relaxed),
            queued as i64 - 1,
            m.input_bytes.load(Relaxed),
            m.args_bytes.load(Relaxed),
            m.queued_bytes.load(Relaxed),
            self.held_bytes(),
            if out > 0 { "rw" } else { "r" },
            ids.name(m.command.load(Relaxed)),
            texts.user,
            self.redirect(),
            if m.resp3.load(Relaxed) { 3 } else { 2 },
            texts.lib_name,
            texts.lib_ver,
        );
        written.expect("writing to a string does not fail");
        line
    }
}

/// Wakes nobody: the client has no session.
struct Nobody;

impl Wake for Nobody {
    fn queue(&self) {}
}

/// What [`Clients::evict`] did.
#[derive(Default)]
pub(crate) struct EvictedClients {
    /// The clients that were closed, each with the bytes that it held.
    pub(crate) clients: Vec<(Arc<Client>, u64)>,
    /// What all clients held before.
    pub(crate) all_bytes: u64,
    /// Bytes of killed clients, these included. They are freed soon.
    pub(crate) leaving_bytes: u64,
}

/// All clients by id.
#[derive(Default)]
pub(crate) struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    last_id: AtomicU64,
    open: AtomicU64,
    /// Number of disconnected clients with a command that has not begun.
    orphaned_commands: AtomicU64,
    /// Clients in a blocking command, and those of them with a timeout.
    blocked: AtomicU64,
    blocked_with_timeout: AtomicU64,
}

impl Clients {
    /// Counts a client that starts to wait.
    pub(crate) fn count_blocked(&self, has_timeout: bool) {
        self.blocked.fetch_add(1, Relaxed);
        self.blocked_with_timeout.fetch_add(u64::from(has_timeout), Relaxed);
    }
    /// Counts a client that stops waiting.
    pub(crate) fn uncount_blocked(&self, has_timeout: bool) {
        self.blocked.fetch_sub(1, Relaxed);
        self.blocked_with_timeout.fetch_sub(u64::from(has_timeout), Relaxed);
    }
    /// Number of waiting clients.
    pub(crate) fn blocked_len(&self) -> u64 {
        self.blocked.load(Relaxed)
    }
    /// Number of waiting clients with a timeout.
    pub(crate) fn blocked_with_timeout_len(&self) -> u64 {
        self.blocked_with_timeout.load(Relaxed)
    }
    /// Registers a client. `None` when `max` clients are registered.
    pub(crate) fn add(
        &self,
        peer: PeerInfo,
        wake: Arc<dyn Wake>,
        max: usize,
        now: Now,
    ) -> Option<Arc<Client>> {
        let mut by_id = self.by_id.lock();
        if by_id.len() + self.orphaned_commands.load(Relaxed) as usize >= max {
            return None;
        }
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let client = Arc::new(Client::new(id, peer, wake, now));
        by_id.insert(id, client.clone());
        self.open.store(by_id.len() as u64, Relaxed);
        Some(client)
    }
    /// Registers the connection to this server's primary, whatever `maxclients` is. Its thread looks by itself whether the
    /// client was killed.
    pub(crate) fn add_primary(&self, peer: PeerInfo, now: Now) -> Arc<Client> {
        let client = self.add(peer, Arc::new(Nobody), usize::MAX, now).expect("there is no limit");
        client.is_primary.store(true, Relaxed);
        client.set_texts(|texts| texts.user = "(superuser)".into());
        client
    }
    pub(crate) fn remove(&self, id: u64) {
        let mut by_id = self.by_id.lock();
        by_id.remove(&id);
        self.open.store(by_id.len() as u64, Relaxed);
    }
    /// Counts a client that disconnects and leaves a command that has not begun. The client still counts against
    /// `maxclients`.
    pub(crate) fn count_orphaned_command(&self) {
        self.orphaned_commands.fetch_add(1, Relaxed);
    }
    /// Call this when the command that a disconnected client has left begins.
    pub(crate) fn uncount_orphaned_command(&self) {
        self.orphaned_commands.fetch_sub(1, Relaxed);
    }
    /// Bytes of messages and replies that wait for clients, without those for replicas. `each_bytes` are added for each
    /// client for whom something waits.
    pub(crate) fn waiting_bytes(&self, each_bytes: u64) -> u64 {
        let of_client = |client: &Arc<Client>| match client.waiting_bytes() {
            0 => 0,
            bytes => bytes + each_bytes,
        };
        let by_id = self.by_id.lock();
        by_id.values().filter(|client| !client.is_replica.load(Relaxed)).map(of_client).sum()
    }
    /// Number of open clients.
    pub(crate) fn len(&self) -> usize {
        self.open.load(Relaxed) as usize
    }
    /// All clients, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).cloned()
    }
    /// Wakes the sessions with subscriptions.
    pub(crate) fn wake_subscribers(&self) {
        wake_together(self.all().iter().filter(|c| c.inbox.is_subscriber()).map(|c| &c.wake));
    }
    /// Closes the clients that hold the most memory until the others hold at most `bytes_max`. CLIENT NO-EVICT protects a
    /// client.
    pub(crate) fn evict(&self, bytes_max: u64) -> EvictedClients {
        let mut all = self.all();
        // Replicas have a limit of their own.
        all.retain(|client| !client.is_replica.load(Relaxed) && !client.is_primary.load(Relaxed));
        let (killed, mut left): (Vec<_>, Vec<_>) = all.into_iter().partition(|client| client.is_killed());
        let bytes_of =
            |clients: &[Arc<Client>]| clients.iter().map(|client| client.held_bytes()).sum::<u64>();
        let mut held_bytes = bytes_of(&left);
        let leaving_bytes = bytes_of(&killed);
        let mut evicted = EvictedClients { clients: Vec::new(), all_bytes: held_bytes, leaving_bytes };
        if held_bytes <= bytes_max {
            return evicted;
        }
        left.retain(|client| !client.turn_fields.no_evict.load(Relaxed) && client.held_bytes() > 0);
        left.sort_by_cached_key(|client| std::cmp::Reverse(client.held_bytes()));
        for client in left {
            if held_bytes <= bytes_max {
                break;
            }
            let bytes = client.held_bytes();
            held_bytes = held_bytes.saturating_sub(bytes);
            client.kill();
            evicted.leaving_bytes += bytes;
            evicted.clients.push((client, bytes));
        }
        evicted
    }
    /// Wakes every session.
    pub(crate) fn wake_all(&self) {
        wake_together(self.all().iter().map(|c| &c.wake));
    }
}
