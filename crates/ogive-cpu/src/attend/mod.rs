//! Attention: cut into units, computed on all threads, merged in order.
//!
//! A unit is a few rows of one span and the heads that share a key head, so that each key is read once for all of them.
//! Where a unit would be a large part of the step's work (a short prompt after a long context, one sequence that decodes, or a long one
//! among short ones), a unit has fewer rows, or the span's context is cut into its chunks too: the first leaves more to be read, the
//! second more to be kept until it is merged, which is bounded.
//! All cuts give the same bits, since a unit merges its chunks as the caller merges units.

mod block;
mod general;
mod options;
mod softmax;
mod source;
mod tiled;
mod unit;
mod unpack;

use crate::{
    CpuBackend, Path, cache,
    ops::{by_rows, make_in, math, read},
    plan,
    simd::ops::{Isa, Kernel, run},
    spare::Values,
};
use ogive_backend::{AttnSpec, Cache, Plan, Span};
use ogive_tensor::{Error, Result, Tensor};
use options::{Extent, Options};
use softmax::{CHUNK, merge};
use source::{Kept, Laid, Layer};
use std::{ops::Range, sync::Arc};
use tiled::Tiled;
use unit::{Place, Unit};

/// Queries of a unit: enough that fetching and unpacking keys and values costs little beside using them, few enough that short prompts make
/// units for all threads, and whole blocks of six and of eight.
const QUERIES: usize = 120;
/// Fewer queries of a unit than these read keys and values too often for what they do with them, or do not fill a block.
const FEWER: [usize; 2] = [32, 8];
/// Elements that are kept of a context that is cut into its chunks, for all spans of a step.
const STATES: usize = 16 << 20;

pub(crate) fn attend(
    b: &CpuBackend,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    spec: &AttnSpec,
    plan: &Plan,
) -> Result<Tensor> {
    const AT: &str = "attend";
    let contexts = plan.batch().contexts();
    let widths = row_widths(AT, spec)?;
    for (x, width) in [(k, widths[0]), (v, widths[1])] {
        if x.shape().len() != contexts * width || x.shape().first() != contexts {
            return Err(Error::shape(AT, x.shape(), [contexts, width].into()));
        }
        read(AT, x)?;
    }
    let mut first = Vec::new();
    let mut next = 0;
    for span in &plan.batch().spans {
        first.push(next);
        next += span.context();
    }
    let laid = Laid { kv: [k.clone(), v.clone()], widths, first };
    let (n, batch) = (q.shape().first(), plan.batch());
    // More than one unit's queries of each head read what was laid once.
    let many = n.saturating_mul(spec.heads / spec.kv_heads) > QUERIES;
    let queries = spec.heads.checked_mul(spec.k_dim).and_then(|width| n.checked_mul(width));
    if !many || batch.tokens.len() != n || queries != Some(q.shape().len()) {
        return compute(b, AT, q, laid, spec, plan);
    }
    read(AT, q)?;
    let (q, whole) = tiled::in_whole_vectors(b, q, spec)?;
    let tiled = Tiled::new(b, &laid, spec, batch);
    tiled::without_filling(b, compute(b, AT, &q, tiled, &whole, plan)?, spec)
}

pub(crate) fn attend_cache(
    b: &CpuBackend,
    layer: usize,
    q: &Tensor,
    cache: &Cache,
    spec: &AttnSpec,
    plan: &Plan,
    latent: bool,
) -> Result<Tensor> {
    let at = if latent { "attend_latent" } else { "attend_cache" };
    let (lock, tables) = cache::reader(layer, cache, plan)?;
    let (pages, widths) = (cache::locked(lock)?, row_widths(at, spec)?);
    if latent {
        if spec.kv_heads != 1 || spec.v_dim > spec.k_dim || pages.k_dim != spec.k_dim {
            let why =
                format!("{} heads of values of {} in keys of {}", spec.kv_heads, spec.v_dim, pages.k_dim);
            return Err(Error::invalid(at, why));
        }
    } else if pages.v_dim == 0 {
        return Err(Error::unsupported(at, "the layer keeps no values; use attend_latent"));
    } else if widths != [pages.k_dim, pages.v_dim] {
        return Err(Error::shape(at, widths.into(), [pages.k_dim, pages.v_dim].into()));
    }
    let extent = Extent::of(spec, plan.batch());
    let options = Options::new(at, spec, &extent)?;
    let seen: Vec<_> = plan.batch().spans.iter().map(|span| seen(&options, span)).collect();
    let source = Layer::new(lock, &pages, &tables, &seen, latent)?;
    drop(pages);
    compute(b, at, q, source, spec, plan)
}

