//! A model's settings: `config.json`, or a GGUF header under the same names.
//!
//! JSON values and not numbers, because rope scaling is an object and layer types are a list. A key of the wrong type is
//! an error even where there is a default: a setting that is silently ignored gives a model that is silently wrong.

use crate::{Error, Result};
use serde_json::Value;

/// Settings under Hugging Face's names. `null` counts as missing, as it does there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config(pub Value);

impl Config {
    fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|v| !v.is_null())
    }

    fn typed<T>(&self, key: &str, what: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let wrong = |v: &Value| Error::invalid("config", format!("`{key}` should be {what} and is `{v}`"));
        self.value(key).map(|v| read(v).ok_or_else(|| wrong(v))).transpose()
    }

    /// Whether there is a setting called `key`.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Sets those of `usual` that are missing; nothing where there are no settings at all.
    pub fn fill<'k>(&mut self, usual: impl IntoIterator<Item = (&'k str, Value)>) {
        let Some(settings) = self.0.as_object_mut() else { return };
        for (key, value) in usual {
            let place = settings.entry(key).or_insert(Value::Null);
            if place.is_null() {
                *place = value;
            }
        }
    }

    /// The settings below `key`; a missing key gives an empty configuration.
    #[must_use]
    pub fn at(&self, key: &str) -> Self {
        Self(self.value(key).cloned().unwrap_or(Value::Null))
    }

    /// A whole number, if it is there.
    ///
    /// # Errors
    /// If the setting is no whole number, or a negative one.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |v| v.as_u64().and_then(|v| usize::try_from(v).ok()))
    }

    /// A whole number that must be there.
    ///
    /// # Errors
    /// If it is missing, of which the error [says so](Error::is_missing), and as [`opt_usize`](Self::opt_usize).
    pub fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| Error::missing(&format!("config `{key}`")))
    }

    /// A whole number with a default.
    ///
    /// # Errors
    /// As [`opt_usize`](Self::opt_usize): a wrong setting is no missing one.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    /// A number, if it is there.
    ///
    /// # Errors
    /// If the setting is no number.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a number", |v| v.as_f64().map(|v| v as f32))
    }

    /// A number with a default.
    ///
    /// # Errors
    /// If the setting is no number.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    /// A flag with a default.
    ///
    /// # Errors
    /// If the setting is neither true nor false.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    /// A string, if it is there.
    ///
    /// # Errors
    /// If the setting is no string.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>> {
        let wrong = |v: &Value| Error::invalid("config", format!("`{key}` should be a string and is `{v}`"));
        self.value(key).map(|v| v.as_str().ok_or_else(|| wrong(v))).transpose()
    }

    /// A list of numbers, if it is there.
    ///
    /// # Errors
    /// If the setting is no list, or an element of it no number.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.typed(key, "a list of numbers", |v| {
            v.as_array()?.iter().map(|v| Some(v.as_f64()? as f32)).collect()
        })
    }

    /// A list of whole numbers, if it is there.
    ///
    /// # Errors
    /// If the setting is no list, or an element of it no whole number from 0 up.
    pub fn opt_usizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.typed(key, "a list of whole numbers", |v| {
            v.as_array()?.iter().map(|v| usize::try_from(v.as_u64()?).ok()).collect()
        })
    }

    /// A list of strings, if it is there.
    ///
    /// # Errors
    /// If the setting is no list, or an element of it no string.
    pub fn opt_strs(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.typed(key, "a list of strings", |v| {
            v.as_array()?.iter().map(|v| Some(v.as_str()?.into())).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_is_missing_and_a_wrong_type_is_an_error() {
        let c = Config(json!({"a": null, "b": 3, "c": "x", "d": {"e": [1, 2.5]}, "n": -1}));
        assert_eq!((c.usize_or("a", 7).unwrap(), c.usize("b").unwrap()), (7, 3));
        assert!(c.usize("a").unwrap_err().is_missing());
        let e = c.usize_or("c", 1).unwrap_err().to_string();
        assert_eq!(e, "config: `c` should be a whole number and is `\"x\"`");
        assert!(c.usize_or("n", 1).is_err());
        assert_eq!(c.at("d").opt_f32s("e").unwrap(), Some(vec![1.0, 2.5]));
        assert!(c.at("d").opt_usizes("e").is_err());
        let whole = Config(json!({"e": [1, 0]}));
        assert_eq!((whole.opt_usizes("e").unwrap(), c.opt_usizes("a").unwrap()), (Some(vec![1, 0]), None));
        assert!(!c.at("zz").has("e"));
        let mut filled = c.clone();
        filled.fill([("a", json!(1)), ("b", json!(2)), ("zz", json!("new"))]);
        assert_eq!(
            [filled.0["a"].clone(), filled.0["b"].clone(), filled.0["zz"].clone()],
            [json!(1), json!(3), json!("new")]
        );
        let mut none = Config::default();
        none.fill([("a", json!(1))]);
        assert_eq!(none, Config::default());
    }
}
