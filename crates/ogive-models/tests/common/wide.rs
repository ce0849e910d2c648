//! Golden models made wide enough to be packed: a row of their 48 elements fills no block of a format.
//!
//! Shapes and settings grow by a table, numbers are drawn again with the golden ones' size. Nobody computed such a model's logits
//! elsewhere, so they are held against the CPU's, in single precision and with the same packed weights.

use ogive_nn::backend::Backend;
use ogive_nn::tensor::{Error, F32, Format, HostWeight, Q4_K, Q6_K, Q8_0, Result, WeightInfo, serde_json};
use ogive_nn::{Config, Loader, Model, Source};
use std::collections::BTreeMap;
use std::path::Path;

/// How many experts there are, by Mixtral's name, by Qwen's, by DeepSeek's or by ERNIE's.
fn experts_of(config: &serde_json::Value) -> Option<&serde_json::Value> {
    let names = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
    names.into_iter().find_map(|key| config.get(key))
}

/// What decides how a model grows.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Dense,
    Experts,
    /// Experts of another width than a layer without them has, or heads of which a part turns.
    Uneven,
    /// Attention to latents, and experts.
    Latent,
    /// Linear attention in some layers.
    Hybrid,
    /// State spaces in some layers.
    Space,
    /// State spaces beside attention.
    Beside,
    /// Layers that are one thing each, state spaces and mixtures without gates among them.
    Blocks,
    /// State spaces alone.
    Alone,
    /// Two kinds of heads.
    Heads,
}

impl Kind {
    fn of(config: &serde_json::Value) -> Self {
        if config.get("linear_num_key_heads").is_some() {
            return Self::Hybrid;
        }
        if config.get("global_head_dim").is_some() {
            return Self::Heads;
        }
        if config.get("mamba_d_ssm").is_some() {
            return Self::Beside;
        }
        if config.get("num_heads").is_some() {
            return Self::Alone;
        }
        if config.get("mamba_n_heads").is_some() {
            return Self::Space;
        }
        if config.get("mamba_num_heads").is_some() {
            return Self::Blocks;
        }
        if ["moe_k", "rotary_dim"].into_iter().any(|key| config.get(key).is_some()) {
            return Self::Uneven;
        }
        match (config.get("kv_lora_rank"), experts_of(config)) {
            (Some(_), _) => Self::Latent,
            (None, Some(_)) => Self::Experts,
            (None, None) => Self::Dense,
        }
    }
}

/// Settings that are set: four heads of 64, two of keys, and a feed-forward width of 512, or of 256 for each expert; latents of 256. Hybrids have two
/// heads of 256 and one of keys, as their files do, and of linear attention four heads and two of keys, of 64; spaces four heads of 64 by 64. All experts are chosen: rounding may
/// send a near tie to another one, and then an error says nothing of the arithmetic.
fn settings(config: &mut serde_json::Value) {
    let (experts, kind) = (experts_of(config).cloned(), Kind::of(config));
    let key_heads = config["num_key_value_heads"].clone();
    for (key, value) in [
        ("hidden_size", 256),
        ("head_dim", 64),
        ("num_attention_heads", 4),
        ("num_key_value_heads", 2),
        ("intermediate_size", if kind == Kind::Experts { 256 } else { 512 }),
    ] {
        config[key] = value.into();
    }
    let own: &[(&str, usize)] = match kind {
        Kind::Dense | Kind::Experts | Kind::Uneven => &[],
        Kind::Latent => {
            &[("kv_lora_rank", 256), ("qk_nope_head_dim", 128), ("qk_rope_head_dim", 64), ("v_head_dim", 128)]
        }
        Kind::Hybrid => &[
            ("num_attention_heads", 2),
            ("num_key_value_heads", 1),
            ("head_dim", 256),
            ("linear_num_key_heads", 2),
            ("linear_num_value_heads", 4),
            ("linear_key_head_dim", 64),
            ("linear_value_head_dim", 64),
        ],
        Kind::Space => &[
            ("mamba_n_heads", 4),
            ("mamba_d_head", 64),
            ("mamba_d_state", 64),
            ("mamba_expand", 1),
            ("shared_intermediate_size", 512),
        ],
        Kind::Beside => {
            &[("mamba_n_heads", 4), ("mamba_d_head", 64), ("mamba_d_state", 64), ("mamba_d_ssm", 256)]
        }
        Kind::Blocks => {
            &[("mamba_num_heads", 4), ("mamba_head_dim", 64), ("ssm_state_size", 64), ("n_groups", 2)]
        }
        Kind::Alone => &[("num_heads", 4), ("n_groups", 2), ("state_size", 64)],
        Kind::Heads => &[("global_head_dim", 128), ("hidden_size_per_layer_input", 64)],
    };
    let (has_inputs, has_own) =
        (config["hidden_size_per_layer_input"] != 0, !config["num_global_key_value_heads"].is_null());
    for (key, value) in own {
        config[key] = (*value).into();
    }
    if kind == Kind::Heads {
        config["num_key_value_heads"] = key_heads;
        if !has_inputs {
            config["hidden_size_per_layer_input"] = 0.into();
        }
        if has_own {
            config["num_global_key_value_heads"] = 2.into();
        }
        config["top_k_experts"] = experts.clone().unwrap_or_default();
    }
    if kind == Kind::Dense && config.get("hidden_size_per_layer_input").is_some() {
        config["hidden_size_per_layer_input"] = 64.into();
    }
    if kind == Kind::Latent {
        config["topk_group"] = config["n_group"].clone();
    }
    if let Some(experts) = experts {
        let key = if config.get("moe_k").is_some() { "moe_k" } else { "num_experts_per_tok" };
        config[key] = experts;
    }
}

