//! Which tensor gets which type: llama.cpp's choice, so that a file is what people know under its name.
//!
//! Source: `llama_tensor_get_type` of llama.cpp's quantiser.
//! Its mixes spend bits where errors hurt most: on the head, and on `attn_v` and `ffn_down` in the outer layers and every
//! third of the others. The choice is a function of names and shapes, and of whether there are importances, and of nothing else, so that it
//! can be asked before anything is read (`ogive synth` draws its random blocks by it).

mod choice;

use crate::format::FileFormat;
use crate::{Error, Result, tensor_type};
use choice::{Counts, is_embedding, is_value, layer};
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
    /// Whether matrices are packed by importances. Some then get fewer bits, and of Q4_0 and Q5_0 some more.
    pub has_importance: bool,
}

/// A tensor's name and its dimensions, fastest first.
pub type Shape<'a> = (&'a str, &'a [u64]);

impl Mix {
    /// llama.cpp's choice for a format.
    pub fn new(format: &'static FileFormat) -> Self {
        Self { format, pure: false, output: None, embedding: None, rules: Vec::new(), has_importance: false }
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
        let values = tensors.iter().filter(|(n, _)| is_value(n)).count();
        let mut counts = Counts::new(has("output.weight"), values);
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

/// An architecture with names of its own that are left alone.
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
    use GgmlType::*;
    let fits = |ty: GgmlType| cols.is_multiple_of(ty.block_len());
    if fits(ty) {
        return ty;
    }
    let other = match ty {
        Q2_K | Q3_K | TQ1_0 | TQ2_0 => Q4_0,
        IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_XS => IQ4_NL,
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
