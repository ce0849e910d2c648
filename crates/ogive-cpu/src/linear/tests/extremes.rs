//! Numbers at the edges: what is zero, too small, too large or no number at all.

use super::*;

#[test]
fn zeros_give_zeros() {
    let mut noise = Noise(10);
    let pool = Pool::new(2);
    for format in FORMATS {
        let w = weight(&mut noise, format, [1, 18, 256]);
        for path in all_paths() {
            for n in counts(&w, path) {
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
        let most = most(&w);
        let x = noise.values(most * 512);
        for scale in [1e-44, 1e-38, 1e-36, 1e-20, 1e20, 1e37] {
            let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
            let twins = Twins::new(&pool, &x, most, &w, Precision::Default);
            for path in fast_paths() {
                for n in counts(&w, path) {
                    let got = product(&pool, &x[..n * 512], n, &w, Precision::Default, path);
                    assert_same(
                        &got,
                        &twins.of(path)[..n * 18],
                        &format!("{format:?} {path} scale={scale} n={n}"),
                    );
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
        let clean = noise.values(most(&w).max(6) * 512);
        for path in all_paths() {
            // For the scalar path tokens are never together.
            let counts = if path == Path::Scalar { vec![6] } else { counts(&w, path) };
            for n in counts.into_iter().filter(|&n| n >= 6) {
                let clean = &clean[..n * 512];
                let want = product(&pool, clean, n, &w, Precision::Default, path);
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    for (at, bad_token) in [(0, 2), (255, n / 2), (511, n - 1)] {
                        let mut x = clean.to_vec();
                        x[bad_token * 512 + at] = bad;
                        let got = product(&pool, &x, n, &w, Precision::Default, path);
                        let what = format!("{format:?} {path} n={n} {bad} at {at} of token {bad_token}");
                        for (t, (got, want)) in got.chunks(18).zip(want.chunks(18)).enumerate() {
                            if t == bad_token {
                                assert!(got.iter().all(|v| !v.is_finite()), "{what}");
                            } else {
                                assert_same(got, want, &format!("{what}: token {t}"));
                            }
                        }
                        let alone = &x[bad_token * 512..][..512];
                        let alone = product(&pool, alone, 1, &w, Precision::Default, path);
                        assert_same(&alone, &got[bad_token * 18..][..18], &format!("{what}: alone"));
                    }
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
        let most = most(&w);
        let x = noise.values(most * 768);
        let twins = Twins::new(&pool, &x, most, &w, Precision::Default);
        for path in fast_paths() {
            for n in counts(&w, path) {
                let got = product(&pool, &x[..n * 768], n, &w, Precision::Default, path);
                assert_same(&got, &twins.of(path)[..n * 40], &format!("{format:?} {path} n={n}"));
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
                if format.name == "iq1_m" {
                    set_iq1_m(block, f16::ONE);
                }
            }
            let w = HostWeight::new("w", [1, 17, 512], format, bytes.into()).unwrap();
            let most = most(&w);
            for sign in [1.0, -1.0] {
                let x = vec![sign; most * 512];
                let twins = Twins::new(&pool, &x, most, &w, Precision::Default);
                for path in fast_paths() {
                    for n in counts(&w, path) {
                        let got = product(&pool, &x[..n * 512], n, &w, Precision::Default, path);
                        assert_same(
                            &got,
                            &twins.of(path)[..n * 17],
                            &format!("{format:?} {path} {fill:#x} n={n}"),
                        );
                    }
                }
                let exact = product(&pool, &x[..512], 1, &w, Precision::Exact, Path::Scalar);
                for (a, b) in twins.of(Path::Scalar).iter().zip(exact) {
                    assert!((a - b).abs() <= b.abs() * 1e-5, "{format:?} {fill:#x}: {a} and {b}");
                }
            }
        }
    }
}
