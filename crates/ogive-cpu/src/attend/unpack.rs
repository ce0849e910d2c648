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
use std::{cell::Cell, marker::PhantomData};

/// Bytes of a number.
const BYTES: usize = size_of::<f32>();
/// What vectors begin at multiples of: a line of the processor's cache, so that none lies in two.
const LINE: usize = 64;

thread_local! {
    /// The room that the thread's last unit had. From the system each unit's would come as fresh pages.
    static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Room for a chunk.
pub(super) struct Unpacked {
    /// From `first` on `[tiles][k_dim][LANES]`, then `[tiles][LANES][v_dim]`, of as many tiles as a chunk has.
    room: Vec<u8>,
    first: usize,
    /// Bytes of a tile's keys, and of its values.
    tile: [usize; 2],
}

impl Unpacked {
    /// For keys and values of so many elements.
    pub(super) fn new(dims: [usize; 2]) -> Self {
        let tile = dims.map(|dim| LANES * dim * BYTES);
        let (mut room, wanted) = (KEPT.take(), CHUNK / LANES * (tile[0] + tile[1]) + LINE);
        if room.len() < wanted {
            room.resize(wanted, 0);
        }
        Self { first: room.as_ptr().align_offset(LINE).min(LINE), room, tile }
    }

    /// Unpacks tiles.
    pub(super) fn fill<L: Lines>(&mut self, path: Path, from: &Tiles<'_>) -> Tiles<'_> {
        let (tile @ [of_keys, of_values], element) = (self.tile, PhantomData::<L>);
        let (keys, values) = self.room[self.first..].split_at_mut(CHUNK / LANES * of_keys);
        run(path, Unpack { from, keys, values, tile, element });
        let tiles = keys.chunks_exact(of_keys).zip(values.chunks_exact(of_values)).zip(from.values());
        Tiles::new(tiles.map(|((keys, values), rows)| {
            let tokens = rows.len();
            (keys, Rows::end_to_end(&values[..of_values / LANES * tokens], tokens))
        }))
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        KEPT.set(std::mem::take(&mut self.room));
    }
}

struct Unpack<'a, L> {
    from: &'a Tiles<'a>,
    keys: &'a mut [u8],
    values: &'a mut [u8],
    /// [`Unpacked::tile`]
    tile: [usize; 2],
    element: PhantomData<L>,
}

impl<L: Lines> Kernel for Unpack<'_, L> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, isa: S) {
        let [keys, values] = self.tile;
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
