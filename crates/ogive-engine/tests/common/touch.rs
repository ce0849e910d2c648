//! Loads bytes as a saved session into an engine of a model with pages, a window and a state, and goes on with what loads.
//! Used by the tests and by the fuzz target, which includes this file and has none of the tests' other helpers.

use ogive_conformance::Oracle;
use ogive_engine::backend::{Axis, Ids, LayerCache, Weight};
use ogive_engine::nn::{Model, Step, inputs};
use ogive_engine::tensor::{F32, HostWeight, Result, Tensor};
use ogive_engine::{Digest, Engine, Limits, Request};
use ogive_nn::backend::{AttnOption, AttnSpec, Backend};
use std::sync::Arc;

pub(crate) const DIM: usize = 4;
pub(crate) const VOCAB: usize = 8;
pub(crate) const MODEL: u64 = 1;

/// Adds what two layers of attention and a running sum make of an embedding.
#[derive(Debug)]
struct Toy(Weight);

impl Model for Toy {
    fn cache_layout(&self) -> Vec<LayerCache> {
        vec![LayerCache::full(DIM, DIM), LayerCache::windowed(DIM, DIM, 3, 1), LayerCache::State { len: DIM }]
    }
    fn hidden(&self, step: &Step<'_>) -> Result<Tensor> {
        let (b, plan, cache) = (step.backend, step.plan, step.cache);
        let mut x = inputs::placed(step, b.embed(&self.0, Ids::Tokens, plan)?)?; // [n, DIM]
        for (layer, option) in [None, Some(AttnOption::Window(3))].into_iter().enumerate() {
            b.store_kv(layer, &x, Some(&x), cache, plan)?;
            let spec = AttnSpec::causal(1, 1, DIM);
            let spec = option.into_iter().fold(spec, AttnSpec::with);
            x = b.add(b.attend_cache(layer, &x, cache, &spec, plan)?, &x)?;
        }
        // Each sequence's last row joins its state.
        let state = b.read_state(2, cache, plan)?; // [spans, DIM]
        let counts = plan.batch().row_counts();
        let rows = b.split(&x, Axis::Rows, &counts)?;
        let ends: Vec<Tensor> = rows
            .iter()
            .zip(&plan.batch().spans)
            .map(|(rows, span)| Ok(b.split(rows, Axis::Rows, &[span.len - 1, 1])?.swap_remove(1)))
            .collect::<Result<_>>()?;
        let state = b.add(state, &b.concat(&ends.iter().collect::<Vec<_>>(), Axis::Rows)?)?;
        b.write_state(2, &state, cache, plan)?;
        Ok(x)
    }
    fn head(&self, step: &Step<'_>, hidden: Tensor) -> Result<Tensor> {
        step.backend.linear(&hidden, &self.0)
    }
    fn vocab(&self) -> Option<usize> {
        Some(VOCAB)
    }
    fn takes_vectors(&self) -> Option<usize> {
        Some(DIM)
    }
}

/// An engine with room for two sequences of 600 tokens.
pub(crate) fn engine() -> Engine {
    let values: Vec<f32> = (0..VOCAB * DIM).map(|i| ((i * i) as f32 * 0.7).sin()).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let weight =
        HostWeight::new("toy", [1, VOCAB, DIM], &F32, bytes.into()).expect("the bytes fill the shape");
    let weight = Oracle.upload_weight(&weight).expect("the oracle takes weights");
    let limits = Limits::new(600).sequences(2).step_tokens(64).block_len(4).element(&F32);
    Engine::new(Arc::new(Oracle), Arc::new(Toy(weight)), limits).expect("there is room")
}

/// Whether the bytes load. What does must go on, and be saved as what can be loaded again. Panics are for the caller to
/// notice.
pub(crate) fn touch(bytes: &[u8]) -> bool {
    let mut e = engine();
    let would = e.would_load(MODEL, &mut &*bytes, bytes.len() as u64);
    let loaded = match e.load(MODEL, &mut &*bytes, bytes.len() as u64) {
        Ok(loaded) => loaded,
        Err(error) => {
            assert_eq!(would.map_err(|e| e.to_string()), Err(error.to_string()), "it is told before");
            // A load that fails takes nothing: two whole contexts still fit.
            return false;
        }
    };
    let (note, inputs) = would.expect("what loads would load");
    assert_eq!((note, inputs.len()), (loaded.note.clone(), e.inputs(loaded.id).map_or(0, <[_]>::len)));
    let id = loaded.id;
    let mut saved = Vec::new();
    e.save(id, MODEL, &loaded.note, &mut saved).expect("what was loaded can be saved");
    let again = engine().load(MODEL, &mut &*saved, saved.len() as u64).expect("what was saved can be loaded");
    assert_eq!((again.note, again.cached), (loaded.note, loaded.cached));
    if e.resume(id, Request::new([1], 3).keep()).is_ok() {
        e.follow(id).for_each(|event| drop(event.expect("the step can be computed")));
    }
    true
}

/// The same bytes with the checksum that they should end with: what a fuzzer cannot guess.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len().saturating_sub(8)];
    [body, &Digest::of(body).to_le_bytes()].concat()
}

/// Bytes as they are, and sealed.
pub(crate) fn touch_both(bytes: &[u8]) {
    touch(bytes);
    touch(&sealed(bytes));
}
