//! [`padding`]: commands of an exact length that change nothing.
//!
//! If a thread panics after its transaction took a position and before it wrote the bytes, the stream has a hole.
//! Strand and redis-server expect commands when they load the append-only file. So a command that changes nothing
//! fills the hole.

/// Commands without arguments, of 14, 17 and 18 bytes. A command with an argument has at least 19 bytes, and the
/// shortest transaction has 17. redis-server runs all of these commands when it loads a file.
const PLAIN: [&[u8]; 3] = [b"*1\r\n$4\r\nPING\r\n", b"*1\r\n$7\r\nUNWATCH\r\n", b"*1\r\n$8\r\nLASTSAVE\r\n"];
/// The first bytes of two commands with one argument, which may have any length.
const WITH_ARGUMENT: [&[u8]; 2] = [b"*2\r\n$4\r\nPING\r\n", b"*2\r\n$3\r\nGET\r\n"];

/// One command of exactly `len` bytes that changes nothing. The shortest transaction has 17 bytes (FLUSHDB). For a
/// shorter `len`, returns newlines, except that 14 bytes are a PING.
pub fn padding(len: usize) -> Vec<u8> {
    if let Some(plain) = PLAIN.iter().find(|plain| plain.len() == len) {
        return plain.to_vec();
    }
    // When the argument's length gets one more decimal digit, the first command cannot have one certain total length.
    // The second command can, because its name has another length.
    for begin in WITH_ARGUMENT {
        let Some(room) = len.checked_sub(begin.len()) else { continue };
        for digits in 1..=20 {
            let Some(argument) = room.checked_sub(b"$\r\n\r\n".len() + digits) else { break };
            if argument.to_string().len() == digits {
                let mut bytes = [begin, format!("${argument}\r\n").as_bytes()].concat();
                bytes.resize(len - 2, b'-');
                bytes.extend(b"\r\n");
                return bytes;
            }
        }
    }
    vec![b'\n'; len]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of arguments, if `bytes` are exactly one command. Otherwise `None`.
    fn arguments(mut bytes: &[u8]) -> Option<usize> {
        fn number(bytes: &mut &[u8], mark: u8) -> Option<usize> {
            let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
            let number = std::str::from_utf8(bytes[..end].strip_prefix(&[mark])?).ok()?.parse().ok()?;
            *bytes = &bytes[end + 2..];
            Some(number)
        }
        let arguments = number(&mut bytes, b'*')?;
        for _ in 0..arguments {
            let len = number(&mut bytes, b'$')?;
            bytes = bytes.get(len..)?.strip_prefix(b"\r\n")?;
        }
        bytes.is_empty().then_some(arguments)
    }

    #[test]
    fn padding_of_any_length_is_one_command() {
        for len in (17..3_000).chain(9_990..10_100).chain(100_000..100_100).chain([10 << 20]) {
            let bytes = padding(len);
            assert_eq!(bytes.len(), len);
            assert!(arguments(&bytes).is_some(), "{len}: {}", bytes.escape_ascii());
        }
        assert_eq!(padding(5), b"\n\n\n\n\n");
    }
}
