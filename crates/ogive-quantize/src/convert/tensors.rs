//! Which tensors the file will have, and what each is made of.
//!
//! Names and changes are the reverse of `ogive-weights`' translation. Experts, which Hugging Face keeps one by one, become
//! one tensor each kind, of parts that are still fetched one by one.

use super::{
    Model, apertus, bamba, falcon_h1, gemma_embedding, gemma3n, gemma4, gptneox, granite, hybrid, jamba,
    latent, lfm2, llama4, mamba, mamba2, mixtures, nemotron_h, phimoe, roberta, seeing, stablelm,
};
use crate::input::{Piece, Tensor};
use crate::{Error, Result};
use gguf_file::GgmlType;
use ogive_tensor::{F8_E4M3, HostWeight, Source, WeightInfo, optional};
use ogive_weights::Change;
use std::collections::BTreeMap;

/// What some checkpoints keep beside the weights, which can be computed.
const BUFFERS: &[&str] = &[
    ".rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    ".position_ids",
];

/// Architectures of which readers of GGUF want a head, be it the embedding once more.
const HEADED: &[&str] = &[
    apertus::ARCHITECTURE,
    gptneox::ARCHITECTURE,
    stablelm::ARCHITECTURE,
    mixtures::DOTS,
    mixtures::MINIMAX,
    phimoe::ARCHITECTURE,
    "phi2",
    "olmo2",
    "olmoe",
    "qwen2moe",
];

/// What a tensor becomes, or a part of it: GGUF's name, and how.
pub(super) type Part = (String, Option<Change>);

/// The tensors of the file, embedding first, then layer by layer.
pub(super) fn tensors(model: &Model<'_>, source: &dyn Source) -> Result<Vec<Tensor>> {
    let tied = tied(model)? && repeats_embedding(model, source)?;
    let is_beside = |name: &str| {
        roberta::is_beside(model, name)
            || model.sees && seeing::is_of_tower(name)
            || hybrid::is_beside(model, name)
            || nemotron_h::is_beside(model, name)
            || mixtures::is_beside(model, name)
            || apertus::is_beside(model, name)
            || gemma3n::is_beside(model, name)
            || BUFFERS.iter().any(|b| name.ends_with(b))
            || tied && name == output_head(model)
    };
    for name in source.left_out().iter().filter(|name| !is_beside(&full_name(model, name))) {
        // It fails, and says of which type the elements are.
        source.get(name)?;
    }
    let foretells = [latent::ARCHITECTURE, mixtures::GLM, mixtures::DOTS].contains(&model.architecture);
    let mut plain: Vec<Tensor> = Vec::new();
    let mut stacks: BTreeMap<String, BTreeMap<u64, WeightInfo>> = BTreeMap::new();
    for info in source.tensors() {
        let name = full_name(model, &info.name);
        if is_beside(&name)
            || gemma4::is_beside(model, &name)?
            || foretells && latent::is_behind(model.config, &name)?
        {
            continue;
        }
        let two = latent::halves(model, &name).or_else(|| granite::halves(model, &name));
        let two = two.map(|halves| halves.map(|(to, change)| (to, Some(change))).into());
        let parts = match two.or_else(|| hybrid::parts(model, &name)).or_else(|| llama4::parts(model, &name))
        {
            None => falcon_h1::parts(model, &name, tied)?,
            some => some,
        };
        let parts = if parts.is_none() { gemma3n::parts(model, &name)? } else { parts };
        if let Some(parts) = parts {
            for (to, change) in parts {
                plain.push(one(model, to, &info, change)?);
            }
            continue;
        }
        if let Some((stacked, expert)) = expert_of(model, &name).or_else(|| gemma3n::stacked(model, &name)) {
            stacks.entry(stacked).or_default().insert(expert, info);
            continue;
        }
        let unknown = || {
            let why = format!("GGUF has no name for it in the architecture {}", model.architecture);
            Error::convert(format!("the tensor {}", info.name), why)
        };
        let (to, change) = model.translation.gguf_name(&name).ok_or_else(unknown)?;
        let change =
            if to == "position_embd.weight" { roberta::positions(model)?.or(change) } else { change };
        if tied && to == "token_embd.weight" && HEADED.contains(&model.architecture) {
            plain.push(one(model, "output.weight".into(), &info, change.clone())?);
        }
        plain.push(one(model, to, &info, change)?);
    }
    for (name, experts) in stacks {
        plain.push(stack(model, name, experts)?);
    }
    plain.sort_by_key(|t| place(&t.name));
    Ok(plain)
}

