//! The oracle against numbers worked out by hand: nothing else checks it, so these are small enough to check by eye.

use ogive_backend::tensor::{Bytes, F16, F32, HostWeight, Q8_0, Result, Scale, Tensor};
use ogive_backend::*;
use ogive_conformance::Oracle;
use std::sync::Arc;

fn up<const N: usize>(values: &[f32], shape: [usize; N]) -> Tensor {
    Oracle.upload(values, shape.into()).unwrap()
}

fn down(x: Result<Tensor>) -> Vec<f32> {
    Oracle.download(&x.unwrap()).unwrap()
}

fn step(spans: &[(usize, usize)]) -> Batch {
    let mut batch = Batch::default();
    for (i, &(past, len)) in spans.iter().enumerate() {
        let table = BlockTable { first: 0, blocks: vec![2 * i as u32, 2 * i as u32 + 1] };
        batch.push(&vec![7; len], past, vec![table], [2 * i as u32, 2 * i as u32 + 1]);
    }
    batch
}

#[test]
fn broadcasting_repeats_rows_and_columns_of_either_side() {
    let x = || up(&[1., 2., 3., 4., 5., 6.], [2, 3]);
    assert_eq!(down(Oracle.mul(x(), &up(&[1., 10.], [2, 1]))), [1., 2., 3., 40., 50., 60.]);
    assert_eq!(down(Oracle.mul(x(), &up(&[1., 0., 2.], [3]))), [1., 0., 6., 4., 0., 12.]);
    assert_eq!(down(Oracle.add(up(&[1., 2.], [2, 1]), &up(&[3., 4.], [1, 2]))), [4., 5., 5., 6.]);
    let y = Oracle.add(up(&[1., 2.], [1, 2]), &up(&[1., 1., 2., 2.], [2, 1, 2])).unwrap();
    assert_eq!((y.shape().dims(), down(Ok(y.clone()))), (&[2, 1, 2][..], vec![2., 3., 3., 4.]));
    assert!(Oracle.mul(x(), &up(&[1., 2.], [1, 2])).is_err());
    assert!(Oracle.upload(&[1.0], [2, usize::MAX].into()).is_err());
}

#[test]
fn norms_and_functions_have_their_textbook_values() {
    let x = up(&[3., 4.], [1, 2]);
    let rms = down(Oracle.rms_norm(&x, &up(&[1., 2.], [2]), 0.0));
    assert_eq!(rms, [3.0 / 12.5f32.sqrt(), 8.0 / 12.5f32.sqrt()]);
    let b = up(&[10., 20.], [2]);
    assert_eq!(down(Oracle.layer_norm(&x, &up(&[1., 2.], [2]), Some(&b), 0.0)), [9., 22.]);
    assert_eq!(down(Oracle.sum(&up(&[1., 2., 3., 4.], [2, 2]))), [3., 7.]);
    let above = down(Oracle.activate(up(&[-3., -0., 0.5, 3.], [4]), Activation::Relu));
    assert_eq!(above, [0., 0., 0.5, 3.]);
    let squares = down(Oracle.activate(up(&[-3., -0., 0.5, 3.], [4]), Activation::ReluSquared));
    assert_eq!(squares, [0., 0., 0.25, 9.]);
    // Above 0, at it, below the bound, and between.
    let numbers = Xielu { positive: 2.0, negative: 4.0, linear: 0.5, bound: -0.25 };
    let xielu = down(Oracle.activate(up(&[3., 0., -1., -0.125], [4]), Activation::Xielu(numbers)));
    let below = |x: f64| 4.0 * (x.min(-0.25).exp() - 1.0 - x) + 0.5 * x;
    assert_eq!(xielu, [19.5, below(0.0) as f32, below(-1.0) as f32, below(-0.125) as f32]);
    let at_one = |f| down(Oracle.activate(up(&[1.0], [1]), f))[0];
    for (f, want) in [
        (Activation::Silu, 0.731_058_6),
        (Activation::Gelu, 0.841_344_7),
        (Activation::GeluTanh, 0.841_192),
        (Activation::QuickGelu, 0.845_795_8),
        (Activation::Tanh, 0.761_594_2),
        (Activation::Exp, std::f32::consts::E),
        (Activation::Softplus, 1.313_261_7),
        (Activation::Sigmoid, 0.731_058_6),
    ] {
        assert!((at_one(f) - want).abs() < 2e-7, "{f:?}");
    }
}

