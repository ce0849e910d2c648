//! The shapes that are known: what the models' publishers say in their `config.json`.
//!
//! A table and not a way to give one's own numbers: figures can be compared when a shape's name says all of it. A shape
//! is the model's as it is run, so tied heads are tied, and the vocabulary has its real size (its words are made up).

use super::family::Family;
use super::gemma4;

/// Elements of a head of linear attention, of keys and of values.
pub(crate) const LINEAR_DIM: usize = 128;
/// And of a head of a state space.
pub(crate) const SPACE_DIM: usize = 64;
/// Inputs that its convolution sees.
pub(crate) const TAPS: usize = 4;
/// Each so many layers one has attention that is not linear.
pub(crate) const FULL_EACH: usize = 4;

/// Nemotron 3 Nano's layers by NVIDIA's signs: a state space, a mixture, attention.
const NEMOTRON_3: &[u8] = b"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
/// How many times as wide as an expert its shared MLP is, and by what the shares of experts are multiplied.
pub(crate) const NEMOTRON_SHARED: usize = 2;
pub(crate) const NEMOTRON_SCALE: f32 = 2.5;

/// What a layer is, or what it has in place of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixer {
    Attention,
    /// Linear attention or a state space.
    Linear,
    /// Nothing: the layer is a mixture alone.
    None,
}

/// A model's sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    pub(crate) layers: usize,
    /// Width of the residual stream.
    pub(crate) dim: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    /// Width between the two halves of the feed-forward block, or of each expert.
    pub(crate) ffn: usize,
    /// How many experts each layer has, and how many of them a token chooses; none of a dense model.
    pub(crate) experts: [usize; 2],
    /// Heads of linear attention or of a state space: of keys and of values. None where no layer has it.
    pub(crate) linear: [usize; 2],
    pub(crate) vocab: usize,
    /// Tokens the model was made for.
    pub(crate) context: usize,
    pub(crate) theta: f32,
    pub(crate) eps: f32,
    /// Whether the embedding is the head too.
    pub(crate) tied: bool,
    /// Llama 3's frequency scaling: its factor. The other three numbers are the same in all its models.
    pub(crate) rope_factor: Option<f32>,
}

/// What most of the table has in common: a small Llama, which is itself the shape for tests and first steps.
const TINY: Shape = Shape {
    name: "tiny",
    family: Family::Llama,
    layers: 2,
    // K-quants need rows of 256.
    dim: 256,
    heads: 8,
    kv_heads: 2,
    head_dim: 32,
    ffn: 256,
    experts: [0, 0],
    linear: [0, 0],
    vocab: 512,
    context: 2048,
    theta: 10_000.0,
    eps: 1e-5,
    tied: true,
    rope_factor: None,
};

/// The 15 M of Karpathy's llama2.c, made to tell stories: the smallest shape of a model that was ever of use, for tests where each operation
/// is dear (`ptx-emulator` is measured with it). Its rows are no multiple of 256, so k-quants give way to others in it.
const STORIES_15M: Shape = Shape {
    name: "stories-15m",
    layers: 6,
    dim: 288,
    heads: 6,
    kv_heads: 6,
    head_dim: 48,
    ffn: 768,
    vocab: 32_000,
    context: 256,
    ..TINY
};

/// Llama 3.2 1B; its larger relations differ in sizes alone.
const LLAMA_3_2_1B: Shape = Shape {
    name: "llama-3.2-1b",
    layers: 16,
    dim: 2048,
    heads: 32,
    kv_heads: 8,
    head_dim: 64,
    ffn: 8192,
    vocab: 128_256,
    context: 131_072,
    theta: 500_000.0,
    rope_factor: Some(32.0),
    ..TINY
};

const QWEN_2_5_0_5B: Shape = Shape {
    name: "qwen2.5-0.5b",
    family: Family::Qwen2,
    layers: 24,
    dim: 896,
    heads: 14,
    kv_heads: 2,
    head_dim: 64,
    ffn: 4864,
    vocab: 151_936,
    context: 32_768,
    theta: 1_000_000.0,
    eps: 1e-6,
    ..TINY
};

