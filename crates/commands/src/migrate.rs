//! MIGRATE: moves keys with their values and expiries to another server, by RESTORE commands to that server.
//!
//! This module has the conversation, and decides what happens to the keys. The server process opens the connection
//! (a [`PeerLink`]). Values are cloned, encoded and sent while no shard is locked. When the other server has stored
//! a key, the key is removed here, if it has not changed since it was sent ([`KeyWatch`]). A key that has changed is sent
//! again while its shard is locked, under an announced long lock. So nothing is lost, and no worker waits for the other
//! server.

use crate::call::{LaneCall, LaneTxn};
use crate::errors;
use crate::parse::{self, Text};
use crate::serial;
use crate::spec::Access;
use std::collections::BTreeSet;
use std::time::Duration;
use strand_keyspace::{Key, KeyHash, Keyspace, Value, WatchFlag};
use strand_wire::args::Args;
use strand_wire::client::encode_command;

/// Maximum number of keys that are sent before their replies are read.
const BATCH_KEYS: usize = 128;
/// When a batch has more bytes of values than this, no further key is added to it.
const BATCH_BYTES: usize = 1 << 20;
/// The timeout of each step if the argument of MIGRATE is 0 or less.
const TIMEOUT_MS: i64 = 1000;

/// The other server, as the arguments of MIGRATE name it.
#[derive(Debug)]
pub struct Target<'a> {
    /// Host name or address.
    pub host: &'a [u8],
    /// Port, as the client gave it.
    pub port: &'a [u8],
    /// The timeout for connecting, for each write, and for each reply.
    pub timeout: Duration,
}

/// The error when the connection is lost, or when the other server took no bytes or sent no reply in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLost;

/// Why no connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotConnected {
    /// The address does not exist, or nobody answered in time.
    Unreachable,
    /// The other server refused the connection.
    Refused,
}

/// The server process, as MIGRATE needs it.
pub trait Peers {
    /// Opens a connection.
    ///
    /// # Errors
    /// Why no connection was opened.
    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn PeerLink>, NotConnected>;
    /// Waits until no other MIGRATE moves one of the keys, but no longer than `timeout`. Until the claim is dropped, no
    /// other MIGRATE moves one of them. Also returns the time that it waited. `None` after the timeout.
    ///
    /// Two MIGRATEs that move one key at a time would lose the key: the second sees that the key is gone here, and
    /// deletes it on the other server.
    fn claim(&self, db: usize, keys: &[&[u8]], timeout: Duration) -> Option<(Box<dyn Claim + '_>, Duration)>;
}

/// The keys that a MIGRATE moves. Dropping this value ends the claim.
pub trait Claim {}

/// A connection to the other server.
pub trait PeerLink {
    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// Fails if the other server does not take the bytes.
    fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectionLost>;
    /// Reads one line, and returns it without its end.
    ///
    /// # Errors
    /// Fails if no line arrives.
    fn line(&mut self) -> Result<Vec<u8>, ConnectionLost>;
}

/// `MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password|AUTH2 username password] [KEYS
/// key [key ...]]`. The reply is OK, NOKEY when no key exists, or an error.
pub fn run(call: &mut LaneCall<'_>, peers: &dyn Peers) {
    match migrate(call, peers) {
        Ok(word) => call.reply.simple(word),
        Err(text) => call.reply.error(&text),
    }
}

/// Positions of the keys among the arguments, as redis-server finds them, also if an option is invalid. Empty if there
/// are a key and the option KEYS.
pub(crate) fn key_positions(args: Args<'_>) -> std::ops::Range<usize> {
    let mut at = 6;
    while at < args.len() {
        if args.is(at, "KEYS") {
            return if args.at(3).is_empty() { at + 1..args.len() } else { 0..0 };
        }
        at += match () {
            () if args.is(at, "AUTH") => 2,
            () if args.is(at, "AUTH2") => 3,
            () => 1,
        };
    }
    3..args.len().min(4)
}

/// The options of a MIGRATE.
struct MigrateOptions<'a> {
    copy: bool,
    replace: bool,
    /// The password, and before it the user name, if there is one. `None`: no login.
    login: Option<(Option<&'a [u8]>, &'a [u8])>,
    /// Positions of the keys among the arguments.
    keys: std::ops::Range<usize>,
}

