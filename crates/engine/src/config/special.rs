//! Values with their own syntax, each for one or two options, with redis-server's rules and texts.
//!
//! Every function takes the words of a line and returns the [`Value`] in the form of CONFIG GET.

use super::error::ValueError;
use super::value::{Value, memory, within};
use strand_keyspace::types::string::parse_int;

/// Maximum number of points of `save`. More points are an error, so that a file cannot fill the memory.
pub(super) const SAVE_POINTS_MAX: usize = 1000;
/// Levels of `log-levels`, from no line to every line.
pub(super) const LOG_LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// Classes of keyspace events that `A` stands for, in the order of CONFIG GET.
const EVENTS_OF_A: &[u8] = b"g$lshzxetd";
/// Classes that `A` does not include.
const EVENTS_BESIDE_A: &[u8] = b"nKEm";

/// `save`: pairs of seconds and changes, added to those of `before`. No word or an empty word removes all.
pub(super) fn save_points(words: &[&[u8]], before: Option<&Value>) -> Result<Value, ValueError> {
    let mut points = match before {
        Some(Value::Words(points)) => points.clone(),
        _ => Vec::new(),
    };
    if matches!(words, [] | [b""]) {
        return Ok(Value::Words(Vec::new()));
    }
    if !words.len().is_multiple_of(2) {
        return Err(ValueError::SavePoints);
    }
    if points.len() + words.len() > 2 * SAVE_POINTS_MAX {
        return Err(ValueError::TooManySavePoints);
    }
    for (i, word) in words.iter().enumerate() {
        let least = i64::from(i % 2 == 0);
        let number = parse_int(word)
            .filter(|n| (least..=i32::MAX.into()).contains(n))
            .ok_or(ValueError::SavePoints)?;
        points.push(number.to_string().into_bytes());
    }
    Ok(Value::Words(points))
}

/// `notify-keyspace-events`: letters, in redis-server's order.
pub(super) fn keyspace_events(word: &[u8]) -> Result<Value, ValueError> {
    if word.iter().any(|b| *b != b'A' && !EVENTS_OF_A.contains(b) && !EVENTS_BESIDE_A.contains(b)) {
        return Err(ValueError::EventClass);
    }
    let has = |b: &u8| word.contains(b) || (word.contains(&b'A') && EVENTS_OF_A.contains(b));
    let mut shown: Vec<u8> = match EVENTS_OF_A.iter().all(has) {
        true => b"A".to_vec(),
        false => EVENTS_OF_A.iter().copied().filter(has).collect(),
    };
    shown.extend(EVENTS_BESIDE_A.iter().filter(|b| has(b)));
    Ok(Value::Text(shown))
}

/// `log-levels`: pairs of a part of the program and a level, with commas or blanks between them.
pub(super) fn log_levels(word: &[u8]) -> Result<Value, ValueError> {
    let text = String::from_utf8_lossy(word);
    for pair in text.split([',', ' ']).filter(|pair| !pair.is_empty()) {
        let is_level = |level: &str| LOG_LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
        if !pair.split_once('=').is_some_and(|(part, level)| !part.is_empty() && is_level(level)) {
            return Err(ValueError::LogLevels);
        }
    }
    Ok(Value::Text(word.to_vec()))
}

/// `otlp-endpoint`: an address of HTTP, or the empty word.
pub(super) fn http_address(word: &[u8]) -> Result<Value, ValueError> {
    let is_address = std::str::from_utf8(word).is_ok_and(|text| http_parts(text).is_some());
    match word.is_empty() || is_address {
        true => Ok(Value::Text(word.to_vec())),
        false => Err(ValueError::NotAnHttpAddress),
    }
}

/// The parts of `http://HOST:PORT/PATH`: host with port, and the path without slashes at its end. `None` for any other
/// text.
pub fn http_parts(address: &str) -> Option<(&str, &str)> {
    let rest = address.strip_prefix("http://")?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (name, port) = host.rsplit_once(':')?;
    // The parts stand in a request, where a blank or a line end would begin something else.
    let is_plain = !address.contains(|c: char| c.is_whitespace() || c.is_control());
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    (is_plain && is_port && !name.is_empty() && !name.contains('@'))
        .then_some((host, path.trim_end_matches('/')))
}

/// `latency-tracking-info-percentiles`: numbers from 0 to 100.
pub(super) fn percentiles(words: &[&[u8]]) -> Result<Value, ValueError> {
    if matches!(words, [b""]) {
        return Ok(Value::Words(Vec::new()));
    }
    let mut shown = Vec::with_capacity(words.len());
    for word in words {
        let number =
            std::str::from_utf8(word).ok().and_then(|w| w.parse::<f64>().ok()).filter(|n| !n.is_nan());
        let number = number.ok_or(ValueError::NotAPercentile)?;
        if !(0.0..=100.0).contains(&number) {
            return Err(ValueError::PercentileOutOfRange);
        }
        shown.push(number.to_string().into_bytes());
    }
    Ok(Value::Words(shown))
}

