//! What a name stands for, scope by scope.
//!
//! `%r<70000>` is kept as a prefix and a count: a name is cut into its letters and its number when it is asked for, so no table
//! has seventy thousand entries.

use super::super::ast::{Function, Module, Param, Registers, Statement, Type, Variable};
use super::Report;
use std::collections::HashMap;
use std::rc::Rc;

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'m> {
    /// A register, its type and the number of its elements.
    Register(Type, u32),
    /// A special register.
    Special(Type),
    /// A variable of the module or the function.
    Variable(&'m Variable),
    /// A parameter in memory.
    Param(&'m Param),
    /// A function or kernel.
    Function(&'m Function),
    /// A place to branch to.
    Label,
    /// A list for `brx.idx`.
    Targets,
    /// A prototype for an indirect call.
    Prototype,
}

/// Names of one pair of braces.
#[derive(Clone, Debug, Default)]
struct Scope<'m> {
    names: HashMap<&'m str, Found<'m>>,
    /// `%r` of `%r<10>`, with 10 and what each is.
    ranges: HashMap<&'m str, (u32, Found<'m>)>,
}

/// All names that can be seen from a place.
#[derive(Clone, Debug)]
pub(super) struct Names<'m> {
    module: Rc<HashMap<&'m str, Found<'m>>>,
    scopes: Vec<Scope<'m>>,
}

impl<'m> Names<'m> {
    /// The names of a module. A declaration and its definition may both stand there.
    pub(super) fn of_module(module: &'m Module, report: &mut Report) -> Self {
        let mut names: HashMap<&str, Found<'_>> = HashMap::new();
        for variable in &module.variables {
            let old = names.insert(&variable.name, Found::Variable(variable));
            let declared = |v: &Variable| v.linkage == super::super::ast::Linkage::Extern;
            let fine = match old {
                None => true,
                Some(Found::Variable(old)) => declared(old) || declared(variable),
                Some(_) => false,
            };
            if !fine {
                report.add(variable.line, &variable.name, format!("{} is declared twice", variable.name));
            }
            if !variable.align.is_power_of_two() {
                let message = format!(
                    "the alignment of {} is {}, which is no power of two",
                    variable.name, variable.align
                );
                report.add(variable.line, &variable.name, message);
            }
        }
        for function in &module.functions {
            match names.get(function.name.as_str()) {
                None => {}
                // A definition after its declaration takes its place; a declaration after it changes nothing.
                Some(Found::Function(old)) if old.body.is_none() => {}
                Some(Found::Function(_)) if function.body.is_none() => continue,
                Some(_) => {
                    report.add(function.line, &function.name, format!("{} is defined twice", function.name))
                }
            }
            names.insert(&function.name, Found::Function(function));
        }
        for (alias, function) in &module.aliases {
            match names.get(function.as_str()) {
                Some(&found) if matches!(found, Found::Function(_)) => drop(names.insert(alias, found)),
                _ => report.add(1, alias, format!("alias of {function}, which is no function")),
            }
        }
        for variable in &module.variables {
            for relocation in &variable.relocations {
                if !names.contains_key(relocation.symbol.as_str()) {
                    let message = format!("{} in an initialiser is not declared", relocation.symbol);
                    report.add(variable.line, &variable.name, message);
                }
            }
        }
        Self { module: Rc::new(names), scopes: Vec::new() }
    }

    pub(super) fn enter(&mut self) {
        self.scopes.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.scopes.pop();
    }

    fn declare(&mut self, name: &'m str, found: Found<'m>, line: u32, report: &mut Report) {
        let twice = self.scopes.last_mut().is_some_and(|scope| {
            let ranged = range(name)
                .and_then(|(prefix, number)| Some(number < scope.ranges.get(prefix)?.0))
                .unwrap_or(false);
            scope.names.insert(name, found).is_some() || ranged
        });
        if twice {
            report.add(line, name, format!("{name} is declared twice in the same braces"));
        }
    }

    pub(super) fn registers(&mut self, registers: &'m Registers, report: &mut Report) {
        for (name, count) in &registers.names {
            let found = Found::Register(registers.ty, registers.vector);
            match count {
                None => self.declare(name, found, registers.line, report),
                Some(count) => {
                    let old =
                        self.scopes.last_mut().and_then(|scope| scope.ranges.insert(name, (*count, found)));
                    if old.is_some() {
                        report.add(
                            registers.line,
                            name,
                            format!("{name}<…> is declared twice in the same braces"),
                        );
                    }
                }
            }
        }
    }

