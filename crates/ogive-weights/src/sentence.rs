//! What sentence-transformers leaves beside a model: how its hidden states become the vector of a text.
//!
//! Poolings have the numbers of GGUF's `pooling_type`, so that a folder and the file made of it say the same. Whatever
//! would make another vector and is not known (a layer of another kind, a maximum, two poolings side by side) is an error for whoever asks
//! for the pooling: a vector without it looks right and ranks badly. The rest is read all the same, for those who pool in a way
//! of their own.

use crate::dense::Dense;
use crate::json;
use ogive_tensor::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const MODULES: &str = "modules.json";
// By `pooling_mode`, by the flag that older files have instead, and by GGUF's number.
const MODES: &[(&str, &str, u32)] =
    &[("mean", "mean_tokens", 1), ("cls", "cls_token", 2), ("lasttoken", "lasttoken", 3)];

/// The settings of a folder that sentence-transformers saved, as far as they decide what a text's vector is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentenceSettings {
    pooling: Option<u32>,
    /// The first layer or pooling that is not known: where it stands, and what there is to say of it.
    unknown: Option<(String, String)>,
    /// Tokens of a text, those that begin and end every text among them; of longer ones the beginning counts.
    pub max_tokens: Option<usize>,
    /// Whether texts are lower-cased before they are cut into tokens.
    pub lower_case: bool,
    /// What stands before texts of a kind, by the kind's name: `query` and `document`, say.
    pub prompts: BTreeMap<String, String>,
    /// The kind that texts are of if nobody says.
    pub default_prompt: Option<String>,
    /// Whether the prompt's tokens are not pooled, those that begin every text among them (`include_prompt` is false): a mean
    /// leaves them out, and the first token is the first after them.
    pub prompt_left_out: bool,
    /// The layers `Dense` that a pooled vector goes through, in their order.
    pub(crate) dense: Vec<Dense>,
}

impl SentenceSettings {
    /// Reads `modules.json` and what it names; without it, `1_Pooling/config.json` and the tokenizer's limit. A folder that has
    /// none of them has no settings, which is no error.
    ///
    /// # Errors
    /// If a file cannot be read, or names a folder outside this one or a default prompt that it does not have.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut settings = Self::default();
        settings.prompt(&folder.join("config_sentence_transformers.json"))?;
        let modules = json_of(&folder.join(MODULES))?;
        let Some(modules) = modules.as_array() else {
            settings.max_tokens = tokenizer_limit(folder)?;
            settings.pool(&folder.join("1_Pooling/config.json"))?;
            return Ok(settings);
        };
        let mut behind: Option<&str> = None;
        for module in modules {
            let kind = module["type"].as_str().unwrap_or_default();
            let place = below(folder, module["path"].as_str().unwrap_or_default())?;
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => settings.texts(&place)?,
                "Pooling" => settings.pool(&place.join("config.json"))?,
                "Normalize" => {}
                // Of tokens before they are pooled, or of vectors of length 1, it would give others.
                "Dense" if matches!(behind, Some("Pooling" | "Dense")) => {
                    match Dense::read(folder, &place, module["path"].as_str().unwrap_or_default())? {
                        Ok(dense) => settings.dense.push(dense),
                        Err(why) => settings.note(&place.display().to_string(), why),
                    }
                }
                other => {
                    let why = format!("the checkpoint goes on with a layer `{other}` after its model");
                    settings.note(MODULES, format!("{why}, which is not known"));
                }
            }
            behind = kind.rsplit('.').next();
        }
        if settings.unknown.is_some() {
            // Who pools in a way of their own does without what is behind the pooling, all of it.
            settings.dense.clear();
        }
        Ok(settings)
    }

    /// GGUF's number of the pooling: 1 for the mean, 2 for the first token, 3 for the last. `None` where no file says.
    ///
    /// # Errors
    /// If there is a layer after the model, or a pooling, that is not known. The other settings hold all the same.
    pub fn pooling_type(&self) -> Result<Option<u32>> {
        match &self.unknown {
            Some((at, why)) => Err(Error::unsupported(at, why.clone())),
            None => Ok(self.pooling),
        }
    }

    fn note(&mut self, at: &str, why: String) {
        self.unknown.get_or_insert_with(|| (at.to_owned(), why));
    }

    fn prompt(&mut self, path: &Path) -> Result<()> {
        let config = json_of(path)?;
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

    fn texts(&mut self, place: &Path) -> Result<()> {
        let config = json_of(&place.join("sentence_bert_config.json"))?;
        self.lower_case = config["do_lower_case"].as_bool().unwrap_or(false);
        let call = &config["processing_kwargs"]["text"]["max_length"];
        self.max_tokens = match limit(call).or_else(|| limit(&config["max_seq_length"])) {
            None => tokenizer_limit(place)?,
            own => own,
        };
        Ok(())
    }

    fn pool(&mut self, path: &Path) -> Result<()> {
        let config = json_of(path)?;
        self.prompt_left_out = config["include_prompt"] == Value::Bool(false);
        let modes = modes(&config);
        let known = |mode: &str| MODES.iter().find(|(name, flag, _)| [*name, *flag].contains(&mode));
        let unknown = match modes.as_deref() {
            Some([]) => return Ok(()),
            Some([mode]) => match known(mode) {
                Some((_, _, number)) => {
                    self.pooling = Some(*number);
                    return Ok(());
                }
                None => (*mode).to_owned(),
            },
            Some(several) => several.join(" with "),
            None => config["pooling_mode"].to_string(),
        };
        let known: Vec<&str> = MODES.iter().map(|(name, ..)| *name).collect();
        let why = format!("the pooling {unknown} is not known; known is one of {}", known.join(", "));
        self.note(&path.display().to_string(), why);
        Ok(())
    }
}

