//! What is known of a step that is run in pieces: its operators in order, the part of each, and what goes from piece to piece.
//!
//! Kept are numbers and shapes, and nothing of a model: weights and caches are the step's own each time it is run, so nothing here makes
//! them live longer. A step that turns out to be another than the one that was learned is an error, and then run as it is.

use ogive_tensor::{Error, Result, Shape, Tensor};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// A step in more pieces is not run so: each costs a run of the model where it is not replayed.
pub(super) const MOST: usize = 64;

/// Which operator of which run made a tensor, and which of its results it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    run: u64,
    op: usize,
    result: usize,
}

/// A result, by its operator's number and its own.
type Value = (usize, usize);

#[derive(Debug)]
struct Op {
    name: &'static str,
    piece: usize,
    shapes: Vec<Shape>,
}

/// What one part computes before another goes on.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) part: usize,
    /// The results that later pieces want.
    pub(super) gives: Vec<Value>,
    /// What it wants of earlier ones: all that the piece of this number gives, and where that lies.
    pub(super) takes: Vec<(usize, Option<Tensor>)>,
}

/// A step, as it was learned.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// That of the run it was learned in.
    number: u64,
    ops: Vec<Op>,
    pub(super) pieces: Vec<Piece>,
}

impl Script {
    /// What tells it from others.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Elements of each result that a piece gives.
    pub(super) fn lengths(&self, piece: usize) -> Vec<usize> {
        let gives = self.pieces.get(piece).map_or(&[][..], |piece| &piece.gives);
        gives.iter().map(|value| self.shape(*value).map_or(0, |shape| shape.len())).collect()
    }

    fn shape(&self, (op, result): Value) -> Option<Shape> {
        self.ops.get(op)?.shapes.get(result).copied()
    }
}

/// A step that is learned while it is run.
#[derive(Debug, Default)]
pub(super) struct Learning {
    run: u64,
    ops: Vec<Op>,
    /// The part of each piece.
    parts: Vec<usize>,
    /// Results that a later piece wanted, and that piece.
    wanted: Vec<(usize, Value)>,
    spoilt: Option<String>,
}

impl Learning {
    /// What was learned, if the step can be run so; `y` is what it gave.
    pub(super) fn script(self, y: Option<Made>) -> Result<Script, String> {
        if let Some(why) = self.spoilt {
            return Err(why);
        }
        let last = self.ops.last().map(|op| op.piece);
        let of = y.filter(|made| made.run == self.run).and_then(|made| self.ops.get(made.op));
        if last.is_none() || of.map(|op| op.piece) != last {
            return Err("its result is not of its last piece".into());
        }
        if self.parts.len() > MOST {
            return Err(format!("it goes from part to part {} times", self.parts.len() - 1));
        }
        let piece = |part| Piece { part, gives: Vec::new(), takes: Vec::new() };
        let pieces = self.parts.into_iter().map(piece).collect();
        let mut script = Script { number: self.run, ops: self.ops, pieces };
        for (to, value) in self.wanted {
            if script.shape(value).is_none_or(|shape| shape.len() == 0) {
                return Err("a part wants a value without elements of another".into());
            }
            let Some(from) = script.ops.get(value.0).map(|op| op.piece) else { continue };
            if let Some(piece) = script.pieces.get_mut(from)
                && !piece.gives.contains(&value)
            {
                piece.gives.push(value);
            }
            if let Some(piece) = script.pieces.get_mut(to)
                && piece.takes.iter().all(|(other, _)| *other != from)
            {
                piece.takes.push((from, None));
            }
        }
        // What gives nothing but to the last piece could be left out, but is there for what it stores.
        let empty = |(i, piece): (usize, &Piece)| Some(i) != last && piece.gives.is_empty();
        if script.pieces.iter().enumerate().any(empty) {
            return Err("a part computes nothing that another wants".into());
        }
        Ok(script)
    }
}

