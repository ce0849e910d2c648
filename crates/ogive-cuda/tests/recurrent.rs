//! Convolutions, scans and linear attention: one launch each, against their formulas in double precision, and the same bits however rows are cut,
//! in whatever company, recorded or not, and from a state that was put back.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod common;
#[path = "common/recurrent.rs"]
mod recurrent;

use ogive_backend::tensor::Tensor;
use ogive_backend::{Backend, CacheSpec, LayerCache, Plain, Plan, StepKey};
use ogive_cuda::{Builder, CudaBackend};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};
use recurrent::{
    Operator::{self, Conv, Linear, Scan},
    Sequences,
};

/// Some that fill their blocks, some that do not, and what has few elements.
const OPERATORS: [Operator; 13] = [
    Conv { dim: 131, width: 4 },
    Conv { dim: 6, width: 1 },
    Conv { dim: 3, width: 9 },
    Scan { dim: 33, m: 16 },
    Scan { dim: 5, m: 1 },
    Scan { dim: 2, m: 131 },
    Linear { heads: 2, key_heads: 1, k_dim: 128, v_dim: 128, delta: true },
    Linear { heads: 6, key_heads: 2, k_dim: 5, v_dim: 3, delta: true },
    Linear { heads: 1, key_heads: 1, k_dim: 40, v_dim: 36, delta: true },
    Linear { heads: 2, key_heads: 2, k_dim: 160, v_dim: 33, delta: true },
    Linear { heads: 3, key_heads: 1, k_dim: 128, v_dim: 64, delta: false },
    Linear { heads: 2, key_heads: 2, k_dim: 160, v_dim: 33, delta: false },
    Linear { heads: 4, key_heads: 2, k_dim: 5, v_dim: 3, delta: false },
];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().copied().map(f32::to_bits).collect()
}

/// Runs it on this machine's GPU, or with each generation of NVRTC on one of these kinds of device.
fn on_devices(name: &str, kinds: [&str; 3], body: fn()) {
    if test::case().is_some() || CudaBackend::is_available() {
        return common::on_device(name, Nvrtc::V12, body);
    }
    for (nvrtc, kind) in Nvrtc::ALL.into_iter().zip(kinds) {
        common::on_kind(name, nvrtc, Some(kind), body);
    }
}

const KINDS: [&str; 3] = ["sm_61", "sm_80", "sm_90"];

/// Row after row by the formula, in double precision: what comes out, and the state.
fn formula(operator: Operator, s: usize, rows: usize) -> [Vec<f64>; 2] {
    let factors: Vec<f64> = operator.factors().1.into_iter().map(f64::from).collect();
    let (mut state, mut out) = (vec![0.0; operator.state()], Vec::new());
    for t in 0..rows {
        let xs: Vec<Vec<f64>> =
            operator.row(s, t).into_iter().map(|x| x.into_iter().map(f64::from).collect()).collect();
        match operator {
            Conv { dim, width } => {
                state.extend(&xs[0]);
                for c in 0..dim {
                    out.push((0..width).map(|j| factors[j * dim + c] * state[j * dim + c]).sum());
                }
                state.drain(..dim);
            }
            Scan { dim, m } => {
                for d in 0..dim {
                    let h = &mut state[d * m..][..m];
                    for (i, h) in h.iter_mut().enumerate() {
                        *h = (xs[1][d] * factors[d * m + i]).exp() * *h + xs[1][d] * xs[0][d] * xs[2][i];
                    }
                    out.push(h.iter().zip(&xs[3]).map(|(h, c)| h * c).sum());
                }
            }
            Linear { heads, key_heads, k_dim, v_dim, delta } => {
                for h in 0..heads {
                    let key = h / (heads / key_heads) * k_dim;
                    for c in 0..v_dim {
                        let at = |i: usize| (h * k_dim + i) * v_dim + c;
                        (0..k_dim).for_each(|i| state[at(i)] *= xs[3][h].exp());
                        let mut new = xs[0][h * v_dim + c];
                        if delta {
                            let found: f64 = (0..k_dim).map(|i| state[at(i)] * xs[2][key + i]).sum();
                            new = xs[4][h] * (new - found);
                        }
                        (0..k_dim).for_each(|i| state[at(i)] += new * xs[2][key + i]);
                        out.push((0..k_dim).map(|i| state[at(i)] * xs[1][key + i]).sum());
                    }
                }
            }
        }
    }
    [out, state]
}

