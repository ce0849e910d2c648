//! How vectors are read straight from pages: a type for each element that has a fast path.
//!
//! A block is what shares a scale: in a tile of keys, that of each of its sixteen tokens side by side.

use crate::simd::ops::{Isa, LANES};

/// An element, or a block of some, and how sixteen numbers of it become a vector.
pub(crate) trait Lines: Copy {
    /// Elements of a block; whole vectors.
    const LEN: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Sixteen numbers without their scales.
    type Packed: Copy;
    /// The vectors of a block, behind as many scales as it has.
    fn vectors(block: &[u8], scales: usize) -> &[Self::Packed];
    /// A vector; scales are what [`scales`](Self::scales) or [`scale`](Self::scale) gave.
    fn read<S: Isa>(isa: S, packed: &Self::Packed, scales: S::V) -> S::V;
    /// The scales of a block of a tile of keys, one for each token; anything where there are none.
    #[inline(always)]
    fn scales<S: Isa>(isa: S, block: &[u8]) -> S::V {
        let _ = block;
        isa.splat(0.0)
    }
    /// The scale of a block of values.
    #[inline(always)]
    fn scale<S: Isa>(isa: S, block: &[u8]) -> S::V {
        let _ = block;
        isa.splat(0.0)
    }
}

/// Elements of so many bytes without scales, and what of [`Isa`] reads them.
macro_rules! plain {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $read:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        impl Lines for $name {
            const LEN: usize = LANES;
            const BYTES: usize = $bytes * LANES;
            type Packed = [u8; $bytes * LANES];
            #[inline(always)]
            fn vectors(block: &[u8], _: usize) -> &[Self::Packed] {
                block.as_chunks().0
            }
            #[inline(always)]
            fn read<S: Isa>(isa: S, packed: &Self::Packed, _: S::V) -> S::V {
                isa.$read(packed)
            }
        }
    };
}

plain!(
    /// Single precision.
    Singles, 4, singles
);
plain!(
    /// Half precision.
    Halves, 2, halves
);
plain!(
    /// bf16.
    Brains, 2, brains
);

/// Q8_0: a scale in half precision and 32 quants.
#[derive(Clone, Copy)]
pub(crate) struct Q8;

/// Bytes of a scale of Q8_0.
const SCALE: usize = 2;

impl Lines for Q8 {
    const LEN: usize = 32;
    const BYTES: usize = SCALE + 32;
    type Packed = [u8; LANES];
    #[inline(always)]
    fn vectors(block: &[u8], scales: usize) -> &[Self::Packed] {
        block.get(SCALE * scales..).unwrap_or_default().as_chunks().0
    }
    #[inline(always)]
    fn read<S: Isa>(isa: S, packed: &Self::Packed, scales: S::V) -> S::V {
        isa.mul(isa.bytes(packed), scales)
    }
    #[inline(always)]
    fn scales<S: Isa>(isa: S, block: &[u8]) -> S::V {
        isa.halves(block.first_chunk().unwrap_or(&[0; SCALE * LANES]))
    }
    #[inline(always)]
    fn scale<S: Isa>(isa: S, block: &[u8]) -> S::V {
        isa.half(*block.first_chunk().unwrap_or(&[0; SCALE]))
    }
}