    pub(super) fn variable(&mut self, variable: &'m Variable, report: &mut Report) {
        self.declare(&variable.name, Found::Variable(variable), variable.line, report);
    }

    pub(super) fn param(&mut self, param: &'m Param, line: u32, report: &mut Report) {
        let found = if param.register { Found::Register(param.ty, 1) } else { Found::Param(param) };
        if param.name != "_" {
            self.declare(&param.name, found, line, report);
        }
    }

    /// Declares the label a statement begins with, if it does.
    pub(super) fn label(&mut self, statement: &'m Statement, report: &mut Report) {
        let (label, found) = match statement {
            Statement::Label(label) => (label, Found::Label),
            Statement::BranchTargets(label, _) => (label, Found::Targets),
            Statement::CallPrototype(label) => (label, Found::Prototype),
            _ => return,
        };
        self.declare(&label.name, found, label.line, report);
    }

    /// What a name stands for here.
    pub(super) fn find(&self, name: &str) -> Option<Found<'m>> {
        let ranged = range(name);
        for scope in self.scopes.iter().rev() {
            if let Some(&found) = scope.names.get(name) {
                return Some(found);
            }
            if let Some((prefix, number)) = ranged
                && let Some(&(count, found)) = scope.ranges.get(prefix)
                && number < count
            {
                return Some(found);
            }
        }
        if let Some(&found) = self.module.get(name) {
            return Some(found);
        }
        if let Some(ty) = special(name) {
            return Some(Found::Special(ty));
        }
        // `%v.x`: one element of a vector register.
        let (vector, component) = name.rsplit_once('.')?;
        let index = ["x", "y", "z", "w"]
            .iter()
            .position(|&c| c == component)
            .or_else(|| ["r", "g", "b", "a"].iter().position(|&c| c == component))?;
        match self.find_whole(vector)? {
            Found::Register(ty, elements) if index < elements as usize && elements > 1 => {
                Some(Found::Register(ty, 1))
            }
            _ => None,
        }
    }

    fn find_whole(&self, name: &str) -> Option<Found<'m>> {
        if name.contains('.') { None } else { self.find(name) }
    }
}

/// `%r` and 12 of `%r12`.
fn range(name: &str) -> Option<(&str, u32)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = name.get(prefix.len()..)?;
    let plain = digits == "0" || !digits.starts_with('0');
    if plain { Some((prefix, digits.parse().ok()?)) } else { None }
}

/// The type of a special register.
fn special(name: &str) -> Option<Type> {
    let name = name.strip_prefix('%')?;
    if let Some((base, component)) = name.split_once('.') {
        let vector =
            ["tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"];
        let known = vector.contains(&base) && ["x", "y", "z", "w"].contains(&component);
        return known.then_some(Type::U32);
    }
    if let Some((prefix, number)) = range(name) {
        let (count, ty) = match prefix {
            "envreg" => (32, Type::B32),
            "pm" => (8, Type::U32),
            "reserved_smem_offset_" => (2, Type::B32),
            _ => (0, Type::B32),
        };
        if number < count {
            return Some(ty);
        }
    }
    Some(match name {
        "laneid"
        | "warpid"
        | "nwarpid"
        | "smid"
        | "nsmid"
        | "clock"
        | "clock_hi"
        | "globaltimer_lo"
        | "globaltimer_hi"
        | "lanemask_eq"
        | "lanemask_le"
        | "lanemask_lt"
        | "lanemask_ge"
        | "lanemask_gt"
        | "dynamic_smem_size"
        | "total_smem_size"
        | "aggr_smem_size"
        | "cluster_ctarank"
        | "cluster_nctarank"
        | "reserved_smem_offset_begin"
        | "reserved_smem_offset_end"
        | "reserved_smem_offset_cap" => Type::U32,
        "gridid" | "clock64" | "globaltimer" | "current_graph_exec" => Type::U64,
        "is_explicit_cluster" => Type::Pred,
        _ => return None,
    })
}
