//! Metadata values: the thirteen types of the format.
//!
//! A string is bytes, not a `String`: vocabularies hold pieces that are no UTF-8, and dropping or replacing them would
//! lose tokens. [`Str`] compares with text and turns into it where it is text.

use std::fmt;
use std::str::Utf8Error;

use crate::array::Array;

/// The type of a metadata value, by its number in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned, 8 bits.
    U8 = 0,
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 16 bits.
    U16 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 32 bits.
    U32 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// IEEE 754 single precision.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// A length and bytes.
    String = 8,
    /// An element type, a count and elements.
    Array = 9,
    /// Unsigned, 64 bits.
    U64 = 10,
    /// Signed, 64 bits.
    I64 = 11,
    /// IEEE 754 double precision.
    F64 = 12,
}

impl ValueType {
    /// The type of that number, if there is one.
    #[must_use]
    pub const fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The number that stands for the type in files.
    #[must_use]
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Whether it is one of the eight integer types.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F64 | Self::Bool | Self::String | Self::Array)
    }

    /// The name in messages, as in `u32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata string: bytes that are nearly always UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Str(Box<[u8]>);

impl Str {
    /// The bytes, as in the file.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    ///
    /// # Errors
    /// If the bytes are not UTF-8.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// Shows bytes that are not UTF-8 as replacement characters.
impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl AsRef<[u8]> for Str {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl From<&str> for Str {
    fn from(s: &str) -> Self {
        Self(s.as_bytes().into())
    }
}

impl From<String> for Str {
    fn from(s: String) -> Self {
        Self(s.into_bytes().into())
    }
}

impl From<&[u8]> for Str {
    fn from(s: &[u8]) -> Self {
        Self(s.into())
    }
}

impl From<Vec<u8>> for Str {
    fn from(s: Vec<u8>) -> Self {
        Self(s.into())
    }
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// Single precision.
    F32(f32),
    /// A truth value.
    Bool(bool),
    /// Text, or bytes.
    String(Str),
    /// Elements of one type.
    Array(Array),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// Double precision.
    F64(f64),
}

impl Value {
    /// The value's type.
    #[must_use]
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The value of any of the eight integer types.
    #[must_use]
    pub const fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v as i128,
            Self::I8(v) => v as i128,
            Self::U16(v) => v as i128,
            Self::I16(v) => v as i128,
            Self::U32(v) => v as i128,
            Self::I32(v) => v as i128,
            Self::U64(v) => v as i128,
            Self::I64(v) => v as i128,
            _ => return None,
        })
    }

    /// The value of either float type.
    #[must_use]
    pub const fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v as f64),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// The truth value, if it is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(v) = *self { Some(v) } else { None }
    }

    /// The string, if it is one.
    #[must_use]
    pub const fn as_string(&self) -> Option<&Str> {
        if let Self::String(v) = self { Some(v) } else { None }
    }

    /// The array, if it is one.
    #[must_use]
    pub const fn as_array(&self) -> Option<&Array> {
        if let Self::Array(v) = self { Some(v) } else { None }
    }

    /// The type with its elements, for messages: "u32", "an array of 5 f32".
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Array(a) => format!("an array of {} {}", a.len(), a.element_type()),
            other => other.value_type().name().to_owned(),
        }
    }
}

/// Strings in quotes, long arrays cut short: for people, not for parsing.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => fmt::Debug::fmt(v, f),
            Self::Array(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
        }
    }
}

/// Defines `From` for a scalar.
macro_rules! from {
    ($($ty:ty => $variant:ident),*) => {$(
        impl From<$ty> for Value {
            fn from(v: $ty) -> Self {
                Self::$variant(v.into())
            }
        }
    )*};
}

from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32, f64 => F64);
from!(bool => Bool, &str => String, String => String, Str => String, Array => Array);
