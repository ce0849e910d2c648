//! Where the end of a window stands in it a second time: the Z function of the window read backwards (Gusfield
//! 1997, "Algorithms on Strings, Trees, and Sequences", 1.4).
//!
//! Linear, because what was compared once is looked up afterwards; a hundred thousand equal tokens, where comparing
//! each place anew would take five thousand million steps, are as fast as any others.

/// The tokens that followed an earlier occurrence of the window's end, ascending, each with the longest such
/// occurrence's length, where that is at least `least`. Lengths above `limit` count as `limit`.
pub(super) fn continued(window: &[u32], limit: usize, least: usize) -> Vec<(u32, usize)> {
    let mut found: Vec<(u32, usize)> = Vec::new();
    let z = common_suffixes(window);
    for (back, &length) in z.iter().enumerate().skip(1) {
        let length = length.min(limit);
        // The token right after the end of the occurrence, which ends `back` tokens before the window does.
        if let Some(&token) = window.get(window.len() - back).filter(|_| length >= least) {
            found.push((token, length));
        }
    }
    // Of one token the longest first, and that is the one that stays.
    found.sort_unstable_by_key(|&(token, length)| (token, usize::MAX - length));
    found.dedup_by_key(|(token, _)| *token);
    found
}

/// For every k, how many of the last tokens of `window` are also the last ones of `window` without its last k.
fn common_suffixes(window: &[u32]) -> Vec<usize> {
    let n = window.len();
    let from_end = |i: usize| n.checked_sub(i + 1).and_then(|at| window.get(at));
    let mut z = vec![0usize; n];
    // The match that reaches furthest: places start..end are a copy of 0..end - start.
    let (mut start, mut end) = (0, 0);
    for k in 1..n {
        let mut length = if k < end { z[k - start].min(end - k) } else { 0 };
        while k + length < n && from_end(length) == from_end(k + length) {
            length += 1;
        }
        if k + length > end {
            (start, end) = (k, k + length);
        }
        z[k] = length;
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The definition.
    fn by_comparing(window: &[u32]) -> Vec<usize> {
        let suffix = |k: usize| {
            let earlier = &window[..window.len() - k];
            window.iter().rev().zip(earlier.iter().rev()).take_while(|(a, b)| a == b).count()
        };
        (0..window.len()).map(|k| if k == 0 { 0 } else { suffix(k) }).collect()
    }

    #[test]
    fn suffixes_equal_their_definition() {
        let mut rng = Rng::new(1);
        for round in 0..3000 {
            let (n, words) = (rng.below(40) as usize, 1 + rng.below(3) + round % 2);
            let window: Vec<u32> = (0..n).map(|_| rng.below(words) as u32).collect();
            assert_eq!(common_suffixes(&window), by_comparing(&window), "{window:?}");
        }
        assert_eq!(common_suffixes(&[]), []);
        assert_eq!(common_suffixes(&[5]), [0]);
    }

    #[test]
    fn what_would_go_on_with_a_repetition() {
        // a b c c b c y a b c: after "a b c" came c, after "b c" y, after "c" also b.
        let window = [1, 2, 3, 3, 2, 3, 25, 1, 2, 3];
        assert_eq!(continued(&window, 10, 1), [(2, 1), (3, 3), (25, 2)]);
        assert_eq!(continued(&window, 10, 2), [(3, 3), (25, 2)]);
        assert_eq!(continued(&window, 1, 1), [(2, 1), (3, 1), (25, 1)]);
        assert_eq!(continued(&window, 10, 4), []);
        assert_eq!(continued(&window, 10, 0), [(1, 0), (2, 1), (3, 3), (25, 2)]);
        assert_eq!(continued(&[], 0, 0), []);
        assert_eq!(continued(&[7], 1, 0), []);
    }

    #[test]
    fn a_hundred_thousand_equal_tokens_take_no_time() {
        let n = 100_000;
        assert_eq!(continued(&vec![9; n], n, 2), [(9, n - 1)]);
        // Quadratic work would be noticed: a minute and more.
        let two: Vec<u32> = (0..n as u32).map(|i| i % 2).collect();
        assert_eq!(continued(&two, n, 2), [(0, n - 2)]);
    }
}
