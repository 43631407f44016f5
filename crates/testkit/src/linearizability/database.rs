//! The model of a whole database: commands on several keys, transactions, watched keys, scripts, blocking commands,
//! and keys and fields that expire.
//!
//! The expiry time of a key is known only as precisely as the duration of the call that set it: [`Entry::until_ms`]
//! is a span. A call that reads the key within the span may find it or not. Each result narrows the span for later
//! calls. The expiry time of a field is a span, too.

use super::model::{Operation, State, wrong_type};
use super::{Call, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use strand_wire::client::Value;

const NS_PER_MS: u64 = 1_000_000;

/// A request to a database. Keys are numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A command on one key. `BLPOP` is [`Step::Pop`] instead.
    One(usize, Operation),
    /// `SET key value PX ms`
    SetFor(usize, Vec<u8>, u32),
    /// `HSETEX key PX ms FIELDS 1 field value`
    HSetFor(usize, Vec<u8>, Vec<u8>, u32),
    /// `PEXPIRE key ms`
    ExpireIn(usize, u32),
    /// `PERSIST key`
    Persist(usize),
    /// `MSET` of these pairs. The number is the number of extra pairs before them, whose keys these pairs overwrite.
    MSet(Vec<(usize, Vec<u8>)>, usize),
    /// `MGET` of these keys. The number is the number of keys before them that never exist.
    MGet(Vec<usize>, usize),
    /// `DEL` of these keys. The number is the number of keys before them that never exist.
    Del(Vec<usize>, usize),
    /// `RENAME from to`
    Rename(usize, usize),
    /// `LMOVE from to LEFT RIGHT`
    Move(usize, usize),
    /// `BLPOP` of several keys with a timeout in milliseconds; 0: none.
    Pop(Vec<usize>, u32),
    /// `BLMOVE from to LEFT RIGHT` with a timeout in milliseconds; 0: none.
    MoveWaiting(usize, usize, u32),
    /// `FLUSHDB`
    FlushDb,
    /// `MULTI`, these steps, `EXEC`.
    Exec(Vec<Step>),
    /// `EVAL` of a script that runs these steps. True: the script declares its keys.
    Script(Vec<Step>, bool),
    /// `WATCH`
    Watch(Vec<usize>),
    /// `UNWATCH`
    Unwatch,
}

/// A step of a client. The client matters, because each has its own watched keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The number of the connection.
    pub client: u32,
    /// The request that the connection sent.
    pub step: Step,
}

/// The first and last moment at which a key or field may expire, in unix milliseconds.
type Span = (u64, u64);

/// The value of a key, and when the key and the fields expire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    value: State,
    /// The key expires within this span.
    until_ms: Option<Span>,
    /// The fields of a hash that expire, and the span of each.
    fields_until_ms: BTreeMap<Vec<u8>, Span>,
}

/// All keys, and the watched keys of each client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Database {
    /// The keys that exist, with their values.
    keys: BTreeMap<usize, Entry>,
    /// For each client, its watched keys and whether one of them has changed.
    watches: BTreeMap<u32, (BTreeSet<usize>, bool)>,
}

fn name(key: usize) -> String {
    format!("k{key}")
}

fn words<T: AsRef<[u8]>>(words: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    words.into_iter().map(|word| word.as_ref().to_vec()).collect()
}

