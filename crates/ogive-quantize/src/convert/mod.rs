//! A Hugging Face folder as a GGUF file: names, settings, vocabulary.
//!
//! The way back from what `ogive-weights` reads, and by its rules: names and changes are its translations, reversed. What
//! was written is read back before it is believed, the settings by the translation and the vocabulary by the tokenizer, so
//! that a model which GGUF cannot say is an error here and not a model that answers differently.

mod apertus;
mod bamba;
mod check;
mod exaone4;
mod falcon_h1;
mod gemma3n;
mod gemma4;
mod gemma_embedding;
mod gptneox;
mod granite;
mod hunyuan;
mod hybrid;
mod jamba;
mod latent;
mod lfm2;
mod llama4;
mod mamba;
mod mamba2;
mod mixtures;
pub(crate) mod mmproj;
mod nemotron_h;
mod phimoe;
mod pieces;
mod roberta;
mod rope;
mod seeing;
mod settings;
mod space;
mod stablelm;
mod tensors;
mod unigram;
mod vocab;

use crate::input::Tensor;
use crate::{Error, Result};
use gguf_file::{Metadata, Value};
use ogive_tensor::Config;
use ogive_weights::{Checkpoint, SentenceSettings, Translation, is_float8, translations};
use std::path::Path;

/// Hugging Face's classes and GGUF's architectures.
const CLASSES: &[(&str, &str)] = &[
    ("LlamaForCausalLM", "llama"),
    ("Llama4ForCausalLM", llama4::ARCHITECTURE),
    ("MistralForCausalLM", "llama"),
    ("MixtralForCausalLM", "llama"),
    ("Qwen2ForCausalLM", "qwen2"),
    ("Qwen3ForCausalLM", "qwen3"),
    ("Qwen2MoeForCausalLM", "qwen2moe"),
    ("Qwen3MoeForCausalLM", "qwen3moe"),
    ("Qwen2VLForConditionalGeneration", seeing::QWEN2),
    ("Qwen2_5_VLForConditionalGeneration", seeing::QWEN2),
    ("Qwen3VLForConditionalGeneration", seeing::QWEN3),
    ("Qwen3NextForCausalLM", hybrid::NEXT),
    ("Qwen3_5ForCausalLM", hybrid::DENSE),
    ("Qwen3_5ForConditionalGeneration", hybrid::DENSE),
    ("Qwen3_5MoeForCausalLM", hybrid::MIXTURE),
    ("Qwen3_5MoeForConditionalGeneration", hybrid::MIXTURE),
    ("Lfm2ForCausalLM", lfm2::DENSE),
    ("Lfm2MoeForCausalLM", lfm2::MIXTURE),
    ("NemotronHForCausalLM", nemotron_h::DENSE),
    ("FalconH1ForCausalLM", falcon_h1::ARCHITECTURE),
    ("MambaForCausalLM", mamba::ARCHITECTURE),
    ("FalconMambaForCausalLM", mamba::ARCHITECTURE),
    ("Mamba2ForCausalLM", mamba2::ARCHITECTURE),
    ("DeepseekV2ForCausalLM", latent::ARCHITECTURE),
    ("DeepseekV3ForCausalLM", latent::ARCHITECTURE),
    ("GemmaForCausalLM", "gemma"),
    ("Gemma2ForCausalLM", "gemma2"),
    ("Gemma3ForCausalLM", "gemma3"),
    ("Gemma3TextModel", gemma_embedding::ARCHITECTURE),
    ("Gemma3nForCausalLM", gemma3n::ARCHITECTURE),
    ("Gemma3nForConditionalGeneration", gemma3n::ARCHITECTURE),
    ("Gemma4ForCausalLM", gemma4::ARCHITECTURE),
    ("Gemma4ForConditionalGeneration", gemma4::ARCHITECTURE),
    ("Phi3ForCausalLM", "phi3"),
    ("PhimoeForCausalLM", phimoe::ARCHITECTURE),
    ("PhiMoEForCausalLM", phimoe::ARCHITECTURE),
    ("Olmo2ForCausalLM", "olmo2"),
    ("Olmo3ForCausalLM", "olmo2"),
    ("OlmoeForCausalLM", "olmoe"),
    ("GraniteForCausalLM", granite::DENSE),
    ("GraniteMoeForCausalLM", granite::MIXTURE),
    ("GraniteMoeSharedForCausalLM", granite::MIXTURE),
    ("GraniteMoeHybridForCausalLM", granite::HYBRID),
    ("SmolLM3ForCausalLM", "smollm3"),
    ("GlmForCausalLM", "chatglm"),
    ("Glm4ForCausalLM", "glm4"),
    ("Glm4MoeForCausalLM", mixtures::GLM),
    ("MiniMaxM2ForCausalLM", mixtures::MINIMAX),
    ("SeedOssForCausalLM", "seed_oss"),
    ("Ernie4_5ForCausalLM", "ernie4_5"),
    ("Ernie4_5_MoeForCausalLM", mixtures::ERNIE),
    ("Exaone4ForCausalLM", exaone4::ARCHITECTURE),
    ("CohereForCausalLM", "command-r"),
    ("Cohere2ForCausalLM", "cohere2"),
    ("Starcoder2ForCausalLM", "starcoder2"),
    ("PhiForCausalLM", "phi2"),
    ("StableLmForCausalLM", stablelm::ARCHITECTURE),
    ("ApertusForCausalLM", apertus::ARCHITECTURE),
    ("ArceeForCausalLM", "arcee"),
    ("HunYuanDenseV1ForCausalLM", hunyuan::DENSE),
    ("HunYuanMoEV1ForCausalLM", hunyuan::MIXTURE),
    ("GPT2LMHeadModel", "gpt2"),
    ("GPTNeoXForCausalLM", gptneox::ARCHITECTURE),
    ("JambaForCausalLM", jamba::ARCHITECTURE),
    ("BambaForCausalLM", granite::HYBRID),
    ("Dots1ForCausalLM", mixtures::DOTS),
    ("BertModel", "bert"),
    ("BertForMaskedLM", "bert"),
    ("BertForPreTraining", "bert"),
    ("BertForSequenceClassification", "bert"),
    ("CamembertModel", "bert"),
    ("CamembertForMaskedLM", "bert"),
    ("CamembertForSequenceClassification", "bert"),
    ("RobertaModel", "bert"),
    ("RobertaForMaskedLM", "bert"),
    ("RobertaForSequenceClassification", "bert"),
    ("XLMRobertaModel", "bert"),
    ("XLMRobertaForMaskedLM", "bert"),
    ("XLMRobertaForSequenceClassification", "bert"),
    ("NomicBertModel", "nomic-bert"),
    ("ModernBertModel", roberta::MODERN),
    ("ModernBertForMaskedLM", roberta::MODERN),
    ("ModernBertForSequenceClassification", roberta::MODERN),
];

