//! Linear attention in place against its definition: not near it, but the same bits, on every path and however many rows a span has.

use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Backend, Batch, CacheSpec, LayerCache, Plain};
use ogive_cpu::CpuBackend;

/// Numbers between -1 and 1 that look drawn.
fn drawn(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// Two sequences and a row of nobody, three steps, and the states that they leave.
fn run(
    b: &dyn Backend,
    [keys, heads, k_dim, v_dim]: [usize; 4],
    delta: bool,
    same_slot: bool,
) -> Result<Vec<f32>> {
    let cache =
        b.new_cache(&CacheSpec::new(vec![LayerCache::State { len: heads * k_dim * v_dim }], 1, 0, 4))?;
    let mut seen = Vec::new();
    for (step, rows) in [[5, 1], [1, 3], [1, 0]].into_iter().enumerate() {
        let mut batch = Batch::default();
        let [from, to] = if same_slot { [0, 0] } else { [step as u32 % 2, (step as u32 + 1) % 2] };
        batch.push(&vec![1; rows[0]], 6 * step, Vec::new(), [from, to]);
        batch.push(&vec![1; rows[1]], 4 * step, Vec::new(), [from + 2, to + 2]);
        batch.tokens.push(0);
        batch.positions.push(0);
        batch.types.push(0);
        let (n, plan) = (batch.tokens.len(), b.plan(batch)?);
        let tensor = |dims: [usize; 3], seed: usize, by: f32| -> Result<Tensor> {
            let all = drawn(dims.iter().product(), seed + 10 * step);
            b.upload(&all.iter().map(|v| v * by).collect::<Vec<_>>(), dims.into())
        };
        let length = (k_dim as f32).powf(-0.5);
        let (q, k) = (tensor([n, keys, k_dim], 1, length)?, tensor([n, keys, k_dim], 2, length)?);
        let v = tensor([n, heads, v_dim], 3, 1.0)?;
        let [g, beta] = [4, 5].map(|seed| tensor([n, heads, 1], seed, 0.5)?.reshape([n, heads]));
        let (g, beta) = (g?, beta?);
        let y = b.linear_attention(0, &q, &k, &v, &g, delta.then_some(&beta), &cache, &plan)?;
        seen.extend(b.download(&y)?);
        seen.extend(b.download(&b.read_state(0, &cache, &plan)?)?);
    }
    Ok(seen)
}

#[test]
fn in_place_it_has_the_bits_of_its_definition() {
    let cpu = CpuBackend::builder().build().unwrap();
    let plain = Plain(CpuBackend::builder().build().unwrap());
    for shape in [[1, 1, 1, 1], [2, 4, 8, 16], [1, 3, 5, 7], [2, 2, 16, 147], [4, 8, 64, 128]] {
        for (delta, same_slot) in [(false, false), (false, true), (true, false), (true, true)] {
            let [got, want] =
                [&cpu as &dyn Backend, &plain].map(|b| run(b, shape, delta, same_slot).unwrap());
            let bits = |x: &[f32]| x.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(
                bits(&got) == bits(&want),
                "{shape:?}, the delta rule: {delta}, in one slot: {same_slot}"
            );
        }
    }
}
