//! The entry of a grid that is nearest to some numbers, each of which counts as much as it is told to.
//!
//! The definition is to try every entry, of which there are 256 to 2048. Here every number is rounded to the level nearest to it, and where
//! the grid has what comes out, nothing is nearer. Where it has not, one of a list is taken, made once for whatever can come out: the entries
//! the fewest steps away from it, without regard to what counts more. So the very nearest is sometimes missed; tests hold what that costs.

/// A grid of `N` numbers an entry, each of which has one of `BORDERS + 1` levels.
pub(super) struct Book<const N: usize, const BORDERS: usize> {
    /// Between the levels.
    pub(super) borders: [f32; BORDERS],
    /// The least level.
    pub(super) least: f32,
    pub(super) entries: Vec<[f32; N]>,
    /// Of all levels that there can be, as digits of a number: the code of the entry that has them, or, counted from the last code on, which list
    /// is theirs.
    place: Vec<u16>,
    /// The lists, each of `LISTED` codes.
    lists: Vec<u16>,
}

/// Entries in a list.
pub(super) const LISTED: usize = 24;

impl<const N: usize, const BORDERS: usize> Book<N, BORDERS> {
    /// `levels` are those of the grid, the least first.
    pub(super) fn new(grid: &[[i8; N]], levels: &[i8]) -> Self {
        let base = BORDERS + 1;
        let digits: Vec<[u8; N]> = grid
            .iter()
            .map(|e| e.map(|level| levels.iter().position(|l| *l == level).unwrap_or_default() as u8))
            .collect();
        let mut place = vec![u16::MAX; base.pow(N as u32)];
        for (code, digits) in digits.iter().enumerate() {
            let at: usize =
                digits.iter().enumerate().map(|(j, d)| usize::from(*d) * base.pow(j as u32)).sum();
            place[at] = code as u16;
        }
        let mut lists = Vec::new();
        let mut away = Vec::with_capacity(grid.len());
        for (at, place) in place.iter_mut().enumerate().filter(|(_, place)| **place == u16::MAX) {
            *place = (grid.len() + lists.len() / LISTED) as u16;
            let wanted: [u8; N] = std::array::from_fn(|j| (at / base.pow(j as u32) % base) as u8);
            away.clear();
            away.extend(digits.iter().enumerate().map(|(code, digits)| {
                let steps: u32 =
                    digits.iter().zip(wanted).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum();
                steps << 16 | code as u32
            }));
            away.select_nth_unstable(LISTED - 1);
            away[..LISTED].sort_unstable();
            lists.extend(away[..LISTED].iter().map(|key| *key as u16));
        }
        Self {
            borders: std::array::from_fn(|b| (f32::from(levels[b]) + f32::from(levels[b + 1])) / 2.0),
            least: f32::from(levels[0]),
            entries: grid.iter().map(|e| e.map(f32::from)).collect(),
            place,
            lists,
        }
    }

    /// The code of an entry near to `v`, where the square of each difference counts `w` times; of a list the first `look` are looked at.
    pub(super) fn nearest(&self, v: &[f32; N], w: &[f32; N], look: usize) -> usize {
        let mut digits = [0.0; N];
        for border in self.borders {
            for j in 0..N {
                digits[j] += if v[j] > border { Self::POWERS[j] } else { 0.0 };
            }
        }
        let place = usize::from(self.place[digits.iter().sum::<f32>() as usize]);
        let Some(list) = place.checked_sub(self.entries.len()) else { return place };
        // Of w (e - v)² without w v², which is the same for all.
        let twice: [f32; N] = std::array::from_fn(|j| 2.0 * w[j] * v[j]);
        let (mut best, mut least) = (0, f32::INFINITY);
        for &code in &self.lists[list * LISTED..][..look.min(LISTED)] {
            let away = Self::away(&self.entries[usize::from(code)], w, &twice);
            if away < least {
                (best, least) = (usize::from(code), away);
            }
        }
        best
    }

