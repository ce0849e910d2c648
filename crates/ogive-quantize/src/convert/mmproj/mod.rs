//! What a model sees with, as llama.cpp keeps it: a GGUF file of its own (`mmproj`), of the architecture `clip`.
//!
//! Names are those of `ogive-weights`' translations, reversed, and settings are read back by them, as a text's are. Two things are not as llama.cpp's
//! converter has them. The epsilon of norms is that of the tower's class, where the converter writes the text's for Qwen's. And first convolutions are
//! kept in single precision whatever the format, as learned places are: they are a thousandth of the file, and see every pixel.

mod gemma3;
mod idefics3;
mod internvl;
mod llava;
mod pixtral;
mod qwen_vl;

use super::{Keys, check, name_of, refuse, seeing, settings::whole, tensors};
use crate::input::{Piece, Tensor};
use crate::{Error, Result};
use gguf_file::{GgmlType, Gguf, GgufWriter, Metadata};
use ogive_tensor::{Config, Source, WeightInfo};
use ogive_weights::{Change, Checkpoint, Translation, is_float8, translations};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// What a family has for others to go by.
struct Family {
    class: &'static str,
    /// The type of its tower, where the class goes with several.
    tower: Option<&'static str>,
    /// GGUF's name of it.
    projector: &'static str,
    /// Settings of the tower that are taken for granted.
    usual: &'static [(&'static str, usize)],
    /// Means and deviations of colours where the folder does not say.
    colours: [[f32; 3]; 2],
    /// Sets the family's own keys.
    set: fn(&mut Keys<'_>, &Tower<'_>) -> Result<()>,
    /// What tensors a weight becomes, by its name as the class has it: none if readers do not need it, and `None` if GGUF has no name for it.
    parts: fn(&Tower<'_>, &str) -> Result<Option<Vec<Part>>>,
    /// Tensors that there must be besides a block's.
    needed: &'static [&'static str],
}

const FAMILIES: &[Family] = &[
    gemma3::GEMMA3,
    qwen_vl::QWEN2,
    qwen_vl::QWEN2_5,
    qwen_vl::QWEN3,
    qwen_vl::QWEN3_MOE,
    qwen_vl::QWEN3_5,
    qwen_vl::QWEN3_5_MOE,
    pixtral::PIXTRAL,
    pixtral::MISTRAL3,
    idefics3::IDEFICS3,
    idefics3::SMOLVLM,
    internvl::INTERNVL,
    llava::LLAVA,
];

/// Colours of many towers: every value between -1 and 1.
const HALVES: [[f32; 3]; 2] = [[0.5; 3]; 2];
/// Those of the pictures that OpenAI's CLIP was trained on.
const CLIP: [[f32; 3]; 2] =
    [[0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]];
/// Those of ImageNet.
const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

/// What all towers of SigLIP's set; gives the pixels of an image's side.
fn siglip(keys: &mut Keys<'_>, tower: &Tower<'_>) -> Result<usize> {
    let (v, setting) = (&tower.vision, "image_size");
    let image = v.usize(setting)?;
    keys.set(setting, whole(setting, image)?);
    keys.set("attention.layer_norm_epsilon", v.f32_or("layer_norm_eps", 1e-6)?);
    keys.metadata.set("clip.use_gelu", true);
    Ok(image)
}

/// What is converted.
struct Tower<'a> {
    family: &'static Family,
    config: &'a Config,
    /// Its `vision_config`, with what is taken for granted.
    vision: Config,
    /// The settings of the image processor.
    images: Config,
    translation: Translation,
    /// Elements of a patch's row.
    dim: usize,
    patch: usize,
}

/// A tensor of the file: its name, how it is made of a weight, and its dimensions, fastest first, where the weight's do not say them.
struct Part {
    name: String,
    change: Option<Change>,
    dims: Option<Vec<u64>>,
}

