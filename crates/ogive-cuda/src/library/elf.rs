//! Whether a library is all there, by its own headers.
//!
//! The system maps a library without a look at its length. What lies beyond the file's end cannot be read, and whoever tries is killed, so a
//! copy or a download that was cut off would take the program along. Whatever cannot be judged here is the system's to refuse.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// `e_ident` of a file in 64 bits, the lower byte first.
const IDENT: &[u8] = b"\x7fELF\x02\x01";
/// Bytes of the file's header.
const HEADER: usize = 64;
/// Bytes of what it says of a segment.
const SEGMENT: usize = 56;
/// A segment that is mapped.
const LOAD: u32 = 1;

/// Why the file at `path` is not all there, if it is a library and ends before what it says is to be mapped.
pub(super) fn cut_off(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let is = file.metadata().ok()?.len();
    let wants = wanted(&mut file)?;
    (is < wants).then(|| format!("the file is cut off: it has {is} of {wants} bytes"))
}

/// How long a library is at least, as its headers say.
fn wanted(file: &mut (impl Read + Seek)) -> Option<u64> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header).ok()?;
    if !header.starts_with(IDENT) || number::<2>(&header, 54)? != SEGMENT as u64 {
        return None;
    }
    file.seek(SeekFrom::Start(number::<8>(&header, 32)?)).ok()?;
    let mut wants = 0;
    for _ in 0..number::<2>(&header, 56)? {
        let mut segment = [0; SEGMENT];
        file.read_exact(&mut segment).ok()?;
        if number::<4>(&segment, 0)? == u64::from(LOAD) {
            wants = wants.max(number::<8>(&segment, 8)?.checked_add(number::<8>(&segment, 32)?)?);
        }
    }
    Some(wants)
}

/// The number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let own: &[u8; N] = bytes.get(at..)?.first_chunk()?;
    Some(own.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Cursor;

    /// A header, and segments of these kinds, places and lengths.
    pub(crate) fn elf(segments: &[(u32, u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..IDENT.len()].copy_from_slice(IDENT);
        bytes[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        bytes[54..56].copy_from_slice(&(SEGMENT as u16).to_le_bytes());
        bytes[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        for (kind, at, len) in segments {
            let mut segment = [0; SEGMENT];
            segment[..4].copy_from_slice(&kind.to_le_bytes());
            segment[8..16].copy_from_slice(&at.to_le_bytes());
            segment[32..40].copy_from_slice(&len.to_le_bytes());
            bytes.extend(segment);
        }
        bytes
    }

    #[test]
    fn a_library_is_as_long_as_its_last_segment() {
        let of = |bytes: &[u8]| wanted(&mut Cursor::new(bytes));
        let whole = elf(&[(LOAD, 0, 4096), (LOAD, 8192, 100), (LOAD, 4096, 50), (2, 1 << 40, 1)]);
        assert_eq!(of(&whole), Some(8292));
        // What cannot be judged: headers that are cut off, other machines', no library, numbers that are none.
        for len in 0..whole.len() {
            assert_eq!(of(&whole[..len]), None, "{len}");
        }
        let mut other = whole.clone();
        other[4] = 1;
        assert_eq!(of(&other), None);
        assert_eq!(of(&b"This is no library.\n".repeat(9)), None);
        assert_eq!(of(&elf(&[(LOAD, u64::MAX, 1)])), None);
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(of(&far), None);
    }

    #[test]
    fn a_file_that_is_cut_off_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("library");
        std::fs::write(&at, elf(&[(LOAD, 0, 300)])).unwrap();
        assert_eq!(cut_off(&at).as_deref(), Some("the file is cut off: it has 120 of 300 bytes"));
        std::fs::write(&at, elf(&[(LOAD, 0, 120)])).unwrap();
        assert_eq!(cut_off(&at), None);
        assert_eq!(cut_off(folder.path()), None);
        assert_eq!(cut_off(&folder.path().join("none")), None);
        // What runs now is all there.
        assert_eq!(cut_off(&std::env::current_exe().unwrap()), None);
    }
}
