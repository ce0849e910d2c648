//! Muon for the matrices within layers, AdamW for the rest.
//!
//! Muon (Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>) makes every direction of a matrix's momentum equally
//! large, so that what is rare is learned too: a capital stands in one text of a hundred. The price is that noise is made as large
//! as what it hides, so with steps of few tokens its rate has to fall early.

use crate::math::{add, rows, rows_mut, set, sum};
use crate::shape::{Layout, Tensor};

/// Momentum of both.
const BETA: [f32; 2] = [0.9, 0.98];
const MUON_BETA: f32 = 0.95;
/// How much matrices shrink in a step of rate 1.
const DECAY: f32 = 0.05;

/// What the optimizer remembers.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) first: Vec<f32>,
    pub(crate) second: Vec<f32>,
    /// Steps taken.
    pub(crate) step: u64,
}

/// How large this step is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) adam: f32,
    pub(crate) muon: f32,
}

impl State {
    pub(crate) fn new(len: usize) -> Self {
        Self { first: vec![0.0; len], second: vec![0.0; len], step: 0 }
    }

    /// Moves the weights against the gradients `g`, which are used up.
    pub(crate) fn step(&mut self, layout: &Layout, w: &mut [f32], g: &mut [f32], rates: Rates) {
        self.step += 1;
        clip(g);
        for t in &layout.tensors {
            if t.is_hidden_matrix() {
                self.muon(t, w, g, rates.muon);
            } else {
                self.adam(t, w, g, rates.adam);
            }
        }
    }

    fn adam(&mut self, t: &Tensor, w: &mut [f32], g: &[f32], rate: f32) {
        let [b1, b2] = BETA;
        let power = i32::try_from(self.step).unwrap_or(i32::MAX);
        let (c1, c2) = (1.0 - b1.powi(power), 1.0 - b2.powi(power));
        for i in t.range() {
            self.first[i] = b1 * self.first[i] + (1.0 - b1) * g[i];
            self.second[i] = b2 * self.second[i] + (1.0 - b2) * g[i] * g[i];
            w[i] -= rate * (self.first[i] / c1) / ((self.second[i] / c2).sqrt() + 1e-8);
        }
    }

    fn muon(&mut self, t: &Tensor, w: &mut [f32], g: &mut [f32], rate: f32) {
        let (w, g, m) = (&mut w[t.range()], &mut g[t.range()], &mut self.first[t.range()]);
        for (g, m) in g.iter_mut().zip(m.iter_mut()) {
            *m = MUON_BETA * *m + (1.0 - MUON_BETA) * *g;
            *g = MUON_BETA * *m + (1.0 - MUON_BETA) * *g; // Nesterov's
        }
        orthogonal(g, t.rows, t.cols);
        let rate_of_shape = rate * (t.rows as f32 / t.cols as f32).max(1.0).sqrt();
        for (w, g) in w.iter_mut().zip(g) {
            *w -= rate_of_shape * *g + rate * DECAY * *w;
        }
    }
}

/// Shortens a gradient longer than 1 to that.
fn clip(g: &mut [f32]) {
    let length = g.chunks(4096).map(|c| f64::from(sum(c.len(), |i| c[i] * c[i]))).sum::<f64>().sqrt() as f32;
    if length > 1.0 {
        g.iter_mut().for_each(|g| *g /= length);
    }
}

/// The nearest matrix whose rows (or columns, of which there are fewer) are orthonormal, about: five steps of Newton and
/// Schulz with the coefficients of the source.
fn orthogonal(g: &mut [f32], height: usize, width: usize) {
    let [a, b, c] = [3.4445, -4.7750, 2.0315];
    let length = sum(g.len(), |i| g[i] * g[i]).sqrt() + 1e-7;
    g.iter_mut().for_each(|g| *g /= length);
    // x: [n, n or more]
    let tall = height > width;
    let transposed = |x: &[f32], h: usize, w: usize| -> Vec<f32> {
        (0..w).flat_map(|j| (0..h).map(move |i| x[i * w + j])).collect()
    };
    let mut x = if tall { transposed(g, height, width) } else { g.to_vec() };
    let (n, m) = (height.min(width), height.max(width));
    let (mut square, mut fourth) = (vec![0.0; n * n], vec![0.0; n * n]);
    for _ in 0..5 {
        set(rows_mut(&mut square, n), rows(&x, m), rows(&x, m).transpose(), 1.0);
        set(rows_mut(&mut fourth, n), rows(&square, n), rows(&square, n), c);
        for (f, s) in fourth.iter_mut().zip(&square) {
            *f += b * s;
        }
        let mut next: Vec<f32> = x.iter().map(|x| a * x).collect();
        add(rows_mut(&mut next, m), rows(&fourth, n), rows(&x, m), 1.0);
        x = next;
    }
    g.copy_from_slice(&if tall { transposed(&x, width, height) } else { x });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn directions_become_equally_large() {
        let mut rng = Rng::new(3);
        for (h, w) in [(8, 20), (20, 8), (16, 16)] {
            let mut g: Vec<f32> = (0..h * w).map(|_| rng.normal()).collect();
            orthogonal(&mut g, h, w);
            let n = h.min(w);
            let mut p = vec![0.0; n * n];
            let m = rows(&g, w);
            if h <= w {
                set(rows_mut(&mut p, n), m, m.transpose(), 1.0)
            } else {
                set(rows_mut(&mut p, n), m.transpose(), m, 1.0)
            }
            for (i, v) in p.iter().enumerate() {
                let wanted = if i % (n + 1) == 0 { 0.4..1.6 } else { -0.5..0.5 };
                assert!(wanted.contains(v), "{h} x {w}, {i}: {v}");
            }
        }
    }

    #[test]
    fn long_gradients_are_shortened() {
        let mut g = [3.0, 4.0];
        clip(&mut g);
        assert!((g[0] - 0.6).abs() < 1e-6 && (g[1] - 0.8).abs() < 1e-6);
    }
}
