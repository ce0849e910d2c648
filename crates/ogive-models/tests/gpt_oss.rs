//! gpt-oss in each form that its experts are kept in: plain and packed as Hugging Face has them, and GGUF's. What they compute is the same.

mod common;
#[path = "../../ogive-weights/tests/common/packer.rs"]
mod packer;

use common::*;
use ndarray::Array2;
use ogive_engine::{Evaluate, evaluate};
use ogive_nn::backend::Backend;
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{Config, F32, Format, MXFP4};
use ogive_nn::{Loader, Source};
use ogive_quantize::GgmlType;
use ogive_quantize::gguf_file::{Gguf, GgufWriter};
use ogive_weights::{OpenOptions, Safetensors};
use packer::{Tensor, file, tensor};
use std::sync::Arc;

const EXPERTS: usize = 3;
const DIM: usize = 64;
const HIDDEN: usize = 96;
const VOCAB: usize = 37;
const IDS: [u32; 23] = [3, 36, 0, 11, 11, 7, 30, 2, 19, 23, 5, 5, 8, 33, 14, 1, 28, 6, 17, 9, 20, 34, 12];

/// Numbers between -1 and 1.
struct Random(u64);

impl Random {
    fn numbers(&mut self, n: usize, scale: f32) -> Vec<f32> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            ((self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
        };
        (0..n).map(|_| next()).collect()
    }
}

/// A stack of matrices in MXFP4, `[EXPERTS, out, in]`, and its biases.
struct Stack {
    shape: [usize; 2],
    blocks: Vec<u8>,
    bias: Vec<f32>,
}

impl Stack {
    fn new(random: &mut Random, shape @ [out, cols]: [usize; 2]) -> Self {
        let mut blocks = vec![0; EXPERTS * out * MXFP4.row_bytes(cols)];
        MXFP4.encode_row(&random.numbers(EXPERTS * out * cols, 0.4), &mut blocks).unwrap();
        Self { shape, blocks, bias: random.numbers(EXPERTS * out, 0.5) }
    }

    /// The rows of each expert.
    fn rows(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.chunks(MXFP4.row_bytes(self.shape[1]))
    }

    /// Rows of both in turn.
    fn in_turn(&self, other: &Self) -> Self {
        let blocks = self.rows().zip(other.rows()).flat_map(|(a, b)| [a, b].concat()).collect();
        let bias = self.bias.iter().zip(&other.bias).flat_map(|(a, b)| [*a, *b]).collect();
        Self { shape: [2 * self.shape[0], self.shape[1]], blocks, bias }
    }

    /// As Hugging Face has it before it is packed: `[EXPERTS, in, out]`.
    fn plain(&self) -> (Vec<usize>, Vec<f32>) {
        let [out, cols] = self.shape;
        let mut values = vec![0.0; EXPERTS * out * cols];
        MXFP4.decode_row(&self.blocks, &mut values);
        let at = |i: usize| values[i / (out * cols) * out * cols + i % out * cols + i / out % cols];
        (vec![EXPERTS, cols, out], (0..values.len()).map(at).collect())
    }

    /// As gpt-oss's files have it: neighbours in a byte, powers apart.
    fn packed(&self, stem: &str) -> [Tensor; 2] {
        let [out, cols] = self.shape;
        let (mut pairs, mut powers) = (Vec::new(), Vec::new());
        for block in self.blocks.chunks(17) {
            powers.push(block[0]);
            let code = |i: usize| if i < 16 { block[1 + i] & 15 } else { block[i - 15] >> 4 };
            pairs.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
        }
        [
            tensor(stem, "_blocks", "U8", &[EXPERTS, out, cols / 32, 16], pairs),
            tensor(stem, "_scales", "U8", &[EXPERTS, out, cols / 32], powers),
        ]
    }
}

/// The only layer's tensors, and those around it.
struct Made {
    gate: Stack,
    up: Stack,
    down: Stack,
    /// By Hugging Face's names and GGUF's, slowest extent first.
    others: Vec<(&'static str, &'static str, Vec<usize>, Vec<f32>)>,
}

