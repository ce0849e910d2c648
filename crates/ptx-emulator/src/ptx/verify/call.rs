//! Calls: as many arguments as the function takes, each as it takes it.

use super::super::ast::{Function, Instruction, Operand, Param, Type};
use super::names::Found;
use super::{Checker, types};

/// Functions that the driver brings.
const SYSTEM: [&str; 4] = ["__assertfail", "free", "malloc", "vprintf"];

impl Checker<'_, '_> {
    /// `call (ret), function, (arguments);` in any of its forms.
    pub(super) fn call(&self, instruction: &Instruction) -> Result<(), String> {
        let mut operands = instruction.operands.as_slice();
        let mut returns: &[Operand] = &[];
        if let [Operand::List(list), rest @ ..] = operands {
            (returns, operands) = (list, rest);
        }
        let [Operand::Name(callee), rest @ ..] = operands else {
            return Err("call names no function".to_owned());
        };
        let (arguments, rest): (&[Operand], _) = match rest {
            [Operand::List(list), rest @ ..] => (list, rest),
            rest => (&[], rest),
        };
        match self.names.find(callee) {
            Some(Found::Function(function)) if function.entry => {
                Err(format!("{callee} is a kernel and cannot be called"))
            }
            Some(Found::Function(function))
                if function.body.is_none() && !SYSTEM.contains(&callee.as_str()) =>
            {
                Err(format!("{callee} is declared and never defined; a driver cannot link it"))
            }
            Some(Found::Function(function)) => self.arguments(function, returns, arguments),
            // Through a register; what it points to is not known here.
            Some(Found::Register(ty, 1)) if types::fits(ty, Type::U64, false) => {
                let [Operand::Name(prototype)] = rest else {
                    return Err("a call through a register needs a .callprototype or .calltargets".to_owned());
                };
                match self.names.find(prototype) {
                    Some(Found::Prototype) => Ok(()),
                    _ => Err(format!("{prototype} is no .callprototype")),
                }
            }
            _ => Err(format!("{callee} is no function")),
        }
    }

    fn arguments(
        &self,
        function: &Function,
        returns: &[Operand],
        arguments: &[Operand],
    ) -> Result<(), String> {
        let variadic = function.params.last().is_some_and(|param| param.array && param.len == 0);
        let count = function.params.len();
        if arguments.len() != count && !(variadic && arguments.len() + 1 >= count) {
            return Err(format!("{} arguments, {} takes {count}", arguments.len(), function.name));
        }
        if returns.len() != function.returns.len() {
            return Err(format!(
                "{} results are taken, {} returns {}",
                returns.len(),
                function.name,
                function.returns.len()
            ));
        }
        let pairs = arguments.iter().zip(&function.params).chain(returns.iter().zip(&function.returns));
        for (operand, param) in pairs {
            self.argument(operand, param)
                .map_err(|what| format!("{what}, for {} of {}", param.name, function.name))?;
        }
        Ok(())
    }

    fn argument(&self, operand: &Operand, param: &Param) -> Result<(), String> {
        let Operand::Name(name) = operand else { return Ok(()) };
        let needed = param.ty.size().saturating_mul(param.len);
        let given = match self.names.find(name) {
            Some(Found::Register(ty, 1)) if types::fits(ty, param.ty, false) => return Ok(()),
            Some(Found::Register(ty, _)) => {
                return Err(format!("{name} has another type ({ty:?}) than expected ({:?})", param.ty));
            }
            Some(Found::Variable(variable)) => variable.len.map(|len| len.saturating_mul(variable.ty.size())),
            Some(Found::Param(own)) => Some(own.ty.size().saturating_mul(own.len)),
            _ => return Ok(()),
        };
        match given {
            Some(given) if given != needed && param.len > 0 => {
                Err(format!("{name} has {given} bytes, expected {needed}"))
            }
            _ => Ok(()),
        }
    }
}
