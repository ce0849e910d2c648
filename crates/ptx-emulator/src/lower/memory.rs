//! Loads, stores, atomics, fences: which function, which flags.

use super::Operands;
use super::alu::{narrow, unary, widen, widen_signed};
use super::control::known;
use crate::check::{Order, Scope};
use crate::exec::access::{self, SIGNED, STRONG, UNIFORM, WIDE, space};
use crate::exec::registers::{Class, Slot};
use crate::exec::{atomic, fence, load, spaces, store};
use crate::program::{Action, NONE, Results, Step};
use crate::ptx::ast::{Instruction, Operand, Space, Type};

/// The words of a memory instruction.
#[derive(Debug, Default)]
struct Words<'a> {
    space: Option<Space>,
    order: Option<Order>,
    scope: Option<Scope>,
    vector: usize,
    ty: Option<Type>,
    type_word: &'a str,
    policy: bool,
    rest: Vec<&'a str>,
}

/// Sorts out what all of them have in common; what is left is for the instruction to know.
fn words(i: &Instruction) -> Result<Words<'_>, String> {
    let mut words = Words { vector: 1, ..Words::default() };
    for word in &i.modifiers {
        match &word[..] {
            "global" => words.space = Some(Space::Global),
            "const" => words.space = Some(Space::Const),
            "shared" | "shared::cta" | "shared::cluster" => words.space = Some(Space::Shared),
            "local" => words.space = Some(Space::Local),
            "param" | "param::entry" | "param::func" => words.space = Some(Space::Param),
            "weak" => {}
            "relaxed" | "mmio" => words.order = Some(Order::Relaxed),
            "volatile" => (words.order, words.scope) = (Some(Order::Relaxed), Some(Scope::System)),
            "acquire" => words.order = Some(Order::Acquire),
            "release" => words.order = Some(Order::Release),
            "acq_rel" => words.order = Some(Order::AcquireRelease),
            "sc" => words.order = Some(Order::Sequential),
            "cta" => words.scope = Some(Scope::Block),
            "cluster" => words.scope = Some(Scope::Cluster),
            "gpu" | "gl" => words.scope = Some(Scope::Device),
            "sys" => words.scope = Some(Scope::System),
            "v2" => words.vector = 2,
            "v4" => words.vector = 4,
            "v8" => words.vector = 8,
            "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" => {}
            "L1::evict_normal"
            | "L1::evict_unchanged"
            | "L1::evict_first"
            | "L1::evict_last"
            | "L1::no_allocate"
            | "L2::64B"
            | "L2::128B"
            | "L2::256B"
            | "L2::evict_normal"
            | "L2::evict_first"
            | "L2::evict_last" => {}
            "L2::cache_hint" => words.policy = true,
            other => match Type::from_word(other) {
                Some(ty) if words.ty.is_none() => (words.ty, words.type_word) = (Some(ty), other),
                _ => words.rest.push(other),
            },
        }
    }
    Ok(words)
}

impl Words<'_> {
    fn only(&self, more: &[&str]) -> Result<(), String> {
        known(&self.rest, more)
    }

    fn ty(&self) -> Result<Type, String> {
        self.ty.filter(|ty| *ty != Type::Pred).ok_or_else(|| "a type is expected".into())
    }

    fn ordering(&self) -> u32 {
        let order = self.order.unwrap_or(Order::Relaxed);
        access::ordering_flags(order, self.scope.unwrap_or(Scope::Device))
    }

    /// Takes the cache policy off the operands: it must be one, and it changes nothing.
    fn without_policy<'o>(
        &self,
        o: &mut Operands<'_>,
        operands: &'o [Operand],
    ) -> Result<&'o [Operand], String> {
        if !self.policy {
            return Ok(operands);
        }
        let (policy, rest) = operands.split_last().ok_or("a cache policy is expected")?;
        o.long(policy)?;
        Ok(rest)
    }
}

