//! 32 groups of words, one after the other in memory, as a row of 32 for each place in the group.
//!
//! A kernel that reads four words in each lane asks for a transposition of 32 by 4. Eight lanes at a time it takes four loads and eight
//! shuffles; word by word it was the most expensive instruction of all. Device memory is read in assembly: other threads may write it
//! meanwhile, which is a race of the kernel's and must be none of ours.
#![allow(unsafe_code)]
#![cfg(target_arch = "x86_64")]

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_loadu_si256, _mm256_permute2x128_si256,
    _mm256_permute4x64_epi64, _mm256_shuffle_ps, _mm256_storeu_si256, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

/// Whether the functions here may be called.
pub(crate) fn wide() -> bool {
    std::is_x86_feature_detected!("avx2")
}

/// Reads 32 bytes that others may be writing.
#[target_feature(enable = "avx2")]
#[inline]
fn racy(host: *const u8) -> __m256i {
    let value;
    // SAFETY: the caller found these bytes in an allocation that is kept alive. What the processor reads while they are written is some
    // mixture of old and new words, as on a GPU; the compiler assumes nothing of what assembly reads.
    unsafe {
        asm!("vmovdqu {}, ymmword ptr [{}]", out(ymm_reg) value, in(reg) host, options(nostack, preserves_flags, readonly));
    }
    value
}

/// The columns of device memory at `host`, where the caller found `128 * N` bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn of_device<const N: usize>(host: *mut u8) -> [[u32; 32]; N] {
    transposed::<N>(|at| racy(host.wrapping_add(at)))
}

/// The columns of `128 * N` bytes; of fewer, zeros.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn of_slice<const N: usize>(bytes: &[u8]) -> [[u32; 32]; N] {
    if bytes.len() < 128 * N {
        return [[0; 32]; N];
    }
    // SAFETY: `transposed` reads 32 bytes at multiples of 32 below `128 * N`, which are there.
    transposed::<N>(|at| unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at).cast()) })
}

/// Columns of what `read` gives for each multiple of 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed<const N: usize>(read: impl Fn(usize) -> __m256i) -> [[u32; 32]; N] {
    let mut columns = [[0; 32]; N];
    for eight in 0..4 {
        let at = eight * 32 * N;
        let mut put = |k: usize, value: __m256i| {
            // SAFETY: eight words from `8 * eight` on, of 32.
            unsafe { _mm256_storeu_si256(columns[k].as_mut_ptr().add(8 * eight).cast(), value) };
        };
        match N {
            1 => put(0, read(at)),
            2 => {
                let [a, b] = [read(at), read(at + 32)].map(|v| _mm256_castsi256_ps(v));
                let low = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(a, b));
                let high = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(a, b));
                put(0, _mm256_permute4x64_epi64::<0xd8>(low));
                put(1, _mm256_permute4x64_epi64::<0xd8>(high));
            }
            4 => {
                // Two lanes in each: first lane l beside lane l + 4, then four by four within the halves.
                let [a, b, c, d] = [read(at), read(at + 32), read(at + 64), read(at + 96)];
                let first = _mm256_permute2x128_si256::<0x20>(a, c);
                let second = _mm256_permute2x128_si256::<0x31>(a, c);
                let third = _mm256_permute2x128_si256::<0x20>(b, d);
                let fourth = _mm256_permute2x128_si256::<0x31>(b, d);
                let low = [_mm256_unpacklo_epi32(first, second), _mm256_unpacklo_epi32(third, fourth)];
                let high = [_mm256_unpackhi_epi32(first, second), _mm256_unpackhi_epi32(third, fourth)];
                put(0, _mm256_unpacklo_epi64(low[0], low[1]));
                put(1, _mm256_unpackhi_epi64(low[0], low[1]));
                put(2, _mm256_unpacklo_epi64(high[0], high[1]));
                put(3, _mm256_unpackhi_epi64(high[0], high[1]));
            }
            _ => {}
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>() {
        let words: Vec<u32> = (0..32 * N as u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let expected: [[u32; 32]; N] =
            std::array::from_fn(|k| std::array::from_fn(|lane| words[lane * N + k]));
        // SAFETY: the caller found AVX2, and the bytes are there.
        unsafe {
            assert_eq!(of_slice::<N>(&bytes), expected);
            assert_eq!(of_device::<N>(bytes.as_mut_ptr()), expected);
        }
    }

    #[test]
    fn columns_are_transposed() {
        if wide() {
            check::<1>();
            check::<2>();
            check::<4>();
        }
    }
}
