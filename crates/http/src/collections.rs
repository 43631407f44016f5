//! Lists, sets, sorted sets and streams as JSON, in both directions: `/v1/keys/{key}` for values that are neither
//! strings nor hashes.
//!
//! A list or set is an array of strings. A sorted set is an array of `[member, score]`, ordered by score. A stream
//! is an array of `[id, [field, value, ...]]`; consumer groups are not shown. A PUT replaces the key in one
//! transaction. If the write depends on the existing value, the key is watched, so no other write can come in
//! between.

use crate::exchange::Context;
use crate::keys::Expiry;
use crate::problem::Problem;
use crate::session_client::SessionClient;
use crate::text;
use serde_json::Value as Json;
use strand_wire::events::Event;

/// Maximum number of attempts of a read or a write of several commands, because the key may change during each attempt.
pub const ATTEMPTS_MAX: usize = 4;
/// Maximum number of elements per command. A transaction may have any number of commands.
const ELEMENTS_PER_COMMAND: usize = 1024;

/// A type of values that are not strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionType {
    /// A hash: a JSON object of fields.
    Hash,
    /// A list: an ordered array.
    List,
    /// A set: an unordered array.
    Set,
    /// A sorted set: an array of pairs.
    ZSet,
    /// A stream: an array of entries.
    Stream,
}

/// What a write requires of the existing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCondition {
    /// The key may exist or be missing.
    Any,
    /// The key must exist.
    Present,
    /// The key must not exist.
    Absent,
}

impl CollectionType {
    /// The type with this name, as in the reply of TYPE and in `Strand-Type`.
    pub fn from_name(name: &[u8]) -> Option<CollectionType> {
        let all = [
            CollectionType::Hash,
            CollectionType::List,
            CollectionType::Set,
            CollectionType::ZSet,
            CollectionType::Stream,
        ];
        all.into_iter().find(|kind| kind.name().as_bytes() == name)
    }
    /// Redis's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            CollectionType::Hash => "hash",
            CollectionType::List => "list",
            CollectionType::Set => "set",
            CollectionType::ZSet => "zset",
            CollectionType::Stream => "stream",
        }
    }
    /// The command whose RESP3 reply becomes the value's JSON.
    pub fn read_command(self, key: &[u8]) -> Vec<&[u8]> {
        match self {
            CollectionType::Hash => vec![b"HGETALL", key],
            CollectionType::List => vec![b"LRANGE", key, b"0", b"-1"],
            CollectionType::Set => vec![b"SMEMBERS", key],
            CollectionType::ZSet => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            CollectionType::Stream => vec![b"XRANGE", key, b"-", b"+"],
        }
    }
    /// The command for which a writer needs permission.
    pub fn write_command(self, key: &[u8]) -> Vec<&[u8]> {
        match self {
            CollectionType::Hash => vec![b"HREPLACE", key, b"FIELDS", b"", b""],
            CollectionType::List => vec![b"RPUSH", key, b""],
            CollectionType::Set => vec![b"SADD", key, b""],
            CollectionType::ZSet => vec![b"ZADD", key, b"0", b""],
            CollectionType::Stream => vec![b"XADD", key, b"1-1", b"", b""],
        }
    }
    /// The commands that create the value `json` at `key`, which must not exist.
    ///
    /// # Errors
    /// 400 when the JSON is not a value of this type or is empty.
    pub fn commands(self, key: &[u8], json: Json) -> Result<Vec<Vec<Vec<u8>>>, Problem> {
        let Json::Array(elements) = json else { return Err(self.wrong_element()) };
        if elements.is_empty() {
            return Err(self.wrong_element());
        }
        let mut last_id = (0, 0);
        let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
        for (i, element) in elements.into_iter().enumerate() {
            let words = self.element(element, &mut last_id).ok_or_else(|| {
                Problem::bad_request(format!(
                    "element {i} of the array cannot be an element of a {}",
                    self.name()
                ))
            })?;
            if self == CollectionType::Stream || i % ELEMENTS_PER_COMMAND == 0 {
                commands.push(vec![self.write_command(key)[0].to_vec(), key.to_vec()]);
            }
            commands.last_mut().expect("one was added").extend(words);
        }
        Ok(commands)
    }
    /// The arguments of the writing command for one element. `None` when the element does not fit the type.
    fn element(self, element: Json, last_id: &mut (u64, u64)) -> Option<Vec<Vec<u8>>> {
        match (self, element) {
            (CollectionType::List | CollectionType::Set, element) => Some(vec![string(element)?]),
            (CollectionType::ZSet, Json::Array(pair)) => {
                let [member, score] = <[Json; 2]>::try_from(pair).ok()?;
                Some(vec![score_of(score)?, string(member)?])
            }
            (CollectionType::Stream, Json::Array(entry)) => {
                let [id, fields] = <[Json; 2]>::try_from(entry).ok()?;
                let (Json::String(id), Json::Array(fields)) = (id, fields) else { return None };
                let (ms, seq) = id.split_once('-')?;
                let number = |text: &str| text.parse().ok().filter(|n: &u64| n.to_string() == text);
                let parsed = (number(ms)?, number(seq)?);
                // Refuse here what XADD would refuse, because the transaction has not begun yet.
                if parsed <= *last_id || fields.is_empty() || fields.len() % 2 == 1 {
                    return None;
                }
                *last_id = parsed;
                std::iter::once(Some(id.into_bytes())).chain(fields.into_iter().map(string)).collect()
            }
            (CollectionType::Hash | CollectionType::ZSet | CollectionType::Stream, _) => None,
        }
    }
    fn wrong_element(self) -> Problem {
        Problem::bad_request(match self {
            CollectionType::Hash => "a hash is a JSON object with at least one member",
            CollectionType::List | CollectionType::Set => {
                "a list or a set is a JSON array of at least one string"
            }
            CollectionType::ZSet => "a sorted set is a JSON array of at least one [member, score]",
            CollectionType::Stream => "a stream is a JSON array of at least one [id, [field, value, ...]]",
        })
    }
}

