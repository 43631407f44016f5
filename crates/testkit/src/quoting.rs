//! Command lines in redis-cli's syntax: words, `"..."` with escapes, `'...'`.

/// Why a line is not a list of arguments.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QuotingError {
    /// A quote in the line is not closed.
    #[error("a quote is not closed: {0}")]
    Unbalanced(String),
    /// The line ends after a backslash.
    #[error("the line ends after a backslash: expected a character")]
    Backslash,
    /// A `\\x` is not followed by two hexadecimal digits.
    #[error("expected two hexadecimal digits after \\x")]
    Hex,
}

/// Splits a line into arguments.
///
/// # Errors
/// When a quote or an escape is incomplete.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, QuotingError> {
    let unbalanced = || QuotingError::Unbalanced(line.into());
    let mut out = Vec::new();
    let mut bytes = line.bytes().peekable();
    loop {
        while bytes.peek().is_some_and(u8::is_ascii_whitespace) {
            bytes.next();
        }
        let Some(&first) = bytes.peek() else { return Ok(out) };
        let mut word = Vec::new();
        match first {
            b'"' => {
                bytes.next();
                loop {
                    match bytes.next().ok_or_else(unbalanced)? {
                        b'"' => break,
                        b'\\' => match bytes.next().ok_or(QuotingError::Backslash)? {
                            b'n' => word.push(b'\n'),
                            b'r' => word.push(b'\r'),
                            b't' => word.push(b'\t'),
                            b'x' => {
                                let mut hex = || {
                                    bytes
                                        .next()
                                        .and_then(|b| (b as char).to_digit(16))
                                        .ok_or(QuotingError::Hex)
                                };
                                word.push((hex()? * 16 + hex()?) as u8);
                            }
                            other => word.push(other),
                        },
                        other => word.push(other),
                    }
                }
            }
            b'\'' => {
                bytes.next();
                loop {
                    match bytes.next().ok_or_else(unbalanced)? {
                        b'\'' => break,
                        other => word.push(other),
                    }
                }
            }
            _ => {
                while let Some(b) = bytes.next_if(|b| !b.is_ascii_whitespace()) {
                    word.push(b);
                }
            }
        }
        out.push(word);
    }
}

/// Writes a command as a line for [`split`]. Failed tests print such lines.
pub fn join(args: &[Vec<u8>]) -> String {
    let quote = |a: &Vec<u8>| {
        let plain =
            !a.is_empty() && a.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'\\'));
        if plain {
            return String::from_utf8_lossy(a).into_owned();
        }
        let inner: String = a
            .iter()
            .map(|b| match b {
                b'"' | b'\\' => format!("\\{}", *b as char),
                b' '..=b'~' => (*b as char).to_string(),
                _ => format!("\\x{b:02x}"),
            })
            .collect();
        format!("\"{inner}\"")
    };
    args.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_line_splits_back() {
        let args =
            vec![b"SET".to_vec(), b"a b\"c\\".to_vec(), vec![0, 255, b'\n'], Vec::new(), b"it's".to_vec()];
        assert_eq!(split(&join(&args)).expect("balanced"), args);
    }

    #[test]
    fn an_unclosed_quote_is_an_error() {
        assert!(split("SET \"a").is_err());
        assert!(split("SET 'a").is_err());
    }
}
