//! The metadata of a file: keys and values in file order, asked for by type.
//!
//! Integers convert into one another where the value fits, because writers disagree on widths and signs (a token id is
//! `u32` here and `i32` there) and a reader should not care. Floats do not become integers nor integers floats: that
//! difference is one a writer meant. An optional value of the wrong type is an error too, never "not there".

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::array::{Array, StringArray};
use crate::error::{Error, Result};
use crate::value::{Str, Value};

/// Keys and values, in file order.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    entries: Vec<(Arc<str>, Value)>,
    index: HashMap<Arc<str>, usize>,
}

impl Metadata {
    /// No keys.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys and values, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// Whether the key is there.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// The value of a key, of whatever type.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(*self.index.get(key)?).map(|(_, value)| value)
    }

    /// Sets a key: in its old place if it is there, else at the end.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.index.get(key).and_then(|&i| self.entries.get_mut(i)) {
            Some(entry) => entry.1 = value,
            None => {
                self.insert_new(key, value);
            }
        }
        self
    }

    /// Removes a key and gives its value, if it was there.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.index.remove(key)?;
        let (_, value) = self.entries.remove(at);
        self.index.values_mut().filter(|i| **i > at).for_each(|i| *i -= 1);
        Some(value)
    }

    /// Appends a key that must be new; says whether it was.
    pub(crate) fn insert_new(&mut self, key: &str, value: Value) -> bool {
        let key: Arc<str> = key.into();
        if self.index.contains_key(&key) {
            return false;
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        true
    }

    /// A key's value by way of `convert`, which gives `None` for a wrong type.
    fn opt<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<Converted<T>>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(value) {
            Some(Converted::To(x)) => Ok(Some(x)),
            Some(Converted::OutOfRange) => {
                Err(Error::OutOfRange { key: key.to_owned(), value: value.to_string(), expected })
            }
            Some(Converted::NotUtf8) => Err(Error::StringNotUtf8 { key: key.to_owned() }),
            None => Err(Error::WrongType { key: key.to_owned(), expected, found: value.describe() }),
        }
    }
}

/// What became of a value of an acceptable type.
enum Converted<T> {
    To(T),
    OutOfRange,
    NotUtf8,
}

impl<T> Converted<T> {
    fn in_range(x: Option<T>) -> Self {
        x.map_or(Self::OutOfRange, Self::To)
    }
}

/// Defines a required and an optional accessor that differ in nothing else.
macro_rules! accessors {
    ($($(#[doc = $doc:literal])* $name:ident, $opt:ident -> $ty:ty, $expected:literal, $convert:expr;)*) => {
        impl Metadata {$(
            $(#[doc = $doc])*
            ///
            /// # Errors
            /// If the key is missing, or its value has another type or does not fit; the error names the key.
            pub fn $name(&self, key: &str) -> Result<$ty> {
                self.$opt(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
            }

            $(#[doc = $doc])*
            /// `None` if the key is missing.
            ///
            /// # Errors
            /// If the value has another type or does not fit; the error names the key.
            pub fn $opt(&self, key: &str) -> Result<Option<$ty>> {
                self.opt(key, $expected, $convert)
            }
        )*}
    };
}

/// A conversion from any integer.
macro_rules! int {
    () => {
        |v| v.as_int().map(|x| Converted::in_range(x.try_into().ok()))
    };
}

/// What an empty list of strings is read as.
static NO_STRINGS: StringArray = StringArray::new();

/// A conversion of an array: nothing if it is empty, for some writers cannot tell the element type of an empty list
/// and put any.
macro_rules! array {
    ($empty:expr, |$array:ident| $convert:expr) => {
        |v| match v.as_array() {
            Some($array) if !$array.is_empty() => $convert,
            Some(_) => Some(Converted::To($empty)),
            None => None,
        }
    };
}

/// A conversion of an array by a method that gives `None` if an element does not fit.
macro_rules! ints {
    ($to:ident) => {
        array!(Cow::Borrowed(&[][..]), |a| a
            .element_type()
            .is_integer()
            .then(|| Converted::in_range(a.$to())))
    };
}

accessors! {
    /// An integer that fits `u8`.
    u8, opt_u8 -> u8, "an integer (u8)", int!();
    /// An integer that fits `u16`.
    u16, opt_u16 -> u16, "an integer (u16)", int!();
    /// An integer that fits `u32`.
    u32, opt_u32 -> u32, "an integer (u32)", int!();
    /// An integer that fits `i32`.
    i32, opt_i32 -> i32, "an integer (i32)", int!();
    /// An integer that fits `u64`.
    u64, opt_u64 -> u64, "an integer (u64)", int!();
    /// An integer that fits `i64`.
    i64, opt_i64 -> i64, "an integer (i64)", int!();
    /// An integer that fits `usize`.
    usize, opt_usize -> usize, "an integer (usize)", int!();
    /// A float, rounded to `f32` if it is stored as `f64`.
    f32, opt_f32 -> f32, "a float (f32)", |v| {
        // Beyond the range of f32 is an error, not infinity; an infinity or NaN in the file stays one.
        v.as_float().map(|x| Converted::in_range(Some(x as f32).filter(|y| y.is_finite() || !x.is_finite())))
    };
    /// A float.
    f64, opt_f64 -> f64, "a float (f64)", |v| v.as_float().map(Converted::To);
    /// A truth value.
    bool, opt_bool -> bool, "a bool", |v| v.as_bool().map(Converted::To);
    /// A string that is UTF-8.
    str, opt_str -> &str, "a string", |v| v.as_string().map(|s| s.to_str().map_or(Converted::NotUtf8, Converted::To));
    /// A string's bytes, UTF-8 or not.
    bytes, opt_bytes -> &[u8], "a string", |v| v.as_string().map(Str::as_bytes).map(Converted::To);
    /// An array of any type.
    array, opt_array -> &Array, "an array", |v| v.as_array().map(Converted::To);
    /// An array of strings, UTF-8 or not.
    array_of_str, opt_array_of_str -> &StringArray, "an array of strings",
        array!(&NO_STRINGS, |a| a.strings().map(Converted::To));
    /// An array of integers that all fit `u32`.
    array_of_u32, opt_array_of_u32 -> Cow<'_, [u32]>, "an array of integers (u32)", ints!(to_u32);
    /// An array of integers that all fit `i32`.
    array_of_i32, opt_array_of_i32 -> Cow<'_, [i32]>, "an array of integers (i32)", ints!(to_i32);
    /// An array of integers that all fit `u64`.
    array_of_u64, opt_array_of_u64 -> Cow<'_, [u64]>, "an array of integers (u64)", ints!(to_u64);
    /// An array of floats, rounded to `f32` if they are stored as `f64`.
    array_of_f32, opt_array_of_f32 -> Cow<'_, [f32]>, "an array of floats (f32)",
        array!(Cow::Borrowed(&[][..]), |a| a.to_f32().map(Converted::To));
    /// An array of truth values.
    array_of_bool, opt_array_of_bool -> &[bool], "an array of bools",
        array!(&[][..], |a| a.as_bool().map(Converted::To));
}