impl Made {
    fn new() -> Self {
        let mut random = Random(88_172_645_463_325_252);
        let wide = [HIDDEN, DIM];
        let [gate, up, down] = [wide, wide, [DIM, HIDDEN]].map(|shape| Stack::new(&mut random, shape));
        let attention =
            [("q", "q", 64, DIM), ("k", "k", 32, DIM), ("v", "v", 32, DIM), ("o", "output", DIM, 64)];
        let mut others = vec![
            ("model.embed_tokens.weight", "token_embd.weight", vec![VOCAB, DIM]),
            ("lm_head.weight", "output.weight", vec![VOCAB, DIM]),
            ("model.norm.weight", "output_norm.weight", vec![DIM]),
            ("model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight", vec![DIM]),
            ("model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight", vec![DIM]),
            ("model.layers.0.self_attn.sinks", "blk.0.attn_sinks.weight", vec![4]),
            ("model.layers.0.mlp.router.weight", "blk.0.ffn_gate_inp.weight", vec![EXPERTS, DIM]),
            ("model.layers.0.mlp.router.bias", "blk.0.ffn_gate_inp.bias", vec![EXPERTS]),
        ];
        for (name, of_gguf, out, cols) in attention {
            let leak = |text: String| -> &'static str { text.leak() };
            let to = |leaf: &str| leak(format!("model.layers.0.self_attn.{name}_proj.{leaf}"));
            let from = |leaf: &str| leak(format!("blk.0.attn_{of_gguf}.{leaf}"));
            others.push((to("weight"), from("weight"), vec![out, cols]));
            others.push((to("bias"), from("bias"), vec![out]));
        }
        let filled = others.into_iter().map(|(name, of_gguf, shape)| {
            let values = random.numbers(shape.iter().product(), 0.4);
            (name, of_gguf, shape, values)
        });
        Self { gate, up, down, others: filled.collect() }
    }

    /// Hugging Face's files, with the experts that `experts` makes of a name and a stack.
    fn files(&self, experts: impl Fn(&str, &Stack) -> Vec<Tensor>) -> Safetensors {
        let mut all: Vec<Tensor> =
            self.others.iter().map(|(name, _, shape, values)| plain(name, shape, values)).collect();
        for (name, stack) in [("gate_up_proj", &self.gate.in_turn(&self.up)), ("down_proj", &self.down)] {
            let name = format!("model.layers.0.mlp.experts.{name}");
            all.extend(experts(&name, stack));
            all.push(plain(&format!("{name}_bias"), &[EXPERTS, stack.shape[0]], &stack.bias));
        }
        Safetensors::from_bytes(Arc::new(file(&all))).unwrap()
    }

