//! A promise of the CPU: a token's logits are the same to the bit whatever else is in the step, however the prompt was
//! cut, and on any number of threads.

mod common;

use common::*;
use ogive::backend::{Batch, BlockTable, CacheSpec};
use ogive::nn::Step;
use ogive::tensor::{BF16, F16, F32, Format, Q8_0};
use ogive::{Device, Model, Options};
use std::path::Path;

/// Tokens of a block of the cache that are no whole tile of keys.
const BLOCK: usize = 4;

/// The logits of every token of each text: `steps` says how many rows of which text are computed together, in order.
fn run(
    model: &Model,
    texts: &[Vec<u32>],
    steps: &[Vec<(usize, usize)>],
    element: &'static Format,
) -> Vec<Vec<f32>> {
    run_in(BLOCK, model, texts, steps, element)
}

/// The same with `block` tokens in a block of the cache.
fn run_in(
    block: usize,
    model: &Model,
    texts: &[Vec<u32>],
    steps: &[Vec<(usize, usize)>],
    element: &'static Format,
) -> Vec<Vec<f32>> {
    let (b, layers) = (&**model.backend(), model.layers());
    let each = texts.iter().map(|t| t.len().div_ceil(block)).max().unwrap();
    let spec =
        CacheSpec::new(layers.cache_layout(), block, each * texts.len(), 2 * texts.len()).element(element);
    let cache = b.new_cache(&spec).unwrap();
    // Interleaved, so that no text's blocks lie side by side.
    let table =
        |t: usize| BlockTable { first: 0, blocks: (0..each).map(|i| (i * texts.len() + t) as u32).collect() };
    // Of two places for a text's state one is read and the other written, in turn.
    let mut slots: Vec<[u32; 2]> = (0..2 * texts.len() as u32).step_by(2).map(|s| [s, s + 1]).collect();
    let mut past = vec![0; texts.len()];
    let mut out = vec![Vec::new(); texts.len()];
    for step in steps {
        let mut batch = Batch::default();
        for &(t, len) in step {
            let rows = &texts[t][past[t]..past[t] + len];
            batch.push(rows, past[t], vec![table(t); spec.blocks.len()], slots[t]);
            slots[t].reverse();
            batch.want_all();
            past[t] += len;
        }
        let plan = b.plan(batch).unwrap();
        let logits = layers.logits(&Step::new(b, &plan, &cache)).unwrap();
        let vocab = logits.shape().cols();
        let mut rows = b.download(&logits).unwrap();
        for &(t, len) in step {
            let rest = rows.split_off(len * vocab);
            out[t].extend(std::mem::replace(&mut rows, rest));
        }
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Default,
    Exact,
    Bf16,
}

fn open(path: &Path, threads: usize, how: How) -> Model {
    let options = Options::new().device(Device::Cpu).threads(threads);
    options.exact(how == How::Exact).bf16(how == How::Bf16).open(path).unwrap()
}

fn check(path: &Path, how: How, element: &'static Format) {
    let model = open(path, 2, how);
    let (mut random, vocab) = (Random(11), model.layers().vocab().unwrap_or(500).min(500));
    let texts: Vec<Vec<u32>> =
        (0..8).map(|i| (0..20 + 3 * i).map(|_| random.below(vocab) as u32).collect()).collect();
    let whole = |t: usize| vec![vec![(t, texts[t].len())]];
    let alone: Vec<Vec<f32>> =
        (0..8).map(|t| run(&model, &texts, &whole(t), element).swap_remove(t)).collect();
    let name = path.file_name().unwrap().display();
    let same = |what: &str, got: Vec<Vec<f32>>| {
        for (t, (got, want)) in got.iter().zip(&alone).enumerate() {
            let differ = got.iter().zip(want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!((got.len(), differ), (want.len(), 0), "{name} {how:?} {element:?}: {what}, text {t}");
        }
    };
    same("eight together", run(&model, &texts, &[(0..8).map(|t| (t, texts[t].len())).collect()], element));
    let sevens = |t: usize| (0..texts[t].len()).step_by(7).map(move |at| (t, at)).collect::<Vec<_>>();
    let chunked: Vec<_> =
        (0..8).flat_map(sevens).map(|(t, at)| vec![(t, 7.min(texts[t].len() - at))]).collect();
    same("chunks of 7", run(&model, &texts, &chunked, element));
    // Two chunks of prompts, then all decode together as long as they last.
    let mut mixed = vec![(0..8).map(|t| (t, 11)).collect::<Vec<_>>()];
    mixed.extend((11..41).map(|at| (0..8).filter(|&t| at < texts[t].len()).map(|t| (t, 1)).collect()));
    same("decoded together", run(&model, &texts, &mixed, element));
    for threads in [1, 5] {
        let other = open(path, threads, how);
        same(
            &format!("{threads} threads"),
            run(&other, &texts, &[(0..8).map(|t| (t, texts[t].len())).collect()], element),
        );
    }
}

#[test]
fn packed_and_dense_models_do_not_see_their_neighbours() {
    let Some(shared) = shared() else { return };
    let golden = shared.join("golden");
    for file in ["Q4_K_M-mix", "Q8_0-pure", "Q4_0-pure", "Q2_K-pure", "MXFP4-pure", "F16-pure", "BF16-pure"] {
        check(&golden.join(format!("quant/k256-{file}.gguf")), How::Default, &F16);
    }
    for (file, how, element) in [
        ("llama-k256/llama-k256-f32.gguf", How::Default, &F32),
        ("quant/k256-Q4_K_M-mix.gguf", How::Exact, &F32),
        ("qwen2/qwen2-Q4_0.gguf", How::Default, &Q8_0),
        ("qwen3/qwen3-Q8_0.gguf", How::Default, &F16),
        ("gemma2/gemma2-Q8_0.gguf", How::Default, &F16),
        ("mixtral/mixtral-Q4_0.gguf", How::Default, &F16),
        ("deepseek-v2/deepseek-v2-Q4_0.gguf", How::Default, &F16),
        ("mistral", How::Default, &F32),
        ("quant/k256-F16-pure.gguf", How::Bf16, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3-5-moe"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/lfm2-moe"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/granite-hybrid-moe"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/nemotron-h"), How::Default, &F32),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/falcon-h1"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/nemotron-h-moe"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/mamba2"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/falcon-mamba"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/glm4-moe"), How::Default, &F16),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/minimax-m2"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama4-chunks"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/seed-oss"), How::Default, &F32),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/ernie4-5-moe"),
            How::Default,
            &F16,
        ),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/exaone4-window"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma4-moe"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/command-r-norm"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/starcoder2"), How::Default, &F16),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/apertus"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/hunyuan-moe"),
            How::Default,
            &F16,
        ),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma4-shared"),
            How::Default,
            &F16,
        ),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma3n"), How::Default, &F16),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gptneox"), How::Default, &F16),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/jamba"), How::Default, &F16),
        (concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/bamba"), How::Default, &F16),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/phimoe-near"),
            How::Default,
            &F16,
        ),
        (
            concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/dots1-window"),
            How::Default,
            &F16,
        ),
    ] {
        check(&golden.join(file), how, element);
    }
}