impl Step {
    /// The commands to send for the step. The reply to the last command is the reply to the step.
    pub fn requests(&self) -> Vec<Vec<Vec<u8>>> {
        match self {
            Step::Exec(steps) => {
                let queued = steps.iter().map(Step::args);
                [words(["MULTI"])].into_iter().chain(queued).chain([words(["EXEC"])]).collect()
            }
            one => vec![one.args()],
        }
    }
    /// The reply in the form of [`Request::outcomes`]: without the extra keys that never exist.
    pub fn seen(&self, reply: Value) -> Value {
        match (self, reply) {
            (Step::MGet(_, before), Value::Array(mut values)) => {
                if values.iter().take(*before).all(|value| *value == Value::Null) {
                    values.drain(..(*before).min(values.len()));
                }
                Value::Array(values)
            }
            (Step::Exec(steps) | Step::Script(steps, _), Value::Array(replies))
                if replies.len() == steps.len() =>
            {
                Value::Array(steps.iter().zip(replies).map(|(step, reply)| step.seen(reply)).collect())
            }
            (_, reply) => reply,
        }
    }
    /// True when the step may change what clients see later. WATCH, UNWATCH and each EXEC do: they decide whether the next
    /// EXEC of the client runs.
    pub fn may_change(&self) -> bool {
        use Operation as O;
        match self {
            Step::One(_, O::Get | O::HGet(_) | O::LLen) | Step::MGet(..) => false,
            Step::Script(steps, _) => steps.iter().any(Step::may_change),
            _ => true,
        }
    }
    /// The timeout of a blocking step, in milliseconds.
    pub fn waits_ms(&self) -> Option<u32> {
        match self {
            Step::Pop(_, ms) | Step::MoveWaiting(_, _, ms) => Some(*ms),
            _ => None,
        }
    }
    /// # Panics
    /// For a transaction, which is several commands.
    fn args(&self) -> Vec<Vec<u8>> {
        let seconds = |ms: u32| (f64::from(ms) / 1000.0).to_string();
        let absent = |before: usize| (0..before).map(|n| format!("absent{n}"));
        let named = |keys: &[usize]| keys.iter().copied().map(name).collect::<Vec<_>>();
        match self {
            Step::One(key, operation) => operation.args(&name(*key)),
            Step::SetFor(key, value, ms) => {
                let [name, ms] = [name(*key), ms.to_string()];
                words([b"SET", name.as_bytes(), value, b"PX", ms.as_bytes()])
            }
            Step::HSetFor(key, field, value, ms) => {
                let [name, ms] = [name(*key), ms.to_string()];
                words([b"HSETEX", name.as_bytes(), b"PX", ms.as_bytes(), b"FIELDS", b"1", field, value])
            }
            Step::ExpireIn(key, ms) => words(["PEXPIRE", &name(*key), &ms.to_string()]),
            Step::Persist(key) => words(["PERSIST", &name(*key)]),
            Step::MSet(pairs, before) => {
                let pair = |(key, value): &(usize, Vec<u8>)| [name(*key).into_bytes(), value.clone()];
                let first = |n: usize| [name(pairs[n % pairs.len()].0).into_bytes(), b"overwritten".to_vec()];
                let all = (0..*before).map(first).chain(pairs.iter().map(pair)).flatten();
                [b"MSET".to_vec()].into_iter().chain(all).collect()
            }
            Step::MGet(keys, before) => {
                words(["MGET".into()].into_iter().chain(absent(*before)).chain(named(keys)))
            }
            Step::Del(keys, before) => {
                words(["DEL".into()].into_iter().chain(absent(*before)).chain(named(keys)))
            }
            Step::Rename(from, to) => words(["RENAME", &name(*from), &name(*to)]),
            Step::Move(from, to) => words(["LMOVE", &name(*from), &name(*to), "LEFT", "RIGHT"]),
            Step::Pop(keys, ms) => {
                words(["BLPOP".into()].into_iter().chain(named(keys)).chain([seconds(*ms)]))
            }
            Step::MoveWaiting(from, to, ms) => {
                words(["BLMOVE", &name(*from), &name(*to), "LEFT", "RIGHT", &seconds(*ms)])
            }
            Step::FlushDb => words(["FLUSHDB"]),
            Step::Exec(_) => panic!("a transaction is several commands"),
            Step::Script(steps, declares) => script(steps, *declares),
            Step::Watch(keys) => words(["WATCH".into()].into_iter().chain(named(keys))),
            Step::Unwatch => words(["UNWATCH"]),
        }
    }
    /// The keys that the step may access.
    fn keys(&self, into: &mut BTreeSet<usize>) {
        match self {
            Step::One(key, _)
            | Step::SetFor(key, ..)
            | Step::HSetFor(key, ..)
            | Step::ExpireIn(key, _)
            | Step::Persist(key) => {
                into.insert(*key);
            }
            Step::MSet(pairs, _) => into.extend(pairs.iter().map(|(key, _)| *key)),
            Step::MGet(keys, _) | Step::Del(keys, _) | Step::Pop(keys, _) | Step::Watch(keys) => {
                into.extend(keys);
            }
            Step::Rename(from, to) | Step::Move(from, to) | Step::MoveWaiting(from, to, _) => {
                into.extend([*from, *to]);
            }
            Step::Exec(steps) | Step::Script(steps, _) => steps.iter().for_each(|step| step.keys(into)),
            Step::FlushDb | Step::Unwatch => {}
        }
    }
}

