//! One weight packed anew, in parallel and in order.
//!
//! Rows are cut into chunks of a fixed number of elements and dealt out to the threads in turn; what they make is taken in
//! the order of the chunks. So the bytes do not depend on the number of threads, and no more than a few chunks for each is
//! in memory. A thread lives as long as a tensor: starting one costs less than packing one row of a real model.

use crate::{Error, Result};
use ogive_tensor::{Format, HostWeight};
use std::{ops::Range, sync::mpsc, thread};

/// Elements that are packed at once, about.
const CHUNK: usize = 1 << 19;

/// Packs `weight` as `to` on so many threads and gives the bytes to `take`, in order.
///
/// `importance` says what errors of each column count, `[experts, cols]`, or is empty where all count alike.
///
/// Every element is looked at: what is no finite number, or is too large for `to`, is an error that names it. Where the format
/// stays, so do the bytes: packing what was packed would lose once more, for nothing.
pub(crate) fn pack(
    weight: &HostWeight,
    importance: &[f32],
    to: &'static Format,
    threads: usize,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let [experts, rows, cols] = weight.shape;
    let all = experts * rows;
    if all == 0 || cols == 0 {
        return Ok(());
    }
    let each = (CHUNK / cols).max(1);
    let chunks = all.div_ceil(each);
    let chunk = |i: usize| i * each..all.min((i + 1) * each);
    let threads = threads.clamp(1, chunks);
    if threads == 1 {
        return (0..chunks).try_for_each(|i| take(&some(weight, importance, to, chunk(i))?));
    }
    thread::scope(|scope| {
        let queues: Vec<mpsc::Receiver<Result<Vec<u8>>>> = (0..threads)
            .map(|first| {
                let (send, receive) = mpsc::sync_channel(1);
                scope.spawn(move || {
                    // Nobody takes any more after an error: the thread ends.
                    let mut mine = (first..chunks).step_by(threads);
                    mine.all(|i| send.send(some(weight, importance, to, chunk(i))).is_ok())
                });
                receive
            })
            .collect();
        for (_, queue) in (0..chunks).zip(queues.iter().cycle()) {
            take(&queue.recv().map_err(|_| Error::Thread)??)?;
        }
        Ok(())
    })
}

/// Some rows.
fn some(weight: &HostWeight, importance: &[f32], to: &'static Format, rows: Range<usize>) -> Result<Vec<u8>> {
    let [_, each, cols] = weight.shape;
    let mut values = vec![0.0; weight.shape[2]];
    let stays = weight.is_plain() && weight.format == to;
    // What stands in a file may be larger than what packing makes of any numbers.
    let (len, most) = (to.row_bytes(values.len()), if stays { f32::MAX } else { greatest(to) });
    let mut out = vec![0; rows.len() * len];
    for (row, out) in rows.zip(out.chunks_exact_mut(len)) {
        weight.decode_row(row, &mut values);
        // Summed up first, for that is fast; and NaN is not below anything.
        if !values.iter().all(|v| v.abs() <= most) {
            return Err(unfit(weight, to, row, &values, most));
        }
        match weight.bytes.get(row * len..(row + 1) * len).filter(|_| stays) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => {
                let expert = row / each.max(1) * cols;
                let importance = importance.get(expert..expert + cols).unwrap_or_default();
                to.encode_row_by(&values, importance, out)?;
            }
        }
    }
    Ok(out)
}

/// The largest number the format can hold, with a little to spare: its factors are f16, times what its codes and scales
/// reach.
fn greatest(format: &Format) -> f32 {
    let times = match format.name {
        "f32" | "bf16" | "mxfp4" => return f32::MAX,
        "f8_e4m3" => return 448.0,
        "nvfp4" => return 448.0 * 6.0,
        "q4_0" => 7.0,
        "q5_0" => 15.0,
        "q8_0" | "iq4_nl" => 100.0,
        "q2_k" => 14.0,
        "q3_k" | "q4_k" | "q5_k" => 60.0,
        "q6_k" | "iq4_xs" => 2500.0,
        // As long as all are alike, any level may be theirs, the least too.
        "iq1_s" | "iq1_m" => 1.8,
        "iq2_xxs" | "iq2_xs" | "iq2_s" | "iq3_xxs" | "iq3_s" => 30.0,
        _ => 1.0,
    };
    65_504.0 * times
}

