//! Metadata arrays, stored by element type.
//!
//! Not a `Vec<Value>`: a vocabulary has some 300,000 strings and as many scores, and a box for each would cost more
//! than reading them. Numbers are one typed vector; strings are one buffer and their ends.

use std::borrow::Cow;
use std::fmt;

use crate::value::{Str, ValueType};

/// How deeply arrays may nest: files with more are refused. Known writers nest not at all.
pub const MAX_DEPTH: usize = 16;

/// Strings, end to end in one buffer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StringArray {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl StringArray {
    /// No strings.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new() }
    }

    /// How many strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `i`, or `None` past the end.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)?;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// String `i` as text, or `None` past the end or if it is not UTF-8.
    #[must_use]
    pub fn get_str(&self, i: usize) -> Option<&str> {
        std::str::from_utf8(self.get(i)?).ok()
    }

    /// All strings' bytes, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    /// All strings as text, in order; an error stands for one that is not UTF-8.
    pub fn iter_str(&self) -> impl ExactSizeIterator<Item = Result<&str, std::str::Utf8Error>> + Clone {
        self.iter().map(std::str::from_utf8)
    }

    /// Appends a string.
    pub fn push(&mut self, s: &[u8]) {
        self.bytes.extend_from_slice(s);
        self.ends.push(self.bytes.len());
    }

    /// Makes room for `strings` more strings.
    pub(crate) fn reserve(&mut self, strings: usize) {
        self.ends.reserve(strings);
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::new();
        strings.into_iter().for_each(|s| all.push(s.as_ref()));
        all
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// A metadata array. Its elements have one type; elements that are arrays may differ in theirs.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned, 8 bits.
    U8(Vec<u8>),
    /// Signed, 8 bits.
    I8(Vec<i8>),
    /// Unsigned, 16 bits.
    U16(Vec<u16>),
    /// Signed, 16 bits.
    I16(Vec<i16>),
    /// Unsigned, 32 bits.
    U32(Vec<u32>),
    /// Signed, 32 bits.
    I32(Vec<i32>),
    /// Single precision.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Strings.
    String(StringArray),
    /// Arrays, at most [`MAX_DEPTH`] deep.
    Array(Vec<Self>),
    /// Unsigned, 64 bits.
    U64(Vec<u64>),
    /// Signed, 64 bits.
    I64(Vec<i64>),
    /// Double precision.
    F64(Vec<f64>),
}

/// Runs an expression on whatever vector the array holds.
macro_rules! each {
    ($array:expr, $v:ident => $body:expr) => {
        match $array {
            Array::U8($v) => $body,
            Array::I8($v) => $body,
            Array::U16($v) => $body,
            Array::I16($v) => $body,
            Array::U32($v) => $body,
            Array::I32($v) => $body,
            Array::F32($v) => $body,
            Array::Bool($v) => $body,
            Array::String($v) => $body,
            Array::Array($v) => $body,
            Array::U64($v) => $body,
            Array::I64($v) => $body,
            Array::F64($v) => $body,
        }
    };
}

/// Defines the typed slice and the `From` of a number type.
macro_rules! slices {
    ($($name:ident, $ty:ty, $variant:ident;)*) => {
        impl Array {
            $(
                #[doc = concat!("The elements, if they are stored as `", stringify!($ty), "`.")]
                #[must_use]
                pub fn $name(&self) -> Option<&[$ty]> {
                    if let Self::$variant(v) = self { Some(v) } else { None }
                }
            )*
        }
        $(
            impl From<Vec<$ty>> for Array {
                fn from(v: Vec<$ty>) -> Self {
                    Self::$variant(v)
                }
            }
            impl From<Vec<$ty>> for crate::value::Value {
                fn from(v: Vec<$ty>) -> Self {
                    Self::Array(Array::$variant(v))
                }
            }
        )*
    };
}

slices! {
    as_u8, u8, U8; as_i8, i8, I8; as_u16, u16, U16; as_i16, i16, I16; as_u32, u32, U32; as_i32, i32, I32;
    as_u64, u64, U64; as_i64, i64, I64; as_f32, f32, F32; as_f64, f64, F64; as_bool, bool, Bool;
    as_arrays, Array, Array;
}

