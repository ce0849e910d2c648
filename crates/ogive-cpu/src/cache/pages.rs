//! The pages of one layer: where keys and values lie, and how they get in and out.
//!
//! Values lie token after token, each a packed row. Keys lie in tiles of sixteen tokens with the tokens side by side
//! (`[k_dim][16]`), so that attention computes sixteen scores at once and never adds across a vector. Where blocks are
//! not whole tiles, or the element is none of the four that this file knows, keys lie like values: right, but slower.

use super::lines::{Brains, Halves, Lines, Q8, Singles};
use crate::{
    ops::SMALL,
    pool::Pool,
    simd::ops::{Isa, LANES},
};
use half::{bf16, f16, slice::HalfFloatSliceExt};
use ogive_backend::BlockTable;
use ogive_tensor::{BF16, Error, F16, F32, FEW_BITS, Format, Q8_0, Result};
use std::ops::Range;

/// What keys and values are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F16,
    BF16,
    Q8,
    Other,
}

/// One layer's keys and values.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Elements of a token's keys, all heads.
    pub(crate) k_dim: usize,
    /// Elements of a token's values, all heads.
    pub(crate) v_dim: usize,
    format: &'static Format,
    element: Element,
    /// Whether keys lie in tiles.
    tiled: bool,
    block_len: usize,
    blocks: usize,
    k: Zeroed,
    v: Zeroed,
}

/// Bytes that are zeros until they are written, and take no memory until then. In large pages where the system has them: a head's
/// part of each token is small and far from the next token's, so that with small pages each would need its own address looked
/// up.
#[derive(Debug)]
struct Zeroed {
    map: memmap2::MmapMut,
    /// A mapping has a byte at least.
    len: usize,
}

impl Zeroed {
    fn new(len: usize) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::invalid(
                "cache",
                format!("mapping {len} bytes for a layer: {e}; ask for fewer blocks or slots"),
            )
        };
        let map = memmap2::MmapMut::map_anon(len.max(1)).map_err(failed)?;
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, len })
    }
}

impl std::ops::Deref for Zeroed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

impl std::ops::DerefMut for Zeroed {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.len]
    }
}

/// Part of the values of some tokens that follow each other.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// From the part of the first on.
    bytes: &'a [u8],
    /// Bytes from one token to the next, and of a part.
    steps: [usize; 2],
    tokens: usize,
}

impl<'a> Rows<'a> {
    pub(crate) const NONE: Self = Self { bytes: &[], steps: [1, 0], tokens: 0 };

    /// Of `tokens` that lie end to end.
    pub(crate) fn end_to_end(bytes: &'a [u8], tokens: usize) -> Self {
        let each = bytes.len().checked_div(tokens).unwrap_or(0);
        Self { bytes, steps: [each.max(1), each], tokens }
    }

    /// Token by token.
    #[inline(always)]
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let [stride, part] = self.steps;
        self.bytes.chunks(stride).take(self.tokens).map(move |row| &row[..part.min(row.len())])
    }

    /// How many tokens there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.tokens
    }

    /// Bytes from one token to the next.
    #[inline(always)]
    pub(crate) fn stride(self) -> usize {
        self.steps[0]
    }

    /// What begins at byte `at` of token `i`'s.
    #[inline(always)]
    pub(crate) fn from(self, i: usize, at: usize) -> &'a [u8] {
        self.bytes.get(i * self.steps[0] + at..).unwrap_or_default()
    }
}

/// Changes the keys of a row of the step.
pub(crate) type Turn<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// Sixteen neighbouring places, and which rows of a step go there: each with its place before it.
struct Tile<'a> {
    k: &'a mut [u8],
    v: &'a mut [u8],
    rows: &'a [(usize, usize)],
    outcome: Result<()>,
}

/// Skips `skip` tiles of rows of so many bytes and takes the next off; the last may be shorter.
fn cut<'a>(rest: &mut &'a mut [u8], skip: usize, row_bytes: usize) -> &'a mut [u8] {
    let from = &mut std::mem::take(rest)[skip * LANES * row_bytes..];
    let len = (LANES * row_bytes).min(from.len());
    let tile;
    (tile, *rest) = from.split_at_mut(len);
    tile
}

