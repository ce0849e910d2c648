//! The registers of one warp: a row of 32 lanes for each.
//!
//! Values of 8 to 32 bits share rows of `u32` and 64-bit values have rows of their own; a predicate is a mask. Narrow values sit in the low bits, and
//! what stands above them is unspecified: whoever reads a 16-bit register looks at 16 bits.

/// One bit for each lane.
pub(crate) type Mask = u32;

/// All 32 lanes.
pub(crate) const ALL: Mask = !0;

/// Index of a row within its kind.
pub(crate) type Slot = u32;

/// What kind of row a register has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// A predicate.
    Pred,
    /// 8, 16 or 32 bits.
    Word,
    /// 64 bits.
    Long,
}

/// A row that no cache line cuts in the middle of a vector.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Row<T>([T; 32]);

/// The register file of one warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    words: Vec<Row<u32>>,
    longs: Vec<Row<u64>>,
    preds: Vec<Mask>,
}

impl Registers {
    /// Rows for a program; everything is zero.
    pub(crate) fn new(words: u32, longs: u32, preds: u32) -> Self {
        Self {
            words: vec![Row([0; 32]); words as usize],
            longs: vec![Row([0; 32]); longs as usize],
            preds: vec![0; preds as usize],
        }
    }

    /// Zeroes the first rows of each class: the variables.
    pub(crate) fn clear(&mut self, words: u32, longs: u32, preds: u32) {
        self.words[..words as usize].fill(Row([0; 32]));
        self.longs[..longs as usize].fill(Row([0; 32]));
        self.preds[..preds as usize].fill(0);
    }

    /// The row of a word register.
    #[inline(always)]
    pub(crate) fn word(&self, slot: Slot) -> [u32; 32] {
        self.words[slot as usize].0
    }

    /// The row of a word register, where it stands.
    #[inline(always)]
    pub(crate) fn word_row(&self, slot: Slot) -> &[u32; 32] {
        &self.words[slot as usize].0
    }

    /// One lane of a word register.
    #[inline(always)]
    pub(crate) fn word_lane(&self, slot: Slot, lane: usize) -> u32 {
        self.words[slot as usize].0[lane]
    }

    /// The row of a 64-bit register.
    #[inline(always)]
    pub(crate) fn long(&self, slot: Slot) -> [u64; 32] {
        self.longs[slot as usize].0
    }

    /// The row of a 64-bit register, where it stands.
    #[inline(always)]
    pub(crate) fn long_row(&self, slot: Slot) -> &[u64; 32] {
        &self.longs[slot as usize].0
    }

    /// One lane of a 64-bit register.
    #[inline(always)]
    pub(crate) fn long_lane(&self, slot: Slot, lane: usize) -> u64 {
        self.longs[slot as usize].0[lane]
    }

    /// The lanes in which a predicate holds.
    #[inline(always)]
    pub(crate) fn pred(&self, slot: Slot) -> Mask {
        self.preds[slot as usize]
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set_word(&mut self, slot: Slot, values: &[u32; 32], mask: Mask) {
        let row = &mut self.words[slot as usize].0;
        if mask == ALL {
            *row = *values;
        } else {
            // All lanes and not those of the mask: this becomes a few blends, and the values never leave the vector registers.
            for lane in 0..32 {
                row[lane] = if mask & (1 << lane) != 0 { values[lane] } else { row[lane] };
            }
        }
    }

    /// Writes one lane.
    #[inline(always)]
    pub(crate) fn set_word_lane(&mut self, slot: Slot, lane: usize, value: u32) {
        self.words[slot as usize].0[lane] = value;
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set_long(&mut self, slot: Slot, values: &[u64; 32], mask: Mask) {
        let row = &mut self.longs[slot as usize].0;
        if mask == ALL {
            *row = *values;
        } else {
            // All lanes and not those of the mask: this becomes a few blends, and the values never leave the vector registers.
            for lane in 0..32 {
                row[lane] = if mask & (1 << lane) != 0 { values[lane] } else { row[lane] };
            }
        }
    }

    /// Writes one lane.
    #[inline(always)]
    pub(crate) fn set_long_lane(&mut self, slot: Slot, lane: usize, value: u64) {
        self.longs[slot as usize].0[lane] = value;
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub(crate) fn set_pred(&mut self, slot: Slot, values: Mask, mask: Mask) {
        let row = &mut self.preds[slot as usize];
        *row = (*row & !mask) | (values & mask);
    }
}

/// The lanes of a mask, lowest first.
#[inline(always)]
pub(crate) fn lanes(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros();
            mask &= mask - 1;
            lane as usize
        })
    })
}