/// `EVAL` of a script that runs `steps` and returns their replies.
fn script(steps: &[Step], declares: bool) -> Vec<Vec<u8>> {
    let (mut text, mut args, mut keys) = (String::from("local r = {}\n"), Vec::new(), BTreeSet::new());
    for (at, step) in steps.iter().enumerate() {
        let from = args.len() + 1;
        args.extend(step.args());
        text += &format!("r[{}] = redis.pcall(unpack(ARGV, {from}, {}))\n", at + 1, args.len());
        step.keys(&mut keys);
    }
    text += "return r";
    let declared = if declares { keys.into_iter().map(name).collect() } else { Vec::new() };
    let head = words(["EVAL", &text, &declared.len().to_string()]);
    head.into_iter().chain(words(declared)).chain(args).collect()
}

impl Model for Request {
    type State = Database;

    fn outcomes(&self, before: &Database, during: RangeInclusive<u64>) -> Vec<(Database, Value)> {
        let during = (during.start() / NS_PER_MS, during.end() / NS_PER_MS);
        let mut keys = BTreeSet::new();
        self.step.keys(&mut keys);
        if matches!(self.step, Step::Exec(_))
            && let Some((watched, _)) = before.watches.get(&self.client)
        {
            keys.extend(watched);
        }
        let mut settled = vec![before.clone()];
        for key in keys {
            settled = settled.into_iter().flat_map(|database| database.decide_expiry(key, during)).collect();
        }
        settled.into_iter().flat_map(|database| database.outcomes(self, during)).collect()
    }
}

impl Call<Request> {
    /// Moves the start of a blocking call that returned null to its timeout, because the call took effect at that
    /// time.
    #[must_use]
    pub fn at_timeout(mut self) -> Self {
        if let Some(ms) = self.operation.step.waits_ms()
            && self.reply == Some(Value::Null)
        {
            let over_ns = self.invoked_ns + u64::from(ms) * NS_PER_MS;
            self.invoked_ns = over_ns.min(self.returned_ns);
        }
        self
    }
}

