//! JSON objects whose keys must differ, and JSON files of bounded size, Python's own among them.
//!
//! serde_json keeps the last of two equal keys. In a list of tensors that hides one of them, so the lists of safetensors
//! files are read through this type, which refuses.

use ogive_tensor::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
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
    parsed(path, &text_of(path)?)
}

/// Reads a JSON file that Python may have written, which has words for what JSON has no numbers for: `Infinity` becomes
/// `{"__float__": "Infinity"}`, as transformers 5 writes it.
pub(crate) fn read_settings(path: &Path) -> Result<Value> {
    let text = text_of(path)?;
    match parsed(path, &text) {
        Err(e) => named_floats(&text).map_or(Err(e), |text| parsed(path, &text)),
        read => read,
    }
}

fn text_of(path: &Path) -> Result<Vec<u8>> {
    let at = path.display().to_string();
    let file = File::open(path).map_err(|e| Error::new(&at, e.into()))?;
    let mut text = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::new(&at, e.into()))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::invalid(&at, format!("the file is larger than {MOST_BYTES} bytes")));
    }
    Ok(text)
}

fn parsed<T: for<'de> Deserialize<'de>>(path: &Path, text: &[u8]) -> Result<T> {
    let failed = |e| Error::invalid(&path.display().to_string(), format!("reading JSON failed: {e}"));
    serde_json::from_slice(text).map_err(failed)
}

/// The text with an object in place of each such word that stands in no string; `None` where there is none.
fn named_floats(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest, mut quoted, mut found) = (Vec::with_capacity(text.len()), text, false, false);
    while let Some(&byte) = rest.first() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| rest.starts_with(word.as_bytes()));
        let taken = match word.filter(|_| !quoted) {
            Some(word) => {
                found = true;
                out.extend_from_slice(format!("{{\"__float__\": \"{word}\"}}").as_bytes());
                word.len()
            }
            None => {
                quoted ^= byte == b'"';
                // What is escaped ends no string.
                let taken = if quoted && byte == b'\\' { 2.min(rest.len()) } else { 1 };
                out.extend_from_slice(&rest[..taken]);
                taken
            }
        };
        rest = &rest[taken..];
    }
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_must_differ() {
        let e = serde_json::from_str::<Entries<u32>>(r#"{"b": 1, "a": 2}"#).unwrap();
        assert_eq!(e.0, [("b".to_owned(), 1), ("a".to_owned(), 2)]);
        let e = serde_json::from_str::<Entries<u32>>(r#"{"b": 1, "b": 2}"#).unwrap_err();
        assert!(e.to_string().contains("`b` stands there twice"), "{e}");
    }

    #[test]
    fn words_for_numbers_that_are_none_are_read_outside_of_strings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_settings(&path)
        };
        let text = r#"{"Infinity": [0.0, Infinity, -Infinity,NaN], "a": "x\\\" NaN", "\\": Infinity}"#;
        let named = |word: &str| json!({"__float__": word});
        let limits = json!([0.0, named("Infinity"), named("-Infinity"), named("NaN")]);
        let want = json!({"Infinity": limits, "a": "x\\\" NaN", "\\": named("Infinity")});
        assert_eq!(read(text).unwrap(), want);
        assert_eq!(read(r#"{"a": "NaN"}"#).unwrap(), json!({"a": "NaN"}));
        for wrong in
            ["{\"a\": Infinit}", "{\"a\": Infinity", "Infinity Infinity", "\"\\", "\"NaN", "{\"a\": \"NaN}"]
        {
            let e = read(wrong).unwrap_err().to_string();
            assert!(e.contains("config.json") && e.contains("reading JSON failed"), "{wrong}: {e}");
        }
    }
}