/// Elements of a token's keys and of its values.
fn row_widths(at: &str, spec: &AttnSpec) -> Result<[usize; 2]> {
    let (k, v) = (spec.kv_heads.checked_mul(spec.k_dim), spec.kv_heads.checked_mul(spec.v_dim));
    match (k, v) {
        (Some(k), Some(v))
            if k > 0 && v > 0 && spec.heads > 0 && spec.heads.is_multiple_of(spec.kv_heads) =>
        {
            Ok([k, v])
        }
        _ => {
            let (heads, kv, k, v) = (spec.heads, spec.kv_heads, spec.k_dim, spec.v_dim);
            let why = format!("{heads} heads on {kv} of {k} and {v} elements; heads must be whole groups");
            Err(Error::invalid(at, why))
        }
    }
}

/// The tokens that some row of `span` sees. What rows see grows and moves forward with the row.
fn seen(options: &Options<'_>, span: &Span) -> Range<usize> {
    match span.len {
        0 => 0..0,
        n => {
            let of = |i| options.visible(span.start + i, span.past + i, span.context());
            of(0).start..of(n - 1).end
        }
    }
}

/// Units of average work that each thread should have at least: what the last one to finish keeps others waiting for is a part of that.
const EACH: usize = 4;

/// How spans are cut, of which each sees so many tokens.
fn cuts(spans: &[Span], seen: &[Range<usize>], spec: &AttnSpec, threads: usize) -> Vec<Cut> {
    let cut =
        |i: usize, single, work, fewest| Cut::new(&spans[i], seen[i].clone(), spec, single, work, fewest);
    let whole: Vec<_> = (0..spans.len()).map(|i| cut(i, false, u128::MAX, QUERIES)).collect();
    let all_work = |cut: &Cut, span: &Span| span.len as u128 * spec.heads as u128 * cut.chunks[0] as u128;
    let total: u128 = whole.iter().zip(spans).map(|(cut, span)| all_work(cut, span)).sum();
    let most = if threads > 1 { total / (EACH * threads) as u128 } else { total };
    let (mut first, mut room) = (0, STATES);
    let number = |(i, mut of): (usize, Cut)| {
        if of.work() > most {
            of = cut(i, false, most, FEWER[0]);
        }
        if of.work() > most {
            let single = cut(i, true, most, FEWER[0]);
            let states = single.states(spans[i].len, spec);
            if states <= room {
                room -= states;
                of = single;
            } else {
                of = cut(i, false, most, FEWER[1]);
            }
        }
        of.first = first;
        first += of.units(spec.kv_heads);
        of
    };
    whole.into_iter().enumerate().map(number).collect()
}

/// How one span is cut. Units are numbered by key head, part of its group, tile of rows, part of the context.
struct Cut {
    /// Number of the span's first unit.
    first: usize,
    /// Query heads of a unit, and units of a group of heads.
    heads: [usize; 2],
    /// Rows of a unit, and units of the span's rows.
    rows: [usize; 2],
    /// Chunks of a unit, and units of the context.
    chunks: [usize; 2],
    /// The chunks that some row sees.
    seen: Range<usize>,
}

