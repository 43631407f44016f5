//! MIGRATE: moves keys with their values and expiries to another server, by RESTORE commands to that server.
//!
//! This module has the conversation, and decides what happens to the keys. The server process opens the connection
//! (a [`PeerLink`]).
//!
//! A key that the other server has stored can be written there. So the key must not be written here until it is removed
//! here: otherwise one of the two writes would be lost. Therefore the key's shard is held, under an announced long lock,
//! from the end of the RESTORE command to its reply. That is one round trip: small values are sent together
//! ([`move_small`]), and of a large value everything but the last byte is sent before ([`move_large`]).
//!
//! If the other server takes longer than [`HOLD_MAX_MS`], the shards are let go, so that no client waits for that server. A
//! key that is written from then on stays here, and the reply is an error ([`KeyWatch`]). So no write is lost.

mod conversation;

use crate::call::{LaneCall, LaneTxn};
use crate::errors;
use crate::parse::{self, Text};
use crate::serial;
use crate::spec::Access;
use conversation::{Conversation, Held, NOT_SENT};
use std::collections::BTreeSet;
use std::time::Duration;
use strand_keyspace::{Key, KeyHash, Keyspace, Value, WatchFlag};
use strand_wire::args::Args;
use strand_wire::client::encode_command;

/// Maximum number of keys that are copied before their replies are read.
const BATCH_KEYS: usize = 128;
/// When a batch of copies has more bytes of values than this, no further key is added to it.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of keys that are moved together. Their shards are held for one round trip.
const SMALL_KEYS: usize = 16;
/// Maximum number of bytes of the values that are moved together. A larger value is moved alone.
const SMALL_BYTES: usize = 32 << 10;
/// The least and the greatest time for which shards are held until the other server has stored the keys. Two servers that
/// send keys to each other may wait for each other. The time differs from key to key, so one of the two gives up first.
const HOLD_MIN_MS: u64 = 20;
const HOLD_MAX_MS: u64 = 100;
/// Number of times that a large value is sent without its last byte. If it changes each time, it is sent while its shard
/// is held.
const LARGE_TRIES: usize = 3;
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
    /// other MIGRATE moves one of them. `None` after the timeout.
    ///
    /// Two MIGRATEs that move one key at a time would lose the key: the second sees that the key is gone here, and
    /// deletes it on the other server.
    fn claim(&self, db: usize, keys: &[&[u8]], timeout: Duration) -> Option<Box<dyn Claim + '_>>;
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
    /// Sends as many of `bytes` as the other server takes within `wait`. Returns their number, and the time that it
    /// waited.
    ///
    /// # Errors
    /// Fails if the connection is lost.
    fn send_within(&mut self, bytes: &[u8], wait: Duration) -> Result<(usize, Duration), ConnectionLost>;
    /// Waits until bytes have arrived, or the connection has ended, but no longer than `wait`. Returns the time that it
    /// waited. `None`: nothing has happened.
    fn await_input(&mut self, wait: Duration) -> Option<Duration>;
    /// Reads one line, and returns it without its end.
    ///
    /// # Errors
    /// Fails if no line arrives.
    fn line(&mut self) -> Result<Vec<u8>, ConnectionLost>;
}

/// `MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password|AUTH2 username password] [KEYS
/// key [key ...]]`. The reply is OK, NOKEY when no key exists, or an error. `clock` is the time in unix milliseconds.
pub fn run(call: &mut LaneCall<'_>, peers: &dyn Peers, clock: &dyn Fn() -> i64) {
    match migrate(call, peers, clock) {
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

fn migrate(
    call: &mut LaneCall<'_>,
    peers: &dyn Peers,
    clock: &dyn Fn() -> i64,
) -> Result<&'static str, Text> {
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
    let _claim = peers.claim(call.db, &names, timeout).ok_or(NOT_SENT)?;
    // A clock that was set back stands still.
    let start_ms = call.now_ms;
    let clock = &move || clock().max(start_ms);
    call.now_ms = clock();
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
    let first_commands = (preamble(&options, db), if options.login.is_some() { 2 } else { 1 });
    let mut conversation = Conversation::begin(peers, &target, clock, first_commands)?;
    let mut rest = &existing[..];
    let mut late = Late::default();
    while !rest.is_empty() {
        let moved = match options.copy {
            true => copy_batch(call, &mut conversation, rest, options.replace),
            false => move_small(call, &mut conversation, rest, options.replace, &mut late),
        };
        match moved {
            Ok(used) => rest = &rest[used..],
            Err(text) => return Err(conversation.first_error.unwrap_or(text)),
        }
    }
    let Some(text) = late.text() else { return conversation.first_error.map_or(Ok("OK"), Err) };
    let more = conversation.first_error.map_or(String::new(), |text| format!(". {text}"));
    Err(format!("ERR {text}{more}").into())
}

/// Maximum number of keys that an error names, and of bytes of each key there.
const NAMED_KEYS_MAX: usize = 8;
const NAMED_BYTES_MAX: usize = 128;

/// The keys that changed here while the other server stored them, after their shards were let go.
#[derive(Default)]
struct Late<'a> {
    written: Vec<Key<'a>>,
    removed: Vec<Key<'a>>,
}

