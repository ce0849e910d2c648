//! Operators that run along a sequence: near their definitions, and the same bits on every path, by any number of threads and however a
//! sequence is cut.

mod common;

use common::{Numbers, backends, bits, close, collect, rows, schedule};
use ogive_backend::{Backend, Batch, CacheSpec, LayerCache, Plain, Plan};
use ogive_cpu::CpuBackend;

/// Tokens of two sequences.
const LENS: [usize; 2] = [7, 4];

#[derive(Clone, Copy, Debug)]
enum Operator {
    Conv { width: usize, dim: usize },
    Attention { key_heads: usize, heads: usize, k_dim: usize, v_dim: usize, delta: bool },
}
use Operator::{Attention, Conv};

/// Shapes on both sides of what vectors hold, of what is taken together and of what is worth a thread.
fn operators() -> Vec<Operator> {
    let convs = [(1, 5), (2, 64), (3, 147), (4, 700), (4, 4100)].map(|(width, dim)| Conv { width, dim });
    let sizes = [[1, 1, 1, 1], [2, 4, 8, 16], [1, 3, 5, 7], [2, 2, 16, 147], [4, 8, 64, 128]];
    let attentions = sizes.into_iter().flat_map(|[key_heads, heads, k_dim, v_dim]| {
        [false, true].map(|delta| Attention { key_heads, heads, k_dim, v_dim, delta })
    });
    convs.into_iter().chain(attentions).collect()
}

impl Operator {
    fn state(self) -> usize {
        match self {
            Conv { width, dim } => (width - 1) * dim,
            Attention { heads, k_dim, v_dim, .. } => heads * k_dim * v_dim,
        }
    }

    /// What each sequence gives, with its state behind it, in steps of at most `piece` rows of each. A row of nobody follows in each step.
    fn run(self, b: &dyn Backend, piece: usize, one_slot: bool) -> Vec<Vec<f32>> {
        let cache =
            b.new_cache(&CacheSpec::new(vec![LayerCache::State { len: self.state() }], 1, 0, 4)).unwrap();
        let mut out = vec![Vec::new(); LENS.len()];
        for (turn, mut parts) in schedule(&LENS, piece).into_iter().enumerate() {
            let mut batch = Batch::default();
            for &(i, past, len) in &parts {
                let slot = |turn: usize| (2 * i + if one_slot { 0 } else { turn % 2 }) as u32;
                batch.push(&vec![1; len], past, Vec::new(), [slot(turn), slot(turn + 1)]);
            }
            batch.tokens.push(0);
            batch.positions.push(0);
            batch.types.push(0);
            let plan = b.plan(batch).unwrap();
            // Of nobody, but the same in every step: the first of a sequence that is not in it.
            parts.push((LENS.len(), 0, 1));
            let y = self.once(b, &parts, &cache, &plan);
            let (nobody, y) = (y.len() - y.len() / (plan.batch().tokens.len()), y);
            parts.pop();
            collect(&mut out, &parts, &y[..nobody]);
            let states = b.download(&b.read_state(0, &cache, &plan).unwrap()).unwrap();
            assert_eq!(states.len(), parts.len() * self.state());
        }
        // What a last step without rows reads is what the others left.
        let mut batch = Batch::default();
        for (i, len) in LENS.into_iter().enumerate() {
            let turns = if one_slot { 0 } else { len.div_ceil(piece) % 2 };
            batch.push(&[], len, Vec::new(), [(2 * i + turns) as u32; 2]);
        }
        let plan = b.plan(batch).unwrap();
        let states = b.download(&b.read_state(0, &cache, &plan).unwrap()).unwrap();
        for (out, state) in out.iter_mut().zip(states.chunks(self.state().max(1))) {
            out.extend(state);
        }
        out
    }

    /// One step.
    fn once(
        self,
        b: &dyn Backend,
        parts: &[(usize, usize, usize)],
        cache: &ogive_backend::Cache,
        plan: &Plan,
    ) -> Vec<f32> {
        let drawn = |seed: u64, shape: &[usize], by: f32| {
            let width: usize = shape.iter().product();
            let mut numbers = Numbers::new(seed);
            let mut make = |len: usize| numbers.vec(len * width).into_iter().map(|v| v * by).collect();
            let all: Vec<Vec<f32>> = LENS.into_iter().chain([1]).map(&mut make).collect();
            rows(b, &all, parts, shape)
        };
        let y = match self {
            Conv { width, dim } => {
                let taps = b.upload(&Numbers::new(9).vec(width * dim), [width, dim].into()).unwrap();
                b.causal_conv(0, &drawn(1, &[dim], 1.0), &taps, cache, plan)
            }
            Attention { key_heads, heads, k_dim, v_dim, delta } => {
                let length = (k_dim as f32).powf(-0.5);
                let [q, k] = [1, 2].map(|seed| drawn(seed, &[key_heads, k_dim], length));
                let v = drawn(3, &[heads, v_dim], 1.0);
                let [g, beta] = [4, 5].map(|seed| drawn(seed, &[heads], 0.5));
                b.linear_attention(0, &q, &k, &v, &g, delta.then_some(&beta), cache, plan)
            }
        };
        b.download(&y.unwrap()).unwrap()
    }
}

#[test]
fn they_are_near_their_definitions() {
    let cpu = CpuBackend::builder().build().unwrap();
    let plain = Plain(CpuBackend::builder().build().unwrap());
    for operator in operators() {
        for one_slot in [false, true] {
            let [got, want] = [&cpu as &dyn Backend, &plain].map(|b| operator.run(b, 3, one_slot));
            for (got, want) in got.iter().zip(&want) {
                let want: Vec<f64> = want.iter().map(|v| f64::from(*v)).collect();
                close(got, &want, 4e-6);
            }
        }
    }
}

#[test]
fn they_give_the_same_bits_however_they_are_computed() {
    for operator in operators() {
        let plain = CpuBackend::builder().threads(1).path(ogive_cpu::Path::Scalar).build().unwrap();
        let want = operator.run(&plain, LENS[0], false);
        for b in backends() {
            for (piece, one_slot) in [(1, false), (2, true), (3, false), (LENS[0], false), (LENS[0], true)] {
                let got = operator.run(&b, piece, one_slot);
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let how = format!("{operator:?}, {b:?}, sequence {i}, {piece} rows at a time");
                    assert!(bits(got) == bits(want), "{how}, in one slot: {one_slot}");
                }
            }
        }
    }
}
