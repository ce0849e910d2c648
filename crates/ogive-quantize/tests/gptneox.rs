//! GPT-NeoX as a GGUF file: rows of queries, keys and values where llama.cpp's converter puts them, and nothing of what its folders have beside
//! the weights.

mod common;

use common::{Tensor, format, none, packed, rewritten_own, values};

#[test]
fn queries_of_all_heads_come_first_then_all_keys_and_all_values() {
    const NAME: &str = "gpt_neox.layers.1.attention.query_key_value";
    let (heads, dim, width) = (3, 16, 48);
    // They are kept in bfloat16.
    let single = |b: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
    let mut own = Vec::new();
    let folder = rewritten_own(
        "gptneox",
        |_| {},
        |all| {
            for leaf in ["weight", "bias"] {
                let t = all.iter().find(|t| t.name == format!("{NAME}.{leaf}")).unwrap();
                own.push(t.bytes.as_chunks().0.iter().map(single).collect::<Vec<f32>>());
            }
        },
    );
    let file = packed(&format("f32"), folder.path()).unwrap();
    for (own, (leaf, cols)) in own.into_iter().zip([("weight", width), ("bias", 1)]) {
        let found = values(&file, &format!("blk.1.attn_qkv.{leaf}"));
        let row = |all: &[f32], row: usize| all[row * cols..][..cols].to_vec();
        for (part, head, i) in (0..3 * heads * dim).map(|r| (r / dim / heads, r / dim % heads, r % dim)) {
            let (there, here) = ((part * heads + head) * dim + i, (head * 3 + part) * dim + i);
            assert_eq!(row(&found, there), row(&own, here), "{leaf} {part} {head} {i}");
        }
    }
}

/// Masks and frequencies, which Pythia's files have beside the weights, and a head that is the table once more.
#[test]
fn buffers_of_neox_are_no_part_of_the_model() {
    let count = |with: bool| {
        let folder = rewritten_own(
            "gptneox",
            |_| {},
            |all| {
                let buffers =
                    [("bias", "BOOL", 16), ("masked_bias", "F32", 4), ("rotary_emb.inv_freq", "F32", 12)];
                for (name, dtype, bytes) in buffers.into_iter().filter(|_| with) {
                    let shape = vec![if dtype == "F32" { bytes as u64 / 4 } else { bytes as u64 }];
                    let name = format!("gpt_neox.layers.0.attention.{name}");
                    all.push(Tensor { name, dtype: dtype.into(), shape, bytes: vec![0; bytes] });
                }
            },
        );
        packed(&format("f32"), folder.path()).unwrap().tensors().len()
    };
    assert_eq!(count(true), count(false));
    let tied = rewritten_own("gptneox-serial", |_| {}, none);
    let file = packed(&format("f32"), tied.path()).unwrap();
    assert_eq!(values(&file, "output.weight"), values(&file, "token_embd.weight"));
}
