//! A chain's state as bytes: what it takes to go on tomorrow, in another process, as if nothing had been in between.
//!
//! The stages themselves are not in it. They are closures over a vocabulary, a grammar, types from other crates; whoever
//! goes on makes the same chain again from the same settings, and this brings it to where the old one stood. That the
//! settings are the same is checked by the chain's text, and what is too long for it by a hash.

use crate::chain::Chain;
use crate::error::SampleError;
use crate::rng::Rng;

impl SampleError {
    /// For a [`Stage::restore`](crate::Stage::restore) that was given bytes it never wrote.
    pub fn bad_state(stage: &str) -> Self {
        Self::State { problem: format!("what was saved of {stage} is not its state") }
    }
}

/// Checks what [`settings`] gave: for stages that keep nothing, and whose text leaves out some of what they draw by.
pub(crate) fn same_settings(stage: &str, saved: &[u8], own: &[u8]) -> Result<(), SampleError> {
    if saved.len() != own.len() {
        return Err(SampleError::bad_state(stage));
    }
    if saved != own {
        let problem = format!("its {stage} had other settings; give the same, or draw anew");
        return Err(SampleError::State { problem });
    }
    Ok(())
}

/// A hash of numbers (FNV-1a, 64 bits), as a stage's state. It is part of what is saved, so it never changes.
pub(crate) fn settings(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let bytes = numbers.into_iter().flat_map(u32::to_le_bytes);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes().to_vec()
}

/// So many numbers, all finite, in little endian.
pub(crate) fn finite<const N: usize>(bytes: &[u8]) -> Option<[f64; N]> {
    let words = words::<N>(bytes)?.map(f64::from_bits);
    words.iter().all(|x| x.is_finite()).then_some(words)
}

fn words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: &[[u8; 8]; N] = words.try_into().ok().filter(|_| rest.is_empty())?;
    Some(words.map(u64::from_le_bytes))
}

/// A generator as 32 bytes.
pub(crate) fn write_rng(rng: &Rng) -> Vec<u8> {
    rng.state().map(u64::to_le_bytes).concat()
}

/// The generator that [`write_rng`] wrote.
pub(crate) fn read_rng(bytes: &[u8]) -> Option<Rng> {
    Rng::from_state(words(bytes)?)
}

/// Takes parts off the front of what a chain wrote.
struct Parts<'b>(&'b [u8]);

impl<'b> Parts<'b> {
    fn take(&mut self, n: usize) -> Option<&'b [u8]> {
        let (part, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(part)
    }

    /// Bytes behind their number.
    fn counted(&mut self) -> Option<&'b [u8]> {
        let n = u32::from_le_bytes(*self.take(4)?.first_chunk()?);
        self.take(usize::try_from(n).ok()?)
    }
}

impl Chain {
    /// Where it stands, as bytes: the seed, the random numbers and what each stage has gathered. A chain made of the same
    /// settings goes on from there after [`restore`](Self::restore); what stages read from the history is not in it.
    ///
    /// ```
    /// use ogive_sampler::SamplerParams;
    ///
    /// let params = SamplerParams { mirostat: 2, seed: 7, ..SamplerParams::default() };
    /// let logits = [0.1, 0.5, 0.4, 0.3];
    /// let mut chain = params.build()?;
    /// chain.sample(&logits, &[])?;
    /// let saved = chain.state();
    ///
    /// let mut later = params.build()?;
    /// later.restore(&saved)?;
    /// assert_eq!(later.sample(&logits, &[]), chain.sample(&logits, &[]));
    /// # Ok::<(), ogive_sampler::SampleError>(())
    /// ```
    ///
    /// The layout, all numbers in little endian: the seed (8 bytes), xoshiro256**'s four words (32), then, each behind its
    /// length as 4 bytes, the chain's text and the state of every stage in order.
    pub fn state(&self) -> Vec<u8> {
        let mut out = self.seed.to_le_bytes().to_vec();
        out.extend(write_rng(&self.rng));
        let states = self.stages.iter().map(|s| s.state());
        for part in std::iter::once(self.to_string().into_bytes()).chain(states) {
            out.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(part);
        }
        out
    }

    /// Goes on from where a chain of the same settings stood when it gave `state`; its seed holds from here on.
    ///
    /// # Errors
    /// If the other chain had other stages or values, or the bytes are damaged; this one is then as it was.
    pub fn restore(&mut self, state: &[u8]) -> Result<(), SampleError> {
        let damaged = || SampleError::State { problem: "the bytes are not what a chain writes".to_owned() };
        let mut parts = Parts(state);
        let seed = parts.take(8).and_then(<[u8]>::first_chunk).map(|s| u64::from_le_bytes(*s));
        let seed = seed.ok_or_else(damaged)?;
        let rng = parts.take(32).and_then(read_rng).ok_or_else(damaged)?;
        let (saved, own) = (parts.counted().ok_or_else(damaged)?, self.to_string());
        if saved != own.as_bytes() {
            let saved: String =
                String::from_utf8_lossy(saved).chars().filter(|c| !c.is_control()).take(500).collect();
            return Err(SampleError::State {
                problem: format!(
                    "it was {saved:?} and this is {own:?}; give the same samplers, or draw anew"
                ),
            });
        }
        let mut stages = self.stages.clone();
        for stage in &mut stages {
            stage.reseed(seed);
            stage.restore(parts.counted().ok_or_else(damaged)?)?;
        }
        if !parts.0.is_empty() {
            return Err(damaged());
        }
        (self.stages, self.seed, self.rng) = (stages, seed, rng);
        Ok(())
    }

