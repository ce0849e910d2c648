//! What models see with, on the CPU: two blocks of SigLIP's encoder as Gemma 3 has it, on a whole image of 4096 patches, and two of Qwen3-VL's on one of
//! 1024, with random weights in BF16. Whole towers have 27 blocks.
//! `cargo bench -p ogive-benches --bench tower`
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ogive_cpu::CpuBackend;
use ogive_nn::Loader;
use ogive_tensor::serde_json::{Value, json};
use ogive_tensor::{BF16, Config, Error, HostWeight, Result, Source, WeightInfo};

const DIM: usize = 1152;
const MLP: usize = 4304;
const TEXT: usize = 2560;

/// Any tensor of the two that is asked for, by its name.
#[derive(Debug)]
struct Random;

impl Source for Random {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let bias = name.ends_with(".bias");
        let name_of = name.trim_end_matches(".weight").trim_end_matches(".bias");
        let parts: Vec<&str> = name_of.rsplit('.').collect();
        // Of older files; what is looked for first is not there.
        if name.starts_with("model.") {
            return Err(Error::missing(name));
        }
        let [rows, cols] = match (parts[0], parts.get(1).copied()) {
            ("patch_embedding", _) => [DIM, 3 * 14 * 14],
            ("proj", Some("patch_embed")) => [DIM, 3 * 2 * 16 * 16],
            ("position_embedding", _) => [64 * 64, DIM],
            ("pos_embed", _) => [48 * 48, DIM],
            ("q_proj" | "k_proj" | "v_proj" | "out_proj", _) | ("proj", Some("attn")) => [DIM, DIM],
            ("qkv", _) => [3 * DIM, DIM],
            ("fc1", _) | ("linear_fc1", Some("mlp")) => [MLP, DIM],
            ("fc2", _) | ("linear_fc2", Some("mlp")) => [DIM, MLP],
            ("linear_fc1", _) => [4 * DIM, 4 * DIM],
            ("linear_fc2", _) => [TEXT, 4 * DIM],
            ("mm_input_projection_weight", _) => [DIM, TEXT],
            (
                "layer_norm1" | "layer_norm2" | "post_layernorm" | "norm1" | "norm2" | "norm"
                | "mm_soft_emb_norm",
                _,
            ) => [1, DIM],
            _ => return Err(Error::missing(name)),
        };
        let [rows, cols] = if bias { [1, rows.max(cols * usize::from(rows == 1))] } else { [rows, cols] };
        let values = ogive_benches::values(rows * cols, 0.05);
        if rows == 1 {
            return HostWeight::from_f32(name, [1, 1, cols], &values);
        }
        let mut packed = vec![0; BF16.row_bytes(values.len())];
        BF16.encode_row(&values, &mut packed)?;
        HostWeight::new(name, [1, rows, cols], &BF16, packed.into())
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

fn towers(c: &mut Criterion) -> Result<()> {
    let b = CpuBackend::builder().build()?;
    let siglip = json!({"mm_tokens_per_image": 256, "text_config": {}, "vision_config": {"hidden_size": DIM,
        "num_attention_heads": 16, "num_hidden_layers": 2, "image_size": 896, "patch_size": 14, "intermediate_size": MLP}});
    let qwen = json!({"vision_config": {"hidden_size": DIM, "num_heads": 16, "depth": 2, "patch_size": 16,
        "num_position_embeddings": 2304, "out_hidden_size": TEXT, "intermediate_size": MLP}});
    let mut group = c.benchmark_group("tower");
    group.sample_size(10);
    let mut see = |name: &str, architecture: &str, config: Value, grid: [usize; 2], patch: usize| {
        let tower =
            ogive_models::registry().tower(architecture, &Config(config), &Loader::new(&Random, &b))?;
        let patches = ogive_benches::values(grid[0] * grid[1] * patch, 1.0);
        tower.see(&b, &patches, grid)?;
        group.throughput(Throughput::Elements((grid[0] * grid[1]) as u64));
        group.bench_function(name, |t| t.iter(|| tower.see(&b, &patches, grid).map(|rows| rows.rows())));
        Ok::<_, Error>(())
    };
    see("siglip, 64x64", "Gemma3ForConditionalGeneration", siglip, [64, 64], 3 * 14 * 14)?;
    see("qwen3-vl, 32x32", "Qwen3VLForConditionalGeneration", qwen, [32, 32], 3 * 2 * 16 * 16)
}

fn all(c: &mut Criterion) {
    towers(c).expect("the towers can be made and run");
}

criterion_group!(benches, all);
criterion_main!(benches);
