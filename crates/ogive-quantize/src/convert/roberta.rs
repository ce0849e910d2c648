//! RoBERTa and its kin as `bert`, ModernBERT, and heads for classes.
//!
//! llama.cpp knows one graph for all: positions begin at the first row of their table, so the rows that no token has are cut off, and a head is a
//! layer `cls`, a tanh and `cls.output`. That is also what a BERT's pooler and classifier are, so they become these, though llama.cpp's own converter
//! leaves the pooler out and its scores are then others.

use super::settings::whole;
use super::tensors::of_one;
use super::{Keys, Model, refuse};
use crate::input::Tensor;
use crate::{Error, Result};
use gguf_file::StringArray;
use ogive_tokenizer::Tokenizer;
use ogive_weights::Change;

/// ModernBERT.
pub(super) const MODERN: &str = "modern-bert";

/// GGUF's number for models that rank texts.
pub(super) const RANK: u32 = 4;

/// Whether a class has a head for classes of texts.
pub(super) fn judges(class: &str) -> bool {
    class.ends_with("ForSequenceClassification")
}

/// Stands before what RoBERTa's kin call a pooler, whatever the file has there.
const KINS: &str = "roberta.";

fn is_kin(class: &str) -> bool {
    ["Camembert", "Roberta", "XLMRoberta"].iter().any(|kin| class.starts_with(kin))
}

/// A tensor's name as `BertForSequenceClassification` has it, or `ModernBertModel`.
pub(super) fn own_name(model: &Model<'_>, name: &str) -> String {
    let places = if model.architecture == MODERN { &["model."][..] } else { &["bert.", "roberta."] };
    let name = places.iter().find_map(|place| name.strip_prefix(place)).unwrap_or(name);
    // What is called so below is the head's layer, and this is none of it.
    if is_kin(model.class) && name.starts_with("pooler.") {
        return format!("{KINS}{name}");
    }
    for (own, usual) in [("classifier.dense.", "pooler.dense."), ("classifier.out_proj.", "classifier.")] {
        if let Some(leaf) = name.strip_prefix(own) {
            return format!("{usual}{leaf}");
        }
    }
    name.to_owned()
}

/// What an encoder has for its training and for other answers than it is converted for.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    let any = |heads: &[&str]| heads.iter().any(|head| name.starts_with(head));
    let others = if model.architecture == MODERN { &["head.", "decoder."][..] } else { &["pooler."] };
    // No class of RoBERTa's kin looks at a pooler for vectors or for classes.
    model.is_encoder() && (any(&["cls.", "lm_head.", KINS]) || !judges(model.class) && any(others))
}

/// The table of positions without rows that no token has.
pub(super) fn positions(model: &Model<'_>) -> Result<Option<Change>> {
    if !is_kin(model.class) {
        return Ok(None);
    }
    let (unused, left) =
        (model.config.usize("pad_token_id")?, model.config.usize("max_position_embeddings")?);
    let unused = unused.saturating_add(1);
    let misfit = || {
        let why = "the table of positions has not as many rows as the settings say";
        ogive_tensor::Error::invalid("position_embeddings", why)
    };
    let fits = move |[experts, rows, cols]: [usize; 3]| {
        (experts == 1 && rows.checked_sub(unused) == Some(left)).then_some([1, left, cols])
    };
    Ok(Some(of_one(misfit, fits, move |table, [_, rows, _]| table.rows(unused..unused + rows))))
}

