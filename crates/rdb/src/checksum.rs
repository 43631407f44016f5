//! CRC-64 with Redis's parameters ("Jones"). `crc-fast` multiplies without carries where the processor can.

use crc_fast::{CrcAlgorithm::Crc64Redis, Digest, checksum};

/// Computes the checksum of bytes that are given in pieces.
#[derive(Clone)]
pub struct Crc64(Digest);

impl Crc64 {
    /// Starts a checksum. The checksum of no bytes is zero.
    pub fn new() -> Crc64 {
        Crc64(Digest::new(Crc64Redis))
    }
    /// Computes the checksum of one piece.
    pub fn of(bytes: &[u8]) -> u64 {
        checksum(Crc64Redis, bytes)
    }
    /// Adds `bytes` to the checksum.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
    /// The checksum of the bytes so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl Default for Crc64 {
    fn default() -> Crc64 {
        Crc64::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_check_value() {
        assert_eq!(Crc64::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        let mut pieces = Crc64::new();
        for byte in b"123456789" {
            pieces.update(std::slice::from_ref(byte));
        }
        assert_eq!(pieces.value(), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(Crc64::new().value(), 0);
    }
}
