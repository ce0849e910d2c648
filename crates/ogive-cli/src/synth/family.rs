//! Families of shapes: what decides on names, norms and factors.

use super::shapes::LINEAR_DIM;

/// How a family's tensors are named, normed and filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Llama and Mistral.
    Llama,
    /// Biases on q, k and v.
    Qwen2,
    /// Norms on query and key heads.
    Qwen3,
    /// Norms after each block too, soft caps, windows.
    Gemma2,
    /// Two kinds of heads, inputs of layers, keys that the later layers share.
    Gemma4,
    /// Qwen3 with a mixture of experts in each layer.
    Qwen3Moe,
    /// Llama with factors on embeddings, scores, what a block adds and logits, and a mixture in each layer.
    GraniteMoe,
    /// Biases everywhere, sinks, windows, and a mixture in each layer.
    GptOss,
    /// Linear attention by the gated delta rule in three of four layers, gated attention in the fourth.
    Qwen35,
    /// Granite's factors, and selective state spaces in all layers but each tenth.
    GraniteHybrid,
    /// A selective state space beside attention in every layer.
    FalconH1,
    /// Layers that are one thing each: a selective state space, attention, or a mixture without gates beside an MLP that all tokens share.
    NemotronMoe,
    /// Llama whose neighbours of a head turn together.
    Ernie,
    /// Biases on q, k and v, and the second norm under another name.
    SeedOss,
}

impl Family {
    /// GGUF's name of the architecture.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma4 => "gemma4",
            Self::Qwen3Moe => "qwen3moe",
            Self::GraniteMoe => "granitemoe",
            Self::GptOss => "gpt-oss",
            Self::Qwen35 => "qwen35",
            Self::GraniteHybrid => "granitehybrid",
            Self::FalconH1 => "falcon-h1",
            Self::NemotronMoe => "nemotron_h_moe",
            Self::Ernie => "ernie4_5",
            Self::SeedOss => "seed_oss",
        }
    }

    /// What blocks add to the stream is multiplied by this.
    pub(crate) fn residual_scale(self) -> f32 {
        if self.is_granite() { 0.22 } else { 1.0 }
    }

    /// Embeddings are multiplied by this, but for Gemma's, whose factor is the width's.
    pub(crate) fn embedding_scale(self) -> f32 {
        if self.is_granite() { 12.0 } else { 1.0 }
    }

    /// Logits are divided by this.
    pub(crate) fn logit_scale(self) -> f32 {
        match self {
            Self::GraniteMoe => 6.0,
            Self::GraniteHybrid => 8.0,
            _ => 1.0,
        }
    }

    /// Whether embeddings are multiplied by the root of the width.
    pub(crate) fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma4)
    }

    /// Whether it has Granite's factors.
    pub(crate) fn is_granite(self) -> bool {
        matches!(self, Self::GraniteMoe | Self::GraniteHybrid)
    }

    /// Whether it has state spaces, beside attention or in its place.
    pub(crate) fn has_spaces(self) -> bool {
        matches!(self, Self::GraniteHybrid | Self::NemotronMoe | Self::FalconH1)
    }

    /// Elements by which a state is written and read.
    pub(crate) fn state_dim(self) -> usize {
        if self == Self::FalconH1 { 256 } else { LINEAR_DIM }
    }

    /// Whether its vocabulary is Qwen's, which begins no text with a token of its own.
    pub(crate) fn is_qwen(self) -> bool {
        matches!(self, Self::Qwen2 | Self::Qwen3 | Self::Qwen3Moe | Self::Qwen35)
    }
}
