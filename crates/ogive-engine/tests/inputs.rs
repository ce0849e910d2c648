//! Vectors in place of tokens: those that are the tokens' own change nothing, however steps are cut; what sees each other is not cut; and what
//! does not fit is refused.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::{Evaluate, Limits, Placed, Request, evaluate};
use ogive_nn::backend::Vectors;
use ogive_nn::tensor::{F32, serde_json::json};
use ogive_nn::{Loader, Source};
use random::Random;
use std::ops::Range;
use std::sync::Arc;

/// The embeddings of these tokens, as they enter the stream.
fn embedded(arch: &str, r: &Random, tokens: &[u32]) -> Vectors {
    let table = r.get("model.embed_tokens.weight").unwrap();
    let scale = if arch.starts_with("Gemma") { 64f32.sqrt() } else { 1.0 };
    let values: Vec<f32> = tokens
        .iter()
        .flat_map(|token| {
            let mut row = vec![0.0; 64];
            table.decode_row(*token as usize, &mut row);
            row
        })
        .map(|v| v * scale)
        .collect();
    Vectors::new(values, 64).unwrap()
}

/// A prompt of 20 tokens and those of it that have vectors.
const PARTS: [Range<usize>; 3] = [2..5, 5..6, 9..16];

fn prompt() -> Vec<u32> {
    (0..20).map(|i| i * 37 % 126).collect()
}

/// The same with nothing of those tokens left, and their vectors.
fn seen(arch: &str, r: &Random) -> (Vec<u32>, Vec<Placed>) {
    let mut tokens = prompt();
    let inputs = PARTS.map(|part| {
        let placed = Placed::new(part.start, embedded(arch, r, &tokens[part.clone()]));
        tokens[part].fill(127);
        placed
    });
    (tokens, inputs.to_vec())
}

/// Every architecture that takes vectors, one by places in a grid.
fn seeing() -> impl Iterator<Item = (&'static str, Random)> {
    let mut zoo = zoo();
    zoo[1].1.config.0["rope_scaling"] = json!({"type": "mrope", "mrope_section": [2, 3, 3]});
    zoo.into_iter().filter(|(arch, r)| {
        registry().build(arch, &r.config, &Loader::new(r, &Oracle)).unwrap().takes_vectors().is_some()
    })
}

#[test]
fn vectors_that_are_the_tokens_own_change_nothing() {
    let mut models = 0;
    for (arch, r) in seeing() {
        models += 1;
        let (tokens, inputs) = seen(arch, &r);
        let want = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &[(&prompt(), 12)], None).concat();
        for step in [1, 2, 3, 7, 100] {
            let mut e = engine(
                Arc::new(Oracle),
                arch,
                &r,
                Limits::new(64).step_tokens(step).block_len(4).element(&F32),
            );
            let id = e.add(request(&tokens, 12, None).inputs(&*inputs).keep()).unwrap();
            let drawn: Vec<u32> = e.follow(id).map(|event| event.unwrap().token.unwrap()).collect();
            assert_eq!(drawn, want, "{arch}, steps of {step}");
            // The same again, behind what was drawn.
            let more = e.tokens(id).unwrap().to_vec();
            e.resume(id, request(&tokens, 5, None).inputs(&*inputs).keep()).unwrap();
            let again: Vec<u32> = e.follow(id).map(|event| event.unwrap().token.unwrap()).collect();
            let plain = [&prompt(), &want[..], &prompt()].concat();
            assert_eq!(more.len(), 32);
            let alone = run(&mut engine(Arc::new(Oracle), arch, &r, wide()), &[(&plain, 5)], None).concat();
            assert_eq!(again, alone, "{arch}, steps of {step}, resumed");
        }
    }
    assert!(models >= 6, "{models}");
}

#[test]
fn logits_of_a_whole_text_do_not_depend_on_the_cut() {
    for (arch, r) in seeing() {
        let model = registry().build(arch, &r.config, &Loader::new(&r, &Oracle)).unwrap();
        let (tokens, mut inputs) = seen(arch, &r);
        // One that sees itself to both sides, one in a grid.
        let grid = (0..7).map(|i| [0, i / 3, i % 3]).collect();
        let [_, _, last] = &inputs[..] else { panic!("three") };
        let last = Placed::new(last.at, (*last.vectors).clone().places(grid).unwrap());
        inputs = vec![Placed::new(2, (*inputs[0].vectors).clone().mutual()), last];
        let of = |chunk: usize, inputs: &[Placed]| {
            let mut how = Evaluate::new();
            (how.chunk, how.inputs) = (chunk, inputs);
            evaluate(&Oracle, &*model, &tokens, &how).unwrap()
        };
        let whole = of(100, &inputs);
        for chunk in [1, 3, 4, 6] {
            assert_eq!(of(chunk, &inputs), whole, "{arch}, steps of {chunk}");
        }
        let differs = |inputs: &[Placed]| {
            let other = of(100, inputs);
            let first = (0..20).find(|row| other.row(*row) != whole.row(*row));
            first.unwrap_or(20)
        };
        // Without the one, the image's first row knows nothing of its last; without the other, positions are others.
        let [first, last] = &inputs[..] else { panic!("two") };
        let alone = |of: &Placed| {
            let mut vectors = (*of.vectors).clone();
            (vectors.mutual, vectors.places) = (false, Vec::new());
            Placed::new(of.at, vectors)
        };
        assert_eq!(differs(&[alone(first), last.clone()]), 2, "{arch}");
        // The row behind the first stands beside it, and no longer one further in time.
        assert_eq!(differs(&[first.clone(), alone(last)]), 10, "{arch}");
    }
}

