//! HyperLogLog: an estimate of the number of distinct elements, from 16,384 registers of 6 bits, with a standard
//! error of 0.81 %.
//!
//! The value is a string in one of redis-server's two representations, so both servers can exchange values byte for
//! byte. This module has pure functions on that string: [`new`], [`add`], [`count`], [`merge_into`], and what
//! PFDEBUG shows. Keys and replies are handled by the commands.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `HYLL` |
//! | 1 | representation: 0 dense, 1 sparse |
//! | 3 | unused |
//! | 8 | cached cardinality, little-endian; the top bit means that it is stale |
//! | 12288 | dense: registers of 6 bits, the first one in the low bits of the first byte |
//! | | sparse: runs of registers, see [`sparse`] |

mod sparse;

pub use sparse::RegisterRun;

/// Number of registers of a HyperLogLog.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// Highest value of a register.
pub const REGISTER_MAX: u8 = (1 << REGISTER_BITS) - 1;
/// Number of bytes of a dense value.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Bits of an element's hash that choose the register.
const INDEX_BITS: u32 = 14;
/// The other bits of an element's hash. A register counts their trailing zeros.
const RUN_BITS: u32 = 64 - INDEX_BITS;
const REGISTER_BITS: usize = 6;
const HEADER_BYTES: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const CARDINALITY: std::ops::Range<usize> = 8..16;
/// Flag in the last byte of the cached cardinality: the cardinality is stale.
const STALE: u8 = 0x80;
/// 0.5 / ln 2: the constant of the estimator in the limit of many registers.
const ALPHA: f64 = 0.721_347_520_444_481_7;
/// Seed of the hash, which is equal in every redis-server.
const SEED: u64 = 0xadc8_3b19;

/// Registers, one per byte, for a count over several values.
pub type Registers = Box<[u8; REGISTERS]>;

/// The string has the header of a HyperLogLog, but has too few or too many registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// The representation of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// Dense: every register is stored.
    Dense,
    /// Sparse: runs of equal registers are stored.
    Sparse,
}

/// An empty HyperLogLog, in the sparse representation.
pub fn new() -> Vec<u8> {
    let mut value = Vec::with_capacity(HEADER_BYTES + 2);
    value.extend_from_slice(MAGIC);
    value.push(SPARSE);
    value.resize(HEADER_BYTES, 0);
    sparse::push_zeros(&mut value, REGISTERS);
    value
}

/// The representation of a string. `None` when it is not a HyperLogLog.
pub fn form(value: &[u8]) -> Option<Representation> {
    if value.len() < HEADER_BYTES || !value.starts_with(MAGIC) {
        return None;
    }
    match value[MAGIC.len()] {
        DENSE if value.len() == DENSE_BYTES => Some(Representation::Dense),
        SPARSE => Some(Representation::Sparse),
        _ => None,
    }
}

