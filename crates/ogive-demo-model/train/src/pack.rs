//! The finished file: what the model is, its vocabulary, its weights in Q8_0.
//!
//! Eight bits and not four: the file is small anyhow, and then a figure that is lost to a format is the format's doing.

use crate::model::Model;
use crate::shape::{EPS, THETA};
use ogive::tensor::{F32, format_by_name};
use ogive::weights::gguf_file::{GgmlType, GgufWriter, Metadata};
use std::error::Error;
use std::path::Path;

const DESCRIPTION: &str = "A very small model that tells short stories for children and knows the capitals of a hundred \
    countries. Trained by Ogive's own trainer on text that the trainer makes.";

pub(crate) fn write(
    path: &Path,
    model: &Model,
    vocabulary: &Metadata,
    w: &[f32],
) -> Result<(), Box<dyn Error>> {
    let s = &model.shape;
    let mut meta = Metadata::new();
    meta.set("general.architecture", "llama");
    meta.set("general.type", "model");
    meta.set("general.name", "Ogive Demo");
    meta.set("general.description", DESCRIPTION);
    meta.set("general.author", "The Ogive developers");
    meta.set("general.license", "MIT OR Apache-2.0");
    meta.set("general.file_type", 7_u32);
    meta.set("general.quantization_version", 2_u32);
    // All of the shape's numbers are small.
    for (name, value) in [
        ("block_count", s.layers),
        ("context_length", s.context),
        ("embedding_length", s.dim),
        ("feed_forward_length", s.ffn),
        ("attention.head_count", s.heads),
        ("attention.head_count_kv", s.kv_heads),
        ("attention.key_length", s.head_dim),
        ("attention.value_length", s.head_dim),
        ("rope.dimension_count", s.head_dim),
        ("vocab_size", s.vocab),
    ] {
        meta.set(&format!("llama.{name}"), value as u32);
    }
    meta.set("llama.rope.freq_base", THETA);
    meta.set("llama.attention.layer_norm_rms_epsilon", EPS);
    for (key, value) in vocabulary.iter() {
        meta.set(key, value.clone());
    }
    let q8 = format_by_name("Q8_0").ok_or("Ogive has no Q8_0")?;
    let mut writer = GgufWriter::with_metadata(meta);
    for t in &model.layout.tensors {
        let (cols, rows) = (t.cols as u64, t.rows as u64);
        if t.rows == 1 {
            writer.tensor(&t.name, &[cols], GgmlType::F32)?;
        } else {
            writer.tensor(&t.name, &[cols, rows], GgmlType::Q8_0)?;
        }
    }
    let mut data = writer.create(path)?;
    for t in &model.layout.tensors {
        let format = if t.rows == 1 { &F32 } else { q8 };
        let mut bytes = vec![0; t.rows * format.row_bytes(t.cols)];
        for (row, out) in
            w[t.range()].chunks_exact(t.cols).zip(bytes.chunks_exact_mut(format.row_bytes(t.cols)))
        {
            format.encode_row(row, out)?;
        }
        data.write_data(&t.name, &bytes)?;
    }
    Ok(data.finish()?)
}
