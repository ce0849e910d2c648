//! The definition of [`Backend::best`](crate::Backend::best), for backends whose own way is held to it.

/// The `k` largest of `row`, best first, ties to the lower index, NaN last: the definition of [`Backend::best`](crate::Backend::best).
pub fn best_of(row: &[f32], k: usize) -> Vec<(u32, f32)> {
    let key = |i: u32| {
        let v = row[i as usize];
        if v.is_nan() { f32::NEG_INFINITY } else { v + 0.0 }
    };
    let order = |a: &u32, b: &u32| key(*b).total_cmp(&key(*a)).then(a.cmp(b));
    let mut ids: Vec<u32> = (0..row.len() as u32).collect();
    if k == 0 || row.is_empty() {
        return Vec::new();
    }
    if k < ids.len() {
        ids.select_nth_unstable_by(k - 1, order);
        ids.truncate(k);
    }
    ids.sort_unstable_by(order);
    ids.into_iter().map(|i| (i, row[i as usize])).collect()
}
