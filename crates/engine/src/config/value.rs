//! Values: from the words of a line to a [`Value`], and back, with redis-server's rules and texts.

use super::error::ValueError;
use super::spec::{OptionSpec, ValueType};
use super::special;

/// The classes of client-output-buffer-limit.
pub const CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// Limits on unread output for each class: hard bytes, soft bytes, seconds over soft.
pub type OutputLimits = [[u64; 3]; 3];

/// The value of an option, after it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number. A bool is 0 or 1, a choice is the index of its word.
    Number(i64),
    /// Text as bytes, because a password may be any bytes.
    Text(Vec<u8>),
    /// The value is a list of words. Each word is a separate value.
    Words(Vec<Vec<u8>>),
    /// The value has the output limits of every class of clients.
    Limits(OutputLimits),
}

impl Value {
    /// Reads `words` as a value of `spec`. `before` is the current value: client-output-buffer-limit keeps the
    /// classes that the words do not name.
    ///
    /// # Errors
    /// When the words are no value of the option.
    pub(crate) fn parse(
        spec: &OptionSpec,
        words: &[&[u8]],
        before: Option<&Value>,
    ) -> Result<Value, ValueError> {
        match spec.kind {
            ValueType::OutputLimits => return limits(words, before),
            ValueType::Words => {
                return Ok(Value::Words(
                    words.iter().map(|w| w.to_vec()).filter(|w| !w.is_empty()).collect(),
                ));
            }
            ValueType::Flags(known) => return special::flags(words, known),
            ValueType::SavePoints => return special::save_points(words, before),
            ValueType::Percentiles => return special::percentiles(words),
            ValueType::OomScores => return special::oom_scores(words),
            ValueType::Primary => return special::primary(words),
            _ => {}
        }
        let [word] = words else { return Err(ValueError::WordCount) };
        match spec.kind {
            ValueType::Integer(min, max) => {
                let n = strand_keyspace::types::string::parse_int(word);
                within(n.ok_or(ValueError::NotAnInteger)?, min, max)
            }
            ValueType::Memory(min, max) => within(memory(word).ok_or(ValueError::NotMemory)?, min, max),
            ValueType::Bool if word.eq_ignore_ascii_case(b"yes") => Ok(Value::Number(1)),
            ValueType::Bool if word.eq_ignore_ascii_case(b"no") => Ok(Value::Number(0)),
            ValueType::Bool => Err(ValueError::NotBool),
            ValueType::Choice(choices) => {
                match choices.iter().position(|c| word.eq_ignore_ascii_case(c.as_bytes())) {
                    Some(i) => Ok(Value::Number(i as i64)),
                    None => Err(ValueError::NotOneOf(choices)),
                }
            }
            ValueType::Text => Ok(Value::Text(word.to_vec())),
            ValueType::FileName => special::file_name(spec.name, word),
            ValueType::KeyspaceEvents => special::keyspace_events(word),
            ValueType::LogLevels => special::log_levels(word),
            ValueType::HttpAddress => special::http_address(word),
            ValueType::MemoryOrPercent => special::memory_or_percent(word),
            ValueType::Octal(min, max) => special::octal(word, min, max),
            ValueType::Words
            | ValueType::Flags(_)
            | ValueType::OutputLimits
            | ValueType::SavePoints
            | ValueType::Percentiles
            | ValueType::OomScores
            | ValueType::Primary => unreachable!("handled above"),
        }
    }
    /// The value as CONFIG GET shows it.
    pub fn text(&self, spec: &OptionSpec) -> Vec<u8> {
        match (self, spec.kind) {
            (Value::Number(n), ValueType::Bool) => if *n == 0 { "no" } else { "yes" }.into(),
            (Value::Number(n), ValueType::Choice(choices)) => choices[*n as usize].into(),
            (Value::Number(n), ValueType::Octal(..)) => format!("{n:o}").into_bytes(),
            (Value::Number(n), ValueType::MemoryOrPercent) if *n < 0 => format!("{}%", -n).into_bytes(),
            (Value::Number(n), _) => n.to_string().into_bytes(),
            (Value::Text(t), _) => t.clone(),
            (Value::Words(w), _) => w.join(&b' '),
            (Value::Limits(limits), _) => {
                let class = |(name, [hard, soft, seconds]): (&str, &[u64; 3])| {
                    format!("{name} {hard} {soft} {seconds}")
                };
                CLASSES.into_iter().zip(limits).map(class).collect::<Vec<_>>().join(" ").into_bytes()
            }
        }
    }
}

/// The number, if it is from `min` to `max`.
pub(super) fn within(n: i64, min: i64, max: i64) -> Result<Value, ValueError> {
    match (min..=max).contains(&n) {
        true => Ok(Value::Number(n)),
        false => Err(ValueError::OutOfRange { min, max }),
    }
}

/// Reads a number of bytes: digits and an optional unit; `1k` is 1000, `1kb` is 1024. `None` for a negative number.
/// As in redis-server, a unit without digits is 0.
pub fn memory(word: &[u8]) -> Option<i64> {
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let factor: i64 = match word[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    match digits {
        0 => Some(0),
        _ => std::str::from_utf8(&word[..digits]).ok()?.parse::<i64>().ok()?.checked_mul(factor),
    }
}

/// Reads a number of seconds as C does: `+1` and `01` are 1, the empty word is 0.
fn seconds(word: &[u8]) -> Option<i64> {
    match word {
        b"" => Some(0),
        word => std::str::from_utf8(word).ok()?.parse().ok(),
    }
}

fn limits(words: &[&[u8]], before: Option<&Value>) -> Result<Value, ValueError> {
    let mut out = match before {
        Some(Value::Limits(limits)) => *limits,
        _ => [[0; 3]; 3],
    };
    if !words.len().is_multiple_of(4) {
        return Err(ValueError::BufferLimitWordCount);
    }
    for group in words.chunks(4) {
        let class = match group[0].to_ascii_lowercase().as_slice() {
            b"normal" => 0,
            b"slave" | b"replica" => 1,
            b"pubsub" => 2,
            _ => return Err(ValueError::BufferLimitClass),
        };
        let numbers = (memory(group[1]), memory(group[2]), seconds(group[3]));
        let (Some(hard), Some(soft), Some(seconds @ 0..)) = numbers else {
            return Err(ValueError::BufferLimitNumbers);
        };
        out[class] = [hard as u64, soft as u64, seconds as u64];
    }
    Ok(Value::Limits(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_units_are_those_of_redis() {
        let cases: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("1b", Some(1)),
            ("2k", Some(2000)),
            ("2KB", Some(2048)),
            ("3m", Some(3_000_000)),
            ("3mb", Some(3 << 20)),
            ("1g", Some(1_000_000_000)),
            ("1Gb", Some(1 << 30)),
            ("", Some(0)),
            ("kb", Some(0)),
            ("1x", None),
            ("-1", None),
            ("1 kb", None),
            ("99999999999999999999", None),
            ("9999999999gb", None),
        ];
        for (text, want) in cases {
            assert_eq!(memory(text.as_bytes()), *want, "{text}");
        }
    }

    #[test]
    fn limits_keep_the_classes_that_are_not_named() {
        let first = limits(&[b"normal", b"1mb", b"2mb", b"3", b"pubsub", b"4", b"5", b"6"], None).unwrap();
        let second = limits(&[b"replica", b"7", b"8", b"9"], Some(&first)).unwrap();
        assert_eq!(second, Value::Limits([[1 << 20, 2 << 20, 3], [7, 8, 9], [4, 5, 6]]));
    }
}
