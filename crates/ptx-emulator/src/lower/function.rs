//! A kernel, statement by statement.
//!
//! Names are looked up as they come and memory is laid out by first use: a variable of shared memory that a kernel does not touch takes nothing of
//! it, as with the driver's own compiler.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::Error;
use super::families::family;
use super::names::{Named, Scope};
use super::operands::Operands;
use crate::exec::registers::Class;
use crate::program::{Action, NONE, Place, Program};
use crate::ptx::ast::{self, Function, Instruction, Module, Space, Statement, Type, Variable};

/// Most steps of a kernel: inlining multiplies.
const MAX_STEPS: usize = 1 << 21;
/// Deepest nesting of calls and scopes.
const MAX_DEPTH: usize = 64;
/// Most rows that one declaration makes.
const MAX_ROWS: u32 = 1 << 20;
/// Most rows of a kernel; a number has room for eight times as many.
const MAX_ALL_ROWS: u64 = 1 << 24;

/// Shared memory of a kernel as it fills.
#[derive(Debug, Default)]
pub(super) struct SharedLayout {
    /// Bytes so far.
    pub(super) bytes: u64,
    /// Alignment asked of dynamic memory.
    pub(super) dynamic_align: u64,
    placed: HashMap<String, Named>,
}

impl SharedLayout {
    fn place(&mut self, variable: &Variable) -> Named {
        let Some(len) = variable.len else {
            self.dynamic_align = self.dynamic_align.max(variable.align);
            return Named::Dynamic;
        };
        let address = self.bytes.next_multiple_of(variable.align.max(1));
        self.bytes = address.saturating_add(variable.ty.size().saturating_mul(len));
        Named::Variable { space: Space::Shared, address }
    }
}

/// A kernel in the making.
pub(super) struct Lowering<'a> {
    pub(super) module: &'a Module,
    pub(super) functions: HashMap<&'a str, &'a Function>,
    pub(super) rows: Operands<'a>,
    pub(super) places: Vec<Place>,
    /// Where each label stands, once it was met.
    pub(super) labels: Vec<Option<u32>>,
    /// Bytes of local memory so far.
    pub(super) frame: u64,
    pub(super) shared: &'a RefCell<SharedLayout>,
    /// Functions being inlined, outermost first.
    pub(super) calling: Vec<&'a str>,
    /// Label of the end of the function being inlined; `None` in the kernel itself.
    pub(super) end: Option<u32>,
    files: HashMap<u32, Arc<str>>,
    depth: usize,
}

/// Lowers one kernel.
pub(super) fn kernel(
    module: &Module,
    entry: &str,
    symbols: &dyn Fn(&str) -> Option<u64>,
) -> Result<Program, Error> {
    let missing = || Error::NoEntry { name: entry.into() };
    let function = module
        .functions
        .iter()
        .find(|f| f.name == entry && f.entry && f.body.is_some())
        .ok_or_else(missing)?;
    let body = function.body.as_deref().ok_or_else(missing)?;
    let shared = RefCell::new(SharedLayout { dynamic_align: 16, ..SharedLayout::default() });
    let variables: HashMap<&str, &Variable> = module.variables.iter().map(|v| (v.name.as_str(), v)).collect();
    let globals = |name: &str| -> Option<Named> {
        let variable = variables.get(name)?;
        match variable.space {
            Space::Shared => {
                let mut shared = shared.borrow_mut();
                if let Some(named) = shared.placed.get(name) {
                    return Some(named.clone());
                }
                let named = shared.place(variable);
                shared.placed.insert(name.to_owned(), named.clone());
                Some(named)
            }
            space => symbols(name).map(|address| Named::Variable { space, address }),
        }
    };
    let mut functions: HashMap<&str, &Function> = HashMap::new();
    for f in &module.functions {
        // A definition wins over its declarations.
        if f.body.is_some() || !functions.contains_key(f.name.as_str()) {
            functions.insert(&f.name, f);
        }
    }
    for (alias, of) in &module.aliases {
        if let Some(f) = functions.get(of.as_str()).copied() {
            functions.insert(alias, f);
        }
    }
    let rows = Operands {
        scopes: Vec::new(),
        globals: &globals,
        rows: [0; 3],
        fixed: HashMap::new(),
        fixed_rows: [0; 3],
        steps: Vec::new(),
        slots: Vec::new(),
        granule: 4,
        fences: false,
    };
    let mut lowering = Lowering {
        module,
        functions,
        rows,
        places: Vec::new(),
        labels: Vec::new(),
        frame: 0,
        shared: &shared,
        calling: vec![entry],
        end: None,
        files: HashMap::new(),
        depth: 0,
    };
    let (params, param_bytes) = super::parameters(function);
    let mut scope = Scope { function: true, ..Scope::default() };
    for (param, slot) in function.params.iter().zip(&params) {
        let named = Named::Param { offset: u64::from(slot.offset) };
        scope.names.insert(Cow::Borrowed(&param.name), named);
    }
    lowering.rows.scopes.push(scope);
    lowering.body(body)?;
    lowering.rows.emit(crate::program::Step::new(Action::Exit));
    lowering.complete(function, params, param_bytes)
}