/// Defines a conversion from every integer type to one.
macro_rules! integers {
    ($($name:ident, $ty:ty, $variant:ident;)*) => {
        impl Array {$(
            #[doc = concat!("The elements as `", stringify!($ty), "`, converted from another integer type if all of \
                them fit; `None` if one does not, or if the elements are no integers.")]
            #[must_use]
            pub fn $name(&self) -> Option<Cow<'_, [$ty]>> {
                fn all<T: Copy + TryInto<$ty>>(v: &[T]) -> Option<Cow<'_, [$ty]>> {
                    v.iter().map(|&x| x.try_into().ok()).collect::<Option<Vec<_>>>().map(Cow::Owned)
                }
                if let Self::$variant(v) = self {
                    return Some(Cow::Borrowed(v));
                }
                match self {
                    Self::U8(v) => all(v),
                    Self::I8(v) => all(v),
                    Self::U16(v) => all(v),
                    Self::I16(v) => all(v),
                    Self::U32(v) => all(v),
                    Self::I32(v) => all(v),
                    Self::U64(v) => all(v),
                    Self::I64(v) => all(v),
                    _ => None,
                }
            }
        )*}
    };
}

integers! { to_u32, u32, U32; to_i32, i32, I32; to_u64, u64, U64; to_i64, i64, I64; }

impl Array {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, v => v.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements.
    #[must_use]
    pub const fn element_type(&self) -> ValueType {
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

    /// The strings, if the elements are strings.
    #[must_use]
    pub const fn strings(&self) -> Option<&StringArray> {
        if let Self::String(v) = self { Some(v) } else { None }
    }

    /// The elements as `f32`, rounded if they are `f64`; `None` if they are no floats.
    #[must_use]
    pub fn to_f32(&self) -> Option<Cow<'_, [f32]>> {
        match self {
            Self::F32(v) => Some(Cow::Borrowed(v)),
            Self::F64(v) => Some(v.iter().map(|&x| x as f32).collect()),
            _ => None,
        }
    }
}

impl From<StringArray> for Array {
    fn from(v: StringArray) -> Self {
        Self::String(v)
    }
}

impl From<StringArray> for crate::value::Value {
    fn from(v: StringArray) -> Self {
        Self::Array(Array::String(v))
    }
}

/// Collects anything stringlike into an array of strings.
impl<'a> FromIterator<&'a str> for Array {
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Self {
        Self::String(strings.into_iter().collect())
    }
}

/// The first few elements and how many there are.
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        fn list<T>(
            f: &mut fmt::Formatter<'_>,
            items: impl ExactSizeIterator<Item = T>,
            show: impl Fn(&T) -> String,
        ) -> fmt::Result {
            let len = items.len();
            let shown: Vec<String> = items.take(SHOWN).map(|x| show(&x)).collect();
            let more = if len > SHOWN { format!(", ... {len} in all") } else { String::new() };
            write!(f, "[{}{more}]", shown.join(", "))
        }
        match self {
            Self::String(v) => list(f, v.iter(), |s| format!("{:?}", Str::from(*s))),
            Self::Array(v) => list(f, v.iter(), ToString::to_string),
            Self::U8(v) => list(f, v.iter(), ToString::to_string),
            Self::I8(v) => list(f, v.iter(), ToString::to_string),
            Self::U16(v) => list(f, v.iter(), ToString::to_string),
            Self::I16(v) => list(f, v.iter(), ToString::to_string),
            Self::U32(v) => list(f, v.iter(), ToString::to_string),
            Self::I32(v) => list(f, v.iter(), ToString::to_string),
            Self::F32(v) => list(f, v.iter(), ToString::to_string),
            Self::Bool(v) => list(f, v.iter(), ToString::to_string),
            Self::U64(v) => list(f, v.iter(), ToString::to_string),
            Self::I64(v) => list(f, v.iter(), ToString::to_string),
            Self::F64(v) => list(f, v.iter(), ToString::to_string),
        }
    }
}