/// The bytes of a JSON string, or the text of a JSON number.
fn string(json: Json) -> Option<Vec<u8>> {
    match json {
        Json::String(text) => text::unquote(text),
        Json::Number(number) => Some(number.as_str().to_owned().into_bytes()),
        _ => None,
    }
}

/// The score as an argument of ZADD: a number, or a string that names a number that JSON cannot express. `None` for a
/// number that ZADD would refuse, because the transaction has not begun yet.
fn score_of(json: Json) -> Option<Vec<u8>> {
    match json {
        Json::Number(number) => {
            let text = number.as_str();
            // As in C's strtod, a number that is too large or too small for a double is none.
            let is_zero = !text.split(['e', 'E']).next()?.contains(|digit: char| matches!(digit, '1'..='9'));
            let score = text.parse::<f64>().ok()?;
            (is_zero || score.is_finite() && score != 0.0).then(|| text.to_owned().into_bytes())
        }
        Json::String(name) if matches!(name.as_str(), "inf" | "-inf") => Some(name.into_bytes()),
        _ => None,
    }
}

/// Replaces the value at `key` by the value that `commands` create, in one step. Returns true when the key existed.
///
/// # Errors
/// 412 when the condition is not met, 409 when the key keeps changing, and the errors of the commands.
pub async fn replace(
    context: &Context,
    key: &[u8],
    commands: &[Vec<Vec<u8>>],
    expiry: &Expiry,
    wanted: KeyCondition,
    failed: impl Fn() -> Problem,
) -> Result<bool, Problem> {
    let session = &context.session;
    let watches = wanted != KeyCondition::Any || matches!(expiry, Expiry::Keep);
    for _ in 0..ATTEMPTS_MAX {
        let mut expire_at_ms = None;
        if watches {
            session.command(&[b"WATCH", key]);
            session.command(&[b"PEXPIRETIME", key]);
            let (watched, at_ms) = (session.line().await, session.line().await);
            let at_ms = watched.and(at_ms);
            let is_there = at_ms.as_ref().is_ok_and(|at_ms| at_ms.as_deref() != Some(b"-2"));
            if at_ms.is_err() || (wanted == KeyCondition::Present) != is_there && wanted != KeyCondition::Any
            {
                session.command(&[b"UNWATCH"]);
                session.line().await?;
                at_ms?;
                return Err(failed());
            }
            expire_at_ms = at_ms?.filter(|at_ms| !at_ms.starts_with(b"-"));
        }
        let last: Option<Vec<Vec<u8>>> = match (expiry, expire_at_ms) {
            (Expiry::AfterMs(ms), _) => {
                Some(vec![b"PEXPIRE".to_vec(), key.to_vec(), ms.to_string().into_bytes()])
            }
            (Expiry::Keep, Some(at_ms)) => Some(vec![b"PEXPIREAT".to_vec(), key.to_vec(), at_ms]),
            (Expiry::Keep | Expiry::Never, _) => None,
        };
        if let Some(was_there) = transaction(session, key, commands.iter().chain(&last)).await? {
            return Ok(was_there);
        }
    }
    Err(Problem::always_changed())
}

