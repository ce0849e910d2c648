//! How much a kernel and a module may have.

use super::super::ast::{Function, Module, Operand, Space, Statement, Variable};
use super::{Report, features};
use std::collections::{HashMap, HashSet};

/// Static shared memory of a block; more must be dynamic.
const SHARED: u64 = 48 << 10;
/// `.const` variables of a module.
const CONST: u64 = 64 << 10;
/// Parameters of a kernel, before and since `sm_70` with PTX 8.1.
const PARAMS: (u64, u64) = (4352, 32764);

pub(super) fn check(module: &Module, report: &mut Report) {
    let constants = module.variables.iter().filter(|v| v.space == Space::Const);
    let sum = constants.map(bytes).fold(0, u64::saturating_add);
    if sum > CONST {
        report.add(1, ".const", format!("{sum} bytes of .const variables; a module can have {CONST}"));
    }
    let shared: HashMap<&str, u64> = module
        .variables
        .iter()
        .filter(|v| v.space == Space::Shared)
        .map(|v| (v.name.as_str(), bytes(v)))
        .collect();
    let functions: HashMap<&str, &Function> =
        module.functions.iter().filter(|f| f.body.is_some()).map(|f| (f.name.as_str(), f)).collect();
    // Most modules have less shared memory in all than one kernel may use, and then nothing needs to be followed.
    let mut own =
        Used { shared: &shared, functions: &functions, seen: HashSet::new(), work: Vec::new(), sum: 0 };
    module.functions.iter().for_each(|f| own.declared(f.body.as_deref().unwrap_or(&[])));
    let possible = shared.values().copied().fold(own.sum, u64::saturating_add);
    let newer = module.version >= (8, 1) && features::Arch::of(module).number >= 70;
    for kernel in module.functions.iter().filter(|f| f.entry && f.body.is_some()) {
        let limit = if newer { PARAMS.1 } else { PARAMS.0 };
        let mut end = 0_u64;
        for param in &kernel.params {
            end = end.checked_next_multiple_of(param.align.max(1)).unwrap_or(u64::MAX);
            end = end.saturating_add(param.ty.size().saturating_mul(param.len));
        }
        if end > limit {
            report.add(
                kernel.line,
                &kernel.name,
                format!("{end} bytes of parameters; {} can have {limit}", kernel.name),
            );
        }
        if possible <= SHARED {
            continue;
        }
        let mut used =
            Used { shared: &shared, functions: &functions, seen: HashSet::new(), work: vec![kernel], sum: 0 };
        while let Some(function) = used.work.pop() {
            used.statements(function.body.as_deref().unwrap_or(&[]));
        }
        if used.sum > SHARED {
            let message = format!(
                "{} bytes of static shared memory; {} can have {SHARED}, more must be dynamic (extern .shared)",
                used.sum, kernel.name
            );
            report.add(kernel.line, &kernel.name, message);
        }
    }
}

fn bytes(variable: &Variable) -> u64 {
    variable.len.unwrap_or(0).saturating_mul(variable.ty.size())
}

/// The shared memory that a kernel and what it calls mention.
struct Used<'m> {
    shared: &'m HashMap<&'m str, u64>,
    functions: &'m HashMap<&'m str, &'m Function>,
    seen: HashSet<&'m str>,
    work: Vec<&'m Function>,
    sum: u64,
}

impl<'m> Used<'m> {
    /// Adds only what is declared in the statements.
    fn declared(&mut self, statements: &'m [Statement]) {
        for statement in statements {
            match statement {
                Statement::Block(inner) => self.declared(inner),
                Statement::Variable(v) if v.space == Space::Shared => {
                    self.sum = self.sum.saturating_add(bytes(v))
                }
                _ => {}
            }
        }
    }

    fn statements(&mut self, statements: &'m [Statement]) {
        for statement in statements {
            match statement {
                Statement::Block(inner) => self.statements(inner),
                Statement::Variable(v) if v.space == Space::Shared => {
                    self.sum = self.sum.saturating_add(bytes(v))
                }
                Statement::Instruction(instruction) => {
                    instruction.operands.iter().for_each(|operand| self.operand(operand))
                }
                _ => {}
            }
        }
    }

    fn operand(&mut self, operand: &'m Operand) {
        match operand {
            Operand::Name(name) | Operand::NameOffset(name, _)
                // Registers are nine names of ten and never either of the two.
                if !name.starts_with('%') && self.seen.insert(name) => {
                    self.sum = self.sum.saturating_add(self.shared.get(name.as_str()).copied().unwrap_or(0));
                    self.work.extend(self.functions.get(name.as_str()).copied());
                }
            Operand::Address { base, .. } => self.operand(base),
            _ => {}
        }
    }
}
