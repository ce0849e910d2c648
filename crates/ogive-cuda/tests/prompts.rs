//! Attention of prompts in a half, by tensor cores: what the oracle says up to the half's rounding, and the same bits in any company.
#![allow(clippy::print_stdout)]

#[path = "common/attention.rs"]
mod attention;
mod common;

use attention::Case;
use ogive_backend::tensor::{BF16, F16, F32, Format, Q8_0};
use ogive_backend::{AttnOption, AttnSpec, Backend};
use ogive_conformance::Oracle;
use ogive_cuda::{Compute, CudaBackend};
use ptx_emulator_launcher::{Nvrtc, test_name};

fn backend(compute: Compute) -> CudaBackend {
    CudaBackend::builder().compute(compute).build().unwrap()
}

/// Tokens before the step and rows in it: prompts whole and continued, ends within tiles, and two sequences that decode.
fn sequences() -> Vec<(usize, usize)> {
    vec![(0, 90), (300, 1), (37, 64), (100, 17), (5, 3), (0, 16)]
}

fn case(name: &'static str, element: &'static Format, spec: AttnSpec) -> Case {
    Case { element, sequences: sequences(), ..Case::new(name, spec, &[]) }
}

/// Scores err by the rounding of queries and keys, weights by as much as scores, and the result by that and the rounding of weights and values.
fn bound(compute: Compute) -> f64 {
    match compute {
        Compute::F16 => 4.0 * 2f64.powi(-11),
        _ => 4.0 * 2f64.powi(-8),
    }
}

fn agrees(b: &CudaBackend, compute: Compute, case: &Case) {
    let seeds: Vec<u64> = (1..=case.sequences.len() as u64).collect();
    let (got, want) = (case.run(b, &seeds).unwrap(), case.run(&Oracle, &seeds).unwrap());
    let (mut row, mut long, mut short) = (0, 0f64, 0f64);
    for &(past, rows) in &case.sequences {
        for i in row..row + rows {
            let square = |v: f32| f64::from(v) * f64::from(v);
            let wrong: f64 = got[i].iter().zip(&want[i]).map(|(a, b)| square(a - b)).sum();
            let all: f64 = want[i].iter().map(|v| square(*v)).sum();
            assert!(all > 0.0 && got[i].len() == want[i].len(), "{}: a row of zeros after {past}", case.name);
            let worst = if rows < 16 { &mut short } else { &mut long };
            *worst = worst.max((wrong / all).sqrt());
        }
        row += rows;
    }
    println!("cuda: {compute:?} {:32} {long:.1e}, others {short:.1e}", case.name);
    assert!(long < bound(compute), "{}: off by {long:e}", case.name);
    assert!(long > 0.001 * bound(compute), "{}: {long:e} is single precision", case.name);
    assert!(short < 1e-5, "{}: short spans are off by {short:e}", case.name);
}

/// Heads of more than `widest` do not fit the device's shared memory, and are computed in single precision.
fn all_agree(b: &CudaBackend, compute: Compute, widest: usize) {
    let window = |n| AttnSpec::causal(4, 2, 32).with(AttnOption::Window(n));
    let cases = [
        case("a group of four", &F16, AttnSpec::causal(8, 2, 64)),
        case("one head each, bf16", &BF16, AttnSpec::causal(2, 2, 32)),
        case("a group of seven, f32", &F32, AttnSpec::causal(7, 1, 40)),
        case("q8_0", &Q8_0, AttnSpec::causal(4, 2, 96)),
        case("wide heads", &F16, AttnSpec::causal(2, 1, 128)),
        case("the widest, bf16", &BF16, AttnSpec::causal(2, 2, 256)),
        case("other values", &F16, AttnSpec::new(4, 2, 24, 8).with(AttnOption::Causal)),
        case("all of the context", &F16, AttnSpec::new(2, 2, 16, 16)),
        case("a window", &F16, window(20)),
        case("a window over tiles", &BF16, window(100)),
        case("chunks", &F16, AttnSpec::causal(4, 2, 32).with(AttnOption::Chunk(50))),
        case("a soft cap", &F16, AttnSpec::causal(4, 2, 32).with(AttnOption::SoftCap(2.0))),
        case(
            "slopes",
            &F32,
            AttnSpec::causal(4, 2, 32).with(AttnOption::Alibi([0.5, 0.25, 0.1, 0.01].into())),
        ),
        Case { sinks: true, ..case("sinks", &F16, window(33)) },
    ];
    cases.iter().filter(|case| case.spec.k_dim <= widest).for_each(|case| agrees(b, compute, case));
}

#[test]
fn prompts_in_f16() {
    common::on_device(test_name!(), Nvrtc::V12, || all_agree(&backend(Compute::F16), Compute::F16, 256));
}

#[test]
fn prompts_in_bf16() {
    common::on_device(test_name!(), Nvrtc::V13, || all_agree(&backend(Compute::Bf16), Compute::Bf16, 256));
}

#[test]
fn prompts_in_f16_on_sm_75() {
    let kind = Some("sm_75");
    common::on_kind(test_name!(), Nvrtc::V11, kind, || all_agree(&backend(Compute::F16), Compute::F16, 128));
}