/// What becomes of a dimension: the vocabulary and the number of experts stay.
fn grown(n: usize, kind: Kind) -> usize {
    match kind {
        Kind::Hybrid => match n {
            6 => 4,                             // heads of linear attention
            8 | 12 => 64,                       // one of them
            16 | 20 | 24 | 32 | 48 | 72 => 256, // hidden, keys and values, all heads of linear attention, experts
            56 | 96 | 104 | 144 => 512,         // all heads, what is convolved
            176 => 768,                         // what is projected at once
            192 | 288 => 1024,                  // queries and their gates
            other => other,
        },
        Kind::Alone => match n {
            6 => 4,         // heads
            48 | 96 => 256, // hidden, and all heads
            156 => 512,     // what is convolved
            258 => 772,     // what is projected at once
            other => other,
        },
        Kind::Beside => match n {
            6 => 4,         // heads of a space
            24 => 128,      // keys and values
            48 | 72 => 256, // hidden, and all heads of either
            56 => 512,
            112 => 512, // what is convolved
            190 => 772, // what is projected at once
            other => other,
        },
        Kind::Space => match n {
            6 => 4,    // heads of a space
            16 => 128, // keys and values
            40 => 512,
            48 | 96 => 256, // hidden, all heads of a space
            80 => 1024,     // gate and up
            112 => 384,     // what is convolved
            214 => 644,     // what is projected at once
            other => other,
        },
        Kind::Blocks => match n {
            6 => 4,              // heads of a space
            24 => 128,           // keys and values
            20 | 48 | 72 => 256, // experts, hidden, all heads of either kind
            40 | 132 => 512,     // what is beside experts, what is convolved
            210 => 772,          // what is projected at once
            other => other,
        },
        Kind::Uneven => match n {
            16 | 40 => 128,            // keys and values
            12 | 20 | 48 | 120 => 256, // experts, hidden, and all heads
            24 | 56 => 512,            // what all rows share, and a layer without experts
            other => other,
        },
        Kind::Heads => match n {
            8 | 12 => 64, // a layer's input, a short head
            24 => 128,    // a long head, two short ones
            20 | 48 | 72 => 256,
            40 | 144 => 512,
            other => other,
        },
        Kind::Latent => match n {
            20 | 24 | 48 => 256,
            40 => 320,      // a latent, and what rotates
            50 | 56 => 512, // values of all heads
            140 => 768,     // queries
            110 => 1024,    // keys without a position, and values
            other => other,
        },
        Kind::Dense | Kind::Experts => match n {
            48 | 72 => 256, // hidden, and all heads
            40 | 56 => 512,
            24 if kind == Kind::Experts => 256,
            16 | 24 => 128, // keys and values
            144 => 768,     // two gates, and what is convolved
            8 | 12 => 64,
            other => other,
        },
    }
}

/// How a weight is packed.
pub(crate) type Mix = fn(&str) -> &'static Format;

/// As files have it that are called Q4_K_M: what adds to the residual, and the head, in more bits.
#[allow(dead_code)] // not every test program wants it
pub(crate) fn q4_k_m(name: &str) -> &'static Format {
    let more = ["down_proj", "w2", "lm_head", "embed_tokens"];
    if more.iter().any(|part| name.contains(part)) { &Q6_K } else { &Q4_K }
}

/// All of it in 8 bits.
#[allow(dead_code)] // not every test program wants it
pub(crate) fn q8_0(_: &str) -> &'static Format {
    &Q8_0
}

