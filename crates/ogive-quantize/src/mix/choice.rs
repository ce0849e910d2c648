//! The choice itself, tensor by tensor, where the format of the file is a mix.
//!
//! Source: `llama_tensor_get_type_impl` of llama.cpp's quantiser. Its branches ask for the format first and for the kind of tensor then, or the other way
//! round. Here kinds come first and formats are a table in each, so that all of a kind stands in one place; only formats of
//! two bits and fewer, which share no line with the rest, are a table of their own.

use super::{Facts, Mix};
use gguf_file::GgmlType;
use gguf_file::GgmlType::*;

/// An architecture some of whose tensors get no less than eight bits.
const IN_EIGHT_BITS: (&str, &[&str]) = (super::GLM5_NEXT, &["attn_q_a", "attn_q_b", "nextn.eh_proj"]);

impl Mix {
    pub(super) fn mixed(&self, facts: &Facts, name: &str, dims: &[u64], counts: &mut Counts) -> GgmlType {
        let (format, base) = (self.format.name, self.format.base);
        let falcon = facts.architecture == "falcon";
        let has = |part: &str| name.contains(part);
        let (architecture, parts) = IN_EIGHT_BITS;
        if facts.architecture == architecture && parts.iter().any(|part| has(part)) {
            return Q8_0;
        }
        if counts.is_head(name) {
            let whole = dims.first().is_some_and(|n| n.is_multiple_of(base.block_len()));
            return match format {
                _ if format == "mxfp4_moe" || falcon || !whole || base == Q8_0 => Q8_0,
                "iq3_xxs" => Q5_K,
                _ if is_tiny(format) => Q5_K,
                _ => Q6_K,
            };
        }
        if format == "mxfp4_moe" {
            // One architecture has stacks that are no experts.
            let is_expert = facts.architecture != "bailingmoe3"
                || ["ffn_up", "ffn_gate", "ffn_down"].iter().any(|part| has(part));
            return if is_expert && dims.get(2).is_some_and(|n| *n > 1) { MXFP4 } else { Q8_0 };
        }
        if is_embedding(name) {
            return match format {
                "iq1_s" | "iq1_m" | "iq2_xxs" | "iq2_xs" => Q2_K,
                "iq2_s" | "iq2_m" | "iq3_xxs" => IQ3_S,
                "tq1_0" | "tq2_0" => Q4_K,
                _ => base,
            };
        }
        if is_tiny(format) {
            return self.tiny(facts, name, counts);
        }
        if is_value(name) {
            return self.value(facts, counts);
        }
        if has("attn_k.weight") && facts.experts == 8 {
            return Q8_0;
        }
        if has("attn_k.weight") || has("attn_q.weight") {
            return match format {
                "iq3_xs" => IQ3_XXS,
                "iq3_xxs" => IQ2_S,
                _ => base,
            };
        }
        if has("attn_output.weight") {
            return self.output(facts);
        }
        for (part, count) in [("ffn_up", &mut counts.up), ("ffn_gate", &mut counts.gate)] {
            if has(part) {
                let (i, n) = (facts.layer_of(name, count), facts.layers);
                return if format == "iq3_xs" && (n / 8..7 * n / 8).contains(&i) { IQ3_XXS } else { base };
            }
        }
        if has("ffn_down") { self.down(facts, name, counts) } else { base }
    }

    /// Formats of two bits and fewer.
    fn tiny(&self, facts: &Facts, name: &str, counts: &mut Counts) -> GgmlType {
        let (format, base) = (self.format.name, self.format.base);
        let has = |part: &str| name.contains(part);
        let better = if matches!(format, "iq2_s" | "iq2_m") { IQ3_S } else { Q2_K };
        if is_value(name) {
            counts.value += 1;
            return if facts.sharing() >= 4 || facts.experts >= 4 { Q4_K } else { better };
        }
        if has("attn_k.weight") && facts.experts == 8 {
            return Q4_K;
        }
        if has("attn_output.weight") {
            return match format {
                _ if facts.experts == 8 => Q5_K,
                "iq1_s" | "iq1_m" => IQ2_XXS,
                "iq2_s" | "iq2_m" => IQ3_S,
                _ => base,
            };
        }
        if has("ffn_down") {
            // Here by how many came before, with experts too.
            let i = counts.down;
            counts.down += 1;
            return if i < facts.layers / 8 { better } else { base };
        }
        base
    }

