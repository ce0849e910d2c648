//! Steps in pieces: each part records its own and replays it, and between them go only the values that a later part wants.
//!
//! A part records a function, and a step is one function that goes through all parts. So the step is run once for each piece, with that
//! piece's operators alone: those before it give tensors without elements, and at the first one behind it the run ends. What a piece gives is
//! its result, in one tensor, which the next ones bring to a place that stays. No backend has to know of pieces; one that records runs
//! the model no more, one that does not runs it as far as its own piece ends.
//!
//! The first step of its kind is run as it is, to learn its operators. Whatever goes wrong later, it is run as it is again.

use super::Split;
use super::pieces::{Active, Running, Script};
use crate::{Axis, Plan, StepKey};
use ogive_tensor::{Error, Result, Tensor};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, TryLockError};

/// Kinds of steps that are remembered.
const KINDS: usize = 64;
/// So many times a step is another than the one that was learned before its kind is given up.
const ATTEMPTS: u32 = 3;
/// So many times in a row no part replays its piece before a kind is given up: none records.
const RUNS: u32 = 16;

/// What is known of a kind of step.
#[derive(Debug)]
enum Known {
    /// Nothing yet.
    New,
    Script(Script),
    /// It is run as it is.
    Refused,
}

#[derive(Debug)]
struct Kind {
    /// Without its context: operators do not depend on that.
    key: StepKey,
    failed: u32,
    /// Times since a part last replayed its piece.
    runs: u32,
    known: Known,
}

/// The kinds of steps, the one used last first.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    all: Mutex<Vec<Kind>>,
}

/// No two runs have the same.
fn number() -> u64 {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    RUNS.fetch_add(1, Relaxed)
}

fn differs(why: &str) -> Error {
    Error::unsupported("replay", why)
}

/// The key of a piece. What was recorded of a step that was learned otherwise must not be replayed, so the script's number is in it: no other
/// of any split has the same, and each is of one key.
fn key_of(key: &StepKey, script: u64, piece: usize) -> StepKey {
    let pieces = (super::pieces::MOST + 1) as u64;
    StepKey { piece: script.wrapping_mul(pieces).wrapping_add(piece as u64 + 1), ..key.clone() }
}