/// Fills in an address; gives the space that the access is compiled for.
fn address(
    o: &mut Operands<'_>,
    step: &mut Step,
    operand: &Operand,
    named: Option<Space>,
) -> Result<u8, String> {
    let address = o.address(operand)?;
    step.src[0] = address.base;
    step.imm = address.offset;
    if address.wide {
        step.flags |= WIDE;
    }
    if address.uniform {
        step.flags |= UNIFORM;
    }
    Ok(match (named, address.space) {
        // A function's parameters live in its frame.
        (Some(Space::Param), Some(Space::Local)) => space::LOCAL,
        (Some(Space::Param), Some(_)) => space::PARAM,
        (Some(Space::Param), None) => space::GENERIC,
        (Some(Space::Global | Space::Const), _) => space::GLOBAL,
        (Some(Space::Shared), _) => space::SHARED,
        (Some(Space::Local), _) => space::LOCAL,
        (None, Some(Space::Global | Space::Const)) => space::GLOBAL,
        (None, Some(Space::Shared)) => space::SHARED,
        (None, Some(Space::Local)) => space::LOCAL,
        (None, Some(Space::Param)) => space::PARAM,
        (None, None) => space::GENERIC,
    })
}

fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

fn note_shared(o: &mut Operands<'_>, space: u8, bytes: u64) {
    if space == space::SHARED || space == space::GENERIC {
        o.shared_access(bytes as u32);
    }
}

/// `ld`, `ldu`.
pub(crate) fn lower_load(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    words.only(&[])?;
    let ty = words.ty()?;
    let [to, from] = words.without_policy(o, &i.operands)? else {
        return Err("a destination and an address are expected".into());
    };
    // 128 bits are two of 64.
    let (bytes, count) = if ty == Type::B128 { (8, 2 * words.vector) } else { (ty.size(), words.vector) };
    let mut step = Step::new(Action::Exec(spaces::nothing));
    let space = address(o, &mut step, from, words.space)?;
    if is_signed(ty) {
        step.flags |= SIGNED;
    }
    if words.order.is_some() && space != space::LOCAL && space != space::PARAM {
        step.flags |= STRONG | words.ordering();
        o.fences |= words.order != Some(Order::Relaxed);
    }
    note_shared(o, space, bytes * count as u64);
    step.action = Action::Exec(load::function(space, bytes, count).ok_or("no such vector")?);
    let class = if bytes == 8 { Class::Long } else { Class::Word };
    let mut after = Vec::new();
    let mut slots = Vec::new();
    let whole = o.rows_of(to).filter(|(_, slots)| slots.len() == count && count > 1);
    if let Some((of, rows)) = whole {
        if of != class {
            return Err("the vector register has another width".into());
        }
        slots = rows;
    } else {
        for element in o.vector(to) {
            if let Some((Class::Long, rows)) = o.rows_of(element)
                && rows.len() == 2
                && class == Class::Long
            {
                slots.extend(rows);
            } else if class == Class::Word && o.class(element) == Some(Class::Long) {
                // Registers may be wider than what is loaded.
                let wide = o.destination(element, Class::Long)?;
                let own = o.fresh(Class::Word);
                after.push(unary(if is_signed(ty) { widen_signed } else { widen }, wide, own));
                slots.push(own);
            } else {
                slots.push(o.destination(element, class)?);
            }
        }
    }
    if slots.len() != count {
        return Err(format!("{} destinations for {count} elements", slots.len()));
    }
    match slots[..] {
        [dst] => step.dst = dst,
        _ => (step.list, step.results) = (o.list(&slots), Results::At(0, slots.len() as u8)),
    }
    Ok(with_after(o, step, after))
}

/// The last of several steps is what a family returns.
fn with_after(o: &mut Operands<'_>, step: Step, mut after: Vec<Step>) -> Step {
    match after.pop() {
        None => step,
        Some(last) => {
            o.emit(step);
            for step in after {
                o.emit(step);
            }
            last
        }
    }
}

/// A source for a value of some bytes in memory: wider registers are cut.
fn value(o: &mut Operands<'_>, operand: &Operand, class: Class) -> Result<Slot, String> {
    if class == Class::Word && o.class(operand) == Some(Class::Long) {
        let long = o.long(operand)?;
        let own = o.fresh(Class::Word);
        o.emit(unary(narrow, own, long));
        return Ok(own);
    }
    o.source(operand, class)
}