/// Results and states are off by no more than this part of the largest of them: sums in single precision of 2^-24 each, and what a state has kept of
/// earlier ones.
const BOUND: f64 = 1e-6;

/// The most that one is off by, as a part of the largest.
fn off(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(1e-3f64, |most, v| most.max(v.abs()));
    got.iter().zip(want).fold(0.0, |most, (got, want)| most.max((f64::from(*got) - want).abs() / largest))
}

#[test]
fn results_are_those_of_the_formulas() {
    on_devices(test_name!(), KINDS, || {
        let b = CudaBackend::new().unwrap();
        for operator in OPERATORS {
            let mut all = Sequences::new(&b, operator, 2).unwrap();
            for work in [&[(0, 11), (1, 1)][..], &[(1, 2)], &[(0, 1), (1, 6)]] {
                all.step(work, 0).unwrap();
            }
            let found = [(0, 12), (1, 9)].map(|(s, rows)| {
                let [want, state] = formula(operator, s, rows);
                [off(&all.results[s], &want), off(&b.download(&all.state(s).unwrap()).unwrap(), &state)]
            });
            println!("cuda: {operator:?}: off by {found:?}");
            assert!(found.as_flattened().iter().all(|off| *off < BOUND), "{operator:?}: {found:?}");
        }
    });
}

#[test]
fn the_same_bits_in_any_company_and_however_rows_are_cut() {
    on_devices(test_name!(), KINDS, || {
        let b = CudaBackend::new().unwrap();
        for operator in OPERATORS {
            let mut alone = Sequences::new(&b, operator, 2).unwrap();
            alone.step(&[(0, 21)], 0).unwrap();
            alone.step(&[(1, 10)], 0).unwrap();
            let mut cut = Sequences::new(&b, operator, 3).unwrap();
            for work in [
                &[(0, 1), (1, 1)][..],
                &[(2, 3), (0, 9), (1, 2)],
                &[(1, 1), (2, 1), (0, 1)],
                &[(0, 2), (1, 0), (2, 9)],
                &[(0, 8), (1, 6)],
            ] {
                let rest = cut.step(work, 2).unwrap();
                let nobody: Vec<f32> = match operator {
                    Scan { .. } => (0..2).map(|i| operator.row(100, i)).flat_map(product).collect(),
                    _ => (0..2).flat_map(|i| operator.row(100, i).swap_remove(0)).collect(),
                };
                assert_eq!(bits(&rest), bits(&nobody), "{operator:?}");
            }
            for s in 0..2 {
                assert_eq!(bits(&cut.results[s]), bits(&alone.results[s]), "{operator:?}, sequence {s}");
                let states = [&cut, &alone].map(|all| bits(&b.download(&all.state(s).unwrap()).unwrap()));
                assert_eq!(states[0], states[1], "{operator:?}, state of {s}");
            }
            // One that begins where another was finds nothing of it.
            cut.restart(0);
            cut.step(&[(0, 3), (1, 1)], 0).unwrap();
            let (got, want) = (&cut.results[0], &alone.results[0]);
            assert_eq!(bits(got), bits(&want[..got.len()]), "{operator:?}, anew");
        }
    });
}

/// What a scan has for rows of nobody.
fn product(row: Vec<Vec<f32>>) -> Vec<f32> {
    row[0].iter().zip(&row[1]).map(|(x, dt)| x * dt).collect()
}