fn encode(format: &Format, element: Element, x: &[f32], out: &mut [u8]) -> Result<()> {
    match element {
        Element::F32 => put(x, out, f32::to_le_bytes),
        Element::F16 => {
            // All at once, for which the crate has the processor's instructions.
            let mut halves = vec![f16::ZERO; x.len()];
            halves.convert_from_f32_slice(x);
            out.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(to, half)| *to = half.to_le_bytes());
        }
        Element::BF16 => put(x, out, |v| bf16::from_f32(v).to_le_bytes()),
        Element::Q8 | Element::Other => format.encode_row(x, out)?,
    }
    Ok(())
}

impl Pages {
    /// Zeroed pages. The caller has checked that rows are whole blocks of `format` and that the size does not overflow.
    pub(crate) fn new(
        format: &'static Format,
        block_len: usize,
        blocks: usize,
        k_dim: usize,
        v_dim: usize,
    ) -> Result<Self> {
        if format.encode.is_none() {
            let why = format!("{} can be read but not written; use f16 or q8_0", format.name);
            return Err(Error::unsupported("cache", why));
        }
        if FEW_BITS.contains(&format) {
            let why = format!("{} is for weights alone, which are packed once; use f16 or q8_0", format.name);
            return Err(Error::unsupported("cache", why));
        }
        let known =
            [(&F32, Element::F32), (&F16, Element::F16), (&BF16, Element::BF16), (&Q8_0, Element::Q8)];
        // By address: a stranger's format may have one of these names, and another decoder.
        let element = known.iter().find(|(f, _)| std::ptr::eq(*f, format)).map_or(Element::Other, |k| k.1);
        let tiled = element != Element::Other && block_len.is_multiple_of(LANES);
        let rows = blocks * block_len;
        let (k, v) =
            (Zeroed::new(rows * format.row_bytes(k_dim))?, Zeroed::new(rows * format.row_bytes(v_dim))?);
        Ok(Self { k_dim, v_dim, format, element, tiled, block_len, blocks, k, v })
    }

    /// Tokens of a block.
    pub(crate) fn block_len(&self) -> usize {
        self.block_len
    }

    /// Where token `t` of a sequence lies, counted in tokens; `None` if its block was given back.
    pub(crate) fn place(&self, table: &BlockTable, t: usize) -> Result<Option<usize>> {
        match table.block(t, self.block_len) {
            Some(block) if (block as usize) < self.blocks => {
                Ok(Some(block as usize * self.block_len + t % self.block_len))
            }
            Some(block) => {
                let why = format!("block {block} of a table is outside the {} of its group", self.blocks);
                Err(Error::invalid("cache", why))
            }
            None if t / self.block_len < table.first => Ok(None),
            None => {
                let end = (table.first + table.blocks.len()) * self.block_len;
                Err(Error::cache_full(format!("a sequence has blocks for {end} tokens and needs token {t}")))
            }
        }
    }

