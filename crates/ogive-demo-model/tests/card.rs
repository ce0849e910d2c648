//! The file and its card say the same.
//!
//! SHA-256 is written out here (FIPS 180-4), for a crate without dependencies is not worth one for its test.
#![allow(clippy::unwrap_used)]

use ogive_demo_model::{GGUF, capitals};
use std::collections::HashSet;

/// The first bits of the fractions of `roots` of the first primes.
fn constants(count: usize, root: impl Fn(f64) -> f64) -> Vec<u32> {
    let primes = (2_u32..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    primes.take(count).map(|p| (root(f64::from(p)).fract() * 4_294_967_296.0) as u32).collect()
}

fn sha256(data: &[u8]) -> String {
    let k = constants(64, f64::cbrt);
    let mut state: [u32; 8] = constants(8, f64::sqrt).try_into().unwrap();
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((data.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut w: Vec<u32> =
            block.chunks_exact(4).map(|b| u32::from_be_bytes(b.try_into().unwrap())).collect();
        for i in 16..64 {
            let [a, b] = [w[i - 15], w[i - 2]];
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for i in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let t1 =
                h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(k[i]).wrapping_add(w[i]);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            [h, g, f, e, d, c, b, a] = [g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2)];
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *s = s.wrapping_add(v);
        }
    }
    state.iter().map(|s| format!("{s:08x}")).collect()
}

#[test]
fn the_hash_is_the_standards() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let two_blocks = sha256(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    assert_eq!(two_blocks, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

#[test]
fn the_card_is_of_this_file() {
    let card = include_str!("../README.md");
    assert!(GGUF.starts_with(b"GGUF") && GGUF.len() <= 3_000_000, "{} bytes", GGUF.len());
    let (size, hash) = (GGUF.len().to_string(), sha256(GGUF));
    assert!(
        card.contains(&size) && card.contains(&hash),
        "README.md should say {size} bytes and SHA-256 {hash}"
    );
}

#[test]
fn a_hundred_countries() {
    let names: HashSet<&str> = capitals().map(|c| c.0).collect();
    assert_eq!((names.len(), capitals().count()), (100, 100));
    assert_eq!(capitals().find(|c| c.0 == "France"), Some(("France", "Paris")));
}
