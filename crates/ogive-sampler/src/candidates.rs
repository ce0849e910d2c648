//! The tokens that may still come next, and the one order they are compared in.
//!
//! The list is private: all edits go through methods that keep it what every stage may rely on. It is never
//! empty, holds each token once and holds no NaN. It starts in order of ids, also where a device sent only
//! the best ones in some order of its own, so that all that follows is a function of the set.

use std::cmp::Reverse;

use crate::error::SampleError;
use crate::mask::Mask;
use crate::softmax::{LIMIT, Softmax};

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub id: u32,
    /// Its logit, as edited so far. Minus infinity forbids, plus infinity forces.
    pub logit: f32,
}

impl Candidate {
    /// A number that is larger for a better candidate: larger logits first, of equal ones the lower id.
    /// NaN ranks with minus infinity, and minus zero with zero.
    pub(crate) fn rank(self) -> u64 {
        let bits = (clean(self.logit) + 0.0).to_bits();
        // The usual trick: flip all bits of negative floats and the sign of the others, and they sort as
        // integers.
        let key = bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
        u64::from(key) << 32 | u64::from(!self.id)
    }

    /// The candidate that has this rank, but for the sign of a zero.
    pub(crate) fn from_rank(rank: u64) -> Self {
        let (key, id) = ((rank >> 32) as u32, !(rank as u32));
        let bits = key ^ if key >> 31 == 1 { 1 << 31 } else { u32::MAX };
        Self { id, logit: f32::from_bits(bits) }
    }
}

fn clean(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit }
}

/// The `n` best of a row of logits, best first: what a device has to send for
/// [`Chain::needs`](crate::Chain::needs) to be met, and the definition for a kernel that finds them.
/// Larger logits are better, of equal ones the lower id; NaN counts as minus infinity.
///
/// One pass that skips whole runs of hopeless logits; time grows with `logits.len() + n log n`.
pub fn best(logits: &[f32], n: usize) -> Vec<Candidate> {
    let mut list = Vec::new();
    gather_best(logits, n, None, &mut list);
    list.sort_unstable_by_key(|c| Reverse(c.rank()));
    list
}

/// Logits that are looked at together; the comparison of a run vectorises. A word of a mask has as many bits.
const RUN: usize = u32::BITS as usize;

/// The `n` best of `logits` that the mask allows, in no particular order, into an empty `list`.
fn gather_best(logits: &[f32], n: usize, mask: Option<Mask<'_>>, list: &mut Vec<Candidate>) {
    if n == 0 {
        return;
    }
    let room = n.saturating_mul(2).max(2 * RUN).min(logits.len());
    // The n-th best so far. A later logit must be larger: of equal ones the earlier id wins.
    let mut bar: Option<f32> = None;
    let mut id = 0u32;
    for (at, run) in logits.chunks(RUN).enumerate() {
        let allowed = mask.map_or(u32::MAX, |mask| mask.word(at));
        let hopeless = bar.is_some_and(|bar| !run.iter().fold(false, |any, &l| any | (l > bar)));
        if allowed != 0 && !hopeless {
            for (i, &logit) in (id..).zip(run) {
                if allowed >> (i % u32::BITS) & 1 == 1 && bar.is_none_or(|bar| logit > bar) {
                    list.push(Candidate { id: i, logit: clean(logit) });
                }
            }
            if list.len() >= room && list.len() > n {
                list.select_nth_unstable_by_key(n - 1, |c| Reverse(c.rank()));
                list.truncate(n);
                bar = list.last().map(|c| c.logit);
            }
        }
        id = id.wrapping_add(RUN as u32);
    }
    if list.len() > n {
        list.select_nth_unstable_by_key(n - 1, |c| Reverse(c.rank()));
        list.truncate(n);
    }
}

/// How the list is sorted just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Ascending ids.
    Ids,
    /// Best first.
    Ranks,
    /// Not known.
    Unknown,
}

/// The candidates, as the stages pass them on. Never empty, each token once, no NaN.
#[derive(Clone, Debug)]
pub struct Candidates {
    list: Vec<Candidate>,
    order: Order,
}

impl Candidates {
    /// From one row of logits; the index is the token.
    ///
    /// # Errors
    /// If there are none, or more than 2^23.
    pub fn from_logits(logits: &[f32]) -> Result<Self, SampleError> {
        Self::load(Vec::new(), logits, None)
    }

    /// From a list in any order.
    ///
    /// # Errors
    /// If there are none or more than 2^23, or if a token is there twice.
    pub fn from_list(mut list: Vec<Candidate>) -> Result<Self, SampleError> {
        check_count(list.len())?;
        list.iter_mut().for_each(|c| c.logit = clean(c.logit));
        list.sort_unstable_by_key(|c| c.id);
        match list.windows(2).find(|w| w[0].id == w[1].id) {
            Some(twice) => Err(SampleError::DuplicateCandidate { token: twice[0].id }),
            None => Ok(Self { list, order: Order::Ids }),
        }
    }

    /// From a row of logits, all or only the `best` ones, in memory that was used before.
    pub(crate) fn load(
        mut list: Vec<Candidate>,
        logits: &[f32],
        best: Option<usize>,
    ) -> Result<Self, SampleError> {
        check_count(logits.len())?;
        list.clear();
        match best.filter(|&n| n < logits.len()) {
            Some(n) => {
                gather_best(logits, n.max(1), None, &mut list);
                list.sort_unstable_by_key(|c| c.id);
            }
            None => {
                list.extend((0..).zip(logits).map(|(id, &logit)| Candidate { id, logit: clean(logit) }));
            }
        }
        Ok(Self { list, order: Order::Ids })
    }

