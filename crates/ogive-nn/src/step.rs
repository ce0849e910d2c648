//! What a layer needs besides its input.

use crate::backend::{AttnOption, AttnSpec, Backend, Cache, Plan};
use crate::tensor::{Error, Result, Tensor};
use std::{borrow::Cow, fmt};

/// Sees intermediate results by name, for comparing layers with another implementation.
pub type Observer<'a> = &'a (dyn Fn(&str, &Tensor) + 'a);

/// One step of a model: where to compute, which tokens of which sequences, and what those have seen so far.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Step<'a> {
    /// Where to compute.
    pub backend: &'a dyn Backend,
    /// Which tokens, of which sequences.
    pub plan: &'a Plan,
    /// What the sequences have seen so far.
    pub cache: &'a Cache,
    observer: Option<Observer<'a>>,
}

impl<'a> Step<'a> {
    /// A step of `plan` on `backend`.
    pub fn new(backend: &'a dyn Backend, plan: &'a Plan, cache: &'a Cache) -> Self {
        Self { backend, plan, cache, observer: None }
    }

    /// The same step, with someone looking on.
    #[must_use]
    pub fn observed(self, observer: Observer<'a>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// How a layer attends in this step: where some of its rows see each other to both sides, so do those of a layer that looks back.
    pub(crate) fn attention<'s>(&self, spec: &'s AttnSpec) -> Cow<'s, AttnSpec> {
        let mutual = self.plan.batch().inputs.iter().any(|input| input.of.mutual);
        if mutual && spec.looks_back() {
            Cow::Owned(spec.clone().with(AttnOption::Mutual))
        } else {
            Cow::Borrowed(spec)
        }
    }

    /// That each text is whole in this step, which models want whose tokens see later ones.
    ///
    /// # Errors
    /// If tokens of one were in an earlier step.
    pub fn whole_texts(&self) -> Result<()> {
        let Some(span) = self.plan.batch().spans.iter().find(|span| span.past > 0) else { return Ok(()) };
        let why = format!("{} tokens of a text were in an earlier step", span.past);
        Err(Error::invalid(
            "encoder",
            format!("{why}; each token sees all others, so a text must be whole in one"),
        ))
    }

    /// Shows an intermediate result to whoever looks on. `name` is only made where someone does.
    pub fn observe(&self, name: impl FnOnce() -> String, x: &Tensor) {
        if let Some(observer) = self.observer {
            observer(&name(), x);
        }
    }
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("backend", &self.backend)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}
