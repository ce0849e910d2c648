//! Operators that carry a state along each sequence, with numbers for any token of any sequence, on any backend.

use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Backend, Batch, Cache, CacheSpec, LayerCache, Plan};

/// An operator and its sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operator {
    Conv {
        dim: usize,
        width: usize,
    },
    Scan {
        dim: usize,
        m: usize,
    },
    /// Linear attention, by the delta rule or without.
    Linear {
        heads: usize,
        key_heads: usize,
        k_dim: usize,
        v_dim: usize,
        delta: bool,
    },
}

use Operator::{Conv, Linear, Scan};

/// What an input's numbers lie between.
type Range = [f32; 2];

/// A number for each place.
fn number(seed: usize, at: usize, [least, most]: Range) -> f32 {
    let mixed = (at + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503_277)) as u32;
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(2_246_822_519);
    least + (most - least) * ((mixed ^ mixed >> 13) >> 8) as f32 / 16_777_216.0
}

impl Operator {
    /// Extents of a row of each input, the first of which has the result's too, and what its numbers lie between.
    pub(crate) fn inputs(self) -> Vec<(Vec<usize>, Range)> {
        let row = |extents: &[usize], range| (extents.to_vec(), range);
        match self {
            Conv { dim, .. } => vec![row(&[dim], [-1.0, 1.0])],
            Scan { dim, m } => vec![
                row(&[dim], [-1.0, 1.0]),
                row(&[dim], [0.01, 1.0]),
                row(&[m], [-1.0, 1.0]),
                row(&[m], [-1.0, 1.0]),
            ],
            // Keys are of a length of about one.
            Linear { heads, key_heads, k_dim, v_dim, delta } => {
                let most = (3.0 / k_dim as f32).sqrt();
                let mut all = vec![
                    row(&[heads, v_dim], [-1.0, 1.0]),
                    row(&[key_heads, k_dim], [-most, most]),
                    row(&[key_heads, k_dim], [-most, most]),
                    row(&[heads], [-0.5, 0.0]),
                ];
                all.extend(delta.then(|| row(&[heads], [0.0, 1.0])));
                all
            }
        }
    }

    /// Extents and numbers of what is the same for all rows.
    pub(crate) fn factors(self) -> ([usize; 2], Vec<f32>) {
        let numbers = |extents: [usize; 2], range| {
            (extents, (0..extents[0] * extents[1]).map(|i| number(99, i, range)).collect())
        };
        match self {
            Conv { dim, width } => numbers([width, dim], [-1.0, 1.0]),
            Scan { dim, m } => numbers([dim, m], [-4.0, -0.1]),
            Linear { .. } => numbers([1, 1], [0.0, 1.0]),
        }
    }

    pub(crate) fn state(self) -> usize {
        match self {
            Conv { dim, width } => (width - 1) * dim,
            Scan { dim, m } => dim * m,
            Linear { heads, k_dim, v_dim, .. } => heads * k_dim * v_dim,
        }
    }

    /// What token `t` of sequence `s` has in each input.
    pub(crate) fn row(self, s: usize, t: usize) -> Vec<Vec<f32>> {
        let of = |(i, (extents, range)): (usize, (Vec<usize>, Range))| {
            let len: usize = extents.iter().product();
            (0..len).map(|at| number(7 * i + 31 * s + 1, t * len + at, range)).collect()
        };
        self.inputs().into_iter().enumerate().map(of).collect()
    }

    /// The inputs of these tokens of these sequences.
    pub(crate) fn upload(self, b: &dyn Backend, rows: &[(usize, usize)]) -> Result<Vec<Tensor>> {
        let all: Vec<Vec<Vec<f32>>> = rows.iter().map(|&(s, t)| self.row(s, t)).collect();
        let one = |(i, (extents, _)): (usize, (Vec<usize>, Range))| {
            let values: Vec<f32> = all.iter().flat_map(|row| row[i].iter().copied()).collect();
            let shape = match extents[..] {
                [a, b] => [rows.len(), a, b].into(),
                _ => [rows.len(), extents[0]].into(),
            };
            b.upload(&values, shape)
        };
        self.inputs().into_iter().enumerate().map(one).collect()
    }