/// `st`.
pub(crate) fn lower_store(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    words.only(&[])?;
    let ty = words.ty()?;
    let [to, from] = words.without_policy(o, &i.operands)? else {
        return Err("an address and a source are expected".into());
    };
    let (bytes, count) = if ty == Type::B128 { (8, 2 * words.vector) } else { (ty.size(), words.vector) };
    let mut step = Step::new(Action::Exec(spaces::nothing));
    let space = address(o, &mut step, to, words.space)?;
    if space == space::PARAM {
        return Err("the parameters of a kernel cannot be written".into());
    }
    if words.order.is_some() && space != space::LOCAL {
        step.flags |= STRONG | words.ordering();
        o.fences |= words.order != Some(Order::Relaxed);
    }
    note_shared(o, space, bytes * count as u64);
    step.action = Action::Exec(store::function(space, bytes, count).ok_or("no such vector")?);
    let class = if bytes == 8 { Class::Long } else { Class::Word };
    let mut slots = Vec::new();
    match o.rows_of(from).filter(|(of, slots)| slots.len() == count && count > 1 && *of == class) {
        Some((_, rows)) => slots = rows,
        None => {
            for element in o.vector(from) {
                match o.rows_of(element) {
                    Some((Class::Long, rows)) if rows.len() == 2 && class == Class::Long => {
                        slots.extend(rows)
                    }
                    _ => slots.push(value(o, element, class)?),
                }
            }
        }
    }
    if slots.len() != count {
        return Err(format!("{} sources for {count} elements", slots.len()));
    }
    match slots[..] {
        [src] => step.src[1] = src,
        _ => (step.list, step.results) = (o.list(&slots), Results::At(0, 0)),
    }
    Ok(step)
}

/// `atom`, `red`.
pub(crate) fn lower_atomic(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    let ty = words.ty()?;
    let operation =
        words.rest.iter().copied().find(|word| *word != "noftz").ok_or("an operation is expected")?;
    words.only(&[operation, "noftz"])?;
    let mut operands = words.without_policy(o, &i.operands)?.iter();
    let result = if i.opcode == "atom" { operands.next() } else { None };
    let place = operands.next().ok_or("an address is expected")?;
    let rest = operands.as_slice();
    let expected = if operation == "cas" { 2 } else { 1 };
    if rest.len() != expected {
        return Err(format!("{operation} takes {expected} values"));
    }
    let mut step = Step::new(Action::Exec(spaces::nothing));
    let space = address(o, &mut step, place, words.space)?;
    match space {
        space::GLOBAL | space::GENERIC => {}
        space::SHARED => step.flags |= atomic::SHARED,
        _ => return Err("atomics work on global and shared memory".into()),
    }
    note_shared(o, space, ty.size());
    step.flags |= words.ordering();
    // Without an order an atomic is relaxed; with one, it orders other accesses too.
    o.fences |= words.order.is_some_and(|order| order != Order::Relaxed);
    if ty == Type::B128 {
        if !matches!(operation, "cas" | "exch") {
            return Err(format!("there is no {operation} of 128 bits"));
        }
        let mut rows = Vec::new();
        for operand in result.into_iter().chain(rest) {
            match o.rows_of(operand) {
                Some((Class::Long, pair)) if pair.len() == 2 => rows.extend(pair),
                None if matches!(operand, Operand::Sink) => rows.extend([NONE, NONE]),
                _ => return Err("registers of 128 bits are expected".into()),
            }
        }
        step.action = Action::Exec(atomic::wide);
        (step.list, step.results) = (o.list(&rows), Results::At(0, 2));
        return Ok(step);
    }
    let run = atomic::function(operation, words.type_word);
    step.action =
        Action::Exec(run.ok_or_else(|| format!("there is no atomic {operation} of .{}", words.type_word))?);
    let class = Class::of(ty);
    if words.vector > 1 {
        let [from] = rest else { return Err("one vector of values is expected".into()) };
        let mut rows = Vec::new();
        match result {
            Some(result) => {
                for element in o.vector(result) {
                    rows.push(o.destination(element, class)?);
                }
            }
            None => rows.resize(words.vector, NONE),
        }
        for element in o.vector(from) {
            rows.push(o.source(element, class)?);
        }
        if rows.len() != 2 * words.vector {
            return Err(format!("vectors of {} elements are expected", words.vector));
        }
        (step.list, step.results) = (o.list(&rows), Results::At(0, words.vector as u8));
        return Ok(step);
    }
    if let Some(result) = result {
        step.dst = o.destination(result, class)?;
    }
    step.src[1] = o.source(&rest[0], class)?;
    if let Some(c) = rest.get(1) {
        step.src[2] = o.source(c, class)?;
    }
    Ok(step)
}