impl Database {
    /// The possible databases at some time of `during` (in milliseconds). In each, it is decided whether `key` and each
    /// of its fields exist or have expired.
    fn decide_expiry(self, key: usize, during: Span) -> Vec<Database> {
        let Some(entry) = self.keys.get(&key) else { return vec![self] };
        let mut expiries: Vec<(Option<Vec<u8>>, Span)> =
            entry.fields_until_ms.iter().map(|(field, span)| (Some(field.clone()), *span)).collect();
        expiries.extend(entry.until_ms.map(|span| (None, span)));
        let mut possible = vec![self];
        for (field, span) in expiries {
            let decide = |database: Database| database.decide_one_expiry(key, field.as_deref(), span, during);
            possible = possible.into_iter().flat_map(decide).collect();
        }
        possible
    }
    /// Like [`Database::decide_expiry`], for a field of `key` or for `key` itself. It expires within `span`.
    fn decide_one_expiry(self, key: usize, field: Option<&[u8]>, span: Span, during: Span) -> Vec<Database> {
        let mut possible = Vec::new();
        if during.1 >= span.0 {
            let mut gone = self.clone();
            gone.expire(key, field);
            possible.push(gone);
        }
        if during.0 <= span.1 {
            let mut here = self;
            let narrowed = (span.0.max(during.0), span.1);
            match (here.keys.get_mut(&key), field) {
                (Some(entry), Some(field)) => _ = entry.fields_until_ms.insert(field.to_vec(), narrowed),
                (Some(entry), None) => entry.until_ms = Some(narrowed),
                (None, _) => {}
            }
            possible.push(here);
        }
        possible
    }
    /// Removes a field of `key`, or `key` itself. A hash without fields does not exist.
    fn expire(&mut self, key: usize, field: Option<&[u8]>) {
        let Some(mut entry) = self.keys.get(&key).cloned() else { return };
        match (&mut entry.value, field) {
            (State::Hash(fields), Some(field)) => {
                fields.remove(field);
                entry.fields_until_ms.remove(field);
                if fields.is_empty() {
                    entry.value = State::Absent;
                }
            }
            _ => entry.value = State::Absent,
        }
        self.put_entry(key, entry);
    }
    fn outcomes(mut self, request: &Request, during: Span) -> Vec<(Database, Value)> {
        match &request.step {
            Step::Pop(keys, _) => self.blocking_pop_outcomes(keys),
            Step::MoveWaiting(from, to, _) => {
                let nothing = (!self.has_elements(*from)).then(|| (self.clone(), Value::Null));
                let reply = self.run(&Step::Move(*from, *to), during);
                [Some((self, reply)), nothing].into_iter().flatten().collect()
            }
            Step::Exec(steps) => {
                let changed = self.watches.remove(&request.client).is_some_and(|(_, changed)| changed);
                let reply = match changed {
                    true => Value::Null,
                    false => Value::Array(steps.iter().map(|step| self.run(step, during)).collect()),
                };
                vec![(self, reply)]
            }
            Step::Watch(keys) => {
                let (watched, _) = self.watches.entry(request.client).or_default();
                watched.extend(keys);
                vec![(self, ok())]
            }
            Step::Unwatch => {
                self.watches.remove(&request.client);
                vec![(self, ok())]
            }
            step => {
                let reply = self.run(step, during);
                vec![(self, reply)]
            }
        }
    }
    /// A blocking pop ends at any key with elements. Without such a key it ends with its timeout, or at once with
    /// an error.
    fn blocking_pop_outcomes(self, keys: &[usize]) -> Vec<(Database, Value)> {
        let mut possible: Vec<_> = keys
            .iter()
            .filter(|key| self.has_elements(**key))
            .map(|key| {
                let mut after = self.clone();
                let element = after.apply(*key, &Operation::LPop);
                (after, Value::Array(vec![Value::Bulk(name(*key).into_bytes()), element]))
            })
            .collect();
        if keys.iter().any(|key| matches!(self.value(*key), State::Text(_) | State::Hash(_))) {
            possible.push((self.clone(), wrong_type()));
        }
        if !keys.iter().any(|key| self.has_elements(*key)) {
            possible.push((self, Value::Null));
        }
        possible
    }
    /// Runs a step, which may be part of a transaction or script. [`Database::decide_expiry`] was called for its keys.
    fn run(&mut self, step: &Step, during: Span) -> Value {
        let span = |ms: &u32| Some((during.0 + u64::from(*ms), during.1.saturating_add(u64::from(*ms))));
        match step {
            Step::One(key, operation) => self.apply(*key, operation),
            Step::SetFor(key, value, ms) => {
                self.put(*key, State::Text(value.clone()), span(ms));
                ok()
            }
            Step::HSetFor(key, field, value, ms) => {
                let reply = self.apply(*key, &Operation::HSet(field.clone(), value.clone()));
                if matches!(reply, Value::Error(_)) {
                    return reply;
                }
                if let (Some(entry), Some(span)) = (self.keys.get_mut(key), span(ms)) {
                    entry.fields_until_ms.insert(field.clone(), span);
                }
                Value::Int(1)
            }
            Step::ExpireIn(key, ms) => self.set_until(*key, span(ms)),
            Step::Persist(key) => match self.keys.get(key).and_then(|entry| entry.until_ms) {
                Some(_) => self.set_until(*key, None),
                None => Value::Int(0),
            },
            Step::MSet(pairs, _) => {
                pairs.iter().for_each(|(key, value)| self.put(*key, State::Text(value.clone()), None));
                ok()
            }
            Step::MGet(keys, _) => Value::Array(
                keys.iter()
                    .map(|key| match self.value(*key) {
                        State::Text(text) => Value::Bulk(text),
                        _ => Value::Null,
                    })
                    .collect(),
            ),
            Step::Del(keys, _) => {
                let there: Vec<usize> =
                    keys.iter().copied().filter(|key| self.keys.contains_key(key)).collect();
                there.iter().for_each(|key| self.put(*key, State::Absent, None));
                Value::Int(there.len() as i64)
            }
            Step::Rename(from, to) => {
                let Some(entry) = self.keys.get(from).cloned() else {
                    return Value::Error(b"ERR no such key".to_vec());
                };
                self.put(*from, State::Absent, None);
                self.put_entry(*to, entry);
                ok()
            }
            Step::Move(from, to) | Step::MoveWaiting(from, to, _) => {
                match (self.value(*from), self.value(*to)) {
                    (State::Absent, _) => Value::Null,
                    (State::List(_), State::Absent | State::List(_)) => {
                        let moved = self.apply(*from, &Operation::LPop);
                        if let Value::Bulk(element) = &moved {
                            self.apply(*to, &Operation::RPush(element.clone()));
                        }
                        moved
                    }
                    _ => wrong_type(),
                }
            }
            Step::Pop(keys, _) => {
                let first = keys.iter().find(|key| self.keys.contains_key(key));
                match first {
                    None => Value::Null,
                    Some(key) if self.has_elements(*key) => {
                        let element = self.apply(*key, &Operation::LPop);
                        Value::Array(vec![Value::Bulk(name(*key).into_bytes()), element])
                    }
                    Some(_) => wrong_type(),
                }
            }
            Step::FlushDb => {
                let all: Vec<usize> = self.keys.keys().copied().collect();
                all.into_iter().for_each(|key| self.put(key, State::Absent, None));
                ok()
            }
            Step::Script(steps, _) => {
                Value::Array(steps.iter().map(|step| as_lua_number(self.run(step, during))).collect())
            }
            Step::Exec(_) | Step::Watch(_) | Step::Unwatch => Value::Null,
        }
    }
    fn value(&self, key: usize) -> State {
        self.keys.get(&key).map_or(State::Absent, |entry| entry.value.clone())
    }
    fn has_elements(&self, key: usize) -> bool {
        matches!(self.keys.get(&key), Some(Entry { value: State::List(_), .. }))
    }
    /// Runs a command on one key. Marks the clients that watch a changed key. The expiry time of the key or field stays
    /// unless the key or field is overwritten.
    fn apply(&mut self, key: usize, operation: &Operation) -> Value {
        let before = self.value(key);
        let (after, reply) = operation.apply(&before);
        let overwrites = matches!(operation, Operation::Set(_) | Operation::GetSet(_));
        let always_writes = overwrites || matches!(operation, Operation::HSet(..));
        if after != before || (always_writes && !matches!(reply, Value::Error(_))) {
            let stays = self.keys.get(&key).filter(|_| !overwrites);
            let until_ms = stays.and_then(|entry| entry.until_ms);
            let mut fields_until_ms = stays.map(|entry| entry.fields_until_ms.clone()).unwrap_or_default();
            if let Operation::HSet(field, _) = operation {
                fields_until_ms.remove(field);
            }
            self.put_entry(key, Entry { value: after, until_ms, fields_until_ms });
        }
        reply
    }
    fn set_until(&mut self, key: usize, until_ms: Option<Span>) -> Value {
        let Some(entry) = self.keys.get_mut(&key) else { return Value::Int(0) };
        entry.until_ms = until_ms;
        self.mark_watchers(key);
        Value::Int(1)
    }
    fn put(&mut self, key: usize, value: State, until_ms: Option<Span>) {
        self.put_entry(key, Entry { value, until_ms, fields_until_ms: BTreeMap::new() });
    }
    fn put_entry(&mut self, key: usize, entry: Entry) {
        match entry.value {
            State::Absent => _ = self.keys.remove(&key),
            _ => _ = self.keys.insert(key, entry),
        }
        self.mark_watchers(key);
    }
    fn mark_watchers(&mut self, key: usize) {
        for (watched, changed) in self.watches.values_mut() {
            *changed |= watched.contains(&key);
        }
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// A reply as a script returns it: Lua's numbers have 53 bits.
fn as_lua_number(reply: Value) -> Value {
    match reply {
        Value::Int(n) => Value::Int(n as f64 as i64),
        other => other,
    }
}
