//! JSON objects whose keys must differ, and JSON files of bounded size.
//!
//! serde_json keeps the last of two equal keys. In a list of tensors that hides one of them, so the lists of safetensors
//! files are read through this type, which refuses.

use ogive_tensor::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::{collections::HashSet, fmt, fs::File, io::Read, marker::PhantomData, path::Path};

/// No JSON file beside a model is larger; the limit of the safetensors format's header is the same.
pub(crate) const MOST_BYTES: u64 = 100_000_000;

/// An object's entries in their order.
#[derive(Debug)]
pub(crate) struct Entries<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        entries(deserializer, None).map(Self)
    }
}

/// An object's entries in their order, but for that of the key `skipped`, whose value is not looked at.
pub(crate) fn entries<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    skipped: Option<&'static str>,
) -> Result<Vec<(String, V)>, D::Error> {
    deserializer.deserialize_map(EntriesVisitor { skipped, values: PhantomData })
}

struct EntriesVisitor<V> {
    skipped: Option<&'static str>,
    values: PhantomData<V>,
}

impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
    type Value = Vec<(String, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("`{key}` stands there twice")));
            }
            if self.skipped == Some(&*key) {
                map.next_value::<IgnoredAny>()?;
            } else {
                entries.push((key, map.next_value()?));
            }
        }
        Ok(entries)
    }
}

/// Reads a JSON file; errors name it.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let at = path.display().to_string();
    let file = File::open(path).map_err(|e| Error::new(&at, e.into()))?;
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::new(&at, e.into()))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::invalid(&at, format!("the file is larger than {MOST_BYTES} bytes")));
    }
    serde_json::from_slice(&text).map_err(|e| Error::invalid(&at, format!("reading JSON failed: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_must_differ() {
        let e = serde_json::from_str::<Entries<u32>>(r#"{"b": 1, "a": 2}"#).unwrap();
        assert_eq!(e.0, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
        let e = serde_json::from_str::<Entries<u32>>(r#"{"b": 1, "b": 2}"#).unwrap_err();
        assert!(e.to_string().contains("`b` stands there twice"), "{e}");
    }
}