#[test]
fn another_image_is_another_beginning() {
    let r = Random::llama(false, false, false);
    let image = |value: f32, mutual: bool| {
        let of = Vectors::new(vec![value; 7 * 64], 64).unwrap();
        Placed::new(5, if mutual { of.mutual() } else { of })
    };
    let tokens = prompt();
    for mutual in [false, true] {
        let alone = |value: f32| {
            let mut e = engine(Arc::new(Oracle), "LlamaForCausalLM", &r, wide());
            let id = e.add(request(&tokens, 6, None).inputs([image(value, mutual)])).unwrap();
            e.follow(id).map(|event| event.unwrap().token.unwrap()).collect::<Vec<_>>()
        };
        let mut e = engine(Arc::new(Oracle), "LlamaForCausalLM", &r, wide());
        let mut shared = Vec::new();
        // The first is kept. The second has its tokens and another image, the third both, though a copy of the image.
        for value in [0.3, -0.4, 0.3] {
            let before = e.stats().shared;
            let id = e.add(request(&tokens, 6, None).inputs([image(value, mutual)]).keep()).unwrap();
            let drawn: Vec<u32> = e.follow(id).map(|event| event.unwrap().token.unwrap()).collect();
            assert_eq!(drawn, alone(value), "{value}, {mutual}");
            shared.push(e.stats().shared - before);
        }
        // Blocks of four: one before the image, and four that hold all of it and what follows.
        assert_eq!(shared, [0, 4, 16], "{mutual}");
        assert_eq!(e.common(0, &tokens, &[image(0.3, mutual)]), 20);
        assert_eq!(e.common(1, &tokens, &[image(0.3, mutual)]), 5);
    }
}

#[test]
fn what_does_not_fit_is_refused_at_once() {
    let r = Random::gemma2();
    let mut e = engine(
        Arc::new(Oracle),
        "Gemma2ForCausalLM",
        &r,
        Limits::new(64).sequences(3).step_tokens(8).block_len(4),
    );
    let vectors = |rows: usize, dim: usize| Vectors::new(vec![0.5; rows * dim], dim).unwrap();
    let mut refused = |inputs: Vec<Placed>, why: &str| {
        let error = e.add(Request::new(prompt(), 3).inputs(inputs)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(vec![Placed::new(3, vectors(2, 32))], "32 elements, and the model's have 64");
    refused(vec![Placed::new(19, vectors(2, 64))], "tokens 19 to 21");
    refused(vec![Placed::new(4, vectors(3, 64)), Placed::new(6, vectors(1, 64))], "tokens 6 to 7");
    // A step of eight has a row for each of the two others.
    refused(vec![Placed::new(3, vectors(7, 64).mutual())], "room for 6");
    let mut alone =
        engine(Arc::new(Oracle), "Gemma2ForCausalLM", &r, Limits::new(64).step_tokens(64).block_len(4));
    let error =
        alone.add(Request::new(prompt(), 3).inputs([Placed::new(3, vectors(7, 64).mutual())])).unwrap_err();
    assert!(error.to_string().contains("in a window of 6"), "{error}");
    let mut blind = engine(Arc::new(Oracle), "GPT2LMHeadModel", &Random::gpt2(), wide());
    let error = blind.add(Request::new(prompt(), 3).inputs([Placed::new(3, vectors(2, 64))])).unwrap_err();
    assert!(error.to_string().contains("not made to see"), "{error}");
}

#[test]
fn a_saved_sequence_has_its_images() {
    for (arch, r) in seeing() {
        let (tokens, inputs) = seen(arch, &r);
        let new = |block| {
            let limits = Limits::new(64).step_tokens(16).block_len(block).element(&F32);
            engine(Arc::new(Oracle), arch, &r, limits)
        };
        let mut first = new(4);
        let id = first.add(request(&tokens, 3, None).inputs(&*inputs).keep()).unwrap();
        assert_eq!(first.follow(id).count(), 3);
        let mut bytes = Vec::new();
        first.save(id, 7, b"", &mut bytes).unwrap();
        for block in [4, 7] {
            let mut second = new(block);
            let loaded = second.load(7, &mut &*bytes, bytes.len() as u64).unwrap();
            assert_eq!(second.inputs(loaded.id).unwrap(), inputs);
            let go_on = |e: &mut ogive_engine::Engine, id| -> Vec<u32> {
                e.rewind(id, 16).unwrap();
                e.resume(id, request(&[1, 2, 3], 6, None).keep()).unwrap();
                e.follow(id).map(|event| event.unwrap().token.unwrap()).collect()
            };
            let mut third = new(4);
            let plain = third.add(request(&[&prompt()[..16], &[1, 2, 3]].concat(), 6, None)).unwrap();
            let want: Vec<u32> = third.follow(plain).map(|event| event.unwrap().token.unwrap()).collect();
            assert_eq!(go_on(&mut second, loaded.id), want, "{arch}");
        }
    }
}
