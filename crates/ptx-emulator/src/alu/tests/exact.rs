//! Numbers without rounding, to judge roundings by.
//!
//! A result is not computed a second time but judged: it must be the neighbour of the exact value that the direction asks for. The
//! exact value enters as a comparison, so that quotients and roots need no representation.

use std::cmp::Ordering;

/// `±magnitude · 2^exponent`, exact; the magnitude in words of 32 bits, lowest first.
#[derive(Clone, Debug)]
pub(super) struct Big {
    negative: bool,
    magnitude: Vec<u32>,
    exponent: i32,
}

impl Big {
    pub(super) fn new(negative: bool, magnitude: u128, exponent: i32) -> Self {
        let magnitude = (0..4).map(|at| (magnitude >> (32 * at)) as u32).collect();
        Self { negative, magnitude, exponent }
    }

    fn is_zero(&self) -> bool {
        self.magnitude.iter().all(|word| *word == 0)
    }

    /// The same value with a smaller exponent.
    fn lowered(&self, exponent: i32) -> Vec<u32> {
        let up = (self.exponent - exponent) as usize;
        let mut out = vec![0; up / 32];
        let mut carry = 0u64;
        for word in &self.magnitude {
            let shifted = u64::from(*word) << (up % 32) | carry;
            out.push(shifted as u32);
            carry = shifted >> 32;
        }
        out.push(carry as u32);
        out
    }

    pub(super) fn negate(&self) -> Self {
        Self { negative: !self.negative, ..self.clone() }
    }

    pub(super) fn mul(&self, other: &Self) -> Self {
        let mut out = vec![0u32; self.magnitude.len() + other.magnitude.len()];
        for (i, a) in self.magnitude.iter().enumerate() {
            let mut carry = 0u64;
            for (j, b) in other.magnitude.iter().enumerate() {
                let sum = u64::from(out[i + j]) + u64::from(*a) * u64::from(*b) + carry;
                out[i + j] = sum as u32;
                carry = sum >> 32;
            }
            out[i + other.magnitude.len()] = carry as u32;
        }
        Self {
            negative: self.negative != other.negative,
            magnitude: out,
            exponent: self.exponent + other.exponent,
        }
    }

    pub(super) fn add(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let (mut a, mut b) = (self.lowered(exponent), other.lowered(exponent));
        let len = a.len().max(b.len()) + 1;
        a.resize(len, 0);
        b.resize(len, 0);
        if self.negative == other.negative {
            let mut carry = 0u64;
            for (a, b) in a.iter_mut().zip(&b) {
                let sum = u64::from(*a) + u64::from(*b) + carry;
                *a = sum as u32;
                carry = sum >> 32;
            }
            return Self { negative: self.negative, magnitude: a, exponent };
        }
        let (negative, mut large, small) = match a.iter().rev().cmp(b.iter().rev()) {
            Ordering::Less => (other.negative, b, a),
            _ => (self.negative, a, b),
        };
        let mut borrow = 0i64;
        for (a, b) in large.iter_mut().zip(&small) {
            let difference = i64::from(*a) - i64::from(*b) + borrow;
            *a = difference as u32;
            borrow = difference >> 32;
        }
        Self { negative, magnitude: large, exponent }
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        let difference = self.add(&other.negate());
        match (difference.is_zero(), difference.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }

    pub(super) fn sign(&self) -> Ordering {
        self.cmp(&Self::new(false, 0, 0))
    }
}

/// A binary format, told by its two widths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) mantissa: u32,
    pub(super) exponent: u32,
}

pub(super) const F16: Shape = Shape { mantissa: 10, exponent: 5 };
pub(super) const BF16: Shape = Shape { mantissa: 7, exponent: 8 };
pub(super) const TF32: Shape = Shape { mantissa: 10, exponent: 8 };
pub(super) const F32: Shape = Shape { mantissa: 23, exponent: 8 };
pub(super) const F64: Shape = Shape { mantissa: 52, exponent: 11 };

/// A rounding by its modifier: `rn rz rm rp rna`.
pub(super) type Mode = &'static str;

impl Shape {
    pub(super) fn sign(self) -> u64 {
        1 << (self.mantissa + self.exponent)
    }

