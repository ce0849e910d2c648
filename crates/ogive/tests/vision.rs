//! From an image file and a text to logits: what Ogive makes of both is what transformers' processor and model make of them
//! (`xtask/golden/sight.py`), alone and among others.
#![cfg(all(feature = "cpu", feature = "vision"))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "common/vision.rs"]
mod vision;

use ndarray::{Array2, Axis};
use ogive::backend::{Backend, Split};
use ogive::cpu::{CpuBackend, Precision};
use ogive::engine::{Evaluate, Placed, Request, SeqId, evaluate};
use ogive::{Draft, Generate, Model, Prompt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vision::*;

/// The largest difference from transformers' logits, where weights, levels and ids are the same.
const EXACT: f32 = 2e-5;

/// The logits of the last tokens, as a program computes them.
fn logits(model: &Model, ids: &[u32], inputs: &[Placed], rows: usize) -> Array2<f32> {
    let mut how = Evaluate::new();
    how.inputs = inputs;
    let all = evaluate(&**model.backend(), &**model.layers(), ids, &how).unwrap();
    all.slice_axis(Axis(0), (ids.len() - rows..).into()).to_owned()
}

fn worst(got: &Array2<f32>, want: &Array2<f32>) -> f32 {
    assert_eq!(got.dim(), want.dim());
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs());
    off.fold(0.0, |worst, off| if off.is_nan() { off } else { worst.max(off) })
}