/// A piece that is run: other pieces' operators compute nothing.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) run: u64,
    pub(super) script: Script,
    pub(super) piece: usize,
    /// The operator that comes next.
    pub(super) at: usize,
    /// What earlier pieces gave, each in a row.
    pub(super) given: HashMap<Value, Tensor>,
    /// What this one gives, once it is there.
    pub(super) found: Vec<Option<Tensor>>,
    /// Whether the piece is done, and the rest is not asked for.
    pub(super) done: bool,
    /// Why the step is not the one that was learned.
    pub(super) wrong: Option<String>,
}

impl Running {
    pub(super) fn new(run: u64, script: Script, piece: usize, given: HashMap<Value, Tensor>) -> Self {
        let count = script.pieces.get(piece).map_or(0, |piece| piece.gives.len());
        Self { run, script, piece, given, found: vec![None; count], ..Self::default() }
    }

    /// Whether all operators were asked for.
    pub(super) fn is_whole(&self) -> bool {
        self.at == self.script.ops.len()
    }

    /// Whether this piece made it.
    pub(super) fn is_own(&self, made: Option<Made>) -> bool {
        made.is_some_and(|made| {
            made.run == self.run && self.script.ops.get(made.op).is_some_and(|op| op.piece == self.piece)
        })
    }

    fn next(&mut self, part: usize, name: &'static str) -> Result<Turn> {
        if self.done || self.wrong.is_some() {
            return Err(Error::unsupported(name, "a piece of a step has ended"));
        }
        let Some(op) = self.script.ops.get(self.at) else { return Err(self.differs(name)) };
        if op.piece > self.piece {
            self.done = true;
            return Err(Error::unsupported(name, "a piece of a step has ended"));
        }
        if op.name != name || self.script.pieces.get(op.piece).is_none_or(|piece| piece.part != part) {
            return Err(self.differs(name));
        }
        let number = self.at;
        self.at += 1;
        Ok(match op.piece == self.piece {
            true => Turn::Compute(Some((self.run, number))),
            false => Turn::Leave((self.run, number), op.shapes.clone()),
        })
    }

    fn differs(&mut self, name: &str) -> Error {
        let why = format!("{name} is not what came here before");
        let error = Error::unsupported("replay", why.clone());
        self.wrong.get_or_insert(why);
        error
    }

    fn made(&mut self, op: usize, ys: &[Tensor]) -> Result<()> {
        let shapes: Vec<Shape> = ys.iter().map(Tensor::shape).collect();
        let own = self.script.pieces.get(self.piece).map_or(&[][..], |piece| &piece.gives);
        let known = self.script.ops.get_mut(op);
        let fits = known.as_ref().is_some_and(|op| op.shapes.len() == shapes.len());
        let mut same = fits;
        for ((value, found), y) in own
            .iter()
            .zip(&mut self.found)
            .filter_map(|(v, f)| (v.0 == op).then(|| ys.get(v.1).map(|y| ((v, f), y))).flatten())
        {
            same &= known.as_ref().and_then(|op| op.shapes.get(value.1)) == Some(&y.shape());
            *found = Some(y.clone());
        }
        if !same {
            return Err(self.differs("a result"));
        }
        // What stays within a piece may be of another size each time: rows of a context are.
        if let Some(known) = known {
            known.shapes = shapes;
        }
        Ok(())
    }
}

/// What a thread does with a split backend.
#[derive(Debug)]
pub(super) enum Active {
    Learning(Learning),
    Running(Running),
}

/// What is to be done with an operator.
pub(super) enum Turn {
    /// Compute it; it has this number in this run, if it is of one.
    Compute(Option<(u64, usize)>),
    /// It is of an earlier piece, with results of these shapes.
    Leave((u64, usize), Vec<Shape>),
}

/// Who learns a step or runs a piece of one, if anyone does.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    on: AtomicBool,
    state: Mutex<Option<(ThreadId, Active)>>,
}

/// Ends what was begun whatever comes.
pub(super) struct Open<'a>(&'a Pieces);