impl<'a> Lowering<'a> {
    /// An error at a line that is no instruction.
    pub(super) fn error(line: u32, text: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Line { line, text: text.into(), what: what.into() }
    }

    /// A list of statements with a scope of its own.
    pub(super) fn body(&mut self, statements: &'a [Statement]) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Self::error(0, "{", format!("scopes and calls nested more than {MAX_DEPTH} deep")));
        }
        let mut scope = Scope::default();
        for statement in statements {
            match statement {
                Statement::Label(label) => {
                    scope.labels.insert(&label.name, self.labels.len() as u32);
                    self.labels.push(None);
                }
                Statement::BranchTargets(label, targets) => {
                    scope.targets.insert(&label.name, targets);
                }
                _ => {}
            }
        }
        self.rows.scopes.push(scope);
        for statement in statements {
            self.statement(statement)?;
        }
        self.rows.scopes.pop();
        self.depth -= 1;
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<(), Error> {
        match statement {
            Statement::Label(label) => {
                let here = self.rows.steps.len() as u32;
                if let Some(number) = self.rows.scopes.last().and_then(|s| s.labels.get(label.name.as_str()))
                    && let Some(place) = self.labels.get_mut(*number as usize)
                {
                    *place = Some(here);
                }
                Ok(())
            }
            Statement::Instruction(i) => self.instruction(i),
            Statement::Registers(registers) => self.registers(registers),
            Statement::Variable(variable) => self.variable(variable),
            Statement::Block(statements) => self.body(statements),
            Statement::BranchTargets(..) | Statement::CallPrototype(_) => Ok(()),
        }
    }

    fn name(&mut self, name: impl Into<Cow<'a, str>>, named: Named) {
        if let Some(scope) = self.rows.scopes.last_mut() {
            scope.names.insert(name.into(), named);
        }
    }

    /// Rows for a register.
    pub(super) fn register(&mut self, ty: Type, vector: u32) -> Named {
        let rows = vector.max(1) * if ty == Type::B128 { 2 } else { 1 };
        let slots = (0..rows).map(|_| self.rows.fresh(Class::of(ty))).collect();
        Named::Register { ty, slots, vector }
    }

    fn registers(&mut self, declared: &'a ast::Registers) -> Result<(), Error> {
        for (name, count) in &declared.names {
            match count {
                None => {
                    let named = self.register(declared.ty, declared.vector);
                    self.name(name.as_str(), named);
                }
                Some(count) => {
                    if *count > MAX_ROWS {
                        let what = format!("{count} registers; at most {MAX_ROWS} are taken");
                        return Err(Self::error(declared.line, format!(".reg {name}<{count}>"), what));
                    }
                    let before: u64 = self.rows.rows.iter().map(|&rows| u64::from(rows)).sum();
                    if before > MAX_ALL_ROWS {
                        let what = format!("more than {MAX_ALL_ROWS} registers in one kernel");
                        return Err(Self::error(declared.line, format!(".reg {name}<{count}>"), what));
                    }
                    for number in 0..*count {
                        let named = self.register(declared.ty, declared.vector);
                        self.name(format!("{name}{number}"), named);
                    }
                }
            }
        }
        Ok(())
    }

