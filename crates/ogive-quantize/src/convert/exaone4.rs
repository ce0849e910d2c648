//! EXAONE 4.0 as GGUF has it: readers tell by the number of layers whether there are windows, and each fourth layer has none.

use super::{Keys, Model, refuse};
use crate::Result;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "exaone4";

/// Layers of the model that has windows.
const OF_THE_LARGER: usize = 64;

/// Sets what this architecture has besides.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, head_dim: u32) -> Result<()> {
    let config = model.config;
    let hybrid = config.opt_usize("sliding_window")?.is_some_and(|window| window > 0);
    if hybrid != (config.usize("num_hidden_layers")? == OF_THE_LARGER) {
        let why =
            format!("readers of GGUF have windows in models of {OF_THE_LARGER} layers and in no others");
        return refuse("sliding_window", why);
    }
    const PATTERN: &str = "sliding_window_pattern";
    if hybrid && !config.has("layer_types") {
        let usual = match config.0.get(PATTERN).and_then(|pattern| pattern.as_str()) {
            Some(word) => word == "LLLG",
            None => config.usize_or(PATTERN, 4)? == 4,
        };
        if !usual {
            return refuse(PATTERN, "GGUF has each fourth layer of this architecture without a window");
        }
    }
    keys.set("rope.dimension_count", head_dim);
    Ok(())
}
