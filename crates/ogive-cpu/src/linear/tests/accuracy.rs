//! The scalar twin against sums in double precision of decoded elements.

use super::*;

/// The mean square error of `got` over the mean square of the true products.
fn error(x: &[f32], n: usize, w: &HostWeight, got: &[f32]) -> f64 {
    let (elements, [_, rows, k]) = (w.to_vec(), w.shape);
    let (mut wrong, mut all) = (0.0, 0.0);
    for t in 0..n {
        for r in 0..rows {
            let pairs = x[t * k..][..k].iter().zip(&elements[r * k..][..k]);
            let want: f64 = pairs.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
            wrong += (f64::from(got[t * rows + r]) - want).powi(2);
            all += want * want;
        }
    }
    wrong / all
}

#[test]
fn rounding_activations_costs_what_it_should() {
    let mut noise = Noise(5);
    let pool = Pool::new(2);
    for format in FORMATS {
        for k in [256, 512, 2048] {
            let w = weight(&mut noise, format, [1, 24, k]);
            let x = noise.values(4 * k);
            let bound = match format.name {
                "f32" | "f16" | "f8_e4m3" => 1e-12,
                "bf16" => 1e-5,
                _ => 1e-4,
            };
            for definition in [Path::Scalar, Path::Amx] {
                let w = Arc::new(CpuWeight::twin(&w, Precision::Default, definition));
                let mut got = vec![f32::NAN; 4 * 24];
                linear(&pool, &x, 4, &w, 0, &mut got).unwrap();
                let e = error(&x, 4, w.host(), &got);
                assert!(e < bound, "{format:?} of {definition} k={k}: {e}");
                // It is the rounding that is measured, and not an exact product by mistake.
                assert!(bound < 1e-10 || e > bound * 1e-3, "{format:?} of {definition} k={k}: {e}");
            }
        }
    }
}

#[test]
fn exact_means_exact() {
    let mut noise = Noise(6);
    let pool = Pool::new(2);
    for format in FORMATS {
        for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
            for n in [1, 4] {
                let w = weight(&mut noise, format, [1, 9, 512]);
                let x = noise.values(n * 512);
                let e = error(&x, n, &w, &product(&pool, &x, n, &w, Precision::Exact, path));
                assert!(e < 1e-12, "{format:?} {path}: {e}");
            }
        }
    }
}

#[test]
fn weights_that_were_really_packed() {
    let mut noise = Noise(7);
    let pool = Pool::new(2);
    let k = 1024;
    // Those of few bits are drawn as bytes by the other tests.
    for format in FORMATS.iter().filter(|f| f.encode.is_some() && !FEW_BITS.contains(f)) {
        let mut bytes = vec![0; 16 * format.row_bytes(k)];
        format.encode_row(&noise.values(16 * k), &mut bytes).unwrap();
        let w = HostWeight::new("w", [1, 16, k], format, bytes.into()).unwrap();
        let x = noise.values(2 * k);
        let e = error(&x, 2, &w, &product(&pool, &x, 2, &w, Precision::Default, Path::Scalar));
        assert!(e < 1e-4, "{format:?}: {e}");
    }
}
