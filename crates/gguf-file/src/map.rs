//! Bytes that outlive the file handle: a file mapped into memory, or read into it.
//!
//! The only unsafe code of this crate. Mapping is the default because a model of many gigabytes then opens at once and
//! its pages are shared and given back under pressure. Its price is told at [`Gguf::open`](crate::Gguf::open): nobody
//! may change the file meanwhile. [`Gguf::open_in_memory`](crate::Gguf::open_in_memory) has no such price.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Shared bytes whose owner may be a mapped file, a vector, or anything else.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Maps any file, GGUF or not, into memory, or reads it if it is no regular file (a pipe, say) and so cannot be mapped.
/// Public so that readers of other weight files need no unsafe code of their own.
///
/// The caller's promise is that of [`Gguf::open`](crate::Gguf::open): the file is not changed while the bytes live.
///
/// # Errors
/// If the file cannot be opened, mapped or read.
pub fn map_file(path: &Path) -> Result<Bytes> {
    let mut file = File::open(path).map_err(Error::io("opening the file"))?;
    let kind = file.metadata().map_err(Error::io("asking for the file's size"))?;
    if !kind.is_file() {
        return read_all(&mut file);
    }
    // The map is private and read-only, so nothing in this process can write through it; what remains is another
    // process that writes to or truncates the file, which no program can prevent and which the documentation of
    // `Gguf::open` names as the caller's promise. The bounds of all slices come from the map's own length.
    #[allow(unsafe_code, reason = "mapping a file is unsafe by nature")]
    // SAFETY: the mapped bytes, handed out as `&[u8]`, do not change while the map lives: that is the caller's promise.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io("mapping the file"))?;
    Ok(Arc::new(map))
}

/// Reads any file whole, so that it may change afterwards.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn read_file(path: &Path) -> Result<Bytes> {
    read_all(&mut File::open(path).map_err(Error::io("opening the file"))?)
}

/// Reads all there is. Memory grows with what really comes.
pub(crate) fn read_all(reader: &mut dyn Read) -> Result<Bytes> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::io("reading the file"))?;
    Ok(Arc::new(bytes))
}