#[test]
fn rope_turns_by_position_in_either_layout() {
    let plan = Oracle.plan(step(&[(1, 1)])).unwrap();
    let quarter = Rope::new([std::f32::consts::FRAC_PI_2, 0.0]).factor(2.0);
    let x = || up(&[1., 2., 3., 4., 5.], [1, 1, 5]);
    let near =
        |y: Vec<f32>, want: [f32; 5]| assert!(y.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
    near(down(Oracle.rope(x(), &quarter, &plan)), [-6., 4., 2., 8., 5.]);
    near(down(Oracle.rope(x(), &quarter.layout(RopeLayout::Pairs), &plan)), [-4., 2., 6., 8., 5.]);
}

fn route(logits: &[f32], spec: &RouterSpec) -> (Vec<f32>, Vec<f32>) {
    // The ids are the oracle's own; experts that answer with their number tell which they are.
    let n = logits.len();
    let w = |f: &dyn Fn(usize) -> f32| {
        let values: Vec<f32> = (0..n).map(f).collect();
        Oracle.upload_weight(&HostWeight::from_f32("w", [n, 1, 1], &values).unwrap()).unwrap()
    };
    let weights = [w(&|_| 0.0), w(&|_| 1.0), w(&|e| 2f32.powi(e as i32))];
    let experts = Experts::new(weights, Activation::Exp);
    let routing = Oracle.route(&up(logits, [1, n]), spec).unwrap();
    let weights = down(Ok(routing.weights.clone()));
    (down(Oracle.experts(&up(&[1.0], [1, 1]), &routing, &experts)), weights)
}

#[test]
fn routers_choose_as_described() {
    let pair = RouterSpec::new(2, Scoring::Softmax);
    assert_eq!(route(&[1., 3., 3., 2.], &pair), (vec![0.5 * 2. + 0.5 * 4.], vec![0.5, 0.5]));
    assert_eq!(route(&[5.; 4], &RouterSpec::new(1, Scoring::Softmax)).0, [1.0]);
    assert_eq!(route(&[0., 0., -90., -90.], &pair.clone().unnormalised(2.0)).1, [1.0, 1.0]);
    let sigmoid = RouterSpec::new(1, Scoring::Sigmoid).unnormalised(1.0);
    assert_eq!(route(&[0., 0., -9., -9.], &sigmoid).1, [0.5]);
    // The best expert is in the group whose best two are worse.
    let grouped = RouterSpec::new(2, Scoring::Sigmoid).grouped(2, 1, 2);
    assert_eq!(route(&[4., -9., 3., 3.], &grouped).0, [0.5 * 4. + 0.5 * 8.]);
    let (y, weight) = route(&[0., 3.], &sigmoid.biased(up(&[9., 0.], [2])));
    assert_eq!((y, weight), (vec![0.5], vec![0.5]), "a bias chooses and does not weigh");
    assert!(Oracle.route(&up(&[1., 2.], [1, 2]), &RouterSpec::new(3, Scoring::Softmax)).is_err());
}

fn attend(options: &[AttnOption], n: usize) -> Result<Tensor> {
    let mut batch = Batch::default();
    batch.push(&vec![0; n], 0, Vec::new(), [0, 1]);
    let spec = options.iter().cloned().fold(AttnSpec::new(1, 1, 1, 1), AttnSpec::with);
    let v: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (q, k) = (up(&vec![0.0; n], [n, 1]), up(&v, [n, 1]));
    Oracle.attend(&q, &k, &k, &spec, &Oracle.plan(batch)?)
}

#[test]
fn attention_options_do_what_they_say_or_fail() {
    use AttnOption::*;
    assert_eq!(down(attend(&[], 3)), [1., 1., 1.]);
    assert_eq!(down(attend(&[Causal], 3)), [0., 0.5, 1.]);
    assert_eq!(down(attend(&[Causal, Window(2)], 3)), [0., 0.5, 1.5]);
    assert_eq!(down(attend(&[Window(2), Ahead(1)], 4)), [0.5, 1., 2., 2.5]);
    assert_eq!(down(attend(&[Causal, Sinks(up(&[0.0], [1]))], 2)), [0., 1. / 3.]);
    assert_eq!(down(attend(&[Causal, Alibi(Arc::from([1000.0]))], 3)), [0., 1., 2.]);
    let never = f32::NEG_INFINITY;
    let mask = up(&[0., never, never, never, 0., 0., never, never, never], [3, 3]);
    assert_eq!(down(attend(&[Mask(mask)], 3)), [0., 1.5, 0.], "who sees nothing gives zeros");
    // Options apply in their order: capped before or after the mask is added.
    let push = || Mask(up(&[0., 5., 0., 5.], [2, 2]));
    assert_ne!(down(attend(&[push(), SoftCap(1.0)], 2)), down(attend(&[SoftCap(1.0), push()], 2)));
    let e = attend(&[Other("block sparse")], 3).unwrap_err().to_string();
    assert!(e.contains("block sparse"), "{e}");
}

#[test]
fn pages_round_share_and_forget() {
    let layers = vec![LayerCache::windowed(1, 1, 2, 0), LayerCache::Shares(0)];
    let cache = Oracle.new_cache(&CacheSpec::new(layers, 2, 2, 2).element(&F16)).unwrap();
    let mut batch = Batch::default();
    batch.push(&[7], 2, vec![BlockTable { first: 1, blocks: vec![0] }], [0, 1]);
    let plan = Oracle.plan(batch.clone()).unwrap();
    let x = up(&[2049.0], [1, 1]);
    Oracle.store_kv(0, &x, Some(&x), &cache, &plan).unwrap();
    assert_eq!(down(Oracle.gather_kv(1, &cache, &plan).map(|(k, _)| k)), [0., 0., 2048.]);
    batch.copies.push(BlockCopy { group: 0, from: 0, to: 1 });
    batch.spans[0].tables[0].blocks[0] = 1;
    let plan = Oracle.plan(batch).unwrap();
    Oracle.copy_blocks(&cache, &plan).unwrap();
    assert_eq!(down(Oracle.gather_kv(0, &cache, &plan).map(|(_, v)| v.unwrap())), [0., 0., 2048.]);
    assert!(Oracle.store_kv(0, &x, None, &cache, &plan).is_err(), "the layer wants values");
    assert!(Oracle.store_kv(1, &x, Some(&x), &cache, &plan).is_err(), "another's pages");
    let circle = CacheSpec::new(vec![LayerCache::Shares(0)], 2, 2, 2);
    assert!(Oracle.new_cache(&circle).is_err(), "shares with itself");
    assert!(Oracle.read_state(0, &cache, &plan).is_err(), "no state");
    let odd = CacheSpec::new(vec![LayerCache::full(8, 8)], 2, 2, 2).element(&Q8_0);
    assert!(Oracle.new_cache(&odd).is_err(), "rows are not whole blocks");
}

#[test]
fn states_are_read_from_one_slot_and_written_to_the_other() {
    let cache = Oracle.new_cache(&CacheSpec::new(vec![LayerCache::State { len: 2 }], 1, 0, 4)).unwrap();
    let first = Oracle.plan(step(&[(0, 1), (0, 2)])).unwrap();
    assert_eq!(down(Oracle.read_state(0, &cache, &first)), [0.; 4]);
    Oracle.write_state(0, &up(&[1., 2., 3., 4.], [2, 2]), &cache, &first).unwrap();
    assert_eq!(down(Oracle.read_state(0, &cache, &first)), [0.; 4], "a past of 0 is fresh");
    let mut next = step(&[(1, 1), (2, 1)]);
    assert_eq!(down(Oracle.read_state(0, &cache, &Oracle.plan(next.clone()).unwrap())), [0.; 4]);
    next.spans.iter_mut().for_each(|s| s.slots.swap(0, 1));
    assert_eq!(down(Oracle.read_state(0, &cache, &Oracle.plan(next).unwrap())), [1., 2., 3., 4.]);
}

#[test]
fn weights_honour_what_stands_beside_their_bytes() {
    let file: Arc<Vec<u8>> = Arc::new((0..12u8).flat_map(|i| f32::from(i).to_le_bytes()).collect());
    let w = HostWeight::new("w", [1, 4, 2], &F32, Bytes::new(file, 16..48).unwrap()).unwrap();
    let w = w.with_scale(Scale { values: Arc::from([1., 10.]), tile: [2, 2] }).unwrap();
    let mut w = w.with_input_perm(Arc::from([1, 0])).unwrap();
    let own = Oracle.upload_weight(&w).unwrap();
    assert_eq!(down(Oracle.linear(&up(&[1., 0.], [1, 2]), &own)), [5., 7., 90., 110.]);
    w.shape = [1, 5, 2];
    assert!(Oracle.upload_weight(&w).is_err(), "fields are public and may lie");
}

#[test]
fn steps_that_do_not_fit_are_refused() {
    let bad = |edit: &dyn Fn(&mut Batch)| {
        let mut batch = step(&[(0, 2), (3, 1)]);
        edit(&mut batch);
        Oracle.plan(batch).is_err()
    };
    assert!(!bad(&|_| {}) && !bad(&|b| b.pad(8)));
    assert!(bad(&|b| b.outputs.push(3)));
    assert!(bad(&|b| b.spans[1].start = 1));
    assert!(bad(&|b| b.spans[1].len = usize::MAX));
    assert!(bad(&|b| b.spans[1].past = usize::MAX));
    assert!(bad(&|b| b.positions.truncate(2)));
    assert!(bad(&|b| b.types.clear()));
}
