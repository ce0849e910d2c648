//! A backend from outside: it forwards to another, counts the calls, and does one operator its own way.
//!
//! `cargo run --release -p ogive-examples --example 07_backend -- [MODEL]`
//!
//! Every backend is held to the same suite; here the cases of the operator that was written anew, on dense weights.

use ogive::backend::{self, Activation, Backend, Weight};
use ogive::cpu::{CpuBackend, Precision};
use ogive::tensor::{Error as ModelError, Result as ModelResult, Tensor};
use ogive::{Generate, Options};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, error::Error};

/// The CPU, with a count of what it is asked to do.
#[derive(Debug)]
struct Counting {
    inner: CpuBackend,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl Counting {
    /// Every forwarded call goes through here.
    fn around<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&CpuBackend) -> ModelResult<T>,
    ) -> ModelResult<T> {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        call(&self.inner)
    }
}

impl Backend for Counting {
    // The operators a backend must have; the others are defined by these, until one is overridden.
    backend::forward_required!();

    /// `f(x · gateᵀ) * (x · upᵀ)`: both products at once, where the definition multiplies twice.
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> ModelResult<Tensor> {
        let mut both = self.around("linear_many", |cpu| cpu.linear_many(x, &[gate, up]))?.into_iter();
        let (Some(gate), Some(up)) = (both.next(), both.next()) else {
            return Err(ModelError::invalid("linear_gated", "two products were asked for"));
        };
        self.mul(self.activate(gate, f)?, &up)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).unwrap_or_else(|| ogive::DEMO.into());
    let inner = CpuBackend::builder().precision(Precision::Exact).build()?;
    let counting = Arc::new(Counting { inner, calls: Mutex::default() });
    let backend: Arc<dyn Backend> = counting.clone();

    let options = ogive_conformance::Options::new().filter("linear_gated/f");
    println!("{}", ogive_conformance::run(&backend, &options));

    counting.calls.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let model = Options::new().backend(backend).open(path)?;
    let mut session = model.session()?;
    println!("{}", session.generate("Once upon a time", &Generate::greedy().max_tokens(20))?.text()?);
    for (name, calls) in counting.calls.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{calls:6} {name}");
    }
    Ok(())
}