fn unfit(weight: &HostWeight, to: &Format, row: usize, values: &[f32], most: f32) -> Error {
    let found = values.iter().copied().enumerate().find(|(_, v)| v.is_nan() || v.abs() > most);
    let (col, value) = found.unwrap_or_default();
    let advice = if value.is_finite() {
        "bf16 has room for it"
    } else {
        "the weights are damaged, or training them failed; is the download complete?"
    };
    Error::Value { tensor: weight.name.clone(), row, col, value, format: to.name, advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_tensor::{BF16, F16, F32, FEW_BITS, FORMATS, Q4_0, Q4_K, Q8_0};

    fn packed(w: &HostWeight, to: &'static Format, threads: usize) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        pack(w, &[], to, threads, |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }

    fn weight(shape: [usize; 3]) -> HostWeight {
        let mut state = 7_u32;
        let values: Vec<f32> = (0..shape.iter().product())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect();
        HostWeight::from_f32("w", shape, &values).unwrap()
    }

    #[test]
    fn the_bytes_are_the_same_on_any_number_of_threads() {
        // Several chunks, the last of them short.
        let w = weight([2, 700, 1024]);
        for to in [&Q4_K, &F16, &F32] {
            let mut want = vec![0; 2 * 700 * to.row_bytes(1024)];
            to.encode_row(&w.to_vec(), &mut want).unwrap();
            for threads in [1, 2, 5, 64] {
                assert!(packed(&w, to, threads).unwrap() == want, "{to:?} on {threads}");
            }
        }
    }

    #[test]
    fn what_no_format_holds_is_named() {
        let bad = |value: f32, to| {
            let mut values = weight([1, 130, 4096]).to_vec();
            values[129 * 4096 + 5] = value;
            let w = HostWeight::from_f32("blk.0.attn_q.weight", [1, 130, 4096], &values).unwrap();
            packed(&w, to, 2).map_err(|e| e.to_string())
        };
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            // Nothing of this is a format's own, and those of few bits take their time for what stands before.
            for to in FORMATS.iter().filter(|f| f.encode.is_some() && !FEW_BITS.contains(f)) {
                let e = bad(value, to).unwrap_err();
                assert!(
                    e.starts_with("blk.0.attn_q.weight: element 5 of row 129 is") && e.contains("damaged"),
                    "{e}"
                );
            }
        }
        assert!(bad(70_000.0, &F16).unwrap_err().contains("bf16 has room"));
        for to in [&Q8_0, &Q4_0, &BF16, &F32] {
            let mut out = vec![0.0; 4096];
            to.decode_row(&bad(70_000.0, to).unwrap()[129 * to.row_bytes(4096)..], &mut out);
            assert!(out.iter().all(|v| v.is_finite()) && (out[5] / 70_000.0 - 1.0).abs() < 0.01);
        }
        for to in FORMATS.iter().filter(|f| f.encode.is_some() && !FEW_BITS.contains(f)) {
            let most = greatest(to).min(1e30);
            let mut out = vec![0.0; 4096];
            to.decode_row(&bad(most, to).unwrap()[129 * to.row_bytes(4096)..], &mut out);
            assert!(out.iter().all(|v| v.is_finite()), "{to:?}");
        }
        for to in FEW_BITS {
            for (other, every) in [(0.0, 256), (1.0, 256), (0.0, 8), (0.0, 3), (0.0, 1), (-1.0, 2)] {
                let most = greatest(to);
                let values: Vec<f32> =
                    (0..512).map(|i| if i % every == 0 { most } else { other * most }).collect();
                let w = HostWeight::from_f32("w", [1, 1, 512], &values).unwrap();
                let back = HostWeight::new("w", [1, 1, 512], to, packed(&w, to, 1).unwrap().into()).unwrap();
                assert!(back.to_vec().iter().all(|v| v.is_finite()), "{to:?}");
            }
        }
    }

    #[test]
    fn what_keeps_its_format_keeps_its_bytes() {
        for format in FORMATS.iter().filter(|f| f.block_bytes > 4 && f.encode.is_some()) {
            let mut state = 7_u32;
            let mut bytes: Vec<u8> = (0..3 * format.row_bytes(512))
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            // Factors of any bits may be no numbers; these are, and as large as they come.
            for block in bytes.chunks_exact_mut(format.block_bytes) {
                let factors: &[usize] = match format.name {
                    "q2_k" => &[80, 82],
                    "q3_k" => &[108],
                    "q6_k" => &[208],
                    "q4_1" | "q5_1" | "q4_k" | "q5_k" => &[0, 2],
                    "mxfp4" | "nvfp4" => &[],
                    "tq1_0" => &[52],
                    "tq2_0" => &[64],
                    // In the upper halves of every second byte.
                    "iq1_m" => {
                        for (at, four) in [(49, 0xf0), (51, 0xf0), (53, 0xb0), (55, 0x70)] {
                            block[at] = block[at] & 15 | four;
                        }
                        continue;
                    }
                    _ => &[0],
                };
                factors.iter().for_each(|at| block[*at..at + 2].copy_from_slice(&0x7BFF_u16.to_le_bytes()));
                if factors.is_empty() {
                    block[0] = 250;
                }
            }
            let w = HostWeight::new("w", [1, 3, 512], format, bytes.clone().into()).unwrap();
            assert!(packed(&w, format, 2).unwrap() == bytes, "{format:?}");
            // NVFP4's reach no further, and those of ternary ones no further than their factor.
            let most = match format.name {
                "nvfp4" => 1e3,
                "tq1_0" | "tq2_0" => 6e4,
                _ => 3e5,
            };
            assert!(w.to_vec().iter().any(|v| v.abs() > most), "{format:?}");
        }
        let nan = HostWeight::new("w", [1, 1, 32], &Q8_0, vec![0xFF; 34].into()).unwrap();
        assert!(packed(&nan, &Q8_0, 1).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn rows_are_packed_by_what_their_expert_met() {
        /// Writes what it was told of the first of two elements, in hundredths of what the more important of them counts.
        static TOLD: Format = Format {
            name: "told",
            block_len: 2,
            block_bytes: 1,
            decode: |_, out| out.fill(0.0),
            encode: Some(|_, importance, out| {
                out[0] = importance.first().map_or(255, |v| (v * 100.0).round() as u8)
            }),
        };
        // The second of three experts met nothing that counts.
        let (w, importance) =
            (weight([3, 2, 4]), [1.0, 4.0, 2.0, 4.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0, 4.0, 5.0]);
        let told = |importance: &[f32]| {
            let mut all = Vec::new();
            pack(&w, importance, &TOLD, 2, |bytes| {
                all.extend_from_slice(bytes);
                Ok(())
            })?;
            Ok::<_, Error>(all)
        };
        assert_eq!(told(&importance).unwrap(), [25, 50, 25, 50, 255, 255, 255, 255, 75, 80, 75, 80]);
        assert_eq!(told(&[]).unwrap(), [255; 12]);
    }

    #[test]
    fn nothing_takes_nothing_and_an_error_ends_it() {
        assert!(packed(&weight([3, 0, 32]), &Q8_0, 4).unwrap().is_empty());
        let mut left = 2;
        let stopped = pack(&weight([1, 4000, 1024]), &[], &Q8_0, 3, |_| {
            left -= 1;
            if left == 0 { Err(Error::Stopped) } else { Ok(()) }
        });
        assert!(matches!(stopped, Err(Error::Stopped)));
    }
}
