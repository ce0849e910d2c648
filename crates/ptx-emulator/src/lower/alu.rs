//! Register-to-register instructions: finds the function and puts the operands in their places.

use super::function::Lowering;
use crate::alu::{self, Alu};
use crate::exec::registers::{Class, Mask, Registers, Slot};
use crate::program::{Action, NONE, Step};
use crate::ptx::ast::{Instruction, Operand};

/// The low 32 bits of a long row.
pub(super) fn narrow(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.long(step.src[0]).map(|x| x as u32);
    registers.set_word(step.dst, &row, mask);
}

/// A word row, extended with zeros.
pub(super) fn widen(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.word(step.src[0]).map(u64::from);
    registers.set_long(step.dst, &row, mask);
}

/// A word row, extended with its sign.
pub(super) fn widen_signed(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.word(step.src[0]).map(|x| i64::from(x as i32) as u64);
    registers.set_long(step.dst, &row, mask);
}

/// Copies a word row.
pub(super) fn copy_word(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.word(step.src[0]);
    registers.set_word(step.dst, &row, mask);
}

/// Copies a long row.
pub(super) fn copy_long(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.long(step.src[0]);
    registers.set_long(step.dst, &row, mask);
}

/// Copies a predicate.
pub(super) fn copy_pred(registers: &mut Registers, step: &Step, mask: Mask) {
    let row = registers.pred(step.src[0]);
    registers.set_pred(step.dst, row, mask);
}

/// A step with one source and one destination.
pub(super) fn unary(run: crate::program::AluFn, dst: Slot, src: Slot) -> Step {
    Step { dst, src: [src, NONE, NONE, NONE], ..Step::new(Action::Alu(run)) }
}

/// A copy of a row.
pub(super) fn copy(class: Class, dst: Slot, src: Slot) -> Step {
    let run = match class {
        Class::Word => copy_word,
        Class::Long => copy_long,
        Class::Pred => copy_pred,
    };
    Step { moves: true, ..unary(run, dst, src) }
}

