//! Jumps, ends, barriers, and what has no effect here.

use super::function::Lowering;
use crate::exec::registers::{Class, Slot};
use crate::exec::system;
use crate::program::{Action, BarrierKind, NONE, Step};
use crate::ptx::ast::{Instruction, Operand};

/// The number of a cluster's barrier: one more than a block has.
const CLUSTER_BARRIER: u64 = crate::exec::CLUSTER_BARRIER as u64;

impl<'a> Lowering<'a> {
    /// Lowers an instruction of control; false if it is none.
    pub(super) fn control(&mut self, i: &'a Instruction) -> Result<bool, String> {
        let words: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
        let step = match (&i.opcode[..], &words[..]) {
            ("bra", [] | ["uni"]) => match &i.operands[..] {
                [Operand::Name(label)] => self.jump(label)?,
                _ => return Err("a label is expected".into()),
            },
            ("brx", ["idx"] | ["idx", "uni"]) => self.indexed(i)?,
            ("ret", [] | ["uni"]) => match self.end {
                None => Step::new(Action::Exit),
                Some(end) => Step { imm: i64::from(end), ..Step::new(Action::Branch) },
            },
            ("exit", []) => Step::new(Action::Exit),
            ("trap", []) => Step::new(Action::Exec(system::trap)),
            ("brkpt", []) => Step::new(Action::Exec(system::breakpoint)),
            ("nanosleep", ["u32"]) => {
                // Which time it is makes no difference; the operand must be one, though.
                self.rows.word(i.operands.first().ok_or("a time is expected")?)?;
                Step::new(Action::Exec(system::nanosleep))
            }
            ("griddepcontrol", ["wait"]) => Step::new(Action::DependencyWait),
            ("griddepcontrol", ["launch_dependents"]) => Step::new(Action::Exec(system::launch_dependents)),
            ("bar" | "barrier", ["warp", "sync"]) => {
                let operand = i.operands.first().ok_or("a mask is expected")?;
                let mut step = Step::new(Action::WarpSync);
                step.src[3] = self.rows.word(operand)?;
                step
            }
            ("barrier", ["cluster", "arrive", rest @ ..]) => {
                known(rest, &["aligned", "release", "relaxed"])?;
                // A cluster is one block: the wait does all of it.
                return Ok(true);
            }
            ("barrier", ["cluster", "wait", rest @ ..]) => {
                known(rest, &["aligned", "acquire"])?;
                let mut step = Step::new(Action::Barrier(BarrierKind::Sync));
                step.src[0] = self.rows.constant(Class::Word, CLUSTER_BARRIER);
                step
            }
            ("bar" | "barrier", words) => self.barrier(i, words)?,
            ("setmaxnreg", ["inc" | "dec", "sync", "aligned", "u32"]) => return Ok(true),
            ("pragma", _) => return Ok(true),
            _ => return Ok(false),
        };
        self.rows.emit(step);
        Ok(true)
    }

    /// A jump to a label, by the label's number until the kernel is complete.
    fn jump(&self, label: &str) -> Result<Step, String> {
        Ok(Step { imm: i64::from(self.label(label)?), ..Step::new(Action::Branch) })
    }

    fn label(&self, label: &str) -> Result<u32, String> {
        for scope in self.rows.scopes.iter().rev() {
            if let Some(number) = scope.labels.get(label) {
                return Ok(*number);
            }
            if scope.function {
                break;
            }
        }
        Err(format!("there is no label {label} in this function"))
    }

    fn indexed(&mut self, i: &Instruction) -> Result<Step, String> {
        let [index, Operand::Name(list)] = &i.operands[..] else {
            return Err("an index and a list of targets are expected".into());
        };
        let mut step = Step::new(Action::BranchIndexed);
        step.src[0] = self.rows.word(index)?;
        let targets =
            self.rows.scopes.iter().rev().find_map(|scope| scope.targets.get(list.as_str()).copied());
        let targets = targets.ok_or_else(|| format!("there is no list {list} of targets"))?;
        let labels: Result<Vec<Slot>, String> = targets.iter().map(|label| self.label(label)).collect();
        step.list = self.rows.list(&labels?);
        Ok(step)
    }

    fn barrier(&mut self, i: &Instruction, words: &[&str]) -> Result<Step, String> {
        let words = match words {
            ["cta", rest @ ..] => rest,
            all => all,
        };
        let (kind, rest) = match words {
            ["sync", rest @ ..] => (BarrierKind::Sync, rest),
            ["arrive", rest @ ..] => (BarrierKind::Arrive, rest),
            ["red", "popc", rest @ ..] => (BarrierKind::Popc, rest),
            ["red", "and", rest @ ..] => (BarrierKind::And, rest),
            ["red", "or", rest @ ..] => (BarrierKind::Or, rest),
            _ => return Err("which barrier operation is this?".into()),
        };
        known(rest, &["aligned", "u32", "pred"])?;
        let mut step = Step::new(Action::Barrier(kind));
        let mut operands = i.operands.iter();
        if matches!(kind, BarrierKind::Popc | BarrierKind::And | BarrierKind::Or) {
            let class = if kind == BarrierKind::Popc { Class::Word } else { Class::Pred };
            step.dst = self.rows.destination(operands.next().ok_or("a destination is expected")?, class)?;
            if step.dst == NONE {
                step.dst = self.rows.fresh(class);
            }
            let (predicate, rest) = operands.as_slice().split_last().ok_or("a predicate is expected")?;
            let (slot, negated) = self.rows.pred(predicate)?;
            step.src[2] = slot;
            step.flags |= u32::from(negated) << 2;
            operands = rest.iter();
        }
        step.src[0] = match operands.next() {
            Some(id) => self.rows.word(id)?,
            None => self.rows.constant(Class::Word, 0),
        };
        if let Some(count) = operands.next() {
            step.src[1] = self.rows.word(count)?;
        }
        if operands.next().is_some() {
            return Err("too many operands".into());
        }
        Ok(step)
    }
}

/// Every word must be one of those.
pub(super) fn known(words: &[&str], known: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !known.contains(word)) {
        Some(word) => Err(format!("the modifier .{word} is not known here")),
        None => Ok(()),
    }
}
