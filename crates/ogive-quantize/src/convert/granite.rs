//! Granite as GGUF has it: its factors, the matrix that experts and shared MLPs have for gate and up as two, and of Granite 4 which layers have
//! a selective state space, by the number of their key heads, which is 0 for those.

use super::{Keys, Model, layer_types, refuse, settings::whole, space::Space, tensors::of_one};
use crate::{Result, input::Tensor};
use ogive_tensor::{Config, HostWeight};
use ogive_weights::Change;
use serde_json::json;

/// GGUF's names of the architectures.
pub(super) const DENSE: &str = "granite";
pub(super) const MIXTURE: &str = "granitemoe";
pub(super) const HYBRID: &str = "granitehybrid";

/// The class of Granite 4, which is three architectures.
const FOUR: &str = "GraniteMoeHybridForCausalLM";

/// What layers are called that attend.
const ATTENTION: &str = "attention";

/// The setting that says how many experts there are.
const EXPERTS: &str = "num_local_experts";

/// What a model of Granite 4 becomes: one that only attends is an older architecture.
pub(super) fn architecture(class: &str, config: &Config) -> Result<Option<&'static str>> {
    if class != FOUR {
        return Ok(None);
    }
    let attends = config.opt_strs("layer_types")?.is_some_and(|types| types.iter().all(|t| t == ATTENTION));
    Ok(Some(match (attends, config.usize_or(EXPERTS, 8)? > 0) {
        (false, _) => HYBRID,
        (true, true) => MIXTURE,
        (true, false) => DENSE,
    }))
}

/// Says in the settings of Granite 4 what the class makes of them, as GGUF says it: how many elements a head of a state space has, and, where
/// there are no experts, that what is beside them is all.
pub(super) fn settled(class: &str, config: &Config) -> Result<Config> {
    let mut config = config.clone();
    if class != FOUR {
        return Ok(config);
    }
    let even = state_head(&config)?;
    let width =
        config.opt_usize("shared_intermediate_size")?.filter(|_| config.0.get(EXPERTS) == Some(&json!(0)));
    if let Some(settings) = config.0.as_object_mut() {
        settings.extend(even.map(|n| ("mamba_d_head".into(), json!(n))));
        if let Some(width) = width {
            settings.insert("intermediate_size".into(), json!(width));
            settings.retain(|key, _| {
                ![EXPERTS, "num_experts_per_tok", "shared_intermediate_size"].contains(&&**key)
            });
        }
    }
    Ok(config)
}

/// How many elements a head of a state space has, where the settings leave it to the class.
pub(super) fn state_head(config: &Config) -> Result<Option<usize>> {
    let auto = config.0.get("mamba_d_head").is_none_or(|said| said.is_null() || said == "auto");
    let inner = f64::from(config.f32_or("mamba_expand", 2.0)?) * config.usize("hidden_size")? as f64;
    Ok((inner as usize).checked_div(config.usize_or("mamba_n_heads", 128)?).filter(|_| auto))
}

/// Whether a layer has a state space; no layer of another architecture.
pub(super) fn has_space(model: &Model<'_>) -> Result<impl Fn(u64) -> bool> {
    let own = model.architecture == HYBRID;
    let types = if own { layer_types(model.config, &["mamba", ATTENTION])? } else { None };
    Ok(move |layer: u64| {
        own && types.as_ref().is_none_or(|types| types.get(layer as usize) == Some(&"mamba"))
    })
}

/// Sets the factors, and of Granite 4 what it has besides. Silence is 1 for the class, and for readers of GGUF the usual scale of scores.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    for (setting, key) in [
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ] {
        let factor = config.f32_or(setting, 1.0)?;
        if factor == 0.0 {
            return refuse(setting, "GGUF takes 0 for none");
        }
        keys.set(key, factor);
    }
    if let Some(shared) = config.opt_usize("shared_intermediate_size")?.filter(|n| *n > 0) {
        keys.set("expert_shared_feed_forward_length", whole("shared_intermediate_size", shared)?);
    }
    if model.class != FOUR {
        return Ok(());
    }
    const POSITIONS: &str = "position_embedding_type";
    let turns = config.opt_str(POSITIONS)? == Some("rope");
    if model.architecture != HYBRID {
        let why = "GGUF cannot say that nothing is turned in a model whose layers all attend";
        return if turns { Ok(()) } else { refuse(POSITIONS, why) };
    }
    keys.set("rope.scaling.finetuned", turns);
    spaces(keys, model)
}

