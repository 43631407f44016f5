//! [`JsonReader`]: reads a JSON body event by event. [`Words`]: the byte strings that the body contains.
//!
//! A megabyte of small values takes tens of milliseconds to read. So the reader lets other tasks run between slices
//! of events ([`Steps`]), and [`Words`] keeps all byte strings in one allocation. The reader does not yield inside a
//! string.

use crate::pipe::Holding;
use crate::problem::Problem;
use crate::text;
use crate::turns::Steps;
use json_event_parser::{JsonEvent, LowLevelJsonParser};
use std::ops::Range;

/// Maximum nesting of the arrays and objects of a body.
pub const DEPTH_MAX: usize = 64;

/// Reads a whole JSON text.
pub struct JsonReader<'a> {
    parser: LowLevelJsonParser,
    rest: &'a [u8],
    steps: Steps,
}

impl<'a> JsonReader<'a> {
    /// A reader at the start of `json`, which must be a complete JSON text.
    pub fn new(json: &'a [u8]) -> JsonReader<'a> {
        // The parser's limit is the depth at which a further level is still allowed.
        let parser = LowLevelJsonParser::new().with_max_stack_size(DEPTH_MAX - 1);
        JsonReader { parser, rest: json, steps: Steps::default() }
    }
    /// The next event. The last one is `Eof`.
    ///
    /// # Errors
    /// When the text is not JSON, or nested more than [`DEPTH_MAX`] deep.
    pub async fn next(&mut self) -> Result<JsonEvent<'a>, NotJson> {
        self.steps.step().await;
        let json = self.rest;
        let step = self.parser.parse_next(json, true);
        self.rest = &json[step.consumed_bytes..];
        // The text is complete, so the parser returns an event or an error.
        step.event.unwrap_or(Ok(JsonEvent::Eof)).map_err(|error| {
            let at = error.location().start;
            let message = match error.message() {
                END if ends_behind_half_a_pair(json) => "a string has half of a surrogate pair",
                message => message,
            };
            NotJson { message: message.to_owned(), line: at.line + 1, column: at.column + 1 }
        })
    }
}

/// The parser's message when the text ends too early. The parser also gives this message when too few bytes for an
/// escape follow the first half of a surrogate pair.
const END: &str = "Unexpected end of file";
/// Length of an escape `\uXXXX`, in bytes.
const ESCAPE_BYTES: usize = 6;

