//! The effect and the reply of the recorded commands on one key: Redis's semantics on one page.

use super::Model;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use strand_wire::client::Value;

/// A command on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `GET`
    Get,
    /// `SET value`
    Set(Vec<u8>),
    /// `SETNX value`
    SetNx(Vec<u8>),
    /// `GETSET value`
    GetSet(Vec<u8>),
    /// `APPEND value`
    Append(Vec<u8>),
    /// `INCR`
    Incr,
    /// `DEL`
    Del,
    /// `HSET field value`
    HSet(Vec<u8>, Vec<u8>),
    /// `HGET field`
    HGet(Vec<u8>),
    /// `RPUSH value`
    RPush(Vec<u8>),
    /// `LPOP`
    LPop,
    /// `LLEN`
    LLen,
    /// `BLPOP` with a timeout in milliseconds. It takes effect when the list has an element; without an element it
    /// replies with null.
    BlPop(u32),
    /// `MULTI`, these commands, `EXEC`: all at one moment.
    Exec(Vec<Operation>),
}

/// The value of a key, as the model sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// The key does not exist.
    #[default]
    Absent,
    /// The value is a string.
    Text(Vec<u8>),
    /// The value is a hash.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// The value is a list, which is never empty.
    List(VecDeque<Vec<u8>>),
}

impl Model for Operation {
    type State = State;

    fn outcomes(&self, before: &State, _during: RangeInclusive<u64>) -> Vec<(State, Value)> {
        vec![self.apply(before)]
    }
}

impl Operation {
    /// The commands to send for the operation. The reply to the last command is the reply to the operation.
    pub fn requests(&self, key: &str) -> Vec<Vec<Vec<u8>>> {
        match self {
            Operation::Exec(operations) => {
                let queued = operations.iter().map(|operation| operation.args(key));
                let (first, last) = (vec![b"MULTI".to_vec()], vec![b"EXEC".to_vec()]);
                [first].into_iter().chain(queued).chain([last]).collect()
            }
            one => vec![one.args(key)],
        }
    }
    /// The reply in the form of [`Operation::apply`]: BLPOP without the name of the key.
    pub fn seen(&self, reply: Value) -> Value {
        match (self, reply) {
            (Operation::BlPop(_), Value::Array(mut pair)) if pair.len() == 2 => pair.remove(1),
            (Operation::Exec(operations), Value::Array(replies)) if replies.len() == operations.len() => {
                let each = operations.iter().zip(replies);
                Value::Array(each.map(|(operation, reply)| operation.seen(reply)).collect())
            }
            (_, reply) => reply,
        }
    }
    /// # Panics
    /// For a transaction, which is several commands.
    pub(super) fn args(&self, key: &str) -> Vec<Vec<u8>> {
        let seconds;
        let (name, rest): (&str, Vec<&Vec<u8>>) = match self {
            Operation::Get => ("GET", vec![]),
            Operation::Set(v) => ("SET", vec![v]),
            Operation::SetNx(v) => ("SETNX", vec![v]),
            Operation::GetSet(v) => ("GETSET", vec![v]),
            Operation::Append(v) => ("APPEND", vec![v]),
            Operation::Incr => ("INCR", vec![]),
            Operation::Del => ("DEL", vec![]),
            Operation::HSet(f, v) => ("HSET", vec![f, v]),
            Operation::HGet(f) => ("HGET", vec![f]),
            Operation::RPush(v) => ("RPUSH", vec![v]),
            Operation::LPop => ("LPOP", vec![]),
            Operation::LLen => ("LLEN", vec![]),
            Operation::BlPop(ms) => {
                seconds = (f64::from(*ms) / 1000.0).to_string().into_bytes();
                ("BLPOP", vec![&seconds])
            }
            Operation::Exec(_) => panic!("a transaction is several commands"),
        };
        [name.as_bytes().to_vec(), key.as_bytes().to_vec()]
            .into_iter()
            .chain(rest.into_iter().cloned())
            .collect()
    }

