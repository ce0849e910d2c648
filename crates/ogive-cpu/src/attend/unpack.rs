//! Keys and values of a chunk in single precision, where many blocks of queries use them: read once by the conversions that every
//! block would pay for, they are read by all at the pace of the multipliers. The numbers are the same, so the results are.

use super::{softmax::CHUNK, source::Tiles};
use crate::{
    cache::{Lines, Rows},
    simd::{
        Path,
        ops::{Isa, Kernel, LANES, run},
    },
};
use std::marker::PhantomData;

/// Bytes of a number.
const BYTES: usize = size_of::<f32>();

/// Room for a chunk.
pub(super) struct Unpacked {
    /// Elements of a key and of a value.
    dims: [usize; 2],
    /// `[tiles][k_dim][LANES]`
    keys: Vec<u8>,
    /// `[tiles][LANES][v_dim]`
    values: Vec<u8>,
}

impl Unpacked {
    /// For keys and values of so many elements.
    pub(super) fn new(dims: [usize; 2]) -> Self {
        let [keys, values] = dims.map(|dim| vec![0; CHUNK * dim * BYTES]);
        Self { dims, keys, values }
    }

    /// Unpacks tiles.
    pub(super) fn fill<L: Lines>(&mut self, path: Path, from: &Tiles<'_>) -> Tiles<'_> {
        let bytes = self.dims.map(|dim| LANES * dim * BYTES);
        let (keys, values) = (&mut self.keys, &mut self.values);
        let element = PhantomData::<L>;
        run(path, Unpack { from, keys, values, bytes, element });
        let tiles = from.keys().iter().zip(from.values());
        let tiles = tiles.zip(self.keys.chunks_exact(bytes[0]).zip(self.values.chunks_exact(bytes[1])));
        Tiles::new(tiles.map(|((_, rows), (keys, values))| {
            (keys, Rows::end_to_end(&values[..bytes[1] / LANES * rows.len()], rows.len()))
        }))
    }
}

struct Unpack<'a, L> {
    from: &'a Tiles<'a>,
    keys: &'a mut [u8],
    values: &'a mut [u8],
    /// Of a tile of each.
    bytes: [usize; 2],
    element: PhantomData<L>,
}

impl<L: Lines> Kernel for Unpack<'_, L> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let [keys, values] = self.bytes;
        for (from, to) in self.from.keys().iter().zip(self.keys.chunks_exact_mut(keys)) {
            let blocks = from.chunks_exact(L::BYTES * LANES).zip(to.chunks_exact_mut(L::LEN * LANES * BYTES));
            for (block, to) in blocks {
                vectors::<S, L>(isa, L::vectors(block, LANES), L::scales(isa, block), to);
            }
        }
        for (rows, to) in self.from.values().iter().zip(self.values.chunks_exact_mut(values)) {
            for (from, to) in rows.iter().zip(to.chunks_exact_mut(values / LANES)) {
                for (block, to) in from.chunks_exact(L::BYTES).zip(to.chunks_exact_mut(L::LEN * BYTES)) {
                    vectors::<S, L>(isa, L::vectors(block, 1), L::scale(isa, block), to);
                }
            }
        }
    }
}

/// Vectors of a block with the same scales.
#[inline(always)]
fn vectors<S: Isa, L: Lines>(isa: S, from: &[L::Packed], scales: S::V, to: &mut [u8]) {
    for (from, to) in from.iter().zip(to.as_chunks_mut().0) {
        isa.put_singles(L::read(isa, from, scales), to);
    }
}