    fn gguf(&self) -> Vec<u8> {
        let (mut writer, mut data) = (GgufWriter::new(), Vec::new());
        writer.set("general.architecture", "gpt-oss").set("tokenizer.ggml.eos_token_id", 2u32);
        for (key, value) in [
            ("block_count", 1u32),
            ("context_length", 64),
            ("embedding_length", DIM as u32),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 16),
            ("attention.value_length", 16),
            ("attention.sliding_window", 9),
            ("expert_count", EXPERTS as u32),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", HIDDEN as u32),
            ("rope.scaling.original_context_length", 16),
        ] {
            writer.set(&format!("gpt-oss.{key}"), value);
        }
        writer.set("gpt-oss.rope.scaling.type", "yarn").set("gpt-oss.rope.scaling.factor", 4.0f32);
        writer
            .set("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f32)
            .set("gpt-oss.rope.freq_base", 150_000f32);
        let mut put = |name: &str, shape: &[usize], kind: GgmlType, bytes: Vec<u8>| {
            let dims: Vec<u64> = shape.iter().rev().map(|n| *n as u64).collect();
            writer.tensor(name, &dims, kind).unwrap();
            data.push((name.to_owned(), bytes));
        };
        for (_, name, shape, values) in &self.others {
            put(name, shape, GgmlType::F32, bytes(values));
        }
        for (name, stack) in [("gate", &self.gate), ("up", &self.up), ("down", &self.down)] {
            let [out, cols] = stack.shape;
            put(
                &format!("blk.0.ffn_{name}_exps.weight"),
                &[EXPERTS, out, cols],
                GgmlType::MXFP4,
                stack.blocks.clone(),
            );
            put(&format!("blk.0.ffn_{name}_exps.bias"), &[EXPERTS, out], GgmlType::F32, bytes(&stack.bias));
        }
        let mut file = Vec::new();
        let mut to = writer.write_to(&mut file).unwrap();
        for (name, bytes) in data {
            to.write_data(&name, &bytes).unwrap();
        }
        to.finish().unwrap();
        file
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn plain(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
    tensor(name, "", "F32", shape, bytes(values))
}

fn settings() -> Value {
    json!({
        "architectures": ["GptOssForCausalLM"], "num_hidden_layers": 1, "hidden_size": DIM, "intermediate_size": HIDDEN,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 9, "vocab_size": VOCAB,
        "num_local_experts": EXPERTS, "num_experts_per_tok": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 150_000.0, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "truncate": false, "original_max_position_embeddings": 16
        },
    })
}

fn logits_of(b: &dyn Backend, c: &Config, source: &dyn Source) -> Array2<f32> {
    let model = ogive_models::registry().build("GptOssForCausalLM", c, &Loader::new(source, b)).unwrap();
    evaluate(b, &*model, &IDS, &Evaluate::new()).unwrap()
}

#[test]
fn all_forms_of_the_experts_compute_the_same() {
    let made = Made::new();
    let of_form = |stack: &Stack, name: &str| {
        let (shape, values) = stack.plain();
        vec![plain(name, &shape, &values)]
    };
    let unpacked = made.files(|name, stack| of_form(stack, name));
    let packed = made.files(|name, stack| stack.packed(name).into());
    let mut config = Config(settings());
    let unpacked = unpacked.with_config(&config).unwrap();
    config.0["quantization_config"] = json!({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]});
    let packed = packed.with_config(&config).unwrap();
    let gguf = Gguf::from_bytes(made.gguf()).unwrap();
    let gguf = OpenOptions::new().of_gguf(gguf.into()).unwrap();
    assert_eq!(gguf.architecture, "GptOssForCausalLM");

    // Nothing is decoded on its way.
    let format = |source: &dyn Source, name: &str| -> &'static Format {
        source.get(&format!("model.layers.0.mlp.experts.{name}.weight")).unwrap().format
    };
    assert_eq!((format(&*packed, "gate_up_proj"), format(&*packed, "down_proj")), (&MXFP4, &MXFP4));
    assert_eq!((format(&*gguf.source, "up_proj"), format(&*gguf.source, "down_proj")), (&MXFP4, &MXFP4));
    assert_eq!(unpacked.get("model.layers.0.mlp.experts.down_proj").unwrap().format, &F32);

    for (name, b) in exact_backends() {
        let want = logits_of(&*b, &config, &*unpacked);
        let of_packed = logits_of(&*b, &config, &*packed);
        let of_gguf = logits_of(&*b, &gguf.config, &*gguf.source);
        assert_eq!(of_packed, of_gguf, "{name}");
        assert!(worst(&of_packed, &want) < 1e-5, "{name}: {:e}", worst(&of_packed, &want));
        assert!(want.iter().any(|v| v.abs() > 0.1), "{name}: the logits say nothing");
    }
}

/// What a file has wrong is told by its names.
#[test]
fn experts_that_do_not_fit_are_refused() {
    let made = Made::new();
    let refusal = |change: &dyn Fn(&mut Value), source: &dyn Source| {
        let mut c = settings();
        change(&mut c);
        let built =
            ogive_models::registry().build("GptOssForCausalLM", &Config(c), &Loader::new(source, &exact()));
        built.map(|_| ()).unwrap_err().to_string()
    };
    let whole = made.files(|name, stack| {
        let (shape, values) = stack.plain();
        vec![plain(name, &shape, &values)]
    });
    let e = refusal(&|c| c["num_local_experts"] = json!(4), &whole);
    assert!(e.contains("gate_up_proj") && e.contains("4 are configured"), "{e}");
    let odd = made.files(|name, stack| {
        let (shape, values) = stack.plain();
        let odd = shape[2] - 1;
        vec![plain(name, &[EXPERTS, shape[1], odd], &values[..EXPERTS * shape[1] * odd])]
    });
    let e = refusal(&|_| {}, &odd);
    assert!(e.contains("gate_up_proj") && e.contains("191 outputs"), "{e}");
}
