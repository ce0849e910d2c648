//! Instructions and functions that speak to the system: `trap`, sleeping, `vprintf`, `__assertfail`.

use super::raw;
use super::registers::{Mask, lanes};
use super::{Cx, Target};
use crate::check::Access;
use crate::fault::{Fault, Kind};
use crate::program::{Outcome, Step};

/// Longest string that is read from device memory.
const LONGEST: usize = 1 << 16;

/// `trap`.
pub(crate) fn trap(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    Err(cx.fault(step.place, mask.trailing_zeros() as usize, Kind::Trap, "the kernel executed trap".into()))
}

/// `brkpt`: there is no debugger.
pub(crate) fn breakpoint(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    Err(cx.fault(step.place, mask.trailing_zeros() as usize, Kind::Trap, "the kernel executed brkpt".into()))
}

/// `nanosleep`: others have their turn.
pub(crate) fn nanosleep(cx: &mut Cx<'_>, _: &Step, _: Mask) -> Outcome {
    cx.warp.yielding = true;
    Ok(())
}

/// `griddepcontrol.launch_dependents`.
pub(crate) fn launch_dependents(cx: &mut Cx<'_>, _: &Step, _: Mask) -> Outcome {
    cx.block.dependents_released = true;
    Ok(())
}

impl Cx<'_> {
    /// Bytes at a generic address.
    fn generic_bytes(&mut self, place: u32, lane: usize, address: u64, to: &mut [u8]) -> Outcome {
        for (at, byte) in to.iter_mut().enumerate() {
            *byte = match self.generic(place, lane, address.wrapping_add(at as u64), 1, Access::Read)? {
                Target::Global(host) => raw::load8(host),
                Target::Shared(at) => self.block.shared.get(at).copied().unwrap_or(0),
                Target::Local(at) => self.local_read(lane, at, 1) as u8,
                Target::Param(at) => self.grid.launch.arguments.get(at).copied().unwrap_or(0),
            };
        }
        Ok(())
    }

    /// A string that ends with a zero.
    fn string(&mut self, place: u32, lane: usize, address: u64) -> Result<String, Box<Fault>> {
        let mut bytes = Vec::new();
        while bytes.len() < LONGEST {
            let mut byte = [0];
            self.generic_bytes(place, lane, address.wrapping_add(bytes.len() as u64), &mut byte)?;
            if byte[0] == 0 {
                break;
            }
            bytes.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The arguments of an external function: offsets in the lane's frame, after those of its results.
    fn arguments(&self, step: &Step) -> Vec<usize> {
        let (start, len) = (step.list.0 as usize, step.list.1 as usize);
        let list = self.grid.launch.program.slots.get(start..start + len).unwrap_or_default();
        list.iter().map(|offset| *offset as usize).collect()
    }
}

/// `__assertfail(message, file, line, function, size)`.
pub(crate) fn assertion(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let lane = mask.trailing_zeros() as usize;
    let arguments = cx.arguments(step);
    let &[message, file, line, function, ..] = arguments.get(step.imm as usize..).unwrap_or_default() else {
        return Ok(());
    };
    let mut text = |at: usize| {
        let address = cx.local_read(lane, at, 8);
        cx.string(step.place, lane, address)
    };
    let (message, file, function) = (text(message)?, text(file)?, text(function)?);
    let line = cx.local_read(lane, line, 4);
    let what = format!("{file}:{line}: {function}: assertion `{message}` failed");
    Err(cx.fault(step.place, lane, Kind::Assertion, what))
}

/// `vprintf(format, arguments)`.
pub(crate) fn print(cx: &mut Cx<'_>, step: &Step, mask: Mask) -> Outcome {
    let offsets = cx.arguments(step);
    let results = step.imm as usize;
    let &[format, list] = offsets.get(results..).unwrap_or_default() else { return Ok(()) };
    for lane in lanes(mask) {
        let (format, list) = (cx.local_read(lane, format, 8), cx.local_read(lane, list, 8));
        let format = cx.string(step.place, lane, format)?;
        let (place, mut at) = (step.place, list);
        let cell = std::cell::RefCell::new(&mut *cx);
        let (text, count) = formatted(
            &format,
            &mut |size| next(&mut cell.borrow_mut(), place, lane, &mut at, size),
            &mut |address| cell.borrow_mut().string(place, lane, address),
        )?;
        emit(&text);
        if let Some(result) = offsets.first().filter(|_| results > 0) {
            cx.local_write(lane, *result, 4, count as u64);
        }
    }
    Ok(())
}

#[allow(clippy::print_stderr)] // what a kernel prints is for the user to see
fn emit(text: &str) {
    eprint!("{text}");
}

/// The text of a format, and how many arguments it took: `next` gives the next one, of so many bytes, and `string` the text at an address.
pub(super) fn formatted(
    format: &str,
    next: &mut dyn FnMut(u64) -> Result<u64, Box<Fault>>,
    string: &mut dyn FnMut(u64) -> Result<String, Box<Fault>>,
) -> Result<(String, u32), Box<Fault>> {
    let mut out = String::new();
    let mut rest = format.chars().peekable();
    let mut count = 0;
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = Spec::default();
        while let Some(&c) = rest.peek() {
            match c {
                '-' => spec.left = true,
                '+' => spec.plus = true,
                ' ' => spec.space = true,
                '#' => spec.alternate = true,
                '0' => spec.zero = true,
                _ => break,
            }
            rest.next();
        }
        let mut number = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut value = None;
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                value = Some((value.unwrap_or(0) * 10 + digit as usize).min(4096));
                rest.next();
            }
            if rest.peek() == Some(&'*') {
                rest.next();
                let raw = next(4)? as i32;
                count += 1;
                value = usize::try_from(raw).ok().map(|v| v.min(4096));
            }
            Ok::<_, Box<Fault>>(value)
        };
        spec.width = number(&mut rest)?.unwrap_or(0);
        if rest.peek() == Some(&'.') {
            rest.next();
            spec.precision = Some(number(&mut rest)?.unwrap_or(0));
        }
        let mut long = false;
        while let Some('l' | 'h' | 'z' | 'j' | 't' | 'L') = rest.peek() {
            long |= !matches!(rest.next(), Some('h'));
        }
        let Some(kind) = rest.next() else { break };
        if kind == '%' {
            out.push('%');
            continue;
        }
        count += 1;
        let size = if long || "pseEfFgGaA".contains(kind) { 8 } else { 4 };
        let raw = next(size)?;
        let text = match kind {
            's' => string(raw)?,
            _ => spec.value(kind, raw, long),
        };
        spec.pad(&mut out, text, kind != 's' && kind != 'c');
    }
    Ok((out, count))
}