const QWEN_3_0_6B: Shape = Shape {
    name: "qwen3-0.6b",
    family: Family::Qwen3,
    layers: 28,
    dim: 1024,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    ffn: 3072,
    context: 40_960,
    ..QWEN_2_5_0_5B
};

/// All shapes, small first.
pub(crate) const SHAPES: &[Shape] = &[
    TINY,
    STORIES_15M,
    QWEN_2_5_0_5B,
    QWEN_3_0_6B,
    LLAMA_3_2_1B,
    Shape {
        name: "gemma-2-2b",
        family: Family::Gemma2,
        layers: 26,
        dim: 2304,
        heads: 8,
        kv_heads: 4,
        head_dim: 256,
        ffn: 9216,
        vocab: 256_000,
        context: 8192,
        eps: 1e-6,
        ..TINY
    },
    Shape {
        name: "qwen2.5-3b",
        layers: 36,
        dim: 2048,
        heads: 16,
        head_dim: 128,
        ffn: 11_008,
        ..QWEN_2_5_0_5B
    },
    Shape { name: "llama-3.2-3b", layers: 28, dim: 3072, heads: 24, head_dim: 128, ..LLAMA_3_2_1B },
    // 3.3 billion parameters, of which a token meets 0.8: the smallest mixture here.
    Shape {
        name: "granite-3.1-3b-a800m",
        family: Family::GraniteMoe,
        layers: 32,
        dim: 1536,
        heads: 24,
        kv_heads: 8,
        head_dim: 64,
        ffn: 512,
        experts: [40, 8],
        vocab: 49_155,
        context: 131_072,
        theta: 10_000_000.0,
        eps: 1e-6,
        ..TINY
    },
    Shape { name: "qwen3-4b", layers: 36, dim: 2560, heads: 32, ffn: 9728, ..QWEN_3_0_6B },
    Shape {
        name: "qwen3.5-4b",
        family: Family::Qwen35,
        layers: 32,
        dim: 2560,
        heads: 16,
        kv_heads: 4,
        head_dim: 256,
        ffn: 9216,
        linear: [16, 32],
        vocab: 248_320,
        context: 262_144,
        theta: 10_000_000.0,
        ..QWEN_3_0_6B
    },
    // 3.2 billion parameters.
    Shape {
        name: "granite-4.0-h-micro",
        family: Family::GraniteHybrid,
        layers: 40,
        dim: 2048,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        ffn: 8192,
        linear: [1, 64],
        vocab: 100_352,
        context: 131_072,
        ..TINY
    },
    // 1.6 billion parameters.
    Shape {
        name: "falcon-h1-1.5b",
        family: Family::FalconH1,
        layers: 24,
        dim: 2048,
        heads: 8,
        kv_heads: 2,
        head_dim: 128,
        ffn: 4608,
        linear: [1, 48],
        vocab: 65_537,
        context: 131_072,
        theta: 1e11,
        tied: false,
        ..TINY
    },
    // 4.6 billion parameters, half of them in the table of layers' inputs.
    Shape {
        name: "gemma-4-e2b",
        family: Family::Gemma4,
        layers: 35,
        dim: 1536,
        heads: 8,
        kv_heads: 1,
        head_dim: 256,
        ffn: 6144,
        vocab: 262_144,
        context: 131_072,
        theta: 1_000_000.0,
        eps: 1e-6,
        ..TINY
    },
    // Version 0.3: without the window of 0.1.
    Shape {
        name: "mistral-7b",
        layers: 32,
        dim: 4096,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        ffn: 14_336,
        vocab: 32_768,
        context: 32_768,
        theta: 1_000_000.0,
        tied: false,
        ..TINY
    },
    Shape {
        name: "llama-3.1-8b",
        layers: 32,
        dim: 4096,
        head_dim: 128,
        ffn: 14_336,
        tied: false,
        rope_factor: Some(8.0),
        ..LLAMA_3_2_1B
    },
    Shape {
        name: "ernie-4.5-0.3b",
        family: Family::Ernie,
        layers: 18,
        dim: 1024,
        heads: 16,
        kv_heads: 2,
        head_dim: 128,
        ffn: 3072,
        vocab: 103_424,
        context: 131_072,
        theta: 500_000.0,
        ..TINY
    },
    Shape {
        name: "seed-oss-36b",
        family: Family::SeedOss,
        layers: 64,
        dim: 5120,
        heads: 80,
        kv_heads: 8,
        head_dim: 128,
        ffn: 27_648,
        vocab: 155_136,
        context: 524_288,
        theta: 10_000_000.0,
        eps: 1e-6,
        tied: false,
        ..TINY
    },
    // 20.9 billion parameters, of which a token meets 3.6.
    Shape {
        name: "gpt-oss-20b",
        family: Family::GptOss,
        layers: 24,
        dim: 2880,
        heads: 64,
        kv_heads: 8,
        head_dim: 64,
        ffn: 2880,
        experts: [32, 4],
        vocab: 201_088,
        context: 131_072,
        theta: 150_000.0,
        tied: false,
        ..TINY
    },
    // 30.5 billion parameters, of which a token meets 3.3.
    Shape {
        name: "qwen3-30b-a3b",
        family: Family::Qwen3Moe,
        layers: 48,
        dim: 2048,
        heads: 32,
        kv_heads: 4,
        ffn: 768,
        experts: [128, 8],
        tied: false,
        ..QWEN_3_0_6B
    },
    // 31.6 billion parameters, of which a token meets 3.6.
    Shape {
        name: "nemotron-3-nano-30b-a3b",
        family: Family::NemotronMoe,
        layers: NEMOTRON_3.len(),
        dim: 2688,
        heads: 32,
        kv_heads: 2,
        head_dim: 128,
        ffn: 1856,
        experts: [128, 6],
        linear: [8, 64],
        vocab: 131_072,
        context: 262_144,
        tied: false,
        ..TINY
    },
];

