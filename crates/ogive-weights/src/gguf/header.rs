//! A GGUF file's settings, asked for without the architecture's prefix.

use gguf_file::{Array, Gguf, Value as Stored};
use ogive_tensor::{Error, HostWeight, Result};
use serde_json::Value;

/// What a function that fills in settings is given: the metadata and the list of tensors.
#[derive(Debug)]
pub struct Header<'a> {
    gguf: &'a Gguf,
    architecture: &'a str,
}

impl<'a> Header<'a> {
    pub(super) fn new(gguf: &'a Gguf, architecture: &'a str) -> Self {
        Self { gguf, architecture }
    }

    /// The name under `general.architecture`, with which keys begin; `clip.vision` of files that a model sees with.
    pub fn architecture(&self) -> &'a str {
        self.architecture
    }

    /// The file itself.
    pub fn gguf(&self) -> &'a Gguf {
        self.gguf
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// The whole number under `ARCHITECTURE.key`.
    ///
    /// # Errors
    /// If the value is no whole number, or a negative one.
    pub fn usize(&self, key: &str) -> Result<Option<usize>> {
        self.gguf.metadata().opt_usize(&self.key(key)).map_err(failed)
    }

    /// The number under `ARCHITECTURE.key`.
    ///
    /// # Errors
    /// If the value is no number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.gguf.metadata().opt_f32(&self.key(key)).map_err(failed)
    }

    /// The flag under `ARCHITECTURE.key`.
    ///
    /// # Errors
    /// If the value is no flag.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.gguf.metadata().opt_bool(&self.key(key)).map_err(failed)
    }

    /// The list of flags under `ARCHITECTURE.key`, one for each layer; of numbers, all but 0 count as set. `None` where there is
    /// no list.
    ///
    /// # Errors
    /// If the list is neither of flags nor of whole numbers.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let key = self.key(key);
        let Some(array) = self.gguf.metadata().get(&key).and_then(Stored::as_array) else { return Ok(None) };
        let numbers = || Some(array.to_i64()?.iter().map(|n| *n != 0).collect());
        let flags = array.as_bool().map(<[bool]>::to_vec).or_else(numbers);
        let wrong = || Error::invalid(&key, format!("its value {array} should be flags or whole numbers"));
        flags.map(Some).ok_or_else(wrong)
    }

    /// The string under `ARCHITECTURE.key`.
    ///
    /// # Errors
    /// If the value is no string, or not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&'a str>> {
        self.gguf.metadata().opt_str(&self.key(key)).map_err(failed)
    }

    /// Whatever is under `ARCHITECTURE.key`, as JSON. An array whose elements are all the same is that element: a value
    /// for each layer says no more then.
    ///
    /// # Errors
    /// If the value is no setting: an infinity or NaN, a whole number beyond 64 bits, a nested array, a string that is not UTF-8.
    pub fn value(&self, key: &str) -> Result<Option<Value>> {
        let key = self.key(key);
        self.gguf.metadata().get(&key).map(|v| to_json(&key, v)).transpose()
    }

    /// The list of numbers under `ARCHITECTURE.key`, however many of them are the same, as JSON.
    ///
    /// # Errors
    /// If the value is no list, or as [`value`](Self::value).
    pub fn list(&self, key: &str) -> Result<Option<Vec<Value>>> {
        let key = self.key(key);
        let Some(value) = self.gguf.metadata().get(&key) else { return Ok(None) };
        let wrong = || Error::invalid(&key, format!("its value {value} should be a list"));
        list_of(&key, value, value.as_array().ok_or_else(wrong)?).map(Some)
    }

    /// The whole number under `key`, without a prefix, as JSON.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    pub fn global(&self, key: &str) -> Result<Option<Value>> {
        self.gguf.metadata().get(key).map(|v| to_json(key, v)).transpose()
    }

    /// Whether there is a tensor of this GGUF name.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// The rows of a matrix of this GGUF name.
    pub fn rows(&self, tensor: &str) -> Option<u64> {
        self.gguf.tensor(tensor)?.dims().get(1).copied()
    }

    /// The numbers of a tensor of this GGUF name, as JSON: for short lists that Hugging Face keeps among the settings.
    ///
    /// # Errors
    /// If there are more than 65536, if one is infinite or NaN, or if the type of the tensor is not known.
    pub fn numbers(&self, tensor: &str) -> Result<Option<Value>> {
        const MOST: u64 = 1 << 16;
        let Some(info) = self.gguf.tensor(tensor) else { return Ok(None) };
        if info.elements() > MOST {
            return Err(Error::invalid(
                tensor,
                format!("{} elements are too many for a setting", info.elements()),
            ));
        }
        let weight: HostWeight = super::source::read(self.gguf, info, &crate::formats::Formats::default())?;
        weight
            .to_vec()
            .into_iter()
            .map(|v| number(tensor, v))
            .collect::<Result<Vec<_>>>()
            .map(|v| Some(v.into()))
    }
}

fn failed(e: gguf_file::Error) -> Error {
    Error::other("reading settings", e)
}

/// A metadata value as JSON.
fn to_json(key: &str, value: &Stored) -> Result<Value> {
    let wrong = |what: &str| no_setting(key, value, what);
    let int = |i: i128| {
        let unsigned = u64::try_from(i).map(Value::from);
        unsigned.or_else(|_| i64::try_from(i).map(Value::from)).map_err(|_| wrong("too large"))
    };
    if let Some(i) = value.as_int() {
        return int(i);
    }
    if let Some(array) = value.as_array() {
        let list = list_of(key, value, array)?;
        return Ok(match list.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v == first) => first.clone(),
            _ => Value::Array(list),
        });
    }
    match value {
        Stored::F32(v) => number(key, *v),
        Stored::F64(v) => {
            serde_json::Number::from_f64(*v).map(Value::Number).ok_or_else(|| wrong("no finite number"))
        }
        Stored::Bool(v) => Ok(Value::from(*v)),
        other => {
            let text = other.as_string().and_then(|s| s.to_str().ok()).ok_or_else(|| wrong("no text"))?;
            Ok(Value::from(text))
        }
    }
}

/// The elements of an array.
fn list_of(key: &str, value: &Stored, array: &Array) -> Result<Vec<Value>> {
    let wrong = |what: &str| no_setting(key, value, what);
    Ok(if let Some(v) = array.as_bool() {
        v.iter().map(|&b| Value::from(b)).collect()
    } else if array.element_type().is_integer() {
        array.to_i64().ok_or_else(|| wrong("too large"))?.iter().map(|&i| Value::from(i)).collect()
    } else if let Some(v) = array.to_f32() {
        v.iter().map(|&v| number(key, v)).collect::<Result<Vec<_>>>()?
    } else {
        let Some(strings) = array.strings() else { return Err(wrong("a nested array")) };
        strings.iter().map(|s| Value::from(String::from_utf8_lossy(s).into_owned())).collect()
    })
}

fn no_setting(key: &str, value: &Stored, what: &str) -> Error {
    Error::invalid(key, format!("its value {value} is {what}, which no setting can be"))
}

/// A single as the shortest decimal that means it: `1e-6` and not the double nearest to the single.
pub(super) fn number(key: &str, v: f32) -> Result<Value> {
    let finite = || Error::invalid(key, format!("its value {v} is no finite number"));
    let double: f64 = v.to_string().parse().map_err(|_| finite())?;
    serde_json::Number::from_f64(double).map(Value::Number).ok_or_else(finite)
}
