//! Where attention reads keys and values: the pages of a cache, or tensors laid end to end.

use crate::{
    cache::Pages,
    simd::ops::{Isa, LANES},
};
use ogive_backend::BlockTable;
use ogive_tensor::Result;
use std::ops::Range;

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
    /// Asks for keys of `k_dim` and values of `v_dim` elements of `tokens`, which will be read soon and may be far away. What there is
    /// not of them is left out.
    #[inline(always)]
    fn ask<S: Isa>(&self, isa: S, span: usize, head: usize, tokens: Range<usize>, dims: [usize; 2]) {
        let _ = (isa, span, head, tokens, dims);
    }
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
}

/// Bytes of a line of the cache; where lines are longer, some are asked for twice.
const LINE: usize = 64;

/// A layer of the cache.
pub(super) struct Paged<'a> {
    pages: &'a Pages,
    /// For each span, where its tokens lie; what no query sees may be anything.
    places: Vec<Vec<usize>>,
    /// First token that `places` knows.
    first: Vec<usize>,
    /// Whether values are the first elements of the keys.
    latent: bool,
}

impl<'a> Paged<'a> {
    /// `seen` are the tokens of each span that some query sees; all must still be there.
    pub(super) fn new(
        pages: &'a Pages,
        tables: &[&BlockTable],
        seen: &[Range<usize>],
        latent: bool,
    ) -> Result<Self> {
        let mut places = Vec::with_capacity(seen.len());
        for (table, seen) in tables.iter().zip(seen) {
            let of_span = seen.clone().map(|t| {
                pages.place(table, t)?.ok_or_else(|| {
                    let why = format!("token {t} is looked at, but its block was given back");
                    ogive_tensor::Error::invalid("attend_cache", why)
                })
            });
            places.push(of_span.collect::<Result<Vec<_>>>()?);
        }
        Ok(Self { pages, places, first: seen.iter().map(|s| s.start).collect(), latent })
    }

    #[inline(always)]
    fn places(&self, span: usize, tokens: Range<usize>) -> &[usize] {
        let first = self.first[span];
        &self.places[span][tokens.start - first..tokens.end - first]
    }
}

impl Source for Paged<'_> {
    #[inline(always)]
    fn ask<S: Isa>(&self, isa: S, span: usize, head: usize, tokens: Range<usize>, dims: [usize; 2]) {
        let (first, known) = (self.first[span], &self.places[span]);
        let (from, to) =
            (tokens.start.saturating_sub(first), known.len().min(tokens.end.saturating_sub(first)));
        let Some(places) = known.get(from..to) else { return };
        let [key, value] = self.pages.pieces(head, dims);
        let ask = |piece: Option<&[u8]>| {
            piece.unwrap_or_default().iter().step_by(LINE).for_each(|byte| isa.ask(byte));
        };
        if let Some(place) = places.first() {
            ask(self.pages.key_tile(*place, key));
        }
        if !self.latent {
            places.iter().for_each(|place| ask(self.pages.value_row(*place, value.clone())));
        }
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
        let places = self.places(span, tokens);
        self.pages.keys(isa, places, column, head * dim, tile, temp);
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
        if self.latent {
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
pub(super) struct Rows<'a> {
    /// `[contexts, kv_heads * k_dim]`
    pub(super) k: &'a [f32],
    /// `[contexts, kv_heads * v_dim]`
    pub(super) v: &'a [f32],
    /// Elements of a row of each.
    pub(super) widths: [usize; 2],
    /// The row at which each span's context begins.
    pub(super) first: Vec<usize>,
}

impl Source for Rows<'_> {
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
            let key = &self.k[(self.first[span] + t) * self.widths[0] + head * dim..][..dim];
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
            let value = &self.v[(self.first[span] + t) * self.widths[1] + head * dim..][..dim];
            rows[t % LANES * stride..][..dim].copy_from_slice(value);
        }
    }
}