    /// Rounds the keys `[n, k_dim]` and values `[n, v_dim]` of `n` tokens to the element and keeps them at their places, on several threads
    /// where that pays. `turn` is given each token's row and a copy of its keys, to change before they are rounded.
    pub(crate) fn store(
        &mut self,
        pool: &Pool,
        places: &[usize],
        ks: &[f32],
        vs: Option<&[f32]>,
        turn: Option<&Turn<'_>>,
    ) -> Result<()> {
        let Self { k_dim, v_dim, format, element, tiled, .. } = *self;
        let sizes = [k_dim, v_dim].map(|dim| format.row_bytes(dim));
        let mut rows: Vec<(usize, usize)> = places.iter().copied().zip(0..).collect();
        rows.sort_by_key(|(place, _)| place / LANES); // as a rule they are in order; of two in one place the later stays
        let (mut k, mut v, mut next) = (&mut self.k[..], &mut self.v[..], 0);
        let mut tiles: Vec<Tile<'_>> = Vec::with_capacity(rows.len() / LANES + 1);
        for rows in rows.chunk_by(|a, b| a.0 / LANES == b.0 / LANES) {
            let tile = rows[0].0 / LANES;
            let skip = tile - next;
            next = tile + 1;
            let [k, v] = [cut(&mut k, skip, sizes[0]), cut(&mut v, skip, sizes[1])];
            tiles.push(Tile { k, v, rows, outcome: Ok(()) });
        }
        let fill = |tile: &mut Tile<'_>| -> Result<()> {
            let (mut packed, mut turned) = (vec![0; sizes[0].max(sizes[1])], Vec::new());
            for &(place, row) in tile.rows {
                let mut keys = &ks[row * k_dim..][..k_dim];
                if let Some(turn) = turn {
                    turned.clear();
                    turned.extend_from_slice(keys);
                    turn(row, &mut turned);
                    keys = &turned;
                }
                let (lane, packed_k) = (place % LANES, &mut packed[..sizes[0]]);
                encode(format, element, keys, packed_k)?;
                if tiled {
                    scatter(element, packed_k, tile.k, lane);
                } else {
                    tile.k[lane * sizes[0]..][..sizes[0]].copy_from_slice(packed_k);
                }
                if let Some(vs) = vs {
                    let to = &mut tile.v[lane * sizes[1]..][..sizes[1]];
                    encode(format, element, &vs[row * v_dim..][..v_dim], to)?;
                }
            }
            Ok(())
        };
        let each = if places.len() * (k_dim + v_dim) < SMALL {
            tiles.len()
        } else {
            tiles.len().div_ceil(4 * pool.threads())
        };
        // The layer is locked, and another step's attention, which has the pool, may wait for it.
        pool.chunks_unless_busy(&mut tiles, each, &|_, tiles| {
            tiles.iter_mut().for_each(|tile| tile.outcome = fill(tile));
        });
        tiles.into_iter().try_for_each(|tile| tile.outcome)
    }

    /// A token's keys, and its values into the beginning of `v`.
    pub(crate) fn load(&self, place: usize, k: &mut [f32], v: &mut [f32]) {
        let bytes = self.format.row_bytes(self.k_dim);
        if self.tiled {
            let mut row = vec![0; bytes];
            let tile = &self.k[place / LANES * LANES * bytes..][..LANES * bytes];
            gather(self.element, tile, place % LANES, &mut row);
            self.format.decode_row(&row, k);
        } else {
            self.format.decode_row(&self.k[place * bytes..][..bytes], k);
        }
        let bytes = self.format.row_bytes(self.v_dim);
        self.format.decode_row(&self.v[place * bytes..][..bytes], &mut v[..self.v_dim]);
    }

    /// Copies a block onto another.
    pub(crate) fn copy(&mut self, from: usize, to: usize) {
        for (side, dim) in [(&mut self.k, self.k_dim), (&mut self.v, self.v_dim)] {
            let n = self.block_len * self.format.row_bytes(dim);
            side.copy_within(from * n..(from + 1) * n, to * n);
        }
    }

    /// The element, if tiles of keys and rows of values can be read vector by vector for heads of so many elements of each.
    pub(crate) fn in_vectors(&self, dims: [usize; 2]) -> Option<Element> {
        let len = if self.element == Element::Q8 { Q8::LEN } else { LANES };
        (self.tiled && dims.iter().all(|dim| dim.is_multiple_of(len))).then_some(self.element)
    }

    /// Which bytes of sixteen tokens' keys in a tile, and of a token's values, belong to `head`, of so many elements each.
    pub(crate) fn pieces(&self, head: usize, [k_dim, v_dim]: [usize; 2]) -> [Range<usize>; 2] {
        let bytes = |elements: usize| elements / self.format.block_len * self.format.block_bytes;
        let piece = |dim: usize, of: usize| of * bytes(head * dim)..of * bytes((head + 1) * dim);
        [piece(k_dim, LANES), piece(v_dim, 1)]
    }

    /// That part of the tile of keys that holds `place`, if keys lie in tiles.
    #[inline(always)]
    pub(crate) fn key_tile(&self, place: usize, piece: Range<usize>) -> Option<&[u8]> {
        let start = self.tiled.then(|| place / LANES * LANES * self.format.row_bytes(self.k_dim))?;
        self.k.get(start + piece.start..start + piece.end)
    }

    /// That part of the values of the `tokens` from `place` on, which are in one block.
    #[inline(always)]
    pub(crate) fn value_rows(&self, place: usize, tokens: usize, piece: Range<usize>) -> Option<Rows<'_>> {
        let stride = self.format.row_bytes(self.v_dim);
        let bytes = self.v.get(place * stride + piece.start..(place + tokens) * stride)?;
        Some(Rows { bytes, steps: [stride, piece.len()], tokens })
    }

    /// Elements `first..` of the keys of the tokens at `places`, side by side: `tile` is `[n][16]`, token `i` in column
    /// `column + i`. Other columns may be overwritten with anything.
    ///
    /// The places are of one tile and of tokens in order.
    #[inline(always)]
    pub(crate) fn keys<S: Isa>(
        &self,
        isa: S,
        places: &[usize],
        column: usize,
        first: usize,
        tile: &mut [f32],
        temp: &mut Vec<f32>,
    ) {
        let (bytes, n) = (self.format.row_bytes(self.k_dim), tile.len() / LANES);
        if !self.tiled {
            for (i, place) in places.iter().enumerate() {
                let row = &self.k[place * bytes..][..bytes];
                temp.resize(n, 0.0);
                let mut piece = std::mem::take(temp);
                self.piece(isa, row, first, &mut piece, temp);
                for (column, v) in tile.chunks_exact_mut(LANES).map(|c| &mut c[column + i]).zip(&piece) {
                    *column = *v;
                }
                *temp = piece;
            }
            return;
        }
        let Some(place) = places.first() else { return };
        let from = &self.k[place / LANES * LANES * bytes..][..LANES * bytes];
        match self.element {
            Element::F32 => key_vectors::<S, Singles>(isa, from, first, tile),
            Element::F16 => key_vectors::<S, Halves>(isa, from, first, tile),
            Element::BF16 => key_vectors::<S, Brains>(isa, from, first, tile),
            Element::Q8 | Element::Other => key_vectors::<S, Q8>(isa, from, first, tile),
        }
    }

    /// Elements `first..` of the values of the token at `place`, as many as `out` has.
    #[inline(always)]
    pub(crate) fn values<S: Isa>(
        &self,
        isa: S,
        place: usize,
        first: usize,
        out: &mut [f32],
        temp: &mut Vec<f32>,
    ) {
        let bytes = self.format.row_bytes(self.v_dim);
        self.piece(isa, &self.v[place * bytes..][..bytes], first, out, temp);
    }

    /// Elements `first..` of a packed row.
    #[inline(always)]
    fn piece<S: Isa>(&self, isa: S, row: &[u8], first: usize, out: &mut [f32], temp: &mut Vec<f32>) {
        match self.element {
            Element::F32 => value_vectors::<S, Singles, 4>(isa, &row[first * 4..], out, f32::from_le_bytes),
            Element::F16 => {
                value_vectors::<S, Halves, 2>(isa, &row[first * 2..], out, |b| f16::from_le_bytes(b).to_f32())
            }
            Element::BF16 => value_vectors::<S, Brains, 2>(isa, &row[first * 2..], out, |b| {
                bf16::from_le_bytes(b).to_f32()
            }),
            Element::Q8 if (first % Q8::LEN, out.len() % Q8::LEN) == (0, 0) => {
                let blocks = row.chunks_exact(Q8::BYTES).skip(first / Q8::LEN);
                for (block, out) in blocks.zip(out.chunks_exact_mut(Q8::LEN)) {
                    let scale = Q8::scale(isa, block);
                    for (v, packed) in out.as_chunks_mut().0.iter_mut().zip(Q8::vectors(block, 1)) {
                        isa.store(Q8::read(isa, packed, scale), v);
                    }
                }
            }
            Element::Q8 => {
                let blocks = row.chunks_exact(Q8::BYTES).skip(first / Q8::LEN).flat_map(|block| {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    block[2..].iter().map(move |q| f32::from(*q as i8) * scale)
                });
                out.iter_mut().zip(blocks.skip(first % Q8::LEN)).for_each(|(to, v)| *to = v);
            }
            Element::Other => {
                // All blocks that the piece touches.
                let (len, size) = (self.format.block_len, self.format.block_bytes);
                let (from, to) = (first / len, (first + out.len()).div_ceil(len));
                temp.clear();
                temp.resize((to - from) * len, 0.0);
                self.format.decode_row(&row[from * size..to * size], temp);
                out.copy_from_slice(&temp[first - from * len..][..out.len()]);
            }
        }
    }
}