/// What is converted, and what it becomes.
pub(crate) struct Model<'a> {
    pub(crate) config: &'a Config,
    pub(crate) class: &'a str,
    pub(crate) architecture: &'static str,
    pub(crate) translation: Translation,
    /// Whether the checkpoint has what it sees with too.
    pub(crate) sees: bool,
}

impl Model<'_> {
    /// Whether it gives hidden states and no logits.
    fn is_encoder(&self) -> bool {
        self.architecture.ends_with("bert")
    }
}

/// Metadata that are being collected.
pub(crate) struct Keys<'a> {
    pub(crate) metadata: Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    /// Sets a key below the architecture.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
    }
}

/// What a folder becomes: metadata, tensors, and notes for whoever converts it.
pub(crate) type Converted = (Metadata, Vec<Tensor>, Vec<String>);

pub(crate) fn convert(checkpoint: &mut Checkpoint, folder: &Path) -> Result<Converted> {
    let sees = seeing::text_alone(checkpoint)?;
    hybrid::only_known(checkpoint);
    let Checkpoint { config, architecture: class, source, .. } = &*checkpoint;
    let known = || {
        let seeing = seeing::CLASSES.iter().map(|(class, _)| class);
        let mut known: Vec<&str> = CLASSES.iter().map(|(class, _)| class).chain(seeing).copied().collect();
        known.sort_unstable();
        known.dedup();
        Error::convert(class, format!("this architecture is not converted; known are {}", known.join(", ")))
    };
    let architecture = CLASSES.iter().find(|(c, _)| c == class).ok_or_else(known)?.1;
    let by_layers = granite::architecture(class, config)?.or(nemotron_h::architecture(class, config)?);
    let architecture = by_layers.unwrap_or(architecture);
    let config = nemotron_h::settled(architecture, granite::settled(class, config)?);
    let config = hunyuan::settled(class, config)?;
    let config = bamba::settled(class, jamba::settled(class, gptneox::settled(class, config))?)?;
    let config = gemma3n::settled(class, phimoe::settled(class, config)?)?;
    let config = gemma4::settled(class, mamba2::settled(class, falcon_h1::settled(class, config)?))?;
    let config = &mamba::settled(class, llama4::settled(class, config)?)?;
    let translation =
        translations().into_iter().find(|t| t.architecture() == architecture).ok_or_else(known)?;
    let translation = match roberta::judges(class) {
        true => translation,
        false => translation.without("cls").without("cls.norm").without("cls.output"),
    };
    let model = Model { config, class, architecture, translation, sees };
    if config.has("quantization_config") && !is_float8(config) {
        let why = "the weights are packed already, and are not packed again; start from the original model";
        return Err(Error::convert("config.json", why));
    }

    let sentence = SentenceSettings::read(folder)?;
    let pooling = sentence.pooling_type()?;
    let mut tensors = tensors::tensors(&model, &**source)?;
    tensors::complete(&model, &tensors, pooling.is_some())?;
    hybrid::check(&model, &tensors)?;
    granite::check(&model, &tensors)?;
    nemotron_h::check(&model, &tensors)?;
    falcon_h1::check(&model, &tensors)?;
    mamba::check(&model, &tensors)?;
    jamba::check(&model, &tensors)?;
    mamba2::check(&model, &tensors)?;
    gemma3n::check(&model, &tensors)?;
    gemma4::check(&model, &tensors)?;
    llama4::check(&model, &tensors)?;
    stablelm::check(&model, &tensors)?;
    let mut keys = Keys { metadata: Metadata::new(), architecture };
    general(&mut keys.metadata, &model, &tensors, folder)?;
    let factors = settings::set(&mut keys, &model)?;
    apertus::set(&mut keys, &model, &**source)?;
    if let Some(pooling) = pooling {
        keys.set("pooling_type", pooling);
    }
    roberta::set(&mut keys, &model, &tensors)?;
    gemma_embedding::set(&mut keys, &model, &tensors)?;
    check::settings(&model, &keys.metadata, &factors)?;
    tensors::add_factors(&mut tensors, factors);
    let rows = tensors.iter().find(|t| t.name == "token_embd.weight").and_then(|t| t.dims.get(1).copied());
    let rows = rows.ok_or_else(|| Error::convert("token_embd.weight", "the model has no token embedding"))?;
    let notes = vocab::set(&mut keys.metadata, folder, rows, &model)?;
    // Of word pieces a file can say it.
    let lowered = keys.metadata.opt_bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(false);
    if sentence.lower_case && !lowered {
        return refuse("do_lower_case", "GGUF cannot say that texts are lower-cased");
    }
    Ok((keys.metadata, tensors, notes))
}

