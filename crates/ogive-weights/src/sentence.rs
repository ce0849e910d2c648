//! What sentence-transformers leaves beside a model: how its hidden states become the vector of a text.
//!
//! Poolings have the numbers of GGUF's `pooling_type`, so that a folder and the file made of it say the same. Whatever
//! would make another vector and is not known (a dense layer, a maximum, two poolings side by side) is an error: a vector
//! without it looks right and ranks badly.

use crate::json;
use ogive_tensor::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const MODULES: &str = "modules.json";
const MODES: &[(&str, u32)] = &[("mean_tokens", 1), ("cls_token", 2), ("lasttoken", 3)];

/// The settings of a folder that sentence-transformers saved, as far as they decide what a text's vector is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentenceSettings {
    /// GGUF's number: 1 for the mean, 2 for the first token, 3 for the last. `None` where no file says.
    pub pooling_type: Option<u32>,
    /// Tokens of a text; of longer ones the beginning counts.
    pub max_tokens: Option<usize>,
    /// Whether texts are lower-cased before they are cut into tokens.
    pub lower_case: bool,
    /// What stands before texts of a kind, by the kind's name: `query` and `document`, say.
    pub prompts: BTreeMap<String, String>,
    /// The kind that texts are of if nobody says.
    pub default_prompt: Option<String>,
    /// Whether a mean leaves out the prompt's tokens, those that begin every text among them (`include_prompt` is false).
    pub prompt_left_out: bool,
}

impl SentenceSettings {
    /// Reads `modules.json` and what it names; without it, `1_Pooling/config.json`. A folder that has neither has no
    /// settings, which is no error.
    ///
    /// # Errors
    /// If a file cannot be read, if it names a layer or a pooling that is not known.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut settings = Self::default();
        settings.prompt(&folder.join("config_sentence_transformers.json"))?;
        let modules = match folder.join(MODULES) {
            path if path.is_file() => json::read::<Value>(&path)?,
            _ => Value::Null,
        };
        let Some(modules) = modules.as_array() else {
            settings.pool(&folder.join("1_Pooling/config.json"))?;
            return Ok(settings);
        };
        for module in modules {
            let kind = module["type"].as_str().unwrap_or_default();
            let place = below(folder, module["path"].as_str().unwrap_or_default())?;
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => settings.texts(&place.join("sentence_bert_config.json"))?,
                "Pooling" => settings.pool(&place.join("config.json"))?,
                "Normalize" => {}
                other => {
                    let why = format!("the checkpoint goes on with a layer `{other}` after its model");
                    return Err(Error::unsupported(MODULES, format!("{why}, which is not known")));
                }
            }
        }
        Ok(settings)
    }

    fn prompt(&mut self, path: &Path) -> Result<()> {
        if !path.is_file() {
            return Ok(());
        }
        let config: Value = json::read(path)?;
        let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
        self.prompts = config["prompts"].as_object().into_iter().flatten().filter_map(text).collect();
        self.default_prompt = config["default_prompt_name"].as_str().map(ToOwned::to_owned);
        match &self.default_prompt {
            Some(name) if !self.prompts.contains_key(name) => {
                let why = format!("the default prompt {name:?} is none of its prompts");
                Err(Error::invalid(&path.display().to_string(), why))
            }
            _ => Ok(()),
        }
    }

    fn texts(&mut self, path: &Path) -> Result<()> {
        if !path.is_file() {
            return Ok(());
        }
        let config: Value = json::read(path)?;
        let most = config["max_seq_length"].as_u64().and_then(|n| usize::try_from(n).ok());
        self.max_tokens = most.filter(|n| *n > 0);
        self.lower_case = config["do_lower_case"].as_bool().unwrap_or(false);
        Ok(())
    }

    fn pool(&mut self, path: &Path) -> Result<()> {
        if !path.is_file() {
            return Ok(());
        }
        let config: Value = json::read(path)?;
        self.prompt_left_out = config["include_prompt"] == Value::Bool(false);
        let flags = config.as_object().into_iter().flatten();
        let on = flags.filter(|(_, on)| on.as_bool() == Some(true));
        let mut modes: Vec<&str> = on.filter_map(|(key, _)| key.strip_prefix("pooling_mode_")).collect();
        let named = match config["pooling_mode"].as_str() {
            Some("mean") => Some("mean_tokens"),
            Some("cls") => Some("cls_token"),
            other => other,
        };
        modes.extend(named.filter(|_| modes.is_empty()));
        let refuse = |what: &str| {
            let known: Vec<&str> = MODES.iter().map(|(mode, _)| *mode).collect();
            let why = format!("the pooling {what} is not known; known is one of {}", known.join(", "));
            Err(Error::unsupported(&path.display().to_string(), why))
        };
        match modes[..] {
            [] => {}
            [mode] => match MODES.iter().find(|(known, _)| *known == mode) {
                Some((_, number)) => self.pooling_type = Some(*number),
                None => return refuse(mode),
            },
            _ => return refuse(&modes.join(" with ")),
        }
        Ok(())
    }
}

