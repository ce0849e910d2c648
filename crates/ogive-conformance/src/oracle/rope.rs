//! Rotary position embedding (Su et al. 2021, <https://arxiv.org/abs/2104.09864>).
//!
//! The angle is the single precision product of position and frequency, as the models' own code computes it: at long
//! contexts its rounding is a good part of a milliradian, and models were trained with it. Sine and cosine of it are
//! exact.

use super::step::batch;
use super::values::{make, take};
use ogive_backend::tensor::{Error, Result, Tensor};
use ogive_backend::{Plan, Rope, RopeLayout};

/// Rotates the first `2 * inv_freq.len()` elements of each head of `[n, heads, dim]`.
pub(super) fn rope(x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
    let (shape, batch) = (x.shape(), batch("rope", plan)?);
    let positions = &batch.positions;
    let &[n, heads, dim] = shape.dims() else {
        return Err(Error::invalid("rope", format!("needs [rows, heads, dim] and was given {shape:?}")));
    };
    let pairs = rope.inv_freq.len();
    if n != positions.len() || pairs > dim / 2 {
        let why = format!("{shape:?} with {} positions and {pairs} frequencies", positions.len());
        return Err(Error::invalid("rope", why));
    }
    let places = |i: usize| match rope.layout {
        RopeLayout::Halves => Ok((i, i + pairs)),
        RopeLayout::Pairs => Ok((2 * i, 2 * i + 1)),
        other => Err(Error::unsupported("rope", format!("the oracle does not know {other:?}"))),
    };
    let axes = rope.axes_in(batch)?;
    let mut values = take("rope", x)?;
    for (r, row) in values.chunks_mut((heads * dim).max(1)).enumerate() {
        for (i, freq) in rope.inv_freq.iter().enumerate() {
            let angle = match axes {
                None => positions[r] as f32 * freq,
                // As a pair has one axis in models, two of these are zero.
                Some(axes) => axes.iter().zip(batch.places[r]).map(|(of, at)| at as f32 * of[i]).sum(),
            };
            let (sin, cos) = f64::from(angle).sin_cos();
            let (sin, cos) = (sin * f64::from(rope.factor), cos * f64::from(rope.factor));
            let (a, b) = places(i)?;
            for head in row.chunks_mut(dim) {
                let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                head[a] = (x * cos - y * sin) as f32;
                head[b] = (y * cos + x * sin) as f32;
            }
        }
    }
    Ok(make(shape, values))
}
