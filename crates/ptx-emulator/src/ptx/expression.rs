//! Constants and constant expressions, folded while they are read.
//!
//! Integers follow PTX and not C: they have 64 bits and wrap, and are signed until a `U` or a value above 2⁶³ makes them
//! unsigned. Exact `0f…` literals are kept as they are: their bits matter, and the language allows no arithmetic on them.

use super::Error;
use super::cursor::Cursor;
use super::lexer::Kind;

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// 64 bits, signed.
    Signed(i64),
    /// 64 bits, unsigned.
    Unsigned(u64),
    /// `0f…`: the bits.
    Single(u32),
    /// `0d…` or a decimal fraction.
    Double(f64),
}

impl Value {
    /// The bits of an integer.
    pub(super) fn integer(self) -> Option<u64> {
        match self {
            Self::Signed(value) => Some(value.cast_unsigned()),
            Self::Unsigned(value) => Some(value),
            Self::Single(_) | Self::Double(_) => None,
        }
    }

    fn unsigned(self) -> bool {
        matches!(self, Self::Unsigned(_))
    }

    /// As a double, for arithmetic and initialisers.
    #[allow(clippy::cast_precision_loss)] // What C does with an integer that initialises a double.
    pub(super) fn double(self) -> f64 {
        match self {
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Single(bits) => f64::from(f32::from_bits(bits)),
            Self::Double(value) => value,
        }
    }

    fn truth(self) -> bool {
        self.integer().map_or_else(|| self.double() != 0.0, |bits| bits != 0)
    }
}