#[test]
fn a_state_that_is_put_back_goes_on_as_it_would_have() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = CudaBackend::new().unwrap();
        for operator in OPERATORS {
            let mut all = Sequences::new(&b, operator, 3).unwrap();
            all.step(&[(1, 2), (0, 5)], 0).unwrap();
            all.step(&[(0, 1)], 0).unwrap();
            // By way of the host, into slots that another sequence had.
            let kept = all.state(0).unwrap();
            let again = b.upload(&b.download(&kept).unwrap(), kept.shape()).unwrap();
            all.restore(1, &again, 0).unwrap();
            all.restore(2, &kept, 0).unwrap();
            all.step(&[(0, 3)], 0).unwrap();
            let want = all.results[0].clone();
            for s in [1, 2] {
                // Its numbers are its own: those of the first are put in their place.
                let (batch, _) = all.batch(&[(s, 3)], 0);
                let xs = operator.upload(&b, &[(0, 6), (0, 7), (0, 8)]).unwrap();
                let (extents, numbers) = operator.factors();
                let factors = b.upload(&numbers, extents.into()).unwrap();
                let y = operator.run(&b, 0, &xs, &factors, &all.cache, &b.plan(batch).unwrap()).unwrap();
                let got = b.download(&y).unwrap();
                assert_eq!(bits(&got), bits(&want[want.len() - got.len()..]), "{operator:?}, {s}");
            }
        }
    });
}

#[test]
fn sizes_without_a_kernel_are_the_definitions() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let operators = [
            Conv { dim: 2, width: 33 },
            Scan { dim: 2, m: 513 },
            Linear { heads: 2, key_heads: 1, k_dim: 257, v_dim: 2, delta: true },
            Linear { heads: 2, key_heads: 1, k_dim: 257, v_dim: 2, delta: false },
        ];
        let (own, plain) = (CudaBackend::new().unwrap(), Plain(CudaBackend::new().unwrap()));
        for operator in operators {
            let results = [&own as &dyn Backend, &plain].map(|b| {
                let mut all = Sequences::new(b, operator, 2).unwrap();
                all.step(&[(0, 2), (1, 1)], 1).unwrap();
                all.step(&[(1, 1)], 0).unwrap();
                all.results.iter().map(|y| bits(y)).collect::<Vec<_>>()
            });
            assert_eq!(results[0], results[1], "{operator:?}");
        }
    });
}

/// Each in a layer of its own, on numbers that stay: states move from step to step. What comes of each, side by side.
struct Model {
    operators: Vec<Operator>,
    inputs: Vec<Vec<Tensor>>,
    factors: Vec<Tensor>,
}

const LAYERS: [Operator; 4] = [
    Conv { dim: 40, width: 4 },
    Scan { dim: 9, m: 8 },
    Linear { heads: 2, key_heads: 1, k_dim: 16, v_dim: 24, delta: true },
    Linear { heads: 2, key_heads: 1, k_dim: 16, v_dim: 24, delta: false },
];

impl Model {
    fn new(b: &CudaBackend, rows: &[(usize, usize)]) -> Self {
        let factors = LAYERS.map(|o| o.factors()).map(|(e, n)| b.upload(&n, e.into()).unwrap());
        let inputs = LAYERS.map(|o| o.upload(b, rows).unwrap());
        Self { operators: LAYERS.into(), inputs: inputs.into(), factors: factors.into() }
    }

    fn step(
        &self,
        b: &CudaBackend,
        cache: &ogive_backend::Cache,
        plan: &Plan,
    ) -> ogive_backend::tensor::Result<Tensor> {
        let rows = plan.batch().tokens.len();
        let mut all = Vec::new();
        for (i, operator) in self.operators.iter().enumerate() {
            let y = operator.run(b, i, &self.inputs[i], &self.factors[i], cache, plan)?;
            let cols = y.shape().len() / rows;
            all.push(y.reshape([rows, cols])?);
        }
        b.concat(&all.iter().collect::<Vec<_>>(), ogive_backend::Axis::Cols)
    }
}

