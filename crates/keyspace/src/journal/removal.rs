//! [`Removal`]: what expiry or eviction has removed of a key, and how the journal says so.
//!
//! A key becomes DEL, and fields become HDEL. To name very many fields would hold the shard for long (about 70 ms for
//! 250,000 fields), so their removal becomes an ECHO, which redis-server runs without any effect. Its message is
//! [`EXPIRED`], a space, a time in unix milliseconds, a space, and the key: the fields of the key expired whose expiry
//! is that time or earlier. redis-server expires these fields by its own clock.

use super::Arg;
use super::effects::Encoded;

/// The first word of an ECHO that stands for the expiry of fields.
const EXPIRED: &[u8] = b"strand-fields-expired";

/// What expiry or eviction has removed of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The whole key.
    Key,
    /// These fields.
    Fields(Vec<Vec<u8>>),
    /// The fields whose expiry is this time or earlier, in unix milliseconds.
    FieldsUntil(i64),
}

impl Removal {
    /// Adds the command that says that this was removed of `key`.
    pub(super) fn encode(&self, key: &[u8], out: &mut Encoded) {
        match self {
            Removal::Key => out.command([Arg::Bytes(b"DEL"), Arg::Bytes(key)].into_iter()),
            Removal::Fields(fields) => {
                debug_assert!(!fields.is_empty(), "the caller asked for no names of fields");
                let mut args = Vec::with_capacity(2 + fields.len());
                args.extend([Arg::Bytes(b"HDEL"), Arg::Bytes(key)]);
                args.extend(fields.iter().map(|field| Arg::Bytes(field)));
                out.command(args.into_iter());
            }
            Removal::FieldsUntil(at_ms) => {
                let message = [EXPIRED, format!(" {at_ms} ").as_bytes(), key].concat();
                out.command([Arg::Bytes(b"ECHO"), Arg::Bytes(&message)].into_iter());
            }
        }
    }
}

/// The expiry of fields for which an ECHO with this message stands: the time in unix milliseconds, and the key. `None` for
/// any other ECHO.
pub fn decode_fields_expired(message: &[u8]) -> Option<(i64, &[u8])> {
    let rest = message.strip_prefix(EXPIRED)?.strip_prefix(b" ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let at_ms = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some((at_ms, &rest[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_time_and_any_key() {
        for key in [&b"hash"[..], b"", b"a b", b"\r\n\0"] {
            let mut encoded = Encoded::default();
            Removal::FieldsUntil(1_700_000_000_123).encode(key, &mut encoded);
            let head = b"*2\r\n$4\r\nECHO\r\n$";
            let rest = encoded.bytes.strip_prefix(&head[..]).expect("an ECHO");
            let from = rest.iter().position(|byte| *byte == b'\n').expect("the message's length") + 1;
            let message = rest[from..].strip_suffix(b"\r\n").expect("the end of the command");
            assert_eq!(decode_fields_expired(message), Some((1_700_000_000_123, key)));
        }
        for other in
            ["", "strand-fields-expired", "strand-fields-expired 1", "strand-fields-expired x k", "hello"]
        {
            assert_eq!(decode_fields_expired(other.as_bytes()), None, "{other}");
        }
    }
}