/// Sets what a head for classes is told by, and refuses a model without one that should have it.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if !judges(model.class) {
        return Ok(());
    }
    let modern = model.architecture == MODERN;
    for name in [
        "cls.weight",
        if modern { "cls.norm.weight" } else { "cls.bias" },
        "cls.output.weight",
        "cls.output.bias",
    ] {
        if tensors.iter().all(|t| t.name != name) {
            let why = "the folder has none that becomes it, and the model judges texts by it; is the download complete?";
            return Err(Error::convert(format!("the tensor {name}"), why));
        }
    }
    let out = tensors.iter().find(|t| t.name == "cls.output.weight");
    let classes = out.and_then(|t| t.dims.get(1)).copied().unwrap_or(1);
    let named = |i: u64| model.config.0["id2label"][i.to_string()].as_str().map(ToOwned::to_owned);
    // More than a file has rows for are never asked for.
    let labels = (0..classes).map(|i| named(i).unwrap_or_else(|| format!("LABEL_{i}")));
    keys.set("classifier.output_labels", labels.collect::<StringArray>());
    keys.set("pooling_type", RANK);
    // llama.cpp's readers give a head's numbers as they are, and GGUF has no key for what is made of them.
    if let Some(kind) = model.config.opt_str("problem_type")? {
        keys.metadata.set("ogive.classifier.problem_type", kind);
    }
    if modern {
        // The class's own numbers: what its reader knows is checked when settings are read back.
        let mean = model.config.opt_str("classifier_pooling")? == Some("mean");
        keys.set("classifier.pooling_type", if mean { 1_u32 } else { 2 });
    }
    Ok(())
}

/// Sets what a ModernBERT has besides.
pub(super) fn set_modern(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let c = model.config;
    for bias in ["attention_bias", "mlp_bias", "norm_bias", "classifier_bias"] {
        if c.bool_or(bias, false)? {
            return refuse(bias, "GGUF has no such biases for this architecture");
        }
    }
    if c.has("rope_parameters") {
        return refuse("rope_parameters", "they are in a form that is not known");
    }
    match c.opt_str("hidden_activation")?.unwrap_or("gelu") {
        "gelu" => {}
        "silu" => keys.set("hidden_activation", "silu"),
        // Its `relu` is not gated.
        "relu" => keys.set("hidden_activation", "reglu"),
        _ => return refuse("hidden_activation", "GGUF knows gelu, silu and relu for this architecture"),
    }
    if c.opt_str("classifier_activation")?.is_some_and(|act| act != "gelu") && judges(model.class) {
        return refuse("classifier_activation", "GGUF knows gelu for this architecture");
    }
    keys.set("attention.layer_norm_epsilon", c.f32_or("norm_eps", 1e-5)?);
    keys.set("attention.sliding_window", whole("local_attention", c.usize_or("local_attention", 128)?)?);
    let every = c.usize_or("global_attn_every_n_layers", 3)?;
    keys.set("attention.sliding_window_pattern", whole("global_attn_every_n_layers", every)?);
    let thetas =
        [("global_rope_theta", "rope_theta", 160_000.0), ("local_rope_theta", "rope_local_base_freq", 1e4)];
    for ((own, later, usual), key) in thetas.into_iter().zip(["rope.freq_base", "rope.freq_base_swa"]) {
        keys.set(key, c.opt_f32(own)?.or(c.opt_f32(later)?).unwrap_or(usual));
    }
    Ok(())
}

/// Whether another separator stands between two texts. `None` where a file cannot say how they are one, with types of tokens or without.
pub(super) fn separates(tokenizer: &Tokenizer) -> Option<bool> {
    let ([before, after], (between, types)) = (tokenizer.around(), tokenizer.pair(&[], &[])?);
    let plain = [before, after, after].concat();
    let separator: Vec<u32> = tokenizer.special().separator.into_iter().collect();
    match types.iter().all(|kind| *kind == 0) {
        _ if between == plain => Some(false),
        true if between == [before, after, &separator, after].concat() => Some(true),
        _ => None,
    }
}

/// That two texts are one in the file that was made as they are in the folder, where the model takes such.
pub(super) fn check_pairs(model: &Model<'_>, tokenizer: &Tokenizer, made: &Tokenizer) -> Result<()> {
    // ModernBERT has no types, whatever its tokenizer says, and one type is none.
    let class = model.class;
    let typed = !class.starts_with("ModernBert") && model.config.opt_usize("type_vocab_size")? != Some(1);
    // Ids that both have: what is asked is what stands around them.
    let of = |tokenizer: &Tokenizer| {
        tokenizer.pair(&[0, 0], &[0, 0, 0]).map(|(ids, types)| (ids, typed.then_some(types)))
    };
    match judges(class) && (of(tokenizer).is_none() || of(tokenizer) != of(made)) {
        true => refuse("post_processor", "GGUF cannot say how two texts are one, as this tokenizer has it"),
        false => Ok(()),
    }
}
