//! Where the test data is, and short ways to pack into memory.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use ogive_quantize::gguf_file::Gguf;
use ogive_quantize::{FileFormat, Input, Quantize, Result};
use ogive_tensor::format_by_name;
use std::path::{Path, PathBuf};

/// A file of the shared test data; `None`, and a line that says so, where they are missing.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if root.is_dir() {
        return Some(root.join(name));
    }
    eprintln!("skipped: shared test data not found");
    None
}

/// Packs into memory.
pub(crate) fn packed(quantize: &Quantize, input: &Path) -> Result<Gguf> {
    let mut file = Vec::new();
    quantize.write_to(&Input::open(input)?, &mut file, |_| true)?;
    Ok(Gguf::from_bytes(file)?)
}

pub(crate) fn format(name: &str) -> Quantize {
    Quantize::new(FileFormat::find(name).unwrap())
}

/// A tensor's elements.
pub(crate) fn values(gguf: &Gguf, tensor: &str) -> Vec<f32> {
    let info = gguf.tensor(tensor).unwrap_or_else(|| panic!("no {tensor}"));
    let format = format_by_name(info.ggml_type().unwrap().name()).unwrap();
    let mut out = vec![0.0; info.elements() as usize];
    format.decode_row(gguf.data(info).unwrap().bytes(), &mut out);
    out
}

/// Root of the mean square difference.
pub(crate) fn rmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}
