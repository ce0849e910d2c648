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
    /// Who sees whom, where that is not as each layer has it.
    mask: Option<&'a Tensor>,
}

impl<'a> Step<'a> {
    /// A step of `plan` on `backend`.
    pub fn new(backend: &'a dyn Backend, plan: &'a Plan, cache: &'a Cache) -> Self {
        Self { backend, plan, cache, observer: None, mask: None }
    }

    /// The same step, with someone looking on.
    #[must_use]
    pub fn observed(self, observer: Observer<'a>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// The same step with what [`mutual_mask`](crate::inputs::mutual_mask) gave for it, if anything.
    #[must_use]
    pub fn masked(self, mask: Option<&'a Tensor>) -> Self {
        Self { mask, ..self }
    }

    /// How a layer that looks back attends in this step.
    pub(crate) fn attention<'s>(&self, spec: &'s AttnSpec) -> Cow<'s, AttnSpec> {
        let Some(mask) = self.mask else { return Cow::Borrowed(spec) };
        let mut spec = spec.clone();
        spec.options.retain(|option| !matches!(option, AttnOption::Causal));
        Cow::Owned(spec.with(AttnOption::Mask(mask.clone())))
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
