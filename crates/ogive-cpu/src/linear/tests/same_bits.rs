//! One token and one row give one result, however it is computed.

use super::*;

const NS: [usize; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 33, 64];

fn check_paths(precision: Precision, rows: usize, lengths: impl Fn(&Format) -> Vec<usize>) {
    let mut noise = Noise(1);
    let pool = Pool::new(2);
    for format in FORMATS {
        for k in lengths(format) {
            let w = weight(&mut noise, format, [1, rows, k]);
            let x = noise.values(64 * k);
            let twins = Twins::new(&pool, &x, 64, &w, precision);
            for path in fast_paths() {
                for n in NS {
                    let got = product(&pool, &x[..n * k], n, &w, precision, path);
                    assert_same(&got, &twins.of(path)[..n * rows], &format!("{format:?} {path} k={k} n={n}"));
                }
            }
        }
    }
}

#[test]
fn fast_paths_are_the_scalar_one() {
    check_paths(Precision::Default, 21, |f| lengths(f).collect());
}

#[test]
fn fast_paths_are_the_scalar_one_in_exact_arithmetic() {
    check_paths(Precision::Exact, 5, |f| lengths(f).filter(|&k| k <= 512).collect());
}

#[test]
fn dense_weights_for_few_tokens_and_many() {
    let mut noise = Noise(8);
    let pool = Pool::new(2);
    // Two stripes: the last panel of the second is a part of a strip.
    let rows = 101;
    for format in [&F32, &F16, &BF16] {
        for k in [1, 15, 33, 70] {
            let w = weight(&mut noise, format, [1, rows, k]);
            let most = most(&w);
            let x = noise.values(most * k);
            let twins = Twins::new(&pool, &x, most, &w, Precision::Default);
            for path in fast_paths() {
                for n in counts(&w, path) {
                    let got = product(&pool, &x[..n * k], n, &w, Precision::Default, path);
                    assert_same(&got, &twins.of(path)[..n * rows], &format!("{format:?} {path} k={k} n={n}"));
                }
            }
        }
    }
}

#[test]
fn any_number_of_rows() {
    let mut noise = Noise(2);
    let pool = Pool::new(2);
    for format in FORMATS {
        let (k, all) = (256, 70);
        let w = weight(&mut noise, format, [1, all, k]);
        let x = noise.values(13 * k);
        let twins = Twins::new(&pool, &x, 13, &w, Precision::Default);
        for path in fast_paths() {
            for rows in [1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 69] {
                let part = w.rows(0..rows).unwrap();
                for n in [1, 5, 13] {
                    let got = product(&pool, &x[..n * k], n, &part, Precision::Default, path);
                    let want: Vec<f32> =
                        twins.of(path).chunks(all).take(n).flat_map(|r| &r[..rows]).copied().collect();
                    assert_same(&got, &want, &format!("{format:?} {path} rows={rows} n={n}"));
                }
            }
        }
    }
}

#[test]
fn any_place_in_the_batch_and_any_number_of_threads() {
    let mut noise = Noise(3);
    let pools = [1, 2, 5].map(Pool::new);
    let (k, rows, n) = (512, 100, 37);
    for format in FORMATS {
        let w = weight(&mut noise, format, [1, rows, k]);
        let x = noise.values(n * k);
        for path in Path::ALL.iter().copied().filter(|p| p.is_supported()) {
            let want = product(&pools[0], &x, n, &w, Precision::Default, path);
            for pool in &pools {
                let got = product(pool, &x, n, &w, Precision::Default, path);
                assert_same(&got, &want, &format!("{format:?} {path} on {pool:?}"));
                for t in [0, 7, 36] {
                    let alone = product(pool, &x[t * k..][..k], 1, &w, Precision::Default, path);
                    assert_same(&alone, &want[t * rows..][..rows], &format!("{format:?} {path} token {t}"));
                }
            }
        }
    }
}

#[test]
fn rounding_is_the_same_on_every_path() {
    use crate::linear::Quantised;
    let mut noise = Noise(4);
    for k in [32, 96, 128, 256, 448, 1024] {
        for scale in [1.0, 1e-30, 1e30, 3e-39, 0.0] {
            let mut x: Vec<f32> = noise.values(k).iter().map(|v| v * scale).collect();
            // Ties: multiples of half a step.
            x[0] = 127.0 * scale;
            (1..20).for_each(|i| x[i] = (i as f32 - 9.5) * scale);
            let mut want = Quantised::with_len(k);
            want.fill(&x);
            for path in fast_paths() {
                let mut got = Quantised::with_len(k);
                path.quantise(&x, &mut got);
                assert_eq!(got, want, "{path} k={k} scale={scale}");
            }
        }
    }
}