    /// From those of a row of logits that the mask allows, all or only the `best` ones; `None` if it allows none.
    pub(crate) fn load_allowed(
        mut list: Vec<Candidate>,
        logits: &[f32],
        best: Option<usize>,
        mask: Mask<'_>,
    ) -> Result<Option<Self>, SampleError> {
        check_count(logits.len())?;
        list.clear();
        gather_best(logits, best.unwrap_or(usize::MAX).max(1), Some(mask), &mut list);
        list.sort_unstable_by_key(|c| c.id);
        Ok((!list.is_empty()).then_some(Self { list, order: Order::Ids }))
    }

    /// The memory, for the next time.
    pub(crate) fn into_list(self) -> Vec<Candidate> {
        self.list
    }

    /// The candidates in their present order.
    pub fn as_slice(&self) -> &[Candidate] {
        &self.list
    }

    /// How many there are; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is known to be sorted, best first.
    pub fn is_best_first(&self) -> bool {
        self.order == Order::Ranks
    }

    /// The best candidate: the largest logit, of equal ones the lowest id.
    pub fn best(&self) -> Candidate {
        let first = self.list.first();
        let found = match self.order {
            Order::Ranks => first,
            // In order of ids the first of the largest is the best.
            Order::Ids => {
                let most = largest_logit(&self.list);
                self.list.iter().find(|c| c.logit == most)
            }
            Order::Unknown => self.list.iter().max_by_key(|c| c.rank()),
        };
        found.copied().unwrap_or(Candidate { id: 0, logit: f32::NEG_INFINITY })
    }

    /// Gives every candidate a new logit. NaN becomes minus infinity.
    pub fn map(&mut self, mut logit: impl FnMut(Candidate) -> f32) {
        self.list.iter_mut().for_each(|c| c.logit = clean(logit(*c)));
        self.forget_ranks();
    }

    /// Gives a new logit to the candidates that `edits` names. `edits` must ascend by token, each once;
    /// tokens that are no candidates are passed over. NaN becomes minus infinity.
    pub fn map_tokens<T>(&mut self, edits: &[(u32, T)], mut logit: impl FnMut(Candidate, &T) -> f32) {
        if self.order == Order::Ids {
            for (id, edit) in edits {
                // In a whole vocabulary a token stands at its own index.
                let at = *id as usize;
                let at = if self.list.get(at).is_some_and(|c| c.id == *id) {
                    Ok(at)
                } else {
                    self.list.binary_search_by_key(id, |c| c.id)
                };
                if let Some(c) = at.ok().and_then(|at| self.list.get_mut(at)) {
                    c.logit = clean(logit(*c, edit));
                }
            }
        } else {
            for c in &mut self.list {
                let edit = edits.binary_search_by_key(&c.id, |(id, _)| *id).ok().and_then(|at| edits.get(at));
                if let Some((_, edit)) = edit {
                    c.logit = clean(logit(*c, edit));
                }
            }
            self.forget_ranks();
        }
    }

    fn forget_ranks(&mut self) {
        if self.order == Order::Ranks {
            self.order = Order::Unknown;
        }
    }

    /// Keeps those that pass, in their order; the best one where none does. Every candidate is asked once.
    pub fn retain(&mut self, mut pass: impl FnMut(Candidate) -> bool) {
        let Some(&first) = self.list.first() else { return };
        // Every candidate is written, and only the count depends on the answer: which ones pass is too random
        // for a branch to be predicted, and a misprediction costs more than all the rest.
        let mut kept = 0;
        for at in 0..self.list.len() {
            let c = self.list[at];
            self.list[kept] = c;
            kept += usize::from(pass(c));
        }
        if kept > 0 {
            self.list.truncate(kept);
        } else {
            // Only the first place was written to.
            self.list[0] = first;
            self.keep_best(1);
        }
    }

    /// Keeps the `k` best (at least one), best first.
    ///
    /// By partial selection: time grows with the number of candidates and k log k.
    pub fn keep_best(&mut self, k: usize) {
        let k = k.max(1);
        if k == 1 {
            let best = self.best();
            self.list.clear();
            self.list.push(best);
        } else if self.order == Order::Ranks {
            self.list.truncate(k);
        } else {
            if k < self.list.len() {
                self.list.select_nth_unstable_by_key(k - 1, |c| Reverse(c.rank()));
                self.list.truncate(k);
            }
            self.list.sort_unstable_by_key(|c| Reverse(c.rank()));
        }
        self.order = Order::Ranks;
    }

    /// The probabilities of the candidates as they are now, in their order: softmax of the logits,
    /// summing to 1, or all zero where nothing is possible. Of several plus infinities the one with the
    /// lowest id has it all. What is less than 2^-41 as likely as the best counts as impossible.
    pub fn probabilities(&self) -> Vec<f64> {
        let softmax = self.softmax();
        let total = softmax.total.max(1) as f64;
        self.list.iter().map(|&c| softmax.weight(c) as f64 / total).collect()
    }

    pub(crate) fn softmax(&self) -> Softmax {
        Softmax::new(&self.list, self.best())
    }
}

/// The largest logit, in lanes that fill vectors.
fn largest_logit(list: &[Candidate]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut most = [f32::NEG_INFINITY; 16];
    let (blocks, rest) = list.as_chunks::<16>();
    for block in blocks {
        for (m, c) in most.iter_mut().zip(block) {
            *m = larger(*m, c.logit);
        }
    }
    most.into_iter().chain(rest.iter().map(|c| c.logit)).fold(f32::NEG_INFINITY, larger)
}

fn check_count(count: usize) -> Result<(), SampleError> {
    match count {
        0 => Err(SampleError::Empty),
        _ if count > LIMIT => Err(SampleError::TooMany { count, limit: LIMIT }),
        _ => Ok(()),
    }
}
