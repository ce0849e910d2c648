//! A Llama forward and backward, by hand.
//!
//! By hand and not by automatic differentiation: the model never changes shape, three hundred lines hold all of it, and a core
//! spends its time in products of matrices and not in keeping a tape. The gradients are compared with differences in the tests.

use crate::attention;
use crate::math::{add, exp, rows, rows_mut, set, softmax, sum};
use crate::shape::{EPS, Layer, Layout, Shape};
use std::ops::Range;

/// Texts to learn from, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// What is read.
    pub(crate) tokens: Vec<u32>,
    /// What follows each token.
    pub(crate) targets: Vec<u32>,
    /// How much each counts: 0 for what a user says.
    pub(crate) weights: Vec<f32>,
    /// The texts' places.
    pub(crate) spans: Vec<Range<usize>>,
}

/// What a layer keeps for the way back.
#[derive(Debug, Default)]
struct Kept {
    x: Vec<f32>,
    h: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    scores: Vec<f32>,
    o: Vec<f32>,
    mid: Vec<f32>,
    h2: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    act: Vec<f32>,
}

/// The way the numbers go.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
}

/// `x / rms(x) * w`, row by row.
fn norm(x: &[f32], w: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    let d = w.len();
    for (out, x) in out.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
        let r = inverse_rms(x);
        for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
            *out = x * r * w;
        }
    }
    out
}

fn inverse_rms(x: &[f32]) -> f32 {
    1.0 / (sum(x.len(), |i| x[i] * x[i]) / x.len() as f32 + EPS).sqrt()
}

/// Adds the gradient of [`norm`]'s input to `dx`, and that of its weight to `dw`.
fn norm_back(x: &[f32], w: &[f32], dy: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    let d = w.len();
    for ((x, dy), dx) in x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)) {
        let r = inverse_rms(x);
        let along = sum(d, |i| x[i] * dy[i] * w[i]) * r * r / d as f32;
        for i in 0..d {
            dx[i] += r * (dy[i] * w[i] - x[i] * along);
            dw[i] += dy[i] * x[i] * r;
        }
    }
}

/// `x · wᵀ`, `x`: `[n, cols]`, `w`: `[rows, cols]`.
fn linear(x: &[f32], w: &[f32], cols: usize) -> Vec<f32> {
    let out = w.len() / cols;
    let mut y = vec![0.0; x.len() / cols * out];
    set(rows_mut(&mut y, out), rows(x, cols), rows(w, cols).transpose(), 1.0);
    y
}

/// Adds to the gradients of [`linear`]'s input and weight.
fn linear_back(x: &[f32], w: &[f32], cols: usize, dy: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    let out = w.len() / cols;
    add(rows_mut(dx, cols), rows(dy, out), rows(w, cols), 1.0);
    add(rows_mut(dw, cols), rows(dy, out).transpose(), rows(x, cols), 1.0);
}

fn plus(x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(a, b)| a + b).collect()
}

impl Model {
    pub(crate) fn new(shape: Shape) -> Self {
        let layout = Layout::new(&shape);
        Self { shape, layout }
    }