    /// Runs it in layer `layer`.
    pub(crate) fn run(
        self,
        b: &dyn Backend,
        layer: usize,
        xs: &[Tensor],
        factors: &Tensor,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        match (self, xs) {
            (Conv { .. }, [x]) => b.causal_conv(layer, x, factors, cache, plan),
            (Scan { .. }, [x, dt, bs, cs]) => b.selective_scan(layer, x, dt, factors, bs, cs, cache, plan),
            (Linear { .. }, [v, q, k, g, rest @ ..]) => {
                b.linear_attention(layer, q, k, v, g, rest.first(), cache, plan)
            }
            _ => unreachable!("inputs are those of the operator"),
        }
    }
}

/// Sequences that all run through one operator.
pub(crate) struct Sequences<'a> {
    b: &'a dyn Backend,
    operator: Operator,
    factors: Tensor,
    pub(crate) cache: Cache,
    /// Tokens so far, and slots, of each.
    all: Vec<(usize, [u32; 2])>,
    /// What came of each, row after row.
    pub(crate) results: Vec<Vec<f32>>,
}

impl<'a> Sequences<'a> {
    pub(crate) fn new(b: &'a dyn Backend, operator: Operator, count: u32) -> Result<Self> {
        let spec =
            CacheSpec::new(vec![LayerCache::State { len: operator.state() }], 1, 0, 2 * count as usize);
        let (extents, numbers) = operator.factors();
        Ok(Self {
            b,
            operator,
            factors: b.upload(&numbers, extents.into())?,
            cache: b.new_cache(&spec)?,
            all: (0..count).map(|i| (0, [2 * i, 2 * i + 1])).collect(),
            results: vec![Vec::new(); count as usize],
        })
    }

    /// A step of so many tokens of these sequences, with rows of nobody's, and its rows.
    pub(crate) fn batch(&self, work: &[(usize, usize)], nobody: usize) -> (Batch, Vec<(usize, usize)>) {
        let (mut batch, mut rows) = (Batch::default(), Vec::new());
        for &(s, len) in work {
            let (past, slots) = self.all[s];
            batch.push(&vec![0; len], past, Vec::new(), slots);
            rows.extend((past..past + len).map(|t| (s, t)));
        }
        batch.pad(rows.len() + nobody);
        rows.extend((0..nobody).map(|i| (100, i)));
        (batch, rows)
    }

    /// Runs a step; gives rows of nobody's.
    pub(crate) fn step(&mut self, work: &[(usize, usize)], nobody: usize) -> Result<Vec<f32>> {
        let (batch, rows) = self.batch(work, nobody);
        let (plan, xs) = (self.b.plan(batch)?, self.operator.upload(self.b, &rows)?);
        let y = self.operator.run(self.b, 0, &xs, &self.factors, &self.cache, &plan)?;
        assert_eq!(y.shape(), xs[0].shape());
        let mut values = self.b.download(&y)?;
        let width = y.shape().len() / rows.len().max(1);
        for &(s, len) in work {
            self.results[s].extend(values.drain(..len * width));
            self.counted(s, len);
        }
        Ok(values)
    }

    /// A step with so many tokens of a sequence happened.
    pub(crate) fn counted(&mut self, s: usize, len: usize) {
        self.all[s].0 += len;
        self.all[s].1.swap(0, 1);
    }

    /// Begins a sequence anew, in the slots that it has.
    pub(crate) fn restart(&mut self, s: usize) {
        self.all[s].0 = 0;
        self.results[s].clear();
    }

    /// The state of a sequence.
    pub(crate) fn state(&self, s: usize) -> Result<Tensor> {
        self.b.read_state(0, &self.cache, &self.b.plan(self.batch(&[(s, 0)], 0).0)?)
    }

    /// Gives a sequence that state and the tokens and results of another.
    pub(crate) fn restore(&mut self, s: usize, state: &Tensor, of: usize) -> Result<()> {
        self.b.write_state(0, state, &self.cache, &self.b.plan(self.batch(&[(s, 0)], 0).0)?)?;
        self.counted(s, 0);
        self.all[s].0 = self.all[of].0;
        self.results[s] = self.results[of].clone();
        Ok(())
    }
}