impl Late<'_> {
    /// The text of an error that names the keys. `None` when there are none.
    fn text(&self) -> Option<String> {
        let written = (&self.written, "written", "on both servers");
        let removed = (&self.removed, "removed", "only on the target instance");
        let texts = [written, removed].into_iter().filter(|(keys, ..)| !keys.is_empty());
        let texts: Vec<String> = texts
            .map(|(keys, change, place)| {
                let named = keys.iter().take(NAMED_KEYS_MAX).map(|key| {
                    String::from_utf8_lossy(&key.bytes[..key.bytes.len().min(NAMED_BYTES_MAX)])
                });
                let names = named.collect::<Vec<_>>().join(", ");
                let more = match keys.len().saturating_sub(NAMED_KEYS_MAX) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let [were, them, they, are] =
                    if keys.len() == 1 { ["was", "it", "it", "is"] } else { ["were", "them", "they", "are"] };
                format!("{names}{more} {were} {change} while the target instance stored {them}, so {they} {are} {place} now")
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join(". "))
    }
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

/// Copies the first keys of `keys` to the other server: one batch. Returns how many keys of `keys` it covers.
fn copy_batch(
    call: &LaneCall<'_>,
    conversation: &mut Conversation<'_>,
    keys: &[Key<'_>],
    replace: bool,
) -> Result<usize, Text> {
    let keys = &keys[..keys.len().min(BATCH_KEYS)];
    let mut txn = call.lock(&hashes(keys));
    let now_ms = conversation.set_now(&mut txn);
    let (mut sent, mut bytes, mut used) = (Vec::with_capacity(keys.len()), 0, 0);
    for key in keys {
        used += 1;
        let Some(one) = sent_of(&mut txn, call.db, key) else { continue };
        bytes += one.value.heap_bytes();
        sent.push(one);
        if bytes > BATCH_BYTES {
            break;
        }
    }
    drop(txn);
    for one in &sent {
        let mut request = std::mem::take(&mut conversation.preamble);
        encode_restore(&mut request, one, now_ms, replace, &|| call.pause());
        conversation.send(&request)?;
    }
    let mut held = Held { txn: None, left: Duration::ZERO };
    for one in sent {
        conversation.read_is_stored(&mut held)?;
        call.keyspace.dispose(one.value);
    }
    Ok(used)
}

/// Moves the first keys of `keys`, if their values are small, and otherwise the first key. Returns how many keys of `keys`
/// it covers. Adds to `late` the keys that changed here meanwhile.
fn move_small<'a>(
    call: &LaneCall<'a>,
    conversation: &mut Conversation<'_>,
    keys: &[Key<'a>],
    replace: bool,
    late: &mut Late<'a>,
) -> Result<usize, Text> {
    let keys = &keys[..keys.len().min(SMALL_KEYS)];
    let mut txn = call.hold(&hashes(keys));
    let now_ms = conversation.set_now(&mut txn);
    let (mut sent, mut bytes, mut used) = (Vec::with_capacity(keys.len()), 0, 0);
    for key in keys {
        let Some(one) = sent_of(&mut txn, call.db, key) else {
            used += 1;
            continue;
        };
        bytes += one.value.heap_bytes() + key.bytes.len();
        if bytes > SMALL_BYTES && used == 0 {
            drop(txn);
            return move_large(call, conversation, *key, replace, late).map(|()| 1);
        }
        if bytes > SMALL_BYTES {
            break;
        }
        used += 1;
        let watch = KeyWatch::begin(&mut txn, call.keyspace, call.db, *key);
        sent.push((one, watch));
    }
    let mut request = std::mem::take(&mut conversation.preamble);
    sent.iter().for_each(|(one, _)| encode_restore(&mut request, one, now_ms, replace, &|| {}));
    match sent.is_empty() {
        true => conversation.preamble = request,
        false => finish(call, conversation, txn, &request, sent, late)?,
    }
    Ok(used)
}

/// Moves one large key.
fn move_large<'a>(
    call: &LaneCall<'a>,
    conversation: &mut Conversation<'_>,
    key: Key<'a>,
    replace: bool,
    late: &mut Late<'a>,
) -> Result<(), Text> {
    for _ in 0..LARGE_TRIES {
        let mut txn = call.lock(&[key.hash]);
        let now_ms = conversation.set_now(&mut txn);
        let Some(one) = sent_of(&mut txn, call.db, &key) else { return Ok(()) };
        let watch = KeyWatch::begin(&mut txn, call.keyspace, call.db, key);
        drop(txn);
        let mut request = std::mem::take(&mut conversation.preamble);
        encode_restore(&mut request, &one, now_ms, replace, &|| call.pause());
        let (first, last) = request.split_at(request.len() - 1);
        conversation.send(first)?;
        let mut txn = call.hold(&[key.hash]);
        conversation.set_now(&mut txn);
        if is_unchanged(&mut txn, call.db, &one, &watch) {
            return finish(call, conversation, txn, last, vec![(one, watch)], late);
        }
        drop(txn);
        call.keyspace.dispose(one.value);
        // The other server forgets the incomplete command with its connection.
        conversation.connect_again()?;
    }
    // As in redis-server, clients of the key wait for the whole value.
    let mut txn = call.hold(&[key.hash]);
    let now_ms = conversation.set_now(&mut txn);
    let Some(one) = sent_of(&mut txn, call.db, &key) else { return Ok(()) };
    let watch = KeyWatch::begin(&mut txn, call.keyspace, call.db, key);
    let mut request = std::mem::take(&mut conversation.preamble);
    encode_restore(&mut request, &one, now_ms, replace, &|| {});
    finish(call, conversation, txn, &request, vec![(one, watch)], late)
}

/// Sends the end of the commands for the keys in `sent`, whose shards are held, reads the replies, and removes the keys
/// that the other server has stored.
fn finish<'a>(
    call: &LaneCall<'a>,
    conversation: &mut Conversation<'_>,
    txn: LaneTxn<'a>,
    request: &[u8],
    sent: Vec<(SentKey<'a>, KeyWatch<'a>)>,
    late: &mut Late<'a>,
) -> Result<(), Text> {
    let hash = sent.first().map_or(0, |(one, _)| one.key.hash.0);
    let hold = Duration::from_millis(HOLD_MIN_MS + hash % (HOLD_MAX_MS - HOLD_MIN_MS));
    let mut held = Held { txn: Some(txn), left: hold.min(conversation.target.timeout) };
    conversation.send_held(request, &mut held)?;
    let (mut stored_late, mut end) = (Vec::new(), Ok(()));
    for (one, watch) in &sent {
        match (conversation.read_is_stored(&mut held), &mut held.txn) {
            (Ok(true), Some(txn)) => remove(txn, call.db, &one.key),
            (Ok(true), None) => stored_late.push((one, watch)),
            (Ok(false), _) => {}
            (Err(text), _) => {
                end = Err(text);
                break;
            }
        }
    }
    drop(held);
    // Clients could write these keys from the moment on when their shards were let go.
    for (one, watch) in stored_late {
        let mut txn = call.lock(&[one.key.hash]);
        conversation.set_now(&mut txn);
        if is_unchanged(&mut txn, call.db, one, watch) {
            remove(&mut txn, call.db, &one.key);
        } else if txn.db(call.db).peek(&one.key).is_some() {
            late.written.push(one.key);
        } else if !one.expire_at_ms.is_some_and(|at_ms| txn.has_passed(at_ms)) {
            // A key that has expired here expires on the other server, too.
            late.removed.push(one.key);
        }
    }
    // These clones may be the last references to their values.
    sent.into_iter().for_each(|(one, _)| call.keyspace.dispose(one.value));
    end
}

