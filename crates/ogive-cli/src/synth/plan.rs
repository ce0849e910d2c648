//! Which tensors a file of a shape and a format has, in their order, with what they are filled with.
//!
//! The plan is made before anything is written, so it can be tested for shapes of gigabytes. Weights are drawn such that
//! activations stay near 1 through all layers: matrices with a deviation of 1/sqrt(inputs), norms near 1. Two scales differ,
//! or greedy decoding would stand still, which is no good for measuring. The embedding is small: where it is the head too,
//! what the residual stream still holds of a token speaks for that token. And attention, an average that hardly changes
//! from step to step, is smaller than what it is added to: the next token must depend on the last one most of all.

use super::family::Family;
use super::shapes::{LINEAR_DIM, Mixer, NEMOTRON_SCALE, NEMOTRON_SHARED, SPACE_DIM, Shape, TAPS};
use ogive::weights::gguf_file::GgmlType;
use ogive_quantize::{Facts, FileFormat, Mix};

/// What a tensor's elements are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fill {
    /// Random, with mean 0 and this deviation.
    Random(f32),
    /// These.
    Values(Vec<f32>),
    /// Random about this, by a twentieth of it.
    Near(f32),
}

/// A tensor to be written.
#[derive(Clone, Debug)]
pub(crate) struct TensorPlan {
    pub(crate) name: String,
    /// Fastest first.
    pub(crate) dims: Vec<u64>,
    pub(crate) ty: GgmlType,
    pub(crate) fill: Fill,
}

impl TensorPlan {
    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u64 {
        self.dims.iter().product::<u64>() / self.ty.block_len()
    }
}

/// Deviation of logits.
const LOGITS: f32 = 2.5;
/// Size of an embedding in the residual stream, to which each layer adds about 1.
const EMBEDDING: f32 = 0.02;
/// Size of what attention adds, beside the feed-forward block's 1.
pub(crate) const ATTENTION: f32 = 0.5;
/// Deviation of biases: beside queries and keys of 1.
const BIAS: f32 = 0.1;

/// The tensors of `shape` in `format`, with the types that `ogive quantize` would give them, or all with the one type where formats are
/// [pure](super::PURE).
pub(crate) fn plan(shape: &Shape, format: &'static FileFormat) -> Vec<TensorPlan> {
    let mut tensors = bare(shape);
    let facts =
        Facts::new(shape.family.architecture(), shape.layers, shape.heads, shape.kv_heads, shape.experts[0]);
    let shapes: Vec<_> = tensors.iter().map(|t| (&*t.name, &*t.dims)).collect();
    let mut mix = Mix::new(format);
    mix.pure = super::PURE.contains(format);
    let whole = shape.dim.is_multiple_of(256);
    mix.output = mix.pure.then_some(if whole { GgmlType::Q6_K } else { GgmlType::Q8_0 });
    // An embedding that is the head, too, is packed as that.
    mix.embedding = (mix.pure && !shape.tied && whole).then_some(GgmlType::Q4_K);
    // It fails for types that were asked for by a tensor's name alone and do not fit.
    let types = mix.choose(&facts, &shapes).unwrap_or_default();
    for (tensor, ty) in tensors.iter_mut().zip(types) {
        tensor.ty = match ty {
            // What the choice falls back to cannot be drawn.
            Some(GgmlType::IQ4_NL) => GgmlType::Q4_0,
            ty => ty.unwrap_or(GgmlType::F32),
        };
    }
    tensors
}

/// The tensors in single precision.
fn bare(shape: &Shape) -> Vec<TensorPlan> {
    let mut p = Plan { tensors: Vec::new() };
    let root = (shape.dim as f32).sqrt();
    // Gemma's embedding enters the stream sqrt(dim) times as large.
    let scale = if shape.family.is_gemma() { root } else { shape.family.embedding_scale() };
    let embed = EMBEDDING / scale;
    let gain = LOGITS * shape.family.logit_scale() / (root * embed);

    if let Some(factors) = shape.rope_factors() {
        p.vector("rope_freqs.weight", factors.len(), Fill::Values(factors));
    }
    p.matrix("token_embd.weight", shape.dim, shape.vocab, embed);
    if shape.family == Family::Gemma4 {
        p.layer_inputs(shape);
    }
    for layer in 0..shape.layers {
        p.layer(shape, layer);
    }
    p.vector("output_norm.weight", shape.dim, Fill::Near(gain));
    if !shape.tied {
        p.matrix("output.weight", shape.dim, shape.vocab, embed);
    }
    p.tensors
}