impl Shape {
    /// The shape called `name`, in any case.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SHAPES.iter().find(|s| s.name.eq_ignore_ascii_case(name))
    }

    /// What mixes a layer's tokens.
    pub(crate) fn mixer(&self, layer: usize) -> Mixer {
        let linear = match self.family {
            Family::NemotronMoe => match NEMOTRON_3.get(layer) {
                Some(b'E') => return Mixer::None,
                sign => sign == Some(&b'M'),
            },
            Family::GraniteHybrid => layer % 10 != 5,
            Family::FalconH1 => true,
            _ => self.linear[0] > 0 && !(layer + 1).is_multiple_of(FULL_EACH),
        };
        if linear { Mixer::Linear } else { Mixer::Attention }
    }

    /// How many elements of a head turn: all but in Qwen3.5.
    pub(crate) fn turned(&self) -> usize {
        if self.family == Family::Qwen35 { self.head_dim / 4 } else { self.head_dim }
    }

    /// Whether it is a mixture.
    pub(crate) fn has_experts(&self) -> bool {
        self.experts[0] > 0
    }

    /// What Llama 3's scaling divides each inverse frequency by, as converters write it to `rope_freqs.weight`:
    /// `[head_dim / 2]`. Source: `rope_type: llama3` of transformers' `modeling_rope_utils`.
    pub(crate) fn rope_factors(&self) -> Option<Vec<f32>> {
        if self.family == Family::Gemma4 {
            return Some(gemma4::rope_factors(self));
        }
        const TRAINED: f64 = 8192.0;
        const LOW: f64 = 1.0;
        const HIGH: f64 = 4.0;
        let factor = f64::from(self.rope_factor?);
        let factors = (0..self.head_dim / 2).map(|i| {
            let frequency = f64::from(self.theta).powf(-((2 * i) as f64) / self.head_dim as f64);
            // Turns within the context that the model was first trained with.
            let turns = TRAINED * frequency / std::f64::consts::TAU;
            let kept = ((turns - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - kept) / factor + kept)) as f32
        });
        Some(factors.collect())
    }
}
