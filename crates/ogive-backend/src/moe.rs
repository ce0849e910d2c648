//! Mixtures of experts: choosing, and applying what was chosen. Two operators,
//! as routers differ from model to model and experts do not.

use crate::{Activation, Weight};
use ogive_tensor::Tensor;

/// How logits become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scoring {
    /// Over all experts.
    Softmax,
    /// Of each alone.
    Sigmoid,
}

/// How a row chooses its experts. Ties go to the lower index.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouterSpec {
    /// Experts of a row.
    pub k: usize,
    /// How logits become scores.
    pub scoring: Scoring,
    /// Whether the chosen scores are made to sum to one.
    pub normalise: bool,
    /// Multiplies the chosen scores, last of all.
    pub scale: f32,
    /// Groups the experts are in, and how many of them a row may choose from.
    pub groups: [usize; 2],
    /// A group counts as the sum of so many of its best.
    pub group_best: usize,
    /// Added for the choice, not to the scores. `[experts]`
    pub bias: Option<Tensor>,
}

impl RouterSpec {
    /// One group, normalised, no bias.
    pub fn new(k: usize, scoring: Scoring) -> Self {
        Self { k, scoring, normalise: true, scale: 1.0, groups: [1, 1], group_best: 1, bias: None }
    }
    /// The chosen scores as they are, times `scale`.
    #[must_use]
    pub fn unnormalised(self, scale: f32) -> Self {
        Self { normalise: false, scale, ..self }
    }
    /// Choose among the best `top` of `n` groups, judged by their `best` best.
    #[must_use]
    pub fn grouped(self, n: usize, top: usize, best: usize) -> Self {
        Self { groups: [n, top], group_best: best, ..self }
    }
    /// A bias on the choice.
    #[must_use]
    pub fn biased(self, bias: Tensor) -> Self {
        Self { bias: Some(bias), ..self }
    }
}

/// What `route` chose; only the backend that made it can open the tensors.
#[derive(Clone, Debug)]
pub struct Routing {
    /// `[n, k]`, of whatever the backend counts in.
    pub ids: Tensor,
    /// `[n, k]`
    pub weights: Tensor,
}

/// Gated MLPs, stacked.
#[derive(Clone, Debug)]
pub struct Experts {
    /// `[experts, hidden, dim]`
    pub gate: Weight,
    /// `[experts, hidden, dim]`
    pub up: Weight,
    /// `[experts, dim, hidden]`
    pub down: Weight,
    /// On the gate.
    pub activation: Activation,
}
