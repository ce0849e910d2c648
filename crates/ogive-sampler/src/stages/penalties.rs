//! Repetition, frequency and presence penalties on recent tokens, with llama.cpp's arithmetic.
//!
//! One stage for the three, since they share the window and its counts. The window is read from the
//! history and not collected in `accept`: so the prompt counts too, and a fork or a rewound sequence
//! needs no care.

use crate::candidates::Candidates;
use crate::error::{SampleError, check};
use crate::stage::{Needs, Stage};

/// Penalises the tokens among the last n of the history.
///
/// A token that occurs there `count` times: its logit is divided by `repeat` if positive, else multiplied
/// (Keskar et al. 2019, arXiv:1909.05858, with the sign repaired), then loses `count * frequency +
/// presence`. Touches only those tokens; time grows with n log n, not with the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalties {
    last_n: usize,
    repeat: f32,
    frequency: f32,
    presence: f32,
}

impl Penalties {
    /// Looks `last_n` tokens back (0: off; `usize::MAX`: the whole history). `repeat` is above 0, 1 being
    /// neutral; `frequency` and `presence` are finite, 0 being neutral, and negative ones reward.
    ///
    /// # Errors
    /// If `repeat` is not above 0, or one of the three is not finite.
    pub fn new(last_n: usize, repeat: f32, frequency: f32, presence: f32) -> Result<Self, SampleError> {
        check("repeat_penalty", repeat, repeat.is_finite() && repeat > 0.0, "a number above 0 (1 is off)")?;
        check("frequency_penalty", frequency, frequency.is_finite(), "a finite number (0 is off)")?;
        check("presence_penalty", presence, presence.is_finite(), "a finite number (0 is off)")?;
        Ok(Self { last_n, repeat, frequency, presence })
    }

    /// Whether it changes nothing.
    pub fn is_off(&self) -> bool {
        self.last_n == 0 || (self.repeat == 1.0 && self.frequency == 0.0 && self.presence == 0.0)
    }

    fn penalised(&self, logit: f32, count: u32) -> f32 {
        if !logit.is_finite() {
            return logit;
        }
        let logit = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
        let loss = (count as f32 * self.frequency + self.presence).clamp(f32::MIN, f32::MAX);
        // However strong, a penalty is no ban, and a reward does not force.
        (logit.clamp(f32::MIN, f32::MAX) - loss).clamp(f32::MIN, f32::MAX)
    }
}

impl Stage for Penalties {
    fn name(&self) -> &str {
        "penalties"
    }

    fn text(&self) -> String {
        let (repeat, frequency, presence) = (self.repeat, self.frequency, self.presence);
        match self.last_n {
            usize::MAX => format!("penalties:{repeat}:{frequency}:{presence}:-1"),
            last_n => format!("penalties:{repeat}:{frequency}:{presence}:{last_n}"),
        }
    }

    fn apply(&mut self, candidates: &mut Candidates, history: &[u32]) {
        if self.is_off() {
            return;
        }
        let (_, window) = history.split_at(history.len().saturating_sub(self.last_n));
        let mut window = window.to_vec();
        window.sort_unstable();
        let counts: Vec<(u32, u32)> = window
            .chunk_by(|a, b| a == b)
            .filter_map(|run| Some((*run.first()?, u32::try_from(run.len()).unwrap_or(u32::MAX))))
            .collect();
        candidates.map_tokens(&counts, |c, &count| self.penalised(c.logit, count));
    }

    fn needs(&self) -> Needs {
        if self.is_off() {
            Needs::Next
        } else if self.repeat >= 1.0 && self.frequency >= 0.0 && self.presence >= 0.0 {
            Needs::NextAnd(self.last_n)
        } else {
            // A rewarded token may come from anywhere in the vocabulary.
            Needs::All
        }
    }

    fn clone_stage(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