impl Cut {
    /// Of a span that sees these tokens, in `single` chunks or in none. A unit has as many rows as have no more than so much `work`, but no fewer
    /// than have `fewest` queries.
    fn new(
        span: &Span,
        seen: Range<usize>,
        spec: &AttnSpec,
        single: bool,
        work: u128,
        fewest: usize,
    ) -> Self {
        let group = spec.heads / spec.kv_heads;
        let heads = group.min(QUERIES);
        let seen = seen.start / CHUNK..seen.end.div_ceil(CHUNK);
        let chunks = if single { 1 } else { seen.len().max(1) };
        let rows = |queries: usize| (queries / heads).clamp(1, span.len.max(1));
        let most = usize::try_from(work / (heads * chunks) as u128).unwrap_or(usize::MAX);
        let rows = most.clamp(rows(fewest), rows(QUERIES));
        Self {
            first: 0,
            heads: [heads, group.div_ceil(heads)],
            rows: [rows, span.len.div_ceil(rows)],
            chunks: [chunks, seen.len().div_ceil(chunks)],
            seen,
        }
    }

    /// Elements that are kept of the units of so many rows until they are merged.
    fn states(&self, rows: usize, spec: &AttnSpec) -> usize {
        [rows, spec.heads, self.chunks[1]].into_iter().fold(spec.v_dim + 2, usize::saturating_mul)
    }

    fn units(&self, kv_heads: usize) -> usize {
        kv_heads * self.heads[1] * self.rows[1] * self.chunks[1]
    }

    /// What a unit has to do: its queries times the chunks that they see.
    fn work(&self) -> u128 {
        self.heads[0] as u128 * self.rows[0] as u128 * self.chunks[0] as u128
    }

    /// The unit that number `i` of the span is.
    fn place(&self, i: usize, which: usize, span: &Span, spec: &AttnSpec) -> Place {
        let group = spec.heads / spec.kv_heads;
        let (i, chunk) = (i / self.chunks[1], i % self.chunks[1] * self.chunks[0] + self.seen.start);
        let (i, row) = (i / self.rows[1], i % self.rows[1] * self.rows[0]);
        let (kv_head, head) = (i / self.heads[1], i % self.heads[1] * self.heads[0]);
        Place {
            span: which,
            rows: span.start + row..span.start + span.len.min(row + self.rows[0]),
            here: span.past + row,
            context: span.context(),
            kv_head,
            heads: kv_head * group + head..kv_head * group + group.min(head + self.heads[0]),
            chunks: chunk..self.seen.end.min(chunk + self.chunks[0]),
        }
    }

    /// The first unit that has `row` (of the span) and `head`, and which of its queries that is. Parts of the context
    /// follow each other.
    fn find(&self, row: usize, head: usize, group: usize) -> (usize, usize) {
        let (kv_head, in_group) = (head / group, head % group);
        let (part, offset) = (in_group / self.heads[0], in_group % self.heads[0]);
        let heads = self.heads[0].min(group - part * self.heads[0]);
        let unit = (kv_head * self.heads[1] + part) * self.rows[1] + row / self.rows[0];
        (self.first + unit * self.chunks[1], row % self.rows[0] * heads + offset)
    }
}

/// What units are computed from. It is the call's own: see [`Pool::compute`](crate::pool::Pool::compute).
struct Call<K> {
    q: Tensor,
    kept: K,
    spec: AttnSpec,
    extent: Extent,
    places: Vec<Place>,
    path: Path,
}

impl<K: Kept> Call<K> {
    /// Computes unit `i`.
    fn unit(&self, i: usize, out: &mut [f32]) {
        const AT: &str = "attend";
        // Both were read once before, and cannot fail.
        let (Ok(q), Ok(options)) = (read(AT, &self.q), Options::new(AT, &self.spec, &self.extent)) else {
            return;
        };
        let (spec, source) = (&self.spec, &self.kept.source());
        let shape = [spec.heads, spec.k_dim, spec.v_dim];
        let (place, options) = (&self.places[i], &options);
        Unit { place, source, options, q, shape, scale: spec.scale, out }.compute(self.path);
    }
}

