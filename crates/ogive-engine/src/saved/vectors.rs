//! What stands in place of tokens, in a saved session: of images, that are not to be seen again.

use super::Output;
use super::input::{Input, damaged};
use crate::backend::Vectors;
use crate::inputs::Placed;
use crate::tensor::Result;
use std::sync::Arc;

/// Rows see each other to both sides.
const MUTUAL: u32 = 1;
/// Rows have places.
const PLACES: u32 = 2;

/// Writes them behind their count.
pub(super) fn write(out: &mut Output<'_>, inputs: &[Placed]) -> Result<()> {
    out.count(inputs.len())?;
    for Placed { at, vectors } in inputs {
        out.count(*at)?;
        out.count(vectors.rows())?;
        out.count(vectors.dim)?;
        let has_places = !vectors.places.is_empty();
        let flags = u32::from(vectors.mutual) * MUTUAL + u32::from(has_places) * PLACES;
        out.put(&flags.to_le_bytes())?;
        out.count(vectors.deeper.len())?;
        for values in [&vectors.values].into_iter().chain(&vectors.deeper) {
            out.put(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())?;
        }
        let places = vectors.places.as_flattened();
        out.put(&places.iter().flat_map(|p| p.to_le_bytes()).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Blocks behind which something may be added: more than any model has.
const MOST_DEEPER: usize = 1024;

/// Reads what [`write`] wrote, of rows of `dim` numbers. Whether it fits the sequence is for the caller to check.
pub(super) fn read(input: &mut Input<'_>, dim: Option<usize>) -> Result<Vec<Placed>> {
    let count = input.count(8 * 4 + 4)?;
    let mut all = Vec::new();
    for _ in 0..count {
        let at = usize::try_from(input.u64()?).map_err(|_| damaged("vectors stand beyond its end"))?;
        let (rows, width) = (input.count(4)?, input.count(4)?);
        let flags = input.u32()?;
        let layers = input.count(4)?;
        // Before anything is made of the numbers.
        if dim != Some(width) || layers > MOST_DEEPER {
            return Err(damaged("vectors in it are another model's, or none"));
        }
        let numbers = rows.checked_mul(width).and_then(|n| n.checked_mul(4)).filter(|n| *n > 0);
        let numbers =
            numbers.ok_or_else(|| damaged("vectors have no numbers, or more than can be counted"))?;
        if flags & !(MUTUAL | PLACES) != 0 {
            return Err(damaged("vectors are of a kind that there is not"));
        }
        let values = values(&input.bytes(numbers)?);
        let mut vectors = Vectors::new(values, width)?;
        let mut deeper = Vec::new();
        for _ in 0..layers {
            deeper.push(self::values(&input.bytes(numbers)?));
        }
        vectors = vectors.deeper(deeper)?;
        if flags & PLACES != 0 {
            let bytes =
                input.bytes(rows.checked_mul(12).ok_or_else(|| damaged("places beyond counting"))?)?;
            let places = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
            let places: Vec<u32> = places.collect();
            vectors = vectors.places(places.as_chunks().0.to_vec())?;
        }
        all.push(Placed::new(at, if flags & MUTUAL != 0 { vectors.mutual() } else { vectors }));
    }
    Ok(all)
}

fn values(bytes: &[u8]) -> Arc<[f32]> {
    bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
