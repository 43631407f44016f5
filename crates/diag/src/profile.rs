//! [`Profile`]: stacks with values, written for pprof or as folded text.
//!
//! The format is `profile.proto` of pprof, which `go tool pprof` reads. Only the few necessary fields are written,
//! so no generated code is needed. Folded text has one line per stack: the frames, outermost first, and one value.
//! Flame graphs are drawn from it.

use std::collections::HashMap;
use std::fmt::Write;

/// A place in the code: one entry of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Name of the function at this place.
    pub function: String,
    /// Path of the source file; empty when unknown.
    pub file: String,
    /// Line in the source file; 0 when unknown.
    pub line: u32,
}

/// A stack, and the values measured while it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The frames of the stack, the innermost first.
    pub frames: Vec<Frame>,
    /// The measured values, one for each of [`Profile::kinds`].
    pub values: Vec<i64>,
    /// Names and values by which pprof can group samples.
    pub labels: Vec<(&'static str, String)>,
}

/// The measured stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The kinds of values that each sample has, with their units.
    pub kinds: Vec<(&'static str, &'static str)>,
    /// The samples. A stack may occur more than once.
    pub samples: Vec<Sample>,
    /// What one sample stands for on average: a kind, its unit, an amount.
    pub period: (&'static str, &'static str, i64),
    /// Start of the measurement, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Length of the measurement in nanoseconds; 0: a moment.
    pub duration_ns: i64,
}

/// Field numbers of `profile.proto`.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRINGS: u64 = 6;
    pub const TIME: u64 = 9;
    pub const DURATION: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
}

impl Profile {
    /// The profile in `profile.proto`'s encoding, not compressed.
    pub fn pprof(&self) -> Vec<u8> {
        let mut tables = Tables::default();
        // The format requires that string 0 is empty.
        tables.string("");
        let mut out = Vec::new();
        for (kind, unit) in &self.kinds {
            let bytes = tables.value_type(kind, unit);
            put_bytes(&mut out, field::SAMPLE_TYPE, &bytes);
        }
        for sample in &self.samples {
            let mut bytes = Vec::new();
            let places: Vec<u64> = sample.frames.iter().map(|frame| tables.location(frame)).collect();
            put_packed(&mut bytes, 1, places.into_iter());
            put_packed(&mut bytes, 2, sample.values.iter().map(|value| *value as u64));
            for (name, value) in &sample.labels {
                let mut label = Vec::new();
                put_number(&mut label, 1, tables.string(name));
                put_number(&mut label, 2, tables.string(value));
                put_bytes(&mut bytes, 3, &label);
            }
            put_bytes(&mut out, field::SAMPLE, &bytes);
        }
        let (kind, unit, amount) = self.period;
        let period = tables.value_type(kind, unit);
        out.extend_from_slice(&tables.encoded);
        put_number(&mut out, field::TIME, self.time_ns as u64);
        put_number(&mut out, field::DURATION, self.duration_ns as u64);
        put_bytes(&mut out, field::PERIOD_TYPE, &period);
        put_number(&mut out, field::PERIOD, amount as u64);
        for text in &tables.strings {
            put_bytes(&mut out, field::STRINGS, text.as_bytes());
        }
        out
    }
    /// One line per stack: its label values and functions, separated by `;`, then a space and the value of kind
    /// number `kind`. The largest values come first.
    pub fn folded(&self, kind: usize) -> String {
        let mut lines: HashMap<String, i64> = HashMap::new();
        for sample in &self.samples {
            let labels = sample.labels.iter().map(|(_, value)| value.as_str());
            let frames = sample.frames.iter().rev().map(|frame| frame.function.as_str());
            let words: Vec<String> =
                labels.chain(frames).map(|word| word.replace([';', '\n'], ",")).collect();
            *lines.entry(words.join(";")).or_default() += sample.values.get(kind).copied().unwrap_or(0);
        }
        let mut lines: Vec<(String, i64)> = lines.into_iter().filter(|(_, value)| *value > 0).collect();
        lines.sort_by(|(a, x), (b, y)| y.cmp(x).then(a.cmp(b)));
        let mut text = String::new();
        for (stack, value) in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{stack} {value}");
        }
        text
    }
}

/// The tables of strings, functions and locations that samples refer to by number.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    by_text: HashMap<String, u64>,
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<Frame, u64>,
    /// The encoded functions and locations.
    encoded: Vec<u8>,
}

