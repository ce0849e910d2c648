//! Vectors of texts: transformers' last hidden states, pooled here in the plainest way, are the reference.
#![allow(clippy::print_stdout)]

mod common;

use common::*;
use ndarray::{Array1, Array2, Axis};
use ogive_engine::{Embed, Pooling, embed};
use ogive_nn::backend::Backend;

const ALL: [Pooling; 3] = [Pooling::Mean, Pooling::Cls, Pooling::Last];

fn settings(pooling: Pooling, normalize: bool, chunk: usize) -> Embed {
    let mut how = Embed::new(pooling);
    (how.normalize, how.chunk) = (normalize, chunk);
    how
}

fn pooled(hidden: &Array2<f32>, pooling: Pooling) -> Array1<f32> {
    match pooling {
        Pooling::Mean => hidden.mean_axis(Axis(0)).unwrap(),
        Pooling::Cls => hidden.row(0).to_owned(),
        _ => hidden.row(hidden.nrows() - 1).to_owned(),
    }
}

#[test]
fn vectors_are_the_pooled_states_of_transformers() {
    for (backend, b) in exact_backends() {
        for (name, folder) in every() {
            let cases = cases_of(&folder, "hidden");
            // Some scalings depend on the longest text, so those texts do not share a model.
            for (case, ids, hidden) in &cases {
                let model = load_for(&folder, &*b, Some(ids.len()));
                if model.projects() {
                    // Its vectors are held to transformers' behind its layers, at the front door.
                    continue;
                }
                for pooling in ALL {
                    let want = pooled(hidden, pooling);
                    let got = embed(&*b, &*model, &[ids], &settings(pooling, false, 512)).unwrap();
                    let error = worst(&got, &want.clone().insert_axis(Axis(0)));
                    assert!(error < 2e-5, "{name} {case} on {backend}, {pooling:?}: {error:.1e}");
                    let unit = embed(&*b, &*model, &[ids], &settings(pooling, true, 512)).unwrap();
                    let cosine = unit.row(0).dot(&want) / want.dot(&want).sqrt();
                    assert!((cosine - 1.0).abs() < 1e-5, "{name} {case}, {pooling:?}: {cosine}");
                    assert!((unit.row(0).dot(&unit.row(0)) - 1.0).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn a_vector_is_the_same_whatever_else_is_in_the_step_and_however_it_was_cut() {
    let fast: Box<dyn Backend> = Box::new(ogive_cpu::CpuBackend::builder().build().unwrap());
    for b in [fast, Box::new(exact())] {
        for (name, folder) in every() {
            let model = load(&folder, &*b);
            let ids = cases_of(&folder, "hidden").remove(0).1;
            let texts: Vec<&[u32]> = vec![&ids[..9], &ids[3..4], &ids, &ids[20..33], &ids[..9]];
            for pooling in ALL {
                let alone: Vec<_> = texts
                    .iter()
                    .map(|text| embed(&*b, &*model, &[text], &settings(pooling, true, 512)).unwrap())
                    .collect();
                for chunk in [512, 24, 7, 1] {
                    let together = embed(&*b, &*model, &texts, &settings(pooling, true, chunk)).unwrap();
                    for (row, alone) in together.rows().into_iter().zip(&alone) {
                        assert_eq!(row, alone.row(0), "{name}, {pooling:?}, steps of {chunk}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_texts_have_no_vectors_and_an_empty_one_is_refused() {
    let (_, folder) = own().remove(0);
    let (b, how) = (exact(), Embed::new(Pooling::Mean));
    let model = load(&folder, &b);
    assert_eq!(embed::<Vec<u32>>(&b, &*model, &[], &how).unwrap().dim(), (0, 0));
    let e = embed(&b, &*model, &[vec![1], vec![]], &how).unwrap_err().to_string();
    assert_eq!(e, "embed: text 1 has no tokens");
    assert!(embed(&b, &*model, &[vec![1_000_000]], &how).is_err());
    assert!(embed(&b, &*model, &[vec![1]], &settings(Pooling::Mean, true, 0)).is_err());
}