/// `oom-score-adj-values`: three numbers.
pub(super) fn oom_scores(words: &[&[u8]]) -> Result<Value, ValueError> {
    if words.len() != 3 {
        return Err(ValueError::WordCount);
    }
    let number = |word: &&[u8]| {
        let number = parse_int(word).filter(|n| (-2000..=2000).contains(n)).ok_or(ValueError::OomScore)?;
        Ok(number.to_string().into_bytes())
    };
    Ok(Value::Words(words.iter().map(number).collect::<Result<_, ValueError>>()?))
}

/// `replicaof`: host and port, or `no one`.
pub(super) fn primary(words: &[&[u8]]) -> Result<Value, ValueError> {
    let [host, port] = words else { return Err(ValueError::WordCount) };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Value::Words(Vec::new()));
    }
    match parse_int(port).filter(|port| (0..=65535).contains(port)) {
        Some(_) => Ok(Value::Words(vec![host.to_vec(), port.to_vec()])),
        None => Err(ValueError::PrimaryPort),
    }
}

/// The words of `known` that are in `words`, in the order of `known`.
pub(super) fn flags(words: &[&[u8]], known: &'static [&'static str]) -> Result<Value, ValueError> {
    let is = |word: &[u8], flag: &str| word.eq_ignore_ascii_case(flag.as_bytes());
    if words.is_empty() || words.iter().any(|word| !known.iter().any(|flag| is(word, flag))) {
        return Err(ValueError::NotOneOf(known));
    }
    let given = |flag: &str| words.iter().any(|word| is(word, flag));
    if given("save") && given("nosave") {
        return Err(ValueError::SaveAndNoSave);
    }
    // The first word of `known` means that none of the other words is set.
    let others = known.iter().skip(1).any(|flag| given(flag));
    let shown = known.iter().enumerate().filter(|(i, flag)| given(flag) && (*i > 0 || !others));
    Ok(Value::Words(shown.map(|(_, flag)| flag.as_bytes().to_vec()).collect()))
}

/// A number of bytes, or `N%`, stored as `-N`.
pub(super) fn memory_or_percent(word: &[u8]) -> Result<Value, ValueError> {
    let Some(percent) = word.strip_suffix(b"%") else {
        let bytes = memory(word).ok_or(ValueError::NotMemoryOrPercent)?;
        return within(bytes, 0, i64::MAX);
    };
    match parse_int(percent) {
        Some(percent @ 0..=100) => Ok(Value::Number(-percent)),
        Some(101..) => Err(ValueError::PercentTooLarge),
        _ => Err(ValueError::NotMemoryOrPercent),
    }
}

/// Parses an octal number between `min` and `max`.
pub(super) fn octal(word: &[u8], min: i64, max: i64) -> Result<Value, ValueError> {
    let digits = std::str::from_utf8(word).ok().filter(|w| w.bytes().all(|b| b.is_ascii_digit()));
    let number = digits.and_then(|w| i64::from_str_radix(w, 8).ok());
    match number.ok_or(ValueError::NotOctal)? {
        n if (min..=max).contains(&n) => Ok(Value::Number(n)),
        _ => Err(ValueError::OutOfOctalRange { min, max }),
    }
}