/// Adds an element. Returns true when a register was raised. A sparse value that would become longer than
/// `sparse_bytes_max` is made dense.
///
/// # Errors
/// Fails if the value is corrupted. The value does not change then.
///
/// # Panics
/// Panics if [`form`] returns `None` for the value.
pub fn add(value: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupted> {
    let (index, run) = register_of(element);
    raise(value, index, run, sparse_bytes_max)
}

/// True when adding the element would raise a register of this dense value.
///
/// # Panics
/// Panics if the value is not dense.
pub fn raises(value: &[u8], element: &[u8]) -> bool {
    let (index, run) = register_of(element);
    register_at(value, index) < run
}

/// Adds an element to a dense value, in place.
///
/// # Panics
/// Panics if the value is not dense.
pub fn add_dense(value: &mut [u8], element: &[u8]) {
    let (index, run) = register_of(element);
    if register_at(value, index) < run {
        set_register(value, index, run);
        invalidate(value);
    }
}

/// The estimated number of distinct elements. True: it was computed; false: it was cached in the value.
///
/// # Errors
/// Fails if the value is corrupted.
///
/// # Panics
/// Panics if [`form`] returns `None` for the value.
pub fn count(value: &[u8]) -> Result<(u64, bool), Corrupted> {
    if value[CARDINALITY.end - 1] & STALE == 0 {
        let cached = value[CARDINALITY].try_into().expect("eight bytes");
        return Ok((u64::from_le_bytes(cached), false));
    }
    let mut histogram = [0; 64];
    match form(value) {
        Some(Representation::Dense) => {
            dense(value).for_each(|register| histogram[usize::from(register)] += 1)
        }
        _ => {
            for run in sparse::runs(&value[HEADER_BYTES..]) {
                let run = run?;
                histogram[usize::from(run.register)] += run.len;
            }
        }
    }
    Ok((estimate(&histogram), true))
}

/// Stores the computed cardinality in the header of the value.
///
/// # Panics
/// Panics if the string is shorter than a header.
pub fn cache(value: &mut [u8], cardinality: u64) {
    value[CARDINALITY].copy_from_slice(&cardinality.to_le_bytes());
}

/// Marks the cached cardinality as stale.
///
/// # Panics
/// Panics if the string is shorter than a header.
pub fn invalidate(value: &mut [u8]) {
    value[CARDINALITY.end - 1] |= STALE;
}

/// An array of registers that are all 0.
pub fn registers() -> Registers {
    vec![0; REGISTERS].into_boxed_slice().try_into().expect("the length of the array")
}

/// Raises each of `registers` to the corresponding register of `value`, if that one is higher.
///
/// # Errors
/// Fails if the value is corrupted.
///
/// # Panics
/// Panics if [`form`] returns `None` for the value.
pub fn merge_into(registers: &mut Registers, value: &[u8]) -> Result<(), Corrupted> {
    if form(value) == Some(Representation::Dense) {
        let (triples, _) = value[HEADER_BYTES..DENSE_BYTES].as_chunks::<3>();
        for (mine, triple) in registers.as_chunks_mut::<4>().0.iter_mut().zip(triples) {
            let others = unpack(triple);
            (0..4).for_each(|i| mine[i] = mine[i].max(others[i]));
        }
        return Ok(());
    }
    let mut at = 0;
    for run in sparse::runs(&value[HEADER_BYTES..]) {
        let run = run?;
        if run.register > 0 {
            registers[at..at + run.len].iter_mut().for_each(|mine| *mine = (*mine).max(run.register));
        }
        at += run.len;
    }
    Ok(())
}

/// The estimated number of distinct elements over all values that were merged into `registers`.
pub fn count_of(registers: &Registers) -> u64 {
    let mut histogram = [0; 64];
    registers.iter().for_each(|register| histogram[usize::from(*register & REGISTER_MAX)] += 1);
    estimate(&histogram)
}

/// Raises each register of `value` to the corresponding one of `registers`, and marks the cached cardinality as
/// stale.
///
/// # Errors
/// Fails if the value is corrupted.
///
/// # Panics
/// Panics if [`form`] returns `None` for the value.
pub fn raise_to(
    value: &mut Vec<u8>,
    registers: &Registers,
    sparse_bytes_max: usize,
) -> Result<(), Corrupted> {
    for (index, register) in registers.iter().enumerate().filter(|(_, register)| **register > 0) {
        raise(value, index, *register, sparse_bytes_max)?;
    }
    invalidate(value);
    Ok(())
}

/// Makes the value dense. Returns true when it was sparse.
///
/// # Errors
/// Fails if the value is corrupted. The value does not change then.
///
/// # Panics
/// Panics if [`form`] returns `None` for the value.
pub fn make_dense(value: &mut Vec<u8>) -> Result<bool, Corrupted> {
    if form(value) == Some(Representation::Dense) {
        return Ok(false);
    }
    let mut new = vec![0; DENSE_BYTES];
    new[..HEADER_BYTES].copy_from_slice(&value[..HEADER_BYTES]);
    new[MAGIC.len()] = DENSE;
    let mut at = 0;
    for run in sparse::runs(&value[HEADER_BYTES..]) {
        let run = run?;
        if run.register > 0 {
            (at..at + run.len).for_each(|index| set_register(&mut new, index, run.register));
        }
        at += run.len;
    }
    *value = new;
    Ok(true)
}

/// The registers of a dense value, in order.
///
/// # Panics
/// Panics if the value is not dense.
pub fn dense(value: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let (triples, _) = value[HEADER_BYTES..DENSE_BYTES].as_chunks::<3>();
    triples.iter().flat_map(unpack)
}
fn unpack([a, b, c]: &[u8; 3]) -> [u8; 4] {
    let bits = u32::from_le_bytes([*a, *b, *c, 0]);
    [0, 6, 12, 18].map(|shift| (bits >> shift) as u8 & REGISTER_MAX)
}

/// The runs of a sparse value as they are stored. Also works for a corrupted value.
///
/// # Panics
/// Panics if the string is shorter than a header.
pub fn runs(value: &[u8]) -> impl Iterator<Item = RegisterRun> + '_ {
    sparse::any_runs(&value[HEADER_BYTES..])
}

/// Raises one register of a value.
fn raise(
    value: &mut Vec<u8>,
    index: usize,
    register: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupted> {
    if form(value) == Some(Representation::Sparse) {
        match sparse::raise(value, index, register, sparse_bytes_max)? {
            sparse::Raised::No => return Ok(false),
            sparse::Raised::Yes => {
                invalidate(value);
                return Ok(true);
            }
            sparse::Raised::NoRoom => {
                make_dense(value)?;
            }
        }
    }
    if register_at(value, index) >= register {
        return Ok(false);
    }
    set_register(value, index, register);
    invalidate(value);
    Ok(true)
}

/// A register of a dense value.
fn register_at(value: &[u8], index: usize) -> u8 {
    let (byte, shift) = (HEADER_BYTES + index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let next = value.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([value[byte], next]) >> shift) as u8 & REGISTER_MAX
}
fn set_register(value: &mut [u8], index: usize, register: u8) {
    let (byte, shift) = (HEADER_BYTES + index * REGISTER_BITS / 8, index * REGISTER_BITS % 8);
    let next = value.get(byte + 1).copied().unwrap_or(0);
    let mask = u16::from(REGISTER_MAX) << shift;
    let bits = u16::from_le_bytes([value[byte], next]) & !mask | u16::from(register) << shift;
    let [low, high] = bits.to_le_bytes();
    value[byte] = low;
    // The last register ends with the last byte of the value, so a register may have no next byte.
    if let Some(next) = value.get_mut(byte + 1) {
        *next = high;
    }
}

/// The index of the register for an element, and the value to which the element raises it: one more than the number
/// of trailing zeros in the other bits of its hash.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let run = (hash >> INDEX_BITS | 1 << RUN_BITS).trailing_zeros() + 1;
    (hash as usize % REGISTERS, run as u8)
}

/// The hash function MurmurHash64A.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

/// Estimates the number of elements from the histogram of register values, by Ertl's estimator ("New cardinality
/// estimation algorithms for HyperLogLog sketches", 2017). The estimator needs no correction tables.
fn estimate(histogram: &[usize; 64]) -> u64 {
    let m = REGISTERS as f64;
    let q = RUN_BITS as usize;
    let mut z = m * tau((m - histogram[q + 1] as f64) / m);
    for number in (1..=q).rev() {
        z = (z + histogram[number] as f64) * 0.5;
    }
    z += m * sigma(histogram[0] as f64 / m);
    (ALPHA * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests;