fn compute(
    b: &CpuBackend,
    at: &'static str,
    q: &Tensor,
    kept: impl Kept,
    spec: &AttnSpec,
    plan: &Plan,
) -> Result<Tensor> {
    plan::rows_fit(at, q, plan)?;
    let (n, spans) = (q.shape().first(), &plan.batch().spans);
    let width = spec.heads.checked_mul(spec.k_dim).filter(|w| n * w == q.shape().len());
    width.ok_or_else(|| Error::shape(at, q.shape(), [n, spec.heads, spec.k_dim].into()))?;
    let extent = Extent::of(spec, plan.batch());
    let options = Options::new(at, spec, &extent)?;
    read(at, q)?;
    let seen: Vec<_> = spans.iter().map(|span| seen(&options, span)).collect();
    let cuts = cuts(spans, &seen, spec, b.pool.threads());
    let places: Vec<Place> = cuts
        .iter()
        .zip(spans)
        .enumerate()
        .flat_map(|(s, (c, span))| (0..c.units(spec.kv_heads)).map(move |i| c.place(i, s, span, spec)))
        .collect();
    let state = spec.v_dim + 2;
    // Each unit writes the states of its queries.
    let ends = places.iter().scan(0, |end, place| {
        *end += place.rows.len() * place.heads.len() * state;
        Some(*end)
    });
    let starts: Arc<[usize]> = std::iter::once(0).chain(ends).collect();
    let mut states = Values::of(&b.spare, b.spare.take(starts[places.len()]));
    let call = Call { q: q.clone(), kept, spec: spec.clone(), extent: extent.clone(), places, path: b.path };
    b.pool.compute_pieces(&mut states, &starts, move |i, out| call.unit(i, out));
    let mut out = b.spare.take(n * spec.heads * spec.v_dim);
    by_rows(b, &mut out, spec.heads * spec.v_dim, |first, part| {
        let finish = Finish {
            out: part,
            first,
            spans,
            cuts: &cuts,
            states: &states,
            starts: &starts,
            spec,
            options: &options,
        };
        run(b.path, finish);
    });
    Ok(make_in(b, [n, spec.heads * spec.v_dim], out))
}

/// Merges units into rows of the result.
struct Finish<'a> {
    out: &'a mut [f32],
    /// The row that `out` begins with.
    first: usize,
    spans: &'a [Span],
    cuts: &'a [Cut],
    states: &'a [f32],
    /// Where a unit's piece of `states` begins.
    starts: &'a [usize],
    spec: &'a AttnSpec,
    options: &'a Options<'a>,
}

