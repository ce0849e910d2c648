//! Attention as models have it: over all that went before, over a window, over latent rows, and over a text without a cache.

use super::{Bench, Sizes};
use crate::Result;
use crate::lab::{self, Sequences, rotate, tensor};
use ogive::backend::{AttnOption, AttnSpec, Backend, Batch, LayerCache, Plan, Rope};
use ogive::cuda::CudaBackend;
use ogive::tensor::{self, F16, Format, Q8_0, Tensor};

/// Attention of a layer: what its cache keeps, and what is done with it.
struct Kind {
    name: String,
    element: &'static Format,
    layer: LayerCache,
    spec: AttnSpec,
}

impl Kind {
    fn full(s: Sizes, element: &'static Format) -> Self {
        let kv = s.kv_heads * s.head;
        let spec = AttnSpec::causal(s.heads, s.kv_heads, s.head);
        let name = format!("attend_cache {}", element.name);
        Self { name, element, layer: LayerCache::full(kv, kv), spec }
    }

    fn windowed(s: Sizes, window: usize) -> Self {
        let (kv, all) = (s.kv_heads * s.head, Self::full(s, &F16));
        Self {
            name: format!("{}, window {window}", all.name),
            layer: LayerCache::windowed(kv, kv, window, 0),
            spec: all.spec.with(AttnOption::Window(window)),
            ..all
        }
    }

    /// With one row for all heads, whose first `v_dim` elements are the values.
    fn latent(heads: usize, k_dim: usize, v_dim: usize) -> Self {
        let spec = AttnSpec::new(heads, 1, k_dim, v_dim).with(AttnOption::Causal);
        let name = format!("attend_latent f16, {heads} heads");
        Self { name, element: &F16, layer: LayerCache::full(k_dim, 0), spec }
    }

    fn is_latent(&self) -> bool {
        matches!(self.layer, LayerCache::Paged { v_dim: 0, .. })
    }

    /// Bytes of a token in the cache.
    fn token(&self) -> usize {
        let AttnSpec { kv_heads, k_dim, v_dim, .. } = self.spec;
        let values = if self.is_latent() { 0 } else { self.element.row_bytes(kv_heads * v_dim) };
        self.element.row_bytes(kv_heads * k_dim) + values
    }

    /// The first token that a query behind `past` tokens sees.
    fn first(&self, past: usize) -> usize {
        self.spec.visible(past, past + 1).start
    }

    /// Bytes and operations of so many queries, which see `seen` tokens together, of `read` different ones.
    fn work(&self, queries: usize, read: usize, seen: f64) -> [f64; 2] {
        let each = self.spec.heads * (self.spec.k_dim + self.spec.v_dim);
        [(self.token() * read + 4 * queries * each) as f64, 2.0 * each as f64 * seen]
    }

    fn attend(
        &self,
        b: &CudaBackend,
        layer: usize,
        q: &Tensor,
        all: &Sequences,
        plan: &Plan,
    ) -> tensor::Result<Tensor> {
        let (cache, spec) = (&all.cache, &self.spec);
        if self.is_latent() {
            b.attend_latent(layer, q, cache, spec, plan)
        } else {
            b.attend_cache(layer, q, cache, spec, plan)
        }
    }
}