impl<'a> MigrateOptions<'a> {
    fn parse(args: Args<'a>) -> Result<MigrateOptions<'a>, Text> {
        let mut options = MigrateOptions { copy: false, replace: false, login: None, keys: 3..4 };
        let mut at = 6;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if args.is(at, "COPY") {
                options.copy = true;
            } else if args.is(at, "REPLACE") {
                options.replace = true;
            } else if args.is(at, "AUTH") && more >= 1 {
                at += 1;
                // As in redis-server, the name of an earlier AUTH2 stays.
                let name = options.login.and_then(|(name, _)| name);
                options.login = Some((name, args.at(at)));
            } else if args.is(at, "AUTH2") && more >= 2 {
                at += 2;
                options.login = Some((Some(args.at(at - 1)), args.at(at)));
            } else if args.is(at, "KEYS") {
                if !args.at(3).is_empty() {
                    return Err(KEY_AND_KEYS.into());
                }
                options.keys = at + 1..args.len();
                break;
            } else {
                return Err(errors::SYNTAX.into());
            }
            at += 1;
        }
        Ok(options)
    }
}

const KEY_AND_KEYS: &str =
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";
const NOT_CONNECTED: &str = "IOERR error or timeout connecting to the client";
const NOT_SENT: &str = "IOERR error or timeout writing to target instance";
const NOT_READ: &str = "IOERR error or timeout reading to target instance";

/// A key, with its value and its expiry as they were sent.
struct SentKey<'a> {
    key: Key<'a>,
    value: Value,
    expire_at_ms: Option<i64>,
}

/// Tells whether a key has changed since it was cloned, as WATCH does. Comparing values is not enough: if the other
/// server is this server, or moves an equal value to this server, the key must stay.
struct KeyWatch<'a> {
    keyspace: &'a Keyspace,
    db: usize,
    key: Key<'a>,
    flag: WatchFlag,
}

impl<'a> KeyWatch<'a> {
    fn begin(txn: &mut LaneTxn<'_>, keyspace: &'a Keyspace, db: usize, key: Key<'a>) -> KeyWatch<'a> {
        let flag = WatchFlag::default();
        txn.db(db).watch(&key, &flag);
        KeyWatch { keyspace, db, key, flag }
    }
    fn has_changed(&self) -> bool {
        self.flag.has_changed()
    }
}

/// Drop this value while the key's shard is not held.
impl Drop for KeyWatch<'_> {
    fn drop(&mut self) {
        self.keyspace.unwatch(self.db, self.key.bytes, &self.flag);
    }
}