/// The value of an integer literal, its `U` included; `None` if it is none or too large.
pub(super) fn integer(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('U').unwrap_or(text);
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let binary = digits.strip_prefix("0b").or_else(|| digits.strip_prefix("0B"));
    let (digits, radix) = match (hex, binary) {
        (Some(hex), _) => (hex, 16),
        (_, Some(binary)) => (binary, 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}

/// The value of any literal.
fn literal(text: &str) -> Option<Value> {
    let exact = |prefix: [&str; 2], digits: usize| {
        let rest = prefix.iter().find_map(|p| text.strip_prefix(p))?;
        (rest.len() == digits).then(|| u64::from_str_radix(rest, 16).ok()).flatten()
    };
    if let Some(bits) = exact(["0f", "0F"], 8) {
        return u32::try_from(bits).ok().map(Value::Single);
    }
    if let Some(bits) = exact(["0d", "0D"], 16) {
        return Some(Value::Double(f64::from_bits(bits)));
    }
    if let Some(value) = integer(text) {
        let signed = i64::try_from(value).ok().filter(|_| !text.ends_with('U'));
        return Some(signed.map_or(Value::Unsigned(value), Value::Signed));
    }
    // Rust would read `inf` and `nan` too, but a number token begins with a digit or a dot.
    let fraction = text.contains('.') || (!text.starts_with("0x") && text.contains(['e', 'E']));
    fraction.then(|| text.parse().ok().map(Value::Double)).flatten()
}

/// Binary operators, weakest first.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Cursor<'_> {
    /// Whether a constant expression can begin here (a parenthesis may begin a list as well and is not counted).
    pub(super) fn at_constant(&self) -> bool {
        self.token.kind == Kind::Number
            || self.is("-")
            || self.is("~")
            || self.is("+")
            || self.is_word("WARP_SZ")
    }

    /// A constant expression.
    pub(super) fn constant(&mut self) -> Result<Value, Error> {
        self.enter()?;
        let condition = self.binary(0)?;
        let value = if self.eat("?") {
            let yes = self.constant()?;
            self.expect(":")?;
            let no = self.constant()?;
            if condition.truth() { yes } else { no }
        } else {
            condition
        };
        self.leave();
        Ok(value)
    }

    /// A constant expression that must be an integer.
    pub(super) fn constant_integer(&mut self, what: &str) -> Result<u64, Error> {
        let line = self.line();
        let value = self.constant()?;
        value.integer().ok_or_else(|| self.error_at(line, format!("{what} must be an integer")))
    }

    fn binary(&mut self, level: usize) -> Result<Value, Error> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        // `<` and `|` also belong to declarations and pairs, but neither follows a constant.
        while let Some(&operator) = operators.iter().find(|o| self.is(o)) {
            let line = self.line();
            self.bump();
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right).map_err(|message| self.error_at(line, message))?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Value, Error> {
        let line = self.line();
        if self.token.kind == Kind::Sign && ["-", "+", "!", "~"].contains(&self.token.text) {
            let operator = self.bump().text;
            self.enter()?;
            let value = self.unary()?;
            self.leave();
            return negate(operator, value)
                .ok_or_else(|| self.error_at(line, format!("`{operator}` needs an integer")));
        }
        if self.eat("(") {
            if let Some(cast) = self.directive() {
                self.bump();
                self.expect(")")?;
                self.enter()?;
                let value = self.unary()?;
                self.leave();
                let bits = value.integer().ok_or_else(|| self.error_at(line, "a cast needs an integer"))?;
                return match cast {
                    ".s64" => Ok(Value::Signed(bits.cast_signed())),
                    ".u64" => Ok(Value::Unsigned(bits)),
                    _ => Err(self.error_at(line, format!("cast to `{cast}`: only .s64 and .u64 exist"))),
                };
            }
            let value = self.constant()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.eat_word("WARP_SZ") {
            return Ok(Value::Signed(32));
        }
        if self.token.kind != Kind::Number {
            return Err(self.expected("a constant"));
        }
        let value = literal(self.token.text);
        let value = value.ok_or_else(|| {
            self.error(format!("`{}` is no number of PTX (at most 64 bits)", self.token.text))
        })?;
        self.bump();
        Ok(value)
    }
}

fn negate(operator: &str, value: Value) -> Option<Value> {
    Some(match (operator, value) {
        ("+", value) => value,
        ("!", value) => Value::Signed(i64::from(!value.truth())),
        ("-", Value::Signed(v)) => Value::Signed(v.wrapping_neg()),
        ("-", Value::Unsigned(v)) => Value::Unsigned(v.wrapping_neg()),
        ("-", Value::Single(bits)) => Value::Single(bits ^ (1 << 31)),
        ("-", Value::Double(v)) => Value::Double(-v),
        ("~", Value::Signed(v)) => Value::Signed(!v),
        ("~", Value::Unsigned(v)) => Value::Unsigned(!v),
        _ => return None,
    })
}

fn apply(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    let truth = |b: bool| Ok(Value::Signed(i64::from(b)));
    match operator {
        "&&" => return truth(left.truth() && right.truth()),
        "||" => return truth(left.truth() || right.truth()),
        _ => {}
    }
    let (Some(a), Some(b)) = (left.integer(), right.integer()) else {
        return floating(operator, left.double(), right.double());
    };
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    let shift = u32::try_from(b).ok().filter(|&s| s < 64);
    // A shift has the type of its left side, everything else the common type.
    let unsigned = left.unsigned() || (right.unsigned() && !matches!(operator, "<<" | ">>"));
    let bits = match operator {
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" | "%" if b == 0 => return Err("division by zero in a constant expression".to_owned()),
        "/" if unsigned => a / b,
        "%" if unsigned => a % b,
        "/" => signed_a.wrapping_div(signed_b).cast_unsigned(),
        "%" => signed_a.wrapping_rem(signed_b).cast_unsigned(),
        "<<" => shift.map_or(0, |s| a << s),
        ">>" if unsigned => shift.map_or(0, |s| a >> s),
        ">>" => (signed_a >> shift.unwrap_or(63)).cast_unsigned(),
        "==" => return truth(a == b),
        "!=" => return truth(a != b),
        _ => {
            let order = if unsigned { a.cmp(&b) } else { signed_a.cmp(&signed_b) };
            return truth(match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            });
        }
    };
    Ok(if unsigned { Value::Unsigned(bits) } else { Value::Signed(bits.cast_signed()) })
}

#[allow(clippy::float_cmp)] // It is what `==` between two constants means.
fn floating(operator: &str, a: f64, b: f64) -> Result<Value, String> {
    let truth = |b: bool| Ok(Value::Signed(i64::from(b)));
    match operator {
        "+" => Ok(Value::Double(a + b)),
        "-" => Ok(Value::Double(a - b)),
        "*" => Ok(Value::Double(a * b)),
        "/" => Ok(Value::Double(a / b)),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<" => truth(a < b),
        "<=" => truth(a <= b),
        ">" => truth(a > b),
        ">=" => truth(a >= b),
        _ => Err(format!("`{operator}` needs integers")),
    }
}