/// A token of each of so many sequences, over what they have.
fn tokens(bench: &mut Bench<'_>, kind: &Kind, contexts: &[usize], counts: &[usize]) -> Result<()> {
    let name = format!("{}, decode", kind.name);
    if !bench.wants(&name) {
        return Ok(());
    }
    let b = bench.b;
    for &context in contexts {
        for &count in counts.iter().filter(|count| **count * context <= 1 << 20) {
            let seen = kind.first(context - 1)..context;
            let read = count * seen.len();
            // Layers whose caches together are more than the L2 holds.
            let n = (rotate(bench.run) / (kind.token() * read)).clamp(1, 32);
            let all = Sequences::of(b, vec![kind.layer; n], kind.element, count, seen)?;
            let plan = all.plan(b, 1, context - 1)?;
            let q = tensor(b, count, kind.spec.heads * kind.spec.k_dim)?;
            let (case, calls) = (format!("{count} × {context} tokens"), (n.max(4), Some(&plan)));
            bench.add(&name, &case, calls, kind.work(count, read, read as f64), &mut |i| {
                kind.attend(b, i % n, &q, &all, &plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// So many rows of a prompt behind so many.
fn prompt(bench: &mut Bench<'_>, kind: &Kind, cases: &[(usize, usize)]) -> Result<()> {
    let name = format!("{}, prefill", kind.name);
    if !bench.wants(&name) {
        return Ok(());
    }
    let b = bench.b;
    for &(rows, past) in cases {
        let tokens = kind.first(past)..past + rows;
        let (read, seen) = (tokens.len(), (past..past + rows).map(|i| i + 1 - kind.first(i)).sum::<usize>());
        let all = Sequences::of(b, vec![kind.layer], kind.element, 1, tokens)?;
        let (plan, q) = (all.plan(b, rows, past)?, tensor(b, rows, kind.spec.heads * kind.spec.k_dim)?);
        let case = format!("{rows} after {past} tokens");
        bench.add(&name, &case, (2, Some(&plan)), kind.work(rows, read, seen as f64), &mut |_| {
            kind.attend(b, 0, &q, &all, &plan).map(drop)
        })?;
    }
    Ok(())
}

pub(super) fn decode(bench: &mut Bench<'_>) -> Result<()> {
    let contexts = bench.run.pick(&[512, 2048, 8192, 32_768][..], &[40]);
    let counts = bench.run.pick(&[1, 4, 16, 64][..], &[1, 2]);
    [&F16, &Q8_0].into_iter().try_for_each(|e| tokens(bench, &Kind::full(bench.s, e), contexts, counts))
}

pub(super) fn prompts(bench: &mut Bench<'_>) -> Result<()> {
    let cases = bench.run.pick(&[(512, 0), (2048, 0), (8192, 0), (512, 31_744)][..], &[(20, 0), (8, 40)]);
    prompt(bench, &Kind::full(bench.s, &F16), cases)
}

/// Windows, as Gemma 3's and gpt-oss's, the latter with sinks and heads of 64.
fn windowed(bench: &Bench<'_>) -> Result<[Kind; 2]> {
    let [wide, narrow] = bench.run.pick([1024, 128], [32, 16]);
    let small = bench.run.pick(Sizes { heads: 64, kv_heads: 8, head: 64, ..bench.s }, bench.s);
    let sinks = bench.b.upload(&lab::values(small.heads), [small.heads].into())?;
    let mut with_sinks = Kind::windowed(small, narrow);
    with_sinks.name += " and sinks";
    with_sinks.spec = with_sinks.spec.with(AttnOption::Sinks(sinks));
    Ok([Kind::windowed(bench.s, wide), with_sinks])
}

/// DeepSeek V3's, and those of V2 Lite, which has an eighth of the heads.
fn latents(bench: &Bench<'_>) -> [Kind; 2] {
    bench
        .run
        .pick([(128, 576, 512), (16, 576, 512)], [(8, 80, 64), (4, 80, 64)])
        .map(|(h, k, v)| Kind::latent(h, k, v))
}

pub(super) fn windows(bench: &mut Bench<'_>) -> Result<()> {
    let (contexts, counts) = (bench.run.pick(&[32_768][..], &[70]), bench.run.pick(&[1, 16, 64][..], &[2]));
    // What is behind the window takes no memory and no time.
    windowed(bench)?.iter().try_for_each(|kind| tokens(bench, kind, contexts, counts))
}

pub(super) fn latent(bench: &mut Bench<'_>) -> Result<()> {
    let contexts = bench.run.pick(&[2048, 32_768][..], &[40]);
    let counts = bench.run.pick(&[1, 16, 64][..], &[2]);
    latents(bench).iter().try_for_each(|kind| tokens(bench, kind, contexts, counts))
}

/// Prompts over windows and latent rows.
pub(super) fn later_prompts(bench: &mut Bench<'_>) -> Result<()> {
    let cases = bench.run.pick(&[(8192, 0), (512, 31_744)][..], &[(40, 0)]);
    windowed(bench)?.iter().try_for_each(|kind| prompt(bench, kind, cases))?;
    let cases = bench.run.pick(&[(512, 0), (512, 7680)][..], &[(20, 0)]);
    latents(bench).iter().try_for_each(|kind| prompt(bench, kind, cases))
}

/// Texts of BERT's size, which are whole in their step: no cache, and every token sees all of its text.
pub(super) fn encoder(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b) = ("attend, no cache", bench.b);
    if !bench.wants(name) {
        return Ok(());
    }
    let (heads, head, tokens) = bench.run.pick((12, 64, 512), (4, 64, 20));
    let spec = AttnSpec::new(heads, heads, head, head);
    for &count in bench.run.pick(&[1, 16][..], &[2]) {
        let mut batch = Batch::default();
        for _ in 0..count {
            batch.push(&vec![0; tokens], 0, Vec::new(), [0; 2]);
        }
        let (plan, rows, wide) = (b.plan(batch)?, count * tokens, heads * head);
        let x = tensor(b, rows, wide)?;
        let work = [(16 * rows * wide) as f64, (4 * wide * rows * tokens) as f64];
        bench.eager(name, format!("{count} × {tokens} tokens"), work, &mut || {
            b.attend(&x, &x, &x, &spec, &plan).map(drop)
        })?;
    }
    Ok(())
}

/// Rotating queries and keys and storing keys and values, with attention over the one token that a sequence has.
pub(super) fn rope_attend(bench: &mut Bench<'_>) -> Result<()> {
    let (name, b, s) = ("rope_attend f16, first tokens", bench.b, bench.s);
    if !bench.wants(name) {
        return Ok(());
    }
    let (wide, kv) = (s.heads * s.head, s.kv_heads * s.head);
    let spec = AttnSpec::causal(s.heads, s.kv_heads, s.head);
    let rope = Rope::new(lab::values(s.head / 2));
    for rows in bench.rows().iter().filter(|rows| **rows <= 512) {
        let all = Sequences::new(b, vec![LayerCache::full(kv, kv)], *rows, 1)?;
        let plan = all.plan(b, 1, 0)?;
        let (q, k, v) = (tensor(b, *rows, wide)?, tensor(b, *rows, kv)?, tensor(b, *rows, kv)?);
        let (q, k) = (q.reshape([*rows, s.heads, s.head])?, k.reshape([*rows, s.kv_heads, s.head])?);
        // In: q, k, v. Out: the rotated queries, the cache, the result; and queries and cache once more in. Queries and keys are held, so
        // copies of them are rotated, which models need not; they are not counted.
        let bytes = rows * (4 * (wide + 2 * kv) + 8 * wide + 4 * kv + 4 * wide + 4 * kv);
        bench.add(
            name,
            &format!("{rows} × 1 token"),
            (16, Some(&plan)),
            [bytes as f64, 0.0],
            &mut |_| b.rope_attend(0, q.clone(), k.clone(), &v, &rope, &all.cache, &spec, &plan).map(drop),
        )?;
    }
    Ok(())
}
