//! Lists, sets, sorted sets and streams as JSON, in both directions: `/v1/keys/{key}` for values that are neither
//! strings nor hashes.
//!
//! A list or set is an array of strings. A sorted set is an array of `[member, score]`, ordered by score. A stream
//! is an array of `[id, [field, value, ...]]`; consumer groups are not shown. A PUT replaces the key in one
//! transaction. If the write depends on the existing value, the key is watched, so no other write can come in
//! between.

use crate::exchange::Context;
use crate::json_reader::{JsonReader, NotJson, Words};
use crate::keys::Expiry;
use crate::problem::Problem;
use crate::session_client::SessionClient;
use json_event_parser::JsonEvent;
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
    /// The commands that create the value `json` at `key`, which must not exist. Their words are put into `words`, which
    /// must be empty.
    ///
    /// # Errors
    /// 400 when the text is not JSON, not a value of this type, or an empty value.
    pub async fn commands(self, key: &[u8], json: &[u8], words: Words) -> Result<Commands, Problem> {
        let mut reader = JsonReader::new(json);
        if reader.next().await? != JsonEvent::StartArray {
            return Err(self.wrong_value());
        }
        let (mut commands, mut last_id) = (Commands { words, starts: Vec::new() }, (0, 0));
        for i in 0.. {
            let event = reader.next().await?;
            if event == JsonEvent::EndArray {
                break;
            }
            if self == CollectionType::Stream || i % ELEMENTS_PER_COMMAND == 0 {
                commands.begin(self.write_command(key)[0], key);
            }
            self.element(event, &mut reader, &mut last_id, &mut commands.words).await?.ok_or_else(|| {
                Problem::bad_request(format!(
                    "element {i} of the array cannot be an element of a {}",
                    self.name()
                ))
            })?;
        }
        reader.next().await?;
        match commands.words.is_empty() {
            true => Err(self.wrong_value()),
            false => Ok(commands),
        }
    }
    /// Appends the arguments of the writing command for the element that starts with `first`. Returns `None` when the
    /// element does not fit the type.
    async fn element<'a>(
        self,
        first: JsonEvent<'a>,
        reader: &mut JsonReader<'a>,
        last_id: &mut (u64, u64),
        words: &mut Words,
    ) -> Result<Option<()>, NotJson> {
        match (self, first) {
            (CollectionType::List | CollectionType::Set, element) => Ok(words.push_scalar(&element)),
            (CollectionType::ZSet, JsonEvent::StartArray) => {
                let (member, score) = (reader.next().await?, reader.next().await?);
                let is_pair = is_score(&score) && reader.next().await? == JsonEvent::EndArray;
                Ok(is_pair
                    .then_some(())
                    .and_then(|()| words.push_scalar(&score))
                    .and_then(|()| words.push_scalar(&member)))
            }
            (CollectionType::Stream, JsonEvent::StartArray) => {
                let (JsonEvent::String(id), JsonEvent::StartArray) =
                    (reader.next().await?, reader.next().await?)
                else {
                    return Ok(None);
                };
                let Some(parsed) = stream_id(&id).filter(|id| *id > *last_id) else { return Ok(None) };
                *last_id = parsed;
                words.push(id.as_bytes());
                let before = words.len();
                loop {
                    match reader.next().await? {
                        JsonEvent::EndArray => break,
                        field => {
                            if words.push_scalar(&field).is_none() {
                                return Ok(None);
                            }
                        }
                    }
                }
                let fields = words.len() - before;
                let is_entry =
                    fields > 0 && fields.is_multiple_of(2) && reader.next().await? == JsonEvent::EndArray;
                Ok(is_entry.then_some(()))
            }
            (CollectionType::Hash | CollectionType::ZSet | CollectionType::Stream, _) => Ok(None),
        }
    }
    fn wrong_value(self) -> Problem {
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

/// Appends the fields and values of the hash `json`, which is a JSON object, to `fields`.
///
/// # Errors
/// 400 when the text is not JSON, not an object, or an object without members.
pub async fn hash_fields(json: &[u8], mut fields: Words) -> Result<Words, Problem> {
    let mut reader = JsonReader::new(json);
    if reader.next().await? != JsonEvent::StartObject {
        return Err(CollectionType::Hash.wrong_value());
    }
    loop {
        let event = reader.next().await?;
        match event {
            JsonEvent::EndObject => break,
            // A value follows each name, and its type is checked.
            scalar => fields.push_scalar(&scalar).ok_or_else(|| {
                Problem::bad_request(format!(
                    "member {} of the object is malformed: expected a string, a number, or `base64:` and Base64",
                    fields.len() / 2
                ))
            })?,
        }
    }
    reader.next().await?;
    match fields.is_empty() {
        true => Err(CollectionType::Hash.wrong_value()),
        false => Ok(fields),
    }
}

/// Commands that are not sent yet.
pub struct Commands {
    words: Words,
    /// Number of the first word of each command.
    starts: Vec<usize>,
}

impl Commands {
    /// Starts a command. Its other words are pushed to `words`.
    fn begin(&mut self, name: &[u8], key: &[u8]) {
        self.starts.push(self.words.len());
        self.words.push(name);
        self.words.push(key);
    }
    /// The words of each command, in order.
    fn iter(&self) -> impl Iterator<Item = impl ExactSizeIterator<Item = &[u8]>> {
        let ends = self.starts.iter().skip(1).copied().chain([self.words.len()]);
        self.starts.iter().zip(ends).map(|(&start, end)| self.words.range(start..end))
    }
}

/// The parts of a stream's ID in its only form; `None` for other texts.
fn stream_id(text: &str) -> Option<(u64, u64)> {
    let (ms, seq) = text.split_once('-')?;
    let number = |text: &str| text.parse().ok().filter(|n: &u64| n.to_string() == text);
    Some((number(ms)?, number(seq)?))
}

/// True for a score that ZADD takes: a number, or a string that names a number that JSON cannot express. A wrong score
/// is refused here, because the transaction has not begun yet.
fn is_score(json: &JsonEvent<'_>) -> bool {
    match json {
        JsonEvent::Number(text) => {
            // As in C's strtod, a number that is too large or too small for a double is none.
            let is_digit = |digit: char| matches!(digit, '1'..='9');
            let is_zero = text.split(['e', 'E']).next().is_some_and(|digits| !digits.contains(is_digit));
            text.parse::<f64>().is_ok_and(|score| is_zero || score.is_finite() && score != 0.0)
        }
        JsonEvent::String(name) => matches!(&**name, "inf" | "-inf"),
        _ => false,
    }
}

/// Replaces the value at `key` by the value that `commands` create, in one step. Returns true when the key existed.
///
/// # Errors
/// 412 when the condition is not met, 409 when the key keeps changing, and the errors of the commands.
pub async fn replace(
    context: &Context,
    key: &[u8],
    commands: &Commands,
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
        let last: Option<(&[u8], Vec<u8>)> = match (expiry, expire_at_ms) {
            (Expiry::AfterMs(ms), _) => Some((b"PEXPIRE", ms.to_string().into_bytes())),
            (Expiry::Keep, Some(at_ms)) => Some((b"PEXPIREAT", at_ms)),
            (Expiry::Keep | Expiry::Never, _) => None,
        };
        if let Some(was_there) = transaction(session, key, commands, last).await? {
            return Ok(was_there);
        }
    }
    Err(Problem::always_changed())
}

/// Deletes the key, runs the commands and sets the expiry (a command, and its argument after the key) in one
/// transaction. Returns whether the key existed; `None` when the watched key changed.
async fn transaction(
    session: &SessionClient,
    key: &[u8],
    commands: &Commands,
    expiry: Option<(&[u8], Vec<u8>)>,
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
    for words in commands.iter() {
        session.begin_command(words.len());
        session.arguments(words).await?;
        refused = refused.or(session.line().await.err());
    }
    if let Some((name, time)) = expiry {
        session.command(&[name, key, &time]);
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
    use crate::turns::complete;

    fn lines(kind: CollectionType, json: &str) -> Result<Vec<String>, u64> {
        let commands = kind.commands(b"k", json.as_bytes(), Words::default());
        let commands = complete(commands).map_err(|p| p.document()["status"].as_u64().expect("a number"))?;
        let lines =
            commands.iter().map(|words| words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" "));
        Ok(lines.collect())
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
            (CollectionType::ZSet, r#"[["a",-0.0e-999],["b",1e308]]"#, ok(&["ZADD k -0.0e-999 a 1e308 b"])),
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
