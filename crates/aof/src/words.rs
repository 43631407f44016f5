//! Splits a line into words and quotes words, like redis-server.

/// C's isspace in the "C" locale.
fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

/// The words of `line`; `None` when a quote is not closed or ends inside a word.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line);
    loop {
        rest = rest.trim_ascii_start();
        while let [b, tail @ ..] = rest
            && is_space(*b)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = take(rest, &mut word)?;
        words.push(word);
    }
}

/// Appends the first word of `rest` to `word`. Returns what follows the word.
fn take<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return Some(rest),
            [b, ..] if is_space(*b) => return Some(rest),
            [quote @ (b'"' | b'\''), tail @ ..] => {
                let behind = take_quoted(tail, *quote, word)?;
                return behind.first().is_none_or(|b| is_space(*b)).then_some(behind);
            }
            [b, tail @ ..] => {
                word.push(*b);
                tail
            }
        };
    }
}

/// Appends the text before the closing quote to `word`. Returns what follows the quote.
fn take_quoted<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [b, tail @ ..] if *b == quote => return Some(tail),
            [b'\\', b'\'', tail @ ..] if quote == b'\'' => (b'\'', tail),
            [b'\\', b'x', high, low, tail @ ..]
                if quote == b'"' && hex(*high).is_some() && hex(*low).is_some() =>
            {
                (hex(*high)? << 4 | hex(*low)?, tail)
            }
            [b'\\', escaped, tail @ ..] if quote == b'"' => (unescaped(*escaped), tail),
            [b, tail @ ..] => (*b, tail),
        };
        word.push(byte);
        rest = behind;
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn unescaped(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// `word` as it can appear in a line: quoted if it has bytes that end a word or are not printable.
pub(crate) fn quote(word: &[u8]) -> String {
    let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word.iter().all(|b| is_plain(*b)) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut out = String::from("\"");
    for byte in word {
        match byte {
            b'\\' | b'"' => out.extend(['\\', char::from(*byte)]),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            7 => out.push_str("\\a"),
            8 => out.push_str("\\b"),
            b' '..=b'~' => out.push(char::from(*byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_split_back() {
        let words: [&[u8]; 7] =
            [b"plain", b"", b"two words", b"\x00\xff\n\r\t\x07\x08", b"it's", b"\"\\", b"x.1.aof"];
        let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
        assert_eq!(split(line.join(" \t").as_bytes()).expect("words"), words);
        assert_eq!(quote(b"x.1.aof"), "x.1.aof");
        assert_eq!(split(b" 'a\\'b' \"\\x41\\q\" "), Some(vec![b"a'b".to_vec(), b"Aq".to_vec()]));
        for invalid in [&b"\"open"[..], b"'open", b"\"a\"b", b"'a'b", b"x\"a\"b"] {
            assert_eq!(split(invalid), None, "{invalid:?}");
        }
    }
}
