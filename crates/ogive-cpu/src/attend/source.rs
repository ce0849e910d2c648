//! Where attention reads keys and values: the pages of a cache, or tensors laid end to end.

use super::softmax::CHUNK;
use crate::{
    cache::{Element, Pages, Rows},
    ops::read,
    simd::ops::{Isa, LANES},
};
use ogive_backend::BlockTable;
use ogive_tensor::{Result, Tensor};
use std::{
    ops::Range,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

/// Keys and values that a call has for itself: a thread may read them after it.
pub(super) trait Kept: Send + Sync + 'static {
    /// How they are read.
    type Source<'a>: Source;
    /// For as long as they are read.
    fn source(&self) -> Self::Source<'_>;
}

/// Keys and values of all spans. Tokens are those of one span, and within one tile of sixteen.
pub(super) trait Source: Sync {
    /// Keys of `tokens`, side by side: `tile` is `[k_dim][16]`, token `t` in column `t % 16`.
    fn keys<S: Isa>(
        &self,
        isa: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        tile: &mut [f32],
        temp: &mut Vec<f32>,
    );
    /// Values of `tokens`: token `t` begins at row `t % 16` of `rows`, `[16][stride]`, and has `dim` elements.
    fn values<S: Isa>(
        &self,
        isa: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        dim: usize,
        rows: &mut [f32],
        temp: &mut Vec<f32>,
    );
    /// The element, if [`tiles`](Self::tiles) are there for heads whose keys and values have so many elements.
    fn in_vectors(&self, dims: [usize; 2]) -> Option<Element> {
        let _ = dims;
        None
    }
    /// Keys and values of a head as they are kept, of some tokens of one chunk.
    #[inline(always)]
    fn tiles(&self, span: usize, head: usize, tokens: Range<usize>, dims: [usize; 2]) -> Tiles<'_> {
        let _ = (span, head, tokens, dims);
        Tiles::NONE
    }
}

/// Tiles of a chunk.
pub(super) struct Tiles<'a> {
    n: usize,
    keys: [&'a [u8]; CHUNK / LANES],
    values: [Rows<'a>; CHUNK / LANES],
}

impl<'a> Tiles<'a> {
    pub(super) const NONE: Self =
        Self { n: 0, keys: [&[]; CHUNK / LANES], values: [Rows::NONE; CHUNK / LANES] };

    /// Of keys and values in order, as many as a chunk has.
    #[inline(always)]
    pub(super) fn new(tiles: impl Iterator<Item = (&'a [u8], Rows<'a>)>) -> Self {
        let mut all = Self::NONE;
        for (i, (keys, values)) in tiles.enumerate().take(CHUNK / LANES) {
            (all.keys[i], all.values[i], all.n) = (keys, values, i + 1);
        }
        all
    }

    /// Of all tokens of each tile.
    pub(super) fn keys(&self) -> &[&'a [u8]] {
        &self.keys[..self.n]
    }

    /// Of the tokens that were asked for, tile by tile.
    pub(super) fn values(&self) -> &[Rows<'a>] {
        &self.values[..self.n]
    }
}

/// A layer of the cache.
pub(super) struct Layer {
    pages: Arc<RwLock<Pages>>,
    spans: Vec<Span>,
    /// Tokens of a block.
    block_len: usize,
    /// Whether values are the first elements of the keys.
    latent: bool,
}

/// Where the tokens lie that some query of a span sees.
struct Span {
    seen: Range<usize>,
    /// The place of the first token of each block with such tokens.
    blocks: Vec<usize>,
}

impl Layer {
    /// `seen` are the tokens of each span that some query sees; all must still be there.
    pub(super) fn new(
        lock: &Arc<RwLock<Pages>>,
        pages: &Pages,
        tables: &[&BlockTable],
        seen: &[Range<usize>],
        latent: bool,
    ) -> Result<Self> {
        let block_len = pages.block_len();
        let mut spans = Vec::with_capacity(seen.len());
        for (table, seen) in tables.iter().zip(seen) {
            let seen = if seen.is_empty() { 0..0 } else { seen.clone() };
            let blocks = (seen.start / block_len..seen.end.div_ceil(block_len)).map(|block| {
                let t = seen.start.max(block * block_len);
                let place = pages.place(table, t)?.ok_or_else(|| {
                    let why = format!("token {t} is looked at, but its block was given back");
                    ogive_tensor::Error::invalid("attend_cache", why)
                })?;
                Ok(place - t % block_len)
            });
            let blocks = blocks.collect::<Result<_>>()?;
            spans.push(Span { seen, blocks });
        }
        Ok(Self { pages: Arc::clone(lock), spans, block_len, latent })
    }

    /// The place of a token that is seen.
    #[inline(always)]
    fn place(&self, span: usize, t: usize) -> usize {
        let Span { seen, blocks } = &self.spans[span];
        blocks[t / self.block_len - seen.start / self.block_len] + t % self.block_len
    }

    /// Those of `tokens` that are seen.
    #[inline(always)]
    fn known(&self, span: usize, tokens: Range<usize>) -> Range<usize> {
        let seen = &self.spans[span].seen;
        tokens.start.max(seen.start)..tokens.end.min(seen.end)
    }
}

impl Kept for Layer {
    type Source<'a> = Paged<'a>;
    fn source(&self) -> Paged<'_> {
        // The call saw that nobody failed while writing. If somebody has since, the call is over, and nobody reads its result.
        Paged { pages: self.pages.read().unwrap_or_else(PoisonError::into_inner), layer: self }
    }
}

/// A layer while it is read.
pub(super) struct Paged<'a> {
    pages: RwLockReadGuard<'a, Pages>,
    layer: &'a Layer,
}