/// True when `json` has the first half of a surrogate pair as an escape, and less than one more escape behind the half.
fn ends_behind_half_a_pair(json: &[u8]) -> bool {
    let start = json.len().saturating_sub(2 * ESCAPE_BYTES - 1);
    let is_half = |escape: &[u8]| {
        escape.starts_with(b"\\u")
            && std::str::from_utf8(&escape[2..])
                .ok()
                .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                .is_some_and(|unit| (0xD800..0xDC00).contains(&unit))
    };
    // A backslash that is itself escaped begins no escape.
    let is_escape = |at: usize| json[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0;
    (start..=json.len().saturating_sub(ESCAPE_BYTES))
        .any(|at| json.get(at..at + ESCAPE_BYTES).is_some_and(is_half) && is_escape(at))
}

/// The text is not JSON.
#[derive(Debug, thiserror::Error)]
#[error("{message} at line {line} column {column}")]
pub struct NotJson {
    message: String,
    /// The line of the error. The first line is 1.
    line: u64,
    /// The byte of the line. The first byte is 1.
    column: u64,
}

impl From<NotJson> for Problem {
    fn from(error: NotJson) -> Problem {
        Problem::bad_request(format!("the body is not JSON: {error}"))
            .member("line", error.line)
            .member("column", error.column)
    }
}

/// Number of words after which the memory of [`Words`] is counted again.
const COUNTED_WORDS: usize = 1024;

/// Byte strings, one after another: of a body, so at most 1 MiB.
#[derive(Default)]
pub struct Words {
    bytes: Vec<u8>,
    /// Offset of the end of each word in `bytes`.
    ends: Vec<u32>,
    holding: Option<Holding>,
}

impl Words {
    /// No words yet. `holding` counts their memory.
    pub fn new(holding: Holding) -> Words {
        Words { holding: Some(holding), ..Words::default() }
    }
    /// Appends a word.
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.end_word();
    }
    fn end_word(&mut self) {
        self.ends.push(u32::try_from(self.bytes.len()).expect("a body has at most 1 MiB"));
        if let Some(holding) = &mut self.holding
            && self.ends.len().is_multiple_of(COUNTED_WORDS)
        {
            holding.set(self.bytes.capacity() + self.ends.capacity() * size_of::<u32>());
        }
    }
    /// Appends the bytes of a JSON string, or the text of a JSON number. Returns `None` for other events and for
    /// malformed Base64. The words are undefined then.
    pub fn push_scalar(&mut self, event: &JsonEvent<'_>) -> Option<()> {
        match event {
            JsonEvent::String(text) | JsonEvent::ObjectKey(text) => text::unquote(text, &mut self.bytes)?,
            JsonEvent::Number(number) => self.bytes.extend_from_slice(number.as_bytes()),
            _ => return None,
        }
        self.end_word();
        Some(())
    }
    /// The number of words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// True when there is no word.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Word number `i`; `None` when there are fewer.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        (i < self.len()).then(|| self.word(i))
    }
    /// The words in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.range(0..self.len())
    }
    /// The words with these numbers, in order.
    ///
    /// # Panics
    /// When there are fewer words.
    pub fn range(&self, numbers: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        numbers.map(|i| self.word(i))
    }
    fn word(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[i] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::complete;
    use proptest::prelude::*;
    use serde_json::Value;

    /// The events of `json` as a compact JSON text.
    async fn copy(json: &[u8]) -> Result<String, NotJson> {
        let (mut reader, mut out) = (JsonReader::new(json), String::new());
        loop {
            let event = reader.next().await?;
            let is_end = matches!(event, JsonEvent::EndArray | JsonEvent::EndObject);
            if !is_end && !out.is_empty() && !out.ends_with(['[', '{', ':']) && event != JsonEvent::Eof {
                out.push(',');
            }
            let quoted = |text: &str| serde_json::to_string(text).expect("a string");
            match event {
                JsonEvent::Eof => return Ok(out),
                JsonEvent::StartArray => out.push('['),
                JsonEvent::EndArray => out.push(']'),
                JsonEvent::StartObject => out.push('{'),
                JsonEvent::EndObject => out.push('}'),
                JsonEvent::ObjectKey(name) => out.push_str(&format!("{}:", quoted(&name))),
                JsonEvent::String(text) => out.push_str(&quoted(&text)),
                JsonEvent::Number(number) => out.push_str(&number),
                JsonEvent::Boolean(b) => out.push_str(&b.to_string()),
                JsonEvent::Null => out.push_str("null"),
            }
        }
    }

    #[test]
    fn texts_that_are_not_json_have_a_place() {
        for (json, place) in [
            (&b""[..], (1, 1)),
            (b"[1", (1, 3)),
            (b"[1,\n\n x]", (3, 2)),
            (b"[1] 2", (1, 5)),
            (b"[\"\xff\"]", (1, 3)),
            (b"[\"a\nb\"]", (1, 4)),
            (b"[01]", (1, 3)),
            (b"[1,]", (1, 4)),
            (b"{\"a\" 1}", (1, 6)),
            (b"[\"\\x\"]", (1, 3)),
        ] {
            let error = complete(copy(json)).expect_err("not JSON");
            assert_eq!((error.line, error.column), place, "{json:?}: {error}");
        }
        assert!(complete(copy(&[b"[".repeat(DEPTH_MAX), b"]".repeat(DEPTH_MAX)].concat())).is_ok());
        assert!(complete(copy(&[b"[".repeat(DEPTH_MAX + 1), b"]".repeat(DEPTH_MAX + 1)].concat())).is_err());
    }

    #[test]
    fn half_of_a_surrogate_pair_has_a_true_text() {
        for (json, is_half) in [
            (r#"["\ud800"]"#, true),
            (r#"["\uDBFF"]"#, true),
            (r#"["a\\\ud800"]"#, true),
            (r#"["\ud83d\ude"#, true),
            (r#"["\ud83d\ude00"#, false),
            (r#"["\\ud800"#, false),
            (r#"["\u00e4"#, false),
            (r#"["a"#, false),
            ("", false),
        ] {
            let error = complete(copy(json.as_bytes())).expect_err("not JSON").to_string();
            assert_eq!(error.contains("half of a surrogate pair"), is_half, "{json}: {error}");
            assert_eq!(error.contains("end of file"), !is_half, "{json}: {error}");
        }
        // With more bytes behind the half, the parser has a text of its own.
        let error = complete(copy(br#"["\ud800","and more"]"#)).expect_err("not JSON").to_string();
        assert!(error.contains("surrogate"), "{error}");
    }

    #[test]
    fn a_long_text_yields() {
        let json = format!("[{}]", vec!["1"; 10_000].join(","));
        let mut copied = std::pin::pin!(copy(json.as_bytes()));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut pending = 0;
        let output = loop {
            match std::future::Future::poll(copied.as_mut(), &mut cx) {
                std::task::Poll::Ready(output) => break output,
                std::task::Poll::Pending => pending += 1,
            }
            assert!(pending < 100);
        };
        assert_eq!((output.expect("JSON"), pending), (json.clone(), 10_003 / 1024));
    }

    #[test]
    fn words_keep_their_bounds() {
        let mut words = Words::default();
        assert!(words.is_empty() && words.get(0).is_none());
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|word| words.push(word));
        assert_eq!(words.push_scalar(&JsonEvent::String("base64:/w==".into())), Some(()));
        assert_eq!(words.iter().collect::<Vec<_>>(), [&b"a"[..], b"", b"bc", b"\xff"]);
        assert_eq!(words.range(1..3).collect::<Vec<_>>(), [&b""[..], b"bc"]);
        assert_eq!((words.len(), words.get(2), words.get(4)), (4, Some(&b"bc"[..]), None));
        assert_eq!(words.push_scalar(&JsonEvent::Null), None);
    }

    proptest! {
        /// The reader accepts the texts that serde_json accepts, with the same values.
        #[test]
        fn events_are_those_of_another_parser(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "[", "]", "{", "}", ",", ":", "\"a\"", "\"\\u00e4\\n\"", "\"\\ud83d\\ude00\"", "1", "-0.5e+3", "1e",
                    "true", "null", " ", "\n", "nul", "\"", "\\", "0", ".",
                ]),
                0..12,
            )
        ) {
            let json = parts.concat();
            let copied = complete(copy(json.as_bytes())).ok();
            let parsed: Option<Value> = serde_json::from_str(&json).ok();
            prop_assert_eq!(copied.is_some(), parsed.is_some(), "{}", &json);
            if let (Some(copied), Some(parsed)) = (copied, parsed) {
                prop_assert_eq!(serde_json::from_str::<Value>(&copied).ok(), Some(parsed));
            }
        }
    }
}