fn next(cx: &mut Cx<'_>, place: u32, lane: usize, at: &mut u64, size: u64) -> Result<u64, Box<Fault>> {
    *at = at.next_multiple_of(size);
    let mut bytes = [0; 8];
    cx.generic_bytes(place, lane, *at, &mut bytes[..size as usize])?;
    *at += size;
    Ok(u64::from_le_bytes(bytes))
}

/// One conversion of a format.
#[derive(Clone, Debug, Default)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

impl Spec {
    fn value(&self, kind: char, raw: u64, long: bool) -> String {
        let signed = if long { raw as i64 } else { i64::from(raw as u32 as i32) };
        let digits = |text: String| match self.precision {
            Some(digits) => format!("{text:0>digits$}"),
            None => text,
        };
        let double = f64::from_bits(raw);
        let precision = self.precision.unwrap_or(6);
        match kind {
            'd' | 'i' => self.sign(signed < 0, digits(signed.unsigned_abs().to_string())),
            'u' => digits(raw.to_string()),
            'x' if self.alternate => format!("0x{}", digits(format!("{raw:x}"))),
            'x' => digits(format!("{raw:x}")),
            'X' if self.alternate => format!("0X{}", digits(format!("{raw:X}"))),
            'X' => digits(format!("{raw:X}")),
            'o' => digits(format!("{raw:o}")),
            'c' => (raw as u8 as char).to_string(),
            'p' => format!("{raw:#x}"),
            _ if !double.is_finite() => {
                let word = if double.is_nan() { "nan" } else { "inf" };
                self.sign(double.is_sign_negative(), word.into())
            }
            'f' | 'F' => self.sign(double.is_sign_negative(), format!("{:.precision$}", double.abs())),
            'e' | 'E' => self.sign(double.is_sign_negative(), exponent(double.abs(), precision, kind)),
            'g' | 'G' => {
                self.sign(double.is_sign_negative(), self.shortest(double.abs(), precision.max(1), kind))
            }
            _ => self.sign(double.is_sign_negative(), format!("{:e}", double.abs())),
        }
    }

    fn sign(&self, negative: bool, text: String) -> String {
        match (negative, self.plus, self.space) {
            (true, ..) => format!("-{text}"),
            (_, true, _) => format!("+{text}"),
            (_, _, true) => format!(" {text}"),
            _ => text,
        }
    }

    /// `%g`: the shorter of the two notations, without trailing zeros.
    fn shortest(&self, value: f64, precision: usize, kind: char) -> String {
        let scale = exponent(value, precision - 1, 'e');
        let power: i32 = scale.rsplit_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
        let trim = |text: String| match text.split_once('.') {
            Some(_) if !self.alternate => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            _ => text,
        };
        if power < -4 || power >= precision as i32 {
            let (digits, power) = scale.split_once('e').unwrap_or((&scale, "+00"));
            format!("{}{}{power}", trim(digits.to_owned()), if kind == 'G' { 'E' } else { 'e' })
        } else {
            let places = (precision as i32 - 1 - power).max(0) as usize;
            trim(format!("{value:.places$}"))
        }
    }

    fn pad(&self, out: &mut String, text: String, number: bool) {
        let text = match self.precision {
            Some(longest) if !number => text.chars().take(longest).collect(),
            _ => text,
        };
        let missing = self.width.saturating_sub(text.chars().count());
        if self.left {
            out.push_str(&text);
            out.extend(std::iter::repeat_n(' ', missing));
        } else if self.zero && number {
            let sign = usize::from(text.starts_with(['-', '+', ' ']));
            out.push_str(&text[..sign]);
            out.extend(std::iter::repeat_n('0', missing));
            out.push_str(&text[sign..]);
        } else {
            out.extend(std::iter::repeat_n(' ', missing));
            out.push_str(&text);
        }
    }
}

/// `%e`: Rust writes the exponent without its two digits.
fn exponent(value: f64, precision: usize, kind: char) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let e = if kind == 'E' { 'E' } else { 'e' };
    format!("{digits}{e}{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}
