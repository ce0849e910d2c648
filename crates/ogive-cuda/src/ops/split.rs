//! Which steps of attention are split over chunks of the context.
//!
//! Decided by what a step's key says, its rows and the power of two of its longest context, so that a recorded step is split as it
//! would be without a record, and its grid fits all of its kind. Bits do not hang on it: both kernels put chunks together alike. Where
//! the line is drawn has not been measured on a GPU.

use crate::plan::TICKETS;
use ogive_backend::AttnSpec;

/// Tokens of a chunk: `CHUNK` in the kernels.
const CHUNK: usize = 256;
/// Blocks a chunk, at most: with more, rows and heads alone fill a device. Each has a counter in the step.
const BLOCKS: usize = TICKETS;
/// Bytes of parts, at most.
const PARTS: usize = 64 << 20;

/// Chunks that a row may see, if `n` rows of so many `tiles` of heads, over contexts of at most `longest`, are split. A row sees no more
/// than `seen` tokens.
pub(super) fn chunks(spec: &AttnSpec, seen: u32, tiles: usize, n: usize, longest: usize) -> Option<usize> {
    let bucket = longest.checked_next_power_of_two()?;
    // A window may begin and end within chunks.
    let of_window = (seen as usize).div_ceil(CHUNK).saturating_add(1);
    let chunks = bucket.div_ceil(CHUNK).min(of_window);
    let parts = n.checked_mul(spec.heads)?.checked_mul(chunks)?.checked_mul(4 * (spec.v_dim + 2))?;
    (bucket > CHUNK && tiles.checked_mul(n)? <= BLOCKS && parts <= PARTS).then_some(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_that_of_the_key() {
        let spec = AttnSpec::causal(32, 8, 128);
        let of = |seen, n, longest| chunks(&spec, seen, 8, n, longest);
        assert_eq!(of(u32::MAX, 1, 256), None);
        assert_eq!(of(u32::MAX, 1, 257), Some(2));
        assert!((513..=1024).all(|longest| of(u32::MAX, 1, longest) == Some(4)));
        assert_eq!(of(300, 1, 32_768), Some(3));
        assert_eq!((of(u32::MAX, 32, 1024), of(u32::MAX, 33, 1024)), (Some(4), None));
        // Parts would take more than they save.
        assert_eq!(of(u32::MAX, 32, 1 << 20), None);
        assert_eq!(of(u32::MAX, usize::MAX, 1024), None);
    }
}
