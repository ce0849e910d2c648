//! The header of a safetensors file: a length, and a JSON object that says where each tensor is.
//!
//! <https://huggingface.co/docs/safetensors>: eight bytes little-endian, that many bytes of JSON, then the data. The data
//! must be covered without gaps or overlaps; that is checked, because the reference refuses such files too and a gap
//! nearly always means that the file is cut or damaged.

use crate::json::{MOST_BYTES, entries};
use serde::Deserialize;
use std::{ops::Range, sync::Arc};

/// One tensor.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    /// As in the file, `BF16` say; perhaps not known.
    pub(super) dtype: String,
    /// Slowest first.
    pub(super) shape: Vec<u64>,
    /// In the whole file.
    pub(super) range: Range<usize>,
}

/// What the JSON says of one tensor.
#[derive(Deserialize)]
struct Description {
    dtype: Option<String>,
    shape: Option<Vec<u64>>,
    data_offsets: Option<[u64; 2]>,
}

/// Reads the header of a whole file and checks it against the file's length. Errors say what is wrong.
pub(super) fn parse(file: &[u8]) -> Result<Vec<Entry>, String> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(format!(
            "the file has {} bytes, too few for a safetensors file; it is truncated",
            file.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > MOST_BYTES {
        return Err(format!(
            "a header of {length} bytes is announced; this is no safetensors file, or it is damaged"
        ));
    }
    let json = usize::try_from(length).ok().and_then(|n| rest.get(..n)).ok_or_else(|| {
        format!("a header of {length} bytes is announced and {} are left; the file is truncated", rest.len())
    })?;
    let data = 8 + json.len()..file.len();
    let entries = describe(json).map_err(|e| format!("reading the header failed: {e}"))?;
    let entries =
        entries.into_iter().map(|(name, d)| entry(name, d, &data)).collect::<Result<Vec<_>, _>>()?;
    check_cover(&entries, &data)?;
    Ok(entries)
}

/// The tensors that the JSON names. What `__metadata__` has is its maker's, whatever the keys are: a `shape` there is none of a tensor's.
fn describe(json: &[u8]) -> serde_json::Result<Vec<(String, Description)>> {
    let mut json = serde_json::Deserializer::from_slice(json);
    let entries = entries(&mut json, Some("__metadata__"))?;
    json.end()?;
    Ok(entries)
}

fn entry(name: String, d: Description, data: &Range<usize>) -> Result<Entry, String> {
    let (Some(dtype), Some(shape), Some([begin, end])) = (d.dtype, d.shape, d.data_offsets) else {
        return Err(format!("the tensor `{name}` lacks its dtype, shape or data_offsets"));
    };
    let range = place(data, begin).zip(place(data, end)).filter(|(b, e)| b <= e).map(|(b, e)| b..e);
    let Some(range) = range else {
        let left = data.len();
        return Err(format!(
            "the tensor `{name}` is at {begin}..{end} of {left} bytes of data; the file is truncated or damaged"
        ));
    };
    let elements = shape.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
    let elements = elements
        .ok_or_else(|| format!("the tensor `{name}` has a shape {shape:?} that cannot be counted"))?;
    if let Some(bits) = bits(&dtype)
        && elements.checked_mul(bits) != Some(range.len() as u64 * 8)
    {
        return Err(format!(
            "the tensor `{name}` of {shape:?} {dtype} does not fill its {} bytes",
            range.len()
        ));
    }
    Ok(Entry { name: name.into(), dtype, shape, range })
}

/// An offset into the data, as one into the file; `None` if it lies beyond its end.
fn place(data: &Range<usize>, offset: u64) -> Option<usize> {
    let at = data.start.checked_add(usize::try_from(offset).ok()?)?;
    (at <= data.end).then_some(at)
}

/// Bits of an element of the format's own types; another type may be a stranger's and is not checked here.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "I8" | "U8" | "BOOL" => 8,
        "F6_E2M3" | "F6_E3M2" => 6,
        "F4" => 4,
        _ => return None,
    })
}

/// That the tensors cover the data without gaps or overlaps.
fn check_cover(entries: &[Entry], data: &Range<usize>) -> Result<(), String> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|e| (e.range.start, e.range.end));
    let mut at = data.start;
    for e in sorted {
        if e.range.start != at {
            let what = if e.range.start < at { "overlaps another" } else { "leaves a gap before it" };
            return Err(format!("the tensor `{}` {what}; the file is damaged", e.name));
        }
        at = e.range.end;
    }
    if at != data.end {
        return Err(format!(
            "{} bytes after the last tensor belong to none; the file is damaged",
            data.end - at
        ));
    }
    Ok(())
}
