//! Experts whose columns are in orders of their own, as GPTQ's act-order leaves them: one weight of all has one order at most.

mod common;
#[path = "common/wide.rs"]
mod wide;

use common::{exact, own};
use ogive_cpu::CpuBackend;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::{Backend, Estimate};
use ogive_nn::tensor::HostWeight;
use wide::WideModel;

/// The matrix of an expert with its columns moved by `by` times its number.
fn turned(w: HostWeight, by: usize) -> HostWeight {
    let number = |part: &str| part.split('.').next()?.parse::<usize>().ok();
    let Some(expert) = w.name.split_once("experts.").and_then(|(_, rest)| number(rest)) else { return w };
    let cols = w.shape[2];
    w.with_input_perm((0..cols).map(|i| ((i + 32 + by * expert) % cols) as u32).collect()).unwrap()
}

#[test]
fn orders_of_their_own_are_decoded_and_one_for_all_stays_packed() {
    let (_, path) = own().into_iter().find(|(name, _)| name == "mixtral").unwrap();
    let model = |by| WideModel::of(&path, wide::q8_0).map(|w| turned(w, by));
    let (quick, exact) = (CpuBackend::builder().build().unwrap(), exact());
    for (by, decoded) in [(0, 0), (1, 2 * 3)] {
        let plain = |w: HostWeight| if w.is_plain() { w } else { w.decoded().unwrap().with_unpacked(None) };
        let (model, twin) = (model(by), model(by).map(plain));
        // Packed weights round activations to 8 bits, decoded ones do not.
        let backends: [(&dyn Backend, f64); 2] = [(&exact, 1e-12), (&quick, 1e-3)];
        for (b, bound) in backends {
            let (model, notes) = model.load_noted(b);
            assert_eq!(notes.len(), decoded, "{notes:?}");
            assert!(
                notes.iter().all(|n| n.ends_with("experts have their columns in orders of their own")),
                "{notes:?}"
            );
            let of = |m| evaluate(b, m, &[5, 17, 42, 3, 99], &Evaluate::new()).unwrap();
            let error = common::nmse(&of(&*model), &of(&*twin.load(b)));
            assert!(error <= bound, "orders that differ by {by}: {error:.1e}");
        }
        // An estimate of memory reads nothing and counts the same.
        assert_eq!(model.load_noted(&Estimate::new()).1.len(), decoded);
    }
}
