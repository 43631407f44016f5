//! [`Engine`]: the state that all sessions share.

use crate::acl::{Acl, DEFAULT_USER, PASSWORD_BYTES_MAX, UsersError, rewrite_users};
use crate::admission::{WorkerMemory, worker_memories};
use crate::clients::Clients;
use crate::config::{Opt, UserLine};
use crate::diag::Diag;
use crate::eviction_messages::Echo;
use crate::following::Following;
use crate::headroom::Headroom;
use crate::importers::Importers;
use crate::limited_lines::LimitedLines;
use crate::long_locks::LongLocks;
use crate::memory::Memory;
use crate::monitors::Monitors;
use crate::notices::Notices;
use crate::pause::Pause;
use crate::persist::Persist;
use crate::pubsub::PubSub;
use crate::replication::Replication;
use crate::retries::Retries;
use crate::scripts::Scripts;
use crate::slowlog::SlowLog;
use crate::stats::{Stat, Stats};
use crate::timing::Event;
use crate::tracking::{FORGOTTEN_PER_TICK, Tracking};
use crate::{Config, Host, Now, ServerFacts, StartError, TABLE, system_text};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};

use strand_keyspace::{Keyspace, LISTENER};
use strand_wire::args::Argv;
use strand_wire::reply::ErrorText;

/// Keys that active expiry checks in one slice, for each step of `active-expire-effort`: about 0.1 ms, which a worker
/// on the same core may wait for. With 2,000 the p99.9 of a probe beside 1 M expiring keys was 0.30-0.46 ms; with 500
/// it is 0.22-0.28 ms.
pub const EXPIRE_KEYS_PER_TICK: usize = 500;

/// The state that all workers share: keyspace, configuration, client registry, counters.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) keyspace: Arc<Keyspace>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) facts: ServerFacts,
    pub(crate) acl: Acl,
    pub(crate) clients: Arc<Clients>,
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) stats: Stats,
    pub(crate) slow_log: SlowLog,
    pub(crate) diag: Diag,
    pub(crate) pause: Pause,
    /// Number of jobs on helper threads that may write.
    pub(crate) lane_writes: AtomicUsize,
    pub(crate) pubsub: Arc<PubSub>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) monitors: Monitors,
    /// The lines of the log about clients that are closed because of a limit, and about failed logins.
    pub(crate) cut_offs: LimitedLines,
    pub(crate) failed_logins: LimitedLines,
    pub(crate) long_locks: LongLocks,
    pub(crate) retries: Retries,
    pub(crate) importers: Importers,
    pub(crate) persist: Persist,
    pub(crate) replication: Replication,
    pub(crate) following: Following,
    pub(crate) started: Now,
    /// 40 hexadecimal digits: `run_id`.
    pub(crate) run_id: String,
    /// 40 hexadecimal digits: `master_replid`, the id of the stream for replicas.
    pub(crate) replication_id: Mutex<String>,
    /// Set by DEBUG PAUSE-CRON.
    pub(crate) cron_paused: AtomicBool,
    pub(crate) memory: Arc<Memory>,
    pub(crate) echo: Echo,
    pub(crate) headroom: Arc<Headroom>,
    pub(crate) scripts: Scripts,
    pub(crate) worker_memories: Box<[WorkerMemory]>,
    /// Set by DEBUG SET-ACTIVE-EXPIRE.
    pub(crate) active_expire: AtomicBool,
    /// Locked by a CONFIG SET of `tls-*` options on a helper thread, so that its trial and rollback do not mix with
    /// another one.
    pub(crate) tls_change: Mutex<()>,
    /// Locked by [`Engine::update_key_listeners`].
    listening: Mutex<()>,
    /// A reference to this engine, for threads that outlive a call.
    me: Weak<Engine>,
}

