//! What the inputs of a model's products are like: of each weight the squares of what it is multiplied with, column by column, summed over
//! rows. That is an importance matrix: a column that meets large numbers is one where errors of the weight cost much.
//!
//! It wraps a backend and hands everything on, so it works with every model on every machine and a model is loaded without it. Values are downloaded
//! for it before each product, which costs time and changes nothing. What the second half of an expert meets no backend says, and which rows an
//! expert has only its backend can read. Both are asked of it by experts that it is given in place of the model's: such as give the number of
//! the expert, and such as leave what is in the middle as it is.

use crate::{Activation, Backend, Experts, Routing, Split, Weight, composed, layer_of};
use ogive_tensor::half::f16;
use ogive_tensor::{Error, F16, F32, HostWeight, Result, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Sums for one weight.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Collected {
    /// Sums of squares, `[experts, in]`.
    pub sums: Vec<f64>,
    /// Rows that each expert met, `[experts]`.
    pub counts: Vec<u64>,
}

/// A backend that collects what another's products are given. Tensors, weights and caches stay the other's own, so a model that was loaded
/// without can be run with it.
#[derive(Clone, Debug)]
pub struct Collect {
    inner: Arc<dyn Backend>,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    /// By name. Of several parts of a tensor, which are given the same, the first that came counts.
    by_name: BTreeMap<String, (Weight, Collected)>,
    /// Weights that were multiplied in a form in which their columns are no inputs.
    otherwise: BTreeSet<String>,
    /// The experts that were put in place of others, the last ones last.
    probes: Vec<Probe>,
}

/// Numbers below it are whole in every precision that experts compute in; bf16 has no more.
const DIGIT: usize = 256;

/// Probes that are kept: of a mixture and of what all rows go through beside it, on two machines.
const KEPT: usize = 4;

/// Experts that tell what those in whose place they are do.
#[derive(Clone, Debug)]
struct Probe {
    /// The part, where layers may be on several machines, and the shape of what it stands for.
    of: (Option<usize>, [usize; 3]),
    /// Give each row the number of its expert, as two digits to the base of [`DIGIT`].
    digits: [Experts; 2],
    /// Matrices that take a part of what is in the middle, `[experts, dim, hidden]`: as many as it takes to have all.
    select: Vec<Weight>,
    /// No bias, `[experts, dim]`.
    none: Tensor,
}

impl Collect {
    /// Collects what `inner` is given.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner, found: Arc::default() }
    }

    /// What was collected so far, by the name of the weight.
    pub fn found(&self) -> BTreeMap<String, Collected> {
        let found = self.lock();
        let known = found.by_name.iter().filter(|(name, _)| !found.otherwise.contains(*name));
        known.map(|(name, (_, collected))| (name.clone(), collected.clone())).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn around<T>(&self, _: &'static str, f: impl FnOnce(&dyn Backend) -> Result<T>) -> Result<T> {
        f(&*self.inner)
    }

    /// Adds rows of `values` to what is known of each weight; `expert` says whose a row is.
    fn add(&self, ws: &[&Weight], values: &[f32], expert: impl Fn(usize) -> usize) -> Result<()> {
        let mut found = self.lock();
        for w in ws {
            let [experts, _, cols] = w.shape();
            let first = found.by_name.entry(w.name().to_owned()).or_insert_with(|| {
                ((*w).clone(), Collected { sums: vec![0.0; experts * cols], counts: vec![0; experts] })
            });
            if !first.0.is(w) {
                continue;
            }
            let Collected { sums, counts } = &mut first.1;
            for (i, row) in values.chunks_exact(cols.max(1)).enumerate() {
                let e = expert(i);
                let own = sums.get_mut(e * cols..).zip(counts.get_mut(e));
                let (sums, count) = own.ok_or_else(|| {
                    Error::invalid("collecting inputs", format!("a row was sent to expert {e} of {experts}"))
                })?;
                *count += 1;
                sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v) * f64::from(*v));
            }
        }
        Ok(())
    }

    /// Downloads `x` and adds it.
    fn note(&self, ws: &[&Weight], x: &Tensor) -> Result<()> {
        self.add(ws, &self.inner.download(x)?, |_| 0)
    }

    /// What experts are given, and what their second halves are.
    fn note_experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<()> {
        let (b, [_, hidden, dim]) = (&*self.inner, experts.up.shape());
        experts.check(x.shape().cols())?;
        let probe = self.probe(experts)?;
        let [n, k] = [routing.ids.shape().first(), routing.ids.shape().cols()];
        // Each choice is a row of its own, with a share of one.
        let ids = routing.ids.clone().reshape([n * k, 1])?;
        let weights = b.upload(&vec![1.0; n * k], [n * k, 1].into())?;
        let each = Routing { ids, weights };
        let digit = |of: &Experts| b.download(&b.experts(&each.weights, &each, of)?); // [n * k, 1]
        let [low, high] = [digit(&probe.digits[0])?, digit(&probe.digits[1])?];
        let number = |i: usize| {
            let digit = |of: &[f32]| of.get(i).map_or(0, |e| e.round() as usize);
            digit(&low) + DIGIT * digit(&high)
        };
        let once = b.download(x)?;
        let rows: Vec<f32> = once.chunks_exact(dim.max(1)).flat_map(|row| row.repeat(k)).collect();
        let inputs: Vec<&Weight> = experts.gate.iter().chain([&experts.up]).collect();
        self.add(&inputs, &rows, number)?;
        let all = b.upload(&rows, [n * k, dim].into())?;
        let mut middle = vec![0.0; n * k * hidden];
        for (part, down) in probe.select.iter().enumerate() {
            let mut own = Experts { down: down.clone(), ..experts.clone() };
            if let Some(bias) = &mut own.bias {
                bias[2] = probe.none.clone();
            }
            let some = b.download(&b.experts(&all, &each, &own)?)?; // [n * k, dim]
            let columns = part * dim..hidden.min((part + 1) * dim);
            for (to, from) in middle.chunks_exact_mut(hidden).zip(some.chunks_exact(dim)) {
                to[columns.clone()].copy_from_slice(&from[..columns.len()]);
            }
        }
        self.add(&[&experts.down], &middle, number)
    }

    /// The experts to ask instead of these.
    fn probe(&self, experts: &Experts) -> Result<Probe> {
        let [n, hidden, dim] = experts.up.shape();
        let name = experts.down.name();
        if n > DIGIT * DIGIT {
            return Err(Error::unsupported("collecting inputs", format!("{n} experts of {name}")));
        }
        // Whose weights lie on several machines has them where the layer is.
        let home = |split: &Split| split.homes().get(layer_of(name)?).copied();
        let of = (self.inner.downcast_ref::<Split>().and_then(home), [n, hidden, dim]);
        if let Some(probe) = self.lock().probes.iter().find(|p| p.of == of) {
            return Ok(probe.clone());
        }
        let b = &*self.inner;
        let still = |value: f32| {
            let bytes: Vec<u8> = (0..n).flat_map(|_| value.to_le_bytes()).collect();
            b.upload_weight(&HostWeight::new(name, [n, 1, 1], &F32, bytes.into())?)
        };
        let column = |values: Vec<f32>| b.upload(&values, [n, 1].into());
        // A gate of 1, which this activation leaves as it is, and of what is gated, the number.
        let digit = |of: fn(usize) -> usize| -> Result<Experts> {
            let digits = (0..n).map(|e| of(e) as f32).collect();
            let bias = [column(vec![1.0; n])?, column(digits)?, column(vec![0.0; n])?];
            let weights = [still(0.0)?, still(0.0)?, still(1.0)?];
            Ok(Experts::new(weights, Activation::ReluSquared).biased(bias))
        };
        let digits = [digit(|e| e % DIGIT)?, digit(|e| e / DIGIT)?];
        let select = |part: usize| {
            let mut one = vec![0_u8; 2 * dim * hidden]; // [dim, hidden]
            for (row, col) in (part * dim..hidden.min((part + 1) * dim)).enumerate() {
                one[2 * (row * hidden + col)..][..2].copy_from_slice(&f16::ONE.to_le_bytes());
            }
            b.upload_weight(&HostWeight::new(name, [n, dim, hidden], &F16, one.repeat(n).into())?)
        };
        let select = (0..hidden.div_ceil(dim.max(1))).map(select).collect::<Result<_>>()?;
        let none = b.upload(&vec![0.0; n * dim], [n, dim].into())?;
        let probe = Probe { of, digits, select, none };
        let probes = &mut self.lock().probes;
        if probes.len() == KEPT {
            probes.remove(0);
        }
        probes.push(probe.clone());
        Ok(probe)
    }
}

