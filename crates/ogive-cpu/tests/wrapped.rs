//! What wraps the backend and overrides an operator has its own run, also under a trace.

use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Activation, Backend, Experts, HostWeight, RouterSpec, Scoring, Trace};
use ogive_cpu::CpuBackend;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A backend with a mixture of its own.
#[derive(Debug)]
struct Mixing(CpuBackend, Arc<AtomicUsize>);

impl Mixing {
    fn around<T>(&self, _: &'static str, f: impl FnOnce(&CpuBackend) -> Result<T>) -> Result<T> {
        f(&self.0)
    }
}

impl Backend for Mixing {
    ogive_backend::forward_required!();

    fn moe(&self, x: &Tensor, logits: &Tensor, spec: &RouterSpec, experts: &Experts) -> Result<Tensor> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.moe(x, logits, spec, experts)
    }
}

#[test]
fn a_trace_does_not_go_round_an_override() {
    let (own, calls) = (CpuBackend::builder().threads(1).build().unwrap(), Arc::new(AtomicUsize::new(0)));
    assert!(own.facts().composed.contains(&"moe"), "or there is nothing to go round");
    let b = Trace::new(Arc::new(Mixing(own, Arc::clone(&calls))));
    let w = HostWeight::from_f32("w", [1, 1, 1], &[1.0]).unwrap();
    let w = b.upload_weight(&w).unwrap();
    let experts = Experts::new([w.clone(), w.clone(), w], Activation::Silu);
    let x = b.upload(&[1.0], [1, 1].into()).unwrap();
    b.take();
    b.moe(&x, &x, &RouterSpec::new(1, Scoring::Softmax), &experts).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(b.take().iter().map(|e| e.operator).collect::<Vec<_>>(), ["moe"]);
}