/// The deviation of weights whose products with so many inputs of 1 are as large.
pub(crate) fn even(inputs: usize) -> f32 {
    1.0 / (inputs as f32).sqrt()
}

/// Tensors that are being listed.
pub(crate) struct Plan {
    tensors: Vec<TensorPlan>,
}

impl Plan {
    fn layer(&mut self, shape: &Shape, layer: usize) {
        let (dim, ffn) = (shape.dim, shape.ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");
        // The first layer's is added to nothing but the embedding.
        let attention = if layer == 0 { EMBEDDING } else { ATTENTION } / shape.family.residual_scale();

        if shape.family == Family::Gemma4 {
            return self.gemma4_layer(shape, layer, attention);
        }
        self.vector(&name("attn_norm.weight"), dim, Fill::Near(1.0));
        match shape.mixer(layer) {
            Mixer::Linear if shape.family.has_spaces() => self.space(shape, layer, attention),
            Mixer::Linear => self.linear_attention(shape, layer, attention),
            Mixer::Attention => self.attention(shape, layer, attention),
            Mixer::None => self.ungated_mixture(shape, layer),
        }
        if shape.family == Family::NemotronMoe {
            return;
        }
        if shape.family == Family::FalconH1 {
            self.attention(shape, layer, attention);
        }
        if shape.family == Family::Gemma2 {
            self.vector(&name("post_attention_norm.weight"), dim, Fill::Near(attention));
        }
        let norm = match shape.family {
            Family::GptOss | Family::Qwen35 | Family::SeedOss => "post_attention_norm.weight",
            // As the converter leaves it.
            Family::FalconH1 => "ffn_norm",
            _ => "ffn_norm.weight",
        };
        self.vector(&name(norm), dim, Fill::Near(1.0));
        if shape.has_experts() {
            self.mixture(shape, layer);
        } else {
            self.matrix(&name("ffn_gate.weight"), dim, ffn, even(dim));
            self.matrix(&name("ffn_up.weight"), dim, ffn, even(dim));
            self.matrix(&name("ffn_down.weight"), ffn, dim, even(ffn) / shape.family.residual_scale());
        }
        if shape.family == Family::Gemma2 {
            self.vector(&name("post_ffw_norm.weight"), dim, Fill::Near(1.0));
        }
    }

    /// Softmax attention, whose output has the size `size`.
    fn attention(&mut self, shape: &Shape, layer: usize, size: f32) {
        let (q, kv) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        let (dim, name) = (shape.dim, |part: &str| format!("blk.{layer}.{part}"));
        // Each head's query and then its gate.
        let rows = if shape.family == Family::Qwen35 { 2 * q } else { q };
        self.matrix(&name("attn_q.weight"), dim, rows, even(dim));
        self.matrix(&name("attn_k.weight"), dim, kv, even(dim));
        self.matrix(&name("attn_v.weight"), dim, kv, even(dim));
        if matches!(shape.family, Family::Qwen2 | Family::GptOss | Family::SeedOss) {
            self.vector(&name("attn_q.bias"), q, Fill::Random(BIAS));
            self.vector(&name("attn_k.bias"), kv, Fill::Random(BIAS));
            self.vector(&name("attn_v.bias"), kv, Fill::Random(BIAS));
        }
        if matches!(shape.family, Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35) {
            self.vector(&name("attn_q_norm.weight"), shape.head_dim, Fill::Near(1.0));
            self.vector(&name("attn_k_norm.weight"), shape.head_dim, Fill::Near(1.0));
        }
        self.matrix(&name("attn_output.weight"), q, dim, size * even(q));
        if shape.family == Family::GptOss {
            self.vector(&name("attn_output.bias"), dim, Fill::Random(size * BIAS));
            self.vector(&name("attn_sinks.weight"), shape.heads, Fill::Random(1.0));
        }
    }

    /// Linear attention, whose output has the size `size`. What a token leaves in the state is halved after some eight.
    fn linear_attention(&mut self, shape: &Shape, layer: usize, size: f32) {
        let ([keys, heads], dim) = (shape.linear, shape.dim);
        let (channels, values) = ((2 * keys + heads) * LINEAR_DIM, heads * LINEAR_DIM);
        let name = |part: &str| format!("blk.{layer}.{part}");
        self.matrix(&name("attn_qkv.weight"), dim, channels, even(dim));
        self.matrix(&name("attn_gate.weight"), dim, values, even(dim));
        self.matrix(&name("ssm_conv1d.weight"), TAPS, channels, even(TAPS));
        self.vector(&name("ssm_dt.bias"), heads, Fill::Random(BIAS));
        self.vector(&name("ssm_a"), heads, Fill::Near(-0.1));
        self.matrix(&name("ssm_alpha.weight"), dim, heads, even(dim));
        self.matrix(&name("ssm_beta.weight"), dim, heads, even(dim));
        self.vector(&name("ssm_norm.weight"), LINEAR_DIM, Fill::Near(1.0));
        self.matrix(&name("ssm_out.weight"), values, dim, size * even(values));
    }

    /// A selective state space, whose output has the size `size`. Steps in time are about 0.7, so it forgets as linear attention does.
    fn space(&mut self, shape: &Shape, layer: usize, size: f32) {
        let ([groups, heads], dim) = (shape.linear, shape.dim);
        let inner = heads * SPACE_DIM;
        let channels = inner + 2 * groups * shape.family.state_dim();
        let name = |part: &str| format!("blk.{layer}.{part}");
        self.matrix(&name("ssm_in.weight"), dim, inner + channels + heads, even(dim));
        self.matrix(&name("ssm_conv1d.weight"), TAPS, channels, even(TAPS));
        self.vector(&name("ssm_conv1d.bias"), channels, Fill::Random(BIAS));
        self.vector(&name("ssm_dt.bias"), heads, Fill::Random(BIAS));
        self.push(&name("ssm_a"), vec![1, heads as u64], Fill::Near(-0.1));
        self.push(&name("ssm_d"), vec![1, heads as u64], Fill::Near(1.0));
        let norm = vec![(inner / groups) as u64, groups as u64];
        self.push(&name("ssm_norm.weight"), norm, Fill::Near(1.0));
        self.matrix(&name("ssm_out.weight"), inner, dim, size * even(inner));
    }

    /// A router and the experts among which it chooses.
    fn mixture(&mut self, shape: &Shape, layer: usize) {
        let ([experts, used], dim, ffn) = (shape.experts, shape.dim, shape.ffn);
        // Shares of those chosen sum to one, so what they add together is smaller than what each would.
        let down = even(ffn) * (used as f32).sqrt() / shape.family.residual_scale();
        self.matrix(&format!("blk.{layer}.ffn_gate_inp.weight"), dim, experts, even(dim));
        for (part, cols, rows, std) in
            [("gate", dim, ffn, even(dim)), ("up", dim, ffn, even(dim)), ("down", ffn, dim, down)]
        {
            let name = format!("blk.{layer}.ffn_{part}_exps.weight");
            self.push(&name, vec![cols as u64, rows as u64, experts as u64], Fill::Random(std));
        }
        if shape.family == Family::GptOss {
            self.vector(&format!("blk.{layer}.ffn_gate_inp.bias"), experts, Fill::Random(BIAS));
            for (part, rows) in [("gate", ffn), ("up", ffn), ("down", dim)] {
                let name = format!("blk.{layer}.ffn_{part}_exps.bias");
                self.push(&name, vec![rows as u64, experts as u64], Fill::Random(BIAS));
            }
        }
    }

    /// A mixture without gates, and what is beside it. A squared ReLU of 1 has a mean square of 1.5, and the two add half of 1's each.
    fn ungated_mixture(&mut self, shape: &Shape, layer: usize) {
        let ([experts, used], dim, ffn) = (shape.experts, shape.dim, shape.ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (half, shared) = (1.0 / 3_f32.sqrt(), NEMOTRON_SHARED * ffn);
        let down = half * even(ffn) * (used as f32).sqrt() / NEMOTRON_SCALE;
        self.matrix(&name("ffn_gate_inp.weight"), dim, experts, even(dim));
        self.vector(&name("exp_probs_b.bias"), experts, Fill::Random(0.1 * BIAS));
        for (part, cols, rows, std) in [("up", dim, ffn, even(dim)), ("down", ffn, dim, down)] {
            let dims = vec![cols as u64, rows as u64, experts as u64];
            self.push(&name(&format!("ffn_{part}_exps.weight")), dims, Fill::Random(std));
        }
        self.matrix(&name("ffn_up_shexp.weight"), dim, shared, even(dim));
        self.matrix(&name("ffn_down_shexp.weight"), shared, dim, half * even(shared));
    }

    pub(crate) fn matrix(&mut self, name: &str, cols: usize, rows: usize, std: f32) {
        self.push(name, vec![cols as u64, rows as u64], Fill::Random(std));
    }

    pub(crate) fn vector(&mut self, name: &str, len: usize, fill: Fill) {
        self.push(name, vec![len as u64], fill);
    }

    fn push(&mut self, name: &str, dims: Vec<u64>, fill: Fill) {
        self.tensors.push(TensorPlan { name: name.to_owned(), dims, ty: GgmlType::F32, fill });
    }
}
