//! Reading a saved session: every length is compared with the bytes that are left before anything is made of it.

use crate::Digest;
use crate::tensor::{Error, ErrorKind, Result};
use std::io::Read;

/// What the errors say was being done.
pub(super) const DOING: &str = "loading a session";

/// A reader that knows how much is left, and adds up what it has read.
pub(super) struct Input<'r> {
    from: &'r mut dyn Read,
    left: u64,
    digest: Digest,
}

pub(super) fn damaged(why: &str) -> Error {
    Error::invalid(DOING, format!("the file is damaged: {why}; save the session again, or start without it"))
}

impl<'r> Input<'r> {
    /// Reads `from`, which has `len` bytes.
    pub(super) fn new(from: &'r mut dyn Read, len: u64) -> Self {
        Self { from, left: len, digest: Digest::new() }
    }

    /// The next `n` bytes.
    pub(super) fn bytes(&mut self, n: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.fill(n, &mut out)?;
        Ok(out)
    }

    /// The next `n` bytes, instead of what is in `out`.
    pub(super) fn fill(&mut self, n: usize, out: &mut Vec<u8>) -> Result<()> {
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| damaged("it ends early"))?;
        out.resize(n, 0);
        self.from.read_exact(out).map_err(|e| Error::new(DOING, ErrorKind::Io(e)))?;
        self.digest.push(out);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.bytes(N)?.try_into().map_err(|_| damaged("it ends early"))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of things, each of which takes at least `size` of the bytes that are left.
    pub(super) fn count(&mut self, size: u64) -> Result<usize> {
        let n = self.u64()?;
        let fits = n.checked_mul(size).is_some_and(|bytes| bytes <= self.left);
        usize::try_from(n).ok().filter(|_| fits).ok_or_else(|| damaged("it names more than it has"))
    }

    /// Bytes behind their number.
    pub(super) fn counted(&mut self) -> Result<Vec<u8>> {
        let n = self.count(1)?;
        self.bytes(n)
    }

    /// The checksum, and that nothing comes after it.
    pub(super) fn end(mut self) -> Result<()> {
        let sum = self.digest.value();
        if self.u64()? != sum {
            return Err(damaged("its checksum is another"));
        }
        if self.left > 0 { Err(damaged("something follows its end")) } else { Ok(()) }
    }
}
