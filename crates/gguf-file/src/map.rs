//! Bytes that outlive the file handle: a file mapped into memory, or read into it.
//!
//! The only unsafe code of this crate. Mapping is the default because a model of many gigabytes then opens at once and
//! its pages are shared and given back under pressure. Its price is told at [`Gguf::open`](crate::Gguf::open): nobody
//! may change the file meanwhile. [`Gguf::open_in_memory`](crate::Gguf::open_in_memory) has no such price.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::parse::MAGIC;

/// Shared bytes whose owner may be a mapped file, a vector, or anything else. Cloning shares the owner.
#[derive(Clone)]
pub struct Bytes(Owner);

#[derive(Clone)]
enum Owner {
    Map(Arc<Mmap>),
    Other(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Bytes {
    /// Those that `owner` holds.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::from(Arc::new(owner) as Arc<dyn AsRef<[u8]> + Send + Sync>)
    }

    /// Takes the pages of a mapped file that `range` touches out of this process's memory; the next reader gets them from the
    /// system's cache again, or from the file. The bytes stay what they are. For bytes that are no mapped file, and where
    /// the system is not Linux, nothing happens.
    ///
    /// For a reader that has copied what it needs, and would not have file and copy count as its memory both.
    pub fn release(&self, range: Range<usize>) {
        #[cfg(target_os = "linux")]
        if let Owner::Map(map) = &self.0 {
            let len = range.end.min(map.len()).saturating_sub(range.start);
            if len == 0 {
                return;
            }
            // The advice is only that; where the system does not take it, pages stay.
            #[allow(
                unsafe_code,
                reason = "for a map that is written to, this advice would lose what was written"
            )]
            // SAFETY: the map is of a file and read-only: its pages never hold anything but the file's bytes, which they hold
            // again when they are touched. Bounds were checked above; a page in part outside them is a page of the same map.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, len) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }
}

impl From<Arc<dyn AsRef<[u8]> + Send + Sync>> for Bytes {
    fn from(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(Owner::Other(owner))
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Owner::Map(map) => map,
            Owner::Other(owner) => (**owner).as_ref(),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes[{}]", self.as_ref().len())
    }
}

/// Maps any file, GGUF or not, into memory, or reads it if it is no regular file (a pipe, say) and so cannot be mapped.
/// Public so that readers of other weight files need no unsafe code of their own.
///
/// The caller's promise is that of [`Gguf::open`](crate::Gguf::open): the file is not changed while the bytes live.
///
/// # Errors
/// If the file cannot be opened, mapped or read.
pub fn map_file(path: &Path) -> Result<Bytes> {
    map_or(path, read_all)
}

/// The same of a GGUF file.
pub(crate) fn map_gguf_file(path: &Path) -> Result<Bytes> {
    map_or(path, read_gguf)
}

/// Maps a file, or reads it so if it is no regular one.
fn map_or(path: &Path, read: fn(&mut dyn Read) -> Result<Bytes>) -> Result<Bytes> {
    let mut file = File::open(path).map_err(Error::io("opening the file"))?;
    let kind = file.metadata().map_err(Error::io("asking for the file's size"))?;
    if !kind.is_file() {
        return read(&mut file);
    }
    // The map is private and read-only, so nothing in this process can write through it; what remains is another
    // process that writes to or truncates the file, which no program can prevent and which the documentation of
    // `Gguf::open` names as the caller's promise. The bounds of all slices come from the map's own length.
    #[allow(unsafe_code, reason = "mapping a file is unsafe by nature")]
    // SAFETY: the mapped bytes, handed out as `&[u8]`, do not change while the map lives: that is the caller's promise.
    let map = unsafe { Mmap::map(&file) }.map_err(Error::io("mapping the file"))?;
    Ok(Bytes(Owner::Map(Arc::new(map))))
}

/// Reads any file whole, so that it may change afterwards.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn read_file(path: &Path) -> Result<Bytes> {
    read_all(&mut File::open(path).map_err(Error::io("opening the file"))?)
}

/// The same of a GGUF file.
pub(crate) fn read_gguf_file(path: &Path) -> Result<Bytes> {
    read_gguf(&mut File::open(path).map_err(Error::io("opening the file"))?)
}

/// Reads all of a GGUF file. Of anything else, which may have no end, only the first bytes: whoever parses them says what is wrong.
pub(crate) fn read_gguf(reader: &mut dyn Read) -> Result<Bytes> {
    let mut bytes = Vec::new();
    let first = Read::take(&mut *reader, MAGIC.len() as u64).read_to_end(&mut bytes);
    first.map_err(Error::io("reading the file"))?;
    if bytes == MAGIC {
        reader.read_to_end(&mut bytes).map_err(Error::io("reading the file"))?;
    }
    Ok(Bytes::new(bytes))
}

/// Reads all there is. Memory grows with what really comes.
fn read_all(reader: &mut dyn Read) -> Result<Bytes> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::io("reading the file"))?;
    Ok(Bytes::new(bytes))
}