/// Elements `first..` of a tile of keys.
#[inline(always)]
fn key_vectors<S: Isa, L: Lines>(isa: S, from: &[u8], first: usize, tile: &mut [f32]) {
    let mut rows = tile.as_chunks_mut::<LANES>().0.iter_mut();
    let mut inner = first % L::LEN;
    // The last one is shorter where rows are no whole vectors.
    for block in from.chunks(L::BYTES * LANES).skip(first / L::LEN) {
        let scales = L::scales(isa, block);
        for (packed, row) in L::vectors(block, LANES).iter().skip(inner).zip(rows.by_ref()) {
            isa.store(L::read(isa, packed, scales), row);
        }
        inner = 0;
    }
}

/// As many elements as `out` has, of `N` bytes each; `one` is for those that fill no vector.
#[inline(always)]
fn value_vectors<S: Isa, L: Lines, const N: usize>(
    isa: S,
    row: &[u8],
    out: &mut [f32],
    one: impl Fn([u8; N]) -> f32,
) {
    let (whole, rest) = out.as_chunks_mut::<LANES>();
    let tail = &row[whole.len() * LANES * N..];
    for (v, packed) in whole.iter_mut().zip(L::vectors(row, 0)) {
        isa.store(L::read(isa, packed, isa.splat(0.0)), v);
    }
    rest.iter_mut().zip(tail.as_chunks().0).for_each(|(v, b)| *v = one(*b));
}

