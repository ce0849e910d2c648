//! From hidden states to logits, and what has none: encoders, and checkpoints that were saved without a head, for vectors of texts.
//!
//! That there is none is an error of whoever asks for logits and not of loading, as vectors need no head.

use ogive_nn::backend::Activation;
use ogive_nn::tensor::{Error, Result, Tensor};
use ogive_nn::{Config, Embedding, Linear, Loader, Step};

/// An output head, or why there is none.
#[derive(Debug)]
pub(crate) enum Head {
    Of(Linear),
    /// Tokens see later ones, so what would come next is no question.
    Encoder,
    /// The file has none, and the settings do not say that the embedding is the head too.
    Missing,
}

impl Head {
    /// Reads `lm_head` of a decoder, which `tied` takes for the embedding if the settings are silent on that.
    pub(crate) fn load(c: &Config, root: &Loader<'_>, embed: &Embedding, tied: bool) -> Result<Self> {
        Self::load_named(c, root, "lm_head", embed, tied)
    }

    /// The same of one that is called `name`.
    pub(crate) fn load_named(
        c: &Config,
        root: &Loader<'_>,
        name: &str,
        embed: &Embedding,
        tied: bool,
    ) -> Result<Self> {
        if !c.bool_or("is_causal", true)? {
            return Ok(Self::Encoder);
        }
        let tied = c.bool_or("tie_word_embeddings", tied)?;
        Ok(root.own_head(name, embed, tied)?.map_or(Self::Missing, Self::Of))
    }

    /// `[m, dim] -> [m, vocab]`
    pub(crate) fn forward(&self, s: &Step<'_>, hidden: &Tensor) -> Result<Tensor> {
        let why = match self {
            Self::Of(head) => return head.forward(s, hidden),
            Self::Encoder => return Err(no_logits("encoder", "")),
            Self::Missing => ": the checkpoint has no head, and `tie_word_embeddings` is off",
        };
        Err(no_logits("lm_head.weight", why))
    }
}

/// `cap * tanh(x / cap)`, as factors before and after.
#[derive(Debug)]
pub(crate) struct Cap {
    before: Tensor,
    after: Tensor,
}

impl Cap {
    /// The cap that is set under `key`, if there is one. With 0 or less every logit would be no number.
    pub(crate) fn set(c: &Config, key: &str) -> Result<Option<f32>> {
        above_zero(key, c.opt_f32(key)?)
    }

    pub(crate) fn of(l: &Loader<'_>, cap: f32) -> Result<Self> {
        Ok(Self { before: l.constant(cap.recip())?, after: l.constant(cap)? })
    }

    /// `[m, vocab] -> [m, vocab]`
    pub(crate) fn forward(&self, s: &Step<'_>, logits: Tensor) -> Result<Tensor> {
        let capped = s.backend.activate(s.backend.mul(logits, &self.before)?, Activation::Tanh)?;
        s.backend.mul(capped, &self.after)
    }
}

/// A number that others are divided by, if there is one.
pub(crate) fn above_zero(key: &str, value: Option<f32>) -> Result<Option<f32>> {
    match value {
        Some(v) if !(v > 0.0 && v.is_finite()) => Err(Error::invalid(
            "config",
            format!("`{key}` should be above 0 and is {v}; null turns a cap off"),
        )),
        other => Ok(other),
    }
}

/// Where the head is in a checkpoint that may also see, and where all else is: `model`, or `language_model.model` with the head in `language_model` (transformers to
/// 4.51), or `model.language_model` (from then on), or `model.text_model` (Idefics).
pub(crate) fn places<'a>(file: &Loader<'a>) -> Result<(Loader<'a>, Loader<'a>)> {
    let here = |l: &Loader<'_>| Ok(l.optional(l.host("embed_tokens"))?.is_some());
    for name in ["model.language_model", "model.text_model"] {
        let later = file.at(name);
        if here(&later)? {
            return Ok((file.clone(), later));
        }
    }
    let seeing = file.at("language_model");
    let head = if here(&seeing.at("model"))? || here(&seeing)? { seeing } else { file.clone() };
    let model = head.at_or_here("model", "embed_tokens")?;
    Ok((head, model))
}

/// The error for logits of what has none.
pub(crate) fn no_logits(what: &str, why: &str) -> Error {
    let why = format!("it has no logits{why}; ask for its vectors (`ogive embed`, `Model::embed`)");
    Error::unsupported(what, why)
}
