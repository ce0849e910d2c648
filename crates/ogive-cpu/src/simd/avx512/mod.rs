//! AVX-512 with VNNI: packed products, where a model spends its time.
//!
//! Sums within a block are exact, so the bits are those of AVX2 whatever the width. One register holds four codes of each of
//! sixteen rows, and one instruction multiplies them with four broadcast activations: [`stream`] for a few tokens, [`many`]
//! with rows unpacked beforehand. Weights that lie as the file has them are laid in strips on the way for many tokens, and
//! for few are read 64 codes at a time, or as AVX2 with VNNI reads them. Dense rows for many tokens take sixteen rows at once.

pub(super) mod book;
mod book_panel;
mod book_stream;
pub(super) mod columns;
mod dense;
mod few;
mod float8;
mod many;
mod pairs;
pub(super) mod panel;
mod stream;
pub(super) mod strip;

use super::avx2::{self, DENSE_FROM, codes, dense_tiles, panel::Lanes, put_all, rows, rows_of, vnni};
use crate::{
    linear::{CODED, Dense, FEW, Job, Packed, SLICE, STRIP, Tile, block_len, pack},
    pool::Stripe,
    weight::Kernel,
};
use panel::{Both, Panel, put_strip};
use std::{cell::RefCell, ops::Range};

/// From so many tokens on it pays to lay rows in strips on the way, by measurement (docs/EXPERIMENTS.md).
pub(super) fn laid_from(kernel: Kernel) -> usize {
    match kernel {
        Kernel::Packed(Packed::Iq4Xs) => 4,
        Kernel::Packed(Packed::Q2K | Packed::Q4K) => 6,
        Kernel::Packed(Packed::Q3K) => 7,
        Kernel::Packed(Packed::Q5K | Packed::Iq4Nl | Packed::Nvfp4 | Packed::Tq2 | Packed::Coded)
        | Kernel::Coded(_) => 8,
        Kernel::Packed(Packed::Q8_0) => 12,
        Kernel::Packed(Packed::Q6K) => 20,
        Kernel::Packed(Packed::Q4_0 | Packed::Mxfp4) => 24,
        _ => 32,
    }
}

/// Up to how many tokens stream through strips.
pub(super) fn streams(kernel: Kernel) -> usize {
    match kernel {
        // Each tile of tokens looks tables up anew.
        Kernel::Coded(_) => 8,
        _ => FEW,
    }
}

/// What a thread keeps from run to run.
#[derive(Default)]
struct Wide {
    panel: Panel,
    /// For each panel of the stripe those of each token.
    sums: Vec<Both<f32>>,
    /// Two strips of a weight that does not lie so.
    strips: Vec<u8>,
}

thread_local! {
    static WIDE: RefCell<Wide> = RefCell::default();
}

