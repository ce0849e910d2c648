//! Calls: the function's body takes the place of the call.
//!
//! Inlining needs no stack and no return addresses, and lanes that call different functions diverge like at any branch. What it cannot do is
//! recursion and calls through a pointer; both are refused by name.

use std::borrow::Cow;

use super::Error;
use super::alu::copy;
use super::function::Lowering;
use super::names::{Named, Scope};
use crate::exec::registers::{Class, Slot};
use crate::exec::system;
use crate::program::{Action, Step};
use crate::ptx::ast::{Function, Instruction, Operand, Param};

/// Why a call could not be lowered.
pub(super) enum Failure {
    /// The call itself.
    Here(String),
    /// Something in the function called.
    Inside(Error),
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Here(what)
    }
}

impl<'a> Lowering<'a> {
    /// Lowers a call with its guard.
    pub(super) fn call(
        &mut self,
        i: &'a Instruction,
        guard: (Slot, bool),
        place: u32,
    ) -> Result<(), Failure> {
        super::control::known(&i.modifiers.iter().map(String::as_str).collect::<Vec<_>>(), &["uni"])?;
        let mut operands = i.operands.iter().peekable();
        let list = |operand: Option<&&'a Operand>| match operand {
            Some(Operand::List(list)) => Some(&list[..]),
            _ => None,
        };
        let returns = list(operands.peek());
        if returns.is_some() {
            operands.next();
        }
        let Some(Operand::Name(name)) = operands.next() else {
            return Err(Failure::Here("the name of a function is expected".into()));
        };
        let arguments = list(operands.peek());
        let (returns, arguments) = (returns.unwrap_or_default(), arguments.unwrap_or_default());
        if self.rows.rows_of(&Operand::Name(name.clone())).is_some() {
            return Err(Failure::Here("calls through a pointer are not supported".into()));
        }
        let first = self.rows.steps.len();
        // A guarded call is jumped over where the guard does not hold.
        let after = self.labels.len() as u32;
        self.labels.push(None);
        if guard.0 != crate::program::NONE {
            let mut skip = Step { imm: i64::from(after), ..Step::new(Action::Branch) };
            (skip.guard, skip.guard_negated) = (guard.0, !guard.1);
            self.rows.emit(skip);
        }
        let inlined = match self.functions.get(name.as_str()).copied() {
            Some(function) if function.body.is_some() => Some(function),
            _ => None,
        };
        match inlined {
            Some(function) => self.inline(function, returns, arguments, place, first)?,
            None => {
                let step = self.external(name, returns, arguments)?;
                self.rows.emit(step);
                for step in self.rows.steps.iter_mut().skip(first) {
                    step.place = place;
                }
            }
        }
        if let Some(label) = self.labels.get_mut(after as usize) {
            *label = Some(self.rows.steps.len() as u32);
        }
        Ok(())
    }

    fn inline(
        &mut self,
        function: &'a Function,
        returns: &[Operand],
        arguments: &[Operand],
        place: u32,
        first: usize,
    ) -> Result<(), Failure> {
        if self.calling.contains(&function.name.as_str()) {
            let what = format!("{} calls itself; recursion is not supported", function.name);
            return Err(Failure::Here(what));
        }
        if arguments.len() != function.params.len() || returns.len() != function.returns.len() {
            let what = format!(
                "{} takes {} arguments and returns {} values",
                function.name,
                function.params.len(),
                function.returns.len()
            );
            return Err(Failure::Here(what));
        }
        let mut scope = Scope { function: true, ..Scope::default() };
        for (param, argument) in function.params.iter().zip(arguments) {
            let named = self.argument(param, argument)?;
            scope.names.insert(Cow::Borrowed(&param.name), named);
        }
        let mut results = Vec::new();
        for (param, result) in function.returns.iter().zip(returns) {
            let named = if param.register {
                let named = self.register(param.ty, 1);
                if let Named::Register { slots, .. } = &named {
                    let class = Class::of(param.ty);
                    results.push((class, self.rows.destination(result, class)?, slots.clone()));
                }
                named
            } else {
                self.memory(result)?
            };
            scope.names.insert(Cow::Borrowed(&param.name), named);
        }
        for step in self.rows.steps.iter_mut().skip(first) {
            step.place = place;
        }
        let end = self.labels.len() as u32;
        self.labels.push(None);
        let outer = self.end.replace(end);
        self.calling.push(&function.name);
        self.rows.scopes.push(scope);
        let body = function.body.as_deref().unwrap_or_default();
        self.body(body).map_err(Failure::Inside)?;
        self.rows.scopes.pop();
        self.calling.pop();
        self.end = outer;
        let here = self.rows.steps.len();
        if let Some(label) = self.labels.get_mut(end as usize) {
            *label = Some(here as u32);
        }
        for (class, to, from) in results {
            if let (true, [from]) = (to != crate::program::NONE, &from[..]) {
                self.rows.emit(copy(class, to, *from));
            }
        }
        for step in self.rows.steps.iter_mut().skip(here) {
            step.place = place;
        }
        Ok(())
    }

    /// What a parameter's name stands for inside the function.
    fn argument(&mut self, param: &Param, argument: &Operand) -> Result<Named, String> {
        if !param.register {
            return self.memory(argument);
        }
        let class = Class::of(param.ty);
        let source = self.rows.source(argument, class)?;
        let named = self.register(param.ty, 1);
        if let Named::Register { slots, .. } = &named
            && let [slot] = slots[..]
        {
            self.rows.emit(copy(class, slot, source));
        }
        Ok(named)
    }

    /// A `.param` variable of the caller's, which the function uses in place.
    fn memory(&self, operand: &Operand) -> Result<Named, String> {
        match operand {
            Operand::Name(name) => match self.rows.named(name) {
                Some(named @ (Named::Frame { .. } | Named::Param { .. })) => Ok(named),
                _ => Err(format!("{name} is no .param variable")),
            },
            other => Err(format!("{other:?} where a .param variable is expected")),
        }
    }

    /// Functions of the driver's own.
    fn external(&mut self, name: &str, returns: &[Operand], arguments: &[Operand]) -> Result<Step, String> {
        let offset = |this: &Self, operand: &Operand| match this.memory(operand)? {
            Named::Frame { offset } => Ok(offset as u32),
            _ => Err("an argument in the kernel's parameters".to_owned()),
        };
        let run: crate::program::ExecFn = match (name, arguments.len()) {
            ("vprintf", 2) => system::print,
            ("__assertfail", 5) => system::assertion,
            ("malloc" | "free", _) => {
                return Err(format!("{name} on the device is not supported"));
            }
            _ => {
                return Err(format!(
                    "the function {name} has no body in this module; only vprintf and __assertfail are known"
                ));
            }
        };
        let mut list = Vec::new();
        for operand in returns.iter().chain(arguments) {
            list.push(offset(self, operand)?);
        }
        let mut step = Step::new(Action::Exec(run));
        step.imm = returns.len() as i64;
        step.list = self.rows.list(&list);
        Ok(step)
    }
}