#[test]
fn a_file_and_a_text_are_what_they_are_to_transformers() {
    let mut failed = Vec::new();
    for name in names() {
        let model = open(&name);
        assert!(model.sees());
        for case in cases(&name) {
            let Some(text) = &case.text else { continue };
            let prompt = shown(text, &case.images);
            let (ids, inputs) = model.read(&prompt).unwrap();
            assert_eq!(ids, case.ids, "{name}, {}", case.name);
            assert_eq!(model.encode(&prompt).unwrap(), ids);
            let got = logits(&model, &ids, &inputs, case.logits.nrows());
            let error = worst(&got, &case.logits);
            println!("{name:16} {:9} {error:.1e}", case.name);
            if error.is_nan() || error > EXACT {
                failed.push(format!("{name}, {}: off by {error:.1e}", case.name));
            }
            // They are of these images and no others.
            let (other, inputs) =
                model.read(&shown(text, &vec![image("lossless.webp"); case.images.len()])).unwrap();
            let got = logits(&model, &other, &inputs, case.logits.nrows());
            assert!(worst(&got, &case.logits) > 1e-2, "{name}, {}", case.name);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn an_image_is_seen_once_wherever_it_stands() {
    for name in names() {
        let (model, seen) = open_counted(&name);
        let marker = model.image_marker().unwrap();
        let one = image("noise.png");
        let (text, twice) = (format!("{marker} is {marker}"), [one.clone(), one.clone()]);
        let prompt = shown(&text, &twice);
        // What stands for it is known before.
        let ids = model.encode(&prompt).unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), 0, "{name}");
        let (read, inputs) = model.read(&prompt).unwrap();
        assert_eq!(read, ids);
        let tiles = seen.load(Ordering::Relaxed);
        assert!((1..=7).contains(&tiles), "{name}: {tiles}");
        let (half, rest) = inputs.split_at(inputs.len() / 2);
        for (a, b) in half.iter().zip(rest) {
            assert!(a.vectors == b.vectors && a.at < b.at, "{name}");
        }
        assert_eq!(half.len(), rest.len(), "{name}");
        assert_eq!(model.read(&shown(marker, &[one])).unwrap().1.len(), half.len());
        assert_eq!(seen.load(Ordering::Relaxed), tiles, "{name}");
        // An `Image` by itself is seen by itself, even if its pixels are those of another.
        let again = model.read(&shown(&text, &[image("noise.png"), image("noise.png")])).unwrap();
        assert!(again == (ids, inputs), "{name}");
        assert_eq!(seen.load(Ordering::Relaxed), 3 * tiles, "{name}");
        // What two models make of it is not mixed up.
        let (other, prompt) = (open(&name), shown(marker, &[image("smooth.png")]));
        let read = [&model, &other, &model].map(|model| model.read(&prompt).unwrap());
        assert!(read[0] == read[1] && read[0] == read[2], "{name}");
    }
}

#[test]
fn what_is_likely_after_an_image_is_told_with_it() {
    let model = open("internvl");
    let case = case("internvl", "two");
    let prompt = shown(case.text.as_ref().unwrap(), &case.images);
    let scored = model.score(prompt, 1).unwrap();
    assert_eq!(scored.len() + 1, case.ids.len());
    let row = case.logits.row(case.logits.nrows() - 2);
    let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
    let (last, want) = (scored.last().unwrap(), *case.ids.last().unwrap());
    assert_eq!(last.token.id, want);
    let want = f64::from(row[want as usize]) - sum.ln();
    assert!((last.token.logprob - want).abs() < 1e-4, "{} {want}", last.token.logprob);
}

#[test]
fn sequences_with_images_draw_among_others_what_they_draw_alone() {
    for name in names() {
        let model = open(&name);
        let marker = model.image_marker().unwrap();
        let mut prompts: Vec<Prompt> = ["smooth.png", "noise.png", "wide.png"]
            .map(|of| shown(&format!("This {marker}\nis the"), &[image(of)]))
            .into();
        prompts.push(shown(&format!("{marker}{marker}"), &[image("grey.png"), image("smooth.png")]));
        prompts.push("This is the end".into());
        // Twice the same: the second may find what the first has read.
        prompts.push(prompts[1].clone());
        let how = |i: usize| Generate::new().seed(i as u64).max_tokens(12).ignore_end();
        let requests = prompts.iter().enumerate().map(|(i, prompt)| {
            let (ids, inputs) = model.read(prompt).unwrap();
            let chain = model.chain(&how(i).sampler).unwrap();
            Request::new(ids, 12).inputs(inputs).chain(chain)
        });
        let requests: Vec<Request> = requests.collect();
        let run = |requests: &[Request]| -> Vec<Vec<u32>> {
            let limits = model.limits().clone().sequences(requests.len()).step_tokens(20);
            let mut engine = model.engine(limits).unwrap();
            let ids: Vec<SeqId> =
                requests.iter().map(|request| engine.add(request.clone()).unwrap()).collect();
            let mut drawn: BTreeMap<SeqId, Vec<u32>> = BTreeMap::new();
            while !engine.is_idle() {
                for event in engine.step().unwrap() {
                    drawn.entry(event.id).or_default().extend(event.token);
                }
            }
            ids.iter().map(|id| drawn[id].clone()).collect()
        };
        let together = run(&requests);
        for (i, request) in requests.iter().enumerate() {
            let alone = run(std::slice::from_ref(request));
            assert_eq!((together[i].len(), &together[i]), (12, &alone[0]), "{name}, sequence {i}");
        }
        let distinct: BTreeSet<&Vec<u32>> = together[..3].iter().collect();
        assert_eq!(distinct.len(), 3, "{name}");

        // Nor do guesses change anything, also of a model that sees nothing.
        let drawn = |model: &Model| {
            let mut session = model.session().unwrap();
            let mut generation = session.generate(prompts[3].clone(), &how(3)).unwrap();
            generation.text().unwrap();
            generation.ids().to_vec()
        };
        let blind = options().open(folder(&name).path()).unwrap();
        for draft in [Draft::lookup(), Draft::model(&blind)] {
            assert_eq!(drawn(&model.with_draft(draft).unwrap()), drawn(&model), "{name}");
        }
    }
}

#[test]
fn what_sees_is_on_one_part_of_a_split_and_counted() {
    for name in names() {
        let folder = folder(&name);
        let plain = options().vision().open(folder.path()).unwrap();
        let part = || -> Arc<dyn Backend> {
            Arc::new(CpuBackend::builder().precision(Precision::Exact).threads(1).build().unwrap())
        };
        // Layers in turn, and what has none on the last, as programs share it out; what is looked up by tokens is on the first.
        let first = |name: &str| name.contains("embed_tokens");
        let split = Split::new(vec![part(), part()], vec![0, 1, 0, 1], move |name| usize::from(!first(name)));
        let split: Arc<dyn Backend> = Arc::new(split.unwrap());
        let shared = options().vision().backend(split).open(folder.path()).unwrap();
        let case = cases(&name).into_iter().find(|case| case.text.is_some()).unwrap();
        let prompt = shown(case.text.as_ref().unwrap(), &case.images);
        let (ids, inputs) = plain.read(&prompt).unwrap();
        let (same, others) = shared.read(&prompt).unwrap();
        assert_eq!((&ids, inputs.len()), (&same, others.len()), "{name}");
        assert!(inputs == others, "{name}: the same rows");
        let rows = case.logits.nrows();
        let of = |model: &Model, inputs: &[Placed]| logits(model, &ids, inputs, rows);
        assert!(worst(&of(&plain, &inputs), &of(&shared, &others)) == 0.0, "{name}");
        let [blind, seeing] = [options(), options().vision()]
            .map(|options| options.estimate_memory(folder.path()).unwrap().weights);
        assert!(seeing > blind + 1000, "{name}: {blind} without and {seeing} with");
    }
}

#[test]
fn an_image_is_in_the_estimate_as_far_as_the_context_has_room_for_it() {
    let mut grown = 0;
    for name in names() {
        let folder = folder(&name);
        let working = |options: ogive::Options, context: usize| {
            options.context(context).estimate_memory(folder.path()).unwrap().working
        };
        // One token a step leaves what an image takes as the most.
        let one = || options().step_tokens(1);
        let [small, large] = [16, 4096].map(|context| working(one().vision(), context));
        let blind = [16, 4096].map(|context| working(one(), context));
        assert!(
            small >= blind[0] && large > blind[1].max(small - 1),
            "{name}: {small}, {large} of {blind:?}"
        );
        grown += usize::from(large > small);
    }
    assert!(grown > 2, "images of several models are as large as the context lets them be");
}
