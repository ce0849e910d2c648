//! From bytes to header, metadata and tensor descriptions, trusting none of them.
//!
//! All is checked at open, offsets and overlaps too, so that nothing later has to doubt a range. Only an element type
//! that is not known passes: its tensor cannot be read, but the file's metadata and other tensors can.

use crate::array::{Array, MAX_DEPTH};
use crate::cursor::{ByteOrder, Cursor};
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::tensor::{MAX_DIMS, TensorInfo};
use crate::value::{Str, Value, ValueType};

/// The alignment of tensor data where a file names none.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// The key that names another.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// The first four bytes of a file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// A file, or one part of a split one.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) version: u32,
    pub(crate) order: ByteOrder,
    pub(crate) alignment: u64,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
    /// Where the data section begins, in bytes from the file's beginning.
    pub(crate) data_start: u64,
}

/// Reads everything but the tensors' data. `part` goes into the descriptions.
pub(crate) fn parse(bytes: &[u8], part: usize) -> Result<Parsed> {
    let mut c = Cursor::new(bytes);
    let version = header(&mut c)?;
    // The least a tensor takes: its name's length, dimension count, type, offset. The least a key takes: its length,
    // its value's type, one byte of value.
    let tensor_count = c.count_of(c.least_string() + 16, "the tensor count")?;
    let key_count = c.count_of(c.least_string() + 5, "the metadata count")?;

    let mut metadata = Metadata::new();
    for _ in 0..key_count {
        let key = c.name("a metadata key")?;
        let id = c.u32(key)?;
        let value = value(&mut c, key, id)?;
        if !metadata.insert_new(key, value) {
            return Err(Error::Duplicate { what: "metadata key", name: key.to_owned() });
        }
    }
    let alignment = alignment(&metadata)?;

    // No reservation by the count: it is checked, but descriptions in memory are larger than in the file.
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        let mut info = tensor(&mut c)?;
        info.part = part;
        tensors.push(info);
    }
    let data_start = (c.at() as u64).next_multiple_of(alignment);
    check_places(&tensors, data_start, alignment, bytes.len() as u64)?;
    Ok(Parsed { version, order: c.order, alignment, metadata, tensors, data_start })
}

/// Reads magic and version, which tells the byte order: a small number read the wrong way is a large one.
fn header(c: &mut Cursor<'_>) -> Result<u32> {
    let found = c.take(c.left().min(4) as u64, "the magic")?;
    if found != MAGIC {
        let found = found.escape_ascii().to_string();
        return Err(Error::BadMagic { found });
    }
    let version = c.u32("the version")?;
    let (version, order) = match version {
        1..=3 => (version, ByteOrder::Little),
        _ if (1..=3).contains(&version.swap_bytes()) => (version.swap_bytes(), ByteOrder::Big),
        _ => return Err(Error::UnknownVersion { version }),
    };
    c.order = order;
    c.wide = version > 1;
    Ok(version)
}

/// The alignment that the metadata name, or the default.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u64> {
    let alignment = metadata.opt_u32(ALIGNMENT_KEY)?.map_or(DEFAULT_ALIGNMENT, u64::from);
    if !alignment.is_power_of_two() {
        let problem = format!("an alignment of {alignment} is no power of two");
        return Err(Error::BadValue { key: ALIGNMENT_KEY.to_owned(), problem });
    }
    Ok(alignment)
}

fn value_type(key: &str, id: u32) -> Result<ValueType> {
    ValueType::from_id(id).ok_or_else(|| {
        let problem =
            format!("value type {id} is unknown; 0 to 12 are known, so the file is damaged or newer");
        Error::BadValue { key: key.to_owned(), problem }
    })
}

fn boolean(key: &str, byte: u8) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            let problem = format!("a bool is stored as {byte}; only 0 and 1 are allowed");
            Err(Error::BadValue { key: key.to_owned(), problem })
        }
    }
}

fn value(c: &mut Cursor<'_>, key: &str, id: u32) -> Result<Value> {
    Ok(match value_type(key, id)? {
        ValueType::U8 => Value::U8(c.u8(key)?),
        ValueType::I8 => Value::I8(c.i8(key)?),
        ValueType::U16 => Value::U16(c.u16(key)?),
        ValueType::I16 => Value::I16(c.i16(key)?),
        ValueType::U32 => Value::U32(c.u32(key)?),
        ValueType::I32 => Value::I32(c.i32(key)?),
        ValueType::F32 => Value::F32(c.f32(key)?),
        ValueType::Bool => Value::Bool(boolean(key, c.u8(key)?)?),
        ValueType::String => Value::String(Str::from(c.string(key)?)),
        ValueType::Array => Value::Array(array(c, key, 1)?),
        ValueType::U64 => Value::U64(c.u64(key)?),
        ValueType::I64 => Value::I64(c.i64(key)?),
        ValueType::F64 => Value::F64(c.f64(key)?),
    })
}

