//! Shapes that nobody thought of: a product drawn at random on a fast path, and the scalar twin's.

use super::*;

/// Multiplications of one product, at most.
const WORK: usize = 4 << 20;

struct Draw(Noise);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        (self.0.bits() % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// From 1 to `most`, small ones as often as large ones.
    fn size(&mut self, most: usize) -> usize {
        let most = 1 + self.below(most);
        1 + self.below(most)
    }
}

#[test]
fn random_shapes() {
    let paths = fast_paths();
    if paths.is_empty() {
        return;
    }
    let mut draw = Draw(Noise(30));
    for i in 0..120 {
        // Dense formats are few, and would be rare.
        let formats: &[&'static Format] = if i % 5 == 0 { &[&F32, &F16, &BF16] } else { FORMATS };
        let format = draw.one_of(formats);
        let path = draw.one_of(&paths);
        let precision =
            draw.one_of(&[Precision::Default, Precision::Default, Precision::Bf16, Precision::Exact]);
        let k = format.block_len * draw.size(2400 / format.block_len);
        let most = draw.one_of(&[8, 40, 330]);
        let n = 1 + draw.below(most);
        let rows = draw.size(200).min((WORK / (n * k)).max(1));
        let pool = Pool::new(1 + draw.below(4));
        let mut w = weight(&mut draw.0, format, [1, rows, k]);
        if precision == Precision::Bf16 {
            w = crate::weight::rounded(&pool, &w).unwrap();
        }
        let scale = draw.one_of(&[1.0, 1.0, 1e-36, 1e30]);
        let x: Vec<f32> = draw.0.values(n * k).iter().map(|v| v * scale).collect();
        let twins = Twins::new(&pool, &x, n, &w, precision);
        let got = product(&pool, &x, n, &w, precision, path);
        let what = format!("draw {i}: {format:?} {path} {precision:?} rows={rows} k={k} n={n} scale={scale}");
        assert_same(&got, twins.of(path), &what);
    }
}
