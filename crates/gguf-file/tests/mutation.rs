//! Damaged files: every byte of small files changed in many ways, every length cut to. Nothing may panic, and what
//! still opens must be whole: [`touch`] reads every key and tensor, writes all again and compares.

mod common;

use common::samples;
use common::touch::touch;
use proptest::prelude::*;

#[test]
fn every_byte_changed_is_harmless() {
    for file in [samples::small(), samples::full(1, false), samples::full(2, true), samples::full(3, false)] {
        assert!(touch(&file));
        let mut opened = 0;
        for at in 0..file.len() {
            let mut damaged = file.clone();
            for bit in 0..8 {
                damaged[at] = file[at] ^ (1 << bit);
                opened += usize::from(touch(&damaged));
            }
            for byte in [0x00, 0x7f, 0x80, 0xff] {
                damaged[at] = byte;
                touch(&damaged);
            }
        }
        // Changed data and values open; changed structure does not: both happen, or the test tests nothing.
        assert!(opened > file.len() / 2 && opened < file.len() * 8, "{opened} of {}", file.len() * 8);
    }
}

#[test]
fn every_word_changed_is_harmless() {
    let file = samples::full(3, false);
    for at in 0..file.len() - 8 {
        for word in [u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 32, u64::from(u32::MAX), 1 << 20, 0] {
            let mut damaged = file.clone();
            damaged[at..at + 8].copy_from_slice(&word.to_le_bytes());
            touch(&damaged);
        }
    }
}

#[test]
fn every_cut_is_an_error_until_only_padding_is_lost() {
    for file in [samples::small(), samples::full(1, true), samples::full(3, false)] {
        let end = file.iter().rposition(|&b| b != 0).expect("some byte is set") + 1;
        for len in 0..file.len() {
            assert_eq!(touch(&file[..len]), len >= end, "cut to {len} of {}", file.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_changes_are_harmless(
        version in 1u32..=3,
        big: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut file = samples::full(version, big);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        touch(&file);
    }

    #[test]
    fn noise_after_a_header_is_harmless(
        version in 1u32..=3,
        noise in prop::collection::vec(prop_oneof![4 => 0u8..13, 1 => any::<u8>()], 0..300),
    ) {
        let mut file = b"GGUF".to_vec();
        file.extend(version.to_le_bytes());
        file.extend(noise);
        touch(&file);
    }
}