/// Reads an array at nesting depth `depth`, 1 for the outermost.
fn array(c: &mut Cursor<'_>, key: &str, depth: usize) -> Result<Array> {
    if depth > MAX_DEPTH {
        let problem = format!("arrays nest more than {MAX_DEPTH} deep");
        return Err(Error::BadValue { key: key.to_owned(), problem });
    }
    let id = c.u32(key)?;
    Ok(match value_type(key, id)? {
        ValueType::U8 => Array::U8(numbers(c, key, |[x]| x, |[x]| x)?),
        ValueType::I8 => Array::I8(numbers(c, key, i8::from_le_bytes, i8::from_be_bytes)?),
        ValueType::U16 => Array::U16(numbers(c, key, u16::from_le_bytes, u16::from_be_bytes)?),
        ValueType::I16 => Array::I16(numbers(c, key, i16::from_le_bytes, i16::from_be_bytes)?),
        ValueType::U32 => Array::U32(numbers(c, key, u32::from_le_bytes, u32::from_be_bytes)?),
        ValueType::I32 => Array::I32(numbers(c, key, i32::from_le_bytes, i32::from_be_bytes)?),
        ValueType::F32 => Array::F32(numbers(c, key, f32::from_le_bytes, f32::from_be_bytes)?),
        ValueType::U64 => Array::U64(numbers(c, key, u64::from_le_bytes, u64::from_be_bytes)?),
        ValueType::I64 => Array::I64(numbers(c, key, i64::from_le_bytes, i64::from_be_bytes)?),
        ValueType::F64 => Array::F64(numbers(c, key, f64::from_le_bytes, f64::from_be_bytes)?),
        ValueType::Bool => {
            let n = c.count_of(1, key)?;
            let bytes = c.take(n as u64, key)?;
            Array::Bool(bytes.iter().map(|&b| boolean(key, b)).collect::<Result<_>>()?)
        }
        ValueType::String => {
            let n = c.count_of(c.least_string(), key)?;
            let mut strings = crate::array::StringArray::new();
            strings.reserve(n);
            for _ in 0..n {
                strings.push(c.string(key)?);
            }
            Array::String(strings)
        }
        ValueType::Array => {
            // No reservation: an array takes more room in memory than in the file.
            let n = c.count_of(4 + c.least_string(), key)?;
            Array::Array((0..n).map(|_| array(c, key, depth + 1)).collect::<Result<_>>()?)
        }
    })
}

/// Reads a count and as many numbers of `N` bytes.
fn numbers<T, const N: usize>(
    c: &mut Cursor<'_>,
    key: &str,
    little: impl Fn([u8; N]) -> T,
    big: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>> {
    let n = c.count_of(N as u64, key)?;
    let order = c.order;
    // The product cannot overflow: `count_of` has compared it with what is left.
    let (chunks, _) = c.take((n * N) as u64, key)?.as_chunks::<N>();
    Ok(match order {
        ByteOrder::Little => chunks.iter().map(|b| little(*b)).collect(),
        ByteOrder::Big => chunks.iter().map(|b| big(*b)).collect(),
    })
}

/// Reads the description of one tensor.
fn tensor(c: &mut Cursor<'_>) -> Result<TensorInfo> {
    let name = c.name("a tensor's name")?;
    let n_dims = c.u32(name)?;
    let mut dims = [0; MAX_DIMS];
    let Some(dims) = usize::try_from(n_dims).ok().and_then(|n| dims.get_mut(..n)) else {
        let problem = format!("it has {n_dims} dimensions; at most {MAX_DIMS} are allowed");
        return Err(Error::BadTensor { name: name.to_owned(), problem });
    };
    for dim in dims.iter_mut() {
        *dim = c.count(name)?;
    }
    let type_id = c.u32(name)?;
    let mut info = TensorInfo::new(name, dims, type_id)?;
    info.offset = c.u64(name)?;
    Ok(info)
}

/// Checks that every tensor lies in the file, where the alignment allows, and on no other.
fn check_places(tensors: &[TensorInfo], data_start: u64, alignment: u64, file_len: u64) -> Result<()> {
    let bad = |t: &TensorInfo, problem: String| Error::BadTensor { name: t.name().to_owned(), problem };
    let mut places = Vec::with_capacity(tensors.len());
    for t in tensors {
        let (offset, len) = (t.offset, t.byte_len().unwrap_or(0));
        if !offset.is_multiple_of(alignment) {
            return Err(bad(t, format!("its offset {offset} is no multiple of the alignment {alignment}")));
        }
        if t.byte_len() == Some(0) {
            continue; // takes no room, so it may stand anywhere
        }
        let end = data_start.checked_add(offset).and_then(|start| start.checked_add(len));
        if end.is_none_or(|end| end > file_len) {
            let problem = format!(
                "its data of {len} bytes at offset {offset} (data begin at byte {data_start}) reach past the end of \
                 the file at byte {file_len}; the file is truncated or damaged"
            );
            return Err(bad(t, problem));
        }
        places.push((offset, len, t));
    }
    // Files nearly always list tensors in order, and sorting what is sorted is cheap.
    places.sort_by_key(|&(offset, len, _)| (offset, len));
    for pair in places.windows(2) {
        if let [(start, len, first), (next, _, second)] = *pair
            && start + len > next
        {
            return Err(bad(
                second,
                format!("its data at offset {next} overlap those of tensor `{}`", first.name()),
            ));
        }
    }
    Ok(())
}
