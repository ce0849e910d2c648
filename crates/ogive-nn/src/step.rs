//! What a layer needs besides its input.

use crate::backend::{AttnOption, AttnSpec, Backend, Cache, Estimate, Plan, Span};
use crate::tensor::{Error, Result, Tensor};
use std::{any::Any, borrow::Cow, fmt};

/// Leaves nothing of any score, and is no infinity: from one of these another cannot be subtracted.
const HIDDEN: f32 = -1e30;

/// Elements of a mask at most: a GiB, of a text of 16,384 tokens.
const MOST: usize = 1 << 28;

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

    /// What hides from each token those that are more than `reach` tokens before or behind it, to be added to scores
    /// ([`AttnOption::Mask`]). `None` where no text is so long. `[n, longest text]`
    ///
    /// # Errors
    /// If it has more than 2^28 elements, which is one text of 16,384 tokens; else as [all operators](crate::backend::Backend#errors).
    pub fn around(&self, reach: usize) -> Result<Option<Tensor>> {
        let batch = self.plan.batch();
        let (n, longest) = (batch.tokens.len(), batch.spans.iter().map(Span::context).max().unwrap_or(0));
        if longest.saturating_sub(1) <= reach {
            return Ok(None);
        }
        let many = || {
            let why = format!(
                "{n} tokens in a step, the longest text of {longest}, need a mask of more than a GiB"
            );
            Error::invalid(
                "mask",
                format!("{why}; cut texts (`max_tokens` with `truncate`), or give fewer at a time"),
            )
        };
        let size = n.saturating_mul(longest);
        // It looks at no values, and counts what is refused elsewhere as the most that is not.
        if let Some(estimate) = (self.backend as &dyn Any).downcast_ref::<Estimate>() {
            return Ok(Some(estimate.passing([n, longest].into(), size.min(MOST))));
        }
        let size = Some(size).filter(|size| *size <= MOST).ok_or_else(many)?;
        let mut values = Vec::new();
        let short = |e| Error::invalid("mask", format!("there is no memory for {size} numbers: {e}"));
        values.try_reserve_exact(size).map_err(short)?;
        values.resize(size, 0.0);
        for span in &batch.spans {
            let rows = values.chunks_exact_mut(longest).skip(span.start).take(span.len);
            for (here, row) in (span.past..).zip(rows) {
                let far = row.iter_mut().enumerate().filter(|(t, _)| t.abs_diff(here) > reach);
                far.for_each(|(_, to)| *to = HIDDEN);
            }
        }
        self.backend.upload(&values, [n, longest].into()).map(Some)
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
