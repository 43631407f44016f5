//! Bytes between quotation marks, as redis-server shows them in MONITOR and redis-cli in replies.

/// Appends `bytes` between quotation marks. Bytes that are not printable are escaped: `\n`, `\x00`.
pub fn quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            other => {
                let [high, low] = [other >> 4, other & 15].map(|digit| HEX[usize::from(digit)]);
                out.extend_from_slice(&[b'\\', b'x', high, low]);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    #[test]
    fn unprintable_bytes_are_escaped() {
        let mut out = Vec::new();
        super::quoted(&mut out, b"a \"\\\n\r\t\x07\x08\0\x7f\xff");
        assert_eq!(out, br#""a \"\\\n\r\t\a\b\x00\x7f\xff""#);
    }
}
