//! Attention against its definition in double precision, and bit for bit against itself cut differently.

mod common;

use common::{Numbers, backend, backends, bits, close, collect, rows, schedule, step, two_threads};
use ogive_backend::{AttnOption, AttnSpec, Backend, CacheSpec, LayerCache, tensor::*};
use ogive_cpu::Path;
use std::sync::Arc;

/// Queries, keys and values of some sequences.
struct Case {
    spec: AttnSpec,
    lens: Vec<usize>,
    q: Vec<Vec<f32>>,
    k: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

impl Case {
    fn new(spec: AttnSpec, lens: &[usize], seed: u64) -> Self {
        let mut n = Numbers::new(seed);
        let mut make = |width: usize| lens.iter().map(|l| n.vec(l * width)).collect::<Vec<_>>();
        let (q, k, v) = (
            make(spec.heads * spec.k_dim),
            make(spec.kv_heads * spec.k_dim),
            make(spec.kv_heads * spec.v_dim),
        );
        Self { spec, lens: lens.to_vec(), q, k, v }
    }

    /// Everything each sequence gives, computed in steps of at most `piece` rows of each of `which`.
    fn run(
        &self,
        b: &dyn Backend,
        which: &[usize],
        piece: usize,
        cache: &CacheSpec,
        fused: bool,
    ) -> Vec<Vec<f32>> {
        let s = &self.spec;
        let cache = b.new_cache(cache).unwrap();
        let lens: Vec<usize> =
            (0..self.lens.len()).map(|i| if which.contains(&i) { self.lens[i] } else { 0 }).collect();
        let mut out = vec![Vec::new(); lens.len()];
        for parts in schedule(&lens, piece) {
            let plan = step(b, &parts, lens.len(), &lens, cache.spec().block_len, 1);
            let q = rows(b, &self.q, &parts, &[s.heads * s.k_dim]);
            let k = rows(b, &self.k, &parts, &[s.kv_heads * s.k_dim]);
            let v = rows(b, &self.v, &parts, &[s.kv_heads * s.v_dim]);
            b.store_kv(0, &k, Some(&v), &cache, &plan).unwrap();
            let y = if fused {
                b.attend_cache(0, &q, &cache, s, &plan).unwrap()
            } else {
                let (k, v) = b.gather_kv(0, &cache, &plan).unwrap();
                b.attend(&q, &k, &v.unwrap(), s, &plan).unwrap()
            };
            collect(&mut out, &parts, &b.download(&y).unwrap());
        }
        out
    }

    fn cache(&self, block_len: usize, element: &'static Format) -> CacheSpec {
        let s = &self.spec;
        let layer = LayerCache::full(s.kv_heads * s.k_dim, s.kv_heads * s.v_dim);
        let blocks = self.lens.iter().map(|n| n.div_ceil(block_len)).max().unwrap_or(0) * self.lens.len();
        CacheSpec::new(vec![layer], block_len, blocks, 0).element(element)
    }

