//! Which tensor gets which type: llama.cpp's choice, so that a file is what people know under its name.
//!
//! Source: `llama_tensor_get_type` of llama.cpp's quantiser, without the branches for formats that choose by importance.
//! Its mixes spend bits where errors hurt most: on the head, and on `attn_v` and `ffn_down` in the outer layers and every
//! third of the others. The choice is a function of names and shapes alone, so that it can be asked before anything is read
//! (`ogive synth` draws its random blocks by it).

use crate::format::FileFormat;
use crate::{Error, Result, tensor_type};
use gguf_file::{GgmlType, Metadata};
use regex::Regex;

/// What the choice depends on besides names and shapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The name under `general.architecture`.
    pub architecture: String,
    /// How many layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key heads.
    pub kv_heads: usize,
    /// Experts of a layer; 0 or 1 for a dense model.
    pub experts: usize,
}

impl Facts {
    /// Facts of a model that is not in a file.
    pub fn new(
        architecture: impl Into<String>,
        layers: usize,
        heads: usize,
        kv_heads: usize,
        experts: usize,
    ) -> Self {
        Self { architecture: architecture.into(), layers, heads, kv_heads, experts }
    }

    /// What a file's metadata say; what they leave out is 0. Heads that differ from layer to layer count as the first
    /// layer's.
    pub fn of(metadata: &Metadata) -> Self {
        let architecture = metadata.str("general.architecture").unwrap_or_default().to_owned();
        let number = |key: &str| {
            let value = metadata.get(&format!("{architecture}.{key}"))?;
            let first = || Some(i128::from(*value.as_array()?.to_i64()?.first()?));
            usize::try_from(value.as_int().or_else(first)?).ok()
        };
        let heads = number("attention.head_count").unwrap_or(0);
        Self {
            layers: number("block_count").unwrap_or(0),
            heads,
            kv_heads: number("attention.head_count_kv").unwrap_or(heads),
            experts: number("expert_count").unwrap_or(0),
            architecture,
        }
    }

    /// Query heads that share a key head.
    fn sharing(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(1)
    }

    /// Whether llama.cpp takes the model for one of 70 billion parameters.
    fn is_70b(&self) -> bool {
        match &*self.architecture {
            // One with as many key heads as query heads is the 65B model.
            "llama" | "llama-embed" => self.layers == 80 && self.heads != self.kv_heads,
            "qwen2" | "deci" | "olmo" => self.layers == 80,
            "jais2" => self.layers == 68,
            _ => false,
        }
    }
}

/// A type for all tensors whose name has a match, or that they keep theirs.
#[derive(Clone, Debug)]
pub struct Rule {
    pattern: Regex,
    /// `None` for tensors that stay as they are.
    ty: Option<GgmlType>,
}

impl Rule {
    /// Whether it is for the tensor of this name.
    pub fn matches(&self, name: &str) -> bool {
        self.pattern.is_match(name)
    }
}

impl std::str::FromStr for Rule {
    type Err = Error;