    pub(super) fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    pub(super) fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    pub(super) fn is_finite(self, bits: u64) -> bool {
        bits & (self.sign() - 1) < self.infinity()
    }

    /// Of finite bits; infinity counts as the number that would follow the largest one.
    pub(super) fn big(self, bits: u64) -> Big {
        let magnitude = bits & (self.sign() - 1);
        let field = (magnitude >> self.mantissa) as i32;
        let low = magnitude & ((1 << self.mantissa) - 1);
        let bias = (1 << (self.exponent - 1)) - 1;
        let (mantissa, field) = if field == 0 { (low, 1) } else { (low | 1 << self.mantissa, field) };
        Big::new(bits & self.sign() != 0, u128::from(mantissa), field - bias - self.mantissa as i32)
    }

    /// Whether `result` is the exact value rounded, told how the exact value compares with any other. The exact value is not zero.
    pub(super) fn rounds(
        self,
        result: u64,
        mode: Mode,
        exact: &dyn Fn(&Big) -> Ordering,
    ) -> Result<(), String> {
        if self.is_nan(result) {
            return Err("a NaN where a number was expected".into());
        }
        let zero = Big::new(false, 0, 0);
        let negative = exact(&zero) == Ordering::Less;
        if (result & self.sign() != 0) != negative {
            return Err("wrong sign".into());
        }
        let magnitude = result & (self.sign() - 1);
        let sign = if negative { self.sign() } else { 0 };
        // How the exact magnitude compares with the magnitude of a value.
        let beside = |value: &Big| if negative { exact(value).reverse() } else { exact(value) };
        let here = beside(&self.big(magnitude | sign));
        let infinite = magnitude == self.infinity();
        let below = |x: u64| beside(&self.big((x - 1) | sign));
        let above = |x: u64| beside(&self.big((x + 1) | sign));
        let towards_zero = mode == "rz" || mode == if negative { "rp" } else { "rm" };
        let good = match mode {
            "rn" | "rna" => {
                let middle = |x: u64| {
                    let sum = self.big(x | sign).add(&self.big((x + 1) | sign));
                    beside(&sum.mul(&Big::new(false, 1, -1)))
                };
                let even = magnitude & 1 == 0;
                let away = mode == "rna";
                let low = magnitude == 0
                    || match middle(magnitude - 1) {
                        Ordering::Greater => true,
                        Ordering::Equal => even || away,
                        Ordering::Less => false,
                    };
                let high = infinite
                    || match middle(magnitude) {
                        Ordering::Less => true,
                        Ordering::Equal => even && !away,
                        Ordering::Greater => false,
                    };
                low && high
            }
            _ if towards_zero => {
                // The largest number stands for everything above it.
                let last = magnitude == self.infinity() - 1;
                !infinite && here != Ordering::Less && (last || above(magnitude) == Ordering::Less)
            }
            _ => {
                let enough = infinite || here != Ordering::Greater;
                enough && magnitude > 0 && below(magnitude) == Ordering::Greater
            }
        };
        if good { Ok(()) } else { Err(format!("not the exact value rounded by .{mode}")) }
    }
}

#[test]
fn big_numbers_are_right() {
    let mut random = super::Random(7);
    for _ in 0..10_000 {
        let (x, y) = (random.next() as i32, random.next() as i32 >> (random.next() % 32));
        let big = |v: i128| Big::new(v < 0, v.unsigned_abs(), 3);
        let (a, b) = (big(i128::from(x)), big(i128::from(y)));
        assert_eq!(a.cmp(&b), x.cmp(&y));
        assert_eq!(a.add(&b).cmp(&big(i128::from(x) + i128::from(y))), Ordering::Equal);
        let product = i128::from(x) * i128::from(y);
        assert_eq!(a.mul(&b).cmp(&Big::new(product < 0, product.unsigned_abs(), 6)), Ordering::Equal);
    }
    // And floats are what the host says.
    for _ in 0..10_000 {
        let (x, y) = (f32::from_bits(random.next() as u32), f32::from_bits(random.next() as u32));
        if x.is_finite() && y.is_finite() {
            let order = F32.big(u64::from(x.to_bits())).cmp(&F32.big(u64::from(y.to_bits())));
            assert_eq!(Some(order), x.partial_cmp(&y));
        }
    }
}