/// Deletes the key and runs the commands in one transaction. Returns whether the key existed; `None` when the
/// watched key changed.
async fn transaction(
    session: &SessionClient,
    key: &[u8],
    commands: impl Iterator<Item = &Vec<Vec<u8>>>,
) -> Result<Option<bool>, Problem> {
    session.command(&[b"MULTI"]);
    // Without a transaction each command would take effect at once.
    if let Err(denied) = session.line().await {
        session.command(&[b"UNWATCH"]);
        let _ = session.line().await;
        return Err(denied);
    }
    session.command(&[b"DEL", key]);
    let mut refused = session.line().await.err();
    for command in commands {
        session.begin_command(command.len());
        for word in command {
            session.wait_for_room().await?;
            session.argument(word);
        }
        refused = refused.or(session.line().await.err());
    }
    session.command(&[b"EXEC"]);
    match session.event().await? {
        Event::Open { values, .. } => {
            let removed = session.event().await?;
            for _ in 1..values {
                if let Event::Error(text) = session.event().await? {
                    refused.get_or_insert_with(|| Problem::of_reply(&text));
                }
            }
            refused.map_or(Ok(Some(removed == Event::Int(1))), Err)
        }
        Event::Error(text) => Err(refused.unwrap_or_else(|| Problem::of_reply(&text))),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(kind: CollectionType, json: &str) -> Result<Vec<String>, u64> {
        let json = serde_json::from_str(json).expect("JSON");
        let commands =
            kind.commands(b"k", json).map_err(|p| p.document()["status"].as_u64().expect("a number"))?;
        let line = |words: &Vec<Vec<u8>>| {
            words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" ")
        };
        Ok(commands.iter().map(line).collect())
    }

    #[test]
    fn json_becomes_commands() {
        let ok = |lines: &[&str]| Ok(lines.iter().map(|l| l.to_string()).collect());
        for (kind, json, want) in [
            (CollectionType::List, r#"["a",2,"base64:/w=="]"#, ok(&["RPUSH k a 2 \u{fffd}"])),
            (CollectionType::Set, r#"["a","a"]"#, ok(&["SADD k a a"])),
            (CollectionType::ZSet, r#"[["a",1.5],["b","-inf"]]"#, ok(&["ZADD k 1.5 a -inf b"])),
            (
                CollectionType::Stream,
                r#"[["1-0",["f","v"]],["1-1",["g",1]]]"#,
                ok(&["XADD k 1-0 f v", "XADD k 1-1 g 1"]),
            ),
            (CollectionType::List, "[]", Err(400)),
            (CollectionType::List, r#"{"a":"b"}"#, Err(400)),
            (CollectionType::List, r#"[["a"]]"#, Err(400)),
            (CollectionType::ZSet, r#"[["a",-0.0e-999],["b",1e308]]"#, ok(&["ZADD k -0.0e-999 a 1e+308 b"])),
            (CollectionType::ZSet, r#"[["a",1],["b",1e400]]"#, Err(400)),
            (CollectionType::ZSet, r#"[["a",-1e309]]"#, Err(400)),
            (CollectionType::ZSet, r#"[["a",1e-999]]"#, Err(400)),
            (CollectionType::ZSet, r#"["a",1]"#, Err(400)),
            (CollectionType::ZSet, r#"[["a","nan"]]"#, Err(400)),
            (CollectionType::ZSet, r#"[["a",1,2]]"#, Err(400)),
            (CollectionType::Stream, r#"[["1-1",["f","v"]],["1-1",["f","v"]]]"#, Err(400)),
            (CollectionType::Stream, r#"[["0-0",["f","v"]]]"#, Err(400)),
            (CollectionType::Stream, r#"[["1-01",["f","v"]]]"#, Err(400)),
            (CollectionType::Stream, r#"[["*",["f","v"]]]"#, Err(400)),
            (CollectionType::Stream, r#"[["1-1",["f"]]]"#, Err(400)),
            (CollectionType::Stream, r#"[["1-1",[]]]"#, Err(400)),
        ] {
            assert_eq!(lines(kind, json), want, "{kind:?} {json}");
        }
        let many: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
        assert_eq!(
            lines(CollectionType::Set, &format!("[{}]", many.join(","))).map(|lines| lines.len()),
            Ok(3)
        );
    }
}
