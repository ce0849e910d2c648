//! `model.safetensors.index.json`: which file of a sharded checkpoint has which tensor.
//!
//! The files are named by whoever made the checkpoint, so a name may not lead out of its folder.

use crate::json::{self, Entries};
use ogive_tensor::{Error, Result};
use serde::Deserialize;
use std::{
    collections::HashMap,
    path::{Component, Path},
};

/// The parsed index.
#[derive(Debug)]
pub(super) struct Index {
    /// Names of files, each once, in the order of the index.
    pub(super) files: Vec<String>,
    /// Names of tensors, and their file's place in `files`.
    pub(super) tensors: Vec<(String, usize)>,
}

#[derive(Deserialize)]
struct File {
    weight_map: Entries<String>,
}

/// Reads the index at `path`.
pub(super) fn read(path: &Path) -> Result<Index> {
    let at = path.display().to_string();
    let File { weight_map } = json::read(path)?;
    let (mut index, mut places) = (Index { files: Vec::new(), tensors: Vec::new() }, HashMap::new());
    for (tensor, file) in weight_map.0 {
        let mut parts = Path::new(&file).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let why =
                format!("`{tensor}` should be in `{file}`, which is no name of a file in the same folder");
            return Err(Error::invalid(&at, why));
        }
        let place = *places.entry(file).or_insert_with_key(|file: &String| {
            index.files.push(file.clone());
            index.files.len() - 1
        });
        index.tensors.push((tensor, place));
    }
    if index.files.is_empty() {
        return Err(Error::invalid(&at, "the index names no tensors"));
    }
    Ok(index)
}