impl Split {
    /// Runs `f` in pieces, or as it is.
    pub(super) fn in_pieces(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut all = match self.kinds.all.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            // Another thread's step, or one in the middle of which this one stands.
            Err(TryLockError::WouldBlock) => return f(plan),
        };
        let same = StepKey { context_bucket: 0, ..key.clone() };
        match all.iter().position(|kind| kind.key == same) {
            Some(at) => all[..=at].rotate_right(1),
            None => {
                all.truncate(KINDS - 1);
                all.insert(0, Kind { key: same, failed: 0, runs: 0, known: Known::New });
            }
        }
        let Some(kind) = all.first_mut() else { return f(plan) };
        let why = match &mut kind.known {
            Known::Refused => return f(plan),
            Known::New => {
                let (y, learned) = self.learn(plan, f)?;
                kind.known = learned;
                return Ok(y);
            }
            Known::Script(script) => match self.pieces(script, key, plan, f) {
                Ok((y, replayed)) => {
                    kind.runs = if replayed { 0 } else { kind.runs + 1 };
                    if kind.runs >= RUNS {
                        tracing::debug!(target: "ogive::split", "steps are no longer run in pieces: no part records them");
                        kind.known = Known::Refused;
                    }
                    return Ok(y);
                }
                Err(why) => why,
            },
        };
        // Where the step itself is wrong it says so.
        let y = f(plan)?;
        tracing::debug!(target: "ogive::split", %why, "a step is run as it is, not in pieces");
        kind.failed += 1;
        kind.known = if kind.failed < ATTEMPTS { Known::New } else { Known::Refused };
        Ok(y)
    }

    /// Runs a step and notes its operators.
    fn learn(&self, plan: &Plan, f: &mut dyn FnMut(&Plan) -> Result<Tensor>) -> Result<(Tensor, Known)> {
        let open = self.run.learn(number());
        let y = f(plan);
        let learned = open.end();
        let y = y?;
        let made = self.held(&y)?.made;
        let script = match learned {
            Some(Active::Learning(learning)) => learning.script(made),
            _ => Err("it was not seen".into()),
        };
        let known = match script {
            Ok(script) => Known::Script(script),
            Err(why) => {
                tracing::debug!(target: "ogive::split", why, "such steps are not run in pieces");
                Known::Refused
            }
        };
        Ok((y, known))
    }

    /// Has each part run its pieces, or replay them; whether any was replayed.
    fn pieces(
        &self,
        script: &mut Script,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<(Tensor, bool)> {
        let (run, count, mut replayed) = (number(), script.pieces.len(), false);
        for piece in 0..count {
            let part = script.pieces.get(piece).map_or(0, |piece| piece.part);
            let (backend, own) = (self.backend(part)?, self.plan_of(part, plan)?);
            let mut asked = false;
            let y = backend.replay(&key_of(key, script.number(), piece), own, &mut |_| {
                asked = true;
                self.piece(script, [piece, count], run, plan, f)
            })?;
            replayed |= !asked;
            if piece + 1 == count {
                return Ok((self.hold(part, y), replayed));
            }
            for later in script.pieces.iter_mut().skip(piece + 1) {
                for (_, place) in later.takes.iter_mut().filter(|(from, _)| *from == piece) {
                    *place = Some(self.backend(later.part)?.bring(&y, backend, place.take())?);
                }
            }
        }
        Err(differs("there are no pieces"))
    }

    /// Runs the step as far as this piece goes, and gives what later ones want of it, or its result.
    fn piece(
        &self,
        script: &mut Script,
        [piece, count]: [usize; 2],
        run: u64,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let given = self.given(script, piece)?;
        let open = self.run.run(Running::new(run, std::mem::take(script), piece, given));
        let y = f(plan);
        let Some(Active::Running(ran)) = open.end() else { return Err(differs("a piece was lost")) };
        let (whole, part) = (ran.is_whole(), ran.script.pieces.get(piece).map_or(0, |piece| piece.part));
        let own = y.as_ref().is_ok_and(|y| self.held(y).is_ok_and(|held| ran.is_own(held.made)));
        let Running { script: ran_script, found, done, wrong, .. } = ran;
        *script = ran_script;
        if let Some(why) = wrong {
            return Err(differs(&why));
        }
        if piece + 1 == count {
            let y = y?;
            return if whole && own { self.into(part, y) } else { Err(differs("it ended early")) };
        }
        if !done {
            return Err(y.err().unwrap_or_else(|| differs("it ended early")));
        }
        drop(y);
        let row = |x: Option<Tensor>| {
            let x = x.ok_or_else(|| differs("a value is missing"))?;
            let len = x.shape().len();
            x.reshape([1, len])
        };
        let mut rows = found.into_iter().map(row).collect::<Result<Vec<_>>>()?;
        match rows.len() {
            1 => rows.pop().ok_or_else(|| differs("a value is missing")),
            _ => self.backend(part)?.concat(&rows.iter().collect::<Vec<_>>(), Axis::Cols),
        }
    }

    /// What earlier pieces gave for this one.
    fn given(&self, script: &Script, piece: usize) -> Result<HashMap<(usize, usize), Tensor>> {
        let mut given = HashMap::new();
        let Some(own) = script.pieces.get(piece) else { return Ok(given) };
        for (from, place) in &own.takes {
            let (Some(place), Some(giver)) = (place, script.pieces.get(*from)) else {
                return Err(differs("an earlier piece gave nothing"));
            };
            let lengths = script.lengths(*from);
            let rows = match lengths.len() {
                1 => vec![place.clone()],
                _ => self.backend(own.part)?.split(place, Axis::Cols, &lengths)?,
            };
            given.extend(giver.gives.iter().copied().zip(rows));
        }
        Ok(given)
    }
}