pub(crate) fn convert(checkpoint: &Checkpoint, folder: &Path) -> Result<(Metadata, Vec<Tensor>)> {
    let Checkpoint { config, architecture: class, source, .. } = checkpoint;
    if FAMILIES.iter().any(|family| family.class == class) && !config.has("vision_config") {
        return refuse("vision_config", "there is none: the model does not see");
    }
    let mut vision = config.at("vision_config");
    let kind = vision.opt_str("model_type")?;
    // A tower that is not named is CLIP's.
    let is = |tower: &str| kind.map_or(tower == "clip_vision_model", |kind| kind == tower);
    let fits = |family: &&Family| family.class == class && family.tower.is_none_or(is);
    let family = FAMILIES.iter().find(fits).ok_or_else(|| {
        let mut known: Vec<&str> = FAMILIES.iter().map(|family| family.class).collect();
        known.dedup();
        let with = kind.map(|kind| format!(" with a tower of type `{kind}`")).unwrap_or_default();
        let why = format!(
            "what models of this class{with} see with is not converted; known are {}",
            known.join(", ")
        );
        Error::convert(class, why)
    })?;
    if config.has("quantization_config") && !is_float8(config) {
        let why = "the weights are packed already, and are not packed again; start from the original model";
        return Err(Error::convert("config.json", why));
    }
    let known = || Error::convert(class, "there is no translation of its projector");
    let translation = translations().into_iter().find(|t| t.projector() == Some(family.projector));
    fill(&mut vision, family.usual);
    let dim = vision.usize(if vision.has("embed_dim") { "embed_dim" } else { "hidden_size" })?;
    let patch = vision.usize("patch_size")?;
    let (images, translation) = (images(folder)?, translation.ok_or_else(known)?);
    let tower = Tower { family, config, vision, images, translation, dim, patch };
    let mut tensors = tower.tensors(&**source)?;
    let mut keys = Keys { metadata: Metadata::new(), architecture: "clip.vision" };
    tower.set(&mut keys, folder, &tensors)?;
    tower.check(&keys.metadata, &tensors)?;
    if family.projector == pixtral::PIXTRAL.projector {
        let (table, part) = pixtral::row_end(&**source, folder)?;
        tensors.push(tower.tensor(&table, part)?);
    }
    Ok((keys.metadata, tensors))
}

/// Fills in what is taken for granted. Sizes of images and patches that stand in lists of two become one number, where both are the same.
fn fill(vision: &mut Config, usual: &[(&str, usize)]) {
    vision.fill(usual.iter().map(|(key, value)| (*key, Value::from(*value))));
    let Some(settings) = vision.0.as_object_mut() else { return };
    for key in ["image_size", "patch_size"] {
        let side = settings.get(key).and_then(|value| match value.as_array().map(Vec::as_slice) {
            Some([height, width]) if height == width => Some(height.clone()),
            _ => None,
        });
        settings.extend(side.map(|side| (key.to_owned(), side)));
    }
}

