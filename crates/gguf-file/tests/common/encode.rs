//! An encoder that knows all versions and byte orders and checks nothing, so that tests can write what the crate's own
//! writer does not: old files, foreign files, lies.

use gguf_file::{Array, Value};

/// A file in the making.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(crate) version: u32,
    pub(crate) big: bool,
    pub(crate) out: Vec<u8>,
}

impl Encoder {
    /// A little-endian file of version 3 that announces so many tensors and keys.
    pub(crate) fn v3(tensors: u64, keys: u64) -> Self {
        Self::new(3, false, tensors, keys)
    }

    pub(crate) fn new(version: u32, big: bool, tensors: u64, keys: u64) -> Self {
        let mut e = Self { version, big, out: b"GGUF".to_vec() };
        e.u32(version).count(tensors).count(keys);
        e
    }

    /// A number, given in little-endian order.
    fn number(&mut self, le: &[u8]) -> &mut Self {
        let at = self.out.len();
        self.out.extend_from_slice(le);
        if self.big {
            self.out[at..].reverse();
        }
        self
    }

    pub(crate) fn u32(&mut self, x: u32) -> &mut Self {
        self.number(&x.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, x: u64) -> &mut Self {
        self.number(&x.to_le_bytes())
    }

    /// A count: 32 bits in version 1.
    pub(crate) fn count(&mut self, n: u64) -> &mut Self {
        if self.version == 1 { self.u32(n as u32) } else { self.u64(n) }
    }

    pub(crate) fn string(&mut self, s: &[u8]) -> &mut Self {
        self.count(s.len() as u64);
        self.out.extend_from_slice(s);
        self
    }

    pub(crate) fn key(&mut self, key: &str, v: &Value) -> &mut Self {
        self.string(key.as_bytes()).u32(v.value_type().id());
        match v {
            Value::U8(x) => self.number(&x.to_le_bytes()),
            Value::I8(x) => self.number(&x.to_le_bytes()),
            Value::U16(x) => self.number(&x.to_le_bytes()),
            Value::I16(x) => self.number(&x.to_le_bytes()),
            Value::U32(x) => self.number(&x.to_le_bytes()),
            Value::I32(x) => self.number(&x.to_le_bytes()),
            Value::F32(x) => self.number(&x.to_le_bytes()),
            Value::Bool(x) => self.number(&[u8::from(*x)]),
            Value::String(x) => self.string(x.as_bytes()),
            Value::Array(x) => self.array(x),
            Value::U64(x) => self.number(&x.to_le_bytes()),
            Value::I64(x) => self.number(&x.to_le_bytes()),
            Value::F64(x) => self.number(&x.to_le_bytes()),
        }
    }

    pub(crate) fn array(&mut self, a: &Array) -> &mut Self {
        self.u32(a.element_type().id()).count(a.len() as u64);
        match a {
            Array::U8(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::I8(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::U16(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::I16(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::U32(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::I32(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::F32(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::Bool(v) => v.iter().for_each(|x| {
                self.number(&[u8::from(*x)]);
            }),
            Array::String(v) => v.iter().for_each(|s| {
                self.string(s);
            }),
            Array::Array(v) => v.iter().for_each(|x| {
                self.array(x);
            }),
            Array::U64(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::I64(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
            Array::F64(v) => v.iter().for_each(|x| {
                self.number(&x.to_le_bytes());
            }),
        }
        self
    }

    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64], type_id: u32, offset: u64) -> &mut Self {
        self.string(name.as_bytes()).u32(dims.len() as u32);
        dims.iter().for_each(|&d| {
            self.count(d);
        });
        self.u32(type_id).u64(offset)
    }

    /// Zeros up to a multiple of `alignment`.
    pub(crate) fn pad(&mut self, alignment: usize) -> &mut Self {
        self.out.resize(self.out.len().next_multiple_of(alignment), 0);
        self
    }

    /// Bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(crate) fn done(&self) -> Vec<u8> {
        self.out.clone()
    }
}
