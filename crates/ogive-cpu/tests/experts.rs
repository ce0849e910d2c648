//! A row's experts give it the same bits by itself and among so many rows that a step multiplies them in several rounds.

use ogive_backend::tensor::{F32, Format, Q8_0, Shape};
use ogive_backend::{Activation, Backend, Experts, Gating, HostWeight, RouterSpec, Scoring, Weight};
use ogive_cpu::CpuBackend;

const ROWS: usize = 300;
const EXPERTS: usize = 8;
const DIM: usize = 64;
const HIDDEN: usize = 96;

/// Numbers between -1 and 1 that repeat from run to run.
fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed;
    let next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn weight(b: &CpuBackend, format: &'static Format, seed: u32, shape: [usize; 3]) -> Weight {
    let values = noise(seed, shape.iter().product());
    let bytes: Vec<u8> = if format.name == Q8_0.name {
        // A scale of a thousandth before the codes of 32.
        let block =
            |v: &[f32]| [vec![0x19, 0x14], v.iter().map(|v| (v * 127.0) as i8 as u8).collect()].concat();
        values.chunks(32).flat_map(block).collect()
    } else {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    };
    b.upload_weight(&HostWeight::new("w", shape, format, bytes.into()).unwrap()).unwrap()
}

#[test]
fn a_row_has_the_same_bits_among_many() {
    // One thread, so that a round has the fewest rows: 256 of the 900 that the experts have together.
    let b = CpuBackend::builder().threads(1).build().unwrap();
    let up = |values: &[f32], shape: Shape| b.upload(values, shape).unwrap();
    let x = noise(1, ROWS * DIM);
    // One expert is chosen by most rows, and one by none.
    let mut logits = noise(2, ROWS * EXPERTS);
    logits.chunks_exact_mut(EXPERTS).for_each(|row| (row[3], row[5]) = (row[3] + 1.5, -9.0));
    for format in [&F32, &Q8_0] {
        let wide = [EXPERTS, HIDDEN, DIM];
        let ws = || {
            [
                weight(&b, format, 3, wide),
                weight(&b, format, 4, wide),
                weight(&b, format, 5, [EXPERTS, DIM, HIDDEN]),
            ]
        };
        let bias = [(6, HIDDEN), (7, HIDDEN), (8, DIM)];
        let bias = bias.map(|(seed, n)| up(&noise(seed, EXPERTS * n), [EXPERTS, n].into()));
        let plain = Experts::new(ws(), Activation::Silu);
        let gpt_oss = Experts::new(ws(), Activation::QuickGelu).biased(bias);
        let [_, upward, down] = ws();
        let ungated = Experts::ungated([upward, down], Activation::ReluSquared);
        for experts in [plain, gpt_oss.gating(Gating::Clamped { limit: 0.5 }), ungated] {
            let of = |x: &[f32], logits: &[f32]| {
                let n = x.len() / DIM;
                let logits = up(logits, [n, EXPERTS].into());
                let routing = b.route(&logits, &RouterSpec::new(3, Scoring::Softmax)).unwrap();
                let y = b.experts(&up(x, [n, DIM].into()), &routing, &experts).unwrap();
                b.download(&y).unwrap()
            };
            let all = of(&x, &logits);
            assert!(all.iter().all(|v| v.is_finite()) && all.iter().any(|v| *v != 0.0));
            let rows = x.chunks_exact(DIM).zip(logits.chunks_exact(EXPERTS));
            for (i, ((x, logits), want)) in rows.zip(all.chunks_exact(DIM)).enumerate() {
                assert_eq!(of(x, logits), want, "{}, row {i}", format.name);
            }
        }
    }
}