impl Tower<'_> {
    fn tensors(&self, source: &dyn Source) -> Result<Vec<Tensor>> {
        if let Some(name) = source.left_out().iter().find(|name| seeing::is_of_tower(name)) {
            // It fails, and says of which type the elements are.
            source.get(name)?;
        }
        let mut tensors = Vec::new();
        for info in source.tensors().iter().filter(|info| seeing::is_of_tower(&info.name)) {
            // As the last versions of transformers have it.
            let bare = info.name.strip_prefix("model.").unwrap_or(&info.name);
            if bare.ends_with(".position_ids") || bare.starts_with("vision_tower.vision_model.head.") {
                continue;
            }
            let name = format!("model.{bare}");
            let parts = match (self.family.parts)(self, &name)? {
                Some(parts) => parts,
                None => {
                    let why = format!("GGUF has no name for it with the projector {}", self.family.projector);
                    return Err(Error::convert(format!("the tensor {}", info.name), why));
                }
            };
            for part in parts {
                tensors.push(self.tensor(info, part)?);
            }
        }
        tensors.sort_by_key(|t| place(&t.name));
        self.complete(&tensors)?;
        Ok(tensors)
    }

    /// The tensor that has only another name; one that has none in GGUF is none.
    fn renamed(&self, name: &str) -> Option<Part> {
        let (to, change) = self.translation.gguf_name(name)?;
        Some(Part { name: to, change, dims: None })
    }

    /// The same of towers whose first convolution is the one tensor of more than three dimensions.
    fn convolved(&self, name: &str) -> Option<Vec<Part>> {
        let part = self.renamed(name)?;
        let dims = (part.name == "v.patch_embd.weight").then(|| self.convolution());
        Some(vec![Part { dims, ..part }])
    }

    fn tensor(&self, info: &WeightInfo, part: Part) -> Result<Tensor> {
        let made = match &part.change {
            Some(change) => {
                change.info(std::slice::from_ref(info), self.config).map_err(|e| e.within(&info.name))?
            }
            None => info.clone(),
        };
        let own = tensors::dims(made.shape);
        let count = |dims: &[u64]| dims.iter().try_fold(1_u64, |n, d| n.checked_mul(*d));
        let dims = part.dims.unwrap_or_else(|| own.clone());
        if count(&dims) != count(&own) {
            let why =
                format!("{:?} in place of {dims:?}; do weights and config.json belong together?", made.shape);
            return Err(Error::convert(format!("the tensor {}", info.name), why));
        }
        let pieces = vec![Piece::Named(info.name.clone(), part.change)];
        Ok(Tensor { name: part.name, dims, ty: tensors::ggml_type(&made)?, pieces })
    }

    /// The dimensions of a convolution over patches, fastest first.
    fn convolution(&self) -> Vec<u64> {
        [self.patch, self.patch, 3, self.dim].map(|n| n as u64).into()
    }

    /// How many blocks there are.
    fn depth(&self) -> Result<usize> {
        Ok(self.vision.usize(if self.vision.has("depth") { "depth" } else { "num_hidden_layers" })?)
    }

    /// How many blocks are read, by `vision_feature_layer`: counted from the input, or from behind as Python does.
    fn blocks_read(&self, usual: i64) -> Result<usize> {
        let (depth, said) = (self.depth()?, self.config.0.get("vision_feature_layer"));
        let one = match said.filter(|said| !said.is_null()) {
            None => Some(usual),
            Some(Value::Array(list)) if list.len() == 1 => list[0].as_i64(),
            Some(said) => said.as_i64(),
        };
        let blocks = one.and_then(|one| match usize::try_from(one) {
            Ok(blocks) => Some(blocks),
            Err(_) => depth.checked_add(1)?.checked_sub(usize::try_from(one.unsigned_abs()).ok()?),
        });
        let why =
            || format!("it should be one of {depth} blocks, and is {}", said.cloned().unwrap_or_default());
        blocks.filter(|n| *n <= depth).map_or_else(|| refuse("vision_feature_layer", why()), Ok)
    }

    /// That every block is there and like the others, and what stands before and behind them: a download that broke off may lack some.
    fn complete(&self, tensors: &[Tensor]) -> Result<()> {
        const OF_BLOCK: [&str; 5] =
            ["ln1.weight", "ln2.weight", "attn_out.weight", "ffn_up.weight", "ffn_down.weight"];
        let has = |name: &str| tensors.iter().any(|t| t.name == name);
        let missing = |what: String| {
            Err(Error::convert(what, "the folder has none that becomes it; is the download complete?"))
        };
        if let Some(name) = self.family.needed.iter().find(|name| !has(name)) {
            return missing(format!("the tensor {name}"));
        }
        let mut blocks: BTreeMap<u64, usize> = BTreeMap::new();
        tensors.iter().filter_map(|t| block(&t.name)).for_each(|n| *blocks.entry(n).or_default() += 1);
        let (depth, most) = (self.depth()? as u64, blocks.values().max().copied().unwrap_or(0));
        // Their number is bounded by that of the tensors.
        for n in 0..depth.min(blocks.len() as u64 + 1) {
            let lacks = OF_BLOCK.iter().find(|leaf| !has(&format!("v.blk.{n}.{leaf}")));
            if lacks.is_some() || blocks.get(&n) != Some(&most) {
                return missing(format!("block {n} of {depth}, or some of its tensors"));
            }
        }
        if blocks.len() as u64 != depth {
            let why = format!("config.json says {depth} blocks, and the weights are of {}", blocks.len());
            return Err(Error::convert("the tower", why));
        }
        let (dim, v) = (self.dim, &self.vision);
        // Learned places are those of the usual image's patches, and one of a token before them.
        let side = v.opt_usize("image_size")?.and_then(|image| image.checked_div(self.patch)).unwrap_or(0);
        let class = usize::from(has("v.class_embd"));
        let places =
            v.usize_or("num_position_embeddings", side.saturating_mul(side).saturating_add(class))?;
        let sizes = [
            ("v.position_embd.weight", 1, places),
            (".ln1.weight", 0, dim),
            (".ln2.weight", 0, dim),
            (".attn_out.weight", 1, dim),
            (".ffn_up.weight", 0, dim),
            (".ffn_down.weight", 1, dim),
            ("v.position_embd.weight", 0, dim),
            ("v.patch_embd.bias", 0, dim),
            ("v.post_ln.weight", 0, dim),
        ];
        super::tensors::fit(tensors, &sizes)
    }

    fn set(&self, keys: &mut Keys<'_>, folder: &Path, tensors: &[Tensor]) -> Result<()> {
        let v = &self.vision;
        keys.metadata
            .set("general.architecture", "clip")
            .set("general.type", "mmproj")
            .set("general.name", name_of(folder).unwrap_or_else(|| self.family.class.to_owned()))
            .set("clip.has_vision_encoder", true)
            .set("clip.projector_type", self.family.projector);
        let text =
            if self.config.has("text_config") { self.config.at("text_config") } else { self.config.clone() };
        let heads = v.usize(if v.has("num_heads") { "num_heads" } else { "num_attention_heads" })?;
        let ffn = tensors.iter().find(|t| t.name == "v.blk.0.ffn_up.weight").and_then(|t| t.dims.get(1));
        for (key, size) in [
            ("projection_dim", text.usize("hidden_size")?),
            ("patch_size", self.patch),
            ("embedding_length", self.dim),
            ("feed_forward_length", ffn.map_or(0, |n| *n as usize)),
            ("block_count", self.depth()?),
            ("attention.head_count", heads),
        ] {
            keys.set(key, whole(key, size)?);
        }
        for (key, usual) in ["image_mean", "image_std"].iter().zip(self.family.colours) {
            let own = self.images.opt_f32s(key)?.unwrap_or_else(|| usual.into());
            if own.len() != 3 {
                return refuse(key, format!("it has {} numbers in place of 3", own.len()));
            }
            keys.set(key, own);
        }
        (self.family.set)(keys, self)
    }

    /// What was written, read back: that GGUF's settings mean what `config.json` says.
    fn check(&self, metadata: &Metadata, tensors: &[Tensor]) -> Result<()> {
        // Their names count, and no settings hang on what is in them.
        let mut writer = GgufWriter::with_metadata(metadata.clone());
        for t in tensors {
            writer.tensor(&t.name, &[1], GgmlType::F32)?;
        }
        let mut file = Vec::new();
        let mut data = writer.write_to(&mut file)?;
        for t in tensors {
            data.write_data(&t.name, &[0; 4])?;
        }
        data.finish()?;
        let mut back = self.translation.config(&Gguf::from_bytes(file)?)?;
        let tower = back.0.as_object_mut().and_then(|back| back.remove("vision_config")).unwrap_or_default();
        self.compare("", &back.0, self.config)?;
        self.compare("vision_config.", &tower, &self.vision)
    }

    fn compare(&self, at: &str, found: &Value, wanted: &Config) -> Result<()> {
        /// What towers are called beside their class, what tensors say, and what each family has looked at, as it may be counted from behind.
        const OTHERWISE: [&str; 5] = [
            "architectures",
            "model_type",
            "image_processor",
            "num_position_embeddings",
            "vision_feature_layer",
        ];
        for (key, value) in found.as_object().into_iter().flatten() {
            let said = wanted.0.get(key).filter(|said| !said.is_null() && !OTHERWISE.contains(&key.as_str()));
            if let Some(said) = said.filter(|said| !check::alike(value, said)) {
                let why =
                    format!("it is {said}, and a GGUF file with {} means {value}", self.family.projector);
                return refuse(&format!("{at}{key}"), why);
            }
        }
        Ok(())
    }
}

