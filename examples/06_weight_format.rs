//! A weight format from outside: FP8 of five bits of exponent (E5M2), which Ogive does not bring. The example packs a model's matrices in it and
//! runs the result; every backend can, for a format says how it is decoded.
//!
//! `cargo run --release -p ogive-examples --example 06_weight_format -- [MODEL_FOLDER [NEW_FOLDER]]`, where MODEL_FOLDER is a
//! Hugging Face folder, by default a tiny one of Ogive's tests, which goes on from three ids, as it has no vocabulary.

use ogive::tensor::serde_json::json;
use ogive::tensor::{F32, Format, half::f16};
use ogive::weights::OpenOptions;
use ogive::{Generate, Options, Prompt};
use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/ogive-models/tests/golden/llama");

/// A sign, five bits of exponent, two of fraction (Micikevicius et al. 2022, <https://arxiv.org/abs/2209.05433>): the upper half of
/// half precision. A block is what is packed together: here a single element.
static F8_E5M2: Format = Format {
    name: "f8_e5m2", // in any case what a file calls it
    block_len: 1,
    block_bytes: 1,
    decode: |bytes, out| out[0] = f16::from_bits(u16::from(bytes[0]) << 8).to_f32(),
    encode: Some(|values, _, bytes| {
        let half = f16::from_f32(values[0]).to_bits();
        // To the nearest, and of two as near to the even one; what is larger than all is infinite.
        bytes[0] = (half.saturating_add(0x7f + (half >> 8 & 1)) >> 8) as u8;
    }),
};

/// Writes the model in `from` to `to`, its matrices in FP8 and its vectors in single precision.
fn pack(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let source = ogive::weights::open(from)?.source;
    let (mut header, mut data) = (json!({}), Vec::new());
    for tensor in source.tensors() {
        let [_, rows, cols] = tensor.shape;
        let (format, dtype, shape) =
            if rows > 1 { (&F8_E5M2, "F8_E5M2", vec![rows, cols]) } else { (&F32, "F32", vec![cols]) };
        let begin = data.len();
        data.resize(begin + format.row_bytes(rows * cols), 0);
        format.encode_row(&source.get(&tensor.name)?.to_vec(), &mut data[begin..])?;
        header[tensor.name] = json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
    }
    let header = header.to_string().into_bytes();
    fs::create_dir_all(to)?;
    let names = ["config.json", "tokenizer.json", "tokenizer_config.json"];
    for name in names.into_iter().filter(|name| from.join(name).exists()) {
        fs::copy(from.join(name), to.join(name))?;
    }
    let file = [&header.len().to_le_bytes()[..], &header, &data].concat();
    println!("{} bytes", file.len());
    Ok(fs::write(to.join("model.safetensors"), file)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = env::args_os().skip(1).map(PathBuf::from);
    let from = &paths.next().unwrap_or_else(|| TINY.into());
    let to = &paths.next().unwrap_or_else(|| env::temp_dir().join("ogive-f8_e5m2"));
    pack(from, to).map_err(|e| format!("packing {} into {}: {e}", from.display(), to.display()))?;

    let model = Options::new().files(OpenOptions::new().format(&F8_E5M2)).open(to)?;
    let mut session = model.session()?;
    let has_words = to.join("tokenizer.json").exists();
    let prompt: Prompt = if has_words { "Once upon a time".into() } else { Prompt::Ids(vec![1, 5, 17]) };
    let mut text = session.generate(prompt.clone(), &Generate::greedy().max_tokens(60))?;
    println!("{prompt:?} goes on with {:?}, ids {:?}", text.text()?, text.ids());
    Ok(())
}
