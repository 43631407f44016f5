//! [`Name`]: a record's key, inside the record when it is short.

/// Longest key that needs no allocation of its own, in bytes.
pub(crate) const INLINE_BYTES_MAX: usize = 30;

/// A key's bytes. Most keys are short: one cache line then holds all that a lookup reads of a record.
#[derive(Debug)]
pub(crate) enum Name {
    Inline { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Name>() == 32);

impl Name {
    #[inline]
    pub(crate) fn new(key: &[u8]) -> Name {
        if key.len() > INLINE_BYTES_MAX {
            return Name::Heap(key.into());
        }
        let mut bytes = [0; INLINE_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        Name::Inline { len: key.len() as u8, bytes }
    }
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Name::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Name::Heap(bytes) => bytes,
        }
    }
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Name::Inline { .. } => 0,
            Name::Heap(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_length_come_back() {
        for len in [0, 1, 16, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 500] {
            let key: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let name = Name::new(&key);
            assert_eq!(name.as_slice(), key);
            assert_eq!(name.heap_bytes() > 0, len > INLINE_BYTES_MAX);
        }
    }
}