/// A folder that a file names, which must lie in this one.
fn below(folder: &Path, name: &str) -> Result<PathBuf> {
    if Path::new(name).components().all(|c| matches!(c, Component::Normal(_))) {
        return Ok(folder.join(name));
    }
    Err(Error::invalid(MODULES, format!("a layer's path is {name:?}, which leads out of the folder")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(files: &[(&str, Value)]) -> Result<SentenceSettings> {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value.to_string()).unwrap();
        }
        SentenceSettings::read(folder.path())
    }

    fn module(kind: &str, path: &str) -> Value {
        json!({"type": format!("sentence_transformers.models.{kind}"), "path": path})
    }

    #[test]
    fn a_folder_says_how_it_is_pooled_and_where_texts_end() {
        assert_eq!(read(&[]).unwrap(), SentenceSettings::default());
        let pooling = |mode: &str| json!({"word_embedding_dimension": 4, (format!("pooling_mode_{mode}")): true, "pooling_mode_max_tokens": false});
        for (mode, number) in MODES {
            let plain = read(&[("1_Pooling/config.json", pooling(mode))]).unwrap();
            assert_eq!(plain.pooling_type, Some(*number));
            let modules =
                json!([module("Transformer", ""), module("Pooling", "elsewhere"), module("Normalize", "n")]);
            let all = read(&[
                ("modules.json", modules),
                ("elsewhere/config.json", pooling(mode)),
                ("1_Pooling/config.json", pooling("max_tokens")),
                ("sentence_bert_config.json", json!({"max_seq_length": 256, "do_lower_case": true})),
            ]);
            let all = all.unwrap();
            assert_eq!((all.pooling_type, all.max_tokens), (Some(*number), Some(256)));
            assert_eq!((plain.lower_case, all.lower_case), (false, true));
        }
        let newer = read(&[("1_Pooling/config.json", json!({"pooling_mode": "cls"}))]).unwrap();
        assert_eq!((newer.pooling_type, newer.prompt_left_out), (Some(2), false));
        let newer = read(&[("1_Pooling/config.json", json!({"include_prompt": false}))]).unwrap();
        assert_eq!((newer.pooling_type, newer.prompt_left_out), (None, true));
        assert_eq!(read(&[("1_Pooling/config.json", json!({}))]).unwrap().pooling_type, None);
    }

    #[test]
    fn prompts_have_names() {
        let prompts = |default: Value| json!({"prompts": {"query": "query: ", "odd": 3}, "default_prompt_name": default});
        let read = |default| read(&[("config_sentence_transformers.json", prompts(default))]);
        let named = read(Value::Null).unwrap();
        assert_eq!(named.prompts.into_iter().collect::<Vec<_>>(), [("query".into(), "query: ".into())]);
        assert_eq!(
            (named.default_prompt, read("query".into()).unwrap().default_prompt.as_deref()),
            (None, Some("query"))
        );
        assert!(read("odd".into()).unwrap_err().to_string().contains("is none of its prompts"));
    }

    #[test]
    fn what_makes_other_vectors_is_refused() {
        for (files, word) in [
            (vec![("modules.json", json!([module("Dense", "2_Dense")]))], "a layer `Dense` after its model"),
            (vec![("modules.json", json!([module("Pooling", "../x")]))], "leads out of the folder"),
            (vec![("modules.json", json!([{"path": "/etc"}]))], "leads out of the folder"),
            (vec![("1_Pooling/config.json", json!({"pooling_mode_max_tokens": true}))], "max_tokens"),
            (vec![("1_Pooling/config.json", json!({"pooling_mode": "weightedmean"}))], "weightedmean"),
            (
                vec![(
                    "1_Pooling/config.json",
                    json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}),
                )],
                "cls_token with mean_tokens",
            ),
        ] {
            let e = read(&files).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("modules.json"), "[").unwrap();
        assert!(
            SentenceSettings::read(folder.path()).unwrap_err().to_string().contains("reading JSON failed")
        );
    }
}