    /// From `PATTERN=FORMAT` or `PATTERN=keep`, the pattern a regular expression that matches anywhere in the name.
    fn from_str(rule: &str) -> Result<Self> {
        let wrong = |why: String| Error::Rule { rule: rule.to_owned(), why };
        let (pattern, ty) = rule.rsplit_once('=').ok_or_else(|| wrong("has no `=`".into()))?;
        if pattern.is_empty() {
            return Err(wrong("has no pattern".into()));
        }
        let pattern = Regex::new(pattern).map_err(|e| {
            wrong(format!("has a pattern that does not parse ({})", one_line(&e.to_string())))
        })?;
        let ty = if ty.eq_ignore_ascii_case("keep") { None } else { Some(tensor_type(ty)?) };
        Ok(Self { pattern, ty })
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How types are chosen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mix {
    /// The format of the file.
    pub format: &'static FileFormat,
    /// The format's base type for every matrix, without exceptions for some tensors.
    pub pure: bool,
    /// The type of `output.weight`; of the embedding where that is the head too.
    pub output: Option<GgmlType>,
    /// The type of `token_embd.weight` and `per_layer_token_embd.weight`.
    pub embedding: Option<GgmlType>,
    /// Types by name. The first rule that matches counts, before everything else.
    pub rules: Vec<Rule>,
}

/// A tensor's name and its dimensions, fastest first.
pub type Shape<'a> = (&'a str, &'a [u64]);

impl Mix {
    /// llama.cpp's choice for a format.
    pub fn new(format: &'static FileFormat) -> Self {
        Self { format, pure: false, output: None, embedding: None, rules: Vec::new() }
    }

    /// The type of each tensor; `None` for those that are no matrices to be packed, or that a rule keeps: they stay as they
    /// are.
    ///
    /// # Errors
    /// If a type that was asked for by name does not fit a tensor's rows.
    pub fn choose(&self, facts: &Facts, tensors: &[Shape<'_>]) -> Result<Vec<Option<GgmlType>>> {
        // llama.cpp counts tensors of a kind in the order of layers, then of names.
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|&i| tensors.get(i).map(|(name, _)| (layer(name).map_or(-1, i128::from), *name)));
        let has = |name: &str| tensors.iter().any(|(n, _)| *n == name);
        let mut counts = Counts {
            has_output: has("output.weight"),
            values: tensors.iter().filter(|(n, _)| is_value(n)).count(),
            ..Counts::default()
        };
        let mut types = vec![None; tensors.len()];
        for i in order {
            if let (Some((name, dims)), Some(ty)) = (tensors.get(i), types.get_mut(i)) {
                *ty = self.one(facts, name, dims, &mut counts)?;
            }
        }
        Ok(types)
    }

    fn one(&self, facts: &Facts, name: &str, dims: &[u64], counts: &mut Counts) -> Result<Option<GgmlType>> {
        if !is_matrix(&facts.architecture, name, dims) {
            return Ok(None);
        }
        let cols = dims.first().copied().unwrap_or(0);
        // Counted whatever a rule says: a rule for one tensor must not move the others.
        let chosen = if facts.architecture == CLIP {
            of_tower(name, self.format.base)
        } else if self.pure || !self.format.is_packed() {
            self.format.base
        } else {
            self.mixed(facts, name, dims, counts)
        };
        let rule = match self.rule(name) {
            Some(Rule { ty: None, .. }) => return Ok(None),
            rule => rule.and_then(|r| r.ty),
        };
        let output = self.output.filter(|_| counts.is_head(name));
        let embedding = self.embedding.filter(|_| is_embedding(name));
        match rule.or(embedding).or(output) {
            Some(ty) if cols.is_multiple_of(ty.block_len()) => Ok(Some(ty)),
            Some(ty) => Err(Error::Blocks { tensor: name.to_owned(), cols, format: ty.name() }),
            None => Ok(Some(fitting(chosen, cols))),
        }
    }

    fn mixed(&self, facts: &Facts, name: &str, dims: &[u64], counts: &mut Counts) -> GgmlType {
        use GgmlType::{IQ4_NL, IQ4_XS, MXFP4, Q3_K, Q4_K, Q5_K, Q6_K, Q8_0};
        let (format, base) = (self.format.name, self.format.base);
        let falcon = facts.architecture == "falcon";
        let iq4 = matches!(base, IQ4_NL | IQ4_XS);
        let eight_experts = facts.experts == 8;
        let has = |part: &str| name.contains(part);
        if facts.architecture == GLM5_NEXT && GLM5_NEXT_IN_EIGHT_BITS.iter().any(|part| has(part)) {
            return Q8_0;
        }
        if counts.is_head(name) {
            let whole = dims.first().is_some_and(|n| n.is_multiple_of(base.block_len()));
            return if format == "mxfp4_moe" || falcon || !whole || base == Q8_0 { Q8_0 } else { Q6_K };
        }
        if format == "mxfp4_moe" {
            // One architecture has stacks that are no experts.
            let is_expert = facts.architecture != "bailingmoe3"
                || ["ffn_up", "ffn_gate", "ffn_down"].iter().any(|part| has(part));
            return if is_expert && dims.get(2).is_some_and(|n| *n > 1) { MXFP4 } else { Q8_0 };
        }
        if is_embedding(name) {
            return base;
        }
        if is_value(name) {
            let i = counts.value;
            counts.value += 1;
            let ty = match format {
                "q2_k" => {
                    if facts.sharing() >= 4 {
                        Q4_K
                    } else {
                        Q3_K
                    }
                }
                "q2_k_s" if facts.sharing() >= 4 => Q4_K,
                "q3_k_m" => {
                    if i < 2 {
                        Q5_K
                    } else {
                        Q4_K
                    }
                }
                "q3_k_l" => Q5_K,
                _ if iq4 && facts.sharing() >= 4 => Q5_K,
                "q4_k_m" | "q5_k_m" if more_bits(i, counts.values) => Q6_K,
                "q4_k_s" if i < 4 => Q5_K,
                _ => base,
            };
            return match ty {
                _ if eight_experts => Q8_0,
                Q3_K | Q4_K if facts.is_70b() => Q5_K,
                ty => ty,
            };
        }
        if has("attn_k.weight") && eight_experts {
            return Q8_0;
        }
        if has("ffn_down") {
            // With experts several tensors belong to a layer, so its number is read from the name.
            let named = layer(name).and_then(|l| usize::try_from(l).ok()).filter(|_| facts.experts > 1);
            let (i, n) = (named.unwrap_or(counts.down), facts.layers);
            counts.down += 1;
            return match format {
                "q2_k" => Q3_K,
                "q2_k_s" if i < n / 8 => Q4_K,
                "q3_k_m" if i < n / 16 => Q5_K,
                "q3_k_m" if !falcon || more_bits(i, n) => Q4_K,
                "q3_k_l" => {
                    if falcon {
                        Q4_K
                    } else {
                        Q5_K
                    }
                }
                "q4_k_m" if falcon && i < n / 16 => Q6_K,
                "q4_k_m" if more_bits(i, n) => {
                    if falcon {
                        Q5_K
                    } else {
                        Q6_K
                    }
                }
                "q5_k_m" if more_bits(i, n) => Q6_K,
                _ if iq4 && i < n / 8 => Q5_K,
                "q4_k_s" if !falcon && i < n / 8 => Q5_K,
                _ => base,
            };
        }
        if has("attn_output.weight") {
            return match format {
                "q3_k_l" if falcon => Q4_K,
                _ if falcon => base,
                "q2_k" | "q3_k_s" | "q3_k_m" | "q4_k_s" | "q4_k_m" | "iq4_nl" | "iq4_xs" if eight_experts => {
                    Q5_K
                }
                _ if eight_experts => base,
                "q2_k" => Q3_K,
                "q3_k_m" => Q4_K,
                "q3_k_l" => Q5_K,
                _ => base,
            };
        }
        base
    }

    /// Whether a rule leaves this tensor as it is, which would get a type without it.
    pub(crate) fn keeps(&self, facts: &Facts, name: &str, dims: &[u64]) -> bool {
        self.rule(name).is_some_and(|r| r.ty.is_none()) && is_matrix(&facts.architecture, name, dims)
    }

    /// Whether a rule names the type of this tensor.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.rule(name).is_some_and(|r| r.ty.is_some())
    }

    /// The rule that counts for this tensor.
    fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|r| r.matches(name))
    }
}

