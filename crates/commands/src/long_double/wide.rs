//! [`Wide`]: a natural number of any size, with the few operations that reading and printing a long double needs.

use std::cmp::Ordering;

/// Digits in base 2^32, the lowest first, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wide(Vec<u32>);

/// 10^9, the largest power of ten that fits in one digit.
const BILLION: u32 = 1_000_000_000;

impl Wide {
    /// The number with these decimal digits.
    pub(super) fn from_decimal(digits: &[u8]) -> Wide {
        let mut n = Wide(Vec::with_capacity(digits.len() / 9 + 1));
        for chunk in digits.chunks(9) {
            let value = chunk.iter().fold(0, |v, d| v * 10 + u32::from(d - b'0'));
            n.multiply_add(10u32.pow(chunk.len() as u32), value);
        }
        n
    }
    /// True when the number is 0.
    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }
    /// Number of bits, up to the highest one that is set.
    pub(super) fn bits(&self) -> u32 {
        self.0.last().map_or(0, |top| self.0.len() as u32 * 32 - top.leading_zeros())
    }
    /// Multiplies the number by 10^power.
    pub(super) fn scale_by_ten(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.multiply_add(BILLION, 0);
        }
        self.multiply_add(10u32.pow(power % 9), 0);
    }
    /// Multiplies the number by 2^n.
    pub(super) fn shift_left(&mut self, n: u32) {
        if self.is_zero() {
            return;
        }
        if !n.is_multiple_of(32) {
            self.multiply_add(1 << (n % 32), 0);
        }
        self.0.splice(0..0, std::iter::repeat_n(0, n as usize / 32));
    }
    /// Subtracts `other`, which must not be larger.
    pub(super) fn subtract(&mut self, other: &Wide) {
        let mut borrow = false;
        for (i, digit) in self.0.iter_mut().enumerate() {
            let (a, under) = digit.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (b, under_again) = a.overflowing_sub(u32::from(borrow));
            *digit = b;
            borrow = under || under_again;
        }
        debug_assert!(!borrow, "the subtrahend is not larger");
        self.trim();
    }
    /// The decimal digits; `0` for 0.
    pub(super) fn to_decimal(&self) -> String {
        let mut left = self.0.clone();
        let mut groups = Vec::new();
        while !left.is_empty() {
            let mut rest = 0u64;
            for digit in left.iter_mut().rev() {
                let n = rest << 32 | u64::from(*digit);
                *digit = (n / u64::from(BILLION)) as u32;
                rest = n % u64::from(BILLION);
            }
            groups.push(rest);
            while left.last() == Some(&0) {
                left.pop();
            }
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|g| text.push_str(&format!("{g:09}")));
        text
    }
    /// Multiplies the number by `factor`, and adds `addend`.
    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for digit in &mut self.0 {
            let n = u64::from(*digit) * u64::from(factor) + carry;
            *digit = n as u32;
            carry = n >> 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

impl From<u128> for Wide {
    fn from(n: u128) -> Wide {
        let mut wide = Wide((0..4).map(|i| (n >> (32 * i)) as u32).collect());
        wide.trim();
        wide
    }
}
impl PartialOrd for Wide {
    fn partial_cmp(&self, other: &Wide) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Wide {
    fn cmp(&self, other: &Wide) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_conversion_round_trips() {
        for text in ["0", "1", "999999999", "1000000000", "340282366920938463463374607431768211456"] {
            assert_eq!(Wide::from_decimal(text.as_bytes()).to_decimal(), text);
        }
        let mut n = Wide::from(7);
        n.scale_by_ten(40);
        assert_eq!(n.to_decimal(), format!("7{}", "0".repeat(40)));
        assert_eq!(Wide::from(1 << 70).bits(), 71);
    }

    #[test]
    fn shifts_and_subtracts_like_u128() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..500 {
            let (a, b, n) = (rng.u128(..) >> 40, rng.u128(..) >> rng.u32(40..128), rng.u32(0..40));
            let mut w = Wide::from(a);
            w.shift_left(n);
            assert_eq!(w, Wide::from(a << n));
            let (large, small) = if a > b { (a, b) } else { (b, a) };
            let mut w = Wide::from(large);
            assert!(w >= Wide::from(small));
            w.subtract(&Wide::from(small));
            assert_eq!(w, Wide::from(large - small));
        }
    }
}