impl Open<'_> {
    pub(super) fn end(self) -> Option<Active> {
        self.0.take()
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl Pieces {
    fn state(&self) -> MutexGuard<'_, Option<(ThreadId, Active)>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Active> {
        self.on.store(false, Relaxed);
        self.state().take().map(|(_, active)| active)
    }

    /// This thread learns a step from now on.
    pub(super) fn learn(&self, run: u64) -> Open<'_> {
        self.begin(Active::Learning(Learning { run, ..Learning::default() }))
    }

    /// This thread runs a piece from now on.
    pub(super) fn run(&self, running: Running) -> Open<'_> {
        self.begin(Active::Running(running))
    }

    fn begin(&self, active: Active) -> Open<'_> {
        *self.state() = Some((std::thread::current().id(), active));
        self.on.store(true, Relaxed);
        Open(self)
    }

    fn own<T>(&self, f: impl FnOnce(&mut Active) -> T) -> Option<T> {
        if !self.on.load(Relaxed) {
            return None;
        }
        let thread = std::thread::current().id();
        self.state().as_mut().filter(|(own, _)| *own == thread).map(|(_, active)| f(active))
    }

    /// An operator of this part is asked for.
    pub(super) fn next(&self, part: usize, name: &'static str) -> Result<Turn> {
        let turn = self.own(|active| match active {
            Active::Learning(learning) => {
                if learning.parts.last() != Some(&part) {
                    learning.parts.push(part);
                }
                let (piece, number) = (learning.parts.len() - 1, learning.ops.len());
                learning.ops.push(Op { name, piece, shapes: Vec::new() });
                Ok(Turn::Compute(Some((learning.run, number))))
            }
            Active::Running(running) => running.next(part, name),
        });
        turn.unwrap_or(Ok(Turn::Compute(None)))
    }

    /// It gave these.
    pub(super) fn made(&self, op: usize, ys: &[Tensor]) -> Result<()> {
        let noted = self.own(|active| match active {
            Active::Learning(learning) => {
                if let Some(op) = learning.ops.get_mut(op) {
                    op.shapes = ys.iter().map(Tensor::shape).collect();
                }
                Ok(())
            }
            Active::Running(running) => running.made(op, ys),
        });
        noted.unwrap_or(Ok(()))
    }

    /// It failed: a step that goes on all the same is not one to be learned.
    pub(super) fn failed(&self, name: &str) {
        self.own(|active| match active {
            Active::Learning(learning) => {
                learning.spoilt.get_or_insert_with(|| format!("{name} failed in it"));
            }
            Active::Running(_) => {}
        });
    }

    /// A tensor is wanted for the operator that was asked for last; what an earlier piece gave of it, if it is of one. `number` if its
    /// elements cannot be moved.
    pub(super) fn wants(&self, made: Made, number: bool) -> Result<Option<Tensor>> {
        let wanted = self.own(|active| match active {
            Active::Learning(learning) if made.run == learning.run => {
                let from = learning.ops.get(made.op).map(|op| op.piece);
                let to = learning.parts.len().saturating_sub(1);
                if from != Some(to) {
                    learning.wanted.push((to, (made.op, made.result)));
                    if number {
                        learning
                            .spoilt
                            .get_or_insert_with(|| "choices of experts go from part to part".into());
                    }
                }
                Ok(None)
            }
            Active::Running(running) if made.run == running.run => {
                if running.is_own(Some(made)) {
                    return Ok(None);
                }
                match running.given.get(&(made.op, made.result)) {
                    Some(given) => Ok(Some(given.clone())),
                    None => Err(running.differs("an operand")),
                }
            }
            _ => Ok(None),
        });
        wanted.unwrap_or(Ok(None))
    }

    /// Something is done that no piece may do.
    pub(super) fn outside(&self, doing: &str) -> Result<()> {
        let inside = self.own(|active| match active {
            Active::Learning(learning) => {
                learning.spoilt.get_or_insert_with(|| format!("it has {doing} in its middle"));
                Ok(())
            }
            Active::Running(running) => Err(running.differs(doing)),
        });
        inside.unwrap_or(Ok(()))
    }
}

impl Made {
    /// The results of an operator, by number.
    pub(super) fn of((run, op): (u64, usize), result: usize) -> Self {
        Self { run, op, result }
    }
}