/// The error for a setting that a GGUF file cannot have.
fn refuse<T>(setting: &str, why: impl Into<String>) -> Result<T> {
    Err(Error::convert(format!("the setting {setting}"), why))
}

/// What each layer is, one of these kinds, where `layer_types` says.
fn layer_types(config: &Config, kinds: &[&'static str]) -> Result<Option<Vec<&'static str>>> {
    let Some(types) = config.opt_strs("layer_types")? else { return Ok(None) };
    let layers = config.usize("num_hidden_layers")?;
    let known = |kind: &String| kinds.iter().copied().find(|known| known == kind);
    match types.iter().map(known).collect::<Option<Vec<_>>>().filter(|all| all.len() == layers) {
        None => refuse("layer_types", format!("it should name one of {kinds:?} for each of {layers} layers")),
        all => Ok(all),
    }
}

fn general(metadata: &mut Metadata, model: &Model<'_>, tensors: &[Tensor], folder: &Path) -> Result<()> {
    metadata
        .set("general.architecture", model.architecture)
        .set("general.type", "model")
        .set("general.name", name_of(folder).unwrap_or_else(|| model.class.to_owned()))
        .set("general.size_label", size_label(tensors));
    Ok(())
}

/// What the folder is called.
fn name_of(folder: &Path) -> Option<String> {
    Some(folder.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The number of weights as llama.cpp's converter puts it: `1.2B`, `8x7B`.
fn size_label(tensors: &[Tensor]) -> String {
    let count = |t: &Tensor| t.dims.iter().product::<u64>();
    let experts = tensors.iter().filter(|t| t.name.contains("_exps.")).filter_map(|t| t.dims.get(2)).max();
    let stacked: u64 = tensors.iter().filter(|t| t.name.contains("_exps.")).map(count).sum();
    let all: u64 = tensors.iter().map(count).sum();
    match experts {
        Some(n) => format!("{n}x{}", rounded(all - stacked + stacked / (*n).max(1))),
        None => rounded(all),
    }
}

fn rounded(weights: u64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")];
    let (scale, unit) = units.into_iter().find(|(s, _)| weights as f64 > *s).unwrap_or((1e3, "K"));
    let value = weights as f64 / scale;
    if value < 9.5 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}