    /// Room in the frame: offset of so many bytes.
    pub(super) fn reserve(&mut self, bytes: u64, align: u64) -> u64 {
        let offset = self.frame.next_multiple_of(align.clamp(4, 1 << 12));
        self.frame = offset.saturating_add(bytes);
        offset
    }

    fn variable(&mut self, variable: &'a Variable) -> Result<(), Error> {
        let refuse =
            |what: &str| Err(Self::error(variable.line, format!("variable {}", variable.name), what));
        let bytes = variable.len.map(|len| variable.ty.size().saturating_mul(len));
        let named = match (variable.space, bytes) {
            (Space::Shared, _) => self.shared.borrow_mut().place(variable),
            (Space::Local | Space::Param, Some(bytes)) => {
                if self.frame.saturating_add(bytes) > 1 << 24 {
                    return refuse("more than 16 MiB of local memory for a thread");
                }
                let offset = self.reserve(bytes, variable.align);
                match variable.space {
                    Space::Param => Named::Frame { offset },
                    space => Named::Variable { space, address: offset },
                }
            }
            (Space::Local | Space::Param, None) => return refuse("it has no size"),
            (Space::Global | Space::Const, _) => match (self.rows.globals)(&variable.name) {
                Some(named) => named,
                None => return refuse("the module that was loaded gives it no address"),
            },
        };
        self.name(variable.name.as_str(), named);
        Ok(())
    }

    fn instruction(&mut self, i: &'a Instruction) -> Result<(), Error> {
        let mut text = i.opcode.clone();
        for modifier in &i.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        let first = self.rows.steps.len();
        let line = i.line;
        let refused = |text: &str, what: String| Error::Line { line, text: text.to_owned(), what };
        let place = self.places.len() as u32;
        let source = i.source.map(|source| (self.file(source.file), source.line));
        let caller = i.source.and_then(|source| source.caller).map(|(file, line)| (self.file(file), line));
        self.places.push(Place { ptx_line: line, source, caller, text: text.clone() });
        let guard = match &i.guard {
            None => (NONE, false),
            Some(guard) => {
                let operand = ast::Operand::Name(guard.register.clone());
                let (slot, _) = self.rows.pred(&operand).map_err(|what| refused(&text, what))?;
                (slot, guard.negated)
            }
        };
        if i.opcode == "call" {
            return self.call(i, guard, place).map_err(|fail| match fail {
                super::calls::Failure::Here(what) => refused(&text, what),
                super::calls::Failure::Inside(error) => error,
            });
        }
        self.step(i).map_err(|what| refused(&text, what))?;
        if self.rows.steps.len() > MAX_STEPS {
            return Err(refused(
                &text,
                format!("the kernel has more than {MAX_STEPS} steps with its calls inlined"),
            ));
        }
        for step in self.rows.steps.iter_mut().skip(first) {
            (step.guard, step.guard_negated) = guard;
            step.place = place;
        }
        Ok(())
    }

    fn step(&mut self, i: &'a Instruction) -> Result<(), String> {
        if self.control(i)? || self.alu(i)? {
            return Ok(());
        }
        match family(&i.opcode) {
            Some(lower) => {
                let step = lower(i, &mut self.rows)?;
                self.rows.emit(step);
                Ok(())
            }
            None => Err("this instruction is not supported".into()),
        }
    }

    fn file(&mut self, number: u32) -> Arc<str> {
        let module = self.module;
        let name = self.files.entry(number).or_insert_with(|| {
            let path = module.files.get(&number).map_or("?", String::as_str);
            Arc::from(path.rsplit('/').next().unwrap_or(path))
        });
        Arc::clone(name)
    }
}