impl Kernel for Finish<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let (spec, state) = (self.spec, self.spec.v_dim + 2);
        let mut sum = vec![0.0; state];
        for (i, out) in self.out.chunks_exact_mut(spec.heads * spec.v_dim).enumerate() {
            let row = self.first + i;
            let which = self.spans.partition_point(|s| s.start + s.len <= row);
            let (Some(span), Some(cut)) = (self.spans.get(which), self.cuts.get(which)) else {
                // A row of no one.
                out.fill(0.0);
                continue;
            };
            for (head, out) in out.chunks_exact_mut(spec.v_dim).enumerate() {
                let (unit, query) = cut.find(row - span.start, head, spec.heads / spec.kv_heads);
                sum.fill(0.0);
                sum[0] = f32::NEG_INFINITY;
                for unit in unit..unit + cut.chunks[1] {
                    let (top, sums) = self.states[self.starts[unit] + query * state..][..state].split_at(2);
                    merge(&mut sum, [top[0], top[1]], sums);
                }
                // One that takes nothing leaves a row that sees nothing as it is.
                if let Some(sink) =
                    self.options.sinks.map(|sinks| sinks[head]).filter(|sink| *sink != f32::NEG_INFINITY)
                {
                    let top = if sink > sum[0] { sink } else { sum[0] };
                    let shrink = math::exp(sum[0] - top);
                    sum[1] = sum[1] * shrink + math::exp(sink - top);
                    sum[2..].iter_mut().for_each(|v| *v *= shrink);
                }
                // A row that sees nothing at all gives zeros.
                let total = if sum[1] == 0.0 { 1.0 } else { sum[1] };
                out.iter_mut().zip(&sum[2..]).for_each(|(o, v)| *o = v / total);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::Batch;

    /// How these spans of `[len, past]` are cut, of Llama 3's heads.
    fn cuts_of(spans: &[[usize; 2]], threads: usize) -> Vec<Cut> {
        let mut batch = Batch::default();
        spans.iter().for_each(|&[len, past]| batch.push(&vec![0; len], past, vec![], [0, 0]));
        let seen: Vec<_> = batch.spans.iter().map(|span| 0..span.context()).collect();
        let cuts = cuts(&batch.spans, &seen, &AttnSpec::causal(32, 8, 64), threads);
        let mut next = 0;
        for cut in &cuts {
            assert_eq!(cut.first, next);
            next += cut.units(8);
        }
        cuts
    }

    /// How many units their contexts are cut into.
    fn contexts(spans: &[[usize; 2]], threads: usize) -> Vec<usize> {
        cuts_of(spans, threads).iter().map(|cut| cut.chunks[1]).collect()
    }

    #[test]
    fn contexts_are_cut_where_a_unit_is_much_of_the_work() {
        let long = 32_767;
        assert_eq!(contexts(&[[1, long]], 1), [1]);
        assert_eq!(contexts(&[[1, long]], 2), [1], "eight heads are enough for two threads");
        assert_eq!(contexts(&[[1, long]], 4), [128]);
        assert_eq!(contexts(&[[1, long]; 8], 16), [1; 8]);
        let mut one_long = [[1, 200]; 8];
        one_long[3] = [1, long];
        assert_eq!(contexts(&one_long, 16), [1, 1, 1, 128, 1, 1, 1, 1]);
        assert_eq!(
            contexts(&[[512, 0], [1, long]], 16),
            [1, 1],
            "a prompt is as much work as the context is long"
        );
        assert_eq!(contexts(&[], 2), [0; 0]);
    }

    #[test]
    fn rows_are_cut_before_the_context() {
        let rows = |len: usize, threads: usize| match &cuts_of(&[[len, 32_767]], threads)[..] {
            [cut] => (cut.rows, cut.chunks[1]),
            _ => unreachable!("one span"),
        };
        // A unit of thirty rows has 120 queries, one of eight has 32.
        assert_eq!(rows(512, 2), ([30, 18], 1));
        assert_eq!(rows(200, 16), ([25, 8], 1));
        assert_eq!(rows(64, 16), ([8, 8], 1));
        assert_eq!(rows(20, 16).1, 129, "units of eight rows would be too few");
        // As many rows as have chunks' states for 64 MiB; more have fewer queries a unit.
        assert_eq!((rows(60, 64).1, rows(63, 64)), (129, ([2, 32], 1)));
    }

    #[test]
    fn what_is_kept_of_chunks_is_bounded() {
        let spec = AttnSpec::causal(32, 8, 64);
        for threads in [2, 4, 16, 64, 256] {
            for spans in [
                vec![[1, 131_071]],
                vec![[7, 131_000]; 40],
                vec![[100, 0], [1, 131_071]],
                vec![[512, 130_000]],
                vec![[200, 32_000], [3, 90_000], [1, 5]],
            ] {
                let cuts = cuts_of(&spans, threads);
                let elements = |(cut, [len, _]): (&Cut, &[usize; 2])| cut.states(*len, &spec);
                let rows: usize = spans.iter().map(|[len, _]| len).sum();
                let kept: usize = cuts.iter().zip(&spans).map(elements).sum();
                assert!(kept <= STATES + rows * 32 * 66, "{spans:?}, {threads} threads: {kept}");
                // All queries of the span, each once.
                for (cut, [len, _]) in cuts.iter().zip(&spans) {
                    let mut found: Vec<_> = (0..*len)
                        .flat_map(|row| (0..32).map(move |head| (row, head)))
                        .map(|(row, head)| cut.find(row, head, 4))
                        .collect();
                    let all = found.len();
                    found.sort_unstable();
                    found.dedup();
                    assert_eq!(found.len(), all, "{spans:?}, {threads} threads");
                }
            }
        }
    }
}
