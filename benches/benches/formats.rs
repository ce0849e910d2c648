//! Decoding and encoding of every weight format, a million elements at a time: what a backend without a kernel of its own
//! pays. `cargo bench -p ogive-benches --bench formats`
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ogive_tensor::FORMATS;

fn rows(c: &mut Criterion) {
    let values = ogive_benches::values(1 << 20, 0.05);
    for format in FORMATS {
        let mut group = c.benchmark_group(format.name);
        group.throughput(Throughput::Elements(values.len() as u64));
        let mut packed = vec![0; format.row_bytes(values.len())];
        if format.encode.is_some() {
            group.sample_size(10);
            group.bench_function("encode", |b| b.iter(|| format.encode_row(&values, &mut packed)));
        }
        let mut out = vec![0.0; values.len()];
        group.sample_size(20);
        group.bench_function("decode", |b| b.iter(|| format.decode_row(&packed, &mut out)));
        group.finish();
    }
}

criterion_group!(benches, rows);
criterion_main!(benches);
