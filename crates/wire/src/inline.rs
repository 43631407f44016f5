//! Inline requests: splits one line into arguments like redis-server.
//!
//! White space separates words. Inside a word, a vertical tab and a form feed are ordinary bytes. `"..."` supports
//! `\n \r \t \b \a`, `\xHH`, and `\` before any other byte; `'...'` supports only `\'`. White space or the end of
//! the line must follow a closing quote.

use crate::args::Argv;
use crate::resp::ProtocolError;
use strand_chain::Chain;

/// Consumes a line of `line_len` bytes and its line feed from `input`. Appends its words to `argv`.
pub(crate) fn take_line(input: &mut Chain, line_len: usize, argv: &mut Argv) -> Result<(), ProtocolError> {
    let split = if input.front().len() >= line_len {
        split_line(without_cr(&input.front()[..line_len]), argv)
    } else {
        let mut line = vec![0; line_len];
        let whole = input.peek(&mut line);
        debug_assert!(whole, "the caller found the line feed");
        split_line(without_cr(&line), argv)
    };
    input.advance(line_len + 1);
    split.ok_or_else(|| ProtocolError::new("unbalanced quotes in request"))
}

/// The words of a line that a person typed; `None` when a quote is unbalanced.
pub fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut argv = Argv::new();
    split_line(line, &mut argv)?;
    Some(argv.args().iter().map(<[u8]>::to_vec).collect())
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// C's isspace in the "C" locale.
fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

/// Appends the words of `line`; `None` when a quote is not closed or is closed inside a word.
fn split_line(line: &[u8], argv: &mut Argv) -> Option<()> {
    let mut rest = line;
    loop {
        while let [b, tail @ ..] = rest
            && is_space(*b)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(());
        }
        let start = argv.position();
        rest = take_word(rest, argv)?;
        argv.push_span(start, argv.position() - start);
    }
}

/// Appends one word. Returns what follows the word in the line.
fn take_word<'a>(mut rest: &'a [u8], argv: &mut Argv) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return Some(rest),
            [b'"', tail @ ..] => return take_double_quoted(tail, argv),
            [b'\'', tail @ ..] => return take_single_quoted(tail, argv),
            [b' ' | b'\t' | b'\n' | b'\r', ..] => return Some(rest),
            [b, tail @ ..] => {
                argv.append(&[*b]);
                tail
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], argv: &mut Argv) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                argv.append(&[hex(*high) << 4 | hex(*low)]);
                tail
            }
            [b'\\', b, tail @ ..] => {
                let meant = match b {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                argv.append(&[meant]);
                tail
            }
            [b'"', tail @ ..] => return closed(tail),
            [b, tail @ ..] => {
                argv.append(&[*b]);
                tail
            }
        }
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], argv: &mut Argv) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\\', b'\'', tail @ ..] => {
                argv.append(b"'");
                tail
            }
            [b'\'', tail @ ..] => return closed(tail),
            [b, tail @ ..] => {
                argv.append(&[*b]);
                tail
            }
        }
    }
}

/// What follows a closing quote, which must end its word. `None` when the word continues after the quote.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|b| is_space(*b)).then_some(rest)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