    /// Sequence `i` by the book; keys and values first rounded to `element`. `causal` only.
    fn truth(&self, i: usize, element: &'static Format, sinks: Option<&[f32]>) -> Vec<f64> {
        let (s, n) = (&self.spec, self.lens[i]);
        let round = |x: &[f32], width: usize| -> Vec<f32> {
            x.chunks(width)
                .flat_map(|row| {
                    let (mut packed, mut back) = (vec![0; element.row_bytes(width)], vec![0.0; width]);
                    element.encode_row(row, &mut packed).unwrap();
                    element.decode_row(&packed, &mut back);
                    back
                })
                .collect()
        };
        let (kw, vw) = (s.kv_heads * s.k_dim, s.kv_heads * s.v_dim);
        let (k, v) = (round(&self.k[i], kw), round(&self.v[i], vw));
        let mut out = Vec::new();
        for here in 0..n {
            for h in 0..s.heads {
                let kv = h / (s.heads / s.kv_heads);
                let q = &self.q[i][(here * s.heads + h) * s.k_dim..][..s.k_dim];
                let mut p: Vec<f64> = s
                    .visible(here, n)
                    .map(|t| {
                        let k = &k[t * kw + kv * s.k_dim..][..s.k_dim];
                        let dot: f64 = q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                        let mut score = dot * f64::from(s.scale);
                        for option in &s.options {
                            match option {
                                AttnOption::SoftCap(c) => {
                                    score = f64::from(*c) * (score / f64::from(*c)).tanh()
                                }
                                AttnOption::Alibi(a) => score -= f64::from(a[h]) * here.abs_diff(t) as f64,
                                _ => {}
                            }
                        }
                        score
                    })
                    .collect();
                let sink = sinks.map(|s| f64::from(s[h]));
                let max = p.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                p.iter_mut().for_each(|v| *v = (*v - max).exp());
                let sum = p.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
                out.extend((0..s.v_dim).map(|d| {
                    let of = |(t, p): (usize, &f64)| p / sum * f64::from(v[t * vw + kv * s.v_dim + d]);
                    s.visible(here, n).zip(&p).map(of).sum::<f64>()
                }));
            }
        }
        out
    }
}

fn specs() -> Vec<AttnSpec> {
    let slopes: Arc<[f32]> = vec![0.5, 0.25, 0.125, 0.0625, 0.03, 0.02].into();
    vec![
        AttnSpec::causal(6, 2, 32),
        AttnSpec::causal(6, 6, 32).with(AttnOption::Window(40)),
        AttnSpec::new(6, 1, 32, 64).scale(0.3).with(AttnOption::SoftCap(0.7)),
        AttnSpec::causal(6, 3, 32).with(AttnOption::Alibi(slopes)),
    ]
}

#[test]
fn is_what_it_says_in_every_element() {
    // The last has rows that are no whole vectors.
    for (i, spec) in specs().into_iter().chain([AttnSpec::causal(4, 2, 12)]).enumerate() {
        let row = spec.kv_heads * spec.k_dim;
        let case = Case::new(spec, &[300, 5], i as u64);
        let fits = |f: &&Format| row.is_multiple_of(f.block_len);
        for element in [&F32, &F16, &BF16, &Q8_0, &Q4_0].into_iter().filter(fits) {
            for (block_len, fused) in [(16, true), (16, false), (5, true)] {
                let got = case.run(&two_threads(), &[0, 1], 1000, &case.cache(block_len, element), fused);
                for (i, got) in got.iter().enumerate() {
                    close(got, &case.truth(i, element, None), 2e-6);
                }
            }
        }
    }
}

#[test]
fn cuts_threads_paths_and_neighbours_change_no_bit() {
    let lens = [300, 5, 33, 1, 70, 16, 20, 9];
    let all: Vec<usize> = (0..lens.len()).collect();
    for (i, spec) in specs().into_iter().enumerate() {
        // What is not causal sees later rows of its step, so it cannot be cut.
        let causal = spec.visible(0, 2).len() == 1;
        let case = Case::new(spec, &lens, 10 + i as u64);
        for element in [&F32, &F16, &Q8_0] {
            let cache = case.cache(16, element);
            let want = case.run(&two_threads(), &all, 1000, &cache, true);
            let same = |got: &[Vec<f32>], which: &[usize]| {
                which.iter().for_each(|&i| assert_eq!(bits(&got[i]), bits(&want[i]), "sequence {i}"));
            };
            for b in backends() {
                same(&case.run(&b, &all, 1000, &cache, true), &all);
                if causal {
                    same(&case.run(&b, &all, 7, &cache, true), &all);
                    same(&case.run(&b, &[0], 64, &cache, true), &[0]);
                    same(&case.run(&b, &[2], 1, &cache, true), &[2]);
                }
            }
            same(&case.run(&two_threads(), &[0], 1000, &cache, true), &[0]);
            same(&case.run(&two_threads(), &all, 1000, &case.cache(6, element), true), &all);
            same(&case.run(&two_threads(), &all, 1000, &cache, false), &all);
        }
    }
}

/// A step of one row has loops of its own, by the number of heads that share a key head and by what they are kept in.
#[test]
fn a_single_row_gets_the_bits_it_has_among_many() {
    let groups = [1, 2, 3, 4, 7, 8, 9];
    let dims = [(16, 16), (32, 48), (64, 64), (96, 160), (128, 128), (40, 24)];
    for (i, (group, (k_dim, v_dim))) in groups.iter().zip(dims.into_iter().cycle()).enumerate() {
        for (n, window) in [(2, 100), (17, 100), (257, 1000), (290, 270)] {
            let mut spec = AttnSpec::new(2 * group, 2, k_dim, v_dim).with(AttnOption::Causal);
            spec = spec.with(AttnOption::Window(window));
            let case = Case::new(spec, &[n], 50 + i as u64);
            for element in [&F32, &F16, &BF16, &Q8_0] {
                if k_dim * 2 % element.block_len + v_dim * 2 % element.block_len > 0 {
                    continue;
                }
                let cache = case.cache(16, element);
                let want = case.run(&backend(Path::Scalar, 1), &[0], 1000, &cache, true);
                for path in Path::ALL.iter().filter(|path| path.is_supported()) {
                    let b = backend(*path, 2);
                    let got = case.run(&b, &[0], n - 1, &cache, true);
                    let what = format!("{group} heads of {k_dim} and {v_dim}, {n} tokens, {}", element.name);
                    assert_eq!(bits(&got[0]), bits(&want[0]), "{what}, {}", b.facts().description);
                }
            }
        }
    }
}

/// What is not a number reaches the rows that see it and no others, be they computed together.
#[test]
fn what_a_row_does_not_see_it_does_not_touch() {
    let at = 300;
    for (group, window) in [(1, 1000), (1, 50), (4, 50), (3, 1000)] {
        let spec = AttnSpec::causal(2 * group, 2, 32).with(AttnOption::Window(window));
        let width = spec.heads * spec.v_dim;
        let mut case = Case::new(spec, &[400], 70 + window as u64);
        case.v[0][at * 64..][..64].fill(f32::NAN);
        for element in [&F32, &F16, &Q8_0] {
            for b in backends() {
                for piece in [1000, 77] {
                    let got = case.run(&b, &[0], piece, &case.cache(16, element), true);
                    for (t, row) in got[0].chunks_exact(width).enumerate() {
                        let sees = (at..at + window).contains(&t);
                        assert!(
                            row.iter().all(|v| v.is_nan() == sees),
                            "row {t}, {window}, {}",
                            element.name
                        );
                    }
                }
            }
        }
    }
}

/// Several chunks: their states are merged, and for a last row alone they are shared out too.
#[test]
fn long_contexts_have_the_bits_of_the_scalar_path() {
    for (i, (spec, n)) in [
        (AttnSpec::causal(2, 1, 32), 1500),
        (AttnSpec::new(1, 1, 64, 32).with(AttnOption::Causal).with(AttnOption::Window(700)), 1100),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(spec, &[n], 80 + i as u64);
        for element in [&F32, &F16, &BF16, &Q8_0] {
            let cache = case.cache(16, element);
            let want = case.run(&backend(Path::Scalar, 2), &[0], n, &cache, true);
            for path in Path::ALL.iter().filter(|path| path.is_supported()) {
                let b = backend(*path, 2);
                let got = case.run(&b, &[0], n - 1, &cache, true);
                assert_eq!(bits(&got[0]), bits(&want[0]), "case {i}, {}, {path}", element.name);
            }
            // Pages that are no whole tiles are unpacked first.
            let general = case.run(&two_threads(), &[0], n, &case.cache(6, element), true);
            assert_eq!(bits(&general[0]), bits(&want[0]), "case {i}, {}, unpacked", element.name);
        }
    }
}

/// Scores of billions, the largest halves, and masks that leave some or all of a row.
#[test]
fn large_magnitudes_and_masks_have_the_bits_of_the_scalar_path() {
    let n = 300;
    let masked = |i: usize, t: usize| match i % 5 {
        // Nothing is left.
        0 => f32::NEG_INFINITY,
        // Nothing of the first chunk, of some tiles, of anything but one token.
        1 if t < 256 => f32::NEG_INFINITY,
        2 if t / 16 % 2 == 1 => f32::NEG_INFINITY,
        3 if t != i / 2 => f32::NEG_INFINITY,
        // The numbers that others take for infinity.
        4 if t.is_multiple_of(3) => f32::MIN,
        4 if t % 3 == 1 => -1e9,
        _ => 0.0,
    };
    let mask: Vec<f32> = (0..n).flat_map(|i| (0..n).map(move |t| masked(i, t))).collect();
    let mask = two_threads().upload(&mask, [n, n].into()).unwrap();
    for (i, (k_dim, v_dim)) in [(32, 32), (64, 64)].into_iter().enumerate() {
        for (what, spec) in [
            ("causal", AttnSpec::new(4, 2, k_dim, v_dim).with(AttnOption::Causal)),
            ("masked", AttnSpec::new(4, 2, k_dim, v_dim).with(AttnOption::Mask(mask.clone()))),
        ] {
            let mut case = Case::new(spec, &[n], 90 + i as u64);
            for (values, scale) in [(&mut case.q, 1e4), (&mut case.k, 1e4), (&mut case.v, 65504.0)] {
                values[0].iter_mut().for_each(|v| *v *= scale);
            }
            for element in [&F32, &F16, &BF16, &Q8_0] {
                let cache = case.cache(16, element);
                let want = case.run(&backend(Path::Scalar, 2), &[0], n, &cache, true);
                assert!(want[0].iter().all(|v| v.abs() < 1e5), "{what}, {}", element.name);
                if what == "masked" {
                    let nothing = want[0].chunks(4 * v_dim).step_by(5).flatten();
                    assert!(nothing.into_iter().all(|v| *v == 0.0), "{}", element.name);
                }
                for path in Path::ALL.iter().filter(|path| path.is_supported()) {
                    let got = case.run(&backend(*path, 2), &[0], n, &cache, true);
                    assert_eq!(bits(&got[0]), bits(&want[0]), "{what}, {}, {path}", element.name);
                }
                let general = case.run(&two_threads(), &[0], n, &case.cache(6, element), true);
                assert_eq!(bits(&general[0]), bits(&want[0]), "{what}, {}, unpacked", element.name);
            }
        }
    }
}
