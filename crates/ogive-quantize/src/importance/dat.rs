//! The older form of importance matrices, `.dat`: a list without a magic number, each number of four bytes in little-endian order.
//!
//! Source: `save_imatrix_legacy` and `load_imatrix_legacy` of llama.cpp's `imatrix`. A number of entries; of each the length of its name, the name, a
//! number of calls, a number of values, and the values, which are mean squares times the calls. Experts stand one behind the other in the values and
//! share the number of calls. Behind the entries there may be how many chunks were read, and the length and the name of the text.
//! It is only read: all that it says, the newer form says better.

use super::{Importance, Squares};

/// The least that an entry takes: three numbers, a name of one byte and one value.
const LEAST: usize = 4 * 4 + 1;

/// Parses a file.
pub(super) fn parse(bytes: &[u8]) -> Result<Importance, String> {
    let mut rest = Rest(bytes);
    let count = rest.number("the number of entries")?;
    if count == 0 || count > bytes.len() / LEAST {
        let why = "it is no GGUF file, and no importance matrix of the older form (.dat) either; make one with `ogive imatrix`";
        return Err(why.into());
    }
    let mut all = Importance::new();
    for i in 0..count {
        let entry = || format!("entry {i} of {count}");
        let length = rest.number(&entry())?;
        let name = rest.take(length, &entry())?;
        let name = std::str::from_utf8(name).map_err(|_| format!("{}: its name is no text", entry()))?;
        let calls = rest.number(name)?;
        let values = rest.number(name)?;
        let values = rest.take(values.checked_mul(4).ok_or_else(|| cut(name))?, name)?;
        let values: Vec<f32> = values.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        // Without calls the values are what they are.
        let squares = Squares::new(values, vec![calls.max(1) as u64]);
        let squares = squares.map_err(|why| format!("{name}: {why}"))?;
        if all.get(name).is_some() {
            return Err(format!("{name} stands in it twice"));
        }
        all.insert(name, squares);
    }
    if !rest.0.is_empty() {
        all.chunks = u32::try_from(rest.number("the number of chunks")?).unwrap_or(0);
    }
    if !rest.0.is_empty() {
        let length = rest.number("the name of the text")?;
        let name = String::from_utf8_lossy(rest.take(length, "the name of the text")?).into_owned();
        all.datasets = if name.is_empty() { Vec::new() } else { vec![name] };
    }
    if !rest.0.is_empty() {
        return Err(format!("{} bytes follow its end; it is no importance matrix, or damaged", rest.0.len()));
    }
    Ok(all)
}

fn cut(what: &str) -> String {
    format!("it ends in {what}; is the download complete?")
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(|| cut(what))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A number, which is written with a sign and never negative.
    fn number(&mut self, what: &str) -> Result<usize, String> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(|| cut(what))?;
        self.0 = rest;
        let number = i32::from_le_bytes(*bytes);
        usize::try_from(number).map_err(|_| format!("{what}: a number is {number}; the file is damaged"))
    }
}