/// What was met so far.
#[derive(Debug, Default)]
struct Counts {
    has_output: bool,
    /// Tensors that hold values, and which comes next.
    values: usize,
    value: usize,
    /// Which `ffn_down` comes next.
    down: usize,
}

impl Counts {
    /// Whether the tensor makes logits: the head, or an embedding that is the head too. llama.cpp makes no difference between
    /// that and the embeddings of layers.
    fn is_head(&self, name: &str) -> bool {
        name == "output.weight" || !self.has_output && is_embedding(name)
    }
}

fn is_embedding(name: &str) -> bool {
    name == "token_embd.weight" || name == "per_layer_token_embd.weight"
}

/// Whether it makes values, alone or with queries and keys.
fn is_value(name: &str) -> bool {
    ["attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"].iter().any(|part| name.contains(part))
}

/// Whether it is one of the layers whose sensitive tensors get more bits.
fn more_bits(layer: usize, layers: usize) -> bool {
    let edge = layers / 8;
    layer < edge || layer >= 7 * layers / 8 || (layer - edge) % 3 == 2
}

/// The number in `blk.N.`.
fn layer(name: &str) -> Option<u64> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Names that no matrix to be packed has, whatever its shape: small ones, and those that decide (which expert, which
/// position).
const LEFT_ALONE: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
];

/// What models see with. llama.cpp's quantiser does not take such files; its converter gives all matrices one type.
const CLIP: &str = "clip";

/// The type of a tower's matrix. One is turned by its readers, which take it in halves or singles only.
fn of_tower(name: &str, base: GgmlType) -> GgmlType {
    match name {
        "mm.input_projection.weight" if base != GgmlType::F32 => GgmlType::F16,
        _ => base,
    }
}

/// An architecture with names of its own that are left alone, and with some that get no less than eight bits.
const GLM5_NEXT: &str = "glm5-next";
const GLM5_NEXT_LEFT_ALONE: &[&str] = &[
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
];
const GLM5_NEXT_IN_EIGHT_BITS: &[&str] = &["attn_q_a", "attn_q_b", "nextn.eh_proj"];

fn is_matrix(architecture: &str, name: &str, dims: &[u64]) -> bool {
    let more = if architecture == GLM5_NEXT { GLM5_NEXT_LEFT_ALONE } else { &[] };
    let dimensions = dims.iter().rposition(|d| *d > 1).map_or(1, |i| i + 1);
    name.ends_with("weight")
        && dimensions >= 2
        && !["position_embd.weight", "token_types.weight"].contains(&name)
        && !LEFT_ALONE.iter().chain(more).any(|part| name.contains(part))
}

/// The type, or the nearest that rows of `cols` elements can have.
fn fitting(ty: GgmlType, cols: u64) -> GgmlType {
    use GgmlType::{F16, IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    let fits = |ty: GgmlType| cols.is_multiple_of(ty.block_len());
    if fits(ty) {
        return ty;
    }
    let other = match ty {
        Q2_K | Q3_K => Q4_0,
        IQ4_XS => IQ4_NL,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        _ => F16,
    };
    if fits(other) { other } else { F16 }
}

#[cfg(test)]
#[path = "mix_tests.rs"]
mod tests;
