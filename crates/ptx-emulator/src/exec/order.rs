//! The order in which blocks begin: a permutation drawn from a seed, computed and not stored.
//!
//! Four rounds of a Feistel network over the next power of four, walked until the number falls inside: grids of 2³¹ blocks cost as little as
//! small ones.

/// A permutation of `0..len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    len: u64,
    half: u32,
    keys: [u64; 4],
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Order {
    /// The permutation of a seed; seed 0 is the natural order.
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        let mut keys = [0; 4];
        for (round, key) in keys.iter_mut().enumerate() {
            *key = if seed == 0 { 0 } else { mix(seed.wrapping_mul(4).wrapping_add(round as u64)) | 1 };
        }
        Self { len, half: bits.div_ceil(2).max(1), keys }
    }

    /// The `position`-th number.
    pub(crate) fn at(&self, position: u64) -> u64 {
        if self.keys[0] == 0 {
            return position;
        }
        let mask = (1u64 << self.half) - 1;
        let mut x = position;
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            x = left << self.half | right;
            if x < self.len {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn every_block_comes_once() {
        for len in [1u64, 2, 3, 17, 64, 1000] {
            for seed in [0, 1, 7] {
                let order = Order::new(len, seed);
                let mut all: Vec<u64> = (0..len).map(|i| order.at(i)).collect();
                all.sort_unstable();
                assert!(all.iter().copied().eq(0..len), "{len} blocks, seed {seed}");
            }
        }
        let order = Order::new(1000, 7);
        assert!((0..1000).any(|i| order.at(i) != i), "another order");
    }
}
