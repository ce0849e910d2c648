//! Mixtures of experts: choosing, and applying what was chosen. Two operators,
//! as routers differ from model to model and experts do not.

use crate::{Activation, Weight};
use ogive_tensor::{Error, Result, Shape, Tensor};

/// How logits become scores.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scoring {
    /// Over all experts.
    Softmax,
    /// Of each alone.
    Sigmoid,
    /// Experts are chosen one after the other by their logits. Each has its share of a softmax over those not chosen before it that are near it:
    /// whose logit is below its by no more than `within` times the larger of its own and of their size (Liu et al. 2024,
    /// <https://arxiv.org/abs/2409.12136>, as it is when nothing is drawn). Without groups and biases.
    SparseMixer {
        /// 0 or more.
        within: f32,
    },
}

/// Whether an expert of this logit is near one chosen with `best`. What is no number is.
pub fn is_near(best: f32, logit: f32, within: f32) -> bool {
    let apart = (best - logit) / logit.abs().max(best);
    apart.is_nan() || apart <= within
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
    /// Checks that a row can choose so from so many experts.
    ///
    /// # Errors
    /// If groups do not cut them evenly, if those that count have fewer than `k` or `k` is 0, if there is not a bias for each, and where a sparse
    /// mixer has either, or bounds that are none.
    pub fn check(&self, experts: usize) -> Result<()> {
        let (Self { k, group_best, .. }, [groups, top], at) = (self, self.groups, "route");
        let wrong = |why: String| Err(Error::invalid(at, why));
        if let Scoring::SparseMixer { within } = self.scoring {
            if self.bias.is_some() || top < groups {
                return wrong("a sparse mixer with groups or biases is not known".into());
            }
            if within.is_nan() || within < 0.0 {
                return wrong(format!("experts within {within} of each other; it should be 0 or more"));
            }
        }
        let size = experts.checked_div(groups).filter(|_| experts.is_multiple_of(groups));
        let Some(size) = size.filter(|_| (1..=groups).contains(&top) && *group_best > 0) else {
            return wrong(format!(
                "{experts} experts in {groups} groups, of which {top} are chosen by their {group_best} best"
            ));
        };
        let open = size * top;
        if !(1..=open).contains(k) {
            return wrong(format!("{k} experts of {open} to choose from"));
        }
        match self.bias.as_ref().map(|bias| bias.shape().len()) {
            Some(found) if found != experts => wrong(format!("{found} biases for {experts} experts")),
            _ => Ok(()),
        }
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

/// How what came of a gate and what it gates become one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Gating {
    /// `f(g) * u`
    #[default]
    Product,
    /// `f(min(g, limit)) * (clamp(u, -limit, limit) + 1)`, as gpt-oss has it (OpenAI 2025, <https://arxiv.org/abs/2508.10925>). What
    /// is no number stays none.
    Clamped {
        /// Above zero, and finite.
        limit: f32,
    },
}

/// MLPs, stacked: gated ones, `down(gating(gate(x), up(x)))`, or such without a gate, `down(f(up(x)))`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Experts {
    /// `[experts, hidden, dim]`; `None` where nothing is gated.
    pub gate: Option<Weight>,
    /// `[experts, hidden, dim]`
    pub up: Weight,
    /// `[experts, dim, hidden]`
    pub down: Weight,
    /// On the gate; without one on what comes of `up`.
    pub activation: Activation,
    /// How gate and up become one. A backend that does not know it must fail.
    pub gating: Gating,
    /// Added to what comes of gate, up and down. `[experts, hidden]`, `[experts, hidden]` and `[experts, dim]`
    pub bias: Option<[Tensor; 3]>,
}

impl Experts {
    /// Without biases, `f(gate(x)) * up(x)` in between.
    pub fn new([gate, up, down]: [Weight; 3], activation: Activation) -> Self {
        Self { gate: Some(gate), ..Self::ungated([up, down], activation) }
    }
    /// Without biases and gates, `f(up(x))` in between.
    pub fn ungated([up, down]: [Weight; 2], activation: Activation) -> Self {
        Self { gate: None, up, down, activation, gating: Gating::Product, bias: None }
    }
    /// With biases of gate, up and down.
    #[must_use]
    pub fn biased(self, bias: [Tensor; 3]) -> Self {
        Self { bias: Some(bias), ..self }
    }
    /// With another gating.
    #[must_use]
    pub fn gating(self, gating: Gating) -> Self {
        Self { gating, ..self }
    }
    /// The gate, if there is one, up and down.
    pub fn weights(&self) -> Vec<&Weight> {
        self.gate.iter().chain([&self.up, &self.down]).collect()
    }
    /// Checks what does not need a backend's eyes: that shapes fit each other and rows of `dim` elements, that a limit is one, and that nothing
    /// is said of a gate where there is none.
    ///
    /// # Errors
    /// Where it is not so.
    pub fn check(&self, dim: usize) -> Result<()> {
        let at = "experts";
        let [experts, hidden, _] = self.up.shape();
        let wide = [experts, hidden, dim];
        let wanted = self.gate.iter().map(|gate| (gate, wide));
        for (w, want) in wanted.chain([(&self.up, wide), (&self.down, [experts, dim, hidden])]) {
            if w.shape() != want {
                return Err(Error::shape(at, w.shape().into(), want.into()));
            }
        }
        if self.gate.is_none() && (self.bias.is_some() || self.gating != Gating::Product) {
            let why =
                "biases, or a gating, of experts without a gate are not known: such experts have neither";
            return Err(Error::unsupported(at, why));
        }
        let widths = [hidden, hidden, dim];
        for (bias, width) in self.bias.iter().flatten().zip(widths) {
            let want: Shape = [experts, width].into();
            if bias.shape() != want {
                return Err(Error::shape(at, bias.shape(), want));
            }
        }
        match self.gating {
            Gating::Clamped { limit } if !(limit > 0.0 && limit.is_finite()) => {
                Err(Error::invalid(at, format!("a limit of {limit}, where a finite one above 0 is needed")))
            }
            _ => Ok(()),
        }
    }
}
