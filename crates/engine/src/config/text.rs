//! Configuration text: redis.conf's line syntax, command line arguments as configuration text, and CONFIG REWRITE.

/// A quote that is not closed, or whose closing quote is not followed by a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

/// Splits a line into words as redis-server does: at blanks, with `"..."` and backslash escapes, and with `'...'` and
/// only the escape `\'`. A zero byte is an ordinary byte.
///
/// # Errors
/// When the quotes do not match.
pub fn split_words(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(words);
        }
        let (word, after) = next_word(rest).ok_or(UnbalancedQuotes)?;
        words.push(word);
        rest = after;
    }
}

fn next_word(mut s: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match s {
            [] => return Some((word, s)),
            [b'"', after @ ..] => {
                s = double_quoted(after, &mut word)?;
                return ends_word(s).then_some((word, s));
            }
            [b'\'', after @ ..] => {
                s = single_quoted(after, &mut word)?;
                return ends_word(s).then_some((word, s));
            }
            [b, ..] if b.is_ascii_whitespace() => return Some((word, s)),
            [b, after @ ..] => {
                word.push(*b);
                s = after;
            }
        }
    }
}

fn ends_word(s: &[u8]) -> bool {
    s.first().is_none_or(|b| b.is_ascii_whitespace())
}

/// Reads the rest of a word after `"`. Returns the text after the closing quote.
fn double_quoted<'a>(mut s: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match s {
            [] => return None,
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |b: u8| (b as char).to_digit(16).expect("checked to be one") as u8;
                word.push(digit(*high) * 16 + digit(*low));
                s = after;
            }
            [b'\\', b, after @ ..] => {
                word.push(match b {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                s = after;
            }
            [b, after @ ..] => {
                word.push(*b);
                s = after;
            }
        }
    }
}

/// Reads the rest of a word after `'`. Returns the text after the closing quote.
fn single_quoted<'a>(mut s: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match s {
            [] => return None,
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                s = after;
            }
            [b, after @ ..] => {
                word.push(*b);
                s = after;
            }
        }
    }
}

/// A word in double quotes. [`split_words`] returns the original word.
pub fn quote(word: &[u8]) -> String {
    let mut out = String::from("\"");
    for b in word {
        match b {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(*b as char);
            }
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(*b as char),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out.push('"');
    out
}

/// A command line argument before the first option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an option: options begin with --")]
pub struct NoOption(pub String);

/// Turns command line arguments (`--port 6380 --save ''`) into configuration text as redis-server does. `--name`
/// begins a line, and the arguments after it are its words. `--save` alone means `save ""`.
///
/// # Errors
/// When an argument comes before the first option.
pub fn text_of_arguments(args: &[String]) -> Result<String, NoOption> {
    let mut text = String::new();
    // True when the next argument may begin an option. After a bare name, the next argument is the option's value
    // even if it begins with "--".
    let mut may_begin = true;
    for (i, arg) in args.iter().enumerate() {
        match arg.strip_prefix("--") {
            Some(name) if may_begin => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(name);
                let bare = split_words(name.as_bytes()).map_or(true, |w| w.len() == 1);
                may_begin = !bare;
                let last_of_line = args.get(i + 1).is_none_or(|next| next.starts_with("--"));
                if bare && last_of_line && name.eq_ignore_ascii_case("save") {
                    text.push_str(" \"\"");
                    may_begin = true;
                }
            }
            _ if text.is_empty() => return Err(NoOption(arg.clone())),
            _ => {
                text.push(' ');
                text.push_str(&quote(arg.as_bytes()));
                may_begin = true;
            }
        }
    }
    Ok(text)
}

/// The comment above the lines that CONFIG REWRITE adds.
pub const REWRITE_MARK: &str = "# Generated by CONFIG REWRITE";

