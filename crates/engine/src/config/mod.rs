//! The configuration: one table of options with redis-server's names ([`table`]), their values ([`Value`]) and their
//! text form ([`text`]).
//!
//! [`Config`] holds the current value of every option. Files and arguments fill it at the start ([`Config::load`]),
//! CONFIG SET changes it ([`Config::set`]), and typed getters read it. Options of redis-server that have no effect
//! here are accepted, checked and shown. [`Config::notes`] lists those that were given.

mod error;
mod load;
mod nearest;
mod spec;
mod special;
pub mod table;
pub mod text;
pub mod value;

pub use error::{ConfigLineError, SetError, SetRefusal, ValueError};
pub(crate) use load::UserLine;
pub use load::{ConfigError, ConfigText, Include, Note, SourceLine};
pub use nearest::nearest;
pub(crate) use spec::SECRET;
pub use special::http_parts;
pub use table::{Change, OPTIONS, Opt, OptionSpec, ValueType, find};
pub use text::text_of_arguments;
pub use value::{OutputLimits, Value};

use parking_lot::{Mutex, RwLock};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use strand_keyspace::types::string::parse_int;

/// What the oom_score_adj of the process becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomScore {
    /// This much more than the value at the start of the process.
    Relative(i32),
    /// This value.
    Absolute(i32),
}