/// The names of the poolings whose vectors stand side by side, none where the file does not say. `None` if what it says are no
/// names.
fn modes(config: &Value) -> Option<Vec<&str>> {
    match &config["pooling_mode"] {
        Value::Null => {
            let flags = config.as_object().into_iter().flatten();
            let on = flags.filter(|(_, on)| on.as_bool() == Some(true));
            Some(on.filter_map(|(key, _)| key.strip_prefix("pooling_mode_")).collect())
        }
        Value::Array(names) if !names.is_empty() => names.iter().map(Value::as_str).collect(),
        name => Some(vec![name.as_str()?]),
    }
}

/// What a tokenizer takes of a text; those that take all of it say 10^30.
fn tokenizer_limit(place: &Path) -> Result<Option<usize>> {
    Ok(limit(&json_of(&place.join("tokenizer_config.json"))?["model_max_length"]))
}

fn limit(tokens: &Value) -> Option<usize> {
    tokens.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0)
}

/// The JSON of a file, null where there is none.
pub(crate) fn json_of(path: &Path) -> Result<Value> {
    if path.is_file() { json::read(path) } else { Ok(Value::Null) }
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
        for (_, mode, number) in MODES {
            let plain = read(&[("1_Pooling/config.json", pooling(mode))]).unwrap();
            assert_eq!(plain.pooling_type().unwrap(), Some(*number));
            let modules =
                json!([module("Transformer", ""), module("Pooling", "elsewhere"), module("Normalize", "n")]);
            let all = read(&[
                ("modules.json", modules),
                ("elsewhere/config.json", pooling(mode)),
                ("1_Pooling/config.json", pooling("max_tokens")),
                ("sentence_bert_config.json", json!({"max_seq_length": 256, "do_lower_case": true})),
            ]);
            let all = all.unwrap();
            assert_eq!((all.pooling_type().unwrap(), all.max_tokens), (Some(*number), Some(256)));
            assert_eq!((plain.lower_case, all.lower_case), (false, true));
        }
        let newer = read(&[("1_Pooling/config.json", json!({"include_prompt": false}))]).unwrap();
        assert_eq!((newer.pooling_type().unwrap(), newer.prompt_left_out), (None, true));
        assert_eq!(read(&[("1_Pooling/config.json", json!({}))]).unwrap().pooling_type().unwrap(), None);
    }

    #[test]
    fn a_pooling_is_a_name_or_a_list_of_one_and_outdoes_the_flags() {
        let read = |config: Value| read(&[("1_Pooling/config.json", config)]).unwrap();
        for (config, number) in [
            (json!({"pooling_mode": "cls"}), 2),
            (json!({"pooling_mode": ["lasttoken"]}), 3),
            (json!({"pooling_mode": "mean", "pooling_mode_cls_token": true}), 1),
            (json!({"pooling_mode": null, "pooling_mode_cls_token": true}), 2),
        ] {
            let settings = read(config.clone());
            assert_eq!(settings.pooling_type().unwrap(), Some(number), "{config}");
            assert!(!settings.prompt_left_out);
        }
        for (mode, word) in [
            (json!(["cls", "mean"]), "the pooling cls with mean"),
            (json!(["max"]), "the pooling max"),
            (json!([]), "the pooling []"),
            (json!(["cls", 3]), "the pooling [\"cls\",3]"),
            (json!(true), "the pooling true"),
        ] {
            let e = read(json!({"pooling_mode": mode})).pooling_type().unwrap_err().to_string();
            assert!(e.contains(&format!("{word} is not known; known is one of mean, cls, lasttoken")), "{e}");
        }
    }

    #[test]
    fn a_text_ends_where_the_first_of_three_files_says() {
        let tokenizer = |most: Value| ("tokenizer_config.json", json!({"model_max_length": most}));
        let modules = ("modules.json", json!([module("Transformer", "")]));
        let most = |own: Value, most: Value| {
            let own = ("sentence_bert_config.json", own);
            read(&[modules.clone(), own, tokenizer(most)]).unwrap().max_tokens
        };
        let call = json!({"max_seq_length": 8, "processing_kwargs": {"text": {"max_length": 7}}});
        assert_eq!(most(call, json!(9)), Some(7));
        assert_eq!(most(json!({"max_seq_length": 8}), json!(9)), Some(8));
        assert_eq!(most(json!({"max_seq_length": null}), json!(9)), Some(9));
        assert_eq!(most(json!({}), json!(1e30)), None);
        assert_eq!(read(&[tokenizer(json!(9))]).unwrap().max_tokens, Some(9));
    }

    #[test]
    fn what_is_not_known_leaves_the_rest_as_it_is() {
        let settings = read(&[
            (
                "modules.json",
                json!([module("Dense", "d"), module("Transformer", ""), module("Pooling", "p")]),
            ),
            ("p/config.json", json!({"pooling_mode": "max", "include_prompt": false})),
            ("sentence_bert_config.json", json!({"max_seq_length": 8, "do_lower_case": true})),
            ("config_sentence_transformers.json", json!({"prompts": {"query": "q: "}})),
        ]);
        let settings = settings.unwrap();
        assert!(settings.pooling_type().unwrap_err().to_string().contains("a layer `Dense`"));
        assert_eq!((settings.max_tokens, settings.lower_case), (Some(8), true));
        assert_eq!((settings.prompts.len(), settings.prompt_left_out), (1, true));
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
            let e = read(&files).and_then(|settings| settings.pooling_type()).unwrap_err().to_string();
            assert!(e.contains(word), "{e}");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("modules.json"), "[").unwrap();
        assert!(
            SentenceSettings::read(folder.path()).unwrap_err().to_string().contains("reading JSON failed")
        );
    }
}
