//! What there is to know of a model that was loaded, beside the machine it is on.
//!
//! Said when it is loaded and not when something is slow: a checkpoint whose weights do not stay packed takes several times its
//! size, and nothing else tells why.

use crate::nn::Loader;
use crate::tensor::{F32, Unpacked, WeightInfo};
use std::collections::BTreeSet;

/// All that is said of a model which this loader has filled.
pub(crate) fn of(loader: &Loader<'_>) -> Vec<String> {
    let (read, passed) = (updates(&loader.ranks_of_updates()), passed_over(&loader.updates_passed_over()));
    [unpacked(&loader.unpacked()), loader.notes(), read, passed].concat()
}

/// What adapters do, if there are any.
fn updates(ranks: &[usize]) -> Vec<String> {
    let (Some(least), Some(most)) = (ranks.iter().min(), ranks.iter().max()) else { return Vec::new() };
    let ranks_are = if least == most { format!("rank {least}") } else { format!("ranks {least} to {most}") };
    vec![format!("adapters change {} matrices, by updates of {ranks_are}", ranks.len())]
}

/// What adapters do in vain, if anything.
fn passed_over(matrices: &[String]) -> Vec<String> {
    let Some(first) = matrices.first() else { return Vec::new() };
    let (count, more) = match matrices.len() {
        1 => ("a matrix".to_owned(), ""),
        n => (format!("{n} matrices"), ", …"),
    };
    let why = "nothing is computed by them, as their layers attend to the keys and values of others";
    vec![format!("adapters' updates of {count} ({first}{more}) are passed over: {why}")]
}

/// A line for each reason that weights are kept in single precision for which their file has in less.
fn unpacked(weights: &[(WeightInfo, Unpacked)]) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, unpacked) in weights {
        if !reasons.contains(&&*unpacked.why) {
            reasons.push(&unpacked.why);
        }
    }
    reasons.into_iter().map(|why| line(why, weights.iter().filter(|(_, u)| &*u.why == why))).collect()
}

fn line<'w>(why: &str, weights: impl Iterator<Item = &'w (WeightInfo, Unpacked)>) -> String {
    let (mut kept, mut packed, mut names, mut first) = (0.0, 0.0, BTreeSet::new(), "");
    for (info, unpacked) in weights {
        let elements = info.elements() as f64;
        kept += elements * f64::from(F32.bits());
        packed += elements * f64::from(unpacked.bits);
        // A matrix that the file keeps in one with others comes in parts.
        if names.is_empty() {
            first = &info.name;
        }
        names.insert(&*info.name);
    }
    let times = if packed > 0.0 { kept / packed } else { 1.0 };
    let count = names.len();
    let (tensors, more) = if count == 1 { ("tensor", "") } else { ("tensors", ", …") };
    format!("kept as F32, {times:.1} times the file's bytes: {count} {tensors} ({first}{more}): {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_reason() {
        let of =
            |name: &str, bits, why: &str| (WeightInfo::new(name, [1, 8, 96], &F32), Unpacked::new(bits, why));
        assert!(unpacked(&[]).is_empty());
        let all = [of("a", 4.0, "one"), of("b", 8.0, "one"), of("c", 16.0, "other"), of("b", 4.0, "one")];
        let lines = unpacked(&all);
        assert_eq!(lines[0], "kept as F32, 6.0 times the file's bytes: 2 tensors (a, …): one");
        assert_eq!(lines[1..], ["kept as F32, 2.0 times the file's bytes: 1 tensor (c): other"]);
    }

    #[test]
    fn adapters_are_told_of() {
        assert!(updates(&[]).is_empty());
        assert_eq!(updates(&[4; 7]), ["adapters change 7 matrices, by updates of rank 4"]);
        assert_eq!(updates(&[3, 2, 3]), ["adapters change 3 matrices, by updates of ranks 2 to 3"]);
        assert!(passed_over(&[]).is_empty());
        let of =
            |names: &[&str]| passed_over(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert!(of(&["a"])[0].starts_with("adapters' updates of a matrix (a) are passed over: "));
        assert!(of(&["a", "b"])[0].starts_with("adapters' updates of 2 matrices (a, …) are passed over: "));
    }
}