    /// The state after the operation, and the reply.
    pub fn apply(&self, state: &State) -> (State, Value) {
        let (after, reply) = match (self, state) {
            (Operation::Exec(operations), state) => {
                let mut state = state.clone();
                let replies = operations.iter().map(|operation| {
                    let (after, reply) = operation.apply(&state);
                    state = after;
                    reply
                });
                let replies = replies.collect();
                (Some(state), Value::Array(replies))
            }
            (Operation::Set(v), _) => (Some(State::Text(v.clone())), Value::Simple(b"OK".to_vec())),
            (Operation::Del, State::Absent) => (None, Value::Int(0)),
            (Operation::Del, _) => (Some(State::Absent), Value::Int(1)),
            (Operation::SetNx(v), State::Absent) => (Some(State::Text(v.clone())), Value::Int(1)),
            (Operation::SetNx(_), _) => (None, Value::Int(0)),
            (Operation::HSet(f, v), State::Absent) => {
                (Some(State::Hash(BTreeMap::from([(f.clone(), v.clone())]))), Value::Int(1))
            }
            (Operation::HSet(f, v), State::Hash(fields)) => {
                let mut fields = fields.clone();
                let added = fields.insert(f.clone(), v.clone()).is_none();
                (Some(State::Hash(fields)), Value::Int(i64::from(added)))
            }
            (Operation::HGet(f), State::Hash(fields)) => (None, bulk(fields.get(f))),
            (Operation::RPush(v), State::Absent) => {
                (Some(State::List(VecDeque::from([v.clone()]))), Value::Int(1))
            }
            (Operation::RPush(v), State::List(list)) => {
                let mut list = list.clone();
                list.push_back(v.clone());
                let len = list.len() as i64;
                (Some(State::List(list)), Value::Int(len))
            }
            (Operation::LPop | Operation::BlPop(_), State::List(list)) => {
                let mut list = list.clone();
                let first = list.pop_front();
                let after = if list.is_empty() { State::Absent } else { State::List(list) };
                (Some(after), bulk(first.as_ref()))
            }
            (Operation::LLen, State::List(list)) => (None, Value::Int(list.len() as i64)),
            (Operation::LLen, State::Absent) => (None, Value::Int(0)),
            (Operation::Get | Operation::HGet(_) | Operation::LPop | Operation::BlPop(_), State::Absent) => {
                (None, Value::Null)
            }
            (Operation::HSet(..) | Operation::HGet(_), State::Text(_)) => (None, wrong_type()),
            (
                Operation::RPush(_) | Operation::LPop | Operation::LLen | Operation::BlPop(_),
                State::Text(_) | State::Hash(_),
            ) => (None, wrong_type()),
            (_, State::Hash(_) | State::List(_)) => (None, wrong_type()),
            (Operation::Get, State::Text(old)) => (None, bulk(Some(old))),
            (Operation::GetSet(v), old) => (Some(State::Text(v.clone())), bulk(text(old))),
            (Operation::Append(v), old) => {
                let joined = [text(old).map_or(&[][..], Vec::as_slice), v].concat();
                let len = joined.len() as i64;
                (Some(State::Text(joined)), Value::Int(len))
            }
            (Operation::Incr, old) => increment(text(old)),
        };
        (after.unwrap_or_else(|| state.clone()), reply)
    }
}

fn text(state: &State) -> Option<&Vec<u8>> {
    match state {
        State::Text(text) => Some(text),
        State::Absent | State::Hash(_) | State::List(_) => None,
    }
}

fn increment(old: Option<&Vec<u8>>) -> (Option<State>, Value) {
    let number = match old {
        None => Some(0i64),
        // Only the canonical form counts as an integer: no leading zero, no plus sign.
        Some(text) => {
            std::str::from_utf8(text).ok().and_then(|t| t.parse::<i64>().ok().filter(|n| n.to_string() == t))
        }
    };
    match number.and_then(|n| n.checked_add(1)) {
        Some(n) => (Some(State::Text(n.to_string().into_bytes())), Value::Int(n)),
        None => (None, Value::Error(b"ERR value is not an integer or out of range".to_vec())),
    }
}

fn bulk(text: Option<&Vec<u8>>) -> Value {
    text.map_or(Value::Null, |t| Value::Bulk(t.clone()))
}

pub(super) fn wrong_type() -> Value {
    Value::Error(b"WRONGTYPE Operation against a key holding the wrong kind of value".to_vec())
}
