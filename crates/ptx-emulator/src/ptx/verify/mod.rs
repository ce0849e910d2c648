//! What `ptxas` would refuse and an interpreter would swallow.
//!
//! Lowering already refuses what it does not know. This says no to what it would understand and a real driver would not load:
//! a name nobody declared, a `.f32` register in an integer instruction, `cp.async` for `sm_75`. The rules are tables
//! ([`forms`], [`features`]) read beside the PTX manual and tried against `ptxas`, and where the two differ `ptxas` is followed.
//! What no table mentions passes.

mod call;
mod features;
mod forms;
mod limits;
mod modifiers;
mod names;
mod operands;
mod types;

use super::Error;
use super::ast::{Function, Instruction, Module, Operand, Registers, Statement, Type, Variable};
use names::{Found, Names};

/// Mistakes reported for one module; the first is what people mend, the rest are often its children.
const REPORTED: usize = 20;

/// Checks a module.
///
/// # Errors
///
/// The first mistakes, in the order of the text.
pub fn verify(module: &Module) -> Result<(), Vec<Error>> {
    let mut report = Report { errors: Vec::new() };
    module_rules(module, &mut report);
    let names = Names::of_module(module, &mut report);
    for function in &module.functions {
        if report.full() {
            break;
        }
        check_function(module, function, names.clone(), &mut report);
    }
    limits::check(module, &mut report);
    if report.errors.is_empty() { Ok(()) } else { Err(report.errors) }
}

/// The mistakes so far.
struct Report {
    errors: Vec<Error>,
}

impl Report {
    fn full(&self) -> bool {
        self.errors.len() >= REPORTED
    }

    fn add(&mut self, line: u32, text: &str, message: impl Into<String>) {
        if !self.full() {
            self.errors.push(Error::new(line, text, message));
        }
    }

    fn instruction(&mut self, instruction: &Instruction, message: impl Into<String>) {
        if !self.full() {
            self.add(instruction.line, &instruction.to_string(), message);
        }
    }
}

fn module_rules(module: &Module, report: &mut Report) {
    let (major, minor) = module.version;
    if module.address_size != 64 {
        report.add(
            1,
            ".address_size",
            format!("addresses of {} bits; only 64 are known here", module.address_size),
        );
    }
    let Some(target) = module.target.first() else { return };
    let Some(arch) = features::arch(target) else {
        report.add(1, target, "expected a target such as sm_80");
        return;
    };
    if let Some((major_needed, minor_needed)) = features::version_of(arch, features::suffix(target))
        && (major, minor) < (major_needed, minor_needed)
    {
        let text = format!(".target {target}");
        report.add(
            1,
            &text,
            format!("{target} needs .version {major_needed}.{minor_needed}, this text has {major}.{minor}"),
        );
    }
}

fn check_function<'m>(module: &'m Module, function: &'m Function, names: Names<'m>, report: &mut Report) {
    let Some(body) = &function.body else { return };
    let mut checker = Checker { arch: features::Arch::of(module), names, report };
    checker.names.enter();
    for param in function.returns.iter().chain(&function.params) {
        checker.alignment(function.line, &param.name, param.align);
        checker.names.param(param, function.line, checker.report);
    }
    checker.block(body);
}

/// Goes through one function.
struct Checker<'r, 'm> {
    arch: features::Arch,
    names: Names<'m>,
    report: &'r mut Report,
}

impl<'m> Checker<'_, 'm> {
    fn block(&mut self, statements: &'m [Statement]) {
        self.names.enter();
        // Labels may be used before they stand, so all of a scope come first.
        for statement in statements {
            self.names.label(statement, self.report);
        }
        for statement in statements {
            if self.report.full() {
                break;
            }
            match statement {
                Statement::Registers(registers) => self.registers(registers),
                Statement::Variable(variable) => self.variable(variable),
                Statement::Block(inner) => self.block(inner),
                Statement::Instruction(instruction) => self.instruction(instruction),
                Statement::BranchTargets(label, targets) => {
                    for target in targets {
                        if !matches!(self.names.find(target), Some(Found::Label)) {
                            self.report.add(
                                label.line,
                                &label.name,
                                format!("{target} is no label of this function"),
                            );
                        }
                    }
                }
                Statement::Label(_) | Statement::CallPrototype(_) => {}
            }
        }
        self.names.leave();
    }

    fn registers(&mut self, registers: &'m Registers) {
        if matches!(registers.ty, Type::Bf16 | Type::Bf16x2) {
            let text = registers.names.first().map_or("", |(name, _)| name.as_str());
            let bits = registers.ty.size() * 8;
            self.report.add(
                registers.line,
                text,
                format!("there are no bf16 registers; declare it .b{bits}"),
            );
        }
        self.names.registers(registers, self.report);
    }

    fn variable(&mut self, variable: &'m Variable) {
        self.alignment(variable.line, &variable.name, variable.align);
        self.names.variable(variable, self.report);
    }

    fn alignment(&mut self, line: u32, name: &str, align: u64) {
        if !align.is_power_of_two() {
            self.report.add(
                line,
                name,
                format!("the alignment of {name} is {align}, which is no power of two"),
            );
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction) {
        if let Some(guard) = &instruction.guard {
            match self.names.find(&guard.register) {
                Some(Found::Register(Type::Pred, 1)) => {}
                Some(_) => {
                    let message = format!("{} guards an instruction but is no predicate", guard.register);
                    self.report.instruction(instruction, message);
                }
                None => self.undeclared(instruction, &guard.register),
            }
        }
        let before = self.report.errors.len();
        for operand in &instruction.operands {
            self.declared(instruction, operand);
        }
        if self.report.errors.len() > before {
            return;
        }
        if let Some(message) = features::missing(instruction, &self.arch) {
            self.report.instruction(instruction, message);
            return;
        }
        let checked = modifiers::check(instruction).and_then(|()| match instruction.opcode.as_str() {
            "call" => self.call(instruction),
            _ => self.operands(instruction),
        });
        if let Err(message) = checked {
            self.report.instruction(instruction, message);
        }
    }

    fn undeclared(&mut self, instruction: &Instruction, name: &str) {
        self.report.instruction(instruction, format!("{name} is not declared"));
    }

    /// Every name in an operand exists.
    fn declared(&mut self, instruction: &Instruction, operand: &'m Operand) {
        match operand {
            Operand::Name(name) | Operand::NameOffset(name, _) => {
                if self.names.find(name).is_none() {
                    self.undeclared(instruction, name);
                }
            }
            Operand::Address { base, extra, .. } => {
                self.declared(instruction, base);
                extra.iter().for_each(|operand| self.declared(instruction, operand));
            }
            Operand::Vector(operands) | Operand::List(operands) => {
                operands.iter().for_each(|operand| self.declared(instruction, operand));
            }
            Operand::Pair(first, second) => {
                self.declared(instruction, first);
                self.declared(instruction, second);
            }
            Operand::Not(operand) | Operand::Negative(operand) => self.declared(instruction, operand),
            Operand::Integer(_) | Operand::Float32(_) | Operand::Float64(_) | Operand::Sink => {}
        }
    }
}