fn migrate(call: &mut LaneCall<'_>, peers: &dyn Peers) -> Result<&'static str, Text> {
    let args = call.args;
    let options = MigrateOptions::parse(args)?;
    let timeout_ms = parse::integer(args.at(5))?;
    let db = parse::integer(args.at(4))?;
    let timeout_ms = if timeout_ms <= 0 { TIMEOUT_MS } else { timeout_ms };
    let keys: Vec<Key<'_>> = options.keys.clone().map(|at| call.keyspace.key(args.at(at))).collect();
    let access = Access { read: true, write: !options.copy };
    if keys.iter().any(|key| call.rights.is_some_and(|rights| !rights.allows(key.bytes, access))) {
        return Err(errors::NO_KEY_PERMISSION.into());
    }
    let timeout = Duration::from_millis(timeout_ms.unsigned_abs());
    let names: Vec<&[u8]> = keys.iter().filter(|_| !options.copy).map(|key| key.bytes).collect();
    let (_claim, waited) = peers.claim(call.db, &names, timeout).ok_or(NOT_SENT)?;
    call.now_ms = call.now_ms.saturating_add(i64::try_from(waited.as_millis()).unwrap_or(i64::MAX));
    let mut existing = existing_keys(call, &keys);
    if existing.is_empty() {
        return Ok("NOKEY");
    }
    if options.replace {
        // redis-server stores a repeated key twice, with the same result.
        let mut seen = BTreeSet::new();
        existing.retain(|key| seen.insert(key.bytes));
    }
    let target = Target { host: args.at(1), port: args.at(2), timeout };
    let mut link = peers.connect(&target).map_err(|why| match why {
        NotConnected::Unreachable => NOT_CONNECTED,
        // redis-server notices a refused connection only when it writes, so this is its error for writing.
        NotConnected::Refused => NOT_SENT,
    })?;
    let preamble_replies = if options.login.is_some() { 2 } else { 1 };
    let preamble = preamble(&options, db);
    let mut conversation = Conversation {
        link: &mut *link,
        preamble,
        preamble_replies,
        preamble_accepted: true,
        first_error: None,
    };
    let mut changed = Vec::new();
    let mut rest = &existing[..];
    while !rest.is_empty() {
        let (sent, used) = clone_batch(call, rest);
        rest = &rest[used..];
        if let Err(text) = conversation.send_batch(call, sent, options.replace, |call, stored| {
            if !options.copy {
                changed.extend(remove_unchanged(call, stored));
            }
        }) {
            return Err(conversation.first_error.unwrap_or(text));
        }
    }
    for keys in changed.chunks(BATCH_KEYS) {
        if let Err(text) = resend_locked(call, &mut conversation, keys) {
            return Err(conversation.first_error.unwrap_or(text));
        }
    }
    conversation.first_error.map_or(Ok("OK"), Err)
}

/// The keys among `keys` that exist.
fn existing_keys<'a>(call: &LaneCall<'_>, keys: &[Key<'a>]) -> Vec<Key<'a>> {
    let mut existing = Vec::with_capacity(keys.len());
    for some in keys.chunks(BATCH_KEYS) {
        let mut txn = call.lock(&hashes(some));
        let mut db = txn.db(call.db);
        existing.extend(some.iter().filter(|key| db.get(key).is_some()));
        drop(txn);
        call.pause();
    }
    existing
}

/// Clones the values of the first keys of `keys`: one batch. Returns them, and how many keys of `keys` they cover.
fn clone_batch<'a>(call: &LaneCall<'a>, keys: &[Key<'a>]) -> (Vec<(SentKey<'a>, KeyWatch<'a>)>, usize) {
    let keys = &keys[..keys.len().min(BATCH_KEYS)];
    let mut txn = call.lock(&hashes(keys));
    let (mut sent, mut bytes, mut used) = (Vec::with_capacity(keys.len()), 0, 0);
    for key in keys {
        used += 1;
        let Some(one) = sent_of(&mut txn, call.db, key) else { continue };
        bytes += one.value.heap_bytes();
        let watch = KeyWatch::begin(&mut txn, call.keyspace, call.db, *key);
        sent.push((one, watch));
        if bytes > BATCH_BYTES {
            break;
        }
    }
    (sent, used)
}

fn sent_of<'a>(txn: &mut LaneTxn<'_>, db: usize, key: &Key<'a>) -> Option<SentKey<'a>> {
    let mut db = txn.db(db);
    let record = db.peek(key)?;
    Some(SentKey { key: *key, value: record.value().to_value(), expire_at_ms: record.expire_at_ms() })
}

fn hashes(keys: &[Key<'_>]) -> Vec<KeyHash> {
    keys.iter().map(|key| key.hash).collect()
}

/// Removes each key that has not changed since it was sent. Returns the keys that have changed.
fn remove_unchanged<'a>(call: &LaneCall<'_>, stored: Vec<(SentKey<'a>, KeyWatch<'a>)>) -> Vec<Key<'a>> {
    let hashes: Vec<KeyHash> = stored.iter().map(|(sent, _)| sent.key.hash).collect();
    let mut txn = call.lock(&hashes);
    let mut changed = Vec::new();
    for (SentKey { key, value, expire_at_ms }, watch) in &stored {
        // Changes of consumer groups raise no flag, and a value that was replaced by an equal one raises it.
        let now = sent_of(&mut txn, call.db, key);
        let is_equal =
            now.is_some_and(|now| now.expire_at_ms == *expire_at_ms && now.value.is_unchanged(value));
        if is_equal && !watch.has_changed() {
            remove(&mut txn, call.db, key);
        } else {
            changed.push(*key);
        }
    }
    drop(txn);
    // These clones may be the last references to their values.
    stored.into_iter().for_each(|(sent, _)| call.keyspace.dispose(sent.value));
    changed
}

/// Sends changed keys again, while their shards are locked so that they do not change once more. A key that no
/// longer exists is deleted on the other server.
fn resend_locked(
    call: &mut LaneCall<'_>,
    conversation: &mut Conversation<'_>,
    keys: &[Key<'_>],
) -> Result<(), Text> {
    let (db, now_ms) = (call.db, call.now_ms);
    let mut txn = call.hold(&hashes(keys));
    for key in keys {
        let mut request = std::mem::take(&mut conversation.preamble);
        match sent_of(&mut txn, db, key) {
            Some(sent) => encode_restore(&mut request, &sent, now_ms, true, &|| {}),
            None => encode_command(&mut request, &[&b"DEL"[..], key.bytes]),
        }
        conversation.send(&request)?;
        if conversation.read_is_stored()? {
            remove(&mut txn, db, key);
        }
    }
    Ok(())
}

/// Removes a key that the other server has stored. The journal gets this removal as the effect, not the MIGRATE.
fn remove(txn: &mut LaneTxn<'_>, db: usize, key: &Key<'_>) {
    let mut db = txn.db(db);
    if db.delete(key) {
        db.effect(&[b"DEL".into(), key.bytes.into()]);
    }
}

/// The commands that are sent before the first key: AUTH and SELECT.
fn preamble(options: &MigrateOptions<'_>, db: i64) -> Vec<u8> {
    let mut preamble = Vec::new();
    match options.login {
        Some((Some(name), password)) => encode_command(&mut preamble, &[&b"AUTH"[..], name, password]),
        Some((None, password)) => encode_command(&mut preamble, &[&b"AUTH"[..], password]),
        None => {}
    }
    encode_command(&mut preamble, &[&b"SELECT"[..], db.to_string().as_bytes()]);
    preamble
}

/// Adds the RESTORE command of a key to `out`.
fn encode_restore(out: &mut Vec<u8>, sent: &SentKey<'_>, now_ms: i64, replace: bool, pause: &dyn Fn()) {
    // At least 1, because 0 means no expiry.
    let ttl_ms = sent.expire_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1));
    let payload = serial::payload(sent.value.view(), pause);
    let ttl_ms = ttl_ms.to_string();
    let mut command = vec![&b"RESTORE"[..], sent.key.bytes, ttl_ms.as_bytes(), &payload];
    if replace {
        command.push(b"REPLACE");
    }
    encode_command(out, &command);
}