    /// What makes values.
    fn value(&self, facts: &Facts, counts: &mut Counts) -> GgmlType {
        let (i, shared) = (counts.value, facts.sharing() >= 4);
        counts.value += 1;
        let ty = match self.format.name {
            "q2_k" if !shared => Q3_K,
            "iq3_xxs" if !shared && !self.has_importance => IQ3_S,
            "q2_k" | "q2_k_s" | "iq3_xxs" | "iq3_xs" | "iq3_s" if shared => Q4_K,
            "q3_k_m" if i < 2 => Q5_K,
            "q3_k_m" | "iq3_m" => Q4_K,
            "q3_k_l" => Q5_K,
            "iq4_nl" | "iq4_xs" if shared => Q5_K,
            "q4_k_m" | "q5_k_m" if more_bits(i, counts.values) => Q6_K,
            "q4_k_s" if i < 4 => Q5_K,
            _ => self.format.base,
        };
        match ty {
            _ if facts.experts == 8 => Q8_0,
            Q3_K | Q4_K if facts.is_70b() => Q5_K,
            ty => ty,
        }
    }

    /// What attention ends with.
    fn output(&self, facts: &Facts) -> GgmlType {
        match self.format.name {
            "q3_k_l" if facts.architecture == "falcon" => Q4_K,
            _ if facts.architecture == "falcon" => self.format.base,
            "q2_k" | "q3_k_s" | "q3_k_m" | "q4_k_s" | "q4_k_m" | "iq4_nl" | "iq4_xs" | "iq3_xxs"
            | "iq3_xs" | "iq3_s" | "iq3_m"
                if facts.experts == 8 =>
            {
                Q5_K
            }
            _ if facts.experts == 8 => self.format.base,
            "q2_k" => Q3_K,
            "iq3_xxs" => IQ3_S,
            "q3_k_m" | "iq3_m" => Q4_K,
            "q3_k_l" => Q5_K,
            _ => self.format.base,
        }
    }

    /// The second half of an MLP.
    fn down(&self, facts: &Facts, name: &str, counts: &mut Counts) -> GgmlType {
        let (i, n) = (facts.layer_of(name, &mut counts.down), facts.layers);
        let (first, falcon, weighed) = (i < n / 8, facts.architecture == "falcon", self.has_importance);
        match self.format.name {
            "q2_k" => Q3_K,
            "q2_k_s" if first => Q4_K,
            "iq3_xxs" if first && !weighed => Q4_K,
            "iq3_xxs" if !weighed => Q3_K,
            "q3_k_m" if i < n / 16 => Q5_K,
            "q3_k_m" if !falcon || more_bits(i, n) => Q4_K,
            "iq3_m" if first || facts.experts == 8 && more_bits(i, n) => Q4_K,
            "q3_k_l" if falcon => Q4_K,
            "q3_k_l" => Q5_K,
            "q4_k_m" if falcon && i < n / 16 => Q6_K,
            "q4_k_m" if falcon && more_bits(i, n) => Q5_K,
            "q4_k_m" | "q5_k_m" if more_bits(i, n) => Q6_K,
            "iq4_nl" | "iq4_xs" if first && !weighed => Q5_K,
            "q4_k_s" if first && !falcon => Q5_K,
            // By importances these may do badly in the first layers.
            "q4_0" if first && weighed => Q4_1,
            "q5_0" if first && weighed => Q5_1,
            _ => self.format.base,
        }
    }
}

/// Whether it is one of the formats of two bits and fewer that choose from codebooks.
fn is_tiny(format: &str) -> bool {
    matches!(format, "iq1_s" | "iq1_m" | "iq2_xxs" | "iq2_xs" | "iq2_s" | "iq2_m")
}

impl Facts {
    /// Which layer a tensor of an MLP counts as, of those of its kind. With experts several may belong to a layer, so its number is read from the
    /// name.
    fn layer_of(&self, name: &str, count: &mut usize) -> usize {
        let named = layer(name).and_then(|l| usize::try_from(l).ok()).filter(|_| self.experts > 1);
        let i = named.unwrap_or(*count);
        *count += 1;
        i
    }
}

/// What was met so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) has_output: bool,
    /// Tensors that hold values, and which comes next.
    pub(super) values: usize,
    value: usize,
    /// Which tensor of an MLP comes next, by kind.
    down: usize,
    gate: usize,
    up: usize,
}

impl Counts {
    /// Whether the tensor makes logits: the head, or an embedding that is the head too. llama.cpp makes no difference between
    /// that and the embeddings of layers.
    pub(super) fn is_head(&self, name: &str) -> bool {
        name == "output.weight" || !self.has_output && is_embedding(name)
    }

    pub(super) fn new(has_output: bool, values: usize) -> Self {
        Self { has_output, values, ..Self::default() }
    }
}

pub(super) fn is_embedding(name: &str) -> bool {
    name == "token_embd.weight" || name == "per_layer_token_embd.weight"
}

/// Whether it makes values, alone or with queries and keys.
pub(super) fn is_value(name: &str) -> bool {
    ["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"].iter().any(|part| name.contains(part))
}

/// Whether it is one of the layers whose sensitive tensors get more bits.
fn more_bits(layer: usize, layers: usize) -> bool {
    let edge = layers / 8;
    layer < edge || layer >= 7 * layers / 8 || (layer - edge) % 3 == 2
}

/// The number in `blk.N.`.
pub(super) fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}
