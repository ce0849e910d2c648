//! Architectures, backends and jobs that all tests of the seams use.
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod gpt2;
pub(crate) mod mamba;
pub(crate) mod mla;
pub(crate) mod random;
pub(crate) mod recorder;

use ogive_engine::{Engine, Limits, Request};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::F32;
use ogive_nn::{Loader, Registry};
use ogive_sampler::SamplerParams;
use random::Random;
use std::{collections::BTreeMap, sync::Arc};

pub(crate) fn registry() -> Registry {
    ogive_models::registry()
        .with("GPT2LMHeadModel", gpt2::load)
        .with("MambaForCausalLM", mamba::load)
        .with("DeepseekV2ForCausalLM", mla::load)
}

pub(crate) fn zoo() -> Vec<(&'static str, Random)> {
    vec![
        ("LlamaForCausalLM", Random::llama(false, false, false)),
        ("Qwen2ForCausalLM", Random::llama(true, false, true)),
        ("Qwen3ForCausalLM", Random::llama(true, true, false)),
        ("Gemma2ForCausalLM", Random::gemma2()),
        ("MixtralForCausalLM", Random::mixtral(false)),
        ("MixtralForCausalLM", Random::mixtral(true)),
        ("GPT2LMHeadModel", Random::gpt2()),
        ("MambaForCausalLM", Random::mamba()),
        ("DeepseekV2ForCausalLM", Random::mla(false)),
        ("DeepseekV2ForCausalLM", Random::mla(true)),
    ]
}

pub(crate) fn engine(b: Arc<dyn Backend>, arch: &str, r: &Random, limits: Limits) -> Engine {
    let model = registry().build(arch, &r.config, &Loader::new(r, &*b)).unwrap();
    Engine::new(b, model.into(), limits).unwrap()
}

/// Room for everything at once.
pub(crate) fn wide() -> Limits {
    Limits::new(64).sequences(8).step_tokens(512).block_len(4).element(&F32)
}

/// Greedy, or drawn with a stage that keeps a state.
pub(crate) fn request(prompt: &[u32], n: usize, seed: Option<u64>) -> Request {
    let request = Request::new(prompt, n);
    let Some(seed) = seed else { return request };
    let params = SamplerParams { seed, top_k: 20, repeat_penalty: 1.3, ..SamplerParams::default() };
    request.chain(params.build().unwrap())
}

/// Runs jobs to the end; a step that fails is tried again.
pub(crate) fn run(e: &mut Engine, jobs: &[(&[u32], usize)], seed: Option<u64>) -> Vec<Vec<u32>> {
    run_with(e, jobs, seed, |_| {})
}

pub(crate) fn run_with(
    e: &mut Engine,
    jobs: &[(&[u32], usize)],
    seed: Option<u64>,
    mut before: impl FnMut(usize),
) -> Vec<Vec<u32>> {
    let mut out = BTreeMap::new();
    for (prompt, n) in jobs {
        out.insert(e.add(request(prompt, *n, seed)).unwrap(), Vec::new());
    }
    for i in 0.. {
        if e.is_idle() {
            break;
        }
        assert!(i < 5000, "wedged");
        before(i);
        for event in e.step().unwrap_or_default() {
            out.get_mut(&event.id).unwrap().extend(event.token);
        }
    }
    out.into_values().collect()
}

pub(crate) const JOBS: [(&[u32], usize); 4] = [
    (&[1, 2, 3, 4, 5, 6, 7], 20),
    (&[9], 11),
    (&[100, 50, 25, 12, 6, 3, 1, 0, 2, 4, 8, 16, 32, 64], 5),
    (&[3, 3, 3], 30),
];
