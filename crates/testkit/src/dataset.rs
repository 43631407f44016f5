//! The data of a server as replies: [`questions`] reads everything about a key, and [`lines`] describes a database.
//!
//! DEBUG DIGEST knows less: whether a key expires but not when, and a stream's entries but not its groups.

use crate::compare::Policy;
use crate::shrink::Command;
use strand_chain::Chain;
use strand_wire::client::{ReplyParser, Value};

/// In these commands, `$` stands for the key.
const QUESTIONS: [&str; 8] = [
    "TYPE $",
    "GET $",
    "HGETALL $",
    "SMEMBERS $",
    "LRANGE $ 0 -1",
    "ZRANGE $ 0 -1 WITHSCORES",
    "XINFO STREAM $ FULL COUNT 0",
    "PEXPIRETIME $",
];

/// Questions about what redis-server 7.0 lacks, and about entries that groups have delivered.
const MORE_QUESTIONS: [&str; 3] =
    ["HPEXPIRETIME $ FIELDS 3 f g h", "XPENDING $ g1 - + 1000", "XPENDING $ g2 - + 1000"];

/// A question whose answer is no data: an encoding depends on the values that were there before.
const ENCODING: &str = "OBJECT ENCODING $";

/// Commands that read everything about `key`, and its encoding. redis-server 7.0 has all of them.
pub fn questions(key: &[u8]) -> Vec<Command> {
    QUESTIONS.iter().chain([&ENCODING]).map(|question| with_key(question, key)).collect()
}

/// All data of the selected database, one line for each key and question, in an order that depends on the data only.
/// Hashes are asked for the times of the fields f, g and h, and streams for the groups g1 and g2. `call` runs a command
/// and returns the bytes of the reply.
///
/// # Panics
/// When a reply is not one whole RESP value.
pub fn lines(call: &mut dyn FnMut(&Command) -> Vec<u8>) -> Vec<String> {
    let mut reply_to = |command: &Command| {
        let mut bytes = Chain::new();
        bytes.push_slice(&call(command));
        ReplyParser::new().next(&mut bytes).expect("RESP").expect("one whole reply")
    };
    let Value::Array(keys) = reply_to(&with_key("KEYS *", b"")) else { return Vec::new() };
    let mut out = Vec::new();
    for key in keys {
        let Value::Bulk(key) = key else { continue };
        for question in QUESTIONS.iter().chain(&MORE_QUESTIONS) {
            let command = with_key(question, &key);
            let policy = match &command[0][..] {
                b"PEXPIRETIME" | b"XPENDING" => Policy::Exact,
                _ => Policy::of(&command),
            };
            match policy.comparable(&reply_to(&command)) {
                Value::Error(_) => {}
                reply => out.push(format!("{} -> {}", text_of(&command), reply_text(&reply))),
            }
        }
    }
    out.sort();
    out
}

/// A command as readable text without loss.
pub fn text_of(command: &Command) -> String {
    command.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// A reply as readable text without loss.
fn reply_text(value: &Value) -> String {
    let all = |items: &[Value]| items.iter().map(reply_text).collect::<Vec<_>>().join(", ");
    match value {
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Int(n) => n.to_string(),
        Value::Array(items) => format!("[{}]", all(items)),
        Value::Map(pairs) => {
            let pair = |(name, value)| format!("{}: {}", reply_text(name), reply_text(value));
            format!(
                "{{{}}}",
                pairs.iter().map(|(name, value)| pair((name, value))).collect::<Vec<_>>().join(", ")
            )
        }
        other => format!("{other:?}"),
    }
}

fn with_key(question: &str, key: &[u8]) -> Command {
    question.split(' ').map(|word| if word == "$" { key.to_vec() } else { word.into() }).collect()
}