impl Paged<'_> {
    /// The places of `tokens`, of one tile, the first ones of those that are given.
    #[inline(always)]
    fn places(&self, span: usize, tokens: Range<usize>) -> [usize; LANES] {
        let mut places = [0; LANES];
        for (place, t) in places.iter_mut().zip(tokens) {
            *place = self.layer.place(span, t);
        }
        places
    }

    /// Keys of a head in the tile that begins with token `t`, if some of it is known.
    #[inline(always)]
    fn key_tile(&self, span: usize, t: usize, piece: &Range<usize>) -> &[u8] {
        let mut known = self.layer.known(span, t..t + LANES);
        let tile = known.next().and_then(|t| self.pages.key_tile(self.layer.place(span, t), piece.clone()));
        tile.unwrap_or_default()
    }

    /// Values of a head of those of `tokens`, of one tile, that are known.
    #[inline(always)]
    fn value_rows(&self, span: usize, tokens: Range<usize>, piece: &Range<usize>) -> Rows<'_> {
        let known = self.layer.known(span, tokens);
        if known.is_empty() {
            return Rows::NONE;
        }
        let place = self.layer.place(span, known.start);
        self.pages.value_rows(place, known.len(), piece.clone()).unwrap_or(Rows::NONE)
    }
}

impl Source for Paged<'_> {
    fn in_vectors(&self, dims: [usize; 2]) -> Option<Element> {
        self.pages.in_vectors(dims).filter(|_| !self.layer.latent)
    }

    #[inline(always)]
    fn tiles(&self, span: usize, head: usize, tokens: Range<usize>, dims: [usize; 2]) -> Tiles<'_> {
        let [key, value] = self.pages.pieces(head, dims);
        let first = tokens.start / LANES * LANES;
        Tiles::new((first..tokens.end).step_by(LANES).map(|t| {
            let of_tile = t.max(tokens.start)..tokens.end.min(t + LANES);
            (self.key_tile(span, t, &key), self.value_rows(span, of_tile, &value))
        }))
    }

    #[inline(always)]
    fn keys<S: Isa>(
        &self,
        isa: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        tile: &mut [f32],
        temp: &mut Vec<f32>,
    ) {
        let dim = tile.len() / LANES;
        let column = tokens.start % LANES;
        let (places, n) = (self.places(span, tokens.clone()), tokens.len());
        self.pages.keys(isa, &places[..n], column, head * dim, tile, temp);
    }

    #[inline(always)]
    fn values<S: Isa>(
        &self,
        isa: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        dim: usize,
        rows: &mut [f32],
        temp: &mut Vec<f32>,
    ) {
        let stride = rows.len() / LANES;
        let (places, row) = (self.places(span, tokens.clone()), tokens.start % LANES);
        let places = &places[..tokens.len()];
        if self.layer.latent {
            let mut tile = vec![0.0; dim * LANES];
            self.pages.keys(isa, places, row, 0, &mut tile, temp);
            for (d, column) in tile.chunks_exact(LANES).enumerate() {
                for (t, v) in column.iter().enumerate() {
                    rows[t * stride + d] = *v;
                }
            }
            return;
        }
        for (out, place) in rows.chunks_exact_mut(stride).skip(row).zip(places) {
            self.pages.values(isa, *place, head * dim, &mut out[..dim], temp);
        }
    }
}

/// Tensors with a row for each token of each context.
pub(super) struct Laid {
    /// `[contexts, kv_heads * k_dim]` and `[contexts, kv_heads * v_dim]`
    pub(super) kv: [Tensor; 2],
    /// Elements of a row of each.
    pub(super) widths: [usize; 2],
    /// The row at which each span's context begins.
    pub(super) first: Vec<usize>,
}

impl Kept for Laid {
    type Source<'a> = EndToEnd<'a>;
    fn source(&self) -> EndToEnd<'_> {
        // They are this backend's, as the call saw.
        let [k, v] = self.kv.each_ref().map(|x| read("attend", x).unwrap_or_default());
        EndToEnd { k, v, widths: self.widths, first: &self.first }
    }
}

/// The same as slices.
pub(super) struct EndToEnd<'a> {
    k: &'a [f32],
    v: &'a [f32],
    widths: [usize; 2],
    first: &'a [usize],
}

impl EndToEnd<'_> {
    /// A token's key of a head of `dim` elements.
    #[inline(always)]
    pub(super) fn key(&self, span: usize, head: usize, dim: usize, t: usize) -> &[f32] {
        &self.k[(self.first[span] + t) * self.widths[0] + head * dim..][..dim]
    }

    /// Its value.
    #[inline(always)]
    pub(super) fn value(&self, span: usize, head: usize, dim: usize, t: usize) -> &[f32] {
        &self.v[(self.first[span] + t) * self.widths[1] + head * dim..][..dim]
    }
}

impl Source for EndToEnd<'_> {
    #[inline(always)]
    fn keys<S: Isa>(
        &self,
        _: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        tile: &mut [f32],
        _: &mut Vec<f32>,
    ) {
        let dim = tile.len() / LANES;
        for t in tokens {
            let key = self.key(span, head, dim, t);
            for (column, v) in tile.chunks_exact_mut(LANES).map(|c| &mut c[t % LANES]).zip(key) {
                *column = *v;
            }
        }
    }

    #[inline(always)]
    fn values<S: Isa>(
        &self,
        _: S,
        span: usize,
        head: usize,
        tokens: Range<usize>,
        dim: usize,
        rows: &mut [f32],
        _: &mut Vec<f32>,
    ) {
        let stride = rows.len() / LANES;
        for t in tokens {
            let value = self.value(span, head, dim, t);
            rows[t % LANES * stride..][..dim].copy_from_slice(value);
        }
    }
}