/// All options with their values, shared by all threads.
#[derive(Debug)]
pub struct Config {
    /// Copies of the options' numbers, for reading without a lock.
    numbers: Box<[AtomicI64]>,
    values: RwLock<Box<[Value]>>,
    users: Mutex<Vec<UserLine>>,
    /// The options that a file or the command line set.
    given: Box<[AtomicBool]>,
    notes: Mutex<Vec<Note>>,
    /// Counts changes. A session reads its settings again when the count has changed.
    generation: AtomicU64,
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

impl Config {
    /// A configuration with every option at its default.
    pub fn new() -> Config {
        let values: Box<[Value]> = OPTIONS.iter().map(default_value).collect();
        Config {
            numbers: values.iter().map(|v| AtomicI64::new(number(v))).collect(),
            given: values.iter().map(|_| AtomicBool::new(false)).collect(),
            values: RwLock::new(values),
            users: Mutex::default(),
            notes: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }
    /// CONFIG SET: changes all of `pairs` or none. Returns the changed options. `protected_too`: the client may also
    /// change protected options.
    ///
    /// # Errors
    /// For the first refused pair.
    pub fn set(&self, pairs: &[(&[u8], &[u8])], protected_too: bool) -> Result<Vec<Opt>, SetError> {
        let refused = |name: &[u8], reason| SetError::Refused { name: name.into(), reason };
        let mut options = Vec::with_capacity(pairs.len());
        // As in redis-server, the checks of names come before the checks of values, in argument order.
        for (i, (name, _)) in pairs.iter().enumerate() {
            let option = find(name).ok_or_else(|| SetError::Unknown(name.to_vec()))?;
            match option.spec().change {
                Change::Startup => return Err(refused(name, SetRefusal::Immutable)),
                Change::Protected if !protected_too => {
                    return Err(refused(name, SetRefusal::Protected));
                }
                Change::Protected | Change::Anytime => {}
            }
            if pairs[..i].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                return Err(refused(name, SetRefusal::Duplicate));
            }
            options.push(option);
        }
        let mut values = self.values.write();
        let mut parsed: Vec<Value> = Vec::with_capacity(pairs.len());
        for ((name, text), option) in pairs.iter().zip(&options) {
            let spec = option.spec();
            // As in redis-server, CONFIG SET knows no quotes, and two spaces enclose an empty word.
            let words: Vec<&[u8]> = match spec.kind {
                ValueType::OutputLimits if text.is_empty() => Vec::new(),
                _ if spec.is_word_list() => text.split(|b| *b == b' ').collect(),
                _ => vec![*text],
            };
            let before = (!spec.is_cumulative()).then_some(&values[*option as usize]);
            parsed.push(Value::parse(spec, &words, before).map_err(|error| refused(name, error.into()))?);
        }
        for (option, value) in options.iter().zip(parsed) {
            self.put(&mut values, *option, value);
        }
        Ok(options)
    }
    fn put(&self, values: &mut [Value], option: Opt, value: Value) {
        let value = match (option, value) {
            (Opt::Hz, Value::Number(n)) => Value::Number(n.clamp(1, HZ_MAX)),
            // As in redis-server, a backlog has at least this.
            (Opt::ReplBacklogSize, Value::Number(n)) => Value::Number(n.max(REPL_BACKLOG_BYTES_MIN)),
            // 2 is another word for `yes`. redis-server shows it as `yes`.
            (Opt::OomScoreAdj, Value::Number(2)) => Value::Number(1),
            (_, value) => value,
        };
        self.numbers[option as usize].store(number(&value), Ordering::Relaxed);
        values[option as usize] = value;
        self.generation.fetch_add(1, Ordering::Release);
    }
    /// REPLICAOF: sets `replicaof`. `None`: `no one`.
    pub(crate) fn set_primary(&self, primary: Option<(&str, u16)>) {
        let words = primary.map_or(Vec::new(), |(host, port)| vec![host.into(), port.to_string().into()]);
        self.put(&mut self.values.write(), Opt::ReplicaOf, Value::Words(words));
    }
    /// The host and the port of `replicaof`. `None`: this server follows no other.
    pub(crate) fn primary(&self) -> Option<(String, u16)> {
        match &self.values.read()[Opt::ReplicaOf as usize] {
            Value::Words(words) if words.len() == 2 => {
                let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
                Some((text(&words[0]), text(&words[1]).parse().ok()?))
            }
            _ => None,
        }
    }
    /// Makes all sessions read their settings again, after a change outside the table.
    pub(crate) fn invalidate_sessions(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
    /// The declared users, in the order of their lines.
    pub(crate) fn users(&self) -> Vec<UserLine> {
        self.users.lock().clone()
    }
    /// `dir`: the working folder. Empty until the driver sets it.
    pub fn dir(&self) -> Vec<u8> {
        self.text(Opt::Dir)
    }
    /// `dbfilename`: the snapshot's name in the working folder.
    pub fn dbfilename(&self) -> String {
        self.string(Opt::DbFileName)
    }
    /// `save`: pairs of seconds and changes.
    pub fn save_points(&self) -> Vec<(i64, u64)> {
        let values = self.values.read();
        let Value::Words(words) = &values[Opt::Save as usize] else { return Vec::new() };
        let number = |word: &Vec<u8>| parse_int(word).unwrap_or(i64::MAX);
        words.chunks_exact(2).map(|pair| (number(&pair[0]), number(&pair[1]) as u64)).collect()
    }
    /// True while the save points are the defaults.
    pub fn has_default_save_points(&self) -> bool {
        self.values.read()[Opt::Save as usize] == default_value(Opt::Save.spec())
    }
    /// `aclfile`: the file of the users. Empty: none.
    pub fn aclfile(&self) -> String {
        self.string(Opt::AclFile)
    }
    /// The number of changes. Increases with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// An option's value as CONFIG GET shows it.
    pub fn text(&self, option: Opt) -> Vec<u8> {
        self.values.read()[option as usize].text(option.spec())
    }
    /// The text of a configuration file with the current values: `old` with updated lines.
    pub fn rewrite(&self, old: &str) -> String {
        let values = self.values.read();
        let row = |spec: &'static OptionSpec, value: &Value| {
            let line = match spec.name == Opt::RequirePass.spec().name {
                // Write no `requirepass`: the default user's line has the password, as a digest.
                true => String::new(),
                // As in redis-server, a primary has no `replicaof`.
                false if spec.kind == ValueType::Primary && *value == default_value(spec) => String::new(),
                false => line(spec, value),
            };
            (spec.name, spec.alias, line, *value == default_value(spec))
        };
        let rows: Vec<_> = OPTIONS.iter().zip(values.iter()).map(|(s, v)| row(s, v)).collect();
        text::rewrite(old, &rows)
    }
    /// A number, bool (0, 1) or choice (index).
    pub fn number(&self, option: Opt) -> i64 {
        self.numbers[option as usize].load(Ordering::Relaxed)
    }
    /// The word of a choice.
    ///
    /// # Panics
    /// When the option is not a choice.
    pub(crate) fn choice(&self, option: Opt) -> &'static str {
        match option.spec().kind {
            ValueType::Choice(words) => words[self.number(option) as usize],
            _ => panic!("{} is no choice", option.spec().name),
        }
    }
    fn string(&self, option: Opt) -> String {
        String::from_utf8_lossy(&self.text(option)).into_owned()
    }
    /// `port` (default 6379). 0: no port when another door has one, otherwise a free port.
    pub fn port(&self) -> u16 {
        self.number(Opt::Port) as u16
    }
    /// `oom-score-adj` and `oom-score-adj-values`: what the process's oom_score_adj becomes. `None` (the default): what it
    /// was.
    pub fn oom_score(&self, is_replica: bool) -> Option<OomScore> {
        let values = self.string(Opt::OomScoreAdjValues);
        let value = values.split(' ').nth(usize::from(is_replica)).and_then(|value| value.parse().ok());
        let value: i32 = value.unwrap_or_default();
        match self.choice(Opt::OomScoreAdj) {
            "no" => None,
            "absolute" => Some(OomScore::Absolute(value)),
            _ => Some(OomScore::Relative(value)),
        }
    }
    /// `pack4-port`; 0 (the default) is none.
    pub fn pack4_port(&self) -> u16 {
        self.number(Opt::Pack4Port) as u16
    }
    /// `tls-port`; 0 (the default) is none.
    pub fn tls_port(&self) -> u16 {
        self.number(Opt::TlsPort) as u16
    }
    /// `tls-pack4-port`; 0 (the default) is none.
    pub fn tls_pack4_port(&self) -> u16 {
        self.number(Opt::TlsPack4Port) as u16
    }
    /// `tls-http-port`; 0 (the default) is none.
    pub fn tls_http_port(&self) -> u16 {
        self.number(Opt::TlsHttpPort) as u16
    }
    /// `http-port` (default 8379); 0 is none.
    pub fn http_port(&self) -> u16 {
        self.number(Opt::HttpPort) as u16
    }
    /// `http-etag-max` in bytes (default 64 MiB).
    pub fn http_etag_bytes_max(&self) -> usize {
        self.number(Opt::HttpEtagMax) as usize
    }
    /// `http-keepalive` in seconds; 0 is never (default 75).
    pub fn http_keepalive_s(&self) -> u64 {
        self.number(Opt::HttpKeepAlive) as u64
    }
    /// `login-timeout` in seconds; 0 is no limit (default 60).
    pub fn login_timeout_s(&self) -> u64 {
        self.number(Opt::LoginTimeout) as u64
    }
    /// `http-max-body` in bytes (default 512 MiB).
    pub fn http_body_bytes_max(&self) -> u64 {
        self.number(Opt::HttpMaxBody) as u64
    }
    /// `http-update-prefix` (default `doc:`).
    pub fn http_update_prefix(&self) -> String {
        self.string(Opt::HttpUpdatePrefix)
    }
    /// `proto-max-bulk-len` in bytes (default 512 MiB).
    pub fn bulk_bytes_max(&self) -> usize {
        self.number(Opt::ProtoMaxBulkLen) as usize
    }
    /// Maximum length of a command that has not arrived completely, in bytes: `client-query-buffer-limit`.
    pub fn query_bytes_max(&self) -> usize {
        self.number(Opt::ClientQueryBufferLimit) as usize
    }
    /// True when `protected-mode` is on (the default).
    pub fn is_protected(&self) -> bool {
        self.number(Opt::ProtectedMode) != 0
    }
    /// `bind`: addresses to listen on. With a leading `-` a missing address is not an error.
    pub fn bind(&self) -> Vec<String> {
        self.string(Opt::Bind).split(' ').map(str::to_string).filter(|a| !a.is_empty()).collect()
    }
    /// `unixsocket`: the file of a Unix socket to listen on. `None` (the default) without one.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        let name = self.text(Opt::UnixSocket);
        (!name.is_empty()).then(|| OsString::from_vec(name).into())
    }
    /// `unixsocketperm`: the permissions of the Unix socket. 0 (the default) leaves them to the umask.
    pub fn unix_socket_mode(&self) -> u32 {
        self.number(Opt::UnixSocketPerm) as u32
    }
    /// `tcp-backlog` (default 511).
    pub fn tcp_backlog(&self) -> u32 {
        self.number(Opt::TcpBacklog) as u32
    }
    /// `tcp-keepalive` in seconds; 0 is off (default 300).
    pub fn tcp_keepalive_s(&self) -> u64 {
        self.number(Opt::TcpKeepAlive) as u64
    }
    /// `maxclients` (default 10000).
    pub fn maxclients(&self) -> usize {
        self.number(Opt::MaxClients) as usize
    }
    /// `databases` (default 16).
    pub fn databases(&self) -> usize {
        self.number(Opt::Databases) as usize
    }
    /// `workers`: threads that serve connections. 0 (the default): one per core.
    pub fn workers(&self) -> usize {
        self.number(Opt::Workers) as usize
    }
    /// `shards`: locked parts of the keyspace. 0 (the default): the driver chooses.
    pub fn shards(&self) -> usize {
        self.number(Opt::Shards) as usize
    }
    /// `hz`: ticks per second (default 10).
    pub fn hz(&self) -> u64 {
        self.number(Opt::Hz) as u64
    }
    /// `io-driver`: auto (the default), io_uring or epoll.
    pub fn io_driver(&self) -> String {
        self.string(Opt::IoDriver)
    }
    /// `loglevel`: debug, verbose, notice (the default), warning.
    pub fn loglevel(&self) -> String {
        self.string(Opt::LogLevel)
    }
    /// `otlp-endpoint`: the collector. Empty: none.
    pub fn otlp_endpoint(&self) -> String {
        self.string(Opt::OtlpEndpoint)
    }
    /// `log-levels`: levels per target.
    pub fn log_levels(&self) -> String {
        self.string(Opt::LogLevels)
    }
    /// `log-format`: text (the default) or json.
    pub fn log_format(&self) -> String {
        self.string(Opt::LogFormat)
    }
    /// `logfile`. Empty: standard output.
    pub fn logfile(&self) -> String {
        self.string(Opt::LogFile)
    }
    /// `pidfile`; empty is none.
    pub fn pidfile(&self) -> String {
        self.string(Opt::PidFile)
    }
    /// `supervised`: upstart, systemd, auto, no (the default).
    pub fn supervised(&self) -> String {
        self.string(Opt::Supervised)
    }
    /// `timeout` in seconds; 0 is never.
    pub fn timeout_s(&self) -> u64 {
        self.number(Opt::Timeout) as u64
    }
    /// `requirepass`; empty is none.
    pub fn requirepass(&self) -> Vec<u8> {
        self.text(Opt::RequirePass)
    }
    /// `client-output-buffer-limit`.
    pub fn output_limits(&self) -> OutputLimits {
        match &self.values.read()[Opt::ClientOutputBufferLimit as usize] {
            Value::Limits(limits) => *limits,
            _ => unreachable!("its kind makes no other value"),
        }
    }
}

/// Minimum of `repl-backlog-size`.
const REPL_BACKLOG_BYTES_MIN: i64 = 16 << 10;
/// Maximum number of ticks per second.
pub const HZ_MAX: i64 = 500;

fn default_value(spec: &OptionSpec) -> Value {
    let words: Vec<&[u8]> = match spec.is_word_list() {
        true => spec.default.split_ascii_whitespace().map(str::as_bytes).collect(),
        false => vec![spec.default.as_bytes()],
    };
    if words.is_empty() {
        return Value::Words(Vec::new());
    }
    Value::parse(spec, &words, None).expect("defaults are within their bounds")
}

/// The configuration line that sets this value.
fn line(spec: &OptionSpec, value: &Value) -> String {
    let text = match value {
        Value::Text(text) => text::quote(text),
        Value::Words(words) if words.is_empty() && spec.kind == ValueType::Primary => "no one".into(),
        Value::Words(words) if words.is_empty() => "\"\"".into(),
        other => String::from_utf8_lossy(&other.text(spec)).into_owned(),
    };
    format!("{} {text}", spec.name)
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Number(n) => *n,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