/// Fills a stripe of the result.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    if let (Kernel::Dense(kind), Some(side)) = (job.kernel(), job.w.side()) {
        return columns::stripe(job, kind, side, out);
    }
    let format = match job.kernel() {
        Kernel::Packed(format) => format,
        Kernel::Float8 if job.strip(0).is_some() => return float8::stripe(job, out),
        Kernel::Decoded | Kernel::Float8 | Kernel::Dense(_) if job.input.n() < DENSE_FROM => {
            return avx2::stripe::<{ vnni::NONE }>(job, out);
        }
        Kernel::Tiled => return crate::linear::scalar::stripe(job, out), // AMX has them, and its twin
        Kernel::Coded(book) => return book_stream::stripe(job, book, out), // others are unpacked before
        Kernel::Decoded | Kernel::Float8 => {
            return dense_many(job, Dense::F32, out, |r, row| job.decode_row(r, row));
        }
        Kernel::Dense(kind) => {
            return dense_many(job, kind, out, |r, row| avx2::dense::decode(kind, job.row(r), row));
        }
    };
    match format {
        Packed::Q4_0 => packed::<{ codes::Q4_0 }, 18>(job, format, out),
        Packed::Q4_1 => packed::<{ codes::Q4_1 }, 20>(job, format, out),
        Packed::Q5_0 => packed::<{ codes::Q5_0 }, 22>(job, format, out),
        Packed::Q5_1 => packed::<{ codes::Q5_1 }, 24>(job, format, out),
        Packed::Q8_0 => packed::<{ codes::Q8_0 }, 34>(job, format, out),
        Packed::Iq4Nl => packed::<{ codes::IQ4_NL }, 18>(job, format, out),
        Packed::Mxfp4 => packed::<{ codes::MXFP4 }, 17>(job, format, out),
        Packed::Nvfp4 => packed::<{ codes::NVFP4 }, 9>(job, format, out),
        Packed::Q2K => packed::<{ codes::Q2_K }, 84>(job, format, out),
        Packed::Q3K => packed::<{ codes::Q3_K }, 110>(job, format, out),
        Packed::Q4K => packed::<{ codes::Q4_K }, 144>(job, format, out),
        Packed::Q5K => packed::<{ codes::Q5_K }, 176>(job, format, out),
        Packed::Q6K => packed::<{ codes::Q6_K }, 210>(job, format, out),
        Packed::Iq4Xs => packed::<{ codes::IQ4_XS }, 136>(job, format, out),
        Packed::Tq2 => packed::<{ codes::TQ2 }, 66>(job, format, out),
        Packed::Coded => packed::<{ codes::CODED }, CODED>(job, format, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed<const F: u8, const N: usize>(job: &Job<'_>, format: Packed, out: &mut Stripe<'_>) {
    let n = job.input.n();
    match job.strip(0) {
        Some(_) if n <= FEW => streamed::<F, N>(job, out),
        None if n < laid_from(job.kernel()) && codes::super_block(F) => packed_few::<F, N>(job, out),
        None if n < laid_from(job.kernel()) => avx2::stripe::<{ vnni::EVEX }>(job, out),
        _ => {
            let unpack = |panel: &mut Panel, strips: [&[u8]; 2]| panel.unpack::<F, N>(strips);
            packed_many::<F, N>(job, format, &unpack, out);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn streamed<const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(STRIP) {
        let Some(strip) = job.strip(first) else { return };
        let block = block_len(strip.len() / STRIP / N * strip::elements(F));
        let mut t = 0;
        for tile in job.input.tiles() {
            t += match tile.tokens {
                8 => put_lanes(out, t, first, stream::stream::<F, N, 8>(strip, tile, block)),
                7 => put_lanes(out, t, first, stream::stream::<F, N, 7>(strip, tile, block)),
                6 => put_lanes(out, t, first, stream::stream::<F, N, 6>(strip, tile, block)),
                5 => put_lanes(out, t, first, stream::stream::<F, N, 5>(strip, tile, block)),
                4 => put_lanes(out, t, first, stream::stream::<F, N, 4>(strip, tile, block)),
                3 => put_lanes(out, t, first, stream::stream::<F, N, 3>(strip, tile, block)),
                2 => put_lanes(out, t, first, stream::stream::<F, N, 2>(strip, tile, block)),
                _ => put_lanes(out, t, first, stream::stream::<F, N, 1>(strip, tile, block)),
            };
        }
    }
}

fn put_lanes<const T: usize>(out: &mut Stripe<'_>, t: usize, first: usize, values: [Lanes<f32>; T]) -> usize {
    put_all(out, t, first, values.map(|lanes| lanes.0))
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed_few<const F: u8, const N: usize>(job: &Job<'_>, out: &mut Stripe<'_>) {
    for first in (0..out.width()).step_by(avx2::few::ROWS) {
        let rows = rows(job, first, out.width());
        let x = job.input.quantised();
        let mut t = 0;
        while t < x.len() {
            t += match x[t..] {
                [ref a, ref b, ref c] => put_all(out, t, first, few::few::<F, N, 3>(rows, [a, b, c])),
                [ref a, ref b, ..] => put_all(out, t, first, few::few::<F, N, 2>(rows, [a, b])),
                [ref a, ..] => put_all(out, t, first, few::few::<F, N, 1>(rows, [a])),
                [] => 1,
            };
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn packed_many<const F: u8, const N: usize>(
    job: &Job<'_>,
    format: Packed,
    unpack: &dyn Fn(&mut Panel, [&[u8]; 2]),
    out: &mut Stripe<'_>,
) {
    let n = job.input.n();
    WIDE.with_borrow_mut(|Wide { panel, sums, strips }| {
        let panels = (0..out.width()).step_by(panel::ROWS);
        sums.resize(panels.len() * n, [Lanes([0.0; 16]); 2]);
        let row_bytes = Rows::<2>::new(job, 0, out.width()).len();
        let block = block_len(row_bytes / N * strip::elements(F));
        let slice = SLICE / strip::elements(F) * N;
        let part = |i: usize| row_bytes.min(i * slice)..row_bytes.min((i + 1) * slice);
        let slices = row_bytes.div_ceil(slice);
        for i in 0..slices {
            let tiles = job.input.slice(i);
            for (p, mut rest) in sums.chunks_exact_mut(n).take(panels.len()).enumerate() {
                let first = p * panel::ROWS;
                let rows = Rows::new(job, first, out.width());
                unpack(panel, rows.part(format, part(i), strips));
                let last = p + 1 == panels.len();
                let next = if last { (0, part(i + 1)) } else { (first + panel::ROWS, part(i)) };
                let next = strips_at(job, next, out.width());
                let mut token = 0;
                for (t, tile) in tiles.iter().enumerate() {
                    // The first one comes again with the next panel.
                    let both = [tile, &tiles[(t + 1) % tiles.len()]];
                    let now;
                    (now, rest) = rest.split_at_mut(tile.tokens);
                    if i == 0 {
                        now.fill([Lanes([0.0; 16]); 2]);
                    }
                    // A part of each row is too short for the processor to see what comes after it.
                    for strip in next {
                        let share = strip.len().div_ceil(tiles.len());
                        many::ask(strip, t * share, share);
                    }
                    match tile.tokens {
                        8 => tokens::<F, 8>(panel, both, block, now),
                        7 => tokens::<F, 7>(panel, both, block, now),
                        6 => tokens::<F, 6>(panel, both, block, now),
                        5 => tokens::<F, 5>(panel, both, block, now),
                        4 => tokens::<F, 4>(panel, both, block, now),
                        3 => tokens::<F, 3>(panel, both, block, now),
                        2 => tokens::<F, 2>(panel, both, block, now),
                        _ => tokens::<F, 1>(panel, both, block, now),
                    }
                    if i + 1 == slices {
                        for (t, both) in now.iter().enumerate() {
                            let row = &mut out.row(token + t)[first..];
                            row.chunks_mut(STRIP).zip(both).for_each(|(to, sums)| put_strip(to, &sums.0));
                        }
                    }
                    token += tile.tokens;
                }
            }
        }
    });
}

/// The bytes of a panel's strips that hold the part `range` of each row; `first` is its first row. Nothing where there are no strips.
fn strips_at<'a>(job: &'a Job<'_>, (first, range): (usize, Range<usize>), width: usize) -> [&'a [u8]; 2] {
    [first, first + STRIP].map(|row| {
        let strip = (row < width).then(|| job.strip(row)).flatten().unwrap_or_default();
        strip.get(range.start * STRIP..range.end * STRIP).unwrap_or_default()
    })
}

/// The rows of a panel: strips, or rows that are laid in strips on the way.
pub(super) enum Rows<'a, const STRIPS: usize> {
    Strips([&'a [u8]; STRIPS]),
    Rows(Box<[[&'a [u8]; STRIP]; STRIPS]>),
}

impl<'a, const STRIPS: usize> Rows<'a, STRIPS> {
    /// Those from `first` on, of a stripe of `width`. Where the stripe ends, the first strip or the last row stands in for others,
    /// and their results are dropped.
    pub(super) fn new(job: &'a Job<'_>, first: usize, width: usize) -> Self {
        let strip = |i: usize| if first + i * STRIP < width { first + i * STRIP } else { first };
        match job.strip(first) {
            Some(low) => Self::Strips(std::array::from_fn(|i| job.strip(strip(i)).unwrap_or(low))),
            None => Self::Rows(Box::new(std::array::from_fn(|i| rows(job, strip(i), width)))),
        }
    }

    /// Bytes of a row.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Strips(strips) => strips[0].len() / STRIP,
            Self::Rows(rows) => rows[0][0].len(),
        }
    }

    /// Strips of the bytes `range` of each row, whole blocks; `buffer` is for rows.
    pub(super) fn part<'b>(
        &'b self,
        format: Packed,
        range: Range<usize>,
        buffer: &'b mut Vec<u8>,
    ) -> [&'b [u8]; STRIPS] {
        match self {
            Self::Strips(strips) => strips.map(|strip| &strip[range.start * STRIP..range.end * STRIP]),
            Self::Rows(rows) => {
                let each = STRIP * range.len();
                buffer.resize(STRIPS * each, 0);
                for (strip, rows) in buffer.chunks_exact_mut(each).zip(&**rows) {
                    pack(format, &rows.map(|row| &row[range.clone()]), strip);
                }
                std::array::from_fn(|i| &buffer[i * each..][..each])
            }
        }
    }
}

/// Adds what one slice of the columns gives for the tokens of a tile, the first of two.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")]
fn tokens<const F: u8, const T: usize>(
    panel: &Panel,
    tiles: [&Tile; 2],
    block: usize,
    sums: &mut [Both<f32>],
) {
    if let Some(sums) = sums.first_chunk_mut() {
        many::many::<F, T>(panel, tiles, block, sums);
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
fn dense_many(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>, decode: impl Fn(usize, &mut [f32])) {
    let (x, len) = job.input.dense(kind);
    let n = job.input.n();
    dense_tiles(len, out.width(), decode, |first, tile| {
        let mut t = 0;
        while t < n {
            t += match n - t {
                4.. => put_all(out, t, first, dense::many(tile, rows_of::<4>(x, len, t))),
                2 | 3 => put_all(out, t, first, dense::many(tile, rows_of::<2>(x, len, t))),
                _ => put_all(out, t, first, dense::many(tile, rows_of::<1>(x, len, t))),
            };
        }
    });
}
