//! Apertus as GGUF has it: what each layer's activation has learned is a list of settings and no tensor.

use super::{Keys, Model};
use crate::{Error, Result};
use ogive_tensor::Source;

/// GGUF's name of the architecture.
pub(super) const ARCHITECTURE: &str = "apertus";

/// Whether a tensor is a number of an activation.
pub(super) fn is_beside(model: &Model<'_>, name: &str) -> bool {
    model.architecture == ARCHITECTURE && name.contains(".mlp.act_fn.")
}

/// Sets the numbers of all layers. The keys are below no architecture.
pub(super) fn set(keys: &mut Keys<'_>, model: &Model<'_>, source: &dyn Source) -> Result<()> {
    if model.architecture != ARCHITECTURE {
        return Ok(());
    }
    for name in ["alpha_p", "alpha_n", "beta", "eps"] {
        let number = |layer: usize| {
            let name = format!("model.layers.{layer}.mlp.act_fn.{name}");
            let found = source.get(&name)?;
            match *found.to_vec() {
                [number] if number.is_finite() => Ok(number),
                _ => Err(Error::convert(format!("the tensor {name}"), "it should be one number")),
            }
        };
        // One by one: a false number of layers ends at the first that is missing.
        let all = (0..model.config.usize("num_hidden_layers")?).map(number).collect::<Result<Vec<f32>>>()?;
        keys.metadata.set(&format!("xielu.{name}"), all);
    }
    Ok(())
}
