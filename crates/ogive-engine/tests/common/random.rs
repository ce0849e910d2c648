//! Weight files made up on the spot, small enough to run every architecture many times.

use ogive_nn::tensor::serde_json::json;
use ogive_nn::tensor::{Error, F32, HostWeight, Q8_0, Result, WeightInfo};
use ogive_nn::{Config, Source};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Random {
    pub(crate) config: Config,
    tensors: BTreeMap<String, HostWeight>,
    packed: bool,
    seed: u64,
}

impl Random {
    fn new(config: ogive_nn::tensor::serde_json::Value, packed: bool) -> Self {
        Self { config: Config(config), packed, seed: 7, ..Self::default() }
    }

    fn set(&mut self, key: &str, value: impl Into<ogive_nn::tensor::serde_json::Value>) {
        self.config.0[key] = value.into();
    }

    fn put(&mut self, name: String, rows: usize, cols: usize, scale: f32) {
        let mut next = || {
            self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            scale * ((self.seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        };
        let values: Vec<f32> = (0..rows * cols).map(|_| next()).collect();
        let format = if self.packed && rows > 1 { &Q8_0 } else { &F32 };
        let mut bytes = vec![0; rows * format.row_bytes(cols)];
        for (row, out) in values.chunks(cols).zip(bytes.chunks_mut(format.row_bytes(cols))) {
            format.encode_row(row, out).expect("rows are whole blocks");
        }
        let host =
            HostWeight::new(&name, [1, rows, cols], format, bytes.into()).expect("the bytes fill the shape");
        self.tensors.insert(name, host);
    }

    fn all(&mut self, at: &str, tensors: &[(&str, usize, usize)], scale: f32) {
        for (name, rows, cols) in tensors {
            self.put(format!("{at}{name}"), *rows, *cols, if *rows == 1 { 1.0 } else { scale });
        }
    }

    pub(crate) fn llama(packed: bool, qk_norm: bool, bias: bool) -> Self {
        let (d, ffn, vocab) = (64, 96, 128);
        let config = json!({"hidden_size": d, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3});
        let mut r = Self::new(config, packed);
        r.all(
            "",
            &[
                ("model.embed_tokens.weight", vocab, d),
                ("lm_head.weight", vocab, d),
                ("model.norm.weight", 1, d),
            ],
            0.5,
        );
        for i in 0..3 {
            let p = format!("model.layers.{i}.");
            for (n, rows, cols) in
                [("q_proj", d, d), ("k_proj", d / 2, d), ("v_proj", d / 2, d), ("o_proj", d, d)]
            {
                r.put(format!("{p}self_attn.{n}.weight"), rows, cols, 0.3);
                if bias && n != "o_proj" {
                    r.put(format!("{p}self_attn.{n}.bias"), 1, rows, 0.3);
                }
            }
            r.all(
                &p,
                &[
                    ("mlp.gate_proj.weight", ffn, d),
                    ("mlp.up_proj.weight", ffn, d),
                    ("mlp.down_proj.weight", d, ffn),
                ],
                0.3,
            );
            r.all(&p, &[("input_layernorm.weight", 1, d), ("post_attention_layernorm.weight", 1, d)], 1.0);
            if qk_norm {
                r.all(
                    &p,
                    &[("self_attn.q_norm.weight", 1, d / 4), ("self_attn.k_norm.weight", 1, d / 4)],
                    1.0,
                );
            }
        }
        r
    }

    pub(crate) fn gemma2() -> Self {
        let mut r = Self::llama(false, false, false);
        for (key, value) in [("sliding_window", 6), ("head_dim", 16), ("attn_logit_softcapping", 20)] {
            r.set(key, value);
        }
        r.set("final_logit_softcapping", 30.0);
        for i in 0..3 {
            let norms =
                [("pre_feedforward_layernorm.weight", 1, 64), ("post_feedforward_layernorm.weight", 1, 64)];
            r.all(&format!("model.layers.{i}."), &norms, 1.0);
        }
        r
    }

    /// Experts in a tensor each, as Hugging Face has them, or stacked, as GGUF.
    pub(crate) fn mixtral(stacked: bool) -> Self {
        let mut r = Self::llama(false, false, false);
        r.set("num_local_experts", 4);
        r.set("num_experts_per_tok", 2);
        for i in 0..3 {
            let p = format!("model.layers.{i}.block_sparse_moe.");
            r.all(&p, &[("gate.weight", 4, 64)], 0.5);
            for (n, rows, cols) in [("w1", 96, 64), ("w3", 96, 64), ("w2", 64, 96)] {
                let names: Vec<String> = (0..4).map(|e| format!("{p}experts.{e}.{n}.weight")).collect();
                names.iter().for_each(|name| r.put(name.clone(), rows, cols, 0.3));
                if stacked {
                    let parts: Vec<_> = names.iter().filter_map(|name| r.tensors.remove(name)).collect();
                    let all = HostWeight::stack(n, &parts).expect("equal shapes");
                    r.tensors.insert(format!("{p}experts.{n}.weight"), all);
                }
            }
        }
        r
    }

    pub(crate) fn gpt2() -> Self {
        let (d, vocab) = (64, 128);
        let mut r = Self::new(json!({"n_embd": d, "n_head": 4, "n_layer": 4}), false);
        r.all(
            "",
            &[("wte.weight", vocab, d), ("wpe.weight", 64, d), ("ln_f.weight", 1, d), ("ln_f.bias", 1, d)],
            0.5,
        );
        for i in 0..4 {
            let p = format!("h.{i}.");
            r.all(
                &p,
                &[("ln_1.weight", 1, d), ("ln_1.bias", 1, d), ("ln_2.weight", 1, d), ("ln_2.bias", 1, d)],
                1.0,
            );
            r.all(
                &p,
                &[
                    ("attn.c_attn.weight", d, 3 * d),
                    ("attn.c_attn.bias", 1, 3 * d),
                    ("attn.c_proj.weight", d, d),
                ],
                0.3,
            );
            r.all(
                &p,
                &[("mlp.c_fc.weight", d, 96), ("mlp.c_fc.bias", 1, 96), ("mlp.c_proj.weight", 96, d)],
                0.3,
            );
        }
        r
    }

    pub(crate) fn mamba() -> Self {
        let (d, inner, rank, state, vocab) = (32, 48, 4, 8, 128);
        let config = json!({"num_hidden_layers": 2, "intermediate_size": inner, "time_step_rank": rank, "state_size": state});
        let mut r = Self::new(config, false);
        r.all("backbone.", &[("embeddings.weight", vocab, d), ("norm_f.weight", 1, d)], 0.5);
        for i in 0..2 {
            let p = format!("backbone.layers.{i}.");
            r.all(
                &p,
                &[
                    ("norm.weight", 1, d),
                    ("mixer.in_proj.weight", 2 * inner, d),
                    ("mixer.conv1d.weight", inner, 4),
                ],
                0.6,
            );
            r.all(
                &p,
                &[("mixer.conv1d.bias", 1, inner), ("mixer.x_proj.weight", rank + 2 * state, inner)],
                0.3,
            );
            r.all(&p, &[("mixer.dt_proj.weight", inner, rank), ("mixer.dt_proj.bias", 1, inner)], 0.3);
            r.all(
                &p,
                &[("mixer.A_log", inner, state), ("mixer.D", 1, inner), ("mixer.out_proj.weight", d, inner)],
                0.3,
            );
        }
        r
    }

    pub(crate) fn mla(absorbed: bool) -> Self {
        let (d, heads, rank, rope, nope, v) = (64, 4, 24, 8, 16, 12);
        let mut r = Self::llama(false, false, false);
        r.set("absorbed", absorbed);
        for (k, n) in [
            ("kv_lora_rank", rank),
            ("qk_rope_head_dim", rope),
            ("qk_nope_head_dim", nope),
            ("v_head_dim", v),
        ] {
            r.set(k, n);
        }
        for i in 0..3 {
            let p = format!("model.layers.{i}.self_attn.");
            r.all(
                &p,
                &[("q_proj.weight", heads * (nope + rope), d), ("kv_a_proj_with_mqa.weight", rank + rope, d)],
                0.3,
            );
            r.all(
                &p,
                &[("kv_a_layernorm.weight", 1, rank), ("kv_b_proj.weight", heads * (nope + v), rank)],
                0.3,
            );
            r.all(&p, &[("o_proj.weight", d, heads * v)], 0.3);
        }
        r
    }
}

impl Source for Random {
    fn get(&self, name: &str) -> Result<HostWeight> {
        self.tensors.get(name).cloned().ok_or_else(|| Error::missing(name))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.tensors.values().map(|w| WeightInfo::new(&*w.name, w.shape, w.format)).collect()
    }
}
