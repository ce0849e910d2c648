//! Products in plain Rust: the slow twin that defines the others.

use super::{
    Job,
    dense::{self, Dense},
    lines::Line,
    packed::{self, Block, Packed},
};
use crate::{pool::Stripe, weight::Kernel};

/// Fills a stripe of the result.
pub(crate) fn stripe(job: &Job<'_>, out: &mut Stripe<'_>) {
    inlined(job, out);
}

/// The same, compiled with the instructions of whoever calls it.
#[inline(always)]
pub(crate) fn inlined(job: &Job<'_>, out: &mut Stripe<'_>) {
    match job.kernel() {
        Kernel::Decoded | Kernel::Float8 => rows(job, Dense::F32, out, |r, row| job.decode_row(r, row)),
        Kernel::Dense(kind) => rows(job, kind, out, |r, row| kind.decode(job.row(r), row)),
        Kernel::Tiled => tiled(job, out),
        Kernel::Packed(format) => packed(job, format, out),
        Kernel::Coded(_) => {} // is unpacked before
    }
}

#[inline(always)]
fn tiled(job: &Job<'_>, out: &mut Stripe<'_>) {
    let mut t = 0;
    for group in job.input.lines() {
        for of_group in 0..group.tokens {
            let x: Vec<u16> =
                group.lines.iter().skip(of_group).step_by(group.each).flat_map(|Line(line)| *line).collect();
            for r in 0..out.width() {
                let row: Vec<u16> = job.row(r).as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
                out.row(t)[r] = dense::dot_in_tiles(&x, &row);
            }
            t += 1;
        }
    }
}

#[inline(always)]
fn rows(job: &Job<'_>, kind: Dense, out: &mut Stripe<'_>, decode: impl Fn(usize, &mut [f32])) {
    let (x, len) = job.input.dense(kind);
    let mut row = vec![0.0; len];
    for r in 0..out.width() {
        decode(r, &mut row);
        for t in 0..job.input.n() {
            out.row(t)[r] = dense::dot(&x[t * len..][..len], &row);
        }
    }
}

fn packed(job: &Job<'_>, format: Packed, out: &mut Stripe<'_>) {
    for r in 0..out.width() {
        let row = Block::row(format, job.row(r));
        for (t, x) in job.input.quantised().iter().enumerate() {
            out.row(t)[r] = packed::dot(format, &row, x);
        }
    }
}