/// The conversation with the other server.
struct Conversation<'a> {
    link: &'a mut dyn PeerLink,
    /// The commands that must be sent before the next key: AUTH and SELECT, until they are sent.
    preamble: Vec<u8>,
    /// Number of replies to `preamble` that were not read yet.
    preamble_replies: usize,
    /// True until a reply to `preamble` is an error.
    preamble_accepted: bool,
    /// The first error reply of the other server.
    first_error: Option<Text>,
}

impl Conversation<'_> {
    /// Sends keys and reads the replies. Calls `done` with the keys that the other server has stored, even if the
    /// connection is lost after that.
    fn send_batch<'a>(
        &mut self,
        call: &mut LaneCall<'_>,
        sent: Vec<(SentKey<'a>, KeyWatch<'a>)>,
        replace: bool,
        done: impl FnOnce(&LaneCall<'_>, Vec<(SentKey<'a>, KeyWatch<'a>)>),
    ) -> Result<(), Text> {
        for (one, _) in &sent {
            let mut request = std::mem::take(&mut self.preamble);
            encode_restore(&mut request, one, call.now_ms, replace, &|| call.pause());
            self.send(&request)?;
        }
        let (mut stored, mut end) = (Vec::with_capacity(sent.len()), Ok(()));
        for one in sent {
            match self.read_is_stored() {
                Ok(true) => stored.push(one),
                Ok(false) => {}
                Err(text) => {
                    end = Err(text);
                    break;
                }
            }
        }
        done(call, stored);
        end
    }
    fn send(&mut self, request: &[u8]) -> Result<(), Text> {
        self.link.send(request).map_err(|ConnectionLost| NOT_SENT.into())
    }
    /// Reads the reply to a key. Returns true when the other server has stored the key. If a reply to `preamble`
    /// was an error, no key counts as stored.
    fn read_is_stored(&mut self) -> Result<bool, Text> {
        for _ in 0..std::mem::take(&mut self.preamble_replies) {
            self.preamble_accepted &= self.read()?;
        }
        Ok(self.read()? && self.preamble_accepted)
    }
    /// Reads a reply. Returns false when the reply is an error.
    fn read(&mut self) -> Result<bool, Text> {
        let line = self.link.line().map_err(|ConnectionLost| Text::from(NOT_READ))?;
        let Some(error) = line.strip_prefix(b"-") else { return Ok(true) };
        let text = String::from_utf8_lossy(error);
        self.first_error
            .get_or_insert_with(|| format!("ERR Target instance replied with error: {text}").into());
        Ok(false)
    }
}