impl Backend for Collect {
    crate::forward_required_but_products!();
    crate::forward_provided_but_products!();

    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        self.note(&[w], x)?;
        self.inner.linear(x, w)
    }
    fn linear_many(&self, x: &Tensor, ws: &[&Weight]) -> Result<Vec<Tensor>> {
        self.note(ws, x)?;
        self.inner.linear_many(x, ws)
    }
    fn linear_gated(&self, x: &Tensor, gate: &Weight, up: &Weight, f: Activation) -> Result<Tensor> {
        self.note(&[gate, up], x)?;
        self.inner.linear_gated(x, gate, up, f)
    }
    // Heads' parts of a matrix, some of them turned: latent attention.
    fn linear_each(&self, x: &Tensor, ws: &[Weight]) -> Result<Tensor> {
        self.lock().otherwise.extend(ws.iter().map(|w| w.name().to_owned()));
        self.inner.linear_each(x, ws)
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        // Of one input and one output are no experts but factors of them.
        if experts.up.shape()[1..] != [1, 1] {
            self.note_experts(x, routing, experts)?;
        }
        self.inner.experts(x, routing, experts)
    }
    fn moe(
        &self,
        x: &Tensor,
        logits: &Tensor,
        spec: &crate::RouterSpec,
        experts: &Experts,
    ) -> Result<Tensor> {
        composed::moe(self, x, logits, spec, experts)
    }
}