/// The name of a file or folder in the working folder. Only `dbfilename` may be empty.
pub(super) fn file_name(option: &'static str, word: &[u8]) -> Result<Value, ValueError> {
    if word.contains(&b'/') {
        let kind = if option == "appenddirname" { "dirname" } else { "filename" };
        return Err(ValueError::IsAPath { option, kind });
    }
    if word.is_empty() && option != "dbfilename" {
        return Err(ValueError::IsEmpty(option));
    }
    Ok(Value::Text(word.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: &str = "argument must be part=level, several with commas, where a level is one of: off, error, warn, info, \
                          debug, trace";

    type Parse = fn(&[&[u8]]) -> Result<Value, ValueError>;

    #[test]
    fn they_are_read_and_shown_as_by_redis_server() {
        let cases: &[(Parse, &str, Result<&str, &str>)] = &[
            (|w| save_points(w, None), "3600 1 300 100", Ok("3600 1 300 100")),
            (|w| save_points(w, None), "300 0", Ok("300 0")),
            (|_| save_points(&[b"900"], None), "", Err("Invalid save parameters")),
            (|w| save_points(w, None), "3600 1 300", Err("Invalid save parameters")),
            (|w| save_points(w, None), "0 1", Err("Invalid save parameters")),
            (|w| save_points(w, None), "1 -1", Err("Invalid save parameters")),
            (|w| save_points(w, None), "1 x", Err("Invalid save parameters")),
            (
                |w| log_levels(w[0]),
                "strand_search=debug,strand::driver=OFF",
                Ok("strand_search=debug,strand::driver=OFF"),
            ),
            (|w| log_levels(w[0]), "strand_search", Err(LEVELS)),
            (|w| log_levels(w[0]), "a=info,=warn", Err(LEVELS)),
            (|w| log_levels(w[0]), "a=loud", Err(LEVELS)),
            (|w| http_address(w[0]), "http://[::1]:4318/otlp/", Ok("http://[::1]:4318/otlp/")),
            (|w| keyspace_events(w[0]), "KEA", Ok("AKE")),
            (|w| keyspace_events(w[0]), "KEg$lshzxetdmn", Ok("AnKEm")),
            (|w| keyspace_events(w[0]), "nxK", Ok("xnK")),
            (|w| keyspace_events(w[0]), "Kq", Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")),
            (percentiles, "50 99.9 100 0.001", Ok("50 99.9 100 0.001")),
            (percentiles, "nan", Err("Invalid latency-tracking-info-percentiles parameters")),
            (
                percentiles,
                "101",
                Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
            ),
            (oom_scores, "3 -2 2000", Ok("3 -2 2000")),
            (oom_scores, "1 2", Err("wrong number of arguments")),
            (
                oom_scores,
                "1 2 2001",
                Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000."),
            ),
            (primary, "10.0.0.1 6379", Ok("10.0.0.1 6379")),
            (primary, "NO one", Ok("")),
            (primary, "10.0.0.1", Err("wrong number of arguments")),
            (primary, "10.0.0.1 x", Err("Invalid master port")),
            (|w| flags(w, &["default", "save", "nosave", "now"]), "NOW save", Ok("save now")),
            (|w| flags(w, &["default", "now"]), "default", Ok("default")),
            (
                |w| flags(w, &["default", "now"]),
                "x",
                Err("argument(s) must be one of the following: default, now"),
            ),
            (
                |w| flags(w, &["default", "save", "nosave"]),
                "save nosave",
                Err("shutdown options SAVE and NOSAVE can't be used simultaneously"),
            ),
            (|w| octal(w[0], 0, 0o777), "8", Err("argument couldn't be parsed as an octal number")),
            (|w| octal(w[0], 0, 0o777), "+7", Err("argument couldn't be parsed as an octal number")),
            (|w| octal(w[0], 0, 0o777), "1000", Err("argument must be between 0 and 777 inclusive")),
            (|w| file_name("dbfilename", w[0]), "a/b", Err("dbfilename can't be a path, just a filename")),
            (
                |w| file_name("appenddirname", w[0]),
                "a/b",
                Err("appenddirname can't be a path, just a dirname"),
            ),
            (|w| memory_or_percent(w[0]), "101%", Err("percentage argument must be less or equal to 100")),
            (|w| memory_or_percent(w[0]), "-5", Err("argument must be a memory or percent value")),
            (|w| memory_or_percent(w[0]), "x%", Err("argument must be a memory or percent value")),
        ];
        for (parse, text, want) in cases {
            let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
            let shown = parse(&words).map_err(|error| error.to_string()).map(|value| match value {
                Value::Words(words) => String::from_utf8(words.join(&b' ')).unwrap(),
                Value::Text(text) => String::from_utf8(text).unwrap(),
                other => format!("{other:?}"),
            });
            assert_eq!(shown, want.map(String::from).map_err(String::from), "{text}");
        }
        assert_eq!(memory_or_percent(b"5%"), Ok(Value::Number(-5)));
        assert_eq!(octal(b"755", 0, 0o777), Ok(Value::Number(0o755)));
        assert_eq!(file_name("appendfilename", b""), Err(ValueError::IsEmpty("appendfilename")));
    }

    #[test]
    fn save_points_add_up_to_a_limit() {
        let first = save_points(&[b"900", b"1"], None).unwrap();
        let second = save_points(&[b"60", b"2"], Some(&first)).unwrap();
        assert_eq!(second, Value::Words(vec![b"900".into(), b"1".into(), b"60".into(), b"2".into()]));
        assert_eq!(save_points(&[b""], Some(&second)), Ok(Value::Words(vec![])));
        let many = vec![&b"1"[..]; 2 * SAVE_POINTS_MAX];
        let full = save_points(&many, None).unwrap();
        assert!(save_points(&[b"1", b"1"], Some(&full)).is_err());
    }

    #[test]
    fn an_http_address_is_a_host_with_a_port_and_perhaps_a_path() {
        assert_eq!(http_parts("http://127.0.0.1:4318"), Some(("127.0.0.1:4318", "")));
        assert_eq!(http_parts("http://[::1]:4318/otlp/"), Some(("[::1]:4318", "/otlp")));
        let bad = [
            "",
            "http://",
            "https://a:1",
            "a:1",
            "http://a",
            "http://a:b",
            "http://:1",
            "http://a:+1",
            "http://u@a:1",
            "http://a:0",
            "http://a:1/b c",
            "http://a:1/\r\nX: y",
        ];
        for bad in bad {
            assert_eq!(http_parts(bad), None, "{bad}");
        }
    }
}
