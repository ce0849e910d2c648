//! Ogive's own model, as bytes.
//!
//! A crate of its own and not a file of the façade's: who does not ask for it (by the façade's feature `demo-model`) downloads
//! nothing of it. It has no dependencies, so any program that reads GGUF can use the bytes. What the model is:
#![doc = include_str!("../README.md")]

/// The whole GGUF file.
pub static GGUF: &[u8] = include_bytes!("../model.gguf");

/// The hundred countries, as they stand in a sentence, and their capitals: what the model was taught, and can be asked.
pub fn capitals() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("countries.txt").lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split_once(": "))
}
