//! Products with weights, by themselves and in mixtures of experts.
use super::Bench;
use crate::Result;
use crate::lab::{self, rotate, tensor};
use ogive::backend::{Activation, Backend, Experts, RouterSpec, Scoring};
use ogive::tensor::{F16, FEW_BITS, FORMATS, Format, Q4_K, Q8_0};

/// Bytes and operations of a product; activations are single precision.
fn product(format: &Format, rows: usize, cols: usize, inner: usize) -> [f64; 2] {
    let bytes = cols * format.row_bytes(inner) + 4 * rows * (inner + cols);
    [bytes as f64, 2.0 * rows as f64 * cols as f64 * inner as f64]
}

pub(super) fn linear(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    // Formats of few bits are many and one source: a trial run has the first of them.
    let all = FORMATS.iter().filter(|f| !FEW_BITS.contains(f) || !bench.run.smoke || f.name == "iq1_s");
    let all = all.map(|f| (*f, [s.ffn, s.dim]));
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

pub(super) fn gated(bench: &mut Bench<'_>) -> Result<()> {
    let (b, super::Sizes { dim, ffn, .. }) = (bench.b, bench.s);
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
pub(super) fn many(bench: &mut Bench<'_>) -> Result<()> {
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

pub(super) fn experts(bench: &mut Bench<'_>) -> Result<()> {
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
        let all = Experts::new([gate, up, down], Activation::Silu);
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

/// A product of its own for each head: what latent attention does to queries before it and to values behind it, of DeepSeek V3.
pub(super) fn each(bench: &mut Bench<'_>) -> Result<()> {
    let (b, [heads, inner, cols]) = (bench.b, bench.run.pick([128, 128, 512], [4, 256, 64]));
    for format in [&F16, &Q8_0] {
        let name = format!("linear_each {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let one = |_| Ok(lab::weights(b, format, [1, cols, inner], 0)?.swap_remove(0));
        let all = || (0..heads).map(one).collect::<Result<Vec<_>>>();
        // Together more than the L2 holds.
        let ws = (0..bench.run.pick(8, 1)).map(|_| all()).collect::<Result<Vec<_>>>()?;
        for &rows in bench.rows().iter().filter(|rows| **rows <= 512) {
            let x = tensor(b, rows * heads, inner)?.reshape([rows, heads, inner])?;
            let work = product(format, rows, cols, inner).map(|n| n * heads as f64);
            let case = format!("{rows} × {heads} heads × {inner} → {cols}");
            let calls = Bench::calls(rows, ws.len());
            bench.add(&name, &case, calls, work, &mut |i| b.linear_each(&x, &ws[i % ws.len()]).map(drop))?;
        }
    }
    Ok(())
}

/// Choosing experts: Mixtral's and Qwen3's ways, and DeepSeek V3's, by groups with a bias.
pub(super) fn route(bench: &mut Bench<'_>) -> Result<()> {
    let b = bench.b;
    let soft = |k| RouterSpec::new(k, Scoring::Softmax);
    let bias = b.upload(&lab::values(256), [256].into())?;
    let grouped = RouterSpec::new(8, Scoring::Sigmoid).grouped(8, 4, 2).biased(bias);
    for (count, way, spec) in [(8, "", soft(2)), (128, "", soft(8)), (256, " in groups", grouped)] {
        let name = format!("route, {} of {count}{way}", spec.k);
        if !bench.wants(&name) {
            continue;
        }
        for &rows in bench.rows() {
            let logits = tensor(b, rows, count)?;
            let bytes = (4 * rows * (count + 2 * spec.k)) as f64;
            let case = format!("{rows} × {count}");
            bench.add(&name, &case, (16, None), [bytes, 0.0], &mut |_| b.route(&logits, &spec).map(drop))?;
        }
    }
    Ok(())
}