/// The settings of the folder's image processor; none where there is no file of them.
fn images(folder: &Path) -> Result<Config> {
    for (file, within) in [("preprocessor_config.json", ""), ("processor_config.json", "image_processor")] {
        let Some(value) = json(&folder.join(file))? else { continue };
        return Ok(if within.is_empty() { Config(value) } else { Config(value).at(within) });
    }
    Ok(Config::default())
}

/// A file of settings, if it is there.
fn json(path: &Path) -> Result<Option<Value>> {
    /// Many times what any has.
    const LARGEST: u64 = 1 << 20;
    let wrong = |why: String| Error::convert(path.display().to_string(), why);
    let Ok(file) = std::fs::File::open(path) else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(wrong(format!("it is more than {LARGEST} bytes, which no settings are")));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|e| wrong(format!("it is no JSON: {e}")))
}

/// The number of the block that a tensor belongs to.
fn block(name: &str) -> Option<u64> {
    name.strip_prefix("v.blk.")?.split_once('.')?.0.parse().ok()
}

/// Where a tensor stands: what sees patches, the blocks, what ends them, what leads to the text.
fn place(name: &str) -> (u8, u64) {
    match block(name) {
        Some(n) => (1, n),
        None if name.starts_with("mm.") => (3, 0),
        None if name.starts_with("v.deepstack.") || name.starts_with("v.post_ln") => (2, 0),
        None => (0, 0),
    }
}