impl Lowering<'_> {
    /// Lowers an instruction of [`crate::alu`]; false if it is none.
    pub(super) fn alu(&mut self, i: &Instruction) -> Result<bool, String> {
        if i.opcode == "mov" {
            match &i.operands[..] {
                [to, Operand::Vector(parts)] => return self.pack(i, to, parts).map(|()| true),
                [Operand::Vector(parts), from] => return self.unpack(i, parts, from).map(|()| true),
                [to, from] if i.modifiers.len() == 1 && self.wide_move(to, from)? => return Ok(true),
                _ => {}
            }
        }
        let modifiers: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
        let opcode = match (&i.opcode[..], i.operands.len()) {
            ("min", 4) => "min3",
            ("max", 4) => "max3",
            (opcode, _) => opcode,
        };
        let Some(found) = alu::lookup(opcode, &modifiers)? else { return Ok(false) };
        let convert = i.opcode == "cvt";
        let mut step = Step::new(Action::Alu(found.run));
        step.flags = found.flags;
        step.imm = found.imm;
        let (first, sources) = i.operands.split_first().ok_or("an instruction without operands")?;
        let (dst, dst2) = match first {
            Operand::Pair(a, b) => (&**a, Some(&**b)),
            Operand::Vector(parts) if parts.len() == 2 && found.dst2.is_some() => {
                (&parts[0], Some(&parts[1]))
            }
            one => (one, None),
        };
        let mut after = None;
        match (convert, found.dst, self.rows.class(dst)) {
            (true, Class::Word, Some(Class::Long)) => {
                // The type converted to stands first of the two: a signed one is extended with its sign.
                let types: Vec<&&str> =
                    modifiers.iter().filter(|m| crate::ptx::ast::Type::from_word(m).is_some()).collect();
                let signed = types.len() == 2 && types[0].starts_with('s');
                let narrow = self.rows.fresh(Class::Word);
                let wide = self.rows.destination(dst, Class::Long)?;
                after = Some(unary(if signed { widen_signed } else { widen }, wide, narrow));
                step.dst = narrow;
            }
            _ => step.dst = self.rows.destination(dst, found.dst)?,
        }
        match (dst2, found.dst2) {
            (None, _) => {}
            (Some(operand), Some(class)) => step.dst2 = self.rows.destination(operand, class)?,
            (Some(_), None) => return Err("this instruction has one result".into()),
        }
        if step.dst == NONE && step.dst2 == NONE {
            // Nothing is wanted of it; a row that nobody reads takes the result.
            step.dst = self.rows.fresh(found.dst);
        }
        self.sources(&mut step, &found, sources, convert)?;
        // Narrow ones are cut, and thus more than a copy.
        let whole =
            matches!(modifiers[..], ["pred" | "b32" | "u32" | "s32" | "f32" | "b64" | "u64" | "s64" | "f64"]);
        step.moves = whole && i.opcode == "mov" && found.src == [found.dst] && step.flags == 0;
        self.rows.emit(step);
        if let Some(step) = after {
            self.rows.emit(step);
        }
        Ok(true)
    }

    fn sources(
        &mut self,
        step: &mut Step,
        found: &Alu,
        operands: &[Operand],
        convert: bool,
    ) -> Result<(), String> {
        let expected = found.src.len() + usize::from(found.immediate.is_some());
        if operands.len() != expected {
            return Err(format!("{} sources, but it takes {expected}", operands.len()));
        }
        let mut places = found.src.iter().enumerate();
        for (number, operand) in operands.iter().enumerate() {
            if found.immediate == Some(number) {
                let value = self.rows.integer(operand).ok_or("this operand must be a constant")?;
                step.imm |= value as i64;
                continue;
            }
            let Some((place, &class)) = places.next() else { break };
            let slot = match (convert, class, self.rows.class(operand)) {
                (_, Class::Pred, _) => {
                    let (slot, negated) = self.rows.pred(operand)?;
                    if negated {
                        step.flags |= 1 << place;
                    }
                    slot
                }
                (true, Class::Word, Some(Class::Long)) => {
                    let low = self.rows.fresh(Class::Word);
                    let long = self.rows.long(operand)?;
                    self.rows.emit(unary(narrow, low, long));
                    low
                }
                _ => self.rows.source(operand, class)?,
            };
            *step.src.get_mut(place).ok_or("more sources than a step has room for")? = slot;
        }
        Ok(())
    }

    fn pack(&mut self, i: &Instruction, to: &Operand, parts: &[Operand]) -> Result<(), String> {
        if let (Some((Class::Long, slots)), [_, _]) = (self.rows.rows_of(to), parts)
            && slots.len() == 2
        {
            for (slot, part) in slots.into_iter().zip(parts) {
                let source = self.rows.long(part)?;
                self.rows.emit(copy(Class::Long, slot, source));
            }
            return Ok(());
        }
        let modifiers: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
        let found = alu::pack(&modifiers, parts.len())?;
        let mut step = Step::new(Action::Alu(found.run));
        step.flags = found.flags;
        step.imm = found.imm;
        step.dst = self.rows.destination(to, found.dst)?;
        self.sources(&mut step, &found, parts, false)?;
        self.rows.emit(step);
        Ok(())
    }

    fn unpack(&mut self, i: &Instruction, parts: &[Operand], from: &Operand) -> Result<(), String> {
        if let (Some((Class::Long, slots)), [_, _]) = (self.rows.rows_of(from), parts)
            && slots.len() == 2
        {
            let to = [
                self.rows.destination(&parts[0], Class::Long)?,
                self.rows.destination(&parts[1], Class::Long)?,
            ];
            for (dst, src) in to.into_iter().zip(slots) {
                if dst != NONE {
                    self.rows.emit(copy(Class::Long, dst, src));
                }
            }
            return Ok(());
        }
        let modifiers: Vec<&str> = i.modifiers.iter().map(String::as_str).collect();
        let mut left = parts.iter();
        // The source may be one of the destinations: all but the last step write to rows of their own first.
        let found = alu::unpack(&modifiers, parts.len())?;
        let mut copies = Vec::new();
        let several = found.len() > 1;
        for alu in found {
            let mut step = Step::new(Action::Alu(alu.run));
            step.flags = alu.flags;
            step.imm = alu.imm;
            step.src[0] = match alu.src.first() {
                Some(&class) => self.rows.source(from, class)?,
                None => return Err("nothing to take apart".into()),
            };
            for (place, class) in [Some(alu.dst), alu.dst2].into_iter().enumerate() {
                let (Some(class), Some(part)) = (class, left.next()) else { continue };
                let mut dst = self.rows.destination(part, class)?;
                if several && dst != NONE {
                    let own = self.rows.fresh(class);
                    copies.push(copy(class, dst, own));
                    dst = own;
                }
                if place == 0 { step.dst = dst } else { step.dst2 = dst }
            }
            self.rows.emit(step);
        }
        for step in copies {
            self.rows.emit(step);
        }
        Ok(())
    }

    /// `mov` between vector registers or 128-bit ones; false if it is another.
    fn wide_move(&mut self, to: &Operand, from: &Operand) -> Result<bool, String> {
        match (self.rows.rows_of(to), self.rows.rows_of(from)) {
            (Some((class, to)), Some((of, from)))
                if to.len() > 1 && to.len() == from.len() && class == of =>
            {
                for (dst, src) in to.into_iter().zip(from) {
                    self.rows.emit(copy(class, dst, src));
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