/// Blocks of whole tiles, as a server has them, and a text of several of attention's chunks.
#[test]
fn long_texts_in_whole_tiles_do_not_see_their_neighbours() {
    let Some(shared) = shared() else { return };
    let golden = shared.join("golden");
    let mut random = Random(12);
    let texts = [330, 40, 19].map(|n| (0..n).map(|_| random.below(500) as u32).collect::<Vec<_>>());
    // How many rows of each text a step has; the last row of the long one is decoded.
    let pieces: [&[usize]; 3] = [&[100, 157, 72, 1], &[33, 6, 1], &[1, 17, 1]];
    let mixed: Vec<Vec<_>> = (0..4)
        .map(|i| pieces.iter().enumerate().filter_map(|(t, p)| p.get(i).map(|len| (t, *len))).collect())
        .collect();
    for (file, element, block) in [
        ("quant/k256-Q4_K_M-mix.gguf", &F16, 16),
        ("quant/k256-F16-pure.gguf", &F32, 32),
        ("quant/k256-BF16-pure.gguf", &BF16, 16),
        ("qwen3/qwen3-Q8_0.gguf", &Q8_0, 32),
        ("gemma2/gemma2-Q8_0.gguf", &F16, 16),
    ] {
        let model = open(&golden.join(file), 2, How::Default);
        let alone = |t: usize| {
            let whole = [vec![(t, texts[t].len())]];
            run_in(block, &model, &texts, &whole, element).swap_remove(t)
        };
        let alone: Vec<Vec<f32>> = (0..3).map(alone).collect();
        let same = |what: &str, got: Vec<Vec<f32>>| {
            for (t, (got, want)) in got.iter().zip(&alone).enumerate() {
                let differ = got.iter().zip(want).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                assert_eq!((got.len(), differ), (want.len(), 0), "{file} {element:?}: {what}, text {t}");
            }
        };
        let together = [(0..3).map(|t| (t, texts[t].len())).collect()];
        same("together", run_in(block, &model, &texts, &together, element));
        same("cut", run_in(block, &model, &texts, &mixed, element));
        same("unpacked", run(&model, &texts, &together, element));
        let other = open(&golden.join(file), 5, How::Default);
        same("5 threads", run_in(block, &other, &texts, &mixed, element));
    }
}

#[test]
fn bf16_rounds_what_is_dense_and_nothing_else() {
    let Some(shared) = shared() else { return };
    let logits = |file: &str, how: How| {
        let model = open(&shared.join(format!("golden/quant/k256-{file}.gguf")), 1, how);
        run(&model, &[(1..20).collect()], &[vec![(0, 19)]], &F32).swap_remove(0)
    };
    let [plain, rounded] = [How::Default, How::Bf16].map(|how| logits("F16-pure", how));
    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let error = squares(&mut plain.iter().zip(&rounded).map(|(a, b)| a - b));
    let relative = (error / squares(&mut plain.iter().copied())).sqrt();
    assert!(relative > 1e-5 && relative < 0.02, "{relative}");
    assert_eq!(logits("Q8_0-pure", How::Default), logits("Q8_0-pure", How::Bf16));
}