/// Whether the head, where there is one, is the embedding once more. One that is another counts, whatever config.json says.
fn repeats_embedding(model: &Model<'_>, source: &dyn Source) -> Result<bool> {
    let Some(head) = optional(source.get(output_head(model)))? else { return Ok(true) };
    let is_table = |name: &str| {
        let to = model.translation.gguf_name(&full_name(model, name));
        to.is_some_and(|(name, _)| name == "token_embd.weight")
    };
    match source.tensors().iter().find(|t| is_table(&t.name)) {
        Some(table) => Ok(head.is_copy_of(&source.get(&table.name)?)),
        None => Ok(false),
    }
}

/// What the output head is called.
fn output_head(model: &Model<'_>) -> &'static str {
    if model.architecture == gptneox::ARCHITECTURE { gptneox::HEAD } else { "lm_head.weight" }
}

/// Whether config.json says that the embedding is the head too. Classes differ in what they take silence for.
fn tied(model: &Model<'_>) -> Result<bool> {
    let silent = matches!(
        model.architecture,
        "gemma"
            | "gemma2"
            | "gemma3"
            | gemma_embedding::ARCHITECTURE
            | gemma3n::ARCHITECTURE
            | "gemma4"
            | "gpt2"
            | "smollm3"
            | "cohere2"
            | "command-r"
            | "starcoder2"
            | "ernie4_5"
            | mixtures::ERNIE
            | mamba::ARCHITECTURE
    );
    Ok(model.config.bool_or("tie_word_embeddings", silent)?)
}

/// The name as the class has it: the first GPT-2 files leave out the model's own, those of BERT for training have it, and
/// the first of those have other names for what a norm consists of.
fn full_name(model: &Model<'_>, name: &str) -> String {
    if model.is_encoder() {
        let name = roberta::own_name(model, name);
        let leaf = |old, new| name.strip_suffix(old).map(|norm| format!("{norm}{new}"));
        return leaf(".gamma", ".weight").or(leaf(".beta", ".bias")).unwrap_or(name);
    }
    let own = gemma3n::own_name(model, name).or_else(|| seeing::text_name(model, name));
    let own = own.or_else(|| granite::dense_name(model, name)).or_else(|| bamba::own_name(model, name));
    let own = own.or_else(|| nemotron_h::own_name(model, name));
    let own = own.or_else(|| gemma_embedding::own_name(model, name));
    if let Some(name) = own.or_else(|| mamba::own_name(model, name)) {
        return name;
    }
    let bare =
        model.architecture == "gpt2" && !name.starts_with("transformer.") && !name.starts_with("lm_head.");
    if bare { format!("transformer.{name}") } else { name.to_owned() }
}

/// GGUF's name of the stack that a weight belongs to, and which expert it is: `....experts.7.w1.weight`.
fn expert_of(model: &Model<'_>, name: &str) -> Option<(String, u64)> {
    let (before, after) = name.split_once(".experts.")?;
    let (number, leaf) = after.split_once('.')?;
    let expert = number.parse().ok()?;
    let (stacked, change) = model.translation.gguf_name(&format!("{before}.experts.{leaf}"))?;
    change.is_none().then_some((stacked, expert))
}

/// What a tensor's elements are in GGUF where nobody asks for another type. FP8 has none, and becomes what is as wide in its exponent: bf16.
pub(super) fn ggml_type(info: &WeightInfo) -> Result<GgmlType> {
    if info.format == &F8_E4M3 {
        return Ok(GgmlType::BF16);
    }
    let found = GgmlType::ALL.iter().find(|t| t.name().eq_ignore_ascii_case(info.format.name));
    found.copied().filter(|t| t.is_plain()).ok_or_else(|| {
        Error::convert(
            format!("the tensor {}", info.name),
            format!("elements of type {} have no place in GGUF", info.format.name),
        )
    })
}

/// Fastest first, without dimensions of one element in front.
pub(super) fn dims(shape: [usize; 3]) -> Vec<u64> {
    let [experts, rows, cols] = shape.map(|n| n as u64);
    match (experts, rows) {
        (1, 1) => vec![cols],
        (1, _) => vec![cols, rows],
        _ => vec![cols, rows, experts],
    }
}

fn one(model: &Model<'_>, name: String, info: &WeightInfo, change: Option<Change>) -> Result<Tensor> {
    let made = match &change {
        Some(change) => {
            let made = change.info(std::slice::from_ref(info), model.config);
            made.map_err(|e| e.within(&info.name))?
        }
        None => info.clone(),
    };
    let pieces = vec![Piece::Named(info.name.clone(), change)];
    Ok(Tensor { name, dims: dims(made.shape), ty: ggml_type(&made)?, pieces })
}

/// Experts as one tensor; all must be there and alike.
fn stack(model: &Model<'_>, name: String, experts: BTreeMap<u64, WeightInfo>) -> Result<Tensor> {
    let wrong = |why: String| Error::convert(format!("the experts of {name}"), why);
    let said = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
    let said =
        said.into_iter().map(|key| model.config.opt_usize(key)).find_map(Result::transpose).transpose()?;
    let said = gemma3n::in_stack(model, &name)?.or(said);
    let said = said.ok_or_else(|| wrong("config.json does not say how many there are".into()))?;
    let Some(first) = experts.values().next().cloned() else { return Err(wrong("there are none".into())) };
    let mut pieces = Vec::with_capacity(experts.len());
    for (i, (number, info)) in (0..).zip(&experts) {
        if *number != i {
            return Err(wrong(format!("number {i} is missing; is the download complete?")));
        }
        if (info.shape, info.format) != (first.shape, first.format) || info.shape[0] != 1 {
            return Err(wrong(format!("`{}` is not like `{}`", info.name, first.name)));
        }
        pieces.push(Piece::Named(info.name.clone(), None));
    }
    if pieces.len() < said {
        return Err(wrong(format!(
            "number {} of {said} is missing; is the download complete?",
            pieces.len()
        )));
    }
    if pieces.len() > said {
        return Err(wrong(format!("there are {}, and config.json says {said}", pieces.len())));
    }
    let [_, rows, cols] = first.shape.map(|n| n as u64);
    let ty = ggml_type(&first)?;
    Ok(Tensor { dims: vec![cols, rows, pieces.len() as u64], ty, pieces, name })
}

/// Where a tensor stands: what begins, the layers, what ends.
fn place(name: &str) -> (u8, u64) {
    match layer(name) {
        Some(n) => (1, n),
        None if name.starts_with("output") => (2, 0),
        None => (0, 0),
    }
}

pub(super) fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// That every layer is there, and what stands behind them, which a download that broke off may lack. `embeds` says that the model
/// is for vectors of texts, which takes no head; nor does one that looks ahead.
pub(super) fn complete(model: &Model<'_>, tensors: &[Tensor], embeds: bool) -> Result<()> {
    let lacks = |name: &str| !model.is_encoder() && tensors.iter().all(|t| t.name != name);
    let needed = |name: &str, why: &str| Err(Error::convert(format!("the tensor {name}"), why));
    let (last, own) = match model.architecture {
        lfm2::DENSE | lfm2::MIXTURE => ("token_embd_norm.weight", "model.embedding_norm.weight"),
        nemotron_h::DENSE | nemotron_h::MIXTURE | mamba::ARCHITECTURE | mamba2::ARCHITECTURE => {
            ("output_norm.weight", "backbone.norm_f.weight")
        }
        gptneox::ARCHITECTURE => ("output_norm.weight", "gpt_neox.final_layer_norm.weight"),
        falcon_h1::ARCHITECTURE | jamba::ARCHITECTURE | "phi2" => {
            ("output_norm.weight", "model.final_layernorm.weight")
        }
        _ if bamba::is(model) => ("output_norm.weight", "model.final_layernorm.weight"),
        _ => ("output_norm.weight", "model.norm.weight"),
    };
    if lacks(last) {
        let why = format!("the folder has none that becomes it, as `{own}` does; is the download complete?");
        return needed(last, &why);
    }
    let foretells = !embeds && model.config.bool_or("is_causal", true)?;
    if lacks("output.weight") && foretells && !tied(model)? {
        let why = format!(
            "the folder has no `{}`, and config.json does not say that the embedding is the head too \
            (`tie_word_embeddings`); is the download complete?",
            output_head(model)
        );
        return needed("output.weight", &why);
    }
    let layers = model.config.usize("num_hidden_layers")? as u64;
    // The first layers of some have no experts: in what follows attention they are like each other and not like the rest.
    let first = lfm2::dense_layers(model)?.max(mixtures::dense_layers(model)?);
    let (llama, jamba) = (llama4::sparse(model)?, jamba::sparse(model)?);
    let sparse = |layer| llama(layer) || jamba(layer);
    let mixed = [llama4::ARCHITECTURE, jamba::ARCHITECTURE].contains(&model.architecture);
    let follows = |name: &str| {
        (first > 0 || mixed) && [".ffn_", ".exp_probs_b."].iter().any(|part| name.contains(part))
    };
    let mut counts: BTreeMap<u64, [usize; 2]> = BTreeMap::new();
    for (n, t) in tensors.iter().filter_map(|t| Some((layer(&t.name)?, t))) {
        counts.entry(n).or_default()[usize::from(follows(&t.name))] += 1;
    }
    // A hybrid's layers have other tensors where something else is in the place of attention.
    let (linear, convolves) = (hybrid::linear(model)?, lfm2::convolves(model)?);
    let (granite, jamba) = (granite::has_space(model)?, jamba::has_space(model)?);
    let space = |layer| granite(layer) || jamba(layer);
    let kinds = nemotron_h::kinds(model)?;
    let keys = gemma4::kinds(model)?;
    let otherwise = |layer: u64| match kinds.get(layer as usize) {
        Some(kind) => kind,
        // A ModernBERT's first has a norm less.
        None if layer == 0 && model.architecture == roberta::MODERN => "first",
        None if linear(layer) || convolves(layer) || space(layer) => "another",
        None => keys(layer).unwrap_or("attention"),
    };
    let kind = |part: usize, layer: u64| match part {
        0 => otherwise(layer),
        _ if layer < first || mixed && !sparse(layer) => "dense",
        _ => "sparse",
    };
    let most = |part: usize, layer: u64| {
        let alike = counts.iter().filter(|(other, _)| kind(part, **other) == kind(part, layer));
        alike.map(|(_, n)| n[part]).max().unwrap_or(0)
    };
    let poor = counts.iter().find(|(layer, n)| [0, 1].iter().any(|part| n[*part] < most(*part, **layer)));
    let poor = poor.map(|(layer, _)| *layer);
    // Their number is bounded by that of the tensors.
    let missing = (0..layers.min(counts.len() as u64 + 1)).find(|l| !counts.contains_key(l));
    if let Some(layer) = missing.or(poor) {
        let why = "some of its tensors are missing; is the download complete?";
        return Err(Error::convert(format!("layer {layer} of {layers}"), why));
    }
    if counts.len() as u64 != layers {
        let why = format!("config.json says {layers} layers, and the weights are of {}", counts.len());
        return Err(Error::convert("the layers", why));
    }
    Ok(())
}

/// Refuses tensors of other sizes than settings say: what names end with, which dimension, fastest first, and how many elements.
pub(super) fn fit(tensors: &[Tensor], sizes: &[(&str, usize, usize)]) -> Result<()> {
    for &(name, dimension, wanted) in sizes {
        // A dimension that is not written is of one element.
        let size = |t: &Tensor| t.dims.get(dimension).copied().unwrap_or(1);
        let misfit = tensors.iter().find(|t| t.name.ends_with(name) && size(t) != wanted as u64);
        if let Some(t) = misfit {
            let why =
                format!("{} in place of {wanted}; do weights and config.json belong together?", size(t));
            return Err(Error::convert(format!("the tensor {}", t.name), why));
        }
    }
    Ok(())
}

/// Adds factors of rotary frequencies, which GGUF keeps as tensors.
pub(super) fn add_factors(tensors: &mut Vec<Tensor>, factors: Vec<HostWeight>) {
    for weight in factors {
        let (name, dims) = (weight.name.clone(), vec![weight.shape[2] as u64]);
        tensors.insert(0, Tensor { name, dims, ty: GgmlType::F32, pieces: vec![Piece::Made(weight)] });
    }
}

/// A change of one weight: to another shape, where its own has one, by what `make` makes of it. A weight without bytes is a misfit, too, as
/// nothing bounds its shape.
pub(super) fn of_one(
    misfit: impl Fn() -> ogive_tensor::Error + Copy + Send + Sync + 'static,
    shape: impl Fn([usize; 3]) -> Option<[usize; 3]> + Copy + Send + Sync + 'static,
    make: impl Fn(&HostWeight, [usize; 3]) -> ogive_tensor::Result<HostWeight> + Send + Sync + 'static,
) -> Change {
    Change::new(
        move |of, _| {
            let w = of.first().ok_or_else(misfit)?;
            Ok(WeightInfo::new(&*w.name, shape(w.shape).ok_or_else(misfit)?, w.format))
        },
        move |of, _| {
            let w = of.first().filter(|w| !w.bytes.is_empty()).ok_or_else(misfit)?;
            make(w, shape(w.shape).ok_or_else(misfit)?)
        },
    )
}
