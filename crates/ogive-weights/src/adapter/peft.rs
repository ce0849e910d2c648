//! Adapters as PEFT saves them: `adapter_config.json` beside `adapter_model.safetensors`.

use super::{DOWN, UP, Update, Updates};
use crate::formats::Formats;
use crate::json;
use crate::safetensors::Safetensors;
use ogive_tensor::{Config, Error, Result, Source};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// The same by `torch.save`, which runs whatever is in it.
const PICKLED: &str = "adapter_model.bin";
/// A matrix as it is without its update. PEFT saves those of tables of tokens and heads as well.
const BASE: &str = ".base_layer.weight";
/// What PEFT puts around a model.
const AROUND: &str = "base_model.model.";

/// Settings that change what an update is, or bring more than updates; off where they are not there, `null`, `false`, `"none"` or empty.
const NOT_KNOWN: &[&str] = &[
    "alora_invocation_tokens",
    "arrow_config",
    "bias",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "use_dora",
    "use_qalora",
];

/// Beginnings that take something from the model's own weights: what is saved is right for those alone.
const TAKES_FROM_WEIGHTS: &[&str] = &["corda", "loftq", "olora", "pissa"];

/// Reads a folder, or the weights in one.
pub(super) fn read(path: &Path) -> Result<Updates> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let (settings, weights) = (folder.join(CONFIG), folder.join(WEIGHTS));
    if !settings.is_file() {
        let why =
            format!("there is no {CONFIG}, which PEFT writes beside an adapter, nor is this a GGUF file");
        return Err(Error::invalid(&folder.display().to_string(), why));
    }
    if !weights.is_file() {
        let pickled = folder.join(PICKLED).is_file();
        let but =
            if pickled { format!(" but {PICKLED}, which is not read: save it again") } else { String::new() };
        return Err(Error::invalid(&folder.display().to_string(), format!("there is no {WEIGHTS}{but}")));
    }
    let scaling = Scaling::of(&Config(json::read_settings(&settings)?))?;
    let file = Safetensors::open_file(&weights, gguf_file::map_file, Formats::default())?;
    let names: Vec<&str> = file.names().collect();
    let matrices = names.iter().map(|name| matrix(name)).collect::<Result<BTreeSet<_>>>()?;
    let update = |name: &str| {
        let get = |leaf: &str| file.get(&format!("{AROUND}{name}{leaf}"));
        let (down, up) = (get(DOWN)?, get(UP)?);
        let factor = scaling.factor(name, down.shape[1])?;
        // What is changed is the model's own. Another size of vocabulary would show in the update too.
        if let Some(base) = ogive_tensor::optional(get(BASE))?
            && base.shape != [1, up.shape[1], down.shape[2]]
        {
            return Err(Error::invalid(
                &base.name,
                format!("{:?} is no matrix of its update's size", base.shape),
            ));
        }
        Ok((name.to_owned(), Update::new(name, down, up, factor)?))
    };
    matrices.into_iter().map(update).collect()
}

/// The matrix that a tensor of the file changes.
fn matrix(name: &str) -> Result<&str> {
    let own = name
        .strip_prefix(AROUND)
        .and_then(|rest| [DOWN, UP, BASE].into_iter().find_map(|l| rest.strip_suffix(l)));
    own.ok_or_else(|| {
        let why =
            "this is no update of a matrix (`lora_A` or `lora_B`), and nothing else of an adapter is known";
        Error::unsupported(name, why)
    })
}

/// What updates are multiplied by.
#[derive(Debug)]
struct Scaling {
    rank: usize,
    alpha: f64,
    /// By the root of the rank (Kalajdzievski 2023, <https://arxiv.org/abs/2312.03732>).
    by_root: bool,
    ranks: Vec<(String, f64)>,
    alphas: Vec<(String, f64)>,
}

impl Scaling {
    fn of(c: &Config) -> Result<Self> {
        let kind = c.opt_str("peft_type")?.unwrap_or("LORA");
        if kind != "LORA" {
            return Err(Error::unsupported("peft_type", format!("`{kind}`; known is LORA")));
        }
        if let Some(key) = NOT_KNOWN.iter().find(|key| !is_off(c.0.get(**key))) {
            return Err(Error::unsupported(key, format!("{}: not known of an adapter", c.0[*key])));
        }
        if let Some(Value::String(how)) = c.0.get("init_lora_weights")
            && TAKES_FROM_WEIGHTS.iter().any(|known| how.to_lowercase().starts_with(known))
        {
            let why = format!("`{how}` takes from the model's weights, which are not here as they were then");
            let todo = "save the adapter with `path_initial_model_for_weight_conversion`, which makes a plain one of it";
            return Err(Error::unsupported("init_lora_weights", format!("{why}; {todo}")));
        }
        Ok(Self {
            rank: c.usize_or("r", 8)?,
            alpha: f64::from(c.f32_or("lora_alpha", 8.0)?),
            by_root: c.bool_or("use_rslora", false)?,
            ranks: pattern(c, "rank_pattern")?,
            alphas: pattern(c, "alpha_pattern")?,
        })
    }

    /// That of the matrix `name`, whose update has this rank.
    fn factor(&self, name: &str, rank: usize) -> Result<f32> {
        let said = of_pattern(&self.ranks, name)?.unwrap_or(self.rank as f64);
        if said != rank as f64 {
            let why = format!("an update of rank {rank}, where {CONFIG} says {said}");
            return Err(Error::invalid(name, why));
        }
        let alpha = of_pattern(&self.alphas, name)?.unwrap_or(self.alpha);
        Ok((alpha / if self.by_root { said.sqrt() } else { said }) as f32)
    }
}

fn is_off(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::String(word)) => word == "none",
        Some(Value::Array(all)) => all.is_empty(),
        Some(Value::Object(all)) => all.is_empty(),
        Some(_) => false,
    }
}

/// Numbers by what names of matrices end in. The keys are regular expressions, of which plain names are understood.
fn pattern(c: &Config, key: &str) -> Result<Vec<(String, f64)>> {
    let entries = match c.0.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(Error::invalid(key, format!("{other} is no object"))),
    };
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b));
    let entry = |(name, value): (&String, &Value)| {
        let number =
            value.as_f64().ok_or_else(|| Error::invalid(key, format!("`{name}`: {value} is no number")))?;
        match plain(name) {
            true => Ok((name.clone(), number)),
            false => Err(Error::unsupported(key, format!("`{name}`: of patterns, plain names are known"))),
        }
    };
    entries.iter().map(entry).collect()
}

/// That of the name that `matrix` ends in, if there is one.
fn of_pattern(all: &[(String, f64)], matrix: &str) -> Result<Option<f64>> {
    let ends =
        |end: &str| matrix.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let mut found = all.iter().filter(|(end, _)| ends(end)).map(|(_, value)| *value);
    let first = found.next();
    // PEFT takes the first as they stand in the file.
    match found.any(|other| Some(other) != first) {
        true => {
            Err(Error::unsupported(matrix, "two patterns of the adapter's settings are for it, and differ"))
        }
        false => Ok(first),
    }
}