/// Steps of two sequences of which one begins anew on the way: their bits, and how many were replayed.
fn decoded(builder: &Builder) -> (Vec<Vec<u32>>, u64) {
    let b = builder.clone().build().unwrap();
    let layers = LAYERS.map(|o| LayerCache::State { len: o.state() }).into();
    let cache = b.new_cache(&CacheSpec::new(layers, 1, 0, 8)).unwrap();
    let model = Model::new(&b, &[(0, 0), (1, 0), (100, 0)]);
    let (mut slots, mut past) = ([[5, 2], [0, 7]], [3, 0]);
    let results = (0..14).map(|i| {
        if i == 8 {
            // Others take its places.
            (slots[0], past[0]) = ([1, 3], 0);
        }
        let mut batch = ogive_backend::Batch::default();
        (0..2).for_each(|s| batch.push(&[0], past[s], Vec::new(), slots[s]));
        batch.pad(3);
        let (key, plan) = (StepKey::of(1, &batch).unwrap(), b.plan(batch).unwrap());
        let y = b.replay(&key, &plan, &mut |plan| model.step(&b, &cache, plan)).unwrap();
        slots.iter_mut().for_each(|s| s.swap(0, 1));
        past = past.map(|past| past + 1);
        bits(&b.download(&y).unwrap())
    });
    (results.collect(), b.graphs().replayed)
}

#[test]
fn recorded_steps_are_the_same_bits() {
    on_devices(test_name!(), ["sm_75", "sm_90", "sm_120"], || {
        let (want, none) = decoded(&CudaBackend::builder().graphs(false));
        assert!(none == 0 && want.windows(2).all(|two| two[0] != two[1]));
        // Where kernels overlap, factors and the plan are read before the kernel before is done.
        for overlap in [false, true] {
            let (got, replayed) = decoded(&CudaBackend::builder().overlap(overlap));
            assert!(got == want && replayed == 13, "overlap {overlap}: {replayed} replayed");
        }
    });
}

/// Each operator's calls of the driver, of tokens and of prompts, between two marks in the emulator's trace.
#[test]
fn each_operator_is_one_launch() {
    let steps = [("tokens", [(0, 1), (1, 1), (2, 1)], 0), ("prompts", [(0, 9), (1, 0), (2, 1)], 3)];
    if test::case().is_some() {
        let b = CudaBackend::new().unwrap();
        for operator in LAYERS {
            for (what, work, nobody) in steps {
                let mut all = Sequences::new(&b, operator, 3).unwrap();
                all.step(&work, nobody).unwrap();
                let (batch, rows) = all.batch(&work, nobody);
                let (plan, xs) = (b.plan(batch).unwrap(), operator.upload(&b, &rows).unwrap());
                let (extents, numbers) = operator.factors();
                let factors = b.upload(&numbers, extents.into()).unwrap();
                eprintln!("mark: {operator:?}, {what}");
                let y = operator.run(&b, 0, &xs, &factors, &all.cache, &plan).unwrap();
                eprintln!("mark: end");
                b.download(&y).unwrap();
            }
        }
        return;
    }
    let launcher = Launcher::new()
        .set("PTX_EMU_TRACE", "1")
        .set("PTX_EMU_DEVICES", "sm_80")
        .set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    let Some(report) = test::run(test_name!(), "trace", &launcher) else { return };
    let report = report.ok();
    let mut marked = Vec::new();
    for line in report.stderr.lines() {
        match line.split_once("mark: ") {
            Some((_, "end")) => marked.push(None),
            Some((_, what)) => marked.push(Some((what, Vec::new()))),
            None => {
                if let Some(Some((_, calls))) = marked.last_mut() {
                    calls.push(line);
                }
            }
        }
    }
    let marked: Vec<_> = marked.into_iter().flatten().collect();
    assert_eq!(marked.len(), 2 * LAYERS.len());
    for (what, calls) in marked {
        let of = |name: &str| calls.iter().filter(|call| call.contains(name)).count();
        println!("cuda: {what}: {} launches", of("cuLaunchKernel"));
        let others = of("cuMemcpy") + of("cuMemset") + of("cuMemAlloc") + of("Synchronize");
        assert_eq!((of("cuLaunchKernel"), others), (1, 0), "{what}:\n{}", calls.join("\n"));
    }
}
