//! Causal attention within each text, rotary positions, and both their gradients.
//!
//! A batch is a flat list of tokens, and a text is a span of them that sees nothing else, as in Ogive's own steps. So nothing
//! is padded, and a text in training sees what it will see alone.

use crate::math::{add, set, softmax, sum, view, view_mut};
use crate::shape::{Shape, THETA};
use std::ops::Range;

/// Turns neighbouring pairs of every head by the token's position; `sign` -1 turns back. `x`: `[tokens, heads * head_dim]`
pub(crate) fn rope(x: &mut [f32], spans: &[Range<usize>], heads: usize, head_dim: usize, sign: f32) {
    let longest = spans.iter().map(Range::len).max().unwrap_or(0);
    let half = head_dim / 2;
    let angle = |p: usize, i: usize| p as f64 * f64::from(THETA).powf(-2.0 * i as f64 / head_dim as f64);
    let table: Vec<(f32, f32)> = (0..longest * half)
        .map(|j| angle(j / half, j % half))
        .map(|a| (a.cos() as f32, sign * a.sin() as f32))
        .collect();
    for span in spans {
        for (p, t) in span.clone().enumerate() {
            let row = &mut x[t * heads * head_dim..(t + 1) * heads * head_dim];
            for head in row.chunks_exact_mut(head_dim) {
                for (pair, (cos, sin)) in head.chunks_exact_mut(2).zip(&table[p * half..(p + 1) * half]) {
                    let (a, b) = (pair[0], pair[1]);
                    pair[0] = a * cos - b * sin;
                    pair[1] = a * sin + b * cos;
                }
            }
        }
    }
}

/// Floats that the probabilities of these spans take.
pub(crate) fn scores_len(spans: &[Range<usize>], heads: usize) -> usize {
    spans.iter().map(|s| s.len() * s.len() * heads).sum()
}

/// `out = softmax(q · kᵀ / √d) · v` for each head within each span; the probabilities stay in `scores`.
pub(crate) fn forward(
    s: &Shape,
    spans: &[Range<usize>],
    [q, k, v]: [&[f32]; 3],
    scores: &mut [f32],
    out: &mut [f32],
) {
    let (d, qs, ks) = (s.head_dim, s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let scale = 1.0 / (d as f32).sqrt();
    let mut at = 0;
    for span in spans {
        let n = span.len();
        for h in 0..s.heads {
            let (own, shared) = (span.start * qs + h * d, span.start * ks + h * s.kv_heads / s.heads * d);
            let p = &mut scores[at..at + n * n];
            at += n * n;
            let (q, k, v) =
                (view(&q[own..], n, d, qs), view(&k[shared..], n, d, ks), view(&v[shared..], n, d, ks));
            set(view_mut(p, n, n, n), q, k.transpose(), scale);
            for (i, row) in p.chunks_exact_mut(n).enumerate() {
                softmax(&mut row[..=i]);
                row[i + 1..].fill(0.0);
            }
            set(view_mut(&mut out[own..], n, d, qs), view(p, n, n, n), v, 1.0);
        }
    }
}

/// Gradients of q, k and v from that of the output. `dk` and `dv` are added to.
pub(crate) fn backward(
    s: &Shape,
    spans: &[Range<usize>],
    [q, k, v]: [&[f32]; 3],
    scores: &[f32],
    dout: &[f32],
    [dq, dk, dv]: [&mut [f32]; 3],
) {
    let (d, qs, ks) = (s.head_dim, s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let scale = 1.0 / (d as f32).sqrt();
    let longest = spans.iter().map(Range::len).max().unwrap_or(0);
    let mut buffer = vec![0.0; longest * longest];
    let mut at = 0;
    for span in spans {
        let n = span.len();
        for h in 0..s.heads {
            let (own, shared) = (span.start * qs + h * d, span.start * ks + h * s.kv_heads / s.heads * d);
            let p = &scores[at..at + n * n];
            at += n * n;
            let dp = &mut buffer[..n * n];
            let dout = view(&dout[own..], n, d, qs);
            add(view_mut(&mut dv[shared..], n, d, ks), view(p, n, n, n).transpose(), dout, 1.0);
            set(view_mut(dp, n, n, n), dout, view(&v[shared..], n, d, ks).transpose(), 1.0);
            for (i, (dp, p)) in dp.chunks_exact_mut(n).zip(p.chunks_exact(n)).enumerate() {
                let mean = sum(i + 1, |j| dp[j] * p[j]);
                for (dp, p) in dp.iter_mut().zip(p) {
                    *dp = p * (*dp - mean);
                }
            }
            let ds = view(dp, n, n, n);
            set(view_mut(&mut dq[own..], n, d, qs), ds, view(&k[shared..], n, d, ks), scale);
            add(view_mut(&mut dk[shared..], n, d, ks), ds.transpose(), view(&q[own..], n, d, qs), scale);
        }
    }
}