    /// Brings the first stage alone to where that of another chain stood when it gave `state`; says whether the two are the
    /// same stage, and does nothing if not. For a text that goes on by other samplers: its grammar goes on where it was.
    ///
    /// # Errors
    /// If the bytes are damaged; the stage is then as it was.
    pub fn restore_first(&mut self, state: &[u8]) -> Result<bool, SampleError> {
        let damaged = || SampleError::State { problem: "the bytes are not what a chain writes".to_owned() };
        let mut parts = Parts(state);
        parts.take(8 + 32).ok_or_else(damaged)?;
        let saved = parts.counted().ok_or_else(damaged)?;
        let Some(first) = self.stages.first_mut() else { return Ok(false) };
        let rest = saved.strip_prefix(first.text().as_bytes());
        let same = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b","));
        if same {
            first.restore(parts.counted().ok_or_else(damaged)?)?;
        }
        Ok(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SamplerParams;
    use crate::stages::{Greedy, MirostatV2, Temperature};

    fn params() -> Vec<SamplerParams> {
        let base = SamplerParams { seed: 11, repeat_penalty: 1.2, ..SamplerParams::default() };
        vec![
            base.clone(),
            SamplerParams { mirostat: 1, ..base.clone() },
            SamplerParams { mirostat: 2, ..base.clone() },
            SamplerParams { adaptive_target: 0.4, ..base.clone() },
            SamplerParams { xtc_probability: 0.5, xtc_threshold: 0.01, dynatemp_range: 0.4, ..base.clone() },
            SamplerParams::greedy(),
        ]
    }

    fn logits(step: usize) -> Vec<f32> {
        (0..64).map(|i| ((i * 7 + step * 13) as f32 * 0.31).sin() * 3.0).collect()
    }

    fn draw(chain: &mut Chain, history: &mut Vec<u32>, steps: std::ops::Range<usize>) {
        for step in steps {
            let token = chain.sample(&logits(step), history).expect("something can come");
            history.push(token);
        }
    }

    #[test]
    fn a_restored_chain_goes_on_as_the_first() {
        for params in params() {
            let params = SamplerParams { dry_sequence_breakers: Vec::new(), ..params };
            let (mut chain, mut history) = (params.build().expect("good"), vec![1]);
            draw(&mut chain, &mut history, 0..25);
            let (state, mut other) = (chain.state(), history.clone());
            draw(&mut chain, &mut history, 25..60);
            let mut later = SamplerParams { seed: 99, ..params.clone() }.build().expect("good");
            later.restore(&state).expect("the same settings");
            assert_eq!(later.state(), state);
            draw(&mut later, &mut other, 25..60);
            assert_eq!(other, history, "{later}");
        }
    }

    #[test]
    fn the_first_stage_can_go_on_alone() {
        let chain = |mirostat, temperature| {
            let stage = MirostatV2::new(5.0, 0.1).expect("good");
            let chain = if mirostat { Chain::new(3).then(stage) } else { Chain::new(3) };
            chain.then(Temperature::new(temperature).expect("good"))
        };
        let (mut first, mut history) = (chain(true, 0.5), vec![1]);
        draw(&mut first, &mut history, 0..9);
        let (state, mut other) = (first.state(), chain(true, 0.9));
        assert_eq!(other.restore_first(&state), Ok(true));
        assert_eq!(other.stages().next().map(|s| s.state()), first.stages().next().map(|s| s.state()));
        assert_eq!(other.rng.state(), Chain::new(3).rng.state(), "the rest is new");
        let mut without = chain(false, 0.5);
        assert_eq!(without.restore_first(&state), Ok(false));
        assert_eq!(Chain::new(1).restore_first(&state), Ok(false));
        for n in 0..state.len() {
            let mut other = chain(true, 0.9);
            let _ = other.restore_first(&state[..n]);
        }
        assert!(other.restore_first(&state[..39]).is_err());
    }

    #[test]
    fn other_chains_and_damaged_states_change_nothing() {
        let chains: Vec<Chain> = params().iter().map(|p| p.build().expect("good")).collect();
        for (i, a) in chains.iter().enumerate() {
            for (j, b) in chains.iter().enumerate() {
                assert_eq!(a.clone().restore(&b.state()).is_ok(), i == j, "{a} {b}");
            }
            let state = a.state();
            for n in 0..state.len() {
                let mut same = a.clone();
                assert!(same.restore(&state[..n]).is_err());
                assert_eq!(same.state(), state);
            }
            assert!(a.clone().restore(&[&*state, &[0]].concat()).is_err());
        }
        let error = Chain::new(1).restore(&chains[0].state()).expect_err("other stages").to_string();
        assert!(error.contains("give the same samplers") && error.contains("penalties:1.2"), "{error}");
        let mut zeros = Chain::new(1).then(Greedy).state();
        zeros[8..40].fill(0);
        assert!(Chain::new(1).then(Greedy).restore(&zeros).is_err(), "random numbers that would all be zero");
        let mut nan = chains[2].state();
        let at = nan.len() - 8;
        nan[at..].copy_from_slice(&f64::NAN.to_le_bytes());
        assert!(chains[2].clone().restore(&nan).is_err());
    }
}
