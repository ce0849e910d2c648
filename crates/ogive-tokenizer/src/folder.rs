//! A tokenizer from a Hugging Face model folder: tokenizer.json, and what the files beside it add.
//!
//! The files overlap and sometimes disagree. Roles (BOS, EOS, ...) come from tokenizer_config.json, then special_tokens_map.json,
//! then by id from generation_config.json and config.json. Whether BOS and EOS are added is `add_bos_token` and `add_eos_token`
//! where tokenizer_config.json says so, and otherwise what tokenizer.json's post-processor does. All end ids that any file
//! names end generation: a model stops at one of them, and the other is an oversight.

use crate::json::{AddedJson, parts};
use crate::pair::Pair;
use crate::tokenizer::Parts;
use crate::{Result, Tokenizer, TokenizerError, vocab_txt};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TokenizerError::Io { path: path.to_owned(), source }),
    }
}

/// A file's JSON, null where there is no file.
fn json(folder: &Path, name: &str) -> Result<Value> {
    match read(&folder.join(name))? {
        None => Ok(Value::Null),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| TokenizerError::json(name, e)),
    }
}

fn text(bytes: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| TokenizerError::Vocabulary(format!("{name} is not UTF-8")))
}

impl Tokenizer {
    /// Opens the tokenizer of a folder that has a `tokenizer.json`, or the `vocab.txt` of the first BERTs.
    ///
    /// # Errors
    /// If there is none, if a file cannot be read or does not parse, and as [`from_json`](Self::from_json).
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let config = json(folder, "tokenizer_config.json")?;
        let map = json(folder, "special_tokens_map.json")?;
        let by_id = [json(folder, "generation_config.json")?, json(folder, "config.json")?];
        let bytes = match read(&folder.join("tokenizer.json"))? {
            Some(bytes) => bytes,
            None => match read(&folder.join("vocab.txt"))?.filter(|_| vocab_txt::is_bert(&config, &by_id[1]))
            {
                Some(lines) => vocab_txt::to_json(&text(lines, "vocab.txt")?, &config)?,
                None => return Err(TokenizerError::NoTokenizerJson { folder: folder.to_owned() }),
            },
        };

        let (mut parts, known) = parts(&bytes, &added_tokens(&config)?)?;
        parts.templates = templates(folder, &config)?;
        let roles = Roles { config: &config, map: &map, by_id: &by_id };
        let mut special = std::mem::take(&mut parts.special);
        let role = |name: &str| roles.find(name, &parts);
        special.bos = role("bos").or(parts.prefix.first().copied());
        special.eos = role("eos").or(parts.suffix.last().copied());
        special.unknown = special.unknown.or_else(|| role("unk"));
        special.separator = role("sep");
        special.padding = role("pad");
        special.mask = role("mask");
        parts.eog = known.complete(&mut special, &roles.ids("eos_token_id", &parts));
        let added = add(&config["add_bos_token"], special.bos, &mut parts.prefix)
            | add(&config["add_eos_token"], special.eos, &mut parts.suffix);
        // What two texts are then is said nowhere.
        parts.pair = parts.pair.filter(|_| !added);
        // Types are for models that are given them.
        if config["model_input_names"]
            .as_array()
            .is_some_and(|names| !names.contains(&"token_type_ids".into()))
        {
            parts.pair = parts.pair.map(Pair::untyped);
        }
        parts.special = special;
        Ok(Self::from_parts(parts))
    }
}

/// Makes `ids` have or lack `id` where the file says which, and tells whether that changed anything.
fn add(wanted: &Value, id: Option<u32>, ids: &mut Vec<u32>) -> bool {
    let before = ids.len();
    match (wanted.as_bool(), id) {
        (Some(true), Some(id)) if !ids.contains(&id) => ids.push(id),
        (Some(false), Some(id)) => ids.retain(|i| *i != id),
        _ => {}
    }
    ids.len() != before
}

/// Where the roles of tokens are written.
struct Roles<'f> {
    config: &'f Value,
    map: &'f Value,
    by_id: &'f [Value; 2],
}

impl Roles<'_> {
    fn find(&self, role: &str, parts: &Parts) -> Option<u32> {
        let name = format!("{role}_token");
        for file in [self.config, self.map] {
            let entry = &file[&name];
            // A text, or an object that has one.
            if let Some(text) = entry.as_str().or(entry["content"].as_str()) {
                match parts.token_id(text) {
                    Some(id) => return Some(id),
                    None => tracing::warn!("{name} is {text:?}, which is no token; ignored"),
                }
            }
        }
        self.ids(&format!("{role}_token_id"), parts).first().copied()
    }

    /// The ids that a key of generation_config.json or config.json names: one, or a list.
    fn ids(&self, key: &str, parts: &Parts) -> Vec<u32> {
        let entries = self.by_id.iter().flat_map(|file| [&file[key], &file["text_config"][key]]);
        let one_or_more = entries.flat_map(|e| e.as_array().map_or(std::slice::from_ref(e), Vec::as_slice));
        one_or_more
            .filter_map(|v| u32::try_from(v.as_u64()?).ok())
            .filter(|id| (*id as usize) < parts.vocab.len())
            .collect()
    }
}

/// `added_tokens_decoder` of tokenizer_config.json: an object of ids and tokens.
fn added_tokens(config: &Value) -> Result<Vec<AddedJson>> {
    let mut tokens = Vec::new();
    for (id, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
        let mut token: AddedJson = serde_json::from_value(token.clone())
            .map_err(|e| TokenizerError::json("added_tokens_decoder of tokenizer_config.json", e))?;
        token.id = id.parse().map_err(|_| {
            TokenizerError::Vocabulary(format!("added_tokens_decoder has {id:?} where an id belongs"))
        })?;
        tokens.push(token);
    }
    Ok(tokens)
}

/// Chat templates: files of their own first, as transformers does, then tokenizer_config.json.
fn templates(folder: &Path, config: &Value) -> Result<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut add = |name: String, template: String| {
        if !found.iter().any(|(n, _)| *n == name) {
            found.push((name, template));
        }
    };
    if let Some(bytes) = read(&folder.join("chat_template.jinja"))? {
        add("default".into(), text(bytes, "chat_template.jinja")?);
    }
    if let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates")) {
        let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "jinja")) {
            if let (Some(name), Some(bytes)) = (path.file_stem(), read(path)?) {
                add(name.to_string_lossy().into_owned(), text(bytes, &path.to_string_lossy())?);
            }
        }
    }
    for file in [config, &json(folder, "chat_template.json")?] {
        match &file["chat_template"] {
            Value::String(template) => add("default".into(), template.clone()),
            Value::Array(list) => {
                for entry in list {
                    if let (Some(name), Some(template)) = (entry["name"].as_str(), entry["template"].as_str())
                    {
                        add(name.to_owned(), template.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}