/// `fence`, `membar`.
pub(crate) fn lower_fence(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    // Proxies are one here: an asynchronous copy sees what was written before it was issued.
    words.only(&[
        "proxy",
        "async",
        "async::generic",
        "alias",
        "tensormap::generic",
        "mbarrier_init",
        "sync_restrict::shared::cta",
        "sync_restrict::shared::cluster",
        "async.shared::cta",
        "async.global",
    ])?;
    o.fences = true;
    let order =
        if i.opcode == "membar" { Order::Sequential } else { words.order.unwrap_or(Order::AcquireRelease) };
    let mut step = Step::new(Action::Exec(fence::fence));
    step.flags |= access::ordering_flags(order, words.scope.unwrap_or(Scope::System));
    Ok(step)
}

/// `cvta`.
pub(crate) fn lower_cvta(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    words.only(&["to"])?;
    let to = words.rest.contains(&"to");
    let run = match (words.space, to) {
        (Some(Space::Global | Space::Const), _) => spaces::as_it_is,
        (Some(_), true) => spaces::to_windowed,
        (Some(Space::Shared), false) => spaces::from_shared,
        (Some(Space::Local), false) => spaces::from_local,
        (Some(Space::Param), false) => spaces::from_param,
        (None, _) => return Err("a space is expected".into()),
    };
    let class = Class::of(words.ty()?);
    let [dst, src] = &i.operands[..] else { return Err("a destination and a source are expected".into()) };
    let mut step = Step::new(Action::Exec(run));
    step.dst = o.destination(dst, class)?;
    step.src[0] = o.source(src, class)?;
    if class == Class::Long {
        step.flags |= WIDE;
    }
    step.moves = matches!(words.space, Some(Space::Global | Space::Const)) && step.dst != NONE;
    Ok(step)
}

/// `isspacep`.
pub(crate) fn lower_isspacep(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    words.only(&[])?;
    let window = match words.space.ok_or("a space is expected")? {
        Space::Global => 0,
        Space::Shared => 1,
        Space::Local => 2,
        Space::Param => 3,
        // Constants are addresses of global memory here.
        Space::Const => 4,
    };
    let [dst, src] = &i.operands[..] else { return Err("a destination and an address are expected".into()) };
    let mut step = Step::new(Action::Exec(spaces::is_in));
    step.dst = o.destination(dst, Class::Pred)?;
    let class = o.class(src).unwrap_or(Class::Long);
    step.src[0] = o.source(src, class)?;
    if class == Class::Long {
        step.flags |= WIDE;
    }
    step.list = (window, 0);
    Ok(step)
}

/// `prefetch`, `prefetchu`, `applypriority`, `discard`: hints. The last says that what memory holds is not wanted any more, which a program cannot see.
pub(crate) fn lower_hint(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    let words = words(i)?;
    words.only(&["L1", "L2", "tensormap"])?;
    let operand = i.operands.first().ok_or("an address is expected")?;
    let mut step = Step::new(Action::Exec(spaces::nothing));
    address(o, &mut step, operand, words.space)?;
    Ok(step)
}

/// `createpolicy`: a cache policy changes nothing, but it has a value.
pub(crate) fn lower_policy(i: &Instruction, o: &mut Operands<'_>) -> Result<Step, String> {
    known(
        &i.modifiers.iter().map(String::as_str).collect::<Vec<_>>(),
        &[
            "fractional",
            "range",
            "cvt",
            "global",
            "b64",
            "L2",
            "L2::evict_last",
            "L2::evict_normal",
            "L2::evict_first",
            "L2::evict_unchanged",
        ],
    )?;
    let dst = o.destination(i.operands.first().ok_or("a destination is expected")?, Class::Long)?;
    let zero = o.constant(Class::Long, 0);
    Ok(super::alu::copy(Class::Long, dst, zero))
}
