//! Each stage that takes a short cut, against its definition written down plainly: sort everything, add up in
//! order, use the platform's mathematics.
//!
//! Logits are random and far from ties at the cuts, so that rounding decides nothing; ties are the properties'.

use std::collections::BTreeSet;

use ogive_sampler::stages::{
    AdaptiveP, Breakers, Dry, DynamicTemperature, Mirostat, MirostatV2, TopNSigma, Typical, Xtc,
};
use ogive_sampler::{Candidates, Rng, Stage};

/// Random logits of many kinds: few and many, flat and steep, some impossible.
fn rows() -> impl Iterator<Item = Vec<f32>> {
    let mut rng = Rng::new(11);
    (0..240).map(move |round| {
        let n = 1 + rng.below([8, 200, 4000][round % 3]) as usize;
        let spread = [0.3, 2.0, 8.0, 40.0][round % 4];
        let mut row: Vec<f32> =
            (0..n).map(|_| (spread * (rng.uniform() + rng.uniform() - rng.uniform())) as f32).collect();
        if round % 5 == 0 && n > 2 {
            row[n / 2] = f32::NEG_INFINITY;
        }
        row
    })
}

/// Tokens and probabilities, best first.
fn softmax(row: &[f32]) -> Vec<(u32, f64)> {
    let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = row.iter().map(|l| f64::from(l - best).exp()).sum();
    let mut list: Vec<_> = (0..).zip(row.iter().map(|l| f64::from(l - best).exp() / total)).collect();
    list.sort_by(|a: &(u32, f64), b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    list
}

fn entropy(list: &[(u32, f64)]) -> f64 {
    list.iter().filter(|(_, p)| *p > 0.0).map(|(_, p)| -p * p.ln()).sum()
}

/// What is left, and possible, of a row.
fn left(stage: &mut dyn Stage, row: &[f32], history: &[u32]) -> BTreeSet<u32> {
    let mut candidates = Candidates::from_logits(row).expect("some logits");
    stage.apply(&mut candidates, history);
    let possible = candidates.as_slice().iter().filter(|c| c.logit > f32::NEG_INFINITY);
    possible.map(|c| c.id).collect()
}

fn ids(list: &[(u32, f64)]) -> BTreeSet<u32> {
    list.iter().map(|(id, _)| *id).collect()
}

#[test]
fn typical() {
    for row in rows() {
        for p in [1e-4f32, 0.2, 0.5, 0.9, 0.99] {
            let mut list = softmax(&row);
            let h = entropy(&list);
            list.sort_by(|a, b| (-a.1.ln() - h).abs().total_cmp(&(-b.1.ln() - h).abs()));
            let mut sum = 0.0;
            let kept = list.iter().take_while(|(_, q)| {
                let open = sum <= f64::from(p);
                sum += q;
                open
            });
            let expected: BTreeSet<u32> = kept.map(|(id, _)| *id).collect();
            let got = left(&mut Typical::new(p).expect("valid"), &row, &[]);
            assert_eq!(got, expected, "{p} of {} logits", row.len());
        }
    }
}

#[test]
fn top_n_sigma() {
    for row in rows() {
        for n in [0.1f32, 1.0, 1.5, 3.0] {
            let finite: Vec<f64> = row.iter().filter(|l| l.is_finite()).map(|&l| l.into()).collect();
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            let variance = finite.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / finite.len() as f64;
            let bar = finite.iter().copied().fold(f64::MIN, f64::max) - f64::from(n) * variance.sqrt();
            let expected = (0..).zip(&row).filter(|(_, l)| f64::from(**l) >= bar - 1e-12).map(|(id, _)| id);
            let mut stage = TopNSigma::new(n).expect("valid");
            assert_eq!(left(&mut stage, &row, &[]), expected.collect(), "{n} of {} logits", row.len());
        }
    }
}

#[test]
fn xtc() {
    for row in rows() {
        for threshold in [0.01f32, 0.05, 0.1, 0.3, 0.5] {
            let list = softmax(&row);
            let above = list.iter().filter(|(_, p)| *p >= f64::from(threshold)).count();
            let expected: BTreeSet<u32> = ids(&list[above.saturating_sub(1)..])
                .into_iter()
                .filter(|id| row[*id as usize].is_finite())
                .collect();
            let got = left(&mut Xtc::new(1.0, threshold, 3).expect("valid"), &row, &[]);
            assert_eq!(got, expected, "{threshold} of {} logits", row.len());
        }
    }
}

#[test]
fn xtc_tosses_as_often_as_it_says() {
    let row = [2.0, 2.0, 1.0];
    let mut stage = Xtc::new(0.3, 0.1, 5).expect("valid");
    let mut tosses = || {
        let excluded = left(&mut stage, &row, &[]).len() < 3;
        // Asked again before a token is accepted, it answers the same.
        assert_eq!(left(&mut stage, &row, &[]).len() < 3, excluded);
        stage.accept(0);
        excluded
    };
    let count = (0..10_000).filter(|_| tosses()).count();
    assert!((2850..3150).contains(&count), "{count}");
}

#[test]
fn dynamic_temperature() {
    for row in rows() {
        for (t, range, exponent) in
            [(0.8f32, 0.5f32, 1.0f32), (1.0, 2.0, 0.5), (0.0, 1.0, 2.0), (1.5, 0.2, 0.0)]
        {
            let mut candidates = Candidates::from_logits(&row).expect("some logits");
            DynamicTemperature::new(t, range, exponent).expect("valid").apply(&mut candidates, &[]);
            if row.len() == 1 {
                assert_eq!(candidates.as_slice()[0].logit, row[0]);
                continue;
            }
            let share = entropy(&softmax(&row)) / (row.len() as f64).ln();
            let (t, range) = (f64::from(t), f64::from(range));
            let low = (t - range).max(0.0);
            let dynamic = low + (t + range - low) * share.powf(f64::from(exponent));
            if dynamic < 1e-4 {
                // As good as 0: what is left of the entropy is below what weights resolve.
                assert!(candidates.probabilities().iter().any(|p| *p > 0.999_999));
                continue;
            }
            for (c, l) in candidates.as_slice().iter().zip(&row).filter(|(_, l)| l.is_finite()) {
                let expected = f64::from(*l) / dynamic;
                let near = (f64::from(c.logit) - expected).abs() <= 1e-4 * expected.abs().max(1.0);
                assert!(near, "{} {expected} at {dynamic}", c.logit);
            }
        }
    }
}

/// llama.cpp's words for a repetition, place by place: quadratic and plain.
fn dry_penalties(window: &[u32], breakers: &[Vec<u32>], allowed: usize) -> Vec<(u32, usize)> {
    let n = window.len();
    let mut limit = n;
    for start in (0..n).rev() {
        let here = breakers.iter().filter(|b| window[start..].starts_with(b));
        if let Some(longest) = here.map(Vec::len).max() {
            limit = n - start - longest;
            break;
        }
    }
    let mut found = std::collections::BTreeMap::new();
    if n <= allowed || limit < allowed {
        return Vec::new();
    }
    for end in 1..n {
        let same = (0..end).take_while(|i| window[end - 1 - i] == window[n - 1 - i]).count().min(limit);
        if same >= allowed && !breakers.contains(&vec![window[end]]) {
            let longest = found.entry(window[end]).or_insert(same);
            *longest = same.max(*longest);
        }
    }
    found.into_iter().collect()
}

#[test]
fn dry() {
    let mut rng = Rng::new(2);
    for round in 0..4000 {
        let words = 2 + rng.below(4);
        let mut tokens =
            |most: u64| -> Vec<u32> { (0..rng.below(most)).map(|_| rng.below(words) as u32).collect() };
        let history = tokens(60);
        let breakers: Vec<Vec<u32>> = match round % 4 {
            0 => Vec::new(),
            1 => vec![vec![0]],
            _ => (0..3).map(|_| tokens(5)).filter(|b| !b.is_empty()).collect(),
        };
        let (allowed, last_n) = (round % 5, [usize::MAX, 20, 7, 1, 0][round / 5 % 5]);
        let (multiplier, base) = ([0.8f32, 1.0, -0.5][round % 3], [1.0f32, 1.1, 1.75][round / 3 % 3]);
        let logits = [0.25f32, -1.0, 3.0, 0.0, f32::NEG_INFINITY, 8.0, 1.0];
        let mut candidates = Candidates::from_logits(&logits).expect("some logits");
        let mut stage =
            Dry::new(multiplier, base, allowed, last_n, Breakers::from_tokens(&breakers)).expect("valid");
        stage.apply(&mut candidates, &history);
        let mut expected: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
        let window = &history[history.len() - last_n.min(history.len())..];
        for (token, length) in dry_penalties(window, &breakers, allowed) {
            let exponent = (length - allowed) as i32;
            expected[token as usize] -= f64::from(multiplier) * f64::from(base).powi(exponent);
        }
        for (c, e) in candidates.as_slice().iter().zip(expected) {
            let near = c.logit.is_infinite() || (f64::from(c.logit) - e).abs() <= 1e-5 * e.abs().max(1.0);
            assert!(near, "{c:?} {e}: {history:?} {breakers:?} {allowed} {last_n}");
        }
    }
}

#[test]
fn mirostat() {
    for row in rows().filter(|row| row.len() > 2) {
        let (tau, eta) = (3.0, 0.2);
        let mut stage = Mirostat::new(tau, eta).expect("valid");
        let mut mu = 2.0 * f64::from(tau);
        for step in 0..5 {
            let list = softmax(&row);
            let (mut tb, mut tt) = (0.0, 0.0);
            for i in 0..99.min(list.len() - 1) {
                let t = ((i + 2) as f64 / (i + 1) as f64).ln();
                if list[i + 1].1 > 0.0 {
                    tb += t * (list[i].1 / list[i + 1].1).ln();
                    tt += t * t;
                }
            }
            let s = tb / tt;
            let epsilon = s - 1.0;
            let n = list.len() as f64;
            let k = (epsilon * 2f64.powf(mu) / (1.0 - n.powf(-epsilon))).powf(1.0 / s) as usize;
            let kept = &list[..k.clamp(1, list.len())];
            let possible: BTreeSet<u32> =
                ids(kept).into_iter().filter(|id| row[*id as usize].is_finite()).collect();
            assert_eq!(left(&mut stage, &row, &[]), possible, "{k} of {} logits, mu {mu}", row.len());
            let token = *possible.iter().nth(step * 7 % possible.len()).expect("one is possible");
            stage.accept(token);
            let total: f64 = kept.iter().map(|(_, p)| p).sum();
            let p = list.iter().find(|(id, _)| *id == token).expect("it is there").1 / total;
            // Less than 2^-41 as likely as the best counts as impossible.
            mu -= f64::from(eta) * (-p.max(f64::EPSILON).log2() - f64::from(tau));
            if p < 1e-10 {
                break;
            }
        }
    }
}

#[test]
fn mirostat_v2() {
    for row in rows() {
        let (tau, eta) = (4.0, 0.3);
        let mut stage = MirostatV2::new(tau, eta).expect("valid");
        let mut mu = 2.0 * f64::from(tau);
        for step in 0..6 {
            let list = softmax(&row);
            let kept: Vec<_> = list.iter().copied().filter(|(_, p)| -p.log2() <= mu).collect();
            let kept = if kept.is_empty() { vec![list[0]] } else { kept };
            assert_eq!(left(&mut stage, &row, &[]), ids(&kept), "{} logits, mu {mu}", row.len());
            let (token, p) = kept[step * 5 % kept.len()];
            stage.accept(token);
            let total: f64 = kept.iter().map(|(_, p)| p).sum();
            mu -= f64::from(eta) * (-(p / total).log2() - f64::from(tau));
        }
        // A token that nobody offered teaches nothing.
        let before = left(&mut stage, &row, &[]);
        stage.accept(u32::MAX);
        stage.accept(0);
        assert_eq!(left(&mut stage, &row, &[]), before);
    }
}

#[test]
fn adaptive_p() {
    for row in rows() {
        let (goal, decay) = (0.3f32, 0.8f32);
        let mut stage = AdaptiveP::new(goal, decay).expect("valid");
        let (goal, decay) = (f64::from(goal), f64::from(decay));
        let (mut sum, mut weight) = (goal / (1.0 - decay), 1.0 / (1.0 - decay));
        for step in 0..6 {
            let mut candidates = Candidates::from_logits(&row).expect("some logits");
            stage.apply(&mut candidates, &[]);
            let target = (2.0 * goal - sum / weight).clamp(0.0, 1.0);
            let list = softmax(&row);
            for &(id, p) in &list {
                let logit = candidates.as_slice()[id as usize].logit;
                if row[id as usize].is_finite() {
                    let off = (p - target).abs() / 0.3;
                    let expected = 5.0 - 10.0 * off * off / (1.0 + off);
                    assert!((f64::from(logit) - expected).abs() < 1e-4, "{logit} {expected}");
                } else {
                    assert_eq!(logit, f32::NEG_INFINITY);
                }
            }
            let (token, p) = list[step * 3 % list.len()];
            stage.accept(token);
            (sum, weight) = (p + decay * sum, 1.0 + decay * weight);
        }
    }
}