/// A golden model's weights, grown and packed.
#[derive(Debug)]
struct Wide(BTreeMap<String, HostWeight>);

impl Source for Wide {
    fn get(&self, name: &str) -> Result<HostWeight> {
        self.0.get(name).cloned().ok_or_else(|| Error::missing(name))
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        self.0.values().map(|w| WeightInfo::new(w.name.as_str(), w.shape, w.format)).collect()
    }
}

/// Numbers of [-1, 1] that are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// A weight of the golden model, grown. Sums over more columns shall be no larger than over the golden ones.
fn grow(golden: &HostWeight, kind: Kind, mix: Mix, random: &mut Random) -> HostWeight {
    let [stack, rows, cols] = golden.shape;
    // Inputs of all layers are as many as the model is wide there.
    let inputs = |n: usize| n / 8 * 64;
    let to = if golden.name.contains("_tokens_per_layer") { inputs(cols) } else { grown(cols, kind) };
    let values = golden.to_vec();
    if rows == 1 {
        // Norms, biases and the taps of a convolution's channels: the golden values, over and over.
        let shape = [grown(stack, kind), 1, to];
        let values: Vec<f32> = values.iter().copied().cycle().take(shape.iter().product()).collect();
        return HostWeight::from_f32(golden.name.as_str(), shape, &values).unwrap();
    }
    if golden.name.ends_with("conv.weight") {
        // Taps of channels, which no file packs.
        let channels = grown(stack, kind);
        let taps: Vec<f32> = values.iter().copied().cycle().take(channels * cols).collect();
        return HostWeight::from_f32(golden.name.as_str(), [channels, 1, cols], &taps).unwrap();
    }
    let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
    let size = (3.0 * square * cols as f32 / to as f32).sqrt();
    // Of a hybrid's heads, which are as many as one has elements elsewhere.
    let down = match &*golden.name {
        name if name.contains("in_proj_ba") => 8,
        name if name.contains("per_layer_model_") => inputs(rows),
        _ => grown(rows, kind),
    };
    // What decides about experts stays as it is kept: files pack it no more than norms.
    let plain = ["gate.weight", "router.proj"].iter().any(|part| golden.name.contains(part));
    let format = Some(mix(&golden.name)).filter(|f| !plain && to.is_multiple_of(f.block_len)).unwrap_or(&F32);
    let mut bytes = Vec::new();
    for _ in 0..stack * down {
        let row: Vec<f32> = (0..to).map(|_| size * random.next()).collect();
        let mut packed = vec![0; format.row_bytes(to)];
        format.encode_row(&row, &mut packed).unwrap();
        bytes.extend(packed);
    }
    HostWeight::new(golden.name.as_str(), [stack, down, to], format, bytes.into()).unwrap()
}

/// A golden model that was grown and packed.
#[derive(Debug)]
pub(crate) struct WideModel {
    architecture: String,
    config: Config,
    weights: Wide,
}

impl WideModel {
    /// Grows the golden model at `path`.
    pub(crate) fn of(path: &Path, mix: Mix) -> Self {
        let mut golden = ogive_weights::open(path).unwrap();
        if golden.config.has("text_config") {
            golden.config = golden.config.at("text_config");
            golden.architecture = golden.architecture.replace("ForConditionalGeneration", "ForCausalLM");
        }
        let kind = Kind::of(&golden.config.0);
        let (mut config, mut random) = (golden.config, Random(7));
        settings(&mut config.0);
        let weights = golden.source.tensors().into_iter().map(|info| {
            let weight = golden.source.get(&info.name).unwrap();
            (info.name, grow(&weight, kind, mix, &mut random))
        });
        let weights = Wide(weights.collect());
        Self { architecture: golden.architecture, config, weights }
    }

    /// The same with other weights.
    #[allow(dead_code)] // not every test program wants it
    pub(crate) fn map(mut self, change: impl Fn(HostWeight) -> HostWeight) -> Self {
        self.weights.0 = self.weights.0.into_iter().map(|(name, w)| (name, change(w))).collect();
        self
    }

    /// Loads it.
    pub(crate) fn load(&self, b: &dyn Backend) -> Box<dyn Model> {
        self.load_noted(b).0
    }

    /// Loads it, and says which weights do not stay packed and why.
    pub(crate) fn load_noted(&self, b: &dyn Backend) -> (Box<dyn Model>, Vec<String>) {
        let loader = Loader::new(&self.weights, b);
        let model = ogive_models::registry().build(&self.architecture, &self.config, &loader).unwrap();
        let notes = loader.unpacked().into_iter();
        (model, notes.map(|(info, why)| format!("{}: {}", info.name, why.why)).collect())
    }
}
