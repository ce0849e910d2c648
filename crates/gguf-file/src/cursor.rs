//! A reader over bytes in memory that checks every length before it takes or allocates anything.
//!
//! It works on a slice, not on `impl Read`: then "is that much left?" has an answer, and no count in a file can make us
//! allocate more than a small multiple of the file's own size.

use crate::error::{Error, Result};

/// The byte order of a file's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first: nearly all files.
    Little,
    /// Most significant byte first.
    Big,
}

/// A position in a file's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    pub(crate) order: ByteOrder,
    /// Version 1 counts in 32 bits, later ones in 64.
    pub(crate) wide: bool,
}

/// Defines a method that reads one number in the file's byte order.
macro_rules! number {
    ($($name:ident -> $ty:ty),*) => {$(
        pub(crate) fn $name(&mut self, what: &str) -> Result<$ty> {
            let raw = self.array(what)?;
            Ok(match self.order {
                ByteOrder::Little => <$ty>::from_le_bytes(raw),
                ByteOrder::Big => <$ty>::from_be_bytes(raw),
            })
        }
    )*};
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, order: ByteOrder::Little, wide: true }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn truncated(&self, what: &str, needed: u64) -> Error {
        Error::Truncated { what: what.to_owned(), at: self.at, needed, left: self.left() }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        let range = usize::try_from(len).ok().and_then(|n| Some(self.at..self.at.checked_add(n)?));
        let Some((end, taken)) = range.and_then(|r| Some((r.end, self.bytes.get(r)?))) else {
            return Err(self.truncated(what, len));
        };
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        match self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(self.truncated(what, N as u64)),
        }
    }

    number!(u8 -> u8, i8 -> i8, u16 -> u16, i16 -> i16, u32 -> u32, i32 -> i32, f32 -> f32, u64 -> u64, i64 -> i64, f64 -> f64);

    /// A count or length: 32 bits in version 1, 64 later.
    pub(crate) fn count(&mut self, what: &str) -> Result<u64> {
        if self.wide { self.u64(what) } else { self.u32(what).map(u64::from) }
    }

    /// A count of things that take at least `least` bytes each, checked against what is left.
    pub(crate) fn count_of(&mut self, least: u64, what: &str) -> Result<usize> {
        let n = self.count(what)?;
        let needed = n.saturating_mul(least.max(1));
        match usize::try_from(n) {
            Ok(count) if needed <= self.left() as u64 => Ok(count),
            _ => Err(self.truncated(what, needed)),
        }
    }

    /// The least bytes that a string can take.
    pub(crate) fn least_string(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    /// A string's bytes.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'a [u8]> {
        let len = self.count(what)?;
        self.take(len, what)
    }

    /// A string that names something and so must be text.
    pub(crate) fn name(&mut self, what: &'static str) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.string(what)?).map_err(|_| Error::NameNotUtf8 { what, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_byte_order() {
        let mut c = Cursor::new(&[1, 2, 3, 4, 1, 2]);
        assert_eq!(c.u32("x").unwrap(), 0x0403_0201);
        c.order = ByteOrder::Big;
        assert_eq!(c.u16("x").unwrap(), 0x0102);
        assert!(matches!(c.u8("x"), Err(Error::Truncated { at: 6, needed: 1, left: 0, .. })));
    }

    #[test]
    fn lying_counts_are_refused_before_they_are_used() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend([0; 16]);
        assert!(Cursor::new(&bytes).string("s").is_err());
        assert!(Cursor::new(&bytes).count_of(8, "n").is_err());
        bytes[..8].copy_from_slice(&2u64.to_le_bytes());
        assert_eq!(Cursor::new(&bytes).count_of(8, "n").unwrap(), 2);
        assert!(Cursor::new(&bytes).count_of(9, "n").is_err());
    }
}