/// What layers with a state space have.
pub(super) fn spaces(keys: &mut Keys<'_>, model: &Model<'_>) -> Result<()> {
    let config = model.config;
    if config.bool_or("mamba_proj_bias", false)? {
        return refuse("mamba_proj_bias", "GGUF has no biases for these projections");
    }
    if !config.bool_or("mamba_conv_bias", true)? {
        return refuse("mamba_conv_bias", "readers of GGUF want biases of this convolution");
    }
    let space = space(config)?;
    if space.groups != 1 {
        return refuse("mamba_n_groups", "readers of GGUF norm groups apart, and this class all at once");
    }
    space.set(keys)?;
    let layers = config.usize("num_hidden_layers")?;
    let (key_heads, has_space) = (config.usize_or("num_key_value_heads", 0)?, has_space(model)?);
    let key_heads = match key_heads {
        0 => config.usize("num_attention_heads")?,
        n => n,
    };
    let key_heads = whole("num_key_value_heads", key_heads)?;
    // Their number was compared with that of the tensors.
    let of_each: Vec<u32> = (0..layers as u64).map(|i| if has_space(i) { 0 } else { key_heads }).collect();
    keys.set("attention.head_count_kv", of_each);
    Ok(())
}

/// The sizes of a layer with a state space.
fn space(config: &Config) -> Result<Space> {
    Space::read(config, config.usize("mamba_d_head")?)
}

/// Refuses tensors of other sizes than the settings say.
pub(super) fn check(model: &Model<'_>, tensors: &[Tensor]) -> Result<()> {
    if model.architecture == HYBRID { space(model.config)?.check(tensors) } else { Ok(()) }
}

/// Llama's name for the last matrix of an MLP, as GGUF has it where there is nothing beside it.
pub(super) fn dense_name(model: &Model<'_>, name: &str) -> Option<String> {
    let dense = model.class == FOUR && !model.config.has(EXPERTS);
    let at = name.strip_suffix(".shared_mlp.output_linear.weight").filter(|_| dense)?;
    Some(format!("{at}.mlp.down_proj.weight"))
}

/// GGUF's names of what the weight `input_linear` becomes, and how.
pub(super) fn halves(model: &Model<'_>, name: &str) -> Option<[(String, Change); 2]> {
    let own = [DENSE, MIXTURE, HYBRID].contains(&model.architecture);
    let at = name.strip_suffix(".input_linear.weight").filter(|_| own)?;
    let at = match at.strip_suffix(".shared_mlp") {
        Some(block) if !model.config.has(EXPERTS) => format!("{block}.mlp"),
        Some(_) => at.to_owned(),
        None => format!("{at}.experts"),
    };
    let name = |half: &str| Some(model.translation.gguf_name(&format!("{at}.{half}_proj.weight"))?.0);
    Some([(name("gate")?, half(0)), (name("up")?, half(1))])
}

/// Of each expert's rows the first half, or the second.
pub(super) fn half(which: usize) -> Change {
    let misfit = || ogive_tensor::Error::invalid("input_linear", "its experts have no two halves");
    let shape =
        |[experts, rows, cols]: [usize; 3]| rows.is_multiple_of(2).then_some([experts, rows / 2, cols]);
    of_one(misfit, shape, move |w, _| half_of(w, which))
}

/// The same of a weight that has halves.
pub(super) fn half_of(w: &HostWeight, which: usize) -> ogive_tensor::Result<HostWeight> {
    let [experts, rows, _] = w.shape;
    let (half, flat) = (rows / 2, w.regrouped(1)?);
    let begins = (0..experts).map(|e| (2 * e + which) * half);
    let parts = begins.map(|at| flat.rows(at..at + half)).collect::<ogive_tensor::Result<Vec<_>>>()?;
    HostWeight::stack(&*w.name, &parts)
}