fn sent_of<'a>(txn: &mut LaneTxn<'_>, db: usize, key: &Key<'a>) -> Option<SentKey<'a>> {
    let mut db = txn.db(db);
    let record = db.peek(key)?;
    Some(SentKey { key: *key, value: record.value().to_value(), expire_at_ms: record.expire_at_ms() })
}

fn hashes(keys: &[Key<'_>]) -> Vec<KeyHash> {
    keys.iter().map(|key| key.hash).collect()
}

/// True when a key has not changed since it was cloned.
fn is_unchanged(txn: &mut LaneTxn<'_>, db: usize, one: &SentKey<'_>, watch: &KeyWatch<'_>) -> bool {
    // Changes of consumer groups raise no flag, and a value that was replaced by an equal one raises it.
    let now = sent_of(txn, db, &one.key);
    let is_equal =
        now.is_some_and(|now| now.expire_at_ms == one.expire_at_ms && now.value.is_unchanged(&one.value));
    is_equal && !watch.has_changed()
}

/// Removes a key that the other server has stored. The journal gets this removal as the effect, not the MIGRATE.
fn remove(txn: &mut LaneTxn<'_>, db: usize, key: &Key<'_>) {
    let mut db = txn.db(db);
    if db.delete(key) {
        db.effect(&[b"DEL".into(), key.bytes.into()]);
    }
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