/// What is beyond the range of f16 counts as its largest number, of queries and of caches that hold more. Sums of some 1e5 are rounded to 1 in
/// 128, so weights of tokens are off by as much as a hundredth where two keys score alike.
#[test]
fn what_is_beyond_f16_is_cut() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = backend(Compute::F16);
        let places = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, -1.0]];
        for (element, sides) in [&F32, &BF16, &F16].into_iter().flat_map(|e| places.map(|p| (e, p))) {
            // A cache of halves has infinities there, as it was told to.
            if std::ptr::eq(element, &F16) && sides[0] == 0.0 {
                continue;
            }
            let rows = |b: &dyn Backend, size: f32| {
                let spikes = sides.map(|s: f32| Some(s * size).filter(|v| *v != 0.0));
                let spec = AttnSpec::causal(4, 2, 32);
                Case { element, sequences: vec![(0, 40)], spikes, ..Case::new("", spec, &[]) }.run(b, &[1])
            };
            let (got, want) = (rows(&b, 1e6).unwrap(), rows(&Oracle, 65504.0).unwrap());
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let size = want.iter().map(|v| v.abs()).fold(0f32, f32::max);
                let off = got.iter().zip(want).map(|(a, b)| (a - b).abs());
                let bad = off.filter(|v| !v.is_finite() || f64::from(v / size) > 0.01).count();
                assert_eq!(bad, 0, "{} {sides:?}, row {i}: {got:?} for {want:?}", element.name);
            }
        }
    });
}

/// What a backend attends in by the cache's elements is, to the bit, what one attends in that was told so.
#[test]
fn caches_are_read_as_they_are_kept() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let bits = |compute, element| -> Vec<Vec<u32>> {
            let case = Case {
                element,
                sequences: vec![(0, 40), (30, 1)],
                ..Case::new("", AttnSpec::causal(4, 2, 32), &[])
            };
            let rows = case.run(&backend(compute), &[1, 2]).unwrap();
            rows.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
        };
        let kept =
            [(&F32, Compute::F32), (&F16, Compute::F16), (&BF16, Compute::Bf16), (&Q8_0, Compute::F16)];
        for (element, compute) in kept {
            assert!(bits(Compute::Auto, element) == bits(compute, element), "{}", element.name);
        }
    });
}

/// A prompt's bits, and those of a sequence that decodes, do not depend on what else is in the step.
#[test]
fn the_same_bits_in_any_company() {
    common::on_device(test_name!(), Nvrtc::V11, || {
        let b = backend(Compute::F16);
        let spec = AttnSpec::causal(6, 2, 32).with(AttnOption::Window(150));
        let rows = |sequences: &[(usize, usize)], seeds: &[u64]| -> Vec<Vec<u32>> {
            let case = Case { sequences: sequences.into(), ..Case::new("", spec.clone(), &[]) };
            let rows = case.run(&b, seeds).unwrap();
            rows.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
        };
        let (prompt, next) = (rows(&[(50, 40)], &[1]), rows(&[(300, 1)], &[2]));
        let both = rows(&[(300, 1), (50, 40)], &[2, 1]);
        assert_eq!((&both[..1], &both[1..]), (&next[..], &prompt[..]));
        let more = rows(&[(0, 21), (50, 40), (10, 2), (300, 1)], &[7, 1, 8, 2]);
        assert_eq!((&more[21..61], &more[63..]), (&prompt[..], &next[..]));
    });
}

/// With so much company a warp has 32 queries, alone 16: blocks of the former would be fewer than multiprocessors.
#[test]
fn the_same_bits_in_much_company() {
    common::on_device(test_name!(), Nvrtc::V12, || {
        let b = backend(Compute::F16);
        let spec = AttnSpec::causal(64, 32, 16).with(AttnOption::Window(70));
        let rows = |sequences: &[(usize, usize)], seeds: &[u64]| -> Vec<Vec<u32>> {
            let case = Case { sequences: sequences.into(), ..Case::new("", spec.clone(), &[]) };
            let rows = case.run(&b, seeds).unwrap();
            rows.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
        };
        let (prompt, both) = (rows(&[(50, 40)], &[1]), rows(&[(0, 21), (50, 40), (9, 259)], &[7, 1, 3]));
        assert!(both[21..61] == prompt[..]);
    });
}

/// Many heads, so that a warp has 32 queries where a device lets it: prompts whole and continued, of which some meet in a block.
fn many_heads() {
    let (b, heads) = (backend(Compute::F16), AttnSpec::causal(192, 192, 8));
    let sequences = vec![(0, 50), (70, 1), (37, 33), (5, 3), (100, 17)];
    let some = |name, spec| Case { sequences: sequences.clone(), ..Case::new(name, spec, &[]) };
    agrees(&b, Compute::F16, &some("many heads", heads.clone()));
    agrees(&b, Compute::F16, &some("many heads with a soft cap", heads.with(AttnOption::SoftCap(2.0))));
}

#[test]
fn prompts_of_many_heads() {
    common::on_device(test_name!(), Nvrtc::V13, many_heads);
}

#[test]
fn prompts_of_many_heads_on_sm_75() {
    common::on_kind(test_name!(), Nvrtc::V12, Some("sm_75"), many_heads);
}