    const POWERS: [f32; N] = {
        let (mut powers, mut power, mut j) = ([0.0; N], 1.0, 0);
        while j < N {
            powers[j] = power;
            power *= (BORDERS + 1) as f32;
            j += 1;
        }
        powers
    };

    /// Four sums side by side, as wide as any machine's registers are.
    fn away(entry: &[f32; N], w: &[f32; N], twice: &[f32; N]) -> f32 {
        let mut sums = [0.0_f32; 4];
        for part in 0..N / 4 {
            for (lane, sum) in sums.iter_mut().enumerate() {
                let j = 4 * part + lane;
                *sum += entry[j] * (w[j] * entry[j] - twice[j]);
            }
        }
        (sums[0] + sums[2]) + (sums[1] + sums[3])
    }
}

#[cfg(test)]
mod tests {
    use super::super::codebook::{IQ1_GRID, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, IQ3_S_GRID, IQ3_XXS_GRID};
    use super::super::grids::{IQ1_LEVELS, IQ2_LEVELS, IQ3_S_LEVELS, IQ3_XXS_LEVELS};
    use super::*;

    /// From 0 to 1, the same on every run.
    fn even(state: &mut u64) -> f32 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 40) as f32 / (1 << 24) as f32
    }

    /// About normal numbers of the size that a search makes of them, all counting alike or up to a hundred times each other: what the entry that
    /// is taken is off by, summed up, against the best of all entries. The scatter of what counts costs most where entries are few.
    fn compare<const N: usize, const BORDERS: usize>(name: &str, grid: &[[i8; N]], levels: &[i8], size: f32) {
        let (book, mut state) = (Book::<N, BORDERS>::new(grid, levels), 7);
        for (spread, most) in [(0.0, 1.004), (2.3, 1.025)] {
            let (mut ours, mut least) = (0.0, 0.0);
            for _ in 0..2000 {
                let w: [f32; N] = std::array::from_fn(|_| (spread * (2.0 * even(&mut state) - 1.0)).exp());
                let v: [f32; N] = std::array::from_fn(|_| {
                    let bell = (0..12).map(|_| even(&mut state)).sum::<f32>() - 6.0;
                    size * if levels[0] > 0 { bell.abs() } else { bell }
                });
                let off = |e: &[f32; N]| (0..N).map(|j| w[j] * (e[j] - v[j]).powi(2)).sum::<f32>();
                ours += off(&book.entries[book.nearest(&v, &w, LISTED)]);
                least += book.entries.iter().map(off).fold(f32::INFINITY, f32::min);
            }
            assert!(ours < least * most && ours >= least * 0.9999, "{name}: {} of the least", ours / least);
        }
    }

    #[test]
    fn little_is_lost_to_trying_every_entry() {
        compare::<8, 2>("iq2_xxs", &IQ2_XXS_GRID, &IQ2_LEVELS, 20.0);
        compare::<8, 2>("iq2_xs", &IQ2_XS_GRID, &IQ2_LEVELS, 20.0);
        compare::<8, 2>("iq2_s", &IQ2_S_GRID, &IQ2_LEVELS, 20.0);
        compare::<8, 2>("iq1", &IQ1_GRID, &IQ1_LEVELS, 0.8);
        compare::<4, 7>("iq3_xxs", &IQ3_XXS_GRID, &IQ3_XXS_LEVELS, 25.0);
        compare::<4, 7>("iq3_s", &IQ3_S_GRID, &IQ3_S_LEVELS, 6.0);
    }

    #[test]
    fn what_is_in_the_grid_is_its_own_nearest_and_nothing_is_beyond_it() {
        let book = Book::<8, 2>::new(&IQ2_XXS_GRID, &IQ2_LEVELS);
        for (code, entry) in book.entries.iter().enumerate() {
            assert_eq!(book.nearest(entry, &[1.0; 8], LISTED), code);
        }
        for wild in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0] {
            for at in 0..8 {
                let mut v = [20.0; 8];
                v[at] = wild;
                assert!(book.nearest(&v, &[1.0; 8], LISTED) < 256);
                assert!(book.nearest(&[20.0; 8], &v, LISTED) < 256);
            }
        }
    }
}
