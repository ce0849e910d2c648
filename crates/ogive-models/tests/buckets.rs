//! Steps of decoding are filled up with rows of nobody's, so that few records serve an engine whose number of sequences wanders. The rows
//! that are somebody's keep their bits.
//!
//! Each model runs once with records, and so in filled-up steps, and once without either.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/device.rs"]
mod device;
#[path = "common/wide.rs"]
mod wide;

use common::*;
use device::on_device;
use ogive_cuda::{Activations, Builder, Compute, CudaBackend};
use ogive_engine::{Engine, Limits, Request};
use ogive_nn::Model;
use ogive_nn::backend::Backend;
use ogive_nn::tensor::F16;
use ptx_emulator_launcher::{Nvrtc, test_name};
use std::collections::BTreeSet;
use std::sync::Arc;
use wide::{WideModel, q4_k_m};

/// Sequences that come at a time, and wait until those before have left.
const WAVES: [u32; 2] = [20, 13];

/// Everything that comes of the waves, by sequence; logits as log probabilities where `whole`. Also how many sequences decoded together.
fn traffic(
    b: &Arc<CudaBackend>,
    model: Box<dyn Model>,
    whole: bool,
) -> (Vec<(u64, String)>, BTreeSet<usize>) {
    let limits = Limits::new(64).sequences(20).step_tokens(400).element(&F16);
    let mut engine = Engine::new(Arc::clone(b) as Arc<dyn Backend>, model.into(), limits).unwrap();
    let (mut told, mut together) = (Vec::new(), BTreeSet::new());
    for wave in WAVES {
        for i in 0..wave {
            // Each leaves at a step of its own, more or less, and no context is beyond 32.
            let prompt: Vec<u32> = (0..17).map(|t| 3 + (7 * t + 5 * i + wave) % 40).collect();
            let request = Request::new(prompt, 2 + i as usize * 13 / wave as usize);
            engine.add(if whole { request.logprobs(131) } else { request }).unwrap();
        }
        // The prompts.
        told.extend(engine.step().unwrap());
        while !engine.is_idle() {
            let events = engine.step().unwrap();
            together.insert(events.len());
            told.extend(events);
        }
    }
    let mut told: Vec<(u64, String)> = told.iter().map(|e| (e.id, format!("{e:?}"))).collect();
    told.sort_by_key(|(id, _)| *id);
    (told, together)
}

fn as_programs_have_it() -> Builder {
    CudaBackend::builder().compute(Compute::Auto).activations(Activations::Int8)
}

/// The waves with records and without give the same; how many kinds of steps there were, and how many were recorded.
fn compare(
    name: &str,
    builder: Builder,
    whole: bool,
    load: &dyn Fn(&dyn Backend) -> Box<dyn Model>,
) -> [u64; 2] {
    let with = Arc::new(builder.clone().build().unwrap());
    let without = Arc::new(builder.graphs(false).build().unwrap());
    let (got, together) = traffic(&with, load(&*with), whole);
    let (want, _) = traffic(&without, load(&*without), whole);
    let differ = got.iter().zip(&want).find(|(got, want)| got != want);
    assert!(got.len() == want.len() && differ.is_none(), "{name}: {differ:?}");
    let counts = with.graphs();
    println!("cuda: {name}: {together:?} together; {counts:?}");
    assert!(together.len() >= 12 && together.last() == Some(&20), "{together:?}");
    assert_eq!(counts.replayed + counts.eager, without.graphs().eager, "{counts:?}");
    [counts.eager, counts.recorded]
}

/// Steps of 1 to 20 rows end at 1, 4, 8, 16 and 32, and a step's words lie in one of two places.
const KINDS: u64 = 2 * 5;

#[test]
fn few_records_serve_many_numbers_of_sequences() {
    on_device(test_name!(), Nvrtc::V12, || {
        let folder = own().into_iter().find(|(own, _)| own == "llama").unwrap().1;
        let packed = WideModel::of(&folder, q4_k_m);
        let load_packed = |b: &dyn Backend| packed.load(b);
        for whole in [false, true] {
            let what = if whole { "packed, all logits" } else { "packed, the best" };
            let [kinds, records] = compare(what, as_programs_have_it(), whole, &load_packed);
            assert!((5..=KINDS).contains(&kinds) && records >= 4, "{kinds} kinds, {records} records");
        }
        let builder = CudaBackend::builder().compute(Compute::Bf16);
        let [kinds, records] = compare("bf16", builder, true, &|b: &dyn Backend| load(&folder, b));
        assert!((5..=KINDS).contains(&kinds) && records >= 4, "{kinds} kinds, {records} records");
    });
}

/// Rows of nobody's would choose experts.
#[test]
fn mixtures_are_not_filled_up() {
    on_device(test_name!(), Nvrtc::V12, || {
        let folder = own().into_iter().find(|(own, _)| own == "mixtral").unwrap().1;
        let load = |b: &dyn Backend| load(&folder, b);
        let [kinds, _] = compare("mixtral", as_programs_have_it(), true, &load);
        assert!(kinds > KINDS, "{kinds}");
    });
}