fn put<const N: usize>(x: &[f32], out: &mut [u8], f: impl Fn(f32) -> [u8; N]) {
    for (b, v) in out.chunks_exact_mut(N).zip(x) {
        b.copy_from_slice(&f(*v));
    }
}

/// Walks the bytes of a packed row and where each lies in a tile: `f(byte of the row, byte of the tile)`.
fn walk(element: Element, row: usize, lane: usize, mut f: impl FnMut(usize, usize)) {
    match element {
        Element::F32 => (0..row).for_each(|i| f(i, (i / 4 * LANES + lane) * 4 + i % 4)),
        Element::F16 | Element::BF16 => (0..row).for_each(|i| f(i, (i / 2 * LANES + lane) * 2 + i % 2)),
        // A block's sixteen scales, then its quants.
        Element::Q8 | Element::Other => (0..row).for_each(|i| {
            let (block, at) = (i / Q8::BYTES * Q8::BYTES * LANES, i % Q8::BYTES);
            f(i, block + if at < 2 { lane * 2 + at } else { at * LANES + lane });
        }),
    }
}

fn scatter(element: Element, row: &[u8], tile: &mut [u8], lane: usize) {
    /// Elements of `N` bytes, each in a line of sixteen.
    fn elements<const N: usize>(row: &[u8], tile: &mut [u8], lane: usize) {
        let lines = tile.as_chunks_mut::<N>().0.as_chunks_mut::<LANES>().0;
        lines.iter_mut().zip(row.as_chunks().0).for_each(|(line, element)| line[lane] = *element);
    }
    match element {
        Element::F32 => elements::<4>(row, tile, lane),
        Element::F16 | Element::BF16 => elements::<2>(row, tile, lane),
        Element::Q8 | Element::Other => {
            let blocks = tile.chunks_exact_mut(Q8::BYTES * LANES).zip(row.chunks_exact(Q8::BYTES));
            for (tile, block) in blocks {
                let ((scales, codes), (scale, block)) = (tile.split_at_mut(2 * LANES), block.split_at(2));
                scales[2 * lane..2 * lane + 2].copy_from_slice(scale);
                codes.as_chunks_mut::<LANES>().0.iter_mut().zip(block).for_each(|(line, b)| line[lane] = *b);
            }
        }
    }
}

fn gather(element: Element, tile: &[u8], lane: usize, row: &mut [u8]) {
    walk(element, row.len(), lane, |i, j| row[i] = tile[j]);
}
