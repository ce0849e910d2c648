//! A weight format from outside: FP8 (E4M3), which Ogive does not bring. The example packs a model's matrices in it and
//! runs the result; every backend can, for a format says how it is decoded.
//!
//! `cargo run --release -p ogive-examples --example 06_weight_format -- [MODEL_FOLDER [NEW_FOLDER]]`, where MODEL_FOLDER is a
//! Hugging Face folder, by default a tiny one of Ogive's tests, which goes on from three ids, as it has no vocabulary.

use ogive::tensor::serde_json::json;
use ogive::tensor::{F32, Format};
use ogive::weights::OpenOptions;
use ogive::{Generate, Options, Prompt};
use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/ogive-models/tests/golden/llama");

/// A sign, four bits of exponent, three of fraction; no infinities (Micikevicius et al. 2022,
/// <https://arxiv.org/abs/2209.05433>). A block is what is packed together: here a single element.
static F8_E4M3: Format = Format {
    name: "f8_e4m3", // in any case what a file calls it
    block_len: 1,
    block_bytes: 1,
    decode: |bytes, out| {
        let size = magnitude(bytes[0] & 0x7f);
        out[0] = if bytes[0] < 0x80 { size } else { -size };
    },
    encode: Some(|values, bytes| {
        let (v, largest) = (values[0], 0x7e);
        let nearest = (0..largest).find(|&b| v.abs() <= (magnitude(b) + magnitude(b + 1)) / 2.0);
        bytes[0] = nearest.unwrap_or(largest) | if v < 0.0 { 0x80 } else { 0 };
    }),
};

fn magnitude(bits: u8) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 3), f32::from(bits & 7));
    match (exponent, bits) {
        (_, 0x7f) => f32::NAN,
        (0, _) => fraction * 2f32.powi(-9),
        _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
    }
}

/// Writes the model in `from` to `to`, its matrices in FP8 and its vectors in single precision.
fn pack(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let source = ogive::weights::open(from)?.source;
    let (mut header, mut data) = (json!({}), Vec::new());
    for tensor in source.tensors() {
        let [_, rows, cols] = tensor.shape;
        let (format, dtype, shape) =
            if rows > 1 { (&F8_E4M3, "F8_E4M3", vec![rows, cols]) } else { (&F32, "F32", vec![cols]) };
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
    let to = &paths.next().unwrap_or_else(|| env::temp_dir().join("ogive-f8_e4m3"));
    pack(from, to).map_err(|e| format!("packing {} into {}: {e}", from.display(), to.display()))?;

    let model = Options::new().files(OpenOptions::new().format(&F8_E4M3)).open(to)?;
    let mut session = model.session()?;
    let has_words = to.join("tokenizer.json").exists();
    let prompt: Prompt = if has_words { "Once upon a time".into() } else { Prompt::Ids(vec![1, 5, 17]) };
    let mut text = session.generate(prompt.clone(), &Generate::greedy().max_tokens(60))?;
    println!("{prompt:?} goes on with {:?}, ids {:?}", text.text()?, text.ids());
    Ok(())
}
