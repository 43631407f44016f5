//! restic's authenticated encryption ("sealing"): AES-256 in counter mode, and Poly1305 with a nonce made by AES-128.
//!
//! A sealed piece has 16 bytes of initialization vector, the ciphertext, and 16 bytes of authentication tag. The
//! repository's key is sealed in a file of the folder `keys`. scrypt derives the key for that file from a password.

use aes::cipher::{Block, BlockEncrypt, KeyInit, KeyIvInit, StreamCipher};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use poly1305::Poly1305;
use serde::Deserialize;
use std::io;

/// Number of bytes that sealing adds.
pub(super) const SEAL_BYTES: usize = IV_BYTES + TAG_BYTES;
const IV_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Maximum number of bytes of memory for the key derivation of one password. A key file says how much is needed.
const KDF_BYTES_MAX: u64 = 1 << 30;
/// Maximum work for the key derivation of one password, in passes over its memory.
const KDF_PASSES_MAX: u32 = 64;

/// A key of the repository: encrypts with AES-256 and authenticates with Poly1305-AES.
#[derive(Clone)]
pub(super) struct Key {
    encrypt: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
}

/// A file of the folder `keys`.
#[derive(Deserialize)]
struct KeyFile {
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    data: String,
    salt: String,
}

/// The key that is sealed in a key file.
#[derive(Deserialize)]
struct Sealed {
    mac: Mac,
    encrypt: String,
}

#[derive(Deserialize)]
struct Mac {
    k: String,
    r: String,
}

impl Key {
    /// Decrypts the repository's key in a key file. `None` when the password is not the password of this file.
    ///
    /// # Errors
    /// When the file is damaged, or its key derivation needs too much memory or work.
    pub(super) fn unlock(file: &[u8], password: &[u8]) -> io::Result<Option<Key>> {
        let file: KeyFile = serde_json::from_slice(file).map_err(invalid_key_file)?;
        if file.kdf != "scrypt" {
            return Err(invalid_key_file(format!(
                "its key derivation is {:?}, expected \"scrypt\"",
                file.kdf
            )));
        }
        let memory = u128::from(file.n) * u128::from(file.r) * 128;
        if !file.n.is_power_of_two() || memory > u128::from(KDF_BYTES_MAX) || file.p > KDF_PASSES_MAX {
            let (n, p) = (file.n, file.p);
            return Err(invalid_key_file(format!(
                "its scrypt parameters N={n} and p={p} need {memory} bytes of memory: expected N to be a power of two, \
                 at most {KDF_BYTES_MAX} bytes, and p to be at most {KDF_PASSES_MAX}"
            )));
        }
        let log_n = u8::try_from(file.n.trailing_zeros()).unwrap_or(u8::MAX);
        let params = scrypt::Params::new(log_n, file.r, file.p, 64).map_err(invalid_key_file)?;
        let salt = STANDARD.decode(&file.salt).map_err(invalid_key_file)?;
        let mut derived = [0; 64];
        scrypt::scrypt(password, &salt, &params, &mut derived).map_err(invalid_key_file)?;
        let password_key =
            Key::of(&derived[..32], &derived[32..48], &derived[48..]).expect("32, 16 and 16 bytes");
        let Some(bytes) = password_key.open(&STANDARD.decode(&file.data).map_err(invalid_key_file)?) else {
            return Ok(None);
        };
        let sealed: Sealed = serde_json::from_slice(&bytes).map_err(invalid_key_file)?;
        let part = |text: &str| STANDARD.decode(text).map_err(invalid_key_file);
        let key = Key::of(&part(&sealed.encrypt)?, &part(&sealed.mac.k)?, &part(&sealed.mac.r)?);
        key.map(Some).ok_or_else(|| invalid_key_file("its parts do not have 32, 16 and 16 bytes"))
    }

    fn of(encrypt: &[u8], mac_k: &[u8], mac_r: &[u8]) -> Option<Key> {
        Some(Key {
            encrypt: encrypt.try_into().ok()?,
            mac_k: mac_k.try_into().ok()?,
            mac_r: mac_r.try_into().ok()?,
        })
    }

    /// Decrypts a sealed piece. `None` when the piece was not sealed with this key, or was changed.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (iv, rest) = sealed.split_first_chunk::<IV_BYTES>()?;
        let (ciphertext, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        if self.tag(iv, ciphertext) != *tag {
            return None;
        }
        let mut bytes = ciphertext.to_vec();
        let mut cipher = ctr::Ctr128BE::<aes::Aes256>::new((&self.encrypt).into(), iv.into());
        cipher.apply_keystream(&mut bytes);
        Some(bytes)
    }

    fn tag(&self, nonce: &[u8; IV_BYTES], ciphertext: &[u8]) -> [u8; TAG_BYTES] {
        let mut block = Block::<aes::Aes128>::from(*nonce);
        aes::Aes128::new((&self.mac_k).into()).encrypt_block(&mut block);
        let mut key = [0; 32];
        key[..16].copy_from_slice(&self.mac_r);
        key[16..].copy_from_slice(&block);
        Poly1305::new((&key).into()).compute_unpadded(ciphertext).into()
    }
}

fn invalid_key_file(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a key of the repository cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poly1305_aes_matches_its_published_vector() {
        // The first example in appendix B of the paper that describes Poly1305-AES.
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
        };
        let k = hex("ec074c835580741701425b623235add6");
        let r = hex("851fc40c3467ac0be05cc20404f3f700");
        let nonce: [u8; 16] = hex("fb447350c4e868c52ac3275cf9d4327e").try_into().unwrap();
        let key = Key::of(&[0; 32], &k, &r).unwrap();
        assert_eq!(key.tag(&nonce, &hex("f3f6")).to_vec(), hex("f4c633c3044fc145f84f335cb81953de"));
    }

    #[test]
    fn unauthenticated_bytes_are_refused() {
        let key = Key { encrypt: [1; 32], mac_k: [2; 16], mac_r: [3; 16] };
        for len in [0, 1, 31, 32, 100] {
            assert!(key.open(&vec![0; len]).is_none(), "{len}");
        }
        for bad in [
            "",
            "{}",
            r#"{"kdf":"x","N":2,"r":1,"p":1,"data":"","salt":""}"#,
            r#"{"kdf":"scrypt","N":3,"r":1,"p":1,"data":"","salt":""}"#,
            r#"{"kdf":"scrypt","N":4611686018427387904,"r":8,"p":1,"data":"","salt":""}"#,
            r#"{"kdf":"scrypt","N":2,"r":1,"p":1,"data":"","salt":"-"}"#,
        ] {
            assert!(Key::unlock(bad.as_bytes(), b"").is_err(), "{bad}");
        }
        let unlocked = Key::unlock(br#"{"kdf":"scrypt","N":2,"r":1,"p":1,"data":"","salt":""}"#, b"x");
        assert!(unlocked.unwrap().is_none());
    }
}