impl Engine {
    /// Creates the engine. `config` comes from files and arguments; its tunables are applied to `keyspace`.
    pub fn new(
        config: Config,
        keyspace: Arc<Keyspace>,
        host: Arc<dyn Host>,
        facts: ServerFacts,
        now: Now,
    ) -> Arc<Engine> {
        let workers = facts.workers;
        let mut rng = fastrand::Rng::with_seed(facts.run_id_seed);
        let mut id = || (0..40).map(|_| char::from(b"0123456789abcdef"[rng.usize(0..16)])).collect();
        let memory = Arc::new(Memory::new(host.used_bytes()));
        let clients = Arc::<Clients>::default();
        let pubsub = Arc::new(PubSub::new(facts.workers, clients.clone()));
        let tracking = Arc::new(Tracking::new(clients.clone()));
        let long_locks = LongLocks::new(host.signal());
        let persist = Persist::new(&*host, now);
        let (replication, following) = (Replication::new(&*host), Following::new(&*host));
        let engine = Arc::new_cyclic(|me: &Weak<Engine>| Engine {
            notices: Arc::new(Notices::new(pubsub.clone(), tracking.clone(), following.own_keys.clone())),
            pubsub,
            run_id: id(),
            replication_id: Mutex::new(id()),
            cron_paused: false.into(),
            scripts: Scripts::new(memory.clone()),
            memory,
            echo: Echo::default(),
            headroom: Arc::default(),
            worker_memories: worker_memories(facts.run_id_seed),
            config,
            keyspace,
            host,
            facts,
            acl: Acl::new(),
            clients,
            tracking,
            stats: Stats::new(workers),
            slow_log: SlowLog::default(),
            diag: Diag::default(),
            pause: Pause::default(),
            lane_writes: AtomicUsize::new(0),
            long_locks,
            retries: Retries::default(),
            importers: Importers::default(),
            monitors: Monitors::default(),
            cut_offs: LimitedLines::of_cut_offs(),
            failed_logins: LimitedLines::of_failed_logins(),
            persist,
            replication,
            following,
            started: now,
            active_expire: true.into(),
            tls_change: Mutex::new(()),
            listening: Mutex::new(()),
            me: me.clone(),
        });
        engine.keyspace.set_listener(engine.notices.clone());
        engine.keyspace.journal().set_alerts(engine.persist.shared_alerts());
        engine.keyspace.set_touched_alerts(engine.persist.shared_alerts());
        let backlog_signal = engine.persist.aof.backlog_signal.clone();
        engine.keyspace.journal().set_wake(Box::new(move || backlog_signal.notify()));
        engine.keyspace.journal().set_awaited_wake(engine.replication.waker());
        engine.apply_config();
        engine.acl.set_default_password(|| engine.config.requirepass());
        engine
    }
    /// A reference to this engine for a thread. `None` when the server ends.
    pub(crate) fn me(&self) -> Option<Arc<Engine>> {
        self.me.upgrade()
    }
    /// Creates the users of the configuration or of the ACL file. Call it once, before the first client.
    ///
    /// # Errors
    /// Why the users are invalid, for the administrator.
    pub fn load_users(&self) -> Result<(), StartError> {
        Ok(self.read_users()?)
    }
    fn read_users(&self) -> Result<(), UsersError> {
        let (file, declared) = (self.config.aclfile(), self.config.users());
        if !file.is_empty() && !declared.is_empty() {
            return Err(UsersError::DeclaredTwice);
        }
        if self.config.requirepass().len() > PASSWORD_BYTES_MAX {
            return Err(UsersError::LongPassword);
        }
        let all_channels = self.all_channels_by_default();
        // The default user exists before its line, so `configure` cannot tell that it has two.
        let is_default = |line: &&UserLine| line.words.first().is_some_and(|name| name == DEFAULT_USER);
        let at =
            |line: &UserLine, error| UsersError::Line { place: line.place.clone(), error: Box::new(error) };
        if let Some(second) = declared.iter().filter(is_default).nth(1) {
            let user = String::from_utf8_lossy(DEFAULT_USER).into_owned();
            return Err(at(second, UsersError::Duplicate { user }));
        }
        for line in &declared {
            self.acl.configure(&line.words, all_channels).map_err(|error| at(line, error))?;
        }
        match file.is_empty() {
            true => Ok(()),
            false => self
                .load_acl_file(&file)
                .map_err(|text| UsersError::File(String::from_utf8_lossy(&text).into_owned())),
        }
    }
    /// Applies `oom-score-adj` to the process, for its role as a primary or a replica.
    ///
    /// # Errors
    /// When the system refuses. The reason is logged.
    pub fn set_oom_score(&self) -> io::Result<()> {
        self.host.set_oom_score(&self.config, self.following.is_on())
    }
    /// True when every command needs a password. If false, serve only clients on this machine.
    pub fn needs_password(&self) -> bool {
        let default = self.acl.default_user();
        !default.needs_no_password() || !default.is_on()
    }
    /// False when `user` may not call `command`, whatever its keys are. A door asks this before it reads a long request
    /// that the session would refuse. True when the result is not known, as for an unknown user.
    pub fn may_call(&self, user: &[u8], command: &[&[u8]]) -> bool {
        let argv = Argv::from_slices(command);
        let (Some(user), Ok(found)) = (self.acl.get(user), TABLE.resolve(argv.args())) else {
            return true;
        };
        // The keys are not checked here, because that may take long.
        user.may_call(found.spec, argv.args())
    }
    /// Replaces the users with those of the ACL file.
    pub(crate) fn load_acl_file(&self, path: &str) -> Result<(), ErrorText> {
        let text = self.host.read_acl_file(path);
        let text =
            text.map_err(|why| format!("Error loading ACLs, opening file '{path}': {}", system_text(&why)))?;
        self.acl.load(&text, path, self.all_channels_by_default())
    }
    /// Call this after every change of users. Each session reads its user again before its next command. Sessions
    /// with subscriptions do so at once.
    pub(crate) fn users_changed(&self) {
        self.config.invalidate_sessions();
        self.clients.wake_subscribers();
    }
    /// Call this after users were removed: their sessions are closed, also idle ones.
    pub(crate) fn users_removed(&self) {
        self.config.invalidate_sessions();
        self.clients.wake_all();
    }
    /// True when `acl-pubsub-default` gives new users all channels.
    pub(crate) fn all_channels_by_default(&self) -> bool {
        self.config.choice(Opt::AclPubsubDefault) == "allchannels"
    }
    /// The text of a configuration file with the current values and users: `old` with updated lines.
    pub(crate) fn rewrite_config(&self, old: &str) -> String {
        let users = self.config.aclfile().is_empty().then(|| self.acl.all());
        rewrite_users(&self.config.rewrite(old), &users.unwrap_or_default())
    }
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The data of the server.
    pub fn keyspace(&self) -> &Arc<Keyspace> {
        &self.keyspace
    }
    /// The host: what the driver does for the engine.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
    /// The time in Unix milliseconds, at a moment after `then_ms`. A clock that was set back stands still.
    pub(crate) fn time_since(&self, then_ms: i64) -> i64 {
        self.host.now().unix_ms().max(then_ms)
    }
    /// The number of open sessions.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }
    /// The periodic work, `hz` times per second on one thread: a slice of active expiry, `save` points, the samples
    /// for INFO.
    pub fn tick(self: &Arc<Self>, now: Now) {
        if self.cron_paused.load(Relaxed) {
            return;
        }
        self.report_stuck_workers(now);
        self.expire(now);
        self.check_save_points(now);
        self.check_aof_growth(now);
        self.reclaim();
        self.cut_offs.tick(&*self.host);
        self.failed_logins.tick(&*self.host);
        self.tracking.forget_excess(FORGOTTEN_PER_TICK);
        let mut rates = self.stats.rates.lock();
        rates.commands.sample(self.stats.get(Stat::Commands), now.mono_us);
        rates.input_bytes.sample(self.stats.get(Stat::InputBytes), now.mono_us);
        rates.output_bytes.sample(self.stats.get(Stat::OutputBytes), now.mono_us);
        let totals = &self.replication.totals;
        rates.replication_input_bytes.sample(totals.input_bytes.load(Relaxed), now.mono_us);
        rates.replication_output_bytes.sample(totals.output_bytes.load(Relaxed), now.mono_us);
    }
    /// Runs a slice of active expiry, as [`Engine::tick`] does. True when more is left to do before the next tick.
    pub fn expire(&self, now: Now) -> bool {
        // A pause freezes the data, and an expiry is a write.
        let is_off = !self.active_expire.load(Relaxed) || self.cron_paused.load(Relaxed);
        // The last save is repeated when data changes meanwhile.
        let is_off = is_off || self.persist.is_ending();
        if is_off || self.pause.waits_until(true, now.mono_us).is_some() {
            return false;
        }
        if self.following.is_on() {
            self.while_data_stays(|| self.expire_own_keys(now.unix_ms()));
            return false;
        }
        self.while_data_stays(|| self.expire_some(now)).unwrap_or(false)
    }
    fn expire_some(&self, now: Now) -> bool {
        let keys_max = EXPIRE_KEYS_PER_TICK * self.config.number(Opt::ActiveExpireEffort) as usize;
        let began_us = self.host.mono_us();
        let more = self.keyspace.expire_slice(now.unix_ms(), keys_max).has_more;
        let took_us = self.host.mono_us().saturating_sub(began_us);
        self.stats.add(0, Stat::ExpireCycleUs, took_us);
        self.stats.add(0, Stat::ExpireCapReached, more.into());
        self.stats.events.note(Event::ExpireCycle, took_us, now.unix_s());
        more
    }
    /// Makes the keyspace report changes of keys while a listener exists. Call it when the listeners have changed.
    pub(crate) fn update_key_listeners(&self) {
        // Let one call run at a time, so that the last call sees every change.
        let _looking = self.listening.lock();
        let listens = &self.keyspace.settings().listens;
        // The other bit is the journal's, which another thread may switch at this moment.
        match self.notices.listens() {
            true => listens.fetch_or(LISTENER, SeqCst),
            false => listens.fetch_and(!LISTENER, SeqCst),
        };
    }
    /// Starts or stops the journal of all changes. Returns the journal's offset.
    pub fn switch_journal(&self, on: bool) -> u64 {
        self.keyspace.switch_journal(on)
    }
    /// Passes the keyspace's tunables to the keyspace.
    pub(crate) fn apply_config(&self) {
        let (config, settings) = (&self.config, self.keyspace.settings());
        let number = |option| config.number(option) as u64;
        settings.hash_max_listpack_entries.store(number(Opt::HashMaxListpackEntries), Relaxed);
        settings.hash_max_listpack_value.store(number(Opt::HashMaxListpackValue), Relaxed);
        settings.zset_max_listpack_entries.store(number(Opt::ZsetMaxListpackEntries), Relaxed);
        settings.zset_max_listpack_value.store(number(Opt::ZsetMaxListpackValue), Relaxed);
        settings.proto_max_bulk_len.store(number(Opt::ProtoMaxBulkLen), Relaxed);
        settings.stream_node_max_bytes.store(number(Opt::StreamNodeMaxBytes), Relaxed);
        settings.stream_node_max_entries.store(number(Opt::StreamNodeMaxEntries), Relaxed);
        settings.hll_sparse_max_bytes.store(number(Opt::HllSparseMaxBytes), Relaxed);
        settings.set_max_intset_entries.store(number(Opt::SetMaxIntsetEntries), Relaxed);
        settings.lfu_log_factor.store(number(Opt::LfuLogFactor), Relaxed);
        settings.lfu_decay_time.store(number(Opt::LfuDecayTime), Relaxed);
        let policy = config.choice(Opt::MaxMemoryPolicy);
        settings.lfu.store(u64::from(policy.ends_with("-lfu")), Relaxed);
        self.slow_log.set_slow_us(config.number(Opt::SlowlogLogSlowerThan));
        self.stats.set_tracking(number(Opt::LatencyTracking) == 1);
        self.stats.events.set_threshold_ms(number(Opt::LatencyMonitorThreshold));
        self.notices.set_letters(&config.text(Opt::NotifyKeyspaceEvents));
        self.tracking.set_keys_max(config.number(Opt::TrackingTableMaxKeys) as usize);
        self.update_key_listeners();
        self.memory.set_limit(number(Opt::MaxMemory));
        self.sample_memory();
        self.forget_spare();
        self.evict_clients();
        self.update_save_alerts();
        self.replicas_changed();
    }
}