    fn layer(&self, w: &[f32], l: &Layer, spans: &[Range<usize>], x: Vec<f32>) -> (Kept, Vec<f32>) {
        let s = &self.shape;
        let h = norm(&x, &w[l.attn_norm.clone()]);
        let mut q = linear(&h, &w[l.q.clone()], s.dim);
        let mut k = linear(&h, &w[l.k.clone()], s.dim);
        let v = linear(&h, &w[l.v.clone()], s.dim);
        attention::rope(&mut q, spans, s.heads, s.head_dim, 1.0);
        attention::rope(&mut k, spans, s.kv_heads, s.head_dim, 1.0);
        let mut scores = vec![0.0; attention::scores_len(spans, s.heads)];
        let mut o = vec![0.0; q.len()];
        attention::forward(s, spans, [&q, &k, &v], &mut scores, &mut o);
        let mid = plus(&x, &linear(&o, &w[l.o.clone()], s.heads * s.head_dim));
        let h2 = norm(&mid, &w[l.ffn_norm.clone()]);
        let gate = linear(&h2, &w[l.gate.clone()], s.dim);
        let up = linear(&h2, &w[l.up.clone()], s.dim);
        let act: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + exp(-g)) * u).collect();
        let out = plus(&mid, &linear(&act, &w[l.down.clone()], s.ffn));
        (Kept { x, h, q, k, v, scores, o, mid, h2, gate, up, act }, out)
    }

    /// The gradient of a layer's input from that of its output, in place.
    fn layer_back(
        &self,
        w: &[f32],
        l: &Layer,
        spans: &[Range<usize>],
        kept: &Kept,
        dx: &mut [f32],
        g: &mut [f32],
    ) {
        let s = &self.shape;
        let mut dact = vec![0.0; kept.act.len()];
        linear_back(&kept.act, &w[l.down.clone()], s.ffn, dx, &mut dact, &mut g[l.down.clone()]);
        let mut dup = vec![0.0; dact.len()];
        for (((da, du), gate), up) in dact.iter_mut().zip(&mut dup).zip(&kept.gate).zip(&kept.up) {
            let sigmoid = 1.0 / (1.0 + exp(-gate));
            *du = *da * gate * sigmoid;
            *da *= up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
        }
        let mut dh = vec![0.0; kept.h2.len()];
        linear_back(&kept.h2, &w[l.gate.clone()], s.dim, &dact, &mut dh, &mut g[l.gate.clone()]);
        linear_back(&kept.h2, &w[l.up.clone()], s.dim, &dup, &mut dh, &mut g[l.up.clone()]);
        norm_back(&kept.mid, &w[l.ffn_norm.clone()], &dh, dx, &mut g[l.ffn_norm.clone()]);

        let mut do_ = vec![0.0; kept.o.len()];
        linear_back(&kept.o, &w[l.o.clone()], s.heads * s.head_dim, dx, &mut do_, &mut g[l.o.clone()]);
        let (mut dq, mut dk) = (vec![0.0; kept.q.len()], vec![0.0; kept.k.len()]);
        let mut dv = vec![0.0; kept.v.len()];
        let qkv = [&kept.q[..], &kept.k, &kept.v];
        attention::backward(s, spans, qkv, &kept.scores, &do_, [&mut dq, &mut dk, &mut dv]);
        attention::rope(&mut dq, spans, s.heads, s.head_dim, -1.0);
        attention::rope(&mut dk, spans, s.kv_heads, s.head_dim, -1.0);
        dh.fill(0.0);
        linear_back(&kept.h, &w[l.q.clone()], s.dim, &dq, &mut dh, &mut g[l.q.clone()]);
        linear_back(&kept.h, &w[l.k.clone()], s.dim, &dk, &mut dh, &mut g[l.k.clone()]);
        linear_back(&kept.h, &w[l.v.clone()], s.dim, &dv, &mut dh, &mut g[l.v.clone()]);
        norm_back(&kept.x, &w[l.attn_norm.clone()], &dh, dx, &mut g[l.attn_norm.clone()]);
    }

    /// The summed, weighted loss in nats; its gradients times `scale` are added to `g` where that is given.
    pub(crate) fn loss(&self, w: &[f32], batch: &Batch, scale: f32, g: Option<&mut [f32]>) -> f64 {
        let (s, layout) = (&self.shape, &self.layout);
        let embed = &w[layout.embed.clone()];
        let row = |t: &u32| *t as usize * s.dim..(*t as usize + 1) * s.dim;
        let mut x: Vec<f32> = batch.tokens.iter().flat_map(|t| &embed[row(t)]).copied().collect();
        let mut kept = Vec::new();
        for l in &layout.layers {
            let (k, out) = self.layer(w, l, &batch.spans, x);
            kept.push(k);
            x = out;
        }
        let h = norm(&x, &w[layout.norm.clone()]);
        let mut logits = linear(&h, embed, s.dim); // [tokens, vocab]
        let mut total = 0.0;
        for ((row, target), weight) in
            logits.chunks_exact_mut(s.vocab).zip(&batch.targets).zip(&batch.weights)
        {
            let of_target = row[*target as usize];
            total += f64::from(weight * (softmax(row) - of_target));
            row[*target as usize] -= 1.0;
            for v in row.iter_mut() {
                *v *= weight * scale;
            }
        }
        let Some(g) = g else { return total };
        let mut dh = vec![0.0; h.len()];
        linear_back(&h, embed, s.dim, &logits, &mut dh, &mut g[layout.embed.clone()]);
        let mut dx = vec![0.0; x.len()];
        norm_back(&x, &w[layout.norm.clone()], &dh, &mut dx, &mut g[layout.norm.clone()]);
        for (l, kept) in layout.layers.iter().zip(&kept).rev() {
            self.layer_back(w, l, &batch.spans, kept, &mut dx, g);
        }
        let embed = &mut g[layout.embed.clone()];
        for (t, dx) in batch.tokens.iter().zip(dx.chunks_exact(s.dim)) {
            for (e, d) in embed[row(t)].iter_mut().zip(dx) {
                *e += d;
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Differences of the loss are computed in single precision too, so sums over random directions are compared and not
    /// single weights.
    #[test]
    fn gradients_are_differences() {
        let shape =
            Shape { vocab: 24, dim: 16, layers: 2, heads: 4, kv_heads: 2, head_dim: 8, ffn: 24, context: 32 };
        let model = Model::new(shape);
        let mut rng = Rng::new(7);
        let w: Vec<f32> = (0..model.layout.len).map(|_| 0.4 * rng.normal()).collect();
        let mut some = |n: usize| (0..n).map(|_| rng.below(24) as u32).collect::<Vec<_>>();
        let batch = Batch {
            tokens: some(19),
            targets: some(19),
            weights: (0..19).map(|i| if i % 5 == 4 { 0.0 } else { 1.0 }).collect(),
            spans: vec![0..7, 7..8, 8..19],
        };
        let mut g = vec![0.0; w.len()];
        model.loss(&w, &batch, 1.0, Some(&mut g));
        for t in &model.layout.tensors {
            let mut direction = vec![0.0; w.len()];
            direction[t.range()].iter_mut().for_each(|d| *d = rng.normal());
            let step = 2e-2 / ((t.rows * t.cols) as f32).sqrt();
            let at = |sign: f32| {
                let moved: Vec<f32> = w.iter().zip(&direction).map(|(w, d)| w + sign * step * d).collect();
                model.loss(&moved, &batch, 1.0, None)
            };
            let found = (at(1.0) - at(-1.0)) / f64::from(2.0 * step);
            let told: f64 = g.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
            assert!((found - told).abs() < 0.01 * told.abs() + 0.02, "{}: {told} but {found}", t.name);
        }
    }
}
