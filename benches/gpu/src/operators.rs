//! Every operator by itself, in the sizes of Llama 3 8B, against what the device can do.

use crate::clock::Clock;
use crate::figure::Figure;
use crate::lab::{self, Sequences, rotate, tensor};
use crate::{Report, Result, Run};
use ogive::backend::{
    Activation, AttnSpec, Backend, Experts, Ids, LayerCache, Plan, Rope, RouterSpec, Scoring,
};
use ogive::cuda::CudaBackend;
use ogive::tensor::{self, Error, F16, FORMATS, Format, Q4_K, Q8_0};

/// Sizes: those of Llama 3 8B, or a few.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dim: usize,
    ffn: usize,
    vocab: usize,
    heads: usize,
    kv_heads: usize,
    head: usize,
}

const REAL: Sizes = Sizes { dim: 4096, ffn: 14_336, vocab: 128_256, heads: 32, kv_heads: 8, head: 128 };
const TINY: Sizes = Sizes { dim: 256, ffn: 256, vocab: 512, heads: 4, kv_heads: 2, head: 64 };

struct Bench<'a> {
    run: &'a Run,
    report: &'a mut Report,
    b: &'a CudaBackend,
    s: Sizes,
}

pub(crate) fn measure(run: &Run, report: &mut Report) -> Result<()> {
    let mut bench = Bench { run, report, b: &run.cuda, s: run.pick(REAL, TINY) };
    let products: [fn(&mut Bench<'_>) -> Result<()>; 5] = [linear, gated, many, experts, prompts];
    let others: [fn(&mut Bench<'_>) -> Result<()>; 5] = [attention, norms, rope, embed, best];
    let others = others.into_iter().filter(|_| !run.again);
    for part in products.into_iter().chain(others) {
        // One operator that fails must not take the others with it.
        if let Err(e) = part(&mut bench) {
            bench.report.note(format!("operators: {e}"));
        }
        // What was recorded keeps the memory of the largest rows.
        run.cuda.drop_graphs();
    }
    Ok(())
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.run.filter)
    }

    /// Times so many calls of `f` in a graph, all of this plan if they use one.
    fn add(
        &mut self,
        name: &str,
        case: &str,
        calls: (usize, Option<&Plan>),
        work: [f64; 2],
        f: &mut dyn FnMut(usize) -> tensor::Result<()>,
    ) -> Result<()> {
        if !self.run.has_time() {
            self.report.note(format!("no time was left for {name}, {case}"));
            return Ok(());
        }
        let (times, graph) =
            Clock::new(self.run).recorded(calls.0, calls.1, f).map_err(|e| format!("{name}, {case}: {e}"))?;
        let mut figure = Figure::new(format!("{name}, {}", self.run.compute), case, times, work);
        figure.graph = graph;
        self.report.add("operators", figure);
        Ok(())
    }

    /// Rows of a step, as models have them.
    fn rows(&self) -> &'static [usize] {
        self.run.pick(&[1, 2, 4, 8, 16, 64, 512, 2048], &[1, 20])
    }

    /// The memory is the bound where rows are few, and then each call must find another weight; else a few calls are enough.
    fn calls(rows: usize, copies: usize) -> (usize, Option<&'static Plan>) {
        (if rows <= 16 { copies.max(4) } else { 2 }, None)
    }
}

/// Bytes and operations of a product; activations are single precision.
fn product(format: &Format, rows: usize, cols: usize, inner: usize) -> [f64; 2] {
    let bytes = cols * format.row_bytes(inner) + 4 * rows * (inner + cols);
    [bytes as f64, 2.0 * rows as f64 * cols as f64 * inner as f64]
}

fn linear(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    let all = FORMATS.iter().map(|f| (*f, [s.ffn, s.dim]));
    let others =
        [&F16, &Q8_0, &Q4_K].map(|f| [(f, [s.dim, s.ffn]), (f, [s.dim, s.dim]), (f, [s.vocab, s.dim])]);
    for (format, [cols, inner]) in all.chain(others.into_iter().flatten()) {
        let name = format!("linear {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let ws = lab::weights(b, format, [1, cols, inner], rotate(bench.run))?;
        for &rows in bench.rows() {
            let (x, work) = (tensor(b, rows, inner)?, product(format, rows, cols, inner));
            let (case, calls) = (format!("{rows} × {inner} → {cols}"), Bench::calls(rows, ws.len()));
            bench.add(&name, &case, calls, work, &mut |i| b.linear(&x, &ws[i % ws.len()]).map(drop))?;
        }
        b.drop_graphs();
    }
    Ok(())
}

fn gated(bench: &mut Bench<'_>) -> Result<()> {
    let (b, Sizes { dim, ffn, .. }) = (bench.b, bench.s);
    for format in [&F16, &Q8_0, &Q4_K] {
        let name = format!("linear_gated {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let ws = lab::weights(b, format, [1, ffn, dim], rotate(bench.run))?;
        for &rows in bench.rows() {
            let (x, [_, operations]) = (tensor(b, rows, dim)?, product(format, rows, ffn, dim));
            let bytes = 2 * ffn * format.row_bytes(dim) + 4 * rows * (dim + ffn);
            let calls = Bench::calls(rows, ws.len() / 2);
            let case = format!("{rows} × {dim} → 2 · {ffn}");
            bench.add(&name, &case, calls, [bytes as f64, 2.0 * operations], &mut |i| {
                let [gate, up] = [2 * i, 2 * i + 1].map(|i| &ws[i % ws.len()]);
                b.linear_gated(&x, gate, up, Activation::Silu).map(drop)
            })?;
        }
    }
    Ok(())
}

/// Queries, keys and values of one input.
fn many(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    let (wide, kv) = (s.heads * s.head, s.kv_heads * s.head);
    for format in [&F16, &Q8_0, &Q4_K] {
        let name = format!("linear_many {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let [q, k] = [wide, kv].map(|cols| lab::weights(b, format, [1, cols, s.dim], rotate(bench.run)));
        let (q, k) = (q?, k?);
        for &rows in bench.rows() {
            let (x, cols) = (tensor(b, rows, s.dim)?, wide + 2 * kv);
            let (work, calls) = (product(format, rows, cols, s.dim), Bench::calls(rows, q.len()));
            bench.add(
                &name,
                &format!("{rows} × {} → {wide} + 2 · {kv}", s.dim),
                calls,
                work,
                &mut |i| {
                    let [key, value] = [2 * i, 2 * i + 1].map(|i| &k[i % k.len()]);
                    b.linear_many(&x, &[&q[i % q.len()], key, value]).map(drop)
                },
            )?;
        }
    }
    Ok(())
}

/// Rows of the table of tokens.
fn embed(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    for format in [&F16, &Q4_K] {
        let name = format!("embed {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let table = lab::weights(b, format, [1, s.vocab, s.dim], 0)?.swap_remove(0);
        for &rows in bench.rows().iter().filter(|rows| **rows <= 512) {
            let all = Sequences::new(b, vec![LayerCache::full(s.head, s.head)], rows, 1)?;
            let (plan, bytes) = (all.plan(b, 1, 0)?, rows * (format.row_bytes(s.dim) + 4 * s.dim));
            let case = format!("{rows} × {}", s.dim);
            bench.add(&name, &case, (16, Some(&plan)), [bytes as f64, 0.0], &mut |_| {
                b.embed(&table, Ids::Tokens, &plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// Layers whose caches together are more than the L2 holds.
fn layers(run: &Run, s: Sizes, tokens: usize) -> Vec<LayerCache> {
    let (kv, bytes) = (s.kv_heads * s.head, 4 * s.kv_heads * s.head * tokens);
    vec![LayerCache::full(kv, kv); (rotate(run) / bytes).clamp(1, 32)]
}

/// A token of each sequence, over what it has.
fn attention(bench: &mut Bench<'_>) -> Result<()> {
    for element in [&F16, &Q8_0] {
        attention_over(bench, element)?;
    }
    Ok(())
}

fn attention_over(bench: &mut Bench<'_>, element: &'static Format) -> Result<()> {
    let name = format!("attend_cache {}, decode", element.name);
    if !bench.wants(&name) {
        return Ok(());
    }
    let (b, s) = (bench.b, bench.s);
    let spec = AttnSpec::causal(s.heads, s.kv_heads, s.head);
    for context in bench.run.pick(&[512, 2048, 8192, 32_768][..], &[40]) {
        for count in bench.run.pick(&[1, 4, 16, 64][..], &[1, 2]) {
            if context * count > 1 << 20 {
                continue;
            }
            let layers = layers(bench.run, s, context * count);
            let n = layers.len();
            let all = Sequences::of(b, layers, element, *count, *context)?;
            let plan = all.plan(b, 1, context - 1)?;
            let q = tensor(b, *count, s.heads * s.head)?;
            let kv = 2 * element.row_bytes(s.kv_heads * s.head) * context * count;
            let bytes = (kv + 8 * count * s.heads * s.head) as f64;
            let operations = 4.0 * (s.heads * s.head) as f64 * (context * count) as f64;
            let case = format!("{count} × {context} tokens");
            bench.add(&name, &case, (n.max(4), Some(&plan)), [bytes, operations], &mut |i| {
                b.attend_cache(i % n, &q, &all.cache, &spec, &plan).map(drop)
            })?;
        }
    }
    Ok(())
}

fn prompts(bench: &mut Bench<'_>) -> Result<()> {
    let name = "attend_cache f16, prefill";
    if !bench.wants(name) {
        return Ok(());
    }
    let (b, s) = (bench.b, bench.s);
    let spec = AttnSpec::causal(s.heads, s.kv_heads, s.head);
    let cases = bench.run.pick(&[(512, 0), (2048, 0), (8192, 0), (512, 31_744)][..], &[(20, 0), (8, 40)]);
    for &(rows, past) in cases {
        let kv = s.kv_heads * s.head;
        let all = Sequences::new(b, vec![LayerCache::full(kv, kv)], 1, rows + past)?;
        let (plan, q) = (all.plan(b, rows, past)?, tensor(b, rows, s.heads * s.head)?);
        let seen = rows as f64 * (past as f64 + (rows as f64 + 1.0) / 2.0);
        let bytes = (4 * kv * (rows + past) + 8 * rows * s.heads * s.head) as f64;
        let work = [bytes, 4.0 * (s.heads * s.head) as f64 * seen];
        let case = format!("{rows} after {past} tokens");
        bench.add(name, &case, (2, Some(&plan)), work, &mut |_| {
            b.attend_cache(0, &q, &all.cache, &spec, &plan).map(drop)
        })?;
    }
    Ok(())
}

fn norms(bench: &mut Bench<'_>) -> Result<()> {
    let (b, Sizes { dim, ffn, .. }) = (bench.b, bench.s);
    let w = b.upload(&lab::values(dim), [dim].into())?;
    for &rows in bench.rows() {
        let (x, y) = (tensor(b, rows, dim)?, tensor(b, rows, dim)?);
        let wide = tensor(b, rows, ffn)?;
        let n = (4 * rows * dim) as f64;
        let (case, calls) = (format!("{rows} × {dim}"), (32, None));
        let mut one = |name: &str, case: &str, bytes: f64, f: &mut dyn FnMut(usize) -> tensor::Result<()>| {
            if bench.wants(name) { bench.add(name, case, calls, [bytes, 0.0], f) } else { Ok(()) }
        };
        one("rms_norm", &case, 2.0 * n, &mut |_| b.rms_norm(&x, &w, 1e-5).map(drop))?;
        one("layer_norm", &case, 2.0 * n, &mut |_| b.layer_norm(&x, &w, Some(&w), 1e-5).map(drop))?;
        // In place, as models have them: what comes out goes in again.
        let mut held = Some(tensor(b, rows, dim)?);
        one("add_rms_norm", &case, 4.0 * n, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("add_rms_norm"))?;
            held = Some(b.add_rms_norm(x, &y, &w, 1e-5)?.0);
            Ok(())
        })?;
        let mut held = Some(tensor(b, rows, dim)?);
        one("add", &case, 3.0 * n, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("add"))?;
            held = Some(b.add(x, &y)?);
            Ok(())
        })?;
        let mut held = Some(tensor(b, rows, ffn)?);
        one("gated", &format!("{rows} × {ffn}"), (12 * rows * ffn) as f64, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("gated"))?;
            held = Some(b.gated(x, &wide, Activation::Silu)?);
            Ok(())
        })?;
    }
    Ok(())
}

/// Rotating queries and keys and storing keys and values, with attention over the one token that a sequence has.
fn rope(bench: &mut Bench<'_>) -> Result<()> {
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

/// With the download that ends every step, so not as a graph.
fn best(bench: &mut Bench<'_>) -> Result<()> {
    let (b, vocab) = (bench.b, bench.s.vocab);
    for k in [1, 40] {
        let name = if k == 1 { "argmax" } else { "best 40" };
        let wanted = bench.wants(name);
        for &rows in bench.rows().iter().filter(|rows| **rows <= 64 && wanted) {
            let x = tensor(b, rows, vocab)?;
            let times = Clock::new(bench.run).device(1, || {
                b.best(&x, k)?;
                Ok(())
            })?;
            let figure =
                Figure::new(name, format!("{rows} × {vocab}"), times, [(4 * rows * vocab) as f64, 0.0]);
            bench.report.add("operators", figure);
        }
    }
    Ok(())
}

fn experts(bench: &mut Bench<'_>) -> Result<()> {
    let b = bench.b;
    // Mixtral 8x7B's and Qwen3 30B-A3B's.
    let real = [(8, 2, 4096, 14_336), (128, 8, 2048, 768)];
    let tiny = [(4, 2, 256, 256), (8, 2, 256, 256)];
    for (count, k, dim, hidden) in bench.run.pick(real, tiny) {
        let name = format!("moe q4_k, {k} of {count}");
        if !bench.wants(&name) {
            continue;
        }
        let one =
            |shape| Ok::<_, Box<dyn std::error::Error>>(lab::weights(b, &Q4_K, shape, 0)?.swap_remove(0));
        let up = [count, hidden, dim];
        let (gate, up, down) = (one(up)?, one(up)?, one([count, dim, hidden])?);
        let all = Experts { gate, up, down, activation: Activation::Silu };
        let spec = RouterSpec::new(k, Scoring::Softmax);
        for &rows in bench.rows() {
            let (x, logits) = (tensor(b, rows, dim)?, tensor(b, rows, count)?);
            // How many experts rows are likely to meet.
            let met = count as f64 * (1.0 - (1.0 - k as f64 / count as f64).powi(i32::try_from(rows)?));
            let each = (2 * hidden * Q4_K.row_bytes(dim) + dim * Q4_K.row_bytes(hidden)) as f64;
            let work = [met * each + (8 * rows * dim) as f64, 6.0 * (rows * k * dim * hidden) as f64];
            let case = format!("{rows} × {dim}, {hidden} hidden");
            bench.add(&name, &case, (4, None), work, &mut |_| b.moe(&x, &logits, &spec, &all).map(drop))?;
        }
    }
    Ok(())
}
