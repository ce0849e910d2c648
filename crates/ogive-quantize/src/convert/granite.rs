//! Granite as GGUF has it: its factors, and of its mixtures the matrix that each expert has for gate and up as two.

use super::{Keys, Model};
use crate::{Error, Result};
use ogive_tensor::{Config, HostWeight, WeightInfo};
use ogive_weights::Change;

/// GGUF's name of the mixtures' architecture.
pub(super) const MIXTURE: &str = "granitemoe";

/// Sets the factors. Silence is 1 for the class, and for readers of GGUF the usual scale of scores.
pub(super) fn set(keys: &mut Keys<'_>, config: &Config) -> Result<()> {
    for (setting, key) in [
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ] {
        let factor = config.f32_or(setting, 1.0)?;
        if factor == 0.0 {
            return Err(Error::convert(format!("the setting {setting}"), "GGUF takes 0 for none"));
        }
        keys.set(key, factor);
    }
    Ok(())
}

/// GGUF's names of what the weight `input_linear` becomes, and how.
pub(super) fn halves(model: &Model<'_>, name: &str) -> Option<[(String, Change); 2]> {
    let at = name.strip_suffix(".input_linear.weight").filter(|_| model.architecture == MIXTURE)?;
    let name = |half: &str| Some(model.translation.gguf_name(&format!("{at}.experts.{half}_proj.weight"))?.0);
    Some([(name("gate")?, half(0)), (name("up")?, half(1))])
}

/// Of each expert's rows the first half, or the second.
pub(super) fn half(which: usize) -> Change {
    let misfit = || ogive_tensor::Error::invalid("input_linear", "its experts have no two halves");
    let shape = move |[experts, rows, cols]: [usize; 3]| {
        if rows.is_multiple_of(2) { Ok([experts, rows / 2, cols]) } else { Err(misfit()) }
    };
    Change::new(
        move |of, _| {
            let w = of.first().ok_or_else(misfit)?;
            Ok(WeightInfo::new(&*w.name, shape(w.shape)?, w.format))
        },
        move |of, _| {
            let w = of.first().ok_or_else(misfit)?;
            let [experts, half, cols] = shape(w.shape)?;
            if w.bytes.is_empty() {
                // Nothing bounds the shape.
                return Err(misfit());
            }
            let flat = HostWeight::new(&*w.name, [1, experts * 2 * half, cols], w.format, w.bytes.clone())?;
            let begins = (0..experts).map(|e| (2 * e + which) * half);
            let parts =
                begins.map(|at| flat.rows(at..at + half)).collect::<ogive_tensor::Result<Vec<_>>>()?;
            HostWeight::stack(&*w.name, &parts)
        },
    )
}
