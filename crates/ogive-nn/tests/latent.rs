//! Latent attention of files that have the projection to keys and values whole or in halves, plain or packed, and the settings that must be
//! refused. (What it computes is held to transformers by the golden models `deepseek-v2` and `deepseek-v3`.)
#![allow(clippy::unwrap_used)]

use ogive_backend::{Backend, Batch, BlockTable, CacheSpec, LayerCache, RopeLayout};
use ogive_conformance::Oracle;
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{BF16, Config, Error, Format, HostWeight, Q8_0, Result, Scale, Source, WeightInfo};
use ogive_nn::{LatentAttention, Loader, Step, rope};
use std::collections::BTreeMap;

const HEADS: usize = 3;
const DIM: usize = 64;
const RANK: usize = 32;
const NOPE: usize = 64;
const ROPE: usize = 6;
const VALUE: usize = 96;

#[derive(Debug, Default)]
struct File(BTreeMap<String, HostWeight>);

impl Source for File {
    fn get(&self, name: &str) -> Result<HostWeight> {
        self.0.get(name).cloned().ok_or_else(|| Error::missing(name))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

/// The weight in another format.
fn packed(w: &HostWeight, format: &'static Format) -> HostWeight {
    let values = w.to_vec();
    let bytes = values.chunks(w.shape[2]).flat_map(|row| {
        let mut bytes = vec![0; format.row_bytes(row.len())];
        format.encode_row(row, &mut bytes).unwrap();
        bytes
    });
    HostWeight::new(&*w.name, w.shape, format, bytes.collect::<Vec<_>>().into()).unwrap()
}

/// Numbers that bfloat16 holds, of about the size of 1 over the root of `cols`.
fn numbers(name: &str, shape: [usize; 3]) -> HostWeight {
    let mut state = name.len() as u32;
    let size = (shape[2] as f32).sqrt().recip();
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits((size * ((state >> 16) as f32 / 32_768.0 - 1.0)).to_bits() & 0xffff_0000)
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    HostWeight::from_f32(name, shape, &values).unwrap()
}

impl File {
    fn new() -> Self {
        let shapes = [
            ("q_proj", [1, HEADS * (NOPE + ROPE), DIM]),
            ("kv_a_proj_with_mqa", [1, RANK + ROPE, DIM]),
            ("kv_a_layernorm", [1, 1, RANK]),
            ("kv_b_proj", [1, HEADS * (NOPE + VALUE), RANK]),
            ("o_proj", [1, DIM, HEADS * VALUE]),
        ];
        let named = |(name, shape)| (format!("{name}.weight"), numbers(&format!("{name}.weight"), shape));
        Self(shapes.map(named).into())
    }

    /// The same with halves for the whole.
    fn in_halves(mut self) -> Self {
        let both = self.0.remove("kv_b_proj.weight").unwrap();
        let rows = |from: usize, len: usize| {
            (0..HEADS).map(move |head| head * (NOPE + VALUE) + from).map(move |at| at..at + len)
        };
        let of = |name: &str, parts: Vec<HostWeight>| HostWeight::stack(name, &parts).unwrap();
        let keys = rows(0, NOPE).map(|rows| both.rows(rows).unwrap().transposed().unwrap()).collect();
        let values = rows(NOPE, VALUE).map(|rows| both.rows(rows).unwrap()).collect();
        self.0.insert("k_b_proj.weight".into(), of("k_b_proj.weight", keys));
        self.0.insert("v_b_proj.weight".into(), of("v_b_proj.weight", values));
        self
    }

    /// The same with the projections to keys and values in another format.
    fn in_format(mut self, format: &'static Format) -> Self {
        self.0
            .iter_mut()
            .filter(|(name, _)| name.contains("_b_proj"))
            .for_each(|(_, w)| *w = packed(w, format));
        self
    }

    /// The same in single precision.
    fn decoded(mut self) -> Self {
        self.0.values_mut().for_each(|w| *w = w.decoded().unwrap().with_unpacked(None));
        self
    }

    /// What becomes of five tokens, in steps of three and two, and which weights were decoded.
    fn attended(&self) -> (Vec<f32>, Vec<String>) {
        let loader = Loader::new(self, &Oracle);
        let rope = rope(ROPE, 100.0).layout(RopeLayout::Pairs);
        let layer = LatentAttention::load(&loader, &config(json!({})), 0, rope).unwrap();
        assert_eq!(layer.cache(), LayerCache::full(RANK + ROPE, 0));
        let cache = Oracle.new_cache(&CacheSpec::new(vec![layer.cache()], 4, 2, 0)).unwrap();
        let (x, table) = (numbers("x", [1, 5, DIM]).to_vec(), BlockTable { first: 0, blocks: vec![0, 1] });
        let steps = [0..3, 3..5].map(|rows| {
            let mut batch = Batch::default();
            batch.push(&vec![0; rows.len()], rows.start, vec![table.clone()], [0, 1]);
            let plan = Oracle.plan(batch).unwrap();
            let x = Oracle.upload(&x[rows.start * DIM..rows.end * DIM], [rows.len(), DIM].into()).unwrap();
            Oracle.download(&layer.forward(&Step::new(&Oracle, &plan, &cache), &x).unwrap()).unwrap()
        });
        let decoded = loader.unpacked().into_iter().map(|(info, why)| format!("{}: {}", info.name, why.why));
        (steps.concat(), decoded.collect())
    }
}

fn config(change: Value) -> Config {
    let mut settings = json!({"num_attention_heads": HEADS, "hidden_size": DIM, "kv_lora_rank": RANK,
        "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE});
    settings.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    Config(settings)
}

#[test]
fn halves_and_the_whole_are_the_same_attention() {
    let want = File::new().attended();
    assert!(
        want.0.iter().all(|v| v.is_finite()) && want.0.iter().any(|v| v.abs() > 0.01) && want.1.is_empty()
    );
    for file in
        [File::new().in_halves(), File::new().in_format(&BF16), File::new().in_halves().in_format(&BF16)]
    {
        assert_eq!(file.attended(), want);
    }
}

#[test]
fn halves_stay_packed_and_of_the_whole_the_values() {
    for halves in [true, false] {
        let file = || if halves { File::new().in_halves() } else { File::new() }.in_format(&Q8_0);
        let (got, decoded) = file().attended();
        assert_eq!((got, vec![]), file().decoded().attended());
        let keys = "kv_b_proj.weight: keys of latent attention are computed the other way round";
        assert_eq!(decoded, vec![keys; if halves { 0 } else { HEADS }]);
    }
}

#[test]
fn factors_beside_the_elements_count() {
    let mut file = File::new();
    let both = file.0.remove("kv_b_proj.weight").unwrap();
    let tiles = both.shape[1].div_ceil(128) * RANK.div_ceil(16);
    let values: Vec<f32> = (0..tiles).map(|i| 0.5 + 0.25 * i as f32).collect();
    let both = both.with_scale(Scale { values: values.into(), tile: [128, 16] }).unwrap();
    file.0.insert("kv_b_proj.weight".into(), both);
    let (got, decoded) = file.attended();
    assert_eq!((got, decoded), file.decoded().attended());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refusal = |file: &File, change: Value| {
        let layer = LatentAttention::load(&Loader::new(file, &Oracle), &config(change), 0, rope(ROPE, 100.0));
        layer.unwrap_err().to_string()
    };
    let halves = File::new().in_halves();
    for (change, why) in [
        (json!({"num_attention_heads": 0}), "`num_attention_heads` is 0"),
        (json!({"kv_lora_rank": 0}), "`kv_lora_rank` is 0"),
        (json!({"v_head_dim": 0}), "`v_head_dim` is 0"),
        (json!({"qk_rope_head_dim": null}), "qk_rope_head_dim"),
        (json!({"qk_rope_head_dim": 5}), "pairs of elements rotate"),
        (json!({"num_attention_heads": 1_u64 << 60}), "more than can be counted"),
        (json!({"kv_lora_rank": u64::MAX}), "more than can be counted"),
        (json!({"is_causal": false}), "looks ahead"),
        (
            json!({"num_attention_heads": 4}),
            "q_proj: its shape is [1, 210, 64], where the settings need [280, 64]",
        ),
        (json!({"qk_nope_head_dim": 60, "qk_rope_head_dim": 10}), "_b_proj"),
        (json!({"kv_lora_rank": 31, "qk_rope_head_dim": 6}), "_b_proj"),
        (json!({"v_head_dim": 64}), "_b_proj"),
        (json!({"q_lora_rank": 8}), "q_a_layernorm"),
        (json!({"hidden_size": 63}), "q_proj"),
    ] {
        for file in [&File::new(), &halves] {
            let e = refusal(file, change.clone());
            assert!(e.contains(why), "{change}: {e}");
        }
    }
    let mut short = File::new();
    short.0.insert("kv_a_layernorm.weight".into(), numbers("n", [1, 1, RANK - 1]));
    assert!(refusal(&short, json!({})).contains("kv_a_layernorm"));
    let mut half = File::new().in_halves();
    half.0.remove("v_b_proj.weight");
    assert!(refusal(&half, json!({})).contains("v_b_proj"));
}