impl Tables {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.push(text.into());
        self.by_text.insert(text.into(), number);
        number
    }
    fn value_type(&mut self, kind: &str, unit: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 1, self.string(kind));
        put_number(&mut bytes, 2, self.string(unit));
        bytes
    }
    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(number) = self.locations.get(frame) {
            return *number;
        }
        let function = self.function(&frame.function, &frame.file);
        let number = self.locations.len() as u64 + 1;
        let (mut bytes, mut line) = (Vec::new(), Vec::new());
        put_number(&mut line, 1, function);
        put_number(&mut line, 2, u64::from(frame.line));
        put_number(&mut bytes, 1, number);
        put_bytes(&mut bytes, 4, &line);
        put_bytes(&mut self.encoded, field::LOCATION, &bytes);
        self.locations.insert(frame.clone(), number);
        number
    }
    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.string(name), self.string(file));
        if let Some(number) = self.functions.get(&key) {
            return *number;
        }
        let number = self.functions.len() as u64 + 1;
        let mut bytes = Vec::new();
        put_number(&mut bytes, 1, number);
        put_number(&mut bytes, 2, key.0);
        put_number(&mut bytes, 3, key.0);
        put_number(&mut bytes, 4, key.1);
        put_bytes(&mut self.encoded, field::FUNCTION, &bytes);
        self.functions.insert(key, number);
        number
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_packed(out: &mut Vec<u8>, field: u64, numbers: impl Iterator<Item = u64>) {
    let mut packed = Vec::new();
    numbers.for_each(|number| put_varint(&mut packed, number));
    put_bytes(out, field, &packed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, line: u32) -> Frame {
        Frame { function: function.into(), file: "a.rs".into(), line }
    }

    fn profile() -> Profile {
        let sample = |names: &[&str], value| Sample {
            frames: names.iter().map(|name| frame(name, 7)).collect(),
            values: vec![1, value],
            labels: vec![("family", "lists".into())],
        };
        Profile {
            kinds: vec![("objects", "count"), ("space", "bytes")],
            samples: vec![
                sample(&["leaf", "main"], 300),
                sample(&["other;one", "main"], 5),
                sample(&["leaf", "main"], 700),
            ],
            period: ("space", "bytes", 4096),
            time_ns: 12,
            duration_ns: 0,
        }
    }

    #[test]
    fn folded_lines_are_added_up_and_sorted() {
        assert_eq!(profile().folded(1), "lists;main;leaf 1000\nlists;main;other,one 5\n");
        assert_eq!(profile().folded(0), "lists;main;leaf 2\nlists;main;other,one 1\n");
        assert_eq!(profile().folded(9), "");
    }

    /// The fields of a protobuf message, in order: number and content.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..64).step_by(7) {
                let (first, rest) = bytes.split_first().expect("a whole number");
                *bytes = rest;
                number |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            number
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let number = varint(&mut bytes);
            let value = match tag & 7 {
                2 => {
                    let (value, rest) = bytes.split_at(number as usize);
                    bytes = rest;
                    value.to_vec()
                }
                _ => number.to_le_bytes().to_vec(),
            };
            found.push((tag >> 3, value));
        }
        found
    }

    #[test]
    fn pprof_output_has_each_name_once_and_valid_references() {
        let bytes = profile().pprof();
        let all = fields(&bytes);
        let of = |number| {
            all.iter().filter(|(field, _)| *field == number).map(|(_, value)| value).collect::<Vec<_>>()
        };
        let strings: Vec<String> =
            of(field::STRINGS).iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        assert_eq!(strings[0], "");
        assert_eq!(strings.iter().filter(|text| *text == "leaf").count(), 1);
        assert_eq!((of(field::SAMPLE_TYPE).len(), of(field::SAMPLE).len()), (2, 3));
        // Three functions: leaf, other, main.
        assert_eq!((of(field::LOCATION).len(), of(field::FUNCTION).len()), (3, 3));
        let sample = fields(of(field::SAMPLE)[0]);
        assert_eq!(sample[0], (1, vec![1, 2]));
        // The varint of 300 has two bytes.
        assert_eq!(sample[1], (2, vec![1, 0xac, 0x02]));
        let name = fields(of(field::FUNCTION)[0])[1].1[0] as usize;
        assert_eq!(strings[name], "leaf");
    }
}