/// CONFIG REWRITE: the text of the file with the current values. Comments, order and unknown lines stay. A line of an
/// option gets the option's value, and a second line of that option is removed. Options with a non-default value are
/// added. `options` is (name, former name, line, is default). An empty line removes the option's lines.
pub fn rewrite(old: &str, options: &[(&str, Option<&str>, String, bool)]) -> String {
    let mut written = vec![false; options.len()];
    let mut out = String::new();
    for line in old.lines() {
        let word = first_word(line);
        let is = |n: &str| n.eq_ignore_ascii_case(&word);
        match options.iter().position(|o| is(o.0) || o.1.is_some_and(is)) {
            Some(i) if written[i] || options[i].2.is_empty() => continue,
            Some(i) => {
                written[i] = true;
                out.push_str(&options[i].2);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    let mut marked = old.lines().any(|l| l == REWRITE_MARK);
    for (_, option) in written.iter().zip(options).filter(|(w, o)| !**w && !o.3 && !o.2.is_empty()) {
        if !std::mem::replace(&mut marked, true) {
            out.push_str(REWRITE_MARK);
            out.push('\n');
        }
        out.push_str(&option.2);
        out.push('\n');
    }
    out
}

/// The first word of a line, without its quotation marks. Empty when there is none.
pub(crate) fn first_word(line: &str) -> String {
    let word = split_words(line.as_bytes()).ok().and_then(|words| words.into_iter().next());
    String::from_utf8_lossy(&word.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let own = |w: Vec<u8>| String::from_utf8_lossy(&w).into_owned();
        Some(split_words(line.as_bytes()).ok()?.into_iter().map(own).collect())
    }

    #[test]
    fn a_line_is_split_into_words_and_quoted_words() {
        assert_eq!(words(" a  b\tc "), Some(vec!["a".into(), "b".into(), "c".into()]));
        assert_eq!(words(r#"a "b c" 'd "e'"#), Some(vec!["a".into(), "b c".into(), "d \"e".into()]));
        assert_eq!(words(r#""\x41\n\q\x4""#), Some(vec!["A\nqx4".into()]));
        assert_eq!(words(r"'it\'s'"), Some(vec!["it's".into()]));
        assert_eq!(words("\"\""), Some(vec![String::new()]));
        assert_eq!(words(""), Some(vec![]));
        assert_eq!(words("a\0 \0b \"\0\""), Some(vec!["a\0".into(), "\0b".into(), "\0".into()]));
        for broken in ["\"a", "'a", "\"a\"b", "'a'b", "\"a\\\""] {
            assert_eq!(words(broken), None, "{broken}");
        }
    }

    #[test]
    fn quoting_goes_both_ways() {
        let every: Vec<u8> = (0..=255).collect();
        assert_eq!(split_words(quote(&every).as_bytes()), Ok(vec![every]));
    }

    #[test]
    fn arguments_become_lines() {
        let text = |args: &[&str]| text_of_arguments(&args.iter().map(|a| a.to_string()).collect::<Vec<_>>());
        assert_eq!(text(&["--port", "1", "--save", ""]).unwrap(), "port \"1\"\nsave \"\"");
        assert_eq!(text(&["--save", "--port", "1"]).unwrap(), "save \"\"\nport \"1\"");
        assert_eq!(text(&["--requirepass", "--x", "--hz", "5"]).unwrap(), "requirepass \"--x\"\nhz \"5\"");
        assert_eq!(text(&["--port 5", "--hz 3"]).unwrap(), "port 5\nhz 3");
        assert!(text(&["port", "1"]).is_err());
        assert_eq!(text(&[]).unwrap(), "");
    }

    #[test]
    fn rewriting_keeps_what_it_does_not_know() {
        let options = [
            ("port", None, "port 7".to_string(), false),
            ("hz", None, "hz 10".into(), true),
            ("timeout", None, "timeout 3".into(), false),
        ];
        let once = rewrite("# mine\nPORT 1\nport 2\nother x\n", &options);
        assert_eq!(once, "# mine\nport 7\nother x\n# Generated by CONFIG REWRITE\ntimeout 3\n");
        assert_eq!(rewrite(&once, &options), once);
        // A name may be in quotation marks.
        assert_eq!(rewrite("\"Port\" 1\n'timeout' 2\n", &options), "port 7\ntimeout 3\n");
    }
}
