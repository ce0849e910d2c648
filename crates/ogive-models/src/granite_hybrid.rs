//! Granite 4: Granite's factors, and in most layers a selective state space in place of attention, which turns nothing. What follows is one
//! gated MLP, in the mixtures beside experts. Some of them only attend, by rotary positions.
//!
//! Granite Team 2025, <https://www.ibm.com/new/announcements/ibm-granite-4-0-hyper-efficient-high-performance-hybrid-models>; transformers'
//! `modeling_granitemoehybrid`, and `modeling_granitemoeshared` for mixtures that only attend.

use crate::class::Class;
use crate::{decoder, granite, hybrid, mixer::Mixer};
use ogive_nn::backend::{Activation, Rope};
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Attention, Config, FeedForward, GatedMlp, Loader, Mamba2, Mamba2Spec, Model};

/// Reads a checkpoint with Hugging Face's names; gate and up in one matrix, or each in its own.
///
/// # Errors
/// If `layer_types` are more or fewer than the layers or name another kind, if `position_embedding_type` is none that is known, if
/// `is_causal` is off, or if the sizes of states do not fit each other; else as [every `load`](crate#errors).
pub fn load(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    // The convolution has a state, and the space another.
    let class = Class { caches: 2, ..granite::class(c)? };
    let rope = match c.opt_str("position_embedding_type")? {
        Some("rope") => Some(ogive_nn::rope_of(c, root, class.head_dim_of(c)?)?),
        None | Some("nope") => None,
        Some(other) => {
            let why = format!("`position_embedding_type` is `{other}`; known are rope and nope");
            return Err(Error::unsupported("config", why));
        }
    };
    let mixer = mixers(&class, c, rope, hybrid::mamba(c)?)?;
    let (n, activation) = (c.usize("num_local_experts")?, activation(c)?);
    let experts = (n > 0).then(|| granite::experts(c)).transpose()?;
    let model = root.at_or_here("model", "embed_tokens")?;
    decoder::load_mixed(&class, c, [root, &model], &mixer, &|l, _| {
        // GGUF calls an MLP as Llama does where there is nothing beside it.
        let alone = l.at("mlp");
        Ok(match &experts {
            Some(experts) => {
                FeedForward::Shared(experts(l)?, FeedForward::Dense(shared(l, activation)?).into())
            }
            None if l.optional(alone.host("down_proj"))?.is_some() => {
                FeedForward::Dense(GatedMlp::load(&alone, activation)?)
            }
            None => FeedForward::Dense(shared(l, activation)?),
        })
    })
}

/// Reads what a layer has: where `mamba` says so a state space, else attention that turns by `rope`.
pub(crate) fn mixers(
    class: &Class,
    c: &Config,
    rope: Option<Rope>,
    mamba: impl Fn(usize) -> bool,
) -> Result<impl Fn(&Loader<'_>, usize) -> Result<Mixer>> {
    hybrid::looks_back(c, "a state space")?;
    let (caches, spec, space) = (class.caches, class.attention_of(c)?, space(c)?);
    Ok(move |l: &Loader<'_>, i: usize| {
        let first = caches * i;
        if mamba(i) {
            return Ok(Mixer::Mamba(Mamba2::load(&l.at("mamba"), space, first)?.into()));
        }
        let attn = Attention::load(&l.at("self_attn"), c, first, rope.clone(), spec.clone())?;
        Ok(Mixer::Attention(attn.into()))
    })
}

/// Reads a mixture that only attends, beside whose experts there is an MLP that all rows share.
///
/// # Errors
/// As those of [`granite`].
pub fn load_shared(c: &Config, root: &Loader<'_>) -> Result<Box<dyn Model>> {
    let (experts, activation) = (granite::experts(c)?, activation(c)?);
    decoder::load(&granite::class(c)?, c, root, |_, rope, spec| (Some(rope), spec), &|l, _| {
        let mixture = experts(l)?;
        Ok(match c.usize_or("shared_intermediate_size", 0)? {
            0 => FeedForward::Moe(mixture),
            _ => FeedForward::Shared(mixture, FeedForward::Dense(shared(l, activation)?).into()),
        })
    })
}

fn activation(c: &Config) -> Result<Activation> {
    ogive_nn::activation(c, "hidden_act", Activation::Silu)
}

/// The MLP that all rows go through.
fn shared(l: &Loader<'_>, activation: Activation) -> Result<GatedMlp> {
    GatedMlp::fused(
        &l.at("shared_mlp"),
        "input_linear",
        ["gate_proj", "up_proj", "output_linear"],
        activation,
    )
}

/// The sizes of a layer with a state space, all of which is normed at once.
fn space(c: &Config) -> Result<Mamba2Spec> {
    let what = c.has("mamba_expand").then_some(EXPANDED);
    Ok(Mamba2Spec { norm: Some((1, c.f32_or("rms_norm_eps", 1e-6)?)), ..sizes(c, expanded(c)?, what)? })
}

/// What [`expanded`] is by the settings.
pub(crate) const EXPANDED: &str = "`mamba_expand` times `hidden_size`";

/// How many elements all heads of a state space have together.
pub(crate) fn expanded(c: &Config) -> Result<usize> {
    Ok((f64::from(c.f32_or("mamba_expand", 2.0)?) * c.usize("hidden_size")? as f64) as usize)
}

/// The sizes of a state space without a norm whose heads have `inner` elements together. Settings may say the size of a head as well, which
/// is held against that if it is `said` by these words.
pub(crate) fn sizes(c: &Config, inner: usize, said: Option<&str>) -> Result<Mamba2Spec> {
    let heads = c.usize("mamba_n_heads")?;
    let head_dim = match c.0.get("mamba_d_head").is_none_or(|said| said.is_null() || said == "auto") {
        true => inner.checked_div(heads).unwrap_or(0),
        false => c.usize("mamba_d_head")?,
    };
    if let Some(said) = said.filter(|_| heads.checked_mul(head_dim) != Some(inner)) {
        let why = format!("{heads} heads of {head_dim} elements are not {said}, {inner}");
        return Err(Error::invalid("config", why));
    }
    Ok(Mamba2Spec {
        heads,
        head_dim,
        groups: c.usize("mamba_n_groups")?,
        state: c.usize("mamba_d_state")?,
        taps: c.usize_or("mamba_d_conv", 4)?,
        activation: activation(c)?,
        norm: None,
        norm_before_gate: false,
    })
}
