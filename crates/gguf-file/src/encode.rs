//! From values to bytes: version 3, little-endian.
//!
//! The mirror of `parse`, and as small: what may be written was checked when it was set, but for the nesting of arrays,
//! which is checked here so that nothing is written that this crate would not read.

use crate::array::{Array, MAX_DEPTH};
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::parse::MAGIC;
use crate::tensor::TensorInfo;
use crate::value::Value;

/// The version that is written.
const VERSION: u32 = 3;

/// Everything before the data section, without the padding after it.
pub(crate) fn header(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_le_bytes());
    count(&mut out, tensors.len());
    count(&mut out, metadata.len());
    for (key, v) in metadata.iter() {
        string(&mut out, key.as_bytes());
        value(&mut out, key, v)?;
    }
    for t in tensors {
        string(&mut out, t.name().as_bytes());
        // At most MAX_DIMS.
        out.extend((t.dims().len() as u32).to_le_bytes());
        t.dims().iter().for_each(|d| out.extend(d.to_le_bytes()));
        out.extend(t.type_id().to_le_bytes());
        out.extend(t.offset().to_le_bytes());
    }
    Ok(out)
}

fn count(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u64).to_le_bytes());
}

fn string(out: &mut Vec<u8>, s: &[u8]) {
    count(out, s.len());
    out.extend_from_slice(s);
}

fn value(out: &mut Vec<u8>, key: &str, v: &Value) -> Result<()> {
    out.extend(v.value_type().id().to_le_bytes());
    match v {
        Value::U8(x) => out.push(*x),
        Value::I8(x) => out.extend(x.to_le_bytes()),
        Value::U16(x) => out.extend(x.to_le_bytes()),
        Value::I16(x) => out.extend(x.to_le_bytes()),
        Value::U32(x) => out.extend(x.to_le_bytes()),
        Value::I32(x) => out.extend(x.to_le_bytes()),
        Value::F32(x) => out.extend(x.to_le_bytes()),
        Value::Bool(x) => out.push(u8::from(*x)),
        Value::String(s) => string(out, s.as_bytes()),
        Value::Array(a) => array(out, key, a, 1)?,
        Value::U64(x) => out.extend(x.to_le_bytes()),
        Value::I64(x) => out.extend(x.to_le_bytes()),
        Value::F64(x) => out.extend(x.to_le_bytes()),
    }
    Ok(())
}

fn array(out: &mut Vec<u8>, key: &str, a: &Array, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        let problem = format!("arrays nest more than {MAX_DEPTH} deep, which readers refuse");
        return Err(Error::BadValue { key: key.to_owned(), problem });
    }
    out.extend(a.element_type().id().to_le_bytes());
    count(out, a.len());
    match a {
        Array::U8(v) => out.extend_from_slice(v),
        Array::I8(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::U16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I16(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::U32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::F32(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
        Array::String(v) => v.iter().for_each(|s| string(out, s)),
        Array::Array(v) => v.iter().try_for_each(|inner| array(out, key, inner, depth + 1))?,
        Array::U64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::I64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
        Array::F64(v) => v.iter().for_each(|x| out.extend(x.to_le_bytes())),
    }
    Ok(())
}
