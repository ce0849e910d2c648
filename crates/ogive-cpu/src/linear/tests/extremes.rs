//! Numbers at the edges: what is zero, too small, too large or no number at all.

use super::*;

fn all_paths() -> impl Iterator<Item = Path> {
    Path::ALL.iter().copied().filter(|p| p.is_supported())
}

#[test]
fn zeros_give_zeros() {
    let mut noise = Noise(10);
    let pool = Pool::new(2);
    for format in FORMATS {
        let w = weight(&mut noise, format, [1, 18, 256]);
        for path in all_paths() {
            for n in [1, 6] {
                let got = product(&pool, &vec![0.0; n * 256], n, &w, Precision::Default, path);
                assert!(got.iter().all(|v| *v == 0.0), "{format:?} {path} n={n}");
            }
        }
    }
}

#[test]
fn tiny_and_huge_activations() {
    let mut noise = Noise(11);
    let pool = Pool::new(2);
    for format in FORMATS {
        let w = weight(&mut noise, format, [1, 18, 512]);
        let x = noise.values(6 * 512);
        for scale in [1e-44, 1e-38, 1e-36, 1e-20, 1e20, 1e37] {
            let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
            let want = product(&pool, &x, 6, &w, Precision::Default, Path::Scalar);
            for path in fast_paths() {
                for n in [1, 2, 6] {
                    let got = product(&pool, &x[..n * 512], n, &w, Precision::Default, path);
                    assert_same(&got, &want[..n * 18], &format!("{format:?} {path} scale={scale} n={n}"));
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_visible_and_reaches_no_other_token() {
    let mut noise = Noise(12);
    let pool = Pool::new(2);
    for format in FORMATS {
        let w = weight(&mut noise, format, [1, 18, 512]);
        let clean = noise.values(6 * 512);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 255, 511] {
                let mut x = clean.clone();
                x[2 * 512 + at] = bad;
                for path in all_paths() {
                    let got = product(&pool, &x, 6, &w, Precision::Default, path);
                    let want = product(&pool, &clean, 6, &w, Precision::Default, path);
                    for t in 0..6 {
                        let got = &got[t * 18..][..18];
                        if t == 2 {
                            assert!(got.iter().all(|v| !v.is_finite()), "{format:?} {path} {bad} at {at}");
                        } else {
                            assert_same(got, &want[t * 18..][..18], &format!("{format:?} {path} token {t}"));
                        }
                    }
                    let alone = product(&pool, &x[2 * 512..][..512], 1, &w, Precision::Default, path);
                    assert_same(&alone, &got[2 * 18..][..18], &format!("{format:?} {path} alone"));
                }
            }
        }
    }
}

#[test]
fn damaged_weights_are_damaged_the_same_way_on_every_path() {
    let mut noise = Noise(13);
    let pool = Pool::new(2);
    for format in FORMATS {
        // Any bytes: infinite and missing factors too.
        let bytes = noise.bytes(40 * format.row_bytes(768));
        let w = HostWeight::new("w", [1, 40, 768], format, bytes.into()).unwrap();
        let x = noise.values(5 * 768);
        let want = product(&pool, &x, 5, &w, Precision::Default, Path::Scalar);
        for path in fast_paths() {
            for n in [1, 2, 5] {
                let got = product(&pool, &x[..n * 768], n, &w, Precision::Default, path);
                assert_same(&got, &want[..n * 40], &format!("{format:?} {path} n={n}"));
            }
        }
    }
}

#[test]
fn the_largest_codes_do_not_overflow() {
    let pool = Pool::new(2);
    for format in FORMATS.iter().filter(|f| f.block_len > 1) {
        for fill in [0x00, 0x7f, 0x80, 0x88, 0xff] {
            let mut bytes = vec![fill; 17 * format.row_bytes(512)];
            for block in bytes.chunks_exact_mut(format.block_bytes) {
                for &at in factors_of(format) {
                    block[at..at + 2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
                }
                if format.name == "mxfp4" {
                    block[0] = 127;
                }
            }
            let w = HostWeight::new("w", [1, 17, 512], format, bytes.into()).unwrap();
            for sign in [1.0, -1.0] {
                let x = vec![sign; 6 * 512];
                let want = product(&pool, &x, 6, &w, Precision::Default, Path::Scalar);
                for path in fast_paths() {
                    for n in [1, 2, 6] {
                        let got = product(&pool, &x[..n * 512], n, &w, Precision::Default, path);
                        assert_same(&got, &want[..n * 17], &format!("{format:?} {path} {fill:#x} n={n}"));
                    }
                }
                let exact = product(&pool, &x, 6, &w, Precision::Exact, Path::Scalar);
                for (a, b) in want.iter().zip(exact) {
                    assert!((a - b).abs() <= b.abs() * 1e-5, "{format:?} {fill:#x}: {a} and {b}");
                }
            }
        }
    }
}
